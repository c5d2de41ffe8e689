//! How much DRAM the compressed tier may have: a page of it keeps several others off the drive, but is one
//! page less in place. Which is worth more shows in how soon pages come back, and in what a fault takes that
//! is answered by the tier, by the drive and by making room. And all of it has to be worth the time in which
//! pages are compressed: a walk that is read ahead of hardly waits for the drive anyway.

use super::Limits;
use crate::platform::Instant;
use crate::pool::Pool;
use std::time::Duration;

/// How often it is thought over.
const PERIOD: Duration = Duration::from_millis(100);
/// Into a tier that is as small as can be, or full of pages that hardly ever come back, go those of one block
/// in so many: enough to see whether more would pay. Single pages would leave holes in what lies in a row on
/// the store.
const SAMPLE: u32 = 8;
/// Hardly ever: less than one for so many that were compressed.
const RARELY: u64 = 16;
/// So many periods in a row in which it was not worth the time to compress make it as small as can be.
const POOR_MAX: u32 = 2;
/// Fewer faults in a period say nothing.
const FAULTS_MIN: u64 = 50;
/// After so many periods in which a small tier was not worth more it is closed, each time for longer.
const SMALL_MAX: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(16);

/// What was seen in a period.
#[derive(Debug, Default)]
struct Seen {
    /// Pages that came back before a few others were compressed: with a little more memory they would have
    /// been in place.
    soon: u64,
    /// All others that came back.
    late: u64,
    /// Those that were read for a thread that waited.
    loads: u64,
    /// What the engine did for reads, and what it waited for them.
    reading: Duration,
    room: Duration,
    evicted: u64,
    /// Pages that were to be compressed, and how long that took.
    tried: u64,
    compressing: Duration,
    /// Pages that came out of the tier for a thread that waited, or ahead of one.
    expands: u64,
    expanded_ahead: u64,
    /// Those that were read ahead, and used.
    read_ahead: u64,
}

/// The share of the tier, and what speaks for another.
#[derive(Debug)]
pub(super) struct Tier {
    takes_all: bool,
    /// Pages; None for as much as is allowed.
    share: Option<u64>,
    /// What counts as coming back soon: the step by which the share changes.
    step: u64,
    /// The block that was evicted last, and how many are to pass before the next, where few are put there.
    block: u32,
    pass_over: u32,
    /// It is full, and its pages hardly ever come back.
    stagnates: bool,
    /// Periods in a row that it was not worth the time.
    poor: u32,
    since: Instant,
    seen: Seen,
    /// Periods in a row that it was small.
    small: u32,
    closed_until: Option<Instant>,
    pause: Duration,
    /// Running means, in nanoseconds.
    expand_ns: u64,
    load_ns: u64,
    /// What was waited for a page that was read ahead.
    ahead_ns: f64,
    /// What room for a page took when enough pages were evicted to tell.
    room_ns: f64,
}

impl Tier {
    /// `takes_all`: its share is always what is allowed.
    pub(super) fn new(takes_all: bool) -> Self {
        Self {
            takes_all,
            share: None,
            step: 0,
            block: 0,
            pass_over: 0,
            stagnates: false,
            poor: 0,
            since: Instant::now(),
            seen: Seen::default(),
            small: 0,
            closed_until: None,
            pause: PAUSE,
            expand_ns: 10_000,
            load_ns: 100_000,
            ahead_ns: 1000.0,
            room_ns: 0.0,
        }
    }

    /// So long the engine was busy with reads, or had nothing to do while it waited for them.
    pub(super) fn note_reading(&mut self, took: Duration) {
        self.seen.reading += took;
    }

    /// Making room began then. What the tier gives to the store, and handing over writes, come after it:
    /// were they part of it, a tier would get smaller because it gets smaller.
    pub(super) fn note_room(&mut self, since: Instant) {
        self.seen.room += since.elapsed();
    }

    pub(super) fn note_evicted(&mut self, pages: u32) {
        self.seen.evicted += u64::from(pages);
    }

    /// Some pages were compressed since then.
    pub(super) fn note_compressed(&mut self, pages: u32, since: Instant) {
        self.seen.tried += u64::from(pages);
        self.seen.compressing += since.elapsed();
    }

    pub(super) fn note_expanded_ahead(&mut self) {
        self.seen.expanded_ahead += 1;
    }

