//! Rules about where the disk and the program stand on a machine of several memory nodes.

use super::each_disk;
use crate::facts::HostFacts;
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::{DiskFacts, TargetFacts};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "numa-device-node",
        scope: Scope::Numa,
        profile: Profile::Any,
        title: "The disk's memory node is known",
        why: "The driver places its queues, and the kernel spreads its interrupts, by the node that \
              the firmware reports. Without one, locality is left to chance.",
        source: "kernel: Documentation/ABI/testing/sysfs-bus-pci (numa_node)",
        effect: "local queues and interrupts",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: device_node,
    },
    Rule {
        id: "numa-app-local",
        scope: Scope::Numa,
        profile: Profile::Any,
        title: "The program may run near the disk",
        why: "A request from another node crosses the socket link for the command, the data and the \
              completion.",
        source: "kernel: Documentation/admin-guide/mm/numa_memory_policy.rst; Intel 340608 asks for a \
              disk a socket",
        effect: "0.2 to 1 us a request for staying on the node (size not verified)",
        risk: Risk::Safe,
        verified: true,
        judge: app_local,
    },
    Rule {
        id: "numa-balancing",
        scope: Scope::Numa,
        profile: Profile::Any,
        title: "Automatic NUMA balancing is off",
        why: "To learn who uses which page the kernel unmaps pages and takes the faults. Pinned \
              threads gain nothing from it.",
        source: "kernel: Documentation/admin-guide/sysctl/kernel.rst (numa_balancing)",
        effect: "no extra faults in pinned threads",
        risk: Risk::Safe,
        verified: true,
        judge: balancing,
    },
];

fn device_node(host: &HostFacts, target: &TargetFacts) -> Judgement {
    let Some(nodes) = host.numa.nodes.value() else { return one_node(host) };
    if nodes.len() < 2 {
        return one_node(host);
    }
    each_disk(target, |disk| {
        let Some(fact) = disk.numa_node() else {
            return Judgement::not_applicable("it hangs on no PCI device or NVMe controller that could tell");
        };
        let Some(node) = fact.get() else { return Judgement::missing(fact) };
        match u32::try_from(node) {
            Ok(node) => {
                let cpus = host.numa.node(node).and_then(|node| node.cpus.value());
                let cpus = cpus.map_or_else(String::new, |cpus| format!(", CPUs {cpus}"));
                Judgement::ok(format!("it hangs on node {node} of {}{cpus}", nodes.len())).seen(fact)
            }
            Err(_) => {
                Judgement::problem(format!("{} nodes, and the firmware names none for it", nodes.len()))
                    .seen(fact)
                    .fix("", "firmware or slot (ACPI _PXM); never write numa_node, which taints the kernel")
            }
        }
    })
}

fn one_node(host: &HostFacts) -> Judgement {
    let nodes = &host.numa.nodes;
    match nodes.value() {
        Some(_) => Judgement::not_applicable("the host has one memory node"),
        None if nodes.is_absent() => Judgement::not_applicable("this kernel knows no memory nodes"),
        None => Judgement::missing(nodes),
    }
}

fn app_local(host: &HostFacts, target: &TargetFacts) -> Judgement {
    if host.numa.nodes.value().is_none_or(|nodes| nodes.len() < 2) {
        return one_node(host);
    }
    each_disk(target, |disk| app_local_to(host, disk))
}

fn app_local_to(host: &HostFacts, disk: &DiskFacts) -> Judgement {
    let Some(node) = disk.numa_node().and_then(|fact| u32::try_from(fact.get()?).ok()) else {
        return Judgement::not_applicable("its node is not known, see numa-device-node");
    };
    let allowed = &host.limits.cpus_allowed;
    let Some(near) = host.numa.node(node).map(|node| &node.cpus) else {
        return Judgement::unknown(format!("the host lists no node {node}")).seen(&host.numa.nodes);
    };
    let (Some(set), Some(near_set)) = (allowed.value(), near.value()) else {
        return Judgement::missing(if allowed.value().is_none() { allowed } else { near });
    };
    let others = host.numa.nodes.value().into_iter().flatten().map(|other| other.id).filter(|&id| id != node);
    let distance = others.filter_map(|other| host.numa.distance(other, node)).max();
    let distance = distance.map_or_else(String::new, |far| format!(" (distance {far}, local 10)"));
    let local = set.iter().filter(|&cpu| near_set.contains(cpu)).count();
    let judgement = if local == 0 {
        Judgement::problem(format!("none of the CPUs allowed here ({set}) is on its node {node}{distance}"))
    } else if set.is_subset_of(near_set) {
        return Judgement::ok(format!("all allowed CPUs ({set}) are on its node {node}"))
            .seen(allowed)
            .seen(near);
    } else {
        Judgement::advice(format!("{local} of {} allowed CPUs are on its node {node}{distance}", set.len()))
    };
    judgement.seen(allowed).seen(near).fix(
        format!("numactl -N {node} -m {node} COMMAND"),
        format!("CPUAffinity={near_set} in the service's unit"),
    )
}

fn balancing(host: &HostFacts, _: &TargetFacts) -> Judgement {
    if host.numa.nodes.value().is_none_or(|nodes| nodes.len() < 2) {
        return one_node(host);
    }
    let fact = &host.numa.balancing;
    if fact.is_absent() {
        return Judgement::not_applicable("this kernel is built without automatic balancing");
    }
    let Some(mode) = fact.get() else { return Judgement::missing(fact) };
    let judgement = match mode {
        0 => Judgement::ok("off"),
        2 => Judgement::ok("2: moves pages between memory tiers only"),
        mode => Judgement::advice("pages of pinned threads are unmapped now and then to see who uses them")
            .fix("sysctl kernel.numa_balancing=0", "/etc/sysctl.d/90-overdrive.conf: kernel.numa_balancing=0")
            .undo(format!("sysctl kernel.numa_balancing={mode}")),
    };
    judgement.seen(fact)
}
