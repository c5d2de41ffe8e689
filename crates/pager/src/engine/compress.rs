//! Between staging and the store: pages that compress are kept in DRAM for longer.

use super::{Engine, Limits};
use crate::platform::Instant;
use crate::pool::Pool;
use crate::slots::SEGMENT_SLOTS;
use crate::space::BLOCK_PAGES;
use crate::stats::Stat;
use crate::table::{State, Table, mark_of};
use overdrive_sys::uffd::PAGE;
use std::time::Duration;

/// Pages compressed in one go: faults wait no longer than this takes.
const AT_ONCE: usize = 8;
/// As long as so many frames wait to be written, no more are added to them.
const WAITING_MAX: usize = 2 * SEGMENT_SLOTS as usize;

/// How often the tier's share is thought over.
const PERIOD: Duration = Duration::from_millis(100);
/// Of a tier that is as small as can be, one page in so many is put there: enough to see whether more would
/// pay.
const SAMPLE: u32 = 8;
/// Fewer faults in a period say nothing.
const FAULTS_MIN: u64 = 50;

/// How much DRAM the compressed tier may have: a page of it keeps several others off the drive, but is one
/// page less in place. Which is worth more shows in how soon pages come back. Those that return before a few
/// others were compressed would have been in place with a little more memory; all others would have been
/// read.
#[derive(Debug)]
pub(super) struct Tier {
    takes_all: bool,
    /// Pages; None for as much as is allowed.
    share: Option<u64>,
    /// What counts as coming back soon: the step by which the share changes.
    step: u64,
    /// Pages not to be put into a small tier before the next.
    pass_over: u32,
    since: Instant,
    /// How long there was nothing to do.
    idle: Duration,
    soon: u64,
    late: u64,
    loads: u64,
    /// Running means, in nanoseconds.
    expand_ns: u64,
    load_ns: u64,
}

impl Tier {
    /// `takes_all`: its share is always what is allowed.
    pub(super) fn new(takes_all: bool) -> Self {
        Self {
            takes_all,
            share: None,
            step: 0,
            pass_over: 0,
            since: Instant::now(),
            idle: Duration::ZERO,
            soon: 0,
            late: 0,
            loads: 0,
            expand_ns: 10_000,
            load_ns: 100_000,
        }
    }

    pub(super) fn note_idle(&mut self, since: Instant) {
        self.idle += since.elapsed();
    }

    pub(super) fn note_load(&mut self, took_ns: u64) {
        self.loads += 1;
        self.load_ns = (self.load_ns * 31 + took_ns) / 32;
    }

    fn note_expand(&mut self, age: u32, took: Duration) {
        let one_in = u64::from(if self.is_small() { SAMPLE } else { 1 });
        if u64::from(age) * one_in < self.step {
            self.soon += one_in;
        } else {
            self.late += 1;
        }
        self.expand_ns = (self.expand_ns * 31 + took.as_nanos() as u64) / 32;
    }

    fn is_small(&self) -> bool {
        self.share.is_some_and(|share| share <= self.step)
    }

    /// Whether to put a page there that was just evicted.
    fn wants_another(&mut self) -> bool {
        let next = if self.is_small() { SAMPLE - 1 } else { 0 };
        match self.pass_over.min(next) {
            0 => self.pass_over = next,
            rest => {
                self.pass_over = rest - 1;
                return false;
            }
        }
        true
    }

    /// The pages it may have now.
    pub(super) fn share(&mut self, pool: &Pool, limits: &Limits) -> u64 {
        let passed = self.since.elapsed();
        self.step = limits.total / 32;
        if passed >= PERIOD {
            self.think_over(pool.pages(), limits, passed);
            (self.since, self.idle, self.soon, self.late, self.loads) =
                (Instant::now(), Duration::ZERO, 0, 0, 0);
        }
        self.share.unwrap_or(limits.compressed).min(limits.compressed)
    }

