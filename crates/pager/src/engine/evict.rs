//! Making room before it is needed: blocks out of the way into staging, frames back to the kernel.

use super::agent::Errand;
use super::changes::Followed;
use super::clean::GROUPS_FOR_CLEANING;
use super::fault::ZEROES;
use super::{Engine, RELEASE_GROUPS, TICK};
use crate::platform::Instant;
use crate::space::{BLOCK_PAGES, pages_where, runs_of};
use crate::stats::Stat;
use crate::table::{State, mark_of};
use overdrive_sys::Errno;
use overdrive_sys::uffd::PAGE;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

/// Pages that are moved at a time. For each run of them the other processors are interrupted, and who faults
/// meanwhile waits for all.
const PIECE_PAGES: u32 = if cfg!(test) { 1 } else { 8 };
/// So many pieces are moved in one go while room is short. The threads that run soon meet pages that are
/// away, and once all of them wait, no processor has to be interrupted for the runs that are yet to go.
pub(super) const PIECES_IN_ONE_GO: usize = if cfg!(test) { 2 } else { 8 };
/// What was moved before is compressed in one go for at most so long: Zstandard takes its time.
const COMPRESSED_FOR: Duration = Duration::from_micros(150);
/// Pages of a block that refuse to move before the rest of it is left for later.
const STUCK_MAX: u32 = 8;
/// What was put in place is left there this long: the thread that waits for it needs a moment to wake, and
/// where all else is pinned or shared with a child, its page would go again before it is seen.
const FRESH: Duration = Duration::from_micros(500);
/// So many blocks are remembered for that.
pub(super) const FRESH_BLOCKS: usize = 16;
/// Unchanged pages in a row on the store that are fewer are written again beside changed ones.
const SHORT_ROW: usize = 4;
/// So many blocks are asked for before one that was is tried again.
const ASKED_LATELY: usize = 4;
/// Blocks in a row of which nothing moved before eviction pauses.
const UNMOVABLE_IN_A_ROW: u32 = 32;

/// What stood in the way of eviction lately.
#[derive(Debug, Default)]
pub(super) struct Unmovable {
    /// Blocks of which nothing moved.
    pub(super) in_a_row: u32,
    /// When it is tried again, after too many of these.
    pub(super) again: Option<Instant>,
    /// Blocks of which nothing moved when it was asked for pages that a child shared.
    pub(super) asked_for: BTreeSet<u32>,
    /// The last of these.
    pub(super) asked_lately: VecDeque<u32>,
    /// A page was to be put into a frame in which another stands.
    pub(super) frames_taken: bool,
    /// Memory whose frames are what it needs, so that it is something else that keeps it in place, and when
    /// that was found.
    pub(super) alike: Option<(Range<u64>, Instant)>,
}

/// A block on its way out, piece by piece.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaving {
    block: u32,
    /// The first of its frames.
    group: u32,
    /// The first page that was not looked at.
    next: u32,
    /// Pages that stay as they are in use, hot or take no memory, a bit each.
    keep: u64,
    /// The last piece did not come whole, as an event waits to be read first.
    pub(super) waits: bool,
    /// Pages turned out not to be there.
    were_gone: bool,
    came: Came,
}

impl Leaving {
    /// Nothing of it has moved yet.
    pub(super) fn begins(&self) -> bool {
        self.came.pages == 0
    }
}

/// Pages of a block that came into frames.
#[derive(Debug, Clone, Copy, Default)]
struct Came {
    /// Which, a bit each.
    pages: u64,
    /// How many of them are on the store as they are.
    unchanged: u32,
    /// Others are or were shared with a child, and were asked for.
    asked: bool,
}

/// What has to be done with a page in a frame before the frame can be given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Nothing,
    Compress,
    Write,
}

