//! What children bring back goes again: a thread of the child takes it out of place, as nobody else can.
//!
//! A page that was brought back for a child keeps its slot or cell, so that it only has to be forgotten when
//! it is still what it was. The helper ([`overdrive_sys::helper`]) tells which pages are, and sends the
//! content of the others, which is written to the store. What the child wants of it meanwhile it gets from
//! what was sent.
//!
//! What parent and child had in place at the fork they share, and it takes no more memory. But as the parent
//! writes to such a page it gets another, and the child has the old one to itself. Helpers look for these.
//! To evict such a page the parent has it written to in this way, without changing it. What it has of it on
//! the store then does for the child's as well.
//!
//! While a helper takes pages nothing that its child tells is read. So no page changes its place in the
//! books, and none is given up, moved or inherited while its content is in the helper's frames: who does that
//! waits until it is read, and what was done before it is told, the helper is refused by the kernel.

use super::Engine;
use super::brought::Brought;
use super::child::Child;
use super::fault::ZEROES;
use super::growth::Growth;
use super::lend::Lending;
use super::search::Search;
use super::write::write_copies;
use crate::platform::{AsFd, Callers, Door, Helper, Instant, Mappings, PageMap, Userfault};
use crate::pool::Pool;
use crate::slots::{EMPTY_LEAST, SEGMENT_SLOTS, Slot, Slots};
use crate::stats::Stat;
use crate::table::{State, Table, mark_of};
use overdrive_sys::Errno;
use overdrive_sys::helper::{AT_ONCE, Answer, Taken};
use overdrive_sys::uffd::PAGE;
use std::collections::BTreeSet;
use std::ops::Range;

/// Of what was brought back and may go, children together keep this part of the budget, but each so many
/// pages: what a thread waited for must stay until it has seen it.
pub(super) const SHARE: u64 = 16;
pub(super) const KEPT: u64 = if cfg!(test) { 1 } else { 256 };
/// With so many pages more it waits until some have gone.
const MORE: u64 = if cfg!(test) { 1 } else { 2 * AT_ONCE as u64 };
/// So many pages are taken from a child in one go, if there are as many: to ask for them takes longer than to
/// move a few, and the child's faults wait until they are moved.
const TAKEN: usize = if cfg!(test) { 1 } else { AT_ONCE / 2 };
/// With more children pages that all of them share stay: a copy for each is too much.
pub(super) const SHARED_BY_MOST: u64 = 16;
/// Of the pages that went as many are remembered as this part of the budget, up to twice.
const REMEMBERED: u64 = 4;
/// So many empty segments of the store are left to the parent.
const LEFT: usize = if cfg!(test) { 1 } else { EMPTY_LEAST };
/// Where the numbers are by which those who call, and what helpers have done, is watched for.
pub(super) const CALLERS: u32 = u32::MAX;
pub(crate) const HELPERS: u32 = 1 << 31;
/// The write of what helpers sent.
pub(super) const WRITE: u32 = super::WRITES;
/// Where the places of pages are that a helper sent and that are on their way to the store, or back.
pub(super) const SENT: u32 = 1 << 31;

/// Those who call, and where they were told to.
#[derive(Debug)]
pub(super) struct Reception {
    callers: Callers,
    pub(super) due: bool,
}

/// What the engine has to do with helpers of all children.
#[derive(Debug, Default)]
pub(super) struct Helping {
    pub(super) reception: Option<Reception>,
    pub(super) write: Option<Write>,
    pub(super) lending: Lending,
}

/// What a child has to do with its helper.
#[derive(Debug, Default)]
pub(super) struct Relief {
    pub(super) helper: Option<Helper>,
    /// Pages that it was asked for.
    pub(super) asked: Vec<u32>,
    /// It may have done that.
    pub(super) due: bool,
    /// What it sent.
    pub(super) sent: Vec<Sent>,
    /// So much of that was written.
    settled: u32,
    /// Pages that it may have taken with it when it left.
    pub(super) left: BTreeSet<u32>,
    pub(super) search: Search,
    /// Pages that were brought for the child, and may go.
    brought: Brought,
}

/// What of a child's is being written.
#[derive(Debug)]
pub(super) struct Write {
    child: u32,
    pub(super) slot: Slot,
    /// Which of what was sent.
    pub(super) sent: Range<u32>,
}

/// A page's content.
pub(super) type Sent = (u32, Box<[u8]>);

