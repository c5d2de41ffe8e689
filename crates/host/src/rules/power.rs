//! Rules about power as a whole, other owners of the same knobs, and what only the firmware decides.

use super::knob::{Verdict, leave, need, settle, text, write};
use crate::facts::hugepages::together;
use crate::facts::{Fact, HostFacts};
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::TargetFacts;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "power-platform-profile",
        scope: Scope::Power,
        profile: Profile::Any,
        title: "The platform profile is performance",
        why: "The firmware keeps limits of its own and offers one word to choose among them.",
        source: "kernel: Documentation/ABI/testing/sysfs-platform_profile; tuned",
        effect: "the firmware's limits out of the way",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(platform(host)),
    },
    Rule {
        id: "power-uncore-freq",
        scope: Scope::Power,
        profile: Profile::Any,
        title: "The uncore clock does not fall",
        why: "At low load the clock of mesh, memory controller and PCIe root falls, and a sparse \
              request pays on its way in and out.",
        source: "kernel: Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst",
        effect: "less latency at depth 1, for watts",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(uncore(host)),
    },
    Rule {
        id: "power-rapl-cap",
        scope: Scope::Power,
        profile: Profile::Any,
        title: "No power cap below the socket's rating",
        why: "A cap lowers the clock under mixed load without a word.",
        source: "kernel: Documentation/power/powercap/powercap.rst",
        effect: "the full clock under load",
        risk: Risk::AdviceOnly,
        verified: false,
        judge: |host, _| settle(cap(host)),
    },
    Rule {
        id: "power-daemons-conflict",
        scope: Scope::Power,
        profile: Profile::Any,
        title: "One owner for the power settings",
        why: "tuned, power-profiles-daemon, TLP and thermald each write governor, preference and \
              limits; the last writer wins, and a value written by hand is gone when one of them wakes \
              up.",
        source: "tuned pull request 880; OpenShift node tuning operator 704",
        effect: "settings that stay as they were set",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(daemons(host)),
    },
    Rule {
        id: "power-tuned-profile",
        scope: Scope::Power,
        profile: Profile::Any,
        title: "tuned's profile fits the use",
        why: "The latency and throughput profiles set swappiness to 10, against memory on drives; the \
              throughput ones raise read-ahead to 4 MiB, against mapped random reads; powersave and \
              balanced let clocks fall.",
        source: "tuned profiles (2.28)",
        effect: "no setting against the use",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(profile(host)),
    },
    Rule {
        id: "power-queue-owners",
        scope: Scope::Power,
        profile: Profile::Any,
        title: "Queue settings have one owner",
        why: "A udev rule, a unit and a daemon that set the same attribute leave what the last of them \
              wrote, at boot or whenever the device appears again.",
        source: "udev(7); systemd.unit(5)",
        effect: "queue settings that stay",
        risk: Risk::Safe,
        verified: true,
        judge: |host, target| settle(queue_owners(host, target)),
    },
    Rule {
        id: "firmware-virt-capability",
        scope: Scope::Firmware,
        profile: Profile::Any,
        title: "Known kind of machine",
        why: "A virtual machine hides clocks, idle states and links. Rules about those do not apply \
              there, and the hypervisor's host decides.",
        source: "CPUID through /proc/cpuinfo; /sys/hypervisor; tuned issue 857",
        effect: "no findings about what cannot be changed from inside",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, _| settle(kind(host)),
    },
    Rule {
        id: "firmware-bios-settings",
        scope: Scope::Firmware,
        profile: Profile::Any,
        title: "The firmware's settings were looked at",
        why: "Hyper-threading, SpeedStep, turbo, C-states and P-states, ASPM, lane splitting, VMD and \
              memory layout are set in the firmware, and most cannot be read from Linux. Both P4800X \
              guides turn power saving off there.",
        source: "Intel P4800X evaluation guides, table 1 (Linux) and table 2 (Windows)",
        effect: "what the guides' stock and tuned rows differ by",
        risk: Risk::AdviceOnly,
        verified: false,
        judge: |host, _| settle(bios(host)),
    },
    Rule {
        id: "firmware-memory-channels",
        scope: Scope::Firmware,
        profile: Profile::Any,
        title: "All memory channels are filled",
        why: "Every block passes through memory at least once. Above some 10 million IOPS, or with \
              copies, memory bandwidth is the ceiling.",
        source: "T. Poder, 11M IOPS (eight channels)",
        effect: "bandwidth by the number of channels filled",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, _| settle(channels(host)),
    },
];

fn guest(host: &HostFacts) -> bool {
    host.hypervisor.is_guest() == Some(true)
}

