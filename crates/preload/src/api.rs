//! The functions of `overmem.h`: for programs that know what they need. An unmodified program calls none.
//!
//! They give 0 or a negative errno. What they are told is checked by the kernel: an address that is none is
//! refused, not followed.

use crate::fork;
use crate::options::{self, OvermemOptions, Refused};
use crate::setup::{Setup, Wishes};
use crate::{ALLOCATOR, NO_ADDRESSES};
use overdrive_extend::control::{Control, pages_of, unpin};
use overdrive_pager::engine::Hints;
use overdrive_pager::stats::Stats;
use overdrive_sys::{Errno, pageable};
use std::os::raw::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

/// What runs. In a child it is the parent's, until it has its own.
static RUNNING: AtomicPtr<Control> = AtomicPtr::new(std::ptr::null_mut());
static STARTING: Mutex<()> = Mutex::new(());

/// From now on the functions work.
pub(crate) fn note_running(stats: Arc<Stats>, hints: Arc<Hints>) {
    RUNNING.store(Box::into_raw(Box::new(Control::new(stats, hints))), Ordering::Release);
}

/// What runs, unless this is a child, which is served by its parent's engine and cannot reach it.
fn running() -> Option<&'static Control> {
    if fork::is_child() {
        return None;
    }
    // SAFETY: null, or what `note_running` made in this very process, which is never given back.
    unsafe { RUNNING.load(Ordering::Acquire).as_ref() }
}

/// 0, or the negative errno.
fn told(outcome: Result<(), Errno>) -> c_int {
    outcome.map_or_else(|errno| -errno.raw_os_error(), |()| 0)
}

fn negative_errno() -> c_int {
    // SAFETY: the C library's errno of this thread is always there.
    -unsafe { *libc::__errno_location() }
}

/// Starts the engine in a program that was not started by `overdrive extend`; does nothing where it runs.
///
/// # Safety
/// `folder` is null or ends with a zero byte; `message` has room for `message_bytes` bytes or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overmem_start(
    folder: *const c_char,
    dram_bytes: u64,
    store_bytes: u64,
    message: *mut c_char,
    message_bytes: usize,
) -> c_int {
    let wishes = || {
        // SAFETY: the caller's promise.
        let folder = unsafe { options::path(folder) }.ok_or((-libc::EINVAL, "no folder".to_owned()))?;
        Ok(Wishes::new(folder, dram_bytes, store_bytes))
    };
    // SAFETY: the caller's promise.
    unsafe { start(wishes, message, message_bytes) }
}

/// Starts the engine with all that can be asked for; does nothing where it runs.
///
/// # Safety
/// `options` is null or has as many bytes as its first field says, its `folder` is null or ends with a zero
/// byte; `message` has room for `message_bytes` bytes or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overmem_start_with(
    options: *const OvermemOptions,
    message: *mut c_char,
    message_bytes: usize,
) -> c_int {
    // SAFETY: the caller's promise, for both.
    unsafe { start(|| options::read(options), message, message_bytes) }
}

/// 0, or the errno with the line that goes with it.
///
/// # Safety
/// `message` has room for `message_bytes` bytes or is null.
unsafe fn start(
    wishes: impl FnOnce() -> Result<Wishes, Refused>,
    message: *mut c_char,
    message_bytes: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let refuse = |errno: c_int, text: &str| unsafe {
        put(text, message, message_bytes);
        errno
    };
    // Neither has memory for anything more.
    if fork::is_child() {
        let text = "this is a child of a process with an engine; wanted the start after exec, or before any";
        return refuse(-libc::ENOTSUP, text);
    }
    if !ALLOCATOR.is_there() {
        return refuse(-libc::ENOTSUP, NO_ADDRESSES);
    }
    let _one = STARTING.lock();
    if running().is_some() {
        return 0;
    }
    let start = |wishes| Setup::of_program(wishes).and_then(Setup::start);
    match wishes().and_then(|wishes| start(wishes).map_err(|text| (-libc::ENOTSUP, text))) {
        Ok(()) => 0,
        Err((errno, text)) => refuse(errno, &text),
    }
}

