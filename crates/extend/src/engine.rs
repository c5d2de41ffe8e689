//! The engine in this process: started, asked for regions, and ended with the last of them.

use crate::control::{Control, Counters};
use crate::region::{Region, RegionError};
use overdrive_pager::engine::{Config, Engine as Pager, EngineError, WRITES_PER_DAY_MIN};
use overdrive_pager::pool::Compress;
use overdrive_pager::seal::Seal;
use overdrive_pager::stats::Stats;
use overdrive_sys::file::create_unnamed;
use overdrive_sys::pageable::Plain;
use overdrive_sys::uffd::Forks;
use overdrive_sys::{Errno, signals};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;

/// About what a wake-up on another, idle processor costs in a virtual machine.
const SPIN: Duration = Duration::from_micros(60);
const MEMORY_MAX: u64 = 64 << 30;

/// What an engine may use, and how it keeps cold pages.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// A directory on an SSD, on a file system with direct I/O.
    pub folder: PathBuf,
    /// DRAM that all regions together may take, at least 20 MiB. Tables come on top: a few bytes for each
    /// page.
    pub dram_bytes: u64,
    /// How much of the SSD may be used, at least 1 MiB.
    pub store_bytes: u64,
    /// The most memory that all regions together may have; 64 GiB by default.
    pub memory_bytes_max: u64,
    /// Whether cold pages are kept compressed in DRAM before they go to the SSD; by default where it pays.
    pub compress: Compress,
    /// Whether what is written to the SSD is encrypted, with a key that ends with the engine and lies in
    /// locked memory (two pages of it); not unless told.
    pub encrypt: bool,
    /// The most that is written to the SSD in any 24 hours, at least 1 GiB; what needs more waits. No limit
    /// unless told.
    pub writes_per_day_bytes: Option<u64>,
}

impl Options {
    /// These three, and the defaults for the rest.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>, dram_bytes: u64, store_bytes: u64) -> Self {
        Self {
            folder: folder.into(),
            dram_bytes,
            store_bytes,
            memory_bytes_max: MEMORY_MAX,
            compress: Compress::Auto,
            encrypt: false,
            writes_per_day_bytes: None,
        }
    }
}

/// Why no engine was started.
#[derive(Debug, Error)]
pub enum StartError {
    /// The store cannot be opened.
    #[error("store in {}: {source}", folder.display())]
    Store {
        /// Where it should have been.
        folder: PathBuf,
        /// Why not.
        source: Errno,
    },
    /// The kernel or the options do not allow it.
    #[error(transparent)]
    Pager(#[from] EngineError),
    /// The key for the encryption cannot be made, or cannot be kept in locked memory.
    #[error("a key that stays in memory: {0}")]
    Key(Errno),
    /// No thread could be started for it.
    #[error("starting a thread: {0}")]
    Thread(io::Error),
}

/// Holds regions within a budget. Clones are the same engine; it ends with the last clone and region.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) running: Arc<Running>,
}

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) control: Control,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Aborts the process when it is dropped: without the engine its regions would be zeroes.
struct EndsWithEngine;

impl Drop for EndsWithEngine {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl Engine {
    /// Starts an engine, without regions at first.
    ///
    /// # Errors
    /// [`StartError`] names what is missing.
    pub fn start(options: Options) -> Result<Self, StartError> {
        check_writes(options.writes_per_day_bytes)?;
        let seal = options.encrypt.then(Seal::with_new_key).transpose().map_err(StartError::Key)?;
        let store = create_unnamed(&options.folder, options.store_bytes)
            .map_err(|source| StartError::Store { folder: options.folder, source })?;
        let mut pager = Pager::new(Config {
            budget_bytes: options.dram_bytes,
            store,
            parts: None,
            // Regions are not in children.
            forks: Forks::LeftOut,
            opened: None,
            store_bytes: options.store_bytes,
            managed_bytes_max: options.memory_bytes_max,
            seed: RandomState::new().hash_one(()),
            spin: SPIN,
            stats: Stats::default(),
            compress: options.compress,
            seal,
            store_faults: None,
            writes_per_day_bytes: options.writes_per_day_bytes,
            at_fork: None,
            notify: None,
        })?;
        let control = Control::new(pager.stats(), pager.hints());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let serve = move || {
            signals::block_all();
            let ends = EndsWithEngine;
            // Whatever ended it before it was asked to, by an error or a panic.
            if pager.serve(&stopped).is_ok() {
                std::mem::forget(ends);
            }
        };
        let thread = std::thread::Builder::new().name("overmem".to_owned()).spawn(serve);
        let thread = Mutex::new(Some(thread.map_err(StartError::Thread)?));
        Ok(Self { running: Arc::new(Running { control, stop, thread }) })
    }

    /// New memory under this engine: `count` values, zero.
    ///
    /// # Errors
    /// [`RegionError`] says why not.
    pub fn region<T: Plain>(&self, count: usize) -> Result<Region<T>, RegionError> {
        Region::new(self, count)
    }

    /// The counters as they stand, of all regions together.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.running.control.counters()
    }
}

/// As `overdrive extend` demands it too.
///
/// # Errors
/// Less than a program can go on with.
pub fn check_writes(per_day_bytes: Option<u64>) -> Result<(), EngineError> {
    match per_day_bytes {
        Some(given_bytes) if given_bytes < WRITES_PER_DAY_MIN => Err(EngineError::TooSmall {
            what: "what may be written to the SSD in a day",
            given_bytes,
            wanted_bytes: WRITES_PER_DAY_MIN,
        }),
        _ => Ok(()),
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.get_mut().ok().and_then(Option::take) {
            // It aborts rather than ends with a panic.
            let _ = thread.join();
        }
    }
}
