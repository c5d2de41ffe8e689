//! Looking for pages that a child has to itself, of which nobody has told: old ones that its parent has
//! others for by now, and what stands in memory that is new to the engine. Its helper sees them
//! ([`super::helpers`]).
//!
//! What stands in memory that the child gives up may be gone the next moment, and what stands there then is
//! not what it was. So nothing is believed of that memory until it was given up for sure.

use super::Engine;
use super::child::Child;
use super::helpers::Relief;
use super::message::GIVING_UP;
use crate::numbers::Numbers;
use crate::platform::Instant;
use crate::space::BLOCK_PAGES;
use crate::table::State;
use overdrive_sys::helper::{AT_ONCE, Stretch};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// How often a helper looks for pages that its child has to itself: less and less when it finds none.
const LOOKS_EVERY: Duration = Duration::from_millis(10);
const LOOKS_AT_LEAST: Duration = Duration::from_secs(1);
/// So many runs of pages that the parent made its own may be waiting for that. What children have of them is
/// not counted until then.
const UNSHARED_MAX: usize = 16;
/// Blocks that are passed over for that in one go.
const PASSED_OVER: u32 = 4096;
/// Stretches of memory that a child was told to go on with giving up, at most. More are taken for one.
const GIVEN_MOST: usize = 64;

/// Looking for pages that a child has to itself.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// What comes first, as there is something to be found.
    first: VecDeque<First>,
    /// The block that comes next.
    next: u32,
    /// When it was looked last, and how long that is to be ago.
    looked: Option<Instant>,
    every: Duration,
    /// Pages that were seen and have not gone yet, and whether some have since it began anew.
    seen: Numbers,
    found: bool,
    /// Pages that did not go when they were asked for, and are to be copied for that once.
    copied: Numbers,
    /// Stretches of pages that the helper looks at.
    looking: Vec<Range<u32>>,
    /// Memory that the child was told to go on with giving up, and until when it may do so: what stands there
    /// is nobody's.
    given: Vec<(Range<u64>, Instant)>,
}

/// Pages that are looked at first.
#[derive(Debug)]
struct First {
    pages: Range<u32>,
    /// What is shared is copied. Else nothing is known of what stands there.
    copied: bool,
}

impl First {
    /// Whether these follow, and are no more than one look with them.
    fn goes_on_with(&self, pages: &Range<u32>) -> bool {
        self.pages.end == pages.start && pages.end - self.pages.start <= BLOCK_PAGES
    }
}

impl Search {
    /// Pages of a block that are to be looked at first.
    fn next_first(&mut self) -> Option<First> {
        let First { pages, copied } = self.first.front_mut()?;
        let end = pages.end.min((pages.start / BLOCK_PAGES + 1) * BLOCK_PAGES);
        let next = First { pages: pages.start..end, copied: *copied };
        pages.start = end;
        if pages.start == pages.end {
            self.first.pop_front();
        }
        Some(next)
    }

    fn look_first(&mut self, pages: Range<u32>, copied: bool) {
        match self.first.back_mut() {
            Some(last) if last.copied && copied && last.goes_on_with(&pages) => last.pages.end = pages.end,
            _ => self.first.push_back(First { pages, copied }),
        }
        self.look_soon();
    }

    /// There may be something to be found.
    pub(super) fn look_soon(&mut self) {
        self.every = self.every.min(LOOKS_EVERY);
    }

    /// The next of so many blocks.
    fn pass_on(&mut self, blocks: u32) -> u32 {
        if self.next >= blocks {
            let again = if self.found { LOOKS_EVERY } else { (self.every * 2).min(LOOKS_AT_LEAST) };
            (self.next, self.found, self.every) = (0, false, again.max(LOOKS_EVERY));
        }
        self.next += 1;
        self.next - 1
    }

    pub(super) fn is_at_it(&self) -> bool {
        !self.looking.is_empty()
    }

    /// The helper is gone.
    pub(super) fn give_up(&mut self) {
        self.looking.clear();
    }

    /// A page that was asked for went.
    pub(super) fn note_went(&mut self, page: u32) {
        self.found |= self.seen.take(page);
        self.copied.clear(page);
    }

    /// A page was seen, and may go.
    pub(super) fn note_seen(&mut self, page: u32) {
        self.seen.note(page);
    }

    /// It may not any more.
    pub(super) fn forget(&mut self, page: u32) {
        self.seen.clear(page);
    }

    /// How many pages were seen and may go.
    pub(super) fn seen(&self) -> u64 {
        self.seen.count()
    }

    /// A page that was asked for stays. If it was shared, a copy can go. False when that was tried before: it
    /// is pinned or locked then.
    pub(super) fn can_be_copied(&mut self, page: u32) -> bool {
        self.forget(page);
        let is_news = self.copied.add(page);
        if is_news {
            self.look_first(page..page + 1, true);
            self.looked = None;
        }
        is_news
    }

    /// Whether that was tried.
    pub(super) fn is_copied(&self, page: u32) -> bool {
        self.copied.has(page)
    }

    /// The child forked: what it has in place it shares from now on.
    pub(super) fn note_shared(&mut self) {
        self.copied.clear_all();
    }

