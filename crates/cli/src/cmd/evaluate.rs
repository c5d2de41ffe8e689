//! `overdrive evaluate`: facts, audit, self-test, preconditioning, the guide's workloads, verdicts, report.

mod ablate;

use crate::assemble::{self, Draft, Measured};
use crate::cmd::{compare as compare_records, topology};
use crate::exit::{Ending, Refused, refuse};
use crate::flags::EvaluateFlags;
use crate::guide::{self, Circumstances, Planned};
use crate::interrupt;
use crate::open_target::{OpenTarget, ScratchSize};
use crate::output;
use crate::progress::Progress;
use crate::self_test::SelfTest;
use anyhow::{Context, Result};
use overdrive_base::size::{GIB, MIB, format_size};
use overdrive_base::time::{format_duration, format_ns, three_digits};
use overdrive_host::Root;
use overdrive_host::facts::HostFacts;
use overdrive_host::facts::block::{DiskStats, disk_stats};
use overdrive_host::rules;
use overdrive_host::target::TargetFacts;
use overdrive_host::topology::Topology;
use overdrive_io::engine::EngineKind;
use overdrive_io::fill::fill;
use overdrive_io::outcome::{Ended, Outcome};
use overdrive_io::run::{RunError, Setting, run};
use overdrive_report::compare::compare;
use overdrive_report::record::{Preconditioning, PreconditioningKind, Record, Status, TargetKind};
use overdrive_report::{render, verdict};
use overdrive_sys::affinity::allowed_cpus;
use overdrive_sys::clock::Clock;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Blocks looked at to find out whether a target was ever written.
const SAMPLES: u64 = 2_000;

/// Lengths of a run, by default and quick.
struct Lengths {
    runtime: Duration,
    warmup: Duration,
    scratch: u64,
    self_test: Duration,
    /// How long other processes are watched.
    watch: Duration,
}

const USUAL: Lengths = Lengths {
    runtime: Duration::from_secs(30),
    warmup: Duration::from_secs(2),
    scratch: 4 * GIB,
    self_test: Duration::from_secs(5),
    watch: Duration::from_secs(1),
};

const QUICK: Lengths = Lengths {
    runtime: Duration::from_secs(3),
    warmup: Duration::from_millis(300),
    scratch: GIB,
    self_test: Duration::from_secs(1),
    watch: Duration::from_millis(300),
};

/// Runs the whole evaluation.
pub(crate) fn evaluate(flags: &EvaluateFlags) -> Result<Ending> {
    if flags.runtime.is_some_and(|runtime| runtime.is_zero()) {
        refuse!("--runtime 0: a runtime of zero measures nothing; wanted one such as 3s");
    }
    if flags.ablate.ablate {
        return ablate::ablate(flags);
    }
    let lengths = if flags.quick { QUICK } else { USUAL };
    let against = flags.against.as_deref().map(compare_records::load).transpose()?;
    let open = open(flags, &lengths)?;
    let folder = make_folder(flags)?;
    let mut evaluation = Evaluation::prepare(flags, &lengths, open, folder, interrupt::watch()?)?;
    let ending = evaluation.measure()?;
    let record = evaluation.save()?;
    evaluation.publish(&record, against.as_ref(), flags.json)?;
    Ok(ending)
}

fn open(flags: &EvaluateFlags, lengths: &Lengths) -> Result<OpenTarget> {
    match &flags.target {
        Some(spec) => {
            let open = OpenTarget::named(spec, flags.size, &flags.access)?;
            if open.target.generic().is_some() {
                refuse!(
                    "{spec}: a character device; an evaluation wants the block device {}",
                    open.path.display()
                );
            }
            Ok(open)
        }
        None => {
            if let Some(named) = flags.access.write_to.first() {
                return Err(Refused(format!(
                    "--write-to {named} names no target; a scratch file needs no consent"
                ))
                .into());
            }
            let size = flags.size.map_or(ScratchSize::Usual(lengths.scratch), ScratchSize::Asked);
            OpenTarget::scratch(flags.dir.as_deref().unwrap_or(Path::new(".")), size, &flags.access)
        }
    }
}

/// Makes the folder for the results before anything is measured, so that a typo costs nothing.
fn make_folder(flags: &EvaluateFlags) -> Result<PathBuf> {
    let folder = match &flags.out {
        Some(folder) => folder.clone(),
        None => new_folder(&format!("overdrive-{}", jiff::Zoned::now().strftime("%Y%m%d-%H%M%S")))?,
    };
    output::result_folder(&folder)?;
    Ok(folder)
}

