//! One line chart as SVG, drawn twice: wide, and narrow for small screens; a media query shows one of them.
//!
//! plotters does the coordinates, axes and paths. Its colours are fixed when drawn, so every colour here is a
//! sentinel that the page's style sheet replaces by attribute (`[stroke="#010001"]`): light, dark and print
//! come from the same drawing. Lines are labelled at their end instead of in a legend.

use maud::{Markup, PreEscaped, html};
use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, RGBColor, ShapeStyle, TextStyle};
use std::ops::Range;

/// A chart could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the chart '{title}' could not be drawn: {reason}")]
pub struct ChartError {
    title: String,
    reason: String,
}

/// How many line colours there are.
const COLOURS: usize = 8;
const MUTED: RGBColor = RGBColor(2, 0, 1);
const GRID: RGBColor = RGBColor(2, 0, 2);

/// Room around the plot and size of letters, in pixels.
struct Size {
    width: u32,
    height: u32,
    class: &'static str,
}
const WIDE: Size = Size { width: 548, height: 330, class: "wide" };
const NARROW: Size = Size { width: 352, height: 300, class: "narrow" };
const FONT_PX: f64 = 11.5;
/// plotters divides font sizes by this before writing them.
const FONT_SCALE: f64 = 1.24;
const LINE_HEIGHT_PX: i32 = 14;
/// Dots between a line's end and its label.
const LEADER_DOTS: i32 = 16;
/// A generous mean width of a letter in the widest fonts in use.
const LETTER_PX: usize = 8;

/// One axis, in coordinates that are already mapped (logarithms are taken by the caller). A tick without a
/// label still draws its line.
#[derive(Clone)]
pub(super) struct Axis {
    pub(super) name: &'static str,
    pub(super) range: Range<f64>,
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// The axis without the labels that would run into the next one, on this many pixels; the last one stays.
    fn with_fitting_labels(&self, pixels: usize) -> Self {
        let scale = pixels as f64 / (self.range.end - self.range.start);
        let mut free_to = f64::INFINITY;
        let mut axis = self.clone();
        for (at, label) in axis.ticks.iter_mut().rev() {
            let half = (label.chars().count() * LETTER_PX) as f64 / 2.0;
            if *at * scale + half <= free_to {
                free_to = *at * scale - half - 4.0;
            } else {
                label.clear();
            }
        }
        axis
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        // Values off the axis are drawn just outside; nothing can leave the range of pixels.
        let share = ((value - self.range.start) / (self.range.end - self.range.start)).clamp(-0.1, 1.1);
        from + (share * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(at, _)| *at).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(at, _)| (at - value).abs() < 1e-9);
        tick.map(|(_, label)| label.clone()).unwrap_or_default()
    }
}

/// One line with its label.
pub(super) struct Line {
    pub(super) label: String,
    pub(super) points: Vec<(f64, f64)>,
    /// Intervals: where on x, from and to on y.
    pub(super) whiskers: Vec<(f64, f64, f64)>,
    /// Whether each point is marked, for lines that join few measurements.
    pub(super) dots: bool,
}

/// A chart.
pub(super) struct Chart {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) description: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plot<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

impl Chart {
    /// The chart as a figure with its two drawings.
    pub(super) fn figure(&self) -> Result<Markup, ChartError> {
        let drawings = [self.svg(&WIDE)?, self.svg(&NARROW)?];
        Ok(html! {
            figure {
                figcaption { (self.title) }
                @for drawing in &drawings { (drawing) }
            }
        })
    }

    fn svg(&self, size: &Size) -> Result<Markup, ChartError> {
        let mut drawn = String::new();
        self.draw(&mut drawn, size)
            .map_err(|error| ChartError { title: self.title.clone(), reason: error.to_string() })?;
        // The opening tag is ours, for the accessible name and for scaling; the rest is as drawn.
        let body = drawn.split_once('>').map_or("", |(_, body)| body);
        let (title_id, description_id) =
            (format!("{}-{}-t", self.id, size.class), format!("{}-{}-d", self.id, size.class));
        Ok(html! {
            (PreEscaped(format!(
                "<svg class=\"{}\" role=\"img\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" \
                 aria-labelledby=\"{title_id} {description_id}\" xmlns=\"http://www.w3.org/2000/svg\">",
                size.class, size.width, size.height, size.width, size.height
            )))
            title id=(title_id) { (self.title) }
            desc id=(description_id) { (self.description) }
            (PreEscaped(body))
        })
    }

