//! How numbers and states are spelled, the same in every rendering.

use crate::record::{
    Access, Confidence, Cpu, Direction, FindingStatus, Group, Host, Job, Limit, Operation, Outcome,
    Percentile, PreconditioningKind, Record, SelfTest, Status, TargetKind, Workload,
};
use overdrive_base::time::three_digits;

/// A plain count with three digits and a unit of thousand: `950`, `94.3 k`, `1.15 M`.
pub(crate) fn count(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v < 999.5 => return format!("{value:.0}"),
        v if v < 999.5e3 => (value / 1e3, " k"),
        v if v < 999.5e6 => (value / 1e6, " M"),
        _ => (value / 1e9, " G"),
    };
    format!("{}{unit}", three_digits(scaled))
}

/// A whole count with its thousands set apart: `15 120 000`.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    String::from_utf8_lossy(&groups.join(&b' ')).into_owned()
}

/// GiB a second, three digits, no unit.
pub(crate) fn gib_per_s(bytes_per_s: f64) -> String {
    let value = bytes_per_s / (1u64 << 30) as f64;
    if value < 1.0 { format!("{value:.3}") } else { three_digits(value) }
}

/// GB (10^9 bytes) a second, no unit, as links are spoken of: `0.99`, `7.20`, `39.4`.
pub(crate) fn gb_per_s(bytes_per_s: u64) -> String {
    let value = bytes_per_s as f64 / 1e9;
    if value < 1.0 { format!("{value:.2}") } else { three_digits(value) }
}

/// Microseconds, three digits, no unit: `0.85`, `7.57`, `135`, `3910`.
pub(crate) fn us(nanoseconds: f64) -> String {
    three_digits(nanoseconds / 1e3)
}

/// A duration in nanoseconds with its unit.
pub(crate) fn ns(nanoseconds: f64) -> String {
    overdrive_base::time::format_ns(nanoseconds.max(0.0).round() as u64).replace(" us", " µs")
}

/// A percentile's value in microseconds, its lower bound, or a dash when nothing is known.
pub(crate) fn percentile_us(percentile: Option<&Percentile>) -> String {
    let Some(p) = percentile else { return "-".to_owned() };
    match (p.value_ns, p.at_least_ns) {
        (Some(value), _) => us(value as f64),
        (None, Some(bound)) => format!("≥{}", us(bound as f64)),
        (None, None) => "-".to_owned(),
    }
}

/// From here on a latency in a wide table is told in milliseconds, marked so; nanoseconds.
const TOLD_IN_MS_NS: u64 = 10_000_000;

/// A latency for a table with many columns: microseconds without a unit, or milliseconds with it.
pub(crate) fn us_or_ms(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    if nanoseconds < TOLD_IN_MS_NS { us(value) } else { format!("{} ms", us(value / 1e3)) }
}

/// The 95 % interval of a percentile in the unit its value is told in: `8.9–9.1`, open on a side as `8.9–?`.
pub(crate) fn interval(percentile: &Percentile) -> Option<String> {
    let scale = if percentile.value_ns? < TOLD_IN_MS_NS { 1.0 } else { 1e3 };
    let end = |end_ns: Option<u64>| end_ns.map_or_else(|| "?".to_owned(), |ns| us(ns as f64 / scale));
    let known = percentile.low_ns.or(percentile.high_ns).is_some();
    known.then(|| format!("{}–{}", end(percentile.low_ns), end(percentile.high_ns)))
}

/// How many times as much: `1.02×`.
pub(crate) fn ratio(value: f64) -> String {
    if value >= 0.995 { format!("{}×", three_digits(value)) } else { format!("{value:.2}×") }
}

/// What limited a workload, for a cell.
pub(crate) fn limit(limit: Limit) -> &'static str {
    match limit {
        Limit::Device => "device",
        Limit::Cpu => "CPU",
        Limit::Link => "link",
        Limit::Tool => "tool",
        Limit::QueueDepth => "queue depth",
        Limit::HostNoise => "host noise",
        Limit::Pace => "the pace asked for",
        Limit::Unknown => "unknown",
    }
}

