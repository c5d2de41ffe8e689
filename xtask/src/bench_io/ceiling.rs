//! What needs no drive: the ring's own ceiling, and how two workers on two CPUs compare with one.

use super::{Bar, process, stats::Spread};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// No-operations a second with every latency recorded.
const NOPS_PER_S: f64 = 10e6;
/// Two workers that share nothing: at least so many times one.
const SCALING: f64 = 1.9;
/// A device without surprises for each of them, as long in virtual time as takes some seconds.
const SIMULATED: &str = "sim:channels=8,per_kib=0ns";

/// Measures and returns the bars. `file` is anything that can be opened: no-operations do not touch it.
pub(super) fn bars(binary: &Path, file: &Path, repeats: usize, stop: &AtomicBool) -> Result<Vec<Bar>> {
    let file = file.display().to_string();
    let nop = |workers: &str| {
        let arguments = ["run", &file, "--engine", "nop", "--iodepth", "128", "--numjobs", workers];
        let times = ["--runtime", "2s", "--ramp-time", "200ms", "--json"];
        iops(binary, &[&arguments[..], &times].concat(), stop)
    };
    let sim = |workers: &str| {
        let arguments = ["run", SIMULATED, "--iodepth", "16", "--numjobs", workers, "--ramp-time", "0s"];
        simulated(binary, &[&arguments[..], &["--runtime", "60s", "--json"]].concat(), stop)
    };
    let (mut nops, mut nop_scaling, mut sim_scaling) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repeats {
        let (one, two) = (nop("1")?, nop("2")?);
        nops.push(one);
        nop_scaling.push(two / one);
        let (one, two) = (sim("1")?, sim("2")?);
        sim_scaling.push(two / one);
        println!(
            "  nop {:.2} M/s, two workers {:.2} times; sim {:.2} M/s, two workers {:.2} times",
            nops[nops.len() - 1] / 1e6,
            nop_scaling[nop_scaling.len() - 1],
            one / 1e6,
            sim_scaling[sim_scaling.len() - 1]
        );
    }
    let bar = |name: &str, values: Vec<f64>, limit| {
        let value = Spread::of(values.into_iter()).median;
        Bar { name: name.to_owned(), value, operator: ">=", limit }
    };
    Ok(vec![
        bar("nop-million-per-s", nops.iter().map(|nops| nops / 1e6).collect(), NOPS_PER_S / 1e6),
        bar("nop-two-workers", nop_scaling, SCALING),
        bar("sim-two-workers", sim_scaling, SCALING),
    ])
}

fn iops(binary: &Path, arguments: &[&str], stop: &AtomicBool) -> Result<f64> {
    let record = record(binary, arguments, stop)?;
    record.pointer("/workloads/0/outcome/iops").and_then(Value::as_f64).context("no IOPS in the record")
}

/// I/Os for each second that simulating them took; virtual time says nothing about that.
fn simulated(binary: &Path, arguments: &[&str], stop: &AtomicBool) -> Result<f64> {
    let began = Instant::now();
    let record = record(binary, arguments, stop)?;
    let took_s = began.elapsed().as_secs_f64();
    let ios = record.pointer("/workloads/0/outcome/ios").and_then(Value::as_f64);
    Ok(ios.context("no I/Os in the record")? / took_s)
}

fn record(binary: &Path, arguments: &[&str], stop: &AtomicBool) -> Result<Value> {
    serde_json::from_str(&process::output(Command::new(binary).args(arguments), stop)?).context("not JSON")
}
