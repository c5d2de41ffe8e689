//! Rules about the file system and the file that is measured.

use crate::facts::{Fact, HostFacts};
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::{DiskFacts, Medium, TargetFacts};
use overdrive_base::size::format_size;
use overdrive_sys::volume::FileKind;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "file-system-kind",
        scope: Scope::Space,
        profile: Profile::Storage,
        title: "The target rests on a disk of this host",
        why: "In memory, over a network or behind an overlay, the figures are those of something else.",
        source: "proc_pid_mountinfo(5)",
        effect: "figures that belong to the disk",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: file_system_kind,
    },
    Rule {
        id: "file-holes",
        scope: Scope::Space,
        profile: Profile::Storage,
        title: "Every block of the file was written",
        why: "Reading a range that was never written gives zeros from the file system without a visit \
              to the disk: latency looks like memory's.",
        source: "lseek(2), SEEK_HOLE; fallocate(2)",
        effect: "reads that reach the disk",
        risk: Risk::SideEffects,
        verified: true,
        judge: file_holes,
    },
    Rule {
        id: "space-free",
        scope: Scope::Space,
        profile: Profile::Any,
        title: "The file system has room",
        why: "A full file system scatters new files, and a full flash drive has few clean blocks: \
              writes slow down and their tails grow.",
        source: "SNIA Solid State Storage Performance Test Specification, on steady state",
        effect: "steadier writes",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: space_free,
    },
];

/// Free share of a file system below which writes suffer, and below which a run may fail.
const FREE_ADVICE: f64 = 0.10;
const FREE_PROBLEM: f64 = 0.03;

fn file_system_kind(_: &HostFacts, target: &TargetFacts) -> Judgement {
    if target.identity.kind == FileKind::Block {
        return Judgement::not_applicable("the target is a block device");
    }
    let kind = target.mount.as_ref().map_or("unknown", |mount| mount.kind.as_str());
    let source = target.mount.as_ref().map_or("?", |mount| mount.source.as_str());
    let seen = Fact::known((), format!("{kind} from {source}"), "/proc/self/mountinfo");
    let judgement = match &target.medium {
        Medium::Disk => {
            let disks: Vec<&str> = target.disks.iter().map(DiskFacts::name).collect();
            Judgement::ok(format!("{kind} on {}", disks.join(", ")))
        }
        Medium::Memory(why) => {
            Judgement::problem(why.as_str()).fix("measure on a file system that has a disk (--dir)", "")
        }
        Medium::Network(why) => Judgement::problem(why.as_str()).fix("measure on a local disk (--dir)", ""),
        Medium::Hidden(why) => Judgement::advice(why.as_str()),
    };
    judgement.seen(&seen)
}

fn file_holes(_: &HostFacts, target: &TargetFacts) -> Judgement {
    if target.identity.kind != FileKind::Regular {
        return Judgement::not_applicable("the target is not a file");
    }
    let fact = &target.identity.data;
    let Some(map) = fact.value() else { return Judgement::missing(fact) };
    let all = map.data_bytes + map.hole_bytes;
    let told = Fact::known(
        (),
        format!("{} written, {} not, in {} ranges", map.data_bytes, map.hole_bytes, map.hole_count),
        fact.path(),
    );
    let judgement = match map.hole_bytes {
        0 if all == 0 => return Judgement::not_applicable("the file is empty"),
        0 => Judgement::ok("written in full"),
        holes => {
            let share = 100.0 * holes as f64 / all as f64;
            Judgement::problem(format!(
                "{} of {} ({share:.0} %) were never written: such reads do not reach the disk",
                format_size(holes),
                format_size(all)
            ))
            .fix("write the file in full before it is read; a scratch file of Overdrive's own is", "")
        }
    };
    judgement.seen(&told)
}

fn space_free(_: &HostFacts, target: &TargetFacts) -> Judgement {
    if target.identity.kind == FileKind::Block {
        return Judgement::not_applicable("the target is a block device");
    }
    let fact = &target.identity.space;
    let Some(space) = fact.value() else { return Judgement::missing(fact) };
    if space.total_bytes == 0 {
        return Judgement::not_applicable("the file system has no size of its own");
    }
    let share = space.free_bytes as f64 / space.total_bytes as f64;
    let reason = format!(
        "{} of {} are free ({:.0} %)",
        format_size(space.free_bytes),
        format_size(space.total_bytes),
        share * 100.0
    );
    let told =
        Fact::known((), format!("{} of {} bytes free", space.free_bytes, space.total_bytes), fact.path());
    let judgement = if share < FREE_PROBLEM {
        Judgement::problem(reason)
    } else if share < FREE_ADVICE {
        Judgement::advice(reason)
    } else {
        return Judgement::ok(reason).seen(&told);
    };
    judgement.seen(&told).fix("free some space, then fstrim the mount point", "fstrim.timer")
}
