//! Rules about what the controller itself said: power, formats, cache, health, heat, wear.

use super::super::knob::{Verdict, leave, need, settle};
use super::each_controller;
use crate::facts::nvme::NvmeFacts;
use crate::facts::nvme::admin::{Controller, LbaFormat, PowerState, Smart};
use crate::facts::{Fact, HostFacts};
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::DiskFacts;
use overdrive_base::size::format_size;
use overdrive_base::time::format_ns;

const SPEC: &str = "NVM Express base specification; kernel: include/linux/nvme.h in 6.12";

pub(in super::super) const RULES: &[Rule] = &[
    Rule {
        id: "nvme-power-state",
        scope: Scope::Nvme,
        profile: Profile::Any,
        title: "The drive runs in its highest power state",
        why: "Lower operational states cap rate and bandwidth.",
        source: SPEC,
        effect: "the drive's full rate",
        risk: Risk::SideEffects,
        verified: true,
        judge: |_, target| each_controller(target, |_, nvme| settle(power_state(nvme))),
    },
    Rule {
        id: "nvme-lba-format-4k",
        scope: Scope::Nvme,
        profile: Profile::Any,
        title: "Blocks are 4096 bytes where that costs nothing",
        why: "A drive that emulates 512-byte blocks maps them, and reads before it writes for anything \
              smaller than its page. The drive itself says which of its formats is fastest.",
        source: "NVM Express base specification (LBA format, relative performance); LinuxSwap README",
        effect: "no read before write for small or crooked writes",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |_, target| each_controller(target, |disk, nvme| settle(format_4k(disk, nvme))),
    },
    Rule {
        id: "nvme-vwc-vs-plp",
        scope: Scope::Nvme,
        profile: Profile::Any,
        title: "The kernel's idea of the write cache is the drive's",
        why: "A drive with power-loss protection reports no volatile cache, and a flush costs nothing. \
              'write through' written into sysfs only stops the kernel's flushes: the drive's cache \
              stays, and with it the loss at power failure.",
        source: "kernel: Documentation/ABI/stable/sysfs-block (write_cache)",
        effect: "0.1 to 10 ms for each fsync on a drive with a volatile cache",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |_, target| each_controller(target, |disk, nvme| settle(cache(disk, nvme))),
    },
    Rule {
        id: "nvme-smart-critical",
        scope: Scope::Nvme,
        profile: Profile::Any,
        title: "The drive reports no trouble",
        why: "A failing drive is slow first.",
        source: SPEC,
        effect: "results of a healthy drive",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |_, target| each_controller(target, |_, nvme| settle(health(nvme))),
    },
    Rule {
        id: "nvme-thermal",
        scope: Scope::Nvme,
        profile: Profile::Any,
        title: "The drive does not slow down for heat",
        why: "Throttling is the usual reason for a latency that steps up in the middle of a run.",
        source: SPEC,
        effect: "a steady rate over long runs",
        risk: Risk::SideEffects,
        verified: true,
        judge: |_, target| each_controller(target, |_, nvme| settle(thermal(nvme))),
    },
    Rule {
        id: "nvme-wear-as-memory",
        scope: Scope::Nvme,
        profile: Profile::Memory,
        title: "The drive outlives its use as memory",
        why: "Swap writes wear flash out; media without that limit, or a compressing layer in front, \
              change the sum.",
        source: "NVM Express base specification (percentage used); Intel 340608",
        effect: "years left at the rate so far",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, target| each_controller(target, |_, nvme| settle(wear(host, nvme))),
    },
    Rule {
        id: "nvme-hmb-dramless",
        scope: Scope::Nvme,
        profile: Profile::Memory,
        title: "The drive has memory for its own tables",
        why: "A drive that asks for host memory has little of its own: a miss in its table costs one \
              more read of flash.",
        source: "NVM Express base specification (host memory buffer); kernel: drivers/nvme/host/pci.c \
              in 6.12",
        effect: "no second flash read inside a random read",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |_, target| each_controller(target, |_, nvme| settle(host_memory(nvme))),
    },
    Rule {
        id: "irq-coalescing-off",
        scope: Scope::Irq,
        profile: Profile::Any,
        title: "Completions are not held back to be gathered",
        why: "Coalescing waits in units of 100 us for more completions before it interrupts, many \
              times a fast drive's latency.",
        source: "NVM Express base specification (feature 08h)",
        effect: "no wait before the interrupt",
        risk: Risk::SideEffects,
        verified: true,
        judge: |_, target| each_controller(target, |_, nvme| settle(coalescing(nvme))),
    },
    Rule {
        id: "bench-preconditioned",
        scope: Scope::Firmware,
        profile: Profile::Storage,
        title: "The drive is in a steady state",
        why: "Fresh flash is faster than it will ever be again: write twice its size first. An Optane \
              drive that was without power for long refreshes its data for about three hours.",
        source: "Intel P4800X evaluation guide, section 5.4",
        effect: "figures that hold next week",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |_, target| each_controller(target, |disk, nvme| settle(preconditioned(disk, nvme))),
    },
];

