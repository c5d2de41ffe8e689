//! Which pages programs fault on that have to be read, as the kernel samples them: a ring in memory for each
//! processor, read without a system call.
//!
//! Samples are of processors and not of processes: those cost 3 us more at each fault that waits, as the
//! kernel takes them along from one thread to the next.

use crate::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// A fault that waited for a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultSample {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// What was touched.
    pub address: u64,
}

/// From the kernel's `linux/perf_event.h`, the first version of the structure.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint: u32,
    config1: u64,
}

const KIND_SOFTWARE: u32 = 1;
const MAJOR_FAULTS: u64 = 6;
const WITH_THREAD: u64 = 1 << 1;
const WITH_ADDRESS: u64 = 1 << 3;
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
const RECORD_SAMPLE: u32 = 9;
/// Where the ring's first page has what was written and what was read, in words of 64 bits.
const HEAD: usize = 1024 / 8;
const TAIL: usize = 1032 / 8;

/// A record: kind and length, process and thread, address.
const RECORD_WORDS: u64 = 3;
const RING_PAGES: usize = 8;
const PAGE: usize = 4096;

/// Samples of everything that runs on this machine.
#[derive(Debug)]
pub struct FaultSamples {
    rings: Vec<Ring>,
}

impl FaultSamples {
    /// Begins to sample on the processors that are online.
    ///
    /// # Errors
    /// What the kernel refuses: ENOSYS without performance events, EACCES or EPERM without the right to them.
    pub fn of_all() -> io::Result<Self> {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
        let rings = processors(&online).map(Ring::open).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { rings })
    }

    /// Hands over what was sampled since the last time; what there was no room for is gone.
    pub fn drain(&mut self, mut each: impl FnMut(FaultSample)) {
        self.rings.iter_mut().for_each(|ring| ring.drain(&mut each));
    }
}

/// The numbers in a list such as `0-3,8`.
fn processors(list: &str) -> impl Iterator<Item = u32> {
    list.trim().split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) => first..last.saturating_add(1),
            _ => 0..0,
        }
    })
}

/// One processor's.
#[derive(Debug)]
struct Ring {
    base: NonNull<AtomicU64>,
    _event: OwnedFd,
    /// Others may not look at it at the same time.
    _alone: PhantomData<*mut ()>,
}

// SAFETY: the mapping belongs to this value alone, and who has it may use it from any thread.
unsafe impl Send for Ring {}

impl Ring {
    const BYTES: usize = (1 + RING_PAGES) * PAGE;
    const WORDS: u64 = (RING_PAGES * PAGE / 8) as u64;

    fn open(processor: u32) -> io::Result<Self> {
        let attributes = Attributes {
            kind: KIND_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: MAJOR_FAULTS,
            sample_period: 1,
            sample_type: WITH_THREAD | WITH_ADDRESS,
            read_format: 0,
            flags: 0,
            wakeup_events: 0,
            breakpoint: 0,
            config1: 0,
        };
        let (all, no_group): (libc::pid_t, libc::c_int) = (-1, -1);
        // SAFETY: `attributes` has the layout and size it tells and lives through the call.
        let got = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                all,
                processor,
                no_group,
                CLOSE_ON_EXEC,
            )
        };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that was just made and that nobody else has.
        let event = unsafe { OwnedFd::from_raw_fd(got as i32) };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let base = unsafe {
            mmap(std::ptr::null_mut(), Self::BYTES, protection, MapFlags::SHARED, event.as_fd(), 0)
        }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::INVAL)?;
        Ok(Self { base, _event: event, _alone: PhantomData })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < Self::BYTES / 8);
        // SAFETY: within the mapping, which lives as long as `self`; the kernel writes whole words.
        unsafe { self.base.add(index).as_ref() }
    }

    fn drain(&mut self, each: &mut impl FnMut(FaultSample)) {
        // Written by the kernel after what it stands for.
        let head = self.word(HEAD).load(Ordering::Acquire);
        let mut at = self.word(TAIL).load(Ordering::Relaxed);
        let read = |at: u64| self.word(PAGE / 8 + (at / 8 % Self::WORDS) as usize).load(Ordering::Relaxed);
        while at < head {
            let about = read(at);
            let (kind, bytes) = (about as u32, about >> 48);
            if bytes == 0 || bytes % 8 != 0 {
                at = head;
                break;
            }
            if kind == RECORD_SAMPLE && bytes == RECORD_WORDS * 8 {
                let who = read(at + 8);
                each(FaultSample { pid: who as u32, tid: (who >> 32) as u32, address: read(at + 16) });
            }
            at += bytes;
        }
        self.word(TAIL).store(at, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped in `open` with this length; nothing refers to it after `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), Self::BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_skip::skip;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(processors("0-2,5\n").collect::<Vec<_>>(), [0, 1, 2, 5]);
        assert_eq!(processors("\n").count() + processors("a-b,-").count(), 0);
    }

    #[test]
    fn a_page_that_has_to_be_read_is_told() {
        const NAME: &str = "fault_samples::tests::a_page_that_has_to_be_read_is_told";
        const BYTES: usize = 64 * PAGE;
        let mut samples = match FaultSamples::of_all() {
            Ok(samples) => samples,
            Err(error) => return skip(NAME, &format!("no performance events: {error}")),
        };
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [1; BYTES]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        for try_number in 1..=50 {
            file.sync_all().unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            // SAFETY: a new mapping at a place of the kernel's choice, of a file that keeps its length.
            let base = unsafe {
                mmap(std::ptr::null_mut(), BYTES, ProtFlags::READ, MapFlags::SHARED, &file, 0).unwrap()
            };
            let address = base as usize + BYTES / 2;
            // SAFETY: within the mapping.
            let byte = unsafe { std::ptr::read_volatile(address as *const u8) };
            // SAFETY: mapped above; nothing refers to it any more.
            unsafe { munmap(base, BYTES).unwrap() };
            assert_eq!(byte, 1);
            let mut is_told = false;
            samples.drain(|sample| {
                is_told |= sample.pid == std::process::id() && sample.address == address as u64;
            });
            if is_told {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(try_number));
        }
        skip(NAME, "what is read once stays in memory here");
    }
}
