//! What is known of a host and of one target on it, and what to think of it: facts -> rules -> findings.
//!
//! - [`Root`] is where everything is read from: `/`, a copied directory, or a captured host in one text file.
//! - [`facts`] reads the host; every value is known, absent or unreadable, with its path, and never guessed.
//! - [`target`] follows a file or device down to its disks, controllers and PCIe links.
//! - [`rules`] judges both, as pure functions; a finding carries evidence, reason, source, effect and fix.
//! - [`hazards`] says why a target must not be written to.
//!
//! - [`topology`] draws the way from drives to processors, with what each part of it can carry.
//! - [`audit`] does all of that at once; [`capture`] puts all that it read into one text file.
//! - [`change`] plans, applies and undoes, with a journal; it alone writes, and only through its `System`.
//! - [`gather`] decides on how many processors a program runs while it waits for pages.
//! - [`swap`] makes a plan of swap areas and what belongs to them, and tells what swap does.
//!
//! The crate is silent: it returns data and errors.

#![forbid(unsafe_code)]

pub mod audit;
pub mod capture;
pub mod change;
pub mod facts;
pub mod finding;
pub mod gather;
pub mod hazards;
pub mod root;
pub mod rules;
pub mod signature;
pub mod swap;
pub mod target;
pub mod topology;

pub use root::Root;
