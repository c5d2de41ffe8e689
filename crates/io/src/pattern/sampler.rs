//! Which of `blocks` blocks comes next when some are wanted more often than others.

use super::permutation::Permutation;
use crate::job::{Distribution, Zone};
use overdrive_base::rng::Rng;

/// Draws block numbers by a distribution.
#[derive(Debug, Clone)]
pub(super) struct Sampler {
    blocks: u64,
    shape: Shape,
    /// Scatters the popular blocks over the target, where the distribution would put them side by side.
    scatter: Option<Permutation>,
}

#[derive(Debug, Clone)]
enum Shape {
    Zipf(Zipf),
    /// Blocks are drawn as `blocks * u ^ power`.
    Pareto {
        power: f64,
    },
    Normal {
        mean: f64,
        deviation: f64,
    },
    Zoned(Vec<Span>),
}

/// A zone in blocks; accesses below `access_below` (of 100, all zones before it included) fall into it.
#[derive(Debug, Clone, Copy)]
struct Span {
    access_below: u64,
    first: u64,
    blocks: u64,
}

impl Sampler {
    /// None for the uniform distribution, which needs no shape.
    pub(super) fn new(distribution: &Distribution, blocks: u64, seed: u64) -> Option<Self> {
        let scattered = || Some(Permutation::new(blocks, seed ^ 0x5ca7));
        let (shape, scatter) = match *distribution {
            Distribution::Uniform => return None,
            Distribution::Zipf { theta } => (Shape::Zipf(Zipf::new(blocks, theta)), scattered()),
            Distribution::Pareto { h } => (Shape::Pareto { power: h.ln() / (1.0 - h).ln() }, scattered()),
            Distribution::Normal { deviation_percent } => {
                let (mean, deviation) = (blocks as f64 / 2.0, blocks as f64 * deviation_percent / 100.0);
                (Shape::Normal { mean, deviation }, None)
            }
            Distribution::Zoned(ref zones) => (Shape::Zoned(spans(zones, blocks)), None),
        };
        Some(Self { blocks, shape, scatter })
    }

    /// The next block.
    #[inline]
    pub(super) fn next(&self, rng: &mut Rng) -> u64 {
        let block = match &self.shape {
            Shape::Zipf(zipf) => zipf.next(rng) - 1,
            Shape::Pareto { power } => (self.blocks as f64 * rng.unit().powf(*power)) as u64,
            Shape::Normal { mean, deviation } => normal(rng, *mean, *deviation, self.blocks as f64),
            Shape::Zoned(spans) => {
                let draw = rng.below(100);
                let span = spans.iter().find(|span| draw < span.access_below).or(spans.last());
                span.map_or(0, |span| span.first + rng.below(span.blocks))
            }
        };
        let block = block.min(self.blocks - 1);
        match &self.scatter {
            Some(scatter) => scatter.apply(block),
            None => block,
        }
    }
}

/// A Gaussian draw in `0..end`; draws outside are drawn again (Box and Muller's method, one of its pair).
fn normal(rng: &mut Rng, mean: f64, deviation: f64, end: f64) -> u64 {
    loop {
        let radius = (-2.0 * (1.0 - rng.unit()).ln()).sqrt();
        let draw = mean + deviation * radius * (std::f64::consts::TAU * rng.unit()).cos();
        if (0.0..end).contains(&draw) {
            return draw as u64;
        }
    }
}

/// Zones as block ranges; each has at least one block, and the last reaches the end.
fn spans(zones: &[Zone], blocks: u64) -> Vec<Span> {
    let (mut access_below, mut size_percent, mut first) = (0, 0, 0);
    let mut spans = Vec::with_capacity(zones.len());
    for zone in zones {
        access_below += u64::from(zone.access_percent);
        size_percent += u64::from(zone.size_percent);
        let end = (blocks as u128 * u128::from(size_percent) / 100) as u64;
        let end = end.clamp((first + 1).min(blocks), blocks);
        let start = first.min(blocks - 1);
        spans.push(Span { access_below, first: start, blocks: (end - start).max(1) });
        first = end;
    }
    spans
}

/// Zipf's law by rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from
/// monotone discrete distributions", 1996): exact for every exponent above 0, without a table or a sum.
#[derive(Debug, Clone, Copy)]
struct Zipf {
    count: f64,
    exponent: f64,
    /// The integral of the density below the first half-step and below the last.
    area_start: f64,
    area_end: f64,
    /// Draws this close below their integer are accepted without a look at the density.
    squeeze: f64,
}

