//! A paging run as rows, ratios and humps; the same for text and HTML.

use crate::record::{Latency, Paging, PagingCell};
use overdrive_hist::Histogram;

/// One line of the table: threads x read ratio, with a cell for each backing.
pub(crate) struct Row<'a> {
    pub(crate) pattern: &'a str,
    pub(crate) read_ratio_percent: u8,
    pub(crate) threads: u32,
    /// In the order of [`backings`].
    pub(crate) cells: Vec<Option<Repeats<'a>>>,
}

/// The measurements of one cell.
pub(crate) struct Repeats<'a> {
    /// By rate, lowest first.
    sorted: Vec<&'a PagingCell>,
}

impl<'a> Repeats<'a> {
    /// The one in the middle.
    pub(crate) fn median(&self) -> &'a PagingCell {
        self.sorted[self.sorted.len() / 2]
    }

    fn of_repeat(&self, repeat: u32) -> Option<&'a PagingCell> {
        self.sorted.iter().find(|cell| cell.repeat == repeat).copied()
    }
}

/// How one backing does against another: the median of the repeats and their range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) count: usize,
}

impl Ratio {
    /// With the range where there is one.
    pub(crate) fn text(&self) -> String {
        let short = |value: f64| match value {
            value if value < 0.1 => format!("{value:.4}"),
            value => format!("{value:.2}"),
        };
        match self.count {
            0 | 1 => short(self.median),
            _ => format!("{} ({} to {})", short(self.median), short(self.low), short(self.high)),
        }
    }
}

/// The backings in the order in which they were named.
pub(crate) fn backings(paging: &Paging) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for cell in &paging.cells {
        if !names.contains(&cell.backing.as_str()) {
            names.push(&cell.backing);
        }
    }
    names
}

/// The rows of the table, in the order in which they ran.
pub(crate) fn rows(paging: &Paging) -> Vec<Row<'_>> {
    let backings = backings(paging);
    let mut rows: Vec<Row<'_>> = Vec::new();
    for cell in &paging.cells {
        let key = (cell.pattern.as_str(), cell.read_ratio_percent, cell.threads);
        if rows.iter().any(|row| (row.pattern, row.read_ratio_percent, row.threads) == key) {
            continue;
        }
        let of = |backing: &&str| {
            let mut sorted: Vec<&PagingCell> = paging
                .cells
                .iter()
                .filter(|other| other.backing == *backing)
                .filter(|other| (other.pattern.as_str(), other.read_ratio_percent, other.threads) == key)
                .collect();
            sorted.sort_by(|a, b| a.pages_per_s.total_cmp(&b.pages_per_s));
            (!sorted.is_empty()).then_some(Repeats { sorted })
        };
        let cells = backings.iter().map(of).collect();
        rows.push(Row { pattern: key.0, read_ratio_percent: key.1, threads: key.2, cells });
    }
    rows
}

impl<'a> Row<'a> {
    /// The middle measurement of each cell that was measured.
    pub(crate) fn medians(&self) -> impl Iterator<Item = &'a PagingCell> {
        self.cells.iter().flatten().map(Repeats::median)
    }

    /// The rate of the later backing over that of the earlier one, repeat by repeat: neighbours in time.
    pub(crate) fn ratio(&self, earlier: usize, later: usize) -> Option<Ratio> {
        let (base, other) = (self.cells[earlier].as_ref()?, self.cells[later].as_ref()?);
        let pair = |cell: &&PagingCell| {
            let base = base.of_repeat(cell.repeat)?.pages_per_s;
            (base > 0.0).then(|| cell.pages_per_s / base)
        };
        let mut ratios: Vec<f64> = other.sorted.iter().filter_map(pair).collect();
        ratios.sort_by(f64::total_cmp);
        Some(Ratio {
            median: *ratios.get(ratios.len() / 2)?,
            low: *ratios.first()?,
            high: *ratios.last()?,
            count: ratios.len(),
        })
    }
}

/// The pairs of backings that are compared, as indices: each with every one named before it.
pub(crate) fn pairs(backings: usize) -> Vec<(usize, usize)> {
    (0..backings).flat_map(|later| (0..later).map(move |earlier| (earlier, later))).collect()
}

/// A curve: one backing, pattern and read ratio over the threads.
pub(crate) struct Curve<'a> {
    pub(crate) backing: &'a str,
    pub(crate) pattern: &'a str,
    pub(crate) read_ratio_percent: u8,
    /// Threads and accesses a second, by threads.
    pub(crate) points: Vec<(u32, f64)>,
}

/// How rates grow with threads, where there is more than one number of them.
pub(crate) fn curves(paging: &Paging) -> Vec<Curve<'_>> {
    let rows = rows(paging);
    let mut curves: Vec<Curve<'_>> = Vec::new();
    for (index, backing) in backings(paging).into_iter().enumerate() {
        for row in &rows {
            let Some(cell) = &row.cells[index] else { continue };
            let point = (row.threads, cell.median().pages_per_s);
            let known = curves.iter_mut().find(|curve| {
                (curve.backing, curve.pattern, curve.read_ratio_percent)
                    == (backing, row.pattern, row.read_ratio_percent)
            });
            match known {
                Some(curve) => curve.points.push(point),
                None => curves.push(Curve {
                    backing,
                    pattern: row.pattern,
                    read_ratio_percent: row.read_ratio_percent,
                    points: vec![point],
                }),
            }
        }
    }
    curves.iter_mut().for_each(|curve| curve.points.sort_by_key(|point| point.0));
    curves.retain(|curve| curve.points.len() > 1);
    curves
}

