//! What a cell measured. It can be sent from the process under the budget to the one outside.

use crate::valley;
use overdrive_hist::Histogram;
use overdrive_sys::vm_counters::VmCounters;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Accesses that took longer than this are stalls.
pub const STALL_NS: u64 = 1_000_000;

/// Stalls that are kept one by one; beyond, only their number and sum.
pub const STALLS_KEPT: usize = 1000;

/// One direction's latencies.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Latencies {
    /// All of them.
    #[serde(serialize_with = "encode", deserialize_with = "decode")]
    pub histogram: Histogram,
    /// Exact sum, in nanoseconds; what comes back from text has lost it in the histogram.
    pub sum_ns: u128,
}

impl Latencies {
    /// Records one access.
    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.histogram.record(ns);
        self.sum_ns += u128::from(ns);
    }

    /// Adds all that `other` recorded.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.merge(&other.histogram);
        self.sum_ns += other.sum_ns;
    }

    /// The exact mean.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        let count = self.histogram.count();
        (count > 0).then(|| self.sum_ns as f64 / count as f64)
    }
}

fn encode<S: Serializer>(histogram: &Histogram, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&histogram.encode_v2_base64())
}

fn decode<'de, D: Deserializer<'de>>(from: D) -> Result<Histogram, D::Error> {
    let text = String::deserialize(from)?;
    Histogram::decode_v2_base64(&text).map_err(serde::de::Error::custom)
}

/// One access over [`STALL_NS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// When it began, in nanoseconds since measuring began.
    pub at_ns: u64,
    /// How long it took.
    pub took_ns: u64,
}

/// All stalls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalls {
    /// How many.
    pub count: u64,
    /// Their time, summed over threads.
    pub total_ns: u64,
    /// The first ones, by time.
    pub first: Vec<Stall>,
}

impl Stalls {
    pub(crate) fn note(&mut self, stall: Stall) {
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(stall.took_ns);
        if self.first.len() < STALLS_KEPT {
            self.first.push(stall);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.first.extend_from_slice(&other.first);
        self.first.sort_by_key(|stall| stall.at_ns);
        self.first.truncate(STALLS_KEPT);
    }
}

/// What the kernel counted while it was measured: faults of this process, the rest of the whole machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCounts {
    /// Faults that waited for I/O.
    pub major_faults: u64,
    /// Faults that did not.
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

impl From<VmCounters> for KernelCounts {
    fn from(counters: VmCounters) -> Self {
        let VmCounters {
            major_faults,
            minor_faults,
            swap_ins,
            swap_outs,
            refaults,
            stalled_some_us,
            stalled_full_us,
        } = counters;
        Self { major_faults, minor_faults, swap_ins, swap_outs, refaults, stalled_some_us, stalled_full_us }
    }
}

/// What a cell measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// From the first measured access to the end of the last.
    pub elapsed_ns: u64,
    /// Reads.
    pub reads: Latencies,
    /// Writes.
    pub writes: Latencies,
    /// Accesses over a millisecond.
    pub stalls: Stalls,
    /// The kernel's own counters, where there is a kernel.
    pub kernel: Option<KernelCounts>,
    /// How long the warm-up took.
    pub warmup_ms: u64,
    /// Whether the fault rate was steady when it ended; none for a cold start.
    pub steady: Option<bool>,
    /// Measuring was stopped before its time.
    pub interrupted: bool,
}

impl Outcome {
    /// The outcomes of processes that measured at the same time, as one: faults are each process's own, the
    /// other counters are the machine's, which every one of them saw.
    #[must_use]
    pub fn joined(parts: Vec<Outcome>) -> Outcome {
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or_default();
        for part in parts {
            all.reads.merge(&part.reads);
            all.writes.merge(&part.writes);
            all.stalls.merge(&part.stalls);
            all.elapsed_ns = all.elapsed_ns.max(part.elapsed_ns);
            all.warmup_ms = all.warmup_ms.max(part.warmup_ms);
            all.steady = all.steady.zip(part.steady).map(|(a, b)| a && b);
            all.interrupted |= part.interrupted;
            all.kernel = all.kernel.zip(part.kernel).map(|(a, b)| KernelCounts {
                major_faults: a.major_faults + b.major_faults,
                minor_faults: a.minor_faults + b.minor_faults,
                swap_ins: a.swap_ins.max(b.swap_ins),
                swap_outs: a.swap_outs.max(b.swap_outs),
                refaults: a.refaults.max(b.refaults),
                stalled_some_us: a.stalled_some_us.max(b.stalled_some_us),
                stalled_full_us: a.stalled_full_us.max(b.stalled_full_us),
            });
        }
        all
    }

