//! Pages by which the kernel tells that a thread has ended: they stay in place as long as it lives.
//!
//! A thread that ends cannot wait for a page any more, so that the kernel's word would be lost, and who
//! joins the thread would wait for ever. Which pages these are shows when they are moved: then they go back
//! at once. For one that ended in that moment the agent does what the kernel could not.

use super::Engine;
use super::agent::Errand;
use crate::platform::{Instant, ThreadWord, ThreadWords};
use overdrive_sys::uffd::PAGE;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often it is found out which threads have ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The words of threads that were found.
#[derive(Debug)]
pub(super) struct KeptWords {
    /// None where the C library has no such words: then nobody waits for them.
    layout: Option<ThreadWords>,
    /// By address, with the thread.
    words: BTreeMap<u64, u32>,
    looked: Instant,
}

impl KeptWords {
    pub(super) fn none() -> Self {
        Self { layout: ThreadWords::of_this_library(), words: BTreeMap::new(), looked: Instant::now() }
    }

    #[cfg(test)]
    pub(super) fn addresses(&self) -> Vec<u64> {
        self.words.keys().copied().collect()
    }

    /// How many bytes from `address` on, of at most `length`, have no page that stays.
    pub(super) fn free_bytes(&self, address: u64, length: u64) -> u64 {
        let first = self.words.range(address..address + length).next();
        first.map_or(length, |(&word, _)| (word & !(PAGE - 1)) - address)
    }
}

impl Engine {
    /// Whether a page that was just moved from `address` to a frame must stand there, which is remembered.
    pub(super) fn must_stand(&mut self, address: u64, frame: u32) -> bool {
        let Some(layout) = &self.kept_words.layout else { return false };
        let mut must = false;
        for word in layout.on_page(self.frames.page(frame), address) {
            self.kept_words.words.insert(word.address, word.thread);
            must = true;
        }
        must
    }

    /// Lets pages go whose threads have ended.
    pub(super) fn look_at_threads(&mut self) {
        if self.kept_words.words.is_empty() || self.kept_words.looked.elapsed() < LOOK_EVERY {
            return;
        }
        self.kept_words.looked = Instant::now();
        let (Some(layout), Some(agent)) = (&self.kept_words.layout, self.agent.as_mut()) else { return };
        self.kept_words.words.retain(|&address, &mut thread| {
            let word = ThreadWord { address, thread };
            // An errand that finds no room is left again later.
            !layout.has_ended(word) || !agent.send(&Errand::TellEnd(word))
        });
    }
}
