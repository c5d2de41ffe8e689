//! Changes of the program's memory in the order in which they happened, which is not the order in which they
//! are told.
//!
//! A thread that unmaps or moves memory tells of it after it has let go of the kernel's lock. Before it comes
//! to that, another may have moved memory to where the first one's was, and have told so. Taken as they come,
//! these two messages would put the newcomer over what is believed to be there still, and then give the
//! newcomer up. And each move is told twice: as a move, and then as the unmapping of where the memory was,
//! where others may have settled meanwhile.
//!
//! What sorts this out: memory arrives only where there is none. And while a thread is between doing and
//! telling, the kernel refuses to put pages in place or take them: once it does not, all has been told.

use crate::platform::{Mappings, Message, PageMap, Userfault, pause};
use crate::ranges::{overlap, within, without};
use crate::space::Space;
use overdrive_sys::Errno;
use overdrive_sys::mappings::Anonymous;
use overdrive_sys::uffd::PAGE;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// Messages read in one go.
const AT_ONCE: usize = 16;
/// Who has yet to tell was put off its processor, perhaps by this very thread, and comes to it as soon as it
/// has one again. Until then nothing is read: who has moved memory is held as long as its second message is
/// not read, and could move it on after that.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_micros(50);
/// How often it is waited at most.
const PAUSES: u32 = if cfg!(test) { 8 } else { 100_000 };
/// How often it is looked, before each pause, whether all is told: who was told to go on needs a moment to.
const LOOKS: u32 = if cfg!(test) { 1 } else { 50 };

/// What is known of changes beyond what was done about them.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Read, and nothing done about it yet.
    told: VecDeque<Message>,
    faults: Vec<Message>,
    /// Moves that are about to be done: from where.
    moving: Vec<Range<u64>>,
    /// From where memory was moved, as far as that may yet be told as an unmapping.
    echoes: Vec<Range<u64>>,
    /// Where it came, as long as what was there before may not have been told.
    came: Vec<Range<u64>>,
    /// Memory that was registered, but not entered: its end will be told all the same.
    unentered: Vec<Range<u64>>,
    /// Faults wait for a thread that is between doing and telling.
    pub(super) untold: bool,
}

impl Changes {
    pub(super) fn note_moved(&mut self, from: Range<u64>, to: Range<u64>) {
        self.note_known(&from);
        self.echoes.push(from);
        self.came.push(to);
    }

    /// Memory was registered, but could not be entered.
    pub(super) fn note_unentered(&mut self, range: Range<u64>) {
        self.note_known(&range);
        self.unentered.push(range);
    }

    /// What is here is known from now on, or known to be gone.
    pub(super) fn note_known(&mut self, range: &Range<u64>) {
        if self.has_unentered(range) {
            let ranges = std::mem::take(&mut self.unentered).into_iter();
            self.unentered = ranges.flat_map(|other| without(other, std::slice::from_ref(range))).collect();
        }
    }

    /// All that was done has been told.
    pub(super) fn note_all_told(&mut self) {
        self.echoes.clear();
        self.came.clear();
    }

    /// Whether an unmapping is the second message of a move, which says nothing new.
    fn take_echo(&mut self, range: &Range<u64>) -> bool {
        let echo = self.echoes.iter().position(|echo| echo == range);
        echo.map(|echo| self.echoes.swap_remove(echo)).is_some()
    }

    /// The first message that tells how something left `target`. Who is bringing memory there is not done as
    /// long as its second message is not read: what was told before that is about what was there before.
    fn take_leaving(&mut self, target: &Range<u64>, all_told: bool) -> Option<Message> {
        let leaves = |message: &Message| match message {
            Message::Unmap(range) => overlap(range, target).is_some() && !self.echoes.contains(range),
            // What goes to where memory is yet to leave goes later.
            Message::Remap { from, to, length } => {
                overlap(&(*from..from + length), target).is_some()
                    && !self.moving.iter().any(|moving| overlap(moving, &(*to..to + length)).is_some())
            }
            _ => false,
        };
        let is_second =
            |message: &Message| matches!(message, Message::Unmap(range) if self.moving.last() == Some(range));
        let before = self.told.iter().position(is_second).filter(|_| !all_told).unwrap_or(self.told.len());
        let index = self.told.iter().take(before).position(leaves)?;
        self.told.remove(index)
    }

