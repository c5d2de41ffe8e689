//! In which order pages were wanted. Who goes along lists, through an index or in a shuffled order wants pages
//! in an order that no address tells, but often in the one of the time before.
//!
//! Wants are numbered. A thread that wants pages with rising numbers is on a trail, and will want the next
//! ones too. A page that was in place the last time has the number of the time before that: so a thread that
//! does the same again and again is on several trails at once.

/// Threads that are told apart, and trails of each that are remembered.
const THREADS: usize = 64;
const TRAILS: usize = 8;
/// A page so many numbers from the one that is expected is on the trail: others are in place, or other threads
/// wanted theirs meanwhile.
const SLACK: u32 = 24;
/// Pages on a trail that make it believed: where what is read ahead is used, and where it is not.
const PROOF: u8 = 2;
const LONG_PROOF: u8 = 12;
/// What was wanted so few wants ago leads nowhere: memory that is short of room comes and goes.
const RECENT: u32 = 1024;

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
}

/// A trail that is worth following.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Followed {
    /// The number that was expected, and the one behind the page that is wanted.
    pub(super) expected: u32,
    pub(super) next: u32,
    place: (usize, usize),
}

/// The last wants of all threads, and the trails that these follow.
#[derive(Debug)]
pub(super) struct History {
    /// Pages plus one, a ring.
    order: Vec<u32>,
    /// The number of each page's last want.
    last: Vec<u32>,
    /// The number of the next.
    next: u32,
    trails: Box<[[Trail; TRAILS]; THREADS]>,
}

impl History {
    /// Of so many pages, none of which was wanted yet: memory that is not touched before it is needed.
    pub(super) fn new(pages: u32) -> Self {
        let (order, last) = (vec![0; pages.max(1).next_power_of_two() as usize], vec![0; pages as usize]);
        Self { order, last, next: 1, trails: Box::new([[Trail::default(); TRAILS]; THREADS]) }
    }

    /// Makes room for pages below `pages`. Where there was none, what was known is forgotten: programs grow
    /// first.
    pub(super) fn grow(&mut self, pages: u32) {
        if pages as usize > self.last.len() {
            *self = Self::new(pages);
        }
    }

    /// A page is wanted.
    pub(super) fn note(&mut self, page: u32) {
        let slot = self.slot(self.next);
        self.order[slot] = page + 1;
        self.last[page as usize] = self.next;
        self.next = self.next.wrapping_add(1);
    }

    /// A thread wants a page. The trail that it is believed to be on, if any. `careful`: what was read ahead
    /// on trails is hardly used.
    pub(super) fn follow(&mut self, thread: u32, page: u32, careful: bool) -> Option<Followed> {
        let number = self.last[page as usize];
        let age = self.next.wrapping_sub(number);
        self.note(page);
        if number == 0 || age <= RECENT || age as usize > self.order.len() {
            return None;
        }
        let (set, now) = (thread as usize % THREADS, self.next);
        let trails = &mut self.trails[set];
        let known = (0..TRAILS).filter(|&index| trails[index].has(thread, number));
        let Some(index) = known.max_by_key(|&index| trails[index].proof) else {
            let age = |trail: &Trail| now.wrapping_sub(trail.at);
            let worth = |&index: &usize| {
                let trail = &trails[index];
                (trail.at != 0, trail.proof >= PROOF && age(trail) <= RECENT, u32::MAX - age(trail))
            };
            let index = (0..TRAILS).min_by_key(worth).unwrap_or(0);
            trails[index] = Trail { thread, next: number.wrapping_add(1), proof: 0, at: now };
            return None;
        };
        let trail = &mut trails[index];
        let expected = trail.next;
        if trail.ahead(number) >= 0 {
            trail.next = number.wrapping_add(1);
        }
        (trail.proof, trail.at) = (trail.proof.saturating_add(1), now);
        let is_proven = trail.proof >= if careful { LONG_PROOF } else { PROOF };
        is_proven.then_some(Followed { expected, next: trail.next, place: (set, index) })
    }

    /// What is before `next` is in place: the trail's next page has that number.
    pub(super) fn expect(&mut self, followed: &Followed, next: u32) {
        let (set, index) = followed.place;
        self.trails[set][index].next = next;
    }

    /// What was wanted then; none if that is too long ago, or still to come.
    pub(super) fn page(&self, number: u32) -> Option<u32> {
        let age = self.next.wrapping_sub(number);
        let is_known = age > 0 && age as usize <= self.order.len();
        self.order[self.slot(number)].checked_sub(1).filter(|_| is_known)
    }

    fn slot(&self, number: u32) -> usize {
        number as usize & (self.order.len() - 1)
    }
}
