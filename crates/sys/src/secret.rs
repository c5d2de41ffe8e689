//! A value that stays in memory and in this process: not swapped out, not in core dumps, not in children, and
//! overwritten when it is dropped.

use crate::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};
use rustix::rand::{GetRandomFlags, getrandom};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, compiler_fence};

const PAGE: usize = 4096;

/// A `T` on pages of its own.
pub struct Secret<T> {
    place: NonNull<T>,
    bytes: usize,
}

// SAFETY: it owns its mapping alone and gives references out as a box does.
unsafe impl<T: Send> Send for Secret<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Secret<T> {}

impl<T> Secret<T> {
    /// Makes a value and keeps it. What making it left on the stack is overwritten.
    ///
    /// # Errors
    /// ENOMEM or EPERM when the pages cannot be locked in memory (RLIMIT_MEMLOCK), or are not to be had.
    ///
    /// # Panics
    /// When `T` wants to be aligned to more than a page.
    pub fn new(make: impl FnOnce() -> T) -> Result<Self, Errno> {
        assert!(align_of::<T>() <= PAGE);
        let bytes = size_of::<T>().max(1).next_multiple_of(PAGE);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private anonymous mapping where the kernel likes touches nothing of ours.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE)? };
        let guard = Mapping { base: NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?, bytes };
        // SAFETY: all three concern exactly our own mapping, and change neither content nor address.
        unsafe {
            madvise(base, bytes, Advice::LinuxDontDump)?;
            madvise(base, bytes, Advice::LinuxDontFork)?;
            mlock(base, bytes)?;
        }
        let place = guard.base.cast::<T>();
        // SAFETY: the mapping is large enough, aligned to a page, writable, and nobody else's.
        unsafe { fill(place, make) };
        overwrite_stack();
        std::mem::forget(guard);
        Ok(Self { place, bytes })
    }

    /// Locks it in memory again: a program that unlocks all it has (munlockall) unlocks this too.
    pub fn lock_again(&self) {
        // SAFETY: concerns exactly our own mapping, whose content stays as it is. What cannot be locked is no
        // worse than before.
        let _ = unsafe { mlock(self.place.as_ptr().cast(), self.bytes) };
    }

    /// The addresses it lives at.
    #[must_use]
    pub fn extent(&self) -> Range<u64> {
        let start = self.place.as_ptr() as u64;
        start..start + self.bytes as u64
    }
}

impl<const BYTES: usize> Secret<[u8; BYTES]> {
    /// Bytes that nobody else has: the kernel's random ones.
    ///
    /// # Errors
    /// As [`Secret::new`], and ENOSYS where the kernel has none.
    pub fn random() -> Result<Self, Errno> {
        let mut secret = Self::new(|| [0; BYTES])?;
        fill_with_random(secret.as_mut_slice())?;
        Ok(secret)
    }
}

/// Fills all of it with the kernel's random bytes.
///
/// # Errors
/// ENOSYS where the kernel has none; what was filled by then stays.
pub fn fill_with_random(mut bytes: &mut [u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match getrandom(&mut *bytes, GetRandomFlags::empty()) {
            Ok(count) => bytes = &mut bytes[count..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// A frame of its own, below which [`overwrite_stack`] reaches.
#[inline(never)]
unsafe fn fill<T>(place: NonNull<T>, make: impl FnOnce() -> T) {
    // SAFETY: the caller's word.
    unsafe { place.as_ptr().write(make()) };
}

/// Overwrites what calls made before this one left on the stack.
#[inline(never)]
fn overwrite_stack() {
    let mut below = [0u8; 4 * PAGE];
    std::hint::black_box(&mut below);
}

impl<T> Deref for Secret<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `new` has put a value there, which stays until `drop`.
        unsafe { self.place.as_ref() }
    }
}

impl<T> DerefMut for Secret<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `&mut self` makes it the only reference.
        unsafe { self.place.as_mut() }
    }
}

impl<T> Drop for Secret<T> {
    fn drop(&mut self) {
        // SAFETY: the value is there and is not used again.
        unsafe { self.place.as_ptr().drop_in_place() };
        drop(Mapping { base: self.place.cast(), bytes: self.bytes });
    }
}

impl<T> std::fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Pages that are overwritten before they are given back.
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        for offset in 0..self.bytes {
            // SAFETY: within the mapping, of which no reference is left. Volatile, so that it happens
            // although nobody reads it again.
            unsafe { self.base.as_ptr().add(offset).write_volatile(0) };
        }
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the mapping is ours, of this length, and not used again.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of this process's map about an address.
    fn flags_at(address: u64) -> String {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in text.lines() {
            let range = line.split(' ').next().and_then(|word| word.split_once('-'));
            let number = |text| u64::from_str_radix(text, 16).ok();
            if let Some((start, end)) = range.and_then(|(start, end)| Some((number(start)?, number(end)?))) {
                inside = (start..end).contains(&address);
            } else if inside && line.starts_with("VmFlags:") {
                return line.to_owned();
            }
        }
        panic!("no mapping at {address:x}");
    }

    #[test]
    fn a_secret_is_neither_swapped_nor_dumped_nor_inherited() {
        let mut secret = Secret::new(|| [7u8; 64]).unwrap();
        secret[3] = 9;
        assert_eq!((secret[2], secret[3]), (7, 9));
        let flags = flags_at(secret.extent().start);
        for flag in ["lo", "dd", "dc"] {
            assert!(flags.split(' ').any(|word| word == flag), "{flag} wanted in {flags}");
        }
        assert_eq!(format!("{secret:?}"), "Secret");
    }

    #[test]
    fn random_bytes_are_others_each_time() {
        let [one, other] = [(); 2].map(|()| Secret::<[u8; 64]>::random().unwrap());
        assert_ne!(*one, *other);
        assert!(one.chunks_exact(16).all(|bytes| bytes != [0; 16]), "all of it is filled");
    }

    #[test]
    fn what_is_in_it_is_dropped_with_it() {
        let counted = std::sync::Arc::new(());
        let secret = Secret::new(|| std::sync::Arc::clone(&counted)).unwrap();
        assert_eq!(std::sync::Arc::strong_count(&counted), 2);
        drop(secret);
        assert_eq!(std::sync::Arc::strong_count(&counted), 1);
    }
}
