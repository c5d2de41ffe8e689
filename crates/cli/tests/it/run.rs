//! One workload by flags.

use crate::support::{folder, has_direct_io, overdrive, read, run, written_file};
use serde_json::Value;

#[test]
fn a_run_prints_a_record_with_one_workload() {
    let (code, text, error) = run(&["run", "sim", "--iodepth", "8", "--runtime", "1s", "--json"]);
    assert_eq!(code, 0, "{error}");
    let record: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["workloads"].as_array().unwrap().len(), 1);
    assert_eq!(record["workloads"][0]["job"]["queue_depth_total"], 8);
    assert!(record["workloads"][0]["outcome"]["iops"].as_f64().unwrap() > 100_000.0);
}

#[test]
fn a_single_sample_is_no_bound_of_the_median() {
    let (code, text, error) = run(&["run", "sim", "--number-ios", "1", "--json"]);
    assert_eq!(code, 0, "{error}");
    let record: Value = serde_json::from_str(&text).unwrap();
    let median = &record["workloads"][0]["outcome"]["read"]["latency"]["percentiles"][0];
    assert_eq!((&median["value_ns"], &median["at_least_ns"]), (&Value::Null, &Value::Null), "{median}");
}

#[test]
fn a_seed_replays_on_a_simulated_device() {
    let outcome = |seed: &str| {
        let (_, text, _) = run(&["run", "sim", "--rw", "randrw", "--iodepth", "4", "--seed", seed, "--json"]);
        let record: Value = serde_json::from_str(&text).unwrap();
        record["workloads"][0]["outcome"]["read"].clone()
    };
    assert_eq!(outcome("7"), outcome("7"));
    assert_ne!(outcome("7"), outcome("8"));
}

#[test]
fn every_engine_runs_on_a_file() {
    if !has_direct_io("every_engine_runs_on_a_file") {
        return;
    }
    let folder = folder();
    let path = written_file(folder.path(), 16);
    for engine in ["io_uring", "libaio", "pvsync2", "psync"] {
        let arguments = ["run", path.to_str().unwrap(), "--engine", engine, "--runtime", "50ms", "--json"];
        let (code, text, error) = run(&arguments);
        assert_eq!(code, 0, "{engine}: {error}");
        let record: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(record["workloads"][0]["job"]["engine"], engine);
    }
}

#[test]
fn polling_wants_poll_queues() {
    let (code, _, error) = run(&["run", "sim", "--hipri"]);
    assert_eq!((code, error.contains("poll queues")), (2, true), "{error}");
}

#[test]
fn workloads_that_write_want_consent() {
    let folder = folder();
    let path = written_file(folder.path(), 16);
    let (code, _, error) = run(&["run", path.to_str().unwrap(), "--rw", "randwrite", "--buffered"]);
    assert_eq!(code, 2);
    assert!(error.contains("--write-to") && error.lines().count() == 1, "{error}");
}

#[test]
fn an_open_loop_tells_response_time_and_slip() {
    let arguments = [
        "run",
        "sim:stall=600ms@100ms",
        "--iodepth",
        "16",
        "--runtime",
        "1s",
        "--rate-iops",
        "5000",
        "--json",
    ];
    let (code, text, error) = run(&arguments);
    assert_eq!(code, 0, "{error}");
    let record: Value = serde_json::from_str(&text).unwrap();
    let workload = &record["workloads"][0];
    let outcome = &workload["outcome"];
    assert_eq!(workload["job"]["detail"]["arrivals"], "constant");
    assert!((outcome["iops"].as_f64().unwrap() / 5000.0 - 1.0).abs() < 0.001);
    let p99 = |kind: &str| {
        let all = outcome["read"][kind]["percentiles"].as_array().unwrap();
        all.iter().find(|p| p["percentile"] == 99.0).unwrap()["value_ns"].as_u64().unwrap()
    };
    assert!(
        p99("response") > 50_000_000 && p99("latency") < 1_000_000,
        "{} {}",
        p99("response"),
        p99("latency")
    );
    assert!(outcome["schedule"]["slip_max_ns"].as_u64().unwrap() > 90_000_000);
    assert!(!outcome["outliers"].as_array().unwrap().is_empty());
}

