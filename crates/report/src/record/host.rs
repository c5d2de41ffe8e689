//! The wire types of what a run stood on: target, host facts, audit findings, self-test, preconditioning.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// The target as the user wrote it.
    pub spec: String,
    /// What kind of thing it is.
    pub kind: TargetKind,
    /// Its path.
    pub path: String,
    /// The bytes of it that were used.
    pub size_bytes: u64,
    /// Whether the page cache was bypassed (`O_DIRECT`).
    pub direct: bool,
    /// The drive's model as it names itself.
    pub model: Option<String>,
    /// The drive's serial number.
    pub serial: Option<String>,
    /// The drive's firmware revision.
    pub firmware: Option<String>,
    /// The kernel's name of the disk below, such as `nvme0n1`.
    pub disk: Option<String>,
    /// From the target down to the hardware, outermost first.
    pub layers: Vec<Layer>,
}

/// The kinds of target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// A file Overdrive made, wrote in full and removed.
    ScratchFile,
    /// A file of the user's.
    File,
    /// A block device.
    BlockDevice,
    /// The simulated device.
    Sim,
    /// Memory, by a paging run.
    Memory,
}

/// One layer between the target and the hardware.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Layer {
    /// `file`, `file_system`, `partition`, `block_device`, `controller`, `link`, ...
    pub kind: String,
    /// Its name, such as `ext4` or `nvme0n1`.
    pub name: String,
    /// What is known about it.
    pub facts: Vec<Fact>,
}

/// One thing read from the host, or why it could not be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fact {
    /// A stable name, such as `cpu.governor`.
    pub id: String,
    /// The name shown to people.
    pub label: String,
    /// The value, when known.
    pub value: Option<String>,
    /// Whether it is known.
    pub state: FactState,
    /// Why it is absent or unreadable.
    pub why: Option<String>,
    /// Where it was read from.
    pub path: Option<String>,
}

/// Whether a fact is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FactState {
    /// It was read.
    Known,
    /// This host does not have it.
    Absent,
    /// It exists and could not be read.
    Unreadable,
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// What is known about it.
    pub facts: Vec<Fact>,
    /// A SHA-256 of the facts: two records with the same digest ran on the same configuration.
    pub digest: String,
}

/// What one rule of the audit says about this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The rule's stable name.
    pub rule: String,
    /// What it is about: `host`, or a device's name.
    pub scope: String,
    /// One line for people.
    pub title: String,
    /// How it stands.
    pub status: FindingStatus,
    /// What was read, and where.
    pub evidence: Vec<Evidence>,
    /// Why it stands so on this host.
    pub reason: String,
    /// Why the rule matters anywhere.
    pub why: String,
    /// Where that is known from.
    pub source: String,
    /// What to expect of the fix.
    pub effect: String,
    /// How to mend it; `null` when nothing needs mending or nothing can be done.
    pub fix: Option<Fix>,
    /// The class of the fix: `A` safe, `B` with side effects, `C` destructive, or touching security or
    /// hardware.
    pub risk: String,
    /// How to take the fix back.
    pub undo: Option<String>,
    /// Whether the rule's claim was checked in kernel source, on a live system or in a guide.
    pub verified: bool,
}

/// How a finding stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingStatus {
    /// It costs performance or makes results wrong.
    Problem,
    /// It may be better otherwise.
    Advice,
    /// The facts it needs could not be read.
    Unknown,
    /// As it should be.
    Ok,
    /// The rule does not concern this host.
    NotApplicable,
}

/// One reading behind a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Where it was read.
    pub path: String,
    /// What was read there.
    pub read: String,
}

/// How to mend a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fix {
    /// The command that mends it until the next boot; empty when there is none.
    pub now: String,
    /// How to mend it for good.
    pub persistent: String,
}

impl Fix {
    /// What to do first: the command, else the way for good. None when neither is known.
    #[must_use]
    pub fn first(&self) -> Option<&str> {
        [&self.now, &self.persistent].into_iter().map(String::as_str).find(|text| !text.is_empty())
    }
}

/// What the tool found about itself before measuring.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SelfTest {
    /// The clock.
    pub clock: Clock,
    /// What a spinning thread saw on each worker CPU.
    pub noise: Vec<Noise>,
    /// The io_uring self-test.
    pub ring: Ring,
}

/// The clock that latencies were taken with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Clock {
    /// `tsc` or `clock_gettime`.
    pub source: String,
    /// What one reading costs, nanoseconds.
    pub read_cost_ns: f64,
    /// Whether the processor promises a constant rate in every state.
    pub invariant_tsc: bool,
    /// The counter's rate, hertz.
    pub frequency_hz: Option<u64>,
}

/// The noise floor of one CPU: gaps seen by a thread that does nothing but read the clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Noise {
    /// The CPU's number.
    pub cpu: u32,
    /// How long it was watched, seconds.
    pub observed_s: f64,
    /// How many gaps were seen.
    pub gaps: u64,
    /// The longest gap, nanoseconds.
    pub longest_gap_ns: u64,
    /// The gap that one moment in 10,000 falls into, nanoseconds.
    pub p99_99_gap_ns: u64,
    /// The share of time lost in gaps, per cent.
    pub share_lost_percent: f64,
}

/// What io_uring can do here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ring {
    /// Whether a ring could be made.
    pub available: bool,
    /// Why not.
    pub why_not: Option<String>,
    /// Requests that do nothing, a second, on one CPU: the ceiling of any result through one ring.
    pub nops_per_s: Option<f64>,
    /// Ring features the kernel granted.
    pub granted: Vec<String>,
    /// Ring features the kernel refused, with the reason.
    pub refused: Vec<String>,
}

/// What was done to the target before measuring.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Preconditioning {
    /// What was done.
    pub kind: PreconditioningKind,
    /// Bytes written.
    pub bytes_written: Option<u64>,
    /// How long it took, seconds.
    pub elapsed_s: Option<f64>,
    /// The share of sampled blocks that were never written, per cent.
    pub never_written_percent: Option<f64>,
    /// What this means for the results; may be empty.
    pub note: String,
}

/// The ways to prepare a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PreconditioningKind {
    /// Written in full by Overdrive.
    Written,
    /// Found written in full.
    AlreadyWritten,
    /// Not written; a sample of blocks was looked at.
    Sampled,
    /// Nothing was done.
    None,
}
