//! Which CPUs this process and others may use, keeping threads to some of them, and who goes first there.

use crate::Errno;
use crate::raw::syscall;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// The CPUs this thread may run on, ascending.
///
/// # Errors
/// When the kernel refuses to tell, which happens only on machines with more than 1024 CPUs.
pub fn allowed_cpus() -> Result<Vec<usize>, Errno> {
    Ok(listed(&sched_getaffinity(None)?))
}

/// The same of any thread, by its number.
///
/// # Errors
/// ESRCH when there is no such thread.
pub fn cpus_of(thread: u32) -> Result<Vec<usize>, Errno> {
    Ok(listed(&sched_getaffinity(Some(thread_numbered(thread)?))?))
}

fn listed(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

fn thread_numbered(thread: u32) -> Result<Pid, Errno> {
    i32::try_from(thread).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// When the CPU does not exist, is offline, or is outside the process's cpuset.
pub fn pin_current_thread(cpu: usize) -> Result<(), Errno> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
}

/// Keeps the calling thread, and threads it starts from now on, to these CPUs.
///
/// # Errors
/// When none of them can be used.
pub fn restrict_to(cpus: &[usize]) -> Result<(), Errno> {
    sched_setaffinity(None, &set_of(cpus))
}

/// Keeps any thread to these CPUs, and threads and processes that it starts from now on.
///
/// # Errors
/// ESRCH when there is no such thread, EPERM when it is another user's, EINVAL when none of the CPUs can be
/// used.
pub fn restrict_thread_to(thread: u32, cpus: &[usize]) -> Result<(), Errno> {
    sched_setaffinity(Some(thread_numbered(thread)?), &set_of(cpus))
}

fn set_of(cpus: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU).for_each(|&cpu| set.set(cpu));
    set
}

/// How long the calling thread is to run at a time, in nanoseconds (the least that the kernel takes).
const SHORT_SLICE: u64 = 100_000;

/// Lets the calling thread run before most others on its processor: a niceness of -10 and, with Linux 6.12,
/// a time slice of 0.1 ms. When it is woken it goes before one that computes, however much of its own slice
/// that one has left.
///
/// # Errors
/// EACCES or EPERM without the right to the niceness (CAP_SYS_NICE, RLIMIT_NICE); the slice is its own all
/// the same.
pub fn raise_current_thread() -> Result<(), Errno> {
    // For Linux a niceness is a thread's, and this number names one.
    let niceness = rustix::process::setpriority_process(Some(rustix::thread::gettid()), -10);
    shorten_slice().and(niceness)
}

/// Older kernels take the slice and leave it at that.
fn shorten_slice() -> Result<(), Errno> {
    let mut attributes = attributes()?;
    attributes.sched_runtime = SHORT_SLICE;
    let address = &raw const attributes as usize;
    // SAFETY: the kernel reads as many bytes as the structure says it has.
    let outcome = unsafe { syscall(libc::SYS_sched_setattr, [0, address, 0, 0, 0, 0]) };
    told(outcome)
}

/// How the calling thread is scheduled.
fn attributes() -> Result<libc::sched_attr, Errno> {
    // SAFETY: nothing but numbers, for which zeroes will do.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let (address, size) = (&raw mut attributes as usize, size_of_val(&attributes));
    // SAFETY: the kernel writes no more than `size` bytes, all of the structure.
    let outcome = unsafe { syscall(libc::SYS_sched_getattr, [0, address, size, 0, 0, 0]) };
    told(outcome).map(|()| attributes)
}

fn told(outcome: isize) -> Result<(), Errno> {
    if outcome < 0 { Err(Errno::from_raw_os_error(-outcome as i32)) } else { Ok(()) }
}

/// The CPU this thread runs on right now.
#[must_use]
pub fn current_cpu() -> usize {
    rustix::thread::sched_getcpu()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_thread_has_a_short_slice_and_no_other_has() {
        let slice = || attributes().unwrap().sched_runtime;
        let before = slice();
        let raised = std::thread::spawn(move || {
            // Only a privileged user's thread gets the niceness, too.
            let niceness = raise_current_thread().map_or(0, |()| -10);
            (slice(), attributes().unwrap().sched_nice == niceness)
        });
        let (raised, is_nice) = raised.join().unwrap();
        // Kernels without slices of a thread's own tell of none.
        assert!(raised == SHORT_SLICE || raised == 0, "{raised}");
        assert!(is_nice);
        assert_eq!(slice(), before);
    }

    #[test]
    fn a_pinned_thread_stays_where_it_is_put() {
        let cpus = allowed_cpus().unwrap();
        let last = *cpus.last().unwrap();
        let seen = std::thread::spawn(move || {
            pin_current_thread(last).unwrap();
            assert_eq!(current_cpu(), last);
            allowed_cpus().unwrap()
        });
        assert_eq!(seen.join().unwrap(), vec![last]);
        let kept = std::thread::spawn(move || {
            restrict_to(&[last, usize::MAX]).unwrap();
            (allowed_cpus().unwrap(), restrict_to(&[]).is_err())
        });
        assert_eq!(kept.join().unwrap(), (vec![last], true));
    }

    #[test]
    fn another_process_is_kept_to_some_and_given_all_back() {
        let all = allowed_cpus().unwrap();
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let id = other.id();
        assert_eq!(cpus_of(id).unwrap(), all);
        restrict_thread_to(id, &all[..1]).unwrap();
        assert_eq!(cpus_of(id).unwrap(), all[..1]);
        restrict_thread_to(id, &all).unwrap();
        assert_eq!(cpus_of(id).unwrap(), all);
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(cpus_of(id), Err(Errno::SRCH));
        assert_eq!(restrict_thread_to(u32::MAX, &all), Err(Errno::SRCH));
    }
}
