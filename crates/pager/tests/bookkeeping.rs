//! The store's log and the staging area against plain models: any order of writing, failing, giving up, holding for
//! children and releasing. A slot or frame that somebody still relies on is never handed out again.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use overdrive_pager::slots::{Bunch, SEGMENT_SLOTS, Slots, bunches};
use overdrive_pager::staging::Staging;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, Clone, Copy)]
enum Step {
    Write(u32),
    WriteEnds(usize),
    GiveUp(usize, u64),
    Hold(usize, u64),
    Release(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..=SEGMENT_SLOTS).prop_map(Step::Write),
        3 => any::<usize>().prop_map(Step::WriteEnds),
        20 => some().prop_map(|(index, others)| Step::GiveUp(index, others)),
        10 => some().prop_map(|(index, others)| Step::Hold(index, others)),
        10 => some().prop_map(|(index, others)| Step::Release(index, others)),
    ]
}

/// A slot, and others of its segment, a bit each.
fn some() -> impl Strategy<Value = (usize, u64)> {
    (any::<usize>(), prop_oneof![Just(0), any::<[u64; 3]>().prop_map(|[a, b, c]| a & b & c)])
}

/// Who needs a slot: a page, and so many children.
#[derive(Debug, Default, Clone, Copy)]
struct Use {
    owned: bool,
    holds: u32,
}

/// One of the slots that are as wanted, with those of its segment that are so too and among `others`.
fn pick(
    used: &BTreeMap<u32, Use>,
    (index, others): (usize, u64),
    wanted: impl Fn(&Use) -> bool,
) -> Option<(Vec<Bunch>, Vec<u32>)> {
    let fit: Vec<u32> = used.iter().filter(|(_, one)| wanted(one)).map(|(&slot, _)| slot).collect();
    let first = *fit.get(index % fit.len().max(1))?;
    let is_picked = |slot: u32| {
        slot == first
            || slot / SEGMENT_SLOTS == first / SEGMENT_SLOTS && others >> (slot % SEGMENT_SLOTS) & 1 == 1
    };
    let picked: Vec<u32> = fit.into_iter().filter(|&slot| is_picked(slot)).collect();
    let bunches: Vec<Bunch> = bunches(&picked).collect();
    let in_one = |slot| bunches.iter().filter(|bunch| bunch.has(slot)).count() == 1;
    assert!(picked.iter().all(|&slot| in_one(slot)));
    Some((bunches, picked))
}

