//! Rules about keeping CPUs for one purpose: isolation, ticks, callbacks, watchdogs.

use super::super::knob::{Verdict, cmdline, leave, number, settle, sysctl, text};
use super::power::workqueue_mask;
use crate::facts::HostFacts;
use crate::facts::parse::{self, CpuSet};
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::TargetFacts;

const ISOLATED: &str = "/sys/devices/system/cpu/isolated";
const NOHZ: &str = "/sys/devices/system/cpu/nohz_full";

pub(in super::super) const RULES: &[Rule] = &[
    Rule {
        id: "cpu-isolation-consistent",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "Isolation and queues fit together",
        why: "A hardware queue whose CPUs are all isolated has nobody to serve it but the program that \
              was put there. isolcpus is marked deprecated in favour of cpuset partitions, which need \
              no reboot.",
        source: "kernel: kernel-parameters.txt (isolcpus=); SUSE Edge guide (four queues left under \
              managed_irq)",
        effect: "no request waits for an isolated CPU",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, target| settle(isolation(host, target)),
    },
    Rule {
        id: "cpu-managed-irq-flag",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "Isolated CPUs are spared NVMe interrupts",
        why: "The driver's interrupts are managed by the kernel: only isolcpus=managed_irq keeps them \
              off isolated CPUs, and only where the queue has other CPUs too.",
        source: "kernel: kernel-parameters.txt (isolcpus=managed_irq)",
        effect: "no device interrupt on isolated CPUs",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(managed_flag(host)),
    },
    Rule {
        id: "cpu-nohz-full",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "The tick is off only for pinned pollers",
        why: "nohz_full takes the tick off a CPU that runs one thread, and makes every system call and \
              interrupt entry there dearer: right for a poller, wrong for interrupt-driven I/O.",
        source: "kernel: Documentation/timers/no_hz.rst, kernel-parameters.txt (nohz_full=)",
        effect: "no tick in the tail of a polling thread",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(nohz(host)),
    },
    Rule {
        id: "cpu-rcu-nocbs",
        scope: Scope::Cpu,
        profile: Profile::Memory,
        title: "RCU callbacks do not run where pages come in",
        why: "Callbacks run in the softirq of the CPU that completes a page's read, and sit in its \
              tail. Documents for fast swap ask for rcu_nocbs; one of them also prints rcu_nocb=, \
              which never existed.",
        source: "kernel: kernel-parameters.txt (rcu_nocbs=); Intel 340608; P4800X guide, appendix A",
        effect: "shorter tail above 99.999 % of swap-ins, for some kernel threads and wake-ups",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(no_callbacks(host)),
    },
    Rule {
        id: "cpu-workqueue-mask",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "Kernel work stays off isolated CPUs",
        why: "Unbound work of the kernel runs on any CPU of its mask, isolated ones included.",
        source: "kernel: Documentation/core-api/workqueue.rst; tuned cpu-partitioning",
        effect: "no kernel work beside a pinned poller",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(workqueues(host)),
    },
    Rule {
        id: "cpu-watchdogs",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "No periodic non-maskable interrupt",
        why: "The hard-lockup watchdog takes a counter of each CPU and interrupts it every few \
              seconds. With a hardware watchdog in the machine's controller it can go.",
        source: "kernel: Documentation/admin-guide/lockup-watchdogs.rst; tuned network-latency",
        effect: "one rare interruption less, and one hardware counter more",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(watchdog(host)),
    },
    Rule {
        id: "cpu-timer-migration",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "Timers stay where they were set",
        why: "Timers of idle CPUs move to busy ones; with pinned threads that puts others' timers into \
              the busy thread's way.",
        source: "kernel: Documentation/admin-guide/sysctl/kernel.rst (timer_migration); tuned \
              network-latency",
        effect: "a quieter CPU for pinned threads",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(timers(host)),
    },
    Rule {
        id: "cpu-rt-throttling",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "Known limit on real-time threads",
        why: "A SCHED_FIFO poller that never sleeps is stopped for the rest of each period, 50 ms a \
              second by default. Without the limit a stuck poller locks its CPU.",
        source: "kernel: Documentation/scheduler/sched-rt-group.rst",
        effect: "none for ordinary threads; a pause of each period for a real-time poller",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, _| settle(real_time(host)),
    },
];

