//! Reading ahead of threads that walk through memory: what is on the store is read, what is compressed is put
//! in place.

use super::landing::{WIDE_PAGES, is_wide};
use super::load::REMEMBERED;
use super::strides::Pieces;
use super::walks::{Ahead, Placing, Way};
use super::{Engine, Purpose};
use crate::queues::Queues;
use crate::slots::SEGMENT_SLOTS;
use crate::space::BLOCK_PAGES;
use crate::table::{State, Table};
use overdrive_sys::uffd::PAGE;
use std::ops::Range;

/// Compressed pages put in place ahead of a walk in one go: whoever waits for another page waits for these
/// too.
const EXPAND_MAX: u32 = 16;
/// So many pages that are in place are passed over in one go, at most.
const PASSED_MAX: u32 = 4096;
/// Of what was read ahead of a sure walk so many pages are put in place before anybody waits for them: its
/// thread goes on while the next are read, and sleeps the more rarely.
const PLACED_ALONG: u32 = 2 * WIDE_PAGES;
/// Pages read ahead in pieces, at most.
const IN_PIECES_MAX: usize = 32;
/// Where so many pieces are read ahead, so many pages are put in place before anybody waits for them.
const PLACED_FROM: u32 = 16;
const PLACED_MAX: u32 = 8;

impl Engine {
    /// A thread that goes through memory page by page, or from piece to piece in equal steps, has the next
    /// pages read before it gets there. It came to `offset` in the page. `scanned`: the page was read with
    /// its neighbours, so the thread is not on its way from piece to piece. True when it was on its way.
    pub(super) fn read_ahead(&mut self, page: u32, offset: u64, thread: u32, scanned: bool) -> bool {
        let patient = self.walks.in_vain > REMEMBERED / 2;
        let along = self.note_walk(page, thread, patient);
        if !scanned
            && !along.is_some_and(|ahead| ahead.is_sure())
            && let Some(pieces) = self.walks.strides.note(thread, u64::from(page) * PAGE + offset, patient)
        {
            self.read_pieces(pieces);
            return true;
        }
        let Some(ahead) = along else {
            self.follow(page, thread);
            return false;
        };
        self.read_along(page, ahead.way, ahead.count);
        if ahead.is_sure() {
            self.walks.placing.push(Placing { ahead, page, left: PLACED_ALONG });
        }
        if let Some(next) = self.next_fault(page, ahead.way) {
            self.walks.expect(&ahead, next);
        }
        true
    }

    /// What to read ahead, or fill, of a thread that faulted. `patient`: what is read ahead is hardly used.
    pub(super) fn note_walk(&mut self, page: u32, thread: u32, patient: bool) -> Option<Ahead> {
        let were_there = |pages| were_there(&self.table, &self.queues, pages);
        self.walks.note(thread, page, patient, were_there)
    }

    /// The next page on the way that is not in place, unless too many have been passed.
    fn next_away(&self, page: u32, way: Way, passed: &mut u32) -> Option<u32> {
        let mut page = page;
        loop {
            let next = way.next(page)?;
            let Some(last) = in_place_from(&self.table, &self.queues, next, way) else { return Some(next) };
            *passed += last.abs_diff(page);
            if *passed > PASSED_MAX {
                return None;
            }
            page = last;
        }
    }

    /// Where a walk faults next: at the first page that is neither in place nor comes with one that is waited
    /// for.
    fn next_fault(&self, page: u32, way: Way) -> Option<u32> {
        let mut passed = 0;
        let mut away = std::iter::successors(self.next_away(page, way, &mut passed), |&page| {
            self.next_away(page, way, &mut passed)
        });
        away.find(|&page| !self.is_waited_for(page))
    }

    /// Whether somebody waits for what is read of this page, or with it.
    fn is_waited_for(&self, page: u32) -> bool {
        let is_read = page < self.table.len() && self.table.state(page) == State::Loading;
        let load = || self.loads[self.table.place(page)? as usize].as_ref();
        is_read && load().is_some_and(|load| load.wanted)
    }

    /// Starts reads for what of the pieces is on the store, only where there are slots that demand will
    /// hardly need. What was read stays in its slot until it is wanted, but for the nearest pages of a stride
    /// that has gone on for a while.
    fn read_pieces(&mut self, pieces: Pieces) {
        let mut left = if pieces.count < PLACED_FROM { 0 } else { PLACED_MAX };
        for page in pieces.pages().take(IN_PIECES_MAX) {
            if !self.is_known(page) {
                return;
            }
            if self.table.state(page) == State::Stored {
                if !self.read_one_ahead(page, Purpose::Ahead) {
                    return;
                }
            } else if left > 0
                && let Some(slot) = self.landed_ahead(page, Purpose::is_ahead).filter(|&slot| !is_wide(slot))
                && !self.has_to_wait(1)
            {
                self.install_landed(slot);
                left -= 1;
            }
        }
    }

    /// Starts reads for what of the next `count` pages upwards or downwards that are not in place is on the
    /// store, as far as there is room.
    fn read_along(&mut self, page: u32, way: Way, count: u32) {
        let (mut page, mut left, mut expanded, mut unmarked, mut passed) = (page, count, 0, 0..0, 0);
        while left > 0
            && let Some(next) = self.next_away(page, way, &mut passed).filter(|&next| self.is_known(next))
        {
            let mut pages = next..next + 1;
            if self.table.state(next) == State::Compressed {
                if !unmarked.contains(&next) {
                    unmarked = self.unmarked_around(next, EXPAND_MAX);
                }
                if expanded == EXPAND_MAX || !unmarked.contains(&next) || !self.expand_ahead(next) {
                    return;
                }
                expanded += 1;
            } else if self.table.state(next) == State::Stored {
                pages = self.neighbours(next, way);
                if pages.len() > 1 && !self.free_landing.ask_for_wide(self.limits.total) {
                    pages = next..next + 1;
                }
                let has_room = self.held() + (pages.len() as u64) < self.limits.total;
                if !has_room || !self.start_load(pages.clone(), Purpose::Ahead) {
                    return;
                }
            }
            left = left.saturating_sub(pages.len() as u32);
            page = if way == Way::Up { pages.end - 1 } else { pages.start };
        }
    }

