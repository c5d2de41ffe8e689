//! Processes apart: each shares this one's memory and nothing else, as a thread that left its process would.
//!
//! Who counts the program's threads finds none of ours (`unshare --user` wants one, and so do others), a
//! debugger that stops them does not stop it, and what the program does to its user, its limits or its system
//! calls does not reach it.
//!
//! The C library knows nothing of such processes, so each gets what a thread has: a thread is made for it,
//! whose block and thread-local memory the process goes on with when the thread has ended. Nobody joins that
//! thread, so that the C library keeps them. The stack is another one, as the thread needs its own to end.
//! Who started the process's parent adopts it: the program does not see it among its children.

use crate::Errno;
use crate::gate::Gate;
use crate::proc_stat::numbers_in;
use crate::raw::syscall;
use crate::signals;
use crate::thread;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// What there is for the process to do.
type Work = Box<dyn FnOnce(Range<u64>) + Send>;

/// How long it sleeps between looks whether the thread has ended.
static LOOK_EVERY: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 20_000 };
/// Of the thread's stack: where the process in the middle runs.
const MIDDLE_WORDS: usize = 1024;

/// What is handed from the thread to the process.
struct Handover {
    work: UnsafeCell<Option<Work>>,
    stack: Range<u64>,
    /// Who starts it.
    process: u32,
    /// The thread's number.
    thread: AtomicI32,
    /// The process's number, or the errno why there is none, below 0.
    made: AtomicI32,
    /// Set when that is known, and the thread does no more than end.
    is_known: Gate,
}

/// Starts a process that shares this one's memory, and tells it where its stack is, of so many bytes. It has
/// copies of its descriptors, and takes no signals. Gives its number.
///
/// The stack and the block of the thread that it was made by stay as long as the memory: they are what a
/// process costs that has ended.
///
/// # Errors
/// The kernel's errno.
pub fn start(stack_bytes: usize, work: impl FnOnce(Range<u64>) + Send + 'static) -> Result<u32, Errno> {
    let handover: &'static Handover = Box::leak(Box::new(Handover {
        work: UnsafeCell::new(Some(Box::new(work))),
        stack: stack_of(stack_bytes)?,
        process: std::process::id(),
        thread: AtomicI32::new(0),
        made: AtomicI32::new(0),
        is_known: Gate::closed(),
    }));
    // SAFETY: the function takes what is handed to it, which is never given back. All signals are blocked in
    // the thread from its first moment on, and so in the processes that are made from it.
    let made = signals::with_all_blocked(|| unsafe {
        let place = std::ptr::from_ref(handover).cast_mut().cast();
        thread::start_raw(std::ptr::null(), leave, place)
    });
    made?;
    handover.is_known.wait(Duration::MAX);
    let made = handover.made.load(Ordering::Acquire);
    u32::try_from(made).map_err(|_| Errno::from_raw_os_error(-made))
}

/// A stack with a page below it that nobody may touch.
fn stack_of(bytes: usize) -> Result<Range<u64>, Errno> {
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};
    let guard = crate::uffd::PAGE as usize;
    let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
    // SAFETY: a new mapping where the kernel likes, whose first page nobody uses yet.
    let base = unsafe {
        let base = mmap_anonymous(std::ptr::null_mut(), guard + bytes, access, kind)?;
        mprotect(base, guard, MprotectFlags::empty())?;
        base as u64
    };
    Ok(base..base + (guard + bytes) as u64)
}

/// The thread: makes the process by another one, which ends at once, so that the process is not the program's
/// child.
extern "C" fn leave(handover: *mut c_void) -> *mut c_void {
    // SAFETY: the handover is never given back.
    let shared: &Handover = unsafe { &*handover.cast() };
    let mut room = [MaybeUninit::<u128>::uninit(); MIDDLE_WORDS];
    // SAFETY: the number is this thread's own. The process in the middle runs on a stack of its own, in the
    // midst of this thread's, which waits for its end; it changes errno at the most, and asks for no memory.
    unsafe {
        shared.thread.store(libc::gettid(), Ordering::Release);
        let middle = libc::clone(stand_between, room.as_mut_ptr_range().end.cast(), libc::CLONE_VM, handover);
        if middle < 0 {
            shared.made.store(-*libc::__errno_location(), Ordering::Release);
        } else {
            // A program that waits for all there is may have been faster.
            libc::waitpid(middle, std::ptr::null_mut(), libc::__WALL);
        }
    }
    shared.is_known.open();
    std::ptr::null_mut()
}

extern "C" fn stand_between(handover: *mut c_void) -> libc::c_int {
    // SAFETY: as above.
    let shared: &Handover = unsafe { &*handover.cast() };
    // Who traces the program's children is not to stop this one.
    let flags = libc::CLONE_VM | libc::CLONE_UNTRACED;
    // SAFETY: the stack is nobody else's.
    let made = unsafe { libc::clone(go_on, shared.stack.end as *mut c_void, flags, handover) };
    // SAFETY: the place of errno is the waiting thread's.
    let outcome = if made < 0 { unsafe { -*libc::__errno_location() } } else { made };
    shared.made.store(outcome, Ordering::Release);
    0
}

