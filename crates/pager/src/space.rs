//! From addresses to page numbers and back: which parts of the program's memory are under the pager.
//!
//! Page numbers are dense and handed out in whole blocks of [`BLOCK_PAGES`] pages that are aligned in the
//! address space too, so that a block is one stretch of addresses. It knows nothing of what is in the
//! pages.

use overdrive_sys::uffd::PAGE;
use std::ops::Range;

/// Pages of a block: what is evicted together. 256 KiB.
pub const BLOCK_PAGES: u32 = 64;
const BLOCK_BYTES: u64 = BLOCK_PAGES as u64 * PAGE;

/// Those of the first `count` pages of a stretch of which `is` holds, a bit each. At most a block's.
pub(crate) fn pages_where(count: u32, mut is: impl FnMut(u32) -> bool) -> u64 {
    (0..count).filter(|&page| is(page)).fold(0, |pages, page| pages | 1 << page)
}

/// A stretch of addresses under the pager, and the number of the page at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Its addresses, whole pages.
    pub range: Range<u64>,
    /// The number of its first page; `first % BLOCK_PAGES` is its place in an aligned block.
    pub first: u32,
}

impl Region {
    fn page_at(&self, address: u64) -> u32 {
        self.first + ((address - self.range.start) / PAGE) as u32
    }

    /// The numbers of its pages.
    #[must_use]
    pub fn pages(&self) -> Range<u32> {
        self.first..self.page_at(self.range.end - 1) + 1
    }

    /// What of a range of pages it has, with the address of the first.
    fn stretch(&self, wanted: &Range<u32>) -> Option<(u64, Range<u32>)> {
        let pages = self.pages();
        let (start, end) = (wanted.start.max(pages.start), wanted.end.min(pages.end));
        (start < end).then(|| (self.address_of(start), start..end))
    }

    fn address_of(&self, page: u32) -> u64 {
        self.range.start + u64::from(page - self.first) * PAGE
    }
}

/// All regions, in order of address, without overlap.
#[derive(Debug, Clone)]
pub struct Space {
    regions: Vec<Region>,
    /// How many regions reach into each block of page numbers.
    uses: Vec<u8>,
    /// The region found last: faults come in crowds.
    last: usize,
}

impl Space {
    /// A space for at most `blocks` blocks.
    #[must_use]
    pub fn new(blocks: u32) -> Self {
        Self { regions: Vec::new(), uses: vec![0; blocks as usize], last: 0 }
    }

    /// The page at an address.
    pub fn page(&mut self, address: u64) -> Option<u32> {
        if let Some(region) = self.regions.get(self.last)
            && region.range.contains(&address)
        {
            return Some(region.page_at(address));
        }
        let index = self.regions.partition_point(|region| region.range.end <= address);
        let region = self.regions.get(index).filter(|region| region.range.contains(&address))?;
        self.last = index;
        Some(region.page_at(address))
    }

    /// The regions.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// One more than the highest page number in use.
    #[must_use]
    pub fn pages_end(&self) -> u32 {
        self.regions.iter().map(|region| region.page_at(region.range.end - 1) + 1).max().unwrap_or(0)
    }

