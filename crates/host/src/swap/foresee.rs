//! Which pages a program will want from swap next: where a thread goes on in steps of equal length, the steps
//! ahead of it are asked for while it is still behind. A thread may be on several walks at a time. Steps are
//! of bytes: down a column of a matrix, pages are hardly ever equally far apart.
//!
//! Only decides: faults and where pages are come in, what to read goes out. How far a thread has got is seen
//! by which pages are in place, as what was read ahead gives no fault that waits.

use overdrive_sys::other_memory::Place;
use overdrive_sys::uffd::PAGE;
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

/// A fault that waited for a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Where it came to.
    pub address: u64,
}

impl Fault {
    fn page(&self) -> u64 {
        self.address / PAGE
    }
}

/// The memory of processes.
pub trait Memory {
    /// Where `count` pages are, from `first` on; fewer where nothing is known.
    fn places(&mut self, pid: u32, first: u64, count: usize) -> Vec<Place>;
    /// Asks for pages to be read.
    fn read_ahead(&mut self, pid: u32, ranges: &[Range<u64>]);
}

/// Two faults no further apart may be steps of one walk: the kernel reads up to half as many pages with the
/// one that was asked for.
const NEAR: u64 = 64;
/// Behind a fault so many pages are looked at, to see in which steps it was come to.
const BEHIND: u64 = 128;
/// So many faults must agree on a direction before anything is asked for.
const RUN: u32 = 3;
const RUN_MAX: u32 = 256;
/// So many steps in a row that are equal to the byte are those of a column.
const EQUAL: u32 = 2;
/// How far ahead a walk is served at first, in steps.
const WINDOW: u64 = 64;
/// And at most when its steps are long: the place of each is a question of its own.
const LONG_WINDOW: u64 = 256;
/// Steps longer than this, in pages, are long.
const LONG: u64 = 16;
/// A walk that has not moved for so long has ended.
const STILL: Duration = Duration::from_millis(20);
const REST: Range<Duration> = Duration::from_micros(200)..Duration::from_millis(5);
const WALKS_MAX: usize = 64;
/// How many times as far as it was served a walk is looked for.
const CATCH_UP_MAX: usize = 64;
/// Threads that are watched; beyond it all are forgotten.
const THREADS_MAX: usize = 4096;
/// So many walks at a time a thread may begin: who merges, copies or sorts is on several.
const TRACKS: usize = 8;

/// Faults of a thread that may be of one walk, as each is about as far from the one before.
#[derive(Debug, Clone, Copy)]
struct Track {
    address: u64,
    /// From the fault before, in pages and in bytes.
    delta: i64,
    step: i64,
    run: u32,
    /// Steps in a row that were equal to the byte.
    equal: u32,
}

impl Track {
    /// It with one more fault; none if that cannot be of the same walk.
    fn with(&self, fault: &Fault) -> Option<Self> {
        let is_near = |delta: i64| delta.unsigned_abs() <= NEAR;
        let delta = fault.page().wrapping_sub(self.address / PAGE) as i64;
        let step = fault.address.wrapping_sub(self.address) as i64;
        let is_equal = step == self.step;
        let goes_on = is_equal
            || delta == self.delta
            || delta.signum() == self.delta.signum() && is_near(delta) && is_near(self.delta);
        let run = if goes_on { self.run + 1 } else { 0 };
        let equal = if is_equal { self.equal + 1 } else { 0 };
        let address = fault.address;
        (goes_on || is_near(delta)).then_some(Self { address, delta, step, run, equal })
    }

    /// Its step, if it was the same to the byte, and passed over pages: else it is how much the kernel read
    /// for one that goes page by page.
    fn step_of_column(&self, fault: &Fault, memory: &mut dyn Memory) -> Option<i64> {
        if self.equal < EQUAL || self.delta.unsigned_abs() < 2 {
            return None;
        }
        let between = self.delta.unsigned_abs().min(BEHIND) - 1;
        let first = if self.delta > 0 { fault.page().checked_sub(between)? } else { fault.page() + 1 };
        let all = memory.places(fault.pid, first, between as usize);
        all.iter().any(|&place| place != Place::Here).then_some(self.step)
    }
}

