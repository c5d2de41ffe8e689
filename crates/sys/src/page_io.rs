//! The ring of whoever serves page faults: reads into a landing area, writes from staging frames, and news of
//! a userfaultfd, all waited for at one place.
//!
//! Unlike [`crate::ring`] this is not measured but measures: the `io-uring` crate does the queues.
//! Completions name what was asked for; results are bytes or negative errnos and must be looked at.

use crate::Errno;
use crate::arena::Arena;
use crate::frames::Frames;
use crate::parts::Parts;
use crate::uffd::PAGE;
use io_uring::types::{Fd, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::fs::File;
use std::time::Duration;

/// What is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// A read into the landing area.
    Read {
        /// The slot.
        slot: u32,
        /// Bytes or a negative errno.
        result: i32,
    },
    /// A write from frames.
    Write {
        /// What the caller named it, below `writes`.
        token: u32,
        /// Bytes or a negative errno.
        result: i32,
    },
    /// A watched descriptor has messages: the number it was watched by.
    Messages(u32),
}

const KIND_READ: u64 = 1 << 32;
const KIND_WRITE: u64 = 2 << 32;
const KIND_POLL: u64 = 3 << 32;
const KIND_NONE: u64 = 4 << 32;

/// Where reads land: in pages that are there all the time, and in an area that takes memory only while it is
/// open. It is on huge pages, if the system has them: a read of many pages is one piece for the drive then.
/// Pages are numbered through both, from those that are always there on.
struct Landing {
    parts: [Arena; 2],
    /// Whether the ring knows each.
    registered: [bool; 2],
}

impl Landing {
    fn new(always: u32, area: u32) -> Result<Self, Errno> {
        let area = Arena::untouched((area as usize).max(1), PAGE as usize, true)?;
        let parts = [Arena::small(always as usize, PAGE as usize)?, area];
        for part in &parts {
            let (base, length) = part.extent();
            // SAFETY: keeps our own memory out of children, which would each get a copy: it is pinned.
            unsafe { rustix::mm::madvise(base, length, rustix::mm::Advice::LinuxDontFork)? };
        }
        Ok(Self { parts, registered: [false; 2] })
    }

    /// Tells the ring of a part, which then is pinned. It also works without: RLIMIT_MEMLOCK may be in the
    /// way.
    fn register(&mut self, ring: &IoUring, part: usize) {
        let (base, length) = self.parts[part].extent();
        let piece = libc::iovec { iov_base: base, iov_len: length };
        // SAFETY: the part lives as long as the ring, or until it is withdrawn, and is leaked when reads are
        // in flight at the end.
        let told = unsafe { ring.submitter().register_buffers_update(part as u32, &[piece], None) };
        self.registered[part] = told.is_ok();
    }

    /// The ring forgets the part.
    fn withdraw(&mut self, ring: &IoUring, part: usize) -> Result<(), Errno> {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        if self.registered[part] {
            // SAFETY: nothing is referred to.
            let told = unsafe { ring.submitter().register_buffers_update(part as u32, &[nothing], None) };
            told.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            self.registered[part] = false;
        }
        Ok(())
    }

    /// The part that a page lies in, and its number there.
    fn place(&self, page: u32) -> (usize, usize) {
        let always = self.parts[0].slots();
        (page as usize).checked_sub(always).map_or((0, page as usize), |page| (1, page))
    }
}

/// As the kernel reads it (`struct io_uring_getevents_arg`).
#[repr(C)]
struct WaitUntil {
    signals: u64,
    signals_bytes: u32,
    least: u32,
    time: *const Timespec,
}

/// The ring, its file and its landing area.
pub struct PageIo {
    ring: IoUring,
    file: File,
    /// What of the file is ours, when others use it too.
    parts: Option<Parts>,
    landing: Option<Landing>,
    /// Pages of the landing area that a read is on its way to.
    reading: Vec<bool>,
    /// For each, where in the file the last read that began with it did, and how many pages that was for.
    reads: Vec<(u64, u32)>,
    /// One list of pieces for each write, where it stays while the kernel may read it.
    pieces: Vec<Vec<libc::iovec>>,
    writing: Vec<bool>,
    /// For each write, room for a copy of what is to be written; none where frames are written as they are.
    copies: Vec<Option<Arena>>,
    /// The file was written up to here: beyond, the file system has yet to find room.
    written_to: u64,
    armed: Vec<u32>,
    enabled: bool,
    /// The kernel says in memory when completions wait to be fetched.
    flagged: bool,
    /// Where threads run that the kernel starts for what it cannot do at once.
    workers: Option<libc::cpu_set_t>,
}

