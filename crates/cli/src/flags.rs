//! The command line: one table that feeds the parser, `--help`, the man page and the shell completions.
//!
//! Here stands only what was typed; what it means on this machine is found out by the commands.

mod ablate;
mod cost;
mod density;
mod extend;
mod front;
mod help;
mod page;
mod program;
mod run;
mod search;
mod swap;
mod topology;
mod watch;

use crate::exit::refuse;
pub(crate) use ablate::AblateFlags;
use clap::{Args, Parser, Subcommand, ValueEnum};
pub(crate) use cost::CostFlags;
pub(crate) use density::{DensityBacking, DensityFlags, DensityJudge, DensityKind};
pub(crate) use extend::{
    BackendFlag, CompressFlag, ExtendFlags, ExtendWords, HoldFlags, LaunchFlags,
    StatusFlags as ExtendStatusFlags, TopFlags,
};
pub(crate) use front::{
    DiskspdFlags, ForeignFlags, FrontFlags, LiveFlag, OutputFormat, SpdkPerfFlags, in_order,
};
use overdrive_base::size::parse_size;
use overdrive_base::time::parse_duration;
use overdrive_io::job::words::{parse_bssplit, parse_distribution};
use overdrive_io::job::{Distribution, SizeShare};
pub(crate) use page::{PageBacking, PageFlags};
pub(crate) use program::program;
pub(crate) use run::{GoalFlags, LogFlags, QueueFlags, WriteFlags};
pub(crate) use search::SearchFlags;
use std::path::PathBuf;
use std::time::Duration;
pub(crate) use swap::{
    OnOff, SwapCommand, SwapFlags, SwapOffFlags, SwapOnFlags, SwapPlanFlags, SwapStatusFlags, SwapWishFlags,
};
pub(crate) use topology::TopologyFlags;

