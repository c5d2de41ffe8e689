//! One setting at a time on the machine the tests run on: what was changed is back afterwards, also after Ctrl-C
//! and after a kill. One harmless value is used; without root, or where it is not advised, the tests skip.

use crate::support::{folder, has_direct_io, run, skip};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const RULE: &str = "vm-watermark-boost";
const PATH: &str = "/proc/sys/vm/watermark_boost_factor";

fn now() -> String {
    std::fs::read_to_string(PATH).unwrap_or_default()
}

/// Whether the value can be changed here and is not what the rule wants already. One test does all of it, so that
/// no other changes the value meanwhile.
fn can_change(test: &str) -> bool {
    let writable = std::fs::OpenOptions::new().write(true).open(PATH).is_ok();
    if !writable || now().trim() == "0" {
        skip(test, "needs root, and vm.watermark_boost_factor above 0");
    }
    writable && now().trim() != "0" && has_direct_io(test)
}

fn arguments<'a>(folder: &'a Path, runtime: &'a str) -> Vec<&'a str> {
    let mut words = vec!["evaluate", "--ablate", "--quick", "--repeats", "2", "--rules", RULE];
    words.extend(["--size", "32MiB", "--runtime", runtime, "--json", "--dir", folder.to_str().unwrap()]);
    words
}

/// Starts an ablation and waits until its change is made.
fn started(folder: &Path, before: &str) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_overdrive"))
        .args(arguments(folder, "20s"))
        .arg("--out")
        .arg(folder.join("out"))
        .arg("--state")
        .arg(folder.join("state"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while now() == before {
        let is_alive = child.try_wait().unwrap().is_none();
        assert!(is_alive && began.elapsed() < Duration::from_secs(150), "no change was made");
        std::thread::sleep(Duration::from_millis(50));
    }
    child
}

#[test]
fn every_change_is_taken_back_however_it_ends() {
    if !can_change("ablate::every_change_is_taken_back_however_it_ends") {
        return;
    }
    let before = now();
    let folder = folder();
    let (out, state) = (folder.path().join("out"), folder.path().join("state"));
    let mut words = arguments(folder.path(), "50ms");
    words.extend(["--out", out.to_str().unwrap(), "--state", state.to_str().unwrap()]);
    let (code, text, error) = run(&words);
    assert_eq!((code, now()), (0, before.clone()), "{error}");
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["schema"], "overdrive.ablation/1");
    assert_eq!(value["status"]["state"], "complete");
    let settings = value["settings"].as_array().unwrap();
    let names: Vec<_> = settings.iter().map(|setting| setting["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["as found", RULE]);
    for (setting, runs) in settings.iter().zip([4, 2]) {
        for workload in setting["runs"].as_array().unwrap() {
            assert_eq!(workload.as_array().unwrap().len(), runs, "{}", setting["name"]);
        }
    }
    assert_eq!(value["workloads"].as_array().unwrap().len(), 2);
    assert!(value["notes"].to_string().contains("the host is as it was"), "{}", value["notes"]);

    // Ctrl-C while the change stands: it is taken back before the end.
    let mut child = started(folder.path(), &before);
    let signal = |child: &Child, name: &str| {
        let id = child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    };
    signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(now(), before, "after Ctrl-C");
    let stored: Value =
        serde_json::from_str(&std::fs::read_to_string(out.join("ablation.json")).unwrap()).unwrap();
    assert_eq!(stored["status"]["state"], "interrupted");

    // A kill leaves it, in the journal: one undo mends that. Meanwhile nobody else gets at the host.
    let mut child = started(folder.path(), &before);
    let (code, _, error) = run(&words);
    assert_eq!(code, 2);
    assert!(error.contains("another overdrive is changing this host"), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(now(), before, "a killed process cannot take anything back");
    let (code, _, error) = run(&["tune", "undo", "--state", state.to_str().unwrap()]);
    assert_eq!((code, now()), (0, before), "{error}");
}

#[test]
fn an_ordinary_user_is_told_before_anything_is_measured() {
    const NAME: &str = "ablate::an_ordinary_user_is_told_before_anything_is_measured";
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    // The build directory may be out of that user's reach.
    let program = place.path().join("overdrive");
    std::fs::copy(env!("CARGO_BIN_EXE_overdrive"), &program).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
    command.args(["evaluate", "--ablate", "--quick", "--size", "16MiB"]).current_dir(place.path());
    let Ok(output) = command.output() else {
        return skip(NAME, "there is no setpriv");
    };
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    if error.contains("setpriv") {
        return skip(NAME, &format!("no other user can be had: {}", error.trim()));
    }
    assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("--ablate: changing settings needs root; nothing was touched"), "{error}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "the program alone");
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_is_changed() {
    for (words, reason) in [
        (vec!["evaluate", "sim", "--ablate"], "a simulated device"),
        (vec!["evaluate", "--ablate", "--rules", "no-such-rule"], "no rule has this name"),
        (vec!["evaluate", "--rules", "block-wbt"], "--ablate"),
        (vec!["evaluate", "--ablate", "--repeats", "1"], "2..=100"),
    ] {
        let (code, _, error) = run(&words);
        assert_eq!(code, 2, "{words:?}");
        assert!(error.contains(reason), "{words:?}: {error}");
    }
}
