//! The worker loop: keep the queue full, or keep a schedule; reap, record. One thread, one engine, nothing
//! shared but a flag.
//!
//! Each operation keeps its own start tick, read before the system call that submits it, so that no batch
//! folds a straggler into a later one's time. Ticks are read twice a round: when a batch is queued and when
//! its completions are seen. On a schedule each operation also keeps the tick at which it was due: how long
//! it took from there is what a user waits.

use crate::content::fill_block;
use crate::engine::{Completion, Engine, Grants};
use crate::iolog::{Recorder, Sink};
use crate::job::{Content, Direction, Job};
use crate::live::Live;
use crate::outcome::{DepthFound, Ended, ErrorCount, ScheduleOutcome, Slice, Tally};
use crate::outliers::{Outlier, Outliers};
use crate::pattern::{Io, Pattern};
use crate::verify::{Verified, Verify};
use overdrive_base::rng::Rng;
use overdrive_hist::Histogram;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

mod aside;
mod due;
mod governor;
mod usage;

use due::{Due, due};
use governor::Governor;
use usage::Reading;
pub(crate) use usage::Usage;

/// What a worker needs to know of its run.
pub(crate) struct Assignment<'a> {
    pub(crate) job: &'a Job,
    pub(crate) number: u32,
    /// Its stream of random numbers; no two workers of a run share one.
    pub(crate) stream: u64,
    pub(crate) cpu: Option<usize>,
    pub(crate) slice: Duration,
    pub(crate) stop: &'a AtomicBool,
    /// Set when enough is measured: an end like that of the runtime.
    pub(crate) enough: &'a AtomicBool,
    /// For whoever watches.
    pub(crate) progress: &'a Progress,
    /// Where every I/O is written down.
    pub(crate) log: Option<Sink>,
}

/// What a worker has done so far, on a cache line of its own, so that workers do not slow one another.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Progress {
    /// Operations finished.
    pub(crate) ios: AtomicU64,
    /// Their bytes and the sum of their latencies in nanoseconds, measured ones only, and only for a job that
    /// is to become steady.
    pub(crate) bytes: AtomicU64,
    pub(crate) latency_ns: AtomicU64,
    pub(crate) measured: AtomicU64,
    /// What somebody watches, if anybody does.
    pub(crate) live: Option<Arc<Live>>,
}

/// What one worker measured.
pub(crate) struct WorkerOutcome {
    pub(crate) number: u32,
    pub(crate) elapsed: Duration,
    /// By what the operations did, in the order of [`Direction`].
    pub(crate) tallies: [Tally; Direction::COUNT],
    /// Bytes read and written by all operations that finished, warm-up and drain included.
    pub(crate) moved_bytes: u64,
    pub(crate) errors: BTreeMap<(Direction, i32), ErrorCount>,
    pub(crate) short_ios: u64,
    pub(crate) series: Vec<Slice>,
    pub(crate) outliers: Vec<Outlier>,
    pub(crate) schedule: Option<ScheduleOutcome>,
    pub(crate) verified: Option<Verified>,
    pub(crate) depth_found: Option<DepthFound>,
    pub(crate) usage: Option<Usage>,
    pub(crate) grants: Grants,
    pub(crate) ended: Ended,
}

/// Runs one worker from warm-up to drain, and reads back what it wrote if the job says so.
pub(crate) fn work<E: Engine>(engine: E, pattern: Pattern, assignment: &Assignment<'_>) -> WorkerOutcome {
    let job = assignment.job;
    let replay = (job.verify == Some(Verify::WriteThenRead)).then(|| pattern.clone());
    let mut pump = Pump::new(engine, pattern, assignment);
    if job.operation.writes() {
        pump.fill_buffers();
    }
    pump.start_schedule();
    let warm = pump.engine.now().saturating_add(pump.engine.ticks(job.warmup));
    pump.run_until(warm, assignment);
    let before = Reading::take(assignment.cpu);
    let start = pump.begin_measuring();
    let due_end = start.saturating_add(pump.engine.ticks(job.runtime));
    pump.run_until(due_end, assignment);
    let end = pump.engine.now();
    let after = Reading::take(assignment.cpu);
    pump.drain();
    pump.count_unstarted(end.min(due_end));
    pump.cool_down(assignment);
    if let Some(replay) = replay {
        pump.read_back(replay, assignment);
    }
    let usage = pump.engine.is_real_time().then(|| after.since(&before));
    pump.into_outcome(start, end, usage)
}

