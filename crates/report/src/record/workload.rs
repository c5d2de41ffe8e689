//! The wire types of one workload: the job, its outcome, its latencies and its verdict.

use super::detail::{DepthFound, JobDetail, Outlier, Schedule, Steady, TargetOutcome, Verified};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One workload: what was asked, what came out, what limited it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Workload {
    /// A stable slug, such as `randread-4k-io_uring-1x1`.
    pub id: String,
    /// The name shown to people.
    pub title: String,
    /// Which part of the evaluation it belongs to.
    pub group: Group,
    /// What was asked.
    pub job: Job,
    /// Engine features that were granted.
    pub granted: Vec<String>,
    /// What came out.
    pub outcome: Outcome,
    /// What limited it; `null` until judged.
    pub verdict: Option<Verdict>,
    /// What a reader of this workload must know.
    pub notes: Vec<String>,
}

/// The parts of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Queue depth 1.
    Qd1,
    /// The ramp of workers and depth.
    Ramp,
    /// Random writes.
    RandomWrite,
    /// Reads and writes together.
    Mixed,
    /// Sequential throughput.
    Sequential,
    /// A workload of the user's own (`overdrive run`).
    Single,
    /// One of several jobs that the user gave in one file or line.
    Set,
}

/// What a workload was asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    /// What each I/O does.
    pub operation: Operation,
    /// In which order offsets are visited.
    pub access: Access,
    /// The size of one I/O, bytes.
    pub block_size_bytes: u64,
    /// The share of reads, per cent (100 for reads, 0 for writes and trims).
    pub read_percent: u8,
    /// The path an I/O takes: `io_uring`, `pvsync2`, `sim`, ...
    pub engine: String,
    /// Pinned threads that ran.
    pub workers: u32,
    /// I/Os each worker keeps in flight.
    pub queue_depth_per_worker: u32,
    /// I/Os in flight over all workers.
    pub queue_depth_total: u32,
    /// The workers asked for, when fewer ran because the CPUs ended.
    pub asked_workers: Option<u32>,
    /// The depth per worker asked for, when it grew because fewer workers ran.
    pub asked_depth: Option<u32>,
    /// How long it was to be measured, seconds.
    pub runtime_s: f64,
    /// How long it ran unmeasured before, seconds.
    pub warmup_s: f64,
    /// Whether completions were polled for instead of waited for.
    pub polled: bool,
    /// What else was asked; left out when nothing was, and in older records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<JobDetail>,
}

/// What an I/O does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Some read, some write.
    Mixed,
    /// Give data up.
    Trim,
    /// Make what was written durable; of single I/Os only.
    Sync,
}

/// The order of offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Uniformly random.
    Random,
    /// One after the other.
    Sequential,
}

/// What a workload measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// How long was measured, seconds.
    pub elapsed_s: f64,
    /// I/Os completed without error.
    pub ios: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// I/Os a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// I/Os that failed, by operation and errno.
    pub errors: Vec<ErrorCount>,
    /// I/Os that moved fewer bytes than asked.
    pub short_ios: u64,
    /// I/Os in flight on average (by Little's law from latency and rate).
    pub in_flight_mean: f64,
    /// Bytes of every I/O that completed, also before and after the measured time: what the disk's own
    /// counters must agree with.
    pub moved_bytes: u64,
    /// What it cost in CPU time; `null` where time is virtual.
    pub cpu: Option<Cpu>,
    /// The reads, when there were any.
    pub read: Option<Direction>,
    /// The writes, when there were any.
    pub write: Option<Direction>,
    /// The trims; left out when there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trim: Option<Direction>,
    /// The fsyncs and fdatasyncs; left out when there were none. They count in no sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<Direction>,
    /// The run in equal time slices.
    pub series: Vec<Slice>,
    /// What the disk itself counted meanwhile.
    pub device_ios: Option<DeviceIos>,
    /// How an open loop kept its schedule; left out in a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// The slowest I/Os of every worker, slowest first; left out when none were kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outliers: Option<Vec<Outlier>>,
    /// Each target's part; left out when there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub targets: Option<Vec<TargetOutcome>>,
    /// What looking for a depth under a latency target found; left out when nobody looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth_found: Option<DepthFound>,
    /// How the search for a steady state went; left out when nobody looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steady: Option<Steady>,
    /// What checking the content found; left out when it was not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
}

