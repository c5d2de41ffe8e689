//! Putting a running program's memory under the pager, and keeping the whole process within its budget.
//!
//! Nothing is taken over while the program is small: its memory costs what it always does. From half the
//! budget on, all its private anonymous memory is looked for again and again, by whatever call it was made.
//! What the engine itself lives in is left out.

use super::at_fork::AtFork;
use super::changes::Followed;
use super::{Engine, EngineError, Limits, Notice, TICK, is_much_beside, notice};
use crate::platform::{Instant, PageMap, largest_child, shared_memory_pages};
use crate::ranges::without;
use crate::seal::Seal;
use crate::stats::Stat;
use overdrive_sys::affinity::cpus_of;
use overdrive_sys::page_map::time_to_grow;
use overdrive_sys::uffd::PAGE;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

/// Smaller pieces of memory stay with the kernel: they would cost more in mappings than they hold.
const SMALLEST_BYTES: u64 = if cfg!(test) { PAGE } else { 256 << 10 };
/// Of memory that has more addresses than this in a row only what is in use is taken over, in windows: it was
/// mapped for all that may ever be wanted, and there are not numbers for so many pages.
const VAST_BYTES: u64 = 128 << 30;
const WINDOW_BYTES: u64 = 1 << 30;
/// Growth of the process that is worth a look at its mappings at once.
pub(super) const GROWTH_PAGES: u64 = 64;
/// Memory that is new is nobody's until it is found, and what makes room for it must be written first. So
/// room is kept for what came between two looks, this many times.
const LOOKS_AHEAD: u64 = 6;
/// The share of the budget kept for that, at most: a third.
const AHEAD_SHARE: u64 = 3;
/// By this share it is less with each look, unless more came: half of it is gone in a tenth of a second.
const AHEAD_FADES: u64 = 32;
/// What a process had so long ago it may have again without more to come.
const LATELY: Duration = Duration::from_secs(10);
/// Without growth, mappings are read once in so many looks.
const PERIOD_LOOKS: u32 = 20;
/// So long what was read of the mappings is believed, or as long as the reading took. A mapping that has
/// grown since would be taken over in part, and while it is of two kinds the kernel does not move it.
const BELIEVED: Duration = Duration::from_millis(1);
/// Reading mappings, of which there may be thousands, is left alone for so many times as long as it took, or
/// there is no time left for all else.
const REST: u32 = 3;
/// The same where nothing speaks for new memory.
const LONG_REST: u32 = 20;
/// Pieces taken over in one go, after which the mappings are read again.
const GAPS_AT_ONCE: usize = 256;
/// New memory is left to the kernel, which brings its pages at the least cost, for so long: much is given
/// back before. But no more than would fit the budget if it became full, with a share to spare.
const YOUNG: Duration = Duration::from_secs(1);
const SPARE_SHARE: u64 = 256;

/// More than the budget must have been held so long, at so many looks, before that is told.
const ABOVE: Duration = Duration::from_secs(3);
const ABOVE_LOOKS: u32 = 200;
/// As long as nothing is under the pager, there is nothing else to do than to look how large the process is:
/// not before it can have grown to where that begins, and at least so often. Threads on all processors may
/// make it grow, each twice as fast as most programs do.
const IDLE_AT_LEAST: Duration = Duration::from_millis(40);
const GROWS_FASTER: u32 = 2;
/// As often is enough for a process in which nothing has changed for so long, once there is something under
/// the pager: each look wakes a processor. But not after one thread can have grown beyond the budget by this
/// share of it, or by five times as much in huge pages: what begins to grow is seen at the next look only.
const CALM: Duration = Duration::from_secs(1);
const CALM_SHARE: u64 = 64;
/// Children, and shared memory, are looked at this often.
const OUTSIDE_EVERY: Duration = Duration::from_secs(1);

