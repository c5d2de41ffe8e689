//! Waiting for any of many connections, to the microsecond.
//!
//! The kernel's list of ready files (epoll) takes its time limit in milliseconds on older kernels; here the
//! wait is a `ppoll` on that list, whose limit is in nanoseconds on all of them.

use rustix::event::epoll;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

/// What a connection is ready for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The number it was added with.
    pub token: u64,
    /// Something can be read, or it was closed.
    pub readable: bool,
    /// Something can be written.
    pub writable: bool,
}

/// A set of connections to wait for.
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poller").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

impl Poller {
    /// A set for about `count` connections.
    ///
    /// # Errors
    /// When the kernel has no more files to give.
    pub fn new(count: usize) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, events: Vec::with_capacity(count.max(8)) })
    }

    /// Adds a connection under a number; it is told when it can be read, and once each time it turns
    /// writable.
    ///
    /// # Errors
    /// When it is no file that can be waited for.
    pub fn add(&self, connection: impl AsFd, token: u64) -> io::Result<()> {
        let flags =
            epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        Ok(epoll::add(&self.epoll, connection, epoll::EventData::new_u64(token), flags)?)
    }

    /// Waits until a connection is ready or the time is up, and gives what is ready to `each`.
    ///
    /// A signal ends the wait early, as if the time were up.
    ///
    /// # Errors
    /// When the kernel refuses, which it has no reason to.
    pub fn wait(&mut self, limit: Duration, mut each: impl FnMut(Ready)) -> io::Result<()> {
        if !limit.is_zero() {
            let limit = Timespec {
                tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: limit.subsec_nanos().into(),
            };
            let mut one = [PollFd::new(&self.epoll, PollFlags::IN)];
            match poll(&mut one, Some(&limit)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.events.clear();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&now)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let closed = epoll::EventFlags::HUP | epoll::EventFlags::RDHUP | epoll::EventFlags::ERR;
        for event in self.events.drain(..) {
            let flags = event.flags;
            each(Ready {
                token: event.data.u64(),
                readable: flags.intersects(epoll::EventFlags::IN | closed),
                writable: flags.intersects(epoll::EventFlags::OUT),
            });
        }
        Ok(())
    }
}

/// Lets this thread's timers end when they are due, not up to 50 us later, as the kernel does for all others.
///
/// # Errors
/// When the kernel refuses.
pub fn precise_timers() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    #[test]
    fn tells_who_is_ready_and_when_time_is_up() {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut poller = Poller::new(1).unwrap();
        poller.add(&near, 7).unwrap();
        let mut seen = Vec::new();
        poller.wait(Duration::ZERO, |ready| seen.push(ready)).unwrap();
        assert_eq!(seen, [Ready { token: 7, readable: false, writable: true }]);
        let start = Instant::now();
        poller.wait(Duration::from_millis(5), |_| panic!("nothing is new")).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(5));
        far.write_all(b"x").unwrap();
        seen.clear();
        poller.wait(Duration::from_secs(5), |ready| seen.push(ready)).unwrap();
        assert!(seen[0].readable, "{seen:?}");
        let mut byte = [0];
        near.read_exact(&mut byte).unwrap();
        drop(far);
        seen.clear();
        poller.wait(Duration::from_secs(5), |ready| seen.push(ready)).unwrap();
        assert!(seen[0].readable, "closing is something to read");
    }
}
