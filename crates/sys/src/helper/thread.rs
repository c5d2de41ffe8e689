//! The thread itself, and how a child starts it.

use super::{AT_ONCE, CONTENT, Door, Errand, LATER, LOOK, TAKE, YES, address_of, bytes_of};
use crate::Errno;
use crate::broker::socket;
use crate::frames::keep_page;
use crate::gate::Gate;
use crate::own_memory::drop_pages;
use crate::page_map::{all_pages, own_pages};
use crate::signals;
use crate::thread_words::{ThreadWord, ThreadWords, tell_end};
use crate::uffd::{PAGE, make_own, move_whole_pages, register_frames, unregister_frames};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, connect, recv, recvmsg, send, sendmsg,
};
use std::ffi::CStr;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of the frames, of a hole after them, and of the thread's stack.
const FRAMES: usize = AT_ONCE * PAGE as usize;
const HOLE: usize = PAGE as usize;
const STACK: usize = 64 << 10;
/// All memory of its own.
pub(super) const OWN_BYTES: usize = FRAMES + HOLE + STACK;
/// Threads that are remembered as long as they live.
const THREADS: usize = 256;
/// How often a page is tried again that could not be moved at the moment.
const TRIES: u32 = 16;
/// How long a child waits for its helper to be on its own.
const START: Duration = Duration::from_secs(1);

/// What a helper needs to know, at the lower end of its stack.
struct Start {
    /// Open as soon as it has descriptors of its own. Until then it holds copies of the child's.
    apart: Gate,
    frames: u64,
    name: u64,
    secret: u64,
    seed: u64,
    mark: fn(&[u8], u64) -> u64,
    /// How the C library lays out the words of threads.
    words: Option<ThreadWords>,
}

/// The words of threads on pages that were moved, as far as they are not known to have ended: what the kernel
/// could not say for one that ends while its page is away is said for it later.
struct Threads([Option<ThreadWord>; THREADS]);

impl Threads {
    fn note(&mut self, word: ThreadWord) {
        let known = self.0.iter().flatten().any(|other| *other == word);
        if let Some(free) = self.0.iter_mut().find(|word| word.is_none()).filter(|_| !known) {
            *free = Some(word);
        }
    }

    /// Waits for pages that are away.
    fn look(&mut self, words: Option<&ThreadWords>) {
        for place in &mut self.0 {
            if let (Some(word), Some(words)) = (*place, words)
                && words.has_ended(word)
            {
                tell_end(word);
                *place = None;
            }
        }
    }
}

/// Called in a child that was just forked, by its only thread: starts a helper if one is wanted. `mark` makes
/// the mark of a page's content with the seed that the door was opened with; it must allocate nothing and
/// cannot panic. Nothing happens where the thread is not to be had: the child keeps what it brings back then.
pub fn start(door: &Door, mark: fn(&[u8], u64) -> u64) {
    if !door.wanted.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: a new mapping where the kernel likes touches nothing of the program's. The advices concern it
    // alone; a kernel without huge pages refuses one of them.
    let base = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let base = libc::mmap(std::ptr::null_mut(), OWN_BYTES, access, flags, -1, 0);
        if base == libc::MAP_FAILED {
            return;
        }
        libc::madvise(base, OWN_BYTES, libc::MADV_DONTFORK);
        libc::madvise(base, OWN_BYTES, libc::MADV_NOHUGEPAGE);
        base.cast::<u8>()
    };
    let [name, secret, seed] = [&door.name, &door.secret, &door.seed].map(|it| it.load(Ordering::Relaxed));
    let words = ThreadWords::of_this_library();
    let start = Start { apart: Gate::closed(), frames: base as u64, name, secret, seed, mark, words };
    // SAFETY: the mapping is ours alone, and page-aligned. The thread gets the upper end of the stack, far
    // from what is written here, and lives at most as long as the mapping, which is never undone. All signals
    // are blocked while it is made, so that it has them blocked; then they are as before. It shares memory,
    // signal handlers and process, which have to go together, and nothing else.
    unsafe {
        let place = base.add(FRAMES + HOLE).cast::<Start>();
        place.write(start);
        let flags = libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND;
        signals::with_all_blocked(|| {
            if libc::clone(help, base.add(OWN_BYTES).cast(), flags, place.cast()) > 0 {
                (*place).apart.wait(START);
            }
        });
    }
}

