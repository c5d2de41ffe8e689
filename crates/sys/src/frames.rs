//! Staging frames: addresses to which pages of a program are moved when they are taken away, and from which
//! they are written, copied back, or given to the kernel.
//!
//! A frame is an address; whether a page stands there only [`crate::page_map`] knows for sure. Touching a
//! frame without a page would leave a page of zeroes where a later move finds no room, so [`Frames::page`]
//! demands the caller's word and keeps its own note of it.

use crate::Errno;
use crate::own_memory::{drop_pages, unlock};
use crate::uffd::{PAGE, Userfault};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

const PAGE_BYTES: usize = PAGE as usize;

/// `count` frames of one page each, none of them filled.
#[derive(Debug)]
pub struct Frames {
    base: NonNull<u8>,
    count: usize,
    /// Which frames hold a page.
    filled: Bits,
    /// Those whose pages may be executed.
    executable: Bits,
}

/// Some of the frames, a bit each.
#[derive(Debug, Clone)]
struct Bits(Vec<u64>);

impl Bits {
    fn has(&self, frame: u32) -> bool {
        self.0[frame as usize / 64] & (1 << (frame % 64)) != 0
    }

    fn set(&mut self, frame: u32, to: bool) {
        let (word, bit) = (&mut self.0[frame as usize / 64], 1 << (frame % 64));
        *word = if to { *word | bit } else { *word & !bit };
    }
}

// SAFETY: the frames own their mapping alone.
unsafe impl Send for Frames {}

