//! The largest number that holds, by steps that double and bisection. It decides what to try next and tries
//! nothing itself.
//!
//! A miss may be chance: a host that is busy for a moment. So what would be the edge is tried once more, at
//! the end, when the moment has gone by. Misses above the edge decide nothing and stay as they are.

use std::collections::BTreeMap;

/// What a trial said of its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// It holds.
    Holds,
    /// It missed, which may be chance.
    Missed,
    /// It fails, and would again.
    Fails,
}

/// What was learnt so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    max: u32,
    /// What is tried first.
    first: u32,
    holds: u32,
    /// Numbers above it that did not hold, each with whether that is certain.
    failed: BTreeMap<u32, bool>,
}

impl Search {
    /// A search from 1 up to `max`.
    #[must_use]
    pub fn up_to(max: u32) -> Self {
        Self::from(1, max)
    }

    /// The same, but `first` is tried first: a guess that is right saves the way to it. What is tried then is
    /// near it, as numbers far beyond the edge take longest to try.
    #[must_use]
    pub fn from(first: u32, max: u32) -> Self {
        let max = max.max(1);
        Self { max, first: first.clamp(1, max), holds: 0, failed: BTreeMap::new() }
    }

    /// What to try next; none when the edge is found.
    #[must_use]
    pub fn next(&self) -> Option<u32> {
        match self.failed.first_key_value() {
            None if self.holds >= self.max => None,
            None if self.holds == 0 => Some(self.first),
            None => Some(self.holds.saturating_add(self.step()).min(self.max)),
            Some((&edge, is_certain)) if edge <= self.holds + 1 => (!is_certain).then_some(edge),
            Some((edge, _)) => Some(self.holds + (edge - self.holds) / 2),
        }
    }

    /// As far again as all steps so far, and an eighth of the guess: steps that double.
    fn step(&self) -> u32 {
        self.holds.saturating_sub(self.first) + (self.first / 8).max(1)
    }

    /// Takes down what a trial said. A number that holds counts for all below it, one that fails for all
    /// above. What missed twice is certain.
    pub fn learn(&mut self, tried: u32, found: Found) {
        if found == Found::Holds {
            self.holds = self.holds.max(tried);
            self.failed.retain(|number, _| *number > tried);
        } else {
            let is_certain = found == Found::Fails || self.failed.contains_key(&tried);
            self.failed.insert(tried, is_certain);
        }
    }

    /// The largest number that held; 0 when 1 did not.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.holds
    }

    /// The smallest number that failed; none when the search ended at its maximum.
    #[must_use]
    pub fn failed(&self) -> Option<u32> {
        self.failed.keys().next().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(edge: u32, max: u32) -> (Search, Vec<u32>) {
        follow(Search::up_to(max), edge)
    }

    fn follow(search: Search, edge: u32) -> (Search, Vec<u32>) {
        walk(search, |number, _| if number <= edge { Found::Holds } else { Found::Fails })
    }

    /// Follows a search; `found` says what comes of a number, and is told how often it was tried before.
    fn walk(mut search: Search, mut found: impl FnMut(u32, usize) -> Found) -> (Search, Vec<u32>) {
        let mut tried = Vec::new();
        while let Some(next) = search.next() {
            let before = tried.iter().filter(|one| **one == next).count();
            tried.push(next);
            search.learn(next, found(next, before));
        }
        (search, tried)
    }

    #[test]
    fn doubles_then_halves() {
        let (search, tried) = run(11, 100);
        assert_eq!(tried, [1, 2, 4, 8, 16, 12, 10, 11]);
        assert_eq!((search.held(), search.failed()), (11, Some(12)));
        assert_eq!(run(0, 100).1, [1]);
        let (search, tried) = run(9, 6);
        assert_eq!((search.held(), search.failed(), tried), (6, None, vec![1, 2, 4, 6]));
    }

    #[test]
    fn what_would_be_the_edge_is_tried_once_more() {
        let miss = |edge: u32| move |number, _| if number <= edge { Found::Holds } else { Found::Missed };
        let (search, tried) = walk(Search::up_to(100), miss(11));
        assert_eq!(tried, [1, 2, 4, 8, 16, 12, 10, 11, 12], "16 decides nothing");
        assert_eq!((search.held(), search.failed()), (11, Some(12)));
        assert_eq!(walk(Search::up_to(100), miss(0)).1, [1, 1]);
        assert_eq!(walk(Search::from(8, 8), miss(7)).1, [8, 4, 6, 7, 8]);
    }

    #[test]
    fn a_miss_by_chance_does_not_end_a_search() {
        // 14 hold. The host is busy while 8, 6 and 5 are tried for the first time.
        let noisy = |number: u32, before: usize| {
            if number > 14 || (before == 0 && [8, 6, 5].contains(&number)) {
                Found::Missed
            } else {
                Found::Holds
            }
        };
        let (search, tried) = walk(Search::up_to(100), noisy);
        assert_eq!((search.held(), search.failed()), (14, Some(15)), "{tried:?}");
        assert_eq!(tried, [1, 2, 4, 8, 6, 5, 5, 6, 7, 8, 16, 12, 14, 15, 15]);
    }

    #[test]
    fn a_guess_is_tried_first() {
        assert_eq!(follow(Search::from(8, 100), 8).1, [8, 9]);
        assert_eq!(follow(Search::from(8, 100), 11).1, [8, 9, 11, 15, 13, 12]);
        assert_eq!(follow(Search::from(40, 100), 52).1, [40, 45, 55, 50, 52, 53]);
        assert_eq!(follow(Search::from(8, 100), 5).1, [8, 4, 6, 5]);
        assert_eq!(follow(Search::from(0, 100), 0).1, [1]);
        assert_eq!(follow(Search::from(50, 6), 9).1, [6]);
    }

    proptest! {
        #[test]
        fn finds_the_edge_in_few_trials(first in 1u32..5000, edge in 0u32..5000, max in 1u32..5000) {
            for search in [Search::up_to(max), Search::from(first, max)] {
                let (search, tried) = follow(search, edge);
                prop_assert_eq!(search.held(), edge.min(max));
                prop_assert!(tried.len() <= 2 * (32 - max.leading_zeros()) as usize + 2, "{:?}", tried);
            }
        }

        #[test]
        fn misses_by_chance_move_no_edge(
            first in 1u32..500, edge in 0u32..500, max in 1u32..500, chance in prop::collection::vec(any::<bool>(), 500),
        ) {
            let noisy = |number: u32, before: usize| {
                let by_chance = before == 0 && chance[number as usize % chance.len()];
                if number > edge || by_chance { Found::Missed } else { Found::Holds }
            };
            let (search, tried) = walk(Search::from(first, max), noisy);
            prop_assert_eq!(search.held(), edge.min(max));
            prop_assert!(tried.iter().all(|one| tried.iter().filter(|other| *other == one).count() <= 2));
        }
    }
}
