//! The path of one access: memory and its clock, or a simulation with known delays in virtual time.

use overdrive_sys::clock::{Clock, wait_for_loads};
use overdrive_sys::region::{PAGE_WORDS, Region};
use std::hint::black_box;
use std::time::Duration;

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// One load.
    Read,
    /// One store.
    Write,
    /// A load, then a store to the same word.
    ReadWrite,
}

/// When an access began and how long it took.
#[derive(Debug, Clone, Copy)]
pub struct Timed {
    /// Nanoseconds since the lane's start.
    pub started_ns: u64,
    /// How long it took, timing cost included.
    pub took_ns: u64,
}

/// One worker's way to its memory.
pub trait Lane {
    /// Does one access and times it.
    fn access(&mut self, page: u64, word: usize, access: Access) -> Timed;

    /// Lets time pass between accesses.
    fn pause(&mut self, ns: u64);
}

/// Real memory and the processor's clock.
#[derive(Debug)]
pub struct RealLane<'a> {
    region: &'a Region,
    clock: Clock,
    origin: u64,
}

impl<'a> RealLane<'a> {
    /// A lane whose time starts at tick `origin`.
    #[must_use]
    pub fn new(region: &'a Region, clock: Clock, origin: u64) -> Self {
        Self { region, clock, origin }
    }
}

#[inline(always)]
fn touch(region: &Region, page: u64, word: usize, access: Access) {
    let page = page as usize;
    match access {
        Access::Read => {
            black_box(region.read(page, word));
        }
        Access::Write => region.write(page, word, page as u64),
        Access::ReadWrite => {
            let old = black_box(region.read(page, word));
            region.write(page, word, old.wrapping_add(1));
        }
    }
}

impl Lane for RealLane<'_> {
    #[inline]
    fn access(&mut self, page: u64, word: usize, access: Access) -> Timed {
        let start = self.clock.now();
        touch(self.region, page, word, access);
        let end = self.clock.now_after_loads();
        Timed {
            started_ns: self.clock.ns_between(self.origin, start),
            took_ns: self.clock.ns_between(start, end),
        }
    }

    fn pause(&mut self, ns: u64) {
        let end = self.clock.now().saturating_add(self.clock.ticks(Duration::from_nanos(ns)));
        while self.clock.now() < end {
            std::hint::spin_loop();
        }
    }
}

/// A simulated memory in virtual time: the first `resident_pages` pages take `hit_ns`, the others `fault_ns`.
#[derive(Debug, Clone, Default)]
pub struct SimLane {
    /// Pages that are hits.
    pub resident_pages: u64,
    /// Latency of a hit.
    pub hit_ns: u64,
    /// Latency of a fault.
    pub fault_ns: u64,
    now_ns: u64,
}

impl SimLane {
    /// A memory with these delays.
    #[must_use]
    pub fn new(resident_pages: u64, hit_ns: u64, fault_ns: u64) -> Self {
        Self { resident_pages, hit_ns, fault_ns, now_ns: 0 }
    }
}

impl Lane for SimLane {
    fn access(&mut self, page: u64, _word: usize, _access: Access) -> Timed {
        let took_ns = if page < self.resident_pages { self.hit_ns } else { self.fault_ns };
        let started_ns = self.now_ns;
        self.now_ns += took_ns;
        Timed { started_ns, took_ns }
    }

    fn pause(&mut self, ns: u64) {
        self.now_ns += ns;
    }
}

/// What measuring costs, found out on a small region that stays in DRAM.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OwnCost {
    /// The shortest time between two readings with nothing in between: taken off every latency.
    pub timing_ns: u64,
    /// A whole access of the bare loop: next page, one access, waited for.
    pub bare_ns: f64,
    /// The same with clock readings and histogram.
    pub measured_ns: f64,
}

impl OwnCost {
    /// Nanoseconds that measuring adds to an access.
    #[must_use]
    pub fn added_ns(&self) -> f64 {
        (self.measured_ns - self.bare_ns).max(0.0)
    }

    /// Measures it, in about a tenth of a second.
    ///
    /// # Errors
    /// When there is no memory for the region.
    pub fn measure(clock: &Clock) -> Result<Self, overdrive_sys::Errno> {
        const PAGES: u64 = 4096;
        const ACCESSES: u64 = 100_000;
        const ROUNDS: usize = 9;
        let region = Region::new(PAGES as usize)?;
        (0..PAGES as usize).for_each(|page| region.write(page, 0, 1));
        let timing_ns = empty_timing_ns(clock);
        let mut histogram = overdrive_hist::Histogram::new();
        let mut rng = overdrive_base::rng::Rng::new(1);
        let mut lane = RealLane::new(&region, *clock, clock.now());
        // Rounds alternate and the best of each counts: whatever disturbs only ever adds.
        let (mut bare_ns, mut measured_ns) = (f64::MAX, f64::MAX);
        for _ in 0..ROUNDS {
            let start = clock.now();
            for _ in 0..ACCESSES {
                touch(&region, rng.below(PAGES), rng.below(PAGE_WORDS as u64) as usize, Access::Read);
                wait_for_loads();
            }
            bare_ns = bare_ns.min(clock.ns_between(start, clock.now()) as f64 / ACCESSES as f64);
            let start = clock.now();
            for _ in 0..ACCESSES {
                let timed =
                    lane.access(rng.below(PAGES), rng.below(PAGE_WORDS as u64) as usize, Access::Read);
                histogram.record(timed.took_ns.saturating_sub(timing_ns));
            }
            measured_ns = measured_ns.min(clock.ns_between(start, clock.now()) as f64 / ACCESSES as f64);
        }
        Ok(Self { timing_ns, bare_ns, measured_ns })
    }
}

/// The median of many empty intervals: the least is rarer than what an access really pays.
fn empty_timing_ns(clock: &Clock) -> u64 {
    let mut intervals: Vec<u64> = (0..20_001)
        .map(|_| {
            let start = clock.now();
            clock.ns_between(start, clock.now_after_loads())
        })
        .collect();
    intervals.sort_unstable();
    intervals[intervals.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_measuring_costs_is_small_and_known() {
        let clock = Clock::calibrate(Duration::from_millis(20));
        let cost = OwnCost::measure(&clock).unwrap();
        assert!(cost.timing_ns < 1_000 && cost.bare_ns > 0.1 && cost.measured_ns > 1.0, "{cost:?}");
        assert!(cost.measured_ns < 10_000.0, "{cost:?}");
    }

    #[test]
    fn real_accesses_reach_their_word() {
        let region = Region::new(8).unwrap();
        let clock = Clock::calibrate(Duration::from_millis(5));
        let mut lane = RealLane::new(&region, clock, clock.now());
        lane.access(5, 9, Access::Write);
        assert_eq!(region.read(5, 9), 5);
        lane.access(5, 9, Access::ReadWrite);
        assert_eq!(region.read(5, 9), 6);
        lane.access(5, 9, Access::Read);
        assert_eq!(region.read(5, 9), 6);
    }

    #[test]
    fn simulated_time_is_the_sum_of_its_delays() {
        let mut lane = SimLane::new(1, 100, 5_000);
        lane.access(0, 0, Access::Read);
        lane.pause(7);
        let timed = lane.access(1, 0, Access::Write);
        assert_eq!((timed.started_ns, timed.took_ns), (107, 5_000));
    }
}
