//! Seeing which memory is in use while it is in place: by who is written to.
//!
//! A pager is told of faults and not of hits. But pages can be write-protected such that the kernel lifts
//! that by itself as they are written to, and tells afterwards from which it did (UFFD_FEATURE_WP_ASYNC and
//! PAGEMAP_SCAN, Linux 6.7). So all memory in place is walked through in rounds, a stretch at a time when
//! there is nothing else to do: which pages were written to since the last round is noted for their blocks,
//! and all are protected again. A write that finds its page protected costs its thread a microsecond.
//!
//! Where the pages of a block are alike that tells which blocks are in use. Where hot ones lie among cold
//! ones it tells which pages are, and those stay when the rest of their block goes. Where it tells nothing,
//! because all is alike or only read, there are pauses between rounds.
//!
//! Nothing but the order of eviction depends on it: a device may write to a page and lift nothing.

use super::Engine;
use crate::chance::Margin;
use crate::space::{BLOCK_PAGES, pages_where};
use crate::stats::Stat;
use crate::table::State;
use overdrive_sys::uffd::PAGE;
use std::ops::Range;

/// Walked through at once: as much as a page table covers. Other processors are interrupted once for each.
const STRETCH_BLOCKS: usize = 512 / BLOCK_PAGES as usize;
/// Stretches looked at for one that has pages in place.
const EMPTY_MAX: u32 = 64;
/// A round begins when as many pages were evicted as this share of those that fit: a half. Where rounds tell
/// nothing there are longer and longer pauses, up to so many times that.
const SHARE: u64 = 2;
const PAUSE_MAX: u64 = 16;
/// Rounds after a pause from which nothing is concluded: the first only protects, as few of the pages that it
/// watched are still there, and in the second no page is known from the round before.
const UNKNOWN_ROUNDS: u32 = 2;
/// By how much more than by chance the counts of blocks must differ.
const DIFFER: Margin = Margin { times: 1.2, deviations: 4.0 };
/// Pages of a block are alike when those that were written to in one round were so again in the next no more
/// often than others but for this.
const ALIKE: Margin = Margin { times: 1.1, deviations: 4.0 };

/// Rounds through memory in place.
#[derive(Debug)]
pub(super) struct Accesses {
    /// Whether the kernel sees them.
    seen: bool,
    /// Where the round goes on. None between two rounds.
    next: Option<u64>,
    /// When the last one began, in evicted pages.
    began: u32,
    /// What the last round told.
    told: Told,
    /// So many times as many evicted pages as at least are between the last round and the next, and in the
    /// pause after a round that tells nothing.
    wait: u64,
    pause: u64,
    /// Rounds from which nothing is concluded yet.
    unknown: u32,
    counts: Counts,
}

/// What can be concluded from who was written to in a round. What cannot is left alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Told {
    /// Which blocks are in use: they differ, and what is in place of a block speaks for all of it.
    blocks: bool,
    /// Which pages of a block are.
    pages: bool,
}

/// What a round has seen of a block.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    watched: u32,
    written: u32,
    /// Of those that were watched in the round before too: all, written to then, written to now, both times.
    known: u32,
    before: u32,
    now: u32,
    both: u32,
}

impl Seen {
    fn note(&mut self, before: Option<bool>, written: bool) {
        self.watched += 1;
        self.written += u32::from(written);
        if let Some(before) = before {
            self.known += 1;
            self.before += u32::from(before);
            self.now += u32::from(written);
            self.both += u32::from(before && written);
        }
    }
}

/// What a round has seen, over blocks: to find out what it tells.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    blocks: f64,
    watched: f64,
    written: f64,
    /// The sum of written^2 / watched.
    squares: f64,
    /// Pages known from the round before; those written to both times, and how many that would be by chance.
    known: f64,
    both: f64,
    both_by_chance: f64,
}

impl Counts {
    fn add(&mut self, seen: &Seen) {
        if seen.watched > 0 {
            let (watched, written) = (f64::from(seen.watched), f64::from(seen.written));
            self.blocks += 1.0;
            self.watched += watched;
            self.written += written;
            self.squares += written * written / watched;
        }
        if seen.known > 0 {
            self.known += f64::from(seen.known);
            self.both += f64::from(seen.both);
            self.both_by_chance += f64::from(seen.before) * f64::from(seen.now) / f64::from(seen.known);
        }
    }

    /// None when too little was seen to tell.
    fn tell(&self) -> Option<Told> {
        if self.blocks < 2.0 {
            return None;
        }
        let blocks_differ = self.blocks_differ();
        if self.known == 0.0 {
            return (!blocks_differ).then(Told::default);
        }
        let alike = self.pages_are_alike();
        Some(Told { blocks: blocks_differ && alike, pages: !alike })
    }

    /// By more than chance: chi-squared beside what is expected of it where each page is written to with the
    /// same probability.
    fn blocks_differ(&self) -> bool {
        let share = self.written / self.watched;
        let spread = share * (1.0 - share);
        let degrees = self.blocks - 1.0;
        let squares = (self.squares - share * self.written) / spread;
        spread > 0.0 && DIFFER.is_exceeded_by_squares(squares, degrees)
    }

