//! What a thread and a CPU spent: user and system time, context switches, interrupts, time stolen by the
//! hypervisor.

use crate::proc_stat::field;
use std::io;
use std::time::Duration;

/// CPU time and context switches of a thread, or of all of a process, since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ThreadUsage {
    /// Seconds in user space.
    pub user_s: f64,
    /// Seconds in the kernel on behalf of the thread.
    pub system_s: f64,
    /// Times the thread gave the CPU up, usually to wait.
    pub voluntary_switches: u64,
    /// Times the CPU was taken from it.
    pub involuntary_switches: u64,
}

impl ThreadUsage {
    /// What the calling thread has used so far.
    #[must_use]
    pub fn of_current_thread() -> Self {
        Self::of(libc::RUSAGE_THREAD)
    }

    /// What all threads of this process have used so far.
    #[must_use]
    pub fn of_process() -> Self {
        Self::of(libc::RUSAGE_SELF)
    }

    fn of(whose: libc::c_int) -> Self {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: `usage` is a valid, writable rusage for the whole call, and all-zero bytes are a valid
        // value of it, so it may be read whether or not the kernel filled it.
        let usage = unsafe {
            libc::getrusage(whose, usage.as_mut_ptr());
            usage.assume_init()
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Self {
            user_s: seconds(usage.ru_utime),
            system_s: seconds(usage.ru_stime),
            voluntary_switches: usage.ru_nvcsw as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
        }
    }

    /// What was used between `earlier` and this reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user_s: self.user_s - earlier.user_s,
            system_s: self.system_s - earlier.system_s,
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self.involuntary_switches.saturating_sub(earlier.involuntary_switches),
        }
    }
}

/// Time that a thread has spent in user space since it started, in steps of 10 ms (USER_HZ): the thread with
/// this id, of whatever process. None when there is none, or it is hidden.
#[must_use]
pub fn user_time_of(thread: u32) -> Option<Duration> {
    // What stands one folder higher is of all threads of its process.
    let stat = std::fs::read_to_string(format!("/proc/{thread}/task/{thread}/stat")).ok()?;
    Some(Duration::from_millis(field(&stat, 14)?.parse::<u64>().ok()? * 10))
}

/// Time one CPU has spent since boot, in clock ticks of 10 ms (USER_HZ), from /proc/stat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// The CPU's number.
    pub cpu: usize,
    /// User, nice, system.
    pub running: u64,
    /// Of these: user and nice.
    pub user: u64,
    /// Hardware and software interrupts.
    pub interrupts: u64,
    /// Idle and waiting for I/O.
    pub idle: u64,
    /// Wanted to run, but the hypervisor ran something else.
    pub stolen: u64,
}

impl CpuTime {
    /// All CPUs' times now.
    ///
    /// # Errors
    /// When /proc/stat cannot be read.
    pub fn read_all() -> io::Result<Vec<Self>> {
        Ok(Self::parse(&std::fs::read_to_string("/proc/stat")?))
    }

    fn parse(text: &str) -> Vec<Self> {
        let parse_line = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
            let times: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            let at = |index: usize| times.get(index).copied().unwrap_or(0);
            Some(Self {
                cpu,
                running: at(0) + at(1) + at(2),
                user: at(0) + at(1),
                interrupts: at(5) + at(6),
                idle: at(3) + at(4),
                stolen: at(7),
            })
        };
        text.lines().filter_map(parse_line).collect()
    }

    /// How this CPU spent the time since `earlier`.
    #[must_use]
    pub fn shares_since(&self, earlier: &Self) -> CpuShares {
        let running = self.running.saturating_sub(earlier.running) as f64;
        let interrupts = self.interrupts.saturating_sub(earlier.interrupts) as f64;
        let stolen = self.stolen.saturating_sub(earlier.stolen) as f64;
        let total = running + interrupts + stolen + self.idle.saturating_sub(earlier.idle) as f64;
        if total == 0.0 {
            return CpuShares::default();
        }
        CpuShares { running: running / total, interrupts: interrupts / total, stolen: stolen / total }
    }
}

/// How a CPU spent its time, as shares from 0 to 1; the rest was idle.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuShares {
    /// In threads, whoever's.
    pub running: f64,
    /// In hardware and software interrupts.
    pub interrupts: f64,
    /// Taken by the hypervisor.
    pub stolen: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_columns_of_proc_stat() {
        let text = "cpu  10 0 10 100 0 0 0 0 0 0\ncpu0 1 2 3 40 5 6 7 8 0 0\ncpu1 1 1 1 1\nintr 5\n";
        let cpus = CpuTime::parse(text);
        assert_eq!(cpus.len(), 2);
        assert_eq!(cpus[0], CpuTime { cpu: 0, running: 6, user: 3, interrupts: 13, idle: 45, stolen: 8 });
        assert_eq!(cpus[1], CpuTime { cpu: 1, running: 3, user: 2, interrupts: 0, idle: 1, stolen: 0 });
    }

    #[test]
    fn shares_add_up() {
        let before = CpuTime::default();
        let after = CpuTime { cpu: 0, running: 30, user: 9, interrupts: 20, idle: 40, stolen: 10 };
        let shares = CpuShares { running: 0.3, interrupts: 0.2, stolen: 0.1 };
        assert_eq!(after.shares_since(&before), shares);
        assert_eq!(after.shares_since(&after), CpuShares::default());
    }

    #[test]
    fn a_spinning_thread_is_charged() {
        let before = ThreadUsage::of_current_thread();
        let start = std::time::Instant::now();
        while start.elapsed().as_millis() < 50 {
            std::hint::spin_loop();
        }
        let used = ThreadUsage::of_current_thread().since(&before);
        assert!(used.user_s + used.system_s > 0.005, "{used:?}");
    }

    #[test]
    fn a_threads_own_time_is_counted_and_not_its_process() {
        let own = || rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        let start = std::time::Instant::now();
        while user_time_of(own()).unwrap() < Duration::from_millis(100) {
            std::hint::spin_loop();
            assert!(start.elapsed().as_secs() < 60, "no time is counted");
        }
        let other = std::thread::spawn(move || user_time_of(own()).unwrap()).join().unwrap();
        assert!(other < Duration::from_millis(100), "{other:?}");
        assert_eq!(user_time_of(u32::MAX), None);
    }
}
