//! The largest number that holds, by doubling and bisection. It decides what to try next and tries nothing
//! itself.

/// What was learnt so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Search {
    max: u32,
    holds: u32,
    fails: Option<u32>,
}

impl Search {
    /// A search from 1 up to `max`.
    #[must_use]
    pub fn up_to(max: u32) -> Self {
        Self { max: max.max(1), holds: 0, fails: None }
    }

    /// What to try next; none when the edge is found.
    #[must_use]
    pub fn next(&self) -> Option<u32> {
        match self.fails {
            None if self.holds >= self.max => None,
            None => Some((self.holds * 2).clamp(1, self.max)),
            Some(fails) if fails <= self.holds + 1 => None,
            Some(fails) => Some(self.holds + (fails - self.holds) / 2),
        }
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
        let (mut search, mut tried) = (Search::up_to(max), Vec::new());
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
        assert_eq!(run(9, 6), (Search { max: 6, holds: 6, fails: None }, vec![1, 2, 4, 6]));
    }

    proptest! {
        #[test]
        fn finds_the_edge_in_few_trials(edge in 0u32..5000, max in 1u32..5000) {
            let (search, tried) = run(edge, max);
            prop_assert_eq!(search.held(), edge.min(max));
            prop_assert!(tried.len() <= 2 * (32 - max.leading_zeros()) as usize + 2, "{:?}", tried);
        }
    }
}
