//! The little statistics a handful of repeats bears: the median and the range. No mean, no deviation: one
//! disturbed run out of five would move both.

use std::fmt;

/// Where a handful of figures lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// The spread of `values`; all NaN when there are none or one is NaN.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        if values.is_empty() || values.iter().any(|value| value.is_nan()) {
            return Self { low: f64::NAN, median: f64::NAN, high: f64::NAN };
        }
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Self { low: values[0], median, high: values[values.len() - 1] }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ({:.3} to {:.3})", self.median, self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let of = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(of(&[3.0, 1.0, 2.0]), Spread { low: 1.0, median: 2.0, high: 3.0 });
        assert_eq!(of(&[4.0, 1.0, 2.0, 100.0]).median, 3.0);
        assert_eq!(of(&[7.0]).to_string(), "7.000 (7.000 to 7.000)");
        assert!(of(&[]).median.is_nan());
        assert!(of(&[1.0, f64::NAN]).median.is_nan());
    }
}
