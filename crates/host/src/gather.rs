//! On how many processors a program runs while it waits for pages: on one or few as long as that serves more
//! pages, on all otherwise.
//!
//! Each page that is taken away has to be forgotten by every processor that runs a thread of the program, and
//! each thread that is woken on another processor is told so by an interrupt. Where that costs more than the
//! reads and the program's own work, its threads get further on one processor than on all. Whether it does is
//! not foreseen but tried: in turn, a few hundredths of a second each, by the pages that came in.
//!
//! Pages do not tell of what a program computes between its faults. So threads that spend much of the time on
//! that are left on all processors, whatever pages say.
//!
//! Only decides: looks come in, what to do next comes out.

use std::time::Duration;

/// On how many processors the program is to run, and when to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// None: on all that it may use.
    pub width: Option<usize>,
    /// Until the next look.
    pub rest: Duration,
}

/// What a program has done since it started.
#[derive(Debug, Clone, Copy, Default)]
pub struct Program {
    /// Its threads now.
    pub threads: usize,
    /// Processor time that these have spent outside of the kernel.
    pub computed: Duration,
}

/// Below so many pages a second it is not paging that holds a program up.
const FEW_PER_S: f64 = 2000.0;
/// One way is kept for so long before its pages are counted, as the kernel spreads threads by and by; for so
/// long they are counted; and so often each, or up to so often where that leaves it open.
const SETTLE: Duration = Duration::from_millis(40);
const SLICE: Duration = Duration::from_millis(60);
const PAIRS: u32 = 5;
const PAIRS_MOST: u32 = 12;
/// Fewer processors have to serve this many times the pages.
const WORTH: f64 = 1.05;
/// A difference of so much in each pair needs no more of them: two where it is as before, else three.
const CLEAR: f64 = 1.1;
/// How far from nothing the difference has to be, in standard errors of the pairs' mean: pages of a program
/// that does different things by turns differ by half from one slice to the next wherever it runs.
const SURE: f64 = 1.5;
/// What was found is believed for so long, at first and at most.
const BELIEVED: Duration = Duration::from_secs(2);
const BELIEVED_MAX: Duration = Duration::from_secs(32);
/// A rate that differs so much from the one that was found, so many looks on end, is of another kind of work.
const OTHER_WORK: f64 = 1.6;
const OTHER_LOOKS: u32 = 3;
/// Several threads that compute for so much of the time of fewer processors are not kept to these.
const COMPUTES: f64 = 0.3;
/// How far back is looked for that: the kernel counts processor time in steps of some milliseconds.
const COMPUTES_FOR: Duration = Duration::from_millis(500);
/// To put so many threads elsewhere takes longer than they are given to settle: nothing is tried with more.
const THREADS_MOST: usize = 512;
/// How often it is looked otherwise.
const REST: Duration = Duration::from_millis(200);

/// Two widths in turn.
#[derive(Debug, Clone, Copy)]
struct Trial {
    wide: Option<usize>,
    narrow: usize,
    /// The threads are finding their places.
    settles: bool,
    /// Slices that are over.
    slices: u32,
    /// Pages of the last one, and of all of each kind.
    before: u64,
    sums: [u64; 2],
    /// Neighbours of which the narrow one served more.
    won: u32,
    /// The squares of how much more it served, summed up.
    squares: f64,
}

impl Trial {
    /// Whether the narrow width is worth it, when that is known.
    fn verdict(&self, settled: Option<Option<usize>>) -> Option<bool> {
        let pairs = self.slices / 2;
        if self.slices % 2 == 1 || pairs < 2 {
            return None;
        }
        let gains = self.gains(CLEAR) && self.won == pairs && self.is_sure();
        let is_clear = gains || self.loses(CLEAR) && self.won == 0;
        let is_as_before = settled == Some(if gains { Some(self.narrow) } else { self.wide });
        if is_clear && (is_as_before || pairs > 2) {
            return Some(gains);
        }
        let (seems_worth, is_sure) = (self.gains(WORTH), self.is_sure());
        let is_open = pairs < PAIRS || seems_worth && !is_sure && pairs < PAIRS_MOST;
        (!is_open).then_some(seems_worth && is_sure)
    }

    /// Whether the pairs, of which there are two or more, agree so well that the narrow one did not serve
    /// more by chance.
    fn is_sure(&self) -> bool {
        let pairs = f64::from(self.slices / 2);
        let mean = (self.sums[1] as f64 - self.sums[0] as f64) / pairs;
        let variance = (self.squares / pairs - mean * mean).max(0.0) / (pairs - 1.0);
        mean > SURE * variance.sqrt()
    }

