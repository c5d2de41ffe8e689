//! Which charts a record gives, and the scales they are drawn on.

use super::chart::{Axis, Chart, ChartError, Line};
use crate::record::{Group, Latency, Operation, PERCENTILES, Record, Slice, Workload};
use crate::show;
use maud::Markup;
use overdrive_hist::Histogram;

/// Where the axis of percentiles ends: seven nines.
const NINES_MAX: f64 = 7.0;
/// The finest step along a percentile curve, in nines.
const NINES_STEP: f64 = 0.04;
/// More points than this along time tell nothing more at this size.
const SLICES_MAX: usize = 120;

/// Latency at each percentile, one chart for each kind of workload.
pub(super) fn percentiles(record: &Record) -> Result<Vec<Markup>, ChartError> {
    families(record)
        .iter()
        .filter_map(|family| percentile_chart(family))
        .map(|chart| chart.figure())
        .collect()
}

/// IOPS and latency against the depth; nothing when fewer than two depths were run.
pub(super) fn ramp(record: &Record) -> Result<Vec<Markup>, ChartError> {
    let mut workloads: Vec<&Workload> =
        record.workloads.iter().filter(|w| w.group == Group::Ramp && w.outcome.ios > 0).collect();
    workloads.sort_by_key(|workload| workload.job.queue_depth_total);
    if workloads.len() < 2 {
        return Ok(Vec::new());
    }
    [ramp_rate(&workloads), ramp_latency(&workloads)]
        .into_iter()
        .flatten()
        .map(|chart| chart.figure())
        .collect()
}

/// The rate over time, one chart for each kind of workload.
pub(super) fn over_time(record: &Record) -> Result<Vec<Markup>, ChartError> {
    families(record).iter().filter_map(|family| time_chart(family)).map(|chart| chart.figure()).collect()
}

/// Workloads that are read on one chart.
struct Family<'a> {
    id: &'static str,
    name: String,
    members: Vec<(String, &'a Workload)>,
}

fn families(record: &Record) -> Vec<Family<'_>> {
    let members = |groups: &[Group], label: fn(&Workload) -> String| -> Vec<(String, &Workload)> {
        let chosen = record.workloads.iter().filter(|w| groups.contains(&w.group) && w.outcome.ios > 0);
        chosen.map(|workload| (label(workload), workload)).collect()
    };
    let mut families = vec![
        Family {
            id: "qd1",
            name: "One I/O at a time".to_owned(),
            members: members(&[Group::Qd1], |w| show::engine(&w.job)),
        },
        Family {
            id: "ramp",
            name: "Random reads at rising depth".to_owned(),
            members: members(&[Group::Ramp], |w| format!("depth {}", w.job.queue_depth_total)),
        },
        Family {
            id: "writes",
            name: "Random writes and mixes".to_owned(),
            members: members(&[Group::RandomWrite, Group::Mixed], |w| match w.job.operation {
                Operation::Mixed => {
                    format!("{}/{}", w.job.read_percent, 100_u8.saturating_sub(w.job.read_percent))
                }
                _ => "write".to_owned(),
            }),
        },
        Family {
            id: "sequential",
            name: "Sequential".to_owned(),
            members: members(&[Group::Sequential], show::short_name),
        },
    ];
    families.retain(|family| !family.members.is_empty());
    families
}

fn percentile_chart(family: &Family<'_>) -> Option<Chart> {
    let mut lines = Vec::new();
    for (label, workload) in &family.members {
        let several = show::several_directions(workload);
        for (name, direction) in show::directions(workload) {
            let label = if several { format!("{label} {name}") } else { label.clone() };
            lines.extend(percentile_line(label, &direction.latency));
        }
    }
    let y = latency_axis(lines.iter().flat_map(|line: &Line| &line.points).map(|point| point.1))?;
    Some(Chart {
        id: format!("percentiles-{}", family.id),
        title: format!("{}: latency at each percentile", family.name),
        description: describe(&lines, "latency at the percentiles from 0 to 99.99999"),
        x: percentile_axis(&lines),
        y,
        lines,
    })
}

