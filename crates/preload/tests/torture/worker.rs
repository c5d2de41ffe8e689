//! One thread of the torture: random operations on its own memory, each of which must leave every page as it must be.

use crate::memory::{Area, Content, PAGE, check};
use io_uring::{IoUring, opcode, types::Fd};
use overdrive_base::rng::Rng;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

/// Pages of all areas of a thread, about.
const PAGES_MAX: usize = 10_000;
const FILE_PAGES: usize = 64;

pub(crate) struct Worker {
    rng: Rng,
    name: String,
    areas: Vec<Area>,
    blobs: Vec<(u64, Vec<u64>)>,
    file: File,
    file_pages: Vec<Content>,
    ring: IoUring,
    sockets: (UnixStream, UnixStream),
    children: Vec<i32>,
    version: u64,
    pub(crate) steps: u64,
}

impl Worker {
    pub(crate) fn new(seed: u64, index: u64, dir: &Path) -> Self {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_TMPFILE | libc::O_DIRECT)
            .open(dir)
            .unwrap();
        file.set_len((FILE_PAGES * PAGE) as u64).unwrap();
        Self {
            rng: Rng::for_stream(seed, index),
            name: format!("seed {seed}, thread {index}"),
            areas: vec![Area::new(512)],
            blobs: Vec::new(),
            file,
            file_pages: vec![Content::default(); FILE_PAGES],
            ring: IoUring::new(4).unwrap(),
            sockets: UnixStream::pair().unwrap(),
            children: Vec::new(),
            version: index << 40,
            steps: 0,
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.rng.below(limit as u64) as usize
    }

    fn fresh(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// A random stretch of a random area: its index, the first page and how many.
    fn stretch(&mut self, most: usize) -> (usize, usize, usize) {
        let area = self.below(self.areas.len());
        let count = 1 + self.below(most.min(self.areas[area].len()));
        let page = self.below(self.areas[area].len() - count + 1);
        (area, page, count)
    }

    fn must<T, E: std::fmt::Display>(&self, what: &str, outcome: Result<T, E>) -> T {
        outcome.unwrap_or_else(|error| {
            let line = format!("torture: {}, step {}: {what}: {error}\n", self.name, self.steps);
            // SAFETY: the bytes are valid. By system call, because this may be a child after a fork.
            unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(99) }
        })
    }

    pub(crate) fn step(&mut self) {
        self.steps += 1;
        match self.below(1000) {
            0..300 => self.write(),
            300..600 => self.read(),
            600..640 => self.map(),
            640..660 => self.unmap(),
            660..690 => self.remap(),
            690..760 => self.advise(),
            760..790 => self.protect(),
            790..800 => self.lock(),
            800..840 => self.direct(),
            840..850 => self.registered(),
            850..890 => self.socket(),
            890..950 => self.blob(),
            950..975 => self.signal(),
            975..985 => self.thread(),
            985..988 => self.fork(),
            988..989 => self.spawn(),
            _ => self.reap(false),
        }
    }

    /// One of a few steps by which memory is taken, moved and given back: with many threads, ever again to
    /// where another's just was.
    pub(crate) fn move_about(&mut self) {
        self.steps += 1;
        match self.below(10) {
            0 => self.map(),
            1..4 => self.unmap(),
            4..8 => self.remap(),
            8 => self.write(),
            _ => self.read(),
        }
    }

    fn write(&mut self) {
        let (area, page, count) = self.stretch(64);
        let version = self.fresh();
        match self.below(8) {
            0 => (page..page + count).for_each(|page| self.areas[area].write(page, 0)),
            1 => (page..page + count).for_each(|page| self.areas[area].write(page, version)),
            2 => {
                for page in page..page + count {
                    let version = self.fresh();
                    self.areas[area].write(page, version);
                }
            }
            _ => self.areas[area].stamp(page, version),
        }
    }

    fn read(&mut self) {
        let (area, page, count) = self.stretch(256);
        let (end, step) = match self.below(8) {
            0 | 1 => (page + count, 1),
            // A column, in equal steps.
            2 => (self.areas[area].len(), 2 + self.below(30)),
            _ => (page + 1, 1),
        };
        let mut pages = (page..end).step_by(step).take(256);
        let outcome = pages.try_for_each(|page| self.areas[area].check(page));
        self.must("read", outcome);
    }

