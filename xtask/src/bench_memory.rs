//! `cargo xtask bench-memory`: Overdrive's pager, and its backend swap, against the kernel's swap, on the
//! same disk, with the same budget, in turn, cell by cell; and against what the disk itself gives.
//!
//! Swap is set up as well as it can be for each cell: a file of its own on the same file system, written
//! before it is read, at the front of all areas, and the page-cluster that suits the pattern. The host's
//! settings that are changed for that are read first and written back at the end, also after a stop.

mod cells;
mod disk;
mod redis;
mod settings;

use crate::stats::Spread;
use anyhow::{Context, Result, bail};
use cells::{CELLS, Cell};
use serde_json::Value;
use settings::Settings;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const HELP: &str = "\
cargo xtask bench-memory [OPTIONS]

Runs every cell on swap and on memory extended by the pager and by the backend swap, in turn (needs root),
and prints the ratios of neighbouring runs with their spread, then a bar for each demand.

  --dir DIR            where swap file and store go (default: the current folder)
  --set SIZE_MIB       the set in MiB (default 512); the budget is a half or a quarter of it
  --runtime SECONDS    how long each cell is measured (default 4)
  --repeats N          how often (default 3)
  --quick              once, 2 seconds each
  --only CELL          only cells whose name contains this; may be given several times
  --list               the cells and what they are held to
  --overdrive PATH     the binary (default: target/release/overdrive)

Exit: 0 every bar is met, 1 a bar is short, 2 wrong use, 3 a run failed, 130 stopped.";

#[derive(Debug)]
struct Options {
    dir: PathBuf,
    set_mib: u64,
    runtime_s: u64,
    repeats: usize,
    only: Vec<String>,
    overdrive: PathBuf,
}

impl Options {
    fn wants(&self, cell: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| cell.contains(part.as_str()))
    }
}

/// One run of one cell on one backing.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    pages_per_s: f64,
    faults_per_s: f64,
    p99_9_ns: f64,
    max_ns: f64,
}

/// A figure with what it is held to.
#[derive(Debug, PartialEq)]
struct Bar {
    name: String,
    value: f64,
    limit: f64,
}

impl Bar {
    fn met(&self) -> bool {
        self.value >= self.limit
    }

    fn line(&self) -> String {
        let verdict = if self.met() { "ok" } else { "short" };
        format!("bar {} {:.3} >= {:.2} {verdict}", self.name, self.value, self.limit)
    }
}

/// Runs the comparison.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.iter().any(|argument| argument == "--list") {
        CELLS.iter().for_each(|cell| println!("{:<22} {}", cell.name, cell.told()));
        println!(
            "{:<22} 1 KiB values, data 2 x DRAM, Gaussian keys, 70 % gets, at a fixed rate; then while it saves",
            redis::NAME
        );
        return Ok(ExitCode::SUCCESS);
    }
    let options = match options(arguments, root) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("bench-memory: {error:#}; see bench-memory --help");
            return Ok(ExitCode::from(2));
        }
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    match measure(&options, &stop) {
        Ok(bars) => judge(&bars),
        Err(_) if stop.load(Ordering::Relaxed) => {
            eprintln!("bench-memory: stopped; settings are back as they were");
            Ok(ExitCode::from(130))
        }
        Err(error) => Err(error),
    }
}

fn options(arguments: &[String], root: &Path) -> Result<Options> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut options = Options {
        dir: PathBuf::from("."),
        set_mib: 512,
        runtime_s: 4,
        repeats: 3,
        only: Vec::new(),
        overdrive: target.join("release/overdrive"),
    };
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{name} needs a value"));
        let number = |text: &str| text.parse().ok().filter(|&n: &u64| n > 0);
        let wrong = || format!("{name}: wanted a number above 0");
        match name.as_str() {
            "--dir" => options.dir = PathBuf::from(value()?),
            "--set" => options.set_mib = number(value()?).with_context(wrong)?,
            "--runtime" => options.runtime_s = number(value()?.trim_end_matches('s')).with_context(wrong)?,
            "--repeats" => options.repeats = number(value()?).with_context(wrong)? as usize,
            "--quick" => (options.runtime_s, options.repeats) = (2, 1),
            "--only" => options.only.push(value()?.clone()),
            "--overdrive" => options.overdrive = PathBuf::from(value()?),
            other => bail!("no option '{other}'"),
        }
    }
    if !options.overdrive.is_file() {
        bail!("no binary at {}: run make build", options.overdrive.display());
    }
    let names = || CELLS.iter().map(|cell| cell.name).chain([redis::NAME]);
    if !options.only.iter().all(|part| names().any(|name| name.contains(part.as_str()))) {
        bail!("--only: no such cell (--list names them)");
    }
    Ok(options)
}

