//! Rules about how memory is laid out: huge pages and their splitting, merging, compaction, maps, limits.

use super::super::knob::{Verdict, leave, need, number, settle, sysctl, text, tmpfiles, write};
use crate::facts::hugepages::{HugepageFacts, together};
use crate::facts::{HostFacts, parse};
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use overdrive_base::size::format_size;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";
const SYSCTL: &str = "kernel: Documentation/admin-guide/sysctl/vm.rst";
const THP_DOC: &str = "kernel: Documentation/admin-guide/mm/transhuge.rst";

pub(in super::super) const RULES: &[Rule] = &[
    Rule {
        id: "vm-thp-shrinker",
        scope: Scope::Vm,
        profile: Profile::Memory,
        title: "Known handling of half-empty huge pages",
        why: "Since 6.12 huge pages that are mostly zeros are split under pressure: memory comes back, \
              for work in reclaim.",
        source: THP_DOC,
        effect: "less memory wasted, a little more CPU in reclaim",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(shrinker(host)),
    },
    Rule {
        id: "vm-thp-sizes",
        scope: Scope::Vm,
        profile: Profile::Memory,
        title: "No size of huge page is on by accident",
        why: "Since 6.8 each size has a switch of its own, and 'never' at the top turns off only the \
              sizes that say 'inherit'.",
        source: THP_DOC,
        effect: "faults and swap-outs of the size that was meant",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(sizes(host)),
    },
    Rule {
        id: "vm-thp-swpout-fallback",
        scope: Scope::Vm,
        profile: Profile::Memory,
        title: "Huge pages are swapped out whole",
        why: "A huge page that finds no room in one piece on the swap area is split and written page \
              by page.",
        source: THP_DOC,
        effect: "fewer and larger writes to the swap device",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, _| settle(split(host)),
    },
    Rule {
        id: "vm-ksm",
        scope: Scope::Vm,
        profile: Profile::Any,
        title: "Equal pages are not merged",
        why: "ksmd reads memory all the time to find equal pages, which brings swapped pages back, and \
              a write to a merged page faults. The guides for memory on drives turn it off.",
        source: "kernel: Documentation/admin-guide/mm/ksm.rst; Intel Memory Drive Technology guide, \
              tune.sh",
        effect: "no scanning CPU and no copy faults, for the memory that merging saved",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(ksm(host)),
    },
    Rule {
        id: "vm-compaction",
        scope: Scope::Vm,
        profile: Profile::Memory,
        title: "Memory is not compacted in advance",
        why: "Proactive compaction moves pages of programs that did not ask for it, and locked pages \
              with them unless that is forbidden.",
        source: "kernel: Documentation/admin-guide/sysctl/vm.rst (compaction_proactiveness)",
        effect: "no page moves under a running program; huge pages become rarer",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(compaction(host)),
    },
    Rule {
        id: "vm-overcommit",
        scope: Scope::Vm,
        profile: Profile::Memory,
        title: "A region larger than memory may be mapped",
        why: "With strict accounting (2) a mapping far above memory and swap is refused; with the \
              default (0) a single one that is obviously too large is, unless it asks for no reserve.",
        source: "kernel: Documentation/mm/overcommit-accounting.rst",
        effect: "regions larger than DRAM can be made at all",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(overcommit(host)),
    },
    Rule {
        id: "vm-max-map-count",
        scope: Scope::Vm,
        profile: Profile::Memory,
        title: "Enough mappings for a pager",
        why: "Protecting or unmapping single pages splits a mapping in up to three.",
        source: SYSCTL,
        effect: "no ENOMEM from mprotect with memory free",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(map_count(host)),
    },
    Rule {
        id: "vm-userfaultfd-perm",
        scope: Scope::Vm,
        profile: Profile::Memory,
        title: "Faults inside the kernel reach a user-space pager",
        why: "Without the right, a pager is told of the program's own faults only, and read(2) into a \
              region fails.",
        source: "kernel: Documentation/admin-guide/mm/userfaultfd.rst",
        effect: "system calls work on extended memory",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(userfaultfd(host)),
    },
    Rule {
        id: "vm-hugepages-node",
        scope: Scope::Vm,
        profile: Profile::Any,
        title: "Reserved huge pages lie where the drive is",
        why: "Buffers in huge pages on another node cross the socket link with every transfer. An \
              existing pool belongs to somebody: it is never made smaller.",
        source: "SPDK issues 2724 (a pool overwritten) and 757 (all on one node)",
        effect: "local buffers for programs that use huge pages",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(reserved(host)),
    },
    Rule {
        id: "vm-stat-interval",
        scope: Scope::Vm,
        profile: Profile::Any,
        title: "Memory statistics leave isolated CPUs alone",
        why: "Each CPU folds its counters in every second by a kernel worker.",
        source: "kernel: Documentation/admin-guide/sysctl/vm.rst (stat_interval); tuned \
              network-latency",
        effect: "a wake-up less a second on CPUs set apart",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(stat_interval(host)),
    },
];

