//! Which private anonymous memory a process has.
//!
//! Since Linux 6.11 the kernel is asked for one mapping after the other (PROCMAP_QUERY), which takes less
//! time than to read /proc/self/maps, and far less where little is asked for. Before, that is read, into a
//! buffer of one's own so that nothing is allocated on the way.

use crate::Errno;
use crate::descriptor_limit::with_one_more;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};
use std::ffi::c_void;
use std::ops::Range;

/// One mapping of a process that is private, anonymous and readable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anonymous {
    /// Its addresses.
    pub range: Range<u64>,
    /// Whether it may be written to.
    pub writable: bool,
    /// Whether what is in it may be executed.
    pub executable: bool,
    /// Whether it is the stack of the first thread.
    pub is_stack: bool,
}

/// Its open /proc/thread-self/maps: a program may come to a place without /proc (chroot), or to a limit on
/// descriptors, at any time.
#[derive(Debug)]
pub struct Mappings {
    fd: OwnedFd,
}

impl Mappings {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn open() -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        // Of a first thread that has ended the kernel shows nothing.
        with_one_more(|| rustix::fs::open("/proc/thread-self/maps", flags, Mode::empty()))
            .map(|fd| Self { fd })
    }

    /// By an open /proc/thread-self/maps, perhaps of another process: its mappings.
    #[must_use]
    pub fn seen_by(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Passes every private anonymous readable mapping of the process that reaches into `range` to `each`,
    /// whole, in order of address. Of one that grows meanwhile the rest may follow; nothing is passed twice.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn for_each_anonymous(
        &self,
        range: Range<u64>,
        mut each: impl FnMut(Anonymous),
    ) -> Result<(), Errno> {
        match ask(self.fd.as_fd(), &range, &mut each) {
            Err(Errno::NOTTY) => read(self.fd.as_fd(), &range, each),
            outcome => outcome,
        }
    }
}

/// struct procmap_query of linux/fs.h.
#[repr(C)]
#[derive(Debug, Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    /// From here on set by the kernel.
    start: u64,
    end: u64,
    access: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    /// Of the buffer for the name; then of the name with its zero, 0 for none.
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

const _: () = assert!(size_of::<Query>() == 104);

// SAFETY: the number carries the size of the structure, which the kernel reads and writes; `name` is set by
// the only caller, to a buffer of as many bytes as `name_size` says, and no build id is asked for.
unsafe impl Ioctl for &mut Query {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<Query>(b'f', 17)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(*self).cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

const READABLE: u64 = 1;
const WRITABLE: u64 = 2;
const EXECUTABLE: u64 = 4;
const SHARED: u64 = 8;

impl Query {
    /// The first readable mapping that ends after an address. Its name goes into a buffer, if there is one.
    ///
    /// # Errors
    /// ENOTTY before Linux 6.11, ENOENT when there is none, ENAMETOOLONG; else the kernel's errno.
    fn next(maps: BorrowedFd<'_>, address: u64, name: &mut [u8]) -> Result<Self, Errno> {
        const THIS_OR_NEXT: u64 = 16;
        let mut query = Self {
            size: size_of::<Self>() as u64,
            flags: THIS_OR_NEXT | READABLE,
            address,
            name_size: name.len() as u32,
            name: if name.is_empty() { 0 } else { name.as_mut_ptr() as u64 },
            ..Self::default()
        };
        // SAFETY: see the implementation of Ioctl; `name` is borrowed until the call is over.
        unsafe { rustix::ioctl::ioctl(maps, &mut query) }?;
        Ok(query)
    }

