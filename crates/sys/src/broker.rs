//! Who started a run does for its processes what they may not do themselves: a program that has changed its
//! user, gave up its rights or sees another root (chroot) may neither open the run's files nor follow its
//! children.
//!
//! All processes of a run inherit the channel: one end of a pair of sockets, of which the broker has the
//! other. No other user, root or network hides it. Who has closed it, as many do that start programs, writes
//! to a socket with a name, which only another network hides, or to one in the run's directory, which is for
//! the user who started the run. As everybody can list names, a request says a secret, which the run's
//! processes are told.
//!
//! With the request comes a socket for what follows: the broker sends the run's files, and the process's own
//! page map, which one that has changed its user may not open either. The process makes a userfaultfd, which
//! only itself can do, and sends it. The broker asks the kernel for its features, among them that forks are
//! told, for which the kernel looks at the rights of who asks. Later it may want to see what a child of the
//! process maps and holds, which is as closed to it: it sends the socket by which that child's helper called.

use crate::Errno;
use crate::file::{RUN_DESCRIPTORS_FROM, hand_down, identity};
use crate::helper::address_of;
use crate::page_map::{self, PageMap};
use crate::proc_stat::{descends, number_of};
use crate::rights;
use crate::run_files::{RunFiles, RunPlaces};
use crate::secret::fill_with_random;
use crate::uffd::{Forks, Userfault, UserfaultError, handshake, open_by, open_device, wanted_features};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_passcred, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect, recvmsg,
    sendmsg, socket_with, socketpair,
};
use rustix::thread::CapabilitySet;
use std::fmt;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::path::Path;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;

/// What it takes to be asked by processes of any user. What is opened for them with no more than that shows
/// them no more than they would see had they been let: not where in the machine a page lies, say.
const RIGHTS: CapabilitySet =
    CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_OVERRIDE).union(CapabilitySet::DAC_READ_SEARCH);
/// A process of the run may take this long to go on: others wait meanwhile.
const STEP: Duration = Duration::from_secs(1);
/// So long a process waits for the broker, which has others to serve.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most descriptors of one message.
const TOGETHER: usize = 5;
/// What comes along where it is there, a bit each.
const LEASES: u64 = 1;
const DEVICE: u64 = 2;
/// What is asked for.
const GRANT: u64 = 0;
const VIEW: u64 = 1;
/// Who serves faults waits this long to see a child.
const GLANCE: Duration = Duration::from_millis(50);

/// The broker's side.
#[derive(Debug)]
pub struct Broker {
    /// Where it is asked.
    ends: Vec<OwnedFd>,
    secret: u64,
}

/// The other end, which processes inherit that are started while this is kept.
#[derive(Debug)]
pub struct OpenChannel {
    channel: Channel,
    _held: OwnedFd,
}

/// What a process needs to know to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channel {
    /// Its descriptor.
    number: i32,
    /// Which socket that is, as by now it may be something else.
    inode: u64,
    /// Of the socket with a name.
    name: u64,
    /// Says that a request is one.
    secret: u64,
}

/// What a process gets.
#[derive(Debug)]
pub struct Grant {
    /// The run's files.
    pub files: RunFiles,
    /// The file of its counters.
    pub counters: File,
    /// Where its pages are.
    pub page_map: PageMap,
    /// By which its faults are handed over.
    pub userfault: Userfault,
}

/// The socket in the run's directory.
const CALLS: &str = "broker";

/// Opens the channel of a run, and the sockets for those who have closed it where that can be done.
///
/// # Errors
/// The kernel's errno: EINVAL where this process may not have so many descriptors.
pub fn open(folder: &Path) -> Result<(Broker, OpenChannel), Errno> {
    let (requests, theirs) = pair()?;
    set_socket_passcred(&requests, true)?;
    let held = hand_down(&theirs)?;
    let number = held.as_raw_fd();
    let (_, inode) = identity(number).ok_or(Errno::BADF)?;
    let channel = Channel { number, inode, name: random()?, secret: random()? };
    let named = address_of(channel.name).and_then(|address| letterbox(&address));
    let ends = std::iter::once(requests).chain(named).chain(with_address(folder, letterbox)).collect();
    Ok((Broker { ends, secret: channel.secret }, OpenChannel { channel, _held: held }))
}