    fn has_unentered(&self, range: &Range<u64>) -> bool {
        self.unentered.iter().any(|other| overlap(other, range).is_some())
    }

    fn is_coming_to(&self, range: &Range<u64>) -> bool {
        let comes = |message: &Message| match message {
            Message::Remap { to, length, .. } => overlap(&(*to..to + length), range).is_some(),
            _ => false,
        };
        self.told.iter().any(comes)
    }
}

/// Memory whose changes are followed: the program's, or a child's.
pub(super) trait Followed {
    fn changes(&mut self) -> &mut Changes;
    fn userfault(&self) -> &Userfault;
    fn space(&self) -> &Space;
    /// Any address that is never under the pager.
    fn nowhere(&self) -> u64;

    /// Does what a message asks for.
    ///
    /// # Errors
    /// The memory cannot be followed any further.
    fn message(&mut self, message: Message) -> Result<(), Errno>;

    /// What is mapped there now. None where that cannot be seen.
    fn mappings(&self) -> Option<&Mappings>;

    /// Which of its pages hold anything. None where that cannot be seen.
    fn page_map(&self) -> Option<&PageMap>;

    /// Memory is about to come under the pager.
    fn announce(&self) {}

    /// A range is registered from now on, and may hold something. False when there are no numbers left for
    /// it.
    fn enter(&mut self, range: &Range<u64>) -> bool;

    /// What is in a range is gone. Nothing of it need be known.
    fn leave(&mut self, range: &Range<u64>);

    /// Whoever waits in a range that is no longer there, for its page or for room for it, finds that out.
    fn wake_all(&self, range: &Range<u64>) {
        let _ = self.userfault().wake(range.start, range.end - range.start);
    }

    /// Reads what the kernel tells and does it, faults last: answering one before a fork that was read with
    /// it would put a page into the parent that the child is then believed to have. True when there was
    /// something.
    ///
    /// # Errors
    /// As [`Followed::message`].
    fn read_messages(&mut self) -> Result<bool, Errno> {
        let moved = !self.changes().echoes.is_empty() || !self.changes().came.is_empty();
        if moved && self.is_all_told() {
            self.changes().note_all_told();
        }
        let mut any = false;
        loop {
            let count = self.read_some()?;
            any |= count > 0;
            while let Some(message) = self.changes().told.pop_front() {
                self.message(message)?;
            }
            if count < AT_ONCE {
                break;
            }
        }
        let mut faults = std::mem::take(&mut self.changes().faults);
        faults.drain(..).try_for_each(|fault| self.message(fault))?;
        self.changes().faults = faults;
        Ok(any)
    }

    fn read_some(&mut self) -> Result<usize, Errno> {
        let (mut told, mut faults) = {
            let changes = self.changes();
            (std::mem::take(&mut changes.told), std::mem::take(&mut changes.faults))
        };
        let outcome = self.userfault().read_messages(AT_ONCE, |message| match message {
            Message::Fault { .. } => faults.push(message),
            _ => told.push_back(message),
        });
        let changes = self.changes();
        (changes.told, changes.faults) = (told, faults);
        outcome
    }

    /// Whether nobody is between a change and telling of it, or between telling and going on: then what was
    /// just seen of memory is how it is, and a page that is not there has not moved elsewhere.
    fn is_all_told(&self) -> bool {
        let nowhere = self.nowhere();
        self.userfault().write_protect(nowhere..nowhere + PAGE, false) != Err(Errno::AGAIN)
    }