impl Engine {
    /// A bounded piece of the work that keeps memory free; several while room is short. True when there is
    /// more to do at once.
    pub(super) fn make_room(&mut self, is_short: bool) -> Result<bool, Errno> {
        if std::mem::take(&mut self.unmovable.frames_taken) {
            self.frames.clear_empty(&self.userfault)?;
            self.pool.unlock();
        }
        let (started, mut more, mut tried) = (Instant::now(), false, false);
        let pieces = if is_short { PIECES_IN_ONE_GO } else { 1 };
        self.pool.set_limit(self.tier.share(&self.pool, &self.limits));
        if self.held() + self.kept_free() > self.limits.total {
            tried = true;
            // Interrupts nobody, so it comes first: meanwhile more of the threads come to wait.
            let goes_on = |_: &usize| started.elapsed() < COMPRESSED_FOR && self.compress_some(is_short);
            more |= (0..pieces).take_while(goes_on).count() > 0;
            if !self.others_come_first(is_short) {
                more |= self.release()?;
            }
        }
        let (before, mut some) = (self.queues.resident(), false);
        for _ in 0..pieces {
            if self.others_come_first(is_short) || !self.has_to_evict() {
                break;
            }
            tried = true;
            some = self.evict_some(is_short)?;
            if !some || self.leaving.is_some_and(|leaving| leaving.waits) {
                break;
            }
        }
        // A piece that was looked at before its block turned out to stay is no progress.
        more |= some || self.queues.resident() < before;
        self.tier.note_room(started);
        if self.others_come_first(is_short) {
            return Ok(true);
        }
        let moved = self.move_together();
        // The group taken last stays so until it is full.
        more |= moved || self.leaving.is_none() && self.spill();
        self.start_writes()?;
        more |= self.takes_slots_back();
        // In the middle of a block of which nothing moved yet, neither is known.
        let undecided = self.leaving.is_some_and(|leaving| leaving.begins());
        if !undecided {
            self.stuck = tried && !more && self.writes_nothing() && !self.waits_for_segment();
        }
        Ok(more)
    }

    /// Whether so little is free that room has to be made while threads run, also for reads of several pages:
    /// beside a thread that walks on there is always something else to do.
    pub(super) fn is_short(&self) -> bool {
        self.is_short_with(0)
    }

    /// The same with so many pages more.
    pub(super) fn is_short_with(&self, pages: u64) -> bool {
        self.held() + pages + self.free_landing.wanted() + self.limits.reserve / 2 > self.limits.total
    }

    /// Whether a thread may be served first, as something was read and room is not short.
    pub(super) fn others_come_first(&mut self, is_short: bool) -> bool {
        !is_short && self.io.has_done()
    }

    /// What is kept free, also for reads of several pages.
    pub(super) fn kept_free(&self) -> u64 {
        self.limits.reserve + self.free_landing.wanted()
    }

    /// Whether more is in place than leaves room, or a block is on its way out.
    fn has_to_evict(&self) -> bool {
        let hard = self.queues.resident() + self.pool.pages() + self.free_landing.held();
        hard + self.limits.soft + self.kept_free() > self.limits.total || self.leaving.is_some()
    }

    /// Whether waiting for memory makes sense: something can still be evicted, written or given back.
    pub(super) fn can_make_room(&self) -> bool {
        (!self.stuck || self.paced) && !self.is_store_full()
    }

    /// Gives the oldest frames back, those whose pages are all safe.
    fn release(&mut self) -> Result<bool, Errno> {
        let frames = self.staging.releasable(RELEASE_GROUPS);
        if frames.is_empty() {
            return Ok(false);
        }
        for frame in frames.clone() {
            if let Some(page) = self.staging.page(frame)
                && self.table.state(page) == State::Staged
                && self.table.place(page) == Some(frame)
            {
                self.table.set(page, State::Stored, None);
            }
        }
        self.frames.give_back(frames.clone(), &self.userfault)?;
        self.staging.released(&frames);
        Ok(true)
    }