/// An operation in flight.
#[derive(Debug, Clone, Copy)]
struct Started {
    tick: u64,
    /// When it was due; its start where nothing says when it is due.
    intended: u64,
    io: Io,
    /// Operations in flight when it started, itself included.
    depth: u32,
}

/// Checking content: the stamp of the next operation, and of each one in flight.
struct Checker {
    seed: u64,
    next: u64,
    in_flight: Vec<u64>,
    verified: Verified,
    /// Whether anything is read back; if not, nothing is told.
    reads: bool,
}

/// The loop's state.
struct Pump<E> {
    engine: E,
    pattern: Pattern,
    due: Due,
    /// Each slot's operation.
    started: Vec<Started>,
    free: Vec<u32>,
    /// Slots left empty because the depth is held down.
    parked: Vec<u32>,
    governor: Option<Governor>,
    log: Option<Recorder>,
    /// Whether the log or the governor hears of each operation.
    watched: bool,
    done: Vec<Completion>,
    /// Operations started at or after this tick are recorded.
    measuring_from: u64,
    slice_ticks: u64,
    slice_end: u64,
    draining: bool,
    /// Nothing more is to be started.
    over: bool,
    failures_in_a_row: u32,
    failures: u64,
    tallies: [Tally; Direction::COUNT],
    errors: BTreeMap<(Direction, i32), ErrorCount>,
    short_ios: u64,
    series: Vec<Slice>,
    outliers: Outliers,
    /// What writes carry, and whether their buffers must be looked at before each operation.
    content: Content,
    content_rng: Rng,
    prepares: bool,
    checker: Option<Checker>,
    live: Option<Arc<Live>>,
    /// Whether the checker or whoever watches hears of each operation.
    told: bool,
    number: u32,
    finished: u64,
    /// Bytes by what the operations did.
    moved_bytes: [u64; Direction::COUNT],
    /// Operations handed over at once, completions waited for at once, and how many may be in flight when
    /// the queue is filled again.
    submit_at_once: usize,
    /// How many are handed over first when there are many.
    submit_first: usize,
    complete_at_once: usize,
    low: usize,
    ended: Ended,
}

const NOTHING: Started =
    Started { tick: 0, intended: 0, io: Io { direction: Direction::Read, offset: 0, length: 0 }, depth: 0 };