fn shrinker(host: &HostFacts) -> Verdict {
    let (value, fact) = text(host, "/sys/kernel/mm/transparent_hugepage/shrink_underused")?;
    let reason = match value.as_str() {
        "1" => "on: mostly empty huge pages are split under pressure",
        _ => "off: their memory stays taken",
    };
    Ok(Judgement::ok(reason).seen(&fact))
}

fn sizes(host: &HostFacts) -> Verdict {
    let list = &host.hugepages.sizes;
    let path = format!("{THP}/hugepages-*kB/enabled");
    let fact = together(list, &path);
    need(&fact)?;
    let on: Vec<String> = list
        .iter()
        .filter(|(_, fact)| fact.value().is_some_and(|text| text.contains("[always]")))
        .map(|(name, _)| name.trim_start_matches("hugepages-").to_owned())
        .collect();
    let top = host.memory.thp_enabled.value().is_some_and(|choice| choice.active == "never");
    Ok(match (on.is_empty(), top) {
        (true, _) => Judgement::ok("no size is forced on").seen(&fact),
        (false, true) => {
            let write = |word: &str| {
                let line = |size: &String| format!("echo {word} > {THP}/hugepages-{size}/enabled");
                on.iter().map(line).collect::<Vec<_>>().join("; ")
            };
            Judgement::advice(format!("'never' at the top, and {} on all the same", on.join(", ")))
                .seen(&fact)
                .fix(write("inherit"), "kernel parameter thp_anon= with the sizes that are meant")
                .undo(write("always"))
        }
        (false, false) => {
            Judgement::ok(format!("{} forced on: measure swap with and without", on.join(", "))).seen(&fact)
        }
    })
}

fn split(host: &HostFacts) -> Verdict {
    let (whole, split) = (
        HugepageFacts::sum(&host.hugepages.swapped_whole),
        HugepageFacts::sum(&host.hugepages.swapped_split),
    );
    if (whole, split) == (0, 0) {
        return leave("no huge page has been swapped out since boot");
    }
    let share = 100.0 * split as f64 / (whole as f64 + split as f64);
    let judgement = match share {
        ..5.0 => Judgement::ok(format!("{share:.1} % had to be split")),
        _ => Judgement::advice(format!("{share:.1} % had to be split: the area is full or fragmented"))
            .fix("", "a larger swap area, or swapoff and swapon when memory allows"),
    };
    let path = format!("{THP}/hugepages-*kB/stats/swpout_fallback");
    Ok(judgement.seen(&together(&host.hugepages.swapped_split, &path)))
}

fn ksm(host: &HostFacts) -> Verdict {
    let path = "/sys/kernel/mm/ksm/run";
    let (value, fact) = number::<u32>(host, path)?;
    Ok(match value {
        1 => write(Judgement::advice("ksmd scans and merges pages"), &fact, 0, tmpfiles(path, 0)),
        2 => Judgement::ok("merged pages are being separated").seen(&fact),
        _ => Judgement::ok("off").seen(&fact),
    })
}

