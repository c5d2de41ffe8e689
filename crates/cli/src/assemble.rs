//! The one file in which outcomes, host facts and the self-test meet: they leave it as a record.
//!
//! The domain crates do not know one another; here their values are copied into the wire types, and nothing
//! else happens.

mod detail;
pub(crate) mod loads;
mod paging;
mod topology;

pub(crate) use paging::{paging, paging_record};

use crate::exit::Ending;
use crate::guide::Planned;
use crate::open_target::OpenTarget;
use crate::self_test::SelfTest;
use overdrive_hist::Histogram;
use overdrive_host::facts::block::DiskStats;
use overdrive_host::facts::{FactRow, FactState, HostFacts};
use overdrive_host::finding as host;
use overdrive_host::target::{LayerKind, TargetFacts};
use overdrive_io::fill::Filled;
use overdrive_io::job as io;
use overdrive_io::outcome::{Ended, Outcome, Tally};
use overdrive_report::record as wire;
use overdrive_sys::clock::Source;
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};
pub(crate) use topology::topology;

/// A record under way.
#[derive(Debug)]
pub(crate) struct Draft {
    record: wire::Record,
    started: Instant,
}

/// One workload's result, ready to be recorded.
pub(crate) struct Measured<'a> {
    pub(crate) planned: &'a Planned,
    pub(crate) outcome: &'a Outcome,
    /// The disk's own counters before and after.
    pub(crate) device: Option<(DiskStats, DiskStats)>,
    /// The targets' names, in the order of the outcome's parts.
    pub(crate) targets: &'a [String],
}

