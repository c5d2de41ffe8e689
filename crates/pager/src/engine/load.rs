//! From the store into place: reads, and what they bring.

use super::landing::{is_stale, is_wide};
use super::{Engine, Load, Purpose};
use crate::platform::{Instant, PageIo};
use crate::seal::Seal;
use crate::slots::Slots;
use crate::space::BLOCK_PAGES;
use crate::stats::Stat;
use crate::table::{State, mark_of};
use overdrive_sys::Errno;
use overdrive_sys::uffd::PAGE;
use std::ops::Range;
use std::time::Duration;

/// As soon as so many reads are queued for threads that wait they are handed to the drive, which then works
/// while more are queued. To hand over fewer costs more than it gains, and so does this where so many threads
/// wait at a time that the drive has always plenty to do.
const HANDED_OVER: usize = 4;
const PLENTY: usize = 20;
/// Of so many pages the balance of use is remembered.
pub(super) const REMEMBERED: i32 = 2048;
/// How often a page is read again before it is lost.
pub(super) const READ_AGAIN: u8 = 3;

impl Engine {
    /// Somebody waits for this page, which is on the store or being read.
    pub(super) fn want(&mut self, page: u32) {
        self.want_if_asked(page, true);
    }

    fn want_if_asked(&mut self, page: u32, asked: bool) {
        match self.table.state(page) {
            State::Stored => {
                if self.has_to_wait(1) {
                    self.stats.add(Stat::DirectStalls, 1);
                    self.waiting.push_back(page);
                } else if !self.start_load(page..page + 1, Purpose::Demand) {
                    self.waiting.push_back(page);
                }
            }
            State::Loading => {
                let Some(slot) = self.table.place(page) else { return };
                let Some(load) = &mut self.loads[slot as usize] else { return };
                let (first, landed) = (!load.wanted, load.landed);
                let (pages, purpose) = (load.pages.len() as u64, load.purpose);
                load.asked |= asked && pages == 1;
                if first {
                    load.wanted = true;
                    load.started = Instant::now();
                    self.helping.lending.note_own(1);
                }
                if landed && self.has_room_for(pages, purpose) {
                    self.install_landed(slot);
                } else if landed {
                    self.stats.add(Stat::DirectStalls, u64::from(first));
                    self.waiting.push_back(page);
                }
            }
            _ => {}
        }
    }

    /// Pages that found no slot or no memory before, in the order in which they came. Also those that wait to
    /// be filled with zeroes. Among them are others that were read with one that was wanted: perhaps nobody
    /// has asked for them, and there is a guard where they were.
    pub(super) fn start_waiting(&mut self) {
        self.ration.note(self.held(), self.limits.total, !self.can_make_room());
        for _ in 0..self.waiting.len() {
            let Some(page) = self.waiting.pop_front() else { return };
            let came = self.may_come() && self.start_one_that_waits(page);
            self.ration.excess = 0;
            if !came {
                self.waiting.push_front(page);
                return;
            }
        }
    }

    /// Whether the next that waits need not any longer. Where too much is held it is an excess until it came.
    fn may_come(&mut self) -> bool {
        if !self.has_to_wait(1) {
            return true;
        }
        let held = self.held();
        let may = self.ration.take(held);
        self.ration.excess = if may { (held + 1).saturating_sub(self.limits.total) } else { 0 };
        may
    }

    /// False when there is no landing slot for it.
    fn start_one_that_waits(&mut self, page: u32) -> bool {
        match self.table.state(page) {
            State::Stored => {
                if !self.start_load(page..page + 1, Purpose::Demand) {
                    return false;
                }
                let load = self.table.place(page).and_then(|slot| self.loads[slot as usize].as_mut());
                load.into_iter().for_each(|load| load.asked = false);
            }
            State::Loading => self.want_if_asked(page, false),
            _ => match self.space.address(page) {
                Some(address) if self.page_map.marked(address, 1) == Ok(1) => self.wake(address),
                Some(address) => self.fault_again(address, true),
                None => {}
            },
        }
        true
    }

