//! A plan of faults for simulated devices: which operations fail, and when the device stalls.
//!
//! The plan draws from its own generator, so that a failing run replays from its seed whatever else
//! the simulation draws.

use crate::rng::Rng;

/// What happens to one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: the operation succeeds.
    None,
    /// The operation fails with this errno.
    Error(i32),
}

/// Faults of a simulated device, decided operation by operation.
#[derive(Debug, Clone)]
pub struct FaultPlan {
    rng: Rng,
    error_probability: f64,
    errno: i32,
    dies_after: Option<u64>,
    operations: u64,
}

/// The errno of an I/O error (EIO) on every Linux architecture.
pub const EIO: i32 = 5;
/// The errno of a device that is gone (ENODEV).
pub const ENODEV: i32 = 19;

impl FaultPlan {
    /// A plan with no faults.
    #[must_use]
    pub fn none() -> Self {
        Self::new(0, 0.0, None)
    }

    /// Each operation fails with EIO with `error_probability`; after `dies_after` operations the device is
    /// gone and every further operation fails with ENODEV.
    #[must_use]
    pub fn new(seed: u64, error_probability: f64, dies_after: Option<u64>) -> Self {
        Self { rng: Rng::for_stream(seed, 0xfa017), error_probability, errno: EIO, dies_after, operations: 0 }
    }

    /// Decides the next operation's fate.
    #[inline]
    pub fn next_fault(&mut self) -> Fault {
        self.operations += 1;
        if self.dies_after.is_some_and(|limit| self.operations > limit) {
            return Fault::Error(ENODEV);
        }
        if self.error_probability > 0.0 && self.rng.unit() < self.error_probability {
            return Fault::Error(self.errno);
        }
        Fault::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_plan_has_no_faults() {
        let mut plan = FaultPlan::none();
        assert!((0..10_000).all(|_| plan.next_fault() == Fault::None));
    }

    #[test]
    fn errors_come_as_often_as_asked_and_replay() {
        let count = |seed| {
            let mut plan = FaultPlan::new(seed, 0.01, None);
            (0..100_000).filter(|_| plan.next_fault() == Fault::Error(EIO)).count()
        };
        assert!((800..1200).contains(&count(1)));
        assert_eq!(count(2), count(2));
    }

    #[test]
    fn a_dead_device_stays_dead() {
        let mut plan = FaultPlan::new(1, 0.0, Some(10));
        let fates: Vec<Fault> = (0..15).map(|_| plan.next_fault()).collect();
        assert_eq!(fates[9], Fault::None);
        assert!(fates[10..].iter().all(|&fate| fate == Fault::Error(ENODEV)));
    }
}
