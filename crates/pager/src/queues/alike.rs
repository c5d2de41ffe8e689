//! Whether the pages of a block are as hot as each other while blocks differ: what is left in place of a
//! block is then no hotter than what went, and blocks are better taken as soon as they are cold than left to
//! fill.
//!
//! It shows in which pages come back. Of those that a block has away, some went when it was evicted last, as
//! they had come back before that, and the others have stayed away for longer. Where pages are alike both
//! return at the same rate; where hot ones lie among cold ones those that had returned before do so again.
//! Whether blocks differ shows in how many of their pages come back in the time they are away for.

use crate::chance::Margin;

/// Returns of either kind that are counted before anything is concluded.
const ENOUGH: f64 = 200.0;
/// By how much more often than by chance those that went last may return.
const ALIKE: Margin = Margin { times: 1.05, deviations: 3.0 };
/// By how much more than by chance the counts of blocks must differ.
const DIFFER: Margin = Margin { times: 1.5, deviations: 4.0 };
/// After it turned out wrong it is not believed again for longer and longer, up to so many rounds.
const PAUSE_MAX: u32 = 64;

/// What was seen, and what is concluded from it.
#[derive(Debug, Clone, Default)]
pub(super) struct Alike {
    believed: bool,
    /// Rounds in which nothing is concluded, and how many there will be the next time.
    wait: u32,
    pause: u32,
    seen: Seen,
    /// Pages that came back and the time they were away for together, of all blocks.
    returned: f64,
    away_for: f64,
}

/// Counts that lose half of their weight with each round.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Returns of pages that went last, and how many these would be by chance.
    went_last: f64,
    by_chance: f64,
    /// Blocks, and the sum of (returned - expected)^2 / expected.
    blocks: f64,
    squares: f64,
}

impl Seen {
    fn pages_are_alike(&self) -> bool {
        !ALIKE.is_exceeded_by(self.went_last, self.by_chance)
    }

    /// Chi-squared beside what is expected of it where all pages return at the same rate.
    fn blocks_differ(&self) -> bool {
        DIFFER.is_exceeded_by_squares(self.squares, self.blocks)
    }

    fn halved(self) -> Self {
        Self {
            went_last: self.went_last / 2.0,
            by_chance: self.by_chance / 2.0,
            blocks: self.blocks / 2.0,
            squares: self.squares / 2.0,
        }
    }
}

impl Alike {
    /// Whether pages of a block are alike and blocks are not.
    pub(super) fn is_so(&self) -> bool {
        self.believed
    }

    /// Of `away` pages of a block, `last` of which went when it was evicted last, one came back, which is one
    /// of these or not.
    pub(super) fn note_return(&mut self, away: u32, last: u32, is_one: bool) {
        if 0 < last && last < away {
            self.seen.by_chance += f64::from(last) / f64::from(away);
            self.seen.went_last += f64::from(u8::from(is_one));
        }
    }

    /// So many pages of a block came back between two evictions of it, of pages that were away for that time
    /// together.
    pub(super) fn note_block(&mut self, returned: u32, away_for: f32) {
        if away_for <= 0.0 {
            return;
        }
        let (returned, away_for) = (f64::from(returned), f64::from(away_for));
        if self.returned > 0.0 {
            let expected = self.returned / self.away_for * away_for;
            self.seen.squares += (returned - expected).powi(2) / expected;
            self.seen.blocks += 1.0;
        }
        self.returned += returned;
        self.away_for += away_for;
    }

    /// A round is over: time to conclude.
    pub(super) fn conclude(&mut self) {
        let seen = self.seen;
        let holds = seen.pages_are_alike() && seen.blocks_differ();
        let enough = seen.by_chance >= ENOUGH;
        self.returned /= 2.0;
        self.away_for /= 2.0;
        self.seen = seen.halved();
        if self.believed {
            if holds {
                self.pause = self.pause.saturating_sub(u32::from(enough));
            } else {
                self.believed = false;
                self.pause = (self.pause * 2).clamp(2, PAUSE_MAX);
                self.wait = self.pause;
                self.seen = Seen::default();
            }
        } else if self.wait > 0 {
            self.wait -= 1;
            self.seen = Seen::default();
        } else if enough && holds {
            self.believed = true;
            // What is seen from now on is of other evictions.
            self.seen = Seen::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of 400 returns, of blocks that have 20 pages away, half of which went last: so many of ten are
    /// of these. Of every second block `hot` pages come back, of the others 10.
    fn round(alike: &mut Alike, of_ten: u32, hot: u32) -> bool {
        for number in 0..400 {
            alike.note_return(20, 10, number % 10 < of_ten);
        }
        for block in 0..100 {
            alike.note_block(if block % 2 == 0 { hot } else { 10 }, 1000.0);
        }
        alike.conclude();
        alike.is_so()
    }

    #[test]
    fn pages_of_a_block_are_alike_where_those_that_went_last_return_no_sooner() {
        assert!(round(&mut Alike::default(), 5, 40));
        assert!(round(&mut Alike::default(), 0, 40), "later, as in a scan");
        assert!(!round(&mut Alike::default(), 8, 40), "hot ones among cold ones");
        assert!(!round(&mut Alike::default(), 5, 10), "all blocks are alike");
    }

    #[test]
    fn little_tells_nothing() {
        let mut alike = Alike::default();
        for _ in 0..20 {
            (0..50).for_each(|number| alike.note_return(20, 10, number % 2 == 0));
            (0..100).for_each(|block| alike.note_block(block % 2 * 40, 1000.0));
            alike.conclude();
        }
        assert!(!alike.is_so());
        (0..500).for_each(|_| alike.note_return(20, 20, true));
        (0..500).for_each(|_| alike.note_return(20, 0, false));
        alike.conclude();
        assert!(!alike.is_so(), "nothing to compare with");
    }

    #[test]
    fn what_turned_out_wrong_is_believed_again_later_and_later() {
        let mut alike = Alike::default();
        let mut pauses = Vec::new();
        for _ in 0..8 {
            pauses.push((0..).find(|_| round(&mut alike, 5, 40)).unwrap());
            assert!(!round(&mut alike, 9, 40));
        }
        assert_eq!(pauses, [0, 2, 4, 8, 16, 32, 64, 64]);
        while !round(&mut alike, 5, 40) {}
        assert!((0..64).all(|_| round(&mut alike, 5, 40)), "stays");
        assert!(!round(&mut alike, 9, 40));
        assert_eq!((0..).find(|_| round(&mut alike, 5, 40)), Some(2), "and is trusted again after that");
    }
}