// SAFETY: the pointers in `pieces` are addresses for the kernel and point into frames, not to this thread.
unsafe impl Send for PageIo {}

impl PageIo {
    /// A ring on `file` for at most `reads` reads and `writes` writes at a time, a write of at most `pieces`
    /// pieces. Reads land in so many pages that are always there, and in an area of so many more once that
    /// is open.
    ///
    /// # Errors
    /// The kernel's errno when it refuses the ring or the memory.
    pub fn new(
        file: File,
        [always, area]: [u32; 2],
        reads: u32,
        writes: u32,
        pieces: usize,
    ) -> Result<Self, Errno> {
        let entries = (reads + writes + 2).next_power_of_two();
        let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            // The thread that enables it is the one that uses it, whoever has made it.
            .setup_r_disabled()
            .build(entries);
        let flagged = ring.is_ok();
        let ring = ring.or_else(|_| IoUring::builder().setup_r_disabled().build(entries)).map_err(errno)?;
        let mut landing = Landing::new(always, area)?;
        if ring.submitter().register_buffers_sparse(landing.parts.len() as u32).is_ok() {
            landing.register(&ring, 0);
        }
        let pages = (always + area) as usize;
        Ok(Self {
            ring,
            file,
            parts: None,
            landing: Some(landing),
            reading: vec![false; pages],
            reads: vec![(0, 0); pages],
            pieces: (0..writes).map(|_| Vec::with_capacity(pieces)).collect(),
            writing: vec![false; writes as usize],
            copies: (0..writes).map(|_| None).collect(),
            written_to: 0,
            armed: Vec::new(),
            enabled: false,
            flagged,
            workers: None,
        })
    }

    /// The area takes memory from now on: reads may land there.
    ///
    /// # Panics
    /// Never while the ring is there.
    pub fn open_area(&mut self) {
        self.landing.as_mut().expect("taken only on drop").register(&self.ring, 1);
    }

    /// The area gives its memory back. To be opened again before the next read to it.
    ///
    /// # Errors
    /// The kernel's errno: it keeps its memory, and may still be used.
    ///
    /// # Panics
    /// While a read is on its way there: a defect of the caller.
    pub fn close_area(&mut self) -> Result<(), Errno> {
        let landing = self.landing.as_mut().expect("taken only on drop");
        assert!(!self.reading[landing.parts[0].slots()..].contains(&true), "a read is on its way");
        landing.withdraw(&self.ring, 1)?;
        landing.parts[1].give_back()
    }

    /// From now on the file is a device that others use as well: offsets are those of this process's stretch
    /// of it, which begins empty.
    pub fn share(&mut self, parts: Parts) {
        self.parts = Some(parts);
    }

    /// Makes the stretch longer. The offsets that it adds; none when nothing is left, or when the file is
    /// ours alone.
    pub fn lease(&mut self) -> Option<std::ops::Range<u64>> {
        self.parts.as_mut()?.lease()
    }

    fn place(&self, offset: u64) -> Result<u64, Errno> {
        self.parts.as_ref().map_or(Ok(offset), |parts| parts.place(offset).ok_or(Errno::INVAL))
    }

    /// From now on a write has a copy of its own ([`PageIo::copy_mut`]), of up to `bytes` bytes. It takes
    /// memory from the start if it is used `always`, else from its first use on.
    ///
    /// # Errors
    /// ENOMEM when the memory is not to be had.
    pub fn keep_copy(&mut self, token: u32, bytes: usize, always: bool) -> Result<(), Errno> {
        let copy = if always { Arena::small(1, bytes) } else { Arena::untouched(1, bytes, false) }?;
        let (base, length) = copy.extent();
        // SAFETY: keeps our own memory out of children, which would each get a copy: it may be pinned.
        unsafe { rustix::mm::madvise(base, length, rustix::mm::Advice::LinuxDontFork)? };
        self.copies[token as usize] = Some(copy);
        Ok(())
    }

