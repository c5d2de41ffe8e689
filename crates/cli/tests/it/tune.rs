//! Audit, plan, apply, status and undo as a user has them, on a copy of a host: no root, no real attribute.

use crate::support::{OrdinaryUser, folder, run, words_of};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const SCHEDULER: &str = "sys/block/vda/queue/scheduler";

/// A captured host as a directory: the copy that `--root` reads and writes.
fn unpacked(name: &str, into: &Path) {
    let path = format!("{}/../../fixtures/hosts/{name}.tree", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let place = |path: &str| {
            let real = into.join(path.trim_start_matches('/'));
            std::fs::create_dir_all(real.parent().unwrap()).unwrap();
            real
        };
        if !line.starts_with('/') || line.contains('{') {
            continue;
        }
        if let Some((path, target)) = line.split_once(" -> ") {
            std::os::unix::fs::symlink(target, place(path)).unwrap();
        } else if let Some((path, text)) = line.split_once(" = ") {
            std::fs::write(place(path), format!("{text}\n")).unwrap();
        } else if let Some(path) = line.strip_suffix(" |") {
            let mut body = String::new();
            while let Some(next) = lines.next_if(|next| next.starts_with('|')) {
                body.push_str(&next[1..]);
                body.push('\n');
            }
            std::fs::write(place(path), body).unwrap();
        }
    }
}

/// Every file below a directory and its bytes, the journal's folder left out.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.symlink_metadata().unwrap();
        if kind.is_dir() && !path.ends_with("var") {
            all.append(&mut contents(&path));
        } else if kind.is_file() {
            all.insert(path.display().to_string(), std::fs::read(&path).unwrap());
        }
    }
    all
}

/// The same with lists reduced to what is chosen: a plain file holds what was written last, where the kernel
/// would show its list again.
fn meanings(folder: &Path) -> BTreeMap<String, String> {
    let mean = |(path, bytes): (String, Vec<u8>)| {
        (path, overdrive_host::change::meaning(&String::from_utf8_lossy(&bytes)).to_owned())
    };
    contents(folder).into_iter().map(mean).collect()
}

fn json(arguments: &[&str], code: i32) -> Value {
    let (ended, out, error) = run(arguments);
    assert_eq!(ended, code, "{arguments:?}: {out}{error}");
    serde_json::from_str(&out).unwrap_or_else(|problem| panic!("{arguments:?}: {problem}: {out}"))
}

#[test]
fn what_is_applied_to_a_copied_host_is_taken_back_to_the_byte() {
    let folder = folder();
    let root = folder.path().join("host");
    unpacked("reference-virtio", &root);
    let (before, meant) = (contents(&root), meanings(&root));
    let at = root.to_str().unwrap();
    let plan = json(&["tune", "plan", "--root", at, "--target", "vda", "--json"], 0);
    let paths: Vec<&str> =
        plan["changes"].as_array().unwrap().iter().map(|change| change["path"].as_str().unwrap()).collect();
    assert!(paths.contains(&"/sys/block/vda/queue/scheduler"), "{paths:?}");
    assert!(plan["changes"].as_array().unwrap().iter().all(|change| change["class"] == "A"), "{plan}");
    assert_eq!(contents(&root), before, "a plan writes nothing");

    let (code, out, _) =
        run(&["tune", "apply", "--root", at, "--target", "vda", "--even-if-busy", "--dry-run"]);
    assert_eq!((code, contents(&root) == before), (0, true), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80 || !line.trim().contains(' ')), "{out}");

    // The captured disk had requests in flight: its queue is not written to unless the user insists.
    let (code, out, _) = run(&["tune", "apply", "--root", at, "--target", "vda", "--rules", "block-wbt"]);
    assert_eq!((code, contents(&root) == before), (1, true), "{out}");
    assert!(out.contains("--even-if-busy"), "{out}");

    let insist = ["tune", "apply", "--root", at, "--target", "vda", "--persist", "--even-if-busy", "--json"];
    let applied = json(&insist, 0);
    assert_eq!(applied["set"], 1);
    assert!(
        applied["changes"].as_array().unwrap().iter().all(|change| change["is_good"] == true),
        "{applied}"
    );
    assert_eq!(std::fs::read_to_string(root.join(SCHEDULER)).unwrap(), "none\n");
    let rules = std::fs::read_to_string(root.join("etc/udev/rules.d/99-overdrive-0001.rules")).unwrap();
    assert!(rules.contains("ATTR{queue/scheduler}=\"none\""), "{rules}");

    let (code, text, error) = run(&["tune", "status", "--state", "/no/such"]);
    assert!(code == 2 && text.is_empty() && error.contains("no such directory"), "{error}");
    let status = json(&["tune", "status", "--root", at, "--json"], 0);
    assert!(
        status["changes"].as_array().unwrap().iter().all(|change| change["state"] == "stands"),
        "{status}"
    );
    let undone = json(&["tune", "undo", "--root", at, "--json"], 0);
    assert!(
        undone["changes"].as_array().unwrap().iter().all(|change| change["outcome"] == "restored"),
        "{undone}"
    );
    assert_eq!(meanings(&root), meant);
    assert_eq!(contents(&root).len(), before.len(), "the files that made it stay are gone");
}

