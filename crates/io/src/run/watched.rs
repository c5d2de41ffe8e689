//! A task seen from outside while it runs: what its workers have done so far, and whether it is steady.

use super::Task;
use crate::job::Job;
use crate::live::Seen;
use crate::steady::{Detector, Figure, SteadyState};
use crate::worker::Progress;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A task as it is seen from outside while it runs.
pub(super) struct Watched {
    pub(super) workers: Vec<Arc<Progress>>,
    targets: usize,
    pub(super) steadiness: Option<Steadiness>,
    /// Set when it may end early.
    pub(super) enough: Arc<AtomicBool>,
}

impl Watched {
    pub(super) fn new(task: &Task) -> Self {
        let steadiness = task.job.steady.map(|asked| Steadiness::new(asked, &task.job));
        let targets = task.targets.len();
        Self { workers: Vec::new(), targets, steadiness, enough: Arc::new(AtomicBool::new(false)) }
    }

    pub(super) fn ios(&self) -> u64 {
        self.workers.iter().map(|worker| worker.ios.load(Ordering::Relaxed)).sum()
    }

    /// Takes a value when one is due. What follows once there is enough is the end of the job and no news of
    /// it.
    pub(super) fn look(&mut self, elapsed: Duration) {
        if self.enough.load(Ordering::Relaxed) {
            return;
        }
        let steady = self.steadiness.as_mut().is_some_and(|steady| steady.look(elapsed, &self.workers));
        if steady {
            self.enough.store(true, Ordering::Relaxed);
        }
    }
}

/// What is to be seen of a run at one moment.
pub struct Glance<'a> {
    pub(super) watched: &'a [Watched],
}

impl std::fmt::Debug for Glance<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Glance").field("ios", &self.ios()).finish_non_exhaustive()
    }
}

impl Glance<'_> {
    /// Operations finished by all workers of all tasks.
    #[must_use]
    pub fn ios(&self) -> u64 {
        self.watched.iter().map(Watched::ios).sum()
    }

    /// What was done so far, by task and target; nothing unless the setting asks for it.
    #[must_use]
    pub fn seen(&self) -> Vec<Vec<Seen>> {
        let of = |watched: &Watched| {
            let mut targets = vec![Seen::default(); watched.targets];
            for (number, worker) in watched.workers.iter().enumerate() {
                if let Some(live) = &worker.live {
                    targets[number % watched.targets].add(live);
                }
            }
            targets
        };
        self.watched.iter().map(of).collect()
    }
}

/// Takes a value at each interval of a job that is to become steady.
pub(super) struct Steadiness {
    asked: SteadyState,
    pub(super) detector: Detector,
    /// When the next value is due, and when and what was seen last.
    due: Duration,
    /// When the measured time is over: a cool-down counts nothing.
    until: Duration,
    last: Option<(Duration, [u64; 3])>,
}

impl Steadiness {
    fn new(asked: SteadyState, job: &Job) -> Self {
        let start = job.start_delay + job.warmup;
        let (due, until) = (start + asked.ramp, start + job.runtime);
        Self { asked, detector: Detector::new(asked), due, until, last: None }
    }

    /// Whether the run is steady now.
    fn look(&mut self, elapsed: Duration, workers: &[Arc<Progress>]) -> bool {
        if elapsed < self.due || elapsed > self.until {
            return false;
        }
        self.due += self.asked.interval;
        let sum = |pick: fn(&Progress) -> &AtomicU64| -> u64 {
            workers.iter().map(|worker| pick(worker).load(Ordering::Relaxed)).sum()
        };
        let now = [sum(|p| &p.measured), sum(|p| &p.bytes), sum(|p| &p.latency_ns)];
        let Some((since, before)) = self.last.replace((elapsed, now)) else { return false };
        let time_s = (elapsed - since).as_secs_f64().max(f64::MIN_POSITIVE);
        let grown = |index: usize| now[index].saturating_sub(before[index]) as f64;
        self.detector.add(match self.asked.figure {
            Figure::Iops => grown(0) / time_s,
            Figure::Bandwidth => grown(1) / time_s,
            Figure::Latency => grown(2) / grown(0).max(1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineKind;
    use crate::engine::sim::SimSpec;
    use crate::job::JobSpec;
    use crate::steady::{Limit, Test};
    use crate::target::Target;

    /// A watched job of one worker, ten seconds long, that is steady after three values of a second.
    fn watched() -> Watched {
        let target = Target::simulated(SimSpec::default());
        let spec = JobSpec {
            engine: EngineKind::Psync,
            steady: Some(SteadyState {
                figure: Figure::Iops,
                test: Test::Deviation,
                limit: Limit::Percent(5.0),
                duration: Duration::from_secs(3),
                ramp: Duration::ZERO,
                interval: Duration::from_secs(1),
            }),
            ..JobSpec::default()
        };
        let job = spec.check(target.size()).unwrap();
        let task = Task { job, targets: vec![target], cpus: Vec::new(), log: None };
        Watched { workers: vec![Arc::default()], ..Watched::new(&task) }
    }

    /// Looks once a second until `seconds`; the worker has done so many I/Os by then.
    fn look(watched: &mut Watched, seconds: std::ops::Range<u64>, done: fn(u64) -> u64) -> (bool, u64) {
        for second in seconds {
            watched.workers[0].measured.store(done(second), Ordering::Relaxed);
            watched.look(Duration::from_secs(second));
        }
        let outcome = watched.steadiness.as_ref().unwrap().detector.outcome();
        (outcome.attained, outcome.values)
    }

    #[test]
    fn what_comes_after_the_steady_state_does_not_undo_it() {
        let mut watched = watched();
        assert_eq!(look(&mut watched, 0..4, |second| second * 1000), (true, 3));
        assert!(watched.enough.load(Ordering::Relaxed));
        assert_eq!(look(&mut watched, 4..9, |_| 3000), (true, 3), "it reads back, drains or cools down");
    }

    #[test]
    fn nothing_is_looked_at_after_the_measured_time() {
        let mut watched = watched();
        let restless = |second: u64| second.pow(3) * 1000;
        assert_eq!(look(&mut watched, 0..11, restless), (false, 10));
        assert_eq!(look(&mut watched, 11..16, |_| 1_000_000), (false, 10));
    }
}
