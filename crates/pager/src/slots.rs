//! Places on the store: a log of segments of [`SEGMENT_SLOTS`] slots, one page each.
//!
//! Pages are written in long runs into empty segments; a slot is given up when its page changes. Which
//! segment to empty when room runs short is decided here, doing it is not. Which page a slot has is known to
//! the page alone: stores are larger than what is in them, and soon all their slots were used once.

use crate::space::{bits_of, pages_where};
use std::ops::Range;

/// Slots of a segment: a run of 256 KiB.
pub const SEGMENT_SLOTS: u32 = 64;

/// Segments with fewer pages than this are worth emptying.
const WORTH_EMPTYING: u8 = 56;

/// So many empty segments are too few, and so many always enough: 16 MiB.
pub const EMPTY_LEAST: usize = 8;
const EMPTY_MOST: u64 = 64;

/// A place for one page on the store. Slot 0 is never used, so that 0 can mean none.
pub type Slot = u32;

/// Slots of one segment, a bit each: what is done to many at once is done segment by segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bunch {
    segment: u32,
    slots: u64,
}

impl Bunch {
    /// Whether no slot is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots == 0
    }

    /// Whether this slot is in it.
    #[must_use]
    pub fn has(&self, slot: Slot) -> bool {
        slot / SEGMENT_SLOTS == self.segment && self.slots >> (slot % SEGMENT_SLOTS) & 1 == 1
    }
}

/// These slots, bunch by bunch: what is to be done to them is done at once to those that are in a row in one
/// segment. 0 is no slot.
pub fn bunches(slots: &[Slot]) -> impl Iterator<Item = Bunch> {
    let runs =
        slots.chunk_by(|&slot, &next| next == slot.wrapping_add(1) && !next.is_multiple_of(SEGMENT_SLOTS));
    runs.filter(|run| run[0] != 0).map(|run| Bunch {
        segment: run[0] / SEGMENT_SLOTS,
        slots: u64::MAX >> (SEGMENT_SLOTS - run.len() as u32) << (run[0] % SEGMENT_SLOTS),
    })
}

impl From<Slot> for Bunch {
    fn from(slot: Slot) -> Self {
        Self { segment: slot / SEGMENT_SLOTS, slots: 1 << (slot % SEGMENT_SLOTS) }
    }
}

/// Which slots are taken.
#[derive(Debug)]
pub struct Slots {
    /// The slots of each segment that a page has, a bit each.
    owned: Vec<u64>,
    live: Vec<u8>,
    /// How many children still read each slot: it stays when its owner gives it up.
    holds: Vec<u16>,
    /// The sum of `holds` of each segment: such segments cannot be emptied.
    held: Vec<u32>,
    most_holds: u16,
    /// Writes in flight into each segment: it must not be used again before they are over.
    busy: Vec<u8>,
    /// Segments that are empty again, and those that were never used: each process has its own, most of which
    /// hardly use any.
    empty: Vec<u32>,
    fresh: Vec<Range<u32>>,
    /// Slots that may be used: as many as there are, unless the store is to be had in parts.
    usable: u64,
    openings: Openings,
    /// The segment being filled and how many of its slots were handed out.
    open: Option<(u32, u32)>,
    taken: u64,
    by_live: ByLive,
}

/// Segments that no child reads, by how many pages each has: none and full ones are left out.
#[derive(Debug)]
struct ByLive {
    lists: Vec<Vec<u32>>,
    /// Where each segment is: its list, and its place there.
    places: Vec<(u8, u32)>,
}

impl ByLive {
    fn new(segments: u32) -> Self {
        Self { lists: vec![Vec::new(); SEGMENT_SLOTS as usize], places: vec![(0, 0); segments as usize] }
    }

    /// Puts a segment into this list; 0 is none.
    fn set(&mut self, segment: u32, list: u8) {
        let (from, place) = self.places[segment as usize];
        if from == list {
            return;
        }
        if from > 0 {
            let rest = &mut self.lists[usize::from(from)];
            rest.swap_remove(place as usize);
            if let Some(&moved) = rest.get(place as usize) {
                self.places[moved as usize].1 = place;
            }
        }
        let into = &mut self.lists[usize::from(list)];
        self.places[segment as usize] = (list, into.len() as u32);
        if list > 0 {
            into.push(segment);
        }
    }
}

/// How often each segment was opened. Says nothing of where things stand, and shows nothing.
struct Openings(Vec<u64>);

impl std::fmt::Debug for Openings {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}

impl Slots {
    /// A store of `segments` segments, all empty.
    #[must_use]
    pub fn new(segments: u32) -> Self {
        let mut slots = Self::without_room(segments);
        slots.add(0..segments);
        slots
    }

