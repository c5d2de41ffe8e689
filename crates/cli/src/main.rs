//! The `overdrive` command: flags in, exit code out.
//!
//! This crate is where the silent ones meet: it asks `host` for facts, `io` for outcomes, joins them into a
//! record (`assemble.rs`) and has `report` render it. It is the only one that prints.

#![forbid(unsafe_code)]

mod assemble;
mod cmd;
mod exit;
mod flags;
mod guide;
mod interrupt;
mod io_log;
mod leftovers;
mod live;
mod open_target;
mod output;
mod progress;
mod self_test;

use clap::FromArgMatches;
use flags::{Command, Flags};
use std::process::ExitCode;

fn main() -> ExitCode {
    overdrive_sys::rights::set_aside();
    overdrive_sys::signals::take_notice_of_children();
    let words = flags::in_order(std::env::args_os());
    let program = flags::program();
    let matches = program.clone().try_get_matches_from(&words);
    let flags = match matches.and_then(|matches| Flags::from_arg_matches(&matches)) {
        Ok(flags) => flags,
        Err(error) => return exit::end_of_words(&error, &program, &words),
    };
    // `extend` looks after its program's signals itself.
    if !matches!(flags.command, Command::Extend(_) | Command::ExtendLaunch(_)) {
        interrupt::outlive_file_limit();
    }
    let outcome = match flags.command {
        Command::Evaluate(flags) => cmd::evaluate::evaluate(&flags),
        Command::Run(flags) => cmd::run::run(&flags),
        Command::Diskspd(flags) => cmd::foreign::diskspd(&flags.line),
        Command::SpdkPerf(flags) => cmd::foreign::spdk_perf(&flags.line),
        Command::Audit(flags) => cmd::audit::audit(&flags),
        Command::Tune(flags) => cmd::tune::tune(&flags),
        Command::Topology(flags) => cmd::topology::topology(&flags),
        Command::Page(flags) => cmd::page::page(&flags),
        Command::Swap(flags) => cmd::swap::swap(&flags),
        Command::PageWorker => cmd::page::worker(),
        Command::Extend(flags) => cmd::extend::extend(&flags),
        Command::ExtendLaunch(flags) => cmd::extend::launch::launch(&flags),
        Command::Density(flags) => cmd::density::density(&flags),
        Command::DensityGuest => cmd::density::guest(),
        Command::Cost(flags) => cmd::cost::cost(&flags),
        Command::Report(flags) => cmd::report::report(&flags),
        Command::Compare(flags) => cmd::compare::compare(&flags),
        Command::Completions { shell } => cmd::generate::completions(shell),
        Command::Man => cmd::generate::man(),
    };
    exit::code_of(outcome)
}
