//! `cargo xtask test`: the test suite, then what was skipped and why, then one line with the sums.
//!
//! A test that cannot run on this machine returns early and leaves a line in the file named by
//! `OVERDRIVE_SKIP_LOG` (docs/testing.md has the protocol). Cargo counts it as passed; here it is counted as
//! what it is.
//!
//! A few tests that failed beside all others are run once more, alone: what holds then is named as such and
//! does not fail the run. Not so in the crates that hold a program's memory: a page lost once is lost.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

const LOG_VARIABLE: &str = "OVERDRIVE_SKIP_LOG";
const STRICT_VARIABLE: &str = "OVERDRIVE_NO_SKIPS";
/// More failures than this are no accident.
const AGAIN_MAX: usize = 3;
/// The packages whose tests get no second chance.
const ONE_CHANCE: [&str; 2] = ["overdrive-pager", "overdrive-preload"];

/// What all test binaries together said.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Binaries that began and have not told their result: in the end, those that crashed.
    unfinished: i64,
    failures: Vec<String>,
}

impl Sums {
    /// Adds one line of output, when it is the first or closing line of a test binary or names a failure.
    fn add(&mut self, line: &str) {
        if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            self.unfinished += 1;
        }
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failures.push(name.to_owned());
        }
        let Some(counts) = line.trim_start().strip_prefix("test result: ") else {
            return;
        };
        self.unfinished -= 1;
        let count = |word: &str| -> u64 {
            let words: Vec<&str> = counts.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
            let at = words.iter().position(|candidate| *candidate == word);
            at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok()).unwrap_or(0)
        };
        self.passed += count("passed");
        self.failed += count("failed");
        self.ignored += count("ignored");
    }

    /// Whether it is worth a look if what failed holds alone: every failure has a name, and there are few.
    fn may_hold_alone(&self) -> bool {
        let named = self.failures.len();
        (1..=AGAIN_MAX).contains(&named) && self.failed == named as u64 && self.unfinished == 0
    }

    fn closing_line(&self, skipped: u64) -> String {
        let passed = self.passed.saturating_sub(skipped);
        format!("{passed} passed, {} failed, {} skipped", self.failed, skipped + self.ignored)
    }
}

/// The lines of the skip log, each test once.
fn skips(log: &str) -> BTreeSet<&str> {
    log.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// Runs the tests of the workspace; `extra` goes to cargo as it stands.
pub(crate) fn run(root: &Path, extra: &[String]) -> Result<ExitCode> {
    let log = std::env::temp_dir().join(format!("overdrive-skips-{}", std::process::id()));
    std::fs::write(&log, "").with_context(|| format!("cannot write {}", log.display()))?;
    let result = run_cargo(root, &["--no-fail-fast"], extra, &log).and_then(|(sums, succeeded)| {
        if sums.may_hold_alone() { again(root, sums, &log) } else { Ok((sums, succeeded)) }
    });
    let skipped = std::fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()));
    let _ = std::fs::remove_file(&log);
    let (sums, succeeded) = result?;
    let skipped = skipped?;
    let skipped = skips(&skipped);
    println!("\n{} skipped{}", skipped.len(), if skipped.is_empty() { "" } else { ":" });
    for line in &skipped {
        println!("  {line}");
    }
    println!("{}", sums.closing_line(skipped.len() as u64));
    if std::env::var(STRICT_VARIABLE).is_ok_and(|value| value == "1") && !skipped.is_empty() {
        eprintln!("{STRICT_VARIABLE}=1: nothing may be skipped on this machine");
        return Ok(ExitCode::from(1));
    }
    Ok(if succeeded && sums.failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Runs what failed once more, alone.
fn again(root: &Path, mut sums: Sums, log: &Path) -> Result<(Sums, bool)> {
    println!("\nonce more, alone: {}", sums.failures.join(", "));
    let mut options = vec!["--no-fail-fast"];
    ONE_CHANCE.iter().for_each(|package| options.extend(["--exclude", package]));
    let words = ["--", "--exact", "--test-threads=1"].map(str::to_owned);
    let extra: Vec<String> = words.into_iter().chain(sums.failures.iter().cloned()).collect();
    let (alone, succeeded) = run_cargo(root, &options, &extra, log)?;
    if !succeeded || alone.failed > 0 || alone.passed != sums.failed {
        return Ok((sums, false));
    }
    println!("\nfailed beside others, held alone: {}", sums.failures.join(", "));
    sums.passed += std::mem::take(&mut sums.failed);
    Ok((sums, true))
}

fn run_cargo(root: &Path, options: &[&str], extra: &[String], log: &Path) -> Result<(Sums, bool)> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut child = Command::new(cargo)
        .args(["test", "--workspace", "--locked"])
        .args(options)
        .args(extra)
        .current_dir(root)
        .env(LOG_VARIABLE, log)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let mut sums = Sums::default();
    let output = child.stdout.take().context("cargo has no output")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("cannot read cargo's output")?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        sums.add(&line);
    }
    let status = child.wait().context("cannot wait for cargo")?;
    Ok((sums, status.success()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_summed() {
        let mut sums = Sums::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 10 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.02s",
            "test result_is_shown ... ok",
        ] {
            sums.add(line);
        }
        assert_eq!((sums.passed, sums.failed, sums.ignored), (13, 2, 1));
        assert_eq!(sums.closing_line(4), "9 passed, 2 failed, 5 skipped");
    }

    #[test]
    fn a_few_named_failures_are_looked_at_again_and_a_crash_is_not() {
        let run = |lines: &[&str]| {
            let mut sums = Sums::default();
            lines.iter().for_each(|line| sums.add(line));
            sums.may_hold_alone()
        };
        let failed = "test result: FAILED. 1 passed; 1 failed; 0 ignored";
        assert!(run(&["running 2 tests", "test a::b ... ok", "test a::c ... FAILED", failed]));
        assert!(!run(&["running 2 tests", "test a::b ... FAILED"]), "the binary ended before its result");
        assert!(!run(&["running 1 test", "running 2 tests", "test a::c ... FAILED", failed]), "another did");
        assert!(!run(&["running 2 tests", failed]), "nobody knows what failed");
        assert!(
            !run(&["running 1 test", "test a ... ok", "test result: ok. 1 passed; 0 failed"]),
            "nothing did"
        );
    }

    #[test]
    fn a_skip_counts_once() {
        let log = "a::b: not root\nc: no fio\n\na::b: not root\n";
        assert_eq!(skips(log).into_iter().collect::<Vec<_>>(), ["a::b: not root", "c: no fio"]);
    }
}
