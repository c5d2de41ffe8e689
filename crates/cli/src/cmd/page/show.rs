//! Cells as JSON and in one line: pure functions of what was measured. The tables stand in the report.

use super::{Cell, NodePart, Plan};
use crate::flags::PageBacking;
use anyhow::Result;
use overdrive_base::time::format_ns;
use overdrive_hist::{Estimate, Histogram};
use overdrive_paging::outcome::Latencies;
use overdrive_paging::spec::Spec;
use overdrive_paging::valley;
use serde_json::{Value, json};

/// The percentiles shown, with their names in JSON.
const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999), ("p99_99", 0.9999), ("p99_999", 0.99999)];

/// A cell by what it is.
pub(super) fn name(backing: PageBacking, spec: &Spec) -> String {
    format!("{} {} {} % x{}", backing.name(), spec.pattern, spec.read_ratio_percent, spec.threads)
}

/// What a cell measured, in one line, while the others run.
pub(super) fn result(cell: &Cell) -> String {
    let outcome = &cell.outcome;
    format!(
        "{:.0} pages/s, {:.0} faults/s, mean {}{}",
        outcome.pages_per_s(),
        outcome.faults_per_s(),
        format_ns(outcome.all().mean_ns().unwrap_or(0.0) as u64),
        if outcome.steady == Some(false) { " (fault rate not steady)" } else { "" }
    )
}