impl Frames {
    /// Maps the addresses and registers them with `userfault`, so that pages can be moved to them.
    ///
    /// # Errors
    /// ENOMEM when the addresses are not to be had; what registering gave.
    pub fn new(count: usize, userfault: &Userfault) -> Result<Self, Errno> {
        let bytes = count.checked_mul(PAGE_BYTES).filter(|&bytes| bytes > 0).ok_or(Errno::INVAL)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new private anonymous mapping where the kernel likes touches nothing of ours.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags)? };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        let none = Bits(vec![0; count.div_ceil(64)]);
        let frames = Self { base, count, filled: none.clone(), executable: none };
        // SAFETY: the advices concern exactly our own, still empty mapping. A kernel without huge pages
        // refuses the first, and then there is nothing to turn off.
        let _ = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxNoHugepage) };
        // A child does not get the frames: shared pages could not be moved.
        // SAFETY: as above.
        unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxDontFork)? };
        userfault.register_target(frames.extent())?;
        Ok(frames)
    }

    /// The addresses of all frames.
    #[must_use]
    pub fn extent(&self) -> Range<u64> {
        let start = self.base.as_ptr() as u64;
        start..start + (self.count as u64) * PAGE
    }

    /// The address of a frame.
    #[must_use]
    pub fn address(&self, frame: u32) -> u64 {
        assert!((frame as usize) < self.count, "frame {frame} of {}", self.count);
        self.base.as_ptr() as u64 + u64::from(frame) * PAGE
    }

    /// Whether executable pages can be moved to a frame, which are the only ones then.
    #[must_use]
    pub fn is_executable(&self, frame: u32) -> bool {
        self.executable.has(frame)
    }

    /// From now on executable pages can be moved to these frames and no others, or the other way round: the
    /// kernel moves pages only between memory of the same access. It lasts until they are given back.
    ///
    /// # Errors
    /// EACCES where a policy forbids it, ENOMEM where the process may have no more mappings; nothing is
    /// changed.
    pub fn set_executable(&mut self, frames: Range<u32>, executable: bool) -> Result<(), Errno> {
        assert!(frames.end as usize <= self.count, "frames {frames:?} of {}", self.count);
        let mut access = MprotectFlags::READ | MprotectFlags::WRITE;
        access.set(MprotectFlags::EXEC, executable);
        // SAFETY: the frames lie in our own mapping, and may be read and written as before.
        unsafe {
            let first = self.base.as_ptr().add(frames.start as usize * PAGE_BYTES);
            mprotect(first.cast(), frames.len() * PAGE_BYTES, access)?;
        }
        frames.for_each(|frame| self.executable.set(frame, executable));
        Ok(())
    }

    /// Notes that a page was moved to the frame, as [`crate::page_map`] has shown, and keeps it there: what
    /// the program gave up by MADV_FREE the kernel may drop at any time until somebody writes to it. If that
    /// has happened since, the frame holds zeroes from now on.
    pub fn note_filled(&mut self, frame: u32) {
        self.filled.set(frame, true);
        assert!((frame as usize) < self.count, "frame {frame} of {}", self.count);
        // SAFETY: within the mapping, to which no reference is alive beside `&mut self`.
        unsafe { keep_page(self.base.as_ptr().add(frame as usize * PAGE_BYTES)) };
    }

    /// Nothing was moved to the frame after all.
    pub fn note_empty(&mut self, frame: u32) {
        self.filled.set(frame, false);
    }

    /// The page in a frame.
    ///
    /// # Panics
    /// When none was noted there: a defect of the caller that would otherwise stop the program for good.
    #[must_use]
    pub fn page(&self, frame: u32) -> &[u8] {
        assert!(self.filled.has(frame), "frame {frame} is empty");
        // SAFETY: the frame lies in the mapping and holds a page, which stays until `release` takes `&mut
        // self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(frame as usize * PAGE_BYTES), PAGE_BYTES) }
    }

    /// Gives the memory of a run of frames to the kernel.
    ///
    /// While they are registered, giving it up would be told to `userfault`, and who reads its messages would
    /// wait for itself. So they are not registered for these microseconds, which costs the other CPUs one
    /// interruption; pages moved elsewhere first would cost one for each run of them.
    ///
    /// # Errors
    /// The kernel's errno: no page can be moved to them any more.
    pub fn give_back(&mut self, frames: Range<u32>, userfault: &Userfault) -> Result<(), Errno> {
        assert!(frames.end as usize <= self.count, "frames {frames:?} of {}", self.count);
        let start = self.extent().start + u64::from(frames.start) * PAGE;
        let mut range = start..start + frames.len() as u64 * PAGE;
        // A part is a mapping of its own meanwhile. Where a process may have no more of these, the whole area
        // is as good, but takes the kernel longer.
        if userfault.unregister(range.clone()).is_err() {
            range = self.extent();
            userfault.unregister(range.clone())?;
        }
        let given = self.drop_pages(frames.clone());
        if frames.clone().any(|frame| self.is_executable(frame)) {
            // Where that fails they stay as they are known to be.
            let _ = self.set_executable(frames.clone(), false);
        }
        frames.for_each(|frame| self.filled.set(frame, false));
        userfault.register_target(range)?;
        given
    }

    /// Frees frames into which the kernel has put pages of zeroes as the program locked all its memory
    /// (mlockall): nothing can be moved there. All that was moved has to be noted.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn clear_empty(&mut self, userfault: &Userfault) -> Result<(), Errno> {
        userfault.unregister(self.extent())?;
        self.unlock();
        let empty: Vec<u32> = (0..self.count as u32).filter(|&frame| !self.filled.has(frame)).collect();
        let runs = empty.chunk_by(|one, next| one + 1 == *next);
        let outcome = runs.map(|run| run[0]..run[run.len() - 1] + 1).try_for_each(|run| self.drop_pages(run));
        userfault.register_target(self.extent())?;
        outcome
    }

    /// Only while they are not registered.
    fn drop_pages(&self, frames: Range<u32>) -> Result<(), Errno> {
        let start = self.extent().start + u64::from(frames.start) * PAGE;
        // SAFETY: the frames lie in our own mapping, and who gives them up holds `&mut self`: no reference
        // into them is alive.
        unsafe { drop_pages(&self.extent(), start..start + frames.len() as u64 * PAGE) }
    }

    fn unlock(&self) {
        // SAFETY: concerns our own mapping.
        unsafe { unlock(&self.extent()) }
    }
}

/// Keeps a page in its frame: what the program gave up by MADV_FREE the kernel may drop at any time until
/// somebody writes to it. If that has happened, the frame holds zeroes from now on.
///
/// # Safety
/// The address is that of a frame, to which nobody has a reference; the kernel answers for a page that is
/// missing.
pub(crate) unsafe fn keep_page(frame: *mut u8) {
    // SAFETY: the caller's promise.
    let first = unsafe { AtomicU8::from_ptr(frame) };
    // What is written must be what stands there, also when the page is dropped between the two looks: a byte
    // of the old page in a page of zeroes would be neither.
    let mut byte = first.load(Ordering::Relaxed);
    while let Err(other) = first.compare_exchange(byte, byte, Ordering::Relaxed, Ordering::Relaxed) {
        byte = other;
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        // SAFETY: made by `Frames::new` with this length; no reference outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.count * PAGE_BYTES) };
    }
}
