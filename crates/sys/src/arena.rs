//! The memory that I/O goes to: one contiguous, page-aligned mapping cut into equal slots, on huge pages
//! where the system has them.

use crate::Errno;
use crate::own_memory::drop_pages;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr::NonNull;

const HUGE_PAGE: usize = 2 << 20;

/// What backs the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Pages of the huge-page pool (hugetlbfs).
    HugeTlb,
    /// Ordinary memory, with transparent huge pages asked for.
    Transparent,
    /// Ordinary memory and no more of it than needed.
    Small,
}

/// `slots` buffers of `slot_bytes` each.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    mapped_bytes: usize,
    slot_bytes: usize,
    slots: usize,
    backing: Backing,
}

// SAFETY: the arena owns its mapping alone; a `NonNull` is not `Send` only because it might be shared.
unsafe impl Send for Arena {}

impl Arena {
    /// Maps and populates memory for `slots` buffers of `slot_bytes` bytes (rounded up to whole pages).
    ///
    /// # Errors
    /// ENOMEM when the memory is not to be had, EINVAL when the size overflows or is zero.
    pub fn new(slots: usize, slot_bytes: usize) -> Result<Self, Errno> {
        let mapped_bytes = Self::mapped_bytes_for(slots, slot_bytes, false).ok_or(Errno::INVAL)?;
        let mut arena = match map(mapped_bytes, MapFlags::HUGETLB | MapFlags::HUGE_2MB) {
            Ok(base) => {
                let slot_bytes = slot_bytes.checked_next_multiple_of(4096).ok_or(Errno::INVAL)?;
                Self { base, mapped_bytes, slot_bytes, slots, backing: Backing::HugeTlb }
            }
            Err(_) => Self::untouched(slots, slot_bytes, true)?,
        };
        arena.touch();
        Ok(arena)
    }

    /// The same on small pages: where huge ones would be more than may be locked.
    ///
    /// # Errors
    /// As [`Arena::new`].
    pub fn small(slots: usize, slot_bytes: usize) -> Result<Self, Errno> {
        let mut arena = Self::untouched(slots, slot_bytes, false)?;
        arena.touch();
        Ok(arena)
    }

    /// The same, none of which takes memory before it is used. `huge`: on huge pages, if the system has them.
    ///
    /// # Errors
    /// As [`Arena::new`].
    pub(crate) fn untouched(slots: usize, slot_bytes: usize, huge: bool) -> Result<Self, Errno> {
        let mapped_bytes = Self::mapped_bytes_for(slots, slot_bytes, !huge).ok_or(Errno::INVAL)?;
        let slot_bytes = slot_bytes.checked_next_multiple_of(4096).ok_or(Errno::INVAL)?;
        let base = map(mapped_bytes, MapFlags::empty())?;
        let (backing, advice) = if huge {
            (Backing::Transparent, Advice::LinuxHugepage)
        } else {
            (Backing::Small, Advice::LinuxNoHugepage)
        };
        let arena = Self { base, mapped_bytes, slot_bytes, slots, backing };
        // SAFETY: the range is exactly our own mapping; the advice changes only its page size.
        let _ = unsafe { madvise(arena.base.as_ptr().cast(), mapped_bytes, advice) };
        Ok(arena)
    }

    /// Gives all of its memory back to the kernel: it is zeroes again, and takes none until it is used. Also
    /// where the program has locked all its memory (mlockall), which is not meant for this.
    pub(crate) fn give_back(&mut self) -> Result<(), Errno> {
        let start = self.base.as_ptr() as u64;
        let all = start..start + self.mapped_bytes as u64;
        // SAFETY: the range is exactly our own mapping, and `&mut self` the only reference into it.
        unsafe { drop_pages(&all, all.clone()) }
    }

    /// Bytes that so many buffers of so many bytes are mapped with; none for nothing, or for too much.
    pub(crate) fn mapped_bytes_for(slots: usize, slot_bytes: usize, small: bool) -> Option<usize> {
        let slot_bytes = slot_bytes.checked_next_multiple_of(4096)?;
        let wanted = slots.checked_mul(slot_bytes).filter(|&bytes| bytes > 0)?;
        if small { Some(wanted) } else { wanted.checked_next_multiple_of(HUGE_PAGE) }
    }

    /// Touches each page, so that no page fault falls into a measurement.
    fn touch(&mut self) {
        self.all_mut().fill(0);
    }

    /// All slots as one slice.
    pub fn all_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `mapped_bytes` long, readable, writable and zeroed by the kernel, lives as
        // long as `self`, and `&mut self` makes this the only reference into it.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.mapped_bytes) }
    }

    /// The buffer of one slot.
    ///
    /// # Panics
    /// When there is no such slot: a defect of the caller.
    pub fn slot_mut(&mut self, slot: usize) -> &mut [u8] {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        let slot_bytes = self.slot_bytes;
        &mut self.all_mut()[slot * slot_bytes..(slot + 1) * slot_bytes]
    }

    /// The address of one slot, for the ring.
    pub(crate) fn slot_address(&self, slot: usize) -> u64 {
        debug_assert!(slot < self.slots);
        self.base.as_ptr() as u64 + (slot * self.slot_bytes) as u64
    }

    /// The whole mapping, for registration with a ring.
    pub(crate) fn extent(&self) -> (*mut c_void, usize) {
        (self.base.as_ptr().cast(), self.mapped_bytes)
    }

    /// Bytes in each slot.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// How many slots there are.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// What backs the memory.
    #[must_use]
    pub fn backing(&self) -> Backing {
        self.backing
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `Arena::new` with this length and no reference outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.mapped_bytes) };
    }
}

fn map(bytes: usize, extra: MapFlags) -> Result<NonNull<u8>, Errno> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private anonymous mapping at an address of the kernel's choice touches nothing of ours.
    let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE | extra)? };
    NonNull::new(base.cast()).ok_or(Errno::NOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_aligned_and_apart() {
        let mut arena = Arena::new(5, 5000).unwrap();
        assert_eq!(arena.slot_bytes(), 8192);
        for slot in 0..5 {
            arena.slot_mut(slot).fill(slot as u8 + 1);
            assert_eq!(arena.slot_address(slot) % 4096, 0);
        }
        for slot in 0..5 {
            assert!(arena.slot_mut(slot).iter().all(|&byte| byte == slot as u8 + 1));
        }
    }

    #[test]
    fn small_pages_take_no_more_than_is_asked_for() {
        let mut arena = Arena::small(5, 5000).unwrap();
        assert_eq!((arena.all_mut().len(), arena.backing()), (5 * 8192, Backing::Small));
        arena.slot_mut(4).fill(1);
        assert!(Arena::small(0, 4096).is_err() && Arena::small(1, usize::MAX).is_err());
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(Arena::new(0, 4096).is_err());
        assert!(Arena::new(usize::MAX, 4096).is_err());
        assert!(Arena::new(1, usize::MAX).is_err());
    }
}
