//! A job: what to do to a target. Parsed once, valid from then on.
//!
//! Every front end fills a [`JobSpec`], starting from its default, and [`JobSpec::check`] refuses what cannot
//! be run. fio's spelling of values is read in [`words`].

mod check;
mod options;
pub mod words;

use crate::engine::EngineKind;
use crate::pace::{Arrivals, Think};
use crate::steady::SteadyState;
use crate::verify::Verify;
pub use check::JobError;
pub use options::{Advice, Batch, Content, LatencyTarget, PageCache, SyncMode};
use std::time::Duration;

/// What one operation does: the direction in which data goes, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From the target.
    Read,
    /// To the target.
    Write,
    /// Data is given up: a discard on a block device, a hole in a file.
    Trim,
    /// What was written is made durable (fsync).
    Sync,
    /// The same, but of what describes a file only what is needed to find its data (fdatasync).
    DataSync,
}

impl Direction {
    /// How many there are.
    pub(crate) const COUNT: usize = 5;

    /// Whether it works on blocks; a sync concerns the whole target.
    #[inline]
    #[must_use]
    pub fn has_blocks(self) -> bool {
        self < Self::Sync
    }

    /// Its name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
            Self::Sync => "fsync",
            Self::DataSync => "fdatasync",
        }
    }
}

/// The mix of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reads only.
    Read,
    /// Writes only.
    Write,
    /// Trims only.
    Trim,
    /// Reads and writes, drawn at random for each operation.
    Mixed {
        /// Share of reads, 1 to 99.
        read_percent: u8,
    },
}

impl Operation {
    /// Whether any operation changes what is on the target.
    #[must_use]
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// The order of offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Uniformly random, aligned to the block size, repeats allowed.
    Random,
    /// Ascending from the start of the worker's share of the target, over and over.
    Sequential,
}

/// How often each block is wanted, in random order.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// By Zipf's law: the block of rank `k` as often as `1 / k^theta`.
    Zipf {
        /// The exponent, above 0.
        theta: f64,
    },
    /// A share `h` of the blocks gets `1 - h` of the accesses, again within that share, and so on.
    Pareto {
        /// The share, above 0 and below 1.
        h: f64,
    },
    /// Around the middle of the target.
    Normal {
        /// The standard deviation in per cent of the target.
        deviation_percent: f64,
    },
    /// Hot and cold zones, one after the other from the start of the target.
    Zoned(Vec<Zone>),
}

/// A zone: a share of the accesses falls on a share of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone {
    /// Accesses, in per cent.
    pub access_percent: u8,
    /// Target, in per cent.
    pub size_percent: u8,
}

/// One block size of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeShare {
    /// The size in bytes.
    pub bytes: u64,
    /// How often it comes, in per cent of all operations.
    pub percent: u8,
}

