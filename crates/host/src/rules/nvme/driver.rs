//! Rules about what the NVMe driver was told: queues, depth, time-outs, paths, runtime power.

use super::super::knob::{Verdict, leave, need, number, settle, write};
use super::super::numbered;
use super::each_controller;
use crate::facts::nvme::NvmeFacts;
use crate::facts::{Fact, HostFacts};
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::{DiskFacts, TargetFacts};

pub(in super::super) const RULES: &[Rule] = &[
    Rule {
        id: "nvme-poll-queues-wasted",
        scope: Scope::Nvme,
        profile: Profile::Any,
        title: "Poll queues are not more than are used",
        why: "Poll queues come out of the number of queues the drive grants: each one is an interrupt \
              queue less, and without a polling program it stands idle.",
        source: "kernel: nvme_calc_irq_sets in drivers/nvme/host/pci.c, 6.12",
        effect: "a queue more for programs that wait for interrupts",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, target| each_controller(target, |disk, nvme| settle(wasted(host, disk, nvme))),
    },
    Rule {
        id: "nvme-iopoll-without-queues",
        scope: Scope::Nvme,
        profile: Profile::Storage,
        title: "Polled I/O meets poll queues",
        why: "Without poll queues IORING_SETUP_IOPOLL and RWF_HIPRI spin on interrupts up to 6.6 and \
              are refused with EOPNOTSUPP from 6.12 on: programs that worked stop working after an \
              upgrade.",
        source: "kernel: blk_mq_submit_bio in 6.12; liburing issues 1389, 1205, 1221",
        effect: "polled programs that run, and gain by it",
        risk: Risk::Safe,
        verified: true,
        judge: |host, target| each_controller(target, |disk, nvme| settle(unpolled(host, disk, nvme))),
    },
    Rule {
        id: "nvme-io-queue-depth",
        scope: Scope::Nvme,
        profile: Profile::Any,
        title: "Queues take the depth that is wanted",
        why: "The driver makes queues of io_queue_depth entries, 1024 by default, of which one stays \
              free, or fewer where the drive cannot. The 'queue depth 1023' of guides is today's \
              default.",
        source: "kernel: drivers/nvme/host/pci.c in 6.12 (2 to 4095)",
        effect: "no waiting for a free entry at high depth",
        risk: Risk::SideEffects,
        verified: true,
        judge: |_, target| each_controller(target, |_, nvme| settle(depth(nvme))),
    },
    Rule {
        id: "nvme-write-queues",
        scope: Scope::Nvme,
        profile: Profile::Any,
        title: "Reads and writes share queues",
        why: "Queues set apart for writes are taken from the readers', and CPUs share what is left.",
        source: "kernel: drivers/nvme/host/pci.c in 6.12",
        effect: "a queue of its own for more CPUs",
        risk: Risk::SideEffects,
        verified: true,
        judge: |_, target| each_controller(target, |_, nvme| settle(write_queues(nvme))),
    },
    Rule {
        id: "nvme-io-timeout",
        scope: Scope::Nvme,
        profile: Profile::Any,
        title: "The time-out fits the kind of drive",
        why: "A local drive that does not answer for 30 s is broken. Network volumes of a cloud may \
              pause longer, and their maker asks for the largest value; on a swap device an endless \
              wait hangs the host.",
        source: "kernel: drivers/nvme/host/core.c in 6.12; AWS guide on EBS and NVMe (4294967295)",
        effect: "no I/O errors from pauses of a network volume",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, target| each_controller(target, |disk, nvme| settle(timeout(host, disk, nvme))),
    },
    Rule {
        id: "nvme-multipath-iopolicy",
        scope: Scope::Nvme,
        profile: Profile::Any,
        title: "Paths are chosen by memory node",
        why: "With several paths 'numa' takes the near one; with one path the multipath layer only \
              adds a step, and polling through it is limited.",
        source: "kernel: drivers/nvme/host/multipath.c in 6.12",
        effect: "no requests over the far path",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, target| each_controller(target, |_, nvme| settle(policy(host, target, nvme))),
    },
    Rule {
        id: "nvme-firmware-rev",
        scope: Scope::Nvme,
        profile: Profile::Any,
        title: "Known firmware",
        why: "Outliers of latency are mended in firmware; a result belongs to one revision of it.",
        source: "kernel: drivers/nvme/host/sysfs.c in 6.12",
        effect: "whatever the maker's notes say",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |_, target| each_controller(target, |_, nvme| settle(firmware(nvme))),
    },
    Rule {
        id: "nvme-runtime-d3",
        scope: Scope::Nvme,
        profile: Profile::Any,
        title: "The drive is not switched off when idle",
        why: "With runtime power management on 'auto' the kernel may put an idle device into D3; \
              coming back takes milliseconds.",
        source: "kernel: Documentation/power/pci.rst; Documentation/ABI/testing/sysfs-devices-power",
        effect: "milliseconds off the first request after idle, where the device is ever suspended",
        risk: Risk::Safe,
        verified: true,
        judge: |_, target| each_controller(target, |disk, _| settle(runtime_d3(disk))),
    },
    Rule {
        id: "nvme-in-use-guard",
        scope: Scope::Nvme,
        profile: Profile::Any,
        title: "Known users of the drive",
        why: "Unbinding, formatting and partitioning take a drive from whoever uses it; tools that did \
              not look have taken disks from under file systems.",
        source: "SPDK issues 1691, 2727, 3186",
        effect: "no data lost to a setting",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, target| each_controller(target, |disk, _| settle(in_use(host, target, disk))),
    },
];

