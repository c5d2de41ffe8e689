//! `overdrive run`: one workload on one target.

use crate::assemble::{Draft, Measured};
use crate::cmd::evaluate::{can_poll, cpus_for, device_counters, settle};
use crate::cmd::jobs::{How, job_file, run_plan, show};
use crate::cmd::search::{self, Bench};
use crate::exit::{Ending, Refused, refuse};
use crate::flags::{
    AccessFlags, EngineFlag, GoalFlags, LogFlags, OutputFormat, PaceFlags, RateProcess, ReadWrite, RunFlags,
    VerifyFlag, WriteFlags,
};
use crate::guide::Planned;
use crate::interrupt;
use crate::io_log::IoLogs;
use crate::live::{LiveView, Named};
use crate::open_target::OpenTarget;
use crate::output;
use anyhow::Result;
use overdrive_base::size::format_size;
use overdrive_host::Root;
use overdrive_host::facts::HostFacts;
use overdrive_host::facts::block::DiskStats;
use overdrive_host::facts::limits::User;
use overdrive_io::engine::EngineKind;
use overdrive_io::engine::sim::SimSpec;
use overdrive_io::front::{Extent, Logs, Plan, Section, fio};
use overdrive_io::job::{
    Access, Batch, Content, Distribution, Job, JobSpec, LatencyTarget, Operation, PageCache,
};
use overdrive_io::outcome::Outcome;
use overdrive_io::pace::{Arrivals, Think};
use overdrive_io::run::{RunError, Setting, Task, run_together};
use overdrive_io::steady::SteadyState;
use overdrive_io::target::Target;
use overdrive_io::verify::Verify;
use overdrive_report::record::{Group, Status};
use overdrive_report::verdict;
use overdrive_sys::clock::Clock;
use overdrive_sys::ring::{RingError, buffers_bytes};
use std::path::Path;
use std::time::{Duration, Instant};

/// Runs it and prints the record.
pub(crate) fn run(flags: &RunFlags) -> Result<Ending> {
    if let Some(ending) = run_as_plan(flags)? {
        return Ok(ending);
    }
    let all = open_all(flags)?;
    let Some(open) = all.first() else { refuse!("no target: wanted a block device, a file, or sim") };
    let planned = plan(flags, &all)?;
    let targets: Vec<Target> = all.iter().map(|open| open.target.clone()).collect();
    let smallest = targets.iter().map(Target::size).min().unwrap_or(0);
    let job = planned.spec.clone().check(smallest).map_err(|error| Refused(error.to_string()))?;
    check_alignment(&job, &all)?;
    let root = Root::new("/");
    let target_facts = open.trace(&root)?;
    if flags.hipri && !target_facts.as_ref().is_some_and(can_poll) {
        refuse!(
            "{}: --hipri wants a device with poll queues (queue/io_poll reads 1; for NVMe: nvme.poll_queues=N)",
            open.spec
        );
    }
    let host = HostFacts::read(&root, Duration::ZERO);
    check_locked_memory(&job, &host)?;
    let (sink, logs) = IoLogs::start(&logs_of(&flags.logs), 1, job.workers)?.unzip();
    let setting = Setting {
        cpus: cpus_for(target_facts.as_ref())?,
        clock: Clock::calibrate(Duration::from_millis(50)),
        stop: interrupt::watch()?,
        live: false,
    };
    let mut draft = Draft::new(open, &host, flags.access.seed);
    if let Some(facts) = &target_facts {
        draft.set_target(open, facts);
    }
    if all.len() > 1 {
        draft.note("several targets: what is said of the drive and its layers is about the first one");
    }
    if flags.search.any() {
        let bench = Bench { planned: &planned, targets: &targets, smallest, setting: &setting };
        let ending = search::search(flags, &bench, &mut draft)?;
        draft.complete(ending);
        return print_record(flags, &draft, None).map(|()| ending);
    }
    // What passes the block layer by is in none of its counters.
    let counted = target_facts.as_ref().filter(|_| all.len() == 1 && open.target.generic().is_none());
    let (before, read_at) = (device_counters(&root, counted), Instant::now());
    let task = Task { job, targets, cpus: Vec::new(), log: sink };
    let outcome = run_shown(flags, &planned.title, task, setting)?;
    let device = before.zip(device_counters(&root, counted));
    let between = read_at.elapsed();
    let mut ending = settle(&mut draft, &outcome);
    draft.complete(ending);
    if ending == Ending::Done && outcome.verified.as_ref().is_some_and(|verified| verified.failures() > 0) {
        ending = Ending::BadVerdict;
    }
    if let Some(logs) = logs {
        ending = close_logs(logs, &mut draft, ending);
    }
    draft.add(&Measured { planned: &planned, outcome: &outcome, device, targets: &flags.targets });
    let device = device.map(|(before, after)| (before, after, between));
    print_record(flags, &draft, device).map(|()| ending)
}

