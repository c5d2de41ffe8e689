//! Rules about the boot command line, the kernel's build, and configuration that waits for a reboot.

use super::knob::{Verdict, cmdline, leave, need, settle, text};
use crate::facts::parse;
use crate::facts::{Fact, HostFacts};
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "boot-unknown-parameters",
        scope: Scope::Boot,
        profile: Profile::Any,
        title: "Every boot parameter exists",
        why: "The kernel ignores a parameter it does not know, or no longer acts on, and boots all the \
              same. Guides and scripts hand such words on for years.",
        source: "kernel: kernel-parameters.txt in 6.12; the knobs' own sources",
        effect: "settings that do what their words say",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(unknown(host)),
    },
    Rule {
        id: "boot-pending-reboot",
        scope: Scope::Boot,
        profile: Profile::Any,
        title: "The running command line is the configured one",
        why: "A parameter added to the boot loader counts from the next boot only.",
        source: "tuned bootloader plug-in; /etc/default/grub",
        effect: "settings that are in force, not only written down",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, _| settle(pending(host)),
    },
    Rule {
        id: "boot-audit-syscalls",
        scope: Scope::Boot,
        profile: Profile::Any,
        title: "System calls are not audited",
        why: "With audit rules on system calls every call takes the slow way in and out.",
        source: "kernel: kernel/auditsc.c in 6.12; auditctl(8)",
        effect: "shorter system calls; whether audit may go is a matter of policy",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, _| settle(audit(host)),
    },
    Rule {
        id: "boot-init-on-alloc",
        scope: Scope::Boot,
        profile: Profile::Memory,
        title: "Pages are not zeroed before they are overwritten",
        why: "init_on_alloc zeroes each page, also those that a swap-in fills right after.",
        source: "kernel: kernel-parameters.txt (init_on_alloc=)",
        effect: "4 KiB less to write for each fault; it is a safety net against leaks, so by policy \
              only",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, _| settle(init_on_alloc(host)),
    },
    Rule {
        id: "boot-debug-kernel",
        scope: Scope::Boot,
        profile: Profile::Any,
        title: "The kernel is not built for debugging",
        why: "Checkers of memory and locks make the kernel's paths several times longer.",
        source: "kernel: lib/Kconfig.debug",
        effect: "2 to 10 times shorter kernel paths where one is on",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, _| settle(debug(host)),
    },
    Rule {
        id: "boot-idle-poll-harm",
        scope: Scope::Boot,
        profile: Profile::Any,
        title: "Idle CPUs do not spin",
        why: "idle=poll heats every idle CPU, takes turbo from busy ones and issue slots from their \
              siblings; the kernel's own text advises against it.",
        source: "kernel: kernel-parameters.txt (idle=)",
        effect: "turbo and siblings back; latency by request instead, see cpu-pmqos-global",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(idle_poll(host)),
    },
    Rule {
        id: "boot-skew-tick",
        scope: Scope::Boot,
        profile: Profile::Any,
        title: "Ticks of many CPUs do not fall together",
        why: "On a machine of many CPUs all ticks at one moment contend for the same locks; \
              skew_tick=1 spreads them, for some power.",
        source: "kernel: kernel-parameters.txt (skew_tick=); tuned network-latency",
        effect: "less jitter at the tick on machines of 64 CPUs and more",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(skew_tick(host)),
    },
    Rule {
        id: "boot-lockdown",
        scope: Scope::Boot,
        profile: Profile::Any,
        title: "Known lockdown",
        why: "Under lockdown some fixes and tracers are refused to root as well: configuration space, \
              model-specific registers, kprobes.",
        source: "kernel: security/lockdown; kernel_lockdown(7)",
        effect: "knowing beforehand what will be refused",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, _| settle(lockdown(host)),
    },
    Rule {
        id: "boot-nvme-module-params",
        scope: Scope::Boot,
        profile: Profile::Any,
        title: "Options of the NVMe driver are in force",
        why: "The driver is loaded from the initial ramdisk: a change in /etc/modprobe.d counts only \
              after that was rebuilt.",
        source: "dracut(8), update-initramfs(8); P4800X guide, section 4",
        effect: "the queues and depths that were asked for",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(module_params(host)),
    },
    Rule {
        id: "boot-sysctl-owners",
        scope: Scope::Boot,
        profile: Profile::Any,
        title: "Each sysctl has one owner",
        why: "Files of sysctl.d apply in order of their names and the last wins; a value that differs \
              from all of them was set by hand or by a daemon and is gone after the next boot.",
        source: "sysctl.d(5); tuned (reapply_sysctl)",
        effect: "values that stay",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(sysctl_owners(host)),
    },
];

