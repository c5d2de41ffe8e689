//! I/Os counted by intervals while they are done: DISKSPD's -D.

use crate::assemble::Draft;
use anyhow::{Context, Result};
use overdrive_io::iolog::{Block, io_log};
use overdrive_io::job::Direction;
use overdrive_io::run::Task;
use overdrive_report::render::diskspd::Intervals;
use std::cell::RefCell;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::Duration;

/// Intervals that were asked for, and what was counted so far, a job of one worker after the other.
#[derive(Debug)]
pub(crate) struct Counted {
    length: Duration,
    found: RefCell<Vec<Intervals>>,
}

/// Jobs that are being counted.
#[derive(Debug)]
pub(crate) struct Counting(Vec<JoinHandle<(Intervals, u64)>>);

impl Counted {
    pub(crate) fn new(length: Duration) -> Self {
        Self { length, found: RefCell::default() }
    }

    /// Has every task tell what it does to a thread that counts it.
    pub(crate) fn begin(&self, tasks: &mut [Task]) -> Result<Counting> {
        let mut threads = Vec::new();
        for task in tasks {
            let (sink, receiver) = io_log();
            task.log = Some(sink);
            // What is done after the last whole interval is not counted, as it is not there.
            let count = task.job.runtime.as_millis() / self.length.as_millis().max(1);
            let empty = Intervals::new(self.length.as_millis() as u64, count.clamp(1, 1 << 20) as usize);
            let thread = std::thread::Builder::new()
                .name("intervals".to_owned())
                .spawn(move || count_all(empty, &receiver))
                .context("starting the thread that counts I/Os by interval")?;
            threads.push(thread);
        }
        Ok(Counting(threads))
    }

    /// Waits until all is counted, after the tasks are gone.
    pub(crate) fn end(&self, counting: Counting, draft: &mut Draft) {
        for thread in counting.0 {
            let (intervals, lost) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            if lost > 0 {
                draft
                    .note(format!("the intervals lack {lost} I/Os: they came faster than they were counted"));
            }
            self.found.borrow_mut().push(intervals);
        }
    }

    /// What was counted.
    pub(crate) fn found(&self) -> Vec<Intervals> {
        self.found.borrow().clone()
    }
}

fn count_all(mut intervals: Intervals, receiver: &Receiver<Block>) -> (Intervals, u64) {
    let mut lost = 0;
    for block in receiver {
        lost += block.lost;
        for entry in block.entries.iter().filter(|entry| entry.io.direction <= Direction::Write) {
            intervals.add(entry.at_ns, entry.io.direction == Direction::Write, entry.latency_ns);
        }
    }
    (intervals, lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use overdrive_io::iolog::Entry;
    use overdrive_io::pattern::Io;

    #[test]
    fn what_falls_behind_the_end_is_not_counted() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let entry = |at_ms: u64, direction| Entry {
            at_ns: at_ms * 1_000_000,
            latency_ns: 5_000,
            io: Io { direction, offset: 0, length: 512 },
        };
        let entries = vec![
            entry(0, Direction::Read),
            entry(150, Direction::Write),
            entry(150, Direction::Sync),
            entry(200, Direction::Read),
        ];
        sender.send(Block { worker: 0, entries, lost: 7 }).unwrap();
        drop(sender);
        let (intervals, lost) = count_all(Intervals::new(100, 2), &receiver);
        let ios: Vec<[u64; 2]> = intervals.all.iter().map(|[read, write]| [read.ios, write.ios]).collect();
        assert_eq!((ios, lost), (vec![[1, 0], [0, 1]], 7));
    }
}
