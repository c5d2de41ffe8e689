//! Rules about control groups: limits of the group we run in, or of any group above it.

use super::knob::{Verdict, leave, need, settle};
use crate::facts::cgroup::Version;
use crate::facts::{Fact, HostFacts};
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::TargetFacts;
use overdrive_base::size::format_size;

const DOC: &str = "kernel: Documentation/admin-guide/cgroup-v2.rst";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "cgroup-v2",
        scope: Scope::Cgroup,
        profile: Profile::Memory,
        title: "Groups are of version 2",
        why: "memory.high, limits on swap, zswap and pressure by group exist in version 2 only; the \
              old version's memory controller offers a hard limit and its own swappiness.",
        source: DOC,
        effect: "memory can be bounded without killing",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, _| settle(version(host)),
    },
    Rule {
        id: "cgroup-swap-max",
        scope: Scope::Cgroup,
        profile: Profile::Memory,
        title: "The group may swap",
        why: "memory.swap.max = 0 forbids all swap to the group and everything below; containers often \
              have it.",
        source: DOC,
        effect: "memory is extended at all",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(swap_max(host)),
    },
    Rule {
        id: "cgroup-memory-high",
        scope: Scope::Cgroup,
        profile: Profile::Memory,
        title: "DRAM is bounded by memory.high",
        why: "Above memory.high the group reclaims and slows down; at memory.max it is killed. The \
              first is the lever for tiering.",
        source: DOC,
        effect: "a budget of DRAM without kills",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(memory_high(host)),
    },
    Rule {
        id: "cgroup-swap-high",
        scope: Scope::Cgroup,
        profile: Profile::Memory,
        title: "memory.swap.high is left alone",
        why: "Beyond it the group is throttled until it frees memory: meant as the last stop before \
              somebody looks, not for daily use.",
        source: DOC,
        effect: "no throttling while swap is used as meant",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(swap_high(host)),
    },
    Rule {
        id: "cgroup-zswap-writeback",
        scope: Scope::Cgroup,
        profile: Profile::Memory,
        title: "zswap may write to the drive",
        why: "memory.zswap.writeback = 0 keeps the group's pages off all swap devices while zswap is \
              on.",
        source: DOC,
        effect: "the drive is used",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(zswap_writeback(host)),
    },
    Rule {
        id: "cgroup-memory-min-pager",
        scope: Scope::Cgroup,
        profile: Profile::Memory,
        title: "A pager is protected from reclaim",
        why: "A pager whose own memory is swapped out waits for itself. memory.min, and locked memory, \
              keep it in.",
        source: DOC,
        effect: "no deadlock and no faults inside the pager",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(memory_min(host)),
    },
    Rule {
        id: "cgroup-cpu-throttled",
        scope: Scope::Cgroup,
        profile: Profile::Any,
        title: "The CPU quota does not stop I/O threads",
        why: "A group that has used its quota stands still until the next period: pauses of 10 to 100 \
              ms that look like the drive's.",
        source: "kernel: Documentation/scheduler/sched-bwc.rst",
        effect: "no pauses from the scheduler",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(throttled(host)),
    },
    Rule {
        id: "cgroup-io-limits",
        scope: Scope::Cgroup,
        profile: Profile::Any,
        title: "No limit on I/O, or a meant one",
        why: "io.max and io.latency hold requests before they are issued: the drive looks fast to the \
              kernel and slow to the program.",
        source: DOC,
        effect: "the drive's own rate",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(io_limits(host)),
    },
    Rule {
        id: "cgroup-cpuset-local",
        scope: Scope::Cgroup,
        profile: Profile::Any,
        title: "The group's CPUs and memory are near the drive",
        why: "A cpuset on another node has every request and buffer cross the socket link.",
        source: "kernel: Documentation/admin-guide/cgroup-v2.rst (cpuset)",
        effect: "as numa-app-local",
        risk: Risk::Safe,
        verified: true,
        judge: |host, target| settle(cpuset(host, target)),
    },
];

fn version(host: &HostFacts) -> Verdict {
    let fact = &host.cgroup.version;
    Ok(match need(fact)? {
        Version::V2 => Judgement::ok("v2"),
        Version::None => Judgement::advice("no hierarchy is mounted"),
        other => Judgement::advice(format!("{}: the memory controller is the old one", other.name())).fix(
            "",
            "drop systemd.unified_cgroup_hierarchy=0 and systemd.legacy_systemd_cgroup_controller from the command line; \
             systemd 258 and newer have version 2 only",
        ),
    }
    .seen(fact))
}

/// The files of the group and above, or why there are none.
fn files<'a>(host: &'a HostFacts, name: &'a str) -> Result<Vec<&'a Fact<String>>, Box<Judgement>> {
    let list: Vec<&Fact<String>> = host.cgroup.group.files(name).collect();
    match list.is_empty() {
        true => leave(format!("the groups of this process have no {name}")),
        false => Ok(list),
    }
}

/// The tightest of the limits, with its file; `None` when all say `max`.
fn tightest<'a>(list: &[&'a Fact<String>]) -> Option<(u64, &'a Fact<String>)> {
    let limits = list.iter().filter_map(|fact| Some((fact.value()?.parse::<u64>().ok()?, *fact)));
    limits.min_by_key(|&(limit, _)| limit)
}

fn lift(judgement: Judgement, fact: &Fact<String>, value: &str, persistent: &str) -> Judgement {
    super::knob::write(judgement, fact, value, persistent)
}

