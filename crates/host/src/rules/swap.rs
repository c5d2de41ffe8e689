//! Rules about swap areas: what they are, in which order they fill, and what stands in front of them.

use super::knob::{Verdict, leave, need, settle, text, write};
use crate::facts::swap::SwapDevice;
use crate::facts::{Fact, HostFacts};
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::TargetFacts;
use overdrive_base::size::format_size;

pub(super) mod around;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "swap-present-kind",
        scope: Scope::Swap,
        profile: Profile::Memory,
        title: "Swap lies on a device of its own",
        why: "A swap file goes through the map of its file's extents and shares the disk with the file \
              system and its journal.",
        source: "kernel: mm/swapfile.c in 6.12; solutions blueprint for SSDs as swap",
        effect: "swap traffic that meets nobody else's",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, _| settle(kind(host)),
    },
    Rule {
        id: "swap-solid-state",
        scope: Scope::Swap,
        profile: Profile::Memory,
        title: "Swap knows that its device does not rotate",
        why: "An area on a device that is said to rotate uses the old allocator and turns off \
              read-ahead by address for all areas.",
        source: "kernel: mm/swapfile.c in 6.12",
        effect: "the fast allocator, and read-ahead by address",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(solid_state(host)),
    },
    Rule {
        id: "swap-priority-policy",
        scope: Scope::Swap,
        profile: Profile::Memory,
        title: "Priorities mean what was meant on this kernel",
        why: "From 4.14 until the change of November 2025 areas without a priority are filled from the \
              CPU's own node first, and equal ones in turn, whatever the node: the guides' equal \
              priorities turn the node order off. After that change all start at -1 and are filled in \
              turn.",
        source: "kernel: Documentation/mm/swap_numa.rst in 6.12; commit 52f37efc5949; P4800X guide, \
              section 7.3",
        effect: "local swap on several sockets, or all devices at once: it is one or the other",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(priorities(host)),
    },
    Rule {
        id: "swap-area-count",
        scope: Scope::Swap,
        profile: Profile::Memory,
        title: "No more areas than the kernel has room for",
        why: "Of 32 kinds of swap entries the kernel keeps some for migration, poisoned and device \
              memory: 23 remain on common builds, 27 without device memory. The guide's 28 partitions \
              fail there.",
        source: "kernel: include/linux/swap.h in 6.12",
        effect: "swapon succeeds",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, _| settle(count(host)),
    },
    Rule {
        id: "swap-split-obsolete",
        scope: Scope::Swap,
        profile: Profile::Memory,
        title: "One area a drive",
        why: "Several partitions of one drive once spread the lock of an area over CPUs. The cluster \
              allocator of 6.12 and what came after took that lock off the path.",
        source: "kernel: mm/swapfile.c in 6.12; the series that removed the slot cache (-7.6 % system \
              time)",
        effect: "simpler areas and larger free runs; nothing on speed from 6.12 on",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, _| settle(split(host)),
    },
    Rule {
        id: "swap-slot-cache-absent",
        scope: Scope::Swap,
        profile: Profile::Memory,
        title: "The swap slot cache is not looked for",
        why: "Older guides mention a per-CPU cache of swap slots. It never had a knob and is gone from \
              newer kernels.",
        source: "kernel: mm/swap_slots.c in 6.12; commit 4f79384a25d5",
        effect: "none: there is nothing to set",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(slot_cache(host)),
    },
    Rule {
        id: "swap-zram-in-front",
        scope: Scope::Swap,
        profile: Profile::Memory,
        title: "The order of compressed and drive swap is meant",
        why: "A compressed device of higher priority fills first: the drive sees no page until then, \
              and the CPU compresses each one.",
        source: "kernel: Documentation/admin-guide/blockdev/zram.rst",
        effect: "the drive takes part, or is left alone on purpose",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(zram(host)),
    },
    Rule {
        id: "swap-zswap",
        scope: Scope::Swap,
        profile: Profile::Memory,
        title: "zswap is on or off on purpose",
        why: "zswap compresses pages in memory before they reach the drive: fewer writes, and time in \
              the fault. Its pool parameter and two of its pools are gone from newer kernels.",
        source: "kernel: Documentation/admin-guide/mm/zswap.rst; commit 5c3f8be0c6b1",
        effect: "off: the fault is the drive's latency; on: fewer writes to the drive",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(zswap(host)),
    },
    Rule {
        id: "swap-discard",
        scope: Scope::Swap,
        profile: Profile::Memory,
        title: "Freed swap is not discarded piece by piece",
        why: "With discard=pages the allocator sends a discard for each freed cluster, between reads \
              that somebody waits for. From Linux 6.18 on it also fills free clusters before gaps then, so \
              that pages are written in long runs, which may be worth it (measured: 1.1 to 1.2 times the \
              pages a second of several threads).",
        source: "swapon(8); kernel: mm/swapfile.c in 6.12 and 6.18; docs/memory-measured.md",
        effect: "no discards in the way of swap-ins",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(discard(host)),
    },
    Rule {
        id: "swap-latency-baseline",
        scope: Scope::Swap,
        profile: Profile::Memory,
        title: "A figure to hold results against",
        why: "One thread faults 3.5 M pages/s from DRAM, 105 k from a P4800X and 17 k from a NAND \
              drive (P4510), most often in 16 and 131 us (kernel 4.18).",
        source: "Intel 340608, table 3",
        effect: "a result far below these asks for a reason",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, _| settle(baseline(host)),
    },
];