/// Where on a target a job works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Its first byte.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// A job as asked for; [`JobSpec::check`] makes a [`Job`] of it.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSpec {
    /// Reads, writes, a mix, or trims.
    pub operation: Operation,
    /// Of a mix, so many operations in a million read: where a whole per cent is too coarse.
    pub read_share_ppm: Option<u32>,
    /// Random or sequential offsets.
    pub access: Access,
    /// Which blocks random offsets prefer.
    pub distribution: Distribution,
    /// Of random offsets, this share in per cent is drawn; the others go on where the operation before ended,
    /// in the same direction.
    pub random_percent: u8,
    /// Random offsets visit every block once before any comes again.
    pub random_map: bool,
    /// Bytes left out after each sequential operation.
    pub stride: u64,
    /// Bytes of each operation.
    pub block_size: u64,
    /// Several block sizes instead, in shares that add up to 100; empty for one.
    pub size_mix: Vec<SizeShare>,
    /// What offsets are multiples of, from the start of the region; by default the smallest block.
    pub block_align: Option<u64>,
    /// Where on the target the job works.
    pub offset: u64,
    /// How much of the target it uses; by default all from the offset on.
    pub size: Option<u64>,
    /// Where workers begin: none deals out sequential and mapped orders in equal shares; otherwise each
    /// worker has a whole region of its own, so much further on than the one before it (0: all the same).
    pub worker_offset: Option<u64>,
    /// Each worker ends after this many bytes.
    pub io_size: Option<u64>,
    /// Without an `io_size`: each worker ends after as many bytes as so many passes over its share have.
    pub passes: Option<u32>,
    /// Each worker ends after this many operations.
    pub number_ios: Option<u64>,
    /// When operations are due; by default as soon as a slot of the queue is free.
    pub arrivals: Option<Arrivals>,
    /// Pauses, when nothing else says when operations are due.
    pub think: Option<Think>,
    /// Percentiles to report besides the usual ones, each above 0 and at most 100.
    pub percentiles: Vec<f64>,
    /// How many of the slowest operations each worker keeps.
    pub outliers: u32,
    /// Whether content is checked.
    pub verify: Option<Verify>,
    /// What writes carry.
    pub content: Content,
    /// An fsync after every so many writes of a worker.
    pub fsync_every: Option<u32>,
    /// An fdatasync after every so many writes of a worker.
    pub fdatasync_every: Option<u32>,
    /// Whether each write is durable when it is done.
    pub sync: SyncMode,
    /// What becomes of the page cache, where the target is not opened past it.
    pub page_cache: PageCache,
    /// The batches of a closed loop.
    pub batch: Batch,
    /// Look for the depth that keeps a latency.
    pub latency_target: Option<LatencyTarget>,
    /// End when the figures are steady.
    pub steady: Option<SteadyState>,
    /// How long nothing happens at all before the run; no time passes for a simulated device.
    pub start_delay: Duration,
    /// The path each operation takes.
    pub engine: EngineKind,
    /// How many threads, each with its own engine.
    pub workers: u32,
    /// Operations each worker keeps in flight.
    pub queue_depth: u32,
    /// How long is measured.
    pub runtime: Duration,
    /// How long the load runs before measuring starts.
    pub warmup: Duration,
    /// How long the load goes on, unmeasured, after the runtime.
    pub cooldown: Duration,
    /// Spin for completions instead of waiting for interrupts.
    pub polled: bool,
    /// Sleep through the first part of each poll, where the kernel knows how; only with `polled`.
    pub hybrid_poll: bool,
    /// Have a thread of the kernel submit (io_uring only).
    pub sq_poll: bool,
    /// Where the random numbers start: the same seed gives the same offsets.
    pub seed: u64,
}

/// A job that can be run.
#[derive(Debug, Clone, PartialEq)]
pub struct Job(JobSpec);

/// The runtime of a job that ends only when all it was asked for is done.
pub const NO_TIME_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

impl JobSpec {
    /// The part of a target of `target_size` bytes that the job uses.
    #[must_use]
    pub fn region(&self, target_size: u64) -> Region {
        let rest = target_size.saturating_sub(self.offset);
        Region { offset: self.offset, bytes: self.size.map_or(rest, |size| size.min(rest)) }
    }

    /// The part that the worker of this number on the target begins in, and the number of workers it is dealt
    /// out to.
    pub(crate) fn region_of(&self, number: u32, of: u32, target_size: u64) -> (Region, u32) {
        let Some(step) = self.worker_offset else { return (self.region(target_size), of) };
        let offset = self.offset.saturating_add(step.saturating_mul(u64::from(number)));
        let rest = target_size.saturating_sub(offset);
        (Region { offset, bytes: self.size.map_or(rest, |size| size.min(rest)) }, 1)
    }

    /// How many of a million operations read, for a mix.
    pub(crate) fn reads_ppm(&self) -> u32 {
        match self.operation {
            Operation::Mixed { read_percent } => {
                self.read_share_ppm.unwrap_or(u32::from(read_percent) * 10_000)
            }
            Operation::Read => 1_000_000,
            Operation::Write | Operation::Trim => 0,
        }
    }

    /// The largest block of the job.
    #[must_use]
    pub fn largest_block(&self) -> u64 {
        self.size_mix.iter().map(|share| share.bytes).max().unwrap_or(self.block_size)
    }

    /// The smallest block of the job.
    #[must_use]
    pub fn smallest_block(&self) -> u64 {
        self.size_mix.iter().map(|share| share.bytes).min().unwrap_or(self.block_size)
    }

