//! The walks of threads through memory, page by page upwards or downwards, as their faults show them. A
//! thread may be on several at a time: who copies or merges is, and who sorts from both ends.

use super::landing::{WIDE_AREA, WIDE_PAGES};
use super::strides::Strides;
use std::ops::Range;

/// Threads that are told apart, and walks of each that are remembered.
const THREADS: usize = 64;
const WALKS: usize = 8;
/// How far ahead of a walk is read, at most. All walks share what can be on its way at a time:
/// one that took more than its share would keep it, as it is the first to see what it gives back.
const WINDOW_MAX: u32 = 16 * WIDE_PAGES;
const SHARED: u32 = WIDE_AREA;
/// Faults in a row, each where it was expected, that make a walk: where what is read ahead is used, and where
/// it is not, as in programs whose objects lie across the borders of pages.
const PROOF: u32 = 1;
const LONG_PROOF: u32 = 8;
/// So many leave no doubt that it is not some pages of a piece among others.
const SURE: u32 = 4;
/// A walk that was not gone on with for so many faults of its set gives its place to others, and one that is
/// not among so many that were read ahead of last its share.
const PLACE_KEPT: u32 = 256;
const SHARE_KEPT: usize = 32;

/// Which way a walk goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Up,
    Down,
}

impl Way {
    /// The page that comes after `page`, if there can be one.
    pub(super) fn next(self, page: u32) -> Option<u32> {
        page.checked_add_signed(match self {
            Self::Up => 1,
            Self::Down => -1,
        })
    }
}

/// What is worth reading ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ahead {
    pub(super) way: Way,
    /// So many pages.
    pub(super) count: u32,
    /// Faults in a row that were where they were expected.
    faults: u32,
    place: (usize, usize),
}

impl Ahead {
    /// There is no doubt that this is a walk.
    pub(super) fn is_sure(&self) -> bool {
        self.faults >= SURE
    }

    /// What new memory is worth filling at a time, however many others are on their way: twice as many pages
    /// with each fault, so that as many may come for nothing as the walk had.
    pub(super) fn worth_filling(&self, most: u32) -> u32 {
        1_u32.checked_shl(self.faults).map_or(most, |pages| pages.min(most))
    }
}

/// A walk of which pages that were read ahead are yet to be put in place.
#[derive(Debug)]
pub(super) struct Placing {
    pub(super) ahead: Ahead,
    /// Up to which page its thread gets without.
    pub(super) page: u32,
    /// So many pages at most.
    pub(super) left: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Walk {
    thread: u32,
    /// Where it faulted last.
    last: u32,
    /// Not known as long as there was one fault.
    way: Option<Way>,
    /// Where it faults next.
    next: u32,
    /// What was read ahead last.
    window: u32,
    /// Faults in a row that were where they were expected.
    faults: u32,
    /// The fault of its set that it went on with.
    at: u32,
}

impl Walk {
    /// Which way it goes if its next fault is at `page`, and pages before it may be left out.
    fn goes_on(&self, page: u32, may_be_left_out: impl Fn(Range<u32>) -> bool) -> Option<Way> {
        let goes_up = |from: u32| page >= from && may_be_left_out(from..page);
        let goes_down = |from: u32| page <= from && may_be_left_out(page + 1..from + 1);
        match self.way {
            Some(Way::Up) => goes_up(self.next).then_some(Way::Up),
            Some(Way::Down) => goes_down(self.next).then_some(Way::Down),
            None if goes_up(self.last.saturating_add(1)) => Some(Way::Up),
            None if self.last > 0 && goes_down(self.last - 1) => Some(Way::Down),
            None => None,
        }
    }
}

/// The walks of one set of threads.
#[derive(Debug, Clone, Copy, Default)]
struct Set {
    walks: [Walk; WALKS],
    faults: u32,
}

impl Set {
    /// Where a new walk is put: in place of the one that is longest ago, of those that lead nowhere if there
    /// is any.
    fn place(&self) -> usize {
        let age = |walk: &Walk| self.faults.wrapping_sub(walk.at);
        let worth = |&index: &usize| {
            let walk = &self.walks[index];
            (walk.window > 0 && age(walk) <= PLACE_KEPT, u32::MAX - age(walk))
        };
        (0..WALKS).min_by_key(worth).unwrap_or(0)
    }