/// How sure a verdict is.
pub(crate) fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Sure => "sure",
        Confidence::Likely => "likely",
        Confidence::Unsure => "unsure",
    }
}

/// How a finding stands.
pub(crate) fn finding(status: FindingStatus) -> &'static str {
    match status {
        FindingStatus::Problem => "problem",
        FindingStatus::Advice => "advice",
        FindingStatus::Unknown => "unknown",
        FindingStatus::Ok => "ok",
        FindingStatus::NotApplicable => "not applicable",
    }
}

/// How a run ended, when it did not end well.
pub(crate) fn trouble(status: &Status) -> Option<String> {
    match status {
        Status::Complete => None,
        Status::Interrupted => {
            Some("The run was interrupted: what follows is what was measured until then.".to_owned())
        }
        Status::Failed { reason } => {
            Some(format!("The run failed: {reason}. What follows is what was measured until then."))
        }
    }
}

/// A job in a few words: `4 KiB random read`.
pub(crate) fn shape(job: &Job) -> String {
    let size = overdrive_base::size::format_size(job.block_size_bytes);
    let access = match job.access {
        Access::Random => "random",
        Access::Sequential => "sequential",
    };
    let operation = match job.operation {
        Operation::Read => "read".to_owned(),
        Operation::Write => "write".to_owned(),
        Operation::Trim => "trim".to_owned(),
        Operation::Sync => "sync".to_owned(),
        Operation::Mixed => {
            format!("{}/{} read/write", job.read_percent, 100_u8.saturating_sub(job.read_percent))
        }
    };
    format!("{size} {access} {operation}")
}

/// The engine and how it waits: `io_uring`, `pvsync2 polled`.
pub(crate) fn engine(job: &Job) -> String {
    format!("{}{}", job.engine, if job.polled { " polled" } else { "" })
}

/// The host in one line, of the facts that say most about it.
pub(crate) fn host(host: &Host) -> Option<String> {
    let value = |id: &str| host.facts.iter().find(|fact| fact.id == id)?.value.as_deref();
    let guest =
        || value("platform.virtual").filter(|guest| *guest == "yes").map(|_| "a virtual machine".to_owned());
    let parts = [
        value("cpu.model").map(str::to_owned),
        value("cpu.online").map(|cpus| format!("CPUs {cpus}")),
        value("memory.total").map(|total| format!("{total} of memory")),
        value("kernel.release").map(|release| format!("kernel {release}")),
        value("platform.hypervisor").map(|name| format!("under {name}")).or_else(guest),
    ];
    let known: Vec<String> = parts.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join(", "))
}

/// The risk class of a fix in words.
pub(crate) fn risk(class: &str) -> String {
    let words = match class {
        "A" => "safe; at worst power or comfort",
        "B" => "has side effects",
        "C" => "destructive, or touches security or hardware: advice only",
        _ => return class.to_owned(),
    };
    format!("{class}: {words}")
}

/// How often the workers left their CPU, a second.
pub(crate) fn switches_per_s(outcome: &Outcome) -> String {
    let switches = |cpu: &Cpu| cpu.voluntary_switches.saturating_add(cpu.involuntary_switches) as f64;
    let rate = |cpu: &Cpu| count(switches(cpu) / outcome.elapsed_s.max(f64::MIN_POSITIVE));
    outcome.cpu.as_ref().map_or_else(|| "-".to_owned(), rate)
}

/// The directions a workload has, with their names.
pub(crate) fn directions(workload: &Workload) -> impl Iterator<Item = (&'static str, &Direction)> {
    let outcome = &workload.outcome;
    [
        ("read", outcome.read.as_ref()),
        ("write", outcome.write.as_ref()),
        ("trim", outcome.trim.as_ref()),
        ("sync", outcome.sync.as_ref()),
    ]
    .into_iter()
    .filter_map(|(name, direction)| Some((name, direction?)))
}

/// Whether a workload has several directions, so that each must be named.
pub(crate) fn several_directions(workload: &Workload) -> bool {
    workload.job.operation == Operation::Mixed || directions(workload).count() > 1
}

