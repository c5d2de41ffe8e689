//! The loop of one thread: next page, one timed access, count it. It shares nothing but a phase and a counter
//! that it writes now and then.

use crate::lane::{Access, Lane, Timed};
use crate::outcome::{Latencies, STALL_NS, Stall, Stalls};
use crate::pattern::Pages;
use crate::spec::Spec;
use overdrive_base::rng::Rng;
use overdrive_sys::region::PAGE_WORDS;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Accesses between two looks at what is shared.
const BATCH: u64 = 64;

/// What one thread measured.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) reads: Latencies,
    pub(crate) writes: Latencies,
    pub(crate) stalls: Stalls,
    /// Start of the first and end of the last access, since the lane's start.
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
}

/// One thread's sequence of accesses.
#[derive(Debug)]
pub(crate) struct Worker<'a, L> {
    spec: &'a Spec,
    pages: Pages,
    rng: Rng,
    lane: L,
    /// Accesses done so far, for whoever watches.
    progress: &'a AtomicU64,
}

impl<'a, L: Lane> Worker<'a, L> {
    pub(crate) fn new(spec: &'a Spec, number: usize, lane: L, progress: &'a AtomicU64) -> Self {
        let pages = Pages::new(spec.pattern, spec.pages, number as u64, spec.threads as u64);
        Self { spec, pages, rng: Rng::for_stream(spec.seed, number as u64), lane, progress }
    }

    /// Accesses without recording until `done`.
    pub(crate) fn warm_up(&mut self, done: impl Fn() -> bool) {
        while !done() {
            for _ in 0..BATCH {
                self.step();
            }
            self.progress.fetch_add(BATCH, Ordering::Relaxed);
        }
    }

    /// Measures the accesses that begin in the next `runtime_ns`, or before `stop`.
    pub(crate) fn measure(&mut self, runtime_ns: u64, stop: &AtomicBool) -> Tally {
        let mut tally = Tally::default();
        let mut end_ns = u64::MAX;
        for count in 1u64.. {
            let (timed, is_read) = self.step();
            if end_ns == u64::MAX {
                tally.first_ns = timed.started_ns;
                end_ns = timed.started_ns.saturating_add(runtime_ns);
            }
            if timed.started_ns >= end_ns {
                break;
            }
            self.note(&mut tally, timed, is_read);
            if count.is_multiple_of(BATCH) {
                self.progress.fetch_add(BATCH, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
        tally
    }

    #[inline]
    fn note(&self, tally: &mut Tally, timed: Timed, is_read: bool) {
        let took_ns = timed.took_ns.saturating_sub(self.spec.timing_cost_ns);
        if is_read {
            tally.reads.record(took_ns);
        } else {
            tally.writes.record(took_ns);
        }
        tally.last_ns = timed.started_ns + timed.took_ns;
        if took_ns > STALL_NS {
            tally.stalls.note(Stall { at_ns: timed.started_ns - tally.first_ns, took_ns });
        }
    }

    #[inline]
    fn step(&mut self) -> (Timed, bool) {
        if self.spec.delay_ns > 0 {
            self.lane.pause(self.spec.delay_ns);
        }
        let page = self.pages.next_page(&mut self.rng);
        // One draw for both: low bits choose the word, high bits the direction.
        let bits = self.rng.next_u64();
        let word = self.spec.fixed_word().unwrap_or(bits as usize % PAGE_WORDS);
        let is_read = ((bits >> 32) * 100) >> 32 < u64::from(self.spec.read_ratio_percent);
        let access = match (is_read, self.spec.write_needs_read) {
            (true, _) => Access::Read,
            (false, false) => Access::Write,
            (false, true) => Access::ReadWrite,
        };
        (self.lane.access(page, word, access), is_read)
    }
}
