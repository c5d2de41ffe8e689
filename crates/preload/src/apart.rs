//! An engine in processes apart: who ends with whom.
//!
//! The program ends, or makes itself another one (exec): the agent hears of it by a handle of its process,
//! and by a pipe that closes with exec, and ends the engine and itself. A program that has closed the pipe is
//! looked at by the engine from time to time. The engine ends: the agent ends the program, which would wait
//! for ever. The agent ends: the engine does. Neither leaves memory behind that nobody serves.

use crate::ground;
use overdrive_pager::engine::Agent;
use overdrive_sys::Errno;
use overdrive_sys::apart::{Origin, handle_of, kill_by};
use overdrive_sys::file::{RUN_DESCRIPTORS_FROM, identity};
use overdrive_sys::gate::Gate;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// While the engine is being started, the agent looks so often whether that has come to nothing.
const STARTS: Duration = Duration::from_millis(100);

/// The engine's process and the agent's.
static ENGINE: AtomicU32 = AtomicU32::new(0);
static AGENT: AtomicU32 = AtomicU32::new(0);
/// Open when the engine's is known.
static IS_KNOWN: Gate = Gate::closed();
/// The program's end of the pipe; negative where it has none.
static LIFE: AtomicI32 = AtomicI32::new(-1);
/// Which pipe that is, by the number of its file.
static LIFE_FILE: AtomicU64 = AtomicU64::new(0);

/// The agent's end of the pipe by which it hears that the program has made itself another one.
#[derive(Debug)]
pub(crate) struct Life(Option<OwnedFd>);

impl Life {
    /// A pipe whose other end the calling program keeps. The processes apart let go of their copies of that.
    pub(crate) fn of_this_program() -> Result<Self, Errno> {
        let (ours, programs) = pipe_with(PipeFlags::CLOEXEC)?;
        // The low numbers stay for the program.
        let programs = fcntl_dupfd_cloexec(&programs, RUN_DESCRIPTORS_FROM).unwrap_or(programs);
        let number = programs.into_raw_fd();
        LIFE_FILE.store(identity(number).map_or(0, |(_, file)| file), Ordering::Relaxed);
        LIFE.store(number, Ordering::Relaxed);
        Ok(Self(Some(ours)))
    }

    /// Its number, of which both processes have a copy.
    pub(crate) fn number(&self) -> Option<libc::c_int> {
        self.0.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// None: for an engine that a thread or process of this library's starts.
    pub(crate) fn unknown() -> Self {
        Self(None)
    }
}

/// Starts a process apart under this name. Gives its number.
pub(crate) fn start(
    name: impl AsRef<CStr> + Send + 'static,
    stack_bytes: usize,
    work: impl FnOnce() + Send + 'static,
) -> Result<u32, Errno> {
    overdrive_sys::apart::start(stack_bytes, move |stack| {
        ground::note_stack(&stack);
        // SAFETY: the name is a text with an end.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ref().as_ptr()) };
        let_go_of_life();
        work();
    })
}

/// Closes this process's copy of the program's end, unless the program has something else there.
fn let_go_of_life() {
    let number = LIFE.load(Ordering::Relaxed);
    let is_it = |(_, file)| file == LIFE_FILE.load(Ordering::Relaxed);
    if number >= 0 && identity(number).is_some_and(is_it) {
        // SAFETY: this process has a table of its own, in which this is the end of the pipe.
        unsafe { libc::close(number) };
    }
}

/// In a child that was just forked: the processes are its parent's.
pub(crate) fn forget() {
    let_go_of_life();
    IS_KNOWN.close();
    LIFE.store(-1, Ordering::Relaxed);
}

/// Notes the agent's process, which the engine asks for when it starts, and closes this process's copy of its
/// end of the pipe.
pub(crate) fn note_agent(number: u32, its_end: Option<libc::c_int>) {
    AGENT.store(number, Ordering::Release);
    if let Some(end) = its_end {
        // SAFETY: handed to the agent, which has a table of its own; in this one nobody knows it any more.
        unsafe { libc::close(end) };
    }
}

/// Notes the engine's, for which the agent waits.
pub(crate) fn note_engine(number: u32) {
    ENGINE.store(number, Ordering::Release);
    IS_KNOWN.open();
}

/// A handle of the agent's process.
pub(crate) fn agent() -> Result<OwnedFd, Errno> {
    handle_of(AGENT.load(Ordering::Acquire))
}

/// What the agent does as long as program and engine are there.
pub(crate) fn attend(agent: &Agent, program: u32, mut life: Life) {
    let Ok(origin) = Origin::open(program) else { return };
    while !IS_KNOWN.wait(STARTS) {
        if !origin.is_there() {
            return;
        }
    }
    let Ok(engine) = handle_of(ENGINE.load(Ordering::Acquire)) else { return origin.kill() };
    loop {
        let [has_errand, engine_ended, program_changed] = wait(agent, &engine, &origin, &life);
        if engine_ended {
            // One that is another program by now needs no engine.
            if origin.is_there() {
                origin.kill();
            }
            return;
        }
        if program_changed {
            if !origin.is_there() {
                return kill_by(&engine);
            }
            // It closes what it does not know.
            life = Life(None);
        }
        if has_errand {
            agent.run_one();
        }
    }
}

/// Waits until something of this is so.
fn wait(agent: &Agent, engine: &OwnedFd, origin: &Origin, life: &Life) -> [bool; 3] {
    let life = life.0.as_ref().map_or(origin.as_fd(), AsFd::as_fd);
    let mut all = [agent.as_fd(), engine.as_fd(), origin.as_fd(), life];
    let mut all = all.each_mut().map(|descriptor| PollFd::new(descriptor, PollFlags::IN));
    // Interrupted by nobody: the signals are blocked. Without memory for it nothing is seen, and it is asked
    // again.
    let _ = poll(&mut all, None);
    let [errand, engine, program, life] = all.each_ref().map(|one| !one.revents().is_empty());
    [errand, engine, program || life]
}
