//! The words of `overdrive density`.

use super::help;
use clap::{Args, ValueEnum};
use overdrive_base::size::parse_size;
use overdrive_base::time::parse_duration;
use overdrive_density::objective::Objective;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const DENSITY_EXAMPLES: &str = "\
Examples:
  overdrive density --records 50000 --max 4
        Redis on DRAM, no root needed
  overdrive density --backing dram,swap,extend --dram 1GiB --swap /var/tmp \\
      --influence 10 --price-ratio 4
        the published study, as small as this machine
  overdrive density --instances 8 --rate 1000 --runtime 10s
        one number, measured
  overdrive density --backing swap --dram 1GiB --swap /var/tmp \\
      --instances 6 --classes gold:1,silver:2,bronze:4
  overdrive density --kind vm --kernel VMLINUZ --modules DIR --rate 100 --max 4
  overdrive density --stale
        end and remove what a killed run left";

/// Each instance gets its requests at fixed times; the largest number that keeps the objective is searched
/// for.
#[derive(Debug, Args)]
#[command(after_help = help::sizes_and_times(DENSITY_EXAMPLES))]
pub(crate) struct DensityFlags {
    /// What is behind the instances' memory, measured in turn
    #[arg(long, value_enum, value_name = "NAME,...", value_delimiter = ',', default_value = "dram")]
    pub(crate) backing: Vec<DensityBacking>,
    /// DRAM for all instances together [default: what the machine has; needed for all backings but dram]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) dram: Option<u64>,
    /// Make a swap file in this directory for the run [default: the swap that is on; SIZE: 4 times --dram]
    #[arg(long, value_name = "DIR[:SIZE]")]
    pub(crate) swap: Option<String>,
    /// Where extended instances keep cold pages, and at most how much each [default: the directory of --swap,
    /// else the current one; SIZE: twice its memory]
    #[arg(long, value_name = "DIR[:SIZE]")]
    pub(crate) store: Option<OsString>,
    /// What an instance is
    #[arg(long, value_enum, default_value_t = DensityKind::Process)]
    pub(crate) kind: DensityKind,
    /// Records in each instance
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    pub(crate) records: u64,
    /// Bytes of each value
    #[arg(long, value_name = "SIZE", default_value = "1024", value_parser = parse_size)]
    pub(crate) value_size: u64,
    /// Requests a second for each instance
    #[arg(long, value_name = "N", default_value_t = 2000.0)]
    pub(crate) rate: f64,
    /// GETs among the requests, in per cent; the rest are SETs
    #[arg(long, value_name = "PERCENT", default_value_t = 70)]
    pub(crate) mix: u8,
    /// How strongly keys are pulled to the middle of the key space: 0 not at all, 10, 25
    #[arg(long, value_name = "WIDTH", default_value_t = 0.0)]
    pub(crate) influence: f64,
    /// What the latency must keep: limits for avg, p50, p95, p99, p99.9 or max
    #[arg(long, value_name = "LIMITS", default_value = "avg=50us,p99=300us")]
    pub(crate) objective: Objective,
    /// Whose latency must keep the objective
    #[arg(long, value_enum, default_value_t = DensityJudge::Each)]
    pub(crate) judge: DensityJudge,
    /// Groups of instances by memory for each byte of DRAM, such as gold:1,silver:2,bronze:4
    #[arg(long, value_name = "NAME:RATIO,...", value_delimiter = ',')]
    pub(crate) classes: Vec<String>,
    /// The most instances to try
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) max: u32,
    /// Measure this number alone, without a search
    #[arg(long, value_name = "N", conflicts_with = "max")]
    pub(crate) instances: Option<u32>,
    /// How often a number of instances is measured
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) iterations: u32,
    /// How long each iteration is measured
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub(crate) runtime: Duration,
    /// How long the load runs before it is measured [default: as long as an iteration]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) warmup: Option<Duration>,
    /// Threads that make the load [default: a quarter of the CPUs, at least 1]
    #[arg(long, value_name = "N")]
    pub(crate) load_threads: Option<usize>,
    /// How long before a request is due the load stops sleeping and watches the clock
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    pub(crate) spin: Duration,
    /// The price of a GiB of DRAM divided by that of a GiB of SSD: shows what an instance costs on each
    /// backing
    #[arg(long, value_name = "RATIO", allow_negative_numbers = true)]
    pub(crate) price_ratio: Option<f64>,
    /// The server's program
    #[arg(long, value_name = "PATH", default_value = "redis-server")]
    pub(crate) redis: PathBuf,
    /// Listen on loopback ports from this one on [default: sockets in the file system]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// The guests' kernel, for --kind vm [default: this machine's, /boot/vmlinuz-RELEASE]
    #[arg(long, value_name = "VMLINUZ")]
    pub(crate) kernel: Option<PathBuf>,
    /// The modules of that kernel [default: /lib/modules/RELEASE]
    #[arg(long, value_name = "DIR")]
    pub(crate) modules: Option<PathBuf>,
    /// Memory of each guest [default: what the records and the system need]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) vm_memory: Option<u64>,
    /// QEMU's program
    #[arg(long, value_name = "PATH", default_value = "qemu-system-x86_64")]
    pub(crate) qemu: PathBuf,
    /// End and remove what killed runs left behind, and do nothing else
    #[arg(long)]
    pub(crate) stale: bool,
    /// Where the random numbers start; the same seed gives the same keys and values
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write the record (density.json) and a page with charts (density.html) into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the record as JSON on standard output, and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is behind the memory of the instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DensityBacking {
    /// DRAM alone
    Dram,
    /// The kernel's swap beyond --dram
    Swap,
    /// Overdrive's pager, each instance with its part of --dram
    Extend,
    /// Swap with room made ahead, as with overdrive extend --backend swap
    ExtendSwap,
}

impl DensityBacking {
    /// Whether memory beyond the limit goes to the kernel's swap.
    pub(crate) fn swaps(self) -> bool {
        matches!(self, Self::Swap | Self::ExtendSwap)
    }
}

/// What an instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DensityKind {
    /// A Redis server as a process
    Process,
    /// A Redis server in a QEMU guest of its own
    Vm,
}

/// Whose latency is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DensityJudge {
    /// That of each instance
    Each,
    /// That of all requests together
    Fleet,
}
