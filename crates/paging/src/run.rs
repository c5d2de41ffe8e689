//! A whole cell: fill the set, warm up until the fault rate is steady, measure on all threads, add up.

use crate::lane::{Lane, RealLane, SimLane};
use crate::outcome::{KernelCounts, Outcome};
use crate::spec::{Spec, SpecError};
use crate::worker::{Tally, Worker};
use overdrive_base::rng::Rng;
use overdrive_sys::affinity;
use overdrive_sys::clock::Clock;
use overdrive_sys::region::{PAGE_WORDS, Region};
use overdrive_sys::vm_counters::VmCounters;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, PoisonError, RwLock};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How often the warm-up is judged.
const WINDOW: Duration = Duration::from_millis(200);

/// Windows that must agree.
const WINDOWS: usize = 3;

/// Why a cell could not be run.
#[derive(Debug, Error)]
pub enum RunError {
    /// It makes no sense.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The set could not be mapped.
    #[error("mapping {pages} pages: {errno}")]
    Map {
        /// How many.
        pages: u64,
        /// Why not.
        errno: overdrive_sys::Errno,
    },
    /// A thread could not be started or ended badly.
    #[error("a worker thread {0}")]
    Thread(&'static str),
}

/// Runs a cell on real memory. `stop` ends it early; what was measured until then is kept. `ready` is called
/// when the cell is warm; until it returns the workers go on warming up, and measuring begins then.
///
/// # Errors
/// When the set cannot be mapped or the threads not started.
pub fn run(spec: &Spec, clock: Clock, stop: &AtomicBool, ready: &dyn Fn()) -> Result<Outcome, RunError> {
    spec.check()?;
    let pages = usize::try_from(spec.pages).unwrap_or(usize::MAX);
    let region = Region::new(pages).map_err(|errno| RunError::Map { pages: spec.pages, errno })?;
    fill(&region, spec, stop);
    if spec.cold {
        // A kernel that cannot page out on request starts with what it has left in memory.
        let _ = region.page_out();
    }
    let origin = clock.now();
    let shared = Shared::new(spec.threads);
    let mut watched = Watched::default();
    let tallies = std::thread::scope(|scope| {
        let (region, shared) = (&region, &shared);
        let gate = shared.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut threads = Vec::new();
        for number in 0..spec.threads {
            let lane = RealLane::new(region, clock, origin);
            let worker = Worker::new(spec, number, lane, &shared.progress[number]);
            let started = std::thread::Builder::new().spawn_scoped(scope, move || {
                pin_if_room(number, spec.threads);
                shared.work(worker, spec, stop)
            });
            match started {
                Ok(thread) => threads.push(thread),
                Err(_) => {
                    shared.release(true);
                    return Err(RunError::Thread("could not be started"));
                }
            }
        }
        drop(gate);
        watched = shared.watch(spec, stop, ready);
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| RunError::Thread("ended badly")))
            .collect::<Result<Vec<Tally>, RunError>>()
    })?;
    let kernel = VmCounters::read().since(&watched.before);
    let mut outcome = added_up(&tallies);
    outcome.kernel = Some(KernelCounts::from(kernel));
    outcome.warmup_ms = watched.warmup_ms;
    outcome.steady = (!spec.cold).then_some(watched.steady);
    outcome.interrupted = stop.load(Ordering::Relaxed);
    Ok(outcome)
}

/// Runs a cell on simulated memory, one worker after the other, in virtual time.
///
/// # Errors
/// When the cell makes no sense, or its delays are zero and time would stand still.
pub fn simulate(spec: &Spec, sim: &SimLane) -> Result<Outcome, RunError> {
    spec.check()?;
    if sim.hit_ns == 0 || sim.fault_ns == 0 {
        return Err(SpecError::NoTime.into());
    }
    let (progress, never) = (AtomicU64::new(0), AtomicBool::new(false));
    let run_one = |number| {
        let lane: SimLane = sim.clone();
        measure_with(Worker::new(spec, number, lane, &progress), spec, &never)
    };
    Ok(added_up(&(0..spec.threads).map(run_one).collect::<Vec<Tally>>()))
}

fn measure_with<L: Lane>(mut worker: Worker<'_, L>, spec: &Spec, stop: &AtomicBool) -> Tally {
    worker.measure(spec.runtime_ms.saturating_mul(1_000_000), stop)
}

