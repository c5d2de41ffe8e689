//! Children after a fork: the parent's engine serves their memory too, from the slots as they were.
//!
//! When the kernel tells of a fork, no page of the parent has been put or taken since the child's memory
//! was copied: all such calls fail while the message waits. So the tables at this moment describe the child
//! exactly. What it has in place it shares with the parent; what is on the store it gets when it touches
//! it; the slots are held for it even when the parent writes on. What it brings back goes again with the help
//! of a thread of its own ([`super::helpers`]).

use super::Engine;
use super::changes::{Changes, Followed};
use super::child_fault::Walks;
use super::growth::Growth;
use super::helpers::{HELPERS, Relief, SENT, Sent};
use super::message::moved_along;
use super::notice::TOO_MANY_CHILDREN;
use crate::numbers::Numbers;
use crate::platform::{AsFd, Descriptor, Mappings, Message, PageMap, Userfault, pause};
use crate::slots::bunches;
use crate::space::{BLOCK_PAGES, Space, bits_of, block_by_block};
use crate::stats::Stat;
use crate::table::{State, Table};
use overdrive_sys::Errno;
use overdrive_sys::uffd::PAGE;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// How often, and how long apart, a new child that gives memory up is waited for.
const GIVING_TRIES: u32 = 10_000;
const GIVING_PAUSE: Duration = Duration::from_micros(20);

/// Who has forked needs the processor for so long until it has its child. With fewer pages than this the
/// engine has done its part sooner.
const FORK_PAUSE: Duration = Duration::from_micros(100);
const PAUSES_FROM: u32 = if cfg!(test) { 1 } else { 16_384 };

/// A child that has just waited mostly will again soon: to look at each turn finds that sooner than to be
/// told, which takes a system call more.
const LOOKS: u32 = if cfg!(test) { 0 } else { 64 };

/// One child and its memory.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) number: u32,
    pub(super) userfault: Userfault,
    pub(super) space: Space,
    pub(super) table: Table,
    /// Pages brought back for it.
    pub(super) pages: u64,
    pub(super) changes: Changes,
    messages_due: bool,
    /// So many turns more it is looked for messages that nobody has told of.
    looks: u32,
    /// Faults to look at again.
    pub(super) parked: VecDeque<u64>,
    pub(super) walks: Walks,
    pub(super) relief: Relief,
    /// None until it has a helper.
    pub(super) growth: Option<Growth>,
    /// Blocks of memory that it has mapped itself.
    own: Numbers,
}

impl Child {
    /// Whether its table reaches that far: its memory may have grown since the fork.
    pub(super) fn knows(&self, page: u32) -> bool {
        page < self.table.len()
    }

    /// Pages that it holds beside those it shares with its parent. What it gave up of them is not taken off,
    /// but it has no more than fits.
    pub(super) fn held(&self) -> u64 {
        self.pages.min(self.space.bytes() / PAGE)
    }

    /// Pages that are not under the pager, or that it shares, if that can be seen.
    pub(super) fn pages_outside(&self) -> Option<u64> {
        let pages = self.relief.page_map()?.anonymous_pages().ok()?;
        Some(pages.saturating_sub(self.held()))
    }

    /// It has mapped this memory itself.
    fn note_own_memory(&mut self, range: &Range<u64>) {
        for pages in self.space.pages_in(range) {
            let blocks = pages.start / BLOCK_PAGES..pages.end.div_ceil(BLOCK_PAGES);
            blocks.for_each(|block| self.own.note(block));
        }
    }

    /// Whether a page lies in memory that it has mapped itself.
    pub(super) fn is_own(&self, page: u32) -> bool {
        self.own.has(page / BLOCK_PAGES)
    }

    /// Whether something else than a page may stand there, such as a guard.
    pub(super) fn may_hold_something_else(&self, address: u64) -> bool {
        self.relief.page_map().is_none_or(|page_map| page_map.marked(address, 1) != Ok(0))
    }

    /// Puts a page in place, if none is there, and wakes who waits for it.
    ///
    /// # Errors
    /// As [`Userfault::copy`].
    pub(super) fn put(&self, address: u64, content: &[u8]) -> Result<(), Errno> {
        match self.userfault.copy(address, content, true) {
            Err(Errno::EXIST) => {
                let _ = self.userfault.wake(address, PAGE);
                Ok(())
            }
            outcome => outcome.map(drop),
        }
    }

    fn staged(&self) -> Vec<u32> {
        self.table.used(self.table.len()).filter(|&page| self.table.state(page) == State::Staged).collect()
    }

    /// Its memory moved: what it had in slots goes along.
    ///
    /// # Errors
    /// ENOMEM without numbers for its pages: their content could not be found again.
    fn moved(&mut self, from: &Range<u64>, to: &Range<u64>) -> Result<(), Errno> {
        self.changes.note_moved(from.clone(), to.clone());
        let ends = self.space.relocate(from, to.start);
        ends.iter().try_for_each(|end| self.renumber(end, &moved_along(end, from, to)))
    }

