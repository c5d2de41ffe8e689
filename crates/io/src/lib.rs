//! From a job to an outcome: which offsets (pattern), when (pace), by which path (engine), on which threads
//! (workers).
//!
//! ```text
//! Job -> Pattern, pace -> Engine (submit, reap) -> one Histogram per worker and direction -> Outcome
//! ```
//!
//! This crate measures and is silent: it returns data and errors, prints nothing and knows nothing of
//! hosts, records or reports.

#![forbid(unsafe_code)]

mod content;
pub mod engine;
pub mod fill;
pub mod front;
pub mod iolog;
pub mod job;
pub mod live;
pub mod outcome;
pub mod outliers;
pub mod pace;
pub mod pattern;
pub mod run;
pub mod search;
pub mod steady;
pub mod target;
pub mod verify;
mod worker;
