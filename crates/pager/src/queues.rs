//! Which block to evict next: the one that costs least to be without, by what a pager can see.
//!
//! A pager sees faults, not hits. So what is known of a block is how fast its pages came back while they were
//! away: how many did, over the time they were away for, with less weight for longer ago. That rate is what a
//! page of it costs while it is away. A block of which little is resident pays badly for the work of evicting
//! it, so its rate is multiplied by a price for how much of it is there; otherwise cold blocks would go
//! page by page. Where hot pages lie among cold ones those that are left of a block, or came back, are the
//! hot ones, so the price is high. Where the pages of a block are alike (`alike`) it is the work alone.
//!
//! While a block is resident only writes to it can be seen ([`Queues::looked`]). Who is written to is in use,
//! so that counts as if the pages had returned then. Of a block that is not written to nothing is learnt, it
//! may be read; its rate halves with the time since its last page came. All such rates fall alike, and the
//! order of blocks stays what it was: they lie in lists by the logarithm of the priced rate as they were
//! judged last, plus the time of that. All steps are O(1), spread over many.
//!
//! Of a block that goes, pages that are hotter than the others may stay (`heat`).
//!
//! Blocks into which pages came just now are not judged yet: a scan is in the middle of them. Where memory is
//! gone through in rounds and does not fit, they go first once they were passed (`rounds`).

use crate::space::BLOCK_PAGES;
use alike::Alike;
use heat::Heat;
use rounds::Rounds;
use std::fmt;

mod alike;
mod heat;
mod rounds;

/// Lists to a factor of two.
const FINE: f32 = 8.0;
/// Lists by rate, a ring that time moves on: so many lie above where a rate of one is now, and the others
/// below.
const RATES: u32 = 512;
const ABOVE: u64 = 128;
const BELOW: u64 = RATES as u64 - ABOVE;
/// The list of blocks that were said to be cold, and that of blocks into which pages came just now.
const COLD: u32 = RATES;
const YOUNG: u32 = RATES + 1;
const LISTS: u32 = RATES + 2;
/// The share of resident pages that may lie in young blocks: a sixteenth.
const YOUNG_SHARE: u64 = 16;
/// How much of the evidence stays when the block is evicted again.
const KEPT: f32 = 0.3;

/// The work of evicting a block and a run of its pages, in reads from the store: what also keeps the hot ones
/// that are left of a block, and the work alone, where pages are alike. Simulated and measured:
/// docs/memory-measured.md.
const FOR_BLOCK: f32 = 4.0;
const FOR_RUN: f32 = 1.0;
const ALIKE_BLOCK: f32 = 1.0;
const ALIKE_RUN: f32 = 0.3;

/// How many returns a page counts that was written to, divided by the share of its block's evicted pages that
/// were changed. One would be the count of accesses; more also says that evicting such a block is wrong
/// however full it is. Simulated and measured: docs/memory.md.
const WRITE: f32 = 3.0;
/// Half of the evidence is left after as many evicted pages as this share of those that fit DRAM.
const HALVED_AFTER: f32 = 0.5;
/// The least share of changed pages that is believed.
const CHANGED_LEAST: f32 = 0.125;
/// For that share so many evicted pages weigh as much as all before them.
const CHANGED_PAGES: f32 = 16.0;

/// Where a block is.
const NOWHERE: u8 = 0;
const JUDGED: u8 = 1;
const IN_YOUNG: u8 = 2;

