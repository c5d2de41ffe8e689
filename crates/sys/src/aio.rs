//! The kernel's older asynchronous I/O (what the libaio library wraps): fixed slots, one file, one thread.
//!
//! The system calls are made directly, and completions are taken from the ring that the kernel maps into the
//! process, so that a batch which is already done costs no call. Like the io_uring, each slot owns a buffer
//! for reads and one for writes and has at most one operation in flight.

use crate::Errno;
use crate::arena::{Arena, Backing};
use crate::ring::{Completion, Grants};
use rustix::fd::AsRawFd;
use std::fs::File;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// An operation as the kernel reads it (struct iocb of linux/aio_abi.h, as little-endian machines have it).
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

/// A completion as the kernel writes it (struct io_event).
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

/// The head of the completion ring (struct aio_ring), followed by its events.
#[repr(C)]
struct RingHead {
    id: u32,
    events: u32,
    head: u32,
    tail: u32,
    magic: u32,
    compatible: u32,
    incompatible: u32,
    header_bytes: u32,
}

const _: () = assert!(size_of::<Iocb>() == 64 && size_of::<Event>() == 32 && size_of::<RingHead>() == 32);

const RING_MAGIC: u32 = 0xa10a_10a1;
const OP_READ: u16 = 0;
const OP_WRITE: u16 = 1;
const OP_FSYNC: u16 = 2;
const OP_FDATASYNC: u16 = 3;

/// A context for `slots` operations of up to `slot_bytes` bytes on one file.
pub struct Aio {
    context: libc::c_ulong,
    /// The completion ring, when its layout is the one known here.
    ring: Option<NonNull<RingHead>>,
    file: File,
    arena: Arena,
    blocks: Box<[Iocb]>,
    /// Addresses of the blocks to be submitted next.
    queued: Vec<*mut Iocb>,
    events: Vec<Event>,
    in_flight: Vec<bool>,
    in_flight_count: u32,
    grants: Grants,
}

// SAFETY: the pointers point into memory the context owns alone (its blocks, its kernel ring); a context may
// be used from any thread of the process.
unsafe impl Send for Aio {}

impl Aio {
    /// A context for `slots` operations on `file`.
    ///
    /// # Errors
    /// The kernel's errno: EAGAIN when `fs.aio-max-nr` is used up, ENOSYS where there is no such I/O.
    pub fn new(file: File, slots: u32, slot_bytes: usize) -> Result<Self, Errno> {
        let arena = Arena::new(2 * slots as usize, slot_bytes)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the context word is valid and writable for the call.
        check(unsafe { libc::syscall(libc::SYS_io_setup, slots, &raw mut context) })?;
        let mut grants = Grants::default();
        let ring = NonNull::new(std::ptr::with_exposed_provenance_mut::<RingHead>(context as usize))
            // SAFETY: the kernel made the context's number the address at which it mapped the ring, at
            // least a page long and readable; only plain fields that never change are looked at.
            .filter(|ring| unsafe { ring.as_ref().magic == RING_MAGIC && ring.as_ref().incompatible == 0 });
        let mut note = |feature: &str, granted: bool| {
            let list = if granted { &mut grants.granted } else { &mut grants.refused };
            list.push(feature.to_owned());
        };
        note("user-space reap", ring.is_some());
        note("huge-page buffers", arena.backing() == Backing::HugeTlb);
        Ok(Self {
            context,
            ring,
            file,
            arena,
            blocks: vec![Iocb::default(); slots as usize].into_boxed_slice(),
            queued: Vec::with_capacity(slots as usize),
            events: vec![Event::default(); slots as usize],
            in_flight: vec![false; slots as usize],
            in_flight_count: 0,
            grants,
        })
    }

    /// What the kernel granted.
    #[must_use]
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Queues a read of `length` bytes at `offset` into the slot's read buffer.
    ///
    /// # Panics
    /// When the slot does not exist, is in flight, or is smaller than `length`: a defect of the caller.
    #[inline]
    pub fn queue_read(&mut self, slot: u32, offset: u64, length: u32) {
        self.queue(OP_READ, slot, slot as usize, offset, length);
    }

    /// Queues a write of `length` bytes of the slot's write buffer at `offset`.
    ///
    /// # Panics
    /// As [`Aio::queue_read`].
    #[inline]
    pub fn queue_write(&mut self, slot: u32, offset: u64, length: u32) {
        self.queue(OP_WRITE, slot, self.in_flight.len() + slot as usize, offset, length);
    }

