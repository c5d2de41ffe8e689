//! Rules about the block layer beyond the queue's own knobs: sizes, layers above, tracers, how to apply.

use super::super::each_disk;
use super::super::knob::{Verdict, leave, need, number, settle, sysctl, write};
use super::set;
use crate::facts::{Fact, FactRow, HostFacts};
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::{LayerKind, TargetFacts};

pub(in super::super) const RULES: &[Rule] = &[
    Rule {
        id: "block-write-freezes-queue",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "Queue settings are changed while the disk is idle",
        why: "Every write to a queue attribute stops the queue and waits until it is empty: a pause \
              for all users that no I/O tool shows, and a danger while the disk swaps.",
        source: "kernel: queue_attr_store in block/blk-sysfs.c, 6.12; bpftrace pull request 858",
        effect: "no pause for others when a setting is applied",
        risk: Risk::Safe,
        verified: true,
        judge: |host, target| freezes(host, target),
    },
    Rule {
        id: "block-max-sectors",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "The largest request fits the use",
        why: "Large writes in front of a small read lengthen its wait; small requests cost bandwidth. \
              One older set-up for swap used 32 KiB.",
        source: "kernel: Documentation/ABI/stable/sysfs-block (max_sectors_kb); LinuxSwap setup.sh",
        effect: "the time of one largest request on the link, at most",
        risk: Risk::SideEffects,
        verified: true,
        judge: max_sectors,
    },
    Rule {
        id: "block-stacked-no-poll",
        scope: Scope::Block,
        profile: Profile::Storage,
        title: "The device on top can be polled",
        why: "Polling passes through LVM, crypt or RAID only where every layer supports it; otherwise \
              polled I/O is refused or spins in vain.",
        source: "kernel: BLK_FEAT_POLL in 6.12; liburing issues 227 and 263",
        effect: "polling that polls",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |_, target| settle(stacked(target)),
    },
    Rule {
        id: "block-dmcrypt-workqueues",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "Encryption does not change threads",
        why: "dm-crypt hands each request to a worker thread and back; on a fast drive doing it in \
              place is quicker.",
        source: "kernel: Documentation/admin-guide/device-mapper/dm-crypt.rst (no_read_workqueue; commit \
              39d42fa96ba1, 5.9); cryptsetup(8)",
        effect: "two changes of thread less for each request",
        risk: Risk::SideEffects,
        verified: true,
        judge: |_, target| settle(crypt(target)),
    },
    Rule {
        id: "block-trace-leftovers",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "No tracer was left on",
        why: "A forgotten tracer taxes every request.",
        source: "kernel: Documentation/trace/ftrace.rst",
        effect: "0.1 to 0.5 us a probe for each request (figures of others, not verified)",
        risk: Risk::SideEffects,
        verified: true,
        judge: |host, target| settle(traces(host, target)),
    },
    Rule {
        id: "block-bpf-stats",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "BPF programs are not timed",
        why: "With statistics on, each run of each BPF program reads the clock twice.",
        source: "kernel: Documentation/admin-guide/sysctl/kernel.rst (bpf_stats_enabled)",
        effect: "two clock readings less for each BPF program in the way",
        risk: Risk::Safe,
        verified: true,
        judge: |host, _| settle(bpf(host)),
    },
    Rule {
        id: "block-logical-alignment",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "The partition begins on a physical block",
        why: "From a crooked start each 4 KiB request touches two blocks of the drive.",
        source: "kernel: Documentation/ABI/stable/sysfs-block (alignment_offset)",
        effect: "half the device operations where it was wrong",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |_, target| settle(alignment(target)),
    },
];

fn freezes(host: &HostFacts, target: &TargetFacts) -> Judgement {
    each_disk(target, |disk| {
        let fact = &disk.block.in_flight;
        let Some(count) = fact.get() else {
            return match fact.is_absent() {
                true => Judgement::not_applicable("the disk does not tell what is in flight"),
                false => Judgement::missing(fact),
            };
        };
        let swaps = host.swap.devices.value().into_iter().flatten();
        let swaps = swaps.filter(|device| device.disk.as_deref() == Some(disk.name())).count();
        match (swaps, count) {
            (0, 0) => Judgement::ok("idle now; several settings at once cost one pause instead of several")
                .seen(fact),
            (0, _) => {
                Judgement::ok(format!("{count} requests in flight now: wait for a quiet moment")).seen(fact)
            }
            _ => Judgement::advice("it carries swap: a change stops every fault until the queue has drained")
                .seen(fact),
        }
    })
}

fn max_sectors(host: &HostFacts, target: &TargetFacts) -> Judgement {
    each_disk(target, |disk| {
        let queue = &disk.block.queue;
        let fact = &queue.max_sectors_kb;
        let (Some(now), Some(most)) = (fact.get(), queue.max_hw_sectors_kb.get()) else {
            return match fact.is_absent() {
                true => Judgement::not_applicable("the disk has no such limit"),
                false => Judgement::missing(fact),
            };
        };
        let link = disk.pcie.as_ref().and_then(|pcie| pcie.link.now());
        let judgement = match now {
            0..64 if most > now => {
                let judgement =
                    Judgement::advice(format!("{now} KiB of {most}: streaming is cut into small requests"));
                let wanted = most.min(128).to_string();
                set(host, judgement, disk, "max_sectors_kb", fact, &now.to_string(), &wanted)
            }
            _ => Judgement::ok(format!("{now} KiB")).seen(fact),
        };
        let judgement = match link {
            Some(link) => judgement.effect(format!(
                "one largest request takes {:.0} us of the link",
                now as f64 * 1024.0 / link.bytes_per_second() as f64 * 1e6
            )),
            None => judgement,
        };
        judgement.seen(&queue.max_hw_sectors_kb)
    })
}

