//! libovermem.so: preloaded into an unmodified program, it puts the program's memory under the pager.
//!
//! Its constructor runs before `main`: it reads the one environment variable that `overdrive extend` sets,
//! builds the engine and starts the thread that serves faults. It replaces no function of the program;
//! those of `overmem.h` are for programs that know of it. What that thread needs to answer a fault must
//! never be memory that is itself answered for, so this library has an allocator of its own, and names to
//! the engine whatever else to leave alone (`ground`).

mod apart;
pub mod api;
mod arena;
mod ending;
mod fork;
mod ground;
mod late;
mod options;
mod setup;

use arena::ArenaAllocator;

#[global_allocator]
static ALLOCATOR: ArenaAllocator = ArenaAllocator::new();

/// Where the allocator has no addresses.
const NO_ADDRESSES: &str = "no room for 16 GiB of addresses (ulimit -v, vm.overcommit_memory=2)";

/// What the loader calls before the program's `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    fork::unbind();
    if !ALLOCATOR.is_there() {
        if is_asked_for() {
            refuse(NO_ADDRESSES);
        }
        return;
    }
    let Some(text) = std::env::var_os(setup::VARIABLE) else { return };
    let text = text.to_string_lossy();
    late::note(&text);
    let outcome = setup::Setup::parse(&text).and_then(setup::Setup::start);
    if let Err(message) = outcome {
        // Going on without the engine would mean more memory than was allowed: the program does not start.
        refuse(&message);
    }
}

/// Looks for the variable without asking for memory.
fn is_asked_for() -> bool {
    // SAFETY: the name ends with a zero byte, and nothing else runs yet that might change the environment.
    !unsafe { libc::getenv(c"OVERDRIVE_EXTEND".as_ptr()) }.is_null()
}

/// Ends the process before the program has begun. Asks for no memory.
fn refuse(why: &str) -> ! {
    for piece in ["overdrive extend: ", why, "\n"] {
        // SAFETY: the bytes are valid for the call.
        unsafe { libc::write(2, piece.as_ptr().cast(), piece.len()) };
    }
    // SAFETY: ends the process at once, without running what the program has registered: nothing of it
    // has run yet.
    unsafe { libc::_exit(2) }
}
