//! What most rules share: fetch one setting or say why not, and offer one write with its undo.

use crate::facts::{Fact, HostFacts};
use crate::finding::Judgement;
use std::str::FromStr;

/// A judgement, or the one that ends the question early.
pub(super) type Verdict = Result<Judgement, Box<Judgement>>;

/// Either way it is the answer.
pub(super) fn settle(verdict: Verdict) -> Judgement {
    verdict.unwrap_or_else(|early| *early)
}

/// Ends the question: it does not concern this host.
pub(super) fn leave<T>(reason: impl Into<String>) -> Result<T, Box<Judgement>> {
    Err(Box::new(Judgement::not_applicable(reason)))
}

/// The value of a fact; absent means that the kernel or device has no such thing.
pub(super) fn need<T>(fact: &Fact<T>) -> Result<&T, Box<Judgement>> {
    match fact {
        Fact::Known { value, .. } => Ok(value),
        Fact::Absent { path } => leave(format!("there is no {path} here")),
        Fact::Unreadable { .. } => Err(Box::new(Judgement::missing(fact))),
    }
}

/// The text of a setting, with the fact as evidence.
pub(super) fn text(host: &HostFacts, path: &str) -> Result<(String, Fact<String>), Box<Judgement>> {
    let fact = host.settings.text(path);
    Ok((need(&fact)?.clone(), fact))
}

/// The number of a setting, with the fact as evidence.
pub(super) fn number<T: FromStr + Copy>(
    host: &HostFacts,
    path: &str,
) -> Result<(T, Fact<T>), Box<Judgement>> {
    let fact = host.settings.number(path);
    Ok((*need(&fact)?, fact))
}

/// The boot command line, for rules about its words.
pub(super) fn cmdline(host: &HostFacts) -> Result<&String, Box<Judgement>> {
    need(&host.kernel.cmdline)
}

/// Offers to write `value` where the fact was read, kept by `persistent`, undone by the text as read.
pub(super) fn write<T>(
    judgement: Judgement,
    fact: &Fact<T>,
    value: impl std::fmt::Display,
    persistent: impl Into<String>,
) -> Judgement {
    let old = match fact {
        Fact::Known { raw, .. } => raw.trim(),
        _ => "",
    };
    let path = fact.path();
    let judgement = judgement.seen(fact).fix(format!("echo {value} > {path}"), persistent);
    judgement.undo(format!("echo {old} > {path}"))
}

/// Offers to set a sysctl, kept in sysctl.d.
pub(super) fn sysctl<T>(judgement: Judgement, fact: &Fact<T>, value: impl std::fmt::Display) -> Judgement {
    let name = fact.path().trim_start_matches("/proc/sys/").replace('/', ".");
    let persistent = format!("/etc/sysctl.d/90-overdrive.conf: {name} = {value}");
    write(judgement, fact, value, persistent)
}

/// How a value below /sys is kept: a line for tmpfiles.d.
pub(super) fn tmpfiles(path: &str, value: impl std::fmt::Display) -> String {
    format!("/etc/tmpfiles.d/overdrive.conf: w {path} - - - - {value}")
}
