//! When a worker's next operation is due: at once, after a pause, or on a schedule.

use super::Assignment;
use crate::engine::Engine;
use crate::outcome::ScheduleOutcome;
use crate::pace::{Schedule, Think};
use std::time::Duration;

/// When the next operation is due.
pub(super) enum Due {
    /// As soon as a slot is free.
    AtOnce,
    /// After a pause every so many operations.
    Think { think: Think, left: u32, paused_until: u64 },
    /// On a schedule that began at a tick; the next arrival's tick, if there is one.
    Scheduled {
        schedule: Schedule,
        origin: u64,
        ticks_per_ns: f64,
        next: Option<u64>,
        outcome: Box<ScheduleOutcome>,
    },
}

pub(super) fn due<E: Engine>(assignment: &Assignment<'_>, engine: &E) -> Due {
    let job = assignment.job;
    match (&job.arrivals, job.think) {
        (Some(arrivals), _) => Due::Scheduled {
            // Jobs that run together and have one seed do not arrive together.
            schedule: {
                let others = (assignment.stream - u64::from(assignment.number)) << 40;
                Schedule::new(arrivals, assignment.number, job.workers, job.seed ^ others)
            },
            origin: 0,
            ticks_per_ns: engine.ticks(Duration::from_secs(1)) as f64 / 1e9,
            next: None,
            outcome: Box::default(),
        },
        (None, Some(think)) => Due::Think { think, left: think.every, paused_until: 0 },
        (None, None) => Due::AtOnce,
    }
}

impl Due {
    /// The tick at which the next operation is due; none when there is no other.
    #[inline]
    pub(super) fn at(&self, now: u64) -> Option<u64> {
        match self {
            Self::AtOnce => Some(now),
            Self::Think { paused_until, .. } => Some(now.max(*paused_until)),
            Self::Scheduled { next, .. } => *next,
        }
    }

    /// Goes on to the next arrival of a schedule.
    #[inline]
    pub(super) fn advance(&mut self) {
        if let Self::Scheduled { schedule, origin, ticks_per_ns, next, .. } = self {
            // A rate may be so low, and a time so late, that the clock never shows it.
            let tick = |ns: u64| origin.saturating_add((ns as f64 * *ticks_per_ns) as u64);
            *next = schedule.next_ns().map(tick);
        }
    }

    /// An operation was started at `now`.
    #[inline]
    pub(super) fn advance_after<E: Engine>(&mut self, now: u64, engine: &E) {
        if let Self::Think { think, left, paused_until } = self {
            *left -= 1;
            if *left == 0 {
                *left = think.every;
                *paused_until = now.saturating_add(engine.ticks(think.time));
            }
        }
        self.advance();
    }
}
