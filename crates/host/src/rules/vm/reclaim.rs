//! Rules about reclaim: when memory is freed, which pages go, and how much is read back at once.

use super::super::knob::{Verdict, leave, need, number, settle, sysctl, text, tmpfiles, write};
use crate::facts::{Fact, HostFacts, parse};
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use overdrive_base::size::format_size;

const SYSCTL: &str = "kernel: Documentation/admin-guide/sysctl/vm.rst";
/// More idle memory than this is waste, whatever the machine's size.
const IDLE_BYTES_MAX: u64 = 16 << 30;

pub(in super::super) const RULES: &[Rule] = &[
    Rule {
        id: "vm-swappiness",
        scope: Scope::Vm,
        profile: Profile::Memory,
        title: "Pages go to a fast swap device as readily as to files",
        why: "swappiness says how dear a swap-in is against reading a file page again: 200 r / (1 + r) \
              for a swap device r times as fast as the file system. The default 60 takes swap for \
              slow; tuned's latency profiles set 10, which keeps the drive from serving as memory.",
        source: "kernel: Documentation/admin-guide/sysctl/vm.rst (swappiness, 0 to 200 since 5.8)",
        effect: "cold anonymous memory leaves before hot file pages do",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(swappiness(host)),
    },
    Rule {
        id: "vm-page-cluster",
        scope: Scope::Vm,
        profile: Profile::Memory,
        title: "A swap-in reads one page",
        why: "A fault reads 2^page-cluster pages around the one wanted. On a drive without seeks the \
              others are wasted unless the program walks in order.",
        source: "kernel: Documentation/admin-guide/sysctl/vm.rst (page-cluster); P4800X guide, \
              appendix B",
        effect: "one page read for a random fault",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(page_cluster(host)),
    },
    Rule {
        id: "vm-vma-readahead",
        scope: Scope::Vm,
        profile: Profile::Memory,
        title: "Swap read-ahead follows the program's addresses",
        why: "Where several pages are read at once, neighbours in the program's memory are better \
              guesses than neighbours on the device. One rotating swap area turns this off for the \
              whole host without a word.",
        source: "kernel: mm/swap_state.c in 6.12; LinuxSwap README",
        effect: "fewer wasted reads with page-cluster above 0",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(vma_readahead(host)),
    },
    Rule {
        id: "vm-watermark-scale",
        scope: Scope::Vm,
        profile: Profile::Memory,
        title: "Reclaim starts before memory is out",
        why: "kswapd wakes when free memory falls below a mark and stops at a higher one; this factor, \
              in 1/10000 of memory, sets the distance. At the default of 10 a fast program outruns it \
              and has to reclaim by itself inside its fault.",
        source: "kernel: Documentation/admin-guide/sysctl/vm.rst; P4800X guide, appendix B (400); \
              Kubernetes swap article",
        effect: "no direct reclaim in faults, for memory kept free",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(watermark_scale(host)),
    },
    Rule {
        id: "vm-watermark-boost",
        scope: Scope::Vm,
        profile: Profile::Any,
        title: "Fragmentation does not start reclaim",
        why: "When kinds of pages mix, the kernel raises its marks for a while and reclaims up to 1.5 \
              times the high mark: swapping for no visible reason.",
        source: SYSCTL,
        effect: "no bursts of reclaim on a machine with free memory",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(watermark_boost(host)),
    },
    Rule {
        id: "vm-min-free",
        scope: Scope::Vm,
        profile: Profile::Memory,
        title: "A reserve for those who cannot wait",
        why: "Interrupts and drivers take pages from this reserve. With too little, allocations on the \
              way to the drive fail while memory is being swapped out; with too much the machine runs \
              out at once.",
        source: "kernel: Documentation/admin-guide/sysctl/vm.rst; Kubernetes swap article (68 to 500 \
              MB)",
        effect: "no failed allocations under pressure",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(min_free(host)),
    },
    Rule {
        id: "vm-mglru",
        scope: Scope::Vm,
        profile: Profile::Memory,
        title: "The multi-generational list is on",
        why: "It finds cold pages with less CPU than the two-list reclaim. It weighs swappiness \
              differently, so try both.",
        source: "kernel: Documentation/admin-guide/mm/multigen_lru.rst (6.1 and newer)",
        effect: "less CPU in reclaim and better victims, by workload",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, _| settle(mglru(host)),
    },
    Rule {
        id: "vm-dirty-limits",
        scope: Scope::Vm,
        profile: Profile::Any,
        title: "Dirty memory is bounded in bytes",
        why: "A percentage of a large memory is many seconds of a drive's writing, and all of it comes \
              at once when the limit is reached or somebody calls sync; reads wait behind it.",
        source: "kernel: Documentation/admin-guide/sysctl/vm.rst; tuned latency-performance (10 and 3 \
              %)",
        effect: "shorter bursts of write-back beside reads; none for O_DIRECT",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(dirty(host)),
    },
    Rule {
        id: "vm-laptop-mode",
        scope: Scope::Vm,
        profile: Profile::Any,
        title: "Write-back is not gathered for a sleeping disk",
        why: "Laptop mode delays writing and then writes everything while the disk turns. It is gone \
              from 7.0.",
        source: SYSCTL,
        effect: "no bursts of delayed writes",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(laptop(host)),
    },
    Rule {
        id: "vm-direct-reclaim-rate",
        scope: Scope::Vm,
        profile: Profile::Memory,
        title: "Programs do not reclaim memory themselves",
        why: "This is the outcome of all the others: a program that stalls in its own allocation, and \
              the share of time in which all stood still for memory.",
        source: "kernel: Documentation/accounting/psi.rst; mm/vmscan.c in 6.12",
        effect: "faults that cost one read, not a walk through the lists",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, _| settle(direct_reclaim(host)),
    },
];

