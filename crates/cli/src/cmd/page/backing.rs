//! What is behind a set: the one place to add another. A backing has a name, says whether `--dram` limits it
//! and who keeps that limit, and starts the process that runs the workload.

use super::Plan;
use crate::exit::refuse;
use crate::flags::PageBacking;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// Who keeps a backing's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// Nobody: it has none.
    Nobody,
    /// A memory control group of ours.
    ControlGroup,
    /// Overdrive's own pager, in the process.
    Pager,
}

impl PageBacking {
    pub(crate) fn name(self) -> &'static str {
        match self {
            PageBacking::Dram => "dram",
            PageBacking::Swap => "swap",
            PageBacking::Extend => "extend",
        }
    }

    pub(crate) fn keeper(self) -> Keeper {
        match self {
            PageBacking::Dram => Keeper::Nobody,
            PageBacking::Swap => Keeper::ControlGroup,
            PageBacking::Extend => Keeper::Pager,
        }
    }

    pub(crate) fn has_budget(self) -> bool {
        self.keeper() != Keeper::Nobody
    }

    /// Whether what does not fit the budget goes to swap, which then has to be there.
    pub(crate) fn needs_swap(self) -> bool {
        self == PageBacking::Swap
    }

    /// The process that runs one cell: this program's hidden `page-worker`, told on its standard input.
    pub(crate) fn worker(self, program: &Path, plan: &Plan) -> Command {
        match self {
            PageBacking::Dram | PageBacking::Swap => {
                let mut command = Command::new(program);
                command.arg("page-worker");
                command
            }
            PageBacking::Extend => {
                let mut command = extend(program, plan);
                command.arg("--quiet").arg("--").arg(program).arg("page-worker");
                command
            }
        }
    }

    /// Whether its processes can be started here; gives what is to be noted of how they run.
    pub(crate) fn try_out(self, program: &Path, plan: &Plan) -> Result<Vec<String>> {
        if self != PageBacking::Extend {
            return Ok(Vec::new());
        }
        let output =
            extend(program, plan).args(["--", "true"]).output().context("trying the backing extend")?;
        let told = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<String> = told
            .lines()
            .map(|line| {
                line.trim_start_matches("overdrive: ").trim_start_matches("overdrive extend: ").to_owned()
            })
            .collect();
        match output.status.code() {
            Some(0) => Ok(lines.iter().map(|line| format!("extend: {line}")).collect()),
            Some(2) => refuse!("--backing extend: {}", lines.join("; ")),
            _ => bail!("--backing extend: a trial ended with {}: {}", output.status, lines.join("; ")),
        }
    }
}

/// `overdrive extend` as far as the program it is to run.
fn extend(program: &Path, plan: &Plan) -> Command {
    let mut command = Command::new(program);
    command.args(["extend", "--backend", "pager", "--dram", &plan.dram_bytes.to_string(), "--store"]);
    command.arg(&plan.store);
    command
}
