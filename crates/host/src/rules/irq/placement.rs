//! Rules about where interrupts go and who moves them.

use super::super::knob::{Verdict, leave, need, number, settle, text, write};
use super::super::{each_disk, numbered};
use crate::facts::irq::Interrupt;
use crate::facts::parse::{self, CpuSet};
use crate::facts::{Fact, HostFacts};
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::{DiskFacts, TargetFacts};

pub(in super::super) const RULES: &[Rule] = &[
    Rule {
        id: "irq-nvme-managed",
        scope: Scope::Irq,
        profile: Profile::Any,
        title: "Nobody moves the drive's interrupts by hand",
        why: "The NVMe driver has the kernel spread its interrupts, one queue a CPU, and to keep them \
              so: a write to smp_affinity fails, with EIO on older kernels and EPERM on newer. The \
              guides' affinity scripts are for kernels before 4.8.",
        source: "kernel: drivers/nvme/host/pci.c in 6.12; irqbalance issues 336 and 349; P4800X guide, \
              section 4",
        effect: "none: there is nothing left to gain",
        risk: Risk::Safe,
        verified: true,
        judge: |_, target| managed(target),
    },
    Rule {
        id: "irq-irqbalance-relevance",
        scope: Scope::Irq,
        profile: Profile::Any,
        title: "irqbalance is not blamed, or stopped, for NVMe",
        why: "It cannot move managed interrupts, and network cards need it. 'Stop irqbalance' is \
              advice for kernels before 4.8; what helps is to ban the CPUs that are set apart.",
        source: "irqbalance issues 271, 336, 349; P4800X guide, tables 1 and 6",
        effect: "no network interrupts on CPUs set apart",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(irqbalance(host)),
    },
    Rule {
        id: "irq-completion-skew",
        scope: Scope::Irq,
        profile: Profile::Any,
        title: "Completions are spread over CPUs",
        why: "A CPU handles its interrupts one after another. Each queue's go to the CPUs that submit to it, \
              so where few CPUs submit, their time bounds the rate of all.",
        source: "kernel: drivers/nvme/host/pci.c in 6.12 (a queue and an interrupt for each CPU)",
        effect: "rate up to the number of CPUs that share the work",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: skew,
    },
    Rule {
        id: "irq-remote-node",
        scope: Scope::Irq,
        profile: Profile::Any,
        title: "CPUs near the drive take its completions",
        why: "An interrupt on another node reads the completion, and wakes the program, across the \
              socket link.",
        source: "kernel: drivers/nvme/host/pci.c in 6.12",
        effect: "as numa-app-local, for the way back",
        risk: Risk::Safe,
        verified: true,
        judge: |host, target| remote(host, target),
    },
    Rule {
        id: "irq-default-affinity",
        scope: Scope::Irq,
        profile: Profile::Any,
        title: "New interrupts avoid CPUs set apart",
        why: "An interrupt that nobody placed goes to the default mask, isolated CPUs included.",
        source: "kernel: Documentation/core-api/irq/irq-affinity.rst",
        effect: "no stray interrupt on CPUs set apart",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(default_mask(host)),
    },
    Rule {
        id: "irq-threadirqs",
        scope: Scope::Irq,
        profile: Profile::Any,
        title: "Interrupts do not run as threads",
        why: "Forced threading adds a wake-up to each interrupt and turns off the direct way of a \
              completion to its CPU.",
        source: "kernel: kernel-parameters.txt (threadirqs); block/blk-mq.c in 6.12",
        effect: "one wake-up less for each completion",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(threaded(host)),
    },
    Rule {
        id: "irq-nvme-threaded",
        scope: Scope::Irq,
        profile: Profile::Any,
        title: "The driver handles completions in the interrupt",
        why: "With use_threaded_interrupts a thread is woken for each.",
        source: "kernel: drivers/nvme/host/pci.c in 6.12",
        effect: "one wake-up less for each completion",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(nvme_threaded(host)),
    },
    Rule {
        id: "irq-softirq-collision",
        scope: Scope::Irq,
        profile: Profile::Any,
        title: "Network receive work is elsewhere",
        why: "Received packets are handled in rounds of soft interrupts of up to 2 ms. A thread that a \
              completion woke on that CPU waits for the round's end, and so do completions that another CPU \
              sent there: theirs is the soft interrupt after it.",
        source: "kernel: kernel/softirq.c (order, MAX_SOFTIRQ_TIME), block/blk-mq.c \
              (blk_mq_complete_request_remote); Documentation/networking/scaling.rst",
        effect: "no round of packets between a completion and who waits for it",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, target| settle(collision(host, target)),
    },
];