impl Relief {
    /// Of a child that is yet to be given these pages.
    pub(super) fn new(sent: Vec<Sent>) -> Self {
        Self { sent, ..Self::default() }
    }

    /// A page was brought back, or has another number, or is the child's own. False when that is known.
    pub(super) fn note(&mut self, page: u32) -> bool {
        self.helper.is_some() && self.brought.note(page)
    }

    /// A page was seen that the child has to itself. False when that is known.
    pub(super) fn note_seen(&mut self, page: u32) -> bool {
        let is_news = if self.search.is_copied(page) { self.brought.note_due(page) } else { self.note(page) };
        if is_news {
            self.search.note_seen(page);
        }
        is_news
    }

    /// Somebody waits for a page. Whether it went lately.
    pub(super) fn is_wanted_back(&mut self, page: u32) -> bool {
        self.brought.is_wanted_back(page)
    }

    /// How many pages are known to have gone lately.
    pub(super) fn went_lately(&self) -> u64 {
        self.brought.went_lately()
    }

    /// What was sent of the page at this place belongs to a page of this number from now on.
    pub(super) fn renumber(&mut self, place: Option<u32>, page: u32) {
        let sent = place.filter(|place| place & SENT != 0).map(|place| (place ^ SENT) as usize);
        if let Some(sent) = sent.and_then(|sent| self.sent.get_mut(sent)) {
            sent.0 = page;
        }
    }

    /// What the child maps, and which pages are there. None without a helper.
    pub(super) fn mappings(&self) -> Option<&Mappings> {
        self.helper.as_ref()?.mappings()
    }

    pub(super) fn page_map(&self) -> Option<&PageMap> {
        self.helper.as_ref()?.page_map()
    }

    /// Its helper does not look for pages that it has to itself.
    #[cfg(test)]
    pub(super) fn never_look(&mut self) {
        self.search.never_look();
    }

    /// The state in a word, but for the helper's own.
    #[cfg(test)]
    pub(super) fn digest(&self) -> String {
        let Self { helper, asked, due, sent, settled, left, search, brought } = self;
        let sent = (sent, settled, left);
        format!("{:?}", (helper.is_some(), asked, due, sent, search.digest(), brought))
    }
}

/// Whether a page in place is elsewhere too, as it was when it was brought back.
fn has_copy(table: &Table, page: u32) -> bool {
    let state = table.state(page);
    state == State::Unpacked || state == State::Resident && table.slot(page) != 0
}

impl Child {
    /// A page was brought back. With a helper, it may go again.
    pub(super) fn keep_or_let_go(&mut self, page: u32, slots: &mut Slots, pool: &mut Pool) {
        if self.relief.helper.is_some() {
            self.relief.note(page);
        } else {
            self.let_copy_go(page, slots, pool);
        }
    }

    /// Pages that may be taken from it.
    pub(super) fn can_give(&self) -> u64 {
        self.relief.brought.len() as u64
    }

    /// Pages of which the content is what a helper sent, and nowhere else.
    fn sent_alone(&self) -> Vec<u32> {
        let is_there = |page: u32, place: u32| {
            self.knows(page)
                && self.table.state(page) == State::Staged
                && self.table.place(page) == Some(place | SENT)
        };
        let sent = self.relief.sent.iter().map(|&(page, _)| page).zip(0..);
        sent.filter(|&(page, place)| is_there(page, place)).map(|(page, _)| page).collect()
    }

    /// Zeroes were put in place, to be written to.
    pub(super) fn has_zeroes(&mut self, page: u32, slots: &mut Slots, pool: &mut Pool) {
        self.let_copy_go(page, slots, pool);
        self.relief.note(page);
    }

    /// Whether it is in place and counted.
    pub(super) fn is_brought(&self, page: u32) -> bool {
        matches!(self.table.state(page), State::Resident | State::Unpacked) && self.relief.brought.has(page)
    }

    /// A page is in place alone from now on.
    fn let_copy_go(&mut self, page: u32, slots: &mut Slots, pool: &mut Pool) {
        if let Some(cell) = self.table.cell(page) {
            pool.release_hold(cell);
        }
        self.table.set(page, State::Resident, None);
        let slot = self.table.set_slot(page, 0);
        if slot != 0 {
            slots.release_hold(slot);
        }
    }
}

