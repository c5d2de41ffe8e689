//! One server under `overdrive density` and under redis-benchmark, in turn, as alike as the two can be.
//!
//! redis-benchmark's loop is closed: it sends the next request when the last one is answered, so neither it
//! nor the server ever rests. An open loop at a low rate rests between requests, and on two CPUs each request
//! and each answer then wakes an idle one, which on a virtual machine takes longer than the request itself.
//! Therefore all processes run on one CPU, and the open loop sends half as many requests as the closed one
//! got through. Medians are compared: another process on that CPU moves the mean.

use super::{backings, density, measured};
use crate::stats::Spread;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const REPEATS: usize = 3;
const RECORDS: &str = "25000";

/// What came of it.
pub(super) struct Beside {
    /// Median service time under the open loop over that under the closed one; the median of all turns.
    pub(super) ratio: f64,
    /// The last record of `overdrive density`.
    pub(super) record: Value,
}

pub(super) fn measure(binary: &str) -> Result<Beside> {
    let cpu = allowed_cpu()?;
    let pin = ["taskset", "-c", &cpu];
    let mut ratios = Vec::new();
    let mut last = Value::Null;
    println!(
        "one server, GETs of 1 KiB, everything on CPU {cpu}: redis-benchmark (closed loop), Overdrive (open loop)"
    );
    for _ in 0..REPEATS {
        let closed = redis_benchmark(&pin)?;
        let rate = (closed.rate_per_s / 2.0).round();
        let load = format!("--instances 1 --mix 100 --records {RECORDS} --rate {rate} --objective max=60s");
        let time = "--runtime 1s --warmup 500ms --iterations 2";
        last = density(&pin, binary, &format!("{load} {time}"))?;
        let alone =
            backings(&last).iter().flat_map(measured).next().context("one server was not measured")?;
        let open_ns = alone["measured"]["service"]["p50_ns"].as_f64().context("no service time")?;
        println!(
            "  closed {:>6.0}/s median {:>5.1} us   open {rate:>6.0}/s median {:>5.1} us",
            closed.rate_per_s,
            closed.median_ns / 1e3,
            open_ns / 1e3
        );
        ratios.push(open_ns / closed.median_ns);
    }
    Ok(Beside { ratio: Spread::of(ratios.into_iter()).median, record: last })
}

/// The last CPU that this process may use: the first one has most of the interrupts.
fn allowed_cpu() -> Result<String> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let last = list.and_then(|list| list.trim().rsplit([',', '-']).next()).map(str::to_owned);
    last.context("no list of CPUs in /proc/self/status")
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

#[derive(Debug, PartialEq)]
struct Closed {
    median_ns: f64,
    rate_per_s: f64,
}

/// What redis-benchmark gives for GETs of 1 KiB with one client.
fn redis_benchmark(pin: &[&str; 3]) -> Result<Closed> {
    let folder = std::env::temp_dir().join(format!("overdrive-bench-density-{}", std::process::id()));
    std::fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let socket = folder.join("socket");
    let pinned = |program: &str| {
        let mut command = Command::new(pin[0]);
        command.args(&pin[1..]).arg(program);
        command
    };
    let child = pinned("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
        .arg(&socket)
        .stdout(Stdio::null())
        .spawn();
    let mut server = match child {
        Ok(child) => Server(child, folder),
        Err(error) => {
            let _ = std::fs::remove_dir_all(&folder);
            return Err(error).context("cannot start taskset: wanted the package util-linux");
        }
    };
    await_socket(&socket, &mut server.0)?;
    let test = |test: &str, count: &str| -> Result<Closed> {
        let words = ["-t", test, "-n", count, "-c", "1", "-d", "1024", "-r", RECORDS, "--csv"];
        let output = pinned("redis-benchmark").arg("-s").arg(&socket).args(words).output();
        read_table(&String::from_utf8_lossy(&output.context("cannot start taskset")?.stdout))
    };
    test("set", "60000")?;
    test("get", "100000")
}

fn await_socket(path: &Path, server: &mut Child) -> Result<()> {
    let start = Instant::now();
    while !path.exists() {
        if let Some(status) = server.try_wait()? {
            bail!("redis-server ended ({status}): wanted the package redis-server");
        }
        if start.elapsed() > Duration::from_secs(10) {
            bail!("redis-server makes no socket");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// The columns `rps` and `p50_latency_ms` of redis-benchmark's table.
fn read_table(csv: &str) -> Result<Closed> {
    let cells =
        |line: &str| line.split(',').map(|cell| cell.trim_matches('"').to_owned()).collect::<Vec<_>>();
    let mut lines = csv.lines().map(cells);
    let header = lines.next().context("redis-benchmark printed nothing: wanted the package redis-tools")?;
    let row = lines.next().context("redis-benchmark printed no row")?;
    let number = |wanted: &str| -> Result<f64> {
        let at = header.iter().position(|name| name == wanted);
        let cell = at.and_then(|at| row.get(at)?.parse::<f64>().ok());
        cell.filter(|value| *value > 0.0).with_context(|| format!("redis-benchmark gave no {wanted}"))
    };
    Ok(Closed { median_ns: number("p50_latency_ms")? * 1e6, rate_per_s: number("rps")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_benchmarks_table_is_read() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\",\"p50_latency_ms\"\n\"GET\",\"79000.5\",\"0.013\",\"0.015\"\n";
        let found = read_table(csv).unwrap();
        assert!((found.median_ns - 15_000.0).abs() < 1e-6 && (found.rate_per_s - 79_000.5).abs() < 1e-6);
        assert!(read_table("").is_err() && read_table("\"test\"\n").is_err());
        assert!(read_table(&csv.replace("0.015", "-")).is_err());
    }

    #[test]
    fn the_cpu_is_one_of_ours() {
        assert!(allowed_cpu().unwrap().parse::<u32>().is_ok());
    }
}
