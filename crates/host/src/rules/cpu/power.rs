//! Rules about clocks and idle states beyond the governor: bias, limits, turbo, latency requests.

use super::super::knob::{Verdict, cmdline, leave, need, number, settle, text, tmpfiles, write};
use crate::facts::HostFacts;
use crate::facts::hugepages::together;
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};

const CPU: &str = "/sys/devices/system/cpu";
/// What /dev/cpu_dma_latency reads while nobody asks for anything.
const NO_REQUEST_US: i64 = 2_000_000_000;

pub(in super::super) const RULES: &[Rule] = &[
    Rule {
        id: "cpu-epb",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "The energy bias asks for speed",
        why: "On Intel processors without hardware-managed P-states this bias, 0 to 15, says how fast \
              the clock follows the load. With an energy-performance preference that one counts.",
        source: "kernel: Documentation/admin-guide/pm/intel_epb.rst; tuned energy_perf_bias",
        effect: "quicker rise of the clock after idle",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(bias(host)),
    },
    Rule {
        id: "cpu-minfreq-floor",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "Known floor of the clock",
        why: "A floor of 100 % keeps the clock up between sparse requests. It is a choice for \
              benchmarks and hard latency targets, since it costs power all the time.",
        source: "tuned latency-performance and throughput-performance (min_perf_pct=100)",
        effect: "no ramp of the clock at all, for more heat",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(floor(host)),
    },
    Rule {
        id: "cpu-turbo-choice",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "Known state of turbo",
        why: "Turbo shortens the path of each request and makes the clock vary. The P4800X guide found \
              a better mean with it and a better tail without; SPDK turns it off for repeatable runs.",
        source: "Intel P4800X evaluation guide, tables 1 and 6; SPDK prep_benchmarks.sh",
        effect: "guide's table 6 at a fixed 3 GHz: 7.57 instead of 7.96 us mean, 9 instead of 15 us at \
              99 %",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(turbo(host)),
    },
    Rule {
        id: "cpu-pmqos-global",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "A latency request is held when it is needed",
        why: "A number written to /dev/cpu_dma_latency bounds the exit latency of all CPUs, but only \
              while the file stays open: a one-off echo does nothing.",
        source: "kernel: Documentation/admin-guide/pm/cpuidle.rst, kernel/power/qos.c in 6.12",
        effect: "the exit latency of idle states, see cpu-cstate-exit-latency",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(request(host)),
    },
    Rule {
        id: "cpu-pmqos-percpu-inverted",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "Per-CPU latency requests say what was meant",
        why: "In pm_qos_resume_latency_us 0 means that any latency is allowed and 'n/a' that none is. \
              Scripts that write 0 to forbid sleep do the opposite.",
        source: "kernel: Documentation/ABI/testing/sysfs-devices-power",
        effect: "no deep idle states on the CPUs that take completions",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(per_cpu(host)),
    },
    Rule {
        id: "cpu-idle-governor",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "The idle governor fits the machine",
        why: "menu and teo predict how long a CPU will sleep; ladder climbs step by step and suits no \
              fast device. Guests have haltpoll.",
        source: "kernel: Documentation/admin-guide/pm/cpuidle.rst; fio t/one-core-peak.sh (menu)",
        effect: "by workload",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(governor(host)),
    },
    Rule {
        id: "cpu-max-cstate-cmdline",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "Idle states are bounded at run time, not at boot",
        why: "intel_idle.max_cstate and processor.max_cstate bind every workload until the next boot. \
              intel_idle.max_cstate=0 even hands over to acpi_idle, which may sleep deeper.",
        source: "kernel: Documentation/admin-guide/pm/intel_idle.rst; RHEL 10 performance guide",
        effect: "the same latency, given back when nobody needs it",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(max_state(host)),
    },
    Rule {
        id: "cpu-thermal-throttle",
        scope: Scope::Cpu,
        profile: Profile::Any,
        title: "Cores are not slowed down for heat",
        why: "A throttled core looks like a slow drive.",
        source: "kernel: Documentation/ABI/testing/sysfs-devices-system-cpu (thermal_throttle), \
              Documentation/admin-guide/thermal/intel_thermal_throttle.rst",
        effect: "the full clock under load",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, _| settle(throttle(host)),
    },
];

