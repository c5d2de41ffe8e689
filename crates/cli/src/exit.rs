//! Exit codes, and the one place that prints an error.
//!
//! 0 done; 1 ran, but the verdict is bad (errors were measured); 2 wrong use or refused; 3 the system failed
//! it; 130 interrupted. A command that runs somebody's program ends as that did.

use crate::output::say;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error;
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
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
            say!("overdrive: {error:#}");
            ExitCode::from(if error.downcast_ref::<Refused>().is_some() { 2 } else { 3 })
        }
    }
}

/// Ends a command whose words clap did not understand: one line with what was read, what is allowed and
/// where help is. Help and version that were asked for are no errors and printed as they are.
pub(crate) fn end_of_words(error: &clap::Error, program: &clap::Command, words: &[OsString]) -> ExitCode {
    let asked_for = matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if asked_for {
        let _ = error.print();
    } else {
        let (line, name) = (one_line(&with_wanted(error)), named_command(program, words));
        let hint =
            if name.ends_with(" extend") && names_word(error) { "; the program goes behind --" } else { "" };
        say!("overdrive: {line}{hint}; see {name} --help");
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// The text of an error, which says what was wanted: of a number that is none the standard library does not.
fn with_wanted(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let Some(source) = error.source() else { return text };
    let wanted = match source.downcast_ref::<ParseIntError>().map(ParseIntError::kind) {
        Some(IntErrorKind::PosOverflow) => "wanted a smaller number",
        Some(_) => "wanted a whole number from 0 on",
        None if source.is::<ParseFloatError>() => "wanted a number",
        None => return text,
    };
    text.replace(&source.to_string(), wanted)
}

/// Whether it is about a word that is no option.
fn names_word(error: &clap::Error) -> bool {
    let word = error.get(ContextKind::InvalidArg).or(error.get(ContextKind::InvalidSubcommand));
    matches!(word, Some(ContextValue::String(word)) if !word.starts_with('-'))
}

/// The paragraphs of an error without its usage and what stands below.
fn one_line(text: &str) -> String {
    let said = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let mut all = String::new();
    for line in said.filter(|line| !line.is_empty()) {
        let glue = match all.chars().last() {
            None => "",
            Some(':') => " ",
            Some(_) if line.starts_with('[') => " ",
            Some(_) => "; ",
        };
        all.push_str(glue);
        all.push_str(line.strip_prefix("tip: ").unwrap_or(line));
    }
    all.strip_prefix("error: ").unwrap_or(&all).to_owned()
}

/// The command with its subcommands, as far as the words name any.
fn named_command(program: &clap::Command, words: &[OsString]) -> String {
    let (mut name, mut command) = (program.get_name().to_owned(), program);
    for word in words.iter().skip(1) {
        let Some(inner) = word.to_str().and_then(|word| command.find_subcommand(word)) else { break };
        name = format!("{name} {}", inner.get_name());
        command = inner;
    }
    name
}

/// The reader of our output has seen enough (`overdrive ... | head`): that is no error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::program;

    fn line_of(words: &str) -> String {
        let error = program().try_get_matches_from(words.split(' ')).unwrap_err();
        one_line(&with_wanted(&error))
    }

    #[test]
    fn what_clap_says_becomes_one_line() {
        for (words, line) in [
            (
                "overdrive run f --iodept 4",
                "unexpected argument '--iodept' found; a similar argument exists: '--iodepth'",
            ),
            ("overdrive run", "the following required arguments were not provided: <TARGET>..."),
            (
                "overdrive audit --profile x",
                "invalid value 'x' for '--profile <PROFILE>' [possible values: storage, memory]",
            ),
            ("overdrive compare", "the following required arguments were not provided: <OLD>; <NEW>"),
        ] {
            assert_eq!(line_of(words), line);
        }
        assert!(!line_of("overdrive run --rw a\nb f").contains('\n'));
    }

    #[test]
    fn numbers_that_are_none_are_told_what_was_wanted() {
        for (words, line) in [
            ("--seed -1", "invalid value '-1' for '--seed <N>': wanted a whole number from 0 on"),
            ("--iodepth many", "invalid value 'many' for '--iodepth <N>': wanted a whole number from 0 on"),
            (
                "--seed 99999999999999999999",
                "invalid value '99999999999999999999' for '--seed <N>': wanted a smaller number",
            ),
            ("--rate-iops fast", "invalid value 'fast' for '--rate-iops <N>': wanted a number"),
        ] {
            assert_eq!(line_of(&format!("overdrive run f {words}")), line);
        }
        let offset = line_of("overdrive run f --offset -1");
        assert!(offset.contains("'-1' is not a size: no number"), "{offset}");
    }

    #[test]
    fn the_hint_names_the_command_as_far_as_it_was_named() {
        let program = program();
        let named = |words: &str| {
            named_command(&program, &words.split(' ').map(OsString::from).collect::<Vec<OsString>>())
        };
        assert_eq!(named("./od tune plan --x"), "overdrive tune plan");
        assert_eq!(named("od frobnicate"), "overdrive");
        assert_eq!(named("od"), "overdrive");
    }
}
