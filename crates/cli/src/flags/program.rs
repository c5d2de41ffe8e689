//! The table of commands and options as the parser is given it.

use super::Flags;
use clap::{Arg, Command, CommandFactory};

/// All commands and options. A number below zero is a value wherever an option takes one, so that the option
/// says what it wanted; clap would only say that it did not expect the argument.
pub(crate) fn program() -> Command {
    with_negative_numbers(Flags::command())
}

fn with_negative_numbers(command: Command) -> Command {
    let takes_value = |arg: &Arg| !arg.is_positional() && arg.get_action().takes_values();
    command
        .mut_args(|arg| if takes_value(&arg) { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(with_negative_numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_still_sound() {
        program().debug_assert();
    }
}
