//! Which part of the landing area is free: slots of one page, and wide ones for what is read ahead. These
//! are halved as often as fits what is read, and come together again: rows on the store may be short, and the
//! drive should have many reads to do even so.

use crate::platform::Instant;
use std::time::Duration;

/// Pages of the landing area, 2.25 MiB: all of it is held all the time, and counts in the budget.
pub(super) const LANDING_PAGES: u32 = 576;
/// As many begin it as slots of one page.
pub(super) const NARROW_SLOTS: u32 = 128;
/// What one read can bring.
pub(super) const WIDE_PAGES: u32 = 16;
/// Reads at a time, at most: a wide slot has two pages at least.
pub(super) const READS: u32 = NARROW_SLOTS + (LANDING_PAGES - NARROW_SLOTS) / 2;
/// Sizes of wide slots, as powers of two.
const SIZES: usize = WIDE_PAGES.ilog2() as usize;
/// Slots of one page left to demand: reading ahead takes none of the last ones.
const FOR_DEMAND: usize = 24;
/// What was read ahead and is not used this long is given up for other reads.
const STALE: Duration = Duration::from_millis(50);

/// The free slots. A slot goes by the number of its first page.
#[derive(Debug)]
pub(super) struct FreeLanding {
    narrow: Vec<u32>,
    /// Those of two pages, of four, and so on.
    wide: [Vec<u32>; SIZES],
    /// Of the slot that begins at a page the place in this list, while it is in use.
    size: Box<[u8]>,
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
            wide: std::array::from_fn(|size| {
                let all = (NARROW_SLOTS..LANDING_PAGES).step_by(WIDE_PAGES as usize).rev();
                if size == SIZES - 1 { all.collect() } else { Vec::new() }
            }),
            size: vec![0; LANDING_PAGES as usize].into(),
            demanded: [false; NARROW_SLOTS as usize],
            in_demand: 0,
            most_in_demand: [0; 2],
        }
    }

    /// A slot for so many pages, if there is one. `wanted`: somebody waits for them.
    pub(super) fn take(&mut self, pages: u32, wanted: bool) -> Option<u32> {
        if pages > 1 || !(wanted || self.has_spare()) {
            return self.take_wide(pages);
        }
        let slot = self.narrow.pop()?;
        if wanted {
            self.demanded[slot as usize] = true;
            self.in_demand += 1;
            self.most_in_demand[1] = self.most_in_demand[1].max(self.in_demand);
        }
        Some(slot)
    }

    fn take_wide(&mut self, pages: u32) -> Option<u32> {
        let wanted = pages.max(2).next_power_of_two().ilog2() as usize - 1;
        let mut size = (wanted..SIZES).find(|&size| !self.wide[size].is_empty())?;
        let slot = self.wide[size].pop()?;
        while size > wanted {
            size -= 1;
            self.wide[size].push(slot + pages_of(size));
        }
        self.size[slot as usize] = size as u8;
        Some(slot)
    }

    fn put_wide(&mut self, slot: u32) {
        let mut size = std::mem::take(&mut self.size[slot as usize]) as usize;
        let mut slot = slot;
        while size < SIZES - 1 {
            // The other half of the slot that it was half of.
            let other = ((slot - NARROW_SLOTS) ^ pages_of(size)) + NARROW_SLOTS;
            let Some(at) = self.wide[size].iter().position(|&free| free == other) else { break };
            self.wide[size].swap_remove(at);
            (slot, size) = (slot.min(other), size + 1);
        }
        self.wide[size].push(slot);
    }

    /// The slot is free again.
    pub(super) fn put(&mut self, slot: u32) {
        if is_wide(slot) {
            self.put_wide(slot);
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
        let wide = self.wide[SIZES - 1].len() as u32 * WIDE_PAGES;
        self.narrow.len() as u32 + wide == LANDING_PAGES
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

/// Pages of a wide slot.
fn pages_of(size: usize) -> u32 {
    2 << size
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
        assert!(free.is_whole(), "the halves came together again");
        assert!(free.take(16, true).is_some_and(|slot| slot + WIDE_PAGES <= LANDING_PAGES));
        assert!(free.take(1, true).is_some_and(|slot| !is_wide(slot)) && free.has_spare());
    }

    #[test]
    fn wide_slots_are_halved_and_none_overlap() {
        let (mut free, mut rng) = (FreeLanding::all(), overdrive_base::rng::Rng::new(1));
        let mut taken: Vec<(u32, u32)> = Vec::new();
        let mut most = 0;
        for _ in 0..20_000 {
            let pages = 2 + rng.below(u64::from(WIDE_PAGES) - 1) as u32;
            match free.take(pages, false) {
                Some(slot) if rng.below(8) > 0 => taken.push((slot, pages)),
                Some(slot) => free.put(slot),
                None => free.put(taken.swap_remove(rng.below(taken.len() as u64) as usize).0),
            }
            most = most.max(taken.len());
            let pages = taken.iter().flat_map(|&(slot, pages)| slot..slot + pages);
            let mut used = [false; LANDING_PAGES as usize];
            pages.for_each(|page| assert!(!std::mem::replace(&mut used[page as usize], true)));
        }
        assert!(most > 40, "{most} reads of two to 16 pages");
        taken.into_iter().for_each(|(slot, _)| free.put(slot));
        assert!(free.is_whole());
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