/// Steps of equal length through a process's memory.
#[derive(Debug, Clone, Copy)]
struct Walk {
    pid: u32,
    /// The step that was not seen taken yet: an address, and how far it is from there to the one after it.
    next: u64,
    stride: i64,
    /// So many steps from there on were asked for.
    asked: u64,
    /// So many should be.
    window: u64,
    fetched: u64,
    used: u64,
    moved: Duration,
}

impl Walk {
    fn address(&self, step: u64) -> Option<u64> {
        self.next.checked_add_signed(self.stride.checked_mul(i64::try_from(step).ok()?)?)
    }

    fn page(&self, step: u64) -> Option<u64> {
        self.address(step).map(|address| address / PAGE)
    }

    fn is_long(&self) -> bool {
        self.stride.unsigned_abs() > LONG * PAGE
    }

    fn window_max(&self, share: u64) -> u64 {
        if self.is_long() { share.min(LONG_WINDOW) } else { share }
    }

    /// Whether a page lies where this walk is, with some room on both sides.
    fn covers(&self, fault: &Fault) -> bool {
        let spare = self.stride.unsigned_abs() + NEAR * PAGE;
        let Some(last) = self.address(self.asked) else { return false };
        let (low, high) = (self.next.min(last), self.next.max(last));
        self.pid == fault.pid
            && (low.saturating_sub(spare)..=high.saturating_add(spare)).contains(&fault.address)
    }

    /// Where the pages of these steps are.
    fn places(&self, steps: Range<u64>, memory: &mut dyn Memory) -> Vec<Place> {
        let place_of = |found: Vec<Place>| found.first().copied().unwrap_or(Place::Nowhere);
        let ends = (self.page(steps.start), self.page(steps.end.saturating_sub(1)));
        let (Some(first), Some(last), false) = (ends.0, ends.1, steps.is_empty()) else { return Vec::new() };
        if self.is_long() {
            let one = |step| {
                self.page(step).map_or(Place::Nowhere, |page| place_of(memory.places(self.pid, page, 1)))
            };
            return steps.map(one).collect();
        }
        let low = first.min(last);
        let all = memory.places(self.pid, low, (first.max(last) - low + 1) as usize);
        let at = |page: u64| all.get((page - low) as usize).copied().unwrap_or(Place::Nowhere);
        steps.filter_map(|step| self.page(step)).map(at).collect()
    }

    /// Moves on to where the thread is; gives by how many steps.
    fn catch_up(&mut self, at: Duration, memory: &mut dyn Memory) -> u64 {
        let mut sum = 0;
        // Who has outrun what was asked for is looked for further on, but not for ever.
        for _ in 0..CATCH_UP_MAX {
            let seen = self.asked.max(NEAR);
            let steps = self.steps_taken(seen, memory);
            let Some(next) = self.address(steps).filter(|_| steps > 0) else { break };
            self.next = next;
            self.used += steps.min(self.asked);
            self.asked = self.asked.saturating_sub(steps);
            self.moved = at;
            sum += steps;
            if steps < seen {
                break;
            }
        }
        sum
    }

    /// How many of the next steps were taken, of so many that are looked at.
    fn steps_taken(&self, seen: u64, memory: &mut dyn Memory) -> u64 {
        let (mut here, mut steps) = (0, 0);
        for (index, place) in (1..).zip(self.places(0..seen, memory)) {
            here += u64::from(place == Place::Here);
            // Some were taken away again, or are just being read.
            if place == Place::Here && here * 4 >= index * 3 {
                steps = index;
            }
        }
        steps
    }

    /// Whether another walk is this one, found a second time.
    fn is_same(&self, other: &Self) -> bool {
        let next = Fault { pid: other.pid, tid: 0, address: other.next };
        self.stride == other.stride && self.covers(&next)
    }

    /// Asks for what lies ahead and is in swap.
    fn ask(&mut self, memory: &mut dyn Memory) {
        if self.asked + self.window.div_ceil(4) > self.window {
            return;
        }
        let steps = self.asked..self.window;
        let places = self.places(steps.clone(), memory);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (step, _) in steps.zip(places).filter(|(_, place)| *place == Place::Swapped) {
            let Some(page) = self.page(step) else { break };
            self.fetched += 1;
            match ranges.last_mut() {
                Some(last) if last.end == page => last.end += 1,
                Some(last) if page + 1 == last.start => last.start = page,
                _ => ranges.push(page..page + 1),
            }
        }
        self.asked = self.window;
        if !ranges.is_empty() {
            memory.read_ahead(self.pid, &ranges);
        }
    }
}

