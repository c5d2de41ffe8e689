//! Several workloads shown as one: what other tools print for a group of jobs.

use crate::record::{self, Cpu, Operation, Workload};
use overdrive_base::time::format_ns;
use overdrive_hist::Histogram;

/// Workloads of a record that are shown as one job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shown {
    /// The name it goes by.
    pub name: String,
    /// The number of its group.
    pub group: u32,
    /// Its options, as they were read.
    pub options: Vec<(String, String)>,
    /// Which workloads of the record it is made of.
    pub workloads: Vec<usize>,
    /// The percentiles asked for; empty for the usual ones.
    pub percentiles: Vec<f64>,
    /// The target's name.
    pub target: String,
}

/// One direction of several workloads together.
#[derive(Debug, Clone, Default)]
pub(super) struct Side {
    pub(super) ios: u64,
    pub(super) bytes: u64,
    /// The longest of the measured times, when anything was done.
    pub(super) elapsed_s: f64,
    /// I/Os a second and bytes a second, each workload's over its own time, summed.
    pub(super) rates: (f64, f64),
    pub(super) latency: Moments,
    pub(super) histogram: Histogram,
    /// I/Os a second in each slice of time, when the workloads do nothing else.
    pub(super) iops: Vec<f64>,
    /// Bytes a second likewise.
    pub(super) bytes_per_s: Vec<f64>,
}

/// Exact moments of a latency; the histogram has only buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Moments {
    pub(super) count: u64,
    pub(super) min_ns: u64,
    pub(super) max_ns: u64,
    pub(super) mean_ns: f64,
    pub(super) stddev_ns: f64,
}

impl Moments {
    fn of(latency: &record::Latency, count: u64) -> Self {
        let stddev_ns = latency.stddev_ns.unwrap_or(0.0);
        Self { count, min_ns: latency.min_ns, max_ns: latency.max_ns, mean_ns: latency.mean_ns, stddev_ns }
    }

    /// Of both together.
    pub(super) fn and(self, other: Self) -> Self {
        if self.count == 0 || other.count == 0 {
            return if self.count == 0 { other } else { self };
        }
        let (n, m) = (self.count as f64, other.count as f64);
        let mean_ns = (self.mean_ns * n + other.mean_ns * m) / (n + m);
        let square = |one: Self| one.stddev_ns.powi(2) + one.mean_ns.powi(2);
        let variance = (square(self) * n + square(other) * m) / (n + m) - mean_ns.powi(2);
        Self {
            count: self.count + other.count,
            min_ns: self.min_ns.min(other.min_ns),
            max_ns: self.max_ns.max(other.max_ns),
            mean_ns,
            stddev_ns: variance.max(0.0).sqrt(),
        }
    }
}

impl Side {
    /// The reads, or the writes, of all these workloads.
    pub(super) fn of(workloads: &[&Workload], operation: Operation) -> Self {
        let mut side = Self::default();
        let alone = workloads.iter().all(|workload| workload.job.operation == operation);
        for workload in workloads {
            let outcome = &workload.outcome;
            let direction = match operation {
                Operation::Write => &outcome.write,
                Operation::Trim => &outcome.trim,
                Operation::Sync => &outcome.sync,
                Operation::Read | Operation::Mixed => &outcome.read,
            };
            let Some(direction) = direction else { continue };
            side.ios += direction.ios;
            side.bytes += direction.bytes;
            side.elapsed_s = side.elapsed_s.max(outcome.elapsed_s);
            side.rates = (side.rates.0 + direction.iops, side.rates.1 + direction.bytes_per_s);
            if let Ok(histogram) = Histogram::decode_v2_base64(&direction.latency.histogram) {
                side.latency = side.latency.and(Moments::of(&direction.latency, histogram.count()));
                side.histogram.merge(&histogram);
            }
            if alone {
                side.add_series(&outcome.series);
            }
        }
        side
    }

