//! Refusals before anything is created: what does not fit is said in one line.

use super::Plan;
use crate::exit::refuse;
use crate::flags::PageBacking;
use anyhow::{Context, Result};
use overdrive_base::size::format_size;
use overdrive_host::facts::parse::field_kib;

/// What the machine has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) total_bytes: u64,
    pub(crate) available_bytes: u64,
    pub(crate) swap_free_bytes: u64,
}

impl Memory {
    pub(crate) fn now() -> Result<Self> {
        let text = std::fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
        let bytes = |key| field_kib(&text, key).ok();
        Ok(Self {
            total_bytes: bytes("MemTotal").context("/proc/meminfo has no MemTotal")?,
            available_bytes: bytes("MemAvailable").context("/proc/meminfo has no MemAvailable")?,
            swap_free_bytes: bytes("SwapFree").unwrap_or(0),
        })
    }
}

/// Below this a budget cannot hold the child itself.
const BUDGET_MIN: u64 = 8 << 20;

/// What a thread may need at one moment besides: the 32 pages it has set aside for writing, the pages its
/// fault reads ahead, its stack. With less, a group can be full of pages that are all being read or written,
/// and the kernel then takes the OOM killer although swap is free (seen with 16 threads in 8 MiB).
const THREAD_BYTES: u64 = 1 << 20;

/// The least budget for so many threads.
fn budget_min(threads: usize) -> u64 {
    BUDGET_MIN.max(BUDGET_MIN / 2 + THREAD_BYTES * threads as u64)
}

pub(crate) fn check(plan: &Plan, memory: &Memory) -> Result<()> {
    let set = format_size(plan.set_bytes);
    if plan.backings.contains(&PageBacking::Dram) && plan.set_bytes > memory.available_bytes {
        refuse!(
            "--set {set} does not fit the backing dram: {} of memory is available; wanted a smaller set",
            format_size(memory.available_bytes)
        );
    }
    if !plan.backings.iter().any(|backing| backing.has_budget()) {
        return Ok(());
    }
    let budget = format_size(plan.dram_bytes);
    if plan.dram_bytes > memory.total_bytes {
        refuse!(
            "--dram {budget} is larger than this machine's memory ({}): such a budget limits nothing",
            format_size(memory.total_bytes)
        );
    }
    let threads = plan.specs.iter().map(|spec| spec.threads).max().unwrap_or(1);
    let least = budget_min(threads);
    if plan.dram_bytes < least {
        refuse!(
            "--dram {budget} with {threads} thread{}: wanted at least {}, or what they read and write at once fills it \
             and the OOM killer ends the run",
            if threads == 1 { "" } else { "s" },
            format_size(least)
        );
    }
    if plan.dram_bytes > memory.available_bytes {
        refuse!(
            "--dram {budget}: only {} of memory is available; wanted a smaller budget",
            format_size(memory.available_bytes)
        );
    }
    if !plan.backings.iter().any(|backing| backing.needs_swap()) {
        return Ok(());
    }
    let over = plan.set_bytes.saturating_sub(plan.dram_bytes);
    let swap = plan.swap.as_ref().map_or(memory.swap_free_bytes, |wish| wish.bytes);
    if over > 0 && swap == 0 {
        refuse!(
            "--set {set} is above --dram {budget} and no swap is on: the OOM killer would end the run; \
             wanted --swap DIR[:SIZE], swap that is on, or a smaller set"
        );
    }
    // A thirty-second part besides: page tables, and pages in both places.
    if over > swap - swap / 32 {
        refuse!(
            "--set {set} does not fit the backing swap: {budget} of DRAM and {} of swap; wanted a smaller set or more",
            format_size(swap)
        );
    }
    Ok(())
}
