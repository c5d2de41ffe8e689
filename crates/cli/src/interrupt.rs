//! Ctrl-C and its kin: the first asks the run to end and keeps what was measured, the second ends the
//! process. And the signal of a limit on file sizes, which would end it without a word.

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A flag that the first signal sets; a second one, of whichever kind, exits at once with code 130.
///
/// Nothing is left behind by that: a scratch file has no name, and a record is replaced in one step.
pub(crate) fn watch() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("installing a signal handler")?;
    }
    Ok(stop)
}

/// A flag that every signal sets and none goes beyond: for runs that have something to take down first.
pub(crate) fn watch_to_the_end() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("installing a signal handler")?;
    }
    Ok(stop)
}

/// Has a write beyond the limit on file sizes (`ulimit -f`) fail as one on a full disk does. A program that
/// this one becomes has the signal's default action.
pub(crate) fn outlive_file_limit() {
    // Where no handler can be had the signal does what it did.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}
