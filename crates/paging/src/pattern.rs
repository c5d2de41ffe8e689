//! Which page comes next: the distributions by name, and a seeded, endless sequence for each worker.

use overdrive_base::rng::Rng;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

mod zipf;
use zipf::Zipf;

/// A distribution of accesses over the pages of a set.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Pattern {
    /// Every page alike.
    Uniform,
    /// One after the other, `stride` pages apart; a pass over, the next starts one page further.
    Linear {
        /// Pages from one access to the next.
        stride: u64,
    },
    /// So many passes page by page at a time, one access of each in turn, each through a part of the set of
    /// its own, every second one backwards: as who copies, merges, or sorts from both ends goes.
    Walks {
        /// Passes at a time.
        walks: u64,
    },
    /// Gaussian around the middle of the set, cut off at its ends.
    Normal {
        /// Standard deviation in pages.
        sigma_pages: f64,
    },
    /// Irwin-Hall: the sum of twelve uniform numbers. Its standard deviation is a twelfth of the set, and it
    /// reaches every page.
    NormalIh,
    /// Bounded Pareto over 1 to set + 1, page 0 the likeliest. At the usual 1.161 nearly all accesses fall on
    /// a few hundred pages, however large the set: it hardly pages.
    Pareto {
        /// The Pareto index.
        alpha: f64,
    },
    /// Zipf: the k-th likeliest page has a weight of k^-theta. Ranks are scattered over the set.
    Zipf {
        /// The exponent.
        theta: f64,
    },
    /// A share of the pages, at the start of the set, gets a share of the accesses.
    HotCold {
        /// Hot pages, in per cent of the set.
        hot_percent: f64,
        /// Accesses that go to them, in per cent.
        access_percent: f64,
    },
    /// A linear scan mixed with Zipf 0.99.
    ScanSkew {
        /// Accesses of the scan, in per cent.
        scan_percent: f64,
    },
}

/// A text that names no pattern.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{text}' is no pattern: {reason}; wanted {WANTED}")]
pub struct PatternError {
    text: String,
    reason: &'static str,
}

const WANTED: &str = "uniform, linear[:STRIDE], walks[:N], normal:SIGMA_PAGES, normal-ih, pareto[:ALPHA], \
                      zipf[:THETA], hot-cold[:HOT%/ACCESSES%] or scan+skew[:SCAN%]";

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let fail = |reason| PatternError { text: text.to_owned(), reason };
        let (name, shape) = text.split_once(':').map_or((text, None), |(name, shape)| (name, Some(shape)));
        let number = |shape: &str, most: f64| {
            let value = shape.trim_end_matches('%').parse::<f64>().ok();
            value
                .filter(|value| *value > 0.0 && *value <= most)
                .ok_or_else(|| fail("its shape is out of range"))
        };
        let shaped = |default: f64, most: f64| shape.map_or(Ok(default), |shape| number(shape, most));
        match name {
            "uniform" | "normal-ih" | "normal_ih" if shape.is_some() => Err(fail("it takes no shape")),
            "uniform" => Ok(Self::Uniform),
            "normal-ih" | "normal_ih" => Ok(Self::NormalIh),
            "linear" => {
                let stride = shape.unwrap_or("1").parse().ok().filter(|&stride| stride > 0);
                Ok(Self::Linear { stride: stride.ok_or_else(|| fail("its stride is no count of pages"))? })
            }
            "walks" => {
                let walks = shape.unwrap_or("4").parse().ok().filter(|walks| (1..=1024).contains(walks));
                Ok(Self::Walks {
                    walks: walks.ok_or_else(|| fail("its walks are no number from 1 to 1024"))?,
                })
            }
            "normal" => {
                let sigma = shape.ok_or_else(|| fail("it needs a standard deviation in pages"))?;
                Ok(Self::Normal { sigma_pages: number(sigma, 1e15)? })
            }
            "pareto" => Ok(Self::Pareto { alpha: shaped(1.161, 100.0)? }),
            "zipf" => Ok(Self::Zipf { theta: shaped(0.99, 20.0)? }),
            "hot-cold" | "hot/cold" => {
                let (hot, accesses) =
                    shape.unwrap_or("20/80").split_once('/').ok_or_else(|| fail("it wants two shares"))?;
                Ok(Self::HotCold {
                    hot_percent: number(hot, 100.0)?,
                    access_percent: number(accesses, 100.0)?,
                })
            }
            "scan+skew" => Ok(Self::ScanSkew { scan_percent: shaped(50.0, 100.0)? }),
            _ => Err(fail("the name is not known")),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => write!(f, "uniform"),
            Self::Linear { stride: 1 } => write!(f, "linear"),
            Self::Linear { stride } => write!(f, "linear:{stride}"),
            Self::Walks { walks } => write!(f, "walks:{walks}"),
            Self::Normal { sigma_pages } => write!(f, "normal:{sigma_pages}"),
            Self::NormalIh => write!(f, "normal-ih"),
            Self::Pareto { alpha } => write!(f, "pareto:{alpha}"),
            Self::Zipf { theta } => write!(f, "zipf:{theta}"),
            Self::HotCold { hot_percent, access_percent } => {
                write!(f, "hot-cold:{hot_percent}/{access_percent}")
            }
            Self::ScanSkew { scan_percent } => write!(f, "scan+skew:{scan_percent}"),
        }
    }
}