fn platform(host: &HostFacts) -> Verdict {
    let (active, fact) = text(host, "/sys/firmware/acpi/platform_profile")?;
    let choices = host.settings.text("/sys/firmware/acpi/platform_profile_choices");
    let offered =
        choices.value().is_some_and(|text| text.split_whitespace().any(|word| word == "performance"));
    Ok(match (active.as_str(), offered) {
        ("performance", _) => Judgement::ok("performance").seen(&fact),
        (other, false) => Judgement::ok(format!("{other}; performance is not offered")).seen(&fact),
        (other, true) => write(
            Judgement::advice(other.to_owned()),
            &fact,
            "performance",
            "a systemd unit that writes it at boot",
        )
        .seen(&choices),
    })
}

fn uncore(host: &HostFacts) -> Verdict {
    let folder = "/sys/devices/system/cpu/intel_uncore_frequency";
    let low = together(&host.machine.uncore_min_khz, &format!("{folder}/package_*/min_freq_khz"));
    let high =
        together(&host.machine.uncore_initial_max_khz, &format!("{folder}/package_*/initial_max_freq_khz"));
    need(&low)?;
    need(&high)?;
    let number = |list: &[(String, Fact<String>)]| {
        list.iter().filter_map(|(_, fact)| fact.value()?.parse::<u64>().ok()).min()
    };
    let (Some(min), Some(max)) =
        (number(&host.machine.uncore_min_khz), number(&host.machine.uncore_initial_max_khz))
    else {
        return Err(Box::new(Judgement::unknown("no number in it").seen(&low).seen(&high)));
    };
    let shown = |khz: u64| format!("{:.1} GHz", khz as f64 / 1e6);
    Ok(match min < max {
        false => Judgement::ok(format!("held at {}", shown(min))).seen(&low),
        true => Judgement::advice(format!("may fall to {} of {}", shown(min), shown(max)))
            .seen(&low)
            .seen(&high)
            .fix(
                format!("echo {max} | tee {folder}/package_*/min_freq_khz"),
                "a systemd unit that writes it at boot",
            )
            .undo(format!("echo {min} | tee {folder}/package_*/min_freq_khz")),
    })
}

fn cap(host: &HostFacts) -> Verdict {
    let limits = together(
        &host.machine.power_limit_uw,
        "/sys/class/powercap/intel-rapl:*/constraint_0_power_limit_uw",
    );
    let most =
        together(&host.machine.power_max_uw, "/sys/class/powercap/intel-rapl:*/constraint_0_max_power_uw");
    need(&limits)?;
    need(&most)?;
    let watts =
        |fact: &Fact<String>| fact.value().and_then(|text| text.parse::<u64>().ok()).map(|uw| uw / 1_000_000);
    for (name, limit) in &host.machine.power_limit_uw {
        let rated = host
            .machine
            .power_max_uw
            .iter()
            .find(|(other, _)| other == name)
            .and_then(|(_, fact)| watts(fact));
        // Some processors report no rating; 0 means that.
        if let (Some(limit_w), Some(rated_w @ 1..)) = (watts(limit), rated)
            && limit_w < rated_w
        {
            let reason = format!("{name}: {limit_w} W of {rated_w} W");
            return Ok(Judgement::advice(reason)
                .seen(limit)
                .fix("", "the limit in firmware or management controller"));
        }
    }
    Ok(Judgement::ok("no socket is capped below its rating").seen(&limits).seen(&most))
}

fn daemons(host: &HostFacts) -> Verdict {
    let running = need(&host.owners.daemons)?;
    let mut owners: Vec<&str> = running
        .iter()
        .map(String::as_str)
        .filter(|name| ["tuned", "power-profiles-", "tlp", "thermald"].contains(name))
        .collect();
    if !host.owners.tlp.is_empty() && !owners.contains(&"tlp") {
        owners.push("TLP's configuration");
    }
    let governors =
        host.owners.tlp.iter().find(|set| set.key.contains("GOVERNOR") || set.key.contains("ENERGY_PERF"));
    let judgement = match (owners.as_slice(), governors) {
        (_, Some(set)) => Judgement::advice(format!(
            "{} sets {} to {}: what is written by hand is gone at the next event",
            set.file, set.key, set.value
        ))
        .seen(&Fact::known((), format!("{}={}", set.key, set.value), set.file.clone()))
        .fix("", "the same value in its configuration, or no TLP on a server"),
        ([], _) => Judgement::ok("none of them runs"),
        ([one], _) => Judgement::ok(format!("{one} alone: change its profile rather than the files")),
        (several, _) => Judgement::advice(format!("{} write the same settings", several.join(", ")))
            .fix("", "keep one and disable the rest"),
    };
    Ok(judgement.seen(&host.owners.daemons))
}

