//! `overdrive tune status` and `undo`: what stands, and taking it back.

use super::{driven, need_root, occasion, state_folder, value};
use crate::cmd::audit::rooted;
use crate::exit::{Ending, Refused, refuse};
use crate::flags::{StatusFlags, UndoFlags};
use crate::output;
use anyhow::Result;
use overdrive_host::Root;
use overdrive_host::change::driver::{DriveError, Driver, Reversal};
use overdrive_host::change::journal::Undone;
use overdrive_host::change::rehearsal::Rehearsal;
use overdrive_host::change::state::{Set, Standing};
use overdrive_host::change::swap as swap_words;
use overdrive_host::change::system::{HostSystem, System};
use overdrive_host::change::{Kind, same};
use overdrive_host::facts::describe_errno;
use overdrive_host::swap::{room, setup::RULE};
use overdrive_report::render;
use overdrive_sys::file::WriteConsent;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Says which changes stand.
pub(super) fn status(flags: &StatusFlags) -> Result<Ending> {
    let folder = journal_folder(flags)?;
    let system = HostSystem::look(&flags.root, &folder).map_err(|error| Refused(error.to_string()))?;
    let Some(mut system) = system else {
        if flags.json {
            output::print("{\"schema\":\"overdrive.status/1\",\"changes\":[],\"damage\":[]}\n")?;
        } else {
            output::print(&format!("nothing was ever changed (no journal in {})\n", folder.display()))?;
        }
        return Ok(Ending::Done);
    };
    let mut driver = Driver::new(&mut system, occasion(&flags.root)).map_err(driven)?;
    let damage: Vec<String> = driver.damage().iter().map(ToString::to_string).collect();
    let sets: Vec<(u64, Set)> =
        driver.state().sets.iter().map(|(&number, set)| (number, set.clone())).collect();
    let mut rows = Vec::new();
    for (number, set) in sets.iter().filter(|(_, set)| set.is_live()) {
        for (&change, standing) in set.changes.iter().filter(|(_, standing)| standing.is_live()) {
            rows.push(Row::of(&mut driver, *number, change, standing));
        }
    }
    if flags.json {
        let rows: Vec<Value> = rows.iter().map(Row::json).collect();
        let answer = json!({ "schema": "overdrive.status/1", "changes": rows, "damage": damage });
        output::print(&format!("{answer}\n"))?;
    } else {
        let mut lines: Vec<(String, String)> = rows.iter().map(Row::line).collect();
        lines.extend(
            damage.iter().map(|damage| ("!".to_owned(), format!("the journal is damaged: {damage}"))),
        );
        if lines.is_empty() {
            lines.push(("-".to_owned(), "no change stands".to_owned()));
        }
        let lines: Vec<(&str, String)> =
            lines.iter().map(|(title, text)| (title.as_str(), text.clone())).collect();
        output::print(&render::text::sections(&lines, output::text_options()))?;
    }
    Ok(if damage.is_empty() { Ending::Done } else { Ending::BadVerdict })
}

/// Where the journal is. The usual folder is there from the first change on; one that was named and is not
/// there would read as if nothing had ever been changed.
fn journal_folder(flags: &StatusFlags) -> Result<PathBuf> {
    rooted(&flags.root)?;
    if let Some(named) = flags.state.state.as_ref().filter(|named| !named.is_dir()) {
        let named = named.display();
        refuse!("--state {named}: no such directory; wanted the one that the changes were made with");
    }
    state_folder(&flags.state, &flags.root)
}

/// A change that stands, and what its path reads.
struct Row {
    set: u64,
    kind: Kind,
    rule: String,
    path: String,
    old: Option<String>,
    new: Option<String>,
    reads: String,
    state: &'static str,
}