impl TryFrom<String> for Pattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.to_string()
    }
}

/// The endless sequence of page numbers of one worker.
#[derive(Debug, Clone)]
pub struct Pages {
    pattern: Pattern,
    pages: u64,
    /// Where a linear pass is; of several walks, where they are all together.
    cursor: u64,
    pass: u64,
    zipf: Option<Zipf>,
    scatter: u64,
}

impl Pages {
    /// The sequence of worker `worker` of `workers` over a set of `pages` pages (at least one).
    ///
    /// Linear workers start evenly apart and each go through the whole set.
    #[must_use]
    pub fn new(pattern: Pattern, pages: u64, worker: u64, workers: u64) -> Self {
        let pages = pages.max(1);
        let zipf = match pattern {
            Pattern::Zipf { theta } => Some(Zipf::new(pages, theta)),
            Pattern::ScanSkew { .. } => Some(Zipf::new(pages, 0.99)),
            _ => None,
        };
        let cursor = (u128::from(pages) * u128::from(worker) / u128::from(workers.max(1))) as u64;
        Self { pattern, pages, cursor, pass: 0, zipf, scatter: coprime_near_golden(pages) }
    }

    /// The next page, below the size of the set.
    #[inline]
    pub fn next_page(&mut self, rng: &mut Rng) -> u64 {
        let n = self.pages as f64;
        match self.pattern {
            Pattern::Uniform => rng.below(self.pages),
            Pattern::Linear { stride } => self.step(stride),
            Pattern::Walks { walks } => self.walk(walks.min(self.pages)),
            Pattern::Normal { sigma_pages } => loop {
                let page = n / 2.0 + sigma_pages * gaussian(rng);
                if (0.0..n).contains(&page) {
                    return page as u64;
                }
            },
            Pattern::NormalIh => self.clip(n / 12.0 * twelve_uniforms(rng)),
            Pattern::Pareto { alpha } => {
                let cut = 1.0 - (n + 1.0).powf(-alpha);
                self.clip((1.0 - rng.unit() * cut).powf(-1.0 / alpha) - 1.0)
            }
            Pattern::Zipf { .. } => self.skewed(rng),
            Pattern::HotCold { hot_percent, access_percent } => {
                let hot = ((n * hot_percent / 100.0).round() as u64).clamp(1, self.pages);
                if hot == self.pages || rng.unit() * 100.0 < access_percent {
                    rng.below(hot)
                } else {
                    hot + rng.below(self.pages - hot)
                }
            }
            Pattern::ScanSkew { scan_percent } => {
                if rng.unit() * 100.0 < scan_percent {
                    self.step(1)
                } else {
                    self.skewed(rng)
                }
            }
        }
    }

    fn clip(&self, page: f64) -> u64 {
        (page as u64).min(self.pages - 1)
    }

    fn step(&mut self, stride: u64) -> u64 {
        let page = self.cursor;
        self.cursor = match page.checked_add(stride) {
            Some(next) if next < self.pages => next,
            _ => {
                self.pass = (self.pass + 1) % stride.min(self.pages);
                self.pass
            }
        };
        page
    }

    /// The next page of the walk whose turn it is. What does not divide evenly goes to the last one.
    fn walk(&mut self, walks: u64) -> u64 {
        let (walk, part) = (self.pass % walks, self.pages / walks);
        let first = walk * part;
        let length = if walk + 1 == walks { self.pages - first } else { part };
        let reached = self.cursor % length;
        self.pass = (self.pass + 1) % walks;
        self.cursor += u64::from(self.pass == 0);
        if walk % 2 == 0 { first + reached } else { first + length - 1 - reached }
    }

    /// A Zipf rank, scattered: neighbours in rank lie apart in memory, or readahead would guess right.
    fn skewed(&self, rng: &mut Rng) -> u64 {
        let rank = self.zipf.as_ref().map_or(0, |zipf| zipf.rank(rng));
        (u128::from(rank) * u128::from(self.scatter) % u128::from(self.pages)) as u64
    }
}

/// A standard normal number (Box and Muller).
fn gaussian(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.unit()).cos()
}

/// The sum of twelve uniform numbers from 0 to 1, three of 21 bits from each draw.
fn twelve_uniforms(rng: &mut Rng) -> f64 {
    const MASK: u64 = (1 << 21) - 1;
    let sum: u64 = (0..4)
        .map(|_| {
            let bits = rng.next_u64();
            (bits & MASK) + (bits >> 21 & MASK) + (bits >> 42 & MASK)
        })
        .sum();
    // Half a step each, so that the mean is exactly six.
    (sum as f64 + 6.0) / (MASK + 1) as f64
}

/// A multiplier without a common factor with `pages`, near its golden section: a permutation that scatters.
fn coprime_near_golden(pages: u64) -> u64 {
    let start = ((pages as f64 * 0.618_033_988_749_895) as u64).max(1);
    (start..).find(|&candidate| gcd(candidate, pages) == 1).unwrap_or(1)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests;