fn compaction(host: &HostFacts) -> Verdict {
    let (level, fact) = number::<u32>(host, "/proc/sys/vm/compaction_proactiveness")?;
    let locked = host.settings.number::<u32>("/proc/sys/vm/compact_unevictable_allowed");
    let note = match locked.get() {
        Some(1) => "; locked pages are moved too",
        _ => "",
    };
    Ok(match level {
        0 => Judgement::ok(format!("not in advance{note}")).seen(&fact).seen(&locked),
        _ => sysctl(Judgement::advice(format!("{level} of 100{note}")), &fact, 0).seen(&locked),
    })
}

fn overcommit(host: &HostFacts) -> Verdict {
    let (mode, fact) = number::<u32>(host, "/proc/sys/vm/overcommit_memory")?;
    Ok(match mode {
        2 => sysctl(Judgement::problem("2: a region larger than memory and swap is refused"), &fact, 0),
        1 => Judgement::ok("1: any size may be mapped").seen(&fact),
        _ => {
            Judgement::ok("0: large regions need MAP_NORESERVE, which Overdrive's pager asks for").seen(&fact)
        }
    })
}

fn map_count(host: &HostFacts) -> Verdict {
    const WANTED: u64 = 262_144;
    let (count, fact) = number::<u64>(host, "/proc/sys/vm/max_map_count")?;
    Ok(match count {
        WANTED.. => Judgement::ok(count.to_string()).seen(&fact),
        _ => sysctl(
            Judgement::advice(format!("{count}: a pager that protects single pages may need more")),
            &fact,
            WANTED,
        ),
    })
}

fn userfaultfd(host: &HostFacts) -> Verdict {
    let (open, fact) = number::<u32>(host, "/proc/sys/vm/unprivileged_userfaultfd")?;
    const CAP_SYS_PTRACE: u64 = 1 << 19;
    let privileged = host.limits.user.value().is_some_and(|user| user.capabilities & CAP_SYS_PTRACE != 0);
    let judgement = match (open, privileged, host.hugepages.userfaultfd_device) {
        (1, ..) => Judgement::ok("open to all programs"),
        (_, true, _) => Judgement::ok("this user has the capability for it"),
        (_, false, true) => Judgement::advice("only through /dev/userfaultfd")
            .fix("", "a group for /dev/userfaultfd by a udev rule, better than the sysctl"),
        (_, false, false) => return Ok(sysctl(Judgement::advice("closed to this user"), &fact, 1)),
    };
    Ok(judgement.seen(&fact))
}

fn reserved(host: &HostFacts) -> Verdict {
    let list = &host.hugepages.reserved;
    let fact = together(list, "/sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages");
    need(&fact)?;
    let counts: Vec<u64> = list.iter().filter_map(|(_, fact)| fact.value()?.parse().ok()).collect();
    let total = parse::sum(&counts);
    if total == 0 {
        return leave("none are reserved; programs that want them say so");
    }
    let said = format!("{} in huge pages, by node: {counts:?}", format_size(total.saturating_mul(2 << 20)));
    let lopsided = counts.len() > 1 && counts.contains(&0);
    Ok(match lopsided {
        true => Judgement::advice(format!("{said}: some nodes have none")).fix(
            "",
            "reserve on the drive's node too (vm.nr_hugepages spreads over all; never lower a pool in use)",
        ),
        false => Judgement::ok(said),
    }
    .seen(&fact))
}

fn stat_interval(host: &HostFacts) -> Verdict {
    let (seconds, fact) = number::<u64>(host, "/proc/sys/vm/stat_interval")?;
    let isolated = host.settings.text("/sys/devices/system/cpu/isolated");
    if isolated.value().is_none_or(String::is_empty) {
        return Ok(Judgement::ok(format!("{seconds} s, and no CPU is set apart")).seen(&fact));
    }
    Ok(match seconds {
        10.. => Judgement::ok(format!("{seconds} s")).seen(&fact),
        _ => sysctl(
            Judgement::advice(format!("{seconds} s: a worker wakes isolated CPUs that often")),
            &fact,
            10,
        ),
    })
}
