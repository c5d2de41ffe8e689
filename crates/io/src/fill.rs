//! Writing a target in full, once, with random content: reads of never-written blocks measure nothing.

use crate::engine::sync::{Path, SyncEngine};
use crate::engine::uring::UringEngine;
use crate::engine::{Completion, Engine};
use crate::job::Direction;
use crate::pattern::Io;
use crate::run::{RunError, Setting};
use crate::target::Target;
use overdrive_base::rng::Rng;
use overdrive_base::size::MIB;
use overdrive_sys::Errno;
use overdrive_sys::ring::RingOptions;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const QUEUE_DEPTH: u32 = 16;

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filled {
    /// Bytes written; less than the target's size when the caller stopped it.
    pub bytes: u64,
    /// How long it took, the final flush included.
    pub elapsed: Duration,
    /// Whether the whole target was written.
    pub complete: bool,
}

/// Writes every whole 4 KiB block of the target in 1 MiB steps and flushes it; `watch` hears the bytes.
///
/// Uses io_uring where it is to be had and plain writes otherwise. A simulated target is full from the start.
///
/// # Errors
/// The errno of the first write that fails, or of the flush.
pub fn fill(
    target: &Target,
    seed: u64,
    setting: &Setting,
    watch: impl FnMut(u64),
) -> Result<Filled, RunError> {
    let Some(file) = target.file() else {
        return Ok(Filled { bytes: 0, elapsed: Duration::ZERO, complete: true });
    };
    let start = Instant::now();
    let failed = |step| move |errno| RunError::System { step, errno };
    let duplicate =
        || file.try_clone().map_err(|_| failed("duplicating the target's descriptor")(Errno::MFILE));
    let clock = setting.clock;
    let engine = UringEngine::new(duplicate()?, clock, QUEUE_DEPTH, MIB as usize, RingOptions::default());
    let bytes = match engine {
        Ok(engine) => write_all(engine, QUEUE_DEPTH, target.size(), seed, setting, watch),
        Err(_) => {
            let path = Path::Vectored { file: duplicate()?, polled: false };
            let engine = SyncEngine::new(path, clock, MIB as usize).map_err(failed("allocating buffers"))?;
            write_all(engine, 1, target.size(), seed, setting, watch)
        }
    }
    .map_err(failed("writing the target in full"))?;
    file.sync_data()
        .map_err(|error| failed("flushing the target")(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    Ok(Filled { bytes, elapsed: start.elapsed(), complete: bytes == target.size() / 4096 * 4096 })
}

fn write_all<E: Engine>(
    mut engine: E,
    depth: u32,
    size: u64,
    seed: u64,
    setting: &Setting,
    mut watch: impl FnMut(u64),
) -> Result<u64, Errno> {
    let size = size / 4096 * 4096;
    let mut rng = Rng::for_stream(seed, 0xf111);
    let mut lengths = vec![0u32; depth as usize];
    let mut free: Vec<u32> = (0..depth).collect();
    let mut done: Vec<Completion> = Vec::new();
    let (mut next, mut written) = (0, 0);
    loop {
        while next < size && !setting.stop.load(Ordering::Relaxed) {
            let Some(slot) = free.pop() else { break };
            let length = (size - next).min(MIB) as u32;
            rng.fill(&mut engine.write_buffer_mut(slot)[..length as usize]);
            lengths[slot as usize] = length;
            engine.queue(slot, Io { direction: Direction::Write, offset: next, length });
            next += u64::from(length);
        }
        if free.len() == depth as usize {
            return Ok(written);
        }
        engine.submit_and_reap(1, &mut done)?;
        for completion in &done {
            free.push(completion.slot);
            written += written_bytes(*completion, lengths[completion.slot as usize])?;
        }
        watch(written);
    }
}

/// A write that moves less than it was given ran out of space.
fn written_bytes(completion: Completion, length: u32) -> Result<u64, Errno> {
    match completion.result {
        result if result < 0 => Err(Errno::from_raw_os_error(-result)),
        result if result as u32 == length => Ok(u64::from(length)),
        _ => Err(Errno::NOSPC),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overdrive_sys::clock::Clock;
    use overdrive_sys::file::{Caching, create_scratch, reserve};
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    fn setting(stop: bool) -> Setting {
        let clock = Clock::calibrate(Duration::from_millis(2));
        Setting { cpus: Vec::new(), clock, stop: Arc::new(AtomicBool::new(stop)), live: false }
    }

    fn scratch(bytes: u64) -> Target {
        let file = create_scratch(&std::env::temp_dir(), Caching::Buffered).unwrap();
        reserve(&file, bytes).unwrap();
        Target::of_file(file, Caching::Buffered).unwrap()
    }

    #[test]
    fn every_block_is_written_even_in_a_crooked_size() {
        let target = scratch(5 * MIB + 3 * 4096 + 100);
        assert_eq!(target.share_of_zero_blocks(1000), Ok(1.0));
        let mut seen = 0;
        let filled = fill(&target, 1, &setting(false), |bytes| seen = bytes).unwrap();
        assert!(filled.complete);
        assert_eq!((filled.bytes, seen), (5 * MIB + 3 * 4096, 5 * MIB + 3 * 4096));
        assert_eq!(target.share_of_zero_blocks(u64::MAX), Ok(0.0));
    }

    #[test]
    fn a_stop_leaves_it_incomplete() {
        let filled = fill(&scratch(MIB), 1, &setting(true), |_| ()).unwrap();
        assert_eq!((filled.bytes, filled.complete), (0, false));
    }
}
