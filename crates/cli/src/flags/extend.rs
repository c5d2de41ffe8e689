//! The words of `overdrive extend`.

use super::help;
use super::watch::{parse_pause, parse_watch};
use clap::{Args, Subcommand, ValueEnum};
use overdrive_base::size::parse_size;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const EXTEND_EXAMPLES: &str = "\
Examples:
  overdrive extend --dram 512MiB --store /mnt/nvme -- redis-server --save ''
  overdrive extend --dram 2GiB --store /mnt/nvme:64GiB --stats out.json \\
      -- java -Xmx8g ...
  overdrive extend --dram 1GiB --store /mnt/nvme --backend swap -- ./static
  overdrive extend --dram 2GiB --store /dev/nvme1n1p2 \\
      --write-to /dev/nvme1n1p2 -- ./program
  overdrive extend status       what the running programs have and do
  overdrive extend top          the same, again and again
  overdrive extend hold --dram 2GiB --store /mnt/nvme 4711
                                what runs already, with process 4711

The exit code is the program's own, or 128 + N when signal N ended it. It is 2
when the run was refused, 3 when the system failed it.";

const HOLD_USAGE: &str = "overdrive extend hold --dram SIZE --store PATH [OPTIONS] GROUP";

const HOLD_EXAMPLES: &str = "\
Examples:
  overdrive extend hold --dram 2GiB --store /mnt/nvme \\
      /sys/fs/cgroup/system.slice/docker-....scope
  overdrive extend hold --dram 1GiB --store /mnt/nvme:16GiB 4711

Exit code 0 when the group was given back, 2 when it was refused, 3 when the
system failed it.";

const EXTEND_USAGE: &str = "\
overdrive extend --dram SIZE --store PATH [OPTIONS] -- PROGRAM [ARGS]...
       overdrive extend status [OPTIONS]
       overdrive extend top [OPTIONS]
       overdrive extend hold --dram SIZE --store PATH [OPTIONS] GROUP";

/// The program runs unchanged. Its anonymous memory is held within --dram; what is cold lies on the SSD.
#[derive(Debug, Args)]
#[command(override_usage = EXTEND_USAGE, after_help = help::sizes(EXTEND_EXAMPLES))]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ExtendFlags {
    #[command(subcommand)]
    pub(crate) words: Option<ExtendWords>,
    /// DRAM that the program's memory may take, at least 32MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size, required = true)]
    pub(crate) dram: Option<u64>,
    /// Where on the SSD the rest goes: a directory that exists, and at most how much of it is used [default
    /// SIZE: 8 times --dram, or less, so that a tenth of the file system stays free]; or a block device,
    /// which --write-to must name again
    #[arg(long, value_name = "PATH[:SIZE]", required = true)]
    pub(crate) store: Option<OsString>,
    /// The block device of --store again: what is on it is overwritten (backend pager)
    #[arg(long, value_name = "DEVICE")]
    pub(crate) write_to: Option<PathBuf>,
    /// With --write-to: overwrite it even if it holds a file system, a partition table or the like
    #[arg(long, requires = "write_to")]
    pub(crate) wipe: bool,
    /// Who moves the pages
    #[arg(long, value_enum, default_value_t = BackendFlag::Auto)]
    pub(crate) backend: BackendFlag,
    /// For each process, write at most this much to the store in 24 hours: an hour's share at once, then at
    /// an even rate. A program that needs more waits (backend pager)
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
    /// Turn off the threads that free memory and read ahead for the program. Its own threads then make room
    /// below --dram when they need it, as with the kernel's swap alone: to compare with that, or where no
    /// processor has time to spare (backend swap)
    #[arg(long)]
    pub(crate) no_room_ahead: bool,
    /// Fill the gaps of the swap file before its free stretches, as the kernel does by itself since Linux
    /// 6.18. Otherwise the drive is told of each stretch that becomes free, so that pages are written in long
    /// runs (backend swap)
    #[arg(long)]
    pub(crate) fill_gaps: bool,
    /// Leave the program's threads on all processors. Otherwise they are kept to few, or to one, for as long
    /// as more pages come in a second there, which is tried from time to time
    #[arg(long)]
    pub(crate) no_gather: bool,
    /// Serve the program from processes beside it, not from threads in it: for programs that insist on one
    /// thread, change their user or limit their own system calls. Each process of the program is listed
    /// three times then. Taken without being asked for where PROGRAM is bwrap, chromium, nsenter, setpriv
    /// or unshare (backend pager)
    #[arg(long)]
    pub(crate) apart: bool,
    /// Write the final counters to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) stats: Option<PathBuf>,
    /// The preload library [default: libovermem.so beside this program or in its lib directories]
    #[arg(long, value_name = "PATH")]
    pub(crate) library: Option<PathBuf>,
    /// Do not say which backend is used and what it leaves out
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM", required = true)]
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
    /// With LZ4 where it pays, by how small pages get and how soon they are wanted again
    Auto,
    /// None
    Off,
    /// Every page, with LZ4: they may take up to five eighths of --dram
    Lz4,
    /// As lz4, with Zstandard: smaller pages, more time for each
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
    /// Show the counters of the extended programs that run now
    Status(StatusFlags),
    /// Show the counters of status again and again, until Ctrl-C
    Top(TopFlags),
    /// Hold what runs already, a container or a service, to less DRAM (root, on swap)
    Hold(HoldFlags),
}

