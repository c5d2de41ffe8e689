//! The steps of one change and of one undo, as state machines: an event in, the next action out, no I/O.

use super::journal::{Reading, Record, Undone};
use super::state::Touch;
use super::{Change, Kind, same, side_effects};

/// What came of reading a path: its text, nothing there, or an errno.
pub type Answer = Result<Option<String>, i32>;

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action<O> {
    /// Read these paths, the first as what it is; the others are always attributes.
    Read(Kind, Vec<String>),
    /// Append to the journal; on failure nothing further may be done.
    Append(Record),
    /// Write these, in order, whatever becomes of each.
    Write(Kind, Vec<Reading>),
    /// All is done.
    Done(O),
}

/// What the last action brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The machine starts.
    Start,
    /// The answers of a read, in order.
    Read(Vec<Answer>),
    /// The record is on stable storage.
    Appended,
    /// The answers of writes, in order.
    Written(Vec<Result<(), i32>>),
}

/// How applying a change ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// It stands, as read back.
    Done(Option<String>),
    /// It stood already.
    Already,
    /// The path says something else than the plan saw: the plan is stale, nothing was written.
    Stale(String),
    /// The path cannot be read any more.
    Unreadable(i32),
    /// The kernel refused the write.
    Refused(i32),
    /// The write went through and the path reads differently.
    Differs(String),
    /// The journal takes no more: nothing was written.
    Unjournaled(i32),
}

impl Applied {
    /// Whether the host is as the change wants it.
    #[must_use]
    pub fn is_good(&self) -> bool {
        matches!(self, Applied::Done(_) | Applied::Already)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Start,
    Look,
    Intent,
    Write,
    Check,
    Result,
}

/// Applies one change: look, intent, write, read back, result.
#[derive(Debug)]
pub struct Apply<'a> {
    change: &'a Change,
    set: u64,
    number: u32,
    /// An earlier change of the same set may have moved this path along.
    may_have_moved: bool,
    step: Step,
    old: Option<String>,
    side: Vec<Reading>,
    errno: Option<i32>,
    outcome: Option<Applied>,
}

impl<'a> Apply<'a> {
    /// Change `number` of `set`.
    #[must_use]
    pub fn new(change: &'a Change, set: u64, number: u32, may_have_moved: bool) -> Self {
        let (old, side, errno, outcome) = (None, Vec::new(), None, None);
        Apply { change, set, number, may_have_moved, step: Step::Start, old, side, errno, outcome }
    }

    /// The next action.
    pub fn next(&mut self, event: Event) -> Action<Applied> {
        match (self.step, event) {
            (Step::Start, _) => self.go(Step::Look, Action::Read(self.kind(), self.paths())),
            (Step::Look, Event::Read(answers)) => self.looked(answers),
            (Step::Intent, _) => {
                let write = Reading { path: self.change.path.clone(), text: self.change.new.clone() };
                self.go(Step::Write, Action::Write(self.change.kind, vec![write]))
            }
            (Step::Write, Event::Written(answers)) => {
                self.errno = answers.first().and_then(|answer| answer.err());
                self.go(Step::Check, Action::Read(self.kind(), self.paths()))
            }
            (Step::Check, Event::Read(answers)) => self.checked(&answers),
            _ => Action::Done(self.outcome.clone().unwrap_or(Applied::Already)),
        }
    }

    /// How it ended when the journal takes no more: what was written and read back stands, although its
    /// result is not written down.
    #[must_use]
    pub fn unjournaled(self, errno: i32) -> Applied {
        self.outcome.unwrap_or(Applied::Unjournaled(errno))
    }

    fn go(&mut self, step: Step, action: Action<Applied>) -> Action<Applied> {
        self.step = step;
        action
    }

    fn kind(&self) -> Kind {
        self.change.kind
    }

    fn paths(&self) -> Vec<String> {
        let mut paths = vec![self.change.path.clone()];
        paths.extend(side_effects(&self.change.path));
        paths
    }

