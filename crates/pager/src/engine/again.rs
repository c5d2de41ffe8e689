//! Reading ahead of threads that want pages in the order of the time before, where no address tells it.

use super::load::REMEMBERED;
use super::{Engine, Purpose};
use crate::table::State;

/// Pages put in place behind one that was wanted, at most: whoever waits for another page waits for these
/// too.
const PUT_MAX: u32 = 16;
/// How far ahead is read, in wants: so many for each page on the trail, and at most.
const WINDOW_FOR_ONE: u32 = 4;
const WINDOW: u32 = 96;

impl Engine {
    /// A thread wants a page that is on no walk. If pages are wanted in the order of before, those that came
    /// next then are read, and what was read so is put in place.
    pub(super) fn follow(&mut self, page: u32, thread: u32) {
        let careful = self.history.in_vain > REMEMBERED / 2;
        let Some(followed) = self.history.follow(thread, page, careful) else { return };
        let window = (u32::from(followed.proof) * WINDOW_FOR_ONE).min(WINDOW);
        let next = self.put_on_the_way(followed.expected, followed.next);
        self.history.expect(&followed, next);
        for number in (0..window).map(|ahead| next.wrapping_add(ahead)) {
            let Some(page) = self.history.page(number).filter(|&page| self.is_known(page)) else { return };
            if self.table.state(page) == State::Stored && !self.read_one_ahead(page, Purpose::Again) {
                return;
            }
        }
    }

    /// Puts pages in place that were read so, from the one that was expected on: some come earlier or later
    /// than the time before. Gives the number of the first behind `next` that is not in place.
    fn put_on_the_way(&mut self, expected: u32, next: u32) -> u32 {
        let behind = next.wrapping_sub(expected).cast_signed().max(0);
        let (mut put, mut in_place) = (0, 0);
        for ahead in -behind..WINDOW.cast_signed() {
            let number = next.wrapping_add_signed(ahead);
            let Some(page) = self.history.page(number).filter(|&page| self.is_known(page)) else { break };
            let landed = self.landed_ahead(page, |purpose| purpose == Purpose::Again);
            if let Some(slot) = landed.filter(|_| put < PUT_MAX) {
                self.install_landed(slot);
                self.history.note(page);
                put += 1;
            } else if ahead >= 0 && self.table.state(page) != State::Resident {
                break;
            }
            in_place = (ahead + 1).max(0);
        }
        next.wrapping_add_signed(in_place)
    }
}
