//! `overdrive extend`: runs a program in more memory than DRAM, the rest on an SSD.
//!
//! Everything is checked first: what cannot work is said in one line before the program starts. Then the
//! program has the terminal, the signals and the exit code; this process waits, and takes down what it made.

mod accounting;
pub(crate) mod ahead;
mod broker;
mod budget;
mod device;
mod engines;
mod foresee;
mod gather;
mod hold;
pub(crate) mod launch;
pub(crate) mod plan;
mod program;
mod show;
pub(crate) mod store;
mod swap_run;
pub(crate) mod try_out;
pub(crate) mod watch;

use crate::exit::{Ending, Refused};
use crate::flags::{ExtendFlags, ExtendWords};
use crate::{leftovers, output};
use ahead::KeptRoom;
use anyhow::{Context, Result};
use device::Device;
use engines::Engines;
use gather::Gathered;
use overdrive_base::size::format_size;
use overdrive_pager::stats::Stat;
use overdrive_sys::memory_group::MemoryGroup;
use overdrive_sys::memory_group::zswap::ZswapFollower;
use overdrive_sys::relay::Relay;
use overdrive_sys::run_files::RunPlaces;
use overdrive_sys::swap::{self, Discard, Manner, PRIORITY_MAX, SwapFile};
use plan::{Backend, Plan};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use store::{RunFolder, Store};
use swap_run::SwapRun;

/// Runs a program, shows what runs, or holds what runs already.
pub(crate) fn extend(flags: &ExtendFlags) -> Result<Ending> {
    match &flags.words {
        Some(ExtendWords::Status(flags)) => watch::status(flags),
        Some(ExtendWords::Top(flags)) => watch::top(flags),
        Some(ExtendWords::Hold(flags)) => hold::hold(flags),
        None => run(flags),
    }
}

fn run(flags: &ExtendFlags) -> Result<Ending> {
    // First: it takes room on the store, and memory.
    let swept = leftovers::sweep_before_run()?;
    let plan = Plan::make(flags)?;
    if matches!(plan.backend, Backend::Swap { .. }) || !flags.quiet {
        swept.tell();
    }
    if let Some(path) = &flags.stats {
        output::check_replaceable("--stats", path)?;
    }
    let relay = Relay::install().context("taking over signals")?;
    for path in store::remove_stale(&plan.store.folder) {
        say(&format!("removed what an earlier run left: {}", path.display()));
    }
    let engines = Engines::adopt(&relay, plan.apart)?;
    let folder = RunFolder::create(&plan.store.folder)?;
    plan.device.as_ref().map_or(Ok(()), Device::clear)?;
    let site = Site::prepare(&plan, flags)?;
    if relay.asked_to_end().is_some() {
        site.take_down()?;
        return Ok(Ending::Interrupted);
    }
    if !flags.quiet {
        plan.announcement().lines().for_each(say);
    }
    let started = Instant::now();
    let kept = (site.keep_budget(&folder, flags)?, site.keep_room(&folder, flags)?);
    let gathered = site.gather(&folder, &plan.store, flags)?;
    let status = start_and_wait(flags, &plan, &folder, &site, &relay);
    let gathered = gathered.map_or(Duration::ZERO, Gathered::end);
    drop(kept);
    let elapsed = started.elapsed();
    let counters = watch::processes_in(&folder.path);
    let program = plan.program.path.file_name().unwrap_or_default().to_string_lossy();
    let on_swap = SwapRun::at(&folder.path, std::process::id()).map(|run| run.of_program(&program));
    let has_area = site.has_area();
    // Taken down first, whatever went wrong: nothing may be left behind.
    if let Err(trouble) = site.take_down() {
        say(&format!("{trouble:#}"));
    }
    // Only now is it known whether a process of the program goes on.
    let goes_on = engines.leave(|| folder.is_used());
    drop(folder);
    let status = status?;
    if let Some(why) = on_swap.as_ref().and_then(|run| run.want_of_memory(&plan.store, has_area)) {
        say(&why);
    }
    if goes_on && matches!(plan.backend, Backend::Pager { .. }) {
        say(GOES_ON);
    }
    // With 2 it was not started, which was told; or it ended so by itself.
    if matches!(plan.backend, Backend::Pager { .. }) && counters.is_empty() && status.code() != Some(2) {
        say("the library was not loaded: nothing was limited");
    }
    let lost: u64 = counters.iter().map(|process| process.get(Stat::Lost)).sum();
    if lost > 0 {
        say(&format!("{lost} pages were lost to the store; wanted another drive"));
    }
    let mut code = exit_code(status);
    if let Some(path) = &flags.stats {
        let times = Times { elapsed, gathered };
        let text = final_json(flags, &plan, status, times, &counters, on_swap.as_ref())?;
        if let Err(trouble) = output::replace_file(path, &text) {
            say(&format!("{trouble:#}"));
            // What the program says of itself goes first.
            code = if code == 0 { 3 } else { code };
        }
    }
    Ok(Ending::Program(code))
}

