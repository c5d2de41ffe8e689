//! From addresses to page numbers and back: which parts of the program's memory are under the pager.
//!
//! Page numbers are dense and handed out in whole blocks of [`BLOCK_PAGES`] pages. A block is one stretch of
//! addresses, aligned until its memory moves. Memory that continues other memory goes on in its numbers where
//! these are free. It knows nothing of what is in the pages.
//!
//! Programs have thousands of pieces of memory (a stack for each thread, an arena for each heap), and each
//! fault asks for a page: so all that is asked of it takes a time that grows with their logarithm.

use overdrive_sys::uffd::PAGE;
use std::collections::BTreeMap;
use std::ops::Range;

/// Pages of a block: what is evicted together. 256 KiB.
pub const BLOCK_PAGES: u32 = 64;
const BLOCK_BYTES: u64 = BLOCK_PAGES as u64 * PAGE;

/// Those of the first `count` pages of a stretch of which `is` holds, a bit each. At most a block's.
pub(crate) fn pages_where(count: u32, mut is: impl FnMut(u32) -> bool) -> u64 {
    (0..count).filter(|&page| is(page)).fold(0, |pages, page| pages | 1 << page)
}

/// The numbers of the bits that are set, from the lowest on.
pub(crate) fn bits_of(mut pages: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = pages.trailing_zeros();
        pages &= pages.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit)
    })
}

/// The runs of bits that are set: where each begins, and how long it is.
pub(crate) fn runs_of(mut bits: u64) -> impl Iterator<Item = (u32, u32)> {
    std::iter::from_fn(move || {
        let start = bits.trailing_zeros();
        let length = bits.checked_shr(start)?.trailing_ones();
        bits &= !(u64::MAX >> (u64::BITS - length) << start);
        Some((start, length))
    })
}

/// The blocks that these pages reach into, and which pages of each are among them, a bit each.
pub(crate) fn block_by_block(pages: Range<u32>) -> impl Iterator<Item = (u32, u64)> {
    let blocks = pages.start / BLOCK_PAGES..pages.end.div_ceil(BLOCK_PAGES);
    blocks.map(move |block| {
        let first = block * BLOCK_PAGES;
        (block, pages_where(BLOCK_PAGES, |page| pages.contains(&(first + page))))
    })
}

/// A stretch of addresses under the pager, and the number of the page at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Its addresses, whole pages.
    pub range: Range<u64>,
    /// The number of its first page.
    pub first: u32,
}

impl Region {
    fn page_at(&self, address: u64) -> u32 {
        self.first + ((address - self.range.start) / PAGE) as u32
    }

    /// The numbers of its pages.
    #[must_use]
    pub fn pages(&self) -> Range<u32> {
        self.first..self.page_at(self.range.end)
    }

    /// The blocks it reaches into.
    fn blocks(&self) -> Range<u32> {
        self.first / BLOCK_PAGES..self.pages().end.div_ceil(BLOCK_PAGES)
    }

    /// Where the page with the number 0 would be: the same for all regions whose numbers go on in each other.
    fn base(&self) -> u64 {
        self.range.start.wrapping_sub(u64::from(self.first) * PAGE)
    }

    /// What of a range of addresses it has.
    fn part(&self, wanted: &Range<u64>) -> Option<Self> {
        let range = self.range.start.max(wanted.start)..self.range.end.min(wanted.end);
        (range.start < range.end).then(|| Self { first: self.page_at(range.start), range })
    }

    /// What of a range of pages it has, with the address of the first.
    fn stretch(&self, wanted: &Range<u32>) -> (u64, Range<u32>) {
        let pages = self.pages();
        let start = pages.start.max(wanted.start);
        (self.address_of(start), start..pages.end.min(wanted.end))
    }

    fn address_of(&self, page: u32) -> u64 {
        self.range.start + u64::from(page - self.first) * PAGE
    }
}

/// All regions, without overlap in addresses or numbers.
#[derive(Debug, Clone)]
pub struct Space {
    /// By the address of their start.
    by_address: BTreeMap<u64, Region>,
    /// The same by the number of their first page.
    by_number: BTreeMap<u32, Region>,
    /// Runs of blocks that no region reaches into: by the first, one past the last.
    free: BTreeMap<u32, u32>,
    bytes: u64,
}