    /// Reads and writes together.
    #[must_use]
    pub fn all(&self) -> Latencies {
        let mut all = self.reads.clone();
        all.merge(&self.writes);
        all
    }

    /// Accesses a second.
    #[must_use]
    pub fn pages_per_s(&self) -> f64 {
        self.rate(self.reads.histogram.count() + self.writes.histogram.count())
    }

    /// From how long on an access counts as a fault; none when there are only hits.
    ///
    /// When the kernel counted no major fault, and minor ones at fewer than one access in a thousand, slow
    /// accesses were preempted, and are no faults. A fault that a userfaultfd answers is minor to the kernel.
    #[must_use]
    pub fn fault_threshold_ns(&self) -> Option<u64> {
        let all = self.all().histogram;
        let is_rare = |faults: u64| faults.saturating_mul(1000) < all.count();
        if self.kernel.is_some_and(|kernel| kernel.major_faults == 0 && is_rare(kernel.minor_faults)) {
            return None;
        }
        valley::threshold_ns(&all)
    }

    /// Accesses beyond the valley, a second.
    #[must_use]
    pub fn faults_per_s(&self) -> f64 {
        self.fault_threshold_ns()
            .map_or(0.0, |border| self.rate(valley::count_from(&self.all().histogram, border)))
    }

    /// `count` a second of measured time.
    #[must_use]
    pub fn rate(&self, count: u64) -> f64 {
        if self.elapsed_ns == 0 { 0.0 } else { count as f64 * 1e9 / self.elapsed_ns as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_goes_through_text() {
        let mut outcome = Outcome { elapsed_ns: 2_000_000_000, ..Outcome::default() };
        (0..1000).for_each(|_| outcome.reads.record(120));
        (0..500).for_each(|_| outcome.writes.record(60_003));
        outcome.stalls.note(Stall { at_ns: 5, took_ns: 2_000_000 });
        let text = serde_json::to_string(&outcome).unwrap();
        let back: Outcome = serde_json::from_str(&text).unwrap();
        assert_eq!(back.writes.mean_ns(), Some(60_003.0));
        assert_eq!(back.reads.histogram.count(), 1000);
        assert_eq!(back.stalls, outcome.stalls);
        assert!((back.pages_per_s() - 750.0).abs() < 1e-9);
        assert!((back.faults_per_s() - 250.0).abs() < 1e-9, "{}", back.faults_per_s());
    }

    #[test]
    fn processes_side_by_side_add_up() {
        let part = |reads: u64, elapsed_ns, major_faults, swap_ins| {
            let kernel = KernelCounts { major_faults, swap_ins: Some(swap_ins), ..KernelCounts::default() };
            let mut outcome =
                Outcome { elapsed_ns, kernel: Some(kernel), steady: Some(true), ..Outcome::default() };
            (0..reads).for_each(|_| outcome.reads.record(100));
            outcome
        };
        let all = Outcome::joined(vec![part(100, 1_000_000_000, 3, 50), part(300, 1_000_000_000, 4, 52)]);
        assert!((all.pages_per_s() - 400.0).abs() < 1e-9);
        let kernel = all.kernel.unwrap();
        assert_eq!((kernel.major_faults, kernel.swap_ins, all.steady), (7, Some(52), Some(true)));
        assert_eq!(Outcome::joined(Vec::new()).pages_per_s(), 0.0);
    }

    #[test]
    fn slow_accesses_are_faults_only_where_the_kernel_counted_faults() {
        let of = |major_faults, minor_faults| {
            let kernel = KernelCounts { major_faults, minor_faults, ..KernelCounts::default() };
            let mut outcome =
                Outcome { elapsed_ns: 1_000_000_000, kernel: Some(kernel), ..Outcome::default() };
            (0..9000).for_each(|_| outcome.reads.record(120));
            (0..1000).for_each(|_| outcome.reads.record(60_000));
            outcome.faults_per_s()
        };
        assert_eq!((of(0, 0), of(0, 9)), (0.0, 0.0));
        assert_eq!((of(1000, 0), of(0, 1000)), (1000.0, 1000.0), "swap's, and a userfaultfd's");
    }

    #[test]
    fn stalls_are_counted_beyond_those_kept() {
        let mut stalls = Stalls::default();
        (0..STALLS_KEPT as u64 + 7).for_each(|at_ns| stalls.note(Stall { at_ns, took_ns: 10 }));
        let mut all = stalls.clone();
        all.merge(&stalls);
        assert_eq!((all.count, all.first.len()), (2 * (STALLS_KEPT as u64 + 7), STALLS_KEPT));
        assert_eq!(all.first[1].at_ns, 0);
    }
}