    /// Before memory from `from` arrives at `target`: sees to it that what was there has left in the books
    /// too, waiting for the message that tells how.
    ///
    /// # Errors
    /// As [`Followed::message`].
    fn vacate(&mut self, from: &Range<u64>, target: &Range<u64>) -> Result<(), Errno> {
        self.changes().moving.push(from.clone());
        let mut pauses = 0;
        while self.may_be_taken(target) && pauses < PAUSES {
            let all_told = self.is_all_told();
            if let Some(message) = self.changes().take_leaving(target, all_told) {
                self.message(message)?;
            } else if all_told {
                break;
            } else {
                pause(if pauses == 0 { FIRST_PAUSE } else { PAUSE });
                pauses += 1;
                self.read_some()?;
            }
        }
        self.changes().moving.pop();
        // It left in a way that is not told.
        self.forget(target);
        Ok(())
    }

    /// What is in a range is gone, whether it was entered or not.
    fn forget(&mut self, range: &Range<u64>) {
        self.changes().note_known(range);
        self.leave(range);
    }

    fn may_be_taken(&mut self, target: &Range<u64>) -> bool {
        self.space().has_any(target) || self.changes().has_unentered(target)
    }

    /// A range was unmapped.
    ///
    /// # Errors
    /// As [`Followed::message`].
    fn unmapped(&mut self, range: &Range<u64>) -> Result<(), Errno> {
        if !self.changes().take_echo(range) {
            let stays = self.what_stays(range)?;
            without(range.clone(), &stays).iter().for_each(|piece| self.forget(piece));
        }
        Ok(())
    }

    /// What of a range came there only after it had left in the way that is told now. Memory of which
    /// nothing was known (it had grown in place and was not touched since) makes room for others unseen.
    ///
    /// That memory is there does not tell whose it is: other memory may have grown over it. A page that
    /// stands where one of the newcomer's stood does. Where it has none, the newcomer stays if what is told
    /// to be gone was larger and known.
    ///
    /// # Errors
    /// As [`Followed::message`].
    fn what_stays(&mut self, range: &Range<u64>) -> Result<Vec<Range<u64>>, Errno> {
        let came: Vec<_> = self.changes().came.iter().filter_map(|came| overlap(came, range)).collect();
        if came.is_empty() {
            return Ok(came);
        }
        for _ in 0..PAUSES {
            if (0..LOOKS).any(|_| self.is_all_told()) {
                break;
            }
            pause(PAUSE);
            self.read_some()?;
        }
        let was_larger = without(range.clone(), &came).iter().any(|rest| self.space().has_any(rest));
        // Refused for now would not mean that it is gone.
        let gone = [Err(Errno::NOENT), Err(Errno::INVAL), Err(Errno::SRCH)];
        let is_there = |piece: &Range<u64>| {
            let is_mapped = !gone.contains(&self.userfault().write_protect(piece.clone(), false));
            is_mapped && self.stands(piece).unwrap_or(was_larger)
        };
        let there: Vec<_> = came.into_iter().filter(is_there).collect();
        Ok(there.into_iter().filter(|piece| !self.changes().is_coming_to(piece)).collect())
    }

