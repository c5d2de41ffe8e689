//! `cargo xtask bench-density`: the published Redis study as small as this machine, in one run of
//! `overdrive density`.
//!
//! The same instances on DRAM and on swap, side by side, with ratios as the study states them: average, 99 %,
//! peak, instances. Beside it redis-benchmark on one server, as a check of the latencies, and the accuracy
//! of the open loop. Figures are read from the command's record, as any other program would read them.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const HELP: &str = "\
cargo xtask bench-density [OPTIONS]

Searches for the number of Redis servers that DRAM alone and a swap file hold inside the objective (root),
prints the ratios of the study, then one server under open loop beside redis-benchmark.

  --dir DIR            where the swap file goes (default: the current folder)
  --dram SIZE          DRAM for all (default 192MiB)
  --records N          records of 1 KiB in each (default 25000)
  --rate N             requests a second for each (default 1000)
  --influence N        how strongly keys are pulled to the middle (default 25)
  --objective LIMITS   (default avg=500us,p99=5ms: a shared machine's, not the study's)
  --runtime TIME       each of three iterations (default 2s)
  --overdrive PATH     the binary (default: target/release/overdrive)

Exit: 0 every bar is met, 1 a bar is short, 2 wrong use, 3 a run failed.";

/// How far the rate sent may be from the rate asked.
const ACCURACY_MAX: f64 = 0.005;
/// The time a closed loop and the open loop's service may lie apart, as a factor: they measure the same
/// server.
const BESIDE_MAX: f64 = 5.0;
/// The whole search takes no longer.
const MINUTES_MAX: f64 = 5.0;

