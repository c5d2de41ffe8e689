//! Whether a count is more than it would be by chance.

/// How much more it has to be: so many times as much, and so many standard deviations above that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Margin {
    pub(crate) times: f64,
    pub(crate) deviations: f64,
}

impl Margin {
    /// Whether so many are more than `expected` of them, the variance of a count of events.
    pub(crate) fn is_exceeded_by(self, count: f64, expected: f64) -> bool {
        self.is_exceeded(count, expected, expected)
    }

    /// The same of chi-squared with so many degrees of freedom.
    pub(crate) fn is_exceeded_by_squares(self, squares: f64, degrees: f64) -> bool {
        self.is_exceeded(squares, degrees, 2.0 * degrees)
    }

    fn is_exceeded(self, seen: f64, expected: f64, variance: f64) -> bool {
        seen > expected * self.times + self.deviations * variance.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_by_chance_is_above_the_margin() {
        let margin = Margin { times: 1.1, deviations: 4.0 };
        // 110 and four times 10, or the square root of 200.
        assert!(!margin.is_exceeded_by(150.0, 100.0) && margin.is_exceeded_by(150.1, 100.0));
        assert!(!margin.is_exceeded_by_squares(166.5, 100.0) && margin.is_exceeded_by_squares(166.6, 100.0));
        assert!(!margin.is_exceeded_by(0.0, 0.0), "nothing is no more than nothing");
    }
}
