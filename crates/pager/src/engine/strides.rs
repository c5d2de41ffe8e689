//! Pieces of memory that lie in equal steps, as the faults of threads show them: a column of a matrix whose
//! rows lie one behind the other, a block of it, one field of large records.
//!
//! Steps are of bytes and pieces have a length, as a row hardly ever is a whole number of pages: a column
//! then goes 8, 9, 9, 9, 8 pages further, and whether a piece goes on to a second page differs from row to
//! row. Where in its page a thread faulted tells the step.

use overdrive_sys::uffd::PAGE;

/// Threads that are told apart, and strides of each that are remembered.
const THREADS: usize = 64;
const STRIDES: usize = 8;
/// Equal steps in a row that make a stride: where what is read ahead is used, and where it is not.
const PROOF: u32 = 2;
const LONG_PROOF: u32 = 9;
/// Shorter steps are those of a walk.
const STEP_MIN: u64 = 2 * PAGE;
/// A piece that is longer is gone through as a walk.
const LENGTH_MAX: u64 = 16 * PAGE;
/// So many pieces at most are passed over without a fault, as they are in place, or were begun since by a
/// thread that comes to the rest of one.
const APART_MAX: i64 = 16;
/// Steps of each set that are remembered.
const KNOWN: usize = 4;
/// How long pieces are is found anew after so many.
const LENGTH_KEPT: u32 = 16;
/// So many pieces are read ahead, at first and at most.
const AHEAD: (u32, u32) = (4, 32);
/// A stride that was not gone on with for so many faults of its set has ended: its pieces and those around
/// them are so many pages that faults at random meet one now and then.
const KEPT: u32 = 32;

/// What is worth reading ahead: so many pieces, in equal steps from a place on. In bytes, from the first
/// page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pieces {
    pub(super) from: u64,
    pub(super) step: i64,
    pub(super) length: u64,
    pub(super) count: u32,
}

