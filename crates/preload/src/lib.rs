//! libovermem.so: preloaded into an unmodified program, it puts the program's memory under the pager.
//!
//! Its constructor runs before `main`: it reads the one environment variable that `overdrive extend` sets,
//! builds the engine and starts the thread that serves faults. It replaces no function of the program. What
//! that thread needs to answer a fault must never be memory that is itself answered for, so this library
//! has an allocator of its own, and names to the engine whatever else to leave alone (`ground`).

mod arena;
mod fork;
mod ground;
mod setup;

use arena::ArenaAllocator;

#[global_allocator]
static ALLOCATOR: ArenaAllocator = ArenaAllocator::new();

/// What the loader calls before the program's `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    let Some(text) = std::env::var_os(setup::VARIABLE) else { return };
    let outcome = setup::Setup::parse(&text.to_string_lossy()).and_then(setup::Setup::start);
    if let Err(message) = outcome {
        // Going on without the engine would mean more memory than was allowed: the program does not start.
        let line = format!("overdrive extend: {message}\n");
        // SAFETY: the bytes are valid for the call.
        unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
        // SAFETY: ends the process at once, without running what the program has registered: nothing of it
        // has run yet.
        unsafe { libc::_exit(2) };
    }
}
