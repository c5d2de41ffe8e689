//! What the kernel counts about paging: faults of this process, swap traffic and refaults of the machine, the
//! time tasks stalled for memory. It reads and subtracts; meaning is the caller's.

use std::fs;

/// Readings, or with [`VmCounters::since`] what happened between two. `None`: this kernel does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VmCounters {
    /// Faults of this process that waited for I/O.
    pub major_faults: u64,
    /// Faults of this process that did not.
    pub minor_faults: u64,
    /// Pages the machine read from swap.
    pub swap_ins: Option<u64>,
    /// Pages the machine wrote to swap.
    pub swap_outs: Option<u64>,
    /// Anonymous pages of the machine that came back soon after they had been evicted.
    pub refaults: Option<u64>,
    /// Microseconds in which some task of the machine waited for memory.
    pub stalled_some_us: Option<u64>,
    /// Microseconds in which all running tasks waited for memory.
    pub stalled_full_us: Option<u64>,
}

impl VmCounters {
    /// The counters now.
    #[must_use]
    pub fn read() -> Self {
        let vmstat = fs::read_to_string("/proc/vmstat").unwrap_or_default();
        let pressure = fs::read_to_string("/proc/pressure/memory").unwrap_or_default();
        let (major_faults, minor_faults) = own_faults();
        Self {
            major_faults,
            minor_faults,
            swap_ins: keyed(&vmstat, "pswpin"),
            swap_outs: keyed(&vmstat, "pswpout"),
            // Before 5.9 one counter held files and anonymous memory together.
            refaults: keyed(&vmstat, "workingset_refault_anon")
                .or_else(|| keyed(&vmstat, "workingset_refault")),
            stalled_some_us: stalled(&pressure, "some"),
            stalled_full_us: stalled(&pressure, "full"),
        }
    }

    /// What happened between `earlier` and this reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let between = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Self {
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            swap_ins: between(self.swap_ins, earlier.swap_ins),
            swap_outs: between(self.swap_outs, earlier.swap_outs),
            refaults: between(self.refaults, earlier.refaults),
            stalled_some_us: between(self.stalled_some_us, earlier.stalled_some_us),
            stalled_full_us: between(self.stalled_full_us, earlier.stalled_full_us),
        }
    }
}

/// Major and minor faults of this process so far.
fn own_faults() -> (u64, u64) {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a valid, writable rusage for the whole call, and all-zero bytes are a valid value of
    // it, so it may be read whether or not the kernel filled it.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    (usage.ru_majflt as u64, usage.ru_minflt as u64)
}

fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

fn stalled(pressure: &str, kind: &str) -> Option<u64> {
    let line = pressure.lines().find(|line| line.starts_with(kind))?;
    line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Region;

    #[test]
    fn reads_keys_whole_and_pressure_by_kind() {
        let text = "pswpin 5\npswpout 7\nworkingset_refault_anon 3\n";
        assert_eq!(keyed(text, "pswpin"), Some(5));
        assert_eq!(keyed(text, "pswp"), None);
        let pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 total=9\n";
        assert_eq!((stalled(pressure, "some"), stalled(pressure, "full")), (Some(12), Some(9)));
    }

    #[test]
    fn first_touches_are_minor_faults() {
        let region = Region::new(512).unwrap();
        let before = VmCounters::read();
        (0..512).for_each(|page| region.write(page, 0, 1));
        let happened = VmCounters::read().since(&before);
        assert!(happened.minor_faults >= 512, "{happened:?}");
    }
}
