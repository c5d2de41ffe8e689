//! Pages whose content is nowhere any more: zeroes from now on. Programs give up gigabytes at once, and who
//! waits for a page meanwhile waits for that too, so it is done block by block.

use super::Engine;
use crate::slots::bunches;
use crate::space::{BLOCK_PAGES, bits_of, block_by_block};
use crate::table::State;
use std::ops::Range;

impl Engine {
    /// The page's content is nowhere any more.
    pub(super) fn forget(&mut self, page: u32) {
        self.forget_some(page / BLOCK_PAGES, 1 << (page % BLOCK_PAGES));
    }

    /// That of all these pages is.
    pub(super) fn forget_all(&mut self, pages: Range<u32>) {
        block_by_block(pages).for_each(|(block, pages)| self.forget_some(block, pages));
    }

    /// That of some pages of a block is, a bit each.
    pub(super) fn forget_some(&mut self, block: u32, pages: u64) {
        let (mut resident, mut others, mut left) = (0, 0u64, [0; BLOCK_PAGES as usize]);
        for bit in bits_of(pages) {
            let page = block * BLOCK_PAGES + bit;
            match self.table.state(page) {
                State::Empty => continue,
                State::Resident => resident += 1,
                State::Zeroes => {}
                _ => others |= 1 << bit,
            }
            self.leave_pool(page);
            self.table.set(page, State::Empty, None);
            left[bit as usize] = self.table.set_slot(page, 0);
        }
        bunches(&left).for_each(|bunch| self.slots.give_up_some(bunch));
        if resident > 0 {
            self.queues.gone(block, resident);
        }
        if others != 0 {
            self.queues.given_up(block, others);
        }
    }
}