/// An answer of the drive as readable evidence instead of its bytes.
fn told<T>(fact: &Fact<T>, text: impl Into<String>) -> Fact<()> {
    Fact::known((), text, fact.path())
}

fn power_state(nvme: &NvmeFacts) -> Verdict {
    let fact = &nvme.admin.power_state;
    let state = *need(fact)?;
    let states = nvme.admin.controller.value().map(|controller| controller.power_states.as_slice());
    let watts = |index: usize| Some(states?.get(index)?.power_mw as f64 / 1000.0);
    let judgement = match (state, watts(0), watts(state as usize)) {
        (0, Some(most), _) => Judgement::ok(format!("0, up to {most:.1} W")),
        (0, ..) => Judgement::ok("0"),
        (_, Some(most), Some(now)) => Judgement::advice(format!("{state}: {now:.1} W of {most:.1} W")),
        _ => Judgement::advice(format!("{state}")),
    };
    let judgement = judgement.seen(&told(fact, state.to_string()));
    Ok(match state {
        0 => judgement,
        _ => judgement
            .fix(format!("nvme set-feature /dev/{} -f 2 -V 0", nvme.name), "a udev rule that runs the same")
            .undo(format!("nvme set-feature /dev/{} -f 2 -V {state}", nvme.name)),
    })
}

fn format_4k(disk: &DiskFacts, nvme: &NvmeFacts) -> Verdict {
    let fact = &nvme.admin.namespace;
    let namespace = need(fact)?;
    let show = |format: &LbaFormat| {
        format!("{}+{} B performance {}", format.data_bytes, format.metadata_bytes, format.performance)
    };
    let list = namespace.formats.iter().map(show).collect::<Vec<_>>().join(", ");
    let told = told(fact, format!("format {} of: {list}", namespace.current));
    let Some(current) = namespace.formats.get(namespace.current) else {
        return Err(Box::new(Judgement::unknown("the format in use is not listed").seen(&told)));
    };
    let large = namespace.formats.iter().position(|format| {
        format.data_bytes == 4096 && format.metadata_bytes == 0 && format.performance <= current.performance
    });
    let judgement = match (current.data_bytes, large) {
        (4096.., _) => Judgement::ok(format!("{} bytes", current.data_bytes)),
        (_, None) => Judgement::ok(format!("{} bytes; no format of 4096 is as fast", current.data_bytes)),
        (_, Some(index)) => Judgement::advice(format!(
            "{} bytes; format {index} has 4096 and is {}",
            current.data_bytes,
            if namespace.formats[index].performance < current.performance { "faster" } else { "as fast" }
        ))
        .fix(
            "",
            format!(
                "nvme format /dev/{} -l {index} DESTROYS ALL DATA on it: only for an empty drive",
                disk.name()
            ),
        ),
    };
    Ok(judgement.seen(&told).seen(&disk.block.queue.logical_block_size))
}

fn cache(disk: &DiskFacts, nvme: &NvmeFacts) -> Verdict {
    let kernel = &disk.block.queue.write_cache;
    let through = need(kernel)? == "write through";
    let controller = &nvme.admin.controller;
    let enabled = nvme.admin.write_cache.get();
    let volatile = controller.value().map(|controller| controller.volatile_cache);
    let judgement = match (volatile, through) {
        (Some(true), true) if enabled != Some(false) => Judgement::problem(
            "the drive has a volatile cache and the kernel sends no flushes: data is lost when power fails",
        )
        .fix(
            format!("echo write back > {}/write_cache", disk.block.queue_folder()),
            "find who wrote 'write through' and take it out",
        )
        .undo(format!("echo write through > {}/write_cache", disk.block.queue_folder())),
        (Some(true), _) => {
            Judgement::ok("a volatile cache, and the kernel flushes it: fsync costs what the drive takes")
        }
        (Some(false), _) => {
            Judgement::ok("no volatile cache: protected against power loss, flushes cost nothing")
        }
        (None, true) => Judgement::ok(
            "write through: either the drive is protected, or somebody forced it; its identify data would tell",
        ),
        (None, false) => Judgement::ok(
            "write back: the kernel flushes; a drive with power-loss protection would not need it",
        ),
    };
    let judgement = judgement.seen(kernel);
    Ok(match volatile {
        Some(volatile) => judgement.seen(&told(
            controller,
            format!("volatile write cache {}", if volatile { "present" } else { "absent" }),
        )),
        None => judgement.seen(controller),
    })
}

