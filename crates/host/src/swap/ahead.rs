//! How far ahead of a limit memory is got out, and when to look again: what a program under a limit takes is
//! there before it asks, so that it need not reclaim and wait for the drive itself.
//!
//! Only decides: looks and slices come in, what to do next comes out.

use std::time::Duration;

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Look again after this time.
    Rest(Duration),
    /// Get so many bytes out, but work no longer than this on it.
    Reclaim {
        /// How many are missing.
        bytes: u64,
        /// For how long, at most.
        time: Duration,
    },
}

/// How a slice of work went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// How long it took; it may take longer than it was given.
    pub took: Duration,
    /// The kernel found nothing that it could get out.
    pub found_nothing: bool,
}

/// Room is kept for at least this part of the limit. More gives uniform accesses a few per cent; a program
/// with a hot part misses what lies in it.
const LIMIT_PER_ROOM: u64 = 128;
/// And for at most this part: memory that is kept free is no use to the program.
const LIMIT_PER_ROOM_MAX: u64 = 16;
const ROOM_MIN: u64 = 512 << 10;
const ROOM_MAX: u64 = 128 << 20;

/// A slice that leaves the room no larger by so much was outrun by the program.
const GAIN_MIN: u64 = 32 << 10;

/// Work is handed out in slices of this length.
const SLICE: Duration = Duration::from_micros(300);

const REST_MIN: Duration = Duration::from_micros(100);
/// A look costs some ten microseconds: so often it does not show.
const REST_MAX: Duration = Duration::from_millis(10);
/// While there is more room than can be taken in this time, nobody looks.
const FAR_MAX: Duration = Duration::from_millis(50);
/// Nothing takes memory faster than this, in bytes a second: zeroing alone takes longer.
const TAKEN_MAX: f64 = 4e9;

/// How long it waits when nothing could be got out, at first and at most.
const FRUITLESS: Duration = Duration::from_millis(5);
const FRUITLESS_MAX: Duration = Duration::from_millis(500);

/// The kernel's counters of a group are to be no older than this when memory is got out: an eighth of the
/// limit changes hands in it where a fast drive is the bound.
///
/// By old counters the kernel takes the pages not in use for many when they have run out, looks at no other,
/// finds nothing and kills. Fresher than needed, it looks at pages in use more often, which costs hits.
#[must_use]
pub fn fresh_for(limit: u64) -> Duration {
    const TAKEN: f64 = 600e6;
    Duration::from_secs_f64((limit as f64 / 8.0 / TAKEN).clamp(0.005, 0.2))
}

/// Keeps room between what a group uses and its limit.
#[derive(Debug, Clone)]
pub struct Ahead {
    /// Whether room is being made, which ends only when there is twice as much as starts it.
    fills: bool,
    /// Bytes a second that are taken while nobody reclaims: up at once, down slowly.
    taken: f64,
    /// How long a slice takes of late, in seconds.
    slice: f64,
    /// The last look, when nothing was reclaimed since.
    last: Option<(Duration, u64)>,
    /// What was in use before the slice that is being worked on, and how long it took.
    before: Option<(u64, Duration)>,
    /// How long to wait before the next slice.
    pause: Option<Duration>,
    /// The last wait because a slice found nothing.
    paused: Duration,
}

impl Default for Ahead {
    fn default() -> Self {
        let slice = SLICE.as_secs_f64();
        Self {
            fills: false,
            taken: 0.0,
            slice,
            last: None,
            before: None,
            pause: None,
            paused: Duration::ZERO,
        }
    }
}

impl Ahead {
    /// Below this much room it is made: more than the least where so much is taken in the time of two slices.
    #[must_use]
    pub fn low_bytes(&self, limit: u64) -> u64 {
        let least = (limit / LIMIT_PER_ROOM).clamp(ROOM_MIN, ROOM_MAX);
        let wanted = (self.taken * self.slice * 2.0) as u64;
        wanted.clamp(least, (limit / LIMIT_PER_ROOM_MAX).max(least))
    }

