//! userfaultfd: the kernel hands the page faults of registered memory to this process, which brings pages in
//! and takes them away.
//!
//! Own bindings, because the newer calls (MOVE, POISON) and event kinds are wanted on old headers too. The
//! structures and numbers are those of include/uapi/linux/userfaultfd.h; a test compares their sizes. What a
//! kernel can do is found by asking it, never by its version number.
//!
//! # Why the calls are safe
//! Each call changes only which page stands at an address of a range that [`Userfault::register`] was given,
//! and that function is where the promise is made. The kernel checks all addresses itself.

use crate::Errno;
use crate::descriptor_limit::with_one_more;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::read;
use rustix::ioctl::{Opcode, Updater};
use rustix::mm::{UserfaultfdFlags, userfaultfd};
use std::ops::Range;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

const API: u64 = 0xAA;
const FEATURE_EVENT_FORK: u64 = 1 << 1;
const FEATURE_EVENT_REMAP: u64 = 1 << 2;
const FEATURE_EVENT_REMOVE: u64 = 1 << 3;
const FEATURE_EVENT_UNMAP: u64 = 1 << 6;
const FEATURE_THREAD_ID: u64 = 1 << 8;
const FEATURE_EXACT_ADDRESS: u64 = 1 << 11;
const FEATURE_POISON: u64 = 1 << 14;
const FEATURE_WRITES_PASS: u64 = 1 << 15;
const FEATURE_MOVE: u64 = 1 << 16;

/// What is asked for wherever the kernel has it.
const WANTED: u64 = FEATURE_EVENT_FORK
    | FEATURE_EVENT_REMAP
    | FEATURE_EVENT_REMOVE
    | FEATURE_EVENT_UNMAP
    | FEATURE_THREAD_ID
    | FEATURE_EXACT_ADDRESS
    | FEATURE_POISON
    | FEATURE_WRITES_PASS
    | FEATURE_MOVE;
/// Without these no page may be taken over: their absence would mean silent zeroes.
const NEEDED: u64 = FEATURE_EVENT_FORK | FEATURE_EVENT_REMAP | FEATURE_EVENT_REMOVE | FEATURE_EVENT_UNMAP;

const MODE_MISSING: u64 = 1;
const MODE_WRITE_PROTECT: u64 = 2;
const COPY_DONT_WAKE: u64 = 1;
const MOVE_ALLOW_HOLES: u64 = 2;

const EVENT_PAGEFAULT: u8 = 0x12;
const EVENT_FORK: u8 = 0x13;
const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;

#[repr(C)]
#[derive(Default)]
struct ApiCall {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Default)]
struct RangeCall {
    start: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct RegisterCall {
    range: RangeCall,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Default)]
struct CopyCall {
    target: u64,
    source: u64,
    length: u64,
    mode: u64,
    done: i64,
}

#[repr(C)]
#[derive(Default)]
struct FillCall {
    range: RangeCall,
    mode: u64,
    done: i64,
}

#[repr(C)]
#[derive(Default)]
struct ProtectCall {
    range: RangeCall,
    mode: u64,
}

/// struct uffd_msg: 32 bytes, the arguments as three words.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Raw {
    event: u8,
    reserved: [u8; 7],
    arguments: [u64; 3],
}

const _: () = assert!(size_of::<Raw>() == 32 && size_of::<CopyCall>() == 40 && size_of::<FillCall>() == 32);

/// The number of an ioctl as _IOWR or _IOR of type 0xAA makes it.
const fn number(direction: u32, call: u32, bytes: usize) -> Opcode {
    direction << 30 | (bytes as u32) << 16 | 0xAA << 8 | call
}
const READ: u32 = 2;
const READ_WRITE: u32 = 3;
const UFFDIO_API: Opcode = number(READ_WRITE, 0x3F, size_of::<ApiCall>());
const UFFDIO_REGISTER: Opcode = number(READ_WRITE, 0x00, size_of::<RegisterCall>());
const UFFDIO_UNREGISTER: Opcode = number(READ, 0x01, size_of::<RangeCall>());
const UFFDIO_WAKE: Opcode = number(READ, 0x02, size_of::<RangeCall>());
const UFFDIO_COPY: Opcode = number(READ_WRITE, 0x03, size_of::<CopyCall>());
const UFFDIO_ZEROPAGE: Opcode = number(READ_WRITE, 0x04, size_of::<FillCall>());
const UFFDIO_MOVE: Opcode = number(READ_WRITE, 0x05, size_of::<CopyCall>());
const UFFDIO_WRITEPROTECT: Opcode = number(READ_WRITE, 0x06, size_of::<ProtectCall>());
const UFFDIO_POISON: Opcode = number(READ_WRITE, 0x08, size_of::<FillCall>());

