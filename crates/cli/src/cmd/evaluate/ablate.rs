//! `overdrive evaluate --ablate`: the guide's table of settings on this machine. A pair of workloads is
//! measured as the host was found and with each advised change alone, in turn; every change is taken back.
//!
//! Changes go through the journal, under its lock, so that whatever ends the run (Ctrl-C, an error, a kill)
//! leaves a set that is taken back here or by `overdrive tune undo`.

use super::{Evaluation, Lengths, can_poll, make_folder, open};
use crate::cmd::tune;
use crate::exit::{Ending, Refused, refuse};
use crate::flags::{ClassFlag, EvaluateFlags};
use crate::guide::{self, Circumstances, Planned};
use crate::interrupt;
use crate::output;
use crate::progress::Progress;
use anyhow::{Context, Result, bail};
use overdrive_base::size::GIB;
use overdrive_host::change::driver::Driver;
use overdrive_host::change::journal::Undone;
use overdrive_host::change::machine::Applied;
use overdrive_host::change::plan::{Plan, Wanted};
use overdrive_host::change::system::{HostSystem, System};
use overdrive_host::change::{Change, Kind, meaning, side_effects};
use overdrive_host::finding::{Profile, Risk};
use overdrive_host::rules;
use overdrive_io::engine::sim::SimSpec;
use overdrive_io::outcome::{Ended, Outcome};
use overdrive_io::run::run;
use overdrive_report::ablation::{Ablation, Run, SCHEMA, Setting};
use overdrive_report::record::{Group, Latency, Status};
use overdrive_report::render;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

const USUAL: Lengths = Lengths {
    runtime: Duration::from_secs(10),
    warmup: Duration::from_millis(500),
    scratch: 4 * GIB,
    self_test: Duration::from_millis(500),
    watch: Duration::from_secs(1),
};

const QUICK: Lengths = Lengths {
    runtime: Duration::from_secs(1),
    warmup: Duration::from_millis(200),
    scratch: GIB,
    self_test: Duration::from_millis(300),
    watch: Duration::from_millis(300),
};

const REPEATS_USUAL: u32 = 5;
const REPEATS_QUICK: u32 = 3;

/// The last row: every change at once.
const TOGETHER: &str = "all of these";

/// A change to be measured alone: a rule's name and what it writes.
type Variant = (String, Vec<Change>);

