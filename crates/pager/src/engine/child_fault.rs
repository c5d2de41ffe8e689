//! What a child waits for, and what comes ahead of it where it goes along its memory.

use super::child::Child;
use super::helpers::SHARED_BY_MOST;
use super::load::{READ_AGAIN, opened};
use super::{Engine, Load, Purpose};
use crate::platform::Instant;
use crate::stats::Stat;
use crate::table::{State, mark_of};
use overdrive_sys::Errno;
use overdrive_sys::uffd::PAGE;
use std::ops::Range;

/// Pages that come ahead of the next at first, and at most: twice as many each time.
const FIRST: u32 = 4;
const MOST: u32 = 32;
/// So many threads of a child are followed.
const WALKS: usize = 4;

/// Where a child goes along its memory.
#[derive(Debug, Default)]
pub(super) struct Walks {
    walks: [Walk; WALKS],
    /// The walk that is given up for a new one.
    oldest: usize,
}

/// Pages from one that was waited for on, which have come ahead of whoever goes on.
#[derive(Debug, Default, Clone)]
struct Walk {
    pages: Range<u32>,
    ahead: u32,
}

impl Walks {
    /// A page is waited for: so many of those behind it are worth having now.
    fn wait_for(&mut self, page: u32) -> u32 {
        let goes_on = |walk: &Walk| walk.pages.start < page && page <= walk.pages.end;
        let (walk, ahead) = if let Some(walk) = self.walks.iter_mut().find(|walk| goes_on(walk)) {
            let ahead = (walk.ahead * 2).clamp(FIRST, MOST);
            (walk, ahead)
        } else {
            self.oldest = (self.oldest + 1) % WALKS;
            (&mut self.walks[self.oldest], 0)
        };
        *walk = Walk { pages: page..page.saturating_add(1 + ahead), ahead };
        ahead
    }
}

impl Child {
    /// Those of so many pages behind one that follow it in memory and are in this state, up to the first that
    /// is not.
    fn pages_behind(&self, page: u32, count: u32, state: State) -> Range<u32> {
        let most = page..page.saturating_add(1 + count).min(self.table.len());
        let stretch = self.space.next_stretch(most, 1 + count).map_or(page..page, |(_, pages)| pages);
        let behind = (page + 1..stretch.end).take_while(|&page| self.table.state(page) == state);
        page + 1..page + 1 + behind.count() as u32
    }
}

impl Engine {
    pub(super) fn child_fault(&mut self, child: &mut Child, address: u64) {
        let known = child.space.page(address).filter(|&page| child.knows(page));
        let state = known.map_or(State::Empty, |page| child.table.state(page));
        let brings = matches!(state, State::Stored | State::Compressed | State::Empty);
        if brings && self.has_child_to_wait(child) {
            return child.parked.push_back(address);
        }
        if let Some(page) = known {
            let went_lately = child.relief.is_wanted_back(page);
            if self.children.is_empty() || child.is_own(page) {
                self.helping.lending.note_back(went_lately);
            } else if matches!(state, State::Stored | State::Compressed)
                && (self.children.len() as u64) < SHARED_BY_MOST
            {
                self.helping.lending.note_copy(went_lately);
            }
        }
        match (state, known) {
            (State::Stored, Some(page)) => {
                self.load_for(child, page, address);
                self.read_ahead_for(child, page);
            }
            (State::Compressed, Some(page)) => self.expand_for(child, page, address),
            (State::Loading, Some(page)) => {
                let load = child.table.place(page).and_then(|landing| self.loads[landing as usize].as_mut());
                load.into_iter().for_each(|load| load.wanted = true);
            }
            (State::Staged, Some(page)) => match self.give_frame(child, page) {
                Err(_) => child.parked.push_back(address),
                Ok(()) => {
                    child.relief.note(page);
                    let _ = child.userfault.wake(address, PAGE);
                }
            },
            (State::Lost, Some(page)) => match child.userfault.poison(address, PAGE) {
                Ok(_) | Err(Errno::EXIST) => {
                    // Of a child that has ended with its helper nothing is lost.
                    if child.relief.left.remove(&page) {
                        self.note_loss(address, 0, -Errno::PIPE.raw_os_error());
                    }
                    let _ = child.userfault.wake(address, PAGE);
                }
                Err(Errno::AGAIN) => child.parked.push_back(address),
                Err(_) => {}
            },
            // Empty, grown in place, or in place but given up without a word: zeroes, unless it is there.
            _ => self.zero_for(child, known, address),
        }
    }

    fn zero_for(&mut self, child: &mut Child, known: Option<u32>, address: u64) {
        let pages = known.map_or(0..0, |page| {
            let ahead = child.walks.wait_for(page);
            page..child.pages_behind(page, ahead, State::Empty).end
        });
        match child.userfault.zero(address, PAGE * pages.len().max(1) as u64) {
            Ok(bytes) => {
                let done = bytes / PAGE;
                child.pages += done;
                for page in pages.take(done as usize) {
                    child.has_zeroes(page, &mut self.slots, &mut self.pool);
                }
            }
            Err(Errno::AGAIN) => child.parked.push_back(address),
            Err(_) => drop(child.userfault.wake(address, PAGE)),
        }
    }