/// Makes a folder of this name, or of one with a number behind it: evaluations that begin in the same second
/// do not overwrite each other's results.
fn new_folder(name: &str) -> Result<PathBuf> {
    let mut folder = PathBuf::from(name);
    let mut number = 1;
    while let Err(error) = std::fs::create_dir(&folder) {
        if error.kind() != std::io::ErrorKind::AlreadyExists {
            refuse!("--out {}: cannot write there: {error}", folder.display());
        }
        number += 1;
        folder = PathBuf::from(format!("{name}-{number}"));
    }
    Ok(folder)
}

/// The CPUs workers run on: those this process may use; first the ones near the device, and of these the ones
/// that take its completions (waking another CPU costs more than many a read).
pub(crate) fn cpus_for(target: Option<&TargetFacts>) -> Result<Vec<usize>> {
    let mut cpus = allowed_cpus().context("asking which CPUs this process may use")?;
    if let Some(device) = target.and_then(|facts| facts.disks.first()?.pcie.as_ref()) {
        let takers = device.completion_cpus();
        let far = |cpu: u32| device.local_cpus.value().is_some_and(|near| !near.contains(cpu));
        let waits = |cpu: u32| takers.as_ref().is_some_and(|takers| !takers.contains(cpu));
        cpus.sort_by_key(|&cpu| u32::try_from(cpu).map_or((true, true), |cpu| (far(cpu), waits(cpu))));
    }
    Ok(cpus)
}

/// The disk's own counters, when the target has exactly one disk that keeps them.
pub(crate) fn device_counters(root: &Root, target: Option<&TargetFacts>) -> Option<DiskStats> {
    let [disk] = target?.disks.as_slice() else { return None };
    let counts = disk.block.queue.iostats.value() != Some(&false);
    disk_stats(root, disk.name()).get().filter(|_| counts)
}

/// Whether the disk has poll queues.
pub(crate) fn can_poll(target: &TargetFacts) -> bool {
    !target.disks.is_empty()
        && target.disks.iter().all(|disk| disk.block.queue.io_poll.value() == Some(&true))
}

/// What an outcome's end means for the record and the exit code.
pub(crate) fn settle(draft: &mut Draft, outcome: &Outcome) -> Ending {
    match &outcome.ended {
        Ended::Failed(reason) => {
            draft.set_status(Status::Failed { reason: reason.clone() });
            Ending::SystemFailed
        }
        Ended::Stopped => {
            draft.set_status(Status::Interrupted);
            Ending::Interrupted
        }
        Ended::TimeUp if !outcome.errors.is_empty() || outcome.short_ios > 0 => Ending::BadVerdict,
        Ended::TimeUp if !all_checked(outcome) => Ending::BadVerdict,
        Ended::TimeUp => Ending::Done,
    }
}

/// Whether content was looked at where that was asked for, and no less of it than was written.
fn all_checked(outcome: &Outcome) -> bool {
    let enough = |blocks: u64| blocks > 0 && blocks >= outcome.write.ios;
    outcome.verified.as_ref().is_none_or(|verified| enough(verified.blocks))
}

/// An evaluation under way.
struct Evaluation {
    open: OpenTarget,
    folder: PathBuf,
    root: Root,
    host: HostFacts,
    target_facts: Option<TargetFacts>,
    setting: Setting,
    draft: Draft,
    plan: Vec<Planned>,
    progress: Progress,
    seed: u64,
}

impl Evaluation {
    /// Facts, self-test and plan: everything before the target is touched.
    fn prepare(
        flags: &EvaluateFlags,
        lengths: &Lengths,
        open: OpenTarget,
        folder: PathBuf,
        stop: Arc<AtomicBool>,
    ) -> Result<Self> {
        let root = Root::new("/");
        output::say!("overdrive: reading the host's facts, testing the tool itself");
        let target_facts = open.trace(&root)?;
        let host = HostFacts::read(&root, lengths.watch);
        let cpus = cpus_for(target_facts.as_ref())?;
        let setting = Setting { cpus, clock: Clock::calibrate(Duration::from_millis(50)), stop, live: false };
        let seed = flags.access.seed;
        let mut draft = Draft::new(&open, &host, seed);
        let self_test = SelfTest::run(&setting, lengths.self_test);
        draft.set_self_test(&self_test);
        let plan = guide::workloads(&Circumstances {
            cpus: setting.cpus.len() as u32,
            writable: open.writable,
            pollable: target_facts.as_ref().is_some_and(can_poll),
            ring: self_test.ring.is_ok(),
            simulated: open.target.simulation().map(|device| EngineKind::Sim(device.clone())),
            runtime: flags.runtime.unwrap_or(lengths.runtime),
            warmup: lengths.warmup,
            seed,
        });
        note_circumstances(&mut draft, &open, &self_test);
        let each = flags.runtime.unwrap_or(lengths.runtime) + lengths.warmup;
        // Nothing is prepared on a simulated device.
        let steps = plan.len() + usize::from(open.kind != TargetKind::Sim);
        let progress = Progress::new(steps, each * plan.len() as u32 + filling_time(&open));
        Ok(Self { open, folder, root, host, target_facts, setting, draft, plan, progress, seed })
    }

