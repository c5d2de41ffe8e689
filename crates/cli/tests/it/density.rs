//! `overdrive density` on real Redis servers: figures add up, limits hold, refusals are one line, nothing
//! is left.

use crate::support::{folder, overdrive, read, run, skip, swap_may_be_on};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::RwLockReadGuard;
use std::time::{Duration, Instant};

const QUICK: [&str; 8] =
    ["density", "--runtime", "300ms", "--warmup", "100ms", "--iterations", "2", "--json"];

/// Whether there is a Redis server; says so when there is none.
fn has_redis(test: &str) -> bool {
    let found = Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        skip(test, "no redis-server");
    }
    found
}

fn has_groups(test: &str) -> bool {
    let place = overdrive_sys::memory_group::Place::find();
    if let Err(error) = &place {
        skip(test, &error.to_string());
    }
    place.is_ok()
}

fn density(arguments: &[&str]) -> (i32, Value, String) {
    let (code, text, error) = run(&[&QUICK[..], arguments].concat());
    let value = serde_json::from_str(&text).unwrap_or(Value::Null);
    (code, value, error)
}

/// What a run of ours may leave behind: processes by their command line, folders, groups.
fn leftovers(marker: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if command.contains(marker) {
            found.push(command);
        }
    }
    let folders = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let names = folders.map(|entry| entry.file_name().to_string_lossy().into_owned());
    found.extend(names.filter(|name| name.contains(marker)));
    found
}

#[test]
fn a_folder_that_takes_no_file_is_refused_before_anything_is_measured() {
    if !has_redis("density::a_folder_that_takes_no_file_is_refused_before_anything_is_measured") {
        return;
    }
    // Nobody makes a file there, not even root.
    let (code, text, error) =
        run(&[&QUICK[..], &["--instances", "1", "--records", "1000", "--out", "/proc"]].concat());
    assert_eq!((code, text.as_str(), error.lines().count()), (2, "", 1), "{error}");
    assert!(error.contains("--out /proc: cannot write there"), "{error}");
}

#[test]
fn one_number_is_measured_and_its_figures_add_up() {
    if !has_redis("density::one_number_is_measured_and_its_figures_add_up") {
        return;
    }
    let arguments = [
        "--records",
        "3000",
        "--instances",
        "2",
        "--rate",
        "1000",
        "--objective",
        "p95=10s",
        "--influence",
        "10",
    ];
    let (code, record, error) = density(&arguments);
    assert_eq!(code, 0, "{error}");
    assert_eq!(record["schema"], "overdrive.density/1");
    let backing = &record["backings"][0];
    assert_eq!((&backing["held"], &backing["searched"]), (&Value::from(2), &Value::from(false)));
    let measured = &backing["trials"][0]["measured"];
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    assert!((number(&measured["sent_per_s"]) / 2000.0 - 1.0).abs() < 0.005, "{}", measured["sent_per_s"]);
    let samples = |value: &Value| value["samples"].as_u64().unwrap();
    assert_eq!(samples(&measured["latency"]), 1200, "2 x 1000/s x 2 x 300 ms");
    assert_eq!(samples(&measured["gets"]) + samples(&measured["sets"]), 1200);
    let each: u64 =
        measured["instances"].as_array().unwrap().iter().map(|one| samples(&one["latency"])).sum();
    assert_eq!(each, 1200);
    assert_eq!(measured["iterations"].as_array().unwrap().len(), 2);
    assert!(number(&measured["late"]["avg_ns"]) <= number(&measured["latency"]["avg_ns"]));
}

