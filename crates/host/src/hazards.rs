//! Why a target must not be written to: in use, or holding something.
//!
//! Whatever cannot be checked counts as a hazard. Only content may be overridden (`--wipe`); use may not.
//! Consent itself is given elsewhere.

use crate::facts::{Fact, describe_errno, memory, parse};
use crate::root::Root;
use crate::signature;
use crate::target::TargetFacts;
use crate::target::mounts::{self, Mount};
use overdrive_sys::volume::{self, DeviceNumber, Exclusive, FileKind};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What sort of hazard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HazardKind {
    /// It, or a part of it, is mounted.
    Mounted,
    /// The running system's root file system is on it.
    RootDisk,
    /// It, or a part of it, is swap space.
    Swap,
    /// Another device (LVM, crypt, RAID, bcache) is built on it.
    Holder,
    /// It is the backing file of a loop device.
    LoopBacking,
    /// The kernel refuses writes to it.
    ReadOnly,
    /// Somebody holds it exclusively.
    InUse,
    /// It could not be checked.
    Unchecked,
    /// Its content is known: a file system, a partition table, a member of something.
    Signature,
}

/// One reason not to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hazard {
    /// What sort.
    pub kind: HazardKind,
    /// What was found, with names: `/dev/nvme0n1p1 is mounted on /data`.
    pub what: String,
    /// What a write would do.
    pub why: &'static str,
    /// Where it was found.
    pub path: String,
}

impl Hazard {
    /// Whether `--wipe` may override it. Only content may be given up; use by somebody may not.
    #[must_use]
    pub fn wipe_overrides(&self) -> bool {
        self.kind == HazardKind::Signature
    }

    fn new(kind: HazardKind, what: String, path: &str) -> Hazard {
        let why = match kind {
            HazardKind::Mounted => "a write below a mounted file system destroys it",
            HazardKind::RootDisk => "a write would destroy the running system",
            HazardKind::Swap => "a write would corrupt the memory of running programs",
            HazardKind::Holder => "a write would destroy the volumes built on it",
            HazardKind::LoopBacking => "a write would destroy what the loop device holds",
            HazardKind::ReadOnly => "writes would fail",
            HazardKind::InUse => "a write would destroy data of whoever holds it",
            HazardKind::Unchecked => "whether it is in use is unknown, which counts as in use",
            HazardKind::Signature => "a write would destroy it",
        };
        Hazard { kind, what, why, path: path.to_owned() }
    }
}

/// Everything that speaks against writing to a target; empty means free.
#[must_use]
pub fn write_hazards(root: &Root, target: &TargetFacts) -> Vec<Hazard> {
    let mut hazards = Vec::new();
    match &target.device_folder {
        Some(folder) => device_hazards(root, target, folder, &mut hazards),
        None => file_hazards(root, target, &mut hazards),
    }
    if root.is_live() && target.identity.kind != FileKind::Directory {
        content_hazards(target, &mut hazards);
    }
    hazards
}

/// A block device whose use makes the target used: itself, its parts, what is built on them.
struct Member {
    name: String,
    folder: String,
    device: Option<DeviceNumber>,
    is_holder: bool,
}

fn device_hazards(root: &Root, target: &TargetFacts, folder: &str, hazards: &mut Vec<Hazard>) {
    let mut members = Vec::new();
    collect_members(root, folder, false, &mut members);
    if let Some((disk, _)) = folder.rsplit_once('/').filter(|_| root.exists(&format!("{folder}/partition"))) {
        // Whoever uses the whole disk uses this part of it; the parts beside it do not matter.
        collect_alone(root, disk, false, &mut members);
    }
    mount_hazards(root, &members, hazards);
    swap_hazards(root, &members, hazards);
    btrfs_hazards(root, &members, hazards);
    for holder in members.iter().filter(|member| member.is_holder) {
        let title = root.text(&format!("{}/dm/name", holder.folder));
        let title = title.value().map_or_else(String::new, |title| format!(" ({title})"));
        let what = format!("/dev/{}{title} is built on it", holder.name);
        hazards.push(Hazard::new(HazardKind::Holder, what, &holder.folder));
    }
    let read_only = root.text(&format!("{folder}/ro")).parse(parse::switch);
    if read_only.get() == Some(true) {
        let what = format!("{} is read-only", target.identity.name());
        hazards.push(Hazard::new(HazardKind::ReadOnly, what, read_only.path()));
    }
    if root.is_live() {
        exclusive_hazard(target.identity.name(), hazards);
    }
}

fn collect_members(root: &Root, folder: &str, is_holder: bool, members: &mut Vec<Member>) {
    if members.iter().any(|member| member.folder == folder) {
        return;
    }
    collect_alone(root, folder, is_holder, members);
    let parts = root.list(folder);
    for part in parts.value().into_iter().flatten() {
        let part = format!("{folder}/{part}");
        if root.exists(&format!("{part}/partition")) {
            collect_members(root, &part, is_holder, members);
        }
    }
}

fn collect_alone(root: &Root, folder: &str, is_holder: bool, members: &mut Vec<Member>) {
    let device = root.text(&format!("{folder}/dev")).value().and_then(|text| mounts::device_number(text));
    let name = folder.rsplit('/').next().unwrap_or(folder).to_owned();
    members.push(Member { name, folder: folder.to_owned(), device, is_holder });
    let holders = root.list(&format!("{folder}/holders"));
    for holder in holders.value().into_iter().flatten() {
        if let Some(real) = root.resolve(&format!("{folder}/holders/{holder}")).value() {
            collect_members(root, real, true, members);
        }
    }
}