/// I/Os that failed alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorCount {
    /// What was tried.
    pub operation: Operation,
    /// The error number.
    pub errno: i32,
    /// Its name, such as `EIO`.
    pub name: String,
    /// How often.
    pub count: u64,
    /// The byte offset of the first.
    pub first_offset: Option<u64>,
}

/// What a workload cost in CPU time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    /// Time in user mode over all workers, seconds.
    pub user_s: f64,
    /// Time in the kernel over all workers, seconds.
    pub system_s: f64,
    /// User time per I/O, nanoseconds.
    pub user_ns_per_io: f64,
    /// Kernel time per I/O, nanoseconds.
    pub system_ns_per_io: f64,
    /// How busy the workers kept their CPUs, per cent of those CPUs.
    pub utilisation_percent: f64,
    /// How busy those CPUs were with anything, interrupts included, per cent.
    pub host_busy_percent: Option<f64>,
    /// How busy those CPUs were with interrupts alone, per cent.
    pub interrupts_percent: Option<f64>,
    /// Time a hypervisor took from those CPUs, per cent.
    pub steal_percent: Option<f64>,
    /// How often workers left their CPU to wait.
    pub voluntary_switches: u64,
    /// How often the scheduler took the CPU from a worker.
    pub involuntary_switches: u64,
}

/// The reads or the writes of a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Direction {
    /// I/Os completed without error.
    pub ios: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// I/Os a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// How long they took, from just before submission to the completion seen.
    pub latency: Latency,
    /// In an open loop: how long they took from when they were due; left out in a closed loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Latency>,
}

/// The latency of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// The mean, nanoseconds.
    pub mean_ns: f64,
    /// The shortest, nanoseconds.
    pub min_ns: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
    /// The standard deviation, nanoseconds.
    pub stddev_ns: Option<f64>,
    /// Percentiles, ascending.
    pub percentiles: Vec<Percentile>,
    /// Every value: an HdrHistogram V2 (compressed) in base64, nanoseconds.
    pub histogram: String,
}

/// One percentile with what is known about its precision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Percentile {
    /// Which, such as `99.9`.
    pub percentile: f64,
    /// Its value, nanoseconds; `null` when there were too few samples to name one.
    pub value_ns: Option<u64>,
    /// The lower end of its 95 % interval, nanoseconds; `null` with a value means open.
    pub low_ns: Option<u64>,
    /// The upper end of its 95 % interval, nanoseconds; `null` with a value means open.
    pub high_ns: Option<u64>,
    /// With too few samples: it is at least this, nanoseconds.
    pub at_least_ns: Option<u64>,
}

/// One slice of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Slice {
    /// When the slice ends, seconds after measuring began.
    pub at_s: f64,
    /// I/Os completed in it.
    pub ios: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// The longest latency among them, nanoseconds.
    pub max_ns: u64,
}

/// What the disk counted over a workload, whoever asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceIos {
    /// Reads completed.
    pub reads: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

/// What limited a workload, and how that is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// What limited it.
    pub limit: Limit,
    /// How sure that is.
    pub confidence: Confidence,
    /// The evidence, one sentence each.
    pub because: Vec<String>,
    /// What makes the result itself doubtful.
    pub warnings: Vec<String>,
}

/// What can limit a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The drive, or what stands for it below the kernel.
    Device,
    /// The CPUs of the workers.
    Cpu,
    /// The PCIe (or other) link to the drive.
    Link,
    /// Overdrive itself: the ceiling of its ring.
    Tool,
    /// The depth asked for: more I/Os in flight would give more.
    QueueDepth,
    /// Others on the host, or its hypervisor.
    HostNoise,
    /// The pace asked for: an open loop's arrivals, or pauses between I/Os.
    Pace,
    /// The evidence does not say.
    Unknown,
}

/// How sure a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// The evidence allows nothing else.
    Sure,
    /// The evidence speaks for it.
    Likely,
    /// Little more than a guess.
    Unsure,
}
