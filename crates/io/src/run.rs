//! Running a job: threads, start line, watching, and adding up what the workers measured.

mod apart;
mod cache;
mod watched;

use crate::engine::libaio::LibaioEngine;
use crate::engine::sim::SimEngine;
use crate::engine::sync::{Path, SyncEngine};
use crate::engine::uring::UringEngine;
use crate::engine::{EngineKind, Grants};
use crate::iolog::Sink;
use crate::job::{Access, Job, NO_TIME_LIMIT, SyncMode};
use crate::outcome::{CpuCost, DepthFound, Ended, Outcome, ScheduleOutcome, Slice, Tally, TargetOutcome};
use crate::outliers::slowest;
use crate::pattern::{Pattern, Place};
use crate::target::Target;
use crate::worker::{Assignment, Progress, Usage, WorkerOutcome, work};
pub use apart::check_apart;
use overdrive_sys::Errno;
use overdrive_sys::affinity::pin_current_thread;
use overdrive_sys::clock::Clock;
use overdrive_sys::file::{Durable, reopen_durable};
use overdrive_sys::mapped::MappedFile;
use overdrive_sys::nvme::Namespace;
use overdrive_sys::ring::{RingError, RingOptions, buffers_bytes, may_lock};
use overdrive_sys::usage::CpuShares;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use thiserror::Error;
pub use watched::Glance;
use watched::Watched;

/// A device that has not answered for this long after the end of a run will not answer: the kernel's own
/// time-out for an NVMe command is 30 s.
const GRACE: Duration = Duration::from_secs(60);

const AIO_SETUP: &str = "setting up kernel AIO (EAGAIN: fs.aio-max-nr is used up, a sysctl raises it)";

/// How often the watcher is called.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// What a run needs besides its job and target.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The CPUs workers are pinned to, in this order, over and over.
    pub cpus: Vec<usize>,
    /// The clock.
    pub clock: Clock,
    /// Set by the caller to end the run early.
    pub stop: Arc<AtomicBool>,
    /// Whether whoever watches wants to see more than the number of operations; it costs each of them some
    /// nanoseconds.
    pub live: bool,
}

/// Why nothing was measured.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RunError {
    /// io_uring is not to be had.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The kernel refused something else.
    #[error("{step} failed: {errno}")]
    System {
        /// What was attempted.
        step: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The engine and the target do not go together.
    #[error("engine {engine} does not work on {target}")]
    WrongTarget {
        /// The engine asked for.
        engine: &'static str,
        /// What the target is.
        target: &'static str,
    },
    /// Commands move whole logical blocks.
    #[error(
        "block sizes, alignment and offset: wanted multiples of {block_bytes} bytes, the namespace's blocks"
    )]
    PartOfBlock {
        /// The size of a block in bytes.
        block_bytes: u32,
    },
    /// Somebody would have nothing to do.
    #[error("{workers} workers for {targets} targets: wanted at least one worker for each, and one target")]
    TooFewWorkers {
        /// Workers asked for.
        workers: u32,
        /// Targets given.
        targets: usize,
    },
    /// Content is checked that somebody else overwrites.
    #[error(
        "verify on a target that is written to twice at the same time: wanted it named once, or jobs on parts \
         of their own or one after the other (stonewall)"
    )]
    Overwritten,
    /// Workers wait for the target and do not come back.
    #[error("the target has not answered for {} s: {workers} workers still wait for it", GRACE.as_secs())]
    Stuck {
        /// How many workers wait.
        workers: usize,
    },
    /// Workers ended without a word of what they measured; their threads have said why.
    #[error("{workers} workers ended before they told what they measured")]
    Lost {
        /// How many workers.
        workers: usize,
    },
}

/// One job of a run, with what it runs on.
#[derive(Debug, Clone)]
pub struct Task {
    /// What is done.
    pub job: Job,
    /// To what; the workers are dealt out over them.
    pub targets: Vec<Target>,
    /// The CPUs of its workers; empty for those of the setting.
    pub cpus: Vec<usize>,
    /// Where every measured I/O is written, if another thread reads it.
    pub log: Option<Sink>,
}