/// Something the kernel told.
#[derive(Debug)]
pub enum Message {
    /// A thread waits for the page at an address.
    Fault {
        /// Start of the page.
        address: u64,
        /// How far into the page it is, in bytes; 0 where the kernel does not say (before 5.18).
        offset: u64,
        /// Whether it wants to write.
        write: bool,
        /// Whether the page is there and write-protected, rather than missing.
        protected: bool,
        /// The thread that waits, 0 where the kernel does not say.
        thread: u32,
    },
    /// The process forked: a descriptor for the child's memory.
    Fork(OwnedFd),
    /// Memory moved to another address, with its pages.
    Remap {
        /// Where it was.
        from: u64,
        /// Where it is.
        to: u64,
        /// How much of it.
        length: u64,
    },
    /// The content of a range is about to be given up (MADV_DONTNEED, MADV_REMOVE).
    Remove(Range<u64>),
    /// A range is no longer mapped.
    Unmap(Range<u64>),
}

/// What the kernel offers beyond the necessary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offers {
    /// Pages can be moved away atomically, and pinned pages refuse (UFFDIO_MOVE, since 6.8).
    pub moves: bool,
    /// A lost page can be marked so that touching it raises SIGBUS (UFFDIO_POISON, since 6.6).
    pub poison: bool,
    /// Writes to write-protected pages lift the protection and go on, without a message
    /// (UFFD_FEATURE_WP_ASYNC, since 6.7): [`crate::page_map::PageMap::take_written`] sees who was written
    /// to.
    pub writes_pass: bool,
    /// Faults carry the thread's id.
    pub thread_id: bool,
}

/// Why no fault can be handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UserfaultError {
    /// Not built into the kernel, or blocked by a filter.
    #[error("this kernel offers no userfaultfd, or a seccomp filter hides it ({0})")]
    Absent(Errno),
    /// Faults of system calls may not be handled without privilege. What is needed is the capability where
    /// forks are followed, and less otherwise.
    #[error("{}", not_permitted(*.0))]
    NotPermitted(Forks),
    /// An old kernel.
    #[error(
        "this kernel's userfaultfd lacks the events of fork, mremap, munmap and madvise (4.11 is wanted)"
    )]
    NoEvents,
    /// Anything else.
    #[error("userfaultfd: {0}")]
    Failed(Errno),
}

/// Whether children get the memory that is handed over, with a userfaultfd for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forks {
    /// They do. The kernel tells only whoever has CAP_SYS_PTRACE.
    Followed,
    /// The memory is left out of children (MADV_DONTFORK).
    LeftOut,
}

fn not_permitted(forks: Forks) -> &'static str {
    match forks {
        Forks::Followed => {
            "not permitted to handle page faults of system calls and to follow forks; wanted CAP_SYS_PTRACE, \
             which root has outside of containers, and no seccomp filter against userfaultfd"
        }
        Forks::LeftOut => {
            "not permitted to handle page faults of system calls; wanted CAP_SYS_PTRACE, which root has outside \
             of containers, read and write access to /dev/userfaultfd, or vm.unprivileged_userfaultfd=1, and \
             no seccomp filter against userfaultfd"
        }
    }
}

/// One userfaultfd of this process.
#[derive(Debug)]
pub struct Userfault {
    fd: OwnedFd,
    offers: Offers,
}

impl Userfault {
    /// Opens one that also sees faults of system calls, by /dev/userfaultfd or the system call.
    ///
    /// # Errors
    /// [`UserfaultError`] names the cause and the remedy.
    pub fn new(forks: Forks) -> Result<Self, UserfaultError> {
        let features = wanted_features(forks)?;
        // The handshake is made once per descriptor: the first was to ask, this one is to keep.
        let fd = open(forks)?;
        handshake(fd.as_fd(), features, forks)?;
        Ok(Self::with_features(fd, features))
    }