    fn map(&mut self) {
        if self.areas.iter().map(Area::len).sum::<usize>() < PAGES_MAX {
            let pages = 1 + self.below(1024);
            let mut area = Area::new(pages);
            if self.below(2) == 0 {
                (0..pages).for_each(|page| area.write(page, self.version + page as u64));
                self.version += pages as u64;
            }
            self.areas.push(area);
        }
    }

    fn unmap(&mut self) {
        let area = self.below(self.areas.len());
        if self.areas.len() > 1 && self.below(2) == 0 {
            let outcome = self.areas[area].check_all();
            self.must("before munmap", outcome);
            self.areas.swap_remove(area);
            return;
        }
        let (area, page, count) = self.stretch(200);
        if self.areas[area].len() > count + 1 && self.areas.len() < 60 {
            let rest = self.areas[area].cut(page, count);
            self.areas.extend(rest);
            if self.areas[area].len() == 0 {
                self.areas.swap_remove(area);
            }
        }
    }

    fn remap(&mut self) {
        let area = self.below(self.areas.len());
        let pages = self.areas[area].len();
        match self.below(3) {
            0 => self.areas[area].resize((pages + 1 + pages / 4).min(PAGES_MAX / 2)),
            1 => self.areas[area].resize(1 + pages / 2),
            _ if self.areas[area].whole => self.areas[area].relocate(),
            _ => {}
        }
    }

    fn advise(&mut self) {
        let (area, page, count) = self.stretch(128);
        let advice = [
            libc::MADV_DONTNEED,
            libc::MADV_FREE,
            libc::MADV_WILLNEED,
            libc::MADV_HUGEPAGE,
            libc::MADV_COLD,
            libc::MADV_PAGEOUT,
            libc::MADV_POPULATE_READ,
            libc::MADV_POPULATE_WRITE,
        ][self.below(8)];
        let memory = &mut self.areas[area];
        memory.whole &= advice != libc::MADV_HUGEPAGE;
        // What this kernel does not know changes nothing.
        if memory.advise(page, count, advice).is_ok() {
            for page in &mut memory.pages[page..page + count] {
                match advice {
                    libc::MADV_DONTNEED => *page = Content::default(),
                    libc::MADV_FREE => page.freed = true,
                    _ => {}
                }
            }
        }
        let check = self.areas[area].check(page);
        self.must("after madvise", check);
        if self.below(2) == 0 {
            let version = self.fresh();
            self.areas[area].write(page, version);
        }
    }

    fn protect(&mut self) {
        let (area, page, count) = self.stretch(64);
        let access = if self.below(2) == 0 { libc::PROT_READ } else { libc::PROT_NONE };
        let outcome = self.areas[area].protect(page, count, access);
        self.must("mprotect", outcome);
        if access == libc::PROT_READ {
            let outcome = (page..page + count).try_for_each(|page| self.areas[area].check(page));
            self.must("read-only", outcome);
        } else {
            self.write_elsewhere();
        }
        // Executable memory goes to other frames than what lies beside it.
        let executable = if self.below(4) == 0 { libc::PROT_EXEC } else { 0 };
        let outcome = self.areas[area].protect(page, count, libc::PROT_READ | libc::PROT_WRITE | executable);
        self.must("mprotect back", outcome);
    }

    /// Something for the pager to do while a part of memory is in a special state.
    fn write_elsewhere(&mut self) {
        for _ in 0..20 {
            let size = 1 + self.below(100_000);
            let blob = vec![size as u64; size / 8];
            let outcome = if blob.iter().all(|&word| word == size as u64) { Ok(()) } else { Err("heap") };
            self.must("malloc", outcome);
        }
    }

    fn lock(&mut self) {
        let (area, page, count) = self.stretch(32);
        // Not permitted or too much of it: nothing happened.
        let locked = self.areas[area].lock(page, count, true).is_ok();
        self.write_elsewhere();
        let outcome = (page..page + count).try_for_each(|page| self.areas[area].check(page));
        self.must("locked", outcome);
        if locked {
            let outcome = self.areas[area].lock(page, count, false);
            self.must("munlock", outcome);
        }
    }

