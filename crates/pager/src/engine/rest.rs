//! Nothing to do: looks again for a while, then sleeps.

use super::Engine;
use crate::platform::{AsFd, Instant};
use overdrive_sys::Errno;
use std::time::Duration;

/// Who runs for so long when the engine gives the processor up computes, and may go on for as long as the
/// kernel lets it. Who sleeps is put before it when there is something to do, and who gives way is not.
const COMPUTES: Duration = Duration::from_micros(200);
/// For so long it is taken to compute.
const COMPUTES_FOR: Duration = Duration::from_millis(20);
/// Who tells of a change goes on a moment after that was read. If it was put off its processor, it is looked
/// again this often.
const UNTOLD_TICK: Duration = Duration::from_micros(500);
/// While reads are under way it looks this many times as long: most drives are done by then, and to wake for
/// what was read takes up to half the time that they take.
const READS_TIMES: u32 = 5;
/// Whether they are done by then is told by the mean of the latest rests: each counts for so much of it.
const REST_PART: u32 = 16;

/// For how long the engine looks again before it sleeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spin {
    most: Duration,
    /// How long reads were waited for lately, in the mean, while there was nothing else to do.
    waited: Duration,
    /// When somebody was seen to compute.
    computed: Option<Instant>,
}

impl Spin {
    pub(super) fn new(most: Duration) -> Self {
        Self { most, waited: Duration::ZERO, computed: None }
    }

    pub(super) fn is_none(&self) -> bool {
        self.most.is_zero()
    }

    fn goes_on(&self, now: Instant, idle: Idle) -> bool {
        let is_alone = self.computed.is_none_or(|then| now.duration_since(then) > COMPUTES_FOR);
        let for_reads = self.most * READS_TIMES;
        let most = if idle.reads && self.waited < for_reads { for_reads } else { self.most };
        is_alone && now.duration_since(idle.since) < most
    }

    fn note_wait_for_reads(&mut self, took: Duration) {
        self.waited = (self.waited * (REST_PART - 1) + took) / REST_PART;
    }

    /// Gave the processor up then, and has it again now.
    fn gave_way(&mut self, then: Instant, now: Instant) {
        if now.duration_since(then) > COMPUTES {
            self.computed = Some(now);
        }
    }
}

/// There is nothing to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Idle {
    since: Instant,
    /// But reads were under way then.
    reads: bool,
}

impl Engine {
    /// For how long there has been nothing to do.
    pub(super) fn rests_for(&self, now: Instant) -> Duration {
        self.idle.map_or(Duration::ZERO, |idle| now.duration_since(idle.since))
    }

    /// Looks again for a while, then sleeps. Waking a thread on another, idle processor costs more than most
    /// reads take, so looking pays while faults come in.
    ///
    /// # Errors
    /// The ring's.
    pub(super) fn rest(&mut self) -> Result<(), Errno> {
        let now = Instant::now();
        let reads = !self.free_landing.is_whole();
        let idle = *self.idle.get_or_insert(Idle { since: now, reads });
        if self.spin.goes_on(now, idle) {
            // Whoever else is ready to run here goes first.
            std::thread::yield_now();
            self.spin.gave_way(now, Instant::now());
            return Ok(());
        }
        // To be told of messages costs the faulting thread and this one time; who is awake looks by itself.
        self.io.watch_once(0, self.userfault.as_fd())?;
        self.io.submit(Some(if self.changes.untold { UNTOLD_TICK } else { self.sleeps_for() }))?;
        if self.reap() {
            self.end_rest(Instant::now());
        }
        Ok(())
    }

    /// There is something to do since then.
    pub(super) fn end_rest(&mut self, then: Instant) {
        if let Some(idle) = self.idle.take().filter(|idle| idle.reads) {
            let took = then.duration_since(idle.since);
            self.tier.note_reading(took);
            self.spin.note_wait_for_reads(took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_who_computes_is_waited_for() {
        let start = Instant::now();
        let after = |micros| start + Duration::from_micros(micros);
        let goes_on =
            |spin: &Spin, now| spin.goes_on(after(now), Idle { since: after(now - 50), reads: true });
        let mut spin = Spin::new(Duration::from_micros(60));
        assert!(goes_on(&spin, 50) && !spin.goes_on(after(60), Idle { since: start, reads: false }));
        spin.gave_way(start, after(100));
        assert!(goes_on(&spin, 200), "a thread was woken and waits again");
        spin.gave_way(after(200), after(500));
        assert!(!goes_on(&spin, 600) && !goes_on(&spin, 20_400) && goes_on(&spin, 20_600));
    }

    #[test]
    fn reads_are_waited_for_as_long_as_they_are_done_in_time() {
        let start = Instant::now();
        let mut spin = Spin::new(Duration::from_micros(60));
        let goes_on = |spin: &Spin, micros, reads| {
            spin.goes_on(start + Duration::from_micros(micros), Idle { since: start, reads })
        };
        let waits = |spin: &Spin| [59, 60, 299, 300].map(|micros| goes_on(spin, micros, true));
        assert_eq!(waits(&spin), [true, true, true, false]);
        assert!(!goes_on(&spin, 60, false));
        // One that took long is no slow drive.
        spin.note_wait_for_reads(Duration::from_millis(2));
        assert_eq!(waits(&spin), [true, true, true, false]);
        let note = |spin: &mut Spin, micros| {
            (0..64).for_each(|_| spin.note_wait_for_reads(Duration::from_micros(micros)));
        };
        note(&mut spin, 1000);
        assert_eq!(waits(&spin), [true, false, false, false]);
        note(&mut spin, 100);
        assert_eq!(waits(&spin), [true, true, true, false]);
        // Who never looks again does not for reads either.
        assert!(!goes_on(&Spin::new(Duration::ZERO), 0, true));
    }
}
