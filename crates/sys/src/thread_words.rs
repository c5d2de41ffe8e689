//! The words by which the kernel tells that a thread has ended: it clears one and wakes who waits for that
//! (`pthread_join`).
//!
//! In a thread that ends no fault is handed over by userfaultfd any more. When the page of its word is away
//! by then, the word stays as it was, and who waits for it waits for ever. So who takes pages away must
//! know these words, which the kernel names for nobody but the thread itself. What it does name
//! (get_robust_list) is the head of a thread's list of robust mutexes; the C library keeps the two side by
//! side, and how far apart is seen in the calling thread. While a thread holds no such mutex the head
//! points to itself: so it is found in the content of a page.

use crate::raw::syscall;
use crate::uffd::PAGE;
use std::mem::size_of;

/// The head lies at the same place in each line of so many bytes: to these the C library aligns the block
/// of a thread.
const LINE: u64 = 64;
/// Places that are kept of those which hold a block's own address.
const SELVES: usize = 4;

/// A thread's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadWord {
    /// Where it is.
    pub address: u64,
    /// What it holds while the thread lives: its id.
    pub thread: u32,
}

/// Finds such words. Allocates nothing, and leaves errno alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadWords {
    /// Whose threads they are of.
    process: u32,
    /// The head's place in its line.
    head: u64,
    /// The word's.
    word: u64,
    /// How far before the head the block of the thread begins.
    block: u64,
    /// Places in the block that hold its own address.
    selves: [Option<u64>; SELVES],
}

impl ThreadWords {
    /// Learns from the calling thread, one of the program's, how its C library lays them out. None where that
    /// keeps no list of robust mutexes, or the two in different lines.
    #[must_use]
    pub fn of_this_library() -> Option<Self> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let head = robust_list_of(0)?;
        // The nearest place below, in the same line, that holds the thread's id.
        let mut below = (1..=head % LINE / 4).map(|words| head - words * 4);
        // SAFETY: the places are aligned and lie in the line of the head, which is part of this thread's own
        // block.
        let word = below.find(|&place| unsafe { (place as *const u32).read_volatile() } == thread)?;
        // SAFETY: the call only returns a number.
        let block = unsafe { libc::pthread_self() } as u64;
        let before = head.checked_sub(block).filter(|&bytes| bytes < PAGE && block.is_multiple_of(8));
        // SAFETY: the block begins there, and its head lies behind these places.
        let is_self = |at: &u64| unsafe { ((block + at) as *const u64).read_volatile() } == block;
        let mut found = (0..before.unwrap_or(0)).step_by(8).filter(is_self);
        let selves = [(); SELVES].map(|()| found.next());
        let process = rustix::process::getpid().as_raw_nonzero().get() as u32;
        Some(Self { process, head: head % LINE, word: word % LINE, block: before.unwrap_or(0), selves })
    }

    /// The words of threads of the program on a page that stands at `address`, or stood there just now: of
    /// living ones, and of such as are ending or have ended without their word being cleared.
    pub fn on_page(&self, page: &[u8], address: u64) -> impl Iterator<Item = ThreadWord> {
        let lines = page.chunks_exact(LINE as usize).zip((0..).step_by(LINE as usize));
        lines.filter_map(move |(line, start)| {
            if u64::from_ne_bytes(bytes_at(line, self.head)) != address + start + self.head {
                return None;
            }
            let thread = u32::from_ne_bytes(bytes_at(line, self.word));
            let word = ThreadWord { address: address + start + self.word, thread };
            let is_one = thread != 0 && (self.is_block(page, address, start) || self.is_alive(word));
            is_one.then_some(word)
        })
    }

    /// Whether the block around the head of this line says of itself that it is one. The kernel cannot be
    /// asked about a thread that is ending: it forgets the head before it clears the word.
    fn is_block(&self, page: &[u8], address: u64, line: u64) -> bool {
        let Some(block) = (line + self.head).checked_sub(self.block) else { return false };
        let is_self = |at: &u64| u64::from_ne_bytes(bytes_at(page, block + at)) == address + block;
        self.selves[1].is_some() && self.selves.iter().flatten().all(is_self)
    }

    fn is_alive(&self, word: ThreadWord) -> bool {
        robust_list_of(word.thread) == Some(self.head_of(word))
    }

    /// Whether the thread has ended for good: the kernel will not touch the word any more. Its id may be
    /// another thread's by then.
    #[must_use]
    pub fn has_ended(&self, word: ThreadWord) -> bool {
        match robust_list_of(word.thread) {
            Some(head) => head != self.head_of(word),
            // Also of one that is ending nothing is said.
            None => {
                let thread = [self.process, word.thread].map(|number| number as usize);
                // SAFETY: sends nothing, only asks whether there is such a thread in the process.
                let outcome = unsafe { syscall(libc::SYS_tgkill, [thread[0], thread[1], 0, 0, 0, 0]) };
                outcome == -libc::ESRCH as isize
            }
        }
    }

    fn head_of(&self, word: ThreadWord) -> u64 {
        word.address - self.word + self.head
    }
}