/// Runs it, with what there is to see meanwhile.
fn run_shown(flags: &RunFlags, title: &str, task: Task, setting: Setting) -> Result<Outcome> {
    let length = task.job.start_delay + task.job.warmup + task.job.runtime;
    let mut view = LiveView::new(flags.front.live, 1, length);
    let named = Named { job: String::new(), targets: flags.targets.clone() };
    let tasks = [task];
    view.begin(title, length, &tasks, vec![named]);
    let setting = Setting { live: view.wants_figures(), ..setting };
    let outcomes = run_together(&tasks, &setting, |elapsed, glance| view.tick(elapsed, glance));
    view.finish();
    // The reader of the log ends when nobody can write any more: here, with the task.
    Ok(outcomes.map_err(refusal)?.remove(0))
}

/// What is told as a plan: a job file, or flags that are only to be looked at.
fn run_as_plan(flags: &RunFlags) -> Result<Option<Ending>> {
    let how = how(flags);
    if let Some(name) = flags.targets.iter().find(|target| job_file::is_job_file(target)) {
        if flags.targets.len() > 1 {
            refuse!("{name}: a job file names its targets itself; wanted nothing beside it");
        }
        job_file::refuse_other_flags(name)?;
        return run_plan(job_file::read(name, flags.front.ignore_unsupported)?, &how).map(Some);
    }
    check_search(flags)?;
    if flags.front.save_job || flags.front.dry_run {
        let notes = flags.search.told().into_iter().collect();
        let plan = Plan { sections: vec![section(flags)?], notes, ..Plan::default() };
        return run_plan(plan, &how).map(Some);
    }
    Ok(None)
}

/// What does not go with a search.
fn check_search(flags: &RunFlags) -> Result<()> {
    let Some(option) = flags.search.option() else { return Ok(()) };
    if flags.front.save_job {
        refuse!("{option} has no place in a job file; wanted --save-job without it");
    }
    if flags.goals.any() || flags.logs.any() {
        refuse!("--objective and --sweep run many jobs: they take no logs, latency target or steady state");
    }
    if !matches!(flags.front.output_format, OutputFormat::Text | OutputFormat::Record) {
        refuse!("--output-format: fio's JSON has no place for a search; wanted text or record");
    }
    Ok(())
}

fn how(flags: &RunFlags) -> How<'_> {
    How { access: &flags.access, front: &flags.front, text: None, json: flags.json, intervals: None }
}

/// What does not fit the target is the user's to mend, not the system's.
pub(crate) fn refusal(error: RunError) -> anyhow::Error {
    match error {
        RunError::PartOfBlock { .. }
        | RunError::WrongTarget { .. }
        | RunError::Overwritten
        | RunError::Ring(RingError::LockedMemory { .. }) => Refused(error.to_string()).into(),
        other => other.into(),
    }
}

