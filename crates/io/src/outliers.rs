//! The slowest operations of a worker, each with enough to ask why: when, where, what, how deep, which CPU.

use crate::pattern::Io;

/// One slow operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlier {
    /// When it started, in nanoseconds after measuring began.
    pub at_ns: u64,
    /// From its start to the completion seen, in nanoseconds.
    pub latency_ns: u64,
    /// What it did and where.
    pub io: Io,
    /// Operations its worker had in flight when it started, itself included.
    pub depth: u32,
    /// The CPU on which its completion was seen.
    pub cpu: usize,
    /// Which worker ran it.
    pub worker: u32,
}

/// The `keep` slowest operations seen, in no order until they are asked for.
#[derive(Debug)]
pub(crate) struct Outliers {
    keep: usize,
    kept: Vec<Outlier>,
    /// Only what is slower than this gets in: one comparison for everything else.
    threshold_ns: u64,
}

impl Outliers {
    pub(crate) fn new(keep: u32) -> Self {
        let keep = keep as usize;
        let threshold_ns = if keep == 0 { u64::MAX } else { 0 };
        Self { keep, kept: Vec::with_capacity(keep), threshold_ns }
    }

    /// Whether an operation of this latency belongs among the slowest so far.
    #[inline]
    pub(crate) fn wants(&self, latency_ns: u64) -> bool {
        latency_ns > self.threshold_ns
    }

    /// Takes one in, and drops the fastest of them when there are too many.
    #[cold]
    pub(crate) fn add(&mut self, outlier: Outlier) {
        if self.kept.len() < self.keep {
            self.kept.push(outlier);
        } else if let Some(fastest) = self.kept.iter_mut().min_by_key(|kept| kept.latency_ns) {
            *fastest = outlier;
        }
        if self.kept.len() == self.keep {
            self.threshold_ns = self.kept.iter().map(|kept| kept.latency_ns).min().unwrap_or(u64::MAX);
        }
    }

    pub(crate) fn into_kept(self) -> Vec<Outlier> {
        self.kept
    }
}

/// Of all workers, each of which kept its own, slowest first.
pub(crate) fn slowest(mut outliers: Vec<Outlier>) -> Vec<Outlier> {
    outliers.sort_by_key(|outlier| (std::cmp::Reverse(outlier.latency_ns), outlier.at_ns));
    outliers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Direction;
    use proptest::prelude::*;

    fn outlier(latency_ns: u64) -> Outlier {
        let io = Io { direction: Direction::Read, offset: 0, length: 4096 };
        Outlier { at_ns: 0, latency_ns, io, depth: 1, cpu: 0, worker: 0 }
    }

    proptest! {
        #[test]
        fn the_slowest_are_kept_whatever_the_order(latencies in prop::collection::vec(1u64..1000, 0..200), keep in 0u32..20) {
            let mut outliers = Outliers::new(keep);
            for &latency in &latencies {
                if outliers.wants(latency) {
                    outliers.add(outlier(latency));
                }
            }
            let kept: Vec<u64> = slowest(outliers.into_kept()).iter().map(|kept| kept.latency_ns).collect();
            let mut wanted = latencies;
            wanted.sort_unstable_by(|a, b| b.cmp(a));
            wanted.truncate(keep as usize);
            prop_assert_eq!(kept, wanted);
        }
    }
}
