//! In which order pages were wanted. Who goes along lists, through an index or in a shuffled order wants
//! pages in an order that no address tells, but often in the one of the time before.
//!
//! Wants are numbered. A thread that wants pages with rising numbers is on a trail, and will want the next
//! ones too. A page that was in place the last time has the number of the time before that: so a thread that
//! does the same again and again is on several trails at once.
//!
//! That takes memory for each page. Where hardly any want is on a trail it is given back, and looked again
//! after a while.

/// Threads that are told apart, and trails of each that are remembered.
const THREADS: usize = 64;
const TRAILS: usize = 8;
/// A page so many numbers from the one that is expected is on the trail: others are in place, or other
/// threads wanted theirs meanwhile.
const SLACK: u32 = 24;
/// Pages on a trail that make it believed: where what is read ahead is used, and where it is not.
const PROOF: u8 = 3;
const LONG_PROOF: u8 = 12;
/// Pages on a trail with more wants between them are there by chance.
const APART: u32 = 32;
/// Of the wants that may be on a trail, as their page is known, one of so many is to be on one that is
/// believed. Looked at after this share of the wants that are remembered, and then after more and more of
/// them, up to so many times as many: who does the same again and again has to come round.
const BELIEVED_ONE_OF: u64 = 64;
const FIRST_LOOK: u64 = 8;
const LATER_LOOKS: u64 = 2;
/// Else history rests for so many times as many wants as it took.
const REST: u64 = 4;
/// What was wanted so few wants ago leads nowhere: memory that is short of room comes and goes.
const RECENT: u32 = if cfg!(test) { 2 } else { 1024 };

/// The way of a thread through the history.
#[derive(Debug, Clone, Copy, Default)]
struct Trail {
    thread: u32,
    /// The number that is expected.
    next: u32,
    /// Pages on it so far.
    proof: u8,
    /// When it was met last, by the numbers of wants.
    at: u32,
}

impl Trail {
    fn has(&self, thread: u32, number: u32) -> bool {
        self.thread == thread && self.at != 0 && self.ahead(number).unsigned_abs() <= SLACK
    }

    /// How far a number is ahead of the one that is expected.
    fn ahead(&self, number: u32) -> i32 {
        number.wrapping_sub(self.next).cast_signed()
    }

    /// What it is worth to remember it: one that is followed more than others, of these the latest most.
    fn worth(&self, now: u32) -> (bool, bool, u32) {
        let age = now.wrapping_sub(self.at);
        (self.at != 0, self.proof >= PROOF && age <= RECENT, u32::MAX - age)
    }
}

/// A trail that is worth following.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Followed {
    /// The number that was expected, and the one behind the page that is wanted.
    pub(super) expected: u32,
    pub(super) next: u32,
    /// Pages on it so far.
    pub(super) proof: u8,
    place: (usize, usize),
}

/// The last wants of all threads, and the trails that these follow.
#[derive(Debug)]
pub(super) struct History {
    /// Pages plus one, a ring. Empty while history rests, as is the next.
    order: Vec<u32>,
    /// The number of each page's last want.
    last: Vec<u32>,
    /// How many pages there are.
    pages: u32,
    /// The number of the next.
    next: u32,
    trails: Box<[[Trail; TRAILS]; THREADS]>,
    /// Wants since it was looked whether this is worth while, those of a known page, and those on a trail
    /// that was believed.
    wants: u64,
    known: u64,
    believed: u64,
    /// Wants of known pages after which that is looked at.
    look_after: u64,
    /// Wants until history is kept again.
    rest: u64,
    /// Pages read ahead on trails and given up, less those that were used.
    pub(super) in_vain: i32,
}

impl History {
    /// Of so many pages, none of which was wanted yet. 8 to 12 bytes a page, not touched before they are
    /// needed.
    pub(super) fn new(pages: u32) -> Self {
        let mut history = Self {
            order: Vec::new(),
            last: Vec::new(),
            pages,
            next: 1,
            trails: Box::new([[Trail::default(); TRAILS]; THREADS]),
            wants: 0,
            known: 0,
            believed: 0,
            look_after: 0,
            rest: 0,
            in_vain: 0,
        };
        history.begin();
        history.look_after = history.remembered().div_ceil(FIRST_LOOK);
        history
    }

    /// Nothing is known yet, or not any more.
    fn begin(&mut self) {
        self.order = vec![0; self.remembered() as usize];
        self.last = vec![0; self.pages as usize];
    }

    /// So many wants, all of them once all pages were wanted.
    fn remembered(&self) -> u64 {
        u64::from(self.pages.max(1)).next_power_of_two()
    }

    /// Makes room for pages below `pages`. Where there was none, what was known is forgotten: programs grow
    /// first.
    pub(super) fn grow(&mut self, pages: u32) {
        if pages > self.pages {
            *self = Self::new(pages);
        }
    }

