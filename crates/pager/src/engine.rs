//! The thread that serves a program's page faults: reads messages, performs what the bookkeeping decides.

use crate::allowance::Allowance;
use crate::numbers::Numbers;
use crate::platform::{Done, Frames, Instant, Mappings, PageIo, PageMap, Userfault, UserfaultError};
use crate::pool::{Compress, Pool};
use crate::queues::Queues;
use crate::ration::Ration;
use crate::seal::Seal;
use crate::slots::Slots;
use crate::space::{BLOCK_PAGES, Space};
use crate::staging::Staging;
use crate::stats::{Stat, Stats};
use crate::table::Table;
use changes::Followed;
use landing::{FreeLanding, LANDING_PAGES, NARROW_SLOTS};
use overdrive_base::size::{MIB, format_size};
use overdrive_hist::Histogram;
use overdrive_sys::Errno;
use overdrive_sys::parts::Parts;
use overdrive_sys::uffd::{Forks, PAGE};
use setup::{failed, open_memory, staging_for, store_for};
use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thiserror::Error;

mod accesses;
mod again;
mod agent;
mod ahead;
mod at_fork;
mod brought;
mod changes;
mod child;
mod child_fault;
mod clean;
mod compress;
mod evict;
mod fault;
mod forget;
mod gone;
mod growth;
mod helpers;
mod hints;
mod history;
mod landing;
mod lend;
mod load;
mod message;
#[cfg(test)]
mod model;
mod notice;
mod rest;
mod search;
mod setup;
mod store_faults;
mod strides;
mod takeover;
mod threads;
mod tier;
mod walks;
mod write;
mod zeroes;

pub use agent::Agent;
pub use at_fork::AtFork;
#[cfg(test)]
pub(crate) use helpers::HELPERS;
pub use hints::Hints;
pub use notice::{Notice, ReadFailure, in_plain_words, is_much_beside};
pub use store_faults::StoreFaults;

/// Below this a day has too few writes for anything.
pub const WRITES_PER_DAY_MIN: u64 = 1 << 30;

/// Writes at a time: enough to keep the drive busy, few enough to leave it to the reads. There may be one
/// more of what children have.
const WRITES: u32 = 2;
/// Blocks there are entries for from the start; for more, tables grow.
const FIRST_BLOCKS: u32 = if cfg!(test) { 1 } else { 1024 };
/// The longest sleep: what is due without a message is looked at this often.
const TICK: Duration = Duration::from_millis(5);
/// How often the times of faults are told.
const PUBLISHED_EVERY: Duration = Duration::from_secs(1);
/// Frames given back in one go: the price of telling the other CPUs is paid once.
const RELEASE_GROUPS: u32 = 8;

/// What an engine is given.
#[derive(Debug)]
pub struct Config {
    /// DRAM for pages in place, in staging and in landing slots.
    pub budget_bytes: u64,
    /// The store: a file opened for direct I/O, nobody else's.
    pub store: File,
    /// When the store is a device that others use too: the parts of it that are to be had. Offsets of the
    /// store are then those of this engine's own stretch.
    pub parts: Option<Parts>,
    /// Whether children get the memory: what is taken over of a program they do, and regions that are left
    /// out of them they do not.
    pub forks: Forks,
    /// By which faults are handed over so, and where the process's pages are, for one that could not open
    /// them itself.
    pub opened: Option<(Userfault, PageMap)>,
    /// How much of it may be used.
    pub store_bytes: u64,
    /// The most memory that can be under the pager.
    pub managed_bytes_max: u64,
    /// Makes marks of contents this run's own.
    pub seed: u64,
    /// Spin this long for messages and completions before sleeping.
    pub spin: Duration,
    /// Where to count.
    pub stats: Stats,
    /// Whether evicted pages are kept compressed in DRAM before they go to the store.
    pub compress: Compress,
    /// Encrypts what is written to the store.
    pub seal: Option<Seal>,
    /// Makes the store fail on purpose, to show what happens then.
    pub store_faults: Option<StoreFaults>,
    /// The most that is written to the store in any 24 hours; what needs more waits. Programs stand still
    /// with less than [`WRITES_PER_DAY_MIN`].
    pub writes_per_day_bytes: Option<u64>,
    /// Where threads that fork, and their children, look what the engine does.
    pub at_fork: Option<&'static AtFork>,
    /// Is told what whoever runs the program should hear of. Called by the thread that serves faults: it must
    /// not wait for anything.
    pub notify: Option<fn(&Notice)>,
}