    fn is_private_anonymous(&self) -> bool {
        self.access & SHARED == 0 && self.inode == 0
    }
}

fn ask(maps: BorrowedFd<'_>, range: &Range<u64>, mut each: impl FnMut(Anonymous)) -> Result<(), Errno> {
    let mut buffer = [0u8; 128];
    let (mut at, mut passed) = (range.start, 0);
    while at < range.end {
        // A longer name than any of anonymous memory is a file's.
        let (found, is_file) = match Query::next(maps, at, &mut buffer) {
            Err(Errno::NAMETOOLONG) => (Query::next(maps, at, &mut []), true),
            outcome => (outcome, false),
        };
        let found = match found {
            Err(Errno::NOENT) => break,
            outcome => outcome?,
        };
        if found.start >= range.end {
            break;
        }
        let name = buffer.get(..(found.name_size as usize).saturating_sub(1)).unwrap_or_default();
        if !is_file && found.is_private_anonymous() && is_plain(name) {
            // It may have grown, or become one with others, since the one before was looked at.
            each(Anonymous {
                range: found.start.max(passed)..found.end,
                writable: found.access & WRITABLE != 0,
                executable: found.access & EXECUTABLE != 0,
                is_stack: name == STACK,
            });
        }
        (at, passed) = (found.end, found.end);
    }
    Ok(())
}

fn read(maps: BorrowedFd<'_>, range: &Range<u64>, mut each: impl FnMut(Anonymous)) -> Result<(), Errno> {
    rustix::fs::seek(maps, SeekFrom::Start(0))?;
    let mut buffer = [0u8; 8192];
    let (mut filled, mut passed) = (0, 0);
    loop {
        let got = rustix::io::read(maps, &mut buffer[filled..])?;
        filled += got;
        let mut start = 0;
        while let Some(length) = buffer[start..filled].iter().position(|&byte| byte == b'\n') {
            let mapping = parse_line(&buffer[start..start + length]);
            start += length + 1;
            match mapping {
                Some(mapping) if mapping.range.start >= range.end => return Ok(()),
                Some(mut mapping) if mapping.range.end > range.start.max(passed) => {
                    mapping.range.start = mapping.range.start.max(passed);
                    passed = mapping.range.end;
                    each(mapping);
                }
                _ => {}
            }
        }
        buffer.copy_within(start..filled, 0);
        filled -= start;
        if got == 0 {
            return Ok(());
        }
        // A line that fills the whole buffer has a path longer than any anonymous mapping's.
        if filled == buffer.len() {
            filled = 0;
        }
    }
}

const STACK: &[u8] = b"[stack]";

/// Whether memory of this name is of no special kind.
fn is_plain(name: &[u8]) -> bool {
    name.is_empty() || name == b"[heap]" || name == STACK || name.starts_with(b"[anon:")
}

/// `start-end perms offset device inode path`: private, readable, without file, and of no special kind.
fn parse_line(line: &[u8]) -> Option<Anonymous> {
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let range = words.next()?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let (start, end) = (hexadecimal(&range[..dash])?, hexadecimal(&range[dash + 1..])?);
    let access = words.next()?;
    let inode = words.nth(2)?;
    let name = words.next().unwrap_or(b"");
    let is_ours = access.starts_with(b"r") && access.ends_with(b"p") && inode == b"0" && is_plain(name);
    is_ours.then(|| Anonymous {
        range: start..end,
        writable: access.starts_with(b"rw"),
        executable: access.get(2) == Some(&b'x'),
        is_stack: name == STACK,
    })
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Region;
    use crate::test_skip::skip;
    use crate::uffd::PAGE;
    use std::fs::File;

    #[test]
    fn only_plain_private_memory_is_taken() {
        let line = |text: &str| parse_line(text.as_bytes());
        let plain = Anonymous { range: 0x1000..0x3000, writable: true, executable: false, is_stack: false };
        assert_eq!(line("1000-3000 rw-p 00000000 00:00 0 "), Some(plain.clone()));
        assert_eq!(line("1000-3000 rw-p 00000000 00:00 0      [heap]"), Some(plain.clone()));
        assert_eq!(line("1000-3000 rw-p 00000000 00:00 0      [anon:arena]"), Some(plain));
        assert!(line("1000-3000 rw-p 00000000 00:00 0      [stack]").unwrap().is_stack);
        let code = line("1000-3000 r-xp 00000000 00:00 0").unwrap();
        assert!(!code.writable && code.executable);
        for other in [
            "1000-3000 ---p 00000000 00:00 0",
            "1000-3000 rw-s 00000000 00:00 0",
            "1000-3000 rw-p 00000000 fe:00 77 /lib/x.so",
            "1000-3000 rw-p 00000000 00:00 0 [vvar]",
            "1000-3000 rw-p",
            "",
            "zz-yy rw-p 0 0 0",
        ] {
            assert_eq!(line(other), None, "{other}");
        }
    }

    /// Nobody else maps anything between two regions while they are looked at: both are in one reservation.
    #[test]
    fn asked_and_read_mappings_are_the_same() {
        const EXECUTABLE_PAGE: i32 = libc::PROT_READ | libc::PROT_EXEC;
        let region = Region::new(64).unwrap();
        let start = region.address();
        for (page, access) in [(3, libc::PROT_NONE), (9, EXECUTABLE_PAGE), (10, libc::PROT_NONE)] {
            // SAFETY: pages of this test's own memory, which nobody touches after this.
            let done = unsafe { libc::mprotect((start + page * PAGE) as *mut _, PAGE as usize, access) };
            assert_eq!(done, 0);
        }
        let range = start + PAGE..start + 12 * PAGE;
        let open = || File::open("/proc/self/maps").unwrap();
        let mut by_reading = Vec::new();
        read(open().as_fd(), &range, |mapping| by_reading.push(mapping)).unwrap();
        let shape: Vec<bool> = by_reading.iter().map(|mapping| mapping.writable).collect();
        assert_eq!(shape, [true, true, false, true], "{by_reading:x?}");
        assert!(by_reading[2].executable && !by_reading[1].executable);
        assert_eq!(by_reading[1].range, start + 4 * PAGE..start + 9 * PAGE);
        let mut by_asking = Vec::new();
        match ask(open().as_fd(), &range, |mapping| by_asking.push(mapping)) {
            Err(Errno::NOTTY) => skip("asked_and_read_mappings_are_the_same", "needs Linux 6.11"),
            outcome => assert_eq!((outcome, by_asking), (Ok(()), by_reading)),
        }
    }

    #[test]
    fn the_stack_is_known_as_such_either_way() {
        let maps = || File::open("/proc/self/maps").unwrap();
        let all = 0..u64::MAX;
        let mut stacks = [0, 0];
        read(maps().as_fd(), &all, |mapping| stacks[0] += usize::from(mapping.is_stack)).unwrap();
        assert_eq!(stacks[0], 1);
        match ask(maps().as_fd(), &all, |mapping| stacks[1] += usize::from(mapping.is_stack)) {
            Err(Errno::NOTTY) => skip("the_stack_is_known_as_such_either_way", "needs Linux 6.11"),
            outcome => assert_eq!((outcome, stacks[1]), (Ok(()), 1)),
        }
    }
}
