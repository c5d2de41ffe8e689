//! Two records side by side: what changed, and whether the change is more than noise.
//!
//! A difference counts only when the 95 % intervals of both sides stand apart *and* it exceeds what two runs
//! of one configuration commonly differ by. Intervals come from within each run, so they cannot know what
//! changed between the runs; the floor stands for that. Workloads are matched by id.

use crate::record::{Direction, Job, Latency, Operation, Record, Workload};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
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

impl Comparison {
    /// Whether any figure of the later record is worse, and by more than noise.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        let mut changes = self.workloads.iter().flat_map(|workload| &workload.changes);
        changes.any(|change| change.meaning == Meaning::Worse)
    }
}

/// What changed in one workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkloadChange {
    /// The workload's id.
    pub id: String,
    /// The workload's name for people.
    pub title: String,
    /// IOPS first, then the percentiles both sides know.
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
    /// After over before; `null` when there was nothing before and is something now.
    pub ratio: Option<f64>,
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
    /// In an open loop: a percentile of the time from when one operation was due.
    Response(Operation, f64),
}

impl Figure {
    /// The same figure at another percentile.
    fn at(self, percentile: f64) -> Self {
        match self {
            Self::Iops => Self::Iops,
            Self::Latency(operation, _) => Self::Latency(operation, percentile),
            Self::Response(operation, _) => Self::Response(operation, percentile),
        }
    }