    /// The walk that a thread's fault at `page` goes on with, and its way. One page may be there already. Of
    /// the walk it has just gone on with any that were: others share what it goes through.
    fn find(&self, thread: u32, page: u32, were_there: impl Fn(Range<u32>) -> bool) -> Option<(usize, Way)> {
        let its = || self.walks.iter().enumerate().filter(|(_, walk)| walk.thread == thread && walk.at != 0);
        let one = |pages: Range<u32>| pages.len() <= 1;
        let nearest = its().find_map(|(index, walk)| Some((index, walk.goes_on(page, one)?)));
        let is_on_it = |walk: &Walk| walk.faults >= SURE && walk.at.wrapping_add(1) == self.faults;
        let mut on_it = its().filter(|(_, walk)| is_on_it(walk));
        nearest.or_else(|| on_it.find_map(|(index, walk)| Some((index, walk.goes_on(page, &were_there)?))))
    }
}

/// The walks of all threads.
#[derive(Debug)]
pub(super) struct Walks {
    sets: Box<[Set; THREADS]>,
    /// Those that were read ahead of last.
    lately: [usize; SHARE_KEPT],
    turn: usize,
    /// Each at most once.
    pub(super) placing: Vec<Placing>,
    /// Pages read ahead of walks and given up, less those that were used.
    pub(super) in_vain: i32,
    /// What is gone through in other steps than page by page.
    pub(super) strides: Strides,
}

impl Walks {
    pub(super) fn none() -> Self {
        Self {
            sets: Box::new([Set::default(); THREADS]),
            lately: [0; SHARE_KEPT],
            turn: 0,
            placing: Vec::new(),
            in_vain: 0,
            strides: Strides::none(),
        }
    }

    /// A thread faulted. Says what to read ahead of it. `patient`: what was read ahead is hardly used.
    /// `were_there`: whether these pages were in place, or read ahead, before it came.
    pub(super) fn note(
        &mut self,
        thread: u32,
        page: u32,
        patient: bool,
        were_there: impl Fn(Range<u32>) -> bool,
    ) -> Option<Ahead> {
        let number = thread as usize % THREADS;
        let set = &mut self.sets[number];
        set.faults = set.faults.wrapping_add(1).max(1);
        let found = set.find(thread, page, |pages| !patient && were_there(pages));
        let index = found.map_or_else(|| set.place(), |(index, _)| index);
        self.placing.retain(|placing| placing.ahead.place != (number, index));
        let Some((_, way)) = found else {
            set.walks[index] = Walk { thread, last: page, at: set.faults, ..Walk::default() };
            return None;
        };
        // That one of many places is met happens by chance, too.
        let is_chance = set.walks[index].at.wrapping_add(1) != set.faults;
        let proof = if patient { LONG_PROOF } else { PROOF } + u32::from(is_chance);
        let walk = &mut set.walks[index];
        walk.faults = walk.faults.saturating_add(1);
        let is_proven = walk.faults >= proof;
        (walk.last, walk.way, walk.at) = (page, Some(way), set.faults);
        walk.next = way.next(page).unwrap_or(page);
        if !is_proven {
            walk.window = 0;
            return None;
        }
        self.lately[self.turn] = number * WALKS + index;
        self.turn = (self.turn + 1) % SHARE_KEPT;
        let most = self.share();
        let walk = &mut self.sets[number].walks[index];
        walk.window = (walk.window * 2).clamp(WIDE_PAGES, most);
        Some(Ahead { way, count: walk.window, faults: walk.faults, place: (number, index) })
    }