/// The areas in use; without any there is nothing to say.
pub(super) fn areas(host: &HostFacts) -> Result<&[SwapDevice], Box<Judgement>> {
    let list = need(&host.swap.devices)?;
    if list.is_empty() { leave("no swap area is in use") } else { Ok(list) }
}

/// The lines of /proc/swaps as evidence.
pub(super) fn shown(host: &HostFacts) -> Fact<()> {
    let line = |device: &SwapDevice| {
        let area = &device.area;
        format!("{} {} {} priority {}", area.path, area.kind, format_size(area.size_bytes), area.priority)
    };
    let lines: Vec<String> = host.swap.devices.value().into_iter().flatten().map(line).collect();
    Fact::known((), lines.join(" | "), "/proc/swaps")
}

fn names<'a>(list: impl Iterator<Item = &'a SwapDevice>) -> String {
    list.map(|device| device.area.path.as_str()).collect::<Vec<_>>().join(", ")
}

fn kind(host: &HostFacts) -> Verdict {
    let list = need(&host.swap.devices)?;
    if list.is_empty() {
        return Ok(Judgement::advice("no swap area at all: memory cannot be extended by Linux swap")
            .seen(&shown(host))
            .fix("", "an area on the drive (overdrive swap plan)"));
    }
    let files = names(list.iter().filter(|device| device.area.kind == "file"));
    let drives = list.iter().filter(|device| device.is_nvme()).count();
    Ok(match (files.is_empty(), drives) {
        (false, _) => Judgement::advice(format!("{files}: a file on a file system"))
            .fix("", "a partition or a whole namespace"),
        (true, 0) => Judgement::ok("no file; none of the areas is directly on an NVMe drive"),
        (true, _) => Judgement::ok(format!("{} on NVMe", super::numbered(drives, "area"))),
    }
    .seen(&shown(host)))
}

fn solid_state(host: &HostFacts) -> Verdict {
    let list = areas(host)?;
    let turning: Vec<&SwapDevice> =
        list.iter().filter(|device| device.rotational.get() == Some(true)).collect();
    let Some(first) = turning.first() else {
        return Ok(Judgement::ok("no area counts as rotating").seen(&shown(host)));
    };
    let (path, disk) = (&first.area.path, first.disk.as_deref().unwrap_or("the disk"));
    Ok(Judgement::advice(format!("{} counts as rotating", names(turning.iter().copied())))
        .seen(&first.rotational)
        .fix(
            format!("swapoff {path}; echo 0 > /sys/block/{disk}/queue/rotational; swapon {path}"),
            super::udev(disk, "queue/rotational", "0"),
        )
        .undo(format!("swapoff {path}; echo 1 > /sys/block/{disk}/queue/rotational; swapon {path}")))
}