fn local(nvme: &NvmeFacts) -> Result<(), Box<Judgement>> {
    match nvme.transport.value().map(String::as_str) {
        Some("pcie") | None => Ok(()),
        Some(other) => leave(format!("not a local drive: its transport is {other}")),
    }
}

fn wasted(host: &HostFacts, disk: &DiskFacts, nvme: &NvmeFacts) -> Verdict {
    local(nvme)?;
    let polls = &disk.block.queue.io_poll;
    if polls.get() == Some(false) {
        return Ok(Judgement::ok("no poll queue exists").seen(polls).seen(&nvme.poll_queues));
    }
    let asked = *need(&nvme.poll_queues)?;
    if asked == 0 {
        return Ok(Judgement::ok("none").seen(&nvme.poll_queues));
    }
    let cpus = need(&host.cpu.online)?.len();
    // The admin queue is counted too.
    let queues = usize::try_from(need(&nvme.queue_count)?.saturating_sub(1)).unwrap_or(usize::MAX);
    let polled = nvme.poll_contexts.get().unwrap_or(usize::try_from(asked).unwrap_or(usize::MAX));
    let left = queues.saturating_sub(polled);
    let judgement = match left < cpus && queues > 0 {
        true => Judgement::advice(format!(
            "{polled} polled of {queues} leave {left} for interrupts, fewer than {cpus} CPUs"
        ))
        .fix("", "kernel parameter nvme.poll_queues= with as many as threads that poll"),
        false => {
            Judgement::ok(format!("{}, and enough others for {cpus} CPUs", numbered(polled, "poll queue")))
        }
    };
    Ok(judgement.seen(&nvme.poll_queues).seen(&nvme.queue_count).seen(&nvme.poll_contexts))
}

fn unpolled(host: &HostFacts, disk: &DiskFacts, nvme: &NvmeFacts) -> Verdict {
    local(nvme)?;
    let (fact, release) = (&disk.block.queue.io_poll, &host.kernel.release);
    if *need(fact)? {
        return Ok(Judgement::ok("poll queues exist").seen(fact));
    }
    let what = match (host.kernel.at_least(6, 7), host.kernel.at_least(6, 12)) {
        (_, Some(true)) => "a program that asks for polled I/O gets EOPNOTSUPP on this kernel",
        (Some(false), _) => "a program that asks for polled I/O spins on interrupts on this kernel",
        _ => "polled I/O spins on interrupts or is refused, by kernel version",
    };
    Ok(Judgement::ok(format!("{what}; see nvme-poll-queues before using it")).seen(fact).seen(release))
}

fn depth(nvme: &NvmeFacts) -> Verdict {
    local(nvme)?;
    let (asked, granted) = (*need(&nvme.queue_depth)?, *need(&nvme.queue_size)?);
    let said = format!("{granted} usable entries of {asked} asked for");
    let judgement = match granted {
        0..128 => Judgement::advice(format!("{said}: deep work waits in submission")).fix(
            "",
            "/etc/modprobe.d: options nvme io_queue_depth=1024, if the drive can; then a new initial ramdisk",
        ),
        _ if granted < asked.saturating_sub(1) => Judgement::ok(format!("{said}: the drive's limit")),
        _ => Judgement::ok(said),
    };
    Ok(judgement.seen(&nvme.queue_depth).seen(&nvme.queue_size))
}

