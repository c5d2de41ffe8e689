//! When operations are due: an open loop keeps its schedule whatever the target does.
//!
//! Arrival times are nanoseconds from the start, follow from the seed alone, and never move: an operation
//! that starts late keeps its intended start, and its response time counts from there. Nothing is drained
//! and no arrival is left out because the target was slow.

use overdrive_base::rng::Rng;
use std::sync::Arc;

/// The law of the arrivals of one worker.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrivals {
    /// Evenly spaced.
    Constant {
        /// Arrivals a second.
        per_s: f64,
    },
    /// Independent of one another (a Poisson process).
    Poisson {
        /// Arrivals a second on average.
        per_s: f64,
    },
    /// Several at once, evenly spaced.
    Bursts {
        /// Arrivals a second on average.
        per_s: f64,
        /// Arrivals in each burst.
        size: u32,
    },
    /// Given times in nanoseconds from the start, ascending; dealt out to the workers in turn.
    Trace(Arc<[u64]>),
}

impl Arrivals {
    /// Arrivals a second of one worker; none for a trace.
    #[must_use]
    pub fn per_s(&self) -> Option<f64> {
        match *self {
            Self::Constant { per_s } | Self::Poisson { per_s } | Self::Bursts { per_s, .. } => Some(per_s),
            Self::Trace(_) => None,
        }
    }

    /// The name of the law.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Constant { .. } => "constant",
            Self::Poisson { .. } => "poisson",
            Self::Bursts { .. } => "bursts",
            Self::Trace(_) => "trace",
        }
    }
}

/// A pause in a closed loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Think {
    /// How long nothing new is started.
    pub time: std::time::Duration,
    /// After how many operations.
    pub every: u32,
}

/// The arrivals of one worker, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    arrivals: Arrivals,
    worker: u32,
    workers: u32,
    rng: Rng,
    index: u64,
    /// Where a Poisson process stands, in nanoseconds.
    at_ns: f64,
}

impl Schedule {
    /// The schedule of worker number `worker` of `workers`. Evenly spaced workers take turns instead of
    /// arriving all at once.
    pub(crate) fn new(arrivals: &Arrivals, worker: u32, workers: u32, seed: u64) -> Self {
        let rng = Rng::for_stream(seed, u64::from(worker) << 32 | 0xa1);
        Self { arrivals: arrivals.clone(), worker, workers, rng, index: 0, at_ns: 0.0 }
    }

    /// The next intended start in nanoseconds from the start of the run; none when a trace is over.
    #[inline]
    pub(crate) fn next_ns(&mut self) -> Option<u64> {
        let index = self.index;
        self.index += 1;
        let turn = f64::from(self.worker) / f64::from(self.workers);
        Some(match &self.arrivals {
            // Products, not sums: no rounding error builds up over a long run.
            Arrivals::Constant { per_s } => ((index as f64 + turn) * (1e9 / per_s)) as u64,
            Arrivals::Bursts { per_s, size } => {
                let burst = index / u64::from(*size);
                ((burst as f64 + turn) * (1e9 * f64::from(*size) / per_s)) as u64
            }
            Arrivals::Poisson { per_s } => {
                self.at_ns -= (1.0 - self.rng.unit()).ln() * (1e9 / per_s);
                self.at_ns as u64
            }
            Arrivals::Trace(times) => {
                let entry = index * u64::from(self.workers) + u64::from(self.worker);
                return usize::try_from(entry).ok().and_then(|entry| times.get(entry).copied());
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(arrivals: &Arrivals, count: usize) -> Vec<u64> {
        let mut schedule = Schedule::new(arrivals, 0, 1, 5);
        (0..count).filter_map(|_| schedule.next_ns()).collect()
    }

    /// The largest distance between the gaps' distribution and `law`, times the root of their number: above
    /// 1.63 with a chance of 1 % if the law holds (Kolmogorov and Smirnov).
    fn kolmogorov_smirnov(times: &[u64], law: impl Fn(f64) -> f64) -> f64 {
        let mut gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        gaps.sort_by(f64::total_cmp);
        let count = gaps.len() as f64;
        let distance = |(index, &gap): (usize, &f64)| {
            let wanted = law(gap);
            (wanted - index as f64 / count).abs().max(((index + 1) as f64 / count - wanted).abs())
        };
        gaps.iter().enumerate().map(distance).fold(0.0, f64::max) * count.sqrt()
    }

    #[test]
    fn poisson_gaps_are_exponential_at_any_rate() {
        for per_s in [1e3, 2e4, 5e5] {
            let times = times(&Arrivals::Poisson { per_s }, 20_000);
            let law = |gap: f64| 1.0 - (-gap * per_s / 1e9).exp();
            let found = kolmogorov_smirnov(&times, law);
            assert!(found < 1.63, "{per_s}: {found}");
            // The test must be able to fail: a rate 5 % off is seen.
            assert!(kolmogorov_smirnov(&times, |gap| law(gap * 1.05)) > 1.63);
        }
    }

    #[test]
    fn constant_gaps_are_equal_and_do_not_drift() {
        for per_s in [1e3, 333_333.3, 5e5] {
            let times = times(&Arrivals::Constant { per_s }, 1_000_000);
            let gap = 1e9 / per_s;
            assert!(times.windows(2).all(|pair| ((pair[1] - pair[0]) as f64 - gap).abs() <= 1.0));
            assert!((times[999_999] as f64 - 999_999.0 * gap).abs() < 1.0);
        }
    }

    #[test]
    fn bursts_come_together_at_the_same_mean_rate() {
        let times = times(&Arrivals::Bursts { per_s: 1000.0, size: 10 }, 1000);
        assert!(times.chunks(10).all(|burst| burst.iter().all(|&at| at == burst[0])));
        assert_eq!(times[10] - times[0], 10_000_000);
    }

    #[test]
    fn a_trace_is_dealt_out_and_ends() {
        let trace = Arrivals::Trace(Arc::from([1, 2, 3, 4, 5]));
        let of = |worker| {
            let mut schedule = Schedule::new(&trace, worker, 2, 1);
            std::iter::from_fn(move || schedule.next_ns()).collect::<Vec<u64>>()
        };
        assert_eq!((of(0), of(1)), (vec![1, 3, 5], vec![2, 4]));
    }

    #[test]
    fn workers_take_turns() {
        let first = |worker| Schedule::new(&Arrivals::Constant { per_s: 1000.0 }, worker, 4, 1).next_ns();
        assert_eq!((first(0), first(1), first(3)), (Some(0), Some(250_000), Some(750_000)));
    }
}
