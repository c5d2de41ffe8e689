//! Memory as a slice whose pages may come and go, and what a program says of ranges of addresses: locked,
//! to be brought in, given up.

use crate::Errno;
use crate::proc_stat::own_status_bytes;
use crate::uffd::PAGE;
use rustix::mm::{
    Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mlock, mmap_anonymous, msync, munlock, munmap,
};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

/// Read in one go; between two the thread can be told to end with the process.
const PIECE: u64 = 1 << 20;

/// Types of which every bit pattern is a value, all zeroes included, and that have no padding.
///
/// # Safety
/// That is the promise.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($name:ty)*) => {
        $(
            // SAFETY: a number: every pattern of its bits is a value.
            unsafe impl Plain for $name {}
        )*
    };
}
plain!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

/// Private anonymous memory, zero at first, that children made by fork do not get. Given back when dropped.
#[derive(Debug)]
pub struct Pageable<T: Plain> {
    base: NonNull<T>,
    count: usize,
}

// SAFETY: it owns its mapping alone, and numbers do not depend on a thread.
unsafe impl<T: Plain> Send for Pageable<T> {}
// SAFETY: through a shared reference it is only read.
unsafe impl<T: Plain> Sync for Pageable<T> {}

impl<T: Plain> Pageable<T> {
    /// Maps room for `count` values without touching it.
    ///
    /// # Errors
    /// EINVAL when that is nothing or overflows; ENOMEM when the addresses are not to be had.
    pub fn new(count: usize) -> Result<Self, Errno> {
        let bytes = Self::mapped_bytes(count).ok_or(Errno::INVAL)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new private anonymous mapping where the kernel likes touches nothing of ours.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags)? };
        let memory = Self { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, count };
        // SAFETY: the advice concerns exactly our own mapping.
        unsafe { madvise(base, bytes, Advice::LinuxDontFork)? };
        Ok(memory)
    }

    fn mapped_bytes(count: usize) -> Option<usize> {
        let bytes = count.checked_mul(size_of::<T>()).filter(|&bytes| bytes > 0)?;
        let bytes = bytes.checked_next_multiple_of(PAGE as usize)?;
        isize::try_from(bytes).is_ok().then_some(bytes)
    }

    /// The addresses of all its pages.
    #[must_use]
    pub fn extent(&self) -> Range<u64> {
        let start = self.base.as_ptr() as u64;
        start..start + Self::mapped_bytes(self.count).unwrap_or(0) as u64
    }
}

impl<T: Plain> Deref for Pageable<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping holds so many values, aligned to pages; zeroes are values; it lives as long
        // as `self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.count) }
    }
}

impl<T: Plain> DerefMut for Pageable<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and through `&mut self` this is the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.count) }
    }
}

impl<T: Plain> Drop for Pageable<T> {
    fn drop(&mut self) {
        let bytes = Self::mapped_bytes(self.count).unwrap_or(0);
        // SAFETY: made by `Pageable::new` with this length; no reference outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), bytes) };
    }
}

/// Brings the pages of a range in and keeps them there.
///
/// # Errors
/// ENOMEM when a part is not mapped or RLIMIT_MEMLOCK does not allow it.
pub fn lock(range: &Range<u64>) -> Result<(), Errno> {
    let bytes = (range.end - range.start) as usize;
    // It finds out whether all of it is mapped and does nothing else: what is before a gap would stay locked.
    // SAFETY: the kernel ends no write by it and changes nothing.
    unsafe { msync(range.start as *mut _, bytes, MsyncFlags::ASYNC) }?;
    // SAFETY: locking changes no content, and addresses that are not mapped are refused.
    unsafe { mlock(range.start as *mut _, bytes) }
}

/// Takes that back.
///
/// # Errors
/// ENOMEM when a part is not mapped.
pub fn unlock(range: &Range<u64>) -> Result<(), Errno> {
    // SAFETY: as for locking.
    unsafe { munlock(range.start as *mut _, (range.end - range.start) as usize) }
}

