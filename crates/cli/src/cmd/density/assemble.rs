//! Where what was measured, the plan and the host's facts meet: they leave as a record of density.

use super::Outcome;
use super::plan::{Plan, swap_bytes};
use crate::assemble;
use overdrive_density::cost::{Prices, Server, compare};
use overdrive_density::keys::Keys;
use overdrive_density::load::Served;
use overdrive_density::objective::Figure;
use overdrive_density::trial::{Judge, Trial};
use overdrive_hist::Histogram;
use overdrive_host::facts::HostFacts;
use overdrive_host::root::Root;
use overdrive_report::density as wire;
use overdrive_report::record::{Status, Tool};
use overdrive_sys::memory_group::GroupCounters;
use std::time::Duration;

/// The backing that the others' costs are compared with.
const DRAM: &str = "dram";

pub(super) fn status(stopped: bool, failure: Option<&anyhow::Error>) -> Status {
    match failure {
        _ if stopped => Status::Interrupted,
        Some(failure) => Status::Failed { reason: format!("{failure:#}") },
        None => Status::Complete,
    }
}

pub(super) fn record(
    plan: &Plan,
    outcomes: &[Outcome],
    notes: Vec<String>,
    status: Status,
    elapsed: Duration,
) -> wire::DensityRecord {
    let limits = plan.trial.objective.limits.iter();
    let limit =
        |(figure, limit_ns): &(Figure, u64)| wire::Limit { figure: figure.to_string(), limit_ns: *limit_ns };
    let classes = plan.classes.iter();
    wire::DensityRecord {
        schema: wire::SCHEMA.to_owned(),
        tool: Tool { name: "overdrive".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        command: crate::output::command_line(),
        started_at: started_at(elapsed),
        elapsed_s: elapsed.as_secs_f64(),
        status,
        seed: plan.load.seed,
        host: assemble::host(&HostFacts::read(&Root::new("/"), Duration::ZERO)),
        kind: plan.kind.name().to_owned(),
        instance: plan.kind.describe(),
        load: load(plan),
        objective: limits.map(limit).collect(),
        judge: if plan.trial.judge == Judge::Each { "each" } else { "fleet" }.to_owned(),
        dram_bytes: plan.dram_bytes,
        swap_bytes: swap_bytes(plan),
        price_ratio: plan.price_ratio,
        classes: classes.map(|one| wire::Class { name: one.name.clone(), ratio: one.ratio }).collect(),
        notes,
        backings: outcomes.iter().map(|outcome| backing(plan, outcomes, outcome)).collect(),
    }
}

fn started_at(elapsed: Duration) -> String {
    let now = jiff::Timestamp::now();
    let start =
        jiff::SignedDuration::try_from(elapsed).ok().and_then(|elapsed| now.checked_sub(elapsed).ok());
    start.unwrap_or(now).round(jiff::Unit::Second).unwrap_or_default().to_string()
}

fn load(plan: &Plan) -> wire::Load {
    let load = &plan.load;
    wire::Load {
        records: load.records,
        value_bytes: load.value_bytes as u64,
        rate_per_s: load.rate_per_s,
        get_percent: load.get_percent,
        influence: load.influence,
        hot_quarter_percent: Keys::new(load.records, load.influence).share_within(0.25) * 100.0,
        warmup_s: plan.trial.warmup.as_secs_f64(),
        runtime_s: plan.trial.runtime.as_secs_f64(),
        iterations: plan.trial.iterations,
        threads: load.threads as u64,
    }
}

/// The server of a backing, as far as its memory goes: SSD for what the instances held need beyond DRAM.
fn server(plan: &Plan, outcomes: &[Outcome], outcome: &Outcome) -> Option<Server> {
    let trials = outcomes.iter().flat_map(|outcome| &outcome.trials);
    // The largest: where the kernel does not tell what a group has in swap, those on DRAM say it.
    let each_bytes = trials.filter_map(|trial| trial.footprint_bytes).max()?;
    let dram_bytes = plan.dram_bytes?;
    let ssd_bytes = (each_bytes * u64::from(outcome.held)).saturating_sub(dram_bytes);
    let has_drive = outcome.name != DRAM;
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    (outcome.held > 0).then(|| Server {
        dram_gib: gib(dram_bytes),
        ssd_gib: if has_drive { gib(ssd_bytes) } else { 0.0 },
        other_cost: 0.0,
        instances: Some(outcome.held),
    })
}

fn cost_each(plan: &Plan, outcomes: &[Outcome], outcome: &Outcome) -> Option<f64> {
    let prices = Prices::of_ratio(plan.price_ratio?);
    let alone = outcomes.iter().find(|outcome| outcome.name == DRAM)?;
    let (alone, this) = (server(plan, outcomes, alone)?, server(plan, outcomes, outcome)?);
    compare(&alone, &this, &prices).ok()?.relative_cost_per_instance
}

fn backing(plan: &Plan, outcomes: &[Outcome], outcome: &Outcome) -> wire::Backing {
    let edge =
        outcome.failed.and_then(|failed| outcome.trials.iter().find(|trial| trial.instances == failed));
    wire::Backing {
        name: outcome.name.to_owned(),
        searched: outcome.searched,
        held: outcome.held,
        failed: outcome.failed,
        edge: edge.map(|trial| trial.verdict.to_string()),
        ssd_bytes: server(plan, outcomes, outcome)
            .map(|server| (server.ssd_gib * f64::from(1 << 30)).round() as u64),
        cost_each: cost_each(plan, outcomes, outcome),
        trials: outcome.trials.iter().map(|one| trial(plan, outcome, one)).collect(),
    }
}

fn trial(plan: &Plan, outcome: &Outcome, trial: &Trial) -> wire::Trial {
    wire::Trial {
        instances: trial.instances,
        held: trial.held(),
        verdict: trial.verdict.to_string(),
        fill_s: trial.fill.as_secs_f64(),
        measured: (!trial.measured.served.is_empty()).then(|| measured(plan, outcome, trial)),
    }
}

fn measured(plan: &Plan, outcome: &Outcome, trial: &Trial) -> wire::Measured {
    let (all, measured) = (trial.measured.fleet(), &trial.measured);
    let class_of = |at: usize| {
        let names = &outcome.classes;
        (!names.is_empty()).then(|| names[at % names.len()].clone())
    };
    let instance = |(at, one): (usize, &Served)| wire::Instance {
        class: class_of(at),
        latency: figures(&one.latency),
        unanswered: one.unanswered,
        errors: one.errors,
    };
    let iteration = |one: &overdrive_density::trial::Iteration| wire::Figures {
        samples: one.samples,
        avg_ns: one.figures_ns[0],
        p50_ns: one.figures_ns[1],
        p95_ns: one.figures_ns[2],
        p99_ns: one.figures_ns[3],
        p99_9_ns: one.figures_ns[4],
        max_ns: one.figures_ns[5],
    };
    let (disk, disk_busy_percent) = trial.spent.disk.clone().unzip();
    wire::Measured {
        asked_per_s: plan.load.rate_per_s * f64::from(trial.instances),
        sent_per_s: measured.sent_per_s(),
        answered_per_s: measured.answered_per_s(),
        latency: figures(&all),
        histogram: all.encode_v2_base64(),
        gets: figures(&measured.gets),
        sets: figures(&measured.sets),
        service: figures(&measured.service),
        late: figures(&measured.late),
        iterations: trial.iterations.iter().map(iteration).collect(),
        instances: measured.served.iter().enumerate().map(instance).collect(),
        classes: classes(plan, trial),
        cpu_percent: trial.spent.cpu_percent,
        stolen_percent: trial.spent.stolen_percent,
        swap_in_bytes_per_s: trial.spent.swap_in_bytes_per_s,
        swap_out_bytes_per_s: trial.spent.swap_out_bytes_per_s,
        disk,
        disk_busy_percent,
        footprint_bytes: trial.footprint_bytes,
        group: trial.counters.as_ref().map(group),
    }
}

fn classes(plan: &Plan, trial: &Trial) -> Vec<wire::ClassMeasured> {
    let count = plan.classes.len();
    let class = |(at, (class, counters)): (usize, (&overdrive_density::fleet::Class, &GroupCounters))| {
        let members = trial.measured.served.iter().skip(at).step_by(count);
        let mut latency = Histogram::new();
        members.clone().for_each(|one| latency.merge(&one.latency));
        wire::ClassMeasured {
            name: class.name.clone(),
            instances: members.count() as u32,
            latency: figures(&latency),
            group: group(counters),
        }
    };
    plan.classes.iter().zip(&trial.class_counters).enumerate().map(class).collect()
}

fn figures(histogram: &Histogram) -> wire::Figures {
    let percentile = |percentile: f64| Figure::Percentile(percentile).of(histogram);
    wire::Figures {
        samples: histogram.count(),
        avg_ns: Figure::Average.of(histogram),
        p50_ns: percentile(50.0),
        p95_ns: percentile(95.0),
        p99_ns: percentile(99.0),
        p99_9_ns: percentile(99.9),
        max_ns: Figure::Max.of(histogram),
    }
}

fn group(counters: &GroupCounters) -> wire::Group {
    wire::Group {
        limit_bytes: counters.limit_bytes,
        usage_bytes: counters.usage_bytes,
        usage_max_bytes: counters.usage_max_bytes,
        swap_bytes: counters.swap_bytes,
        limit_hits: counters.limit_hits,
        oom_kills: counters.oom_kills,
    }
}