/// Get everything out of fast SSDs: evaluate a drive on this host, and say what limited it.
#[derive(Debug, Parser)]
#[command(name = "overdrive", version, propagate_version = true, term_width = 80)]
#[command(after_help = help::EXIT_CODES)]
pub(crate) struct Flags {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Evaluate a drive: facts, audit, workloads, what limited each, a report
    Evaluate(EvaluateFlags),
    /// Run one workload, or the jobs of a fio job file
    Run(Box<RunFlags>),
    /// Run a command line of DISKSPD, and print its tables
    Diskspd(DiskspdFlags),
    /// Run a command line of SPDK's perf, and print its tables
    SpdkPerf(SpdkPerfFlags),
    /// Audit this host, or another from its capture: what holds a fast drive back, and why
    Audit(AuditFlags),
    /// Plan, apply and take back what the audit advises
    Tune(TuneFlags),
    /// Draw the way from the drives to the processors: links, what they share, the first to be full
    Topology(TopologyFlags),
    /// Measure paging: what a program feels when its memory is larger than DRAM
    Page(PageFlags),
    /// Plan, set up, watch and take away swap on fast drives
    Swap(SwapFlags),
    /// One cell of `page`, told on standard input
    #[command(hide = true)]
    PageWorker,
    /// Run a program in more memory than it has DRAM: the rest is on an SSD
    Extend(ExtendFlags),
    /// What `extend` becomes before it is the program
    #[command(hide = true)]
    ExtendLaunch(LaunchFlags),
    /// Measure how many Redis instances fit inside a latency objective, on DRAM, swap and extended memory
    Density(Box<DensityFlags>),
    /// The first program of a guest of `density --kind vm`
    #[command(hide = true)]
    DensityGuest,
    /// Compute what a server with memory on SSD costs against one without, and each instance on it
    Cost(CostFlags),
    /// Render a stored record again, as text or HTML
    Report(ReportFlags),
    /// Compare two records, workload by workload
    Compare(CompareFlags),
    /// Print shell completions
    Completions {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
    /// Print the man page
    Man,
}

const EVALUATE_EXAMPLES: &str = "\
Examples:
  overdrive evaluate --quick              a minute, on a scratch file here
  overdrive evaluate --dir /mnt/nvme      the drive under /mnt/nvme
  overdrive evaluate /dev/nvme0n1         a device, read only
  overdrive evaluate /dev/nvme0n1 --write-to /dev/nvme0n1
                                          with writes: its data is lost
  overdrive evaluate sim:read=80us        a simulated device
  overdrive evaluate --against OLD.json   and say what changed since
  overdrive evaluate --ablate --quick     what each advised setting does alone";

/// Without TARGET a scratch file of its own is made, written in full, measured and removed.
#[derive(Debug, Args)]
#[command(after_help = help::sizes_and_times(EVALUATE_EXAMPLES))]
pub(crate) struct EvaluateFlags {
    /// A block device, a file, or sim[:KEY=VALUE,...]; without it, a scratch file
    pub(crate) target: Option<String>,
    /// A short evaluation of about a minute: 1 GiB, 3 s for each workload
    #[arg(long)]
    pub(crate) quick: bool,
    /// How long each workload is measured [default: 30s, with --quick 3s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) runtime: Option<Duration>,
    /// How much of the target is used [default: all of TARGET; without one 4GiB, with --quick 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// Where the scratch file is made [default: the current directory]
    #[arg(long, value_name = "DIR", conflicts_with = "target")]
    pub(crate) dir: Option<PathBuf>,
    /// Where record.json and report.html go [default: overdrive-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// An earlier record to compare with
    #[arg(long, value_name = "RECORD")]
    pub(crate) against: Option<PathBuf>,
    /// Print the record as JSON on standard output, and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) access: AccessFlags,
    #[command(flatten)]
    pub(crate) ablate: AblateFlags,
}

/// How a target may be touched.
#[derive(Debug, Clone, Args)]
pub(crate) struct AccessFlags {
    /// Allow writes: name the target again here; what is on it is lost. Repeat it for each of several targets
    #[arg(long, value_name = "TARGET")]
    pub(crate) write_to: Vec<String>,
    /// With --write-to: write even if it holds a file system or a partition table
    #[arg(long, requires = "write_to")]
    pub(crate) wipe: bool,
    /// Go through the page cache, as where direct I/O is not possible
    #[arg(long)]
    pub(crate) buffered: bool,
    /// Where the random numbers start; the same seed gives the same offsets
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

const RUN_EXAMPLES: &str = "\
Examples:
  overdrive run /dev/nvme0n1 --rw randread --bs 4k --iodepth 32
  overdrive run file.dat --ioengine pvsync2 --runtime 10s --json
  overdrive run DEVICE --iodepth 64 --rate-iops 50000 --rate-process poisson
  overdrive run DEVICE --write-to DEVICE --rw randwrite --random-map \\
      --verify write --seed 7
  overdrive run DEVICE --iodepth 64 --objective p99.9=200us
  overdrive run DEVICE --iodepth 64 --sweep
  overdrive run sim --iodepth 8 --runtime 5s
  overdrive run job.fio --output-format fio-json    fio's job file, fio's JSON
  overdrive run job.fio --write-to /dev/nvme0n1     one that writes
  overdrive run DEVICE --rw randrw --save-job > job.fio";

/// Options are spelled as fio spells them.
#[derive(Debug, Args)]
#[command(after_help = help::sizes_and_times(RUN_EXAMPLES))]
pub(crate) struct RunFlags {
    /// Block devices, files, NVMe character devices (/dev/ng0n1), or sim[:KEY=VALUE,...]: the workers are
    /// dealt out over them; or one fio job file
    #[arg(required = true, value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
    /// Reads, writes, both (rw) or trims; in order, or at random (rand...)
    #[arg(long, value_enum, default_value_t = ReadWrite::Randread)]
    pub(crate) rw: ReadWrite,
    /// Share of reads in rw and randrw, in per cent [default: 50]
    #[arg(long, value_name = "PERCENT")]
    pub(crate) rwmixread: Option<u8>,
    /// Bytes of each operation
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = parse_size)]
    #[arg(conflicts_with = "bssplit")]
    pub(crate) bs: u64,
    /// Operations each worker keeps in flight
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) iodepth: u32,
    /// Workers over all targets, each on a CPU of its own as long as there are enough [default: one for each
    /// target]
    #[arg(long, value_name = "N")]
    pub(crate) numjobs: Option<u32>,
    /// Check content: write stamped blocks and read them back, or only read back (same --seed)
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) verify: Option<VerifyFlag>,
    /// How many of its slowest I/Os each worker keeps
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) outliers: u32,
    /// The path an operation takes; nop does nothing, to find the ring's own ceiling [default: io_uring, for
    /// sim: sim, for /dev/ng*: io_uring_cmd]
    #[arg(long, alias = "engine", value_enum, value_name = "ENGINE")]
    pub(crate) ioengine: Option<EngineFlag>,
    /// How long is measured
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) runtime: Duration,
    /// How long it runs before it is measured
    #[arg(long, alias = "ramp_time", value_name = "TIME", default_value = "500ms", value_parser = parse_duration)]
    pub(crate) ramp_time: Duration,
    /// How much of the target is used [default: all of it]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// Spin for completions; needs a device with poll queues
    #[arg(long)]
    pub(crate) hipri: bool,
    /// With --hipri and io_uring or io_uring_cmd: sleep through the first part of each poll (kernel 6.13)
    #[arg(long, alias = "hybrid_poll", requires = "hipri")]
    pub(crate) hybrid_poll: bool,
    /// With io_uring or io_uring_cmd: a thread of the kernel submits, so that submitting takes no system call
    #[arg(long, alias = "sqthread_poll")]
    pub(crate) sqthread_poll: bool,
    /// Print the record as JSON on standard output, and nothing else there
    #[arg(long, conflicts_with_all = front::NO_RECORD)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) front: FrontFlags,
    #[command(flatten)]
    pub(crate) access: AccessFlags,
    #[command(flatten)]
    pub(crate) pattern: PatternFlags,
    #[command(flatten)]
    pub(crate) pace: PaceFlags,
    #[command(flatten)]
    pub(crate) search: SearchFlags,
    #[command(flatten)]
    pub(crate) writes: WriteFlags,
    #[command(flatten)]
    pub(crate) queue: QueueFlags,
    #[command(flatten)]
    pub(crate) goals: GoalFlags,
    #[command(flatten)]
    pub(crate) logs: LogFlags,
}