    /// What to do, at this time of a clock that only moves on, with this limit and so much in use.
    pub fn next(&mut self, at: Duration, limit: u64, usage: u64) -> Step {
        self.observe(at, usage);
        let room = limit.saturating_sub(usage);
        let low = self.low_bytes(limit);
        self.fills = room < if self.fills { low * 2 } else { low };
        if !self.fills {
            self.before = None;
            return Step::Rest(self.rest(room - low));
        }
        // Where the program takes all that comes out, processors are what is short: its own threads, which
        // reclaim for themselves then, get them in turn.
        if let Some((before, took)) = self.before.take()
            && usage + GAIN_MIN > before
        {
            self.pause = self.pause.max(Some(took));
        }
        match self.pause.take() {
            Some(time) => Step::Rest(time),
            None => {
                self.before = Some((usage, Duration::ZERO));
                Step::Reclaim { bytes: low * 2 - room, time: SLICE }
            }
        }
    }

    /// What came of a slice.
    pub fn ran(&mut self, slice: Slice) {
        self.slice += (slice.took.as_secs_f64() - self.slice) / 8.0;
        self.last = None;
        self.before = self.before.map(|(usage, _)| (usage, slice.took));
        self.paused = match slice.found_nothing {
            true => (self.paused * 2).clamp(FRUITLESS, FRUITLESS_MAX),
            false => Duration::ZERO,
        };
        self.pause = slice.found_nothing.then_some(self.paused);
    }

    /// Learns from two looks with no work between them.
    fn observe(&mut self, at: Duration, usage: u64) {
        let Some((then, before)) = self.last.replace((at, usage)) else { return };
        let seconds = at.saturating_sub(then).as_secs_f64();
        if seconds > 0.0 {
            let taken = usage.saturating_sub(before) as f64 / seconds;
            self.taken = taken.max(self.taken - (self.taken - taken) / 16.0);
        }
    }