/// What was asked for and what was of use, in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Asked for.
    pub pages: u64,
    /// Of these, come to by the walk that they were asked for.
    pub used: u64,
}

/// Watches threads and serves the walks that it finds.
#[derive(Debug)]
pub struct Foresight {
    /// Of each thread, the latest last.
    tracks: HashMap<u32, Vec<Track>>,
    walks: Vec<Walk>,
    /// How many faults must agree: more after a walk that was none.
    run: u32,
    looked: Duration,
    ended: Fetched,
}

impl Default for Foresight {
    fn default() -> Self {
        let (tracks, walks, ended) = (HashMap::new(), Vec::new(), Fetched::default());
        Self { tracks, walks, run: RUN, looked: Duration::ZERO, ended }
    }
}

impl Foresight {
    /// Takes a fault into account.
    pub fn faulted(&mut self, at: Duration, fault: Fault, memory: &mut dyn Memory) {
        if self.walks.iter().any(|walk| walk.covers(&fault)) {
            return;
        }
        if self.tracks.len() >= THREADS_MAX {
            self.tracks.clear();
        }
        let tracks = self.tracks.entry(fault.tid).or_default();
        if tracks.iter().any(|track| track.address / PAGE == fault.page()) {
            return;
        }
        let known = (0..tracks.len()).rev().find_map(|index| Some((index, tracks[index].with(&fault)?)));
        let track = if let Some((index, track)) = known {
            tracks.remove(index);
            track
        } else {
            if tracks.len() == TRACKS {
                tracks.remove(0);
            }
            // The first of a walk, or the second of one in long steps.
            let last = tracks.last().map_or(fault.address, |last| last.address);
            let delta = fault.page().wrapping_sub(last / PAGE) as i64;
            let step = fault.address.wrapping_sub(last) as i64;
            Track { address: fault.address, delta, step, run: 0, equal: 0 }
        };
        if track.run < self.run || self.walks.len() >= WALKS_MAX {
            tracks.push(track);
            return;
        }
        let in_bytes = track.step_of_column(&fault, memory).map(|step| (fault.address, step));
        let in_pages =
            || Some((fault.page() * PAGE, stride_behind(&fault, track.delta, memory)? * PAGE as i64));
        let Some((from, stride)) = in_bytes.or_else(in_pages) else { return };
        let Some(next) = from.checked_add_signed(stride) else { return };
        let Fault { pid, .. } = fault;
        let (asked, window, fetched, used) = (0, WINDOW, 0, 0);
        let mut walk = Walk { pid, next, stride, asked, window, fetched, used, moved: at };
        walk.catch_up(at, memory);
        if self.walks.iter().all(|other| !other.is_same(&walk)) {
            self.walks.push(walk);
        }
    }

    /// Serves the walks, with at most so many pages ahead of all of them together; gives how long nothing
    /// need be done, as far as walks are known.
    pub fn look(&mut self, at: Duration, pages_max: u64, memory: &mut dyn Memory) -> Option<Duration> {
        let share = pages_max / self.walks.len().max(1) as u64;
        let since = at.saturating_sub(self.looked).as_secs_f64();
        self.looked = at;
        let mut rest = REST.end;
        let (mut run, mut ended) = (self.run, self.ended);
        let mut seen: Vec<Walk> = Vec::new();
        self.walks.retain_mut(|walk| {
            let steps = walk.catch_up(at, memory);
            if seen.iter().any(|other| other.is_same(walk)) {
                ended.pages += walk.fetched;
                ended.used += walk.used.min(walk.fetched);
                return false;
            }
            seen.push(*walk);
            if at.saturating_sub(walk.moved) > STILL {
                run = if walk.used * 2 >= walk.fetched { RUN } else { (run * 2).min(RUN_MAX) };
                ended.pages += walk.fetched;
                ended.used += walk.used.min(walk.fetched);
                return false;
            }
            if steps > 0 {
                walk.window *= 2;
            }
            walk.window = walk.window.min(walk.window_max(share));
            walk.ask(memory);
            // Until a quarter of what lies ahead is used up.
            let time = walk.asked as f64 / 4.0 * since / steps.max(1) as f64;
            rest = rest.min(Duration::from_secs_f64(time.min(1.0))).max(REST.start);
            true
        });
        (self.run, self.ended) = (run, ended);
        (!self.walks.is_empty()).then_some(rest)
    }

