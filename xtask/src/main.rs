//! The developers' door: `cargo xtask COMMAND`. The Makefile is the door before this one.
//!
//! It imports nothing of Overdrive's: what checks and measures the tool must not share its mistakes.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for developers talks to them")]

mod bench_audit;
mod bench_density;
mod bench_io;
mod bench_memory;
mod bench_page;
mod options;
mod stats;
mod test_run;
mod tidy;
mod vm;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  tidy                 check the rules of style that are not lints
  test [CARGO ARGS]    cargo test, then the list of skipped tests and the sums over all test binaries
  bench-io [OPTIONS]   Overdrive and fio side by side in one run (bench-io --help)
  bench-audit          how long a full audit takes (bench-audit --help)
  vm [OPTIONS] [NAME]  scenarios in a virtual machine with real NVMe drivers (vm --help)
  bench-memory [OPTIONS]   extended memory against swap in one run (bench-memory --help)
  bench-page [OPTIONS] swap against DRAM in one run (bench-page --help)
  bench-density [OPTIONS]  Redis servers on DRAM, swap and extended memory in one run (bench-density --help)
  kernel SERIES        fetch a kernel for guests";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    let result = match command {
        "tidy" => tidy::run(&root()),
        "test" => test_run::run(&root(), rest),
        "bench-audit" => bench_audit::run(rest),
        "bench-io" => bench_io::run(&root(), rest),
        "vm" => vm::run(&root(), rest),
        "bench-memory" => bench_memory::run(&root(), rest),
        "bench-density" => bench_density::run(rest),
        "kernel" => vm::fetch(&root(), rest),
        "bench-page" => bench_page::run(rest),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        other => {
            eprintln!("xtask: no command '{other}'\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("xtask {command}: {error:#}");
        ExitCode::from(3)
    })
}

/// The root of the workspace: the folder above this crate's.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
