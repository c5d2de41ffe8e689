//! Running a plan of jobs, whichever front end it came from: phases one after the other, the jobs of a phase
//! together.

pub(crate) mod job_file;
mod prepare;
pub(crate) mod show;

use crate::assemble::{self, Draft, Measured};
use crate::cmd::evaluate::{cpus_for, device_counters, settle};
use crate::cmd::run::{check_locked_memory, close_logs, refusal};
use crate::exit::Ending;
use crate::flags::{AccessFlags, FrontFlags};
use crate::interrupt;
use crate::io_log::{Counted, IoLogs};
use crate::live::{LiveView, Named};
use crate::output;
use crate::progress::Progress;
use anyhow::Result;
use overdrive_base::size::{MIB, format_size};
use overdrive_host::Root;
use overdrive_host::facts::HostFacts;
use overdrive_io::fill::fill;
use overdrive_io::front::{Plan, fio};
use overdrive_io::job::NO_TIME_LIMIT;
use overdrive_io::outcome::Outcome;
use overdrive_io::run::{Setting, Task, run_together};
use overdrive_report::record::{Record, Status, TargetKind};
use overdrive_report::render::merged::Shown;
use overdrive_report::verdict;
use overdrive_sys::clock::Clock;
use prepare::{Prepared, Stage};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Makes the text of a result in another tool's form.
pub(crate) type Tables<'a> = &'a dyn Fn(&Record, &[Shown]) -> Result<String>;

/// How a plan is run and its result shown.
pub(crate) struct How<'a> {
    pub(crate) access: &'a AccessFlags,
    pub(crate) front: &'a FrontFlags,
    /// Makes the text of a result, where it is not Overdrive's own.
    pub(crate) text: Option<Tables<'a>>,
    pub(crate) json: bool,
    /// Counts the I/Os by interval; for plans without logs.
    pub(crate) intervals: Option<&'a Counted>,
}

/// Runs the plan, or says what it is when that is all that was asked.
pub(crate) fn run_plan(plan: Plan, how: &How<'_>) -> Result<Ending> {
    if how.front.save_job {
        output::print(&fio::job_file(&plan))?;
        return Ok(Ending::Done);
    }
    if how.front.dry_run {
        output::print(&show::resolved(&plan))?;
        return Ok(Ending::Done);
    }
    let (globals, notes) = (plan.globals.clone(), plan.notes.clone());
    notes.iter().for_each(|note| output::say!("overdrive: {note}"));
    let stage = Stage::open(plan, how.access)?;
    let root = Root::new("/");
    let first = &stage.opened[stage.jobs[0].opened[0]];
    let host = HostFacts::read(&root, Duration::ZERO);
    for job in &stage.jobs {
        check_locked_memory(&job.task.job, &host)?;
    }
    let setting = Setting {
        cpus: cpus_for(first.facts.as_ref())?,
        clock: Clock::calibrate(Duration::from_millis(50)),
        stop: interrupt::watch()?,
        live: false,
    };
    let mut draft = Draft::new(&first.open, &host, stage.jobs[0].planned.spec.seed);
    if let Some(facts) = &first.facts {
        draft.set_target(&first.open, facts);
    }
    notes.iter().chain(&stage.notes).for_each(|note| draft.note(note.as_str()));
    if stage.opened.len() > 1 {
        draft.note("several targets: what is said of the drive and its layers is about the first one");
    }
    if !fill_scratch_files(&stage, &setting, &mut draft)? {
        output::say!("overdrive: stopped while a scratch file was written; nothing was measured");
        return Ok(Ending::Interrupted);
    }
    let (before, read_at) = (show::disk_counters(&root, &stage), Instant::now());
    let ending = run_phases(&stage, how, setting, &root, &mut draft)?;
    let disks = show::disks(before, &root, &stage, read_at.elapsed());
    draft.complete(ending);
    let mut record = draft.finish();
    verdict::judge_all(&mut record);
    let shown = show::shown(&stage);
    output::print(&show::text(&record, &shown, how, globals, disks)?)?;
    Ok(ending)
}

