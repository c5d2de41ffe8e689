//! Which pages of this process are there or were written to, and how many: pagemap and statm in /proc, read
//! into a buffer of one's own so that nothing is allocated on the way.

use crate::Errno;
use crate::descriptor_limit::with_one_more;
use crate::uffd::PAGE;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};
use std::ffi::c_void;
use std::ops::Range;
use std::time::Duration;

/// Bits of an entry.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OWN: u64 = 1 << 56;

/// How much anonymous memory a process has in DRAM: /proc/thread-self/statm, kept open by a thread that
/// stays. Of one that has ended, as the first may, the kernel says that it holds nothing.
#[derive(Debug)]
pub struct AnonymousPages {
    statm: OwnedFd,
}

impl AnonymousPages {
    /// To be counted by the calling thread.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn by_this_thread() -> Result<Self, Errno> {
        Ok(Self { statm: open("/proc/thread-self/statm")? })
    }

    /// As the kernel counts them: resident less those of files and shared memory.
    ///
    /// # Errors
    /// The kernel's errno, or EINVAL when the line reads differently.
    pub fn count(&self) -> Result<u64, Errno> {
        anonymous_pages_in(&self.statm)
    }
}

/// How long it takes a thread to get so many more pages at about 2 GiB a second, as fast as small ones come.
/// In huge pages that is five times as much.
#[must_use]
pub fn time_to_grow(pages: u64) -> Duration {
    Duration::from_secs_f64((pages * PAGE) as f64 / (2_u64 << 30) as f64)
}

/// A process's /proc/self/pagemap and statm, kept open: a program may come to a place without /proc (chroot),
/// or to a limit on descriptors, at any time.
#[derive(Debug)]
pub struct PageMap {
    fd: OwnedFd,
    anonymous: AnonymousPages,
}

impl AsFd for PageMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl PageMap {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn open() -> Result<Self, Errno> {
        // Of a first thread that has ended the kernel shows nothing.
        Self::by(open("/proc/thread-self/pagemap")?)
    }

    /// By this process's pagemap, which somebody else has opened.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn by(page_map: OwnedFd) -> Result<Self, Errno> {
        Ok(Self { fd: page_map, anonymous: AnonymousPages { statm: open("/proc/self/statm")? } })
    }

    /// By an open /proc/thread-self/pagemap and statm, perhaps of another process.
    #[must_use]
    pub fn seen_by(page_map: OwnedFd, statm: OwnedFd) -> Self {
        Self { fd: page_map, anonymous: AnonymousPages { statm } }
    }

    /// Counts by the calling thread from now on, and no more by the first one.
    pub fn count_by_this_thread(&mut self) {
        // Without it the count is right as long as the first one lives.
        if let Ok(anonymous) = AnonymousPages::by_this_thread() {
            self.anonymous = anonymous;
        }
    }

    /// Pages of anonymous memory of the process that are in DRAM, as the kernel counts them.
    ///
    /// # Errors
    /// As [`AnonymousPages::count`].
    pub fn anonymous_pages(&self) -> Result<u64, Errno> {
        self.anonymous.count()
    }

    /// Which of up to 64 pages from `address` hold anything, in memory or in the kernel's swap, a bit each.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn present(&self, address: u64, pages: usize) -> Result<u64, Errno> {
        self.entries_where(address, pages, |entry| entry & (PRESENT | SWAPPED) != 0)
    }

    /// Which of up to 64 pages from `address` are in memory and nobody else's: the kernel's page of zeroes is
    /// everybody's, and so are pages shared with a child.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn own(&self, address: u64, pages: usize) -> Result<u64, Errno> {
        own_pages(&self.fd, address, pages)
    }

    /// Which of up to 64 pages from `address` hold no page but something else: a guard
    /// (MADV_GUARD_INSTALL), or a mark of the kernel's. To put a page there would do away with it.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn marked(&self, address: u64, pages: usize) -> Result<u64, Errno> {
        self.entries_where(address, pages, |entry| entry & (PRESENT | SWAPPED) == SWAPPED)
    }

    fn entries_where(&self, address: u64, pages: usize, is: impl Fn(u64) -> bool) -> Result<u64, Errno> {
        entries_where(&self.fd, address, pages, is)
    }
}

/// Which of up to 64 pages from `address` are in memory and no other process has, a bit each, by an open
/// /proc/self/pagemap.
///
/// # Errors
/// The kernel's errno.
pub(crate) fn own_pages(page_map: &OwnedFd, address: u64, pages: usize) -> Result<u64, Errno> {
    entries_where(page_map, address, pages, |entry| entry & (PRESENT | OWN) == PRESENT | OWN)
}

/// The same, but others may have them too.
///
/// # Errors
/// The kernel's errno.
pub(crate) fn all_pages(page_map: &OwnedFd, address: u64, pages: usize) -> Result<u64, Errno> {
    entries_where(page_map, address, pages, |entry| entry & PRESENT == PRESENT)
}

