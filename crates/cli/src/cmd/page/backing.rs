//! What is behind a set: the one place to add another. A backing has a name, says whether `--dram` limits it
//! and who keeps that limit, and starts the process that runs the workload.

use super::Plan;
use crate::cmd::extend::store::Store;
use crate::cmd::extend::try_out::{command, try_out};
use crate::exit::refuse;
use crate::flags::PageBacking;
use anyhow::Result;
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
                let mut command = command(program, plan.dram_bytes, &plan.store);
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
        if let Some(store) = Store::on_device(&plan.store)? {
            refuse!(
                "--store {}: a block device, which only `overdrive extend` takes; wanted a directory of a file \
                 system on it",
                store.place().display()
            );
        }
        try_out(command(program, plan.dram_bytes, &plan.store))
    }
}
