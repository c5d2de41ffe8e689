//! How long a guest has really run: time on the clock, less what the host kept from it.
//!
//! A limit on the clock alone would fail a scenario because the machine was busy with something else. What is
//! taken off: the share in which the guest's threads stood ready and had no CPU, and whatever time this
//! program itself did not get.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A longer pause between two looks was not waited for by anybody: this program was held up, and so was the
/// guest.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// How much a share may say about one look: a guest that is hardly ever run still gets on.
const SHARE_MIN: f64 = 0.05;

/// What a process's threads have had of the CPUs, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Had {
    run_ns: u64,
    waited_ns: u64,
}

/// The time that one process has had.
#[derive(Debug)]
pub(super) struct Progress {
    tasks: PathBuf,
    seen: Instant,
    had: Had,
}

impl Progress {
    /// Begins now, for the process of this id.
    pub(super) fn of(pid: u32) -> Self {
        let tasks = PathBuf::from(format!("/proc/{pid}/task"));
        Self { had: had(&tasks), tasks, seen: Instant::now() }
    }

    /// What it has had since the last look.
    pub(super) fn look(&mut self) -> Duration {
        let (before, had) = (self.had, had(&self.tasks));
        let passed = self.seen.elapsed().min(PAUSE_MAX);
        (self.seen, self.had) = (Instant::now(), had);
        passed.mul_f64(share(before, had))
    }
}

/// Of the time in which its threads could have run, the part in which they did; 1 when they slept.
fn share(before: Had, now: Had) -> f64 {
    let run = now.run_ns.saturating_sub(before.run_ns) as f64;
    let waited = now.waited_ns.saturating_sub(before.waited_ns) as f64;
    // Less than this is a thread that woke up for a moment.
    if run + waited < 5e6 { 1.0 } else { (run / (run + waited)).max(SHARE_MIN) }
}

/// Added up over the threads; zero where the kernel keeps no such account.
fn had(tasks: &PathBuf) -> Had {
    let entries = fs::read_dir(tasks).into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path().join("schedstat")).ok());
    texts.fold(Had::default(), |sum, text| {
        let mut numbers = text.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        Had { run_ns: sum.run_ns + next(), waited_ns: sum.waited_ns + next() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_cpu_gets_on_by_its_share() {
        let at = |run_ms: u64, waited_ms: u64| Had {
            run_ns: run_ms * 1_000_000,
            waited_ns: waited_ms * 1_000_000,
        };
        assert_eq!(share(at(0, 0), at(0, 0)), 1.0, "asleep, or no account is kept");
        assert_eq!(share(at(10, 10), at(110, 10)), 1.0);
        assert_eq!(share(at(10, 10), at(35, 85)), 0.25);
        assert_eq!(share(at(0, 0), at(0, 100)), SHARE_MIN);
        assert_eq!(share(at(50, 50), at(20, 20)), 1.0, "a thread has ended");
    }

    #[test]
    fn a_pause_of_the_program_is_not_charged() {
        let mut progress = Progress::of(std::process::id());
        progress.seen = Instant::now().checked_sub(Duration::from_secs(90)).unwrap();
        assert!(progress.look() <= PAUSE_MAX);
        assert_eq!(had(&PathBuf::from("/proc/0/task")), Had::default());
    }
}