/// Why there is no engine.
#[derive(Debug, Error)]
pub enum EngineError {
    /// Faults cannot be had.
    #[error(transparent)]
    Userfault(#[from] UserfaultError),
    /// The kernel has no way to take a page away atomically.
    #[error("this kernel cannot move pages (UFFDIO_MOVE, Linux 6.8 or newer, is wanted)")]
    NoMove,
    /// Not enough of something.
    #[error("{what} is {given_bytes} bytes, at least {wanted_bytes} are wanted")]
    TooSmall {
        /// Of what.
        what: &'static str,
        /// As given.
        given_bytes: u64,
        /// As wanted.
        wanted_bytes: u64,
    },
    /// The process is too large for its budget before the program begins.
    #[error(
        "the budget of {} cannot be held: {} are taken before the program starts; wanted --dram of at least {}",
        format_size(*budget_bytes), format_size(held_bytes.next_multiple_of(MIB)), format_size(*wanted_bytes)
    )]
    HeldAtStart {
        /// As given.
        budget_bytes: u64,
        /// What is held already.
        held_bytes: u64,
        /// What would do.
        wanted_bytes: u64,
    },
    /// A system call failed.
    #[error("{step}: {errno}")]
    System {
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
}

/// For each so many reads under way at a time, one thread is served between two looks at new faults.
const READS_FOR_ONE: usize = 8;
/// The most threads served between two looks.
const SERVED_MOST: usize = 4;

/// How DRAM is divided, in pages.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// All that was given.
    budget: u64,
    /// In place and in staging together.
    total: u64,
    /// What staging may hold once it is safe on the store: the second chance of evicted pages.
    soft: u64,
    /// Kept free, so that no load waits for memory.
    reserve: u64,
    /// What compressed pages may take.
    compressed: u64,
}

impl Limits {
    /// Below this an engine makes no sense: its own tables and buffers take a few MiB.
    const MIN_PAGES: u64 = 4096;
    /// What is always left to pages that go in and out, whatever else is held.
    const LEAST: u64 = Self::MIN_PAGES / 4;

    fn new(budget_bytes: u64) -> Result<Self, EngineError> {
        let landing = u64::from(NARROW_SLOTS);
        // Pages have numbers of 32 bits.
        let budget = (budget_bytes / PAGE).min(u64::from(u32::MAX));
        if budget < Self::MIN_PAGES + landing {
            let wanted_bytes = (Self::MIN_PAGES + landing) * PAGE;
            return Err(EngineError::TooSmall {
                what: "the budget",
                given_bytes: budget_bytes,
                wanted_bytes,
            });
        }
        Ok(Self::divide(budget, landing))
    }

    /// Divides `budget` when `others` pages of it are taken by what cannot be evicted.
    fn divide(budget: u64, others: u64) -> Self {
        let total = budget.saturating_sub(others).max(Self::LEAST);
        Self {
            budget,
            total,
            soft: (total / 128).clamp(256, 8192),
            reserve: (total / 128).clamp(128, 2048),
            compressed: total / 8 * 5,
        }
    }
}

/// What a read was begun for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Purpose {
    /// Somebody waits.
    Demand,
    /// Somebody will.
    Ahead,
    /// Somebody will, if pages are wanted in the order of the time before.
    Again,
    /// Its segment is emptied: the page is written elsewhere.
    Cleaning,
}

impl Purpose {
    fn is_ahead(self) -> bool {
        matches!(self, Self::Ahead | Self::Again)
    }
}

