//! What is behind a set: the one place to add another. A backing has a name, says whether `--dram` limits it
//! and who keeps that limit, and starts the process that runs the workload.

use super::Plan;
use crate::cmd::extend::store::Store;
use crate::cmd::extend::try_out::{command, try_out};
use crate::exit::refuse;
use crate::flags::PageBacking;
use anyhow::Result;
use overdrive_base::size::format_size;
use std::path::Path;
use std::process::Command;

/// Who keeps a backing's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// Nobody: it has none.
    Nobody,
    /// A memory control group of ours.
    ControlGroup,
    /// `overdrive extend`, which starts the process.
    Launcher,
}

impl PageBacking {
    pub(crate) fn name(self) -> &'static str {
        match self {
            PageBacking::Dram => "dram",
            PageBacking::Swap => "swap",
            PageBacking::Extend => "extend",
            PageBacking::ExtendSwap => "extend-swap",
        }
    }

    pub(crate) fn keeper(self) -> Keeper {
        match self {
            PageBacking::Dram => Keeper::Nobody,
            PageBacking::Swap => Keeper::ControlGroup,
            PageBacking::Extend | PageBacking::ExtendSwap => Keeper::Launcher,
        }
    }

    pub(crate) fn has_budget(self) -> bool {
        self.keeper() != Keeper::Nobody
    }

    /// The backend of `overdrive extend`, where that starts the process.
    fn backend(self) -> Option<&'static str> {
        match self {
            PageBacking::Dram | PageBacking::Swap => None,
            PageBacking::Extend => Some("pager"),
            PageBacking::ExtendSwap => Some("swap"),
        }
    }

    /// Whether what does not fit the budget goes to swap, which then has to be there before.
    pub(crate) fn needs_swap(self) -> bool {
        self == PageBacking::Swap
    }

    /// The process that runs one cell: this program's hidden `page-worker`, told on its standard input.
    pub(crate) fn worker(self, program: &Path, plan: &Plan) -> Command {
        let Some(backend) = self.backend() else {
            let mut command = Command::new(program);
            command.arg("page-worker");
            return command;
        };
        let mut command = command(program, backend, plan.dram_bytes, &plan.store);
        command.arg("--quiet").arg("--").arg(program).arg("page-worker");
        command
    }

    /// Whether its processes can be started here; gives what is to be noted of how they run.
    pub(crate) fn try_out(self, program: &Path, plan: &Plan) -> Result<Vec<String>> {
        let Some(backend) = self.backend() else { return Ok(Vec::new()) };
        if let Some(store) = Store::on_device(&plan.store)? {
            refuse!(
                "--store {}: a block device, which only `overdrive extend` takes; wanted a directory of a file \
                 system on it",
                store.place().display()
            );
        }
        if self == PageBacking::ExtendSwap {
            let store = Store::check(&plan.store, plan.dram_bytes)?;
            let over = plan.set_bytes.saturating_sub(plan.dram_bytes);
            // A thirty-second part besides, as with swap that is there.
            if over > store.bytes - store.bytes / 32 {
                refuse!(
                    "--set {} does not fit the backing extend-swap: {} of DRAM and {} of store; wanted a smaller set \
                     or a larger --store PATH:SIZE",
                    format_size(plan.set_bytes),
                    format_size(plan.dram_bytes),
                    format_size(store.bytes)
                );
            }
        }
        try_out(self.name(), command(program, backend, plan.dram_bytes, &plan.store))
    }
}
