//! What makes a job impossible, found before anything starts.

use super::{Access, Batch, Distribution, Job, JobSpec, LatencyTarget, Operation, SyncMode, Zone};
use crate::engine::EngineKind;
use crate::pace::Arrivals;
use crate::steady::Limit;
use crate::verify::Verify;
use thiserror::Error;

/// Each worker has room for its slowest operations from the start.
const OUTLIERS_MAX: u32 = 100_000;

/// Why a job cannot be run.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum JobError {
    /// The block size does not fit direct I/O.
    #[error("block size {0}: wanted a multiple of 512 bytes from 512 to 64 MiB")]
    BlockSize(u64),
    /// No threads, or absurdly many.
    #[error("{0} workers: wanted 1 to 1024")]
    Workers(u32),
    /// Nothing in flight, or more than a ring holds.
    #[error("queue depth {0}: wanted 1 to 4096")]
    QueueDepth(u32),
    /// A synchronous engine has one operation in flight per worker.
    #[error(
        "queue depth {depth} with engine {engine}: a synchronous engine has depth 1; use more workers instead"
    )]
    SyncDepth {
        /// The depth asked for.
        depth: u32,
        /// The engine asked for.
        engine: &'static str,
    },
    /// A way of polling that the engine does not have.
    #[error("{option} with engine {engine}: only io_uring has it{also}")]
    NoSuchPolling {
        /// The option asked for.
        option: &'static str,
        /// The engine asked for.
        engine: &'static str,
        /// What else would do.
        also: &'static str,
    },
    /// Half a poll of nothing.
    #[error("hybrid polling wants polling itself too")]
    HybridWithoutPolling,
    /// A mix that is no mix.
    #[error("{0} % reads in a mixed job: wanted 1 to 99")]
    ReadPercent(u8),
    /// More than anybody reads.
    #[error("the slowest {0} operations of each worker: wanted at most {OUTLIERS_MAX}")]
    Outliers(u32),
    /// A share above all.
    #[error("{0} % random offsets: wanted 0 to 100")]
    RandomPercent(u8),
    /// Nothing would be measured.
    #[error("a runtime of zero measures nothing")]
    Runtime,
    /// The region lies outside the target.
    #[error("offset {offset} and size {bytes}: wanted a part of the target, which has {size} bytes")]
    Region {
        /// Where it begins.
        offset: u64,
        /// How long it is.
        bytes: u64,
        /// Bytes the target has.
        size: u64,
    },
    /// The offset lies within a sector.
    #[error("offset {0}: wanted a multiple of 512 bytes")]
    Offset(u64),
    /// The region begins where the target ends, or behind.
    #[error("offset {offset}: wanted one below the target's {size} bytes")]
    PastTheEnd {
        /// Where it would begin.
        offset: u64,
        /// Bytes the target has.
        size: u64,
    },
    /// The last worker would begin outside the target.
    #[error("the last worker begins at {last} with a block of {block}: the target has {size} bytes")]
    WorkerOffset {
        /// Where it would begin.
        last: u64,
        /// Its largest block.
        block: u64,
        /// Bytes the target has.
        size: u64,
    },
    /// Something is not a multiple of what direct I/O wants.
    #[error("{what} {bytes}: wanted a multiple of 512 bytes above 0")]
    Unaligned {
        /// What.
        what: &'static str,
        /// Its value.
        bytes: u64,
    },
    /// Something is not a multiple of what this target wants.
    #[error("{what} {bytes}: direct I/O to this target wants multiples of {alignment} bytes")]
    TargetAlignment {
        /// What.
        what: &'static str,
        /// Its value.
        bytes: u64,
        /// What it must be a multiple of.
        alignment: u64,
    },
    /// Shares that are no whole.
    #[error("the shares of {what} add up to {sum} %: wanted 100")]
    Shares {
        /// Shares of what.
        what: &'static str,
        /// What they add up to.
        sum: u32,
    },
    /// A distribution with an impossible parameter.
    #[error("{0}")]
    Distribution(String),
    /// A limit of nothing.
    #[error("{0} of zero: nothing would be done")]
    NothingToDo(&'static str),
    /// A rate nobody can keep.
    #[error("{0} operations a second for each worker: wanted more than 0 and at most 10 million")]
    Rate(f64),
    /// A trace that is none.
    #[error("the arrival trace is empty or not ascending")]
    Trace,
    /// Something the engine has no operation for.
    #[error("{what} with engine {engine}: {why}")]
    NoSuchOperation {
        /// What was asked for.
        what: &'static str,
        /// The engine asked for.
        engine: &'static str,
        /// Why not, or what would do.
        why: &'static str,
    },
    /// A value outside its bounds.
    #[error("{what} {value}: wanted {least} to {most}")]
    OutOfRange {
        /// What.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The least that would do.
        least: u64,
        /// The most that would do.
        most: u64,
    },
    /// A search for a depth or a steady state that cannot end well.
    #[error("{0}")]
    Search(String),
    /// Two options that exclude one another.
    #[error("{one} and {other} do not go together{why}")]
    Conflict {
        /// One option.
        one: &'static str,
        /// The other.
        other: &'static str,
        /// Why not.
        why: &'static str,
    },
    /// The target cannot hold one block per worker.
    #[error("the target has {size} bytes: wanted at least {wanted} (one block for each worker)")]
    TargetTooSmall {
        /// Bytes the target has.
        size: u64,
        /// Bytes the job needs.
        wanted: u64,
    },
}

