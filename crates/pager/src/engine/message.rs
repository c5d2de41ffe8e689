//! What the kernel tells besides faults: memory moved, given up, unmapped, forked.

use super::changes::{Changes, Followed};
use super::{Engine, TICK};
use crate::platform::{Instant, Mappings, Message, PageMap, Userfault, take_given_up};
use crate::space::{BLOCK_PAGES, Space, bits_of, block_by_block, pages_where, runs_of};
use crate::stats::Stat;
use crate::table::State;
use overdrive_sys::Errno;
use overdrive_sys::uffd::PAGE;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// How long a thread may take from being told that it may go on with MADV_DONTNEED to having done it.
/// Until its pages were seen gone nothing in a block is evicted that long, lest content come back that the
/// program has given up. Pages that stay (MADV_FREE) are looked at ever more rarely. When there is no room
/// they are taken away, or others would go for them.
pub(super) const GIVING_UP: Duration = Duration::from_secs(2);
/// What is gone by then is noticed this early.
const FIRST_LOOK: Duration = Duration::from_millis(10);
/// Blocks of which such pages are taken away in one go.
const TAKEN_AT_ONCE: usize = if cfg!(test) { 1 } else { 16 };

impl Followed for Engine {
    fn changes(&mut self) -> &mut Changes {
        &mut self.changes
    }

    fn userfault(&self) -> &Userfault {
        &self.userfault
    }

    fn space(&self) -> &Space {
        &self.space
    }

    fn nowhere(&self) -> u64 {
        self.frames.extent().start
    }

    fn message(&mut self, message: Message) -> Result<(), Errno> {
        match message {
            Message::Fault { address, protected: true, .. } => {
                // Nothing is protected on purpose yet; lifting it wakes the writer.
                let _ = self.userfault.write_protect(address..address + PAGE, false);
            }
            Message::Fault { address, offset, write, thread, .. } => {
                self.fault(address, offset, write, thread);
            }
            Message::Remove(range) => self.about_to_go(&range),
            Message::Unmap(range) => return self.unmapped(&range),
            Message::Remap { from, to, length } => {
                let (from, to) = (from..from + length, to..to + length);
                self.vacate(&from, &to)?;
                self.moved(&from, &to)?;
                self.wake_all(&from);
            }
            Message::Fork(child) => return self.forked(child),
        }
        Ok(())
    }

    fn stands(&self, range: &Range<u64>) -> Option<bool> {
        let (mut believed, mut standing) = (0, 0);
        for pages in self.space.pages_in(range) {
            let Some(address) = self.space.address(pages.start) else { continue };
            for first in pages.clone().step_by(BLOCK_PAGES as usize) {
                let some = first..pages.end.min(first + BLOCK_PAGES);
                let there = address + u64::from(first - pages.start) * PAGE;
                let present = self.page_map.present(there, some.len()).unwrap_or(0);
                let is_believed = |page: &u32| self.table.state(*page).is_in_place();
                believed += some.clone().filter(is_believed).count();
                standing +=
                    some.filter(|page| present >> (page - first) & 1 == 1 && is_believed(page)).count();
            }
        }
        (believed > 0).then_some(standing > 0)
    }

    fn mappings(&self) -> Option<&Mappings> {
        Some(&self.mappings)
    }

    fn page_map(&self) -> Option<&PageMap> {
        Some(&self.page_map)
    }

    fn announce(&self) {
        self.at_fork.iter().for_each(|forks| forks.announce());
    }

    fn enter(&mut self, range: &Range<u64>) -> bool {
        let Some(region) = self.space.add(range.clone()) else { return false };
        self.note_numbers();
        self.note_present(range, region.first);
        self.stats.set(Stat::ManagedBytes, self.space.bytes());
        true
    }

    fn leave(&mut self, range: &Range<u64>) {
        if self.space.has_any(range) {
            self.space.remove(range).into_iter().for_each(|pages| self.forget_all(pages));
            self.stats.set(Stat::ManagedBytes, self.space.bytes());
            self.wake_all(range);
        }
    }
}

