//! Job files from end to end, fio's JSON, and looking before running.

use crate::support::{folder, overdrive, read, run, skip, words_of, written_file};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/jobs").join(name).display().to_string()
}

fn job(folder: &Path, text: &str) -> String {
    let path = folder.join("job.fio");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn phases_run_one_after_the_other_and_groups_are_summed() {
    let arguments = ["run", &fixture("phases.fio"), "--output-format", "json"];
    let output =
        overdrive().args(arguments).env("TARGET", "sim\\:size=1g").env("SECONDS", "200ms").output().unwrap();
    let (code, text, error) = read(&output);
    assert_eq!(code, 0, "{error}");
    let json: Value = serde_json::from_str(&text).unwrap();
    let jobs = json["jobs"].as_array().unwrap();
    let names: Vec<&str> = jobs.iter().map(|job| job["jobname"].as_str().unwrap()).collect();
    assert_eq!(names, ["reader", "alone"], "the two of the first group are one");
    assert_eq!(jobs[1]["groupid"], 1);
    assert!(jobs[1]["write"]["total_ios"].as_u64().unwrap() > 0);
    assert_eq!(json["global options"]["ioengine"], "io_uring");
}

#[test]
fn jobs_of_one_phase_run_at_the_same_time() {
    let folder = folder();
    let path = written_file(folder.path(), 32);
    let text = format!(
        "[global]\nfilename={}\nioengine=psync\ntime_based\nruntime=300ms\nrw=randread\nnorandommap\n[a]\n[b]\n[c]\nstonewall\n",
        path.display()
    );
    let start = std::time::Instant::now();
    let (code, text, error) = run(&["run", &job(folder.path(), &text), "--json"]);
    assert_eq!(code, 0, "{error}");
    let record: Value = serde_json::from_str(&text).unwrap();
    let workloads = record["workloads"].as_array().unwrap();
    let elapsed: f64 = workloads.iter().map(|one| one["outcome"]["elapsed_s"].as_f64().unwrap()).sum();
    assert!(workloads.len() == 3 && elapsed > 0.89, "{elapsed}");
    assert!(record["elapsed_s"].as_f64().unwrap() < 0.89 + (start.elapsed().as_secs_f64() - 0.6).max(0.0));
}

#[test]
fn a_job_without_a_target_has_a_scratch_file_and_leaves_nothing() {
    let folder = folder();
    let text = format!("[a]\nsize=16m\nrw=randread\nbs=64k\ndirectory={}\n", folder.path().display());
    let path = job(folder.path(), &text);
    let (code, text, error) = run(&["run", &path, "--output-format", "fio-json"]);
    assert_eq!(code, 0, "{error}");
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["jobs"][0]["read"]["io_bytes"], 16 << 20, "as fio does, once over its size");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let (_, text, _) = run(&["run", &path, "--json"]);
    let record: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["preconditioning"]["kind"], "written", "the record says what was done to it");
    assert_eq!(record["preconditioning"]["bytes_written"], 16 << 20);
}

