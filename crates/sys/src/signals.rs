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
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is filled before it is used; the calls concern this thread only.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}