#[test]
fn a_search_ends_at_the_edge_of_memory_and_the_record_is_shown_again() {
    const TEST: &str = "density::a_search_ends_at_the_edge_of_memory_and_the_record_is_shown_again";
    if !has_redis(TEST) || !has_groups(TEST) {
        return;
    }
    let folder = folder();
    let out = folder.path().to_str().unwrap();
    let arguments = [
        "--records",
        "20000",
        "--rate",
        "200",
        "--objective",
        "max=60s",
        "--dram",
        "80MiB",
        "--max",
        "8",
        "--out",
        out,
    ];
    let (code, record, error) = density(&arguments);
    assert_eq!(code, 0, "{error}");
    let backing = &record["backings"][0];
    let (held, failed) = (backing["held"].as_u64().unwrap(), backing["failed"].as_u64().unwrap());
    // 20,000 values of 1 KiB and what Redis needs besides are 27 to 35 MiB.
    assert!((1..=3).contains(&held) && failed == held + 1, "{backing}");
    let edge = backing["edge"].as_str().unwrap();
    assert!(edge.contains("memory") || edge.contains("DRAM"), "{edge}");
    let group =
        backing["trials"].as_array().unwrap().iter().find_map(|one| one["measured"]["group"].as_object());
    let group = group.unwrap();
    assert_eq!(group["limit_bytes"], 80 << 20);
    assert!(group["usage_bytes"].as_u64().unwrap() <= 80 << 20);
    let stored = folder.path().join("density.json");
    let (code, text, _) = run(&["report", stored.to_str().unwrap()]);
    assert_eq!(code, 0);
    assert!(text.starts_with(&format!("Instances inside the objective: dram {held}\n")), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let log = folder.path().join("density.hlog");
    let (code, _, error) = run(&["report", stored.to_str().unwrap(), "--hlog", log.to_str().unwrap()]);
    let log = std::fs::read_to_string(log).unwrap_or_default();
    assert!(code == 0 && log.contains(&format!("Tag=dram-{held}-instances,")), "{error}{log}");
    let html = std::fs::read_to_string(folder.path().join("density.html")).unwrap();
    assert!(html.contains("<svg") && !html.contains("<script"));
    costs_are_known_as_far_as_the_numbers(&record, &stored);
}

/// What `cost` makes of a record of one backing: twice that backing, with an edge and without.
fn costs_are_known_as_far_as_the_numbers(record: &Value, stored: &Path) {
    let held = record["backings"][0]["held"].as_u64().unwrap();
    let cost =
        ["cost", "--dram-a", "2GiB", "--dram-b", "1GiB", "--ssd-b", "4GiB", "--price-ratio", "4", "--from"];
    let (code, _, error) = run(&[&cost[..], &[stored.to_str().unwrap()]].concat());
    assert!(code == 2 && error.contains("it has one backing"), "{error}");
    let mut two = record.clone();
    let again = two["backings"][0].clone();
    two["backings"].as_array_mut().unwrap().push(again);
    std::fs::write(stored, two.to_string()).unwrap();
    let (code, text, error) = run(&[&cost[..], &[stored.to_str().unwrap()]].concat());
    assert_eq!(code, 0, "{error}");
    assert!(text.contains(&format!("A holds {held} on dram, B {held} on dram")), "{text}");
    // A search that found no edge says a bound, and so does what is computed from it.
    two["backings"][1]["failed"] = Value::Null;
    std::fs::write(stored, two.to_string()).unwrap();
    let (code, text, error) = run(&[&cost[..], &[stored.to_str().unwrap()]].concat());
    assert_eq!(code, 0, "{error}");
    let text = crate::support::words_of(&text);
    assert!(text.contains(&format!("A holds {held} on dram, B at least {held} on dram")), "{text}");
    assert!(text.contains("an instance on it at most ") && text.contains("! B's number"), "{text}");
    let (_, text, _) = run(&[&cost[..], &[stored.to_str().unwrap(), "--json"]].concat());
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["server_a"]["instances_at_least"], false);
    assert_eq!(value["server_b"]["instances_at_least"], true);
    assert_eq!(value["server_b"]["instances_at_most"], Value::Null);
    // The more B holds, the sooner it pays.
    assert_eq!(value["break_even"]["best"]["kind"], "always");
    let costs = |failed: Value, searched: bool| {
        let mut record = two.clone();
        (record["backings"][1]["failed"], record["backings"][1]["searched"]) = (failed, searched.into());
        std::fs::write(stored, record.to_string()).unwrap();
        let (code, text, error) = run(&[&cost[..], &[stored.to_str().unwrap()]].concat());
        assert_eq!(code, 0, "{error}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        crate::support::words_of(&text)
    };
    // The same numbers: 4 GiB of SSD for 1 GiB of DRAM.
    let text = costs(Value::Null, true);
    assert!(text.contains("than one on A from a price ratio of at most 4 on"), "{text}");
    let text = costs(Value::Null, false);
    assert!(text.contains(&format!("B at least {held} on dram")), "one number is no edge: {text}");
    let text = costs((held + 1).into(), true);
    assert!(text.contains("than one on A from a price ratio of 4 on"), "{text}");
    let text = costs((held * 3 / 2 + 2).into(), true);
    assert!(text.contains("from a price ratio between ") && text.contains(" and 4 on"), "{text}");
    assert!(text.contains(&format!("B {held} to {} on dram", held * 3 / 2 + 1)), "{text}");
}

#[test]
fn an_objective_that_cannot_be_met_says_by_how_much() {
    if !has_redis("density::an_objective_that_cannot_be_met_says_by_how_much") {
        return;
    }
    let (code, record, error) = density(&["--records", "1000", "--objective", "avg=1ns", "--rate", "500"]);
    assert_eq!((code, &record["backings"][0]["held"]), (1, &Value::from(0)));
    // What would be the edge is tried once more.
    let backing = &record["backings"][0];
    assert_eq!((backing["trials"].as_array().unwrap().len(), &backing["failed"]), (2, &Value::from(1)));
    assert_eq!(backing["edge"], backing["trials"][1]["verdict"]);
    assert!(error.contains("dram     1 instance again, avg "), "{error}");
    let last = error.lines().last().unwrap();
    assert!(
        last.starts_with("overdrive: dram: the objective is not met at one instance: instance 0: avg "),
        "{last}"
    );
    assert!(last.contains("times the 1 ns asked for"), "{last}");
}

#[test]
fn classes_hold_their_limits() {
    const TEST: &str = "density::classes_hold_their_limits";
    if !has_redis(TEST) || !has_groups(TEST) || !is_root(TEST) {
        return;
    }
    for backing in ["swap", "extend-swap"] {
        classes_hold_their_limits_on(TEST, backing);
    }
}

fn classes_hold_their_limits_on(test: &str, backing: &str) {
    let folder = folder();
    let swap = format!("{}:256MiB", folder.path().display());
    let arguments = [
        "--backing",
        backing,
        "--swap",
        &swap,
        "--dram",
        "512MiB",
        "--classes",
        "gold:1,bronze:4",
        "--instances",
        "4",
        "--records",
        "40000",
        "--rate",
        "200",
        "--objective",
        "max=60s",
    ];
    let (code, record, error) = density(&arguments);
    if code == 2 && error.contains("no swap file there") {
        return skip(test, &error);
    }
    assert_eq!((code, &record["backings"][0]["name"]), (0, &Value::from(backing)), "{error}");
    assert!(!record["notes"].to_string().contains("make room themselves"), "{record}");
    let measured = &record["backings"][0]["trials"][0]["measured"];
    let bytes = |class: usize, key: &str| measured["classes"][class]["group"][key].as_u64().unwrap_or(0);
    let (gold, bronze) = (bytes(0, "limit_bytes"), bytes(1, "limit_bytes"));
    assert!(gold.abs_diff(bronze * 4) <= 4 * 4096, "{gold} {bronze}");
    assert!(bytes(0, "usage_bytes") <= gold && bytes(1, "usage_bytes") <= bronze, "{measured}");
    // With room kept below it, it need not.
    assert!(bytes(1, "limit_hits") > 0 || backing == "extend-swap", "bronze has met its limit");
    // Of version 1 the kernel tells a group's swap only when it was told to count it at boot.
    if let Some(swapped) = measured["classes"][1]["group"]["swap_bytes"].as_u64() {
        assert!(swapped > bronze, "most of bronze is in swap: {swapped}");
    }
    assert_eq!(measured["instances"][1]["class"], "bronze");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the swap file is gone");
}

fn is_root(test: &str) -> bool {
    let user = std::fs::metadata("/proc/self").map(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata));
    if user.as_ref().ok() != Some(&0) {
        skip(test, "only root makes swap");
    }
    user.ok() == Some(0)
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let missing: &[&str] = &["--redis", "/no/such/redis"];
    for (arguments, words) in [
        (missing, "wanted the package redis-server"),
        (&["--rate", "0"], "--rate 0: wanted"),
        (&["--rate", "1e-308"], "wanted 0.00001 to 1000000 requests/s"),
        (&["--mix", "101"], "--mix 101: wanted"),
        (&["--records", "0"], "--records 0: wanted"),
        (&["--value-size", "0"], "--value-size 0: wanted"),
        (&["--influence", "nan"], "--influence NaN: wanted"),
        (&["--records", "4000000000", "--value-size", "1MiB"], "not one instance fits"),
        (&["--dram", "900TiB"], "is available; wanted less"),
        (&["--backing", "swap"], "--backing swap: without a limit nothing goes to swap; wanted --dram SIZE"),
        (&["--backing", "dram,extend-swap"], "--backing extend-swap: without a limit nothing goes to swap"),
        (&["--swap", "/tmp"], "wanted --backing dram,swap"),
        (&["--classes", "gold"], "wanted NAME:RATIO"),
        (&["--classes", "../x:2"], "no name of letters"),
        (&["--classes", "bronze:4"], "wanted --backing swap"),
        (&["--backing", "dram,dram"], "twice"),
        (&["--backing", "dram,dram"], "--backing names dram twice: wanted each once"),
        (&["--port", "0"], "--port 0: wanted 1 to 65535"),
        (&["--load-threads", "0"], "--load-threads 0: wanted at least 1"),
        (&["--spin", "1h"], "--spin 1h00m: wanted at most 1 s"),
        (&["--value-size", "1GiB"], "--value-size 1 GiB: wanted"),
        (&["--price-ratio", "1e-300"], "--price-ratio 1e-300: wanted a number from"),
        (&["--kind", "vm", "--kernel", "/no/vmlinuz", "--modules", "/no"], "wanted"),
        (&["--kernel", "/no/vmlinuz"], "for --kind vm"),
        (&["--instances", "0"], "--instances 0: wanted"),
        (&["--max", "0"], "--max 0: wanted"),
        (&["--iterations", "0"], "--iterations 0: wanted"),
        (&["--runtime", "0s"], "--runtime: wanted"),
        (&["--warmup", "25h"], "--warmup: wanted at most a day"),
        (&["--price-ratio", "0"], "--price-ratio 0: wanted"),
        (&["--price-ratio", "nan"], "--price-ratio NaN: wanted"),
        (&["--port", "7000", "--kind", "vm"], "for --kind process"),
        (&["--store", "/var"], "wanted --backing dram,extend"),
        (&["--backing", "extend"], "wanted --dram SIZE"),
        (&["--backing", "extend", "--dram", "32MiB"], "not one extended instance fits; wanted at least"),
        (&["--backing", "extend", "--dram", "64MiB", "--store", "/no/such"], "--store /no/such: no such"),
        // Its parent is there.
        (
            &["--backing", "extend", "--dram", "64MiB", "--store", "/proc/missing"],
            "/proc/missing: no such directory",
        ),
        (&["--backing", "extend", "--dram", "64MiB", "--store", "/proc"], "--store /proc: "),
        (
            &["--backing", "swap", "--dram", "1GiB", "--swap", "/no/such"],
            "--swap /no/such: wanted a directory",
        ),
        (&["--kind", "vm", "--vm-memory", "900TiB"], "not one guest fits"),
        (&["--out", "/proc/self/status/x"], "--out /proc/self/status/x"),
        (
            &["--swap", "/tmp", "--backing", "swap", "--dram", "1GiB", "--classes", "a:0.5"],
            "no ratio of 1 or more",
        ),
    ] {
        let (code, text, error) = run(&[&QUICK[..1], arguments].concat());
        assert_eq!((code, text.as_str(), error.lines().count()), (2, "", 1), "{arguments:?}: {error}");
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
    for objective in ["avg", "avg=", "p100=1us", "avg=0us", "", "avg=50us,avg=60us"] {
        let (code, text, error) = run(&["density", "--objective", objective]);
        assert_eq!((code, text.as_str()), (2, ""), "{objective}");
        assert!(error.contains("is no objective") && error.contains("wanted such as avg=50us"), "{error}");
    }
}

/// The kernel that `make setup` fetches for guests: boot folder and modules.
pub(crate) fn guest_kernel() -> Option<(PathBuf, PathBuf)> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target")), PathBuf::from);
    let folder = target.join("vm/kernel-6.1");
    let boot = std::fs::read_dir(folder.join("boot")).ok()?.flatten().map(|entry| entry.path());
    let kernel = boot.filter(|path| path.to_string_lossy().contains("vmlinuz-")).last()?;
    let release = kernel.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
    let places = ["lib/modules", "usr/lib/modules"].map(|place| folder.join(place).join(&release));
    let modules = places.into_iter().find(|place| place.join("modules.builtin").is_file())?;
    Some((kernel, modules))
}

