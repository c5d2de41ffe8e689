//! Which CPUs this process may use, and pinning a thread to one of them.

use crate::Errno;
use rustix::fs::{Mode, OFlags};
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

/// The CPU that a thread of this process ran on last. None when there is no such thread.
#[must_use]
pub fn cpu_of_thread(thread: u32) -> Option<usize> {
    let path = format!("/proc/self/task/{thread}/stat");
    let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut buffer = [0; 512];
    let length = rustix::io::read(&fd, &mut buffer).ok()?;
    // The name before may hold anything; of what follows the 37th word is the processor.
    let name_end = buffer[..length].iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(&buffer[name_end + 1..length]).ok()?;
    rest.split_ascii_whitespace().nth(36)?.parse().ok()
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
            let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            assert_eq!(cpu_of_thread(thread), Some(last));
            assert_eq!(cpu_of_thread(u32::MAX >> 1), None);
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