/// Runs the whole ablation.
pub(super) fn ablate(flags: &EvaluateFlags) -> Result<Ending> {
    let lengths = if flags.quick { QUICK } else { USUAL };
    let mut named = flags.ablate.rules.iter().flatten();
    if let Some(name) = named.find(|name| !rules::all().any(|rule| rule.id == **name)) {
        refuse!("--rules {name}: no rule has this name; overdrive audit --json lists all");
    }
    if flags.target.as_deref().is_some_and(|target| SimSpec::parse(target).is_some()) {
        refuse!("--ablate: a simulated device stands on no host, so there is nothing to change");
    }
    // Before anything is measured: every change would be refused after minutes.
    if overdrive_sys::relay::effective_user() != 0 {
        refuse!("--ablate: changing settings needs root; nothing was touched");
    }
    let open = open(flags, &lengths)?;
    // The lock first: two at once would measure each other's changes.
    let base = Path::new("/");
    let state = tune::state_folder(&flags.ablate.state, base)?;
    let mut system = HostSystem::open(base, &state).map_err(|error| Refused(error.to_string()))?;
    let folder = make_folder(flags)?;
    let stop = interrupt::watch_to_the_end()?;
    let mut evaluation = Evaluation::prepare(flags, &lengths, open, folder, stop)?;
    evaluation.precondition()?;
    evaluation.audit()?;
    let (variants, mut notes) = variants(flags, &evaluation)?;
    let pair = pair(flags, &lengths, &evaluation)?;
    let workloads = pair.iter().map(|planned| planned.title.clone()).collect();
    let repeats = flags.ablate.repeats.unwrap_or(if flags.quick { REPEATS_QUICK } else { REPEATS_USUAL });

    let watched = watched(&variants);
    let before: Vec<_> = watched.iter().map(|path| system.read(Kind::Attribute, path)).collect();
    let status = tune::next_command("tune status", &flags.ablate.state, base);
    let mut bench = Bench::new(&evaluation, &mut system, pair, variants, repeats, &status);
    let measured = bench.rounds();
    bench.progress.finish();
    let Bench { settings, refused, .. } = bench;
    notes.extend(refused);
    let after: Vec<_> = watched.iter().map(|path| system.read(Kind::Attribute, path)).collect();
    let is_moved = |&index: &usize| before[index] != after[index];
    let moved: Vec<&str> = (0..watched.len()).filter(is_moved).map(|index| watched[index].as_str()).collect();
    notes.push(if moved.is_empty() {
        format!("the host is as it was: {} values read as before", watched.len())
    } else {
        format!("not as before: {}; {status} says more", moved.join(", "))
    });
    let ablation = Ablation {
        schema: SCHEMA.to_owned(),
        started_at: evaluation.draft.finish().started_at,
        status: match &measured {
            Ok(true) => Status::Interrupted,
            Ok(false) => Status::Complete,
            Err(error) => Status::Failed { reason: format!("{error:#}") },
        },
        target: evaluation.open.path.display().to_string(),
        disks: disks(&evaluation),
        repeats,
        workloads,
        settings,
        notes,
    };
    publish(flags, &evaluation.folder, &ablation)?;
    let is_stopped = measured?;
    let has_runs = |setting: &Setting| setting.runs.iter().any(|runs| !runs.is_empty());
    let is_good = moved.is_empty() && ablation.settings.iter().skip(1).any(has_runs);
    Ok(match (is_stopped, is_good) {
        (true, _) => Ending::Interrupted,
        (false, true) => Ending::Done,
        (false, false) => Ending::BadVerdict,
    })
}

fn disks(evaluation: &Evaluation) -> Vec<String> {
    let disks = evaluation.target_facts.iter().flat_map(|target| &target.disks);
    disks.map(|disk| disk.name().to_owned()).collect()
}

fn publish(flags: &EvaluateFlags, folder: &Path, ablation: &Ablation) -> Result<()> {
    let json = serde_json::to_string_pretty(ablation)? + "\n";
    let path = folder.join("ablation.json");
    output::replace_file(&path, &json)?;
    if flags.json {
        output::print(&json)?;
    } else {
        output::print(&render::text::ablation(ablation, output::text_options()))?;
    }
    output::say!("overdrive: ablation {}", path.display());
    Ok(())
}

/// What is advised for this target, one entry a rule, and what of it cannot be measured.
fn variants(flags: &EvaluateFlags, evaluation: &Evaluation) -> Result<(Vec<Variant>, Vec<String>)> {
    let Some(target) = &evaluation.target_facts else {
        refuse!("--ablate: nothing is known of the target's disk, so there is nothing to change");
    };
    let findings = rules::audit_for(Profile::Storage, &evaluation.host, target);
    let class_max = match flags.ablate.class {
        ClassFlag::A => Risk::Safe,
        ClassFlag::B => Risk::SideEffects,
    };
    let wanted = Wanted { rules: flags.ablate.rules.clone(), class_max };
    let mut plan = Plan::of(&findings, &evaluation.root, &wanted);
    if !flags.ablate.even_if_busy {
        tune::hold_back(&mut plan, Path::new("/"));
    }
    let is_asked = flags.ablate.rules.is_some();
    let left = plan.left.iter().filter(|left| is_asked || left.class != Risk::AdviceOnly.letter());
    let notes: Vec<String> = left.map(|left| format!("not measured: {}: {}", left.rule, left.why)).collect();
    let mut variants: Vec<Variant> = Vec::new();
    for change in plan.changes {
        match variants.iter_mut().find(|(name, _)| *name == change.rule) {
            Some((_, changes)) => changes.push(change),
            None => variants.push((change.rule.clone(), vec![change])),
        }
    }
    if variants.is_empty() {
        let why = if notes.is_empty() { "the audit advises none here".to_owned() } else { notes.join("; ") };
        refuse!("--ablate: no setting to change: {why}");
    }
    if variants.len() > 1 {
        let all = variants.iter().flat_map(|(_, changes)| changes.clone()).collect();
        variants.push((TOGETHER.to_owned(), all));
    }
    Ok((variants, notes))
}

