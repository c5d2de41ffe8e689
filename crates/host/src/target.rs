//! From a path to the hardware below it: file -> file system -> partition, mapping or array -> disk ->
//! controller -> PCIe device.
//!
//! Following stops, with the reason, where no disk can be named: memory, network, overlay and pool file
//! systems. Nothing is opened for writing and nothing is judged here.

mod blocks;
pub(crate) mod mounts;

use crate::facts::block::BlockFacts;
use crate::facts::nvme::NvmeFacts;
use crate::facts::pcie::PcieFacts;
use crate::facts::{Fact, FactRow, Rows, describe_errno};
use crate::root::Root;
use overdrive_base::size::format_size;
use overdrive_sys::volume;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

pub(crate) use blocks::{folder_by_name, folders_of_mount, last};
pub use mounts::Mount;
pub(crate) use mounts::device_number;
pub use overdrive_sys::volume::{DataMap, DeviceNumber, FileKind, FileSystem};

/// A target that cannot be followed.
#[derive(Debug, Error)]
pub enum TargetError {
    /// Nothing is there.
    #[error("{}: {}", path.display(), missing(path))]
    Absent {
        /// The target.
        path: PathBuf,
    },
    /// The path or the open file could not be asked.
    #[error("{}: {what}: {source}", path.display())]
    Unreachable {
        /// The target.
        path: PathBuf,
        /// What was asked.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It is nothing that I/O can be measured on.
    #[error("{}: it is {found}; wanted a regular file, a folder or a block device", path.display())]
    Kind {
        /// The target.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// The block device is not in /sys.
    #[error("{name}: block device {device} is not known under {path}: {why}")]
    Device {
        /// The target.
        name: String,
        /// Its number.
        device: DeviceNumber,
        /// Where it was looked for.
        path: String,
        /// Why it was not found.
        why: String,
    },
}

/// What is said of a path with nothing there, with the device that may have been meant by its name alone.
fn missing(path: &Path) -> String {
    let wanted = "no such file or device; wanted a block device, a file or a folder";
    // Of an absolute path nothing but itself is left by the join.
    let device = Path::new("/dev").join(path);
    match std::fs::metadata(&device) {
        Ok(found) if found.file_type().is_block_device() => format!("{wanted}: {}?", device.display()),
        _ => wanted.to_owned(),
    }
}

/// All that must be asked of the kernel about the target itself; the rest is read from a [`Root`].
#[derive(Debug, Clone)]
pub struct TargetIdentity {
    /// Its absolute path, links resolved; `None` for a file without a name.
    pub path: Option<String>,
    /// Regular file, folder or block device.
    pub kind: FileKind,
    /// The file system it lives on.
    pub device: DeviceNumber,
    /// The block device it is.
    pub special: DeviceNumber,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Kind and room of its file system; absent for a block device.
    pub space: Fact<FileSystem>,
    /// Written and never-written ranges at the time of asking: ask after preconditioning. Absent unless it is
    /// a regular file.
    pub data: Fact<DataMap>,
}

impl TargetIdentity {
    /// Asks about a path. A device or file that may not be opened is still identified, without its ranges.
    ///
    /// # Errors
    /// When it does not exist or is no file, folder or block device.
    pub fn at(path: &Path) -> Result<TargetIdentity, TargetError> {
        let metadata = std::fs::metadata(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => TargetError::Absent { path: path.to_owned() },
            _ => TargetError::Unreachable { path: path.to_owned(), what: "stat", source },
        })?;
        let kind = metadata.file_type();
        let found = if kind.is_char_device() {
            "a character device"
        } else if kind.is_fifo() || kind.is_socket() {
            "a pipe or socket"
        } else {
            // O_NONBLOCK (0x800): opening a removable device must not wait for a medium.
            return match OpenOptions::new().read(true).custom_flags(0x800).open(path) {
                Ok(file) => TargetIdentity::of(&file, path),
                Err(error) => Ok(unopened(path, &metadata, &error)),
            };
        };
        Err(TargetError::Kind { path: path.to_owned(), found })
    }

    /// Asks about an open file; `path` is the name it has or had. A scratch file whose name is gone already
    /// is found by its device number.
    ///
    /// # Errors
    /// When the kernel does not answer or it is no file, folder or block device.
    pub fn of(file: &File, path: &Path) -> Result<TargetIdentity, TargetError> {
        let identity = volume::identify(file).map_err(|source| TargetError::Unreachable {
            path: path.to_owned(),
            what: "fstat",
            source,
        })?;
        let found = match identity.kind {
            FileKind::Regular | FileKind::Block | FileKind::Directory => None,
            FileKind::Character => Some("a character device"),
            FileKind::Other => Some("a pipe or socket"),
        };
        if let Some(found) = found {
            return Err(TargetError::Kind { path: path.to_owned(), found });
        }
        let name = absolute(path);
        let told = name.clone().unwrap_or_else(|| path.display().to_string());
        let absent = Fact::Absent { path: told.clone() };
        let space = match identity.kind {
            FileKind::Block => absent,
            _ => answer(volume::file_system(file), "statfs", &told),
        };
        let data = match identity.kind {
            FileKind::Regular => answer(volume::data_map(file), "seek for data", &told),
            _ => Fact::Absent { path: told },
        };
        Ok(TargetIdentity {
            path: name,
            kind: identity.kind,
            device: identity.device,
            special: identity.special,
            size_bytes: identity.size_bytes,
            space,
            data,
        })
    }

    /// The path, or a word for a file that has none.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.as_deref().unwrap_or("(file without a name)")
    }
}