impl Draft {
    /// A record of a run that starts now on `open`. Until it is complete it counts as cut short: a run that
    /// is killed cannot say so any more.
    pub(crate) fn new(open: &OpenTarget, host: &HostFacts, seed: u64) -> Self {
        let record = wire::Record {
            schema: wire::SCHEMA.to_owned(),
            tool: wire::Tool { name: "overdrive".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
            command: crate::output::command_line(),
            started_at: jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string(),
            elapsed_s: 0.0,
            status: wire::Status::Interrupted,
            seed,
            target: target_of(open, None),
            host: self::host(host),
            findings: Vec::new(),
            self_test: None,
            preconditioning: wire::Preconditioning {
                kind: wire::PreconditioningKind::None,
                bytes_written: None,
                elapsed_s: None,
                never_written_percent: None,
                note: String::new(),
            },
            notes: open.notes.clone(),
            workloads: Vec::new(),
            search: None,
            topology: None,
            paging: None,
        };
        Self { record, started: Instant::now() }
    }

    /// What lies below the target.
    pub(crate) fn set_target(&mut self, open: &OpenTarget, facts: &TargetFacts) {
        self.record.target = target_of(open, Some(facts));
    }

    /// The way from the target's disks to the processors; nothing where none hangs on a PCI device.
    pub(crate) fn set_topology(&mut self, found: &overdrive_host::topology::Topology) {
        self.record.topology = Some(topology(found)).filter(|topology| !topology.vertices.is_empty());
    }

    pub(crate) fn set_findings(&mut self, findings: &[host::Finding]) {
        self.record.findings = findings.iter().map(finding).collect();
    }

    pub(crate) fn set_self_test(&mut self, test: &SelfTest) {
        self.record.self_test = Some(self_test(test));
    }

    pub(crate) fn set_preconditioning(&mut self, preconditioning: wire::Preconditioning) {
        self.record.preconditioning = preconditioning;
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.record.notes.push(note.into());
    }

    pub(crate) fn set_status(&mut self, status: wire::Status) {
        self.record.status = status;
    }

    /// The run is over; how it ended otherwise has been said already.
    pub(crate) fn complete(&mut self, ending: Ending) {
        if matches!(ending, Ending::Done | Ending::BadVerdict) {
            self.record.status = wire::Status::Complete;
        }
    }

    pub(crate) fn set_search(&mut self, search: wire::Search) {
        self.record.search = Some(search);
    }

    pub(crate) fn add(&mut self, measured: &Measured<'_>) {
        self.record.workloads.push(workload(measured));
    }

    /// The record as it stands.
    pub(crate) fn finish(&self) -> wire::Record {
        let mut record = self.record.clone();
        record.elapsed_s = self.started.elapsed().as_secs_f64();
        record
    }
}

fn target_of(open: &OpenTarget, facts: Option<&TargetFacts>) -> wire::Target {
    let disk = facts.and_then(|facts| facts.disks.first());
    let nvme = disk.and_then(|disk| disk.nvme.as_ref());
    wire::Target {
        spec: open.spec.clone(),
        kind: open.kind,
        path: open.path.display().to_string(),
        size_bytes: open.target.size(),
        direct: open.target.is_direct(),
        model: disk.and_then(|disk| disk.model().map(str::to_owned)),
        serial: nvme.and_then(|nvme| nvme.serial.value().cloned()),
        firmware: nvme.and_then(|nvme| nvme.firmware.value().cloned()),
        disk: disk.map(|disk| disk.name().to_owned()),
        layers: facts.map(layers).unwrap_or_default(),
    }
}

fn layers(facts: &TargetFacts) -> Vec<wire::Layer> {
    let mut layers: Vec<wire::Layer> = Vec::new();
    for layer in &facts.layers {
        let mut wire_facts: Vec<wire::Fact> = layer.rows.iter().map(fact).collect();
        if layer.kind == LayerKind::PciDevice {
            wire_facts.extend(link_bandwidth(facts, &layer.name));
        }
        layers.push(wire::Layer {
            kind: layer.kind.name().to_owned(),
            name: layer.name.clone(),
            facts: wire_facts,
        });
    }
    layers
}

/// The link's bandwidth as a plain number, for the verdict's arithmetic.
fn link_bandwidth(facts: &TargetFacts, address: &str) -> Option<wire::Fact> {
    let pcie = facts
        .disks
        .iter()
        .filter_map(|disk| disk.pcie.as_ref())
        .find(|pcie| address.contains(&pcie.address))?;
    Some(wire::Fact {
        id: "link.bandwidth_bytes_per_s".to_owned(),
        label: "Link bandwidth in bytes a second".to_owned(),
        value: Some(pcie.link.now()?.bytes_per_second().to_string()),
        state: wire::FactState::Known,
        why: None,
        path: Some(pcie.folder.clone()),
    })
}

/// A fact as records and the audit show it.
pub(crate) fn fact(row: &FactRow) -> wire::Fact {
    wire::Fact {
        id: row.id.clone(),
        label: row.label.clone(),
        value: row.value.clone(),
        state: match row.state {
            FactState::Known => wire::FactState::Known,
            FactState::Absent => wire::FactState::Absent,
            FactState::Unreadable => wire::FactState::Unreadable,
        },
        why: row.why.clone(),
        path: Some(row.path.clone()).filter(|path| !path.is_empty()),
    }
}

/// SHA-256 over ids and values of the facts that do not change from run to run by themselves.
/// A host's facts and their digest.
pub(crate) fn host(host: &HostFacts) -> wire::Host {
    let facts: Vec<wire::Fact> = host.rows().iter().map(fact).collect();
    wire::Host { digest: digest(&facts), facts }
}

fn digest(facts: &[wire::Fact]) -> String {
    let mut hasher = Sha256::new();
    for fact in facts.iter().filter(|fact| !is_volatile(&fact.id)) {
        hasher.update(format!("{}={:?}\n", fact.id, fact.value));
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Load, free memory, counters: true for a moment only.
fn is_volatile(id: &str) -> bool {
    let counted = ["memory.available", "cpu.idle_states", "cgroup.own", "limits.aio_reserved"].contains(&id);
    counted || id.starts_with("noise.") || (id.starts_with("numa.") && id.ends_with(".memory"))
}

/// A finding as records and the audit show it.
pub(crate) fn finding(finding: &host::Finding) -> wire::Finding {
    wire::Finding {
        rule: finding.rule.to_owned(),
        scope: finding.scope.name().to_owned(),
        title: finding.title.to_owned(),
        status: match finding.status {
            host::Status::Ok => wire::FindingStatus::Ok,
            host::Status::Advice => wire::FindingStatus::Advice,
            host::Status::Problem => wire::FindingStatus::Problem,
            host::Status::Unknown => wire::FindingStatus::Unknown,
            host::Status::NotApplicable => wire::FindingStatus::NotApplicable,
        },
        evidence: finding
            .evidence
            .iter()
            .map(|evidence| wire::Evidence { path: evidence.path.clone(), read: evidence.read.clone() })
            .collect(),
        reason: finding.reason.clone(),
        why: finding.why.to_owned(),
        source: finding.source.to_owned(),
        effect: finding.effect.clone(),
        fix: finding
            .fix
            .as_ref()
            .map(|fix| wire::Fix { now: fix.now.clone(), persistent: fix.persistent.clone() }),
        risk: finding.risk.letter().to_owned(),
        undo: finding.undo.clone(),
        verified: finding.verified,
    }
}

/// What filling a scratch file of `size` bytes came to; it may have been stopped.
pub(crate) fn written(filled: &Filled, size: u64) -> wire::Preconditioning {
    let (kind, note) = if filled.complete {
        let note = "every block was written once with random data before it was read; a drive that needs hours of \
                    writing to reach its steady state was not brought there";
        (wire::PreconditioningKind::Written, note)
    } else {
        (
            wire::PreconditioningKind::None,
            "writing the scratch file was stopped before every block was written",
        )
    };
    let share = filled.bytes as f64 / size.max(1) as f64;
    wire::Preconditioning {
        kind,
        bytes_written: Some(filled.bytes),
        elapsed_s: Some(filled.elapsed.as_secs_f64()),
        never_written_percent: Some(if filled.complete { 0.0 } else { (1.0 - share) * 100.0 }),
        note: note.to_owned(),
    }
}

fn self_test(test: &SelfTest) -> wire::SelfTest {
    let clock = &test.clock;
    wire::SelfTest {
        clock: wire::Clock {
            source: match clock.source {
                Source::Tsc => "tsc".to_owned(),
                Source::MonotonicRaw => "clock_gettime".to_owned(),
            },
            read_cost_ns: clock.read_cost_ns,
            invariant_tsc: clock.invariant_tsc,
            frequency_hz: clock.frequency_hz.map(|hertz| hertz.round() as u64),
        },
        noise: test
            .noise
            .iter()
            .map(|(cpu, floor)| wire::Noise {
                cpu: *cpu as u32,
                observed_s: floor.observed_ns as f64 / 1e9,
                gaps: floor.gaps_ns.len() as u64,
                longest_gap_ns: floor.longest_ns(),
                p99_99_gap_ns: floor.gap_met_once_in_ns(10_000),
                share_lost_percent: floor.share_lost() * 100.0,
            })
            .collect(),
        ring: match &test.ring {
            Ok(outcome) => wire::Ring {
                available: true,
                why_not: None,
                nops_per_s: (outcome.ended == Ended::TimeUp).then(|| outcome.iops()),
                granted: outcome.grants.granted.clone(),
                refused: outcome.grants.refused.clone(),
            },
            Err(error) => wire::Ring {
                available: false,
                why_not: Some(error.to_string()),
                nops_per_s: None,
                granted: Vec::new(),
                refused: Vec::new(),
            },
        },
    }
}

fn workload(measured: &Measured<'_>) -> wire::Workload {
    let Measured { planned, outcome, device, targets } = measured;
    let further = &planned.spec.percentiles[..];
    wire::Workload {
        id: planned.id.clone(),
        title: planned.title.clone(),
        group: planned.group,
        job: job(planned),
        granted: outcome.grants.granted.clone(),
        outcome: wire::Outcome {
            elapsed_s: outcome.elapsed.as_secs_f64(),
            ios: outcome.ios(),
            bytes: outcome.bytes(),
            iops: outcome.iops(),
            bytes_per_s: outcome.per_second(outcome.bytes()),
            errors: errors(outcome),
            short_ios: outcome.short_ios,
            in_flight_mean: outcome.in_flight_mean(),
            moved_bytes: outcome.moved_bytes,
            cpu: outcome.cpu.map(|cpu| cpu_cost(cpu, outcome.ios())),
            read: direction(&outcome.read, outcome, further),
            write: direction(&outcome.write, outcome, further),
            trim: direction(&outcome.trim, outcome, further),
            sync: direction(&outcome.sync, outcome, further),
            series: series(outcome),
            device_ios: device.map(|(before, after)| wire::DeviceIos {
                reads: after.reads.saturating_sub(before.reads),
                writes: after.writes.saturating_sub(before.writes),
                read_bytes: after.read_bytes.saturating_sub(before.read_bytes),
                write_bytes: after.write_bytes.saturating_sub(before.write_bytes),
            }),
            schedule: outcome.schedule.as_ref().map(detail::schedule),
            outliers: detail::outliers(outcome),
            targets: detail::targets(outcome, targets),
            verified: outcome.verified.as_ref().map(detail::verified),
            depth_found: outcome.depth_found.map(detail::depth_found),
            steady: outcome.steady.map(detail::steady),
        },
        verdict: None,
        notes: notes(planned, outcome),
    }
}

fn job(planned: &Planned) -> wire::Job {
    let spec = &planned.spec;
    let (operation, read_percent) = match spec.operation {
        io::Operation::Read => (wire::Operation::Read, 100),
        io::Operation::Write => (wire::Operation::Write, 0),
        io::Operation::Trim => (wire::Operation::Trim, 0),
        io::Operation::Mixed { read_percent } => (wire::Operation::Mixed, read_percent),
    };
    wire::Job {
        operation,
        access: match spec.access {
            io::Access::Random => wire::Access::Random,
            io::Access::Sequential => wire::Access::Sequential,
        },
        block_size_bytes: spec.block_size,
        read_percent,
        engine: spec.engine.name().to_owned(),
        workers: spec.workers,
        queue_depth_per_worker: spec.queue_depth,
        queue_depth_total: spec.workers * spec.queue_depth,
        asked_workers: planned.asked.map(|asked| asked.0),
        asked_depth: planned.asked.map(|asked| asked.1),
        runtime_s: spec.runtime.as_secs_f64(),
        warmup_s: spec.warmup.as_secs_f64(),
        polled: spec.polled,
        detail: detail::job(spec),
    }
}

fn errors(outcome: &Outcome) -> Vec<wire::ErrorCount> {
    let wire_error =
        |(&(direction, errno), error): (&(io::Direction, i32), &overdrive_io::outcome::ErrorCount)| {
            wire::ErrorCount {
                operation: detail::operation(direction),
                errno,
                name: overdrive_sys::errno_name(errno).to_owned(),
                count: error.count,
                first_offset: Some(error.first_offset),
            }
        };
    outcome.errors.iter().map(wire_error).collect()
}

fn cpu_cost(cpu: overdrive_io::outcome::CpuCost, ios: u64) -> wire::Cpu {
    let ns_per_io = |seconds: f64| if ios == 0 { 0.0 } else { seconds * 1e9 / ios as f64 };
    wire::Cpu {
        user_s: cpu.user_s,
        system_s: cpu.system_s,
        user_ns_per_io: ns_per_io(cpu.user_s),
        system_ns_per_io: ns_per_io(cpu.system_s),
        utilisation_percent: cpu.utilisation * 100.0,
        host_busy_percent: Some((cpu.cpus.running + cpu.cpus.interrupts) * 100.0),
        interrupts_percent: Some(cpu.cpus.interrupts * 100.0),
        steal_percent: Some(cpu.cpus.stolen * 100.0),
        voluntary_switches: cpu.voluntary_switches,
        involuntary_switches: cpu.involuntary_switches,
    }
}

fn direction(tally: &Tally, outcome: &Outcome, further: &[f64]) -> Option<wire::Direction> {
    let latency = |histogram| {
        let mut latency = wire::Latency::from_histogram(histogram)?;
        latency.add_percentiles(histogram, further);
        Some(latency)
    };
    Some(wire::Direction {
        ios: tally.ios,
        bytes: tally.bytes,
        iops: outcome.per_second(tally.ios),
        bytes_per_s: outcome.per_second(tally.bytes),
        latency: latency(&tally.latency).or_else(|| (tally.ios > 0).then(|| unknown(&tally.latency)))?,
        response: tally.response.as_ref().and_then(latency),
    })
}

/// The latency of I/Os that finished in the measured time though none of them started in it.
fn unknown(nothing: &Histogram) -> wire::Latency {
    wire::Latency {
        mean_ns: 0.0,
        min_ns: 0,
        max_ns: 0,
        stddev_ns: None,
        percentiles: Vec::new(),
        histogram: nothing.encode_v2_base64(),
    }
}

/// What must be said of a workload besides what was planned.
fn notes(planned: &Planned, outcome: &Outcome) -> Vec<String> {
    let tallies = [&outcome.read, &outcome.write, &outcome.trim];
    let none_known = tallies.iter().any(|tally| tally.ios > 0 && tally.latency.count() == 0);
    let told = none_known.then(|| {
        "no I/O that started in the measured time finished: rates are of those that had started before, and no \
         latency is known"
            .to_owned()
    });
    planned.notes.iter().cloned().chain(told).collect()
}

fn series(outcome: &Outcome) -> Vec<wire::Slice> {
    let at_s =
        |index: usize| (outcome.slice * (index as u32 + 1)).min(outcome.elapsed.max(Duration::from_nanos(1)));
    outcome
        .series
        .iter()
        .enumerate()
        .map(|(index, slice)| wire::Slice {
            at_s: at_s(index).as_secs_f64(),
            ios: slice.ios,
            bytes: slice.bytes,
            max_ns: slice.max_ns,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_counts_also_when_no_latency_is_known() {
        use overdrive_io::engine::sim::SimSpec;
        use overdrive_io::run::{Setting, run};
        use overdrive_io::target::Target;
        let target = Target::simulated(SimSpec::default());
        let engine = overdrive_io::engine::EngineKind::Sim(SimSpec::default());
        let spec = io::JobSpec { engine, number_ios: Some(10), ..io::JobSpec::default() };
        let setting = Setting {
            cpus: Vec::new(),
            clock: overdrive_sys::clock::Clock::calibrate(Duration::from_millis(2)),
            stop: std::sync::Arc::default(),
            live: false,
        };
        let job = spec.check(target.size()).unwrap();
        let outcome = run(&job, &[target], &setting, |_, _| ()).unwrap();
        let known = direction(&outcome.read, &outcome, &[]).unwrap();
        assert!(known.ios == 10 && known.latency.mean_ns > 0.0);
        let tally = Tally { latency: Histogram::new(), ..outcome.read.clone() };
        let unknown = direction(&tally, &outcome, &[]).unwrap();
        assert_eq!((unknown.ios, unknown.bytes, unknown.iops), (10, 40_960, known.iops));
        assert!(unknown.latency.percentiles.is_empty() && unknown.latency.max_ns == 0);
        assert_eq!(direction(&outcome.write, &outcome, &[]), None, "none was done");
    }

    #[test]
    fn a_stopped_fill_is_not_told_as_written() {
        let filled = |bytes, complete| Filled { bytes, elapsed: Duration::from_secs(1), complete };
        let whole = written(&filled(1 << 20, true), 1 << 20);
        assert_eq!(
            (whole.kind, whole.never_written_percent),
            (wire::PreconditioningKind::Written, Some(0.0))
        );
        let part = written(&filled(1 << 18, false), 1 << 20);
        assert_eq!((part.kind, part.never_written_percent), (wire::PreconditioningKind::None, Some(75.0)));
        assert_eq!((part.bytes_written, part.note.contains("was stopped")), (Some(1 << 18), true));
    }
}
