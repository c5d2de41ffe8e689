//! What limited each workload, from evidence in the record alone.
//!
//! The checks stand in order of how much they explain: someone else on the host, the tool, the link, the
//! CPUs, the depth asked for, and last the device. The first that the numbers support is the verdict; those
//! ruled out before it are told as evidence too. Thresholds are constants with their reason. Warnings are
//! kept apart (warnings.rs): they say what makes the result itself doubtful, whatever limited it.

mod warnings;

use crate::record::{Confidence, Cpu, DeviceIos, Fact, Limit, Outcome, Record, Schedule, Verdict, Workload};
use crate::show;

/// A hypervisor that takes this share of the workers' CPUs also sets their pace.
const STEAL_LIMITS_PERCENT: f64 = 10.0;
/// Other threads that take this share of the workers' CPUs set their pace too. CPU time is counted in ticks,
/// so small shares mean nothing.
const OTHERS_LIMIT_PERCENT: f64 = 25.0;
/// Others who do this share of a disk's I/Os share its limits too.
const FOREIGN_SHARE_LIMITS: f64 = 0.25;
/// So much of the ring's NOP ceiling leaves too little for the work around an I/O.
const RING_SHARE: f64 = 0.8;
/// Below this share of a ceiling it is not worth a line that the ceiling did not limit.
const WORTH_TELLING: f64 = 0.1;
/// Packet headers and flow control take 10 to 15 % of a PCIe link; data alone cannot use more than this.
const LINK_SHARE: f64 = 0.85;
/// More than a link can carry, and more than clocks can be wrong by: its figures are not true, as with
/// emulated drives.
const LINK_EXCEEDED: f64 = 1.05;
/// From here on a CPU has no time left to submit faster; scheduling gaps keep it from reading 100 %.
const CPU_BUSY_PERCENT: f64 = 90.0;
/// No doubt left about a busy CPU.
const CPU_SURE_PERCENT: f64 = 97.0;
/// More IOPS than this from more depth is a gain; less is what repeated runs differ by.
const DEPTH_GAIN: f64 = 0.10;
/// With less of the asked rate done the schedule was not kept, unless starts were hardly late: arrivals drawn
/// at random are not as many in every run.
const RATE_SHARE: f64 = 0.95;
/// With fewer of the asked I/Os in flight, the submitting side and not the device was waited for.
const IN_FLIGHT_SHARE: f64 = 0.75;

/// Judges every workload of the record and stores the verdicts in it.
pub fn judge_all(record: &mut Record) {
    let verdicts: Vec<Verdict> = record.workloads.iter().map(|workload| judge(record, workload)).collect();
    for (workload, verdict) in record.workloads.iter_mut().zip(verdicts) {
        workload.verdict = Some(verdict);
    }
}

/// Judges one workload of `record`.
#[must_use]
pub fn judge(record: &Record, workload: &Workload) -> Verdict {
    let case = Case { record, workload };
    let checks =
        [nothing_done, pace, stolen_time, other_threads, foreign_ios, ring_ceiling, link, cpu, depth, device];
    let mut verdict = Verdict {
        limit: Limit::Unknown,
        confidence: Confidence::Unsure,
        because: Vec::new(),
        warnings: warnings::of(record, workload),
    };
    for check in checks {
        match check(&case) {
            Silent => {}
            RuledOut(evidence) => verdict.because.push(evidence),
            Limits(limit, confidence, evidence) => {
                verdict.limit = limit;
                verdict.confidence = confidence;
                verdict.because.insert(0, evidence);
                break;
            }
        }
    }
    verdict
}

struct Case<'a> {
    record: &'a Record,
    workload: &'a Workload,
}

/// What one check says.
enum Ruling {
    /// Its evidence is missing.
    Silent,
    /// It did not limit the workload, and this is why.
    RuledOut(String),
    /// It did.
    Limits(Limit, Confidence, String),
}
use Ruling::{Limits, RuledOut, Silent};

fn nothing_done(case: &Case<'_>) -> Ruling {
    if case.workload.outcome.ios > 0 {
        return Silent;
    }
    Limits(Limit::Unknown, Confidence::Sure, "No I/O completed, so there is nothing to judge.".to_owned())
}