#[test]
fn what_only_a_unit_can_keep_gets_one_and_undo_takes_it_back() {
    let folder = folder();
    let root = folder.path().join("host");
    unpacked("p4800x-two-socket", &root);
    // Attributes of processors are written with braces in that host: one stands for them here.
    let policy = root.join("sys/devices/system/cpu/cpufreq/policy0");
    std::fs::create_dir_all(&policy).unwrap();
    for (name, text) in [
        ("scaling_governor", "powersave\n"),
        ("scaling_driver", "acpi-cpufreq\n"),
        ("scaling_available_governors", "performance powersave\n"),
    ] {
        std::fs::write(policy.join(name), text).unwrap();
    }
    let at = root.to_str().unwrap();
    let (before, meant) = (contents(&root), meanings(&root));
    let governor = ["--rules", "cpu-governor-performance", "--class", "B", "--persist"];
    let words = [["tune", "apply", "--root", at, "--json"].as_slice(), &governor].concat();
    let applied = json(&words, 0);
    let unit = std::fs::read_to_string(root.join("etc/systemd/system/overdrive-0001.service")).unwrap();
    assert!(
        unit.contains("ExecStart=-/bin/sh -c 'echo performance > /sys/devices/system/cpu"),
        "{unit}{applied}"
    );
    let wants = root.join("etc/systemd/system/multi-user.target.d");
    let enabled = std::fs::read_to_string(wants.join("overdrive-0001.conf")).unwrap();
    assert!(enabled.ends_with("[Unit]\nWants=overdrive-0001.service\n"), "{enabled}");
    json(&["tune", "undo", "--root", at, "--json"], 0);
    assert_eq!(meanings(&root), meant);
    assert_eq!(contents(&root).len(), before.len());
    assert!(!wants.exists(), "its folder goes with the last file");
}

#[test]
fn drift_ends_with_1_and_is_left_alone() {
    let folder = folder();
    let root = folder.path().join("host");
    unpacked("reference-virtio", &root);
    let at = root.to_str().unwrap();
    let rules = ["--rules", "block-scheduler-none", "--even-if-busy", "--json"];
    json(&[&["tune", "apply", "--root", at, "--target", "vda"][..], &rules].concat(), 0);
    std::fs::write(root.join(SCHEDULER), "kyber\n").unwrap();
    let (code, out, _) = run(&["tune", "undo", "--root", at]);
    assert_eq!(code, 1);
    assert!(out.contains("left alone") && out.contains("mq-deadline"), "{out}");
    assert_eq!(std::fs::read_to_string(root.join(SCHEDULER)).unwrap(), "kyber\n");
}

#[test]
fn two_at_once_and_wrong_words_are_refused_in_one_line() {
    let folder = folder();
    let root = folder.path().join("host");
    unpacked("reference-virtio", &root);
    let at = root.to_str().unwrap();
    let state = folder.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let lock = std::fs::File::create(state.join("lock")).unwrap();
    lock.lock().unwrap();
    let at_state = ["--even-if-busy", "--state", state.to_str().unwrap()];
    let apply = [&["tune", "apply", "--root", at, "--target", "vda"][..], &at_state].concat();
    for (arguments, wanted) in [
        (&apply[..], "another overdrive is changing this host"),
        (&["tune", "plan", "--root", at, "--rules", "no-such-rule"], "no rule has this name"),
        (&["tune", "plan", "--root", at, "--target", "sdz"], "wanted one of vda"),
        (&["tune", "undo", "--root", at], "nothing was ever changed"),
        (&["audit", "--explain", "scheduler"], "block-scheduler-none"),
        (&["audit", "--from-capture", "/nonexistent"], "overdrive audit --capture wrote"),
    ] {
        let (code, out, error) = run(arguments);
        assert_eq!(code, 2, "{arguments:?}: {out}{error}");
        assert!(error.contains(wanted), "{arguments:?}: {error}");
        assert_eq!(error.lines().filter(|line| line.starts_with("overdrive: ")).count(), 1, "{error}");
        assert!(error.lines().last().is_some_and(|line| line.starts_with("overdrive: ")), "{error}");
    }
}

