//! NVMe commands through the ring (IORING_OP_URING_CMD): entries of twice the size, on the character device
//! of a namespace (/dev/ngXnY). They pass the block layer by: no scheduler, no merging, no accounting.
//!
//! Only reads and writes of whole logical blocks are offered. The kernel lets root write through a descriptor
//! that was opened for reading, so it is asked here how the file was opened: without consent there is no
//! writable descriptor, and without one no write command is made.

use super::{Completion, Cqe, Ring, SQE_FIXED_FILE, Sqe};
use crate::nvme::Namespace;
use rustix::fs::{OFlags, fcntl_getfl};
use std::fs::File;

const OP_URING_CMD: u8 = 46;
/// `NVME_URING_CMD_IO`: read and write, 72 bytes, type 'N', number 0x80.
const COMMAND_IO: u32 = (3 << 30) | ((size_of::<Command>() as u32) << 16) | 0x4e80;
/// The data lies in registered buffers (`IORING_URING_CMD_FIXED`).
const COMMAND_FIXED: u32 = 1;
const NVME_WRITE: u8 = 0x01;
const NVME_READ: u8 = 0x02;

/// `struct nvme_uring_cmd` of linux/nvme_ioctl.h.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Command {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    dword2: u32,
    dword3: u32,
    metadata: u64,
    address: u64,
    metadata_len: u32,
    data_len: u32,
    first_block_low: u32,
    first_block_high: u32,
    /// The number of blocks, less one.
    more_blocks: u32,
    dword13: u32,
    dword14: u32,
    dword15: u32,
    timeout_ms: u32,
    reserved2: u32,
}

/// What of an entry lies beyond the first 48 bytes, which commands share with every other operation.
#[derive(Clone, Copy)]
#[repr(C)]
struct WideSqe {
    head: [u64; 6],
    command: Command,
    rest: u64,
}

const _: () = assert!(size_of::<Command>() == 72 && size_of::<WideSqe>() == 2 * size_of::<Sqe>());

/// What a ring of commands knows beside what every ring does.
pub(super) struct Passthrough {
    namespace: Namespace,
    /// The target was opened for writing.
    writable: bool,
    /// Whether data may lie in registered buffers; older kernels know them for files only.
    fixed: bool,
    /// Bytes of each slot's command: a completion says only that it succeeded.
    lengths: Vec<u32>,
}

impl Passthrough {
    pub(super) fn new(file: &File, namespace: Namespace, slots: u32) -> Self {
        let access = fcntl_getfl(file).unwrap_or(OFlags::RDONLY) & OFlags::ACCMODE;
        Self { namespace, writable: access == OFlags::RDWR, fixed: true, lengths: vec![0; slots as usize] }
    }

    /// Bytes moved or a negative errno; a status of the drive becomes EIO, as in the block layer.
    #[inline]
    pub(super) fn result(&self, slot: u32, cqe: &Cqe) -> i32 {
        match cqe.result {
            0 => self.lengths[slot as usize] as i32,
            1.. => -libc::EIO,
            errno => errno,
        }
    }
}

