//! `overdrive extend` for other commands of this program: how it is started, and whether it works here.

use crate::exit::refuse;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// `overdrive extend` by one backend, as far as the program it is to run.
pub(crate) fn command(program: &Path, backend: &str, dram_bytes: u64, store: &OsStr) -> Command {
    let mut command = Command::new(program);
    command.args(["extend", "--backend", backend, "--dram", &dram_bytes.to_string(), "--store"]);
    command.arg(store);
    command
}

/// Whether programs can be started so, for the backing of this name; gives what is to be noted of how they
/// run.
pub(crate) fn try_out(backing: &str, mut command: Command) -> Result<Vec<String>> {
    let output = command.args(["--", "true"]).output().context("trying out overdrive extend")?;
    let told = String::from_utf8_lossy(&output.stderr);
    let bare = |line: &str| {
        line.trim_start_matches("overdrive: ").trim_start_matches("overdrive extend: ").to_owned()
    };
    let lines: Vec<String> = told.lines().map(bare).collect();
    match output.status.code() {
        Some(0) => Ok(lines.iter().map(|line| format!("{backing}: {line}")).collect()),
        Some(2) => refuse!("--backing {backing}: {}", lines.join("; ")),
        _ => bail!("--backing {backing}: a trial ended with {}: {}", output.status, lines.join("; ")),
    }
}
