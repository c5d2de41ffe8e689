//! A record as an HdrHistogram log: one interval for each workload and direction, for each cell of a paging
//! run and direction, or for each number of instances that was tried, one after the other, so that the tools
//! around that format can merge, plot and compare them.
//!
//! Timestamps are seconds from the start of the first one, as far as they were measured; values are
//! nanoseconds, and each line's maximum is in milliseconds, as the format has it.

use crate::density::DensityRecord;
use crate::record::{Latency, Record, Tool};
use crate::show;

/// The record's latencies as an interval log, version 1.3; none when it holds no latency.
#[must_use]
pub fn log(record: &Record) -> Option<String> {
    let mut log = Log::default();
    for workload in &record.workloads {
        for (name, direction) in show::directions(workload) {
            let mut line = |what: &str, latency: &Latency| {
                let tag = format!("{}-{name}{what}", workload.id);
                log.line(&tag, workload.outcome.elapsed_s, latency.max_ns, &latency.histogram);
            };
            line("", &direction.latency);
            if let Some(response) = &direction.response {
                line("-response", response);
            }
        }
        log.at_s += workload.outcome.elapsed_s;
    }
    for cell in record.paging.iter().flat_map(|paging| &paging.cells) {
        let (backing, pattern, threads) = (&cell.backing, &cell.pattern, cell.threads);
        let id = format!("{backing}-{pattern}-{}r-{threads}t-{}", cell.read_ratio_percent, cell.repeat);
        for (name, latency) in [("read", &cell.read), ("write", &cell.write)] {
            if let Some(latency) = latency {
                log.line(&format!("{id}-{name}"), cell.elapsed_s, latency.max_ns, &latency.histogram);
            }
        }
        log.at_s += cell.elapsed_s;
    }
    log.end(&record.tool, &record.started_at)
}

/// The same of a density record: every number of instances that was measured.
#[must_use]
pub fn density_log(record: &DensityRecord) -> Option<String> {
    let mut log = Log::default();
    for backing in &record.backings {
        for (at, trial) in backing.trials.iter().enumerate() {
            let Some(measured) = &trial.measured else { continue };
            let length_s = record.load.runtime_s * measured.iterations.len() as f64;
            let again = if backing.is_again(at) { "-again" } else { "" };
            let tag = format!("{}-{}-instances{again}", backing.name, trial.instances);
            log.line(&tag, length_s, measured.latency.max_ns.unwrap_or(0), &measured.histogram);
            log.at_s += length_s;
        }
    }
    log.end(&record.tool, &record.started_at)
}

/// The lines so far, and when the next one starts.
#[derive(Default)]
struct Log {
    lines: String,
    at_s: f64,
}

impl Log {
    fn line(&mut self, tag: &str, length_s: f64, max_ns: u64, histogram: &str) {
        // A tag ends at the comma.
        let tag = tag.replace([',', ' ', '\n'], "_");
        let (at_s, max_ms) = (self.at_s, max_ns as f64 / 1e6);
        self.lines += &format!("Tag={tag},{at_s:.3},{length_s:.3},{max_ms:.3},{histogram}\n");
    }

    fn end(self, tool: &Tool, started_at: &str) -> Option<String> {
        let head = format!(
            "#[Histogram log format version 1.3]\n#[Logged with {} {}, started {started_at}]\n\
             \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n",
            tool.name, tool.version
        );
        (!self.lines.is_empty()).then(|| head + &self.lines)
    }
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
        let text = log(&record).unwrap();
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
        let text = log(&fixtures::optane()).unwrap();
        let starts: Vec<f64> = text
            .lines()
            .filter(|line| line.starts_with("Tag="))
            .map(|line| line.split(',').nth(1).unwrap().parse().unwrap())
            .collect();
        assert!(starts.len() > 16 && starts.is_sorted() && starts[0] == 0.0);
    }

    #[test]
    fn cells_of_a_paging_run_are_written_and_nothing_is_no_log() {
        let mut record = fixtures::optane();
        record.workloads.clear();
        assert_eq!(log(&record), None);
        let paging = crate::render::paging::tests::paging();
        let cells = paging.cells.iter();
        let wanted: usize =
            cells.map(|cell| usize::from(cell.read.is_some()) + usize::from(cell.write.is_some())).sum();
        record.paging = Some(paging);
        let text = log(&record).unwrap();
        assert!(wanted > 0, "the fixture has latencies");
        assert_eq!(text.lines().filter(|line| line.starts_with("Tag=")).count(), wanted);
    }
}
