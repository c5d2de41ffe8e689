//! One file for each subcommand.

pub(crate) mod audit;
pub(crate) mod compare;
pub(crate) mod cost;
pub(crate) mod density;
pub(crate) mod evaluate;
pub(crate) mod extend;
pub(crate) mod foreign;
pub(crate) mod generate;
pub(crate) mod jobs;
pub(crate) mod page;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod search;
pub(crate) mod swap;
pub(crate) mod topology;
pub(crate) mod tune;
