//! Where the serving thread runs: apart from the program's threads while faults come in crowds, beside the
//! one that faults while they come one by one.
//!
//! Apart it serves while the program goes on, and sees the next fault without being woken. But a fault that
//! comes alone finds it asleep, and waking a thread on another, idle processor takes as long as the drive's
//! answer, there and back. Beside the thread that waits it begins when that stops, and that goes on when it
//! is done: no other processor is needed, and none is kept from sleeping.

use super::Engine;
use crate::platform::Instant;
use crate::stats::Stat;
use overdrive_sys::affinity::{cpu_of_thread, pin_current_thread};
use std::time::Duration;

/// How often it is thought over.
const PERIOD: Duration = Duration::from_millis(10);
/// With fewer faults a second, period after period, they come alone; with more than so many they do not.
const ALONE_MAX: u64 = 2_000;
const CROWD_MIN: u64 = 5_000;
const PERIODS: u32 = 5;
/// Beside a thread there is nothing to wait for but what wakes: it gets one more look, after whoever else is
/// ready to run.
const ONE_LOOK: Duration = Duration::from_nanos(1);

/// The place and what speaks for another.
#[derive(Debug)]
pub(super) struct Place {
    /// The processor apart.
    own: usize,
    /// The one beside a thread, while it runs there.
    beside: Option<usize>,
    /// Who faulted last; 0 before anybody did.
    thread: u32,
    /// How often in a row it was found elsewhere.
    elsewhere: u32,
    since: Instant,
    faults_then: u64,
    calm: Calm,
}

impl Place {
    pub(super) fn new(own: usize) -> Self {
        Self {
            own,
            beside: None,
            thread: 0,
            elsewhere: 0,
            since: Instant::now(),
            faults_then: 0,
            calm: Calm::default(),
        }
    }

    /// Goes to where the thread is that faulted last, once that has been elsewhere for some time: threads
    /// that sleep often wander to and fro.
    fn follow(&mut self) {
        let Some(cpu) = cpu_of_thread(self.thread) else { return };
        self.elsewhere = if self.beside == Some(cpu) { 0 } else { self.elsewhere + 1 };
        if (self.beside.is_none() || self.elsewhere >= PERIODS) && pin_current_thread(cpu).is_ok() {
            (self.beside, self.elsewhere) = (Some(cpu), 0);
        }
    }
}

/// Whether faults come alone, period after period.
#[derive(Debug, Default, PartialEq, Eq)]
struct Calm {
    periods: u32,
    is_there: bool,
}

impl Calm {
    fn note(&mut self, faults: u64, passed: Duration) {
        let rate = (faults as f64 / passed.as_secs_f64().max(1e-6)) as u64;
        self.periods = if rate < ALONE_MAX { (self.periods + 1).min(PERIODS) } else { 0 };
        self.is_there = rate <= CROWD_MIN && (self.is_there || self.periods == PERIODS);
    }
}

impl Engine {
    /// From now on serves on processor `own`, or beside the thread that faults. What the kernel does on the
    /// engine's behalf runs on `others`. To be said before the first turn, by the thread that takes it.
    pub fn run_on(&mut self, own: usize, others: &[usize]) {
        if !others.is_empty() {
            self.io.keep_workers_to(others);
        }
        // One that cannot be had is no reason not to serve.
        let _ = pin_current_thread(own);
        self.place = Some(Place::new(own));
    }

    pub(super) fn note_faulting(&mut self, thread: u32) {
        if let Some(place) = self.place.as_mut().filter(|_| thread != 0) {
            place.thread = thread;
        }
    }

    /// How long to look for the next fault before sleeping.
    pub(super) fn spin(&self) -> Duration {
        let is_beside = self.place.as_ref().is_some_and(|place| place.beside.is_some());
        if is_beside { self.spin.min(ONE_LOOK) } else { self.spin }
    }

    /// Goes where faults are answered soonest, if it is time.
    pub(super) fn choose_place(&mut self) {
        let Some(place) = &mut self.place else { return };
        let passed = place.since.elapsed();
        if passed < PERIOD {
            return;
        }
        place.since = Instant::now();
        let faults_now = self.stats.get(Stat::Faults);
        let faults = faults_now.saturating_sub(std::mem::replace(&mut place.faults_then, faults_now));
        place.calm.note(faults, passed);
        match place.calm.is_there {
            true if faults > 0 => place.follow(),
            false if place.beside.take().is_some() => drop(pin_current_thread(place.own)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_come_alone_when_they_were_few_for_a_while_and_until_they_are_many() {
        let mut calm = Calm::default();
        let mut note = |faults| {
            calm.note(faults, PERIOD);
            calm.is_there
        };
        let few: Vec<bool> = (0..PERIODS).map(|_| note(4)).collect();
        assert_eq!(few, [false, false, false, false, true]);
        assert!(note(30) && note(49), "neither few nor many: as before");
        assert!(!note(60));
        assert!((1..PERIODS).all(|_| !note(0)) && note(0));
        let mut calm = Calm::default();
        (0..100).for_each(|_| calm.note(30, PERIOD));
        assert!(!calm.is_there);
    }
}