    /// Gives the memory of a write's copy back, until it is used again.
    ///
    /// # Panics
    /// As [`PageIo::copy_mut`].
    pub fn give_copy_back(&mut self, token: u32) {
        assert!(!self.writing[token as usize], "write {token} is in flight");
        // Memory that stays is no harm.
        let _ = self.copies[token as usize].as_mut().expect("a copy is kept").give_back();
    }

    /// The copy of a write, to be filled before [`PageIo::write_copy`].
    ///
    /// # Panics
    /// While that write is in flight, or without [`PageIo::keep_copy`]: a defect of the caller.
    pub fn copy_mut(&mut self, token: u32) -> &mut [u8] {
        assert!(!self.writing[token as usize], "write {token} is in flight");
        self.copies[token as usize].as_mut().expect("a copy is kept").slot_mut(0)
    }

    /// Queues a write of the first `length` bytes of its copy at `offset` of the file.
    ///
    /// # Errors
    /// ENOSPC when the queue is full, EINVAL beyond what is leased of a shared file.
    ///
    /// # Panics
    /// When the token is in use or there is no such copy: a defect of the caller.
    pub fn write_copy(&mut self, token: u32, offset: u64, length: u32) -> Result<(), Errno> {
        let place = self.place(offset)?;
        let address = self.copy_mut(token)[..length as usize].as_ptr();
        let entry = opcode::Write::new(Fd(self.file.as_raw_fd()), address, length)
            .offset(place)
            .build()
            .user_data(KIND_WRITE | u64::from(token));
        self.writing[token as usize] = true;
        let flags = self.flags_for(offset, u64::from(length));
        self.push(&entry.flags(flags))
    }

