//! Looking at extended programs from outside: their counters lie in files that the engines keep mapped.
//!
//! No registry is kept, so none can be wrong: a run is found by the directory that its `overdrive extend`
//! holds open, under the name that carries that process as owner.

use super::show;
use super::store::{PREFIX, counters_in, has_mapped};
use super::swap_run::SwapRun;
use crate::exit::Ending;
use crate::flags::{ExtendStatusFlags, TopFlags};
use crate::{interrupt, output};
use anyhow::Result;
use overdrive_pager::stats::{Stat, Stats};
use overdrive_sys::file::open_plain;
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
}

impl Look {
    fn now() -> Self {
        let (mut processes, mut on_swap) = (Vec::new(), Vec::new());
        for (waiting, folder) in runs() {
            on_swap.extend(SwapRun::at(&folder, waiting));
            let all = processes_in(&folder);
            let living = |process: &Process| {
                let path = folder.join(format!("{}.stats", process.pid));
                has_mapped(process.pid, &path).unwrap_or(true)
            };
            processes.extend(all.into_iter().filter(living));
        }
        Self { at: Instant::now(), processes, on_swap }
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
    let text = if flags.json { show::json(&first, &second)? } else { show::table(&first, &second) };
    output::print(&text)?;
    Ok(Ending::Done)
}

/// Prints them again and again.
pub(crate) fn top(flags: &TopFlags) -> Result<Ending> {
    let stop = interrupt::watch()?;
    let mut before = Look::now();
    let mut looks = 0;
    while flags.count.is_none_or(|count| looks < count) && wait(flags.interval, &stop) {
        let now = Look::now();
        if flags.json {
            output::print(&show::json_line(&before, &now)?)?;
        } else {
            output::print_screen(&show::table(&before, &now))?;
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

/// The runs that this user may look at: who waits for the program, and the run's directory.
fn runs() -> Vec<(u32, PathBuf)> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut found: Vec<_> = numbers.filter_map(|pid| Some((pid, folder_of(pid)?))).collect();
    found.sort();
    found
}

/// The run's directory that a process holds open as its owner.
fn folder_of(pid: u32) -> Option<PathBuf> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let mut folders = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let own = format!("{PREFIX}{pid}-");
    folders.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&own)))
}

/// Every process with counters in a run's directory, those that have ended among them.
pub(super) fn processes_in(folder: &Path) -> Vec<Process> {
    let read = |(pid, path): (u32, PathBuf)| {
        let stats = Stats::open(&open_plain(&path).ok()?).ok()?;
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
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