    /// O_DIRECT from and into managed pages: the pages are pinned while the drive works on them.
    fn direct(&mut self) {
        let (area, page, count) = self.stretch(16);
        let at = self.below(FILE_PAGES - count + 1);
        let offset = (at * PAGE) as u64;
        let contents = &mut self.areas[area];
        if self.rng.below(2) == 0 && contents.pages[page..page + count].iter().all(|page| !page.freed) {
            let outcome = self.file.write_all_at(contents.bytes(page, count), offset);
            self.file_pages[at..at + count].copy_from_slice(&self.areas[area].pages[page..page + count]);
            self.must("O_DIRECT write", outcome);
        } else {
            let outcome = self.file.read_exact_at(contents.bytes(page, count), offset);
            self.areas[area].pages[page..page + count].copy_from_slice(&self.file_pages[at..at + count]);
            self.must("O_DIRECT read", outcome);
            let outcome = (page..page + count).try_for_each(|page| self.areas[area].check(page));
            self.must("after O_DIRECT", outcome);
        }
    }

    /// A registered buffer stays pinned between the calls; what is read into it later must be seen.
    ///
    /// What was given up by MADV_FREE is written to before. Linux (6.18, without the pager too) does not mark
    /// what a drive writes into a registered buffer as written, and drops it later as given up.
    fn registered(&mut self) {
        let (area, page, count) = self.stretch(16);
        for page in page..page + count {
            if self.areas[area].pages[page].freed {
                self.areas[area].write(page, 0);
            }
        }
        let buffer = libc::iovec { iov_base: self.areas[area].at(page).cast(), iov_len: count * PAGE };
        // SAFETY: the mapping stays until the buffer is unregistered below.
        let outcome = unsafe { self.ring.submitter().register_buffers(&[buffer]) };
        if outcome.is_err() {
            return; // Over the limit of locked memory.
        }
        self.write_elsewhere();
        let at = self.below(FILE_PAGES - count + 1);
        let (fd, start) = (Fd(self.file.as_raw_fd()), buffer.iov_base.cast());
        let read =
            opcode::ReadFixed::new(fd, start, buffer.iov_len as u32, 0).offset((at * PAGE) as u64).build();
        // SAFETY: the buffer outlives the request, which is waited for.
        unsafe { self.ring.submission().push(&read).unwrap() };
        let outcome = self.ring.submit_and_wait(1);
        self.must("io_uring", outcome);
        let result = self.ring.completion().next().map_or(0, |entry| entry.result());
        let outcome = if result == buffer.iov_len as i32 { Ok(()) } else { Err(format!("{result} bytes")) };
        self.must("registered read", outcome);
        let outcome = self.ring.submitter().unregister_buffers();
        self.must("unregister", outcome);
        self.areas[area].pages[page..page + count].copy_from_slice(&self.file_pages[at..at + count]);
        let outcome = (page..page + count).try_for_each(|page| self.areas[area].check(page));
        self.must("after registered read", outcome);
    }

    /// From one place to another through a socket: the kernel reads and writes the pages.
    fn socket(&mut self) {
        let (from, page, count) = self.stretch(8);
        let (to, target, _) = self.stretch(1);
        let count = count.min(self.areas[to].len() - target);
        for index in 0..count {
            if self.areas[from].pages[page + index].freed {
                continue;
            }
            let content = self.areas[from].pages[page + index];
            let outcome = self.sockets.0.write_all(self.areas[from].bytes(page + index, 1));
            self.must("send", outcome);
            let outcome = self.sockets.1.read_exact(self.areas[to].bytes(target + index, 1));
            self.must("receive", outcome);
            self.areas[to].pages[target + index] = content;
            let outcome = self.areas[to].check(target + index);
            self.must("received", outcome);
        }
    }

    /// The heap, by brk and by mmap.
    fn blob(&mut self) {
        if self.blobs.len() < 40 && self.below(2) == 0 {
            let (version, size) = (self.fresh(), 1 + self.below(20_000));
            self.blobs.push((version, vec![version; size]));
        } else if !self.blobs.is_empty() {
            let index = self.below(self.blobs.len());
            let (version, blob) = self.blobs.swap_remove(index);
            let wrong = blob.iter().filter(|&&word| word != version).count();
            self.must(
                "heap",
                if wrong == 0 { Ok(()) } else { Err(format!("{wrong} of {} words", blob.len())) },
            );
        }
    }

