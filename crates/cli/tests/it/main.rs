//! The `overdrive` command as a user has it: arguments in, exit code, files and text out.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

mod ablate;
mod audit;
mod bad_input;
mod browser;
mod corpus;
mod cost;
mod density;
mod evaluate;
mod extend;
mod extend_apart;
mod extend_budget;
mod extend_children;
mod extend_hold;
mod extend_odd;
mod extend_postgres;
mod extend_programs;
mod extend_rights;
mod extend_swap;
mod extend_trouble;
mod help;
mod interrupt;
mod jobs;
mod live;
mod page;
mod readme;
mod refused_ring;
mod run;
mod support;
mod swap;
mod topology;
mod tune;
