//! Between staging and the store: pages that compress are kept in DRAM for longer.

use super::Engine;
use crate::platform::Instant;
use crate::pool::Cell;
use crate::slots::SEGMENT_SLOTS;
use crate::space::BLOCK_PAGES;
use crate::stats::Stat;
use crate::table::{State, Table, mark_of};
use overdrive_sys::Errno;
use overdrive_sys::uffd::PAGE;
use std::collections::BTreeSet;
use std::time::Duration;

/// Pages compressed at a time: faults wait for these, or for a few times as many while room is short.
const AT_ONCE: usize = 8;
/// As long as so many frames wait to be written, no more are added to them.
const WAITING_MAX: usize = 2 * SEGMENT_SLOTS as usize;

impl Engine {
    /// Whether a page that was just evicted should be compressed.
    pub(super) fn is_worth_compressing(&mut self, page: u32) -> bool {
        self.tier.wants(page / BLOCK_PAGES) && self.pool.is_worth_a_try()
    }

    /// Compresses some pages of the oldest frames, so that these can be given back. What does not compress,
    /// or finds no room, goes to the store. True when there was something to do.
    pub(super) fn compress_some(&mut self, is_short: bool) -> bool {
        let (started, mut tried) = (Instant::now(), 0);
        for _ in 0..AT_ONCE {
            if tried > 0 && self.others_come_first(is_short) {
                break;
            }
            let Some(frame) = self.soft.pop_front() else { break };
            tried += 1;
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
        if tried > 0 {
            self.tier.note_compressed(tried, started);
        }
        tried > 0
    }

    /// Makes room in the compressed tier before it is full: what came to it long ago goes to the store,
    /// through staging. True when that made progress.
    pub(super) fn spill(&mut self) -> bool {
        if !self.pool.is_nearly_full() || self.dirty.len() >= WAITING_MAX {
            return false;
        }
        // It takes a group of frames before it gives any memory back. Without room for that, what is on its
        // way to the store goes first.
        let has_room = self.held() + u64::from(BLOCK_PAGES) <= self.limits.total;
        let is_something_under_way = !self.dirty.is_empty() || !self.writes_nothing();
        if !has_room && is_something_under_way {
            return false;
        }
        let oldest = self.longest_compressed();
        let group = if oldest.is_empty() { None } else { self.take_group() };
        let Some(group) = group else { return false };
        let (mut any, mut page_bytes) = (false, [0; PAGE as usize]);
        for (frame, (cell, page)) in (group..).zip(oldest) {
            if !self.is_written(page) {
                let Some(content) = self.pool.get(cell, &mut page_bytes) else { continue };
                // An event waits to be read: later.
                if let Err(errno) = self.userfault.copy(self.frames.address(frame), content, false) {
                    self.unmovable.frames_taken |= errno == Errno::EXIST;
                    break;
                }
                self.wait_in_frame(page, frame);
            } else {
                self.table.set(page, State::Stored, None);
            }
            self.pool.give_up(cell);
            any = true;
        }
        self.staging.put_back_if_empty(group);
        any
    }

    /// Closes holes in the compressed tier. True when there were some.
    pub(super) fn move_together(&mut self) -> bool {
        let moved = self.pool.move_together();
        for &(page, cell) in &moved {
            self.table.set(page, State::Compressed, Some(cell));
        }
        !moved.is_empty()
    }

    /// Pages that came to the tier long ago, with all of their blocks that are there too: what lies in a row
    /// in memory comes to lie in a row on the store, where one read brings it. No more than a group has
    /// frames.
    fn longest_compressed(&mut self) -> Vec<(Cell, u32)> {
        let mut all: Vec<(Cell, u32)> = Vec::new();
        let mut blocks = BTreeSet::new();
        while let Some((_, page)) =
            self.pool.long_ago().filter(|&(_, page)| blocks.insert(page / BLOCK_PAGES))
        {
            let block = page / BLOCK_PAGES * BLOCK_PAGES..(page / BLOCK_PAGES + 1) * BLOCK_PAGES;
            let cells = block.filter_map(|page| Some((self.table.cell(page)?, page)));
            let cells: Vec<_> = cells.filter(|&(cell, _)| !self.pool.is_read_by_child(cell)).collect();
            if all.len() + cells.len() > BLOCK_PAGES as usize {
                break;
            }
            all.extend(cells);
        }
        all
    }

    /// A thread waits for a page that is compressed. Says how old it was in the tier, and what it took, when
    /// the page is in place.
    pub(super) fn expand(&mut self, page: u32, address: u64) -> Option<(u32, Duration)> {
        if self.has_to_wait(1) {
            self.stats.add(Stat::DirectStalls, 1);
            self.waiting.push_back(page);
            return None;
        }
        let (started, mut content) = (Instant::now(), [0; PAGE as usize]);
        let Some(content) = self.compressed_content(&self.table, page, &mut content) else {
            self.expand_in_vain(page);
            return None;
        };
        let outcome = self.userfault.copy(address, content, true);
        let age = self.table.place(page).map_or(0, |cell| self.pool.age(cell));
        let told = outcome.is_ok().then(|| (age, started.elapsed()));
        self.stats.add(Stat::Expands, u64::from(told.is_some()));
        self.helping.lending.note_own(u64::from(told.is_some()));
        self.placed(page, address, outcome.map(drop));
        told
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
            self.tier.note_expanded_ahead();
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
        if let Some(cell) = self.table.cell(page) {
            self.pool.give_up(cell);
        }
    }
}