const GOES_ON: &str =
    "processes of the program go on under the pager; when they have ended, the next run there tidies up";

fn say(line: &str) {
    output::say!("overdrive extend: {line}");
}

fn start_and_wait(
    flags: &ExtendFlags,
    plan: &Plan,
    folder: &RunFolder,
    site: &Site,
    relay: &Relay,
) -> Result<ExitStatus> {
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.arg("extend-launch").arg("--parent").arg(std::process::id().to_string());
    command.arg("--program").arg(&plan.program.path);
    if let Some(group) = &site.group {
        command.arg("--group").arg(group.path());
    }
    overdrive_sys::signals::keep_ignored_in(&mut command);
    let mut channel = None;
    if let Backend::Pager { library, .. } = &plan.backend {
        let mut settings =
            OsString::from(format!("budget={},store_bytes={},dir=", plan.dram_bytes, plan.store.bytes));
        settings.push(&folder.path);
        if let Some(bytes) = flags.max_writes_per_day {
            settings.push(format!(",day={bytes}"));
        }
        settings.push(format!(",compress={}", flags.compress.name()));
        let device = plan.device.as_ref().map(Device::door);
        if let Some(device) = &device {
            settings.push(format!(",device={device}"));
        }
        let places = RunPlaces {
            folder: folder.path.clone(),
            store_bytes: plan.store.bytes,
            device: device.map(PathBuf::from),
        };
        channel =
            broker::start(places)?.inspect(|open| settings.push(format!(",channel={}", open.channel())));
        if let Some(inode) = overdrive_sys::proc_stat::pid_namespace() {
            settings.push(format!(",pids={inode}"));
        }
        if flags.encrypt {
            settings.push(",encrypt=yes");
        }
        if plan.apart {
            settings.push(",apart=yes");
        }
        if !plan.store.interrupted_cpus.is_empty() {
            let cpus: Vec<_> = plan.store.interrupted_cpus.iter().map(u32::to_string).collect();
            settings.push(format!(",avoid={}", cpus.join(":")));
        }
        command.arg("--folder").arg(&folder.path);
        command.arg("--library").arg(library).arg("--settings").arg(settings);
    }
    let started = command.arg("--").args(&flags.command).spawn();
    drop(channel);
    let mut child = started.map_err(|error| Refused(format!("starting the program: {error}")))?;
    relay.wait(&mut child).context("waiting for the program")
}

/// As a shell tells it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// How long a run took, and how much of that its threads were kept to fewer processors.
#[derive(Debug, Clone, Copy)]
struct Times {
    elapsed: Duration,
    gathered: Duration,
}