/// Parameters that do nothing, with the reason and the first kernel for which that is so.
const DEAD: &[(&str, (u32, u32), &str)] = &[
    ("elevator", (5, 0), "ignored by multi-queue disks; a udev rule sets the scheduler"),
    ("rcu_nocb", (0, 0), "never existed; rcu_nocbs was meant"),
    ("nvme_poll_queues", (0, 0), "never existed; nvme.poll_queues was meant"),
    ("nvme.io_poll", (0, 0), "never existed; nvme.poll_queues was meant"),
    ("zswap.zpool", (6, 18), "gone with zpool"),
    ("scsi_mod.use_blk_mq", (5, 0), "gone with the single-queue block layer"),
    ("dm_mod.use_blk_mq", (5, 0), "gone with the single-queue block layer"),
];

fn unknown(host: &HostFacts) -> Verdict {
    cmdline(host)?;
    let found: Vec<String> = DEAD
        .iter()
        .filter(|(name, (major, minor), _)| {
            host.kernel.parameter(name).is_some() && host.kernel.at_least(*major, *minor) != Some(false)
        })
        .map(|(name, _, why)| format!("{name}: {why}"))
        .collect();
    Ok(match found.is_empty() {
        true => Judgement::ok("none of the parameters known to be without effect"),
        false => {
            Judgement::advice(found.join("; ")).fix("", "take them out of the boot loader's configuration")
        }
    }
    .seen(&host.kernel.cmdline))
}

/// Words of GRUB_CMDLINE_LINUX and its default.
fn configured(grub: &str) -> Vec<String> {
    let lines = grub.lines().map(str::trim);
    let lines = lines.filter_map(|line| {
        line.strip_prefix("GRUB_CMDLINE_LINUX_DEFAULT=").or(line.strip_prefix("GRUB_CMDLINE_LINUX="))
    });
    lines.flat_map(|line| bare_words(&shell_value(line))).collect()
}

/// What a shell takes for the value of an assignment; a comment may stand behind it.
fn shell_value(text: &str) -> String {
    let mut chars = text.chars();
    let Some(quote) = chars.next().filter(|first| matches!(first, '"' | '\'')) else {
        return text.split_whitespace().next().unwrap_or_default().to_owned();
    };
    let mut value = String::new();
    while let Some(c) = chars.next().filter(|&c| c != quote) {
        match c {
            '\\' if quote == '"' => value.extend(chars.next()),
            other => value.push(other),
        }
    }
    value
}

/// The words of a command line without their quotes, which GRUB puts elsewhere than people do.
fn bare_words(line: &str) -> Vec<String> {
    parse::quoted_words(line).map(|word| word.replace('"', "")).collect()
}

fn pending(host: &HostFacts) -> Verdict {
    let running = cmdline(host)?;
    let (grub, fact) = text(host, "/etc/default/grub")?;
    let (wanted, running) = (configured(&grub), bare_words(running));
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|word| !word.starts_with('$') && !running.contains(word))
        .map(String::as_str)
        .collect();
    let shown = Fact::known((), wanted.join(" "), fact.path());
    Ok(match missing.is_empty() {
        true => Judgement::ok("all that /etc/default/grub asks for is in force"),
        false => Judgement::advice(format!("configured and not running: {}", missing.join(" ")))
            .fix("", "update-grub (or grub2-mkconfig), then reboot"),
    }
    .seen(&shown)
    .seen(&host.kernel.cmdline))
}

