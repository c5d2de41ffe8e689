//! Looking at extended programs from outside: their counters lie in files that the engines keep mapped.
//!
//! No registry is kept, so none can be wrong: a run is found by the directory that its `overdrive extend` and
//! its processes hold open, under the name that carries the former as owner.

use super::gather::engine_of;
use super::show;
use super::store::{PREFIX, counters_in, has_mapped};
use super::swap_run::SwapRun;
use crate::exit::{Ending, refuse};
use crate::flags::{ExtendStatusFlags, TopFlags};
use crate::{interrupt, output};
use anyhow::Result;
use overdrive_pager::stats::{Stat, Stats};
use overdrive_sys::file::open_plain;
use overdrive_sys::owner::Owner;
use overdrive_sys::proc_stat::numbers_in;
use overdrive_sys::relay::effective_user;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// One process of a run, as its counters stood at one moment.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// Its program's name as the kernel has it; empty when it has ended.
    pub(super) name: String,
    pub(super) values: Vec<u64>,
}

impl Process {
    pub(super) fn get(&self, stat: Stat) -> u64 {
        self.values[stat as usize]
    }
}

/// All processes at one moment.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) at: Instant,
    pub(super) processes: Vec<Process>,
    /// Runs by the kernel's swap, which keeps counters of another kind.
    pub(super) on_swap: Vec<SwapRun>,
    /// Processes of `overdrive extend` that are this user's and may not be looked at.
    pub(super) closed: Vec<u32>,
}

impl Look {
    fn now() -> Self {
        let (mut processes, mut on_swap) = (Vec::new(), Vec::new());
        let (runs, closed) = runs();
        for (waiting, folder) in runs {
            on_swap.extend(SwapRun::at(&folder, waiting));
            let all = processes_in(&folder);
            let living = |process: &Process| {
                let path = folder.join(format!("{}.stats", process.pid));
                has_mapped(process.pid, &path).unwrap_or(true)
            };
            processes.extend(all.into_iter().filter(living));
        }
        Self { at: Instant::now(), processes, on_swap, closed }
    }
}

/// Prints the counters once, with rates over a short time.
pub(crate) fn status(flags: &ExtendStatusFlags) -> Result<Ending> {
    let stop = interrupt::watch()?;
    let first = Look::now();
    if flags.metrics {
        output::print(&show::metrics(&first))?;
        return Ok(Ending::Done);
    }
    if !first.processes.is_empty() || !first.on_swap.is_empty() {
        wait(flags.interval, &stop);
    }
    let second = Look::now();
    let text = if flags.json { show::json(&first, &second)? } else { show::table(&first, &second, None) };
    output::print(&text)?;
    Ok(Ending::Done)
}

/// Prints them again and again.
pub(crate) fn top(flags: &TopFlags) -> Result<Ending> {
    if flags.count == Some(0) {
        refuse!("--count 0: wanted at least 1");
    }
    let stop = interrupt::watch()?;
    let mut before = Look::now();
    let mut looks = 0;
    while flags.count.is_none_or(|count| looks < count) && wait(flags.interval, &stop) {
        let now = Look::now();
        if flags.json {
            output::print(&show::json_line(&before, &now)?)?;
        } else {
            output::print_screen(&show::table(&before, &now, output::terminal_rows()))?;
        }
        before = now;
        looks += 1;
    }
    Ok(Ending::Done)
}

/// Waits; false when a signal came meanwhile.
fn wait(time: Duration, stop: &AtomicBool) -> bool {
    let end = Instant::now() + time;
    while !stop.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    false
}

/// The runs that this user may look at, by who started them, and the processes of this user that have or had
/// a run and may not be looked at: those have rights that this one does not.
fn runs() -> (Vec<(u32, PathBuf)>, Vec<u32>) {
    let (mut found, mut closed) = (BTreeSet::new(), Vec::new());
    for pid in numbers_in("/proc") {
        match folders_of(pid) {
            Ok(folders) => found.extend(folders),
            Err(error) if error.kind() == ErrorKind::PermissionDenied && is_own_run(pid) => closed.push(pid),
            // It has ended, or is another user's.
            Err(_) => {}
        }
    }
    closed.sort_unstable();
    (found.into_iter().collect(), closed)
}

/// The runs' directories that a process holds open, each with the number of its owner. A program may have
/// closed all descriptors (daemons do): the library's thread has its own.
fn folders_of(pid: u32) -> std::io::Result<Vec<(u32, PathBuf)>> {
    let folders = folders_in(&format!("/proc/{pid}/fd"))?;
    let engine = if folders.is_empty() { engine_of(pid) } else { None };
    engine.map_or(Ok(folders), |thread| folders_in(&format!("/proc/{pid}/task/{thread}/fd")))
}

fn folders_in(descriptors: &str) -> std::io::Result<Vec<(u32, PathBuf)>> {
    let open = std::fs::read_dir(descriptors)?.flatten();
    let places = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let with_owner = places.filter_map(|path| {
        let name = path.file_name()?.to_str()?;
        Some((name.strip_prefix(PREFIX).and(Owner::in_name(name, PREFIX))?.pid(), path))
    });
    Ok(with_owner.collect())
}

/// Whether a process is this user's and `overdrive extend` with a program to run.
fn is_own_run(pid: u32) -> bool {
    let is_own = std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|about| about.uid() == effective_user());
    is_own
        && std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
            let mut words = line.split(|&byte| byte == 0);
            let program = words.next().unwrap_or_default();
            program.ends_with(b"overdrive") && words.next() == Some(b"extend")
        })
}

/// Every process with counters in a run's directory, those that have ended among them.
pub(super) fn processes_in(folder: &Path) -> Vec<Process> {
    let read = |(pid, path): (u32, PathBuf)| {
        let file = open_plain(&path).ok()?;
        let stats = Stats::open(&file).ok()?;
        let name =
            std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_else(|_| Stats::name_in(&file));
        let values = Stat::ALL.iter().map(|&stat| stats.get(stat)).collect();
        Some(Process { pid, name: name.trim_end().to_owned(), values })
    };
    counters_in(folder).into_iter().filter_map(read).collect()
}

/// The processes of all runs whose directories lie in `folder`, those that have ended among them.
fn all_in(folder: &Path) -> impl Iterator<Item = Process> {
    let runs = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    runs.flat_map(|run| processes_in(&run))
}

/// Pages read from their stores and written to them by all runs whose directories lie in `folder`.
pub(crate) fn pages_moved_in(folder: &Path) -> (u64, u64) {
    all_in(folder).fold((0, 0), |(read, written), one| {
        let more = one.get(Stat::Loads) + one.get(Stat::ReadAhead);
        (read + more, written + one.get(Stat::Written))
    })
}

/// Pages that lie in the stores of all runs whose directories lie in `folder`.
pub(crate) fn pages_stored_in(folder: &Path) -> u64 {
    all_in(folder).map(|one| one.get(Stat::Stored)).sum()
}