/// An axis of percentiles as deep as the deepest line.
pub(super) fn percentile_axis(lines: &[Line]) -> Axis {
    let mut ticks = vec![(nines(50.0), "50".to_owned())];
    ticks.extend(PERCENTILES.into_iter().filter(|p| *p > 50.0).map(|p| (nines(p), p.to_string())));
    let deepest = lines.iter().filter_map(|line| line.points.last()).map(|point| point.0).fold(3.0, f64::max);
    let end = (deepest - 1e-9).ceil().min(NINES_MAX);
    ticks.retain(|(at, _)| *at <= end + 1e-6);
    Axis { name: "percentile", range: 0.0..end, ticks }
}

/// Where a percentile stands on the axis: the number of its nines, so that 90, 99, 99.9... are equally far
/// apart.
fn nines(percentile: f64) -> f64 {
    -((100.0 - percentile) / 100.0).log10()
}

pub(super) fn percentile_line(label: String, latency: &Latency) -> Option<Line> {
    let histogram = Histogram::decode_v2_base64(&latency.histogram).ok().filter(|all| all.count() > 0)?;
    let deepest = (histogram.count() as f64).log10().min(NINES_MAX);
    let steps = (deepest / NINES_STEP).ceil().max(1.0) as u32;
    let points = (0..=steps)
        .filter_map(|step| {
            let at = deepest * f64::from(step) / f64::from(steps);
            let value = histogram.value_at(1.0 - 10f64.powf(-at))?;
            Some((at, log_ns(value)))
        })
        .collect();
    let whiskers = latency
        .percentiles
        .iter()
        .filter_map(|p| Some((nines(p.percentile), log_ns(p.low_ns?), log_ns(p.high_ns?))))
        .collect();
    Some(Line { label, points, whiskers, dots: false })
}

fn ramp_rate(workloads: &[&Workload]) -> Option<Chart> {
    let points: Vec<(f64, f64)> = workloads.iter().map(|w| (depth_at(w), w.outcome.iops)).collect();
    let lines =
        vec![Line { label: workloads.first()?.job.engine.clone(), points, whiskers: Vec::new(), dots: true }];
    Some(Chart {
        id: "ramp-iops".to_owned(),
        title: format!("{}: IOPS against depth", show::shape(&workloads.first()?.job)),
        description: describe(&lines, "I/Os a second at each total queue depth"),
        x: depth_axis(workloads)?,
        y: count_axis("IOPS", workloads.iter().map(|w| w.outcome.iops))?,
        lines,
    })
}

fn ramp_latency(workloads: &[&Workload]) -> Option<Chart> {
    let line = |label: &str, value: &dyn Fn(&Latency) -> Option<f64>| {
        let points = workloads
            .iter()
            .filter_map(|w| Some((depth_at(w), value(&show::directions(w).next()?.1.latency)?)))
            .collect();
        Line { label: label.to_owned(), points, whiskers: Vec::new(), dots: true }
    };
    let at = |latency: &Latency, p: f64| Some(log_ns(latency.percentile(p)?.value_ns?));
    let lines = vec![
        line("average", &|latency| Some(latency.mean_ns.max(1.0).log10())),
        line("99 %", &|latency| at(latency, 99.0)),
        line("99.9 %", &|latency| at(latency, 99.9)),
        line("99.99 %", &|latency| at(latency, 99.99)),
    ];
    Some(Chart {
        id: "ramp-latency".to_owned(),
        title: format!("{}: latency against depth", show::shape(&workloads.first()?.job)),
        description: describe(&lines, "latency at each total queue depth"),
        x: depth_axis(workloads)?,
        y: latency_axis(lines.iter().flat_map(|line| &line.points).map(|point| point.1))?,
        lines,
    })
}

fn depth_at(workload: &Workload) -> f64 {
    f64::from(workload.job.queue_depth_total.max(1)).log2()
}

fn depth_axis(workloads: &[&Workload]) -> Option<Axis> {
    let (first, last) = (depth_at(workloads.first()?), depth_at(workloads.last()?));
    let mut ticks: Vec<(f64, String)> =
        workloads.iter().map(|w| (depth_at(w), w.job.queue_depth_total.to_string())).collect();
    ticks.dedup();
    Some(Axis { name: "I/Os in flight, all workers", range: first - 0.2..last.max(first + 1.0) + 0.2, ticks })
}