/// One read in flight or landed.
#[derive(Debug, Clone)]
struct Load {
    pages: Range<u32>,
    /// Somebody waits for it.
    wanted: bool,
    /// And that for this very page, so that there is no guard where it goes.
    asked: bool,
    purpose: Purpose,
    landed: bool,
    /// How often it was read in vain.
    tries: u8,
    /// The child it is for, by its number.
    child: Option<u32>,
    started: Instant,
}

/// One write in flight: the frames and the first slot.
#[derive(Debug, Default)]
struct Run {
    frames: Vec<u32>,
    slot: u32,
}

/// The pager of one process.
#[derive(Debug)]
pub struct Engine {
    userfault: Userfault,
    page_map: PageMap,
    mappings: Mappings,
    frames: Frames,
    io: PageIo,
    space: Space,
    table: Table,
    queues: Queues,
    slots: Slots,
    staging: Staging,
    pool: Pool,
    tier: tier::Tier,
    limits: Limits,
    ration: Ration,
    seal: Option<Seal>,
    store_faults: Option<StoreFaults>,
    notices: notice::Notices,
    at_fork: Option<&'static AtFork>,
    allowance: Option<Allowance>,
    /// Something is to be written and the day's share is used up.
    paced: bool,
    seed: u64,
    zero_mark: u64,
    spin: rest::Spin,
    free_landing: FreeLanding,
    loads: Vec<Option<Load>>,
    landed: VecDeque<u32>,
    /// Pages that wait for a landing slot or for memory.
    waiting: VecDeque<u32>,
    /// Faults to look at again: the kernel wanted an event to be read first, or the address is not known yet.
    parked: Vec<(u64, bool)>,
    /// Frames whose page is to be compressed when their turn comes to go, oldest first.
    soft: VecDeque<u32>,
    /// Frames whose page must be written, oldest first.
    dirty: VecDeque<u32>,
    runs: Vec<Run>,
    free_runs: Vec<u32>,
    walks: walks::Walks,
    /// Blocks that came, in part, ahead of a walk.
    walked: Numbers,
    zeroes: zeroes::Zeroes,
    history: history::History,
    idle: Option<rest::Idle>,
    changes: changes::Changes,
    accesses: accesses::Accesses,
    takeover: Option<takeover::Takeover>,
    agent: Option<agent::Errands>,
    kept_words: threads::KeptWords,
    hints: Option<Arc<Hints>>,
    children: Vec<child::Child>,
    helping: helpers::Helping,
    parting: gone::Parting,
    /// Blocks into which pages were put last, and when.
    fresh: VecDeque<(u32, Instant)>,
    leaving: Option<evict::Leaving>,
    cleaning: clean::Cleaning,
    unmovable: evict::Unmovable,
    /// The store refused a write: the next one is tried then.
    write_again: Option<Instant>,
    /// Because its file system has no room, or its device.
    no_space: bool,
    /// Blocks of which pages were given up lately.
    giving_up: message::GivenUp,
    /// The last child's number; the parent is 0.
    last_child: u32,
    /// Nothing could be evicted, written or given back in the last round.
    stuck: bool,
    /// From reading the message to having the page in place, in nanoseconds, since `published`.
    service: Histogram,
    published: Instant,
    stats: Arc<Stats>,
}

