//! Overdrive's side: how it is called, and what its record says. The record is read from its JSON, as any
//! other program would read it.

use super::{Job, SAME_STEP, Sample, process};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// Runs one job.
pub(super) fn measure(binary: &Path, job: &Job<'_>, stop: &AtomicBool) -> Result<Sample> {
    let text = process::output(Command::new(binary).args(arguments(job)), stop)?;
    parse(&text, job.engine).context("the record is not as expected")
}

fn arguments(job: &Job<'_>) -> Vec<String> {
    let mut arguments = vec!["run".to_owned(), job.file.display().to_string()];
    let fixed = ["--rw", "randread", "--bs", "4k", "--numjobs", "1", "--ramp-time", "1s", "--json"];
    arguments.extend(fixed.map(str::to_owned));
    arguments.extend(["--engine".to_owned(), job.engine.to_owned()]);
    if job.batched {
        // As many at once as fio.
        arguments.extend(["--iodepth-batch-complete", "8", "--iodepth-batch", "8"].map(str::to_owned));
    } else if job.depth > 1 {
        arguments.extend(["--iodepth-batch", SAME_STEP].map(str::to_owned));
    }
    arguments.extend(["--iodepth".to_owned(), job.depth.to_string()]);
    arguments.extend(["--runtime".to_owned(), format!("{}s", job.runtime_s)]);
    arguments
}

fn parse(text: &str, wanted: &str) -> Result<Sample> {
    let record: Value = serde_json::from_str(text).context("not JSON")?;
    let schema = record.pointer("/schema").and_then(Value::as_str).unwrap_or("none");
    if schema != "overdrive.record/1" {
        bail!("its schema is {schema}");
    }
    let workload = record.pointer("/workloads/0").context("no workload")?;
    let engine = workload.pointer("/job/engine").and_then(Value::as_str).unwrap_or("none");
    let direct = record.pointer("/target/direct").and_then(Value::as_bool).unwrap_or(false);
    if engine != wanted || !direct {
        bail!("not equal settings: engine {engine}, direct {direct}");
    }
    if workload.pointer("/outcome/errors").and_then(Value::as_array).is_none_or(|errors| !errors.is_empty()) {
        bail!("the run had I/O errors");
    }
    let figure = |path: &str| {
        let value = workload.pointer("/outcome").and_then(|outcome| outcome.pointer(path));
        value.and_then(Value::as_f64).with_context(|| format!("no outcome{path}"))
    };
    Ok(Sample {
        iops: figure("/iops")?,
        mean_ns: figure("/read/latency/mean_ns")?,
        p50_ns: percentile(workload, 50.0),
        p99_ns: percentile(workload, 99.0),
        p99_9_ns: percentile(workload, 99.9),
        user_ns_per_io: figure("/cpu/user_ns_per_io")?,
        system_ns_per_io: figure("/cpu/system_ns_per_io")?,
    })
}

fn percentile(workload: &Value, wanted: f64) -> Option<u64> {
    let all = workload.pointer("/outcome/read/latency/percentiles")?.as_array()?;
    let is_wanted = |entry: &&Value| {
        let percentile = entry.get("percentile").and_then(Value::as_f64);
        percentile.is_some_and(|percentile| (percentile - wanted).abs() < 1e-9)
    };
    all.iter().find(is_wanted)?.get("value_ns")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record cut to what is read.
    const RECORD: &str = r#"{
      "schema": "overdrive.record/1",
      "target": { "direct": true },
      "workloads": [{
        "job": { "engine": "io_uring" },
        "outcome": {
          "iops": 21000.5,
          "errors": [],
          "cpu": { "user_ns_per_io": 500.0, "system_ns_per_io": 2500 },
          "read": { "latency": { "mean_ns": 47000.0, "percentiles": [
            { "percentile": 50.0, "value_ns": 45000 },
            { "percentile": 99.0, "value_ns": 80000 },
            { "percentile": 99.9, "value_ns": null, "at_least_ns": 90000 }
          ] } }
        }
      }]
    }"#;

    #[test]
    fn the_figures_are_read() {
        let sample = parse(RECORD, "io_uring").unwrap();
        assert_eq!((sample.iops, sample.mean_ns), (21000.5, 47000.0));
        assert_eq!((sample.p50_ns, sample.p99_ns, sample.p99_9_ns), (Some(45000), Some(80000), None));
        assert_eq!(sample.cpu_ns_per_io(), 3000.0);
    }

    #[test]
    fn unequal_settings_and_errors_are_refused() {
        for (from, to, word) in [
            ("overdrive.record/1", "other/1", "schema is other/1"),
            ("\"io_uring\"", "\"pvsync2\"", "engine pvsync2"),
            ("\"direct\": true", "\"direct\": false", "direct false"),
            ("\"errors\": []", "\"errors\": [{}]", "I/O errors"),
            ("\"iops\"", "\"rate\"", "outcome/iops"),
            ("\"workloads\"", "\"jobs\"", "no workload"),
            ("{", "", "not JSON"),
        ] {
            let error = format!("{:#}", parse(&RECORD.replacen(from, to, 1), "io_uring").unwrap_err());
            assert!(error.contains(word), "{word}: {error}");
        }
    }
}
