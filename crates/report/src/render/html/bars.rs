//! Bars from left to right, one for each thing compared, with a limit where there is one. Drawn by hand: a
//! few rectangles need no axes, the value stands at the end of each bar.

use crate::page::BarChart;
use maud::{Markup, html};

/// As much as a small screen has, so that letters stay as large as they are.
const WIDTH: f64 = 390.0;
const ROW: f64 = 34.0;
const BAR: f64 = 20.0;
const TOP: f64 = 22.0;
/// A generous mean width of a letter.
const LETTER: f64 = 8.6;
/// Half of the room that the label of a limit takes.
const LIMIT: f64 = 62.0;

pub(super) fn figure(chart: &BarChart) -> Markup {
    let left =
        12.0 + LETTER * chart.bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0) as f64;
    let longest = chart.bars.iter().map(|bar| bar.text.chars().count()).max().unwrap_or(0);
    let right = (12.0 + LETTER * longest as f64).max(LIMIT);
    let values = chart.bars.iter().map(|bar| bar.value);
    let most = values.chain(chart.limit.iter().map(|limit| limit.0)).fold(0.0, f64::max);
    let scale = if most > 0.0 { (WIDTH - left - right).max(40.0) / most } else { 0.0 };
    let height = TOP + ROW * chart.bars.len() as f64 + 4.0;
    let (title, description) = (format!("{}-t", chart.id), format!("{}-d", chart.id));
    html! {
        figure {
            figcaption { (chart.title) }
            svg.bars viewBox=(format!("0 0 {WIDTH} {height:.0}")) width=(WIDTH) height=(format!("{height:.0}")) role="img"
                aria-labelledby=(format!("{title} {description}")) xmlns="http://www.w3.org/2000/svg" {
                title id=(title) { (chart.title) }
                desc id=(description) { (chart.description) }
                @for (row, bar) in chart.bars.iter().enumerate() {
                    @let y = TOP + ROW * row as f64;
                    @let length = (bar.value * scale).max(1.0);
                    @let over = chart.limit.as_ref().is_some_and(|limit| bar.value > limit.0);
                    text x=(format!("{:.0}", left - 6.0)) y=(y + 15.0) text-anchor="end" { (bar.label) }
                    rect class=[over.then_some("over")] x=(format!("{left:.0}")) y=(y) width=(format!("{length:.1}"))
                        height=(BAR) rx="3" {}
                    text.value x=(format!("{:.1}", left + length + 6.0)) y=(y + 15.0) { (bar.text) }
                }
                @if let Some((limit, text)) = &chart.limit {
                    @let x = left + limit * scale;
                    line x1=(format!("{x:.1}")) x2=(format!("{x:.1}")) y1="16" y2=(format!("{height:.0}")) {}
                    text.limit x=(format!("{:.1}", x.max(LIMIT))) y="11" text-anchor="middle" { (text) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Bar;

    fn chart(limit: Option<(f64, String)>) -> BarChart {
        let bar = |label: &str, value: f64| Bar { label: label.to_owned(), value, text: format!("{value}") };
        BarChart {
            id: "c".to_owned(),
            title: "A <chart>".to_owned(),
            description: "of two".to_owned(),
            bars: vec![bar("one", 10.0), bar("another", 40.0)],
            limit,
        }
    }

    /// The lengths of the bars.
    fn lengths(drawn: &str) -> Vec<f64> {
        let after = drawn.split("<rect").skip(1);
        after
            .map(|rect| rect.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect()
    }

    #[test]
    fn lengths_are_in_proportion_and_those_past_the_limit_are_marked() {
        let drawn = figure(&chart(Some((20.0, "asked for: 20".to_owned())))).into_string();
        let found = lengths(&drawn);
        assert!((found[1] / found[0] - 4.0).abs() < 0.02, "{found:?}");
        assert_eq!(drawn.matches("class=\"over\"").count(), 1);
        assert!(drawn.contains("asked for: 20") && drawn.contains("A &lt;chart&gt;"), "{drawn}");
        assert!(!figure(&chart(None)).into_string().contains("over"));
    }

    #[test]
    fn nothing_to_show_is_still_a_drawing() {
        let mut empty = chart(None);
        empty.bars.iter_mut().for_each(|bar| bar.value = 0.0);
        assert_eq!(lengths(&figure(&empty).into_string()), [1.0, 1.0]);
        empty.bars.clear();
        assert!(figure(&empty).into_string().contains("<svg"));
    }
}