fn time_chart(family: &Family<'_>) -> Option<Chart> {
    let bytes = family.members.iter().all(|(_, workload)| workload.group == Group::Sequential);
    let lines: Vec<Line> = family
        .members
        .iter()
        .map(|(label, workload)| Line {
            label: label.clone(),
            points: rates(&workload.outcome.series, bytes),
            whiskers: Vec::new(),
            dots: false,
        })
        .filter(|line| line.points.len() > 1)
        .collect();
    let end = lines.iter().filter_map(|line| line.points.last()).map(|point| point.0).fold(0.0, f64::max);
    let values = || lines.iter().flat_map(|line| &line.points).map(|point| point.1);
    let y = if bytes { count_axis("GiB/s", values())? } else { count_axis("IOPS", values())? };
    let (_, step) = steps(end, 6.0)?;
    let ticks = (0..).map(|n| f64::from(n) * step).take_while(|at| *at <= end * 1.001);
    Some(Chart {
        id: format!("time-{}", family.id),
        title: format!("{}: rate over time", family.name),
        description: describe(&lines, "rate in each slice of the run"),
        x: Axis {
            name: "seconds",
            range: 0.0..end,
            ticks: ticks.map(|at| (at, format!("{}", (at * 1e3).round() / 1e3))).collect(),
        },
        y,
        lines,
    })
}

/// The rate in each slice, slices joined where there are more than can be seen.
fn rates(series: &[Slice], bytes: bool) -> Vec<(f64, f64)> {
    let joined = series.len().div_ceil(SLICES_MAX).max(1);
    let mut start = 0.0;
    let mut points = Vec::new();
    for chunk in series.chunks(joined) {
        let end = chunk.last().map_or(start, |slice| slice.at_s);
        let amount: f64 = chunk
            .iter()
            .map(|slice| if bytes { slice.bytes as f64 / (1u64 << 30) as f64 } else { slice.ios as f64 })
            .sum();
        if end > start {
            points.push((end, amount / (end - start)));
        }
        start = end;
    }
    points
}

pub(super) fn log_ns(nanoseconds: u64) -> f64 {
    (nanoseconds.max(1) as f64).log10()
}

/// An axis of latencies over logarithms of nanoseconds: whole decades, or 1-2-5 steps when there are few.
pub(super) fn latency_axis(values: impl Iterator<Item = f64>) -> Option<Axis> {
    let (low, high) = bounds(values)?;
    let inside = |mantissas: &[f64]| -> Vec<f64> {
        let decades = low.floor() as i32..=high.ceil() as i32;
        let all = decades.flat_map(|decade| mantissas.iter().map(move |m| f64::from(decade) + m.log10()));
        let ticks: Vec<f64> = all.collect();
        let first = ticks.iter().rposition(|tick| *tick <= low + 1e-9).unwrap_or(0);
        let last = ticks.iter().position(|tick| *tick >= high - 1e-9).unwrap_or(ticks.len() - 1);
        ticks[first..=last.max(first + 1).min(ticks.len() - 1)].to_vec()
    };
    let ticks = if high - low < 2.2 { inside(&[1.0, 2.0, 5.0]) } else { inside(&[1.0]) };
    let range = *ticks.first()?..*ticks.last()?;
    let label = |at: f64| {
        let ns = 10f64.powf(at).round();
        let (value, unit) = match ns {
            ns if ns < 1e3 => (ns, "ns"),
            ns if ns < 1e6 => (ns / 1e3, "µs"),
            ns if ns < 1e9 => (ns / 1e6, "ms"),
            _ => (ns / 1e9, "s"),
        };
        format!("{} {unit}", (value * 10.0).round() / 10.0)
    };
    let ticks = ticks.iter().map(|&at| (at, label(at))).collect();
    Some(Axis { name: "latency", range, ticks })
}

