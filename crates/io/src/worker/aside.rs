//! What the worker loop does now and then: filling and stamping buffers, telling the log, the governor and
//! whoever watches, keeping outliers, checking content, counting failures. None of it is for a plain run.

use super::{Progress, Pump, Started};
use crate::content::fill_block;
use crate::engine::Engine;
use crate::job::Direction;
use crate::outcome::{Ended, ErrorCount, Tally};
use crate::outliers::Outlier;
use crate::pattern::Io;
use crate::verify::Stamp;
use overdrive_sys::affinity::current_cpu;
use std::sync::atomic::Ordering;

/// After this many operations in a row that fail or move too little, a worker gives up: the target is gone.
const FAILURES_IN_A_ROW: u32 = 100;
/// A worker whose operations fail this often in all gives up too: nothing it measures means anything.
const FAILURES_IN_ALL: u64 = 10_000;

impl<E: Engine> Pump<E> {
    /// Fills and stamps a buffer, where the job wants that.
    #[cold]
    pub(super) fn prepare(&mut self, slot: u32, io: Io) {
        let length = io.length as usize;
        if io.direction == Direction::Write && self.content.refills() {
            let buffer = self.engine.write_buffer_mut(slot);
            let length = length.min(buffer.len());
            fill_block(&self.content, &mut self.content_rng, &mut buffer[..length]);
        }
        let Some(checker) = self.checker.as_mut().filter(|_| io.direction.has_blocks()) else { return };
        let stamp = Stamp { offset: io.offset, seed: checker.seed, sequence: checker.next };
        checker.in_flight[slot as usize] = checker.next;
        checker.next += 1;
        if io.direction == Direction::Write {
            stamp.apply(&mut self.engine.write_buffer_mut(slot)[..length]);
        }
    }

    #[cold]
    pub(super) fn report(&self, progress: &Progress) {
        let blocks = || self.tallies[..3].iter();
        let mean_ns = |tally: &Tally| tally.latency.mean().unwrap_or(0.0) * tally.latency.count() as f64;
        progress.bytes.store(blocks().map(|tally| tally.bytes).sum(), Ordering::Relaxed);
        progress.latency_ns.store(blocks().map(mean_ns).sum::<f64>() as u64, Ordering::Relaxed);
        progress.measured.store(blocks().map(|tally| tally.ios).sum(), Ordering::Relaxed);
    }

    /// Fits the slots in use to the depth that is tried now.
    #[cold]
    pub(super) fn govern(&mut self, now: u64) {
        let Some(governor) = &mut self.governor else { return };
        if !self.draining {
            governor.judge(now);
        }
        self.over |= governor.is_done();
        let usable = if governor.is_done() { 0 } else { governor.depth() as usize };
        let parked = self.started.len() - usable;
        while self.parked.len() < parked
            && let Some(slot) = self.free.pop()
        {
            self.parked.push(slot);
        }
        while self.parked.len() > parked
            && let Some(slot) = self.parked.pop()
        {
            self.free.push(slot);
        }
    }

    /// Tells the log and the governor of an operation.
    #[cold]
    pub(super) fn tell(&mut self, tick: u64, now: u64, latency_ns: u64, io: Io) {
        if let Some(log) = &mut self.log {
            log.add(self.engine.ns_between(self.measuring_from, now), latency_ns, io);
        }
        if let Some(governor) = &mut self.governor {
            governor.count(tick, latency_ns);
        }
    }

    #[cold]
    pub(super) fn keep_outlier(&mut self, slot: u32, latency_ns: u64) {
        let Started { tick, io, depth, .. } = self.started[slot as usize];
        let at_ns = self.engine.ns_between(self.measuring_from, tick);
        let (cpu, worker) = (current_cpu(), self.number);
        self.outliers.add(Outlier { at_ns, latency_ns, io, depth, cpu, worker });
    }

    /// Lets the checker see what an operation brought, and whoever watches that it is done.
    #[cold]
    pub(super) fn look_at(&mut self, slot: u32, now: u64) {
        let Started { intended, io, .. } = self.started[slot as usize];
        if let Some(live) = &self.live {
            live.count(io.direction, io.length, self.engine.ns_between(intended, now));
        }
        let Some(checker) = &mut self.checker else { return };
        if io.direction == Direction::Read {
            let sequence = checker.in_flight[slot as usize];
            let block = &self.engine.read_buffer_mut(slot)[..io.length as usize];
            checker.verified.check(block, Stamp { offset: io.offset, seed: checker.seed, sequence });
        }
    }

    #[cold]
    pub(super) fn record_failure(&mut self, result: i32, io: Io) {
        if result < 0 {
            let first = ErrorCount { count: 0, first_offset: io.offset };
            self.errors.entry((io.direction, -result)).or_insert(first).count += 1;
        } else {
            self.short_ios += 1;
        }
        if let Some(live) = &self.live {
            live.count_failure();
        }
        self.failures += 1;
        self.failures_in_a_row += 1;
        if self.failures_in_a_row >= FAILURES_IN_A_ROW || self.failures >= FAILURES_IN_ALL {
            self.ended = Ended::Failed(describe_failure(result, io));
        }
    }
}

fn describe_failure(result: i32, io: Io) -> String {
    let verb = io.direction.name();
    let Io { offset, length, .. } = io;
    if result < 0 {
        let (name, errno) = (overdrive_sys::errno_name(-result), -result);
        // The block layer's answers for a drive that is unplugged; to commands they are all there is.
        if matches!(name, "ENODEV" | "ENXIO") {
            return format!("the target is gone: a {verb} at offset {offset} met {name} (errno {errno})");
        }
        format!(
            "gave up after repeated errors, the last one {name} (errno {errno}) on a {verb} of {length} bytes at offset {offset}"
        )
    } else if result == 0 {
        // The kernel gives a drive that is unplugged the size 0.
        format!(
            "the target is gone or has shrunk: a {verb} of {length} bytes at offset {offset} moved nothing"
        )
    } else {
        format!("the target ends early: a {verb} of {length} bytes at offset {offset} moved only {result}")
    }
}
