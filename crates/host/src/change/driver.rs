//! Drives the machines on a system: performs their actions and keeps the journal in step.

use super::journal::{self, Damage, Journal, Reading, Record, Undone};
use super::machine::{Action, Applied, Apply, Event, Reverted, Undo};
use super::state::State;
use super::system::System;
use super::{Change, Kind, side_effects};
use crate::facts::describe_errno;
use crate::finding::Risk;
use thiserror::Error;

/// Why nothing, or nothing more, was changed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum DriveError {
    /// The journal cannot be read.
    #[error("the journal cannot be read: {}; nothing was changed", describe_errno(*.0))]
    Read(i32),
    /// The journal cannot be written: the next write would not be known to undo.
    #[error("the journal cannot be written: {}{}; nothing was changed from there on", describe_errno(*.0), room(*.0))]
    Write(i32),
    /// Lines of the journal are damaged.
    #[error("the journal is damaged ({0}); undo what it still knows before anything new is applied")]
    Damaged(Damage),
    /// The journal's file holds something else.
    #[error(
        "journal.jsonl holds no journal of Overdrive's; wanted its own file or none; nothing was changed"
    )]
    NoJournal,
    /// A set of another host.
    #[error("set {0} was made on another host (machine-id differs); wanted the journal of this one")]
    Foreign(u64),
    /// No such set.
    #[error("there is no set {0} in the journal; wanted one that overdrive tune status lists")]
    NoSet(u64),
    /// A change that must not be made.
    #[error("{path}: not written to: {why}")]
    Forbidden {
        /// Where.
        path: String,
        /// Why.
        why: &'static str,
    },
}

/// What to do about a journal that cannot be written.
fn room(errno: i32) -> &'static str {
    const ENOSPC: i32 = 28;
    const EDQUOT: i32 = 122;
    if matches!(errno, ENOSPC | EDQUOT) {
        ": make room for it, also for undo, which is journaled too"
    } else {
        ""
    }
}

/// Who changes what, when: the head of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occasion {
    /// Now, RFC 3339.
    pub at: String,
    /// The running boot.
    pub boot_id: String,
    /// This host.
    pub machine_id: String,
    /// The program's version.
    pub version: String,
}

/// A system with its journal read.
pub struct Driver<'a> {
    system: &'a mut dyn System,
    occasion: Occasion,
    purpose: Option<String>,
    journal: Journal,
    state: State,
    aside: Option<String>,
    cut_short: Option<(u64, Vec<Applied>)>,
    undone_so_far: Vec<Reversal>,
}

impl std::fmt::Debug for Driver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("state", &self.state).finish_non_exhaustive()
    }
}

/// A change of a set and what became of undoing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reversal {
    /// Its number within the set.
    pub number: u32,
    /// What was written to.
    pub kind: Kind,
    /// Its path.
    pub path: String,
    /// What was to be restored.
    pub target: Option<String>,
    /// What became of it.
    pub reverted: Reverted,
}

