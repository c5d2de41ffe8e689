//! `overdrive density`: how many instances each backing holds inside the objective.
//!
//! Set up once, measure backing after backing, take everything down, then show. What it starts dies with
//! it; what a kill leaves (groups, a swap area, a folder) the next run or `--stale` removes.

mod assemble;
mod plan;
mod progress;

use crate::cmd::extend::ahead::KeptRoom;
use crate::cmd::extend::plan::DRAM_MIN;
use crate::cmd::extend::try_out::{command, try_out};
use crate::exit::{Ending, Refused};
use crate::flags::{DensityFlags, DensityKind};
use crate::leftovers::{self, Swept};
use crate::{interrupt, output};
use anyhow::{Context, Result};
use overdrive_base::size::format_size;
use overdrive_base::time::format_ns;
use overdrive_density::backing::Backing;
use overdrive_density::fleet::{Fleet, FleetError};
use overdrive_density::instance::process::RedisProcess;
use overdrive_density::instance::vm::{RedisVm, VmSpec};
use overdrive_density::instance::{InstanceError, Kind, folder, guest};
use overdrive_density::search::Search;
use overdrive_density::trial::{Trial, attempt, impossible};
use overdrive_report::density::{DensityRecord, show};
use overdrive_report::render;
use overdrive_sys::swap::SwapFile;
use plan::Plan;
use progress::Line;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Runs it and prints what came of it.
pub(crate) fn density(flags: &DensityFlags) -> Result<Ending> {
    let stop = interrupt::watch_to_the_end()?;
    if flags.stale {
        let (removed, stuck) = folder::remove_stale();
        return leftovers::clean_stale(flags.json, Swept { removed, stuck, ..Swept::default() });
    }
    // Instances first, which are in the groups, and whose pages are in swap.
    let (removed, stuck) = folder::remove_stale();
    Swept { removed, stuck, ..Swept::default() }.tell();
    leftovers::sweep_before_run()?.tell();
    let plan = plan::plan(flags)?;
    let is_new = flags.out.as_ref().is_some_and(|folder| !folder.exists());
    flags.out.as_deref().map(output::result_folder).transpose()?;
    let started = Instant::now();
    let mut notes = plan.notes.clone();
    let (backings, failure) = measure(&plan, &stop, &mut notes);
    let stopped = stop.load(Ordering::Relaxed);
    notes.extend(lateness_note(&plan, &backings));
    let anything = backings.iter().any(|backing| !backing.trials.is_empty());
    if anything {
        let status = assemble::status(stopped, failure.as_ref());
        let record = assemble::record(&plan, &backings, notes, status, started.elapsed());
        show(&record, flags)?;
    } else if let Some(folder) = flags.out.as_ref().filter(|_| is_new) {
        // Only an empty one goes.
        let _ = std::fs::remove_dir(folder);
    }
    if let Some(failure) = failure.filter(|_| !stopped) {
        return Err(failure);
    }
    if stopped {
        if !anything {
            output::say!("overdrive: interrupted before the first number was measured");
        }
        return Ok(Ending::Interrupted);
    }
    Ok(verdict(&backings))
}

/// On an idle processor the load wakes late, and that is part of every latency: what can be done about it,
/// when it decided something.
fn lateness_note(plan: &Plan, backings: &[Outcome]) -> Option<String> {
    let missed = backings.iter().flat_map(|backing| &backing.trials).filter(|trial| !trial.held());
    let late = missed.filter_map(|trial| {
        let (late, all) = (trial.measured.late.mean()?, trial.measured.fleet().mean()?);
        (late > all / 4.0).then_some(late)
    });
    let late = late.reduce(f64::max).filter(|_| plan.load.spin.is_zero())?;
    Some(format!(
        "Where the objective was missed the load itself was up to {} late on average, and that is in the latencies: \
         --spin 1ms keeps its CPU awake.",
        format_ns(late as u64)
    ))
}

/// What one backing came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) searched: bool,
    pub(crate) held: u32,
    pub(crate) failed: Option<u32>,
    pub(crate) trials: Vec<Trial>,
    /// The class of each instance, by its number.
    pub(crate) classes: Vec<String>,
}

impl Outcome {
    fn new(plan: &Plan, backing: &Backing) -> Self {
        Self {
            name: backing.name(),
            searched: plan.instances.is_none(),
            held: 0,
            failed: None,
            trials: Vec::new(),
            classes: plan.class_names(),
        }
    }
}