/// Which blocks, in which order.
#[derive(Debug, Args)]
#[command(next_help_heading = "Blocks and their order")]
pub(crate) struct PatternFlags {
    /// Several block sizes with their shares, such as 4k/60:64k/40
    #[arg(long, value_name = "SIZE/PERCENT:...")]
    #[arg(value_parser = |text: &str| parse_bssplit(text, parse_size).map(Split))]
    pub(crate) bssplit: Option<Split>,
    /// What offsets are multiples of [default: the smallest block size]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) blockalign: Option<u64>,
    /// Where on the target the range that is used begins
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) offset: u64,
    /// Each worker ends after this many bytes
    #[arg(long, alias = "io_size", value_name = "SIZE", value_parser = parse_size)]
    pub(crate) io_size: Option<u64>,
    /// Each worker ends after this many I/Os
    #[arg(long, alias = "number_ios", value_name = "N")]
    pub(crate) number_ios: Option<u64>,
    /// Skip this much after each sequential I/O (fio's rw=read:SIZE)
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    pub(crate) stride: u64,
    /// Which blocks are preferred: random, zipf:THETA, pareto:H, normal:DEVIATION, zoned:ACCESS/SIZE:...
    #[arg(long, alias = "random_distribution", value_name = "LAW", value_parser = parse_distribution)]
    pub(crate) random_distribution: Option<Distribution>,
    /// Of random offsets, draw this share; the others go on where the I/O before ended
    #[arg(long, alias = "percentage_random", value_name = "PERCENT", default_value_t = 100)]
    pub(crate) percentage_random: u8,
    /// Visit each block once before any comes again (fio does unless norandommap is set)
    #[arg(long, alias = "random_map")]
    pub(crate) random_map: bool,
}

/// When I/Os are due. With a rate the loop is open: arrivals keep their schedule whatever the target does.
#[derive(Debug, Args)]
#[command(next_help_heading = "Pace")]
pub(crate) struct PaceFlags {
    /// I/Os a second of each worker
    #[arg(long, alias = "rate_iops", value_name = "N", conflicts_with = "rate")]
    pub(crate) rate_iops: Option<f64>,
    /// Bytes a second of each worker
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) rate: Option<u64>,
    /// The law of arrivals: linear, poisson, or burst:N for N at once [default: linear, in a search: poisson]
    #[arg(long, alias = "rate_process", value_name = "LAW", value_parser = parse_process)]
    pub(crate) rate_process: Option<RateProcess>,
    /// Arrivals from a file: nanoseconds from the start, ascending, one a line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "rate_iops"])]
    pub(crate) arrivals: Option<PathBuf>,
    /// Pause for this long after every --thinktime-blocks I/Os
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with_all = ["rate", "rate_iops", "arrivals"])]
    pub(crate) thinktime: Option<Duration>,
    /// I/Os between two pauses
    #[arg(long, alias = "thinktime_blocks", value_name = "N", default_value_t = 1, requires = "thinktime")]
    pub(crate) thinktime_blocks: u32,
}

