//! Exit codes, and the one place that prints an error.
//!
//! 0 done; 1 ran, but the verdict is bad (errors were measured); 2 wrong use or refused; 3 the system failed
//! it; 130 interrupted. A command that runs somebody's program ends as that did.

use std::process::ExitCode;

/// How a command that did not fail ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As asked.
    Done,
    /// It ran, and what it measured is bad.
    BadVerdict,
    /// It could not go on; what was measured is kept and said.
    SystemFailed,
    /// The user stopped it; what was measured is kept.
    Interrupted,
    /// As the program did that was run for the user.
    Program(u8),
}

/// A wrong use or a refusal: the user's to mend. Anything else is the system's failure.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(pub(crate) String);

/// Shorthand for refusing with a formatted line.
macro_rules! refuse {
    ($($text:tt)*) => {
        return Err(anyhow::Error::new($crate::exit::Refused(format!($($text)*))))
    };
}
pub(crate) use refuse;

/// Prints an error as one line and turns the outcome into the process's exit code.
pub(crate) fn code_of(outcome: anyhow::Result<Ending>) -> ExitCode {
    match outcome {
        Ok(Ending::Done) => ExitCode::SUCCESS,
        Ok(Ending::BadVerdict) => ExitCode::from(1),
        Ok(Ending::SystemFailed) => ExitCode::from(3),
        Ok(Ending::Interrupted) => ExitCode::from(130),
        Ok(Ending::Program(code)) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("overdrive: {error:#}");
            ExitCode::from(if error.downcast_ref::<Refused>().is_some() { 2 } else { 3 })
        }
    }
}

/// The reader of our output has seen enough (`overdrive ... | head`): that is no error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
