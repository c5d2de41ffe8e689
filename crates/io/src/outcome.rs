//! What a run measured: counts, latencies, CPU cost, errors, and how it went over time.

use crate::job::Direction;
use crate::outliers::Outlier;
use crate::steady::SteadyOutcome;
use crate::verify::Verified;
use overdrive_hist::Histogram;
use overdrive_sys::usage::CpuShares;
use std::collections::BTreeMap;
use std::time::Duration;

/// Everything one job measured, over all its workers.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// How long was measured, warm-up excluded.
    pub elapsed: Duration,
    /// Reads.
    pub read: Tally,
    /// Writes.
    pub write: Tally,
    /// Trims.
    pub trim: Tally,
    /// Syncs of both kinds.
    pub sync: Tally,
    /// Bytes read and written by all operations that finished, also in the warm-up and after the measured
    /// time: what the disk's own counters must agree with.
    pub moved_bytes: u64,
    /// Operations that failed, by direction and errno.
    pub errors: BTreeMap<(Direction, i32), ErrorCount>,
    /// Operations that moved fewer bytes than asked; they count in neither tally.
    pub short_ios: u64,
    /// The same by target, when there is more than one; in the order in which they were given.
    pub targets: Vec<TargetOutcome>,
    /// What the schedule says of an open loop.
    pub schedule: Option<ScheduleOutcome>,
    /// The slowest operations, slowest first.
    pub outliers: Vec<Outlier>,
    /// What checking the content found.
    pub verified: Option<Verified>,
    /// What looking for a depth found.
    pub depth_found: Option<DepthFound>,
    /// How the search for a steady state went.
    pub steady: Option<SteadyOutcome>,
    /// What the workers' threads cost over the measured time; none in virtual time.
    pub cpu: Option<CpuCost>,
    /// Throughput over time, in slices of [`Outcome::slice`].
    pub series: Vec<Slice>,
    /// Length of each slice of the series.
    pub slice: Duration,
    /// What the kernel granted to all workers, and what it refused to any.
    pub grants: crate::engine::Grants,
    /// How the run ended.
    pub ended: Ended,
}

/// One target's part of the outcome.
#[derive(Debug, Clone, Default)]
pub struct TargetOutcome {
    /// Reads.
    pub read: Tally,
    /// Writes.
    pub write: Tally,
    /// Trims.
    pub trim: Tally,
    /// Operations that failed or moved too little.
    pub failures: u64,
}

/// How well an open loop kept its schedule.
#[derive(Debug, Clone, Default)]
pub struct ScheduleOutcome {
    /// How late operations were started, in nanoseconds: the queue was full, or the worker was busy.
    pub slip: Histogram,
    /// How long operations that were due within the measured time and never started had waited by its end, in
    /// nanoseconds: what they would have taken in all is longer.
    pub unstarted: Histogram,
}

impl ScheduleOutcome {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.slip.merge(&other.slip);
        self.unstarted.merge(&other.unstarted);
    }
}

/// The depth at which latencies kept their target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DepthFound {
    /// The least of the workers.
    pub depth_min: u32,
    /// The greatest of the workers.
    pub depth_max: u32,
    /// Whether the search of every worker came to its end.
    pub settled: bool,
    /// Whether every worker found a depth that keeps the target.
    pub met: bool,
}

impl DepthFound {
    pub(crate) fn merge(self, other: Self) -> Self {
        Self {
            depth_min: self.depth_min.min(other.depth_min),
            depth_max: self.depth_max.max(other.depth_max),
            settled: self.settled && other.settled,
            met: self.met && other.met,
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The runtime was over, or all that was asked for is done.
    TimeUp,
    /// The caller stopped it.
    Stopped,
    /// It could not go on, and why.
    Failed(String),
}

/// One direction's operations.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Operations finished within the measured time.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Latency in nanoseconds of every operation started within the measured time, stragglers that finished
    /// after it included: leaving those out would hide the tail.
    pub latency: Histogram,
    /// On a schedule: nanoseconds from when each of them was due to its completion. What a user waits.
    pub response: Option<Histogram>,
}

/// One kind of error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCount {
    /// How often it came.
    pub count: u64,
    /// Offset of the first operation that met it.
    pub first_offset: u64,
}

/// What the workers' threads and CPUs spent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuCost {
    /// Seconds in user space, all workers together.
    pub user_s: f64,
    /// Seconds in the kernel on behalf of the workers.
    pub system_s: f64,
    /// Context switches because a worker waited.
    pub voluntary_switches: u64,
    /// Context switches because a worker was preempted.
    pub involuntary_switches: u64,
    /// The workers' CPU time as a share of their elapsed time (1 = every worker busy all the time).
    pub utilisation: f64,
    /// How the workers' CPUs spent that time, whoever used them; mean over the workers. None where no worker
    /// has a CPU of its own, or the kernel does not count for it.
    pub cpus: Option<CpuShares>,
}

/// One slice of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slice {
    /// Operations finished in it.
    pub ios: u64,
    /// Bytes moved in it.
    pub bytes: u64,
    /// The slowest operation that finished in it, in nanoseconds.
    pub max_ns: u64,
}

impl Tally {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.latency.merge(&other.latency);
        if let Some(response) = &other.response {
            self.response.get_or_insert_default().merge(response);
        }
    }
}

impl Outcome {
    /// Operations finished, in all directions; syncs move nothing and do not count.
    #[must_use]
    pub fn ios(&self) -> u64 {
        self.read.ios + self.write.ios + self.trim.ios
    }

    /// Bytes read, written and trimmed.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.read.bytes + self.write.bytes + self.trim.bytes
    }

    /// Operations a second.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.per_second(self.ios())
    }

    /// A count over the measured time, per second; 0 when nothing was measured.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        if self.elapsed.is_zero() { 0.0 } else { count as f64 / self.elapsed.as_secs_f64() }
    }

    /// Operations in flight on average, by Little's law: the sum of all latencies over the elapsed time.
    #[must_use]
    pub fn in_flight_mean(&self) -> f64 {
        let busy_ns = |tally: &Tally| tally.latency.mean().unwrap_or(0.0) * tally.ios as f64;
        let elapsed_ns = self.elapsed.as_nanos() as f64;
        let tallies = [&self.read, &self.write, &self.trim, &self.sync];
        if elapsed_ns == 0.0 { 0.0 } else { tallies.map(busy_ns).iter().sum::<f64>() / elapsed_ns }
    }
}