/// The member a /dev path names, mapped names included.
fn member_named<'a>(root: &Root, members: &'a [Member], path: &str) -> Option<&'a Member> {
    let name = path.strip_prefix("/dev/")?;
    let folder = crate::target::folder_by_name(root, name)?;
    members.iter().find(|member| member.folder == folder)
}

fn mount_hazards(root: &Root, members: &[Member], hazards: &mut Vec<Hazard>) {
    let table = mounts::read(root);
    let Some(mounted) = table.value() else {
        hazards.push(unchecked(&table, "mounts"));
        return;
    };
    let of_mount = |mount: &Mount| {
        let by_number = members.iter().find(|member| member.device == Some(mount.device));
        by_number.or_else(|| member_named(root, members, &mount.source)).map(|member| member.name.clone())
    };
    for mount in mounted {
        let Some(name) = of_mount(mount) else { continue };
        let kind = if mount.point == "/" { HazardKind::RootDisk } else { HazardKind::Mounted };
        let what = format!("/dev/{name} is mounted on {} ({})", mount.point, mount.kind);
        hazards.push(Hazard::new(kind, what, table.path()));
    }
}

fn swap_hazards(root: &Root, members: &[Member], hazards: &mut Vec<Hazard>) {
    let swaps = memory::read_swaps(root);
    let Some(areas) = swaps.value() else {
        // A kernel without swap has no such file.
        if !swaps.is_absent() {
            hazards.push(unchecked(&swaps, "swap areas"));
        }
        return;
    };
    for area in areas {
        if let Some(member) = member_named(root, members, &area.path) {
            let what = format!("/dev/{} is swap space", member.name);
            hazards.push(Hazard::new(HazardKind::Swap, what, swaps.path()));
        }
    }
}

/// A btrfs of several devices shows only one in the mount table; /sys/fs/btrfs lists all of a mounted one.
fn btrfs_hazards(root: &Root, members: &[Member], hazards: &mut Vec<Hazard>) {
    let systems = root.list("/sys/fs/btrfs");
    for system in systems.value().into_iter().flatten() {
        for member in members {
            let path = format!("/sys/fs/btrfs/{system}/devices/{}", member.name);
            if root.exists(&path) {
                let what = format!("/dev/{} belongs to the mounted btrfs {system}", member.name);
                hazards.push(Hazard::new(HazardKind::Mounted, what, &path));
            }
        }
    }
}

fn exclusive_hazard(device: &str, hazards: &mut Vec<Hazard>) {
    match volume::probe_exclusive(Path::new(device)) {
        Ok(Exclusive::Free) => {}
        Ok(Exclusive::Held) => {
            let what = format!("{device} is held exclusively (opening it with O_EXCL gives EBUSY)");
            hazards.push(Hazard::new(HazardKind::InUse, what, device));
        }
        Err(error) => {
            let meaning = error.raw_os_error().map_or_else(|| error.to_string(), describe_errno);
            let what = format!("{device} cannot be opened to see whether it is in use: {meaning}");
            hazards.push(Hazard::new(HazardKind::Unchecked, what, device));
        }
    }
}

fn file_hazards(root: &Root, target: &TargetFacts, hazards: &mut Vec<Hazard>) {
    if let Some(mount) = target.mount.as_ref().filter(|mount| mount.has("ro")) {
        let what = format!("{} lies on {}, which is mounted read-only", target.identity.name(), mount.point);
        hazards.push(Hazard::new(HazardKind::ReadOnly, what, "/proc/self/mountinfo"));
    }
    // A file without a name cannot be swap or a loop device's: both were opened by name.
    let Some(path) = target.identity.path.as_deref() else { return };
    let swaps = memory::read_swaps(root);
    if swaps.value().is_none() && !swaps.is_absent() {
        hazards.push(unchecked(&swaps, "swap areas"));
    }
    for area in swaps.value().into_iter().flatten().filter(|area| area.path == path) {
        let what = format!("{} is swap space", area.path);
        hazards.push(Hazard::new(HazardKind::Swap, what, swaps.path()));
    }
    let disks = root.list("/sys/block");
    for disk in disks.value().into_iter().flatten().filter(|disk| disk.starts_with("loop")) {
        let backing = root.text(&format!("/sys/block/{disk}/loop/backing_file"));
        if backing.value().is_some_and(|file| file == path) {
            let what = format!("{path} is the disk of /dev/{disk}");
            hazards.push(Hazard::new(HazardKind::LoopBacking, what, backing.path()));
        }
    }
}

fn content_hazards(target: &TargetFacts, hazards: &mut Vec<Hazard>) {
    let Some(path) = target.identity.path.as_deref() else { return };
    let found = File::open(path).and_then(|file| {
        let read_at = |offset: u64, buffer: &mut [u8]| file.read_at(buffer, offset);
        signature::detect(&read_at, volume::identify(&file)?.size_bytes)
    });
    match found {
        Ok(signatures) => hazards.extend(signatures.into_iter().map(|signature| {
            let what = format!("{path} holds {} (mark at byte {})", signature.name, signature.offset);
            Hazard::new(HazardKind::Signature, what, path)
        })),
        Err(error) => {
            let meaning = error.raw_os_error().map_or_else(|| error.to_string(), describe_errno);
            let what = format!("{path} cannot be read to see what it holds: {meaning}");
            hazards.push(Hazard::new(HazardKind::Unchecked, what, path));
        }
    }
}

fn unchecked<T>(fact: &Fact<T>, what: &str) -> Hazard {
    let why = fact.why().unwrap_or_default();
    Hazard::new(HazardKind::Unchecked, format!("the {what} cannot be read: {why}"), fact.path())
}
