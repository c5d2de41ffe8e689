//! The flags of `run` that try many loads instead of one.

use clap::Args;
use overdrive_base::time::format_ns;
use overdrive_io::search::Objective;

/// What no search leaves to the user: it decides when I/Os are due, and how long each load runs.
const OTHERS: [&str; 7] = ["rate", "rate_iops", "arrivals", "thinktime", "verify", "io_size", "number_ios"];

/// Searches: open loops at one load after the other, each measured for --runtime, below the rate of a closed
/// loop at --iodepth.
#[derive(Debug, Args)]
#[command(next_help_heading = "Searches")]
pub(crate) struct SearchFlags {
    /// Find the highest rate at which this holds, in time from when I/Os are due; such as p99.9=200us, the
    /// time with its unit
    #[arg(long, value_name = "pPERCENTILE=TIME", conflicts_with_all = OTHERS)]
    pub(crate) objective: Option<Objective>,
    /// Latency against load, at this many loads [default: 12], closest where the curve bends
    #[arg(long, value_name = "LOADS", num_args = 0..=1, require_equals = true, default_missing_value = "12",
          value_parser = clap::value_parser!(u32).range(4..=200), conflicts_with_all = OTHERS)]
    pub(crate) sweep: Option<u32>,
    /// With --rw randrw or rw: latency over N rates of reads by N rates of writes [default: 5]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "5",
          value_parser = clap::value_parser!(u32).range(2..=20), conflicts_with_all = OTHERS,
          conflicts_with_all = ["objective", "sweep"])]
    pub(crate) surface: Option<u32>,
}

impl SearchFlags {
    /// Whether there is anything to search.
    pub(crate) fn any(&self) -> bool {
        self.option().is_some()
    }

    /// The option that asks for a search.
    pub(crate) fn option(&self) -> Option<&'static str> {
        let objective = self.objective.map(|_| "--objective");
        objective.or(self.sweep.map(|_| "--sweep")).or(self.surface.map(|_| "--surface"))
    }

    /// What is searched for, in a line.
    pub(crate) fn told(&self) -> Option<String> {
        let objective = self.objective.map(|objective| {
            let limit = format_ns(objective.limit_ns);
            format!("the highest rate with p{} within {limit}", objective.percentile)
        });
        let sweep = self.sweep.map(|loads| format!("latency against load at {loads} loads"));
        let surface =
            self.surface.map(|side| format!("latency at {side} rates of reads by {side} of writes"));
        let all: Vec<String> = [objective, sweep, surface].into_iter().flatten().collect();
        (!all.is_empty()).then(|| format!("search: {}", all.join(", then ")))
    }
}
