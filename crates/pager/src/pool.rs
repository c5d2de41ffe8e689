//! The compressed tier: evicted pages in DRAM, smaller. It stands between staging and the store in the same
//! order of eviction, so that what it gives up is what came to it long ago.
//!
//! Memory comes in chunks of 64 KiB, each cut into equal slots for pages that compress to about the same
//! size. A chunk whose pages have all gone is given back to the kernel. Slots that became free are filled
//! again before a new chunk is opened. Where that is not enough, pages are moved together: they come and go
//! in any order, and a chunk would hardly ever become empty by itself.

use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use overdrive_base::rng::Rng;
use overdrive_sys::Errno;
use overdrive_sys::chunks::Chunks;
use overdrive_sys::uffd::PAGE;
use overdrive_sys::zstd::Zstd;
use std::cell::RefCell;
use std::ops::Range;

const PAGE_BYTES: usize = PAGE as usize;
/// Pages of DRAM in a chunk; in the model of the engine as few as can be.
pub const CHUNK_PAGES: u32 = if cfg!(test) { 1 } else { 16 };
const CHUNK_BYTES: usize = CHUNK_PAGES as usize * PAGE_BYTES;
/// Slot sizes are multiples of this.
const STEP: usize = 128;
/// What does not get smaller than this is not worth its slot.
const LARGEST: usize = 21 * STEP;
const CLASSES: usize = LARGEST / STEP;
/// Before its data a slot has two lengths: of the data, and of the page without the zeroes that it ends in.
const HEADER: usize = 4;
/// Zeroes at the end of a page are left out in pieces of this size: unpacking writes long runs of one byte
/// slowly.
const ZEROES: usize = 64;
/// With so many free slots nothing has to be taken out, as long as they are for pages of the right size.
const FREE_SLOTS: u32 = 128;
/// Where a share of one in so many is free, pages are moved together even if there is room for more chunks.
const SCATTERED: u32 = 8;
/// Of so many chunks or pages picked at random the one that fits best is taken.
const PICKED: usize = 16;
/// The most slots of a chunk.
const SLOTS_MAX: u32 = (CHUNK_BYTES / STEP) as u32;
/// After failures in a row, so many pages pass between two tries, at most.
const PATIENCE_MAX: u32 = 256;

/// Where a compressed page is: the number of its chunk times 512 plus its slot.
pub type Cell = u32;

/// A chunk in use.
struct Chunk {
    class: usize,
    free: Vec<u16>,
    /// The page of each slot, plus one; 0 for none.
    owner: Box<[u32]>,
    /// How many pages had been put anywhere when the one in this slot was.
    stamp: Box<[u32]>,
    /// How many children still read each slot.
    holds: Box<[u16]>,
    /// Slots with an owner or a hold.
    live: u32,
    held: u32,
    /// Its place among the chunks in use, and among those of its class that have free slots.
    place: u32,
    listed: Option<u32>,
}

/// Whether pages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compress {
    /// No page is.
    Off,
    /// Where it pays: while pages do not get smaller, it is tried ever more rarely; and they take as much
    /// DRAM as makes faults cheaper.
    #[default]
    Auto,
    /// Every page is tried, and they take as much DRAM as they may.
    Lz4,
    /// As `Lz4`, with Zstandard: smaller pages for more time.
    Zstd,
}

impl Compress {
    /// Whether every page is tried, and all DRAM taken that may be.
    pub(crate) fn takes_all(self) -> bool {
        matches!(self, Self::Lz4 | Self::Zstd)
    }
}

/// What makes pages smaller.
enum Codec {
    Lz4(CompressTable),
    Zstd(RefCell<Zstd>),
}

impl Codec {
    fn of(compress: Compress) -> Result<Self, Errno> {
        Ok(match compress {
            Compress::Zstd => Self::Zstd(RefCell::new(Zstd::new(PAGE_BYTES)?)),
            _ => Self::Lz4(CompressTable::small()),
        })
    }

    fn compress(&mut self, page: &[u8], packed: &mut [u8]) -> Option<usize> {
        match self {
            Self::Lz4(table) => compress_into_with_table(page, packed, table).ok(),
            // What would be too large is given up early.
            Self::Zstd(zstd) => zstd.get_mut().compress(page, &mut packed[..LARGEST - HEADER]),
        }
    }

