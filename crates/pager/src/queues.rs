//! Which block to evict next: the shape of S3-FIFO, on blocks of pages and with what a pager can see.
//!
//! A pager sees faults, not hits. So a page that is wanted again soon after its eviction (from staging, or
//! from the store within a short time) counts as a reference to its block. Blocks enter a small queue; from
//! its end they go to the main queue when they were referenced, and out otherwise, so that a scan passes
//! through without flushing what is hot. A block that returns soon after it left enters the main queue at
//! once. In the main queue a block is spared as often as it was referenced, at most three times.

const NONE: u32 = u32::MAX;
const HEAT_MAX: u8 = 3;
/// The share of resident pages the small queue may hold: a tenth.
const SMALL_SHARE: u64 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Place {
    Nowhere = 0,
    Small = 1,
    Main = 2,
}

#[derive(Debug, Clone, Copy)]
struct List {
    newest: u32,
    oldest: u32,
}

const EMPTY: List = List { newest: NONE, oldest: NONE };

/// The order of all blocks that have resident pages.
#[derive(Debug)]
pub struct Queues {
    lists: [List; 3],
    place: Vec<u8>,
    heat: Vec<u8>,
    newer: Vec<u32>,
    older: Vec<u32>,
    /// When the block was evicted last, in evicted pages; 0 for never.
    left_at: Vec<u32>,
    pages: [u64; 3],
    resident: Vec<u8>,
    evicted: u32,
}

impl Queues {
    /// Queues for `blocks` blocks.
    #[must_use]
    pub fn new(blocks: u32) -> Self {
        let blocks = blocks as usize;
        Self {
            lists: [EMPTY; 3],
            place: vec![0; blocks],
            heat: vec![0; blocks],
            newer: vec![0; blocks],
            older: vec![0; blocks],
            left_at: vec![0; blocks],
            pages: [0; 3],
            resident: vec![0; blocks],
            evicted: 1,
        }
    }

