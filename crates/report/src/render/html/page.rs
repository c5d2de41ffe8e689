//! A page of values as one file that works without a network, in the style of the report.

use super::chart::{Axis, Chart, ChartError, Line};
use super::{HtmlError, STYLE, bars};
use crate::page::{LineChart, Page, Scale, Section, Table};
use maud::{DOCTYPE, Markup, PreEscaped, html};

impl Scale {
    fn map(&self, value: f64) -> f64 {
        if self.logarithmic { value.max(1e-12).log10() } else { value }
    }

    /// From the first tick to the last.
    fn axis(&self) -> Axis {
        let ticks: Vec<(f64, String)> =
            self.ticks.iter().map(|(at, label)| (self.map(*at), label.clone())).collect();
        let first = ticks.first().map_or(0.0, |tick| tick.0);
        let last = ticks.last().map_or(1.0, |tick| tick.0);
        let range = first..if last > first { last } else { first + 1.0 };
        Axis { name: self.name, range, ticks }
    }
}

impl LineChart {
    fn figure(&self) -> Result<Markup, ChartError> {
        let line = |(label, points): &(String, Vec<(f64, f64)>)| Line {
            label: label.clone(),
            points: points.iter().map(|&(x, y)| (self.x.map(x), self.y.map(y))).collect(),
            whiskers: Vec::new(),
            dots: true,
        };
        let chart = Chart {
            id: self.id.clone(),
            title: self.title.clone(),
            description: self.description.clone(),
            x: self.x.axis(),
            y: self.y.axis(),
            lines: self.lines.iter().map(line).collect(),
        };
        chart.figure()
    }
}

/// The page as one HTML file.
///
/// # Errors
/// When a chart cannot be drawn.
pub(super) fn render(page: &Page) -> Result<String, HtmlError> {
    let sections = page.sections.iter().map(section).collect::<Result<Vec<Markup>, ChartError>>()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (page.title) " - " (page.kind) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    div.over { (page.kind) }
                    h1 { (page.title) }
                    @for line in &page.lead { div.muted { (line) } }
                    @for line in &page.warnings { p.banner role="status" { (line) } }
                }
                main { @for section in &sections { (section) } }
                footer { p.muted { "Made by Overdrive " (env!("CARGO_PKG_VERSION")) "." } }
            }
        }
    };
    Ok(page.into_string())
}

fn section(section: &Section) -> Result<Markup, ChartError> {
    let charts = section.charts.iter().map(LineChart::figure).collect::<Result<Vec<Markup>, ChartError>>()?;
    Ok(html! {
        section {
            h2 { (section.heading) }
            @for note in &section.notes { p.muted { (note) } }
            @if !section.bars.is_empty() {
                div.charts { @for chart in &section.bars { (bars::figure(chart)) } }
            }
            @if !charts.is_empty() { div.charts { @for chart in &charts { (chart) } } }
            @for one in &section.tables { (table(one)) }
        }
    })
}

fn table(table: &Table) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(table.label) {
            table.figures {
                thead { tr { @for head in &table.header { th scope="col" { (head) } } } }
                tbody {
                    @for row in &table.rows {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_holds_what_it_was_given_escaped() {
        let scale = |name, logarithmic, ticks: &[f64]| Scale {
            name,
            logarithmic,
            ticks: ticks.iter().map(|tick| (*tick, tick.to_string())).collect(),
        };
        let chart = LineChart {
            id: "c".to_owned(),
            title: "A chart".to_owned(),
            description: "of two points".to_owned(),
            x: scale("x", false, &[0.0, 1.0]),
            y: scale("y", true, &[1.0, 10.0, 100.0]),
            lines: vec![("line".to_owned(), vec![(0.0, 10.0), (1.0, 100.0)])],
        };
        let table = Table {
            label: "t".to_owned(),
            header: vec!["a".to_owned(), "b".to_owned()],
            rows: vec![vec!["<i>".to_owned(), "2".to_owned()]],
        };
        let section = Section {
            heading: "H".to_owned(),
            notes: vec!["a note".to_owned()],
            charts: vec![chart],
            tables: vec![table],
            ..Section::default()
        };
        let page =
            Page { kind: "K".to_owned(), title: "T".to_owned(), sections: vec![section], ..Page::default() };
        let text = render(&page).unwrap();
        for piece in ["T - K", "a note", "A chart", "&lt;i&gt;", "<svg"] {
            assert!(text.contains(piece), "{piece}");
        }
        assert!(!text.contains("http://") || !text.contains("src="), "nothing is loaded");
        assert!(!text.contains("<script"));
    }

    #[test]
    fn a_page_without_anything_is_still_one() {
        let chart = LineChart {
            id: "empty".to_owned(),
            title: String::new(),
            description: String::new(),
            x: Scale { name: "x", logarithmic: true, ticks: Vec::new() },
            y: Scale { name: "y", logarithmic: false, ticks: vec![(5.0, "5".to_owned())] },
            lines: Vec::new(),
        };
        let section = Section { charts: vec![chart], ..Section::default() };
        assert!(render(&Page { sections: vec![section], ..Page::default() }).is_ok());
    }
}