impl Row {
    fn of(driver: &mut Driver<'_>, set: u64, change: u32, standing: &Standing) -> Row {
        let seen = driver.reading(set, change);
        let ours = standing.after.as_ref().map_or(standing.new.as_deref(), |after| after.read.as_deref());
        let (path, reads, state) = match seen {
            None => (standing.path.clone(), String::new(), "the device is not there"),
            Some((path, Err(errno))) => (path, describe_errno(errno), "cannot be read"),
            Some((path, Ok(None))) if standing.what == Kind::Attribute => {
                (path, "(nothing)".to_owned(), "its path is not there")
            }
            Some((path, Ok(now))) => {
                let is_ours = same(standing.what, now.as_deref(), ours);
                let is_old = same(standing.what, now.as_deref(), standing.old.as_deref());
                let state = match (is_ours, is_old, standing.after.is_some()) {
                    (true, _, true) => "stands",
                    (true, _, false) => {
                        "stands, though the journal does not say how it ended: killed, or the disk was full"
                    }
                    (false, true, _) => "reads as before the change",
                    (false, false, _) => "changed by somebody else since, or by a later set",
                };
                (path, short(standing.what, now.as_deref()), state)
            }
        };
        let (rule, old, new) = (standing.rule.clone(), standing.old.clone(), standing.new.clone());
        Row { set, kind: standing.what, rule, path, old, new, reads, state }
    }

    fn line(&self) -> (String, String) {
        let reads = if self.reads.is_empty() { String::new() } else { format!(", reads {}", self.reads) };
        let text = format!(
            "{}: {} -> {}{reads}: {} ({})",
            self.path,
            short(self.kind, self.old.as_deref()),
            short(self.kind, self.new.as_deref()),
            self.state,
            self.rule
        );
        (format!("Set {}", self.set), text)
    }

    fn json(&self) -> Value {
        json!({
            "set": self.set, "rule": self.rule, "path": self.path, "old": self.old, "new": self.new,
            "reads": self.reads, "state": self.state,
        })
    }
}

/// A value in a line; of a whole file only that it is one.
fn short(kind: Kind, text: Option<&str>) -> String {
    if kind.is_swap() {
        return swap_words::told(kind, text);
    }
    match value(text) {
        long if long.contains('\n') => "(a file)".to_owned(),
        short => short.to_owned(),
    }
}

/// Which sets are to be taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// This one.
    One(u64),
    /// The last one that stands.
    Last,
    /// Every one that stands.
    All,
    /// Those of `swap on`, however far it came.
    Swap,
}

/// Takes sets back.
pub(super) fn undo(flags: &UndoFlags) -> Result<Ending> {
    let which = match flags.set {
        Some(set) => Which::One(set),
        None if flags.all => Which::All,
        None => Which::Last,
    };
    let root = &flags.status.root;
    let how = How { is_rehearsal: flags.dry_run, as_json: flags.status.json };
    take_back(root, &journal_folder(&flags.status)?, which, how)
}

/// How sets are taken back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    /// It is only said what would become of each change.
    pub(crate) is_rehearsal: bool,
    /// As JSON.
    pub(crate) as_json: bool,
}

/// Takes sets back, the last one first, and prints what became of each change.
pub(crate) fn take_back(root: &Path, folder: &Path, which: Which, how: How) -> Result<Ending> {
    let Some(seen) = HostSystem::look(root, folder).map_err(|error| Refused(error.to_string()))? else {
        refuse!("{}: no journal there: nothing was ever changed", folder.display());
    };
    if !how.is_rehearsal {
        need_root("taking back what was changed on this host", root, "overdrive tune undo --dry-run")?;
    }
    let mut system = match how.is_rehearsal {
        true => seen,
        false => HostSystem::open(root, folder).map_err(|error| Refused(error.to_string()))?,
    };
    let sets = chosen(&mut system, root, which)?;
    // Whoever applied them named each device again; that these pages are ours is checked before each write.
    for path in swapped_to(&mut system, root, &sets, Kind::SwapSpace)? {
        system.consent(WriteConsent::given_for(&path));
    }
    let areas = swapped_to(&mut system, root, &sets, Kind::SwapArea)?;
    if let Some(missing) = room::missing(&Root::new(root), &areas) {
        refuse!("{missing}; nothing was changed");
    }
    let mut rehearsal;
    let undone: &mut dyn System = if how.is_rehearsal {
        rehearsal = Rehearsal::of(&mut system);
        &mut rehearsal
    } else {
        &mut system
    };
    let mut driver = Driver::new(undone, occasion(root)).map_err(driven)?;
    let (rows, failure) = undone_of(&mut driver, sets)?;
    let damage: Vec<String> = driver.damage().iter().map(ToString::to_string).collect();
    if let Some(failure) = failure {
        if !rows.is_empty() {
            show(&rows, &damage, how)?;
        }
        return Err(driven(failure));
    }
    show(&rows, &damage, how)?;
    let is_bad = |outcome| matches!(outcome, Undone::Drift | Undone::Refused | Undone::Gone);
    let bad = !damage.is_empty() || rows.iter().any(|(_, reversal)| is_bad(reversal.reverted.outcome));
    Ok(if bad { Ending::BadVerdict } else { Ending::Done })
}

