//! Swap as it should be on this host: a plan like any other, and what swap is doing.
//!
//! - [`setup`] turns a wish (these devices, this file) into changes, each choice with its reason.
//! - [`recipes`] holds what the vendor's two documents say beside what this kernel needs.
//! - [`room`] says whether what is swapped out would fit back into memory.
//! - [`ahead`] decides how much room is kept below a program's limit, and when.
//! - [`foresee`] tells which pages a program will want from swap next.
//! - [`share`] tells which drives take what is swapped out.
//! - [`activity`] reads the kernel's counters and makes rates and a drive's wear of them.
//!
//! Nothing here writes: `change` does.

pub mod activity;
pub mod ahead;
pub mod foresee;
pub mod recipes;
pub mod room;
pub mod setup;
pub mod share;
