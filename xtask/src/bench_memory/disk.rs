//! What the disk itself gives where swap and the pager are measured, and how far they are from it: printed,
//! held to nothing. What is asked for beyond it no engine can give here.

use super::{Options, SIDES, Sample};
use crate::bench_io::scratch::Scratch;
use crate::stats::Spread;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

/// Pages of one write, as many as the pager puts into one.
const RUN_PAGES: f64 = 64.0;
/// For each read that the disk does alone, so many pages are written beside the reads.
const BESIDE: f64 = 0.75;

/// Faults a second against the disk's own 4 KiB random reads at the same depth, alone and beside as many
/// pages written; and its tail beside theirs.
pub(super) fn distance(options: &Options, cells: &BTreeMap<u32, (&str, [Vec<Sample>; 3])>) -> Result<()> {
    if cells.is_empty() {
        return Ok(());
    }
    let scratch = Scratch::create(&options.dir, options.set_mib << 20, &AtomicBool::new(false))?;
    println!(
        "\nthe disk itself, 4 KiB random reads at the same depth, and what was served of them as faults"
    );
    for (&depth, (name, sides)) in cells {
        let (alone, _) = reads(options, scratch.path(), depth, 0.0)?;
        let (beside, written) = reads(options, scratch.path(), depth, alone.faults_per_s * BESIDE)?;
        let even = as_many_of_both(alone.faults_per_s, beside.faults_per_s, written);
        println!(
            "  {name:<18}{:>8.0} reads/s  p99.9 {:>6.0} us  max {:>6.0} us",
            alone.faults_per_s,
            alone.p99_9_ns / 1e3,
            alone.max_ns / 1e3
        );
        let middle = |side: &[Sample], figure: fn(&Sample) -> f64| Spread::of(side.iter().map(figure)).median;
        let swap = middle(&sides[0], |sample| sample.faults_per_s);
        println!("    beside as many pages written {even:>8.0}, so at most {:.2} x swap", even / swap);
        for (side, samples) in SIDES.iter().zip(sides) {
            let faults = middle(samples, |sample| sample.faults_per_s);
            println!(
                "    {side:<12}{:>5.2}, {:.2} of them {:>7.1} x its p99.9 {:>4.1} x its max",
                faults / alone.faults_per_s,
                faults / even,
                middle(samples, |sample| sample.p99_9_ns) / alone.p99_9_ns,
                middle(samples, |sample| sample.max_ns) / alone.max_ns
            );
        }
    }
    Ok(())
}

/// How many reads a second there are beside as many pages written, on the line between none written and
/// `written` a second.
fn as_many_of_both(alone: f64, beside: f64, written: f64) -> f64 {
    alone / (1.0 + (alone - beside).max(0.0) / written)
}

/// The scratch file read for as long as a cell, with so many pages a second written beside that. Also returns
/// how many were.
fn reads(options: &Options, path: &Path, depth: u32, written_per_s: f64) -> Result<(Sample, f64)> {
    let mut command = Command::new(&options.overdrive);
    command.args(["run", "-", "--json", "--write-to"]).arg(path);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("overdrive run")?;
    let mut input = child.stdin.take().context("overdrive run: no standard input")?;
    input.write_all(job(path, options.runtime_s, depth, written_per_s).as_bytes())?;
    drop(input);
    let output = child.wait_with_output().context("overdrive run")?;
    if !output.status.success() {
        bail!("overdrive run: {}", output.status);
    }
    let record: Value = serde_json::from_slice(&output.stdout).context("overdrive run: not JSON")?;
    let written = record.pointer("/workloads/1/outcome/iops").and_then(Value::as_f64);
    let written =
        if written_per_s > 0.0 { written.context("overdrive run: no writes in its record")? } else { 0.0 };
    let sample = disk_sample(&record).context("overdrive run: no figures in its record")?;
    Ok((sample, written * RUN_PAGES))
}

fn job(path: &Path, runtime_s: u64, depth: u32, written_per_s: f64) -> String {
    let path = path.display();
    let mut job = format!(
        "[global]\nfilename={path}\nioengine=io_uring\ndirect=1\ntime_based\nruntime={runtime_s}\n\
         [reads]\nrw=randread\nbs=4k\niodepth={depth}\n"
    );
    if written_per_s > 0.0 {
        let rate = (written_per_s / RUN_PAGES).ceil();
        job += &format!("[writes]\nrw=write\nbs={}\niodepth=2\nrate_iops={rate}\n", RUN_PAGES * 4096.0);
    }
    job
}

fn disk_sample(record: &Value) -> Option<Sample> {
    let outcome = record.pointer("/workloads/0/outcome")?;
    let latency = outcome.pointer("/read/latency")?;
    let percentiles = latency["percentiles"].as_array()?;
    let p99_9 = percentiles.iter().find(|one| one["percentile"] == 99.9)?;
    let iops = outcome["iops"].as_f64()?;
    Some(Sample {
        pages_per_s: iops,
        faults_per_s: iops,
        // Below a thousand reads there is only a bound.
        p99_9_ns: p99_9["value_ns"].as_f64().or_else(|| p99_9["at_least_ns"].as_f64())?,
        max_ns: latency["max_ns"].as_f64()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_disk_is_read_from_the_record_of_a_run() {
        let p99_9 = |value: Value| {
            json!([{ "percentile": 50.0, "value_ns": 9 },
                { "percentile": 99.9, "value_ns": value, "at_least_ns": 70 }])
        };
        let record = |percentiles: Value| {
            let latency = json!({ "max_ns": 80, "percentiles": percentiles });
            json!({ "workloads": [{ "outcome": { "iops": 5.0, "read": { "latency": latency } } }] })
        };
        let sample = |p99_9_ns: f64| Sample { pages_per_s: 5.0, faults_per_s: 5.0, p99_9_ns, max_ns: 80.0 };
        assert_eq!(disk_sample(&record(p99_9(json!(60)))), Some(sample(60.0)));
        assert_eq!(disk_sample(&record(p99_9(Value::Null))), Some(sample(70.0)), "few reads");
        assert_eq!(disk_sample(&record(json!([]))), None);
    }

    #[test]
    fn as_many_reads_as_pages_written_lie_between_what_was_measured() {
        // Each page written costs half a read.
        assert!((as_many_of_both(90.0, 60.0, 60.0) - 60.0).abs() < 1e-9);
        assert!((as_many_of_both(90.0, 70.0, 40.0) - 60.0).abs() < 1e-9);
        assert!((as_many_of_both(90.0, 95.0, 40.0) - 90.0).abs() < 1e-9, "noise is no gain");
    }

    #[test]
    fn writes_are_a_job_of_their_own() {
        let job = |written| job(Path::new("/store/file"), 2, 16, written);
        assert!(!job(0.0).contains("[writes]"));
        assert!(job(6400.0).ends_with("[writes]\nrw=write\nbs=262144\niodepth=2\nrate_iops=100\n"));
    }
}