/// The guide's pair: random reads at depth 1, polled where that can be had, and random writes at depth 16;
/// reads where nothing may be written.
fn pair(flags: &EvaluateFlags, lengths: &Lengths, evaluation: &Evaluation) -> Result<Vec<Planned>> {
    let plan = guide::workloads(&Circumstances {
        cpus: evaluation.setting.cpus.len() as u32,
        writable: evaluation.open.writable,
        pollable: evaluation.target_facts.as_ref().is_some_and(can_poll),
        ring: evaluation.plan.iter().any(|planned| planned.spec.engine.name() == "io_uring"),
        simulated: None,
        runtime: flags.runtime.unwrap_or(lengths.runtime),
        warmup: lengths.warmup,
        seed: evaluation.seed,
    });
    let single = plan.iter().filter(|planned| planned.group == Group::Qd1);
    let single = single.max_by_key(|planned| planned.spec.polled).cloned();
    let at_16 = |group| {
        let depth = |planned: &&Planned| planned.spec.workers * planned.spec.queue_depth == 16;
        plan.iter().filter(|planned| planned.group == group).find(depth).cloned()
    };
    let second = at_16(Group::RandomWrite).or_else(|| at_16(Group::Ramp));
    Ok(vec![single.context("no workload at depth 1")?, second.context("no workload at depth 16")?])
}

/// Every path that the changes touch, with what the kernel moves along.
fn watched(variants: &[Variant]) -> Vec<String> {
    let changes = variants.iter().flat_map(|(_, changes)| changes);
    let mut paths: Vec<String> = changes
        .flat_map(|change| std::iter::once(change.path.clone()).chain(side_effects(&change.path)))
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

/// The measuring itself.
struct Bench<'a> {
    evaluation: &'a Evaluation,
    system: &'a mut HostSystem,
    pair: Vec<Planned>,
    variants: Vec<Variant>,
    repeats: u32,
    settings: Vec<Setting>,
    /// Changes that could not be made, with the reason.
    refused: Vec<String>,
    progress: Progress,
    /// The command that tells what stands.
    status: &'a str,
}

impl<'a> Bench<'a> {
    fn new(
        evaluation: &'a Evaluation,
        system: &'a mut HostSystem,
        pair: Vec<Planned>,
        variants: Vec<Variant>,
        repeats: u32,
        status: &'a str,
    ) -> Self {
        let runs = (variants.len() + 2) * repeats as usize * pair.len();
        let length = |planned: &Planned| planned.spec.runtime + planned.spec.warmup;
        let each = pair.iter().map(length).max().unwrap_or_default();
        let setting = |name: &str, changes: &[Change]| Setting {
            name: name.to_owned(),
            changes: if name == TOGETHER { Vec::new() } else { changes.iter().map(told).collect() },
            runs: vec![Vec::new(); pair.len()],
        };
        let mut settings = vec![setting("as found", &[])];
        settings.extend(variants.iter().map(|(name, changes)| setting(name, changes)));
        let progress = Progress::new(runs, each * runs as u32);
        let refused = Vec::new();
        Self { evaluation, system, pair, variants, repeats, settings, refused, progress, status }
    }