impl Engine {
    /// Lets helpers of the program's children call at a door. Without one, they keep what they bring back.
    pub fn receive_at(&mut self, door: &'static Door, program: u32) {
        // Where there are no sockets there are no helpers.
        if let Ok(callers) = Callers::at(door, self.seed, program) {
            door.want(true);
            self.helping.reception = Some(Reception { callers, due: false });
        }
    }

    /// Brings those who call to their children.
    pub(super) fn receive(&mut self) -> Result<(), Errno> {
        let Some(mut reception) = self.helping.reception.take() else { return Ok(()) };
        self.io.watch(CALLERS, reception.callers.as_fd())?;
        if std::mem::take(&mut reception.due) || reception.callers.are_waiting() {
            let alone = self.children.iter().filter(|child| child.relief.helper.is_none());
            let alone: Vec<(u32, &Userfault)> = alone.map(|child| (child.number, &child.userfault)).collect();
            for (number, helper) in reception.callers.bring(&alone) {
                if let Some(child) = self.children.iter_mut().find(|child| child.number == number) {
                    child.growth = Growth::of(&helper);
                    child.relief.helper = Some(helper);
                }
            }
        }
        self.helping.reception = Some(reception);
        Ok(())
    }

    /// Whether pages that are or were shared with children may become this process's own. What these have of
    /// them then has to go, each of them a copy.
    pub(super) fn may_unshare(&mut self) -> bool {
        let (children, share) = (self.children.len() as u64, self.share_of_children());
        if children == 0 {
            return true;
        }
        let all: u64 = self.children.iter().map(Child::can_give).sum();
        let (share_of_one, more) = (KEPT.max(share / children), 2 * AT_ONCE as u64);
        let can_follow = |child: &Child| {
            child.relief.helper.is_some()
                && child.can_look_at_more()
                && (all <= share || child.can_give() <= share_of_one + more)
        };
        children <= SHARED_BY_MOST && self.children.iter().all(can_follow) && self.can_write_for_children()
    }

    /// Whether a child keeps so many more than it should of `what` of theirs, beside others.
    fn keeps_too_much(&self, child: &Child, what: fn(&Child) -> u64, more: u64) -> bool {
        let (others, its): (u64, u64) = (self.children.iter().map(what).sum(), what(child));
        let share = self.share_of_children();
        others + its > share + more && its > KEPT.max(share / (self.children.len() as u64 + 1)) + more
    }

    /// Whether a child gets no more pages until some have gone, as they can. It does not wait for those that
    /// it has to itself because its parent has got others.
    pub(super) fn has_child_to_wait(&mut self, child: &Child) -> bool {
        let wanted = |child: &Child| child.can_give().saturating_sub(child.relief.search.seen());
        child.relief.helper.is_some()
            && self.keeps_too_much(child, wanted, MORE)
            && self.can_write_for_children()
    }

    /// Takes note of what a child's helper has done. False while it is at it.
    ///
    /// # Errors
    /// It cannot be watched for.
    pub(super) fn hear_helper(&mut self, child: &mut Child) -> Result<bool, Errno> {
        let Relief { helper, asked, due, sent, search, .. } = &mut child.relief;
        let Some(helper) = helper else { return Ok(true) };
        // Before it is asked for anything too.
        self.io.watch(child.number | HELPERS, helper.as_fd())?;
        let has_to_wait = !asked.is_empty();
        let is_at_it = has_to_wait || search.is_at_it();
        if !is_at_it || !std::mem::take(due) {
            return Ok(!has_to_wait);
        }
        let answer = helper.answer(|index, content| {
            sent.extend(asked.get(index as usize).map(|&page| (page, Box::from(content))));
        });
        match answer {
            Ok(None) => return Ok(!has_to_wait),
            Ok(Some(Answer::Took(taken))) => self.note_taken(child, taken),
            Ok(Some(Answer::Saw(own))) => child.note_own(&own),
            Err(_) => self.note_left(child),
        }
        Ok(true)
    }

