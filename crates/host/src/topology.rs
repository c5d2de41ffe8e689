//! The way from drives to processors as a tree with budgets: drive -> switch -> root port -> host bridge ->
//! memory node, each edge with what it carries now, could carry, and would have to carry; then the edge that
//! saturates first, the ceiling of the whole set, and where a card could move.
//!
//! [`tree`] reads and builds, [`flow`] and [`moves`] are arithmetic on what was built. Nothing is drawn here.
//! What memory and the links between sockets carry is not told by the kernel and not part of the arithmetic.

pub mod flow;
pub mod moves;
pub mod tree;

use crate::capture::{self, CaptureError};
use crate::facts::pcie::Link;
use crate::root::Root;
use crate::target::{TargetError, TargetFacts, TargetIdentity};
use thiserror::Error;

/// What a vertex of the tree stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A memory node with its processors.
    Node,
    /// Where a PCI domain or bus begins; also the domain that a VMD device opens.
    HostBridge,
    /// A port of the processor or chipset.
    RootPort,
    /// The upper port of a switch.
    SwitchUp,
    /// A lower port of a switch.
    SwitchDown,
    /// The PCI device a drive is reached through.
    Drive,
}

impl Kind {
    /// The word shown and stored.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Node => "node",
            Kind::HostBridge => "host_bridge",
            Kind::RootPort => "root_port",
            Kind::SwitchUp => "switch_upstream",
            Kind::SwitchDown => "switch_downstream",
            Kind::Drive => "drive",
        }
    }
}

/// One thing on the way, with the edge that leads up from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Vertex {
    /// What it is.
    pub kind: Kind,
    /// Its name: `node0`, `pci0000:40`, a PCI address.
    pub id: String,
    /// Where it stands in /sys.
    pub folder: String,
    /// The vertex above, as an index; none for a node.
    pub above: Option<usize>,
    /// What leads up; `capacity` is none where nothing tells it.
    pub edge: Edge,
    /// The drive, for one.
    pub drive: Option<Drive>,
    /// What else is known of it, in words: processors of a node.
    pub remark: String,
}

/// What leads up from a vertex. Rates are bytes a second in one direction, headers of packets taken off.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Edge {
    /// The link as it runs.
    pub link: Option<Link>,
    /// The best link that both ends could have.
    pub link_possible: Option<Link>,
    /// What it carries as it is.
    pub now: Option<u64>,
    /// What it could carry.
    pub possible: Option<u64>,
    /// What the drives below could send together.
    pub needed: u64,
    /// What reaches it at most, and passes.
    pub carried: u64,
    /// How many drives are below.
    pub drives: usize,
    /// Where `now` is known from when it is not the link.
    pub source: &'static str,
}

impl Edge {
    /// Whether it runs slower or narrower than both ends could.
    #[must_use]
    pub fn is_downgraded(&self) -> bool {
        self.link
            .zip(self.link_possible)
            .is_some_and(|(now, best)| now.speed_mts < best.speed_mts || now.width < best.width)
    }

    /// Whether the drives below could send more than it carries.
    #[must_use]
    pub fn is_saturated(&self) -> bool {
        self.now.is_some_and(|now| self.needed > now)
    }
}

/// A drive as part of the picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Drive {
    /// Its disks, such as `nvme0n1`.
    pub disks: Vec<String>,
    /// Model, where told.
    pub model: Option<String>,
    /// What it could read, bytes a second.
    pub needed: u64,
    /// Where that is known from.
    pub needed_source: String,
    /// How its hardware queues are dealt out to processors, in words.
    pub queues: String,
    /// Where its completion interrupts go, in words.
    pub interrupts: String,
}

/// A card that could stand elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    /// The disks on the card.
    pub disks: Vec<String>,
    /// The bridge they hang on.
    pub from: String,
    /// The bridge that has room.
    pub to: String,
    /// What stands there now, in words; empty for nothing.
    pub instead_of: String,
    /// The ceiling of the whole set afterwards, bytes a second.
    pub ceiling: u64,
}

/// The whole picture.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Topology {
    /// Nodes first, each followed by what hangs on it.
    pub vertices: Vec<Vertex>,
    /// What all drives could read together, bytes a second.
    pub needed: u64,
    /// What of it arrives, bytes a second.
    pub ceiling: u64,
    /// Vertices whose edge carries less than what is below could send: the first to saturate first.
    pub saturated: Vec<usize>,
    /// What could be moved to raise the ceiling.
    pub moves: Vec<Move>,
    /// What is not in the picture, with the reason.
    pub left_out: Vec<String>,
}

/// A rate in bytes a second, and where it is known from.
pub type Told = (u64, String);

/// What is known beforehand about things that do not tell.
#[derive(Debug, Default, Clone, Copy)]
pub struct Known {
    /// What each host bridge carries, bytes a second.
    pub bridge: Option<u64>,
    /// What a drive of that model reads, bytes a second, and where that is known from.
    pub drive: Option<fn(&str) -> Option<Told>>,
}

/// A target that cannot be found.
#[derive(Debug, Error)]
pub enum TopologyError {
    /// On this host.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// In the host that is read.
    #[error(transparent)]
    Capture(#[from] CaptureError),
}

impl Topology {
    /// Reads a root: the disks under the targets named, or every disk that hangs on a PCI device.
    ///
    /// # Errors
    /// When a target does not exist.
    pub fn read(root: &Root, targets: &[String], known: &Known) -> Result<Topology, TopologyError> {
        let mut traced = Vec::new();
        for name in targets {
            let identity = if root.is_live() {
                TargetIdentity::at(std::path::Path::new(name))?
            } else {
                capture::device_named(root, name)?
            };
            traced.push(TargetFacts::trace(root, &identity)?);
        }
        let mut left_out = Vec::new();
        if targets.is_empty() {
            for name in tree::disks(root) {
                match capture::device_named(root, &name).map_err(TopologyError::from) {
                    Ok(identity) => traced.push(TargetFacts::trace(root, &identity)?),
                    Err(_) => left_out.push(format!("{name}: its device number is not told")),
                }
            }
        }
        Ok(Topology { left_out, ..Topology::of(root, &traced, known) })
    }

    /// The picture of disks that were traced already.
    #[must_use]
    pub fn of(root: &Root, targets: &[TargetFacts], known: &Known) -> Topology {
        let mut topology = tree::build(root, targets, known);
        flow::work_out(&mut topology);
        topology.moves = moves::find(root, &topology);
        topology
    }

    /// The vertices directly below one, or the nodes.
    pub fn below(&self, above: Option<usize>) -> impl Iterator<Item = usize> + '_ {
        (0..self.vertices.len()).filter(move |&index| self.vertices[index].above == above)
    }
}