fn final_json(
    flags: &ExtendFlags,
    plan: &Plan,
    status: ExitStatus,
    times: Times,
    counters: &[watch::Process],
    on_swap: Option<&SwapRun>,
) -> Result<String> {
    let command: Vec<_> = flags.command.iter().map(|word| word.to_string_lossy()).collect();
    let document = serde_json::json!({
        "schema": "overdrive.extend/1",
        "command": command,
        "backend": plan.backend.name(),
        "reason": plan.reason,
        "not_covered": plan.backend.uncovered(),
        "dram_bytes": plan.dram_bytes,
        "store": { "path": plan.store.place().to_string_lossy(), "bytes": plan.store.bytes },
        "elapsed_ns": times.elapsed.as_nanos() as u64,
        "gathered_ns": times.gathered.as_nanos() as u64,
        "exit_code": exit_code(status),
        "processes": counters.iter().map(show::process_json).collect::<Vec<_>>(),
        "swap": on_swap.map(SwapRun::json),
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// Swap on the store, which the kernel fills before all other areas.
fn swap_file(store: &Store, fills_gaps: bool) -> Result<SwapFile> {
    let discard = if fills_gaps { Discard::Never } else { Discard::Freed };
    let manner = Manner { priority: Some(PRIORITY_MAX), discard };
    let made = SwapFile::create(&store.folder, store.bytes, manner);
    made.map_err(|error| {
        let (folder, size) = (store.folder.display(), format_size(store.bytes));
        let wanted = swap::wanted(&error);
        Refused(format!("--store {folder}: no swap file of {size} there ({error}); wanted {wanted}")).into()
    })
}

/// What the backend swap sets up around the program; nothing for the pager.
#[derive(Debug)]
struct Site {
    group: Option<MemoryGroup>,
    swap: Option<SwapFile>,
}

impl Site {
    fn prepare(plan: &Plan, flags: &ExtendFlags) -> Result<Self> {
        let Backend::Swap { place } = &plan.backend else {
            return Ok(Self { group: None, swap: None });
        };
        let swap = swap_file(&plan.store, flags.fill_gaps)?;
        let group = MemoryGroup::create_for_program(place, plan.dram_bytes)?;
        group.limit_swap(plan.dram_bytes, plan.store.bytes)?;
        Ok(Self { group: Some(group), swap: Some(swap) })
    }

    /// Keeps the budget with what zswap holds from now on, where the kernel does not.
    fn keep_budget(&self, folder: &RunFolder, flags: &ExtendFlags) -> Result<Option<ZswapFollower>> {
        let Some(group) = &self.group else { return Ok(None) };
        Ok(budget::keep(group, &folder.path, flags.quiet)?)
    }

    /// Keeps room below the budget from now on, where it is wanted and the kernel allows it; says so where it
    /// does not.
    fn keep_room(&self, folder: &RunFolder, flags: &ExtendFlags) -> Result<Option<KeptRoom>> {
        let Some(group) = &self.group else { return Ok(None) };
        swap_run::note_group(&folder.path, group.path())
            .with_context(|| folder.path.display().to_string())?;
        if flags.no_room_ahead {
            return Ok(None);
        }
        let room = KeptRoom::start(group, &folder.path);
        if let (Err(why), false) = (&room, flags.quiet) {
            say(&format!("the program's threads make room themselves: {why}"));
        }
        Ok(room.ok())
    }

    /// Runs the program on few processors from now on, while that serves more pages.
    fn gather(&self, folder: &RunFolder, store: &Store, flags: &ExtendFlags) -> Result<Option<Gathered>> {
        if flags.no_gather {
            return Ok(None);
        }
        let group = self.group.as_ref().map(MemoryGroup::path);
        Gathered::start(group, &folder.path, store).context("starting a thread")
    }

    /// Whether the run's swap area, if it has one, is still on.
    fn has_area(&self) -> bool {
        let areas = swap::areas().unwrap_or_default();
        self.swap.as_ref().is_none_or(|swap| areas.iter().any(|area| area.path == swap.path()))
    }

    /// Removes the group, then the swap file, and says what would not go.
    fn take_down(self) -> Result<()> {
        let group = self.group.map_or(Ok(()), |group| {
            group
                .remove()
                .context("processes of the program go on; when they have ended, the next run tidies up")
        });
        if group.is_err() {
            // Their memory lies in the swap file: it stays as long as they do.
            std::mem::forget(self.swap);
            return group;
        }
        let path = self.swap.as_ref().map(|swap| swap.path().display().to_string()).unwrap_or_default();
        self.swap.map_or(Ok(()), |swap| swap.remove().with_context(|| format!("removing {path}")))
    }
}
