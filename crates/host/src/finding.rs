//! A rule, what it says of one host, and the parts both are made of.
//!
//! Data only: judging stands in `rules`, showing in the report, applying in a later part of this crate.

use crate::facts::{Fact, HostFacts};
use crate::target::TargetFacts;
use std::fmt::Debug;

/// Which part of the system a rule looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Scope {
    Host,
    Cpu,
    Irq,
    Nvme,
    Block,
    Pcie,
    Numa,
    Vm,
    Swap,
    Cgroup,
    Boot,
    Power,
    Firmware,
    Space,
}

impl Scope {
    /// The word used in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scope::Host => "host",
            Scope::Cpu => "cpu",
            Scope::Irq => "irq",
            Scope::Nvme => "nvme",
            Scope::Block => "block",
            Scope::Pcie => "pcie",
            Scope::Numa => "numa",
            Scope::Vm => "vm",
            Scope::Swap => "swap",
            Scope::Cgroup => "cgroup",
            Scope::Boot => "boot",
            Scope::Power => "power",
            Scope::Firmware => "firmware",
            Scope::Space => "space",
        }
    }
}

/// For which use of the disk a rule counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Files and block devices, low latency.
    Storage,
    /// Swap and memory extension.
    Memory,
    /// Both.
    Any,
}

impl Profile {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Profile::Storage => "storage",
            Profile::Memory => "memory",
            Profile::Any => "any",
        }
    }

    /// Whether a rule of this profile counts for the use asked about.
    #[must_use]
    pub fn counts_for(self, wanted: Profile) -> bool {
        self == wanted || self == Profile::Any || wanted == Profile::Any
    }
}

/// What the fix of a rule may break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Risk {
    /// A: safe to apply; at worst power or comfort.
    Safe,
    /// B: has side effects; ask first.
    SideEffects,
    /// C: destructive, or touches security or hardware; only ever advised.
    AdviceOnly,
}

impl Risk {
    /// The letter of the class.
    #[must_use]
    pub fn letter(self) -> &'static str {
        match self {
            Risk::Safe => "A",
            Risk::SideEffects => "B",
            Risk::AdviceOnly => "C",
        }
    }
}

/// How things stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// As it should be.
    Ok,
    /// Could be better for this use.
    Advice,
    /// Wrong for any fast disk.
    Problem,
    /// Cannot be told, for a reason given.
    Unknown,
    /// Does not concern this host or target, for a reason given.
    NotApplicable,
}

impl Status {
    /// The word used in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Advice => "advice",
            Status::Problem => "problem",
            Status::Unknown => "unknown",
            Status::NotApplicable => "n/a",
        }
    }

    /// Which of two counts for both: the one that asks for more attention.
    fn weight(self) -> u8 {
        match self {
            Status::NotApplicable => 0,
            Status::Ok => 1,
            Status::Unknown => 2,
            Status::Advice => 3,
            Status::Problem => 4,
        }
    }
}

/// One thing that was read and what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// Where.
    pub path: String,
    /// The text, or why there is none.
    pub read: String,
}

/// How to change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fix {
    /// A command that works at once; empty when nothing short of a reboot or a screwdriver does.
    pub now: String,
    /// How to make it stay; empty when there is nothing to keep.
    pub persistent: String,
}

/// One rule.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Stable name.
    pub id: &'static str,
    /// Part of the system.
    pub scope: Scope,
    /// Use for which it counts.
    pub profile: Profile,
    /// What it asks, in a few words.
    pub title: &'static str,
    /// Why it matters.
    pub why: &'static str,
    /// Where that is written.
    pub source: &'static str,
    /// What can be expected of a fix, where it is not computed from the host.
    pub effect: &'static str,
    /// What a fix may break.
    pub risk: Risk,
    /// Whether the claim was checked in kernel source, on a live system or in a guide; if not, it is memory.
    pub verified: bool,
    /// What it says of a host and a target.
    pub judge: fn(&HostFacts, &TargetFacts) -> Judgement,
}

impl Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rule").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Rule {
    /// Judges a host and a target for one use; a rule for another use only is not applicable.
    #[must_use]
    pub fn apply(&self, host: &HostFacts, target: &TargetFacts, wanted: Profile) -> Finding {
        let judgement = match self.profile.counts_for(wanted) {
            true => (self.judge)(host, target),
            false => {
                Judgement::not_applicable(format!("counts for the {} profile only", self.profile.name()))
            }
        };
        Finding {
            rule: self.id,
            scope: self.scope,
            title: self.title,
            status: judgement.status,
            evidence: judgement.evidence,
            reason: judgement.reason,
            why: self.why,
            source: self.source,
            effect: judgement.effect.unwrap_or_else(|| self.effect.to_owned()),
            fix: judgement.fix,
            undo: judgement.undo,
            risk: self.risk,
            verified: self.verified,
        }
    }
}