impl Engine {
    /// Puts a range of private anonymous memory under the pager, with what is in it.
    ///
    /// # Errors
    /// The kernel's errno when it refuses a part; the others are taken. EAGAIN while changes of the program's
    /// memory are yet to be told.
    pub fn adopt(&mut self, range: Range<u64>) -> Result<(), Errno> {
        let gaps = self.space.gaps(range);
        self.adopt_gaps(&gaps).1
    }

    /// There is an entry for each number in use.
    fn note_numbers(&mut self) {
        let pages = self.space.pages_end();
        self.table.grow(pages);
        self.history.grow(self.table.len());
        self.queues.grow(pages.div_ceil(BLOCK_PAGES));
    }

    /// Pages of a range of which nothing is known are in place if they are there.
    fn note_present(&mut self, range: &Range<u64>, first_page: u32) {
        let mut address = range.start;
        while address < range.end {
            let count = ((range.end - address) / PAGE).min(u64::from(BLOCK_PAGES));
            let present = self.page_map.present(address, count as usize).unwrap_or(0);
            for index in bits_of(present) {
                let there = address + u64::from(index) * PAGE;
                let page = first_page + ((there - range.start) / PAGE) as u32;
                if self.table.state(page) == State::Empty {
                    self.now_resident(page);
                    self.note_known(page, there);
                }
            }
            address += count * PAGE;
            if present == 0 {
                // Much may be empty.
                let next = self.page_map.first_present(address..range.end).unwrap_or(Some(address));
                address = next.unwrap_or(range.end);
            }
        }
    }

    /// A page is known from now on. A thread may have told before that it gives it up.
    fn note_known(&mut self, page: u32, address: u64) {
        let now = Instant::now();
        let is_it = |(range, until): &(Range<u64>, Instant)| range.contains(&address) && now < *until;
        if self.giving_up.unknown.iter().any(is_it) {
            self.note_giving_up(page / BLOCK_PAGES, 1 << (page % BLOCK_PAGES), now);
        }
    }

    /// A fault came from an address of ours that is not known: memory that grew in place.
    pub(super) fn find_out(&mut self, address: u64) {
        // It may be unmapped by now and something else be there that nobody asked us to hold.
        let page = address & !(PAGE - 1);
        if self.userfault.write_protect(page..page + PAGE, false).is_err() {
            return;
        }
        let mut found = None;
        // Unreadable maps leave the fault parked; it is tried again.
        let _ = self.mappings.for_each_anonymous(page..page + PAGE, |mapping| found = Some(mapping.range));
        for gap in found.map_or_else(Vec::new, |range| self.space.gaps(range)) {
            if gap.contains(&address) {
                // Where that is refused the fault stays parked.
                let _ = self.adopt(gap);
            }
        }
    }

    /// The program gives the content of a range up, or may do so (MADV_FREE). What is away is gone. What is
    /// in place stays so until the thread that was told to go on has done what it wants; only then can be
    /// seen which pages are left, and those may be in use again.
    fn about_to_go(&mut self, range: &Range<u64>) {
        let now = Instant::now();
        self.giving_up.unknown.retain(|&(_, until)| now < until);
        for gap in self.space.gaps(range.clone()) {
            self.giving_up.unknown.push((gap, now + GIVING_UP));
        }
        for (block, pages) in self.space.pages_in(range).into_iter().flat_map(block_by_block) {
            let first = block * BLOCK_PAGES;
            let (mut in_place, mut away, mut loading) = (0u64, 0u64, 0u64);
            for bit in bits_of(pages) {
                match self.table.state(first + bit) {
                    State::Empty => {}
                    State::Resident | State::Zeroes => in_place |= 1 << bit,
                    state => {
                        away |= 1 << bit;
                        loading |= u64::from(state == State::Loading) << bit;
                    }
                }
            }
            self.note_giving_up(block, in_place, now);
            self.forget_some(block, away);
            for bit in bits_of(loading) {
                if let Some(address) = self.space.address(first + bit) {
                    self.wake(address);
                }
            }
        }
    }

