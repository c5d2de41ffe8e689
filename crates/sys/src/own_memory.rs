//! Memory of our own in a program that may lock all its memory (mlockall) at any time, which is not meant for
//! ours: it is to be given back to the kernel all the same.

use crate::Errno;
use rustix::mm::{Advice, madvise, munlock};
use std::ops::Range;

/// Gives the pages of a part of a mapping, which is `whole`, to the kernel. Where they are locked the mapping
/// is unlocked.
///
/// # Safety
/// The mapping is private, anonymous and the caller's own, and no reference into the part is alive.
///
/// # Errors
/// The kernel's errno; the pages stay then. Before Linux 5.18 EINVAL where they are locked again at once.
pub(crate) unsafe fn drop_pages(whole: &Range<u64>, part: Range<u64>) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let drop = |advice| unsafe { madvise(part.start as *mut _, (part.end - part.start) as usize, advice) };
    let dropped = drop(Advice::LinuxDontNeed);
    if dropped != Err(Errno::INVAL) {
        return dropped;
    }
    // SAFETY: the caller's promise.
    unsafe { unlock(whole) };
    let dropped = drop(Advice::LinuxDontNeed);
    if dropped != Err(Errno::INVAL) {
        return dropped;
    }
    drop(Advice::LinuxDontneedLocked)
}

/// Unlocks a mapping, whose content stays as it is.
///
/// # Safety
/// The mapping is the caller's own.
pub(crate) unsafe fn unlock(whole: &Range<u64>) {
    // SAFETY: the caller's promise. Where it is refused nothing has changed.
    let _ = unsafe { munlock(whole.start as *mut _, (whole.end - whole.start) as usize) };
}