fn entries_where(
    page_map: &OwnedFd,
    address: u64,
    pages: usize,
    is: impl Fn(u64) -> bool,
) -> Result<u64, Errno> {
    let mut entries = [0u8; 64 * 8];
    let wanted = &mut entries[..pages.min(64) * 8];
    let got = rustix::io::pread(page_map, &mut *wanted, address / PAGE * 8)?;
    if got < pages.min(64) * 8 {
        return Err(Errno::IO);
    }
    let words = entries[..got].chunks_exact(8).map(|entry| u64::from_ne_bytes(entry.try_into().expect("8")));
    Ok(words.enumerate().fold(0, |bits, (index, entry)| bits | u64::from(is(entry)) << index))
}

/// struct pm_scan_arg of linux/fs.h.
#[repr(C)]
#[derive(Debug, Default)]
struct ScanCall {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    /// Set by the kernel: how far it came.
    walk_end: u64,
    found: u64,
    found_most: u64,
    pages_most: u64,
    inverted: u64,
    wanted_all: u64,
    wanted_any: u64,
    returned: u64,
}

impl ScanCall {
    const PROTECT_FOUND: u64 = 1;
    const WRITTEN: u64 = 1 << 1;
    const PRESENT: u64 = 1 << 3;
    const SWAPPED: u64 = 1 << 4;

    fn of(range: Range<u64>, found: &mut [Found]) -> Self {
        Self {
            size: size_of::<Self>() as u64,
            start: range.start,
            end: range.end,
            found: found.as_mut_ptr() as u64,
            found_most: found.len() as u64,
            returned: Self::PRESENT | Self::SWAPPED,
            ..Self::default()
        }
    }
}

/// struct page_region: a run of pages.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    start: u64,
    end: u64,
    categories: u64,
}

const _: () = assert!(size_of::<ScanCall>() == 96 && size_of::<Found>() == 24);

// SAFETY: the number carries the size of the structure, which the kernel reads and whose `walk_end` it
// writes; `found` is set by `of`, to as many entries as `found_most` says, which callers keep that long.
unsafe impl Ioctl for &mut ScanCall {
    /// How many runs were found.
    type Output = usize;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<ScanCall>(b'f', 16)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(*self).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<usize> {
        Ok(out as usize)
    }
}

impl PageMap {
    /// The address of the first page in `range` that holds anything, in memory or in the kernel's swap. Where
    /// there is nothing the kernel passes over it a gigabyte at a time.
    ///
    /// # Errors
    /// ENOTTY before Linux 6.7; else the kernel's errno.
    pub fn first_present(&self, range: Range<u64>) -> Result<Option<u64>, Errno> {
        let mut found = [Found::default(); 1];
        let mut call = ScanCall {
            pages_most: 1,
            wanted_any: ScanCall::PRESENT | ScanCall::SWAPPED,
            ..ScanCall::of(range, &mut found)
        };
        // SAFETY: see the implementation of Ioctl. The call only looks.
        let count = unsafe { rustix::ioctl::ioctl(&self.fd, &mut call) }?;
        Ok(found[..count].first().map(|run| run.start))
    }

    /// Passes each run of pages in `range` that is there and was written to since the last such call, as
    /// addresses, and write-protects them, so that the next call sees who was written to again. Memory that
    /// was not registered by a [`crate::uffd::Userfault`] whose offers say `writes_pass` is passed over. A
    /// page that came since the last call passes for written to.
    ///
    /// # Errors
    /// ENOTTY before Linux 6.7; else the kernel's errno.
    pub fn take_written(&self, range: Range<u64>, mut each: impl FnMut(Range<u64>)) -> Result<(), Errno> {
        let mut found = [Found::default(); 128];
        let mut call = ScanCall {
            flags: ScanCall::PROTECT_FOUND,
            wanted_all: ScanCall::WRITTEN | ScanCall::PRESENT,
            ..ScanCall::of(range.clone(), &mut found)
        };
        while call.start < range.end {
            // SAFETY: see the implementation of Ioctl. No content changes: who writes to a page that is
            // protected goes on after the kernel has lifted that by itself.
            let count = unsafe { rustix::ioctl::ioctl(&self.fd, &mut call) }?;
            found[..count].iter().for_each(|run| each(run.start..run.end));
            if call.walk_end <= call.start {
                break;
            }
            call.start = call.walk_end;
        }
        Ok(())
    }
}

/// The process with most anonymous memory in DRAM among the children of a process's first thread, and
/// how many pages that is. Of very many only the first hundreds are looked at. None when there are no
/// children or the kernel does not list them.
#[must_use]
pub fn largest_child(process: u32) -> Option<(u32, u64)> {
    let fd = open(&format!("/proc/{process}/task/{process}/children")).ok()?;
    let mut buffer = [0u8; 4096];
    let got = rustix::io::read(&fd, &mut buffer).ok()?;
    let held = |child: u64| Some((u32::try_from(child).ok()?, anonymous_pages_of(child).ok()?));
    whole_numbers(&buffer[..got]).filter_map(held).max_by_key(|&(_, pages)| pages)
}

