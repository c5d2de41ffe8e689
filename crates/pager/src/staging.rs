//! The staging area as a ring of groups: each takes the pages of one evicted block. The oldest group is the
//! first to be given back, once all its pages are safe on the store. Which frame holds which page is kept
//! here; the memory itself is not.

use crate::space::BLOCK_PAGES;
use std::ops::Range;

/// The bookkeeping of `groups` groups of [`BLOCK_PAGES`] frames.
#[derive(Debug)]
pub struct Staging {
    /// The page in each frame, plus one; 0 for none. A page that went back keeps its frame until release.
    page: Vec<u32>,
    filled: Vec<u8>,
    /// Frames of the group whose page is not yet safe on the store.
    unwritten: Vec<u8>,
    oldest: u32,
    used: u32,
    pages: u64,
}

impl Staging {
    /// All groups empty.
    #[must_use]
    pub fn new(groups: u32) -> Self {
        Self {
            page: vec![0; (groups * BLOCK_PAGES) as usize],
            filled: vec![0; groups as usize],
            unwritten: vec![0; groups as usize],
            oldest: 0,
            used: 0,
            pages: 0,
        }
    }

    fn groups(&self) -> u32 {
        self.filled.len() as u32
    }

    /// Frames that hold memory, needed or not.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Groups in use.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Groups in use that hold nothing.
    #[cfg(test)]
    pub fn taken_for_nothing(&self) -> u32 {
        let used = (0..self.used).map(|index| (self.oldest + index) % self.groups());
        used.filter(|&group| self.filled[group as usize] == 0).count() as u32
    }

    /// Takes the next group and returns its first frame; `None` when all are in use.
    pub fn take(&mut self) -> Option<u32> {
        (self.used < self.groups()).then(|| {
            let group = (self.oldest + self.used) % self.groups();
            self.used += 1;
            group * BLOCK_PAGES
        })
    }

    /// How many groups can be taken now.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.groups() - self.used
    }

    /// The group taken last is the next again, if it stayed empty. Given back later it would pass for
    /// progress, and who waits for room would wait on.
    pub fn put_back_if_empty(&mut self, frame: u32) {
        self.used -= u32::from(self.filled[(frame / BLOCK_PAGES) as usize] == 0);
    }

    /// Keeps the group of a frame from being given back, until [`Staging::settle`].
    pub fn hold(&mut self, frame: u32) {
        self.unwritten[(frame / BLOCK_PAGES) as usize] += 1;
    }

    /// Notes that a page was moved to a frame. `unwritten`: it must be written before its frame can be
    /// given up.
    pub fn fill(&mut self, frame: u32, page: u32, unwritten: bool) {
        let group = (frame / BLOCK_PAGES) as usize;
        self.page[frame as usize] = page + 1;
        self.filled[group] += 1;
        self.unwritten[group] += u8::from(unwritten);
        self.pages += 1;
    }

    /// The page of a frame.
    #[must_use]
    pub fn page(&self, frame: u32) -> Option<u32> {
        self.page[frame as usize].checked_sub(1)
    }

    /// A page has another number now.
    pub fn rename(&mut self, frame: u32, page: u32) {
        self.page[frame as usize] = page + 1;
    }

    /// The frame's page is safe, or not wanted any more.
    pub fn settle(&mut self, frame: u32) {
        self.unwritten[(frame / BLOCK_PAGES) as usize] -= 1;
    }

    /// The frames of up to `most` oldest groups, in a row, that hold nothing unwritten. Empty when the oldest
    /// does.
    #[must_use]
    pub fn releasable(&self, most: u32) -> Range<u32> {
        let to_end = self.groups() - self.oldest;
        let count = (0..self.used.min(most).min(to_end))
            .take_while(|index| self.unwritten[(self.oldest + index) as usize] == 0)
            .count() as u32;
        self.oldest * BLOCK_PAGES..(self.oldest + count) * BLOCK_PAGES
    }

    /// Notes that these frames, as given by [`Staging::releasable`], are empty again.
    pub fn released(&mut self, frames: &Range<u32>) {
        for group in frames.start / BLOCK_PAGES..frames.end / BLOCK_PAGES {
            self.pages -= u64::from(std::mem::take(&mut self.filled[group as usize]));
            let frames = group * BLOCK_PAGES..(group + 1) * BLOCK_PAGES;
            self.page[frames.start as usize..frames.end as usize].fill(0);
            self.oldest = (self.oldest + 1) % self.groups();
            self.used -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_go_round_and_wait_for_their_pages() {
        let mut staging = Staging::new(3);
        let first = staging.take().unwrap();
        staging.fill(first + 5, 77, true);
        let second = staging.take().unwrap();
        staging.fill(second, 78, false);
        assert_eq!((staging.take(), staging.take()), (Some(128), None));
        staging.put_back_if_empty(128);
        assert!(staging.releasable(8).is_empty(), "page 77 is not safe yet");
        staging.settle(first + 5);
        assert_eq!(staging.releasable(8), 0..128);
        assert_eq!(staging.releasable(1), 0..64);
        staging.released(&(0..128));
        assert_eq!((staging.pages(), staging.used()), (0, 0));
        let taken: Vec<_> = std::iter::from_fn(|| staging.take()).collect();
        assert_eq!(taken, [128, 0, 64]);
        assert_eq!(staging.releasable(8), 128..192, "a run ends where the area does");
    }
}
