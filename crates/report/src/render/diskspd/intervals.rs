//! I/Os by intervals of equal length: what DISKSPD's -D tells beside the sums.

use super::super::merged::spread;

/// The I/Os of one direction that were done in one interval.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Interval {
    /// How many.
    pub ios: u64,
    /// The shortest and the longest latency, in nanoseconds.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
    sum_ns: f64,
    /// The sum of squared differences from the mean.
    squares: f64,
}

impl Interval {
    fn add(&mut self, latency_ns: u64) {
        let one =
            Self { ios: 1, min_ns: latency_ns, max_ns: latency_ns, sum_ns: latency_ns as f64, squares: 0.0 };
        *self = self.and(one);
    }

    fn and(self, other: Self) -> Self {
        if self.ios == 0 || other.ios == 0 {
            return if self.ios == 0 { other } else { self };
        }
        let (n, m) = (self.ios as f64, other.ios as f64);
        let apart = other.sum_ns / m - self.sum_ns / n;
        Self {
            ios: self.ios + other.ios,
            min_ns: self.min_ns.min(other.min_ns),
            max_ns: self.max_ns.max(other.max_ns),
            sum_ns: self.sum_ns + other.sum_ns,
            squares: self.squares + other.squares + apart * apart * n * m / (n + m),
        }
    }

    /// Mean and standard deviation of the latency, in nanoseconds.
    #[must_use]
    pub fn latency_ns(&self) -> (f64, f64) {
        let ios = self.ios.max(1) as f64;
        (self.sum_ns / ios, (self.squares / ios).sqrt())
    }
}

/// Reads and writes by interval, from the beginning of the measured time to its end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Intervals {
    /// The length of each, in milliseconds.
    pub length_ms: u64,
    /// Reads and writes.
    pub all: Vec<[Interval; 2]>,
}

impl Intervals {
    /// `count` intervals without I/Os.
    #[must_use]
    pub fn new(length_ms: u64, count: usize) -> Self {
        Self { length_ms: length_ms.max(1), all: vec![Default::default(); count] }
    }

    /// Adds an I/O that was done so many nanoseconds after the beginning; none after the last interval.
    pub fn add(&mut self, at_ns: u64, write: bool, latency_ns: u64) {
        let number = usize::try_from(at_ns / 1_000_000 / self.length_ms).unwrap_or(usize::MAX);
        if let Some(interval) = self.all.get_mut(number) {
            interval[usize::from(write)].add(latency_ns);
        }
    }

    /// Both together.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.all.resize(self.all.len().max(other.all.len()), Default::default());
        for (own, others) in self.all.iter_mut().zip(&other.all) {
            *own = [own[0].and(others[0]), own[1].and(others[1])];
        }
        self
    }

    /// The standard deviation of I/Os a second from interval to interval.
    pub(super) fn deviation(&self, reads: bool, writes: bool) -> f64 {
        let count = |interval: &[Interval; 2]| {
            let of = |wanted: bool, one: Interval| if wanted { one.ios as f64 } else { 0.0 };
            self.per_s(of(reads, interval[0]) + of(writes, interval[1]))
        };
        spread(&self.all.iter().map(count).collect::<Vec<f64>>()).1
    }

    fn per_s(&self, ios: f64) -> f64 {
        ios * 1e3 / self.length_ms as f64
    }

    /// Each interval as the attributes of its tag.
    pub(super) fn attributes(&self) -> impl Iterator<Item = String> + '_ {
        self.all.iter().enumerate().map(|(index, [read, write])| {
            let end_ms = self.length_ms * (index as u64 + 1);
            let [reads, writes] = [read, write].map(|one| self.per_s(one.ios as f64));
            let mut text = format!(
                "SampleMillisecond=\"{end_ms}\" Read=\"{reads:.0}\" Write=\"{writes:.0}\" Total=\"{:.0}\"",
                reads + writes
            );
            for (name, one) in [("Read", read), ("Write", write)] {
                let ms = |ns: f64| format!("{:.3}", ns / 1e6);
                let (mean, deviation) = one.latency_ns();
                text.push_str(&format!(
                    " {name}MinLatencyMilliseconds=\"{}\" {name}MaxLatencyMilliseconds=\"{}\" \
                     {name}AvgLatencyMilliseconds=\"{}\" {name}LatencyStdDev=\"{}\"",
                    ms(one.min_ns as f64),
                    ms(one.max_ns as f64),
                    ms(mean),
                    ms(deviation)
                ));
            }
            text
        })
    }
}