    /// Reads pages with neighbouring slots in one go. False when there is no landing slot.
    pub(super) fn start_load(&mut self, pages: Range<u32>, purpose: Purpose) -> bool {
        let wanted = purpose == Purpose::Demand;
        let Some(slot) = self.take_landing(pages.len() as u32, wanted) else { return false };
        let offset = u64::from(self.table.slot(pages.start)) * PAGE;
        if self.io.read(slot, offset, pages.len() as u32 * PAGE as u32).is_err() {
            self.free_landing.put(slot);
            return false;
        }
        for page in pages.clone() {
            self.table.set(page, State::Loading, Some(slot));
        }
        match purpose {
            Purpose::Demand => {
                self.stats.add(Stat::Loads, 1);
                self.helping.lending.note_own(1);
            }
            Purpose::Ahead | Purpose::Again => self.stats.add(Stat::ReadAhead, pages.len() as u64),
            Purpose::Cleaning => self.stats.add(Stat::Cleaned, pages.len() as u64),
        }
        self.loads[slot as usize] = Some(Load {
            pages,
            wanted,
            asked: wanted,
            purpose,
            landed: false,
            tries: 0,
            child: None,
            started: Instant::now(),
        });
        if wanted && self.free_landing.most_in_demand() < PLENTY {
            // What the kernel refuses now it is given again at the end of the turn, where an error counts.
            let _ = self.io.submit_from(HANDED_OVER);
        }
        true
    }

    pub(super) fn take_landing(&mut self, pages: u32, wanted: bool) -> Option<u32> {
        loop {
            let slot = self.free_landing.take(pages, wanted);
            if slot.is_some() {
                return slot;
            }
            let is_one = pages == 1;
            let gave_back = self.give_back_oldest(!(wanted && is_one), !wanted)
                || !wanted && is_one && self.give_back_oldest(false, true);
            if !gave_back {
                return None;
            }
        }
    }

    /// Reads a page ahead of who wants it, where that leaves the slots of one page that demand will need and
    /// there is room in memory.
    pub(super) fn read_one_ahead(&mut self, page: u32, purpose: Purpose) -> bool {
        if self.held() + 1 >= self.limits.total {
            return false;
        }
        if !self.free_landing.has_spare() {
            self.give_back_oldest(false, true);
        }
        self.free_landing.has_spare() && self.start_load(page..page + 1, purpose)
    }

    /// What was read ahead longest ago and not used, in a slot of the kind, goes back to being on the store.
    /// False if there is none.
    pub(super) fn give_back_oldest(&mut self, from_wide: bool, if_stale: bool) -> bool {
        let oldest = self.landed.iter().position(|&slot| is_wide(slot) == from_wide);
        let Some(oldest) = oldest else { return false };
        let slot = self.landed[oldest];
        let load = self.loads[slot as usize].as_ref();
        if load.is_none_or(|load| if_stale && !is_stale(load.started)) {
            return false;
        }
        self.landed.remove(oldest);
        self.give_back(slot);
        true
    }

    /// What was read ahead with this page and not used goes back to being on the store.
    pub(super) fn give_back_unused(&mut self, page: u32) {
        if let Some(slot) = self.landed_ahead(page, Purpose::is_ahead) {
            self.landed.retain(|&landed| landed != slot);
            self.give_back(slot);
        }
    }

    /// The slot in which a page waits to be used that was read ahead so.
    pub(super) fn landed_ahead(&self, page: u32, so: fn(Purpose) -> bool) -> Option<u32> {
        let slot = self.table.place(page).filter(|_| self.table.state(page) == State::Loading)?;
        let load = self.loads[slot as usize].as_ref()?;
        (load.landed && so(load.purpose)).then_some(slot)
    }

    /// The balance of use of what is read ahead so.
    fn in_vain(&mut self, purpose: Purpose) -> Option<&mut i32> {
        match purpose {
            Purpose::Ahead => Some(&mut self.walks.in_vain),
            Purpose::Again => Some(&mut self.history.in_vain),
            Purpose::Demand | Purpose::Cleaning => None,
        }
    }

    fn give_back(&mut self, slot: u32) {
        if let Some(load) = self.loads[slot as usize].take() {
            if let Some(in_vain) = self.in_vain(load.purpose) {
                *in_vain = (*in_vain + load.pages.len() as i32).min(REMEMBERED);
            }
            for page in load.pages.clone() {
                if self.table.state(page) == State::Loading && self.table.place(page) == Some(slot) {
                    self.table.set(page, State::Stored, None);
                }
            }
            if load.wanted {
                self.waiting.extend(load.pages);
            }
        }
        self.free_landing.put(slot);
    }