proptest! {
    #[test]
    fn no_slot_is_handed_out_while_somebody_relies_on_it(steps in prop::collection::vec(step(), 1..400)) {
        let mut slots = Slots::new(6);
        let mut used: BTreeMap<u32, Use> = BTreeMap::new();
        let mut flying: Vec<(u32, u32)> = Vec::new();
        for step in steps {
            match step {
                Step::Write(count) => {
                    let room = slots.room_for_run();
                    let run = slots.take_run(count);
                    prop_assert_eq!(run.is_some(), count <= room);
                    let Some(first) = run else { continue };
                    for slot in first..first + count {
                        prop_assert!(slot != 0);
                        prop_assert!(!flying.iter().any(|&(at, count)| (at..at + count).contains(&slot)));
                        let before = used.insert(slot, Use { owned: true, holds: 0 });
                        prop_assert!(before.is_none());
                    }
                    flying.push((first, count));
                }
                Step::WriteEnds(index) => {
                    if !flying.is_empty() {
                        let (first, _) = flying.swap_remove(index % flying.len());
                        slots.written(first);
                    }
                }
                Step::GiveUp(index, others) => {
                    if let Some((bunches, picked)) = pick(&used, (index, others), |one| one.owned) {
                        bunches.into_iter().for_each(|bunch| slots.give_up_some(bunch));
                        picked.iter().for_each(|slot| used.get_mut(slot).unwrap().owned = false);
                    }
                }
                Step::Hold(index, others) => {
                    let is_there = |one: &Use| one.owned || one.holds > 0;
                    if let Some((bunches, picked)) = pick(&used, (index, others), is_there) {
                        prop_assert!(bunches.into_iter().all(|bunch| slots.hold_some(bunch).is_empty()));
                        picked.iter().for_each(|slot| used.get_mut(slot).unwrap().holds += 1);
                    }
                }
                Step::Release(index, others) => {
                    if let Some((bunches, picked)) = pick(&used, (index, others), |one| one.holds > 0) {
                        bunches.into_iter().for_each(|bunch| slots.release_some(bunch));
                        picked.iter().for_each(|slot| used.get_mut(slot).unwrap().holds -= 1);
                    }
                }
            }
            used.retain(|_, one| one.owned || one.holds > 0);
            prop_assert_eq!(slots.taken(), used.len() as u64);
            prop_assert!((0..6 * SEGMENT_SLOTS).all(|slot| slots.is_owned(slot) == used.get(&slot).is_some_and(|one| one.owned)));
            let live = |segment: u32| {
                let within = segment * SEGMENT_SLOTS..(segment + 1) * SEGMENT_SLOTS;
                within.filter(|&slot| slots.is_owned(slot)).count()
            };
            let sparse: Vec<u32> = slots.sparse().collect();
            prop_assert!(sparse.windows(2).all(|two| live(two[0]) <= live(two[1])), "not the sparsest first");
            let is_worth = |segment: u32| (1..56).contains(&live(segment));
            for segment in sparse {
                prop_assert!(is_worth(segment));
                let within = segment * SEGMENT_SLOTS..(segment + 1) * SEGMENT_SLOTS;
                prop_assert!(used.range(within.clone()).all(|(_, one)| one.holds == 0), "a child reads there");
                prop_assert!(!flying.iter().any(|(first, _)| within.contains(first)), "a write is on its way");
            }
        }
        // Once nobody relies on anything, all room is there again.
        flying.iter().for_each(|&(first, _)| slots.written(first));
        for (&slot, one) in &used {
            (0..one.holds).for_each(|_| slots.release_hold(slot));
            if one.owned {
                slots.give_up(slot);
            }
        }
        prop_assert_eq!(slots.taken(), 0);
        prop_assert!(slots.empty_segments() >= 4, "{} of 5 segments", slots.empty_segments());
    }

    #[test]
    fn no_frame_is_given_back_before_its_page_is_safe(
        steps in prop::collection::vec((0u8..4, 0u32..64, any::<bool>(), any::<usize>()), 1..200)
    ) {
        let mut staging = Staging::new(5);
        // Groups in order of age: the frames with pages, and whether each must still be written.
        let mut groups: VecDeque<(u32, BTreeMap<u32, bool>)> = VecDeque::new();
        let mut page = 0;
        for (kind, count, unwritten, index) in steps {
            match kind {
                0 => {
                    let taken = staging.take();
                    prop_assert_eq!(taken.is_some(), groups.len() < 5);
                    let Some(first) = taken else { continue };
                    prop_assert!(groups.iter().all(|(other, _)| *other != first));
                    let mut frames = BTreeMap::new();
                    for frame in first..first + count {
                        staging.fill(frame, page, unwritten);
                        frames.insert(frame, unwritten);
                        page += 1;
                    }
                    groups.push_back((first, frames));
                }
                1 | 2 => {
                    let waiting: Vec<u32> = groups
                        .iter()
                        .flat_map(|(_, frames)| frames.iter().filter(|(_, unwritten)| **unwritten))
                        .map(|(&frame, _)| frame)
                        .collect();
                    for &frame in waiting.iter().skip(index % 7).take(count as usize) {
                        staging.settle(frame);
                        let group = groups.iter_mut().find(|(_, frames)| frames.contains_key(&frame)).unwrap();
                        group.1.insert(frame, false);
                    }
                }
                _ => {
                    let frames = staging.releasable(1 + index as u32 % 3);
                    for _ in 0..frames.len() / 64 {
                        let (first, held) = groups.pop_front().unwrap();
                        prop_assert!(frames.contains(&first));
                        prop_assert!(held.values().all(|unwritten| !unwritten), "an unwritten page");
                    }
                    staging.released(&frames);
                }
            }
            prop_assert_eq!(staging.used() as usize, groups.len());
            prop_assert_eq!(staging.pages(), groups.iter().map(|(_, frames)| frames.len() as u64).sum::<u64>());
        }
    }
}
