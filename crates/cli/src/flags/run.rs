//! The words of `overdrive run` that few workloads need: what writes carry and how durable they are, the page
//! cache, batches.

use clap::{ArgAction, ArgGroup, Args};
use overdrive_base::size::parse_size;
use overdrive_base::time::parse_duration;
use overdrive_io::job::words::{
    WordError, parse_advice, parse_buffer_pattern, parse_percentiles, parse_steady_state, parse_sync,
};
use overdrive_io::job::{Advice, SyncMode};
use overdrive_io::steady::{Figure, Limit, Test};
use std::time::Duration;

/// What writes carry, and when they are durable.
#[derive(Debug, Args)]
#[command(next_help_heading = "Writes")]
pub(crate) struct WriteFlags {
    /// fsync after every N writes of a worker
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) fsync: Option<u32>,
    /// fdatasync after every N writes of a worker
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) fdatasync: Option<u32>,
    /// Every write is durable when it is done: none, sync (O_SYNC) or dsync (O_DSYNC)
    #[arg(long, value_name = "HOW", default_value = "none", value_parser = parse_sync)]
    pub(crate) sync: SyncMode,
    /// New random bytes for every write
    #[arg(long, alias = "refill_buffers")]
    pub(crate) refill_buffers: bool,
    /// Write these bytes over and over: "text", 0xHEX or a number
    #[arg(long, alias = "buffer_pattern", value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) buffer_pattern: Option<Bytes>,
    /// Write zeroes
    #[arg(long, alias = "zero_buffers", conflicts_with = "buffer_pattern")]
    pub(crate) zero_buffers: bool,
    /// How much of each write can be compressed away, in per cent
    #[arg(long, alias = "buffer_compress_percentage", value_name = "PERCENT")]
    pub(crate) buffer_compress_percentage: Option<u8>,
    /// Compressible in chunks of this size [default: the whole block]
    #[arg(long, alias = "buffer_compress_chunk", value_name = "SIZE", value_parser = parse_size,
        requires = "buffer_compress_percentage")]
    pub(crate) buffer_compress_chunk: Option<u64>,
}

/// The page cache, batches and the start.
#[derive(Debug, Args)]
#[command(next_help_heading = "Page cache and queue")]
pub(crate) struct QueueFlags {
    /// 1 goes past the page cache, 0 through it (as --buffered)
    #[arg(long, action = ArgAction::Set, value_name = "0|1", default_value = "1", value_parser = parse_switch)]
    pub(crate) direct: bool,
    /// Through the page cache, tell the kernel the order of accesses: 1 as they are, 0 nothing, random,
    /// sequential
    #[arg(long, alias = "fadvise_hint", value_name = "ORDER", default_value = "1", value_parser = parse_advice)]
    pub(crate) fadvise_hint: Advice,
    /// Through the page cache, drop what it holds of the target first
    #[arg(long, action = ArgAction::Set, value_name = "0|1", default_value = "1", value_parser = parse_switch)]
    pub(crate) invalidate: bool,
    /// Through the page cache, read all of the target into it first
    #[arg(long, alias = "pre_read")]
    pub(crate) pre_read: bool,
    /// I/Os handed over at once [default: an eighth of the depth]
    #[arg(long, aliases = ["iodepth_batch", "iodepth_batch_submit", "iodepth-batch-submit"], value_name = "N")]
    pub(crate) iodepth_batch: Option<u32>,
    /// Completions waited for at once [default: 1]
    #[arg(long, value_name = "N", aliases = ["iodepth_batch_complete", "iodepth_batch_complete_min",
        "iodepth-batch-complete-min"])]
    pub(crate) iodepth_batch_complete: Option<u32>,
    /// Fill the queue again only when no more than this many are in flight [default: after each completion]
    #[arg(long, alias = "iodepth_low", value_name = "N")]
    pub(crate) iodepth_low: Option<u32>,
    /// Wait for this long before anything happens
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    pub(crate) startdelay: Duration,
}

/// The logs that have a line for each I/O or window: what some options of logs are about.
const LINE_LOGS: [&str; 3] = ["write_lat_log", "write_bw_log", "write_iops_log"];

