//! What stands now, by the journal: a chain of values for each path, so that any set can be taken back
//! without disturbing another.
//!
//! The chain of a path is what stood before any of ours (its base) and one link for each change that still
//! counts. Taking back the topmost link restores the value below it; taking back a lower one only removes it.

use super::journal::{Reading, Record, Undone};
use super::{Device, Kind, same};
use std::collections::BTreeMap;

/// A change as the journal knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The rule that asked for it.
    pub rule: String,
    /// The letter of its class.
    pub class: String,
    /// What was written to.
    pub what: Kind,
    /// Where, by the device's name of that time.
    pub path: String,
    /// What stood there before.
    pub old: Option<String>,
    /// What was to stand there.
    pub new: Option<String>,
    /// The device.
    pub device: Option<Device>,
    /// The other paths, before.
    pub side: Vec<Reading>,
    /// What stood there right after, unless the process died in between.
    pub after: Option<After>,
    /// An undo was begun and its end is not known.
    pub undo_begun: bool,
    /// How it was dealt with for good.
    pub undone: Option<Undone>,
}

/// What was read right after a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct After {
    /// The errno, when the write was refused.
    pub errno: Option<i32>,
    /// The path itself.
    pub read: Option<String>,
    /// The other paths.
    pub side: Vec<Reading>,
}

impl Standing {
    /// Whether it still has to be taken back.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.undone.is_none()
    }

    /// What is expected at one of its paths while it stands.
    fn value_at(&self, path: &str) -> Option<Option<&str>> {
        if path == self.path {
            return Some(self.after.as_ref().map_or(self.new.as_deref(), |after| after.read.as_deref()));
        }
        let known = self.after.as_ref().map_or(&self.side, |after| &after.side);
        known.iter().find(|reading| reading.path == path).map(|reading| reading.text.as_deref())
    }

    /// A name for one of its paths that outlives the device's name. A swap area and its space share a path.
    fn key(&self, path: &str) -> String {
        let area = if self.what == Kind::SwapArea { "swapped to: " } else { "" };
        match self.device.as_ref().and_then(|device| Some((device, device.rest(path)?))) {
            Some((device, rest)) => format!("{area}{}{rest}", device.id),
            None => format!("{area}{path}"),
        }
    }

    /// Leaves one of the other paths to itself.
    fn forget(&mut self, key: &str) {
        let is_other = |reading: &Reading, standing: &Standing| standing.key(&reading.path) != key;
        let kept: Vec<Reading> = self.side.iter().filter(|it| is_other(it, self)).cloned().collect();
        if kept.len() < self.side.len() {
            if let Some(after) = &mut self.after {
                after.side.retain(|reading| kept.iter().any(|kept| kept.path == reading.path));
            }
            self.side = kept;
        }
    }

    /// Takes in what stands at the other paths after an undo that was refused.
    fn left_at(&mut self, side: &[Reading]) {
        if side.is_empty() {
            return;
        }
        let (errno, read, known) = (None, self.new.clone(), self.side.clone());
        let after = self.after.get_or_insert(After { errno, read, side: known });
        for reading in &mut after.side {
            if let Some(now) = side.iter().find(|now| now.path == reading.path) {
                reading.text.clone_from(&now.text);
            }
        }
    }

    fn paths(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.path.as_str()).chain(self.side.iter().map(|reading| reading.path.as_str()))
    }

    fn changed_anything(&self) -> bool {
        let Some(after) = &self.after else { return true };
        let main = !same(self.what, after.read.as_deref(), self.old.as_deref());
        main || after
            .side
            .iter()
            .zip(&self.side)
            .any(|(now, before)| !same(self.what, now.text.as_deref(), before.text.as_deref()))
    }
}

/// A set of changes made together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// When.
    pub at: String,
    /// In which boot; none: the set's first line is lost.
    pub boot_id: Option<String>,
    /// On which host; none: the set's first line is lost.
    pub machine_id: Option<String>,
    /// Whether files make it stay over a reboot.
    pub persist: bool,
    /// What it is for, when it was not made by `tune`.
    pub purpose: Option<String>,
    /// Its changes, by number.
    pub changes: BTreeMap<u32, Standing>,
}