/// Fewer interrupts, or rounds of received packets, since boot tell nothing.
const TELLING_MIN: u64 = 100_000;

/// The interrupts, and the fact that holds them.
type Named<'a> = (&'a Vec<Interrupt>, &'a Fact<Vec<Interrupt>>);

/// The completion interrupts of a disk, or why there are none to look at.
fn interrupts(disk: &DiskFacts) -> Result<Named<'_>, Box<Judgement>> {
    let Some(pcie) = &disk.pcie else { return leave(format!("{} hangs on no PCI device", disk.name())) };
    let list = need(&pcie.interrupts)?;
    if list.is_empty() { leave("none of its interrupts is named") } else { Ok((list, &pcie.interrupts)) }
}

fn managed(target: &TargetFacts) -> Judgement {
    each_disk(target, |disk| {
        settle(interrupts(disk).map(|(list, fact)| {
            let known = list.iter().filter(|interrupt| interrupt.managed.get() == Some(true)).count();
            let judgement = match (disk.nvme.is_some(), known) {
                (_, 1..) => Judgement::ok(format!(
                    "{known} of {} are managed by the kernel",
                    numbered(list.len(), "interrupt")
                )),
                (true, 0) => Judgement::ok(format!(
                    "{}, managed by the driver's design",
                    numbered(list.len(), "interrupt")
                )),
                (false, 0) => {
                    Judgement::ok(format!("{}, not known to be managed", numbered(list.len(), "interrupt")))
                }
            };
            judgement.seen(fact)
        }))
    })
}

fn irqbalance(host: &HostFacts) -> Verdict {
    let daemons = need(&host.owners.daemons)?;
    if !daemons.iter().any(|name| name == "irqbalance") {
        return Ok(Judgement::ok("it does not run; NVMe does not need it, network cards may")
            .seen(&host.owners.daemons));
    }
    if host.kernel.at_least(4, 8) == Some(false) {
        return Ok(Judgement::advice("it runs, and this kernel lets it move NVMe interrupts")
            .seen(&host.owners.daemons));
    }
    let isolated = host.settings.text("/sys/devices/system/cpu/isolated");
    let apart = isolated.value().is_some_and(|text| !text.is_empty());
    let banned =
        host.owners.irqbalance.iter().find(|set| !set.value.is_empty() && set.key.contains("BANNED"));
    Ok(match (apart, banned) {
        (false, _) => Judgement::ok("it runs, and cannot touch managed interrupts"),
        (true, Some(set)) => Judgement::ok(format!("{}={}", set.key, set.value)),
        (true, None) => {
            Judgement::advice("it runs; that it leaves the isolated CPUs alone depends on its version")
                .seen(&isolated)
                .fix("", "IRQBALANCE_BANNED_CPULIST in /etc/default/irqbalance or /etc/sysconfig/irqbalance")
        }
    }
    .seen(&host.owners.daemons))
}

fn skew(host: &HostFacts, target: &TargetFacts) -> Judgement {
    // The table has a column for each CPU that is online.
    let name = |column: usize| {
        let cpu = host.cpu.online.value().and_then(|online| online.iter().nth(column));
        cpu.map_or_else(|| format!("the {}. CPU that is online", column + 1), |cpu| format!("CPU {cpu}"))
    };
    each_disk(target, |disk| {
        settle(interrupts(disk).map(|(list, fact)| {
            let cpus = list.iter().map(|interrupt| interrupt.counts.len()).max().unwrap_or(0);
            let by_cpu: Vec<u64> = (0..cpus)
                .map(|cpu| parse::sum(list.iter().filter_map(|interrupt| interrupt.counts.get(cpu))))
                .collect();
            let total = parse::sum(&by_cpu);
            let active = by_cpu.iter().filter(|&&count| count > 0).count().max(1);
            let (hottest, most) =
                by_cpu.iter().enumerate().max_by_key(|&(_, count)| count).unwrap_or((0, &0));
            let share = *most as f64 / (total.max(1) as f64 / active as f64);
            let judgement = if total < TELLING_MIN {
                Judgement::ok("too few completions since boot to tell")
            } else if list.len() == 1 {
                Judgement::ok(format!("one interrupt, all {total} on its CPU"))
            } else if share > 2.0 {
                Judgement::advice(format!(
                    "since boot {} took {share:.1} times the mean of {active}",
                    name(hottest)
                ))
                .fix("spread the submitting threads over CPUs", "")
            } else {
                Judgement::ok(format!(
                    "since boot no CPU took more than {share:.1} times the mean of {active}"
                ))
            };
            judgement.seen(fact)
        }))
    })
}