    /// Takes some pages of one block away. True when there is more to do or that made progress.
    ///
    /// # Errors
    /// Where the pages are cannot be found out: going on would mean zeroes where their content was.
    pub(super) fn evict_some(&mut self, is_short: bool) -> Result<bool, Errno> {
        let Some(mut leaving) = self.leaving.take().or_else(|| self.next_to_leave()) else {
            return Ok(false);
        };
        // Pages that were put in place or given up since the last piece keep the rest where it is.
        let stays = self.is_being_given_up(leaving.block) || self.is_fresh(leaving.block);
        let end = (leaving.block + 1) * BLOCK_PAGES;
        let rest = if stays { end..end } else { leaving.next..end };
        let Some((address, mut pages)) = self.space.next_stretch(rest, BLOCK_PAGES) else {
            return Ok(self.has_left(&leaving));
        };
        pages.end = self.end_of_piece(pages.clone(), is_short);
        leaving.next = pages.end;
        let first = leaving.group + pages.start % BLOCK_PAGES;
        let keep = leaving.keep >> (pages.start % BLOCK_PAGES);
        let before = self.queues.resident();
        leaving.waits = !self.move_out(address, first, pages.clone(), keep);
        leaving.were_gone |= self.queues.resident() < before;
        // What did not come as an event waits is not known to be shared.
        let may_ask = !leaving.waits;
        let came = self.sort_out(address, first, pages, keep, may_ask)?;
        leaving.came.pages |= came.pages;
        leaving.came.unchanged += came.unchanged;
        leaving.came.asked |= came.asked;
        self.leaving = Some(leaving);
        Ok(true)
    }

    /// Where a piece of these pages ends: after so many that are in place while room is short, else after as
    /// many of them all, which is sooner.
    fn end_of_piece(&self, pages: Range<u32>, is_short: bool) -> u32 {
        let counts = |page: &u32| !is_short || self.table.state(*page) == State::Resident;
        let last = pages.clone().filter(counts).nth(PIECE_PAGES as usize - 1);
        last.map_or(pages.end, |last| last + 1)
    }

    /// The block that goes next, with room for it in staging.
    fn next_to_leave(&mut self) -> Option<Leaving> {
        if self.unmovable.again.is_some_and(|again| Instant::now() < again) {
            return None;
        }
        let block = self.queues.victim()?;
        if self.is_being_given_up(block) || self.is_fresh(block) {
            self.queues.again_later(block);
            self.note_unmovable(false);
            return None;
        }
        let group = self.take_group()?;
        self.staging.hold(group);
        let mut keep = self.pages_in_use(block);
        if keep == 0 {
            // Not both: of some blocks nothing would go.
            keep = self.queues.stay(block);
        }
        // Zeroes take no memory.
        keep |= self.table.zeroes_in(block);
        let (next, came) = (block * BLOCK_PAGES, Came::default());
        Some(Leaving { block, group, next, keep, waits: false, were_gone: false, came })
    }

    /// Frames for pages that leave, but for the last ones, by which alone room can be gained.
    pub(super) fn take_group(&mut self) -> Option<u32> {
        if self.staging.free() > GROUPS_FOR_CLEANING { self.staging.take() } else { None }
    }

    /// A block is away, as far as it could be taken. True when that made progress.
    fn has_left(&mut self, leaving: &Leaving) -> bool {
        let Came { pages, unchanged, asked } = leaving.came;
        let moved = pages.count_ones();
        self.staging.settle(leaving.group);
        self.staging.put_back_if_empty(leaving.group);
        // Some may have been wanted back at once.
        let first = leaving.block * BLOCK_PAGES;
        let went = pages_where(BLOCK_PAGES, |bit| {
            pages >> bit & 1 == 1 && self.table.state(first + bit) != State::Resident
        });
        self.walked.clear(leaving.block);
        self.queues.evicted(leaving.block, went, unchanged.min(went.count_ones()), self.limits.total);
        self.stats.add(Stat::Evicted, u64::from(moved));
        self.tier.note_evicted(moved);
        let some_left = moved > 0 || leaving.were_gone;
        if some_left {
            self.unmovable.asked_for.remove(&leaving.block);
        } else if asked && self.unmovable.asked_for.insert(leaving.block) {
            self.comes_again_soon(leaving.block);
        } else {
            self.queues.again_later(leaving.block);
        }
        self.note_unmovable(some_left);
        some_left
    }