    /// Whose percentile it is, if it is one.
    fn operation(self) -> Option<Operation> {
        match self {
            Self::Iops => None,
            Self::Latency(operation, _) | Self::Response(operation, _) => Some(operation),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iops => f.write_str("IOPS"),
            Self::Latency(operation, percentile) => {
                write!(f, "{} {percentile} %", crate::show::operation_name(*operation))
            }
            Self::Response(operation, percentile) => {
                write!(f, "{} response {percentile} %", crate::show::operation_name(*operation))
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

    /// The lines a table shows it in: one for each kind of percentile, and one where there is none.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::new();
        for change in &self.changes {
            let of = change.figure.at(0.0);
            if of.operation().is_some() && !lines.iter().any(|line| line.of == Some(of)) {
                lines.push(Line { name: String::new(), of: Some(of) });
            }
        }
        let operation = |line: &Line| line.of.and_then(Figure::operation);
        let several = lines.iter().any(|line| operation(line) != operation(&lines[0]));
        for line in &mut lines {
            let response = matches!(line.of, Some(Figure::Response(..)));
            let name = operation(line).filter(|_| several).map(crate::show::operation_name);
            let words = name.into_iter().chain(response.then_some("response"));
            line.name = words.collect::<Vec<&str>>().join(" ");
        }
        if lines.is_empty() {
            lines.push(Line { name: String::new(), of: None });
        }
        lines
    }
}

/// A line of a table: the percentiles of one kind.
#[derive(Debug, Clone)]
pub struct Line {
    /// What sets it apart from the workload's other lines; may be empty.
    pub name: String,
    /// One of its figures.
    of: Option<Figure>,
}

impl Line {
    /// The figure of a percentile, if the line has any.
    #[must_use]
    pub fn figure(&self, percentile: f64) -> Option<Figure> {
        self.of.map(|figure| figure.at(percentile))
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
    differ("target", Some(&before.target.spec), Some(&after.target.spec));
    let kind = |record: &Record| word(&record.target.kind);
    differ("kind of target", kind(before).as_deref(), kind(after).as_deref());
    let objective = |record: &Record| record.search.as_ref().and_then(|search| word(&search.objective));
    differ("objective", objective(before).as_deref(), objective(after).as_deref());
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
    // A search that holds the same objective may well end at another rate: that is its result.
    let searched = before.search.is_some() && after.search.is_some();
    for workload in &after.workloads {
        let pair = before.workloads.iter().find(|other| other.id == workload.id);
        let difference = pair.and_then(|pair| difference(&pair.job, &workload.job, searched));
        cautions.extend(difference.map(|text| format!("{}: not the same job: {text}", workload.id)));
    }
    cautions
}

/// The first field in which two jobs differ, other than how long they ran and what was asked to be shown.
fn difference(before: &Job, after: &Job, searched: bool) -> Option<String> {
    let fields = |job: &Job| -> Option<BTreeMap<String, Value>> {
        let Value::Object(mut fields) = serde_json::to_value(job).ok()? else { return None };
        if let Some(Value::Object(detail)) = fields.remove("detail") {
            fields.extend(detail);
        }
        // Fewer CPUs change the layout and not the job.
        for (name, asked) in [("workers", "asked_workers"), ("queue_depth_per_worker", "asked_depth")] {
            if let Some(asked) = fields.remove(asked).filter(|asked| !asked.is_null()) {
                fields.insert(name.to_owned(), asked);
            }
        }
        for name in ["runtime_s", "warmup_s", "percentiles", "start_delay_s"] {
            fields.remove(name);
        }
        if searched {
            fields.remove("rate_per_worker");
        }
        Some(fields.into_iter().filter(|(_, value)| !value.is_null()).collect())
    };
    let (before, after) = (fields(before)?, fields(after)?);
    let name = before.keys().chain(after.keys()).find(|name| before.get(*name) != after.get(*name))?;
    let told = |job: &BTreeMap<String, Value>| job.get(name).and_then(word).unwrap_or("not set".to_owned());
    Some(format!("{name} is {} before, {} after", told(&before), told(&after)))
}

/// A value as JSON has it, without quotes; none for nothing.
fn word(value: &impl Serialize) -> Option<String> {
    match serde_json::to_value(value).ok()? {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    }
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
    let mut changes = percentiles(&|p| Figure::Latency(operation, p), &before.latency, &after.latency);
    if let (Some(one), Some(other)) = (&before.response, &after.response) {
        changes.extend(percentiles(&|p| Figure::Response(operation, p), one, other));
    }
    changes
}

fn percentiles(figure: &dyn Fn(f64) -> Figure, before: &Latency, after: &Latency) -> Vec<Change> {
    let known = |latency: &Latency, percentile: f64| {
        let found = latency.percentile(percentile)?;
        let interval = found.low_ns.zip(found.high_ns).map(|(low, high)| (low as f64, high as f64));
        Some(Estimate { value: found.value_ns? as f64, interval })
    };
    let both = |p: f64| change(figure(p), known(before, p)?, known(after, p)?);
    after.percentiles.iter().filter_map(|p| both(p.percentile)).collect()
}

fn change(figure: Figure, before: Estimate, after: Estimate) -> Option<Change> {
    if before.value < 0.0 || after.value < 0.0 || !before.value.is_finite() || !after.value.is_finite() {
        return None;
    }
    let ratio = match (before.value, after.value) {
        (one, other) if one == other => Some(1.0),
        (0.0, _) => None,
        (one, other) => Some(other / one),
    };
    let rate = figure == Figure::Iops;
    let more = ratio.is_none_or(|ratio| ratio > 1.0);
    let direction = if more == rate { Meaning::Better } else { Meaning::Worse };
    let meaning = match (before.interval, after.interval) {
        _ if ratio.is_some_and(|ratio| (ratio - 1.0).abs() < MIN_CHANGE) => Meaning::Same,
        // A drive that does nothing at all is no noise.
        _ if rate && (before.value == 0.0 || after.value == 0.0) => direction,
        (Some(one), Some(other)) if one.0 <= other.1 && other.0 <= one.1 => Meaning::Same,
        (Some(_), Some(_)) => direction,
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
    use crate::record::JobDetail;

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
        assert!(changes.all(|change| change.meaning == Meaning::Same && change.ratio == Some(1.0)));
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
    fn a_drive_that_died_is_worse() {
        let before = fixtures::optane();
        let mut after = before.clone();
        let outcome = &mut after.workloads[0].outcome;
        (outcome.iops, outcome.ios, outcome.read) = (0.0, 0, None);
        outcome.series.clear();
        let comparison = compare(&before, &after);
        let dead = &comparison.workloads[0];
        assert_eq!((dead.changes.len(), dead.changes[0].meaning), (1, Meaning::Worse));
        assert_eq!(dead.lines().len(), 1, "a table shows its rate");
        let back = compare(&after, &before);
        let change = &back.workloads[0].changes[0];
        assert_eq!((change.meaning, change.ratio), (Meaning::Better, None));
        let nothing = compare(&after, &after);
        assert_eq!(nothing.workloads[0].changes[0].meaning, Meaning::Same);
    }

    #[test]
    fn other_jobs_under_one_id_are_cautioned() {
        let before = fixtures::optane();
        let told = |change: &dyn Fn(&mut Record)| {
            let mut after = before.clone();
            change(&mut after);
            compare(&before, &after).cautions.join("; ")
        };
        let depth = told(&|record| record.workloads[0].job.queue_depth_per_worker = 7);
        assert!(depth.contains("not the same job: queue_depth_per_worker is 1 before, 7 after"), "{depth}");
        let rate = told(&|record| {
            let detail = JobDetail { rate_per_worker: Some(500.0), ..JobDetail::default() };
            record.workloads[0].job.detail = Some(detail);
        });
        assert!(rate.contains("rate_per_worker is not set before, 500.0 after"), "{rate}");
        let target = told(&|record| record.target.spec = "/dev/other".to_owned());
        assert!(
            target.starts_with("the target differs: ") && target.ends_with("/dev/other after"),
            "{target}"
        );
        assert_eq!(told(&|record| record.workloads[0].job.runtime_s += 1.0), "", "only the intervals grow");
    }

    #[test]
    fn an_open_loop_is_compared_by_its_response_times() {
        let mut before = fixtures::optane();
        let read = before.workloads[0].outcome.read.as_mut().unwrap();
        read.response = Some(read.latency.clone());
        let mut after = before.clone();
        let response = after.workloads[0].outcome.read.as_mut().unwrap().response.as_mut().unwrap();
        for p in &mut response.percentiles {
            for ns in [&mut p.value_ns, &mut p.low_ns, &mut p.high_ns] {
                *ns = ns.map(|ns| ns * 10);
            }
        }
        let comparison = compare(&before, &after);
        let id = &after.workloads[0].id;
        assert_eq!(figure(&comparison, id, "read 99 %").meaning, Meaning::Same);
        assert_eq!(figure(&comparison, id, "read response 99 %").meaning, Meaning::Worse);
        assert!(comparison.is_worse() && !compare(&after, &before).is_worse());
        let names: Vec<String> = comparison.workloads[0].lines().into_iter().map(|line| line.name).collect();
        assert_eq!(names, ["", "response"]);
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