/// A time in which more than the budget was held at every look.
#[derive(Debug)]
struct Above {
    since: Instant,
    looks: u32,
    /// Pages evicted before.
    evicted: u64,
    /// The least that was held meanwhile: in all, and by what is not under the pager.
    held: u64,
    unmanaged: u64,
}

/// Looking for memory that is not under the pager yet.
#[derive(Debug)]
pub(super) struct Scan {
    /// What never comes there.
    exclude: Vec<Range<u64>>,
    /// There may be what is not taken over yet.
    again: bool,
    /// Where what it took over begins and ends.
    edges: BTreeSet<u64>,
    /// Pages that were left to the kernel at the last look, and when there were none; never at first.
    left: u64,
    cleared: Option<Instant>,
    scanned: Instant,
    reading_took: Duration,
}

impl Scan {
    pub(super) fn new(exclude: Vec<Range<u64>>) -> Self {
        let (edges, reading_took) = (BTreeSet::new(), Duration::ZERO);
        Self { exclude, again: true, edges, left: 0, cleared: None, scanned: Instant::now(), reading_took }
    }

    #[cfg(test)]
    pub(super) fn digest(&self, since: impl Fn(Instant) -> Duration) -> String {
        format!("{:?}", (self.again, &self.edges, since(self.scanned)))
    }

    /// Whether it is time, when so many pages came since the last look that are not under the pager.
    /// `pause`: between two looks.
    pub(super) fn is_due(&mut self, grown: u64, pause: Duration) -> bool {
        let period = (pause * PERIOD_LOOKS).max(self.reading_took * LONG_REST);
        let is_time = self.scanned.elapsed() >= period;
        self.again |= grown > GROWTH_PAGES || is_time;
        self.again && self.scanned.elapsed() >= self.reading_took * REST
    }

    /// Takes over what is not yet, but for new memory that fits in `room` pages.
    pub(super) fn run(&mut self, memory: &mut impl Followed, room: u64) {
        let (mut found, began) = (Vec::new(), Instant::now());
        let is_young = self.cleared.is_some_and(|then| began.duration_since(then) < YOUNG);
        let room = if is_young { room } else { 0 };
        if let Some(mappings) = memory.mappings() {
            // Unreadable maps: nothing new is taken over this time.
            let _ = mappings.for_each_anonymous(0..u64::MAX, |mapping| {
                if mapping.writable && !mapping.is_stack {
                    found.extend(without(mapping.range, &self.exclude));
                }
            });
        }
        let mut gaps = Vec::new();
        for row in found.chunk_by(|piece, next| piece.end == next.start) {
            let new = row.iter().flat_map(|piece| memory.space().gaps(piece.clone()));
            let is_vast = row[row.len() - 1].end - row[0].start > VAST_BYTES;
            match memory.page_map().filter(|_| is_vast) {
                Some(map) => gaps.extend(new.flat_map(|gap| windows_in_use(map, &gap))),
                None => gaps.extend(new),
            }
        }
        let read = Instant::now();
        self.reading_took = read.duration_since(began);
        let believed = self.reading_took.max(BELIEVED);
        // The rest of a mapping that was growing has to be of one kind with it, however small it is.
        let edges = std::mem::take(&mut self.edges);
        let is_rest = |gap: &Range<u64>| edges.contains(&gap.start) || edges.contains(&gap.end);
        gaps.retain(|gap| gap.end - gap.start >= SMALLEST_BYTES || is_rest(gap));
        self.left = 0;
        gaps.retain(|gap| {
            let pages = (gap.end - gap.start) / PAGE;
            let is_left = !is_rest(gap) && self.left + pages <= room;
            self.left += if is_left { pages } else { 0 };
            !is_left
        });
        let mut is_old = false;
        for some in gaps.chunks(GAPS_AT_ONCE) {
            is_old = read.elapsed() > believed;
            if is_old {
                break;
            }
            // What the kernel refuses (somebody else handles its faults) stays as it is.
            let (taken, _) = memory.adopt_gaps(some);
            self.edges.extend(taken.into_iter().flat_map(|range| [range.start, range.end]));
        }
        self.again = is_old || !self.edges.is_empty();
        self.scanned = Instant::now();
        if self.left == 0 && !is_old {
            self.cleared = Some(self.scanned);
        }
    }
}