impl JobSpec {
    /// Checks the job against itself and against a target of `target_size` bytes.
    ///
    /// # Errors
    /// [`JobError`] names the first value that is out of range.
    pub fn check(self, target_size: u64) -> Result<Job, JobError> {
        check_block(self.block_size)?;
        if !(1..=1024).contains(&self.workers) {
            return Err(JobError::Workers(self.workers));
        }
        if !(1..=4096).contains(&self.queue_depth) {
            return Err(JobError::QueueDepth(self.queue_depth));
        }
        if self.engine.is_synchronous() && self.queue_depth != 1 {
            return Err(JobError::SyncDepth { depth: self.queue_depth, engine: self.engine.name() });
        }
        self.check_polling()?;
        if let Operation::Mixed { read_percent } = self.operation
            && !(1..=99).contains(&read_percent)
        {
            return Err(JobError::ReadPercent(read_percent));
        }
        if self.runtime.is_zero() {
            return Err(JobError::Runtime);
        }
        if self.outliers > OUTLIERS_MAX {
            return Err(JobError::Outliers(self.outliers));
        }
        self.check_sizes()?;
        self.check_order()?;
        self.check_pace()?;
        self.check_verify()?;
        self.check_content()?;
        self.check_batch()?;
        self.check_operations()?;
        self.check_search()?;
        self.check_region(target_size)?;
        Ok(Job(self))
    }

    /// Checks what direct I/O to a target of this alignment cannot do: a device of 4096-byte blocks takes no
    /// 512-byte I/O.
    ///
    /// # Errors
    /// [`JobError::TargetAlignment`] names the first size or offset that does not fit.
    pub fn check_alignment(&self, alignment: u64) -> Result<(), JobError> {
        let sizes = self.size_mix.iter().map(|share| share.bytes);
        let sizes = sizes.chain(self.size_mix.is_empty().then_some(self.block_size));
        let all = sizes.map(|bytes| ("a block size of", bytes)).chain([
            ("a block alignment of", self.alignment()),
            ("an offset of", self.offset),
            ("a stride of", self.stride),
        ]);
        match all.into_iter().find(|(_, bytes)| !bytes.is_multiple_of(alignment.max(1))) {
            Some((what, bytes)) => Err(JobError::TargetAlignment { what, bytes, alignment }),
            None => Ok(()),
        }
    }

