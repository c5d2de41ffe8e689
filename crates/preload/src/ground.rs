//! What the serving thread stands on: memory that must stay where it is while faults are answered.

use crate::ALLOCATOR;
use crate::setup::STACK_BYTES;
use overdrive_sys::apart::handle_of;
use overdrive_sys::file::{RUN_DESCRIPTORS_FROM, identity};
use overdrive_sys::proc_stat::numbers_in;
use overdrive_sys::uffd::PAGE;
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use std::cell::Cell;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The ranges to leave out: our allocator's memory, this thread's stack, and what the C library keeps for it.
pub(crate) fn own_ranges() -> Vec<Range<u64>> {
    let mut ranges = vec![ALLOCATOR.extent()];
    ranges.push(own_stack());
    ranges.extend(stack_apart());
    ranges.extend(thread_vector());
    let agent = AGENT.each_ref().map(|word| word.load(Ordering::Acquire));
    ranges.extend([agent[0]..agent[1], agent[2]..agent[3]]);
    let first = FIRST_THREAD.load(Ordering::Relaxed);
    ranges.extend((first != 0).then(|| first..first + 2 * PAGE));
    ranges
}

/// The stack of the agent's thread, its thread-local memory included, and that of its process apart.
static AGENT: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Notes the calling thread's stack as the agent's: it reads its errands into it, and while a read of a
/// pipe waits for a page, the engine's next write to that pipe would wait too.
pub(crate) fn note_agent() {
    for (place, stack) in AGENT.chunks_exact(2).zip([own_stack(), stack_apart().unwrap_or_default()]) {
        place[0].store(stack.start, Ordering::Release);
        place[1].store(stack.end, Ordering::Release);
    }
}

/// The pages of the first thread's control block.
static FIRST_THREAD: AtomicU64 = AtomicU64::new(0);

/// Notes where the calling thread's control block is. When it makes itself another program (exec), the
/// kernel reads a list there at a time when the engine has ended already: the page must be in place.
#[cfg(target_arch = "x86_64")]
pub(crate) fn note_first_thread() {
    let address: u64;
    // SAFETY: reads the first word of the thread control block, which by the x86-64 ABI is its own address.
    unsafe { std::arch::asm!("mov {}, fs:0", out(reg) address, options(nostack, readonly, preserves_flags)) };
    FIRST_THREAD.store(address & !(PAGE - 1), Ordering::Relaxed);
}

/// Elsewhere that place is not known.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn note_first_thread() {}

/// The process whose memory is served: this one, where its engine is no process apart.
static PROGRAM: AtomicU32 = AtomicU32::new(0);

/// Notes that the calling process is the program.
pub(crate) fn note_program() {
    PROGRAM.store(std::process::id(), Ordering::Relaxed);
}

/// The program's number.
pub(crate) fn program() -> u32 {
    PROGRAM.load(Ordering::Relaxed)
}

thread_local! {
    /// The stack of a process apart.
    static STACK: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
}

/// Notes the stack of the calling process apart.
pub(crate) fn note_stack(stack: &Range<u64>) {
    STACK.set([stack.start, stack.end]);
}

/// That, where there is one.
fn stack_apart() -> Option<Range<u64>> {
    let [start, end] = STACK.get();
    (end != 0).then_some(start..end)
}

/// The calling thread's stack, its static thread-local memory included; of a process apart that memory alone.
/// It ends with the page that holds the thread's control block, and nothing beyond may be left out: memory of
/// the program's that lies beside it would be of two kinds then, and the kernel would not move it (mremap).
///
/// The C library knows all this, but asks the program's allocator for memory to tell, which may be a tool's
/// that uses descriptors: here they are others.
fn own_stack() -> Range<u64> {
    let marker = 0u8;
    // SAFETY: asks for a number and an address.
    let (block, errno) = unsafe { (libc::pthread_self() as u64, libc::__errno_location() as u64) };
    let here = if stack_apart().is_some() { block } else { (&raw const marker) as u64 };
    let end = (block.max(errno).max(here) + 1).next_multiple_of(PAGE);
    end.saturating_sub(STACK_BYTES as u64)..end
}

/// The pages of the C library's table of this thread's dynamic thread-local memory, which lies in the
/// program's heap. Only a failing engine would look at it.
#[cfg(target_arch = "x86_64")]
fn thread_vector() -> Option<Range<u64>> {
    let address: u64;
    // SAFETY: reads the second word of the thread control block, where the x86-64 ABI puts this pointer.
    unsafe { std::arch::asm!("mov {}, fs:8", out(reg) address, options(nostack, readonly, preserves_flags)) };
    let page = address & !(PAGE - 1);
    (address != 0).then(|| page..page + 2 * PAGE)
}

#[cfg(not(target_arch = "x86_64"))]
fn thread_vector() -> Option<Range<u64>> {
    None
}

/// Descriptors 0 to 2 that the program was started without are taken as long as this lives. Else one of ours
/// would have such a number, and the program would write to it as its output.
pub(crate) struct LowDescriptors(Vec<libc::c_int>);

/// The lowest free descriptor, on /dev/null; negative when there is none.
fn open_nothing() -> libc::c_int {
    // SAFETY: opens a descriptor that nobody knows.
    unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) }
}

/// A descriptor of the program's first thread, borrowed. None where that has ended or has no such.
pub(crate) fn first_threads(number: libc::c_int) -> Option<OwnedFd> {
    let process = handle_of(program()).ok()?;
    pidfd_getfd(process, number, PidfdGetfdFlags::empty()).ok()
}

