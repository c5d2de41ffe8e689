//! The wire types of a paging run: what a program felt when its memory was larger than DRAM.

use super::Latency;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `overdrive page` measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Paging {
    /// The set that was accessed, bytes.
    pub set_bytes: u64,
    /// The DRAM that backings with a budget could use, bytes; `null` when none had one.
    pub dram_bytes: Option<u64>,
    /// What two clock readings cost: taken off every latency, nanoseconds.
    pub timing_ns: u64,
    /// A bare access to a small set in DRAM, nanoseconds.
    pub bare_ns: f64,
    /// The same access when it is measured, nanoseconds.
    pub measured_ns: f64,
    /// The cells in the order they ran.
    pub cells: Vec<PagingCell>,
}

/// One backing, pattern, read ratio and number of threads, measured once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PagingCell {
    /// What was behind the set: `dram`, `swap`, ...
    pub backing: String,
    /// Threads that accessed it.
    pub threads: u32,
    /// Which page came next, such as `uniform` or `zipf:0.99`.
    pub pattern: String,
    /// The share of reads, per cent.
    pub read_ratio_percent: u8,
    /// Which measurement of this cell, from 0.
    pub repeat: u32,
    /// Accesses a second.
    pub pages_per_s: f64,
    /// Accesses a second that took at least `fault_threshold_ns`.
    pub faults_per_s: f64,
    /// The kernel's count of major faults of the process, a second.
    pub major_faults_per_s: Option<f64>,
    /// The valley between hits and faults, nanoseconds; `null`: hits only.
    pub fault_threshold_ns: Option<u64>,
    /// Every access; `null` when there was none.
    pub latency: Option<Latency>,
    /// The reads.
    pub read: Option<Latency>,
    /// The writes.
    pub write: Option<Latency>,
    /// Accesses that took over a millisecond.
    pub stalls: u64,
    /// Their time, summed over threads, nanoseconds.
    pub stalled_ns: u64,
    /// How long was measured, seconds.
    pub elapsed_s: f64,
    /// How long it ran unmeasured before, seconds.
    pub warmup_s: f64,
    /// Whether the fault rate was steady then; `null` for a cold start.
    pub steady: Option<bool>,
    /// What the kernel counted meanwhile.
    pub kernel: Option<PagingCounts>,
    /// Each memory node's part, where sets were bound to nodes; left out otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<PagingNode>>,
}

/// The kernel's counters over one cell: of the whole machine, but for the faults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PagingCounts {
    /// Faults of the process that waited for I/O.
    pub major_faults: u64,
    /// Faults of the process that did not.
    pub minor_faults: u64,
    /// Pages read from swap.
    pub swap_ins: Option<u64>,
    /// Pages written to swap.
    pub swap_outs: Option<u64>,
    /// Anonymous pages that came back soon after their eviction.
    pub refaults: Option<u64>,
    /// Microseconds in which some task waited for memory.
    pub stalled_some_us: Option<u64>,
    /// Microseconds in which all running tasks did.
    pub stalled_full_us: Option<u64>,
}

/// One memory node's part of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PagingNode {
    /// The node.
    pub node: u32,
    /// Threads on its CPUs.
    pub threads: u32,
    /// Accesses a second to its set.
    pub pages_per_s: f64,
}
