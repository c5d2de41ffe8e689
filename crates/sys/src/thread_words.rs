//! The words by which the kernel tells that a thread has ended: it clears one and wakes who waits for that
//! (`pthread_join`).
//!
//! In a thread that ends no fault is handed over by userfaultfd any more. When the page of its word is away
//! by then, the word stays as it was, and who waits for it waits for ever. So who takes pages away must
//! know these words, which the kernel names for nobody but the thread itself. What it does name
//! (get_robust_list) is the head of a thread's list of robust mutexes; the C library keeps the two side by
//! side, and how far apart is seen in the calling thread. While a thread holds no such mutex the head
//! points to itself: so it is found in the content of a page.

use crate::uffd::PAGE;
use std::mem::size_of;

/// The head lies at the same place in each line of so many bytes: to these the C library aligns the block
/// of a thread.
const LINE: u64 = 64;

/// A thread's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadWord {
    /// Where it is.
    pub address: u64,
    /// What it holds while the thread lives: its id.
    pub thread: u32,
}

/// Finds such words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadWords {
    /// The head's place in its line.
    head: u64,
    /// The word's.
    word: u64,
}

impl ThreadWords {
    /// Learns from the calling thread how its C library lays them out. None where that keeps no list of
    /// robust mutexes, or the two in different lines.
    #[must_use]
    pub fn of_this_library() -> Option<Self> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let head = robust_list_of(0)?;
        // The nearest place below, in the same line, that holds the thread's id.
        let below = (1..=head % LINE / 4).map(|words| head - words * 4);
        // SAFETY: the places are aligned and lie in the line of the head, which is part of this thread's
        // own block.
        let word =
            below.into_iter().find(|&place| unsafe { (place as *const u32).read_volatile() } == thread)?;
        Some(Self { head: head % LINE, word: word % LINE })
    }

    /// The words of living threads of this process on a page that stands at `address`, or stood there just
    /// now.
    pub fn on_page(self, page: &[u8], address: u64) -> impl Iterator<Item = ThreadWord> {
        let lines = page.chunks_exact(LINE as usize).zip((address..).step_by(LINE as usize));
        let candidates = lines.filter_map(move |(line, start)| {
            let is_head = number(line, self.head, size_of::<u64>()) == start + self.head;
            let thread = number(line, self.word, size_of::<u32>()) as u32;
            (is_head && thread != 0).then_some(ThreadWord { address: start + self.word, thread })
        });
        candidates.filter(move |&word| self.is_alive(word))
    }

    /// Whether the thread still lives, and this is its word.
    #[must_use]
    pub fn is_alive(self, word: ThreadWord) -> bool {
        robust_list_of(word.thread) == Some(word.address - self.word + self.head)
    }
}

/// A number of up to eight bytes at a place of a line.
fn number(line: &[u8], at: u64, bytes: usize) -> u64 {
    let mut number = [0; 8];
    number[..bytes].copy_from_slice(&line[at as usize..at as usize + bytes]);
    u64::from_ne_bytes(number)
}

/// The head of a thread's list of robust mutexes; 0 is the calling thread. None when there is no such
/// thread, it is not to be asked about, or it has no list.
fn robust_list_of(thread: u32) -> Option<u64> {
    let (mut head, mut bytes) = (0u64, 0usize);
    // SAFETY: both places are valid for the call, which only writes to them.
    let outcome = unsafe { libc::syscall(libc::SYS_get_robust_list, thread, &raw mut head, &raw mut bytes) };
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
        let process = libc::getpid();
        if libc::process_vm_readv(process, &raw const read, 1, &raw const there, 1, 0) != bytes as isize
            || found != word.thread
        {
            return;
        }
        libc::process_vm_writev(process, &raw const written, 1, &raw const there, 1, 0);
        // As the kernel does it: for one, in whatever process.
        libc::syscall(libc::SYS_futex, word.address, libc::FUTEX_WAKE, 1);
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
    fn a_living_threads_word_is_found_and_a_dead_ones_is_not() {
        let words = ThreadWords::of_this_library().expect("the C library keeps both in a line");
        let (told, hear) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            told.send((robust_list_of(0).unwrap(), id)).unwrap();
            let _ = wait.recv();
        });
        let (head, id) = hear.recv().unwrap();
        let (start, page) = page_of(head);
        let word = ThreadWord { address: head - words.head + words.word, thread: id };
        assert_eq!(words.on_page(&page, start).collect::<Vec<_>>(), [word]);
        // The same content elsewhere is nobody's.
        assert_eq!(words.on_page(&page, start + PAGE).count(), 0);
        drop(go);
        thread.join().unwrap();
        assert!(!words.is_alive(word));
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