    /// Whether the narrow one served so many times the pages.
    fn gains(&self, times: f64) -> bool {
        self.sums[1] as f64 > self.sums[0] as f64 * times
    }

    /// The same of the wide one.
    fn loses(&self, times: f64) -> bool {
        self.sums[0] as f64 > self.sums[1] as f64 * times
    }
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Nothing is known, or there is little to gain.
    Quiet,
    Trying(Trial),
    /// Until then, with the rate of pages that was found.
    Believing {
        until: Duration,
        rate: f64,
        /// Looks on end that found another.
        other: u32,
    },
}

/// Finds out, and stays with what was found for a while.
#[derive(Debug, Clone)]
pub struct Gather {
    state: State,
    width: Option<usize>,
    /// What was found last.
    settled: Option<Option<usize>>,
    believed: Duration,
    last: Option<(Duration, u64)>,
    /// Processor time of the threads' own at the last look, and how many processors' worth it was lately.
    computed: Option<Duration>,
    computing: f64,
    /// Whether the next trial is of a larger width.
    widens: bool,
}

impl Default for Gather {
    fn default() -> Self {
        Self {
            state: State::Quiet,
            width: None,
            settled: None,
            believed: BELIEVED,
            last: None,
            computed: None,
            computing: 0.0,
            widens: false,
        }
    }
}

impl Gather {
    /// What to do, at this time of a clock that only moves on, when `pages` came in since the start, for a
    /// program that may use so many processors. It is looked at only when it matters.
    pub fn next(&mut self, at: Duration, pages: u64, cpus: usize, program: impl FnOnce() -> Program) -> Step {
        let Some((then, before)) = self.last.replace((at, pages)) else {
            return Step { width: self.width, rest: REST };
        };
        let (time, came) = (at.saturating_sub(then), pages.saturating_sub(before));
        let rate = if time.is_zero() { 0.0 } else { came as f64 / time.as_secs_f64() };
        if rate < FEW_PER_S && !matches!(self.state, State::Trying(_)) {
            *self = Self { last: self.last, ..Self::default() };
            return Step { width: None, rest: REST };
        }
        let mut is_due = false;
        if let State::Believing { until, rate: found, other } = &mut self.state {
            let differs = rate > *found * OTHER_WORK || rate < *found / OTHER_WORK;
            *other = if differs { *other + 1 } else { 0 };
            let (until, is_other) = (*until, *other >= OTHER_LOOKS);
            if is_other {
                self.settled = None;
            }
            is_due = is_other || at >= until;
            if self.width.is_none() && !is_due {
                // To look at a program of thousands of threads takes time.
                (self.computed, self.computing) = (None, 0.0);
                return Step { width: None, rest: REST };
            }
        }
        let program = program();
        self.note_computing(&program, time);
        match self.state {
            State::Trying(trial) if self.needs_more_than(trial.narrow, &program) => self.give_up(),
            State::Trying(trial) => self.tried(trial, came, at),
            State::Quiet => self.begin(&program, cpus, at, rate),
            State::Believing { .. } => {
                if self.width.is_some_and(|width| self.needs_more_than(width, &program)) {
                    self.give_up();
                } else if is_due {
                    self.begin(&program, cpus, at, rate);
                }
            }
        }
        let rest = match self.state {
            State::Trying(Trial { settles: true, .. }) => SETTLE,
            State::Trying(_) => SLICE,
            _ => REST,
        };
        Step { width: self.width, rest }
    }

    /// So much time has passed since the last look.
    fn note_computing(&mut self, program: &Program, time: Duration) {
        // Of threads that have ended meanwhile nothing is known.
        let Some(before) = self.computed.replace(program.computed) else { return };
        let share = program.computed.saturating_sub(before).as_secs_f64() / time.as_secs_f64().max(1e-3);
        let part = time.as_secs_f64() / (time + COMPUTES_FOR).as_secs_f64();
        self.computing += (share - self.computing) * part;
    }

    /// Whether threads that could compute at the same time have much to compute.
    fn needs_more_than(&self, width: usize, program: &Program) -> bool {
        program.threads > 1 && self.computing > COMPUTES * width as f64
    }

    /// All processors, and nothing is known.
    fn give_up(&mut self) {
        let Self { last, computed, computing, .. } = *self;
        *self = Self { last, computed, computing, ..Self::default() };
    }