impl Space {
    /// A space for at most `blocks` blocks.
    #[must_use]
    pub fn new(blocks: u32) -> Self {
        let free = if blocks > 0 { BTreeMap::from([(0, blocks)]) } else { BTreeMap::new() };
        Self { by_address: BTreeMap::new(), by_number: BTreeMap::new(), free, bytes: 0 }
    }

    /// A space for at most so many bytes, as far as there are numbers.
    #[must_use]
    pub fn of_bytes(bytes: u64) -> Self {
        Self::new(bytes.div_ceil(BLOCK_BYTES).min(1 << 24) as u32)
    }

    /// The page at an address.
    #[must_use]
    pub fn page(&self, address: u64) -> Option<u32> {
        let (_, region) = self.by_address.range(..=address).next_back()?;
        region.range.contains(&address).then(|| region.page_at(address))
    }

    /// The address of a page.
    #[must_use]
    pub fn address(&self, page: u32) -> Option<u64> {
        let (_, region) = self.by_number.range(..=page).next_back()?;
        region.pages().contains(&page).then(|| region.address_of(page))
    }

    /// The regions, in order of address.
    pub fn regions(&self) -> impl Iterator<Item = &Region> {
        self.by_address.values()
    }

    /// One more than the highest page number in use.
    #[must_use]
    pub fn pages_end(&self) -> u32 {
        self.by_number.last_key_value().map_or(0, |(_, region)| region.pages().end)
    }

    /// Bytes under the pager.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The region before an address, if one begins there, and those from it on.
    fn at_or_after(&self, address: u64) -> impl Iterator<Item = &Region> {
        let before = self.by_address.range(..address).next_back();
        before.into_iter().chain(self.by_address.range(address..)).map(|(_, region)| region)
    }

    /// The parts of regions that are in `range`, in order of address.
    fn parts(&self, range: &Range<u64>) -> impl Iterator<Item = Region> {
        let in_reach = self.at_or_after(range.start).take_while(move |region| region.range.start < range.end);
        in_reach.filter_map(move |region| region.part(range))
    }

    /// The regions that have pages in `wanted`, in order of number.
    fn with_pages_in(&self, wanted: Range<u32>) -> impl Iterator<Item = &Region> {
        let before = self.by_number.range(..wanted.start).next_back();
        let after = self.by_number.range(wanted.start..wanted.end.max(wanted.start));
        let in_reach = before.into_iter().chain(after).map(|(_, region)| region);
        in_reach.filter(move |region| !wanted.is_empty() && region.pages().end > wanted.start)
    }

