//! How much gets through a tree of edges: what each would have to carry, what it does, and what gives first.
//!
//! All drives are taken to read at once, each as fast as it can. Every edge then carries the smaller of its
//! own capacity and what comes from below.

use super::Topology;

/// Fills in `needed`, `carried` and `drives` of every edge, the sums, and the order of saturation.
pub fn work_out(topology: &mut Topology) {
    let capacities: Vec<Option<u64>> = topology.vertices.iter().map(|vertex| vertex.edge.now).collect();
    let carried = carried(topology, &capacities);
    let demands: Vec<(u64, usize)> =
        (0..topology.vertices.len()).map(|index| demand(topology, index)).collect();
    for (vertex, (demand, &carried)) in topology.vertices.iter_mut().zip(demands.into_iter().zip(&carried)) {
        (vertex.edge.needed, vertex.edge.drives) = demand;
        vertex.edge.carried = carried;
    }
    let nodes: Vec<usize> = topology.below(None).collect();
    topology.needed = nodes.iter().map(|&node| topology.vertices[node].edge.needed).sum();
    topology.ceiling = nodes.iter().map(|&node| carried[node]).sum();
    let mut saturated: Vec<usize> =
        (0..topology.vertices.len()).filter(|&index| topology.vertices[index].edge.is_saturated()).collect();
    // As load rises evenly, the edge with the smallest share of what it needs gives first.
    saturated.sort_by(|&a, &b| share(topology, a).total_cmp(&share(topology, b)));
    topology.saturated = saturated;
}

/// How much of what is needed an edge carries.
fn share(topology: &Topology, index: usize) -> f64 {
    let edge = &topology.vertices[index].edge;
    edge.now.map_or(1.0, |now| now as f64 / edge.needed.max(1) as f64)
}

/// What the drives at and below a vertex could send, and how many they are.
fn demand(topology: &Topology, index: usize) -> (u64, usize) {
    let own = topology.vertices[index].drive.as_ref().map_or((0, 0), |drive| (drive.needed, 1));
    topology
        .below(Some(index))
        .map(|below| demand(topology, below))
        .fold(own, |(needed, drives), more| (needed.saturating_add(more.0), drives + more.1))
}

/// What each edge carries when edges have these capacities.
fn carried(topology: &Topology, capacities: &[Option<u64>]) -> Vec<u64> {
    let mut carried = vec![0_u64; topology.vertices.len()];
    // Every vertex stands behind the one above it, so this order meets what is below first.
    for index in (0..topology.vertices.len()).rev() {
        let own = topology.vertices[index].drive.as_ref().map_or(0, |drive| drive.needed);
        let from_below: u64 =
            topology.below(Some(index)).map(|below| carried[below]).fold(own, u64::saturating_add);
        carried[index] = from_below.min(capacities[index].unwrap_or(u64::MAX));
    }
    carried
}

/// The ceiling of the whole set when edges have these capacities.
#[must_use]
pub fn ceiling_with(topology: &Topology, capacities: &[Option<u64>]) -> u64 {
    let carried = carried(topology, capacities);
    topology.below(None).map(|node| carried[node]).sum()
}

/// How much the ceiling would rise if the edge above `index` carried everything.
#[must_use]
pub fn gain_without(topology: &Topology, index: usize) -> u64 {
    let mut capacities: Vec<Option<u64>> = topology.vertices.iter().map(|vertex| vertex.edge.now).collect();
    capacities[index] = None;
    ceiling_with(topology, &capacities).saturating_sub(topology.ceiling)
}

#[cfg(test)]
mod tests {
    use super::super::{Drive, Edge, Kind, Vertex};
    use super::*;

    /// A tree from rows of (above, capacity, what a drive there needs).
    fn tree(rows: &[(Option<usize>, Option<u64>, u64)]) -> Topology {
        let vertex = |&(above, now, needed): &(Option<usize>, Option<u64>, u64)| Vertex {
            kind: Kind::Drive,
            id: String::new(),
            folder: String::new(),
            above,
            edge: Edge { now, ..Edge::default() },
            drive: (needed > 0).then(|| Drive {
                disks: Vec::new(),
                model: None,
                needed,
                needed_source: String::new(),
                queues: String::new(),
                interrupts: String::new(),
            }),
            remark: String::new(),
        };
        let mut topology = Topology { vertices: rows.iter().map(vertex).collect(), ..Topology::default() };
        work_out(&mut topology);
        topology
    }

    #[test]
    fn a_shared_edge_holds_back_what_is_below_it() {
        // A node, a bridge of 10 with three drives of 5, a bridge without a known limit with one of 5.
        let t = tree(&[
            (None, None, 0),
            (Some(0), Some(10), 0),
            (Some(1), Some(5), 5),
            (Some(1), Some(5), 5),
            (Some(1), Some(2), 5),
            (Some(0), None, 0),
            (Some(5), Some(5), 5),
        ]);
        assert_eq!((t.needed, t.ceiling), (20, 15));
        let edges: Vec<_> =
            t.vertices.iter().map(|v| (v.edge.needed, v.edge.carried, v.edge.drives)).collect();
        assert_eq!(edges[1], (15, 10, 3));
        assert_eq!(edges[4], (5, 2, 1));
        assert_eq!(edges[0], (20, 15, 4));
        assert_eq!(t.saturated, [4, 1], "two fifths before two thirds");
        assert_eq!((gain_without(&t, 1), gain_without(&t, 4)), (2, 0));
    }

    #[test]
    fn nothing_saturates_where_nothing_is_too_small() {
        let t = tree(&[(None, None, 0), (Some(0), Some(5), 5)]);
        assert_eq!((t.needed, t.ceiling, t.saturated.len()), (5, 5, 0));
        assert_eq!(tree(&[]).ceiling, 0);
    }
}