/// Brings the pages of a range in as a read of each would. What is not mapped (any more) is passed over.
/// Whether all of any piece is there.
pub fn bring_in(range: &Range<u64>) -> bool {
    let mut any = false;
    for start in (range.start..range.end).step_by(PIECE as usize) {
        let length = PIECE.min(range.end - start) as usize;
        // SAFETY: reading pages changes no content; what is not mapped is refused.
        any |= unsafe { madvise(start as *mut _, length, Advice::LinuxPopulateRead) }.is_ok();
    }
    any
}

/// Has the kernel take away what a program has given up in a range (MADV_FREE) and not written to since, as
/// it would when memory runs short. Where the kernel swaps it may take other pages there too.
pub fn take_given_up(range: &Range<u64>) {
    let bytes = (range.end - range.start) as usize;
    // What is not mapped (any more) has nothing.
    // SAFETY: content changes only where the program allowed that, and none that it wrote.
    let _ = unsafe { madvise(range.start as *mut _, bytes, Advice::LinuxPageOut) };
}

/// What the kernel counts as locked in this process, in bytes.
#[must_use]
pub fn locked_bytes() -> u64 {
    own_status_bytes("VmLck").unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_taken_unless_it_was_written_to() {
        const PAGES: usize = 1024;
        let map = crate::page_map::PageMap::open().unwrap();
        let memory = crate::region::Region::new(PAGES).unwrap();
        let range = memory.address()..memory.address() + PAGES as u64 * PAGE;
        (0..PAGES).for_each(|page| memory.write(page, 0, 7));
        // SAFETY: of the test's own memory nothing else knows.
        unsafe { madvise(range.start as *mut _, PAGES * PAGE as usize, Advice::LinuxFree) }.unwrap();
        (0..PAGES).step_by(4).for_each(|page| memory.write(page, 0, 8));
        take_given_up(&range);
        assert!((0..PAGES).step_by(4).all(|page| memory.read(page, 0) == 8));
        let there = |start| map.present(start, 64).unwrap().count_ones();
        let there: u32 = range.step_by(64 * PAGE as usize).map(there).sum();
        // Those last given up may be on their way to the list of those that can be taken.
        assert!((256..512).contains(&there), "{there}");
    }

    #[test]
    fn values_are_zero_at_first_and_stay_as_written() {
        let mut memory = Pageable::<u64>::new(1000).unwrap();
        assert_eq!(memory.extent().end - memory.extent().start, 2 * PAGE);
        assert!(memory.iter().all(|&value| value == 0));
        memory[999] = 7;
        let range = memory.extent();
        if lock(&range).is_ok() {
            assert!(locked_bytes() >= 2 * PAGE);
            unlock(&range).unwrap();
        }
        bring_in(&range);
        assert_eq!(memory.iter().sum::<u64>(), 7);
        for count in [0, usize::MAX, usize::MAX / 8] {
            assert_eq!(Pageable::<u64>::new(count).unwrap_err(), Errno::INVAL);
        }
    }

    /// As the kernel tells it of the mapping at an address.
    fn is_locked(address: u64) -> bool {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let is_at = |line: &str| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some((number(start)?..number(end)?).contains(&address))
        };
        let after = smaps.lines().skip_while(|line| is_at(line) != Some(true));
        let flags = after.into_iter().find(|line| line.starts_with("VmFlags:")).unwrap();
        flags.split_ascii_whitespace().any(|flag| flag == "lo")
    }

    #[test]
    fn nothing_of_a_range_with_a_gap_is_locked() {
        let memory = Pageable::<u64>::new(512 * 3).unwrap();
        let range = memory.extent();
        if lock(&range).is_ok() {
            assert!(is_locked(range.start));
            unlock(&range).unwrap();
        }
        // SAFETY: nothing is read or written there any more.
        unsafe { munmap((range.start + PAGE) as *mut _, PAGE as usize) }.unwrap();
        assert_eq!(lock(&range), Err(Errno::NOMEM));
        assert!(!is_locked(range.start));
    }
}
