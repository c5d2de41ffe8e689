//! The load: every instance gets its requests at fixed times, whether or not earlier ones have been answered.
//!
//! Few threads, one loop each over its connections: send what is due, read what has come, sleep until the
//! next is due. Latency counts from the intended start, so a server that stalls is charged for every
//! request that had to wait, and so is this loop when it is late; how late is kept beside it. What this
//! leaves out: how instances come about.

mod drive;
mod fill;
#[cfg(test)]
mod tests;

use crate::connection::{Connection, ConnectionError};
use overdrive_hist::Histogram;
use overdrive_sys::clock::Clock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use thiserror::Error;

/// What the instances are asked.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadSpec {
    /// Records in each instance; keys are their numbers.
    pub records: u64,
    /// Bytes of each value; random ones.
    pub value_bytes: usize,
    /// Requests a second for each instance.
    pub rate_per_s: f64,
    /// GETs among the requests, in per cent; the rest are SETs.
    pub get_percent: u8,
    /// How strongly keys are pulled to the middle (see [`crate::keys`]); 0 is not at all.
    pub influence: f64,
    /// What the random numbers follow from.
    pub seed: u64,
    /// Threads that send and receive.
    pub threads: usize,
    /// How long before the next request is due the loop stops sleeping and looks again and again.
    pub spin: Duration,
}

/// Why a load ended early.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A connection broke.
    #[error("instance {instance}: {error}")]
    Instance {
        /// The number of its connection, from 0.
        instance: usize,
        /// Why.
        error: ConnectionError,
    },
    /// An instance refused a SET while it was filled.
    #[error("instance {instance} refused a value: {reason}")]
    Refused {
        /// The number of its connection, from 0.
        instance: usize,
        /// In its own words.
        reason: String,
    },
    /// The kernel would not let us wait.
    #[error("waiting for answers: {0}")]
    Poll(#[from] std::io::Error),
}

impl LoadError {
    /// The instance it is about, if it is about one.
    #[must_use]
    pub fn instance(&self) -> Option<usize> {
        match self {
            LoadError::Instance { instance, .. } | LoadError::Refused { instance, .. } => Some(*instance),
            LoadError::Poll(_) => None,
        }
    }
}

/// What one instance did in a run.
#[derive(Debug, Clone, Default)]
pub struct Served {
    /// From the intended start to the answer, in nanoseconds.
    pub latency: Histogram,
    /// Requests that were due.
    pub due: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Requests without an answer at the end; their age is in the histogram, a bound from below.
    pub unanswered: u64,
    /// Requests that were refused, missed or answered with the wrong length.
    pub errors: u64,
}

/// What a run measured.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// Each instance, in the order of its connection.
    pub served: Vec<Served>,
    /// GETs of all, from the intended start.
    pub gets: Histogram,
    /// SETs of all, from the intended start.
    pub sets: Histogram,
    /// From the write to the answer, of all.
    pub service: Histogram,
    /// From the intended start to the write: how late the load itself was.
    pub late: Histogram,
    /// From the first request due to the last one sent, in nanoseconds.
    pub window_ns: u64,
    /// Answers that came inside the window.
    pub answered_in_window: u64,
    /// Whether it was given up because answers were more than [`BACKLOG`] behind.
    pub overloaded: bool,
    /// Whether it was stopped from outside.
    pub stopped: bool,
    /// The first refusal, in the server's words.
    pub first_error: Option<String>,
}

/// A queue this long, in time, says that the rate cannot be met: the run is given up.
pub const BACKLOG: Duration = Duration::from_secs(2);

/// How long answers are waited for after the last request.
const FAREWELL: Duration = Duration::from_secs(2);

impl Measured {
    /// All instances together.
    #[must_use]
    pub fn fleet(&self) -> Histogram {
        let mut all = self.gets.clone();
        all.merge(&self.sets);
        all
    }

    /// Requests a second that were sent.
    #[must_use]
    pub fn sent_per_s(&self) -> f64 {
        let due: u64 = self.served.iter().map(|one| one.due).sum();
        due as f64 / (self.window_ns as f64 / 1e9)
    }

    /// Requests a second that were answered.
    #[must_use]
    pub fn answered_per_s(&self) -> f64 {
        self.answered_in_window as f64 / (self.window_ns as f64 / 1e9)
    }