    /// Pages that were read ahead are used, after a thread waited so long for them.
    pub(super) fn note_read_ahead(&mut self, pages: u32, waited: Duration) {
        self.seen.read_ahead += u64::from(pages);
        self.ahead_ns = (self.ahead_ns * 31.0 + waited.as_nanos() as f64 / f64::from(pages)) / 32.0;
    }

    pub(super) fn note_load(&mut self, took_ns: u64) {
        self.seen.loads += 1;
        self.load_ns = (self.load_ns * 31 + took_ns) / 32;
    }

    pub(super) fn note_expand(&mut self, age: u32, took: Duration) {
        let one_in = u64::from(if self.is_small() { SAMPLE } else { 1 });
        if u64::from(age) * one_in < self.step {
            self.seen.soon += one_in;
        } else {
            self.seen.late += 1;
        }
        self.seen.expands += 1;
        self.expand_ns = (self.expand_ns * 31 + took.as_nanos() as u64) / 32;
    }

    /// Not exactly one step, which changes with what else has to be held.
    fn is_small(&self) -> bool {
        self.share.is_some_and(|share| share <= self.step + self.step / 4)
    }

    /// Whether to put a page of this block there that was just evicted.
    pub(super) fn wants(&mut self, block: u32) -> bool {
        if !self.is_small() && !self.stagnates {
            return true;
        }
        if std::mem::replace(&mut self.block, block) != block {
            self.pass_over = self.pass_over.checked_sub(1).unwrap_or(SAMPLE - 1);
        }
        self.pass_over == 0
    }

    /// The pages it may have now.
    pub(super) fn share(&mut self, pool: &Pool, limits: &Limits) -> u64 {
        let passed = self.since.elapsed();
        self.step = limits.total / 32;
        if passed >= PERIOD {
            self.since = Instant::now();
            let seen = std::mem::take(&mut self.seen);
            let is_full = pool.pages() + self.step > self.share.unwrap_or(limits.compressed);
            let came_back = seen.expands + seen.expanded_ahead;
            self.stagnates = is_full && came_back * RARELY < seen.tried && !self.takes_all;
            match self.closed_until {
                Some(until) if self.since < until => {}
                Some(_) => (self.closed_until, self.share) = (None, Some(self.step)),
                None => self.think_over(&seen, pool, limits),
            }
        }
        self.share.unwrap_or(limits.compressed).min(limits.compressed)
    }

    fn think_over(&mut self, seen: &Seen, pool: &Pool, limits: &Limits) {
        let (pages, live) = (pool.pages(), pool.live());
        let returns = seen.soon + seen.late + seen.loads + seen.expanded_ahead + seen.read_ahead;
        if self.takes_all || pages == 0 || returns < FAULTS_MIN {
            return;
        }
        // A thread waits as long as a read takes; but what is done for others meanwhile is not lost.
        let reading_ns = seen.reading.as_nanos() as f64 / seen.loads as f64;
        let load_ns = if seen.loads > 0 { reading_ns.min(self.load_ns as f64) } else { self.load_ns as f64 };
        let saved_ns = (load_ns - self.expand_ns as f64).max(0.0);
        // All of it together. One that is small holds too few pages to tell.
        let won_ns = seen.expands as f64 * saved_ns + seen.expanded_ahead as f64 * self.ahead_ns;
        let pays = self.is_small() || won_ns * 2.0 >= seen.compressing.as_nanos() as f64;
        self.poor = if pays { 0 } else { self.poor + 1 };
        if self.poor >= POOR_MAX {
            self.share = Some(self.step);
        }
        // While it gets smaller, what is measured is that: it would end as small as can be, whatever pays.
        if self.share.is_some_and(|share| pages > share + self.step) {
            return;
        }
        // A page in place saves the fault, and taking another page away. That takes the longer the fewer
        // pages of a block are in place.
        if seen.evicted >= FAULTS_MIN {
            self.room_ns = seen.room.as_nanos() as f64 / seen.evicted as f64;
        }
        let smaller = seen.soon as f64 * (self.expand_ns as f64 + 2.0 * self.room_ns);
        // Of the pages that one more of the tier holds, one is no longer in place.
        let won = 1.0 - (pages as f64 / live.max(1) as f64).min(1.0);
        let fewer_loads = seen.late as f64 * won * self.step as f64 / pages as f64;
        // Where hardly anything is read, a much smaller one would soon have to grow again.
        let is_enough = fewer_loads > seen.loads as f64;
        let larger = saved_ns * fewer_loads.min(seen.loads as f64);
        let now = self.share.unwrap_or(limits.compressed).min(pages.max(self.step));
        if larger > smaller * 1.5 && pays {
            self.share = Some((pages + 2 * self.step).min(limits.compressed));
            (self.small, self.pause) = (0, PAUSE);
        } else if self.is_small() {
            self.note_small(seen.expands == 0);
        } else if smaller >= larger * 2.0 {
            // Not sooner: to get smaller is dear, as all that it gives up is written.
            let less = if is_enough { self.step } else { self.step.max(now / 4) };
            self.share = Some(now.saturating_sub(less).max(self.step));
        }
    }