#[test]
fn a_capture_gives_the_same_findings_elsewhere() {
    let folder = folder();
    let root = folder.path().join("host");
    unpacked("reference-virtio", &root);
    let file = folder.path().join("host.tree");
    let (at, to) = (root.to_str().unwrap(), file.to_str().unwrap());
    let (code, out, error) = run(&["audit", "--root", at, "--target", "vda", "--capture", to]);
    assert_eq!((code, out.as_str()), (0, ""), "{error}");
    let (_, here, _) = run(&["audit", "--root", at, "--target", "vda", "--json"]);
    let (_, there, _) = run(&["audit", "--from-capture", to, "--json"]);
    let findings = |text: &str| {
        let value: Value = serde_json::from_str(text).unwrap();
        // What happened during the sampling time differs between two looks at anything.
        let all = value["findings"].as_array().unwrap().clone();
        all.into_iter().filter(|finding| finding["rule"] != "host-noisy-neighbours").collect::<Vec<_>>()
    };
    assert!(findings(&here).len() > 20);
    assert_eq!(findings(&here), findings(&there));
}

#[test]
fn a_capture_that_was_cut_short_is_refused_wherever_it_was_cut() {
    let folder = folder();
    let root = folder.path().join("host");
    unpacked("reference-virtio", &root);
    let file = folder.path().join("host.tree");
    let (at, to) = (root.to_str().unwrap(), file.to_str().unwrap());
    assert_eq!(run(&["audit", "--root", at, "--target", "vda", "--capture", to]).0, 0);
    let whole = std::fs::read(&file).unwrap();
    for length in [0, 10, whole.len() / 2, whole.len() - "# end\n".len(), whole.len() - 2] {
        std::fs::write(&file, &whole[..length]).unwrap();
        for command in ["audit", "topology"] {
            let (code, out, error) = run(&[command, "--from-capture", to]);
            assert_eq!((code, out.as_str()), (2, ""), "{command}, {length} bytes: {error}");
            assert!(error.contains("the capture was cut short: it ends after line"), "{error}");
        }
    }
    std::fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    assert_ne!(run(&["audit", "--from-capture", to]).0, 2, "only the newline behind its end is missing");
}

#[test]
fn this_machine_captured_is_this_machine() {
    let folder = folder();
    let file = folder.path().join("host.tree");
    let to = file.to_str().unwrap();
    let (code, _, error) = run(&["audit", "--capture", to]);
    assert_eq!(code, 0, "{error}");
    let (_, here, _) = run(&["audit", "--json"]);
    let (_, there, _) = run(&["audit", "--from-capture", to, "--json"]);
    let statuses = |text: &str| -> Vec<(String, String)> {
        let value: Value = serde_json::from_str(text).unwrap();
        let all = value["findings"].as_array().unwrap().iter();
        // These look at what changes from one moment to the next.
        let passing = |rule: &str| rule == "host-noisy-neighbours" || rule.starts_with("space-");
        all.map(|finding| (finding["rule"].to_string(), finding["status"].to_string()))
            .filter(|(rule, _)| !passing(rule.trim_matches('"')))
            .collect()
    };
    assert_eq!(statuses(&here), statuses(&there));
}