    /// The child was told to go on with giving up memory, and will have done it some time later.
    pub(super) fn note_giving_up(&mut self, range: Range<u64>) {
        let until = Instant::now() + GIVING_UP;
        let is_more = self.given.len() >= GIVEN_MOST;
        match self.given.last_mut() {
            Some((last, last_until)) if is_more || last.end == range.start || range.end == last.start => {
                *last = last.start.min(range.start)..last.end.max(range.end);
                *last_until = until;
            }
            _ => self.given.push((range, until)),
        }
    }

    fn is_given_up(&self, address: u64) -> bool {
        self.given.iter().any(|(range, _)| range.contains(&address))
    }

    /// Nothing is looked for.
    #[cfg(test)]
    pub(super) fn never_look(&mut self) {
        (self.looked, self.every) = (Some(Instant::now()), Duration::MAX);
    }

    /// The state in a word.
    #[cfg(test)]
    pub(super) fn digest(&self) -> String {
        let Self { first, next, looked: _, every, seen, found, copied, looking, given } = self;
        let now = Instant::now();
        let given: Vec<_> = given.iter().map(|(range, until)| (range, until.duration_since(now))).collect();
        format!("{:?}", (first, next, every, seen, found, copied, looking, given))
    }
}

impl Child {
    /// What a helper has seen: pages that its child has to itself.
    pub(super) fn note_own(&mut self, own: &[u64]) {
        for (pages, own) in std::mem::take(&mut self.relief.search.looking).into_iter().zip(own) {
            for page in pages.clone().zip(0..).filter(|(_, bit)| own >> bit & 1 == 1).map(|(page, _)| page) {
                if self.is_new(page) {
                    self.table.set(page, State::Resident, None);
                }
                if self.knows(page)
                    && self.table.state(page) == State::Resident
                    && self.relief.note_seen(page)
                {
                    self.pages += 1;
                }
            }
        }
    }

    /// Whether a page that stands is one of which nothing is known.
    fn is_new(&self, page: u32) -> bool {
        let is_new = self.knows(page) && self.table.state(page) == State::Empty;
        is_new && self.space.address(page).is_some_and(|address| !self.relief.search.is_given_up(address))
    }

    /// The parent makes so many pages at this address its own.
    pub(super) fn look_first(&mut self, address: u64, count: u32) {
        let known = self.space.page(address).filter(|&page| self.knows(page));
        known.into_iter().for_each(|page| self.relief.search.look_first(page..page + count, true));
    }

    /// Nothing is known of what stands in a range.
    pub(super) fn look_at_new(&mut self, range: &Range<u64>) {
        let pieces = self.space.pages_in(range);
        pieces.into_iter().for_each(|pages| self.relief.search.look_first(pages, false));
    }

    /// What it was told to give up it has given up by now, and what stands there may be in use again.
    fn note_given_up(&mut self) {
        let now = Instant::now();
        let given = std::mem::take(&mut self.relief.search.given);
        let (still, over) = given.into_iter().partition(|&(_, until)| now < until);
        self.relief.search.given = still;
        over.iter().for_each(|(range, _)| self.look_at_new(range));
    }

    /// Whether there are pages to look at first.
    pub(super) fn has_to_look(&self) -> bool {
        !self.relief.search.first.is_empty()
    }

    /// Whether it may be looked first for more pages that the parent makes its own.
    pub(super) fn can_look_at_more(&self) -> bool {
        self.relief.search.first.len() < UNSHARED_MAX
    }

    /// Where to look next, and the pages there. Most blocks have nothing in place.
    fn next_to_look_at(&mut self) -> Vec<(Stretch, Range<u32>)> {
        let blocks = self.table.len().div_ceil(BLOCK_PAGES);
        let (search, mut found) = (&mut self.relief.search, Vec::new());
        for _ in 0..PASSED_OVER.min(blocks) {
            if found.len() == AT_ONCE {
                break;
            }
            let (pages, copied, is_new) = match search.next_first() {
                Some(First { pages, copied }) => (pages, copied, !copied),
                None => {
                    let block = search.pass_on(blocks);
                    (block * BLOCK_PAGES..(block + 1) * BLOCK_PAGES, false, false)
                }
            };
            let block = pages.start / BLOCK_PAGES;
            if is_new || self.table.used_in(block) & !self.table.stored_in(block) != 0 {
                let stretch = self.space.next_stretch(pages, BLOCK_PAGES);
                found.extend(
                    stretch.map(|(address, pages)| {
                        (Stretch { address, pages: pages.len() as u32, copied }, pages)
                    }),
                );
            }
        }
        found
    }
}

impl Engine {
    /// Has a child's helper look for pages that the child has to itself by now, if it is time.
    pub(super) fn look_for_own(&mut self, child: &mut Child) {
        let Relief { helper, asked, sent, search, .. } = &mut child.relief;
        let is_free = asked.is_empty() && sent.is_empty() && !search.is_at_it();
        let is_time = search.looked.is_none_or(|looked| looked.elapsed() >= search.every);
        if helper.is_none() || !is_free || !is_time || !self.can_write_for_children() {
            return;
        }
        search.looked = Some(Instant::now());
        child.note_given_up();
        let (stretches, pages): (Vec<_>, Vec<_>) = child.next_to_look_at().into_iter().unzip();
        if !stretches.is_empty() && self.tell_helper(child, |helper| helper.look(&stretches)) {
            child.relief.search.looking = pages;
        }
    }
}