fn smart(nvme: &NvmeFacts) -> Result<(&Smart, Fact<()>), Box<Judgement>> {
    let fact = &nvme.admin.smart;
    let smart = need(fact)?;
    let text = format!(
        "warning {:#04x}, {} C, spare {} % (threshold {} %), used {} %, media errors {}",
        smart.critical_warning,
        smart.celsius(),
        smart.spare_percent.0,
        smart.spare_percent.1,
        smart.used_percent,
        smart.media_errors
    );
    Ok((smart, told(fact, text)))
}

fn health(nvme: &NvmeFacts) -> Verdict {
    const WARNINGS: [&str; 6] = [
        "spare is low",
        "too hot or cold",
        "unreliable",
        "read-only",
        "its backup failed",
        "memory region unreliable",
    ];
    let (smart, fact) = smart(nvme)?;
    let bits = WARNINGS.iter().enumerate().filter(|(bit, _)| smart.critical_warning >> bit & 1 == 1);
    let mut troubles: Vec<String> = bits.map(|(_, text)| (*text).to_owned()).collect();
    if smart.media_errors > 0 {
        troubles.push(format!("{} errors of data that could not be mended", smart.media_errors));
    }
    if smart.spare_percent.0 < smart.spare_percent.1 {
        troubles.push(format!("spare {} % below {} %", smart.spare_percent.0, smart.spare_percent.1));
    }
    Ok(match troubles.is_empty() {
        true => Judgement::ok(format!(
            "no warning, spare {} %, {} % of its life used",
            smart.spare_percent.0, smart.used_percent
        )),
        false => Judgement::problem(troubles.join("; ")).fix("", "another drive"),
    }
    .seen(&fact))
}

fn thermal(nvme: &NvmeFacts) -> Verdict {
    let (smart, fact) = smart(nvme)?;
    let limit = nvme
        .admin
        .controller
        .value()
        .map(|controller: &Controller| controller.warning_kelvin)
        .filter(|&kelvin| kelvin > 0);
    let room = limit.map(|kelvin| i32::from(kelvin) - i32::from(smart.kelvin));
    let slowed = u64::from(smart.throttle_counts.0) + u64::from(smart.throttle_counts.1);
    let hot = u64::from(smart.hot_minutes.0) + u64::from(smart.hot_minutes.1);
    let now = format!("{} C", smart.celsius());
    Ok(match (room, slowed, hot) {
        (Some(room), ..) if room <= 5 => {
            Judgement::problem(format!("{now}, {room} K below its limit")).fix("", "more air")
        }
        (_, 0, 0) => Judgement::ok(match room {
            Some(room) => format!("{now}, {room} K below its limit, and never slowed down"),
            None => format!("{now}, and never slowed down"),
        }),
        _ => Judgement::advice(format!(
            "{now}; in its life it slowed down {slowed} times and was too hot for {hot} minutes"
        ))
        .fix("", "more air; watch the counts over a run"),
    }
    .seen(&fact))
}

fn wear(host: &HostFacts, nvme: &NvmeFacts) -> Verdict {
    let (smart, fact) = smart(nvme)?;
    let hours = u64::try_from(smart.power_on_hours).unwrap_or(u64::MAX).max(1);
    let written = u64::try_from(smart.written_bytes).unwrap_or(u64::MAX);
    let out = host.settings.vmstat("pswpout").map_or(0, |pages| pages.saturating_mul(4096));
    let used = u64::from(smart.used_percent);
    let said = format!(
        "{} written in {hours} h, {used} % of its life; {} swapped out since boot",
        format_size(written),
        format_size(out)
    );
    let left_years = (used > 0).then(|| hours as f64 * (100.0 - used as f64) / used as f64 / 8766.0);
    Ok(match left_years {
        None => Judgement::ok(format!("{said}: less than 1 % used")),
        Some(years) if years >= 5.0 => {
            Judgement::ok(said).effect(format!("{years:.0} years left at the rate so far"))
        }
        Some(years) => Judgement::advice(said)
            .effect(format!("{:.1} years left at the rate so far", years.max(0.0)))
            .fix("", "zswap in front of it, a lower swap rate, or another drive"),
    }
    .seen(&fact))
}