impl<'a> Driver<'a> {
    /// Reads the journal of a system.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn new(system: &'a mut dyn System, occasion: Occasion) -> Result<Driver<'a>, DriveError> {
        let journal = journal::read(&system.journal().map_err(DriveError::Read)?);
        if journal.is_foreign {
            return Err(DriveError::NoJournal);
        }
        let state = State::replay(&journal.records, &occasion.boot_id);
        let (purpose, aside, cut_short, undone_so_far) = (None, None, None, Vec::new());
        Ok(Driver { system, occasion, purpose, journal, state, aside, cut_short, undone_so_far })
    }

    /// Writes down what the next sets are for, so that whoever asked for one finds it however early it ended.
    #[must_use]
    pub fn with_purpose(mut self, purpose: &str) -> Self {
        self.purpose = Some(purpose.to_owned());
        self
    }

    /// What the journal says.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Lines that cannot be relied on.
    #[must_use]
    pub fn damage(&self) -> &[Damage] {
        &self.journal.damage
    }

    /// Applies changes as one set, in their order, and says what became of each. A refused one does not stop
    /// the others; a journal that takes no more does.
    ///
    /// # Errors
    /// When the journal is damaged and something stands, or it is another host's, or it cannot be written, or
    /// a change may not be made at all.
    pub fn apply(&mut self, changes: &[Change]) -> Result<(u64, Vec<Applied>), DriveError> {
        changes.iter().try_for_each(permitted)?;
        let live: Vec<u64> =
            self.state.sets.iter().filter(|(_, set)| set.is_live()).map(|(&number, _)| number).collect();
        live.iter().try_for_each(|&set| self.check_host(set))?;
        if let Some(damage) = self.journal.damage.first() {
            // What a later version wrote may stand although nobody here knows of it.
            if !live.is_empty() || self.journal.is_newer {
                return Err(DriveError::Damaged(damage.clone()));
            }
            self.aside = Some(self.system.set_aside().map_err(DriveError::Write)?);
            self.journal = journal::read(b"");
        }
        let set = self.state.next_set();
        let persist = changes.iter().any(|change| change.kind == Kind::File);
        let Occasion { at, boot_id, machine_id, version } = self.occasion.clone();
        let purpose = self.purpose.clone();
        let begin = Record::Begin { set, at, boot_id, machine_id, version, persist, purpose };
        self.append(&begin).map_err(DriveError::Write)?;
        let mut moved: Vec<String> = Vec::new();
        let mut outcomes = Vec::new();
        for (number, change) in (1..).zip(changes) {
            let mut machine = Apply::new(change, set, number, moved.contains(&change.path));
            match self.drive(|event| machine.next(event)) {
                Ok(outcome) => outcomes.push(outcome),
                Err(errno) => {
                    outcomes.push(machine.unjournaled(errno));
                    outcomes.resize(changes.len(), Applied::Unjournaled(errno));
                    self.cut_short = Some((set, outcomes));
                    return Err(DriveError::Write(errno));
                }
            }
            moved.extend(side_effects(&change.path));
        }
        Ok((set, outcomes))
    }

    /// The set in whose middle the journal took no more, and what became of each of its changes.
    pub fn take_cut_short(&mut self) -> Option<(u64, Vec<Applied>)> {
        self.cut_short.take()
    }

    /// Under which name a damaged journal was set aside, when the last of its changes had been taken back.
    #[must_use]
    pub fn set_aside(&self) -> Option<&str> {
        self.aside.as_deref()
    }

    /// Whether a set was made on this host, as far as is known.
    ///
    /// # Errors
    /// When it was made on another one.
    pub fn check_host(&self, set: u64) -> Result<(), DriveError> {
        let made_on = self.state.sets.get(&set).and_then(|content| content.machine_id.as_ref());
        match made_on.is_none_or(|host| *host == self.occasion.machine_id) {
            true => Ok(()),
            false => Err(DriveError::Foreign(set)),
        }
    }

    /// Takes a set back, last change first. What was changed for a swap area that does not go stays as well.
    ///
    /// # Errors
    /// When there is no such set, it was made on another host, or the journal cannot be written.
    pub fn undo(&mut self, set: u64) -> Result<Vec<Reversal>, DriveError> {
        self.check_host(set)?;
        let content = self.state.sets.get(&set).ok_or(DriveError::NoSet(set))?;
        let live = content.changes.iter().filter(|(_, standing)| standing.is_live());
        let numbers: Vec<u32> = live.map(|(&number, _)| number).rev().collect();
        self.undone_so_far.clear();
        for number in numbers {
            let is_area = self.state.standing(set, number).is_some_and(|it| it.what == Kind::SwapArea);
            self.undo_one(set, number)?;
            let last = self.undone_so_far.last().filter(|reversal| reversal.number == number);
            if is_area && last.is_some_and(|reversal| reversal.reverted.outcome == Undone::Refused) {
                break;
            }
        }
        Ok(std::mem::take(&mut self.undone_so_far))
    }

    /// What became of the changes of the set in whose undoing the journal took no more.
    pub fn take_undone_so_far(&mut self) -> Vec<Reversal> {
        std::mem::take(&mut self.undone_so_far)
    }

    fn undo_one(&mut self, set: u64, number: u32) -> Result<(), DriveError> {
        let Some(standing) = self.state.standing(set, number) else { return Ok(()) };
        let (kind, path) = (standing.what, standing.path.clone());
        let folder = match standing.device.clone() {
            None => None,
            Some(device) => match self.system.locate(&device) {
                Some(folder) => Some(folder),
                None => {
                    let reverted = Reverted { outcome: Undone::Gone, read: None, errno: None };
                    self.undone_so_far.push(Reversal { number, kind, path, target: None, reverted });
                    return Ok(());
                }
            },
        };
        let touches = self.state.touches(set, number, folder.as_deref());
        let (path, target) =
            touches.first().map_or((path, None), |touch| (touch.path.clone(), touch.target.clone()));
        let mut machine = Undo::new(set, number, touches);
        let ended = self.drive(|event| machine.next(event));
        // What was written back and read so is back, even if the journal does not take its result.
        let reverted = ended.as_ref().ok().cloned().or_else(|| machine.unjournaled());
        let reversal = reverted.map(|reverted| Reversal { number, kind, path, target, reverted });
        self.undone_so_far.extend(reversal);
        ended.map(drop).map_err(DriveError::Write)
    }

    /// What a path reads now, by the present name of its device; none when the device is gone.
    pub fn reading(&mut self, set: u64, number: u32) -> Option<(String, super::machine::Answer)> {
        let standing = self.state.standing(set, number)?;
        let folder = match standing.device.clone() {
            Some(device) => Some(self.system.locate(&device)?),
            None => None,
        };
        let path = self.state.touches(set, number, folder.as_deref()).first()?.path.clone();
        let answer = self.system.read(standing.what, &path);
        Some((path, answer))
    }

    /// Performs a machine's actions to its end, or up to the errno of a journal that takes no more.
    fn drive<O>(&mut self, mut next: impl FnMut(Event) -> Action<O>) -> Result<O, i32> {
        let mut event = Event::Start;
        loop {
            event = match next(event) {
                Action::Read(kind, paths) => {
                    let kinds = std::iter::once(kind).chain(std::iter::repeat(Kind::Attribute));
                    let answers = paths.iter().zip(kinds).map(|(path, kind)| self.system.read(kind, path));
                    Event::Read(answers.collect())
                }
                Action::Append(record) => {
                    self.append(&record)?;
                    Event::Appended
                }
                Action::Write(kind, writes) => {
                    let write =
                        |Reading { path, text }: &Reading| self.system.write(kind, path, text.as_deref());
                    Event::Written(writes.iter().map(write).collect())
                }
                Action::Done(outcome) => return Ok(outcome),
            };
        }
    }

    fn append(&mut self, record: &Record) -> Result<(), i32> {
        const EIO: i32 = 5;
        let line = journal::encode(self.journal.next_seq, record).map_err(|_| EIO)?;
        self.system.append(self.journal.end, &line)?;
        self.journal.end += line.len() as u64;
        self.journal.next_seq += 1;
        self.state.observe(record);
        Ok(())
    }
}

fn permitted(change: &Change) -> Result<(), DriveError> {
    let forbid = |why| Err(DriveError::Forbidden { path: change.path.clone(), why });
    if change.class == Risk::AdviceOnly.letter() {
        return forbid("its class is C, which is only ever advised");
    }
    if !super::may_write(change.kind, &change.path) {
        return forbid(
            "it is neither an attribute that a rule is about nor a file of Overdrive's own nor swap space",
        );
    }
    Ok(())
}