fn answer<T>(asked: io::Result<T>, what: &str, path: &str) -> Fact<T> {
    match asked {
        Ok(value) => Fact::known(value, what, path),
        Err(error) => refused(&error, what, path),
    }
}

fn refused<T>(error: &io::Error, what: &str, path: &str) -> Fact<T> {
    let errno = error.raw_os_error();
    let meaning = errno.map_or_else(|| error.to_string(), describe_errno);
    Fact::Unreadable { path: path.to_owned(), errno, why: format!("{what}: {meaning}") }
}

fn unopened(path: &Path, metadata: &std::fs::Metadata, error: &io::Error) -> TargetIdentity {
    let kind = metadata.file_type();
    let name = absolute(path);
    let told = name.clone().unwrap_or_else(|| path.display().to_string());
    TargetIdentity {
        path: name,
        kind: if kind.is_block_device() {
            FileKind::Block
        } else if kind.is_dir() {
            FileKind::Directory
        } else {
            FileKind::Regular
        },
        device: DeviceNumber::from_raw(metadata.dev()),
        special: DeviceNumber::from_raw(metadata.rdev()),
        size_bytes: metadata.len(),
        space: refused(error, "open", &told),
        data: refused(error, "open", &told),
    }
}

/// The path from the root without links; of a file that is gone, by its folder.
fn absolute(path: &Path) -> Option<String> {
    let real = path.canonicalize().or_else(|_| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok::<_, io::Error>(folder.canonicalize()?.join(path.file_name().unwrap_or_default()))
    });
    real.ok().map(|real| real.to_string_lossy().into_owned())
}

/// What a file's bytes finally rest on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Medium {
    /// One or more disks of this host.
    Disk,
    /// Memory only; the reason is for people.
    Memory(String),
    /// Another host.
    Network(String),
    /// Something that hides its disks.
    Hidden(String),
}

/// What one layer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerKind {
    /// The target, when it is a file or folder.
    File,
    /// The file system it lives on.
    FileSystem,
    /// A part of a disk.
    Partition,
    /// A device-mapper device: LVM, crypt, multipath.
    DeviceMapper,
    /// A software RAID.
    Raid,
    /// A file used as a disk.
    Loop,
    /// Another stacked device, such as bcache.
    Stacked,
    /// The common device over the paths of one NVMe namespace.
    NvmeHead,
    /// A disk.
    Disk,
    /// An NVMe controller.
    NvmeController,
    /// A PCI device.
    PciDevice,
}

