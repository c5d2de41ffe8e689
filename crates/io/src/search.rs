//! Searching loads: the highest rate that holds a latency objective, and where a curve of latency against
//! load bends.
//!
//! Here stands only what to try next and what a measurement says; running it is the caller's. Both machines
//! are fed with results and are the same on a drive and on paper, so that they can be tested where the right
//! answer is known.

use crate::outcome::Outcome;
use overdrive_base::time::{DurationError, parse_latency};
use overdrive_hist::{Estimate, Histogram};
use thiserror::Error;

/// What users are promised: a share of the I/Os is answered within a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Objective {
    /// The share in per cent, such as 99.9.
    pub percentile: f64,
    /// The time in nanoseconds, from when an I/O was due.
    pub limit_ns: u64,
}

/// A text that is no objective.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ObjectiveError {
    /// Not a percentile and a time.
    #[error("'{0}': wanted pPERCENTILE=TIME, as in p99.9=200us")]
    Form(String),
    /// Nothing takes no time.
    #[error("'{0}': nothing takes no time; wanted a limit above 0, as in p99.9=200us")]
    Zero(String),
    /// The time cannot be read, or has no unit.
    #[error("'{0}': {1}")]
    Limit(String, DurationError),
}

impl std::str::FromStr for Objective {
    type Err = ObjectiveError;

    fn from_str(text: &str) -> Result<Self, ObjectiveError> {
        let form = || ObjectiveError::Form(text.to_owned());
        let (percentile, limit) =
            text.strip_prefix('p').and_then(|rest| rest.split_once('=')).ok_or_else(form)?;
        let percentile: f64 =
            percentile.parse().ok().filter(|p| (1.0..100.0).contains(p)).ok_or_else(form)?;
        let limit = parse_latency(limit).map_err(|error| ObjectiveError::Limit(text.to_owned(), error))?;
        let zero = || ObjectiveError::Zero(text.to_owned());
        let limit_ns = u64::try_from(limit.as_nanos()).ok().filter(|&ns| ns > 0).ok_or_else(zero)?;
        Ok(Self { percentile, limit_ns })
    }
}

impl Objective {
    /// I/Os that a judgement needs: ten of them beyond the percentile.
    #[must_use]
    pub fn samples_wanted(&self) -> f64 {
        10.0 / (1.0 - self.percentile / 100.0)
    }

    /// Judges what one load gave.
    #[must_use]
    pub fn judge(&self, outcome: &Outcome) -> Judgement {
        let failures = outcome.errors.values().map(|error| error.count).sum::<u64>() + outcome.short_ios;
        if failures > 0 {
            return Judgement::Errors(failures);
        }
        if !keeps_rate(outcome) {
            return Judgement::Rate;
        }
        let response = response(outcome);
        match response.estimate(self.percentile / 100.0) {
            Estimate::Measured { value, .. } if value <= self.limit_ns => Judgement::Holds(value),
            Estimate::AtLeast(bound) if bound <= self.limit_ns => Judgement::TooFew(response.count()),
            Estimate::Measured { value, .. } | Estimate::AtLeast(value) => self.blame(outcome, value),
            Estimate::Unknown => Judgement::TooFew(response.count()),
        }
    }

    /// Which part of the response time is too long.
    fn blame(&self, outcome: &Outcome, value_ns: u64) -> Judgement {
        let mut service = outcome.read.latency.clone();
        service.merge(&outcome.write.latency);
        let service_ns = service.value_at(self.percentile / 100.0).unwrap_or(0);
        if service_ns > self.limit_ns {
            Judgement::Service { value_ns, service_ns }
        } else {
            Judgement::Waiting { value_ns, service_ns }
        }
    }
}

/// What a load did to an objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// It holds, with this value in nanoseconds.
    Holds(u64),
    /// The target itself answers too slowly at this load; both at the percentile, in nanoseconds.
    Service {
        /// From when I/Os were due.
        value_ns: u64,
        /// From when they were started.
        service_ns: u64,
    },
    /// The target would answer in time, but I/Os wait for a free slot of the queue.
    Waiting {
        /// From when I/Os were due.
        value_ns: u64,
        /// From when they were started.
        service_ns: u64,
    },
    /// The target does not keep the rate.
    Rate,
    /// So many I/Os failed.
    Errors(u64),
    /// So many I/Os are too few to know the percentile.
    TooFew(u64),
}

impl Judgement {
    /// Whether the objective is known to hold.
    #[must_use]
    pub fn holds(self) -> bool {
        matches!(self, Self::Holds(_))
    }
}

/// Response times of reads and writes together, and what those that were never started had waited: users wait
/// for them too. Service times where nothing says when an I/O was due.
#[must_use]
pub fn response(outcome: &Outcome) -> Histogram {
    let mut all = Histogram::new();
    for tally in [&outcome.read, &outcome.write] {
        all.merge(tally.response.as_ref().unwrap_or(&tally.latency));
    }
    if let Some(schedule) = &outcome.schedule {
        all.merge(&schedule.unstarted);
    }
    all
}

/// More than this share of the arrivals not even started: the rate was not kept.
const UNSTARTED_MAX: f64 = 0.01;

/// Whether a load was started at the rate at which it was due.
#[must_use]
pub fn keeps_rate(outcome: &Outcome) -> bool {
    let unstarted = outcome.schedule.as_ref().map_or(0, |schedule| schedule.unstarted.count());
    unstarted as f64 <= UNSTARTED_MAX * (outcome.ios() + unstarted) as f64
}

/// The highest rate that holds, by bisection between one that holds and one that does not.
#[derive(Debug, Clone)]
pub struct RateSearch {
    ceiling: f64,
    holds: f64,
    fails: f64,
    tried: u32,
}

