//! Memory under an engine, as a slice.

use crate::control::{HintError, pages_of, unpin};
use crate::engine::{Engine, Running};
use overdrive_pager::ranges::without;
use overdrive_sys::Errno;
use overdrive_sys::pageable::{Pageable, Plain};
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

/// What cannot be done with a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RegionError {
    /// There is no memory of this size.
    #[error("a region of {count} values of {size} bytes: {errno}")]
    New {
        /// How many values.
        count: usize,
        /// How large each is.
        size: usize,
        /// What the kernel said; ENOMEM also when the engine's regions would be larger than it was told.
        errno: Errno,
    },
    /// The range cannot be kept in place: more than half of the budget, or of RLIMIT_MEMLOCK.
    #[error("pinning {bytes} bytes: {errno}")]
    Pin {
        /// How much.
        bytes: u64,
        /// What the kernel said; mostly ENOMEM.
        errno: Errno,
    },
}

/// Ranges of addresses that are pinned, as long as there is the memory.
type Pins = Mutex<Option<Vec<Range<u64>>>>;

/// Memory under an engine: a slice of numbers, zero at first, larger than DRAM if need be.
///
/// A child made by fork does not have it. Ranges in its methods are of values, as in a slice, and mean the
/// whole pages (4 KiB) that these touch.
#[derive(Debug)]
pub struct Region<T: Plain> {
    // Given back in this order: the engine hears of the memory's end.
    memory: Pageable<T>,
    pins: Arc<Pins>,
    engine: Arc<Running>,
}

impl<T: Plain> Region<T> {
    pub(crate) fn new(engine: &Engine, count: usize) -> Result<Self, RegionError> {
        let refused = |errno| RegionError::New { count, size: size_of::<T>(), errno };
        let memory = Pageable::new(count).map_err(refused)?;
        let engine = Arc::clone(&engine.running);
        engine.control.hints.adopt(memory.extent()).map_err(refused)?;
        Ok(Self { memory, pins: Arc::new(Mutex::new(Some(Vec::new()))), engine })
    }

    /// Brings a range into DRAM and keeps it there as long as what is returned lives. Pins may overlap.
    ///
    /// # Errors
    /// More than half of the budget would be pinned, or more than RLIMIT_MEMLOCK.
    ///
    /// # Panics
    /// When the range is not within the region.
    pub fn pin(&self, range: Range<usize>) -> Result<Pin, RegionError> {
        let pages = self.pages(range);
        let bytes = pages.end - pages.start;
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let pinned = pins.as_deref().unwrap_or_default();
        self.engine.control.pin(&pages, pinned).map_err(|errno| RegionError::Pin { bytes, errno })?;
        if let Some(pins) = pins.as_mut() {
            pins.push(pages.clone());
        }
        Ok(Pin { pins: Arc::clone(&self.pins), pages })
    }

    /// The range is needed soon: it is read while the program goes on, and leaves DRAM only after what is
    /// there by then.
    ///
    /// # Errors
    /// Too many hints wait already.
    ///
    /// # Panics
    /// When the range is not within the region.
    pub fn will_need(&self, range: Range<usize>) -> Result<(), HintError> {
        self.engine.control.will_need(self.pages(range))
    }

    /// The range is not needed for a while: it leaves DRAM before what is in use. Its content stays.
    ///
    /// # Errors
    /// Too many hints wait already.
    ///
    /// # Panics
    /// When the range is not within the region.
    pub fn cold(&self, range: Range<usize>) -> Result<(), HintError> {
        self.engine.control.cold(self.pages(range))
    }

    /// The engine that it is under.
    #[must_use]
    pub fn engine(&self) -> Engine {
        Engine { running: Arc::clone(&self.engine) }
    }

    fn pages(&self, range: Range<usize>) -> Range<u64> {
        let bytes = size_of_val(&self.memory[range.clone()]);
        pages_of(self.memory.extent().start + (range.start * size_of::<T>()) as u64, bytes as u64)
    }
}

impl<T: Plain> Deref for Region<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.memory
    }
}

impl<T: Plain> DerefMut for Region<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.memory
    }
}

impl<T: Plain> Drop for Region<T> {
    fn drop(&mut self) {
        // Pins that outlive the memory must not meet what is mapped there next.
        *self.pins.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Keeps a range of a region in DRAM while it lives. It does not keep the region.
#[derive(Debug)]
#[must_use = "the range is pinned as long as this lives"]
pub struct Pin {
    pins: Arc<Pins>,
    pages: Range<u64>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pins) = pins.as_mut() else { return };
        if let Some(index) = pins.iter().position(|pages| *pages == self.pages) {
            pins.swap_remove(index);
        }
        for pages in without(self.pages.clone(), pins) {
            // What is mapped can be unlocked.
            let _ = unpin(&pages);
        }
    }
}