    /// Sets what is known against its neighbour on the ladder: all processors, half of those that the threads
    /// can use, and so on down to one.
    fn begin(&mut self, program: &Program, cpus: usize, at: Duration, rate: f64) {
        if program.threads > THREADS_MOST {
            (self.width, self.settled) = (None, None);
            self.state = State::Believing { until: at + BELIEVED_MAX, rate, other: 0 };
            return;
        }
        self.state = State::Quiet;
        let useful = program.threads.min(cpus);
        let below = |width: usize| (width > 1).then_some(width / 2);
        let above = |width: usize| Some(width * 2).filter(|&wider| wider < useful.max(2));
        let top = if useful > 1 { below(useful) } else { Some(1) };
        let (wide, narrow) = match self.width {
            _ if cpus < 2 => return,
            None => (None, top),
            Some(width) if self.widens => (above(width), Some(width)),
            Some(width) => match below(width) {
                Some(lower) => (Some(width), Some(lower)),
                None => (above(width), Some(width)),
            },
        };
        self.widens = !self.widens;
        let Some(narrow) = narrow.filter(|&narrow| !self.needs_more_than(narrow, program)) else { return };
        let trial =
            Trial { wide, narrow, settles: true, slices: 0, before: 0, sums: [0; 2], won: 0, squares: 0.0 };
        self.state = State::Trying(trial);
        self.width = trial.wide;
    }

