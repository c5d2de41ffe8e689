//! The stored result of `overdrive density`: wire types of `overdrive.density/1`, and how they are shown.
//!
//! As with the record of an evaluation, these types are the format and are kept apart from those that
//! measure. Units come last in a name; what is not known is `null`. docs/formats.md describes each field.

mod charts;
pub mod show;
#[cfg(test)]
mod tests;

use crate::record::{Host, RecordError, Status, Tool};
use serde::{Deserialize, Serialize};

/// The schema this crate writes.
pub const SCHEMA: &str = "overdrive.density/1";
const FAMILY: &str = "overdrive.density/";
const WANTED: &str = "a density.json (overdrive.density/1)";

/// One run: how many instances each backing holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DensityRecord {
    /// Always `overdrive.density/1`.
    pub schema: String,
    /// The program that wrote the record.
    pub tool: Tool,
    /// The command line, one argument each.
    pub command: Vec<String>,
    /// When the run started, RFC 3339.
    pub started_at: String,
    /// How long everything took, seconds.
    pub elapsed_s: f64,
    /// Whether the run came to its end.
    pub status: Status,
    /// What all random numbers follow from.
    pub seed: u64,
    /// The machine.
    pub host: Host,
    /// What an instance is: `process` or `vm`.
    pub kind: String,
    /// The same in words, with versions.
    pub instance: String,
    /// What each instance was asked.
    pub load: Load,
    /// What the latency must be.
    pub objective: Vec<Limit>,
    /// Whose latency: `each` instance's or the `fleet`'s.
    pub judge: String,
    /// DRAM for the whole fleet, bytes; `null` for all the machine has.
    pub dram_bytes: Option<u64>,
    /// Swap behind the backings that use it, bytes.
    pub swap_bytes: Option<u64>,
    /// How many times as much as SSD the same DRAM costs; `null` when nothing was said of prices.
    #[serde(default)]
    pub price_ratio: Option<f64>,
    /// Classes of instances; empty for none.
    pub classes: Vec<Class>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// The backings in the order they were measured.
    pub backings: Vec<Backing>,
}

/// What each instance was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Records in each instance.
    pub records: u64,
    /// Bytes of each value.
    pub value_bytes: u64,
    /// Requests a second for each instance.
    pub rate_per_s: f64,
    /// GETs among them, per cent.
    pub get_percent: u8,
    /// How strongly keys are pulled to the middle.
    pub influence: f64,
    /// Share of the requests that the formula gives the hottest quarter of the keys, per cent.
    pub hot_quarter_percent: f64,
    /// Load before measuring, seconds.
    pub warmup_s: f64,
    /// Each measured iteration, seconds.
    pub runtime_s: f64,
    /// How many there are.
    pub iterations: u32,
    /// Threads that made the load.
    pub threads: u64,
}

/// One limit of the objective.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// `avg`, `max` or a percentile such as `p99`.
    pub figure: String,
    /// What it may be, nanoseconds.
    pub limit_ns: u64,
}

/// A class of instances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Memory over DRAM.
    pub ratio: f64,
}

/// What one backing holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Backing {
    /// `dram`, `swap`...
    pub name: String,
    /// Whether the largest number was searched for, or one number measured.
    pub searched: bool,
    /// The largest number that held the objective; 0 when one did not.
    pub held: u32,
    /// The smallest that did not; `null` when the search ended at its maximum.
    pub failed: Option<u32>,
    /// Why that one did not, in one line; of two trials, what the second said.
    pub edge: Option<String>,
    /// SSD that the instances held need beyond DRAM, bytes; `null` when what one needs is not known.
    #[serde(default)]
    pub ssd_bytes: Option<u64>,
    /// What memory for one of them costs over what it costs on DRAM alone; `null` without a price ratio.
    #[serde(default)]
    pub cost_each: Option<f64>,
    /// Every number that was tried, in that order; one that missed may be there twice.
    pub trials: Vec<Trial>,
}

/// One number of instances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// How many instances.
    pub instances: u32,
    /// Whether the objective held.
    pub held: bool,
    /// What came of it, in one line.
    pub verdict: String,
    /// How long filling took, seconds.
    pub fill_s: f64,
    /// What was measured; `null` when it did not come to that.
    pub measured: Option<Measured>,
}

/// A latency distribution in figures. A figure that is `null` was not measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Figures {
    /// How many values.
    pub samples: u64,
    /// The mean, nanoseconds.
    pub avg_ns: Option<u64>,
    /// Half of the values are at most so large.
    pub p50_ns: Option<u64>,
    /// 95 % are.
    pub p95_ns: Option<u64>,
    /// 99 % are.
    pub p99_ns: Option<u64>,
    /// 99.9 % are.
    pub p99_9_ns: Option<u64>,
    /// The largest.
    pub max_ns: Option<u64>,
}

