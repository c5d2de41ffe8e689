//! What needs no drive: the ring's own ceiling, and how two workers on two CPUs compare with one.

use super::{Bar, Demand, process};
use crate::stats::Spread;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A device without surprises for each of two workers, as long in virtual time as takes some seconds.
const SIMULATED: &str = "sim:channels=8,per_kib=0ns";

/// No-operations a second with every latency recorded; two workers that share nothing, at least so many times
/// one.
const NOP: [Demand<&str>; 2] = [("million-per-s", ">=", 10.0), ("two-workers", ">=", 1.9)];
const SIM: [Demand<&str>; 1] = [("two-workers", ">=", 1.9)];

/// What a ceiling is held to: of no-operations, or else of the simulated device.
pub(super) fn demands(name: &str) -> &'static [Demand<&'static str>] {
    if name == "nop" { &NOP } else { &SIM }
}

/// Measures one ceiling with one worker and with two, in turn. Nothing waits for a device here, so whatever
/// else runs on the machine or its host can only slow a run: the best one of each counts.
pub(super) fn bars(binary: &Path, name: &str, repeats: usize, stop: &AtomicBool) -> Result<Vec<Bar>> {
    let rate =
        |workers| if name == "nop" { nops(binary, workers, stop) } else { simulated(binary, workers, stop) };
    let (mut ones, mut twos) = (Vec::new(), Vec::new());
    for repeat in 0..repeats {
        let (one, two) = if repeat.is_multiple_of(2) {
            let one = rate("1")?;
            (one, rate("2")?)
        } else {
            let two = rate("2")?;
            (rate("1")?, two)
        };
        println!("  {name} run {} {:.2} M/s, two workers {:.3} times", repeat + 1, one / 1e6, two / one);
        ones.push(one / 1e6);
        twos.push(two / 1e6);
    }
    let best = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
    let (one, two) = (best(&ones), best(&twos));
    let (ones, twos) = (Spread::of(ones.into_iter()), Spread::of(twos.into_iter()));
    println!("  {name}: one worker {ones} M/s, two {twos} M/s; of the best {:.3} times", two / one);
    let bar = |&(figure, operator, limit): &Demand<&str>| Bar {
        name: format!("{name}-{figure}"),
        value: if figure == "two-workers" { two / one } else { one },
        operator,
        limit,
    };
    Ok(demands(name).iter().map(bar).collect())
}

/// What two threads that only count do, in counts of one: no two workers can do better on this machine. CPUs
/// that share a core, or a host that is busy, show here first.
pub(super) fn machine_scaling() -> f64 {
    let counts = |threads: usize| -> u64 {
        let count = || {
            let (end, mut counted, mut state) = (Instant::now() + Duration::from_millis(500), 0_u64, 1_u64);
            while Instant::now() < end {
                for _ in 0..100_000 {
                    state =
                        std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
                }
                counted += 1;
            }
            counted
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum()
        })
    };
    let one = counts(1).max(1);
    counts(2) as f64 / one as f64
}

/// I/Os for each second that simulating them took; virtual time says nothing about that.
fn simulated(binary: &Path, workers: &str, stop: &AtomicBool) -> Result<f64> {
    let arguments = ["run", SIMULATED, "--iodepth", "16", "--numjobs", workers, "--ramp-time", "0s"];
    let began = Instant::now();
    let record = record(binary, &[&arguments[..], &["--runtime", "60s", "--json"]].concat(), stop)?;
    let took_s = began.elapsed().as_secs_f64();
    let ios = record.pointer("/workloads/0/outcome/ios").and_then(Value::as_f64);
    Ok(ios.context("no I/Os in the record")? / took_s)
}

/// No-operations a second. The target is anything that can be opened: they do not touch it.
fn nops(binary: &Path, workers: &str, stop: &AtomicBool) -> Result<f64> {
    let file = binary.display().to_string();
    let arguments = ["run", &file, "--engine", "nop", "--iodepth", "128", "--numjobs", workers];
    // The batches with which fio's own t/io_uring looks for its ceiling.
    let batches = ["--iodepth-batch", "32", "--iodepth-batch-complete", "32"];
    let times = ["--runtime", "2s", "--ramp-time", "200ms", "--json"];
    let record = record(binary, &[&arguments[..], &batches, &times].concat(), stop)?;
    record.pointer("/workloads/0/outcome/iops").and_then(Value::as_f64).context("no IOPS in the record")
}

fn record(binary: &Path, arguments: &[&str], stop: &AtomicBool) -> Result<Value> {
    serde_json::from_str(&process::output(Command::new(binary).args(arguments), stop)?).context("not JSON")
}
