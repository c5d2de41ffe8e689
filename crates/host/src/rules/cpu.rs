//! Rules about processors: clock frequency, idle states, time source, mitigations, preemption.

pub(super) mod isolation;
pub(super) mod power;

use super::knob::{Verdict, need, number, settle, sysctl};
use super::{each_disk, numbered};
use crate::facts::cpu::{IdleState, Mitigation, Policy};
use crate::facts::kernel::{Preempt, Release};
use crate::facts::{Fact, HostFacts, parse, tally};
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::{DiskFacts, TargetFacts};
use overdrive_base::time::three_digits;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "cpu-governor-performance",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "CPUs run at full clock",
        why: "At low queue depth a CPU sleeps between requests, so the governor sees little load and \
              lowers the clock; submission and completion then run on a slow CPU.",
        source: "kernel: Documentation/admin-guide/pm/cpufreq.rst; tuned latency-performance; fio \
              t/one-core-peak.sh",
        effect: "microseconds off a sparse request at depth 1; nothing once the clock is at its \
              maximum",
        risk: Risk::Safe,
        verified: true,
        judge: governor,
    },
    Rule {
        id: "cpu-epp-performance",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "The hardware prefers speed over energy",
        why: "Where the processor chooses its own clock the governor's name decides little: the \
              energy-performance preference does.",
        source: "kernel: Documentation/admin-guide/pm/intel_pstate.rst, amd-pstate.rst",
        effect: "quicker rise of the clock after idle",
        risk: Risk::Safe,
        verified: true,
        judge: epp,
    },
    Rule {
        id: "cpu-cstate-exit-latency",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "Idle states are left quickly",
        why: "A completion that finds its CPU asleep waits for the idle state to be left; that time is \
              inside every latency measured.",
        source: "kernel: Documentation/admin-guide/pm/cpuidle.rst; tuned force_latency; RHEL 10 \
              performance guide",
        effect: "up to the exit latency of the deepest state used, for each completion that wakes a \
              CPU",
        risk: Risk::SideEffects,
        verified: true,
        judge: exit_latency,
    },
    Rule {
        id: "cpu-haltpoll-guest",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "A guest polls before it halts",
        why: "A virtual CPU that halts leaves the guest, and the hypervisor has to wake it for each \
              completion. The haltpoll driver spins for a while instead.",
        source: "kernel: Documentation/virt/guest-halt-polling.rst; KVM Forum 2020, 'The 10 us \
              challenge'",
        effect: "saves an exit and a wake-up per completion that comes within the polling time",
        risk: Risk::SideEffects,
        verified: true,
        judge: haltpoll,
    },
    Rule {
        id: "cpu-smt-poll-sibling",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "Polling threads do not share a core",
        why: "A thread that spins takes issue slots from the other thread of its core.",
        source: "kernel: Documentation/ABI/testing/sysfs-devices-system-cpu (smt); Intel P4800X \
              evaluation guide",
        effect: "full core speed for polling threads",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: smt,
    },
    Rule {
        id: "cpu-mitigations-cost",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "Known cost of mitigations",
        why: "Some mitigations lengthen every system call and interrupt, so the price is paid per I/O. \
              Batching submissions (io_uring) buys most of it back without giving up safety.",
        source: "kernel: Documentation/admin-guide/hw-vuln/ and kernel-parameters.txt (mitigations=)",
        effect: "fewer system calls per I/O, fewer times paid; never turn them off for a benchmark's \
              sake",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: mitigations,
    },
    Rule {
        id: "cpu-clocksource-tsc",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "Time is read from the processor",
        why: "Each request is timed several times, by the kernel and by programs. The TSC is read in \
              nanoseconds; hpet and acpi_pm are a device access of a microsecond.",
        source: "kernel: Documentation/timers/timekeeping.rst; seastar perftune.py",
        effect: "up to some microseconds a request where the source is a device",
        risk: Risk::SideEffects,
        verified: true,
        judge: clocksource,
    },
    Rule {
        id: "cpu-preempt-model",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "Known preemption model",
        why: "Full preemption shortens the wait of real-time threads and costs some throughput; none \
              and lazy favour I/O rates.",
        source: "kernel: kernel-parameters.txt (preempt=); commit 7dadeaa6e851 (7.0 keeps full and \
              lazy only)",
        effect: "a few per cent either way, by workload",
        risk: Risk::SideEffects,
        verified: true,
        judge: preempt,
    },
    Rule {
        id: "cpu-group-reweight",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "No group of tasks keeps a processor to itself",
        why: "In Linux 6.13 to 6.18 a running group gets back what it has used whenever its weight \
              changes. A session or service that switches often on one processor, and has a little \
              to do on another, then runs there alone for up to seconds; the kernel's own threads \
              wait as well.",
        source: "kernel: commit 6d71a9c61604, taken back by 101f3498b4bd (Linux 7.0, stable 6.18.45); \
              docs/memory-measured.md",
        effect: "a thread that slept for 1 ms came up to 1.7 s late, 4 to 7 ms without groups",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(group_reweight(host)),
    },
];