fn bias(host: &HostFacts) -> Verdict {
    if host.cpu.policies.value().is_some_and(|list| list.iter().any(|policy| policy.epp.value().is_some())) {
        return leave("the energy-performance preference counts here, see cpu-epp-performance");
    }
    let path = format!("{CPU}/cpu*/power/energy_perf_bias");
    let fact = together(&host.machine.energy_bias, &path);
    let seen = need(&fact)?;
    let values: Vec<&String> = host.machine.energy_bias.iter().filter_map(|(_, fact)| fact.value()).collect();
    if values.iter().all(|value| value.as_str() == "0") {
        return Ok(Judgement::ok("0 on all CPUs").seen(&fact));
    }
    let old = values.first().map_or("6", |value| value.as_str());
    Ok(Judgement::advice(format!("{seen}: the hardware weighs energy against speed"))
        .seen(&fact)
        .fix(format!("echo 0 | tee {path}"), "a systemd unit that writes it at boot")
        .undo(format!("echo {old} | tee {path}")))
}

fn floor(host: &HostFacts) -> Verdict {
    let (percent, fact) = number::<u32>(host, "/sys/devices/system/cpu/intel_pstate/min_perf_pct")?;
    let reason = match percent {
        100 => "100 %: the clock never falls below its nominal maximum, at the price of power".to_owned(),
        _ => format!("{percent} %: fine in general; 100 is for benchmarks and hard latency targets"),
    };
    Ok(Judgement::ok(reason).seen(&fact))
}

fn turbo(host: &HostFacts) -> Verdict {
    let (off, boost) = (
        host.settings.number::<u32>("/sys/devices/system/cpu/intel_pstate/no_turbo"),
        host.settings.number::<u32>("/sys/devices/system/cpu/cpufreq/boost"),
    );
    let on = match (off.get(), boost.get()) {
        (Some(off), _) => off == 0,
        (None, Some(boost)) => boost == 1,
        _ => return leave("no switch for turbo: a guest, or the firmware decides"),
    };
    let fact = if off.get().is_some() { off } else { boost };
    let reason = match on {
        true => "on: best mean; for a comparison of tails measure without it too, and say which",
        false => "off: repeatable; the mean is a little worse than it could be",
    };
    Ok(Judgement::ok(reason).seen(&fact))
}

fn request(host: &HostFacts) -> Verdict {
    let (bound_us, fact) = number::<i64>(host, "/dev/cpu_dma_latency")?;
    let deepest = host.cpu.idle_states.value().into_iter().flatten();
    let deepest = deepest.filter(|state| state.enabled_cpus > 0).map(|state| state.latency_us).max();
    let deepest_us = deepest.unwrap_or(0);
    if bound_us < NO_REQUEST_US {
        return Ok(Judgement::ok(format!("somebody holds a request for {bound_us} us")).seen(&fact));
    }
    if host.cpu.idle_states.is_absent() {
        return leave("nobody asks, and the kernel manages no idle states here");
    }
    if deepest_us <= 8 {
        return Ok(Judgement::ok(format!("nobody asks, and no state takes more than {deepest_us} us"))
            .seen(&fact)
            .seen(&host.cpu.idle_states));
    }
    Ok(Judgement::advice(format!("nobody asks; idle states of up to {deepest_us} us are open"))
        .seen(&fact)
        .seen(&host.cpu.idle_states)
        .effect(format!("up to {deepest_us} us for each completion that wakes a CPU"))
        .fix(
            "hold /dev/cpu_dma_latency open with the bound in it while the workload runs",
            "tuned force_latency",
        ))
}

