//! One load of a search, copied into the wire types, and what is said of an objective's edge.

use overdrive_base::time::format_ns;
use overdrive_hist::Estimate;
use overdrive_io::outcome::Outcome;
use overdrive_io::search::{self, Judgement, Objective};
use overdrive_report::record as wire;

/// A load that was tried.
pub(crate) struct Load {
    /// Arrivals a second over all workers.
    pub(crate) asked: f64,
    /// How many of them write, for a surface.
    pub(crate) asked_writes: Option<f64>,
    pub(crate) judgement: Option<Judgement>,
}

/// A percentile of the response times, or the bound that few samples allow, in nanoseconds.
pub(crate) fn response_at(outcome: &Outcome, percentile: f64) -> Option<u64> {
    match search::response(outcome).estimate(percentile / 100.0) {
        Estimate::Measured { value, .. } | Estimate::AtLeast(value) => Some(value),
        Estimate::Unknown => None,
    }
}

/// The wire form of a load.
pub(crate) fn point(load: &Load, outcome: &Outcome, objective: Option<&Objective>) -> wire::LoadPoint {
    let surface = load.asked_writes.is_some();
    let side = |tally| surface.then(|| super::direction(tally, outcome, &[])).flatten();
    let histogram = search::response(outcome);
    let mut response = wire::Latency::from_histogram(&histogram);
    if let (Some(response), Some(objective)) = (&mut response, objective) {
        response.add_percentiles(&histogram, &[objective.percentile]);
    }
    let value = objective.and_then(|objective| response.as_ref()?.percentile(objective.percentile)?.value_ns);
    wire::LoadPoint {
        asked_iops: load.asked,
        asked_write_iops: load.asked_writes,
        iops: outcome.iops(),
        elapsed_s: outcome.elapsed.as_secs_f64(),
        unstarted: outcome.schedule.as_ref().map_or(0, |schedule| schedule.unstarted.count()),
        response,
        value_ns: value,
        read: side(&outcome.read),
        write: side(&outcome.write),
        kept: search::keeps_rate(outcome),
        holds: load.judgement.map(Judgement::holds),
        why: load.judgement.and_then(in_short),
    }
}

/// A latency with its unit, to three digits, as reports spell it.
pub(crate) fn time(nanoseconds: u64) -> String {
    format_ns(nanoseconds).replace(" us", " µs")
}

/// A few words for a table.
fn in_short(judgement: Judgement) -> Option<String> {
    let words = match judgement {
        Judgement::Holds(_) => return None,
        Judgement::Service { .. } => "target slow",
        Judgement::Waiting { .. } => "queue full",
        Judgement::Rate => "rate lost",
        Judgement::Errors(_) => "errors",
        Judgement::TooFew(_) => "too few I/Os",
    };
    Some(words.to_owned())
}

/// One sentence on what the edge is made of: at which rate it failed, and why.
pub(crate) fn at_the_edge(objective: &Objective, rate: f64, judgement: Judgement, slots: u32) -> String {
    let p = objective.percentile;
    let why = match judgement {
        Judgement::Holds(value) => format!("p{p} is {}", time(value)),
        Judgement::Service { value_ns, service_ns } => {
            format!("p{p} is {}: the target itself takes {} to answer", time(value_ns), time(service_ns))
        }
        Judgement::Waiting { value_ns, service_ns } => format!(
            "p{p} is {}: the target answers within {}, but I/Os wait for one of {slots} slots (--iodepth) or for a \
             busy worker (--numjobs)",
            time(value_ns),
            time(service_ns)
        ),
        Judgement::Rate => "the target no longer keeps the rate".to_owned(),
        Judgement::Errors(count) => format!("{count} I/Os fail"),
        Judgement::TooFew(count) => {
            format!("{count} I/Os are too few to know p{p}: a longer --runtime gives more")
        }
    };
    format!("At {rate:.0} I/Os a second {why}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_keep_their_digits() {
        assert_eq!(
            [403, 403_000, 2_500_000, 1_000_000_000].map(time),
            ["403 ns", "403 µs", "2.50 ms", "1.00 s"]
        );
    }

    #[test]
    fn the_edge_is_told_with_its_figures() {
        let objective = Objective { percentile: 99.9, limit_ns: 200_000 };
        let slow = Judgement::Service { value_ns: 403_000, service_ns: 390_000 };
        let told = at_the_edge(&objective, 3330.4, slow, 32);
        assert_eq!(told, "At 3330 I/Os a second p99.9 is 403 µs: the target itself takes 390 µs to answer.");
        let waiting = Judgement::Waiting { value_ns: 403_000, service_ns: 90_000 };
        assert!(at_the_edge(&objective, 1.0, waiting, 32).contains("one of 32 slots"));
    }
}