    /// A store of up to `segments` segments, of which none may be used before [`Slots::add`].
    #[must_use]
    pub fn without_room(segments: u32) -> Self {
        Self {
            owned: vec![0; segments as usize],
            live: vec![0; segments as usize],
            holds: vec![0; (segments * SEGMENT_SLOTS) as usize],
            held: vec![0; segments as usize],
            most_holds: u16::MAX,
            busy: vec![0; segments as usize],
            empty: Vec::new(),
            fresh: Vec::new(),
            usable: 0,
            openings: Openings(vec![0; segments as usize]),
            open: None,
            taken: 0,
            by_live: ByLive::new(segments),
        }
    }

    /// From now on these segments may be used too, as far as there are so many.
    pub fn add(&mut self, segments: Range<u32>) {
        let segments = segments.start..segments.end.min(self.live.len() as u32);
        self.usable += segments.len() as u64 * u64::from(SEGMENT_SLOTS);
        // Segment 0 holds slot 0, so it is left out.
        let fresh = segments.start.max(1)..segments.end;
        self.fresh.extend((!fresh.is_empty()).then_some(fresh));
    }

    /// Whether emptying segments would give room enough: half of what may be used is not needed.
    #[must_use]
    pub fn has_room_to_gain(&self) -> bool {
        self.taken < self.usable / 2 && self.sparse().next().is_some()
    }

    /// Slots in use.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Empty segments.
    #[must_use]
    pub fn empty_segments(&self) -> usize {
        self.empty.len() + self.fresh.iter().map(Range::len).sum::<usize>()
    }

    fn take_empty(&mut self) -> Option<u32> {
        self.empty.pop().or_else(|| {
            let fresh = self.fresh.last_mut()?;
            let segment = fresh.next();
            if fresh.start == fresh.end {
                self.fresh.pop();
            }
            segment
        })
    }

    /// How many are to be kept empty: as many as are filled while the next ones are emptied.
    #[must_use]
    pub fn empty_wanted(&self) -> usize {
        const SHARE: u64 = 64;
        (self.usable / u64::from(SEGMENT_SLOTS) / SHARE).clamp(EMPTY_LEAST as u64, EMPTY_MOST) as usize
    }

    /// How many slots in a row can be handed out now without opening another segment than the next one.
    #[must_use]
    pub fn room_for_run(&self) -> u32 {
        match self.open {
            Some((_, used)) if used < SEGMENT_SLOTS => SEGMENT_SLOTS - used,
            _ if self.empty_segments() > 0 => SEGMENT_SLOTS,
            _ => 0,
        }
    }

    /// Hands out `count` slots in a row (at most [`Slots::room_for_run`]) and returns the first. The segment
    /// counts as busy until [`Slots::written`].
    pub fn take_run(&mut self, count: u32) -> Option<Slot> {
        if count == 0 || count > self.room_for_run() {
            return None;
        }
        let (segment, used) = match self.open {
            Some((segment, used)) if used < SEGMENT_SLOTS => (segment, used),
            _ => {
                let segment = self.take_empty()?;
                self.openings.0[segment as usize] += 1;
                (segment, 0)
            }
        };
        self.owned[segment as usize] |= u64::MAX >> (SEGMENT_SLOTS - count) << used;
        self.live[segment as usize] += count as u8;
        self.sort(segment);
        self.busy[segment as usize] += 1;
        self.taken += u64::from(count);
        self.open = Some((segment, used + count));
        Some(segment * SEGMENT_SLOTS + used)
    }

    /// How often the segment of `slot` was opened to be filled. A slot is written once per opening.
    #[must_use]
    pub fn opening(&self, slot: Slot) -> u64 {
        self.openings.0[(slot / SEGMENT_SLOTS) as usize]
    }

    /// A write into the segment of `slot` is over.
    pub fn written(&mut self, slot: Slot) {
        let segment = slot / SEGMENT_SLOTS;
        self.busy[segment as usize] -= 1;
        self.recycle(segment);
    }

    /// Gives a slot up; 0 is no slot.
    pub fn give_up(&mut self, slot: Slot) {
        if slot != 0 {
            self.give_up_some(slot.into());
        }
    }

    /// Gives slots up.
    pub fn give_up_some(&mut self, Bunch { segment, slots }: Bunch) {
        let owned = &mut self.owned[segment as usize];
        debug_assert!(*owned & slots == slots, "slots {slots:x} of segment {segment}: it has {owned:x}");
        *owned &= !slots;
        let mut vacant = slots;
        if self.held[segment as usize] > 0 {
            let first = segment * SEGMENT_SLOTS;
            vacant &= pages_where(SEGMENT_SLOTS, |slot| !self.is_held(first + slot));
        }
        self.vacate(segment, vacant.count_ones());
    }

