//! The parts of a job that most jobs leave alone: what writes carry, how they are made durable, what becomes
//! of the page cache, and in which batches operations are handed over.

use std::sync::Arc;
use std::time::Duration;

/// What writes carry. By default random bytes, drawn once for each slot of the queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// These bytes over and over instead of random ones.
    pub pattern: Option<Arc<[u8]>>,
    /// How much of each chunk can be compressed away, in per cent: that much of it is zeroes, or the pattern.
    pub compress_percent: Option<u8>,
    /// The size of a chunk in bytes; by default the whole block.
    pub compress_chunk: Option<u32>,
    /// Draw the random bytes anew for every write.
    pub refill: bool,
}

impl Content {
    /// Whether a buffer must be filled again before each write. Compressible content is: blocks that share
    /// their random part would compress better than asked for.
    #[must_use]
    pub fn refills(&self) -> bool {
        let random = match self.compress_percent {
            Some(percent) => percent < 100,
            None => self.pattern.is_none(),
        };
        random && (self.refill || self.compress_percent.is_some())
    }
}

/// Whether each write is on the medium when it counts as done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// It may still be in a cache.
    #[default]
    None,
    /// It is, with all that is known of the file (O_SYNC).
    Sync,
    /// It is, with what is needed to find it again (O_DSYNC).
    DataSync,
}

/// What the kernel is told about the order of accesses; through the page cache it decides what is read ahead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Advice {
    /// The job's own order.
    #[default]
    AsAccessed,
    /// Nothing.
    None,
    /// Random, whatever the job does.
    Random,
    /// Sequential, whatever the job does.
    Sequential,
}

/// What becomes of the page cache where a job goes through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageCache {
    /// What the kernel is told.
    pub advice: Advice,
    /// Drop what is cached of the target before the run begins.
    pub invalidate: bool,
    /// Read all of the target into it before the run begins, instead.
    pub pre_read: bool,
}

impl Default for PageCache {
    fn default() -> Self {
        Self { advice: Advice::AsAccessed, invalidate: true, pre_read: false }
    }
}

/// In which batches a closed loop hands operations over and takes them back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Batch {
    /// Operations handed over at once; by default an eighth of the depth.
    pub submit: Option<u32>,
    /// Completions waited for at once; by default one.
    pub complete: Option<u32>,
    /// The queue is filled again only when no more than this many are in flight; by default at once.
    pub low: Option<u32>,
}

/// The greatest depth, up to the job's, at which latencies keep a target is looked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyTarget {
    /// The latency to keep.
    pub limit: Duration,
    /// How long each depth is tried.
    pub window: Duration,
    /// This share of operations must keep it, in per cent.
    pub percentile: f64,
    /// Go on at the depth that was found, instead of ending there.
    pub keep_running: bool,
}
