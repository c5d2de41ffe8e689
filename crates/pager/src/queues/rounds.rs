//! Whether memory is gone through in rounds, over and over in the same order, and does not fit.
//!
//! What came longest ago is what a round comes to next: in the order in which it came all goes just before it
//! is wanted, however little is missing. What the round has just passed is wanted last, so it goes first.
//!
//! Rounds show in times that are the same for most blocks: for how long they are away, where all go in the
//! same order, and otherwise from when they came to when they come again. At random both differ by as much as
//! they are long, and for who goes to and fro too. A block that is soon back is in use between rounds, and is
//! judged like any other.

use super::enlarge;

/// Times that differ by less than this share of the median time away are the same.
const SAME: f32 = 0.25;
/// There are rounds when this share of the blocks that came lately came after the same time.
const MOST: f32 = 0.7;
/// Soon is within this share of the median time away.
const SOON: f32 = 0.5;
/// A block that comes after so many times the median was left in place for a round or more.
const LEFT_OUT: f32 = 1.5;
/// Fewer blocks tell nothing.
const LEAST: u64 = 64;
/// Where a round brings no more than this part of what fits, that has just come, and stays anyway.
const SHORT: f32 = 16.0;
/// One of so many blocks of a round takes the place of one that stayed: whether those are still in use cannot
/// be seen otherwise.
const CHANGED: u32 = 16;

/// Bins of a histogram, so many to a factor of two.
const BINS_EACH: f32 = 8.0;
const BINS: usize = 32 * BINS_EACH as usize;

/// What is known of the times. All are in evicted pages.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// When each block came, and whether it did with a round.
    came: Vec<u32>,
    came_with: Vec<bool>,
    /// From one time that a block came to the next, and of that away.
    between: Median,
    away: Median,
    /// The share of blocks that came after the same time, lately.
    same: f32,
    are_short: bool,
    passed: u32,
}

/// The median of times as it was worked out last.
#[derive(Debug)]
struct Median {
    value: f32,
    counts: [u32; BINS],
}

impl Median {
    fn note(&mut self, time: f32) {
        self.counts[((time.max(1.0).log2() * BINS_EACH) as usize).min(BINS - 1)] += 1;
    }

    /// All that was noted before counts half from then on.
    fn work_out(&mut self) {
        let (all, mut so_far) = (self.counts.iter().sum::<u32>(), 0);
        let middle = self.counts.iter().position(|count| {
            so_far += count;
            2 * so_far > all
        });
        if let Some(bin) = middle {
            self.value = ((bin as f32 + 0.5) / BINS_EACH).exp2();
        }
        self.counts.iter_mut().for_each(|count| *count /= 2);
    }
}

impl Default for Median {
    fn default() -> Self {
        Self { value: 0.0, counts: [0; BINS] }
    }
}

impl Rounds {
    pub(super) fn new(blocks: usize) -> Self {
        Self { came: vec![0; blocks], came_with: vec![false; blocks], ..Self::default() }
    }

    pub(super) fn grow(&mut self, blocks: usize) {
        enlarge(&mut self.came, blocks);
        enlarge(&mut self.came_with, blocks);
    }

    /// The first page of a new block comes.
    pub(super) fn begins(&mut self, index: usize, now: u32) {
        (self.came[index], self.came_with[index]) = (now, false);
    }

    /// The first page comes back of a block that was away for so long, where so many blocks fit.
    pub(super) fn returned(&mut self, index: usize, away_for: u32, now: u32, fit: u64) {
        let away_for = away_for as f32;
        let between = now.wrapping_sub(std::mem::replace(&mut self.came[index], now)) as f32;
        let far = (between - self.between.value).abs().min((away_for - self.away.value).abs());
        let is_same = far < self.away.value * SAME;
        self.came_with[index] = is_same || away_for > self.away.value * SOON;
        if between < self.between.value * LEFT_OUT {
            self.same += (f32::from(u8::from(is_same)) - self.same) / fit.max(LEAST) as f32;
        }
        self.between.note(between);
        self.away.note(away_for);
    }

    /// It is time to conclude, where so many pages fit.
    pub(super) fn conclude(&mut self, fits: u64) {
        self.between.work_out();
        self.away.work_out();
        self.are_short = self.between.value * SHORT < fits as f32;
    }

    /// Whether most of what comes back does with rounds.
    pub(super) fn are_made(&self) -> bool {
        self.same >= MOST && !self.are_short
    }

    /// Whether a round that has passed this block lets it go.
    pub(super) fn let_go(&mut self, block: u32) -> bool {
        if !self.are_made() || !self.came_with[block as usize] {
            return false;
        }
        self.passed = (self.passed + 1) % CHANGED;
        self.passed > 0
    }
}