impl LayerKind {
    /// The word shown.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LayerKind::File => "file",
            LayerKind::FileSystem => "file system",
            LayerKind::Partition => "partition",
            LayerKind::DeviceMapper => "device-mapper",
            LayerKind::Raid => "RAID",
            LayerKind::Loop => "loop device",
            LayerKind::Stacked => "stacked device",
            LayerKind::NvmeHead => "NVMe multipath head",
            LayerKind::Disk => "disk",
            LayerKind::NvmeController => "NVMe controller",
            LayerKind::PciDevice => "PCI device",
        }
    }
}

/// One step on the way down.
#[derive(Debug, Clone)]
pub struct Layer {
    /// What it is.
    pub kind: LayerKind,
    /// Its name: a path, a mount point, a device, an address.
    pub name: String,
    /// What is known of it.
    pub rows: Vec<FactRow>,
}

/// A disk that carries the target, with what it hangs on.
#[derive(Debug, Clone)]
pub struct DiskFacts {
    /// The disk and its queue.
    pub block: BlockFacts,
    /// Its NVMe controller.
    pub nvme: Option<NvmeFacts>,
    /// The PCI device it hangs on.
    pub pcie: Option<PcieFacts>,
}

impl DiskFacts {
    /// Kernel name of the disk.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.block.name
    }

    /// The model as the controller or the disk tells it.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        let controller = self.nvme.as_ref().and_then(|nvme| nvme.model.value());
        controller.or(self.block.model.value()).map(String::as_str)
    }

    /// The memory node it hangs on, if the firmware tells: the controller's answer, else the PCI device's.
    #[must_use]
    pub fn numa_node(&self) -> Option<&Fact<i64>> {
        let controller = self.nvme.as_ref().map(|nvme| &nvme.numa_node).filter(|node| node.value().is_some());
        controller.or(self.pcie.as_ref().map(|pcie| &pcie.numa_node))
    }
}

/// The target and everything below it.
#[derive(Debug, Clone)]
pub struct TargetFacts {
    /// The target itself.
    pub identity: TargetIdentity,
    /// What its bytes rest on.
    pub medium: Medium,
    /// The file system, for a file or folder.
    pub mount: Option<Mount>,
    /// The block device's directory in /sys, when the target is one.
    pub device_folder: Option<String>,
    /// From the target down; siblings (members of an array) follow each other with what is below them.
    pub layers: Vec<Layer>,
    /// The disks at the bottom. Of a multipath head these are its paths.
    pub disks: Vec<DiskFacts>,
}

impl TargetFacts {
    /// Follows a target down to its disks.
    ///
    /// # Errors
    /// When it is a block device that /sys does not know.
    pub fn trace(root: &Root, identity: &TargetIdentity) -> Result<TargetFacts, TargetError> {
        let mut target = TargetFacts {
            identity: identity.clone(),
            medium: Medium::Disk,
            mount: None,
            device_folder: None,
            layers: Vec::new(),
            disks: Vec::new(),
        };
        match identity.kind {
            FileKind::Block => target.trace_device(root)?,
            _ => target.trace_file(root),
        }
        Ok(target)
    }

    /// All facts as lines, from the target down.
    #[must_use]
    pub fn rows(&self) -> Vec<FactRow> {
        self.layers.iter().flat_map(|layer| layer.rows.iter().cloned()).collect()
    }

    fn trace_device(&mut self, root: &Root) -> Result<(), TargetError> {
        let device = self.identity.special;
        let folder = blocks::folder_of(root, device);
        let Some(folder) = folder.value() else {
            return Err(TargetError::Device {
                name: self.identity.name().to_owned(),
                device,
                path: folder.path().to_owned(),
                why: folder.why().unwrap_or_default(),
            });
        };
        self.device_folder = Some(folder.clone());
        blocks::follow(root, folder, self);
        Ok(())
    }