    /// The pages of a block can go as soon as they are the program's own, which takes a moment: it comes
    /// again after some others. What stays then is held by others.
    fn comes_again_soon(&mut self, block: u32) {
        self.queues.judge(block);
        self.unmovable.asked_lately.push_back(block);
        if self.unmovable.asked_lately.len() > ASKED_LATELY
            && let Some(block) = self.unmovable.asked_lately.pop_front()
        {
            self.queues.goes_next(block);
        }
    }

    /// Pages of this block were put in place because somebody wants them.
    pub(super) fn note_fresh(&mut self, block: u32) {
        if self.fresh.back().is_none_or(|&(other, _)| other != block) {
            if self.fresh.len() == FRESH_BLOCKS {
                self.fresh.pop_front();
            }
            self.fresh.push_back((block, Instant::now()));
        } else if let Some((_, since)) = self.fresh.back_mut() {
            *since = Instant::now();
        }
    }

    pub(super) fn is_fresh(&self, block: u32) -> bool {
        self.fresh.iter().any(|&(other, since)| other == block && since.elapsed() < FRESH)
    }

    fn note_unmovable(&mut self, some_left: bool) {
        self.unmovable.in_a_row = if some_left { 0 } else { self.unmovable.in_a_row + 1 };
        self.unmovable.again = (self.unmovable.in_a_row >= UNMOVABLE_IN_A_ROW).then(|| Instant::now() + TICK);
    }

    /// Moves what is there into frames, but for what cannot be moved and for the pages to `keep`, a bit each.
    /// False when it broke off, as an event waits to be read: the block may be gone.
    fn move_out(&mut self, address: u64, frame: u32, pages: Range<u32>, keep: u64) -> bool {
        let (length, target) = (pages.len() as u64 * PAGE, self.frames.address(frame));
        let (mut done, mut stuck, mut piece, mut made_alike) = (0, 0, length, None);
        while done < length && stuck < STUCK_MAX {
            let keep = keep >> (done / PAGE);
            if keep & 1 == 1 {
                done += u64::from(keep.trailing_ones()) * PAGE;
                continue;
            }
            piece = piece.min(length - done).min(u64::from(keep.trailing_zeros()) * PAGE);
            let free = self.kept_words.free_bytes(address + done, piece);
            if free == 0 {
                self.stats.add(Stat::Pinned, 1);
                done += PAGE;
                continue;
            }
            piece = free;
            match self.userfault.move_pages(target + done, address + done, piece) {
                Ok(moved) => {
                    done += moved;
                    piece *= 2;
                }
                Err(Errno::AGAIN) => return false,
                Err(Errno::INVAL)
                    if made_alike != Some(done)
                        && self.make_frames_alike(frame + (done / PAGE) as u32, address + done) =>
                {
                    made_alike = Some(done);
                }
                // Memory of two kinds, one of which may be taken: the border is found by halving.
                Err(Errno::INVAL) if piece > PAGE => piece = (piece / PAGE / 2) * PAGE,
                // Locked or read-only: this one stays.
                Err(Errno::INVAL) => {
                    self.stats.add(Stat::Pinned, 1);
                    done += PAGE;
                }
                // Somebody stands in the frame: looked after before the next piece.
                Err(Errno::EXIST) => {
                    self.unmovable.frames_taken = true;
                    return true;
                }
                // No page stands there but a guard (MADV_GUARD_INSTALL), which nobody told of.
                Err(Errno::FAULT) if self.is_all_told() => {
                    let page = pages.start + (done / PAGE) as u32;
                    if self.table.state(page) == State::Resident {
                        self.forget(page);
                    }
                    done += PAGE;
                }
                // Pinned, or shared with a child: this one stays.
                Err(_) => {
                    self.stats.add(Stat::Pinned, 1);
                    stuck += 1;
                    done += PAGE;
                }
            }
        }
        true
    }