    fn draw(&self, into: &mut String, size: &Size) -> Result<(), Box<dyn std::error::Error + '_>> {
        let area = SVGBackend::with_string(into, (size.width, size.height)).into_drawing_area();
        let longest = self.lines.iter().map(|line| line.label.chars().count()).max().unwrap_or(0);
        let ticks = self.y.ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0);
        let (left, right) = (ticks * LETTER_PX + 12, longest * (LETTER_PX - 1) + 16);
        let x = self.x.with_fitting_labels((size.width as usize).saturating_sub(left + right));
        let mut plot = ChartBuilder::on(&area)
            .margin_top(24)
            .margin_right(right as u32)
            .x_label_area_size(40)
            .y_label_area_size(left as u32)
            .build_cartesian_2d(x, self.y.clone())?;
        plot.configure_mesh()
            .axis_style(MUTED)
            .bold_line_style(GRID)
            .light_line_style(GRID.mix(0.0))
            .label_style(letters(MUTED, HPos::Center, VPos::Top))
            .draw()?;
        let bottom = size.height as i32;
        area.draw(&Text::new(self.y.name, (2, 4), letters(MUTED, HPos::Left, VPos::Top)))?;
        let right = plot.plotting_area().get_pixel_range().0.end;
        area.draw(&Text::new(self.x.name, (right, bottom - 4), letters(MUTED, HPos::Right, VPos::Bottom)))?;
        for (line, colour) in self.lines.iter().zip(colours(self.lines.len())) {
            draw_line(&mut plot, line, colour)?;
        }
        self.label_ends(&area, &plot)?;
        area.present()?;
        Ok(())
    }

    /// Puts each label beside the plot at the height of its line's end, moved apart where they would touch.
    fn label_ends(&self, area: &Area<'_>, plot: &Plot<'_, '_>) -> Result<(), Box<dyn std::error::Error>> {
        let (columns, rows) = plot.plotting_area().get_pixel_range();
        let mut ends: Vec<((i32, i32), &Line, RGBColor)> = self
            .lines
            .iter()
            .zip(colours(self.lines.len()))
            .filter_map(|(line, colour)| Some((plot.backend_coord(line.points.last()?), line, colour)))
            .collect();
        ends.sort_by_key(|((_, y), _, _)| *y);
        let heights =
            spread(&ends.iter().map(|((_, y), _, _)| *y).collect::<Vec<_>>(), LINE_HEIGHT_PX, rows.end);
        for (((x, y), line, colour), height) in ends.into_iter().zip(heights) {
            // Dotted across the plot, where a line would look like data.
            for dot in 1..=LEADER_DOTS {
                let at = x + 3 + (columns.end - x - 3) * dot / LEADER_DOTS;
                area.draw(&PathElement::new(vec![(at, y), (at + 3, y)], colour.mix(0.7)))?;
            }
            let leader = vec![(columns.end + 2, y), (columns.end + 10, height)];
            area.draw(&PathElement::new(leader, colour.mix(0.45)))?;
            let place = (columns.end + 13, height);
            area.draw(&Text::new(line.label.clone(), place, letters(colour, HPos::Left, VPos::Center)))?;
        }
        Ok(())
    }
}

fn draw_line(
    plot: &mut Plot<'_, '_>,
    line: &Line,
    colour: RGBColor,
) -> Result<(), Box<dyn std::error::Error>> {
    let thin = ShapeStyle { color: colour.mix(0.55), filled: false, stroke_width: 1 };
    let whiskers =
        line.whiskers.iter().map(|&(x, low, high)| PathElement::new(vec![(x, low), (x, high)], thin));
    plot.draw_series(whiskers)?;
    let style = ShapeStyle { color: colour.to_rgba(), filled: false, stroke_width: 2 };
    plot.draw_series([PathElement::new(line.points.clone(), style)])?;
    if line.dots {
        plot.draw_series(line.points.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
    }
    Ok(())
}

fn letters(colour: RGBColor, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    let mut style = TextStyle::from(("sans-serif", FONT_PX * FONT_SCALE)).pos(Pos::new(horizontal, vertical));
    style.color = colour.to_backend_color();
    style
}

/// Colours for `count` lines, far apart when there are few.
fn colours(count: usize) -> impl Iterator<Item = RGBColor> {
    let step = (COLOURS / count.max(1)).max(1);
    (0..count).map(move |index| RGBColor(1, 0, (index * step % COLOURS) as u8 + 1))
}

/// Moves sorted heights apart to at least `gap`, keeping them above `bottom`.
fn spread(heights: &[i32], gap: i32, bottom: i32) -> Vec<i32> {
    let mut placed: Vec<i32> = Vec::with_capacity(heights.len());
    for &height in heights {
        placed.push(placed.last().map_or(height, |above| height.max(above + gap)));
    }
    let mut limit = bottom;
    for height in placed.iter_mut().rev() {
        *height = (*height).min(limit);
        limit = *height - gap;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn few_lines_get_distant_colours() {
        let picked = |count| colours(count).map(|colour| colour.2).collect::<Vec<_>>();
        assert_eq!(picked(1), [1]);
        assert_eq!(picked(2), [1, 5]);
        assert_eq!(picked(4), [1, 3, 5, 7]);
        assert_eq!(picked(8), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(picked(9)[8], 1);
    }

    #[test]
    fn labels_that_would_overlap_are_left_out() {
        let ticks: Vec<(f64, String)> = (0..8).map(|n| (f64::from(n), "99.99999".to_owned())).collect();
        let axis = Axis { name: "x", range: 0.0..7.0, ticks };
        let labelled = |pixels| {
            axis.with_fitting_labels(pixels).ticks.iter().filter(|(_, label)| !label.is_empty()).count()
        };
        assert_eq!((labelled(700), labelled(300)), (8, 4));
    }

    proptest! {
        #[test]
        fn labels_never_touch(mut heights in prop::collection::vec(0i32..300, 0..9)) {
            heights.sort_unstable();
            let placed = spread(&heights, 14, 300);
            prop_assert!(placed.windows(2).all(|pair| pair[1] - pair[0] >= 14));
            prop_assert!(placed.iter().all(|height| *height <= 300));
        }
    }
}