fn remote(host: &HostFacts, target: &TargetFacts) -> Judgement {
    if host.numa.nodes.value().is_none_or(|nodes| nodes.len() < 2) {
        return Judgement::not_applicable("the host has one memory node, or tells of none");
    }
    each_disk(target, |disk| settle(remote_of(host, disk)))
}

fn remote_of(host: &HostFacts, disk: &DiskFacts) -> Verdict {
    let (_, fact) = interrupts(disk)?;
    let node = disk.numa_node().and_then(|fact| u32::try_from(fact.get()?).ok());
    let near = node.and_then(|node| host.numa.node(node)?.cpus.value());
    let (Some(near), Some(takers)) =
        (near, disk.pcie.as_ref().and_then(crate::facts::pcie::PcieFacts::completion_cpus))
    else {
        return leave("its node, or where its interrupts go, is not known");
    };
    let local = takers.iter().filter(|&cpu| near.contains(cpu)).count();
    Ok(match local {
        0 => Judgement::advice(format!("CPUs {takers} take them, and none is near the drive ({near})"))
            .fix(format!("pin submitting threads to CPUs {near}"), "CPUAffinity= of the unit"),
        _ => {
            Judgement::ok(format!("{local} of {} that take them are near it", numbered(takers.len(), "CPU")))
        }
    }
    .seen(fact))
}

fn default_mask(host: &HostFacts) -> Verdict {
    let path = "/proc/irq/default_smp_affinity";
    let (mask, fact) = text(host, path)?;
    let isolated = host.settings.text("/sys/devices/system/cpu/isolated").parse(parse::cpu_list);
    let Some(apart) = isolated.value().filter(|set| !set.is_empty()) else {
        return Ok(Judgement::ok(format!("{mask}, and no CPU is set apart")).seen(&fact));
    };
    let Some(house) = super::super::cpu::isolation::housekeeping_mask(host, &apart.to_string(), &mask) else {
        return Err(Box::new(Judgement::unknown("the CPUs to keep house cannot be told").seen(&fact)));
    };
    if mask.eq_ignore_ascii_case(&house) {
        return Ok(Judgement::ok(format!("{mask}: without CPUs {apart}")).seen(&fact));
    }
    let boot = format!("kernel parameter irqaffinity= without CPUs {apart}");
    Ok(write(
        Judgement::advice(format!("{mask}: not the CPUs that keep house ({house})")),
        &fact,
        &house,
        boot,
    ))
}

fn threaded(host: &HostFacts) -> Verdict {
    super::super::knob::cmdline(host)?;
    Ok(match host.kernel.parameter("threadirqs") {
        Some(_) => Judgement::advice("threadirqs: every interrupt wakes a thread").fix("", "drop threadirqs"),
        None => Judgement::ok("not forced"),
    }
    .seen(&host.kernel.cmdline))
}

fn nvme_threaded(host: &HostFacts) -> Verdict {
    let (on, fact) = number::<u32>(host, "/sys/module/nvme/parameters/use_threaded_interrupts")?;
    Ok(match on {
        0 => Judgement::ok("0: in the interrupt itself"),
        _ => Judgement::advice("1: a thread is woken for each")
            .fix("", "no use_threaded_interrupts in /etc/modprobe.d, and a new initial ramdisk"),
    }
    .seen(&fact))
}

fn collision(host: &HostFacts, target: &TargetFacts) -> Verdict {
    let (table, fact) = text(host, "/proc/softirqs")?;
    let head = table.lines().next().unwrap_or_default().split_whitespace();
    let cpus = head.map(|word| word.trim_start_matches("CPU").parse::<u32>().ok());
    let row = table.lines().find_map(|line| line.trim_start().strip_prefix("NET_RX:")).unwrap_or_default();
    let counts: Vec<u64> = row.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let shown = Fact::known((), format!("NET_RX {counts:?}"), fact.path());
    let total = parse::sum(&counts);
    let Some(takers) = target.disks.iter().find_map(|disk| disk.pcie.as_ref()?.completion_cpus()) else {
        return leave("where completions arrive is not known");
    };
    let (hot, most) = cpus
        .zip(&counts)
        .max_by_key(|&(_, count)| count)
        .map_or((0, 0), |(cpu, &count)| (cpu.unwrap_or(u32::MAX), count));
    let online = host.cpu.online.value().map_or(1, CpuSet::len);
    let crowded = total > TELLING_MIN && most > total / 2 && takers.contains(hot) && takers.len() < online;
    Ok(match crowded {
        true => Judgement::advice(format!(
            "CPU {hot} took {} % of all rounds of received packets, and completions too",
            (100.0 * most as f64 / total as f64) as u64
        ))
        .fix("", "the network card's interrupts, or its RPS mask, on other CPUs"),
        false => Judgement::ok("no CPU takes most packets and completions both"),
    }
    .seen(&shown))
}