fn swappiness(host: &HostFacts) -> Verdict {
    let (value, fact) = number::<u32>(host, "/proc/sys/vm/swappiness")?;
    let most = if host.kernel.at_least(5, 8) == Some(false) { 100 } else { 180 };
    Ok(match value {
        100.. => Judgement::ok(format!("{value}: swap counts as fast as files, or faster")).seen(&fact),
        _ => {
            let tuned = match value {
                10 => ", as tuned's latency and throughput profiles set it",
                _ => "",
            };
            let judgement = Judgement::advice(format!(
                "{value}{tuned}: file pages are thrown out and read again before cold memory is swapped; \
                 100 is right for swap as fast as the files, {most} at most"
            ));
            sysctl(judgement, &fact, 100)
        }
    })
}

fn page_cluster(host: &HostFacts) -> Verdict {
    let (value, fact) = number::<u32>(host, "/proc/sys/vm/page-cluster")?;
    if value == 0 {
        return Ok(Judgement::ok("0: one page a fault").seen(&fact));
    }
    let pages = 1_u64 << value.min(31);
    let (hits, reads) = (host.settings.vmstat("swap_ra_hit"), host.settings.vmstat("swap_ra"));
    let judgement = Judgement::advice(format!("{value}: a fault reads {pages} pages"));
    let judgement = match (hits, reads) {
        (Some(hits), Some(reads)) if reads > 0 => judgement.effect(format!(
            "since boot {:.0} % of the pages read ahead were used; below a half, reading one is faster",
            100.0 * hits as f64 / reads as f64
        )),
        _ => judgement.effect(format!("4 KiB instead of {} for a random fault", format_size(pages * 4096))),
    };
    Ok(sysctl(judgement, &fact, 0))
}