fn random() -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    fill_with_random(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Where requests come in one at a time, from whomever.
fn letterbox(address: &SocketAddrUnix) -> Result<OwnedFd, Errno> {
    let socket = post_socket()?;
    set_socket_passcred(&socket, true)?;
    bind(&socket, address)?;
    Ok(socket)
}

fn post_socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}

/// The address of the socket in a run's directory, whose own path may be too long for one.
fn with_address<T>(
    folder: &Path,
    work: impl FnOnce(&SocketAddrUnix) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    work(&SocketAddrUnix::new(format!("/proc/thread-self/fd/{}/{CALLS}", folder.as_raw_fd()))?)
}

impl OpenChannel {
    /// What processes are to be told.
    #[must_use]
    pub fn channel(&self) -> Channel {
        self.channel
    }
}

impl Broker {
    /// Serves on the calling thread, which keeps no more rights than that takes, for as long as somebody can
    /// ask: what each process gets is opened where it would open it itself.
    pub fn serve(self, places: &RunPlaces) {
        rights::keep_only(RIGHTS);
        let Self { mut ends, secret } = self;
        while !ends.is_empty() {
            let mut polled: Vec<_> = ends.iter().map(|end| PollFd::new(end, PollFlags::IN)).collect();
            if retry_on_intr(|| poll(&mut polled, None)).is_err() {
                return;
            }
            let told: Vec<_> = polled.iter().map(PollFd::revents).collect();
            let mut told = told.into_iter();
            ends.retain(|end| {
                let told = told.next().unwrap_or(PollFlags::empty());
                if told.is_empty() {
                    return true;
                }
                let Some(asked) = next(end, secret) else { return !told.contains(PollFlags::HUP) };
                // One that has gone, or asks for what it gets not, is no concern of the others.
                let _ = match &asked.child {
                    Some(child) => show(&asked.socket, asked.process, child),
                    None => answer(&asked.socket, asked.process, places),
                };
                true
            });
        }
    }
}

/// Who asks, the socket to answer by, and that of a child which is to be seen.
struct Asked {
    process: u32,
    socket: OwnedFd,
    child: Option<OwnedFd>,
}

/// None where it cannot be told who asks, or nobody does who knows the secret.
fn next(end: &OwnedFd, secret: u64) -> Option<Asked> {
    let request = receive(end.as_fd()).ok()??;
    let mut descriptors = request.descriptors.into_iter();
    let (process, socket) = (request.process?, descriptors.next()?);
    let child = if request.word == VIEW { Some(descriptors.next()?) } else { None };
    (request.head == secret).then_some(Asked { process, socket, child })
}

/// Shows a process what a child of its maps and holds.
fn show(socket: &OwnedFd, process: u32, child: &OwnedFd) -> Result<(), Errno> {
    let caller = number_of(socket_peercred(child)?.pid);
    let view = if descends(caller, process) { seen(caller) } else { Err(Errno::PERM) };
    match view {
        Ok(view) => send(socket.as_fd(), [0; 2], &view.each_ref().map(AsFd::as_fd)),
        Err(errno) => refuse(socket, errno),
    }
}

/// Tells why there is no answer.
fn refuse(socket: &OwnedFd, errno: Errno) -> Result<(), Errno> {
    send(socket.as_fd(), [errno.raw_os_error() as u64, 0], &[])
}

/// What a process maps, which of its pages are there, and how many.
pub(crate) fn seen(process: u32) -> Result<[OwnedFd; 3], Errno> {
    let open = |name| page_map::open(&format!("/proc/{process}/{name}"));
    Ok([open("maps")?, open("pagemap")?, open("statm")?])
}

