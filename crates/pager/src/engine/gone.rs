//! Children that have ended: what was held for them is let go of, a little at a time.

use super::Engine;
use super::child::Child;
use super::helpers::HELPERS;
use crate::platform::Instant;
use crate::slots::bunches;
use crate::space::{BLOCK_PAGES, bits_of};
use crate::stats::Stat;
use crate::table::{State, Table};
use overdrive_sys::Errno;
use overdrive_sys::uffd::PAGE;
use std::time::Duration;

/// How often it is found out which children have ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Blocks of a child that has ended that are let go of at a time: it may have had gigabytes, and who waits
/// for a page meanwhile waits for that too.
const PARTED_WITH_AT_ONCE: u32 = if cfg!(test) { 1 } else { 256 };

/// What is left of a child that has ended: pages may still be held for it.
#[derive(Debug)]
pub(super) struct Gone {
    pub(super) table: Table,
    /// The first block that was not looked at.
    next: u32,
}

/// Parting with children.
#[derive(Debug, Default)]
pub(super) struct Parting {
    pub(super) gone: Vec<Gone>,
    /// When it was looked last which have ended.
    pub(super) seen: Option<Instant>,
}

impl Engine {
    /// A child needs these pages of a block no longer from where they were, a bit each: they are empty now.
    pub(super) fn let_go(&mut self, table: &mut Table, block: u32, pages: u64) {
        let mut held = [0; BLOCK_PAGES as usize];
        for bit in bits_of(pages) {
            let page = block * BLOCK_PAGES + bit;
            if let Some(cell) = table.cell(page) {
                self.pool.release_hold(cell);
            }
            held[bit as usize] = table.set_slot(page, 0);
            table.set(page, State::Empty, None);
        }
        bunches(&held).for_each(|bunch| self.slots.release_some(bunch));
    }

    /// A child that has ended, or has become another program, needs its slots no longer. The kernel says so
    /// when asked for anything in its memory; the addresses of the frames, which it never had, do no harm.
    ///
    /// # Errors
    /// The ring's.
    pub(super) fn part_with_the_dead(&mut self) -> Result<(), Errno> {
        if self.children.is_empty() || self.parting.seen.is_some_and(|seen| seen.elapsed() < LOOK_EVERY) {
            return Ok(());
        }
        self.parting.seen = Some(Instant::now());
        let nowhere = self.frames.extent().start;
        let is_dead =
            |child: &Child| child.userfault.write_protect(nowhere..nowhere + PAGE, false) == Err(Errno::SRCH);
        while let Some(index) = self.children.iter().position(is_dead) {
            let child = self.children.swap_remove(index);
            self.io.unwatch(child.number)?;
            self.io.unwatch(child.number | HELPERS)?;
            self.parting.gone.push(Gone { table: child.table, next: 0 });
            self.give_copy_back();
        }
        self.stats.set(Stat::Children, self.children.len() as u64);
        Ok(())
    }

    /// Lets go of some of what is held for children that have ended. True when there is more.
    pub(super) fn part_with_some(&mut self) -> bool {
        let Some(mut gone) = self.parting.gone.pop() else { return false };
        let blocks = gone.table.len().div_ceil(BLOCK_PAGES);
        let next = blocks.min(gone.next + PARTED_WITH_AT_ONCE);
        for block in gone.next..next {
            let used = gone.table.used_in(block);
            self.let_go(&mut gone.table, block, used);
        }
        if next < blocks {
            gone.next = next;
            self.parting.gone.push(gone);
        }
        !self.parting.gone.is_empty()
    }
}