/// Prints the record in the form that was asked for.
fn print_record(
    flags: &RunFlags,
    draft: &Draft,
    device: Option<(DiskStats, DiskStats, Duration)>,
) -> Result<()> {
    let mut record = draft.finish();
    verdict::judge_all(&mut record);
    output::print(&show::one(&record, &section(flags)?, &how(flags), device)?)
}

/// The flags as a section of a job file; what only the target can say is left open.
fn section(flags: &RunFlags) -> Result<Section> {
    let (access, operation) = workload(flags)?;
    let simulated = flags.targets.iter().find_map(|target| SimSpec::parse(target)?.ok());
    let engine = match flags.ioengine {
        None => simulated.map_or(EngineKind::IoUring, EngineKind::Sim),
        Some(EngineFlag::Sim) => EngineKind::Sim(simulated.unwrap_or_default()),
        Some(EngineFlag::IoUring) => EngineKind::IoUring,
        Some(EngineFlag::Nop) => EngineKind::Nop,
        Some(EngineFlag::Pvsync2) => EngineKind::Pvsync2,
        Some(EngineFlag::Psync) => EngineKind::Psync,
        Some(EngineFlag::Libaio) => EngineKind::Libaio,
        Some(EngineFlag::Mmap) => EngineKind::Mmap,
        Some(EngineFlag::IoUringCmd) => EngineKind::IoUringCmd,
    };
    let workers = flags.numjobs.unwrap_or(flags.targets.len() as u32);
    let mut section = Section::new(&name_of(flags.rw), spec(flags, access, operation, engine, workers)?);
    section.size = flags.size.map(Extent::Bytes);
    section.targets.clone_from(&flags.targets);
    section.buffered = flags.access.buffered || !flags.queue.direct;
    section.logs = logs_of(&flags.logs);
    section.percentiles.clone_from(&section.spec.percentiles);
    section.options = fio::options_of(&section);
    Ok(section)
}

/// As the user writes it.
fn name_of(rw: ReadWrite) -> String {
    format!("{rw:?}").to_lowercase()
}

fn workload(flags: &RunFlags) -> Result<(Access, Operation)> {
    let is_mixed = matches!(flags.rw, ReadWrite::Rw | ReadWrite::Randrw);
    if let Some(percent) = flags.rwmixread.filter(|_| !is_mixed) {
        refuse!(
            "--rwmixread {percent}: --rw {} mixes nothing; wanted --rw rw or randrw beside it",
            name_of(flags.rw)
        );
    }
    let mixed = Operation::Mixed { read_percent: flags.rwmixread.unwrap_or(50) };
    Ok(match flags.rw {
        ReadWrite::Read => (Access::Sequential, Operation::Read),
        ReadWrite::Write => (Access::Sequential, Operation::Write),
        ReadWrite::Randread => (Access::Random, Operation::Read),
        ReadWrite::Randwrite => (Access::Random, Operation::Write),
        ReadWrite::Rw => (Access::Sequential, mixed),
        ReadWrite::Randrw => (Access::Random, mixed),
        ReadWrite::Trim => (Access::Sequential, Operation::Trim),
        ReadWrite::Randtrim => (Access::Random, Operation::Trim),
    })
}

/// A log that could not be written is no reason to withhold what was measured.
pub(crate) fn close_logs(logs: IoLogs, draft: &mut Draft, ending: Ending) -> Ending {
    match logs.finish() {
        Ok(0) => ending,
        Ok(lost) => {
            draft.note(format!("the log lacks {lost} I/Os: they came faster than it could be written"));
            ending
        }
        Err(error) => {
            draft.set_status(Status::Failed { reason: format!("the log is not complete: {error:#}") });
            Ending::SystemFailed
        }
    }
}

