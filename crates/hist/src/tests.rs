//! What the histogram promises: exactness of the extremes, bounded quantile error, merge as concatenation,
//! agreement with the hdrhistogram crate, and intervals that cover the truth as often as they claim.

use super::*;
use overdrive_base::rng::Rng;
use proptest::prelude::*;

fn from_values(values: &[u64]) -> Histogram {
    let mut histogram = Histogram::new();
    for &value in values {
        histogram.record(value);
    }
    histogram
}

fn true_quantile(sorted: &[u64], q: f64) -> u64 {
    let rank = (q * sorted.len() as f64 * (1.0 - ROUNDING)).ceil().max(1.0) as usize;
    sorted[rank - 1]
}

/// Latencies over the whole range a device could show, from nanoseconds to hours, and the far ends of u64.
fn latency() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0u32..45, any::<u64>()).prop_map(|(bits, noise)| (1u64 << bits) + noise % (1u64 << bits)),
        1 => 0u64..300,
        1 => any::<u64>(),
    ]
}

#[test]
fn buckets_tile_all_of_u64() {
    let mut next = 0u64;
    for index in 0..BUCKETS {
        assert_eq!(low_of(index), next, "bucket {index}");
        assert_eq!(index_of(low_of(index)), index);
        assert_eq!(index_of(high_of(index)), index);
        next = high_of(index).wrapping_add(1);
    }
    assert_eq!(next, 0, "the last bucket ends at u64::MAX");
}

#[test]
fn an_empty_histogram_says_so() {
    let empty = Histogram::new();
    assert_eq!((empty.min(), empty.max(), empty.mean()), (None, None, None));
    assert_eq!(empty.value_at(0.5), None);
    assert_eq!(empty.estimate(0.99), Estimate::Unknown);
    assert_eq!(Histogram::decode_v2_base64(&empty.encode_v2_base64()).map(|h| h.count()), Ok(0));
}

#[test]
fn small_values_are_exact() {
    let histogram = from_values(&(0..=255).collect::<Vec<u64>>());
    assert_eq!(histogram.value_at(0.5), Some(127));
    assert_eq!(histogram.value_at(1.0), Some(255));
    assert_eq!(histogram.value_at(0.0), Some(0));
}

#[test]
fn a_whole_rank_is_not_the_next_one() {
    // Both 99.9 / 100.0 and 7.0 / 100.0 * 1000.0 are a little too large in floating point.
    for (percentile, rank) in [(99.9, 999), (99.0, 990), (55.0, 550), (7.0, 70), (0.1, 1)] {
        let mut histogram = Histogram::new();
        histogram.record_n(10, rank);
        histogram.record_n(200, 1000 - rank);
        assert_eq!(histogram.value_at(percentile / 100.0), Some(10), "{percentile} %");
        assert_eq!(histogram.value_at(percentile / 100.0 + 1e-9), Some(200), "above {percentile} %");
        assert_eq!(histogram.value_at(1.0), Some(200));
    }
}

#[test]
fn mean_and_deviation_are_those_of_the_values() {
    let histogram = from_values(&[2_000, 4_000, 4_000, 4_000, 5_000, 5_000, 7_000, 9_000]);
    assert_eq!(histogram.mean(), Some(5_000.0));
    assert_eq!(histogram.stddev(), Some(2_000.0));
}

proptest! {
    #[test]
    fn quantiles_are_within_the_stated_error(mut values in prop::collection::vec(latency(), 1..400), q in 0.0f64..=1.0) {
        let histogram = from_values(&values);
        values.sort_unstable();
        let truth = true_quantile(&values, q);
        let shown = histogram.value_at(q).unwrap();
        prop_assert!(shown >= truth);
        prop_assert!((shown - truth) as f64 <= truth as f64 * MAX_RELATIVE_ERROR, "{shown} for {truth}");
        prop_assert!(MAX_RELATIVE_ERROR <= 0.008);
    }

    #[test]
    fn merge_is_concatenation(a in prop::collection::vec(latency(), 0..200), b in prop::collection::vec(latency(), 0..200)) {
        let mut merged = from_values(&a);
        merged.merge(&from_values(&b));
        let both: Vec<u64> = a.iter().chain(&b).copied().collect();
        let whole = from_values(&both);
        prop_assert_eq!(merged.counts, whole.counts);
        prop_assert_eq!((merged.count, merged.min, merged.max, merged.sum), (whole.count, whole.min, whole.max, whole.sum));
    }

    #[test]
    fn exchange_keeps_every_count_in_its_bucket(values in prop::collection::vec(1u64..(1 << 45), 1..300)) {
        let histogram = from_values(&values);
        let back = Histogram::decode_v2_base64(&histogram.encode_v2_base64()).unwrap();
        prop_assert_eq!(&histogram.counts, &back.counts);
        for (back, own) in [(back.min(), histogram.min()), (back.max(), histogram.max())] {
            let error = back.unwrap() as f64 / own.unwrap() as f64 - 1.0;
            prop_assert!((0.0..=0.001).contains(&error), "{back:?} for {own:?}");
        }
    }

    #[test]
    fn quantiles_agree_with_the_hdrhistogram_crate(values in prop::collection::vec(1u64..(1 << 45), 1..300), q in 0.0f64..=1.0) {
        let histogram = from_values(&values);
        let mut hdr = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 1 << 46, 3).unwrap();
        for &value in &values {
            hdr.record(value).unwrap();
        }
        let (ours, theirs) = (histogram.value_at(q).unwrap() as f64, hdr.value_at_quantile(q) as f64);
        prop_assert!((ours / theirs - 1.0).abs() <= MAX_RELATIVE_ERROR + 0.001, "{ours} against {theirs}");
    }

    #[test]
    fn decoding_never_panics(text in "[A-Za-z0-9+/=]{0,200}") {
        let _ = Histogram::decode_v2_base64(&text);
    }
}