    fn trace_file(&mut self, root: &Root) {
        self.layers.push(file_layer(&self.identity));
        let table = mounts::read(root);
        let found = match table.value() {
            Some(table) => mounts::of_file(table, self.identity.device, self.identity.path.as_deref()),
            None => None,
        };
        let Some(mount) = found else {
            let why = table.why().unwrap_or_else(|| "no mount has its device number".to_owned());
            self.medium = Medium::Hidden(format!("its file system cannot be told: {}: {why}", table.path()));
            return;
        };
        self.layers.push(mount_layer(&mount, &self.identity.space));
        self.mount = Some(mount.clone());
        self.follow_mount(root, &mount);
    }

    /// Follows a mounted file system to the devices below it.
    fn follow_mount(&mut self, root: &Root, mount: &Mount) {
        if let Some(medium) = medium_without_disk(mount) {
            self.medium = medium;
            return;
        }
        let folders = folders_of_mount(root, mount);
        if folders.is_empty() {
            self.medium = Medium::Hidden(format!(
                "{} from {}: its disks cannot be told from /sys",
                mount.kind, mount.source
            ));
        }
        for folder in folders {
            blocks::follow(root, &folder, self);
        }
    }
}

/// File systems below which there is no disk of this host to look at.
fn medium_without_disk(mount: &Mount) -> Option<Medium> {
    let kind = mount.kind.as_str();
    let source = &mount.source;
    Some(match kind {
        "tmpfs" | "ramfs" | "rootfs" | "devtmpfs" | "hugetlbfs" => {
            Medium::Memory(format!("{kind} keeps its files in memory: no disk is measured"))
        }
        "nfs" | "nfs4" | "cifs" | "smb3" | "ceph" | "9p" | "afs" | "lustre" | "glusterfs" | "virtiofs" => {
            Medium::Network(format!("{kind} from {source}: another host serves the files"))
        }
        "overlay" => {
            let upper = mount.options.iter().find_map(|option| option.strip_prefix("upperdir="));
            let upper = upper.unwrap_or("a folder it does not name");
            Medium::Hidden(format!("an overlay whose new files go to {upper}: measure there, or on a volume"))
        }
        "zfs" => {
            Medium::Hidden(format!("a file system of the ZFS pool in {source}: it names no block device"))
        }
        _ if kind.starts_with("fuse") && mount.device.major == 0 => {
            Medium::Hidden(format!("{kind} from {source}: a program serves the files"))
        }
        _ => return None,
    })
}

fn file_layer(identity: &TargetIdentity) -> Layer {
    let mut rows = Rows::new("target");
    let name = identity.name();
    if identity.kind == FileKind::Regular {
        rows.bytes("size", "File size", &Fact::known(identity.size_bytes, "", name));
        rows.add("data", "Never-written ranges", &identity.data, |map| match map.hole_bytes {
            0 => "none".to_owned(),
            bytes => format!("{} in {} ranges", format_size(bytes), map.hole_count),
        });
    }
    Layer { kind: LayerKind::File, name: name.to_owned(), rows: rows.into_vec() }
}

fn mount_layer(mount: &Mount, space: &Fact<FileSystem>) -> Layer {
    let mut rows = Rows::new("fs");
    let known = |text: &str| Fact::known(text.to_owned(), text, "/proc/self/mountinfo");
    rows.plain("type", "File system", &known(&mount.kind), "");
    rows.plain("point", "Mount point", &known(&mount.point), "");
    rows.plain("source", "Mounted from", &known(&mount.source), "");
    rows.plain("options", "Mount options", &known(&mount.options.join(",")), "");
    rows.add("space", "Free space", space, |space| {
        format!("{} of {}", format_size(space.free_bytes), format_size(space.total_bytes))
    });
    Layer { kind: LayerKind::FileSystem, name: mount.point.clone(), rows: rows.into_vec() }
}