    /// Since the beginning.
    #[must_use]
    pub fn fetched(&self) -> Fetched {
        self.walks.iter().fold(self.ended, |sum, walk| Fetched {
            pages: sum.pages + walk.fetched,
            used: sum.used + walk.used.min(walk.fetched),
        })
    }
}

/// In which steps of pages a thread came to this one, as the pages behind it that are in place tell: the
/// distance to the nearest, when there are some at twice and three times that as well.
fn stride_behind(fault: &Fault, delta: i64, memory: &mut dyn Memory) -> Option<i64> {
    let first = if delta > 0 { fault.page().checked_sub(BEHIND)? } else { fault.page() + 1 };
    let mut behind = memory.places(fault.pid, first, BEHIND as usize);
    if delta > 0 {
        behind.reverse();
    }
    let is_here = |distance: usize| behind.get(distance - 1) == Some(&Place::Here);
    if let Some(near) = (1..=behind.len()).find(|&distance| is_here(distance))
        && is_here(near * 2)
        && is_here(near * 3)
    {
        return Some(delta.signum() * near as i64);
    }
    let mut is_there = |times: i64| {
        let page = delta.checked_mul(-times).and_then(|back| fault.page().checked_add_signed(back));
        page.is_some_and(|page| memory.places(fault.pid, page, 1) == [Place::Here])
    };
    (delta.unsigned_abs() * 3 > BEHIND && (1..=3).all(&mut is_there)).then_some(delta)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u64 = 100_000;
    const FIRST: u64 = 1 << 20;

    /// A process whose memory all lies in swap at first, and a thread that touches pages of it.
    #[derive(Debug)]
    struct World {
        places: Vec<Place>,
        cached: Vec<bool>,
        asked: u64,
        waits: u64,
        touches: u64,
        at: Duration,
    }

    impl Memory for World {
        fn places(&mut self, _: u32, first: u64, count: usize) -> Vec<Place> {
            let place = |page: u64| page.checked_sub(FIRST).and_then(|page| self.places.get(page as usize));
            (first..first + count as u64).map(|page| place(page).copied().unwrap_or(Place::Nowhere)).collect()
        }

        fn read_ahead(&mut self, pid: u32, ranges: &[Range<u64>]) {
            assert_eq!(pid, 7);
            for page in ranges.iter().cloned().flatten() {
                let index = (page - FIRST) as usize;
                assert_eq!(self.places[index], Place::Swapped, "what is there is not read");
                self.cached[index] = true;
                self.asked += 1;
            }
        }
    }

    impl World {
        fn new() -> Self {
            let (places, cached) = (vec![Place::Swapped; PAGES as usize], vec![false; PAGES as usize]);
            Self { places, cached, asked: 0, waits: 0, touches: 0, at: Duration::ZERO }
        }

        /// Touches pages, with a look after each few, until all were touched. With what the kernel reads as well.
        fn touch(&mut self, foresight: &mut Foresight, pages: impl Iterator<Item = u64>, cluster: u64) {
            self.touch_at(foresight, pages.map(|page| page * PAGE), cluster);
        }

        /// The same by how many bytes they are from the first page's begin.
        fn touch_at(&mut self, foresight: &mut Foresight, places: impl Iterator<Item = u64>, cluster: u64) {
            for place in places {
                self.touches += 1;
                self.at += Duration::from_micros(5);
                let page = place / PAGE;
                let index = page as usize;
                if self.places[index] == Place::Swapped && !self.cached[index] {
                    self.waits += 1;
                    let start = page / cluster * cluster;
                    (start..(start + cluster).min(PAGES)).for_each(|page| self.cached[page as usize] = true);
                    let address = FIRST * PAGE + place;
                    foresight.faulted(self.at, Fault { pid: 7, tid: 9, address }, self);
                }
                self.places[index] = Place::Here;
                if self.touches.is_multiple_of(100) {
                    let _ = foresight.look(self.at, 2048, self);
                }
            }
        }
    }

    #[test]
    fn who_goes_page_by_page_does_not_wait_in_either_direction() {
        for cluster in [1, 8, 32] {
            let (mut world, mut foresight) = (World::new(), Foresight::default());
            world.touch(&mut foresight, 1000..50_000, cluster);
            assert!(world.waits < 200, "{cluster}: {}", world.waits);
            assert!(world.asked < 52_000 && foresight.fetched().used > 45_000, "{:?}", foresight.fetched());
            let (mut world, mut foresight) = (World::new(), Foresight::default());
            world.touch(&mut foresight, (1000..50_000).rev(), cluster);
            assert!(world.waits < 200, "{cluster}, back: {}", world.waits);
        }
    }

    #[test]
    fn steps_are_followed_and_what_lies_between_is_left_alone() {
        for stride in [2, 5, 16, 40, 300] {
            let (mut world, mut foresight) = (World::new(), Foresight::default());
            world.touch(&mut foresight, (1000..PAGES).step_by(stride), 1);
            let steps = world.touches;
            assert!(world.waits < 100 + steps / 10, "{stride}: {} of {steps}", world.waits);
            assert!(world.asked <= steps + 2048, "{stride}: {} for {steps}", world.asked);
        }
    }

    #[test]
    fn columns_are_followed_whose_rows_are_no_whole_number_of_pages() {
        for row in [9_000, 28_672, 36_000, 100_008, 1_000_000] {
            for cluster in [1, 8] {
                let (mut world, mut foresight) = (World::new(), Foresight::default());
                let column = |first: u64| (first..PAGES * PAGE).step_by(row);
                (0..3).for_each(|first| world.touch_at(&mut foresight, column(first * PAGE), cluster));
                let rows = world.touches;
                let case = format!("{row}, {cluster}: {} of {rows}, asked {}", world.waits, world.asked);
                // Each column is found anew.
                assert!(world.waits < 3 * 100 + rows / 10, "{case}");
                assert!(world.asked <= rows + 2048, "{case}");
            }
        }
    }

    #[test]
    fn nothing_is_read_for_who_goes_at_random() {
        let (mut world, mut foresight) = (World::new(), Foresight::default());
        let mut state = 1u64;
        let pages = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % PAGES
        });
        world.touch(&mut foresight, pages.take(60_000), 1);
        assert!(world.asked < 200, "{}", world.asked);
    }

    #[test]
    fn a_walk_that_was_none_makes_it_careful_and_one_that_stops_is_dropped() {
        let (mut world, mut foresight) = (World::new(), Foresight::default());
        // Always the same few pages in a row, then elsewhere.
        for start in (0..90_000).step_by(300) {
            world.touch(&mut foresight, start..start + 12, 1);
            world.at += Duration::from_millis(30);
            let _ = foresight.look(world.at, 2048, &mut world);
            world.at += Duration::from_millis(30);
            assert!(foresight.look(world.at, 2048, &mut world).is_none(), "it stands still");
        }
        assert!(world.asked < 1200, "{} for {}", world.asked, world.touches);
    }

    #[test]
    fn several_walks_of_a_thread_are_followed_up_and_down() {
        for cluster in [1, 32] {
            let (mut world, mut foresight) = (World::new(), Foresight::default());
            // As who merges three rows into a fourth, and who swaps from both ends.
            let pages = (0..15_000).flat_map(|step| [step, 20_000 + step, 40_000 + step, 75_000 - step]);
            world.touch(&mut foresight, pages, cluster);
            assert!(world.waits < 400, "{cluster}: {}", world.waits);
            assert!(world.asked < 63_000, "{cluster}: {}", world.asked);
        }
    }

    #[test]
    fn walks_share_what_may_lie_ahead() {
        let (mut world, mut foresight) = (World::new(), Foresight::default());
        for step in 0..20_000 {
            for (thread, start) in [0, 30_000, 60_000].into_iter().enumerate() {
                let page = start + step;
                let index = page as usize;
                world.at += Duration::from_micros(2);
                if world.places[index] == Place::Swapped && !world.cached[index] {
                    world.waits += 1;
                    let address = (FIRST + page) * PAGE;
                    let fault = Fault { pid: 7, tid: thread as u32, address };
                    foresight.faulted(world.at, fault, &mut world);
                }
                world.places[index] = Place::Here;
            }
            if step % 50 == 0 {
                let _ = foresight.look(world.at, 1200, &mut world);
                let ahead: u64 = foresight.walks.iter().map(|walk| walk.asked).sum();
                assert!(ahead <= 1200, "{ahead}");
            }
        }
        assert!(world.waits < 600, "{}", world.waits);
    }
}