/// The process.
extern "C" fn go_on(handover: *mut c_void) -> libc::c_int {
    // SAFETY: the handover is never given back. Until the thread has ended nothing here may use what belongs
    // to it: these calls leave even errno alone.
    let shared: &Handover = unsafe { &*handover.cast() };
    let thread = shared.thread.load(Ordering::Acquire) as usize;
    // SAFETY: as above; the calls only ask and sleep.
    unsafe {
        while syscall(libc::SYS_tgkill, [shared.process as usize, thread, 0, 0, 0, 0]) == 0 {
            syscall(libc::SYS_nanosleep, [(&raw const LOOK_EVERY) as usize, 0, 0, 0, 0, 0]);
        }
    }
    // SAFETY: only this process takes it.
    if let Some(work) = unsafe { (*shared.work.get()).take() } {
        work(shared.stack.clone());
    }
    0
}

/// The process whose memory is shared, as one apart sees it.
#[derive(Debug)]
pub struct Origin {
    number: u32,
    handle: OwnedFd,
}

impl Origin {
    /// That with this number.
    ///
    /// # Errors
    /// ESRCH when there is no such process; else the kernel's errno.
    pub fn open(number: u32) -> Result<Self, Errno> {
        Ok(Self { number, handle: handle_of(number)? })
    }

    /// Whether it lives and still has the memory that this process has: it may have made itself another
    /// program (exec). Where the kernel does not tell, it is taken to have it.
    #[must_use]
    pub fn is_there(&self) -> bool {
        // Its first thread may have ended before the others, and has no memory then.
        let threads = || numbers_in(&format!("/proc/{}/task", self.number));
        !has_ended(&self.handle) && (has_our_memory(self.number) || threads().any(has_our_memory))
    }

    /// Ends it.
    pub fn kill(&self) {
        kill_by(&self.handle);
    }
}

impl AsFd for Origin {
    /// Readable when it has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

fn has_our_memory(thread: u32) -> bool {
    have_same_memory(thread, std::process::id())
}

/// Whether two threads have the same memory. Where the kernel does not tell, they are taken to have it; one
/// that has ended has none.
#[must_use]
pub fn have_same_memory(thread: u32, other: u32) -> bool {
    const SAME_MEMORY: usize = 1;
    let both = [thread, other].map(|number| number as usize);
    // SAFETY: the call only compares.
    let outcome = unsafe { syscall(libc::SYS_kcmp, [both[0], both[1], SAME_MEMORY, 0, 0, 0]) };
    outcome <= 0 && outcome != -libc::ESRCH as isize
}

/// A handle of a process, which is readable when that has ended.
///
/// # Errors
/// ESRCH when there is no such process; else the kernel's errno.
pub fn handle_of(process: u32) -> Result<OwnedFd, Errno> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    pidfd_open(pid, PidfdFlags::empty())
}

/// Whether the process of a handle has ended.
pub fn has_ended(handle: impl AsFd) -> bool {
    has_ended_within(handle, Duration::ZERO)
}

/// The same, or ends within this time.
pub fn has_ended_within(handle: impl AsFd, time: Duration) -> bool {
    let time = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
    matches!(poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&time)), Ok(1))
}

/// Ends a process; one that has ended needs nothing.
pub fn kill(process: u32) {
    let _ = handle_of(process).map(kill_by);
}

/// Ends a process by its handle; one that has ended needs nothing.
pub fn kill_by(handle: impl AsFd) {
    let _ = pidfd_send_signal(handle, Signal::KILL);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::time::Instant;

    fn threads() -> usize {
        std::fs::read_dir("/proc/self/task").unwrap().count()
    }

    #[test]
    fn it_shares_the_memory_and_is_none_of_this_process() {
        thread_local! { static OWN: std::cell::Cell<u32> = const { std::cell::Cell::new(7) } }
        static SEEN: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];
        static GO: Gate = Gate::closed();
        OWN.set(8);
        let (here, before) = (std::process::id(), threads());
        let number = start(256 << 10, move |stack| {
            let local = 0u8;
            SEEN[1].store(u32::from(stack.contains(&(&raw const local as u64))), Ordering::Relaxed);
            SEEN[2].store(OWN.get(), Ordering::Relaxed);
            let origin = Origin::open(here).unwrap();
            SEEN[3].store(u32::from(origin.is_there()), Ordering::Relaxed);
            SEEN[0].store(std::process::id(), Ordering::Release);
            GO.wait(Duration::from_secs(60));
        })
        .unwrap();
        let began = Instant::now();
        while SEEN[0].load(Ordering::Acquire) == 0 {
            assert!(began.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
        let seen = SEEN.each_ref().map(|word| word.load(Ordering::Relaxed));
        assert_eq!(seen, [number, 1, 7, 1], "its number, stack, thread-local memory and origin");
        assert_eq!(OWN.get(), 8);
        // Other tests have threads of their own.
        assert!(number != here && threads() <= before + 2);
        let status = std::fs::read_to_string(format!("/proc/{number}/status")).unwrap();
        for line in [format!("Tgid:\t{number}"), "Threads:\t1".to_owned()] {
            assert!(status.contains(&line), "{status}");
        }
        let task = format!("/proc/self/task/{here}/children");
        let children = std::fs::read_to_string(task).unwrap_or_default();
        assert!(!children.split(' ').any(|child| child == number.to_string()), "{children}");
        let handle = handle_of(number).unwrap();
        GO.open();
        assert!(has_ended_within(&handle, Duration::from_secs(20)));
    }

    #[test]
    fn another_process_is_not_where_the_memory_comes_from() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let origin = Origin::open(child.id()).unwrap();
        assert!(!origin.is_there(), "it has memory of its own");
        origin.kill();
        child.wait().unwrap();
        assert!(!origin.is_there() && Origin::open(child.id()).is_err());
    }
}