impl Set {
    /// Of a set whose first line is lost nothing is known but its changes.
    fn headless() -> Set {
        let (at, boot_id, machine_id) = (String::new(), None, None);
        Set { at, boot_id, machine_id, persist: false, purpose: None, changes: BTreeMap::new() }
    }

    /// Whether something of it still has to be taken back.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.changes.values().any(Standing::is_live)
    }
}

/// Everything the journal says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// The sets, by number.
    pub sets: BTreeMap<u64, Set>,
    /// What stood at a path before the first link of its chain.
    bases: BTreeMap<String, Option<String>>,
}

/// What undoing a change has to see to at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touch {
    /// Where, by the device's present name.
    pub path: String,
    /// The same by the device's name when it was changed.
    pub recorded: String,
    /// What is written to.
    pub what: Kind,
    /// What is to stand there afterwards.
    pub target: Option<String>,
    /// What stands there while nobody else has changed it.
    pub ours: Option<String>,
    /// A later set stands on it.
    pub is_covered: bool,
    /// Its value is the kernel's own doing, whatever it is: an undo was cut short.
    pub is_unsettled: bool,
    /// The same if its change was made: the process died before it could be read back.
    pub is_unfinished: bool,
}

impl State {
    /// Replays a journal. `boot_id` is the running boot: what an earlier one changed and nothing made stay is
    /// gone.
    #[must_use]
    pub fn replay(records: &[Record], boot_id: &str) -> State {
        let mut state = State::default();
        records.iter().for_each(|record| state.observe(record));
        state.boot(boot_id);
        state
    }

    /// The number of the next set.
    #[must_use]
    pub fn next_set(&self) -> u64 {
        self.sets.keys().next_back().map_or(1, |last| last + 1)
    }

    /// Takes one more record in.
    pub fn observe(&mut self, record: &Record) {
        match record {
            Record::Begin { set, at, boot_id, machine_id, persist, purpose, .. } => {
                self.boot(boot_id);
                self.sets.insert(
                    *set,
                    Set {
                        at: at.clone(),
                        boot_id: Some(boot_id.clone()),
                        machine_id: Some(machine_id.clone()),
                        persist: *persist,
                        purpose: purpose.clone(),
                        changes: BTreeMap::new(),
                    },
                );
            }
            Record::Intent { set, change, rule, class, what, path, old, new, device, side } => {
                let standing = Standing {
                    rule: rule.clone(),
                    class: class.clone(),
                    what: *what,
                    path: path.clone(),
                    old: old.clone(),
                    new: new.clone(),
                    device: device.clone(),
                    side: side.clone(),
                    after: None,
                    undo_begun: false,
                    undone: None,
                };
                self.begin(*set, *change, standing);
            }
            Record::Result { set, change, errno, read, side } => {
                if let Some(standing) = self.standing_mut(*set, *change) {
                    standing.after = Some(After { errno: *errno, read: read.clone(), side: side.clone() });
                    if !standing.changed_anything() {
                        standing.undone = Some(Undone::Already);
                    }
                }
            }
            Record::UndoIntent { set, change, .. } => {
                if let Some(standing) = self.standing_mut(*set, *change) {
                    standing.undo_begun = true;
                }
            }
            Record::UndoResult { set, change, outcome, side, .. } => {
                if let Some(standing) = self.standing_mut(*set, *change) {
                    standing.undone = outcome.is_final().then_some(*outcome);
                    // Its end is known: what somebody writes from now on is theirs.
                    standing.undo_begun = false;
                    standing.left_at(side);
                }
            }
        }
    }

    fn begin(&mut self, set: u64, change: u32, standing: Standing) {
        let before = std::iter::once((&standing.path, &standing.old))
            .chain(standing.side.iter().map(|reading| (&reading.path, &reading.text)));
        for (path, old) in before {
            let key = standing.key(path);
            if self.is_somebody_elses(&key, old.as_deref()) {
                self.cut(&key);
            }
            if self.links(&key).next().is_none() {
                self.bases.insert(key, old.clone());
            }
        }
        self.sets.entry(set).or_insert_with(Set::headless).changes.insert(change, standing);
    }

