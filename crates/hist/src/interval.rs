//! How sure a quantile is: an interval from order statistics, or a bound where samples are too few.
//!
//! With `n` independent samples, the number of samples above the true quantile `q` is binomial with mean
//! `n(1-q)`. Turning that around, two ranks enclose the true quantile with a stated confidence whatever the
//! distribution looks like. Real latencies come in bursts, so the stated confidence is what it would be if
//! they did not: read the interval as a lower limit of the doubt.

use crate::Histogram;

/// The confidence of every interval and bound: 95 %.
pub const LEVEL: f64 = 0.95;

/// What the samples allow to be said of one quantile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Estimate {
    /// Enough samples: the value and its interval, all in nanoseconds.
    Measured {
        /// The observed quantile.
        value: u64,
        /// Lower end of the 95 % interval, or none when not even the smallest sample bounds it.
        low: Option<u64>,
        /// Upper end, or none when even the largest sample does not bound it.
        high: Option<u64>,
    },
    /// Fewer than one sample is expected beyond the quantile: all that can be said, with 95 % confidence,
    /// is that it is at least this many nanoseconds.
    AtLeast(u64),
    /// Nothing was recorded, or so little that not even a bound can be told.
    Unknown,
}

impl Histogram {
    /// Estimates quantile `q` (0 to 1) with its 95 % confidence interval.
    #[must_use]
    pub fn estimate(&self, q: f64) -> Estimate {
        let Some(value) = self.value_at(q) else { return Estimate::Unknown };
        let n = self.count();
        let at = |rank: Option<u64>| rank.and_then(|rank| self.value_at_rank(rank));
        // A hair of slack, so that exactly ten million samples do carry seven nines in floating point.
        if n as f64 * (1.0 - q) < 1.0 - 1e-8 {
            return at(low_rank(n, q, 1.0 - LEVEL)).map_or(Estimate::Unknown, Estimate::AtLeast);
        }
        let tail = (1.0 - LEVEL) / 2.0;
        let (low, high) = (at(low_rank(n, q, tail)), at(high_rank(n, q, tail)));
        Estimate::Measured {
            value,
            low: low.map(|low| low.min(value)),
            high: high.map(|high| high.max(value)),
        }
    }
}

/// The largest rank whose sample lies above the true quantile with a chance of at most `alpha`: none when
/// even the smallest sample does so more often.
///
/// Here and below it is the rarer samples that are counted, those above the quantile or those at or below it:
/// sums over them are short, and their first term does not underflow.
pub(crate) fn low_rank(n: u64, q: f64, alpha: f64) -> Option<u64> {
    if q >= 0.5 {
        n.checked_sub(upper_count(n, 1.0 - q, alpha)).filter(|&rank| rank > 0)
    } else {
        lower_count(n, q, alpha).map(|below| below + 1)
    }
}

/// The smallest rank whose sample lies below the true quantile with a chance of at most `alpha`, if one does.
pub(crate) fn high_rank(n: u64, q: f64, alpha: f64) -> Option<u64> {
    if q >= 0.5 {
        lower_count(n, 1.0 - q, alpha).map(|beyond| n - beyond)
    } else {
        Some(upper_count(n, q, alpha) + 1).filter(|&rank| rank <= n)
    }
}

/// The smallest `k` with P(Binomial(n, p) > k) <= `alpha`.
fn upper_count(n: u64, p: f64, alpha: f64) -> u64 {
    let (mean, deviation) = moments(n, p);
    if use_normal(n, p) {
        return (((mean + normal_z(alpha) * deviation).ceil()) as u64).min(n);
    }
    let mut k = 0;
    let mut term = first_term(n, p);
    let mut cumulative = term;
    while 1.0 - cumulative > alpha && k < n {
        term *= next_ratio(n, p, k);
        k += 1;
        cumulative += term;
    }
    k
}

/// The largest `k` with P(Binomial(n, p) <= k) <= `alpha`, or none when even k = 0 is likelier than that.
fn lower_count(n: u64, p: f64, alpha: f64) -> Option<u64> {
    let (mean, deviation) = moments(n, p);
    if use_normal(n, p) {
        return Some((mean - normal_z(alpha) * deviation).floor().max(0.0) as u64);
    }
    let mut term = first_term(n, p);
    let mut cumulative = term;
    let mut k = 0;
    let mut last = None;
    while cumulative <= alpha && k < n {
        last = Some(k);
        term *= next_ratio(n, p, k);
        k += 1;
        cumulative += term;
    }
    last
}

fn moments(n: u64, p: f64) -> (f64, f64) {
    let mean = n as f64 * p;
    (mean, (mean * (1.0 - p)).sqrt())
}

/// Far from both ends the normal approximation is good to a fraction of a rank; near them the exact sum is
/// short enough to do. `p` is at most a half.
fn use_normal(n: u64, p: f64) -> bool {
    let n = n as f64;
    n * p > 500.0 && n * (1.0 - p) > 500.0
}

/// P(Binomial(n, p) = 0). It does not underflow where it is used: with `p <= 0.5` and `n * p <= 500`, or `n`
/// at most 1000.
fn first_term(n: u64, p: f64) -> f64 {
    (n as f64 * (-p).ln_1p()).exp()
}

/// P(k + 1) / P(k) of the binomial distribution.
fn next_ratio(n: u64, p: f64, k: u64) -> f64 {
    (n - k) as f64 / (k + 1) as f64 * (p / (1.0 - p))
}

/// The standard normal quantile for the two tails this crate uses.
fn normal_z(alpha: f64) -> f64 {
    if alpha > 0.03 { 1.644_854 } else { 1.959_964 }
}
