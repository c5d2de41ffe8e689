//! The loop of one thread: what is due is sent, what has come is recorded.

use super::{BACKLOG, FAREWELL, LoadError, LoadSpec, Measured, Served};
use crate::connection::{Connection, ConnectionError, Pending};
use crate::keys::Keys;
use crate::resp::{self, Reply};
use overdrive_base::rng::Rng;
use overdrive_sys::clock::Clock;
use overdrive_sys::poll::{Poller, Ready, precise_timers};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// One thread's part of a run.
pub(super) struct Drive<'a> {
    pub(super) spec: &'a LoadSpec,
    pub(super) clock: Clock,
    /// The tick at which the first request is due.
    pub(super) start: u64,
    pub(super) window: Duration,
    /// The number of the first connection among all.
    pub(super) first: usize,
    pub(super) stream: u64,
    pub(super) stop: &'a AtomicBool,
    pub(super) done: &'a AtomicU64,
}

/// Requests are due every `interval` nanoseconds; the instances are shifted against each other.
struct Schedule {
    interval_ns: f64,
    phase_ns: f64,
    sent: u64,
}

impl Schedule {
    fn due_ns(&self) -> u64 {
        // From the count, not from the one before: rounding must not add up.
        (self.phase_ns + self.sent as f64 * self.interval_ns) as u64
    }
}

struct Lane {
    schedule: Schedule,
    rng: Rng,
}

