//! Which threads take signals, and what was decided about them before this process was this program.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The signals that can be ignored and mean something: not those of real time.
const SIGNALS: std::ops::Range<libc::c_int> = 1..32;

/// What who started this process had it ignore, one bit each. Looked at before `main`, before which Rust
/// ignores SIGPIPE.
static WERE_IGNORED: AtomicU32 = AtomicU32::new(0);

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = note_ignored;

extern "C" fn note_ignored() {
    for signal in SIGNALS {
        // SAFETY: all zeroes is a valid sigaction; the kernel writes the present one to it, which lives
        // through the call.
        let ignored = unsafe {
            let mut found: libc::sigaction = std::mem::zeroed();
            let outcome = libc::sigaction(signal, std::ptr::null(), &raw mut found);
            outcome == 0 && found.sa_sigaction == libc::SIG_IGN
        };
        if ignored {
            WERE_IGNORED.fetch_or(1 << signal, Ordering::Relaxed);
        }
    }
}

/// Whether who started this process had it ignore this signal. May be asked in a handler.
#[must_use]
pub fn was_ignored(signal: libc::c_int) -> bool {
    SIGNALS.contains(&signal) && WERE_IGNORED.load(Ordering::Relaxed) & 1 << signal != 0
}

/// Who ignores SIGCHLD, as some that start daemons do, learns of no child's end: the default from here on.
pub fn take_notice_of_children() {
    // SAFETY: a plain system call without a handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Has a command ignore them as well, whatever this process does with them.
pub fn keep_ignored_in(command: &mut Command) {
    let ignore = || {
        for signal in SIGNALS.filter(|&signal| was_ignored(signal)) {
            // SAFETY: a plain system call without a handler.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
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