const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";

/// The frequency policies of CPUs that are online, or why they do not matter here.
fn policies(host: &HostFacts) -> Result<Vec<&Policy>, Box<Judgement>> {
    let fact = &host.cpu.policies;
    let online = fact.value().into_iter().flatten().filter(|policy| !policy.is_offline());
    let judgement = match fact.value() {
        Some(list) if !list.is_empty() => return Ok(online.collect()),
        None if !fact.is_absent() => Judgement::missing(fact),
        _ if host.hypervisor.is_guest() == Some(true) => Judgement::not_applicable(
            "a virtual machine without cpufreq: the hypervisor's host sets the clock",
        ),
        _ => Judgement::not_applicable("no cpufreq driver: the clock is fixed or the firmware sets it"),
    };
    Err(Box::new(judgement))
}

/// A file of each of these policies, as one pattern; those that are offline can be neither read nor written.
fn files(host: &HostFacts, policies: &[&Policy], name: &str) -> String {
    let names: Vec<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
    match host.cpu.policies.value().is_some_and(|all| names.len() < all.len()) {
        false => format!("{CPUFREQ}/policy*/{name}"),
        true => format!("{CPUFREQ}/{{{}}}/{name}", names.join(",")),
    }
}

/// Whether the hardware chooses the clock by itself, so that `powersave` does not mean slow.
fn is_autonomous(policy: &Policy) -> bool {
    let driver = policy.driver.value().map(String::as_str);
    matches!(driver, Some("intel_pstate" | "amd-pstate-epp")) && policy.epp.value().is_some()
}

fn wants_speed(epp: &str) -> bool {
    matches!(epp, "performance" | "0")
}

fn governor(host: &HostFacts, _: &TargetFacts) -> Judgement {
    let policies = match policies(host) {
        Ok(policies) => policies,
        Err(judgement) => return *judgement,
    };
    if let Some(policy) = policies.iter().find(|policy| policy.governor.value().is_none()) {
        return Judgement::missing(&policy.governor);
    }
    let governors = policies.iter().filter_map(|policy| policy.governor.value());
    let summary = tally(governors.clone());
    let Some(first) = policies.first() else { return Judgement::missing(&host.cpu.policies) };
    let path = files(host, &policies, "scaling_governor");
    let told = Fact::known((), &summary, &path);
    if governors.clone().all(|governor| governor == "performance") {
        return Judgement::ok(format!("{summary} on all policies")).seen(&told);
    }
    let autonomous = policies.iter().all(|policy| is_autonomous(policy));
    if autonomous && policies.iter().all(|policy| policy.epp.value().is_some_and(|epp| wants_speed(epp))) {
        let reason = "the hardware chooses the clock and is told to prefer performance";
        return Judgement::ok(format!("{summary}: {reason}"))
            .seen(&told)
            .seen(&first.epp)
            .seen(&first.driver);
    }
    let judgement = if autonomous {
        Judgement::advice(format!(
            "{summary}: the hardware chooses the clock, by the energy-performance preference"
        ))
    } else {
        Judgement::problem(format!("{summary}: the clock falls between sparse requests"))
    };
    judgement
        .seen(&told)
        .seen(&first.driver)
        .fix(
            format!("echo performance | tee {path}"),
            "a systemd unit that writes it at boot, or tuned with [cpu] governor=performance",
        )
        .undo(undo_policies(&policies, &path, |policy| &policy.governor))
}

/// One command when all policies had the same value, else one a policy.
fn undo_policies(policies: &[&Policy], pattern: &str, old: impl Fn(&Policy) -> &Fact<String>) -> String {
    let values: Vec<(&str, &str)> = policies
        .iter()
        .filter_map(|policy| Some((old(policy).path(), old(policy).value()?.as_str())))
        .collect();
    match values.first() {
        Some((_, first)) if values.iter().all(|(_, value)| value == first) => {
            format!("echo {first} | tee {pattern}")
        }
        _ => {
            let line = |(path, value): &(&str, &str)| format!("echo {value} > {path}");
            values.iter().map(line).collect::<Vec<_>>().join("; ")
        }
    }
}