impl<E: Engine> Pump<E> {
    fn new(engine: E, mut pattern: Pattern, assignment: &Assignment<'_>) -> Self {
        let job = assignment.job;
        let depth = job.queue_depth;
        let slices = (job.runtime.as_nanos() / assignment.slice.as_nanos().max(1) + 2).min(1 << 16);
        let in_flight = vec![0; depth as usize];
        let checker = job.verify.map(|verify| Checker {
            seed: job.seed,
            next: 0,
            in_flight,
            verified: Verified::default(),
            reads: verify != Verify::WriteOnly,
        });
        if checker.is_some() {
            pattern.limit_to_one_pass();
        }
        let governor =
            job.latency_target.map(|target| Governor::new(target, depth, engine.ticks(target.window)));
        let tally = || Tally { response: job.arrivals.is_some().then(Histogram::new), ..Tally::default() };
        Self {
            due: due(assignment, &engine),
            started: vec![NOTHING; depth as usize],
            free: if governor.is_some() { vec![0] } else { (0..depth).collect() },
            parked: if governor.is_some() { (1..depth).collect() } else { Vec::new() },
            watched: governor.is_some() || assignment.log.is_some(),
            log: assignment.log.clone().map(|sink| Recorder::new(sink, assignment.number)),
            governor,
            done: Vec::with_capacity(depth as usize),
            measuring_from: u64::MAX,
            slice_ticks: engine.ticks(assignment.slice),
            slice_end: u64::MAX,
            draining: false,
            over: false,
            failures_in_a_row: 0,
            failures: 0,
            tallies: std::array::from_fn(|_| tally()),
            errors: BTreeMap::new(),
            short_ios: 0,
            series: Vec::with_capacity(usize::try_from(slices).unwrap_or(0)),
            outliers: Outliers::new(job.outliers),
            content: job.content.clone(),
            content_rng: Rng::for_stream(job.seed, u64::from(assignment.number) << 20 | 0xc0),
            prepares: checker.is_some() || (job.operation.writes() && job.content.refills()),
            told: checker.is_some() || assignment.progress.live.is_some(),
            live: assignment.progress.live.clone(),
            checker,
            number: assignment.number,
            finished: 0,
            moved_bytes: [0; Direction::COUNT],
            submit_at_once: job.batch.submit.map_or((depth as usize).div_ceil(8), |count| count as usize),
            submit_first: job.batch.submit.map_or(1, |count| count as usize),
            complete_at_once: job.batch.complete.map_or(1, |count| count as usize),
            low: job.batch.low.map_or(depth as usize, |count| count as usize),
            ended: Ended::TimeUp,
            engine,
            pattern,
        }
    }

    /// Fills what writes carry, once.
    fn fill_buffers(&mut self) {
        let Self { engine, content, content_rng, .. } = self;
        for slot in 0..self.started.len() as u32 {
            fill_block(content, content_rng, engine.write_buffer_mut(slot));
        }
    }

    fn start_schedule(&mut self) {
        let now = self.engine.now();
        if let Due::Scheduled { origin, .. } = &mut self.due {
            *origin = now;
        }
        self.due.advance();
    }

    fn begin_measuring(&mut self) -> u64 {
        let start = self.engine.now();
        self.measuring_from = start;
        self.slice_end = start.saturating_add(self.slice_ticks);
        self.series.push(Slice::default());
        if let Some(governor) = &mut self.governor {
            governor.begin(start);
        }
        if self.checker.is_none() {
            self.pattern.count_from_here();
            self.over = self.governor.as_ref().is_some_and(Governor::is_done);
        }
        start
    }

    /// Keeps the queue as full as the pace wants until the clock reaches `end`, the caller stops it, nothing
    /// is left to do, or it cannot go on.
    fn run_until(&mut self, end: u64, assignment: &Assignment<'_>) {
        while self.ended == Ended::TimeUp {
            let now = self.engine.now();
            if now >= end {
                return;
            }
            if assignment.stop.load(Ordering::Relaxed) {
                self.ended = Ended::Stopped;
                return;
            }
            if assignment.enough.load(Ordering::Relaxed) {
                return;
            }
            let wait_for = match self.due {
                Due::AtOnce => {
                    self.refill(now);
                    self.wait_for()
                }
                _ => self.refill_due(now, end),
            };
            let idle = self.in_flight() == 0;
            if idle && self.over {
                return;
            }
            if !idle {
                self.reap(wait_for);
            }
            assignment.progress.ios.store(self.finished, Ordering::Relaxed);
            if assignment.job.steady.is_some() {
                self.report(assignment.progress);
            }
        }
    }

    #[inline]
    fn in_flight(&self) -> usize {
        self.started.len() - self.free.len() - self.parked.len()
    }

