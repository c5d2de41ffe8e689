//! An io_uring for one file and one thread: fixed slots, registered buffers, one system call to submit and
//! wait.
//!
//! Each slot owns two buffers of the ring's arena, one for reads and one for writes (so that a write never
//! carries what a read has just brought), and at most one operation in flight: the layer above speaks of
//! slot numbers only. Every speed-up is asked for and, where the kernel refuses, left out and
//! reported ([`Grants`]): which of them ran is part of a result. This is the hot path, hence our own code:
//! the memory layout is the kernel's (include/uapi/linux/io_uring.h), the access pattern is to touch each
//! shared cache line once a batch.

use crate::Errno;
use crate::arena::{Arena, Backing};
use crate::nvme::Namespace;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::io_uring::{
    IoringEnterFlags, IoringRegisterOp, IoringSetupFlags, io_uring_enter, io_uring_params, io_uring_ptr,
    io_uring_register, io_uring_rsrc_update,
};
use std::fs::File;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::thread::ThreadId;
use thiserror::Error;

mod command;
mod control;
mod queues;
mod setup;

use command::Passthrough;
use queues::{Mapping, Pointers};
pub use setup::refusal;
use setup::setup;

/// Why there is no ring.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RingError {
    /// The administrator switched io_uring off.
    #[error(
        "io_uring is switched off: kernel.io_uring_disabled is {value} (sysctl kernel.io_uring_disabled=0 allows it)"
    )]
    Sysctl {
        /// The setting found: 1 (members of a group only) or 2 (nobody).
        value: String,
    },
    /// A system-call filter, as containers have it, refuses it.
    #[error(
        "io_uring is refused by a seccomp filter on this process, as container runtimes install by default ({errno})"
    )]
    Seccomp {
        /// What the filter answered.
        errno: Errno,
    },
    /// The kernel has no io_uring.
    #[error("this kernel has no io_uring (5.1 or newer, built with CONFIG_IO_URING, is wanted)")]
    NoKernelSupport,
    /// The queues are locked memory, and there is a limit to that.
    #[error(
        "io_uring: queues this deep do not fit the {limit_bytes} bytes this user may lock (see ulimit -l, limits.conf)"
    )]
    LockedMemory {
        /// The limit.
        limit_bytes: u64,
    },
    /// Anything else.
    #[error("io_uring: {step} failed: {errno}")]
    Failed {
        /// The step that failed.
        step: &'static str,
        /// Its errno.
        errno: Errno,
    },
}

/// What a ring is asked to do beyond the usual.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingOptions {
    /// Poll for completions; needs a device with poll queues.
    pub polled: bool,
    /// Sleep through the first part of each poll; only with `polled`.
    pub hybrid_poll: bool,
    /// Let a thread of the kernel submit, so that submitting takes no system call.
    pub sq_poll: bool,
    /// Send NVMe commands to this namespace; the file is its character device.
    pub namespace: Option<Namespace>,
    /// Buffers on small pages, because huge ones are more than this user may lock.
    pub small_pages: bool,
}

/// What was asked of the kernel, and what it gave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// Features in use.
    pub granted: Vec<String>,
    /// Features the kernel or a limit refused.
    pub refused: Vec<String>,
}

/// One finished operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The slot it ran in, free again.
    pub slot: u32,
    /// Bytes moved, or a negative errno.
    pub result: i32,
}

/// A submission queue entry as the kernel reads it (struct io_uring_sqe, the fields used here).
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Sqe {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    offset: u64,
    address: u64,
    length: u32,
    rw_flags: u32,
    user_data: u64,
    buffer_index: u16,
    personality: u16,
    splice_fd: i32,
    rest: [u64; 2],
}

/// A completion queue entry as the kernel writes it (struct io_uring_cqe).
#[derive(Clone, Copy)]
#[repr(C)]
struct Cqe {
    user_data: u64,
    result: i32,
    flags: u32,
}