#[test]
fn writing_jobs_want_consent_for_each_target() {
    let folder = folder();
    let path = written_file(folder.path(), 16);
    let name = path.to_str().unwrap();
    let before = std::fs::read(&path).unwrap();
    let file = job(folder.path(), &format!("[w]\nfilename={name}\nrw=randwrite\nnumber_ios=10\n"));
    let (code, text, error) = run(&["run", &file]);
    assert_eq!((code, text.as_str()), (2, ""));
    assert!(error.contains("[w]: it writes to") && error.contains("--write-to"), "{error}");
    let (code, _, error) = run(&["run", &file, "--write-to", "/somewhere/else"]);
    assert!(code == 2 && error.contains("does not name a target"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let (code, _, error) = run(&["run", &file, "--write-to", name]);
    assert_eq!(code, 0, "{error}");
    assert_ne!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn jobs_that_check_the_same_blocks_at_the_same_time_are_refused() {
    let folder = folder();
    let path = written_file(folder.path(), 16);
    let name = path.to_str().unwrap();
    let go = |separator: &str| {
        let global = format!("[global]\nfilename={name}\nrw=randwrite\nbs=64k\n");
        let checked = format!("[a]\nstonewall\nverify=crc32c\n[b]\n{separator}verify=crc32c\n");
        let file = job(folder.path(), &format!("{global}[look]\nrw=read\n{checked}"));
        run(&["run", &file, "--write-to", name])
    };
    let (code, text, error) = go("");
    assert!(code == 2 && text.is_empty() && error.contains("one after the other (stonewall)"), "{error}");
    let (code, text, error) = go("stonewall\n");
    assert_eq!((code, text.matches("All 256 blocks hold").count()), (0, 2), "{error}{text}");
}

#[test]
fn looking_touches_nothing() {
    let missing = ["run", "/nowhere/at/all", "--rw", "randwrite", "--bs", "64k", "--dry-run"];
    let (code, text, error) = run(&missing);
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(text.contains("on /nowhere/at/all") && text.contains("bs=65536"), "{text}");
    let (code, text, error) = run(&["run", &fixture("guide-qd1.fio"), "--dry-run", "--ignore-unsupported"]);
    assert_eq!(code, 0, "{error}");
    assert!(text.contains("ioengine=pvsync2") && text.lines().all(|line| line.len() <= 160), "{text}");
    let folder = folder();
    let (_, saved, _) = run(&["run", "/dev/x", "--rw", "randrw", "--numjobs", "4", "--save-job"]);
    let (code, again, error) = run(&["run", &job(folder.path(), &saved), "--save-job"]);
    assert_eq!((code, again), (0, saved), "{error}");
}

#[test]
fn a_search_and_a_simulated_device_are_told_as_they_would_run() {
    let search = ["run", "sim", "--objective", "p99.9=200us", "--sweep", "--dry-run"];
    let (code, text, error) = run(&search);
    assert_eq!((code, error.as_str()), (0, ""));
    let text = words_of(&text);
    let note =
        "Note: search: the highest rate with p99.9 within 200 us, then latency against load at 12 loads";
    assert!(text.contains(note) && text.contains("ioengine=sim"), "{text}");
    let folder = folder();
    let job = |text: &str| job(folder.path(), text);
    let (_, saved, _) = run(&["run", "sim:read=80us", "--runtime", "100ms", "--save-job"]);
    assert!(saved.contains("ioengine=sim\n"), "{saved}");
    let (code, again, error) = run(&["run", &job(&saved), "--save-job"]);
    assert_eq!((code, &again), (0, &saved), "{error}");
    let (code, text, error) = run(&["run", &job(&saved), "--json"]);
    assert_eq!(code, 0, "{error}");
    let record: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["workloads"][0]["job"]["engine"], "sim");
    assert!(!text.contains("engine sim instead of"), "it was asked for");
    let path = written_file(folder.path(), 16);
    let real = format!("[a]\nfilename={}\nioengine=sim\n", path.display());
    let (code, _, error) = run(&["run", &job(&real)]);
    assert_eq!((code, error.contains("wanted a simulated target")), (2, true), "{error}");
}

#[test]
fn what_is_wrong_with_a_job_file_is_said_in_one_line() {
    let folder = folder();
    for (text, words) in [
        ("[a]\niodeth=4\n", "job.fio:2: unknown option 'iodeth'; the nearest known one is iodepth"),
        ("[a]\nzonemode=zbd\n", "--ignore-unsupported"),
        ("[a]\nfilename=sim\nsize=2000g\n", "[a]: offset 0 and size"),
        ("[a]\nfilename=sim\nbs=1000\n", "block size 1000"),
        ("[a]\nrw=read\n", "wanted a filename, or a size"),
        ("[a]\nfilename=sim\ncpus_allowed=8000\n", "none of the CPUs"),
        ("[a]\nfilename=trtype=PCIe traddr=0000.ff.1f.7 ns=1\nioengine=spdk\n", "0000:ff:1f.7"),
    ] {
        let (code, out, error) = run(&["run", &job(folder.path(), text), "--output-format", "fio-json"]);
        assert_eq!((code, out.as_str()), (2, ""), "{text}");
        let last = error.lines().last().unwrap_or("");
        assert!(last.contains(words), "{text}: {error}");
    }
    let (code, _, error) = run(&["run", &fixture("guide-spdk.fio"), "--bs", "8k"]);
    assert!(code == 2 && error.contains("--bs: the job file"), "{error}");
    assert_eq!(run(&["run", "/nowhere/job.fio"]).0, 2);
}

/// Every path of keys in a JSON text; what differs from run to run by nature is left out.
fn keys(value: &Value, path: &str, all: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) if !path.ends_with("/bins") => {
            for (name, value) in map {
                let path = format!("{path}/{name}");
                all.insert(path.clone());
                keys(value, &path, all);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| keys(value, &format!("{path}/#"), all)),
        _ => {}
    }
}

fn fio() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("fio")).find(|path| path.is_file())
}

