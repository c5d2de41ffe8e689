//! What a program says of its own memory, beyond what can be seen from faults.

use super::Engine;
use crate::space::BLOCK_PAGES;
use overdrive_sys::Errno;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Hints that wait at most; more are refused, not waited for.
const HINTS_MAX: usize = 256;
/// Blocks that one look moves at most, so that no fault waits long for it.
const BLOCKS_AT_ONCE: u32 = if cfg!(test) { 2 } else { 4096 };

/// How often a thread looks whether the engine has done what it waits for.
pub(super) const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// Where a program's threads leave hints and memory for the engine, which looks every few milliseconds.
#[derive(Debug)]
pub struct Hints {
    cold: Mutex<VecDeque<Range<u64>>>,
    /// What was read because it is needed soon, until the engine has heard of it.
    warm: Mutex<Option<Range<u64>>>,
    is_warm: AtomicBool,
    given: Mutex<VecDeque<Given>>,
    /// Somebody left one, and may leave more.
    used: AtomicBool,
}

/// Memory to be taken over, and what came of it.
#[derive(Debug, Clone)]
struct Given {
    range: Range<u64>,
    outcome: Arc<OnceLock<Result<(), Errno>>>,
}

impl Hints {
    fn new() -> Self {
        Self {
            cold: Mutex::new(VecDeque::with_capacity(HINTS_MAX)),
            warm: Mutex::new(None),
            is_warm: AtomicBool::new(false),
            given: Mutex::new(VecDeque::with_capacity(HINTS_MAX)),
            used: AtomicBool::new(false),
        }
    }

    /// Whether hints are to be looked for as often as may be.
    pub(super) fn are_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Has the engine take a range of private anonymous memory over, and waits until it has. The engine
    /// must be served by another thread.
    ///
    /// # Errors
    /// As [`Engine::adopt`]; ENOMEM when it has no numbers left for so many pages.
    pub fn adopt(&self, range: Range<u64>) -> Result<(), Errno> {
        self.used.store(true, Ordering::Relaxed);
        let given = Given { range, outcome: Arc::new(OnceLock::new()) };
        self.given.lock().map_err(|_| Errno::IO)?.push_back(given.clone());
        loop {
            if let Some(outcome) = given.outcome.get() {
                return *outcome;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// This range of addresses is not needed for a while: it goes before what is in use. False when there are
    /// too many hints already.
    #[must_use]
    pub fn cold(&self, range: Range<u64>) -> bool {
        self.used.store(true, Ordering::Relaxed);
        let Ok(mut cold) = self.cold.lock() else { return false };
        let has_room = cold.len() < HINTS_MAX;
        if has_room {
            cold.push_back(range);
        }
        has_room
    }

    /// This range of addresses was brought in because it is needed soon: it goes after all that is there now.
    /// One at a time: the next when [`Hints::is_heard`], so that what is brought in then does not drive this
    /// out.
    pub fn warm(&self, range: Range<u64>) {
        self.used.store(true, Ordering::Relaxed);
        let Ok(mut warm) = self.warm.lock() else { return };
        *warm = Some(range);
        self.is_warm.store(true, Ordering::Release);
    }

    /// Whether the engine has heard what is warm.
    #[must_use]
    pub fn is_heard(&self) -> bool {
        !self.is_warm.load(Ordering::Acquire)
    }

    /// What of all that was said to be cold is yet to be done.
    #[cfg(test)]
    pub(super) fn left(&self) -> Vec<Range<u64>> {
        self.cold.lock().unwrap().iter().cloned().collect()
    }

    fn next_warm(&self) -> Option<Range<u64>> {
        if self.is_heard() {
            return None;
        }
        let range = self.warm.try_lock().ok()?.take();
        self.is_warm.store(false, Ordering::Release);
        range
    }

    /// What is cold next, which stays so until it is struck off. None also when a thread of the program is at
    /// it: the engine waits for nobody.
    fn next_cold(&self) -> Option<Range<u64>> {
        self.cold.try_lock().ok()?.front().cloned()
    }

    /// It was done up to this address. False when a thread of the program is at it.
    fn strike_off_cold(&self, reached: u64) -> bool {
        let Ok(mut cold) = self.cold.try_lock() else { return false };
        match cold.front_mut() {
            Some(range) if reached < range.end => range.start = reached,
            _ => drop(cold.pop_front()),
        }
        true
    }

    /// The memory to be taken over next, which stays so until it is done.
    fn given(&self) -> Option<Given> {
        self.given.try_lock().ok()?.front().cloned()
    }

    /// False when a thread of the program is at it.
    fn strike_off(&self) -> bool {
        self.given.try_lock().is_ok_and(|mut given| given.pop_front().is_some())
    }
}

impl Engine {
    /// Where the program may leave hints from now on.
    pub fn hints(&mut self) -> Arc<Hints> {
        Arc::clone(self.hints.get_or_insert_with(|| Arc::new(Hints::new())))
    }

    /// Puts behind all others what was read because it is needed soon: as nothing is known of it but that it
    /// was not needed for long, it would be judged by that.
    pub(super) fn keep_what_is_warm(&mut self) {
        let Some(range) = self.hints.as_ref().and_then(|hints| hints.next_warm()) else { return };
        for pages in self.space.pages_in(&range) {
            for block in pages.start / BLOCK_PAGES..pages.end.div_ceil(BLOCK_PAGES) {
                self.queues.again_later(block);
            }
        }
    }

    /// Follows the hints that came.
    pub(super) fn take_hints(&mut self) {
        let Some(hints) = self.hints.clone() else { return };
        while let Some(Given { range, outcome }) = hints.given() {
            // Whoever waits for it may use the addresses for something else as soon as it is answered.
            if outcome.get().is_none() {
                let adopted = self.adopt(range.clone());
                if adopted == Err(Errno::AGAIN) {
                    break;
                }
                let whole = self.space.gaps(range).is_empty();
                // Nobody else sets it.
                let _ = outcome.set(adopted.and(if whole { Ok(()) } else { Err(Errno::NOMEM) }));
            }
            if !hints.strike_off() {
                break;
            }
        }
        let mut blocks = 0;
        while blocks < BLOCKS_AT_ONCE
            && let Some(range) = hints.next_cold()
        {
            let reached = self.cool(&range, &mut blocks);
            if !hints.strike_off_cold(reached) {
                break;
            }
        }
    }

    /// Has the blocks of a range go next, as long as `blocks` are not too many. Returns how far it came.
    fn cool(&mut self, range: &Range<u64>, blocks: &mut u32) -> u64 {
        for pages in self.space.pages_in(range) {
            for block in pages.start / BLOCK_PAGES..pages.end.div_ceil(BLOCK_PAGES) {
                // Of the others nothing can go, and what is written of them would make memory of the tables.
                if self.queues.resident_in(block) == 0 {
                    continue;
                }
                if *blocks == BLOCKS_AT_ONCE {
                    let first = pages.start.max(block * BLOCK_PAGES);
                    return self.space.address(first).unwrap_or(range.end);
                }
                *blocks += 1;
                self.queues.goes_next(block);
                // What is said to be cold goes whole.
                for page in block * BLOCK_PAGES..(block + 1) * BLOCK_PAGES {
                    self.table.take_written(page);
                }
            }
        }
        range.end
    }
}
