//! A helper in a child: a thread there that takes pages out of place and hands over what is in them.
//!
//! The kernel lets nobody else do that. A child that has been forked maps frames, starts the thread beside
//! its own and goes on. The thread calls on who serves the child's memory, gets the descriptor by which that
//! is done, and moves pages into its frames when told to. It tells which of them are as they were on the
//! store, sends the content of the others, and gives the frames' memory back.
//!
//! # Why the thread does no harm
//! It shares the memory of the child and what that library functions keep there for the thread that made it.
//! So it calls none that use such memory (no allocation, no panic, errno only while its maker waits), has
//! all signals blocked, a table of descriptors and a directory of its own, and lets a filter take all system
//! calls from itself but those few it needs: a child that gives up rights need not fear what shares its
//! memory. It ends with the child, and when the child executes another program.

use crate::Errno;
use crate::uffd::PAGE;
use rustix::net::SocketAddrUnix;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

mod callers;
mod thread;

pub use callers::{Answer, Callers, Helper, Taken};
use thread::OWN_BYTES;
pub use thread::start;

/// Pages that are taken in one go.
pub const AT_ONCE: usize = 64;

/// How a process tells its children where to call, in memory that they have a copy of.
#[derive(Debug)]
pub struct Door {
    wanted: AtomicBool,
    name: AtomicU64,
    secret: AtomicU64,
    seed: AtomicU64,
}

impl Door {
    /// One at which nobody is.
    #[must_use]
    pub const fn closed() -> Self {
        Self {
            wanted: AtomicBool::new(false),
            name: AtomicU64::new(0),
            secret: AtomicU64::new(0),
            seed: AtomicU64::new(0),
        }
    }

    /// Whether children that are made from now on need a helper.
    pub fn want(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::Relaxed);
    }
}

/// Memory that a helper looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stretch {
    /// Where it begins.
    pub address: u64,
    /// At most 64.
    pub pages: u32,
    /// Pages in place that others have too are copied, so that the child has them to itself as well.
    pub copied: bool,
}

/// What a helper is asked to do. To take pages: which of them are elsewhere too, a bit each, where they are,
/// and the marks of what is elsewhere. Or to look at stretches of memory: in which of them to copy pages,
/// where they are, and how many pages.
#[repr(C)]
#[derive(Clone, Copy)]
struct Errand {
    kind: u64,
    count: u64,
    known: u64,
    addresses: [u64; AT_ONCE],
    marks: [u64; AT_ONCE],
}

const TAKE: u64 = 0;
const LOOK: u64 = 1;

/// A helper's first words: the secret, and where its own memory begins. With them come descriptors by which
/// the child's mappings, its pages and their number can be seen.
const HELLO: usize = 16;
/// Whether a descriptor is that of its memory: no, yes, or that cannot be told at the moment.
const VERDICT: usize = 8;
const YES: u64 = 1;
const LATER: u64 = 2;
/// What it has done: the pages that it took, those of them that are as they were, a bit each, and whether it
/// broke off.
const DONE: usize = 24;
/// What it has seen: pages of each stretch that its memory has to itself, a bit each.
const SEEN: usize = 8 * AT_ONCE;
/// A page that is not as it was, after its index.
const CONTENT: usize = 8 + PAGE as usize;

fn bytes_of<const N: usize>(words: [u64; N]) -> [[u8; 8]; N] {
    words.map(u64::to_ne_bytes)
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(from) = bytes.get(index * 8..index * 8 + 8) {
        word.copy_from_slice(from);
    }
    u64::from_ne_bytes(word)
}

