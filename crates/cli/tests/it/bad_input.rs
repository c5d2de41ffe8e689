//! Bad input gets one clear line that says what, where and what was wanted, exit code 2, and leaves nothing behind.

use crate::support::{folder, overdrive, read, run, written_file};
use serde_json::Value;
use std::path::Path;

/// Runs `evaluate` with `arguments` and checks the refusal.
fn assert_refused(arguments: &[&str], words: &[&str]) {
    let folder = folder();
    let out = folder.path().join("out");
    let mut all = vec!["evaluate", "--quick", "--runtime", "50ms", "--out", out.to_str().unwrap()];
    all.extend(arguments);
    let (code, text, error) = run(&all);
    assert_eq!(code, 2, "{arguments:?}: {error}");
    assert_eq!(text, "", "{arguments:?}");
    let line: Vec<&str> = error.lines().collect();
    assert_eq!(line.len(), 1, "{error}");
    for word in words {
        assert!(error.contains(word), "{arguments:?}: '{word}' is missing in: {error}");
    }
    assert!(!out.exists(), "a refused evaluation leaves no folder: {arguments:?}");
}

#[test]
fn targets_that_cannot_be_measured_are_refused() {
    let folder = folder();
    let empty = folder.path().join("empty");
    std::fs::write(&empty, b"").unwrap();
    let small = folder.path().join("small");
    std::fs::write(&small, vec![1; 1 << 20]).unwrap();
    let name = |path: &Path| path.to_str().unwrap().to_owned();
    assert_refused(&[&name(&folder.path().join("missing"))], &["missing", "no such file", "wanted"]);
    assert_refused(&[&name(&empty), "--buffered"], &["empty", "wanted at least 16 MiB"]);
    assert_refused(&[&name(&small), "--buffered"], &["1 MiB", "wanted at least 16 MiB"]);
    assert_refused(&[&name(folder.path())], &["a directory", "(evaluate --dir "]);
    assert_refused(&["/dev/null"], &["/dev/null", "character device"]);
    assert_refused(&["sim:speed=9"], &["speed=9", "unknown key", "wanted sim"]);
    assert_refused(&["sim:size=1k"], &["16 MiB"]);
    assert_refused(&["sim:read=80"], &["read=80", "wanted a unit, such as 80us"]);
}