    /// A thread wants a page. The trail that it is believed to be on, if any. `careful`: what was read ahead
    /// on trails is hardly used.
    pub(super) fn follow(&mut self, thread: u32, page: u32, careful: bool) -> Option<Followed> {
        if self.rest > 0 {
            self.rest -= 1;
            if self.rest == 0 {
                self.begin();
            }
            return None;
        }
        let followed = self.find_trail(thread, page, careful);
        self.wants += 1;
        self.believed += u64::from(followed.is_some());
        if self.known >= self.look_after {
            self.look_whether_worth_while();
        }
        followed.filter(|_| self.rest == 0)
    }

    fn look_whether_worth_while(&mut self) {
        if self.believed * BELIEVED_ONE_OF < self.known {
            (self.order, self.last) = (Vec::new(), Vec::new());
            self.rest = self.wants * REST;
        }
        self.look_after = (self.look_after * 2).min(LATER_LOOKS * self.remembered());
        (self.wants, self.known, self.believed) = (0, 0, 0);
    }

    /// A page is wanted.
    pub(super) fn note(&mut self, page: u32) {
        let slot = self.slot(self.next);
        self.order[slot] = page + 1;
        self.last[page as usize] = self.next;
        self.next = self.next.wrapping_add(1);
    }

    fn find_trail(&mut self, thread: u32, page: u32, careful: bool) -> Option<Followed> {
        let number = self.last[page as usize];
        let leads_on = number != 0 && self.is_known(number) && self.next.wrapping_sub(number) > RECENT;
        self.note(page);
        if !leads_on {
            return None;
        }
        self.known += 1;
        let (set, now) = (thread as usize % THREADS, self.next);
        let trails = &mut self.trails[set];
        let known = (0..TRAILS).filter(|&index| trails[index].has(thread, number));
        let Some(index) = known.max_by_key(|&index| trails[index].proof) else {
            let least = trails.iter_mut().min_by_key(|trail| trail.worth(now));
            let begun = Trail { thread, next: number.wrapping_add(1), proof: 0, at: now };
            least.into_iter().for_each(|trail| *trail = begun);
            return None;
        };
        let trail = &mut trails[index];
        let expected = trail.next;
        if trail.ahead(number) >= 0 {
            trail.next = number.wrapping_add(1);
        }
        let before = if now.wrapping_sub(trail.at) > APART { 0 } else { trail.proof };
        (trail.proof, trail.at) = (before.saturating_add(1), now);
        let is_proven = trail.proof >= if careful { LONG_PROOF } else { PROOF };
        is_proven.then_some(Followed { expected, next: trail.next, proof: trail.proof, place: (set, index) })
    }

    /// What is before `next` is in place: the trail's next page has that number.
    pub(super) fn expect(&mut self, followed: &Followed, next: u32) {
        let (set, index) = followed.place;
        self.trails[set][index].next = next;
    }

    /// What was wanted then; none if that is too long ago, or still to come.
    pub(super) fn page(&self, number: u32) -> Option<u32> {
        if self.is_known(number) { self.order[self.slot(number)].checked_sub(1) } else { None }
    }

    fn is_known(&self, number: u32) -> bool {
        let age = self.next.wrapping_sub(number);
        age > 0 && age as usize <= self.order.len()
    }