fn measure(options: &Options, stop: &AtomicBool) -> Result<Vec<Bar>> {
    let mut settings = Settings::default();
    settings.set_halt_poll()?;
    settings.describe(&options.dir).iter().for_each(|line| println!("{line}"));
    let (mut bars, mut limits) = (Vec::new(), BTreeMap::new());
    for cell in CELLS.iter().filter(|cell| options.wants(cell.name)) {
        settings.set_page_cluster(cell.page_cluster)?;
        settings.set_zswap(cell.zswap)?;
        let document = page(options, cell)?;
        if stop.load(Ordering::Relaxed) {
            bail!("stopped");
        }
        let sides = SIDES.map(|backing| samples(&document, backing));
        let [swap, extend, ahead] = &sides;
        if swap.is_empty() || sides.iter().any(|side| side.len() != swap.len()) {
            let counts: Vec<String> =
                SIDES.iter().zip(&sides).map(|(name, side)| format!("{} on {name}", side.len())).collect();
            bail!("{}: runs are missing: {}", cell.name, counts.join(", "));
        }
        println!("\n{}: {}", cell.name, cell.told());
        SIDES.iter().zip(&sides).for_each(|(name, side)| show(name, side));
        bars.extend(judge_cell(cell, swap, &PAGER, extend));
        bars.extend(judge_cell(cell, swap, &BACKEND_SWAP, ahead));
        if cell.is_uniform() {
            limits.insert(cell.threads, (cell.name, sides));
        }
    }
    if options.wants(redis::NAME) {
        settings.set_page_cluster(0)?;
        settings.set_zswap(false)?;
        bars.extend(redis::measure(options, stop)?);
    }
    // With the same settings.
    disk::distance(options, &limits)?;
    drop(settings);
    Ok(bars)
}

/// The backings of a cell: the kernel's swap, the pager, the backend swap.
const SIDES: [&str; 3] = ["swap", "extend", "extend-swap"];

/// Runs `overdrive page` on the backings in turn; its progress goes to the user, its JSON comes here.
fn page(options: &Options, cell: &Cell) -> Result<Value> {
    let dir = options.dir.display();
    let (set, runtime) = (options.set_mib, options.runtime_s);
    let words = format!(
        "page --json --backing {} --set {set}MiB --dram {}MiB --threads {} --pattern {} --read-ratio {} \
         --compressible {} --runtime {runtime}s --warmup-max {}s --repeat {} --swap {dir} --store {dir}",
        SIDES.join(","),
        set / cell.set_per_dram,
        cell.threads,
        cell.pattern,
        cell.read_percent,
        cell.compressible,
        runtime * 2,
        options.repeats,
    );
    let mut command = Command::new(&options.overdrive);
    command.args(words.split_ascii_whitespace()).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {}", options.overdrive.display()))?;
    if !output.status.success() {
        bail!("{}: overdrive page failed ({})", cell.name, output.status);
    }
    serde_json::from_slice(&output.stdout).context("its answer is not JSON")
}

fn samples(document: &Value, backing: &str) -> Vec<Sample> {
    let cells = document["cells"].as_array().map_or(&[][..], Vec::as_slice);
    let figure = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let sample = |cell: &Value| Sample {
        pages_per_s: figure(&cell["pages_per_s"]),
        faults_per_s: figure(&cell["faults_per_s"]),
        p99_9_ns: figure(&cell["latency_ns"]["p99_9"]),
        max_ns: figure(&cell["latency_ns"]["max"]),
    };
    cells.iter().filter(|cell| cell["backing"] == backing).map(sample).collect()
}

fn show(name: &str, samples: &[Sample]) {
    for sample in samples {
        println!(
            "  {name:<12}{:>9.0} pages/s {:>8.0} faults/s  p99.9 {:>8.0} us  max {:>8.0} us",
            sample.pages_per_s,
            sample.faults_per_s,
            sample.p99_9_ns / 1e3,
            sample.max_ns / 1e3
        );
    }
}

/// The ratio of a figure between neighbours in time: the median of the pairs counts, and its range is shown.
fn ratio(what: &str, swap: &[Sample], other: &[Sample], figure: impl Fn(&Sample, &Sample) -> f64) -> f64 {
    let Spread { low, median, high } =
        Spread::of(swap.iter().zip(other).map(|(swap, other)| figure(swap, other)));
    println!("  {what:<36} {median:.2} ({low:.2} to {high:.2})");
    median
}

fn faster(swap: &Sample, other: &Sample) -> f64 {
    other.pages_per_s / swap.pages_per_s
}

