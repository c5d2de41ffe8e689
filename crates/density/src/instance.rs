//! Instances: what can be started, given load and stopped.
//!
//! A kind knows how to start one. A third kind is another implementation of [`Kind`]. Which memory is
//! behind an instance is not its business: it is started inside a group, by a command that the backing may
//! change.

pub mod folder;
pub mod guest;
pub mod process;
mod served;
pub mod vm;

use crate::backing::Backing;
use crate::connection::Endpoint;
use overdrive_sys::memory_group::{GroupError, MemoryGroup};
use std::path::Path;
use std::time::Duration;
use thiserror::Error;

/// Why an instance cannot be started.
#[derive(Debug, Error)]
pub enum InstanceError {
    /// Something that is not installed, or cannot be used: the user's to mend.
    #[error("{0}")]
    Missing(String),
    /// It does not start or does not answer.
    #[error("instance {number}: {reason}")]
    Start {
        /// Which.
        number: u32,
        /// Why.
        reason: String,
    },
    /// Its group refuses.
    #[error(transparent)]
    Group(#[from] GroupError),
}

/// Where an instance is started.
#[derive(Debug, Clone, Copy)]
pub struct Seat<'a> {
    /// Its number, from 0.
    pub number: u32,
    /// The run's folder, for sockets and logs.
    pub folder: &'a Path,
    /// The group it is charged to.
    pub group: Option<&'a MemoryGroup>,
    /// What is behind its memory.
    pub backing: &'a Backing,
    /// DRAM of its own, in bytes; none when it shares the fleet's.
    pub budget_bytes: Option<u64>,
}

/// A kind of instance.
pub trait Kind: std::fmt::Debug {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it runs and how, for the record.
    fn describe(&self) -> String;

    /// How long one may take until it answers.
    fn patience(&self) -> Duration;

    /// Starts one.
    ///
    /// # Errors
    /// When the program, a socket or the group refuses.
    fn start(&self, seat: &Seat<'_>) -> Result<Box<dyn Instance>, InstanceError>;
}

/// A running instance; dropping it ends it.
pub trait Instance: std::fmt::Debug {
    /// Where it listens.
    fn endpoint(&self) -> &Endpoint;

    /// Why it has ended; none while it runs.
    fn ended(&mut self) -> Option<String>;

    /// Ends it and waits for that.
    fn stop(&mut self);
}
