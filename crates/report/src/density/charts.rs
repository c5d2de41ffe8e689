//! The study's charts: what each backing holds and how it answers, as bars; and everything over the number of
//! instances, as lines.

use super::show::{cost_text, counted};
use super::{Backing, DensityRecord, Figures, Measured};
use crate::page::{Bar, BarChart, LineChart, Scale, Section};
use crate::render::html::steps;
use overdrive_base::time::format_ns;
use std::collections::BTreeSet;

/// The largest number of instances that at least two backings were measured with, as in the study; with one
/// backing, what stands for it.
fn common(record: &DensityRecord) -> Option<u32> {
    let at = |backing: &Backing| -> Vec<u32> {
        let measured = backing.trials.iter().filter(|trial| trial.measured.is_some());
        measured.map(|trial| trial.instances).collect()
    };
    let all: Vec<Vec<u32>> = record.backings.iter().map(at).collect();
    let wanted = all.len().min(2);
    let shared =
        all.iter().flatten().filter(|one| all.iter().filter(|some| some.contains(one)).count() >= wanted);
    let telling = || record.backings.first().and_then(Backing::telling).map(|trial| trial.instances);
    if wanted < 2 { telling() } else { shared.max().copied() }
}

/// One chart of bars for each of the study's.
pub(super) fn bars(record: &DensityRecord) -> Section {
    let mut bars = Vec::new();
    if let Some(instances) = common(record) {
        let limit = |figure: &str| {
            let limit = record.objective.iter().find(|limit| limit.figure == figure)?;
            Some((limit.limit_ns as f64, format!("asked for: {}", format_ns(limit.limit_ns))))
        };
        let latency = |id: &str, title: &str, figure: &str, of: fn(&Figures) -> Option<u64>| {
            let title = format!("{title} with {}", counted(instances));
            let drawn = at(record, instances, |one| {
                let ns = of(&one.latency)?;
                Some((ns as f64, format_ns(ns)))
            });
            chart_of(id, title, drawn, limit(figure))
        };
        bars.extend(latency("bars-average", "Average latency", "avg", |latency| latency.avg_ns));
        bars.extend(latency("bars-p99", "Latency of 99 %", "p99", |latency| latency.p99_ns));
        bars.extend(latency("bars-peak", "Worst case", "max", |latency| latency.max_ns));
        let answered = at(record, instances, |one| {
            Some((one.answered_per_s.max(0.0), format!("{:.0} requests/s", one.answered_per_s)))
        });
        bars.extend(chart_of("bars-rate", format!("Throughput with {}", counted(instances)), answered, None));
    }
    let held = record.backings.iter().filter(|backing| backing.searched).map(|backing| Bar {
        label: backing.name.clone(),
        value: f64::from(backing.held),
        text: backing.held_text(),
    });
    bars.extend(chart_of("bars-held", "Instances inside the objective".to_owned(), held.collect(), None));
    Section { heading: "By backing".to_owned(), bars, ..Section::default() }
}

/// What an instance costs, seen from one on DRAM.
pub(super) fn cost_bars(record: &DensityRecord) -> Option<BarChart> {
    let bar = |backing: &Backing| {
        Some(Bar {
            label: backing.name.clone(),
            value: backing.cost_each?,
            text: cost_text(record, backing)?,
        })
    };
    let bars = record.backings.iter().filter_map(bar).collect();
    chart_of("bars-cost", "Cost of an instance, on DRAM = 1".to_owned(), bars, None)
}

fn at(record: &DensityRecord, instances: u32, of: impl Fn(&Measured) -> Option<(f64, String)>) -> Vec<Bar> {
    let bar = |backing: &Backing| {
        let (value, text) = of(backing.measured_with(instances)?)?;
        Some(Bar { label: backing.name.clone(), value, text })
    };
    record.backings.iter().filter_map(bar).collect()
}

