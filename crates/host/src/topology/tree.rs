//! Builds the tree from what /sys says: the real path of a PCI device names everything it hangs on.

use super::{Drive, Edge, Kind, Known, Topology, Vertex};
use crate::facts::numa::NumaFacts;
use crate::facts::parse::{self, CpuSet};
use crate::facts::pcie::{Link, LinkFacts, PcieFacts, is_address};
use crate::root::Root;
use crate::target::{DiskFacts, TargetFacts};
use overdrive_base::size::format_size;

/// What each packet carries beside its payload: header, sequence number, checksum, framing.
const PACKET_OVERHEAD_BYTES: u64 = 24;
/// The payload of a packet where it cannot be read (the configuration space is for root).
const PAYLOAD_BYTES_ASSUMED: u64 = 256;

/// What host bridges carry, measured by others; nothing on a host tells it. Processor, bytes/s, source.
const BRIDGES: [(&str, u64, &str); 1] = [(
    "Threadripper PRO 39",
    39_400_000_000,
    "measured on this processor: ten drives gave 50 GiB/s, eight of them on one bridge (T. Poder, 11M IOPS)",
)];

/// Names of /sys/block that are no drives.
const NO_DRIVES: [&str; 9] = ["loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd", "drbd"];

/// Every disk of a root that may hang on a PCI device.
pub(super) fn disks(root: &Root) -> Vec<String> {
    let names = root.list("/sys/block").value().cloned().unwrap_or_default();
    let is_path = |name: &str| name.strip_prefix("nvme").is_some_and(|rest| rest.contains('c'));
    names
        .into_iter()
        .filter(|name| !NO_DRIVES.iter().any(|no| name.starts_with(no)) && !is_path(name))
        .collect()
}

/// Builds the tree of the disks of some targets.
pub(super) fn build(root: &Root, targets: &[TargetFacts], known: &Known) -> Topology {
    let mut builder = Builder {
        root,
        numa: NumaFacts::read(root),
        bridge: bridge_limit(root, known),
        topology: Topology::default(),
    };
    for disk in targets.iter().flat_map(|target| &target.disks) {
        match &disk.pcie {
            Some(pcie) => builder.add(disk, pcie, known),
            None => builder.topology.left_out.push(format!("{}: hangs on no PCI device", disk.name())),
        }
    }
    builder.topology.arranged()
}

/// What a host bridge carries, and where that is known from.
fn bridge_limit(root: &Root, known: &Known) -> Option<(u64, &'static str)> {
    if let Some(bytes) = known.bridge {
        return Some((bytes, "as told with --bridge-limit"));
    }
    let info = root.text("/proc/cpuinfo");
    let model = parse::field(info.value()?, "model name")?.to_owned();
    BRIDGES.iter().find(|(name, _, _)| model.contains(name)).map(|&(_, bytes, source)| (bytes, source))
}

struct Builder<'a> {
    root: &'a Root,
    numa: NumaFacts,
    bridge: Option<(u64, &'static str)>,
    topology: Topology,
}

