//! Which CPUs this process may use, and pinning a thread to one of them.

use crate::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs this thread may run on, ascending.
///
/// # Errors
/// When the kernel refuses to tell, which happens only on machines with more than 1024 CPUs.
pub fn allowed_cpus() -> Result<Vec<usize>, Errno> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
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
    let mut set = CpuSet::new();
    cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU).for_each(|&cpu| set.set(cpu));
    sched_setaffinity(None, &set)
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
}
