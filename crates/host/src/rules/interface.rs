//! Rules about the ways a program may do I/O: io_uring, locked buffers, the older asynchronous interface.
//!
//! Their ids begin with `block`, as the catalogue has them.

use crate::facts::HostFacts;
use crate::facts::limits::User;
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::TargetFacts;
use overdrive_base::size::{MIB, format_size};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "block-io-uring-allowed",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "io_uring may be used",
        why: "Without it every I/O needs a system call of its own and polling is out of reach. \
              Containers often forbid it by seccomp as well, which no file tells.",
        source: "kernel: Documentation/admin-guide/sysctl/kernel.rst (io_uring_disabled)",
        effect: "about half the CPU per I/O of the older interfaces at depth",
        risk: Risk::SideEffects,
        verified: true,
        judge: io_uring_allowed,
    },
    Rule {
        id: "block-memlock",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "Enough memory may be locked",
        why: "Registered buffers are locked and counted; beyond the limit they are refused and the \
              faster path is lost.",
        source: "io_uring_register(2); SPDK scripts/setup.sh warns below 64 MiB",
        effect: "registered buffers of the size wanted",
        risk: Risk::Safe,
        verified: true,
        judge: memlock,
    },
    Rule {
        id: "block-aio-max",
        scope: Scope::Block,
        profile: Profile::Any,
        title: "Room for asynchronous requests",
        why: "libaio reserves its requests from one budget of the host; when it is used up, io_setup \
              fails.",
        source: "kernel: Documentation/admin-guide/sysctl/fs.rst (aio-nr, aio-max-nr)",
        effect: "libaio programs start",
        risk: Risk::Safe,
        verified: true,
        judge: aio_max,
    },
];

/// Lockable memory below which registered buffers of an ordinary run do not fit.
const MEMLOCK_MIN: u64 = 64 * MIB;

fn io_uring_allowed(host: &HostFacts, _: &TargetFacts) -> Judgement {
    let (switch, group, user) =
        (&host.limits.io_uring_disabled, &host.limits.io_uring_group, &host.limits.user);
    let enable = |judgement: Judgement, value: u64| {
        judgement
            .seen(switch)
            .fix(
                "sysctl kernel.io_uring_disabled=0",
                "/etc/sysctl.d/90-overdrive.conf: kernel.io_uring_disabled=0",
            )
            .undo(format!("sysctl kernel.io_uring_disabled={value}"))
    };
    match switch.get() {
        None if switch.is_absent() => Judgement::ok("this kernel has no such switch (it came with 6.6)")
            .seen(switch)
            .seen(&host.kernel.release),
        None => Judgement::missing(switch),
        Some(0) => Judgement::ok("allowed for all").seen(switch),
        Some(1) => {
            let Some(who) = user.value() else { return Judgement::missing(user).seen(switch) };
            let is_member = group
                .get()
                .and_then(|gid| u32::try_from(gid).ok())
                .is_some_and(|gid| who.groups.contains(&gid));
            if who.is_admin() || is_member {
                return Judgement::ok("allowed for a group and administrators, of which this user is")
                    .seen(switch)
                    .seen(group);
            }
            enable(Judgement::problem("allowed only for a group that this user is not in").seen(group), 1)
        }
        Some(value) => {
            enable(Judgement::problem("forbidden for everybody: only the older interfaces work"), value)
        }
    }
}

fn memlock(host: &HostFacts, _: &TargetFacts) -> Judgement {
    let limit = &host.limits.memlock_bytes;
    let Some(bytes) = limit.get() else { return Judgement::missing(limit) };
    if bytes == u64::MAX {
        return Judgement::ok("unlimited").seen(limit);
    }
    if host.limits.user.value().is_some_and(User::may_lock_freely) {
        return Judgement::ok("limited, but this user may lock freely (CAP_IPC_LOCK)").seen(limit);
    }
    let size = format_size(bytes);
    if bytes >= MEMLOCK_MIN {
        return Judgement::ok(size).seen(limit);
    }
    Judgement::advice(format!("{size}: too little for registered buffers at large block sizes and depths"))
        .seen(limit)
        .fix(
            "ulimit -l unlimited (as root, or within the hard limit)",
            "LimitMEMLOCK=infinity in the service's unit",
        )
}

fn aio_max(host: &HostFacts, _: &TargetFacts) -> Judgement {
    let (reserved, most) = (&host.limits.aio_reserved, &host.limits.aio_max);
    if most.is_absent() {
        return Judgement::not_applicable("this kernel has no asynchronous I/O of the old kind");
    }
    let (Some(used), Some(max)) = (reserved.get(), most.get()) else {
        return Judgement::missing(if most.get().is_none() { most } else { reserved });
    };
    let judgement = if used.saturating_mul(2) <= max {
        Judgement::ok(format!("{used} of {max} reserved"))
    } else {
        Judgement::advice(format!("{used} of {max} are reserved: more than half"))
            .fix("sysctl fs.aio-max-nr=1048576", "/etc/sysctl.d/90-overdrive.conf: fs.aio-max-nr=1048576")
            .undo(format!("sysctl fs.aio-max-nr={max}"))
    };
    judgement.seen(reserved).seen(most)
}