    /// Pages that may be executed can only go to frames of which that is true as well, and others only to
    /// others. Makes those from `frame` on, as far as its group goes, what the memory at `address` needs.
    /// False when they were that before: something else is in the way.
    fn make_frames_alike(&mut self, frame: u32, address: u64) -> bool {
        let known = self.unmovable.alike.as_ref();
        if known.is_some_and(|(range, at)| range.contains(&address) && at.elapsed() < TICK) {
            return false;
        }
        let mut found = None;
        // Unreadable maps: as if nothing was found.
        let _ = self.mappings.for_each_anonymous(address..address + PAGE, |mapping| found = Some(mapping));
        let Some(mapping) = found else { return false };
        let pages = (mapping.range.end - address) / PAGE;
        let end = frame + pages.min(u64::from(BLOCK_PAGES - frame % BLOCK_PAGES)) as u32;
        if (frame..end).all(|frame| self.frames.is_executable(frame) == mapping.executable) {
            self.unmovable.alike = Some((mapping.range, Instant::now()));
            return false;
        }
        self.frames.set_executable(frame..end, mapping.executable).is_ok()
    }

    /// Finds out which pages came, and what has to be done with each.
    fn sort_out(
        &mut self,
        address: u64,
        first_frame: u32,
        pages: Range<u32>,
        keep: u64,
        may_ask: bool,
    ) -> Result<Came, Errno> {
        let count = pages.len();
        let arrived = self.page_map.present(self.frames.address(first_frame), count)?;
        // Of the pages believed to be in place, those that did not come.
        let missing = pages_where(count as u32, |index| {
            arrived >> index & 1 == 0 && self.table.state(pages.start + index) == State::Resident
        });
        // That costs as much as two pages take otherwise, and mostly all came.
        let stayed = if missing == 0 { 0 } else { self.page_map.present(address, count)? };
        let (mut all, mut shared, mut came) = (Came::default(), 0, Vec::with_capacity(count));
        let first = pages.start;
        // Asked of the kernel when a page is missing, which is rare.
        let mut settled = None;
        for (index, page) in pages.enumerate() {
            let frame = first_frame + index as u32;
            if arrived >> index & 1 == 1 && self.has_come(frame, page, address + index as u64 * PAGE)? {
                let resident = self.table.state(page) == State::Resident;
                // What stood in place is what counts, whatever was believed of it (MADV_FREE keeps pages that
                // were given up, and the program may have written to them again).
                let (next, unchanged) = self.stage(page, frame);
                came.push((page, next));
                all.pages |= 1 << (page % BLOCK_PAGES);
                all.unchanged += u32::from(unchanged);
                if resident {
                    self.queues.gone(page / BLOCK_PAGES, 1);
                }
            } else if (missing & stayed) >> index & 1 == 1 {
                shared |= 1 << index;
            } else if missing >> index & 1 == 1 && *settled.get_or_insert_with(|| self.is_all_told()) {
                // Given up by the program without a word (MADV_FREE): zeroes.
                self.forget(page);
            }
        }
        all.asked = may_ask && self.ask_for_own(address, shared & !keep);
        if self.walked.has(first / BLOCK_PAGES) {
            self.keep_together(&mut came);
        }
        for (page, next) in came {
            self.wait_for(page, first_frame + (page - first), address + u64::from(page - first) * PAGE, next);
        }
        Ok(all)
    }

    /// A page that came into a frame waits there for what has to be done with it.
    fn wait_for(&mut self, page: u32, frame: u32, address: u64, next: Next) {
        self.staging.fill(frame, page, next != Next::Nothing);
        match next {
            Next::Nothing => {}
            Next::Compress => self.soft.push_back(frame),
            Next::Write => self.dirty.push_back(frame),
        }
        if self.must_stand(address, frame) {
            self.rescue(page, address);
        }
    }

