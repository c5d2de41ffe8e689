//! Who may come in while more is held than there is room for. That is nobody's fault who waits for a page: a
//! child needs tables, or has ended and what it shared has to go, or the program took memory that is not
//! under the pager. If all waited until it is made good, they would for tens of milliseconds. So one page may
//! come for every few that went, and what is held gets less all the time.

/// Pages that have to go for one that comes.
const PRICE: u64 = 2;
/// What went is good for fewer pages than this: it says little of what goes now.
const MOST: u64 = 64;

/// How much may be held until less is, in pages.
#[derive(Debug, Default)]
pub(crate) struct Ration {
    ceiling: u64,
    /// So many too many may be held for the page that is served now.
    pub(crate) excess: u64,
}

impl Ration {
    /// So much is held, and so much may be; others have come although it was too much (`all_may`) if room
    /// cannot be made.
    pub(crate) fn note(&mut self, held: u64, total: u64, all_may: bool) {
        let tolerated = if all_may { self.ceiling.max(held) } else { self.ceiling };
        self.ceiling = if held < total { total } else { tolerated.clamp(total, held + MOST) };
    }

    /// Whether one more page may come where so much is held.
    pub(crate) fn take(&mut self, held: u64) -> bool {
        let may = held + PRICE <= self.ceiling;
        self.ceiling -= u64::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_every_two_that_go_one_may_come() {
        let mut ration = Ration::default();
        ration.note(100, 100, false);
        ration.note(100, 90, false);
        assert!(!ration.take(100), "nothing went yet");
        ration.note(98, 90, false);
        assert!(ration.take(98) && !ration.take(98));
        // It came, and then two others went.
        ration.note(99, 90, false);
        assert!(!ration.take(99));
        ration.note(97, 90, false);
        assert!(ration.take(97) && !ration.take(97));
        ration.note(89, 90, false);
        ration.note(92, 90, false);
        assert!(!ration.take(92), "there was room meanwhile");
    }

    #[test]
    fn what_came_on_top_because_room_could_not_be_made_goes_first() {
        let mut ration = Ration::default();
        ration.note(90, 90, false);
        ration.note(1000, 90, false);
        ration.note(998, 90, false);
        assert!(!ration.take(998), "that was not allowed");
        ration.note(1000, 90, true);
        ration.note(500, 90, false);
        assert_eq!((0..100).filter(|_| ration.take(500)).count() as u64, MOST - PRICE + 1);
    }
}
