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
            if self.table.state(page) == State::Stored {
                let room = self.held() + 1 < self.limits.total && self.has_spare_landing();
                if !room || !self.start_load(page..page + 1, Purpose::Again) {
                    return;
                }
            }
        }
    }

    /// Puts pages in place that were read so, from the one that was expected on: some come earlier or later
    /// than the time before. Gives the number of the first behind `next` that is not in place.
    fn put_on_the_way(&mut self, expected: u32, next: u32) -> u32 {
        let (mut put, mut number) = (0, expected);
        while number.wrapping_sub(next).cast_signed() < WINDOW.cast_signed() {
            let Some(page) = self.history.page(number).filter(|&page| self.is_known(page)) else { break };
            let has_landed = self.landed_again(page);
            if let Some(slot) = has_landed.filter(|_| put < PUT_MAX) {
                self.landed.retain(|&landed| landed != slot);
                self.install(slot);
                self.history.note(page);
                put += 1;
            } else if number.wrapping_sub(next).cast_signed() >= 0
                && self.table.state(page) != State::Resident
            {
                break;
            }
            number = number.wrapping_add(1);
        }
        if number.wrapping_sub(next).cast_signed() > 0 { number } else { next }
    }

    /// The slot of a page that was read so and waits to be used.
    fn landed_again(&self, page: u32) -> Option<u32> {
        let slot = self.table.place(page).filter(|_| self.table.state(page) == State::Loading)?;
        let load = self.loads[slot as usize].as_ref()?;
        (load.landed && load.purpose == Purpose::Again).then_some(slot)
    }
}