    /// Every round: as found, each change in turn (every second round backwards), as found again. True when
    /// the user stopped it.
    fn rounds(&mut self) -> Result<bool> {
        for round in 0..self.repeats {
            let mut order: Vec<usize> = (0..self.variants.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            let steps = std::iter::once(None).chain(order.into_iter().map(Some)).chain([None]);
            for step in steps {
                match step {
                    None => self.measure(0)?,
                    Some(variant) if self.is_refused(variant) => {}
                    Some(variant) => self.with_change(variant)?,
                }
                if self.evaluation.setting.stop.load(Ordering::Relaxed) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn is_refused(&self, variant: usize) -> bool {
        let start = format!("not measured: {}: ", self.variants[variant].0);
        self.refused.iter().any(|why| why.starts_with(&start))
    }

    /// Makes a change, measures, and takes it back whatever came of that.
    fn with_change(&mut self, variant: usize) -> Result<()> {
        let (name, changes) = self.variants[variant].clone();
        let mut driver = Driver::new(self.system, tune::occasion(Path::new("/"))).map_err(tune::driven)?;
        let set = driver.state().next_set();
        let applied = driver.apply(&changes);
        let measured = match &applied {
            Ok((_, outcomes)) => {
                match outcomes.iter().zip(&changes).find(|(outcome, _)| !outcome.is_good()) {
                    None => self.measure(variant + 1),
                    Some((outcome, change)) => {
                        self.refused.push(refusal(&name, change, outcome));
                        Ok(())
                    }
                }
            }
            Err(_) => Ok(()),
        };
        self.take_back(set)?;
        applied.map_err(tune::driven)?;
        measured
    }

    fn take_back(&mut self, set: u64) -> Result<()> {
        let mut driver = Driver::new(self.system, tune::occasion(Path::new("/"))).map_err(tune::driven)?;
        if !driver.state().sets.contains_key(&set) {
            return Ok(());
        }
        for reversal in driver.undo(set).map_err(tune::driven)? {
            let outcome = reversal.reverted.outcome;
            if !matches!(outcome, Undone::Restored | Undone::Already) {
                bail!("{} was not put back ({outcome:?}); {} says more", reversal.path, self.status);
            }
        }
        Ok(())
    }

    /// Runs the pair; of a run that the user stops nothing is kept.
    fn measure(&mut self, setting: usize) -> Result<()> {
        for index in 0..self.pair.len() {
            let planned = self.pair[index].clone();
            let title = format!("{}: {}", self.settings[setting].name, planned.title);
            self.progress.begin(&title, planned.spec.runtime + planned.spec.warmup);
            let outcome = self.run_one(&planned)?;
            match outcome.ended {
                Ended::Stopped => return Ok(()),
                Ended::Failed(reason) => bail!("{title}: {reason}"),
                Ended::TimeUp => {}
            }
            let tally = if planned.spec.operation.writes() { &outcome.write } else { &outcome.read };
            let latency = Latency::from_histogram(&tally.latency);
            let run =
                Run::new(&latency.with_context(|| format!("{title}: no I/O completed"))?, outcome.iops());
            self.progress.end(&format!("{:.0} IOPS, avg {:.1} us", run.iops, run.mean_ns / 1e3));
            self.settings[setting].runs[index].push(run);
        }
        Ok(())
    }

    fn run_one(&self, planned: &Planned) -> Result<Outcome> {
        let target = &self.evaluation.open.target;
        let job = planned.spec.clone().check(target.size()).map_err(|error| Refused(error.to_string()))?;
        Ok(run(&job, std::slice::from_ref(target), &self.evaluation.setting, |elapsed, glance| {
            self.progress.tick_rate(elapsed, glance.ios());
        })?)
    }
}

/// A change in a line.
fn told(change: &Change) -> String {
    let text = |text: &Option<String>| meaning(text.as_deref().unwrap_or_default()).to_owned();
    format!("{}: {} -> {}", change.path, text(&change.old), text(&change.new))
}

fn refusal(name: &str, change: &Change, outcome: &Applied) -> String {
    format!("not measured: {name}: {}: {}", change.path, tune::outcome_text(outcome))
}
