//! What is known of every page: where its content is, and the mark by which an unchanged or damaged copy is
//! recognised. Arrays, so that untouched page numbers cost nothing.

use crate::slots::Slot;
use crate::space::{BLOCK_PAGES, pages_where};
use std::ops::Range;
use twox_hash::XxHash3_64;

/// Where a page's content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Nowhere: it is all zeroes.
    Empty = 0,
    /// In place, in DRAM. A slot it still has holds the content it had when it was loaded.
    Resident = 1,
    /// Taken away, in a staging frame; perhaps on the store too.
    Staged = 2,
    /// On the store alone.
    Stored = 3,
    /// Being read, or read ahead and waiting in a landing slot.
    Loading = 4,
    /// The store failed: its content is gone.
    Lost = 5,
    /// In the compressed tier; perhaps on the store too.
    Compressed = 6,
    /// Of a child: in place, and in the compressed tier as it was when it was put there.
    Unpacked = 7,
    /// All zeroes so far as is known, and was read: the kernel's one page of zeroes stands there, which takes
    /// no memory, or the one that a write has made of it since ([`crate::engine`] looks for these).
    Zeroes = 8,
}

impl State {
    /// Whether a page stands there, as far as is known.
    #[must_use]
    pub fn is_in_place(self) -> bool {
        matches!(self, Self::Resident | Self::Zeroes)
    }
}

/// Beside the state of a page in place: writes to it are watched for; they were in the round before too, and
/// there was one then.
const WATCHED: u8 = 0x80;
const KNOWN: u8 = 0x40;
const WRITTEN: u8 = 0x20;
const STATES: u8 = 0x1F;

/// The number of a staging frame, landing slot or compressed cell plus one; 0 for none.
type Place = u32;

/// All pages.
#[derive(Debug)]
pub struct Table {
    state: Vec<u8>,
    slot: Vec<Slot>,
    place: Vec<Place>,
    mark: Vec<u64>,
    in_use: u32,
}

impl Table {
    /// A table of `pages` empty pages.
    #[must_use]
    pub fn new(pages: u32) -> Self {
        let pages = pages as usize;
        let (state, slot) = (vec![0; pages], vec![0; pages]);
        Self { state, slot, place: vec![0; pages], mark: vec![0; pages], in_use: 0 }
    }

    /// The first `pages` pages, as a child sees them: without places, which are its parent's, and of those in
    /// place no slot. What is empty costs no memory here either.
    #[must_use]
    pub fn of_child(&self, pages: u32) -> Self {
        let mut child = Self::new(pages);
        for first in (0..pages as usize).step_by(BLOCK_PAGES as usize) {
            let block = first..(pages as usize).min(first + BLOCK_PAGES as usize);
            let states = &self.state[block.clone()];
            if states.iter().all(|&state| state == 0) {
                continue;
            }
            child.in_use += states.iter().filter(|&&state| is_in_use(state)).count() as u32;
            child.state[block.clone()].iter_mut().zip(states).for_each(|(to, from)| *to = from & STATES);
            let is_resident = |&state: &u8| state & STATES == State::Resident as u8;
            if !states.iter().fold(false, |any, state| any | is_resident(state)) {
                child.slot[block.clone()].copy_from_slice(&self.slot[block.clone()]);
                child.mark[block.clone()].copy_from_slice(&self.mark[block]);
                continue;
            }
            for index in block {
                if !is_resident(&states[index - first]) {
                    child.slot[index] = self.slot[index];
                    child.mark[index] = self.mark[index];
                }
            }
        }
        child
    }

    /// Those pages of a block that are not empty, a bit each.
    #[must_use]
    pub fn used_in(&self, block: u32) -> u64 {
        self.those_in(block, |state| state != 0)
    }

    /// Those on the store alone.
    #[must_use]
    pub fn stored_in(&self, block: u32) -> u64 {
        const ALL: [u8; BLOCK_PAGES as usize] = [State::Stored as u8; BLOCK_PAGES as usize];
        if self.state[self.pages_of(block)] == ALL {
            return u64::MAX;
        }
        self.those_in(block, |state| state & STATES == State::Stored as u8)
    }

    /// Those that were zeroes when they were read.
    #[must_use]
    pub fn zeroes_in(&self, block: u32) -> u64 {
        self.those_in(block, |state| state & STATES == State::Zeroes as u8)
    }

    /// The slots of a block's pages.
    #[must_use]
    pub fn slots_in(&self, block: u32) -> &[Slot] {
        &self.slot[self.pages_of(block)]
    }