fn epp(host: &HostFacts, _: &TargetFacts) -> Judgement {
    let policies = match policies(host) {
        Ok(policies) => policies,
        Err(judgement) => return *judgement,
    };
    if let Some(policy) =
        policies.iter().find(|policy| policy.epp.value().is_none() && !policy.epp.is_absent())
    {
        return Judgement::missing(&policy.epp);
    }
    let preferences: Vec<&String> = policies.iter().filter_map(|policy| policy.epp.value()).collect();
    if preferences.is_empty() {
        return Judgement::not_applicable("this driver or processor has no energy-performance preference");
    }
    let summary = tally(&preferences);
    let path = files(host, &policies, "energy_performance_preference");
    let told = Fact::known((), &summary, &path);
    if preferences.iter().all(|preference| wants_speed(preference)) {
        return Judgement::ok(format!("{summary} on all policies")).seen(&told);
    }
    let is_forced = policies.iter().all(|policy| {
        policy.driver.value().is_some_and(|driver| driver == "intel_pstate")
            && policy.governor.value().is_some_and(|governor| governor == "performance")
    });
    if is_forced {
        let reason = "intel_pstate under the performance governor asks for performance whatever this says";
        return Judgement::ok(format!("{summary}, but {reason}")).seen(&told).seen(&policies[0].governor);
    }
    Judgement::advice(format!("{summary}: the hardware may clock down between requests"))
        .seen(&told)
        .fix(format!("echo performance | tee {path}"), "a systemd unit that writes it at boot")
        .undo(undo_policies(&policies, &path, |policy| &policy.epp))
}

/// The exit latency a disk of this model can bear: about a tenth of its read time at depth 1.
fn bearable_us(disk: &DiskFacts) -> (u64, &'static str) {
    let model = disk.model().unwrap_or_default();
    let is_optane = ["Optane", "OPTANE", "SSDPE21", "SSDPED1", "SSDPEL1", "SSDPF21"]
        .iter()
        .any(|mark| model.contains(mark));
    // Not below 2 us: C1 itself takes that, and without it the CPU never rests.
    if is_optane { (2, "10 us") } else { (8, "80 us") }
}

fn exit_latency(host: &HostFacts, target: &TargetFacts) -> Judgement {
    let fact = &host.cpu.idle_states;
    let Some(states) = fact.value() else {
        return match fact.is_absent() {
            true => Judgement::not_applicable("the kernel manages no idle states here"),
            false => Judgement::missing(fact),
        };
    };
    let guest = match host.hypervisor.is_guest() {
        Some(true) => "; what the hypervisor adds to wake a halted CPU is not in it, see cpu-haltpoll-guest",
        _ => "",
    };
    each_disk(target, |disk| {
        let (bearable, read_time) = bearable_us(disk);
        let slow: Vec<&IdleState> =
            states.iter().filter(|state| state.enabled_cpus > 0 && state.latency_us > bearable).collect();
        let Some(deepest) = slow.iter().max_by_key(|state| state.latency_us) else {
            let deepest =
                states.iter().filter(|state| state.enabled_cpus > 0).map(|state| state.latency_us).max();
            return Judgement::ok(format!(
                "no enabled state takes longer than {} us to leave; {bearable} us would do for a disk \
                 that reads in about {read_time}{guest}",
                deepest.unwrap_or(0)
            ))
            .seen(fact);
        };
        let reason = format!(
            "{} takes {} us to leave; {bearable} us would do for a disk that reads in about {read_time}",
            deepest.name, deepest.latency_us
        );
        let files: Vec<String> = slow.iter().map(|state| format!("state{}", state.index)).collect();
        let files = match files.as_slice() {
            [one] => one.clone(),
            several => format!("{{{}}}", several.join(",")),
        };
        let disable = format!("/sys/devices/system/cpu/cpu*/cpuidle/{files}/disable");
        Judgement::advice(reason)
            .seen(fact)
            .effect(wake_cost(states, deepest))
            .fix(
                format!("echo 1 | tee {disable}"),
                format!(
                    "a service holding /dev/cpu_dma_latency open with {bearable} (us), or tuned force_latency"
                ),
            )
            .undo(format!("echo 0 | tee {disable}"))
    })
}

/// What leaving idle states has cost on this host, from its own counters.
fn wake_cost(states: &[IdleState], deepest: &IdleState) -> String {
    let wakes = parse::sum(states.iter().map(|state| state.usage));
    if wakes == 0 {
        return format!("up to {} us for each completion that wakes a CPU", deepest.latency_us);
    }
    let spent: f64 = states.iter().map(|state| state.usage as f64 * state.latency_us as f64).sum();
    let share = 100.0 * deepest.usage as f64 / wakes as f64;
    format!(
        "up to {} us for each completion that wakes a CPU; since boot {share:.0} % of wake-ups were from \
         {}, {} us on average",
        deepest.latency_us,
        deepest.name,
        three_digits(spent / wakes as f64)
    )
}

