//! A gate that one thread opens and another waits at. Neither asks for memory, nor uses any but the gate's
//! own: so it works in a child that was just forked, and between threads that share what belongs to one of
//! them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a thread sleeps at a gate without looking: who should have opened it may have come to an end.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Closed at first.
#[derive(Debug)]
pub struct Gate(AtomicU32);

impl Gate {
    /// A closed one.
    #[must_use]
    pub const fn closed() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Closes it, while nobody waits at it.
    pub fn close(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Lets everybody through.
    pub fn open(&self) {
        self.0.store(1, Ordering::Release);
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word is valid for the call, which does not write to it.
        unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), operation, i32::MAX) };
    }

    /// Waits until it is open, or for `most`. Whether it is open.
    pub fn wait(&self, most: Duration) -> bool {
        let began = Instant::now();
        while self.0.load(Ordering::Acquire) == 0 {
            if began.elapsed() >= most {
                return false;
            }
            let time = libc::timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.subsec_nanos().into() };
            let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: the word and the time are valid for the call.
            unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), operation, 0, &raw const time) };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_goes_on_when_it_opens_and_not_for_ever_when_it_does_not() {
        static GATE: Gate = Gate::closed();
        assert!(!GATE.wait(Duration::from_millis(3)));
        let began = Instant::now();
        let waits = std::thread::spawn(|| GATE.wait(Duration::from_secs(60)));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waits.is_finished());
        GATE.open();
        assert!(waits.join().unwrap() && GATE.wait(Duration::ZERO));
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
