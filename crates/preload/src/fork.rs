//! Forks: a child's memory is served by its parent's engine, so it must not outlive its parent. (One that was
//! made before any memory was taken over is on its own: [`late`].)
//!
//! When the parent ends, the kernel takes the child's pages that are away for pages never written, and
//! the child would read zeroes where its data was. So a child, and a child's child, is ended with the engine:
//! the engine's thread alone holds the writing end of a pipe, each child opens the reading end for itself and
//! has the kernel send SIGKILL when the last writer is gone. That descriptor closes with exec, and then the
//! child needs nobody any more. A child that closes what it does not know loses it; those of the program's
//! first thread are then ended by the death signal of their parent, which for others would come with the end
//! of a thread, and for a child's child with that of the child. This signal outlives exec: another program
//! with this library takes it back, which it knows for ours by a timer slack that nobody else asks for.

use crate::{ALLOCATOR, apart, ground, late};
use overdrive_pager::engine::AtFork;
use overdrive_pager::table::mark_of;
use overdrive_sys::file::RUN_DESCRIPTORS_FROM;
use overdrive_sys::helper::{self, Door};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// `fcntl` numbers that the `libc` crate does not have for all targets; those of Linux everywhere but on
/// architectures that this library is not built for.
const F_SETSIG: libc::c_int = 10;

/// Whether the handlers are there, which cannot be taken back.
static ENDS_CHILDREN: AtomicBool = AtomicBool::new(false);
/// Whether this process is a child: the counters are not there for it, nor is the engine.
static IS_CHILD: AtomicBool = AtomicBool::new(false);
/// In a child, what it was at the fork: who looked only before would miss what is taken over while the fork
/// waits for a lock.
pub(crate) static AT_FORK: AtFork = AtFork::new();
/// Where the helpers of children call.
pub(crate) static DOOR: Door = Door::closed();
/// The timer slack of who has our death signal, and the one that processes have, in nanoseconds.
const BOUND_SLACK: libc::c_int = 50_001;
const USUAL_SLACK: libc::c_int = 50_000;

thread_local! {
    /// The process that this thread is about to fork, when it is the first thread of the one with the engine,
    /// else 0. Its copy in the child is read there.
    static FIRST_THREAD_OF: Cell<i32> = const { Cell::new(0) };
}
/// The process and thread of the engine and the number of the pipe's reading end there; 0 before it runs.
static ENGINE: [AtomicI32; 3] = [const { AtomicI32::new(0) }; 3];
/// The process that it serves first of all; 0 before it runs.
static SERVED: AtomicI32 = AtomicI32::new(0);

/// Whether this process is a child of the one that the engine serves first of all.
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Acquire)
}

/// From now on children know that they are such, do not get this library's own memory, and end with the
/// engine once memory was taken over.
pub(crate) fn end_children_with_engine() {
    if !ENDS_CHILDREN.swap(true, Ordering::Relaxed) {
        // SAFETY: the handlers are functions of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(before), None, Some(in_child)) };
    }
    ALLOCATOR.leave_out_of_children();
}

/// From now on this process is no child any more: an engine of its own serves it.
pub(crate) fn stand_on_own_feet() {
    IS_CHILD.store(false, Ordering::Release);
}

/// Called by the engine's thread, whose descriptors are its own: what it opens here closes when it ends.
pub(crate) fn note_engine() {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors; the calls only return numbers.
    let (made, process, thread) =
        unsafe { (libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), libc::getpid(), libc::gettid()) };
    if made == 0 {
        for (place, number) in ENGINE.iter().zip([process, thread, ends[0]]) {
            place.store(number, Ordering::Release);
        }
        SERVED.store(ground::program() as i32, Ordering::Release);
    }
}

extern "C" fn before() {
    // SAFETY: both calls only return numbers.
    let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
    let is_engines = process == SERVED.load(Ordering::Relaxed);
    FIRST_THREAD_OF.set(if process == thread && is_engines { process } else { 0 });
    if is_engines {
        AT_FORK.take_all();
    }
}

