//! What every way to name jobs has in common: how results are shown, and looking before running.

use clap::{Args, ValueEnum};
use std::ffi::OsString;

/// What prints something else than --json promises.
pub(super) const NO_RECORD: [&str; 3] = ["output_format", "save_job", "dry_run"];

/// How results are shown, and what happens instead of a run.
#[derive(Debug, Clone, Args)]
pub(crate) struct FrontFlags {
    /// How the result is printed; all but text stand alone on standard output
    #[arg(long, alias = "output_format", value_enum, value_name = "FORMAT", default_value_t = OutputFormat::Text)]
    pub(crate) output_format: OutputFormat,
    /// Print the jobs as a fio job file instead of running them
    #[arg(long)]
    pub(crate) save_job: bool,
    /// Print the jobs as they were understood and stop; no target is touched
    #[arg(long, conflicts_with = "save_job")]
    pub(crate) dry_run: bool,
    /// Leave out the options of fio, DISKSPD or SPDK's perf that Overdrive does not do; they are refused
    /// otherwise
    #[arg(long, alias = "ignore_unsupported")]
    pub(crate) ignore_unsupported: bool,
    /// What a terminal shows while it runs [default: full]
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) live: Option<LiveFlag>,
}

/// What is shown while jobs run; nothing at all where standard error is no terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LiveFlag {
    /// A few lines: rates and latencies by target, CPU time for each I/O, the last minutes
    Full,
    /// One line: progress, rate, time left
    Line,
    /// Nothing
    Off,
}

/// Forms of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Tables for people
    #[value(alias = "normal")]
    Text,
    /// The record, as --json prints it
    Record,
    /// The keys of fio's own JSON
    #[value(name = "fio-json", alias = "json")]
    FioJson,
    /// The same with every bucket of the histograms
    #[value(name = "fio-json+", alias = "json+")]
    FioJsonPlus,
}

const DISKSPD_EXAMPLES: &str = "\
Examples:
  overdrive diskspd -d60 -b4k -w0 -r -o4 -t8 -h -L /dev/nvme0n1
  overdrive diskspd -d60 -b4k -w30 -r -o4 -t8 -h -L -Rxml FILE --write-to FILE
  overdrive diskspd -d10 -b64K -o8 -t1 -h -L -c1G ./scratch    a scratch file
  overdrive diskspd -b4k -r -h FILE --save-job                 as a fio job file

Flags, the value glued on:
  blocks    -b size  -B base[:length]  -f end  -T thread offset  -c create
  order     -r random  -rs share  -rdpct I/Os/target:...  -s stride  -si
  load      -o depth  -t threads  -F in all  -w writes  -g rate  -i -j pauses
  time      -d measured  -W warm-up  -C cool-down
  path      -S b,u,h,m,w,r  -h past all caches  -a CPUs
  content   -Z zeroes  -Zr -Z1M random  -z seed
  result    -L latencies  -D I/Os by interval  -R text, xml, ptext, pxml
  no effect here (--dry-run lists them): -I -P -fr -fs -ft -l -n -v -x";

const SPDK_EXAMPLES: &str = "\
Examples:
  overdrive spdk-perf -q 1 -o 4096 -w randread -t 300 -LL /dev/nvme0n1
  overdrive spdk-perf -q 32 -o 4096 -w randrw -M 70 -t 60 -c 0x3 \\
      -r 'trtype:PCIe traddr:0000:04:00.0'

Flags:
  -q depth  -o I/O size  -w read, write, randread, randwrite, rw or randrw
  -M reads in per cent  -t seconds  -a warm-up  -c core mask  -r device
  -d I/Os in all  -F zipf's theta  -L latencies  -LL with a histogram
  -s I/O size when -o is missing, as in SPDK up to 2018
  no effect here (--dry-run lists them): -A -D -G -R -T -V -g -i -l -m -x";

/// Another tool's line; flags with two dashes are Overdrive's own and may stand anywhere.
#[derive(Debug, Args)]
pub(crate) struct ForeignFlags {
    /// The flags and targets of the other tool's command line
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "WORDS")]
    pub(crate) words: Vec<String>,
    /// Allow writes: name the target again here; what is on it is lost. Repeat it for each of several targets
    #[arg(long, value_name = "TARGET")]
    pub(crate) write_to: Vec<String>,
    /// With --write-to: write even if it holds a file system or a partition table
    #[arg(long, requires = "write_to")]
    pub(crate) wipe: bool,
    /// Print the record as JSON on standard output, and nothing else there
    #[arg(long, conflicts_with_all = NO_RECORD)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) front: FrontFlags,
}

/// DISKSPD's flags have one dash and their value glued on; flags with two dashes are Overdrive's own.
#[derive(Debug, Args)]
#[command(after_help = DISKSPD_EXAMPLES)]
pub(crate) struct DiskspdFlags {
    #[command(flatten)]
    pub(crate) line: ForeignFlags,
}

/// The flags of SPDK's perf have one dash; flags with two dashes are Overdrive's own.
#[derive(Debug, Args)]
#[command(after_help = SPDK_EXAMPLES)]
pub(crate) struct SpdkPerfFlags {
    #[command(flatten)]
    pub(crate) line: ForeignFlags,
}

/// Puts Overdrive's own flags before the words of another tool's line, so that they may stand anywhere in it.
pub(crate) fn in_order(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.collect::<Vec<OsString>>();
    let foreign = |word: &OsString| word == "diskspd" || word == "spdk-perf";
    if !arguments.get(1).is_some_and(foreign) {
        return arguments;
    }
    let own = ForeignFlags::augment_args(clap::Command::new("own"));
    let named = |name: &str| {
        own.get_arguments().find(|own| {
            own.get_long() == Some(name) || own.get_all_aliases().is_some_and(|all| all.contains(&name))
        })
    };
    let mut words = arguments.split_off(2).into_iter();
    let mut theirs = Vec::new();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        let name = text.strip_prefix("--").map(|rest| rest.split('=').next().unwrap_or(rest));
        let Some(flag) = name.filter(|name| !name.is_empty()) else {
            theirs.push(word);
            continue;
        };
        let known = named(flag);
        if known.is_none() && !["help", "version"].contains(&flag) {
            theirs.push(word);
            continue;
        }
        arguments.push(word);
        if known.is_some_and(|own| own.get_action().takes_values()) && !text.contains('=') {
            arguments.extend(words.next());
        }
    }
    if !theirs.is_empty() {
        arguments.push("--".into());
        arguments.extend(theirs);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_flags_may_stand_anywhere_in_another_tools_line() {
        let order = |line: &str| {
            let words = in_order(line.split_whitespace().map(OsString::from));
            words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<String>>().join(" ")
        };
        assert_eq!(
            order("overdrive diskspd -b4k FILE --write-to FILE -h --dry-run"),
            "overdrive diskspd --write-to FILE --dry-run -- -b4k FILE -h"
        );
        assert_eq!(
            order("overdrive spdk-perf -q 1 --output-format=json --transport-stats x"),
            "overdrive spdk-perf --output-format=json -- -q 1 --transport-stats x"
        );
        assert_eq!(order("overdrive run -b x --dry-run"), "overdrive run -b x --dry-run");
        assert_eq!(order("overdrive diskspd --help"), "overdrive diskspd --help");
    }
}
