//! Anonymous memory that is touched page by page: what a paging workload runs on.
//!
//! An access is one 8-byte load or store at a page's word, bounds-checked, as a relaxed atomic: threads may
//! meet on a word without a data race, and the compiled access is one plain move. Small pages are asked for,
//! so that one access can bring in one page and no more. It knows nothing of patterns, clocks or limits.

use crate::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page here; machines with other page sizes are refused.
pub const PAGE_BYTES: usize = 4096;

/// 8-byte words in a page.
pub const PAGE_WORDS: usize = PAGE_BYTES / size_of::<u64>();

/// `pages` pages of private anonymous memory, given back when dropped.
#[derive(Debug)]
pub struct Region {
    base: NonNull<AtomicU64>,
    pages: usize,
}

// SAFETY: the region owns its mapping alone, and nothing in it depends on the thread that made it.
unsafe impl Send for Region {}
// SAFETY: every access through `&Region` is atomic, so threads may share it.
unsafe impl Sync for Region {}

impl Region {
    /// Maps memory without touching it: no page is there until its first access.
    ///
    /// # Errors
    /// EINVAL when `pages` is zero, the size overflows or the machine's pages are not 4 KiB; ENOMEM when the
    /// addresses are not to be had.
    pub fn new(pages: usize) -> Result<Self, Errno> {
        let bytes = pages.checked_mul(PAGE_BYTES).filter(|&bytes| bytes > 0).ok_or(Errno::INVAL)?;
        if rustix::param::page_size() != PAGE_BYTES {
            return Err(Errno::INVAL);
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new private anonymous mapping where the kernel likes touches nothing of ours.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags)? };
        let region = Self { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, pages };
        // A kernel without transparent huge pages refuses this, and then there is nothing to turn off.
        let _ = region.advise(Advice::LinuxNoHugepage);
        Ok(region)
    }

    /// How many pages there are.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Where it starts, for whoever takes its page faults over.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Reads one word of one page.
    ///
    /// # Panics
    /// When there is no such page: a defect of the caller. The word wraps within the page.
    #[inline]
    #[must_use]
    pub fn read(&self, page: usize, word: usize) -> u64 {
        self.word(page, word).load(Ordering::Relaxed)
    }

    /// Writes one word of one page.
    ///
    /// # Panics
    /// When there is no such page: a defect of the caller. The word wraps within the page.
    #[inline]
    pub fn write(&self, page: usize, word: usize, value: u64) {
        self.word(page, word).store(value, Ordering::Relaxed);
    }

    #[inline]
    fn word(&self, page: usize, word: usize) -> &AtomicU64 {
        assert!(page < self.pages, "page {page} of {}", self.pages);
        let index = page * PAGE_WORDS + word % PAGE_WORDS;
        // SAFETY: `index` is below `pages * PAGE_WORDS` by the assertion, so it lies in the mapping, which is
        // aligned to pages, zeroed by the kernel, lives as long as `self` and is only accessed atomically.
        unsafe { self.base.add(index).as_ref() }
    }

    /// Asks the kernel to page everything out now; a full swap leaves pages where they are.
    ///
    /// # Errors
    /// EINVAL on kernels before 5.4, which do not know the advice.
    pub fn page_out(&self) -> Result<(), Errno> {
        self.advise(Advice::LinuxPageOut)
    }

    fn advise(&self, advice: Advice) -> Result<(), Errno> {
        // SAFETY: the range is exactly our own mapping, and the advices used here keep its content.
        unsafe { madvise(self.base.as_ptr().cast(), self.pages * PAGE_BYTES, advice) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `Region::new` with this length and no reference outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.pages * PAGE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_keeps_what_was_written() {
        let region = Region::new(64).unwrap();
        for page in 0..64 {
            region.write(page, page, page as u64 + 1);
        }
        for page in 0..64 {
            assert_eq!(region.read(page, page), page as u64 + 1);
            assert_eq!(region.read(page, page + 1), 0, "the kernel gives zeroes");
        }
        assert_eq!(region.read(3, 3 + PAGE_WORDS), 4, "a word wraps within its page");
    }

    #[test]
    fn content_outlives_being_paged_out() {
        let region = Region::new(256).unwrap();
        (0..256).for_each(|page| region.write(page, 7, page as u64));
        // Without swap nothing moves; the content must be the same either way.
        let _ = region.page_out();
        assert!((0..256).all(|page| region.read(page, 7) == page as u64));
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert_eq!(Region::new(0).unwrap_err(), Errno::INVAL);
        assert_eq!(Region::new(usize::MAX).unwrap_err(), Errno::INVAL);
    }

    #[test]
    #[should_panic(expected = "page 4 of 4")]
    fn a_page_that_is_not_there_is_a_panic() {
        let _ = Region::new(4).unwrap().read(4, 0);
    }
}
