//! Zipf-distributed ranks in constant time and memory, for any exponent above zero.
//!
//! Rejection-inversion (Hoermann and Derflinger, "Rejection-inversion to generate variates from monotone
//! discrete distributions", 1996): invert the integral of the continuous weight, then reject the little that
//! its rounding gets wrong.

use overdrive_base::rng::Rng;

#[derive(Debug, Clone, Copy)]
pub(super) struct Zipf {
    ranks: f64,
    theta: f64,
    /// The integral at 1.5 less the weight of rank 1, and at ranks + 0.5.
    low: f64,
    high: f64,
    /// Within this distance below its integer a draw needs no check.
    sure: f64,
}

impl Zipf {
    pub(super) fn new(ranks: u64, theta: f64) -> Self {
        let ranks = ranks as f64;
        let mut zipf = Self { ranks, theta, low: 0.0, high: 0.0, sure: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(ranks + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - 2f64.powf(-theta));
        zipf
    }

    /// A rank from 0; 0 is the likeliest.
    pub(super) fn rank(&self, rng: &mut Rng) -> u64 {
        loop {
            let drawn = self.high + rng.unit() * (self.low - self.high);
            let x = self.inverse(drawn);
            let k = (x + 0.5).floor().clamp(1.0, self.ranks);
            if k - x <= self.sure || drawn >= self.integral(k + 0.5) - k.powf(-self.theta) {
                return k as u64 - 1;
            }
        }
    }

    /// The integral of x^-theta from 1 to x.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let exponent = (1.0 - self.theta) * log;
        // (e^t - 1) / t, which tends to 1 where theta tends to 1.
        let factor = if exponent.abs() > 1e-8 { exponent.exp_m1() / exponent } else { 1.0 + exponent / 2.0 };
        log * factor
    }

    fn inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.theta)).max(-1.0);
        let factor = if t.abs() > 1e-8 { t.ln_1p() / t } else { 1.0 - t / 2.0 };
        (area * factor).exp()
    }
}
