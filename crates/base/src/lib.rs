//! Quantities, seeded random numbers and fault plans: what every other crate may use and nothing of the
//! domain.
//!
//! This crate imports nothing of ours and makes no system call. It stays small on purpose (a tidy rule
//! counts its files), so that it cannot become the drawer for whatever has no home.

#![forbid(unsafe_code)]

pub mod fault;
pub mod rng;
pub mod size;
pub mod time;
