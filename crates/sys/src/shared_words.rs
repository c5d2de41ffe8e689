//! A file of 64-bit words that one process writes and others may look at while it runs.

use crate::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The words of a file, shared with whoever else maps it.
#[derive(Debug)]
pub struct SharedWords {
    base: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the mapping belongs to this value and is only accessed atomically.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps the first `count` words of a file that has at least as many.
    ///
    /// # Errors
    /// EINVAL when `count` is zero or the file is shorter; else the kernel's errno.
    pub fn map(file: &File, count: usize, writable: bool) -> Result<Self, Errno> {
        let bytes = count.checked_mul(8).filter(|&bytes| bytes > 0).ok_or(Errno::INVAL)?;
        if rustix::fs::fstat(file)?.st_size < bytes as i64 {
            return Err(Errno::INVAL);
        }
        let access = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping where the kernel likes touches nothing of ours. Should somebody cut the file
        // short later, reading it ends this process with SIGBUS, which is no memory error.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0)? };
        Ok(Self { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, count })
    }
}

impl Deref for SharedWords {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping holds `count` aligned words, lives as long as `self`, and atomics may be
        // shared. A read-only mapping is only loaded from: storing through it would end the process, not
        // harm memory.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.count) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: made by `map` with this length; no reference outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.count * 8) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn what_one_writes_the_other_sees() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(SharedWords::map(&file, 2, true).unwrap_err(), Errno::INVAL, "too short");
        file.set_len(16).unwrap();
        let writer = SharedWords::map(&file, 2, true).unwrap();
        let reader = SharedWords::map(&file, 2, false).unwrap();
        writer[1].store(7, Ordering::Relaxed);
        assert_eq!((reader[0].load(Ordering::Relaxed), reader[1].load(Ordering::Relaxed)), (0, 7));
    }
}