    fn note_taken(&mut self, child: &mut Child, taken: Taken) {
        let asked = std::mem::take(&mut child.relief.asked);
        for (index, page) in asked.into_iter().enumerate() {
            if taken.took >> index & 1 == 0 {
                if taken.broke_off {
                    child.relief.note(page);
                } else {
                    self.note_stays(child, page);
                }
                continue;
            }
            child.relief.search.note_went(page);
            child.pages = child.pages.saturating_sub(1);
            child.relief.brought.note_gone(page, self.limits.budget / REMEMBERED);
            self.stats.add(Stat::Evicted, 1);
            if taken.unchanged >> index & 1 == 1 {
                self.stats.add(Stat::EvictedClean, 1);
                let cell = child.table.cell(page);
                child.table.set(page, if cell.is_some() { State::Compressed } else { State::Stored }, cell);
                continue;
            }
            child.let_copy_go(page, &mut self.slots, &mut self.pool);
            match child.relief.sent.iter().position(|(sent, _)| *sent == page) {
                Some(place) if *child.relief.sent[place].1 == ZEROES[0] => {
                    child.table.set(page, State::Empty, None);
                }
                Some(place) => child.table.set(page, State::Staged, Some(place as u32 | SENT)),
                None => child.table.set(page, State::Lost, None),
            }
        }
    }

    /// A page that was asked for is shared or held in place otherwise. What a child shares with children of
    /// its own goes when it was copied; these have it to themselves then.
    fn note_stays(&mut self, child: &mut Child, page: u32) {
        child.let_copy_go(page, &mut self.slots, &mut self.pool);
        // It counts again when it is seen.
        child.pages = child.pages.saturating_sub(1);
        let can_all_follow = (self.children.len() as u64) < SHARED_BY_MOST;
        if can_all_follow && child.relief.search.can_be_copied(page) {
            self.children.iter_mut().for_each(|other| other.relief.search.look_soon());
        }
    }

    /// Writes what a helper sent, or puts it back where that cannot be.
    pub(super) fn settle_sent(&mut self, child: &mut Child) {
        let is_written = self.helping.write.as_ref().is_some_and(|write| write.child == child.number);
        if child.relief.sent.is_empty() || is_written {
            return;
        }
        let is_over = child.relief.settled as usize == child.relief.sent.len();
        let alone = child.sent_alone();
        if alone.is_empty() {
            (child.relief.sent, child.relief.settled) = (Vec::new(), 0);
        } else if is_over || self.helping.write.is_none() && !self.write_for(child) {
            for page in alone {
                // What cannot be put back now will be when this is looked at again.
                let _ = self.give_frame(child, page);
            }
        }
    }

    /// Whether what helpers send can be written: there is room that the parent does not need more, the store
    /// takes writes, and the day's share allows it.
    pub(super) fn can_write_for_children(&mut self) -> bool {
        let now = Instant::now();
        if self.slots.empty_segments() <= LEFT {
            self.lease_more();
        }
        self.allowance.as_mut().is_none_or(|allowance| allowance.has(SEGMENT_SLOTS, now))
            && self.write_again.is_none_or(|again| now >= again)
            && self.slots.empty_segments() > LEFT
    }

    /// Begins to write what a helper sent, as far as it fits in a row. False where that cannot be.
    fn write_for(&mut self, child: &Child) -> bool {
        let (first, end) = (child.relief.settled, child.relief.sent.len() as u32);
        let (may, count) = (self.can_write_for_children(), self.slots.room_for_run().min(end - first));
        let Some(slot) = self.slots.take_run(if may { count } else { 0 }) else { return false };
        let opening = self.slots.opening(slot);
        let sent = child.relief.sent[first as usize..].iter().take(count as usize);
        let contents = sent.map(|(_, content)| &**content);
        if write_copies(&mut self.io, self.seal.as_ref(), opening, WRITE, slot, contents).is_err() {
            self.give_run_up(slot, count);
            return false;
        }
        self.allowance.iter_mut().for_each(|allowance| allowance.spend(count));
        self.helping.write = Some(Write { child: child.number, slot, sent: first..first + count });
        true
    }

    /// Some of what a helper sent was written: these pages are on the store, but for those that were wanted
    /// meanwhile.
    pub(super) fn wrote_for_child(&mut self, result: i32) {
        let Some(Write { child, slot, sent }) = self.helping.write.take() else { return };
        let sound = result == sent.len() as i32 * PAGE as i32;
        if sound {
            self.stats.add(Stat::Written, sent.len() as u64);
        } else {
            self.note_failed_write();
        }
        let child = self.children.iter_mut().find(|other| other.number == child);
        if let Some(child) = child.filter(|_| sound) {
            child.relief.settled = sent.end;
            for page in child.sent_alone() {
                let place = child.table.place(page).map_or(u32::MAX, |place| place ^ SENT);
                let slot = slot + place.wrapping_sub(sent.start);
                if sent.contains(&place) && self.slots.hold(slot) {
                    let (_, content) = &child.relief.sent[place as usize];
                    child.table.set_mark(page, mark_of(content, self.seed));
                    child.table.set_slot(page, slot);
                    child.table.set(page, State::Stored, None);
                }
            }
        }
        self.give_run_up(slot, sent.len() as u32);
        self.give_copy_back();
    }