impl Builder<'_> {
    fn add(&mut self, disk: &DiskFacts, pcie: &PcieFacts, known: &Known) {
        let vertices = &mut self.topology.vertices;
        if let Some(drive) = vertices.iter_mut().find(|vertex| vertex.folder == pcie.folder) {
            // A further namespace of the same controller shares its link.
            if let Some(drive) =
                drive.drive.as_mut().filter(|drive| !drive.disks.iter().any(|d| d == disk.name()))
            {
                drive.disks.push(disk.name().to_owned());
            }
            return;
        }
        let mut above = self.node(pcie);
        let mut folder = String::new();
        for part in pcie.folder.split('/').filter(|part| !part.is_empty()) {
            folder = format!("{folder}/{part}");
            if folder == pcie.folder {
                break;
            }
            let is_bridge = part.strip_prefix("pci").is_some_and(|rest| rest.contains(':'));
            if is_bridge || is_address(part) {
                above = self.port(&folder, part, is_bridge, above);
            }
        }
        let edge = link_edge(
            self.root,
            &pcie.folder,
            self.kind_of(above),
            &self.topology.vertices[above],
            payload(pcie),
        );
        let (needed, needed_source) = needs(disk, &edge, pcie, known);
        let drive = Drive {
            disks: vec![disk.name().to_owned()],
            model: disk.model().map(str::to_owned),
            needed,
            needed_source,
            queues: queues(disk),
            interrupts: self.interrupts(pcie),
        };
        self.push(Kind::Drive, &pcie.address, &pcie.folder, Some(above), edge, Some(drive));
    }

    fn kind_of(&self, index: usize) -> Kind {
        self.topology.vertices[index].kind
    }

    fn push(
        &mut self,
        kind: Kind,
        id: &str,
        folder: &str,
        above: Option<usize>,
        edge: Edge,
        drive: Option<Drive>,
    ) -> usize {
        let (id, folder, remark) = (id.to_owned(), folder.to_owned(), String::new());
        self.topology.vertices.push(Vertex { kind, id, folder, above, edge, drive, remark });
        self.topology.vertices.len() - 1
    }

    /// The memory node of a device; -1 is the only node where there is one.
    fn node(&mut self, pcie: &PcieFacts) -> usize {
        let nodes = self.numa.nodes.value().map_or(0, Vec::len);
        let told = pcie.numa_node.get().and_then(|id| u32::try_from(id).ok());
        let id = told.or_else(|| (nodes <= 1).then_some(0));
        let name = id.map_or_else(|| "unknown node".to_owned(), |id| format!("node{id}"));
        if let Some(found) = self.topology.vertices.iter().position(|vertex| vertex.id == name) {
            return found;
        }
        let node = id.and_then(|id| self.numa.node(id));
        let cpus = node.and_then(|node| node.cpus.value()).map(|cpus| format!("CPUs {cpus}"));
        let memory = node.and_then(|node| node.total_bytes.get()).map(format_size);
        let remark: Vec<String> = cpus.into_iter().chain(memory).collect();
        let index = self.push(Kind::Node, &name, "", None, Edge::default(), None);
        self.topology.vertices[index].remark = remark.join(", ");
        index
    }

    /// A bridge or port on the way; made when it is met first.
    fn port(&mut self, folder: &str, name: &str, is_bridge: bool, above: usize) -> usize {
        if let Some(found) = self.topology.vertices.iter().position(|vertex| vertex.folder == folder) {
            return found;
        }
        let over = self.kind_of(above);
        let (kind, edge) = if is_bridge {
            let limit = self.bridge.filter(|_| over == Kind::Node);
            let now = limit.map(|(bytes, _)| bytes);
            let source = limit.map_or("", |(_, source)| source);
            (Kind::HostBridge, Edge { now, possible: now, source, ..Edge::default() })
        } else {
            let kind = match over {
                Kind::Node | Kind::HostBridge | Kind::Drive => Kind::RootPort,
                Kind::RootPort | Kind::SwitchDown => Kind::SwitchUp,
                Kind::SwitchUp => Kind::SwitchDown,
            };
            let has_link = kind == Kind::SwitchUp;
            let edge = if has_link {
                link_edge(self.root, folder, over, &self.topology.vertices[above], PAYLOAD_BYTES_ASSUMED)
            } else {
                Edge::default()
            };
            (kind, edge)
        };
        self.push(kind, name, folder, Some(above), edge, None)
    }

    fn interrupts(&self, pcie: &PcieFacts) -> String {
        let Some(list) = pcie.interrupts.value().filter(|list| !list.is_empty()) else {
            return format!("not told: {}", pcie.interrupts.why().unwrap_or_else(|| "none named".to_owned()));
        };
        let Some(cpus) = pcie.completion_cpus() else {
            return format!("{} interrupts, their CPUs are not told", list.len());
        };
        let node = pcie.numa_node.get().and_then(|id| u32::try_from(id).ok());
        let near = node.and_then(|id| self.numa.node(id)?.cpus.value());
        let far = near.map_or(0, |near| cpus.iter().filter(|&cpu| !near.contains(cpu)).count());
        let far = if far > 0 { format!(", {far} of them on another node") } else { String::new() };
        let (count, verb) = (list.len(), if list.len() == 1 { "interrupt" } else { "interrupts" });
        format!("{count} {verb} on {} {cpus}{far}", if cpus.len() == 1 { "CPU" } else { "CPUs" })
    }
}

