//! The largest number that holds, by steps that double and bisection. It decides what to try next and tries
//! nothing itself.

/// What was learnt so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Search {
    max: u32,
    /// What is tried first.
    first: u32,
    holds: u32,
    fails: Option<u32>,
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
        Self { max, first: first.clamp(1, max), holds: 0, fails: None }
    }

    /// What to try next; none when the edge is found.
    #[must_use]
    pub fn next(&self) -> Option<u32> {
        match self.fails {
            None if self.holds >= self.max => None,
            None if self.holds == 0 => Some(self.first),
            None => Some(self.holds.saturating_add(self.step()).min(self.max)),
            Some(fails) if fails <= self.holds + 1 => None,
            Some(fails) => Some(self.holds + (fails - self.holds) / 2),
        }
    }

    /// As far again as all steps so far, and an eighth of the guess: steps that double.
    fn step(&self) -> u32 {
        self.holds.saturating_sub(self.first) + (self.first / 8).max(1)
    }

    /// Takes down what a trial said. A number that holds counts for all below it, one that fails for all
    /// above.
    pub fn learn(&mut self, tried: u32, held: bool) {
        if held {
            self.holds = self.holds.max(tried);
        } else {
            self.fails = Some(self.fails.map_or(tried, |fails| fails.min(tried)));
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
        self.fails
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(edge: u32, max: u32) -> (Search, Vec<u32>) {
        follow(Search::up_to(max), edge)
    }

    fn follow(mut search: Search, edge: u32) -> (Search, Vec<u32>) {
        let mut tried = Vec::new();
        while let Some(next) = search.next() {
            tried.push(next);
            search.learn(next, next <= edge);
        }
        (search, tried)
    }

    #[test]
    fn doubles_then_halves() {
        let (search, tried) = run(11, 100);
        assert_eq!(tried, [1, 2, 4, 8, 16, 12, 10, 11]);
        assert_eq!((search.held(), search.failed()), (11, Some(12)));
        assert_eq!(run(0, 100).1, [1]);
        assert_eq!(run(9, 6), (Search { max: 6, first: 1, holds: 6, fails: None }, vec![1, 2, 4, 6]));
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
    }
}