    /// The parts of `range` that belong to no region yet.
    #[must_use]
    pub fn gaps(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for part in self.parts(&range) {
            if at < part.range.start {
                gaps.push(at..part.range.start);
            }
            at = part.range.end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// Takes a range in that is in no region yet. `None` when there are no page numbers left for it.
    ///
    /// What continues a region, or is in one block with it, goes on in its numbers if these are free. Where
    /// they are not it gets blocks of its own: two numbers for one stretch of addresses cost a little room,
    /// never correctness.
    pub fn add(&mut self, range: Range<u64>) -> Option<Region> {
        let region = self.continuing(&range).or_else(|| self.apart(&range))?;
        let blocks = self.without_shared(&region);
        self.take_free(&blocks);
        self.bytes += range.end - range.start;
        self.insert(region.clone());
        Some(region)
    }

    /// The numbers of a range that go on in those of a region beside it.
    fn continuing(&self, range: &Range<u64>) -> Option<Region> {
        let is_beside = |region: &&Region| {
            let (low, high) = if region.range.end <= range.start {
                (region.range.end, range.start)
            } else {
                (range.end, region.range.start)
            };
            low == high || (low - 1) / BLOCK_BYTES == high / BLOCK_BYTES
        };
        let before = self.by_address.range(..range.start).next_back();
        let after = self.by_address.range(range.end..).next();
        let beside = before.into_iter().chain(after).map(|(_, region)| region).filter(is_beside);
        let numbered = beside.filter_map(|region| {
            // Below the number 0 this is more than any number.
            let first = range.start.wrapping_sub(region.base()) / PAGE;
            let end = first.checked_add((range.end - range.start) / PAGE)?;
            u32::try_from(end).ok().map(|_| Region { range: range.clone(), first: first as u32 })
        });
        numbered.into_iter().find(|region| self.is_free(&self.without_shared(region)))
    }

    /// The first free numbers that are enough.
    fn apart(&self, range: &Range<u64>) -> Option<Region> {
        let offset = ((range.start % BLOCK_BYTES) / PAGE) as u32;
        let pages = u64::from(offset) + (range.end - range.start) / PAGE;
        // More than there are numbers for needs no look.
        let blocks = u32::try_from(pages.div_ceil(u64::from(BLOCK_PAGES))).ok()?;
        let (&block, _) = self.free.iter().find(|&(start, end)| end - start >= blocks)?;
        Some(Region { range: range.clone(), first: block * BLOCK_PAGES + offset })
    }

    /// The blocks that a newcomer reaches into, but for the first and last where they are the same stretch of
    /// addresses for who is there already.
    fn without_shared(&self, newcomer: &Region) -> Range<u32> {
        let is_shared = |block: u32| {
            let mut there = self.with_pages_in(pages_of(block)).peekable();
            there.peek().is_some() && there.all(|region| region.base() == newcomer.base())
        };
        without_ends(newcomer.blocks(), is_shared)
    }

    fn is_free(&self, blocks: &Range<u32>) -> bool {
        let run = self.free.range(..=blocks.start).next_back();
        blocks.is_empty() || run.is_some_and(|(_, &end)| end >= blocks.end)
    }

    /// Takes blocks that are free.
    fn take_free(&mut self, blocks: &Range<u32>) {
        if blocks.is_empty() {
            return;
        }
        let Some((&start, &end)) = self.free.range(..=blocks.start).next_back() else { return };
        self.free.remove(&start);
        for rest in [start..blocks.start, blocks.end..end] {
            if !rest.is_empty() {
                self.free.insert(rest.start, rest.end);
            }
        }
    }

    /// Gives back those of the blocks that nobody reaches into any more: all but perhaps the first and last.
    /// These may be free already, by who reached into them too.
    fn give_free(&mut self, blocks: Range<u32>) {
        let is_free = |block: u32| self.is_free(&(block..block + 1));
        let stays = |block: u32| self.with_pages_in(pages_of(block)).next().is_some() || is_free(block);
        let mut blocks = without_ends(blocks, stays);
        if blocks.is_empty() {
            return;
        }
        if let Some((&start, &end)) = self.free.range(..blocks.start).next_back()
            && end == blocks.start
        {
            self.free.remove(&start);
            blocks.start = start;
        }
        if let Some(end) = self.free.remove(&blocks.end) {
            blocks.end = end;
        }
        self.free.insert(blocks.start, blocks.end);
    }

    /// Enters a region, as one with those that it continues.
    fn insert(&mut self, mut region: Region) {
        let before = self.by_address.range(..region.range.start).next_back();
        let after = self.by_address.get(&region.range.end);
        let beside = before.map(|(_, before)| before).into_iter().chain(after);
        let one: Vec<Region> = beside
            .filter(|other| other.base() == region.base())
            .filter(|other| other.range.end == region.range.start || other.range.start == region.range.end)
            .cloned()
            .collect();
        for other in one {
            self.forget(&other);
            let range = region.range.start.min(other.range.start)..region.range.end.max(other.range.end);
            region = Region { range, first: region.first.min(other.first) };
        }
        self.by_address.insert(region.range.start, region.clone());
        self.by_number.insert(region.first, region);
    }

    fn forget(&mut self, region: &Region) {
        self.by_address.remove(&region.range.start);
        self.by_number.remove(&region.first);
    }

    /// Gives a range up and returns the pages that were in it, as runs of page numbers.
    pub fn remove(&mut self, range: &Range<u64>) -> Vec<Range<u32>> {
        let parts = self.cut_out(range);
        for part in &parts {
            self.bytes -= part.range.end - part.range.start;
            self.give_free(part.blocks());
        }
        parts.iter().map(Region::pages).collect()
    }

    /// Takes what is in a range out of its regions. Its numbers are not free by that.
    fn cut_out(&mut self, range: &Range<u64>) -> Vec<Region> {
        let in_reach = self.at_or_after(range.start).take_while(|region| region.range.start < range.end);
        let cut: Vec<(Region, Region)> =
            in_reach.filter_map(|region| Some((region.clone(), region.part(range)?))).collect();
        for (region, part) in &cut {
            self.forget(region);
            for rest in [region.range.start..part.range.start, part.range.end..region.range.end] {
                if let Some(rest) = region.part(&rest) {
                    self.insert(rest);
                }
            }
        }
        cut.into_iter().map(|(_, part)| part).collect()
    }

    /// The same, page by page: how many pages each is from the start of the range, and its number.
    pub fn take_out(&mut self, range: &Range<u64>) -> impl Iterator<Item = (u32, u32)> + use<> {
        let starts: Vec<u32> =
            self.parts(range).map(|part| ((part.range.start - range.start) / PAGE) as u32).collect();
        starts.into_iter().zip(self.remove(range)).flat_map(|(start, pages)| (start..).zip(pages))
    }

    /// Moves what is in `from` to `to`, where nothing is, with its numbers. Returns what cannot keep them and
    /// stays where it was: the ends where some of a block would not go along, as that has to be one stretch
    /// of addresses; and all of it where some is not under the pager.
    pub fn relocate(&mut self, from: &Range<u64>, to: u64) -> Vec<Range<u64>> {
        let parts: Vec<Region> = self.parts(from).collect();
        let bytes: u64 = parts.iter().map(|part| part.range.end - part.range.start).sum();
        if bytes != from.end - from.start {
            return vec![from.clone()];
        }
        let (mut go, mut stay) = (Vec::new(), Vec::new());
        for part in parts {
            let whole = self.whole_blocks_in(&part, from);
            let ends = [part.range.start..whole.start, whole.end..part.range.end];
            stay.extend(ends.into_iter().filter(|end| !end.is_empty()));
            go.extend(part.part(&whole));
        }
        for part in &go {
            self.cut_out(&part.range);
        }
        for Region { range, first } in go {
            let there = |address: u64| to + (address - from.start);
            self.insert(Region { range: there(range.start)..there(range.end), first });
        }
        stay
    }

    /// The addresses of those blocks of a part of `from` of which nothing is elsewhere.
    fn whole_blocks_in(&self, part: &Region, from: &Range<u64>) -> Range<u64> {
        let is_in = |(start, pages): (u64, Range<u32>)| {
            from.start <= start && start + pages.len() as u64 * PAGE <= from.end
        };
        let is_divided = |block: u32| !self.stretches(block).into_iter().all(is_in);
        let (blocks, pages) = (without_ends(part.blocks(), is_divided), part.pages());
        let start = pages.start.max(blocks.start * BLOCK_PAGES).min(pages.end);
        let end = pages.end.min(blocks.end * BLOCK_PAGES).max(start);
        part.address_of(start)..part.address_of(end)
    }

    /// Whether anything in `range` is under the pager.
    #[must_use]
    pub fn has_any(&self, range: &Range<u64>) -> bool {
        self.parts(range).next().is_some()
    }

    /// Runs of pages in `range`, as far as it is under the pager.
    #[must_use]
    pub fn pages_in(&self, range: &Range<u64>) -> Vec<Range<u32>> {
        self.parts(range).map(|part| part.pages()).collect()
    }

    /// Where the pages of a block are: the address of the first of each stretch, and its page numbers.
    #[must_use]
    pub fn stretches(&self, block: u32) -> Vec<(u64, Range<u32>)> {
        let wanted = pages_of(block);
        self.with_pages_in(wanted.clone()).map(|region| region.stretch(&wanted)).collect()
    }

    /// The first at most `most` pages in a row of a range of pages, with their address.
    #[must_use]
    pub fn next_stretch(&self, wanted: Range<u32>, most: u32) -> Option<(u64, Range<u32>)> {
        let region = self.with_pages_in(wanted.clone()).next()?;
        let (address, pages) = region.stretch(&wanted);
        Some((address, pages.start..pages.end.min(pages.start + most)))
    }

    /// The first stretch at or after an address, up to where numbers are a multiple of that of some `blocks`:
    /// its addresses, and its first page.
    #[must_use]
    pub fn stretch_from(&self, address: u64, blocks: u32) -> Option<(Range<u64>, u32)> {
        let region = self.at_or_after(address).find(|region| region.range.end > address)?;
        let start = address.max(region.range.start);
        let (first, most) = (region.page_at(start), blocks * BLOCK_PAGES);
        let end = region.pages().end.min((first / most + 1) * most);
        Some((start..region.address_of(end), first))
    }
}

/// Blocks without the first and the last where these are so.
fn without_ends(mut blocks: Range<u32>, are: impl Fn(u32) -> bool) -> Range<u32> {
    if are(blocks.start) {
        blocks.start += 1;
    }
    if !blocks.is_empty() && are(blocks.end - 1) {
        blocks.end -= 1;
    }
    blocks
}

fn pages_of(block: u32) -> Range<u32> {
    block * BLOCK_PAGES..(block + 1) * BLOCK_PAGES
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

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
        let two = 2 * BLOCK_BYTES;
        assert_eq!(space.stretch_from(0, 2), Some((BLOCK_BYTES - PAGE..two, 63)));
        assert_eq!(space.stretch_from(two, 2), Some((two..3 * BLOCK_BYTES, 128)));
        assert_eq!(space.stretch_from(3 * BLOCK_BYTES, 2), None);
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

    #[test]
    fn memory_that_grows_goes_on_in_its_numbers() {
        let mut space = Space::new(8);
        let step = 33 * PAGE;
        let start = (1 << 40) + 5 * PAGE;
        for piece in 0..6 {
            let region = space.add(start + piece * step..start + (piece + 1) * step).unwrap();
            assert_eq!(region.first, 5 + piece as u32 * 33);
        }
        assert_eq!(space.regions().count(), 1);
        // Another that grows downwards, and inside a block goes on in its numbers.
        let top = 1 << 45;
        let firsts: Vec<u32> = (1..=3)
            .map(|piece| space.add(top - piece * 16 * PAGE..top - (piece - 1) * 16 * PAGE).unwrap().first)
            .collect();
        assert_eq!(firsts, [304, 288, 272]);
        // What was taken out of the middle comes back where it was.
        assert_eq!(space.remove(&(start + 10 * PAGE..start + 150 * PAGE)), vec![15..155; 1]);
        assert_eq!(space.add(start + 140 * PAGE..start + 150 * PAGE).unwrap().first, 145);
        assert_eq!(space.add(start + 10 * PAGE..start + 140 * PAGE).unwrap().first, 15);
        assert_eq!(space.regions().count(), 2);
    }

    #[test]
    fn what_moves_keeps_its_numbers_where_its_blocks_go_whole() {
        let far = (1 << 40) + PAGE;
        let mut space = Space::new(8);
        space.add(BLOCK_BYTES..4 * BLOCK_BYTES).unwrap();
        let beyond = 2 * BLOCK_BYTES..5 * BLOCK_BYTES;
        assert_eq!(space.relocate(&beyond, far), vec![beyond; 1], "not all of it is there");
        let part = 2 * BLOCK_BYTES..3 * BLOCK_BYTES;
        let less = part.start + PAGE..part.end - PAGE;
        assert_eq!(space.relocate(&less, far), vec![less; 1], "a block would be in two places");
        assert_eq!(space.relocate(&part, far), []);
        assert_eq!((space.page(part.start), space.page(far), space.address(64)), (None, Some(64), Some(far)));
        assert_eq!((space.page(BLOCK_BYTES), space.page(3 * BLOCK_BYTES)), (Some(0), Some(128)));
        assert_eq!((space.bytes() / BLOCK_BYTES, space.regions().count()), (3, 3));
        // What grows there goes on in its numbers, or has others where these are not free.
        assert_eq!(space.add(far + BLOCK_BYTES..far + BLOCK_BYTES + PAGE).unwrap().first % BLOCK_PAGES, 1);
        space.remove(&(far + BLOCK_BYTES..far + BLOCK_BYTES + PAGE));
        // Beside the others again it is one with them.
        assert_eq!(space.relocate(&(far..far + BLOCK_BYTES), part.start), []);
        assert_eq!(space.regions().count(), 1);
        // Of what begins and ends within blocks of others, these stay behind.
        let moves = BLOCK_BYTES + 5 * PAGE..4 * BLOCK_BYTES - PAGE;
        let ends = [moves.start..2 * BLOCK_BYTES, 3 * BLOCK_BYTES..moves.end];
        assert_eq!(space.relocate(&moves, far), ends);
        assert_eq!((space.page(moves.start), space.page(far)), (Some(5), None));
        assert_eq!(space.address(64), Some(far + (2 * BLOCK_BYTES - moves.start)));
        // What is the end of its memory may end within a block.
        space.add(1 << 41..(1 << 41) + BLOCK_BYTES + 5 * PAGE).unwrap();
        assert_eq!(space.relocate(&(1 << 41..(1 << 41) + BLOCK_BYTES + 5 * PAGE), 1 << 42), []);
    }

    type Step = (u64, u64, Option<bool>);

    /// Against a plain list of owned addresses: any mix of adding, removing and moving gives each address one
    /// page number, no two the same, the way back agrees, and a block is one stretch of addresses. Returns how
    /// many ends of what moved there and back got new numbers.
    fn agree(steps: Vec<Step>) -> Result<u32, TestCaseError> {
        let mut space = Space::new(64);
        let mut owned = BTreeSet::new();
        let mut renumbered = 0;
        for (start, pages, add) in steps {
            let range = start * PAGE..(start + pages) * PAGE;
            match add {
                None => renumbered += move_there_and_back(&mut space, &mut owned, &range)?,
                Some(true) => {
                    for gap in space.gaps(range) {
                        if space.add(gap.clone()).is_some() {
                            owned.extend(gap.start / PAGE..gap.end / PAGE);
                        }
                    }
                }
                Some(false) => {
                    let removed: usize = space.remove(&range).iter().map(ExactSizeIterator::len).sum();
                    let before = owned.len();
                    owned.retain(|page| !range.contains(&(page * PAGE)));
                    prop_assert_eq!(removed, before - owned.len());
                }
            }
            prop_assert_eq!(space.bytes() / PAGE, owned.len() as u64);
            let in_use: BTreeSet<u32> =
                space.regions().flat_map(Region::pages).map(|page| page / BLOCK_PAGES).collect();
            let free: Vec<u32> = space.free.iter().flat_map(|(&start, &end)| start..end).collect();
            prop_assert_eq!(free, (0..64).filter(|block| !in_use.contains(block)).collect::<Vec<_>>());
            let mut numbers = BTreeSet::new();
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
        Ok(renumbered)
    }

    /// Moves a range to other addresses, which are not aligned alike, and back, a region at a time. A block
    /// may be in two regions there, with memory between them that is in another: then the first to go back
    /// cannot take it along, and has new numbers.
    fn move_there_and_back(
        space: &mut Space,
        owned: &mut BTreeSet<u64>,
        range: &Range<u64>,
    ) -> Result<u32, TestCaseError> {
        let whole = space.gaps(range.clone()).is_empty();
        let (there, before) = (range.start + (1 << 40) + PAGE, space.pages_in(range));
        let stay = space.relocate(range, there);
        if !whole {
            prop_assert_eq!(stay, vec![range.clone()]);
            return Ok(0);
        }
        let moved = |address: u64| address - range.start + there;
        for page in range.clone().step_by(PAGE as usize) {
            let stays = stay.iter().any(|range| range.contains(&page));
            prop_assert_eq!((space.page(page).is_some(), space.page(moved(page)).is_some()), (stays, !stays));
        }
        let mut renumbered = 0;
        for region in space.parts(&(there..moved(range.end))).collect::<Vec<_>>() {
            let home = |address: u64| address - there + range.start;
            for end in space.relocate(&region.range, home(region.range.start)) {
                let first = space.page(end.start).unwrap();
                let is_beyond = |(start, _): &(u64, Range<u32>)| !region.range.contains(start);
                prop_assert!(space.stretches(first / BLOCK_PAGES).iter().any(is_beyond));
                space.remove(&end);
                let end = home(end.start)..home(end.end);
                if space.add(end.clone()).is_none() {
                    owned.retain(|page| !end.contains(&(page * PAGE)));
                }
                renumbered += 1;
            }
        }
        prop_assert!(renumbered > 0 || space.pages_in(range) == before);
        Ok(renumbered)
    }

    /// Two that the property met: what lies between two regions of one block is in another.
    #[test]
    fn a_block_with_others_in_its_middle_goes_back_in_new_numbers() {
        let first = agree(vec![
            (129, 1, Some(true)),
            (8, 121, Some(true)),
            (193, 1, Some(true)),
            (19, 176, Some(true)),
            (123, 69, None),
        ]);
        let second = agree(vec![
            (204, 53, Some(true)),
            (97, 96, Some(true)),
            (210, 85, Some(true)),
            (177, 144, Some(true)),
            (193, 64, Some(false)),
            (184, 145, Some(true)),
            (204, 116, None),
        ]);
        assert_eq!((first.unwrap(), second.unwrap()), (1, 1));
    }

    proptest! {
        #[test]
        fn numbers_and_addresses_agree(
            steps in prop::collection::vec((0u64..300, 1u64..200, any::<Option<bool>>()), 1..30)
        ) {
            agree(steps)?;
        }

        /// Memory that moves by any number of pages keeps the numbers of what goes along in whole blocks, and
        /// whatever is added beside it then: no two pages have one number, the way back agrees, and a block is
        /// one stretch of addresses.
        #[test]
        fn what_moves_by_any_way_keeps_blocks_together(
            steps in prop::collection::vec((0u64..400, 1u64..200, prop_oneof![Just(None), Just(Some(0)), (1u64..600).prop_map(Some)]), 1..40)
        ) {
            let mut space = Space::new(64);
            let mut numbers: BTreeMap<u64, u32> = BTreeMap::new();
            let enter = |space: &Space, numbers: &mut BTreeMap<u64, u32>, range: Range<u64>| {
                let pages = range.step_by(PAGE as usize);
                numbers.extend(pages.filter_map(|page| Some((page, space.page(page)?))));
            };
            for (start, pages, what) in steps {
                let range = start * PAGE..(start + pages) * PAGE;
                match what {
                    None => {
                        for gap in space.gaps(range) {
                            space.add(gap.clone());
                            enter(&space, &mut numbers, gap);
                        }
                    }
                    Some(0) => {
                        space.remove(&range);
                        numbers.retain(|address, _| !range.contains(address));
                    }
                    Some(by) => {
                        let there = range.start + (pages + by) * PAGE..range.end + (pages + by) * PAGE;
                        if !space.gaps(range.clone()).is_empty() || space.has_any(&there) {
                            continue;
                        }
                        let stay = space.relocate(&range, there.start);
                        let moved = |address: u64| address - range.start + there.start;
                        let went: Vec<_> = numbers.extract_if(range.clone(), |_, _| true).collect();
                        for (address, number) in went {
                            if !stay.iter().any(|stays| stays.contains(&address)) {
                                numbers.insert(moved(address), number);
                            }
                        }
                        for end in stay {
                            space.remove(&end);
                            let end = moved(end.start)..moved(end.end);
                            space.add(end.clone());
                            enter(&space, &mut numbers, end);
                        }
                    }
                }
                prop_assert_eq!(space.bytes() / PAGE, numbers.len() as u64);
                let mut blocks: BTreeMap<u32, u64> = BTreeMap::new();
                let mut seen = BTreeSet::new();
                for (&address, &number) in &numbers {
                    prop_assert_eq!((space.page(address), space.address(number)), (Some(number), Some(address)));
                    prop_assert!(seen.insert(number));
                    let base = address.wrapping_sub(u64::from(number) * PAGE);
                    prop_assert_eq!(*blocks.entry(number / BLOCK_PAGES).or_insert(base), base);
                }
                let free: Vec<u32> = space.free.iter().flat_map(|(&start, &end)| start..end).collect();
                prop_assert_eq!(free, (0..64).filter(|block| !blocks.contains_key(block)).collect::<Vec<_>>());
            }
        }
    }
}
