//! Every kernel call Overdrive makes, behind safe types: rings, buffers, files, clock, affinity, usage.
//!
//! This is the only crate besides the preload library in which `unsafe` may stand, and
//! each block carries its argument. It speaks in slots and owned buffers, never in raw addresses, so that
//! the layers above can forbid `unsafe`. It decides nothing: policy belongs to the callers.

pub mod affinity;
pub mod aio;
pub mod apart;
pub mod arena;
pub mod broker;
pub mod child;
pub mod chunks;
pub mod clock;
mod descriptor_limit;
pub mod disk_stats;
pub mod fault_samples;
pub mod file;
pub mod frames;
pub mod gate;
pub mod guest;
pub mod helper;
pub mod mapped;
pub mod mappings;
pub mod memory_group;
pub mod noise;
pub mod numa;
pub mod nvme;
pub mod other_memory;
mod own_memory;
pub mod owner;
pub mod page_io;
pub mod page_map;
pub mod pageable;
pub mod parts;
pub mod poll;
pub mod proc_stat;
mod raw;
pub mod region;
pub mod relay;
pub mod rights;
pub mod ring;
pub mod run_files;
pub mod secret;
pub mod shared_words;
pub mod signals;
pub mod swap;
#[cfg(test)]
mod test_skip;
pub mod thread;
pub mod thread_words;
pub mod threads_left;
pub mod uffd;
pub mod usage;
pub mod vm_counters;
pub mod volume;
pub mod zstd;

/// An errno as the kernel gave it.
pub type Errno = rustix::io::Errno;

/// The symbolic name of an errno, such as `EIO`, for messages and records.
#[must_use]
pub fn errno_name(errno: i32) -> &'static str {
    const NAMES: [(i32, &str); 28] = [
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::ESRCH, "ESRCH"),
        (libc::EINTR, "EINTR"),
        (libc::EIO, "EIO"),
        (libc::ENXIO, "ENXIO"),
        (libc::EBADF, "EBADF"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EACCES, "EACCES"),
        (libc::EFAULT, "EFAULT"),
        (libc::EBUSY, "EBUSY"),
        (libc::EEXIST, "EEXIST"),
        (libc::ENODEV, "ENODEV"),
        (libc::EINVAL, "EINVAL"),
        (libc::ENFILE, "ENFILE"),
        (libc::EMFILE, "EMFILE"),
        (libc::EFBIG, "EFBIG"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::EROFS, "EROFS"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::ENODATA, "ENODATA"),
        (libc::ETIME, "ETIME"),
        (libc::EREMOTEIO, "EREMOTEIO"),
        (libc::EILSEQ, "EILSEQ"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::ETIMEDOUT, "ETIMEDOUT"),
        (libc::EDQUOT, "EDQUOT"),
    ];
    NAMES.iter().find(|&&(number, _)| number == errno).map_or("errno", |&(_, name)| name)
}

/// How many rows a terminal has, when the stream is one.
#[must_use]
pub fn terminal_rows(stream: impl rustix::fd::AsFd) -> Option<usize> {
    rustix::termios::tcgetwinsize(stream).ok().map(|size| usize::from(size.ws_row)).filter(|&rows| rows > 0)
}

/// How wide a terminal is, when the stream is one.
#[must_use]
pub fn terminal_columns(stream: impl rustix::fd::AsFd) -> Option<usize> {
    rustix::termios::tcgetwinsize(stream)
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|&columns| columns > 0)
}
