//! Emptying segments of the store of which little is needed, so that runs stay long: what is needed is read,
//! goes to staging as if it had been evicted just now, and is written elsewhere.
//!
//! That is begun while there are still segments to write to, and a little at a time: who waits for a page
//! goes first. With nowhere to write to everybody waits for it; then it may take a segment's pages beyond the
//! budget, and pages in DRAM give up what the store has of them. Only where that gives no room either is the
//! store full.

use super::load::opened;
use super::{Engine, Purpose};
use crate::numbers::Numbers;
use crate::slots::{EMPTY_LEAST, SEGMENT_SLOTS, Slot};
use crate::space::BLOCK_PAGES;
use crate::stats::Stat;
use crate::table::{State, mark_of};
use overdrive_sys::Errno;
use overdrive_sys::uffd::PAGE;
use std::cmp::Reverse;

/// Pages read for this at a time, while enough segments are empty, when few are and when none is.
const AT_EASE: usize = 8;
const IN_HASTE: usize = 40;
const IN_NEED: usize = SEGMENT_SLOTS as usize;
/// Segments emptied in a row, as all pages are looked at to find theirs: so many, or one for so many pages.
const IN_A_ROW: usize = if cfg!(test) { 2 } else { 64 };
const PAGES_FOR_ONE: usize = 64 << 10;
/// Pages looked at for that in one go, while enough segments are empty.
const LOOKED_AT: u32 = if cfg!(test) { 4 } else { 32 << 10 };
/// Of what was found so many pages are seen to in one go then: of most there may be nothing to read.
const SEEN_TO: usize = if cfg!(test) { 2 } else { 512 };
/// Pages looked at in one go for those in DRAM, which give up their slots; and when all were looked at in
/// vain.
const TAKEN_BACK_AT_ONCE: u32 = 4096;
const TAKEN_BACK_IN_VAIN: u32 = 64;
/// Groups of frames that are left to this: what is read has to go somewhere, or no segment gets empty.
pub(super) const GROUPS_FOR_CLEANING: u32 = if cfg!(test) { 1 } else { 8 };

/// Segments that are being emptied. What is found of their pages may be out of date when its turn comes.
#[derive(Debug, Default)]
pub(super) struct Cleaning {
    /// The segments, and the first page that was not looked at while their pages are looked for.
    chosen: Numbers,
    next: Option<u32>,
    /// Slots and the pages that they were found to have; the last are the next to be seen to.
    found: Vec<(Slot, u32)>,
    taken_back: TakenBack,
}