fn logs_of(flags: &LogFlags) -> Logs {
    Logs {
        bandwidth: flags.write_bw_log.clone(),
        iops: flags.write_iops_log.clone(),
        latency: flags.write_lat_log.clone(),
        histogram: flags.write_hist_log.clone(),
        histogram_window: flags.log_hist_msec.map(Duration::from_millis),
        window: flags.log_avg_msec.map(Duration::from_millis),
        largest: flags.log_max_value,
        offsets: flags.log_offset,
        shared: flags.log_shared,
    }
}

/// Direct I/O in smaller pieces than a drive has blocks fails one by one; better to say so first.
pub(crate) fn check_alignment(job: &Job, all: &[OpenTarget]) -> Result<()> {
    for open in all {
        let alignment = open.target.io_alignment();
        job.check_alignment(alignment).map_err(|error| Refused(format!("{}: {error}", open.spec)))?;
    }
    Ok(())
}

/// Registered buffers are locked memory. Where not even one I/O in flight fits the limit the ring goes
/// without them, and the record says so; where it is the depth that does not fit, the user must settle that.
pub(crate) fn check_locked_memory(job: &Job, host: &HostFacts) -> Result<()> {
    let (limits, ring) = (&host.limits, job.engine == EngineKind::IoUring);
    let free = limits.user.value().is_none_or(User::may_lock_freely);
    let Some(&limit) = limits.memlock_bytes.value().filter(|_| ring && !free) else { return Ok(()) };
    let wanted = |workers: u32, depth: u32| {
        u64::from(workers) * buffers_bytes(depth, job.largest_block(), true).unwrap_or(u64::MAX / 2048)
    };
    let (least, all) = (wanted(1, 1), wanted(job.workers, job.queue_depth));
    if all <= limit || least > limit {
        return Ok(());
    }
    refuse!(
        "--iodepth {} x --numjobs {} at {}: their buffers take {} of locked memory, and this user may lock {} \
         (ulimit -l; raise it in /etc/security/limits.conf or with LimitMEMLOCK= of a systemd unit, or be root)",
        job.queue_depth,
        job.workers,
        format_size(job.largest_block()),
        format_size(all),
        format_size(limit)
    )
}

/// Opens every target; the first one's kind decides for all.
fn open_all(flags: &RunFlags) -> Result<Vec<OpenTarget>> {
    let size = flags.size.map(|size| size.saturating_add(flags.pattern.offset));
    let access =
        AccessFlags { buffered: flags.access.buffered || !flags.queue.direct, ..flags.access.clone() };
    let all = flags
        .targets
        .iter()
        .map(|target| OpenTarget::named(target, size, &access))
        .collect::<Result<Vec<OpenTarget>>>()?;
    let unknown = |named: &&String| !flags.targets.contains(named);
    if let Some(named) = access.write_to.iter().find(unknown) {
        refuse!("--write-to {named} names no target; nothing was touched");
    }
    let simulated = all.iter().filter(|open| open.target.simulation().is_some()).count();
    if simulated > 0 && simulated < all.len() {
        refuse!("simulated targets live in virtual time: they do not go together with real ones in one run");
    }
    Ok(all)
}

fn plan(flags: &RunFlags, all: &[OpenTarget]) -> Result<Planned> {
    let (open, targets) = (&all[0], all.len());
    let (access, operation) = workload(flags)?;
    if let Some(open) = all.iter().find(|open| operation.writes() && !open.writable) {
        refuse!("{0}: this workload writes; --write-to {0} allows it, and what is on it is lost", open.spec);
    }
    let engine = engine_for(flags, open)?;
    if engine == EngineKind::Nop && (flags.bs != 4096 || flags.pattern.bssplit.is_some()) {
        refuse!("--bs {}: the nop engine has no data; leave --bs at 4k", format_size(flags.bs));
    }
    let rw = name_of(flags.rw);
    let workers = flags.numjobs.unwrap_or(u32::try_from(targets).unwrap_or(u32::MAX));
    if (workers as usize) < targets {
        let targets = if targets == 1 { "1 target".to_owned() } else { format!("{targets} targets") };
        refuse!("--numjobs {workers}: {targets}; wanted at least one worker each");
    }
    Ok(Planned {
        id: format!("{rw}-{}-{}-{}x{}", flags.bs, engine.name(), workers, flags.iodepth),
        title: format!("{} {rw}, {}x{}, {}", format_size(flags.bs), workers, flags.iodepth, engine.name()),
        group: Group::Single,
        asked: None,
        notes: Vec::new(),
        spec: spec(flags, access, operation, engine, workers)?,
    })
}

