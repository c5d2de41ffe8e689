//! The side of who serves the children: those who call at the door, and what they are asked.

use super::{
    AT_ONCE, CONTENT, DONE, Door, HELLO, LATER, LOOK, OWN_BYTES, SEEN, Stretch, TAKE, VERDICT, YES,
    address_of, bytes_of, word,
};
use crate::Errno;
use crate::broker::{self, socket};
use crate::mappings::Mappings;
use crate::page_map::PageMap;
use crate::proc_stat::{descends, number_of};
use crate::secret::fill_with_random;
use crate::uffd::Userfault;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, accept_with, bind, listen, recv, recvmsg, send, sendmsg,
};
use rustix::process::geteuid;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a helper that belongs to no child is put up with: the news of its child may be yet to come.
const STRANGER: Duration = Duration::from_secs(10);

/// Those who call at the door.
#[derive(Debug)]
pub struct Callers {
    socket: OwnedFd,
    secret: u64,
    program: u32,
    waiting: Vec<Caller>,
}

#[derive(Debug)]
struct Caller {
    socket: OwnedFd,
    came: Instant,
    /// What it has said of itself.
    hello: Option<Hello>,
    /// Children that it does not belong to, and the one that it has yet to say something about.
    others: Vec<u32>,
    asked: Option<u32>,
}

/// What a helper says of itself.
#[derive(Debug)]
struct Hello {
    /// The memory that it needs itself.
    own: Range<u64>,
    view: Option<(Mappings, PageMap)>,
}

/// A bit for each, the first is the lowest.
fn bits(flags: impl Iterator<Item = bool>) -> u64 {
    flags.enumerate().fold(0, |bits, (index, flag)| bits | u64::from(flag) << index)
}

/// What a caller is at the moment.
enum Stage {
    Waits,
    Belongs(u32),
    Leaves,
}

impl Callers {
    /// Opens the door to the children of a process. Marks are made with `seed`.
    ///
    /// # Errors
    /// Without sockets, or random numbers.
    pub fn at(door: &Door, seed: u64, program: u32) -> Result<Self, Errno> {
        let mut random = [0; 16];
        fill_with_random(&mut random)?;
        let (name, secret) = (word(&random, 0), word(&random, 1));
        let socket = socket()?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        bind(&socket, &address_of(name)?)?;
        listen(&socket, 64)?;
        for (place, value) in [(&door.name, name), (&door.secret, secret), (&door.seed, seed)] {
            place.store(value, Ordering::Relaxed);
        }
        Ok(Self { socket, secret, program, waiting: Vec::new() })
    }

    /// Whether somebody is still to be brought to its child.
    #[must_use]
    pub fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Lets in who calls, and finds the children that they belong to among those that have no helper yet.
    pub fn bring(&mut self, children: &[(u32, &Userfault)]) -> Vec<(u32, Helper)> {
        while let Ok(socket) = accept_with(&self.socket, SocketFlags::CLOEXEC) {
            // The program may have changed its user, where who serves it stands apart.
            let is_known = socket_peercred(&socket)
                .is_ok_and(|peer| peer.uid == geteuid() || descends(number_of(peer.pid), self.program));
            if is_known && rustix::io::ioctl_fionbio(&socket, true).is_ok() {
                let came = Instant::now();
                self.waiting.push(Caller { socket, came, hello: None, others: Vec::new(), asked: None });
            }
        }
        let mut found = Vec::new();
        for mut caller in std::mem::take(&mut self.waiting) {
            match caller.go_on(self.secret, children) {
                Stage::Waits => self.waiting.push(caller),
                Stage::Belongs(child) => {
                    let Caller { socket, hello, .. } = caller;
                    found.extend(hello.map(|hello| (child, Helper { socket, hello })));
                }
                Stage::Leaves => {}
            }
        }
        found
    }
}

impl AsFd for Callers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Caller {
    fn go_on(&mut self, secret: u64, children: &[(u32, &Userfault)]) -> Stage {
        let mut bytes = [0; HELLO];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let read = match recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
            Ok(received) => Some(received.bytes),
            Err(Errno::AGAIN) => None,
            Err(_) => return Stage::Leaves,
        };
        match (read, self.asked) {
            (Some(HELLO), None) if self.hello.is_none() && word(&bytes, 0) == secret => {
                let start = word(&bytes, 1);
                let own = start..start.saturating_add(OWN_BYTES as u64);
                let view = view_by(&mut ancillary).or_else(|| view_from_outside(&self.socket));
                self.hello = Some(Hello { own, view });
            }
            (Some(VERDICT), Some(child)) if word(&bytes, 0) == YES => return Stage::Belongs(child),
            (Some(VERDICT), Some(child)) => {
                self.others.extend((word(&bytes, 0) != LATER).then_some(child));
                self.asked = None;
            }
            (Some(_), _) => return Stage::Leaves,
            (None, _) => {}
        }
        if self.came.elapsed() > STRANGER {
            return Stage::Leaves;
        }
        if let Some(hello) = &self.hello
            && self.asked.is_none()
            && let Some((child, userfault)) = children.iter().find(|(child, _)| !self.others.contains(child))
        {
            let page_map = hello.view.as_ref().map(|(_, page_map)| page_map.as_fd());
            if offer(&self.socket, userfault.as_fd(), page_map).is_err() {
                return Stage::Leaves;
            }
            self.asked = Some(*child);
        }
        Stage::Waits
    }
}

