//! How busy a disk was, from the kernel's own count.

use crate::volume::DeviceNumber;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Readings, or with [`DiskStats::since`] what happened between two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// The kernel's name of the disk.
    pub name: String,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Milliseconds in which at least one request was with the disk.
    pub busy_ms: u64,
}

/// The kernel counts in sectors of this size, whatever the disk has.
const SECTOR_BYTES: u64 = 512;

impl DiskStats {
    /// The disk that holds a file, a folder or, for a device file, the device itself; none when the kernel
    /// counts nothing for it (a network or memory file system).
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        let raw = if metadata.rdev() != 0 { metadata.rdev() } else { metadata.dev() };
        let device = DeviceNumber::from_raw(raw);
        Self::parse(&fs::read_to_string("/proc/diskstats").ok()?, device.major, device.minor)
    }

    fn parse(text: &str, major: u32, minor: u32) -> Option<Self> {
        text.lines().find_map(|line| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let number = |at: usize| words.get(at)?.parse::<u64>().ok();
            if number(0)? != u64::from(major) || number(1)? != u64::from(minor) {
                return None;
            }
            Some(Self {
                name: (*words.get(2)?).to_owned(),
                read_bytes: number(5)? * SECTOR_BYTES,
                written_bytes: number(9)? * SECTOR_BYTES,
                busy_ms: number(12)?,
            })
        })
    }

    /// What happened between `earlier` and this reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            name: self.name.clone(),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            busy_ms: self.busy_ms.saturating_sub(earlier.busy_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_line_of_a_disk() {
        let text = "   7       0 loop0 1 0 2 3 0 0 0 0 0 4 5\n \
                    254       0 vda 100 0 2048 9 50 0 4096 8 0 77 99 0 0 0 0 1 2\n";
        let disk = DiskStats::parse(text, 254, 0).unwrap();
        let wanted =
            DiskStats { name: "vda".into(), read_bytes: 1 << 20, written_bytes: 2 << 20, busy_ms: 77 };
        assert_eq!(disk, wanted);
        assert_eq!(DiskStats::parse(text, 254, 1), None);
        assert_eq!(disk.since(&disk).busy_ms, 0);
    }
}