    /// The mean size of an operation in bytes.
    #[must_use]
    pub fn mean_block(&self) -> f64 {
        if self.size_mix.is_empty() {
            return self.block_size as f64;
        }
        self.size_mix.iter().map(|share| share.bytes as f64 * f64::from(share.percent) / 100.0).sum()
    }

    /// What offsets are multiples of.
    #[must_use]
    pub fn alignment(&self) -> u64 {
        self.block_align.unwrap_or(self.smallest_block())
    }
}

impl Default for JobSpec {
    /// fio's defaults where it has them: 4 KiB sequential reads at depth 1; for ten seconds.
    fn default() -> Self {
        Self {
            operation: Operation::Read,
            read_share_ppm: None,
            access: Access::Sequential,
            distribution: Distribution::Uniform,
            random_percent: 100,
            random_map: false,
            stride: 0,
            block_size: 4096,
            size_mix: Vec::new(),
            block_align: None,
            offset: 0,
            size: None,
            worker_offset: None,
            io_size: None,
            passes: None,
            number_ios: None,
            arrivals: None,
            think: None,
            percentiles: Vec::new(),
            outliers: 16,
            verify: None,
            content: Content::default(),
            fsync_every: None,
            fdatasync_every: None,
            sync: SyncMode::None,
            page_cache: PageCache::default(),
            batch: Batch::default(),
            latency_target: None,
            steady: None,
            start_delay: Duration::ZERO,
            engine: EngineKind::IoUring,
            workers: 1,
            queue_depth: 1,
            runtime: Duration::from_secs(10),
            warmup: Duration::ZERO,
            cooldown: Duration::ZERO,
            polled: false,
            hybrid_poll: false,
            sq_poll: false,
            seed: 1,
        }
    }
}

impl std::ops::Deref for Job {
    type Target = JobSpec;

