//! Engines: the path an operation takes to the target and back.
//!
//! An engine keeps its own time, so that a simulated device can run in virtual time under the same worker
//! loop that drives a real one.

pub(crate) mod libaio;
pub mod sim;
pub(crate) mod sync;
pub(crate) mod uring;

use crate::pattern::Io;
use overdrive_sys::Errno;
use overdrive_sys::clock::Clock;
pub use overdrive_sys::ring::{Completion, Grants};
use std::time::Duration;

/// Which engine a job asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineKind {
    /// io_uring with every speed-up the kernel grants.
    IoUring,
    /// NVMe commands through io_uring, past the block layer.
    IoUringCmd,
    /// preadv2 and pwritev2, one operation at a time.
    Pvsync2,
    /// pread and pwrite, one operation at a time.
    Psync,
    /// Kernel AIO by system calls, its completion ring read in place.
    Libaio,
    /// Copies from and to the mapped file: the page cache does the I/O.
    Mmap,
    /// The ring's own no-operation: no target at all, the ceiling of ring, generator and histogram.
    Nop,
    /// A device in memory and virtual time.
    Sim(sim::SimSpec),
}

impl EngineKind {
    /// The engine's name as fio spells it, where fio has it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::IoUringCmd => "io_uring_cmd",
            Self::Pvsync2 => "pvsync2",
            Self::Psync => "psync",
            Self::Libaio => "libaio",
            Self::Mmap => "mmap",
            Self::Nop => "nop",
            Self::Sim(_) => "sim",
        }
    }

    /// Whether a worker has one operation in flight at most.
    #[must_use]
    pub fn is_synchronous(&self) -> bool {
        matches!(self, Self::Pvsync2 | Self::Psync | Self::Mmap)
    }

    /// Whether it can trim.
    #[must_use]
    pub fn can_trim(&self) -> bool {
        !matches!(self, Self::Libaio | Self::Nop | Self::IoUringCmd)
    }
}

/// One worker's way to the target: a fixed number of slots, each with at most one operation in flight.
pub(crate) trait Engine {
    /// What turns ticks into time.
    fn clock(&self) -> &Clock;

    /// The current tick.
    #[inline]
    fn now(&self) -> u64 {
        self.clock().now()
    }

    /// Nanoseconds from one tick to a later one.
    #[inline]
    fn ns_between(&self, earlier: u64, later: u64) -> u64 {
        self.clock().ns_between(earlier, later)
    }

    /// A duration in ticks.
    fn ticks(&self, duration: Duration) -> u64 {
        self.clock().ticks(duration)
    }

    /// Takes an operation into a free slot; nothing needs to happen before [`Engine::submit_and_reap`].
    fn queue(&mut self, slot: u32, io: Io);

    /// Starts what is queued without waiting; an engine that starts operations itself has nothing to do.
    fn submit(&mut self) -> Result<(), Errno> {
        Ok(())
    }

    /// Starts what is queued, waits until at least `wait_for` operations are done, and hands all done ones
    /// to `done`, which it clears first.
    fn submit_and_reap(&mut self, wait_for: u32, done: &mut Vec<Completion>) -> Result<(), Errno>;

    /// Lets time pass until `tick` or the next completion, whichever comes first. Real time passes by itself.
    fn pass_until(&mut self, _tick: u64) {
        std::hint::spin_loop();
    }

    /// What the next write of a free slot will carry; empty where operations have no content.
    fn write_buffer_mut(&mut self, slot: u32) -> &mut [u8];

    /// What the last read of a free slot brought; empty where operations have no content.
    fn read_buffer_mut(&mut self, slot: u32) -> &mut [u8];

    /// What the kernel granted.
    fn grants(&self) -> Grants;

    /// Whether ticks are real time, so that CPU usage over them means something.
    fn is_real_time(&self) -> bool {
        true
    }
}