    /// How many completions a closed loop waits for before it fills the queue again.
    #[inline]
    fn wait_for(&self) -> u32 {
        let in_flight = self.in_flight();
        self.complete_at_once.max(in_flight.saturating_sub(self.low)).min(in_flight) as u32
    }

    /// Queues an operation in every free slot. Many are handed over in steps of an eighth of the depth, the
    /// first of them smaller still: a device that gets all of them at once idles while they are prepared, and
    /// answers them all at once too.
    #[inline]
    fn refill(&mut self, mut now: u64) {
        let mut queued = 0;
        let many = self.free.len() > self.submit_at_once;
        let mut step = if many { self.submit_first } else { self.submit_at_once };
        while let Some(slot) = self.free.pop() {
            if !self.start(slot, now, now) {
                return;
            }
            queued += 1;
            if queued == step && !self.free.is_empty() {
                if !self.submit() {
                    return;
                }
                queued = 0;
                step = (step * 2).min(self.submit_at_once);
                now = self.engine.now();
            }
        }
    }

    /// Queues what is due and returns how many completions to wait for: none as long as there is a free slot
    /// for the next arrival, for which time is let pass instead.
    fn refill_due(&mut self, now: u64, end: u64) -> u32 {
        while let Some(intended) = self.due.at(now)
            && intended <= now
            && let Some(slot) = self.free.pop()
        {
            if !self.start(slot, now, intended) {
                break;
            }
            // A sync is no arrival: it follows its write under that one's time.
            if !self.pattern.owes_sync() {
                self.due.advance_after(now, &self.engine);
            }
        }
        let next = self.due.at(now);
        self.over |= next.is_none();
        if self.free.is_empty() || self.over {
            return 1;
        }
        if self.submit() {
            self.engine.pass_until(next.unwrap_or(end).min(end));
        }
        0
    }

    /// Puts the next operation into a slot; false when there is none.
    #[inline]
    fn start(&mut self, slot: u32, now: u64, intended: u64) -> bool {
        let Some(io) = self.pattern.next_io() else {
            self.free.push(slot);
            self.over = true;
            return false;
        };
        let depth = self.in_flight() as u32;
        self.started[slot as usize] = Started { tick: now, intended, io, depth };
        if self.prepares {
            self.prepare(slot, io);
        }
        self.engine.queue(slot, io);
        true
    }

    fn submit(&mut self) -> bool {
        let outcome = self.engine.submit();
        if let Err(errno) = outcome {
            self.ended = Ended::Failed(format!("submitting I/O failed: {errno}"));
        }
        outcome.is_ok()
    }

    /// Waits for what is still in flight; it is recorded but no longer counted.
    fn drain(&mut self) {
        self.draining = true;
        while self.in_flight() > 0 {
            let before = self.in_flight();
            self.reap(1);
            if self.in_flight() == before {
                return;
            }
        }
    }

    /// Reads what was written, in the order in which it was written, and compares.
    fn read_back(&mut self, mut replay: Pattern, assignment: &Assignment<'_>) {
        if matches!(self.ended, Ended::Failed(_)) {
            return;
        }
        replay.read_back(self.checker.as_ref().map_or(0, |checker| checker.next));
        self.pattern = replay;
        let due = std::mem::replace(&mut self.due, Due::AtOnce);
        self.measuring_from = u64::MAX;
        self.over = false;
        if let Some(checker) = &mut self.checker {
            checker.next = 0;
        }
        self.run_until(u64::MAX, assignment);
        self.drain();
        self.due = due;
    }

    /// Goes on without measuring, so that others who still measure meet the same load.
    fn cool_down(&mut self, assignment: &Assignment<'_>) {
        if assignment.job.cooldown.is_zero() || self.ended != Ended::TimeUp {
            return;
        }
        self.measuring_from = u64::MAX;
        let end = self.engine.now().saturating_add(self.engine.ticks(assignment.job.cooldown));
        self.run_until(end, assignment);
        self.drain();
    }

