//! Putting a running program's memory under the pager, and keeping the whole process within its budget.
//!
//! Nothing is taken over while the program is small: its memory costs what it always does. From half the
//! budget on, all its private anonymous memory is looked for again and again, by whatever call it was made.
//! What the engine itself lives in is left out.

use super::{Engine, Limits, TICK};
use crate::platform::{Instant, anonymous_pages, for_each_anonymous};
use crate::seal::Seal;
use crate::stats::Stat;
use overdrive_sys::uffd::PAGE;
use std::ops::Range;
use std::time::Duration;

/// Smaller pieces of memory stay with the kernel: they would cost more in mappings than they hold.
const SMALLEST_BYTES: u64 = 256 << 10;
/// Growth of the process that is worth a look at its mappings at once.
const GROWTH_PAGES: u64 = 64;
/// Memory that is new is nobody's until it is found, and what makes room for it must be written first. So
/// room is kept for what came between two looks, this many times.
const LOOKS_AHEAD: u64 = 6;
/// The share of the budget kept for that, at most: a third.
const AHEAD_SHARE: u64 = 3;
/// By this share it is less with each look, unless more came: half of it is gone in a tenth of a second.
const AHEAD_FADES: u64 = 32;
/// Without growth, mappings are looked at this often.
const PERIOD: Duration = Duration::from_millis(100);

/// What is known about the process around the engine.
#[derive(Debug)]
pub(super) struct Takeover {
    exclude: Vec<Range<u64>>,
    budget_pages: u64,
    began: bool,
    looked: Instant,
    scanned: Instant,
    /// Pages outside the pager at the end of the last look.
    unmanaged_then: u64,
    /// Pages kept free for growth that no fault tells of.
    ahead: u64,
}

impl Engine {
    /// From now on takes over the memory of this process as it nears the budget, except for `exclude` and
    /// what the engine itself needs.
    pub fn watch_process(&mut self, exclude: &[Range<u64>]) {
        let own = [self.frames.extent(), self.pool.extent()];
        let own = own.into_iter().chain(self.io.extents()).chain(self.seal.as_ref().map(Seal::extent));
        let now = Instant::now();
        self.takeover = Some(Takeover {
            exclude: exclude.iter().cloned().chain(own).collect(),
            budget_pages: self.limits.budget,
            began: false,
            looked: now,
            scanned: now,
            unmanaged_then: 0,
            ahead: 0,
        });
    }

    /// Looks at the process, if it is time.
    pub(super) fn look_around(&mut self) {
        let Some(mut takeover) = self.takeover.take() else { return };
        if takeover.looked.elapsed() >= TICK {
            takeover.looked = Instant::now();
            self.look(&mut takeover);
            self.take_hints();
        }
        self.takeover = Some(takeover);
    }

    fn look(&mut self, takeover: &mut Takeover) {
        let Ok(anonymous) = anonymous_pages() else { return };
        let mut unmanaged = anonymous.saturating_sub(self.held_here());
        self.stats.set(Stat::Unmanaged, unmanaged);
        self.stats.raise(Stat::HeldMax, anonymous);
        let grown = unmanaged.saturating_sub(takeover.unmanaged_then);
        takeover.ahead -= takeover.ahead.div_ceil(AHEAD_FADES).min(takeover.ahead);
        takeover.ahead = takeover.ahead.max(grown * LOOKS_AHEAD).min(takeover.budget_pages / AHEAD_SHARE);
        takeover.unmanaged_then = unmanaged;
        if !takeover.began && anonymous < takeover.budget_pages / 2 {
            return;
        }
        if !takeover.began || grown > GROWTH_PAGES || takeover.scanned.elapsed() >= PERIOD {
            takeover.began = true;
            self.scan(takeover);
            unmanaged = anonymous_pages().unwrap_or(anonymous).saturating_sub(self.held_here());
            takeover.unmanaged_then = unmanaged;
            takeover.scanned = Instant::now();
        }
        self.limits = Limits::divide(takeover.budget_pages, unmanaged + takeover.ahead);
    }

    fn scan(&mut self, takeover: &Takeover) {
        let mut found = Vec::new();
        // Unreadable maps: nothing new is taken over this time.
        let _ = for_each_anonymous(|mapping| {
            if mapping.writable && !mapping.is_stack {
                found.extend(without(mapping.range, &takeover.exclude));
            }
        });
        for piece in found {
            for gap in self.space.gaps(piece) {
                if gap.end - gap.start >= SMALLEST_BYTES {
                    // What the kernel refuses (somebody else handles its faults) stays as it is.
                    let _ = self.adopt(gap);
                }
            }
        }
    }
}

/// What is left of a range.
fn without(range: Range<u64>, holes: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut rest = vec![range];
    for hole in holes {
        rest = rest
            .into_iter()
            .flat_map(|piece| {
                let before = piece.start..piece.end.min(hole.start.max(piece.start));
                let after = piece.start.max(hole.end.min(piece.end))..piece.end;
                [before, after]
            })
            .filter(|piece| piece.start < piece.end)
            .collect();
    }
    debug_assert!(rest.iter().all(|piece| piece.start.is_multiple_of(PAGE)));
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_left_out() {
        let page = |range: Range<u64>| range.start * PAGE..range.end * PAGE;
        assert_eq!(without(page(0..10), &[page(3..5)]), [page(0..3), page(5..10)]);
        assert_eq!(without(page(0..10), &[page(0..2), page(9..12)]), [page(2..9)]);
        assert_eq!(without(page(2..4), &[page(0..9)]), []);
        assert_eq!(without(page(2..4), &[page(5..9), page(0..1)]), [page(2..4)]);
    }
}