    /// Puts pages that were read ahead of sure walks in place, for each what came with one read, as far as
    /// there is room. True if there were any.
    pub(super) fn place_along(&mut self) -> bool {
        let walks = std::mem::take(&mut self.walks.placing);
        let any = !walks.is_empty();
        for mut walk in walks {
            if !self.place_next(&mut walk) {
                continue;
            }
            if let Some(next) = self.next_fault(walk.page, walk.ahead.way) {
                self.walks.expect(&walk.ahead, next);
            }
            if walk.left > 0 {
                self.walks.placing.push(walk);
            }
        }
        any
    }

    /// False when there is nothing to put in place, or no room.
    fn place_next(&mut self, walk: &mut Placing) -> bool {
        let Some(next) = self.next_fault(walk.page, walk.ahead.way).filter(|&next| self.is_known(next))
        else {
            return false;
        };
        let Some(slot) = self.landed_ahead(next, Purpose::is_ahead) else { return false };
        let pages = self.loads[slot as usize].as_ref().map_or(0, |load| load.pages.len() as u32);
        if !self.waiting.is_empty() || self.has_to_wait(u64::from(pages)) {
            return false;
        }
        self.install_landed(slot);
        (walk.page, walk.left) = (next, walk.left.saturating_sub(pages));
        true
    }

    pub(super) fn is_known(&self, page: u32) -> bool {
        page < self.table.len() && self.space.address(page).is_some()
    }

    /// The page and those behind it that one read can bring: on the store, and there in a row too.
    fn neighbours(&self, page: u32, way: Way) -> Range<u32> {
        let slot = self.table.slot(page);
        let follows = |other: u32, its_slot: u32| {
            self.is_known(other)
                && self.table.state(other) == State::Stored
                && self.table.slot(other) == its_slot
        };
        if way == Way::Up {
            let most = WIDE_PAGES.min(SEGMENT_SLOTS - slot % SEGMENT_SLOTS);
            let more = (1..most).take_while(|&ahead| follows(page + ahead, slot + ahead)).count();
            page..page + 1 + more as u32
        } else {
            let most = WIDE_PAGES.min(slot % SEGMENT_SLOTS + 1).min(page + 1);
            let more = (1..most).take_while(|&ahead| follows(page - ahead, slot - ahead)).count();
            page - more as u32..page + 1
        }
    }

    /// Pages in a row where a page put in place does away with nothing, this one among them, of the `most`
    /// that it lies in; none if it is not.
    pub(super) fn unmarked_around(&self, page: u32, most: u32) -> Range<u32> {
        let first = page / most * most;
        let Some((address, pages)) = self.space.next_stretch(first..first + most, most) else {
            return page..page;
        };
        if !pages.contains(&page) {
            return page..page;
        }
        let marked = self.page_map.marked(address, pages.len()).unwrap_or(u64::MAX);
        let is_free = |page: &u32| marked >> (page - pages.start) & 1 == 0;
        let before = (pages.start..page).rev().take_while(is_free).count() as u32;
        let from_here = (page..pages.end).take_while(is_free).count() as u32;
        if from_here == 0 { page..page } else { page - before..page + from_here }
    }
}

/// The last page of those in place that begin with this one and end with its block at the latest. None if it
/// is not in place.
fn in_place_from(table: &Table, queues: &Queues, page: u32, way: Way) -> Option<u32> {
    if page >= table.len() {
        return None;
    }
    let block = page / BLOCK_PAGES;
    if u32::from(queues.resident_in(block)) < BLOCK_PAGES {
        return table.state(page).is_in_place().then_some(page);
    }
    Some(block * BLOCK_PAGES + if way == Way::Up { BLOCK_PAGES - 1 } else { 0 })
}

/// Whether nothing is away of pages that a thread has left out but what was read ahead.
fn were_there(table: &Table, queues: &Queues, pages: Range<u32>) -> bool {
    if pages.len() as u32 > PASSED_MAX {
        return false;
    }
    let mut page = pages.start;
    while page < pages.end {
        page = match in_place_from(table, queues, page, Way::Up) {
            Some(last) => last + 1,
            None if page < table.len() && table.state(page) == State::Loading => page + 1,
            None => return false,
        };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_is_in_place_or_on_its_way() {
        const END: u32 = 2 * BLOCK_PAGES;
        let (mut table, mut queues) = (Table::new(END), Queues::new(2));
        for page in 0..END - 1 {
            let state = if page < BLOCK_PAGES + 2 { State::Resident } else { State::Loading };
            table.set(page, state, None);
            if state == State::Resident {
                queues.arrived(page);
            }
        }
        table.set(END - 1, State::Stored, None);
        let from = |page, way| in_place_from(&table, &queues, page, way);
        assert_eq!((from(1, Way::Up), from(1, Way::Down)), (Some(BLOCK_PAGES - 1), Some(0)));
        assert_eq!((from(BLOCK_PAGES, Way::Up), from(BLOCK_PAGES + 2, Way::Up)), (Some(BLOCK_PAGES), None));
        let were_there = |pages| were_there(&table, &queues, pages);
        assert!(were_there(0..END - 1) && were_there(7..7));
        assert!(!were_there(0..END) && !were_there(END..END + 1), "on the store; nothing at all");
        assert!(!were_there(0..PASSED_MAX + 1));
    }
}