#[test]
fn no_finding_of_any_captured_host_has_a_fix_that_says_nothing() {
    let hosts = std::fs::read_dir(format!("{}/../../fixtures/hosts", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (mut shown, mut without_command) = (0, 0);
    for host in
        hosts.map(|host| host.unwrap().path()).filter(|path| path.extension().is_some_and(|it| it == "tree"))
    {
        let text = std::fs::read_to_string(&host).unwrap();
        let named =
            text.lines().filter_map(|line| line.strip_prefix("/sys/block/")?.split([' ', '/']).next());
        let disk = named.filter(|name| !name.contains('{') && !name.starts_with("zram")).max().unwrap();
        for profile in ["storage", "memory"] {
            let from =
                ["audit", "--from-capture", host.to_str().unwrap(), "--target", disk, "--profile", profile];
            let (code, text, error) = run(&from);
            assert!(code < 2, "{from:?}: {error}");
            assert!(text.lines().all(|line| line.trim() != "fix:"), "{from:?}: {text}");
            shown += text.lines().filter(|line| line.starts_with("        fix: ")).count();
            let (_, text, _) = run(&[&from[..], &["--json"]].concat());
            let value: Value = serde_json::from_str(&text).unwrap();
            for fix in value["findings"]
                .as_array()
                .unwrap()
                .iter()
                .map(|it| &it["fix"])
                .filter(|fix| fix.is_object())
            {
                assert!(fix["now"] != "" || fix["persistent"] != "", "{from:?}: {fix}");
                without_command += usize::from(fix["now"] == "");
            }
        }
    }
    assert!(shown > 20 && without_command > 10, "{shown}, {without_command}: or this test proves nothing");
}

#[test]
fn a_rule_tells_its_whole_story() {
    let (code, out, error) = run(&["audit", "--explain", "block-scheduler-none"]);
    assert_eq!(code, 0, "{error}");
    for part in ["Rule", "Here", "Why", "Effect", "Class", "Source"] {
        assert!(out.lines().any(|line| line.starts_with(part)), "{part}: {out}");
    }
}

/// Writes an attribute back however the test ends.
struct Restored(std::path::PathBuf, String);

impl Drop for Restored {
    fn drop(&mut self) {
        drop(std::fs::write(&self.0, &self.1));
    }
}

#[test]
fn a_real_attribute_of_an_unused_loop_device_is_changed_and_taken_back() {
    use overdrive_host::change::driver::{Driver, Occasion};
    use overdrive_host::change::machine::Applied;
    use overdrive_host::change::system::HostSystem;
    use overdrive_host::change::{Change, Kind};
    const TEST: &str = "a_real_attribute_of_an_unused_loop_device_is_changed_and_taken_back";
    let unused = (0..64).map(|number| format!("/sys/block/loop{number}")).find(|folder| {
        std::fs::read_to_string(format!("{folder}/size")).is_ok_and(|size| size.trim() == "0")
    });
    let Some(path) = unused.map(|folder| format!("{folder}/queue/read_ahead_kb")) else {
        return crate::support::skip(TEST, "no unused loop device");
    };
    if std::fs::OpenOptions::new().write(true).open(&path).is_err() {
        return crate::support::skip(TEST, "attributes may not be written (not root)");
    }
    let old = std::fs::read_to_string(&path).unwrap();
    let _guard = Restored(path.clone().into(), old.clone());
    let kib: u64 = old.trim().parse().unwrap();
    let change = Change {
        rule: "a-rule".to_owned(),
        class: "A".to_owned(),
        kind: Kind::Attribute,
        path: path.clone(),
        old: Some(old.clone()),
        new: Some((kib + 64).to_string()),
        device: None,
    };
    let state = folder();
    let mut system = HostSystem::open(Path::new("/"), state.path()).unwrap();
    let occasion = Occasion {
        at: String::new(),
        boot_id: "b".to_owned(),
        machine_id: String::new(),
        version: String::new(),
    };
    let mut driver = Driver::new(&mut system, occasion).unwrap();
    let (set, outcomes) = driver.apply(&[change]).unwrap();
    assert_eq!(outcomes, [Applied::Done(Some(format!("{}\n", kib + 64)))]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", kib + 64));
    driver.undo(set).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), old);
}

/// A copied host with a set of one change applied to its disk's scheduler.
fn applied(folder: &Path) -> std::path::PathBuf {
    let root = folder.join("host");
    unpacked("reference-virtio", &root);
    let rules = ["--rules", "block-scheduler-none", "--even-if-busy", "--json"];
    json(&[&["tune", "apply", "--root", root.to_str().unwrap(), "--target", "vda"][..], &rules].concat(), 0);
    root
}

#[test]
fn undo_says_beforehand_what_it_would_do_and_refuses_what_it_would_refuse() {
    let folder = folder();
    let root = applied(folder.path());
    let at = root.to_str().unwrap();
    let (before, journal) = (contents(&root), root.join("var/lib/overdrive/journal.jsonl"));
    let text = std::fs::read(&journal).unwrap();
    let told = json(&["tune", "undo", "--root", at, "--dry-run", "--json"], 0);
    assert_eq!((&told["schema"], &told["dry_run"]), (&"overdrive.undo/1".into(), &true.into()), "{told}");
    assert_eq!(told["changes"][0]["outcome"], "restored", "{told}");
    assert!(told["changes"][0]["wanted"].as_str().unwrap().contains("[mq-deadline]"), "{told}");
    let (code, out, _) = run(&["tune", "undo", "--root", at, "--dry-run", "1"]);
    assert!(code == 0 && out.contains("would read mq-deadline again"), "{out}");
    let (code, _, error) = run(&["tune", "undo", "--root", at, "--dry-run", "99"]);
    assert!(code == 2 && error.contains("no set 99"), "{error}");
    assert_eq!((contents(&root), std::fs::read(&journal).unwrap()), (before, text), "nothing is written");
    std::fs::write(root.join(SCHEDULER), "kyber\n").unwrap();
    let told = json(&["tune", "undo", "--root", at, "--dry-run", "--json"], 1);
    assert_eq!(told["changes"][0]["outcome"], "drift", "{told}");
}

#[test]
fn the_way_back_names_the_journal_and_the_root_that_apply_was_given() {
    let folder = folder();
    let (root, state) = (folder.path().join("host"), folder.path().join("its state"));
    unpacked("reference-virtio", &root);
    let meant = meanings(&root);
    let (at, state) = (root.to_str().unwrap(), state.to_str().unwrap());
    let rules = ["--rules", "block-scheduler-none", "--even-if-busy"];
    let apply = [&["tune", "apply", "--root", at, "--state", state, "--target", "vda"][..], &rules].concat();
    let (code, out, error) = run(&apply);
    let hint = format!("overdrive tune undo 1 --state '{state}' --root {at} takes it back");
    assert!(code == 0 && words_of(&out).contains(&hint), "{out}{error}");
    let (code, out, error) = run(&["tune", "undo", "1", "--state", state, "--root", at]);
    assert!(code == 0 && meanings(&root) == meant, "{out}{error}");
}

#[test]
fn a_journal_that_fills_up_is_no_reason_to_keep_back_what_was_changed() {
    let folder = folder();
    let (root, state) = (folder.path().join("host"), folder.path().join("state"));
    unpacked("reference-virtio", &root);
    let meant = meanings(&root);
    let (at, state) = (root.to_str().unwrap(), state.to_str().unwrap());
    // A file that may not grow stands for a full disk.
    let limited = "trap '' XFSZ; ulimit -f 2; exec \"$0\" \"$@\"";
    let words = ["tune", "apply", "--root", at, "--state", state, "--target", "vda", "--even-if-busy"];
    let mut command = std::process::Command::new("sh");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_overdrive")]).args(words).env("NO_COLOR", "1");
    let (code, out, error) = crate::support::read(&command.output().unwrap());
    assert_eq!(code, 3, "{out}{error}");
    let words = words_of(&out);
    assert!(words.contains("done, and reads back so"), "{out}");
    assert!(words.contains("not written: the journal cannot be written: EFBIG"), "{out}");
    assert!(
        words.contains(&format!("Set 1; overdrive tune undo 1 --state {state} --root {at} takes")),
        "{out}"
    );
    assert!(error.contains("overdrive: the journal cannot be written"), "{error}");
    let (code, out, _) = run(&["tune", "status", "--state", state, "--root", at]);
    assert!(code == 0 && !out.contains("died"), "{out}");
    // Undo is journaled too: it fills up in its turn, and what is back by then is shown.
    let rest =
        ["tune", "apply", "--root", at, "--state", state, "--target", "vda", "--even-if-busy", "--json"];
    json(&rest, 0);
    let length = std::fs::metadata(Path::new(state).join("journal.jsonl")).unwrap().len();
    let mut cut_short = 0;
    for blocks in length / 512 + 1.. {
        let room = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
        let words = ["tune", "undo", "--all", "--root", at, "--state", state];
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &room, env!("CARGO_BIN_EXE_overdrive")]).args(words).env("NO_COLOR", "1");
        let (code, out, error) = crate::support::read(&command.output().unwrap());
        if code == 0 {
            break;
        }
        assert!(code == 3 && error.contains("overdrive: the journal cannot be written"), "{out}{error}");
        cut_short += u32::from(words_of(&out).contains("again"));
    }
    assert!(cut_short > 0 && meanings(&root) == meant, "{cut_short}");
}