    /// Queues an fsync, or an fdatasync; its result is 0.
    ///
    /// # Panics
    /// When the slot does not exist or is in flight: a defect of the caller.
    pub fn queue_sync(&mut self, slot: u32, data_only: bool) {
        let opcode = if data_only { OP_FDATASYNC } else { OP_FSYNC };
        self.push(Iocb { data: u64::from(slot), opcode, ..Iocb::default() });
    }

    #[inline]
    fn queue(&mut self, opcode: u16, slot: u32, buffer: usize, offset: u64, length: u32) {
        assert!(length as usize <= self.arena.slot_bytes(), "{length} bytes do not fit a slot");
        self.push(Iocb {
            data: u64::from(slot),
            opcode,
            buffer: self.arena.slot_address(buffer),
            length: u64::from(length),
            offset: offset as i64,
            ..Iocb::default()
        });
    }

    #[inline]
    fn push(&mut self, block: Iocb) {
        let index = block.data as usize;
        assert!(!std::mem::replace(&mut self.in_flight[index], true), "slot {index} is in flight");
        self.blocks[index] = Iocb { fd: self.file.as_raw_fd() as u32, ..block };
        self.queued.push(&raw mut self.blocks[index]);
        self.in_flight_count += 1;
    }

    /// Hands all queued operations to the kernel without waiting for any.
    ///
    /// # Errors
    /// The kernel's errno; EINTR is retried.
    #[inline]
    pub fn submit(&mut self) -> Result<(), Errno> {
        let mut handed = 0;
        while handed < self.queued.len() {
            let rest = &mut self.queued[handed..];
            // SAFETY: each pointer is to a block of ours, whose buffer lies in the arena, which lives until
            // `io_destroy` has waited for all operations; the kernel copies the blocks during the call.
            let taken = check(unsafe {
                libc::syscall(
                    libc::SYS_io_submit,
                    self.context,
                    rest.len() as libc::c_long,
                    rest.as_mut_ptr(),
                )
            });
            match taken {
                Ok(taken) => handed += taken as usize,
                Err(Errno::INTR) => {}
                // Out of room for now: what has finished must be reaped first.
                Err(Errno::AGAIN) if self.in_flight_count as usize > self.queued.len() - handed => break,
                Err(errno) => return Err(errno),
            }
        }
        self.queued.drain(..handed);
        Ok(())
    }

    /// Hands over what is queued, waits until at least `wait_for` operations are done, and moves all that are
    /// done to `completions`, which is cleared first.
    ///
    /// # Errors
    /// The kernel's errno; EINTR is retried.
    #[inline]
    pub fn submit_and_reap(&mut self, wait_for: u32, completions: &mut Vec<Completion>) -> Result<(), Errno> {
        self.submit()?;
        completions.clear();
        self.reap_ring(completions);
        while (completions.len() as u32) < wait_for {
            let missing = wait_for - completions.len() as u32;
            self.reap_by_call(missing, completions)?;
        }
        if self.ring.is_none() && wait_for == 0 {
            self.reap_by_call(0, completions)?;
        }
        Ok(())
    }

    /// Takes what is done from the mapped ring.
    #[inline]
    fn reap_ring(&mut self, completions: &mut Vec<Completion>) {
        let Some(ring) = self.ring else { return };
        // SAFETY: the ring stays mapped until `io_destroy`; its head and tail are aligned words that this
        // process and the kernel access concurrently, hence atomically. `events` never changes.
        let (head, tail, size) = unsafe {
            let ring = ring.as_ptr();
            let word = |field: *mut u32| AtomicU32::from_ptr(field);
            (word(&raw mut (*ring).head), word(&raw mut (*ring).tail), (*ring).events)
        };
        let mut at = head.load(Ordering::Relaxed);
        let end = tail.load(Ordering::Acquire);
        while at != end {
            // SAFETY: the events follow the head of the ring, and the kernel keeps both indexes below
            // `size`; those between head and tail are complete, by the acquire load above.
            let event = unsafe { ring.add(1).cast::<Event>().add(at as usize).read() };
            at = if at + 1 >= size { 0 } else { at + 1 };
            self.finish(event, completions);
        }
        head.store(end, Ordering::Release);
    }

