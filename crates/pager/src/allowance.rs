//! How much may be written in a day: an SSD wears with every write, and a pager can write without end.

use crate::platform::Instant;
use crate::slots::SEGMENT_SLOTS;

const SECONDS_PER_DAY: f64 = 86_400.0;
/// The part of the day's pages that may be written at once.
const AT_ONCE: f64 = 1.0 / 24.0;

/// Pages that may be written: an hour's share at once, and the rest at an even rate, so that in no 24 hours
/// it is more than what was given.
#[derive(Debug)]
pub(crate) struct Allowance {
    at_once: f64,
    pages_per_s: f64,
    left: f64,
    seen: Instant,
}

impl Allowance {
    /// So many pages in any 24 hours.
    pub(crate) fn new(pages_per_day: u64, now: Instant) -> Self {
        let pages = pages_per_day as f64;
        // Less than a run could never be written.
        let at_once = (pages * AT_ONCE).max(f64::from(SEGMENT_SLOTS));
        Self { at_once, pages_per_s: (pages - at_once).max(0.0) / SECONDS_PER_DAY, left: at_once, seen: now }
    }

    /// Whether `pages` may be written now.
    pub(crate) fn has(&mut self, pages: u32, now: Instant) -> bool {
        let since = now.duration_since(self.seen).as_secs_f64();
        self.seen = now;
        self.left = (self.left + since * self.pages_per_s).min(self.at_once);
        self.left >= f64::from(pages)
    }

    /// They are being written.
    pub(crate) fn spend(&mut self, pages: u32) {
        self.left -= f64::from(pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn no_day_has_more_than_its_share() {
        const PAGES: u64 = 24_000;
        let mut now = Instant::now();
        let mut allowance = Allowance::new(PAGES, now);
        let mut written = Vec::new();
        // Two days, asked every ten seconds for all that can be had.
        for _ in 0..2 * 8640 {
            let mut pages = 0;
            while allowance.has(64, now) {
                allowance.spend(64);
                pages += 64;
            }
            written.push(pages);
            now = now + Duration::from_secs(10);
        }
        let most = written.windows(8640).map(|day| day.iter().sum::<u64>()).max().unwrap();
        assert!(most <= PAGES && most > PAGES * 9 / 10, "{most}");
        assert_eq!(written[0] / 64, 1000 / 64, "an hour's share at once");
    }
}