fn audit(host: &HostFacts) -> Verdict {
    cmdline(host)?;
    let line = &host.kernel.cmdline;
    if host.kernel.parameter("audit").is_some_and(|value| value == "0" || value == "off") {
        return Ok(Judgement::ok("audit=0").seen(line));
    }
    let daemons = need(&host.owners.daemons)?;
    Ok(match daemons.iter().any(|name| name == "auditd") {
        true => Judgement::advice("auditd runs: auditctl -l tells whether rules on system calls exist"),
        false => Judgement::ok("no audit daemon runs"),
    }
    .seen(&host.owners.daemons)
    .seen(line))
}

fn init_on_alloc(host: &HostFacts) -> Verdict {
    cmdline(host)?;
    let asked = host.kernel.parameter("init_on_alloc");
    let on = match asked {
        Some(value) => value == "1" || value == "on",
        None => match host.kernel.option("CONFIG_INIT_ON_ALLOC_DEFAULT_ON") {
            Some(built) => built,
            None => return Err(Box::new(Judgement::missing(&host.kernel.config))),
        },
    };
    Ok(match on {
        false => Judgement::ok("pages are not zeroed beforehand"),
        true => Judgement::advice("each page is zeroed before a swap-in fills it")
            .fix("", "kernel parameter init_on_alloc=0, where policy allows"),
    }
    .seen(&host.kernel.cmdline)
    .seen(&host.kernel.config))
}

fn debug(host: &HostFacts) -> Verdict {
    const COSTLY: [&str; 4] =
        ["CONFIG_KASAN", "CONFIG_PROVE_LOCKING", "CONFIG_DEBUG_PAGEALLOC", "CONFIG_SLUB_DEBUG_ON"];
    need(&host.kernel.config)?;
    let on: Vec<&str> = COSTLY.into_iter().filter(|name| host.kernel.option(name) == Some(true)).collect();
    // DEBUG_PAGEALLOC built in costs nothing until it is asked for at boot.
    let on: Vec<&str> = on
        .into_iter()
        .filter(|name| {
            *name != "CONFIG_DEBUG_PAGEALLOC" || host.kernel.parameter("debug_pagealloc") == Some("on")
        })
        .collect();
    Ok(match on.is_empty() {
        true => Judgement::ok("none of the costly checkers is built in"),
        false => Judgement::problem(on.join(", ")).fix("", "a kernel without them"),
    }
    .seen(&host.kernel.config))
}

fn idle_poll(host: &HostFacts) -> Verdict {
    cmdline(host)?;
    let poll = host.kernel.parameter("idle") == Some("poll");
    let off = host.kernel.parameter("cpuidle.off").is_some_and(|value| value == "1");
    Ok(match (poll, off) {
        (true, _) => Judgement::problem("idle=poll: every idle CPU spins").fix("", "drop idle=poll"),
        (_, true) => Judgement::advice("cpuidle.off=1: the firmware's way of idling is used")
            .fix("", "drop cpuidle.off"),
        _ => Judgement::ok("neither idle=poll nor cpuidle.off"),
    }
    .seen(&host.kernel.cmdline))
}

fn skew_tick(host: &HostFacts) -> Verdict {
    cmdline(host)?;
    let cpus = need(&host.cpu.online)?.len();
    let on = host.kernel.parameter("skew_tick") == Some("1");
    Ok(match (on, cpus) {
        (true, _) => Judgement::ok("on"),
        (false, 0..64) => Judgement::ok(format!("off, which does not matter for {cpus} CPUs")),
        (false, _) => Judgement::ok(format!("off, with {cpus} CPUs; worth a try where jitter matters")),
    }
    .seen(&host.kernel.cmdline))
}

fn lockdown(host: &HostFacts) -> Verdict {
    let (state, fact) = text(host, "/sys/kernel/security/lockdown")?;
    let active = parse::choice(&state).map(|choice| choice.active).unwrap_or_default();
    Ok(match active.as_str() {
        "none" => Judgement::ok("none"),
        other => Judgement::ok(format!(
            "{other}: configuration space and registers cannot be written, kprobes may be refused"
        )),
    }
    .seen(&fact))
}