    /// Some pages of a block are, a bit each.
    fn note_giving_up(&mut self, block: u32, pages: u64, now: Instant) {
        if pages == 0 {
            return;
        }
        self.giving_up.blocks.entry(block).or_insert(GivingUp::new(now)).note(pages, now);
    }

    /// A page that was believed to be in place is not: if it was being given up, that is done.
    pub(super) fn seen_gone(&mut self, page: u32) {
        if let Some(given) = self.giving_up.blocks.get_mut(&(page / BLOCK_PAGES)) {
            given.pages &= !(1 << (page % BLOCK_PAGES));
        }
    }

    /// Whether a thread may be about to give up pages of this block.
    pub(super) fn is_being_given_up(&self, block: u32) -> bool {
        self.giving_up.blocks.contains_key(&block)
    }

    /// Looks what is left of blocks of which pages were given up.
    ///
    /// # Errors
    /// That cannot be found out.
    pub(super) fn look_at_given_up(&mut self) -> Result<(), Errno> {
        let is_soon = self.giving_up.seen.is_some_and(|seen| seen.elapsed() < TICK);
        if self.giving_up.blocks.is_empty() || is_soon {
            return Ok(());
        }
        let now = Instant::now();
        self.giving_up.seen = Some(now);
        let has_room = self.held() + self.kept_free() <= self.limits.total;
        let mut may_be_taken = if has_room { 0 } else { TAKEN_AT_ONCE };
        let mut blocks = std::mem::take(&mut self.giving_up.blocks);
        let mut outcome = Ok(());
        blocks.retain(|&block, given| {
            if outcome.is_ok() && now >= given.look {
                outcome = self.see_what_is_gone(block, given);
                given.wait *= 2;
                given.look = now + given.wait;
                if may_be_taken > 0 && given.pages != 0 && !given.taken {
                    may_be_taken -= 1;
                    given.taken = true;
                    given.look = now;
                    self.take_given_up(block, given.pages);
                }
            }
            now < given.until && given.pages != 0
        });
        self.giving_up.blocks = blocks;
        outcome
    }

    /// What of a block is gone leaves the books.
    ///
    /// # Errors
    /// It cannot be seen.
    fn see_what_is_gone(&mut self, block: u32, given: &mut GivingUp) -> Result<(), Errno> {
        for (address, pages) in self.space.stretches(block) {
            let present = self.page_map.present(address, pages.len())?;
            if !self.is_all_told() {
                continue;
            }
            let gone = pages.enumerate().filter(|(index, _)| present >> index & 1 == 0);
            let gone = gone.fold(0, |gone, (_, page)| gone | 1 << (page % BLOCK_PAGES));
            given.pages &= !gone;
            let first = block * BLOCK_PAGES;
            let believed = pages_where(BLOCK_PAGES, |bit| self.table.state(first + bit).is_in_place());
            self.forget_some(block, gone & believed);
        }
        Ok(())
    }

    /// Has the kernel take away what stands of some pages of a block, a bit each, and was given up.
    fn take_given_up(&self, block: u32, pages: u64) {
        for (address, stretch) in self.space.stretches(block) {
            let own =
                pages >> (stretch.start % BLOCK_PAGES) & u64::MAX >> (BLOCK_PAGES - stretch.len() as u32);
            for (start, count) in runs_of(own) {
                let from = address + u64::from(start) * PAGE;
                take_given_up(&(from..from + u64::from(count) * PAGE));
            }
        }
    }

    /// Memory has another address.
    fn moved(&mut self, from: &Range<u64>, to: &Range<u64>) -> Result<(), Errno> {
        self.changes.note_moved(from.clone(), to.clone());
        // Of gigabytes only this is quick.
        let ends = self.space.relocate(from, to.start);
        ends.iter().try_for_each(|end| self.renumber(end, &moved_along(end, from, to)))
    }

