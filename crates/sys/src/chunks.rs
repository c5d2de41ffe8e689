//! Memory of our own in equal pieces, each given back to the kernel when it is not needed. Not registered
//! with any userfaultfd, and not handed on to children.

use crate::Errno;
use crate::own_memory::{drop_pages, unlock};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ops::Range;
use std::ptr::NonNull;

/// `count` pieces of `CHUNK_BYTES` bytes. What was never written is zeroes and costs nothing.
#[derive(Debug)]
pub struct Chunks<const CHUNK_BYTES: usize> {
    base: NonNull<u8>,
    count: usize,
}

// SAFETY: the mapping belongs to this value alone; a `NonNull` is not `Send` only because it might be shared.
unsafe impl<const CHUNK_BYTES: usize> Send for Chunks<CHUNK_BYTES> {}

impl<const CHUNK_BYTES: usize> Chunks<CHUNK_BYTES> {
    /// Reserves addresses for `count` pieces; none need no memory at all.
    ///
    /// # Errors
    /// ENOMEM when the addresses are not to be had, EINVAL when their number overflows.
    pub fn new(count: usize) -> Result<Self, Errno> {
        const { assert!(CHUNK_BYTES > 0 && CHUNK_BYTES.is_multiple_of(4096)) };
        if count == 0 {
            return Ok(Self { base: NonNull::dangling(), count });
        }
        let bytes = count.checked_mul(CHUNK_BYTES).filter(|&bytes| isize::try_from(bytes).is_ok());
        let bytes = bytes.ok_or(Errno::INVAL)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new private anonymous mapping where the kernel likes touches nothing of ours.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags)? };
        let chunks = Self { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, count };
        // A piece shall cost what it is, not two megabytes.
        // SAFETY: the advice concerns exactly our own, still empty mapping. A kernel without huge pages
        // refuses it, and then there is nothing to turn off.
        let _ = unsafe { madvise(base, bytes, Advice::LinuxNoHugepage) };
        // SAFETY: as above; a child has no use for the pieces.
        unsafe { madvise(base, bytes, Advice::LinuxDontFork)? };
        Ok(chunks)
    }

    /// The addresses of all pieces.
    #[must_use]
    pub fn extent(&self) -> Range<u64> {
        let start = self.base.as_ptr() as u64;
        start..start + (self.count * CHUNK_BYTES) as u64
    }

    /// How many pieces there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// One piece.
    ///
    /// # Panics
    /// When there is no such piece, as a slice does.
    #[must_use]
    pub fn chunk(&self, index: usize) -> &[u8] {
        assert!(index < self.count, "chunk {index} of {}", self.count);
        // SAFETY: the piece lies in our mapping, which is initialised (zeroes at first) and lives as long as
        // `self`; whoever writes needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(index * CHUNK_BYTES), CHUNK_BYTES) }
    }

    /// One piece, to write to.
    ///
    /// # Panics
    /// As [`Chunks::chunk`].
    pub fn chunk_mut(&mut self, index: usize) -> &mut [u8] {
        assert!(index < self.count, "chunk {index} of {}", self.count);
        // SAFETY: as in `chunk`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(index * CHUNK_BYTES), CHUNK_BYTES) }
    }

    /// The program has locked all its memory (mlockall), which is not meant for this.
    pub fn unlock(&mut self) {
        if self.count == 0 {
            return;
        }
        // SAFETY: concerns our own mapping.
        unsafe { unlock(&self.extent()) }
    }

    /// Gives the memory of one piece to the kernel; it is zeroes then.
    ///
    /// # Panics
    /// As [`Chunks::chunk`].
    pub fn give_back(&mut self, index: usize) {
        assert!(index < self.count, "chunk {index} of {}", self.count);
        let start = self.extent().start + (index * CHUNK_BYTES) as u64;
        // SAFETY: the piece lies in our mapping and no reference to it is alive beside `&mut self`. Where the
        // kernel refuses, the memory stays ours: nothing is wrong but the saving.
        let _ = unsafe { drop_pages(&self.extent(), start..start + CHUNK_BYTES as u64) };
    }
}

impl<const CHUNK_BYTES: usize> Drop for Chunks<CHUNK_BYTES> {
    fn drop(&mut self) {
        if self.count > 0 {
            // SAFETY: made by `new` with this length; no reference outlives `self`.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), self.count * CHUNK_BYTES) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_apart_and_zero_after_they_were_given_back() {
        let mut chunks = Chunks::<4096>::new(3).unwrap();
        chunks.chunk_mut(0).fill(1);
        chunks.chunk_mut(1).fill(2);
        assert!(
            chunks.chunk(0).iter().all(|&byte| byte == 1) && chunks.chunk(2).iter().all(|&byte| byte == 0)
        );
        chunks.give_back(0);
        assert!(
            chunks.chunk(0).iter().all(|&byte| byte == 0) && chunks.chunk(1).iter().all(|&byte| byte == 2)
        );
        assert_eq!(chunks.extent().end - chunks.extent().start, 3 * 4096);
    }

    #[test]
    fn none_cost_nothing_and_too_many_are_refused() {
        assert_eq!(Chunks::<4096>::new(0).unwrap().count(), 0);
        assert!(Chunks::<4096>::new(usize::MAX / 4096).is_err());
        assert_eq!(Chunks::<4096>::new(usize::MAX).unwrap_err(), Errno::INVAL);
    }
}