/// Two guests under load on a backing: none of their requests wrong or lost.
fn two_guests_serve(guests: &[String], backing: &[&str]) {
    let guests: Vec<&str> = guests.iter().map(String::as_str).collect();
    let load = ["--instances", "2", "--records", "500", "--rate", "20", "--objective", "max=60s"];
    let quick = ["--warmup", "500ms", "--iterations", "2", "--runtime", "2s"];
    let (code, text, error) = run(&[&["density", "--json"], &guests[..], &load, &quick, backing].concat());
    assert_eq!(code, 0, "{error}");
    let record: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["kind"], "vm");
    let measured = &record["backings"][0]["trials"][0]["measured"];
    // 20 a second from each of two, twice for two seconds.
    assert_eq!(measured["latency"]["samples"], 160);
    for one in measured["instances"].as_array().unwrap() {
        assert_eq!((&one["errors"], &one["unanswered"]), (&Value::from(0), &Value::from(0)), "{one}");
    }
}

#[test]
fn two_virtual_machines_serve_under_load() {
    const TEST: &str = "density::two_virtual_machines_serve_under_load";
    if let Some(guests) = guests(TEST) {
        two_guests_serve(&guests, &[]);
    }
}

#[test]
fn virtual_machines_serve_from_extended_memory() {
    const TEST: &str = "density::virtual_machines_serve_from_extended_memory";
    let place = folder();
    let Some(_swap_is_off) = can_extend(TEST, place.path()) else { return };
    if let Some(guests) = guests(TEST) {
        let store = place.path().to_str().unwrap();
        two_guests_serve(&guests, &["--backing", "extend", "--dram", "640MiB", "--store", store]);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "the store is gone");
    }
}