/// The rows of the target's layers of these kinds whose id ends so.
fn rows<'a>(
    target: &'a TargetFacts,
    kinds: &'a [LayerKind],
    end: &'a str,
) -> impl Iterator<Item = &'a FactRow> {
    let layers = target.layers.iter().filter(move |layer| kinds.contains(&layer.kind));
    layers.flat_map(|layer| &layer.rows).filter(move |row| row.id.ends_with(end))
}

fn told(row: &FactRow) -> Fact<()> {
    Fact::known((), row.value.clone().or(row.why.clone()).unwrap_or_default(), row.path.clone())
}

fn stacked(target: &TargetFacts) -> Verdict {
    let Some(top) = rows(target, &[LayerKind::DeviceMapper, LayerKind::Raid], ".io_poll").next() else {
        return leave("nothing is stacked above the disk");
    };
    let below = target.disks.iter().any(|disk| disk.block.queue.io_poll.get() == Some(true));
    Ok(match (top.value.as_deref(), below) {
        (Some("yes"), _) => Judgement::ok("it can"),
        (_, true) => Judgement::advice("the disk can be polled, the device on top of it cannot")
            .fix("", "poll the disk itself"),
        _ => Judgement::ok("it cannot, and neither can the disk"),
    }
    .seen(&told(top)))
}

fn crypt(target: &TargetFacts) -> Verdict {
    let mut mapped = rows(target, &[LayerKind::DeviceMapper], ".uuid");
    let Some(row) = mapped.find(|row| row.value.as_ref().is_some_and(|uuid| uuid.starts_with("CRYPT")))
    else {
        return leave("nothing above the disk encrypts");
    };
    Ok(Judgement::advice("it lies on dm-crypt; whether the workers are skipped, dmsetup table tells")
        .seen(&told(row))
        .fix(
            "cryptsetup refresh --perf-no_read_workqueue --perf-no_write_workqueue NAME",
            "the same with --persistent",
        ))
}

fn traces(host: &HostFacts, target: &TargetFacts) -> Verdict {
    let tracer = host.settings.text("/sys/kernel/tracing/current_tracer");
    let events = host.settings.text("/sys/kernel/tracing/set_event");
    let probes = host.settings.text("/sys/kernel/tracing/kprobe_events");
    let active = need(&tracer)?;
    let blktrace = target.disks.iter().find(|disk| disk.block.traced.get() == Some(true));
    if let Some(disk) = blktrace {
        let fact = &disk.block.traced;
        let judgement = Judgement::advice(format!("{} is traced by blktrace", disk.name()));
        return Ok(write(judgement, fact, 0, ""));
    }
    let busy = events.value().is_some_and(|text| !text.is_empty())
        || probes.value().is_some_and(|text| !text.is_empty());
    Ok(match (active.as_str(), busy) {
        ("nop", false) => Judgement::ok("no tracer, event or probe is on").seen(&tracer),
        ("nop", true) => Judgement::advice("trace events or probes are on").seen(&events).seen(&probes),
        (other, _) => write(Judgement::advice(format!("the tracer {other} is on")), &tracer, "nop", ""),
    })
}

fn bpf(host: &HostFacts) -> Verdict {
    let (on, fact) = number::<u32>(host, "/proc/sys/kernel/bpf_stats_enabled")?;
    Ok(match on {
        0 => Judgement::ok("off").seen(&fact),
        _ => sysctl(Judgement::advice("on: every BPF program is timed"), &fact, 0),
    })
}

fn alignment(target: &TargetFacts) -> Verdict {
    let parts: Vec<&FactRow> = rows(target, &[LayerKind::Partition], ".first_sector").collect();
    if parts.is_empty() {
        return leave("no partition lies between the target and its disk");
    }
    let physical = target.disks.iter().filter_map(|disk| disk.block.queue.physical_block_size.get()).max();
    let physical = physical.unwrap_or(4096).max(4096);
    for row in &parts {
        let Some(first) = row.value.as_ref().and_then(|text| text.parse::<u64>().ok()) else {
            return Err(Box::new(
                Judgement::unknown(format!("{}: no first sector", row.path)).seen(&told(row)),
            ));
        };
        let rest = first.saturating_mul(512) % physical;
        if rest != 0 {
            return Ok(Judgement::problem(format!("it begins {rest} bytes after a block of {physical}"))
                .seen(&told(row))
                .fix("", "a new partition table; the data has to move"));
        }
    }
    Ok(Judgement::ok(format!("on a multiple of {physical} bytes")).seen(&told(parts[0])))
}