fn added_up(tallies: &[Tally]) -> Outcome {
    let mut outcome = Outcome::default();
    for tally in tallies {
        outcome.reads.merge(&tally.reads);
        outcome.writes.merge(&tally.writes);
        outcome.stalls.merge(&tally.stalls);
    }
    let first = tallies.iter().map(|tally| tally.first_ns).min().unwrap_or(0);
    let last = tallies.iter().map(|tally| tally.last_ns).max().unwrap_or(0);
    outcome.elapsed_ns = last.saturating_sub(first);
    outcome
}

/// Writes every page once: its first part random, the compressible rest zeroes.
fn fill(region: &Region, spec: &Spec, stop: &AtomicBool) {
    let random_words = PAGE_WORDS * (100 - usize::from(spec.compressible_percent)) / 100;
    let mut rng = Rng::for_stream(spec.seed, u64::MAX);
    for page in 0..region.pages() {
        // The first word is written in any case: a page that is not there cannot be paged.
        region.write(page, 0, 0);
        (0..random_words).for_each(|word| region.write(page, word, rng.next_u64()));
        if page.is_multiple_of(1024) && stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Each thread on a CPU of its own, as long as there are enough; otherwise the scheduler places them.
fn pin_if_room(number: usize, threads: usize) {
    if let Ok(cpus) = affinity::allowed_cpus()
        && threads <= cpus.len()
    {
        // A CPU that went offline just now costs precision, not correctness.
        let _ = affinity::pin_current_thread(cpus[number]);
    }
}

/// What the workers and the watching thread share.
struct Shared {
    progress: Vec<AtomicU64>,
    warm: AtomicBool,
    abandoned: AtomicBool,
    /// Held for writing until all workers are started, so that none waits for one that never comes.
    gate: RwLock<()>,
    barrier: Barrier,
}

/// What was seen from outside the workers.
#[derive(Default)]
struct Watched {
    before: VmCounters,
    warmup_ms: u64,
    steady: bool,
}

impl Shared {
    fn new(threads: usize) -> Self {
        Self {
            progress: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            warm: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            gate: RwLock::new(()),
            barrier: Barrier::new(threads + 1),
        }
    }

    fn release(&self, abandoned: bool) {
        self.abandoned.store(abandoned, Ordering::Relaxed);
        self.warm.store(true, Ordering::Relaxed);
    }

    fn work<L: Lane>(&self, mut worker: Worker<'_, L>, spec: &Spec, stop: &AtomicBool) -> Tally {
        drop(self.gate.read().unwrap_or_else(PoisonError::into_inner));
        worker.warm_up(|| self.warm.load(Ordering::Relaxed));
        if self.abandoned.load(Ordering::Relaxed) {
            return Tally::default();
        }
        self.barrier.wait();
        measure_with(worker, spec, stop)
    }

    /// Waits for the warm-up's end, reads the counters and lets the workers measure.
    fn watch(&self, spec: &Spec, stop: &AtomicBool, ready: &dyn Fn()) -> Watched {
        let start = Instant::now();
        let longest = Duration::from_millis(if spec.cold { 0 } else { spec.warmup_max_ms });
        let mut shares = Vec::new();
        let mut last = (self.accesses(), faults_so_far());
        let mut steady = false;
        while !steady && start.elapsed() < longest && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(WINDOW.min(longest));
            let now = (self.accesses(), faults_so_far());
            if now.0 > last.0 {
                shares.push((now.1 - last.1) as f64 / (now.0 - last.0) as f64);
                last = now;
            }
            steady = is_steady(&shares);
        }
        ready();
        self.release(false);
        let warmup_ms = start.elapsed().as_millis() as u64;
        let before = VmCounters::read();
        self.barrier.wait();
        Watched { before, warmup_ms, steady }
    }

    fn accesses(&self) -> u64 {
        self.progress.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Faults of this process of both kinds: those that a userfaultfd answers are minor to the kernel.
fn faults_so_far() -> u64 {
    let counters = VmCounters::read();
    counters.major_faults + counters.minor_faults
}

/// Whether the last windows' shares of faults agree: within a tenth of one another, or within 0.2 %.
fn is_steady(shares: &[f64]) -> bool {
    let Some(tail) = shares.len().checked_sub(WINDOWS).map(|from| &shares[from..]) else { return false };
    let (least, most) = tail.iter().fold((f64::MAX, 0.0f64), |(low, high), &s| (low.min(s), high.max(s)));
    most - least <= (most * 0.1).max(0.002)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::tests::spec;

    #[test]
    fn known_delays_come_out() {
        // 25 % of the pages are hits of 100 ns, the rest faults of 50 us.
        let spec = Spec { pages: 1000, read_ratio_percent: 30, runtime_ms: 5000, ..spec() };
        let outcome = simulate(&spec, &SimLane::new(250, 100, 50_000)).unwrap();
        let all = outcome.all().histogram;
        let faults = crate::valley::count_from(&all, outcome.fault_threshold_ns().unwrap());
        let share = faults as f64 / all.count() as f64;
        assert!((share - 0.75).abs() < 0.01, "{share}");
        let reads = outcome.reads.histogram.count() as f64 / all.count() as f64;
        assert!((reads - 0.30).abs() < 0.01, "{reads}");
        assert_eq!((all.min(), all.max()), (Some(100), Some(50_000)));
        let mean = 0.25 * 100.0 + 0.75 * 50_000.0;
        assert!((outcome.pages_per_s() / (2.0 * 1e9 / mean) - 1.0).abs() < 0.02, "{}", outcome.pages_per_s());
        assert!((outcome.elapsed_ns as f64 / 5e9 - 1.0).abs() < 1e-4);
        assert_eq!(outcome.stalls.count, 0);
    }

    #[test]
    fn a_seed_replays_and_the_timing_cost_is_taken_off() {
        let spec = Spec { timing_cost_ns: 30, ..spec() };
        let sim = SimLane::new(512, 100, 2_000_030);
        let (a, b) = (simulate(&spec, &sim).unwrap(), simulate(&spec, &sim).unwrap());
        assert_eq!(a.stalls, b.stalls);
        assert_eq!(a.reads.sum_ns, b.reads.sum_ns);
        assert_eq!(a.all().histogram.min(), Some(70));
        assert!(a.stalls.count > 0 && a.stalls.first[0].took_ns == 2_000_000);
        assert!(simulate(&spec, &SimLane::new(1, 0, 5)).is_err(), "time would stand still");
    }

    #[test]
    fn a_delay_lowers_the_rate() {
        let spec = Spec { delay_ns: 900, threads: 1, ..spec() };
        let outcome = simulate(&spec, &SimLane::new(1024, 100, 5_000)).unwrap();
        assert!((outcome.pages_per_s() / 1e6 - 1.0).abs() < 0.01, "{}", outcome.pages_per_s());
    }

    #[test]
    fn real_memory_is_measured_on_every_thread() {
        let clock = Clock::calibrate(Duration::from_millis(20));
        let spec = Spec { write_needs_read: true, compressible_percent: 50, ..spec() };
        let outcome = run(&spec, clock, &AtomicBool::new(false), &|| ()).unwrap();
        let (reads, writes) = (outcome.reads.histogram.count(), outcome.writes.histogram.count());
        assert!(reads > 1000 && writes > 1000, "{reads} {writes}");
        // A busy machine may take the CPU away just before the end.
        assert!(outcome.elapsed_ns >= 50_000_000, "{}", outcome.elapsed_ns);
        assert!(!outcome.interrupted && outcome.kernel.is_some());
        assert!(run(&Spec { pages: u64::MAX, ..spec }, clock, &AtomicBool::new(false), &|| ()).is_err());
    }

    #[test]
    fn a_stopped_run_keeps_what_it_has() {
        let clock = Clock::calibrate(Duration::from_millis(5));
        let spec = Spec { runtime_ms: 60_000, ..spec() };
        let stop = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            let running = scope.spawn(|| run(&spec, clock, &stop, &|| ()).unwrap());
            std::thread::sleep(Duration::from_millis(1500));
            stop.store(true, Ordering::Relaxed);
            running.join().unwrap()
        });
        assert!(outcome.interrupted && outcome.elapsed_ns < 30_000_000_000);
    }

    #[test]
    fn steady_is_when_windows_agree() {
        assert!(!is_steady(&[0.5, 0.5]));
        assert!(!is_steady(&[0.1, 0.3, 0.5]));
        assert!(is_steady(&[0.1, 0.50, 0.52, 0.49]));
        assert!(is_steady(&[0.0, 0.0, 0.0]));
        assert!(is_steady(&[0.0010, 0.0001, 0.0005]), "next to none is none");
    }
}
