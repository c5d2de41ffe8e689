//! Swap set up and taken away as a user has it: refusals, a file on and off, and a kill at any moment.
//!
//! Only areas are made here: settings are the whole machine's, and other tests look at them. The whole way, on
//! a drive, is a scenario of the virtual machines.

use crate::support::{OrdinaryUser, folder, run, skip, swap_may_be_on, words_of};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// `swap on` of a small file in `folder`, with its journal there.
fn arguments<'a>(word: &'a str, file: &'a str, state: &'a str) -> Vec<&'a str> {
    let mut all = vec!["swap", word, "--state", state];
    if word == "on" {
        all.extend(["--areas-only", "--priority", "0", "--file", file, "--size", "16MiB"]);
    }
    all
}

fn paths(folder: &Path) -> (String, String) {
    (folder.join("area").display().to_string(), folder.join("state").display().to_string())
}

fn is_on(file: &str) -> bool {
    std::fs::read_to_string("/proc/swaps").unwrap().lines().any(|line| line.starts_with(file))
}

/// Whether swap can be turned on here; says why not.
fn can_swap(test: &str) -> bool {
    let folder = folder();
    let (file, state) = paths(folder.path());
    let (code, out, error) = run(&arguments("on", &file, &state));
    if code != 0 {
        skip(test, &format!("no swap here: {}", error.trim()));
        return false;
    }
    assert_eq!(run(&arguments("off", &file, &state)).0, 0, "{out}");
    true
}

#[test]
fn a_file_is_swapped_to_and_taken_away() {
    let _alone = swap_may_be_on();
    if !can_swap("swap::a_file_is_swapped_to_and_taken_away") {
        return;
    }
    let folder = folder();
    let (file, state) = paths(folder.path());
    let (code, out, error) = run(&arguments("on", &file, &state));
    assert_eq!(code, 0, "{out}{error}");
    let words = words_of(&out);
    assert!(is_on(&file) && words.contains("swap space of 16 MiB"), "{out}");
    assert!(words.contains(&format!("overdrive swap off --state {state} takes it back")), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80 || !line.trim().contains(' ')), "{out}");

    let (code, text, error) = run(&["swap", "status", "--interval", "50ms", "--json", "--state", &state]);
    assert_eq!(code, 0, "{error}");
    let status: Value = serde_json::from_str(&text).unwrap();
    let area = status["areas"].as_array().unwrap().iter().find(|area| area["path"] == file).unwrap();
    assert_eq!((area["set"].as_u64(), area["priority"].as_i64()), (Some(1), Some(0)));
    assert!(status["since_boot"]["swap_outs_per_s"].is_number(), "{status}");
    let tells = std::fs::read_to_string("/proc/vmstat").unwrap().contains("\nzswpin ");
    for rates in [&status["now"], &status["since_boot"]] {
        assert_eq!(
            (rates["zswap_ins_per_s"].is_number(), rates["zswap_outs_per_s"].is_number()),
            (tells, tells)
        );
    }

    let (code, _, error) = run(&arguments("on", &file, &state));
    assert!(code == 2 && error.contains("it is there already"), "{error}");
    let (code, out, error) = run(&["tune", "status", "--state", &state]);
    let words = words_of(&out);
    assert!(code == 0 && words.contains("stands") && words.contains("on, priority 0"), "{out}{error}");
    let (code, out, error) = run(&arguments("off", &file, &state));
    assert_eq!(code, 0, "{out}{error}");
    assert!(!is_on(&file) && !Path::new(&file).exists(), "{out}");
    assert_eq!(run(&arguments("off", &file, &state)).0, 0, "nothing is on any more");
}

#[test]
fn killed_at_any_moment_off_mends_it() {
    let _alone = swap_may_be_on();
    if !can_swap("swap::killed_at_any_moment_off_mends_it") {
        return;
    }
    let mut cut_short = 0;
    for moment in 0..24 {
        let folder = folder();
        let (file, state) = paths(folder.path());
        let mut child = Command::new(env!("CARGO_BIN_EXE_overdrive"))
            .args(arguments("on", &file, &state))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The audit takes a tenth of a second; the changes come after it.
        std::thread::sleep(Duration::from_millis(90 + 6 * moment));
        child.kill().unwrap();
        cut_short += u32::from(!child.wait().unwrap().success());
        let (code, out, error) = run(&arguments("off", &file, &state));
        assert_eq!(code, 0, "killed after {moment}: {out}{error}");
        assert!(!is_on(&file) && !Path::new(&file).exists(), "killed after {moment}: {out}");
    }
    assert!(cut_short > 0, "no run was killed in time, so this proved nothing");
}