/// The windows of a range that hold anything.
fn windows_in_use(map: &PageMap, range: &Range<u64>) -> Vec<Range<u64>> {
    let (mut windows, mut from) = (Vec::new(), range.start);
    while let Ok(Some(page)) = map.first_present(from..range.end) {
        let start = page - page % WINDOW_BYTES;
        from = range.end.min(start + WINDOW_BYTES);
        windows.push(start.max(range.start)..from);
    }
    windows
}

/// The most pages with contents that a process had lately, wherever these were: what takes the place of
/// others that went tells of nothing else to come.
#[derive(Debug)]
struct Most {
    pages: u64,
    had: Instant,
}

impl Most {
    /// How many more than that it has with so many.
    fn exceeded_by(&mut self, pages: u64, now: Instant) -> u64 {
        let beyond = pages.saturating_sub(self.pages);
        if pages >= self.pages || now.duration_since(self.had) >= LATELY {
            *self = Self { pages, had: now };
        }
        beyond
    }
}

/// What is known about the process around the engine.
#[derive(Debug)]
pub(super) struct Takeover {
    scan: Scan,
    /// The program's number.
    process: u32,
    budget_pages: u64,
    began: bool,
    looked: Instant,
    /// Until the next look; no less than a tick.
    pause: Duration,
    processors: u32,
    /// Pages outside the pager at the end of the last look, and when all memory was under it that can be.
    unmanaged_then: u64,
    unmanaged_least: u64,
    /// When what is outside the pager changed last.
    stirred: Instant,
    /// Pages kept free for growth that no fault tells of.
    ahead: u64,
    most: Most,
    above: Option<Above>,
    outside_looked: Instant,
    /// The child that was found above the budget last time.
    child_above: Option<u32>,
}

impl Engine {
    /// From now on takes over the memory of this process as it nears the budget, except for `exclude` and
    /// what the engine itself needs. To be called by the thread that serves; `process` is the number under
    /// which the program runs, which is another one than the thread's where that stands in a process apart.
    pub fn watch_process(&mut self, exclude: &[Range<u64>], process: u32) {
        self.page_map.count_by_this_thread();
        self.zeroes.look_for();
        let own = [self.frames.extent(), self.pool.extent()];
        let own = own.into_iter().chain(self.io.extents()).chain(self.seal.as_ref().map(Seal::extent));
        let now = Instant::now();
        self.takeover = Some(Takeover {
            scan: Scan::new(exclude.iter().cloned().chain(own).collect()),
            budget_pages: self.limits.budget,
            began: false,
            looked: now,
            pause: TICK,
            // Those of its first thread: this one may be kept to one.
            process,
            processors: cpus_of(process).map_or(1, |all| all.len() as u32),
            unmanaged_then: 0,
            unmanaged_least: 0,
            stirred: now,
            ahead: 0,
            most: Most { pages: 0, had: now },
            above: None,
            outside_looked: now,
            child_above: None,
        });
    }

    /// Whether the budget can hold what this process has before the program begins.
    ///
    /// # Errors
    /// It cannot; with one that can.
    pub fn check_start(&self) -> Result<(), EngineError> {
        let held = self.page_map.anonymous_pages().unwrap_or(0);
        if held + Limits::LEAST <= self.limits.budget {
            return Ok(());
        }
        let held_bytes = held * PAGE;
        Err(EngineError::HeldAtStart {
            budget_bytes: self.limits.budget * PAGE,
            held_bytes,
            wanted_bytes: notice::wanted_bytes(held_bytes),
        })
    }

