//! Rules about the block layer of a disk, corrected for what each knob still does on the running kernel.

pub(super) mod around;

use super::{each_disk, interrupt_queues, numbered, udev};
use crate::facts::parse::CpuSet;
use crate::facts::{Fact, HostFacts};
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::{DiskFacts, TargetFacts};

const KERNEL_QUEUE: &str = "kernel: Documentation/ABI/stable/sysfs-block";
/// The errno by which write-back throttling says that it was never set up.
const EINVAL: i32 = 22;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "block-scheduler-none",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "No I/O scheduler in the way",
        why: "A scheduler sorts requests under a lock of the queue. A fast drive needs no sorting, and \
              the lock costs CPU time at high rates. The kernel gives mq-deadline to disks of one \
              hardware queue.",
        source: "kernel: Documentation/block/switching-sched.rst; T. Poder, 11M IOPS",
        effect: "less CPU per I/O; the lock of mq-deadline shows from about a million IOPS",
        risk: Risk::Safe,
        verified: true,
        judge: scheduler,
    },
    Rule {
        id: "block-nomerges",
        scope: Scope::Block,
        profile: Profile::Storage,
        title: "No search for merges in random work",
        why: "Each request is compared with its neighbours for merging. Random 4 KiB requests never \
              merge; sequential and buffered work does and should keep 0.",
        source: KERNEL_QUEUE,
        effect: "a little CPU per I/O in random work",
        risk: Risk::SideEffects,
        verified: true,
        judge: nomerges,
    },
    Rule {
        id: "block-rq-affinity",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "Completions run where they were submitted",
        why: "With fewer hardware queues than CPUs a completion arrives on some other CPU. 1 moves it \
              to the same cache, 2 to the submitting CPU itself. With one queue a CPU, or polling, it \
              has no effect.",
        source: KERNEL_QUEUE,
        effect: "warm caches at the submitter, for one interrupt between CPUs",
        risk: Risk::Safe,
        verified: true,
        judge: rq_affinity,
    },
    Rule {
        id: "block-iostats",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "I/O statistics are kept",
        why: "They cost two time stamps and some counters a request. Without them iostat shows nothing \
              and a result cannot be checked against the disk's own counters.",
        source: KERNEL_QUEUE,
        effect: "off, some per cent of the CPU at millions of IOPS",
        risk: Risk::SideEffects,
        verified: true,
        judge: iostats,
    },
    Rule {
        id: "block-rotational-flag",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "Flash is not taken for a rotating disk",
        why: "For a rotating disk the kernel allows writers 75 ms instead of 2 ms before throttling, \
              and one such swap area disables clustered read-ahead of swap for the whole host. Virtual \
              and RAID disks often say so wrongly.",
        source: "kernel: Documentation/ABI/stable/sysfs-block; mm/swapfile.c, block/blk-wbt.c in 6.12",
        effect: "right defaults for throttling and swap",
        risk: Risk::SideEffects,
        verified: true,
        judge: rotational,
    },
    Rule {
        id: "block-wbt",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "No write-back throttling",
        why: "It holds buffered write-back, discards and swap-out back to protect reads; direct \
              synchronous writes pass. A fast drive needs none.",
        source: "kernel: Documentation/ABI/stable/sysfs-block; block/blk-wbt.c and blk-sysfs.c in 6.12",
        effect: "full rate for buffered writes and swap-out; none for O_DIRECT",
        risk: Risk::Safe,
        verified: true,
        judge: wbt,
    },
    Rule {
        id: "block-read-ahead",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "Small faults do not read much",
        why: "A buffered or mapped random read of 4 KiB may fetch as much as the read-ahead. Streaming \
              wants it large; O_DIRECT does not use it.",
        source: "kernel: Documentation/ABI/stable/sysfs-block (read_ahead_kb)",
        effect: "none for O_DIRECT; for mapped random reads, up to the ratio of read-ahead to 4 KiB",
        risk: Risk::SideEffects,
        verified: true,
        judge: read_ahead,
    },
    Rule {
        id: "block-io-poll-noop",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "Known state of polled completions",
        why: "Older guides and scripts write 1 to io_poll. Since 5.16 the write is ignored: the file \
              only tells whether the driver made poll queues.",
        source: "kernel commit a614dd228035; blktests issue 109",
        effect: "none from the write; poll queues come from the driver's parameter",
        risk: Risk::Safe,
        verified: true,
        judge: io_poll,
    },
    Rule {
        id: "block-hybrid-poll-gone",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "Hybrid polling is not relied on",
        why: "io_poll_delay once chose between spinning and sleeping first. Newer kernels dropped it: \
              the file reads -1 and takes writes without effect.",
        source: "kernel commit 54bdd67d0f88; block/blk-sysfs.c in 6.12",
        effect: "none; IORING_SETUP_HYBRID_IOPOLL is the nearest successor",
        risk: Risk::Safe,
        verified: true,
        judge: hybrid_poll,
    },
    Rule {
        id: "block-nr-requests",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "Enough requests for the depth wanted",
        why: "A queue takes that many requests; further ones sleep until one is free.",
        source: KERNEL_QUEUE,
        effect: "no sleeping in submission at high depth",
        risk: Risk::SideEffects,
        verified: true,
        judge: nr_requests,
    },
    Rule {
        id: "block-add-random",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "Completions do not feed the entropy pool",
        why: "Each completion would mix its time into the pool of random numbers, which need it no \
              longer.",
        source: KERNEL_QUEUE,
        effect: "a little CPU per completion",
        risk: Risk::Safe,
        verified: true,
        judge: add_random,
    },
    Rule {
        id: "block-online-discard",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "Discards are not sent with every delete",
        why: "With the mount option 'discard' each deleted file sends discards between the reads and \
              writes of others; large ones can hold a drive up.",
        source: "kernel: Documentation/ABI/stable/sysfs-block (discard_max_bytes); fstrim(8)",
        effect: "no latency spikes when files are deleted",
        risk: Risk::SideEffects,
        verified: true,
        judge: online_discard,
    },
];