    /// Its pages get other numbers, and everything that names them follows.
    fn renumber(&mut self, from: &Range<u64>, to: &Range<u64>) -> Result<(), Errno> {
        let all_known = self.space.pages_in(from).iter().map(ExactSizeIterator::len).sum::<usize>() as u64
            == (to.end - to.start) / PAGE;
        // All is picked up before anything is put down: the new numbers may be the old ones, used again.
        let mut carried = Vec::new();
        for (start, old) in self.space.take_out(from) {
            let (state, place) = (self.table.state(old), self.table.place(old));
            match state {
                State::Empty => continue,
                State::Resident => self.queues.gone(old / BLOCK_PAGES, 1),
                State::Zeroes => {}
                _ => self.queues.given_up(old / BLOCK_PAGES, 1 << (old % BLOCK_PAGES)),
            }
            self.table.set(old, State::Empty, None);
            carried.push((start, state, place, self.table.set_slot(old, 0), self.table.mark(old)));
        }
        // Without numbers for its pages their content could not be found again.
        let region = self.space.add(to.clone()).ok_or(Errno::NOMEM)?;
        self.note_numbers();
        for (start, state, place, slot, mark) in carried {
            let new = region.first + start;
            self.table.set_slot(new, slot);
            self.table.set_mark(new, mark);
            match state {
                State::Resident => self.now_resident(new),
                // What the read brings is for the old number; the page is read again when wanted.
                State::Loading => self.table.set(new, State::Stored, None),
                State::Zeroes => self.now_zeroes(new),
                _ => self.table.set(new, state, place),
            }
            if state == State::Staged
                && let Some(frame) = place
            {
                self.staging.rename(frame, new);
            }
            if state == State::Compressed
                && let Some(cell) = place
            {
                self.pool.rename(cell, new);
            }
        }
        if !all_known {
            // It was registered, but moved before it was entered.
            self.note_present(to, region.first);
        }
        self.stats.set(Stat::ManagedBytes, self.space.bytes());
        Ok(())
    }
}

/// Where a part of what moved is now.
pub(super) fn moved_along(part: &Range<u64>, from: &Range<u64>, to: &Range<u64>) -> Range<u64> {
    to.start + (part.start - from.start)..to.start + (part.end - from.start)
}

/// The blocks of which pages were given up.
#[derive(Debug, Default)]
pub(super) struct GivenUp {
    pub(super) blocks: BTreeMap<u32, GivingUp>,
    /// When it was looked last what is left of them.
    pub(super) seen: Option<Instant>,
    /// Memory being given up that was registered and not yet entered, and until when that may take.
    pub(super) unknown: Vec<(Range<u64>, Instant)>,
}

/// What is to be done about a block of which pages were given up.
#[derive(Debug)]
pub(super) struct GivingUp {
    /// Which were in place and not seen gone since, a bit each.
    pages: u64,
    /// When to look what is left.
    look: Instant,
    /// How long after that to look again.
    wait: Duration,
    /// From then on what is in place counts.
    until: Instant,
    /// The kernel was to take them away.
    taken: bool,
}

impl GivingUp {
    fn new(now: Instant) -> Self {
        let (look, until) = (now + FIRST_LOOK, now + GIVING_UP);
        Self { pages: 0, look, wait: FIRST_LOOK, until, taken: false }
    }

    /// Pages are given up, some of them perhaps again.
    fn note(&mut self, pages: u64, now: Instant) {
        let seen = Self::new(now);
        *self = Self { pages: self.pages | pages, look: self.look.min(seen.look), ..seen };
    }

    #[cfg(test)]
    pub(super) fn digest(&self, until: impl Fn(Instant) -> Duration) -> (u64, [Duration; 3], bool) {
        (self.pages, [until(self.look), self.wait, until(self.until)], self.taken)
    }

    #[cfg(test)]
    pub(super) fn wait(&self) -> Duration {
        self.wait
    }
}
