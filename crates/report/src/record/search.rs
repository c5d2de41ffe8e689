//! The wire types of a search over loads: an objective's highest rate, a curve of latency against load, a
//! surface over reads and writes.

use super::{Direction, Latency};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Many loads on one target, and what they say together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Search {
    /// What the users are promised; left out when nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<Objective>,
    /// The law of arrivals: `constant`, `poisson` or `bursts`.
    pub arrivals: String,
    /// How long each load was meant to be measured, seconds; longer where that gives too few I/Os.
    pub step_s: f64,
    /// I/Os a second in a closed loop, over all workers: of what the job does, or of reads alone.
    pub ceiling_iops: f64,
    /// The same of writes alone, for a surface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_ceiling_iops: Option<f64>,
    /// Every load that was tried, in the order in which it was.
    pub points: Vec<LoadPoint>,
    /// The highest rate that holds the objective, I/Os a second over all workers; `null` when none does.
    pub found_iops: Option<f64>,
    /// From which rate on more load costs more than it gives, I/Os a second; `null` when no bend was seen.
    pub knee_iops: Option<f64>,
    /// What ended it, or what the edge is made of, in one sentence.
    pub reason: String,
}

/// A share of the I/Os is answered within a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Objective {
    /// The share, per cent.
    pub percentile: f64,
    /// The time from when an I/O was due, nanoseconds.
    pub limit_ns: u64,
}

/// One load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadPoint {
    /// Arrivals a second over all workers.
    pub asked_iops: f64,
    /// How many of them were to write, for a surface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_write_iops: Option<f64>,
    /// I/Os a second that were done.
    pub iops: f64,
    /// How long was measured, seconds.
    pub elapsed_s: f64,
    /// I/Os that were due and never started.
    pub unstarted: u64,
    /// From when I/Os were due, reads and writes together; `null` when none was done.
    pub response: Option<Latency>,
    /// The objective's percentile of it, nanoseconds; left out when there were too few I/Os to name one (what
    /// is known then stands among the percentiles of `response`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_ns: Option<u64>,
    /// The reads, for a surface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Direction>,
    /// The writes, for a surface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Direction>,
    /// Whether the rate was kept.
    pub kept: bool,
    /// Whether the objective held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<bool>,
    /// Why it did not, in a few words; left out when it did or nothing was promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}