/// Runs a job on one or several targets, over which the workers are dealt out; `watch` is called about ten
/// times a second with the time since the start and what is to be seen of the run then.
///
/// # Errors
/// [`RunError`] when nothing could be measured. Errors of single operations are part of the outcome.
pub fn run(
    job: &Job,
    targets: &[Target],
    setting: &Setting,
    watch: impl FnMut(Duration, &Glance<'_>),
) -> Result<Outcome, RunError> {
    run_logged(job, targets, setting, None, watch)
}

/// As [`run`], and writes every measured I/O to `log`, which another thread must read.
///
/// # Errors
/// As [`run`].
pub fn run_logged(
    job: &Job,
    targets: &[Target],
    setting: &Setting,
    log: Option<Sink>,
    watch: impl FnMut(Duration, &Glance<'_>),
) -> Result<Outcome, RunError> {
    let task = Task { job: job.clone(), targets: targets.to_vec(), cpus: Vec::new(), log };
    let mut outcomes = run_together(std::slice::from_ref(&task), setting, watch)?;
    Ok(outcomes.remove(0))
}

/// Runs several jobs at the same time: all workers of all jobs start together, and each job ends by itself.
/// The outcomes come in the order of the tasks, their series in slices of one length.
///
/// # Errors
/// [`RunError`] when any of them could not be measured: the others are then not started.
pub fn run_together(
    tasks: &[Task],
    setting: &Setting,
    mut watch: impl FnMut(Duration, &Glance<'_>),
) -> Result<Vec<Outcome>, RunError> {
    for Task { job, targets, .. } in tasks {
        if targets.is_empty() || (job.workers as usize) < targets.len() {
            return Err(RunError::TooFewWorkers { workers: job.workers, targets: targets.len() });
        }
    }
    check_apart(tasks)?;
    for Task { job, targets, .. } in tasks {
        targets.iter().filter(|target| !target.is_direct()).for_each(|target| cache::prepare(job, target));
    }
    let longest = tasks.iter().map(|task| task.job.runtime).max().unwrap_or_default();
    let slice = slice_for(longest);
    let workers: u32 = tasks.iter().map(|task| task.job.workers).sum();
    let small_pages = !may_lock(tasks.iter().map(|task| locked_bytes(&task.job)).sum());
    let failed = Arc::new(AtomicBool::new(false));
    let start_line = Arc::new(Barrier::new(workers as usize));
    let (sender, receiver) = channel();
    let mut watched: Vec<Watched> = tasks.iter().map(Watched::new).collect();
    for (index, seat) in seats(tasks, &watched, setting, slice, small_pages) {
        let live = setting.live.then(Arc::default);
        let counter = Arc::new(Progress { live, ..Progress::default() });
        watched[index].workers.push(Arc::clone(&counter));
        let (sender, failed, start_line) = (sender.clone(), Arc::clone(&failed), Arc::clone(&start_line));
        std::thread::Builder::new()
            .name(format!("worker-{}", seat.place.stream))
            .spawn(move || {
                // The receiver is gone only when the run was given up as stuck.
                let _ = sender.send((index, seat.run(&failed, &start_line, &counter)));
            })
            .map_err(|error| system("starting a worker thread", &error))?;
    }
    drop(sender);
    let outcomes = collect(&receiver, tasks, setting, |elapsed, left| {
        // A job that is over does nothing, which is as steady as can be.
        let running = watched.iter_mut().zip(left).filter(|(_, left)| **left > 0);
        running.for_each(|(watched, _)| watched.look(elapsed));
        watch(elapsed, &Glance { watched: &watched });
    })?;
    let sum = |((workers, task), watched): ((_, &Task), Watched)| {
        let mut outcome = add_up(workers, slice, task.targets.len());
        outcome.steady = watched.steadiness.map(|steadiness| steadiness.detector.outcome());
        outcome
    };
    Ok(outcomes.into_iter().zip(tasks).zip(watched).map(sum).collect())
}

/// Every worker of every task, with the task's index. CPUs are dealt out over all of them in turn.
fn seats(
    tasks: &[Task],
    watched: &[Watched],
    setting: &Setting,
    slice: Duration,
    small_pages: bool,
) -> Vec<(usize, Seat)> {
    let mut seats = Vec::new();
    for (index, task) in tasks.iter().enumerate() {
        let first = seats.len() as u32;
        for number in 0..task.job.workers {
            let (cpus, turn) = match task.cpus.as_slice() {
                [] => (setting.cpus.as_slice(), first + number),
                own => (own, number),
            };
            let cpu = cpus.get(turn as usize % cpus.len().max(1)).copied();
            let place = place_of(number, task.job.workers, task.targets.len() as u32, first);
            let target = task.targets[number as usize % task.targets.len()].clone();
            let (job, setting, log) = (task.job.clone(), setting.clone(), task.log.clone());
            let enough = Arc::clone(&watched[index].enough);
            seats.push((
                index,
                Seat { number, place, cpu, job, target, setting, slice, log, enough, small_pages },
            ));
        }
    }
    seats
}

/// Worker `number` among those on the same target; `first` workers belong to jobs before this one.
fn place_of(number: u32, workers: u32, targets: u32, first: u32) -> Place {
    let of = (workers - number % targets).div_ceil(targets);
    Place { number: number / targets, of, stream: u64::from(first + number) }
}

/// One worker before it starts.
struct Seat {
    number: u32,
    place: Place,
    cpu: Option<usize>,
    job: Job,
    target: Target,
    setting: Setting,
    slice: Duration,
    log: Option<Sink>,
    enough: Arc<AtomicBool>,
    small_pages: bool,
}

/// What the rings of a job lock of memory when they have huge pages.
fn locked_bytes(job: &Job) -> u64 {
    let ring = matches!(job.engine, EngineKind::IoUring | EngineKind::IoUringCmd);
    let each = buffers_bytes(job.queue_depth, job.largest_block(), false).unwrap_or(u64::MAX);
    if ring { u64::from(job.workers).saturating_mul(each) } else { 0 }
}

impl Seat {
    fn run(
        &self,
        failed: &AtomicBool,
        start_line: &Barrier,
        progress: &Progress,
    ) -> Result<Option<WorkerOutcome>, RunError> {
        if let Some(cpu) = self.cpu
            && let Err(errno) = pin_current_thread(cpu)
        {
            failed.store(true, Ordering::Relaxed);
            start_line.wait();
            return Err(RunError::System { step: "pinning a worker to its CPU", errno });
        }
        let engine = self.open_engine();
        failed.fetch_or(engine.is_err(), Ordering::Relaxed);
        start_line.wait();
        let engine = engine?;
        if failed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if self.target.simulation().is_none() {
            wait(self.job.start_delay, &self.setting.stop);
        }
        let pattern = Pattern::new(&self.job, self.place, self.target.size());
        let assignment = Assignment {
            job: &self.job,
            number: self.number,
            stream: self.place.stream,
            cpu: self.cpu,
            slice: self.slice,
            stop: &self.setting.stop,
            enough: &self.enough,
            progress,
            log: self.log.clone(),
        };
        Ok(Some(match engine {
            Opened::Uring(engine) => work(engine, pattern, &assignment),
            Opened::Libaio(engine) => work(engine, pattern, &assignment),
            Opened::Sync(engine) => work(engine, pattern, &assignment),
            Opened::Sim(engine) => work(engine, pattern, &assignment),
        }))
    }

    fn open_engine(&self) -> Result<Opened, RunError> {
        let Self { job, target, setting, .. } = self;
        let (clock, depth) = (setting.clock, job.queue_depth);
        let slot_bytes = job.largest_block() as usize;
        let path = match &job.engine {
            EngineKind::IoUring | EngineKind::IoUringCmd => {
                let (file, namespace) = match job.engine {
                    EngineKind::IoUringCmd => self.generic()?,
                    _ => (self.file_for("io_uring")?, None),
                };
                let options = RingOptions {
                    polled: job.polled,
                    hybrid_poll: job.hybrid_poll,
                    sq_poll: job.sq_poll,
                    namespace,
                    small_pages: self.small_pages,
                };
                let engine = UringEngine::new(file, clock, depth, slot_bytes, options)?;
                return Ok(Opened::Uring(engine));
            }
            EngineKind::Nop => return Ok(Opened::Uring(UringEngine::nop(clock, depth)?)),
            EngineKind::Libaio => {
                return LibaioEngine::new(self.file_for("libaio")?, clock, depth, slot_bytes)
                    .map(Opened::Libaio)
                    .map_err(|errno| RunError::System { step: AIO_SETUP, errno });
            }
            // Each target is its own device; the job says only that it is simulated.
            EngineKind::Sim(_) => {
                let wrong = RunError::WrongTarget { engine: "sim", target: "a file or device" };
                let device = target.simulation().ok_or(wrong)?;
                return Ok(Opened::Sim(SimEngine::new(device, self.place, job.seed)));
            }
            EngineKind::Pvsync2 => Path::Vectored { file: self.file_for("pvsync2")?, polled: job.polled },
            EngineKind::Psync => Path::Plain(self.file_for("psync")?),
            EngineKind::Mmap => Path::Mapped(self.map()?, self.file_for("mmap")?),
        };
        SyncEngine::new(path, clock, slot_bytes)
            .map(Opened::Sync)
            .map_err(|errno| RunError::System { step: "allocating buffers", errno })
    }

    fn map(&self) -> Result<MappedFile, RunError> {
        let (writes, random) = (self.job.operation.writes(), self.job.access == Access::Random);
        MappedFile::new(&self.file_for("mmap")?, self.target.size(), writes, random)
            .map_err(|errno| RunError::System { step: "mapping the target", errno })
    }

    fn generic(&self) -> Result<(File, Option<Namespace>), RunError> {
        let wrong = |target| RunError::WrongTarget { engine: "io_uring_cmd", target };
        let device = self.target.generic().ok_or(wrong("what is no NVMe character device"))?;
        let namespace = device.namespace();
        let whole = |bytes: u64| bytes.is_multiple_of(namespace.block_bytes.into());
        let (offset, align) = (self.job.offset, self.job.alignment());
        if !whole(offset) || !whole(align) || !whole(self.job.smallest_block()) {
            return Err(RunError::PartOfBlock { block_bytes: namespace.block_bytes });
        }
        if namespace.metadata_bytes > 0 {
            return Err(wrong("a namespace with metadata in each block"));
        }
        let file = device.file().try_clone();
        Ok((file.map_err(|error| system("duplicating the target's descriptor", &error))?, Some(namespace)))
    }

    fn file_for(&self, engine: &'static str) -> Result<File, RunError> {
        let file =
            self.target.file().ok_or(RunError::WrongTarget { engine, target: "a simulated device" })?;
        let durable = match self.job.sync {
            SyncMode::None => {
                return file
                    .try_clone()
                    .map_err(|error| system("duplicating the target's descriptor", &error));
            }
            SyncMode::Sync => Durable::Sync,
            SyncMode::DataSync => Durable::DataSync,
        };
        reopen_durable(file, durable)
            .map_err(|errno| RunError::System { step: "opening the target again with O_SYNC", errno })
    }
}

/// Sleeps for so long, unless the run is stopped.
fn wait(time: Duration, stop: &AtomicBool) {
    let end = Instant::now() + time;
    while !stop.load(Ordering::Relaxed)
        && let Some(left) = end.checked_duration_since(Instant::now())
    {
        std::thread::sleep(left.min(WATCH_INTERVAL));
    }
}

enum Opened {
    Uring(UringEngine),
    Libaio(LibaioEngine),
    Sync(SyncEngine),
    Sim(SimEngine),
}

fn system(step: &'static str, error: &std::io::Error) -> RunError {
    RunError::System { step, errno: Errno::from_io_error(error).unwrap_or(Errno::IO) }
}

/// What a worker reports, with the index of its task.
type Report = (usize, Result<Option<WorkerOutcome>, RunError>);

/// Waits for all workers, meanwhile calling `watch` with how many workers of each task are still at it; their
/// outcomes by task.
fn collect(
    receiver: &Receiver<Report>,
    tasks: &[Task],
    setting: &Setting,
    mut watch: impl FnMut(Duration, &[usize]),
) -> Result<Vec<Vec<WorkerOutcome>>, RunError> {
    let start = Instant::now();
    let length = |task: &Task| task.job.start_delay + task.job.warmup + task.job.runtime + task.job.cooldown;
    let longest = tasks.iter().map(length).max();
    let mut deadline = start + longest.unwrap_or_default() + GRACE;
    // Virtual time may take longer than real time, and reading back takes as long as it takes.
    let endless =
        tasks.iter().any(|task| matches!(task.job.engine, EngineKind::Sim(_)) || task.job.verify.is_some());
    let mut stopping = false;
    let mut outcomes: Vec<Vec<WorkerOutcome>> = tasks.iter().map(|_| Vec::new()).collect();
    let mut left: Vec<usize> = tasks.iter().map(|task| task.job.workers as usize).collect();
    let mut error = None;
    while left.iter().any(|&left| left > 0) {
        match receiver.recv_timeout(WATCH_INTERVAL) {
            Ok((task, report)) => {
                left[task] -= 1;
                match report {
                    Ok(outcome) => outcomes[task].extend(outcome),
                    Err(this) => error = error.or(Some(this)),
                }
            }
            Err(RecvTimeoutError::Timeout) => watch(start.elapsed(), &left),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(RunError::Lost { workers: left.iter().sum() });
            }
        }
        if !stopping && setting.stop.load(Ordering::Relaxed) {
            stopping = true;
            deadline = Instant::now() + GRACE;
        }
        if Instant::now() > deadline && !endless {
            return Err(RunError::Stuck { workers: left.iter().sum() });
        }
    }
    match error {
        Some(error) => Err(error),
        None => Ok(outcomes),
    }
}

/// At most some 200 slices, none shorter than 100 ms (or a tenth of a run shorter than a second); of half a
/// second where nobody knows how long it will take.
fn slice_for(runtime: Duration) -> Duration {
    if runtime >= NO_TIME_LIMIT {
        return Duration::from_millis(500);
    }
    (runtime / 200).max(Duration::from_millis(100).min(runtime / 10)).max(Duration::from_millis(1))
}

fn add_up(workers: Vec<WorkerOutcome>, slice: Duration, targets: usize) -> Outcome {
    let mut sum = Outcome {
        elapsed: Duration::ZERO,
        read: Tally::default(),
        write: Tally::default(),
        trim: Tally::default(),
        sync: Tally::default(),
        moved_bytes: 0,
        errors: BTreeMap::new(),
        short_ios: 0,
        targets: if targets > 1 { add_up_targets(&workers, targets) } else { Vec::new() },
        schedule: add_up_schedules(&workers),
        outliers: slowest(workers.iter().flat_map(|worker| worker.outliers.iter().copied()).collect()),
        verified: None,
        depth_found: workers.iter().filter_map(|worker| worker.depth_found).reduce(DepthFound::merge),
        steady: None,
        cpu: add_up_cpu(&workers),
        series: Vec::new(),
        slice,
        grants: add_up_grants(&workers),
        ended: Ended::TimeUp,
    };
    for worker in workers {
        sum.elapsed = sum.elapsed.max(worker.elapsed);
        let [read, write, trim, sync, data_sync] = &worker.tallies;
        sum.read.merge(read);
        sum.write.merge(write);
        sum.trim.merge(trim);
        sum.sync.merge(sync);
        sum.sync.merge(data_sync);
        sum.moved_bytes += worker.moved_bytes;
        for (kind, error) in worker.errors {
            sum.errors.entry(kind).and_modify(|sum| sum.count += error.count).or_insert(error);
        }
        sum.short_ios += worker.short_ios;
        if let Some(verified) = worker.verified {
            sum.verified.get_or_insert_default().merge(verified);
        }
        add_series(&mut sum.series, &worker.series);
        // A failure says more than a stop, and a stop more than the end of time.
        if sum.ended == Ended::TimeUp || matches!(worker.ended, Ended::Failed(_)) {
            sum.ended = worker.ended;
        }
    }
    // The last slice is cut off by the end of the run; shown beside whole ones it would look like a drop.
    let whole = (sum.elapsed.as_nanos() / slice.as_nanos().max(1)) as usize;
    sum.series.truncate(whole.max(1));
    sum
}

fn add_up_targets(workers: &[WorkerOutcome], targets: usize) -> Vec<TargetOutcome> {
    let mut sums = vec![TargetOutcome::default(); targets];
    for worker in workers {
        let sum = &mut sums[worker.number as usize % targets];
        let [read, write, trim, ..] = &worker.tallies;
        sum.read.merge(read);
        sum.write.merge(write);
        sum.trim.merge(trim);
        sum.failures += worker.errors.values().map(|error| error.count).sum::<u64>() + worker.short_ios;
    }
    sums
}

fn add_up_schedules(workers: &[WorkerOutcome]) -> Option<ScheduleOutcome> {
    let mut sum = ScheduleOutcome::default();
    for worker in workers {
        sum.slip.merge(worker.slip.as_ref()?);
        sum.unstarted += worker.unstarted;
    }
    (!workers.is_empty()).then_some(sum)
}

fn add_series(sum: &mut Vec<Slice>, series: &[Slice]) {
    sum.resize(sum.len().max(series.len()), Slice::default());
    for (sum, slice) in sum.iter_mut().zip(series) {
        sum.ios += slice.ios;
        sum.bytes += slice.bytes;
        sum.max_ns = sum.max_ns.max(slice.max_ns);
    }
}

fn add_up_grants(workers: &[WorkerOutcome]) -> Grants {
    let mut refused: Vec<String> = workers.iter().flat_map(|worker| worker.grants.refused.clone()).collect();
    refused.sort();
    refused.dedup();
    let first = workers.first().map(|worker| worker.grants.granted.clone()).unwrap_or_default();
    Grants { granted: first.into_iter().filter(|feature| !refused.contains(feature)).collect(), refused }
}

fn add_up_cpu(workers: &[WorkerOutcome]) -> Option<CpuCost> {
    let usages: Vec<&Usage> = workers.iter().filter_map(|worker| worker.usage.as_ref()).collect();
    if usages.is_empty() {
        return None;
    }
    let elapsed_s: f64 = workers.iter().map(|worker| worker.elapsed.as_secs_f64()).sum();
    let mut cost = CpuCost::default();
    for usage in &usages {
        cost.user_s += usage.thread.user_s;
        cost.system_s += usage.thread.system_s;
        cost.voluntary_switches += usage.thread.voluntary_switches;
        cost.involuntary_switches += usage.thread.involuntary_switches;
    }
    if elapsed_s > 0.0 {
        cost.utilisation = (cost.user_s + cost.system_s) / elapsed_s;
    }
    let shares: Vec<CpuShares> = usages.iter().filter_map(|usage| usage.cpu_shares).collect();
    let mean =
        |pick: fn(&CpuShares) -> f64| shares.iter().map(pick).sum::<f64>() / shares.len().max(1) as f64;
    cost.cpus = CpuShares {
        running: mean(|share| share.running),
        interrupts: mean(|share| share.interrupts),
        stolen: mean(|share| share.stolen),
    };
    Some(cost)
}

#[cfg(test)]
mod tests;
