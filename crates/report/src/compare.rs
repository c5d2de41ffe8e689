//! Two records side by side: what changed, and whether the change is more than noise.
//!
//! A difference counts only when the 95 % intervals of both sides stand apart *and* it exceeds what two runs
//! of one configuration commonly differ by. Intervals come from within each run, so they cannot know what
//! changed between the runs; the floor stands for that. Workloads are matched by id.

use crate::record::{Direction, Operation, Record, Workload};
use serde::Serialize;
use std::fmt;

/// Changes below this ratio are never called changes: idle hosts repeat a run to within one or two per cent,
/// and a histogram bucket alone is 0.8 % wide.
const MIN_CHANGE: f64 = 0.03;
/// Fewer time slices than this say nothing about the spread of a rate.
const MIN_SLICES: usize = 5;
/// Two-sided 95 % of the normal distribution.
const Z95: f64 = 1.96;

/// What differs between two records.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// What to call the earlier record: when it started.
    pub before: String,
    /// What to call the later record: when it started.
    pub after: String,
    /// Reasons to read the ratios with care.
    pub cautions: Vec<String>,
    /// Workloads in both, in the later one's order.
    pub workloads: Vec<WorkloadChange>,
    /// Ids of workloads that only one of the records has.
    pub unmatched: Vec<String>,
}

/// What changed in one workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkloadChange {
    /// The workload's id.
    pub id: String,
    /// The workload's name for people.
    pub title: String,
    /// IOPS first, then the latency percentiles both sides know.
    pub changes: Vec<Change>,
}

/// One figure on both sides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Which figure.
    pub figure: Figure,
    /// Its value before (I/Os a second, or nanoseconds).
    pub before: f64,
    /// Its value after, in the same unit.
    pub after: f64,
    /// After over before.
    pub ratio: f64,
    /// What that means.
    pub meaning: Meaning,
}

/// The figures that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// I/Os a second, reads and writes together.
    Iops,
    /// A percentile of the latency of one operation.
    Latency(Operation, f64),
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iops => f.write_str("IOPS"),
            Self::Latency(operation, percentile) => {
                write!(f, "{} {percentile} %", crate::show::operation_name(*operation))
            }
        }
    }
}

/// What a ratio means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Meaning {
    /// Better, and by more than noise.
    Better,
    /// Worse, and by more than noise.
    Worse,
    /// The intervals overlap, or the change is too small to matter.
    Same,
    /// One side has no interval, so nobody can say.
    Unclear,
}

/// A value with its 95 % interval, where that is known.
#[derive(Debug, Clone, Copy)]
struct Estimate {
    value: f64,
    interval: Option<(f64, f64)>,
}

impl WorkloadChange {
    /// The change of one figure, when both records know it.
    #[must_use]
    pub fn change(&self, figure: Figure) -> Option<&Change> {
        self.changes.iter().find(|change| change.figure == figure)
    }

    /// The operations whose latencies are compared.
    #[must_use]
    pub fn operations(&self) -> Vec<Operation> {
        let has = |operation: &Operation| {
            self.changes
                .iter()
                .any(|change| matches!(change.figure, Figure::Latency(own, _) if own == *operation))
        };
        [Operation::Read, Operation::Write, Operation::Trim, Operation::Sync]
            .into_iter()
            .filter(has)
            .collect()
    }
}

/// Compares `after` with `before`.
#[must_use]
pub fn compare(before: &Record, after: &Record) -> Comparison {
    let partner = |workload: &Workload, record: &Record| {
        record.workloads.iter().find(|other| other.id == workload.id).cloned()
    };
    let workloads = after
        .workloads
        .iter()
        .filter_map(|workload| Some(compare_workloads(&partner(workload, before)?, workload)))
        .collect();
    let lone = |one: &Record, other: &Record| -> Vec<String> {
        one.workloads.iter().filter(|w| partner(w, other).is_none()).map(|w| w.id.clone()).collect()
    };
    Comparison {
        before: before.started_at.clone(),
        after: after.started_at.clone(),
        cautions: cautions(before, after),
        workloads,
        unmatched: [lone(before, after), lone(after, before)].concat(),
    }
}

fn cautions(before: &Record, after: &Record) -> Vec<String> {
    let mut cautions = Vec::new();
    let mut differ = |what: &str, one: Option<&str>, other: Option<&str>| {
        if one != other {
            let name = |text: Option<&str>| text.unwrap_or("unknown").to_owned();
            cautions.push(format!("the {what} differs: {} before, {} after", name(one), name(other)));
        }
    };
    differ("drive model", before.target.model.as_deref(), after.target.model.as_deref());
    differ("drive serial number", before.target.serial.as_deref(), after.target.serial.as_deref());
    differ("drive firmware", before.target.firmware.as_deref(), after.target.firmware.as_deref());
    differ("Overdrive version", Some(&before.tool.version), Some(&after.tool.version));
    if before.host.digest != after.host.digest {
        cautions.push("the host facts differ: see both records for which".to_owned());
    }
    if before.target.direct != after.target.direct {
        cautions.push("only one of the runs bypassed the page cache".to_owned());
    }
    if before.target.size_bytes != after.target.size_bytes {
        cautions.push("the runs used targets of different size".to_owned());
    }
    cautions
}

fn compare_workloads(before: &Workload, after: &Workload) -> WorkloadChange {
    let mut changes: Vec<Change> = change(Figure::Iops, iops(before), iops(after)).into_iter().collect();
    for (operation, one, other) in [
        (Operation::Read, &before.outcome.read, &after.outcome.read),
        (Operation::Write, &before.outcome.write, &after.outcome.write),
        (Operation::Trim, &before.outcome.trim, &after.outcome.trim),
        (Operation::Sync, &before.outcome.sync, &after.outcome.sync),
    ] {
        if let (Some(one), Some(other)) = (one, other) {
            changes.extend(compare_latency(operation, one, other));
        }
    }
    WorkloadChange { id: after.id.clone(), title: after.title.clone(), changes }
}

