//! What the latency must be, and where it is not.

use overdrive_base::time::{format_ns, parse_latency};
use overdrive_hist::Histogram;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A text that is no objective.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "'{text}' is no objective: {reason}; wanted such as avg=50us,p99=300us (avg, p50, p95, p99, p99.9, max)"
)]
pub struct ObjectiveError {
    text: String,
    reason: String,
}

/// A figure of a latency distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Figure {
    /// The mean.
    Average,
    /// A percentile, 0 to 100.
    Percentile(f64),
    /// The largest of all.
    Max,
}

/// The figures shown for every distribution, in their order.
pub const FIGURES: [Figure; 6] = [
    Figure::Average,
    Figure::Percentile(50.0),
    Figure::Percentile(95.0),
    Figure::Percentile(99.0),
    Figure::Percentile(99.9),
    Figure::Max,
];

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Figure::Average => write!(f, "avg"),
            Figure::Percentile(percentile) => write!(f, "p{percentile}"),
            Figure::Max => write!(f, "max"),
        }
    }
}

impl FromStr for Figure {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "avg" | "mean" => return Ok(Figure::Average),
            "max" => return Ok(Figure::Max),
            _ => {}
        }
        let percentile = text.strip_prefix('p').and_then(|number| number.parse::<f64>().ok());
        match percentile.filter(|percentile| *percentile > 0.0 && *percentile < 100.0) {
            Some(percentile) => Ok(Figure::Percentile(percentile)),
            None => Err(format!("'{text}' is no figure of a latency")),
        }
    }
}

impl Figure {
    /// The figure of a distribution, in nanoseconds; none when nothing was recorded.
    #[must_use]
    pub fn of(&self, histogram: &Histogram) -> Option<u64> {
        match self {
            Figure::Average => histogram.mean().map(|mean| mean.round() as u64),
            Figure::Percentile(percentile) => histogram.value_at(percentile / 100.0),
            Figure::Max => histogram.max(),
        }
    }

    /// Whether the distribution has samples enough for the figure to mean something: ten beyond it.
    #[must_use]
    pub fn has_samples(&self, histogram: &Histogram) -> bool {
        match self {
            // A hair of slack for what floating point makes of 1 - 0.9999.
            Figure::Percentile(percentile) => {
                histogram.count() as f64 * (1.0 - percentile / 100.0) >= 10.0 - 1e-6
            }
            Figure::Average | Figure::Max => histogram.count() > 0,
        }
    }
}

/// Limits that all must be kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Objective {
    /// Each figure with its limit in nanoseconds.
    pub limits: Vec<(Figure, u64)>,
}

/// A limit that was not kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Miss {
    /// Which.
    pub figure: Figure,
    /// What it is, in nanoseconds.
    pub found_ns: u64,
    /// What it may be, in nanoseconds.
    pub limit_ns: u64,
}

impl Miss {
    /// How many times too much it is.
    #[must_use]
    pub fn excess(&self) -> f64 {
        self.found_ns as f64 / self.limit_ns as f64
    }
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (found, limit) = (format_ns(self.found_ns), format_ns(self.limit_ns));
        write!(f, "{} {found}, {:.1} times the {limit} asked for", self.figure, self.excess())
    }
}

impl Objective {
    /// The limit that is missed most, if one is.
    #[must_use]
    pub fn worst_miss(&self, histogram: &Histogram) -> Option<Miss> {
        let misses = self.limits.iter().filter_map(|&(figure, limit_ns)| {
            let found_ns = figure.of(histogram)?;
            (found_ns > limit_ns).then_some(Miss { figure, found_ns, limit_ns })
        });
        misses.max_by(|one, other| one.excess().total_cmp(&other.excess()))
    }

    /// The first figure that the distribution has too few samples for.
    #[must_use]
    pub fn too_few(&self, histogram: &Histogram) -> Option<Figure> {
        self.limits.iter().map(|limit| limit.0).find(|figure| !figure.has_samples(histogram))
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (figure, limit)) in self.limits.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{figure} {}", format_ns(*limit))?;
        }
        Ok(())
    }
}

impl FromStr for Objective {
    type Err = ObjectiveError;

    fn from_str(text: &str) -> Result<Self, ObjectiveError> {
        let fail = |reason: String| ObjectiveError { text: text.to_owned(), reason };
        let limit = |part: &str| {
            let (figure, limit) = part.split_once('=').ok_or_else(|| fail(format!("'{part}' has no '='")))?;
            let figure: Figure = figure.trim().parse().map_err(&fail)?;
            let limit = parse_latency(limit.trim()).map_err(|error| fail(error.to_string()))?;
            let ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
            if ns == 0 { Err(fail(format!("a limit of 0 for {figure}"))) } else { Ok((figure, ns)) }
        };
        let limits = text.split(',').map(limit).collect::<Result<Vec<_>, _>>()?;
        let figures: Vec<Figure> = limits.iter().map(|limit| limit.0).collect();
        let twice = (1..figures.len()).find(|&at| figures[..at].contains(&figures[at]));
        match twice {
            Some(at) => Err(fail(format!("two limits for {}", figures[at]))),
            None => Ok(Self { limits }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_studys_objective_reads_and_shows() {
        let objective: Objective = "avg=50us,p99=300us".parse().unwrap();
        assert_eq!(objective.limits, [(Figure::Average, 50_000), (Figure::Percentile(99.0), 300_000)]);
        assert_eq!(objective.to_string(), "avg 50.0 us, p99 300 us");
        assert_eq!("p99.9=1ms,max=1s".parse::<Objective>().unwrap().to_string(), "p99.9 1.00 ms, max 1.00 s");
        for text in ["", "avg", "avg=", "p0=1us", "p100=1us", "p=1us", "q99=1us", "avg=0us", "avg=50us,"] {
            assert!(text.parse::<Objective>().is_err(), "{text}");
        }
        let error = "avg=50us,p99=1ms,mean=60us".parse::<Objective>().unwrap_err().to_string();
        assert!(error.contains("two limits for avg; wanted"), "{error}");
        let error = "avg=50us,p99=300".parse::<Objective>().unwrap_err().to_string();
        assert!(error.contains("'300' has no unit; wanted a unit, such as 300us"), "{error}");
    }

    #[test]
    fn the_worst_miss_is_told() {
        let objective: Objective = "avg=50us,p99=300us,max=1s".parse().unwrap();
        let mut histogram = Histogram::new();
        histogram.record_n(10_000, 980);
        assert_eq!(objective.worst_miss(&histogram), None);
        histogram.record_n(900_000, 20);
        let miss = objective.worst_miss(&histogram).unwrap();
        assert_eq!(miss.figure, Figure::Percentile(99.0));
        assert!(miss.to_string().starts_with("p99 90") && miss.to_string().contains("3.0 times"), "{miss}");
    }
}
