//! The charts of a search over loads: latency against load, or a line for each rate of writes.

use super::chart::{Chart, ChartError, Line};
use super::charts::{count_axis, describe, latency_axis, log_ns};
use crate::record::{Latency, LoadPoint, Search};
use crate::render::search::{ascending, p99, rates, reads_of, writes_of};
use crate::show;
use maud::Markup;

/// The chart of a search; none when there is no search, or too little came out of it.
pub(super) fn charts(search: Option<&Search>) -> Result<Vec<Markup>, ChartError> {
    let chart = search.and_then(|search| match search.write_ceiling_iops {
        Some(_) => surface(search),
        None => curve(search),
    });
    chart.into_iter().map(|chart| chart.figure()).collect()
}

fn curve(search: &Search) -> Option<Chart> {
    let points = ascending(search);
    let line = |label: &str, value: &dyn Fn(&Latency) -> Option<f64>| Line {
        label: label.to_owned(),
        points: points
            .iter()
            .filter_map(|point| Some((point.asked_iops, value(point.response.as_ref()?)?)))
            .collect(),
        whiskers: Vec::new(),
        dots: true,
    };
    let at = |latency: &Latency, p: f64| Some(log_ns(latency.percentile(p)?.value_ns?));
    let mut lines = vec![
        line("average", &|latency| Some(latency.mean_ns.max(1.0).log10())),
        line("99 %", &|latency| at(latency, 99.0)),
        line("99.9 %", &|latency| at(latency, 99.9)),
    ];
    if let (Some(objective), [first, .., last]) = (&search.objective, points.as_slice()) {
        let limit = log_ns(objective.limit_ns);
        lines.push(Line {
            label: format!("p{} allowed", objective.percentile),
            points: vec![(first.asked_iops, limit), (last.asked_iops, limit)],
            whiskers: Vec::new(),
            dots: false,
        });
    }
    chart("load", "Latency against load".to_owned(), "I/Os a second asked for", lines)
}

fn surface(search: &Search) -> Option<Chart> {
    let line = |write: f64| {
        let of = |point: &&LoadPoint| (writes_of(point) - write).abs() < 0.5;
        let mut points: Vec<(f64, f64)> = search
            .points
            .iter()
            .filter(of)
            .filter_map(|point| Some((reads_of(point), log_ns(p99(point, |point| &point.read)?))))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line { label: format!("{} writes/s", show::count(write)), points, whiskers: Vec::new(), dots: true }
    };
    let lines = rates(&search.points, writes_of).into_iter().map(line).collect();
    chart("surface", "99 % of reads beside writes".to_owned(), "reads a second asked for", lines)
}

fn chart(id: &str, title: String, x: &'static str, mut lines: Vec<Line>) -> Option<Chart> {
    lines.retain(|line| line.points.len() > 1);
    let values = |pick: fn(&(f64, f64)) -> f64| {
        let all: Vec<f64> = lines.iter().flat_map(|line| &line.points).map(pick).collect();
        all.into_iter()
    };
    Some(Chart {
        id: id.to_owned(),
        title,
        description: describe(&lines, "latency at each load"),
        x: count_axis(x, values(|point| point.0))?,
        y: latency_axis(values(|point| point.1))?,
        lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn a_search_is_drawn_and_nothing_else_is() {
        let drawn = |record: &crate::record::Record| charts(record.search.as_ref()).unwrap();
        let page = drawn(&fixtures::searched())[0].clone().into_string();
        assert!(page.contains("Latency against load") && page.contains("p99.95 allowed"), "{page}");
        let page = drawn(&fixtures::surface())[0].clone().into_string();
        assert!(page.contains("0 writes/s"), "{page}");
        assert!(drawn(&fixtures::optane()).is_empty());
        let mut short = fixtures::searched();
        if let Some(search) = &mut short.search {
            search.points.truncate(1);
        }
        assert_eq!(drawn(&short).len(), 0, "one point is no curve");
    }
}