/// Block sizes and their shares.
#[derive(Debug, Clone)]
pub(crate) struct Split(pub(crate) Vec<SizeShare>);

/// The law of arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RateProcess {
    Linear,
    Poisson,
    Burst(u32),
}

fn parse_process(text: &str) -> Result<RateProcess, String> {
    let burst = || text.strip_prefix("burst:")?.parse().ok().filter(|&size| size > 0).map(RateProcess::Burst);
    match text {
        "linear" | "constant" => Ok(RateProcess::Linear),
        "poisson" => Ok(RateProcess::Poisson),
        _ => burst().ok_or_else(|| "wanted linear, poisson or burst:N, as in burst:16".to_owned()),
    }
}

/// How content is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerifyFlag {
    /// Write every block once with crc32c headers, then read them all back
    #[value(alias = "crc32c")]
    Write,
    /// Write every block once, for a later run to read back
    WriteOnly,
    /// Only read back
    Read,
}

/// Workloads in fio's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReadWrite {
    Read,
    Write,
    Randread,
    Randwrite,
    Rw,
    Randrw,
    Trim,
    Randtrim,
}

/// Engines a user may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineFlag {
    /// The kernel's ring, with every speed-up it grants
    #[value(name = "io_uring")]
    IoUring,
    /// NVMe commands past the block layer, on a character device such as /dev/ng0n1
    #[value(name = "io_uring_cmd", alias = "uring-cmd")]
    IoUringCmd,
    /// preadv2 and pwritev2, one I/O at a time
    Pvsync2,
    /// pread and pwrite, one I/O at a time
    Psync,
    /// The kernel's older asynchronous I/O
    Libaio,
    /// Copies from and to the mapped file, through the page cache
    Mmap,
    /// A device in memory and virtual time
    Sim,
    /// The ring without I/O
    Nop,
}

const AUDIT_EXAMPLES: &str = "\
Examples:
  overdrive audit                             this host, and the disk used here
  overdrive audit --target /dev/nvme0n1 --json
  overdrive audit --explain block-wbt         all there is to say of one rule
  overdrive audit --capture host.tree         all that an audit reads, as a file
  overdrive audit --from-capture host.tree    the same findings, anywhere

The exit code is 1 when a rule found a problem.";

/// Only reads. Ends with 1 when there is a problem.
#[derive(Debug, Args)]
#[command(after_help = AUDIT_EXAMPLES)]
pub(crate) struct AuditFlags {
    #[command(flatten)]
    pub(crate) scope: ScopeFlags,
    /// Write everything that is read to this file instead of judging it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from_capture", "json", "explain"])]
    pub(crate) capture: Option<PathBuf>,
    /// Audit the host that this file was captured on
    #[arg(long, value_name = "FILE", conflicts_with = "root")]
    pub(crate) from_capture: Option<PathBuf>,
    /// Print the findings and facts as JSON on standard output, and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
    /// Explain one rule: what it looks at, why, and what it found here
    #[arg(long, value_name = "RULE", conflicts_with = "json")]
    pub(crate) explain: Option<String>,
}

/// What is audited, and for which use.
#[derive(Debug, Args)]
pub(crate) struct ScopeFlags {
    /// What the disk is used for
    #[arg(long, value_enum, default_value_t = ProfileFlag::Storage)]
    pub(crate) profile: ProfileFlag,
    /// A block device, a file or a directory [default: the disk under the current directory]
    #[arg(long, value_name = "DEVICE|PATH")]
    pub(crate) target: Option<String>,
    /// Read this directory in place of /: a copy of another host's files
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
}

/// The two uses of a fast disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileFlag {
    /// Files and block devices
    Storage,
    /// Swap and memory extension
    Memory,
}

const TUNE_EXAMPLES: &str = "\
Examples:
  overdrive tune plan                         what would be changed, and why
  overdrive tune plan --shell > tune.sh       a script to read and to run
  overdrive tune apply --rules block-wbt      one rule's fix
  overdrive tune apply --class B --persist    with side effects, over a reboot
  overdrive tune status
  overdrive tune undo                         the last set
  overdrive tune undo 1                       set 1, whatever came after it";

