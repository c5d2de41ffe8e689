//! The memory of another process: which of its pages are there, which lie in swap, and asking the kernel to
//! read some of them ahead.

use crate::Errno;
use crate::apart::handle_of;
use crate::uffd::PAGE;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;

/// The most ranges that the kernel takes in one call.
const RANGES_MAX: usize = 1024;

/// Where a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In place.
    Here,
    /// In swap, or read from there and not touched since.
    Swapped,
    /// Nowhere: never touched, or not mapped.
    Nowhere,
}

/// Another process, by numbers that stay its own.
#[derive(Debug)]
pub struct OtherMemory {
    process: OwnedFd,
    pages: File,
    words: Vec<u8>,
}

impl OtherMemory {
    /// Opens it.
    ///
    /// # Errors
    /// What the kernel refuses: it has ended, or may not be looked at.
    pub fn open(pid: u32) -> io::Result<Self> {
        Ok(Self {
            process: handle_of(pid)?,
            pages: File::open(format!("/proc/{pid}/pagemap"))?,
            words: Vec::new(),
        })
    }

    /// Where `count` pages are, from page number `first` on. Fewer where its addresses end.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn places(&mut self, first: u64, count: usize) -> io::Result<impl Iterator<Item = Place> + '_> {
        self.words.resize(count * 8, 0);
        let at = first.checked_mul(8).ok_or(Errno::INVAL)?;
        let got = self.pages.read_at(&mut self.words, at)?;
        Ok(self.words[..got].chunks_exact(8).map(|word| {
            let word = word.try_into().map_or(0, u64::from_ne_bytes);
            match (word & PRESENT != 0, word & SWAPPED != 0) {
                (true, _) => Place::Here,
                (false, true) => Place::Swapped,
                (false, false) => Place::Nowhere,
            }
        }))
    }

    /// Has the kernel read the pages of these ranges of page numbers from swap, without waiting for the
    /// reads. What they take is charged to the process's group.
    ///
    /// # Errors
    /// What the kernel refuses: ENOSYS before Linux 5.10, ESRCH when the process has ended.
    pub fn read_ahead(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        for ranges in ranges.chunks(RANGES_MAX) {
            let vectors: Vec<libc::iovec> = ranges
                .iter()
                .map(|range| libc::iovec {
                    iov_base: std::ptr::without_provenance_mut((range.start * PAGE) as usize),
                    iov_len: ((range.end - range.start) * PAGE) as usize,
                })
                .collect();
            // SAFETY: `vectors` lives through the call; the addresses are another process's, of which nothing
            // is changed but what the kernel keeps of it in memory.
            let done = unsafe {
                libc::syscall(
                    libc::SYS_process_madvise,
                    self.process.as_raw_fd(),
                    vectors.as_ptr(),
                    vectors.len(),
                    libc::MADV_WILLNEED,
                    0,
                )
            };
            if done < 0 {
                let error = io::Error::last_os_error();
                // What was unmapped meanwhile.
                if error.raw_os_error() != Some(libc::ENOMEM) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_process_are_told_apart_and_read_ahead() {
        let mut memory = vec![0u8; 64 * PAGE as usize];
        let first = memory.as_ptr() as u64 / PAGE + 1;
        memory[PAGE as usize..3 * PAGE as usize].fill(1);
        let mut own = OtherMemory::open(std::process::id()).unwrap();
        let places: Vec<Place> = own.places(first, 2).unwrap().collect();
        assert!(places.iter().all(|&place| place != Place::Nowhere), "{places:?}");
        assert!(own.places(0, 1).unwrap().all(|place| place == Place::Nowhere));
        let result = own.read_ahead(&[first..first + 1, first + 2..first + 4]);
        assert!(result.is_ok() || result.unwrap_err().raw_os_error() == Some(libc::ENOSYS));
        assert!(memory[PAGE as usize] == 1);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let other = OtherMemory::open(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(other.read_ahead(&[1..2, 3..4]).is_err(), "it has ended");
        assert!(OtherMemory::open(u32::MAX >> 2).is_err());
    }
}
