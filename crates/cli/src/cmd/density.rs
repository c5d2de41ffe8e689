//! `overdrive density`: how many instances each backing holds inside the objective.
//!
//! Set up once, measure backing after backing, take everything down, then show. What it starts dies with
//! it; what a kill leaves (groups, a swap area, a folder) the next run or `--stale` removes.

mod assemble;
mod plan;
mod progress;

use crate::cmd::page::sweep;
use crate::exit::{Ending, Refused};
use crate::flags::{DensityFlags, DensityKind};
use crate::{interrupt, output};
use anyhow::{Context, Result};
use overdrive_base::size::format_size;
use overdrive_density::fleet::{Fleet, FleetError};
use overdrive_density::instance::process::RedisProcess;
use overdrive_density::instance::vm::{RedisVm, VmSpec};
use overdrive_density::instance::{InstanceError, Kind, folder, guest};
use overdrive_density::search::Search;
use overdrive_density::trial::{Trial, attempt};
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
        return clean_stale(flags.json);
    }
    let plan = plan::plan(flags)?;
    if let Some(folder) = &flags.out {
        std::fs::create_dir_all(folder)
            .map_err(|error| Refused(format!("--out {}: {error}; wanted a directory", folder.display())))?;
    }
    let started = Instant::now();
    let mut notes = plan.notes.clone();
    let (backings, failure) = measure(&plan, &stop, &mut notes);
    let stopped = stop.load(Ordering::Relaxed);
    let anything = backings.iter().any(|backing| !backing.trials.is_empty());
    if anything {
        let status = assemble::status(stopped, failure.as_ref());
        let record = assemble::record(&plan, &backings, notes, status, started.elapsed());
        show(&record, flags)?;
    }
    if let Some(failure) = failure.filter(|_| !stopped) {
        return Err(failure);
    }
    if stopped {
        return Ok(Ending::Interrupted);
    }
    Ok(verdict(&backings))
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

fn verdict(backings: &[Outcome]) -> Ending {
    let mut ending = Ending::Done;
    for backing in backings.iter().filter(|backing| backing.held == 0) {
        let Some(trial) = backing.trials.iter().min_by_key(|trial| trial.instances) else { continue };
        let number = match trial.instances {
            1 => "one instance".to_owned(),
            number => format!("{number} instances"),
        };
        eprintln!("overdrive: {}: the objective is not met at {number}: {}", backing.name, trial.verdict);
        ending = Ending::BadVerdict;
    }
    ending
}

/// Every backing in turn; what was measured stays when one fails.
fn measure(plan: &Plan, stop: &AtomicBool, notes: &mut Vec<String>) -> (Vec<Outcome>, Option<anyhow::Error>) {
    let mut outcomes = Vec::new();
    let mut swap = match prepare(plan, notes) {
        Ok(swap) => swap,
        Err(error) => return (outcomes, Some(error)),
    };
    let mut failure = None;
    for backing in &plan.backings {
        if stop.load(Ordering::Relaxed) || failure.is_some() {
            break;
        }
        let mut outcome = Outcome {
            name: backing.name(),
            searched: plan.instances.is_none(),
            held: 0,
            failed: None,
            trials: Vec::new(),
            classes: plan.class_names(),
        };
        failure = one_backing(plan, backing, stop, &mut outcome).err();
        outcomes.push(outcome);
    }
    if let Some(file) = swap.take() {
        let path = file.path().to_path_buf();
        let removed = file.remove().with_context(|| format!("cannot turn off and remove {}", path.display()));
        failure = failure.or(removed.err());
    }
    (outcomes, failure)
}

/// Removes what killed runs left and makes the swap file.
fn prepare(plan: &Plan, notes: &mut Vec<String>) -> Result<Option<SwapFile>> {
    let (mut removed, _) = folder::remove_stale();
    if plan.place.is_some() {
        removed.extend(sweep()?.removed);
    }
    notes.extend(removed.iter().map(|path| format!("Removed what a killed run left: {}.", path.display())));
    let Some(wish) = &plan.swap else { return Ok(None) };
    notes.push(format!(
        "Swap file of {} in {}, for this run.",
        format_size(wish.bytes),
        wish.folder.display()
    ));
    wish.make().map(Some)
}

fn one_backing(
    plan: &Plan,
    backing: &overdrive_density::backing::Backing,
    stop: &AtomicBool,
    outcome: &mut Outcome,
) -> Result<()> {
    let spec = plan.fleet_spec(backing.clone());
    let mut fleet = Fleet::new(plan.kind.as_ref(), spec).map_err(explain)?;
    let mut line = Line::new(backing.name(), &plan.trial);
    let mut search = Search::up_to(plan.max);
    let mut next = plan.instances.or_else(|| search.next());
    while let Some(instances) = next {
        line.begin(instances);
        let tried = attempt(&mut fleet, instances, &plan.trial, stop, &mut |step| line.step(step));
        line.clear();
        let trial = match tried {
            Ok(trial) => trial,
            Err(FleetError::Stopped) => return Ok(()),
            Err(error) => {
                return Err(explain(error).context(format!("{}, {instances} instances", backing.name())));
            }
        };
        line.end(&trial);
        search.learn(instances, trial.held());
        outcome.trials.push(trial);
        (outcome.held, outcome.failed) = (search.held(), search.failed());
        next = if plan.instances.is_some() { None } else { search.next() };
    }
    Ok(())
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

fn clean_stale(as_json: bool) -> Result<Ending> {
    let (mut removed, mut stuck) = folder::remove_stale();
    let swept = sweep()?;
    removed.extend(swept.removed);
    stuck.extend(swept.stuck);
    let words = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    if as_json {
        let value = serde_json::json!({ "removed": words(&removed), "stuck": words(&stuck) });
        output::print(&format!("{}\n", serde_json::to_string_pretty(&value)?))?;
    } else {
        let lines = words(&removed).into_iter().map(|path| format!("removed {path}\n"));
        let lines = lines.chain(words(&stuck).into_iter().map(|path| format!("could not remove {path}\n")));
        output::print(&lines.collect::<String>())?;
    }
    Ok(if stuck.is_empty() { Ending::Done } else { Ending::SystemFailed })
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
    // What Redis and its allocator take beside keys and values.
    let data = flags.records.saturating_mul(flags.value_size + 160);
    Ok(VmSpec {
        qemu: flags.qemu.clone(),
        kernel: flags.kernel.clone().unwrap_or_else(own_kernel),
        modules: flags.modules.clone().unwrap_or_else(own_modules),
        redis: flags.redis.clone(),
        program: std::env::current_exe().context("finding this program")?,
        data_bytes: data.saturating_add(data / 4),
        memory_bytes: flags.vm_memory,
    })
}

/// `overdrive density-guest`: the first program of a guest.
pub(crate) fn guest() -> Result<Ending> {
    guest::run().map_err(|error| Refused(error.to_string()))?;
    Ok(Ending::Done)
}
