//! A device that several processes share in parts: each part is leased to one of them at a time, by a lock
//! on one byte of a file that all of them open.
//!
//! The kernel keeps such locks for an open file: they go with the last descriptor of it, however its process
//! ends, and a program that is executed gives them up. So a part comes back by itself, after the last write
//! of whoever had it: a thread that has writes in flight waits for them before its descriptors are closed.

use rustix::fd::AsRawFd;
use std::fs::File;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Parts are multiples of this.
const SMALLEST_BYTES: u64 = 64 << 20;
/// So many at most: that is how long it takes to find that none is left.
const PARTS_MAX: u64 = 4096;
/// When all are taken, that is looked at this often.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Left alone at either end of a device, so that nothing a program writes is ever taken for a partition table
/// or a file system.
pub const MARGIN_BYTES: u64 = 1 << 20;

/// The parts of a device, as one process has them: what it sees is one stretch, filled from its beginning.
#[derive(Debug)]
pub struct Parts {
    leases: File,
    part_bytes: u64,
    /// Of the device.
    count: u64,
    /// As many as one process may have.
    most: usize,
    /// Which part of the device each of ours is.
    own: Vec<u64>,
    /// None was left: not asked for again before.
    again: Option<Instant>,
}

impl Parts {
    /// No part of a device of `device_bytes` yet, later up to `most_bytes` of it. `leases` is this process's
    /// own opening of a file that all who share the device open.
    #[must_use]
    pub fn new(leases: File, device_bytes: u64, most_bytes: u64) -> Self {
        let usable = device_bytes.saturating_sub(2 * MARGIN_BYTES);
        // Small devices in at least eight, as far as whole MiB go.
        let few = (usable / 8 / MARGIN_BYTES * MARGIN_BYTES).clamp(MARGIN_BYTES, SMALLEST_BYTES);
        let part_bytes = few.max(usable.div_ceil(PARTS_MAX).next_multiple_of(MARGIN_BYTES));
        let most = most_bytes.div_ceil(part_bytes) as usize;
        Self { leases, part_bytes, count: usable / part_bytes, most, own: Vec::new(), again: None }
    }

    /// How much one process may come to have.
    #[must_use]
    pub fn most_bytes(&self) -> u64 {
        (self.most as u64).min(self.count) * self.part_bytes
    }

    /// Leases one more part. What it adds to this process's stretch; none when all are taken.
    pub fn lease(&mut self) -> Option<Range<u64>> {
        if self.own.len() >= self.most || self.again.is_some_and(|again| Instant::now() < again) {
            return None;
        }
        // Each process begins elsewhere, so that they do not ask for the same ones in turn.
        let first = self.own.last().map_or(u64::from(std::process::id()) * 61, |part| part + 1);
        let found = (first..first + self.count).map(|part| part % self.count).find(|part| self.take(*part));
        self.again = found.is_none().then(|| Instant::now() + ASK_AGAIN);
        let part = found?;
        let start = self.own.len() as u64 * self.part_bytes;
        self.own.push(part);
        Some(start..start + self.part_bytes)
    }

    /// Whether nobody else has it: then it is ours. One that is ours already does not count.
    fn take(&self, part: u64) -> bool {
        // SAFETY: all zeroes is a lock as good as any.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = libc::F_WRLCK as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_start = part as libc::off_t;
        lock.l_len = 1;
        // SAFETY: the structure is valid for the call, which reads it.
        !self.own.contains(&part)
            && unsafe { libc::fcntl(self.leases.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0
    }

    /// Where on the device an offset of this process's stretch is; none beyond what is leased.
    #[must_use]
    pub fn place(&self, offset: u64) -> Option<u64> {
        let part = self.own.get((offset / self.part_bytes) as usize)?;
        Some(MARGIN_BYTES + part * self.part_bytes + offset % self.part_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn open(folder: &tempfile::TempDir) -> File {
        let path = folder.path().join("leases");
        File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    #[test]
    fn no_part_is_leased_twice_and_those_of_the_dead_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let all = || Parts::new(open(&folder), 10 * 64 * MIB + 2 * MIB, u64::MAX);
        let (mut one, mut other) = (all(), all());
        let ranges: Vec<_> = (0..4).map(|_| one.lease().unwrap()).collect();
        assert_eq!(ranges[3], 3 * 64 * MIB..4 * 64 * MIB);
        let count = std::iter::from_fn(|| other.lease()).count();
        assert_eq!(count, 6, "all that are left");
        let places = |parts: &Parts| {
            (0..parts.own.len() as u64).map(|part| parts.place(part * 64 * MIB).unwrap()).collect::<Vec<_>>()
        };
        let mut every = [places(&one), places(&other)].concat();
        every.sort_unstable();
        assert_eq!(every, (0..10).map(|part| MIB + part * 64 * MIB).collect::<Vec<_>>());
        assert_eq!((one.lease(), other.lease()), (None, None));
        drop(one);
        std::thread::sleep(ASK_AGAIN);
        assert_eq!(std::iter::from_fn(|| other.lease()).count(), 4);
    }

    #[test]
    fn a_stretch_is_as_long_as_was_asked_for_and_ends_where_the_leases_do() {
        let folder = tempfile::tempdir().unwrap();
        let mut parts = Parts::new(open(&folder), 64 << 30, 100 * MIB);
        assert_eq!((parts.place(0), parts.most_bytes()), (None, 128 * MIB));
        let first = parts.lease().unwrap();
        let inside = first.end - 4096;
        assert_eq!(parts.place(inside).unwrap() - parts.place(0).unwrap(), inside);
        assert_eq!(parts.place(first.end), None);
        assert!(parts.lease().is_some() && parts.lease().is_none());
    }

    #[test]
    fn large_devices_have_large_parts_and_small_ones_enough() {
        let folder = tempfile::tempdir().unwrap();
        let parts = |bytes| {
            let parts = Parts::new(open(&folder), bytes, u64::MAX);
            (parts.part_bytes / MIB, parts.count)
        };
        let (part_mib, count) = parts(2 << 40);
        assert!(count <= PARTS_MAX && part_mib * count >= (2 << 20) - 1024, "{part_mib} {count}");
        assert_eq!(parts(66 * MIB), (8, 8));
        for bytes in [0, MIB, 3 * MIB] {
            assert!(parts(bytes).1 <= 1);
        }
    }

    #[test]
    fn margins_are_never_touched() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = 1000 * MIB + 12_345;
        let mut parts = Parts::new(open(&folder), bytes, u64::MAX);
        let mut end = 0;
        while let Some(range) = parts.lease() {
            let (first, last) = (parts.place(range.start).unwrap(), parts.place(range.end - 4096).unwrap());
            assert!(first >= MARGIN_BYTES && last + 4096 <= bytes - MARGIN_BYTES);
            end = range.end;
        }
        assert_eq!(end, parts.most_bytes());
    }
}