#[test]
fn the_json_has_exactly_the_keys_of_fios() {
    let Some(fio) = fio() else {
        skip("the_json_has_exactly_the_keys_of_fios", "fio is not installed");
        return;
    };
    let folder = folder();
    let path = written_file(folder.path(), 32);
    let text = format!(
        "[global]\nfilename={0}\nsize=32m\nioengine=psync\nbs=4k\n[a]\nrw=randread\n[b]\nstonewall\nrw=randrw\nnumber_ios=500\n\
         numjobs=2\n[d]\nstonewall\nrw=randwrite\nfsync=10\nnumber_ios=500\n[c]\nstonewall\nrw=randrw\nnumber_ios=500\nnumjobs=2\ngroup_reporting\npercentile_list=50:99.9\n",
        path.display()
    );
    let file = job(folder.path(), &text);
    for format in ["json", "json+"] {
        let theirs = std::process::Command::new(&fio)
            .args([&format!("--output-format={format}"), &file])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let theirs = String::from_utf8_lossy(&theirs.stdout).into_owned();
        let arguments = ["run", &file, "--output-format", format, "--write-to", path.to_str().unwrap()];
        let (code, ours, error) = run(&arguments);
        assert_eq!(code, 0, "{error}");
        let paths = |text: &str| {
            let mut all = BTreeSet::new();
            keys(&serde_json::from_str(text).unwrap(), "", &mut all);
            all
        };
        let (theirs, ours) = (paths(&theirs), paths(&ours));
        let missing: Vec<&String> = theirs.difference(&ours).collect();
        let strange: Vec<&String> = ours.difference(&theirs).collect();
        assert!(missing.is_empty() && strange.is_empty(), "missing {missing:?}, strange {strange:?}");
    }
}

#[test]
fn a_diskspd_line_prints_diskspds_tables() {
    let folder = folder();
    let path = written_file(folder.path(), 16);
    let name = path.to_str().unwrap();
    let line = ["diskspd", "-d1", "-W0", "-b4k", "-w30", "-r", "-o2", "-t2", "-L", name, "--write-to", name];
    let (code, text, error) = run(&line);
    assert_eq!(code, 0, "{error}");
    for words in [
        "Command Line: diskspd -d1",
        "Total IO",
        "Read IO",
        "Write IO",
        "avg.|",
        "9-nines |",
        "thread count:\t\t2",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let (code, text, error) = run(&[&line[..10], &["-Rxml", "--write-to", name]].concat());
    assert_eq!(code, 0, "{error}");
    assert!(text.starts_with("<Results>") && text.matches("<Thread>").count() == 2, "{text}");
    let (code, text, error) = run(&["diskspd", "-b4k", "-q", "x"]);
    assert_eq!((code, text.as_str(), error.contains("-q: no flag of DISKSPD's")), (2, "", true), "{error}");
    let (code, text, _) = run(&["diskspd", "-Rp", "-b4k", "-r", "/nowhere"]);
    assert!(code == 0 && text.contains("rw=randread bs=4096"), "{text}");
}

#[test]
fn a_line_of_spdks_perf_prints_its_tables() {
    let line = ["spdk-perf", "-q", "4", "-o", "4096", "-w", "randrw", "-M", "70", "-t", "1", "-LL", "sim"];
    let (code, text, error) = run(&line);
    assert_eq!(code, 0, "{error}");
    for words in
        ["Device Information", "sim from core  0:", "Total", "Summary latency data for sim", "99.99999% :"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(text.contains("Range in us     Cumulative    IO count"), "{text}");
    assert!(error.contains("SPDK drives devices past the kernel"), "{error}");
    let (code, saved, _) = run(&[&line[..], &["--save-job"]].concat());
    assert!(code == 0 && saved.contains("ioengine=spdk") && saved.contains("rwmixread=70"), "{saved}");
}

#[test]
fn the_guides_jobs_run_unchanged_but_for_the_file_name() {
    let folder = folder();
    let path = written_file(folder.path(), 16);
    for name in ["guide-qd1.fio", "guide-appendix.fio", "guide-qd16.fio", "guide-spdk.fio"] {
        let text = std::fs::read_to_string(fixture(name)).unwrap();
        let device = text.lines().find(|line| line.starts_with("filename=")).unwrap();
        // And for the time: nobody waits five minutes for a test, nor has every build folder direct I/O.
        let text = text
            .replace(device, &format!("filename={}", path.display()))
            .replace("runtime=300", "runtime=1")
            .replace("direct=1", "direct=0");
        let file = job(folder.path(), &text);
        let output = overdrive()
            .args(["run", &file, "--output-format", "json", "--write-to", path.to_str().unwrap()])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let (code, text, error) = read(&output);
        assert_eq!(code, 0, "{name}: {error}");
        let json: Value = serde_json::from_str(&text).unwrap();
        let ios = |side: &str| json["jobs"][0][side]["total_ios"].as_u64().unwrap();
        assert!(ios("read") + ios("write") > 0, "{name}: {text}");
        let percentiles = json["jobs"][0][if ios("read") > 0 { "read" } else { "write" }]["clat_ns"].clone();
        assert!(percentiles["percentile"]["99.999990"].is_u64(), "{name}: {percentiles}");
    }
    let log = std::fs::read_to_string(folder.path().join("lat_rd_rnd_qd_1_4k_1w_lat.1.log")).unwrap();
    assert!(log.lines().count() >= 1 && log.lines().all(|line| line.split(',').count() >= 4), "{log}");
    assert!(folder.path().join("bw_wr_qd_16_4k_4w_bw.4.log").is_file());
}
