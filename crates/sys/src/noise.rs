//! The CPU noise floor: the gaps a thread sees when it does nothing but read the clock.
//!
//! Whatever takes the CPU away (interrupts, the scheduler, the hypervisor, SMIs) shows as a gap between two
//! readings. A latency tail below these gaps belongs to the host, not to the drive.

use crate::clock::Clock;
use std::time::Duration;

/// Gaps shorter than this are the loop itself.
pub const GAP_FLOOR_NS: u64 = 1_000;

/// What one CPU took from a spinning thread.
#[derive(Debug, Clone)]
pub struct NoiseFloor {
    /// How long the thread span, in nanoseconds.
    pub observed_ns: u64,
    /// Every gap over [`GAP_FLOOR_NS`], in nanoseconds, ascending.
    pub gaps_ns: Vec<u64>,
}

impl NoiseFloor {
    /// Spins on the calling thread for `span` and collects the gaps (at most a million of them).
    #[must_use]
    pub fn observe(clock: &Clock, span: Duration) -> Self {
        let mut gaps_ns = Vec::with_capacity(1 << 16);
        let floor = clock.ticks(Duration::from_nanos(GAP_FLOOR_NS));
        let start = clock.now();
        let end = start.saturating_add(clock.ticks(span));
        let mut last = start;
        while last < end {
            let now = clock.now();
            if now.saturating_sub(last) > floor && gaps_ns.len() < 1_000_000 {
                gaps_ns.push(clock.ns_between(last, now));
            }
            last = now;
        }
        gaps_ns.sort_unstable();
        Self { observed_ns: clock.ns_between(start, last), gaps_ns }
    }

    /// The longest gap, 0 when there was none.
    #[must_use]
    pub fn longest_ns(&self) -> u64 {
        self.gaps_ns.last().copied().unwrap_or(0)
    }

    /// The gap that a microsecond-long operation started at a random moment runs into once in `one_in` times.
    ///
    /// Starts are weighted by time, not by gap: a random moment falls into a gap with probability
    /// (sum of gaps) / (observed time), longest gaps first.
    #[must_use]
    pub fn gap_met_once_in_ns(&self, one_in: u64) -> u64 {
        let allowed = self.observed_ns / one_in.max(1);
        let mut spent = 0;
        for &gap in self.gaps_ns.iter().rev() {
            spent += gap;
            if spent > allowed {
                return gap;
            }
        }
        0
    }

    /// The share of time lost in gaps, 0 to 1.
    #[must_use]
    pub fn share_lost(&self) -> f64 {
        self.gaps_ns.iter().sum::<u64>() as f64 / self.observed_ns.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_met_as_often_as_time_says() {
        // 1 s observed; one gap of 1 ms (met once in 1000 moments) and ten of 10 us (0.01 % together).
        let mut gaps_ns = vec![10_000; 10];
        gaps_ns.push(1_000_000);
        let floor = NoiseFloor { observed_ns: 1_000_000_000, gaps_ns };
        assert_eq!(floor.longest_ns(), 1_000_000);
        assert_eq!(floor.gap_met_once_in_ns(10_000), 1_000_000);
        assert_eq!(floor.gap_met_once_in_ns(950), 10_000);
        assert_eq!(floor.gap_met_once_in_ns(100), 0);
        assert!((floor.share_lost() - 0.0011).abs() < 1e-9);
    }

    #[test]
    fn observes_for_as_long_as_asked() {
        let clock = Clock::calibrate(Duration::from_millis(5));
        let floor = NoiseFloor::observe(&clock, Duration::from_millis(20));
        assert!(floor.observed_ns >= 19_900_000, "{floor:?}");
        assert!(floor.gaps_ns.iter().all(|&gap| gap >= GAP_FLOOR_NS));
    }
}
