//! Who made a thing that outlives its process: a tag of process number and start time, carried in the name.
//!
//! A number alone may have been given to another process since; together with the start time it names one
//! process of one boot. So a later run can tell what a killed one left behind from what is in use. From
//! another PID namespace (a container's) the process is not seen, or another one is under its number: so its
//! things are locked as long as it lives as well.

use crate::proc_stat::field;
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// One process of this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pid: u32,
    /// Clock ticks between boot and the start of the process.
    started: u64,
}

impl Owner {
    /// This process.
    ///
    /// # Errors
    /// When /proc does not show it.
    pub fn this_process() -> std::io::Result<Self> {
        Self::process(std::process::id())
    }

    /// A process by its number.
    ///
    /// # Errors
    /// When /proc does not show it.
    pub fn process(pid: u32) -> std::io::Result<Self> {
        let path = format!("/proc/{pid}/stat");
        let stat = std::fs::read_to_string(&path)?;
        let started =
            start_of(&stat).ok_or_else(|| std::io::Error::other(format!("no start time in {path}")))?;
        Ok(Self { pid, started })
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Ends it at once, if it still runs.
    pub fn kill(&self) {
        if self.is_alive()
            && let Some(pid) = rustix::process::Pid::from_raw(self.pid as i32)
        {
            // It may end by itself in between.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    /// Whether the process of this number runs and has not begun to end. Its first thread may have ended
    /// before the others.
    #[must_use]
    pub fn goes_on(pid: u32) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut stats = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
        stats.any(|stat| !is_ending(&stat))
    }

    /// The owner at the end of a name such as `overdrive-page-123-4567`.
    #[must_use]
    pub fn in_name(name: &str, prefix: &str) -> Option<Self> {
        let at = name.rfind(prefix)?;
        let (pid, started) = name[at + prefix.len()..].split_once('-')?;
        Some(Self { pid: pid.parse().ok()?, started: started.parse().ok()? })
    }

    /// Whether it still runs. In doubt (its state cannot be read) it does. One that has ended and that its
    /// parent has not asked about yet does not.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        match std::fs::read_to_string(format!("/proc/{}/stat", self.pid)) {
            Ok(stat) if has_ended(&stat) => false,
            Ok(stat) => start_of(&stat).is_none_or(|started| started == self.started),
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.pid, self.started)
    }
}

/// A lock on a file or folder that ends with this process, however that ends.
#[derive(Debug)]
pub(crate) struct Held(#[expect(dead_code, reason = "it is open as long as this lives")] File);

impl Held {
    /// Takes it. None where nothing can be locked: then the name alone tells.
    pub(crate) fn take(path: &Path) -> Option<Self> {
        let file = open(path).ok()?;
        file.try_lock().ok().map(|()| Self(file))
    }

    /// Whether a process has taken it.
    pub(crate) fn is_held(path: &Path) -> bool {
        let Ok(file) = open(path) else { return false };
        // Who looks shares: two that look at once do not take each other for owners.
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).custom_flags(crate::file::own_file_flags()).open(path)
}

fn start_of(stat: &str) -> Option<u64> {
    field(stat, 22)?.parse().ok()
}

/// Whether it has ended, or the kernel is taking it down (`PF_EXITING` among its flags).
fn is_ending(stat: &str) -> bool {
    const PF_EXITING: u64 = 4;
    let flags = field(stat, 9).and_then(|flags| flags.parse::<u64>().ok());
    has_ended(stat) || flags.is_some_and(|flags| flags & PF_EXITING != 0)
}

/// Whether it has ended with all its threads: while one of them is still at work, the first may have ended.
fn has_ended(stat: &str) -> bool {
    let threads = field(stat, 20).and_then(|count| count.parse::<u64>().ok());
    matches!(field(stat, 3), Some("Z" | "X")) && threads.is_some_and(|count| count <= 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_owner() {
        let me = Owner::this_process().unwrap();
        assert!(me.is_alive());
        let name = format!("/a/b/overdrive-page-{me}");
        assert_eq!(Owner::in_name(&name, "overdrive-page-"), Some(me));
        assert_eq!(Owner::in_name("overdrive-page-x-1", "overdrive-page-"), None);
        assert_eq!(Owner::in_name("something", "overdrive-page-"), None);
    }

    #[test]
    fn a_process_number_given_again_is_somebody_else() {
        let me = Owner::this_process().unwrap();
        assert!(!Owner { started: me.started + 1, ..me }.is_alive());
        assert!(!Owner { pid: u32::MAX - 1, started: 1 }.is_alive());
    }

    #[test]
    fn one_that_was_killed_and_not_asked_about_does_not_run() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let owner = Owner::process(child.id()).unwrap();
        assert!(owner.is_alive());
        child.kill().unwrap();
        let start = std::time::Instant::now();
        while owner.is_alive() && start.elapsed().as_secs() < 60 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let state = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        assert!(!owner.is_alive() && has_ended(&state), "{state}");
        child.wait().unwrap();
        let behind =
            |state: &str, threads: u32| format!("1 (a) {state} {} {threads} 0 5 6", ["0"; 16].join(" "));
        assert!(has_ended(&behind("Z", 1)));
        assert!(!has_ended(&behind("Z", 3)) && !has_ended(&behind("S", 1)));
        assert_eq!(start_of(&behind("S", 1)), Some(5));
    }

    #[test]
    fn what_is_held_is_seen_by_all_who_look() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!Held::is_held(folder.path()) && !Held::is_held(Path::new("/no/such")));
        let held = Held::take(folder.path()).unwrap();
        assert!(Held::is_held(folder.path()) && Held::is_held(folder.path()));
        assert!(Held::take(folder.path()).is_none());
        drop(held);
        assert!(!Held::is_held(folder.path()));
    }

    #[test]
    fn a_hostile_command_name_does_not_shift_the_fields() {
        let fields: Vec<String> = (3..30).map(|n| n.to_string()).collect();
        let stat = format!("1 (a) b (c)) {}", fields.join(" "));
        assert_eq!(start_of(&stat), Some(22));
    }

    extern "C" fn waits(_: *mut std::ffi::c_void) -> *mut std::ffi::c_void {
        // SAFETY: only waits; the alarm ends it.
        unsafe { libc::pause() };
        std::ptr::null_mut()
    }

    #[test]
    fn a_process_goes_on_when_only_its_first_thread_has_ended() {
        // SAFETY: the child makes a thread and ends its own; the C library can do the former after a fork. An
        // alarm ends it if this test does not.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::alarm(30);
                let mut thread = std::mem::zeroed();
                libc::pthread_create(&raw mut thread, std::ptr::null(), waits, std::ptr::null_mut());
                libc::syscall(libc::SYS_exit, 0);
            }
            child
        };
        let pid = u32::try_from(child).unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        while field(&state(), 3) != Some("Z") {
            std::thread::yield_now();
        }
        assert!(Owner::goes_on(pid));
        // SAFETY: the child is this test's own.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        assert!(!Owner::goes_on(pid));
    }
}