    fn those_in(&self, block: u32, is: impl Fn(u8) -> bool) -> u64 {
        let states = &self.state[self.pages_of(block)];
        pages_where(states.len() as u32, |page| is(states[page as usize]))
    }

    fn pages_of(&self, block: u32) -> Range<usize> {
        let first = block.saturating_mul(BLOCK_PAGES).min(self.len());
        first as usize..self.len().min(first + BLOCK_PAGES) as usize
    }

    /// Those of the first `pages` pages that are not empty.
    pub fn used(&self, pages: u32) -> impl Iterator<Item = u32> {
        const AT_ONCE: usize = 64;
        let chunks = self.state[..pages as usize].chunks(AT_ONCE).zip((0..).step_by(AT_ONCE));
        let in_use = chunks.filter(|(chunk, _)| chunk.iter().any(|&state| state != 0));
        in_use.flat_map(|(chunk, first)| {
            chunk.iter().zip(first..).filter(|&(&state, _)| state != 0).map(|(_, page)| page)
        })
    }

    /// How many pages have content.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    /// How many pages there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.state.len() as u32
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.state.is_empty()
    }

    /// Makes room for page numbers below `pages`, to the end of a block, the new ones empty. Only what is in
    /// use is copied: the rest stays memory that was never touched.
    pub fn grow(&mut self, pages: u32) {
        let pages = pages.next_multiple_of(BLOCK_PAGES);
        if pages <= self.len() {
            return;
        }
        let mut larger = Self::new(pages.max(self.len().saturating_mul(2)));
        larger.in_use = self.in_use;
        for page in self.used(self.len()) {
            let page = page as usize;
            larger.state[page] = self.state[page];
            larger.slot[page] = self.slot[page];
            if self.has_place(page) {
                larger.place[page] = self.place[page];
            }
            larger.mark[page] = self.mark[page];
        }
        *self = larger;
    }

    /// Those of these pages that have a slot, with it.
    pub fn with_slots(&self, pages: Range<u32>) -> impl Iterator<Item = (u32, Slot)> {
        let end = pages.end.min(self.len());
        let pages = pages.start.min(end)..end;
        let slots = &self.slot[pages.start as usize..pages.end as usize];
        pages.zip(slots).filter(|&(_, &slot)| slot != 0).map(|(page, &slot)| (page, slot))
    }

    /// Where the page is.
    #[must_use]
    pub fn state(&self, page: u32) -> State {
        match self.state[page as usize] & STATES {
            0 => State::Empty,
            1 => State::Resident,
            2 => State::Staged,
            3 => State::Stored,
            4 => State::Loading,
            6 => State::Compressed,
            7 => State::Unpacked,
            8 => State::Zeroes,
            _ => State::Lost,
        }
    }

    /// Its slot on the store, 0 for none.
    #[must_use]
    pub fn slot(&self, page: u32) -> Slot {
        self.slot[page as usize]
    }

    /// The mark of the content on the store, or in the frame.
    #[must_use]
    pub fn mark(&self, page: u32) -> u64 {
        self.mark[page as usize]
    }

    /// The frame of a staged page, the landing slot of a loading one, the cell of a compressed one.
    #[must_use]
    pub fn place(&self, page: u32) -> Option<u32> {
        self.place[page as usize].checked_sub(1)
    }

    /// Where the page is in the compressed tier, if it is there.
    #[must_use]
    pub fn cell(&self, page: u32) -> Option<u32> {
        self.place(page).filter(|_| matches!(self.state(page), State::Compressed | State::Unpacked))
    }

    /// Puts a page into another state, at a place or none.
    pub fn set(&mut self, page: u32, state: State, place: Option<u32>) {
        let page = page as usize;
        let (had_place, was_in_use) = (self.has_place(page), is_in_use(self.state[page]));
        self.state[page] = state as u8;
        self.in_use = self.in_use - u32::from(was_in_use) + u32::from(is_in_use(state as u8));
        debug_assert!(place.is_none() || self.has_place(page), "a page that is {state:?} at {place:?}");
        // Where no page had one, that memory is left untouched.
        if had_place || place.is_some() {
            self.place[page] = place.map_or(0, |place| place + 1);
        }
    }

    /// Whether the page is in a state in which it may be at some place.
    fn has_place(&self, page: usize) -> bool {
        const WITH: [State; 4] = [State::Staged, State::Loading, State::Compressed, State::Unpacked];
        WITH.iter().any(|&state| state as u8 == self.state[page] & STATES)
    }

    /// Notes that a round found the page in place, `written` to or not, and that writes are watched for from
    /// now on until its state is set again. Whether they were already; and if they were in the round before
    /// too, whether it was written to then.
    pub fn watch(&mut self, page: u32, written: bool) -> (bool, Option<bool>) {
        let state = &mut self.state[page as usize];
        let was = *state & WATCHED != 0;
        let before = (*state & KNOWN != 0).then_some(*state & WRITTEN != 0);
        let seen = if was { KNOWN | if written { WRITTEN } else { 0 } } else { 0 };
        *state = *state & STATES | WATCHED | seen;
        (was, before)
    }

    /// Whether the last two rounds found the page in place, and the last one that it was written to. Once
    /// asked, that is forgotten.
    pub fn take_written(&mut self, page: u32) -> bool {
        let state = &mut self.state[page as usize];
        let written = *state & WRITTEN != 0;
        *state &= !WRITTEN;
        written
    }

    /// Sets the slot, and returns the one before.
    pub fn set_slot(&mut self, page: u32, slot: Slot) -> Slot {
        std::mem::replace(&mut self.slot[page as usize], slot)
    }

    /// Sets the mark.
    pub fn set_mark(&mut self, page: u32, mark: u64) {
        self.mark[page as usize] = mark;
    }
}

