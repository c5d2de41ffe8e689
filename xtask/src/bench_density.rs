//! `cargo xtask bench-density`: the published Redis study as small as this machine, in one run of
//! `overdrive density`.
//!
//! The same instances on DRAM, on swap and on extended memory, side by side, with ratios as the study states
//! them: average, 99 %, peak, instances. Then redis-benchmark on one server, as a check of the latencies, and
//! the accuracy of the open loop. Figures are read from the command's record, as any other program would.

mod beside;

use crate::options;
use anyhow::{Context, Result, bail};
use beside::Beside;
use serde_json::Value;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

const HELP: &str = "\
cargo xtask bench-density [OPTIONS]

Searches for the number of Redis servers that DRAM alone, a swap file and extended memory hold inside the
objective (root), prints the ratios of the study, then one server under open loop beside redis-benchmark.

  --dir DIR            where swap file and store go (default: the current folder)
  --backing NAMES      (default dram,swap,extend)
  --dram SIZE          DRAM for all (default 1536MiB)
  --records N          records of 1 KiB in each (default 300000)
  --rate N             requests a second for each (default 1000)
  --influence N        how strongly keys are pulled to the middle (default 25)
  --objective LIMITS   (default avg=500us,p99=5ms: a shared machine's, not the study's)
  --runtime TIME       each of three iterations (default 2s)
  --overdrive PATH     the binary (default: target/release/overdrive)

Exit: 0 every bar is met, 1 a bar is short, 2 wrong use, 3 a run failed.";

/// How far the rate sent may be from the rate asked.
const ACCURACY_MAX: f64 = 0.005;
/// How far the median service times of the closed and the open loop may lie apart, as a factor: they measure
/// the same server, on the same CPU, nearly as busy.
const BESIDE_MAX: f64 = 2.0;
/// What the study claims for memory on SSD: three and a half times the instances of DRAM alone; and of swap,
/// at least twice the average, seven times the 99 %, thirty times the peak. Here these are demands.
const INSTANCES_MIN: f64 = 3.5;
const AVERAGE_MIN: f64 = 2.0;
const P99_MIN: f64 = 7.0;
const PEAK_MIN: f64 = 30.0;
/// The whole search takes no longer.
const MINUTES_MAX: f64 = 5.0;

/// Runs the bench.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let options = [
        ("--dir", "."),
        ("--backing", "dram,swap,extend"),
        ("--dram", "1536MiB"),
        ("--records", "300000"),
        ("--rate", "1000"),
        ("--influence", "25"),
        ("--objective", "avg=500us,p99=5ms"),
        ("--runtime", "2s"),
        ("--overdrive", "target/release/overdrive"),
    ];
    let [dir, backing, dram, records, rate, influence, objective, runtime, binary] =
        match options::parse("bench-density", HELP, options, arguments) {
            Ok(values) => values,
            Err(code) => return Ok(code),
        };
    let load = format!("--records {records} --rate {rate} --influence {influence} --objective {objective}");
    let began = Instant::now();
    let swap = if backing.contains("swap") { format!(" --swap {dir}") } else { String::new() };
    let store =
        if backing.split(',').any(|one| one == "extend") { format!(" --store {dir}") } else { String::new() };
    let memory = format!("--backing {backing} --dram {dram}{swap}{store} --judge fleet --runtime {runtime}");
    let searched = density(&[], &binary, &format!("{memory} {load}"))?;
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let lines = ratios(&searched)?;
    lines.iter().for_each(|line| println!("{line}"));
    println!();
    let beside = beside::measure(&binary)?;
    println!();
    let bars = bars(&searched, &beside, minutes);
    bars.iter().for_each(|(line, _)| println!("{line}"));
    Ok(if bars.iter().all(|(_, met)| *met) { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Runs `overdrive density`, by another command where one is put before it; its progress goes to the user,
/// its record comes here. An objective that was missed (exit code 1) is a result.
fn density(before: &[&str], binary: &str, words: &str) -> Result<Value> {
    let mut all = before.iter().copied().chain([binary, "density", "--json"]);
    let mut command = Command::new(all.next().unwrap_or(binary));
    command.args(all).args(words.split(' ')).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {binary}: run make build"))?;
    if !matches!(output.status.code(), Some(0 | 1)) {
        bail!("{binary} density failed ({})", output.status);
    }
    serde_json::from_slice(&output.stdout).context("its answer is not JSON")
}

fn backings(record: &Value) -> &[Value] {
    record["backings"].as_array().map_or(&[], Vec::as_slice)
}

/// The trials of a backing that were measured.
fn measured(backing: &Value) -> impl Iterator<Item = &Value> {
    backing["trials"].as_array().into_iter().flatten().filter(|trial| !trial["measured"].is_null())
}

/// The study's lines: each backing, then each pair at the largest number of instances measured on both.
fn ratios(record: &Value) -> Result<Vec<String>> {
    let all = backings(record);
    let mut lines = Vec::new();
    for backing in all {
        let edge = backing["edge"].as_str().unwrap_or("the search ended at its maximum");
        let held = backing["held"].as_u64().unwrap_or(0);
        lines.push(format!("{:<6} holds {held:>3} instances; then: {edge}", name(backing)));
    }
    for (at, under) in all.iter().enumerate() {
        for over in &all[at + 1..] {
            lines.push(ratio(over, under));
        }
    }
    if lines.is_empty() { bail!("the record has no backings") } else { Ok(lines) }
}

fn name(backing: &Value) -> &str {
    backing["name"].as_str().unwrap_or("?")
}

/// Figures of one backing over another's, at the largest number of instances measured on both.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ratio {
    instances: u64,
    average: f64,
    p99: f64,
    peak: f64,
}

fn compare(over: &Value, under: &Value) -> Option<Ratio> {
    let with = |backing: &'_ Value, instances: u64| {
        // A number that missed may be there twice: its last trial counts.
        let found = measured(backing).filter(|trial| trial["instances"] == instances).last();
        found.map(|trial| trial["measured"]["latency"].clone())
    };
    let numbers = measured(over).filter_map(|trial| trial["instances"].as_u64());
    let instances = numbers.filter(|number| with(under, *number).is_some()).max()?;
    let (over, under) = (with(over, instances)?, with(under, instances)?);
    let figure = |key: &str| over[key].as_f64().unwrap_or(f64::NAN) / under[key].as_f64().unwrap_or(f64::NAN);
    Some(Ratio { instances, average: figure("avg_ns"), p99: figure("p99_ns"), peak: figure("max_ns") })
}

