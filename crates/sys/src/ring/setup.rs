//! Setting a ring up: every feature is asked for, what this kernel refuses is left out, and both are told.

use super::{Grants, RingError, RingOptions};
use crate::Errno;
use crate::proc_stat::own_status;
use rustix::fd::OwnedFd;
use rustix::io_uring::{IoringSetupFlags, io_uring_params, io_uring_setup};
use rustix::process::{Resource, getrlimit};

/// Part of a completion poll is slept through (since 6.13); rustix does not name it yet.
const HYBRID_IOPOLL: IoringSetupFlags = IoringSetupFlags::from_bits_retain(1 << 17);

/// How long the kernel's submission thread spins before it sleeps.
const SQ_THREAD_IDLE_MS: u32 = 1000;

/// A setup flag and its name.
type Step = (IoringSetupFlags, &'static str);

const NO_SQARRAY: Step = (IoringSetupFlags::NO_SQARRAY, "NO_SQARRAY");
const DEFER_TASKRUN: Step =
    (IoringSetupFlags::SINGLE_ISSUER.union(IoringSetupFlags::DEFER_TASKRUN), "SINGLE_ISSUER+DEFER_TASKRUN");
const SINGLE_ISSUER: Step = (IoringSetupFlags::SINGLE_ISSUER, "SINGLE_ISSUER");
const COOP_TASKRUN: Step = (IoringSetupFlags::COOP_TASKRUN, "COOP_TASKRUN");
const CQSIZE: Step = (IoringSetupFlags::CQSIZE, "CQSIZE");

/// Sets the ring up with as many features as this kernel takes: newest dropped first, one step at a time.
pub(super) fn setup(
    slots: u32,
    options: RingOptions,
    grants: &mut Grants,
) -> Result<(OwnedFd, io_uring_params), RingError> {
    let steps = steps(options);
    let entries = slots.max(1).next_power_of_two();
    let mut base = IoringSetupFlags::empty();
    base.set(IoringSetupFlags::IOPOLL, options.polled);
    base.set(IoringSetupFlags::SQPOLL, options.sq_poll);
    // Commands need both kinds of entries at twice the size, from 5.19 on.
    base.set(IoringSetupFlags::SQE128 | IoringSetupFlags::CQE32, options.namespace.is_some());
    for dropped in 0..=steps.len() {
        let flags = steps[dropped..].iter().fold(base, |flags, step| flags | step.0);
        let mut params = io_uring_params::default();
        params.flags = flags;
        params.cq_entries = if flags.contains(IoringSetupFlags::CQSIZE) { entries } else { 0 };
        params.sq_thread_idle = if options.sq_poll { SQ_THREAD_IDLE_MS } else { 0 };
        // SAFETY: the parameters are valid and writable for the call, and no flag makes the kernel use
        // memory of ours.
        match unsafe { io_uring_setup(entries, &mut params) } {
            Ok(fd) => {
                let names = |steps: &[Step]| steps.iter().map(|step| step.1.to_owned()).collect();
                *grants = Grants { granted: names(&steps[dropped..]), refused: names(&steps[..dropped]) };
                let asked = [(options.polled, "IOPOLL"), (options.sq_poll, "SQPOLL")];
                grants.granted.extend(asked.iter().filter(|ask| ask.0).map(|ask| ask.1.to_owned()));
                return Ok((fd, params));
            }
            Err(Errno::INVAL) if dropped < steps.len() => {}
            Err(errno) => return Err(refusal(errno)),
        }
    }
    Err(RingError::Failed { step: "io_uring_setup", errno: Errno::INVAL })
}

/// What can be left out, newest first. A ring with a kernel thread for submissions has no task of its own to
/// run completions in, so the kernel refuses DEFER_TASKRUN and COOP_TASKRUN beside it.
fn steps(options: RingOptions) -> Vec<Step> {
    let mut steps = Vec::new();
    if options.hybrid_poll {
        steps.push((HYBRID_IOPOLL, "HYBRID_IOPOLL"));
    }
    if options.sq_poll {
        steps.extend([NO_SQARRAY, SINGLE_ISSUER, CQSIZE]);
    } else {
        steps.extend([NO_SQARRAY, DEFER_TASKRUN, COOP_TASKRUN, CQSIZE]);
    }
    steps
}

/// Finds out why the kernel refused a ring with this errno.
#[must_use]
pub fn refusal(errno: Errno) -> RingError {
    if errno == Errno::NOSYS {
        return if under_seccomp() { RingError::Seccomp { errno } } else { RingError::NoKernelSupport };
    }
    if errno == Errno::PERM || errno == Errno::ACCESS {
        let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
        if !matches!(disabled.trim(), "" | "0") {
            return RingError::Sysctl { value: disabled.trim().to_owned() };
        }
        if under_seccomp() {
            return RingError::Seccomp { errno };
        }
    }
    if errno == Errno::NOMEM
        && let Some(limit_bytes) = getrlimit(Resource::Memlock).current
    {
        return RingError::LockedMemory { limit_bytes };
    }
    RingError::Failed { step: "io_uring_setup", errno }
}

fn under_seccomp() -> bool {
    own_status("Seccomp").is_some_and(|mode| mode == "2")
}