fn verdict(backings: &[Outcome]) -> Ending {
    let mut ending = Ending::Done;
    for backing in backings.iter().filter(|backing| backing.held == 0) {
        // Of a number that was tried twice the second trial, as in the record.
        let Some(trial) = backing.trials.iter().rev().min_by_key(|trial| trial.instances) else { continue };
        let number = match trial.instances {
            1 => "one instance".to_owned(),
            number => format!("{number} instances"),
        };
        output::say!("overdrive: {}: the objective is not met at {number}: {}", backing.name, trial.verdict);
        ending = Ending::BadVerdict;
    }
    ending
}

/// Every backing in turn; what was measured stays when one fails.
fn measure(plan: &Plan, stop: &AtomicBool, notes: &mut Vec<String>) -> (Vec<Outcome>, Option<anyhow::Error>) {
    let mut outcomes = Vec::new();
    let site = match Site::prepare(plan, notes) {
        Ok(site) => site,
        Err(error) => return (outcomes, Some(error)),
    };
    let mut failure = None;
    for name in &plan.backings {
        if stop.load(Ordering::Relaxed) || failure.is_some() {
            break;
        }
        let before = held_before(&outcomes);
        let measured = plan.backing(*name, site.store.as_deref()).and_then(|backing| {
            outcomes.push(Outcome::new(plan, &backing));
            let outcome = outcomes.last_mut().context("it was just put there")?;
            one_backing(plan, backing, &before, stop, outcome, notes)
        });
        failure = measured.err();
    }
    (outcomes, failure.or(site.take_down().err()))
}

/// The numbers that held on the backings before, the largest first: where the next one starts, so that there
/// is a number that both were measured with.
fn held_before(outcomes: &[Outcome]) -> Vec<u32> {
    let trials = outcomes.iter().flat_map(|outcome| &outcome.trials).filter(|trial| trial.held());
    let mut numbers: Vec<u32> = trials.map(|trial| trial.instances).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.reverse();
    numbers
}

/// What stands around the backings.
#[derive(Debug)]
struct Site {
    swap: Option<SwapFile>,
    /// The folder of the pagers' stores, which their fleet makes.
    store: Option<PathBuf>,
}

impl Site {
    /// Removes what killed runs left, tries what cannot be known otherwise, makes swap file and store.
    fn prepare(plan: &Plan, notes: &mut Vec<String>) -> Result<Self> {
        let mut removed = Vec::new();
        let mut site = Self { swap: None, store: None };
        if let Some(wish) = &plan.store {
            removed.extend(folder::remove_stale_stores(&wish.folder));
            let program = std::env::current_exe().context("finding this program")?;
            let mut place = wish.folder.clone().into_os_string();
            place.push(format!(":{}", wish.bytes));
            let told = try_out("extend", command(&program, "pager", DRAM_MIN, &place))?;
            // What it says of this one budget is no news.
            notes.extend(told.into_iter().filter(|line| line.contains("not covered")));
            site.store = Some(folder::store_in(&wish.folder)?);
        }
        if let Some(wish) = &plan.swap {
            notes.push(format!(
                "Swap file of {} in {}, for this run.",
                format_size(wish.bytes),
                wish.folder.display()
            ));
            site.swap = Some(wish.make()?);
        }
        let left = removed.iter().map(|path| format!("Removed what a killed run left: {}.", path.display()));
        notes.extend(left);
        Ok(site)
    }

    fn take_down(self) -> Result<()> {
        let Some(file) = self.swap else { return Ok(()) };
        let path = file.path().to_path_buf();
        file.remove().with_context(|| format!("cannot turn off and remove {}", path.display()))
    }
}