/// Where it was looked for slots of pages in DRAM.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TakenBack {
    next: u32,
    /// Pages looked at since a segment was worth emptying.
    in_vain: u32,
}

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
        let is_needed = self.has_nowhere_to_write();
        if is_needed {
            self.take_slots_back();
        }
        let most = match empty {
            _ if is_needed => IN_NEED,
            ..EMPTY_LEAST => IN_HASTE,
            _ => AT_EASE,
        };
        let mut reads = self.being_cleaned();
        if !self.knows_what_to_empty(is_needed, reads) {
            return;
        }
        let seen_to = if is_needed { self.cleaning.found.len() } else { SEEN_TO };
        for _ in 0..seen_to {
            let Some(&(slot, page)) = self.cleaning.found.last() else { return };
            if reads >= most || !self.has_room_to_clean(reads) {
                return;
            }
            if self.table.slot(page) == slot && !self.empty_slot(page, is_needed, &mut reads) {
                return;
            }
            self.cleaning.found.pop();
        }
    }

    /// Goes on looking for the pages of segments that are worth emptying. True when some are left to be seen
    /// to.
    fn knows_what_to_empty(&mut self, is_needed: bool, reads: usize) -> bool {
        if self.cleaning.next.is_none() {
            if !self.cleaning.found.is_empty() {
                return true;
            }
            // Of the last ones the rest is on its way.
            if reads > 0 || !self.choose_segments() {
                return false;
            }
        }
        let next = self.cleaning.next.take().unwrap_or(0);
        let end = if is_needed { self.table.len() } else { next.saturating_add(LOOKED_AT) };
        let Cleaning { chosen, found, next: rest, .. } = &mut self.cleaning;
        let all = self.table.with_slots(next..end).map(|(page, slot)| (slot, page));
        found.extend(all.filter(|(slot, _)| chosen.has(slot / SEGMENT_SLOTS)));
        if end < self.table.len() {
            *rest = Some(end);
            return false;
        }
        // Those with the least work come first, segment by segment.
        found.sort_unstable_by_key(|&(slot, _)| Reverse((self.slots.live_in(slot / SEGMENT_SLOTS), slot)));
        true
    }

    /// Those that are worth emptying most. False when none is.
    fn choose_segments(&mut self) -> bool {
        let most = (self.table.len() as usize / PAGES_FOR_ONE).max(IN_A_ROW);
        let mut segments = self.slots.sparse().take(most).peekable();
        let some = segments.peek().is_some();
        self.cleaning.chosen.clear_all();
        segments.for_each(|segment| self.cleaning.chosen.note(segment));
        some
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
    /// pages: by those beyond what is being written, which goes first, and however much else is held when
    /// nothing is.
    fn has_room_to_clean(&self, reads: usize) -> bool {
        let will_be_held = self.held() + reads as u64;
        if self.has_nowhere_to_write() {
            self.writes_nothing() || will_be_held < self.limits.total + u64::from(SEGMENT_SLOTS)
        } else {
            will_be_held < self.limits.total
        }
    }

    /// Pages wait to be written, and no segment has room.
    pub(super) fn has_nowhere_to_write(&self) -> bool {
        !self.dirty.is_empty() && self.slots.room_for_run() == 0
    }

    /// What has to be written cannot be, and that will not change: no segment has room, will have it when
    /// writes are over, or can be emptied.
    pub(super) fn is_store_full(&self) -> bool {
        self.has_nowhere_to_write() && self.writes_nothing() && !self.waits_for_segment()
    }

    /// Nothing can be written before a segment is emptied, and one will be.
    pub(super) fn waits_for_segment(&self) -> bool {
        let can_be_emptied = || self.slots.sparse().next().is_some() || self.being_cleaned() > 0;
        self.has_nowhere_to_write()
            && self.staging.free() > 0
            && (can_be_emptied() || self.takes_slots_back())
    }

    /// Pages that are in DRAM are about to give up their slots, as nothing else gives room.
    pub(super) fn takes_slots_back(&self) -> bool {
        let is_over = self.cleaning.taken_back.in_vain >= self.table.len();
        !is_over && self.has_nowhere_to_write() && self.slots.sparse().next().is_none()
    }

    /// They do so, some at a time, until a segment is worth emptying.
    fn take_slots_back(&mut self) {
        if self.slots.sparse().next().is_some() {
            self.cleaning.taken_back.in_vain = 0;
            return;
        }
        let all = self.table.len();
        let most = if self.takes_slots_back() { TAKEN_BACK_AT_ONCE } else { TAKEN_BACK_IN_VAIN };
        let first = self.cleaning.taken_back.next;
        let end = first.saturating_add(most).min(all);
        let pages: Vec<_> = self.table.with_slots(first..end).collect();
        for (page, slot) in pages {
            // What a child reads stays on the store.
            if !self.slots.is_held(slot)
                && matches!(self.table.state(page), State::Resident | State::Compressed)
            {
                self.leave_slot(page);
            }
        }
        let taken_back = &mut self.cleaning.taken_back;
        taken_back.next = if end < all { end } else { 0 };
        taken_back.in_vain = (taken_back.in_vain + end.saturating_sub(first)).min(all);
    }

    /// Sees to it that a page leaves its slot. False when that has to wait for a place to read it to.
    fn empty_slot(&mut self, page: u32, is_needed: bool, reads: &mut usize) -> bool {
        if is_needed {
            self.give_back_unused(page);
        }
        match self.table.state(page) {
            State::Resident | State::Compressed => self.leave_slot(page),
            State::Staged => self.write_once_more(page),
            State::Stored if !(is_needed || self.free_landing.has_spare()) => return false,
            State::Stored => *reads += usize::from(self.start_load(page..page + 1, Purpose::Cleaning)),
            _ => {}
        }
        true
    }

    /// A page in a frame that the store has as it is: it is written once more.
    fn write_once_more(&mut self, page: u32) {
        let Some(frame) = self.table.place(page).filter(|_| self.is_written(page)) else { return };
        self.leave_slot(page);
        // One that is to be compressed is looked at again then.
        if !self.soft.contains(&frame) {
            self.staging.hold(frame);
            // All frames that were filled after this one wait for it to be given back.
            self.dirty.push_front(frame);
        }
    }

    /// What was read goes to staging, many pages at a time: they take a group of frames.
    fn stage_cleaned(&mut self) {
        let landed = self.landed.iter().filter(|&&slot| self.is_cleaned(slot)).count();
        // Groups of frames are few when nothing can be written.
        let enough = if self.has_nowhere_to_write() { IN_NEED } else { AT_EASE };
        if landed == 0 || landed < enough && landed < self.being_cleaned() {
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
        if let Err(errno) = self.userfault.copy(self.frames.address(frame), content, false) {
            // An event waits to be read: later.
            self.unmovable.frames_taken |= errno == Errno::EXIST;
            self.table.set(page, State::Stored, None);
            return false;
        }
        self.leave_slot(page);
        self.wait_in_frame(page, frame);
        true
    }
}
