//! Memory beyond DRAM for Rust programs: regions larger than the DRAM they may take, the rest on an SSD.
//!
//! An [`Engine`] runs in the process, on a thread of its own, and holds all its [`Region`]s together within
//! a budget. A region is a slice; what is cold of it is written to a file without a name and read back when
//! it is touched. Ranges can be pinned ([`Region::pin`]) and the engine can be told what comes next
//! ([`Region::will_need`]) and what does not ([`Region::cold`]). All other memory of the program stays as
//! it is: to extend all of it, start the program with `overdrive extend`, which needs no change to it.
//!
//! It needs Linux 6.8 and the right to handle page faults: root, CAP_SYS_PTRACE, access to
//! `/dev/userfaultfd`, or `vm.unprivileged_userfaultfd=1`; [`Engine::start`] says what is missing.
//!
//! ```
//! use overdrive_extend::{Engine, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::current_dir()?;
//! let mut options = Options::new(folder, 32 << 20, 256 << 20);
//! # options.memory_bytes_max = 1 << 30;
//! let engine = match Engine::start(options) {
//!     Ok(engine) => engine,
//!     Err(error) => {
//!         println!("no memory beyond DRAM here: {error}");
//!         return Ok(());
//!     }
//! };
//! // 64 MiB, of which at most 32 MiB are in DRAM at a time.
//! let mut numbers = engine.region::<u64>(8 << 20)?;
//! for (index, number) in numbers.iter_mut().enumerate() {
//!     *number = index as u64;
//! }
//! let _index_stays = numbers.pin(0..1000)?;
//! numbers.will_need(4 << 20..5 << 20)?;
//! assert_eq!(numbers[5_000_000], 5_000_000);
//! assert!(engine.counters().resident_bytes <= 32 << 20);
//! # Ok(())
//! # }
//! ```
//!
//! What a program must know: a child made by fork does not have the regions. A page that the SSD did not
//! give back raises SIGBUS in who touches it. Where the engine fails the process is aborted, lest it read
//! zeroes.

#![forbid(unsafe_code)]

pub mod control;
mod engine;
mod region;

pub use control::{Counters, HintError};
pub use engine::{Engine, Options, StartError, check_writes};
pub use overdrive_pager::pool::Compress;
pub use overdrive_sys::pageable::Plain;
pub use region::{Pin, Region, RegionError};
