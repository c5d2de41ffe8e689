//! The clock of the hot loop: the processor's time-stamp counter where it can be trusted, else the kernel's.
//!
//! A tick is read in some 10 ns and turned into nanoseconds by one multiplication. The counter is trusted
//! only if the processor calls it invariant and the kernel itself runs on it; it is measured against
//! CLOCK_MONOTONIC_RAW at start. What this leaves out: wall-clock time, which nothing here needs.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// A calibrated clock; copies are free and every worker has its own.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    source: Source,
    /// Nanoseconds a tick, as a 32.32 fixed-point number.
    ns_per_tick: u64,
}

/// Where ticks come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The invariant time-stamp counter.
    Tsc,
    /// `clock_gettime(CLOCK_MONOTONIC_RAW)`: the fallback on processors or guests without a usable counter.
    MonotonicRaw,
}

/// What is known of the clock, for the record.
#[derive(Debug, Clone, Copy)]
pub struct ClockFacts {
    /// Where ticks come from.
    pub source: Source,
    /// Whether the processor declares its time-stamp counter invariant.
    pub invariant_tsc: bool,
    /// Ticks a second, when the counter is used.
    pub frequency_hz: Option<f64>,
    /// Mean cost of one reading, in nanoseconds.
    pub read_cost_ns: f64,
}

impl Clock {
    /// Chooses the source and, for the counter, measures its rate over `span` (20 ms gives about 2 ppm).
    #[must_use]
    pub fn calibrate(span: Duration) -> Self {
        if !(invariant_tsc() && kernel_uses_tsc()) {
            return Self::of_nanoseconds();
        }
        let (tick_a, ns_a) = paired_reading();
        std::thread::sleep(span);
        let (tick_b, ns_b) = paired_reading();
        let (ticks, ns) = (tick_b.wrapping_sub(tick_a), ns_b - ns_a);
        if ticks == 0 || ns == 0 {
            return Self::of_nanoseconds();
        }
        let ns_per_tick = ((u128::from(ns) << 32) / u128::from(ticks)) as u64;
        Self { source: Source::Tsc, ns_per_tick }
    }

    /// A clock whose ticks are nanoseconds, for whoever keeps a time of their own; it reads the kernel's.
    #[must_use]
    pub fn of_nanoseconds() -> Self {
        Self { source: Source::MonotonicRaw, ns_per_tick: 1 << 32 }
    }

    /// The current tick.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        match self.source {
            Source::Tsc => read_tsc(),
            Source::MonotonicRaw => monotonic_raw_ns(),
        }
    }

    /// The current tick, not before every earlier load has its value: the end of a single access.
    ///
    /// The processor may read its counter while a load is still under way; a store counts as done when its
    /// address is translated, which is when a page fault would have come.
    #[inline]
    #[must_use]
    pub fn now_after_loads(&self) -> u64 {
        wait_for_loads();
        self.now()
    }

    /// Nanoseconds between two ticks (0 if they are out of order).
    #[inline]
    #[must_use]
    pub fn ns_between(&self, earlier: u64, later: u64) -> u64 {
        ((u128::from(later.saturating_sub(earlier)) * u128::from(self.ns_per_tick)) >> 32) as u64
    }

    /// How many ticks a duration lasts.
    #[must_use]
    pub fn ticks(&self, duration: Duration) -> u64 {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        u64::try_from((u128::from(ns) << 32) / u128::from(self.ns_per_tick.max(1))).unwrap_or(u64::MAX)
    }

    /// What is known of this clock; measures the cost of a reading.
    #[must_use]
    pub fn facts(&self) -> ClockFacts {
        const READINGS: u64 = 100_000;
        let start = monotonic_raw_ns();
        let mut sink = 0u64;
        for _ in 0..READINGS {
            sink = sink.wrapping_add(self.now());
        }
        std::hint::black_box(sink);
        let elapsed_ns = monotonic_raw_ns() - start;
        ClockFacts {
            source: self.source,
            invariant_tsc: invariant_tsc(),
            frequency_hz: (self.source == Source::Tsc)
                .then(|| 1e9 * (1u64 << 32) as f64 / self.ns_per_tick as f64),
            read_cost_ns: elapsed_ns as f64 / READINGS as f64,
        }
    }
}

/// One (tick, nanosecond) pair, taken as close together as a few tries allow.
fn paired_reading() -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..32 {
        let before = read_tsc();
        let ns = monotonic_raw_ns();
        let after = read_tsc();
        let width = after.wrapping_sub(before);
        if width < best.0 {
            best = (width, before.wrapping_add(width / 2), ns);
        }
    }
    (best.1, best.2)
}

fn monotonic_raw_ns() -> u64 {
    let time = clock_gettime(ClockId::MonotonicRaw);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The kernel drops the counter as its clock source when it catches it drifting: follow its judgement.
/// A guest on kvm-clock has a counter the host vouches for, if it is also declared invariant.
fn kernel_uses_tsc() -> bool {
    std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .is_ok_and(|name| matches!(name.trim(), "tsc" | "kvm-clock"))
}

#[cfg(target_arch = "x86_64")]
fn invariant_tsc() -> bool {
    use std::arch::x86_64::__cpuid;
    __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn read_tsc() -> u64 {
    // SAFETY: RDTSC exists on every x86-64 processor and touches no memory; where the kernel forbids it
    // (PR_SET_TSC) the process dies by SIGSEGV, which is not undefined behaviour.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Lets no later instruction start before the earlier ones are done.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn wait_for_loads() {
    // SAFETY: LFENCE is part of SSE2, which every x86-64 processor has, and only orders instructions.
    unsafe { std::arch::x86_64::_mm_lfence() }
}

/// Lets no later access start before the earlier ones are ordered.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn wait_for_loads() {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

#[cfg(not(target_arch = "x86_64"))]
fn invariant_tsc() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn read_tsc() -> u64 {
    monotonic_raw_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_kernel_clock() {
        let clock = Clock::calibrate(Duration::from_millis(20));
        let (tick_a, ns_a) = (clock.now(), monotonic_raw_ns());
        std::thread::sleep(Duration::from_millis(50));
        let (tick_b, ns_b) = (clock.now(), monotonic_raw_ns());
        let (ours, kernels) = (clock.ns_between(tick_a, tick_b) as f64, (ns_b - ns_a) as f64);
        assert!((ours / kernels - 1.0).abs() < 0.01, "{ours} ns against {kernels} ns");
    }

    #[test]
    fn ticks_and_nanoseconds_are_inverse() {
        let clock = Clock::calibrate(Duration::from_millis(5));
        let ticks = clock.ticks(Duration::from_secs(3));
        let back = clock.ns_between(0, ticks);
        assert!((2_999_999_990..=3_000_000_010).contains(&back), "{back}");
        assert_eq!(clock.ns_between(10, 5), 0);
    }
}