fn per_cpu(host: &HostFacts) -> Verdict {
    let fact = together(&host.machine.resume_latency, &format!("{CPU}/cpu*/power/pm_qos_resume_latency_us"));
    let seen = need(&fact)?;
    let all_open =
        host.machine.resume_latency.iter().all(|(_, fact)| fact.value().is_some_and(|text| text == "0"));
    let reason = match all_open {
        true => {
            "0 on all CPUs, which means any latency; write 'n/a' or a few us, never 0, to forbid deep sleep"
                .to_owned()
        }
        false => format!("{seen} (0 means any latency, n/a none)"),
    };
    Ok(Judgement::ok(reason).seen(&fact))
}

fn governor(host: &HostFacts) -> Verdict {
    let fact = &host.cpu.idle_governor;
    let active = need(fact)?.as_str();
    let guest = host.hypervisor.is_guest() == Some(true);
    let judgement = match (active, guest) {
        ("ladder", _) => {
            let path = format!("{CPU}/cpuidle/current_governor");
            Judgement::advice("ladder: leaves deep states step by step")
                .fix(format!("echo menu > {path}"), "kernel parameter cpuidle.governor=menu")
                .undo(format!("echo ladder > {path}"))
        }
        ("menu" | "teo", true) => {
            Judgement::ok(format!("{active}; a guest has haltpoll too, see cpu-haltpoll-guest"))
        }
        (other, _) => Judgement::ok(other.to_owned()),
    };
    Ok(judgement.seen(fact))
}

fn max_state(host: &HostFacts) -> Verdict {
    let line = &host.kernel.cmdline;
    cmdline(host)?;
    for name in ["intel_idle.max_cstate", "processor.max_cstate"] {
        let Some(value) = host.kernel.parameter(name) else { continue };
        let judgement = match (name, value) {
            ("intel_idle.max_cstate", "0") => Judgement::problem(
                "intel_idle.max_cstate=0 turns the driver off: acpi_idle takes over and may sleep deeper",
            ),
            _ => Judgement::advice(format!("{name}={value} binds every workload until the next boot")),
        };
        return Ok(judgement.seen(line).fix("", format!("drop {name} and hold a latency request instead")));
    }
    let module = host.settings.text("/sys/module/intel_idle/parameters/max_cstate");
    Ok(Judgement::ok("no idle state is forbidden at boot").seen(line).seen(&module))
}

fn throttle(host: &HostFacts) -> Verdict {
    let list = &host.machine.throttle_count;
    let fact = together(list, &format!("{CPU}/cpu*/thermal_throttle/core_throttle_count"));
    need(&fact)?;
    let counts = list.iter().filter_map(|(_, fact)| fact.value()?.parse::<u64>().ok());
    let total = counts.fold(0, u64::saturating_add);
    Ok(match total {
        0 => Judgement::ok("not once since boot"),
        _ => Judgement::advice(format!("{total} times since boot, over all CPUs")).fix("", "better cooling"),
    }
    .seen(&fact))
}

/// The workqueues' CPU mask, which the isolation rules look at too.
pub(super) fn workqueue_mask(host: &HostFacts, isolated: &str) -> Verdict {
    let path = "/sys/devices/virtual/workqueue/cpumask";
    let (mask, fact) = text(host, path)?;
    let Some(house) = super::isolation::housekeeping_mask(host, isolated, &mask) else {
        return Err(Box::new(Judgement::unknown("the CPUs to keep house cannot be told").seen(&fact)));
    };
    if mask.eq_ignore_ascii_case(&house) {
        return Ok(Judgement::ok(format!("{mask}: without the isolated CPUs {isolated}")).seen(&fact));
    }
    let judgement =
        Judgement::advice(format!("{mask}: kernel work also runs on the isolated CPUs {isolated}"));
    Ok(write(judgement, &fact, &house, tmpfiles(path, &house)))
}
