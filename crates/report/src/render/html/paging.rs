//! A paging run on the page: the table of threads x read ratio x backing, how it scales, latencies and humps.

use super::chart::{Axis, Chart, ChartError, Line};
use super::charts::{count_axis, describe, latency_axis, percentile_axis, percentile_line};
use crate::record::{Latency, Paging, PagingCell};
use crate::render::paging::{Curve, Row, backings, curves, humps, pairs, rows, sentences};
use crate::show;
use maud::{Markup, html};
use overdrive_base::size::format_size;
use overdrive_base::time::format_ns;

/// Lines that can be told apart on one chart.
const LINES_MAX: usize = 8;

/// The section of the page; empty without a paging run.
///
/// # Errors
/// When a chart cannot be drawn.
pub(super) fn section(paging: Option<&Paging>) -> Result<Markup, ChartError> {
    let Some(paging) = paging.filter(|paging| !paging.cells.is_empty()) else { return Ok(html! {}) };
    let figures = figures(paging)?;
    Ok(html! {
        section id="paging" {
            h2 { "Paging" }
            p {
                "A set of " (format_size(paging.set_bytes))
                @if let Some(bytes) = paging.dram_bytes {
                    ", with " (format_size(bytes)) " of DRAM behind the backings that have a budget"
                }
                "."
            }
            @for line in sentences(paging) { p.muted { (line) "." } }
            h3 { "Pages a second" }
            (rates(paging))
            h3 { "Latency of an access" }
            (latencies(paging))
            div.charts { @for figure in &figures { (figure) } }
        }
    })
}