fn profile(host: &HostFacts) -> Verdict {
    let (name, fact) = text(host, "/etc/tuned/active_profile")?;
    if host.owners.runs("tuned") == Some(false) {
        return Ok(Judgement::ok(format!("{name}, and tuned does not run")).seen(&fact));
    }
    let swappiness = host.settings.number::<u32>("/proc/sys/vm/swappiness");
    let judgement = match name.as_str() {
        "latency-performance" | "network-latency" => Judgement::ok(format!(
            "{name}: holds clocks and idle states; for swap as memory set vm.swappiness in a profile of your own"
        )),
        "throughput-performance" | "network-throughput" | "hpc-compute" => {
            Judgement::advice(format!("{name}: read-ahead of 4 MiB and swappiness 10"))
                .fix("", "a profile that includes it and sets readahead and vm.swappiness")
        }
        "balanced" | "powersave" | "balanced-battery" | "virtual-guest" if !guest(host) => {
            Judgement::advice(format!("{name}: clocks fall between requests"))
                .fix("tuned-adm profile latency-performance", "the same command")
                .undo(format!("tuned-adm profile {name}"))
        }
        other => Judgement::ok(format!("{other}: change the profile rather than the files it sets")),
    };
    Ok(judgement.seen(&fact).seen(&host.owners.daemons).seen(&swappiness))
}

fn queue_owners(host: &HostFacts, target: &TargetFacts) -> Verdict {
    let owners = &host.owners;
    let shown = |set: &crate::facts::owners::Assignment| {
        let text =
            if set.value.is_empty() { set.key.clone() } else { format!("{} = {}", set.key, set.value) };
        Fact::known((), text, set.file.clone())
    };
    let mut rivals = Vec::new();
    for (at, set) in owners.udev.iter().enumerate() {
        if let Some(other) =
            owners.udev[at + 1..].iter().find(|other| other.key == set.key && other.value != set.value)
        {
            rivals.push((
                format!("{}: {} and {} differ, if both match a device", set.key, set.file, other.file),
                set,
                other,
            ));
        }
        if let Some(unit) = owners.units.iter().find(|unit| unit.key.contains(&set.key)) {
            rivals.push((format!("{}: set by {} and by {}", set.key, set.file, unit.file), set, unit));
        }
    }
    if let Some((reason, one, other)) = rivals.first() {
        let more = if rivals.len() > 1 { format!("; and {} more", rivals.len() - 1) } else { String::new() };
        return Ok(Judgement::advice(format!("{reason}{more}"))
            .seen(&shown(one))
            .seen(&shown(other))
            .fix("", "one place for each attribute"));
    }
    let Some(first) = owners.udev.first().or(owners.units.first()) else {
        return leave("no udev rule or unit of this host sets a queue attribute");
    };
    let scheduler = target.disks.first().and_then(|disk| disk.block.queue.scheduler.value());
    let drifted = owners.udev.iter().rev().find(|set| set.key == "queue/scheduler");
    if let (Some(set), Some(now)) = (drifted, scheduler)
        && set.value != now.active
    {
        let reason = format!(
            "{} says {}, in force is {}: written by another, or for other devices",
            set.file, set.value, now.active
        );
        return Ok(Judgement::advice(reason).seen(&shown(set)));
    }
    Ok(Judgement::ok("set in one place each").seen(&shown(first)))
}

fn kind(host: &HostFacts) -> Verdict {
    let fact = &host.hypervisor.flag;
    let product = host.hypervisor.product.value().map_or("", String::as_str);
    Ok(match host.hypervisor.is_guest() {
        Some(true) => Judgement::ok(format!("a virtual machine {product}").trim_end().to_owned()),
        Some(false) => Judgement::ok(format!("real hardware {product}").trim_end().to_owned()),
        None => return Err(Box::new(Judgement::missing(fact))),
    }
    .seen(fact)
    .seen(&host.hypervisor.vendor))
}

fn bios(host: &HostFacts) -> Verdict {
    if guest(host) {
        return leave("a virtual machine: its host's firmware decides");
    }
    let version = need(&host.hypervisor.firmware)?;
    let date = host.settings.text("/sys/class/dmi/id/bios_date");
    let dated = date.value().map_or_else(String::new, |date| format!(" of {date}"));
    Ok(Judgement::ok(format!(
        "version {version}{dated}; not readable from here: C1E, ASPM, lane splitting, VMD, memory layout, power profile"
    ))
    .seen(&host.hypervisor.firmware)
    .seen(&date))
}

fn channels(host: &HostFacts) -> Verdict {
    if guest(host) {
        return leave("a virtual machine: its memory is its host's");
    }
    let modules = &host.machine.memory_modules;
    let fact = together(modules, "/sys/devices/system/edac/mc/mc*/{dimm,rank}*/size");
    need(&fact)?;
    let filled = modules.iter().filter(|(_, fact)| fact.value().is_some_and(|text| text != "0")).count();
    let controllers = host.machine.memory_controllers.len();
    let empty = host
        .machine
        .memory_controllers
        .iter()
        .filter(|(_, fact)| fact.value().is_some_and(|text| text == "0"))
        .count();
    Ok(match empty {
        0 => Judgement::ok(format!("{filled} modules on {controllers} controllers, none of them empty")),
        _ => Judgement::advice(format!("{empty} of {controllers} memory controllers have no module"))
            .fix("", "modules on every channel of each socket"),
    }
    .seen(&fact))
}
