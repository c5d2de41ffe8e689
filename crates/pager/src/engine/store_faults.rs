//! A store that fails on purpose: what really happened to a read or write is replaced by an error, a part,
//! or wrong data. By seed and rate, so that what was seen can be seen again. The drive itself is not
//! touched.

use crate::platform::PageIo;
use overdrive_base::fault::{ENODEV, Fault, FaultPlan};
use overdrive_sys::uffd::PAGE;
use twox_hash::XxHash3_64;

const EIO: i32 = -5;
const ENOSPC: i32 = -28;
const MILLION: u64 = 1_000_000;

/// Which reads and writes fail.
#[derive(Debug, Clone)]
pub struct StoreFaults {
    seed: u64,
    reads: FaultPlan,
    writes: FaultPlan,
    bad_ppm: u64,
    failed: u64,
    gone: bool,
}

impl StoreFaults {
    /// Of a million reads and writes so many fail: EIO, ENOSPC for a write, or half of it done. They work
    /// when they are tried again. And of a million places on the store so many give back wrong data, each
    /// time.
    #[must_use]
    pub fn new(seed: u64, reads_ppm: u64, writes_ppm: u64, bad_ppm: u64) -> Self {
        let plan = |seed, ppm: u64| FaultPlan::new(seed, ppm as f64 / MILLION as f64, None);
        Self {
            seed,
            reads: plan(seed, reads_ppm),
            writes: plan(seed ^ 1, writes_ppm),
            bad_ppm,
            failed: 0,
            gone: false,
        }
    }

    /// And after so many reads the engine itself fails.
    #[must_use]
    pub fn with_end_after(mut self, reads: u64) -> Self {
        self.reads = FaultPlan::new(self.seed, 0.0, Some(reads));
        self
    }

    /// Whether it is time for the engine to fail.
    pub(super) fn is_over(&self) -> bool {
        self.gone
    }

    /// What becomes of a read into a landing slot.
    pub(super) fn read(&mut self, io: &mut PageIo, landing: u32, result: i32) -> i32 {
        let fault = self.reads.next_fault();
        self.gone |= fault == Fault::Error(ENODEV);
        if fault != Fault::None {
            self.failed += 1;
            return if self.failed.is_multiple_of(2) { result / 2 } else { EIO };
        }
        let (offset, content) = io.landing_mut(landing);
        for (slot, page) in (offset / PAGE..).zip(content.chunks_exact_mut(PAGE as usize)) {
            if self.is_bad(slot) {
                page[slot as usize % PAGE as usize] ^= 1;
            }
        }
        result
    }

    /// What becomes of a write.
    pub(super) fn write(&mut self, result: i32) -> i32 {
        if self.writes.next_fault() == Fault::None {
            return result;
        }
        self.failed += 1;
        match self.failed % 3 {
            0 => EIO,
            1 => ENOSPC,
            _ => result / 2,
        }
    }

    fn is_bad(&self, slot: u64) -> bool {
        self.bad_ppm > 0
            && XxHash3_64::oneshot_with_seed(self.seed, &slot.to_ne_bytes()) % MILLION < self.bad_ppm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_places_are_as_many_as_asked_and_always_the_same() {
        let faults = StoreFaults::new(7, 0, 0, 10_000);
        let bad = |faults: &StoreFaults| (0..100_000).filter(|&slot| faults.is_bad(slot)).count();
        assert!((900..1100).contains(&bad(&faults)));
        assert_eq!(bad(&faults), bad(&StoreFaults::new(7, 5, 5, 10_000)));
        assert_eq!(bad(&StoreFaults::new(7, 0, 0, 0)), 0);
    }

    #[test]
    fn writes_fail_in_every_way_and_replay() {
        let results = |seed| {
            let mut faults = StoreFaults::new(seed, 0, 500_000, 0);
            (0..100).map(|_| faults.write(8192)).collect::<Vec<_>>()
        };
        assert!([8192, 4096, EIO, ENOSPC].iter().all(|result| results(1).contains(result)));
        assert_eq!(results(2), results(2));
    }
}