impl Zipf {
    fn new(count: u64, exponent: f64) -> Self {
        let mut zipf = Self { count: count as f64, exponent, area_start: 0.0, area_end: 0.0, squeeze: 0.0 };
        zipf.area_start = zipf.area(1.5) - 1.0;
        zipf.area_end = zipf.area(zipf.count + 0.5);
        zipf.squeeze = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.density(2.0));
        zipf
    }

    /// A rank from 1 on.
    fn next(&self, rng: &mut Rng) -> u64 {
        loop {
            let area = self.area_end + rng.unit() * (self.area_start - self.area_end);
            let at = self.area_inverse(area);
            let rank = (at + 0.5).floor().clamp(1.0, self.count);
            if rank - at <= self.squeeze || area >= self.area(rank + 0.5) - self.density(rank) {
                return rank as u64;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of the density from 1 to `x`, also where the exponent is 1.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        let t = (1.0 - self.exponent) * log;
        let ratio = if t.abs() < 1e-8 { 1.0 + t / 2.0 } else { t.exp_m1() / t };
        ratio * log
    }

    fn area_inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.exponent)).max(-1.0);
        let ratio = if t.abs() < 1e-8 { 1.0 - t / 2.0 } else { t.ln_1p() / t };
        (ratio * area).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pearson's statistic for `draws` draws against the probabilities of each block.
    fn chi_square(sampler: &Sampler, probabilities: &[f64], draws: u32) -> f64 {
        let mut rng = Rng::new(11);
        let mut counts = vec![0u32; probabilities.len()];
        (0..draws).for_each(|_| counts[sampler.next(&mut rng) as usize] += 1);
        let term = |(&count, &p): (&u32, &f64)| {
            let expected = p * f64::from(draws);
            (f64::from(count) - expected).powi(2) / expected
        };
        counts.iter().zip(probabilities).map(term).sum()
    }

    /// Mean and deviation of the chi-square law are `df` and `sqrt(2 df)`: four deviations above is one in
    /// many thousands.
    fn assert_fits(distribution: &Distribution, probability: impl Fn(u64) -> f64) {
        const BLOCKS: u64 = 200;
        let mut sampler = Sampler::new(distribution, BLOCKS, 3).unwrap();
        let weights: Vec<f64> = (0..BLOCKS).map(probability).collect();
        let total: f64 = weights.iter().sum();
        let mut wanted = vec![0.0; BLOCKS as usize];
        for (rank, weight) in weights.iter().enumerate() {
            let at = sampler.scatter.as_ref().map_or(rank as u64, |scatter| scatter.apply(rank as u64));
            wanted[at as usize] = weight / total;
        }
        let df = (BLOCKS - 1) as f64;
        let limit = df + 4.0 * (2.0 * df).sqrt();
        let found = chi_square(&sampler, &wanted, 400_000);
        assert!(found < limit, "{distribution:?}: {found} over {limit}");
        // The test must be able to fail: the same draws do not fit a uniform law.
        sampler.scatter = None;
        assert!(chi_square(&sampler, &vec![1.0 / BLOCKS as f64; BLOCKS as usize], 400_000) > 10.0 * limit);
    }

    #[test]
    fn zipf_follows_its_law_below_at_and_above_one() {
        for theta in [0.6, 1.0, 1.2, 2.5] {
            assert_fits(&Distribution::Zipf { theta }, |rank| ((rank + 1) as f64).powf(-theta));
        }
    }

    #[test]
    fn pareto_follows_its_law() {
        for h in [0.2, 0.4] {
            let power: f64 = f64::ln(h) / f64::ln(1.0 - h);
            let below = |block: u64| (block as f64 / 200.0).powf(1.0 / power);
            assert_fits(&Distribution::Pareto { h }, |block| below(block + 1) - below(block));
            // What the number means: a share `h` of the blocks gets `1 - h` of the accesses.
            assert!((below((200.0 * h) as u64) - (1.0 - h)).abs() < 1e-9);
        }
    }

    #[test]
    fn normal_follows_its_law() {
        // The density at the middle of a block; its third derivative is too small to see here.
        let law = |block: u64| (-((block as f64 + 0.5 - 100.0) / 40.0).powi(2) / 2.0).exp();
        assert_fits(&Distribution::Normal { deviation_percent: 20.0 }, law);
    }

    #[test]
    fn zones_get_their_share() {
        let zone = |access_percent, size_percent| Zone { access_percent, size_percent };
        let zones = vec![zone(60, 10), zone(30, 20), zone(10, 70)];
        let law = |block: u64| match block {
            0..20 => 0.6 / 20.0,
            20..60 => 0.3 / 40.0,
            _ => 0.1 / 140.0,
        };
        assert_fits(&Distribution::Zoned(zones), law);
    }

    #[test]
    fn tiny_targets_do_no_harm() {
        let zone = |access_percent, size_percent| Zone { access_percent, size_percent };
        for distribution in [
            Distribution::Zipf { theta: 1.1 },
            Distribution::Pareto { h: 0.2 },
            Distribution::Normal { deviation_percent: 5.0 },
            Distribution::Zoned(vec![zone(60, 1), zone(30, 1), zone(10, 98)]),
        ] {
            for blocks in 1..5 {
                let sampler = Sampler::new(&distribution, blocks, 1).unwrap();
                let mut rng = Rng::new(1);
                assert!((0..1000).all(|_| sampler.next(&mut rng) < blocks), "{distribution:?} {blocks}");
            }
        }
    }
}
