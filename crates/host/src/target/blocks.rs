//! From a block device's directory in /sys down to the disks it stands on, and what these hang on.
//!
//! Devices of any depth are followed: partition, device-mapper, md, loop, bcache, NVMe multipath.

use super::mounts::{self, Mount};
use super::{DiskFacts, Layer, LayerKind, Medium, TargetFacts};
use crate::facts::block::{self, BlockFacts};
use crate::facts::nvme::NvmeFacts;
use crate::facts::pcie::{self, PcieFacts};
use crate::facts::{Fact, Rows};
use crate::root::Root;
use overdrive_sys::volume::DeviceNumber;

/// Layers and disks that are followed before giving up: far above any sane set-up, below any loop.
const LAYERS_MAX: usize = 256;

/// The directory in /sys of a block device.
pub(crate) fn folder_of(root: &Root, device: DeviceNumber) -> Fact<String> {
    root.resolve(&format!("/sys/dev/block/{device}"))
}

/// The directories of the block devices below a mounted file system; none when they cannot be told.
pub(crate) fn folders_of_mount(root: &Root, mount: &Mount) -> Vec<String> {
    if mount.device.major != 0 {
        return folder_of(root, mount.device).value().cloned().into_iter().collect();
    }
    let Some(name) = mount.source.strip_prefix("/dev/") else { return Vec::new() };
    let Some(folder) = folder_by_name(root, name) else { return Vec::new() };
    // btrfs lists all its devices; the mount table names only one of them.
    let own = last(&folder);
    let systems = root.list("/sys/fs/btrfs");
    for system in systems.value().into_iter().flatten() {
        let list = format!("/sys/fs/btrfs/{system}/devices");
        let members = root.list(&list).value().cloned().unwrap_or_default();
        if members.iter().any(|member| member == own) {
            let resolve = |member: &String| root.resolve(&format!("{list}/{member}")).value().cloned();
            return members.iter().filter_map(resolve).collect();
        }
    }
    vec![folder]
}

/// The directory of a device known by its name below /dev: `sda1`, `mapper/vg-data`, `vg/data`.
pub(crate) fn folder_by_name(root: &Root, name: &str) -> Option<String> {
    if let Some(folder) = root.resolve(&format!("/sys/class/block/{name}")).value() {
        return Some(folder.clone());
    }
    let mapped = match name.strip_prefix("mapper/") {
        Some(mapped) => mapped.to_owned(),
        // LVM joins group and volume by a dash and doubles dashes inside each.
        None => {
            let (group, volume) = name.split_once('/')?;
            format!("{}-{}", group.replace('-', "--"), volume.replace('-', "--"))
        }
    };
    let names = root.list("/sys/class/block");
    let wanted = |device: &&String| {
        let title = root.text(&format!("/sys/class/block/{device}/dm/name"));
        title.value().is_some_and(|title| *title == mapped)
    };
    let device = names.value()?.iter().filter(|device| device.starts_with("dm-")).find(wanted)?;
    root.resolve(&format!("/sys/class/block/{device}")).value().cloned()
}

/// Adds the layers from a block device down to its disks.
pub(super) fn follow(root: &Root, folder: &str, target: &mut TargetFacts) {
    if target.layers.len() >= LAYERS_MAX {
        target.medium =
            Medium::Hidden("more layers than can be real: the device refers to itself".to_owned());
        return;
    }
    let has = |name: &str| root.exists(&format!("{folder}/{name}"));
    if has("partition") {
        target.layers.push(partition_layer(root, folder));
        follow(root, folder.rsplit_once('/').map_or("", |(disk, _)| disk), target);
    } else if has("dm") {
        target.layers.push(mapper_layer(root, folder));
        follow_slaves(root, folder, target);
    } else if has("md") {
        target.layers.push(raid_layer(root, folder));
        follow_slaves(root, folder, target);
    } else if has("loop/backing_file") {
        follow_loop(root, folder, target);
    } else if root.list(&format!("{folder}/slaves")).value().is_some_and(|names| !names.is_empty()) {
        let rows = Vec::new();
        target.layers.push(Layer { kind: LayerKind::Stacked, name: last(folder).to_owned(), rows });
        follow_slaves(root, folder, target);
    } else {
        let paths = multipath_paths(root, folder);
        if !paths.is_empty() {
            target.layers.push(Layer {
                kind: LayerKind::NvmeHead,
                name: last(folder).to_owned(),
                rows: Vec::new(),
            });
        }
        let disks = if paths.is_empty() { vec![folder.to_owned()] } else { paths };
        for disk in disks {
            add_disk(root, &disk, target);
        }
    }
}