fn shorter_tail(swap: &Sample, other: &Sample) -> f64 {
    swap.p99_9_ns / other.p99_9_ns
}

fn lower_peak(swap: &Sample, other: &Sample) -> f64 {
    swap.max_ns / other.max_ns
}

/// A side that is held to the limits, as its figures are named.
#[derive(Debug)]
struct Side {
    rate: &'static str,
    tail: &'static str,
    peak: &'static str,
}

const PAGER: Side =
    Side { rate: "pages-per-s-vs-swap", tail: "p99.9-swap-vs-extend", peak: "max-swap-vs-extend" };

const BACKEND_SWAP: Side = Side {
    rate: "swap-backend-pages-per-s-vs-swap",
    tail: "p99.9-swap-vs-swap-backend",
    peak: "max-swap-vs-swap-backend",
};

/// One side against swap: both are held to the same.
fn judge_cell(cell: &Cell, swap: &[Sample], side: &Side, other: &[Sample]) -> Vec<Bar> {
    let bar = |what: &str, limit: f64, value: f64| {
        let name = format!("memory-{}-{what}", cell.name);
        Bar { name, value, limit }
    };
    vec![
        bar(side.rate, cell.rate_min, ratio(side.rate, swap, other, faster)),
        bar(side.tail, 5.0, ratio(side.tail, swap, other, shorter_tail)),
        bar(side.peak, 10.0, ratio(side.peak, swap, other, lower_peak)),
    ]
}

fn judge(bars: &[Bar]) -> Result<ExitCode> {
    if bars.is_empty() {
        bail!("nothing was measured, so no bar is met");
    }
    println!();
    bars.iter().for_each(|bar| println!("{}", bar.line()));
    Ok(if bars.iter().all(Bar::met) { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn neighbours_are_compared_and_the_median_counts() {
        let cell = |backing: &str, rate: f64, tail: u64| {
            json!({ "backing": backing, "pages_per_s": rate, "faults_per_s": 1.0,
                "latency_ns": { "p99_9": tail, "max": tail * 10 } })
        };
        let rates = [(100.0, 150.0), (100.0, 90.0), (200.0, 260.0)];
        let cells: Vec<Value> = rates
            .iter()
            .flat_map(|&(swap, extend)| [cell("swap", swap, 6000), cell("extend", extend, 1000)])
            .collect();
        let document = json!({ "cells": cells });
        let [swap, extend] = ["swap", "extend"].map(|backing| samples(&document, backing));
        let bars = judge_cell(&CELLS[0], &swap, &PAGER, &extend);
        let lines: Vec<String> = bars.iter().map(Bar::line).collect();
        assert!(
            lines[0].starts_with("bar memory-uniform-writes-1-pages-per-s-vs-swap 1.300 >= 1.20 ok"),
            "{lines:?}"
        );
        assert!(
            lines[1].contains("6.000 >= 5.00 ok") && lines[2].contains("6.000 >= 10.00 short"),
            "{lines:?}"
        );
        assert_eq!(
            judge_cell(&CELLS[0], &swap, &BACKEND_SWAP, &extend)[0].line(),
            "bar memory-uniform-writes-1-swap-backend-pages-per-s-vs-swap 1.300 >= 1.20 ok"
        );
    }

    #[test]
    fn a_figure_that_is_missing_is_short() {
        let document = json!({ "cells": [{ "backing": "swap" }, { "backing": "extend" }] });
        let [swap, extend] = ["swap", "extend"].map(|backing| samples(&document, backing));
        assert!(judge_cell(&CELLS[0], &swap, &PAGER, &extend).iter().all(|bar| !bar.met()));
    }

    #[test]
    fn where_nothing_was_measured_no_bar_is_met() {
        assert!(judge(&[]).is_err());
    }

    fn sample(pages_per_s: f64) -> Sample {
        Sample { pages_per_s, faults_per_s: 1.0, p99_9_ns: 1.0, max_ns: 1.0 }
    }

    #[test]
    fn a_figure_that_one_run_lacks_is_short() {
        let others = [1.3, 1.5, f64::NAN].map(sample);
        assert!(!judge_cell(&CELLS[0], &[sample(1.0); 3], &PAGER, &others)[0].met());
    }

    #[test]
    fn of_two_pairs_neither_counts_alone() {
        let bars = judge_cell(&CELLS[0], &[sample(1.0); 2], &PAGER, &[1.0, 1.3].map(sample));
        assert_eq!(bars[0].line(), "bar memory-uniform-writes-1-pages-per-s-vs-swap 1.150 >= 1.20 short");
    }
}