impl Topology {
    /// Depth first, so that everything stands behind what it hangs on and beside its own.
    fn arranged(self) -> Topology {
        let mut order = Vec::new();
        let mut open: Vec<usize> = self.sorted_below(None);
        while let Some(next) = open.pop() {
            order.push(next);
            open.extend(self.sorted_below(Some(next)));
        }
        let place = |index: usize| order.iter().position(|&other| other == index);
        let vertices = order
            .iter()
            .map(|&index| {
                let vertex = self.vertices[index].clone();
                Vertex { above: vertex.above.and_then(place), ..vertex }
            })
            .collect();
        Topology { vertices, ..self }
    }

    /// What hangs on a vertex, last name first: it is taken from the end.
    fn sorted_below(&self, above: Option<usize>) -> Vec<usize> {
        let mut below: Vec<usize> = self.below(above).collect();
        below.sort_by(|&a, &b| self.vertices[b].id.cmp(&self.vertices[a].id));
        below
    }
}

/// The link from a device up to a port. Both ends tell; what only one tells is taken from it.
fn link_edge(root: &Root, folder: &str, over: Kind, above: &Vertex, payload_bytes: u64) -> Edge {
    let own = LinkFacts::read(root, folder);
    let has_port = matches!(over, Kind::RootPort | Kind::SwitchDown);
    let port = has_port.then(|| LinkFacts::read(root, &above.folder));
    let now = own.now().or_else(|| port.as_ref()?.now());
    let best = |pick: fn(&LinkFacts) -> Option<u32>| match (pick(&own), port.as_ref().and_then(pick)) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let possible = best(|link| link.speed_max_mts.get())
        .zip(best(|link| link.width_max.get()))
        .map(|(speed_mts, width)| Link { speed_mts, width });
    let rate = |link: Link| carries(link, payload_bytes);
    Edge {
        link: now,
        link_possible: possible,
        now: now.map(rate),
        possible: possible.map(rate),
        ..Edge::default()
    }
}

/// What is left of a link's rate when each packet of payload has its header, bytes a second.
fn carries(link: Link, payload_bytes: u64) -> u64 {
    let share = payload_bytes as f64 / (payload_bytes + PACKET_OVERHEAD_BYTES) as f64;
    (link.bytes_per_second() as f64 * share) as u64
}

fn payload(pcie: &PcieFacts) -> u64 {
    pcie.path
        .express
        .value()
        .map_or(PAYLOAD_BYTES_ASSUMED, |express| u64::from(express.payload_bytes.max(64)))
}

/// What a drive could read, and where that is known from: its model, else the link it was made for.
fn needs(disk: &DiskFacts, edge: &Edge, pcie: &PcieFacts, known: &Known) -> (u64, String) {
    let told = disk.model().and_then(|model| known.drive?(model));
    if let Some(told) = told {
        return told;
    }
    let own = pcie.link.speed_max_mts.get().zip(pcie.link.width_max.get());
    let own = own.map(|(speed_mts, width)| Link { speed_mts, width });
    match own {
        Some(link) => (carries(link, payload(pcie)), format!("what a drive of {link} can send")),
        None => match edge.now {
            Some(now) => (now, "what its link carries".to_owned()),
            None => (0, "not known: neither model nor link tells".to_owned()),
        },
    }
}

/// How hardware queues are dealt out to processors.
fn queues(disk: &DiskFacts) -> String {
    let queues = match disk.block.hardware_queues.value() {
        Some(queues) if !queues.is_empty() => queues,
        _ => return "queues not told".to_owned(),
    };
    let cpus: CpuSet = queues.iter().flat_map(|queue| queue.cpus.iter()).collect();
    let (most, count) = (disk.block.cpus_per_queue_max().unwrap_or(0), queues.len());
    let noun = if count == 1 { "queue" } else { "queues" };
    match most {
        0 | 1 => format!("{count} {noun}, one CPU each"),
        _ => format!("{count} {noun} for {} CPUs, up to {most} share one", cpus.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_off_the_link() {
        let link = Link { speed_mts: 16_000, width: 4 };
        assert_eq!(carries(link, 256) / 1_000_000, 7_201);
        assert!(carries(link, 128) < carries(link, 512));
    }

    #[test]
    fn pseudo_disks_and_hidden_paths_are_no_drives() {
        let root = Root::from_capture(
            "/sys/block/loop0/\n/sys/block/nvme0n1/\n/sys/block/nvme0c1n1/\n/sys/block/zram0/\n/sys/block/sda/\n",
        )
        .unwrap();
        assert_eq!(disks(&root), ["nvme0n1", "sda"]);
    }
}