/// Logs in fio's file format.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logs")]
#[command(group(ArgGroup::new("line_logs").args(LINE_LOGS).multiple(true)))]
#[command(group(ArgGroup::new("any_log").args(LINE_LOGS).arg("write_hist_log").multiple(true)))]
pub(crate) struct LogFlags {
    /// Log the latency of I/Os to PREFIX_lat.N.log, N the worker
    #[arg(long, alias = "write_lat_log", value_name = "PREFIX")]
    pub(crate) write_lat_log: Option<String>,
    /// Log the bandwidth to PREFIX_bw.N.log, in KiB/s
    #[arg(long, alias = "write_bw_log", value_name = "PREFIX")]
    pub(crate) write_bw_log: Option<String>,
    /// Log the rate of I/Os to PREFIX_iops.N.log
    #[arg(long, alias = "write_iops_log", value_name = "PREFIX")]
    pub(crate) write_iops_log: Option<String>,
    /// Log histograms of the latency over time to PREFIX_hist.N.hlog, as HdrHistogram's tools read them
    #[arg(long, alias = "write_hist_log", value_name = "PREFIX")]
    pub(crate) write_hist_log: Option<String>,
    /// One histogram for each window of this many milliseconds [default: 1000]
    #[arg(long, alias = "log_hist_msec", value_name = "N", requires = "write_hist_log",
        value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub(crate) log_hist_msec: Option<u64>,
    /// Log a line for each window of this many milliseconds instead of each I/O
    #[arg(long, alias = "log_avg_msec", value_name = "N", requires = "line_logs",
        value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub(crate) log_avg_msec: Option<u64>,
    /// Log the largest latency of each window instead of the mean
    #[arg(long, alias = "log_max_value", requires = "log_avg_msec")]
    pub(crate) log_max_value: bool,
    /// Log the offset of each I/O too
    #[arg(long, alias = "log_offset", requires = "line_logs")]
    pub(crate) log_offset: bool,
    /// Log all workers into one file: PREFIX_lat.log
    #[arg(long, requires = "any_log")]
    pub(crate) log_shared: bool,
}

/// What the run looks for, and what it reports.
#[derive(Debug, Args)]
#[command(next_help_heading = "Goals and percentiles")]
pub(crate) struct GoalFlags {
    /// Find the greatest depth, up to --iodepth, that keeps this latency
    #[arg(long, alias = "latency_target", value_name = "TIME", value_parser = parse_duration)]
    pub(crate) latency_target: Option<Duration>,
    /// How long each depth is tried
    #[arg(long, alias = "latency_window", value_name = "TIME", default_value = "1s", value_parser = parse_duration,
        requires = "latency_target")]
    pub(crate) latency_window: Duration,
    /// The share of I/Os that must keep --latency-target, in per cent
    #[arg(
        long,
        alias = "latency_percentile",
        value_name = "PERCENT",
        default_value_t = 100.0,
        requires = "latency_target"
    )]
    pub(crate) latency_percentile: f64,
    /// Go on at the depth that was found until --runtime is over
    #[arg(long, alias = "latency_run", requires = "latency_target")]
    pub(crate) latency_run: bool,
    /// End when steady: iops, bw or lat, or with _slope, and a limit, such as iops_slope:0.3%
    #[arg(long, aliases = ["ss", "steady-state", "steady_state"], value_name = "FIGURE:LIMIT", value_parser = parse_steady_state)]
    pub(crate) steadystate: Option<(Figure, Test, Limit)>,
    /// How long it must be steady
    #[arg(long, aliases = ["ss_dur", "steadystate_duration"], requires = "steadystate",
        value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub(crate) ss_dur: Duration,
    /// Look for --steadystate only after this
    #[arg(long, aliases = ["ss_ramp", "steadystate_ramp_time"], requires = "steadystate",
        value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    pub(crate) ss_ramp: Duration,
    /// How often a value is taken for --steadystate
    #[arg(long, aliases = ["ss_interval", "steadystate_check_interval"], requires = "steadystate",
        value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub(crate) ss_interval: Duration,
    /// Percentiles to report besides the usual ones, such as 97.5:99.5
    #[arg(long, alias = "percentile_list", value_name = "P:...", value_parser = parse_list)]
    pub(crate) percentile_list: Option<Percentiles>,
}

impl GoalFlags {
    /// Whether the run looks for anything.
    pub(crate) fn any(&self) -> bool {
        self.latency_target.is_some() || self.steadystate.is_some()
    }
}

impl LogFlags {
    /// Whether there is a log.
    pub(crate) fn any(&self) -> bool {
        [&self.write_lat_log, &self.write_bw_log, &self.write_iops_log, &self.write_hist_log]
            .iter()
            .any(|prefix| prefix.is_some())
    }
}

/// Percentiles given on the command line.
#[derive(Debug, Clone)]
pub(crate) struct Percentiles(pub(crate) Vec<f64>);

fn parse_list(text: &str) -> Result<Percentiles, WordError> {
    parse_percentiles(text).map(Percentiles)
}

/// Bytes given on the command line.
#[derive(Debug, Clone)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

fn parse_bytes(text: &str) -> Result<Bytes, WordError> {
    parse_buffer_pattern(text).map(Bytes)
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err("wanted 0 or 1".to_owned()),
    }
}