#[test]
fn several_targets_are_told_apart() {
    let (code, text, error) = run(&["run", "sim", "sim:read=80us", "--runtime", "1s"]);
    assert_eq!(code, 0, "{error}");
    assert!(text.contains("By target") && text.contains("sim:read=80us: read"), "{text}");
    let (code, _, error) = run(&["run", "sim", "sim", "--numjobs", "1"]);
    assert_eq!((code, error.contains("at least one worker each")), (2, true), "{error}");
    let (code, _, error) = run(&["run", "sim", "--numjobs", "0"]);
    assert_eq!((code, error.contains("--numjobs 0: 1 target; wanted")), (2, true), "{error}");
}

#[test]
fn corruption_between_two_runs_is_found() {
    let folder = folder();
    let path = written_file(folder.path(), 16);
    let name = path.to_str().unwrap();
    let go = |more: &[&str]| {
        let common =
            ["run", name, "--buffered", "--random-map", "--seed", "7", "--ramp-time", "0s", "--bs", "64k"];
        run(&[&common[..], more].concat())
    };
    let (code, text, error) = go(&["--rw", "randwrite", "--write-to", name, "--verify", "write"]);
    assert_eq!((code, text.contains("All 256 blocks hold what was written")), (0, true), "{error}{text}");
    let (code, ..) = go(&["--rw", "randread", "--verify", "read"]);
    assert_eq!(code, 0);
    let mut content = std::fs::read(&path).unwrap();
    content[5 << 20] ^= 1;
    std::fs::write(&path, content).unwrap();
    let (code, text, _) = go(&["--rw", "randread", "--verify", "read"]);
    assert_eq!((code, text.contains("1 of 256 blocks")), (1, true), "{text}");
}

#[test]
fn a_target_that_is_named_twice_is_not_checked_against_itself() {
    let folder = folder();
    let path = written_file(folder.path(), 16);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let (name, link) = (path.to_str().unwrap(), link.to_str().unwrap());
    let before = std::fs::read(&path).unwrap();
    let words = ["run", name, link, "--write-to", name, "--write-to", link, "--buffered", "--random-map"];
    let (code, text, error) = run(&[&words[..], &["--rw", "randwrite", "--verify", "write"]].concat());
    assert_eq!((code, text.as_str(), error.lines().count()), (2, "", 1), "{error}");
    assert!(error.contains("wanted it named once"), "{error}");
    assert!(std::fs::read(&path).unwrap() == before, "nothing was touched");
}

#[test]
fn a_path_that_is_no_text_stands_in_the_record_as_far_as_it_is() {
    use std::os::unix::ffi::OsStrExt;
    let folder = folder();
    let path = folder.path().join(std::ffi::OsStr::from_bytes(b"arr\xffivals"));
    std::fs::write(&path, "0\n").unwrap();
    let words = ["run", "sim", "--runtime", "1ms", "--ramp-time", "0s", "--json", "--arrivals"];
    let (code, text, error) = read(&overdrive().args(words).arg(&path).output().unwrap());
    assert_eq!(code, 0, "{error}");
    let record: Value = serde_json::from_str(&text).unwrap();
    let last = record["command"].as_array().unwrap().last().unwrap();
    assert!(last.as_str().unwrap().ends_with("arr\u{fffd}ivals"), "{last}");
}