fn haltpoll(host: &HostFacts, _: &TargetFacts) -> Judgement {
    let guest = &host.hypervisor.flag;
    match host.hypervisor.is_guest() {
        Some(true) => {}
        Some(false) => return Judgement::not_applicable("this is no virtual machine"),
        None => return Judgement::missing(guest),
    }
    let (driver, poll) = (&host.cpu.idle_driver, &host.cpu.guest_halt_poll_ns);
    let fix =
        "modprobe cpuidle-haltpoll, then echo 200000 > /sys/module/haltpoll/parameters/guest_halt_poll_ns";
    let persistent = "kernel parameters cpuidle_haltpoll.force=1 haltpoll.guest_halt_poll_ns=200000";
    match (driver.value().map(String::as_str), poll.get()) {
        (Some("haltpoll"), Some(0)) => Judgement::advice(
            "the haltpoll driver is active, but its polling time is 0: an idle virtual CPU halts at once",
        )
        .seen(driver)
        .seen(poll)
        .fix(format!("echo 200000 > {}", poll.path()), "kernel parameter haltpoll.guest_halt_poll_ns=200000")
        .undo(format!("echo 0 > {}", poll.path())),
        (Some("haltpoll"), Some(time)) => Judgement::ok(format!(
            "an idle virtual CPU polls for up to {} us first",
            three_digits(time as f64 / 1e3)
        ))
        .seen(driver)
        .seen(poll),
        (Some(name), _) => {
            Judgement::advice(format!("idle driver {name}: an idle virtual CPU leaves the guest"))
                .seen(driver)
                .fix(fix, persistent)
        }
        (None, _) if driver.is_absent() => {
            Judgement::advice("no idle driver: an idle virtual CPU leaves the guest")
                .seen(driver)
                .fix(fix, persistent)
        }
        (None, _) => Judgement::missing(driver),
    }
}

fn smt(host: &HostFacts, _: &TargetFacts) -> Judgement {
    let active = &host.cpu.smt_active;
    let Some(is_active) = active.get() else {
        return match active.is_absent() {
            true => Judgement::not_applicable("this kernel knows no SMT"),
            false => Judgement::missing(active),
        };
    };
    if !is_active {
        return Judgement::ok("no two online CPUs share a core").seen(active).seen(&host.cpu.smt_control);
    }
    let pairs = host.cpu.siblings.value();
    let example =
        pairs.and_then(|pairs| pairs.first()).map_or_else(String::new, |pair| format!(", for one {pair}"));
    let count = pairs.map_or(0, Vec::len);
    Judgement::advice(format!(
        "{count} cores run two threads{example}: pin a polling thread where the other is idle"
    ))
    .seen(active)
    .seen(&host.cpu.siblings)
}

/// Mitigations that lengthen entering or leaving the kernel, by flaw and a word of their state.
fn is_paid_per_entry(flaw: &Mitigation) -> bool {
    let has = |word: &str| flaw.state.contains(word);
    match flaw.flaw.as_str() {
        "meltdown" => has("PTI"),
        "mds" | "tsx_async_abort" | "mmio_stale_data" | "reg_file_data_sampling" | "tsa" => {
            has("Clear CPU buffers")
        }
        "spectre_v2" => {
            has("Retpolines") || (has("IBRS") && !has("Enhanced") && !has("Automatic") && !has("Retpolines"))
        }
        "retbleed" => has("untrained return thunk") || has("IBPB") || has("Mitigation: IBRS"),
        "spec_rstack_overflow" => has("Safe RET") || has("IBPB"),
        "indirect_target_selection" => has("thunks"),
        _ => false,
    }
}

fn mitigations(host: &HostFacts, _: &TargetFacts) -> Judgement {
    let fact = &host.cpu.mitigations;
    let Some(flaws) = fact.value() else { return Judgement::missing(fact) };
    let paid: Vec<&Mitigation> =
        flaws.iter().filter(|flaw| flaw.is_mitigated() && is_paid_per_entry(flaw)).collect();
    let asked = host.kernel.parameter("mitigations").map_or("default", |value| value);
    let detail: Vec<String> = paid.iter().map(|flaw| format!("{}: {}", flaw.flaw, flaw.state)).collect();
    let judgement = if paid.is_empty() {
        Judgement::ok(format!("none in force lengthens entering the kernel (mitigations={asked})"))
    } else {
        let names: Vec<&str> = paid.iter().map(|flaw| flaw.flaw.as_str()).collect();
        let reason = "paid in kernel code on each system call or interrupt";
        Judgement::advice(format!("{}: {reason} (mitigations={asked})", names.join(", ")))
    };
    let told = if detail.is_empty() { format!("{} flaws listed", flaws.len()) } else { detail.join(" | ") };
    judgement.seen(&Fact::known((), told, fact.path())).seen(&host.kernel.cmdline)
}