    /// It is as small as can be, and not worth more. Even that costs something, and for nothing where nobody
    /// comes for its pages.
    fn note_small(&mut self, in_vain: bool) {
        self.small += if in_vain { 4 } else { 1 };
        if self.small >= SMALL_MAX {
            self.small = 0;
            self.share = Some(0);
            self.closed_until = Some(self.since + self.pause);
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Compress;
    use crate::sim::kernel;
    use overdrive_sys::uffd::PAGE;

    const LIMITS: Limits = Limits { budget: 3200, total: 3200, soft: 256, reserve: 128, compressed: 2000 };

    /// What is seen in each period: pages that come back soon and late, reads and what one takes, what making
    /// room takes.
    #[derive(Clone, Copy)]
    struct Each {
        soon: u32,
        late: u32,
        loads: u32,
        load: Duration,
        room: Duration,
    }

    const MICROSECOND: Duration = Duration::from_micros(1);
    /// To bring a page back takes 10 us.
    const EACH: Each =
        Each { soon: 5, late: 500, loads: 10, load: Duration::from_micros(100), room: Duration::ZERO };

    /// A tier that began as large as it may be, and its pool.
    struct Run {
        tier: Tier,
        pool: Pool,
        gives_up: bool,
    }

    impl Run {
        fn new(takes_all: bool) -> Self {
            let mut pool = Pool::new(2000, Compress::Auto).unwrap();
            for page in 0..4000 {
                let mut content = [0; PAGE as usize];
                let mut rng = overdrive_base::rng::Rng::new(u64::from(page));
                content[..1900].fill_with(|| rng.below(256) as u8);
                pool.put(page, &content);
            }
            assert!(pool.pages() > 1990);
            Self { tier: Tier::new(takes_all), pool, gives_up: true }
        }

        /// The share after so many periods.
        fn after(&mut self, periods: u32, each: Each) -> u64 {
            let mut share = self.tier.share(&self.pool, &LIMITS);
            for _ in 0..periods {
                let began = Instant::now();
                kernel(|kernel| kernel.time += each.room);
                self.tier.note_room(began);
                self.tier.note_evicted(each.soon + each.late + each.loads);
                kernel(|kernel| kernel.time += PERIOD.saturating_sub(each.room));
                (0..each.soon).for_each(|_| self.tier.note_expand(0, 10 * MICROSECOND));
                (0..each.late).for_each(|_| self.tier.note_expand(10_000, 10 * MICROSECOND));
                (0..each.loads).for_each(|_| self.tier.note_load(100_000));
                self.tier.note_reading(each.load * each.loads);
                share = self.tier.share(&self.pool, &LIMITS);
                while self.gives_up && self.pool.pages() > share {
                    self.pool.long_ago().into_iter().for_each(|(cell, _)| self.pool.give_up(cell));
                    self.pool.move_together();
                }
            }
            share
        }
    }

    #[test]
    fn what_comes_back_late_keeps_the_tier_large() {
        assert_eq!(Run::new(false).after(20, EACH), 2000);
    }

    #[test]
    fn what_comes_back_soon_makes_it_small() {
        let soon = Each { soon: 500, late: 50, ..EACH };
        assert_eq!(Run::new(false).after(15, soon), 100);
        assert_eq!(Run::new(true).after(15, soon), 2000, "unless it takes all it may");
    }

    #[test]
    fn a_small_one_that_does_not_pay_is_closed_ever_longer() {
        let (mut run, soon) = (Run::new(false), Each { soon: 500, late: 50, ..EACH });
        assert_eq!(run.after(25, soon), 0);
        assert_eq!(run.after(10, soon), 100, "after a second");
        run.pool = Run::new(false).pool;
        assert_eq!((run.after(11, soon), run.after(15, soon), run.after(6, soon)), (0, 0, 100));
    }

    #[test]
    fn while_it_gets_smaller_it_is_not_thought_over() {
        let (mut run, soon) = (Run::new(false), Each { soon: 500, late: 50, ..EACH });
        run.gives_up = false;
        assert_eq!(run.after(15, soon), 1500, "by one step, as its pages are still there");
        run.gives_up = true;
        assert_eq!(run.after(15, soon), 100);
    }

    #[test]
    fn what_room_took_is_kept_while_nothing_is_evicted() {
        let mut run = Run::new(false);
        run.after(1, Each { room: PERIOD / 2, ..EACH });
        let room_ns = run.tier.room_ns;
        assert!(room_ns > 50_000.0, "{room_ns}");
        let began = Instant::now();
        kernel(|kernel| kernel.time += PERIOD);
        run.tier.note_room(began);
        (0..100).for_each(|_| run.tier.note_load(100_000));
        run.tier.share(&run.pool, &LIMITS);
        assert_eq!((run.tier.room_ns, run.tier.seen.loads), (room_ns, 0), "thought over, and kept");
    }

    #[test]
    fn reads_that_take_no_longer_than_to_unpack_make_it_small() {
        assert_eq!(Run::new(false).after(15, Each { loads: 100, load: 10 * MICROSECOND, ..EACH }), 100);
    }

    #[test]
    fn room_that_takes_long_makes_it_smaller() {
        let each = Each { soon: 30, loads: 500, load: 60 * MICROSECOND, ..EACH };
        assert_eq!(Run::new(false).after(15, each), 2000);
        assert!(Run::new(false).after(15, Each { room: PERIOD / 2, ..each }) < 1000);
    }

    #[test]
    fn where_hardly_anything_is_read_it_gets_smaller_slowly() {
        let share = Run::new(false).after(5, Each { loads: 0, ..EACH });
        assert!((1500..2000).contains(&share), "{share}");
    }

    /// The share after some periods in which so many pages were compressed, 10 us each, and others came out of
    /// the tier, some ahead of a walk.
    fn share(run: &mut Run, periods: u32, tried: u32, expands: u32, ahead: u32) -> u64 {
        let mut period = || {
            let began = Instant::now();
            kernel(|kernel| kernel.time += tried * 10 * MICROSECOND);
            run.tier.note_compressed(tried, began);
            kernel(|kernel| kernel.time += PERIOD.saturating_sub(tried * 10 * MICROSECOND));
            (0..expands).for_each(|_| run.tier.note_expand(10_000, MICROSECOND));
            (0..ahead).for_each(|_| run.tier.note_expanded_ahead());
            run.tier.share(&run.pool, &LIMITS)
        };
        (0..periods).map(|_| period()).last().unwrap_or(0)
    }

    #[test]
    fn a_tier_that_is_not_worth_the_time_is_made_small_in_two_periods() {
        let shares = |run: &mut Run, expands, ahead| {
            assert!(share(run, 1, 4000, expands, ahead) >= 1500, "one period is not enough");
            share(run, 1, 4000, expands, ahead)
        };
        assert_eq!(shares(&mut Run::new(false), 0, 1000), 100, "for a walk alone");
        assert_eq!(shares(&mut Run::new(true), 0, 1000), 2000, "unless it takes all it may");
        assert!(shares(&mut Run::new(false), 1000, 0) >= 1500, "who waits gains 99 us a page");
        let mut run = Run::new(false);
        (0..100).for_each(|_| run.tier.note_read_ahead(16, Duration::from_millis(1)));
        assert!(shares(&mut run, 0, 1000) >= 1500, "so does a walk where the drive is slow");
    }

    #[test]
    fn into_a_full_tier_whose_pages_do_not_come_back_few_blocks_are_put() {
        let mut run = Run::new(false);
        assert!((0..64).all(|block| run.tier.wants(block)));
        share(&mut run, 2, 4000, 0, 0);
        let wanted: Vec<_> = (0..64 * 64).filter(|page| run.tier.wants(page / 64)).collect();
        assert_eq!(wanted.len(), 64 * 64 / SAMPLE as usize);
        assert!(
            wanted.chunks(64).all(|block| block[0] % 64 == 0 && block[63] == block[0] + 63),
            "whole ones"
        );
        share(&mut run, 1, 500, 40, 0);
        assert!((0..64).all(|block| run.tier.wants(block)), "they come back again");
    }

    #[test]
    fn too_few_faults_change_nothing() {
        assert_eq!(Run::new(false).after(20, Each { soon: 20, late: 5, ..EACH }), 2000);
    }
}
