//! Pages whose content is nowhere any more: zeroes from now on. Programs give up gigabytes at once, and who
//! waits for a page meanwhile waits for that too, so it is done block by block.

use super::Engine;
use crate::slots::SEGMENT_SLOTS;
use crate::space::{BLOCK_PAGES, bits_of, block_by_block};
use crate::table::State;
use std::ops::Range;

/// Slots that are to be given up, together where they are of one segment.
#[derive(Debug, Default)]
struct Left {
    segment: u32,
    slots: u64,
}

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
        let (mut resident, mut others, mut left) = (0, 0u64, Left::default());
        for bit in bits_of(pages) {
            let page = block * BLOCK_PAGES + bit;
            match self.table.state(page) {
                State::Empty => continue,
                State::Resident => resident += 1,
                _ => others |= 1 << bit,
            }
            self.leave_pool(page);
            self.table.set(page, State::Empty, None);
            let slot = self.table.set_slot(page, 0);
            if slot != 0 {
                if slot / SEGMENT_SLOTS != left.segment {
                    self.leave_together(&mut left);
                    left.segment = slot / SEGMENT_SLOTS;
                }
                left.slots |= 1 << (slot % SEGMENT_SLOTS);
            }
        }
        self.leave_together(&mut left);
        if resident > 0 {
            self.queues.gone(block, resident);
        }
        if others != 0 {
            self.queues.given_up(block, others);
        }
    }

    fn leave_together(&mut self, left: &mut Left) {
        let slots = std::mem::take(&mut left.slots);
        if slots != 0 {
            self.slots.give_up_some(left.segment, slots);
        }
    }
}