fn rates(paging: &Paging) -> Markup {
    let names = backings(paging);
    let pairs = pairs(names.len());
    html! {
        div.scroll tabindex="0" role="region" aria-label="Pages a second by threads, read ratio and backing" {
            table.figures {
                thead { tr {
                    @for head in ["Pattern", "Reads", "Threads"] { th scope="col" { (head) } }
                    @for name in &names { th scope="col" { (name) } }
                    @for (earlier, later) in &pairs { th scope="col" { (names[*later]) "/" (names[*earlier]) } }
                } }
                tbody {
                    @for row in rows(paging) {
                        tr {
                            th scope="row" { (row.pattern) }
                            td { (row.read_ratio_percent) " %" }
                            td { (row.threads) }
                            @for cell in &row.cells {
                                td {
                                    @if let Some(cell) = cell {
                                        @let cell = cell.median();
                                        (show::count(cell.pages_per_s))
                                        @for part in cell.nodes.iter().flatten() {
                                            small { "node " (part.node) ": " (show::count(part.pages_per_s)) }
                                        }
                                    } @else { "-" }
                                }
                            }
                            @for (earlier, later) in &pairs {
                                td { @if let Some(ratio) = row.ratio(*earlier, *later) { (ratio.text()) } @else { "-" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn latencies(paging: &Paging) -> Markup {
    const SHOWN: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999];
    html! {
        div.scroll tabindex="0" role="region" aria-label="Latency of an access in each cell" {
            table.figures {
                thead { tr {
                    @for head in ["Cell", "faults/s", "major/s", "avg"] { th scope="col" { (head) } }
                    @for percentile in SHOWN { th scope="col" { (percentile) " %" } }
                    @for head in ["max", "stalls over 1 ms", "their time"] { th scope="col" { (head) } }
                } }
                tbody {
                    @for row in rows(paging) {
                        @for cell in row.medians() {
                            tr {
                                th scope="row" { (name(cell)) }
                                td { (show::count(cell.faults_per_s)) }
                                td { @if let Some(rate) = cell.major_faults_per_s { (show::count(rate)) } @else { "-" } }
                                @match &cell.latency {
                                    Some(latency) => {
                                        td { (format_ns(latency.mean_ns as u64)) }
                                        @for wanted in SHOWN { td { (percentile(latency, wanted)) } }
                                        td { (format_ns(latency.max_ns)) }
                                    }
                                    None => { td colspan=(SHOWN.len() + 2) { "no access" } }
                                }
                                td { (cell.stalls) }
                                td { (format_ns(cell.stalled_ns)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn percentile(latency: &Latency, wanted: f64) -> String {
    let found = latency.percentile(wanted);
    found.map_or_else(
        || "-".to_owned(),
        |found| match (found.value_ns, found.at_least_ns) {
            (Some(value), _) => format_ns(value),
            (None, Some(bound)) => format!("≥{}", format_ns(bound)),
            (None, None) => "-".to_owned(),
        },
    )
}

fn name(cell: &PagingCell) -> String {
    format!("{} {} {} % x{}", cell.backing, cell.pattern, cell.read_ratio_percent, cell.threads)
}

/// One family of charts for each pattern and read ratio.
fn figures(paging: &Paging) -> Result<Vec<Markup>, ChartError> {
    let mut families: Vec<(&str, u8)> =
        paging.cells.iter().map(|cell| (cell.pattern.as_str(), cell.read_ratio_percent)).collect();
    families.sort_unstable();
    families.dedup();
    let mut charts = Vec::new();
    for (index, family) in families.into_iter().enumerate() {
        let title = format!("{}, {} % reads", family.0, family.1);
        let all = curves(paging);
        let members: Vec<&Curve<'_>> =
            all.iter().filter(|curve| (curve.pattern, curve.read_ratio_percent) == family).collect();
        charts.extend(scaling_chart(index, &title, &members));
        let rows = rows(paging);
        let cells: Vec<&PagingCell> = rows
            .iter()
            .filter(|row| (row.pattern, row.read_ratio_percent) == family)
            .flat_map(Row::medians)
            .take(LINES_MAX)
            .collect();
        charts.extend(percentile_chart(index, &title, &cells));
        charts.extend(hump_chart(index, &title, &cells));
    }
    charts.iter().map(Chart::figure).collect()
}

fn scaling_chart(index: usize, title: &str, curves: &[&Curve<'_>]) -> Option<Chart> {
    let at = |threads: u32| f64::from(threads.max(1)).log2();
    let lines: Vec<Line> = curves
        .iter()
        .map(|curve| Line {
            label: curve.backing.to_owned(),
            points: curve
                .points
                .iter()
                .map(|&(threads, rate)| (at(threads), rate.max(1.0).log10()))
                .collect(),
            whiskers: Vec::new(),
            dots: true,
        })
        .collect();
    let mut threads: Vec<u32> = curves.iter().flat_map(|curve| &curve.points).map(|point| point.0).collect();
    threads.sort_unstable();
    threads.dedup();
    let (first, last) = (at(*threads.first()?), at(*threads.last()?));
    let rates = lines.iter().flat_map(|line| &line.points).map(|point| point.1);
    let (low, high) = rates.fold((f64::MAX, f64::MIN), |(low, high), rate| (low.min(rate), high.max(rate)));
    let (low, high) = (low.floor(), high.ceil().max(low.floor() + 1.0));
    let decades =
        (low as i32..=high as i32).map(|decade| (f64::from(decade), show::count(10f64.powi(decade))));
    Some(Chart {
        id: format!("paging-scaling-{index}"),
        title: format!("{title}: pages a second against threads"),
        description: describe(&lines, "rate at each number of threads"),
        x: Axis {
            name: "threads",
            range: first - 0.2..last.max(first + 1.0) + 0.2,
            ticks: threads.iter().map(|&threads| (at(threads), threads.to_string())).collect(),
        },
        y: Axis { name: "pages/s", range: low..high, ticks: decades.collect() },
        lines,
    })
}

fn percentile_chart(index: usize, title: &str, cells: &[&PagingCell]) -> Option<Chart> {
    let line = |cell: &&PagingCell| {
        percentile_line(format!("{} x{}", cell.backing, cell.threads), cell.latency.as_ref()?)
    };
    let lines: Vec<Line> = cells.iter().filter_map(line).collect();
    Some(Chart {
        id: format!("paging-percentiles-{index}"),
        title: format!("{title}: latency at each percentile"),
        description: describe(&lines, "latency of an access at the percentiles"),
        x: percentile_axis(&lines),
        y: latency_axis(lines.iter().flat_map(|line: &Line| &line.points).map(|point| point.1))?,
        lines,
    })
}

/// The two humps: the share of accesses in each half octave of latency.
fn hump_chart(index: usize, title: &str, cells: &[&PagingCell]) -> Option<Chart> {
    let line = |cell: &&PagingCell| {
        let humps = humps(cell.latency.as_ref()?, 2);
        let first = humps.iter().position(|(_, share)| *share > 0.0)?;
        let last = humps.iter().rposition(|(_, share)| *share > 0.0)?;
        let shown = &humps[first.saturating_sub(1)..(last + 2).min(humps.len())];
        let points = shown.iter().map(|&(ns, share)| (ns.log10(), share * 100.0)).collect();
        Some(Line {
            label: format!("{} x{}", cell.backing, cell.threads),
            points,
            whiskers: Vec::new(),
            dots: false,
        })
    };
    let lines: Vec<Line> = cells.iter().filter_map(line).collect();
    let latencies = latency_axis(lines.iter().flat_map(|line| &line.points).map(|point| point.0))?;
    Some(Chart {
        id: format!("paging-humps-{index}"),
        title: format!("{title}: where the latencies lie"),
        description: describe(&lines, "share of accesses in each half octave of latency"),
        x: latencies,
        y: count_axis("% of accesses", lines.iter().flat_map(|line| &line.points).map(|point| point.1))?,
        lines,
    })
}
