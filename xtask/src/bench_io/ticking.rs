//! Keeps the timer tick of every CPU going while single I/Os are compared.
//!
//! A CPU that sleeps between single reads has its tick stopped and started again by the kernel for each of
//! them, unless a timer is due within a tick anyway. On a virtual machine that costs several microseconds
//! and, with the CPU's deeper sleep, up to nine. fio's main thread wakes every 10 ms and so spares its worker
//! part of it; Overdrive's sleeps on. That says nothing about either's way to the disk, so both are compared
//! with ticks that never stop.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Shorter than any kernel's tick, which is 1 to 10 ms; it costs a CPU about one per cent.
const PERIOD: Duration = Duration::from_micros(800);

/// A thread on each CPU that wakes more often than its tick, until this is dropped.
#[derive(Debug)]
pub(super) struct Ticking {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Ticking {
    /// On every CPU that this process may use.
    pub(super) fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
        let threads = cpus.map(|cpu| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut own = CpuSet::new();
                own.set(cpu);
                // Unpinned it keeps some other tick going: the comparison is then only noisier.
                let _ = sched_setaffinity(None, &own);
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(PERIOD);
                }
            })
        });
        Self { threads: threads.collect(), stop }
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_end_with_it() {
        let ticking = Ticking::start();
        assert!(!ticking.threads.is_empty());
        let stop = Arc::clone(&ticking.stop);
        drop(ticking);
        assert_eq!(Arc::strong_count(&stop), 1);
    }
}
