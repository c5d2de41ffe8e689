//! Front ends: a command line or job file in the words of another tool, understood as a plan of jobs.
//!
//! Nothing is opened here and nothing printed: targets are names, and sizes may be shares of a target that
//! nobody has seen yet. [`Section::spec_for`] makes a job of it once the target's size is known.

pub mod diskspd;
pub mod fio;
pub mod spdk_perf;

use crate::job::JobSpec;
use std::time::Duration;
use thiserror::Error;

/// What a front end could not read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place}: {reason}")]
pub struct FrontError {
    /// A file and line, such as `job.fio:12`, or a flag.
    pub place: String,
    /// What was read and what is allowed.
    pub reason: String,
}

/// Jobs in the order in which they run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// The jobs.
    pub sections: Vec<Section>,
    /// Options given for all jobs, as they were read.
    pub globals: Vec<(String, String)>,
    /// What was understood otherwise than it was written.
    pub notes: Vec<String>,
}

/// Logs of a job in fio's file format; who runs it writes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Logs {
    /// The beginning of the names of the bandwidth logs.
    pub bandwidth: Option<String>,
    /// Of the logs of I/Os a second.
    pub iops: Option<String>,
    /// Of the latency logs.
    pub latency: Option<String>,
    /// Of the histogram logs, and the length of their windows.
    pub histogram: Option<String>,
    /// The length of a window of the histogram logs; a second if none is given.
    pub histogram_window: Option<Duration>,
    /// A line for each window of this length instead of each I/O.
    pub window: Option<Duration>,
    /// The largest latency of a window instead of the mean.
    pub largest: bool,
    /// Lines say where each I/O went.
    pub offsets: bool,
    /// All workers share a file.
    pub shared: bool,
}

/// A number of bytes, or a share of a target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Extent {
    /// Bytes.
    Bytes(u64),
    /// Per cent of the target, 0 to 100.
    Percent(f64),
}

/// One job of a plan and what it runs on.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Sections of one phase run at the same time; a phase begins when the one before it is over.
    pub phase: u32,
    /// Which group its results belong to.
    pub group: u32,
    /// Whether the group's results are shown as one.
    pub group_reporting: bool,
    /// Targets by name; none means a scratch file.
    pub targets: Vec<String>,
    /// Where a scratch file is made.
    pub directory: Option<String>,
    /// Through the page cache.
    pub buffered: bool,
    /// The job, except for what depends on the target.
    pub spec: JobSpec,
    /// Where on the target it works.
    pub offset: Extent,
    /// How much of the target it uses; all from the offset on if none.
    pub size: Option<Extent>,
    /// Whichever engine is the best one for the target: the one asked for drives it without the kernel.
    pub best_engine: bool,
    /// CPUs of the workers; empty for those near the target.
    pub cpus: Vec<usize>,
    /// Percentiles to be shown; empty for the usual ones.
    pub percentiles: Vec<f64>,
    /// Logs to be written.
    pub logs: Logs,
    /// Other random numbers in every run.
    pub fresh_seed: bool,
    /// Options of its own, as they were read.
    pub options: Vec<(String, String)>,
    /// Options that have no effect here, and why.
    pub idle: Vec<(String, &'static str)>,
}

impl Section {
    /// A section of this name that does what `spec` says, alone and first.
    #[must_use]
    pub fn new(name: &str, spec: JobSpec) -> Self {
        Self {
            name: name.to_owned(),
            phase: 0,
            group: 0,
            group_reporting: true,
            targets: Vec::new(),
            directory: None,
            buffered: false,
            offset: Extent::Bytes(spec.offset),
            size: spec.size.map(Extent::Bytes),
            spec,
            best_engine: false,
            cpus: Vec::new(),
            percentiles: Vec::new(),
            logs: Logs::default(),
            fresh_seed: false,
            options: Vec::new(),
            idle: Vec::new(),
        }
    }

    /// The job on a target of so many bytes. A share of a target is rounded down to whole blocks.
    #[must_use]
    pub fn spec_for(&self, target_size: u64) -> JobSpec {
        let align = self.spec.alignment().max(1);
        let resolve = |extent: Extent| match extent {
            Extent::Bytes(bytes) => bytes,
            Extent::Percent(percent) => ((target_size as f64 * percent / 100.0) as u64) / align * align,
        };
        let whole = Extent::Percent(100.0);
        let offset = resolve(self.offset);
        // A hundred per cent means all there is, also when it does not begin at the start.
        let size = self.size.filter(|&size| size != whole).map(resolve);
        JobSpec { offset, size, ..self.spec.clone() }
    }

    /// The workers as sections of their own, each with its results to itself.
    #[must_use]
    pub fn apart(&self) -> Vec<Self> {
        let worker = |number: u32| {
            let mut section = self.clone();
            section.spec.workers = 1;
            let step = self.spec.worker_offset.unwrap_or(0);
            if let Extent::Bytes(offset) = section.offset {
                section.offset = Extent::Bytes(offset.saturating_add(step.saturating_mul(u64::from(number))));
            }
            if !self.cpus.is_empty() {
                section.cpus = vec![self.cpus[number as usize % self.cpus.len()]];
            }
            section
        };
        (0..self.spec.workers).map(worker).collect()
    }
}

/// More workers than one plan may have.
const WORKERS_MAX: u64 = 4096;

/// A whole number within a range.
fn number<T>(text: &str, least: T, most: T) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display + Copy,
{
    text.trim()
        .parse::<T>()
        .ok()
        .filter(|number| *number >= least && *number <= most)
        .ok_or_else(|| format!("'{text}' is not a whole number from {least} to {most}"))
}
