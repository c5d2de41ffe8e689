//! The bandwidth, IOPS and latency logs of a run, in fio's file format: one line for each I/O, or for each
//! window of time and kind of operation.
//!
//! `PREFIX_bw.N.log` (KiB/s), `PREFIX_iops.N.log` and `PREFIX_lat.N.log` (nanoseconds), `N` the worker from
//! 1; a line is the time in milliseconds, the value, the direction (0 read, 1 write, 2 trim), the block size
//! (0 for a window), the offset where asked for, and the priority, which is 0.

mod histograms;
mod intervals;

use crate::exit::Refused;
use anyhow::{Context, Result};
use histograms::Histograms;
pub(crate) use intervals::Counted;
use overdrive_io::front::Logs;
use overdrive_io::iolog::{Block, Entry, Sink, Window, Windows, io_log};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::Duration;

/// Directions that fio logs; what follows are syncs.
const LOGGED: usize = 3;

/// Logs under way.
#[derive(Debug)]
pub(crate) struct IoLogs {
    writer: JoinHandle<std::io::Result<u64>>,
}

impl IoLogs {
    /// Makes the files for so many workers and begins to write what the sink is given; none when no log is
    /// wanted.
    ///
    /// Files are numbered from `first` on, which is 1 unless other jobs of the same run have logs too.
    pub(crate) fn start(spec: &Logs, first: u32, workers: u32) -> Result<Option<(Sink, Self)>> {
        let kinds = [
            (Figure::Bandwidth, &spec.bandwidth),
            (Figure::Iops, &spec.iops),
            (Figure::Latency, &spec.latency),
        ];
        let mut files = Vec::new();
        for (figure, prefix) in
            kinds.into_iter().filter_map(|(figure, prefix)| Some((figure, prefix.as_ref()?)))
        {
            let numbers = (!spec.shared).then(|| first..first + workers);
            files.push((figure, create(figure.name(), "log", prefix, numbers)?));
        }
        let histograms = match &spec.histogram {
            Some(prefix) => {
                let numbers = (!spec.shared).then(|| first..first + workers);
                let window = spec.histogram_window.unwrap_or(Duration::from_secs(1));
                let files = create("hist", "hlog", prefix, numbers)?;
                Some(Histograms::new(window, files).with_context(|| format!("writing {prefix}_hist"))?)
            }
            None => None,
        };
        if files.is_empty() && histograms.is_none() {
            return Ok(None);
        }
        let (sink, receiver) = io_log();
        let writer = Writer { spec: spec.clone(), files, windows: BTreeMap::new(), histograms };
        let writer = std::thread::Builder::new()
            .name("io-log".to_owned())
            .spawn(move || writer.run(&receiver))
            .context("starting the thread that writes the log")?;
        Ok(Some((sink, Self { writer })))
    }

