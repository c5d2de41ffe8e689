//! What help texts have in common: exit codes, how sizes and times are written, where the journal is.

use clap::Arg;

/// Stands below the list of commands.
pub(super) const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 ran but the result is bad, 2 wrong use or refused, 3 the
system failed it, 130 interrupted. `extend` ends with the code of its program.";

pub(super) const SIZES: &str = "SIZE: such as 4096, 4k, 512MiB or 1.5GiB; KB, MB and GB are powers of 1000.";

/// Where a number alone would be a slip.
const SIZES_WITH_UNIT: &str = "\
SIZE: such as 40g, 512MiB or 1.5TiB, with its unit; KB, MB and GB are powers of
1000.";

pub(super) const TIMES: &str = "TIME: such as 200us, 500ms, 30s, 5m or 2h; a number alone is seconds.";

/// Examples, and how a SIZE is written.
pub(super) fn sizes(examples: &str) -> String {
    format!("{examples}\n\n{SIZES}")
}

/// Examples, and how a SIZE is written that has to have a unit.
pub(super) fn sizes_with_unit(examples: &str) -> String {
    format!("{examples}\n\n{SIZES_WITH_UNIT}")
}

/// Examples, and how a SIZE and a TIME are written.
pub(super) fn sizes_and_times(examples: &str) -> String {
    format!("{examples}\n\n{SIZES}\n{TIMES}")
}

/// `--state` of a command that has a `--root`.
pub(super) fn below_root(state: Arg) -> Arg {
    state.help(
        "The directory of the journal of changes, whatever --root is [default: var/lib/overdrive below \
         --root]",
    )
}

/// `--root` of a command that writes.
pub(super) fn changed_root(root: Arg) -> Arg {
    root.help("Read and change the files of this directory in place of those of /")
}

#[cfg(test)]
mod tests {
    use crate::flags::Flags;
    use clap::{Command, CommandFactory};

    /// Every command and nested command that help is printed for, by its full name.
    fn commands() -> Vec<(String, Command)> {
        fn gather(found: &mut Vec<(String, Command)>, name: String, command: &Command) {
            for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
                gather(found, format!("{name} {}", inner.get_name()), inner);
            }
            found.push((name, command.clone()));
        }
        let (mut root, mut found) = (Flags::command(), Vec::new());
        root.build();
        gather(&mut found, "overdrive".to_owned(), &root);
        found
    }

    #[test]
    fn the_table_is_sound() {
        Flags::command().debug_assert();
    }

    #[test]
    fn every_option_says_what_it_does() {
        for (name, command) in commands() {
            assert!(command.get_about().is_some(), "{name}");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{name} {}", argument.get_id());
            }
        }
    }

    #[test]
    fn every_help_text_fits_eighty_columns() {
        let commands = commands();
        assert!(commands.iter().any(|(name, _)| name == "overdrive extend top"));
        for (name, mut command) in commands {
            // Examples are broken by hand: where clap has to, they cannot be copied.
            let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let long = command.render_long_help().to_string();
            let short = command.render_help().to_string();
            for line in [below, long, short].iter().flat_map(|text| text.lines()) {
                assert!(line.chars().count() <= 80, "{name}: {} columns: {line}", line.chars().count());
            }
        }
    }

    #[test]
    fn where_a_size_or_a_time_is_wanted_help_says_how_it_is_written() {
        for (name, command) in commands().into_iter().filter(|(_, command)| !command.is_hide_set()) {
            let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for unit in ["SIZE", "TIME"] {
                let mut names = command.get_arguments().flat_map(|argument| argument.get_value_names());
                let is_wanted = names.any(|names| names.iter().any(|name| name.contains(unit)));
                assert_eq!(below.contains(&format!("{unit}: such as")), is_wanted, "{name}: {unit}");
            }
        }
    }
}
