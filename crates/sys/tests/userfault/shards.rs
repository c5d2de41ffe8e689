//! Why there is one userfaultfd for all memory of a process: memory of two of them is two mappings to the kernel,
//! and a program that moves or grows it is refused.

use crate::skip;
use overdrive_sys::uffd::{Forks, PAGE, Userfault};
use std::ops::Range;

const PAGE_BYTES: usize = PAGE as usize;

#[test]
fn memory_of_two_userfaultfds_cannot_be_moved() {
    const NAME: &str = "memory_of_two_userfaultfds_cannot_be_moved";
    for shards in [1, 2] {
        let memory = map(2);
        let owners: Result<Vec<_>, _> = (0..shards).map(|_| Userfault::new(Forks::Followed)).collect();
        let Ok(owners) = owners.map_err(|error| skip(NAME, &error.to_string())) else { return };
        let share = 2 / shards * PAGE;
        for (start, owner) in (memory.start..memory.end).step_by(share as usize).zip(&owners) {
            // SAFETY: nothing that this test needs to answer faults lies in the memory.
            unsafe { owner.register(start..start + share) }.unwrap();
        }
        // Where it cannot grow in place.
        let (target, address) = (map(4), memory.start);
        let to = target.start;
        let moving = std::thread::spawn(move || {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let from = address as *mut libc::c_void;
            // SAFETY: both are mappings of this test's own, to which there are no references.
            let moved =
                unsafe { libc::mremap(from, 2 * PAGE_BYTES, 4 * PAGE_BYTES, flags, to as *mut libc::c_void) };
            if moved == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(moved as u64) }
        });
        while !moving.is_finished() {
            owners.iter().for_each(|owner| assert!(owner.read_messages(16, drop).is_ok()));
            std::thread::yield_now();
        }
        let moved = moving.join().unwrap().map_err(|error| error.raw_os_error());
        assert_eq!(moved, if shards == 1 { Ok(to) } else { Err(Some(libc::EFAULT)) });
    }
}

/// Left to the end of the test: whoever unmaps it would have to be listened to.
fn map(pages: usize) -> Range<u64> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping where the kernel likes touches nothing of ours.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), pages * PAGE_BYTES, access, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    start as u64..start as u64 + pages as u64 * PAGE
}