/// The edge is known to this share of the rate.
const PRECISION: f64 = 0.01;
/// Below this share of the ceiling no load is worth having.
const LEAST_SHARE: f64 = 1e-3;
/// More steps than bisection can need.
const STEPS_MAX: u32 = 40;

impl RateSearch {
    /// A search below `ceiling` I/Os a second: what the target gives when nothing holds it back.
    #[must_use]
    pub fn below(ceiling: f64) -> Self {
        Self { ceiling, holds: 0.0, fails: ceiling * (1.0 + PRECISION), tried: 0 }
    }

    /// The rate to try next; none when the edge is known.
    #[must_use]
    pub fn next_rate(&self) -> Option<f64> {
        let narrow = self.fails - self.holds <= PRECISION * self.fails;
        if narrow || self.tried >= STEPS_MAX || self.fails < self.ceiling * LEAST_SHARE {
            return None;
        }
        if self.tried == 0 {
            return Some(self.ceiling / 2.0);
        }
        // Down in steps of four until something holds: the edge may lie decades below the ceiling.
        Some(if self.holds == 0.0 { self.fails / 4.0 } else { f64::midpoint(self.holds, self.fails) })
    }

    /// What a rate gave. A rate that fails although a higher one held moves the edge below it: noise is no
    /// reason to promise more.
    pub fn tell(&mut self, rate: f64, holds: bool) {
        self.tried += 1;
        if holds && rate < self.fails {
            self.holds = self.holds.max(rate);
        } else if !holds {
            self.fails = self.fails.min(rate);
            if self.holds >= self.fails {
                self.holds = 0.0;
            }
        }
    }

    /// The highest rate that held; none when none did.
    #[must_use]
    pub fn found(&self) -> Option<f64> {
        (self.holds > 0.0).then_some(self.holds)
    }

    /// Whether the edge is the target's own ceiling.
    #[must_use]
    pub fn at_ceiling(&self) -> bool {
        self.found().is_some() && self.fails >= self.ceiling
    }
}

/// Loads that a curve begins with, as shares of the ceiling.
const FIRST_LOADS: [f64; 4] = [0.1, 0.5, 0.8, 0.95];
/// A load this close to one of them stands for it.
const NEAR: f64 = 0.04;
/// A curve that rises by less than this factor does not bend.
const LEAST_RISE: f64 = 1.5;
/// Loads closer together than this share of the ceiling tell nothing more.
const NARROWEST: f64 = 0.005;

/// The load to try next for a curve of latency against load: into the gap where the curve bends most for its
/// length. Points are (share of the ceiling, latency in nanoseconds), in any order.
///
/// None when every gap is too narrow to bear another point.
#[must_use]
pub fn next_load(points: &[(f64, f64)]) -> Option<f64> {
    let missing = |load: &&f64| points.iter().all(|point| (point.0 - **load).abs() > NEAR);
    if let Some(first) = FIRST_LOADS.iter().find(missing) {
        return Some(*first);
    }
    let mut points = points.to_vec();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let curve = normalised(&points);
    let turn = |at: usize| -> f64 {
        if at == 0 || at + 1 >= curve.len() {
            return 0.0;
        }
        let angle = |a: (f64, f64), b: (f64, f64)| (b.1 - a.1).atan2(b.0 - a.0);
        (angle(curve[at], curve[at + 1]) - angle(curve[at - 1], curve[at])).abs()
    };
    let worth = |gap: usize| {
        let (a, b) = (curve[gap], curve[gap + 1]);
        // A straight gap counts a little too, so that long ones do not stay empty.
        (b.0 - a.0).hypot(b.1 - a.1) * (turn(gap) + turn(gap + 1) + 0.2)
    };
    let wide = (0..curve.len() - 1).filter(|&gap| points[gap + 1].0 - points[gap].0 > 2.0 * NARROWEST);
    let best = wide.max_by(|&a, &b| worth(a).total_cmp(&worth(b)))?;
    Some(f64::midpoint(points[best].0, points[best + 1].0))
}

/// The point of a curve from which on more load costs more than it gives: farthest below the line between
/// its ends, latency on a logarithmic scale. None for fewer than three points, or a curve that never bends.
#[must_use]
pub fn knee(points: &[(f64, f64)]) -> Option<usize> {
    let order = {
        let mut order: Vec<usize> = (0..points.len()).collect();
        order.sort_by(|&a, &b| points[a].0.total_cmp(&points[b].0));
        order
    };
    let sorted: Vec<(f64, f64)> = order.iter().map(|&at| points[at]).collect();
    let latencies = || sorted.iter().map(|point| point.1);
    if latencies().fold(0.0, f64::max) < LEAST_RISE * latencies().fold(f64::INFINITY, f64::min) {
        return None;
    }
    let curve = normalised(&sorted);
    let below = |at: &usize| curve[*at].0 - curve[*at].1;
    let best = (1..curve.len().saturating_sub(1)).max_by(|a, b| below(a).total_cmp(&below(b)))?;
    (below(&best) > 0.1).then_some(order[best])
}

/// Load and the logarithm of latency, each from 0 to 1.
fn normalised(sorted: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let logs: Vec<f64> = sorted.iter().map(|point| point.1.max(1.0).ln()).collect();
    let low = logs.iter().copied().fold(f64::INFINITY, f64::min);
    let high = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (first, last) = (sorted.first().map_or(0.0, |p| p.0), sorted.last().map_or(1.0, |p| p.0));
    let share = |value: f64, low: f64, high: f64| if high > low { (value - low) / (high - low) } else { 0.0 };
    sorted.iter().zip(&logs).map(|(p, &log)| (share(p.0, first, last), share(log, low, high))).collect()
}

#[cfg(test)]
mod tests;