    fn decompress(&self, packed: &[u8], page: &mut [u8]) -> Option<usize> {
        match self {
            Self::Lz4(_) => decompress_into(packed, page).ok(),
            Self::Zstd(zstd) => zstd.borrow_mut().decompress(packed, page),
        }
    }
}

/// Compressed pages, by their cells.
pub struct Pool {
    memory: Chunks<CHUNK_BYTES>,
    /// Those that were ever in use: each process has its own, most of which hardly grow.
    chunks: Vec<Option<Chunk>>,
    /// Chunks in use, and not any more.
    used: Vec<u32>,
    empty: Vec<u32>,
    /// Chunks with free slots, by class, and how many these are.
    open: [Vec<u32>; CLASSES],
    free: [u32; CLASSES],
    limit: u32,
    /// A page found no room since hardly any chunk is left.
    lacks: bool,
    live: u64,
    rng: Rng,
    /// Pages put since the start.
    puts: u32,
    tries_all: bool,
    most_holds: u16,
    failures: u32,
    /// Pages to pass over before the next try.
    patience: u32,
    codec: Codec,
    scratch: Box<[u8]>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let chunk = |chunk: &Chunk| format!("{:?} {:?} {:?}", chunk.class, chunk.owner, chunk.holds);
        f.debug_struct("Pool")
            .field("chunks", &self.chunks.iter().flatten().map(chunk).collect::<Vec<_>>())
            .field("live", &self.live)
            .field("failures", &self.failures)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// Room for `pages` pages of DRAM, none of them taken yet. Without room nothing is compressed.
    ///
    /// # Errors
    /// ENOMEM when the addresses or the memory of the compressor are not to be had.
    pub fn new(pages: u64, compress: Compress) -> Result<Self, Errno> {
        let pages = if compress == Compress::Off { 0 } else { pages };
        let count = (pages / u64::from(CHUNK_PAGES)).min(u64::from(u32::MAX / SLOTS_MAX)) as u32;
        Ok(Self {
            memory: Chunks::new(count as usize)?,
            chunks: Vec::with_capacity(count as usize),
            used: Vec::new(),
            empty: Vec::new(),
            open: Default::default(),
            free: [0; CLASSES],
            limit: count,
            lacks: false,
            live: 0,
            rng: Rng::new(0),
            puts: 0,
            tries_all: compress.takes_all(),
            most_holds: u16::MAX,
            failures: 0,
            patience: 0,
            codec: Codec::of(compress)?,
            scratch: vec![0; get_maximum_output_size(PAGE_BYTES)].into(),
        })
    }

    /// The addresses it lives at.
    #[must_use]
    pub fn extent(&self) -> Range<u64> {
        self.memory.extent()
    }

