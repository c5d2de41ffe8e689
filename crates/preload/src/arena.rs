//! The library's own memory: one stretch of addresses that the pager leaves alone.
//!
//! Blocks of a power of two, taken from the front of the stretch and kept in lists when they are given
//! back. It is used to build the engine and rarely after that, so it is simple rather than fast. Fresh
//! memory is zero, as the kernel gives it: large tables cost nothing until they are used.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

/// Blocks from this size on give their memory back to the kernel when they are free: tables of children,
/// which may never be as many again.
const LARGE: usize = 64 << 10;

/// So much is opened at a time.
const OPENED: usize = 1 << 20;

/// Addresses, not memory: as many as the tables of very many children take, or where a process may have no
/// more (`ulimit -v`), as few as an engine can be built with.
const BYTES: [usize; 2] = [256 << 30, 16 << 30];
const SMALLEST: usize = 16;
const CLASSES: usize = 40;

/// The allocator.
pub(crate) struct ArenaAllocator {
    locked: AtomicBool,
    state: UnsafeCell<State>,
}

struct State {
    base: *mut u8,
    bytes: usize,
    used: usize,
    /// So many bytes may be touched. The others are addresses alone, also to a program that has the kernel
    /// put memory behind all that it may touch (mlockall).
    open: usize,
    /// For each power of two, the last block given back; each holds the one before it in its first word.
    free: [*mut u8; CLASSES],
}

// SAFETY: the state is only touched under the lock.
unsafe impl Sync for ArenaAllocator {}

impl ArenaAllocator {
    pub(crate) const fn new() -> Self {
        let state = State { base: null_mut(), bytes: 0, used: 0, open: 0, free: [null_mut(); CLASSES] };
        Self { locked: AtomicBool::new(false), state: UnsafeCell::new(state) }
    }

    /// Whether its addresses can be had. Without them nothing can be allocated.
    pub(crate) fn is_there(&self) -> bool {
        self.with(|state| !state.base.is_null() || state.map())
    }

    /// The addresses it may ever use.
    pub(crate) fn extent(&self) -> Range<u64> {
        self.with(|state| state.base as u64..state.base as u64 + state.bytes as u64)
    }

    /// From now on children do not get its memory: they have no engine and no use for its tables. Nothing can
    /// be allocated in them.
    pub(crate) fn leave_out_of_children(&self) {
        let extent = self.extent();
        let bytes = (extent.end - extent.start) as usize;
        // SAFETY: the advice concerns exactly our own mapping.
        unsafe { libc::madvise(extent.start as *mut _, bytes, libc::MADV_DONTFORK) };
    }

    /// In a child that was just forked, by its only thread: begins anew, at the same addresses. What was
    /// there is its parent's. Nothing of it may be used any more, and without addresses nothing can be
    /// allocated.
    pub(crate) fn renew_in_child(&self) {
        // Another thread of the parent may have been in the midst of a change.
        self.locked.store(false, Ordering::Relaxed);
        self.with(|state| {
            let (base, bytes) = (state.base, state.bytes);
            if base.is_null() {
                return;
            }
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
            // SAFETY: the addresses are our own: either the child has a copy of what is there, or it has
            // nothing there (see `leave_out_of_children`) and has not done anything yet that might have put
            // it there.
            let renewed = unsafe { libc::mmap(base.cast(), bytes, libc::PROT_NONE, flags, -1, 0) };
            (state.used, state.open, state.free) = (0, 0, [null_mut(); CLASSES]);
            if renewed == libc::MAP_FAILED {
                state.bytes = 0;
            } else {
                advise(renewed, bytes);
            }
        });
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        while self.locked.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: the lock is held, so this is the only reference.
        let outcome = work(unsafe { &mut *self.state.get() });
        self.locked.store(false, Ordering::Release);
        outcome
    }

    /// A block and whether it is fresh, that is zero.
    fn take(&self, layout: Layout) -> (*mut u8, bool) {
        let bytes = block_bytes(layout);
        let class = bytes.trailing_zeros() as usize;
        self.with(|state| {
            if class >= CLASSES || (state.base.is_null() && !state.map()) {
                return (null_mut(), false);
            }
            let block = state.free[class];
            if !block.is_null() {
                // SAFETY: a block in a list is free, at least one word long, and its first word was written
                // by `dealloc`.
                state.free[class] = unsafe { block.cast::<*mut u8>().read() };
                return (block, false);
            }
            // Aligned to its size up to a page; larger alignments than that are not asked for.
            let start = state.used.next_multiple_of(bytes.min(4096).max(layout.align()));
            if start + bytes > state.bytes || !state.open_up_to(start + bytes) {
                return (null_mut(), false);
            }
            state.used = start + bytes;
            // SAFETY: `start + bytes` is within the mapping.
            (unsafe { state.base.add(start) }, true)
        })
    }
}

/// What is taken for a layout.
fn block_bytes(layout: Layout) -> usize {
    layout.size().max(layout.align()).max(SMALLEST).next_power_of_two()
}

/// Nobody looks for the program's data there. And tables of which little is in use shall cost what that is,
/// where the system has huge pages for all memory, too.
fn advise(base: *mut libc::c_void, bytes: usize) {
    // SAFETY: the advices concern exactly our own mapping. A kernel without huge pages refuses one of them.
    unsafe {
        libc::madvise(base, bytes, libc::MADV_DONTDUMP);
        libc::madvise(base, bytes, libc::MADV_NOHUGEPAGE);
    }
}