#[test]
fn record_n_is_record_n_times() {
    let mut at_once = Histogram::new();
    at_once.record_n(12_345, 7);
    at_once.record_n(99, 0);
    let one_by_one = from_values(&[12_345; 7]);
    assert_eq!(at_once.counts, one_by_one.counts);
    assert_eq!((at_once.sum, at_once.min, at_once.max), (one_by_one.sum, one_by_one.min, one_by_one.max));
}

#[test]
fn seven_nines_need_ten_million_samples() {
    let mut histogram = Histogram::new();
    histogram.record_n(10_000, 9_999_999);
    assert!(matches!(histogram.estimate(0.999_999_9), Estimate::AtLeast(10_000)));
    histogram.record(50_000);
    assert!(matches!(histogram.estimate(0.999_999_9), Estimate::Measured { high: None, .. }));
}

#[test]
fn a_bound_is_a_lower_bound() {
    // 1,000 samples say little of the 99.99th percentile: at least the one that few enough may exceed.
    let histogram = from_values(&(1..=1_000).map(|i| i * 1_000).collect::<Vec<u64>>());
    let Estimate::AtLeast(bound) = histogram.estimate(0.9999) else { panic!("too few samples for a number") };
    assert!((998_000..=1_000_000).contains(&bound), "{bound}");
}

#[test]
fn intervals_cover_the_truth_as_often_as_they_claim() {
    // Uniform values in 0..1e6: quantile q is q * 1e6. Each case draws 2,000 samples 1,500 times.
    for q in [0.01, 0.05, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999] {
        let mut rng = Rng::new(11);
        let mut covered = 0;
        for _ in 0..1_500 {
            let histogram =
                from_values(&(0..2_000).map(|_| 1_000 + rng.below(1_000_000)).collect::<Vec<u64>>());
            let truth = 1_000 + (q * 1e6) as u64;
            let Estimate::Measured { low, high, .. } = histogram.estimate(q) else {
                panic!("enough samples")
            };
            // The lower end is rounded up to its bucket's edge; allow that rounding, no more.
            let low = low.unwrap_or(0);
            let low = (low as f64 * (1.0 - MAX_RELATIVE_ERROR)) as u64;
            covered += u32::from(low <= truth && high.is_none_or(|high| truth <= high));
        }
        let share = f64::from(covered) / 1_500.0;
        assert!(share >= 0.94, "quantile {q}: covered {share}");
    }
}

#[test]
fn ranks_are_those_of_the_exact_binomial_distribution() {
    // From sums of whole numbers (Python's fractions and math.comb), without any floating point.
    for (n, q, low, high) in [
        (1500, 0.05, Some(59), Some(93)),
        (1500, 0.1, Some(128), Some(174)),
        (1500, 0.25, Some(342), Some(409)),
        (1500, 0.75, Some(1092), Some(1159)),
        (1500, 0.95, Some(1408), Some(1442)),
        (1500, 0.99, Some(1477), Some(1493)),
        (1000, 0.5, Some(469), Some(532)),
        (999, 0.4, Some(369), Some(431)),
        (200, 0.25, Some(38), Some(63)),
        (100, 0.01, None, Some(4)),
        (6, 0.5, Some(1), Some(6)),
        (5, 0.5, None, None),
        (1, 0.5, None, None),
    ] {
        let found = (interval::low_rank(n, q, 0.025), interval::high_rank(n, q, 0.025));
        assert_eq!(found, (low, high), "{n} samples, quantile {q}");
    }
    let uniform = from_values(&(1..=200).collect::<Vec<u64>>());
    let expected = Estimate::Measured { value: 10, low: Some(4), high: Some(17) };
    assert_eq!(uniform.estimate(0.05), expected, "a tail is not the whole range");
}

#[test]
fn a_single_sample_bounds_no_median() {
    let one = from_values(&[5_000]);
    assert_eq!(one.estimate(0.5), Estimate::Unknown, "it is above the median half of the time");
    assert_eq!(one.estimate(0.9), Estimate::Unknown);
    assert!(
        matches!(one.estimate(0.99), Estimate::AtLeast(_)),
        "below the 99th percentile, as it is with 99 %"
    );
    let few = from_values(&[1, 2, 3, 4, 5]);
    assert_eq!(few.estimate(0.5), Estimate::Measured { value: 3, low: None, high: None });
}

#[test]
fn counts_beyond_the_format_are_cut_off_and_not_lost() {
    let mut histogram = Histogram::new();
    histogram.record_n(1000, u64::MAX);
    let again = Histogram::decode_v2_base64(&histogram.encode_v2_base64()).unwrap();
    assert_eq!(again.count(), i64::MAX as u64);
    histogram.merge(&again);
    assert_eq!(histogram.count(), u64::MAX);
}