impl LowDescriptors {
    /// Takes those that are free.
    pub(crate) fn take() -> Self {
        let mut taken = Vec::new();
        loop {
            let lowest = open_nothing();
            if lowest < 0 {
                return Self(taken);
            }
            if lowest > 2 {
                // SAFETY: nobody else knows it.
                unsafe { libc::close(lowest) };
                return Self(taken);
            }
            taken.push(lowest);
        }
    }
}

impl Drop for LowDescriptors {
    fn drop(&mut self) {
        let opened = open_nothing();
        let nothing = identity(opened);
        // SAFETY: nobody else knows it.
        unsafe { libc::close(opened) };
        // A program that starts the engine by itself may have put something of its own there meanwhile.
        for &descriptor in self.0.iter().filter(|&&descriptor| identity(descriptor) == nothing) {
            // SAFETY: opened by `take`.
            unsafe { libc::close(descriptor) };
        }
    }
}

/// What the program was started with beside 0 to 2, a bit each.
static INHERITED: [AtomicU64; RUN_DESCRIPTORS_FROM as usize / 64 + 1] = [const { AtomicU64::new(0) }; _];

/// Notes which descriptors the program was started with. To be called before this library opens any, while
/// nothing else runs.
pub(crate) fn note_descriptors() {
    let numbers = numbers_in("/proc/self/fd");
    let inherited: Vec<libc::c_int> =
        numbers.filter(|number| (3..RUN_DESCRIPTORS_FROM).contains(number)).collect();
    // The one by which they were read is gone already.
    // SAFETY: asks about a number.
    for number in inherited.into_iter().filter(|&number| unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0) {
        INHERITED[number as usize / 64].fetch_or(1 << (number % 64), Ordering::Relaxed);
    }
}

fn is_inherited(number: libc::c_int) -> bool {
    INHERITED[number as usize / 64].load(Ordering::Relaxed) & 1 << (number % 64) != 0
}

/// Gives this thread a table of descriptors of its own: a program that closes all it does not know (daemons
/// do) would close the userfaultfd, and the kernel would serve zeroes from then on. Of the descriptors that
/// the program was started with none is kept: who waits for the end of its input or output, or of any other
/// pipe, must not wait for this thread.
///
/// It gets a directory of its own as well, and stands in the root: who shares that with another thread may
/// not enter a mount namespace (setns), and where the program has been may be unmounted once it has left.
pub(crate) fn stand_apart() {
    // SAFETY: concerns this thread's descriptors and directory only: after the first call no others. Nothing
    // of the program has run yet, so that 0 to 2 are what it was started with; they stay taken, lest
    // something of ours be written to as standard output.
    unsafe {
        if libc::unshare(libc::CLONE_FILES | libc::CLONE_FS) != 0 {
            return;
        }
        libc::chdir(c"/".as_ptr());
        take_standard_streams();
        for number in (3..RUN_DESCRIPTORS_FROM).filter(|&number| is_inherited(number)) {
            libc::close(number);
        }
    }
}

/// The same for a thread that is made while the program runs, in a child: it keeps no descriptor but the one
/// that is named. False when it cannot.
pub(crate) fn stand_apart_from_all(kept: Option<libc::c_int>) -> bool {
    INHERITED.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    let close = |from: u32, to: u32, flags: libc::c_uint| {
        // SAFETY: concerns this thread's descriptors only: the first call makes a table of its own.
        unsafe { libc::syscall(libc::SYS_close_range, from, to, flags) == 0 }
    };
    let kept = kept.map_or(u32::MAX, libc::c_int::cast_unsigned);
    let closed = close(kept.saturating_add(1), u32::MAX, libc::CLOSE_RANGE_UNSHARE);
    // SAFETY: concerns this thread's descriptors and directory only.
    unsafe {
        let apart = closed && close(0, kept - 1, 0) && libc::unshare(libc::CLONE_FS) == 0;
        if apart {
            libc::chdir(c"/".as_ptr());
            take_standard_streams();
        }
        apart
    }
}

/// Puts nothing where the standard streams are.
///
/// # Safety
/// The calling thread has a table of descriptors of its own, and nobody uses these three in it.
unsafe fn take_standard_streams() {
    let nothing = open_nothing();
    // SAFETY: the caller's promise.
    unsafe {
        (0..=2).filter(|&stream| stream != nothing).for_each(|stream| {
            libc::dup3(nothing, stream, libc::O_CLOEXEC);
        });
        if nothing > 2 {
            libc::close(nothing);
        }
    }
}

/// Frees two numbers of this thread's table, that its last words can be said where no more are to be had. To
/// be called right before the program is stopped, which may share the table.
pub(crate) fn give_up_standard_streams() {
    // SAFETY: nothing is there that anybody still needs.
    unsafe {
        libc::close(0);
        libc::close(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overdrive_sys::thread;
    use std::sync::mpsc::channel;

    /// What the C library says of the calling thread's stack.
    fn told() -> Range<u64> {
        let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
        let (mut base, mut bytes) = (std::ptr::null_mut(), 0);
        // SAFETY: the attributes are initialised by the first call, read by the second, and destroyed by the
        // third; all pointers are valid for their call.
        unsafe {
            assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()), 0);
            libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut base, &raw mut bytes);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
        }
        base as u64..base as u64 + bytes as u64
    }

    #[test]
    fn the_stack_is_what_the_c_library_says_and_nothing_beside_it() {
        let (tells, tell) = channel();
        thread::start(c"of-a-test", STACK_BYTES, move || tells.send((own_stack(), told())).unwrap()).unwrap();
        let (own, told) = tell.recv().unwrap();
        assert_eq!(own.end, told.end, "{own:x?} {told:x?}");
        assert!((told.start - PAGE..=told.start + PAGE).contains(&own.start), "{own:x?} {told:x?}");
    }
}