/// The helper's thread.
extern "C" fn help(start: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `start` put it there before this thread was made; nobody writes to it but through the atomic.
    let start = unsafe { &*start.cast::<Start>() };
    // SAFETY: the descriptors are copies, this thread's own, and nothing here uses any of them. The name is a
    // text with an end.
    unsafe {
        libc::syscall(libc::SYS_close_range, 0_u32, u32::MAX, 0_u32);
        libc::prctl(libc::PR_SET_NAME, c"overmem-helper".as_ptr());
    }
    let called = call(start);
    let is_confined = called.is_ok() && confine();
    start.apart.open();
    if let Ok(socket) = called
        && is_confined
        && let Ok((userfault, page_map)) = find_userfault(&socket, start.frames)
    {
        let mut threads = Threads([None; THREADS]);
        while do_errand(&socket, userfault.as_fd(), page_map.as_ref(), &mut threads, start).is_ok() {}
    }
    0
}

fn call(start: &Start) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    connect(&socket, &address_of(start.name)?)?;
    let view =
        [c"/proc/thread-self/maps", c"/proc/thread-self/pagemap", c"/proc/thread-self/statm"].map(open);
    let all = match &view {
        [Some(maps), Some(page_map), Some(statm)] => Some([maps.as_fd(), page_map.as_fd(), statm.as_fd()]),
        // A child that may not open them is looked at from outside.
        _ => None,
    };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if let Some(descriptors) = &all {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let hello = bytes_of([start.secret, start.frames]);
    sendmsg(&socket, &[IoSlice::new(hello.as_flattened())], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(socket)
}

fn open(path: &CStr) -> Option<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// AUDIT_ARCH of system calls as this library makes them: the machine, of 64 bits, the lower byte first.
const KIND: u32 = 0xC000_0000 | if cfg!(target_arch = "aarch64") { 183 } else { 62 };

/// Takes all system calls from this thread but those that it needs.
fn confine() -> bool {
    const ALLOWED: [libc::c_long; 16] = [
        libc::SYS_recvmsg,
        libc::SYS_recvfrom,
        libc::SYS_sendto,
        libc::SYS_pread64,
        libc::SYS_ioctl,
        libc::SYS_madvise,
        libc::SYS_munlock,
        libc::SYS_munmap,
        libc::SYS_close,
        libc::SYS_futex,
        libc::SYS_getpid,
        libc::SYS_tgkill,
        libc::SYS_get_robust_list,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_exit,
    ];
    const COUNT: usize = ALLOWED.len();
    const FILTER: [libc::sock_filter; COUNT + 5] = {
        const fn load(offset: usize) -> libc::sock_filter {
            let code = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
            libc::sock_filter { code, jt: 0, jf: 0, k: offset as u32 }
        }
        const fn answer(answer: u32) -> libc::sock_filter {
            libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: answer }
        }
        /// Where it is not `value`, so many lines are passed over, and where it is, so many.
        const fn unless(value: u32, if_not: usize, if_so: usize) -> libc::sock_filter {
            let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
            libc::sock_filter { code, jt: if_so as u8, jf: if_not as u8, k: value }
        }
        let mut filter = [answer(libc::SECCOMP_RET_ALLOW); COUNT + 5];
        // The numbers of calls are others for programs of other kinds.
        filter[0] = load(std::mem::offset_of!(libc::seccomp_data, arch));
        filter[1] = unless(KIND, COUNT + 1, 0);
        filter[2] = load(std::mem::offset_of!(libc::seccomp_data, nr));
        let mut index = 0;
        while index < COUNT {
            filter[3 + index] = unless(ALLOWED[index] as u32, 0, COUNT - index);
            index += 1;
        }
        filter[3 + COUNT] = answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
        filter
    };
    let program = libc::sock_fprog { len: FILTER.len() as u16, filter: FILTER.as_ptr().cast_mut() };
    // SAFETY: both concern this thread alone; the program is valid for the call and only read.
    unsafe {
        let zero: libc::c_ulong = 0;
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1 as libc::c_ulong, zero, zero, zero) == 0
            && libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER as libc::c_ulong,
                zero,
                &raw const program,
            ) == 0
    }
}