/// The job as the flags have it; whether it can be run is for its check to say.
fn spec(
    flags: &RunFlags,
    access: Access,
    operation: Operation,
    engine: EngineKind,
    workers: u32,
) -> Result<JobSpec> {
    let (pattern, pace, queue) = (&flags.pattern, &flags.pace, &flags.queue);
    let size_mix = pattern.bssplit.as_ref().map(|split| split.0.clone()).unwrap_or_default();
    let mut spec = JobSpec {
        operation,
        access,
        distribution: pattern.random_distribution.clone().unwrap_or(Distribution::Uniform),
        random_percent: pattern.percentage_random,
        random_map: pattern.random_map,
        stride: pattern.stride,
        block_size: size_mix.iter().map(|share| share.bytes).max().unwrap_or(flags.bs),
        size_mix,
        block_align: pattern.blockalign,
        offset: pattern.offset,
        io_size: pattern.io_size,
        number_ios: pattern.number_ios,
        think: pace.thinktime.map(|time| Think { time, every: pace.thinktime_blocks }),
        outliers: flags.outliers,
        verify: flags.verify.map(|verify| match verify {
            VerifyFlag::Write => Verify::WriteThenRead,
            VerifyFlag::WriteOnly => Verify::WriteOnly,
            VerifyFlag::Read => Verify::ReadOnly,
        }),
        content: content(&flags.writes),
        fsync_every: flags.writes.fsync,
        fdatasync_every: flags.writes.fdatasync,
        sync: flags.writes.sync,
        page_cache: PageCache {
            advice: queue.fadvise_hint,
            invalidate: queue.invalidate,
            pre_read: queue.pre_read,
        },
        batch: Batch {
            submit: queue.iodepth_batch,
            complete: queue.iodepth_batch_complete,
            low: queue.iodepth_low,
        },
        start_delay: queue.startdelay,
        percentiles: flags.goals.percentile_list.as_ref().map(|list| list.0.clone()).unwrap_or_default(),
        latency_target: latency_target(&flags.goals),
        steady: steady(&flags.goals),
        engine,
        workers,
        queue_depth: flags.iodepth,
        runtime: flags.runtime,
        warmup: flags.ramp_time,
        polled: flags.hipri,
        hybrid_poll: flags.hybrid_poll,
        sq_poll: flags.sqthread_poll,
        seed: flags.access.seed,
        ..JobSpec::default()
    };
    spec.arrivals = arrivals(pace, spec.mean_block(), flags.search.any())?;
    Ok(spec)
}

fn latency_target(flags: &GoalFlags) -> Option<LatencyTarget> {
    flags.latency_target.map(|limit| LatencyTarget {
        limit,
        window: flags.latency_window,
        percentile: flags.latency_percentile,
        keep_running: flags.latency_run,
    })
}

fn steady(flags: &GoalFlags) -> Option<SteadyState> {
    let (figure, test, limit) = flags.steadystate?;
    let (duration, ramp, interval) = (flags.ss_dur, flags.ss_ramp, flags.ss_interval);
    Some(SteadyState { figure, test, limit, duration, ramp, interval })
}

fn content(flags: &WriteFlags) -> Content {
    let zeroes = flags.zero_buffers.then(|| vec![0]);
    Content {
        pattern: flags.buffer_pattern.as_ref().map(|bytes| bytes.0.clone()).or(zeroes).map(Into::into),
        compress_percent: flags.buffer_compress_percentage,
        compress_chunk: flags.buffer_compress_chunk.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
        refill: flags.refill_buffers,
    }
}

