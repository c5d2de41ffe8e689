//! What a thread that forks and its child have to know of the engine.

use super::hints::LOOK_AGAIN;
use std::sync::atomic::{AtomicBool, Ordering};

/// So many times a thread looks whether all was taken over, at most: an engine looks every few milliseconds.
const LOOKS: u32 = 500;

/// In memory of the process's own: a child has it as it was when the child's memory was copied.
#[derive(Debug)]
pub struct AtFork {
    has_taken_over: AtomicBool,
    leaves_new: AtomicBool,
    is_all_wanted: AtomicBool,
}

impl AtFork {
    /// Before there is an engine.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "for statics")]
    pub const fn new() -> Self {
        let [has_taken_over, leaves_new, is_all_wanted] = [const { AtomicBool::new(false) }; 3];
        Self { has_taken_over, leaves_new, is_all_wanted }
    }

    /// Whether memory was ever taken over: a child that is made then needs this engine.
    #[must_use]
    pub fn has_taken_over(&self) -> bool {
        self.has_taken_over.load(Ordering::Relaxed)
    }

    /// Waits until no new memory is left to the kernel. Of that, a child would keep what its parent has
    /// replaced, and nobody would see it. To be called by a thread of the engine's process; not for ever.
    pub fn take_all(&self) {
        if self.leaves_new.load(Ordering::Relaxed) {
            self.is_all_wanted.store(true, Ordering::Relaxed);
            (0..LOOKS).take_while(|_| self.leaves_new.load(Ordering::Relaxed)).for_each(|_| {
                std::thread::sleep(LOOK_AGAIN);
            });
        }
    }

    /// Before the first memory is taken over.
    pub(super) fn announce(&self) {
        self.has_taken_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_all_wanted(&self) -> bool {
        self.is_all_wanted.load(Ordering::Relaxed)
    }

    pub(super) fn note_left(&self, leaves_new: bool) {
        if !leaves_new {
            self.is_all_wanted.store(false, Ordering::Relaxed);
        }
        self.leaves_new.store(leaves_new, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_forks_waits_until_nothing_is_left() {
        static AT_FORK: AtFork = AtFork::new();
        AT_FORK.take_all();
        assert!(!AT_FORK.is_all_wanted(), "nothing was left");
        AT_FORK.note_left(true);
        std::thread::scope(|scope| {
            let forks = scope.spawn(|| AT_FORK.take_all());
            while !AT_FORK.is_all_wanted() {
                std::thread::yield_now();
            }
            AT_FORK.note_left(false);
            forks.join().unwrap();
        });
        assert!(!AT_FORK.is_all_wanted() && !AT_FORK.leaves_new.load(Ordering::Relaxed));
    }
}