/// Who serves the children does not know whose helper this is: it offers the descriptors of those it may be,
/// one after the other. With each comes what shows the pages of this memory, if that could be opened.
fn find_userfault(socket: &OwnedFd, frames: u64) -> Result<(OwnedFd, Option<OwnedFd>), Errno> {
    let hole = frames + FRAMES as u64;
    // SAFETY: the page belongs to the mapping made for this thread, which has no other use for it.
    unsafe { rustix::mm::munmap(hole as *mut _, HOLE)? };
    loop {
        let (offered, page_map) = receive_offer(socket)?;
        // The kernel moves pages for the memory's own threads alone, and says so before it says that nothing
        // is mapped there. Nothing may be registered to find out: it could be the memory of another child.
        let verdict = match move_whole_pages(offered.as_fd(), hole, hole, PAGE).1 {
            Err(Errno::NOENT) => YES,
            Err(Errno::AGAIN) => LATER,
            _ => 0,
        };
        if verdict == YES {
            register_frames(offered.as_fd(), frames..hole)?;
        }
        send(socket, bytes_of([verdict]).as_flattened(), SendFlags::NOSIGNAL)?;
        if verdict == YES {
            return Ok((offered, page_map));
        }
    }
}

fn receive_offer(socket: &OwnedFd) -> Result<(OwnedFd, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut offered = (None, None);
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            offered = (descriptors.next(), descriptors.next());
        }
    }
    let userfault = offered.0.filter(|_| received.bytes == 1).ok_or(Errno::PIPE)?;
    Ok((userfault, offered.1))
}

/// Waits for what is to be done, and does it.
fn do_errand(
    socket: &OwnedFd,
    userfault: BorrowedFd<'_>,
    page_map: Option<&OwnedFd>,
    threads: &mut Threads,
    start: &Start,
) -> Result<(), Errno> {
    let mut errand = Errand { kind: TAKE, count: 0, known: 0, addresses: [0; AT_ONCE], marks: [0; AT_ONCE] };
    // SAFETY: the structure is made of words without gaps: any bytes are one.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut((&raw mut errand).cast::<u8>(), size_of::<Errand>()) };
    let (read, _) = recv(socket, bytes, RecvFlags::empty())?;
    if read != size_of::<Errand>() || errand.count as usize > AT_ONCE {
        return Err(Errno::PIPE);
    }
    if errand.kind == LOOK {
        // Now, as the child's faults are answered meanwhile.
        threads.look(start.words.as_ref());
        let seen = look(&errand, page_map);
        return send(socket, bytes_of(seen).as_flattened(), SendFlags::NOSIGNAL).map(drop);
    }
    let moved = take(&errand, userfault, start.frames);
    let (mut took, mut unchanged) = (moved.pages, 0);
    for index in (0..AT_ONCE).filter(|index| moved.pages >> index & 1 == 1) {
        let (frame, address) = (start.frames + index as u64 * PAGE, errand.addresses[index]);
        let page = keep_and_look(frame);
        let words = start.words.iter().flat_map(|words| words.on_page(page, address));
        let is_of_threads = words.inspect(|&word| threads.note(word)).count() > 0;
        if is_of_threads && move_whole_pages(userfault, address, frame, PAGE).1.is_ok() {
            took &= !(1 << index);
            continue;
        }
        let is_known = errand.known >> index & 1 == 1;
        if is_known && (start.mark)(page, start.seed) == errand.marks[index] {
            unchanged |= 1 << index;
            continue;
        }
        let mut message = [0; CONTENT];
        message[..8].copy_from_slice(&(index as u64).to_ne_bytes());
        message[8..].copy_from_slice(page);
        send(socket, &message, SendFlags::NOSIGNAL)?;
    }
    let done = bytes_of([took, unchanged, u64::from(moved.broke_off)]);
    send(socket, done.as_flattened(), SendFlags::NOSIGNAL)?;
    if took == 0 && !moved.found_frames_taken { Ok(()) } else { give_back(userfault, start.frames) }
}

