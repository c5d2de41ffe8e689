//! The kernel's older asynchronous I/O, by the system calls that the libaio library wraps.

use super::{Completion, Engine, Grants};
use crate::job::Direction;
use crate::pattern::Io;
use overdrive_sys::Errno;
use overdrive_sys::aio::Aio;
use overdrive_sys::clock::Clock;
use std::fs::File;

/// Kernel AIO on one file.
#[derive(Debug)]
pub(crate) struct LibaioEngine {
    aio: Aio,
    clock: Clock,
}

impl LibaioEngine {
    /// A context of `depth` slots of `slot_bytes`.
    pub(crate) fn new(file: File, clock: Clock, depth: u32, slot_bytes: usize) -> Result<Self, Errno> {
        Ok(Self { aio: Aio::new(file, depth, slot_bytes)?, clock })
    }
}

impl Engine for LibaioEngine {
    #[inline]
    fn clock(&self) -> &Clock {
        &self.clock
    }

    #[inline]
    fn queue(&mut self, slot: u32, io: Io) {
        match io.direction {
            Direction::Read => self.aio.queue_read(slot, io.offset, io.length),
            Direction::Write => self.aio.queue_write(slot, io.offset, io.length),
            Direction::Sync => self.aio.queue_sync(slot, false),
            Direction::DataSync => self.aio.queue_sync(slot, true),
            // The job's check refuses trims here: the kernel's AIO has none.
            Direction::Trim => unreachable!("a job that trims on libaio passed its check"),
        }
    }

    #[inline]
    fn submit(&mut self) -> Result<(), Errno> {
        self.aio.submit()
    }

    #[inline]
    fn submit_and_reap(&mut self, wait_for: u32, done: &mut Vec<Completion>) -> Result<(), Errno> {
        self.aio.submit_and_reap(wait_for, done)
    }

    fn write_buffer_mut(&mut self, slot: u32) -> &mut [u8] {
        self.aio.write_buffer_mut(slot)
    }

    fn read_buffer_mut(&mut self, slot: u32) -> &mut [u8] {
        self.aio.read_buffer_mut(slot)
    }

    fn grants(&self) -> Grants {
        self.aio.grants().clone()
    }
}
