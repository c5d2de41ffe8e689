//! The way from drives to processors as a tree of lines with columns of GB a second.

use super::layout::wrap;
use super::{Page, TextOptions, sections};
use crate::record::{Topology, TopologyVertex};
use crate::render::topology::sentences;
use crate::show::gb_per_s;

/// Each of the three columns of figures.
const COLUMN: usize = 8;

/// The whole picture as text.
#[must_use]
pub fn topology(topology: &Topology, options: TextOptions) -> String {
    let page = Page { width: options.width.max(60), colour: options.colour };
    let mut text = String::new();
    let roots: Vec<&TopologyVertex> = topology.vertices.iter().filter(|v| v.above.is_none()).collect();
    if !roots.is_empty() {
        let label = page.width - 3 * COLUMN;
        text += &format!("{:label$}{:>COLUMN$}{:>COLUMN$}{:>COLUMN$}\n", "GB/s", "now", "best", "needed");
    }
    for root in roots {
        branch(topology, root, "", "", &page, &mut text);
    }
    if !text.is_empty() {
        text.push('\n');
    }
    let said = sentences(topology);
    let said: Vec<(&str, String)> = said.iter().map(|(head, line)| (*head, line.clone())).collect();
    text + &sections(&said, options)
}

/// One vertex and all below it. `first` stands before its line, `rest` before what belongs to it.
fn branch(
    topology: &Topology,
    vertex: &TopologyVertex,
    first: &str,
    rest: &str,
    page: &Page,
    text: &mut String,
) {
    let below: Vec<&TopologyVertex> =
        topology.vertices.iter().filter(|v| v.above.as_ref() == Some(&vertex.id)).collect();
    // A port that leads to one drive only is drawn on the drive's line.
    if let ([drive], "root_port" | "switch_downstream") = (below.as_slice(), vertex.kind.as_str())
        && drive.drive.is_some()
    {
        line(drive, &format!("{first}{} > ", vertex.id), rest, page, text);
        return;
    }
    line(vertex, first, rest, page, text);
    for (number, next) in below.iter().enumerate() {
        let (corner, bar) = if number + 1 == below.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        branch(topology, next, &format!("{rest}{corner}"), &format!("{rest}{bar}"), page, text);
    }
}

fn line(vertex: &TopologyVertex, first: &str, rest: &str, page: &Page, text: &mut String) {
    let label = format!("{first}{}", told(vertex));
    let room = page.width - 3 * COLUMN;
    let needed = Some(vertex.needed_bytes_per_s).filter(|&needed| needed > 0);
    let figures = [vertex.now_bytes_per_s, vertex.possible_bytes_per_s, needed];
    let figures = figures.map(|rate| format!("{:>COLUMN$}", rate.map_or_else(|| "-".to_owned(), gb_per_s)));
    let link = vertex.link.as_deref().unwrap_or_default();
    let with_link = format!("{label}  {link}");
    let label = if !link.is_empty() && with_link.chars().count() < room { with_link } else { label };
    let plain = format!("{label:room$}{}", figures.concat());
    *text += &if vertex.saturated { page.paint("31", &plain) } else { plain };
    text.push('\n');
    let under = format!("{rest}   ");
    if let Some(drive) = &vertex.drive
        && let Some(model) = &drive.model
    {
        *text += &wrap(model, page.width, &under, &under);
    }
    for mark in marks(vertex) {
        *text += &wrap(&mark, page.width, &format!("{under}! "), &format!("{under}  "));
    }
}

fn told(vertex: &TopologyVertex) -> String {
    match vertex.kind.as_str() {
        "node" if vertex.remark.is_empty() => vertex.id.clone(),
        "node" => format!("{}: {}", vertex.id, vertex.remark),
        "drive" => {
            let disks = vertex.drive.as_ref().map(|drive| drive.disks.join(" ")).unwrap_or_default();
            format!("{} {disks}", vertex.id)
        }
        kind => format!("{} {}", vertex.id, kind.replace('_', " ")),
    }
}

/// What is wrong with an edge.
fn marks(vertex: &TopologyVertex) -> Vec<String> {
    let mut marks = Vec::new();
    if let (true, Some(now), Some(best)) = (vertex.downgraded, &vertex.link, &vertex.link_possible) {
        marks.push(format!("downgraded: runs at {now}, could at {best}"));
    }
    if vertex.saturated && vertex.drives > 1 {
        marks.push(format!("shared by {} drives, and too small for them together", vertex.drives));
    }
    marks
}