    /// Keeps the threads that the kernel starts for what it cannot do at once (writes that allocate) to these
    /// CPUs. To be said before the first [`PageIo::submit`].
    pub fn keep_workers_to(&mut self, cpus: &[usize]) {
        // SAFETY: all-zero bytes are an empty set, and CPU_SET checks its bounds.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for &cpu in cpus {
            // SAFETY: as above.
            unsafe { libc::CPU_SET(cpu, &mut set) };
        }
        self.workers = (!cpus.is_empty()).then_some(set);
    }

    /// Asks to be told, by `number`, whenever `messages` has something to read. Asking again does nothing.
    ///
    /// # Errors
    /// ENOSPC when the queue is full.
    pub fn watch(&mut self, number: u32, messages: BorrowedFd<'_>) -> Result<(), Errno> {
        self.ask(number, messages, true)
    }

    /// The same for the next time that there is something, or at once when there is: for who looks by itself
    /// while it is awake.
    ///
    /// # Errors
    /// ENOSPC when the queue is full.
    pub fn watch_once(&mut self, number: u32, messages: BorrowedFd<'_>) -> Result<(), Errno> {
        self.ask(number, messages, false)
    }

    fn ask(&mut self, number: u32, messages: BorrowedFd<'_>, again: bool) -> Result<(), Errno> {
        if self.armed.contains(&number) {
            return Ok(());
        }
        let entry = opcode::PollAdd::new(Fd(messages.as_raw_fd()), libc::POLLIN as u32)
            .multi(again)
            .build()
            .user_data(KIND_POLL | u64::from(number));
        self.push(&entry)?;
        self.armed.push(number);
        Ok(())
    }

    /// Does not want to be told by this number any more. One more message may still come.
    ///
    /// # Errors
    /// ENOSPC when the queue is full.
    pub fn unwatch(&mut self, number: u32) -> Result<(), Errno> {
        let watched = KIND_POLL | u64::from(number);
        self.push(&opcode::PollRemove::new(watched).build().user_data(KIND_NONE))
    }

    /// Queues a read of `length` bytes, whole pages, at `offset` of the file into the landing area, from page
    /// `slot` of it on.
    ///
    /// # Errors
    /// ENOSPC when the queue is full, EINVAL beyond what is leased of a shared file.
    ///
    /// # Panics
    /// When one of these pages is being read into already, or is not there: a defect of the caller.
    pub fn read(&mut self, slot: u32, offset: u64, length: u32) -> Result<(), Errno> {
        let landing = self.landing.as_ref().expect("taken only on drop");
        let pages = length / PAGE as u32;
        let range = slot as usize..(slot + pages) as usize;
        assert!(u64::from(pages) * PAGE == u64::from(length) && !self.reading[range.clone()].contains(&true));
        let place = self.place(offset)?;
        let (part, page) = landing.place(slot);
        assert_eq!(landing.place(range.end as u32 - 1).0, part, "pages {range:?} of two parts");
        let (fd, address) = (Fd(self.file.as_raw_fd()), landing.parts[part].slot_address(page) as *mut u8);
        let entry = if landing.registered[part] {
            opcode::ReadFixed::new(fd, address, length, part as u16).offset(place).build()
        } else {
            opcode::Read::new(fd, address, length).offset(place).build()
        };
        self.push(&entry.user_data(KIND_READ | u64::from(slot)))?;
        self.reading[range].fill(true);
        self.reads[slot as usize] = (offset, pages);
        Ok(())
    }

    /// Queues a write of the pages of `frames` listed in `list`, one after the other, at `offset` of the
    /// file. The frames must keep their pages until it is over.
    ///
    /// # Errors
    /// ENOSPC when the queue is full, EINVAL beyond what is leased of a shared file.
    ///
    /// # Panics
    /// When the token is in use or a frame is empty: a defect of the caller.
    pub fn write(&mut self, token: u32, offset: u64, frames: &Frames, list: &[u32]) -> Result<(), Errno> {
        let place = self.place(offset)?;
        assert!(!std::mem::replace(&mut self.writing[token as usize], true), "write {token} is in flight");
        let pieces = &mut self.pieces[token as usize];
        pieces.clear();
        for &frame in list {
            let page = frames.page(frame);
            let address = page.as_ptr().cast_mut();
            match pieces.last_mut() {
                // SAFETY: only compares addresses; both lie in the frames' one mapping.
                Some(last) if unsafe { last.iov_base.cast::<u8>().add(last.iov_len) } == address => {
                    last.iov_len += page.len();
                }
                _ => pieces.push(libc::iovec { iov_base: address.cast(), iov_len: page.len() }),
            }
        }
        let entry = opcode::Writev::new(Fd(self.file.as_raw_fd()), pieces.as_ptr(), pieces.len() as u32)
            .offset(place)
            .build()
            .user_data(KIND_WRITE | u64::from(token));
        let flags = self.flags_for(offset, list.len() as u64 * PAGE);
        self.push(&entry.flags(flags))
    }

    /// Room on a file system is found by a thread of the kernel's: it may have to wait for the journal, and
    /// who serves faults must not.
    fn flags_for(&mut self, offset: u64, length: u64) -> squeue::Flags {
        let end = offset + length;
        let grows = end > self.written_to && self.parts.is_none();
        self.written_to = self.written_to.max(end);
        if grows { squeue::Flags::ASYNC } else { squeue::Flags::empty() }
    }

    fn push(&mut self, entry: &squeue::Entry) -> Result<(), Errno> {
        // SAFETY: the landing area, copies, lists of pieces and frames stay where they are until the
        // completion is reaped: `reading` and `writing` say so for all but the last, the caller of `write`
        // for those.
        if unsafe { self.ring.submission().push(entry) }.is_ok() {
            return Ok(());
        }
        self.submit(None)?;
        // SAFETY: as above.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| Errno::NOSPC)
    }

    /// Hands over what is queued if that is at least so many: the drive can begin while more is queued.
    ///
    /// # Errors
    /// As [`PageIo::submit`]; what was not handed over stays queued.
    pub fn submit_from(&mut self, count: usize) -> Result<(), Errno> {
        if self.ring.submission().len() < count { Ok(()) } else { self.submit(None) }
    }

    /// Hands over what is queued; with `wait`, returns when something is over or the time is. Who waits for
    /// messages alone does not count as waiting for I/O (`top`, /proc/pressure/io), from Linux 6.15 on.
    ///
    /// # Errors
    /// The kernel's errno; a time that ran out or a signal is none.
    pub fn submit(&mut self, wait: Option<Duration>) -> Result<(), Errno> {
        if !std::mem::replace(&mut self.enabled, true) {
            let enabled = self.ring.submitter().register_enable_rings();
            enabled.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        }
        let outcome = match wait {
            None if self.has_nothing_to_hand_over() => return Ok(()),
            None => {
                // With deferred task work the kernel completes only when asked to: this asks.
                let to_submit = self.ring.submission().len() as u32;
                // SAFETY: no argument structure is passed.
                unsafe { self.ring.submitter().enter::<libc::sigset_t>(to_submit, 0, 1, None) }
            }
            Some(time) => {
                let is_for_drive = self.reading.contains(&true) || self.writing.contains(&true);
                let mut flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
                flags.set(EnterFlags::NO_IOWAIT, !is_for_drive && self.ring.params().is_feature_no_iowait());
                let timespec = Timespec::from(time);
                let until = WaitUntil { signals: 0, signals_bytes: 0, least: 0, time: &raw const timespec };
                let to_submit = self.ring.submission().len() as u32;
                // SAFETY: the kernel reads the structure that EXT_ARG speaks of and the time that it names;
                // both live through the call.
                unsafe { self.ring.submitter().enter(to_submit, 1, flags.bits(), Some(&until)) }
            }
        };
        if let Some(cpus) = self.workers.take() {
            // Now that something was handed over the kernel knows whose workers these are. It is only a
            // matter of speed: a kernel before 5.14 has no such call.
            let _ = self.ring.submitter().register_iowq_aff(&cpus);
        }
        match outcome.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)) {
            Ok(_) | Err(Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Whether a system call would neither pass anything to the kernel nor fetch anything from it.
    fn has_nothing_to_hand_over(&mut self) -> bool {
        let flagged = self.flagged;
        let queue = self.ring.submission();
        flagged && queue.is_empty() && !queue.taskrun() && !queue.cq_overflow()
    }

    /// Whether something is over, told without a system call.
    pub fn has_done(&mut self) -> bool {
        self.ring.submission().taskrun() || !self.ring.completion().is_empty()
    }

    /// The next thing that is over.
    pub fn next_done(&mut self) -> Option<Done> {
        let entry = loop {
            let entry = self.ring.completion().next()?;
            if entry.user_data() != KIND_NONE {
                break entry;
            }
        };
        let index = entry.user_data() as u32;
        Some(match entry.user_data() & !0xFFFF_FFFF {
            KIND_READ => {
                let (_, pages) = self.reads[index as usize];
                self.reading[index as usize..(index + pages) as usize].fill(false);
                Done::Read { slot: index, result: entry.result() }
            }
            KIND_WRITE => {
                self.writing[index as usize] = false;
                Done::Write { token: index, result: entry.result() }
            }
            _ => {
                if !cqueue::more(entry.flags()) {
                    self.armed.retain(|&number| number != index);
                }
                Done::Messages(index)
            }
        })
    }

    /// What the last read to page `slot` of the landing area brought.
    ///
    /// # Panics
    /// While one of its pages is being read into.
    #[must_use]
    pub fn landing(&mut self, slot: u32) -> &[u8] {
        self.landing_mut(slot).1
    }

    /// Where in the file the last read to page `slot` of the landing area began, and what it brought, to be
    /// changed in place.
    ///
    /// # Panics
    /// While one of its pages is being read into.
    pub fn landing_mut(&mut self, slot: u32) -> (u64, &mut [u8]) {
        let (offset, pages) = self.reads[slot as usize];
        let range = slot as usize..(slot + pages) as usize;
        assert!(!self.reading[range.clone()].contains(&true), "page {slot} is in flight");
        let landing = self.landing.as_mut().expect("taken only on drop");
        let (part, page) = landing.place(slot);
        let from = page * PAGE as usize;
        (offset, &mut landing.parts[part].all_mut()[from..from + pages as usize * PAGE as usize])
    }

    /// The addresses of the landing area and of the copies.
    #[must_use]
    pub fn extents(&self) -> Vec<std::ops::Range<u64>> {
        let arenas =
            self.landing.iter().flat_map(|landing| &landing.parts).chain(self.copies.iter().flatten());
        let range = |(base, length): (*mut std::ffi::c_void, usize)| base as u64..base as u64 + length as u64;
        arenas.map(|arena| range(arena.extent())).collect()
    }
}

impl std::fmt::Debug for PageIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageIo").field("pages", &self.reading.len()).finish_non_exhaustive()
    }
}

