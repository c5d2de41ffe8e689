//! The command line of the benches: options that each take a value, and `--help`.

use std::process::ExitCode;

/// The values of `options`, names with their defaults, in that order. When the help was asked for, or
/// something is no such option, it is said, and the exit code for it comes back.
pub(crate) fn parse<const N: usize>(
    command: &str,
    help: &str,
    options: [(&str, &str); N],
    arguments: &[String],
) -> Result<[String; N], ExitCode> {
    if arguments.iter().any(|argument| argument == "--help") {
        println!("{help}");
        return Err(ExitCode::SUCCESS);
    }
    values(options, arguments).map_err(|wrong| {
        eprintln!("{command}: '{wrong}' is no option with a value; see {command} --help");
        ExitCode::from(2)
    })
}

/// The values, or what is wrong.
fn values<const N: usize>(options: [(&str, &str); N], arguments: &[String]) -> Result<[String; N], String> {
    let mut values = options.map(|(_, default)| default.to_owned());
    for pair in arguments.chunks(2) {
        let at = options.iter().position(|(name, _)| *name == pair[0]);
        let (Some(at), [_, given]) = (at, pair) else { return Err(pair[0].clone()) };
        values[at].clone_from(given);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_replaces_the_default_and_what_is_unknown_is_told() {
        let options = [("--dir", "."), ("--size", "1GiB")];
        let found = |words: &str| {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            values(options, &words)
        };
        assert_eq!(found("").unwrap(), [".", "1GiB"]);
        assert_eq!(found("--size 2GiB").unwrap(), [".", "2GiB"]);
        assert_eq!(found("--size 2GiB --dir"), Err("--dir".to_owned()), "its value is missing");
        assert_eq!(found("--sise 2GiB"), Err("--sise".to_owned()));
    }

    #[test]
    fn help_ends_it_well() {
        assert_eq!(
            parse("bench", "the help", [("--dir", ".")], &["--help".to_owned()]),
            Err(ExitCode::SUCCESS)
        );
    }
}
