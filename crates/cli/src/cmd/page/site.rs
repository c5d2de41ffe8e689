//! Where cells run: the swap file and the control group of a command, set up once and taken down whatever
//! happens.

use super::backing::Keeper;
use super::cell::{self, Cell, NodePart};
use super::{Plan, show};
use crate::exit::{Refused, refuse};
use crate::flags::PageBacking;
use crate::progress::Progress;
use anyhow::{Context, Result};
use overdrive_base::size::{format_size, parse_size};
use overdrive_base::time::three_digits;
use overdrive_paging::outcome::Outcome;
use overdrive_paging::spec::Spec;
use overdrive_sys::memory_group::zswap::{OVER, Share, UNKNOWN, ZswapFollower};
use overdrive_sys::memory_group::{MemoryGroup, Place};
use overdrive_sys::swap::{self, Discard, Manner, PRIORITY_MAX, SwapFile};
use overdrive_sys::vm_counters::VmCounters;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often a cell is begun at most.
const TRIES: u32 = 4;

/// Where a swap file is to be made, and how large.
#[derive(Debug, Clone)]
pub(crate) struct SwapWish {
    pub(crate) folder: PathBuf,
    pub(crate) bytes: u64,
}

impl SwapWish {
    /// `DIR` or `DIR:SIZE`; without a size it holds the whole set.
    pub(crate) fn parse(text: &str, set_bytes: u64) -> Result<Self> {
        let (folder, size) = match text.rsplit_once(':') {
            Some((folder, size)) => (folder, Some(size)),
            None => (text, None),
        };
        let bytes = match size {
            Some(size) => parse_size(size).map_err(|error| Refused(format!("--swap {text}: {error}")))?,
            None => set_bytes + set_bytes / 16 + (1 << 20),
        };
        let folder = PathBuf::from(folder);
        if !folder.is_dir() {
            refuse!(
                "--swap {}: wanted a directory in which a swap file is made for the run",
                folder.display()
            );
        }
        let disk = overdrive_sys::volume::file_system(std::fs::File::open(&folder)?)?;
        let most = disk.free_bytes.saturating_sub(disk.total_bytes / 10);
        if bytes > most {
            refuse!(
                "--swap {}: no room for {}; at most {} there, a tenth of the file system stays free",
                folder.display(),
                format_size(bytes),
                format_size(most)
            );
        }
        Ok(Self { folder, bytes })
    }

    /// Makes the file and turns it on.
    pub(crate) fn make(&self) -> Result<SwapFile> {
        // As the kernel does it by itself: it is what others are compared with. Before all other areas but
        // that of a backend swap that is measured beside it, which would get every second page here.
        let manner = Manner { priority: Some(PRIORITY_MAX - 1), discard: Discard::Never };
        SwapFile::create(&self.folder, self.bytes, manner).map_err(|error| {
            let (folder, wanted) = (self.folder.display(), swap::wanted(&error));
            Refused(format!("--swap {folder}: no swap file there ({error}); wanted {wanted}")).into()
        })
    }
}

/// What stands while cells run.
#[derive(Debug)]
pub(crate) struct Site {
    swap: Option<SwapFile>,
    group: Option<MemoryGroup>,
    zswap: Arc<ZswapSeen>,
    pub(crate) notes: Vec<String>,
}

/// What was seen of zswap beside the group; nothing where the kernel charges it to the group.
#[derive(Debug, Default)]
struct ZswapSeen {
    max_bytes: AtomicU64,
    was_over: AtomicBool,
    is_unknown: AtomicBool,
}

impl ZswapSeen {
    fn see(&self, share: &Share) {
        self.max_bytes.fetch_max(share.zswap_bytes.unwrap_or(0), Ordering::Relaxed);
        self.was_over.fetch_or(share.is_over, Ordering::Relaxed);
        self.is_unknown.fetch_or(share.zswap_bytes.is_none(), Ordering::Relaxed);
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let most = self.max_bytes.load(Ordering::Relaxed);
        if most > 0 {
            notes.push(format!(
                "zswap held up to {} of the set in DRAM; the limit was lower than the budget by as much",
                format_size(most)
            ));
        }
        if self.was_over.load(Ordering::Relaxed) {
            notes.push(format!("{OVER}; the backing swap had more DRAM than the budget"));
        }
        if self.is_unknown.load(Ordering::Relaxed) {
            notes.push(format!("{UNKNOWN}; the backing swap had as much more DRAM than the budget"));
        }
        notes
    }
}

impl Site {
    /// Makes what the plan needs; what was made is gone again when a later step fails.
    pub(crate) fn prepare(plan: &Plan) -> Result<Self> {
        let mut site = Self { swap: None, group: None, zswap: Arc::default(), notes: Vec::new() };
        let program = std::env::current_exe().context("finding this program")?;
        for backing in &plan.backings {
            site.notes.extend(backing.try_out(&program, plan)?);
        }
        if plan.backings.iter().all(|backing| backing.keeper() != Keeper::ControlGroup) {
            return Ok(site);
        }
        let place = Place::find().map_err(|error| Refused(format!("--backing swap: {error}")))?;
        let over = plan.set_bytes.saturating_sub(plan.dram_bytes);
        place.check_swap(plan.dram_bytes, over).map_err(|why| Refused(format!("--backing swap: {why}")))?;
        if let Some(wish) = &plan.swap {
            site.swap = Some(wish.make()?);
            site.notes.push(format!("swap file of {} in {}", format_size(wish.bytes), wish.folder.display()));
        }
        site.group = Some(MemoryGroup::create(&place, plan.dram_bytes)?);
        site.notes.push(super::budget_note(plan));
        Ok(site)
    }