/// The list in a file of CPU numbers, `None` when it is empty: the kernel writes `(null)` for an empty mask.
fn list(host: &HostFacts, path: &str) -> Option<CpuSet> {
    let fact = host.settings.text(path);
    let set = parse::cpu_list(fact.value()?.trim().trim_matches(['(', ')'])).ok()?;
    (!set.is_empty()).then_some(set)
}

/// The isolated CPUs, or that there are none.
fn isolated(host: &HostFacts) -> Result<CpuSet, Box<Judgement>> {
    let fact = host.settings.text(ISOLATED);
    match (list(host, ISOLATED), fact.value()) {
        (Some(set), _) => Ok(set),
        (None, Some(_)) => leave("no CPU is isolated"),
        (None, None) => text(host, ISOLATED).map(|_| CpuSet::default()),
    }
}

/// The mask of the CPUs that are not isolated, with as many digits as the mask in force has: so it reads back
/// as it was written.
pub(in super::super) fn housekeeping_mask(
    host: &HostFacts,
    isolated: &str,
    in_force: &str,
) -> Option<String> {
    let isolated = parse::cpu_list(isolated).ok()?;
    let house: CpuSet = host.cpu.online.value()?.iter().filter(|&cpu| !isolated.contains(cpu)).collect();
    let digits = in_force.chars().filter(char::is_ascii_hexdigit).count() as u32;
    if house.iter().max()? >= 4 * digits {
        return None;
    }
    let digit = |place: u32| (0..4).filter(|bit| house.contains(4 * place + bit)).map(|bit| 1 << bit).sum();
    let mut mask = String::new();
    for place in (0..digits).rev() {
        mask.extend(char::from_digit(digit(place), 16));
        // Groups of eight, counted from the right.
        mask.extend((place > 0 && place % 8 == 0).then_some(','));
    }
    Some(mask)
}

fn isolation(host: &HostFacts, target: &TargetFacts) -> Verdict {
    let set = isolated(host)?;
    let fact = host.settings.text(ISOLATED);
    let mut lonely = Vec::new();
    for disk in &target.disks {
        let queues = disk.block.hardware_queues.value().into_iter().flatten();
        let only = queues.filter(|queue| !queue.cpus.is_empty() && queue.cpus.is_subset_of(&set)).count();
        if only > 0 {
            lonely.push(format!("{} of {}", super::numbered(only, "queue"), disk.name()));
        }
    }
    let judgement = match lonely.is_empty() {
        true => Judgement::ok(format!("CPUs {set} are isolated; every queue has another CPU")),
        false => Judgement::advice(format!(
            "CPUs {set} are isolated, and {} belong to isolated CPUs alone: right only if the program runs there",
            lonely.join(", ")
        ))
        .fix("", "a cpuset partition (cpuset.cpus.partition=isolated) instead of isolcpus"),
    };
    Ok(judgement.seen(&fact))
}

fn managed_flag(host: &HostFacts) -> Verdict {
    let set = isolated(host)?;
    let flags = host.kernel.parameter("isolcpus").unwrap_or_default();
    let judgement = match flags.split(',').any(|flag| flag == "managed_irq") {
        true => Judgement::ok(format!("managed_irq keeps them off CPUs {set} where it can")),
        false => Judgement::advice(format!("CPUs {set} are isolated and take NVMe interrupts all the same"))
            .fix("", format!("kernel parameter isolcpus=managed_irq,domain,{set}")),
    };
    Ok(judgement.seen(&host.kernel.cmdline).seen(&host.settings.text(ISOLATED)))
}

fn nohz(host: &HostFacts) -> Verdict {
    let fact = host.settings.text(NOHZ);
    let Some(set) = list(host, NOHZ) else {
        return match host.kernel.parameter("nohz_full") {
            Some(value) => {
                Ok(Judgement::advice(format!("nohz_full={value} was asked for and is not in force"))
                    .seen(&host.kernel.cmdline)
                    .seen(&fact)
                    .fix("", "a kernel built with CONFIG_NO_HZ_FULL"))
            }
            None => leave("no CPU runs without a tick"),
        };
    };
    let takers = host.cpu.online.value().is_some_and(|online| online.len() <= set.len() + 1);
    let judgement = match takers {
        true => Judgement::advice(format!(
            "CPUs {set}, nearly all of them: system calls and interrupts are dearer there"
        ))
        .fix("", "kernel parameter nohz_full= with the CPUs of pinned pollers only"),
        false => Judgement::ok(format!("CPUs {set}: pin exactly one busy thread to each")),
    };
    Ok(judgement.seen(&fact))
}