    /// Its pages get other numbers.
    fn renumber(&mut self, from: &Range<u64>, to: &Range<u64>) -> Result<(), Errno> {
        // All is picked up before anything is put down: the new numbers may be the old ones, used again.
        let mut carried = Vec::new();
        let is_own = self.space.page(from.start).is_some_and(|page| self.is_own(page));
        for (start, old) in self.space.take_out(from) {
            let state = match self.table.state(old) {
                State::Empty => continue,
                State::Loading => State::Stored,
                other => other,
            };
            let has_place = matches!(state, State::Compressed | State::Unpacked | State::Staged);
            let place = self.table.place(old).filter(|_| has_place);
            self.table.set(old, State::Empty, None);
            carried.push((start, state, place, self.table.set_slot(old, 0), self.table.mark(old)));
        }
        let region = self.space.add(to.clone()).ok_or(Errno::NOMEM)?;
        self.table.grow(self.space.pages_end());
        if is_own {
            self.note_own_memory(to);
        }
        for (start, state, place, slot, mark) in carried {
            let new = region.first + start;
            self.table.set(new, state, place);
            self.table.set_slot(new, slot);
            self.table.set_mark(new, mark);
            self.relief.renumber(place.filter(|_| state == State::Staged), new);
            self.relief.note(new);
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.userfault.as_fd()
    }
}

/// Where a new child gets a page from that its parent has.
#[derive(Clone, Copy)]
enum Source {
    /// From the place it has on the store.
    Store,
    /// From the compressed tier.
    Cell(u32),
    /// Not on the store yet, and the frames are the parent's alone: it gets its page now.
    Frame(u32),
    /// In place in both, or lost in both. The copy on the store is the parent's own business.
    Nowhere,
}

/// A child and who serves it.
pub(super) struct Served<'a> {
    pub(super) engine: &'a mut Engine,
    pub(super) child: &'a mut Child,
}

impl Followed for Served<'_> {
    fn changes(&mut self) -> &mut Changes {
        &mut self.child.changes
    }

    fn userfault(&self) -> &Userfault {
        &self.child.userfault
    }

    fn space(&self) -> &Space {
        &self.child.space
    }

    /// The frames, which no child has.
    fn nowhere(&self) -> u64 {
        self.engine.frames.extent().start
    }

    fn message(&mut self, message: Message) -> Result<(), Errno> {
        let Self { engine, child } = self;
        match message {
            Message::Fault { address, protected: true, .. } => {
                let _ = child.userfault.write_protect(address..address + PAGE, false);
            }
            Message::Fault { address, .. } => {
                engine.stats.add(Stat::Faults, 1);
                engine.child_fault(child, address);
            }
            Message::Remove(range) => {
                engine.child_gives_up(child, &range);
                child.relief.search.note_giving_up(range);
            }
            Message::Unmap(range) => return self.unmapped(&range),
            Message::Remap { from, to, length } => {
                let (from, to) = (from..from + length, to..to + length);
                self.vacate(&from, &to)?;
                self.child.moved(&from, &to)?;
                self.wake_all(&from);
            }
            Message::Fork(descriptor) => return engine.child_forked(child, descriptor),
        }
        Ok(())
    }

    fn stands(&self, _: &Range<u64>) -> Option<bool> {
        None
    }

    fn mappings(&self) -> Option<&Mappings> {
        self.child.relief.mappings()
    }

    fn page_map(&self) -> Option<&PageMap> {
        self.child.relief.page_map()
    }

    fn enter(&mut self, range: &Range<u64>) -> bool {
        if self.child.space.add(range.clone()).is_none() {
            return false;
        }
        self.child.table.grow(self.child.space.pages_end());
        self.child.look_at_new(range);
        self.child.note_own_memory(range);
        true
    }

    fn leave(&mut self, range: &Range<u64>) {
        if self.child.space.has_any(range) {
            self.engine.child_gives_up(self.child, range);
            self.child.space.remove(range);
        }
    }
}

impl Engine {
    pub(super) fn children_pages(&self) -> u64 {
        self.children.iter().map(Child::held).sum()
    }