    fn reap_by_call(&mut self, least: u32, completions: &mut Vec<Completion>) -> Result<(), Errno> {
        // SAFETY: the events are valid, writable memory for as many as are asked for; no time-out is given.
        let outcome = check(unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                libc::c_long::from(least),
                self.events.len() as libc::c_long,
                self.events.as_mut_ptr(),
                std::ptr::null::<libc::timespec>(),
            )
        });
        match outcome {
            Ok(count) => (0..count as usize).for_each(|index| self.finish(self.events[index], completions)),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    #[inline]
    fn finish(&mut self, event: Event, completions: &mut Vec<Completion>) {
        let slot = event.data as u32;
        self.in_flight[slot as usize] = false;
        self.in_flight_count -= 1;
        completions.push(Completion { slot, result: event.result as i32 });
    }

    /// What the last read of a slot brought.
    ///
    /// # Panics
    /// When the slot does not exist or is in flight: the kernel may be writing to it.
    pub fn read_buffer_mut(&mut self, slot: u32) -> &mut [u8] {
        assert!(!self.in_flight[slot as usize], "slot {slot} is in flight");
        self.arena.slot_mut(slot as usize)
    }

    /// What the next write of a slot will carry.
    ///
    /// # Panics
    /// As [`Aio::read_buffer_mut`].
    pub fn write_buffer_mut(&mut self, slot: u32) -> &mut [u8] {
        assert!(!self.in_flight[slot as usize], "slot {slot} is in flight");
        self.arena.slot_mut(self.in_flight.len() + slot as usize)
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: the context is ours and used no more. The kernel waits for what is in flight before it
        // returns, so the arena can be freed after it.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

impl std::fmt::Debug for Aio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aio")
            .field("slots", &self.in_flight.len())
            .field("in_flight", &self.in_flight_count)
            .field("grants", &self.grants)
            .finish_non_exhaustive()
    }
}

/// The C library's way of returning errors, turned into ours.
#[inline]
fn check(result: libc::c_long) -> Result<libc::c_long, Errno> {
    if result >= 0 {
        return Ok(result);
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn aio(bytes: &[u8], slots: u32) -> Option<Aio> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Aio::new(file, slots, 4096).map_err(|error| eprintln!("skipped: libaio: {error}")).ok()
    }

    #[test]
    fn every_slot_gets_its_own_block_by_either_way_of_reaping() {
        let blocks: Vec<u8> = (0..32u8).flat_map(|block| [block; 4096]).collect();
        for by_call in [false, true] {
            let Some(mut aio) = aio(&blocks, 8) else { return };
            if by_call {
                aio.ring = None;
            }
            let mut completions = Vec::new();
            for round in 0..4u8 {
                (0..8).for_each(|slot| {
                    aio.queue_read(slot, (u64::from(round) * 8 + u64::from(slot)) * 4096, 4096);
                });
                let mut seen = 0;
                while seen < 8 {
                    aio.submit_and_reap(1, &mut completions).unwrap();
                    for completion in &completions {
                        assert_eq!(completion.result, 4096);
                        let wanted = round * 8 + completion.slot as u8;
                        assert!(aio.read_buffer_mut(completion.slot).iter().all(|&byte| byte == wanted));
                    }
                    seen += completions.len();
                }
                assert_eq!(seen, 8);
            }
        }
    }

    #[test]
    fn writes_arrive_and_short_reads_say_so() {
        let Some(mut aio) = aio(&[], 2) else { return };
        let mut completions = Vec::new();
        aio.write_buffer_mut(1).fill(9);
        aio.queue_write(1, 0, 1000);
        aio.submit_and_reap(1, &mut completions).unwrap();
        assert_eq!(completions, [Completion { slot: 1, result: 1000 }]);
        aio.queue_read(0, 600, 4096);
        aio.submit_and_reap(1, &mut completions).unwrap();
        assert_eq!(completions, [Completion { slot: 0, result: 400 }]);
        aio.queue_sync(0, true);
        aio.queue_sync(1, false);
        let mut results = Vec::new();
        while results.len() < 2 {
            aio.submit_and_reap(1, &mut completions).unwrap();
            results.extend(completions.iter().map(|completion| completion.result));
        }
        assert_eq!(results, [0, 0]);
        assert!(aio.read_buffer_mut(0)[..400].iter().all(|&byte| byte == 9));
    }

    #[test]
    fn a_context_dropped_with_work_in_flight_does_no_harm() {
        for _ in 0..20 {
            let Some(mut aio) = aio(&[1; 65536], 16) else { return };
            (0..16).for_each(|slot| aio.queue_read(slot, u64::from(slot) * 4096, 4096));
            aio.submit().unwrap();
        }
    }
}
