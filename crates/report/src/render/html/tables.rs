//! The tables of the page: every figure with its interval, the published ones beside it, and a comparison.

use crate::compare::{Change, Comparison, Figure, Meaning, WorkloadChange};
use crate::published::{self, Beside};
use crate::record::{Cpu, Direction, Group, PERCENTILES, Percentile, Record, Workload};
use crate::render::detail::{self, Detail};
use crate::show;
use maud::{Markup, html};

/// Every workload in two tables: rates and latencies with intervals, and what it cost.
pub(super) fn workloads(record: &Record) -> Markup {
    html! {
        @if !record.workloads.is_empty() {
            section id="workloads" {
                h2 { "Every figure" }
                p.muted {
                    "Latencies in microseconds, or milliseconds where marked, with their 95 % intervals; ≥ marks a bound "
                    "where samples were too few for a value."
                }
                (latencies(record))
                h3 { "What it cost" }
                (costs(record))
                @for detail in detail::details(record) { (one_detail(&detail)) }
            }
        }
    }
}

/// What only some workloads have.
fn one_detail(detail: &Detail) -> Markup {
    html! {
        h3 { (detail.heading) }
        @if !detail.rows.is_empty() {
            div.scroll tabindex="0" role="region" aria-label=(detail.heading) {
                table.figures {
                    thead { tr { @for head in &detail.header { th scope="col" { (head) } } } }
                    tbody {
                        @for row in &detail.rows {
                            tr {
                                @for (column, cell) in row.iter().enumerate() {
                                    @if column == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                                }
                            }
                        }
                    }
                }
            }
        }
        @for note in &detail.notes { p.muted { (note) } }
    }
}

fn latencies(record: &Record) -> Markup {
    let columns = PERCENTILES.len() + 5;
    html! {
        div.scroll tabindex="0" role="region" aria-label="Rates and latencies of every workload" {
            table.figures {
                thead { tr {
                    @for head in ["Workload", "IOPS", "GiB/s", "avg"] { th scope="col" { (head) } }
                    @for percentile in PERCENTILES { th scope="col" { (percentile) " %" } }
                    th scope="col" { "max" }
                } }
                @for (group, workloads) in show::groups(record) {
                    tbody {
                        @let name = show::group_name(group, workloads[0]);
                        tr.group { th colspan=(columns) scope="rowgroup" { (name) } }
                        @for workload in workloads {
                            @for (name, direction) in show::directions(workload) {
                                (measured(workload, name, direction))
                            }
                            @if workload.outcome.ios == 0 { (nothing(workload, columns)) }
                            @let beside = published::beside(record.target.model.as_deref(), workload);
                            @if let Some(beside) = beside { (published_row(&beside)) }
                        }
                    }
                }
            }
        }
    }
}

fn measured(workload: &Workload, operation: &str, direction: &Direction) -> Markup {
    let latency = &direction.latency;
    let half = crate::compare::iops_half_width(workload).filter(|_| !show::several_directions(workload));
    html! {
        tr {
            th scope="row" {
                (row_name(workload))
                @if show::several_directions(workload) { " " (operation) "s" }
                @for note in &workload.notes { small { (note) } }
                (trouble(workload))
            }
            td { (show::count(direction.iops)) @if let Some(half) = half { small { "±" (show::count(half)) } } }
            td { (show::gib_per_s(direction.bytes_per_s)) }
            td { (show::us_or_ms(latency.mean_ns as u64)) }
            @for percentile in PERCENTILES { td { (percentile_cell(latency.percentile(percentile))) } }
            td { (show::us_or_ms(latency.max_ns)) }
        }
    }
}

fn row_name(workload: &Workload) -> String {
    match workload.group {
        Group::Ramp => format!("{}, depth {}", show::layout(&workload.job), workload.job.queue_depth_total),
        _ => show::short_name(workload),
    }
}

fn trouble(workload: &Workload) -> Markup {
    let outcome = &workload.outcome;
    html! {
        @for error in &outcome.errors { small.bad { (show::grouped(error.count)) " × " (error.name) } }
        @if outcome.short_ios > 0 { small.bad { (show::grouped(outcome.short_ios)) " short" } }
    }
}

fn nothing(workload: &Workload, columns: usize) -> Markup {
    html! {
        tr {
            th scope="row" { (row_name(workload)) (trouble(workload)) }
            td.text colspan=(columns - 1) { "no I/O completed" }
        }
    }
}

fn percentile_cell(percentile: Option<&Percentile>) -> Markup {
    let Some(p) = percentile else { return html! { "-" } };
    html! {
        @match (p.value_ns, p.at_least_ns) {
            (Some(value), _) => (show::us_or_ms(value)),
            (None, Some(bound)) => { "≥" (show::us_or_ms(bound)) },
            (None, None) => "-",
        }
        @if let Some(interval) = show::interval(p) { small { (interval) } }
    }
}

