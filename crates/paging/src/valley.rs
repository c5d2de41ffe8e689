//! Telling DRAM hits from faults by their latencies: the valley between the two humps.
//!
//! Hits take some hundred nanoseconds, faults that wait for a device take many microseconds. What lies below
//! [`SPLIT_NS`] belongs to the left hump's side, what lies above to the right one's, and the border is where
//! the fewest accesses are between the two peaks.

use overdrive_hist::Histogram;

/// Peaks are looked for on either side of this. A hit with a full TLB miss, and even a fault that finds its
/// page in memory, are below; any device is above.
pub const SPLIT_NS: u64 = 4_000;

/// No fault is shorter. Below, clocks tick so coarsely that there are gaps between hits.
const HIT_NS: u64 = 256;

/// Bins for each power of two: coarse enough to be smooth, fine enough to find the valley.
const BINS_PER_OCTAVE: f64 = 4.0;

/// The latency from which an access counts as a fault, or none when there is one hump of hits.
#[must_use]
pub fn threshold_ns(histogram: &Histogram) -> Option<u64> {
    let bin_of = |ns: u64| ((ns.max(HIT_NS) as f64).log2() * BINS_PER_OCTAVE) as usize;
    let mut bins = vec![0u64; 64 * BINS_PER_OCTAVE as usize + 1];
    for bucket in histogram.buckets() {
        bins[bin_of(bucket.low)] += bucket.count;
    }
    let split = bin_of(SPLIT_NS);
    let peak = |range: std::ops::Range<usize>| {
        range.filter(|&bin| bins[bin] > 0).max_by_key(|&bin| (bins[bin], std::cmp::Reverse(bin)))
    };
    // Interrupts and the scheduler delay hits too: a hump of faults is more than one access in 100,000.
    let slow: u64 = bins[split..].iter().sum();
    if slow <= histogram.count() / 100_000 {
        return None;
    }
    let right = peak(split..bins.len())?;
    let Some(left) = peak(0..split) else { return Some(SPLIT_NS) };
    let least = (left..=right).map(|bin| bins[bin]).min()?;
    // The middle of the first stretch of bins that are as empty as it gets.
    let first = (left..=right).find(|&bin| bins[bin] == least)?;
    let last = (first..=right).take_while(|&bin| bins[bin] == least).last()?;
    Some(2f64.powf((first + last + 1) as f64 / 2.0 / BINS_PER_OCTAVE).round() as u64)
}

/// How many recordings lie at or above `threshold_ns`.
#[must_use]
pub fn count_from(histogram: &Histogram, threshold_ns: u64) -> u64 {
    histogram.buckets().filter(|bucket| bucket.low >= threshold_ns).map(|bucket| bucket.count).sum()
}

/// The two sides of the border: hits and faults.
#[must_use]
pub fn split(histogram: &Histogram, threshold_ns: Option<u64>) -> (Histogram, Histogram) {
    let (mut hits, mut faults) = (Histogram::new(), Histogram::new());
    for bucket in histogram.buckets() {
        let side =
            if threshold_ns.is_some_and(|border| bucket.low >= border) { &mut faults } else { &mut hits };
        side.record_n(bucket.low + (bucket.high - bucket.low) / 2, bucket.count);
    }
    (hits, faults)
}

#[cfg(test)]
mod tests {
    use super::*;
    use overdrive_base::rng::Rng;

    /// A hump around `middle`, a quarter of it wide to each side.
    fn hump(histogram: &mut Histogram, middle: u64, count: u64) {
        let mut rng = Rng::new(middle);
        (0..count).for_each(|_| histogram.record(middle * 3 / 4 + rng.below(middle / 2)));
    }

    #[test]
    fn the_border_lies_between_two_humps() {
        for (hits, faults) in [(10_000, 10_000), (1_000_000, 200), (50, 20_000)] {
            let mut histogram = Histogram::new();
            hump(&mut histogram, 150, hits);
            hump(&mut histogram, 60_000, faults);
            let border = threshold_ns(&histogram).unwrap();
            assert!((300..30_000).contains(&border), "{border}");
            assert_eq!(count_from(&histogram, border), faults);
            let (left, right) = split(&histogram, Some(border));
            assert_eq!((left.count(), right.count()), (hits, faults));
        }
    }

    /// Walks that are read ahead of take a few nanoseconds for a hit, of which some values never occur; other
    /// clocks tick every 41 ns.
    #[test]
    fn gaps_between_hits_are_no_valley() {
        for tick in [1, 41] {
            let mut histogram = Histogram::new();
            (2..8).for_each(|ticks| histogram.record_n(ticks * tick, 100_000));
            (400..200_000).step_by(100).for_each(|ns| histogram.record_n(ns, 2));
            hump(&mut histogram, 60_000, 40_000);
            let border = threshold_ns(&histogram).unwrap();
            assert!((HIT_NS..20_000).contains(&border), "{border}");
        }
    }

    #[test]
    fn one_hump_has_no_border_unless_all_are_faults() {
        let mut histogram = Histogram::new();
        assert_eq!(threshold_ns(&histogram), None);
        hump(&mut histogram, 150, 1_000_000);
        histogram.record(2_000_000);
        assert_eq!(threshold_ns(&histogram), None, "one preempted hit is no hump");
        let mut slow = Histogram::new();
        hump(&mut slow, 80_000, 1000);
        assert_eq!(threshold_ns(&slow), Some(SPLIT_NS));
        assert_eq!(count_from(&slow, SPLIT_NS), 1000);
    }
}