    fn looked(&mut self, answers: Vec<Answer>) -> Action<Applied> {
        let mut answers = answers.into_iter();
        let now = match answers.next().unwrap_or(Ok(None)) {
            Ok(now) => now,
            Err(errno) => return Action::Done(Applied::Unreadable(errno)),
        };
        let Change { kind, new, old, .. } = self.change;
        if same(*kind, now.as_deref(), new.as_deref()) {
            return Action::Done(Applied::Already);
        }
        if !self.may_have_moved && !same(*kind, now.as_deref(), old.as_deref()) {
            return Action::Done(Applied::Stale(now.unwrap_or_default()));
        }
        let side = side_effects(&self.change.path).into_iter().zip(answers);
        self.side =
            side.filter_map(|(path, answer)| Some(Reading { path, text: Some(answer.ok()??) })).collect();
        self.old = now;
        let intent = Record::Intent {
            set: self.set,
            change: self.number,
            rule: self.change.rule.clone(),
            class: self.change.class.clone(),
            what: *kind,
            path: self.change.path.clone(),
            old: self.old.clone(),
            new: new.clone(),
            device: self.change.device.clone(),
            side: self.side.clone(),
        };
        self.go(Step::Intent, Action::Append(intent))
    }

    fn checked(&mut self, answers: &[Answer]) -> Action<Applied> {
        // What cannot be read any more is written down as it was: an undo then sees the difference, if any.
        let read = match answers.first() {
            Some(Ok(read)) => read.clone(),
            _ if self.errno.is_some() => self.old.clone(),
            _ => self.change.new.clone(),
        };
        let paths = side_effects(&self.change.path);
        let side = self.side.iter().map(|before| {
            let at = paths.iter().position(|path| *path == before.path);
            let now = at.and_then(|at| answers.get(at + 1)).and_then(|answer| answer.clone().ok());
            Reading { path: before.path.clone(), text: now.unwrap_or_else(|| before.text.clone()) }
        });
        let is_as_wanted = same(self.change.kind, read.as_deref(), self.change.new.as_deref());
        self.outcome = Some(match self.errno {
            Some(errno) => Applied::Refused(errno),
            None if is_as_wanted => Applied::Done(read.clone()),
            None => Applied::Differs(read.clone().unwrap_or_default()),
        });
        let result = Record::Result {
            set: self.set,
            change: self.number,
            errno: self.errno,
            read,
            side: side.collect(),
        };
        self.go(Step::Result, Action::Append(result))
    }
}

/// How undoing a change ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reverted {
    /// In a word.
    pub outcome: Undone,
    /// What stands at the path now.
    pub read: Option<String>,
    /// The errno, when the kernel refused.
    pub errno: Option<i32>,
}

/// Undoes one change: look, intent, write, read back (once more if the kernel moved something), result.
#[derive(Debug)]
pub struct Undo {
    set: u64,
    number: u32,
    touches: Vec<Touch>,
    step: Step,
    /// Which touches are for us to mend.
    mendable: Vec<bool>,
    writes: Vec<Reading>,
    /// What a refused undo leaves at the other paths.
    side: Vec<Reading>,
    passes: u32,
    errno: Option<i32>,
    outcome: Option<Reverted>,
}

/// Writing one value may move another (a scheduler resets its queue), so the rest is written after it.
const PASSES_MAX: u32 = 3;

impl Undo {
    /// Undoes change `number` of `set`; `touches` is what the state says of it, its own path first.
    #[must_use]
    pub fn new(set: u64, number: u32, touches: Vec<Touch>) -> Self {
        Undo {
            set,
            number,
            touches,
            step: Step::Start,
            mendable: Vec::new(),
            writes: Vec::new(),
            side: Vec::new(),
            passes: 0,
            errno: None,
            outcome: None,
        }
    }

    /// The next action.
    pub fn next(&mut self, event: Event) -> Action<Reverted> {
        match (self.step, event) {
            (Step::Start, _) => {
                self.step = Step::Look;
                Action::Read(self.kind(), self.paths())
            }
            (Step::Look, Event::Read(answers)) => self.looked(&answers),
            (Step::Intent, _) => self.write(),
            (Step::Write, Event::Written(answers)) => {
                self.errno = answers.iter().find_map(|answer| answer.err());
                self.step = Step::Check;
                Action::Read(self.kind(), self.paths())
            }
            (Step::Check, Event::Read(answers)) => self.checked(&answers),
            (_, _) => Action::Done(self.outcome.clone().unwrap_or(Reverted {
                outcome: Undone::Already,
                read: None,
                errno: None,
            })),
        }
    }