#[test]
fn a_taken_port_is_told() {
    if !has_redis("density::a_taken_port_is_told") {
        return;
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (code, _, error) = density(&["--instances", "1", "--port", &port]);
    let last = error.lines().last().unwrap();
    assert_eq!(code, 2, "{error}");
    assert!(last.contains(&format!("port {port}")) && last.contains("wanted --port"), "{error}");
    drop(taken);
    let (code, _, error) =
        density(&["--records", "1000", "--instances", "1", "--port", &port, "--objective", "max=60s"]);
    assert_eq!(code, 0, "{error}");
}

/// A run that would take a minute, once there are `count` of its processes and folders.
fn started(arguments: &[&str], count: usize) -> (Child, String) {
    started_saying(arguments, count, &folder().path().join("said"))
}

/// The same; what it says on standard error goes to `log`.
fn started_saying(arguments: &[&str], count: usize, log: &Path) -> (Child, String) {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_overdrive"));
    let said = std::fs::File::create(log).unwrap();
    let mut child = Command::new(program)
        .args(["density", "--runtime", "60s", "--objective", "max=60s"])
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(said)
        .spawn()
        .unwrap();
    let marker = format!("overdrive-density-{}-", child.id());
    let start = Instant::now();
    while leftovers(&marker).len() < count {
        let said = || std::fs::read_to_string(log).unwrap_or_default();
        assert!(child.try_wait().unwrap().is_none(), "it ended: {}", said());
        assert!(start.elapsed() < Duration::from_secs(120), "{:?} {}", leftovers(&marker), said());
        std::thread::sleep(Duration::from_millis(20));
    }
    (child, marker)
}

const TWO: [&str; 4] = ["--instances", "2", "--records", "2000"];

fn gone(marker: &str) -> Vec<String> {
    let start = Instant::now();
    while !leftovers(marker).is_empty() && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(20));
    }
    leftovers(marker)
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    if !has_redis("density::an_interrupted_run_leaves_nothing") {
        return;
    }
    let folder = folder();
    let (out, log) = (folder.path().join("out"), folder.path().join("said"));
    let with_out = [&TWO[..], &["--out", out.to_str().unwrap()]].concat();
    let (mut child, marker) = started_saying(&with_out, 3, &log);
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(leftovers(&marker).is_empty(), "{:?}", leftovers(&marker));
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.ends_with("overdrive: interrupted before the first number was measured\n"), "{said}");
    assert!(!out.exists(), "it was made for this run and is empty");
}

