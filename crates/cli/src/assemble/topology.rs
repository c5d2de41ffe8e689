//! The topology of a host as the wire types spell it.

use overdrive_host::topology as host;
use overdrive_host::topology::{flow, moves};
use overdrive_report::record as wire;

/// Copies a topology into its wire type.
pub(crate) fn topology(found: &host::Topology) -> wire::Topology {
    let name = |index: usize| found.vertices[index].id.clone();
    wire::Topology {
        needed_bytes_per_s: found.needed,
        ceiling_bytes_per_s: found.ceiling,
        ceiling_full_links_bytes_per_s: moves::ceiling_with_full_links(found),
        vertices: (0..found.vertices.len()).map(|index| vertex(found, index)).collect(),
        saturated: found.saturated.iter().map(|&index| name(index)).collect(),
        moves: found
            .moves
            .iter()
            .map(|card| wire::TopologyMove {
                disks: card.disks.clone(),
                from: card.from.clone(),
                to: card.to.clone(),
                instead_of: card.instead_of.clone(),
                ceiling_bytes_per_s: card.ceiling,
            })
            .collect(),
        left_out: found.left_out.clone(),
    }
}

fn vertex(found: &host::Topology, index: usize) -> wire::TopologyVertex {
    let vertex = &found.vertices[index];
    let edge = &vertex.edge;
    wire::TopologyVertex {
        id: vertex.id.clone(),
        kind: vertex.kind.name().to_owned(),
        above: vertex.above.map(|above| found.vertices[above].id.clone()),
        remark: vertex.remark.clone(),
        link: edge.link.map(|link| link.to_string()),
        link_possible: edge.link_possible.map(|link| link.to_string()),
        now_bytes_per_s: edge.now,
        possible_bytes_per_s: edge.possible,
        needed_bytes_per_s: edge.needed,
        carried_bytes_per_s: edge.carried,
        gain_bytes_per_s: flow::gain_without(found, index),
        capacity_source: edge.source.to_owned(),
        drives: edge.drives as u64,
        downgraded: edge.is_downgraded(),
        saturated: edge.is_saturated(),
        drive: vertex.drive.as_ref().map(|drive| wire::TopologyDrive {
            disks: drive.disks.clone(),
            model: drive.model.clone(),
            needed_source: drive.needed_source.clone(),
            queues: drive.queues.clone(),
            interrupts: drive.interrupts.clone(),
        }),
    }
}