impl Engine {
    /// An engine with nothing under it yet.
    ///
    /// # Errors
    /// [`EngineError`] says what is missing.
    pub fn new(config: Config) -> Result<Self, EngineError> {
        let limits = Limits::new(config.budget_bytes)?;
        config.stats.set(Stat::BudgetBytes, config.budget_bytes);
        let (userfault, page_map, mappings) = open_memory(config.opened, config.forks)?;
        let (io, slots) = store_for(config.store, config.parts, config.store_bytes, config.seal.is_some())?;
        let pool = Pool::new(limits.budget, config.compress).map_err(failed("compressed tier"))?;
        // Nothing may fail after this: the unmapping of what is registered waits for who reads the messages.
        let (staging, frames) = staging_for(&limits, &userfault)?;
        Ok(Self {
            page_map,
            mappings,
            space: Space::of_bytes(config.managed_bytes_max),
            table: Table::new(FIRST_BLOCKS * BLOCK_PAGES),
            queues: Queues::new(FIRST_BLOCKS),
            slots,
            staging,
            pool,
            zero_mark: crate::table::mark_of(&[0; PAGE as usize], config.seed),
            seal: config.seal,
            store_faults: config.store_faults,
            notices: notice::Notices::new(config.notify),
            at_fork: config.at_fork,
            allowance: config.writes_per_day_bytes.map(|bytes| Allowance::new(bytes / PAGE, Instant::now())),
            paced: false,
            seed: config.seed,
            spin: rest::Spin::new(config.spin),
            tier: tier::Tier::new(config.compress.takes_all()),
            limits,
            ration: Ration::default(),
            free_landing: FreeLanding::closed(),
            loads: vec![None; LANDING_PAGES as usize],
            landed: VecDeque::new(),
            waiting: VecDeque::new(),
            parked: Vec::new(),
            soft: VecDeque::new(),
            dirty: VecDeque::new(),
            runs: (0..WRITES).map(|_| Run::default()).collect(),
            free_runs: (0..WRITES).collect(),
            walks: walks::Walks::none(),
            walked: Numbers::default(),
            zeroes: zeroes::Zeroes::default(),
            history: history::History::new(FIRST_BLOCKS * BLOCK_PAGES),
            idle: None,
            changes: changes::Changes::default(),
            accesses: accesses::Accesses::new(userfault.offers().writes_pass),
            takeover: None,
            agent: None,
            kept_words: threads::KeptWords::none(),
            hints: None,
            children: Vec::new(),
            helping: helpers::Helping::default(),
            parting: gone::Parting::default(),
            fresh: VecDeque::with_capacity(evict::FRESH_BLOCKS),
            leaving: None,
            unmovable: evict::Unmovable::default(),
            write_again: None,
            cleaning: clean::Cleaning::default(),
            no_space: false,
            giving_up: message::GivenUp::default(),
            last_child: 0,
            stuck: false,
            service: Histogram::new(),
            published: Instant::now(),
            stats: Arc::new(config.stats),
            userfault,
            frames,
            io,
        })
    }

    /// What the kernel does on the engine's behalf runs on these processors. To be said before the first
    /// turn.
    pub fn keep_workers_to(&mut self, cpus: &[usize]) {
        self.io.keep_workers_to(cpus);
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }

    /// Serves faults until `stop` is set.
    ///
    /// # Errors
    /// What the ring or the userfaultfd failed with: the program must not go on then.
    pub fn serve(&mut self, stop: &AtomicBool) -> Result<(), Errno> {
        while !stop.load(Ordering::Relaxed) {
            self.turn()?;
        }
        Ok(())
    }

    /// One round: messages, completions, room, and a sleep if there is nothing left to do. Room is made when
    /// there is nothing else to do, as long as enough of it is left: then the program's threads wait for the
    /// drive, and no processor that runs one of them has to be interrupted for each run of pages that goes.
    ///
    /// # Errors
    /// As [`Engine::serve`].
    pub fn turn(&mut self) -> Result<(), Errno> {
        if self.store_faults.as_ref().is_some_and(StoreFaults::is_over) {
            return Err(Errno::NODEV);
        }
        let began = Instant::now();
        // Before new faults, or who waits could do so for ever beside threads that are served and come again.
        self.start_waiting();
        let mut busy = self.read_messages()?;
        busy |= self.serve_children()?;
        self.retry_parked();
        self.look_around();
        self.open_landing();
        self.look_at_given_up()?;
        self.look_at_threads();
        let reading = Instant::now();
        self.io.submit(None)?;
        busy |= self.reap();
        if busy {
            self.tier.note_reading(reading.elapsed());
        }
        busy |= self.place_along();
        let is_short = self.is_short();
        // A thread that was woken on this processor goes first.
        let others_had_their_turn = self.idle.is_some() || self.spin.is_none();
        // A child that is to be lent memory may keep the engine busy all the time.
        let lends = self.helping.lending.wants_room();
        if is_short || lends || (!busy && others_had_their_turn) {
            busy |= self.make_room(is_short)? || self.look_for_accesses();
        }
        busy |= !self.parked.is_empty() && !self.changes.untold;
        if busy {
            self.end_rest(began);
        } else {
            self.rest()?;
        }
        self.publish();
        Ok(())
    }

