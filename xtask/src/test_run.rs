//! `cargo xtask test`: the test suite, then what was skipped and why, then one line with the sums.
//!
//! A test that cannot run on this machine returns early and leaves a line in the file named by
//! `OVERDRIVE_SKIP_LOG` (docs/testing.md has the protocol). Cargo counts it as passed; here it is counted as
//! what it is.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

const LOG_VARIABLE: &str = "OVERDRIVE_SKIP_LOG";
const STRICT_VARIABLE: &str = "OVERDRIVE_NO_SKIPS";

/// What all test binaries together said.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Sums {
    /// Adds one line of output, when it is the closing line of a test binary.
    fn add(&mut self, line: &str) {
        let Some(counts) = line.trim_start().strip_prefix("test result: ") else {
            return;
        };
        let count = |word: &str| -> u64 {
            let words: Vec<&str> = counts.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
            let at = words.iter().position(|candidate| *candidate == word);
            at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok()).unwrap_or(0)
        };
        self.passed += count("passed");
        self.failed += count("failed");
        self.ignored += count("ignored");
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
    let result = run_cargo(root, extra, &log);
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

fn run_cargo(root: &Path, extra: &[String], log: &Path) -> Result<(Sums, bool)> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut child = Command::new(cargo)
        .args(["test", "--workspace", "--locked", "--no-fail-fast"])
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
        assert_eq!(sums, Sums { passed: 13, failed: 2, ignored: 1 });
        assert_eq!(sums.closing_line(4), "9 passed, 2 failed, 5 skipped");
    }

    #[test]
    fn a_skip_counts_once() {
        let log = "a::b: not root\nc: no fio\n\na::b: not root\n";
        assert_eq!(skips(log).into_iter().collect::<Vec<_>>(), ["a::b: not root", "c: no fio"]);
    }
}