    /// Pages of DRAM it takes.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.used.len() as u64 * u64::from(CHUNK_PAGES)
    }

    /// Compressed pages in it.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.live
    }

    /// The program has locked all its memory (mlockall): what the kernel has put into empty chunks goes back.
    pub fn unlock(&mut self) {
        self.memory.unlock();
        let were_in_use = self.empty.iter().map(|&number| number as usize);
        let empty = were_in_use.chain(self.chunks.len()..self.memory.count());
        empty.for_each(|number| self.memory.give_back(number));
    }

    /// From now on it takes no more than so many pages of DRAM; what is there stays until it is taken out.
    pub fn set_limit(&mut self, pages: u64) {
        self.limit = (pages / u64::from(CHUNK_PAGES)).min(self.memory.count() as u64) as u32;
        self.lacks &= self.is_short_of_chunks();
    }

    /// Whether it is so full that something should be taken out, unless moving pages together helps: it is a
    /// few chunks short of its limit, and there is hardly a free slot or none for some page.
    #[must_use]
    pub fn is_nearly_full(&self) -> bool {
        let few = FREE_SLOTS.min(self.slots() / 16);
        self.is_short_of_chunks() && (self.needs_chunks() || self.free() <= few)
    }

    fn is_short_of_chunks(&self) -> bool {
        !self.used.is_empty() && self.used() + self.limit.min(64) / 16 >= self.limit
    }

    fn needs_chunks(&self) -> bool {
        self.used() > self.limit || self.lacks
    }

    fn used(&self) -> u32 {
        self.used.len() as u32
    }

    /// Free slots, and all, of the chunks in use.
    fn free(&self) -> u32 {
        self.free.iter().sum()
    }

    fn slots(&self) -> u32 {
        self.live as u32 + self.free()
    }

    /// The class with the most memory in free slots, of those that could do with a chunk less.
    fn most_scattered(&self) -> Option<usize> {
        let classes = (0..CLASSES).filter(|&class| self.free[class] >= slots_of(class));
        classes.max_by_key(|&class| self.free[class] as usize * slot_bytes(class))
    }

    /// Makes a chunk empty by moving its pages to free slots of others, where chunks are needed or much is
    /// free. Gives the pages moved and their new cells.
    pub fn move_together(&mut self) -> Vec<(u32, Cell)> {
        if !self.needs_chunks() && self.free() < self.slots().div_ceil(SCATTERED) {
            return Vec::new();
        }
        let Some(source) = self.most_scattered().and_then(|class| self.sparsest(class)) else {
            return Vec::new();
        };
        self.unlist(source);
        let owners = self.chunks[source as usize].as_ref().map_or(&[][..], |chunk| &chunk.owner);
        let pages: Vec<_> = (source * SLOTS_MAX..).zip(owners.iter().copied()).collect();
        let pages = pages.into_iter().filter_map(|(cell, owner)| Some((cell, owner.checked_sub(1)?)));
        pages.map_while(|(cell, page)| Some((page, self.move_to_another(cell, page)?))).collect()
    }

    /// The chunk with the fewest pages of some with free slots, of those that no child reads.
    fn sparsest(&mut self, class: usize) -> Option<u32> {
        let picked = (0..PICKED).filter_map(|_| pick(&mut self.rng, &self.open[class]));
        let live = |&number: &u32| self.chunks[number as usize].as_ref().filter(|chunk| chunk.held == 0);
        picked.filter_map(|number| Some((live(&number)?.live, number))).min().map(|(_, number)| number)
    }

    /// Moves what is in a cell to a free slot of another chunk. The last of a chunk closes it.
    fn move_to_another(&mut self, cell: Cell, page: u32) -> Option<Cell> {
        let (class, stamp) = {
            let chunk = self.chunk(cell)?;
            (chunk.class, chunk.stamp[(cell % SLOTS_MAX) as usize])
        };
        let to = self.take_slot(class, page, stamp)?;
        let content = &mut self.scratch[..slot_bytes(class)];
        let (number, bytes) = slot(cell, class);
        content.copy_from_slice(&self.memory.chunk(number)[bytes]);
        let (number, bytes) = slot(to, class);
        self.memory.chunk_mut(number)[bytes].copy_from_slice(content);
        self.chunks[(cell / SLOTS_MAX) as usize].as_mut()?.owner[(cell % SLOTS_MAX) as usize] = 0;
        self.vacate(cell, false);
        Some(to)
    }

    /// Whether to try with this page: always, unless the ones before did not compress. Then ever more rarely.
    pub fn is_worth_a_try(&mut self) -> bool {
        if self.limit == 0 {
            return false;
        }
        if self.patience > 0 && !self.tries_all {
            self.patience -= 1;
            return false;
        }
        true
    }

    /// Compresses a page and keeps it. None when it does not get small enough, or when there is no room.
    pub fn put(&mut self, page: u32, content: &[u8]) -> Option<Cell> {
        let front = without_zeroes(content);
        let packed = self.codec.compress(front, &mut self.scratch);
        // What hardly gets smaller is not worth unpacking.
        let packed = packed.filter(|length| length + length / 8 < front.len());
        let length = packed.unwrap_or(front.len());
        if length + HEADER > LARGEST {
            self.failures += 1;
            self.patience =
                1u32.checked_shl(self.failures).map_or(PATIENCE_MAX, |wait| wait.min(PATIENCE_MAX));
            return None;
        };
        self.failures = 0;
        let class = (length + HEADER).div_ceil(STEP) - 1;
        let cell = self.take_slot(class, page, self.puts.wrapping_add(1))?;
        self.puts = self.puts.wrapping_add(1);
        let data = if packed.is_some() { &self.scratch } else { front };
        let (number, bytes) = slot(cell, class);
        let memory = &mut self.memory.chunk_mut(number)[bytes];
        memory[..2].copy_from_slice(&(length as u16).to_ne_bytes());
        memory[2..HEADER].copy_from_slice(&(front.len() as u16).to_ne_bytes());
        memory[HEADER..HEADER + length].copy_from_slice(&data[..length]);
        Some(cell)
    }

    /// A free slot for a page of this class, which is its owner from now on.
    fn take_slot(&mut self, class: usize, page: u32, stamp: u32) -> Option<Cell> {
        let number = match self.open[class].last() {
            Some(&number) => number,
            None => self.open_chunk(class)?,
        };
        let chunk = self.chunks[number as usize].as_mut()?;
        let slot = chunk.free.pop()?;
        chunk.owner[usize::from(slot)] = page + 1;
        chunk.stamp[usize::from(slot)] = stamp;
        chunk.live += 1;
        self.live += 1;
        self.free[class] -= 1;
        if chunk.free.is_empty() {
            chunk.listed = None;
            self.open[class].pop();
        }
        Some(number * SLOTS_MAX + u32::from(slot))
    }

    fn open_chunk(&mut self, class: usize) -> Option<u32> {
        if self.used() >= self.limit {
            self.lacks = true;
            return None;
        }
        let number = self.empty.pop().or_else(|| self.add_chunk())?;
        let slots = slots_of(class) as usize;
        self.free[class] += slots as u32;
        self.chunks[number as usize] = Some(Chunk {
            class,
            free: (0..slots as u16).rev().collect(),
            owner: vec![0; slots].into(),
            stamp: vec![0; slots].into(),
            holds: vec![0; slots].into(),
            live: 0,
            held: 0,
            place: self.used(),
            listed: Some(self.open[class].len() as u32),
        });
        self.open[class].push(number);
        self.used.push(number);
        Some(number)
    }

    /// One that was never in use.
    fn add_chunk(&mut self) -> Option<u32> {
        let number = self.chunks.len();
        (number < self.memory.count()).then(|| {
            self.chunks.push(None);
            number as u32
        })
    }

    fn chunk(&self, cell: Cell) -> Option<&Chunk> {
        self.chunks[(cell / SLOTS_MAX) as usize].as_ref()
    }

    /// Brings the page in a cell back as it was. None when what is there is damaged.
    pub fn get<'a>(&self, cell: Cell, page: &'a mut [u8; PAGE_BYTES]) -> Option<&'a [u8]> {
        let (number, bytes) = slot(cell, self.chunk(cell)?.class);
        let memory = &self.memory.chunk(number)[bytes];
        let length_at = |at: usize| usize::from(u16::from_ne_bytes([memory[at], memory[at + 1]]));
        let data = memory[HEADER..].get(..length_at(0))?;
        let (front, zeroes) = page.split_at_mut_checked(length_at(2))?;
        if data.len() == front.len() {
            front.copy_from_slice(data);
        } else if self.codec.decompress(data, front) != Some(front.len()) {
            return None;
        }
        zeroes.fill(0);
        Some(page)
    }

    /// How many pages were put since the one in this cell was.
    #[must_use]
    pub fn age(&self, cell: Cell) -> u32 {
        let stamp = self.chunk(cell).map_or(self.puts, |chunk| chunk.stamp[(cell % SLOTS_MAX) as usize]);
        self.puts.wrapping_sub(stamp)
    }

    /// Its owner needs a page no longer.
    pub fn give_up(&mut self, cell: Cell) {
        let slot = (cell % SLOTS_MAX) as usize;
        if let Some(chunk) = &mut self.chunks[(cell / SLOTS_MAX) as usize] {
            debug_assert!(chunk.owner[slot] != 0, "cell {cell} is free already");
            chunk.owner[slot] = 0;
            if chunk.holds[slot] == 0 {
                self.vacate(cell, true);
            }
        }
    }

    /// One more child reads a page: false when there are too many of them.
    pub fn hold(&mut self, cell: Cell) -> bool {
        let slot = (cell % SLOTS_MAX) as usize;
        let Some(chunk) = &mut self.chunks[(cell / SLOTS_MAX) as usize] else { return false };
        if chunk.holds[slot] == self.most_holds {
            return false;
        }
        chunk.holds[slot] += 1;
        chunk.held += 1;
        true
    }

    /// From now on so many children at most may read one page.
    #[cfg(test)]
    pub(crate) fn set_most_holds(&mut self, most: u16) {
        self.most_holds = most;
    }

    /// A child reads it no longer.
    pub fn release_hold(&mut self, cell: Cell) {
        let slot = (cell % SLOTS_MAX) as usize;
        if let Some(chunk) = &mut self.chunks[(cell / SLOTS_MAX) as usize] {
            chunk.holds[slot] -= 1;
            chunk.held -= 1;
            if chunk.holds[slot] == 0 && chunk.owner[slot] == 0 {
                self.vacate(cell, true);
            }
        }
    }

    /// `lists`: pages may be put into it again.
    fn vacate(&mut self, cell: Cell, lists: bool) {
        let number = cell / SLOTS_MAX;
        let Some(chunk) = &mut self.chunks[number as usize] else { return };
        chunk.free.push((cell % SLOTS_MAX) as u16);
        chunk.live -= 1;
        self.live -= 1;
        let (class, is_empty) = (chunk.class, chunk.live == 0);
        self.free[class] += 1;
        if lists && chunk.listed.is_none() && !is_empty {
            chunk.listed = Some(self.open[class].len() as u32);
            self.open[class].push(number);
        }
        if is_empty {
            self.close(number);
        }
    }

    /// Gives an empty chunk back.
    fn close(&mut self, number: u32) {
        self.unlist(number);
        let Some(chunk) = self.chunks[number as usize].take() else { return };
        self.used.swap_remove(chunk.place as usize);
        if let Some(&moved) = self.used.get(chunk.place as usize)
            && let Some(moved) = &mut self.chunks[moved as usize]
        {
            moved.place = chunk.place;
        }
        self.memory.give_back(number as usize);
        self.empty.push(number);
        self.free[chunk.class] -= chunk.owner.len() as u32;
        self.lacks &= self.is_short_of_chunks();
    }

    /// No more pages are put into its free slots.
    fn unlist(&mut self, number: u32) {
        let Some(chunk) = &mut self.chunks[number as usize] else { return };
        let (Some(place), class) = (chunk.listed.take(), chunk.class) else { return };
        self.open[class].swap_remove(place as usize);
        if let Some(&moved) = self.open[class].get(place as usize)
            && let Some(moved) = &mut self.chunks[moved as usize]
        {
            moved.listed = Some(place);
        }
    }

    /// A page has another number now.
    pub fn rename(&mut self, cell: Cell, page: u32) {
        if let Some(chunk) = &mut self.chunks[(cell / SLOTS_MAX) as usize] {
            chunk.owner[(cell % SLOTS_MAX) as usize] = page + 1;
        }
    }

    /// The owner of a cell.
    #[must_use]
    pub fn owner(&self, cell: Cell) -> Option<u32> {
        self.chunk(cell)?.owner[(cell % SLOTS_MAX) as usize].checked_sub(1)
    }

    /// Whether a child reads this cell, or another of its chunk.
    #[must_use]
    pub fn is_read_by_child(&self, cell: Cell) -> bool {
        self.chunks[(cell / SLOTS_MAX) as usize].as_ref().is_some_and(|chunk| chunk.held > 0)
    }

    /// The cell that was filled longest ago of some that no child reads, and its page.
    pub fn long_ago(&mut self) -> Option<(Cell, u32)> {
        let picked: Vec<_> = (0..PICKED).filter_map(|_| self.any()).collect();
        picked.into_iter().max_by_key(|&(cell, _)| self.age(cell))
    }

    /// Any cell of a chunk that no child reads, and its page.
    fn any(&mut self) -> Option<(Cell, u32)> {
        let number = pick(&mut self.rng, &self.used)?;
        let chunk = self.chunks[number as usize].as_ref().filter(|chunk| chunk.held == 0)?;
        let slots = chunk.owner.len();
        let first = self.rng.below(slots as u64) as usize;
        let owned = (first..first + slots).map(|slot| slot % slots).find(|&slot| chunk.owner[slot] != 0)?;
        Some((number * SLOTS_MAX + owned as u32, chunk.owner[owned] - 1))
    }
}

