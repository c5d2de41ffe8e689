//! What the kernel says of one file, block device or file system: kind, sizes, room, holes, exclusive use.
//!
//! Everything that stands in /proc or /sys as text is read by the host crate instead; nothing here writes.

use rustix::fs::{self, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// A device number, split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// Which driver; 0 for file systems that stand on no block device.
    pub major: u32,
    /// Which of the driver's devices.
    pub minor: u32,
}

impl DeviceNumber {
    /// Splits a `dev_t` as found in `st_dev` and `st_rdev`.
    #[must_use]
    pub fn from_raw(device: u64) -> DeviceNumber {
        DeviceNumber { major: fs::major(device), minor: fs::minor(device) }
    }
}

impl std::fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// What sort of thing a path or an open file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
    /// A character device.
    Character,
    /// A directory.
    Directory,
    /// A socket, a pipe or something newer.
    Other,
}

/// What `fstat` tells, with a block device's true size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The file system it lives on.
    pub device: DeviceNumber,
    /// The device it is, for device nodes.
    pub special: DeviceNumber,
    /// Regular file, block device, ...
    pub kind: FileKind,
    /// Bytes: of the file, or of the whole device.
    pub size_bytes: u64,
}

/// Asks who an open file is.
///
/// # Errors
/// As `fstat(2)` and, for a block device, `lseek(2)`.
pub fn identify(file: impl AsFd) -> io::Result<Identity> {
    let stat = fs::fstat(&file)?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::Regular,
        FileType::BlockDevice => FileKind::Block,
        FileType::CharacterDevice => FileKind::Character,
        FileType::Directory => FileKind::Directory,
        _ => FileKind::Other,
    };
    let size_bytes = match kind {
        FileKind::Block => device_bytes(&file)?,
        _ => u64::try_from(stat.st_size).unwrap_or(0),
    };
    Ok(Identity {
        device: DeviceNumber::from_raw(stat.st_dev),
        special: DeviceNumber::from_raw(stat.st_rdev),
        kind,
        size_bytes,
    })
}

/// The size of a block device in bytes, found by seeking to its end; the file offset is put back.
///
/// # Errors
/// As `lseek(2)`.
pub fn device_bytes(device: impl AsFd) -> io::Result<u64> {
    let before = fs::tell(&device)?;
    let end = fs::seek(&device, SeekFrom::End(0))?;
    fs::seek(&device, SeekFrom::Start(before))?;
    Ok(end)
}

/// Block sizes of a block device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    /// The smallest unit the device can address; `O_DIRECT` offsets and lengths are multiples of it.
    pub logical_bytes: u32,
    /// The smallest unit it writes without reading first.
    pub physical_bytes: u32,
}

/// Asks a block device for its block sizes.
///
/// # Errors
/// As `ioctl(2)`: `ENOTTY` when it is no block device.
pub fn block_sizes(device: impl AsFd) -> io::Result<BlockSizes> {
    Ok(BlockSizes {
        logical_bytes: fs::ioctl_blksszget(&device)?,
        physical_bytes: fs::ioctl_blkpbszget(&device)?,
    })
}

/// What offsets and lengths of direct I/O must be multiples of, in bytes; none where nobody says (a file
/// before Linux 6.1, or on a file system that does not know).
#[must_use]
pub fn direct_io_alignment(file: impl AsFd) -> Option<u64> {
    if let Ok(sizes) = block_sizes(&file) {
        return Some(sizes.logical_bytes.into());
    }
    let dioalign = fs::StatxFlags::from_bits_retain(libc::STATX_DIOALIGN);
    let known = fs::statx(&file, c"", fs::AtFlags::EMPTY_PATH, dioalign).ok()?;
    let told = known.stx_mask & libc::STATX_DIOALIGN != 0 && known.stx_dio_offset_align > 0;
    told.then_some(known.stx_dio_offset_align.into())
}

/// A mounted file system's kind and room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem {
    /// The kernel's magic number for the type.
    pub magic: u64,
    /// The type's name; `unknown` when the magic number is not in the table.
    pub name: &'static str,
    /// Size in bytes.
    pub total_bytes: u64,
    /// Bytes this user may still fill.
    pub free_bytes: u64,
}

/// Asks for the file system that an open file lives on.
///
/// # Errors
/// As `fstatfs(2)`.
pub fn file_system(file: impl AsFd) -> io::Result<FileSystem> {
    let stat = fs::fstatfs(file)?;
    // f_type is a signed word whose width differs between architectures; the magic numbers are 32 bits.
    let magic = stat.f_type as u64 & 0xffff_ffff;
    let unit = if stat.f_frsize > 0 { stat.f_frsize } else { stat.f_bsize };
    let unit = u64::try_from(unit).unwrap_or(0);
    Ok(FileSystem {
        magic,
        name: file_system_name(magic),
        total_bytes: stat.f_blocks.saturating_mul(unit),
        free_bytes: stat.f_bavail.saturating_mul(unit),
    })
}