    /// One more child reads the slot: false when there are too many of them.
    pub fn hold(&mut self, slot: Slot) -> bool {
        self.hold_some(slot.into()).is_empty()
    }

    /// One more child reads these slots: all but those it returns, which too many read already.
    #[must_use]
    pub fn hold_some(&mut self, bunch: Bunch) -> Bunch {
        let Bunch { segment, slots } = bunch;
        let (most, mut refused) = (self.most_holds, 0);
        let holds = self.holds_of(segment);
        if slots == u64::MAX && holds.iter().fold(0, |highest, &holds| highest.max(holds)) < most {
            holds.iter_mut().for_each(|holds| *holds += 1);
        } else {
            for slot in bits_of(slots) {
                let holds = &mut holds[slot as usize];
                refused |= u64::from(*holds == most) << slot;
                *holds += u16::from(*holds < most);
            }
        }
        let held = &mut self.held[segment as usize];
        let was_read = std::mem::replace(held, *held + (slots & !refused).count_ones()) > 0;
        if !was_read {
            self.sort(segment);
        }
        Bunch { segment, slots: refused }
    }

    fn holds_of(&mut self, segment: u32) -> &mut [u16] {
        let first = (segment * SEGMENT_SLOTS) as usize;
        &mut self.holds[first..first + SEGMENT_SLOTS as usize]
    }

    /// From now on so many children at most may read one slot.
    #[cfg(test)]
    pub(crate) fn set_most_holds(&mut self, most: u16) {
        self.most_holds = most;
    }

    /// Whether children read the slot.
    #[must_use]
    pub fn is_held(&self, slot: Slot) -> bool {
        self.holds[slot as usize] > 0
    }

    /// A child reads the slot no longer.
    pub fn release_hold(&mut self, slot: Slot) {
        self.release_some(slot.into());
    }

    /// A child reads these slots no longer.
    pub fn release_some(&mut self, bunch: Bunch) {
        let Bunch { segment, slots } = bunch;
        let mut unread = 0;
        let holds = self.holds_of(segment);
        for slot in bits_of(slots) {
            holds[slot as usize] -= 1;
            unread |= u64::from(holds[slot as usize] == 0) << slot;
        }
        let held = &mut self.held[segment as usize];
        *held -= slots.count_ones();
        if *held == 0 {
            self.sort(segment);
        }
        self.vacate(segment, (unread & !self.owned[segment as usize]).count_ones());
    }

    fn vacate(&mut self, segment: u32, slots: u32) {
        if slots == 0 {
            return;
        }
        self.taken -= u64::from(slots);
        self.live[segment as usize] -= slots as u8;
        self.sort(segment);
        self.recycle(segment);
    }

    fn sort(&mut self, segment: u32) {
        let live = self.live[segment as usize];
        let is_there = self.held[segment as usize] == 0 && u32::from(live) < SEGMENT_SLOTS;
        self.by_live.set(segment, if is_there { live } else { 0 });
    }

    /// Whether slots of the segment are yet to be handed out.
    fn is_open(&self, segment: u32) -> bool {
        self.open.is_some_and(|(open, used)| open == segment && used < SEGMENT_SLOTS)
    }

    fn recycle(&mut self, segment: u32) {
        if self.live[segment as usize] == 0 && self.busy[segment as usize] == 0 && !self.is_open(segment) {
            if self.open.is_some_and(|(open, _)| open == segment) {
                self.open = None;
            }
            self.empty.push(segment);
        }
    }

    /// Whether a page has the slot; else it is free, or children alone read it.
    #[must_use]
    pub fn is_owned(&self, slot: Slot) -> bool {
        self.owned[(slot / SEGMENT_SLOTS) as usize] >> (slot % SEGMENT_SLOTS) & 1 == 1
    }

    /// How many slots of the segment are in use.
    #[must_use]
    pub fn live_in(&self, segment: u32) -> u8 {
        self.live[segment as usize]
    }

