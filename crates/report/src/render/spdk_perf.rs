//! A record in the tables of SPDK's perf: a line for each device and core, then percentiles, then buckets.

use super::merged::{Shown, Side};
use crate::record::{Operation, Record, Workload};
use std::fmt::Write;

/// The percentiles of its summary.
const PERCENTILES: [f64; 15] =
    [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.99, 99.999, 99.9999, 99.99999];

const RULE: &str = "========================================================";
const LONG_RULE: &str = "=================================================================================";

/// The record as SPDK's perf would print it; `latency` is 1 with its -L and 2 with -LL.
#[must_use]
pub fn spdk_perf(record: &Record, shown: &[Shown], latency: u32) -> String {
    let rows: Vec<Row> = shown.iter().map(|job| Row::of(record, job)).collect();
    let width = rows.iter().map(|row| row.device.len()).max().unwrap_or(0);
    let mut text = format!("{RULE}\n{:>1$}\n", "Latency(us)", width + 60);
    let title = "Device Information";
    let _ = writeln!(
        text,
        "{title:<0$}: {1:>10} {2:>10} {3:>10} {4:>10} {5:>10}",
        width + 13,
        "IOPS",
        "MiB/s",
        "Average",
        "min",
        "max"
    );
    for row in &rows {
        let name = format!("{:<width$} from core {:>2}", row.device, row.core);
        let _ = writeln!(text, "{name}: {}", row.side.figures());
    }
    let total = rows.iter().fold(Side::default(), |sum, row| sum.and(&row.side));
    let _ = writeln!(text, "{RULE}\n{:<1$}: {2}\n", "Total", width + 13, total.figures());
    for row in rows.iter().filter(|_| latency >= 1) {
        text.push_str(&row.summary());
    }
    for row in rows.iter().filter(|_| latency >= 2) {
        text.push_str(&row.histogram());
    }
    text
}

/// One device on one core.
struct Row {
    device: String,
    core: String,
    side: Side,
}

impl Row {
    fn of(record: &Record, job: &Shown) -> Self {
        let workloads: Vec<&Workload> =
            job.workloads.iter().filter_map(|&index| record.workloads.get(index)).collect();
        let side = Side::of(&workloads, Operation::Read).and(&Side::of(&workloads, Operation::Write));
        Self { device: job.target.clone(), core: job.name.trim_start_matches("core").to_owned(), side }
    }

    fn summary(&self) -> String {
        let mut text = format!("Summary latency data for {:<43} from core {}:\n", self.device, self.core);
        let _ = writeln!(text, "{LONG_RULE}");
        for percentile in PERCENTILES {
            let value = self.side.percentile_ns(percentile).unwrap_or(0);
            let _ = writeln!(text, "{percentile:>9.5}% : {:>9.3}us", value as f64 / 1000.0);
        }
        text + "\n"
    }

    fn histogram(&self) -> String {
        let mut text = format!("Latency histogram for {:<43} from core {}:\n", self.device, self.core);
        let _ = writeln!(text, "{LONG_RULE}\n       Range in us     Cumulative    IO count");
        let total = self.side.histogram.count().max(1) as f64;
        let mut so_far = 0;
        for bucket in self.side.histogram.buckets() {
            so_far += bucket.count;
            let (low, high) = (bucket.low as f64 / 1000.0, (bucket.high as f64 + 1.0) / 1000.0);
            let share = so_far as f64 / total * 100.0;
            let _ = writeln!(text, "{low:>9.3} - {high:>9.3}: {share:>9.4}%  ({:>9})", bucket.count);
        }
        text + "\n"
    }
}

impl Side {
    /// IOPS, MiB/s, and the mean, least and largest latency in microseconds.
    fn figures(&self) -> String {
        let us = |ns: f64| ns / 1000.0;
        format!(
            "{:>10.2} {:>10.2} {:>10.2} {:>10.2} {:>10.2}",
            self.rates.0,
            self.rates.1 / (1 << 20) as f64,
            us(self.latency.mean_ns),
            us(self.latency.min_ns as f64),
            us(self.latency.max_ns as f64)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn the_tables_say_what_the_record_says() {
        let record = fixtures::optane();
        let shown: Vec<Shown> = (0..2)
            .map(|index| Shown {
                name: format!("core{index}"),
                workloads: vec![index],
                target: "/dev/nvme0n1".to_owned(),
                ..Shown::default()
            })
            .collect();
        let text = spdk_perf(&record, &shown, 2);
        let both: f64 = record.workloads[..2].iter().map(|one| one.outcome.iops).sum();
        assert!(text.contains(&format!("{:>10.2}", record.workloads[0].outcome.iops)), "{text}");
        let total: f64 = text
            .lines()
            .find_map(|line| line.strip_prefix("Total"))
            .and_then(|line| line.split_once(':')?.1.split_whitespace().next()?.parse().ok())
            .unwrap();
        assert!((total - both).abs() < 0.02, "{total} {both}");
        assert_eq!(text.matches("99.99999% :").count(), 2);
        assert!(text.contains(" 100.0000%  ("), "the last bucket ends at all of them");
        assert!(!spdk_perf(&record, &shown, 0).contains("Summary"));
    }
}