    /// How far ahead of each walk may be read.
    fn share(&self) -> u32 {
        let mut seen = [0_u64; THREADS * WALKS / 64];
        self.lately.iter().for_each(|walk| seen[walk / 64] |= 1 << (walk % 64));
        let walks = seen.iter().map(|bits| bits.count_ones()).sum::<u32>();
        (SHARED / walks.max(1) / WIDE_PAGES * WIDE_PAGES).clamp(WIDE_PAGES, WINDOW_MAX)
    }

    /// What was read ahead is on its way, or in place: the next fault of that walk will be here.
    pub(super) fn expect(&mut self, ahead: &Ahead, next: u32) {
        let (number, index) = ahead.place;
        self.sets[number].walks[index].next = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overdrive_base::rng::Rng;

    /// A thread faults where up to 256 pages in a row may have been there before.
    fn note(walks: &mut Walks, thread: u32, page: u32, patient: bool) -> Option<Ahead> {
        walks.note(thread, page, patient, |pages| pages.len() <= 256)
    }

    /// What is said to be worth reading ahead, fault by fault, of one thread.
    fn told(walks: &mut Walks, faults: impl IntoIterator<Item = u32>) -> Vec<Option<(Way, u32)>> {
        let ahead = faults.into_iter().map(|page| note(walks, 7, page, false));
        ahead.map(|ahead| ahead.map(|ahead| (ahead.way, ahead.count))).collect()
    }

    #[test]
    fn the_second_fault_in_a_row_makes_a_walk_up_or_down() {
        let up = told(&mut Walks::none(), [100, 101, 102, 104, 106]);
        assert_eq!(up[..3], [None, Some((Way::Up, 16)), Some((Way::Up, 32))]);
        assert_eq!(
            (up[3], up[4]),
            (Some((Way::Up, 64)), Some((Way::Up, 128))),
            "one page may be there already"
        );
        let down = told(&mut Walks::none(), [100, 99, 98, 2]);
        assert_eq!(down, [None, Some((Way::Down, 16)), Some((Way::Down, 32)), None]);
        let to_the_first = told(&mut Walks::none(), [1, 0, 0]);
        assert_eq!(to_the_first[1], Some((Way::Down, 16)));
    }

    #[test]
    fn a_thread_may_be_on_several_walks_at_a_time() {
        let mut walks = Walks::none();
        let ways = [Way::Up, Way::Down, Way::Up, Way::Up, Way::Down, Way::Up];
        let mut pages: Vec<u32> = (1..=ways.len() as u32).map(|walk| walk * walk * 1000).collect();
        for round in 0..6 {
            for (way, page) in ways.iter().zip(&mut pages) {
                let ahead = note(&mut walks, 7, *page, false);
                assert_eq!(ahead.map(|ahead| ahead.way), (round >= 2).then_some(*way), "round {round}");
                assert_eq!(ahead.is_some_and(|ahead| ahead.is_sure()), round >= 4, "round {round}");
                *page = way.next(*page).unwrap();
            }
        }
    }

    #[test]
    fn a_walk_is_not_forgotten_between_faults_at_random() {
        let (mut walks, mut rng) = (Walks::none(), Rng::new(1));
        told(&mut walks, 1000..1003);
        for page in 1003..1100 {
            assert!(note(&mut walks, 7, page, false).is_some(), "{page}");
            told(&mut walks, (0..10).map(|_| (1 << 20) + rng.below(1 << 20) as u32));
        }
    }

    #[test]
    fn walks_that_are_over_give_their_places_to_others() {
        let mut walks = Walks::none();
        for walk in 0..3 * WALKS as u32 {
            assert!(told(&mut walks, walk * 1000..walk * 1000 + 3).last().unwrap().is_some(), "{walk}");
        }
        told(&mut walks, (0..PLACE_KEPT).map(|page| (1 << 20) + page * page * 7 % 65_536));
        let two = (0..4).flat_map(|ahead| [500_000 + ahead, 600_000 + ahead]);
        assert!(told(&mut walks, two)[4..].iter().all(Option::is_some));
    }

    #[test]
    fn all_walks_share_what_can_be_on_its_way() {
        let mut walks = Walks::none();
        let mut windows = |threads: u32| {
            let pages =
                (0..40).flat_map(|page| (0..threads).map(move |thread| (thread, thread * 4096 + page)));
            let noted = pages.map(|(thread, page)| note(&mut walks, thread, page, false));
            noted.map(|ahead| ahead.map_or(0, |ahead| ahead.count)).last().unwrap()
        };
        assert_eq!([windows(1), windows(4), windows(28)], [256, 128, 16]);
    }

    #[test]
    fn where_what_is_read_ahead_is_not_used_more_faults_in_a_row_are_wanted() {
        let mut walks = Walks::none();
        let told: Vec<_> = (0..10).map(|page| note(&mut walks, 7, page, true).is_some()).collect();
        assert_eq!(told.iter().position(|&told| told), Some(LONG_PROOF as usize));
    }

    #[test]
    fn what_another_thread_has_gone_through_may_be_left_out() {
        let mut walks = Walks::none();
        assert_eq!(told(&mut walks, 100..106).last(), Some(&Some((Way::Up, 256))));
        assert_eq!(
            told(&mut walks, [106 + 200, 307, 307 + 300]),
            [Some((Way::Up, 256)), Some((Way::Up, 256)), None]
        );
        let mut walks = Walks::none();
        assert_eq!(told(&mut walks, [100, 101, 150]).last(), Some(&None), "no doubt is wanted");
        assert_eq!(
            (0..12).filter_map(|page| note(&mut walks, 7, 500 + page, true)).count(),
            4,
            "rarely used"
        );
        assert_eq!(note(&mut walks, 7, 600, true), None);
        let elsewhere = told(&mut Walks::none(), (100..106).chain([9000, 150]));
        assert_eq!(elsewhere.last(), Some(&None), "it was elsewhere meanwhile");
        let down = told(&mut Walks::none(), (0..6).map(|page| 1000 - page).chain([900]));
        assert_eq!(down.last(), Some(&Some((Way::Down, 256))));
    }

    #[test]
    fn what_was_yet_to_be_put_in_place_of_a_walk_is_dropped_when_it_goes_on_or_ends() {
        let mut walks = Walks::none();
        let place = |walks: &mut Walks, page: u32| {
            let ahead = note(walks, 7, page, false)?;
            walks.placing.push(Placing { ahead, page, left: 1 });
            Some(walks.placing.len())
        };
        let two = (100..105).flat_map(|page| [place(&mut walks, page), place(&mut walks, 1000 + page)]);
        assert_eq!(two.flatten().max(), Some(2), "one each");
        told(&mut walks, (1..=WALKS as u32).map(|page| page * 9999));
        assert_eq!(walks.placing.len(), 2, "others may come in between");
        told(&mut walks, (1..=PLACE_KEPT).map(|page| page * 9999));
        assert!(walks.placing.is_empty());
    }

    #[test]
    fn a_walk_in_reach_of_another_stays_its_own() {
        let mut walks = Walks::none();
        let mut places = Vec::new();
        for page in 0..20 {
            let mut of = |from: u32| note(&mut walks, 7, from + page, false).map(|ahead| ahead.place);
            places.push([of(1000), of(1100), of(1200)]);
        }
        assert!(places[8..].windows(2).all(|two| two[0] == two[1] && !two[0].contains(&None)), "{places:?}");
    }

    #[test]
    fn threads_are_not_mixed_up() {
        let mut walks = Walks::none();
        let pages = (100..120).map(|page| note(&mut walks, page % 2 * THREADS as u32, page, false));
        assert!(pages.flatten().all(|ahead| ahead.way == Way::Up));
        let mut walks = Walks::none();
        let far = [(1, 100), (1 + THREADS as u32, 101), (2, 101)];
        assert!(far.into_iter().all(|(thread, page)| note(&mut walks, thread, page, false).is_none()));
    }
}