    /// Threads have settled, or a slice is over, in which so many pages came.
    fn tried(&mut self, mut trial: Trial, came: u64, at: Duration) {
        trial.settles = !trial.settles;
        if !trial.settles {
            self.state = State::Trying(trial);
            return;
        }
        let is_narrow = trial.slices % 2 == 1;
        trial.sums[usize::from(is_narrow)] += came;
        if is_narrow {
            trial.won += u32::from(came > trial.before);
            trial.squares += (came as f64 - trial.before as f64).powi(2);
        }
        trial.before = came;
        trial.slices += 1;
        self.width = if trial.slices % 2 == 1 { Some(trial.narrow) } else { trial.wide };
        self.state = State::Trying(trial);
        let Some(is_worth) = trial.verdict(self.settled) else { return };
        let chosen = if is_worth { Some(trial.narrow) } else { trial.wide };
        let rate = trial.sums[usize::from(is_worth)] as f64 / (SLICE * (trial.slices / 2)).as_secs_f64();
        let is_as_before = self.settled == Some(chosen);
        self.believed = if is_as_before { (self.believed * 2).min(BELIEVED_MAX) } else { BELIEVED };
        (self.width, self.settled) = (chosen, Some(chosen));
        self.state = State::Believing { until: at + self.believed, rate, other: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overdrive_base::rng::Rng;

    /// A program that gets so many pages a second on a number of processors, give or take some.
    struct World {
        gather: Gather,
        now: Duration,
        pages: f64,
        /// By how much these differ at most from one look to the next, of their mean.
        noise: f64,
        random: Rng,
        threads: usize,
        cpus: usize,
        /// How many processors' worth its threads compute, and what they have.
        computing: f64,
        computed: f64,
        /// How often the program was looked at.
        looks: u32,
        /// How long it ran at each width.
        times: std::collections::BTreeMap<Option<usize>, Duration>,
    }

    impl World {
        fn new(threads: usize, cpus: usize, seed: u64) -> Self {
            let (gather, random) = (Gather::default(), Rng::new(seed));
            let times = std::collections::BTreeMap::new();
            let (now, pages, noise, computing, computed) = (Duration::ZERO, 0.0, 0.1, 0.0, 0.0);
            Self { gather, now, pages, noise, random, threads, cpus, computing, computed, looks: 0, times }
        }

        fn run(&mut self, time: Duration, rate: impl Fn(Option<usize>) -> f64) -> Option<usize> {
            let end = self.now + time;
            let mut width = None;
            while self.now < end {
                // The kernel counts in steps.
                let computed = Duration::from_millis(self.computed as u64 / 10 * 10);
                let program = || {
                    self.looks += 1;
                    Program { threads: self.threads, computed }
                };
                let step = self.gather.next(self.now, self.pages as u64, self.cpus, program);
                if !matches!(self.gather.state, State::Trying(_)) {
                    width = step.width;
                }
                let noise = 1.0 + self.noise * (self.random.below(1000) as f64 / 500.0 - 1.0);
                self.pages += rate(step.width) * step.rest.as_secs_f64() * noise;
                self.computed += self.computing * step.rest.as_secs_f64() * 1000.0 * noise;
                self.now += step.rest;
                *self.times.entry(step.width).or_default() += step.rest;
            }
            width
        }

        fn share(&self, width: Option<usize>) -> f64 {
            let all: Duration = self.times.values().sum();
            self.times.get(&width).map_or(0.0, |time| time.as_secs_f64() / all.as_secs_f64())
        }
    }

    #[test]
    fn what_serves_more_pages_is_found_and_kept() {
        for seed in 0..20 {
            let mut world = World::new(16, 2, seed);
            let rate = |width: Option<usize>| if width.is_some() { 65_000.0 } else { 45_000.0 };
            assert_eq!(world.run(Duration::from_secs(60), rate), Some(1), "seed {seed}");
            assert!(world.share(Some(1)) > 0.93, "seed {seed}: {:?}", world.times);
        }
    }

    #[test]
    fn a_program_that_needs_its_processors_keeps_them() {
        for seed in 0..20 {
            let mut world = World::new(16, 2, seed);
            let rate = |width: Option<usize>| if width.is_some() { 30_000.0 } else { 45_000.0 };
            assert_eq!(world.run(Duration::from_secs(60), rate), None, "seed {seed}");
            assert!(world.share(None) > 0.96, "seed {seed}: {:?}", world.times);
            // Where it makes no difference all are used, too.
            let mut world = World::new(16, 2, seed);
            world.run(Duration::from_secs(60), |_| 30_000.0);
            assert!(world.share(None) > 0.75, "seed {seed}: {:?}", world.times);
        }
    }

    #[test]
    fn a_program_whose_pages_come_unevenly_keeps_its_processors_too() {
        let mut share = 0.0;
        for seed in 0..20 {
            let mut world = World::new(2, 2, seed);
            world.noise = 0.6;
            world.run(Duration::from_secs(60), |width| if width.is_some() { 12_000.0 } else { 15_000.0 });
            share += world.share(None) / 20.0;
        }
        assert!(share > 0.85, "{share}");
    }

    #[test]
    fn threads_that_compute_keep_their_processors_whatever_pages_say() {
        let rate = |width: Option<usize>| if width.is_some() { 65_000.0 } else { 45_000.0 };
        for seed in 0..20 {
            let mut world = World::new(2, 2, seed);
            world.computing = 0.5;
            assert_eq!(world.run(Duration::from_secs(60), rate), None, "seed {seed}");
            assert!(world.share(None) > 0.97, "seed {seed}: {:?}", world.times);
            // As soon as they only wait, pages decide; and as soon as they compute, they have all back.
            world.computing = 0.1;
            assert_eq!(world.run(Duration::from_secs(3), rate), Some(1), "seed {seed}");
            world.computing = 0.5;
            assert_eq!(world.run(Duration::from_secs(2), rate), None, "seed {seed}");
            // One thread computes on one processor anyway.
            let mut lone = World::new(1, 2, seed);
            lone.computing = 0.5;
            assert_eq!(lone.run(Duration::from_secs(10), rate), Some(1), "seed {seed}");
        }
    }

    #[test]
    fn one_that_hardly_pages_is_left_alone() {
        let mut world = World::new(16, 2, 1);
        world.run(Duration::from_secs(10), |_| 1000.0);
        assert_eq!(world.share(None), 1.0);
        let few = |_| 100.0;
        let many = |width: Option<usize>| if width.is_some() { 65_000.0 } else { 45_000.0 };
        world.run(Duration::from_secs(5), many);
        assert_eq!(world.run(Duration::from_secs(1), few), None, "and given all back when it ends");
        let mut crowd = World::new(THREADS_MOST + 1, 2, 1);
        crowd.run(Duration::from_secs(60), many);
        assert_eq!(crowd.share(None), 1.0, "to move so many takes too long");
        assert!(crowd.looks < 10, "and so does to look at them: {}", crowd.looks);
        let mut alone = World::new(16, 1, 1);
        alone.run(Duration::from_secs(10), |_| 65_000.0);
        assert_eq!(alone.share(None), 1.0, "with one processor there is nothing to try");
    }

    #[test]
    fn a_change_of_work_is_tried_at_once() {
        let mut world = World::new(16, 2, 3);
        let narrow = |width: Option<usize>| if width.is_some() { 65_000.0 } else { 45_000.0 };
        world.run(Duration::from_secs(40), narrow);
        let wide = |width: Option<usize>| if width.is_some() { 20_000.0 } else { 40_000.0 };
        assert_eq!(world.run(Duration::from_secs(2), wide), None);
    }

    #[test]
    fn many_processors_are_halved_until_it_does_not_pay() {
        // Best on 4 of 64.
        let rate = |width: Option<usize>| {
            let width = width.unwrap_or(64) as f64;
            200_000.0 / (1.0 + (width / 4.0).log2().abs() * 0.3)
        };
        let mut world = World::new(64, 64, 5);
        let width = world.run(Duration::from_secs(120), rate);
        assert!(world.share(Some(4)) > 0.5, "{width:?} {:?}", world.times);
        // A single thread is only moved to where it is best.
        let mut lone = World::new(1, 64, 6);
        let rate = |width: Option<usize>| if width.is_some() { 17_000.0 } else { 12_000.0 };
        assert_eq!(lone.run(Duration::from_secs(10), rate), Some(1));
    }
}