    /// How long the engine may sleep when nobody wakes it.
    pub(super) fn sleeps_for(&self) -> Duration {
        self.takeover.as_ref().map_or(TICK, |takeover| takeover.pause)
    }

    /// How long to wait for the next look at a process that holds so many pages.
    fn pause_of(&self, takeover: &Takeover, held: u64) -> Duration {
        let calm_for = self.rests_for(takeover.looked).min(takeover.looked.duration_since(takeover.stirred));
        let is_waited_for = self.hints.as_ref().is_some_and(|hints| hints.are_used());
        if calm_for < CALM || is_waited_for || !self.children.is_empty() {
            return TICK;
        }
        let room = takeover.budget_pages.saturating_sub(held) / u64::from(GROWS_FASTER * takeover.processors);
        time_to_grow(room + takeover.budget_pages / CALM_SHARE).clamp(TICK, IDLE_AT_LEAST)
    }

    /// Looks at the process, if it is time.
    pub(super) fn look_around(&mut self) {
        self.keep_what_is_warm();
        let Some(mut takeover) = self.takeover.take() else { return self.take_hints() };
        if self.idle.is_none() {
            // Who has something to do may find that the process has begun to grow.
            takeover.pause = TICK;
        }
        if takeover.looked.elapsed() >= takeover.pause {
            takeover.looked = Instant::now();
            self.look(&mut takeover);
            self.take_hints();
        }
        self.takeover = Some(takeover);
    }

    fn look(&mut self, takeover: &mut Takeover) {
        let Ok(anonymous) = self.page_map.anonymous_pages() else { return };
        let mut unmanaged = anonymous.saturating_sub(self.held());
        self.stats.set(Stat::Unmanaged, unmanaged);
        self.stats.raise(Stat::HeldMax, anonymous);
        let grown = unmanaged.saturating_sub(takeover.unmanaged_then);
        takeover.ahead -= takeover.ahead.div_ceil(AHEAD_FADES).min(takeover.ahead);
        let ticks = takeover.pause.div_duration_f64(TICK) as u64;
        let in_use = unmanaged + u64::from(self.table.in_use());
        let beyond = takeover.most.exceeded_by(in_use, takeover.looked);
        let ahead = grown.min(beyond) * LOOKS_AHEAD / ticks;
        takeover.ahead = takeover.ahead.max(ahead).min(takeover.budget_pages / AHEAD_SHARE);
        if unmanaged != takeover.unmanaged_then {
            takeover.stirred = takeover.looked;
        }
        takeover.unmanaged_then = unmanaged;
        self.look_whether_above(takeover, anonymous, unmanaged);
        if takeover.outside_looked.elapsed() >= OUTSIDE_EVERY {
            takeover.outside_looked = Instant::now();
            self.look_at_children_outside(takeover);
            self.look_at_shared_memory(takeover.budget_pages);
        }
        let begins_at = takeover.budget_pages / 2;
        if !takeover.began && anonymous < begins_at {
            let may_be_idle = self.space.bytes() == 0 && self.children.is_empty();
            let most = if may_be_idle { IDLE_AT_LEAST } else { TICK };
            let grows_for = time_to_grow(begins_at - anonymous) / (GROWS_FASTER * takeover.processors);
            takeover.pause = grows_for.clamp(TICK, most);
            return;
        }
        (takeover.began, takeover.pause) = (true, self.pause_of(takeover, anonymous));
        let is_all_wanted = self.at_fork.is_some_and(AtFork::is_all_wanted);
        if is_all_wanted || takeover.scan.is_due(grown, takeover.pause) {
            let taken = self.held() + self.helping.lending.lent + takeover.unmanaged_least;
            let most = takeover.budget_pages - takeover.budget_pages / SPARE_SHARE;
            takeover.scan.run(self, if is_all_wanted { 0 } else { most.saturating_sub(taken) });
            self.at_fork.iter().for_each(|forks| forks.note_left(takeover.scan.left > 0));
            let anonymous = self.page_map.anonymous_pages().unwrap_or(anonymous);
            unmanaged = anonymous.saturating_sub(self.held());
            takeover.unmanaged_then = unmanaged;
            if takeover.scan.left == 0 {
                takeover.unmanaged_least = unmanaged;
            }
        }
        self.find_written_zeroes(unmanaged);
        self.helping.lending.note_own(grown);
        // What was left to the kernel may become full.
        let others = (unmanaged + takeover.ahead).max(takeover.unmanaged_least + takeover.scan.left);
        let others = others + self.helping.lending.lent;
        self.limits = Limits::divide(takeover.budget_pages, others);
    }