fn swap_max(host: &HostFacts) -> Verdict {
    let list = files(host, "memory.swap.max")?;
    Ok(match tightest(&list) {
        None => Judgement::ok("no limit on swap").seen(list[0]),
        Some((0, fact)) => lift(
            Judgement::problem("0: this group may not swap at all"),
            fact,
            "max",
            "MemorySwapMax= of the unit",
        ),
        Some((limit, fact)) => Judgement::ok(format!("at most {} of swap", format_size(limit))).seen(fact),
    })
}

fn memory_high(host: &HostFacts) -> Verdict {
    let high = files(host, "memory.high")?;
    let max = files(host, "memory.max")?;
    Ok(match (tightest(&high), tightest(&max)) {
        (Some((high, fact)), Some((max, other))) if high >= max => Judgement::advice(format!(
            "memory.high ({}) is not below memory.max ({}): the group is killed before it slows down",
            format_size(high),
            format_size(max)
        ))
        .seen(fact)
        .seen(other),
        (Some((high, fact)), _) => {
            Judgement::ok(format!("{} of DRAM before it reclaims", format_size(high))).seen(fact)
        }
        (None, Some((max, other))) => Judgement::advice(format!(
            "only memory.max ({}): the group is killed instead of slowed down",
            format_size(max)
        ))
        .seen(other)
        .fix("", "MemoryHigh= of the unit, below MemoryMax="),
        (None, None) => Judgement::ok("no bound: the whole machine's memory").seen(high[0]),
    })
}

fn swap_high(host: &HostFacts) -> Verdict {
    let list = files(host, "memory.swap.high")?;
    Ok(match tightest(&list) {
        None => Judgement::ok("max").seen(list[0]),
        Some((limit, fact)) => {
            let reason = format!("{}: beyond it the group is throttled", format_size(limit));
            lift(Judgement::advice(reason), fact, "max", "no MemorySwapHigh= in the unit")
        }
    })
}

fn zswap_writeback(host: &HostFacts) -> Verdict {
    let list = files(host, "memory.zswap.writeback")?;
    let zswap = host.memory.zswap.get() == Some(true);
    let shut = list.iter().find(|fact| fact.value().is_some_and(|text| text == "0"));
    Ok(match (shut, zswap) {
        (Some(fact), true) => lift(
            Judgement::problem("0, with zswap on: nothing reaches the drive"),
            fact,
            "1",
            "MemoryZSwapWriteback=yes of the unit",
        ),
        (Some(fact), false) => Judgement::ok("0, without effect while zswap is off").seen(fact),
        (None, _) => Judgement::ok("1").seen(list[0]),
    })
}

fn memory_min(host: &HostFacts) -> Verdict {
    let list = files(host, "memory.min")?;
    let least = list.iter().filter_map(|fact| fact.value()?.parse::<u64>().ok()).min().unwrap_or(0);
    let reason = match least {
        0 => "nothing is protected; a pager run from here locks its own memory instead".to_owned(),
        _ => format!("{} protected", format_size(least)),
    };
    Ok(Judgement::ok(reason).seen(list[0]))
}

fn throttled(host: &HostFacts) -> Verdict {
    let list = files(host, "cpu.stat")?;
    let count = |fact: &&&Fact<String>| {
        let line = fact.value()?.lines().find_map(|line| line.strip_prefix("nr_throttled "))?;
        line.trim().parse::<u64>().ok().filter(|&count| count > 0)
    };
    let hit = list.iter().find(|fact| count(fact).is_some());
    let quota = host
        .cgroup
        .group
        .files("cpu.max")
        .find(|fact| fact.value().is_some_and(|text| !text.starts_with("max")));
    Ok(match (hit, quota) {
        (Some(fact), _) => {
            Judgement::advice(format!("stopped {} times by its quota", count(&fact).unwrap_or(0)))
                .seen(fact)
                .fix("", "CPUQuota= of the unit empty, or larger")
        }
        (None, Some(quota)) => Judgement::ok("a quota, not reached so far").seen(quota),
        (None, None) => Judgement::ok("never").seen(list[0]),
    })
}

fn io_limits(host: &HostFacts) -> Verdict {
    let set = |name: &'static str| {
        host.cgroup.group.files(name).find(|fact| fact.value().is_some_and(|text| !text.is_empty()))
    };
    Ok(match set("io.max").or(set("io.latency")) {
        Some(fact) => Judgement::advice("requests are held before they are issued")
            .seen(fact)
            .fix("", "no IOReadBandwidthMax= and the like in the unit"),
        None if host.cgroup.group.is_empty() => {
            return leave("the groups of this process cannot be read, or are of version 1");
        }
        None => match host.cgroup.group.files("io.max").next() {
            Some(fact) => Judgement::ok("none").seen(fact),
            None => return leave("the I/O controller is not enabled for this group"),
        },
    })
}

fn cpuset(host: &HostFacts, target: &TargetFacts) -> Verdict {
    let list = files(host, "cpuset.mems.effective")?;
    let nodes = host.numa.nodes.value().map_or(1, Vec::len);
    if nodes < 2 {
        return leave("the host has one memory node");
    }
    let near: Vec<i64> =
        target.disks.iter().filter_map(|disk| disk.numa_node()?.get()).filter(|&node| node >= 0).collect();
    let Some(&node) = near.first() else { return leave("the drive's node is not known") };
    let mems = list[0].clone().parse(crate::facts::parse::cpu_list);
    let allowed = need(&mems)?;
    Ok(match allowed.contains(node as u32) {
        true => Judgement::ok(format!("memory of node {node} is allowed")),
        false => Judgement::advice(format!("memory only of node {allowed}, and the drive is on {node}"))
            .fix("", "AllowedMemoryNodes= and AllowedCPUs= of the unit"),
    }
    .seen(list[0]))
}