fn no_callbacks(host: &HostFacts) -> Verdict {
    cmdline(host)?;
    let line = &host.kernel.cmdline;
    if host.kernel.parameter("rcu_nocb").is_some() {
        return Ok(Judgement::problem("rcu_nocb= is no parameter of any kernel; rcu_nocbs= was meant")
            .seen(line)
            .fix("", "kernel parameter rcu_nocbs=all"));
    }
    let option = |name| host.kernel.option(name);
    if option("CONFIG_RCU_NOCB_CPU") == Some(false) {
        return leave("this kernel was built without callbacks in threads (CONFIG_RCU_NOCB_CPU)");
    }
    let is_lazy = match (option("CONFIG_RCU_LAZY"), option("CONFIG_RCU_LAZY_DEFAULT_OFF")) {
        (Some(true), Some(off)) => Some(!off),
        (lazy, _) => lazy,
    };
    let seen = |judgement: Judgement| match host.kernel.config.value() {
        Some(_) => judgement.seen(line).seen(&host.kernel.config),
        None => judgement.seen(line),
    };
    if let Some(cpus) = host.kernel.parameter("rcu_nocbs") {
        return Ok(seen(Judgement::ok(format!("rcu_nocbs={cpus}: callbacks run in threads of their own"))));
    }
    if option("CONFIG_RCU_NOCB_CPU_DEFAULT_ALL") == Some(true) {
        return Ok(seen(Judgement::ok("built so that callbacks run in threads of their own")));
    }
    let fix = match is_lazy {
        Some(true) => "kernel parameter rcu_nocbs=all; kernel parameter rcutree.enable_rcu_lazy=0",
        Some(false) => "kernel parameter rcu_nocbs=all",
        None => "kernel parameter rcu_nocbs=all, with rcutree.enable_rcu_lazy=0 where CONFIG_RCU_LAZY is set",
    };
    let advice = Judgement::advice("callbacks run in the softirq of the CPU that faults or completes");
    Ok(seen(advice.fix("", fix)))
}

fn workqueues(host: &HostFacts) -> Verdict {
    let set = isolated(host)?;
    workqueue_mask(host, &set.to_string())
}

fn watchdog(host: &HostFacts) -> Verdict {
    let (on, fact) = number::<u32>(host, "/proc/sys/kernel/nmi_watchdog")?;
    if on == 0 {
        return Ok(Judgement::ok("off").seen(&fact));
    }
    let judgement =
        Judgement::advice("on: every CPU is interrupted every few seconds to see whether it lives");
    Ok(sysctl(judgement, &fact, 0))
}

fn timers(host: &HostFacts) -> Verdict {
    let (on, fact) = number::<u32>(host, "/proc/sys/kernel/timer_migration")?;
    let pinned = list(host, ISOLATED).is_some() || list(host, NOHZ).is_some();
    Ok(match (on, pinned) {
        (0, _) => Judgement::ok("0: timers do not move").seen(&fact),
        (_, false) => {
            Judgement::ok("on, which is right while no CPU is set apart for pinned threads").seen(&fact)
        }
        (_, true) => sysctl(Judgement::advice("timers of others move to the CPUs set apart"), &fact, 0),
    })
}

fn real_time(host: &HostFacts) -> Verdict {
    let (runtime, fact) = number::<i64>(host, "/proc/sys/kernel/sched_rt_runtime_us")?;
    let (period, other) = number::<i64>(host, "/proc/sys/kernel/sched_rt_period_us")?;
    let reason = match runtime {
        -1 => "unlimited: a stuck real-time thread locks its CPU".to_owned(),
        _ => {
            format!("{runtime} of {period} us: a real-time poller that never sleeps is stopped for the rest")
        }
    };
    Ok(Judgement::ok(reason).seen(&fact).seen(&other))
}
