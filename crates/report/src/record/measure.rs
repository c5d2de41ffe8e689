//! From a histogram to the wire: the latencies of one direction of a workload.

use super::{Latency, Percentile};
use overdrive_hist::{Estimate, Histogram};

/// The percentiles every record holds.
pub const PERCENTILES: [f64; 8] = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999, 99.99999];

impl Latency {
    /// Sums up a histogram of latencies in nanoseconds; none when nothing was recorded.
    #[must_use]
    pub fn from_histogram(histogram: &Histogram) -> Option<Self> {
        Some(Self {
            mean_ns: histogram.mean()?,
            min_ns: histogram.min()?,
            max_ns: histogram.max()?,
            stddev_ns: histogram.stddev(),
            percentiles: PERCENTILES.iter().map(|&p| percentile(histogram, p)).collect(),
            histogram: histogram.encode_v2_base64(),
        })
    }

    /// Adds percentiles (such as 97.5) that are not there yet; all stay ascending.
    pub fn add_percentiles(&mut self, histogram: &Histogram, wanted: &[f64]) {
        for &wanted in wanted {
            if self.percentile(wanted).is_none() {
                self.percentiles.push(percentile(histogram, wanted));
            }
        }
        self.percentiles.sort_by(|a, b| a.percentile.total_cmp(&b.percentile));
    }

    /// The stored percentile `wanted` (such as 99.9), if the record holds it.
    #[must_use]
    pub fn percentile(&self, wanted: f64) -> Option<&Percentile> {
        self.percentiles.iter().find(|p| (p.percentile - wanted).abs() < 1e-9)
    }
}

fn percentile(histogram: &Histogram, percentile: f64) -> Percentile {
    let mut wire = Percentile { percentile, value_ns: None, low_ns: None, high_ns: None, at_least_ns: None };
    match histogram.estimate(percentile / 100.0) {
        Estimate::Measured { value, low, high } => {
            wire.value_ns = Some(value);
            wire.low_ns = low;
            wire.high_ns = high;
        }
        Estimate::AtLeast(bound) => wire.at_least_ns = Some(bound),
        Estimate::Unknown => {}
    }
    wire
}
