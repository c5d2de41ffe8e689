//! Threads made by the C library. A program may have a `pthread_create` of its own for its threads, such as
//! an allocator that prepares itself in each of them: to one that begins before the program it is not ready.

use crate::Errno;
use crate::signals;
use std::ffi::{CStr, c_int, c_void};
use std::mem::{MaybeUninit, transmute};
use std::sync::OnceLock;

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Create =
    unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;

/// The one behind this library, or what is linked where there is none.
fn create() -> Create {
    static CREATE: OnceLock<Create> = OnceLock::new();
    *CREATE.get_or_init(|| {
        // SAFETY: the name is a text with an end.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) };
        if found.is_null() {
            return libc::pthread_create;
        }
        // SAFETY: a function of this name has this type.
        unsafe { transmute::<*mut c_void, Create>(found) }
    })
}

/// Makes a thread that runs `start`, as pthread_create does.
///
/// # Safety
/// `start` may be called with `argument` in another thread, and attributes are null or valid.
///
/// # Errors
/// The C library's errno.
pub unsafe fn start_raw(
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> Result<libc::pthread_t, Errno> {
    let mut thread = MaybeUninit::uninit();
    // SAFETY: the caller's promise; the thread's id is written when 0 is returned.
    unsafe {
        match create()(thread.as_mut_ptr(), attributes, start, argument) {
            0 => Ok(thread.assume_init()),
            error => Err(Errno::from_raw_os_error(error)),
        }
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// Starts a thread with a name and a stack of so many bytes, which nobody joins and which takes no signals.
///
/// # Errors
/// The C library's errno.
pub fn start(
    name: impl AsRef<CStr> + Send + 'static,
    stack_bytes: usize,
    work: impl FnOnce() + Send + 'static,
) -> Result<(), Errno> {
    let work: Work = Box::new(move || {
        // SAFETY: the name is a text with an end.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ref().as_ptr()) };
        work();
    });
    let argument = Box::into_raw(Box::new(work));
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: the attributes are filled before they are read, and done with in the end. The argument is taken
    // by the thread, or here when there is none.
    let made = signals::with_all_blocked(|| unsafe {
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack_bytes);
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        let made = start_raw(attributes.as_ptr(), run, argument.cast());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        made
    });
    if made.is_err() {
        // SAFETY: nobody took it.
        drop(unsafe { Box::from_raw(argument) });
    }
    made.map(drop)
}

extern "C" fn run(argument: *mut c_void) -> *mut c_void {
    // SAFETY: it is the one that was made for this thread, and taken once.
    let work = *unsafe { Box::from_raw(argument.cast::<Work>()) };
    work();
    std::ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_has_its_name_and_takes_no_signals() {
        let (told, tells) = channel();
        start(c"of-a-test", 128 << 10, move || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            told.send(status).unwrap();
        })
        .unwrap();
        let status = tells.recv().unwrap();
        let line = |what: &str| status.lines().find_map(|line| line.strip_prefix(what)).unwrap().trim();
        assert_eq!(line("Name:"), "of-a-test");
        // All but SIGKILL, SIGSTOP and the two that the C library keeps for itself.
        assert_eq!(line("SigBlk:"), "fffffffe7ffbfeff");
    }
}