/// The name of one I/O's operation.
pub(crate) fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "read",
        Operation::Write => "write",
        Operation::Mixed => "read or write",
        Operation::Trim => "trim",
        Operation::Sync => "sync",
    }
}

/// The name of a workload within its group: what tells it from its neighbours there.
pub(crate) fn short_name(workload: &Workload) -> String {
    let job = &workload.job;
    match workload.group {
        Group::Sequential => {
            let operation = if job.operation == Operation::Write { "write" } else { "read" };
            format!("{} {operation}", overdrive_base::size::format_size(job.block_size_bytes))
        }
        Group::Qd1 => engine(job),
        Group::Set => workload.title.clone(),
        _ => format!("{} {}", engine(job), layout(job)),
    }
}

/// The heading of a group of workloads.
pub(crate) fn group_name(group: Group, first: &Workload) -> String {
    let depth = first.job.queue_depth_total;
    match group {
        Group::Ramp => format!("{}: the ramp of workers and depth", shape(&first.job)),
        Group::Sequential => format!("Sequential throughput, queue depth {depth}"),
        Group::Set => "Jobs".to_owned(),
        _ => format!("{}, queue depth {depth}", shape(&first.job)),
    }
}

/// The workloads of each group that has any, groups in the guide's order.
pub(crate) fn groups(record: &Record) -> Vec<(Group, Vec<&Workload>)> {
    use Group::{Mixed, Qd1, Ramp, RandomWrite, Sequential, Set, Single};
    [Qd1, Ramp, RandomWrite, Mixed, Sequential, Single, Set]
        .into_iter()
        .map(|group| (group, record.workloads.iter().filter(|workload| workload.group == group).collect()))
        .filter(|(_, workloads): &(Group, Vec<&Workload>)| !workloads.is_empty())
        .collect()
}

/// The target in one line: `scratch file, 4 GiB, O_DIRECT, on vda`.
pub(crate) fn target(record: &Record) -> String {
    let target = &record.target;
    let kind = match target.kind {
        TargetKind::ScratchFile => "scratch file",
        TargetKind::File => "file",
        TargetKind::BlockDevice => "block device",
        TargetKind::Sim => "simulated device",
        TargetKind::Memory => "memory",
    };
    let direct = match target.kind {
        TargetKind::Sim => "in virtual time",
        TargetKind::Memory => "page by page",
        _ if target.direct => "O_DIRECT",
        _ => "through the page cache",
    };
    let disk = target.disk.as_ref().map(|disk| format!(", on {disk}")).unwrap_or_default();
    format!("{kind}, {}, {direct}{disk}", overdrive_base::size::format_size(target.size_bytes))
}

/// The drive in one line, or that it names no model.
pub(crate) fn drive(record: &Record) -> String {
    let target = &record.target;
    let mut parts = vec![target.model.clone().unwrap_or_else(|| "no model named".to_owned())];
    parts.extend(target.firmware.as_ref().map(|firmware| format!("firmware {firmware}")));
    parts.extend(target.serial.as_ref().map(|serial| format!("serial {serial}")));
    parts.join(", ")
}

/// What was done to the target before measuring, in one line.
pub(crate) fn preconditioning(record: &Record) -> String {
    let prepared = &record.preconditioning;
    let size = overdrive_base::size::format_size;
    let part =
        prepared.bytes_written.filter(|&bytes| bytes > 0 && prepared.kind == PreconditioningKind::None);
    let mut line = match prepared.kind {
        PreconditioningKind::None if part.is_some() => "written in part",
        PreconditioningKind::Written => "written in full before reading",
        PreconditioningKind::AlreadyWritten => "found written in full",
        PreconditioningKind::Sampled => "not written; blocks were sampled",
        PreconditioningKind::None => "nothing was done",
    }
    .to_owned();
    if let Some(bytes) = part {
        line += &format!(": {} of {}", size(bytes), size(record.target.size_bytes));
    } else if let Some(bytes) = prepared.bytes_written {
        line += &format!(", {}", size(bytes));
    }
    if let Some(elapsed_s) = prepared.elapsed_s {
        line += &format!(" in {elapsed_s:.1} s");
    }
    if let Some(percent) = prepared.never_written_percent {
        line += &format!(", {percent:.0} % never written");
    }
    if prepared.note.is_empty() { line } else { format!("{line}. {}", prepared.note) }
}