    /// Segments worth emptying, those that are emptied with the least work first.
    pub fn sparse(&self) -> impl Iterator<Item = u32> + '_ {
        let lists = &self.by_live.lists[1..usize::from(WORTH_EMPTYING)];
        let all = lists.iter().flatten().copied();
        all.filter(|&segment| !self.is_open(segment) && self.busy[segment as usize] == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_follow_each_other_and_slots_come_back() {
        let mut slots = Slots::new(3);
        let first = slots.take_run(40).unwrap();
        let second = slots.take_run(24).unwrap();
        assert_eq!((first, second), (64, 104));
        assert!(slots.is_owned(64) && slots.is_owned(127) && !slots.is_owned(128));
        (first..first + 40).for_each(|slot| slots.give_up(slot));
        (second..second + 24).for_each(|slot| slots.give_up(slot));
        assert_eq!(slots.empty_segments(), 1, "the kernel may still be writing there");
        slots.written(first);
        slots.written(second);
        assert_eq!((slots.empty_segments(), slots.taken()), (2, 0));
    }

    #[test]
    fn no_slot_is_written_twice_in_one_opening() {
        let mut slots = Slots::new(3);
        let mut written = std::collections::BTreeSet::new();
        for round in 0..300 {
            let count = slots.room_for_run().min(1 + round % 64);
            let run = slots.take_run(count).unwrap();
            assert!((run..run + count).all(|slot| written.insert((slot, slots.opening(slot)))));
            (run..run + count).for_each(|slot| slots.give_up(slot));
            slots.written(run);
        }
        assert!(written.iter().any(|&(_, opening)| opening > 10));
    }

    #[test]
    fn a_store_in_parts_has_what_was_added() {
        let mut slots = Slots::without_room(5);
        assert_eq!((slots.room_for_run(), slots.take_run(1)), (0, None));
        slots.add(0..2);
        let first = slots.take_run(64).unwrap();
        assert_eq!((first, slots.room_for_run()), (64, 0), "slot 0 stays unused");
        slots.written(first);
        assert!(!slots.has_room_to_gain(), "no segment is worth emptying");
        slots.add(2..99);
        assert_eq!(slots.empty_segments(), 3);
        let next = slots.take_run(1).unwrap();
        slots.written(next);
        (first..first + 40).for_each(|slot| slots.give_up(slot));
        assert!(slots.has_room_to_gain());
    }

    #[test]
    fn what_a_child_reads_stays() {
        let mut slots = Slots::new(3);
        let run = slots.take_run(64).unwrap();
        slots.written(run);
        assert!(slots.hold(run) && slots.hold(run));
        assert!(slots.is_held(run) && !slots.is_held(run + 1));
        (run..run + 64).for_each(|slot| slots.give_up(slot));
        assert_eq!((slots.taken(), slots.empty_segments(), slots.sparse().next()), (1, 1, None));
        slots.release_hold(run);
        assert_eq!(slots.taken(), 1);
        slots.release_hold(run);
        assert_eq!((slots.taken(), slots.empty_segments()), (0, 2));
    }

    #[test]
    fn those_that_too_many_children_read_are_refused_alone() {
        let mut slots = Slots::new(3);
        let run = slots.take_run(64).unwrap();
        slots.set_most_holds(1);
        assert!(slots.hold(run));
        let refused = slots.hold_some(Bunch { segment: run / 64, slots: 3 });
        assert!(refused.has(run) && !refused.has(run + 1) && slots.is_held(run + 1));
    }

    #[test]
    fn slots_in_a_row_are_a_bunch_in_each_segment() {
        let bunch = |segment, slots| Bunch { segment, slots };
        let all = |slots: &[Slot]| bunches(slots).collect::<Vec<_>>();
        assert_eq!(all(&[0, 0]), []);
        assert_eq!(all(&[126, 127, 128, 129, 0, 131]), [bunch(1, 3 << 62), bunch(2, 3), bunch(2, 8)]);
        assert_eq!(all(&[70, 69]), [bunch(1, 1 << 6), bunch(1, 1 << 5)]);
        assert_eq!(all(&(64..128).collect::<Vec<_>>()), [bunch(1, u64::MAX)]);
    }

    #[test]
    fn a_full_store_hands_out_nothing() {
        let mut slots = Slots::new(2);
        assert_eq!(slots.room_for_run(), 64);
        assert!(slots.take_run(64).is_some());
        assert_eq!((slots.room_for_run(), slots.take_run(1)), (0, None));
    }

    #[test]
    fn the_sparsest_segment_is_emptied_first() {
        let mut slots = Slots::new(4);
        let runs: Vec<_> = (0..3).map(|_| slots.take_run(64).unwrap()).collect();
        runs.iter().for_each(|&run| slots.written(run));
        assert_eq!(slots.sparse().next(), None, "all full");
        (0..30).for_each(|index| slots.give_up(runs[1] + index));
        (0..10).for_each(|index| slots.give_up(runs[0] + index));
        assert_eq!(slots.sparse().next(), Some(runs[1] / 64));
        assert_eq!(slots.live_in(runs[1] / 64), 34);
        assert!(!slots.is_owned(runs[1] + 29) && slots.is_owned(runs[1] + 30));
    }
}