    /// One whose features somebody else has asked for.
    pub(crate) fn with_features(fd: OwnedFd, features: u64) -> Self {
        let offers = Offers {
            moves: features & FEATURE_MOVE != 0,
            poison: features & FEATURE_POISON != 0,
            writes_pass: features & FEATURE_WRITES_PASS != 0,
            thread_id: features & FEATURE_THREAD_ID != 0,
        };
        Self { fd, offers }
    }

    /// The one that a [`Message::Fork`] of this one brought: it serves the child's memory.
    #[must_use]
    pub fn of_child(&self, fd: OwnedFd) -> Self {
        Self { fd, offers: self.offers }
    }

    /// What this kernel offers.
    #[must_use]
    pub fn offers(&self) -> Offers {
        self.offers
    }

    /// Hands over the faults of a range of whole pages of private anonymous memory.
    ///
    /// # Errors
    /// EBUSY when another userfaultfd has it, EINVAL when it is not such memory.
    ///
    /// # Safety
    /// From here on a page of the range that is taken away is only what this descriptor's owner brings back:
    /// nothing that the owner itself needs to answer faults may lie in it.
    pub unsafe fn register(&self, range: Range<u64>) -> Result<(), Errno> {
        register_as(self.fd.as_fd(), range, MODE_MISSING | MODE_WRITE_PROTECT)
    }

    /// Lets pages be moved to a range of private anonymous memory. Faults there stay the kernel's: nobody who
    /// touches it ever waits.
    ///
    /// # Errors
    /// As [`Userfault::register`].
    pub(crate) fn register_target(&self, range: Range<u64>) -> Result<(), Errno> {
        register_frames(self.fd.as_fd(), range)
    }

    /// [`Userfault::register`] for a program's memory at large, without huge pages.
    ///
    /// # Errors
    /// As [`Userfault::register`].
    pub fn take_over(&self, range: Range<u64>) -> Result<(), Errno> {
        let (address, length) = (range.start as *mut std::ffi::c_void, (range.end - range.start) as usize);
        // SAFETY: the advice changes the size of pages, not their content. A kernel without huge pages
        // refuses.
        let _ = unsafe { rustix::mm::madvise(address, length, rustix::mm::Advice::LinuxNoHugepage) };
        // SAFETY: the memory of whoever serves faults (its stack, heap, frames and queues) is not among
        // what a pager takes over: the caller of the engine leaves it out, see `exclude` there.
        unsafe { self.register(range) }
    }

