//! What stands in /proc/PID/stat and in that of each thread, and in /proc/self/status; which there are.

use crate::descriptor_limit::with_one_more;
use crate::uffd::PAGE;
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::process::Pid;
use std::fs::File;
use std::io::Read;
use std::mem::MaybeUninit;
use std::str::FromStr;

/// The entries of a folder of /proc that are numbers: processes, threads or descriptors.
///
/// The C library's `opendir` is not asked: it takes memory of the program's allocator, which may not be
/// ready yet when the pager's library starts (that of GNU Common Lisp is in `main`).
pub fn numbers_in<T: FromStr>(folder: &str) -> impl Iterator<Item = T> + use<T> {
    let mut numbers = Vec::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if let Ok(folder) = with_one_more(|| rustix::fs::open(folder, flags, Mode::empty())) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut entries = RawDir::new(folder, &mut buffer);
        while let Some(Ok(entry)) = entries.next() {
            numbers.extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<T>().ok()));
        }
    }
    numbers.into_iter()
}

/// A field from the third on, counted behind the command's name, which may hold anything but its last `)`.
pub(crate) fn field(stat: &str, number: usize) -> Option<&str> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(number.checked_sub(3)?)
}

/// The field that says whose child a process is, counted as proc(5) does.
const PARENT: usize = 4;

/// Whether a process is another's child, or a child of one.
pub(crate) fn descends(mut child: u32, process: u32) -> bool {
    // How many generations it may be away.
    for _ in 0..64 {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        match field(&stat, PARENT).and_then(|parent| parent.parse().ok()) {
            Some(parent) if parent == process => return true,
            Some(parent) if parent > 1 => child = parent,
            _ => return false,
        }
    }
    false
}

/// As the kernel numbers it.
pub(crate) fn number_of(process: Pid) -> u32 {
    process.as_raw_nonzero().get().cast_unsigned()
}

/// What stands behind `name` and its colon in the status of this process. None where the kernel does not
/// tell.
pub(crate) fn own_status(name: &str) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let fd = with_one_more(|| rustix::fs::open("/proc/self/status", flags, Mode::empty())).ok()?;
    let mut status = Vec::new();
    File::from(fd).read_to_end(&mut status).ok()?;
    value_in(&status, name)
}

/// The command's name, which comes first, may be no text.
fn value_in(status: &[u8], name: &str) -> Option<String> {
    let mut lines = status.split(|&byte| byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b":"))?;
    Some(std::str::from_utf8(value).ok()?.trim().to_owned())
}

/// The same of a line in KiB, in bytes.
pub(crate) fn own_status_bytes(name: &str) -> Option<u64> {
    own_status(name).as_deref().and_then(bytes_of)
}

fn bytes_of(value: &str) -> Option<u64> {
    value.strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

/// How many pages of shared memory this process has in DRAM (RssShmem); one that is mapped twice counts
/// twice. None where the kernel does not tell.
#[must_use]
pub fn shared_memory_pages() -> Option<u64> {
    own_status_bytes("RssShmem").map(|bytes| bytes / PAGE)
}

/// The PID namespace of this process, by which numbers of processes mean something; none without /proc.
#[must_use]
pub fn pid_namespace() -> Option<u64> {
    rustix::fs::stat(c"/proc/thread-self/ns/pid").ok().map(|about| about.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_status_are_found_by_name() {
        let status = b"Name:\ta\xff\nVmRSS:\t 9 kB\nRssShmem:\t     412 kB\nVmData:\t 7 kB\nSeccomp:\t2\n";
        let bytes = |name| value_in(status, name).as_deref().and_then(bytes_of);
        assert_eq!(bytes("RssShmem"), Some(412 << 10));
        assert_eq!(value_in(status, "Seccomp").as_deref(), Some("2"));
        assert_eq!(bytes("Seccomp"), None);
        assert_eq!(value_in(status, "Rss"), None);
        assert_eq!(value_in(b"RssShmem:\t x kB\n", "RssShmem").as_deref().and_then(bytes_of), None);
        assert_eq!(value_in(b"Name:\ta\n", "RssShmem"), None);
    }

    #[test]
    fn shared_memory_is_counted() {
        let before = shared_memory_pages().expect("told");
        let size = 4 << 20;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a new mapping touches nothing of anybody's, and nobody else knows of it.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0) };
        assert!(base != libc::MAP_FAILED);
        let with = shared_memory_pages().expect("told");
        // SAFETY: as above.
        unsafe { libc::munmap(base, size) };
        assert!(with >= before + 1000, "{with} and {before}");
    }
}