    /// A read is over.
    pub(super) fn landed(&mut self, slot: u32, result: i32) {
        let Some(load) = &mut self.loads[slot as usize] else {
            self.free_landing.put(slot);
            return;
        };
        if load.child.is_some() {
            self.child_landed(slot, result);
            return;
        }
        let bytes = load.pages.len() as i32 * PAGE as i32;
        if result == bytes {
            load.landed = true;
            let (wanted, pages, purpose) = (load.wanted, load.pages.clone(), load.purpose);
            if wanted && self.has_room_for(pages.len() as u64, purpose) {
                self.install(slot);
                return;
            }
            self.landed.push_back(slot);
            if wanted {
                self.stats.add(Stat::DirectStalls, 1);
                // Any of them may be the one, and the others may be given up meanwhile.
                self.waiting.extend(pages);
            }
            return;
        }
        self.stats.add(Stat::StoreErrors, 1);
        if load.pages.len() > 1 || !load.wanted && load.purpose.is_ahead() {
            // Read ahead by mistake or misfortune: page by page, when wanted, it may still work.
            self.give_back(slot);
            return;
        }
        let (page, tries) = (load.pages.start, load.tries);
        self.loads[slot as usize] = None;
        self.free_landing.put(slot);
        self.read_again(page, slot, tries, result);
    }

    /// Whether what one read has brought fits the budget, or has to. For one page that somebody waits for
    /// there was room when its read was begun; of those that are read ahead, for the last of them alone.
    fn has_room_for(&self, pages: u64, purpose: Purpose) -> bool {
        pages == 1 && !purpose.is_ahead() || !self.has_to_wait(pages)
    }

    /// Whether so many pages more have to wait until room is made, as it can be.
    pub(super) fn has_to_wait(&self, pages: u64) -> bool {
        self.held() + pages > self.limits.total + self.ration.excess && self.can_make_room()
    }

    /// Puts what waits in a slot in place.
    pub(super) fn install_landed(&mut self, slot: u32) {
        self.landed.retain(|&landed| landed != slot);
        self.install(slot);
    }

    /// Puts what was read in place, after a look whether it is what was written.
    pub(super) fn install(&mut self, slot: u32) {
        let Some(load) = self.loads[slot as usize].take() else { return };
        if load.purpose.is_ahead() {
            let waited = if load.wanted { load.started.elapsed() } else { Duration::ZERO };
            self.tier.note_read_ahead(load.pages.len() as u32, waited);
        }
        if load.purpose == Purpose::Ahead {
            self.walked.note(load.pages.start / BLOCK_PAGES);
            self.walked.note((load.pages.end - 1) / BLOCK_PAGES);
        }
        let asked = load.asked && !is_wide(slot);
        let (mut run, mut lost) = (load.pages.start..load.pages.start, Vec::new());
        for page in load.pages.clone() {
            let still = self.table.state(page) == State::Loading && self.table.place(page) == Some(slot);
            let index = page - load.pages.start;
            let sound = still
                && mark_of(opened(&mut self.io, self.seal.as_ref(), &self.slots, slot, index), self.seed)
                    == self.table.mark(page);
            if sound {
                run = if run.is_empty() { page..page + 1 } else { run.start..page + 1 };
                continue;
            }
            self.put(slot, load.pages.start, run.clone(), asked);
            run = page + 1..page + 1;
            if still {
                lost.push(page);
            } else if let Some(address) = self.space.address(page) {
                // Given up or moved meanwhile: whoever waits asks again.
                self.wake(address);
            }
        }
        self.put(slot, load.pages.start, run, asked);
        if load.wanted {
            self.note_service(load.started);
        }
        if load.purpose == Purpose::Cleaning {
            for page in load.pages.clone() {
                if self.table.state(page) == State::Resident {
                    self.leave_slot(page);
                }
            }
        }
        if let Some(in_vain) = self.in_vain(load.purpose) {
            // Nobody may come to what is put in place ahead of pieces; that tells nothing of others.
            let is_used = load.wanted || load.purpose == Purpose::Again;
            *in_vain = (*in_vain - if is_used { load.pages.len() as i32 } else { 0 }).max(-REMEMBERED);
            self.stats.add(Stat::ReadAheadUsed, load.pages.len() as u64);
        }
        self.free_landing.put(slot);
        for page in lost {
            self.stats.add(Stat::StoreErrors, 1);
            let tries = if load.purpose.is_ahead() { 0 } else { load.tries };
            self.read_again(page, slot, tries, PAGE as i32);
        }
    }

