//! The words of `overdrive swap`.

use super::watch::parse_watch;
use super::{StateFlags, help};
use clap::{Args, Subcommand, ValueEnum};
use overdrive_base::size::parse_size;
use std::path::PathBuf;
use std::time::Duration;

const SWAP_EXAMPLES: &str = "\
Examples:
  overdrive swap plan --device /dev/nvme1n1    what would be done, and why
  overdrive swap plan --profile                the vendor's recipes, row by row
  overdrive swap on --device /dev/nvme1n1 --write-to /dev/nvme1n1
  overdrive swap on --file /var/swap --size 16GiB
  overdrive swap on --device /dev/nvme1n1 --write-to /dev/nvme1n1 \\
      --zswap off --max-sectors 64
  overdrive swap status
  overdrive swap off                           areas off, settings as before
  overdrive swap off --stale                   only what killed runs left";

/// Every change is written down before it is made, read back after, and taken back by `off`.
#[derive(Debug, Args)]
#[command(after_help = SWAP_EXAMPLES)]
pub(crate) struct SwapFlags {
    #[command(subcommand)]
    pub(crate) command: SwapCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SwapCommand {
    /// Say what would be done for swap on this kernel, and why; changes nothing
    Plan(SwapPlanFlags),
    /// Set swap up: areas, priorities, and the settings that belong to them
    On(SwapOnFlags),
    /// Take back what `on` did, or what killed runs left
    Off(SwapOffFlags),
    /// Show areas, rates, read-ahead, reclaim, pressure, and what the writes mean for the drive
    Status(SwapStatusFlags),
}

/// Where to swap to, and how.
#[derive(Debug, Args)]
pub(crate) struct SwapWishFlags {
    /// Devices to swap to: whole drives or partitions
    #[arg(long, value_name = "DEVICE,...", value_delimiter = ',', num_args = 1..)]
    pub(crate) device: Vec<PathBuf>,
    /// A file to swap to, which is made with the size of --size
    #[arg(long, value_name = "PATH", requires = "size")]
    pub(crate) file: Option<PathBuf>,
    /// Size of the file
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "file")]
    pub(crate) size: Option<u64>,
    /// Pages read at a fault, as a power of two: 0 for random access, 3 to 5 for scans
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10))]
    pub(crate) page_cluster: u32,
    /// Priority of the areas [default: chosen, as swap plan shows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=32767))]
    pub(crate) priority: Option<u16>,
    /// Fill the areas before compressed memory (zram) that is on
    #[arg(long, conflicts_with = "priority")]
    pub(crate) before_zram: bool,
    /// zswap before the drive: fewer writes to it, and time in each fault [default: as it is]
    #[arg(long, value_name = "on|off", value_enum)]
    pub(crate) zswap: Option<OnOff>,
    /// Merging of neighbouring requests: 0 always, 1 when it is simple, 2 never [default: as it is]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=2))]
    pub(crate) nomerges: Option<u32>,
    /// The largest request to a drive, in KiB [default: as it is]
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(4..))]
    pub(crate) max_sectors: Option<u32>,
    /// How many requests stand at a drive at once [default: as it is]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(4..))]
    pub(crate) nr_requests: Option<u32>,
    /// Leave the settings as they are: make the areas alone
    #[arg(long, conflicts_with_all = ["zswap", "nomerges", "max_sectors", "nr_requests"])]
    pub(crate) areas_only: bool,
    /// Fill free stretches of the areas before gaps, so that more is written in one go: 1.1 to 1.2 times the
    /// pages a second of several threads on Linux 6.18, where the area is several times as large as what is
    /// in it. The drive is told of each stretch that becomes free (discard)
    #[arg(long, conflicts_with = "no_discard")]
    pub(crate) free_first: bool,
    /// Do not tell the drive which parts of its area are free (discard)
    #[arg(long)]
    pub(crate) no_discard: bool,
    /// Print JSON on standard output, and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnOff {
    On,
    Off,
}

#[derive(Debug, Args)]
#[command(after_help = help::SIZES)]
pub(crate) struct SwapPlanFlags {
    #[command(flatten)]
    pub(crate) wish: SwapWishFlags,
    /// Show both of the vendor's recipes beside what this kernel needs
    #[arg(long)]
    pub(crate) profile: bool,
    /// Print a shell script that does it and can undo it
    #[arg(long, conflicts_with_all = ["json", "profile"])]
    pub(crate) shell: bool,
}

#[derive(Debug, Args)]
#[command(after_help = help::SIZES)]
pub(crate) struct SwapOnFlags {
    #[command(flatten)]
    pub(crate) wish: SwapWishFlags,
    /// Allow writes: name each device again here; what is on them is lost
    #[arg(long, value_name = "DEVICE,...", value_delimiter = ',', num_args = 1..)]
    pub(crate) write_to: Vec<PathBuf>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Change the settings of a disk even while it is busy: its requests wait meanwhile
    #[arg(long)]
    pub(crate) even_if_busy: bool,
    #[command(flatten)]
    pub(crate) state: StateFlags,
}

#[derive(Debug, Args)]
pub(crate) struct SwapOffFlags {
    /// Remove only what killed runs left: control groups, swap files
    #[arg(long)]
    pub(crate) stale: bool,
    /// Print JSON on standard output, and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) state: StateFlags,
}

#[derive(Debug, Args)]
#[command(after_help = help::TIMES)]
pub(crate) struct SwapStatusFlags {
    /// How long the counters are watched, from 10ms to an hour
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_watch)]
    pub(crate) interval: Duration,
    /// Print JSON on standard output, and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) state: StateFlags,
}