fn chart_of(id: &str, title: String, bars: Vec<Bar>, limit: Option<(f64, String)>) -> Option<BarChart> {
    let words: Vec<String> = bars.iter().map(|bar| format!("{} {}", bar.label, bar.text)).collect();
    let asked = limit.as_ref().map(|limit| format!("; {}", limit.1)).unwrap_or_default();
    let description = format!("{title}: {}{asked}.", words.join(", "));
    (!bars.is_empty()).then(|| BarChart { id: id.to_owned(), title, description, bars, limit })
}

/// Latency, worst case and throughput over the number of instances, a line for each backing.
pub(super) fn curves(record: &DensityRecord) -> Section {
    let lines = |of: fn(&Measured) -> Option<f64>| -> Vec<(String, Vec<(f64, f64)>)> {
        let line = |backing: &Backing| {
            let numbers: BTreeSet<u32> = backing.trials.iter().map(|trial| trial.instances).collect();
            let point = |number: &u32| Some((f64::from(*number), of(backing.measured_with(*number)?)?));
            (backing.name.clone(), numbers.iter().filter_map(point).collect::<Vec<_>>())
        };
        record.backings.iter().map(line).filter(|line| !line.1.is_empty()).collect()
    };
    let latency = |id: &str, title: &str, of| chart(id, title, "latency, us, logarithmic", true, lines(of));
    let charts = [
        latency("average", "Average latency", |one| Some(one.latency.avg_ns?.max(1) as f64 / 1000.0)),
        latency("p99", "Latency of 99 %", |one| Some(one.latency.p99_ns?.max(1) as f64 / 1000.0)),
        latency("peak", "Worst case", |one| Some(one.latency.max_ns?.max(1) as f64 / 1000.0)),
        chart("throughput", "Throughput", "requests/s", false, lines(|one| Some(one.answered_per_s))),
    ];
    Section {
        heading: "Over the number of instances".to_owned(),
        charts: charts.into_iter().flatten().collect(),
        ..Section::default()
    }
}

fn chart(
    id: &str,
    title: &str,
    y: &'static str,
    logarithmic: bool,
    lines: Vec<(String, Vec<(f64, f64)>)>,
) -> Option<LineChart> {
    let points: Vec<(f64, f64)> = lines.iter().flat_map(|line| line.1.iter().copied()).collect();
    if points.is_empty() {
        return None;
    }
    let largest = points.iter().map(|point| point.0).fold(1.0, f64::max);
    let (low, high) =
        points.iter().fold((f64::MAX, 0.0_f64), |(low, high), point| (low.min(point.1), high.max(point.1)));
    let step = (largest / 8.0).ceil().max(1.0);
    let mut ticks: Vec<f64> = (0..=8).map(|at| f64::from(at) * step).take_while(|at| *at < largest).collect();
    ticks.push(largest);
    let short = |value: f64| (value * 1e3).round() / 1e3;
    let label = |at: f64| match at {
        1e6.. => format!("{} M", short(at / 1e6)),
        1e4.. => format!("{} k", short(at / 1e3)),
        _ => short(at).to_string(),
    };
    let y_ticks: Vec<f64> = if logarithmic {
        let first = low.max(1e-3).log10().floor() as i32;
        let last = (high.max(1e-3).log10().ceil() as i32).max(first + 1);
        (first..=last).map(|exponent| 10f64.powi(exponent)).collect()
    } else {
        let (count, step) = steps(high.max(1.0), 5.0).unwrap_or((1, 1.0));
        (0..=count).map(|at| step * f64::from(at)).collect()
    };
    let labelled = |ticks: Vec<f64>| ticks.into_iter().map(|at| (at, label(at))).collect();
    Some(LineChart {
        id: id.to_owned(),
        title: title.to_owned(),
        description: format!("{title} against the number of instances, one line for each backing."),
        x: Scale { name: "instances", logarithmic: false, ticks: labelled(ticks) },
        y: Scale { name: y, logarithmic, ticks: labelled(y_ticks) },
        lines,
    })
}
