//! Answering one fault.

use super::Engine;
use super::changes::Followed;
use super::landing::is_wide;
use super::walks::Way;
use crate::space::BLOCK_PAGES;
use crate::stats::Stat;
use crate::table::State;
use overdrive_sys::Errno;
use overdrive_sys::uffd::PAGE;
use std::ops::Range;

/// Pages of zeroes put in place at once, at most.
const FILL_MAX: u32 = 32;
/// Pages of one such piece of memory come back from staging together.
const RESCUED_AROUND: u32 = 8;
pub(super) static ZEROES: [[u8; PAGE as usize]; FILL_MAX as usize] = [[0; PAGE as usize]; FILL_MAX as usize];

impl Engine {
    /// A thread waits for the page at `address`, in which it came to `offset`.
    pub(super) fn fault(&mut self, address: u64, offset: u64, write: bool, thread: u32) {
        let Some(page) = self.space.page(address) else {
            self.parked.push((address, write));
            return;
        };
        self.stats.add(Stat::Faults, 1);
        match self.table.state(page) {
            State::Empty | State::Zeroes => self.fill_with_zeroes(page, address, write, thread),
            State::Resident | State::Unpacked => self.fault_on_resident(page, address, write),
            State::Staged => {
                self.rescue(page, address);
                self.rescue_around(page);
                self.follow(page, thread);
            }
            State::Stored => {
                self.want(page);
                self.read_ahead(page, offset, thread, false);
            }
            State::Loading => {
                let scanned = self.table.place(page).is_some_and(is_wide);
                self.want(page);
                self.read_ahead(page, offset, thread, scanned);
            }
            State::Compressed => {
                let expanded = self.expand(page, address);
                let is_expected = self.read_ahead(page, offset, thread, false);
                match expanded {
                    // Without the tier it would have been read ahead.
                    Some(_) if is_expected => self.tier.note_expanded_ahead(),
                    Some((age, took)) => self.tier.note_expand(age, took),
                    None => {}
                }
            }
            State::Lost => self.raise(address),
        }
    }

    fn fill_with_zeroes(&mut self, page: u32, address: u64, write: bool, thread: u32) {
        if !write && self.zeroes.are_looked_for() {
            return self.put_zeroes(page, address);
        }
        if self.has_to_wait(1) {
            self.stats.add(Stat::DirectStalls, 1);
            self.waiting.push_back(page);
            return;
        }
        let pages = if write { self.pages_to_fill(page, address, thread) } else { page..page + 1 };
        // A write would fault again on the kernel's shared page of zeroes: it gets a page of its own.
        let put = |address: u64, count: u32| {
            let zeroes = &ZEROES.as_flattened()[..count as usize * PAGE as usize];
            self.userfault.copy(address, zeroes, true)
        };
        let outcome = if write {
            put(address - u64::from(page - pages.start) * PAGE, pages.len() as u32)
        } else {
            self.userfault.zero(address, PAGE)
        };
        let done = pages.start..pages.start + outcome.as_ref().map_or(0, |bytes| (bytes / PAGE) as u32);
        // What stood in the way was before it.
        let outcome = if pages.start < page && !done.contains(&page) { put(address, 1) } else { outcome };
        self.stats.add(Stat::ZeroFills, 1);
        done.filter(|&ahead| ahead != page).for_each(|ahead| self.now_resident(ahead));
        match outcome {
            // It would be taken for a read.
            Err(Errno::AGAIN) => self.parked.push((address, write)),
            outcome => self.placed(page, address, outcome.map(drop)),
        }
    }

    /// What to fill at once: more and more for whoever writes new memory from one end to the other, one page
    /// for all others.
    fn pages_to_fill(&mut self, page: u32, address: u64, thread: u32) -> Range<u32> {
        let Some(ahead) = self.note_walk(page, thread, false) else { return page..page + 1 };
        let room = (self.limits.total.saturating_sub(self.held()) as u32).max(1);
        let window = ahead.worth_filling(FILL_MAX).min(room);
        let is_new = |&other: &u32| {
            let is_of_block = other / BLOCK_PAGES == page / BLOCK_PAGES;
            is_of_block && self.table.state(other) == State::Empty && self.space.address(other).is_some()
        };
        let along = || std::iter::successors(Some(page), |&page| ahead.way.next(page));
        let lowest = |count| if ahead.way == Way::Up { page } else { page + 1 - count };
        let mut count = along().take(window as usize).take_while(is_new).count() as u32;
        if count > 1 {
            // Where something stands that nobody told of it may be a guard (MADV_GUARD_INSTALL), which a page
            // would do away with.
            let first = lowest(count);
            let from = address - u64::from(page - first) * PAGE;
            let standing = self.page_map.present(from, count as usize).unwrap_or(u64::MAX);
            let is_free = |other: &u32| standing >> (other - first) & 1 == 0;
            count = along().take(count as usize).take_while(is_free).count() as u32;
        }
        let count = count.max(1);
        if let Some(next) = along().nth(count as usize) {
            self.walks.expect(&ahead, next);
        }
        lowest(count)..lowest(count) + count
    }

