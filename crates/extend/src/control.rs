//! What a program may ask of an engine that runs: the same for regions of Rust programs and for `overmem.h`.

use overdrive_pager::engine::Hints;
use overdrive_pager::ranges::without;
use overdrive_pager::stats::{Stat, Stats};
use overdrive_sys::uffd::PAGE;
use overdrive_sys::{Errno, pageable, signals};
use std::ops::Range;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use thiserror::Error;

/// Ranges to be read that wait at most.
const WANTED_MAX: usize = 256;
/// Read before the engine is told to keep it: less than it leaves unjudged in the smallest budget.
const PIECE: u64 = 512 << 10;

/// A range of which so many pieces in a row (1 GiB) are not there is given up: its length was wrong.
const MISSING_MAX: u64 = 2048;

/// How often a thread looks whether the engine has heard it.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// A hint was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("too many hints wait already")]
pub struct HintError;

/// The counters of an engine as they stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// The budget.
    pub dram_bytes: u64,
    /// What is in place in the program, of memory under the engine.
    pub resident_bytes: u64,
    /// What was taken out of it and is still whole in DRAM.
    pub staged_bytes: u64,
    /// What is on the SSD.
    pub stored_bytes: u64,
    /// What was written to the SSD since the start.
    pub written_bytes: u64,
    /// Faults served since the start.
    pub faults: u64,
    /// Of these faults, those that were served from the SSD.
    pub loads: u64,
    /// Of these faults, those that waited for room in DRAM.
    pub waits: u64,
    /// Pages lost to a failing SSD.
    pub lost_pages: u64,
    /// Evicted pages that are in DRAM compressed: their size before that.
    pub compressed_bytes: u64,
    /// The DRAM that the compressed pages take.
    pub compressed_dram_bytes: u64,
    /// How often writing had to wait for the day's limit.
    pub writes_paced: u64,
}

/// The way to a running engine, for any thread.
#[derive(Debug)]
pub struct Control {
    stats: Arc<Stats>,
    pub(crate) hints: Arc<Hints>,
    wanted: OnceLock<Option<SyncSender<Range<u64>>>>,
}

impl Control {
    /// Of the engine with these counters and hints.
    #[must_use]
    pub fn new(stats: Arc<Stats>, hints: Arc<Hints>) -> Self {
        Self { stats, hints, wanted: OnceLock::new() }
    }

    /// Brings the pages of a range in and keeps them there until [`unpin`]. What of it is among `pinned` is
    /// not locked twice, and counts once.
    ///
    /// # Errors
    /// ENOMEM when more than half of the budget would be locked, RLIMIT_MEMLOCK does not allow it, or a
    /// part is not mapped.
    pub fn pin(&self, range: &Range<u64>, pinned: &[Range<u64>]) -> Result<(), Errno> {
        let more: u64 = without(range.clone(), pinned).iter().map(|piece| piece.end - piece.start).sum();
        let locked = pageable::locked_bytes().saturating_add(more);
        if locked > self.stats.get(Stat::BudgetBytes) / 2 {
            return Err(Errno::NOMEM);
        }
        pageable::lock(range)
    }

    /// The range is needed soon: it is read while the program goes on, and leaves DRAM after what is there
    /// by then.
    ///
    /// # Errors
    /// Too many hints wait already.
    pub fn will_need(&self, range: Range<u64>) -> Result<(), HintError> {
        let queue = self
            .wanted
            .get_or_init(|| start_reader(Arc::downgrade(&self.hints)))
            .as_ref()
            .ok_or(HintError)?;
        queue.try_send(range).map_err(|_| HintError)
    }

    /// The range is not needed for a while: it leaves DRAM before what is in use. Its content stays.
    ///
    /// # Errors
    /// Too many hints wait already.
    pub fn cold(&self, range: Range<u64>) -> Result<(), HintError> {
        if self.hints.cold(range) { Ok(()) } else { Err(HintError) }
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let get = |stat| self.stats.get(stat);
        Counters {
            dram_bytes: get(Stat::BudgetBytes),
            resident_bytes: get(Stat::Resident) * PAGE,
            staged_bytes: get(Stat::Staged) * PAGE,
            stored_bytes: get(Stat::Stored) * PAGE,
            written_bytes: get(Stat::Written) * PAGE,
            faults: get(Stat::Faults),
            loads: get(Stat::Loads),
            waits: get(Stat::DirectStalls),
            lost_pages: get(Stat::Lost),
            compressed_bytes: get(Stat::Compressed) * PAGE,
            compressed_dram_bytes: get(Stat::CompressedDram) * PAGE,
            writes_paced: get(Stat::WritesPaced),
        }
    }
}

/// The whole pages that a range of bytes touches.
#[must_use]
pub fn pages_of(start: u64, bytes: u64) -> Range<u64> {
    let end = start.saturating_add(bytes).checked_next_multiple_of(PAGE);
    start / PAGE * PAGE..end.unwrap_or(u64::MAX / PAGE * PAGE)
}

/// Takes a pin back. Pins do not add up: one is enough.
///
/// # Errors
/// ENOMEM when a part is not mapped.
pub fn unpin(range: &Range<u64>) -> Result<(), Errno> {
    pageable::unlock(range)
}

/// A thread that touches what is needed soon, as any thread of the program might.
fn start_reader(hints: Weak<Hints>) -> Option<SyncSender<Range<u64>>> {
    let (sender, receiver) = sync_channel::<Range<u64>>(WANTED_MAX);
    let work = move || {
        signals::block_all();
        while let Ok(range) = receiver.recv() {
            let mut missing = 0;
            for start in (range.start..range.end).step_by(PIECE as usize) {
                let piece = start..range.end.min(start.saturating_add(PIECE));
                missing = if pageable::bring_in(&piece) { 0 } else { missing + 1 };
                if missing > MISSING_MAX {
                    break;
                }
                // Without the engine there is nothing to be read either.
                let Some(engine) = hints.upgrade() else { return };
                engine.warm(piece);
                drop(engine);
                while hints.upgrade().is_some_and(|engine| !engine.is_heard()) {
                    std::thread::sleep(LOOK_AGAIN);
                }
            }
        }
    };
    std::thread::Builder::new().name("overmem-reader".to_owned()).spawn(work).ok()?;
    Some(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_bytes_become_whole_pages() {
        assert_eq!(pages_of(4095, 2), 0..8192);
        assert_eq!(pages_of(8192, 4096), 8192..12288);
        let last = pages_of(u64::MAX - 5, 100);
        assert!(last.start <= last.end && last.start.is_multiple_of(PAGE));
    }
}