    /// What was written of a child's is no page's of this process.
    fn give_run_up(&mut self, slot: Slot, count: u32) {
        (slot..slot + count).for_each(|slot| self.slots.give_up(slot));
        self.slots.written(slot);
    }

    /// Without children nothing of theirs is written.
    pub(super) fn give_copy_back(&mut self) {
        if self.children.is_empty() && self.helping.write.is_none() {
            self.io.give_copy_back(WRITE);
        }
    }

    /// It is gone, mostly as its child is about to be. What it was asked for it may have taken.
    fn note_left(&mut self, child: &mut Child) {
        (child.relief.helper, child.growth) = (None, None);
        child.relief.search.give_up();
        (child.relief.sent, child.relief.settled) = (Vec::new(), 0);
        for page in std::mem::take(&mut child.relief.asked) {
            child.relief.left.insert(page);
            child.let_copy_go(page, &mut self.slots, &mut self.pool);
            child.table.set(page, State::Lost, None);
        }
    }

    /// Asks a child's helper to take what was brought back longest ago, where children have more than their
    /// share.
    pub(super) fn relieve(&mut self, child: &mut Child) {
        let is_free = child.relief.sent.is_empty() && !child.relief.search.is_at_it();
        if !is_free || !self.keeps_too_much(child, Child::can_give, 0) {
            return;
        }
        let (can_write, mut pages) = (self.can_write_for_children(), Vec::new());
        while pages.len() < TAKEN
            && let Some(page) = child.relief.brought.next()
        {
            self.share_copy(child, page);
            let is_there = matches!(child.table.state(page), State::Resident | State::Unpacked);
            if is_there && (can_write || has_copy(&child.table, page)) {
                pages.extend(child.space.address(page).map(|address| (address, page)));
            } else {
                child.relief.search.forget(page);
            }
        }
        // Those side by side are moved together.
        pages.sort_unstable();
        let mark = |page| has_copy(&child.table, page).then(|| child.table.mark(page));
        let asked: Vec<_> = pages.iter().map(|&(address, page)| (address, mark(page))).collect();
        if !asked.is_empty() && self.tell_helper(child, |helper| helper.ask(&asked)) {
            child.relief.asked = pages.into_iter().map(|(_, page)| page).collect();
        }
    }

    /// What the parent has of a page that both had at the fork does for a child, too, unless one of them has
    /// changed it since: the mark will tell.
    fn share_copy(&mut self, child: &mut Child, page: u32) {
        let is_alone = child.table.state(page) == State::Resident && child.table.slot(page) == 0;
        let address = child.space.address(page).filter(|_| is_alone);
        let parents = address.and_then(|address| self.space.page(address));
        let Some(parents) = parents.filter(|&page| page < self.table.len()) else { return };
        if let Some(cell) = self.table.cell(parents) {
            if self.pool.hold(cell) {
                child.table.set(page, State::Unpacked, Some(cell));
                child.table.set_mark(page, self.table.mark(parents));
            }
        } else if self.table.state(parents) != State::Lost
            && self.is_written(parents)
            && self.slots.hold(self.table.slot(parents))
        {
            child.table.set_slot(page, self.table.slot(parents));
            child.table.set_mark(page, self.table.mark(parents));
        }
    }

    /// False without a helper, or when it is gone.
    pub(super) fn tell_helper(
        &mut self,
        child: &mut Child,
        tell: impl FnOnce(&mut Helper) -> Result<(), Errno>,
    ) -> bool {
        let Some(helper) = &mut child.relief.helper else { return false };
        let told = tell(helper).is_ok();
        if !told {
            self.note_left(child);
        }
        told
    }

    /// Pages that were brought back for children give up their slots, as there is no room to write in: they
    /// stay in place from then on.
    pub(super) fn take_slots_of(&mut self, child: &mut Child) {
        if child.relief.helper.is_none() || !self.has_nowhere_to_write() {
            return;
        }
        while let Some(page) = child.relief.brought.next() {
            child.relief.search.forget(page);
            if has_copy(&child.table, page) {
                child.let_copy_go(page, &mut self.slots, &mut self.pool);
            }
        }
    }
}