/// What a memory maps and holds, if all that shows it came along.
fn view_by(ancillary: &mut RecvAncillaryBuffer<'_>) -> Option<(Mappings, PageMap)> {
    let came = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let mut came = came.flatten();
    Some(view_of([came.next()?, came.next()?, came.next()?]))
}

fn view_of([mappings, page_map, statm]: [OwnedFd; 3]) -> (Mappings, PageMap) {
    (Mappings::seen_by(mappings), PageMap::seen_by(page_map, statm))
}

/// The same for a child that may not open them: it has restricted itself (Landlock), is where no /proc is
/// (chroot), or has changed its user, as this process may have.
fn view_from_outside(socket: &OwnedFd) -> Option<(Mappings, PageMap)> {
    let process = number_of(socket_peercred(socket).ok()?.pid);
    let view = view_of(broker::seen(process).or_else(|_| broker::view(socket.as_fd())).ok()?);
    // When it has ended, its number may be another's. As long as it has not, its end of the socket is there.
    let mut byte = [0; 1];
    let is_there = recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT) == Err(Errno::AGAIN);
    is_there.then_some(view)
}

fn offer(socket: &OwnedFd, userfault: BorrowedFd<'_>, page_map: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = std::iter::once(userfault).chain(page_map).collect();
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}

/// A child's helper.
#[derive(Debug)]
pub struct Helper {
    socket: OwnedFd,
    hello: Hello,
}

/// What a helper has done, a bit for each page that it was asked for, in that order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Pages that are no longer in place.
    pub took: u64,
    /// Those of them that are as their marks say.
    pub unchanged: u64,
    /// Others were not tried, as a change of the memory is to be read first.
    pub broke_off: bool,
}

/// A helper's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To [`Helper::ask`].
    Took(Taken),
    /// To [`Helper::look`]: pages of each stretch, a bit each.
    Saw(Vec<u64>),
}

impl Helper {
    /// The memory that it needs itself: its faults must be nobody's but the kernel's.
    #[must_use]
    pub fn own_memory(&self) -> Range<u64> {
        self.hello.own.clone()
    }

    /// What the child maps. None where it could not let that be seen.
    #[must_use]
    pub fn mappings(&self) -> Option<&Mappings> {
        self.hello.view.as_ref().map(|(mappings, _)| mappings)
    }

    /// Which pages of it are there, those that it shares among them. None as above.
    #[must_use]
    pub fn page_map(&self) -> Option<&PageMap> {
        self.hello.view.as_ref().map(|(_, page_map)| page_map)
    }

    /// Asks it to take pages out of place, at most [`AT_ONCE`]: addresses, and the marks of what is elsewhere
    /// of each. It is asked one thing at a time, and nothing that the child tells may be read meanwhile.
    ///
    /// # Errors
    /// It is gone.
    ///
    /// # Panics
    /// With more pages than that: a defect of the caller.
    pub fn ask(&mut self, pages: &[(u64, Option<u64>)]) -> Result<(), Errno> {
        let known = bits(pages.iter().map(|(_, mark)| mark.is_some()));
        self.send(TAKE, known, pages.iter().map(|&(address, mark)| (address, mark.unwrap_or(0))))
    }

    /// Asks which pages of stretches of memory the child has to itself: at most [`AT_ONCE`]. What the child
    /// tells has to be read meanwhile.
    ///
    /// # Errors
    /// It is gone.
    ///
    /// # Panics
    /// As [`Helper::ask`].
    pub fn look(&mut self, stretches: &[Stretch]) -> Result<(), Errno> {
        let copied = bits(stretches.iter().map(|it| it.copied));
        self.send(LOOK, copied, stretches.iter().map(|it| (it.address, it.pages.into())))
    }

    fn send(
        &mut self,
        kind: u64,
        known: u64,
        list: impl ExactSizeIterator<Item = (u64, u64)>,
    ) -> Result<(), Errno> {
        assert!(list.len() <= AT_ONCE);
        let mut words = [0; 3 + 2 * AT_ONCE];
        (words[0], words[1], words[2]) = (kind, list.len() as u64, known);
        for (index, (address, other)) in list.enumerate() {
            words[3 + index] = address;
            words[3 + AT_ONCE + index] = other;
        }
        send(&self.socket, bytes_of(words).as_flattened(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
            .map(drop)
    }

    /// What it has done, or none as long as it is at it. The content of pages that have changed is handed
    /// over as it comes, by the index of the page.
    ///
    /// # Errors
    /// It is gone.
    pub fn answer(&mut self, mut changed: impl FnMut(u32, &[u8])) -> Result<Option<Answer>, Errno> {
        let mut bytes = [0; CONTENT];
        loop {
            match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((DONE, _)) => {
                    let [took, unchanged, broke_off] = [0, 1, 2].map(|index| word(&bytes, index));
                    return Ok(Some(Answer::Took(Taken { took, unchanged, broke_off: broke_off != 0 })));
                }
                Ok((SEEN, _)) => {
                    return Ok(Some(Answer::Saw((0..AT_ONCE).map(|index| word(&bytes, index)).collect())));
                }
                Ok((CONTENT, _)) => changed(word(&bytes, 0) as u32, &bytes[8..]),
                Ok(_) => return Err(Errno::PIPE),
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl AsFd for Helper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