/// Every change is written down before it is made, read back after, and can be taken back.
#[derive(Debug, Args)]
#[command(after_help = TUNE_EXAMPLES)]
pub(crate) struct TuneFlags {
    #[command(subcommand)]
    pub(crate) command: TuneCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TuneCommand {
    /// Say what would be changed; changes nothing
    Plan(PlanFlags),
    /// Make the planned changes, as a set that can be taken back
    Apply(ApplyFlags),
    /// Say which changes stand, and what somebody else has changed since
    Status(StatusFlags),
    /// Take a set of changes back
    Undo(UndoFlags),
}

/// Which fixes.
#[derive(Debug, Args)]
pub(crate) struct ChoiceFlags {
    #[command(flatten)]
    pub(crate) scope: ScopeFlags,
    /// Only what these rules advise, by name
    #[arg(long, value_name = "RULE,...", value_delimiter = ',')]
    pub(crate) rules: Option<Vec<String>>,
    /// The highest class of changes: A is safe, B has side effects; C is never applied
    #[arg(long, value_enum, ignore_case = true, default_value_t = ClassFlag::A)]
    pub(crate) class: ClassFlag,
    /// Keep the changes over a reboot: Overdrive's own files for sysctl.d, udev, modprobe.d, tmpfiles.d and
    /// systemd
    #[arg(long)]
    pub(crate) persist: bool,
    /// Print JSON on standard output, and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) state: StateFlags,
}

/// Classes that may be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClassFlag {
    /// Safe
    A,
    /// With side effects
    B,
}

/// Where the journal is.
#[derive(Debug, Args)]
pub(crate) struct StateFlags {
    /// The directory of the journal of changes [default: /var/lib/overdrive]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(mut_arg("state", help::below_root))]
pub(crate) struct PlanFlags {
    #[command(flatten)]
    pub(crate) choice: ChoiceFlags,
    /// Print a shell script that makes the changes and can undo them
    #[arg(long, conflicts_with = "json")]
    pub(crate) shell: bool,
}

#[derive(Debug, Args)]
#[command(mut_arg("state", help::below_root), mut_arg("root", help::changed_root))]
pub(crate) struct ApplyFlags {
    #[command(flatten)]
    pub(crate) choice: ChoiceFlags,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Also write to the queue of a disk that is busy or swapped to: its requests wait meanwhile
    #[arg(long)]
    pub(crate) even_if_busy: bool,
}

#[derive(Debug, Args)]
#[command(mut_arg("state", help::below_root))]
pub(crate) struct StatusFlags {
    /// The directory whose files were changed in place of those of /
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    #[command(flatten)]
    pub(crate) state: StateFlags,
    /// Print JSON on standard output, and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UndoFlags {
    /// The number of the set, as `tune status` shows it [default: the last one that stands]
    pub(crate) set: Option<u64>,
    /// Take every set back, the last one first
    #[arg(long, conflicts_with = "set")]
    pub(crate) all: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) status: StatusFlags,
}

/// A value of an option as the user writes it.
pub(crate) fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Refuses a list that names something twice: it would be measured twice and shown once.
pub(crate) fn each_once(option: &str, words: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for word in words {
        if seen.contains(&word) {
            refuse!("{option} names {word} twice: wanted each once");
        }
        seen.insert(word);
    }
    Ok(())
}

/// A record is what evaluate and run write: record.json.
#[derive(Debug, Args)]
pub(crate) struct ReportFlags {
    /// The record to render: record.json, or the density.json of a density run
    pub(crate) record: PathBuf,
    /// Write the HTML report to this file instead of printing text
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print the record as JSON, brought up to the newest schema
    #[arg(long, conflicts_with = "html")]
    pub(crate) json: bool,
    /// Write the latencies to this file as an HdrHistogram log, for tools that read that format
    #[arg(long, value_name = "FILE", conflicts_with_all = ["html", "json"])]
    pub(crate) hlog: Option<PathBuf>,
}

/// Says for each workload both have whether the difference exceeds the noise.
#[derive(Debug, Args)]
pub(crate) struct CompareFlags {
    /// The older record
    pub(crate) old: PathBuf,
    /// The newer record
    pub(crate) new: PathBuf,
    /// Print the comparison as JSON on standard output, and nothing else there
    #[arg(long)]
    pub(crate) json: bool,
    /// End with 1 when a figure of NEW is worse by more than noise
    #[arg(long)]
    pub(crate) exit_code: bool,
}
