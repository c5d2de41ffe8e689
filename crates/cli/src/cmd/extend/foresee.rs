//! What the program will want from swap next is read while it is still elsewhere: a thread of this process,
//! told of the program's faults by the kernel's samples, asks for it by `process_madvise`.

use super::ahead::{RoomCounter, Shared};
use overdrive_host::swap::foresee::{Fault, Foresight, Memory};
use overdrive_sys::fault_samples::FaultSamples;
use overdrive_sys::memory_group::processes_in;
use overdrive_sys::other_memory::{OtherMemory, Place};
use overdrive_sys::uffd::PAGE;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// At most this part of the limit may lie ahead of the program, read and not yet wanted.
const LIMIT_PER_AHEAD: u64 = 32;
const AHEAD_MAX: u64 = 64 << 20;

/// How often samples are looked at.
const REST: Duration = Duration::from_millis(10);

/// How long it is believed which processes are the run's.
const MEMBERS: Duration = Duration::from_millis(500);

/// The processes of the run, opened as they fault.
#[derive(Debug)]
struct Processes {
    group: PathBuf,
    members: HashSet<u32>,
    listed: Option<Instant>,
    open: HashMap<u32, OtherMemory>,
}

impl Processes {
    /// Whether a process is one of the run's: those of others are left alone.
    fn has(&mut self, pid: u32) -> bool {
        if self.listed.is_none_or(|at| at.elapsed() >= MEMBERS) {
            self.members = processes_in(&self.group).into_iter().collect();
            self.listed = Some(Instant::now());
        }
        self.members.contains(&pid)
    }

    fn get(&mut self, pid: u32) -> Option<&mut OtherMemory> {
        Some(match self.open.entry(pid) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(OtherMemory::open(pid).ok()?),
        })
    }
}

impl Memory for Processes {
    fn places(&mut self, pid: u32, first: u64, count: usize) -> Vec<Place> {
        let places: Option<Vec<Place>> =
            self.get(pid).and_then(|process| Some(process.places(first, count).ok()?.collect()));
        if places.as_ref().is_none_or(Vec::is_empty) {
            // It has ended, or has become another program.
            self.open.remove(&pid);
        }
        places.unwrap_or_default()
    }

    fn read_ahead(&mut self, pid: u32, ranges: &[Range<u64>]) {
        if self.get(pid).is_some_and(|process| process.read_ahead(ranges).is_err()) {
            self.open.remove(&pid);
        }
    }
}

/// Until it is stopped, for the processes of the group at this path.
pub(super) fn foresee(mut samples: FaultSamples, group: &Path, shared: &Shared) {
    let (group, members, open) = (group.to_owned(), HashSet::new(), HashMap::new());
    let mut processes = Processes { group, members, listed: None, open };
    let (mut foresight, start) = (Foresight::default(), Instant::now());
    let mut told = foresight.fetched();
    while !shared.stop.load(Ordering::Relaxed) {
        let mut faults = Vec::new();
        samples.drain(|sample| {
            faults.push(Fault { pid: sample.pid, tid: sample.tid, address: sample.address });
        });
        let at = start.elapsed();
        faults.retain(|fault| processes.has(fault.pid));
        for &fault in &faults {
            foresight.faulted(at, fault, &mut processes);
        }
        // Where nothing can be got out to make room for it, nothing is read that is not wanted now.
        let limit = shared.limit.load(Ordering::Relaxed);
        let is_stuck = shared.is_stuck.load(Ordering::Relaxed);
        let most = if is_stuck { 0 } else { (limit / LIMIT_PER_AHEAD).min(AHEAD_MAX) / PAGE };
        let rest = foresight.look(at, most, &mut processes);
        if rest.is_none() && faults.is_empty() {
            processes.open.clear();
        }
        let now = foresight.fetched();
        shared.tally.add(RoomCounter::ReadAhead, (now.pages - told.pages) * PAGE);
        shared.tally.add(RoomCounter::ReadAheadUsed, (now.used - told.used) * PAGE);
        told = now;
        std::thread::park_timeout(rest.unwrap_or(REST));
    }
}
