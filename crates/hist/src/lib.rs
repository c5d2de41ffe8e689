//! A latency histogram of fixed size: record, merge, quantile, confidence interval, exchange.
//!
//! Values are nanoseconds. Up to 255 ns each value has a bucket of its own; above, every power of two is cut
//! into 128 equal buckets, so a bucket is at most 1/128 (0.78 %) as wide as the values in it. The table
//! covers all of `u64`: nothing is clipped. Minimum, maximum, sum and sum of squares are kept exactly beside
//! it.
//!
//! Recording is an index computation and an increment; it never allocates. For exchange the histogram is
//! written as an HdrHistogram V2 payload, which other tools read (see [`Histogram::encode_v2_base64`]).

#![forbid(unsafe_code)]

mod exchange;
mod interval;

pub use exchange::DecodeError;
pub use interval::{Estimate, LEVEL};

/// Buckets per power of two, as a power of two itself.
const SUB_BITS: u32 = 7;
const SUB: usize = 1 << SUB_BITS;
/// One linear run of `SUB` buckets below 2^7, then one run for each exponent 7..=63.
const BUCKETS: usize = SUB * (64 - SUB_BITS as usize + 1);

/// The largest relative error of a quantile: the width of a bucket over its lower edge.
pub const MAX_RELATIVE_ERROR: f64 = 1.0 / SUB as f64;

/// What a share of a hundred and its product with a count may be off by. Smaller than one in any count that a
/// run reaches, so the share 1 still has the last rank.
const ROUNDING: f64 = 4.0 * f64::EPSILON;

/// Counts of latencies in nanoseconds, about 58 KiB whatever is recorded.
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    sum: u128,
    sum_of_squares: f64,
    min: u64,
    max: u64,
}

/// One non-empty bucket: `count` values in `low..=high` nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Smallest value of the bucket, in nanoseconds.
    pub low: u64,
    /// Largest value of the bucket, in nanoseconds.
    pub high: u64,
    /// How many values were recorded in it.
    pub count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram.
    #[must_use]
    pub fn new() -> Self {
        Self {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            count: 0,
            sum: 0,
            sum_of_squares: 0.0,
            min: u64::MAX,
            max: 0,
        }
    }

    /// Records one value in nanoseconds.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.counts[index_of(value)] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.sum_of_squares += value as f64 * value as f64;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Records `count` equal values in nanoseconds.
    pub fn record_n(&mut self, value: u64, count: u64) {
        if count == 0 {
            return;
        }
        // Saturating: a forged payload may claim counts that no run could reach.
        let bucket = &mut self.counts[index_of(value)];
        *bucket = bucket.saturating_add(count);
        self.count = self.count.saturating_add(count);
        self.sum = self.sum.saturating_add(u128::from(value) * u128::from(count));
        self.sum_of_squares += value as f64 * value as f64 * count as f64;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds all that `other` recorded.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts.iter()) {
            *mine = mine.saturating_add(*theirs);
        }
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.sum_of_squares += other.sum_of_squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// How many values were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest value, exact.
    #[must_use]
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// The largest value, exact.
    #[must_use]
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// The mean, exact up to rounding.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// The standard deviation of the recorded values.
    #[must_use]
    pub fn stddev(&self) -> Option<f64> {
        let mean = self.mean()?;
        Some((self.sum_of_squares / self.count as f64 - mean * mean).max(0.0).sqrt())
    }

    /// The value at quantile `q` (0 to 1): no more than 1/128 above the true one and never below it.
    ///
    /// The true one is the smallest recorded value with at least a share `q` of all values at or below it.
    #[must_use]
    pub fn value_at(&self, q: f64) -> Option<u64> {
        // 99.9 / 100.0 is a little above 0.999: a whole rank is not to become the next one by that.
        let rank = (q.clamp(0.0, 1.0) * self.count as f64 * (1.0 - ROUNDING)).ceil() as u64;
        self.value_at_rank(rank.max(1))
    }

    /// The value of the `rank`-th smallest recording (from 1), rounded up to its bucket's upper edge.
    #[must_use]
    pub fn value_at_rank(&self, rank: u64) -> Option<u64> {
        if rank == 0 || rank > self.count {
            return None;
        }
        if rank == self.count {
            return Some(self.max);
        }
        let mut seen = 0;
        for bucket in self.buckets() {
            seen = bucket.count.saturating_add(seen);
            if seen >= rank {
                return Some(bucket.high.min(self.max));
            }
        }
        Some(self.max)
    }

    /// The non-empty buckets, smallest values first.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.counts.iter().enumerate().filter(|&(_, &count)| count > 0).map(|(index, &count)| Bucket {
            low: low_of(index),
            high: high_of(index),
            count,
        })
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("min", &self.min())
            .field("mean", &self.mean())
            .field("max", &self.max())
            .finish_non_exhaustive()
    }
}

/// The bucket of a value: the top eight bits of the value name it, so it costs no comparison per octave.
#[inline]
fn index_of(value: u64) -> usize {
    let shift = (64 - SUB_BITS - 1).saturating_sub((value | 1).leading_zeros());
    ((shift as usize) << SUB_BITS) + (value >> shift) as usize
}

fn low_of(index: usize) -> u64 {
    let shift = (index >> SUB_BITS).saturating_sub(1);
    ((index - (shift << SUB_BITS)) as u64) << shift
}

fn high_of(index: usize) -> u64 {
    let shift = (index >> SUB_BITS).saturating_sub(1);
    low_of(index) + ((1u64 << shift) - 1)
}

#[cfg(test)]
mod tests;
