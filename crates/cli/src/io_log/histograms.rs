//! Latencies over time: an HdrHistogram log with a line for each window and direction of each worker, whole
//! histograms in place of one figure.

use super::{LOGGED, file_of};
use overdrive_hist::Histogram;
use overdrive_io::iolog::Block;
use overdrive_io::job::Direction;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Result, Write};
use std::time::Duration;

const HEAD: &str = "#[Histogram log format version 1.3]\n\
    \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n";

/// The log under way.
#[derive(Debug)]
pub(super) struct Histograms {
    window: Duration,
    /// One for each worker, or one for all.
    files: Vec<BufWriter<File>>,
    open: BTreeMap<u32, Open>,
}

/// A worker's window that still grows.
#[derive(Debug)]
struct Open {
    number: u64,
    directions: [Histogram; LOGGED],
}

impl Histograms {
    /// Begins each file.
    pub(super) fn new(window: Duration, mut files: Vec<BufWriter<File>>) -> Result<Self> {
        files.iter_mut().try_for_each(|file| file.write_all(HEAD.as_bytes()))?;
        Ok(Self { window, files, open: BTreeMap::new() })
    }

    /// Adds what a worker did, and writes the windows that are over.
    pub(super) fn add(&mut self, block: &Block) -> Result<()> {
        let window_ns = u64::try_from(self.window.as_nanos()).unwrap_or(u64::MAX).max(1);
        for entry in &block.entries {
            let number = entry.at_ns / window_ns;
            if self.open.get(&block.worker).is_some_and(|open| open.number < number) {
                self.close(block.worker)?;
            }
            let new = || Open { number, directions: std::array::from_fn(|_| Histogram::new()) };
            let open = self.open.entry(block.worker).or_insert_with(new);
            if let Some(histogram) = open.directions.get_mut(entry.io.direction as usize) {
                histogram.record(entry.latency_ns);
            }
        }
        Ok(())
    }

    /// Writes the windows that are not over, and all that waits to be written.
    pub(super) fn finish(&mut self) -> Result<()> {
        let workers: Vec<u32> = self.open.keys().copied().collect();
        workers.into_iter().try_for_each(|worker| self.close(worker))?;
        self.files.iter_mut().try_for_each(BufWriter::flush)
    }

    fn close(&mut self, worker: u32) -> Result<()> {
        let Some(open) = self.open.remove(&worker) else { return Ok(()) };
        let shared = self.files.len() == 1 && worker > 0;
        let file = file_of(&mut self.files, worker);
        let length_s = self.window.as_secs_f64();
        let start_s = open.number as f64 * length_s;
        for (direction, histogram) in
            [Direction::Read, Direction::Write, Direction::Trim].iter().zip(&open.directions)
        {
            let Some(largest) = histogram.max() else { continue };
            let max_ms = largest as f64 / 1e6;
            let mut tag = direction.name().to_owned();
            if shared {
                tag.push_str(&format!("-{}", worker + 1));
            }
            writeln!(
                file,
                "Tag={tag},{start_s:.3},{length_s:.3},{max_ms:.3},{}",
                histogram.encode_v2_base64()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overdrive_io::iolog::Entry;
    use overdrive_io::pattern::Io;

    #[test]
    fn each_window_has_its_own_histogram() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.hlog");
        let files = vec![BufWriter::new(File::create(&path).unwrap())];
        let mut log = Histograms::new(Duration::from_millis(100), files).unwrap();
        let entry = |at_ms: u64, direction| Entry {
            at_ns: at_ms * 1_000_000,
            latency_ns: 1000 + at_ms,
            io: Io { direction, offset: 0, length: 4096 },
        };
        let entries = (0..250).map(|at| entry(at, Direction::Read)).chain([
            entry(260, Direction::Write),
            entry(270, Direction::Sync),
            entry(900, Direction::Sync),
        ]);
        log.add(&Block { worker: 0, entries: entries.collect(), lost: 0 }).unwrap();
        log.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .filter(|line| line.starts_with("Tag="))
            .map(|line| line.split(',').collect())
            .collect();
        let starts: Vec<&str> = lines.iter().map(|line| line[1]).collect();
        assert_eq!(starts, ["0.000", "0.100", "0.200", "0.200"]);
        assert_eq!((lines[0][0], lines[3][0], lines[0][2]), ("Tag=read", "Tag=write", "0.100"));
        let counts: Vec<u64> =
            lines.iter().map(|line| Histogram::decode_v2_base64(line[4]).unwrap().count()).collect();
        assert_eq!(counts, [100, 100, 50, 1]);
    }
}
