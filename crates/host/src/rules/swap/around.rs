//! Rules about what surrounds swap: shared disks, encryption, killers, the balance between nodes.

use super::super::knob::{Verdict, leave, need, settle, text, write};
use super::{areas, shared_with, shown};
use crate::facts::HostFacts;
use crate::facts::parse::CpuSet;
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::TargetFacts;
use overdrive_base::size::format_size;

pub(in super::super) const RULES: &[Rule] = &[
    Rule {
        id: "swap-shared-device",
        scope: Scope::Swap,
        profile: Profile::Any,
        title: "The measured drive does not swap",
        why: "Bursts of swap-out raise the latency of reads on the same drive: beside 15 thousand writes of \
              4 KiB a second, one gave a fifth less reads at depth 16, each as much later.",
        source: "measured on a virtual machine's disk (4 KiB random reads at depth 16: 78 k IOPS alone, 62 k \
              beside the writes)",
        effect: "a tail of reads without others' swap-outs in it",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, target| settle(shared(host, target)),
    },
    Rule {
        id: "swap-encrypted",
        scope: Scope::Swap,
        profile: Profile::Memory,
        title: "Known cost of encrypted swap",
        why: "dm-crypt hands each request to a worker and back unless it is told not to.",
        source: "kernel: Documentation/admin-guide/device-mapper/dm-crypt.rst (no_read_workqueue; commit \
              39d42fa96ba1, 5.9); cryptsetup(8)",
        effect: "two changes of thread less for each fault",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(encrypted(host)),
    },
    Rule {
        id: "swap-oomd-limits",
        scope: Scope::Swap,
        profile: Profile::Memory,
        title: "No daemon kills because swap fills",
        why: "systemd-oomd and earlyoom take full swap for trouble. With swap as memory, full is what \
              it should be.",
        source: "systemd-oomd(8), oomd.conf(5): SwapUsedLimit, 90 % since 247",
        effect: "the extended program lives",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(oomd(host)),
    },
    Rule {
        id: "numa-swap-balance",
        scope: Scope::Numa,
        profile: Profile::Memory,
        title: "Each node swaps to a drive of its own",
        why: "A node that overcommits and has no local area sends each page over the socket link. \
              Intel's table 3 shows both nodes with local drives adding up.",
        source: "Intel 340608, table 3; kernel: Documentation/mm/swap_numa.rst",
        effect: "no swap traffic between sockets",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, _| settle(balance(host)),
    },
    Rule {
        id: "numa-zone-reclaim",
        scope: Scope::Numa,
        profile: Profile::Any,
        title: "Memory of other nodes is used before reclaim",
        why: "zone_reclaim_mode frees pages of the local node, with 4 even by swapping, while another \
              node has memory free. tuned's hpc profile sets 1.",
        source: "kernel: Documentation/admin-guide/sysctl/vm.rst (zone_reclaim_mode)",
        effect: "no reclaim while there is memory",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(zone_reclaim(host)),
    },
    Rule {
        id: "numa-demotion",
        scope: Scope::Numa,
        profile: Profile::Memory,
        title: "Slow memory is used before the drive",
        why: "A node without CPUs is slower memory, CXL for one: pages should go there before they are \
              swapped.",
        source: "kernel: Documentation/ABI/testing/sysfs-kernel-mm-numa",
        effect: "a step between DRAM and the drive",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(demotion(host)),
    },
];

fn shared(host: &HostFacts, target: &TargetFacts) -> Verdict {
    if target.disks.is_empty() {
        return leave("no disk was found below the target");
    }
    need(&host.swap.devices)?;
    Ok(match shared_with(host, target) {
        Some(device) => Judgement::advice(format!("{} is on it", device.area.path))
            .fix(format!("swapoff {}", device.area.path), "swap on another drive"),
        None => Judgement::ok("no swap area is on it"),
    }
    .seen(&shown(host)))
}

fn encrypted(host: &HostFacts) -> Verdict {
    let list = areas(host)?;
    let crypt =
        list.iter().find(|device| device.mapping.value().is_some_and(|uuid| uuid.starts_with("CRYPT")));
    let Some(device) = crypt else { return leave("no area is encrypted") };
    Ok(Judgement::advice(format!(
        "{} is encrypted; whether its workers are skipped only dmsetup tells",
        device.area.path
    ))
    .seen(&device.mapping)
    .fix(
        "cryptsetup refresh --perf-no_read_workqueue --perf-no_write_workqueue NAME",
        "the same with --persistent",
    ))
}

fn oomd(host: &HostFacts) -> Verdict {
    let daemons = need(&host.owners.daemons)?;
    let killers: Vec<&str> = daemons
        .iter()
        .map(String::as_str)
        .filter(|name| ["systemd-oomd", "earlyoom"].contains(name))
        .collect();
    Ok(match killers.is_empty() {
        true => Judgement::ok("none runs"),
        false => Judgement::advice(format!("{} may kill what fills swap", killers.join(", ")))
            .fix("", "ManagedOOMSwap=auto for the slice, or the daemon's list of programs to spare"),
    }
    .seen(&host.owners.daemons))
}

fn balance(host: &HostFacts) -> Verdict {
    let nodes = need(&host.numa.nodes)?;
    let with_cpus: Vec<_> =
        nodes.iter().filter(|node| node.cpus.value().is_some_and(|cpus| !cpus.is_empty())).collect();
    if with_cpus.len() < 2 {
        return leave("the host has one memory node with CPUs");
    }
    let list = areas(host)?;
    let has = |id: u32| list.iter().any(|device| device.numa_node.get() == Some(i64::from(id)));
    let without: Vec<String> = with_cpus
        .iter()
        .filter(|node| !has(node.id))
        .map(|node| format!("{} ({})", node.id, format_size(node.total_bytes.get().unwrap_or(0))))
        .collect();
    Ok(match without.is_empty() {
        true => Judgement::ok("every node has one"),
        false => Judgement::advice(format!("no local area for node {}", without.join(", ")))
            .fix("", "a drive on that socket"),
    }
    .seen(&shown(host)))
}

fn zone_reclaim(host: &HostFacts) -> Verdict {
    let fact = host.settings.number::<u32>("/proc/sys/vm/zone_reclaim_mode");
    Ok(match *need(&fact)? {
        0 => Judgement::ok("0: other nodes first").seen(&fact),
        mode => {
            let how = if mode & 4 != 0 { "even by swapping" } else { "of file pages" };
            super::super::knob::sysctl(
                Judgement::advice(format!("{mode}: local reclaim {how} comes first")),
                &fact,
                0,
            )
        }
    })
}

fn demotion(host: &HostFacts) -> Verdict {
    let nodes = need(&host.numa.nodes)?;
    let slow = nodes.iter().filter(|node| node.cpus.value().is_some_and(CpuSet::is_empty)).count();
    if slow == 0 {
        return leave("no node of memory only");
    }
    let path = "/sys/kernel/mm/numa/demotion_enabled";
    let (value, fact) = text(host, path)?;
    Ok(match value.as_str() {
        "true" => Judgement::ok("on").seen(&fact),
        _ => write(
            Judgement::advice(format!("off, with {} of memory only", super::super::numbered(slow, "node"))),
            &fact,
            "true",
            super::super::knob::tmpfiles(path, "true"),
        ),
    })
}