    /// Until half of so many bytes may have been taken.
    fn rest(&self, bytes: u64) -> Duration {
        let time = |rate: f64, most: Duration| {
            Duration::from_secs_f64((bytes as f64 / rate.max(1.0)).min(most.as_secs_f64()))
        };
        time(self.taken * 2.0, REST_MAX).max(time(TAKEN_MAX, FAR_MAX)).max(REST_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LIMIT: u64 = 256 * MIB;

    /// A group that takes memory at a rate until it meets its limit, and a kernel that frees at another.
    #[derive(Debug)]
    struct World {
        now: Duration,
        usage: f64,
        takes: f64,
        frees: f64,
        /// Nothing comes out: swap is full.
        is_stuck: bool,
        rests: u32,
        slices: u32,
        /// The least room there was.
        room_min: f64,
    }

    impl World {
        fn new(usage: u64, takes: f64, frees: f64) -> Self {
            let (now, room_min) = (Duration::ZERO, LIMIT as f64);
            Self { now, usage: usage as f64, takes, frees, is_stuck: false, rests: 0, slices: 0, room_min }
        }

        fn run(&mut self, ahead: &mut Ahead, time: Duration) {
            let end = self.now + time;
            while self.now < end {
                match ahead.next(self.now, LIMIT, self.usage as u64) {
                    Step::Rest(time) => {
                        self.rests += 1;
                        self.pass(time, 0.0);
                    }
                    Step::Reclaim { time, .. } => {
                        self.slices += 1;
                        let took = if self.is_stuck { Duration::from_micros(10) } else { time * 2 };
                        self.pass(took, if self.is_stuck { 0.0 } else { self.frees });
                        ahead.ran(Slice { took, found_nothing: self.is_stuck });
                    }
                }
            }
        }

        fn pass(&mut self, time: Duration, frees: f64) {
            self.now += time;
            let change = (self.takes - frees) * time.as_secs_f64();
            self.usage = (self.usage + change).clamp(0.0, LIMIT as f64);
            self.room_min = self.room_min.min(LIMIT as f64 - self.usage);
        }
    }

    #[test]
    fn there_is_room_before_it_is_asked_for() {
        for takes in [1e6, 50e6, 150e6, 400e6] {
            let mut world = World::new(LIMIT - 12 * MIB, takes, 1.5 * takes + 100e6);
            let mut ahead = Ahead::default();
            world.run(&mut ahead, Duration::from_secs(10));
            assert!(world.room_min > MIB as f64 / 2.0, "{takes}: {world:?}");
            let room = LIMIT - world.usage as u64;
            assert!(room < LIMIT / 8, "{takes}: more room than is of use: {world:?}");
        }
    }

    #[test]
    fn a_program_that_rests_costs_next_to_nothing() {
        let mut world = World::new(LIMIT - 6 * MIB, 0.0, 500e6);
        let mut ahead = Ahead::default();
        world.run(&mut ahead, Duration::from_secs(1));
        assert!(world.slices == 0 && world.rests <= 101, "{world:?}");
        // Far from the limit it is looked at even less.
        let mut world = World::new(8 * MIB, 0.0, 500e6);
        world.run(&mut Ahead::default(), Duration::from_secs(1));
        assert!(world.slices == 0 && world.rests <= 21, "{world:?}");
        // Room that is used up by and by is made again.
        world = World::new(LIMIT - MIB, 0.0, 300e6);
        world.run(&mut ahead, Duration::from_secs(1));
        assert!(LIMIT as f64 - world.usage >= 4.0 * MIB as f64 && world.slices < 60, "{world:?}");
    }

    #[test]
    fn when_nothing_comes_out_it_is_tried_ever_more_rarely_and_then_at_once_again() {
        let mut world = World::new(LIMIT, 0.0, 500e6);
        let mut ahead = Ahead::default();
        world.is_stuck = true;
        world.run(&mut ahead, Duration::from_secs(10));
        assert!((15..40).contains(&world.slices), "{world:?}");
        world.is_stuck = false;
        world.run(&mut ahead, Duration::from_secs(1));
        assert!(LIMIT as f64 - world.usage >= 4.0 * MIB as f64, "{world:?}");
        let before = world.slices;
        world.is_stuck = true;
        world.usage = LIMIT as f64;
        world.run(&mut ahead, Duration::from_millis(4));
        assert_eq!(world.slices - before, 1, "it begins anew with a short wait");
    }

    #[test]
    fn it_gives_way_to_a_program_that_takes_all_that_comes_out() {
        let mut world = World::new(LIMIT, 500e6, 400e6);
        world.run(&mut Ahead::default(), Duration::from_secs(1));
        // A slice takes 600 us here: it works half the time.
        assert!((700..1000).contains(&world.slices), "{world:?}");
    }

    #[test]
    fn room_grows_with_what_is_taken_and_stays_a_part_of_the_limit() {
        let mut ahead = Ahead::default();
        assert_eq!(ahead.low_bytes(LIMIT), 2 * MIB);
        assert_eq!((ahead.low_bytes(32 * MIB), ahead.low_bytes(1 << 40)), (MIB / 2, 128 * MIB));
        let mut at = Duration::ZERO;
        for (look, took) in [(0, 10_000), (1, 10_000), (2, 10_000)] {
            at += Duration::from_millis(10);
            let _ = ahead.next(at, LIMIT, look * 10 * MIB);
            let _ = ahead.next(at + Duration::from_millis(5), LIMIT, look * 10 * MIB + 5 * MIB);
            ahead.ran(Slice { took: Duration::from_micros(took), found_nothing: false });
        }
        assert!((2 * MIB + 1..=16 * MIB).contains(&ahead.low_bytes(LIMIT)), "{ahead:?}");
    }

    #[test]
    fn counters_are_fresher_where_the_limit_is_small() {
        assert!(fresh_for(LIMIT) > Duration::from_millis(50));
        assert_eq!(
            (fresh_for(0), fresh_for(u64::MAX)),
            (Duration::from_millis(5), Duration::from_millis(200))
        );
    }

    #[test]
    fn a_limit_that_was_lowered_or_lifted_is_followed() {
        let mut ahead = Ahead::default();
        assert!(matches!(ahead.next(Duration::ZERO, LIMIT, LIMIT / 2), Step::Rest(_)));
        assert!(matches!(ahead.next(Duration::ZERO, LIMIT / 2, LIMIT / 2), Step::Reclaim { .. }));
        assert!(matches!(ahead.next(Duration::ZERO, u64::MAX, LIMIT / 2), Step::Rest(_)));
        assert!(matches!(ahead.next(Duration::ZERO, 0, LIMIT / 2), Step::Reclaim { .. }));
    }
}
