//! A record as an HdrHistogram log: one interval for each workload and direction, one after the other, so
//! that the tools around that format can merge, plot and compare them.
//!
//! Timestamps are seconds from the start of the first workload, as far as they were measured; values are
//! nanoseconds, and each line's maximum is in milliseconds, as the format has it.

use crate::record::{Latency, Record};
use crate::show;

/// The record's latencies as an interval log, version 1.3.
#[must_use]
pub fn log(record: &Record) -> String {
    let mut text = format!(
        "#[Histogram log format version 1.3]\n#[Logged with {} {}, started {}]\n",
        record.tool.name, record.tool.version, record.started_at
    );
    text += "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n";
    let mut at_s = 0.0;
    for workload in &record.workloads {
        let length_s = workload.outcome.elapsed_s;
        for (name, direction) in show::directions(workload) {
            let mut line = |what: &str, latency: &Latency| {
                // A tag ends at the comma.
                let tag = format!("{}-{name}{what}", workload.id).replace([',', ' ', '\n'], "_");
                let max_ms = latency.max_ns as f64 / 1e6;
                text += &format!("Tag={tag},{at_s:.3},{length_s:.3},{max_ms:.3},{}\n", latency.histogram);
            };
            line("", &direction.latency);
            if let Some(response) = &direction.response {
                line("-response", response);
            }
        }
        at_s += length_s;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn another_reader_finds_every_latency() {
        let record = fixtures::open_loop();
        let text = log(&record);
        let mut found = Vec::new();
        for entry in IntervalLogIterator::new(text.as_bytes()) {
            let LogEntry::Interval(interval) = entry.unwrap() else { continue };
            let bytes = base64::Engine::decode(
                &base64::engine::general_purpose::STANDARD,
                interval.encoded_histogram(),
            );
            let histogram: Histogram<u64> =
                Deserializer::new().deserialize(&mut bytes.unwrap().as_slice()).unwrap();
            found.push((interval.tag().unwrap().as_str().to_owned(), histogram.len(), interval.max()));
        }
        let read = record.workloads[0].outcome.read.as_ref().unwrap();
        let id = &record.workloads[0].id;
        assert_eq!(found[0].0, format!("{id}-read"));
        assert_eq!(found[0].1, read.ios);
        assert!((found[0].2 - read.latency.max_ns as f64 / 1e6).abs() < 0.001);
        assert_eq!(found[1].0, format!("{id}-read-response"));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn workloads_follow_one_another() {
        let text = log(&fixtures::optane());
        let starts: Vec<f64> = text
            .lines()
            .filter(|line| line.starts_with("Tag="))
            .map(|line| line.split(',').nth(1).unwrap().parse().unwrap())
            .collect();
        assert!(starts.len() > 16 && starts.is_sorted() && starts[0] == 0.0);
    }
}