/// Runs phase after phase until one does not end as it should.
fn run_phases(
    stage: &Stage,
    how: &How<'_>,
    mut setting: Setting,
    root: &Root,
    draft: &mut Draft,
) -> Result<Ending> {
    let phases = stage.jobs.iter().map(|job| job.section.phase).max().unwrap_or(0) + 1;
    let length = |jobs: &[&Prepared]| jobs.iter().map(|job| shown_length(job)).max().unwrap_or_default();
    let of = |phase: u32| -> Vec<&Prepared> {
        stage.jobs.iter().filter(|job| job.section.phase == phase).collect()
    };
    let planned = (0..phases).map(|phase| length(&of(phase))).sum();
    let mut view = LiveView::new(how.front.live, phases as usize, planned);
    setting.live = view.wants_figures();
    let mut worst = Ending::Done;
    for phase in 0..phases {
        if setting.stop.load(Ordering::Relaxed) {
            return Ok(Ending::Interrupted);
        }
        let jobs = of(phase);
        let names: Vec<&str> = jobs.iter().map(|job| job.planned.title.as_str()).collect();
        let alone = (jobs.len() == 1 && jobs[0].opened.len() == 1).then(|| jobs[0].opened[0]);
        let counted = alone.and_then(|index| stage.opened[index].facts.as_ref());
        let before = device_counters(root, counted);
        let (mut tasks, logs) = with_logs(stage, &jobs)?;
        let counting = how.intervals.map(|counted| counted.begin(&mut tasks)).transpose()?;
        view.begin(&names.join(", "), length(&jobs), &tasks, jobs.iter().map(|job| named(job)).collect());
        let outcomes = run_together(&tasks, &setting, |elapsed, glance| view.tick(elapsed, glance));
        // The readers of the logs end when nobody can write any more.
        drop(tasks);
        if let Some((counted, counting)) = how.intervals.zip(counting) {
            counted.end(counting, draft);
        }
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            // What earlier phases measured is not thrown away.
            Err(error) if phase > 0 => {
                let reason = format!("{}: {error}", names.join(", "));
                output::say!("overdrive: {reason}");
                draft.set_status(Status::Failed { reason });
                worst = Ending::SystemFailed;
                break;
            }
            Err(error) => return Err(refusal(error)),
        };
        let device = before.zip(device_counters(root, counted));
        for (job, outcome) in jobs.iter().zip(&outcomes) {
            let targets = &job.section.targets;
            draft.add(&Measured { planned: &job.planned, outcome, device, targets });
            worst = worse(worst, ending_of(draft, outcome));
        }
        for logs in logs {
            worst = worse(worst, close_logs(logs, draft, Ending::Done));
        }
        if matches!(worst, Ending::Interrupted | Ending::SystemFailed) {
            break;
        }
    }
    view.finish();
    Ok(worst)
}

fn named(job: &Prepared) -> Named {
    let targets = match job.section.targets.as_slice() {
        [] => vec!["scratch file".to_owned()],
        names => names.to_vec(),
    };
    Named { job: job.section.name.clone(), targets }
}

/// The tasks of a phase, and the logs they write. As in fio, log files are numbered over all jobs.
fn with_logs(stage: &Stage, jobs: &[&Prepared]) -> Result<(Vec<Task>, Vec<IoLogs>)> {
    let (mut tasks, mut logs) = (Vec::new(), Vec::new());
    for &job in jobs {
        let before = stage.jobs.iter().take_while(|other| !std::ptr::eq(*other, job));
        let first = 1 + before.map(|other| other.task.job.workers).sum::<u32>();
        let (log, own) = IoLogs::start(&job.section.logs, first, job.task.job.workers)?.unzip();
        logs.extend(own);
        tasks.push(Task { log, ..job.task.clone() });
    }
    Ok((tasks, logs))
}

fn ending_of(draft: &mut Draft, outcome: &Outcome) -> Ending {
    match settle(draft, outcome) {
        Ending::Done if outcome.verified.as_ref().is_some_and(|verified| verified.failures() > 0) => {
            Ending::BadVerdict
        }
        ending => ending,
    }
}

/// What says more about a run: a failure before a stop, a stop before a bad result.
fn worse(one: Ending, other: Ending) -> Ending {
    let weight = |ending: Ending| match ending {
        Ending::Done => 0,
        Ending::BadVerdict => 1,
        Ending::Interrupted => 2,
        // No job runs a program; if one did, its failure would be told first.
        Ending::SystemFailed | Ending::Program(_) => 3,
    };
    if weight(other) > weight(one) { other } else { one }
}

/// For the progress line, which wants to know what nobody knows of a job without a time limit.
fn shown_length(job: &Prepared) -> Duration {
    let job = &job.task.job;
    if job.runtime >= NO_TIME_LIMIT { Duration::from_secs(10) } else { job.warmup + job.runtime }
}

/// Scratch files are written in full before anything is read from them; false when somebody stopped it.
fn fill_scratch_files(stage: &Stage, setting: &Setting, draft: &mut Draft) -> Result<bool> {
    let scratch = || stage.opened.iter().filter(|opened| opened.open.kind == TargetKind::ScratchFile);
    let length = |bytes: u64| Duration::from_secs_f64(bytes as f64 / (500 * MIB) as f64);
    let planned = scratch().map(|opened| length(opened.open.target.size())).sum();
    let mut progress = Progress::new(scratch().count(), planned);
    for opened in scratch() {
        let target = &opened.open.target;
        progress.begin("writing a scratch file", length(target.size()));
        let filled = fill(target, 1, setting, |bytes| progress.tick(length(bytes), &format_size(bytes)))?;
        if !filled.complete {
            progress.finish();
            return Ok(false);
        }
        // The record speaks of the first target.
        if std::ptr::eq(opened, &stage.opened[stage.jobs[0].opened[0]]) {
            draft.set_preconditioning(assemble::written(&filled, target.size()));
        }
    }
    progress.finish();
    Ok(true)
}
