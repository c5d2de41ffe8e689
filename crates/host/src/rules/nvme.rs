//! Rules about the NVMe controller and its driver. Disks of other kinds are not judged.

pub(super) mod device;
pub(super) mod driver;

use super::{each_disk, interrupt_queues, numbered};
use crate::facts::HostFacts;
use crate::facts::nvme::NvmeFacts;
use crate::facts::parse::CpuSet;
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::{DiskFacts, TargetFacts};
use overdrive_base::time::format_ns;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "nvme-state-live",
        scope: Scope::Nvme,
        profile: Profile::Any,
        title: "The controller works",
        why: "A controller that resets or is dead explains any stall.",
        source: "kernel: drivers/nvme/host/sysfs.c in 6.12",
        effect: "I/O at all",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: state,
    },
    Rule {
        id: "nvme-queues-granted",
        scope: Scope::Nvme,
        profile: Profile::Any,
        title: "The drive grants a queue a CPU",
        why: "Drives, and hypervisors more so, may grant fewer queues than there are CPUs.",
        source: "kernel: drivers/nvme/host/pci.c in 6.12; seastar perftune.py on AWS i3",
        effect: "less sharing of queues",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: queues_granted,
    },
    Rule {
        id: "nvme-poll-queues",
        scope: Scope::Nvme,
        profile: Profile::Storage,
        title: "Poll queues exist",
        why: "On a poll queue the program looks for completions itself: no interrupt, no wake-up. The \
              driver makes such queues only when it binds to the drive, so a reset does not bring \
              them.",
        source: "kernel: drivers/nvme/host/pci.c, block/blk-mq.c in 6.12; liburing issues 1389, 1205, \
              1221",
        effect: "interrupt and wake-up come off each I/O of a polling program",
        risk: Risk::SideEffects,
        verified: true,
        judge: poll_queues,
    },
    Rule {
        id: "nvme-apst-latency",
        scope: Scope::Nvme,
        profile: Profile::Any,
        title: "The drive does not fall asleep",
        why: "With autonomous power state transitions an idle drive goes to sleep by itself and the \
              first request after that waits for it to wake.",
        source: "kernel: drivers/nvme/host/core.c in 6.12 and commit c5552fde102f",
        effect: "up to the tolerated latency off the first request after idle, on drives that have \
              such states",
        risk: Risk::Safe,
        verified: true,
        judge: apst,
    },
];

/// Judges each disk that has an NVMe controller; for others the rule does not apply.
pub(super) fn each_controller(
    target: &TargetFacts,
    judge: impl Fn(&DiskFacts, &NvmeFacts) -> Judgement,
) -> Judgement {
    each_disk(target, |disk| match &disk.nvme {
        Some(nvme) => judge(disk, nvme),
        None => Judgement::not_applicable(format!("{} is no NVMe drive", disk.name())),
    })
}

fn state(_: &HostFacts, target: &TargetFacts) -> Judgement {
    each_controller(target, |_, nvme| {
        let Some(state) = nvme.state.value() else { return Judgement::missing(&nvme.state) };
        match state.as_str() {
            "live" => Judgement::ok("live").seen(&nvme.state),
            other => Judgement::problem(format!("{} is {other}", nvme.name)).seen(&nvme.state),
        }
    })
}

fn queues_granted(host: &HostFacts, target: &TargetFacts) -> Judgement {
    let Some(cpus) = host.cpu.online.value().map(CpuSet::len) else {
        return Judgement::missing(&host.cpu.online);
    };
    each_controller(target, |disk, _| {
        let queues = &disk.block.hardware_queues;
        let Some(count) = interrupt_queues(disk).map(<[_]>::len) else { return Judgement::missing(queues) };
        let have = format!("{} for {cpus} CPUs", numbered(count, "queue"));
        if count >= cpus {
            return Judgement::ok(have).seen(queues).seen(&host.cpu.online);
        }
        let who = match host.hypervisor.is_guest() {
            Some(true) => "a larger instance, or fewer CPUs",
            _ => "a limit of the drive: spread threads over queues rather than CPUs",
        };
        Judgement::advice(have).seen(queues).seen(&host.cpu.online).fix("", who)
    })
}