/// The mark of a page's content: 64 bits of XXH3 with the run's own seed. Two contents share one by accident
/// about once in 10^19 pages, more rarely than drives return wrong data.
#[must_use]
pub fn mark_of(page: &[u8], seed: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, page)
}

/// Whether a page has content.
fn is_in_use(state: u8) -> bool {
    ![State::Empty as u8, State::Zeroes as u8].contains(&(state & STATES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_sees_what_is_away_and_what_is_in_place() {
        let mut table = Table::new(300);
        for (page, state, place) in [
            (3, State::Resident, None),
            (63, State::Stored, None),
            (64, State::Lost, None),
            (65, State::Loading, Some(9)),
            (299, State::Staged, Some(9)),
        ] {
            table.set(page, state, place);
            table.set_slot(page, page + 1);
            table.set_mark(page, 7);
        }
        table.watch(3, true);
        assert_eq!((table.used(300).collect::<Vec<_>>(), table.in_use()), (vec![3, 63, 64, 65, 299], 5));
        let child = table.of_child(299);
        assert_eq!((child.len(), child.used(299).collect::<Vec<_>>()), (299, vec![3, 63, 64, 65]));
        assert_eq!(child.in_use(), 4);
        assert_eq!((child.state(3), child.slot(3), child.place(3)), (State::Resident, 0, None));
        assert_eq!((child.state(63), child.slot(63), child.mark(63)), (State::Stored, 64, 7));
        assert_eq!((child.state(65), child.slot(65), child.place(65)), (State::Loading, 66, None));
        assert_eq!((child.used_in(0), child.used_in(1), child.used_in(9)), (1 << 3 | 1 << 63, 0b11, 0));
        assert_eq!((child.stored_in(0), child.stored_in(1)), (1 << 63, 0));
        assert_eq!(table.with_slots(4..900).collect::<Vec<_>>(), [(63, 64), (64, 65), (65, 66), (299, 300)]);
        assert_eq!(table.with_slots(900..901).next(), None);
        table.grow(301);
        assert_eq!((table.len(), table.used(600).collect::<Vec<_>>()), (600, vec![3, 63, 64, 65, 299]));
        assert_eq!((table.place(63), table.slot(63), table.mark(63)), (None, 64, 7));
        assert_eq!((table.place(299), table.place(65)), (Some(9), Some(9)));
        table.set(65, State::Resident, None);
        assert_eq!(table.place(65), None);
        assert_eq!(table.watch(3, false), (true, None), "it is watched still");
        [3, 3, 64].into_iter().for_each(|page| table.set(page, State::Empty, None));
        assert_eq!(table.in_use(), 3);
    }

    #[test]
    fn what_is_watched_is_forgotten_with_the_state() {
        let mut table = Table::new(2);
        for _ in 0..2 {
            table.set(1, State::Resident, None);
            assert_eq!(table.watch(1, true), (false, None), "it passes for written to as it comes");
            assert_eq!(table.watch(1, true), (true, None));
            assert!(table.take_written(1) && !table.take_written(1));
            assert_eq!(table.watch(1, true), (true, Some(false)));
            assert_eq!(table.watch(1, false), (true, Some(true)));
            assert_eq!(table.watch(1, false), (true, Some(false)));
            assert_eq!((table.state(1), table.state(0)), (State::Resident, State::Empty));
        }
    }
}