    /// Every repeat of every cell, the backings of a cell one after the other, so that drift meets all alike.
    /// A cell whose process fails is tried once more, and a note says so. One that fails again (the kernel's
    /// OOM killer took it) does not keep the others from being measured.
    pub(crate) fn run_all(
        &mut self,
        plan: &Plan,
        stop: &AtomicBool,
        mut progress: Option<&mut Progress>,
        done: &mut dyn FnMut(Cell),
    ) -> Result<()> {
        let mut failure = Ok(());
        for repeat in 0..plan.repeats {
            for (spec, index) in
                plan.specs.iter().flat_map(|spec| (0..plan.backings.len()).map(move |i| (spec, i)))
            {
                if stop.load(Ordering::Relaxed) {
                    return failure;
                }
                // The order turns with each repeat: none is always the one that meets the warmer machine.
                let backing = plan.backings[(index + repeat) % plan.backings.len()];
                if let Some(progress) = &mut progress {
                    progress.begin(&show::name(backing, spec), super::expected(spec));
                }
                match self.run_again(plan, backing, spec, stop, progress.as_deref()) {
                    Ok((outcome, nodes)) if outcome.pages_per_s() > 0.0 => {
                        let cell = Cell { backing, spec: spec.clone(), repeat, outcome, nodes };
                        progress.iter().for_each(|progress| progress.end(&show::result(&cell)));
                        done(cell);
                    }
                    Ok(_) => {}
                    Err(error) => {
                        progress.iter().for_each(|progress| progress.end("failed"));
                        failure = failure.and(Err(error.context(show::name(backing, spec))));
                    }
                }
            }
        }
        failure
    }

    /// Under a plain limit the kernel kills now and then for want of memory while swap is free
    /// (docs/memory.md): the cell is measured again, and how often that took is said.
    fn run_again(
        &mut self,
        plan: &Plan,
        backing: PageBacking,
        spec: &Spec,
        stop: &AtomicBool,
        progress: Option<&Progress>,
    ) -> Result<(Outcome, Vec<NodePart>)> {
        let figures = Figures::new(backing);
        let tick = |elapsed: Duration| {
            progress.iter().for_each(|progress| progress.tick(elapsed, &figures.now()));
        };
        let mut number = 1;
        loop {
            let group = self.group.as_ref().filter(|_| backing.keeper() == Keeper::ControlGroup);
            let seen = Arc::clone(&self.zswap);
            let set = Some(plan.set_bytes);
            let follow = |group| ZswapFollower::start(&[group], set, move |_, share| seen.see(share));
            let follower = group.map(follow).transpose()?;
            let ran = cell::run(plan, backing, spec, group, stop, &tick);
            drop(follower);
            if ran.is_ok() && number > 1 {
                self.notes.push(format!(
                    "{} was measured in try {number}: the process was killed or failed before",
                    show::name(backing, spec)
                ));
            }
            if ran.is_ok() || number == TRIES || stop.load(Ordering::Relaxed) {
                return ran;
            }
            number += 1;
        }
    }

    /// Takes everything down and says what would not go.
    pub(crate) fn take_down(&mut self) -> Result<()> {
        self.notes.extend(self.zswap.notes());
        let group = self.group.take().map_or(Ok(()), MemoryGroup::remove);
        let swap = self.swap.take().map(|file| {
            let path = file.path().to_path_buf();
            file.remove().with_context(|| left_behind(&path))
        });
        swap.unwrap_or(Ok(()))?;
        Ok(group?)
    }
}

/// The kernel's rate of swap-ins, looked at a few times a second: the workload itself says nothing until it
/// ends.
struct Figures {
    is_paged: bool,
    last: std::cell::Cell<(Instant, u64)>,
    shown: RefCell<String>,
}

impl Figures {
    const EVERY: Duration = Duration::from_millis(500);

    fn new(backing: PageBacking) -> Self {
        let last = (Instant::now(), VmCounters::read().swap_ins.unwrap_or(0));
        Self { is_paged: backing.needs_swap(), last: std::cell::Cell::new(last), shown: RefCell::default() }
    }

    fn now(&self) -> String {
        let (then, before) = self.last.get();
        if self.is_paged && then.elapsed() >= Self::EVERY {
            let ins = VmCounters::read().swap_ins.unwrap_or(before);
            let rate = ins.saturating_sub(before) as f64 / then.elapsed().as_secs_f64();
            self.last.set((Instant::now(), ins));
            self.shown.replace(format!("{} swap-ins/s", three_digits(rate)));
        }
        self.shown.borrow().clone()
    }
}

fn left_behind(path: &Path) -> String {
    format!("cannot turn off and remove the swap file {}", path.display())
}