/// The numbers of a text that have a blank behind them. One that has none may go on where the text was cut.
fn whole_numbers(text: &[u8]) -> impl Iterator<Item = u64> {
    text.split_inclusive(|&byte| byte == b' ').filter(|word| word.ends_with(b" ")).filter_map(number)
}

fn anonymous_pages_of(process: u64) -> Result<u64, Errno> {
    anonymous_pages_in(&open(&format!("/proc/{process}/statm"))?)
}

fn anonymous_pages_in(statm: &OwnedFd) -> Result<u64, Errno> {
    let mut buffer = [0u8; 128];
    let got = rustix::io::pread(statm, &mut buffer, 0)?;
    let mut words = buffer[..got].split(|&byte| byte == b' ').map(number);
    let (_, resident, shared) = (words.next(), words.next().flatten(), words.next().flatten());
    Ok(resident.ok_or(Errno::INVAL)?.saturating_sub(shared.ok_or(Errno::INVAL)?))
}

/// Opens what tells of a process's memory, for reading.
///
/// # Errors
/// The kernel's errno.
pub(crate) fn open(path: &str) -> Result<OwnedFd, Errno> {
    with_one_more(|| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()))
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Region;
    use crate::test_skip::skip;
    use crate::uffd::{Forks, Userfault};

    #[test]
    fn who_was_written_to_is_seen_once() {
        let (region, map) = (Region::new(600).unwrap(), PageMap::open().unwrap());
        let range = region.address()..region.address() + 600 * PAGE;
        let written = || {
            let mut pages = Vec::new();
            let taken = map.take_written(range.clone(), |run| {
                pages.extend(run.step_by(PAGE as usize).map(|page| (page - region.address()) / PAGE));
            });
            taken.map(|()| pages)
        };
        let Ok(userfault) = Userfault::new(Forks::Followed) else {
            return skip("who_was_written_to_is_seen_once", "no userfaultfd");
        };
        if !userfault.offers().writes_pass || written().is_err() {
            return skip("who_was_written_to_is_seen_once", "this kernel does not tell (Linux 6.7)");
        }
        (0..300).for_each(|page| region.write(page * 2, 0, 1));
        assert_eq!(written(), Ok(Vec::new()), "nobody is told of memory that is not registered");
        // SAFETY: the test answers no faults, and there are none: only pages that are there are touched.
        unsafe { userfault.register(range.clone()) }.unwrap();
        let all: Vec<u64> = (0..300).map(|page| page * 2).collect();
        assert_eq!(written(), Ok(all), "more runs than one call of the kernel finds");
        assert_eq!(written(), Ok(Vec::new()));
        region.write(8, 0, 2);
        region.write(598, 0, 2);
        assert_eq!(region.read(10, 0), 1, "reading is not writing");
        assert_eq!(written(), Ok(vec![8, 598]));
        assert_eq!(written(), Ok(Vec::new()));
        userfault.unregister(range).unwrap();
    }

    #[test]
    fn the_first_page_is_found_in_terabytes() {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
        let (bytes, access) = (4 << 40, ProtFlags::READ | ProtFlags::WRITE);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: new memory, which nothing else knows of.
        let Ok(area) = (unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) }) else {
            return skip("the_first_page_is_found_in_terabytes", "so much may not be mapped");
        };
        let (map, all) = (PageMap::open().unwrap(), area as u64..area as u64 + bytes as u64);
        if map.first_present(all.clone()) == Err(Errno::NOTTY) {
            return skip("the_first_page_is_found_in_terabytes", "this kernel does not tell (Linux 6.7)");
        }
        assert_eq!(map.first_present(all.clone()), Ok(None));
        for at in [3 << 40, 5 << 30] {
            // SAFETY: it lies in the new memory.
            unsafe { area.cast::<u8>().add(at).write(1) };
            let found = map.first_present(all.clone()).unwrap().unwrap();
            // It may have come as a huge page.
            assert!((found..found + (2 << 20)).contains(&(area as u64 + at as u64)), "{found:x}");
        }
        assert_eq!(map.first_present(all.start..all.start + (5 << 30) - (2 << 20)), Ok(None));
        // SAFETY: nobody uses it any more.
        unsafe { munmap(area, bytes) }.unwrap();
    }

    #[test]
    fn a_number_that_was_cut_is_none() {
        assert_eq!(whole_numbers(b"1 4567 12").collect::<Vec<_>>(), [1, 4567]);
        assert_eq!(whole_numbers(b"1 4567 ").collect::<Vec<_>>(), [1, 4567]);
        assert_eq!(whole_numbers(b"").count(), 0);
    }

    #[test]
    fn touched_pages_are_present() {
        let region = Region::new(8).unwrap();
        region.write(1, 0, 1);
        region.write(6, 0, 1);
        let map = PageMap::open().unwrap();
        assert_eq!(map.present(region.address(), 8).unwrap(), 0b0100_0010);
        assert!(map.anonymous_pages().unwrap() > 10 && map.anonymous_pages().unwrap() > 10, "again");
        assert_eq!(anonymous_pages_of(u64::MAX), Err(Errno::NOENT));
    }
}
