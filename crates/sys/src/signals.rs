//! Which threads take signals.

/// Keeps all signals away from the calling thread: they are the business of the program's own threads.
pub fn block_all() {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is filled before it is used; the calls concern this thread only.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}
