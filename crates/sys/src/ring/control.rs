//! Operations of the ring that move no data: syncs and trims. Not the hot path.

use super::{Ring, Sqe};
use crate::file::{PUNCH_HOLE, TrimMethod};

const OP_FSYNC: u8 = 3;
const OP_FALLOCATE: u8 = 17;
const OP_URING_CMD: u8 = 46;
const FSYNC_DATASYNC: u32 = 1;
/// `BLOCK_URING_CMD_DISCARD` of linux/blkdev.h: `_IO(0x12, 0)`.
const BLOCK_DISCARD: u64 = 0x1200;

impl Ring {
    /// Queues an fsync, or an fdatasync; its result is 0.
    ///
    /// # Panics
    /// When the slot does not exist or is in flight: a defect of the caller.
    pub fn queue_sync(&mut self, slot: u32, data_only: bool) {
        let (fd, flags) = self.file_words();
        let rw_flags = if data_only { FSYNC_DATASYNC } else { 0 };
        let user_data = u64::from(slot);
        self.push(Sqe { opcode: OP_FSYNC, flags, fd, rw_flags, user_data, ..Sqe::default() });
    }

    /// Queues a trim of `length` bytes at `offset`; its result is 0. On a block device it takes Linux 6.12,
    /// and before that ends with EOPNOTSUPP.
    ///
    /// # Panics
    /// As [`Ring::queue_sync`].
    pub fn queue_trim(&mut self, slot: u32, method: TrimMethod, offset: u64, length: u32) {
        let (fd, flags) = self.file_words();
        let user_data = u64::from(slot);
        let common = Sqe { flags, fd, user_data, ..Sqe::default() };
        self.push(match method {
            // The kernel takes the length of an fallocate as its address, and the mode as its length.
            TrimMethod::PunchHole => Sqe {
                opcode: OP_FALLOCATE,
                offset,
                address: u64::from(length),
                length: PUNCH_HOLE.bits(),
                ..common
            },
            // The command stands where other operations have their offset, its range in two further words.
            TrimMethod::Discard => Sqe {
                opcode: OP_URING_CMD,
                offset: BLOCK_DISCARD,
                address: offset,
                rest: [u64::from(length), 0],
                ..common
            },
        });
    }
}
