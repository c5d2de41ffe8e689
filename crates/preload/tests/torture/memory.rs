//! Memory whose content is known: each page is made from a version and a stamp, and can be checked at any time.

use std::io::Error;
use std::ptr::null_mut;

pub(crate) const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;

/// What a page must hold. Version 0 is all zeroes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Content {
    pub(crate) version: u64,
    pub(crate) stamp: u64,
    /// Given up by MADV_FREE: it may be zeroes as well.
    pub(crate) freed: bool,
}

fn word(version: u64, index: usize) -> u64 {
    if version == 0 {
        return 0;
    }
    // From a third on, every other page repeats itself: it compresses.
    let index = if version.is_multiple_of(2) && index >= WORDS / 3 { index % 16 } else { index };
    let mixed = (version ^ (index as u64) << 48).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ (mixed >> 29)
}

/// A private anonymous mapping and what its pages must hold.
#[derive(Debug)]
pub(crate) struct Area {
    base: *mut u64,
    pub(crate) pages: Vec<Content>,
    /// One mapping for the kernel, as far as is known: only such can be moved to a given address.
    pub(crate) whole: bool,
}

// SAFETY: an area owns its mapping, and through a shared reference it is only read.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    pub(crate) fn new(pages: usize) -> Self {
        Self {
            base: map(pages, libc::PROT_READ | libc::PROT_WRITE),
            pages: vec![Content::default(); pages],
            whole: true,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    pub(crate) fn at(&self, page: usize) -> *mut u64 {
        assert!(page <= self.pages.len());
        // SAFETY: the offset stays within the mapping, or just behind it.
        unsafe { self.base.add(page * WORDS) }
    }

    pub(crate) fn bytes(&mut self, page: usize, count: usize) -> &mut [u8] {
        assert!(page + count <= self.pages.len());
        // SAFETY: the range lies in the mapping, which only this thread's `Area` knows; all bit patterns are bytes.
        unsafe { std::slice::from_raw_parts_mut(self.at(page).cast(), count * PAGE) }
    }

    pub(crate) fn write(&mut self, page: usize, version: u64) {
        let start = self.at(page);
        for index in 0..WORDS {
            // SAFETY: within the page.
            unsafe { start.add(index).write_volatile(word(version, index)) };
        }
        self.pages[page] = Content { version, stamp: word(version, 0), freed: false };
    }

    /// Changes one word.
    pub(crate) fn stamp(&mut self, page: usize, stamp: u64) {
        if self.pages[page].freed {
            return self.write(page, stamp);
        }
        // SAFETY: the first word of the page.
        unsafe { self.at(page).write_volatile(stamp) };
        self.pages[page].stamp = stamp;
    }

    /// Compares a page with what it must hold.
    pub(crate) fn check(&self, page: usize) -> Result<(), String> {
        let start = self.at(page);
        // SAFETY: within the page.
        let word = |index| unsafe { start.add(index).read_volatile() };
        let found = || (0..WORDS).map(word).collect::<Vec<_>>();
        // One that was given up may go while it is read: then it is zeroes for good.
        let freed = self.pages[page].freed && self.matches(page, &found()).is_err();
        if freed || !self.pages[page].freed { self.matches(page, &found()) } else { Ok(()) }
    }

    /// Compares what a page was read as with what it must hold.
    pub(crate) fn compare(&self, page: usize, found: &[u8]) -> Result<(), String> {
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
        self.matches(page, &found.chunks_exact(8).map(word).collect::<Vec<_>>())
    }

    fn matches(&self, page: usize, found: &[u64]) -> Result<(), String> {
        let (start, wanted) = (self.at(page), self.pages[page]);
        let matches = |content: Content| {
            found[0] == content.stamp
                && found[1..].iter().zip(1..).all(|(&found, index)| found == word(content.version, index))
        };
        if matches(wanted) || (wanted.freed && matches(Content::default())) {
            return Ok(());
        }
        let zeroes = found.iter().filter(|&&word| word == 0).count();
        Err(format!(
            "page {page} of {} at {start:?}: wanted {wanted:x?}, found {:x?} ... with {zeroes} words of zeroes",
            self.len(),
            &found[..4]
        ))
    }

    pub(crate) fn check_all(&self) -> Result<(), String> {
        (0..self.len()).try_for_each(|page| self.check(page))
    }

    pub(crate) fn advise(&mut self, page: usize, count: usize, advice: i32) -> Result<(), Error> {
        // SAFETY: within the mapping; what the advice does to the content the caller notes.
        check(unsafe { libc::madvise(self.at(page).cast(), count * PAGE, advice) })
    }

    pub(crate) fn protect(&mut self, page: usize, count: usize, access: i32) -> Result<(), Error> {
        self.whole = false;
        // SAFETY: within the mapping, which nobody else uses meanwhile.
        check(unsafe { libc::mprotect(self.at(page).cast(), count * PAGE, access) })
    }

    pub(crate) fn lock(&mut self, page: usize, count: usize, lock: bool) -> Result<(), Error> {
        self.whole = false;
        let start = self.at(page).cast();
        // SAFETY: within the mapping; the content stays.
        check(unsafe {
            if lock { libc::mlock(start, count * PAGE) } else { libc::munlock(start, count * PAGE) }
        })
    }

    /// Unmaps a part; what is behind it becomes an area of its own.
    pub(crate) fn cut(&mut self, page: usize, count: usize) -> Option<Self> {
        let behind = self.at(page + count);
        // SAFETY: within the mapping, and forgotten here.
        check(unsafe { libc::munmap(self.at(page).cast(), count * PAGE) }).expect("munmap");
        let rest = self.pages.split_off(page + count);
        self.pages.truncate(page);
        (!rest.is_empty()).then_some(Self { base: behind, pages: rest, whole: self.whole })
    }

    /// Grows or shrinks, moving where the kernel likes.
    pub(crate) fn resize(&mut self, pages: usize) {
        let old = self.len();
        // SAFETY: the whole mapping; on success the old addresses are forgotten.
        let base = unsafe { libc::mremap(self.base.cast(), old * PAGE, pages * PAGE, libc::MREMAP_MAYMOVE) };
        if base != libc::MAP_FAILED {
            self.base = base.cast();
            self.pages.resize(pages, Content::default());
        }
    }

    /// Moves to other addresses, onto a mapping that is there, and grows by a page: what does not grow may be moved
    /// in part where the pager has just taken over another part. Every second area comes to lie as before in its
    /// 256 KiB, so that the pager can leave its pages their numbers.
    pub(crate) fn relocate(&mut self) {
        const BLOCK: usize = 64 * PAGE;
        let (old, new) = (self.len() * PAGE, (self.len() + 1) * PAGE);
        let mut target = map(self.len() + 1 + BLOCK / PAGE, libc::PROT_READ | libc::PROT_WRITE);
        let lies_alike = (self.base as usize).wrapping_sub(target as usize) % BLOCK;
        let before = if self.len().is_multiple_of(2) { lies_alike } else { PAGE };
        // SAFETY: the ends of the new mapping, which nobody knows of. The addresses are whole pages.
        unsafe {
            if before > 0 {
                libc::munmap(target.cast(), before);
            }
            target = target.byte_add(before);
            libc::munmap(target.byte_add(new).cast(), BLOCK - before);
        }
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: the target is a mapping of that size that nobody knows of.
        let base = unsafe { libc::mremap(self.base.cast(), old, new, flags, target) };
        // Otherwise the target may be gone, and others where it was.
        if base != libc::MAP_FAILED {
            self.base = base.cast();
            self.pages.push(Content::default());
        }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if !self.pages.is_empty() {
            // SAFETY: this area's own mapping.
            unsafe { libc::munmap(self.base.cast(), self.len() * PAGE) };
        }
    }
}

fn map(pages: usize, access: i32) -> *mut u64 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping touches nothing of anybody's.
    let base = unsafe { libc::mmap(null_mut(), pages * PAGE, access, flags, -1, 0) };
    assert!(base != libc::MAP_FAILED, "mmap: {}", Error::last_os_error());
    base.cast()
}

pub(crate) fn check(outcome: i32) -> Result<(), Error> {
    if outcome == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}