const _: () = assert!(size_of::<Sqe>() == 64 && size_of::<Cqe>() == 16);

const OP_NOP: u8 = 0;
const OP_READ_FIXED: u8 = 4;
const OP_WRITE_FIXED: u8 = 5;
const OP_READ: u8 = 22;
const OP_WRITE: u8 = 23;
const SQE_FIXED_FILE: u8 = 1;
const SQ_NEED_WAKEUP: u32 = 1;

/// Bytes of the buffers that a ring of `slots` operations of up to `slot_bytes` registers, on small pages or
/// on huge ones; none when that is too much to count.
#[must_use]
pub fn buffers_bytes(slots: u32, slot_bytes: u64, small_pages: bool) -> Option<u64> {
    let bytes = Arena::mapped_bytes_for(2 * slots as usize, usize::try_from(slot_bytes).ok()?, small_pages)?;
    u64::try_from(bytes).ok()
}

/// Whether this user may lock so many bytes: root may, others as far as their limit goes.
#[must_use]
pub fn may_lock(bytes: u64) -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    rustix::process::geteuid().is_root() || limit.is_none_or(|limit| bytes <= limit)
}

/// An io_uring with `slots` operations of up to `slot_bytes` bytes on one file.
pub struct Ring {
    // The descriptor goes before the arena: once it is closed the kernel starts no further operation there.
    fd: OwnedFd,
    registered_fd: Option<u32>,
    /// Whose table of rings has it under that number.
    thread: ThreadId,
    file: i32,
    _file: File,
    registered_file: bool,
    registered_buffers: bool,
    queue_memory: Mapping,
    _entries_memory: Mapping,
    pointers: Pointers,
    tail: u32,
    unsubmitted: u32,
    in_flight: Vec<bool>,
    in_flight_count: u32,
    arena: Option<Arena>,
    sq_poll: bool,
    passthrough: Option<Passthrough>,
    grants: Grants,
}

// SAFETY: the raw pointers point into mappings the ring owns alone; nothing in it is tied to the creating
// thread except SINGLE_ISSUER, whose breach the kernel answers with EEXIST.
unsafe impl Send for Ring {}

impl Ring {
    /// A ring for `slots` operations of up to `slot_bytes` on `file`. Use it on the thread that made it.
    ///
    /// # Errors
    /// [`RingError`] names the cause when the kernel refuses.
    pub fn new(file: File, slots: u32, slot_bytes: usize, options: RingOptions) -> Result<Self, RingError> {
        let failed = |step| move |errno| RingError::Failed { step, errno };
        let mut grants = Grants::default();
        let (fd, params) = setup(slots, options, &mut grants)?;
        let arena = if options.small_pages { Arena::small } else { Arena::new };
        let arena = arena(2 * slots as usize, slot_bytes).map_err(failed("allocating buffers"))?;
        let queue_memory = Mapping::of_queues(&fd, &params).map_err(failed("mapping the queues"))?;
        let entries_memory = Mapping::of_entries(&fd, &params).map_err(failed("mapping the entries"))?;
        let pointers = Pointers::locate(&queue_memory, &entries_memory, &params);
        let passthrough = options.namespace.map(|namespace| Passthrough::new(&file, namespace, slots));
        let mut ring = Self {
            registered_fd: None,
            thread: std::thread::current().id(),
            file: file.as_raw_fd(),
            _file: file,
            registered_file: false,
            registered_buffers: false,
            fd,
            queue_memory,
            _entries_memory: entries_memory,
            pointers,
            tail: 0,
            unsubmitted: 0,
            in_flight: vec![false; slots as usize],
            in_flight_count: 0,
            arena: Some(arena),
            sq_poll: options.sq_poll,
            passthrough,
            grants,
        };
        ring.fill_index_array(&params);
        ring.register();
        ring.probe_commands().map_err(failed("an NVMe command (a read of the first block)"))?;
        Ok(ring)
    }

