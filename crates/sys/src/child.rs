//! Child processes that cannot outlive us, and that are in their memory group before they use any memory.

use crate::memory_group::{GroupError, MemoryGroup};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Starts a command in `group`. The kernel kills it when the calling *thread* ends, so call this from one
/// that stays.
///
/// # Errors
/// When the group cannot be entered or the program cannot be started.
pub fn spawn(command: &mut Command, group: Option<&MemoryGroup>) -> Result<Child, GroupError> {
    let program = std::path::PathBuf::from(command.get_program());
    let door = group.map(MemoryGroup::door).transpose()?;
    let us = Pid::from_raw(std::process::id() as i32);
    let enter = move || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // Whoever was our child when we died before that call has another parent now.
        if getppid() != us {
            return Err(io::Error::from(rustix::io::Errno::SRCH));
        }
        if let Some(door) = &door {
            // SAFETY: the descriptor is open: `door` is owned by this closure, which the command keeps until
            // after the start. One write of one byte allocates nothing and takes no lock.
            if unsafe { libc::write(door.as_raw_fd(), b"0".as_ptr().cast(), 1) } != 1 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes three system calls (prctl, getppid, write), all of
    // which are safe to call there; it allocates nothing and touches no lock of the parent.
    unsafe { command.pre_exec(enter) };
    command.spawn().map_err(|error| GroupError::Io { path: program, error })
}

/// Asks a child to end, waits for that, and kills it when it does not.
pub fn end(child: &mut Child, patience: Duration) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        // It may have ended already: then there is nothing to ask.
        let _ = rustix::process::kill_process(pid, Signal::TERM);
    }
    let start = Instant::now();
    while start.elapsed() < patience {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_group::Place;
    use crate::test_skip::skip;

    #[test]
    fn a_child_dies_with_the_thread_that_started_it() {
        let mut child =
            std::thread::spawn(|| spawn(Command::new("sleep").arg("60"), None).unwrap()).join().unwrap();
        let start = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < Duration::from_secs(10), "it still runs");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_child_starts_inside_its_group() {
        let place = match Place::find() {
            Ok(place) => place,
            Err(error) => {
                return skip("child::tests::a_child_starts_inside_its_group", &error.to_string());
            }
        };
        let fleet = MemoryGroup::create_fleet(&place, "child-test", Some(64 << 20)).unwrap();
        let group = fleet.child("one").unwrap();
        let mut child = spawn(Command::new("sleep").arg("60"), Some(&group)).unwrap();
        let members = std::fs::read_to_string(group.path().join("cgroup.procs")).unwrap();
        assert_eq!(members.trim(), child.id().to_string());
        end(&mut child, Duration::from_secs(5));
        assert!(child.try_wait().unwrap().is_some());
        assert!(spawn(&mut Command::new("/no/such/program"), None).is_err());
    }
}