/// One conversation.
fn answer(socket: &OwnedFd, process: u32, places: &RunPlaces) -> Result<(), Errno> {
    set_socket_timeout(socket, Timeout::Recv, Some(STEP))?;
    let (files, counters) = match places.open().and_then(|it| Ok((it, places.open_counters(process)?))) {
        Ok(opened) => opened,
        Err(unopened) => return refuse(socket, unopened.errno),
    };
    let page_map = match page_map::open(&format!("/proc/{process}/pagemap")) {
        Ok(opened) => opened,
        Err(errno) => return refuse(socket, errno),
    };
    let device = open_device();
    let mut descriptors = vec![files.store.as_fd(), counters.as_fd(), page_map.as_fd()];
    let (leases, device) = (files.leases.as_ref().map(File::as_fd), device.as_ref().ok().map(OwnedFd::as_fd));
    let came_along = leases.map_or(0, |_| LEASES) | device.map_or(0, |_| DEVICE);
    descriptors.extend(leases.into_iter().chain(device));
    send(socket.as_fd(), [0, came_along], &descriptors)?;
    let made = receive(socket.as_fd())?.and_then(|message| message.descriptors.into_iter().next());
    let made = made.filter(is_userfault).ok_or(Errno::INVAL)?;
    let features = wanted_features(Forks::Followed).and_then(|features| {
        handshake(made.as_fd(), features, Forks::Followed)?;
        Ok(features)
    });
    match features {
        Ok(features) => send(socket.as_fd(), [0, features], &[]),
        Err(UserfaultError::NotPermitted(_)) => refuse(socket, Errno::PERM),
        Err(UserfaultError::NoEvents) => refuse(socket, Errno::OPNOTSUPP),
        Err(UserfaultError::Absent(errno) | UserfaultError::Failed(errno)) => refuse(socket, errno),
    }
}

/// What a process sends may be anything, and other kinds of files have calls of their own by the same number.
fn is_userfault(descriptor: &OwnedFd) -> bool {
    let link = format!("/proc/thread-self/fd/{}", descriptor.as_raw_fd());
    std::fs::read_link(link).is_ok_and(|name| name.as_os_str() == "anon_inode:[userfaultfd]")
}

impl Channel {
    /// The number of the descriptor.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.number
    }

    /// Notes it for when a child is to be seen.
    pub fn keep(self) {
        // It stays the same as long as the process is the same program.
        let _ = KEPT.set(self);
    }

    /// Sends the broker a socket to answer by and what goes with the request; gives the other end.
    fn request(
        self,
        wanted: u64,
        child: Option<BorrowedFd<'_>>,
        folder: Option<&Path>,
    ) -> Result<OwnedFd, Errno> {
        let (own, theirs) = pair()?;
        let patience = Some(if wanted == VIEW { GLANCE } else { PATIENCE });
        set_socket_timeout(&own, Timeout::Recv, patience)?;
        let descriptors: Vec<_> = std::iter::once(theirs.as_fd()).chain(child).collect();
        let words = [self.secret, wanted];
        let post = |address: &SocketAddrUnix| {
            let socket = post_socket()?;
            connect(&socket, address)?;
            // Others may have filled it.
            set_socket_timeout(&socket, Timeout::Send, patience)?;
            send_with(socket.as_fd(), words, &descriptors, SendFlags::NOSIGNAL)
        };
        self.send(words, &descriptors)
            .or_else(|_| post(&address_of(self.name)?))
            .or_else(|errno| with_address(folder.ok_or(errno)?, post))?;
        Ok(own)
    }

    /// By the descriptor.
    fn send(self, words: [u64; 2], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        if identity(self.number).is_none_or(|(_, inode)| inode != self.inode) {
            return Err(Errno::NOTCONN);
        }
        // SAFETY: it was just seen to be open. Should another thread close it now, the kernel refuses what is
        // sent.
        send(unsafe { BorrowedFd::borrow_raw(self.number) }, words, descriptors)
    }
}

/// The channel of this process.
static KEPT: OnceLock<Channel> = OnceLock::new();

/// What a child maps, which of its pages are there, and how many, by a socket that it has called at.
///
/// # Errors
/// As [`ask`]; ENOTCONN too when no channel was kept, EPERM when it is no child of this process.
pub(crate) fn view(child: BorrowedFd<'_>) -> Result<[OwnedFd; 3], Errno> {
    let own = KEPT.get().ok_or(Errno::NOTCONN)?.request(VIEW, Some(child), None)?;
    let came = told(receive(own.as_fd())?)?.descriptors;
    Vec::from(came).try_into().map_err(|_| Errno::PROTO)
}

