//! The order of blocks in cases that can be followed by hand, and its lists under any steps at all.

use super::*;
use proptest::prelude::*;

const FITS: u64 = 1000;

/// The first pages of a block come.
fn arrive(queues: &mut Queues, block: u32, pages: u32) {
    (0..pages).for_each(|page| queues.arrived(block * BLOCK_PAGES + page));
}

fn fill(queues: &mut Queues, blocks: std::ops::Range<u32>) {
    blocks.for_each(|block| arrive(queues, block, 4));
}

/// The first so many pages, a bit each.
fn first(pages: u32) -> u64 {
    u64::MAX.checked_shr(BLOCK_PAGES - pages).unwrap_or(0)
}

fn take_away(queues: &mut Queues, block: u32) {
    let pages = u32::from(queues.resident_in(block));
    queues.gone(block, pages);
    queues.evicted(block, first(pages), 0, FITS);
}

fn evict(queues: &mut Queues) -> u32 {
    let block = queues.victim().unwrap();
    take_away(queues, block);
    block
}

/// A block goes away with all pages and returns with as many, after `after` pages of others.
fn come_back(queues: &mut Queues, block: u32, pages: u32, other: u32, after: u32) {
    take_away(queues, block);
    for _ in 0..after {
        arrive(queues, other, 1);
        take_away(queues, other);
    }
    arrive(queues, block, pages);
}

/// It stood in the way of all others.
#[test]
fn a_block_without_pages_is_in_no_list() {
    let mut queues = Queues::new(3);
    fill(&mut queues, 0..2);
    take_away(&mut queues, 0);
    queues.judge(0);
    queues.again_later(0);
    assert_eq!((evict(&mut queues), queues.victim()), (1, None));
}

