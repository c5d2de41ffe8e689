//! The wire types of the way from drives to processors, with what each part of it carries.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The way of a set of drives to the processors. Rates are those of all drives reading at once, headers of
/// packets taken off.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Topology {
    /// What the drives could read together.
    pub needed_bytes_per_s: u64,
    /// What of it arrives.
    pub ceiling_bytes_per_s: u64,
    /// What would arrive if every link ran as both its ends can.
    pub ceiling_full_links_bytes_per_s: u64,
    /// What the way consists of; each behind the one above it.
    pub vertices: Vec<TopologyVertex>,
    /// The vertices whose way up carries less than the drives below could send; the first to saturate first.
    pub saturated: Vec<String>,
    /// Cards that could stand elsewhere.
    pub moves: Vec<TopologyMove>,
    /// What is not in the picture, with the reason.
    pub left_out: Vec<String>,
}

/// One thing on the way, and what leads up from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopologyVertex {
    /// Its name: `node0`, `pci0000:40`, a PCI address.
    pub id: String,
    /// `node`, `host_bridge`, `root_port`, `switch_upstream`, `switch_downstream` or `drive`.
    pub kind: String,
    /// The vertex above; `null` for a node.
    pub above: Option<String>,
    /// Processors and memory of a node.
    pub remark: String,
    /// The link up as it runs.
    pub link: Option<String>,
    /// The best link that both ends could have.
    pub link_possible: Option<String>,
    /// What leads up carries now; `null` where nothing tells.
    pub now_bytes_per_s: Option<u64>,
    /// What it could carry.
    pub possible_bytes_per_s: Option<u64>,
    /// What the drives below could send.
    pub needed_bytes_per_s: u64,
    /// What gets through.
    pub carried_bytes_per_s: u64,
    /// How much more would arrive in all if this carried everything.
    pub gain_bytes_per_s: u64,
    /// Where the capacity is known from when it is not the link.
    pub capacity_source: String,
    /// How many drives are below.
    pub drives: u64,
    /// The link is slower or narrower than both ends could.
    pub downgraded: bool,
    /// It carries less than the drives below could send.
    pub saturated: bool,
    /// The drive, for one.
    pub drive: Option<TopologyDrive>,
}

/// A drive in the picture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopologyDrive {
    /// Its disks.
    pub disks: Vec<String>,
    /// Its model.
    pub model: Option<String>,
    /// Where what it could read is known from.
    pub needed_source: String,
    /// How its hardware queues are dealt out to processors.
    pub queues: String,
    /// Where its completion interrupts go.
    pub interrupts: String,
}

/// A card that could stand elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TopologyMove {
    /// The disks on it.
    pub disks: Vec<String>,
    /// The host bridge it hangs on.
    pub from: String,
    /// The host bridge that has room.
    pub to: String,
    /// What stands there now; empty for nothing that counts.
    pub instead_of: String,
    /// The ceiling of the whole set afterwards.
    pub ceiling_bytes_per_s: u64,
}