#[test]
fn after_a_kill_no_server_runs_and_stale_removes_the_rest() {
    if !has_redis("density::after_a_kill_no_server_runs_and_stale_removes_the_rest") {
        return;
    }
    let (child, marker) = started(&TWO, 3);
    let left = killed(child, &marker, "redis-server");
    assert!(left.len() <= 1, "at most its folder: {left:?}");
    stale(&marker);
}

/// Kills a run and waits until no `program` of it runs; gives what is left: at most, since the runs of other
/// tests sweep too when they start.
fn killed(mut child: Child, marker: &str, program: &str) -> Vec<String> {
    child.kill().unwrap();
    child.wait().unwrap();
    let start = Instant::now();
    while leftovers(marker).iter().any(|one| one.contains(program)) {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", leftovers(marker));
        std::thread::sleep(Duration::from_millis(20));
    }
    leftovers(marker)
}

/// Waits until a killed run has left no group and nothing in this folder: whoever swept first may still be at
/// it.
fn nothing_stays(marker: &str, folder: &Path) {
    let start = Instant::now();
    while !groups(marker).is_empty() || std::fs::read_dir(folder).unwrap().count() > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", groups(marker));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Removes what killed runs left. Another test's run may do it a moment before, or leave something itself.
fn stale(marker: &str) {
    let (code, _, error) = read(&overdrive().args(["density", "--stale"]).output().unwrap());
    assert!(code == 0 || gone(marker).is_empty(), "{code} {error}");
    assert!(gone(marker).is_empty(), "{:?}", leftovers(marker));
}

/// Groups of a run, wherever the hierarchy is.
fn groups(marker: &str) -> Vec<String> {
    let wanted = marker.trim_start_matches("overdrive-density");
    let mut find = Command::new("find");
    find.args(["/sys/fs/cgroup", "-type", "d", "-name"]).arg(format!("overdrive-density-*{wanted}*"));
    let output = find.output().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn a_killed_run_with_swap_leaves_nothing_after_stale() {
    const TEST: &str = "density::a_killed_run_with_swap_leaves_nothing_after_stale";
    if !has_redis(TEST) || !has_groups(TEST) || !is_root(TEST) {
        return;
    }
    let place = folder();
    let swap = format!("{}:128MiB", place.path().display());
    let (code, _, error) = density(
        &[&["--backing", "swap", "--dram", "256MiB", "--swap", &swap, "--objective", "max=60s"], &TWO[..]]
            .concat(),
    );
    if code == 2 && error.contains("no swap file there") {
        return skip(TEST, &error);
    }
    assert_eq!(code, 0, "{error}");
    let _swap_may_be_on = swap_may_be_on();
    let arguments = ["--backing", "swap", "--dram", "256MiB", "--swap", &swap];
    let (child, marker) = started(&[&arguments, &TWO[..]].concat(), 3);
    let _ = killed(child, &marker, "redis-server");
    stale(&marker);
    nothing_stays(&marker, place.path());
    assert!(!std::fs::read_to_string("/proc/swaps").unwrap().contains(place.path().to_str().unwrap()));
}

#[test]
fn a_killed_run_of_virtual_machines_leaves_nothing_after_stale() {
    const TEST: &str = "density::a_killed_run_of_virtual_machines_leaves_nothing_after_stale";
    let Some(guests) = guests(TEST) else { return };
    let guests: Vec<&str> = guests.iter().map(String::as_str).collect();
    let load = ["--instances", "1", "--records", "500", "--rate", "20"];
    // Its folder and QEMU: the guest is still coming up.
    let (child, marker) = started(&[&guests[..], &load].concat(), 2);
    let left = killed(child, &marker, "qemu");
    assert!(left.len() <= 1, "at most its folder: {left:?}");
    stale(&marker);
}

/// The arguments for guests, where they can be had.
fn guests(test: &str) -> Option<Vec<String>> {
    if !has_redis(test) {
        return None;
    }
    let Some((kernel, modules)) = guest_kernel() else {
        skip(test, "no kernel for guests under target/vm (make setup as root fetches it)");
        return None;
    };
    if Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status().is_err() {
        skip(test, "no qemu-system-x86_64");
        return None;
    }
    let (kernel, modules) = (kernel.display().to_string(), modules.display().to_string());
    Some(["--kind", "vm", "--kernel", &kernel, "--modules", &modules].map(str::to_owned).to_vec())
}

/// Whether instances can be put under the pager here, as they can until what is returned is dropped.
fn can_extend(test: &str, store: &Path) -> Option<RwLockReadGuard<'static, ()>> {
    if has_redis(test) && has_groups(test) { crate::extend::can_page(test, store) } else { None }
}

#[test]
fn extended_instances_stay_within_the_fleets_dram() {
    const TEST: &str = "density::extended_instances_stay_within_the_fleets_dram";
    let place = folder();
    let Some(_swap_is_off) = can_extend(TEST, place.path()) else { return };
    let store = place.path().to_str().unwrap();
    let arguments = [
        "--backing",
        "extend",
        "--store",
        store,
        "--dram",
        "112MiB",
        "--instances",
        "2",
        "--records",
        "60000",
        "--rate",
        "300",
        "--objective",
        "max=60s",
    ];
    let (code, record, error) = density(&arguments);
    assert_eq!(code, 0, "{error}");
    let measured = &record["backings"][0]["trials"][0]["measured"];
    let group = &measured["group"];
    assert_eq!(group["limit_bytes"], 112 << 20);
    assert!(group["usage_bytes"].as_u64().unwrap() <= 112 << 20, "{group}");
    assert_eq!(group["oom_kills"], 0, "{group}");
    for one in measured["instances"].as_array().unwrap() {
        assert_eq!((&one["errors"], &one["unanswered"]), (&Value::from(0), &Value::from(0)), "{one}");
    }
    // 60,000 records take some 75 MiB, a budget is 50: evenly drawn keys have to come from the store.
    assert!(measured["swap_in_bytes_per_s"].as_f64().unwrap() > 0.0, "{measured}");
    // An instance's memory is what it has in DRAM and what is behind it.
    let each = measured["footprint_bytes"].as_u64().unwrap();
    assert!((70 << 20..140 << 20).contains(&each), "{each}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "the store is gone");
    let words = ["density", "--backing", "extend", "--store", store, "--dram", "100MiB", "--records", "1000"];
    let (code, _, error) = run(&[&words[..], &["--instances", "3", "--objective", "max=60s"]].concat());
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("its pager needs 32 MiB"), "{error}");
}

#[test]
fn a_killed_run_of_extended_instances_leaves_nothing_after_stale() {
    const TEST: &str = "density::a_killed_run_of_extended_instances_leaves_nothing_after_stale";
    let place = folder();
    let Some(_swap_is_off) = can_extend(TEST, place.path()) else { return };
    let store = place.path().to_str().unwrap();
    let quick = ["--backing", "extend", "--store", store, "--dram", "128MiB", "--objective", "max=60s"];
    let (code, _, error) = density(&[&quick, &TWO[..]].concat());
    assert_eq!(code, 0, "{error}");
    // Two servers, the programs that wait for them (whose command lines name the servers too), its folder;
    // and while another backing is measured before it.
    for (backing, count) in [("extend", 5), ("dram,extend", 3)] {
        let backing = ["--backing", backing];
        let (child, marker) = started(&[&backing, &quick[2..6], &TWO[..]].concat(), count);
        let _ = killed(child, &marker, "redis-server");
        stale(&marker);
        nothing_stays(&marker, place.path());
    }
}
