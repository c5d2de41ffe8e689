//! The functions of `overmem.h`: for programs that know what they need. An unmodified program calls none.
//!
//! They give 0 or a negative errno. What they are told is checked by the kernel: an address that is none is
//! refused, not followed.

use crate::fork;
use crate::setup::Setup;
use overdrive_pager::engine::Hints;
use overdrive_pager::stats::{Stat, Stats};
use std::ffi::{CStr, OsStr};
use std::os::raw::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};

const PAGE: usize = 4096;
/// Ranges to be read that wait at most.
const WANTED_MAX: usize = 256;
/// Read in one go; between two the thread can be told to end with the process.
const PIECE: usize = 1 << 20;

/// What runs in this process, once it does.
struct Running {
    stats: Arc<Stats>,
    hints: Arc<Hints>,
}

static RUNNING: OnceLock<Running> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());
static WANTED: OnceLock<Option<SyncSender<(usize, usize)>>> = OnceLock::new();

/// From now on the functions work.
pub(crate) fn note_running(stats: Arc<Stats>, hints: Arc<Hints>) {
    let _ = RUNNING.set(Running { stats, hints });
}

/// What runs, unless this is a child, which is served by its parent's engine and cannot reach it.
fn running() -> Option<&'static Running> {
    if fork::is_child() { None } else { RUNNING.get() }
}

/// The whole pages that a range of bytes touches.
fn pages_of(start: *const c_void, bytes: usize) -> (usize, usize) {
    let first = start as usize / PAGE * PAGE;
    let end = (start as usize).saturating_add(bytes).next_multiple_of(PAGE);
    (first, end - first)
}

fn negative_errno() -> c_int {
    // SAFETY: the C library's errno of this thread is always there.
    -unsafe { *libc::__errno_location() }
}

/// Starts the engine in a program that was not started by `overdrive extend`; does nothing where it runs.
///
/// # Safety
/// `folder` is a string that ends with a zero byte; `message` has room for `message_bytes` bytes or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn overmem_start(
    folder: *const c_char,
    dram_bytes: u64,
    store_bytes: u64,
    message: *mut c_char,
    message_bytes: usize,
) -> c_int {
    let _one = STARTING.lock();
    if running().is_some() {
        return 0;
    }
    if folder.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: the caller's promise.
    let folder = OsStr::from_bytes(unsafe { CStr::from_ptr(folder) }.to_bytes());
    let outcome = Setup::of_program(folder.into(), dram_bytes, store_bytes).and_then(Setup::start);
    let Err(text) = outcome else { return 0 };
    let length = text.len().min(message_bytes.saturating_sub(1));
    if !message.is_null() && message_bytes > 0 {
        // SAFETY: the caller's promise; one byte more than the text fits.
        unsafe {
            message.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), length);
            message.add(length).write(0);
        }
    }
    -libc::ENOTSUP
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
    let (first, length) = pages_of(start, bytes);
    if let Some(running) = running() {
        let budget = running.stats.get(Stat::BudgetBytes);
        if locked_bytes().saturating_add(length as u64) > budget / 2 {
            return -libc::ENOMEM;
        }
    }
    // SAFETY: locking changes no content, and addresses that are not mapped are refused.
    if unsafe { libc::mlock(first as *const c_void, length) } == 0 { 0 } else { negative_errno() }
}

/// Takes a pin back.
#[unsafe(no_mangle)]
pub extern "C" fn overmem_unpin(start: *const c_void, bytes: usize) -> c_int {
    let (first, length) = pages_of(start, bytes);
    // SAFETY: as for locking.
    if unsafe { libc::munlock(first as *const c_void, length) } == 0 { 0 } else { negative_errno() }
}

/// The range is needed soon: it is read while the program goes on.
#[unsafe(no_mangle)]
pub extern "C" fn overmem_will_need(start: *const c_void, bytes: usize) -> c_int {
    if running().is_none() {
        return 0;
    }
    match WANTED.get_or_init(start_reader) {
        None => -libc::EAGAIN,
        Some(queue) if queue.try_send(pages_of(start, bytes)).is_err() => -libc::EAGAIN,
        Some(_) => 0,
    }
}

/// The range is not needed for a while: it leaves DRAM before what is in use. Its content stays.
#[unsafe(no_mangle)]
pub extern "C" fn overmem_cold(start: *const c_void, bytes: usize) -> c_int {
    let Some(running) = running() else { return 0 };
    let (first, length) = pages_of(start, bytes);
    let range = first as u64..first as u64 + length as u64;
    if running.hints.cold(range) { 0 } else { -libc::EAGAIN }
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
    let get = |stat| running.stats.get(stat);
    let found = OvermemStats {
        dram_bytes: get(Stat::BudgetBytes),
        resident_bytes: get(Stat::Resident) * PAGE as u64,
        staged_bytes: get(Stat::Staged) * PAGE as u64,
        stored_bytes: get(Stat::Stored) * PAGE as u64,
        written_bytes: get(Stat::Written) * PAGE as u64,
        faults: get(Stat::Faults),
        loads: get(Stat::Loads),
        waits: get(Stat::DirectStalls),
        lost_pages: get(Stat::Lost),
    };
    let length = bytes.min(size_of::<OvermemStats>());
    // SAFETY: the caller's promise; no more than what is there is read.
    unsafe { stats.cast::<u8>().copy_from_nonoverlapping((&raw const found).cast(), length) };
    0
}

/// What the kernel counts as locked in this process.
fn locked_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// A thread that touches what is needed soon, as any thread of the program might.
fn start_reader() -> Option<SyncSender<(usize, usize)>> {
    let (sender, receiver) = sync_channel::<(usize, usize)>(WANTED_MAX);
    let work = move || {
        overdrive_sys::signals::block_all();
        while let Ok((start, bytes)) = receiver.recv() {
            for at in (start..start + bytes).step_by(PIECE) {
                let length = PIECE.min(start + bytes - at);
                // SAFETY: reading pages changes no content; what is not mapped (any more) is refused.
                unsafe { libc::madvise(at as *mut c_void, length, libc::MADV_POPULATE_READ) };
            }
        }
    };
    std::thread::Builder::new().name("overmem-reader".to_owned()).spawn(work).ok()?;
    Some(sender)
}