/// An open loop that kept its schedule, or a pause between I/Os, sets the rate itself.
fn pace(case: &Case<'_>) -> Ruling {
    if let Some(schedule) = &case.workload.outcome.schedule {
        return schedule_kept(case.workload, schedule);
    }
    let pause = case.workload.job.detail.as_ref().and_then(|detail| detail.think_time_ns);
    pause.map_or(Silent, |pause| {
        let evidence = format!("Workers paused for {} between I/Os, as asked.", show::ns(pause as f64));
        Limits(Limit::Pace, Confidence::Likely, evidence)
    })
}

fn schedule_kept(workload: &Workload, schedule: &Schedule) -> Ruling {
    let (job, outcome) = (&workload.job, &workload.outcome);
    let late = show::ns(schedule.slip_p99_ns as f64);
    // One that falls due just as its worker ends says nothing of the target.
    if schedule.unstarted > u64::from(job.workers) {
        return RuledOut(format!("{} arrivals were never started.", show::grouped(schedule.unstarted)));
    }
    // A job of so many I/Os starts them all, however late.
    let rate = job.detail.as_ref().and_then(|detail| detail.rate_per_worker);
    let asked = rate.map(|rate| rate * f64::from(job.workers));
    let in_time = schedule.slip_p99_ns as f64 <= (1.0 - RATE_SHARE) * outcome.elapsed_s * 1e9;
    if !in_time && asked.is_none_or(|asked| outcome.iops < RATE_SHARE * asked) {
        let asked = asked.map_or(String::new(), |asked| format!(" of {} asked for", show::count(asked)));
        return RuledOut(format!(
            "{} IOPS{asked} were done, 99 % of them up to {late} late: the schedule was not kept.",
            show::count(outcome.iops)
        ));
    }
    let started = match schedule.unstarted {
        0 => "Every arrival was started".to_owned(),
        few => format!("All arrivals but {few} were started"),
    };
    let evidence = format!("{started}, 99 % of them at most {late} late: the schedule set the rate.");
    Limits(Limit::Pace, Confidence::Sure, evidence)
}

fn stolen_time(case: &Case<'_>) -> Ruling {
    match case.workload.outcome.cpu.as_ref().and_then(|cpu| cpu.steal_percent) {
        Some(steal) if steal >= STEAL_LIMITS_PERCENT => Limits(
            Limit::HostNoise,
            Confidence::Likely,
            format!("The hypervisor took {steal:.0} % of the worker CPUs' time."),
        ),
        _ => Silent,
    }
}

/// Threads that are not the workers', on the workers' CPUs. Interrupts are not counted: they are the drive's.
fn other_threads(case: &Case<'_>) -> Ruling {
    let Some(cpu) = &case.workload.outcome.cpu else { return Silent };
    let (Some(busy), Some(interrupts)) = (cpu.host_busy_percent, cpu.interrupts_percent) else {
        return Silent;
    };
    let others = busy - interrupts - cpu.utilisation_percent;
    if others < OTHERS_LIMIT_PERCENT {
        return Silent;
    }
    let evidence = format!("Other threads kept the worker CPUs busy for {others:.0} % of the time.");
    Limits(Limit::HostNoise, Confidence::Likely, evidence)
}

/// The disk's own counters, to hold against ours. Trims move no bytes: then there is nothing to hold them
/// against.
fn disk_counters(outcome: &Outcome) -> Option<&DeviceIos> {
    outcome.device_ios.as_ref().filter(|_| outcome.moved_bytes > 0)
}

fn foreign_ios(case: &Case<'_>) -> Ruling {
    let outcome = &case.workload.outcome;
    let Some(device) = disk_counters(outcome) else { return Silent };
    let seen = device.read_bytes.saturating_add(device.write_bytes) as f64;
    let foreign = 1.0 - outcome.moved_bytes as f64 / seen.max(1.0);
    if foreign < FOREIGN_SHARE_LIMITS {
        return Silent;
    }
    let share = foreign * 100.0;
    let evidence = format!("{share:.0} % of the bytes the disk moved meanwhile were not this workload's.");
    Limits(Limit::HostNoise, Confidence::Likely, evidence)
}