    /// Gives a range back to the kernel.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn unregister(&self, range: Range<u64>) -> Result<(), Errno> {
        unregister_frames(self.fd.as_fd(), range)
    }

    /// Puts copies of whole pages at `target` and wakes who waits there. Returns the bytes put.
    ///
    /// # Errors EEXIST when a page is there already, EAGAIN when an event waits to be read first, ENOENT
    /// when the range is gone.
    pub fn copy(&self, target: u64, pages: &[u8], wake: bool) -> Result<u64, Errno> {
        let mode = if wake { 0 } else { COPY_DONT_WAKE };
        let length = pages.len() as u64;
        let mut call = CopyCall { target, source: pages.as_ptr() as u64, length, mode, done: 0 };
        partial(self.call::<{ UFFDIO_COPY }, _>(&mut call), call.done)
    }

    /// Puts pages of zeroes at `target` and wakes who waits there. Returns the bytes put.
    ///
    /// # Errors
    /// As [`Userfault::copy`].
    pub fn zero(&self, target: u64, length: u64) -> Result<u64, Errno> {
        let mut call = FillCall { range: RangeCall { start: target, length }, mode: 0, done: 0 };
        partial(self.call::<{ UFFDIO_ZEROPAGE }, _>(&mut call), call.done)
    }

    /// Moves the pages of `source..source + length` to `target`, leaving nothing behind; holes stay holes.
    /// Returns the bytes passed over before the first page that could not be moved.
    ///
    /// # Errors EBUSY when that first page is pinned or shared with a child, EAGAIN when it should be tried
    /// again or an event waits to be read, EINVAL when the memory is of the wrong kind (locked, read-only),
    /// EEXIST when something is at the target.
    pub fn move_pages(&self, target: u64, source: u64, length: u64) -> Result<u64, Errno> {
        let mut call = CopyCall { target, source, length, mode: MOVE_ALLOW_HOLES, done: 0 };
        partial(self.call::<{ UFFDIO_MOVE }, _>(&mut call), call.done)
    }

    /// Write-protects a range, or lifts that and wakes who waits to write.
    ///
    /// # Errors
    /// EAGAIN when an event waits to be read first, ENOENT when the range is gone.
    pub fn write_protect(&self, range: Range<u64>, protect: bool) -> Result<(), Errno> {
        let range = RangeCall { start: range.start, length: range.end - range.start };
        self.call::<{ UFFDIO_WRITEPROTECT }, _>(&mut ProtectCall { range, mode: u64::from(protect) })
    }

    /// Marks pages as lost: whoever touches them gets SIGBUS.
    ///
    /// # Errors
    /// EINVAL on kernels before 6.6; else as [`Userfault::copy`].
    pub fn poison(&self, target: u64, length: u64) -> Result<u64, Errno> {
        let mut call = FillCall { range: RangeCall { start: target, length }, mode: 0, done: 0 };
        partial(self.call::<{ UFFDIO_POISON }, _>(&mut call), call.done)
    }

    /// Lets those who wait in a range try again.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn wake(&self, target: u64, length: u64) -> Result<(), Errno> {
        self.call::<{ UFFDIO_WAKE }, _>(&mut RangeCall { start: target, length })
    }

    /// Passes all waiting messages to `each`, at most `limit`; never waits. Returns how many there were.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn read_messages(&self, limit: usize, mut each: impl FnMut(Message)) -> Result<usize, Errno> {
        const AT_ONCE: usize = 16;
        let mut count = 0;
        while count < limit {
            let mut buffer = [0u8; AT_ONCE * size_of::<Raw>()];
            // News of a child come with a descriptor, and the kernel keeps them until there is room for it.
            let bytes = match with_one_more(|| read(&self.fd, &mut buffer)) {
                Ok(bytes) => bytes,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(errno) => return Err(errno),
            };
            for raw in buffer[..bytes].chunks_exact(size_of::<Raw>()) {
                if let Some(message) = decode(raw) {
                    each(message);
                }
                count += 1;
            }
            if bytes < buffer.len() {
                break;
            }
        }
        Ok(count)
    }

    fn call<const NUMBER: Opcode, T>(&self, argument: &mut T) -> Result<(), Errno> {
        ioctl::<NUMBER, T>(self.fd.as_fd(), argument)
    }
}