    /// Before 6.6 the queue is an array of indexes into the entries; one filling with the identity serves for
    /// ever.
    fn fill_index_array(&mut self, params: &io_uring_params) {
        if params.flags.contains(IoringSetupFlags::NO_SQARRAY) {
            return;
        }
        for index in 0..params.sq_entries {
            let at = params.sq_off.array as usize + index as usize * 4;
            // SAFETY: the kernel laid out `sq_entries` 32-bit words from `sq_off.array` inside this mapping,
            // and nothing has been submitted yet, so nobody reads them concurrently.
            unsafe { self.queue_memory.at::<u32>(at).write(index) };
        }
    }

    fn register(&mut self) {
        let files = [self.file];
        // SAFETY: the array of one descriptor is valid for the call; the kernel copies it.
        let outcome =
            unsafe { io_uring_register(&self.fd, IoringRegisterOp::RegisterFiles, files.as_ptr().cast(), 1) };
        self.registered_file = self.note("registered file", outcome);
        if let Some(arena) = &self.arena {
            let (base, length) = arena.extent();
            let buffers = [libc::iovec { iov_base: base, iov_len: length }];
            // SAFETY: the iovec describes exactly the arena's mapping, which `self` keeps for as long as the
            // ring, and which is leaked rather than freed if operations are still in flight (see Drop).
            let outcome = unsafe {
                io_uring_register(&self.fd, IoringRegisterOp::RegisterBuffers, buffers.as_ptr().cast(), 1)
            };
            let huge = arena.backing() == Backing::HugeTlb;
            self.registered_buffers = self.note("registered buffers", outcome);
            self.note("huge-page buffers", if huge { Ok(1) } else { Err(Errno::NOMEM) });
        }
        let mut update = io_uring_rsrc_update::default();
        update.offset = u32::MAX;
        update.data = io_uring_ptr::new(std::ptr::without_provenance_mut(self.fd.as_raw_fd() as usize));
        // SAFETY: the update structure is valid and writable for the call.
        let outcome = unsafe {
            io_uring_register(&self.fd, IoringRegisterOp::RegisterRingFds, (&raw mut update).cast(), 1)
        };
        if self.note("registered ring descriptor", outcome) {
            self.registered_fd = Some(update.offset);
        }
    }

    fn note(&mut self, feature: &str, outcome: Result<u32, Errno>) -> bool {
        let list = if outcome.is_ok() { &mut self.grants.granted } else { &mut self.grants.refused };
        list.push(feature.to_owned());
        outcome.is_ok()
    }