/// The number of a set and what became of one of its changes.
type OfSet = (u64, Reversal);

/// What became of the changes of these sets; up to where the journal took no more, with its failure.
fn undone_of(driver: &mut Driver<'_>, sets: Vec<u64>) -> Result<(Vec<OfSet>, Option<DriveError>)> {
    let mut rows = Vec::new();
    for set in sets {
        let (reversals, failure) = match driver.undo(set) {
            Ok(reversals) => (reversals, None),
            Err(error @ DriveError::Write(_)) => (driver.take_undone_so_far(), Some(error)),
            Err(error) => return Err(driven(error)),
        };
        rows.extend(reversals.into_iter().map(|reversal| (set, reversal)));
        if failure.is_some() {
            return Ok((rows, failure));
        }
    }
    Ok((rows, None))
}

/// The sets that are wanted, the last one first.
fn chosen(system: &mut HostSystem, root: &Path, which: Which) -> Result<Vec<u64>> {
    let driver = Driver::new(system, occasion(root)).map_err(driven)?;
    let state = driver.state();
    // A set that was killed before its first area has only settings; its purpose tells it all the same.
    let is_swap = |set: &Set| {
        let has_area = set.changes.values().any(|change| change.is_live() && change.what.is_swap());
        has_area || set.purpose.as_deref() == Some(RULE)
    };
    let live = state.sets.iter().filter(|(_, set)| set.is_live()).rev();
    let sets: Vec<u64> = match which {
        Which::One(set) => vec![set],
        Which::All => live.map(|(&number, _)| number).collect(),
        Which::Last => live.map(|(&number, _)| number).take(1).collect(),
        Which::Swap => live.filter(|(_, set)| is_swap(set)).map(|(&number, _)| number).collect(),
    };
    sets.iter().try_for_each(|&set| driver.check_host(set)).map_err(driven)?;
    Ok(sets)
}

/// Where the live changes of a kind stand now.
fn swapped_to(system: &mut HostSystem, root: &Path, sets: &[u64], kind: Kind) -> Result<Vec<PathBuf>> {
    let mut driver = Driver::new(system, occasion(root)).map_err(driven)?;
    let mut found = Vec::new();
    for set in sets {
        let changes = driver.state().sets.get(set).map(|set| set.changes.clone()).unwrap_or_default();
        let live = changes.iter().filter(|(_, change)| change.what == kind && change.is_live());
        let numbers: Vec<u32> = live.map(|(&number, _)| number).collect();
        found.extend(numbers.into_iter().filter_map(|number| driver.reading(*set, number)));
    }
    Ok(found.into_iter().map(|(path, _)| PathBuf::from(path)).collect())
}

fn show(rows: &[OfSet], damage: &[String], how: How) -> Result<()> {
    if how.as_json {
        let changes: Vec<Value> = rows
            .iter()
            .map(|(set, reversal)| {
                json!({
                    "set": set,
                    "path": reversal.path,
                    "outcome": reversal.reverted.outcome,
                    "wanted": reversal.target,
                    "reads": reversal.reverted.read,
                })
            })
            .collect();
        return print_json(&changes, damage, how);
    }
    let mut lines: Vec<(String, String)> =
        rows.iter().map(|(set, reversal)| (format!("Set {set}"), told(reversal, how))).collect();
    lines.extend(damage.iter().map(|damage| ("!".to_owned(), format!("the journal is damaged: {damage}"))));
    if lines.is_empty() {
        lines.push(("-".to_owned(), "nothing stands that could be taken back".to_owned()));
    }
    let lines: Vec<(&str, String)> =
        lines.iter().map(|(title, text)| (title.as_str(), text.clone())).collect();
    output::print(&render::text::sections(&lines, output::text_options()))
}

