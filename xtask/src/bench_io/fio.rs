//! fio's side: how it is called, and what its JSON says.

use super::{Job, SAME_STEP, Sample, process};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// How much fio is helped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strength {
    /// As people start it.
    Defaults,
    /// With registered buffers and files and without the bookkeeping of which blocks were visited, as
    /// Overdrive works.
    Full,
    /// The same in batches of eight: the least CPU time for each I/O that fio gets at depth 32.
    Batched,
}

/// fio's own name and version; `None` when it cannot be started.
pub(super) fn version() -> Option<String> {
    let output = Command::new("fio").arg("--version").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs one job.
pub(super) fn measure(job: &Job<'_>, strength: Strength, stop: &AtomicBool) -> Result<Sample> {
    let text = process::output(Command::new("fio").args(arguments(job, strength)), stop)?;
    parse(&text).context("fio's JSON is not as expected")
}

fn arguments(job: &Job<'_>, strength: Strength) -> Vec<String> {
    let mut arguments: Vec<String> = [
        "--name=bench",
        "--rw=randread",
        "--bs=4k",
        "--direct=1",
        "--numjobs=1",
        "--thread",
        "--time_based",
        "--ramp_time=1",
        // The honest latency: from before the submission, as Overdrive takes it.
        "--lat_percentiles=1",
        "--clat_percentiles=0",
        "--percentile_list=50:99:99.9",
        "--output-format=json",
    ]
    .map(str::to_owned)
    .to_vec();
    arguments.push(format!("--ioengine={}", job.engine));
    arguments.push(format!("--filename={}", job.file.display()));
    arguments.push(format!("--iodepth={}", job.depth));
    arguments.push(format!("--runtime={}", job.runtime_s));
    if strength != Strength::Defaults {
        arguments.extend(["--norandommap", "--randrepeat=0"].map(str::to_owned));
    }
    if strength != Strength::Defaults && job.engine == "io_uring" {
        arguments.extend(["--fixedbufs", "--registerfiles"].map(str::to_owned));
    }
    let all = job.depth.to_string();
    let batches = match strength {
        // Unless it is told, fio takes back no more completions at a time than it waits for, however many lie
        // there, and how long the others lie becomes part of their latency.
        Strength::Batched => vec![("submit", "8"), ("complete_min", "8"), ("complete_max", all.as_str())],
        Strength::Full if job.depth > 1 => vec![("submit", SAME_STEP), ("complete_max", all.as_str())],
        _ => Vec::new(),
    };
    arguments.extend(batches.iter().map(|(what, count)| format!("--iodepth_batch_{what}={count}")));
    arguments
}

fn parse(text: &str) -> Result<Sample> {
    // fio may print a remark before the JSON.
    let json = &text[text.find('{').context("no JSON in fio's output")?..];
    let value: Value = serde_json::from_str(json)?;
    let job = value.pointer("/jobs/0").context("no job")?;
    let figure = |path: &str| job.pointer(path).and_then(Value::as_f64).with_context(|| format!("no {path}"));
    let error = figure("/error")?;
    if error != 0.0 {
        bail!("the job ended with error {error}");
    }
    let ios = figure("/read/total_ios")?;
    if ios == 0.0 {
        bail!("no I/O was done");
    }
    let percentile = |name: &str| job.pointer("/read/lat_ns/percentile")?.get(name)?.as_u64();
    // fio gives CPU time as a share of the measured time, in per cent.
    let runtime_ns = figure("/job_runtime")? * 1e6;
    let per_io = |percent: f64| percent / 100.0 * runtime_ns / ios;
    Ok(Sample {
        iops: figure("/read/iops")?,
        mean_ns: figure("/read/lat_ns/mean")?,
        p50_ns: percentile("50.000000"),
        p99_ns: percentile("99.000000"),
        p99_9_ns: percentile("99.900000"),
        user_ns_per_io: per_io(figure("/usr_cpu")?),
        system_ns_per_io: per_io(figure("/sys_cpu")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The shape of fio 3.33's output, cut to what is read, with round figures.
    const OUTPUT: &str = r#"fio: a remark that is not JSON
{
  "fio version" : "fio-3.33",
  "jobs" : [
    {
      "jobname" : "bench",
      "error" : 0,
      "read" : {
        "iops" : 20000.5,
        "total_ios" : 100000,
        "lat_ns" : {
          "min" : 22000,
          "max" : 900000,
          "mean" : 49000.25,
          "percentile" : { "50.000000" : 47000, "99.000000" : 90000 }
        }
      },
      "job_runtime" : 5000,
      "usr_cpu" : 4.0,
      "sys_cpu" : 16.0
    }
  ]
}
"#;

    #[test]
    fn the_figures_are_read() {
        let sample = parse(OUTPUT).unwrap();
        assert_eq!(sample.iops, 20000.5);
        assert_eq!(sample.mean_ns, 49000.25);
        assert_eq!((sample.p50_ns, sample.p99_ns, sample.p99_9_ns), (Some(47000), Some(90000), None));
        // 4 % of 5 s over 100000 I/Os is 2 us each.
        assert_eq!((sample.user_ns_per_io, sample.system_ns_per_io), (2000.0, 8000.0));
    }

    #[test]
    fn a_failed_or_empty_run_is_no_figure() {
        for (from, to, word) in [
            ("\"error\" : 0", "\"error\" : 5", "error 5"),
            ("\"total_ios\" : 100000", "\"total_ios\" : 0", "no I/O"),
            ("\"usr_cpu\"", "\"cpu\"", "/usr_cpu"),
            ("\"jobs\"", "\"tasks\"", "no job"),
            ("{", "", "no JSON"),
        ] {
            let text = if from == "{" { "nothing".to_owned() } else { OUTPUT.replacen(from, to, 1) };
            let error = format!("{:#}", parse(&text).unwrap_err());
            assert!(error.contains(word), "{word}: {error}");
        }
    }

    #[test]
    fn only_the_strong_run_has_the_extras() {
        let job = Job { file: Path::new("f"), engine: "io_uring", depth: 32, batched: false, runtime_s: 5 };
        let strong = arguments(&job, Strength::Full);
        let plain = arguments(&job, Strength::Defaults);
        assert_eq!(&strong[..plain.len()], &plain[..]);
        assert!(strong.contains(&"--fixedbufs".to_owned()) && strong.contains(&"--registerfiles".to_owned()));
        assert!(strong.contains(&"--iodepth_batch_submit=4".to_owned()));
        assert!(strong.contains(&"--iodepth_batch_complete_max=32".to_owned()));
        let single = arguments(&Job { depth: 1, ..job }, Strength::Full);
        assert!(!single.iter().any(|argument| argument.contains("batch")));
        let sync = arguments(&Job { engine: "pvsync2", depth: 1, ..job }, Strength::Full);
        assert!(!sync.contains(&"--fixedbufs".to_owned()) && sync.contains(&"--ioengine=pvsync2".to_owned()));
        assert!(plain.contains(&"--iodepth=32".to_owned()) && plain.contains(&"--direct=1".to_owned()));
    }
}