fn write_queues(nvme: &NvmeFacts) -> Verdict {
    local(nvme)?;
    Ok(match *need(&nvme.write_queues)? {
        0 => Judgement::ok("0: shared"),
        count => Judgement::advice(format!("{count} kept for writes"))
            .fix("", "no write_queues in /etc/modprobe.d, and a new initial ramdisk"),
    }
    .seen(&nvme.write_queues))
}

fn timeout(host: &HostFacts, disk: &DiskFacts, nvme: &NvmeFacts) -> Verdict {
    const ENDLESS_S: u64 = 4_294_967;
    let (seconds, fact) = number::<u64>(host, "/sys/module/nvme_core/parameters/io_timeout")?;
    let network = nvme.model.value().is_some_and(|model| model.contains("Elastic Block Store"));
    let swaps = host.swap.devices.value().into_iter().flatten();
    let swaps = swaps.filter(|area| area.disk.as_deref() == Some(disk.name())).count() > 0;
    Ok(match (network, seconds, swaps) {
        (true, 0..ENDLESS_S, _) => Judgement::advice(format!("{seconds} s for a network volume"))
            .fix("", "kernel parameter nvme_core.io_timeout=4294967295"),
        (_, ENDLESS_S.., true) => {
            Judgement::problem("no time-out on a drive that swaps: a lost command hangs the host")
                .fix("", "kernel parameter nvme_core.io_timeout=30")
        }
        _ => Judgement::ok(format!("{seconds} s")),
    }
    .seen(&fact)
    .seen(&nvme.model))
}

fn policy(host: &HostFacts, target: &TargetFacts, nvme: &NvmeFacts) -> Verdict {
    let on = host.settings.text("/sys/module/nvme_core/parameters/multipath");
    if need(&on)? == "N" {
        return leave("multipath is off in the driver");
    }
    let paths = target.layers.iter().any(|layer| layer.kind == crate::target::LayerKind::NvmeHead);
    if !paths {
        return Ok(
            Judgement::ok("the driver could use several paths; this drive is reached directly").seen(&on)
        );
    }
    let fact = &nvme.io_policy;
    let transport = nvme.transport.value().map_or("pcie", String::as_str);
    Ok(match need(fact)?.as_str() {
        // By node all I/O of a node takes one path, and the links of the others lie idle.
        other if transport != "pcie" => {
            Judgement::ok(format!("{other}: over {transport} it is the network that decides")).seen(fact)
        }
        "numa" => Judgement::ok("numa").seen(fact),
        other if target.disks.len() > 1 => write(
            Judgement::advice(format!("{other}, with {} paths", target.disks.len())),
            fact,
            "numa",
            "kernel parameter nvme_core.iopolicy=numa",
        ),
        other => Judgement::ok(format!("{other}, with one path: the layer only adds a step")).seen(fact),
    })
}

fn firmware(nvme: &NvmeFacts) -> Verdict {
    let revision = need(&nvme.firmware)?;
    let reason = format!("{revision}; no table of bad revisions is shipped, see the maker's notes");
    Ok(Judgement::ok(reason).seen(&nvme.firmware).seen(&nvme.model))
}

fn runtime_d3(disk: &DiskFacts) -> Verdict {
    let Some(pcie) = &disk.pcie else { return leave("it hangs on no PCI device") };
    let fact = &pcie.power_control;
    Ok(match need(fact)?.as_str() {
        "on" => Judgement::ok("on: it stays awake").seen(fact),
        other => write(
            Judgement::advice(format!("{other}: it may be suspended when idle")),
            fact,
            "on",
            format!(
                "/etc/udev/rules.d/99-overdrive.rules: ACTION==\"add\", KERNEL==\"{}\", SUBSYSTEM==\"pci\", \
                 ATTR{{power/control}}=\"on\"",
                pcie.address
            ),
        ),
    })
}

fn in_use(host: &HostFacts, target: &TargetFacts, disk: &DiskFacts) -> Verdict {
    let mut users = Vec::new();
    if let Some(mount) = &target.mount {
        users.push(format!("mounted on {}", mount.point));
    }
    let swaps = host.swap.devices.value().into_iter().flatten();
    users.extend(
        swaps
            .filter(|area| area.disk.as_deref() == Some(disk.name()))
            .map(|area| format!("swap {}", area.area.path)),
    );
    let shown = Fact::known((), users.join(", "), format!("/sys/block/{}", disk.name()));
    Ok(match users.is_empty() {
        true => Judgement::ok("no user is known from here; a change asks again before it touches the drive")
            .seen(&disk.block.in_flight),
        false => Judgement::ok(format!("{}: never unbind or format it", users.join(", "))).seen(&shown),
    })
}