    /// Puts ranges of which nothing is under the pager there, in order of address: those that came there, and
    /// the first errno of those that did not.
    fn adopt_gaps(&mut self, gaps: &[Range<u64>]) -> (Vec<Range<u64>>, Result<(), Errno>) {
        let (mut registered, mut outcome) = (Vec::new(), Ok(()));
        self.announce();
        for gap in gaps {
            // Else it would be registered and could not be entered.
            if !self.is_all_told() {
                outcome = outcome.and(Err(Errno::AGAIN));
                break;
            }
            self.changes().note_all_told();
            match self.userfault().take_over(gap.clone()) {
                Ok(()) => registered.push(gap.clone()),
                Err(errno) => outcome = outcome.and(Err(errno)),
            }
        }
        // Registering passes over holes, and what is mapped there later is not registered: only what is there
        // and registered may be entered. While a message waits to be read this is refused, so that memory
        // whose move is not known yet is not taken for new. What is left out is found again.
        let mut there = Vec::new();
        let ends = registered.first().zip(registered.last());
        let all = ends.map_or(0..0, |(first, last)| first.start..last.end);
        let each = |mapping: Anonymous| there.extend(within(&mapping.range, &registered));
        let listed = self.mappings().ok_or(Errno::NOENT).and_then(|it| it.for_each_anonymous(all, each));
        if let Err(errno) = listed {
            return (Vec::new(), Err(errno));
        }
        let mut entered = Vec::new();
        for piece in there {
            // Of what grew while it was listed a part may be known by now. What is entered twice would have
            // two numbers, and its content be found under one of them only.
            for rest in self.space().gaps(piece) {
                match self.userfault().write_protect(rest.clone(), false) {
                    Ok(()) => entered.extend(self.enter_registered(&rest).then_some(rest)),
                    Err(Errno::AGAIN) => {
                        self.changes().note_unentered(rest);
                        outcome = outcome.and(Err(Errno::AGAIN));
                    }
                    Err(_) => {}
                }
            }
        }
        (entered, outcome)
    }

    /// Enters a range that is registered already. False when there are no numbers left for it.
    fn enter_registered(&mut self, range: &Range<u64>) -> bool {
        self.changes().note_all_told();
        self.changes().note_known(range);
        let is_entered = self.enter(range);
        if !is_entered {
            let _ = self.userfault().unregister(range.clone());
        }
        is_entered
    }

    /// Whether pages of a range that are believed in place are. None when there are no such, or nobody can
    /// tell.
    fn stands(&self, range: &Range<u64>) -> Option<bool>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_message_of_a_move_counts_for_nothing_once() {
        let mut changes = Changes::default();
        changes.note_moved(10..20, 40..50);
        assert!(!changes.take_echo(&(10..15)), "a part of it is somebody else's");
        assert!(changes.take_echo(&(10..20)));
        assert!(!changes.take_echo(&(10..20)));
    }

    #[test]
    fn who_left_is_found_among_what_was_told() {
        let mut changes = Changes::default();
        changes.note_moved(10..20, 90..99);
        changes.moving.push(60..70);
        changes.told.extend([
            Message::Unmap(10..20),
            Message::Remap { from: 10, to: 65, length: 5 },
            Message::Unmap(30..40),
            Message::Remap { from: 12, to: 80, length: 8 },
        ]);
        let found = changes.take_leaving(&(15..18), false);
        assert!(matches!(found, Some(Message::Remap { to: 80, .. })), "{found:?}");
        assert!(
            changes.take_leaving(&(15..18), false).is_none(),
            "an echo, and what goes to where memory leaves"
        );
        assert!(changes.is_coming_to(&(69..90)) && !changes.is_coming_to(&(70..90)));
        assert_eq!(changes.told.len(), 3);
    }

    #[test]
    fn whoever_brings_memory_may_move_it_on_once_it_is_told_that_it_is_done() {
        let mut changes = Changes::default();
        changes.moving.push(60..70);
        changes.told.extend([Message::Unmap(60..70), Message::Unmap(10..20)]);
        assert!(changes.take_leaving(&(10..20), false).is_none(), "it may be what has just come");
        assert!(changes.take_leaving(&(10..20), true).is_some());
    }

    #[test]
    fn what_could_not_be_entered_is_remembered_until_it_is_known() {
        let mut changes = Changes::default();
        changes.note_unentered(10..20);
        changes.note_unentered(15..30);
        changes.note_known(&(12..22));
        assert_eq!(changes.unentered, [10..12, 22..30]);
        assert!(changes.has_unentered(&(0..11)) && !changes.has_unentered(&(12..22)));
        changes.note_moved(0..100, 200..300);
        assert!(changes.unentered.is_empty());
    }
}
