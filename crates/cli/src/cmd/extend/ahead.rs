//! Room kept below the limit of the program's group, so that its threads find memory where they fault and
//! need not make it: a thread of this process, which stays outside the group, gets out what the kernel would
//! choose itself.
//!
//! What a kernel without a way to do so has is the limit alone, and the program's threads reclaim. A second
//! thread reads ahead of them (see `foresee`), where the kernel tells of their faults.

use super::foresee::foresee;
use overdrive_host::swap::ahead::{Ahead, Slice, Step, fresh_for};
use overdrive_sys::fault_samples::FaultSamples;
use overdrive_sys::memory_group::MemoryGroup;
use overdrive_sys::memory_group::reclaim::{Reclaimer, SliceEnd};
use overdrive_sys::shared_words::SharedWords;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

/// In the run's directory: the counters, as words that others may look at.
pub(super) const ROOM_FILE: &str = "room";

/// Marks a file of counters of this layout ("overroom", version 2).
const MAGIC: u64 = u64::from_le_bytes(*b"ovroom\x00\x02");

/// What is counted, in the order of the file, after its mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RoomCounter {
    /// By how many bytes the group shrank in slices: at least so much was freed, as the program takes
    /// memory meanwhile.
    Freed,
    /// Slices of work.
    Slices,
    /// How long these took, in nanoseconds.
    Time,
    /// Slices in which nothing could be got out.
    Fruitless,
    /// Bytes that were asked for before the program wanted them.
    ReadAhead,
    /// Bytes of these that it came to.
    ReadAheadUsed,
}

impl RoomCounter {
    pub(super) const ALL: [Self; 6] =
        [Self::Freed, Self::Slices, Self::Time, Self::Fruitless, Self::ReadAhead, Self::ReadAheadUsed];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Freed => "freed_ahead_bytes",
            Self::Slices => "ahead_slices",
            Self::Time => "ahead_ns",
            Self::Fruitless => "ahead_fruitless",
            Self::ReadAhead => "read_ahead_bytes",
            Self::ReadAheadUsed => "read_ahead_used_bytes",
        }
    }
}

/// The counters at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RoomCounters {
    pub(super) values: Vec<u64>,
}

impl RoomCounters {
    /// Those in a file; none when it is not one of ours.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let words = SharedWords::map(&File::open(path).ok()?, 1 + RoomCounter::ALL.len(), false).ok()?;
        let values: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let (mark, values) = values.split_first()?;
        (*mark == MAGIC).then(|| Self { values: values.to_vec() })
    }

    pub(super) fn get(&self, counter: RoomCounter) -> u64 {
        self.values[counter as usize]
    }
}

/// The counters as the threads that write them have them, each its own.
#[derive(Debug)]
pub(super) struct Tally(SharedWords);

impl Tally {
    fn create(path: &Path) -> std::io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        let count = 1 + RoomCounter::ALL.len();
        file.set_len(count as u64 * 8)?;
        let words = SharedWords::map(&file, count, true)?;
        words[0].store(MAGIC, Ordering::Relaxed);
        Ok(Self(words))
    }

    pub(super) fn add(&self, counter: RoomCounter, more: u64) {
        self.0[1 + counter as usize].fetch_add(more, Ordering::Relaxed);
    }
}

/// What the threads have together.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) stop: AtomicBool,
    pub(super) tally: Tally,
    /// The group's, as it was last seen.
    pub(super) limit: AtomicU64,
    /// Nothing could be got out of late.
    pub(super) is_stuck: AtomicBool,
}

/// Works until it is dropped.
#[derive(Debug)]
pub(crate) struct KeptRoom {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl KeptRoom {
    /// Starts it, with reading ahead; an error says what the kernel lacks, and then there is none. It counts
    /// in a file in `folder`.
    pub(crate) fn start(group: &MemoryGroup, folder: &Path) -> Result<Self, String> {
        let mut room = Self::without_reading(group, &folder.join(ROOM_FILE))?;
        // Without samples, or before Linux 5.10, the kernel's own read-ahead is what there is.
        if let Ok(samples) = FaultSamples::of_all() {
            let (shared, group) = (Arc::clone(&room.shared), group.path().to_owned());
            room.spawn("read-ahead", move || foresee(samples, &group, &shared))?;
        }
        Ok(room)
    }

    /// The same, but nothing is read ahead. It counts in a file that it makes.
    pub(crate) fn without_reading(group: &MemoryGroup, counters: &Path) -> Result<Self, String> {
        let files = group.reclaim_files().map_err(|error| error.to_string())?;
        let tally = Tally::create(counters).map_err(|error| format!("{}: {error}", counters.display()))?;
        let (stop, limit, is_stuck) = (AtomicBool::new(false), AtomicU64::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { stop, tally, limit, is_stuck });
        let mut room = Self { shared: Arc::clone(&shared), threads: Vec::new() };
        let (told, hear) = mpsc::channel();
        room.spawn("room", move || match Reclaimer::new(files) {
            Ok(reclaimer) => {
                let _ = told.send(Ok(()));
                keep(&reclaimer, &shared);
            }
            Err(error) => drop(told.send(Err(format!("no timer: {error}")))),
        })?;
        hear.recv().map_err(|_| "its thread ended".to_owned())??;
        Ok(room)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        self.threads.push(thread.map_err(|error| format!("no thread: {error}"))?);
        Ok(())
    }
}

impl Drop for KeptRoom {
    /// Ends at once, or with the slice that is being worked on.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // It does not panic; and if it did, it has ended.
            let _ = thread.join();
        }
    }
}

/// Until it is stopped, or the group is gone.
fn keep(reclaimer: &Reclaimer, shared: &Shared) {
    let Shared { tally, stop, .. } = shared;
    let (mut ahead, start) = (Ahead::default(), Instant::now());
    let mut refreshed = None;
    while !stop.load(Ordering::Relaxed) {
        let (Ok(limit), Ok(usage)) = (reclaimer.limit_bytes(), reclaimer.usage_bytes()) else { return };
        shared.limit.store(limit, Ordering::Relaxed);
        if limit.saturating_sub(usage) >= ahead.low_bytes(limit) {
            shared.is_stuck.store(false, Ordering::Relaxed);
        }
        match ahead.next(start.elapsed(), limit, usage) {
            Step::Rest(time) => std::thread::park_timeout(time),
            Step::Reclaim { bytes, time } => {
                let begun = Instant::now();
                if refreshed.is_none_or(|at| begun.saturating_duration_since(at) >= fresh_for(limit)) {
                    reclaimer.refresh();
                    refreshed = Some(begun);
                }
                let Ok(end) = reclaimer.slice(bytes, time) else { return };
                let slice = Slice { took: begun.elapsed(), found_nothing: end == SliceEnd::Nothing };
                ahead.ran(slice);
                shared.is_stuck.store(slice.found_nothing, Ordering::Relaxed);
                tally.add(RoomCounter::Slices, 1);
                tally.add(RoomCounter::Time, slice.took.as_nanos() as u64);
                tally.add(RoomCounter::Fruitless, u64::from(slice.found_nothing));
                tally.add(RoomCounter::Freed, usage.saturating_sub(reclaimer.usage_bytes().unwrap_or(usage)));
            }
        }
    }
}
