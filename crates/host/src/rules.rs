//! The catalogue of rules: one file a scope, one table row a rule, and one function that judges.
//!
//! Rules are pure functions of facts: no file, no clock, no environment. They correct themselves for the
//! running kernel: a knob that does nothing there is said to do nothing instead of being recommended. Ids are
//! stable and appear in records.

mod block;
mod boot;
mod cgroup;
mod cpu;
mod host;
mod interface;
mod irq;
mod knob;
mod numa;
mod nvme;
mod pcie;
mod power;
mod space;
mod swap;
mod vm;

use crate::facts::HostFacts;
use crate::facts::block::HardwareQueue;
use crate::finding::{Finding, Judgement, Profile, Rule};
use crate::target::{DiskFacts, Medium, TargetFacts};

/// Every rule, in the order of reading: the host, its processors, the way down to the disk.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    [
        host::RULES,
        power::RULES,
        boot::RULES,
        cpu::RULES,
        cpu::power::RULES,
        cpu::isolation::RULES,
        vm::RULES,
        vm::reclaim::RULES,
        vm::pages::RULES,
        swap::RULES,
        swap::around::RULES,
        cgroup::RULES,
        numa::RULES,
        space::RULES,
        block::RULES,
        block::around::RULES,
        interface::RULES,
        irq::RULES,
        irq::placement::RULES,
        nvme::RULES,
        nvme::driver::RULES,
        nvme::device::RULES,
        pcie::RULES,
        pcie::path::RULES,
    ]
    .into_iter()
    .flatten()
}

/// What every rule says of a host and a target that is used for storage.
#[must_use]
pub fn audit(host: &HostFacts, target: &TargetFacts) -> Vec<Finding> {
    audit_for(Profile::Storage, host, target)
}

/// The same for one use, or for both with [`Profile::Any`].
#[must_use]
pub fn audit_for(wanted: Profile, host: &HostFacts, target: &TargetFacts) -> Vec<Finding> {
    all().map(|rule| rule.apply(host, target, wanted)).collect()
}

/// Judges each disk of the target and joins the answers; not applicable without a disk.
fn each_disk(target: &TargetFacts, judge: impl Fn(&DiskFacts) -> Judgement) -> Judgement {
    let parts = target.disks.iter().map(|disk| (disk.name(), judge(disk))).collect();
    Judgement::join(parts).unwrap_or_else(|| Judgement::not_applicable(no_disk(target)))
}

/// The hardware queues of a disk that interrupt. Poll queues come last, for CPUs that have one of these too.
fn interrupt_queues(disk: &DiskFacts) -> Option<&[HardwareQueue]> {
    let all = disk.block.hardware_queues.value()?;
    let nvme = disk.nvme.as_ref().filter(|_| disk.block.queue.io_poll.get() == Some(true));
    let asked = nvme.and_then(|nvme| usize::try_from(nvme.poll_queues.get()?).ok());
    let polled = nvme.and_then(|nvme| nvme.poll_contexts.get()).or(asked).unwrap_or(0);
    all.get(..all.len().saturating_sub(polled))
}

fn no_disk(target: &TargetFacts) -> String {
    match &target.medium {
        Medium::Disk => "no disk was found below the target".to_owned(),
        Medium::Memory(why) | Medium::Network(why) | Medium::Hidden(why) => why.clone(),
    }
}

/// A udev rule that sets one queue attribute of one disk whenever it appears.
fn udev(disk: &str, attribute: &str, value: &str) -> String {
    format!(
        "/etc/udev/rules.d/99-overdrive.rules: ACTION==\"add|change\", KERNEL==\"{disk}\", \
         ENV{{DEVTYPE}}==\"disk\", ATTR{{{attribute}}}=\"{value}\""
    )
}

/// `1 queue`, `31 queues`.
fn numbered(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_unique_and_begin_with_their_scope() {
        let mut seen = BTreeSet::new();
        for rule in all() {
            assert!(seen.insert(rule.id), "{} twice", rule.id);
            // The two about the target's file have names of their own.
            let own = ["file-holes", "file-system-kind", "bench-preconditioned"].contains(&rule.id);
            assert!(own || rule.id.starts_with(rule.scope.name()), "{} in {:?}", rule.id, rule.scope);
        }
        assert!(seen.len() >= 120, "{} rules", seen.len());
    }

    #[test]
    fn every_rule_says_why_and_where_that_is_written() {
        for rule in all() {
            for text in [rule.title, rule.why, rule.source, rule.effect] {
                assert!(text.len() > 5 && text.trim() == text, "{}: '{text}'", rule.id);
            }
        }
    }
}