extern "C" fn in_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
    apart::forget();
    if !AT_FORK.has_taken_over() {
        return late::watch();
    }
    let parent = FIRST_THREAD_OF.get();
    // SAFETY: concerns this process alone. A parent that has ended meanwhile sends no signal any more; one in
    // another PID namespace has the number 0.
    unsafe {
        match (parent, libc::prctl(libc::PR_GET_TIMERSLACK)) {
            (0, BOUND_SLACK) => drop(libc::prctl(libc::PR_SET_TIMERSLACK, USUAL_SLACK)),
            (0, _) => {}
            (_, slack) => {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if slack == USUAL_SLACK {
                    libc::prctl(libc::PR_SET_TIMERSLACK, BOUND_SLACK);
                }
            }
        }
        let is_orphan = parent != 0 && ![0, parent].contains(&libc::getppid());
        if is_orphan || !end_with_engine() {
            libc::_exit(128 + libc::SIGKILL);
        }
    }
    helper::start(&DOOR, mark_of);
}

/// A program that was executed by a child has memory of its own and may outlive who served the child's.
pub(crate) fn unbind() {
    // SAFETY: concerns this process alone.
    unsafe {
        if libc::prctl(libc::PR_GET_TIMERSLACK) == BOUND_SLACK {
            libc::prctl(libc::PR_SET_TIMERSLACK, USUAL_SLACK);
            let mut signal = 0;
            libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut signal);
            // Another one is what the child itself asked for.
            if signal == libc::SIGKILL {
                libc::prctl(libc::PR_SET_PDEATHSIG, 0);
            }
        }
    }
}

/// Has the kernel end this process with the engine. False when the engine has ended already.
fn end_with_engine() -> bool {
    let path = path_of_pipe();
    // SAFETY: the path ends with a zero byte; the descriptor is this function's own.
    unsafe {
        let opened = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC);
        if opened < 0 {
            // Not permitted (a process that changed its user), or out of sight (one that changed its root):
            // nothing more can be done.
            let gone = *libc::__errno_location() == libc::ENOENT;
            return !gone || libc::access(c"/proc/self".as_ptr(), libc::F_OK) != 0;
        }
        // The low numbers stay for the child.
        let high = libc::fcntl(opened, libc::F_DUPFD_CLOEXEC, RUN_DESCRIPTORS_FROM);
        let pipe = if high < 0 { opened } else { high };
        if high >= 0 {
            libc::close(opened);
        }
        libc::fcntl(pipe, libc::F_SETOWN, libc::getpid());
        libc::fcntl(pipe, F_SETSIG, libc::SIGKILL);
        libc::fcntl(pipe, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK);
        // What happened before it was asked for is not told.
        let mut look = libc::pollfd { fd: pipe, events: libc::POLLIN, revents: 0 };
        libc::poll(&raw mut look, 1, 0);
        look.revents & libc::POLLHUP == 0
    }
}

/// `/proc/PROCESS/task/THREAD/fd/NUMBER`, without asking anybody for memory: another thread may have been
/// in the midst of that when this process was made.
fn path_of_pipe() -> [u8; 64] {
    let [process, thread, number] = ENGINE.each_ref().map(|place| place.load(Ordering::Acquire));
    let mut path = [0; 64];
    let mut at = 0;
    for (name, number) in [("/proc/", process), ("/task/", thread), ("/fd/", number)] {
        path[at..at + name.len()].copy_from_slice(name.as_bytes());
        at += name.len();
        let digits = number.checked_ilog10().map_or(1, |more| more as usize + 1);
        let mut rest = number;
        for place in path[at..at + digits].iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        at += digits;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_names_the_pipe() {
        for (place, number) in ENGINE.iter().zip([4_194_304, 2_147_483_647, 10]) {
            place.store(number, Ordering::Relaxed);
        }
        let path = path_of_pipe();
        let text = std::ffi::CStr::from_bytes_until_nul(&path).unwrap();
        assert_eq!(text, c"/proc/4194304/task/2147483647/fd/10");
    }
}
