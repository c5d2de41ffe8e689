//! Help, version, man page and completions all come from the one table, and fit a terminal.

use crate::support::run;

const COMMANDS: [&str; 14] = [
    "evaluate",
    "run",
    "diskspd",
    "spdk-perf",
    "audit",
    "tune",
    "topology",
    "page",
    "swap",
    "extend",
    "density",
    "cost",
    "report",
    "compare",
];

#[test]
fn help_names_every_command_and_fits_a_terminal() {
    let (code, text, _) = run(&["--help"]);
    assert_eq!(code, 0);
    for command in COMMANDS {
        assert!(text.contains(command), "{text}");
        let (code, text, _) = run(&[command, "--help"]);
        assert_eq!(code, 0);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{command}: {text}");
    }
}

#[test]
fn nested_commands_have_help_too() {
    for (command, words) in [
        (["page", "pmbench"], ["--setsize", "SECONDS"]),
        (["extend", "top"], ["--interval", "200us"]),
        (["tune", "undo"], ["--state", "below --root"]),
        (["swap", "on"], ["--zswap", "512MiB"]),
    ] {
        for flag in ["-h", "--help"] {
            let (code, text, _) = run(&[command[0], command[1], flag]);
            assert_eq!(code, 0, "{command:?} {flag}");
            assert!(words.iter().all(|word| text.contains(word)), "{command:?} {flag}: {text}");
        }
    }
}

#[test]
fn wrong_use_is_exit_code_2() {
    for arguments in [vec![], vec!["evaluat"], vec!["evaluate", "--runtime", "soon"], vec!["run"]] {
        assert_eq!(run(&arguments).0, 2, "{arguments:?}");
    }
    for (arguments, words) in [
        (&["evaluate", "--size", "4x"][..], ["'4x' is not a size", "64KiB", "see overdrive evaluate --help"]),
        (&["run", "f", "--iodept", "4"], ["'--iodept'", "'--iodepth'", "see overdrive run --help"]),
        (&["run", "f", "--rw", "a\nb"], ["invalid value", "randread", "see overdrive run --help"]),
        (&["tune", "aply"], ["'aply'", "'apply'", "see overdrive tune --help"]),
        (&["swap", "on", "--size"], ["--size", "value", "see overdrive swap on --help"]),
        (&["extend", "top", "--interval", "0"], ["'0'", "wanted at least 100ms", "see overdrive extend top"]),
        (
            &["extend", "status", "--interval", "1ns"],
            ["'1ns'", "wanted at least 10ms", "see overdrive extend"],
        ),
        (&["compare", "a"], ["not provided", "<NEW>", "see overdrive compare --help"]),
    ] {
        let (code, text, error) = run(arguments);
        assert_eq!((code, text.as_str(), error.lines().count()), (2, "", 1), "{arguments:?}: {error}");
        assert!(words.iter().all(|word| error.contains(word)), "{arguments:?}: {error}");
    }
}

#[test]
fn the_man_page_and_completions_know_every_option() {
    let (code, page, _) = run(&["man"]);
    assert_eq!(code, 0);
    let (code, script, _) = run(&["completions", "bash"]);
    assert_eq!(code, 0);
    for option in ["quick", "runtime", "against", "write-to", "iodepth", "from-capture", "even-if-busy"] {
        assert!(page.replace('\\', "").contains(&format!("--{option}")), "{option}");
        assert!(script.contains(&format!("--{option}")), "{option}");
    }
    assert!(page.contains(".SH OVERDRIVE TUNE APPLY\n"));
    for none in ["LAUNCH", "EXTRA", "evaluate(1)"] {
        assert!(!page.contains(none), "{none} is nothing that people find anywhere");
    }
}

#[test]
fn the_version_is_the_packages() {
    assert_eq!(run(&["--version"]).1.trim(), format!("overdrive {}", env!("CARGO_PKG_VERSION")));
}
