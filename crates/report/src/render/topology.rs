//! What the picture of a topology means, in sentences; the same for text and HTML.

use crate::record::{Topology, TopologyVertex};
use crate::show::{gb_per_s, gib_per_s};
use std::fmt::Write;

/// The ceiling, what gives first, what costs most, what could be moved: a heading and a sentence each.
pub(crate) fn sentences(topology: &Topology) -> Vec<(&'static str, String)> {
    let mut said = vec![("Ceiling", ceiling(topology))];
    let vertex = |id: &String| topology.vertices.iter().find(|vertex| vertex.id == *id);
    let saturated: Vec<&TopologyVertex> = topology.saturated.iter().filter_map(vertex).collect();
    if let Some(first) = saturated.first() {
        said.push(("First", format!("to saturate is {}", edge(first))));
    }
    let costly = saturated.iter().max_by_key(|vertex| vertex.gain_bytes_per_s);
    if let Some(costly) = costly.filter(|costly| costly.gain_bytes_per_s > 0 && costly.id != saturated[0].id)
    {
        said.push(("Costliest", format!("is {}", edge(costly))));
    }
    for vertex in topology.vertices.iter().filter(|vertex| vertex.downgraded) {
        let gain = topology.ceiling_full_links_bytes_per_s.saturating_sub(topology.ceiling_bytes_per_s);
        let effect = match gain {
            0 => "; the ceiling stays the same, something above holds it".to_owned(),
            _ => format!(
                "; with all links in full the ceiling is {}",
                both(topology.ceiling_full_links_bytes_per_s)
            ),
        };
        said.push((
            "Downgraded",
            format!(
                "{} runs at {}, both ends can do {}{effect}",
                name(vertex),
                vertex.link.as_deref().unwrap_or("?"),
                vertex.link_possible.as_deref().unwrap_or("?")
            ),
        ));
    }
    for card in &topology.moves {
        let instead = if card.instead_of.is_empty() {
            String::new()
        } else {
            format!(" (there now: {}; they could change places)", card.instead_of)
        };
        said.push((
            "Move",
            format!(
                "the card with {} from {} to a slot of {}{instead}: the ceiling becomes {}",
                card.disks.join(", "),
                card.from,
                card.to,
                both(card.ceiling_bytes_per_s)
            ),
        ));
    }
    said.extend(queues(topology).into_iter().map(|line| ("Queues", line)));
    said.extend(topology.left_out.iter().map(|line| ("Left out", line.clone())));
    said
}

fn ceiling(topology: &Topology) -> String {
    let drives = topology.vertices.iter().filter(|vertex| vertex.drive.is_some()).count();
    let who = match drives {
        0 => return "no drive hangs on a PCI device here".to_owned(),
        1 => "the drive could read".to_owned(),
        n => format!("{n} drives could read"),
    };
    if topology.needed_bytes_per_s == 0 {
        return "what can be read is not known: neither models nor links tell".to_owned();
    }
    let mut text = format!("{who} {}; ", both(topology.needed_bytes_per_s));
    if topology.ceiling_bytes_per_s == topology.needed_bytes_per_s {
        text += "nothing that can be told holds them back";
    } else {
        let _ = write!(text, "{} of it arrives", both(topology.ceiling_bytes_per_s));
    }
    let untold = topology.vertices.iter().filter(|v| v.kind == "host_bridge" && v.now_bytes_per_s.is_none());
    let shared = untold.filter(|vertex| vertex.drives > 1).count();
    if shared > 0 {
        text +=
            ". What a host bridge carries is not told by the kernel: --bridge-limit takes it into account";
    }
    text
}

/// A rate in both units in use.
fn both(bytes_per_s: u64) -> String {
    format!("{} GB/s ({} GiB/s)", gb_per_s(bytes_per_s), gib_per_s(bytes_per_s as f64))
}

/// What an edge is called: by what it leads up from.
fn name(vertex: &TopologyVertex) -> String {
    let disks =
        vertex.drive.as_ref().map(|drive| format!(" ({})", drive.disks.join(", "))).unwrap_or_default();
    match vertex.kind.as_str() {
        "host_bridge" => format!("the host bridge {}", vertex.id),
        _ => format!("the link of {}{disks}", vertex.id),
    }
}

fn edge(vertex: &TopologyVertex) -> String {
    let shared =
        if vertex.drives > 1 { format!(", shared by {} drives", vertex.drives) } else { String::new() };
    let now = vertex.now_bytes_per_s.unwrap_or(0);
    let source = if vertex.capacity_source.is_empty() {
        String::new()
    } else {
        format!(" ({})", vertex.capacity_source)
    };
    format!(
        "{}{shared}: it carries {} of {} GB/s{source}",
        name(vertex),
        gb_per_s(now),
        gb_per_s(vertex.needed_bytes_per_s)
    )
}

/// Queues and interrupts, drives that are alike together.
fn queues(topology: &Topology) -> Vec<String> {
    let mut alike: Vec<(String, Vec<&str>)> = Vec::new();
    for drive in topology.vertices.iter().filter_map(|vertex| vertex.drive.as_ref()) {
        let text = format!("{}; interrupts: {}", drive.queues, drive.interrupts);
        let disks = drive.disks.iter().map(String::as_str);
        match alike.iter_mut().find(|(known, _)| *known == text) {
            Some((_, all)) => all.extend(disks),
            None => alike.push((text, disks.collect())),
        }
    }
    alike.into_iter().map(|(text, disks)| format!("{}: {text}", disks.join(" "))).collect()
}
