//! `overdrive page`: what a program feels when its memory is larger than DRAM.
//!
//! Each cell runs in a child process. For a budget the child is put into a memory control group before it
//! maps anything, so that this process and its memory stay outside.

mod backing;
mod cell;
mod limits;
pub(crate) mod pmbench;
mod show;
pub(crate) mod site;

use crate::exit::{Ending, Refused, refuse};
use crate::flags::{PageBacking, PageFlags, each_once, word};
use crate::leftovers::{self, Swept};
use crate::progress::Progress;
use crate::{assemble, interrupt, output};
use anyhow::Result;
use backing::Keeper;
use overdrive_base::size::format_size;
use overdrive_host::Root;
use overdrive_host::facts::HostFacts;
use overdrive_host::facts::numa::{Node, NumaFacts};
use overdrive_paging::lane::OwnCost;
use overdrive_paging::pattern::Pattern;
use overdrive_paging::spec::Spec;
use overdrive_report::record::{Paging, Status};
use overdrive_report::render;
use overdrive_sys::affinity::allowed_cpus;
use overdrive_sys::clock::Clock;
use site::Site;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) use cell::work as worker;
pub(crate) use cell::{Cell, NodePart};
pub(crate) use limits::Memory;
pub(crate) use site::SwapWish;

/// What all cells of a command share.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) set_bytes: u64,
    /// The budget of the backings that have one.
    pub(crate) dram_bytes: u64,
    pub(crate) backings: Vec<PageBacking>,
    pub(crate) specs: Vec<Spec>,
    pub(crate) repeats: usize,
    pub(crate) swap: Option<SwapWish>,
    /// Where the backings extend and extend-swap put cold pages: `PATH[:SIZE]`.
    pub(crate) store: OsString,
    pub(crate) cost: OwnCost,
    /// The memory nodes that sets are bound to; none: sets are where the kernel puts them.
    pub(crate) nodes: Vec<cell::Node>,
}

/// Runs the cells and prints them.
pub(crate) fn page(flags: &PageFlags) -> Result<Ending> {
    if let Some(words) = &flags.words {
        return pmbench::pmbench(words.words(), flags);
    }
    let stop = interrupt::watch_to_the_end()?;
    if flags.clean_stale {
        return leftovers::clean_stale(flags.json, Swept::default());
    }
    let (plan, swept) = plan(flags)?;
    let folder = flags.out.as_deref().map(output::result_folder).transpose()?;
    let start = Instant::now();
    let measured = measure(&plan, &swept, &stop, flags.json)?;
    if !measured.cells.is_empty() {
        let paging = assemble::paging(&plan, &measured.cells);
        let text = if flags.json {
            show::json(&plan, &measured.cells, &measured.notes)?
        } else {
            render::text::paging(&paging, &measured.notes, output::text_options())
        };
        output::print(&text)?;
        if let Some(folder) = folder {
            let status = measured.status(stop.load(Ordering::Relaxed));
            store(folder, paging, &measured.notes, status, flags.seed, start.elapsed())?;
        }
    }
    if let Some(failure) = measured.failure {
        return Err(failure);
    }
    Ok(if stop.load(Ordering::Relaxed) { Ending::Interrupted } else { Ending::Done })
}

/// Writes record and report.
fn store(
    folder: &Path,
    paging: Paging,
    notes: &[String],
    status: Status,
    seed: u64,
    took: Duration,
) -> Result<()> {
    let host = HostFacts::read(&Root::new("/"), Duration::from_millis(200));
    let record = assemble::paging_record(paging, &host, seed, notes, status, took);
    output::replace_file(&folder.join("record.json"), &record.to_json_pretty()?)?;
    output::replace_file(&folder.join("report.html"), &render::html::report(&record, None)?)?;
    output::say!("overdrive: record {}", folder.join("record.json").display());
    output::say!("overdrive: report {}", folder.join("report.html").display());
    Ok(())
}

/// The cells that were measured, and what ended them before their time.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) cells: Vec<Cell>,
    pub(crate) notes: Vec<String>,
    pub(crate) failure: Option<anyhow::Error>,
}

impl Measured {
    fn status(&self, is_stopped: bool) -> Status {
        match &self.failure {
            Some(failure) => Status::Failed { reason: format!("{failure:#}") },
            None if is_stopped => Status::Interrupted,
            None => Status::Complete,
        }
    }
}

/// Sets the site up, runs every cell, backings in turn, and takes the site down. What was swept is told of
/// once nothing is refused.
pub(crate) fn measure(plan: &Plan, swept: &Swept, stop: &AtomicBool, quiet: bool) -> Result<Measured> {
    limits::check(plan, &Memory::now()?)?;
    swept.tell();
    let mut site = Site::prepare(plan)?;
    let mut cells = Vec::new();
    let count = plan.repeats * plan.specs.len() * plan.backings.len();
    let length =
        plan.specs.iter().map(expected).sum::<Duration>() * (plan.repeats * plan.backings.len()) as u32;
    let mut progress = (!quiet).then(|| Progress::new(count, length));
    let ran = site.run_all(plan, stop, progress.as_mut(), &mut |cell: Cell| cells.push(cell));
    if let Some(progress) = &progress {
        progress.finish();
    }
    // Taken down first, whatever went wrong: nothing may be left behind.
    let down = site.take_down();
    Ok(Measured { cells, notes: site.notes, failure: ran.and(down).err() })
}