    fn deref(&self) -> &JobSpec {
        &self.0
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::engine::sim::SimSpec;

    pub(crate) fn spec() -> JobSpec {
        JobSpec {
            access: Access::Random,
            engine: EngineKind::Sim(SimSpec::default()),
            runtime: Duration::from_secs(1),
            ..JobSpec::default()
        }
    }

    #[test]
    fn each_impossible_value_is_named() {
        let size = 1 << 30;
        let bad = |change: fn(&mut JobSpec)| {
            let mut job = spec();
            change(&mut job);
            job.check(size).unwrap_err()
        };
        assert_eq!(bad(|job| job.block_size = 1000), JobError::BlockSize(1000));
        assert_eq!(bad(|job| job.block_size = 0), JobError::BlockSize(0));
        assert_eq!(bad(|job| job.workers = 0), JobError::Workers(0));
        assert_eq!(bad(|job| job.queue_depth = 5000), JobError::QueueDepth(5000));
        assert_eq!(bad(|job| job.runtime = Duration::ZERO), JobError::Runtime);
        assert_eq!(
            bad(|job| job.operation = Operation::Mixed { read_percent: 100 }),
            JobError::ReadPercent(100)
        );
        let sync = |job: &mut JobSpec| (job.engine, job.queue_depth) = (EngineKind::Pvsync2, 2);
        assert_eq!(bad(sync), JobError::SyncDepth { depth: 2, engine: "pvsync2" });
        let polled = |job: &mut JobSpec| (job.engine, job.polled) = (EngineKind::Libaio, true);
        assert!(bad(polled).to_string().contains("polling with engine libaio"));
        let hybrid = |job: &mut JobSpec| (job.engine, job.hybrid_poll) = (EngineKind::IoUring, true);
        assert_eq!(bad(hybrid), JobError::HybridWithoutPolling);
        assert!(bad(|job| job.sq_poll = true).to_string().contains("engine sim"));
        assert!(
            bad(|job| job.size_mix = vec![SizeShare { bytes: 4096, percent: 90 }])
                .to_string()
                .contains("90 %")
        );
        assert!(bad(|job| job.offset = 1 << 40).to_string().contains("offset"));
        assert!(bad(|job| job.size = Some(1000)).to_string().contains("1000"));
        assert!(
            bad(|job| job.distribution = Distribution::Zipf { theta: -1.0 }).to_string().contains("zipf")
        );
        assert!(
            bad(|job| (job.random_map, job.access) = (true, Access::Sequential)).to_string().contains("map")
        );
        assert!(
            bad(|job| job.arrivals = Some(Arrivals::Constant { per_s: 0.0 })).to_string().contains("second")
        );
        assert!(bad(|job| job.outliers = 4_000_000_000).to_string().contains("at most 100000"));
        assert!(bad(|job| job.random_percent = 101).to_string().contains("101 % random"));
        assert!(bad(|job| (job.random_percent, job.random_map) = (50, true)).to_string().contains("map"));
        assert!(bad(|job| job.verify = Some(Verify::ReadOnly)).to_string().contains("random map"));
        assert!(bad(|job| job.content.compress_percent = Some(101)).to_string().contains("0 to 100"));
        assert!(bad(|job| job.content.pattern = Some([].into())).to_string().contains("pattern"));
        assert!(
            bad(|job| job.batch.submit = Some(2)).to_string().contains("submit batch of 2: wanted 1 to 1")
        );
        assert!(bad(|job| job.batch.complete = Some(0)).to_string().contains("completion batch"));
        assert!(bad(|job| job.batch.low = Some(1)).to_string().contains("wanted 0 to 0"));
        let paced = |job: &mut JobSpec| {
            job.batch.submit = Some(1);
            job.arrivals = Some(Arrivals::Constant { per_s: 1.0 });
        };
        assert!(bad(paced).to_string().contains("batches and a rate"));
        assert!(bad(|job| job.fsync_every = Some(0)).to_string().contains("sync"));
        let trim = |job: &mut JobSpec| (job.engine, job.operation) = (EngineKind::Libaio, Operation::Trim);
        assert!(bad(trim).to_string().contains("io_uring, pvsync2"));
        let command = |job: &mut JobSpec| (job.engine, job.fsync_every) = (EngineKind::IoUringCmd, Some(1));
        assert!(bad(command).to_string().contains("read and write commands only"));
        let command =
            |job: &mut JobSpec| (job.engine, job.operation) = (EngineKind::IoUringCmd, Operation::Trim);
        assert!(bad(command).to_string().contains("trims"));
        let mapped = |job: &mut JobSpec| (job.engine, job.sync) = (EngineKind::Mmap, SyncMode::DataSync);
        assert!(bad(mapped).to_string().contains("--fdatasync"));
        let polled = |job: &mut JobSpec| {
            (job.engine, job.polled, job.fdatasync_every) = (EngineKind::IoUring, true, Some(1));
        };
        assert!(bad(polled).to_string().contains("polled ring"));
        let second = Duration::from_secs(1);
        let target = LatencyTarget { limit: second, window: second, percentile: 101.0, keep_running: false };
        let aimed = |change: fn(&mut JobSpec)| {
            let mut job = spec();
            job.latency_target = Some(target);
            change(&mut job);
            job.check(size).unwrap_err().to_string()
        };
        assert!(aimed(|_| ()).contains("101 %"));
        let paced = |job: &mut JobSpec| {
            job.latency_target.as_mut().unwrap().percentile = 99.0;
            job.arrivals = Some(Arrivals::Constant { per_s: 1.0 });
        };
        assert!(aimed(paced).contains("a latency target and a rate"));
        let steady = SteadyState {
            figure: crate::steady::Figure::Iops,
            test: crate::steady::Test::Slope,
            limit: crate::steady::Limit::Percent(1.0),
            duration: second,
            ramp: Duration::ZERO,
            interval: second,
        };
        let watched = |engine: EngineKind| {
            JobSpec { steady: Some(steady), engine, ..spec() }.check(size).unwrap_err().to_string()
        };
        assert!(watched(spec().engine).contains("virtual time"));
        assert!(watched(EngineKind::Psync).contains("two intervals"));
        let mut both = JobSpec { steady: Some(steady), engine: EngineKind::Psync, ..spec() };
        (both.operation, both.random_map, both.verify) =
            (Operation::Write, true, Some(Verify::WriteThenRead));
        assert!(both.check(size).unwrap_err().to_string().contains("a steady state and verify"));
        assert!(spec().check(size).is_ok());
        assert_eq!(spec().check(100), Err(JobError::TargetTooSmall { size: 100, wanted: 4096 }));
    }
}
