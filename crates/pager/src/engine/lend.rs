//! How a process and its child share the budget: memory goes to who waits for pages that were there a moment
//! ago.
//!
//! Children begin with a small part of the budget, on top of it: mostly they end soon, or read once through
//! what there is. But one may go through the same pages over and over while its parent only waits for it.
//! Then the parent lends it memory, and takes it back as soon as it waits for pages itself, even if it does
//! so much less often than the child.
//!
//! Of what several children have from their parent, whoever wants a page back gets a copy for itself, while
//! one that stands in the parent's place serves all that only read it. So they are lent more for such pages
//! where those that went lately are wanted back so much sooner than others that it pays nevertheless: where
//! some are hot, or each child writes to what it uses.

use super::child::Child;
use super::helpers::SHARE;
use super::{Engine, Limits};

/// So many pages are waited for, by anybody, between two looks at who needs memory.
const WAITED_FOR: u32 = if cfg!(test) { 4 } else { 64 };
/// Memory is lent as long as so many pages come back to the child for one that the parent waits for, and
/// taken back when they are fewer than so many.
const LENDS_FROM: u32 = 64;
const RETURNS_BELOW: u32 = 16;
/// So many pages are waited for that several children have from their parent, between two looks at whether
/// copies of these pay.
const COPIES: u32 = if cfg!(test) { 4 } else { 512 };
/// They do when a page that went lately is wanted back so many times sooner than another, for each child that
/// would lose that one. Those that stand in the parent's place are counted among the others, as it is not
/// known who still shares them; so these are wanted less often than it seems.
const COPY_PAYS: u64 = 2;
/// So many steps are lent each time.
const STEPS: u32 = 8;
/// A parent keeps this part of the budget in any case, and so many pages.
const KEEPS: u64 = 8;
const LEAST: u64 = if cfg!(test) { 1 } else { Limits::LEAST };
/// It goes back so much faster than it was lent.
const RETURNED: u64 = 4;

/// What a process lends to its child, in pages.
#[derive(Debug, Default, Hash)]
pub(super) struct Lending {
    /// What the child may have beside its share.
    may: u64,
    /// What this process does without for that. More, until it was given back.
    pub(super) lent: u64,
    /// For so many this process has waited since the last look, and so many came back to children.
    own: u32,
    back: u32,
    /// Of what several children have from their parent: waits for pages that went lately, and for others.
    lately: u32,
    others: u32,
    /// So many steps more are to be lent, as soon as there is room for each.
    due: u32,
}

impl Lending {
    /// The process waits for pages, or has taken more memory.
    pub(super) fn note_own(&mut self, pages: u64) {
        self.own = self.own.saturating_add(u32::try_from(pages).unwrap_or(u32::MAX));
    }

    /// A child waits for a page of memory that no other child has.
    pub(super) fn note_back(&mut self, went_lately: bool) {
        self.back = self.back.saturating_add(went_lately.into());
    }

    /// A child waits for a page that others have, too.
    pub(super) fn note_copy(&mut self, went_lately: bool) {
        let count = if went_lately { &mut self.lately } else { &mut self.others };
        *count += 1;
    }

    /// Whether room is wanted to lend more.
    pub(super) fn wants_room(&self) -> bool {
        self.due > 0
    }

    /// Whether to lend more, or less, when that is known. `pages`: how many of all children went lately, and
    /// how many are in use, asked for where it matters.
    fn lends_more(&mut self, children: u64, pages: impl FnOnce() -> (u64, u64)) -> Option<bool> {
        let too_many = self.copies_pay(children, pages) == Some(false);
        if self.own.saturating_add(self.back) < WAITED_FOR {
            return too_many.then_some(false);
        }
        let (own, back) = (std::mem::take(&mut self.own), std::mem::take(&mut self.back));
        if own.saturating_mul(LENDS_FROM) <= back {
            return Some(true);
        }
        (too_many || own.saturating_mul(RETURNS_BELOW) > back).then_some(false)
    }

    /// Whether copies pay, or cost more than they bring, when that is known. Waits for those that pay count
    /// like those for memory that no other child has.
    fn copies_pay(&mut self, children: u64, pages: impl FnOnce() -> (u64, u64)) -> Option<bool> {
        if self.lately.saturating_add(self.others) < COPIES {
            return None;
        }
        let (lately, others) = (std::mem::take(&mut self.lately), std::mem::take(&mut self.others));
        let (went_lately, in_use) = pages();
        // How often one is waited for, times the same: how many there are of each kind.
        let one_that_went = u64::from(lately) * in_use.saturating_sub(went_lately).max(1);
        let another = u64::from(others) * went_lately.max(1) * children;
        if one_that_went >= another * COPY_PAYS {
            self.back = self.back.saturating_add(lately);
            return Some(true);
        }
        (one_that_went < another).then_some(false)
    }
}