    /// The process forked. What takes long is not done before it has gone on: the engine goes first on the
    /// processor that both run on.
    ///
    /// # Errors
    /// The child's messages cannot be read.
    pub(super) fn forked(&mut self, descriptor: Descriptor) -> Result<(), Errno> {
        if self.space.pages_end() >= PAUSES_FROM {
            pause(FORK_PAUSE);
        }
        let space = self.space.clone();
        let mut table = self.table.of_child(space.pages_end());
        self.inherit(&space, &mut table, |engine, page| {
            match (engine.table.state(page), engine.table.place(page)) {
                (State::Staged, Some(frame)) if !engine.is_written(page) => Source::Frame(frame),
                (State::Compressed, Some(cell)) if !engine.is_written(page) => Source::Cell(cell),
                (State::Staged | State::Stored | State::Loading | State::Compressed, _) => Source::Store,
                (State::Empty | State::Resident | State::Zeroes, _) => Source::Nowhere,
                (State::Unpacked | State::Lost, _) => Source::Nowhere,
            }
        });
        self.add_child(descriptor, space, table, Vec::new())
    }

    /// Enters into the table of a new child where it gets its pages from, and holds them for it.
    fn inherit(&mut self, space: &Space, table: &mut Table, from: impl Fn(&Self, u32) -> Source) {
        for block in 0..table.len().div_ceil(BLOCK_PAGES) {
            // Most of a large child: nothing else is known of these.
            let stored = table.stored_in(block);
            let others = if stored == u64::MAX { 0 } else { table.used_in(block) & !stored };
            for bit in bits_of(others) {
                let page = block * BLOCK_PAGES + bit;
                match from(self, page) {
                    Source::Store => table.set(page, State::Stored, None),
                    Source::Frame(frame) => {
                        table.set(page, State::Staged, Some(frame));
                        table.set_slot(page, 0);
                    }
                    Source::Cell(cell) => self.hold_cell_for(space, table, page, cell),
                    Source::Nowhere => {
                        if matches!(table.state(page), State::Unpacked | State::Zeroes) {
                            table.set(page, State::Resident, None);
                        }
                        table.set_slot(page, 0);
                    }
                }
            }
            self.hold_slots_for(space, table, block);
        }
    }

    /// A process that has this memory, and all that its table says, is served from now on.
    fn add_child(
        &mut self,
        descriptor: Descriptor,
        space: Space,
        table: Table,
        sent: Vec<Sent>,
    ) -> Result<(), Errno> {
        // The bit beside it is its helper's.
        self.last_child = (self.last_child + 1) % HELPERS;
        let mut child = Child {
            number: self.last_child,
            userfault: self.userfault.of_child(descriptor),
            space,
            table,
            pages: 0,
            changes: Changes::default(),
            messages_due: true,
            looks: 0,
            parked: VecDeque::new(),
            walks: Walks::default(),
            relief: Relief::new(sent),
            growth: None,
            own: Numbers::default(),
        };
        self.give_staged(&mut child)?;
        self.children.push(child);
        self.stats.set(Stat::Children, self.children.len() as u64);
        Ok(())
    }

    /// Gives a new child its own of the pages that are in the parent's frames and nowhere else. It runs
    /// already: while it gives memory up or moves it nothing can be put there, until that was read and done.
    fn give_staged(&mut self, child: &mut Child) -> Result<(), Errno> {
        for _ in 0..GIVING_TRIES {
            if child.staged().into_iter().all(|page| self.give_frame(child, page) != Err(Errno::AGAIN)) {
                return Ok(());
            }
            self.read_child(child)?;
            pause(GIVING_PAUSE);
        }
        for page in child.staged() {
            child.table.set(page, State::Lost, None);
            self.note_loss(child.space.address(page).unwrap_or(0), 0, -Errno::AGAIN.raw_os_error());
        }
        Ok(())
    }

    /// Puts a page of the parent's frames, or one that a helper sent, into the child.
    pub(super) fn give_frame(&mut self, child: &mut Child, page: u32) -> Result<(), Errno> {
        let (Some(place), Some(address)) = (child.table.place(page), child.space.address(page)) else {
            return Ok(());
        };
        let content = match child.relief.sent.get((place & !SENT) as usize) {
            Some((_, content)) if place & SENT != 0 => content,
            _ => self.frames.page(place),
        };
        let outcome = child.userfault.copy(address, content, true);
        match outcome {
            // Not yet, or no memory for it at the moment.
            Err(Errno::AGAIN | Errno::NOMEM) => return Err(Errno::AGAIN),
            Ok(_) | Err(Errno::EXIST) => {
                child.table.set(page, State::Resident, None);
                child.pages += 1;
            }
            // Its memory there is gone, or it has ended.
            Err(_) => child.table.set(page, State::Lost, None),
        }
        Ok(())
    }

    /// What a child may read stays for it: here all pages of a block that have slots. A child's page has one
    /// only while it holds it.
    fn hold_slots_for(&mut self, space: &Space, table: &mut Table, block: u32) {
        let mut lost = Vec::new();
        for bunch in bunches(table.slots_in(block)) {
            let refused = self.slots.hold_some(bunch);
            if !refused.is_empty() {
                let slots = table.slots_in(block).iter().zip(block * BLOCK_PAGES..);
                lost.extend(slots.filter(|&(&slot, _)| refused.has(slot)).map(|(_, page)| page));
            }
        }
        lost.into_iter().for_each(|page| self.lose_for(space, table, page));
    }