#[test]
fn of_what_is_not_known_the_first_in_is_the_first_out() {
    let mut queues = Queues::new(10);
    fill(&mut queues, 0..10);
    assert_eq!((0..10).map(|_| evict(&mut queues)).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    assert_eq!((queues.victim(), queues.resident()), (None, 0));
}

#[test]
fn what_is_said_to_be_cold_goes_first_unless_it_is_used_again() {
    let mut queues = Queues::new(10);
    fill(&mut queues, 0..7);
    for block in [3, 5, 6, 0, 9] {
        queues.goes_next(block);
    }
    assert_eq!(queues.resident(), 28, "a block that is not there changes nothing");
    queues.gone(6, 1);
    queues.arrived(6 * BLOCK_PAGES);
    assert_eq!((0..7).map(|_| evict(&mut queues)).collect::<Vec<_>>(), [3, 5, 0, 1, 2, 4, 6]);
    assert_eq!((queues.victim(), queues.resident()), (None, 0));
    fill(&mut queues, 7..8);
    queues.goes_next(7);
    assert_eq!(evict(&mut queues), 7, "alone");
}

#[test]
fn what_returns_soon_outlives_a_scan() {
    let mut queues = Queues::new(200);
    fill(&mut queues, 0..3);
    (0..3).for_each(|block| come_back(&mut queues, block, 4, 199, 2));
    for block in 10..190 {
        fill(&mut queues, block..block + 1);
        // As many others as keep the blocks just filled from being all there is.
        if block >= 20 {
            assert!(evict(&mut queues) >= 10, "the scan evicts itself");
        }
    }
    (0..3).for_each(|block| assert_eq!(queues.resident_in(block), 4));
}

#[test]
fn a_scan_that_is_on_its_way_keeps_the_block_it_is_in() {
    let mut queues = Queues::new(200);
    (0..40).for_each(|block| arrive(&mut queues, block, 64));
    arrive(&mut queues, 100, 64);
    // Known to return late: once it is judged it goes before all others.
    come_back(&mut queues, 100, 40, 199, 5000);
    assert_ne!(queues.victim(), Some(100));
    (0..4).for_each(|block| come_back(&mut queues, block, 64, 199, 1));
    assert_eq!(queues.victim(), Some(100));
}

#[test]
fn what_returned_late_goes_before_what_returned_soon() {
    let mut queues = Queues::new(10);
    fill(&mut queues, 0..4);
    for (block, after) in [(2, 10), (0, 40), (3, 160), (1, 640)] {
        come_back(&mut queues, block, 4, 9, after);
    }
    assert_eq!((0..4).map(|_| evict(&mut queues)).collect::<Vec<_>>(), [1, 3, 0, 2]);
}

/// A block is looked at when it was just evicted as far as `unchanged` of 4 pages, came back, and as many
/// pages of another went by.
fn after_a_look(queues: &mut Queues, block: u32, unchanged: u32, written: u32) {
    queues.gone(block, 4);
    queues.evicted(block, first(4), unchanged, FITS);
    arrive(queues, block, 4);
    queues.looked(block, 0, 0, FITS);
    fill(queues, 9..10);
    take_away(queues, 9);
    queues.looked(block, 4, written, FITS);
}

#[test]
fn who_is_written_to_while_resident_goes_last() {
    let mut queues = Queues::new(10);
    fill(&mut queues, 0..4);
    for (block, written) in [(2, 4), (0, 0), (3, 2), (1, 0)] {
        after_a_look(&mut queues, block, 0, written);
    }
    let known = |queues: &Queues, block: usize| (queues.returned[block], queues.exposed[block]);
    assert_eq!(known(&queues, 0), known(&queues, 1), "what may have been read is no evidence");
    assert!(known(&queues, 3).0 > known(&queues, 0).0 && known(&queues, 2).0 > known(&queues, 3).0);
    assert_eq!((0..4).map(|_| evict(&mut queues)).collect::<Vec<_>>(), [0, 1, 3, 2]);
}

#[test]
fn a_write_tells_more_where_few_pages_are_changed() {
    let mut queues = Queues::new(10);
    fill(&mut queues, 0..2);
    after_a_look(&mut queues, 0, 0, 2);
    after_a_look(&mut queues, 1, 4, 2);
    assert!(queues.returned[1] > queues.returned[0] * 1.1, "{:?}", queues.returned);
    assert_eq!(queues.exposed[0], queues.exposed[1]);
}

#[test]
fn what_was_in_vain_counts_with_the_first_write() {
    let mut queues = Queues::new(10);
    fill(&mut queues, 0..2);
    after_a_look(&mut queues, 0, 0, 4);
    after_a_look(&mut queues, 1, 0, 0);
    let before = queues.exposed[1];
    fill(&mut queues, 9..10);
    take_away(&mut queues, 9);
    queues.looked(1, 4, 4, FITS);
    // Both were written to once in 4 pages; one was looked at in vain for as long before that.
    assert!(queues.exposed[1] > before + 16.0, "{} before {before}", queues.exposed[1]);
}

#[test]
fn of_two_alike_the_fuller_goes_first() {
    let mut queues = Queues::new(3);
    for (block, pages) in [(0, 3), (1, 60)] {
        arrive(&mut queues, block, pages);
    }
    assert_eq!((evict(&mut queues), evict(&mut queues)), (1, 0));
    for prices in [queues.prices, queues.prices_where_alike] {
        assert!(prices.windows(2).all(|two| two[1] <= two[0] && two[1] >= 1.0), "{prices:?}");
    }
    assert!(queues.prices.iter().zip(&queues.prices_where_alike).all(|(full, alike)| full >= alike));
}

#[test]
fn a_rate_that_nothing_confirms_is_forgotten_in_time() {
    let mut queues = Queues::new(10_100);
    fill(&mut queues, 0..1);
    come_back(&mut queues, 0, 4, 1, 2);
    let outlived = (0..10_000).find(|count| {
        // Nothing but the block and one that was never there before.
        fill(&mut queues, 2 + count..3 + count);
        evict(&mut queues) == 0
    });
    let outlived = u64::from(outlived.unwrap()) * 4;
    assert!((FITS..40 * FITS).contains(&outlived), "{outlived} pages of others");
}

#[test]
fn what_is_given_up_does_not_count_as_away() {
    let mut queues = Queues::new(10);
    fill(&mut queues, 0..2);
    take_away(&mut queues, 0);
    take_away(&mut queues, 1);
    queues.given_up(0, 0b1111);
    queues.given_up(0, 1);
    assert_eq!((queues.away, queues.away_in[0], queues.away_in[1]), (4, 0, 0b1111));
    fill(&mut queues, 0..2);
    assert_eq!((queues.returned[0], queues.returned[1]), (0.0, 4.0));
}

/// A set of five times what fits. Nine of ten accesses are of a quarter of it: of a quarter of the blocks, or
/// of a quarter of each block, of some more than of others. Says whether pages are found to be alike at most
/// times.
fn found_alike(hot_blocks: bool) -> bool {
    const BLOCKS: u64 = 80;
    const PAGES: u64 = BLOCK_PAGES as u64;
    let mut queues = Queues::new(BLOCKS as u32);
    let mut rng = overdrive_base::rng::Rng::new(7);
    let mut resident = [0u64; BLOCKS as usize];
    let (mut missing, mut found) = (0, 0);
    for number in 0..100_000 {
        let page = match (rng.below(10) > 0, hot_blocks) {
            (true, true) => rng.below(BLOCKS / 4 * PAGES),
            (true, false) => {
                rng.below(BLOCKS).min(rng.below(BLOCKS)).min(rng.below(BLOCKS)) * PAGES + rng.below(PAGES / 4)
            }
            _ => rng.below(BLOCKS * PAGES),
        };
        let (block, bit) = ((page / PAGES) as usize, 1 << (page % PAGES));
        if resident[block] & bit != 0 {
            continue;
        }
        resident[block] |= bit;
        queues.arrived(page as u32);
        while queues.resident() > FITS {
            let victim = queues.victim().unwrap();
            // Who has just come stays.
            let kept = if victim as usize == block { bit } else { 0 };
            let went = std::mem::replace(&mut resident[victim as usize], kept) & !kept;
            queues.gone(victim, went.count_ones());
            queues.evicted(victim, went, 0, FITS);
            if went == 0 {
                queues.again_later(victim);
            }
        }
        if number > 50_000 {
            missing += 1;
            found += u32::from(queues.alike.is_so());
        }
    }
    found * 2 > missing
}

#[test]
fn pages_that_are_alike_are_found_out() {
    assert!(found_alike(true));
    assert!(!found_alike(false));
}

#[test]
fn a_scan_says_nothing_of_who_is_alike() {
    let mut queues = Queues::new(100);
    for _ in 0..50 {
        for block in 0..100 {
            if queues.resident_in(block) == 0 {
                arrive(&mut queues, block, 64);
            }
            while queues.resident() > FITS {
                evict(&mut queues);
            }
        }
    }
    assert!(!queues.alike.is_so());
}

/// So many blocks fit where whole blocks are accessed.
const FIT: u64 = 256;

/// Accesses to whole blocks, and how many of them were away.
struct Accesses(Queues);

impl Accesses {
    fn new() -> Self {
        Self(Queues::new(10 * FIT as u32))
    }

    fn access(&mut self, block: u64) -> u64 {
        let (queues, block) = (&mut self.0, block as u32);
        if queues.resident_in(block) > 0 {
            return 0;
        }
        arrive(queues, block, BLOCK_PAGES);
        let fits = FIT * u64::from(BLOCK_PAGES);
        while queues.resident() > fits {
            let victim = queues.victim().unwrap();
            queues.gone(victim, BLOCK_PAGES);
            queues.evicted(victim, u64::MAX, 0, fits);
        }
        1
    }

    fn access_all(&mut self, blocks: impl IntoIterator<Item = u64>) -> u64 {
        blocks.into_iter().map(|block| self.access(block)).sum()
    }

    /// How many were away in each of so many rounds.
    fn rounds(&mut self, count: usize, blocks: std::ops::Range<u64>) -> Vec<u64> {
        (0..count).map(|_| self.access_all(blocks.clone())).collect()
    }
}

#[test]
fn of_what_is_gone_through_in_rounds_most_that_fits_stays() {
    for blocks in [FIT * 5 / 4, FIT * 2, FIT * 4] {
        let mut accesses = Accesses::new();
        let away = accesses.rounds(30, 0..blocks);
        assert!(away[1] >= blocks * 3 / 4, "{away:?}");
        let late: u64 = away[20..].iter().sum();
        let missing = blocks - FIT;
        assert!(late <= 10 * (missing + missing / 4 + FIT / 8), "{away:?} of {blocks}");
    }
}

#[test]
fn what_is_in_use_between_rounds_stays() {
    let (mut accesses, mut rng) = (Accesses::new(), overdrive_base::rng::Rng::new(5));
    let (mut hot, mut all) = (0, 0);
    for number in 0..FIT * 60 {
        let is_late = number > FIT * 40;
        accesses.access(FIT / 4 + number % (2 * FIT));
        let away = accesses.access(rng.below(FIT / 4));
        hot += if is_late { away } else { 0 };
        all += u64::from(is_late);
    }
    assert!(accesses.0.rounds.are_made());
    assert!(hot * 20 < all, "{hot} of {all}");
}

#[test]
fn what_stayed_of_rounds_goes_when_these_are_over() {
    let (mut accesses, mut rng) = (Accesses::new(), overdrive_base::rng::Rng::new(6));
    accesses.rounds(20, 0..2 * FIT);
    assert!(accesses.0.rounds.are_made());
    let away = accesses.rounds(30, 3 * FIT..5 * FIT);
    assert!(away[25..].iter().all(|&away| away < FIT * 5 / 4), "other rounds: {away:?}");
    accesses.access_all((0..FIT * 40).map(|_| 6 * FIT + rng.below(FIT * 7 / 8)));
    let away = accesses.access_all((0..FIT * 4).map(|_| 6 * FIT + rng.below(FIT * 7 / 8)));
    assert!(away < FIT / 16, "{away} of what fits");
}

#[test]
fn neither_chance_nor_going_to_and_fro_is_taken_for_rounds() {
    let mut rng = overdrive_base::rng::Rng::new(8);
    let mut never = |what: &str, next: &mut dyn FnMut(&mut overdrive_base::rng::Rng, u64) -> u64| {
        let (mut accesses, mut taken) = (Accesses::new(), 0);
        for number in 0..FIT * 100 {
            accesses.access(next(&mut rng, number));
            taken += u64::from(accesses.0.rounds.are_made());
        }
        // As long as nothing is known yet, what is missing at both ends may look like it, once.
        assert!(taken < FIT * 2, "{what}: at {taken} accesses");
    };
    for blocks in [FIT * 5 / 4, FIT * 2, FIT * 5] {
        never("at random", &mut |rng, _| rng.below(blocks));
        never("the lower the more often", &mut |rng, _| rng.below(blocks).min(rng.below(blocks)));
        let there_and_back =
            |number: u64| (number % (2 * blocks)).min(2 * blocks - 1 - number % (2 * blocks));
        never("to and fro", &mut |_, number| there_and_back(number));
    }
}

#[test]
fn a_block_that_stays_does_not_block_the_others() {
    let mut queues = Queues::new(5);
    fill(&mut queues, 0..4);
    let pinned = [queues.victim().unwrap(), 1];
    for block in pinned {
        queues.again_later(block);
    }
    assert_eq!([evict(&mut queues), evict(&mut queues)], [2, 3]);
    assert!(pinned.contains(&queues.victim().unwrap()), "there is nothing else");
}

proptest! {
    /// Whatever happens in whatever order: the sums are those of the blocks, who has pages is found in one
    /// list, once, and all can be evicted.
    #[test]
    fn every_block_with_pages_is_in_one_list(
        steps in proptest::collection::vec((0u8..8, 0u32..6, 1u32..200), 1..200),
        fits in 1u64..300,
    ) {
        let mut queues = Queues::new(6);
        let mut resident = [0u64; 6];
        let mut listed = [0u8; 6];
        for (step, block, count) in steps {
            match step {
                0 | 1 => {
                    for _ in 0..count.min(u32::from(64 - queues.resident_in(block))) {
                        let page = resident[block as usize].trailing_ones();
                        resident[block as usize] |= 1 << page;
                        queues.arrived(block * BLOCK_PAGES + page);
                    }
                }
                2 => {
                    let victim = queues.victim();
                    prop_assert_eq!(victim.is_some(), queues.resident() > 0);
                    if let Some(victim) = victim {
                        let moved = count.min(u32::from(queues.resident_in(victim)));
                        let mut went = 0;
                        for _ in 0..moved {
                            let left = resident[victim as usize];
                            resident[victim as usize] &= left - 1;
                            went |= left ^ resident[victim as usize];
                            queues.gone(victim, 1);
                        }
                        queues.evicted(victim, went, moved / 2, fits);
                    }
                }
                3 if queues.resident_in(block) > 0 => {
                    resident[block as usize] &= resident[block as usize] - 1;
                    queues.gone(block, 1);
                }
                4 => queues.again_later(block),
                5 => queues.goes_next(block),
                6 => {
                    let watched = u32::from(queues.resident_in(block));
                    queues.looked(block, watched, count.min(watched), fits);
                    prop_assert!(queues.returned[block as usize].is_finite());
                    prop_assert!(queues.exposed[block as usize] >= 0.0);
                }
                _ => {
                    let page = count % BLOCK_PAGES;
                    if resident[block as usize] >> page & 1 == 0 {
                        queues.given_up(block, 1 << page);
                    }
                }
            }
            listed.fill(0);
            let mut young = 0;
            for list in 0..LISTS {
                let mut next = queues.oldest(list);
                while let Some(block) = next {
                    listed[block as usize] += 1;
                    young += u64::from(queues.resident_in(block)) * u64::from(list == YOUNG);
                    next = queues.newer[(LISTS + block) as usize].checked_sub(LISTS);
                }
            }
            for block in 0..6 {
                prop_assert_eq!(listed[block as usize], u8::from(queues.resident_in(block) > 0));
                let (here, away) = (resident[block as usize], queues.away_in[block as usize]);
                prop_assert_eq!(u32::from(queues.resident_in(block)), here.count_ones());
                prop_assert_eq!((here & away, queues.went_last[block as usize] & !away), (0, 0));
            }
            prop_assert_eq!(young, queues.young);
            let sum: u64 = queues.resident_in.iter().map(|&pages| u64::from(pages)).sum();
            let away: u64 = queues.away_in.iter().map(|&pages| u64::from(pages.count_ones())).sum();
            prop_assert_eq!((sum, away), (queues.resident(), queues.away));
        }
        while let Some(victim) = queues.victim() {
            prop_assert!(queues.resident_in(victim) > 0);
            take_away(&mut queues, victim);
        }
        prop_assert_eq!(queues.resident(), 0);
    }
}
