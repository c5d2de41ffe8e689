//! The memory that a ring shares with the kernel, and where in it the queues lie.

use super::{Cqe, Sqe};
use crate::Errno;
use rustix::fd::OwnedFd;
use rustix::io_uring::{
    IORING_OFF_CQ_RING, IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringFeatureFlags, IoringSetupFlags,
    io_uring_params,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Where the shared words and arrays lie; valid as long as the mappings beside them.
pub(super) struct Pointers {
    pub(super) sq_tail: NonNull<u32>,
    pub(super) sq_flags: NonNull<u32>,
    pub(super) sq_mask: u32,
    pub(super) entries: NonNull<Sqe>,
    pub(super) cq_head: NonNull<u32>,
    pub(super) cq_tail: NonNull<u32>,
    pub(super) cq_mask: u32,
    pub(super) completions: NonNull<Cqe>,
    /// Both kinds of entries are twice as large (1) or not (0): what an index is shifted by.
    pub(super) wide: u32,
}

impl Pointers {
    pub(super) fn locate(queues: &Mapping, entries: &Mapping, params: &io_uring_params) -> Self {
        let (sq, cq) = (&params.sq_off, &params.cq_off);
        Self {
            sq_tail: queues.at(sq.tail as usize),
            sq_flags: queues.at(sq.flags as usize),
            sq_mask: params.sq_entries - 1,
            entries: entries.at(0),
            cq_head: queues.at(cq.head as usize),
            cq_tail: queues.at(cq.tail as usize),
            cq_mask: params.cq_entries - 1,
            completions: queues.at(cq.cqes as usize),
            wide: wide(params),
        }
    }
}

/// 1 with entries of twice the size, else 0.
fn wide(params: &io_uring_params) -> u32 {
    u32::from(params.flags.contains(IoringSetupFlags::SQE128))
}

/// A piece of the ring's memory, unmapped on drop.
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Both queues share one mapping since 5.4.
    pub(super) fn of_queues(fd: &OwnedFd, params: &io_uring_params) -> Result<Self, Errno> {
        if !params.features.contains(IoringFeatureFlags::SINGLE_MMAP) {
            return Err(Errno::NOSYS);
        }
        let submission = params.sq_off.array as usize + params.sq_entries as usize * size_of::<u32>();
        let completion =
            params.cq_off.cqes as usize + ((params.cq_entries as usize * size_of::<Cqe>()) << wide(params));
        debug_assert_eq!(IORING_OFF_CQ_RING, 0x0800_0000);
        Self::new(fd, IORING_OFF_SQ_RING, submission.max(completion))
    }

    pub(super) fn of_entries(fd: &OwnedFd, params: &io_uring_params) -> Result<Self, Errno> {
        Self::new(fd, IORING_OFF_SQES, (params.sq_entries as usize * size_of::<Sqe>()) << wide(params))
    }

    fn new(fd: &OwnedFd, offset: u64, bytes: usize) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping of the ring at an address of the kernel's choice touches nothing of ours.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, fd, offset)? };
        NonNull::new(base.cast()).map(|base| Self { base, bytes }).ok_or(Errno::NOMEM)
    }

    /// A pointer `offset` bytes into the mapping.
    pub(super) fn at<T>(&self, offset: usize) -> NonNull<T> {
        assert!(offset + size_of::<T>() <= self.bytes && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: the assertion keeps the pointer inside the mapping.
        unsafe { self.base.add(offset).cast() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `Mapping::new` with this length; the ring that points into it is going away.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.bytes) };
    }
}