fn ring_ceiling(case: &Case<'_>) -> Ruling {
    let job = &case.workload.job;
    let nops = case.record.self_test.as_ref().and_then(|test| test.ring.nops_per_s);
    let (true, Some(nops)) = (job.engine == "io_uring", nops) else { return Silent };
    let ceiling = nops * f64::from(job.workers);
    let share = case.workload.outcome.iops / ceiling;
    let evidence = format!(
        "{} IOPS is {:.0} % of the {} NOPs a second that the workers' rings can do here.",
        show::count(case.workload.outcome.iops),
        share * 100.0,
        show::count(ceiling)
    );
    match share {
        share if share >= RING_SHARE => Limits(Limit::Tool, Confidence::Likely, evidence),
        share if share >= WORTH_TELLING => RuledOut(evidence),
        _ => Silent,
    }
}

fn link(case: &Case<'_>) -> Ruling {
    let facts = case.record.target.layers.iter().flat_map(|layer| &layer.facts);
    let bandwidth = facts.filter_map(link_bandwidth).fold(f64::INFINITY, f64::min);
    if bandwidth.is_infinite() {
        return Silent;
    }
    // A link carries reads and writes in opposite directions at once: the busier one counts.
    let outcome = &case.workload.outcome;
    let each = [&outcome.read, &outcome.write].map(|d| d.as_ref().map_or(0.0, |d| d.bytes_per_s));
    let share = each[0].max(each[1]) / bandwidth;
    let evidence = format!(
        "{} GiB/s in one direction is {:.0} % of the link's {} GiB/s.",
        show::gib_per_s(each[0].max(each[1])),
        share * 100.0,
        show::gib_per_s(bandwidth)
    );
    match share {
        share if share >= LINK_EXCEEDED => {
            RuledOut(format!("{evidence} No link does that: what the drive says of its link is not true."))
        }
        share if share >= LINK_SHARE => Limits(Limit::Link, Confidence::Sure, evidence),
        share if share >= WORTH_TELLING => RuledOut(evidence),
        _ => Silent,
    }
}

fn link_bandwidth(fact: &Fact) -> Option<f64> {
    let value: f64 = fact.value.as_ref().filter(|_| fact.id == "link.bandwidth_bytes_per_s")?.parse().ok()?;
    (value.is_finite() && value > 0.0).then_some(value)
}

fn cpu(case: &Case<'_>) -> Ruling {
    let Some(cpu) = &case.workload.outcome.cpu else { return Silent };
    if case.workload.job.polled && !warnings::slept_instead(case.workload) {
        return RuledOut(format!(
            "The worker CPUs were {:.0} % busy, which polling is by design: it says nothing about the limit.",
            cpu.utilisation_percent
        ));
    }
    let busy = busy_percent(cpu);
    let evidence = format!(
        "The worker CPUs were {busy:.0} % busy ({:.0} % by the workers themselves; {} of CPU time per I/O).",
        cpu.utilisation_percent,
        show::ns(cpu.user_ns_per_io + cpu.system_ns_per_io)
    );
    match busy {
        busy if busy >= CPU_SURE_PERCENT => Limits(Limit::Cpu, Confidence::Sure, evidence),
        busy if busy >= CPU_BUSY_PERCENT => Limits(Limit::Cpu, Confidence::Likely, evidence),
        _ => RuledOut(evidence),
    }
}

fn busy_percent(cpu: &Cpu) -> f64 {
    cpu.host_busy_percent.unwrap_or(0.0).max(cpu.utilisation_percent)
}

fn is_cpu_bound(workload: &Workload) -> bool {
    workload.outcome.cpu.as_ref().is_some_and(|cpu| busy_percent(cpu) >= CPU_BUSY_PERCENT)
}

