//! Rules about interrupts and the spread of hardware queues over CPUs.

pub(super) mod placement;

use super::nvme::each_controller;
use super::{each_disk, interrupt_queues, numbered};
use crate::facts::HostFacts;
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::TargetFacts;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "irq-nvme-queue-per-cpu",
        scope: Scope::Irq,
        profile: Profile::Any,
        title: "Each CPU has a hardware queue of its own",
        why: "CPUs that share a queue contend for its lock, and completions have to be sent from one \
              to another. The driver spreads the queues itself: never move its interrupts by hand.",
        source: "kernel: drivers/nvme/host/pci.c, block/blk-mq-cpumap.c in 6.12; AnandTech 11930 (31 \
              queues of a P4800X)",
        effect: "no lock shared, no interrupt between CPUs, for threads on CPUs of different queues",
        risk: Risk::Safe,
        verified: true,
        judge: queue_per_cpu,
    },
    Rule {
        id: "irq-completion-cpu",
        scope: Scope::Irq,
        profile: Profile::Storage,
        title: "Completions arrive on the CPUs that wait for them",
        why: "A completion that arrives on another CPU has to wake the waiting one, and waking an idle \
              CPU is dear, most of all a virtual one.",
        source: "measured on a 2-CPU guest with one virtio queue, 4 KiB reads at depth 1: 14 k IOPS on \
              the other CPU, 22 k on the interrupt's",
        effect: "one wake-up between CPUs less for each operation of a thread that waits",
        risk: Risk::Safe,
        verified: true,
        judge: completion_cpu,
    },
];

fn completion_cpu(host: &HostFacts, target: &TargetFacts) -> Judgement {
    each_disk(target, |disk| {
        let Some(pcie) = &disk.pcie else {
            return Judgement::not_applicable(format!("{} hangs on no PCI device", disk.name()));
        };
        let Some(takers) = pcie.completion_cpus() else {
            return match pcie.interrupts.is_absent() {
                true => {
                    Judgement::not_applicable("it has no message-signalled interrupts, or does not list them")
                }
                false => Judgement::missing(&pcie.interrupts),
            };
        };
        let Some(online) = host.cpu.online.value() else { return Judgement::missing(&host.cpu.online) };
        let judgement = if online.iter().all(|cpu| takers.contains(cpu)) {
            Judgement::ok("every CPU takes completions of its own")
        } else {
            let few = format!("only CPU {takers} of {} takes completions", numbered(online.len(), "CPU"));
            Judgement::advice(few).fix(format!("pin threads that wait for single reads to CPU {takers}"), "")
        };
        judgement.seen(&pcie.interrupts).seen(&host.cpu.online)
    })
}

/// CPUs sharing one queue from which it is a bottleneck.
const SHARED_PROBLEM: usize = 4;

fn queue_per_cpu(_: &HostFacts, target: &TargetFacts) -> Judgement {
    each_controller(target, |disk, _| {
        let queues = &disk.block.hardware_queues;
        let Some(list) = interrupt_queues(disk) else { return Judgement::missing(queues) };
        let shared = list.iter().map(|queue| queue.cpus.len()).max().unwrap_or(0);
        let widest = list.iter().find(|queue| queue.cpus.len() == shared);
        let example =
            widest.map_or_else(String::new, |queue| format!(": queue {} serves {}", queue.index, queue.cpus));
        let pin = "pin threads to CPUs of different queues; give up poll and write queues that nobody uses";
        let judgement = match shared {
            0 | 1 => {
                return Judgement::ok(format!("{}, no CPU shares one", numbered(list.len(), "queue")))
                    .seen(queues);
            }
            2..=SHARED_PROBLEM => Judgement::advice(format!("up to {shared} CPUs share a queue{example}")),
            _ => Judgement::problem(format!("up to {shared} CPUs share a queue{example}")),
        };
        judgement.seen(queues).fix(pin, "")
    })
}