/// Asks the broker, by the channel or else by a socket with a name or in the run's directory.
///
/// # Errors
/// ECONNREFUSED or ENOENT when there is no broker any more, EACCES when this process has closed the channel,
/// is in another network and may not enter the directory; else what the broker was refused itself.
pub fn ask(channel: Channel, folder: &Path) -> Result<Grant, Errno> {
    let own = channel.request(GRANT, None, Some(folder))?;
    let mut files = told(receive(own.as_fd())?)?;
    let came_along = files.word;
    let mut next = || files.descriptors.pop_front().ok_or(Errno::PROTO);
    let (store, counters, page_map) = (next()?, next()?, next()?);
    let leases = if came_along & LEASES != 0 { Some(next()?) } else { None };
    let device = if came_along & DEVICE != 0 { Some(next()?) } else { None };
    let made = match device {
        Some(device) => open_by(device.as_fd())?,
        None => crate::uffd::open(Forks::LeftOut).map_err(|_| Errno::PERM)?,
    };
    send(own.as_fd(), [0; 2], &[made.as_fd()])?;
    let features = told(receive(own.as_fd())?)?.word;
    Ok(Grant {
        files: RunFiles { store: store.into(), leases: leases.map(File::from) },
        counters: counters.into(),
        page_map: PageMap::by(page_map)?,
        userfault: Userfault::with_features(made, features),
    })
}

impl fmt::Display for Channel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}:{:x}:{:x}", self.number, self.inode, self.name, self.secret)
    }
}

impl FromStr for Channel {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<_> = text.split(':').collect();
        let channel = <[&str; 4]>::try_from(parts).ok().and_then(|[number, inode, name, secret]| {
            let number = number.parse().ok().filter(|&number| number >= RUN_DESCRIPTORS_FROM)?;
            let hex = |word| u64::from_str_radix(word, 16).ok();
            Some(Self { number, inode: inode.parse().ok()?, name: hex(name)?, secret: hex(secret)? })
        });
        channel.ok_or("wanted DESCRIPTOR:INODE:NAME:SECRET")
    }
}

/// One of the kind by which all of a run call one another.
pub(crate) fn socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// What came in one message: the secret or an errno, a word, descriptors, and the process that sent it where
/// the socket is to tell.
struct Message {
    head: u64,
    word: u64,
    descriptors: std::collections::VecDeque<OwnedFd>,
    process: Option<u32>,
}

/// An answer, unless it says why there is none.
fn told(message: Option<Message>) -> Result<Message, Errno> {
    let message = message.ok_or(Errno::PIPE)?;
    match i32::try_from(message.head) {
        Ok(0) => Ok(message),
        Ok(errno) => Err(Errno::from_raw_os_error(errno)),
        Err(_) => Err(Errno::PROTO),
    }
}

fn send(socket: BorrowedFd<'_>, words: [u64; 2], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    // There is room for hundreds of messages: where there is none, nobody reads them.
    send_with(socket, words, descriptors, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

fn send_with(
    socket: BorrowedFd<'_>,
    words: [u64; 2],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TOGETHER))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let bytes = words.map(u64::to_ne_bytes);
    let parts = [IoSlice::new(bytes.as_flattened())];
    retry_on_intr(|| sendmsg(socket, &parts, &mut ancillary, flags)).map(drop)
}