fn clocksource(host: &HostFacts, _: &TargetFacts) -> Judgement {
    let fact = &host.clock.current;
    let Some(current) = fact.value() else { return Judgement::missing(fact) };
    let has_tsc = host.clock.available.value().is_some_and(|names| names.iter().any(|name| name == "tsc"));
    let judgement = match current.as_str() {
        "tsc"
        | "kvm-clock"
        | "arch_sys_counter"
        | "hyperv_clocksource_tsc_page"
        | "timebase"
        | "riscv_clocksource" => {
            return Judgement::ok(format!("{current}: read without leaving the CPU")).seen(fact);
        }
        slow @ ("hpet" | "acpi_pm" | "jiffies" | "refined-jiffies" | "pit") => {
            Judgement::problem(format!("{slow}: each reading is a device access or coarse"))
        }
        other => Judgement::advice(format!("{other}: slower than the TSC")),
    };
    let judgement = judgement.seen(fact).seen(&host.clock.available);
    if has_tsc {
        judgement
            .fix(format!("echo tsc > {}", fact.path()), "kernel parameter clocksource=tsc")
            .undo(format!("echo {current} > {}", fact.path()))
    } else {
        judgement
            .fix("", "find in the kernel log why the TSC was given up; do not force tsc=reliable blindly")
    }
}

fn preempt(host: &HostFacts, _: &TargetFacts) -> Judgement {
    let fact = &host.kernel.preempt;
    let version = &host.kernel.version;
    let Some(model) = fact.get() else { return Judgement::missing(fact).seen(version) };
    let judgement = match model {
        Preempt::RealTime => {
            Judgement::advice("a real-time kernel: interrupts become threads, completions wake twice")
        }
        Preempt::Full => Judgement::ok("full: short waits for real-time threads, at some cost in I/O rate"),
        Preempt::None | Preempt::Voluntary => Judgement::ok("the kernel is not preempted: best I/O rate"),
        Preempt::Lazy => Judgement::ok("lazy: close to none for ordinary threads"),
    };
    judgement.seen(fact).seen(version)
}

/// Whether this kernel gives a running group its time back. None: vendors may have taken the change or its
/// end into such a kernel, or it is not known.
fn gives_time_back(release: &Release) -> Option<bool> {
    match (release.major, release.minor, release.patch) {
        (6, 13..=17, _) | (6, 18, Some(..45)) => Some(true),
        (6, 6..=12, _) | (6, 18, None) | (6, 19, _) => None,
        _ => Some(false),
    }
}

fn group_reweight(host: &HostFacts) -> Verdict {
    let release = need(&host.kernel.release)?;
    let (grouped, fact) = number::<u32>(host, "/proc/sys/kernel/sched_autogroup_enabled")?;
    let judgement = match (gives_time_back(release), grouped) {
        (Some(false), _) => Judgement::ok("not in this kernel").seen(&fact),
        (None, _) => Judgement::ok("this kernel may do so or not, by what was taken into it").seen(&fact),
        (Some(true), 0) => {
            Judgement::ok("sessions are no groups; services in control groups may be").seen(&fact)
        }
        (Some(true), _) => sysctl(
            Judgement::advice("each session is a group, and this kernel gives a running group its time back"),
            &fact,
            0,
        ),
    };
    Ok(judgement.seen(&host.kernel.release))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_give_a_running_group_its_time_back_are_known_by_their_release() {
        let told =
            |major, minor, patch| gives_time_back(&Release { major, minor, patch, text: String::new() });
        for (release, answer) in [
            ((5, 15, Some(0)), Some(false)),
            ((6, 5, Some(13)), Some(false)),
            ((6, 12, Some(41)), None),
            ((6, 13, Some(0)), Some(true)),
            ((6, 17, None), Some(true)),
            ((6, 18, None), None),
            ((6, 18, Some(44)), Some(true)),
            ((6, 18, Some(45)), Some(false)),
            ((6, 19, Some(3)), None),
            ((7, 0, None), Some(false)),
        ] {
            assert_eq!(told(release.0, release.1, release.2), answer, "{release:?}");
        }
    }
}