/// The share of accesses in each band of latency: where the band begins, in nanoseconds, and the share.
/// `bands` bands make an octave.
pub(crate) fn humps(latency: &Latency, bands: u32) -> Vec<(f64, f64)> {
    let Ok(histogram) = Histogram::decode_v2_base64(&latency.histogram) else { return Vec::new() };
    let band_of = |ns: u64| ((ns.max(1) as f64).log2() * f64::from(bands)) as usize;
    let mut counts = vec![0u64; 64 * bands as usize + 1];
    histogram.buckets().for_each(|bucket| counts[band_of(bucket.low)] += bucket.count);
    let all = histogram.count().max(1) as f64;
    let begin = |band: usize| 2f64.powf(band as f64 / f64::from(bands));
    counts.iter().enumerate().map(|(band, &count)| (begin(band), count as f64 / all)).collect()
}

/// What a reader of the figures must know.
pub(crate) fn sentences(paging: &Paging) -> Vec<String> {
    let mut said = vec![format!(
        "measuring adds {:.0} ns to a bare access of {:.0} ns; the {} ns of two clock readings are taken off each latency",
        (paging.measured_ns - paging.bare_ns).max(0.0),
        paging.bare_ns,
        paging.timing_ns
    )];
    if paging.cells.iter().any(|cell| cell.fault_threshold_ns.is_some()) {
        said.push(
            "faults/s are accesses beyond the valley between the humps of hits and faults; major/s is the kernel's \
             count"
                .to_owned(),
        );
    }
    let unsteady = paging.cells.iter().filter(|cell| cell.steady == Some(false)).count();
    if unsteady > 0 {
        said.push(format!(
            "in {unsteady} of {} cells the fault rate was not steady when measuring began",
            paging.cells.len()
        ));
    }
    said
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn cell(backing: &str, threads: u32, repeat: u32, rate: f64) -> PagingCell {
        let mut histogram = Histogram::new();
        histogram.record_n(120, 90_000);
        if backing != "dram" {
            histogram.record_n(60_000, 80_000);
        }
        PagingCell {
            backing: backing.to_owned(),
            threads,
            pattern: "uniform".to_owned(),
            read_ratio_percent: 50,
            repeat,
            pages_per_s: rate,
            faults_per_s: if backing == "dram" { 0.0 } else { rate * 0.47 },
            major_faults_per_s: Some(0.0),
            fault_threshold_ns: (backing != "dram").then_some(4_000),
            latency: Latency::from_histogram(&histogram),
            read: Latency::from_histogram(&histogram),
            write: None,
            stalls: 3,
            stalled_ns: 9_000_000,
            elapsed_s: 1.0,
            warmup_s: 0.6,
            steady: Some(true),
            kernel: None,
            nodes: None,
        }
    }

    pub(crate) fn paging() -> Paging {
        let mut cells = Vec::new();
        for (repeat, drift) in [(0, 1.0), (1, 0.8), (2, 1.25)] {
            for threads in [1, 4] {
                cells.push(cell("dram", threads, repeat, 1e6 * drift * f64::from(threads)));
                cells.push(cell("swap", threads, repeat, 1e4 * drift * f64::from(threads).sqrt()));
            }
        }
        Paging {
            set_bytes: 1 << 30,
            dram_bytes: Some(1 << 29),
            timing_ns: 16,
            bare_ns: 50.0,
            measured_ns: 72.0,
            cells,
        }
    }

    #[test]
    fn ratios_compare_neighbours_in_time() {
        let paging = paging();
        let rows = rows(&paging);
        assert_eq!(rows.iter().map(|row| row.threads).collect::<Vec<_>>(), [1, 4]);
        let ratio = rows[0].ratio(0, 1).unwrap();
        assert_eq!((ratio.median, ratio.low, ratio.high, ratio.count), (0.01, 0.01, 0.01, 3));
        assert_eq!(rows[0].cells[0].as_ref().unwrap().median().pages_per_s, 1e6);
        assert_eq!(pairs(3), [(0, 1), (0, 2), (1, 2)]);
        assert_eq!(Ratio { median: 1.5, low: 1.4, high: 1.6, count: 3 }.text(), "1.50 (1.40 to 1.60)");
    }

    #[test]
    fn a_curve_needs_two_numbers_of_threads() {
        let mut paging = paging();
        let curves_of = curves(&paging);
        assert_eq!(curves_of.len(), 2);
        assert_eq!(curves_of[1].points, [(1, 1e4), (4, 2e4)]);
        paging.cells.retain(|cell| cell.threads == 1);
        assert!(curves(&paging).is_empty());
    }

    #[test]
    fn humps_hold_every_access() {
        let paging = paging();
        let humps = humps(paging.cells[1].latency.as_ref().unwrap(), 2);
        assert!((humps.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9);
        assert_eq!(humps.iter().filter(|(_, share)| *share > 0.0).count(), 2);
    }
}
