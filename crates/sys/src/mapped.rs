//! A file mapped into memory: reads and writes are copies, and the kernel does the I/O on page faults.
//!
//! What this leaves out: errors. A block that cannot be read, or a file that gets shorter, ends the process
//! with SIGBUS, as it ends every program that maps files.

use crate::Errno;
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, msync, munmap};
use std::fs::File;
use std::ptr::NonNull;

/// The first bytes of a file, shared with everybody else who uses it.
#[derive(Debug)]
pub struct MappedFile {
    base: NonNull<u8>,
    bytes: usize,
    writable: bool,
}

// SAFETY: the mapping belongs to this value; its content is only ever copied, never borrowed.
unsafe impl Send for MappedFile {}

impl MappedFile {
    /// Maps the first `bytes` of `file`; `random` tells the kernel not to read ahead.
    ///
    /// # Errors
    /// The kernel's errno: EACCES when the file is not open as `writable` wants it.
    pub fn new(file: &File, bytes: u64, writable: bool, random: bool) -> Result<Self, Errno> {
        let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes > 0).ok_or(Errno::INVAL)?;
        let access = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let advice = if random { Advice::Random } else { Advice::Sequential };
        // SAFETY: the range is exactly the new mapping; the advice changes only what is read ahead.
        let _ = unsafe { madvise(base.as_ptr().cast(), bytes, advice) };
        Ok(Self { base, bytes, writable })
    }

    /// Copies from `offset` of the file; returns the bytes copied, fewer at the end of the mapping.
    #[inline]
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        let (start, length) = self.range(offset, buffer.len());
        // SAFETY: the range lies inside the mapping and `buffer` elsewhere. Others may write to the file
        // meanwhile: then the bytes are any mix of old and new, which is what a read of a file promises.
        unsafe { self.base.as_ptr().add(start).copy_to_nonoverlapping(buffer.as_mut_ptr(), length) };
        length
    }

    /// Copies to `offset` of the file; returns the bytes copied, fewer at the end of the mapping.
    ///
    /// # Errors
    /// EBADF when the mapping is for reading only.
    #[inline]
    pub fn write_at(&self, buffer: &[u8], offset: u64) -> Result<usize, Errno> {
        if !self.writable {
            return Err(Errno::BADF);
        }
        let (start, length) = self.range(offset, buffer.len());
        // SAFETY: as for reading, and the mapping is writable. No reference into it exists.
        unsafe { self.base.as_ptr().add(start).copy_from_nonoverlapping(buffer.as_ptr(), length) };
        Ok(length)
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// The kernel's errno, which may be that of an earlier write.
    pub fn sync(&self) -> Result<(), Errno> {
        // SAFETY: the range is exactly our own mapping; its content stays as it is.
        unsafe { msync(self.base.as_ptr().cast(), self.bytes, MsyncFlags::SYNC) }
    }

    /// Start and length of what lies inside the mapping.
    #[inline]
    fn range(&self, offset: u64, length: usize) -> (usize, usize) {
        let start = usize::try_from(offset).unwrap_or(self.bytes).min(self.bytes);
        (start, length.min(self.bytes - start))
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: made by `MappedFile::new` with this length; nothing refers into it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn copies_are_the_files_content() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[3; 8192], 0).unwrap();
        let mapped = MappedFile::new(&file, 8192, true, true).unwrap();
        let mut back = [0; 4096];
        assert_eq!(mapped.read_at(&mut back, 4096), 4096);
        assert_eq!(back, [3; 4096]);
        assert_eq!(mapped.write_at(&[5; 4096], 0), Ok(4096));
        mapped.sync().unwrap();
        file.read_exact_at(&mut back, 0).unwrap();
        assert_eq!(back, [5; 4096]);
    }

    #[test]
    fn the_end_is_short_and_a_read_only_mapping_does_not_write() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[3; 4096], 0).unwrap();
        let mapped = MappedFile::new(&file, 4096, false, false).unwrap();
        let mut back = [0; 4096];
        assert_eq!(mapped.read_at(&mut back, 4000), 96);
        assert_eq!(mapped.read_at(&mut back, u64::MAX), 0);
        assert_eq!(mapped.write_at(&[5; 1], 0), Err(Errno::BADF));
        assert!(MappedFile::new(&file, 0, false, false).is_err());
    }
}