    /// The same of a page in the compressed tier.
    fn hold_cell_for(&mut self, space: &Space, table: &mut Table, page: u32, cell: u32) {
        if self.pool.hold(cell) {
            table.set(page, State::Compressed, Some(cell));
            table.set_slot(page, 0);
        } else {
            self.lose_for(space, table, page);
        }
    }

    /// With too many children it is lost to this one.
    fn lose_for(&mut self, space: &Space, table: &mut Table, page: u32) {
        let slot = table.set_slot(page, 0);
        table.set(page, State::Lost, None);
        self.note_loss(space.address(page).unwrap_or(0), slot, TOO_MANY_CHILDREN);
    }

    /// Whether the content of a staged page is safe on the store.
    pub(super) fn is_written(&self, page: u32) -> bool {
        let slot = self.table.slot(page);
        let in_flight = |run: &super::Run| (run.slot..run.slot + run.frames.len() as u32).contains(&slot);
        slot != 0
            && !self
                .runs
                .iter()
                .enumerate()
                .any(|(token, run)| !self.free_runs.contains(&(token as u32)) && in_flight(run))
    }

    /// A child has told something, or its helper has.
    pub(super) fn note_child_messages(&mut self, number: u32) {
        if let Some(child) = self.children.iter_mut().find(|child| child.number == number & !HELPERS) {
            let due = if number & HELPERS == 0 { &mut child.messages_due } else { &mut child.relief.due };
            *due = true;
        }
    }

    /// Answers what children wait for, and finds out which have ended. True when there is more to do.
    pub(super) fn serve_children(&mut self) -> Result<bool, Errno> {
        self.receive()?;
        for index in 0..self.children.len() {
            let mut child = self.children.swap_remove(index);
            let outcome = self.serve_child(&mut child);
            self.children.push(child);
            let last = self.children.len() - 1;
            self.children.swap(index, last);
            outcome?;
        }
        self.part_with_the_dead()?;
        self.share_budget();
        Ok(self.part_with_some())
    }

    fn serve_child(&mut self, child: &mut Child) -> Result<(), Errno> {
        self.io.watch(child.number, child.userfault.as_fd())?;
        if !self.hear_helper(child)? {
            return Ok(());
        }
        self.settle_sent(child);
        if std::mem::take(&mut child.messages_due) || child.looks > 0 {
            let any = self.read_child(child)?;
            child.looks = if any { LOOKS } else { child.looks.saturating_sub(1) };
        }
        for _ in 0..child.parked.len() {
            if let Some(address) = child.parked.pop_front() {
                self.child_fault(child, address);
            }
        }
        self.take_slots_of(child);
        self.look_for_growth(child);
        // The helper of a busy child would be asked for other pages again and again.
        if child.has_to_look() {
            self.look_for_own(child);
        }
        self.relieve(child);
        self.look_for_own(child);
        Ok(())
    }

    fn read_child(&mut self, child: &mut Child) -> Result<bool, Errno> {
        Served { engine: self, child }.read_messages()
    }

    fn child_gives_up(&mut self, child: &mut Child, range: &Range<u64>) {
        let end = child.table.len();
        let known = |pages: Range<u32>| pages.start..pages.end.min(end);
        for (block, pages) in child.space.pages_in(range).into_iter().map(known).flat_map(block_by_block) {
            let used = pages & child.table.used_in(block);
            let pages = || bits_of(used).map(|bit| block * BLOCK_PAGES + bit);
            let loading: Vec<_> = pages().filter(|&page| child.table.state(page) == State::Loading).collect();
            let counted = pages().filter(|&page| child.is_brought(page)).count();
            child.pages = child.pages.saturating_sub(counted as u64);
            self.let_go(&mut child.table, block, used);
            for address in loading.into_iter().filter_map(|page| child.space.address(page)) {
                let _ = child.userfault.wake(address, PAGE);
            }
        }
    }

    /// A child forked in turn.
    fn child_forked(&mut self, child: &mut Child, descriptor: Descriptor) -> Result<(), Errno> {
        child.relief.search.note_shared();
        let mut table = child.table.of_child(child.table.len());
        self.inherit(&child.space, &mut table, |_, page| {
            match (child.table.state(page), child.table.place(page)) {
                (State::Stored | State::Loading, _) => Source::Store,
                (State::Compressed, Some(cell)) => Source::Cell(cell),
                // It forked before it was given its own.
                (State::Staged, Some(frame)) => Source::Frame(frame),
                _ => Source::Nowhere,
            }
        });
        self.add_child(descriptor, child.space.clone(), table, child.relief.sent.clone())
    }
}
