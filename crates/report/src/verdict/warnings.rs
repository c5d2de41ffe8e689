//! What makes a workload's result doubtful, whatever limited it.

use super::disk_counters;
use crate::record::{Operation, Record, Status, TargetKind, Workload};
use crate::show;

/// From here on a hypervisor's share shows in the tail.
const STEAL_WARNS_PERCENT: f64 = 1.0;
/// A pause of this share of the longest latency explains most of it.
const NOISE_SHARE: f64 = 0.5;
/// The disk's counters and ours differ by a little in any run: journals, other processes, the last slice.
const COUNTER_SLACK: f64 = 0.10;
/// A run shorter than this share of what was asked ended early.
const RUNTIME_SHARE: f64 = 0.95;
/// Sleeping for every tenth I/O is not polling. Who polls hardly sleeps; who does not poll sleeps for most
/// I/Os, but not for all: of a fast drive the interrupt often comes before the CPU is given away (for half of
/// 2,080 I/Os of an emulated drive under KVM).
const IOS_PER_SLEEP: u64 = 10;
/// A fall of the rate by more than this from the first third of a run to the last is a drive (or host)
/// running out of something: cache, cooling, budget.
const DECLINE: f64 = 0.15;
/// Fewer slices than this have no first and last third.
const MIN_SLICES: usize = 6;

/// All warnings that the record holds against one workload.
pub(super) fn of(record: &Record, workload: &Workload) -> Vec<String> {
    [
        errors(workload),
        short_ios(workload),
        page_cache(record),
        not_polled(workload),
        never_written(record, workload),
        ended_early(record, workload),
        declined(workload),
        steal(workload),
        noise_in_tail(record, workload),
        device_counters(workload),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn errors(workload: &Workload) -> Option<String> {
    let first = workload.outcome.errors.first()?;
    let total = workload.outcome.errors.iter().fold(0, |sum: u64, error| sum.saturating_add(error.count));
    let at = first.first_offset.map(|offset| format!(" at byte {offset}")).unwrap_or_default();
    Some(format!(
        "{} I/O(s) failed, the first with {}{at}; latencies are of those that did not.",
        show::grouped(total),
        first.name
    ))
}

fn short_ios(workload: &Workload) -> Option<String> {
    let short = workload.outcome.short_ios;
    (short > 0).then(|| format!("{} I/O(s) moved fewer bytes than asked.", show::grouped(short)))
}

fn page_cache(record: &Record) -> Option<String> {
    (!record.target.direct).then(|| {
        "The page cache was not bypassed: these are figures of memory and drive together.".to_owned()
    })
}

/// Whether a workload that asked for polling slept until the interrupt all the same. Who polls does not leave
/// the CPU for each I/O; a kernel that ignores the wish says nothing.
pub(super) fn slept_instead(workload: &Workload) -> bool {
    let switches = workload.outcome.cpu.as_ref().map_or(0, |cpu| cpu.voluntary_switches);
    workload.job.polled && workload.outcome.ios > 0 && switches > workload.outcome.ios / IOS_PER_SLEEP
}

fn not_polled(workload: &Workload) -> Option<String> {
    slept_instead(workload).then(|| {
        "Polling was asked for, but the workers slept until each interrupt: the kernel ignored the wish, as it does \
         for preadv2 since about 5.19 and for drives without poll queues."
            .to_owned()
    })
}

fn never_written(record: &Record, workload: &Workload) -> Option<String> {
    let percent = record.preconditioning.never_written_percent.filter(|percent| *percent > 0.0)?;
    (workload.job.operation != Operation::Write).then(|| {
        format!("{percent:.0} % of the sampled blocks were never written: a drive can answer such reads without its media.")
    })
}

fn ended_early(record: &Record, workload: &Workload) -> Option<String> {
    let (ran, asked) = (workload.outcome.elapsed_s, workload.job.runtime_s);
    (record.status != Status::Complete && ran < asked * RUNTIME_SHARE)
        .then(|| format!("It ended after {ran:.1} s of {asked:.1} s."))
}

fn declined(workload: &Workload) -> Option<String> {
    let series = &workload.outcome.series;
    let third = series.len() / 3;
    if series.len() < MIN_SLICES {
        return None;
    }
    let sum = |slices: &[crate::record::Slice]| slices.iter().map(|slice| slice.ios as f64).sum::<f64>();
    let fall = 1.0 - sum(&series[series.len() - third..]) / sum(&series[..third]).max(1.0);
    (fall > DECLINE).then(|| {
        format!(
            "The rate fell by {:.0} % from the first third of the run to the last: not a steady state.",
            fall * 100.0
        )
    })
}

fn steal(workload: &Workload) -> Option<String> {
    let steal = workload.outcome.cpu.as_ref()?.steal_percent.filter(|steal| *steal >= STEAL_WARNS_PERCENT)?;
    Some(format!("A hypervisor took {steal:.1} % of the worker CPUs' time; it shows first in the tail."))
}

fn noise_in_tail(record: &Record, workload: &Workload) -> Option<String> {
    if record.target.kind == TargetKind::Sim {
        return None; // Virtual time does not pass while a CPU is away.
    }
    let noise = record.self_test.as_ref()?.noise.iter().max_by_key(|noise| noise.longest_gap_ns)?;
    let directions = [&workload.outcome.read, &workload.outcome.write];
    let longest = directions.into_iter().flatten().map(|direction| direction.latency.max_ns).max()?;
    (noise.longest_gap_ns as f64 >= NOISE_SHARE * longest as f64).then(|| {
        format!(
            "CPU {} alone paused for up to {} in the self-test: the longest latencies may be the host's.",
            noise.cpu,
            show::ns(noise.longest_gap_ns as f64)
        )
    })
}

fn device_counters(workload: &Workload) -> Option<String> {
    let outcome = &workload.outcome;
    let device = disk_counters(outcome)?;
    let bytes = device.read_bytes.saturating_add(device.write_bytes) as f64 / outcome.moved_bytes as f64;
    let own_ios = outcome.moved_bytes as f64 / workload.job.block_size_bytes.max(1) as f64;
    let ios = device.reads.saturating_add(device.writes) as f64 / own_ios.max(1.0);
    if bytes < 1.0 - COUNTER_SLACK {
        let percent = bytes * 100.0;
        Some(format!(
            "The disk moved only {percent:.0} % of these bytes: something above it answered from a cache."
        ))
    } else if bytes > 1.0 + COUNTER_SLACK {
        Some(format!("The disk moved {} of these bytes: someone else used it meanwhile.", show::ratio(bytes)))
    } else if ios < 1.0 - COUNTER_SLACK {
        Some(format!("The disk counted {} of these I/Os: the kernel merged neighbours.", show::ratio(ios)))
    } else {
        None
    }
}
