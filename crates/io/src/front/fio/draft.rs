//! A section under way: what its options have said so far, and the section that comes of it.
//!
//! Most options depend on others that may stand anywhere in the section, so values are only read here and put
//! together at the end; `set` has a method for each option.

mod set;

use super::lines::Line;
use super::values::ByDirection;
use crate::engine::EngineKind;
use crate::engine::sim::SimSpec;
use crate::front::{Extent, FrontError, Logs, Section};
use crate::job::{Access, Distribution, JobSpec, LatencyTarget, NO_TIME_LIMIT, Operation};
use crate::pace::{Arrivals, Think};
use crate::steady::{Figure, Limit, SteadyState, Test};
use crate::verify::Verify;
use std::time::Duration;

type Outcome = Result<(), String>;

/// The law of arrivals, without its rate.
#[derive(Clone, Copy)]
enum Process {
    Linear,
    Poisson,
    Bursts(u32),
}

/// What a section's options have said so far.
pub(super) struct Draft {
    name: String,
    pub(super) spec: JobSpec,
    rw: Rw,
    read_percent: u8,
    block: ByDirection<u64>,
    pub(super) random_map: bool,
    size: Option<Extent>,
    offset: Extent,
    runtime: Option<Duration>,
    pub(super) time_based: bool,
    loops: u32,
    think_time: Duration,
    think_every: u32,
    rate: ByDirection<u64>,
    rate_iops: ByDirection<f64>,
    /// What a worker has of a job's rate: less than all where one job goes over several files.
    share: f64,
    random_percent: ByDirection<u8>,
    process: Process,
    verified: bool,
    pub(super) do_verify: bool,
    /// The checksum asked for, where it is not the one there is.
    other_checksum: Option<String>,
    engine: Engine,
    pub(super) buffered: bool,
    pub(super) stonewall: bool,
    pub(super) new_group: bool,
    pub(super) group_reporting: bool,
    pub(super) fresh_seed: bool,
    pub(super) idle: Vec<(String, &'static str)>,
    targets: Vec<String>,
    directory: Option<String>,
    cpus: Vec<usize>,
    percentiles: Vec<f64>,
    pub(super) logs: Logs,
    latency_limit: Option<Duration>,
    latency_window: Duration,
    latency_percentile: f64,
    pub(super) latency_run: bool,
    steady: Option<(Figure, Test, Limit)>,
    steady_duration: Duration,
    steady_ramp: Duration,
    decimal: bool,
}

/// The workload without its mix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rw {
    Read,
    Write,
    Trim,
    Mixed,
}

/// fio's engines as they are done here.
#[derive(Clone, Copy)]
struct Engine {
    /// As the job file has it.
    asked: &'static str,
    kind: fn() -> EngineKind,
    /// It drives the device without the kernel: the best one here stands for it.
    best: bool,
}

const PSYNC: fn() -> EngineKind = || EngineKind::Psync;
const URING: fn() -> EngineKind = || EngineKind::IoUring;
const ENGINES: &[Engine] = &[
    Engine { asked: "psync", kind: PSYNC, best: false },
    Engine { asked: "sync", kind: PSYNC, best: false },
    Engine { asked: "vsync", kind: PSYNC, best: false },
    Engine { asked: "pvsync", kind: PSYNC, best: false },
    Engine { asked: "pvsync2", kind: || EngineKind::Pvsync2, best: false },
    Engine { asked: "libaio", kind: || EngineKind::Libaio, best: false },
    Engine { asked: "io_uring", kind: URING, best: false },
    Engine { asked: "io_uring_cmd", kind: || EngineKind::IoUringCmd, best: false },
    Engine { asked: "mmap", kind: || EngineKind::Mmap, best: false },
    Engine { asked: "nop", kind: || EngineKind::Nop, best: false },
    Engine { asked: "null", kind: || EngineKind::Nop, best: false },
    Engine { asked: "spdk", kind: URING, best: true },
    Engine { asked: "xnvme", kind: URING, best: true },
    Engine { asked: "sim", kind: || EngineKind::Sim(SimSpec::default()), best: false },
];

