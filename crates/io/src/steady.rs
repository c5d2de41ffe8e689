//! Whether a run has become steady: over a sliding time, no value is far from their mean, or they rise and
//! fall no more than so much (fio's steadystate). Only arithmetic; who measures the values is elsewhere.

use std::collections::VecDeque;
use std::time::Duration;

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Operations a second.
    Iops,
    /// Bytes a second.
    Bandwidth,
    /// The mean latency, in nanoseconds.
    Latency,
}

/// How it is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// The greatest distance of a value from the mean of all.
    Deviation,
    /// The slope of the line through the values, for each value.
    Slope,
}

/// How much is allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// In the figure's own unit.
    Absolute(f64),
    /// In per cent of the mean.
    Percent(f64),
}

/// When a run counts as steady, and ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SteadyState {
    /// What is watched.
    pub figure: Figure,
    /// How it is judged.
    pub test: Test,
    /// How much is allowed.
    pub limit: Limit,
    /// The sliding time that must be steady.
    pub duration: Duration,
    /// What passes before any value is taken.
    pub ramp: Duration,
    /// How often a value is taken.
    pub interval: Duration,
}

/// How the search for a steady state went.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SteadyOutcome {
    /// Whether it was reached.
    pub attained: bool,
    /// The last value of the test, in the unit of the limit.
    pub criterion: f64,
    /// The mean over the last sliding time, in the figure's own unit.
    pub mean: f64,
    /// Values taken.
    pub values: u64,
}

/// The values of the sliding time.
#[derive(Debug, Clone)]
pub(crate) struct Detector {
    asked: SteadyState,
    wanted: usize,
    values: VecDeque<f64>,
    outcome: SteadyOutcome,
}

impl Detector {
    pub(crate) fn new(asked: SteadyState) -> Self {
        let wanted = asked.duration.as_secs_f64() / asked.interval.as_secs_f64();
        let wanted = (wanted.round() as usize).max(2);
        Self { asked, wanted, values: VecDeque::with_capacity(wanted), outcome: SteadyOutcome::default() }
    }

    /// Takes a value; true when the run is steady.
    pub(crate) fn add(&mut self, value: f64) -> bool {
        if self.values.len() == self.wanted {
            self.values.pop_front();
        }
        self.values.push_back(value);
        self.outcome.values += 1;
        if self.values.len() < self.wanted {
            return false;
        }
        let count = self.values.len() as f64;
        let mean = self.values.iter().sum::<f64>() / count;
        let raw = match self.asked.test {
            Test::Deviation => self.values.iter().map(|value| (value - mean).abs()).fold(0.0, f64::max),
            Test::Slope => self.slope(mean),
        };
        let (criterion, limit) = match self.asked.limit {
            Limit::Absolute(limit) => (raw, limit),
            Limit::Percent(limit) => (if mean > 0.0 { raw / mean * 100.0 } else { f64::INFINITY }, limit),
        };
        self.outcome.attained = criterion.abs() < limit;
        (self.outcome.criterion, self.outcome.mean) = (criterion, mean);
        self.outcome.attained
    }

    /// By least squares, for each value.
    fn slope(&self, mean: f64) -> f64 {
        let middle = (self.values.len() as f64 - 1.0) / 2.0;
        let (mut products, mut squares) = (0.0, 0.0);
        for (index, value) in self.values.iter().enumerate() {
            let distance = index as f64 - middle;
            products += distance * (value - mean);
            squares += distance * distance;
        }
        products / squares
    }

    pub(crate) fn outcome(&self) -> SteadyOutcome {
        self.outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detector(test: Test, limit: Limit) -> Detector {
        let interval = Duration::from_secs(1);
        let (duration, ramp) = (Duration::from_secs(10), Duration::ZERO);
        Detector::new(SteadyState { figure: Figure::Iops, test, limit, duration, ramp, interval })
    }

    /// After how many values it was steady.
    fn steady_after(mut detector: Detector, values: impl Iterator<Item = f64>) -> Option<usize> {
        values.into_iter().position(|value| detector.add(value)).map(|index| index + 1)
    }

    #[test]
    fn deviation_wants_every_value_near_the_mean() {
        let settling = || (0..100).map(|second| 1000.0 + 500.0 * (-f64::from(second) / 5.0).exp());
        let after = steady_after(detector(Test::Deviation, Limit::Percent(1.0)), settling()).unwrap();
        // The oldest of ten values is within 1 % of the mean when 500 exp(-t/5) has fallen to about 12.
        assert!((26..=31).contains(&after), "{after}");
        assert_eq!(steady_after(detector(Test::Deviation, Limit::Absolute(600.0)), settling()), Some(10));
        let restless = (0..100).map(|second| if second % 9 == 0 { 1100.0 } else { 1000.0 });
        assert_eq!(steady_after(detector(Test::Deviation, Limit::Percent(5.0)), restless), None);
    }

    #[test]
    fn slope_sees_a_trend_and_forgives_noise() {
        let noisy = (0..100).map(|second| if second % 2 == 0 { 900.0 } else { 1100.0 });
        assert_eq!(steady_after(detector(Test::Slope, Limit::Percent(2.0)), noisy), Some(10));
        let mut rising = (0..100).map(|second| 1000.0 + 50.0 * f64::from(second));
        let mut detector = detector(Test::Slope, Limit::Absolute(49.0));
        assert!(!rising.any(|value| detector.add(value)));
        assert!((detector.outcome().criterion - 50.0).abs() < 1e-9, "{:?}", detector.outcome());
    }

    #[test]
    fn nothing_done_is_not_steady() {
        let idle = std::iter::repeat_n(0.0, 50);
        assert_eq!(steady_after(detector(Test::Deviation, Limit::Percent(5.0)), idle), None);
    }
}