    /// Where memory is walked through and some of its pages are changed, these are written elsewhere. Each
    /// walk would leave the others in shorter rows on the store, until each has to be read by itself. So
    /// those in short rows are written again beside their neighbours.
    fn keep_together(&mut self, came: &mut [(u32, Next)]) {
        let writes = came.iter().any(|&(_, next)| next == Next::Write);
        if !writes || self.allowance.is_some() || !self.children.is_empty() || self.has_nowhere_to_write() {
            return;
        }
        let rows = came.chunk_by_mut(|&(page, next), &(other, other_next)| {
            next == other_next && page + 1 == other && self.table.slot(page) + 1 == self.table.slot(other)
        });
        let mut scraps = Vec::new();
        for row in rows {
            let ((first, next), slot) = (row[0], self.table.slot(row[0].0));
            // Its beginning may have gone with the piece before.
            let goes_on = first > 0 && slot > 1 && self.table.slot(first - 1) == slot - 1;
            if next == Next::Nothing && slot != 0 && !goes_on && row.len() < SHORT_ROW {
                row.iter_mut().for_each(|(page, next)| {
                    *next = Next::Write;
                    scraps.push(*page);
                });
            }
        }
        self.stats.add(Stat::EvictedClean, 0u64.wrapping_sub(scraps.len() as u64));
        scraps.into_iter().for_each(|page| self.leave_slot(page));
    }

    /// Whether what stands in a frame has come from `address`, as it has but for one case: the program locked
    /// all its memory (mlockall), and the kernel put zeroes where nothing was.
    fn has_come(&mut self, frame: u32, page: u32, address: u64) -> Result<bool, Errno> {
        self.frames.note_filled(frame);
        // Of a page that is away nothing stands there that could have come.
        let is_away = !matches!(self.table.state(page), State::Resident | State::Zeroes | State::Empty);
        if self.frames.page(frame) == ZEROES[0] && (is_away || self.page_map.present(address, 1)? == 1) {
            self.frames.note_empty(frame);
            self.unmovable.frames_taken = true;
            return Ok(false);
        }
        Ok(true)
    }

    /// Pages that a child shares, or once shared, stay unmovable until they are written to, also where the
    /// fork was before they were taken over. A thread that may wait for pages sees to that. It makes copies
    /// as long as there are children, so these have to give up theirs. True when all could be asked for.
    fn ask_for_own(&mut self, address: u64, pages: u64) -> bool {
        if pages == 0 || !self.may_unshare() {
            return false;
        }
        let Some(agent) = self.agent.as_mut() else { return false };
        for (start, count) in runs_of(pages) {
            let from = address + u64::from(start) * PAGE;
            if !agent.send(&Errand::MakeOwn(from..from + u64::from(count) * PAGE)) {
                return false;
            }
            self.children.iter_mut().for_each(|child| child.look_first(from, count));
        }
        true
    }

    /// A page's content was put into a frame, where it waits to be written.
    pub(super) fn wait_in_frame(&mut self, page: u32, frame: u32) {
        self.frames.note_filled(frame);
        self.staging.fill(frame, page, true);
        self.dirty.push_back(frame);
        self.table.set(page, State::Staged, Some(frame));
    }

    /// A page came into a frame. Returns what has to be done before the frame can be given back, and
    /// whether the store has the page as it is.
    fn stage(&mut self, page: u32, frame: u32) -> (Next, bool) {
        self.leave_pool(page);
        let mark = mark_of(self.frames.page(frame), self.seed);
        if mark == self.zero_mark && self.frames.page(frame) == ZEROES[0] {
            self.stats.add(Stat::EvictedZero, 1);
            self.leave_slot(page);
            self.table.set(page, State::Empty, None);
            return (Next::Nothing, false);
        }
        self.table.set(page, State::Staged, Some(frame));
        // A write in flight may yet fail: then the frame is all there is.
        if self.table.mark(page) == mark && self.is_written(page) {
            self.stats.add(Stat::EvictedClean, 1);
            let next = if self.is_worth_compressing(page) { Next::Compress } else { Next::Nothing };
            return (next, true);
        }
        self.leave_slot(page);
        self.table.set_mark(page, mark);
        (if self.is_worth_compressing(page) { Next::Compress } else { Next::Write }, false)
    }
}