    /// How it ended when the journal takes no more; none: nothing was written.
    #[must_use]
    pub fn unjournaled(self) -> Option<Reverted> {
        self.outcome
    }

    fn paths(&self) -> Vec<String> {
        self.touches.iter().map(|touch| touch.path.clone()).collect()
    }

    fn kind(&self) -> Kind {
        self.touches.first().map_or(Kind::Attribute, |touch| touch.what)
    }

    /// What has to be written, given what stands there.
    fn missing(&self, answers: &[Answer]) -> Vec<Reading> {
        let rows = self.touches.iter().zip(&self.mendable).zip(answers);
        rows.filter(|((touch, mendable), answer)| {
            **mendable && !stands(touch, answer, touch.target.as_deref())
        })
        .map(|((touch, _), _)| Reading { path: touch.path.clone(), text: written(touch) })
        .collect()
    }

    fn looked(&mut self, answers: &[Answer]) -> Action<Reverted> {
        let Some((main, answer)) = self.touches.first().zip(answers.first()) else {
            return Action::Done(Reverted { outcome: Undone::Already, read: None, errno: None });
        };
        let now = match answer {
            Ok(now) => now.clone(),
            Err(errno) => return self.finish(Undone::Refused, None, Some(*errno)),
        };
        let is_back = stands(main, answer, main.target.as_deref());
        let is_ours = stands(main, answer, main.ours.as_deref());
        if main.is_covered {
            return self.finish(Undone::Covered, now, None);
        }
        // A processor that is offline, a module that is not loaded: it may come back as it was.
        if now.is_none() && main.what == Kind::Attribute && main.target.is_some() {
            return self.finish(Undone::Gone, now, None);
        }
        if !is_back && !is_ours {
            return self.finish(Undone::Drift, now, None);
        }
        let mendable = self.touches.iter().zip(answers).map(|(touch, answer)| {
            let known = stands(touch, answer, touch.target.as_deref())
                || stands(touch, answer, touch.ours.as_deref());
            known || touch.is_unsettled || (touch.is_unfinished && !is_back)
        });
        self.mendable = mendable.collect();
        self.writes = self.missing(answers);
        if self.writes.is_empty() {
            return self.finish(Undone::Already, now, None);
        }
        self.step = Step::Intent;
        let writes = self.writes.clone();
        Action::Append(Record::UndoIntent { set: self.set, change: self.number, writes })
    }

    fn write(&mut self) -> Action<Reverted> {
        self.step = Step::Write;
        self.passes += 1;
        Action::Write(self.kind(), self.writes.clone())
    }

    fn checked(&mut self, answers: &[Answer]) -> Action<Reverted> {
        self.writes = self.missing(answers);
        let read = answers.first().and_then(|answer| answer.clone().ok()).flatten();
        if self.writes.is_empty() {
            return self.finish(Undone::Restored, read, None);
        }
        if self.passes < PASSES_MAX {
            return self.write();
        }
        let others = self.touches.iter().zip(answers).skip(1);
        let left = others.filter_map(|(touch, answer)| {
            Some(Reading { path: touch.recorded.clone(), text: Some(answer.clone().ok()??) })
        });
        self.side = left.collect();
        self.finish(Undone::Refused, read, self.errno)
    }

    fn finish(&mut self, outcome: Undone, read: Option<String>, errno: Option<i32>) -> Action<Reverted> {
        self.step = Step::Result;
        self.outcome = Some(Reverted { outcome, read: read.clone(), errno });
        let (set, change, side) = (self.set, self.number, std::mem::take(&mut self.side));
        Action::Append(Record::UndoResult { set, change, outcome, read, side })
    }
}

fn stands(touch: &Touch, answer: &Answer, text: Option<&str>) -> bool {
    answer.as_ref().is_ok_and(|now| same(touch.what, now.as_deref(), text))
}

/// The text that brings a value back.
fn written(touch: &Touch) -> Option<String> {
    match touch.what {
        Kind::Attribute => touch.target.as_deref().map(|text| super::meaning(text).to_owned()),
        Kind::File | Kind::SwapSpace | Kind::SwapArea => touch.target.clone(),
    }
}