fn vma_readahead(host: &HostFacts) -> Verdict {
    let path = "/sys/kernel/mm/swap/vma_ra_enabled";
    let (value, fact) = text(host, path)?;
    let turning =
        host.swap.devices.value().into_iter().flatten().find(|area| area.rotational.get() == Some(true));
    if let Some(area) = turning {
        let reason = format!("{} counts as rotating, which turns this off for every area", area.area.path);
        return Ok(Judgement::advice(reason)
            .seen(&fact)
            .seen(&area.rotational)
            .fix("correct block-rotational-flag, then swapoff and swapon", ""));
    }
    Ok(match value.as_str() {
        "true" => Judgement::ok("on").seen(&fact),
        _ => write(
            Judgement::advice("off: neighbours on the device are read instead"),
            &fact,
            "true",
            tmpfiles(path, "true"),
        ),
    })
}

/// Bytes of the largest node, by which the marks are computed.
fn node_bytes(host: &HostFacts) -> Option<u64> {
    let nodes = host.numa.nodes.value().into_iter().flatten();
    nodes.filter_map(|node| node.total_bytes.get()).max().or(host.memory.total_bytes.get())
}

fn watermark_scale(host: &HostFacts) -> Verdict {
    let (factor, fact) = number::<u64>(host, "/proc/sys/vm/watermark_scale_factor")?;
    let Some(node) = node_bytes(host) else { return Ok(Judgement::missing(&host.memory.total_bytes)) };
    let gap = |factor: u64| (node / 10_000).saturating_mul(factor);
    let best = 400.min(IDLE_BYTES_MAX / (node / 10_000).max(1)).max(10);
    let have =
        format!("{factor}: kswapd works over {} of a node's {}", format_size(gap(factor)), format_size(node));
    let judgement = if factor < 100.min(best) {
        let advice = Judgement::advice(have).effect(format!(
            "{} instead of {} for kswapd to work in before programs reclaim by themselves",
            format_size(gap(best)),
            format_size(gap(factor))
        ));
        sysctl(advice, &fact, best)
    } else if gap(factor) > IDLE_BYTES_MAX {
        let much = format!("{have}: more than {} kept idle", format_size(IDLE_BYTES_MAX));
        sysctl(Judgement::advice(much), &fact, best)
    } else {
        Judgement::ok(have).seen(&fact)
    };
    Ok(judgement.seen(&host.memory.total_bytes))
}

fn watermark_boost(host: &HostFacts) -> Verdict {
    let (value, fact) = number::<u32>(host, "/proc/sys/vm/watermark_boost_factor")?;
    Ok(match value {
        0 => Judgement::ok("0: no boost").seen(&fact),
        _ => {
            let reason =
                format!("{value}: up to {} % of the high mark is reclaimed after fragmentation", value / 100);
            sysctl(Judgement::advice(reason), &fact, 0)
        }
    })
}

fn min_free(host: &HostFacts) -> Verdict {
    let (kib, fact) = number::<u64>(host, "/proc/sys/vm/min_free_kbytes")?;
    let total = *need(&host.memory.total_bytes)?;
    let nodes = host.numa.nodes.value().map_or(1, |nodes| nodes.len().max(1)) as u64;
    let (have, low, most) = (kib.saturating_mul(1024), total / 400, nodes * (2 << 30));
    let wanted = low.min(most);
    let said = format!("{} of {}", format_size(have), format_size(total));
    let judgement = if have < wanted {
        let reason = format!("{said}: less than 0.25 %, a rule of thumb");
        sysctl(Judgement::advice(reason), &fact, wanted / 1024)
    } else if have > most.max(total / 20) {
        sysctl(
            Judgement::problem(format!("{said}: programs are killed with this much free")),
            &fact,
            wanted / 1024,
        )
    } else {
        Judgement::ok(said).seen(&fact)
    };
    Ok(judgement.seen(&host.memory.total_bytes))
}

fn mglru(host: &HostFacts) -> Verdict {
    let path = "/sys/kernel/mm/lru_gen/enabled";
    let (mask, fact) = text(host, path)?;
    let bits = u32::from_str_radix(mask.trim_start_matches("0x"), 16).unwrap_or(0);
    if bits & 1 == 0 {
        return Ok(write(
            Judgement::advice("off: worth a comparison under your load"),
            &fact,
            "0x0007",
            tmpfiles(path, "0x0007"),
        ));
    }
    let kept = host.settings.text("/sys/kernel/mm/lru_gen/min_ttl_ms");
    Ok(Judgement::ok(format!("on ({mask})")).seen(&fact).seen(&kept))
}