fn module_params(host: &HostFacts) -> Verdict {
    let options = &host.owners.modprobe;
    if options.is_empty() {
        return leave("modprobe.d sets no option of the NVMe driver");
    }
    let current = |key: &str| match key {
        "nvme.use_threaded_interrupts" => {
            host.settings.text("/sys/module/nvme/parameters/use_threaded_interrupts")
        }
        "nvme_core.io_timeout" => host.settings.text("/sys/module/nvme_core/parameters/io_timeout"),
        "nvme_core.multipath" => host.settings.text("/sys/module/nvme_core/parameters/multipath"),
        "nvme.poll_queues" => host.settings.text("/sys/module/nvme/parameters/poll_queues"),
        "nvme.write_queues" => host.settings.text("/sys/module/nvme/parameters/write_queues"),
        "nvme.io_queue_depth" => host.settings.text("/sys/module/nvme/parameters/io_queue_depth"),
        _ => Fact::Absent { path: key.to_owned() },
    };
    let differs =
        options.iter().find(|set| current(&set.key).value().is_some_and(|now| !says(now, &set.value)));
    let first = &options[0];
    let shown =
        |key: &str, value: &str, file: &str| Fact::known((), format!("{key}={value}"), file.to_owned());
    Ok(match differs {
        None => Judgement::ok("all that could be compared is in force").seen(&shown(
            &first.key,
            &first.value,
            &first.file,
        )),
        Some(set) => Judgement::advice(format!(
            "{}={} is configured, and the driver runs with {}",
            set.key,
            set.value,
            current(&set.key).value().cloned().unwrap_or_default()
        ))
        .seen(&shown(&set.key, &set.value, &set.file))
        .seen(&current(&set.key))
        .fix("", "dracut -f or update-initramfs -u, then reboot"),
    })
}

/// Whether a parameter that reads `now` was given this value: a switch reads Y or N, however it was given.
fn says(now: &str, given: &str) -> bool {
    let is_switch = matches!(now, "Y" | "N");
    now == given || (is_switch && parse::switch(&given.to_lowercase()) == parse::switch(now))
}

/// Sysctls that the rules have an opinion on.
const WATCHED: [&str; 12] = [
    "vm.swappiness",
    "vm.page-cluster",
    "vm.watermark_scale_factor",
    "vm.watermark_boost_factor",
    "vm.min_free_kbytes",
    "vm.dirty_ratio",
    "vm.overcommit_memory",
    "vm.zone_reclaim_mode",
    "vm.max_map_count",
    "kernel.nmi_watchdog",
    "kernel.timer_migration",
    "vm.stat_interval",
];

fn sysctl_owners(host: &HostFacts) -> Verdict {
    let (mut reasons, mut evidence) = (Vec::new(), Vec::new());
    for name in WATCHED {
        let all: Vec<_> = host.owners.sysctls.iter().filter(|set| set.key == name).collect();
        let Some(last) = all.last() else { continue };
        let now = host.settings.text(&format!("/proc/sys/{}", name.replace('.', "/")));
        if let Some(other) = all.iter().find(|set| set.value != last.value) {
            reasons.push(format!(
                "{name}: {} says {}, {} says {} and wins",
                other.file, other.value, last.file, last.value
            ));
            evidence.push(Fact::known((), format!("{name} = {}", other.value), other.file.clone()));
        }
        if let Some(now) = now.value().filter(|now| **now != last.value) {
            reasons.push(format!("{name}: {} says {}, in force is {now}", last.file, last.value));
        }
        evidence.push(Fact::known((), format!("{name} = {}", last.value), last.file.clone()));
    }
    if evidence.is_empty() {
        return leave("sysctl.d sets none of the values that matter here");
    }
    let judgement = match reasons.is_empty() {
        true => Judgement::ok("what is configured is in force, and by one file each"),
        false => Judgement::advice(reasons.join("; "))
            .fix("", "one file for each value; tuned's profile if tuned runs"),
    };
    Ok(evidence.iter().fold(judgement, Judgement::seen))
}
