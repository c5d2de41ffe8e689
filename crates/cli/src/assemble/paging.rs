//! A paging run copied into the wire types.

use super::{digest, fact};
use crate::cmd::page::{Cell, Plan};
use overdrive_host::facts::HostFacts;
use overdrive_paging::outcome::{KernelCounts, Latencies};
use overdrive_report::record as wire;
use std::time::Duration;

/// The cells as they are rendered and stored.
pub(crate) fn paging(plan: &Plan, cells: &[Cell]) -> wire::Paging {
    let has_budget = plan.backings.iter().any(|backing| backing.has_budget());
    wire::Paging {
        set_bytes: plan.set_bytes,
        dram_bytes: has_budget.then_some(plan.dram_bytes),
        timing_ns: plan.cost.timing_ns,
        bare_ns: plan.cost.bare_ns,
        measured_ns: plan.cost.measured_ns,
        cells: cells.iter().map(cell).collect(),
    }
}

fn cell(cell: &Cell) -> wire::PagingCell {
    let outcome = &cell.outcome;
    wire::PagingCell {
        backing: cell.backing.name().to_owned(),
        threads: cell.spec.threads as u32,
        pattern: cell.spec.pattern.to_string(),
        read_ratio_percent: cell.spec.read_ratio_percent,
        repeat: cell.repeat as u32,
        pages_per_s: outcome.pages_per_s(),
        faults_per_s: outcome.faults_per_s(),
        major_faults_per_s: outcome.kernel.map(|kernel| outcome.rate(kernel.major_faults)),
        fault_threshold_ns: outcome.fault_threshold_ns(),
        latency: latency(&outcome.all()),
        read: latency(&outcome.reads),
        write: latency(&outcome.writes),
        stalls: outcome.stalls.count,
        stalled_ns: outcome.stalls.total_ns,
        elapsed_s: outcome.elapsed_ns as f64 / 1e9,
        warmup_s: outcome.warmup_ms as f64 / 1e3,
        steady: outcome.steady,
        kernel: outcome.kernel.map(counts),
        nodes: nodes(cell),
    }
}

fn nodes(cell: &Cell) -> Option<Vec<wire::PagingNode>> {
    let part = |part: &crate::cmd::page::NodePart| wire::PagingNode {
        node: part.node,
        threads: part.threads as u32,
        pages_per_s: part.pages_per_s,
    };
    (!cell.nodes.is_empty()).then(|| cell.nodes.iter().map(part).collect())
}

/// The mean is the exact one: the histogram's own has its buckets' width.
fn latency(latencies: &Latencies) -> Option<wire::Latency> {
    let mut latency = wire::Latency::from_histogram(&latencies.histogram)?;
    latency.mean_ns = latencies.mean_ns()?;
    Some(latency)
}

fn counts(kernel: KernelCounts) -> wire::PagingCounts {
    wire::PagingCounts {
        major_faults: kernel.major_faults,
        minor_faults: kernel.minor_faults,
        swap_ins: kernel.swap_ins,
        swap_outs: kernel.swap_outs,
        refaults: kernel.refaults,
        stalled_some_us: kernel.stalled_some_us,
        stalled_full_us: kernel.stalled_full_us,
    }
}

/// A paging run as a record.
pub(crate) fn paging_record(
    paging: wire::Paging,
    host: &HostFacts,
    seed: u64,
    notes: &[String],
    status: wire::Status,
    took: Duration,
) -> wire::Record {
    let facts: Vec<wire::Fact> = host.rows().iter().map(fact).collect();
    let now = jiff::Timestamp::now();
    let started = now.checked_sub(jiff::SignedDuration::try_from(took).unwrap_or_default()).unwrap_or(now);
    wire::Record {
        schema: wire::SCHEMA.to_owned(),
        tool: wire::Tool { name: "overdrive".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        command: crate::output::command_line(),
        started_at: started.round(jiff::Unit::Second).unwrap_or_default().to_string(),
        elapsed_s: took.as_secs_f64(),
        status,
        seed,
        target: wire::Target {
            spec: "memory".to_owned(),
            kind: wire::TargetKind::Memory,
            path: "memory".to_owned(),
            size_bytes: paging.set_bytes,
            direct: false,
            model: None,
            serial: None,
            firmware: None,
            disk: None,
            layers: Vec::new(),
        },
        host: wire::Host { digest: digest(&facts), facts },
        findings: Vec::new(),
        topology: None,
        search: None,
        paging: Some(paging),
        self_test: None,
        preconditioning: wire::Preconditioning {
            kind: wire::PreconditioningKind::None,
            bytes_written: None,
            elapsed_s: None,
            never_written_percent: None,
            note: String::new(),
        },
        notes: notes.to_vec(),
        workloads: Vec::new(),
    }
}