fn one_backing(
    plan: &Plan,
    backing: Backing,
    before: &[u32],
    stop: &AtomicBool,
    outcome: &mut Outcome,
    notes: &mut Vec<String>,
) -> Result<()> {
    let (name, keeps_room) = (backing.name(), matches!(backing, Backing::ExtendSwap));
    let mut fleet = Fleet::new(plan.kind.as_ref(), plan.fleet_spec(backing)).map_err(explain)?;
    let _room = if keeps_room { keep_room(&fleet, notes) } else { Vec::new() };
    let mut line = Line::new(name, &plan.trial);
    let possible = |number: &&u32| impossible(&fleet, **number, &plan.trial).is_none();
    let mut search = Search::from(before.iter().find(possible).copied().unwrap_or(1), plan.max);
    let mut next = plan.instances.or_else(|| search.next());
    while let Some(instances) = next {
        line.begin(instances, outcome.trials.iter().any(|trial| trial.instances == instances));
        let tried = attempt(&mut fleet, instances, &plan.trial, stop, &mut |step| line.step(step));
        line.clear();
        let trial = match tried {
            Ok(trial) => trial,
            Err(FleetError::Stopped) => return Ok(()),
            Err(error) => {
                return Err(explain(error).context(format!("{name}, instances {instances}")));
            }
        };
        line.end(&trial);
        search.learn(instances, trial.found());
        outcome.trials.push(trial);
        (outcome.held, outcome.failed) = (search.held(), search.failed());
        next = if plan.instances.is_some() { None } else { search.next() };
    }
    Ok(())
}

/// Keeps room below the limits of the fleet and its classes, and reads ahead for all of it, until what is
/// returned is dropped.
fn keep_room(fleet: &Fleet, notes: &mut Vec<String>) -> Vec<KeptRoom> {
    let mut kept = Vec::new();
    for (number, group) in fleet.groups().enumerate() {
        let started = match number {
            0 => KeptRoom::start(group, fleet.folder()),
            _ => KeptRoom::without_reading(group, &fleet.folder().join(format!("room-{number}"))),
        };
        match started {
            Ok(room) => kept.push(room),
            Err(why) => {
                notes.push(format!("extend-swap: the instances make room themselves: {why}."));
                break;
            }
        }
    }
    kept
}

/// What the user can mend is a refusal; the rest is the system's failure.
fn explain(error: FleetError) -> anyhow::Error {
    match error {
        FleetError::Instance(InstanceError::Missing(line)) => Refused(line).into(),
        other => other.into(),
    }
}

fn show(record: &DensityRecord, flags: &DensityFlags) -> Result<()> {
    let page = show::page(record);
    let json = record.to_json_pretty()?;
    if let Some(folder) = &flags.out {
        output::replace_file(&folder.join("density.json"), &json)?;
        output::replace_file(&folder.join("density.html"), &render::html::page(&page)?)?;
    }
    let text = if flags.json { json } else { render::text::page(&page, output::text_options()) };
    output::print(&text)
}

/// A kind for every word of the command line.
pub(crate) fn kind_of(flags: &DensityFlags) -> Result<Box<dyn Kind>> {
    let found: Result<Box<dyn Kind>, InstanceError> = match flags.kind {
        DensityKind::Process => {
            RedisProcess::find(&flags.redis, flags.port).map(|kind| Box::new(kind) as Box<dyn Kind>)
        }
        DensityKind::Vm => RedisVm::find(vm_spec(flags)?).map(|kind| Box::new(kind) as Box<dyn Kind>),
    };
    found.map_err(|error| explain(error.into()))
}

fn vm_spec(flags: &DensityFlags) -> Result<VmSpec> {
    let release =
        std::fs::read_to_string("/proc/sys/kernel/osrelease").context("/proc/sys/kernel/osrelease")?;
    let release = release.trim();
    let own_kernel = || format!("/boot/vmlinuz-{release}").into();
    let own_modules = || format!("/lib/modules/{release}").into();
    Ok(VmSpec {
        qemu: flags.qemu.clone(),
        kernel: flags.kernel.clone().unwrap_or_else(own_kernel),
        modules: flags.modules.clone().unwrap_or_else(own_modules),
        redis: flags.redis.clone(),
        program: std::env::current_exe().context("finding this program")?,
        data_bytes: data_bytes(flags),
        memory_bytes: flags.vm_memory,
    })
}

/// Memory that the data of one instance needs, with what Redis and its allocator take beside keys and values.
pub(crate) fn data_bytes(flags: &DensityFlags) -> u64 {
    let data = flags.records.saturating_mul(flags.value_size + 160);
    data.saturating_add(data / 4)
}

/// `overdrive density-guest`: the first program of a guest.
pub(crate) fn guest() -> Result<Ending> {
    guest::run().map_err(|error| Refused(error.to_string()))?;
    Ok(Ending::Done)
}
