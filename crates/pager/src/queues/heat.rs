//! Which pages of a block are hotter than the others.
//!
//! A page that went with its block comes back the sooner the hotter it is. One return tells little, as much
//! of it is chance. So a page has a score, which rises with each return that came soon and falls with one
//! that did not, and with a score of two it stays when its block goes, for a point. Whether that is worth
//! the shorter runs shows in whether those that came back soon do so again more often than others.

use super::enlarge;
use crate::chance::Margin;

/// Soon is within this share of the mean time that pages are away.
const SOON: f32 = 0.4;
/// By how much more often than by chance those that came back soon do so again.
const AGAIN: Margin = Margin { times: 1.06, deviations: 4.0 };
/// Returns of either kind in a round that tells anything, and rounds on end that have to tell the same:
/// while memory is filled everything changes, and what does looks like heat.
const ENOUGH: u32 = 400;
const ROUNDS: u32 = 4;

/// The scores of the pages of all blocks, a bit each for one and more, and for two.
#[derive(Debug, Default)]
pub(super) struct Heat {
    one: Vec<u64>,
    two: Vec<u64>,
    /// Rounds on end in which those with a score came back soon more often.
    differed: u32,
    /// Returns in this round of pages without a score and with one, and of these the ones that came soon.
    returns: [u32; 2],
    soon: [u32; 2],
}

impl Heat {
    pub(super) fn new(blocks: usize) -> Self {
        Self { one: vec![0; blocks], two: vec![0; blocks], ..Self::default() }
    }

    pub(super) fn grow(&mut self, blocks: usize) {
        enlarge(&mut self.one, blocks);
        enlarge(&mut self.two, blocks);
    }

    /// A page, as a bit of its block, comes back after so many evicted pages. `went_last`: it went when the
    /// block did the last time. `mean`: after how many pages come back.
    pub(super) fn returned(&mut self, index: usize, bit: u64, went_last: bool, away_for: u32, mean: u64) {
        let soon = went_last && (away_for as f32) < mean as f32 * SOON;
        let (one, two) = (&mut self.one[index], &mut self.two[index]);
        let scored = usize::from(*one & bit != 0);
        self.returns[scored] += 1;
        self.soon[scored] += u32::from(soon);
        if soon {
            *two |= *one & bit;
            *one |= bit;
        } else {
            *one &= !bit | *two;
            *two &= !bit;
        }
    }

    /// Pages of a block are given up.
    pub(super) fn given_up(&mut self, index: usize, pages: u64) {
        self.one[index] &= !pages;
        self.two[index] &= !pages;
    }

    /// The pages that stay when the block goes, of those that may be there, `resident` of which are. They are
    /// fewer than those that go.
    pub(super) fn stay(&mut self, index: usize, there: u64, resident: u32) -> u64 {
        let hot = self.two[index] & there;
        if self.differed < ROUNDS || 2 * hot.count_ones() >= resident {
            return 0;
        }
        self.two[index] &= !hot;
        hot
    }

    /// A round is over: time to conclude.
    pub(super) fn conclude(&mut self) {
        let [returns, soon] = [self.returns, self.soon].map(|counts| counts.map(f64::from));
        if self.returns.iter().all(|&count| count >= ENOUGH) {
            let by_chance = returns[1] * (soon[0] + soon[1]) / (returns[0] + returns[1]);
            let differs = AGAIN.is_exceeded_by(soon[1], by_chance);
            self.differed = if differs { self.differed.saturating_add(1) } else { 0 };
        }
        (self.returns, self.soon) = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of returns of 64 pages, of which so many, the hot ones, come soon each time.
    fn round(heat: &mut Heat, hot: u32, soon_of_others: impl Fn(u32) -> bool) {
        for time in 0..40 {
            for page in 0..64 {
                let away_for = if page < hot || soon_of_others(page + time) { 100 } else { 900 };
                heat.returned(0, 1 << page, true, away_for, 1000);
            }
        }
        heat.conclude();
    }

    #[test]
    fn pages_that_come_back_soon_again_and_again_stay() {
        let mut heat = Heat::new(1);
        for _ in 0..ROUNDS {
            assert_eq!(heat.stay(0, u64::MAX, 64), 0, "not yet");
            round(&mut heat, 8, |other| other % 8 == 0);
        }
        assert_eq!(heat.stay(0, u64::MAX, 64) & 0xff, 0xff, "all hot ones");
        assert_eq!(heat.stay(0, u64::MAX, 64), 0, "for one point each");
        round(&mut heat, 8, |other| other % 8 == 0);
        assert_eq!(heat.stay(0, 0xf, 16), 0xf, "those that are there");
        round(&mut heat, 8, |other| other % 8 == 0);
        heat.given_up(0, 1);
        assert_eq!(heat.stay(0, 0xff, 64), 0xfe);
        assert_eq!(heat.stay(0, u64::MAX, 4), 0, "never most of them");
    }

    #[test]
    fn pages_that_come_back_soon_by_chance_go() {
        let (mut heat, mut rng) = (Heat::new(1), overdrive_base::rng::Rng::new(1));
        for _ in 0..50 {
            for _ in 0..100 {
                for page in 0..64 {
                    let away_for = if rng.below(5) < 2 { 100 } else { 900 };
                    heat.returned(0, 1 << page, true, away_for, 1000);
                }
            }
            heat.conclude();
            assert_eq!(heat.stay(0, u64::MAX, 64), 0);
        }
    }

    #[test]
    fn little_tells_nothing() {
        let mut heat = Heat::new(1);
        for _ in 0..100 {
            (0..8).for_each(|page| heat.returned(0, 1 << page, page < 4, 0, 1000));
            heat.conclude();
        }
        assert_eq!(heat.stay(0, u64::MAX, 64), 0);
    }
}