/// Everything as JSON.
pub(super) fn json(plan: &Plan, cells: &[Cell], notes: &[String]) -> Result<String> {
    let cost = &plan.cost;
    let document = json!({
        "schema": "overdrive.page/1",
        "own_cost": {
            "timing_ns": cost.timing_ns, "bare_ns": cost.bare_ns, "measured_ns": cost.measured_ns,
            "added_ns": cost.added_ns(),
        },
        "set_bytes": plan.set_bytes,
        "dram_bytes": plan.backings.iter().any(|it| it.has_budget()).then_some(plan.dram_bytes),
        "notes": notes,
        "cells": cells.iter().map(|cell| cell_json(cell, plan)).collect::<Result<Vec<Value>>>()?,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn cell_json(cell: &Cell, plan: &Plan) -> Result<Value> {
    let outcome = &cell.outcome;
    let all = outcome.all();
    let border = outcome.fault_threshold_ns();
    let (hits, faults) = valley::split(&all.histogram, border);
    let alone = |histogram: Histogram| {
        let mut latencies = Latencies { sum_ns: 0, histogram };
        latencies.sum_ns =
            latencies.histogram.mean().map_or(0, |mean| (mean * latencies.histogram.count() as f64) as u128);
        latency_json(&latencies)
    };
    Ok(json!({
        "backing": cell.backing.name(),
        "threads": cell.spec.threads,
        "pattern": cell.spec.pattern.to_string(),
        "read_ratio_percent": cell.spec.read_ratio_percent,
        "repeat": cell.repeat,
        "dram_bytes": cell.backing.has_budget().then_some(plan.dram_bytes),
        "nodes": cell.nodes.iter().map(node_json).collect::<Vec<Value>>(),
        "pages_per_s": outcome.pages_per_s(),
        "faults_per_s": outcome.faults_per_s(),
        "major_faults_per_s": outcome.kernel.map(|kernel| outcome.rate(kernel.major_faults)),
        "fault_threshold_ns": border,
        "latency_ns": latency_json(&all),
        "read_latency_ns": latency_json(&outcome.reads),
        "write_latency_ns": latency_json(&outcome.writes),
        "hit_latency_ns": alone(hits),
        "fault_latency_ns": alone(faults),
        "stalls": serde_json::to_value(&outcome.stalls)?,
        "kernel": serde_json::to_value(outcome.kernel)?,
        "elapsed_ns": outcome.elapsed_ns,
        "warmup_ms": outcome.warmup_ms,
        "steady": outcome.steady,
        "interrupted": outcome.interrupted,
        "spec": serde_json::to_value(&cell.spec)?,
        "read_histogram": outcome.reads.histogram.encode_v2_base64(),
        "write_histogram": outcome.writes.histogram.encode_v2_base64(),
    }))
}

fn node_json(part: &NodePart) -> Value {
    json!({ "node": part.node, "threads": part.threads, "pages_per_s": part.pages_per_s })
}

/// Percentiles without enough samples are null.
fn latency_json(latencies: &Latencies) -> Value {
    let histogram = &latencies.histogram;
    let mut value = json!({
        "samples": histogram.count(),
        "mean": latencies.mean_ns(),
        "min": histogram.min(),
        "max": histogram.max(),
    });
    for (name, q) in QUANTILES {
        value[name] = match histogram.estimate(q) {
            Estimate::Measured { value, .. } => value.into(),
            Estimate::AtLeast(_) | Estimate::Unknown => Value::Null,
        };
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use overdrive_paging::lane::{OwnCost, SimLane};
    use overdrive_paging::run::simulate;

    fn spec(threads: usize) -> Spec {
        let text = format!(
            "{{\"pages\":1000,\"threads\":{threads},\"pattern\":\"uniform\",\"read_ratio_percent\":50,\
             \"write_needs_read\":false,\"compressible_percent\":0,\"offset\":null,\"cold\":true,\
             \"warmup_max_ms\":0,\"runtime_ms\":1000,\"delay_ns\":0,\"seed\":1,\"timing_cost_ns\":0}}"
        );
        serde_json::from_str(&text).unwrap()
    }

    fn cells() -> Vec<Cell> {
        let cell = |backing, threads, fault_ns| {
            let outcome = simulate(&spec(threads), &SimLane::new(500, 100, fault_ns)).unwrap();
            Cell { backing, spec: spec(threads), repeat: 0, outcome, nodes: Vec::new() }
        };
        vec![
            cell(PageBacking::Dram, 1, 100),
            cell(PageBacking::Swap, 1, 19_900),
            cell(PageBacking::Dram, 2, 100),
            cell(PageBacking::Swap, 2, 19_900),
        ]
    }

    fn plan() -> Plan {
        Plan {
            set_bytes: 1000 * 4096,
            dram_bytes: 500 * 4096,
            backings: vec![PageBacking::Dram, PageBacking::Swap],
            specs: vec![spec(1), spec(2)],
            repeats: 1,
            swap: None,
            store: Default::default(),
            cost: OwnCost { timing_ns: 20, bare_ns: 30.0, measured_ns: 60.0 },
            nodes: Vec::new(),
        }
    }

    #[test]
    fn what_is_rendered_is_what_was_measured() {
        let paging = crate::assemble::paging(&plan(), &cells());
        let text =
            overdrive_report::render::text::paging(&paging, &["a note".to_owned()], Default::default());
        assert!(text.contains("2: 2.00x") && text.contains("a note"), "{text}");
        assert!(text.contains("swap/dram") && text.contains("0.01"), "{text}");
        assert!(text.contains("hits only") && text.contains("measuring adds 30 ns"), "{text}");
        assert_eq!(paging.cells[1].latency.as_ref().unwrap().max_ns, 19_900);
    }

    #[test]
    fn a_cell_is_one_object_with_the_promised_keys() {
        let value: Value = serde_json::from_str(&json(&plan(), &cells(), &[]).unwrap()).unwrap();
        let swap = &value["cells"][1];
        for key in [
            "backing",
            "threads",
            "pattern",
            "read_ratio_percent",
            "pages_per_s",
            "faults_per_s",
            "latency_ns",
        ] {
            assert!(!swap[key].is_null(), "{key}");
        }
        assert_eq!(swap["latency_ns"]["max"], 19_900);
        assert!(
            swap["latency_ns"]["p99_999"].is_null()
                || swap["latency_ns"]["samples"].as_u64() >= Some(100_000)
        );
        assert_eq!(value["cells"][0]["faults_per_s"], 0.0);
        let ratio = swap["faults_per_s"].as_f64().unwrap() / swap["pages_per_s"].as_f64().unwrap();
        assert!((ratio - 0.5).abs() < 0.02, "{ratio}");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_reason() {
        use super::super::limits::{Memory, check};
        let memory = Memory { total_bytes: 1 << 30, available_bytes: 1 << 29, swap_free_bytes: 0 };
        let plan = |set_bytes, dram_bytes| Plan { set_bytes, dram_bytes, ..plan() };
        let refusal = |plan: &Plan, memory: &Memory| check(plan, memory).unwrap_err().to_string();
        assert!(refusal(&plan(1 << 30, 1 << 28), &memory).contains("does not fit the backing dram"));
        assert!(refusal(&plan(1 << 28, 1 << 31), &memory).contains("larger than this machine's memory"));
        assert!(refusal(&plan(1 << 28, 1 << 27), &memory).contains("OOM killer"));
        assert!(refusal(&plan(1 << 28, 1 << 20), &memory).contains("wanted at least 8 MiB"));
        let many = Plan { specs: vec![spec(16)], ..plan(1 << 28, 10 << 20) };
        let swapping = Memory { swap_free_bytes: 1 << 29, ..memory };
        assert!(refusal(&many, &swapping).contains("with 16 threads: wanted at least 20 MiB"));
        let some = Memory { swap_free_bytes: 1 << 20, ..memory };
        assert!(refusal(&plan(1 << 28, 1 << 27), &some).contains("does not fit the backing swap"));
        assert!(check(&plan(1 << 27, 1 << 27), &memory).is_ok(), "a set within its budget needs no swap");
    }
}