/// Read-ahead above which a mapped random read is visibly inflated; the kernel's default.
const READ_AHEAD_KB_MAX: u64 = 128;
/// Depth that a queue should take without sleeping.
const DEPTH_WANTED: u64 = 128;

/// A queue attribute of a disk that may be absent (stacked devices have few) or unreadable.
fn attribute<T>(fact: &Fact<T>) -> Result<&T, Box<Judgement>> {
    match fact {
        Fact::Known { value, .. } => Ok(value),
        Fact::Absent { path } => {
            Err(Box::new(Judgement::not_applicable(format!("this kernel or disk has no {path}"))))
        }
        Fact::Unreadable { .. } => Err(Box::new(Judgement::missing(fact))),
    }
}

/// Advice to write `value` to a queue attribute, with its undo; not to a disk that rotates.
fn set<T>(
    host: &HostFacts,
    judgement: Judgement,
    disk: &DiskFacts,
    name: &str,
    fact: &Fact<T>,
    old: &str,
    value: &str,
) -> Judgement {
    if let Some(left) = left_to_rotate(host, disk, fact, old) {
        return left;
    }
    let file = format!("{}/{name}", disk.block.queue_folder());
    judgement
        .seen(fact)
        .fix(format!("echo {value} > {file}"), udev(disk.name(), &format!("queue/{name}"), value))
        .undo(format!("echo {old} > {file}"))
}

/// What is said of a setting that is right for a disk that rotates; none when the disk counts as flash.
///
/// An NVMe drive and a guest's disk are flash whatever they say of themselves. Of any other the kernel's word
/// is taken: sorted, merged and large requests are what such a disk lives on.
fn left_to_rotate<T>(host: &HostFacts, disk: &DiskFacts, fact: &Fact<T>, value: &str) -> Option<Judgement> {
    let rotates = &disk.block.queue.rotational;
    let counts = disk.nvme.is_none() && host.hypervisor.is_guest() != Some(true);
    (counts && rotates.get() == Some(true))
        .then(|| Judgement::ok(format!("{value}, left: the disk is said to rotate")).seen(fact).seen(rotates))
}

/// Judges each disk by one attribute that it may lack.
fn by_attribute<T>(
    target: &TargetFacts,
    pick: impl Fn(&DiskFacts) -> &Fact<T>,
    judge: impl Fn(&DiskFacts, &Fact<T>, &T) -> Judgement,
) -> Judgement {
    each_disk(target, |disk| {
        let fact = pick(disk);
        attribute(fact).map_or_else(|judgement| *judgement, |value| judge(disk, fact, value))
    })
}

fn scheduler(host: &HostFacts, target: &TargetFacts) -> Judgement {
    let elevator = host.kernel.parameter("elevator");
    by_attribute(
        target,
        |disk| &disk.block.queue.scheduler,
        |disk, fact, choice| {
            let active = choice.active.as_str();
            let dead = elevator.map_or_else(String::new, |value| {
                format!("; the boot parameter elevator={value} is ignored by this kind of queue")
            });
            if active == "none" {
                return Judgement::ok(format!("none{dead}")).seen(fact);
            }
            if let Some(left) = left_to_rotate(host, disk, fact, active) {
                return left;
            }
            if !choice.available.iter().any(|name| name == "none") {
                return Judgement::advice(format!("{active}, and none is not offered{dead}")).seen(fact);
            }
            let judgement = match &disk.nvme {
                Some(_) => Judgement::problem(format!("{active} on an NVMe drive{dead}")),
                None => Judgement::advice(format!(
                    "{active}, the kernel's default for a disk of one hardware queue{dead}"
                )),
            };
            set(host, judgement, disk, "scheduler", fact, active, "none")
        },
    )
}