impl Draft {
    /// The section's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// With fio's defaults.
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            spec: JobSpec { worker_offset: Some(0), ..JobSpec::default() },
            rw: Rw::Read,
            read_percent: 50,
            block: (None, None, None),
            random_map: true,
            size: None,
            offset: Extent::Bytes(0),
            runtime: None,
            time_based: false,
            loops: 1,
            think_time: Duration::ZERO,
            think_every: 1,
            rate: (None, None, None),
            rate_iops: (None, None, None),
            share: 1.0,
            random_percent: (None, None, None),
            process: Process::Linear,
            verified: false,
            do_verify: true,
            other_checksum: None,
            engine: ENGINES[0],
            buffered: true,
            stonewall: false,
            new_group: false,
            group_reporting: false,
            fresh_seed: false,
            idle: Vec::new(),
            targets: Vec::new(),
            directory: None,
            cpus: Vec::new(),
            percentiles: Vec::new(),
            logs: Logs::default(),
            latency_limit: None,
            latency_window: Duration::from_secs(1),
            latency_percentile: 100.0,
            latency_run: false,
            steady: None,
            steady_duration: Duration::ZERO,
            steady_ramp: Duration::ZERO,
            decimal: false,
        }
    }

    /// The section, once all its options were read; `header` is where it begins.
    pub(super) fn finish(mut self, header: &Line, notes: &mut Vec<String>) -> Result<Section, FrontError> {
        let (place, name) = (&header.place, self.name.clone());
        let mut note = |text: String| notes.push(format!("{place}: [{name}]: {text}"));
        self.spec.operation = match self.rw {
            Rw::Read => Operation::Read,
            Rw::Write => Operation::Write,
            Rw::Trim => Operation::Trim,
            Rw::Mixed => match self.read_percent {
                0 => Operation::Write,
                100 => Operation::Read,
                read_percent => Operation::Mixed { read_percent },
            },
        };
        self.settle_engine(&mut note);
        self.settle_blocks().map_err(|reason| header.fail(reason))?;
        self.settle_random().map_err(|reason| header.fail(reason))?;
        self.settle_order(&mut note);
        self.settle_end(&mut note);
        self.settle_files(&mut note).map_err(|reason| header.fail(reason))?;
        self.settle_pace(&mut note).map_err(|reason| header.fail(reason))?;
        self.settle_verify(&mut note);
        self.settle_goals(&mut note);
        self.check_offset().map_err(|reason| header.fail(reason))?;
        Ok(Section {
            phase: 0,
            group: 0,
            group_reporting: self.group_reporting,
            targets: self.targets,
            directory: self.directory,
            buffered: self.buffered,
            offset: self.offset,
            size: self.size,
            best_engine: self.engine.best,
            cpus: self.cpus,
            percentiles: self.percentiles,
            logs: self.logs,
            fresh_seed: self.fresh_seed,
            options: Vec::new(),
            idle: self.idle,
            name: self.name,
            spec: self.spec,
        })
    }

    fn settle_engine(&mut self, note: &mut impl FnMut(String)) {
        self.spec.engine = (self.engine.kind)();
        let done = self.spec.engine.name();
        if self.engine.best {
            note(format!(
                "ioengine={} drives the device past the kernel, which is not done here: the best engine there is \
                 stands for it ({done}, polled where the device has poll queues)",
                self.engine.asked
            ));
        } else if self.engine.asked != done {
            note(format!("ioengine={} is done as {done}", self.engine.asked));
        }
        if self.spec.engine.is_synchronous() && self.spec.queue_depth > 1 {
            note(format!(
                "iodepth={}: {done} has one operation in flight; it runs at depth 1",
                self.spec.queue_depth
            ));
            self.spec.queue_depth = 1;
        }
    }

    fn settle_blocks(&mut self) -> Outcome {
        let (read, write, trim) = self.block;
        let (read, write, trim) = (read.unwrap_or(4096), write.unwrap_or(4096), trim.unwrap_or(4096));
        self.spec.block_size = match self.spec.operation {
            Operation::Read => read,
            Operation::Write => write,
            Operation::Trim => trim,
            Operation::Mixed { .. } if read == write => read,
            Operation::Mixed { .. } => {
                return Err(format!(
                    "bs={read},{write}: reads and writes of different sizes in one job are not done here; \
                     wanted one size, or two jobs"
                ));
            }
        };
        if let Some(largest) = self.spec.size_mix.iter().map(|share| share.bytes).max() {
            self.spec.block_size = largest;
        }
        Ok(())
    }

    /// One share of random offsets: that of what the job does.
    fn settle_random(&mut self) -> Outcome {
        let (read, write, trim) = self.random_percent;
        let (read, write, trim) = (read.unwrap_or(100), write.unwrap_or(100), trim.unwrap_or(100));
        let differ = read != write && self.spec.access == Access::Random;
        self.spec.random_percent = match self.spec.operation {
            Operation::Read => read,
            Operation::Write => write,
            Operation::Trim => trim,
            Operation::Mixed { .. } if differ => {
                return Err(format!(
                    "percentage_random={read},{write}: shares of their own for reads and writes in one job are not \
                     done here; wanted one share, or two jobs"
                ));
            }
            Operation::Mixed { .. } => read,
        };
        Ok(())
    }

    fn settle_order(&mut self, note: &mut impl FnMut(String)) {
        let random = self.spec.access == Access::Random;
        let shaped = self.spec.distribution != Distribution::Uniform;
        self.spec.random_map = self.random_map && random && !shaped;
        if self.spec.random_map && self.spec.random_percent < 100 {
            note("percentage_random: blocks may come again before all were visited (norandommap)".to_owned());
            self.spec.random_map = false;
        }
        if self.spec.random_map && !self.spec.size_mix.is_empty() {
            note(
                "several block sizes: blocks may come again before all were visited (norandommap)".to_owned(),
            );
            self.spec.random_map = false;
        }
        if !random && shaped {
            note("random_distribution says nothing of sequential offsets".to_owned());
            self.spec.distribution = Distribution::Uniform;
        }
    }

    /// fio has one job go over all its files; here each file has a worker of its own, which does its part.
    fn settle_files(&mut self, note: &mut impl FnMut(String)) -> Outcome {
        let files = u32::try_from(self.targets.len()).unwrap_or(u32::MAX);
        self.group_reporting |= files > 1;
        let jobs = self.spec.workers;
        if jobs >= files {
            return Ok(());
        }
        let part = |option: &str, whole: u64, unit: u64| {
            let all = u128::from(whole) * u128::from(jobs);
            if all.is_multiple_of(u128::from(files) * u128::from(unit)) {
                Ok((all / u128::from(files)) as u64)
            } else {
                Err(format!(
                    "{option}={whole}: {files} files cannot share it evenly; wanted one that they can"
                ))
            }
        };
        let JobSpec { number_ios, io_size, .. } = &mut self.spec;
        *number_ios = number_ios.map(|ios| part("number_ios", ios, 1)).transpose()?;
        *io_size = io_size.map(|bytes| part("io_size", bytes, 512)).transpose()?;
        note(format!(
            "{files} files: one worker for each, each with the job's iodepth and its part of the job's rate and I/Os"
        ));
        self.share = f64::from(jobs) / f64::from(files);
        self.spec.workers = files;
        Ok(())
    }

    fn settle_end(&mut self, note: &mut impl FnMut(String)) {
        if self.time_based && self.runtime.is_none() {
            note("time_based without a runtime: it ends when its size is done".to_owned());
            self.time_based = false;
        }
        self.spec.runtime = self.runtime.unwrap_or(NO_TIME_LIMIT);
        if self.time_based {
            // As in fio, time overrides every other end.
            (self.spec.io_size, self.spec.passes) = (None, None);
        } else if self.spec.io_size.is_none() {
            self.spec.passes = Some(self.loops);
        }
    }

    fn settle_pace(&mut self, note: &mut impl FnMut(String)) -> Outcome {
        let mean = self.spec.mean_block();
        let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / mean);
        let (read, write, trim) = match (self.rate_iops, self.rate) {
            ((None, None, None), (None, None, None)) => {
                if !self.think_time.is_zero() {
                    self.spec.think = Some(Think { time: self.think_time, every: self.think_every });
                }
                return Ok(());
            }
            ((None, None, None), (read, write, trim)) => (bytes(read), bytes(write), bytes(trim)),
            (rates, _) => rates,
        };
        if !self.think_time.is_zero() {
            note("thinktime: the rate decides when I/Os are due; there are no pauses beside it".to_owned());
        }
        let missing = || "a rate for the other direction only; wanted one for what the job does".to_owned();
        let per_s = match self.spec.operation {
            Operation::Read => read.ok_or_else(missing)?,
            Operation::Write => write.ok_or_else(missing)?,
            Operation::Trim => trim.ok_or_else(missing)?,
            Operation::Mixed { read_percent } => {
                let (read, write) = read.zip(write).ok_or_else(missing)?;
                let share = read / (read + write) * 100.0;
                if (share - f64::from(read_percent)).abs() > 1.0 {
                    return Err(format!(
                        "rates of {read} reads and {write} writes a second are {share:.0} % reads, and rwmixread \
                         is {read_percent}; wanted rates in the ratio of the mix, or two jobs"
                    ));
                }
                read + write
            }
        };
        let per_s = per_s * self.share;
        self.spec.arrivals = Some(match self.process {
            Process::Linear => Arrivals::Constant { per_s },
            Process::Poisson => Arrivals::Poisson { per_s },
            Process::Bursts(size) => Arrivals::Bursts { per_s, size },
        });
        Ok(())
    }

    /// What the run looks for besides figures.
    fn settle_goals(&mut self, note: &mut impl FnMut(String)) {
        self.spec.percentiles =
            self.percentiles.iter().copied().filter(|&percentile| percentile > 0.0).collect();
        self.spec.latency_target = self.latency_limit.map(|limit| LatencyTarget {
            limit,
            window: self.latency_window,
            percentile: self.latency_percentile,
            keep_running: self.latency_run,
        });
        if self.steady.is_some() && self.steady_duration.is_zero() {
            note("steadystate without steadystate_duration: as in fio, nothing looks for it".to_owned());
            self.steady = None;
        }
        self.spec.steady = self.steady.map(|(figure, test, limit)| SteadyState {
            figure,
            test,
            limit,
            duration: self.steady_duration,
            ramp: self.steady_ramp,
            interval: Duration::from_secs(1),
        });
    }

    fn settle_verify(&mut self, note: &mut impl FnMut(String)) {
        if !self.verified {
            return;
        }
        if let Some(other) = &self.other_checksum {
            note(format!("verify={other}: blocks are checked by a CRC-32C in every 512 bytes instead"));
        }
        self.spec.verify = Some(match self.spec.operation {
            Operation::Read => Verify::ReadOnly,
            Operation::Write if !self.do_verify => Verify::WriteOnly,
            _ => Verify::WriteThenRead,
        });
        // Workers without a filename have a file each.
        let shared = self.spec.workers > 1 && !self.targets.is_empty();
        if shared && self.spec.worker_offset == Some(0) {
            note(
                "verify: the workers have a share of the target each, so that none overwrites another's, and one \
                 result"
                    .to_owned(),
            );
            self.spec.worker_offset = None;
            // Told apart, each would be a job of its own, which has all of the target.
            self.group_reporting = true;
        }
    }

    /// A share of the target and an increment in bytes add up only where workers stay together.
    fn check_offset(&self) -> Outcome {
        let apart = self.spec.workers > 1 && (!self.group_reporting || self.targets.is_empty());
        match (self.offset, self.spec.worker_offset) {
            (Extent::Percent(percent), Some(step)) if apart && step > 0 => Err(format!(
                "offset={percent}% and offset_increment={step}: a share and a size add up only with group_reporting \
                 and a filename here; wanted that, or an offset in bytes"
            )),
            _ => Ok(()),
        }
    }
}