    /// Those of the same block, as far as they are in place. Where they are not, hot ones lie among cold
    /// ones: a block that has just come back, with the hot ones first, would look colder than one that
    /// stayed.
    fn pages_are_alike(&self) -> bool {
        !ALIKE.is_exceeded_by(self.both, self.both_by_chance)
    }
}

impl Accesses {
    /// None are ever seen unless `seen`.
    pub(super) fn new(seen: bool) -> Self {
        let (told, counts) = (Told::default(), Counts::default());
        Self { seen, next: None, began: 0, told, wait: 1, pause: 1, unknown: 0, counts }
    }

    /// Whether a round begins, `now` being the count of evicted pages.
    fn is_due(&self, now: u32, fits: u64) -> bool {
        u64::from(now.wrapping_sub(self.began)) * SHARE >= fits * self.wait
    }

    /// A round is over.
    fn conclude(&mut self) {
        let told = std::mem::take(&mut self.counts).tell();
        if std::mem::replace(&mut self.wait, 1) > 1 {
            self.unknown = UNKNOWN_ROUNDS;
        }
        if self.unknown > 0 {
            self.unknown -= 1;
        } else if let Some(told) = told {
            self.told = told;
            let tells = told != Told::default();
            self.pause = if tells { 1 } else { (self.pause * 2).min(PAUSE_MAX) };
            self.wait = self.pause;
        }
    }
}

#[cfg(test)]
impl Accesses {
    /// Whatever rounds have seen, which in small memory is never enough, they tell which pages are in use.
    pub(super) fn believe_of_pages(&mut self) {
        self.told.pages = true;
    }
}

impl Engine {
    /// Looks at one stretch of memory, if it is time for that. True when there is more to do at once.
    pub(super) fn look_for_accesses(&mut self) -> bool {
        if !self.accesses.seen {
            return false;
        }
        let now = self.queues.now();
        let from = match self.accesses.next {
            Some(next) => next,
            None if !self.accesses.is_due(now, self.limits.total) => return false,
            None => {
                self.accesses.began = now;
                0
            }
        };
        self.accesses.next = self.look_from(from);
        if self.accesses.next.is_none() {
            self.accesses.conclude();
        }
        self.accesses.next.is_some()
    }

    /// Pages of a block that goes which stay in place, a bit each: those that were written to in the last
    /// round, where that tells which pages are in use. Each stays once and then has to be written to again.
    /// None where it would be all of them.
    pub(super) fn pages_in_use(&mut self, block: u32) -> u64 {
        if !self.accesses.told.pages {
            return 0;
        }
        let first = block * BLOCK_PAGES;
        let in_use = pages_where(BLOCK_PAGES, |bit| {
            self.table.state(first + bit) == State::Resident && self.table.take_written(first + bit)
        });
        if in_use.count_ones() == u32::from(self.queues.resident_in(block)) {
            return 0;
        }
        self.stats.add(Stat::KeptInUse, u64::from(in_use.count_ones()));
        in_use
    }

    /// Looks at the first stretch from an address on that has pages in place. Returns where the next begins.
    fn look_from(&mut self, mut from: u64) -> Option<u64> {
        for _ in 0..EMPTY_MAX {
            let (addresses, first) = self.space.stretch_from(from, STRETCH_BLOCKS as u32)?;
            from = addresses.end;
            let last = first + ((addresses.end - addresses.start) / PAGE) as u32 - 1;
            let mut blocks = first / BLOCK_PAGES..=last / BLOCK_PAGES;
            if blocks.any(|block| self.queues.resident_in(block) > 0) {
                self.look_at(addresses, first..last + 1);
                break;
            }
        }
        Some(from)
    }