fn dirty(host: &HostFacts) -> Verdict {
    let (bytes, fact) = number::<u64>(host, "/proc/sys/vm/dirty_bytes")?;
    if bytes > 0 {
        return Ok(Judgement::ok(format!("{} at most", format_size(bytes))).seen(&fact));
    }
    let (percent, ratio) = number::<u64>(host, "/proc/sys/vm/dirty_ratio")?;
    let available = *need(&host.memory.available_bytes)?;
    let most = (available / 100).saturating_mul(percent);
    // Two seconds of a drive that writes 2 GB/s.
    const BYTES_WANTED: u64 = 4 << 30;
    if most <= BYTES_WANTED {
        return Ok(Judgement::ok(format!("{percent} %, {} at most now", format_size(most))).seen(&ratio));
    }
    let judgement = Judgement::advice(format!("{percent} % of what is available: up to {} now", format_size(most)))
        .seen(&ratio)
        .effect(format!("at 2 GB/s that is {} s of writing at once", most / 2_000_000_000))
        .fix(
            "echo 1073741824 > /proc/sys/vm/dirty_background_bytes; echo 4294967296 > /proc/sys/vm/dirty_bytes",
            "/etc/sysctl.d/90-overdrive.conf: vm.dirty_background_bytes = 1073741824, vm.dirty_bytes = 4294967296",
        )
        .undo(format!(
            "echo {percent} > /proc/sys/vm/dirty_ratio; echo {} > /proc/sys/vm/dirty_background_ratio",
            host.settings.number::<u64>("/proc/sys/vm/dirty_background_ratio").get().unwrap_or(10)
        ));
    Ok(judgement.seen(&host.memory.available_bytes))
}

fn laptop(host: &HostFacts) -> Verdict {
    let (value, fact) = number::<u32>(host, "/proc/sys/vm/laptop_mode")?;
    Ok(match value {
        0 => Judgement::ok("off").seen(&fact),
        _ => sysctl(Judgement::advice(format!("{value}: writes are gathered and come in bursts")), &fact, 0),
    })
}

fn direct_reclaim(host: &HostFacts) -> Verdict {
    let count = |names: &[&str]| parse::sum(names.iter().filter_map(|name| host.settings.vmstat(name)));
    let stalls = count(&["allocstall_normal", "allocstall_movable", "allocstall_dma32"]);
    let (direct, kswapd) = (count(&["pgscan_direct"]), count(&["pgscan_kswapd"]));
    let vmstat = host.settings.text("/proc/vmstat");
    need(&vmstat)?;
    let counters = format!("allocstall {stalls}, pgscan_direct {direct}, pgscan_kswapd {kswapd}");
    let counters = Fact::known((), counters, "/proc/vmstat");
    let pressure = host.settings.text("/proc/pressure/memory");
    let full = pressure.value().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("full avg10="))?;
        line.split(' ').next()?.parse::<f64>().ok()
    });
    let share = (100.0 * direct as f64 / (direct as f64 + kswapd as f64).max(1.0)) as u64;
    let judgement = match full {
        Some(full) if full >= 1.0 => {
            Judgement::problem(format!("everything stood still for memory {full} % of the last 10 s"))
        }
        _ if (direct, kswapd) == (0, 0) => return leave("nothing has been reclaimed since boot"),
        _ if share > 10 => Judgement::advice(format!(
            "{share} % of the pages looked at since boot were by programs themselves"
        ))
        .fix("raise vm.watermark_scale_factor, or memory.high of the group", ""),
        _ => {
            Judgement::ok(format!("{share} % of the pages looked at since boot were by programs themselves"))
        }
    };
    let judgement = judgement.seen(&counters);
    Ok(if pressure.is_absent() { judgement } else { judgement.seen(&pressure) })
}