    fn expand_for(&mut self, child: &mut Child, page: u32, address: u64) {
        let Some(cell) = child.table.place(page) else { return };
        let mut content = [0; PAGE as usize];
        let Some(content) = self.compressed_content(&child.table, page, &mut content) else {
            self.note_loss(address, 0, PAGE as i32);
            self.pool.release_hold(cell);
            child.table.set(page, State::Lost, None);
            return child.parked.push_back(address);
        };
        match child.put(address, content) {
            Ok(()) => {
                self.stats.add(Stat::Expands, 1);
                child.table.set(page, State::Unpacked, Some(cell));
                child.keep_or_let_go(page, &mut self.slots, &mut self.pool);
                child.pages += 1;
            }
            Err(Errno::AGAIN) => child.parked.push_back(address),
            Err(_) => drop(child.userfault.wake(address, PAGE)),
        }
    }

    fn load_for(&mut self, child: &mut Child, page: u32, address: u64) {
        let landing = self.take_landing(1, true);
        if landing.is_some_and(|landing| self.start_load_for(child, page, landing, true)) {
            self.stats.add(Stat::Loads, 1);
        } else {
            child.parked.push_back(address);
        }
    }

    /// Reads pages behind one that the child waits for, where it goes along its memory.
    fn read_ahead_for(&mut self, child: &mut Child, page: u32) {
        // Who cannot see where something else than a page is must not put one there.
        let ahead = if child.relief.page_map().is_some() { child.walks.wait_for(page) } else { 0 };
        for page in child.pages_behind(page, ahead, State::Stored) {
            if !self.free_landing.has_spare() {
                return;
            }
            let landing = self.free_landing.take(1, false);
            if !landing.is_some_and(|landing| self.start_load_for(child, page, landing, false)) {
                return;
            }
            self.stats.add(Stat::ReadAhead, 1);
        }
    }

    /// False when the read cannot be begun; the landing slot is free then.
    fn start_load_for(&mut self, child: &mut Child, page: u32, landing: u32, wanted: bool) -> bool {
        let offset = u64::from(child.table.slot(page)) * PAGE;
        if self.io.read(landing, offset, PAGE as u32).is_err() {
            self.free_landing.put(landing);
            return false;
        }
        child.table.set(page, State::Loading, Some(landing));
        self.loads[landing as usize] = Some(Load {
            pages: page..page + 1,
            wanted,
            asked: wanted,
            purpose: if wanted { Purpose::Demand } else { Purpose::Ahead },
            landed: false,
            tries: 0,
            child: Some(child.number),
            started: Instant::now(),
        });
        true
    }

    /// A read for a child is over.
    pub(super) fn child_landed(&mut self, landing: u32, result: i32) {
        let Some(load) = self.loads[landing as usize].take() else { return };
        self.free_landing.put(landing);
        let page = load.pages.start;
        let Some(child) = self.children.iter_mut().find(|child| Some(child.number) == load.child) else {
            return;
        };
        if child.table.state(page) != State::Loading || child.table.place(page) != Some(landing) {
            return;
        }
        let Some(address) = child.space.address(page) else { return };
        let content = opened(&mut self.io, self.seal.as_ref(), &self.slots, landing, 0);
        let is_sound = result == PAGE as i32 && mark_of(content, self.seed) == child.table.mark(page);
        self.stats.add(Stat::StoreErrors, u64::from(!is_sound));
        if !load.wanted && (!is_sound || child.may_hold_something_else(address)) {
            // When it is waited for it will be read again.
            return child.table.set(page, State::Stored, None);
        }
        if !is_sound {
            let offset = u64::from(child.table.slot(page)) * PAGE;
            if load.tries < READ_AGAIN && self.io.read(landing, offset, PAGE as u32).is_ok() {
                // The slot put back last is the next.
                self.free_landing.take(1, true);
                self.loads[landing as usize] = Some(Load { tries: load.tries + 1, ..load });
                return;
            }
            // Its hold ends here: a child of its own has none on a page that is lost.
            let slot = child.table.set_slot(page, 0);
            self.slots.release_hold(slot);
            child.table.set(page, State::Lost, None);
            child.parked.push_back(address);
            self.note_loss(address, slot, result);
            return;
        }
        match child.put(address, content) {
            Ok(()) => {
                child.table.set(page, State::Resident, None);
                child.keep_or_let_go(page, &mut self.slots, &mut self.pool);
                child.pages += 1;
                self.stats.add(Stat::ReadAheadUsed, u64::from(load.purpose == Purpose::Ahead));
            }
            Err(errno) => {
                child.table.set(page, State::Stored, None);
                if errno == Errno::AGAIN && load.wanted {
                    child.parked.push_back(address);
                } else {
                    // Whoever waits tries again, or finds its memory gone.
                    let _ = child.userfault.wake(address, PAGE);
                }
            }
        }
        if load.wanted {
            self.note_service(load.started);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_along_has_more_and_more_pages_ahead() {
        let mut walks = Walks::default();
        let mut page = 100;
        let mut next = |walks: &mut Walks| {
            let ahead = walks.wait_for(page);
            page += 1 + ahead;
            ahead
        };
        assert_eq!([0; 7].map(|_| next(&mut walks)), [0, 4, 8, 16, 32, 32, 32]);
        // Others begin, and it goes on; but not for ever.
        assert_eq!([5000, 9000, 7000].map(|page| walks.wait_for(page)), [0; 3]);
        assert_eq!(next(&mut walks), 32);
        assert_eq!([15_000, 19_000, 17_000, 13_000].map(|page| walks.wait_for(page)), [0; 4]);
        assert_eq!(next(&mut walks), 0);
        assert_eq!([13_000, 12_999, u32::MAX].map(|page| walks.wait_for(page)), [0; 3], "nor the way back");
    }
}
