//! Why the pager takes pages away by UFFDIO_MOVE and by nothing else: what a device writes to a page that it was
//! given before is seen afterwards only with that.
//!
//! A registered buffer of an io_uring stands for whatever lets a device, or the kernel in its place, write to
//! memory later: it holds the page itself and not its address, as a direct read does while it is under way. So
//! there is no race in these tests: the page is given to the ring, then evicted, then written to through the
//! ring, then brought back.

use crate::skip;
use io_uring::{IoUring, opcode, types::Fd};
use overdrive_sys::Errno;
use overdrive_sys::uffd::{Forks, PAGE, Userfault};
use std::ffi::c_void;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PAGE_BYTES: usize = PAGE as usize;
/// What the program has written, and what the device writes.
const OLD: u64 = 0x1111_1111_1111_1111;
const NEW: u64 = 0x2222_2222_2222_2222;

#[test]
fn write_protection_and_dropping_lose_what_a_device_writes() {
    const NAME: &str = "write_protection_and_dropping_lose_what_a_device_writes";
    let page = Page::anonymous();
    let Some((userfault, mut device)) = set_up(NAME, &page) else { return };
    // As a pager for kernels before 6.8 would do it: nobody but the device can write any more, the content
    // is saved, the page is given up. Nothing is refused.
    userfault.write_protect(page.range(), true).unwrap();
    let saved = page.content();
    give_up(&userfault, &page).unwrap();
    // The device is told that it has written.
    device.write();
    userfault.copy(page.range().start, &saved, true).unwrap();
    assert_eq!(page.word(), OLD, "what the device wrote would have been lost");
}

#[test]
fn a_hole_in_shared_memory_loses_what_a_device_writes() {
    const NAME: &str = "a_hole_in_shared_memory_loses_what_a_device_writes";
    let (page, memory) = Page::shared();
    let Some((userfault, mut device)) = set_up(NAME, &page) else { return };
    let mut saved = [0; PAGE_BYTES];
    memory.read_exact_at(&mut saved, 0).unwrap();
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&memory, hole, 0, PAGE).unwrap();
    device.write();
    userfault.copy(page.range().start, &saved, true).unwrap();
    assert_eq!(page.word(), OLD, "what the device wrote would have been lost");
}

#[test]
fn a_page_that_a_device_may_write_to_is_not_moved() {
    const NAME: &str = "a_page_that_a_device_may_write_to_is_not_moved";
    // Unmapped after the userfaultfd is closed, which would have to be told of it.
    let (page, target) = (Page::anonymous(), Page::anonymous());
    let Some((userfault, mut device)) = set_up(NAME, &page) else { return };
    if !userfault.offers().moves {
        return skip(NAME, "this kernel has no UFFDIO_MOVE (Linux 6.8)");
    }
    target.advise(libc::MADV_DONTNEED).unwrap();
    // SAFETY: nothing that this test needs to answer faults lies in the page.
    unsafe { userfault.register(target.range()) }.unwrap();
    let (here, there) = (page.range().start, target.range().start);
    assert_eq!(move_page(&userfault, there, here), Err(Errno::BUSY));
    device.write();
    assert_eq!(page.word(), NEW);
    // It was the device: without it the page goes, as soon as the kernel has cleared up behind it.
    device.forget();
    let began = Instant::now();
    let mut moved = move_page(&userfault, there, here);
    while moved == Err(Errno::BUSY) && began.elapsed() < Duration::from_secs(60) {
        std::thread::yield_now();
        moved = move_page(&userfault, there, here);
    }
    assert_eq!(moved, Ok(PAGE));
    assert_eq!(move_page(&userfault, here, there), Ok(PAGE));
    assert_eq!(page.word(), NEW);
}

#[test]
fn what_the_kernel_pages_out_loses_nothing_that_a_device_writes() {
    const NAME: &str = "what_the_kernel_pages_out_loses_nothing_that_a_device_writes";
    let page = Page::anonymous();
    let Some((userfault, mut device)) = set_up(NAME, &page) else { return };
    userfault.unregister(page.range()).unwrap();
    // Without swap there is nowhere to go, which is as well; with it the kernel sees who has the page.
    let _ = page.advise(libc::MADV_PAGEOUT);
    device.write();
    assert_eq!(page.word(), NEW);
}

/// A page of memory whose words are [`OLD`].
#[derive(Debug)]
struct Page(*mut c_void);

// SAFETY: it owns its mapping alone, whose words are only touched as atomics.
unsafe impl Sync for Page {}