#[cfg(test)]
mod tests {
    use crate::audit::Audit;
    use crate::finding::{Finding, Profile, Status};
    use crate::root::Root;
    use std::time::Duration;

    /// What a rule says of a host of four CPUs whose drive has two queues, with these interrupts and rounds of
    /// packets since boot.
    fn said(rule: &str, interrupts: [[u64; 4]; 2], packets: [u64; 4]) -> Finding {
        let device = "/sys/devices/pci0000:00/0000:00:01.0";
        let disk = format!("{device}/nvme/nvme0/nvme0n1");
        let row = |counts: [u64; 4]| counts.map(|count| format!("{count:>8}")).concat();
        let text = format!(
            "/proc/sys/kernel/osrelease = 6.12.0\n/sys/devices/system/cpu/online = 0,2-4\n\
             /proc/interrupts |\n|          CPU0    CPU2    CPU3    CPU4\n\
             | 41: {}  PCI-MSIX-0000:00:01.0   1-edge      nvme0q1\n\
             | 42: {}  PCI-MSIX-0000:00:01.0   2-edge      nvme0q2\n\
             /proc/softirqs |\n|          CPU0    CPU2    CPU3    CPU4\n|      NET_RX: {}\n\
             /proc/irq/41/effective_affinity_list = 0\n/proc/irq/42/effective_affinity_list = 3\n\
             {device}/msi_irqs/41 = msix\n{device}/msi_irqs/42 = msix\n\
             {disk}/dev = 259:0\n{disk}/size = 2097152\n{disk}/device -> ../../nvme0\n\
             {device}/nvme/nvme0/device -> ../../../0000:00:01.0\n\
             /sys/block/nvme0n1 -> ..{rest}\n/sys/class/block/nvme0n1 -> ../..{rest}\n\
             /sys/dev/block/259:0 -> ../..{rest}\n",
            row(interrupts[0]),
            row(interrupts[1]),
            row(packets),
            rest = &disk[4..],
        );
        let root = Root::from_capture(&text).unwrap();
        let identity = crate::capture::device_named(&root, "nvme0n1").unwrap();
        let audit = Audit::of(&root, Some(&identity), Profile::Storage, Duration::ZERO).unwrap();
        audit.findings.into_iter().find(|finding| finding.rule == rule).unwrap()
    }

    #[test]
    fn one_cpu_that_takes_most_interrupts_is_named_by_its_own_number() {
        let skew = |interrupts| said("irq-completion-skew", interrupts, [0; 4]);
        let found = skew([[10, 0, 0, 0], [0, 5, 99_000, 5]]);
        assert_eq!(found.status, Status::Ok, "too few to tell: {}", found.reason);
        let found = skew([[10, 0, 0, 0], [0, 5, 150_000, 5]]);
        assert_eq!(found.status, Status::Advice);
        assert_eq!(found.reason, "since boot CPU 3 took 4.0 times the mean of 4");
        let found = skew([[100_000, 90_000, 0, 0], [0, 0, 150_000, 100_000]]);
        assert_eq!(found.status, Status::Ok, "{}", found.reason);
    }

    #[test]
    fn packets_matter_where_completions_arrive() {
        let collision = |packets| said("irq-softirq-collision", [[0; 4]; 2], packets);
        assert_eq!(collision([0, 0, 99_000, 0]).status, Status::Ok, "too few to tell");
        assert_eq!(collision([0, 500_000, 1000, 0]).status, Status::Ok, "another CPU's");
        assert_eq!(collision([200_000; 4]).status, Status::Ok, "spread");
        let found = collision([0, 1000, 99_000 * 5, 0]);
        assert_eq!(found.status, Status::Advice);
        assert_eq!(found.reason, "CPU 3 took 99 % of all rounds of received packets, and completions too");
    }
}
