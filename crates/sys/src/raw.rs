//! System calls that leave errno alone, for threads that share its place with another.

/// Makes a system call with up to six words. A negative number is an errno.
///
/// # Safety
/// As the call itself: what the words point to must be what the kernel takes it for.
pub(crate) unsafe fn syscall(number: libc::c_long, words: [usize; 6]) -> isize {
    let outcome: isize;
    // SAFETY: the kernel's convention: it changes nothing but these registers, and memory as the caller
    // allows.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => outcome,
            in("rdi") words[0], in("rsi") words[1], in("rdx") words[2],
            in("r10") words[3], in("r8") words[4], in("r9") words[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") words[0] as isize => outcome,
            in("x1") words[1], in("x2") words[2], in("x3") words[3], in("x4") words[4], in("x5") words[5],
            options(nostack)
        );
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_fails_says_so_and_errno_stays() {
        // SAFETY: the place is this thread's own; the calls change nothing.
        let (process, closed, errno) = unsafe {
            *libc::__errno_location() = 77;
            let process = syscall(libc::SYS_getpid, [0; 6]);
            let closed = syscall(libc::SYS_close, [usize::MAX, 0, 0, 0, 0, 0]);
            (process, closed, *libc::__errno_location())
        };
        assert_eq!(process, std::process::id() as isize);
        assert_eq!((closed, errno), (-libc::EBADF as isize, 77));
    }
}