    /// Prepares the target and runs the workloads one after the other, saving after each.
    fn measure(&mut self) -> Result<Ending> {
        self.precondition()?;
        self.audit()?;
        let mut worst = Ending::Done;
        for planned in std::mem::take(&mut self.plan) {
            if self.setting.stop.load(Ordering::Relaxed) {
                return Ok(Ending::Interrupted);
            }
            match self.measure_one(&planned)? {
                Ending::Done => {}
                Ending::BadVerdict => worst = Ending::BadVerdict,
                over => {
                    self.progress.finish();
                    return Ok(over);
                }
            }
            self.save()?;
        }
        self.progress.finish();
        self.draft.complete(worst);
        Ok(worst)
    }

    fn measure_one(&mut self, planned: &Planned) -> Result<Ending> {
        let job = match planned.spec.clone().check(self.open.target.size()) {
            Ok(job) => job,
            Err(error) => {
                self.draft.note(format!("{} was left out: {error}", planned.title));
                return Ok(Ending::Done);
            }
        };
        self.progress.begin(&planned.title, job.warmup + job.runtime);
        let before = device_counters(&self.root, self.target_facts.as_ref());
        let progress = &self.progress;
        let outcome = run(&job, std::slice::from_ref(&self.open.target), &self.setting, |elapsed, glance| {
            progress.tick_rate(elapsed, glance.ios());
        });
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => return Ok(self.give_up(planned, &error)),
        };
        let after = device_counters(&self.root, self.target_facts.as_ref());
        let device = before.zip(after);
        self.progress.end(&result_line(&outcome));
        let ending = settle(&mut self.draft, &outcome);
        if outcome.ios() > 0 || !outcome.errors.is_empty() {
            self.draft.add(&Measured { planned, outcome: &outcome, device, targets: &[] });
        }
        Ok(ending)
    }

    /// Records a workload that could not be measured at all.
    fn give_up(&mut self, planned: &Planned, error: &RunError) -> Ending {
        self.draft.set_status(Status::Failed { reason: format!("{}: {error}", planned.title) });
        self.progress.end(&format!("failed: {error}"));
        Ending::SystemFailed
    }

    /// Audits the host for the target as it will be measured: a scratch file has been written by now.
    fn audit(&mut self) -> Result<()> {
        self.target_facts = self.open.trace(&self.root)?;
        match &self.target_facts {
            Some(target) => {
                self.draft.set_target(&self.open, target);
                self.draft.set_findings(&rules::audit(&self.host, target));
                let traced = std::slice::from_ref(target);
                self.draft.set_topology(&Topology::of(&self.root, traced, &topology::known()));
            }
            None => self.draft.note("a simulated device stands on no host: nothing was audited"),
        }
        Ok(())
    }

    fn precondition(&mut self) -> Result<()> {
        match self.open.kind {
            TargetKind::ScratchFile => self.fill_scratch(),
            TargetKind::Sim | TargetKind::Memory => Ok(()),
            TargetKind::File | TargetKind::BlockDevice => self.sample(),
        }
    }

    fn fill_scratch(&mut self) -> Result<()> {
        let (size, length) = (self.open.target.size(), filling_time(&self.open));
        self.progress.begin(&format!("writing the scratch file, {}", format_size(size)), length);
        let progress = &self.progress;
        let filled = fill(&self.open.target, self.seed, &self.setting, |bytes| {
            progress.tick(length.mul_f64(bytes as f64 / size as f64), &format_size(bytes));
        })?;
        let rate = filled.bytes as f64 / filled.elapsed.as_secs_f64().max(1e-9);
        self.progress.end(&format!("{}/s", format_size(rate as u64)));
        self.draft.set_preconditioning(assemble::written(&filled, size));
        Ok(())
    }

    /// A target of the user's is never written for the sake of reading it; how much of it was is reported.
    fn sample(&mut self) -> Result<()> {
        self.progress.begin("looking for never-written blocks", Duration::from_millis(100));
        let share = match self.open.target.share_of_zero_blocks(SAMPLES) {
            Ok(share) => share,
            Err(errno) => {
                self.progress.end(&format!("cannot be read: {errno}"));
                self.draft.note(format!("looking for never-written blocks failed: {errno}"));
                return Ok(());
            }
        };
        let percent = share * 100.0;
        self.progress.end(&format!("{percent:.1} % of the samples read as zeroes"));
        let note = if percent >= 1.0 {
            format!(
                "{percent:.1} % of {SAMPLES} evenly spaced blocks hold only zeroes, so they were probably never \
                 written; drives answer reads of such blocks without touching the medium, which flatters the \
                 results. The target was not overwritten: write it in full first, or use a scratch file"
            )
        } else {
            format!(
                "fewer than 1 % of {SAMPLES} evenly spaced blocks hold only zeroes: the target has been written"
            )
        };
        let kind =
            if percent >= 1.0 { PreconditioningKind::Sampled } else { PreconditioningKind::AlreadyWritten };
        self.draft.set_preconditioning(Preconditioning {
            kind,
            bytes_written: None,
            elapsed_s: None,
            never_written_percent: Some(percent),
            note,
        });
        Ok(())
    }

    /// Judges what there is and writes record.json.
    fn save(&self) -> Result<Record> {
        let mut record = self.draft.finish();
        verdict::judge_all(&mut record);
        output::replace_file(&self.folder.join("record.json"), &record.to_json_pretty()?)?;
        Ok(record)
    }

    /// Writes the report and prints what was found.
    fn publish(&self, record: &Record, against: Option<&Record>, json: bool) -> Result<()> {
        let comparison = against.map(|before| compare(before, record));
        let html = self.folder.join("report.html");
        output::replace_file(&html, &render::html::report(record, comparison.as_ref())?)?;
        if json {
            output::print(&record.to_json_pretty()?)?;
        } else {
            let options = output::text_options();
            output::print(&render::text::record(record, options))?;
            if let Some(comparison) = &comparison {
                output::print(&render::text::comparison(comparison, options))?;
            }
        }
        output::say!("overdrive: took {}", format_duration(Duration::from_secs_f64(record.elapsed_s)));
        output::say!("overdrive: record {}", self.folder.join("record.json").display());
        output::say!("overdrive: report {}", html.display());
        Ok(())
    }
}

