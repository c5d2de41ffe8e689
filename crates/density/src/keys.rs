//! Which key a request names: all alike, or pulled toward the middle of the key space.
//!
//! The pull is the one of the published Redis study. A key k is drawn evenly from 0..n, and a percentage x
//! evenly from 0..=99; the weight g(x) = exp(-(x - 50)^2 / (2 w^2)), a bell of width w, the *influence*, then
//! moves it: k + (n/2 - k) g(x), rounded toward k. The wider the bell, the more keys end up in the middle; 0
//! means no pull. n/2 is a whole number.

use overdrive_base::rng::Rng;

/// How many percentages there are.
const STEPS: usize = 100;

/// Draws keys.
#[derive(Debug, Clone)]
pub struct Keys {
    records: u64,
    /// The weight of each percentage; none without a pull.
    weights: Option<Box<[f64; STEPS]>>,
}

/// The bell: how far, 0 to 1, a key is pulled when the percentage is `x`.
#[must_use]
pub fn weight(x: f64, influence: f64) -> f64 {
    (-(x - 50.0).powi(2) / (2.0 * influence * influence)).exp()
}

impl Keys {
    /// Keys among `records`, with this influence.
    #[must_use]
    pub fn new(records: u64, influence: f64) -> Self {
        let weights = (influence > 0.0).then(|| {
            let mut weights = Box::new([0.0; STEPS]);
            for (x, slot) in weights.iter_mut().enumerate() {
                *slot = weight(x as f64, influence);
            }
            weights
        });
        Self { records, weights }
    }

    /// The next key, in `0..records`.
    #[inline]
    pub fn next(&self, rng: &mut Rng) -> u64 {
        let key = rng.below(self.records);
        let Some(weights) = &self.weights else { return key };
        let weight = weights[rng.below(STEPS as u64) as usize];
        let middle = self.records / 2;
        if key > middle {
            key - (weight * (key - middle) as f64) as u64
        } else {
            key + (weight * (middle - key) as f64) as u64
        }
    }

    /// The share of requests for keys no further from the middle than `share` of half the key space, as the
    /// formula has it: what a memory that holds those keys would serve.
    #[must_use]
    pub fn share_within(&self, share: f64) -> f64 {
        let Some(weights) = &self.weights else { return share.clamp(0.0, 1.0) };
        // A key at distance d, even over 0..1, ends at d (1 - g): within `share` when d <= share / (1 - g).
        let of = |&weight: &f64| if weight < 1.0 { (share / (1.0 - weight)).min(1.0) } else { 1.0 };
        weights.iter().map(of).sum::<f64>() / STEPS as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: u64 = 100_000;
    const DRAWS: u64 = 400_000;

    /// The share of draws within each of ten distances from the middle.
    fn drawn(influence: f64) -> Vec<f64> {
        let keys = Keys::new(RECORDS, influence);
        let mut rng = Rng::new(11);
        let mut within = [0u64; 11];
        for _ in 0..DRAWS {
            let key = keys.next(&mut rng);
            assert!(key < RECORDS);
            let distance = (key as f64 - RECORDS as f64 / 2.0).abs() / (RECORDS as f64 / 2.0);
            let first = (distance * 10.0).ceil() as usize;
            within[first.min(10)] += 1;
        }
        let mut sum = 0;
        within
            .iter()
            .map(|count| {
                sum += count;
                sum as f64 / DRAWS as f64
            })
            .collect()
    }

    #[test]
    fn draws_follow_the_formula() {
        for influence in [0.0, 10.0, 25.0] {
            let keys = Keys::new(RECORDS, influence);
            for (tenth, found) in drawn(influence).into_iter().enumerate().skip(1) {
                let wanted = keys.share_within(tenth as f64 / 10.0);
                // Five standard deviations of a share drawn 400,000 times are 0.004.
                assert!((found - wanted).abs() < 0.004, "influence {influence}, {tenth}: {found} {wanted}");
            }
        }
    }

    #[test]
    fn the_formula_is_the_studys() {
        // By hand: exp(0) = 1, exp(-1/2), exp(-2).
        assert_eq!(weight(50.0, 10.0), 1.0);
        assert!((weight(60.0, 10.0) - 0.606_530_659_7).abs() < 1e-9);
        assert!((weight(0.0, 25.0) - 0.135_335_283_2).abs() < 1e-9);
        // Summed over the hundred percentages elsewhere: the hottest tenth of the keys gets a quarter of the
        // requests at influence 10, and nearly half at 25.
        let within = |influence, share| Keys::new(RECORDS, influence).share_within(share);
        assert_eq!(within(0.0, 0.1), 0.1);
        for (influence, shares) in [(10.0, [0.2374, 0.4226, 0.6612]), (25.0, [0.4411, 0.6743, 0.8875])] {
            for (share, wanted) in [0.1, 0.25, 0.5].into_iter().zip(shares) {
                assert!((within(influence, share) - wanted).abs() < 1e-4, "{influence} {share}");
            }
        }
    }

    #[test]
    fn a_pulled_key_stays_on_its_side_of_the_middle() {
        for records in [1, 2, 3, 10, 101] {
            let (keys, plain) = (Keys::new(records, 25.0), Keys::new(records, 0.0));
            let mut rng = Rng::new(3);
            for _ in 0..1000 {
                let mut same = rng.clone();
                let (from, to) = (plain.next(&mut same), keys.next(&mut rng));
                let middle = records / 2;
                assert!(to.abs_diff(middle) <= from.abs_diff(middle) && (to > middle) <= (from > middle));
            }
        }
    }
}