    fn check_region(&self, target_size: u64) -> Result<(), JobError> {
        let bytes = self.size.unwrap_or(target_size.saturating_sub(self.offset));
        if !self.offset.is_multiple_of(512) {
            return Err(JobError::Offset(self.offset));
        }
        if self.offset > 0 && self.offset >= target_size {
            return Err(JobError::PastTheEnd { offset: self.offset, size: target_size });
        }
        if self.offset.checked_add(bytes).is_none_or(|end| end > target_size) {
            return Err(JobError::Region { offset: self.offset, bytes, size: target_size });
        }
        let block = self.largest_block().max(self.alignment());
        let Some(step) = self.worker_offset else {
            let wanted = block * u64::from(self.workers);
            return if bytes < wanted {
                Err(JobError::TargetTooSmall { size: bytes, wanted })
            } else {
                Ok(())
            };
        };
        let last = step.saturating_mul(u64::from(self.workers - 1)).saturating_add(self.offset);
        if last.checked_add(block).is_none_or(|end| end > target_size) || bytes < block {
            return Err(JobError::WorkerOffset { last, block, size: target_size });
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), JobError> {
        for share in &self.size_mix {
            check_block(share.bytes)?;
        }
        let sum: u32 = self.size_mix.iter().map(|share| u32::from(share.percent)).sum();
        if !self.size_mix.is_empty() && sum != 100 {
            return Err(JobError::Shares { what: "block sizes", sum });
        }
        let aligned = [
            ("a block alignment of", self.block_align),
            ("a size of", self.size),
            ("an I/O size of", self.io_size),
        ];
        for (what, bytes) in aligned {
            if let Some(bytes) = bytes.filter(|&bytes| bytes == 0 || !bytes.is_multiple_of(512)) {
                return Err(JobError::Unaligned { what, bytes });
            }
        }
        let steps = [("a stride of", self.stride), ("a worker offset of", self.worker_offset.unwrap_or(0))];
        for (what, bytes) in steps {
            if !bytes.is_multiple_of(512) {
                return Err(JobError::Unaligned { what, bytes });
            }
        }
        if self.passes == Some(0) {
            return Err(JobError::NothingToDo("a number of passes"));
        }
        if self.number_ios == Some(0) {
            return Err(JobError::NothingToDo("a number of I/Os"));
        }
        Ok(())
    }

    fn check_order(&self) -> Result<(), JobError> {
        check_distribution(&self.distribution)?;
        let shaped = self.distribution != Distribution::Uniform;
        let sequential = self.access == Access::Sequential;
        let conflict = |one, other, why| Err(JobError::Conflict { one, other, why });
        if shaped && sequential {
            return conflict("a random distribution", "sequential offsets", "");
        }
        if shaped && self.random_map {
            return conflict("a random distribution", "a random map", ": blocks come again, or they do not");
        }
        if self.random_map && sequential {
            return conflict("a random map", "sequential offsets", "");
        }
        if self.random_map && !self.size_mix.is_empty() {
            return conflict("a random map", "several block sizes", "");
        }
        match self.random_percent {
            0..100 if self.random_map => {
                return conflict(
                    "a share of random offsets",
                    "a random map",
                    ": runs would visit blocks again",
                );
            }
            0..=100 => (),
            percent => return Err(JobError::RandomPercent(percent)),
        }
        if self.stride > 0 && !sequential {
            return conflict("a stride", "random offsets", "");
        }
        Ok(())
    }

    fn check_pace(&self) -> Result<(), JobError> {
        let Some(arrivals) = &self.arrivals else {
            return if self.think.is_some_and(|think| think.every == 0) {
                Err(JobError::NothingToDo("a number of blocks before each think time"))
            } else {
                Ok(())
            };
        };
        if self.think.is_some() {
            return Err(JobError::Conflict { one: "think time", other: "a rate", why: "" });
        }
        if let Arrivals::Trace(times) = arrivals
            && (times.is_empty() || !times.is_sorted())
        {
            return Err(JobError::Trace);
        }
        if matches!(arrivals, Arrivals::Bursts { size: 0, .. }) {
            return Err(JobError::NothingToDo("a burst"));
        }
        match arrivals.per_s() {
            Some(rate) if !(rate > 0.0 && rate <= 1e7) => Err(JobError::Rate(rate)),
            _ => Ok(()),
        }
    }

    fn check_verify(&self) -> Result<(), JobError> {
        let Some(verify) = self.verify else { return Ok(()) };
        let conflict = |other, why| Err(JobError::Conflict { one: "verify", other, why });
        let once = self.access == Access::Sequential || self.random_map;
        if !once {
            let why = "; wanted a random map, which visits each block once (--random-map; in a job file, no norandommap)";
            return conflict("random offsets with repeats", why);
        }
        if !self.size_mix.is_empty() || self.block_align.is_some_and(|align| align < self.block_size) {
            return conflict("several block sizes or overlapping blocks", "");
        }
        match verify {
            Verify::WriteThenRead | Verify::WriteOnly if self.operation != Operation::Write => {
                conflict("a workload that reads", "")
            }
            Verify::ReadOnly if self.operation != Operation::Read => {
                conflict("a workload that writes", " when only reading back")
            }
            _ if matches!(self.engine, EngineKind::Sim(_) | EngineKind::Nop) => {
                conflict("this engine", ": it has no content")
            }
            _ => Ok(()),
        }
    }

    fn check_content(&self) -> Result<(), JobError> {
        let Self { content, .. } = self;
        if let Some(percent) = content.compress_percent.filter(|&percent| percent > 100) {
            return out_of_range("a compressible share of", percent.into(), 0, 100);
        }
        if let Some(bytes) = content.compress_chunk.filter(|&bytes| bytes < 16) {
            return out_of_range("a compressible chunk of", bytes.into(), 16, u32::MAX.into());
        }
        if content.pattern.as_ref().is_some_and(|pattern| pattern.is_empty()) {
            return Err(JobError::NothingToDo("a buffer pattern"));
        }
        Ok(())
    }

    fn check_batch(&self) -> Result<(), JobError> {
        let Batch { submit, complete, low } = self.batch;
        let depth = u64::from(self.queue_depth);
        for (what, count) in [("a submit batch of", submit), ("a completion batch of", complete)] {
            if let Some(count) = count.map(u64::from).filter(|count| !(1..=depth).contains(count)) {
                return out_of_range(what, count, 1, depth);
            }
        }
        if let Some(low) = low.map(u64::from).filter(|&low| low >= depth) {
            return out_of_range("a low-water mark of", low, 0, depth - 1);
        }
        if self.batch != Batch::default() && (self.arrivals.is_some() || self.think.is_some()) {
            let why = ": then an operation is handed over when it is due";
            return Err(JobError::Conflict { one: "batches", other: "a rate or think time", why });
        }
        Ok(())
    }

    /// Operations besides reads and writes, which not every path has.
    fn check_operations(&self) -> Result<(), JobError> {
        let engine = self.engine.name();
        let none = |what, why| Err(JobError::NoSuchOperation { what, engine, why });
        let trims = self.operation == Operation::Trim;
        let syncs = self.fsync_every.is_some() || self.fdatasync_every.is_some();
        if self.fsync_every == Some(0) || self.fdatasync_every == Some(0) {
            return Err(JobError::NothingToDo("a number of writes before each sync"));
        }
        if trims && !self.engine.can_trim() {
            return none("trims", "it has no such operation; io_uring, pvsync2, psync and mmap do");
        }
        if syncs && self.engine == EngineKind::Nop {
            return none("fsync", "it has no target");
        }
        if (syncs || self.sync != SyncMode::None) && self.engine == EngineKind::IoUringCmd {
            return none("syncs and synchronous writes", "it sends read and write commands only");
        }
        if (trims || syncs) && self.polled && self.engine == EngineKind::IoUring {
            return none("polling and trims or syncs", "a polled ring takes reads and writes only");
        }
        if self.sync != SyncMode::None && matches!(self.engine, EngineKind::Mmap | EngineKind::Nop) {
            return none(
                "synchronous writes",
                "it writes to memory; --fsync or --fdatasync makes that durable",
            );
        }
        Ok(())
    }

    /// Looking for a depth, and for a steady state.
    fn check_search(&self) -> Result<(), JobError> {
        let bad = |text: String| Err(JobError::Search(text));
        if let Some(LatencyTarget { limit, window, percentile, .. }) = self.latency_target {
            if !(percentile > 0.0 && percentile <= 100.0) {
                return bad(format!(
                    "a latency target for {percentile} % of I/Os: wanted more than 0 and at most 100"
                ));
            }
            if limit.is_zero() || window.is_zero() {
                return Err(JobError::NothingToDo("a latency target or its window"));
            }
            if self.arrivals.is_some() || self.think.is_some() {
                let why = ": a schedule does not wait for free slots";
                return Err(JobError::Conflict {
                    one: "a latency target",
                    other: "a rate or think time",
                    why,
                });
            }
            if self.verify.is_some() {
                return Err(JobError::Conflict { one: "a latency target", other: "verify", why: "" });
            }
        }
        if let Some(wrong) = self.percentiles.iter().find(|&&wanted| !(wanted > 0.0 && wanted <= 100.0)) {
            return bad(format!("percentile {wrong}: wanted more than 0 and at most 100"));
        }
        let Some(steady) = &self.steady else { return Ok(()) };
        if self.verify.is_some() {
            let why = ": a pass that ends early is not read back";
            return Err(JobError::Conflict { one: "a steady state", other: "verify", why });
        }
        if matches!(self.engine, EngineKind::Sim(_)) {
            return bad("steady state with engine sim: nobody watches in virtual time".to_owned());
        }
        if steady.interval.is_zero() || steady.duration < steady.interval * 2 {
            return bad("steady state: wanted a duration of at least two intervals".to_owned());
        }
        match steady.limit {
            Limit::Absolute(limit) | Limit::Percent(limit) if !(limit > 0.0 && limit.is_finite()) => {
                bad(format!("steady state: a limit of {limit}; wanted more than 0"))
            }
            _ => Ok(()),
        }
    }

    fn check_polling(&self) -> Result<(), JobError> {
        let engine = self.engine.name();
        let ring = matches!(self.engine, EngineKind::IoUring | EngineKind::IoUringCmd);
        if self.sq_poll && !ring {
            return Err(JobError::NoSuchPolling { option: "a submission thread", engine, also: "" });
        }
        if self.hybrid_poll && !ring {
            return Err(JobError::NoSuchPolling { option: "hybrid polling", engine, also: "" });
        }
        if self.hybrid_poll && !self.polled {
            return Err(JobError::HybridWithoutPolling);
        }
        if self.polled && matches!(self.engine, EngineKind::Libaio | EngineKind::Psync | EngineKind::Mmap) {
            return Err(JobError::NoSuchPolling { option: "polling", engine, also: ", and pvsync2" });
        }
        Ok(())
    }
}

fn out_of_range(what: &'static str, value: u64, least: u64, most: u64) -> Result<(), JobError> {
    Err(JobError::OutOfRange { what, value, least, most })
}

fn check_block(bytes: u64) -> Result<(), JobError> {
    if (512..=64 << 20).contains(&bytes) && bytes.is_multiple_of(512) {
        Ok(())
    } else {
        Err(JobError::BlockSize(bytes))
    }
}

fn check_distribution(distribution: &Distribution) -> Result<(), JobError> {
    let bad = |text: String| Err(JobError::Distribution(text));
    match distribution {
        Distribution::Zipf { theta } if !(*theta > 0.0 && *theta <= 10.0) => {
            bad(format!("zipf with theta {theta}: wanted more than 0 and at most 10"))
        }
        Distribution::Pareto { h } if !(*h > 0.0 && *h < 1.0) => {
            bad(format!("pareto with h {h}: wanted more than 0 and less than 1"))
        }
        Distribution::Normal { deviation_percent }
            if !(*deviation_percent > 0.0 && *deviation_percent <= 100.0) =>
        {
            bad(format!(
                "normal with a deviation of {deviation_percent} %: wanted more than 0 and at most 100"
            ))
        }
        Distribution::Zoned(zones) => {
            let sum = |pick: fn(&Zone) -> u8| zones.iter().map(|zone| u32::from(pick(zone))).sum();
            match (sum(|zone| zone.access_percent), sum(|zone| zone.size_percent)) {
                (100, 100) if zones.iter().any(|zone| zone.size_percent == 0) => {
                    bad("a zone of 0 % of the target: wanted at least 1".to_owned())
                }
                (100, 100) => Ok(()),
                (100, sum) => Err(JobError::Shares { what: "zone sizes", sum }),
                (sum, _) => Err(JobError::Shares { what: "zone accesses", sum }),
            }
        }
        _ => Ok(()),
    }
}