impl Engine {
    /// Pages that can go which children may have together.
    pub(super) fn share_of_children(&self) -> u64 {
        self.limits.budget / SHARE + self.helping.lending.may
    }

    /// Lends memory to a child, or takes it back, in steps for which there is always room: what is lent has
    /// to be evicted before.
    pub(super) fn share_budget(&mut self) {
        if self.children.is_empty() && self.helping.lending.lent == 0 {
            return;
        }
        let theirs: u64 = self.children.iter().map(Child::can_give).sum();
        let (share, step) = (self.limits.budget / SHARE, self.limits.reserve / 4 + 1);
        let has_room = !self.is_short_with(step);
        let has_use = theirs + step >= self.share_of_children();
        let all = (self.limits.total + self.helping.lending.lent).saturating_sub(LEAST);
        let most = all.min(self.limits.budget / KEEPS * (KEEPS - 1));
        let children = self.children.len() as u64;
        let pages = || {
            let of_each = self.children.iter().map(|it| (it.relief.went_lately(), it.table.in_use().into()));
            of_each.fold((0, 0), |all: (u64, u64), its: (u64, u64)| (all.0 + its.0, all.1 + its.1))
        };
        let lending = &mut self.helping.lending;
        match lending.lends_more(children, pages) {
            _ if self.children.is_empty() => (lending.may, lending.due) = (0, 0),
            Some(true) => lending.due = STEPS,
            Some(false) => {
                lending.may = lending.may.saturating_sub(step * RETURNED);
                lending.due = 0;
            }
            None => {}
        }
        if lending.due > 0 && has_room && has_use {
            lending.may = (lending.may + step).min(most);
            lending.due -= 1;
        }
        let given = theirs.saturating_sub(share).min(lending.lent);
        let lent = std::mem::replace(&mut lending.lent, lending.may.max(given));
        self.limits.total = (self.limits.total + lent).saturating_sub(lending.lent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_gets_memory_and_the_process_itself_first() {
        let verdict = |own: u64, back: u32| {
            let mut lending = Lending::default();
            lending.note_own(own);
            (0..back).for_each(|_| lending.note_back(true));
            (0..back).for_each(|_| lending.note_back(false));
            let verdict = lending.lends_more(1, || (0, 0));
            assert_eq!(lending.lends_more(1, || (0, 0)), None, "that is over");
            verdict
        };
        assert_eq!(verdict(0, WAITED_FOR - 1), None, "that says little");
        assert_eq!([verdict(0, 4), verdict(1, 64), verdict(10, 640)], [Some(true); 3]);
        assert_eq!([verdict(1, 63), verdict(1, 16)], [None; 2]);
        assert_eq!([verdict(1, 15), verdict(4, 0), verdict(u64::MAX, 100)], [Some(false); 3]);
    }

    #[test]
    fn copies_pay_where_few_pages_are_wanted_again_and_again() {
        let verdict = |own: u64, lately: u32, others: u32, children: u64| {
            let mut lending = Lending::default();
            lending.note_own(own);
            (0..lately).for_each(|_| lending.note_copy(true));
            (0..others).for_each(|_| lending.note_copy(false));
            // A quarter of all pages went lately.
            let verdict = lending.lends_more(children, || (1000, 4000));
            assert_eq!(lending.lends_more(children, || (1000, 4000)), None, "that is over");
            verdict
        };
        assert_eq!(verdict(0, COPIES - 1, 0, 2), None, "that says little");
        assert_eq!(verdict(0, 100, 300, 2), Some(false), "all are alike");
        assert_eq!(verdict(0, 200, 200, 2), None, "in between");
        assert_eq!([verdict(0, 300, 200, 2), verdict(0, 300, 200, 4)], [Some(true), None]);
        assert_eq!([verdict(0, 900, 100, 4), verdict(0, 0, 400, 4)], [Some(true), Some(false)]);
        assert_eq!([verdict(14, 900, 100, 4), verdict(15, 900, 100, 4)], [Some(true), None]);
        assert_eq!(verdict(100, 900, 100, 4), Some(false), "the process waits itself");
    }
}
