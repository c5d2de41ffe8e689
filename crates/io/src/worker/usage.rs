//! What a worker's thread and CPU spent over its measured time.

use overdrive_sys::usage::{CpuShares, CpuTime, ThreadUsage};

/// CPU cost of one worker over its measured time.
pub(crate) struct Usage {
    pub(crate) thread: ThreadUsage,
    /// How the worker's CPU spent its time, when it has a CPU of its own.
    pub(crate) cpu_shares: Option<CpuShares>,
}

/// Usage counters at one moment.
pub(super) struct Reading {
    thread: ThreadUsage,
    cpu: Option<CpuTime>,
}

impl Reading {
    pub(super) fn take(cpu: Option<usize>) -> Self {
        let own = |times: Vec<CpuTime>| times.into_iter().find(|time| Some(time.cpu) == cpu);
        Self { cpu: CpuTime::read_all().ok().and_then(own), thread: ThreadUsage::of_current_thread() }
    }

    pub(super) fn since(&self, earlier: &Self) -> Usage {
        Usage {
            thread: self.thread.since(&earlier.thread),
            cpu_shares: self.cpu.zip(earlier.cpu).map(|(after, before)| after.shares_since(&before)),
        }
    }
}