/// Of a socket that stands in no directory.
pub(crate) fn address_of(name: u64) -> Result<SocketAddrUnix, Errno> {
    let mut text = *b"overmem-0000000000000000";
    for (index, place) in text[8..].iter_mut().rev().enumerate() {
        *place = b"0123456789abcdef"[(name >> (4 * index) & 15) as usize];
    }
    SocketAddrUnix::new_abstract_name(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_skip::skip;
    use crate::uffd::{Forks, Message, Userfault};
    use std::fs::File;
    use std::io::{Read, Write};
    use std::time::Duration;

    const PAGES: usize = 8;
    /// Pages that the child maps by itself, a number that no other mapping has.
    const NEW: usize = 331;

    fn mark(page: &[u8], seed: u64) -> u64 {
        page.iter().fold(seed, |mark, &byte| mark.wrapping_mul(31).wrapping_add(u64::from(byte)))
    }

    fn page(byte: u8) -> [u8; PAGE as usize] {
        [byte; PAGE as usize]
    }

    /// `pages` of new memory.
    fn map(pages: usize) -> u64 {
        let access = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        let (anywhere, length) = (std::ptr::null_mut(), pages * PAGE as usize);
        // SAFETY: a new mapping where the kernel likes; it stays until the process ends.
        let base =
            unsafe { rustix::mm::mmap_anonymous(anywhere, length, access, rustix::mm::MapFlags::PRIVATE) };
        base.unwrap() as u64
    }

    /// What the child does: it writes to the first half of the pages, so that these are its own, and to the
    /// first page of memory that it maps. When it is told to, it checks all of them, and two pages of that
    /// memory. Returns its exit status.
    ///
    /// # Safety
    /// In a child that was just forked, with the pages at `base`.
    unsafe fn be_child(door: &Door, base: u64, mut ready: &File, mut go: &File, closed: i32) -> i32 {
        // SAFETY: a child that nobody tells to go on any more ends.
        unsafe { libc::alarm(60) };
        start(door, mark);
        // SAFETY: the descriptor is the child's own.
        unsafe { libc::close(closed) };
        for index in 0..PAGES / 2 {
            // SAFETY: the pages are mapped and writable.
            unsafe {
                ((base + index as u64 * PAGE) as *mut u8).write_bytes(index as u8 + 100, PAGE as usize);
            };
        }
        let new = map(NEW) as *mut u8;
        // SAFETY: it was just mapped.
        unsafe { new.write_bytes(77, PAGE as usize) };
        let mut byte = [0];
        if ready.write_all(b"r").is_err() || go.read_exact(&mut byte).is_err() {
            return 2;
        }
        let wanted = |index: usize| if index < PAGES / 2 { index as u8 + 100 } else { index as u8 };
        // SAFETY: as above.
        let is = |index: usize| unsafe { ((base + index as u64 * PAGE) as *const u8).read_volatile() };
        // SAFETY: as above.
        let is_new = |index: usize| unsafe { new.add(index * PAGE as usize).read_volatile() };
        let is_right =
            (0..PAGES).all(|index| is(index) == wanted(index)) && [is_new(0), is_new(1)] == [77, 101];
        i32::from(!is_right)
    }

    fn pipe() -> (File, File) {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        (reader.into(), writer.into())
    }

    fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
        for _ in 0..5000 {
            if let Some(found) = look() {
                return found;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("that took too long");
    }

    fn ask(helper: &mut Helper, pages: &[(u64, Option<u64>)]) -> (Taken, Vec<(u32, u8)>) {
        let is_taken = |answer| match answer {
            Answer::Took(taken) => taken,
            Answer::Saw(_) => panic!("nobody has asked for that"),
        };
        helper.ask(pages).unwrap();
        let mut changed = Vec::new();
        let taken = until(|| {
            helper
                .answer(|index, content| {
                    assert!(content.iter().all(|&byte| byte == content[0]) && content.len() == PAGE as usize);
                    changed.push((index, content[0]));
                })
                .unwrap()
                .map(is_taken)
        });
        (taken, changed)
    }

    /// What the helper's child has mapped by itself.
    fn new_memory(helper: &Helper) -> std::ops::Range<u64> {
        let (mut found, mut has_own) = (None, false);
        let all = helper.mappings().unwrap().for_each_anonymous(0..u64::MAX, |mapping| {
            has_own |= mapping.range.contains(&helper.own_memory().start);
            if mapping.range.end - mapping.range.start == NEW as u64 * PAGE {
                found = Some(mapping.range);
            }
        });
        all.unwrap();
        assert!(has_own, "its own memory is where it says");
        found.unwrap()
    }

    #[test]
    fn pages_of_a_child_are_taken_and_what_is_in_them_is_told() {
        const NAME: &str = "pages_of_a_child_are_taken_and_what_is_in_them_is_told";
        static DOOR: Door = Door::closed();
        let userfault = match Userfault::new(Forks::Followed) {
            Ok(userfault) if userfault.offers().moves => userfault,
            Ok(_) => return skip(NAME, "this kernel cannot move pages"),
            Err(error) => return skip(NAME, &error.to_string()),
        };
        let base = map(PAGES);
        userfault.take_over(base..base + PAGES as u64 * PAGE).unwrap();
        let address = |index: usize| base + index as u64 * PAGE;
        (0..PAGES)
            .for_each(|index| assert!(userfault.copy(address(index), &page(index as u8), true).is_ok()));
        let mut callers = Callers::at(&DOOR, 7, std::process::id()).unwrap();
        DOOR.want(true);
        let ((mut ready, ready_child), (go_child, mut go), (mut eof, closed)) = (pipe(), pipe(), pipe());
        let forks = std::thread::spawn(move || {
            // SAFETY: the child calls nothing that another thread may have been in the midst of.
            match unsafe { libc::fork() } {
                // SAFETY: as above.
                0 => unsafe {
                    use std::os::fd::AsRawFd;
                    libc::_exit(be_child(&DOOR, base, &ready_child, &go_child, closed.as_raw_fd()))
                },
                child => child,
            }
        });
        let mut child = None;
        until(|| {
            userfault
                .read_messages(1, |message| match message {
                    Message::Fork(descriptor) => child = Some(userfault.of_child(descriptor)),
                    other => panic!("{other:?}"),
                })
                .unwrap();
            child.is_some().then_some(())
        });
        let (child, process) = (child.unwrap(), forks.join().unwrap());
        let mut byte = [0];
        ready.read_exact(&mut byte).unwrap();
        assert_eq!(eof.read(&mut byte).unwrap(), 0, "nobody holds what the child has closed");
        // A memory that it is not is offered first.
        let candidates = [(3, &userfault), (4, &child)];
        let (number, mut helper) = until(|| callers.bring(&candidates).pop());
        assert_eq!((number, callers.are_waiting()), (4, false));
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let helper_of =
            threads.map(|thread| thread.unwrap().path()).find(|path| !path.ends_with(process.to_string()));
        let (task, status) = helper_of.map(|path| (path.join("fd"), path.join("status"))).unwrap();
        let status = std::fs::read_to_string(status).unwrap();
        for line in ["Name:\tovermem-helper", "Seccomp:\t2", "NoNewPrivs:\t1", "SigBlk:\tfffffffe7ffbfeff"] {
            assert!(status.contains(line), "{line} in\n{status}");
        }
        assert_eq!(
            std::fs::read_dir(task).unwrap().count(),
            3,
            "the socket, the userfaultfd and the page map"
        );
        let pages: Vec<_> = (0..PAGES).map(|index| (address(index), Some(mark(&page(101), 7)))).collect();
        for _ in 0..3 {
            let (taken, changed) = ask(&mut helper, &pages);
            assert_eq!(
                taken,
                Taken { took: 0b1111, unchanged: 0b10, broke_off: false },
                "those shared with the parent stay"
            );
            assert_eq!(changed, [(0, 100), (2, 102), (3, 103)]);
            assert_eq!(ask(&mut helper, &pages), (Taken { took: 0, unchanged: 0, broke_off: false }, vec![]));
            for index in 0..4 {
                // One of them the child waits for in the end.
                child.copy(address(index), &page(index as u8 + 100), true).unwrap();
            }
        }
        let stretch = |index, copied| Stretch { address: address(index), pages: 4, copied };
        // As the parent gives a page up that both had, the child has it to itself, and it can go.
        helper.look(&[stretch(0, false), stretch(4, false)]).unwrap();
        assert_eq!(
            until(|| helper.answer(|_, _| {}).unwrap()),
            Answer::Saw([[0b1111, 0].as_slice(), &[0; 62]].concat())
        );
        let pages_of_both = [(address(6), None), (address(7), None)];
        assert_eq!(ask(&mut helper, &pages_of_both).0.took, 0);
        userfault.unregister(address(6)..address(7)).unwrap();
        // SAFETY: the page is this test's own.
        unsafe { libc::madvise(address(6) as *mut _, PAGE as usize, libc::MADV_DONTNEED) };
        assert_eq!(ask(&mut helper, &pages_of_both).0.took, 0, "it was shared");
        helper.look(&[stretch(4, false)]).unwrap();
        assert_eq!(
            until(|| helper.answer(|_, _| {}).unwrap()),
            Answer::Saw([[0b100].as_slice(), &[0; 63]].concat())
        );
        assert_eq!(
            ask(&mut helper, &pages_of_both),
            (Taken { took: 1, unchanged: 0, broke_off: false }, vec![(0, 6)])
        );
        child.copy(address(6), &page(6), true).unwrap();
        let taken = |unchanged| Taken { took: 1, unchanged, broke_off: false };
        assert_eq!(ask(&mut helper, &[(address(1), None)]), (taken(0), vec![(0, 101)]), "it is nowhere else");
        child.copy(address(1), &page(101), true).unwrap();
        assert_eq!(ask(&mut helper, &pages[1..2]).0, taken(1));
        // What both have can go as soon as the child has a copy.
        let page_of_both = [(address(7), None)];
        assert_eq!(ask(&mut helper, &page_of_both).0.took, 0);
        helper.look(&[stretch(4, true)]).unwrap();
        assert_eq!(
            until(|| helper.answer(|_, _| {}).unwrap()),
            Answer::Saw([[0b1111].as_slice(), &[0; 63]].concat())
        );
        assert_eq!(ask(&mut helper, &page_of_both), (taken(0), vec![(0, 7)]));
        child.copy(address(7), &page(7), true).unwrap();
        // What the child has mapped meanwhile can be seen, and its faults be handled, from here.
        let new = new_memory(&helper);
        assert!(helper.page_map().unwrap().anonymous_pages().unwrap() > PAGES as u64);
        child.take_over(new.clone()).unwrap();
        assert_eq!(ask(&mut helper, &[(new.start, None)]), (taken(0), vec![(0, 77)]));
        child.copy(new.start, &page(77), true).unwrap();
        go.write_all(b"g").unwrap();
        for _ in 0..2 {
            until(|| {
                child
                    .read_messages(1, |message| match message {
                        Message::Fault { address: at, .. } => drop(child.copy(at, &page(101), true).unwrap()),
                        other => panic!("{other:?}"),
                    })
                    .map(|count| (count > 0).then_some(()))
                    .unwrap()
            });
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(process, &raw mut status, 0) }, process);
        assert_eq!(status, 0, "it exits with 1 for a wrong page");
        assert!(helper.ask(&pages).is_err() || until(|| Some(helper.answer(|_, _| {}))).is_err());
        DOOR.want(false);
        userfault.unregister(base..base + PAGES as u64 * PAGE).unwrap();
    }
}