fn depth(case: &Case<'_>) -> Ruling {
    let own = case.workload.job.queue_depth_total;
    let peers = peers(case);
    let deeper = peers.iter().filter(|peer| peer.job.queue_depth_total > own);
    let shallower = peers.iter().filter(|peer| peer.job.queue_depth_total < own);
    if let Some(best) = deeper.max_by(|a, b| a.outcome.iops.total_cmp(&b.outcome.iops)) {
        return against_deeper(case.workload, best);
    }
    if let Some(previous) = shallower.max_by_key(|peer| peer.job.queue_depth_total) {
        return against_shallower(case.workload, previous);
    }
    if own == 1 {
        let why = "With one I/O in flight, its latency alone sets the rate.";
        return Limits(Limit::QueueDepth, Confidence::Likely, why.to_owned());
    }
    Silent
}

/// Workloads that differ in depth only; those of the same engine when there are any.
fn peers<'a>(case: &Case<'a>) -> Vec<&'a Workload> {
    let own = &case.workload.job;
    let alike: Vec<&Workload> = case
        .record
        .workloads
        .iter()
        .filter(|peer| {
            let job = &peer.job;
            (job.operation, job.access, job.block_size_bytes, job.read_percent)
                == (own.operation, own.access, own.block_size_bytes, own.read_percent)
                && job.queue_depth_total != own.queue_depth_total
                && peer.outcome.ios > 0
        })
        .collect();
    let same: Vec<&Workload> = alike
        .iter()
        .copied()
        .filter(|peer| (&peer.job.engine, peer.job.polled) == (&own.engine, own.polled))
        .collect();
    if same.is_empty() { alike } else { same }
}

fn against_deeper(workload: &Workload, deeper: &Workload) -> Ruling {
    let gain = deeper.outcome.iops / workload.outcome.iops - 1.0;
    let evidence = format!(
        "Depth {} gives {} IOPS, {:+.0} % against depth {}.",
        deeper.job.queue_depth_total,
        show::count(deeper.outcome.iops),
        gain * 100.0,
        workload.job.queue_depth_total
    );
    if gain > DEPTH_GAIN { Limits(Limit::QueueDepth, Confidence::Sure, evidence) } else { RuledOut(evidence) }
}

fn against_shallower(workload: &Workload, shallower: &Workload) -> Ruling {
    let gain = workload.outcome.iops / shallower.outcome.iops - 1.0;
    let evidence = format!(
        "Against depth {} the rate changed by {:+.0} %, and nothing deeper was measured.",
        shallower.job.queue_depth_total,
        gain * 100.0
    );
    if gain > DEPTH_GAIN {
        Limits(Limit::QueueDepth, Confidence::Likely, evidence)
    } else {
        RuledOut(evidence)
    }
}

fn device(case: &Case<'_>) -> Ruling {
    let (job, outcome) = (&case.workload.job, &case.workload.outcome);
    let mean = outcome.in_flight_mean;
    if mean <= 0.0 || job.detail.as_ref().is_some_and(|detail| detail.low_water.is_some()) {
        // No latency is known, or the queue was to run low before it was filled again.
        return Silent;
    }
    let found = outcome.depth_found.as_ref().map(|found| found.depth_max.saturating_mul(job.workers));
    let asked = found.unwrap_or(job.queue_depth_total);
    let share = mean / f64::from(asked.max(1));
    if found.is_some() && share < IN_FLIGHT_SHARE {
        // The lower depths that a search tries first are in the mean too.
        return Silent;
    }
    let evidence = format!("On average {mean:.1} of {asked} I/Os were in flight");
    if share < IN_FLIGHT_SHARE {
        let evidence =
            format!("{evidence}: the time went into submitting and reaping, though the CPUs were not full.");
        return Limits(Limit::Tool, Confidence::Unsure, evidence);
    }
    let evidence = format!("{evidence}: the device always had its work and set the pace.");
    // A flat ramp proves it, unless the other end of the ramp was flat for want of CPU.
    let flat = peers(case).iter().any(|peer| peer.job.polled || !is_cpu_bound(peer));
    Limits(Limit::Device, if flat { Confidence::Sure } else { Confidence::Likely }, evidence)
}

#[cfg(test)]
mod tests;
