//! The words of `overdrive page`.

use clap::{Args, Subcommand, ValueEnum};
use overdrive_base::size::parse_size;
use overdrive_base::time::parse_duration;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const PAGE_EXAMPLES: &str = "\
Examples:
  overdrive page --backing dram --set 256MiB --threads 1,2      memory alone, no root needed
  overdrive page --set 1GiB --dram 512MiB --threads 1,4,16 --swap /var/tmp
                                     twice the budget, with a swap file made for the run
  overdrive page pmbench -z -r 0 -a histo -j 8 -s 1024 -m 1024 30     pmbench's own words

Patterns: uniform, linear[:STRIDE], normal:SIGMA_PAGES, normal-ih, pareto[:ALPHA], zipf[:THETA],
hot-cold[:HOT%/ACCESSES%], scan+skew[:SCAN%].";

/// Every combination of pattern, read ratio, threads and backing is a cell.
#[derive(Debug, Args)]
#[command(after_help = PAGE_EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct PageFlags {
    #[command(subcommand)]
    pub(crate) words: Option<PageWords>,
    /// Memory that is accessed
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size)]
    pub(crate) set: u64,
    /// Memory the set may have in the backings with a limit [default: half the set]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) dram: Option<u64>,
    /// What is behind the set: dram (no limit); swap, extend, extend-swap (each limited to --dram); measured
    /// in turn
    #[arg(long, value_enum, value_delimiter = ',', default_value = "dram,swap")]
    pub(crate) backing: Vec<PageBacking>,
    /// Threads that access the set
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1")]
    pub(crate) threads: Vec<usize>,
    /// Which page comes next
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
    /// The warm-up ends when the fault rate is steady, at the latest after this
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub(crate) warmup_max: Duration,
    /// How long each cell is measured
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) runtime: Duration,
    /// Pause of a thread between accesses
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    pub(crate) delay: Duration,
    /// A set on each memory node, bound to its CPUs and memory; set and threads are dealt out
    #[arg(long)]
    pub(crate) numa: bool,
    /// How often each cell is measured
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) repeat: usize,
    /// Make a swap file in this directory for the run [default: the swap that is on]
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
    /// Print JSON on standard output, one object a cell, and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is behind a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PageBacking {
    /// Memory alone
    Dram,
    /// The kernel's swap under a limit
    Swap,
    /// `overdrive extend` by the pager
    Extend,
    /// `overdrive extend` by the kernel's swap
    ExtendSwap,
}

/// Other tools' words.
#[derive(Debug, Subcommand)]
pub(crate) enum PageWords {
    /// pmbench's own words, and its histogram as output
    #[command(disable_help_flag = true)]
    Pmbench {
        /// As pmbench takes them
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
