//! From staging to the store, in long runs.

use super::{Engine, Notice};
use crate::platform::{Instant, PageIo};
use crate::seal::Seal;
use crate::slots::{EMPTY_LEAST, SEGMENT_SLOTS, Slot};
use crate::stats::Stat;
use crate::table::State;
use overdrive_sys::Errno;
use overdrive_sys::uffd::PAGE;
use std::ops::Range;

/// How long a store that refused a write is left alone.
const WRITE_AGAIN: std::time::Duration = std::time::Duration::from_millis(20);

/// Queues a write of copies of pages for the slots from `slot` on, sealed where the store is encrypted.
///
/// # Errors
/// As [`PageIo::write_copy`].
pub(super) fn write_copies<'a>(
    io: &mut PageIo,
    seal: Option<&Seal>,
    opening: u64,
    token: u32,
    slot: Slot,
    pages: impl ExactSizeIterator<Item = &'a [u8]>,
) -> Result<(), Errno> {
    let bytes = pages.len() as u32 * PAGE as u32;
    let copies = io.copy_mut(token).chunks_exact_mut(PAGE as usize);
    for ((slot, page), copy) in (slot..).zip(pages).zip(copies) {
        copy.copy_from_slice(page);
        seal.into_iter().for_each(|seal| seal.seal(copy, slot, opening));
    }
    io.write_copy(token, u64::from(slot) * PAGE, bytes)
}

impl Engine {
    /// Starts writes while there are full runs, or while room is short.
    pub(super) fn start_writes(&mut self) -> Result<(), Errno> {
        if self.write_again.is_some_and(|again| Instant::now() < again) {
            return Ok(());
        }
        if !self.may_write() {
            return Ok(());
        }
        self.lease();
        self.clean();
        while let Some(&token) = self.free_runs.last() {
            let hurry = self.writes_nothing() && self.held() + self.kept_free() > self.limits.total;
            let wanted = if hurry { 1 } else { SEGMENT_SLOTS as usize };
            if self.dirty.len() < wanted || !self.may_write() || !self.start_write(token)? {
                break;
            }
        }
        Ok(())
    }

    fn start_write(&mut self, token: u32) -> Result<bool, Errno> {
        let room = self.slots.room_for_run() as usize;
        let mut frames = std::mem::take(&mut self.runs[token as usize].frames);
        frames.clear();
        while frames.len() < room
            && let Some(frame) = self.dirty.pop_front()
        {
            // A page that went back or was given up meanwhile needs no writing.
            match self.staging.page(frame) {
                Some(page) if self.is_in(page, frame) => frames.push(frame),
                _ => self.staging.settle(frame),
            }
        }
        let Some(slot) = self.slots.take_run(frames.len() as u32) else {
            self.dirty.extend(frames.iter());
            self.runs[token as usize].frames = frames;
            return Ok(false);
        };
        for (slot, &frame) in (slot..).zip(&frames) {
            if let Some(page) = self.staging.page(frame) {
                self.table.set_slot(page, slot);
            }
        }
        self.hand_over(token, slot, &frames)?;
        if let Some(allowance) = &mut self.allowance {
            allowance.spend(frames.len() as u32);
        }
        self.free_runs.pop();
        self.runs[token as usize] = super::Run { frames, slot };
        Ok(true)
    }

    /// Queues a run of frames for the slots from `slot` on: as they are, or sealed copies. The frames keep
    /// their plain content, from which a page can go back while it is written.
    fn hand_over(&mut self, token: u32, slot: u32, frames: &[u32]) -> Result<(), Errno> {
        let offset = u64::from(slot) * PAGE;
        let Some(seal) = &self.seal else { return self.io.write(token, offset, &self.frames, frames) };
        let contents = frames.iter().map(|&frame| self.frames.page(frame));
        write_copies(&mut self.io, Some(seal), self.slots.opening(slot), token, slot, contents)
    }

    pub(super) fn is_in(&self, page: u32, frame: u32) -> bool {
        self.table.state(page) == State::Staged && self.table.place(page) == Some(frame)
    }

    /// A write is over.
    pub(super) fn wrote(&mut self, token: u32, result: i32) {
        let run = std::mem::take(&mut self.runs[token as usize]);
        self.free_runs.push(token);
        let sound = result == run.frames.len() as i32 * PAGE as i32;
        if sound {
            self.stats.add(Stat::Written, run.frames.len() as u64);
        } else {
            self.note_failed_write();
            self.leave_slots(run.slot..run.slot + run.frames.len() as u32);
        }
        self.no_space = result == -Errno::NOSPC.raw_os_error();
        for &frame in &run.frames {
            match self.staging.page(frame) {
                Some(page) if !sound && self.is_in(page, frame) => self.dirty.push_back(frame),
                Some(_) => self.staging.settle(frame),
                None => {}
            }
        }
        self.slots.written(run.slot);
        self.runs[token as usize].frames = run.frames;
    }

    pub(super) fn note_failed_write(&mut self) {
        self.stats.add(Stat::StoreErrors, 1);
        self.write_again = Some(Instant::now() + WRITE_AGAIN);
    }

    /// What the store has of a page is not needed any more.
    pub(super) fn leave_slot(&mut self, page: u32) {
        let slot = self.table.set_slot(page, 0);
        self.slots.give_up(slot);
    }

    /// Whoever relies on these slots must not, whatever number its page has by now.
    fn leave_slots(&mut self, slots: Range<Slot>) {
        let all = self.table.with_slots(0..self.table.len());
        let pages: Vec<_> = all.filter(|(_, slot)| slots.contains(slot)).map(|(page, _)| page).collect();
        pages.into_iter().for_each(|page| self.leave_slot(page));
    }

    /// No write is in flight.
    pub(super) fn writes_nothing(&self) -> bool {
        self.free_runs.len() == super::WRITES as usize
    }

    /// Whether the day's share allows another run.
    fn may_write(&mut self) -> bool {
        let Some(allowance) = &mut self.allowance else { return true };
        let paced = !self.dirty.is_empty() && !allowance.has(SEGMENT_SLOTS, Instant::now());
        if paced && !self.paced {
            self.stats.add(Stat::WritesPaced, 1);
            self.notices.tell_once(&Notice::WritesPaced);
        }
        self.paced = paced;
        !paced
    }

    /// Takes another part of a store that others use too, when room runs short.
    fn lease(&mut self) {
        if self.slots.empty_segments() < EMPTY_LEAST && !self.dirty.is_empty() {
            self.lease_more();
        }
    }

    /// Takes one where room cannot be gained.
    pub(super) fn lease_more(&mut self) {
        if !self.slots.has_room_to_gain()
            && let Some(range) = self.io.lease()
        {
            let segment = |offset: u64| (offset / (u64::from(SEGMENT_SLOTS) * PAGE)) as u32;
            self.slots.add(segment(range.start)..segment(range.end));
        }
    }
}