fn host_memory(nvme: &NvmeFacts) -> Verdict {
    let fact = &nvme.admin.controller;
    let wanted = u64::from(need(fact)?.host_memory_wanted) * 4096;
    let told = told(fact, format!("host memory wanted {}", format_size(wanted)));
    Ok(match wanted {
        0 => Judgement::ok("it asks for no host memory"),
        _ => Judgement::advice(format!("it asks for {} of host memory", format_size(wanted)))
            .fix("", "a drive with memory of its own"),
    }
    .seen(&told))
}

fn coalescing(nvme: &NvmeFacts) -> Verdict {
    let fact = &nvme.admin.coalescing;
    let (threshold, time) = *need(fact)?;
    let told = told(fact, format!("threshold {threshold}, time {time} x 100 us"));
    if threshold == 0 || time == 0 {
        return Ok(Judgement::ok("off").seen(&told));
    }
    Ok(Judgement::advice(format!("up to {} completions, for up to {} us", threshold + 1, time * 100))
        .seen(&told)
        .effect(format!("up to {} us off each completion", time * 100))
        .fix(format!("nvme set-feature /dev/{} -f 8 -V 0", nvme.name), "a udev rule that runs the same")
        .undo(format!("nvme set-feature /dev/{} -f 8 -V {:#x}", nvme.name, time << 8 | threshold)))
}

fn preconditioned(disk: &DiskFacts, nvme: &NvmeFacts) -> Verdict {
    let (smart, fact) = smart(nvme)?;
    let size = u128::from(*need(&disk.block.size_bytes)?);
    let (written, hours) = (smart.written_bytes, smart.power_on_hours);
    let shown = |bytes: u128| format_size(u64::try_from(bytes).unwrap_or(u64::MAX));
    let said =
        format!("{} written in its life to {} of space, {hours} h switched on", shown(written), shown(size));
    Ok(match written >= 2 * size {
        true => Judgement::ok(format!("{said}; whether that was since the last format is not told")),
        false => Judgement::advice(format!("{said}: fresh flash"))
            .fix("overdrive evaluate with its preconditioning", ""),
    }
    .seen(&fact))
}

/// The slowest state the drive may fall into by itself within the tolerance, as its own answers say.
pub(super) fn deepest_sleep(nvme: &NvmeFacts, tolerance_us: Option<u64>) -> Option<(usize, PowerState)> {
    let states = &nvme.admin.controller.value()?.power_states;
    let table = nvme.admin.apst.value();
    let reached = |index: usize, state: &PowerState| match table {
        Some(table) => table.targets().any(|target| target == index),
        None => tolerance_us.is_none_or(|most| u64::from(state.entry_us) + u64::from(state.exit_us) <= most),
    };
    let asleep = states.iter().enumerate().filter(|(index, state)| state.is_asleep && reached(*index, state));
    asleep.max_by_key(|(_, state)| state.exit_us).map(|(index, state)| (index, *state))
}

/// What the identify data adds to the judgement on sleep; `None` when the drive could not be asked.
pub(super) fn sleep(nvme: &NvmeFacts, tolerance_us: Option<u64>) -> Option<Verdict> {
    let controller = nvme.admin.controller.value()?;
    let fact = &nvme.admin.controller;
    if !controller.has_apst || !controller.power_states.iter().any(|state| state.is_asleep) {
        return Some(leave("the drive has no state that it falls into by itself"));
    }
    let Some((index, state)) = deepest_sleep(nvme, tolerance_us) else {
        return Some(Ok(Judgement::ok("it has such states, and none is entered within the tolerance")
            .seen(&nvme.apst_tolerance)
            .seen(&told(fact, format!("{} power states", controller.power_states.len())))));
    };
    let cost = |us: u32| format_ns(u64::from(us) * 1000);
    Some(Ok(Judgement::advice(format!(
        "an idle drive falls to state {index}, which takes {} to enter and {} to leave",
        cost(state.entry_us),
        cost(state.exit_us)
    ))
    .seen(&nvme.apst_tolerance)
    .seen(&told(fact, format!("state {index}: enter {} us, leave {} us", state.entry_us, state.exit_us)))
    .effect(format!(
        "up to {} off the first request after idle",
        cost(state.entry_us.saturating_add(state.exit_us))
    ))))
}
