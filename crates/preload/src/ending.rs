//! The end of a program whose first thread ends before it.
//!
//! A process ends with its last thread, and the C library runs what is left to be done (`exit`) in the last
//! of those that it made. The threads of this library are among both and do not end, so such a program
//! would never. When its first thread leaves in the C library's way (pthread_exit), another is made that
//! waits until there is no other left, and does what the last one would have. A first thread that leaves in
//! the kernel's way (SYS_exit) has nothing run: the process ends with its code.

use overdrive_sys::apart::{Origin, has_ended, has_ended_within, kill_by};
use overdrive_sys::signals;
use overdrive_sys::thread;
use overdrive_sys::threads_left::ThreadsLeft;
use rustix::fd::OwnedFd;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// There is a thread that waits to end the program.
static STANDS_IN: AtomicBool = AtomicBool::new(false);
/// It need not wait any more.
static IS_OVER: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

/// By what the C library tells that a thread leaves; [`NO_KEY`] before it is asked to.
static KEY: AtomicU32 = AtomicU32::new(NO_KEY);
const NO_KEY: u32 = u32::MAX;

/// Has the C library tell when the calling thread leaves, if that is the first one.
pub(crate) fn note_first_thread() {
    let mut key = 0;
    // SAFETY: the calls only return numbers; the key is valid once it is made.
    unsafe {
        if libc::getpid() == libc::gettid() && libc::pthread_key_create(&raw mut key, Some(leaves)) == 0 {
            KEY.store(key, Ordering::Relaxed);
            note_this_thread();
        }
    }
}

/// The same for the only thread of a child that was just forked.
pub(crate) fn note_only_thread() {
    STANDS_IN.store(false, Ordering::Relaxed);
    if KEY.load(Ordering::Relaxed) != NO_KEY {
        note_this_thread();
    }
}

fn note_this_thread() {
    // SAFETY: the key is valid, and what it is set to is a number, and not read as anything else.
    unsafe {
        let process = std::ptr::without_provenance(libc::getpid() as usize);
        libc::pthread_setspecific(KEY.load(Ordering::Relaxed), process);
    }
}

/// The first thread of this process leaves.
extern "C" fn leaves(process: *mut c_void) {
    // SAFETY: only returns a number. A child without threads of this library's ends by itself.
    if process.addr() != unsafe { libc::getpid() } as usize {
        return;
    }
    // Before the thread is there: the first one is too until this returns, and so nothing is ended yet.
    STANDS_IN.store(true, Ordering::Release);
    // SAFETY: it takes nothing, and nobody else knows the thread.
    match unsafe { thread::start_raw(std::ptr::null(), stand_in, std::ptr::null_mut()) } {
        // SAFETY: as above.
        Ok(thread) => _ = unsafe { libc::pthread_detach(thread) },
        Err(_) => STANDS_IN.store(false, Ordering::Release),
    }
}

extern "C" fn stand_in(_: *mut c_void) -> *mut c_void {
    signals::block_all();
    let (is_over, changed) = &IS_OVER;
    let guard = is_over.lock().unwrap_or_else(PoisonError::into_inner);
    drop(changed.wait_while(guard, |is_over| !*is_over));
    // SAFETY: what the program wants to run at its end runs in this thread, as it would in its last one.
    unsafe { libc::exit(0) }
}

/// Looks from time to time whether the program has ended.
#[derive(Debug)]
pub(crate) struct Watch {
    program: Program,
    every: Duration,
    looked: Instant,
}

/// How it is seen that the program has ended.
#[derive(Debug)]
enum Program {
    /// By its threads, beside so many of this library's. Without a list of them nothing can be told.
    OfThreads(Option<ThreadsLeft>, usize),
    /// From a process apart, which ends it when that beside it has ended.
    Apart(Arc<Origin>, Option<OwnedFd>),
}

impl Watch {
    /// To be made by a thread of this library's, of which there are `own`: their descriptors stay. It does
    /// not look more often than `every` so long.
    pub(crate) fn new(own: usize, every: Duration) -> Self {
        let program = Program::OfThreads(ThreadsLeft::open().ok(), own);
        Self { program, every, looked: Instant::now() }
    }

    /// To be made by a process apart, with the program and a handle of the process apart beside it.
    pub(crate) fn apart(origin: Arc<Origin>, beside: Option<OwnedFd>, every: Duration) -> Self {
        Self { program: Program::Apart(origin, beside), every, looked: Instant::now() }
    }

    /// Sleeps for so long; ends this process when the program has ended.
    pub(crate) fn sleep(&mut self, time: Duration) {
        match &self.program {
            Program::OfThreads(..) => std::thread::sleep(time),
            Program::Apart(origin, _) => drop(has_ended_within(&**origin, time)),
        }
        self.look();
    }

    /// Ends this process when the program has ended.
    pub(crate) fn look(&mut self) {
        if self.looked.elapsed() < self.every {
            return;
        }
        self.looked = Instant::now();
        match &self.program {
            Program::OfThreads(threads, own) => end_with_threads(threads.as_ref(), *own),
            Program::Apart(origin, beside) => end_with(origin, beside.as_ref()),
        }
    }
}

/// Ends this process when no thread of the program is left beside `own` of this library's.
fn end_with_threads(threads: Option<&ThreadsLeft>, own: usize) {
    let stands_in = STANDS_IN.load(Ordering::Acquire);
    let others = own + usize::from(stands_in);
    let ended = threads.and_then(|threads| threads.first_ended_beside(others));
    match ended {
        Some(_) if stands_in => {
            *IS_OVER.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
            IS_OVER.1.notify_all();
        }
        // SAFETY: ends the process at once, as nothing of the program runs any more.
        Some(code) => unsafe { libc::_exit(code) },
        None => {}
    }
}

/// Ends this process, which is apart, when the program has, and the program when the process beside this one
/// has.
fn end_with(origin: &Origin, beside: Option<&OwnedFd>) {
    let is_there = origin.is_there();
    let is_alone = beside.is_some_and(has_ended);
    if is_there && is_alone {
        origin.kill();
    }
    // It may wait for a page, which nobody brings any more.
    beside.filter(|_| !is_there).into_iter().for_each(kill_by);
    if !is_there || is_alone {
        // SAFETY: ends this process at once; what it would run at its end is the program's.
        unsafe { libc::_exit(0) }
    }
}