/// As much of a line as fits, with a zero byte.
///
/// # Safety
/// `message` has room for `message_bytes` bytes or is null.
unsafe fn put(text: &str, message: *mut c_char, message_bytes: usize) {
    let length = text.len().min(message_bytes.saturating_sub(1));
    if !message.is_null() && message_bytes > 0 {
        // SAFETY: the caller's promise; one byte more than the text fits.
        unsafe {
            message.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), length);
            message.add(length).write(0);
        }
    }
}

/// Whether an engine serves this process.
#[unsafe(no_mangle)]
pub extern "C" fn overmem_is_running() -> c_int {
    running().is_some().into()
}

/// New memory, page-aligned and zero. Null when there is none.
#[unsafe(no_mangle)]
pub extern "C" fn overmem_map(bytes: usize) -> *mut c_void {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping where the kernel likes touches nothing of anybody's.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
    if start == libc::MAP_FAILED { std::ptr::null_mut() } else { start }
}

/// Gives memory of `overmem_map`, or a part of it, back.
///
/// # Safety
/// Nothing uses the range any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overmem_unmap(start: *mut c_void, bytes: usize) -> c_int {
    // SAFETY: the caller's promise.
    if unsafe { libc::munmap(start, bytes) } == 0 { 0 } else { negative_errno() }
}

/// Brings a range into DRAM and keeps it there.
#[unsafe(no_mangle)]
pub extern "C" fn overmem_pin(start: *const c_void, bytes: usize) -> c_int {
    let pages = pages_of(start as u64, bytes as u64);
    told(running().map_or_else(|| pageable::lock(&pages), |control| control.pin(&pages, &[])))
}

/// Takes a pin back.
#[unsafe(no_mangle)]
pub extern "C" fn overmem_unpin(start: *const c_void, bytes: usize) -> c_int {
    told(unpin(&pages_of(start as u64, bytes as u64)))
}

/// The range is needed soon: it is read while the program goes on.
#[unsafe(no_mangle)]
pub extern "C" fn overmem_will_need(start: *const c_void, bytes: usize) -> c_int {
    let taken = running().map_or(Ok(()), |control| control.will_need(pages_of(start as u64, bytes as u64)));
    told(taken.map_err(|_| Errno::AGAIN))
}

/// The range is not needed for a while: it leaves DRAM before what is in use. Its content stays.
#[unsafe(no_mangle)]
pub extern "C" fn overmem_cold(start: *const c_void, bytes: usize) -> c_int {
    let taken = running().map_or(Ok(()), |control| control.cold(pages_of(start as u64, bytes as u64)));
    told(taken.map_err(|_| Errno::AGAIN))
}

/// What `overmem_stats` gives; as in the header.
#[repr(C)]
#[derive(Debug, Default)]
pub struct OvermemStats {
    dram_bytes: u64,
    resident_bytes: u64,
    staged_bytes: u64,
    stored_bytes: u64,
    written_bytes: u64,
    faults: u64,
    loads: u64,
    waits: u64,
    lost_pages: u64,
    compressed_bytes: u64,
    compressed_dram_bytes: u64,
    writes_paced: u64,
}

/// The counters as they stand, as many bytes of them as fit.
///
/// # Safety
/// `stats` has room for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overmem_stats(stats: *mut OvermemStats, bytes: usize) -> c_int {
    let Some(running) = running() else { return -libc::ENOTSUP };
    if stats.is_null() {
        return -libc::EINVAL;
    }
    let counters = running.counters();
    let found = OvermemStats {
        dram_bytes: counters.dram_bytes,
        resident_bytes: counters.resident_bytes,
        staged_bytes: counters.staged_bytes,
        stored_bytes: counters.stored_bytes,
        written_bytes: counters.written_bytes,
        faults: counters.faults,
        loads: counters.loads,
        waits: counters.waits,
        lost_pages: counters.lost_pages,
        compressed_bytes: counters.compressed_bytes,
        compressed_dram_bytes: counters.compressed_dram_bytes,
        writes_paced: counters.writes_paced,
    };
    let length = bytes.min(size_of::<OvermemStats>());
    // SAFETY: the caller's promise; no more than what is there is read.
    unsafe { stats.cast::<u8>().copy_from_nonoverlapping((&raw const found).cast(), length) };
    0
}
