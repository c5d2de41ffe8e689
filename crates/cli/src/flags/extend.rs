//! The words of `overdrive extend`.

use clap::{Args, Subcommand, ValueEnum};
use overdrive_base::size::parse_size;
use overdrive_base::time::parse_duration;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const EXTEND_EXAMPLES: &str = "\
Examples:
  overdrive extend --dram 512MiB --store /mnt/nvme -- redis-server --save ''
  overdrive extend --dram 2GiB --store /mnt/nvme:64GiB --stats out.json -- java -Xmx8g ...
  overdrive extend --dram 1GiB --store /mnt/nvme --backend swap -- ./static-program
  overdrive extend --dram 2GiB --store /dev/nvme1n1p2 --write-to /dev/nvme1n1p2 -- ./program
  overdrive extend status                    what the running programs have and do
  overdrive extend top                       the same, live

The exit code is the program's (128 + N when signal N ended it); 2 when it was not started.";

/// The program runs unchanged. Its anonymous memory is held within --dram; what is cold lies on the SSD.
#[derive(Debug, Args)]
#[command(after_help = EXTEND_EXAMPLES)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ExtendFlags {
    #[command(subcommand)]
    pub(crate) words: Option<ExtendWords>,
    /// DRAM that the program's memory may take
    #[arg(long, value_name = "SIZE", value_parser = parse_size, required = true)]
    pub(crate) dram: Option<u64>,
    /// Where on the SSD the rest goes: a directory that is there, and at most how much [default SIZE: 8 times
    /// --dram, as far as a tenth of the file system stays free]; or a block device, with --write-to
    #[arg(long, value_name = "PATH[:SIZE]", required = true)]
    pub(crate) store: Option<OsString>,
    /// The block device of --store again: what is on it is overwritten (backend pager)
    #[arg(long, value_name = "DEVICE")]
    pub(crate) write_to: Option<PathBuf>,
    /// Overwrite it even if it holds a file system, a partition table or the like
    #[arg(long, requires = "write_to")]
    pub(crate) wipe: bool,
    /// Who moves the pages
    #[arg(long, value_enum, default_value_t = BackendFlag::Auto)]
    pub(crate) backend: BackendFlag,
    /// Write at most so much to the store in any 24 hours, for each process: an hour's share at once,
    /// then at an even rate. A program that needs more waits (pager only)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) max_writes_per_day: Option<u64>,
    /// Keep cold pages compressed in DRAM before they go to the SSD (backend pager)
    #[arg(long, value_enum, default_value_t = CompressFlag::Auto)]
    pub(crate) compress: CompressFlag,
    /// Encrypt what is written to the store, with a key that each process makes for itself and takes with it
    /// (AES-256-XTS; a page costs about a microsecond more each way on a processor with AES instructions, and
    /// many times that on one without; backend pager)
    #[arg(long)]
    pub(crate) encrypt: bool,
    /// Leave it to the program's threads to make room below the budget, as on the kernel's swap alone: to
    /// compare with, or where the processors have nothing to spare (backend swap)
    #[arg(long)]
    pub(crate) no_room_ahead: bool,
    /// Write the final counters to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// The preload library [default: libovermem.so beside this program or in its lib directories]
    #[arg(long, value_name = "PATH")]
    pub(crate) library: Option<PathBuf>,
    /// Say nothing about backend and coverage
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND", required = true)]
    pub(crate) command: Vec<OsString>,
}

/// Who moves the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendFlag {
    /// The pager where it can, else the kernel's swap; says which and why
    Auto,
    /// Overdrive's own, in the program: userfaultfd and io_uring
    Pager,
    /// The kernel's swap: a control group and a swap file of this run's own (root)
    Swap,
}

/// Whether cold pages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompressFlag {
    /// Where it pays: by how much smaller pages get, and how soon they are wanted again
    Auto,
    /// No page
    Off,
    /// Every page is tried, and they take as much DRAM as they may
    Lz4,
    /// The same with Zstandard: smaller pages, more time for each
    Zstd,
}

impl CompressFlag {
    /// As the preload library is told.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// Looking at what runs.
#[derive(Debug, Subcommand)]
pub(crate) enum ExtendWords {
    /// Counters of the extended programs of this user that run now
    Status(StatusFlags),
    /// The same again and again, with what changed in between
    Top(TopFlags),
}

/// How it is told.
#[derive(Debug, Args)]
pub(crate) struct StatusFlags {
    /// Print JSON on standard output, and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
    /// Print OpenMetrics text, for a collector
    #[arg(long, conflicts_with = "json")]
    pub(crate) metrics: bool,
    /// Rates are taken over this time
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub(crate) interval: Duration,
}

/// How often.
#[derive(Debug, Args)]
pub(crate) struct TopFlags {
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub(crate) interval: Duration,
    /// End after so many looks [default: Ctrl-C ends it]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Print one JSON object a line and look, instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is told to the process that becomes the program.
#[derive(Debug, Args)]
pub(crate) struct LaunchFlags {
    /// A control group to join first
    #[arg(long)]
    pub(crate) group: Option<PathBuf>,
    /// A library to preload
    #[arg(long)]
    pub(crate) library: Option<PathBuf>,
    /// What the library is told
    #[arg(long)]
    pub(crate) settings: Option<OsString>,
    /// The program as found
    #[arg(long)]
    pub(crate) program: PathBuf,
    /// Its name and arguments
    #[arg(last = true)]
    pub(crate) command: Vec<OsString>,
}