fn published_row(beside: &Beside) -> Markup {
    let reference = beside.references[0];
    let cell = |value: Option<f64>| value.map(overdrive_base::time::three_digits).unwrap_or_default();
    html! {
        tr.published {
            th scope="row" {
                @if beside.yardstick { "yardstick, not this drive" } @else { "published" }
                small { (beside.drive) }
                small { (reference.source()) }
            }
            td { (reference.iops().map(show::count).unwrap_or_default()) }
            td { (reference.bytes_per_s().map(show::gib_per_s).unwrap_or_default()) }
            td { (cell(reference.avg_us())) }
            @for percentile in PERCENTILES { td { (cell(reference.percentile_us(percentile))) } }
            td { (cell(reference.max_us())) }
        }
    }
}

fn costs(record: &Record) -> Markup {
    let heads = [
        "Workload",
        "user µs/IO",
        "kernel µs/IO",
        "workers busy",
        "CPUs busy",
        "stolen",
        "switches/s",
        "in flight",
        "I/Os",
        "disk counted",
    ];
    html! {
        div.scroll tabindex="0" role="region" aria-label="CPU cost of every workload" {
            table.figures {
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody { @for workload in &record.workloads { (cost_row(workload)) } }
            }
        }
    }
}

fn cost_row(workload: &Workload) -> Markup {
    let outcome = &workload.outcome;
    let percent = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1} %"));
    let cost = outcome.cpu.as_ref();
    let us = |pick: fn(&Cpu) -> f64| cost.map_or_else(|| "-".to_owned(), |cpu| show::us(pick(cpu)));
    let counted =
        outcome.device_ios.as_ref().map(|device| show::grouped(device.reads.saturating_add(device.writes)));
    html! {
        tr {
            th scope="row" { (workload.title) small { (workload.id) } }
            td { (us(|cpu| cpu.user_ns_per_io)) }
            td { (us(|cpu| cpu.system_ns_per_io)) }
            td { (percent(cost.map(|cpu| cpu.utilisation_percent))) }
            td { (percent(cost.and_then(|cpu| cpu.host_busy_percent))) }
            td { (percent(cost.and_then(|cpu| cpu.steal_percent))) }
            td { (show::switches_per_s(outcome)) }
            td { (format!("{:.1} of {}", outcome.in_flight_mean, workload.job.queue_depth_total)) }
            td { (show::grouped(outcome.ios)) }
            td { (counted.unwrap_or_else(|| "-".to_owned())) }
        }
    }
}

/// This run against an earlier one.
pub(super) fn comparison(comparison: &Comparison) -> Markup {
    html! {
        section id="against" {
            h2 { "Against the run of " (comparison.before) }
            p.muted {
                "After over before. Green is better and red worse by more than noise: both 95 % intervals stand apart "
                "and the change is over 3 %. Latencies in microseconds. A question mark: one side has no interval."
            }
            @for caution in &comparison.cautions { p.warn { "Caution: " (caution) } }
            @if comparison.workloads.is_empty() { p { "The two records have no workload in common." } } @else {
                div.scroll tabindex="0" role="region" aria-label="Comparison with the earlier run" {
                    table.figures {
                        thead { tr {
                            th scope="col" { "Workload" } th scope="col" { "IOPS" }
                            @for percentile in PERCENTILES { th scope="col" { (percentile) " %" } }
                        } }
                        tbody { @for workload in &comparison.workloads { (change_rows(workload)) } }
                    }
                }
            }
            @for id in &comparison.unmatched { p.muted { (id) " is in one record only." } }
        }
    }
}

fn change_rows(workload: &WorkloadChange) -> Markup {
    html! {
        @for line in workload.lines() {
            tr {
                th scope="row" { (workload.title) @if !line.name.is_empty() { ", " (line.name) } }
                td { (change_cell(workload.change(Figure::Iops))) }
                @for percentile in PERCENTILES {
                    td { (change_cell(line.figure(percentile).and_then(|figure| workload.change(figure)))) }
                }
            }
        }
    }
}

fn change_cell(change: Option<&Change>) -> Markup {
    let Some(change) = change else { return html! { "-" } };
    let value = |value: f64| if change.figure == Figure::Iops { show::count(value) } else { show::us(value) };
    let (class, sign) = match change.meaning {
        Meaning::Better => ("good", "better"),
        Meaning::Worse => ("bad", "worse"),
        Meaning::Same => ("plain", "same"),
        Meaning::Unclear => ("plain", "?"),
    };
    html! {
        span class=(class) { (change.ratio.map_or_else(|| "from 0".to_owned(), show::ratio)) " " (sign) }
        small { (value(change.before)) " → " (value(change.after)) }
    }
}