#[test]
fn an_ordinary_user_is_told_that_root_is_needed_and_leaves_no_set() {
    const NAME: &str = "tune::an_ordinary_user_is_told_that_root_is_needed_and_leaves_no_set";
    let Some(user) = OrdinaryUser::at_hand(NAME) else { return };
    let state = user.place.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let at = state.to_str().unwrap();
    let plan: Value = serde_json::from_str(&user.run(&["tune", "plan", "--class", "B", "--json"]).1).unwrap();
    let (code, out, error) = user.run(&["tune", "apply", "--class", "B", "--even-if-busy", "--state", at]);
    let expected = if plan["changes"][0].is_object() { (2, true) } else { (0, false) };
    assert_eq!((code, error.contains("changing this host needs root")), expected, "{out}{error}");
    assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0, "neither lock nor journal");
    std::fs::write(state.join("journal.jsonl"), "").unwrap();
    for words in [["tune", "undo", "--state", at], ["swap", "off", "--state", at]] {
        let (code, out, error) = user.run(&words);
        assert_eq!((code, error.contains("needs root; nothing was touched")), (2, true), "{out}{error}");
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 1, "the journal alone");
    }
}

#[test]
fn a_set_in_which_every_change_was_refused_offers_nothing_to_take_back() {
    let folder = folder();
    let root = folder.path().join("host");
    unpacked("reference-virtio", &root);
    let at = root.to_str().unwrap();
    let other =
        OrdinaryUser::at_hand("tune::a_set_in_which_every_change_was_refused_offers_nothing_to_take_back");
    let Some(user) = other else { return };
    // Everybody may look, nobody may write: the copy belongs to somebody else.
    let copied = user.place.path().join("host");
    let done = std::process::Command::new("cp").args(["-rp", at, copied.to_str().unwrap()]).status();
    assert!(done.is_ok_and(|done| done.success()));
    let state = user.place.path().join("state");
    let words = ["--root", copied.to_str().unwrap(), "--state", state.to_str().unwrap()];
    let apply = ["tune", "apply", "--target", "vda", "--rules", "block-scheduler-none", "--even-if-busy"];
    let (code, out, error) = user.run(&[&apply[..], &words].concat());
    assert_eq!(code, 1, "{out}{error}");
    assert!(words_of(&out).contains("nothing was changed, so there is nothing to take back"), "{out}");
    assert!(!out.contains("tune undo"), "{out}");
}

