//! Emptying segments of the store of which little is needed, so that runs stay long: what is needed is read,
//! goes to staging as if it had been evicted just now, and is written elsewhere.
//!
//! That is begun while there are still segments to write to, and a little at a time: who waits for a page
//! goes first. It takes no memory beyond the budget, unless nothing can be written otherwise.

use super::load::opened;
use super::{Engine, Purpose};
use crate::slots::{EMPTY_LEAST, SEGMENT_SLOTS};
use crate::space::BLOCK_PAGES;
use crate::stats::Stat;
use crate::table::{State, mark_of};
use overdrive_sys::uffd::PAGE;

/// Pages read for this at a time, while enough segments are empty and when few are.
const AT_EASE: usize = 8;
const IN_HASTE: usize = 40;
/// Segments looked at in one go: of some all that is left is on its way already.
const LOOKED_AT: usize = 8;

impl Engine {
    /// Goes on with it where it is time for that.
    pub(super) fn clean(&mut self) {
        if self.leaving.is_none() {
            self.stage_cleaned();
        }
        let empty = self.slots.empty_segments();
        if empty >= self.slots.empty_wanted() {
            return;
        }
        let most = if empty < EMPTY_LEAST { IN_HASTE } else { AT_EASE };
        let segments: [Option<u32>; LOOKED_AT] = {
            let mut sparse = self.slots.sparse();
            std::array::from_fn(|_| sparse.next())
        };
        let mut reads = self.being_cleaned();
        for segment in segments.into_iter().flatten() {
            if reads >= most || !self.has_room_to_clean(reads) {
                return;
            }
            reads += self.empty_segment(segment, most - reads);
        }
    }

    /// Pages that are read for this, or were and wait in their slots.
    fn being_cleaned(&self) -> usize {
        self.loads.iter().flatten().filter(|load| load.purpose == Purpose::Cleaning).count()
    }

    /// Whether what has landed in this slot was read for this.
    fn is_cleaned(&self, slot: u32) -> bool {
        self.loads[slot as usize].as_ref().is_some_and(|load| load.purpose == Purpose::Cleaning)
    }

    /// Whether what is read will fit the budget. With nowhere to write to it has to be left by a segment's
    /// pages.
    fn has_room_to_clean(&self, reads: usize) -> bool {
        let beyond = if self.slots.room_for_run() == 0 { u64::from(SEGMENT_SLOTS) } else { 0 };
        self.held() + (reads as u64) < self.limits.total + beyond
    }

    /// Sees to the pages that a segment has, reading `most` of them. Returns how many.
    fn empty_segment(&mut self, segment: u32, most: usize) -> usize {
        let mut listed = [(0, 0); SEGMENT_SLOTS as usize];
        let mut count = 0;
        for (entry, found) in listed.iter_mut().zip(self.slots.in_segment(segment)) {
            *entry = found;
            count += 1;
        }
        let mut reads = 0;
        for &(slot, page) in &listed[..count] {
            match self.table.state(page) {
                State::Resident | State::Compressed => {
                    self.table.set_slot(page, 0);
                    self.slots.give_up(slot);
                }
                State::Staged => self.write_once_more(page),
                State::Stored if reads == most || !self.free_landing.has_spare() => break,
                State::Stored => reads += usize::from(self.start_load(page..page + 1, Purpose::Cleaning)),
                _ => {}
            }
        }
        reads
    }

    /// A page in a frame that the store has as it is: it is written once more.
    fn write_once_more(&mut self, page: u32) {
        let Some(frame) = self.table.place(page).filter(|_| self.is_written(page)) else { return };
        let slot = self.table.set_slot(page, 0);
        self.slots.give_up(slot);
        // One that is to be compressed is looked at again then.
        if !self.soft.contains(&frame) {
            self.staging.hold(frame);
            self.dirty.push_back(frame);
        }
    }

    /// What was read goes to staging, many pages at a time: they take a group of frames.
    fn stage_cleaned(&mut self) {
        let landed = self.landed.iter().filter(|&&slot| self.is_cleaned(slot)).count();
        if landed == 0 || landed < AT_EASE && landed < self.being_cleaned() {
            return;
        }
        let Some(group) = self.staging.take() else { return };
        let mut frame = group;
        for _ in 0..self.landed.len() {
            let Some(slot) = self.landed.pop_front() else { break };
            if frame < group + BLOCK_PAGES && self.is_cleaned(slot) {
                frame += u32::from(self.stage_one(slot, frame));
            } else {
                self.landed.push_back(slot);
            }
        }
        self.staging.put_back_if_empty(group);
    }

    /// One page from its landing slot to a frame, if it is still wanted there and what was written once.
    fn stage_one(&mut self, landing: u32, frame: u32) -> bool {
        let Some(load) = self.loads[landing as usize].take() else { return false };
        self.free_landing.put(landing);
        let page = load.pages.start;
        if self.table.state(page) != State::Loading || self.table.place(page) != Some(landing) {
            return false;
        }
        let content = opened(&mut self.io, self.seal.as_ref(), &self.slots, landing, 0);
        if mark_of(content, self.seed) != self.table.mark(page) {
            self.stats.add(Stat::StoreErrors, 1);
            self.read_again(page, landing, load.tries, PAGE as i32);
            return false;
        }
        if self.userfault.copy(self.frames.address(frame), content, false).is_err() {
            // An event waits to be read: later.
            self.table.set(page, State::Stored, None);
            return false;
        }
        let slot = self.table.set_slot(page, 0);
        self.slots.give_up(slot);
        self.wait_in_frame(page, frame);
        true
    }
}