fn follow_slaves(root: &Root, folder: &str, target: &mut TargetFacts) {
    let list = format!("{folder}/slaves");
    let slaves = root.list(&list);
    let found: Vec<String> = slaves
        .value()
        .into_iter()
        .flatten()
        .filter_map(|name| root.resolve(&format!("{list}/{name}")).value().cloned())
        .collect();
    if found.is_empty() && target.disks.is_empty() {
        let why = slaves.why().unwrap_or_else(|| "it lists none".to_owned());
        target.medium =
            Medium::Hidden(format!("{}: the devices below it cannot be told: {list}: {why}", last(folder)));
    }
    for slave in found {
        follow(root, &slave, target);
    }
}

fn follow_loop(root: &Root, folder: &str, target: &mut TargetFacts) {
    let backing = root.text(&format!("{folder}/loop/backing_file"));
    let mut rows = Rows::new(format!("loop.{}", last(folder)));
    rows.plain("backing_file", "Backing file", &backing, "");
    target.layers.push(Layer { kind: LayerKind::Loop, name: last(folder).to_owned(), rows: rows.into_vec() });
    let table = mounts::read(root);
    // The backing file's device number is not told; its path decides, so none of the numbers may match.
    let nowhere = DeviceNumber { major: u32::MAX, minor: u32::MAX };
    let path = backing.value().map(String::as_str);
    match table.value().and_then(|table| mounts::of_file(table, nowhere, path)) {
        Some(mount) => {
            let space = Fact::Absent { path: mount.point.clone() };
            target.layers.push(super::mount_layer(&mount, &space));
            target.follow_mount(root, &mount);
        }
        None => {
            target.medium =
                Medium::Hidden(format!("{}: its backing file lies on no known mount", last(folder)));
        }
    }
}

/// The path devices below a multipath head; none when the device is no head.
///
/// A head hangs on a subsystem instead of a controller, and its paths carry both numbers: the head
/// `nvme0n1` has the paths `nvme0c0n1`, `nvme0c1n1`, each in the directory of its controller.
fn multipath_paths(root: &Root, folder: &str) -> Vec<String> {
    let subsystem = root.resolve(&format!("{folder}/device"));
    let Some(subsystem) = subsystem.value().filter(|real| last(real).starts_with("nvme-subsys")) else {
        return Vec::new();
    };
    let Some((instance, namespace)) = last(folder).strip_prefix("nvme").and_then(|rest| rest.split_once('n'))
    else {
        return Vec::new();
    };
    let entries = root.list(subsystem);
    let mut paths = Vec::new();
    for entry in entries.value().into_iter().flatten().filter(|entry| is_controller(entry)) {
        let Some(controller) = root.resolve(&format!("{subsystem}/{entry}")).value().cloned() else {
            continue;
        };
        let devices = root.list(&controller);
        let is_path = |name: &&String| {
            let rest = name.strip_prefix(&format!("nvme{instance}c"));
            rest.and_then(|rest| rest.split_once('n')).is_some_and(|(_, number)| number == namespace)
        };
        let found = devices.value().into_iter().flatten().filter(is_path);
        paths.extend(found.map(|name| format!("{controller}/{name}")));
    }
    paths
}