/// The name of a file system by its magic number; `unknown` for one that is not listed.
#[must_use]
pub fn file_system_name(magic: u64) -> &'static str {
    match magic {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0xf2f5_2010 => "f2fs",
        0xca45_1a4e => "bcachefs",
        0x2fc1_2fc1 => "zfs",
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0x794c_7630 => "overlay",
        0x6969 => "nfs",
        0xff53_4d42 => "cifs",
        0xfe53_4d42 => "smb2",
        0x0102_1997 => "9p",
        0x6573_5546 => "fuse",
        0x00c3_6400 => "ceph",
        0x4d44 => "vfat",
        0x2011_bab0 => "exfat",
        0x5346_544e | 0x7366_746e => "ntfs",
        0x7371_7368 => "squashfs",
        0xe0f5_e1e2 => "erofs",
        0x9660 => "iso9660",
        _ => "unknown",
    }
}

/// How much of a file was ever written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DataMap {
    /// Bytes that hold data.
    pub data_bytes: u64,
    /// Bytes in holes, or reserved but never written: reads of them do not reach the disk.
    pub hole_bytes: u64,
    /// Number of such ranges.
    pub hole_count: u64,
}

/// Maps a regular file with `SEEK_DATA` and `SEEK_HOLE`; the file offset is put back.
///
/// A file system that knows no holes reports all data. Blocks that are reserved and still dirty in the page
/// cache may count as data: sync first.
///
/// # Errors
/// As `lseek(2)`: `EINVAL` when the file is not a regular one.
pub fn data_map(file: impl AsFd) -> io::Result<DataMap> {
    let before = fs::tell(&file)?;
    let map = walk_data(&file);
    fs::seek(&file, SeekFrom::Start(before))?;
    map
}

fn walk_data(file: &impl AsFd) -> io::Result<DataMap> {
    let size = u64::try_from(fs::fstat(file)?.st_size).unwrap_or(0);
    let mut map = DataMap::default();
    let mut position = 0;
    while position < size {
        let data = match fs::seek(file, SeekFrom::Data(position)) {
            Ok(offset) => offset.min(size),
            Err(Errno::NXIO) => size,
            Err(errno) => return Err(errno.into()),
        };
        if data > position {
            map.hole_bytes += data - position;
            map.hole_count += 1;
        }
        if data == size {
            break;
        }
        let hole = match fs::seek(file, SeekFrom::Hole(data)) {
            Ok(offset) => offset.min(size),
            Err(Errno::NXIO) => size,
            Err(errno) => return Err(errno.into()),
        };
        map.data_bytes += hole.saturating_sub(data);
        // A file that changes under us may move backwards; never loop on it.
        position = hole.max(data + 1);
    }
    Ok(map)
}

/// Whether a block device could be had for one user alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclusive {
    /// Nobody holds it.
    Free,
    /// A mount, swap, LVM, RAID, ZFS or another program holds it (`EBUSY`).
    Held,
}

/// Tries to open a block device read-only with `O_EXCL` and closes it at once.
///
/// # Errors
/// As `open(2)` apart from `EBUSY`, which is the answer `Held`.
pub fn probe_exclusive(device: &Path) -> io::Result<Exclusive> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match fs::open(device, flags, Mode::empty()) {
        Ok(_) => Ok(Exclusive::Free),
        Err(Errno::BUSY) => Ok(Exclusive::Held),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// A nameless file in the build directory, which is on a disk more often than /tmp is.
    fn scratch() -> File {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = fs::open(folder, flags, Mode::RUSR | Mode::WUSR)
            .or_else(|_| fs::open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR))
            .unwrap();
        File::from(file)
    }

    #[test]
    fn finds_the_hole_between_two_written_ranges() {
        let file = scratch();
        file.write_all_at(&[1; 65536], 0).unwrap();
        file.write_all_at(&[1; 65536], 1 << 20).unwrap();
        file.sync_all().unwrap();
        let map = data_map(&file).unwrap();
        assert_eq!(map.data_bytes + map.hole_bytes, (1 << 20) + 65536);
        assert_eq!(map, DataMap { data_bytes: 131_072, hole_bytes: (1 << 20) - 65536, hole_count: 1 });
    }

    #[test]
    fn an_empty_and_a_sparse_file() {
        let file = scratch();
        assert_eq!(data_map(&file).unwrap(), DataMap::default());
        file.set_len(1 << 20).unwrap();
        assert_eq!(data_map(&file).unwrap(), DataMap { data_bytes: 0, hole_bytes: 1 << 20, hole_count: 1 });
    }

    #[test]
    fn identifies_a_file_and_its_file_system() {
        let file = scratch();
        file.set_len(12345).unwrap();
        let identity = identify(&file).unwrap();
        assert_eq!((identity.kind, identity.size_bytes), (FileKind::Regular, 12345));
        let system = file_system(&file).unwrap();
        assert!(system.total_bytes >= system.free_bytes && system.total_bytes > 0, "{system:?}");
        assert_eq!(DeviceNumber::from_raw(0xfe00), DeviceNumber { major: 254, minor: 0 });
    }

    #[test]
    fn refuses_what_is_no_block_device() {
        assert_eq!(block_sizes(scratch()).unwrap_err().raw_os_error(), Some(Errno::NOTTY.raw_os_error()));
        assert!(probe_exclusive(Path::new("/nonexistent/device")).is_err());
    }
}
