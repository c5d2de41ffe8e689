//! Which threads take signals, and what was decided about them before this process was this program.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rust ignores SIGPIPE before `main`, so it is looked at before that.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = note_pipe;

extern "C" fn note_pipe() {
    // SAFETY: all zeroes is a valid sigaction; the kernel writes the present one to it, which lives through
    // the call.
    let ignored = unsafe {
        let mut found: libc::sigaction = std::mem::zeroed();
        let outcome = libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut found);
        outcome == 0 && found.sa_sigaction == libc::SIG_IGN
    };
    PIPE_WAS_IGNORED.store(ignored, Ordering::Relaxed);
}

/// Whether who started this process ignored SIGPIPE.
#[must_use]
pub fn pipe_was_ignored() -> bool {
    PIPE_WAS_IGNORED.load(Ordering::Relaxed)
}

/// Has a command ignore SIGPIPE, which it has the default action for otherwise.
pub fn ignore_pipe_in(command: &mut Command) {
    let ignore = || {
        // SAFETY: a plain system call without a handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: after a fork it calls what may be called then, and asks for no memory.
    unsafe { command.pre_exec(ignore) };
}

/// Keeps all signals away from the calling thread: they are the business of the program's own threads.
pub fn block_all() {
    set_mask(&every_signal());
}

/// The same while `work` goes on, for a thread that it makes to have them blocked from its first moment on.
pub fn with_all_blocked<T>(work: impl FnOnce() -> T) -> T {
    let before = set_mask(&every_signal());
    let outcome = work();
    set_mask(&before);
    outcome
}

fn every_signal() -> libc::sigset_t {
    let mut all = std::mem::MaybeUninit::uninit();
    // SAFETY: the call fills the set.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        all.assume_init()
    }
}

/// Blocks these and no others in the calling thread. Gives those that were blocked.
fn set_mask(signals: &libc::sigset_t) -> libc::sigset_t {
    let mut before = *signals;
    // SAFETY: both sets are valid for the call, which concerns this thread only.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, signals, &raw mut before) };
    before
}
