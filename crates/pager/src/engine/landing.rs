//! Which part of the landing area is free: slots of one page, and wide ones for what is read ahead. These
//! are halved as often as fits what is read, and come together again: rows on the store may be short, and the
//! drive should have many reads to do even so.
//!
//! Wide slots take DRAM only while threads walk through memory: where pages are wanted at random, each page
//! that is kept for something else is missed.

use super::Engine;
use crate::platform::Instant;
use std::time::Duration;

/// Slots of one page, which begin the landing area. They are held all the time, and count in the budget.
pub(super) const NARROW_SLOTS: u32 = 128;
/// Pages of the area of wide slots: a huge page.
pub(super) const WIDE_AREA: u32 = 512;
pub(super) const LANDING_PAGES: u32 = NARROW_SLOTS + WIDE_AREA;
/// What of these counts in the budget while the area is open. In tests memory is far smaller.
const WIDE_HELD: u64 = if cfg!(test) { 2 } else { WIDE_AREA as u64 };
/// What one read can bring.
pub(super) const WIDE_PAGES: u32 = 16;
/// Reads at a time, at most: a wide slot has two pages at least.
pub(super) const READS: u32 = NARROW_SLOTS + WIDE_AREA / 2;
/// Sizes of wide slots, as powers of two.
const SIZES: usize = WIDE_PAGES.ilog2() as usize;
/// Slots of one page left to demand: reading ahead takes none of the last ones.
const FOR_DEMAND: usize = 24;
/// What was read ahead and is not used this long is given up for other reads.
const STALE: Duration = Duration::from_millis(50);
/// The area is worth its memory when so many reads of several pages were to be begun in a period, and one for
/// so many pages that threads waited for.
const ASKED_LEAST: u32 = if cfg!(test) { 1 } else { 16 };
const DEMANDED_FOR_ONE: u32 = 8;
/// The share of DRAM that it may take, at most: a quarter.
const WIDE_SHARE: u64 = if cfg!(test) { 2 } else { 4 };
/// After so many periods in which it was not, it is closed.
const IDLE_PERIODS: u32 = if cfg!(test) { 1 } else { 3 };

/// The area of wide slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Area {
    Closed,
    /// It is opened once there is room.
    Wanted,
    Open,
}

/// The free slots. A slot goes by the number of its first page.
#[derive(Debug)]
pub(super) struct FreeLanding {
    narrow: Vec<u32>,
    area: Area,
    /// Those of two pages, of four, and so on.
    wide: [Vec<u32>; SIZES],
    /// Of the slot that begins at a page the place in this list, while it is in use.
    size: Box<[u8]>,
    /// Slots of one page that somebody waited for when they were taken, and how many of them are in use.
    demanded: [bool; NARROW_SLOTS as usize],
    in_demand: usize,
    most_in_demand: [usize; 2],
    /// Reads of several pages that were to be begun in this period, and pages that threads waited for.
    asked: u32,
    waited_for: u32,
    /// Periods in a row in which the area was not worth its memory.
    idle: u32,
}

impl FreeLanding {
    /// All of them, without an area of wide ones.
    pub(super) fn closed() -> Self {
        Self {
            narrow: (0..NARROW_SLOTS).rev().collect(),
            area: Area::Closed,
            wide: Default::default(),
            size: vec![0; LANDING_PAGES as usize].into(),
            demanded: [false; NARROW_SLOTS as usize],
            in_demand: 0,
            most_in_demand: [0; 2],
            asked: 0,
            waited_for: 0,
            idle: 0,
        }
    }

    /// Whether there is an area for a read of several pages, which is about to begin. `fits`: how many pages
    /// fit DRAM.
    pub(super) fn ask_for_wide(&mut self, fits: u64) -> bool {
        self.asked = self.asked.saturating_add(1);
        let may_open = WIDE_HELD * WIDE_SHARE <= fits;
        if self.area == Area::Closed && may_open && self.is_worth_while() {
            self.area = Area::Wanted;
        }
        self.area == Area::Open
    }

    fn is_worth_while(&self) -> bool {
        self.asked >= ASKED_LEAST && self.asked.saturating_mul(DEMANDED_FOR_ONE) >= self.waited_for
    }

    /// What the area takes of DRAM, in pages.
    pub(super) fn held(&self) -> u64 {
        if self.area == Area::Open { WIDE_HELD } else { 0 }
    }

    /// What it will take once there is room.
    pub(super) fn wanted(&self) -> u64 {
        if self.area == Area::Wanted { WIDE_HELD } else { 0 }
    }

