//! How a process and its child share the budget: memory goes to who waits for pages that were there a moment
//! ago.
//!
//! Children begin with a small part of the budget, on top of it: mostly they end soon, or read once through
//! what there is. But one may go through the same pages over and over while its parent only waits for it.
//! Then the parent lends it memory, and takes it back as soon as it waits for pages itself, even if it does
//! so much less often than the child. Several children get more only for memory that they have mapped
//! themselves: of what they have from their parent, whoever wants it back would get a copy for itself.

use super::child::Child;
use super::helpers::SHARE;
use super::{Engine, Limits};

/// So many pages are waited for, by anybody, between two looks at who needs memory.
const WAITED_FOR: u32 = if cfg!(test) { 4 } else { 64 };
/// Memory is lent as long as so many pages come back to the child for one that the parent waits for, and
/// taken back when they are fewer than so many.
const LENDS_FROM: u32 = 64;
const RETURNS_BELOW: u32 = 16;
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
    /// So many steps more are to be lent, as soon as there is room for each.
    due: u32,
}

impl Lending {
    /// The process waits for pages, or has taken more memory.
    pub(super) fn note_own(&mut self, pages: u64) {
        self.own = self.own.saturating_add(u32::try_from(pages).unwrap_or(u32::MAX));
    }

    /// A child waits for a page that went a moment ago. `is_alone`: no other child has that too.
    pub(super) fn note_back(&mut self, is_alone: bool) {
        self.back = self.back.saturating_add(is_alone.into());
    }

    /// Whether room is wanted to lend more.
    pub(super) fn wants_room(&self) -> bool {
        self.due > 0
    }

    /// Whether to lend more, or less, when that is known.
    fn lends_more(&mut self) -> Option<bool> {
        if self.own.saturating_add(self.back) < WAITED_FOR {
            return None;
        }
        let (own, back) = (std::mem::take(&mut self.own), std::mem::take(&mut self.back));
        if own.saturating_mul(LENDS_FROM) <= back {
            return Some(true);
        }
        (own.saturating_mul(RETURNS_BELOW) > back).then_some(false)
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
        let lending = &mut self.helping.lending;
        match lending.lends_more() {
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
            let verdict = lending.lends_more();
            assert_eq!(lending.lends_more(), None, "that is over");
            verdict
        };
        assert_eq!(verdict(0, WAITED_FOR - 1), None, "that says little");
        assert_eq!([verdict(0, 4), verdict(1, 64), verdict(10, 640)], [Some(true); 3]);
        assert_eq!([verdict(1, 63), verdict(1, 16)], [None; 2]);
        assert_eq!([verdict(1, 15), verdict(4, 0), verdict(u64::MAX, 100)], [Some(false); 3]);
    }
}
