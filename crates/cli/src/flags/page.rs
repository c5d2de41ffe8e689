//! The words of `overdrive page`.

use super::help;
use clap::{Args, Subcommand, ValueEnum};
use overdrive_base::size::parse_size;
use overdrive_base::time::parse_duration;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const PAGE_EXAMPLES: &str = "\
Examples:
  overdrive page --backing dram --set 256MiB --threads 1,2
        memory alone, no root needed
  overdrive page --set 1GiB --dram 512MiB --threads 1,4,16 --swap /var/tmp
        twice the budget, with a swap file made for the run
  overdrive page pmbench -z -r 0 -a histo -j 8 -s 1024 -m 1024 30
        pmbench's own words

Patterns: uniform, linear[:STRIDE], walks[:N], normal:SIGMA_PAGES, normal-ih,
pareto[:ALPHA], zipf[:THETA], hot-cold[:HOT%/ACCESSES%], scan+skew[:SCAN%].
A cell is one combination of pattern, read ratio, threads and backing.";

const PMBENCH_OPTIONS: &str = "\
Options of pmbench, with the value glued on or as the next word:
  -m, --mapsize MIB    memory in which the set must fit [default: 256]
  -s, --setsize MIB    memory that is accessed [default: 128]
  -p, --pattern NAME   uniform, linear, normal, normal_ih, pareto or zipf
  -e, --shape NUMBER   what the pattern takes: stride, deviation, exponent
  -j, --jobs N         threads [default: 1]
  -r, --ratio PERCENT  reads among the accesses [default: 50]
  -d, --delay NS       pause of a thread between accesses [default: 0]
  -o, --offset N       which 4-byte word of a page is accessed [default: random]
  -a, --access HOW     histo, or touch for no histogram [default: histo]
  -t, --timestamp HOW  no effect here
  -c, --cold           start with the set paged out and no warm-up
  -i, --initialize     fill pages with random bytes, not zeroes
  -z, --wrneedsrd      a write reads the word first
  -q, --quiet          no progress line

Examples:
  overdrive page pmbench -z -r 0 -a histo -j 8 -s 1024 -m 1024 30";

/// Every combination of pattern, read ratio, threads and backing is a cell.
#[derive(Debug, Args)]
#[command(after_help = help::sizes_and_times(PAGE_EXAMPLES), args_conflicts_with_subcommands = true)]
pub(crate) struct PageFlags {
    #[command(subcommand)]
    pub(crate) words: Option<PageWords>,
    /// The set: how much memory is accessed
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size)]
    pub(crate) set: u64,
    /// The DRAM that the set may take, at least 8MiB, in every backing but dram [default: half the set]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) dram: Option<u64>,
    /// What is behind the set; several are measured in turn
    #[arg(long, value_enum, value_name = "NAME,...", value_delimiter = ',', default_value = "dram,swap")]
    pub(crate) backing: Vec<PageBacking>,
    /// Threads that access the set
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1")]
    pub(crate) threads: Vec<usize>,
    /// Which page is accessed next: one of the patterns below
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "uniform")]
    pub(crate) pattern: Vec<String>,
    /// Reads among the accesses, in per cent
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', default_value = "50")]
    pub(crate) read_ratio: Vec<u8>,
    /// A write reads the word first
    #[arg(long)]
    pub(crate) write_needs_read: bool,
    /// How much of each page is zeroes, in per cent; the rest is random
    #[arg(long, value_name = "PERCENT", default_value_t = 0)]
    pub(crate) compressible: u8,
    /// Byte offset of each access in its page [default: random]
    #[arg(long, value_name = "BYTES")]
    pub(crate) offset: Option<u32>,
    /// Start with the set paged out and no warm-up
    #[arg(long)]
    pub(crate) cold: bool,
    /// How long the warm-up may take; it ends when the rate of faults is steady
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub(crate) warmup_max: Duration,
    /// How long each cell is measured
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) runtime: Duration,
    /// Pause of a thread between accesses
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    pub(crate) delay: Duration,
    /// Split the set and the threads over the memory nodes, each part bound to its node
    #[arg(long)]
    pub(crate) numa: bool,
    /// How often each cell is measured
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) repeat: usize,
    /// Make a swap file in this directory for the run [default: the swap that is on; SIZE: a little more
    /// than the set]
    #[arg(long, value_name = "DIR[:SIZE]")]
    pub(crate) swap: Option<String>,
    /// Where the backings extend and extend-swap put cold pages [default: the directory of --swap, else the
    /// current one]
    #[arg(long, value_name = "PATH[:SIZE]")]
    pub(crate) store: Option<OsString>,
    /// Only remove what killed runs left behind
    #[arg(long)]
    pub(crate) clean_stale: bool,
    /// Where the random numbers start; the same seed gives the same pages
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write record.json and report.html to this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print one JSON document with all cells on standard output, and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is behind a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PageBacking {
    /// DRAM alone, without a limit
    Dram,
    /// The kernel's swap beyond --dram
    Swap,
    /// `overdrive extend` by the pager beyond --dram
    Extend,
    /// `overdrive extend` by the kernel's swap beyond --dram
    ExtendSwap,
}

/// Other tools' words.
#[derive(Debug, Subcommand)]
pub(crate) enum PageWords {
    /// Run a command line of pmbench, and print its histogram
    #[command(override_usage = "overdrive page pmbench [PMBENCH OPTIONS] SECONDS")]
    #[command(after_help = PMBENCH_OPTIONS)]
    Pmbench {
        /// Options of pmbench, see below, and how long is measured, in seconds
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

impl PageWords {
    pub(crate) fn words(&self) -> &[String] {
        match self {
            PageWords::Pmbench { words } => words,
        }
    }
}
