//! What a program hands to `overmem_start_with`: a structure that may be older or newer than this library.

use crate::setup::Wishes;
use overdrive_extend::check_writes;
use overdrive_pager::pool::Compress;
use std::ffi::{CStr, OsStr};
use std::mem::offset_of;
use std::os::raw::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Longer ones are a mistake; they are not looked at.
const BYTES_MAX: usize = 4096;

/// As in the header. New fields come at the end, and zero in them is what was so before there were any.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OvermemOptions {
    bytes: usize,
    folder: *const c_char,
    dram_bytes: u64,
    store_bytes: u64,
    writes_per_day_bytes: u64,
    compress: u32,
    encrypt: u32,
}

// No padding: every byte of it is a field's.
const _: () = assert!(size_of::<OvermemOptions>() == offset_of!(OvermemOptions, encrypt) + 4);

/// Why the options are none: a negative errno, and a line for people.
pub(crate) type Refused = (c_int, String);

/// What the options say.
///
/// # Errors
/// -EINVAL for what cannot be meant, -E2BIG for what a later library understands.
///
/// # Safety
/// There are as many bytes as the first field says; `folder` is null or ends with a zero byte.
pub(crate) unsafe fn read(options: *const OvermemOptions) -> Result<Wishes, Refused> {
    const OWN: usize = size_of::<OvermemOptions>();
    let invalid = |text: String| Err((-libc::EINVAL, text));
    if options.is_null() {
        return invalid("overmem_start_with: no options".to_owned());
    }
    // SAFETY: the caller's promise; the field is the first.
    let bytes = unsafe { options.cast::<usize>().read_unaligned() };
    if bytes < OWN {
        return invalid(format!("options of {bytes} bytes: wanted sizeof(struct overmem_options)"));
    }
    let too_big = |what: &str| Err((-libc::E2BIG, format!("options of {bytes} bytes: {what}")));
    if bytes > BYTES_MAX {
        return too_big("wanted sizeof(struct overmem_options)");
    }
    // SAFETY: the caller's promise; only what was just found to be there is read.
    let (found, rest) = unsafe {
        let rest = std::slice::from_raw_parts(options.cast::<u8>().add(OWN), bytes - OWN);
        (options.read_unaligned(), rest)
    };
    if rest.iter().any(|&byte| byte != 0) {
        return too_big("this libovermem.so does not know all that they say; wanted a newer one");
    }
    let compress = match found.compress {
        0 => Compress::Auto,
        1 => Compress::Off,
        2 => Compress::Lz4,
        3 => Compress::Zstd,
        other => return invalid(format!("compress {other}: wanted one of enum overmem_compress")),
    };
    let encrypt = match found.encrypt {
        0 => false,
        1 => true,
        other => return invalid(format!("encrypt {other}: wanted 0 or 1")),
    };
    let writes_per_day_bytes = Some(found.writes_per_day_bytes).filter(|&bytes| bytes != 0);
    if let Err(error) = check_writes(writes_per_day_bytes) {
        return invalid(error.to_string());
    }
    let (budget_bytes, store_bytes) = (found.dram_bytes, found.store_bytes);
    // SAFETY: the caller's promise.
    let Some(dir) = (unsafe { path(found.folder) }).filter(|dir| dir.is_absolute()) else {
        return invalid("folder: wanted an absolute path".to_owned());
    };
    Ok(Wishes { dir, budget_bytes, store_bytes, compress, encrypt, writes_per_day_bytes })
}

/// What a C string names; none for null.
///
/// # Safety
/// It is null or ends with a zero byte.
pub(crate) unsafe fn path(text: *const c_char) -> Option<PathBuf> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: usize = size_of::<OvermemOptions>();

    fn plain() -> OvermemOptions {
        OvermemOptions {
            bytes: OWN,
            folder: c"/x".as_ptr(),
            dram_bytes: 1,
            store_bytes: 2,
            writes_per_day_bytes: 0,
            compress: 0,
            encrypt: 0,
        }
    }

    fn outcome(options: OvermemOptions) -> Result<Wishes, Refused> {
        // SAFETY: so many bytes are there, or too few or far too many are said to be; the folder is a string.
        unsafe { read(&raw const options) }
    }

    #[test]
    fn what_is_zero_is_as_with_the_shorter_call() {
        assert_eq!(outcome(plain()).unwrap(), Wishes::new(PathBuf::from("/x"), 1, 2));
    }

    #[test]
    fn each_field_is_heeded() {
        let all = OvermemOptions { compress: 3, encrypt: 1, writes_per_day_bytes: 1 << 40, ..plain() };
        let wishes = outcome(all).unwrap();
        assert_eq!((wishes.compress, wishes.encrypt), (Compress::Zstd, true));
        assert_eq!(wishes.writes_per_day_bytes, Some(1 << 40));
        for (compress, kind) in [(1, Compress::Off), (2, Compress::Lz4)] {
            assert_eq!(outcome(OvermemOptions { compress, ..plain() }).unwrap().compress, kind);
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_a_line() {
        for (options, wanted) in [
            (OvermemOptions { bytes: OWN - 1, ..plain() }, "options of 47 bytes: wanted sizeof"),
            (OvermemOptions { bytes: 0, ..plain() }, "options of 0 bytes"),
            (OvermemOptions { compress: 4, ..plain() }, "compress 4: wanted"),
            (OvermemOptions { encrypt: 2, ..plain() }, "encrypt 2: wanted 0 or 1"),
            (OvermemOptions { writes_per_day_bytes: 5, ..plain() }, "in a day is 5 bytes"),
            (OvermemOptions { folder: c"x".as_ptr(), ..plain() }, "absolute"),
            (OvermemOptions { folder: std::ptr::null(), ..plain() }, "absolute"),
        ] {
            let (errno, text) = outcome(options).unwrap_err();
            assert!(errno == -libc::EINVAL && text.contains(wanted), "{errno}: {text}");
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read(std::ptr::null()) }.unwrap_err().0, -libc::EINVAL);
        assert_eq!(outcome(OvermemOptions { bytes: 1 << 20, ..plain() }).unwrap_err().0, -libc::E2BIG);
    }

    #[test]
    fn a_newer_programs_options_are_taken_while_they_ask_for_nothing_new() {
        #[repr(C)]
        struct Newer {
            known: OvermemOptions,
            more: u64,
        }
        let known = OvermemOptions { bytes: size_of::<Newer>(), ..plain() };
        for (more, taken) in [(0, true), (1, false)] {
            let newer = Newer { known, more };
            // SAFETY: so many bytes are there.
            let outcome = unsafe { read((&raw const newer).cast()) };
            assert_eq!(outcome.is_ok(), taken, "{outcome:?}");
            assert!(newer.more == more && outcome.err().is_none_or(|(errno, _)| errno == -libc::E2BIG));
        }
    }
}