/// An axis of counts from zero.
pub(super) fn count_axis(name: &'static str, values: impl Iterator<Item = f64>) -> Option<Axis> {
    let (_, high) = bounds(values)?;
    let (count, step) = steps(high, 5.0)?;
    let label = |value: f64| match value {
        value if value >= 1e6 => format!("{} M", (value / 1e4).round() / 1e2),
        value if value >= 1e3 => format!("{} k", (value / 10.0).round() / 1e2),
        value => format!("{}", (value * 1e3).round() / 1e3),
    };
    let ticks = (0..=count).map(|n| f64::from(n) * step).map(|at| (at, label(at))).collect();
    Some(Axis { name, range: 0.0..f64::from(count) * step, ticks })
}

/// About `wanted` round steps from zero that reach `high`: how many, and how wide.
pub(crate) fn steps(high: f64, wanted: f64) -> Option<(u32, f64)> {
    if !(high.is_finite() && high > 0.0) {
        return None;
    }
    let rough = high / wanted;
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * decade).find(|step| *step >= rough * 0.999)?;
    Some(((high / step * 1.02).ceil() as u32, step))
}

fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.filter(|value| value.is_finite());
    finite.fold(None, |bounds, value| match bounds {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

/// What a chart shows, for those who cannot see it.
pub(super) fn describe(lines: &[Line], what: &str) -> String {
    let labels: Vec<&str> = lines.iter().map(|line| line.label.as_str()).collect();
    format!(
        "A line chart of the {what}, for: {}. The figures are in the tables of this page.",
        labels.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_steps_on_the_nines_axis() {
        let places: Vec<f64> = [90.0, 99.0, 99.9, 99.99, 99.999, 99.9999, 99.99999].map(nines).to_vec();
        for (index, place) in places.iter().enumerate() {
            assert!((place - (index + 1) as f64).abs() < 1e-6, "{place}");
        }
        assert!((nines(50.0) - 0.301).abs() < 1e-3);
        assert_eq!(nines(0.0), 0.0);
    }

    #[test]
    fn a_curve_ends_where_its_samples_do() {
        let mut histogram = Histogram::new();
        histogram.record_n(10_000, 99_000);
        histogram.record_n(90_000, 1_000);
        let latency = Latency::from_histogram(&histogram).unwrap();
        let line = percentile_line("x".to_owned(), &latency).unwrap();
        let last = line.points.last().unwrap();
        assert!((last.0 - 5.0).abs() < 1e-9 && (last.1 - 90_000f64.log10()).abs() < 0.01, "{last:?}");
        let at_90 = line.points.iter().find(|point| point.0 >= 1.0).unwrap();
        assert!((at_90.1 - 4.0).abs() < 0.01, "{at_90:?}");
        assert!(line.points.is_sorted_by_key(|point| point.1));
    }

    #[test]
    fn axes_hold_their_values() {
        for (low, high) in [(3.87, 5.3), (4.2, 8.8), (5.0, 5.0), (0.0, 0.0)] {
            let axis = latency_axis([low, high].into_iter()).unwrap();
            assert!(
                axis.range.start <= low + 1e-9 && high <= axis.range.end + 1e-9,
                "{low} {high} {:?}",
                axis.range
            );
            assert!(axis.range.start < axis.range.end && (2..12).contains(&axis.ticks.len()));
        }
        for high in [0.003, 1.18, 93e3, 579e3, 11.2e6] {
            let axis = count_axis("IOPS", [high].into_iter()).unwrap();
            assert!(axis.range.end >= high && (3..9).contains(&axis.ticks.len()), "{high}: {:?}", axis.range);
        }
        assert!(count_axis("IOPS", [0.0].into_iter()).is_none());
        assert!(latency_axis(std::iter::empty()).is_none());
    }

    #[test]
    fn slices_are_joined_without_losing_any() {
        let series: Vec<Slice> =
            (1..=1000).map(|n| Slice { at_s: f64::from(n) * 0.1, ios: 100, bytes: 0, max_ns: 0 }).collect();
        let points = rates(&series, false);
        assert!(points.len() <= SLICES_MAX);
        assert!(points.iter().all(|(_, rate)| (rate - 1000.0).abs() < 1e-6));
    }
}
