//! `cargo xtask bench-page`: swap against DRAM in one run of `overdrive page`, held to what measuring may
//! cost and to how two threads must scale.
//!
//! Figures are read from the command's JSON, as any other program would read them. The command takes its
//! control group and swap file down itself, also when it is interrupted.

use crate::options;
use crate::stats::Spread;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::process::{Command, ExitCode, Stdio};

const HELP: &str = "\
cargo xtask bench-page [OPTIONS]

Sets swap up as overdrive swap on does, on a file made for the run (needs root), measures 1, 4 and 16 threads
x uniform, normal-ih and linear on DRAM and on that swap, takes it away with overdrive swap off (do that by
hand after a kill), prints the table of ratios, then one and two threads on DRAM alone for the bars.

  --dir DIR            where the swap file goes (default: the current folder)
  --set SIZE           the set (default 1GiB)
  --dram SIZE          its budget on swap (default 512MiB)
  --swap-size SIZE     size of the swap file (default 1280MiB)
  --runtime TIME       how long each cell is measured (default 3s)
  --overdrive PATH     the binary (default: target/release/overdrive)

Exit: 0 every bar is met, 1 a bar is short, 2 wrong use, 3 a run failed.";

/// What measuring may add to a bare access, in nanoseconds.
const ADDED_NS_MAX: f64 = 40.0;

/// Two threads on DRAM against one: what is missing is lost in the loop, or taken by others on the machine.
const SCALE_MIN: f64 = 1.9;

/// Runs the bench.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let options = [
        ("--dir", "."),
        ("--set", "1GiB"),
        ("--dram", "512MiB"),
        ("--runtime", "3s"),
        ("--swap-size", "1280MiB"),
        ("--overdrive", "target/release/overdrive"),
    ];
    let [dir, set, dram, runtime, size, binary] = match options::parse("bench-page", HELP, options, arguments)
    {
        Ok(values) => values,
        Err(code) => return Ok(code),
    };
    let cells =
        "--json --threads 1,4,16 --pattern uniform,normal-ih,linear --backing dram,swap --warmup-max 10s";
    let on = format!("on --file {dir}/overdrive-bench-swap --size {size} --even-if-busy");
    let paged = swap(&binary, &on)
        .and_then(|()| page(&binary, &format!("{cells} --set {set} --dram {dram} --runtime {runtime}")));
    // Whatever became of it, the swap is taken away.
    let off = swap(&binary, "off");
    let paged = paged?;
    off?;
    ratios(&paged).iter().for_each(|line| println!("{line}"));
    let alone = page(&binary, "--json --threads 1,2 --backing dram --set 256MiB --runtime 2s --repeat 3")?;
    let bars = bars(&alone)?;
    println!();
    bars.iter().for_each(|(line, _)| println!("{line}"));
    Ok(if bars.iter().all(|(_, met)| *met) { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Runs `overdrive swap`; what it says goes to standard error.
fn swap(binary: &str, words: &str) -> Result<()> {
    let mut command = Command::new(binary);
    command.arg("swap").args(words.split(' ')).stdout(Stdio::from(std::io::stderr()));
    let status = command.status().with_context(|| format!("cannot start {binary}: run make build"))?;
    if !status.success() {
        bail!("{binary} swap {words} failed ({status})");
    }
    Ok(())
}

/// Runs `overdrive page`; its progress goes to the user, its JSON comes here.
fn page(binary: &str, words: &str) -> Result<Value> {
    let mut command = Command::new(binary);
    command.arg("page").args(words.split(' ')).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {binary}: run make build"))?;
    if !output.status.success() {
        bail!("{binary} page failed ({})", output.status);
    }
    serde_json::from_slice(&output.stdout).context("its answer is not JSON")
}

fn rate(cell: &Value) -> f64 {
    cell["pages_per_s"].as_f64().unwrap_or(f64::NAN)
}

/// One line for each cell on swap, against its neighbour on DRAM.
fn ratios(document: &Value) -> Vec<String> {
    let cells = document["cells"].as_array().map_or(&[][..], Vec::as_slice);
    let same = |a: &Value, b: &Value| ["threads", "pattern", "repeat"].iter().all(|key| a[key] == b[key]);
    let paged = cells.iter().filter(|cell| cell["backing"] == "swap");
    let line = |swap: &Value| {
        let dram =
            cells.iter().find(|cell| cell["backing"] == "dram" && same(cell, swap)).map_or(f64::NAN, rate);
        format!(
            "{:<12} x{:<3} dram {dram:>11.0} pages/s  swap {:>9.0}  ratio {:.4}  faults/s {:>8.0}  p99 {} ns",
            swap["pattern"].as_str().unwrap_or("?"),
            swap["threads"],
            rate(swap),
            rate(swap) / dram,
            swap["faults_per_s"].as_f64().unwrap_or(f64::NAN),
            swap["latency_ns"]["p99"]
        )
    };
    paged.map(line).collect()
}

/// The bars, each with whether it is met.
fn bars(document: &Value) -> Result<Vec<(String, bool)>> {
    let added = document["own_cost"]["added_ns"].as_f64().context("no own_cost")?;
    let cells = document["cells"].as_array().context("no cells")?;
    let of = |threads: u64| cells.iter().filter(move |cell| cell["threads"] == threads);
    // Neighbours in time are compared; the median of the pairs counts.
    let scale = Spread::of(of(1).zip(of(2)).map(|(one, two)| rate(two) / rate(one))).median;
    let bar = |name: &str, value: f64, operator: &str, limit: f64, met: bool| {
        (format!("bar {name} {value:.3} {operator} {limit:.2} {}", if met { "ok" } else { "short" }), met)
    };
    Ok(vec![
        bar("page-own-cost-ns", added, "<=", ADDED_NS_MAX, added <= ADDED_NS_MAX),
        bar("page-dram-scale-2-threads", scale, ">=", SCALE_MIN, scale >= SCALE_MIN),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cell(backing: &str, threads: u64, repeat: u64, rate: f64) -> Value {
        json!({ "backing": backing, "threads": threads, "repeat": repeat, "pattern": "uniform",
            "pages_per_s": rate, "faults_per_s": 1.0, "latency_ns": { "p99": 5 } })
    }

    #[test]
    fn bars_are_met_or_short() {
        let cells = [(1, 100.0), (2, 195.0), (1, 100.0), (2, 120.0), (1, 100.0), (2, 192.0)];
        let cells: Vec<Value> =
            cells.iter().enumerate().map(|(at, &(n, rate))| cell("dram", n, at as u64 / 2, rate)).collect();
        let found = bars(&json!({ "own_cost": { "added_ns": 41.0 }, "cells": cells })).unwrap();
        assert_eq!(found[0], ("bar page-own-cost-ns 41.000 <= 40.00 short".to_owned(), false));
        assert_eq!(found[1], ("bar page-dram-scale-2-threads 1.920 >= 1.90 ok".to_owned(), true));
        assert!(bars(&json!({ "cells": [] })).is_err());
    }

    #[test]
    fn swap_is_compared_with_its_own_neighbour() {
        let cells = [cell("dram", 1, 0, 1000.0), cell("swap", 1, 0, 10.0), cell("dram", 4, 0, 2000.0)];
        let lines = ratios(&json!({ "cells": cells }));
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains("ratio 0.0100"), "{lines:?}");
    }
}
