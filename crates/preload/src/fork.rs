//! Forks: a child's memory is served by its parent's engine, so it must not outlive its parent.
//!
//! When the parent ends, the kernel takes the child's pages that are away for pages never written, and
//! the child would read zeroes where its data was. So a child is ended with its parent, as far as the
//! kernel offers it: the signal comes with the end of the *thread* that forked, hence only children of
//! the first thread get it, whose end is the end of the process. A child of another thread is not
//! protected (docs/memory.md says so), since ending it with a mere thread would be wrong for most.

use overdrive_pager::stats::{Stat, Stats};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

static STATS: OnceLock<Arc<Stats>> = OnceLock::new();
/// The process whose first thread is forking, once there is memory under the pager; 0 otherwise. A child
/// reads its own copy, as nothing else of this library is there for it.
static PARENT: AtomicI32 = AtomicI32::new(0);

/// From now on children end with this process, once the counters say that memory was taken over.
pub(crate) fn end_children_with(stats: Arc<Stats>) {
    if STATS.set(stats).is_ok() {
        // SAFETY: the handlers are functions of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(before), None, Some(in_child)) };
    }
}

extern "C" fn before() {
    // In a child that forks in turn the counters are not there: its number stands in `PARENT` already.
    if PARENT.load(Ordering::Relaxed) < 0 {
        return;
    }
    // SAFETY: both calls only return numbers.
    let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
    let taken_over = STATS.get().is_some_and(|stats| stats.get(Stat::ManagedBytes) > 0);
    PARENT.store(if taken_over && process == thread { process } else { 0 }, Ordering::Relaxed);
}

extern "C" fn in_child() {
    let parent = PARENT.swap(-1, Ordering::Relaxed);
    if parent <= 0 {
        return;
    }
    // SAFETY: concerns this process alone. A parent that has ended meanwhile sends no signal any more.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(128 + libc::SIGKILL);
        }
    }
}
