//! Memory that was read and never written to: a table or a filter of which little is in use.
//!
//! The kernel's one page of zeroes stands there, which takes no memory, so it counts for nothing and stays
//! when room is made. But who writes to it is given a page by the kernel, and nobody is told. So when the
//! process grows by what is not under the pager, such pages are looked for, and count from then on.

use super::Engine;
use super::takeover::GROWTH_PAGES;
use crate::numbers::Numbers;
use crate::space::BLOCK_PAGES;
use crate::stats::Stat;
use crate::table::State;
use overdrive_sys::uffd::PAGE;

/// Blocks looked at in one go, which takes a fifth of a millisecond.
const AT_ONCE: u32 = 256;

/// Where the kernel's page of zeroes may stand.
#[derive(Debug, Default)]
pub(super) struct Zeroes {
    are_looked_for: bool,
    /// The blocks that have such pages.
    blocks: Numbers,
    /// The next to look at. None between two rounds.
    next: Option<u32>,
    /// Pages not under the pager after the last round, or when there were fewer.
    unmanaged: u64,
}

impl Zeroes {
    /// From now on pages that were written to are looked for, and so zeroes may stand without counting.
    pub(super) fn look_for(&mut self) {
        self.are_looked_for = true;
    }

    pub(super) fn are_looked_for(&self) -> bool {
        self.are_looked_for
    }
}

impl Engine {
    /// A thread reads a page of which nothing is kept.
    pub(super) fn put_zeroes(&mut self, page: u32, address: u64) {
        let outcome = self.userfault.zero(address, PAGE).map(drop);
        if outcome.is_ok() {
            self.stats.add(Stat::ZeroFills, 1);
            self.now_zeroes(page);
        } else {
            self.placed(page, address, outcome);
        }
    }

    /// Zeroes stand there.
    pub(super) fn now_zeroes(&mut self, page: u32) {
        self.table.set(page, State::Zeroes, None);
        self.zeroes.blocks.note(page / BLOCK_PAGES);
    }

    /// Looks for pages that were zeroes and have been written to, some blocks at a time, when so many pages
    /// are not under the pager that there may be such.
    pub(super) fn find_written_zeroes(&mut self, unmanaged: u64) {
        self.zeroes.unmanaged = self.zeroes.unmanaged.min(unmanaged);
        if self.zeroes.next.is_none() && unmanaged > self.zeroes.unmanaged + GROWTH_PAGES {
            self.zeroes.next = Some(0);
        }
        let Some(mut next) = self.zeroes.next else { return };
        for _ in 0..AT_ONCE {
            let Some(block) = self.zeroes.blocks.first_from(next) else {
                self.zeroes.next = None;
                self.zeroes.unmanaged = unmanaged;
                return;
            };
            if !self.has_zeroes_after_a_look(block) {
                self.zeroes.blocks.clear(block);
            }
            next = block + 1;
        }
        self.zeroes.next = Some(next);
    }

    /// Whether any pages of a block are zeroes still, when those that are not have been found.
    fn has_zeroes_after_a_look(&mut self, block: u32) -> bool {
        let mut any = false;
        for (address, pages) in self.space.stretches(block) {
            // Where it is not to be seen, all count as if they had been written to.
            let own = self.page_map.own(address, pages.len()).unwrap_or(u64::MAX);
            for (bit, page) in pages.enumerate() {
                if self.table.state(page) == State::Zeroes {
                    match own >> bit & 1 {
                        1 => self.now_resident(page),
                        _ => any = true,
                    }
                }
            }
        }
        any
    }
}

#[cfg(test)]
impl Zeroes {
    pub(super) fn are_somewhere(&self) -> bool {
        self.blocks.count() > 0
    }

    /// The state in a word.
    pub(super) fn digest(&self) -> String {
        format!("{:?}", (&self.blocks, self.next))
    }
}

#[cfg(test)]
impl Engine {
    /// All in one go.
    pub(super) fn find_all_written_zeroes(&mut self) {
        self.find_written_zeroes(0);
        self.find_written_zeroes(u64::MAX / 2);
    }
}