fn pick(rng: &mut Rng, numbers: &[u32]) -> Option<u32> {
    let index = if numbers.is_empty() { 0 } else { rng.below(numbers.len() as u64) };
    numbers.get(index as usize).copied()
}

/// Bytes of a slot.
fn slot_bytes(class: usize) -> usize {
    (class + 1) * STEP
}

/// Slots of a chunk.
fn slots_of(class: usize) -> u32 {
    (CHUNK_BYTES / slot_bytes(class)) as u32
}

/// The chunk of a cell, and its bytes there.
fn slot(cell: Cell, class: usize) -> (usize, Range<usize>) {
    let at = (cell % SLOTS_MAX) as usize * slot_bytes(class);
    ((cell / SLOTS_MAX) as usize, at..at + slot_bytes(class))
}

/// A page up to the last of its pieces that is more than zeroes.
fn without_zeroes(page: &[u8]) -> &[u8] {
    let (pieces, _) = page.as_chunks::<ZEROES>();
    let front = pieces.iter().rposition(|piece| *piece != [0; ZEROES]).map_or(0, |last| last + 1);
    &page[..front * ZEROES]
}

#[cfg(test)]
mod tests {
    use super::*;
    use overdrive_base::rng::Rng;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A page of which `random` bytes do not compress, and the rest is zeroes or, where the seed is odd, words
    /// that are all the same.
    fn page(seed: u64, random: usize) -> [u8; PAGE_BYTES] {
        let (mut page, mut rng) = ([0; PAGE_BYTES], Rng::new(seed));
        page[..random].fill_with(|| rng.below(256) as u8);
        if seed % 2 == 1 {
            page[random..].iter_mut().zip(b"overdrive".iter().cycle()).for_each(|(byte, &is)| *byte = is);
        }
        page
    }

