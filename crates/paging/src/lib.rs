//! Page-access workloads: what a program feels when its memory is larger than DRAM.
//!
//! ```text
//! Spec -> Pages (which page next) -> Lane (one timed access) -> histograms of each worker -> Outcome
//! ```
//!
//! This crate measures and is silent. It knows nothing of budgets and swap: whoever runs it puts the process
//! under a limit first. The simulated lane has known delays and virtual time, for tests.

#![forbid(unsafe_code)]

pub mod lane;
pub mod outcome;
pub mod pattern;
pub mod run;
pub mod spec;
pub mod valley;
mod worker;