impl AsFd for Userfault {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Makes the pages of a range this process's own again where they are shared with a child, as a write
/// would, but without changing them (MADV_POPULATE_WRITE, since 5.14). Waits for pages that are away.
///
/// # Errors
/// The kernel's errno; nothing has happened to the rest of the range then.
pub fn make_own(range: Range<u64>) -> Result<(), Errno> {
    let (address, length) = (range.start as *mut std::ffi::c_void, (range.end - range.start) as usize);
    // SAFETY: the advice changes no content, and a range that is not mapped or not writable is refused.
    unsafe { rustix::mm::madvise(address, length, rustix::mm::Advice::LinuxPopulateWrite) }
}

/// [`Userfault::register_target`] for a thread that has nothing but the descriptor.
pub(crate) fn register_frames(userfault: BorrowedFd<'_>, range: Range<u64>) -> Result<(), Errno> {
    register_as(userfault, range, MODE_WRITE_PROTECT)
}

fn register_as(userfault: BorrowedFd<'_>, range: Range<u64>, mode: u64) -> Result<(), Errno> {
    let range = RangeCall { start: range.start, length: range.end - range.start };
    ioctl::<{ UFFDIO_REGISTER }, _>(userfault, &mut RegisterCall { range, mode, ioctls: 0 })
}

/// [`Userfault::unregister`] for such a thread.
pub(crate) fn unregister_frames(userfault: BorrowedFd<'_>, range: Range<u64>) -> Result<(), Errno> {
    let mut range = RangeCall { start: range.start, length: range.end - range.start };
    ioctl::<{ UFFDIO_UNREGISTER }, _>(userfault, &mut range)
}

/// [`Userfault::move_pages`] for such a thread, but a page that is not there ends it, with ENOENT: the bytes
/// that were moved, and why no more.
pub(crate) fn move_whole_pages(
    userfault: BorrowedFd<'_>,
    target: u64,
    source: u64,
    length: u64,
) -> (u64, Result<(), Errno>) {
    let mut call = CopyCall { target, source, length, mode: 0, done: 0 };
    let outcome = ioctl::<{ UFFDIO_MOVE }, _>(userfault, &mut call);
    (call.done.max(0) as u64, outcome)
}

/// What was done counts; an error counts when nothing was.
fn partial(outcome: Result<(), Errno>, done: i64) -> Result<u64, Errno> {
    match outcome {
        Ok(()) => Ok(done as u64),
        Err(_) if done > 0 => Ok(done as u64),
        Err(errno) => Err(errno),
    }
}

fn decode(raw: &[u8]) -> Option<Message> {
    let word = |index: usize| {
        let bytes = raw[8 + index * 8..16 + index * 8].try_into().expect("eight bytes");
        u64::from_ne_bytes(bytes)
    };
    Some(match raw[0] {
        EVENT_PAGEFAULT => Message::Fault {
            address: word(1) & !(PAGE - 1),
            offset: word(1) & (PAGE - 1),
            write: word(0) & 1 != 0,
            protected: word(0) & 2 != 0,
            thread: word(2) as u32,
        },
        EVENT_FORK => {
            // SAFETY: with this event the kernel has just installed a descriptor in this process; nobody else
            // knows its number.
            Message::Fork(unsafe { OwnedFd::from_raw_fd(word(0) as u32 as i32) })
        }
        EVENT_REMAP => Message::Remap { from: word(0), to: word(1), length: word(2) },
        EVENT_REMOVE => Message::Remove(word(0)..word(1)),
        EVENT_UNMAP => Message::Unmap(word(0)..word(1)),
        _ => return None,
    })
}

/// The device by which a userfaultfd can be had without a capability.
pub(crate) fn open_device() -> Result<OwnedFd, Errno> {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open("/dev/userfaultfd", flags, rustix::fs::Mode::empty())
}

/// A userfaultfd of this process that nobody has asked for features yet.
pub(crate) fn open_by(device: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    const USERFAULTFD_IOC_NEW: libc::Ioctl = 0xAA00;
    // SAFETY: this ioctl takes the flags as its argument by value and returns a new descriptor.
    let fd = unsafe { libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW, FLAGS.bits()) };
    if fd < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

const FLAGS: UserfaultfdFlags = UserfaultfdFlags::CLOEXEC.union(UserfaultfdFlags::NONBLOCK);

/// One by the device, or by the system call.
pub(crate) fn open(forks: Forks) -> Result<OwnedFd, UserfaultError> {
    if let Ok(fd) = open_device().and_then(|device| open_by(device.as_fd())) {
        return Ok(fd);
    }
    // SAFETY: the call makes a descriptor and touches no memory.
    match unsafe { userfaultfd(FLAGS) } {
        Ok(fd) => Ok(fd),
        Err(Errno::PERM) => Err(UserfaultError::NotPermitted(forks)),
        Err(errno @ Errno::NOSYS) => Err(UserfaultError::Absent(errno)),
        Err(errno) => Err(UserfaultError::Failed(errno)),
    }
}

/// What is to be asked for of what this kernel has, found by a userfaultfd of this process.
pub(crate) fn wanted_features(forks: Forks) -> Result<u64, UserfaultError> {
    let supported = handshake(open(forks)?.as_fd(), 0, forks)?;
    if supported & NEEDED != NEEDED {
        return Err(UserfaultError::NoEvents);
    }
    let left_out = if forks == Forks::LeftOut { FEATURE_EVENT_FORK } else { 0 };
    Ok(supported & WANTED & !left_out)
}

/// Asks for features (0: for none) and returns those the kernel has. The rights of who asks count, not those
/// of whose memory it is.
pub(crate) fn handshake(fd: BorrowedFd<'_>, features: u64, forks: Forks) -> Result<u64, UserfaultError> {
    let mut call = ApiCall { api: API, features, ioctls: 0 };
    match ioctl::<{ UFFDIO_API }, _>(fd, &mut call) {
        Ok(()) => Ok(call.features),
        Err(Errno::PERM) => Err(UserfaultError::NotPermitted(forks)),
        Err(errno) => Err(UserfaultError::Failed(errno)),
    }
}

/// By rustix, which makes the system call itself: whoever answers page faults has no thread-local errno.
fn ioctl<const NUMBER: Opcode, T>(fd: BorrowedFd<'_>, argument: &mut T) -> Result<(), Errno> {
    // SAFETY: each number above carries the size of the structure that its only caller passes, so the kernel
    // reads and writes exactly `argument`.
    unsafe { rustix::ioctl::ioctl(fd, Updater::<NUMBER, T>::new(argument)) }
}