impl Drop for PageIo {
    fn drop(&mut self) {
        if self.reading.contains(&true) {
            // The kernel may still write to the landing area: memory that is never returned is the only safe
            // answer.
            std::mem::forget(self.landing.take());
        }
        if self.writing.contains(&true) {
            std::mem::forget(std::mem::take(&mut self.pieces));
            std::mem::forget(std::mem::take(&mut self.copies));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_skip::skip;
    use std::os::fd::AsFd;

    #[test]
    fn reads_are_handed_over_once_they_are_as_many_as_said() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 * PAGE).unwrap();
        let mut io = match PageIo::new(file, [4, 0], 4, 1, 1) {
            Ok(io) => io,
            Err(errno) => {
                return skip("reads_are_handed_over_once_they_are_as_many_as_said", &errno.to_string());
            }
        };
        io.submit(None).unwrap();
        io.read(0, 0, PAGE as u32).unwrap();
        io.submit_from(2).unwrap();
        assert_eq!(io.ring.submission().len(), 1, "fewer than two stay queued");
        io.read(1, PAGE, PAGE as u32).unwrap();
        io.submit_from(2).unwrap();
        assert!(io.ring.submission().is_empty());
        let mut slots = Vec::new();
        while slots.len() < 2 {
            io.submit(Some(Duration::from_secs(1))).unwrap();
            assert!(io.has_done());
            while let Some(done) = io.next_done() {
                let Done::Read { slot, result } = done else { panic!("{done:?} was not asked for") };
                assert_eq!(result, PAGE as i32);
                slots.push(slot);
            }
        }
        slots.sort_unstable();
        assert_eq!(slots, [0, 1]);
        assert!(!io.has_done(), "nothing is left");
        assert!(!io.reading.contains(&true) && !io.writing.contains(&true));
    }

