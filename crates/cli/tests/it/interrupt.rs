//! Ctrl-C and kill -9 in the middle: nothing left behind, what was measured is kept, exit code 130.

use crate::support::{folder, has_direct_io, until};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

fn start(scratch: &Path, out: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_overdrive"))
        .args(["evaluate", "--quick", "--runtime", "1s", "--size", "32MiB", "--dir"])
        .arg(scratch)
        .arg("--out")
        .arg(out)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn wait_for(path: &Path) {
    until(&format!("{} is there", path.display()), Duration::from_secs(60), || path.exists());
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

/// Interrupts an evaluation after its first workload, checks that the folder is clean, returns code and record.
fn interrupted_by(name: &str) -> (Option<i32>, Value) {
    let folder = folder();
    let (scratch, out) = (folder.path().join("scratch"), folder.path().join("out"));
    std::fs::create_dir(&scratch).unwrap();
    let mut child = start(&scratch, &out);
    wait_for(&out.join("record.json"));
    signal(&child, name);
    let status = child.wait().unwrap();
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0, "nothing is left behind after {name}");
    let record = serde_json::from_str(&std::fs::read_to_string(out.join("record.json")).unwrap()).unwrap();
    let files: Vec<_> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(files.iter().all(|file| !file.to_string_lossy().ends_with(".part")), "{files:?}");
    (status.code(), record)
}

#[test]
fn ctrl_c_keeps_what_was_measured() {
    if !has_direct_io("ctrl_c_keeps_what_was_measured") {
        return;
    }
    for name in ["INT", "TERM"] {
        let (code, record) = interrupted_by(name);
        assert_eq!(code, Some(130), "{name}");
        assert_eq!(record["status"]["state"], "interrupted");
        let workloads = record["workloads"].as_array().unwrap();
        assert!((1..14).contains(&workloads.len()), "{}", workloads.len());
    }
}

#[test]
fn kill_leaves_a_readable_record_and_no_file() {
    if !has_direct_io("kill_leaves_a_readable_record_and_no_file") {
        return;
    }
    let (code, record) = interrupted_by("KILL");
    assert_eq!(code, None);
    assert_eq!(record["status"]["state"], "interrupted", "it was not complete when it was killed");
    assert!(!record["workloads"].as_array().unwrap().is_empty());
}

#[test]
fn two_at_once_do_not_meet() {
    if !has_direct_io("two_at_once_do_not_meet") {
        return;
    }
    let folder = folder();
    let scratch = folder.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let outs = [folder.path().join("a"), folder.path().join("b")];
    let children: Vec<Child> = outs.iter().map(|out| start(&scratch, out)).collect();
    outs.iter().for_each(|out| wait_for(&out.join("record.json")));
    for mut child in children {
        signal(&child, "INT");
        assert_eq!(child.wait().unwrap().code(), Some(130));
    }
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);
}

#[test]
fn two_of_one_second_have_a_folder_each() {
    let folder = folder();
    let start = || {
        Command::new(env!("CARGO_BIN_EXE_overdrive"))
            .args(["evaluate", "sim", "--quick", "--runtime", "1ms"])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    for mut child in [start(), start(), start()] {
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    let records =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path().join("record.json"));
    assert_eq!(records.filter(|record| record.exists()).count(), 3);
}