fn poll_queues(host: &HostFacts, target: &TargetFacts) -> Judgement {
    each_controller(target, |disk, nvme| {
        if nvme.transport.value().is_some_and(|transport| transport != "pcie") {
            return Judgement::not_applicable("not a local drive: its transport has poll queues of its own");
        }
        let (asked, polls) = (&nvme.poll_queues, &disk.block.queue.io_poll);
        let Some(count) = asked.get() else { return Judgement::missing(asked) };
        let works = polls.get();
        if works == Some(true) {
            return Judgement::ok(format!("{count} poll queues asked for, and polling works"))
                .seen(asked)
                .seen(polls)
                .seen(&nvme.poll_contexts);
        }
        let wanted = host.cpu.cores.get().unwrap_or(4).clamp(1, 8);
        let judgement = if count > 0 {
            Judgement::problem(format!(
                "{count} asked for, but io_poll says there are none: the driver bound before"
            ))
        } else {
            let what = match (host.kernel.at_least(6, 7), host.kernel.at_least(6, 12)) {
                (_, Some(true)) => "polled I/O is refused with EOPNOTSUPP on this kernel",
                (Some(false), _) => "polled I/O on this kernel spins on interrupts and gains nothing",
                _ => "polled I/O is refused or spins on interrupts, by kernel version",
            };
            Judgement::advice(format!(
                "none: {what}; making them takes the drive away for a moment, so it must not be in use"
            ))
        };
        let judgement =
            judgement.seen(asked).seen(polls).seen(&nvme.poll_contexts).seen(&host.kernel.release);
        let Some(address) = disk.pcie.as_ref().map(|pcie| pcie.address.as_str()) else { return judgement };
        let driver = "/sys/bus/pci/drivers/nvme";
        let count = if count > 0 { count } else { wanted as u64 };
        judgement
            .fix(
                format!(
                    "echo {count} > {}; echo {address} > {driver}/unbind; echo {address} > {driver}/bind",
                    asked.path()
                ),
                format!("kernel parameter nvme.poll_queues={count}"),
            )
            .undo(format!(
                "echo {} > {}; echo {address} > {driver}/unbind; echo {address} > {driver}/bind",
                asked.get().unwrap_or(0),
                asked.path()
            ))
    })
}

fn apst(_: &HostFacts, target: &TargetFacts) -> Judgement {
    each_controller(target, |_, nvme| {
        let fact = &nvme.apst_tolerance;
        if fact.is_absent() {
            return Judgement::not_applicable("the driver offers no latency tolerance for this controller");
        }
        let Some(text) = fact.value() else { return Judgement::missing(fact) };
        if text == "0" {
            return Judgement::ok("0: the drive is not allowed to sleep").seen(fact);
        }
        let up_to = match text.parse::<u64>() {
            Ok(time_us) => format_ns(time_us.saturating_mul(1000)),
            Err(_) => "any time".to_owned(),
        };
        let attribute = "power/pm_qos_latency_tolerance_us";
        let known = device::sleep(nvme, text.parse().ok());
        let judgement = match known {
            Some(Err(early)) => return early.seen(fact),
            Some(Ok(judgement)) if judgement.is_fine() => return judgement,
            Some(Ok(judgement)) => judgement,
            None => Judgement::advice(format!(
                "the drive may sleep in states that take up to {up_to} to leave; whether it has any is in its \
                 identify data"
            ))
            .seen(fact)
            .effect(format!("up to {up_to} off the first request after idle, if the drive has such states")),
        };
        judgement
            .fix(
                format!("echo 0 > /sys/class/nvme/{}/{attribute}", nvme.name),
                "kernel parameter nvme_core.default_ps_max_latency_us=0",
            )
            .undo(format!("echo {text} > /sys/class/nvme/{}/{attribute}", nvme.name))
    })
}
