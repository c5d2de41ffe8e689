//! Keeping a process's memory on one memory node. Which CPUs belong to it is the callers' to know.

use crate::Errno;

/// Nodes that can be named: the kernel's own bound on common builds.
const NODES_MAX: u32 = 1024;

/// From the kernel's `linux/mempolicy.h`.
const MPOL_BIND: libc::c_int = 2;

/// Has all memory that the calling thread, and threads it starts from now on, touch for the first time come
/// from `node` alone.
///
/// # Errors
/// EINVAL when there is no such node or it has no memory, ENOSYS on a kernel without memory nodes.
pub fn bind_memory(node: u32) -> Result<(), Errno> {
    const WORD: u32 = u64::BITS;
    if node >= NODES_MAX {
        return Err(Errno::INVAL);
    }
    let mut mask = [0u64; (NODES_MAX / WORD) as usize];
    mask[(node / WORD) as usize] |= 1 << (node % WORD);
    // The kernel reads one bit less than it is told.
    let bits = libc::c_ulong::from(NODES_MAX) + 1;
    // SAFETY: `mask` holds NODES_MAX bits, is only read, and lives through the call.
    let answer = unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_BIND, mask.as_ptr(), bits) };
    if answer == 0 { Ok(()) } else { Err(last_errno()) }
}

fn last_errno() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_there_takes_memory_and_another_is_refused() {
        // A thread of its own: the policy must not outlive the test.
        std::thread::spawn(|| {
            match bind_memory(0) {
                Ok(()) => {
                    let region = crate::region::Region::new(16).unwrap();
                    (0..16).for_each(|page| region.write(page, 0, 7));
                    assert_eq!(region.read(15, 0), 7);
                }
                Err(errno) => assert_eq!(errno, Errno::NOSYS, "only a kernel without nodes refuses node 0"),
            }
            assert!(bind_memory(NODES_MAX - 1).is_err());
            assert_eq!(bind_memory(NODES_MAX), Err(Errno::INVAL));
        })
        .join()
        .unwrap();
    }
}
