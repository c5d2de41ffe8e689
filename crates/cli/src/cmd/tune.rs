//! `overdrive tune`: plan and apply; status and undo stand in `tune/standing.rs`.

pub(crate) mod standing;

use crate::cmd::audit;
use crate::exit::{Ending, Refused, refuse};
use crate::flags::{ApplyFlags, ChoiceFlags, ClassFlag, PlanFlags, StateFlags, TuneCommand, TuneFlags};
use crate::output;
use anyhow::Result;
use overdrive_host::change::driver::{DriveError, Driver, Occasion};
use overdrive_host::change::machine::Applied;
use overdrive_host::change::plan::{Left, Plan, Wanted};
use overdrive_host::change::state::Set;
use overdrive_host::change::system::{self, HostSystem};
use overdrive_host::change::{Change, Device, Kind, busy, meaning, persist, shell, swap as swap_words};
use overdrive_host::facts::describe_errno;
use overdrive_host::finding::Risk;
use overdrive_host::{Root, rules};
use overdrive_report::render;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a disk's counters are watched before its queue is written to.
const WATCH: Duration = Duration::from_millis(200);

/// Runs one of the subcommands.
pub(crate) fn tune(flags: &TuneFlags) -> Result<Ending> {
    match &flags.command {
        TuneCommand::Plan(flags) => plan(flags),
        TuneCommand::Apply(flags) => apply(flags),
        TuneCommand::Status(flags) => standing::status(flags),
        TuneCommand::Undo(flags) => standing::undo(flags),
    }
}

/// Where the journal is: the folder named, else the usual one below the root.
pub(crate) fn state_folder(flags: &StateFlags, root: &Path) -> Result<PathBuf> {
    let usual = || system::state_folder(root).map_err(|error| Refused(error.to_string()).into());
    flags.state.clone().map_or_else(usual, Ok)
}

/// A command as it is to be typed next, with the journal and the root that this one was given.
pub(crate) fn next_command(words: &str, flags: &StateFlags, root: &Path) -> String {
    let option = |name: &str, path: &Path| format!(" {name} {}", shell::quoted(&path.display().to_string()));
    let state = flags.state.as_deref().map(|state| option("--state", state)).unwrap_or_default();
    let root = if is_here(root) { String::new() } else { option("--root", root) };
    format!("overdrive {words}{state}{root}")
}

/// Refuses whoever is not root before anything is made: the kernel would refuse each write, and a journal
/// would be left. A copy of a host belongs to whoever made it.
pub(crate) fn need_root(what: &str, root: &Path, rehearsal: &str) -> Result<()> {
    if is_here(root) && overdrive_sys::relay::effective_user() != 0 {
        refuse!("{what} needs root; nothing was touched ({rehearsal} shows what it would do)");
    }
    Ok(())
}

/// Whether a root is the running system and no copy of one.
fn is_here(root: &Path) -> bool {
    root == Path::new("/")
}

/// Says that a damaged journal, of which nothing stood any more, was kept under another name.
pub(crate) fn tell_set_aside(driver: &Driver<'_>) {
    if let Some(path) = driver.set_aside() {
        output::say!(
            "the journal was damaged and nothing it knows of stands: kept as {path}, a new one begun"
        );
    }
}

/// What the user can mend is a refusal; a journal that cannot be read or written is the system's failure.
pub(crate) fn driven(error: DriveError) -> anyhow::Error {
    match error {
        DriveError::Read(_) | DriveError::Write(_) => error.into(),
        other => Refused(other.to_string()).into(),
    }
}