    /// A page believed to be in place is missing: the program gave it up by a way that is not told
    /// (MADV_FREE), or the message is late. In the first case zeroes are right, in the second the page is
    /// there.
    fn fault_on_resident(&mut self, page: u32, address: u64, write: bool) {
        match self.userfault.zero(address, PAGE) {
            Ok(_) => {
                self.leave_slot(page);
                self.seen_gone(page);
                if !write && self.zeroes.are_looked_for() {
                    self.queues.gone(page / BLOCK_PAGES, 1);
                    self.now_zeroes(page);
                }
            }
            Err(Errno::EXIST) => self.wake(address),
            Err(Errno::AGAIN) => self.parked.push((address, write)),
            Err(_) => self.wake(address),
        }
    }

    /// The page is still in its frame: back with it, without I/O.
    pub(super) fn rescue(&mut self, page: u32, address: u64) {
        let Some(frame) = self.table.place(page) else { return };
        let outcome = self.userfault.copy(address, self.frames.page(frame), true);
        if outcome.is_ok() {
            self.stats.add(Stat::Rescues, 1);
        }
        self.placed(page, address, outcome.map(drop));
    }

    /// Who comes back to a page of a block that went just now mostly comes to those beside it, too: they are
    /// put in place with it, while room is not short.
    fn rescue_around(&mut self, page: u32) {
        let is_staged = |engine: &Self, page| engine.table.state(page) == State::Staged;
        let first = page / RESCUED_AROUND * RESCUED_AROUND;
        let staged = (first..first + RESCUED_AROUND).filter(|&other| is_staged(self, other)).count();
        if staged == 0 || self.is_short_with(staged as u64) {
            return;
        }
        for other in self.unmarked_around(page, RESCUED_AROUND) {
            if is_staged(self, other) && !self.rescue_ahead(other) {
                return;
            }
        }
    }

    /// Puts a page in place from its frame before somebody wants it. False when it cannot be put there now.
    fn rescue_ahead(&mut self, page: u32) -> bool {
        let (Some(frame), Some(address)) = (self.table.place(page), self.space.address(page)) else {
            return false;
        };
        let arrived = self.userfault.copy(address, self.frames.page(frame), true).is_ok();
        if arrived {
            self.stats.add(Stat::RescuedAround, 1);
            self.now_resident(page);
        }
        arrived
    }

    /// Draws the conclusion from putting a page in place.
    pub(super) fn placed(&mut self, page: u32, address: u64, outcome: Result<(), Errno>) {
        match outcome {
            Ok(()) => {
                self.now_resident(page);
                self.note_fresh(page / BLOCK_PAGES);
            }
            Err(Errno::EXIST) => {
                self.now_resident(page);
                self.wake(address);
            }
            // An event waits to be read; the fault is looked at again after that.
            Err(Errno::AGAIN) => self.parked.push((address, false)),
            // The memory is gone; its event is on the way. Whoever waits finds out by trying again.
            Err(_) => self.wake(address),
        }
    }

    pub(super) fn now_resident(&mut self, page: u32) {
        if self.table.state(page) != State::Resident {
            self.leave_pool(page);
            self.table.set(page, State::Resident, None);
            self.queues.arrived(page);
        }
    }

    pub(super) fn wake(&self, address: u64) {
        // Fails only when the range is gone, and then nobody waits in it.
        let _ = self.userfault.wake(address, PAGE);
    }

    /// The page's content is lost: SIGBUS for whoever touches it, never zeroes.
    pub(super) fn raise(&mut self, address: u64) {
        match self.userfault.poison(address, PAGE) {
            Ok(_) | Err(Errno::EXIST) => self.wake(address),
            Err(Errno::AGAIN) => self.parked.push((address, false)),
            // Without UFFDIO_POISON the thread stays where it is: stopped, not fed zeroes.
            Err(_) => {}
        }
    }

    /// Faults that could not be answered before: once nothing stands in the way any more. A fork copies
    /// tables for milliseconds, and to read pages meanwhile that cannot be put in place would take the
    /// processor from it over and over.
    pub(super) fn retry_parked(&mut self) {
        self.changes.untold = !self.parked.is_empty() && !self.is_all_told();
        if self.changes.untold {
            return;
        }
        for (address, write) in std::mem::take(&mut self.parked) {
            if self.space.page(address).is_none() {
                self.find_out(address);
            }
            if self.space.page(address).is_some() {
                self.fault_again(address, write);
            } else {
                self.wake(address);
            }
        }
    }

    /// A fault that was counted before.
    pub(super) fn fault_again(&mut self, address: u64, write: bool) {
        self.stats.add(Stat::Faults, u64::MAX);
        self.fault(address, 0, write, 0);
    }
}
