//! Which threads of this process are left once its first one has ended: /proc/self/task, kept open, for a
//! program may come to a place without /proc (chroot) at any time.

use crate::Errno;
use crate::descriptor_limit::with_one_more;
use crate::proc_stat::field;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Dir, Mode, OFlags};

/// A thread that the kernel runs for a ring (io_uring): it ends with whose ring that is.
const IO_WORKER: u64 = 0x10;

/// Looks at the threads of this process.
#[derive(Debug)]
pub struct ThreadsLeft {
    all: OwnedFd,
    /// What the kernel says of the first one.
    first: OwnedFd,
}

impl ThreadsLeft {
    /// Opens both.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn open() -> Result<Self, Errno> {
        let process = rustix::process::getpid().as_raw_nonzero();
        let all = open_in(CWD, "/proc/self/task", OFlags::DIRECTORY)?;
        let first = open_in(&all, &format!("{process}/stat"), OFlags::empty())?;
        Ok(Self { all, first })
    }

    /// What the first thread ended with, when it has ended and `others` threads beside it have not.
    #[must_use]
    pub fn first_ended_beside(&self, others: usize) -> Option<i32> {
        let first = ThreadStat::read(&self.first)?;
        (first.has_ended && self.running()? == others).then_some(first.exit_code)
    }

    /// How many have not ended. None when that cannot be told now.
    fn running(&self) -> Option<usize> {
        let mut count = 0;
        for entry in with_one_more(|| Dir::read_from(&self.all)).ok()? {
            let entry = entry.ok()?;
            let Some(thread) = entry.file_name().to_str().ok().filter(|name| !name.starts_with('.')) else {
                continue;
            };
            // One that has ended meanwhile is not there any more.
            let stat = open_in(&self.all, &format!("{thread}/stat"), OFlags::empty());
            let stat = match stat {
                Err(Errno::NOENT) => continue,
                stat => ThreadStat::read(&stat.ok()?)?,
            };
            count += usize::from(!stat.has_ended && !stat.is_io_worker);
        }
        Some(count)
    }
}

fn open_in(folder: impl AsFd, path: &str, more: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | more;
    with_one_more(|| rustix::fs::openat(&folder, path, flags, Mode::empty()))
}

/// What the kernel says of a thread.
#[derive(Debug, PartialEq, Eq)]
struct ThreadStat {
    has_ended: bool,
    is_io_worker: bool,
    exit_code: i32,
}

impl ThreadStat {
    fn read(stat: &OwnedFd) -> Option<Self> {
        let mut line = [0; 1024];
        let got = rustix::io::pread(stat, &mut line, 0).ok()?;
        Self::parse(&String::from_utf8_lossy(&line[..got]))
    }

    fn parse(stat: &str) -> Option<Self> {
        let status: i32 = field(stat, 52)?.parse().ok()?;
        Some(Self {
            has_ended: matches!(field(stat, 3)?, "Z" | "X"),
            is_io_worker: field(stat, 9)?.parse::<u64>().ok()? & IO_WORKER != 0,
            exit_code: status >> 8 & 0xff,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_is_counted_and_the_first_has_not_ended() {
        let left = ThreadsLeft::open().unwrap();
        let before = left.running().unwrap();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv());
        // Other tests have threads of their own: there are some in any case.
        assert!(before >= 1 && left.running().unwrap() >= 2);
        assert_eq!(left.first_ended_beside(1), None);
        drop(end);
        thread.join().unwrap().unwrap_err();
    }

    #[test]
    fn state_flags_and_code_are_read_where_they_stand() {
        let line = |state: &str, flags: u32, code: u32| {
            let numbers = |count: usize| " 1".repeat(count);
            format!("7 (a) b) {state}{} {flags}{} {code}\n", numbers(5), numbers(42))
        };
        let stat = |has_ended, is_io_worker, exit_code| ThreadStat { has_ended, is_io_worker, exit_code };
        assert_eq!(ThreadStat::parse(&line("Z", 0x40_0040, 0x500)), Some(stat(true, false, 5)));
        assert_eq!(ThreadStat::parse(&line("S", 0x40_0050, 0)), Some(stat(false, true, 0)));
        assert_eq!(ThreadStat::parse("7 (a) S 1 2"), None);
    }
}