/// What a rule found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule's stable name.
    pub rule: &'static str,
    /// Part of the system.
    pub scope: Scope,
    /// What the rule asks.
    pub title: &'static str,
    /// How things stand.
    pub status: Status,
    /// What was read.
    pub evidence: Vec<Evidence>,
    /// Why the status is what it is, on this host.
    pub reason: String,
    /// Why the rule matters anywhere.
    pub why: &'static str,
    /// Where that is written.
    pub source: &'static str,
    /// What a fix would bring, computed from this host where possible.
    pub effect: String,
    /// How to change it, when something should and can be changed.
    pub fix: Option<Fix>,
    /// How to take the fix back to what was found here.
    pub undo: Option<String>,
    /// What the fix may break.
    pub risk: Risk,
    /// Whether the rule's claim was checked; shown as "unverified" if not.
    pub verified: bool,
}

/// A rule's answer before it is joined with the rule's own words.
#[derive(Debug, Clone)]
pub struct Judgement {
    status: Status,
    reason: String,
    evidence: Vec<Evidence>,
    effect: Option<String>,
    fix: Option<Fix>,
    undo: Option<String>,
}

impl Judgement {
    fn new(status: Status, reason: impl Into<String>) -> Judgement {
        Judgement { status, reason: reason.into(), evidence: Vec::new(), effect: None, fix: None, undo: None }
    }

    pub(crate) fn ok(reason: impl Into<String>) -> Judgement {
        Judgement::new(Status::Ok, reason)
    }

    pub(crate) fn advice(reason: impl Into<String>) -> Judgement {
        Judgement::new(Status::Advice, reason)
    }

    pub(crate) fn problem(reason: impl Into<String>) -> Judgement {
        Judgement::new(Status::Problem, reason)
    }

    pub(crate) fn unknown(reason: impl Into<String>) -> Judgement {
        Judgement::new(Status::Unknown, reason)
    }

    pub(crate) fn not_applicable(reason: impl Into<String>) -> Judgement {
        Judgement::new(Status::NotApplicable, reason)
    }

    /// Whether nothing is to be done.
    pub(crate) fn is_fine(&self) -> bool {
        matches!(self.status, Status::Ok | Status::NotApplicable)
    }

    /// Unknown, because a fact could not be had; the fact is the evidence.
    pub(crate) fn missing<T>(fact: &Fact<T>) -> Judgement {
        let why = fact.why().unwrap_or_default();
        // EPERM, EACCES: what everybody may read is judged without root, and the rest says what it lacks.
        let lacks = if matches!(fact.errno(), Some(1 | 13)) { "; needs root" } else { "" };
        Judgement::unknown(format!("{}: {why}{lacks}", fact.path())).seen(fact)
    }

    /// Adds a fact as evidence, with its text as read.
    pub(crate) fn seen<T>(mut self, fact: &Fact<T>) -> Judgement {
        const READ_MAX: usize = 200;
        let text = match fact {
            Fact::Known { raw, .. } => raw.trim().replace('\n', " | "),
            other => other.why().unwrap_or_default(),
        };
        let mut read: String = text.chars().take(READ_MAX).collect();
        if read.len() < text.len() {
            read.push_str(" ...");
        }
        self.evidence.push(Evidence { path: fact.path().to_owned(), read });
        self
    }

    /// Replaces the rule's general effect by one computed here.
    pub(crate) fn effect(mut self, text: impl Into<String>) -> Judgement {
        self.effect = Some(text.into());
        self
    }

    /// Says how to change it; a fix that says nothing is none.
    pub(crate) fn fix(mut self, now: impl Into<String>, persistent: impl Into<String>) -> Judgement {
        let fix = Fix { now: now.into(), persistent: persistent.into() };
        self.fix = (!fix.now.is_empty() || !fix.persistent.is_empty()).then_some(fix);
        self
    }

    pub(crate) fn undo(mut self, text: impl Into<String>) -> Judgement {
        self.undo = Some(text.into());
        self
    }

    /// Joins the answers for several disks into one: the gravest status, every reason by name, all evidence,
    /// every fix.
    pub(crate) fn join(parts: Vec<(&str, Judgement)>) -> Option<Judgement> {
        let is_alone = parts.len() == 1;
        let join_text = |texts: Vec<String>, with: &str| (!texts.is_empty()).then(|| texts.join(with));
        let status = parts.iter().map(|(_, part)| part.status).max_by_key(|status| status.weight())?;
        if is_alone {
            return parts.into_iter().next().map(|(_, part)| part);
        }
        let reasons = parts.iter().map(|(name, part)| format!("{name}: {}", part.reason)).collect();
        let effects =
            parts.iter().filter_map(|(name, part)| Some(format!("{name}: {}", part.effect.as_ref()?)));
        let undos = parts.iter().filter_map(|(_, part)| part.undo.clone());
        let fixes: Vec<&Fix> = parts.iter().filter_map(|(_, part)| part.fix.as_ref()).collect();
        let gather = |pick: fn(&Fix) -> &String| {
            let mut texts: Vec<String> =
                fixes.iter().map(|fix| pick(fix).clone()).filter(|text| !text.is_empty()).collect();
            texts.dedup();
            texts.join("; ")
        };
        Some(Judgement {
            status,
            reason: join_text(reasons, "; ").unwrap_or_default(),
            effect: join_text(effects.collect(), "; "),
            undo: join_text(undos.collect(), "; "),
            fix: (!fixes.is_empty())
                .then(|| Fix { now: gather(|fix| &fix.now), persistent: gather(|fix| &fix.persistent) }),
            evidence: parts.into_iter().flat_map(|(_, part)| part.evidence).collect(),
        })
    }
}