fn arrivals(pace: &PaceFlags, mean_block: f64, searching: bool) -> Result<Option<Arrivals>> {
    if let Some(path) = &pace.arrivals {
        return Ok(Some(Arrivals::Trace(read_trace(path)?.into())));
    }
    let per_s = match (pace.rate_iops, pace.rate) {
        (Some(per_s), _) => per_s,
        (None, Some(bytes)) => bytes as f64 / mean_block,
        (None, None) if pace.rate_process.is_some_and(|law| law != RateProcess::Linear) && !searching => {
            refuse!("--rate-process says how I/Os arrive; --rate-iops or --rate must say how many")
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(by_law(pace.rate_process.unwrap_or(RateProcess::Linear), per_s)))
}

/// Arrivals of one worker at a rate.
pub(crate) fn by_law(law: RateProcess, per_s: f64) -> Arrivals {
    match law {
        RateProcess::Linear => Arrivals::Constant { per_s },
        RateProcess::Poisson => Arrivals::Poisson { per_s },
        RateProcess::Burst(size) => Arrivals::Bursts { per_s, size },
    }
}

/// Arrival times in nanoseconds, ascending, one a line; empty lines and those that begin with # do not count.
fn read_trace(path: &Path) -> Result<Vec<u64>> {
    let shown = path.display();
    let text = output::read_text(path).map_err(|error| Refused(format!("--arrivals {shown}: {error}")))?;
    let mut times = Vec::new();
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line.trim())) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Ok(time) = line.parse::<u64>() else {
            refuse!(
                "{shown}:{number}: '{line}' is not an arrival time; wanted whole nanoseconds from the start"
            );
        };
        if times.last().is_some_and(|&last| last > time) {
            refuse!("{shown}:{number}: {time} comes before the line above it; wanted ascending times");
        }
        times.push(time);
    }
    if times.is_empty() {
        refuse!("--arrivals {shown}: no arrival time in it");
    }
    Ok(times)
}

fn engine_for(flags: &RunFlags, open: &OpenTarget) -> Result<EngineKind> {
    Ok(match (flags.ioengine, open.target.simulation()) {
        (Some(EngineFlag::Nop), _) => EngineKind::Nop,
        (None | Some(EngineFlag::IoUringCmd), None) if open.target.generic().is_some() => {
            EngineKind::IoUringCmd
        }
        (Some(EngineFlag::IoUringCmd), None) => refuse!(
            "{}: engine io_uring_cmd wants an NVMe character device (such as /dev/ng0n1 for /dev/nvme0n1)",
            open.spec
        ),
        (Some(_), None) if open.target.generic().is_some() => refuse!(
            "{}: a character device takes NVMe commands only (io_uring_cmd); for other engines name {}",
            open.spec,
            open.path.display()
        ),
        (None | Some(EngineFlag::Sim), Some(device)) => EngineKind::Sim(device.clone()),
        (_, Some(_)) => refuse!("{}: a simulated target has no other engine than sim and nop", open.spec),
        (Some(EngineFlag::Sim), None) => refuse!("{}: engine sim wants a simulated target (sim)", open.spec),
        (None | Some(EngineFlag::IoUring), None) => EngineKind::IoUring,
        (Some(EngineFlag::Pvsync2), None) => EngineKind::Pvsync2,
        (Some(EngineFlag::Psync), None) => EngineKind::Psync,
        (Some(EngineFlag::Libaio), None) => EngineKind::Libaio,
        (Some(EngineFlag::Mmap), None) if open.target.is_direct() => refuse!(
            "{}: engine mmap goes through the page cache; --buffered says that this is meant",
            open.spec
        ),
        (Some(EngineFlag::Mmap), None) => EngineKind::Mmap,
    })
}