    /// What the kernel granted.
    #[must_use]
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Operations queued or submitted and not yet reaped.
    #[inline]
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight_count
    }

    /// Queues a read of `length` bytes at `offset` into the slot's read buffer.
    ///
    /// # Panics
    /// When the slot does not exist, is in flight, or is smaller than `length`: a defect of the caller.
    #[inline]
    pub fn queue_read(&mut self, slot: u32, offset: u64, length: u32) {
        let opcode = if self.registered_buffers { OP_READ_FIXED } else { OP_READ };
        self.queue_transfer(opcode, slot, slot as usize, offset, length);
    }

    /// Queues a write of `length` bytes of the slot's write buffer at `offset`.
    ///
    /// # Panics
    /// As [`Ring::queue_read`].
    #[inline]
    pub fn queue_write(&mut self, slot: u32, offset: u64, length: u32) {
        let opcode = if self.registered_buffers { OP_WRITE_FIXED } else { OP_WRITE };
        self.queue_transfer(opcode, slot, self.in_flight.len() + slot as usize, offset, length);
    }

    #[inline]
    fn queue_transfer(&mut self, opcode: u8, slot: u32, buffer: usize, offset: u64, length: u32) {
        if self.passthrough.is_some() {
            let write = matches!(opcode, OP_WRITE | OP_WRITE_FIXED);
            return self.queue_command(write, slot, buffer, offset, length);
        }
        let address = self.address_of(buffer, length);
        let (fd, flags) = self.file_words();
        self.push(Sqe {
            opcode,
            flags,
            fd,
            offset,
            address,
            length,
            user_data: u64::from(slot),
            ..Sqe::default()
        });
    }

    #[inline]
    fn address_of(&self, buffer: usize, length: u32) -> u64 {
        match &self.arena {
            Some(arena) if length as usize <= arena.slot_bytes() => arena.slot_address(buffer),
            _ => panic!("an operation of {length} bytes does not fit its slot"),
        }
    }

    /// What entries name the file by: its place in the table of registered ones, or its descriptor.
    #[inline]
    fn file_words(&self) -> (i32, u8) {
        if self.registered_file { (0, SQE_FIXED_FILE) } else { (self.file, 0) }
    }

    /// Queues an operation that does nothing, to measure the ring itself.
    ///
    /// # Panics
    /// As [`Ring::queue_read`].
    #[inline]
    pub fn queue_nop(&mut self, slot: u32) {
        self.push(Sqe { opcode: OP_NOP, user_data: u64::from(slot), ..Sqe::default() });
    }

    #[inline]
    fn push(&mut self, sqe: Sqe) {
        let slot = sqe.user_data as usize;
        assert!(!std::mem::replace(&mut self.in_flight[slot], true), "slot {slot} is in flight");
        let index = (self.tail & self.pointers.sq_mask) as usize;
        // SAFETY: the mask keeps the index inside the entries; the queue has at least as many entries as
        // there are slots and each slot is queued at most once, so the kernel has consumed this entry.
        unsafe { self.pointers.entries.add(index << self.pointers.wide).write(sqe) };
        self.tail = self.tail.wrapping_add(1);
        self.unsubmitted += 1;
        self.in_flight_count += 1;
    }

    /// Hands all queued operations to the kernel without waiting for any.
    ///
    /// # Errors
    /// The kernel's errno; EINTR is retried.
    #[inline]
    pub fn submit(&mut self) -> Result<(), Errno> {
        self.hand_over(0, IoringEnterFlags::empty())
    }

    /// Hands all queued operations to the kernel and waits until at least `wait_for` have finished.
    ///
    /// # Errors
    /// The kernel's errno; EINTR is retried.
    #[inline]
    pub fn submit_and_wait(&mut self, wait_for: u32) -> Result<(), Errno> {
        self.hand_over(wait_for, IoringEnterFlags::GETEVENTS)
    }

    #[inline]
    fn hand_over(&mut self, wait_for: u32, flags: IoringEnterFlags) -> Result<(), Errno> {
        // SAFETY: the word lies in the queue mapping, aligned, and is only accessed atomically after setup.
        let shared_tail = unsafe { AtomicU32::from_ptr(self.pointers.sq_tail.as_ptr()) };
        shared_tail.store(self.tail, Ordering::Release);
        if self.sq_poll {
            return self.wake_and_wait(wait_for);
        }
        loop {
            match self.enter(self.unsubmitted, wait_for, flags) {
                Ok(submitted) => {
                    self.unsubmitted -= submitted.min(self.unsubmitted);
                    if self.unsubmitted == 0 {
                        return Ok(());
                    }
                }
                Err(Errno::INTR) => {}
                // Out of completion space or memory for now: what has finished must be reaped first.
                Err(Errno::BUSY | Errno::AGAIN) if self.in_flight_count > self.unsubmitted => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// With a kernel thread for submissions: wakes it if it sleeps, and enters the kernel only to wait.
    fn wake_and_wait(&mut self, wait_for: u32) -> Result<(), Errno> {
        // The tail must be seen before the thread's flag is read, or both sides could go to sleep.
        fence(Ordering::SeqCst);
        // SAFETY: the word lies in the queue mapping, aligned, and is only accessed atomically after setup.
        let shared_flags = unsafe { AtomicU32::from_ptr(self.pointers.sq_flags.as_ptr()) };
        let asleep = shared_flags.load(Ordering::Relaxed) & SQ_NEED_WAKEUP != 0;
        let submitted = std::mem::take(&mut self.unsubmitted);
        let mut flags = IoringEnterFlags::empty();
        flags.set(IoringEnterFlags::SQ_WAKEUP, asleep);
        flags.set(IoringEnterFlags::GETEVENTS, wait_for > 0);
        while !flags.is_empty() {
            match self.enter(submitted, wait_for, flags) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    #[inline]
    fn enter(&self, submit: u32, wait_for: u32, flags: IoringEnterFlags) -> Result<u32, Errno> {
        match self.registered_fd {
            Some(index) => {
                // SAFETY: with REGISTERED_RING the kernel takes the number as an index into this thread's
                // table of rings and never as a descriptor, so the borrow names nothing that could be closed.
                let fd = unsafe { BorrowedFd::borrow_raw(index as i32) };
                // SAFETY: every submitted entry points into the arena, which outlives the operation.
                unsafe { io_uring_enter(fd, submit, wait_for, flags | IoringEnterFlags::REGISTERED_RING) }
            }
            // SAFETY: as above.
            None => unsafe { io_uring_enter(&self.fd, submit, wait_for, flags) },
        }
    }

    /// Moves all finished operations to `completions` (which is cleared first) and frees their slots.
    #[inline]
    pub fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.clear();
        // SAFETY: both words lie in the queue mapping, aligned, and are only accessed atomically after setup.
        let (shared_head, shared_tail) = unsafe {
            (
                AtomicU32::from_ptr(self.pointers.cq_head.as_ptr()),
                AtomicU32::from_ptr(self.pointers.cq_tail.as_ptr()),
            )
        };
        let mut head = shared_head.load(Ordering::Relaxed);
        let tail = shared_tail.load(Ordering::Acquire);
        while head != tail {
            let index = (head & self.pointers.cq_mask) as usize;
            // SAFETY: the mask keeps the index inside the array, and entries between head and tail are
            // complete: the acquire load above pairs with the kernel's release of the tail.
            let cqe = unsafe { self.pointers.completions.add(index << self.pointers.wide).read() };
            head = head.wrapping_add(1);
            let slot = cqe.user_data as u32;
            self.in_flight[slot as usize] = false;
            self.in_flight_count -= 1;
            let result = match &self.passthrough {
                None => cqe.result,
                Some(passthrough) => passthrough.result(slot, &cqe),
            };
            completions.push(Completion { slot, result });
        }
        shared_head.store(head, Ordering::Release);
    }

    /// What the last read of a slot brought.
    ///
    /// # Panics
    /// When the slot does not exist or is in flight: the kernel may be writing to it.
    pub fn read_buffer_mut(&mut self, slot: u32) -> &mut [u8] {
        self.buffer_mut(slot, slot as usize)
    }

    /// What the next write of a slot will carry.
    ///
    /// # Panics
    /// As [`Ring::read_buffer_mut`].
    pub fn write_buffer_mut(&mut self, slot: u32) -> &mut [u8] {
        self.buffer_mut(slot, self.in_flight.len() + slot as usize)
    }

    fn buffer_mut(&mut self, slot: u32, buffer: usize) -> &mut [u8] {
        assert!(!self.in_flight[slot as usize], "slot {slot} is in flight");
        match &mut self.arena {
            Some(arena) => arena.slot_mut(buffer),
            None => &mut [],
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("slots", &self.in_flight.len())
            .field("in_flight", &self.in_flight_count)
            .field("grants", &self.grants)
            .finish_non_exhaustive()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.in_flight_count > 0 {
            // The kernel may still write to the buffers after the descriptor is closed. Memory that is never
            // returned is the only safe answer; a run drains its ring, so this is for failed ones.
            std::mem::forget(self.arena.take());
        }
        // Else the ring lives on, with its queues and the buffers that are pinned for it, until the thread
        // that made it ends. In another one's table the same number may be another ring's.
        if let Some(index) = self.registered_fd.filter(|_| self.thread == std::thread::current().id()) {
            let mut update = io_uring_rsrc_update::default();
            update.offset = index;
            let (what, update) = (IoringRegisterOp::UnregisterRingFds, (&raw mut update).cast());
            // SAFETY: the structure is valid for the call, which only reads it.
            let _ = unsafe { io_uring_register(&self.fd, what, update, 1) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_skip::skip;
    use std::io::Write;

    fn temporary(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    /// None, with the reason told, where this machine refuses io_uring.
    fn ring(test: &str, file: File, slots: u32) -> Option<Ring> {
        ring_with(test, file, slots, RingOptions::default())
    }

    fn ring_with(test: &str, file: File, slots: u32, options: RingOptions) -> Option<Ring> {
        let refused = |error: RingError| skip(&format!("ring::tests::{test}"), &error.to_string());
        Ring::new(file, slots, 4096, options).map_err(refused).ok()
    }

    #[test]
    fn a_thread_may_have_one_ring_after_the_other() {
        const NAME: &str = "a_thread_may_have_one_ring_after_the_other";
        let has_it = |ring: &Ring| ring.grants().granted.iter().any(|name| name.contains("ring descriptor"));
        let Some(first) = ring(NAME, temporary(&[]), 1).map(|ring| has_it(&ring)) else { return };
        // More than there are places in the thread's table.
        for _ in 0..20 {
            assert_eq!(ring(NAME, temporary(&[]), 1).map(|ring| has_it(&ring)), Some(first));
        }
    }

    #[test]
    fn reads_what_the_file_holds() {
        let content: Vec<u8> = (0..64 * 4096u32).map(|i| (i / 4096) as u8).collect();
        let Some(mut ring) = ring("reads_what_the_file_holds", temporary(&content), 8) else { return };
        let mut completions = Vec::new();
        for round in 0..8u32 {
            for slot in 0..8 {
                ring.queue_read(slot, u64::from(round * 8 + slot) * 4096, 4096);
            }
            assert_eq!(ring.in_flight(), 8);
            let mut finished = 0;
            while finished < 8 {
                ring.submit_and_wait(1).unwrap();
                ring.reap(&mut completions);
                finished += completions.len();
                for done in &completions {
                    assert_eq!(done.result, 4096);
                }
            }
            for slot in 0..8 {
                assert!(ring.read_buffer_mut(slot).iter().all(|&byte| byte == (round * 8 + slot) as u8));
            }
        }
    }

    #[test]
    fn writes_reach_the_file_and_short_reads_say_so() {
        let Some(mut ring) = ring("writes_reach_the_file_and_short_reads_say_so", temporary(&[]), 2) else {
            return;
        };
        let mut completions = Vec::new();
        ring.write_buffer_mut(1).fill(7);
        ring.queue_write(1, 0, 1000);
        ring.submit_and_wait(1).unwrap();
        ring.reap(&mut completions);
        assert_eq!(completions, [Completion { slot: 1, result: 1000 }]);
        ring.queue_read(0, 500, 4096);
        ring.submit_and_wait(1).unwrap();
        ring.reap(&mut completions);
        assert_eq!(completions, [Completion { slot: 0, result: 500 }]);
        assert!(ring.read_buffer_mut(0)[..500].iter().all(|&byte| byte == 7));
    }

    #[test]
    fn small_pages_hold_buffers_just_as_well() {
        let blocks: Vec<u8> = (0..8u8).flat_map(|block| [block; 4096]).collect();
        let options = RingOptions { small_pages: true, ..RingOptions::default() };
        let name = "small_pages_hold_buffers_just_as_well";
        let Some(mut ring) = ring_with(name, temporary(&blocks), 4, options) else { return };
        let mut completions = Vec::new();
        for slot in 0..4 {
            ring.queue_read(slot, 4096 * u64::from(slot + 3), 4096);
        }
        ring.submit_and_wait(4).unwrap();
        ring.reap(&mut completions);
        assert_eq!(completions.len(), 4);
        assert!(
            (0..4).all(|slot| ring.read_buffer_mut(slot).iter().all(|&byte| u32::from(byte) == slot + 3))
        );
        assert_eq!(buffers_bytes(4, 4096, true), Some(8 * 4096));
        assert_eq!(buffers_bytes(4, 4096, false), Some(2 << 20));
        assert!(may_lock(0));
    }

    #[test]
    fn a_kernel_thread_submits_just_as_well() {
        let blocks: Vec<u8> = (0..16u8).flat_map(|block| [block; 4096]).collect();
        let options = RingOptions { sq_poll: true, ..RingOptions::default() };
        let name = "a_kernel_thread_submits_just_as_well";
        let Some(mut ring) = ring_with(name, temporary(&blocks), 4, options) else { return };
        assert!(ring.grants().granted.contains(&"SQPOLL".to_owned()), "{:?}", ring.grants());
        let mut completions = Vec::new();
        for round in 0..4u8 {
            (0..4).for_each(|slot| {
                ring.queue_read(slot, (u64::from(round) * 4 + u64::from(slot)) * 4096, 4096);
            });
            let mut seen = 0;
            while seen < 4 {
                ring.submit_and_wait(1).unwrap();
                ring.reap(&mut completions);
                for completion in &completions {
                    assert_eq!(completion.result, 4096);
                    let wanted = round * 4 + completion.slot as u8;
                    assert!(ring.read_buffer_mut(completion.slot).iter().all(|&byte| byte == wanted));
                    seen += 1;
                }
            }
        }
    }

    #[test]
    fn errors_come_back_as_negative_errnos() {
        let directory = File::open("/").unwrap();
        let Some(mut ring) = ring("errors_come_back_as_negative_errnos", directory, 1) else { return };
        let mut completions = Vec::new();
        ring.queue_read(0, 0, 4096);
        ring.submit_and_wait(1).unwrap();
        ring.reap(&mut completions);
        assert_eq!(completions[0].result, -libc::EISDIR);
    }

    #[test]
    fn nops_come_back_many_at_a_time() {
        let Some(mut ring) = ring("nops_come_back_many_at_a_time", File::open("/dev/null").unwrap(), 64)
        else {
            return;
        };
        let mut completions = Vec::new();
        let mut seen = 0;
        for _ in 0..100 {
            (0..64).for_each(|slot| ring.queue_nop(slot));
            ring.submit_and_wait(64).unwrap();
            ring.reap(&mut completions);
            seen += completions.len();
        }
        assert_eq!(seen, 6400);
    }

    #[test]
    fn a_buffer_in_flight_cannot_be_touched() {
        let Some(mut ring) = ring("a_buffer_in_flight_cannot_be_touched", temporary(&[0; 4096]), 1) else {
            return;
        };
        ring.queue_read(0, 0, 4096);
        let touched = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            ring.read_buffer_mut(0);
        }));
        assert!(touched.is_err());
    }

    #[test]
    fn a_ring_dropped_with_work_in_flight_does_no_harm() {
        for _ in 0..20 {
            let Some(mut ring) =
                ring("a_ring_dropped_with_work_in_flight_does_no_harm", temporary(&[1; 65536]), 16)
            else {
                return;
            };
            (0..16).for_each(|slot| ring.queue_read(slot, u64::from(slot) * 4096, 4096));
            ring.submit_and_wait(0).unwrap();
        }
    }
}