    /// Counts what was due before `end` and never started, with its wait until then, however it ended. A job
    /// that has had all it asked for owes nothing more.
    fn count_unstarted(&mut self, end: u64) {
        if self.pattern.owes_sync() {
            // That arrival's write was started.
            self.due.advance();
        }
        while let Due::Scheduled { next: Some(next), outcome, .. } = &mut self.due
            && *next < end
            && !self.over
        {
            outcome.unstarted.record(self.engine.ns_between(*next, end));
            self.due.advance();
        }
    }

    #[inline]
    fn reap(&mut self, wait_for: u32) {
        let mut done = std::mem::take(&mut self.done);
        if let Err(errno) = self.engine.submit_and_reap(wait_for, &mut done) {
            self.ended = Ended::Failed(format!("submitting I/O failed: {errno}"));
        }
        let now = self.engine.now();
        while now >= self.slice_end && !self.draining {
            self.series.push(Slice::default());
            self.slice_end = self.slice_end.saturating_add(self.slice_ticks);
        }
        for completion in &done {
            self.record(*completion, now);
            self.free.push(completion.slot);
        }
        self.done = done;
        if self.governor.is_some() {
            self.govern(now);
        }
    }

    #[inline]
    fn record(&mut self, completion: Completion, now: u64) {
        let Started { tick, intended, io, .. } = self.started[completion.slot as usize];
        if i64::from(completion.result) != i64::from(io.length) {
            self.record_failure(completion.result, io);
            return;
        }
        self.failures_in_a_row = 0;
        self.finished += u64::from(io.direction.has_blocks());
        self.moved_bytes[io.direction as usize] += u64::from(io.length);
        let latency_ns = self.engine.ns_between(tick, now);
        if self.told {
            self.look_at(completion.slot, now);
        }
        let tally = &mut self.tallies[io.direction as usize];
        // Its start decides, on a schedule too: what an overload started late was due earlier, maybe in the
        // warm-up, and its user has waited since then.
        if tick >= self.measuring_from {
            tally.latency.record(latency_ns);
            if self.watched {
                self.tell(tick, now, latency_ns, io);
            }
            let tally = &mut self.tallies[io.direction as usize];
            if let Due::Scheduled { outcome, .. } = &mut self.due {
                outcome.slip.record(self.engine.ns_between(intended, tick));
                if let Some(response) = &mut tally.response {
                    response.record(self.engine.ns_between(intended, now));
                }
            }
            if self.outliers.wants(latency_ns) {
                self.keep_outlier(completion.slot, latency_ns);
            }
        }
        let tally = &mut self.tallies[io.direction as usize];
        if let Some(slice) = self.series.last_mut()
            && !self.draining
        {
            tally.ios += 1;
            tally.bytes += u64::from(io.length);
            slice.ios += u64::from(io.direction.has_blocks());
            slice.bytes += u64::from(io.length);
            slice.max_ns = slice.max_ns.max(latency_ns);
        }
    }

    fn into_outcome(mut self, start: u64, end: u64, usage: Option<Usage>) -> WorkerOutcome {
        if let Some(log) = self.log.take() {
            log.finish();
        }
        WorkerOutcome {
            depth_found: self.governor.as_ref().map(Governor::found),
            number: self.number,
            elapsed: Duration::from_nanos(self.engine.ns_between(start, end)),
            tallies: self.tallies,
            moved_bytes: self.moved_bytes[..2].iter().sum(),
            errors: self.errors,
            short_ios: self.short_ios,
            series: self.series,
            outliers: self.outliers.into_kept(),
            schedule: match self.due {
                Due::Scheduled { outcome, .. } => Some(*outcome),
                Due::AtOnce | Due::Think { .. } => None,
            },
            verified: self.checker.filter(|checker| checker.reads).map(|checker| checker.verified),
            usage,
            grants: self.engine.grants(),
            ended: self.ended,
        }
    }
}