    fn slot(&self, number: u32) -> usize {
        number as usize & (self.order.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overdrive_base::rng::Rng;

    const PAGES: u32 = 1000;

    /// All pages once, at random.
    fn order(seed: u64) -> Vec<u32> {
        let mut rng = Rng::new(seed);
        let mut pages: Vec<u32> = (0..PAGES).collect();
        (1..pages.len()).rev().for_each(|last| pages.swap(last, rng.below(last as u64 + 1) as usize));
        pages
    }

    /// The page that a thread is told to want next, want by want.
    fn told(history: &mut History, thread: u32, pages: &[u32], careful: bool) -> Vec<Option<u32>> {
        let mut follow = |&page| {
            let followed = history.follow(thread, page, careful)?;
            history.page(followed.next)
        };
        pages.iter().map(&mut follow).collect()
    }

    #[test]
    fn the_order_of_before_is_believed_at_the_fourth_page_and_with_care_at_the_thirteenth() {
        for (careful, proof) in [(false, PROOF), (true, LONG_PROOF)] {
            let (mut history, pages) = (History::new(PAGES), order(1));
            assert_eq!(told(&mut history, 7, &pages, careful), vec![None; PAGES as usize]);
            let again = told(&mut history, 7, &pages[..500], careful);
            let (unproven, proven) = again.split_at(proof.into());
            assert!(unproven.iter().all(Option::is_none), "{unproven:?}");
            let next = pages[1..].iter().copied().map(Some);
            assert!(next.skip(proof.into()).zip(proven).all(|(next, &told)| told == next), "{proven:?}");
        }
    }

    #[test]
    fn some_may_be_missing_and_come_earlier_or_later() {
        let (mut history, pages) = (History::new(PAGES), order(2));
        told(&mut history, 7, &pages, false);
        let mut others: Vec<u32> = pages.iter().copied().filter(|page| page % 3 > 0).collect();
        others.chunks_mut(4).for_each(<[u32]>::reverse);
        let again = told(&mut history, 7, &others, false);
        let believed = again.iter().flatten().count();
        assert!(believed > others.len() * 9 / 10, "{believed} of {}", others.len());
    }

    #[test]
    fn threads_have_trails_of_their_own_and_several_each() {
        let (mut history, pages) = (History::new(4 * PAGES), order(3));
        let others = |seed| order(seed).into_iter().map(|page| PAGES + page).collect::<Vec<_>>();
        told(&mut history, 7, &pages, false);
        told(&mut history, 8, &others(4), false);
        // From four places in turn, as who merges lists does; the other thread in another order than before.
        let part = pages.len() / 4;
        let mut believed = [0; 2];
        for (index, &other) in others(5).iter().take(part).enumerate() {
            for from in 0..4 {
                believed[0] += usize::from(history.follow(7, pages[from * part + index], false).is_some());
            }
            believed[1] += usize::from(history.follow(8, other, false).is_some());
        }
        assert!(believed[0] > part * 4 * 9 / 10 && believed[1] < part / 4, "{believed:?}");
    }

    #[test]
    fn no_order_leads_nowhere_nor_does_what_was_wanted_just_now() {
        let (mut history, mut rng) = (History::new(100_000), Rng::new(5));
        let pages: Vec<u32> = (0..400_000).map(|_| rng.below(100_000) as u32).collect();
        let believed = told(&mut history, 7, &pages, false).into_iter().flatten().count();
        assert!(believed < pages.len() / 1000, "{believed} of {}", pages.len());
        let comes_and_goes: Vec<u32> = (0..1000).map(|want| want % RECENT).collect();
        assert_eq!(told(&mut History::new(PAGES), 7, &comes_and_goes, false), vec![None; 1000]);
    }

    #[test]
    fn what_is_too_long_ago_or_was_before_more_pages_came_is_not_known() {
        let (mut history, pages) = (History::new(PAGES), order(6));
        told(&mut history, 7, &pages, false);
        (0..history.order.len() as u32 * 2).for_each(|want| history.note(want % 2));
        assert!(told(&mut history, 7, &pages, false).iter().all(Option::is_none));
        assert!(told(&mut history, 7, &pages, false).iter().flatten().count() > 900);
        history.grow(2 * PAGES);
        assert!(told(&mut history, 7, &pages, false).iter().all(Option::is_none));
        assert_eq!((history.page(history.next), history.page(u32::MAX)), (None, None));
        history.note(2 * PAGES - 1);
        assert_eq!(history.page(history.next - 1), Some(2 * PAGES - 1));
    }

    #[test]
    fn without_trails_it_rests_and_looks_again() {
        const MANY: u32 = 20 * PAGES;
        let (mut history, mut rng) = (History::new(MANY), Rng::new(8));
        let mut at_random = |history: &mut History| history.follow(7, rng.below(MANY.into()) as u32, false);
        let mut awake = Vec::new();
        for _ in 0..6 {
            let wants = (1..).find(|_| at_random(&mut history).is_none() && history.rest > 0).unwrap();
            assert!(history.order.is_empty() && history.last.is_empty());
            assert_eq!((history.page(history.next), history.page(history.next - 1)), (None, None));
            assert_eq!(history.rest, wants * REST);
            (0..wants * REST).for_each(|_| assert_eq!(at_random(&mut history), None));
            assert!(history.rest == 0 && !history.order.is_empty());
            awake.push(wants);
        }
        assert!(awake[0] < u64::from(MANY) && awake[..5].is_sorted(), "{awake:?}");
        assert!(awake[5] < 4 * history.remembered(), "{awake:?}");
        let pages = order(9);
        assert!(told(&mut history, 7, &pages, false).iter().flatten().count() < 10);
        for _ in 0..4 * history.remembered() / u64::from(PAGES) {
            assert!(told(&mut history, 7, &pages, false).iter().flatten().count() > 900);
        }
    }

    #[test]
    fn numbers_may_wrap() {
        let (mut history, pages) = (History::new(PAGES), order(7));
        history.next = u32::MAX - PAGES - 50;
        told(&mut history, 7, &pages, false);
        let again = told(&mut history, 7, &pages, false);
        assert!(again.iter().flatten().count() > 900);
    }
}