    /// The least there was within a second of threads that the system counts as waiting for I/O.
    fn blocked() -> u64 {
        let count = || {
            let text = std::fs::read_to_string("/proc/stat").unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix("procs_blocked ")).unwrap();
            line.parse::<u64>().unwrap()
        };
        let counts = (0..200).map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            count()
        });
        counts.min().unwrap()
    }

    #[test]
    fn who_waits_for_messages_does_not_count_as_waiting_for_the_drive() {
        const NAME: &str = "who_waits_for_messages_does_not_count_as_waiting_for_the_drive";
        let file = tempfile::tempfile().unwrap();
        let mut io = match PageIo::new(file, [4, 0], 4, 1, 1) {
            Ok(io) => io,
            Err(errno) => return skip(NAME, &errno.to_string()),
        };
        if !io.ring.params().is_feature_no_iowait() {
            return skip(NAME, "needs Linux 6.15");
        }
        let (reader, mut writer) = std::io::pipe().unwrap();
        io.watch_once(0, reader.as_fd()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while io.ring.completion().is_empty() {
                    io.submit(Some(Duration::from_secs(60))).unwrap();
                }
            });
            std::thread::sleep(Duration::from_millis(50));
            let waiting = blocked();
            std::io::Write::write_all(&mut writer, b"x").unwrap();
            // Others may wait for good.
            assert!(waiting == 0 || waiting <= blocked(), "{waiting}");
        });
    }

    #[test]
    fn an_area_takes_memory_while_it_is_open() {
        const PAGES: u32 = 16;
        let file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..PAGES).flat_map(|page| [page as u8 + 1; PAGE as usize]).collect();
        std::io::Write::write_all(&mut &file, &content).unwrap();
        let mut io = match PageIo::new(file, [2, 512], 4, 1, 1) {
            Ok(io) => io,
            Err(errno) => return skip("an_area_takes_memory_while_it_is_open", &errno.to_string()),
        };
        let area = io.extents()[1].start;
        let map = crate::page_map::PageMap::open().unwrap();
        let held = || (0..8).map(|part| map.present(area + part * 64 * PAGE, 64).unwrap().count_ones()).sum();
        io.submit(None).unwrap();
        for _ in 0..3 {
            assert_eq!((io.read(1, 0, PAGE as u32), held()), (Ok(()), 0));
            io.open_area();
            io.read(2, 0, PAGES * PAGE as u32).unwrap();
            for _ in 0..2 {
                while io.ring.completion().is_empty() {
                    io.submit(Some(Duration::from_secs(1))).unwrap();
                }
                let Some(Done::Read { slot, result }) = io.next_done() else { panic!("a read is over") };
                assert_eq!(result, if slot == 1 { PAGE as i32 } else { content.len() as i32 });
            }
            assert!(io.landing(1) == &content[..PAGE as usize] && io.landing(2) == content);
            let pages: u32 = held();
            assert!(pages >= PAGES, "{pages}");
            io.close_area().unwrap();
        }
        assert_eq!(held(), 0);
    }
}