    /// Tells when the budget cannot be held whatever is evicted. A store that is full or paced is told
    /// elsewhere.
    fn look_whether_above(&mut self, takeover: &mut Takeover, held: u64, unmanaged: u64) {
        let budget = takeover.budget_pages;
        if held <= budget + budget / 32 || self.is_store_full() || self.no_space || self.paced {
            takeover.above = None;
            return;
        }
        let (now, evicted) = (Instant::now(), self.stats.get(Stat::Evicted));
        let above = takeover.above.get_or_insert(Above { since: now, looks: 0, evicted, held, unmanaged });
        above.looks += 1;
        above.held = above.held.min(held);
        above.unmanaged = above.unmanaged.min(unmanaged);
        if above.looks < ABOVE_LOOKS || now.duration_since(above.since) < ABOVE {
            return;
        }
        // Or else it is only slow to go.
        let stuck = if above.unmanaged + Limits::LEAST > budget {
            Some(above.unmanaged)
        } else {
            (above.evicted == evicted).then_some(above.held)
        };
        takeover.above = None;
        if let Some(stuck) = stuck {
            self.stats.add(Stat::TooSmall, ABOVE.as_secs());
            let (budget_bytes, stuck_bytes) = (budget * PAGE, stuck * PAGE);
            self.notices.tell_once(&Notice::TooSmall { budget_bytes, stuck_bytes });
        }
    }

    /// Tells when a child holds more than the budget: one that has an engine of its own does not for long.
    fn look_at_children_outside(&mut self, takeover: &mut Takeover) {
        let budget = takeover.budget_pages;
        let found = largest_child(takeover.process)
            .filter(|&(_, pages)| is_much_beside(pages.saturating_sub(budget), budget));
        let again = found.filter(|&(process, _)| takeover.child_above == Some(process));
        takeover.child_above = found.map(|(process, _)| process);
        self.stats.set(Stat::ChildAbove, again.map_or(0, |(_, pages)| pages));
        if let Some((process, pages)) = again {
            self.notices.tell_once(&Notice::ChildAbove { process, bytes: pages * PAGE });
        }
    }

    /// Tells when shared memory, of which nothing is evicted, comes on top of the budget.
    fn look_at_shared_memory(&mut self, budget_pages: u64) {
        let pages = shared_memory_pages().unwrap_or(0);
        self.stats.set(Stat::Shared, pages);
        if is_much_beside(pages, budget_pages) {
            self.notices.tell_once(&Notice::SharedAbove { bytes: pages * PAGE });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_again_is_no_more_than_there_was() {
        let start = Instant::now();
        let mut most = Most { pages: 0, had: start };
        let mut seconds = 0;
        let mut beyond = |pages| {
            seconds += 4;
            most.exceeded_by(pages, start + Duration::from_secs(seconds))
        };
        assert_eq!([100, 40, 90, 100, 60, 110].map(&mut beyond), [100, 0, 0, 0, 0, 10]);
        // Having it again is having it.
        assert_eq!([110, 30, 110, 30, 120].map(&mut beyond), [0, 0, 0, 0, 10]);
        // What was so long ago is forgotten.
        assert_eq!([30, 30, 30, 120].map(&mut beyond), [0, 0, 0, 90]);
    }
}
