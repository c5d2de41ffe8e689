//! Which part of the landing area is free: slots of one page, and wide ones for what is read ahead.

use crate::platform::Instant;
use std::time::Duration;

/// Pages of the landing area, 2.25 MiB: all of it is held all the time, and counts in the budget.
pub(super) const LANDING_PAGES: u32 = 576;
/// As many begin it as slots of one page.
pub(super) const NARROW_SLOTS: u32 = 128;
/// What one read can bring.
pub(super) const WIDE_PAGES: u32 = 16;
/// Reads at a time, at most.
pub(super) const READS: u32 = NARROW_SLOTS + (LANDING_PAGES - NARROW_SLOTS) / WIDE_PAGES;
/// Slots of one page left to demand: reading ahead takes none of the last ones.
const FOR_DEMAND: usize = 24;
/// What was read ahead and is not used this long is given up for other reads.
const STALE: Duration = Duration::from_millis(50);

/// The free slots. A slot goes by the number of its first page.
#[derive(Debug)]
pub(super) struct FreeLanding {
    narrow: Vec<u32>,
    wide: Vec<u32>,
    /// Slots of one page that somebody waited for when they were taken, and how many of them are in use.
    demanded: [bool; NARROW_SLOTS as usize],
    in_demand: usize,
    most_in_demand: [usize; 2],
}

impl FreeLanding {
    /// All of them.
    pub(super) fn all() -> Self {
        Self {
            narrow: (0..NARROW_SLOTS).rev().collect(),
            wide: (NARROW_SLOTS..LANDING_PAGES).step_by(WIDE_PAGES as usize).rev().collect(),
            demanded: [false; NARROW_SLOTS as usize],
            in_demand: 0,
            most_in_demand: [0; 2],
        }
    }

    /// A slot for so many pages, if there is one. `wanted`: somebody waits for them.
    pub(super) fn take(&mut self, pages: u32, wanted: bool) -> Option<u32> {
        let from = if pages > 1 || !(wanted || self.has_spare()) { &mut self.wide } else { &mut self.narrow };
        let slot = from.pop()?;
        if wanted && !is_wide(slot) {
            self.demanded[slot as usize] = true;
            self.in_demand += 1;
            self.most_in_demand[1] = self.most_in_demand[1].max(self.in_demand);
        }
        Some(slot)
    }

    /// The slot is free again.
    pub(super) fn put(&mut self, slot: u32) {
        if is_wide(slot) {
            self.wide.push(slot);
            return;
        }
        self.narrow.push(slot);
        self.in_demand -= usize::from(std::mem::take(&mut self.demanded[slot as usize]));
    }

    /// The most slots of one page that threads waited for at a time, in this period and the one before.
    pub(super) fn most_in_demand(&self) -> usize {
        self.most_in_demand.into_iter().max().unwrap_or(0)
    }

    /// Whether nothing is being read, nor waits in a slot.
    pub(super) fn is_whole(&self) -> bool {
        self.narrow.len() as u32 + self.wide.len() as u32 == READS
    }

    /// Another period begins.
    pub(super) fn begin_period(&mut self) {
        self.most_in_demand = [self.most_in_demand[1], self.in_demand];
    }

    /// Whether there are more slots of one page than demand may need.
    pub(super) fn has_spare(&self) -> bool {
        self.narrow.len() > FOR_DEMAND
    }
}

/// Whether a slot takes more than one page.
pub(super) fn is_wide(slot: u32) -> bool {
    slot >= NARROW_SLOTS
}

/// Whether what was asked for then is worth no more than a slot.
pub(super) fn is_stale(started: Instant) -> bool {
    started.elapsed() > STALE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_has_slots_when_all_that_can_be_read_ahead_is() {
        let mut free = FreeLanding::all();
        let ahead: Vec<u32> = std::iter::from_fn(|| free.take(1, false)).collect();
        assert_eq!(ahead.iter().filter(|&&slot| is_wide(slot)).count() as u32, READS - NARROW_SLOTS);
        assert_eq!((free.take(2, true), free.has_spare()), (None, false));
        let demanded: Vec<u32> = std::iter::from_fn(|| free.take(1, true)).collect();
        assert_eq!(demanded.len(), FOR_DEMAND);
        for &slot in ahead.iter().chain(&demanded) {
            free.put(slot);
        }
        assert!(free.take(16, true).is_some_and(|slot| slot + WIDE_PAGES <= LANDING_PAGES));
        assert!(free.take(1, true).is_some_and(|slot| !is_wide(slot)) && free.has_spare());
    }

    #[test]
    fn the_most_is_remembered_for_two_periods() {
        let mut free = FreeLanding::all();
        let taken: Vec<u32> = (0..5).filter_map(|_| free.take(1, true)).collect();
        assert!(free.take(16, false).is_some() && free.take(1, false).is_some());
        taken.into_iter().for_each(|slot| free.put(slot));
        assert_eq!(free.most_in_demand(), 5);
        free.begin_period();
        assert_eq!(free.most_in_demand(), 5);
        free.begin_period();
        assert_eq!(free.most_in_demand(), 0);
    }
}