/// Runs the bench.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    if arguments.iter().any(|argument| argument == "--help") {
        println!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    let mut options = [
        ("--dir", ".".to_owned()),
        ("--dram", "192MiB".to_owned()),
        ("--records", "25000".to_owned()),
        ("--rate", "1000".to_owned()),
        ("--influence", "25".to_owned()),
        ("--objective", "avg=500us,p99=5ms".to_owned()),
        ("--runtime", "2s".to_owned()),
        ("--overdrive", "target/release/overdrive".to_owned()),
    ];
    for pair in arguments.chunks(2) {
        let known = options.iter_mut().find(|(name, _)| *name == pair[0]);
        let (Some((_, value)), [_, given]) = (known, pair) else {
            eprintln!("bench-density: '{}' is no option with a value; see bench-density --help", pair[0]);
            return Ok(ExitCode::from(2));
        };
        value.clone_from(given);
    }
    let [
        (_, dir),
        (_, dram),
        (_, records),
        (_, rate),
        (_, influence),
        (_, objective),
        (_, runtime),
        (_, binary),
    ] = &options;
    let load = format!("--records {records} --rate {rate} --influence {influence} --objective {objective}");
    let began = Instant::now();
    let swap = format!("--backing dram,swap --dram {dram} --swap {dir} --judge fleet --runtime {runtime}");
    let searched = density(binary, &format!("{swap} {load}"))?;
    let minutes = began.elapsed().as_secs_f64() / 60.0;
    let lines = ratios(&searched)?;
    lines.iter().for_each(|line| println!("{line}"));
    let one = density(binary, &format!("--instances 1 --rate 5000 --records {records} --runtime 2s"))?;
    let beside = redis_benchmark(records)?;
    println!();
    let bars = bars(&searched, &one, beside, minutes)?;
    bars.iter().for_each(|(line, _)| println!("{line}"));
    Ok(if bars.iter().all(|(_, met)| *met) { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Runs `overdrive density`; its progress goes to the user, its record comes here. An objective that was
/// missed (exit code 1) is a result.
fn density(binary: &str, words: &str) -> Result<Value> {
    let mut command = Command::new(binary);
    command.args(["density", "--json"]).args(words.split(' ')).stderr(Stdio::inherit());
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

fn ratio(over: &Value, under: &Value) -> String {
    let with = |backing: &'_ Value, instances: &Value| {
        measured(backing)
            .find(|trial| trial["instances"] == *instances)
            .map(|trial| trial["measured"].clone())
    };
    let both = measured(over).filter(|trial| with(under, &trial["instances"]).is_some());
    let at = both.max_by_key(|trial| trial["instances"].as_u64()).map(|trial| trial["instances"].clone());
    let held = |backing: &Value| backing["held"].as_f64().unwrap_or(0.0);
    let instances = format!("instances {:.2}x", held(over) / held(under));
    let pair = format!("{} over {}", name(over), name(under));
    let Some(at) = at else { return format!("{pair}: no number measured on both; {instances}") };
    let figure = |key: &str| {
        let of =
            |backing| with(backing, &at).and_then(|one| one["latency"][key].as_f64()).unwrap_or(f64::NAN);
        of(over) / of(under)
    };
    let (average, p99, peak) = (figure("avg_ns"), figure("p99_ns"), figure("max_ns"));
    format!("{pair} at {at} instances: average {average:.2}x, 99 % {p99:.2}x, peak {peak:.2}x; {instances}")
}

/// A server of the bench's own, ended with it.
struct Server(Child, PathBuf);

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

/// The mean latency, in nanoseconds, that redis-benchmark gives for GETs of 1 KiB with one client.
fn redis_benchmark(records: &str) -> Result<f64> {
    let folder = std::env::temp_dir().join(format!("overdrive-bench-density-{}", std::process::id()));
    std::fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let socket = folder.join("socket");
    let child = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
        .arg(&socket)
        .stdout(Stdio::null())
        .spawn();
    let _server = match child {
        Ok(child) => Server(child, folder),
        Err(error) => {
            let _ = std::fs::remove_dir_all(&folder);
            return Err(error).context("cannot start redis-server: wanted the package redis-server");
        }
    };
    await_file(&socket)?;
    let mean = |test: &str| -> Result<f64> {
        let words = ["-t", test, "-n", "40000", "-c", "1", "-d", "1024", "-r", records, "--csv"];
        let output = Command::new("redis-benchmark").arg("-s").arg(&socket).args(words).output();
        let output = output.context("cannot start redis-benchmark: wanted the package redis-tools")?;
        mean_of(&String::from_utf8_lossy(&output.stdout))
    };
    mean("set")?;
    mean("get")
}

fn await_file(path: &Path) -> Result<()> {
    let start = Instant::now();
    while !path.exists() {
        if start.elapsed() > Duration::from_secs(10) {
            bail!("redis-server makes no socket");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The column avg_latency_ms of redis-benchmark's table, in nanoseconds.
fn mean_of(csv: &str) -> Result<f64> {
    let cells =
        |line: &str| line.split(',').map(|cell| cell.trim_matches('"').to_owned()).collect::<Vec<_>>();
    let mut lines = csv.lines().map(cells);
    let header = lines.next().context("redis-benchmark printed nothing")?;
    let column =
        header.iter().position(|name| name == "avg_latency_ms").context("it has no avg_latency_ms")?;
    let value = lines.next().and_then(|row| row.get(column)?.parse::<f64>().ok());
    value.map(|milliseconds| milliseconds * 1e6).context("it gave no mean latency")
}

/// The bars, each with whether it is met.
fn bars(searched: &Value, one: &Value, beside_ns: f64, minutes: f64) -> Result<Vec<(String, bool)>> {
    let bar = |name: &str, value: f64, operator: &str, limit: f64, met: bool| {
        (format!("bar {name} {value:.4} {operator} {limit} {}", if met { "ok" } else { "short" }), met)
    };
    let runs = backings(searched).iter().chain(backings(one)).flat_map(measured);
    // A run that was given up as overloaded stopped sending on purpose.
    let sound = runs.filter(|trial| !trial["verdict"].as_str().unwrap_or("").contains("behind"));
    let off = sound.map(|trial| {
        let rate = |key: &str| trial["measured"][key].as_f64().unwrap_or(f64::NAN);
        (rate("sent_per_s") / rate("asked_per_s") - 1.0).abs()
    });
    let off = off.fold(0.0, |most: f64, one| if one.is_nan() { one } else { most.max(one) });
    let alone = backings(one).iter().flat_map(measured).next().context("one server was not measured")?;
    let service = alone["measured"]["service"]["avg_ns"].as_f64().context("no service time")?;
    let beside = service / beside_ns;
    let held = |name: &str| {
        let found = backings(searched).iter().find(|backing| backing["name"] == name);
        found.and_then(|backing| backing["held"].as_f64()).unwrap_or(0.0)
    };
    let more = held("swap") / held("dram").max(1.0);
    let near = beside < BESIDE_MAX && beside > 1.0 / BESIDE_MAX;
    Ok(vec![
        bar("density-open-loop-error", off, "<=", ACCURACY_MAX, off <= ACCURACY_MAX),
        bar("density-service-vs-redis-benchmark", beside, "<=", BESIDE_MAX, near),
        bar("density-swap-instances-vs-dram", more, ">=", 1.0, more >= 1.0),
        bar("density-minutes", minutes, "<=", MINUTES_MAX, minutes <= MINUTES_MAX),
    ])
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
    }

    #[test]
    fn bars_are_met_or_short() {
        let one = json!({ "backings": [{ "trials": [trial(1, 1000.0, 10)] }] });
        let found = bars(&record(994.0), &one, 20_000.0, 3.0).unwrap();
        assert_eq!(found[0], ("bar density-open-loop-error 0.0060 <= 0.005 short".to_owned(), false));
        assert_eq!(found[1], ("bar density-service-vs-redis-benchmark 1.5000 <= 5 ok".to_owned(), true));
        assert_eq!(found[2], ("bar density-swap-instances-vs-dram 1.5000 >= 1 ok".to_owned(), true));
        assert!(bars(&record(1000.0), &json!({}), 1.0, 1.0).is_err());
    }

    #[test]
    fn redis_benchmarks_table_is_read() {
        let csv =
            "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\"\n\"GET\",\"79000\",\"0.013\",\"0.008\"\n";
        assert!((mean_of(csv).unwrap() - 13_000.0).abs() < 1e-6);
        assert!(mean_of("").is_err() && mean_of("\"test\"\n").is_err());
    }
}
