//! Rules about memory management: huge pages here; `reclaim` and `pages` hold the rest of the scope.

pub(super) mod pages;
pub(super) mod reclaim;

use crate::facts::HostFacts;
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::TargetFacts;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "vm-thp-enabled",
        scope: Scope::Vm,
        profile: Profile::Any,
        title: "Huge pages only where asked for",
        why: "With 'always' any program's page fault may zero 2 MiB, and reclaim has to split such \
              pages; both lengthen faults and tails. Programs that want huge pages can still ask for \
              them under 'madvise'.",
        source: "kernel: Documentation/admin-guide/mm/transhuge.rst; Intel 340608 (swap on fast SSDs)",
        effect: "shorter page faults under memory pressure; none for O_DIRECT work on locked buffers",
        risk: Risk::SideEffects,
        verified: true,
        judge: thp_enabled,
    },
    Rule {
        id: "vm-thp-defrag",
        scope: Scope::Vm,
        profile: Profile::Any,
        title: "Faults do not compact memory",
        why: "With 'always' a fault that finds no huge page stops to make one, by compacting and \
              reclaiming memory while the program waits.",
        source: "kernel: Documentation/admin-guide/mm/transhuge.rst",
        effect: "removes stalls of a millisecond and more from page faults on a full machine",
        risk: Risk::Safe,
        verified: true,
        judge: thp_defrag,
    },
];

fn thp_enabled(host: &HostFacts, _: &TargetFacts) -> Judgement {
    let fact = &host.memory.thp_enabled;
    if fact.is_absent() {
        return Judgement::not_applicable("this kernel has no transparent huge pages");
    }
    let Some(choice) = fact.value() else { return Judgement::missing(fact) };
    let judgement = match choice.active.as_str() {
        "always" => Judgement::advice("every program gets 2 MiB pages, asked or not")
            .fix(format!("echo madvise > {}", fact.path()), "kernel parameter transparent_hugepage=madvise")
            .undo(format!("echo always > {}", fact.path())),
        active => Judgement::ok(format!("'{active}': only programs that ask get huge pages")),
    };
    judgement.seen(fact)
}

fn thp_defrag(host: &HostFacts, _: &TargetFacts) -> Judgement {
    let fact = &host.memory.thp_defrag;
    if fact.is_absent() {
        return Judgement::not_applicable("this kernel has no transparent huge pages");
    }
    let Some(choice) = fact.value() else { return Judgement::missing(fact) };
    let is_off = host.memory.thp_enabled.value().is_some_and(|enabled| enabled.active == "never");
    let judgement = match choice.active.as_str() {
        "always" if is_off => Judgement::ok("'always', without effect while huge pages are off"),
        "always" => Judgement::advice("any page fault may stop to compact memory")
            .fix(
                format!("echo defer+madvise > {}", fact.path()),
                format!("/etc/tmpfiles.d/overdrive.conf: w {} - - - - defer+madvise", fact.path()),
            )
            .undo(format!("echo always > {}", fact.path())),
        active => Judgement::ok(format!("'{active}': faults elsewhere do not wait for compaction")),
    };
    judgement.seen(fact).seen(&host.memory.thp_enabled)
}
