//! The wire types of what only some workloads have: a pattern or pace of their own, several targets,
//! outliers, checked content.

use super::{Direction, Operation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a job was asked beyond operation, block size, depth and time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobDetail {
    /// Several block sizes with their shares; left out for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_sizes: Option<Vec<SizeShare>>,
    /// What offsets are multiples of, bytes; left out for the smallest block size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_align_bytes: Option<u64>,
    /// Where on the target the job worked, bytes from its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset_bytes: Option<u64>,
    /// How much of the target it used, bytes; left out for all from the offset on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Each worker ended after this many bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_size_bytes: Option<u64>,
    /// Each worker ended after this many I/Os.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number_ios: Option<u64>,
    /// Bytes left out after each sequential I/O.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stride_bytes: Option<u64>,
    /// Which blocks random offsets preferred, as fio spells it; left out for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distribution: Option<String>,
    /// Whether random offsets visited each block once before any came again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random_map: Option<bool>,
    /// The share of random offsets that were drawn, in per cent; the others went on where the I/O before
    /// ended. Left out for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub random_percent: Option<u8>,
    /// The law of arrivals of an open loop: `constant`, `poisson`, `bursts` or `trace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<String>,
    /// Arrivals a second of each worker; left out for a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_per_worker: Option<f64>,
    /// Arrivals in each burst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// The pause of a closed loop, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub think_time_ns: Option<u64>,
    /// I/Os before each pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub think_every: Option<u32>,
    /// How content was checked: `write_then_read`, `write_only` or `read_only`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<String>,
    /// An fsync after every so many writes of a worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsync_every: Option<u32>,
    /// An fdatasync after every so many writes of a worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fdatasync_every: Option<u32>,
    /// Each write was durable when it was done: `sync` or `dsync`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<String>,
    /// Whether every write carried new random bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refill_buffers: Option<bool>,
    /// The bytes that writes repeated, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_pattern: Option<String>,
    /// How much of each write could be compressed away, per cent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compressible_percent: Option<u8>,
    /// I/Os handed over at once; left out for an eighth of the depth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submit_batch: Option<u32>,
    /// Completions waited for at once; left out for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete_batch: Option<u32>,
    /// The queue was filled again when no more than this many I/Os were in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_water: Option<u32>,
    /// What the kernel was told of the order of accesses, where that was not the job's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// The latency that a depth was looked for to keep, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_target_ns: Option<u64>,
    /// The share of I/Os that was to keep it, per cent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_target_percent: Option<f64>,
    /// Percentiles that were asked for besides the usual ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentiles: Option<Vec<f64>>,
    /// When the run was to count as steady and end, as fio spells it: `iops_slope:0.3%`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady_state: Option<String>,
    /// For how long it was to be steady, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady_duration_s: Option<f64>,
    /// How long nothing happened before the run, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_delay_s: Option<f64>,
}

/// The depth at which latencies kept their target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DepthFound {
    /// The least of the workers.
    pub depth_min: u32,
    /// The greatest of the workers.
    pub depth_max: u32,
    /// Whether the search came to its end.
    pub settled: bool,
    /// Whether every worker found a depth that keeps the target.
    pub met: bool,
}

/// How the search for a steady state went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Steady {
    /// Whether it was reached; the run ended then.
    pub attained: bool,
    /// The last value of the test, in the unit of the limit that was asked for.
    pub criterion: f64,
    /// The mean over the last sliding time: I/Os a second, bytes a second or nanoseconds.
    pub mean: f64,
    /// Values that were taken.
    pub values: u64,
}

/// One block size of several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SizeShare {
    /// The size, bytes.
    pub bytes: u64,
    /// How often it was wanted, per cent.
    pub percent: u8,
}

/// How an open loop kept its schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Schedule {
    /// How late I/Os were started on average, nanoseconds.
    pub slip_mean_ns: f64,
    /// The 99th percentile of how late, nanoseconds.
    pub slip_p99_ns: u64,
    /// The latest start, nanoseconds.
    pub slip_max_ns: u64,
    /// I/Os that were due within the measured time and never started: the target could not keep up.
    pub unstarted: u64,
}

/// One slow I/O.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Outlier {
    /// When it started, nanoseconds after measuring began.
    pub at_ns: u64,
    /// How long it took, nanoseconds.
    pub latency_ns: u64,
    /// What it did: `read`, `write`, `trim` or `sync`.
    pub operation: Operation,
    /// Where, bytes from the start of the target.
    pub offset_bytes: u64,
    /// How much, bytes.
    pub length_bytes: u64,
    /// I/Os its worker had in flight when it started, itself included.
    pub depth: u32,
    /// The CPU on which its completion was seen.
    pub cpu: u32,
    /// The worker, from 0.
    pub worker: u32,
}

/// One target of several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TargetOutcome {
    /// The target as the user named it.
    pub target: String,
    /// The reads, when there were any.
    pub read: Option<Direction>,
    /// The writes, when there were any.
    pub write: Option<Direction>,
    /// The trims; left out when there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trim: Option<Direction>,
    /// I/Os that failed or moved too little.
    pub failures: u64,
}

/// What checking the content found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verified {
    /// Blocks looked at.
    pub blocks: u64,
    /// Blocks that were not as they were written.
    pub failures: u64,
    /// The failures by kind.
    pub defects: Vec<DefectCount>,
    /// The first of them.
    pub first: Vec<VerifyFailure>,
}

/// Failures of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DefectCount {
    /// `corrupt`, `stale`, `misplaced`, `torn` or `unstamped`.
    pub defect: String,
    /// How many blocks.
    pub count: u64,
}

/// One block that was not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerifyFailure {
    /// Where, bytes from the start of the target.
    pub offset_bytes: u64,
    /// What is wrong with it.
    pub defect: String,
    /// What was found there, for people.
    pub detail: String,
}