fn priorities(host: &HostFacts) -> Verdict {
    let list: Vec<&SwapDevice> = areas(host)?.iter().filter(|device| !device.is_zram()).collect();
    if list.len() < 2 {
        return leave("fewer than two areas beside compressed ones");
    }
    let nodes = host.numa.nodes.value().map_or(1, Vec::len);
    let by_turn = host.kernel.at_least(6, 19);
    let set = list.iter().filter(|device| device.area.priority >= 0).count();
    let first = list[0].area.priority;
    let equal = list.iter().all(|device| device.area.priority == first);
    // Without a priority those of the node come first there, and are equal there; only NVMe tells its node.
    let is_local = |device: &&SwapDevice| device.is_nvme() && device.numa_node.get() == Some(0);
    let judgement = match (by_turn, nodes, equal, set) {
        (Some(true), _, true, _) => Judgement::ok("equal: filled in turn"),
        (Some(true), ..) => Judgement::advice("unequal: one area fills before the next is used")
            .fix("swapoff and swapon -p 10 each area", "pri=10 on each swap line of /etc/fstab"),
        (_, 1, true, _) => Judgement::ok("equal: filled in turn"),
        (_, 1, false, 0) if list.iter().all(is_local) => {
            Judgement::ok("unset, all on the one node: filled in turn")
        }
        (_, 1, false, _) => Judgement::advice("unequal on one node: one drive works and the others wait")
            .fix("swapoff and swapon -p 10 each area", "pri=10 on each swap line of /etc/fstab"),
        (_, _, _, 0) => Judgement::ok("unset: each node fills its own area first"),
        (_, _, true, _) => Judgement::advice(
            "equal and set, as the guide says: on this kernel that gives up the order by node",
        )
        .fix("swapoff and swapon each area without a priority", "no pri= in /etc/fstab"),
        _ => Judgement::advice("set and unequal: one area fills before the next is used, whatever the node"),
    };
    Ok(judgement.seen(&shown(host)).seen(&host.kernel.release))
}

fn count(host: &HostFacts) -> Verdict {
    let count = areas(host)?.len();
    Ok(match count {
        0..=23 => Judgement::ok(format!("{count} of at most 23")),
        _ => Judgement::advice(format!("{count}: works here, and only 23 fit on common builds")),
    }
    .seen(&shown(host)))
}

fn split(host: &HostFacts) -> Verdict {
    let list = areas(host)?;
    let mut disks: Vec<&String> = list.iter().filter_map(|device| device.disk.as_ref()).collect();
    disks.sort();
    let most = disks.chunk_by(|a, b| a == b).map(<[_]>::len).max().unwrap_or(1);
    if most < 2 {
        return Ok(Judgement::ok("no disk holds two areas").seen(&shown(host)));
    }
    Ok(match host.kernel.at_least(6, 12) {
        Some(true) => {
            Judgement::advice(format!("{most} areas on one disk: of no use since the cluster allocator"))
                .fix("", "one area a drive, when the drive is set up next")
        }
        _ => Judgement::ok(format!(
            "{most} areas on one disk: on this kernel that may spread a lock; measure it"
        )),
    }
    .seen(&shown(host))
    .seen(&host.kernel.release))
}

fn slot_cache(host: &HostFacts) -> Verdict {
    let release = need(&host.kernel.release)?;
    Ok(match release.at_least(6, 15) {
        true => Judgement::ok("gone from this kernel (release number from memory)"),
        false => Judgement::ok("built in, without a knob"),
    }
    .seen(&host.kernel.release))
}