fn nomerges(host: &HostFacts, target: &TargetFacts) -> Judgement {
    by_attribute(
        target,
        |disk| &disk.block.queue.nomerges,
        |disk, fact, &value| match value {
            2 => Judgement::ok("2: no search").seen(fact),
            other => {
                let how = if other == 0 { "every request is compared" } else { "simple comparisons only" };
                let judgement = Judgement::advice(format!(
                    "{other}: {how}; 2 saves that in random runs, keep 0 for sequential"
                ));
                set(host, judgement, disk, "nomerges", fact, &other.to_string(), "2")
            }
        },
    )
}

fn rq_affinity(host: &HostFacts, target: &TargetFacts) -> Judgement {
    let Some(cpus) = host.cpu.online.value().map(CpuSet::len) else {
        return Judgement::missing(&host.cpu.online);
    };
    by_attribute(
        target,
        |disk| &disk.block.queue.rq_affinity,
        |disk, fact, &value| {
            let queues = &disk.block.hardware_queues;
            let Some(count) = interrupt_queues(disk).map(<[_]>::len) else {
                return match queues.is_absent() {
                    true => Judgement::not_applicable("the driver has no hardware queues"),
                    false => Judgement::missing(queues),
                };
            };
            let have = format!("{} for {cpus} CPUs", numbered(count, "queue"));
            if count >= cpus {
                let reason = format!("{have}: completions come home by themselves");
                return Judgement::ok(reason).seen(queues).seen(fact);
            }
            if value == 2 {
                return Judgement::ok(format!("2, with {have}")).seen(queues).seen(fact);
            }
            let where_to =
                if value == 0 { "where the interrupt arrives" } else { "within the submitter's cache" };
            let judgement = Judgement::advice(format!(
                "{have}, and completions run {where_to}; 2 brings them to the submitting CPU"
            ));
            set(host, judgement.seen(queues), disk, "rq_affinity", fact, &value.to_string(), "2")
        },
    )
}

fn iostats(host: &HostFacts, target: &TargetFacts) -> Judgement {
    by_attribute(
        target,
        |disk| &disk.block.queue.iostats,
        |disk, fact, &is_on| {
            if is_on {
                return Judgement::ok("kept; turning them off helps only a run for the highest rate")
                    .seen(fact);
            }
            let judgement =
                Judgement::advice("off: iostat and the check against the disk's counters are blind");
            set(host, judgement, disk, "iostats", fact, "0", "1")
        },
    )
}

fn rotational(host: &HostFacts, target: &TargetFacts) -> Judgement {
    by_attribute(
        target,
        |disk| &disk.block.queue.rotational,
        |disk, fact, &rotates| {
            if !rotates {
                return Judgement::ok("not rotating").seen(fact);
            }
            let judgement = match (&disk.nvme, host.hypervisor.is_guest()) {
                (Some(_), _) => Judgement::problem("an NVMe drive is said to rotate"),
                (None, Some(true)) => {
                    Judgement::advice("a virtual disk said to rotate: wrong if its host keeps it on flash")
                }
                // Whether it does only people can tell, and the other settings of the queue follow from it.
                (None, _) => {
                    return Judgement::advice(
                        "said to rotate: wrong if it is flash, behind a RAID controller for one",
                    )
                    .seen(fact)
                    .fix("", format!("if it is flash: {}", udev(disk.name(), "queue/rotational", "0")));
                }
            };
            set(host, judgement, disk, "rotational", fact, "1", "0")
        },
    )
}

fn wbt(host: &HostFacts, target: &TargetFacts) -> Judgement {
    each_disk(target, |disk| {
        let fact = &disk.block.queue.wbt_lat_usec;
        if fact.errno() == Some(EINVAL) {
            let reason = "never set up on this disk; leave it so: any write, even of 0, would set it up and \
                          add two time stamps to every request for good";
            return Judgement::ok(reason).seen(fact);
        }
        match attribute(fact) {
            Err(judgement) => *judgement,
            Ok(0) => Judgement::ok("off").seen(fact),
            Ok(&target_us) => {
                let judgement = Judgement::advice(format!(
                    "buffered writers are held back when reads take longer than {target_us} us; O_DIRECT \
                     is not"
                ));
                set(host, judgement, disk, "wbt_lat_usec", fact, &target_us.to_string(), "0")
            }
        }
    })
}

