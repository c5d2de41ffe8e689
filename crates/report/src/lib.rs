//! Versioned records, what limited them, how two differ, and how they are shown.
//!
//! Everything here is pure: values in, values or text out. No file, clock, environment or terminal is
//! touched; `cli` reads and writes, this crate decides what.

#![forbid(unsafe_code)]

pub mod ablation;
pub mod compare;
pub mod density;
#[cfg(test)]
mod fixtures;
pub mod page;
pub mod published;
pub mod record;
pub mod render;
mod show;
pub mod verdict;
