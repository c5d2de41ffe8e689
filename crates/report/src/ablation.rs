//! One setting at a time: what a pair of workloads gave as the host was found and with each change alone, and
//! which differences exceed the noise between runs.
//!
//! A difference counts only when every run with the change lies beyond every run without it. Runs without
//! are taken before and after the others of each round, so that a drift of the machine widens their range.

use crate::record::{Latency, Status};
use serde::Serialize;

/// The schema of the stored form.
pub const SCHEMA: &str = "overdrive.ablation/1";

/// The percentiles that are compared.
pub const PERCENTILES: [f64; 5] = [50.0, 99.0, 99.9, 99.99, 99.999];

/// A whole ablation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ablation {
    /// Always `overdrive.ablation/1`.
    pub schema: String,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// Whether it came to its end.
    pub status: Status,
    /// What was measured on.
    pub target: String,
    /// The disks below it.
    pub disks: Vec<String>,
    /// How often each setting was measured; as found twice as often.
    pub repeats: u32,
    /// The workloads, by title.
    pub workloads: Vec<String>,
    /// First as found, then each change.
    pub settings: Vec<Setting>,
    /// What was not measured, and whether the host is as before.
    pub notes: Vec<String>,
}

/// One state of the host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    /// `as found`, or the rule whose fix was applied.
    pub name: String,
    /// What was changed: `path: old -> new`.
    pub changes: Vec<String>,
    /// The runs, one list for each workload.
    pub runs: Vec<Vec<Run>>,
}

/// One run of one workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// I/Os a second.
    pub iops: f64,
    /// Mean latency, nanoseconds.
    pub mean_ns: f64,
    /// Longest latency, nanoseconds.
    pub max_ns: u64,
    /// The percentiles of [`PERCENTILES`], nanoseconds; none where samples were too few.
    pub percentiles_ns: Vec<Option<u64>>,
}

/// One figure of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Mean latency.
    Mean,
    /// A percentile of latency, by its place in [`PERCENTILES`].
    Percentile(usize),
    /// Longest latency.
    Max,
    /// I/Os a second.
    Iops,
}

/// What became of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// The median with the change.
    pub value: f64,
    /// Against the median as found, in per cent.
    pub percent: f64,
    /// Whether it exceeds the noise between runs.
    pub exceeds_noise: bool,
}

impl Run {
    /// From a run's latencies and rate.
    #[must_use]
    pub fn new(latency: &Latency, iops: f64) -> Self {
        let percentile = |&wanted: &f64| latency.percentile(wanted).and_then(|found| found.value_ns);
        Self {
            iops,
            mean_ns: latency.mean_ns,
            max_ns: latency.max_ns,
            percentiles_ns: PERCENTILES.iter().map(percentile).collect(),
        }
    }

    fn figure(&self, figure: Figure) -> Option<f64> {
        match figure {
            Figure::Mean => Some(self.mean_ns),
            Figure::Percentile(index) => Some((*self.percentiles_ns.get(index)?)? as f64),
            Figure::Max => Some(self.max_ns as f64),
            Figure::Iops => Some(self.iops),
        }
    }
}

/// The figure in every run; none when one run does not have it, or there is none.
fn all(runs: &[Run], figure: Figure) -> Option<Vec<f64>> {
    let values: Option<Vec<f64>> = runs.iter().map(|run| run.figure(figure)).collect();
    values.filter(|values| !values.is_empty())
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    }
}

fn range(values: &[f64]) -> (f64, f64) {
    values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &value| (low.min(value), high.max(value)))
}

/// What a figure is with a change, against the runs as found.
#[must_use]
pub fn change(as_found: &[Run], with: &[Run], figure: Figure) -> Option<Change> {
    let (before, after) = (all(as_found, figure)?, all(with, figure)?);
    let (value, base) = (median(&after), median(&before));
    let ((low, high), (own_low, own_high)) = (range(&before), range(&after));
    Some(Change {
        value,
        percent: if base > 0.0 { (value / base - 1.0) * 100.0 } else { 0.0 },
        exceeds_noise: own_low > high || own_high < low,
    })
}

/// How far runs as found lie apart: half their range against their median, in per cent.
#[must_use]
pub fn noise_percent(runs: &[Run], figure: Figure) -> Option<f64> {
    let values = all(runs, figure)?;
    let ((low, high), middle) = (range(&values), median(&values));
    (middle > 0.0).then(|| (high - low) / 2.0 / middle * 100.0)
}

/// How likely a change without effect would seem to exceed the noise in one figure, with so many runs.
#[must_use]
pub fn chance_of_error(as_found: usize, with: usize) -> f64 {
    // All runs of one side on the same end: two orders out of all choices.
    let choices = (1..=with).fold(1.0, |product, k| product * (as_found + k) as f64 / k as f64);
    (2.0 / choices).min(1.0)
}

/// The figures that a workload's table has: those known in all runs of all settings.
#[must_use]
pub fn figures(settings: &[Setting], workload: usize) -> Vec<Figure> {
    let wanted = [Figure::Mean]
        .into_iter()
        .chain((0..PERCENTILES.len()).map(Figure::Percentile))
        .chain([Figure::Max, Figure::Iops]);
    let is_known = |figure: &Figure| {
        settings
            .iter()
            .filter_map(|setting| setting.runs.get(workload))
            .filter(|runs| !runs.is_empty())
            .all(|runs| all(runs, *figure).is_some())
    };
    wanted.filter(is_known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(means: &[f64]) -> Vec<Run> {
        let run = |&mean_ns: &f64| Run {
            iops: 1e9 / mean_ns,
            mean_ns,
            max_ns: 9,
            percentiles_ns: vec![Some(1), None],
        };
        means.iter().map(run).collect()
    }

    #[test]
    fn only_what_lies_beyond_every_run_exceeds_the_noise() {
        let found = runs(&[100.0, 104.0, 98.0, 102.0]);
        let better = change(&found, &runs(&[90.0, 92.0, 97.0]), Figure::Mean).unwrap();
        assert!(better.exceeds_noise && (better.percent + 8.9).abs() < 0.1, "{better:?}");
        let unclear = change(&found, &runs(&[90.0, 92.0, 99.0]), Figure::Mean).unwrap();
        assert!(!unclear.exceeds_noise);
        assert!((noise_percent(&found, Figure::Mean).unwrap() - 2.97).abs() < 0.01);
    }

    #[test]
    fn what_one_run_lacks_is_not_compared() {
        let settings = [Setting { name: String::new(), changes: Vec::new(), runs: vec![runs(&[1.0])] }];
        let wanted = [Figure::Mean, Figure::Percentile(0), Figure::Max, Figure::Iops];
        assert_eq!(figures(&settings, 0), wanted);
        assert_eq!(change(&runs(&[1.0]), &[], Figure::Mean), None);
    }

    #[test]
    fn the_chance_of_error_falls_with_the_runs() {
        assert!((chance_of_error(6, 3) - 2.0 / 84.0).abs() < 1e-12);
        assert!(chance_of_error(10, 5) < 0.001 && chance_of_error(0, 0) <= 1.0);
    }
}