    /// The store did not give back what it was given: it is asked again a few times, then the page is lost.
    /// `result` is what it said last.
    pub(super) fn read_again(&mut self, page: u32, slot: u32, tries: u8, result: i32) {
        if self.table.state(page) != State::Loading || self.table.place(page) != Some(slot) {
            return;
        }
        if tries >= READ_AGAIN {
            self.lose(page, result);
            return;
        }
        self.table.set(page, State::Stored, None);
        if !self.start_load(page..page + 1, Purpose::Demand) {
            self.waiting.push_back(page);
        } else if let Some(load) = self.table.place(page).and_then(|slot| self.loads[slot as usize].as_mut())
        {
            load.tries = tries + 1;
        }
    }

    pub(super) fn note_service(&mut self, started: Instant) {
        let took_ns = started.elapsed().as_nanos() as u64;
        self.service.record(took_ns);
        self.tier.note_load(took_ns);
        self.stats.raise(Stat::FaultMax, took_ns);
    }

    /// Puts a run of pages of one landing slot in place, as far as its addresses are in a row.
    fn put(&mut self, slot: u32, first: u32, run: Range<u32>, asked: bool) {
        let mut page = run.start;
        while page < run.end {
            let mut block_end = ((page / BLOCK_PAGES + 1) * BLOCK_PAGES).min(run.end);
            let Some(address) = self.space.address(page) else {
                self.table.set(page, State::Stored, None);
                page += 1;
                continue;
            };
            if !asked {
                // For most of these nobody has asked.
                let marked = self.page_map.marked(address, (block_end - page) as usize).unwrap_or(0);
                if marked & 1 == 1 {
                    self.table.set(page, State::Stored, None);
                    self.wake(address);
                    page += 1;
                    continue;
                }
                block_end = block_end.min(page + marked.trailing_zeros());
            }
            let from = (page - first) as usize * PAGE as usize;
            let to = from + (block_end - page) as usize * PAGE as usize;
            let outcome = self.userfault.copy(address, &self.io.landing(slot)[from..to], true);
            match outcome {
                Ok(bytes) => {
                    let done = ((bytes / PAGE) as u32).max(1);
                    (page..page + done).for_each(|page| self.now_resident(page));
                    self.note_fresh(page / BLOCK_PAGES);
                    page += done;
                }
                Err(errno) => {
                    // Back to being on the store; a fault that is waiting comes again.
                    self.table.set(page, State::Stored, None);
                    self.placed_or_parked(page, address, errno);
                    page += 1;
                }
            }
        }
    }

    fn placed_or_parked(&mut self, page: u32, address: u64, errno: Errno) {
        match errno {
            Errno::EXIST => self.placed(page, address, Err(Errno::EXIST)),
            Errno::AGAIN => self.parked.push((address, false)),
            _ => self.wake(address),
        }
    }

    /// The content is gone for good. Its slot is held for ever: it may be the drive's bad spot.
    pub(super) fn lose(&mut self, page: u32, result: i32) {
        let slot = self.table.set_slot(page, 0);
        self.slots.hold(slot);
        self.slots.give_up(slot);
        self.table.set(page, State::Lost, None);
        self.note_loss(self.space.address(page).unwrap_or(0), slot, result);
        if let Some(address) = self.space.address(page) {
            self.raise(address);
        }
    }
}

/// The page that a landing slot has at `index`, which was read just now and is looked at for the first time:
/// opened, if it was sealed.
pub(super) fn opened<'a>(
    io: &'a mut PageIo,
    seal: Option<&Seal>,
    slots: &Slots,
    landing: u32,
    index: u32,
) -> &'a [u8] {
    let (offset, content) = io.landing_mut(landing);
    let content = &mut content[index as usize * PAGE as usize..][..PAGE as usize];
    if let Some(seal) = seal {
        let slot = (offset / PAGE) as u32 + index;
        seal.open(content, slot, slots.opening(slot));
    }
    content
}