    fn look_at(&mut self, addresses: Range<u64>, pages: Range<u32>) {
        let mut written = [0u64; STRETCH_BLOCKS];
        let blocks = pages.start / BLOCK_PAGES..=(pages.end - 1) / BLOCK_PAGES;
        let bit = |address: u64| pages.start % BLOCK_PAGES + ((address - addresses.start) / PAGE) as u32;
        let outcome = self.page_map.take_written(addresses.clone(), |run| {
            for bit in bit(run.start)..bit(run.end) {
                written[(bit / BLOCK_PAGES) as usize] |= 1 << (bit % BLOCK_PAGES);
            }
        });
        if outcome.is_err() {
            // Refused: nobody asks again.
            self.accesses.seen = false;
            return;
        }
        for (block, written) in blocks.zip(written) {
            let mut seen = Seen::default();
            let all = block * BLOCK_PAGES..(block + 1) * BLOCK_PAGES;
            for page in all.start.max(pages.start)..all.end.min(pages.end) {
                if self.table.state(page) == State::Resident {
                    let written = written >> (page % BLOCK_PAGES) & 1 == 1;
                    let (watched, before) = self.table.watch(page, written);
                    if watched {
                        seen.note(before, written);
                    }
                }
            }
            self.accesses.counts.add(&seen);
            self.stats.add(Stat::WritesSeen, u64::from(seen.written));
            let believed = if self.accesses.told.blocks { seen } else { Seen::default() };
            self.queues.looked(block, believed.watched, believed.written, self.limits.total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overdrive_base::rng::Rng;

    const NOTHING: Option<Told> = Some(Told { blocks: false, pages: false });
    const BLOCKS: Option<Told> = Some(Told { blocks: true, pages: false });
    const PAGES: Option<Told> = Some(Told { blocks: false, pages: true });

    /// Blocks of which so many pages were written to, and as many of them again as would be by chance.
    fn counts(watched: u32, written: impl Iterator<Item = u32>) -> Counts {
        let mut counts = Counts::default();
        for written in written {
            let both = (written * written).checked_div(watched).unwrap_or(0);
            counts.add(&Seen { watched, written, known: watched, before: written, now: written, both });
        }
        counts
    }

    #[test]
    fn blocks_that_differ_by_chance_tell_nothing() {
        let mut rng = Rng::new(3);
        let mut by_chance = |one_in: u64| {
            let mut block = || (0..50).filter(|_| rng.below(one_in) == 0).count() as u32;
            counts(50, std::iter::repeat_with(&mut block).take(500))
        };
        for one_in in [2, 5, 50] {
            assert_eq!(by_chance(one_in).tell(), NOTHING, "one in {one_in}");
        }
        assert_eq!(counts(50, std::iter::repeat_n(0, 500)).tell(), NOTHING, "only read");
        assert_eq!(counts(50, std::iter::repeat_n(50, 500)).tell(), NOTHING, "all written");
    }

    #[test]
    fn blocks_that_differ_tell_something_where_there_are_enough() {
        let half = || (0..500).map(|block| if block % 2 == 0 { 30 } else { 10 });
        assert_eq!(counts(50, half()).tell(), BLOCKS);
        assert_eq!(counts(0, std::iter::repeat_n(0, 500)).tell(), None);
        let two = [22, 28].into_iter();
        assert_eq!(counts(50, two).tell(), NOTHING, "two alone may differ so");
        assert_eq!(counts(50, half().take(1)).tell(), None);
    }

    #[test]
    fn where_the_same_pages_are_written_to_again_they_tell_of_themselves_and_not_of_their_block() {
        let block = |written: u32, both: u32| Seen {
            watched: 50,
            written,
            known: 50,
            before: written,
            now: written,
            both,
        };
        let round = |hot: Seen, cold: Seen| {
            let mut counts = Counts::default();
            (0..500).for_each(|number| counts.add(if number % 2 == 0 { &hot } else { &cold }));
            counts.tell()
        };
        assert_eq!(round(block(30, 18), block(10, 2)), BLOCKS);
        assert_eq!(round(block(30, 30), block(10, 10)), PAGES);
        assert_eq!(round(block(20, 20), block(20, 20)), PAGES, "blocks are alike, their pages are not");
        let unknown = Seen { known: 0, before: 0, now: 0, both: 0, ..block(30, 0) };
        assert_eq!(round(unknown, Seen { written: 10, ..unknown }), None, "another round will tell");
        assert_eq!(round(unknown, unknown), NOTHING);
    }

    #[test]
    fn pauses_become_longer_while_rounds_tell_nothing() {
        let mut accesses = Accesses::new(true);
        let round = |accesses: &mut Accesses, counts: Counts| {
            accesses.counts = counts;
            accesses.conclude();
            (accesses.told.blocks, accesses.wait)
        };
        let alike = || counts(50, std::iter::repeat_n(25, 500));
        let differ = || counts(50, (0..500).map(|block| block % 50));
        assert_eq!(round(&mut accesses, Counts::default()), (false, 1));
        assert_eq!(round(&mut accesses, alike()), (false, 2));
        assert_eq!(round(&mut accesses, differ()), (false, 1), "the first after a pause");
        assert_eq!(round(&mut accesses, differ()), (false, 1), "the second");
        assert_eq!(round(&mut accesses, alike()), (false, 4));
        for _ in 0..9 {
            assert_eq!(round(&mut accesses, Counts::default()), (false, 1));
            round(&mut accesses, alike());
            round(&mut accesses, alike());
        }
        assert_eq!(accesses.wait, PAUSE_MAX);
        let wait = PAUSE_MAX as u32 * 500;
        assert!(!accesses.is_due(wait - 1, 1000) && accesses.is_due(wait, 1000));
        assert_eq!(round(&mut accesses, alike()), (false, 1));
        assert_eq!(round(&mut accesses, alike()), (false, 1));
        assert_eq!(round(&mut accesses, differ()), (true, 1));
        assert!(!accesses.is_due(499, 1000) && accesses.is_due(500, 1000));
    }
}