    fn content(pool: &Pool, cell: Cell) -> [u8; PAGE_BYTES] {
        let mut page = [0; PAGE_BYTES];
        pool.get(cell, &mut page).unwrap();
        page
    }

    #[test]
    fn what_does_not_compress_is_tried_ever_more_rarely() {
        let mut pool = Pool::new(16, Compress::Auto).unwrap();
        let tried = (0..10_000).filter(|&number| {
            let tries = pool.is_worth_a_try();
            tries.then(|| assert_eq!(pool.put(1, &page(number, PAGE_BYTES)), None));
            tries
        });
        assert!((20..60).contains(&tried.count()));
        while !pool.is_worth_a_try() {}
        assert!(pool.put(1, &page(1, 100)).is_some());
        assert!(pool.is_worth_a_try() && pool.is_worth_a_try(), "one success is enough");
    }

    #[test]
    fn zeroes_at_the_end_take_no_room() {
        let slot_bytes = |pool: &Pool, cell| (pool.chunk(cell).unwrap().class + 1) * STEP;
        for compress in [Compress::Lz4, Compress::Zstd] {
            let mut pool = Pool::new(64, compress).unwrap();
            for random in [0, 1, 63, 64, 65, 1000, LARGEST - HEADER - ZEROES] {
                let cell = pool.put(1, &page(2, random)).unwrap();
                assert_eq!(content(&pool, cell), page(2, random));
                let most = (random.next_multiple_of(ZEROES) + HEADER).next_multiple_of(STEP);
                assert!(slot_bytes(&pool, cell) <= most, "{compress:?}, {random} random bytes");
            }
            // Compressed, but for the zeroes.
            let mut mixed = page(3, 700);
            mixed[4000..].fill(0);
            let cell = pool.put(2, &mixed).unwrap();
            assert_eq!(content(&pool, cell), mixed);
            assert!(slot_bytes(&pool, cell) < 1000);
            // A single byte at the very end is content.
            let mut last = [0; PAGE_BYTES];
            last[PAGE_BYTES - 1] = 1;
            let cell = pool.put(3, &last).unwrap();
            assert_eq!(content(&pool, cell), last);
            assert_eq!(pool.put(4, &page(2, LARGEST - HEADER + 1)), None);
        }
    }