    /// Bytes under the pager.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.regions.iter().map(|region| region.range.end - region.range.start).sum()
    }

    /// The parts of `range` that belong to no region yet.
    #[must_use]
    pub fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for region in &self.regions[self.regions.partition_point(|region| region.range.end <= range.start)..]
        {
            if region.range.start >= range.end {
                break;
            }
            if at < region.range.start {
                gaps.push(at..region.range.start);
            }
            at = region.range.end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// Takes a range in that is in no region yet. `None` when there are no page numbers left for it.
    ///
    /// A range that continues a region inside one block gets its own block of numbers all the same: two
    /// numbers for one stretch of addresses cost a little room, never correctness.
    pub fn add(&mut self, range: Range<u64>) -> Option<Region> {
        let offset = ((range.start % BLOCK_BYTES) / PAGE) as u32;
        let pages = u64::from(offset) + (range.end - range.start) / PAGE;
        // More than there are numbers for needs no look.
        let blocks = usize::try_from(pages.div_ceil(u64::from(BLOCK_PAGES))).ok()?;
        if blocks > self.uses.len() {
            return None;
        }
        let first_block = self.free_run(blocks)?;
        let region = Region { range, first: first_block as u32 * BLOCK_PAGES + offset };
        self.uses[first_block..first_block + blocks].fill(1);
        let index = self.regions.partition_point(|other| other.range.end <= region.range.start);
        self.regions.insert(index, region.clone());
        Some(region)
    }

    fn free_run(&self, blocks: usize) -> Option<usize> {
        let mut run = 0;
        for (index, &uses) in self.uses.iter().enumerate() {
            run = if uses == 0 { run + 1 } else { 0 };
            if run == blocks {
                return Some(index + 1 - blocks);
            }
        }
        None
    }

    /// Gives a range up and returns the pages that were in it, as runs of page numbers.
    pub fn remove(&mut self, range: &Range<u64>) -> Vec<Range<u32>> {
        let mut removed = Vec::new();
        let mut kept = Vec::with_capacity(self.regions.len() + 1);
        for region in std::mem::take(&mut self.regions) {
            let cut = range.start.max(region.range.start)..range.end.min(region.range.end);
            if cut.start >= cut.end {
                kept.push(region);
                continue;
            }
            let pages =
                region.page_at(cut.start)..region.page_at(cut.start) + ((cut.end - cut.start) / PAGE) as u32;
            let before = Region { range: region.range.start..cut.start, first: region.first };
            let after = Region { range: cut.end..region.range.end, first: pages.end };
            self.count(&region, false);
            for rest in [before, after] {
                if rest.range.start < rest.range.end {
                    self.count(&rest, true);
                    kept.push(rest);
                }
            }
            removed.push(pages);
        }
        self.regions = kept;
        removed
    }

    /// The same, page by page: how many pages each is from the start of the range, and its number.
    pub fn take_out(&mut self, range: &Range<u64>) -> Vec<(u32, u32)> {
        let within = |region: &Region| region.range.start.max(range.start)..region.range.end.min(range.end);
        let pieces: Vec<_> =
            self.regions.iter().map(within).filter(|piece| piece.start < piece.end).collect();
        let starts = pieces.iter().map(|piece| ((piece.start - range.start) / PAGE) as u32);
        starts.zip(self.remove(range)).flat_map(|(start, pages)| (start..).zip(pages)).collect()
    }

    fn count(&mut self, region: &Region, more: bool) {
        let last = region.page_at(region.range.end - 1);
        for block in region.first / BLOCK_PAGES..=last / BLOCK_PAGES {
            let uses = &mut self.uses[block as usize];
            *uses = if more { uses.saturating_add(1) } else { uses.saturating_sub(1) };
        }
    }

    /// Whether anything in `range` is under the pager.
    #[must_use]
    pub fn has_any(&self, range: &Range<u64>) -> bool {
        let first = self.regions.partition_point(|region| region.range.end <= range.start);
        self.regions.get(first).is_some_and(|region| region.range.start < range.end)
    }

    /// Runs of pages in `range`, as far as it is under the pager.
    #[must_use]
    pub fn pages_in(&self, range: &Range<u64>) -> Vec<Range<u32>> {
        let first = self.regions.partition_point(|region| region.range.end <= range.start);
        self.regions[first..]
            .iter()
            .take_while(|region| region.range.start < range.end)
            .map(|region| {
                let cut = range.start.max(region.range.start)..range.end.min(region.range.end);
                let start = region.page_at(cut.start);
                start..start + ((cut.end - cut.start) / PAGE) as u32
            })
            .collect()
    }

    /// Where the pages of a block are: the address of the first of each stretch, and its page numbers.
    #[must_use]
    pub fn stretches(&self, block: u32) -> Vec<(u64, Range<u32>)> {
        let wanted = block * BLOCK_PAGES..(block + 1) * BLOCK_PAGES;
        self.regions.iter().filter_map(|region| region.stretch(&wanted)).collect()
    }

    /// The first at most `most` pages in a row of a range of pages, with their address.
    #[must_use]
    pub fn next_stretch(&self, wanted: Range<u32>, most: u32) -> Option<(u64, Range<u32>)> {
        let stretches = self.regions.iter().filter_map(|region| region.stretch(&wanted));
        let (address, pages) = stretches.min_by_key(|(_, pages)| pages.start)?;
        Some((address, pages.start..pages.end.min(pages.start + most)))
    }

    /// The first stretch at or after an address, up to where addresses are a multiple of `bytes`: its
    /// addresses, and its first page.
    #[must_use]
    pub fn stretch_from(&self, address: u64, bytes: u64) -> Option<(Range<u64>, u32)> {
        let index = self.regions.partition_point(|region| region.range.end <= address);
        let region = self.regions.get(index)?;
        let start = address.max(region.range.start);
        let end = region.range.end.min((start / bytes + 1) * bytes);
        Some((start..end, region.page_at(start)))
    }

    /// The address of a page.
    #[must_use]
    pub fn address(&self, page: u32) -> Option<u64> {
        let region = self.regions.iter().find(|region| region.pages().contains(&page))?;
        Some(region.address_of(page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_are_aligned_in_addresses() {
        let mut space = Space::new(16);
        let region = space.add(BLOCK_BYTES - PAGE..3 * BLOCK_BYTES).unwrap();
        assert_eq!(region.first % BLOCK_PAGES, 63);
        assert_eq!(space.page(BLOCK_BYTES), Some(64));
        assert_eq!(space.stretches(1), [(BLOCK_BYTES, 64..128)]);
        assert_eq!(space.next_stretch(60..128, 16), Some((BLOCK_BYTES - PAGE, 63..79)));
        assert_eq!(space.next_stretch(120..128, 16), Some((BLOCK_BYTES + 56 * PAGE, 120..128)));
        assert_eq!(space.next_stretch(0..63, 16), None);
        let bytes = 2 * BLOCK_BYTES;
        assert_eq!(space.stretch_from(0, bytes), Some((BLOCK_BYTES - PAGE..bytes, 63)));
        assert_eq!(space.stretch_from(bytes, bytes), Some((bytes..3 * BLOCK_BYTES, 128)));
        assert_eq!(space.stretch_from(3 * BLOCK_BYTES, bytes), None);
        assert_eq!(space.address(63), Some(BLOCK_BYTES - PAGE));
    }

    #[test]
    fn a_hole_splits_a_region_and_numbers_are_used_again() {
        let mut space = Space::new(4);
        space.add(0..4 * BLOCK_BYTES).unwrap();
        assert!(space.add(1 << 40..(1 << 40) + PAGE).is_none(), "no numbers left");
        assert!(space.add(1 << 45..(1 << 45) + (1 << 44) + PAGE).is_none(), "nor for 2^32 pages and one");
        assert_eq!(space.remove(&(BLOCK_BYTES..2 * BLOCK_BYTES)), vec![64..128; 1]);
        assert_eq!(space.page(BLOCK_BYTES), None);
        assert_eq!(space.page(2 * BLOCK_BYTES), Some(128));
        assert_eq!(space.add(1 << 40..(1 << 40) + PAGE).unwrap().first, 64);
    }

    proptest! {
        /// Against a plain list of owned addresses: any mix of adding and removing gives each address one
        /// page number, no two the same, and the way back agrees.
        #[test]
        fn numbers_and_addresses_agree(steps in prop::collection::vec((0u64..300, 1u64..200, any::<bool>()), 1..30)) {
            let mut space = Space::new(64);
            let mut owned = std::collections::BTreeSet::new();
            for (start, pages, add) in steps {
                let range = start * PAGE..(start + pages) * PAGE;
                if add {
                    for gap in space.gaps(range.clone()) {
                        if space.add(gap.clone()).is_some() {
                            owned.extend(gap.start / PAGE..gap.end / PAGE);
                        }
                    }
                } else {
                    let removed: u32 = space.remove(&range).iter().map(ExactSizeIterator::len).sum::<usize>() as u32;
                    let before = owned.len();
                    owned.retain(|page| !range.contains(&(page * PAGE)));
                    prop_assert_eq!(removed as usize, before - owned.len());
                }
                let mut numbers = std::collections::BTreeSet::new();
                for page in 0..600 {
                    let number = space.page(page * PAGE);
                    prop_assert_eq!(number.is_some(), owned.contains(&page));
                    if let Some(number) = number {
                        prop_assert!(numbers.insert(number));
                        prop_assert_eq!(space.address(number), Some(page * PAGE));
                        prop_assert_eq!(u64::from(number % BLOCK_PAGES), page % u64::from(BLOCK_PAGES));
                    }
                }
            }
        }
    }
}