    fn open(&mut self) {
        let all = (NARROW_SLOTS..LANDING_PAGES).step_by(WIDE_PAGES as usize).rev();
        self.wide[SIZES - 1] = all.collect();
        (self.area, self.idle) = (Area::Open, 0);
    }

    /// Whether it is open and was not worth it lately.
    fn is_over(&self) -> bool {
        self.area == Area::Open && self.idle >= IDLE_PERIODS
    }

    fn close(&mut self) {
        self.wide[SIZES - 1].clear();
        self.area = Area::Closed;
    }

    fn is_wide_whole(&self) -> bool {
        self.area != Area::Open || self.wide[SIZES - 1].len() as u32 * WIDE_PAGES == WIDE_AREA
    }

    /// A slot for so many pages, if there is one. `wanted`: somebody waits for them.
    pub(super) fn take(&mut self, pages: u32, wanted: bool) -> Option<u32> {
        if pages > 1 || !(wanted || self.has_spare()) {
            return self.take_wide(pages);
        }
        let slot = self.narrow.pop()?;
        if wanted {
            self.waited_for = self.waited_for.saturating_add(1);
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
        self.narrow.len() as u32 == NARROW_SLOTS && self.is_wide_whole()
    }

    /// Another period begins.
    pub(super) fn begin_period(&mut self) {
        self.most_in_demand = [self.most_in_demand[1], self.in_demand];
        let is_worth_while = self.is_worth_while();
        self.idle = if is_worth_while { 0 } else { self.idle.saturating_add(1) };
        if self.area == Area::Wanted && !is_worth_while {
            self.area = Area::Closed;
        }
        (self.asked, self.waited_for) = (0, 0);
    }

    /// Whether there are more slots of one page than demand may need.
    pub(super) fn has_spare(&self) -> bool {
        self.narrow.len() > FOR_DEMAND
    }
}

impl Engine {
    /// Opens the area of wide slots, if it is wanted and there is room.
    pub(super) fn open_landing(&mut self) {
        if self.free_landing.wanted() > 0 && !self.is_short() {
            self.io.open_area();
            self.free_landing.open();
        }
    }

    /// Closes it, if it was not worth its memory lately.
    pub(super) fn close_landing(&mut self) {
        if !self.free_landing.is_over() {
            return;
        }
        while self.give_back_oldest(true, true) {}
        if self.free_landing.is_wide_whole() && self.io.close_area() == Ok(()) {
            self.free_landing.close();
        }
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

    const FITS: u64 = 1 << 16;

    fn open() -> FreeLanding {
        let mut free = FreeLanding::closed();
        free.open();
        free
    }

    #[test]
    fn the_area_is_open_while_it_is_worth_its_memory() {
        let mut free = FreeLanding::closed();
        assert!(free.is_whole() && free.take(2, false).is_none() && !free.ask_for_wide(WIDE_HELD));
        assert_eq!((free.held(), free.wanted()), (0, 0), "it would be all of DRAM");
        let wait_for = |free: &mut FreeLanding, pages: u32| {
            for _ in 0..pages {
                let slot = free.take(1, true).unwrap();
                free.put(slot);
            }
        };
        wait_for(&mut free, (ASKED_LEAST + 1) * DEMANDED_FOR_ONE + 1);
        assert!((0..ASKED_LEAST).all(|_| !free.ask_for_wide(FITS)));
        assert_eq!(free.wanted(), 0, "too few of the pages are read so");
        assert_eq!((free.ask_for_wide(FITS), free.wanted()), (false, WIDE_HELD), "one more is enough");
        free.begin_period();
        assert!((0..ASKED_LEAST).all(|_| !free.ask_for_wide(FITS)));
        assert_eq!((free.held(), free.wanted()), (0, WIDE_HELD));
        free.open();
        assert!(free.ask_for_wide(FITS) && free.is_whole());
        assert_eq!((free.held(), free.wanted()), (WIDE_HELD, 0));
        for _ in 0..=IDLE_PERIODS {
            assert!(!free.is_over());
            free.begin_period();
        }
        assert!(free.is_over());
        free.close();
        assert!(free.held() == 0 && free.take(16, false).is_none());
    }

    #[test]
    fn what_is_wanted_no_longer_is_not_opened() {
        let mut free = FreeLanding::closed();
        (0..ASKED_LEAST).for_each(|_| assert!(!free.ask_for_wide(FITS)));
        free.begin_period();
        assert_eq!(free.wanted(), WIDE_HELD);
        free.begin_period();
        assert_eq!(free.wanted(), 0);
    }

    #[test]
    fn demand_has_slots_when_all_that_can_be_read_ahead_is() {
        let mut free = open();
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
        let (mut free, mut rng) = (open(), overdrive_base::rng::Rng::new(1));
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
        let mut free = open();
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
