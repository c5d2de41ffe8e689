//! Getting memory out of a group from outside, in the kernel's own order, a bounded time at a time.
//!
//! Version 2 has a file for it, which takes a number of bytes. Version 1 has one that empties the whole group
//! and gives up when a signal is pending: a timer of this thread sends one.
//! How much is to be got out when, and what to do when nothing comes, is the caller's business.

use super::{GroupError, MemoryGroup, Version};
use std::fs::{File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How a slice of reclaiming ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SliceEnd {
    /// Its time was up, or what was asked for is out.
    Done,
    /// The kernel found nothing more that it could get out: swap is full, or all that is left is in use.
    Nothing,
}

/// The files through which a group is looked at and its memory got out.
#[derive(Debug)]
pub struct ReclaimFiles {
    version: Version,
    usage: File,
    limit: File,
    trigger: File,
    trigger_path: PathBuf,
    stat: Option<File>,
}

impl MemoryGroup {
    /// Opens the files through which the group's memory is got out.
    ///
    /// # Errors
    /// When this kernel has no such file: version 2 has it since Linux 5.19.
    pub fn reclaim_files(&self) -> Result<ReclaimFiles, GroupError> {
        ReclaimFiles::open(self.path(), self.version)
    }
}

impl ReclaimFiles {
    fn open(folder: &Path, version: Version) -> Result<Self, GroupError> {
        let (usage, limit, trigger) = match version {
            Version::V1 => ("memory.usage_in_bytes", "memory.limit_in_bytes", "memory.force_empty"),
            Version::V2 => ("memory.current", "memory.max", "memory.reclaim"),
        };
        let open = |name: &str, writes: bool| {
            let path = folder.join(name);
            let opened = OpenOptions::new().read(!writes).write(writes).open(&path);
            opened.map_err(|error| GroupError::Io { path, error })
        };
        Ok(Self {
            version,
            usage: open(usage, false)?,
            limit: open(limit, false)?,
            trigger: open(trigger, true)?,
            trigger_path: folder.join(trigger),
            stat: open("memory.stat", false).ok(),
        })
    }
}

/// Looks at a group and reclaims from it. It belongs to the thread that made it, whose timer it has.
#[derive(Debug)]
pub struct Reclaimer {
    files: ReclaimFiles,
    timer: Timer,
}

impl Reclaimer {
    /// Reclaims in the calling thread from now on.
    ///
    /// # Errors
    /// When there is no timer for this thread.
    pub fn new(files: ReclaimFiles) -> io::Result<Self> {
        Ok(Self { files, timer: Timer::new()? })
    }

    /// Bytes charged to the group now.
    ///
    /// # Errors
    /// When the kernel does not tell: the group is gone.
    pub fn usage_bytes(&self) -> io::Result<u64> {
        number(&self.files.usage)
    }

    /// The limit that the group has now; `u64::MAX` when there is none.
    ///
    /// # Errors
    /// When the kernel does not tell: the group is gone.
    pub fn limit_bytes(&self) -> io::Result<u64> {
        number(&self.files.limit)
    }

    /// Has the kernel bring its counters of the group up to date.
    ///
    /// It does so by itself only every two seconds, and decides by them whether pages in use are looked at
    /// again. A group whose unused pages run out in between is taken for one with nothing left to reclaim,
    /// and its processes are killed, with swap free (seen on Linux 6.18 also without anybody else reclaiming,
    /// in groups without page cache).
    pub fn refresh(&self) {
        if let Some(stat) = &self.files.stat {
            // Whoever reads them gets them fresh; what they are is no matter here.
            let _ = stat.read_at(&mut [0; 4096], 0);
        }
    }

    /// Gets memory out, as much as `bytes` (version 2; version 1 knows only the time) within about `time`:
    /// a page that is being written is waited for beyond it.
    ///
    /// # Errors
    /// What the kernel refuses: the group is gone.
    pub fn slice(&self, bytes: u64, time: Duration) -> Result<SliceEnd, GroupError> {
        let files = &self.files;
        let text = match files.version {
            Version::V1 => "0".to_owned(),
            Version::V2 => bytes.max(4096).to_string(),
        };
        let armed = self.timer.arm(time);
        let written = armed.and_then(|()| files.trigger.write_at(text.as_bytes(), 0));
        // A timer that cannot be disarmed only interrupts what is restarted.
        let _ = self.timer.arm(Duration::ZERO);
        let nothing = match written {
            // Version 1 goes on until it is interrupted, or finds nothing many times in a row.
            Ok(_) => files.version == Version::V1,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => false,
            // Version 2 so says that it got out less than was asked for.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            Err(error) => return Err(GroupError::Io { path: files.trigger_path.clone(), error }),
        };
        Ok(if nothing { SliceEnd::Nothing } else { SliceEnd::Done })
    }
}

/// The file is a number of bytes, or no limit; nothing behind its line counts.
pub(super) fn number(file: &File) -> io::Result<u64> {
    let mut buffer = [0; 64];
    let length = file.read_at(&mut buffer, 0)?;
    let text = std::str::from_utf8(&buffer[..length]).unwrap_or("").lines().next().unwrap_or("").trim();
    if text == "max" {
        return Ok(u64::MAX);
    }
    text.parse().map_err(|_| io::Error::other(format!("'{text}' is no number of bytes")))
}

/// A timer whose signal interrupts system calls of the thread that made it, again and again: one that comes
/// just before the call would be lost.
#[derive(Debug)]
pub(super) struct Timer {
    id: libc::timer_t,
    /// It belongs to its thread.
    _here: PhantomData<*const ()>,
}

impl Timer {
    pub(super) fn new() -> io::Result<Self> {
        let signal = libc::SIGRTMIN() + 5;
        // SAFETY: all zeroes is a valid sigaction (default action, no flags, empty mask).
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // Without SA_RESTART, so that calls end.
        action.sa_sigaction = wake as *const () as usize;
        // SAFETY: the handler has the plain signature and does nothing; no other part of this program uses
        // this signal.
        if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: all zeroes is a valid sigevent, filled in below.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let mut id: libc::timer_t = std::ptr::null_mut();
        // SAFETY: `event` and `id` live through the call.
        if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut id) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { id, _here: PhantomData })
    }

    /// Lets it ring every `time` from now on; zero: no more.
    pub(super) fn arm(&self, time: Duration) -> io::Result<()> {
        let time = libc::timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos().into() };
        let when = libc::itimerspec { it_interval: time, it_value: time };
        // SAFETY: the timer is ours until it is dropped; `when` lives through the call.
        match unsafe { libc::timer_settime(self.id, 0, &raw const when, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: made by `new`, deleted once.
        unsafe { libc::timer_delete(self.id) };
    }
}