impl Ring {
    /// Queues a read or write command for `length` bytes at `offset`.
    ///
    /// # Panics
    /// When it is no whole number of logical blocks, or a write to what was opened for reading: a defect of
    /// the caller.
    pub(super) fn queue_command(&mut self, write: bool, slot: u32, buffer: usize, offset: u64, length: u32) {
        let address = self.address_of(buffer, length);
        let Some(passthrough) = &mut self.passthrough else { return };
        let shift = passthrough.namespace.block_bytes.trailing_zeros();
        let block_mask = u64::from(passthrough.namespace.block_bytes) - 1;
        assert!((offset | u64::from(length)) & block_mask == 0 && length > 0, "not whole blocks");
        assert!(passthrough.writable || !write, "a write to a namespace opened for reading");
        passthrough.lengths[slot as usize] = length;
        let first_block = offset >> shift;
        let command = Command {
            opcode: if write { NVME_WRITE } else { NVME_READ },
            namespace: passthrough.namespace.id,
            address,
            data_len: length,
            first_block_low: first_block as u32,
            first_block_high: (first_block >> 32) as u32,
            more_blocks: (length >> shift) - 1,
            ..Command::default()
        };
        let fixed = passthrough.fixed && self.registered_buffers;
        let (fd, flags) = if self.registered_file { (0, SQE_FIXED_FILE) } else { (self.file, 0) };
        let head = Sqe {
            opcode: OP_URING_CMD,
            flags,
            fd,
            // The low half of the word that holds an offset elsewhere.
            offset: u64::from(COMMAND_IO),
            rw_flags: if fixed { COMMAND_FIXED } else { 0 },
            user_data: u64::from(slot),
            ..Sqe::default()
        };
        let index = (self.tail & self.pointers.sq_mask) as usize;
        self.push(head);
        // SAFETY: with SQE128 each entry has 128 bytes, the mapping was made for that many, and `push` has
        // just put the first 64 bytes of this one at the same index; the command fills bytes 48 to 128 of it,
        // which the kernel reads only once it is submitted.
        unsafe {
            let entry = self.pointers.entries.add(index << 1).cast::<WideSqe>();
            (&raw mut (*entry.as_ptr()).command).write(command);
            (&raw mut (*entry.as_ptr()).rest).write(0);
        }
    }

    /// Reads the first block to find out what this kernel takes; whether commands are to be had at all.
    pub(super) fn probe_commands(&mut self) -> Result<(), crate::Errno> {
        let Some(block_bytes) =
            self.passthrough.as_ref().map(|passthrough| passthrough.namespace.block_bytes)
        else {
            return Ok(());
        };
        let mut result = self.try_command(block_bytes)?;
        if matches!(-result, libc::EINVAL | libc::EOPNOTSUPP) && self.registered_buffers {
            if let Some(passthrough) = &mut self.passthrough {
                passthrough.fixed = false;
            }
            self.grants.granted.retain(|feature| feature != "registered buffers");
            self.grants.refused.push("registered buffers".to_owned());
            result = self.try_command(block_bytes)?;
        }
        if result < 0 { Err(crate::Errno::from_raw_os_error(-result)) } else { Ok(()) }
    }

    fn try_command(&mut self, block_bytes: u32) -> Result<i32, crate::Errno> {
        let mut done: Vec<Completion> = Vec::new();
        self.queue_read(0, 0, block_bytes);
        while done.is_empty() {
            self.submit_and_wait(1)?;
            self.reap(&mut done);
        }
        Ok(done[0].result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn commands_are_laid_out_as_the_kernel_reads_them() {
        assert_eq!(COMMAND_IO, 0xc048_4e80);
        assert_eq!(offset_of!(WideSqe, command), 48);
        assert_eq!(offset_of!(Command, address), 24);
        assert_eq!(offset_of!(Command, first_block_low), 40);
        assert_eq!(offset_of!(Command, timeout_ms), 64);
    }

    #[test]
    fn how_the_file_was_opened_decides_about_writes() {
        let namespace = Namespace { id: 1, block_bytes: 512, metadata_bytes: 0, size_bytes: 1 << 20 };
        let writable = |file: &File| Passthrough::new(file, namespace, 1).writable;
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(!writable(&File::open(file.path()).unwrap()));
        assert!(writable(&File::options().read(true).write(true).open(file.path()).unwrap()));
    }

    #[test]
    fn a_file_that_is_no_namespace_is_refused_with_the_cause() {
        let namespace = Namespace { id: 1, block_bytes: 512, metadata_bytes: 0, size_bytes: 1 << 20 };
        let options =
            super::super::RingOptions { namespace: Some(namespace), ..super::super::RingOptions::default() };
        // Not /dev/null: newer kernels let it take any command.
        let file = tempfile::tempfile().unwrap();
        match Ring::new(file, 4, 4096, options) {
            // What io_uring is refused with elsewhere, or the file's own answer: it takes no such commands.
            Err(error) => assert!(error.to_string().contains("io_uring"), "{error}"),
            Ok(ring) => panic!("{ring:?}"),
        }
    }
}
