//! Memory beyond DRAM: a program's pages on an SSD, brought back when they are touched.
//!
//! ```text
//! fault -> Space (which page) -> Table (where is it) -> zeroes | staging frame | store -> page in place
//! Queues (which block goes) -> staging frames -> Slots (long runs on the store) -> frames given back
//! ```
//!
//! One thread does all of it for one process: faults, eviction, I/O. So there is nothing to lock, and a
//! message of the kernel about unmapped memory can never meet an eviction half done. The bookkeeping
//! (`space`, `table`, `queues`, `slots`, `staging`) does no I/O and is tested alone; `engine` performs. The
//! crate is silent, and on its way no thread-local memory and no unregistered lock is touched, because the
//! thread that serves faults must never wait for memory that it serves.

#![forbid(unsafe_code)]

mod allowance;
mod chance;
pub mod engine;
mod numbers;
mod platform;
pub mod pool;
pub mod queues;
pub mod ranges;
mod ration;
pub mod seal;
#[cfg(test)]
mod sim;
pub mod slots;
pub mod space;
pub mod staging;
pub mod stats;
pub mod table;