    /// Waits until all is written, after the sink and its clones are gone; says how many I/Os were lost.
    pub(crate) fn finish(self) -> Result<u64> {
        match self.writer.join() {
            Ok(outcome) => outcome.context("writing the log"),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// `PREFIX_NAME.N.ENDING` for each number, or one file without it.
fn create(
    name: &str,
    ending: &str,
    prefix: &str,
    numbers: Option<Range<u32>>,
) -> Result<Vec<BufWriter<File>>> {
    let open = |name: String| -> Result<BufWriter<File>> {
        let path = PathBuf::from(name);
        let file = File::create(&path)
            .map_err(|error| Refused(format!("{}: cannot write a log there: {error}", path.display())))?;
        Ok(BufWriter::with_capacity(1 << 16, file))
    };
    match numbers {
        None => Ok(vec![open(format!("{prefix}_{name}.{ending}"))?]),
        Some(numbers) => numbers.map(|number| open(format!("{prefix}_{name}.{number}.{ending}"))).collect(),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figure {
    Bandwidth,
    Iops,
    Latency,
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Self::Bandwidth => "bw",
            Self::Iops => "iops",
            Self::Latency => "lat",
        }
    }

    /// The value of one I/O, as fio has it.
    fn of_entry(self, entry: &Entry) -> u64 {
        match self {
            Self::Bandwidth => kib_per_s(entry.io.length.into(), entry.latency_ns as f64),
            Self::Iops => 1,
            Self::Latency => entry.latency_ns,
        }
    }

    fn of_window(self, window: &Window, length: Duration, largest: bool) -> u64 {
        match self {
            Self::Bandwidth => kib_per_s(window.bytes, length.as_nanos() as f64),
            Self::Iops => (window.ios as f64 / length.as_secs_f64()).round() as u64,
            Self::Latency if largest => window.latency_max_ns,
            Self::Latency => window.latency_sum_ns / window.ios.max(1),
        }
    }
}

fn kib_per_s(bytes: u64, time_ns: f64) -> u64 {
    (bytes as f64 / 1024.0 / time_ns.max(1.0) * 1e9).round() as u64
}

/// What the writing thread owns.
struct Writer {
    spec: Logs,
    files: Vec<(Figure, Vec<BufWriter<File>>)>,
    windows: BTreeMap<u32, Windows>,
    histograms: Option<Histograms>,
}

impl Writer {
    /// Writes until the log is closed; says how many I/Os were lost.
    fn run(mut self, receiver: &Receiver<Block>) -> std::io::Result<u64> {
        let mut lost = 0;
        for block in receiver {
            lost += block.lost;
            if let Some(histograms) = &mut self.histograms {
                histograms.add(&block)?;
            }
            match self.spec.window {
                None => self.write_entries(&block)?,
                Some(window) => self.write_windows(&block, window)?,
            }
        }
        let rest = std::mem::take(&mut self.windows);
        for (worker, windows) in &rest {
            let (end_ns, now) = windows.rest();
            self.write_window(*worker, end_ns, now)?;
        }
        for (_, files) in &mut self.files {
            files.iter_mut().try_for_each(BufWriter::flush)?;
        }
        if let Some(histograms) = &mut self.histograms {
            histograms.finish()?;
        }
        Ok(lost)
    }

    fn write_entries(&mut self, block: &Block) -> std::io::Result<()> {
        for (figure, files) in &mut self.files {
            let file = file_of(files, block.worker);
            for entry in block.entries.iter().filter(|entry| (entry.io.direction as usize) < LOGGED) {
                let (at_ms, value) = (entry.at_ns / 1_000_000, figure.of_entry(entry));
                let (direction, bytes) = (entry.io.direction as usize, entry.io.length);
                write!(file, "{at_ms}, {value}, {direction}, {bytes}, ")?;
                if self.spec.offsets {
                    write!(file, "{}, ", entry.io.offset)?;
                }
                writeln!(file, "0")?;
            }
        }
        Ok(())
    }

    fn write_windows(&mut self, block: &Block, window: Duration) -> std::io::Result<()> {
        let window_ns = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        let mut windows = self.windows.remove(&block.worker).unwrap_or_else(|| Windows::new(window_ns));
        let mut outcome = Ok(());
        for entry in &block.entries {
            windows.add(entry, |end_ns, now| {
                if outcome.is_ok() {
                    outcome = self.write_window(block.worker, end_ns, now);
                }
            });
        }
        self.windows.insert(block.worker, windows);
        outcome
    }

    fn write_window(&mut self, worker: u32, end_ns: u64, now: &[Window]) -> std::io::Result<()> {
        let length = self.spec.window.unwrap_or(Duration::from_secs(1));
        let offset = if self.spec.offsets { "0, " } else { "" };
        for (figure, files) in &mut self.files {
            let file = file_of(files, worker);
            for (direction, window) in
                now.iter().take(LOGGED).enumerate().filter(|(_, window)| window.ios > 0)
            {
                let value = figure.of_window(window, length, self.spec.largest);
                writeln!(file, "{}, {value}, {direction}, 0, {offset}0", end_ns / 1_000_000)?;
            }
        }
        Ok(())
    }
}

/// A worker's own file, or the one that all share.
fn file_of(files: &mut [BufWriter<File>], worker: u32) -> &mut BufWriter<File> {
    let index = (worker as usize).min(files.len() - 1);
    &mut files[index]
}

#[cfg(test)]
mod tests {
    use super::*;
    use overdrive_io::job::Direction;
    use overdrive_io::pattern::Io;

    fn entry(at_ms: u64, latency_ns: u64, direction: Direction) -> Entry {
        let io = Io { direction, offset: 8192, length: 4096 };
        Entry { at_ns: at_ms * 1_000_000, latency_ns, io }
    }

    fn written(change: impl FnOnce(&mut Logs), entries: Vec<Entry>) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("x").display().to_string();
        let mut spec = Logs::default();
        (spec.bandwidth, spec.iops, spec.latency) =
            (Some(prefix.clone()), Some(prefix.clone()), Some(prefix.clone()));
        change(&mut spec);
        let (_, logs) = IoLogs::start(&spec, 1, 2).unwrap().unwrap();
        logs.finish().unwrap();
        // The same files once more, with a writer of our own to hand a block to.
        let files = [Figure::Bandwidth, Figure::Iops, Figure::Latency]
            .map(|figure| (figure, create(figure.name(), "log", &prefix, Some(1..3)).unwrap()));
        let writer = Writer { spec, files: files.into(), windows: BTreeMap::new(), histograms: None };
        let (sender, receiver) = std::sync::mpsc::channel();
        sender.send(Block { worker: 1, entries, lost: 3 }).unwrap();
        drop(sender);
        assert_eq!(writer.run(&receiver).unwrap(), 3);
        ["bw", "iops", "lat"]
            .map(|kind| std::fs::read_to_string(format!("{prefix}_{kind}.2.log")).unwrap())
            .into()
    }

    #[test]
    fn each_io_has_its_line_as_fio_writes_it() {
        let entries = vec![
            entry(1, 40_000, Direction::Read),
            entry(2, 80_000, Direction::Write),
            entry(3, 9, Direction::Sync),
        ];
        let logs = written(|spec| spec.offsets = true, entries.clone());
        assert_eq!(logs[2], "1, 40000, 0, 4096, 8192, 0\n2, 80000, 1, 4096, 8192, 0\n");
        assert_eq!(logs[0], "1, 100000, 0, 4096, 8192, 0\n2, 50000, 1, 4096, 8192, 0\n");
        assert_eq!(written(|_| (), entries)[1], "1, 1, 0, 4096, 0\n2, 1, 1, 4096, 0\n");
    }

    #[test]
    fn windows_hold_rates_and_means() {
        let entries: Vec<Entry> = (0..150).map(|index| entry(index, 1000 + index, Direction::Read)).collect();
        let window = |spec: &mut Logs| spec.window = Some(Duration::from_millis(100));
        let logs = written(window, entries.clone());
        assert_eq!(logs[0], "100, 4000, 0, 0, 0\n200, 2000, 0, 0, 0\n");
        assert_eq!(logs[1], "100, 1000, 0, 0, 0\n200, 500, 0, 0, 0\n");
        assert_eq!(logs[2], "100, 1049, 0, 0, 0\n200, 1124, 0, 0, 0\n");
        let largest =
            |spec: &mut Logs| (spec.window, spec.largest) = (Some(Duration::from_millis(100)), true);
        assert_eq!(written(largest, entries)[2], "100, 1099, 0, 0, 0\n200, 1149, 0, 0, 0\n");
    }
}