/// What became of an errand's pages.
#[derive(Default)]
struct Moved {
    /// Those that were moved, a bit each.
    pages: u64,
    /// A change of the memory is being told: the rest was not tried.
    broke_off: bool,
    /// The child has locked all its memory (mlockall), and the kernel put zeroes into frames.
    found_frames_taken: bool,
}

/// Moves pages into the frames, as far as that is possible. What is shared with another process, pinned or
/// locked stays.
fn take(errand: &Errand, userfault: BorrowedFd<'_>, frames: u64) -> Moved {
    let (mut all, mut index, mut tries) = (Moved::default(), 0, TRIES);
    let count = errand.count as usize;
    while index < count {
        let first = errand.addresses[index];
        let run =
            (index..count).take_while(|&next| errand.addresses[next] == first + (next - index) as u64 * PAGE);
        let pages = run.count();
        let target = frames + index as u64 * PAGE;
        let (moved, outcome) = move_whole_pages(userfault, target, first, pages as u64 * PAGE);
        let moved = (moved / PAGE) as usize;
        all.pages |= if moved == 0 { 0 } else { u64::MAX >> (64 - moved) << index };
        index += moved;
        match outcome {
            Ok(()) => {}
            // Also where somebody else looks at the page in this moment.
            Err(Errno::AGAIN) if tries > 0 => tries -= 1,
            Err(Errno::AGAIN) => return Moved { broke_off: true, ..all },
            Err(errno) => {
                all.found_frames_taken |= errno == Errno::EXIST;
                index += 1;
            }
        }
    }
    all
}

/// Which pages of each stretch this memory has to itself. Those that it once shared with another process can
/// be moved only after they were written to, which is done here without changing them. The same makes a copy
/// of those that it shares, where that is wanted. Who gives such a page up in that moment has it back as
/// zeroes; for that the userfaultfd's messages have to be read meanwhile.
fn look(errand: &Errand, page_map: Option<&OwnedFd>) -> [u64; AT_ONCE] {
    let mut seen = [0; AT_ONCE];
    let Some(page_map) = page_map else { return seen };
    let stretches = errand.addresses.iter().zip(errand.marks).take(errand.count as usize);
    for (index, (seen, (&address, pages))) in seen.iter_mut().zip(stretches).enumerate() {
        let look = if errand.known >> index & 1 == 1 { all_pages } else { own_pages };
        let mut left = look(page_map, address, pages.min(64) as usize).unwrap_or(0);
        while left != 0 {
            let first = left.trailing_zeros();
            let count = (left >> first).trailing_ones();
            let start = address + u64::from(first) * PAGE;
            let run = u64::MAX >> (64 - count) << first;
            if make_own(start..start + u64::from(count) * PAGE).is_ok() {
                *seen |= run;
            }
            left &= !run;
        }
    }
    seen
}

/// The page in a frame, which stays as it is from now on.
fn keep_and_look<'a>(frame: u64) -> &'a [u8] {
    // SAFETY: the frame lies in the mapping made for this thread, which nobody else knows and nothing undoes.
    // The page is read until the next errand at most.
    unsafe {
        keep_page(frame as *mut u8);
        std::slice::from_raw_parts(frame as *const u8, PAGE as usize)
    }
}

/// Gives the memory of the frames to the kernel. Where they are registered it would be told, and that waited
/// for.
fn give_back(userfault: BorrowedFd<'_>, frames: u64) -> Result<(), Errno> {
    let range = frames..frames + FRAMES as u64;
    unregister_frames(userfault, range.clone())?;
    // SAFETY: the frames are this thread's own, and no reference into them is alive.
    unsafe { drop_pages(&range, range.clone())? };
    register_frames(userfault, range)
}