fn compare_latency(operation: Operation, before: &Direction, after: &Direction) -> Vec<Change> {
    let known = |direction: &Direction, percentile: f64| {
        let found = direction.latency.percentile(percentile)?;
        let interval = found.low_ns.zip(found.high_ns).map(|(low, high)| (low as f64, high as f64));
        Some(Estimate { value: found.value_ns? as f64, interval })
    };
    let percentiles = after.latency.percentiles.iter().map(|p| p.percentile);
    percentiles
        .filter_map(|p| change(Figure::Latency(operation, p), known(before, p)?, known(after, p)?))
        .collect()
}

fn change(figure: Figure, before: Estimate, after: Estimate) -> Option<Change> {
    if before.value <= 0.0 || !after.value.is_finite() {
        return None;
    }
    let ratio = after.value / before.value;
    let meaning = match (before.interval, after.interval) {
        _ if (ratio - 1.0).abs() < MIN_CHANGE => Meaning::Same,
        (Some(one), Some(other)) if one.0 <= other.1 && other.0 <= one.1 => Meaning::Same,
        (Some(_), Some(_)) if (ratio > 1.0) == (figure == Figure::Iops) => Meaning::Better,
        (Some(_), Some(_)) => Meaning::Worse,
        _ => Meaning::Unclear,
    };
    Some(Change { figure, before: before.value, after: after.value, ratio, meaning })
}

/// The rate with an interval from the spread of its time slices.
fn iops(workload: &Workload) -> Estimate {
    let value = workload.outcome.iops;
    Estimate { value, interval: iops_half_width(workload).map(|half| (value - half, value + half)) }
}

/// Half of the 95 % interval of a workload's IOPS; none with too few time slices to tell.
pub(crate) fn iops_half_width(workload: &Workload) -> Option<f64> {
    let series = &workload.outcome.series;
    if series.len() < MIN_SLICES {
        return None;
    }
    let ends = series.iter().map(|slice| slice.at_s);
    let starts = std::iter::once(0.0).chain(ends.clone());
    let rates: Vec<f64> = starts
        .zip(ends)
        .zip(series)
        .filter(|((start, end), _)| end > start)
        .map(|((start, end), slice)| slice.ios as f64 / (end - start))
        .collect();
    let n = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / n;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = Z95 * (variance / n).sqrt();
    half.is_finite().then_some(half)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn figure<'a>(comparison: &'a Comparison, id: &str, figure: &str) -> &'a Change {
        let workload = comparison.workloads.iter().find(|workload| workload.id == id).unwrap();
        workload.changes.iter().find(|change| change.figure.to_string() == figure).unwrap()
    }

    #[test]
    fn a_record_equals_itself() {
        let record = fixtures::optane();
        let comparison = compare(&record, &record);
        assert_eq!(comparison.workloads.len(), record.workloads.len());
        assert!(comparison.cautions.is_empty() && comparison.unmatched.is_empty());
        let mut changes = comparison.workloads.iter().flat_map(|workload| &workload.changes);
        assert!(changes.all(|change| change.meaning == Meaning::Same && change.ratio == 1.0));
    }

    #[test]
    fn another_drive_is_a_change_and_a_caution() {
        let comparison = compare(&fixtures::optane(), &fixtures::virtio());
        let id = "randread-4k-io_uring-1x1";
        assert_eq!(figure(&comparison, id, "IOPS").meaning, Meaning::Worse);
        assert_eq!(figure(&comparison, id, "read 99 %").meaning, Meaning::Worse);
        assert!(comparison.cautions.iter().any(|caution| caution.contains("drive model")));
        let back = compare(&fixtures::virtio(), &fixtures::optane());
        assert_eq!(figure(&back, id, "IOPS").meaning, Meaning::Better);
        let partial = compare(&fixtures::interrupted(), &fixtures::virtio());
        assert_eq!((partial.workloads.len(), partial.unmatched.len()), (1, 15));
    }

    #[test]
    fn overlapping_intervals_are_noise() {
        let before = fixtures::optane();
        let mut after = before.clone();
        let read = after.workloads[0].outcome.read.as_mut().unwrap();
        let p = read.latency.percentiles.iter_mut().find(|p| p.percentile == 99.9999).unwrap();
        let high = p.high_ns.unwrap();
        assert!(high as f64 > p.value_ns.unwrap() as f64 * (1.0 + MIN_CHANGE));
        p.value_ns = Some(high);
        let id = after.workloads[0].id.clone();
        let comparison = compare(&before, &after);
        assert_eq!(figure(&comparison, &id, "read 99.9999 %").meaning, Meaning::Same);
    }

    #[test]
    fn without_intervals_nobody_can_say() {
        let before = fixtures::optane();
        let mut after = before.clone();
        after.workloads[0].outcome.series.clear();
        after.workloads[0].outcome.iops *= 1.5;
        let comparison = compare(&before, &after);
        assert_eq!(figure(&comparison, &after.workloads[0].id, "IOPS").meaning, Meaning::Unclear);
    }

    #[test]
    fn a_bound_is_not_compared() {
        let record = fixtures::virtio();
        let comparison = compare(&record, &record);
        let changes = comparison.workloads.iter().flat_map(|workload| &workload.changes);
        assert!(changes.clone().count() > 0);
        assert!(!changes.clone().any(|change| change.figure.to_string().contains("99.99999 %")));
    }
}