/// The order of all blocks that have resident pages.
///
/// There is room for far more blocks than there are, so all begins as zeroes, which cost no memory.
pub struct Queues {
    resident_in: Vec<u8>,
    /// Pages of each block that were evicted and did not come back, a bit each, and of these the ones that
    /// went when it was evicted last.
    away_in: Vec<u64>,
    went_last: Vec<u64>,
    /// The page of the block that came last, counted from one.
    latest: Vec<u8>,
    place: Vec<u8>,
    /// How many came back, and for how long they were away together, in evicted pages.
    returned: Vec<f32>,
    exposed: Vec<f32>,
    /// The same since it was evicted last.
    returned_lately: Vec<u8>,
    away_lately: Vec<f32>,
    /// Up to when that is counted.
    counted: Vec<u32>,
    /// When it was evicted last.
    went: Vec<u32>,
    /// When it was looked for writes last.
    looked: Vec<u32>,
    /// For how long pages were looked at in vain since the block came; below 0 when one was written to.
    in_vain: Vec<f32>,
    /// The share of its evicted pages that were unchanged, lately.
    unchanged: Vec<f32>,
    /// A ring through the blocks of each list, closed by an entry for the list. Those come first.
    newer: Vec<u32>,
    older: Vec<u32>,
    prices: Prices,
    prices_where_alike: Prices,
    alike: Alike,
    heat: Heat,
    rounds: Rounds,
    /// Evicted pages until it is concluded whether pages are alike.
    conclude_after: u64,
    resident: u64,
    /// Of these, in young blocks.
    young: u64,
    away: u64,
    /// The time, in evicted pages.
    now: u32,
    /// How often the lists moved on, and the pages until they do again.
    step: u64,
    step_left: u64,
    /// No block lies in a list below this one.
    lowest: u64,
}

/// By how many pages of a block are resident.
type Prices = [f32; BLOCK_PAGES as usize + 1];

/// What a block with `pages` resident pages is worth for each, beside the rate at which one comes back.
///
/// A block that is left alone until x times the mean time of return are over, and goes then, has
/// g = (1 - e^-x) / x of its pages away in the mean and costs k / x in work. Where a frame is worth w
/// elsewhere, going costs least when rate * (1 + (k / x)' / (64 g')) = w: so the block with the least of the
/// left side goes. Work is counted in reads from the store: `for_run` for each run of pages, as moving it
/// interrupts the other processors, and `for_block`.
fn price(pages: u32, for_block: f32, for_run: f32) -> f32 {
    /// Runs end where pieces do; the price was fitted to blocks that are moved in so many.
    const PIECES: f32 = 4.0;
    let all = BLOCK_PAGES as f32;
    // At its ends the formula has none.
    let here = (pages as f32).clamp(0.5, all - 0.5) / all;
    let away = 1.0 - here;
    let x = -away.ln();
    let work = for_block + here * (for_run * all * away + PIECES);
    let slope = away * (for_run * all * (away - here) + PIECES);
    1.0 + (work - slope * x) / (all * (1.0 - away * (1.0 + x)))
}

/// More entries, the new ones zero: memory that was never touched.
fn enlarge<T: Copy + Default>(entries: &mut Vec<T>, count: usize) {
    let mut larger = vec![T::default(); count];
    larger[..entries.len()].copy_from_slice(entries);
    *entries = larger;
}

fn list_of(key: u64) -> u32 {
    (key % u64::from(RATES)) as u32
}

impl Queues {
    /// Queues for `blocks` blocks.
    #[must_use]
    pub fn new(blocks: u32) -> Self {
        let blocks = blocks as usize;
        let mut ring = vec![0; LISTS as usize + blocks];
        ring.iter_mut().zip(0..LISTS).for_each(|(entry, list)| *entry = list);
        let mut other_ring = vec![0; LISTS as usize + blocks];
        other_ring[..LISTS as usize].copy_from_slice(&ring[..LISTS as usize]);
        Self {
            resident_in: vec![0; blocks],
            away_in: vec![0; blocks],
            went_last: vec![0; blocks],
            latest: vec![0; blocks],
            place: vec![NOWHERE; blocks],
            returned: vec![0.0; blocks],
            exposed: vec![0.0; blocks],
            returned_lately: vec![0; blocks],
            away_lately: vec![0.0; blocks],
            counted: vec![0; blocks],
            went: vec![0; blocks],
            looked: vec![0; blocks],
            in_vain: vec![0.0; blocks],
            unchanged: vec![0.0; blocks],
            newer: ring,
            older: other_ring,
            prices: std::array::from_fn(|pages| price(pages as u32, FOR_BLOCK, FOR_RUN)),
            prices_where_alike: std::array::from_fn(|pages| price(pages as u32, ALIKE_BLOCK, ALIKE_RUN)),
            alike: Alike::default(),
            heat: Heat::new(blocks),
            rounds: Rounds::new(blocks),
            conclude_after: 0,
            resident: 0,
            young: 0,
            away: 0,
            now: 0,
            step: BELOW,
            step_left: u64::MAX,
            lowest: 0,
        }
    }

