//! How many instances one server holds inside a latency target, and what each of them costs.
//!
//! ```text
//! Kind + Backing -> Fleet -> fill -> load (open loop) -> objective -> search -> the edge, and why it is
//! there Server x2 + Prices -> relative cost -> sweeps, break-even;   drive's rating + bytes a day -> years
//! ```
//!
//! This crate is silent. Load goes to real instances, each in a memory group of its own where groups are to
//! be had; the cost model, the objective and the search are pure.

#![forbid(unsafe_code)]

pub mod backing;
pub mod connection;
pub mod cost;
pub mod fleet;
pub mod instance;
pub mod keys;
pub mod load;
pub mod objective;
pub mod resp;
pub mod search;
pub mod trial;