/// What was measured with one number of instances, the iterations together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Requests a second that were asked for.
    pub asked_per_s: f64,
    /// That were sent.
    pub sent_per_s: f64,
    /// That were answered inside the time measured.
    pub answered_per_s: f64,
    /// Latency of all requests from their intended start.
    pub latency: Figures,
    /// Every value of it: an HdrHistogram V2 (compressed) in base64, nanoseconds.
    pub histogram: String,
    /// GETs alone.
    pub gets: Figures,
    /// SETs alone.
    pub sets: Figures,
    /// From the write to the answer: without the waiting that the load's own lateness is part of.
    pub service: Figures,
    /// How late the load itself was.
    pub late: Figures,
    /// Each iteration's latency.
    pub iterations: Vec<Figures>,
    /// Each instance's latency.
    pub instances: Vec<Instance>,
    /// Each class's latency and the kernel's counters of it.
    pub classes: Vec<ClassMeasured>,
    /// CPU time in use, over all CPUs, per cent.
    pub cpu_percent: f64,
    /// CPU time the hypervisor gave to others, per cent.
    pub stolen_percent: f64,
    /// Bytes a second read from swap by the whole machine, or from their stores by the extended instances.
    pub swap_in_bytes_per_s: f64,
    /// Bytes a second written there.
    pub swap_out_bytes_per_s: f64,
    /// The disk under the swap or the stores.
    pub disk: Option<String>,
    /// How much of the time it was busy, per cent.
    pub disk_busy_percent: Option<f64>,
    /// Memory of one instance in DRAM and on the drive, bytes; the mean over the fleet. `null` without
    /// groups.
    pub footprint_bytes: Option<u64>,
    /// The fleet's group; `null` without groups.
    pub group: Option<Group>,
}

/// One instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// Its class, when there are classes.
    pub class: Option<String>,
    /// Its latency.
    pub latency: Figures,
    /// Requests without an answer at the end; their age counts as latency.
    pub unanswered: u64,
    /// Requests that were answered wrongly.
    pub errors: u64,
}

/// One class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassMeasured {
    /// Its name.
    pub name: String,
    /// Its instances.
    pub instances: u32,
    /// Latency of all its requests.
    pub latency: Figures,
    /// What the kernel counts for it.
    pub group: Group,
}

/// The kernel's counters of a group, after the measurement. What it does not tell is `null`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Group {
    /// The limit, bytes.
    pub limit_bytes: Option<u64>,
    /// Memory charged, bytes.
    pub usage_bytes: Option<u64>,
    /// The most that was, bytes.
    pub usage_max_bytes: Option<u64>,
    /// Memory in swap, bytes.
    pub swap_bytes: Option<u64>,
    /// How often an allocation met the limit.
    pub limit_hits: Option<u64>,
    /// Processes killed for memory.
    pub oom_kills: Option<u64>,
}

impl DensityRecord {
    /// Whether a text says that it is a record of this family, of whatever version.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        schema_of(text).is_some_and(|schema| schema.starts_with(FAMILY))
    }

    /// Reads a record from JSON.
    ///
    /// # Errors
    /// When the text is not JSON, is another record, or was written by a newer schema.
    pub fn from_json(text: &str) -> Result<Self, RecordError> {
        match schema_of(text) {
            Some(schema) if schema == SCHEMA => Ok(serde_json::from_str(text)?),
            Some(schema) if schema.starts_with(FAMILY) => {
                Err(RecordError::Newer { found: schema, known: SCHEMA })
            }
            Some(found) => Err(RecordError::Foreign { found, wanted: WANTED }),
            None => Err(RecordError::Nameless { wanted: WANTED }),
        }
    }

    /// Writes the record as JSON, ending in a newline.
    ///
    /// # Errors
    /// When a value has no JSON form.
    pub fn to_json_pretty(&self) -> Result<String, RecordError> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

fn schema_of(text: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    Some(value.get("schema")?.as_str()?.to_owned())
}

impl Backing {
    /// Whether more instances may hold than the number says: the search ended before it found the edge.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.searched && self.failed.is_none_or(|failed| failed > self.held.saturating_add(1))
    }

    /// The most instances that may hold: below the smallest number that failed. None when none did.
    #[must_use]
    pub fn most(&self) -> Option<u32> {
        self.failed.map(|failed| failed.saturating_sub(1).max(self.held))
    }

    /// The number held, in words that say what is a bound.
    #[must_use]
    pub fn held_text(&self) -> String {
        format!("{}{}", if self.is_bound() { "at least " } else { "" }, self.held)
    }

    /// The trial that stands for this backing: the largest that held, else the smallest that was measured.
    #[must_use]
    pub fn telling(&self) -> Option<&Trial> {
        let measured = || self.trials.iter().rev().filter(|trial| trial.measured.is_some());
        let held = measured().filter(|trial| trial.held).max_by_key(|trial| trial.instances);
        held.or_else(|| measured().min_by_key(|trial| trial.instances))
    }

    /// What was measured with a number of instances. Of one that was tried twice the second trial counts: it
    /// said whether the number holds.
    #[must_use]
    pub fn measured_with(&self, instances: u32) -> Option<&Measured> {
        let mut trials = self.trials.iter().rev().filter(|trial| trial.instances == instances);
        trials.find_map(|trial| trial.measured.as_ref())
    }

    /// How often a number of instances was tried.
    #[must_use]
    pub fn times_tried(&self, instances: u32) -> usize {
        self.trials.iter().filter(|trial| trial.instances == instances).count()
    }

    /// Whether a trial is not the first of its number.
    #[must_use]
    pub fn is_again(&self, at: usize) -> bool {
        self.trials[..at].iter().any(|earlier| earlier.instances == self.trials[at].instances)
    }
}