/// The bytes at a place of the text.
#[inline]
fn bytes_at<const N: usize>(text: &[u8], at: u64) -> [u8; N] {
    *text[at as usize..].first_chunk().expect("the place lies in the text")
}

/// The head of a thread's list of robust mutexes; 0 is the calling thread. None when there is no such
/// thread, it is not to be asked about, or it has no list.
fn robust_list_of(thread: u32) -> Option<u64> {
    let (mut head, mut bytes) = (0u64, 0usize);
    let places = [(&raw mut head) as usize, (&raw mut bytes) as usize];
    // SAFETY: both places are valid for the call, which only writes to them.
    let outcome =
        unsafe { syscall(libc::SYS_get_robust_list, [thread as usize, places[0], places[1], 0, 0, 0]) };
    (outcome == 0 && head != 0).then_some(head)
}

/// Does what the kernel could not do for a thread that has ended: clears its word, if that still holds its
/// id, and wakes who waits for that. Waits for the page if that is away; does nothing where there is no
/// memory any more.
pub fn tell_end(word: ThreadWord) {
    let (mut found, cleared) = (0u32, 0u32);
    let bytes = size_of::<u32>();
    let there = libc::iovec { iov_base: word.address as *mut _, iov_len: bytes };
    let read = libc::iovec { iov_base: (&raw mut found).cast(), iov_len: bytes };
    let written = libc::iovec { iov_base: (&raw const cleared).cast_mut().cast(), iov_len: bytes };
    // SAFETY: the near places are valid for their calls. The far one the kernel looks up; nobody but the
    // thread that has ended, and the kernel for it, writes there as long as it holds the thread's id.
    unsafe {
        let process = syscall(libc::SYS_getpid, [0; 6]) as usize;
        let there = (&raw const there) as usize;
        let near = [(&raw const read) as usize, (&raw const written) as usize];
        let came = syscall(libc::SYS_process_vm_readv, [process, near[0], 1, there, 1, 0]);
        // What the kernel has written there the compiler knows nothing of.
        if came != bytes as isize || (&raw const found).read_volatile() != word.thread {
            return;
        }
        syscall(libc::SYS_process_vm_writev, [process, near[1], 1, there, 1, 0]);
        // As the kernel does it: for one, in whatever process.
        syscall(libc::SYS_futex, [word.address as usize, libc::FUTEX_WAKE as usize, 1, 0, 0, 0]);
    }
}

const _: () = assert!(PAGE.is_multiple_of(LINE));

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    fn page_of(address: u64) -> (u64, Vec<u8>) {
        let start = address & !(PAGE - 1);
        // SAFETY: the caller names a page of a thread that lives and sleeps; it is read byte by byte.
        (start, (start..start + PAGE).map(|at| unsafe { (at as *const u8).read_volatile() }).collect())
    }

    #[test]
    fn a_living_threads_word_is_found_and_a_dead_ones_that_was_not_cleared() {
        let words = ThreadWords::of_this_library().expect("the C library keeps both in a line");
        let (told, hear) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            told.send((robust_list_of(0).unwrap(), id)).unwrap();
            let _ = wait.recv();
        });
        let (head, id) = hear.recv().unwrap();
        let (start, mut page) = page_of(head);
        let word = ThreadWord { address: head - words.head + words.word, thread: id };
        assert_eq!(words.on_page(&page, start).collect::<Vec<_>>(), [word]);
        assert!(!words.has_ended(word));
        // The same content elsewhere is nobody's.
        assert_eq!(words.on_page(&page, start + PAGE).count(), 0);
        drop(go);
        thread.join().unwrap();
        // The kernel lets go of a thread a moment after it has told of its end.
        while !words.has_ended(word) {
            std::thread::yield_now();
        }
        // As if its end had not been told: the block says what it is.
        assert_eq!(words.on_page(&page, start).collect::<Vec<_>>(), [word]);
        let at = (word.address - start) as usize;
        let mut told = page.clone();
        told[at..at + 4].fill(0);
        assert_eq!(words.on_page(&told, start).count(), 0);
        // Without the block only a living thread's counts.
        let block = (head - start - words.block) as usize;
        page[block..block + 8].fill(0);
        assert_eq!(words.on_page(&page, start).count(), 0);
    }

    #[test]
    fn who_waits_for_the_word_of_a_dead_thread_is_told() {
        static WORD: AtomicU32 = AtomicU32::new(77);
        let word = |thread| ThreadWord { address: WORD.as_ptr() as u64, thread };
        let waiter = std::thread::spawn(|| {
            while WORD.load(Ordering::SeqCst) == 77 {
                // SAFETY: waits while the word holds this number.
                unsafe { libc::syscall(libc::SYS_futex, WORD.as_ptr(), libc::FUTEX_WAIT, 77, 0) };
            }
        });
        tell_end(word(78));
        assert_eq!(WORD.load(Ordering::SeqCst), 77, "another thread's");
        tell_end(word(77));
        waiter.join().unwrap();
        assert_eq!(WORD.load(Ordering::SeqCst), 0);
        // Where there is nothing.
        tell_end(ThreadWord { address: 4096, thread: 77 });
    }
}
