//! Each swap area with the device below it, and the compressed swap devices.
//!
//! The areas themselves are in `memory`; here is what their devices say.

use super::memory::{SwapArea, read_swaps};
use super::parse;
use super::{Fact, each, machine::Named};
use crate::root::Root;
use crate::target::{folder_by_name, folders_of_mount, mounts};

/// One area and its device.
#[derive(Debug, Clone)]
pub struct SwapDevice {
    /// The line of /proc/swaps.
    pub area: SwapArea,
    /// Name of the disk or mapping that holds it, for a file that of its file system; `None` when that cannot
    /// be told.
    pub disk: Option<String>,
    /// Whether the kernel takes that disk for a rotating one.
    pub rotational: Fact<bool>,
    /// Memory node of that disk; -1 when unknown.
    pub numa_node: Fact<i64>,
    /// The mapping's identity, such as `CRYPT-LUKS2-...`; absent without a mapping.
    pub mapping: Fact<String>,
}

/// What is known of swap.
#[derive(Debug, Clone)]
pub struct SwapFacts {
    /// The areas in use.
    pub devices: Fact<Vec<SwapDevice>>,
    /// Size of each compressed device, in bytes.
    pub zram_bytes: Vec<Named>,
    /// The swap lines of /etc/fstab.
    pub fstab: Fact<Vec<String>>,
}

impl SwapDevice {
    /// Whether it is compressed memory.
    #[must_use]
    pub fn is_zram(&self) -> bool {
        self.area.is_zram()
    }

    /// Whether it lies on an NVMe drive.
    #[must_use]
    pub fn is_nvme(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.starts_with("nvme"))
    }
}

impl SwapFacts {
    pub(super) fn read(root: &Root) -> SwapFacts {
        SwapFacts {
            devices: read_swaps(root).map(|areas| areas.iter().map(|area| device(root, area)).collect()),
            zram_bytes: each(root, "/sys/block", "zram", "disksize"),
            fstab: root.text("/etc/fstab").map(|text| {
                let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
                lines
                    .filter(|line| line.split_whitespace().nth(2) == Some("swap"))
                    .map(str::to_owned)
                    .collect()
            }),
        }
    }
}

/// The folder of the block device that a file lies on; none when it lies on several.
fn folder_of_file(root: &Root, path: &str) -> Option<String> {
    let table = mounts::read(root);
    let mount = mounts::above(table.value()?, path)?;
    match folders_of_mount(root, mount).as_slice() {
        [folder] => Some(folder.clone()),
        _ => None,
    }
}

fn device(root: &Root, area: &SwapArea) -> SwapDevice {
    let absent = || Fact::Absent { path: area.path.clone() };
    let folder = match area.kind.as_str() {
        "partition" => area.path.strip_prefix("/dev/").and_then(|name| folder_by_name(root, name)),
        _ => folder_of_file(root, &area.path),
    };
    let Some(folder) = folder else {
        let (rotational, numa_node) = (absent().map(|_: &()| false), absent().map(|_: &()| -1));
        return SwapDevice {
            area: area.clone(),
            disk: None,
            rotational,
            numa_node,
            mapping: absent().map(|_: &()| String::new()),
        };
    };
    // A partition has its queue in the folder of its disk.
    let whole = match root.exists(&format!("{folder}/partition")) {
        true => folder.rsplit_once('/').map_or("", |(disk, _)| disk).to_owned(),
        false => folder.clone(),
    };
    let attr = |path: &str| root.text(&format!("{whole}/{path}"));
    let controller = attr("device/numa_node");
    let node = if controller.is_absent() { attr("device/device/numa_node") } else { controller };
    SwapDevice {
        area: area.clone(),
        disk: whole.rsplit('/').next().map(str::to_owned),
        rotational: attr("queue/rotational").parse(parse::switch),
        numa_node: node.parse(parse::number),
        mapping: attr("dm/uuid"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_on_a_partition_and_in_a_file_find_their_disks() {
        let root = Root::from_capture(
            "/proc/swaps |\n|Filename Type Size Used Priority\n|/dev/nvme0n1p2 partition 8 0 -2\n|/swapfile file 8 0 -3\n\
             /sys/class/block/nvme0n1p2 -> ../../devices/pci/nvme0/nvme0n1/nvme0n1p2\n\
             /sys/devices/pci/nvme0/nvme0n1/nvme0n1p2/partition = 2\n\
             /sys/devices/pci/nvme0/nvme0n1/queue/rotational = 0\n\
             /sys/devices/pci/nvme0/numa_node = 1\n\
             /sys/devices/pci/nvme0/nvme0n1/device -> ../../nvme0\n\
             /sys/devices/pci/vda/queue/rotational = 1\n\
             /sys/dev/block/254:0 -> ../../devices/pci/vda\n\
             /proc/self/mountinfo = 27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
             /etc/fstab |\n|# swap\n|/dev/nvme0n1p2 none swap discard,pri=5 0 0\n|/dev/a / ext4 rw 0 1\n",
        )
        .unwrap();
        let swap = SwapFacts::read(&root);
        let devices = swap.devices.value().unwrap();
        assert!(devices[0].is_nvme() && devices[0].rotational.get() == Some(false));
        assert_eq!(devices[0].numa_node.get(), Some(1));
        // That of the file system that the file lies on.
        assert_eq!((devices[1].disk.as_deref(), devices[1].rotational.get()), (Some("vda"), Some(true)));
        assert_eq!(swap.fstab.value().unwrap().len(), 1);
    }
}