#[test]
fn a_runtime_of_zero_is_refused_before_anything_is_touched() {
    let folder = folder();
    let out = folder.path().join("out");
    for more in [&["sim"][..], &["--dir", folder.path().to_str().unwrap()], &["--ablate"]] {
        for runtime in ["0", "0.1ns"] {
            let words = ["evaluate", "--runtime", runtime, "--out", out.to_str().unwrap()];
            let (code, text, error) = run(&[&words[..], more].concat());
            assert_eq!((code, text.as_str(), error.lines().count()), (2, "", 1), "{more:?}: {error}");
            assert!(error.contains("a runtime of zero measures nothing; wanted"), "{more:?}: {error}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{more:?}");
        }
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let folder = folder();
    let path = written_file(folder.path(), 16);
    let (name, place) = (path.to_str().unwrap(), folder.path().to_str().unwrap());
    assert_refused(&[name, "--size", "1GiB", "--buffered"], &["16 MiB", "--size 1 GiB"]);
    assert_refused(&["--dir", place, "--size", "9000TiB"], &["no room", "at most --size"]);
    assert_refused(&["--dir", place, "--size", "1M"], &["wanted at least 16 MiB"]);
    assert_refused(&["--dir", "/nowhere/at/all"], &["/nowhere/at/all", "wanted a directory"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no scratch file is left behind");
}

#[test]
fn memory_is_no_drive() {
    if !Path::new("/dev/shm").is_dir() {
        crate::support::skip("memory_is_no_drive", "no tmpfs at /dev/shm");
        return;
    }
    assert_refused(&["--dir", "/dev/shm"], &["tmpfs", "memory", "--buffered"]);
    let folder = folder();
    let out = folder.path().join("out");
    let arguments = [
        "evaluate",
        "--dir",
        "/dev/shm",
        "--buffered",
        "--quick",
        "--size",
        "16M",
        "--runtime",
        "50ms",
        "--out",
    ];
    let (code, text, error) = read(&overdrive().args(arguments).arg(&out).output().unwrap());
    assert_eq!(code, 0, "{error}");
    assert!(text.contains("page cache"), "the result says how it was obtained: {text}");
}

#[test]
fn consent_must_name_the_target_and_only_that() {
    let folder = folder();
    let path = written_file(folder.path(), 16);
    let name = path.to_str().unwrap();
    let before = std::fs::read(&path).unwrap();
    assert_refused(&[name, "--write-to", "/somewhere/else"], &["/somewhere/else", "does not name"]);
    assert_refused(&["--write-to", name], &["names no target"]);
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_file_that_holds_a_file_system_is_not_overwritten() {
    let folder = folder();
    let path = written_file(folder.path(), 16);
    let mut content = std::fs::read(&path).unwrap();
    // The superblock's magic number of ext4, where it belongs.
    content[1024..2048].fill(0);
    content[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
    content[1024 + 4..1024 + 8].copy_from_slice(&4096u32.to_le_bytes());
    std::fs::write(&path, &content).unwrap();
    let name = path.to_str().unwrap();
    assert_refused(&[name, "--write-to", name, "--buffered"], &["ext", "--wipe"]);
    assert_eq!(std::fs::read(&path).unwrap(), content);
}

#[test]
fn the_disk_under_the_system_is_never_written() {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let root = mounts
        .lines()
        .find_map(|line| line.strip_prefix("/dev/")?.split_once(" / ").map(|(device, _)| device));
    let Some(root) = root.map(|device| format!("/dev/{device}")).filter(|device| Path::new(device).exists())
    else {
        crate::support::skip(
            "the_disk_under_the_system_is_never_written",
            "the root file system has no device here",
        );
        return;
    };
    if std::fs::File::open(&root).is_err() {
        // Not even root may open it here, or this is not root: then that is the refusal.
        assert_refused(&[&root, "--write-to", &root], &[&root]);
        return;
    }
    assert_refused(&[&root, "--write-to", &root], &["mounted"]);
    assert_refused(&[&root, "--write-to", &root, "--wipe"], &["mounted"]);
}

#[test]
fn results_that_cannot_be_written_are_refused_before_measuring() {
    let folder = folder();
    let file = folder.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    let (code, _, error) =
        run(&["evaluate", "sim", "--quick", "--out", file.join("below").to_str().unwrap()]);
    assert_eq!((code, error.lines().count()), (2, 1), "{error}");
}

#[test]
fn looks_at_what_runs_take_some_time_and_are_some() {
    for (words, wanted) in [
        (["status", "--interval", "0s"], "wanted at least 10ms"),
        (["top", "--interval", "1ms"], "wanted at least 100ms"),
        (["top", "--count", "0"], "--count 0: wanted at least 1"),
    ] {
        let (code, text, error) = run(&[&["extend"], &words[..]].concat());
        assert!(code == 2 && text.is_empty() && error.contains(wanted), "{error}");
    }
}

#[test]
fn records_that_are_none_are_refused() {
    let folder = folder();
    let path = folder.path().join("record.json");
    for (content, word) in [
        ("", "not an Overdrive record"),
        ("{}", "schema"),
        ("{\"schema\": \"overdrive.record/99\"}", "newer"),
    ] {
        std::fs::write(&path, content).unwrap();
        let (code, _, error) = run(&["report", path.to_str().unwrap()]);
        assert_eq!(code, 2, "{content}");
        assert!(error.contains(word) && error.contains("record.json"), "{error}");
    }
    assert_eq!(run(&["report", "/no/such/record.json"]).0, 2);
}

#[test]
fn a_record_without_latencies_makes_no_log() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let record = format!("{}/../../fixtures/records/optane.v1.json", env!("CARGO_MANIFEST_DIR"));
    let mut record: Value = serde_json::from_str(&std::fs::read_to_string(record).unwrap()).unwrap();
    record["workloads"] = Value::Array(Vec::new());
    std::fs::write(path("record.json"), record.to_string()).unwrap();
    let (code, text, error) = run(&["report", &path("record.json"), "--hlog", &path("x.hlog")]);
    assert!(code == 2 && text.is_empty() && error.contains("holds no latency; wanted"), "{error}");
    assert!(!folder.path().join("x.hlog").exists());
}

#[test]
fn where_nothing_can_be_written_is_wrong_use_and_found_out_first() {
    let record = format!("{}/../../fixtures/records/optane.v1.json", env!("CARGO_MANIFEST_DIR"));
    let cost = ["cost", "--dram-a", "2GiB", "--dram-b", "1GiB", "--ssd-b", "1GiB", "--price-ratio", "4"];
    for words in [
        &[&cost[..], &["--html"]].concat()[..],
        &["audit", "--capture"],
        &["report", &record, "--html"],
        &["report", &record, "--hlog"],
    ] {
        let (code, text, error) = run(&[words, &["/no/such/folder/file"]].concat());
        assert!(code == 2 && text.is_empty() && error.contains("cannot be written"), "{words:?}: {error}");
    }
}

#[test]
fn a_program_that_does_not_stand_behind_the_dashes_is_told_where_it_goes() {
    let (code, _, error) = run(&["extend", "--dram", "64MiB", "--store", ".", "true"]);
    assert!(code == 2 && error.contains("the program goes behind --"), "{error}");
    let (code, _, error) = run(&["extend", "--dram", "64MiB", "--no-such", "--store", ".", "--", "true"]);
    assert!(code == 2 && !error.contains("goes behind"), "{error}");
}

#[test]
fn a_limit_on_file_sizes_is_an_error_like_a_full_disk() {
    let folder = folder();
    let record = format!("{}/../../fixtures/records/optane.v1.json", env!("CARGO_MANIFEST_DIR"));
    let page = folder.path().join("page.html");
    let line = "ulimit -f 8; exec \"$0\" report \"$1\" --html \"$2\"";
    let output = std::process::Command::new("sh")
        .args(["-c", line, env!("CARGO_BIN_EXE_overdrive"), &record])
        .arg(&page)
        .output()
        .unwrap();
    let (code, text, error) = read(&output);
    assert!(code == 3 && text.is_empty() && error.contains("File too large"), "{code}: {error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing unfinished is left behind");
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    for (arguments, words) in [
        (
            &["--rw", "randread", "--rwmixread", "70"][..],
            ["--rwmixread 70", "--rw randread", "wanted --rw rw"],
        ),
        (&["--bs", "8k", "--bssplit", "4k/60:64k/40"], ["--bs", "--bssplit", "cannot be used with"]),
    ] {
        let (code, text, error) = run(&[&["run", "sim", "--runtime", "10ms"][..], arguments].concat());
        assert_eq!((code, text.as_str(), error.lines().count()), (2, "", 1), "{arguments:?}: {error}");
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
    let fits = ["run", "sim", "--runtime", "10ms", "--rw", "randrw", "--rwmixread", "70", "--json"];
    let (code, text, error) = run(&fits);
    assert_eq!(code, 0, "{error}");
    let record: Value = serde_json::from_str(&text).unwrap();
    assert!(record.to_string().contains("\"read_percent\":70"), "{record}");
}