    fn add_series(&mut self, series: &[record::Slice]) {
        let length = self.iops.len().max(series.len());
        self.iops.resize(length, 0.0);
        self.bytes_per_s.resize(length, 0.0);
        let mut before_s = 0.0;
        for (index, slice) in series.iter().enumerate() {
            let seconds = slice.at_s - before_s;
            before_s = slice.at_s;
            if seconds > 0.0 {
                self.iops[index] += slice.ios as f64 / seconds;
                self.bytes_per_s[index] += slice.bytes as f64 / seconds;
            }
        }
    }

    /// Both together.
    pub(super) fn and(mut self, other: &Self) -> Self {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.elapsed_s = self.elapsed_s.max(other.elapsed_s);
        self.rates = (self.rates.0 + other.rates.0, self.rates.1 + other.rates.1);
        self.latency = self.latency.and(other.latency);
        self.histogram.merge(&other.histogram);
        add(&mut self.iops, &other.iops);
        add(&mut self.bytes_per_s, &other.bytes_per_s);
        self
    }

    /// A count over the measured time.
    pub(super) fn per_s(&self, count: u64) -> f64 {
        if self.elapsed_s > 0.0 { count as f64 / self.elapsed_s } else { 0.0 }
    }

    /// The value at a percentile, kept within what was measured; none without samples.
    pub(super) fn percentile_ns(&self, percentile: f64) -> Option<u64> {
        let value = self.histogram.value_at(percentile / 100.0)?;
        if percentile >= 100.0 {
            return Some(self.latency.max_ns);
        }
        Some(value.clamp(self.latency.min_ns, self.latency.max_ns))
    }
}

/// Adds slice by slice.
fn add(sum: &mut Vec<f64>, other: &[f64]) {
    sum.resize(sum.len().max(other.len()), 0.0);
    sum.iter_mut().zip(other).for_each(|(sum, other)| *sum += other);
}

/// Mean and standard deviation.
pub(super) fn spread(values: &[f64]) -> (f64, f64) {
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (mean, (squares / values.len() as f64).sqrt())
}

/// The CPU cost of all these workloads: seconds in user space, in the kernel, and of workers altogether.
pub(super) fn cpu_seconds(workloads: &[&Workload]) -> (f64, f64, f64) {
    let cost = |pick: fn(&Cpu) -> f64| -> f64 {
        workloads.iter().filter_map(|workload| workload.outcome.cpu.as_ref()).map(pick).sum()
    };
    let workers =
        workloads.iter().map(|workload| f64::from(workload.job.workers) * workload.outcome.elapsed_s);
    (cost(|cpu| cpu.user_s), cost(|cpu| cpu.system_s), workers.sum())
}

/// A line or two for each job that is the sum of several workloads; empty when there is none.
#[must_use]
pub fn groups(record: &record::Record, shown: &[Shown]) -> String {
    let mut text = String::new();
    for job in shown.iter().filter(|job| job.workloads.len() > 1) {
        let workloads: Vec<&Workload> =
            job.workloads.iter().filter_map(|&index| record.workloads.get(index)).collect();
        let names: Vec<&str> =
            workloads.iter().map(|workload| workload.title.split(':').next().unwrap_or("")).collect();
        text.push_str(&format!("\nGroup {}: {}\n", job.group + 1, names.join(", ")));
        for (name, operation) in [("read", Operation::Read), ("write", Operation::Write)] {
            let side = Side::of(&workloads, operation);
            if side.ios == 0 {
                continue;
            }
            let at = |percentile| format_ns(side.percentile_ns(percentile).unwrap_or(0));
            text.push_str(&format!(
                "  {name:<5} {:.0} IOPS, {:.1} MiB/s, p50 {}, p99 {}, max {}\n",
                side.per_s(side.ios),
                side.per_s(side.bytes) / (1 << 20) as f64,
                at(50.0),
                at(99.0),
                format_ns(side.latency.max_ns),
            ));
        }
    }
    text
}