#[test]
fn of_a_device_that_is_away_no_value_is_told() {
    let folder = folder();
    let root = applied(folder.path());
    let (disk, away) = (root.join("sys/block/vda"), folder.path().join("away"));
    std::fs::rename(&disk, &away).unwrap();
    let at = root.to_str().unwrap();
    let (code, out, error) = run(&["tune", "status", "--root", at]);
    assert!(
        code == 0 && words_of(&out).contains("mq-deadline -> none: the device is not there"),
        "{out}{error}"
    );
    let (code, out, _) = run(&["tune", "undo", "--root", at]);
    assert!(code == 1 && words_of(&out).contains("try again when it is"), "{out}");
    std::fs::rename(&away, &disk).unwrap();
    let (code, out, _) = run(&["tune", "undo", "--root", at]);
    assert!(code == 0 && words_of(&out).contains("reads mq-deadline again"), "{out}");
}

#[test]
fn another_hosts_journal_and_one_outside_the_root_are_refused() {
    let folder = folder();
    let root = applied(folder.path());
    let at = root.to_str().unwrap();
    let apply = ["tune", "apply", "--root", at, "--target", "vda", "--rules", "block-wbt", "--even-if-busy"];
    std::fs::create_dir_all(root.join("etc")).unwrap();
    std::fs::write(root.join("etc/machine-id"), "0123\n").unwrap();
    let (code, _, error) = run(&apply);
    assert!(code == 2 && error.contains("made on another host"), "{error}");
    std::fs::remove_dir_all(root.join("var")).unwrap();
    let outside = folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, root.join("var")).unwrap();
    let (code, _, error) = run(&apply);
    assert!(code == 2 && error.contains("link to nowhere in this root"), "{error}");
    assert_eq!(std::fs::read_dir(outside).unwrap().count(), 0);
}

#[test]
fn what_contradicts_itself_is_refused() {
    for arguments in
        [&["audit", "--explain", "block-wbt", "--json"][..], &["topology", "--bridge-limit", "0"]]
    {
        let (code, out, error) = run(arguments);
        assert_eq!(code, 2, "{arguments:?}: {out}{error}");
    }
}