fn zram(host: &HostFacts) -> Verdict {
    let list = areas(host)?;
    let (zram, rest): (Vec<&SwapDevice>, Vec<&SwapDevice>) = list.iter().partition(|device| device.is_zram());
    let Some(front) = zram.iter().max_by_key(|device| device.area.priority) else {
        return leave("no compressed swap device");
    };
    let below = rest.iter().filter(|device| device.is_nvme()).max_by_key(|device| device.area.priority);
    let size = format_size(front.area.size_bytes);
    Ok(match below {
        Some(drive) if drive.area.priority < front.area.priority => Judgement::advice(format!(
            "{} ({size}) fills before {} is used at all",
            front.area.path, drive.area.path
        ))
        .fix(
            format!("swapoff {}", front.area.path),
            "no zram-generator, or a lower swap-priority in its configuration",
        ),
        Some(_) => Judgement::ok("the drive comes first"),
        None => Judgement::ok(format!("{} ({size}), with no drive behind it", front.area.path)),
    }
    .seen(&shown(host)))
}

fn zswap(host: &HostFacts) -> Verdict {
    let fact = &host.memory.zswap;
    let on = *need(fact)?;
    let removed = match (
        host.settings.text("/sys/module/zswap/parameters/zpool").is_absent(),
        host.kernel.parameter("zswap.zpool"),
    ) {
        (true, Some(value)) => {
            format!("; zswap.zpool={value} at boot is a parameter this kernel no longer has")
        }
        _ => String::new(),
    };
    if !on {
        return Ok(Judgement::ok(format!("off: pages go straight to the drive{removed}")).seen(fact));
    }
    let percent = host.settings.number::<u64>("/sys/module/zswap/parameters/max_pool_percent");
    let pool = match (percent.get(), host.memory.total_bytes.get()) {
        (Some(percent), Some(total)) => {
            format!(" up to {}", format_size((total / 100).saturating_mul(percent)))
        }
        _ => String::new(),
    };
    let judgement = Judgement::advice(format!(
        "on: compresses in memory{pool} first; right against wear, wrong for measuring the drive{removed}"
    ));
    Ok(write(judgement, fact, "N", "kernel parameter zswap.enabled=0")
        .seen(&host.settings.text("/sys/module/zswap/parameters/compressor"))
        .seen(&percent))
}

fn discard(host: &HostFacts) -> Verdict {
    areas(host)?;
    let lines = need(&host.swap.fstab)?;
    let bad = lines.iter().find(|line| line.split_whitespace().nth(3).is_some_and(wants_discard));
    Ok(match bad {
        Some(line) if host.kernel.at_least(6, 18) == Some(true) => {
            Judgement::ok(format!("'{line}' discards freed clusters, and fills free ones first for that"))
        }
        Some(line) => Judgement::advice(format!("'{line}' discards freed clusters"))
            .fix("", "discard=once, or no discard option"),
        None => Judgement::ok("no swap line of /etc/fstab asks for it"),
    }
    .seen(&Fact::known((), lines.join(" | "), "/etc/fstab")))
}

fn wants_discard(options: &str) -> bool {
    options.split(',').any(|option| option == "discard" || option == "discard=pages")
}

fn baseline(host: &HostFacts) -> Verdict {
    areas(host)?;
    let (_, fact) = text(host, "/proc/vmstat")?;
    let count = |name| host.settings.vmstat(name).unwrap_or(0);
    let (inn, out) = (count("pswpin"), count("pswpout"));
    let fact = Fact::known((), format!("pswpin {inn}, pswpout {out}"), fact.path());
    Ok(Judgement::ok(format!("{inn} pages in and {out} out since boot; overdrive page measures the rate"))
        .seen(&fact))
}

/// Whether the target's disk also swaps.
pub(super) fn shared_with<'a>(host: &'a HostFacts, target: &TargetFacts) -> Option<&'a SwapDevice> {
    let list = host.swap.devices.value()?;
    list.iter().find(|device| target.disks.iter().any(|disk| device.disk.as_deref() == Some(disk.name())))
}
