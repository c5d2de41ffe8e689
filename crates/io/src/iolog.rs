//! A log of every I/O, for whoever writes it down: workers fill blocks of entries and hand them over; nobody
//! waits for a slow reader. What does not fit any more is counted and left out.

use crate::job::Direction;
use crate::pattern::Io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Entries handed over at once.
const BLOCK: usize = 1 << 14;
/// Blocks that may wait for the reader: with entries of 32 bytes, 128 MiB.
const WAITING: usize = 256;

/// One I/O, as it was seen to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// When, in nanoseconds after measuring began.
    pub at_ns: u64,
    /// How long it took, in nanoseconds: what the latency histogram was given.
    pub latency_ns: u64,
    /// What it did.
    pub io: Io,
}

/// Entries of one worker, in the order in which they were done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The worker, from 0.
    pub worker: u32,
    /// Its entries.
    pub entries: Vec<Entry>,
    /// Entries lost before these because the reader was too slow.
    pub lost: u64,
}

/// Where workers send their blocks.
#[derive(Debug, Clone)]
pub struct Sink(SyncSender<Block>);

/// A sink for [`crate::run::run_logged`], and the end to read from, on another thread, until it is closed.
#[must_use]
pub fn io_log() -> (Sink, Receiver<Block>) {
    let (sender, receiver) = sync_channel(WAITING);
    (Sink(sender), receiver)
}

/// One worker's side of the log.
#[derive(Debug)]
pub(crate) struct Recorder {
    sink: Sink,
    worker: u32,
    entries: Vec<Entry>,
    lost: u64,
}

impl Recorder {
    pub(crate) fn new(sink: Sink, worker: u32) -> Self {
        Self { sink, worker, entries: Vec::with_capacity(BLOCK), lost: 0 }
    }

    #[inline]
    pub(crate) fn add(&mut self, at_ns: u64, latency_ns: u64, io: Io) {
        self.entries.push(Entry { at_ns, latency_ns, io });
        if self.entries.len() == BLOCK {
            self.hand_over();
        }
    }

    #[cold]
    fn hand_over(&mut self) {
        let entries = std::mem::replace(&mut self.entries, Vec::with_capacity(BLOCK));
        let block = Block { worker: self.worker, entries, lost: std::mem::take(&mut self.lost) };
        if let Err(TrySendError::Full(block) | TrySendError::Disconnected(block)) =
            self.sink.0.try_send(block)
        {
            self.lost = block.lost + block.entries.len() as u64;
        }
    }

    /// Hands over what is left. Nothing is measured any more, so it may wait for the reader.
    pub(crate) fn finish(mut self) {
        let block =
            Block { worker: self.worker, entries: std::mem::take(&mut self.entries), lost: self.lost };
        let _ = self.sink.0.send(block);
    }
}

/// Entries of one direction over one window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// I/Os done in it.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The sum of their latencies in nanoseconds.
    pub latency_sum_ns: u64,
    /// The longest of them.
    pub latency_max_ns: u64,
}

/// Adds entries up in windows of equal length, as they come.
#[derive(Debug, Clone)]
pub struct Windows {
    window_ns: u64,
    end_ns: u64,
    now: [Window; Direction::COUNT],
}

impl Windows {
    /// Windows of `window_ns` nanoseconds, at least one.
    #[must_use]
    pub fn new(window_ns: u64) -> Self {
        let window_ns = window_ns.max(1);
        Self { window_ns, end_ns: window_ns, now: Default::default() }
    }

    /// Adds an entry; calls `done` with the end of each window that it is behind, and what was in it.
    pub fn add(&mut self, entry: &Entry, mut done: impl FnMut(u64, &[Window])) {
        while entry.at_ns >= self.end_ns {
            done(self.end_ns, &self.now);
            self.now = Default::default();
            self.end_ns = self.end_ns.saturating_add(self.window_ns);
        }
        let window = &mut self.now[entry.io.direction as usize];
        window.ios += 1;
        window.bytes += u64::from(entry.io.length);
        window.latency_sum_ns = window.latency_sum_ns.saturating_add(entry.latency_ns);
        window.latency_max_ns = window.latency_max_ns.max(entry.latency_ns);
    }

    /// The window that was not over, with its end.
    #[must_use]
    pub fn rest(&self) -> (u64, &[Window]) {
        (self.end_ns, &self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at_ns: u64, latency_ns: u64) -> Entry {
        Entry { at_ns, latency_ns, io: Io { direction: Direction::Read, offset: 0, length: 512 } }
    }

    #[test]
    fn windows_hold_what_falls_into_them() {
        let mut windows = Windows::new(100);
        let mut seen = Vec::new();
        for one in [entry(0, 5), entry(99, 7), entry(100, 9), entry(350, 1)] {
            windows.add(&one, |end, now| seen.push((end, now[0].ios, now[0].latency_sum_ns)));
        }
        assert_eq!(seen, [(100, 2, 12), (200, 1, 9), (300, 0, 0)]);
        let (end, rest) = windows.rest();
        assert_eq!((end, rest[0].ios, rest[0].bytes, rest[0].latency_max_ns), (400, 1, 512, 1));
    }

    #[test]
    fn a_slow_reader_loses_entries_and_is_told_how_many() {
        let (sink, receiver) = io_log();
        let mut recorder = Recorder::new(sink, 3);
        let all = ((WAITING + 2) * BLOCK + 5) as u64;
        (0..all).for_each(|at| recorder.add(at, 1, entry(0, 0).io));
        let reader = std::thread::spawn(move || {
            receiver
                .iter()
                .fold((0, 0), |(kept, lost), block| (kept + block.entries.len() as u64, lost + block.lost))
        });
        recorder.finish();
        let (kept, lost) = reader.join().unwrap();
        assert_eq!((kept + lost, lost), (all, 2 * BLOCK as u64));
    }
}
