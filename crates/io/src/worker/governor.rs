//! Looks for the greatest depth at which latencies keep a target (fio's latency_target): doubles while they
//! do, then halves the distance between the greatest depth that did and the least that did not.

use crate::job::LatencyTarget;
use crate::outcome::DepthFound;

/// The depth of one worker under a latency target.
#[derive(Debug)]
pub(super) struct Governor {
    target: LatencyTarget,
    limit_ns: u64,
    window_ticks: u64,
    /// The depth now, the greatest that kept the target, and the least that did not.
    depth: u32,
    good: u32,
    bad: u32,
    settled: bool,
    /// Only operations that started after this tick count: earlier ones met another depth.
    since: u64,
    ios: u64,
    slow: u64,
}

impl Governor {
    pub(super) fn new(target: LatencyTarget, queue_depth: u32, window_ticks: u64) -> Self {
        Self {
            target,
            limit_ns: u64::try_from(target.limit.as_nanos()).unwrap_or(u64::MAX),
            window_ticks: window_ticks.max(1),
            depth: 1,
            good: 0,
            bad: queue_depth + 1,
            settled: false,
            since: 0,
            ios: 0,
            slow: 0,
        }
    }

    /// Measuring begins: the first window is as long as all others.
    pub(super) fn begin(&mut self, now: u64) {
        self.since = now;
    }

    /// The depth that operations may fill now.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// Whether there is nothing more to find.
    pub(super) fn is_done(&self) -> bool {
        self.settled && !self.target.keep_running
    }

    /// Counts an operation that started at `tick`.
    #[inline]
    pub(super) fn count(&mut self, tick: u64, latency_ns: u64) {
        if tick >= self.since {
            self.ios += 1;
            self.slow += u64::from(latency_ns > self.limit_ns);
        }
    }

    /// Judges the depth at the end of a window; true when it has changed.
    pub(super) fn judge(&mut self, now: u64) -> bool {
        if now.saturating_sub(self.since) < self.window_ticks || self.ios == 0 {
            return false;
        }
        let within = 1.0 - self.slow as f64 / self.ios as f64;
        let before = self.depth;
        self.step(within * 100.0 >= self.target.percentile);
        (self.since, self.ios, self.slow) = (now, 0, 0);
        self.depth != before
    }

    fn step(&mut self, kept: bool) {
        if kept {
            self.good = self.good.max(self.depth);
        } else {
            // What was good may have been so by luck, or the target has changed: look below again.
            self.bad = self.depth;
            self.good = if self.good >= self.bad { 0 } else { self.good };
        }
        let least = self.good + 1;
        let next = if kept && self.good.saturating_mul(2) < self.bad {
            self.good * 2
        } else {
            self.good.midpoint(self.bad)
        };
        self.settled = least >= self.bad;
        self.depth = if self.settled { self.good.max(1) } else { next.max(1) };
    }

    /// What was found.
    pub(super) fn found(&self) -> DepthFound {
        DepthFound { depth_min: self.depth, depth_max: self.depth, settled: self.settled, met: self.good > 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Judges windows until the governor is done, with latencies that exceed the target above `most`.
    fn search(most: u32, queue_depth: u32) -> DepthFound {
        let limit = Duration::from_micros(100);
        let target = LatencyTarget { limit, window: limit, percentile: 99.0, keep_running: false };
        let mut governor = Governor::new(target, queue_depth, 10);
        let mut now = 0;
        while !governor.is_done() {
            for index in 0..1000 {
                let slow = governor.depth() > most && index % 50 == 0;
                governor.count(now, if slow { 100_001 } else { 100_000 });
            }
            now += 10;
            governor.judge(now);
            assert!(now < 1000, "it ends");
        }
        governor.found()
    }

    #[test]
    fn the_first_window_begins_with_the_measured_time() {
        let limit = Duration::from_micros(100);
        let target = LatencyTarget { limit, window: limit, percentile: 99.0, keep_running: false };
        let mut governor = Governor::new(target, 64, 10);
        governor.begin(1000);
        governor.count(1000, 100_001);
        assert!(!governor.judge(1001), "one I/O is no window");
        (0..200).for_each(|_| governor.count(1001, 100_000));
        assert!(governor.judge(1010) && governor.depth() == 2);
    }

    #[test]
    fn it_finds_the_greatest_depth_that_keeps_the_target() {
        for most in [1, 2, 3, 7, 8, 31, 63, 64] {
            let found = search(most, 64);
            assert_eq!((found.depth_min, found.met, found.settled), (most, true, true), "{found:?}");
        }
        assert_eq!(search(1000, 64).depth_max, 64);
        let hopeless = search(0, 64);
        assert_eq!((hopeless.depth_min, hopeless.met), (1, false));
    }
}