impl State {
    fn map(&mut self) -> bool {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        for bytes in BYTES {
            // SAFETY: a new mapping where the kernel likes touches nothing of anybody's.
            let base = unsafe { libc::mmap(null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
            if base == libc::MAP_FAILED {
                continue;
            }
            advise(base, bytes);
            (self.base, self.bytes) = (base.cast(), bytes);
            return true;
        }
        false
    }

    /// Lets the first `bytes` be touched, and some more. False when the kernel has no memory for that.
    fn open_up_to(&mut self, bytes: usize) -> bool {
        if bytes <= self.open {
            return true;
        }
        let end = bytes.next_multiple_of(OPENED).min(self.bytes);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: concerns our own mapping alone, in which nobody touches what is not open.
        let opened = unsafe { libc::mprotect(self.base.add(self.open).cast(), end - self.open, access) } == 0;
        if opened {
            self.open = end;
        }
        opened
    }
}

// SAFETY: blocks are disjoint pieces of one mapping, of at least the size and alignment asked for, and are
// handed out again only after they were given back.
unsafe impl GlobalAlloc for ArenaAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.take(layout).0
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (block, fresh) = self.take(layout);
        if !block.is_null() && !fresh {
            // Of a large one only the word that made it part of a list is not zero.
            let used = if block_bytes(layout) < LARGE { layout.size() } else { size_of::<*mut u8>() };
            // SAFETY: the block is at least this long.
            unsafe { block.write_bytes(0, used) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let bytes = block_bytes(layout);
        let class = bytes.trailing_zeros() as usize;
        if bytes >= LARGE {
            // SAFETY: the caller gives the block up, which is whole pages of our own mapping. Private
            // anonymous memory reads as zeroes after that; where it is locked the call is refused.
            unsafe {
                if libc::madvise(block.cast(), bytes, libc::MADV_DONTNEED) != 0 {
                    block.write_bytes(0, bytes);
                }
            }
        }
        self.with(|state| {
            // SAFETY: the caller gives the block up; it is at least one word long and aligned for one.
            unsafe { block.cast::<*mut u8>().write(state.free[class]) };
            state.free[class] = block;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_apart_aligned_and_used_again() {
        let arena = ArenaAllocator::new();
        let layout = |size, align| Layout::from_size_align(size, align).unwrap();
        let sizes = [1, 16, 17, 4096, 100_000, 1 << 20];
        // SAFETY: each block is used only within its layout, and given back once.
        unsafe {
            let blocks: Vec<_> = sizes.iter().map(|&size| (arena.alloc(layout(size, 8)), size)).collect();
            for (index, &(block, size)) in blocks.iter().enumerate() {
                assert!(!block.is_null() && (block as usize).is_multiple_of(8));
                block.write_bytes(index as u8 + 1, size);
            }
            for (index, &(block, size)) in blocks.iter().enumerate() {
                let bytes = std::slice::from_raw_parts(block, size);
                assert!(bytes.iter().all(|&byte| byte == index as u8 + 1));
            }
            for (size, index) in [(100_000, 4), (4096, 3)] {
                arena.dealloc(blocks[index].0, layout(size, 8));
                let again = arena.alloc_zeroed(layout(size, 8));
                assert_eq!(again, blocks[index].0);
                assert!(std::slice::from_raw_parts(again, size).iter().all(|&byte| byte == 0));
            }
            let large = blocks[5].0 as u64;
            let held = || overdrive_sys::page_map::PageMap::open().unwrap().present(large, 64).unwrap();
            assert_ne!(held(), 0);
            arena.dealloc(blocks[5].0, layout(1 << 20, 8));
            assert_eq!(held(), 1, "of a large free block the kernel has all back but its first page");
            assert!((arena.alloc(layout(8, 4096)) as usize).is_multiple_of(4096));
            assert!(arena.alloc(layout(1 << 41, 8)).is_null());
            libc::munmap(arena.extent().start as *mut _, BYTES[0]);
        }
    }

    /// With huge pages for all memory a process that did next to nothing had 4 MiB of tables more.
    #[test]
    fn tables_are_not_in_huge_pages() {
        let arena = ArenaAllocator::new();
        assert!(arena.is_there());
        let Range { start, end } = arena.extent();
        let is_told = || {
            let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            // It may have become one with that of another test.
            let holds = |line: &str| {
                let (from, rest) = line.split_once('-')?;
                let to = rest.split(' ').next()?;
                let [from, to] = [from, to].map(|word| u64::from_str_radix(word, 16));
                Some((from.ok()?..to.ok()?).contains(&start))
            };
            let mut mapping = smaps.lines().skip_while(|line| holds(line) != Some(true));
            let flags = mapping.find(|line| line.starts_with("VmFlags:")).unwrap();
            flags.split(' ').any(|flag| flag == "nh")
        };
        // A kernel without any is not told.
        let has_any = std::fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap();
        assert_eq!(is_told(), has_any);
        arena.renew_in_child();
        assert_eq!(is_told(), has_any, "in a child, too");
        // SAFETY: nothing was allocated there.
        unsafe { libc::munmap(start as *mut _, (end - start) as usize) };
    }
}