/// The head of a set: now, on this boot of this host.
pub(crate) fn occasion(root: &Path) -> Occasion {
    let root = Root::new(root);
    let text = |path: &str| root.text(path).value().cloned().unwrap_or_default();
    Occasion {
        at: jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string(),
        boot_id: text("/proc/sys/kernel/random/boot_id"),
        machine_id: text("/etc/machine-id"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn plan(flags: &PlanFlags) -> Result<Ending> {
    let (plan, notes) = make(&flags.choice)?;
    notes.iter().for_each(|note| output::say!("{note}"));
    if flags.shell {
        let root = Root::new(&flags.choice.scope.root);
        output::print(&shell::script(&root, &plan.changes, "tune plan", "tune apply"))?;
    } else {
        show(&plan, &busy_disks(&plan, &flags.choice.scope.root), flags.choice.json)?;
    }
    Ok(Ending::Done)
}

/// The plan that the flags ask for, from an audit made now.
fn make(choice: &ChoiceFlags) -> Result<(Plan, Vec<String>)> {
    let unknown = choice.rules.iter().flatten().find(|name| !rules::all().any(|rule| rule.id == **name));
    if let Some(name) = unknown {
        refuse!("--rules {name}: no rule has this name; overdrive audit --json lists all");
    }
    let root = audit::rooted(&choice.scope.root)?;
    let (audit, mut notes) = audit::look(&root, &choice.scope, None)?;
    let class_max = match choice.class {
        ClassFlag::A => Risk::Safe,
        ClassFlag::B => Risk::SideEffects,
    };
    let mut plan = Plan::of(&audit.findings, &root, &Wanted { rules: choice.rules.clone(), class_max });
    if choice.persist {
        let state = state_folder(&choice.state, &choice.scope.root)?;
        let system =
            HostSystem::look(&choice.scope.root, &state).map_err(|error| Refused(error.to_string()))?;
        let set = match system {
            Some(mut system) => {
                let here = occasion(&choice.scope.root);
                Driver::new(&mut system, here).map_err(driven)?.state().next_set()
            }
            None => 1,
        };
        notes.extend(persist::passing(&root, &plan.changes));
        plan.changes.extend(persist::files(&root, &plan.changes, set));
    }
    Ok((plan, notes))
}

fn show(plan: &Plan, busy: &[Busy], as_json: bool) -> Result<()> {
    if as_json {
        let value = json!({
            "schema": "overdrive.plan/1",
            "changes": plan.changes.iter().map(|change| planned_json(change, busy)).collect::<Vec<_>>(),
            "left": plan.left.iter().map(left_json).collect::<Vec<_>>(),
            "kernel_parameters": plan.parameters.iter().map(parameter_json).collect::<Vec<_>>(),
        });
        return output::print(&format!("{value}\n"));
    }
    output::print(&render::text::sections(&lines(plan, busy), output::text_options()))
}

fn lines<'a>(plan: &'a Plan, busy: &[Busy]) -> Vec<(&'a str, String)> {
    let mut lines: Vec<(&str, String)> =
        plan.changes.iter().map(|change| (change.class.as_str(), planned(change, busy))).collect();
    if lines.is_empty() {
        // What is held back is still to be changed.
        let text = if busy.is_empty() { "nothing to change" } else { "nothing can be changed now" };
        lines.push(("-", text.to_owned()));
    }
    for left in &plan.left {
        let fix = if left.fix.is_empty() { String::new() } else { format!(" (fix: {})", left.fix) };
        lines.push(("-", format!("not planned: {}: {}{fix}", left.rule, left.why)));
    }
    lines.extend(plan.parameters.iter().map(|parameter| ("-", command_line(parameter))));
    lines
}

/// What the kernel's command line should have: told, never edited.
fn command_line((rule, parameter): &(String, String)) -> String {
    format!(
        "to stay over a reboot, {rule} wants the kernel parameter {parameter}: add it to the boot loader's line"
    )
}

/// A change as a line: what, from, to, why.
pub(crate) fn told(change: &Change) -> String {
    match change.kind {
        Kind::Attribute => {
            format!(
                "{}: {} -> {} ({})",
                change.path,
                value(change.old.as_deref()),
                value(change.new.as_deref()),
                change.rule
            )
        }
        Kind::File => format!("{}: a new file, to make it stay ({})", change.path, change.rule),
        Kind::SwapSpace | Kind::SwapArea => {
            let word = |text: &Option<String>| swap_words::told(change.kind, text.as_deref());
            let (old, new) = (word(&change.old), word(&change.new));
            format!("{}: {old} -> {new} ({})", change.path, change.rule)
        }
    }
}

/// The same of a plan, with what would hold it back now.
pub(crate) fn planned(change: &Change, busy: &[Busy]) -> String {
    match busy.iter().find(|disk| disk.holds(change)) {
        Some(disk) => format!("{}: left out now: {}", told(change), disk.why),
        None => told(change),
    }
}

fn value(text: Option<&str>) -> &str {
    text.map_or("(nothing)", |text| match meaning(text) {
        "" => "(empty)",
        other => other,
    })
}

pub(crate) fn change_json(change: &Change) -> Value {
    json!({
        "rule": change.rule,
        "class": change.class,
        "kind": change.kind,
        "path": change.path,
        "old": change.old,
        "new": change.new,
        "device": change.device,
    })
}

/// The same of a plan; `busy` is what would hold it back now.
pub(crate) fn planned_json(change: &Change, busy: &[Busy]) -> Value {
    let mut row = change_json(change);
    row["busy"] = json!(busy.iter().find(|disk| disk.holds(change)).map(|disk| &disk.why));
    row
}

fn parameter_json((rule, parameter): &(String, String)) -> Value {
    json!({ "rule": rule, "parameter": parameter })
}

pub(crate) fn left_json(left: &Left) -> Value {
    json!({ "rule": left.rule, "class": left.class, "why": left.why, "fix": left.fix })
}

fn apply(flags: &ApplyFlags) -> Result<Ending> {
    let choice = &flags.choice;
    let (mut plan, notes) = make(choice)?;
    notes.iter().for_each(|note| output::say!("{note}"));
    let held_back = if flags.even_if_busy { Vec::new() } else { hold_back(&mut plan, &choice.scope.root) };
    if flags.dry_run || plan.changes.is_empty() {
        show(&plan, &held_back, choice.json)?;
        return Ok(if held_back.is_empty() { Ending::Done } else { Ending::BadVerdict });
    }
    need_root("tune apply: changing this host", &choice.scope.root, "--dry-run")?;
    let state = state_folder(&choice.state, &choice.scope.root)?;
    let mut system =
        HostSystem::open(&choice.scope.root, &state).map_err(|error| Refused(error.to_string()))?;
    let mut driver = Driver::new(&mut system, occasion(&choice.scope.root)).map_err(driven)?;
    let done = apply_as_far(&mut driver, &plan.changes)?;
    tell_set_aside(&driver);
    let is_good = held_back.is_empty() && done.outcomes.iter().all(Applied::is_good);
    if choice.json {
        let left: Vec<Value> = plan.left.iter().map(left_json).collect();
        let parameters: Vec<Value> = plan.parameters.iter().map(parameter_json).collect();
        let answer = json!({ "schema": "overdrive.tune/1", "set": done.set,
            "changes": done.json(&plan.changes), "left": left, "kernel_parameters": parameters });
        output::print(&format!("{answer}\n"))?;
    } else {
        let mut lines = done.lines(&plan.changes);
        lines.extend(held_back.iter().map(|disk| ("-", format!("not written: {}", disk.why))));
        lines.extend(plan.parameters.iter().map(|parameter| ("-", command_line(parameter))));
        let undo = |set| next_command(&format!("tune undo {set}"), &choice.state, &choice.scope.root);
        lines.push(done.way_back(undo));
        output::print(&render::text::sections(&lines, output::text_options()))?;
    }
    done.end(is_good)
}

/// What applying changes brought, up to where the journal took no more.
pub(crate) struct Done {
    /// The number of the set; none: nothing of it stands.
    pub(crate) set: Option<u64>,
    /// What became of each change.
    pub(crate) outcomes: Vec<Applied>,
    failure: Option<DriveError>,
}

/// Applies changes as one set. A journal that fills up on the way is no reason to keep back what was changed.
pub(crate) fn apply_as_far(driver: &mut Driver<'_>, changes: &[Change]) -> Result<Done> {
    let (set, outcomes, failure) = match driver.apply(changes) {
        Ok((set, outcomes)) => (set, outcomes, None),
        Err(error) => match driver.take_cut_short() {
            Some((set, outcomes)) => (set, outcomes, Some(error)),
            None => return Err(driven(error)),
        },
    };
    let stands = driver.state().sets.get(&set).is_some_and(Set::is_live);
    Ok(Done { set: stands.then_some(set), outcomes, failure })
}

impl Done {
    pub(crate) fn json(&self, changes: &[Change]) -> Vec<Value> {
        let row = |(change, outcome): (&Change, &Applied)| {
            let mut row = change_json(change);
            row["outcome"] = json!(outcome_text(outcome));
            row["is_good"] = json!(outcome.is_good());
            row
        };
        changes.iter().zip(&self.outcomes).map(row).collect()
    }

    pub(crate) fn lines<'a>(&self, changes: &'a [Change]) -> Vec<(&'a str, String)> {
        let line = |(change, outcome): (&'a Change, &Applied)| {
            (change.class.as_str(), format!("{}: {}", told(change), outcome_text(outcome)))
        };
        changes.iter().zip(&self.outcomes).map(line).collect()
    }

    /// The last line: the set, and the command that takes it back.
    pub(crate) fn way_back(&self, command: impl Fn(u64) -> String) -> (&'static str, String) {
        match self.set {
            Some(set) => ("Set", format!("{set}; {} takes it back", command(set))),
            None => ("-", "nothing was changed, so there is nothing to take back".to_owned()),
        }
    }

    /// The end of the command; a journal that takes no more is told on standard error.
    pub(crate) fn end(&self, is_good: bool) -> Result<Ending> {
        if let Some(failure) = &self.failure {
            output::say!("overdrive: {failure}");
            return Ok(Ending::SystemFailed);
        }
        Ok(if is_good { Ending::Done } else { Ending::BadVerdict })
    }
}

/// A disk in use, whose queue is left alone.
pub(crate) struct Busy {
    device: Device,
    /// In which use, and how to insist.
    pub(crate) why: String,
}

impl Busy {
    /// Whether a change is one of its queue.
    fn holds(&self, change: &Change) -> bool {
        change.device.as_ref() == Some(&self.device) && change.path.contains("/queue/")
    }
}

/// The disks in use whose queues the plan would write to.
pub(crate) fn busy_disks(plan: &Plan, root: &Path) -> Vec<Busy> {
    let root = Root::new(root);
    let mut devices: Vec<_> = plan
        .changes
        .iter()
        .filter(|change| change.kind == Kind::Attribute && change.path.contains("/queue/"))
        .filter_map(|change| change.device.clone())
        .collect();
    devices.sort_by(|a, b| a.folder.cmp(&b.folder));
    devices.dedup();
    let in_use = |device: &Device| {
        let why = format!("{}; --even-if-busy insists", busy::reason(&root, device, WATCH)?);
        Some(Busy { device: device.clone(), why })
    };
    // Each is watched for a while, all at once.
    std::thread::scope(|scope| {
        let watched: Vec<_> = devices.iter().map(|device| scope.spawn(|| in_use(device))).collect();
        watched.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    })
}

/// Takes the queues of disks in use out of the plan, and says which.
pub(crate) fn hold_back(plan: &mut Plan, root: &Path) -> Vec<Busy> {
    let busy = busy_disks(plan, root);
    for disk in &busy {
        for change in plan.changes.iter().filter(|change| disk.holds(change)) {
            let (rule, class) = (change.rule.clone(), change.class.clone());
            plan.left.push(Left { rule, class, why: disk.why.clone(), fix: String::new() });
        }
        plan.changes.retain(|change| !disk.holds(change));
    }
    busy
}

pub(crate) fn outcome_text(outcome: &Applied) -> String {
    match outcome {
        Applied::Done(_) => "done, and reads back so".to_owned(),
        Applied::Already => "stood so already".to_owned(),
        Applied::Stale(now) => {
            format!("not written: it reads {} now, somebody else changed it", value(Some(now)))
        }
        Applied::Unreadable(errno) => format!("not written: cannot be read: {}", describe_errno(*errno)),
        Applied::Refused(errno) => format!("refused: {}", describe_errno(*errno)),
        Applied::Differs(now) => format!("written, but it reads {}", value(Some(now))),
        Applied::Unjournaled(errno) => {
            format!("not written: the journal cannot be written: {}", describe_errno(*errno))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_marks_what_is_held_back_and_apply_does_not_call_it_nothing() {
        let device = |name: &str| Device { folder: format!("/sys/block/{name}"), id: format!("wwid:{name}") };
        let change = |name: &str| Change {
            rule: "block-nomerges".to_owned(),
            class: "A".to_owned(),
            kind: Kind::Attribute,
            path: format!("/sys/block/{name}/queue/nomerges"),
            old: Some("0\n".to_owned()),
            new: Some("2".to_owned()),
            device: Some(device(name)),
        };
        let why = "vda is busy: 900 requests a second; --even-if-busy insists".to_owned();
        let busy = [Busy { device: device("vda"), why: why.clone() }];
        let mut plan = Plan { changes: vec![change("vda"), change("vdb")], ..Plan::default() };
        let told: Vec<String> = lines(&plan, &busy).into_iter().map(|(_, text)| text).collect();
        assert!(told[0].ends_with(&format!("left out now: {why}")), "{told:?}");
        assert!(told[1].ends_with("0 -> 2 (block-nomerges)"), "{told:?}");
        assert_eq!(planned_json(&plan.changes[0], &busy)["busy"], why);
        assert!(planned_json(&plan.changes[1], &busy)["busy"].is_null());
        plan.changes.clear();
        assert_eq!(lines(&plan, &busy)[0].1, "nothing can be changed now");
        assert_eq!(lines(&plan, &[])[0].1, "nothing to change");
    }
}
