//! Memory nodes: their CPUs, sizes and distances, and whether pages are moved between them.
//!
//! Which node a disk hangs on is a fact of the disk.

use super::parse::{self, CpuSet};
use super::{Fact, FactRow, Rows};
use crate::root::Root;
use overdrive_base::size::format_size;

const NODES: &str = "/sys/devices/system/node";

/// What is known of the memory nodes.
#[derive(Debug, Clone)]
pub struct NumaFacts {
    /// The nodes, in ascending order; absent on a kernel built without NUMA.
    pub nodes: Fact<Vec<Node>>,
    /// Automatic balancing: 0 off, 1 on, 2 tiering.
    pub balancing: Fact<u64>,
}

/// One node.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its number.
    pub id: u32,
    /// Its CPUs; empty for a node of memory only.
    pub cpus: Fact<CpuSet>,
    /// Distance to each node in ascending order, 10 being local.
    pub distances: Fact<Vec<u64>>,
    /// Memory in bytes.
    pub total_bytes: Fact<u64>,
    /// Free memory in bytes.
    pub free_bytes: Fact<u64>,
}

impl NumaFacts {
    /// Reads them.
    #[must_use]
    pub fn read(root: &Root) -> NumaFacts {
        NumaFacts {
            nodes: root.list(NODES).map(|names| {
                let ids = names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok());
                ids.map(|id| read_node(root, id)).collect()
            }),
            balancing: root.text("/proc/sys/kernel/numa_balancing").parse(parse::number),
        }
    }

    /// The node of that number.
    #[must_use]
    pub fn node(&self, id: u32) -> Option<&Node> {
        self.nodes.value()?.iter().find(|node| node.id == id)
    }

    /// How far `to` is from `from`, 10 being local.
    #[must_use]
    pub fn distance(&self, from: u32, to: u32) -> Option<u64> {
        let position = self.nodes.value()?.iter().position(|node| node.id == to)?;
        self.node(from)?.distances.value()?.get(position).copied()
    }

    pub(super) fn rows(&self) -> Vec<FactRow> {
        let mut rows = Rows::new("numa");
        rows.add("nodes", "NUMA nodes", &self.nodes, |nodes| nodes.len().to_string());
        for node in self.nodes.value().into_iter().flatten() {
            let id = node.id;
            rows.plain(&format!("node{id}.cpus"), &format!("Node {id} CPUs"), &node.cpus, "");
            rows.add(
                &format!("node{id}.distances"),
                &format!("Node {id} distances"),
                &node.distances,
                |list| list.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
            );
            rows.add(
                &format!("node{id}.memory"),
                &format!("Node {id} memory"),
                &node.total_bytes,
                |&total| {
                    let free = node
                        .free_bytes
                        .get()
                        .map_or_else(String::new, |free| format!(", {} free", format_size(free)));
                    format!("{}{free}", format_size(total))
                },
            );
        }
        rows.plain("balancing", "Automatic NUMA balancing", &self.balancing, "");
        rows.into_vec()
    }
}

fn read_node(root: &Root, id: u32) -> Node {
    let attr = |name: &str| root.text(&format!("{NODES}/node{id}/{name}"));
    // Each line is "Node 0 MemTotal: ...": without that beginning it reads as /proc/meminfo does.
    let memory = attr("meminfo").map(|text| text.replace(&format!("Node {id} "), ""));
    let bytes = |key| memory.clone().parse(|text| parse::field_kib(text, key));
    Node {
        id,
        cpus: attr("cpulist").parse(parse::cpu_list),
        distances: attr("distance").parse(parse::numbers),
        total_bytes: bytes("MemTotal"),
        free_bytes: bytes("MemFree"),
    }
}
