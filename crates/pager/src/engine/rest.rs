//! Nothing to do: looks again for a while, then sleeps.

use super::{Engine, TICK};
use crate::platform::{AsFd, Instant};
use overdrive_sys::Errno;

/// There is nothing to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Idle {
    since: Instant,
    /// But reads were under way then.
    reads: bool,
}

impl Engine {
    /// Looks again for a while, then sleeps. Waking a thread on another, idle processor costs more than most
    /// reads take, so looking pays while faults come in.
    ///
    /// # Errors
    /// The ring's.
    pub(super) fn rest(&mut self) -> Result<(), Errno> {
        let now = Instant::now();
        let reads = !self.free_landing.is_whole();
        let idle = *self.idle.get_or_insert(Idle { since: now, reads });
        if now.duration_since(idle.since) < self.spin {
            // Whoever else is ready to run here goes first.
            std::thread::yield_now();
            return Ok(());
        }
        // To be told of messages costs the faulting thread and this one time; who is awake looks by itself.
        self.io.watch_once(0, self.userfault.as_fd())?;
        self.io.submit(Some(TICK))?;
        if self.reap() {
            self.end_rest(Instant::now());
        }
        Ok(())
    }

    /// There is something to do since then.
    pub(super) fn end_rest(&mut self, then: Instant) {
        if let Some(idle) = self.idle.take().filter(|idle| idle.reads) {
            self.tier.note_reading(then.duration_since(idle.since));
        }
    }
}
