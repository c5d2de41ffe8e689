//! Reading ahead of threads that walk through memory: what is on the store is read, what is compressed is put
//! in place.

use super::landing::{WIDE_PAGES, is_wide};
use super::load::REMEMBERED;
use super::strides::Pieces;
use super::walks::Way;
use super::{Engine, Purpose};
use crate::slots::SEGMENT_SLOTS;
use crate::table::State;
use overdrive_sys::uffd::PAGE;
use std::ops::Range;

/// Compressed pages put in place ahead of a walk in one go: whoever waits for another page waits for these
/// too.
const EXPAND_MAX: u32 = 16;
/// So many pages that are in place are passed over to tell where a walk faults next.
const PASSED_MAX: u32 = 512;
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
        let along = self.walks.note(thread, page, patient);
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
        // Its next fault is at the first page that is neither in place nor comes with one that is waited for.
        let pages = std::iter::successors(ahead.way.next(page), |&page| ahead.way.next(page));
        let mut away = pages.take(PASSED_MAX as usize).skip_while(|&page| self.comes_by_itself(page));
        if let Some(next) = away.next() {
            self.walks.expect(&ahead, next);
        }
        true
    }

    fn comes_by_itself(&self, page: u32) -> bool {
        let state = if page < self.table.len() { self.table.state(page) } else { State::Empty };
        let load = || self.loads[self.table.place(page)? as usize].as_ref();
        state.is_in_place() || state == State::Loading && load().is_some_and(|load| load.wanted)
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

    /// Starts reads for what of the next `count` pages upwards or downwards is on the store, as far as there
    /// is room.
    fn read_along(&mut self, page: u32, way: Way, count: u32) {
        let (mut page, mut left, mut expanded, mut unmarked) = (page, count, 0, 0..0);
        while left > 0
            && let Some(next) = way.next(page).filter(|&next| self.is_known(next))
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