/// A guess for the progress line: 500 MiB/s.
fn filling_time(open: &OpenTarget) -> Duration {
    match open.kind {
        TargetKind::ScratchFile => Duration::from_secs_f64(open.target.size() as f64 / (500 * MIB) as f64),
        _ => Duration::from_millis(100),
    }
}

fn note_circumstances(draft: &mut Draft, open: &OpenTarget, self_test: &SelfTest) {
    if let Err(error) = &self_test.ring {
        draft.note(format!(
            "{error}; measured with pvsync2 and one thread for each operation in flight instead"
        ));
    }
    if !open.writable {
        draft.note(format!("workloads that write were left out: --write-to {} allows them", open.spec));
    }
    if !self_test.clock.invariant_tsc {
        draft.note(
            "this processor has no invariant time-stamp counter: latencies are taken with clock_gettime",
        );
    }
}

fn result_line(outcome: &Outcome) -> String {
    let tally = if outcome.read.ios > 0 { &outcome.read } else { &outcome.write };
    let p99 = tally.latency.value_at(0.99).map_or(String::new(), |ns| format!("p99 {}", format_ns(ns)));
    let errors: u64 = outcome.errors.values().map(|error| error.count).sum();
    let errors = if errors > 0 { format!(", {errors} errors") } else { String::new() };
    let rate = three_digits(outcome.per_second(outcome.bytes()) / MIB as f64);
    format!("{:>6.0} IOPS {rate:>4} MiB/s {p99}{errors}", outcome.iops())
}

#[cfg(test)]
mod tests {
    use super::*;
    use overdrive_io::engine::sim::SimSpec;
    use overdrive_io::job::{JobSpec, Operation};
    use overdrive_io::target::Target;
    use overdrive_io::verify::Verified;

    #[test]
    fn content_that_was_written_and_not_read_back_is_no_good_verdict() {
        let target = Target::simulated(SimSpec::default());
        let engine = EngineKind::Sim(SimSpec::default());
        let operation = Operation::Write;
        let spec = JobSpec { engine, operation, number_ios: Some(10), ..JobSpec::default() };
        let setting = Setting {
            cpus: Vec::new(),
            clock: Clock::calibrate(Duration::from_millis(2)),
            stop: Arc::default(),
            live: false,
        };
        let job = spec.check(target.size()).unwrap();
        let mut outcome = run(&job, &[target], &setting, |_, _| ()).unwrap();
        assert!(all_checked(&outcome), "nobody asked");
        for (blocks, good) in [(0, false), (9, false), (10, true), (12, true)] {
            outcome.verified = Some(Verified { blocks, ..Verified::default() });
            assert_eq!(all_checked(&outcome), good, "{blocks} of 10");
        }
        outcome.write.ios = 0;
        assert!(all_checked(&outcome), "a run that only reads back");
    }
}
