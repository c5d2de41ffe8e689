//! The way from drives to processors as a drawing: a tree from left (processors) to right (drives).

use crate::record::{Topology, TopologyVertex};
use crate::render::topology::sentences;
use crate::show::gb_per_s;
use maud::{Markup, html};

const BOX_WIDTH: f64 = 206.0;
const BOX_HEIGHT: f64 = 46.0;
const COLUMN_GAP: f64 = 70.0;
const ROW_HEIGHT: f64 = 58.0;
const MARGIN: f64 = 8.0;
/// Letters that fit a box: of its name, which is larger and bold, and of the small lines below.
const NAME_LETTERS_MAX: usize = 25;
const LETTERS_MAX: usize = 31;

/// A vertex with its place.
struct Placed<'a> {
    vertex: &'a TopologyVertex,
    above: Option<usize>,
    column: usize,
    row: f64,
}

impl Placed<'_> {
    fn x(&self) -> f64 {
        MARGIN + self.column as f64 * (BOX_WIDTH + COLUMN_GAP)
    }

    fn y(&self) -> f64 {
        MARGIN + self.row * ROW_HEIGHT
    }
}

/// The section of the page; empty without a topology.
pub(super) fn section(topology: Option<&Topology>) -> Markup {
    let Some(topology) = topology.filter(|topology| !topology.vertices.is_empty()) else { return html! {} };
    html! {
        section id="topology" {
            h2 { "From the drive to the processors" }
            dl.panel {
                @for (head, line) in sentences(topology) { dt { (head) } dd { (line) } }
            }
            p.muted {
                "Figures on the lines: GB/s that the way carries now, of what the drives below could send. "
                "A red line carries less than that, an amber one runs below what both its ends can do."
            }
            div.scroll tabindex="0" role="region" aria-label="Drawing of the way from the drive to the processors" {
                (drawing(topology))
            }
        }
    }
}

fn drawing(topology: &Topology) -> Markup {
    let placed = place(topology);
    let right = placed.iter().map(Placed::x).fold(0.0, f64::max) + BOX_WIDTH + MARGIN;
    let bottom = placed.iter().map(Placed::y).fold(0.0, f64::max) + BOX_HEIGHT + MARGIN;
    let most = topology.needed_bytes_per_s.max(1) as f64;
    html! {
        svg.topology width=(right) height=(bottom) viewBox=(format!("0 0 {right} {bottom}")) role="img"
            aria-label="Tree of memory node, host bridges, ports and drives" xmlns="http://www.w3.org/2000/svg" {
            @for one in &placed { @if let Some(above) = one.above { (edge(one, &placed[above], most)) } }
            @for one in &placed { (boxed(one)) }
        }
    }
}

fn edge(one: &Placed<'_>, above: &Placed<'_>, most: f64) -> Markup {
    let (from_x, from_y) = (above.x() + BOX_WIDTH, above.y() + BOX_HEIGHT / 2.0);
    let (to_x, to_y) = (one.x(), one.y() + BOX_HEIGHT / 2.0);
    let bend = to_x - COLUMN_GAP + 12.0;
    let path = format!("M{from_x} {from_y} H{bend} V{to_y} H{to_x}");
    let vertex = one.vertex;
    let class = if vertex.saturated {
        "edge bad"
    } else if vertex.downgraded {
        "edge warn"
    } else {
        "edge"
    };
    let width = 1.5 + 5.0 * vertex.needed_bytes_per_s as f64 / most;
    html! {
        path class=(class) d=(path) stroke-width=(format!("{width:.1}")) {}
        @if let Some(now) = vertex.now_bytes_per_s {
            text.rate x=(to_x - 6.0) y=(to_y - 6.0) text-anchor="end" {
                (gb_per_s(now)) "/" (gb_per_s(vertex.needed_bytes_per_s))
            }
        }
    }
}

fn boxed(one: &Placed<'_>) -> Markup {
    let (x, y) = (one.x(), one.y());
    let lines = lines(one.vertex);
    html! {
        g {
            rect x=(x) y=(y) width=(BOX_WIDTH) height=(BOX_HEIGHT) rx="6" {}
            @for (number, line) in lines.iter().enumerate() {
                text class=(if number == 0 { "name" } else { "more" }) x=(x + 8.0)
                    y=(format!("{:.0}", y + 17.0 + 12.0 * number as f64)) {
                    (cut(line, if number == 0 { NAME_LETTERS_MAX } else { LETTERS_MAX }))
                }
            }
            title { (lines.join(", ")) }
        }
    }
}

/// At most three lines of a box.
fn lines(vertex: &TopologyVertex) -> Vec<String> {
    let link = vertex.link.clone().unwrap_or_default();
    let lines = match &vertex.drive {
        Some(drive) => {
            let model = drive.model.clone().unwrap_or_default();
            [
                format!("{} {}", drive.disks.join(" "), model),
                format!("{} {link}", vertex.id),
                drive.queues.clone(),
            ]
        }
        None => [vertex.id.clone(), vertex.kind.replace('_', " "), format!("{}{link}", vertex.remark)],
    };
    lines.into_iter().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

fn cut(line: &str, letters_max: usize) -> String {
    if line.chars().count() <= letters_max {
        return line.to_owned();
    }
    line.chars().take(letters_max - 1).chain(['…']).collect()
}

/// Gives every drive a row of its own and everything above the middle of what is below it.
fn place(topology: &Topology) -> Vec<Placed<'_>> {
    let mut placed: Vec<Placed<'_>> = Vec::new();
    for vertex in &topology.vertices {
        let above = placed.iter().position(|other| Some(&other.vertex.id) == vertex.above.as_ref());
        let column = above.map_or(0, |above| placed[above].column + 1);
        placed.push(Placed { vertex, above, column, row: 0.0 });
    }
    let parents: Vec<Option<usize>> = placed.iter().map(|one| one.above).collect();
    let mut next = 0.0;
    for (index, one) in placed.iter_mut().enumerate() {
        if !parents.contains(&Some(index)) {
            one.row = next;
            next += 1.0;
        }
    }
    for index in (0..placed.len()).rev() {
        let rows: Vec<f64> = (0..placed.len())
            .filter(|&below| parents[below] == Some(index))
            .map(|below| placed[below].row)
            .collect();
        if let (Some(first), Some(last)) = (rows.first(), rows.last()) {
            placed[index].row = (first + last) / 2.0;
        }
    }
    placed
}