/// How long a cell will take, for the progress line: writing the set, warming up, measuring.
fn expected(spec: &Spec) -> Duration {
    let filling = Duration::from_secs_f64(spec.pages as f64 * 4096.0 / 1e9);
    let warming = Duration::from_millis(if spec.cold { 0 } else { spec.warmup_max_ms.min(1000) });
    filling + warming + Duration::from_millis(spec.runtime_ms)
}

/// What is to be done, and what was swept away to see whether it can be.
fn plan(flags: &PageFlags) -> Result<(Plan, Swept)> {
    let patterns: Vec<Pattern> = flags
        .pattern
        .iter()
        .map(|name| name.parse().map_err(|error| Refused(format!("{error}"))))
        .collect::<Result<_, Refused>>()?;
    each_once("--backing", flags.backing.iter().map(word))?;
    each_once("--threads", flags.threads.iter().map(usize::to_string))?;
    each_once("--read-ratio", flags.read_ratio.iter().map(u8::to_string))?;
    each_once("--pattern", patterns.iter().map(Pattern::to_string))?;
    let is_limited = flags.backing.iter().any(|backing| backing.has_budget());
    if flags.dram.is_some() && !is_limited {
        refuse!(
            "--dram limits the backing swap, which is not measured: wanted --backing dram,swap, or no --dram"
        );
    }
    if flags.swap.is_some() && !flags.backing.iter().any(|backing| backing.needs_swap()) {
        refuse!("--swap is for the backing swap, which is not measured: wanted --backing dram,swap");
    }
    if flags.repeat == 0 {
        refuse!("--repeat 0: wanted at least 1");
    }
    let swept = sweep_for(&flags.backing)?;
    let set_bytes = flags.set / 4096 * 4096;
    let clock = Clock::calibrate(Duration::from_millis(50));
    let cost = OwnCost::measure(&clock)?;
    let mut specs = Vec::new();
    for &pattern in &patterns {
        for &read_ratio_percent in &flags.read_ratio {
            for &threads in &flags.threads {
                let spec = Spec {
                    pages: set_bytes / 4096,
                    threads,
                    pattern,
                    read_ratio_percent,
                    write_needs_read: flags.write_needs_read,
                    compressible_percent: flags.compressible,
                    offset: flags.offset,
                    cold: flags.cold,
                    warmup_max_ms: flags.warmup_max.as_millis() as u64,
                    runtime_ms: flags.runtime.as_millis() as u64,
                    delay_ns: flags.delay.as_nanos() as u64,
                    seed: flags.seed,
                    timing_cost_ns: cost.timing_ns,
                };
                spec.check().map_err(|error| Refused(error.to_string()))?;
                specs.push(spec);
            }
        }
    }
    let plan = Plan {
        set_bytes,
        dram_bytes: flags.dram.unwrap_or(set_bytes / 2) / 4096 * 4096,
        backings: flags.backing.clone(),
        specs,
        repeats: flags.repeat,
        swap: flags.swap.as_deref().map(|text| SwapWish::parse(text, set_bytes)).transpose()?,
        store: store_wish(flags),
        cost,
        nodes: if flags.numa { nodes()? } else { Vec::new() },
    };
    Ok((plan, swept))
}

/// Before room and memory are looked at: what a killed run left takes both.
fn sweep_for(backings: &[PageBacking]) -> Result<Swept> {
    let has_group = backings.iter().any(|backing| backing.keeper() == Keeper::ControlGroup);
    if has_group { leftovers::sweep_before_run() } else { Ok(Swept::default()) }
}

/// The memory nodes that have CPUs this process may use.
fn nodes() -> Result<Vec<cell::Node>> {
    let host = NumaFacts::read(&Root::new("/"));
    let allowed = allowed_cpus()?;
    let node = |node: &Node| {
        let cpus: Vec<usize> = node.cpus.value()?.iter().map(|cpu| cpu as usize).collect();
        let cpus: Vec<usize> = cpus.into_iter().filter(|cpu| allowed.contains(cpu)).collect();
        (!cpus.is_empty()).then_some(cell::Node { id: node.id, cpus })
    };
    let nodes: Vec<cell::Node> = host.nodes.value().into_iter().flatten().filter_map(node).collect();
    if nodes.is_empty() {
        refuse!("--numa: {} lists no memory node with CPUs this process may use", host.nodes.path());
    }
    Ok(nodes)
}

/// The store for extended memory: as given, or where the swap file goes, so that both use one disk.
fn store_wish(flags: &PageFlags) -> OsString {
    let beside = || {
        let swap = flags.swap.as_deref()?;
        Some(OsString::from(swap.rsplit_once(':').map_or(swap, |(folder, _)| folder)))
    };
    flags.store.clone().or_else(beside).unwrap_or_else(|| OsString::from("."))
}

/// What counts against the budget, in one sentence.
pub(crate) fn budget_note(plan: &Plan) -> String {
    format!(
        "budget {} for the child process that runs the workload: its set, page tables, stacks and histograms count \
         (about 1/512 of the set and 0.3 MiB a thread besides the set); this process and the program's text do not",
        format_size(plan.dram_bytes)
    )
}