    fn think_over(&mut self, pages: u64, limits: &Limits, passed: Duration) {
        if self.takes_all || pages == 0 || self.soon + self.late + self.loads < FAULTS_MIN {
            return;
        }
        // A page in place saves the fault and taking another page away, which costs about as much.
        let smaller = self.soon as f64 * 2.0 * self.expand_ns as f64;
        // While there is always something to do, a read costs no more than what is done meanwhile.
        let idle = (self.idle.as_secs_f64() / passed.as_secs_f64()).min(1.0);
        let saved_ns = self.load_ns.saturating_sub(self.expand_ns) as f64 * idle;
        let larger = self.late as f64 * saved_ns * self.step as f64 / pages as f64;
        let now = self.share.unwrap_or(limits.compressed).min(pages.max(self.step));
        if smaller >= larger * 1.25 {
            self.share = Some(now.saturating_sub(self.step).max(self.step));
        } else if larger > smaller * 1.25 {
            self.share = Some((pages + 2 * self.step).min(limits.compressed));
        }
    }
}

impl Engine {
    /// Whether a page that was just evicted should be compressed.
    pub(super) fn is_worth_compressing(&mut self) -> bool {
        self.tier.wants_another() && self.pool.is_worth_a_try()
    }

    /// Compresses some pages of the oldest frames, so that these can be given back. What does not compress,
    /// or finds no room, goes to the store. True when there was something to do.
    pub(super) fn compress_some(&mut self) -> bool {
        let mut any = false;
        for _ in 0..AT_ONCE {
            let Some(frame) = self.soft.pop_front() else { break };
            any = true;
            let page = self.staging.page(frame).filter(|&page| self.is_in(page, frame));
            let cell = page.and_then(|page| self.pool.put(page, self.frames.page(frame)));
            match (page, cell) {
                (Some(page), Some(_)) => self.table.set(page, State::Compressed, cell),
                (Some(page), None) if !self.is_written(page) => {
                    self.dirty.push_back(frame);
                    continue;
                }
                // It went back or was given up meanwhile, or the store has it.
                _ => {}
            }
            self.staging.settle(frame);
        }
        any
    }

    /// Makes room in the compressed tier before it is full: what came to it long ago goes to the store,
    /// through staging. True when that made progress.
    pub(super) fn spill(&mut self) -> bool {
        if !self.pool.is_nearly_full() || self.dirty.len() >= WAITING_MAX {
            return false;
        }
        let oldest = self.pool.oldest(BLOCK_PAGES as usize);
        let group = if oldest.is_empty() { None } else { self.staging.take() };
        let Some(group) = group else { return false };
        let (mut any, mut page_bytes) = (false, [0; PAGE as usize]);
        for (frame, (cell, page)) in (group..).zip(oldest) {
            if !self.is_written(page) {
                let Some(content) = self.pool.get(cell, &mut page_bytes) else { continue };
                // An event waits to be read: later.
                if self.userfault.copy(self.frames.address(frame), content, false).is_err() {
                    break;
                }
                self.frames.note_filled(frame);
                self.staging.fill(frame, page, true);
                self.dirty.push_back(frame);
                self.table.set(page, State::Staged, Some(frame));
            } else {
                self.table.set(page, State::Stored, None);
            }
            self.pool.give_up(cell);
            any = true;
        }
        any
    }

    /// A thread waits for a page that is compressed.
    pub(super) fn expand(&mut self, page: u32, address: u64) {
        if self.held() >= self.limits.total && self.can_make_room() {
            self.stats.add(Stat::DirectStalls, 1);
            self.waiting.push_back(page);
            return;
        }
        let (started, mut content) = (Instant::now(), [0; PAGE as usize]);
        let Some(content) = self.compressed_content(&self.table, page, &mut content) else {
            return self.expand_in_vain(page);
        };
        let outcome = self.userfault.copy(address, content, true);
        if outcome.is_ok() {
            self.stats.add(Stat::Expands, 1);
            let age = self.table.place(page).map_or(0, |cell| self.pool.age(cell));
            self.tier.note_expand(age, started.elapsed());
        }
        self.placed(page, address, outcome.map(drop));
    }