/// Holds a control group to --dram on the kernel's swap (root), until Ctrl-C or until its last process has
/// ended. Then its limits are what they were, and what lies in swap comes back.
#[derive(Debug, Args)]
#[command(override_usage = HOLD_USAGE, after_help = help::sizes(HOLD_EXAMPLES))]
pub(crate) struct HoldFlags {
    /// DRAM that the group may take, at least 32MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) dram: u64,
    /// Where on the SSD the rest goes: a directory that exists, and how large the swap file there is [default
    /// SIZE: 8 times --dram, or less, so that a tenth of the file system stays free]
    #[arg(long, value_name = "PATH[:SIZE]")]
    pub(crate) store: OsString,
    /// Turn off the threads that free memory and read ahead for the group
    #[arg(long)]
    pub(crate) no_room_ahead: bool,
    /// Fill the gaps of the swap file before its free stretches, as the kernel does by itself since Linux
    /// 6.18
    #[arg(long)]
    pub(crate) fill_gaps: bool,
    /// Do not say what is done
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// The control group: a directory below /sys/fs/cgroup, or the number of a process in it
    #[arg(value_name = "GROUP")]
    pub(crate) group: PathBuf,
}

/// How it is told.
#[derive(Debug, Args)]
#[command(after_help = help::TIMES)]
pub(crate) struct StatusFlags {
    /// Print JSON on standard output, and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
    /// Print OpenMetrics text, for a collector
    #[arg(long, conflicts_with = "json")]
    pub(crate) metrics: bool,
    /// How long the counters are watched for the rates, from 10ms to an hour
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_watch)]
    pub(crate) interval: Duration,
}

/// How often.
#[derive(Debug, Args)]
#[command(after_help = help::TIMES)]
pub(crate) struct TopFlags {
    /// How long between one showing and the next, at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_pause::<100>)]
    pub(crate) interval: Duration,
    /// End after showing them this many times [default: at Ctrl-C]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Print a line of JSON each time instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is told to the process that becomes the program.
#[derive(Debug, Args)]
#[command(override_usage = "overdrive extend-launch --parent PID --program PATH [OPTIONS] -- WORDS")]
pub(crate) struct LaunchFlags {
    /// Who starts this, and waits for the program
    #[arg(long)]
    pub(crate) parent: u32,
    /// A control group to join first
    #[arg(long)]
    pub(crate) group: Option<PathBuf>,
    /// The run's directory, which stays as long as a process of the run does
    #[arg(long)]
    pub(crate) folder: Option<PathBuf>,
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
