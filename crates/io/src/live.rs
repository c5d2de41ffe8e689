//! What a run is doing at this moment, for whoever watches: counters that a worker writes and one other
//! thread reads.
//!
//! Kept only when somebody wants to see more than the number of operations, and apart from what is measured:
//! latencies fall into eight buckets for each power of two, warm-up and drain included.

use crate::job::Direction;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Reads, writes and trims; what concerns the whole target is not shown.
const SHOWN: usize = 3;
const BUCKETS: usize = 8 * 38;

/// The counters of one worker, which alone writes them.
pub(crate) struct Live {
    failures: AtomicU64,
    directions: [Counters; SHOWN],
}

struct Counters {
    bytes: AtomicU64,
    /// Operations by latency.
    latencies: [AtomicU32; BUCKETS],
}

impl Default for Live {
    fn default() -> Self {
        let counters =
            || Counters { bytes: AtomicU64::new(0), latencies: [const { AtomicU32::new(0) }; BUCKETS] };
        Self { failures: AtomicU64::new(0), directions: std::array::from_fn(|_| counters()) }
    }
}

impl Live {
    /// Counts an operation that worked.
    #[inline]
    pub(crate) fn count(&self, direction: Direction, bytes: u32, latency_ns: u64) {
        let Some(counters) = self.directions.get(direction as usize) else { return };
        // One thread writes, so that no locked instruction is needed.
        let moved = counters.bytes.load(Ordering::Relaxed) + u64::from(bytes);
        counters.bytes.store(moved, Ordering::Relaxed);
        let bucket = &counters.latencies[bucket_of(latency_ns)];
        bucket.store(bucket.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Counts one that did not.
    pub(crate) fn count_failure(&self) {
        self.failures.store(self.failures.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// What some workers have done up to a moment, or between two moments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// Operations that failed or moved too little.
    pub failures: u64,
    directions: [SeenDirection; SHOWN],
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SeenDirection {
    bytes: u64,
    latencies: [u32; BUCKETS],
}

impl Default for SeenDirection {
    fn default() -> Self {
        Self { bytes: 0, latencies: [0; BUCKETS] }
    }
}

impl Seen {
    pub(crate) fn add(&mut self, live: &Live) {
        self.failures += live.failures.load(Ordering::Relaxed);
        for (sum, counters) in self.directions.iter_mut().zip(&live.directions) {
            sum.bytes += counters.bytes.load(Ordering::Relaxed);
            for (sum, bucket) in sum.latencies.iter_mut().zip(&counters.latencies) {
                *sum = sum.wrapping_add(bucket.load(Ordering::Relaxed));
            }
        }
    }

    /// Adds what other workers did.
    pub fn merge(&mut self, other: &Self) {
        self.failures += other.failures;
        for (sum, other) in self.directions.iter_mut().zip(&other.directions) {
            sum.bytes += other.bytes;
            for (sum, other) in sum.latencies.iter_mut().zip(&other.latencies) {
                *sum = sum.wrapping_add(*other);
            }
        }
    }

    /// What was done since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut seen = self.clone();
        seen.failures = seen.failures.saturating_sub(earlier.failures);
        for (now, earlier) in seen.directions.iter_mut().zip(&earlier.directions) {
            now.bytes = now.bytes.saturating_sub(earlier.bytes);
            for (now, earlier) in now.latencies.iter_mut().zip(&earlier.latencies) {
                *now = now.wrapping_sub(*earlier);
            }
        }
        seen
    }

    /// Operations of this direction; 0 for syncs.
    #[must_use]
    pub fn ios(&self, direction: Direction) -> u64 {
        let seen = self.directions.get(direction as usize);
        seen.map_or(0, |seen| seen.latencies.iter().map(|&count| u64::from(count)).sum())
    }

    /// Bytes moved or trimmed in this direction; 0 for syncs.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.directions.get(direction as usize).map_or(0, |seen| seen.bytes)
    }

    /// A latency in nanoseconds that a share of `quantile` (0 to 1) of the operations does not exceed, up to
    /// an eighth too large; none without operations.
    #[must_use]
    pub fn latency_ns(&self, direction: Direction, quantile: f64) -> Option<u64> {
        let seen = self.directions.get(direction as usize)?;
        let all = self.ios(direction);
        let wanted = ((all as f64 * quantile).ceil() as u64).clamp(1, all.max(1));
        let mut below = 0;
        for (bucket, &count) in seen.latencies.iter().enumerate() {
            below += u64::from(count);
            if below >= wanted {
                return Some(largest_of(bucket));
            }
        }
        None
    }
}

/// Latencies below 8 ns have a bucket each; from there on eight share a power of two, up to about 18 minutes.
#[inline]
fn bucket_of(latency_ns: u64) -> usize {
    if latency_ns < 8 {
        return latency_ns as usize;
    }
    let exponent = latency_ns.ilog2() as usize;
    let index = (exponent - 2) * 8 + (latency_ns >> (exponent - 3) & 7) as usize;
    index.min(BUCKETS - 1)
}

/// The largest latency that falls into a bucket.
fn largest_of(bucket: usize) -> u64 {
    if bucket < 8 {
        return bucket as u64;
    }
    let (power, eighth) = (bucket / 8 + 2, bucket as u64 % 8);
    ((8 + eighth + 1) << (power - 3)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_is_at_most_an_eighth_below_its_largest() {
        for latency in (0..4000).chain((0..37).map(|power| 5 << power)) {
            let largest = largest_of(bucket_of(latency));
            assert!(largest >= latency && largest - latency <= latency / 8, "{latency}: {largest}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_difference_of_two_moments_is_what_happened_between_them() {
        let (live, other) = (Live::default(), Live::default());
        live.count(Direction::Read, 4096, 1000);
        let moment = || {
            let mut seen = Seen::default();
            seen.add(&live);
            seen.add(&other);
            seen
        };
        let before = moment();
        for latency in 1..=100 {
            live.count(Direction::Read, 4096, latency * 1000);
        }
        other.count(Direction::Write, 512, 9);
        other.count_failure();
        live.count(Direction::Sync, 1, 1);
        let now = moment().since(&before);
        assert_eq!((now.ios(Direction::Read), now.ios(Direction::Write)), (100, 1));
        assert_eq!((now.bytes(Direction::Read), now.bytes(Direction::Write)), (409_600, 512));
        assert_eq!((now.ios(Direction::Sync), now.failures), (0, 1));
        let median = now.latency_ns(Direction::Read, 0.5).unwrap();
        assert!((50_000..=57_000).contains(&median), "{median}");
        assert!(now.latency_ns(Direction::Read, 1.0).unwrap() >= 100_000);
        assert_eq!(now.latency_ns(Direction::Trim, 0.5), None);
        let mut both = now.clone();
        both.merge(&now);
        assert_eq!((both.ios(Direction::Read), both.failures), (200, 2));
    }
}
