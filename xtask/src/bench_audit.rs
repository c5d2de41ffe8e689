//! `cargo xtask bench-audit`: how long a full audit of this host takes, from start to end of the process.
//!
//! The time includes what the audit itself waits for: the moment it watches other processes.

use crate::options;
use crate::stats::Spread;
use anyhow::{Context, Result, bail};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

const HELP: &str = "\
cargo xtask bench-audit [--overdrive PATH] [--target DEVICE]

Runs 'overdrive audit --json' nine times and holds the median time to the bar.

Exit: 0 the bar is met, 1 it is short, 2 wrong use, 3 a run failed.";

const RUNS: usize = 9;

/// A full audit on a host of two CPUs and one disk.
const SECONDS_MAX: f64 = 0.5;

/// Runs the bench.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let options = [("--overdrive", "target/release/overdrive"), ("--target", "")];
    let [binary, target] = match options::parse("bench-audit", HELP, options, arguments) {
        Ok(values) => values,
        Err(code) => return Ok(code),
    };
    let mut words = vec!["audit".to_owned(), "--json".to_owned()];
    if !target.is_empty() {
        words.extend(["--target".to_owned(), target]);
    }
    let times: Vec<f64> = (0..RUNS).map(|_| once(&binary, &words)).collect::<Result<_>>()?;
    let Spread { low, median, high } = Spread::of(times.into_iter());
    println!("{RUNS} audits: {low:.3} to {high:.3} s");
    let met = median <= SECONDS_MAX;
    println!("bar audit-full-s {median:.3} <= {SECONDS_MAX:.2} {}", if met { "ok" } else { "short" });
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn once(binary: &str, words: &[String]) -> Result<f64> {
    let began = Instant::now();
    let mut command = Command::new(binary);
    let output = command.args(words).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {binary}: run make build"))?;
    let took_s = began.elapsed().as_secs_f64();
    // 1: the audit found a problem, which is not the bench's business.
    if !matches!(output.status.code(), Some(0 | 1)) || !output.stdout.starts_with(b"{") {
        bail!("{binary} {} failed ({})", words.join(" "), output.status);
    }
    Ok(took_s)
}