/// What became of each change, as JSON.
pub(crate) fn print_json(changes: &[Value], damage: &[String], how: How) -> Result<()> {
    let answer = json!({ "schema": "overdrive.undo/1", "dry_run": how.is_rehearsal, "changes": changes,
        "damage": damage });
    output::print(&format!("{answer}\n"))
}

fn told(reversal: &Reversal, how: How) -> String {
    let Reversal { kind, path, target, reverted, .. } = reversal;
    let wanted = short(*kind, target.as_deref());
    let reads = short(*kind, reverted.read.as_deref());
    let what = match reverted.outcome {
        Undone::Restored if how.is_rehearsal => format!("would read {wanted} again"),
        // Discard may have wiped the area as soon as it was on.
        Undone::Restored if *kind == Kind::SwapSpace && target.is_some() => {
            format!("reads {wanted} again; the rest of the device is as swap left it")
        }
        Undone::Restored => format!("reads {wanted} again"),
        Undone::Already if how.is_rehearsal => format!("reads {wanted} already"),
        Undone::Already => format!("read {wanted} already"),
        Undone::Covered => "a later set changed it too: left to that one".to_owned(),
        Undone::Drift => format!("left alone: reads {reads}, which is not ours; before us it read {wanted}"),
        Undone::Rebooted => "a reboot took it back".to_owned(),
        Undone::Refused => {
            let why = reverted.errno.map_or_else(String::new, |errno| format!(": {}", describe_errno(errno)));
            let rest = if *kind == Kind::SwapArea { ", and with it what was changed for it" } else { "" };
            format!("could not be brought back to {wanted}{why}; reads {reads}{rest}")
        }
        Undone::Gone => "its path or device is not there; try again when it is".to_owned(),
    };
    format!("{path}: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::StateFlags;

    #[test]
    fn of_a_device_that_was_swapped_to_only_the_first_page_is_back() {
        use overdrive_host::change::machine::Reverted;
        let how = How { is_rehearsal: false, as_json: false };
        let text = |kind, path: &str, target: Option<&str>| {
            let (target, path) = (target.map(str::to_owned), path.to_owned());
            let reverted = Reverted { outcome: Undone::Restored, read: target.clone(), errno: None };
            told(&Reversal { number: 1, kind, path, target, reverted }, how)
        };
        assert_eq!(
            text(Kind::SwapSpace, "/dev/loop0", Some("zeros")),
            "/dev/loop0: reads an empty first page again; the rest of the device is as swap left it"
        );
        assert!(!text(Kind::SwapSpace, "/var/swap", None).contains("rest"), "a file is gone as a whole");
        assert!(!text(Kind::Attribute, "/proc/sys/vm/swappiness", Some("60")).contains("rest"));
    }

    #[test]
    fn a_folder_that_was_named_and_is_not_there_is_no_unchanged_host() {
        let flags = |root: &str, state: Option<&str>| StatusFlags {
            root: PathBuf::from(root),
            state: StateFlags { state: state.map(PathBuf::from) },
            json: false,
        };
        for (flags, wanted) in [
            (flags("/", Some("/nonexistent")), "--state /nonexistent: no such directory"),
            (flags("/nonexistent", None), "--root /nonexistent: no such directory"),
        ] {
            let error = journal_folder(&flags).unwrap_err();
            assert!(error.downcast_ref::<Refused>().is_some(), "{error}");
            assert!(error.to_string().starts_with(wanted), "{error}");
            let flags = UndoFlags { set: None, all: false, dry_run: true, status: flags };
            assert!(undo(&flags).unwrap_err().to_string().starts_with(wanted));
        }
        let named = std::env::temp_dir();
        assert_eq!(journal_folder(&flags("/", named.to_str())).unwrap(), named);
        assert!(journal_folder(&flags("/", None)).is_ok(), "the usual folder may be missing");
    }
}