fn ratio(over: &Value, under: &Value) -> String {
    let held = |backing: &Value| backing["held"].as_f64().unwrap_or(0.0);
    let instances = format!("instances {:.2}x", held(over) / held(under));
    let pair = format!("{} over {}", name(over), name(under));
    match compare(over, under) {
        None => format!("{pair}: no number measured on both; {instances}"),
        Some(Ratio { instances: at, average, p99, peak }) => format!(
            "{pair} at {at} instances: average {average:.2}x, 99 % {p99:.2}x, peak {peak:.2}x; {instances}"
        ),
    }
}

/// As the study has it: how many times slower swap is than extended memory; none when no number of instances
/// was measured on both.
fn study(searched: &Value) -> Option<Ratio> {
    let find = |name: &str| backings(searched).iter().find(|backing| backing["name"] == name);
    compare(find("swap")?, find("extend")?)
}

/// What a backing holds; 0 when it was not measured.
fn held(searched: &Value, name: &str) -> f64 {
    let found = backings(searched).iter().find(|backing| backing["name"] == name);
    found.and_then(|backing| backing["held"].as_f64()).unwrap_or(0.0)
}

/// The largest deviation of the rate sent from the rate asked; NaN where one is not known.
fn rate_error(records: &[&Value]) -> f64 {
    let runs = records.iter().flat_map(|record| backings(record)).flat_map(measured);
    // A run that was given up as overloaded stopped sending on purpose.
    let sound = runs.filter(|trial| !trial["verdict"].as_str().unwrap_or("").contains("behind"));
    let off = sound.map(|trial| {
        let rate = |key: &str| trial["measured"][key].as_f64().unwrap_or(f64::NAN);
        (rate("sent_per_s") / rate("asked_per_s") - 1.0).abs()
    });
    off.fold(0.0, |most: f64, one| if most.is_nan() || one.is_nan() { f64::NAN } else { most.max(one) })
}

