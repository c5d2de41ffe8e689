//! Errands for a second thread: what the serving thread must not do itself because it might wait for a page.

use super::{Engine, EngineError};
use overdrive_sys::thread_words::{ThreadWord, tell_end};
use overdrive_sys::uffd::make_own;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ops::Range;

const ERRAND_BYTES: usize = 24;

/// What there is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Errand {
    /// These pages are or were shared with a child: they are to be the program's own again.
    MakeOwn(Range<u64>),
    /// This thread has ended: who waits for that must hear of it.
    TellEnd(ThreadWord),
}

impl Errand {
    fn to_bytes(&self) -> [u8; ERRAND_BYTES] {
        let words = match self {
            Self::MakeOwn(range) => [0, range.start, range.end],
            Self::TellEnd(word) => [1, word.address, u64::from(word.thread)],
        };
        let mut bytes = [0; ERRAND_BYTES];
        bytes
            .chunks_exact_mut(8)
            .zip(words)
            .for_each(|(place, word)| place.copy_from_slice(&word.to_ne_bytes()));
        bytes
    }

    fn of_bytes(bytes: &[u8; ERRAND_BYTES]) -> Self {
        let word = |index: usize| {
            u64::from_ne_bytes(bytes[index * 8..index * 8 + 8].try_into().expect("eight bytes"))
        };
        match word(0) {
            0 => Self::MakeOwn(word(1)..word(2)),
            _ => Self::TellEnd(ThreadWord { address: word(1), thread: word(2) as u32 }),
        }
    }

    fn run(self) {
        match self {
            // A range that is gone or not writable any more needs nothing.
            Self::MakeOwn(range) => drop(make_own(range)),
            Self::TellEnd(word) => tell_end(word),
        }
    }
}

/// Where the engine leaves its errands.
#[derive(Debug)]
pub(super) struct Errands {
    queue: OwnedFd,
}

impl Errands {
    /// Leaves one. False when there are too many already.
    pub(super) fn send(&mut self, errand: &Errand) -> bool {
        write(&self.queue, &errand.to_bytes()) == Ok(ERRAND_BYTES)
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
        while self.run_one() {}
    }

    /// Waits for an errand and runs it. False when the engine is gone.
    pub fn run_one(&self) -> bool {
        let mut errand = [0; ERRAND_BYTES];
        let is_there = read(&self.queue, &mut errand) == Ok(ERRAND_BYTES);
        if is_there {
            Errand::of_bytes(&errand).run();
        }
        is_there
    }
}

impl AsFd for Agent {
    /// Readable when there is an errand.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

impl Engine {
    /// The other end of the engine's errands. Without one, memory that a child shared stays in place
    /// until the program writes to it, and who waits for a thread that ended in a bad moment waits for ever.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errands_are_read_as_they_were_left() {
        for errand in [Errand::MakeOwn(4096..12288), Errand::TellEnd(ThreadWord { address: 77, thread: 5 })] {
            assert_eq!(Errand::of_bytes(&errand.to_bytes()), errand);
        }
    }
}