/// What the self-test found, one line each for clock, noise and ring.
pub(crate) fn self_test(test: &SelfTest) -> [String; 3] {
    let constant = if test.clock.invariant_tsc { "constant rate" } else { "rate not promised constant" };
    let clock = format!("{}, {:.1} ns a reading, {constant}", test.clock.source, test.clock.read_cost_ns);
    let worst = test.noise.iter().max_by_key(|noise| noise.longest_gap_ns);
    let noise = worst.map_or_else(
        || "not measured".to_owned(),
        |noise| {
            format!(
                "gaps up to {} (CPU {}; 99.99 % within {}; {:.2} % of time lost)",
                ns(noise.longest_gap_ns as f64),
                noise.cpu,
                ns(noise.p99_99_gap_ns as f64),
                noise.share_lost_percent
            )
        },
    );
    let ring = match (test.ring.available, test.ring.nops_per_s) {
        (true, Some(nops)) => format!("{} NOPs a second on one CPU", count(nops)),
        (true, None) => "available, ceiling not measured".to_owned(),
        (false, _) => format!("not available: {}", test.ring.why_not.as_deref().unwrap_or("no reason given")),
    };
    [clock, noise, ring]
}

/// Workers times depth, as run: `8x16`.
pub(crate) fn layout(job: &Job) -> String {
    format!("{}x{}", job.workers, job.queue_depth_per_worker)
}

/// Workers times depth as asked, when it ran otherwise.
pub(crate) fn asked_layout(job: &Job) -> String {
    let workers = job.asked_workers.unwrap_or(job.workers);
    format!("{workers}x{}", job.asked_depth.unwrap_or(job.queue_depth_per_worker))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spelled_with_three_digits() {
        assert_eq!(
            ["950", "94.3 k", "126 k", "1.15 M", "1.00 k"].map(str::to_owned),
            [count(950.2), count(94_300.0), count(126_000.0), count(1.15e6), count(999.9)]
        );
        assert_eq!(
            (us(850.0), us(7_570.0), us(3.91e6)),
            ("0.85".to_owned(), "7.57".to_owned(), "3910".to_owned())
        );
        assert_eq!((grouped(15_120_000), grouped(999)), ("15 120 000".to_owned(), "999".to_owned()));
        assert_eq!(
            (ratio(1.0), ratio(0.161), ratio(4.2)),
            ("1.00×".to_owned(), "0.16×".to_owned(), "4.20×".to_owned())
        );
    }

    #[test]
    fn a_target_that_was_written_in_part_is_no_untouched_one() {
        let mut record = crate::fixtures::interrupted();
        record.preconditioning.kind = PreconditioningKind::None;
        record.preconditioning.bytes_written = Some(3 << 30);
        record.preconditioning.never_written_percent = Some(25.0);
        let line = preconditioning(&record);
        assert!(line.starts_with("written in part: 3 GiB of 4 GiB in 3.4 s, 25 % never written"), "{line}");
        record.preconditioning.bytes_written = Some(0);
        assert!(preconditioning(&record).starts_with("nothing was done, 0 B in"));
    }

    #[test]
    fn too_few_samples_show_the_bound() {
        let mut p = Percentile {
            percentile: 99.9,
            value_ns: Some(9_000),
            low_ns: Some(8_900),
            high_ns: None,
            at_least_ns: None,
        };
        assert_eq!(percentile_us(Some(&p)), "9.00");
        assert_eq!(interval(&p).as_deref(), Some("8.90–?"));
        let slow = Percentile { value_ns: Some(20_000_000), high_ns: Some(31_000_000), ..p.clone() };
        assert_eq!(
            (us_or_ms(20_000_000), interval(&slow)),
            ("20.0 ms".to_owned(), Some("0.01–31.0".to_owned()))
        );
        p.value_ns = None;
        p.at_least_ns = Some(12_000);
        assert_eq!(percentile_us(Some(&p)), "≥12.0");
        assert_eq!(interval(&p), None);
        assert_eq!(percentile_us(None), "-");
    }
}