extern "C" fn wake(_: libc::c_int) {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_group::Place;
    use crate::test_skip::skip;
    use std::time::Instant;

    /// A folder with the files of a group, as plain files.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
        folder
    }

    #[test]
    fn version_2_is_asked_for_bytes() {
        let folder =
            folder(&[("memory.current", "4097000\n"), ("memory.max", "max\n"), ("memory.reclaim", "")]);
        let files = ReclaimFiles::open(folder.path(), Version::V2).unwrap();
        let reclaimer = Reclaimer::new(files).unwrap();
        assert_eq!(
            (reclaimer.usage_bytes().unwrap(), reclaimer.limit_bytes().unwrap()),
            (4_097_000, u64::MAX)
        );
        assert_eq!(reclaimer.slice(123_456, Duration::from_millis(1)).unwrap(), SliceEnd::Done);
        assert_eq!(std::fs::read_to_string(folder.path().join("memory.reclaim")).unwrap(), "123456");
    }

    #[test]
    fn a_kernel_without_the_file_is_told_of() {
        let folder = folder(&[("memory.current", "1\n"), ("memory.max", "2\n")]);
        let error = ReclaimFiles::open(folder.path(), Version::V2).unwrap_err().to_string();
        assert!(error.contains("memory.reclaim"), "{error}");
    }

    #[test]
    fn a_timer_ends_a_call_that_would_wait() {
        let timer = Timer::new().unwrap();
        let (read, _write) = io::pipe().unwrap();
        timer.arm(Duration::from_millis(5)).unwrap();
        let mut byte = [0];
        assert_eq!(rustix::io::read(&read, &mut byte), Err(rustix::io::Errno::INTR));
        timer.arm(Duration::ZERO).unwrap();
    }

    #[test]
    fn a_group_without_anything_to_reclaim_says_so() {
        const NAME: &str = "memory_group::reclaim::tests::a_group_without_anything_to_reclaim_says_so";
        let place = match Place::find() {
            Ok(place) => place,
            Err(error) => return skip(NAME, &error.to_string()),
        };
        let group = MemoryGroup::create(&place, 8 << 20).unwrap();
        let files = match group.reclaim_files() {
            Ok(files) => files,
            Err(error) => return skip(NAME, &error.to_string()),
        };
        let reclaimer = Reclaimer::new(files).unwrap();
        assert_eq!(reclaimer.limit_bytes().unwrap(), 8 << 20);
        assert!(reclaimer.usage_bytes().unwrap() <= 8 << 20);
        let start = Instant::now();
        assert_eq!(reclaimer.slice(1 << 20, Duration::from_secs(20)).unwrap(), SliceEnd::Nothing);
        assert!(start.elapsed() < Duration::from_secs(15), "an empty group keeps nobody");
        group.remove().unwrap();
        assert!(reclaimer.usage_bytes().is_err() || reclaimer.slice(1, Duration::from_millis(1)).is_err());
    }
}