    /// Takes note of what is over, until enough threads were served: what is left is there in the next turn.
    /// True when there was something.
    fn reap(&mut self) -> bool {
        let (mut any, mut served) = (false, 0);
        let most = self.served_at_once();
        while served < most
            && let Some(done) = self.io.next_done()
        {
            any = true;
            match done {
                // Read in each turn.
                Done::Messages(0) => {}
                Done::Messages(helpers::CALLERS) => {
                    self.helping.reception.iter_mut().for_each(|reception| reception.due = true);
                }
                Done::Messages(child) => self.note_child_messages(child),
                Done::Read { slot, result } => {
                    served += u32::from(self.loads[slot as usize].as_ref().is_some_and(|load| load.wanted));
                    let result = self
                        .store_faults
                        .as_mut()
                        .map_or(result, |faults| faults.read(&mut self.io, slot, result));
                    self.landed(slot, result);
                }
                Done::Write { token, result } => {
                    let result = self.store_faults.as_mut().map_or(result, |faults| faults.write(result));
                    if token == helpers::WRITE {
                        self.wrote_for_child(result);
                    } else {
                        self.wrote(token, result);
                    }
                }
            }
        }
        any
    }

    /// So many threads are served with what was read before new faults are looked at: those of the first ones
    /// then reach the drive while the others are served. Drives that tell of many reads at once would be idle
    /// until all are. To look takes time as well, so it is done after each thread only where few wait.
    fn served_at_once(&self) -> u32 {
        (self.free_landing.most_in_demand() / READS_FOR_ONE).clamp(1, SERVED_MOST) as u32
    }

    /// DRAM for pages in place, in staging and compressed, and for reads of several pages, in pages: what the
    /// kernel counts for this process. What children brought back goes by itself. It is not made up for here:
    /// after a fork nearly all pages are shared and cannot go, so that threads would wait for nothing.
    fn held(&self) -> u64 {
        self.queues.resident() + self.staging.pages() + self.pool.pages() + self.free_landing.held()
    }

    /// Lets others see where things stand.
    fn publish(&mut self) {
        self.stats.set(Stat::Resident, self.queues.resident());
        self.stats.set(Stat::Staged, self.staging.pages());
        self.stats.set(Stat::Stored, self.slots.taken());
        self.stats.set(Stat::Compressed, self.pool.live());
        self.stats.set(Stat::CompressedDram, self.pool.pages());
        self.stats.raise(Stat::HeldMax, self.held() + self.children_pages());
        if self.published.elapsed() >= PUBLISHED_EVERY {
            self.published = Instant::now();
            self.free_landing.begin_period();
            self.close_landing();
            self.stats.set(Stat::FaultP50, self.service.value_at(0.5).unwrap_or(0));
            self.stats.set(Stat::FaultP99, self.service.value_at(0.99).unwrap_or(0));
            self.service = Histogram::new();
            self.look_whether_full();
            self.seal.iter().for_each(Seal::lock_again);
        }
    }
}

impl Drop for Engine {
    /// Gives all memory back to the kernel, so that unmapping it tells nobody. Pages that are away are
    /// lost: only who has no more use for the memory drops its engine.
    fn drop(&mut self) {
        let ranges: Vec<_> = self.space.regions().map(|region| region.range.clone()).collect();
        for range in ranges.into_iter().chain([self.frames.extent()]) {
            let _ = self.userfault.unregister(range);
        }
    }
}