impl Page {
    fn anonymous() -> Self {
        Self::mapped(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    /// And the file that it is the first page of.
    fn shared() -> (Self, File) {
        // SAFETY: the name ends with a zero byte.
        let fd = unsafe { libc::memfd_create(c"pins".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: the kernel has just made this descriptor for us.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(PAGE).unwrap();
        (Self::mapped(libc::MAP_SHARED, fd), file)
    }

    fn mapped(flags: i32, fd: i32) -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping where the kernel likes touches nothing of ours.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), PAGE_BYTES, access, flags, fd, 0) };
        assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        let page = Self(start);
        page.words().iter().for_each(|word| word.store(OLD, Ordering::Relaxed));
        page
    }

    fn range(&self) -> Range<u64> {
        let start = self.0 as u64;
        start..start + PAGE
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping holds so many words, aligned to pages, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.0.cast(), PAGE_BYTES / size_of::<u64>()) }
    }

    /// The word that stands in all its places.
    fn word(&self) -> u64 {
        let first = self.words()[0].load(Ordering::Relaxed);
        assert!(self.words().iter().all(|word| word.load(Ordering::Relaxed) == first), "half of a write");
        first
    }

    fn content(&self) -> Vec<u8> {
        self.words().iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
    }

    fn advise(&self, advice: i32) -> std::io::Result<()> {
        // SAFETY: exactly our own mapping, of which only atomics are read, and after it was brought back.
        let outcome = unsafe { libc::madvise(self.0, PAGE_BYTES, advice) };
        if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: made by `Page::mapped` with this length; no reference outlives `self`.
        unsafe { libc::munmap(self.0, PAGE_BYTES) };
    }
}

/// What was given a page to write to, and a file full of [`NEW`] from which it does.
struct Device {
    ring: IoUring,
    file: File,
    address: *mut u8,
}

impl Device {
    /// It would write whenever it likes; here it does when it is told to.
    fn write(&mut self) {
        let read = opcode::ReadFixed::new(Fd(self.file.as_raw_fd()), self.address, PAGE as u32, 0);
        // SAFETY: the buffer is registered: the kernel holds its page and writes there, whatever else stands
        // at the address.
        unsafe { self.ring.submission().push(&read.build()).unwrap() };
        self.ring.submit_and_wait(1).unwrap();
        let done = self.ring.completion().next().map(|entry| entry.result());
        assert_eq!(done, Some(PAGE as i32), "bytes written to the page");
    }

    fn forget(&mut self) {
        self.ring.submitter().unregister_buffers().unwrap();
    }
}

/// A page under a userfaultfd that was given to a device; skips where either is not to be had.
fn set_up(name: &str, page: &Page) -> Option<(Userfault, Device)> {
    let userfault = Userfault::new(Forks::Followed).map_err(|error| skip(name, &error.to_string())).ok()?;
    let ring = IoUring::new(2).map_err(|error| skip(name, &format!("io_uring: {error}"))).ok()?;
    let buffer = libc::iovec { iov_base: page.0, iov_len: PAGE_BYTES };
    // SAFETY: the kernel holds the page itself; the mapping may go before.
    let pinned = unsafe { ring.submitter().register_buffers(&[buffer]) };
    pinned.map_err(|error| skip(name, &format!("registering a buffer: {error}"))).ok()?;
    // SAFETY: nothing that this test needs to answer faults lies in the page.
    let registered = unsafe { userfault.register(page.range()) };
    registered.map_err(|errno| skip(name, &format!("userfaultfd on such memory: {errno}"))).ok()?;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&NEW.to_ne_bytes().repeat(PAGE_BYTES / size_of::<u64>())).unwrap();
    Some((userfault, Device { ring, file, address: page.0.cast() }))
}

/// Drops the page; who does so waits until the owner of the userfaultfd has read of it.
fn give_up(userfault: &Userfault, page: &Page) -> std::io::Result<()> {
    std::thread::scope(|scope| {
        let dropping = scope.spawn(|| page.advise(libc::MADV_DONTNEED));
        while !dropping.is_finished() {
            userfault.read_messages(16, drop).unwrap();
            std::thread::yield_now();
        }
        dropping.join().unwrap()
    })
}

/// The kernel asks for another try where something else looks at the page just then.
fn move_page(userfault: &Userfault, target: u64, source: u64) -> Result<u64, Errno> {
    loop {
        match userfault.move_pages(target, source, PAGE) {
            Err(Errno::AGAIN) => std::thread::yield_now(),
            outcome => return outcome,
        }
    }
}