    /// Makes room for so many blocks, the new ones empty.
    pub fn grow(&mut self, blocks: u32) {
        let known = self.resident_in.len();
        if blocks as usize <= known {
            return;
        }
        let blocks = (blocks as usize).max(2 * known);
        enlarge(&mut self.resident_in, blocks);
        enlarge(&mut self.away_in, blocks);
        enlarge(&mut self.went_last, blocks);
        enlarge(&mut self.latest, blocks);
        enlarge(&mut self.place, blocks);
        enlarge(&mut self.returned, blocks);
        enlarge(&mut self.exposed, blocks);
        enlarge(&mut self.returned_lately, blocks);
        enlarge(&mut self.away_lately, blocks);
        enlarge(&mut self.counted, blocks);
        enlarge(&mut self.went, blocks);
        enlarge(&mut self.looked, blocks);
        enlarge(&mut self.in_vain, blocks);
        enlarge(&mut self.unchanged, blocks);
        self.heat.grow(blocks);
        self.rounds.grow(blocks);
        enlarge(&mut self.newer, LISTS as usize + blocks);
        enlarge(&mut self.older, LISTS as usize + blocks);
    }

    /// Resident pages of all blocks.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.resident
    }

    /// Resident pages of one block.
    #[must_use]
    pub fn resident_in(&self, block: u32) -> u8 {
        self.resident_in[block as usize]
    }

    /// A page became resident.
    pub fn arrived(&mut self, page: u32) {
        let block = page / BLOCK_PAGES;
        self.count(block);
        self.leave(block);
        let index = block as usize;
        self.note_return(page);
        self.resident += 1;
        self.resident_in[index] += 1;
        self.young += u64::from(self.resident_in[index]);
        self.enter(block, YOUNG);
        self.place[index] = IN_YOUNG;
    }

    /// So many pages of the block are resident no longer.
    pub fn gone(&mut self, block: u32, pages: u32) {
        let index = block as usize;
        self.resident -= u64::from(pages);
        self.resident_in[index] -= pages as u8;
        if self.place[index] == IN_YOUNG {
            self.young -= u64::from(pages);
        }
        if self.resident_in[index] == 0 {
            self.leave(block);
            self.in_vain[index] = 0.0;
        }
    }

    /// The block to evict next. Its pages are still counted; report each with [`Queues::gone`].
    pub fn victim(&mut self) -> Option<u32> {
        let cold = self.oldest(COLD);
        if cold.is_some() {
            return cold;
        }
        while self.young * YOUNG_SHARE > self.resident
            && let Some(block) = self.oldest(YOUNG)
        {
            if self.rounds.let_go(block) {
                return Some(block);
            }
            self.judge(block);
        }
        self.lowest = self.lowest.max(self.step - BELOW);
        while self.lowest < self.step + ABOVE {
            let block = self.oldest(list_of(self.lowest));
            if block.is_some() {
                return block;
            }
            self.lowest += 1;
        }
        self.oldest(YOUNG)
    }

    /// The time, in evicted pages; it wraps.
    #[must_use]
    pub fn now(&self) -> u32 {
        self.now
    }

    /// Notes that of `watched` pages of the block, resident since it was looked at last, `written` were
    /// written to meanwhile. `fits`: how many pages fit DRAM.
    pub fn looked(&mut self, block: u32, watched: u32, written: u32, fits: u64) {
        let index = block as usize;
        let since = self.now.wrapping_sub(std::mem::replace(&mut self.looked[index], self.now)) as f32;
        let time = watched as f32 * since;
        if time == 0.0 {
            return;
        }
        if written == 0 && self.in_vain[index] >= 0.0 {
            self.in_vain[index] += time;
            return;
        }
        let kept = (-since / (HALVED_AFTER * fits as f32)).exp2();
        // Who was written to often is seen once: of a page's rate and the time this is the expected count.
        let share = written as f32 / (watched as f32 + 1.0);
        let seen = if written == 0 { 1.0 } else { share / -(1.0 - share).ln() };
        let changed = (1.0 - self.unchanged[index]).max(CHANGED_LEAST);
        self.returned[index] = self.returned[index] * kept + written as f32 * WRITE / changed;
        self.exposed[index] = self.exposed[index] * kept + time * seen + self.in_vain[index].max(0.0);
        self.in_vain[index] = -1.0;
        if self.place[index] == JUDGED {
            self.judge(block);
        }
    }

    /// A page that was away is not any more, by coming back.
    fn note_return(&mut self, page: u32) {
        let (index, bit) = ((page / BLOCK_PAGES) as usize, 1 << (page % BLOCK_PAGES));
        let (away, last) = (self.away_in[index], self.went_last[index]);
        let number = (page % BLOCK_PAGES) as u8 + 1;
        let follows = std::mem::replace(&mut self.latest[index], number) + 1 == number;
        if away & bit == 0 {
            if self.resident_in[index] == 0 {
                self.rounds.begins(index, self.now);
            }
            return;
        }
        // A scan brings them all, whichever they are.
        if !follows {
            self.alike.note_return(away.count_ones(), last.count_ones(), last & bit != 0);
        }
        let away_for = self.now.wrapping_sub(self.went[index]);
        if self.returned_lately[index] == 0 {
            let fit = self.resident / u64::from(BLOCK_PAGES);
            self.rounds.returned(index, away_for, self.now, fit);
        }
        self.heat.returned(index, bit, last & bit != 0, away_for, self.away);
        self.away_in[index] &= !bit;
        self.went_last[index] &= !bit;
        self.away -= 1;
        self.returned[index] += 1.0;
        self.returned_lately[index] = self.returned_lately[index].saturating_add(1);
    }

    /// Notes that these pages of the block, a bit each, were evicted now, `unchanged` of them as they are on
    /// the store. `fits`: how many pages fit DRAM, the measure of time.
    pub fn evicted(&mut self, block: u32, went: u64, unchanged: u32, fits: u64) {
        let pages = went.count_ones();
        if pages == 0 {
            return;
        }
        self.count(block);
        let index = block as usize;
        let returned = std::mem::take(&mut self.returned_lately[index]);
        let away_for = std::mem::take(&mut self.away_lately[index]);
        self.alike.note_block(u32::from(returned), away_for);
        self.returned[index] *= KEPT;
        self.exposed[index] *= KEPT;
        // The more pages, the less what was before counts.
        let weight = pages as f32 / (pages as f32 + CHANGED_PAGES);
        self.unchanged[index] += (unchanged as f32 / pages as f32 - self.unchanged[index]) * weight;
        self.away += u64::from((went & !self.away_in[index]).count_ones());
        self.away_in[index] |= went;
        self.went_last[index] = went;
        self.went[index] = self.now;
        self.now = self.now.wrapping_add(pages);
        // A rate is half as high after as many evicted pages as fit DRAM.
        self.move_on(u64::from(pages), (fits / FINE as u64).max(1));
        self.conclude_after = self.conclude_after.min(fits / 2).saturating_sub(u64::from(pages));
        if self.conclude_after == 0 {
            self.alike.conclude();
            self.heat.conclude();
            self.rounds.conclude(fits);
            self.conclude_after = fits / 2;
        }
        if self.place[index] == JUDGED {
            self.judge(block);
        }
    }

    /// Pages of the block are given up, a bit each, that may be away: they will not return.
    pub fn given_up(&mut self, block: u32, pages: u64) {
        self.count(block);
        let index = block as usize;
        self.away -= u64::from((self.away_in[index] & pages).count_ones());
        self.away_in[index] &= !pages;
        self.went_last[index] &= !pages;
        self.heat.given_up(index, pages);
    }

    /// The pages of the block, a bit each, that stay when it goes now, as they are hotter than the others.
    pub fn stay(&mut self, block: u32) -> u64 {
        let index = block as usize;
        // Hot pages in hot blocks are among their like.
        if self.alike.is_so() {
            return 0;
        }
        self.heat.stay(index, !self.away_in[index], u32::from(self.resident_in[index]))
    }

    /// Puts a block that could not be evicted behind all others.
    pub fn again_later(&mut self, block: u32) {
        if self.resident_in(block) > 0 {
            let all = self.lowest.max(self.step - BELOW)..self.step + ABOVE;
            let highest = all.rev().find(|&key| self.oldest(list_of(key)).is_some());
            let key = highest.unwrap_or(self.step);
            self.lowest = self.lowest.min(key);
            self.leave(block);
            self.enter(block, list_of(key));
        }
    }

    /// The block goes before those that are in use: whoever knows says that it is not.
    pub fn goes_next(&mut self, block: u32) {
        if self.resident_in(block) > 0 {
            self.leave(block);
            self.enter(block, COLD);
        }
    }

    /// Adds the time that pages of the block were away since that was done last.
    fn count(&mut self, block: u32) {
        let index = block as usize;
        let since = self.now.wrapping_sub(self.counted[index]);
        let time = self.away_in[index].count_ones() as f32 * since as f32;
        self.exposed[index] += time;
        self.away_lately[index] += time;
        self.counted[index] = self.now;
    }

    /// Puts the block into the list where it belongs by what is known of it now.
    pub fn judge(&mut self, block: u32) {
        if self.resident_in(block) == 0 {
            return;
        }
        self.count(block);
        let index = block as usize;
        // As if one more page had come back, after the mean time of all.
        let mean = self.away.max(self.resident) as f32;
        let rate = (self.returned[index] + 1.0) / (self.exposed[index] + mean);
        let prices = if self.alike.is_so() { &self.prices_where_alike } else { &self.prices };
        let level = (rate * prices[usize::from(self.resident_in[index])]).log2() * FINE;
        let level = level.clamp(-(BELOW as f32), ABOVE as f32 - 1.0) as i64;
        let key = self.step.saturating_add_signed(level);
        self.lowest = self.lowest.min(key);
        self.leave(block);
        self.enter(block, list_of(key));
    }

    /// Time passes. What lay in the lowest list all the while shares it with the next.
    fn move_on(&mut self, mut pages: u64, step_pages: u64) {
        self.step_left = self.step_left.min(step_pages);
        while pages >= self.step_left {
            pages -= self.step_left;
            self.step_left = step_pages;
            let (from, to) = (list_of(self.step - BELOW), list_of(self.step - BELOW + 1));
            while let Some(block) = self.oldest(from) {
                self.leave(block);
                self.enter(block, to);
            }
            self.step += 1;
        }
        self.step_left -= pages;
    }

    fn oldest(&self, list: u32) -> Option<u32> {
        self.newer[list as usize].checked_sub(LISTS)
    }

    /// At the new end of a list.
    fn enter(&mut self, block: u32, list: u32) {
        let entry = LISTS + block;
        let older = std::mem::replace(&mut self.older[list as usize], entry);
        self.newer[older as usize] = entry;
        self.older[entry as usize] = older;
        self.newer[entry as usize] = list;
        self.place[block as usize] = JUDGED;
    }

    /// Out of the list it is in, if any.
    fn leave(&mut self, block: u32) {
        let entry = (LISTS + block) as usize;
        match std::mem::replace(&mut self.place[block as usize], NOWHERE) {
            NOWHERE => return,
            IN_YOUNG => self.young -= u64::from(self.resident_in[block as usize]),
            _ => {}
        }
        let (newer, older) = (self.newer[entry], self.older[entry]);
        self.newer[older as usize] = newer;
        self.older[newer as usize] = older;
    }
}

/// The blocks of each list that has some, oldest first, and what is known of all: no more than what comes
/// depends on.
impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates = (self.step - BELOW..self.step + ABOVE).map(list_of).enumerate();
        for (level, list) in rates.chain([COLD, YOUNG].map(|list| (list as usize, list))) {
            let mut next = self.oldest(list);
            while let Some(block) = next {
                write!(f, "{level}:{block} ")?;
                next = self.newer[(LISTS + block) as usize].checked_sub(LISTS);
            }
        }
        let known = |&index: &usize| self.resident_in[index] > 0 || self.exposed[index] > 0.0;
        for index in (0..self.place.len()).filter(known) {
            let since = self.now.wrapping_sub(self.counted[index]);
            write!(f, "{} {:x} {since} ", self.resident_in[index], self.away_in[index])?;
            write!(f, "{} {}, ", self.returned[index], self.exposed[index])?;
        }
        write!(f, "{}", self.step_left)
    }
}

#[cfg(test)]
mod tests;
