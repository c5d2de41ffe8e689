//! What a wrapper around a program owes it: signals sent to the wrapper are handed on, and the program does
//! not outlive the wrapper.
//!
//! What the kernel sent (Ctrl-C at the terminal) reached the whole process group, the child among it, and is
//! not handed on a second time. One relay a process.

use crate::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::io;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// What is handed on. What stops and continues a job stays as it is: the terminal stops both.
const SIGNALS: [libc::c_int; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// The child while it runs, 0 before and after.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// Signals that came before the child and are to be handed on, one bit each.
static EARLY: AtomicU64 = AtomicU64::new(0);
/// All that came before the child: what the kernel sent as well.
static BEFORE: AtomicU64 = AtomicU64::new(0);

/// Handlers in place from here on.
#[derive(Debug)]
pub struct Relay(());

impl Relay {
    /// Takes over the signals, those that are ignored as well: a script's background job has SIGINT ignored,
    /// `nohup` SIGHUP, and the child may have a handler of its own for them. That the child is to begin with
    /// them ignored is up to who starts it (see [`crate::signals::keep_ignored_in`]).
    ///
    /// # Errors
    /// As `sigaction(2)`.
    pub fn install() -> Result<Self, Errno> {
        for signal in SIGNALS {
            // SAFETY: all zeroes is a valid sigaction (default action, no flags, empty mask).
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = hand_on as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            // SAFETY: the handler has the signature that SA_SIGINFO asks for and calls only what may be
            // called in a handler.
            if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
                return Err(last_errno());
            }
        }
        Ok(Self(()))
    }

    /// A signal to end that came before there was a child, and was not ignored.
    #[must_use]
    pub fn asked_to_end(&self) -> Option<i32> {
        let before = BEFORE.load(Ordering::SeqCst);
        let ends = |signal: &libc::c_int| before & 1 << signal != 0;
        [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT].into_iter().find(ends)
    }

    /// Hands signals on to `child` until it ends.
    ///
    /// # Errors
    /// As `waitid(2)`.
    pub fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let number = i32::try_from(child.id()).map_err(io::Error::other)?;
        let pid = Pid::from_raw(number).ok_or(Errno::SRCH)?;
        CHILD.store(number, Ordering::SeqCst);
        let early = EARLY.swap(0, Ordering::SeqCst);
        for signal in SIGNALS.into_iter().filter(|&signal| early & 1 << signal != 0) {
            // SAFETY: a plain system call; the child has not been waited for, so the number is its own.
            unsafe { libc::kill(number, signal) };
        }
        // It is looked at, not reaped: its number stays its own until no handler uses it.
        loop {
            match wait_for_a_child() {
                Ok(ended) if ended == pid => break,
                Ok(ended) => bury(ended),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        CHILD.store(0, Ordering::SeqCst);
        child.wait()
    }

    /// From now on processes that lose their parent become this one's children, which [`Relay::wait`] lets go
    /// of when they end: nobody else might.
    ///
    /// # Errors
    /// As `prctl(2)`.
    pub fn adopt_orphans(&self) -> Result<(), Errno> {
        // Whose number that is does not matter: it only turns this on.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
    }

    /// After [`Relay::wait`]: lets go of adopted children as they end, for as long as `go_on` says.
    pub fn wait_for_orphans(&self, mut go_on: impl FnMut() -> bool) {
        while go_on() {
            match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
                Ok(Some(_)) => {}
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

/// Asks the kernel to end this process, and what it becomes, when the one that started it ends: even a
/// wrapper that is killed then leaves no program behind. Processes that it starts in turn are not included.
///
/// # Errors
/// As `prctl(2)`.
pub fn end_with_parent() -> Result<(), Errno> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
}

/// This process's effective user.
#[must_use]
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// This process's effective group.
#[must_use]
pub fn effective_group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Waits until a child, whichever, has ended, and leaves it so.
fn wait_for_a_child() -> Result<Pid, Errno> {
    // SAFETY: all zeroes is a valid siginfo; the kernel writes to it that a child has ended, and that has a
    // number, or leaves it so.
    let (outcome, child) = unsafe {
        let mut about: libc::siginfo_t = std::mem::zeroed();
        (libc::waitid(libc::P_ALL, 0, &raw mut about, libc::WEXITED | libc::WNOWAIT), about.si_pid())
    };
    if outcome != 0 {
        return Err(last_errno());
    }
    Pid::from_raw(child).ok_or(Errno::CHILD)
}

/// Lets go of an adopted child that has ended.
fn bury(child: Pid) {
    let _ = waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
}

extern "C" fn hand_on(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler that was installed with SA_SIGINFO.
    let sent_by_kernel = unsafe { (*info).si_code } > 0;
    let child = CHILD.load(Ordering::SeqCst);
    if child == 0 && !crate::signals::was_ignored(signal) {
        BEFORE.fetch_or(1 << signal, Ordering::SeqCst);
    }
    if sent_by_kernel {
        return;
    }
    match child {
        0 => drop(EARLY.fetch_or(1 << signal, Ordering::SeqCst)),
        child => {
            // SAFETY: errno is this thread's own; kill may be called in a handler, and the child has not
            // been reaped while CHILD names it. What is interrupted finds its errno as it was.
            unsafe {
                let errno = libc::__errno_location();
                let before = *errno;
                libc::kill(child, signal);
                *errno = before;
            }
        }
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}