    /// Puts a compressed page in place before somebody wants it. False when there is no room, or when the
    /// page cannot be put there now.
    pub(super) fn expand_ahead(&mut self, page: u32) -> bool {
        let has_room = self.held() + self.limits.reserve / 2 < self.limits.total;
        let Some(address) = self.space.address(page).filter(|_| has_room) else { return false };
        let mut content = [0; PAGE as usize];
        let content = self.compressed_content(&self.table, page, &mut content);
        // Damaged or refused: that is seen to when somebody wants it.
        let arrived = content.is_some_and(|content| self.userfault.copy(address, content, true).is_ok());
        if arrived {
            self.stats.add(Stat::ExpandedAhead, 1);
            self.now_resident(page);
        }
        arrived
    }

    /// A compressed page of this process or a child, by its table. None when it is not what was put there.
    pub(super) fn compressed_content<'a>(
        &self,
        table: &Table,
        page: u32,
        content: &'a mut [u8; PAGE as usize],
    ) -> Option<&'a [u8]> {
        let content = self.pool.get(table.place(page)?, content)?;
        (mark_of(content, self.seed) == table.mark(page)).then_some(content)
    }

    /// What is in the cell is not what was put there: the store may have a copy.
    fn expand_in_vain(&mut self, page: u32) {
        self.leave_pool(page);
        if self.is_written(page) {
            self.table.set(page, State::Stored, None);
            self.want(page);
        } else {
            self.lose(page, PAGE as i32);
        }
    }

    /// If the page is compressed, its cell is free from now on.
    pub(super) fn leave_pool(&mut self, page: u32) {
        if self.table.state(page) == State::Compressed
            && let Some(cell) = self.table.place(page)
        {
            self.pool.give_up(cell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Compress;
    use crate::sim::kernel;

    const LIMITS: Limits = Limits { budget: 3200, total: 3200, soft: 256, reserve: 128, compressed: 2000 };

    /// The share after twenty periods, each with so many pages coming back soon and late, and idle for so long.
    fn share_after(soon: u32, late: u32, idle: Duration, takes_all: bool) -> u64 {
        let mut pool = Pool::new(2000, Compress::Auto).unwrap();
        let mut tier = Tier::new(takes_all);
        for page in 0..2000 {
            // As large as it may be.
            let mut content = [0; PAGE as usize];
            let mut rng = overdrive_base::rng::Rng::new(u64::from(page));
            content[..2500].fill_with(|| rng.below(256) as u8);
            pool.put(page, &content);
        }
        let _ = tier.share(&pool, &LIMITS);
        for _ in 0..20 {
            let began = Instant::now();
            kernel(|kernel| kernel.time += idle);
            tier.note_idle(began);
            kernel(|kernel| kernel.time += PERIOD - idle);
            (0..soon).for_each(|_| tier.note_expand(0, Duration::from_micros(10)));
            (0..late).for_each(|_| tier.note_expand(1000, Duration::from_micros(10)));
            (0..10).for_each(|_| tier.note_load(100_000));
            let share = tier.share(&pool, &LIMITS);
            while pool.pages() > share {
                pool.oldest(8).into_iter().for_each(|(cell, _)| pool.give_up(cell));
            }
        }
        tier.share(&pool, &LIMITS)
    }

    #[test]
    fn what_comes_back_late_keeps_the_tier_large() {
        assert_eq!(share_after(5, 500, PERIOD / 2, false), 2000);
    }

    #[test]
    fn what_comes_back_soon_makes_it_small() {
        assert_eq!(share_after(500, 50, PERIOD / 2, false), 100);
        assert_eq!(share_after(500, 50, PERIOD / 2, true), 2000, "unless it takes all it may");
    }

    #[test]
    fn reads_cost_nothing_more_where_there_is_always_something_to_do() {
        assert_eq!(share_after(5, 500, Duration::ZERO, false), 100);
    }

    #[test]
    fn too_few_faults_change_nothing() {
        assert_eq!(share_after(20, 5, Duration::ZERO, false), 2000);
    }
}