/// The bars, each with whether it is met.
fn bars(searched: &Value, beside: &Beside, minutes: f64) -> Vec<(String, bool)> {
    let bar = |name: &str, value: f64, operator: &str, limit: f64, met: bool| {
        let word = if met { "ok" } else { "short" };
        (format!("bar density-{name} {value:.4} {operator} {limit} {word}"), met)
    };
    let at_most = |name: &str, value: f64, limit: f64| bar(name, value, "<=", limit, value <= limit);
    let at_least = |name: &str, value: f64, limit: f64| bar(name, value, ">=", limit, value >= limit);
    let off = rate_error(&[searched, &beside.record]);
    // In either direction: a service time that is much too short would be as wrong.
    let apart = beside.ratio.max(1.0 / beside.ratio);
    let mut bars = vec![
        at_most("open-loop-error", off, ACCURACY_MAX),
        at_most("service-vs-redis-benchmark", apart, BESIDE_MAX),
    ];
    let has = |name: &str| backings(searched).iter().any(|backing| backing["name"] == name);
    let more = |one: &str, other: &str| held(searched, one) / held(searched, other).max(1.0);
    if has("dram") && has("swap") {
        bars.push(at_least("swap-instances-vs-dram", more("swap", "dram"), 1.0));
    }
    if has("dram") && has("extend") {
        bars.push(at_least("extend-instances-vs-dram", more("extend", "dram"), INSTANCES_MIN));
    }
    if has("swap") && has("extend") {
        let of = |figure: fn(&Ratio) -> f64| study(searched).as_ref().map_or(f64::NAN, figure);
        bars.push(at_least("average-swap-vs-extend", of(|study| study.average), AVERAGE_MIN));
        bars.push(at_least("p99-swap-vs-extend", of(|study| study.p99), P99_MIN));
        bars.push(at_least("peak-swap-vs-extend", of(|study| study.peak), PEAK_MIN));
    }
    bars.push(at_most("minutes", minutes, MINUTES_MAX));
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn trial(instances: u32, sent: f64, avg: u64) -> Value {
        json!({ "instances": instances, "verdict": "the objective holds", "measured": {
            "asked_per_s": 1000.0, "sent_per_s": sent, "service": { "avg_ns": 30_000 },
            "latency": { "avg_ns": avg, "p99_ns": avg * 2, "max_ns": avg * 9 } } })
    }

    fn record(sent: f64) -> Value {
        json!({ "backings": [
            { "name": "dram", "held": 4, "edge": "memory", "trials": [trial(2, 1000.0, 10), trial(4, 1000.0, 10),
                { "instances": 8, "verdict": "too large", "measured": null }] },
            { "name": "swap", "held": 6, "edge": null, "trials": [trial(4, sent, 30), trial(8, 1000.0, 90)] } ] })
    }

    #[test]
    fn ratios_are_the_studys() {
        let lines = ratios(&record(1000.0)).unwrap();
        assert_eq!(lines[0], "dram   holds   4 instances; then: memory");
        assert_eq!(
            lines[2],
            "swap over dram at 4 instances: average 3.00x, 99 % 3.00x, peak 3.00x; instances 1.50x"
        );
        assert!(ratios(&json!({})).is_err());
        let mut again = record(1000.0);
        again["backings"][1]["trials"].as_array_mut().unwrap().push(trial(4, 1000.0, 20));
        assert!(ratios(&again).unwrap()[2].contains("average 2.00x"), "the second trial counts");
    }

    #[test]
    fn bars_are_met_or_short() {
        let one = json!({ "backings": [{ "trials": [trial(1, 1000.0, 10)] }] });
        let beside = Beside { ratio: 0.8, record: one };
        let lines = |searched: &Value| bars(searched, &beside, 3.0);
        let found = lines(&record(994.0));
        assert_eq!(found[0], ("bar density-open-loop-error 0.0060 <= 0.005 short".to_owned(), false));
        assert_eq!(found[1], ("bar density-service-vs-redis-benchmark 1.2500 <= 2 ok".to_owned(), true));
        assert_eq!(found[2], ("bar density-swap-instances-vs-dram 1.5000 >= 1 ok".to_owned(), true));
        assert_eq!(found.len(), 4, "no extended memory, nothing said of it");
        let mut three = record(1000.0);
        let extend = json!({ "name": "extend", "held": 14, "edge": null, "trials": [trial(8, 1000.0, 30)] });
        three["backings"].as_array_mut().unwrap().push(extend);
        let found = lines(&three);
        assert_eq!(found[3].0, "bar density-extend-instances-vs-dram 3.5000 >= 3.5 ok");
        assert_eq!(found[4].0, "bar density-average-swap-vs-extend 3.0000 >= 2 ok");
        assert_eq!(found[5].0, "bar density-p99-swap-vs-extend 3.0000 >= 7 short");
    }

    #[test]
    fn what_was_not_measured_is_short() {
        let one = |trial: Value| json!({ "backings": [{ "trials": [trial] }] });
        let mut unsent = trial(1, 1000.0, 10);
        unsent["measured"]["sent_per_s"] = Value::Null;
        assert!(rate_error(&[&one(unsent), &one(trial(1, 1000.0, 10))]).is_nan());
        let backing = |name: &str, at| json!({ "name": name, "held": 1, "trials": [trial(at, 1000.0, 10)] });
        let apart = json!({ "backings": [backing("swap", 2), backing("extend", 5)] });
        let beside = Beside { ratio: 1.0, record: one(trial(1, 1000.0, 10)) };
        let found = bars(&apart, &beside, 3.0);
        let study = found.iter().filter(|(line, _)| line.contains("-swap-vs-extend"));
        assert_eq!(study.clone().count(), 3);
        assert!(study.clone().all(|(_, met)| !met), "no number of instances was measured on both");
    }
}