    /// Resident pages of all blocks.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.pages[Place::Small as usize] + self.pages[Place::Main as usize]
    }

    /// Resident pages of one block.
    #[must_use]
    pub fn resident_in(&self, block: u32) -> u8 {
        self.resident[block as usize]
    }

    /// A page of the block became resident. `main_pages`: how many pages fit DRAM, the measure of "soon".
    pub fn arrived(&mut self, block: u32, fits: u64) {
        if self.place(block) == Place::Nowhere {
            let place = if self.left_recently(block, fits) { Place::Main } else { Place::Small };
            self.enter(block, place);
        }
        self.resident[block as usize] += 1;
        self.pages[self.place(block) as usize] += 1;
    }

    /// A page of the block is resident no longer.
    pub fn gone(&mut self, block: u32) {
        self.resident[block as usize] -= 1;
        self.pages[self.place(block) as usize] -= 1;
        if self.resident[block as usize] == 0 {
            self.leave(block);
        }
    }

    /// A page of the block was wanted again soon after its eviction.
    pub fn referenced(&mut self, block: u32) {
        let heat = &mut self.heat[block as usize];
        *heat = (*heat + 1).min(HEAT_MAX);
    }

    /// Whether the block was last evicted so short a time ago that keeping it would have been better.
    #[must_use]
    pub fn left_recently(&self, block: u32, fits: u64) -> bool {
        let left_at = self.left_at[block as usize];
        left_at != 0 && u64::from(self.evicted.wrapping_sub(left_at)) < fits
    }

    /// The block to evict next. Its pages are still counted; report each with [`Queues::gone`].
    pub fn victim(&mut self) -> Option<u32> {
        // Each look moves a block or takes heat away, so this ends; the bound is for safety.
        for _ in 0..4 * self.place.len() {
            let small = self.lists[Place::Small as usize].oldest;
            let small_is_large = self.pages[Place::Small as usize] * SMALL_SHARE >= self.resident();
            let main = self.lists[Place::Main as usize].oldest;
            let (block, from) = match (small, main) {
                (NONE, NONE) => return None,
                (block, NONE) => (block, Place::Small),
                (block, _) if block != NONE && small_is_large => (block, Place::Small),
                (_, block) => (block, Place::Main),
            };
            let heat = self.heat[block as usize];
            if heat > 0 {
                self.heat[block as usize] = if from == Place::Small { 0 } else { heat - 1 };
                self.again(block, Place::Main);
                continue;
            }
            return Some(block);
        }
        None
    }

    /// Notes that `pages` pages of the block were evicted now.
    pub fn evicted(&mut self, block: u32, pages: u32) {
        self.evicted = self.evicted.wrapping_add(pages).max(1);
        self.left_at[block as usize] = self.evicted;
    }

    /// Puts a block that could not be evicted behind all others.
    pub fn again_later(&mut self, block: u32) {
        if self.place(block) != Place::Nowhere {
            self.again(block, Place::Main);
        }
    }

    /// The block goes before those that are in use: whoever knows says that it is not.
    pub fn goes_next(&mut self, block: u32) {
        if self.place(block) == Place::Nowhere {
            return;
        }
        self.heat[block as usize] = 0;
        // Alone at the new end it is at the old end as well.
        self.again(block, Place::Small);
        let list = Place::Small as usize;
        let oldest = self.lists[list].oldest;
        if oldest != block {
            self.leave(block);
            self.older[block as usize] = NONE;
            self.newer[block as usize] = oldest;
            self.older[oldest as usize] = block;
            self.lists[list].oldest = block;
            self.place[block as usize] = Place::Small as u8;
        }
    }

    fn again(&mut self, block: u32, place: Place) {
        let pages = u64::from(self.resident[block as usize]);
        self.pages[self.place(block) as usize] -= pages;
        self.leave(block);
        self.enter(block, place);
        self.pages[place as usize] += pages;
    }

    fn place(&self, block: u32) -> Place {
        match self.place[block as usize] {
            1 => Place::Small,
            2 => Place::Main,
            _ => Place::Nowhere,
        }
    }

    fn enter(&mut self, block: u32, place: Place) {
        let list = &mut self.lists[place as usize];
        let second = std::mem::replace(&mut list.newest, block);
        if second == NONE {
            list.oldest = block;
        } else {
            self.newer[second as usize] = block;
        }
        self.older[block as usize] = second;
        self.newer[block as usize] = NONE;
        self.place[block as usize] = place as u8;
    }

    fn leave(&mut self, block: u32) {
        let list = self.place(block) as usize;
        let (newer, older) = (self.newer[block as usize], self.older[block as usize]);
        match newer {
            NONE => self.lists[list].newest = older,
            newer => self.older[newer as usize] = older,
        }
        match older {
            NONE => self.lists[list].oldest = newer,
            older => self.newer[older as usize] = newer,
        }
        self.place[block as usize] = Place::Nowhere as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(queues: &mut Queues, blocks: std::ops::Range<u32>) {
        blocks.for_each(|block| (0..4).for_each(|_| queues.arrived(block, 1000)));
    }

    fn evict(queues: &mut Queues) -> u32 {
        let block = queues.victim().unwrap();
        let pages = queues.resident_in(block);
        (0..pages).for_each(|_| queues.gone(block));
        queues.evicted(block, u32::from(pages));
        block
    }

    #[test]
    fn first_in_is_first_out() {
        let mut queues = Queues::new(10);
        fill(&mut queues, 0..10);
        assert_eq!((0..10).map(|_| evict(&mut queues)).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        assert_eq!((queues.victim(), queues.resident()), (None, 0));
    }

    #[test]
    fn what_is_said_to_be_cold_goes_first() {
        let mut queues = Queues::new(10);
        fill(&mut queues, 0..6);
        queues.referenced(3);
        queues.goes_next(3);
        queues.goes_next(5);
        queues.goes_next(0);
        queues.goes_next(9);
        assert_eq!(queues.resident(), 24, "a block that is not there changes nothing");
        assert_eq!((0..6).map(|_| evict(&mut queues)).collect::<Vec<_>>(), [0, 5, 3, 1, 2, 4]);
        assert_eq!((queues.victim(), queues.resident()), (None, 0));
        fill(&mut queues, 7..8);
        queues.goes_next(7);
        assert_eq!(evict(&mut queues), 7, "alone");
    }

    #[test]
    fn what_returns_soon_outlives_a_scan() {
        let mut queues = Queues::new(100);
        fill(&mut queues, 0..3);
        (0..3).for_each(|_| assert!(evict(&mut queues) < 3));
        fill(&mut queues, 0..3);
        for block in 10..90 {
            fill(&mut queues, block..block + 1);
            assert!(evict(&mut queues) >= 10, "the scan evicts itself");
        }
        assert_eq!(queues.resident(), 12);
    }

    #[test]
    fn a_referenced_block_is_spared_as_often_as_it_was_referenced() {
        let mut queues = Queues::new(4);
        fill(&mut queues, 0..1);
        queues.referenced(0);
        fill(&mut queues, 1..3);
        assert_eq!((evict(&mut queues), evict(&mut queues), evict(&mut queues)), (1, 2, 0));
    }

    #[test]
    fn a_block_that_stays_does_not_block_the_others() {
        let mut queues = Queues::new(3);
        fill(&mut queues, 0..3);
        let pinned = queues.victim().unwrap();
        queues.again_later(pinned);
        assert_ne!(queues.victim().unwrap(), pinned);
    }
}