    /// Adds another run of the same instances.
    pub fn merge(&mut self, other: &Self) {
        if self.served.is_empty() {
            self.served = vec![Served::default(); other.served.len()];
        }
        for (mine, theirs) in self.served.iter_mut().zip(&other.served) {
            mine.latency.merge(&theirs.latency);
            mine.due += theirs.due;
            mine.answered += theirs.answered;
            mine.unanswered += theirs.unanswered;
            mine.errors += theirs.errors;
        }
        self.join(other);
        self.window_ns += other.window_ns;
    }

    /// Adds another part of the same run.
    fn join(&mut self, other: &Self) {
        self.gets.merge(&other.gets);
        self.sets.merge(&other.sets);
        self.service.merge(&other.service);
        self.late.merge(&other.late);
        self.answered_in_window += other.answered_in_window;
        self.overloaded |= other.overloaded;
        self.stopped |= other.stopped;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
    }
}

/// Runs the load for `window` on all connections, each an instance of its own.
///
/// `stream` tells the runs of a seed apart; `tick` hears every tenth of a second how many answers there were.
///
/// # Errors
/// When a connection breaks; what was measured until then is gone.
pub fn run(
    connections: &mut [Connection],
    spec: &LoadSpec,
    window: Duration,
    stream: u64,
    stop: &AtomicBool,
    tick: &mut dyn FnMut(u64),
) -> Result<Measured, LoadError> {
    let clock = Clock::calibrate(Duration::from_millis(20));
    let done = AtomicU64::new(0);
    // All threads start together, a little ahead.
    let start = clock.now() + clock.ticks(Duration::from_millis(5));
    let part = |first: usize, connections: &mut [Connection]| {
        drive::Drive { spec, clock, start, window, first, stream, stop, done: &done }.run(connections)
    };
    let parts = side_by_side(connections, spec.threads, &part, &done, tick)?;
    Ok(together(parts, window))
}

/// The parts of one run.
fn together(parts: Vec<Measured>, window: Duration) -> Measured {
    // A run that was cut short is as long as its longest part.
    let longest = parts.iter().map(|part| part.window_ns).max();
    let window_ns = longest.unwrap_or(window.as_nanos() as u64);
    let mut measured = Measured { window_ns, ..Measured::default() };
    for mut one in parts {
        measured.served.append(&mut one.served);
        measured.join(&one);
    }
    measured
}

/// Stores every record in every instance.
///
/// # Errors
/// When a connection breaks or an instance refuses a value.
pub fn fill(
    connections: &mut [Connection],
    spec: &LoadSpec,
    stop: &AtomicBool,
    tick: &mut dyn FnMut(u64),
) -> Result<(), LoadError> {
    let done = AtomicU64::new(0);
    let part =
        |first: usize, connections: &mut [Connection]| fill::fill(connections, spec, first, stop, &done);
    side_by_side(connections, spec.threads, &part, &done, tick).map(|_| ())
}

/// Waits until no instance owes an answer, so that the next run starts with none; says whether that came
/// about.
///
/// # Errors
/// When a connection breaks.
pub fn settle(
    connections: &mut [Connection],
    patience: Duration,
    stop: &AtomicBool,
) -> Result<bool, LoadError> {
    fill::settle(connections, patience, stop)
}

/// Deals the connections out over the threads and runs `part` on each; the caller's thread only reports.
fn side_by_side<T: Send>(
    connections: &mut [Connection],
    threads: usize,
    part: &(impl Fn(usize, &mut [Connection]) -> Result<T, LoadError> + Sync),
    done: &AtomicU64,
    tick: &mut dyn FnMut(u64),
) -> Result<Vec<T>, LoadError> {
    let each = connections.len().div_ceil(threads.max(1)).max(1);
    std::thread::scope(|scope| {
        let handles: Vec<_> = connections
            .chunks_mut(each)
            .enumerate()
            .map(|(number, chunk)| scope.spawn(move || part(number * each, chunk)))
            .collect();
        let mut waited = 0;
        while handles.iter().any(|handle| !handle.is_finished()) {
            // Short naps, so that a short run is not kept waiting; a report now and then.
            std::thread::sleep(Duration::from_millis(5));
            waited += 1;
            if waited % 20 == 0 {
                tick(done.load(Ordering::Relaxed));
            }
        }
        handles
            .into_iter()
            .map(|handle| match handle.join() {
                Ok(part) => part,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}