    #[test]
    fn lengths_that_cannot_be_are_damage() {
        let mut pool = Pool::new(1, Compress::Lz4).unwrap();
        let cell = pool.put(1, &page(3, 100)).unwrap();
        for (at, length) in [(0, u16::MAX), (2, u16::MAX), (2, PAGE_BYTES as u16 + 1), (2, 0), (2, 64)] {
            let header: [u8; HEADER] = pool.memory.chunk(0)[..HEADER].try_into().unwrap();
            pool.memory.chunk_mut(0)[at..at + 2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(pool.get(cell, &mut [0; PAGE_BYTES]), None, "{length} at {at}");
            pool.memory.chunk_mut(0)[..HEADER].copy_from_slice(&header);
        }
        assert_eq!(content(&pool, cell), page(3, 100));
    }

    #[test]
    fn without_room_nothing_is_kept() {
        let mut pool = Pool::new(0, Compress::Auto).unwrap();
        assert!(!pool.is_worth_a_try() && pool.put(1, &page(1, 10)).is_none() && pool.extent().is_empty());
        let mut pool = Pool::new(2, Compress::Auto).unwrap();
        pool.set_limit(1);
        assert!(pool.put(1, &page(1, 2000)).is_some());
        assert!(
            pool.is_nearly_full() && pool.put(2, &page(2, 900)).is_none(),
            "another class, another chunk"
        );
        assert_eq!((pool.pages(), pool.live()), (1, 1));
    }

    /// All cells with an owner.
    fn owned(pool: &Pool) -> BTreeMap<u32, Cell> {
        let numbers = pool.used.iter().flat_map(|&number| (number * SLOTS_MAX..).take(SLOTS_MAX as usize));
        let slots = |cell: Cell| pool.chunk(cell).map_or(0, |chunk| chunk.owner.len());
        let cells = numbers.filter(|&cell| ((cell % SLOTS_MAX) as usize) < slots(cell));
        cells.filter_map(|cell| Some((pool.owner(cell)?, cell))).collect()
    }

    /// Until nothing is to be done; the pages that were taken out.
    fn make_room(pool: &mut Pool) -> u32 {
        let mut taken_out = 0;
        for _ in 0..10_000 {
            let pages = pool.pages();
            if !pool.move_together().is_empty() {
                assert_eq!(pool.pages(), pages - u64::from(CHUNK_PAGES), "each time a chunk is emptied");
                continue;
            }
            let leaves = if pool.is_nearly_full() { pool.long_ago() } else { None };
            let Some((cell, _)) = leaves else { return taken_out };
            pool.give_up(cell);
            taken_out += 1;
        }
        panic!("there is always more to do")
    }

    #[test]
    fn with_less_room_no_more_is_taken_out_than_has_to_be_and_that_came_long_ago() {
        let mut pool = Pool::new(400, Compress::Lz4).unwrap();
        let sizes = |number: u32| if number.is_multiple_of(3) { 1000 } else { 500 };
        let there =
            (0..1400).filter(|&number| pool.put(number, &page(u64::from(number), sizes(number))).is_some());
        assert_eq!((there.count(), make_room(&mut pool)), (1400, 0));
        let full = pool.pages();
        // Wherever they are: half of the pages are no longer needed, and there is room for a quarter.
        owned(&pool)
            .into_iter()
            .filter(|(number, _)| number % 2 == 1)
            .for_each(|(_, cell)| pool.give_up(cell));
        assert_eq!((make_room(&mut pool), pool.live()), (0, 700));
        assert!(pool.pages() < full * 5 / 8, "{full} pages of memory, then {}", pool.pages());
        pool.set_limit(full / 4);
        let (taken_out, left) = (make_room(&mut pool), owned(&pool));
        assert!(pool.pages() <= full / 4 && (330..400).contains(&taken_out), "{taken_out} were taken out");
        assert!(
            left.iter()
                .all(|(&number, &cell)| content(&pool, cell) == page(u64::from(number), sizes(number)))
        );
        let old = left.keys().filter(|&&number| number < 700).count();
        assert!(old < left.len() / 4, "{old} of {} are of the older half", left.len());
    }

    #[test]
    fn chunks_that_children_read_are_not_emptied() {
        let mut pool = Pool::new(64, Compress::Lz4).unwrap();
        let cells: Vec<_> = (0..99).map(|number| pool.put(number, &page(2, 1000)).unwrap()).collect();
        let (stay, go): (Vec<_>, Vec<_>) = cells.iter().copied().partition(|cell| cell % SLOTS_MAX == 0);
        assert!(stay.len() == 33 && stay.iter().all(|&cell| pool.hold(cell)));
        go.into_iter().for_each(|cell| pool.give_up(cell));
        assert!((0..100).all(|_| pool.move_together().is_empty()), "one page in each, but read");
        stay.iter().for_each(|&cell| pool.release_hold(cell));
        assert_eq!((make_room(&mut pool), pool.live(), pool.pages()), (0, 33, 12));
    }

    #[test]
    fn a_page_that_finds_no_chunk_has_one_emptied() {
        let mut pool = Pool::new(40, Compress::Lz4).unwrap();
        let cells: Vec<_> = (0..160).map(|number| pool.put(number, &page(2, 900)).unwrap()).collect();
        cells.iter().step_by(10).for_each(|&cell| pool.give_up(cell));
        assert!(pool.move_together().is_empty() && !pool.is_nearly_full());
        assert_eq!(pool.put(160, &page(2, 2000)), None);
        assert!(pool.is_nearly_full() && pool.move_together().len() == 3);
        assert!(pool.put(160, &page(2, 2000)).is_some());
        make_room(&mut pool);
        assert!(!pool.needs_chunks() && !pool.is_short_of_chunks());
    }

    #[test]
    fn what_a_child_reads_stays_and_is_not_taken_out() {
        let mut pool = Pool::new(4, Compress::Auto).unwrap();
        let cell = pool.put(7, &page(7, 500)).unwrap();
        assert!(pool.hold(cell));
        assert_eq!(pool.long_ago(), None);
        pool.give_up(cell);
        assert_eq!(content(&pool, cell), page(7, 500));
        pool.release_hold(cell);
        assert_eq!((pool.live(), pool.pages()), (0, 0));
    }

    proptest! {
        /// Against a map of contents: any mix of putting, taking out, renaming and moving keeps every page, and
        /// memory is given back with the last.
        #[test]
        fn pages_come_back_as_they_were(
            steps in prop::collection::vec((0u8..5, 0usize..40, any::<u64>()), 1..200),
            compress in prop::sample::select(vec![Compress::Auto, Compress::Zstd]),
        ) {
            let mut pool = Pool::new(24, compress).unwrap();
            let mut there: BTreeMap<Cell, (u32, usize, u64)> = BTreeMap::new();
            let mut next = 0;
            for (what, index, seed) in steps {
                let picked = there.keys().nth(index % there.len().max(1)).copied();
                match (what, picked) {
                    (0 | 1, _) => {
                        next += 1;
                        if let Some(cell) = pool.put(next, &page(seed, index * 80)) {
                            prop_assert!(there.insert(cell, (next, index * 80, seed)).is_none());
                        }
                    }
                    (2, Some(cell)) => {
                        there.remove(&cell);
                        pool.give_up(cell);
                    }
                    (4, _) => {
                        for (page, cell) in pool.move_together() {
                            let was = there.iter().find(|(_, it)| it.0 == page).map(|(&cell, _)| cell);
                            let it = there.remove(&was.unwrap()).unwrap();
                            prop_assert!(there.insert(cell, it).is_none());
                        }
                    }
                    (3, Some(cell)) => {
                        next += 1;
                        pool.rename(cell, next);
                        there.entry(cell).and_modify(|it| it.0 = next);
                    }
                    _ => {}
                }
                prop_assert_eq!(pool.live(), there.len() as u64);
                prop_assert!(pool.pages() <= 24);
                for (&cell, &(owner, random, seed)) in &there {
                    prop_assert_eq!(pool.owner(cell), Some(owner));
                    prop_assert_eq!(content(&pool, cell), page(seed, random));
                }
            }
            let mut rounds = 0;
            while pool.live() > 0 && rounds < 1000 {
                pool.long_ago().into_iter().for_each(|(cell, _)| pool.give_up(cell));
                rounds += 1;
            }
            prop_assert_eq!((pool.live(), pool.pages()), (0, 0));
        }
    }
}