fn read_ahead(host: &HostFacts, target: &TargetFacts) -> Judgement {
    by_attribute(
        target,
        |disk| &disk.block.queue.read_ahead_kb,
        |disk, fact, &kib| {
            if kib <= READ_AHEAD_KB_MAX {
                return Judgement::ok(format!("{kib} KiB")).seen(fact);
            }
            if let Some(left) = left_to_rotate(host, disk, fact, &format!("{kib} KiB")) {
                return left;
            }
            let judgement = Judgement::advice(format!(
                "{kib} KiB: good for streaming, not for mapped or buffered random reads"
            ))
            .effect(format!(
                "none for O_DIRECT; a mapped random read of 4 KiB may fetch up to {} times as much",
                kib / 4
            ));
            set(host, judgement, disk, "read_ahead_kb", fact, &kib.to_string(), "16")
        },
    )
}

fn io_poll(host: &HostFacts, target: &TargetFacts) -> Judgement {
    by_attribute(
        target,
        |disk| &disk.block.queue.io_poll,
        |_, fact, &polls| {
            if polls {
                return Judgement::ok("poll queues exist: polled I/O works").seen(fact);
            }
            let reason = match host.kernel.at_least(5, 16) {
                Some(true) => {
                    "no poll queues, so no polled I/O; writing 1 here does nothing on this kernel: drop \
                     it from scripts"
                }
                Some(false) => {
                    "no polled I/O; on this kernel 1 may be written here where the driver can poll"
                }
                None => "no polled I/O; whether a write counts depends on the kernel, which is not known",
            };
            Judgement::ok(reason).seen(fact).seen(&host.kernel.release)
        },
    )
}

fn hybrid_poll(host: &HostFacts, target: &TargetFacts) -> Judgement {
    by_attribute(
        target,
        |disk| &disk.block.queue.io_poll_delay,
        |_, fact, &delay| {
            let judgement = match (host.kernel.at_least(6, 4), delay) {
                (Some(true), -1) => {
                    Judgement::ok("gone from this kernel; writes to io_poll_delay have no effect")
                }
                (_, -1) => Judgement::ok("-1: polling spins and does not sleep first"),
                (_, delay) => Judgement::advice(format!(
                    "{delay}: a poll sleeps before it spins, which blurs latencies"
                ))
                .fix(format!("echo -1 > {}", fact.path()), "drop the write from tuning scripts")
                .undo(format!("echo {delay} > {}", fact.path())),
            };
            judgement.seen(fact).seen(&host.kernel.release)
        },
    )
}

fn nr_requests(host: &HostFacts, target: &TargetFacts) -> Judgement {
    by_attribute(
        target,
        |disk| &disk.block.queue.nr_requests,
        |disk, fact, &count| {
            if count >= DEPTH_WANTED {
                return Judgement::ok(format!("{count} a queue")).seen(fact);
            }
            let reason = format!(
                "{count} a queue: a submitter beyond that sleeps; if the write is refused, it is the \
                 hardware's limit"
            );
            set(
                host,
                Judgement::advice(reason),
                disk,
                "nr_requests",
                fact,
                &count.to_string(),
                &DEPTH_WANTED.to_string(),
            )
        },
    )
}

fn add_random(host: &HostFacts, target: &TargetFacts) -> Judgement {
    by_attribute(
        target,
        |disk| &disk.block.queue.add_random,
        |disk, fact, &feeds| {
            if !feeds {
                return Judgement::ok("off").seen(fact);
            }
            set(
                host,
                Judgement::advice("on: each completion feeds the pool"),
                disk,
                "add_random",
                fact,
                "1",
                "0",
            )
        },
    )
}

fn online_discard(_: &HostFacts, target: &TargetFacts) -> Judgement {
    let Some(mount) = &target.mount else { return Judgement::not_applicable("the target is a block device") };
    let asked = mount.options.iter().find(|option| *option == "discard" || option.starts_with("discard="));
    let told = Fact::known((), mount.options.join(","), format!("/proc/self/mountinfo ({})", mount.point));
    let Some(option) = asked else {
        return Judgement::ok("not mounted with discard").seen(&told);
    };
    if option == "discard=async" {
        return Judgement::ok("discard=async: sent later and in batches").seen(&told);
    }
    each_disk(target, |disk| {
        let largest = &disk.block.queue.discard_max_bytes;
        match largest.get() {
            Some(0) => Judgement::ok("asked for, but the disk takes no discards").seen(largest),
            _ => Judgement::advice(format!("{} is mounted with {option}", mount.point))
                .seen(&told)
                .seen(largest)
                .fix(
                    format!("mount -o remount,nodiscard {}", mount.point),
                    "drop 'discard' from /etc/fstab and enable fstrim.timer",
                )
                .undo(format!("mount -o remount,{option} {}", mount.point)),
        }
    })
}
