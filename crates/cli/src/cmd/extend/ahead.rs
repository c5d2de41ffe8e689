//! Room kept below the limit of the program's group, so that its threads find memory where they fault and
//! need not make it: a thread of this process, which stays outside the group, gets out what the kernel would
//! choose itself.
//!
//! What a kernel without a way to do so has is the limit alone, and the program's threads reclaim.

use overdrive_host::swap::ahead::{Ahead, Slice, Step};
use overdrive_sys::memory_group::MemoryGroup;
use overdrive_sys::memory_group::reclaim::{Reclaimer, SliceEnd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

/// Works until it is dropped.
#[derive(Debug)]
pub(crate) struct KeptRoom {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl KeptRoom {
    /// Starts it; an error says what the kernel lacks, and then there is none.
    pub(crate) fn start(group: &MemoryGroup) -> Result<Self, String> {
        let files = group.reclaim_files().map_err(|error| error.to_string())?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (told, hear) = mpsc::channel();
        let work = move || match Reclaimer::new(files) {
            Ok(reclaimer) => {
                let _ = told.send(Ok(()));
                keep(&reclaimer, &stopped);
            }
            Err(error) => drop(told.send(Err(format!("no timer: {error}")))),
        };
        let thread = std::thread::Builder::new().name("room".to_owned()).spawn(work);
        let thread = thread.map_err(|error| format!("no thread: {error}"))?;
        let room = Self { stop, thread: Some(thread) };
        hear.recv().map_err(|_| "its thread ended".to_owned())??;
        Ok(room)
    }
}

impl Drop for KeptRoom {
    /// Ends at once, or with the slice that is being worked on.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does not panic; and if it did, it has ended.
            let _ = thread.join();
        }
    }
}

/// Until it is stopped, or the group is gone.
fn keep(reclaimer: &Reclaimer, stop: &AtomicBool) {
    let (mut ahead, start) = (Ahead::default(), Instant::now());
    while !stop.load(Ordering::Relaxed) {
        let (Ok(limit), Ok(usage)) = (reclaimer.limit_bytes(), reclaimer.usage_bytes()) else { return };
        match ahead.next(start.elapsed(), limit, usage) {
            Step::Rest(time) => std::thread::park_timeout(time),
            Step::Reclaim { bytes, time } => {
                let begun = Instant::now();
                let Ok(end) = reclaimer.slice(bytes, time) else { return };
                ahead.ran(Slice { took: begun.elapsed(), found_nothing: end == SliceEnd::Nothing });
            }
        }
    }
}
