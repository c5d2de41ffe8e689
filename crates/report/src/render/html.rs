//! A record as one page: no network, no script, light and dark, wide and narrow, screen and paper.
//!
//! maud escapes whatever is interpolated, so a model name or a path cannot become markup. The page is ordered
//! as a reader asks: what came out, what limited it, what to mend; then curves, every figure, facts and
//! method.

mod bars;
mod chart;
mod charts;
mod loads;
mod page;
mod paging;
mod sections;
mod tables;
mod topology;

use crate::compare::Comparison;
use crate::record::{Record, RecordError, TargetKind};
use crate::show;
pub use chart::ChartError;
pub(crate) use charts::steps;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use thiserror::Error;

const STYLE: &str = include_str!("html/style.css");

/// The page could not be made.
#[derive(Debug, Error)]
pub enum HtmlError {
    /// A chart could not be drawn.
    #[error(transparent)]
    Chart(#[from] ChartError),
    /// The record has no JSON form to take a digest of.
    #[error("the report needs the record's digest: {0}")]
    Digest(#[from] RecordError),
}

/// The whole report, beside an earlier run when one is given.
///
/// # Errors
/// When a chart cannot be drawn or the record has no JSON form.
pub fn report(record: &Record, against: Option<&Comparison>) -> Result<String, HtmlError> {
    let results = charts_section(record)?;
    let paging = paging::section(record.paging.as_ref())?;
    let digest = record.digest()?;
    let name = record.target.model.as_ref().or(record.target.disk.as_ref()).unwrap_or(&record.target.path);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (name) " - Overdrive evaluation" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (head(record, name, against.is_some()))
                main {
                    (sections::summary(record))
                    @if let Some(comparison) = against { (tables::comparison(comparison)) }
                    (paging)
                    (results)
                    (tables::workloads(record))
                    (topology::section(record.topology.as_ref()))
                    (sections::findings(&record.findings))
                    (sections::facts(record))
                    (sections::self_test(record))
                    (sections::method(record))
                }
                (sections::provenance(record, &digest))
            }
        }
    };
    Ok(page.into_string())
}

/// A page of values as one HTML file.
///
/// # Errors
/// When a chart cannot be drawn.
pub fn page(page: &crate::page::Page) -> Result<String, HtmlError> {
    page::render(page)
}

fn head(record: &Record, name: &str, compared: bool) -> Markup {
    html! {
        header {
            div.over { "Overdrive evaluation" }
            h1 { (name) }
            @if record.target.kind != TargetKind::Memory { div.muted { "Drive: " (show::drive(record)) } }
            div.muted { "Target: " (show::target(record)) ": " code { (record.target.path) } }
            div.muted { "Run: " (record.started_at) }
            nav aria-label="Sections" {
                a href="#summary" { "Summary" }
                @if compared { a href="#against" { "Against" } }
                @if record.paging.is_some() { a href="#paging" { "Paging" } }
                @if !record.workloads.is_empty() {
                    a href="#curves" { "Curves" }
                    a href="#workloads" { "Every figure" }
                }
                @if record.topology.as_ref().is_some_and(|topology| !topology.vertices.is_empty()) {
                    a href="#topology" { "Topology" }
                }
                @if !record.findings.is_empty() { a href="#findings" { "Findings" } }
                a href="#facts" { "Facts" }
                a href="#method" { "Method" }
            }
            @if let Some(trouble) = show::trouble(&record.status) { p.banner role="status" { (trouble) } }
            @for note in &record.notes { p.banner.note { (note) } }
        }
    }
}

fn charts_section(record: &Record) -> Result<Markup, ChartError> {
    let parts = [
        ("Latency at each percentile", PERCENTILES_NOTE, charts::percentiles(record)?),
        ("Latency against load", "", loads::charts(record.search.as_ref())?),
        ("The ramp", RAMP_NOTE, charts::ramp(record)?),
        ("Over time", "", charts::over_time(record)?),
    ];
    Ok(html! {
        @if parts.iter().any(|(_, _, figures)| !figures.is_empty()) {
            section id="curves" {
                h2 { "Curves" }
                @for (name, note, figures) in &parts {
                    @if !figures.is_empty() {
                        h3 { (name) }
                        @if !note.is_empty() { p.muted { (note) } }
                        div.charts { @for figure in figures { (figure) } }
                    }
                }
            }
        }
    })
}

const PERCENTILES_NOTE: &str = "Each step to the right is ten times rarer. Upright bars are 95 % intervals; a curve \
    ends where its samples do.";
const RAMP_NOTE: &str =
    "More I/Os in flight until the rate stops rising: from there on, more depth only buys waiting.";

#[cfg(test)]
mod tests;