    fn signal(&mut self) {
        // SAFETY: the handler was set by `install_handler` and does what handlers may.
        let outcome = check(unsafe { libc::raise(libc::SIGUSR1) });
        self.must("raise", outcome);
    }

    fn thread(&mut self) {
        let version = self.fresh();
        let thread = std::thread::spawn(move || deep(version, 40));
        let outcome = thread.join().map_err(|_| "the thread's stack is not as it was");
        self.must("thread", outcome);
    }

    /// A child checks all memory of this thread, while the parent writes on.
    fn fork(&mut self) {
        if self.children.len() >= 3 {
            return self.reap(true);
        }
        // SAFETY: the child calls what is safe after a fork of this C library, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            self.live_as_child(2);
        }
        let outcome = if child > 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
        self.must("fork", outcome);
        self.children.push(child);
    }

    fn live_as_child(&mut self, depth: u32) -> ! {
        self.name.push_str(", child");
        let outcome = self.areas.iter().try_for_each(Area::check_all);
        self.must("after fork", outcome);
        // Some have memory of their own, and live until it is under the pager and some of it is away.
        let maps_more = self.below(2) == 0;
        for step in 0..if maps_more { 300 } else { 50 } {
            match self.below(6) {
                0 => self.write(),
                1 => self.advise(),
                2 => self.remap(),
                3 => self.blob(),
                4 if maps_more && step % 8 == 0 => self.map(),
                4 if maps_more && step % 8 == 4 => self.unmap(),
                _ => self.read(),
            }
        }
        if depth > 0 && self.below(3) == 0 {
            // SAFETY: as above.
            let child = unsafe { libc::fork() };
            if child == 0 {
                self.live_as_child(depth - 1);
            }
            self.children = vec![child];
            self.reap(true);
        }
        let outcome = self.areas.iter().try_for_each(Area::check_all);
        self.must("at the child's end", outcome);
        if self.below(4) == 0 {
            let program = c"/bin/true";
            let arguments = [program.as_ptr(), std::ptr::null()];
            let environment = [std::ptr::null()];
            // SAFETY: both lists end with a null pointer.
            unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        }
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(0) }
    }

    /// Looks after children; with `wait`, until the oldest has ended.
    fn reap(&mut self, wait: bool) {
        let Some(&child) = self.children.first() else { return };
        let mut status = 0;
        // SAFETY: the status is valid for the call.
        let ended = unsafe { libc::waitpid(child, &raw mut status, if wait { 0 } else { libc::WNOHANG }) };
        if ended == child {
            self.children.remove(0);
            let outcome = if status == 0 { Ok(()) } else { Err(format!("status {status:#x}")) };
            self.must("a child ended", outcome);
        }
    }

    fn spawn(&mut self) {
        let status = Command::new("/bin/true").env_remove("LD_PRELOAD").status();
        let status = self.must("spawn", status);
        self.must("/bin/true", if status.success() { Ok(()) } else { Err(status) });
    }

    /// Everything once more at the end.
    pub(crate) fn finish(&mut self) {
        while !self.children.is_empty() {
            self.reap(true);
        }
        let outcome = self.areas.iter().try_for_each(Area::check_all);
        self.must("at the end", outcome);
    }
}

/// Fills the stack and looks whether it stays, while other threads push it out.
fn deep(version: u64, depth: u64) {
    let stack = std::hint::black_box([version ^ depth; 1024]);
    if depth > 0 {
        deep(version, depth - 1);
    }
    assert!(std::hint::black_box(stack).iter().all(|&word| word == version ^ depth));
}

extern "C" fn on_signal(_: i32) {
    let stack = std::hint::black_box([7u64; 2048]);
    if std::hint::black_box(stack).iter().any(|&word| word != 7) {
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(98) };
    }
}

pub(crate) fn install_handler() {
    let handler: extern "C" fn(i32) = on_signal;
    // SAFETY: the handler only uses its own stack.
    unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
}