#[test]
fn what_cannot_be_swapped_to_is_refused_in_one_line() {
    let folder = folder();
    let place = folder.path().to_str().unwrap();
    let file = format!("{place}/area");
    std::fs::write(format!("{place}/taken"), "theirs").unwrap();
    let (taken, state) = (format!("{place}/taken"), format!("{place}/state"));
    let in_memory = format!("/dev/shm/overdrive-test-{}", std::process::id());
    for (arguments, word) in [
        (vec!["on"], "nothing to swap to"),
        (vec!["plan"], "nothing to swap to"),
        (vec!["on", "--device", "/dev/none"], "wanted a block device"),
        (vec!["on", "--device", "/dev/null"], "character device"),
        (vec!["on", "--device", place], "not a block device"),
        (vec!["on", "--file", &taken, "--size", "16MiB"], "it is there already"),
        (vec!["on", "--file", &file, "--size", "9000TiB"], "no room for"),
        (vec!["on", "--file", &file, "--size", "4k"], "make no swap area"),
        (vec!["on", "--file", "/none/x", "--size", "1MiB"], "No such file"),
        (vec!["on", "--file", &in_memory, "--size", "1MiB"], "memory"),
        (
            vec!["on", "--file", &file, "--size", "16MiB", "--write-to", "/dev/null"],
            "names none of the devices",
        ),
        (vec!["on", "--file", &file, "--size", "1"], "1 B make no swap area: wanted at least 40 KiB"),
        (vec!["status", "--interval", "2h"], "at most an hour"),
        (vec!["status", "--interval", "0"], "'0' for '--interval <TIME>': wanted at least 10ms"),
        (vec!["status", "--interval", "1ns"], "wanted at least 10ms"),
    ] {
        let mut all = [&["swap"], &arguments[..]].concat();
        if arguments[0] != "plan" {
            all.extend(["--state", &state]);
        }
        let (code, text, error) = run(&all);
        assert_eq!((code, text.as_str(), error.lines().count()), (2, "", 1), "{arguments:?}: {error}");
        assert!(error.contains(word), "{arguments:?}: {error}");
    }
    assert_eq!(std::fs::read_to_string(&taken).unwrap(), "theirs");
    assert!(!Path::new(&file).exists() && !Path::new(&state).exists());
}

#[test]
fn an_ordinary_user_leaves_nothing_behind() {
    const NAME: &str = "swap::an_ordinary_user_leaves_nothing_behind";
    let Some(user) = OrdinaryUser::at_hand(NAME) else { return };
    let (file, state) = paths(user.place.path());
    let (code, _, error) = user.run(&arguments("on", &file, &state));
    assert_eq!((code, error.lines().count()), (2, 1), "{error}");
    assert!(error.contains("needs root"), "{error}");
    assert_eq!(std::fs::read_dir(user.place.path()).unwrap().count(), 1, "the program alone");
}

#[test]
fn the_disk_of_the_running_system_is_refused() {
    const NAME: &str = "swap::the_disk_of_the_running_system_is_refused";
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let source = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let source = words.next()?;
        (words.next() == Some("/") && source.starts_with("/dev/")).then(|| source.to_owned())
    });
    let Some(disk) = source.filter(|disk| Path::new(disk).exists()) else {
        return skip(NAME, "the root file system is on no device that has a node here");
    };
    let (code, _, error) = run(&["swap", "on", "--device", &disk, "--write-to", &disk]);
    assert_eq!((code, error.lines().count()), (2, 1), "{error}");
    assert!(error.contains("destroy the running system"), "{error}");
}

#[test]
fn a_plan_gives_its_reasons_and_both_recipes() {
    let folder = folder();
    let file = folder.path().join("area").display().to_string();
    let (code, text, error) = run(&["swap", "plan", "--file", &file, "--size", "16MiB", "--json"]);
    assert_eq!(code, 0, "{error}");
    let plan: Value = serde_json::from_str(&text).unwrap();
    let kinds: Vec<&str> =
        plan["changes"].as_array().unwrap().iter().map(|change| change["kind"].as_str().unwrap()).collect();
    assert!(kinds.ends_with(&["swap_space", "swap_area"]), "{kinds:?}");
    assert!(!plan["choices"].as_array().unwrap().is_empty(), "{plan}");
    let (code, script, _) = run(&["swap", "plan", "--file", &file, "--size", "16MiB", "--shell"]);
    assert!(code == 0 && script.contains("mkswap -L overdrive"), "{script}");
    assert!(script.contains("overdrive swap plan --shell") && script.contains("overdrive swap on does not"));
    let (code, text, _) = run(&["swap", "plan", "--profile"]);
    assert_eq!(code, 0);
    for word in ["guide", "blueprint", "page-cluster", "rcu_nocbs", "28 partitions"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a plan writes nothing");
}