    /// Whether what was read before a change is neither what the topmost change of the chain left there nor
    /// what the kernel may have made of it while nobody was looking.
    fn is_somebody_elses(&self, key: &str, now: Option<&str>) -> bool {
        let Some(((set, change), left)) = self.links(key).next_back() else { return false };
        let Some(top) = self.standing(set, change) else { return false };
        let is_main = top.key(&top.path) == key;
        let what = if is_main { top.what } else { Kind::Attribute };
        if same(what, now, left) {
            return false;
        }
        if !is_main {
            return top.after.is_some() && !top.undo_begun;
        }
        // An undo that was cut short may have got as far as writing.
        let below = self.links(key).rev().nth(1).map(|(_, value)| value);
        let below = below.unwrap_or_else(|| self.bases.get(key).and_then(Option::as_deref));
        !(top.undo_begun && same(what, now, below))
    }

    /// Ends a chain: somebody else's value stands on it, which is what there is to go back to from now on.
    fn cut(&mut self, key: &str) {
        let standings = self.sets.values_mut().flat_map(|set| set.changes.values_mut());
        for standing in standings.filter(|standing| standing.is_live()) {
            if standing.key(&standing.path) == key {
                standing.undone = Some(Undone::Drift);
            } else {
                standing.forget(key);
            }
        }
    }

    /// Another boot: attributes are as the kernel made them, unless our files set them again; no area is on.
    fn boot(&mut self, boot_id: &str) {
        let is_over = |set: &&mut Set| set.boot_id.as_deref().is_some_and(|of_set| of_set != boot_id);
        for set in self.sets.values_mut().filter(is_over).filter(|set| !set.persist) {
            let gone = set
                .changes
                .values_mut()
                .filter(|standing| standing.what.ends_with_boot() && standing.is_live());
            gone.for_each(|standing| standing.undone = Some(Undone::Rebooted));
        }
    }

    fn standing_mut(&mut self, set: u64, change: u32) -> Option<&mut Standing> {
        self.sets.get_mut(&set)?.changes.get_mut(&change)
    }

    /// A change.
    #[must_use]
    pub fn standing(&self, set: u64, change: u32) -> Option<&Standing> {
        self.sets.get(&set)?.changes.get(&change)
    }

    /// The links of a chain, lowest first: who, and what is expected there while it is the topmost.
    fn links<'a>(
        &'a self,
        key: &'a str,
    ) -> impl DoubleEndedIterator<Item = ((u64, u32), Option<&'a str>)> + 'a {
        self.sets.iter().flat_map(move |(&set, content)| {
            content.changes.iter().filter(|(_, standing)| standing.is_live()).filter_map(
                move |(&change, standing)| {
                    let path = standing.paths().find(|path| standing.key(path) == key)?;
                    Some(((set, change), standing.value_at(path)?))
                },
            )
        })
    }

    /// What undoing a change has to see to: its own path first. `folder` is where its device is now.
    #[must_use]
    pub fn touches(&self, set: u64, change: u32, folder: Option<&str>) -> Vec<Touch> {
        let Some(standing) = self.standing(set, change) else { return Vec::new() };
        let touch = |path: &str| {
            let key = standing.key(path);
            let rest: Vec<_> = self.links(&key).filter(|(owner, _)| *owner != (set, change)).collect();
            let top = rest.iter().next_back();
            let is_covered = top.is_some_and(|(owner, _)| *owner > (set, change));
            let base = || self.bases.get(&key).cloned().flatten();
            let target = top.map_or_else(base, |(_, value)| value.map(str::to_owned));
            let ours = if is_covered {
                target.clone()
            } else {
                standing.value_at(path).flatten().map(str::to_owned)
            };
            Touch {
                recorded: path.to_owned(),
                path: renamed(path, standing.device.as_ref(), folder),
                what: standing.what,
                target,
                ours,
                is_covered,
                is_unsettled: path != standing.path && standing.undo_begun,
                is_unfinished: path != standing.path && standing.after.is_none(),
            }
        };
        standing.paths().map(touch).collect()
    }
}

/// The path by the device's present name.
fn renamed(path: &str, device: Option<&Device>, folder: Option<&str>) -> String {
    match (device, folder) {
        (Some(device), Some(folder)) => device.renamed(path, folder),
        _ => path.to_owned(),
    }
}
