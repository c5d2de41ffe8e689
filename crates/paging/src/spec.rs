//! What is to be done: one cell of a paging measurement, checked before anything is mapped.

use crate::pattern::Pattern;
use overdrive_sys::region::{PAGE_BYTES, PAGE_WORDS};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Most threads that one cell may have.
pub const THREADS_MAX: usize = 1024;

/// One cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Size of the set in pages of 4 KiB.
    pub pages: u64,
    /// How many threads access it.
    pub threads: usize,
    /// Which page comes next.
    pub pattern: Pattern,
    /// Reads among the accesses, in per cent.
    pub read_ratio_percent: u8,
    /// A write reads the word first.
    pub write_needs_read: bool,
    /// How much of each page is zeroes, in per cent; the rest is random.
    pub compressible_percent: u8,
    /// Byte offset of every access within its page; without one it is random.
    pub offset: Option<u32>,
    /// Start with everything paged out, without a warm-up.
    pub cold: bool,
    /// The warm-up ends here even when the fault rate is not steady, in milliseconds.
    pub warmup_max_ms: u64,
    /// How long is measured, in milliseconds.
    pub runtime_ms: u64,
    /// Pause between accesses of a thread, in nanoseconds.
    pub delay_ns: u64,
    /// Where the random numbers start.
    pub seed: u64,
    /// What the two clock readings of an access cost; taken off every latency, in nanoseconds.
    pub timing_cost_ns: u64,
}

/// A cell that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    /// The set has no page.
    #[error("the set is smaller than one page: wanted at least 4 KiB")]
    EmptySet,
    /// Too few or too many threads.
    #[error("{0} threads: wanted 1 to {THREADS_MAX}")]
    Threads(usize),
    /// A share above the whole.
    #[error("{what} {percent} %: wanted 0 to 100")]
    Percent {
        /// Which share.
        what: &'static str,
        /// As given.
        percent: u8,
    },
    /// An offset beyond the page.
    #[error("offset {0}: wanted a multiple of 8 below {PAGE_BYTES}")]
    Offset(u32),
    /// Nothing to measure.
    #[error("a runtime of zero: wanted at least 1 ms")]
    NoTime,
}

impl Spec {
    /// Checks the cell against itself.
    ///
    /// # Errors
    /// The first thing that makes no sense.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.pages == 0 {
            return Err(SpecError::EmptySet);
        }
        if !(1..=THREADS_MAX).contains(&self.threads) {
            return Err(SpecError::Threads(self.threads));
        }
        for (what, percent) in
            [("read ratio", self.read_ratio_percent), ("compressible share", self.compressible_percent)]
        {
            if percent > 100 {
                return Err(SpecError::Percent { what, percent });
            }
        }
        if let Some(offset) = self.offset
            && (offset as usize >= PAGE_BYTES || offset % 8 != 0)
        {
            return Err(SpecError::Offset(offset));
        }
        if self.runtime_ms == 0 {
            return Err(SpecError::NoTime);
        }
        Ok(())
    }

    /// The word that every access takes, when the offset is fixed.
    #[must_use]
    pub(crate) fn fixed_word(&self) -> Option<usize> {
        self.offset.map(|offset| offset as usize / 8 % PAGE_WORDS)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn spec() -> Spec {
        Spec {
            pages: 1024,
            threads: 2,
            pattern: Pattern::Uniform,
            read_ratio_percent: 50,
            write_needs_read: false,
            compressible_percent: 0,
            offset: None,
            cold: false,
            warmup_max_ms: 2000,
            runtime_ms: 100,
            delay_ns: 0,
            seed: 1,
            timing_cost_ns: 0,
        }
    }

    #[test]
    fn a_cell_goes_to_a_child_and_back() {
        let text = serde_json::to_string(&spec()).unwrap();
        assert_eq!(serde_json::from_str::<Spec>(&text).unwrap(), spec());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let wrong = [
            Spec { pages: 0, ..spec() },
            Spec { threads: 0, ..spec() },
            Spec { threads: 2000, ..spec() },
            Spec { read_ratio_percent: 101, ..spec() },
            Spec { compressible_percent: 101, ..spec() },
            Spec { offset: Some(4096), ..spec() },
            Spec { offset: Some(3), ..spec() },
            Spec { runtime_ms: 0, ..spec() },
        ];
        assert!(wrong.iter().all(|spec| spec.check().is_err()));
        assert_eq!(spec().check(), Ok(()));
    }
}
