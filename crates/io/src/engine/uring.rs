//! The io_uring engine, on files and with NVMe commands, and the same ring with operations that do nothing.

use super::{Completion, Engine, Grants};
use crate::job::Direction;
use crate::pattern::Io;
use overdrive_sys::Errno;
use overdrive_sys::clock::Clock;
use overdrive_sys::file::TrimMethod;
use overdrive_sys::ring::{Ring, RingError, RingOptions};
use std::fs::File;

/// The length every no-operation pretends to have: jobs of the nop engine use this block size.
pub(crate) const NOP_BYTES: usize = 4096;

/// io_uring on one file.
#[derive(Debug)]
pub(crate) struct UringEngine {
    ring: Ring,
    clock: Clock,
    /// Operations do nothing and claim to have moved this many bytes.
    nop_bytes: Option<i32>,
    trim_method: TrimMethod,
    /// The trims in flight, slot and bytes: the kernel answers them with 0 instead of a length.
    trims: Vec<(u32, i32)>,
}

impl UringEngine {
    /// A ring of `depth` slots of `slot_bytes`.
    pub(crate) fn new(
        file: File,
        clock: Clock,
        depth: u32,
        slot_bytes: usize,
        options: RingOptions,
    ) -> Result<Self, RingError> {
        let trim_method = TrimMethod::of(&file)
            .map_err(|errno| RingError::Failed { step: "asking what the target is", errno })?;
        let ring = Ring::new(file, depth, slot_bytes, options)?;
        Ok(Self { ring, clock, nop_bytes: None, trim_method, trims: Vec::new() })
    }

    /// The same ring, doing nothing: every operation completes at once with its full length.
    pub(crate) fn nop(clock: Clock, depth: u32) -> Result<Self, RingError> {
        let nowhere = File::open("/dev/null")
            .map_err(|error| RingError::Failed { step: "opening /dev/null", errno: errno_of(&error) })?;
        Ok(Self {
            ring: Ring::new(nowhere, depth, NOP_BYTES, RingOptions::default())?,
            clock,
            nop_bytes: Some(NOP_BYTES as i32),
            trim_method: TrimMethod::PunchHole,
            trims: Vec::new(),
        })
    }
}

impl UringEngine {
    fn put_trim_lengths(&mut self, done: &mut [Completion]) {
        for completion in done {
            if let Some(index) = self.trims.iter().position(|trim| trim.0 == completion.slot) {
                let (_, length) = self.trims.swap_remove(index);
                if completion.result == 0 {
                    completion.result = length;
                }
            }
        }
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl Engine for UringEngine {
    #[inline]
    fn clock(&self) -> &Clock {
        &self.clock
    }

    #[inline]
    fn queue(&mut self, slot: u32, io: Io) {
        match io.direction {
            _ if self.nop_bytes.is_some() => self.ring.queue_nop(slot),
            Direction::Read => self.ring.queue_read(slot, io.offset, io.length),
            Direction::Write => self.ring.queue_write(slot, io.offset, io.length),
            Direction::Trim => {
                self.trims.push((slot, i32::try_from(io.length).unwrap_or(i32::MAX)));
                self.ring.queue_trim(slot, self.trim_method, io.offset, io.length);
            }
            Direction::Sync => self.ring.queue_sync(slot, false),
            Direction::DataSync => self.ring.queue_sync(slot, true),
        }
    }

    #[inline]
    fn submit(&mut self) -> Result<(), Errno> {
        self.ring.submit()
    }

    #[inline]
    fn submit_and_reap(&mut self, wait_for: u32, done: &mut Vec<Completion>) -> Result<(), Errno> {
        self.ring.submit_and_wait(wait_for)?;
        self.ring.reap(done);
        if let Some(bytes) = self.nop_bytes {
            done.iter_mut().for_each(|completion| completion.result = bytes);
        }
        if !self.trims.is_empty() {
            self.put_trim_lengths(done);
        }
        Ok(())
    }

    fn write_buffer_mut(&mut self, slot: u32) -> &mut [u8] {
        self.ring.write_buffer_mut(slot)
    }

    fn read_buffer_mut(&mut self, slot: u32) -> &mut [u8] {
        self.ring.read_buffer_mut(slot)
    }

    fn grants(&self) -> Grants {
        self.ring.grants().clone()
    }
}