impl Drive<'_> {
    /// Nanoseconds since the start; 0 before it.
    fn now_ns(&self) -> u64 {
        self.clock.ns_between(self.start, self.clock.now())
    }

    pub(super) fn run(&self, connections: &mut [Connection]) -> Result<Measured, LoadError> {
        // A kernel that refuses makes the load late, which is measured.
        let _ = precise_timers();
        let mut poller = Poller::new(connections.len())?;
        for (at, connection) in connections.iter().enumerate() {
            poller.add(connection, at as u64)?;
        }
        let mut lanes: Vec<Lane> = (0..connections.len()).map(|at| self.lane(at)).collect();
        let keys = Keys::new(self.spec.records, self.spec.influence);
        let mut measured =
            Measured { served: vec![Served::default(); connections.len()], ..Measured::default() };
        let mut due: BinaryHeap<Reverse<(u64, usize)>> =
            lanes.iter().enumerate().map(|(at, lane)| Reverse((lane.schedule.due_ns(), at))).collect();
        let (window_ns, mut buffer) = (self.window.as_nanos() as u64, vec![0; 1 << 16]);
        let mut end_ns = window_ns;
        let mut ready: Vec<Ready> = Vec::new();
        loop {
            let begun = self.clock.now() >= self.start;
            let now = self.now_ns();
            let sends = begun && !measured.overloaded && !measured.stopped;
            while let Some(&Reverse((at_ns, at))) = due.peek().filter(|due| due.0.0 <= now && sends) {
                due.pop();
                if at_ns >= window_ns {
                    continue;
                }
                self.send(&mut connections[at], &mut lanes[at], &keys, at, &mut measured)?;
                due.push(Reverse((lanes[at].schedule.due_ns(), at)));
                measured.overloaded |= self.is_behind(&connections[at]);
            }
            measured.stopped |= self.stop.load(Ordering::Relaxed);
            let next_ns = match due.peek() {
                // What is due later than the window's end is not waited for.
                Some(Reverse((at_ns, _))) if now < window_ns && !measured.overloaded && !measured.stopped => {
                    window_ns.min(*at_ns)
                }
                _ => {
                    end_ns = end_ns.min(now.max(1));
                    due.clear();
                    let late = now >= end_ns + FAREWELL.as_nanos() as u64;
                    if late || measured.overloaded || connections.iter().all(|one| one.waiting.is_empty()) {
                        break;
                    }
                    now + 10_000_000
                }
            };
            self.wait(&mut poller, next_ns, &mut ready)?;
            for one in ready.drain(..) {
                self.serve(&mut connections[one.token as usize], one, end_ns, &mut buffer, &mut measured)?;
            }
        }
        measured.window_ns = end_ns.min(window_ns);
        self.give_up(connections, &mut measured);
        Ok(measured)
    }

    fn lane(&self, at: usize) -> Lane {
        let number = self.first + at;
        let interval_ns = 1e9 / self.spec.rate_per_s;
        // The golden ratio spreads any number of instances evenly over the interval.
        let phase_ns = (number as f64 * 0.618_033_988_75).fract() * interval_ns;
        let rng = Rng::for_stream(self.spec.seed ^ (self.stream << 32), 1_000_000 + number as u64);
        Lane { schedule: Schedule { interval_ns, phase_ns, sent: 0 }, rng }
    }

    /// Sends the request that is due.
    fn send(
        &self,
        connection: &mut Connection,
        lane: &mut Lane,
        keys: &Keys,
        at: usize,
        measured: &mut Measured,
    ) -> Result<(), LoadError> {
        let intended_ns = lane.schedule.due_ns();
        lane.schedule.sent += 1;
        let is_get = lane.rng.below(100) < u64::from(self.spec.get_percent);
        let key = keys.next(&mut lane.rng);
        let sent_ns = self.now_ns();
        let out = connection.queue(Pending { intended_ns, sent_ns, is_get });
        if is_get {
            resp::get(out, key);
        } else {
            resp::set(out, key, self.spec.value_bytes, |value| lane.rng.fill(value));
        }
        measured.late.record(sent_ns.saturating_sub(intended_ns));
        measured.served[at].due += 1;
        connection.flush().map_err(|error| self.broken(at, error))
    }

    fn broken(&self, at: usize, error: ConnectionError) -> LoadError {
        LoadError::Instance { instance: self.first + at, error }
    }

    fn is_behind(&self, connection: &Connection) -> bool {
        let oldest = connection.waiting.front().map_or(0, |one| one.intended_ns);
        let newest = connection.waiting.back().map_or(0, |one| one.intended_ns);
        newest - oldest > BACKLOG.as_nanos() as u64
    }

    /// Sleeps until something comes or `next_ns`, and looks without sleeping when that is near.
    fn wait(&self, poller: &mut Poller, next_ns: u64, ready: &mut Vec<Ready>) -> Result<(), LoadError> {
        let left = Duration::from_nanos(next_ns.saturating_sub(self.now_ns()));
        // Before the start the clock stands at 0.
        let left = if self.clock.now() < self.start { left.max(Duration::from_micros(100)) } else { left };
        let nap = if left > self.spec.spin { left - self.spec.spin } else { Duration::ZERO };
        // Long waits in pieces, so that a wish to stop is heard.
        Ok(poller.wait(nap.min(Duration::from_millis(20)), |one| ready.push(one))?)
    }

    fn serve(
        &self,
        connection: &mut Connection,
        ready: Ready,
        end_ns: u64,
        buffer: &mut [u8],
        measured: &mut Measured,
    ) -> Result<(), LoadError> {
        let at = ready.token as usize;
        if ready.readable {
            let before = measured.served[at].answered;
            let outcome = connection.receive(
                buffer,
                || self.now_ns(),
                |pending, reply, now| self.record(at, pending, reply, now, end_ns, measured),
            );
            outcome.map_err(|error| self.broken(at, error))?;
            self.done.fetch_add(measured.served[at].answered - before, Ordering::Relaxed);
        }
        if ready.writable {
            connection.flush().map_err(|error| self.broken(at, error))?;
        }
        Ok(())
    }

    fn record(
        &self,
        at: usize,
        pending: Pending,
        reply: Reply,
        now: u64,
        end_ns: u64,
        measured: &mut Measured,
    ) {
        let latency = now.saturating_sub(pending.intended_ns);
        let served = &mut measured.served[at];
        served.latency.record(latency);
        served.answered += 1;
        if pending.is_get { &mut measured.gets } else { &mut measured.sets }.record(latency);
        measured.service.record(now.saturating_sub(pending.sent_ns));
        measured.answered_in_window += u64::from(now <= end_ns);
        let wrong = match reply {
            Reply::Done if !pending.is_get => None,
            Reply::Value(bytes) if pending.is_get && bytes == self.spec.value_bytes as u64 => None,
            Reply::Value(bytes) => Some(format!("a value of {bytes} bytes")),
            Reply::Missing => Some("a key is missing".to_owned()),
            Reply::Done => Some("a GET was answered like a SET".to_owned()),
            Reply::Refused(reason) => Some(reason),
        };
        if let Some(wrong) = wrong {
            served.errors += 1;
            measured.first_error.get_or_insert(wrong);
        }
    }

    /// What is still unanswered took at least until now.
    fn give_up(&self, connections: &mut [Connection], measured: &mut Measured) {
        let now = self.now_ns();
        for (connection, served) in connections.iter_mut().zip(&mut measured.served) {
            for pending in &connection.waiting {
                let age = now.saturating_sub(pending.intended_ns);
                served.latency.record(age);
                served.unanswered += 1;
                if pending.is_get { &mut measured.gets } else { &mut measured.sets }.record(age);
            }
        }
    }
}