fn add_disk(root: &Root, folder: &str, target: &mut TargetFacts) {
    if target.disks.iter().any(|disk| disk.block.folder == folder) {
        return;
    }
    let block = BlockFacts::read(root, folder);
    let controller = nvme_controller(root, folder);
    let nvme = controller.as_ref().map(|found| NvmeFacts::read(root, found, &block.name));
    let pcie =
        pci_folder(root, controller.as_deref().unwrap_or(folder)).map(|found| PcieFacts::read(root, &found));
    target.layers.push(Layer { kind: LayerKind::Disk, name: block.name.clone(), rows: block.rows() });
    if let Some(nvme) = &nvme {
        target.layers.push(Layer {
            kind: LayerKind::NvmeController,
            name: nvme.name.clone(),
            rows: nvme.rows(),
        });
    }
    if let Some(pcie) = &pcie {
        target.layers.push(Layer {
            kind: LayerKind::PciDevice,
            name: pcie.address.clone(),
            rows: pcie.rows(),
        });
    }
    target.disks.push(DiskFacts { block, nvme, pcie });
}

fn nvme_controller(root: &Root, folder: &str) -> Option<String> {
    let device = root.resolve(&format!("{folder}/device")).value().cloned();
    // A path device of a head has no such link: it lies in its controller's directory.
    let above = || folder.rsplit_once('/').map(|(above, _)| above.to_owned());
    [device, above()].into_iter().flatten().find(|candidate| is_controller(last(candidate)))
}

/// Whether a name is `nvme` and a number.
fn is_controller(name: &str) -> bool {
    name.strip_prefix("nvme")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The nearest PCI device above a device's directory.
fn pci_folder(root: &Root, folder: &str) -> Option<String> {
    // A controller of a fabric lies under a virtual directory: then there is none above it.
    let real = root.resolve(folder).value()?.clone();
    let mut rest = real.as_str();
    while let Some((above, name)) = rest.rsplit_once('/') {
        if pcie::is_address(name) {
            return Some(rest.to_owned());
        }
        rest = above;
    }
    None
}

fn partition_layer(root: &Root, folder: &str) -> Layer {
    let mut rows = Rows::new(format!("partition.{}", last(folder)));
    let start = root.text(&format!("{folder}/start")).parse(crate::facts::parse::number::<u64>);
    rows.plain("first_sector", "First sector", &start, "");
    let offset = root.text(&format!("{folder}/alignment_offset")).parse(crate::facts::parse::number::<i64>);
    rows.plain("alignment_offset", "Alignment offset", &offset, "B");
    rows.bytes("start", "Starts at", &start.map(|sectors| sectors.saturating_mul(block::SECTOR_BYTES)));
    rows.bytes("size", "Size", &block::size_bytes(root, folder));
    Layer { kind: LayerKind::Partition, name: last(folder).to_owned(), rows: rows.into_vec() }
}

fn mapper_layer(root: &Root, folder: &str) -> Layer {
    let mut rows = Rows::new(format!("dm.{}", last(folder)));
    rows.plain("name", "Mapping", &root.text(&format!("{folder}/dm/name")), "");
    rows.plain("uuid", "Made by", &root.text(&format!("{folder}/dm/uuid")), "");
    rows.yes_no("io_poll", "Polled completions", &polls(root, folder));
    rows.bytes("size", "Size", &block::size_bytes(root, folder));
    Layer { kind: LayerKind::DeviceMapper, name: last(folder).to_owned(), rows: rows.into_vec() }
}

fn polls(root: &Root, folder: &str) -> Fact<bool> {
    root.text(&format!("{folder}/queue/io_poll")).parse(crate::facts::parse::switch)
}

fn raid_layer(root: &Root, folder: &str) -> Layer {
    let mut rows = Rows::new(format!("md.{}", last(folder)));
    rows.plain("level", "RAID level", &root.text(&format!("{folder}/md/level")), "");
    rows.plain("disks", "Members", &root.text(&format!("{folder}/md/raid_disks")), "");
    rows.plain("state", "State", &root.text(&format!("{folder}/md/array_state")), "");
    rows.yes_no("io_poll", "Polled completions", &polls(root, folder));
    rows.bytes("size", "Size", &block::size_bytes(root, folder));
    Layer { kind: LayerKind::Raid, name: last(folder).to_owned(), rows: rows.into_vec() }
}

/// The last part of a path.
pub(crate) fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
