//! Budgets while zswap is on: what it holds counts in them, also where the kernel does not charge it
//! (version 1).
//!
//! On its own, as zswap is the whole machine's: no other test runs beside a binary of tests.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

#[path = "it/support.rs"]
#[allow(dead_code, reason = "the other tests use the rest of it")]
mod support;

use overdrive_sys::memory_group::{Place, Version, counters_at};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{folder, overdrive, read, skip};

const ENABLED: &str = "/sys/module/zswap/parameters/enabled";
const BUDGET: u64 = 128 << 20;
/// How far above it may be: a limit that is off by a sixty-fourth stays, and both move meanwhile.
const MARGIN: u64 = BUDGET / 16;

/// On until it is dropped, then as it was.
struct ZswapOn {
    before: String,
}

impl ZswapOn {
    /// None where there is nothing to be seen; `skip` says so where that is this machine's fault.
    fn turn(test: &str) -> Option<Self> {
        match Place::find() {
            Ok(place) if place.version() == Version::V2 => return None,
            Ok(_) => {}
            Err(error) => {
                skip(test, &error.to_string());
                return None;
            }
        }
        // A kernel without zswap holds nothing in it.
        let before = std::fs::read_to_string(ENABLED).ok()?.trim().to_owned();
        if let Err(error) = std::fs::write(ENABLED, "Y") {
            skip(test, &format!("{ENABLED}: {error}"));
            return None;
        }
        Some(Self { before })
    }
}

impl Drop for ZswapOn {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(ENABLED, &self.before) {
            eprintln!("{ENABLED} could not be set back to {}: {error}", self.before);
        }
    }
}

/// Bytes that zswap takes, of whomever.
fn zswap_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Zswap:"));
    line.map_or(0, |line| line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024)
}

/// The group that a process has made, somewhere below.
fn group_of(pid: u32, folder: &Path, depth: usize) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let folders: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    let is_its = |path: &&PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("overdrive-") && name.contains(&format!("-{pid}-"))
    };
    let own = folders.iter().find(is_its).cloned();
    own.or_else(|| {
        if depth == 0 { None } else { folders.iter().find_map(|path| group_of(pid, path, depth - 1)) }
    })
}

/// Killed when dropped, unless it was waited for.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

fn start(arguments: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overdrive"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).env("NO_COLOR", "1");
    Run(command.spawn().unwrap())
}

/// Starts a command that swaps out compressible pages for as long as it is let, and waits until its group
/// and zswap's growth are within the budget together, at ten looks in a row, and `then` holds of its
/// process. The kernel kills such a program now and then for want of memory (docs/memory.md), whatever we
/// do; then it is started again.
fn assert_kept(arguments: &[&str], then: impl Fn(u32) -> bool) {
    let roots = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"].map(Path::new);
    let root = roots.into_iter().find(|root| root.is_dir()).unwrap();
    let before = zswap_bytes();
    let mut run = start(arguments);
    let (begun, mut in_a_row, mut seen) = (Instant::now(), 0, Vec::new());
    while in_a_row < 10 || !then(run.0.id()) {
        std::thread::sleep(Duration::from_millis(50));
        assert!(
            begun.elapsed() < Duration::from_secs(200),
            "group, zswap, swapped {seen:?} of a budget of {BUDGET}: {arguments:?}"
        );
        if run.0.try_wait().unwrap().is_some() {
            run = start(arguments);
            in_a_row = 0;
        }
        let Some(group) = group_of(run.0.id(), root, 8) else { continue };
        let counters = counters_at(&group);
        let (usage, swap) = (counters.usage_bytes.unwrap_or(0), counters.swap_bytes.unwrap_or(0));
        let held = zswap_bytes().saturating_sub(before);
        seen = vec![usage, held, swap];
        let is_kept = swap > BUDGET / 2 && held > BUDGET / 8 && usage + held <= BUDGET + MARGIN;
        in_a_row = if is_kept { in_a_row + 1 } else { 0 };
    }
    let pid = run.0.id();
    // It may have been killed at this very moment.
    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::INT);
    run.0.wait().unwrap();
    assert_eq!(group_of(pid, root, 8), None, "the group stays");
}

/// Writes to twice the budget of contents 3:1 until it is ended.
const WRITES: [&str; 14] = [
    "--set",
    "256MiB",
    "--threads",
    "2",
    "--pattern",
    "uniform",
    "--read-ratio",
    "0",
    "--compressible",
    "67",
    "--warmup-max",
    "1s",
    "--runtime",
    "1000s",
];

/// Both in one test: each counts all that zswap holds.
#[test]
fn what_zswap_holds_counts_in_the_budget() {
    const NAME: &str = "zswap::what_zswap_holds_counts_in_the_budget";
    let Some(_on) = ZswapOn::turn(NAME) else { return };
    let place = folder();
    let swap = place.path().to_str().unwrap();
    let arguments = ["page", "--backing", "swap", "--dram", "128MiB", "--swap", swap];
    assert_kept(&[&arguments[..], &WRITES].concat(), |_| true);

    let store = format!("{swap}:256MiB");
    let program = env!("CARGO_BIN_EXE_overdrive");
    for room in [&["--quiet"][..], &["--quiet", "--no-room-ahead"]] {
        let head = ["extend", "--backend", "swap", "--dram", "128MiB", "--store", &store];
        let arguments = [&head[..], room, &["--", program, "page", "--backing", "dram"], &WRITES].concat();
        assert_kept(&arguments, |pid| {
            let asked =
                overdrive().args(["extend", "status", "--json", "--interval", "50ms"]).output().unwrap();
            let (code, text, error) = read(&asked);
            assert_eq!(code, 0, "{error}");
            let document: Value = serde_json::from_str(&text).unwrap();
            let runs = document["swap_runs"].as_array().unwrap();
            // One that was just killed is not there.
            let Some(run) = runs.iter().find(|run| run["pid"] == pid) else { return false };
            assert_eq!(run["limit_bytes"], BUDGET, "the budget, not what is left of it: {run}");
            run["zswap_bytes"].as_u64() > Some(BUDGET / 8)
        });
    }
}