impl Pieces {
    /// The pages of each, the nearest first.
    pub(super) fn pages(self) -> impl Iterator<Item = u32> {
        let begin = move |index| self.from.checked_add_signed(self.step.checked_mul(i64::from(index))?);
        let page = |place: u64| u32::try_from(place / PAGE).ok();
        let pages = move |begin: u64| Some(page(begin)?..=page(begin + self.length - 1)?);
        (1..=self.count).map_while(move |index| pages(begin(index)?)).flatten()
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Stride {
    thread: u32,
    /// Where the last piece begins, as far as is known.
    last: u64,
    /// To the next, in bytes and in whole pages; 0: not known.
    step: i64,
    pages: i64,
    /// How far into pieces the thread went; and into the last few, so many.
    length: u64,
    lately: (u64, u32),
    /// Steps in a row that were equal.
    steps: u32,
    /// What was read ahead last.
    window: u32,
    /// The fault of its set that it went on with; 0: there is none.
    at: u32,
}

impl Stride {
    /// Whether it is one, and goes on, after so many faults of its set.
    fn is_kept(&self, faults: u32) -> bool {
        self.at != 0 && faults.wrapping_sub(self.at) <= KEPT
    }

    /// Whether the next piece, or one that is not far behind it, begins here. Goes on to it.
    fn begins(&mut self, place: u64) -> bool {
        let way = place.wrapping_sub(self.last).cast_signed();
        let goes_on = self.step != 0 && way % self.step == 0 && (1..=APART_MAX).contains(&(way / self.step));
        if goes_on {
            self.go_on(place);
        }
        goes_on
    }

    fn go_on(&mut self, place: u64) {
        self.last = place;
        self.steps = self.steps.saturating_add(1);
        self.lately.1 += 1;
        if self.lately.1 == LENGTH_KEPT {
            self.length = self.lately.0;
            self.lately = (1, 0);
        }
    }

    /// Whether this is in a piece, or on the page behind what is known of it. That is known then.
    fn has(&mut self, place: u64) -> bool {
        let way = place.wrapping_sub(self.last).cast_signed();
        if self.step == 0 || self.steps == 0 {
            return self.is_walk(place) || self.begins_on_page(place);
        }
        let (size, forth) = (self.step.unsigned_abs(), self.step.signum());
        let (mut pieces, into) = (way.div_euclid(size as i64) * forth, way.rem_euclid(size as i64) as u64);
        // Who comes to the begin of a page was in the one before it, so what is known of where pieces begin
        // may be off by as much.
        let before = size - into;
        let is_before = before < PAGE && place.is_multiple_of(PAGE) && self.last >= before;
        pieces += if is_before { forth } else { 0 };
        if pieces.abs() > APART_MAX {
            return false;
        }
        if is_before {
            self.last -= before;
            self.length += before;
        }
        let begin = self.last.checked_add_signed(pieces * self.step);
        let Some(begin) = begin.filter(|&begin| self.reaches(begin, place)) else { return false };
        if self.length > LENGTH_MAX.min(size - PAGE) {
            (self.step, self.steps, self.window) = (0, 0, 0);
        } else if pieces > 0 {
            self.go_on(begin);
        }
        true
    }

    /// Whether this is where a walk goes on. All of it is one piece, for as long as nothing else is known.
    fn is_walk(&mut self, place: u64) -> bool {
        if place >= self.last {
            return self.reaches(self.last, place);
        }
        let goes_down = place / PAGE + 1 == self.last / PAGE;
        if goes_down {
            *self = Self { last: place, step: 0, pages: 0, length: self.length + self.last - place, ..*self };
        }
        goes_down
    }

    /// Whether the same step of whole pages comes again, wherever in them the thread came to. Goes on to it.
    fn begins_on_page(&mut self, place: u64) -> bool {
        let first = place / PAGE;
        let goes_on = self.pages != 0 && (self.last / PAGE).checked_add_signed(self.pages) == Some(first);
        if goes_on {
            self.step = self.pages * PAGE as i64;
            self.go_on(first * PAGE);
            self.reaches(first * PAGE, place);
        }
        goes_on
    }

    /// Whether this is in the piece that begins there, or on the page behind it. It reaches to here then.
    fn reaches(&mut self, begin: u64, place: u64) -> bool {
        let (end, length) = (begin + self.length - 1, place - begin + 1);
        let is_near = place / PAGE <= end / PAGE + 1;
        if is_near {
            self.length = self.length.max(length);
            self.lately.0 = self.lately.0.max(length);
        }
        is_near
    }
}

/// The strides of one set of threads.
#[derive(Debug, Clone, Copy, Default)]
struct Set {
    strides: [Stride; STRIDES],
    /// The steps that were proven last, to the byte.
    known: [i64; KNOWN],
    faults: u32,
}

impl Set {
    /// The stride that a thread's fault goes on with, if it does with any.
    fn find(&mut self, thread: u32, place: u64) -> Option<usize> {
        let faults = self.faults;
        let of_thread = |stride: &Stride| stride.thread == thread && stride.is_kept(faults);
        let mut all = self.strides.iter_mut();
        if let Some(index) = all.position(|stride| of_thread(stride) && stride.begins(place)) {
            let Stride { step, steps, .. } = self.strides[index];
            if steps == PROOF && !place.is_multiple_of(PAGE) {
                self.learn(step);
            }
            return Some(index);
        }
        self.strides.iter_mut().position(|stride| of_thread(stride) && stride.has(place))
    }

    /// The same steps often lead through other columns soon.
    fn learn(&mut self, step: i64) {
        let at = self.known.iter().position(|&known| known == step).unwrap_or(KNOWN - 1);
        self.known[at] = step;
        self.known[..=at].rotate_right(1);
    }

    /// The known step of which there are some, give or take a page, on a way.
    fn fits(&self, way: i64) -> Option<i64> {
        let fits = |step: i64| {
            let count = (way as f64 / step as f64).round() as i64;
            (1..=APART_MAX).contains(&count) && (way - count * step).unsigned_abs() < PAGE
        };
        self.known.iter().copied().find(|&step| step != 0 && fits(step))
    }

    /// Remembers a place that nothing led to, with the step to it from the nearest other of the thread.
    fn begin(&mut self, thread: u32, place: u64) {
        let others = self.strides.iter().filter(|stride| stride.thread == thread && stride.at != 0);
        let far = others.map(|stride| stride.last).filter(|&last| place.abs_diff(last) >= STEP_MIN);
        let nearest = far.min_by_key(|&last| place.abs_diff(last)).unwrap_or(place);
        let way = place.wrapping_sub(nearest).cast_signed();
        let age = |stride: &Stride| self.faults.wrapping_sub(stride.at);
        let worth = |&index: &usize| {
            let stride = &self.strides[index];
            (stride.steps >= PROOF && stride.is_kept(self.faults), u32::MAX - age(stride))
        };
        let known = Some(way).filter(|_| place.is_multiple_of(PAGE)).and_then(|way| self.fits(way));
        let least = (0..STRIDES).min_by_key(worth).unwrap_or(0);
        self.strides[least] = Stride {
            thread,
            last: place,
            step: known.unwrap_or(way),
            pages: (place / PAGE).wrapping_sub(nearest / PAGE).cast_signed(),
            steps: u32::from(known.is_some()),
            length: 1,
            lately: (1, 0),
            at: self.faults,
            ..Stride::default()
        };
    }
}

/// The strides of all threads.
#[derive(Debug)]
pub(super) struct Strides(Box<[Set; THREADS]>);

impl Strides {
    pub(super) fn none() -> Self {
        Self(Box::new([Set::default(); THREADS]))
    }

    /// A thread faulted at a place, in bytes from the first page. Says what to read ahead of it. `patient`:
    /// what was read ahead is hardly used.
    pub(super) fn note(&mut self, thread: u32, place: u64, patient: bool) -> Option<Pieces> {
        let set = &mut self.0[thread as usize % THREADS];
        set.faults = set.faults.wrapping_add(1).max(1);
        let Some(index) = set.find(thread, place) else {
            set.begin(thread, place);
            return None;
        };
        let stride = &mut set.strides[index];
        stride.at = set.faults;
        if stride.steps < if patient { LONG_PROOF } else { PROOF } {
            stride.window = 0;
            return None;
        }
        stride.window = (stride.window * 2).clamp(AHEAD.0, AHEAD.1);
        let Stride { last: from, step, length, window: count, .. } = *stride;
        Some(Pieces { from, step, length, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overdrive_base::rng::Rng;

    const ROW: u64 = 36_000;

    fn told(strides: &mut Strides, places: impl IntoIterator<Item = u64>) -> Vec<Option<Pieces>> {
        places.into_iter().map(|place| strides.note(7, place, false)).collect()
    }

    #[test]
    fn equal_steps_are_believed_when_they_come_again() {
        let told = told(&mut Strides::none(), (0..6).map(|row| 1000 + row * ROW));
        let pieces = |row, count| Some(Pieces { from: 1000 + row * ROW, step: 36_000, length: 1, count });
        assert_eq!(told, [None, None, None, pieces(3, 4), pieces(4, 8), pieces(5, 16)]);
        let pages: Vec<u32> = told[3].unwrap().pages().collect();
        assert_eq!(pages, [35, 44, 52, 61], "8 or 9 pages further");
    }

    #[test]
    fn steps_of_whole_pages_are_followed_wherever_in_them_the_thread_comes_to() {
        let mut rng = Rng::new(4);
        for step in [7, 300] {
            let faults: Vec<u64> = (0..40).map(|piece| piece * step * PAGE + rng.below(PAGE)).collect();
            let told = told(&mut Strides::none(), faults);
            assert!(told[4..].iter().all(Option::is_some), "{told:?}");
            let pages: Vec<u32> = told[39].unwrap().pages().collect();
            let wanted: Vec<u32> = (40..72).map(|piece| piece * step as u32).collect();
            assert_eq!(pages, wanted);
        }
    }

    #[test]
    fn steps_lead_downwards_too_and_not_beyond_the_first_page() {
        let told = told(&mut Strides::none(), (2..9).rev().map(|row| 1000 + row * ROW));
        let pages: Vec<u32> = told.last().unwrap().unwrap().pages().collect();
        assert_eq!(pages, [9, 0]);
    }

    #[test]
    fn pieces_that_are_in_place_are_passed_over() {
        let rows = [0, 1, 2, 3, 5, 8, 16, 17, 33];
        let told = told(&mut Strides::none(), rows.map(|row| row * ROW));
        assert!(told[3..].iter().all(Option::is_some), "{told:?}");
        let mut strides = Strides::none();
        let far = [0, 1, 2, 3, 20].map(|row| strides.note(7, row * ROW, false));
        assert!(far[3].is_some() && far[4].is_none(), "too far: {far:?}");
    }

    /// The faults of a thread that reads pieces of so many bytes, so many at the same time.
    fn block(rows: u64, length: u64, together: u64) -> Vec<u64> {
        let mut faults = Vec::new();
        for first in (0..rows).step_by(together as usize) {
            let mut into = 0;
            while into < length {
                for row in first..rows.min(first + together) {
                    let place = 5000 + row * ROW + into;
                    if !faults.iter().any(|fault| fault / PAGE == place / PAGE) {
                        faults.push(place);
                    }
                }
                into += 16;
            }
        }
        faults
    }

    #[test]
    fn a_piece_that_goes_on_to_further_pages_is_read_to_its_end() {
        for (length, together) in [(3072, 1), (3072, 8), (9000, 1), (9000, 8)] {
            let faults = block(100, length, together);
            let mut strides = Strides::none();
            let (mut foreseen, mut met) = (std::collections::BTreeSet::new(), 0);
            for &fault in &faults {
                met += usize::from(foreseen.contains(&((fault / PAGE) as u32)));
                foreseen.extend(strides.note(7, fault, false).into_iter().flat_map(Pieces::pages));
            }
            let case = format!("{length} bytes, {together} together: {met} of {}", faults.len());
            assert!(met * 10 >= faults.len() * 9, "{case}");
            let is_wanted = |page: u32| faults.iter().any(|fault| fault / PAGE == page.into());
            let end = (faults[faults.len() - 1] / PAGE) as u32;
            let in_vain = foreseen.range(..end).filter(|&&page| !is_wanted(page)).count();
            assert!(in_vain * 10 < faults.len(), "{case}, {in_vain} in vain");
        }
    }

    /// The first pages of the pieces are in place.
    #[test]
    fn a_known_step_is_found_again_where_only_second_pages_are_missing() {
        let mut strides = Strides::none();
        let second = (0..300).map(|row| (1 << 30) + row * ROW).filter(|begin| begin % PAGE + 3072 > PAGE);
        let faults: Vec<u64> = second.map(|begin| (begin / PAGE + 1) * PAGE).collect();
        let met = |strides: &mut Strides| {
            let (mut foreseen, mut met) = (std::collections::BTreeSet::new(), 0);
            for &fault in &faults {
                met += usize::from(foreseen.contains(&((fault / PAGE) as u32)));
                foreseen.extend(strides.note(7, fault, false).into_iter().flat_map(Pieces::pages));
            }
            met * 100 / faults.len()
        };
        let unknown = met(&mut strides);
        told(&mut strides, (0..10).map(|row| 1000 + row * ROW));
        let known = met(&mut strides);
        assert!(known > 90 && unknown < 50, "{known} %, {unknown} % without");
    }

    #[test]
    fn how_long_pieces_are_is_forgotten_by_and_by() {
        let mut strides = Strides::none();
        told(&mut strides, block(20, 9000, 1));
        let told = told(&mut strides, (20..60).map(|row| 5000 + row * ROW));
        assert!(told[0].unwrap().length > 4096 && told[39].unwrap().length == 1, "{told:?}");
    }

    #[test]
    fn walks_and_faults_at_random_are_none() {
        let mut rng = Rng::new(3);
        let mut strides = Strides::none();
        let up = (0..2000).map(|page| page * PAGE + page * 24 % 100);
        let down = (0..2000).rev().map(|page| page * PAGE + 4000);
        let two = (0..2000).flat_map(|page| [page * PAGE, (1 << 30) + page * PAGE]);
        let anywhere = (0..100_000).map(|_| rng.below(1 << 29));
        for places in [up.collect(), down.collect(), two.collect(), anywhere.collect::<Vec<u64>>()] {
            assert_eq!(told(&mut strides, places).iter().flatten().count(), 0);
        }
    }

    #[test]
    fn a_stride_goes_on_between_faults_at_random_and_ends_when_there_are_no_others() {
        let mut rng = Rng::new(11);
        for between in [1, 4, 12] {
            let mut strides = Strides::none();
            told(&mut strides, (0..4).map(|row| row * ROW));
            for row in 4..300 {
                assert!(strides.note(7, row * ROW, false).is_some(), "{between} between, row {row}");
                told(&mut strides, (0..between).map(|_| (1 << 32) + rng.below(1 << 32)));
            }
        }
        let mut by_chance = 0;
        for _ in 0..50 {
            let mut strides = Strides::none();
            let eight = block(100, 9000, 1).into_iter();
            told(&mut strides, eight.flat_map(|place| (0..8).map(move |stride| place + stride * (9 << 20))));
            let anywhere = (0..2000).map(|_| rng.below(72 << 20));
            by_chance += told(&mut strides, anywhere).iter().flatten().count();
        }
        assert!(by_chance < 50, "{by_chance} of 100,000");
    }

    #[test]
    fn whatever_comes_is_put_up_with() {
        let mut rng = Rng::new(9);
        let last = u64::from(u32::MAX) * PAGE;
        let mut strides = Strides::none();
        let (mut place, mut step) = (0_u64, 1);
        for _ in 0..300_000 {
            match rng.below(20) {
                0 => place = [0, last, rng.below(last), rng.below(1 << 20)][rng.below(4) as usize],
                1 => {
                    let size = 1_u64 << rng.below(44);
                    step = rng.below(size) as i64 - (size / 2) as i64;
                }
                2 => place = place / PAGE * PAGE,
                _ => place = place.saturating_add_signed(step).min(last),
            }
            let ahead = strides.note(rng.below(2) as u32, place, rng.below(50) == 0);
            ahead.into_iter().flat_map(Pieces::pages).take(100).for_each(drop);
        }
    }

    #[test]
    fn a_piece_without_an_end_is_a_walk() {
        let mut strides = Strides::none();
        let rows = (0..10).map(|row| row * 1_000_000);
        assert!(told(&mut strides, rows).last().unwrap().is_some());
        let told = told(&mut strides, (1..100).map(|page| 9_000_000 + page * PAGE));
        assert!(told[0].is_some() && told[16..].iter().all(Option::is_none), "{told:?}");
    }

    #[test]
    fn where_what_is_read_ahead_is_not_used_more_equal_steps_are_wanted() {
        let mut strides = Strides::none();
        let told: Vec<_> = (0..20).map(|row| strides.note(7, row * ROW, true).is_some()).collect();
        assert_eq!(told.iter().position(|&told| told), Some(LONG_PROOF as usize + 1));
    }

    #[test]
    fn threads_are_not_mixed_up() {
        let mut strides = Strides::none();
        let thread = |row: u64| (row % 2) as u32 * THREADS as u32;
        let told: Vec<_> = (0..20).map(|row| strides.note(thread(row), row * ROW, false)).collect();
        assert!(told.iter().flatten().count() > 10 && told.iter().flatten().all(|told| told.step == 72_000));
    }
}
