//! Pages that were brought back for a child and may go again: which of them goes next.
//!
//! Nobody can see which of them the child uses. But a page that it wants soon after that went had better
//! stayed. So there are two lines: pages that went a moment before they came, and the others, which go
//! first. What is read once passes through the short second line and leaves the first alone (2Q, S3-FIFO).

use crate::numbers::Numbers;
use std::collections::VecDeque;

/// Others go first as long as they are more than this part of all.
const PART: usize = 8;

/// Pages of a child by number.
#[derive(Debug, Default)]
pub(super) struct Brought {
    /// Those that went a moment before, in the order in which they came, and the others.
    known: VecDeque<u32>,
    others: VecDeque<u32>,
    /// Those that should have gone already, before either.
    due: VecDeque<u32>,
    /// All of these, and the last that came: who waited for that must have seen it before it goes.
    noted: Numbers,
    last: Option<u32>,
    /// Pages that went lately: the last of them, and those before.
    went: [Numbers; 2],
    /// How many are among the last.
    went_last: u64,
    /// Those of which the child has waited for since.
    awaited: Numbers,
}

impl Brought {
    /// How many may go.
    pub(super) fn len(&self) -> usize {
        self.known.len() + self.others.len() + self.due.len()
    }

    /// Whether it may go.
    pub(super) fn has(&self, page: u32) -> bool {
        self.noted.has(page)
    }

    /// A page has come. False when that is known.
    pub(super) fn note(&mut self, page: u32) -> bool {
        if !self.noted.add(page) {
            return false;
        }
        let line = if self.awaited.take(page) { &mut self.known } else { &mut self.others };
        line.push_back(page);
        self.last = Some(page);
        true
    }

    /// A page that could not go has come to be one that can. False when that is known.
    pub(super) fn note_due(&mut self, page: u32) -> bool {
        let is_news = self.noted.add(page);
        if is_news {
            self.due.push_back(page);
        }
        is_news
    }

    /// The page that goes next.
    pub(super) fn next(&mut self) -> Option<u32> {
        let are_many = self.others.len() > self.len() / PART;
        let others_first = are_many && self.others.front() != self.last.as_ref();
        let mut lines = [&mut self.due, &mut self.known, &mut self.others];
        if others_first {
            lines[1..].reverse();
        }
        let page = lines.into_iter().find_map(VecDeque::pop_front)?;
        self.noted.clear(page);
        Some(page)
    }

    /// A page went. Of those that did so many are remembered, up to twice.
    pub(super) fn note_gone(&mut self, page: u32, remembered: u64) {
        if self.went_last >= remembered {
            self.went.swap(0, 1);
            self.went[0].clear_all();
            self.went_last = 0;
        }
        self.went[0].note(page);
        self.went_last += 1;
    }

    /// How many are remembered now.
    pub(super) fn went_lately(&self) -> u64 {
        self.went.iter().map(Numbers::count).sum()
    }

    /// The child waits for a page. Whether that went lately.
    pub(super) fn is_wanted_back(&mut self, page: u32) -> bool {
        let [last, before] = &mut self.went;
        let went = last.take(page) | before.take(page);
        if went {
            self.awaited.note(page);
        }
        went
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Brings a page where it is not in place, and lets others go. Whether that was so.
    fn access(brought: &mut Brought, page: u32) -> bool {
        if brought.noted.has(page) {
            return false;
        }
        brought.is_wanted_back(page);
        brought.note(page);
        while brought.len() > 64 {
            let went = brought.next().unwrap();
            brought.note_gone(went, 128);
        }
        true
    }

    #[test]
    fn what_is_read_once_leaves_alone_what_is_wanted_again_and_again() {
        let mut brought = Brought::default();
        let mut once = 1000..;
        // By the order alone each page would go before it is wanted again: 80 others come in between.
        let mut round = |brought: &mut Brought| {
            let mut waits = |page| {
                access(brought, once.next().unwrap());
                access(brought, page)
            };
            (0..40).filter(|&page| waits(page)).count()
        };
        let waits: Vec<usize> = (0..5).map(|_| round(&mut brought)).collect();
        assert_eq!(waits, [40, 40, 0, 0, 0]);
        // As others are wanted instead they make way.
        let mut round = || (500..556).filter(|&page| access(&mut brought, page)).count();
        let waits: Vec<usize> = (0..6).map(|_| round()).collect();
        assert_eq!((waits[0], waits[5]), (56, 0), "{waits:?}");
        assert!((0..40).filter(|&page| brought.noted.has(page)).count() <= 8);
    }

    #[test]
    fn each_page_stands_in_one_line_once_and_is_remembered_for_a_while() {
        let mut brought = Brought::default();
        assert!(brought.note(7) && !brought.note(7) && brought.note(8));
        assert_eq!((brought.next(), brought.next(), brought.next()), (Some(7), Some(8), None));
        assert!(brought.note(7) && brought.note_due(9) && !brought.note_due(7) && !brought.note(9));
        assert_eq!(
            (brought.len(), brought.next(), brought.next()),
            (2, Some(9), Some(7)),
            "what is due goes first"
        );
        (7..9).for_each(|page| brought.note_gone(page, 2));
        (20..22).for_each(|page| brought.note_gone(page, 2));
        assert!(brought.is_wanted_back(7) && !brought.is_wanted_back(7));
        (30..32).for_each(|page| brought.note_gone(page, 2));
        assert!(!brought.is_wanted_back(8) && brought.is_wanted_back(20));
    }
}