#[test]
fn impossible_jobs_are_refused_in_one_line() {
    for (arguments, words) in [
        (&["--bssplit", "4k/60:8k/60"][..], "120 %"),
        (&["--random-distribution", "zipf:-1"], "zipf"),
        (&["--rate-process", "poisson"], "--rate-iops"),
        (&["--rate-iops", "0"], "operations a second"),
        (&["--verify", "read"], "random map"),
        (&["--offset", "9000G"], "offset"),
        (&["--ioengine", "psync"], "sim"),
        (&["--arrivals", "/nowhere/at/all"], "/nowhere/at/all"),
        (&["--fsync", "0"], "--fsync"),
        (&["--write-lat-log", "/nowhere/at/all"], "/nowhere/at/all_lat.1.log"),
        (&["--log-avg-msec", "0", "--write-bw-log", "x"], "--log-avg-msec"),
        (&["--latency-target", "1ms", "--rate-iops", "5"], "a latency target and a rate"),
        (&["--latency-target", "1ms", "--latency-percentile", "101"], "101 %"),
        (&["--steadystate", "iops:1%"], "virtual time"),
        (&["--steadystate", "speed:1%"], "lat_slope"),
        (&["--percentile-list", "50:101"], "50:99:99.9"),
        (&["--write-to", "/somewhere/else"], "/somewhere/else"),
        (&["--buffer-pattern", "abc"], "0xHEX"),
        (&["--buffer-compress-percentage", "101"], "0 to 100"),
        (&["--sync", "maybe"], "none, sync or dsync"),
        (&["--iodepth-batch", "2"], "submit batch of 2: wanted 1 to 1"),
        (&["--log-avg-msec", "250"], "--write-lat-log"),
        (&["--log-avg-msec", "250", "--write-hist-log", "x"], "--write-lat-log"),
        (&["--log-offset"], "--write-lat-log"),
        (&["--log-shared"], "--write-hist-log"),
        (&["--ss-dur", "5s"], "--steadystate"),
        (&["--ss-interval", "5s"], "--steadystate"),
        (&["--latency-run"], "--latency-target"),
        (&["--latency-window", "2s"], "--latency-target"),
        (&["--thinktime-blocks", "4"], "--thinktime"),
        (&["--json", "--output-format", "fio-json"], "cannot be used with"),
        (&["--json", "--save-job"], "cannot be used with"),
        (&["--json", "--dry-run"], "cannot be used with"),
        (&["--seed", "-1"], "wanted a whole number"),
        (&["--rate-iops", "-5"], "operations a second"),
    ] {
        let (code, text, error) = run(&[&["run", "sim", "--runtime", "1s"], arguments].concat());
        assert_eq!((code, text.as_str()), (2, ""), "{arguments:?}: {error}");
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
}

/// The record of a run that ends with `code`.
fn record(code: i32, arguments: &[&str]) -> Value {
    let (found, text, error) = run(&[&["run"], arguments, &["--json"]].concat());
    assert_eq!(found, code, "{error}");
    serde_json::from_str(&text).unwrap()
}

/// One server with constant service time: 10,000 a second.
const SERVER: &str = "sim:read=100us,write=100us,jitter=0,slow=0@1us,channels=1,per_kib=0ns";

#[test]
fn an_objective_gives_the_highest_rate_that_holds_it() {
    let objective = ["--objective", "p99=150us", "--rate-process", "linear", "--iodepth", "32"];
    let search =
        record(0, &[&[SERVER], objective.as_slice(), &["--runtime", "2s"]].concat())["search"].clone();
    let found = search["found_iops"].as_f64().unwrap();
    assert!((found / 10_000.0 - 1.0).abs() < 0.012, "{found}");
    assert_eq!(search["arrivals"], "constant");
    assert!(search["points"].as_array().unwrap().iter().any(|point| point["holds"] == true));
    let text = run(&[&["run", SERVER], objective.as_slice()].concat()).1;
    assert!(text.contains("p99 within 150") && text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn an_objective_that_nothing_holds_is_a_bad_result() {
    let search = record(1, &[SERVER, "--objective", "p50=50us", "--iodepth", "8"])["search"].clone();
    assert_eq!(search["found_iops"], Value::Null);
    assert!(search["reason"].as_str().unwrap().contains("the target itself takes"), "{}", search["reason"]);
}

#[test]
fn a_sweep_has_the_points_asked_for_and_a_knee() {
    let search = record(0, &[SERVER, "--sweep=9", "--iodepth", "64", "--runtime", "5s"])["search"].clone();
    assert_eq!(search["points"].as_array().unwrap().len(), 9);
    let knee = search["knee_iops"].as_f64().unwrap();
    assert!((5_000.0..9_600.0).contains(&knee), "{knee}");
    let mut loads: Vec<f64> =
        search["points"].as_array().unwrap().iter().map(|p| p["asked_iops"].as_f64().unwrap()).collect();
    loads.sort_by(f64::total_cmp);
    assert!(loads[4] > 5_500.0, "most points lie where the curve rises: {loads:?}");
}

#[test]
fn a_surface_leaves_out_what_is_too_much_anyway() {
    let surface = ["--surface=4", "--rw", "randrw", "--iodepth", "32", "--runtime", "1s"];
    let search = record(0, &[&[SERVER], surface.as_slice()].concat())["search"].clone();
    let points = search["points"].as_array().unwrap();
    let kept = |point: &&Value| point["kept"] == true;
    // Quarters of each ceiling: (1, 3), (2, 2) and (3, 1) are the whole of the server; beyond is left out.
    assert!(points.iter().filter(kept).count() >= 9 && points.len() < 15, "{}", points.len());
    assert!(points.iter().any(|point| point["read"].is_object() && point["write"].is_object()));
}

#[test]
fn a_surface_writes_as_little_as_it_says() {
    // Reads are two hundred times as fast as writes: half a per cent of the I/Os write.
    let slow = "sim:read=100us,write=20ms,jitter=0,slow=0@1us,channels=8,per_kib=0ns";
    let surface = ["--surface=3", "--rw", "randrw", "--iodepth", "32", "--runtime", "4s"];
    let search = record(0, &[&[slow], surface.as_slice()].concat())["search"].clone();
    let first = |point: &&Value| point["read"].is_object() && point["write"].is_object();
    let point = search["points"].as_array().unwrap().iter().find(first).unwrap();
    let asked = point["asked_write_iops"].as_f64().unwrap();
    let done = point["write"]["iops"].as_f64().unwrap();
    assert!((done / asked - 1.0).abs() < 0.25, "{done} writes a second for {asked}");
}

#[test]
fn a_search_decides_when_ios_are_due() {
    for (arguments, piece) in [
        (&["--objective", "99=1ms"] as &[&str], "p99.9=200us"),
        (&["--objective", "p99=200"], "wanted a unit, such as 200us"),
        (
            &["--objective", "p99=1ms", "--save-job"],
            "--objective has no place in a job file; wanted --save-job",
        ),
        (&["--sweep", "--save-job"], "--sweep has no place in a job file"),
        (&["--sweep", "--dry-run", "--latency-target", "1ms"], "they take no logs"),
        (&["--objective", "p99=1ms", "--rate-iops", "5"], "cannot be used with"),
        (&["--sweep=2"], "4..=200"),
        (&["--surface"], "--rw randrw"),
        (&["--surface", "--sweep"], "cannot be used with"),
    ] {
        let (code, _, error) = run(&[&["run", "sim"], arguments].concat());
        assert!(code == 2 && error.contains(piece), "{arguments:?}: {code} {error}");
    }
}

#[test]
fn syncs_and_trims_are_told_apart() {
    let folder = folder();
    let path = written_file(folder.path(), 16);
    let name = path.to_str().unwrap();
    let go = |more: &[&str]| {
        let common = ["run", name, "--direct", "0", "--write-to", name, "--ramp-time", "0s", "--json"];
        let (code, text, error) = run(&[&common[..], more].concat());
        assert_eq!(code, 0, "{more:?}: {error}");
        let record: Value = serde_json::from_str(&text).unwrap();
        record["workloads"][0].clone()
    };
    let arguments = [
        "--rw",
        "randwrite",
        "--number-ios",
        "64",
        "--fsync",
        "16",
        "--sync",
        "dsync",
        "--ioengine",
        "psync",
        "--buffer-pattern",
        "0xabcd",
    ];
    let written = go(&arguments);
    assert_eq!((&written["outcome"]["sync"]["ios"], &written["outcome"]["ios"]), (&4.into(), &64.into()));
    assert_eq!(
        (&written["job"]["detail"]["sync"], &written["job"]["detail"]["fsync_every"]),
        (&"dsync".into(), &16.into())
    );
    let content = std::fs::read(&path).unwrap();
    let blocks =
        content.chunks(4096).filter(|block| block.chunks(2).all(|pair| pair == [0xab, 0xcd])).count();
    assert!((60..=64).contains(&blocks), "{blocks}");
    let trimmed = go(&["--rw", "trim", "--bs", "64k", "--number-ios", "256", "--ioengine", "pvsync2"]);
    assert_eq!(trimmed["outcome"]["trim"]["bytes"], 16 << 20);
    assert!(std::fs::read(&path).unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn percentiles_recomputed_from_the_raw_log_are_the_printed_ones() {
    let folder = folder();
    let prefix = folder.path().join("io").display().to_string();
    let arguments = [
        "run",
        "sim:slow=0.001@700us,jitter=0.3",
        "--iodepth",
        "8",
        "--numjobs",
        "2",
        "--runtime",
        "1s",
        "--write-lat-log",
        &prefix,
        "--log-offset",
        "--percentile-list",
        "97.5",
        "--json",
    ];
    let (code, text, error) = run(&arguments);
    assert_eq!(code, 0, "{error}");
    let record: Value = serde_json::from_str(&text).unwrap();
    let printed = &record["workloads"][0]["outcome"]["read"]["latency"]["percentiles"];
    let mut latencies: Vec<u64> = [1, 2]
        .iter()
        .flat_map(|worker| {
            let log = std::fs::read_to_string(format!("{prefix}_lat.{worker}.log")).unwrap();
            let field = |line: &str| line.split(", ").nth(1).unwrap().parse().unwrap();
            log.lines().map(field).collect::<Vec<u64>>()
        })
        .collect();
    latencies.sort_unstable();
    let mut compared = 0;
    for percentile in printed.as_array().unwrap() {
        let Some(shown) = percentile["value_ns"].as_u64() else { continue };
        let rank = percentile["percentile"].as_f64().unwrap() / 100.0 * latencies.len() as f64;
        let truth = latencies[(rank.ceil() as usize).clamp(1, latencies.len()) - 1];
        let error = shown as f64 / truth as f64 - 1.0;
        assert!((0.0..=0.008).contains(&error), "{percentile}: {truth} by the log");
        compared += 1;
    }
    assert!(compared >= 6, "{printed}");
    assert!(printed.as_array().unwrap().iter().any(|p| p["percentile"] == 97.5));
}

#[test]
fn logs_have_fios_names_and_windows() {
    let folder = folder();
    let prefix = folder.path().join("x").display().to_string();
    let arguments = [
        "run",
        "sim",
        "--rate-iops",
        "2000",
        "--runtime",
        "1s",
        "--write-bw-log",
        &prefix,
        "--write-iops-log",
        &prefix,
        "--log-avg-msec",
        "250",
        "--log-shared",
    ];
    let (code, _, error) = run(&arguments);
    assert_eq!(code, 0, "{error}");
    let read = |kind: &str| std::fs::read_to_string(format!("{prefix}_{kind}.log")).unwrap();
    assert!(read("iops").starts_with("250, 2000, 0, 0, 0\n500, 2000, 0, 0, 0\n"), "{}", read("iops"));
    assert!(read("bw").starts_with("250, 8000, 0, 0, 0\n"), "{}", read("bw"));
}

#[test]
fn a_latency_target_names_the_depth() {
    let target = "sim:read=80us,jitter=0,slow=0@1us,channels=8,per_kib=0ns";
    let arguments = ["run", target, "--iodepth", "64", "--runtime", "60s", "--latency-target", "100us"];
    let (code, text, error) = run(&[&arguments[..], &["--latency-window", "20ms"]].concat());
    assert_eq!((code, text.contains("is kept up to a depth of 8")), (0, true), "{error}{text}");
}

#[test]
fn several_targets_are_written_when_each_is_named() {
    let folder = folder();
    let paths = ["one", "two"].map(|name| folder.path().join(name));
    for path in &paths {
        std::fs::write(path, vec![1; 16 << 20]).unwrap();
    }
    let names: Vec<&str> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    let common =
        ["run", names[0], names[1], "--direct", "0", "--rw", "write", "--bs", "64k", "--number-ios", "256"];
    let one = ["--zero-buffers", "--ramp-time", "0s", "--write-to", names[0]];
    let (code, _, error) = run(&[&common[..], &one].concat());
    assert_eq!((code, error.contains(names[1])), (2, true), "{error}");
    assert!(std::fs::read(&paths[0]).unwrap().iter().all(|&byte| byte == 1), "nothing was touched");
    let (code, _, error) = run(&[&common[..], &one, &["--write-to", names[1]]].concat());
    assert_eq!(code, 0, "{error}");
    for path in &paths {
        assert!(std::fs::read(path).unwrap().iter().all(|&byte| byte == 0), "{}", path.display());
    }
}
