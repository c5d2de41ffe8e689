//! Errands for a second thread: what the serving thread must not do itself because it might wait for a page.

use super::{Engine, EngineError};
use overdrive_sys::uffd::make_own;
use rustix::fd::OwnedFd;
use rustix::io::{read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ops::Range;

const ERRAND_BYTES: usize = 16;

/// Where the engine leaves its errands.
#[derive(Debug)]
pub(super) struct Errands {
    queue: OwnedFd,
}

impl Errands {
    /// Leaves one. False when there are too many already.
    pub(super) fn send(&mut self, range: Range<u64>) -> bool {
        let mut errand = [0; ERRAND_BYTES];
        errand[..8].copy_from_slice(&range.start.to_ne_bytes());
        errand[8..].copy_from_slice(&range.end.to_ne_bytes());
        write(&self.queue, &errand) == Ok(ERRAND_BYTES)
    }
}

/// Runs the errands, on a thread of its own.
#[derive(Debug)]
pub struct Agent {
    queue: OwnedFd,
}

impl Agent {
    /// Runs errands until the engine is gone.
    pub fn run(&self) {
        let mut errand = [0; ERRAND_BYTES];
        while read(&self.queue, &mut errand) == Ok(ERRAND_BYTES) {
            let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
            // A range that is gone or not writable any more needs nothing.
            let _ = make_own(word(&errand[..8])..word(&errand[8..]));
        }
    }
}

impl Engine {
    /// The other end of the engine's errands. Without one, memory that a child once shared stays in place
    /// until the program writes to it.
    ///
    /// # Errors
    /// When there is no pipe.
    pub fn agent(&mut self) -> Result<Agent, EngineError> {
        let pipe = pipe_with(PipeFlags::CLOEXEC).and_then(|(reader, writer)| {
            // The engine never waits for its agent; the agent waits for errands.
            rustix::io::ioctl_fionbio(&writer, true)?;
            Ok((reader, writer))
        });
        let (reader, writer) = pipe.map_err(|errno| EngineError::System { step: "a pipe", errno })?;
        self.agent = Some(Errands { queue: writer });
        Ok(Agent { queue: reader })
    }
}