/// The next message; none when nobody is there any more.
fn receive(socket: BorrowedFd<'_>) -> Result<Option<Message>, Errno> {
    let mut bytes = [0; 16];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TOGETHER), ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let came = retry_on_intr(|| recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC))?;
    if came.bytes == 0 {
        return Ok(None);
    }
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|index| bytes[at + index]));
    let mut message = Message { head: word(0), word: word(8), descriptors: [].into(), process: None };
    for part in ancillary.drain() {
        match part {
            RecvAncillaryMessage::ScmRights(descriptors) => message.descriptors.extend(descriptors),
            RecvAncillaryMessage::ScmCredentials(who) => {
                message.process = Some(number_of(who.pid));
            }
            _ => {}
        }
    }
    Ok(Some(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_skip::skip;
    use std::fs::read_dir;
    use std::os::unix::fs::FileExt;
    use std::thread::{JoinHandle, spawn};

    fn serving(folder: &Path) -> (OpenChannel, JoinHandle<()>) {
        let (broker, channel) = open(folder).unwrap();
        let places = RunPlaces { folder: folder.to_owned(), store_bytes: 1 << 20, device: None };
        (channel, spawn(move || broker.serve(&places)))
    }

    #[test]
    fn who_asks_gets_what_an_engine_needs() {
        const NAME: &str = "broker::who_asks_gets_what_an_engine_needs";
        if let Err(error) = Userfault::new(Forks::Followed) {
            return skip(NAME, &error.to_string());
        }
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (open, _) = serving(folder.path());
        let channel: Channel = open.channel().to_string().parse().unwrap();
        assert_eq!(channel, open.channel());
        let elsewhere = Path::new("/");
        let grant = match ask(channel, elsewhere) {
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return skip(NAME, "no direct I/O there"),
            grant => grant.unwrap(),
        };
        let offers = Userfault::new(Forks::Followed).unwrap().offers();
        assert_eq!(grant.userfault.offers(), offers);
        assert_eq!(grant.files.store.metadata().unwrap().len(), 1 << 20);
        grant.counters.write_all_at(b"x", 0).unwrap();
        let names = read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let names: std::collections::BTreeSet<_> = names.collect();
        let counters = format!("{}.stats", std::process::id());
        assert_eq!(names, [CALLS.into(), counters.into()].into(), "the store has no name");
        // Where the page lies is told to nobody, root or not.
        let (own, mut entry) = (Box::new([7u64; 512]), [0; 8]);
        let place = own.as_ptr() as u64 / crate::uffd::PAGE;
        File::from(grant.page_map.as_fd().try_clone_to_owned().unwrap())
            .read_exact_at(&mut entry, place * 8)
            .unwrap();
        let entry = u64::from_ne_bytes(entry);
        assert_eq!((entry >> 63, entry & ((1 << 55) - 1)), (1, 0), "{entry:x}");
        drop(open);
        // By the socket's name; or in the run's directory, as another network hides names.
        assert_eq!(ask(channel, elsewhere).unwrap().userfault.offers(), offers);
        let hidden = Channel { name: !channel.name, ..channel };
        assert_eq!(ask(hidden, elsewhere).unwrap_err(), Errno::NOENT, "it is closed");
        assert_eq!(ask(hidden, folder.path()).unwrap().userfault.offers(), offers);
    }

    #[test]
    fn what_is_no_request_harms_nobody() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (open, thread) = serving(folder.path());
        let (channel, secret) = (open._held.as_fd(), open.channel().secret);
        let nothing = File::open("/dev/null").unwrap();
        send(channel, [secret, GRANT], &[]).unwrap();
        rustix::net::send(channel, &[], SendFlags::empty()).unwrap();
        send(channel, [secret, GRANT], &[nothing.as_fd()]).unwrap();
        // One that sends something else than its userfaultfd gets no answer, and none at all who does not
        // know the secret.
        for word in [secret, !secret] {
            let (own, theirs) = pair().unwrap();
            send(channel, [word, u64::MAX], &[theirs.as_fd(), nothing.as_fd()]).unwrap();
            drop(theirs);
            let files = receive(own.as_fd()).unwrap();
            assert_eq!(files.is_some(), word == secret);
            if files.is_some_and(|files| files.head == 0) {
                send(own.as_fd(), [0; 2], &[nothing.as_fd()]).unwrap();
                assert!(receive(own.as_fd()).unwrap().is_none());
            }
        }
        // What others map is not shown, nor what this process does itself: it is no child of its own.
        for child in [pair().unwrap().0, nothing.into()] {
            let answer = open.channel().request(VIEW, Some(child.as_fd()), None).unwrap();
            assert!(!told(receive(answer.as_fd()).unwrap()).is_ok_and(|it| !it.descriptors.is_empty()));
        }
        let gone = pair().unwrap().0;
        send(channel, [secret, GRANT], &[gone.as_fd()]).unwrap();
        drop(gone);
        // It goes on when nobody has the channel any more.
        let channel = open.channel();
        drop(open);
        let (own, theirs) = pair().unwrap();
        let answer = channel.request(VIEW, Some(theirs.as_fd()), None).unwrap();
        assert!(told(receive(answer.as_fd()).unwrap()).is_err());
        drop((own, theirs));
        assert!(!thread.is_finished());
    }

    #[test]
    fn a_broker_that_has_ended_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (broker, open) = open(folder.path()).unwrap();
        drop(broker);
        assert_eq!(ask(open.channel(), folder.path()).unwrap_err(), Errno::CONNREFUSED);
        for text in ["", "700", "700:1", "699:1:a:b", "x:1:a:b", "700:x:a:b", "700:1:x:b", "700:1:a:"] {
            assert!(text.parse::<Channel>().is_err(), "{text}");
        }
    }
}
