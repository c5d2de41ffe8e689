//! Finding out whether an argument is a job file, and reading it.

use crate::exit::{Refused, refuse};
use crate::flags::program;
use anyhow::Result;
use clap::parser::ValueSource;
use overdrive_base::size::MIB;
use overdrive_host::facts::parse::field_kib;
use overdrive_io::front::Plan;
use overdrive_io::front::fio::{Sources, parse};
use overdrive_sys::affinity::allowed_cpus;
use std::io::Read;
use std::path::Path;

/// Larger than any job file, and far smaller than anything that can be measured.
const LONGEST: u64 = 1 << 20;

/// Whether `argument` names a job file: by its ending, or because it is a small file with a section in it.
pub(crate) fn is_job_file(argument: &str) -> bool {
    let path = Path::new(argument);
    if argument == "-" || path.extension().is_some_and(|ending| ending == "fio") {
        return true;
    }
    let small = std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= LONGEST);
    let begins = |text: String| {
        let significant = |line: &&str| !line.is_empty() && !line.starts_with(['#', ';']);
        text.trim_start_matches('\u{feff}')
            .lines()
            .map(str::trim)
            .find(significant)
            .is_some_and(|line| line.starts_with('[') || line.starts_with("include "))
    };
    small && std::fs::read_to_string(path).is_ok_and(begins)
}

/// Reads the job file `name` (`-`: standard input), whatever it includes, and the environment.
pub(crate) fn read(name: &str, ignore_unsupported: bool) -> Result<Plan> {
    let text = match name {
        "-" => limited(std::io::stdin().lock()),
        _ => read_file(name),
    };
    let text = text.map_err(|error| Refused(format!("{name}: {error}; wanted a job file")))?;
    let sources = Sources { read: &read_file, variable: &variable };
    Ok(parse(name, &text, &sources, ignore_unsupported).map_err(|error| Refused(error.to_string()))?)
}

fn read_file(path: &str) -> Result<String, String> {
    std::fs::File::open(path).map_err(|error| error.to_string()).and_then(limited)
}

fn limited(source: impl Read) -> Result<String, String> {
    let mut text = String::new();
    source.take(LONGEST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > LONGEST { Err("longer than 1 MiB".to_owned()) } else { Ok(text) }
}

/// The environment, and fio's three words for the machine.
fn variable(name: &str) -> Option<String> {
    match name {
        "$ncpus" => Some(allowed_cpus().ok()?.len().to_string()),
        "$pagesize" => Some("4096".to_owned()),
        "$mb_memory" => {
            let text = std::fs::read_to_string("/proc/meminfo").ok()?;
            Some((field_kib(&text, "MemTotal").ok()? / MIB).to_string())
        }
        _ => std::env::var(name).ok(),
    }
}

/// Flags of `overdrive run` that go with a job file; all others say what the file says.
const WITH_A_FILE: [&str; 9] = [
    "targets",
    "write_to",
    "wipe",
    "buffered",
    "json",
    "output_format",
    "save_job",
    "dry_run",
    "ignore_unsupported",
];

/// Refuses the flags of a run that a job file has words of its own for.
pub(crate) fn refuse_other_flags(name: &str) -> Result<()> {
    let command = program();
    let all = command.clone().get_matches();
    let Some((run, given)) = all.subcommand() else { return Ok(()) };
    let known = command.find_subcommand(run).into_iter().flat_map(clap::Command::get_arguments);
    let typed = |id: &&str| given.value_source(id) == Some(ValueSource::CommandLine);
    let mut typed = known.map(|argument| argument.get_id().as_str()).filter(typed);
    if let Some(other) = typed.find(|id| !WITH_A_FILE.contains(id)) {
        let flag = other.replace('_', "-");
        refuse!("--{flag}: the job file {name} says what is done; its options go there");
    }
    Ok(())
}
