//! Rules about what code may touch: unsafe code, the terminal, the outside world, panics, lints.

use super::{Breach, File, Source, Tree};

/// The crates whose purpose is to talk to the kernel or to live inside another program.
const UNSAFE_CRATES: [&str; 2] = ["sys", "preload"];

/// The crates that talk to people.
const SPEAKING_CRATES: [&str; 2] = ["cli", "xtask"];

/// `unsafe` stands in sys and preload alone, and every other crate root forbids it.
pub(super) fn unsafe_code(tree: &Tree) -> Vec<Breach> {
    const RULE: &str = "unsafe";
    let mut found = Vec::new();
    for (file, source) in tree.sources() {
        let Some(name) = file.crate_name().filter(|name| !UNSAFE_CRATES.contains(name)) else {
            continue;
        };
        let uses = source.find("unsafe");
        found.extend(uses.into_iter().map(|line| {
            Breach::new(
                &file.path,
                line,
                RULE,
                format!("move this into crates/sys; {name} has no unsafe code"),
            )
        }));
        let forbids =
            source.attributes().iter().any(|(_, text)| text.replace(' ', "") == "forbid(unsafe_code)");
        if is_crate_root(file) && !forbids {
            found.push(Breach::new(&file.path, 1, RULE, "add #![forbid(unsafe_code)] to this crate root"));
        }
    }
    found
}

fn is_crate_root(file: &File) -> bool {
    let in_crate = file.path.split_once("/src/").map(|(_, rest)| rest);
    in_crate.is_some_and(|rest| rest == "lib.rs" || rest == "main.rs" || rest.starts_with("bin/"))
}

/// Only cli and xtask print or end the process; tests may print, and build scripts, which talk to cargo so.
pub(super) fn printing(tree: &Tree) -> Vec<Breach> {
    const WORDS: [&str; 8] =
        ["println!", "eprintln!", "print!", "eprint!", "dbg!", "process::exit", "io::stdout", "io::stderr"];
    product(
        tree,
        |file| {
            file.crate_name().is_some_and(|name| !SPEAKING_CRATES.contains(&name))
                && !file.path.ends_with("/build.rs")
        },
        |source| finds(source, &WORDS),
    )
    .map(|(path, line, word)| {
        let advice = format!("return data or an error instead of {word}: only crates/cli talks to people");
        Breach::new(&path, line, "printing", advice)
    })
    .collect()
}

/// Files whose code is a pure function of its arguments: everything of report, and the rules of host.
fn is_pure(file: &File) -> bool {
    file.path.starts_with("crates/report/src/") || file.path.starts_with("crates/host/src/rules")
}

/// Pure code does not read files, the environment, clocks, or start threads.
pub(super) fn outside_world(tree: &Tree) -> Vec<Breach> {
    const WORDS: [&str; 9] = [
        "std::fs",
        "std::env",
        "std::thread",
        "std::process",
        "std::net",
        "Instant::now",
        "SystemTime::now",
        "time::Instant",
        "time::SystemTime",
    ];
    const IN_GROUP: [&str; 7] = ["fs", "env", "thread", "process", "net", "Instant", "SystemTime"];
    product(tree, is_pure, |source| {
        let mut found = finds(source, &WORDS);
        for (line, group) in source.std_groups() {
            let words = group.split(|c: char| !c.is_alphanumeric() && c != '_');
            found.extend(words.filter_map(|word| {
                IN_GROUP.iter().find(|&&banned| banned == word).map(|&banned| (line, banned))
            }));
        }
        found
    })
    .map(|(path, line, word)| {
        let advice = format!("take the value as an argument instead of {word}: this code is pure");
        Breach::new(&path, line, "outside-world", advice)
    })
    .collect()
}

/// No `.unwrap()` outside tests.
pub(super) fn unwraps(tree: &Tree) -> Vec<Breach> {
    product(tree, |_| true, |source| finds(source, &[".unwrap()"]))
        .map(|(path, line, _)| {
            let advice = "return the error, or say with .expect(\"...\") which invariant makes it impossible";
            Breach::new(&path, line, "unwrap", advice)
        })
        .collect()
}

/// No `allow` or `expect` of a lint without its reason.
pub(super) fn bare_allows(tree: &Tree) -> Vec<Breach> {
    attributes(tree, |text| {
        let lifts = ["allow", "expect"].iter().any(|word| {
            text.match_indices(word).any(|(at, _)| {
                let opens = text[at + word.len()..].trim_start().starts_with('(');
                opens && !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
            })
        });
        lifts && !text.contains("reason")
    })
    .map(|(path, line)| {
        Breach::new(&path, line, "bare-allow", "add reason = \"...\", or mend what the lint says")
    })
    .collect()
}

/// No test that is switched off in the source.
pub(super) fn ignored_tests(tree: &Tree) -> Vec<Breach> {
    attributes(tree, |text| text.trim() == "ignore" || text.trim_start().starts_with("ignore "))
        .map(|(path, line)| {
            let advice =
                "a test that cannot run here skips with its reason (docs/testing.md); else delete it";
            Breach::new(&path, line, "ignored-test", advice)
        })
        .collect()
}

/// The findings of `search` in the product code (not the tests) of the files that `applies` picks.
fn product<'a>(
    tree: &'a Tree,
    applies: impl Fn(&File) -> bool + 'a,
    search: impl Fn(&Source) -> Vec<(usize, &'static str)> + 'a,
) -> impl Iterator<Item = (String, usize, &'static str)> + 'a {
    tree.sources().filter(move |(file, _)| applies(file)).flat_map(move |(file, source)| {
        search(source)
            .into_iter()
            .filter(|&(line, _)| !source.is_test(line))
            .map(|(line, word)| (file.path.clone(), line, word))
            .collect::<Vec<_>>()
    })
}

fn finds(source: &Source, words: &[&'static str]) -> Vec<(usize, &'static str)> {
    words.iter().flat_map(|&word| source.find(word).into_iter().map(move |line| (line, word))).collect()
}

/// The attributes, test code included, that `breaks` picks.
fn attributes<'a>(
    tree: &'a Tree,
    breaks: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = (String, usize)> + 'a {
    tree.sources().flat_map(move |(file, source)| {
        source
            .attributes()
            .into_iter()
            .filter(|(_, text)| breaks(text))
            .map(|(line, _)| (file.path.clone(), line))
            .collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{accepts, finds, shown};
    use super::*;

    const FORBID: &str = "//! Note.\n#![forbid(unsafe_code)]\n";

    #[test]
    fn unsafe_code_stays_in_its_crates() {
        finds(
            unsafe_code,
            &[("crates/io/src/a.rs", "fn a() {\n    unsafe { b() }\n}")],
            "crates/io/src/a.rs:2: unsafe",
        );
        finds(
            unsafe_code,
            &[("crates/io/tests/it/main.rs", "unsafe fn a() {}")],
            "crates/io/tests/it/main.rs:1: unsafe",
        );
        finds(unsafe_code, &[("crates/io/src/lib.rs", "//! Note.\n")], "crates/io/src/lib.rs:1: unsafe");
        accepts(unsafe_code, &[("crates/io/src/lib.rs", FORBID)]);
        accepts(unsafe_code, &[("crates/sys/src/lib.rs", "//! Note.\nunsafe fn a() {}")]);
        accepts(unsafe_code, &[("crates/io/src/a.rs", "// unsafe\nlet s = \"unsafe\";")]);
    }

    #[test]
    fn only_the_command_prints() {
        for text in
            ["fn a() { println!(\"x\"); }", "fn a() { std::process::exit(1) }", "use std::io::stderr;"]
        {
            finds(printing, &[("crates/io/src/a.rs", text)], "crates/io/src/a.rs:1: printing");
            accepts(printing, &[("crates/cli/src/a.rs", text), ("xtask/src/a.rs", text)]);
        }
        accepts(printing, &[("crates/io/src/a.rs", "#[cfg(test)]\nmod t {\n    fn a() { println!(); }\n}")]);
        accepts(printing, &[("crates/io/tests/it/main.rs", "fn a() { eprintln!(); }")]);
    }

    #[test]
    fn pure_code_stays_pure() {
        for text in [
            "use std::fs;",
            "fn a() { std::env::var(\"X\"); }",
            "use std::{fmt, thread};",
            "use std::{\n    fmt,\n    time::{Duration, Instant},\n};",
            "use std::time::Instant;",
        ] {
            finds(
                outside_world,
                &[("crates/report/src/a.rs", text)],
                "crates/report/src/a.rs:1: outside-world",
            );
            finds(
                outside_world,
                &[("crates/host/src/rules.rs", text)],
                "crates/host/src/rules.rs:1: outside-world",
            );
            let file = "crates/host/src/rules/cpu.rs";
            finds(outside_world, &[(file, text)], "crates/host/src/rules/cpu.rs:1: outside-world");
            accepts(outside_world, &[("crates/host/src/facts.rs", text)]);
        }
        accepts(outside_world, &[("crates/report/src/a.rs", "use std::{fmt, time::Duration};")]);
        accepts(outside_world, &[("crates/report/src/a.rs", "#[cfg(test)]\nuse std::fs;")]);
    }

    #[test]
    fn unwrap_is_for_tests() {
        finds(unwraps, &[("crates/io/src/a.rs", "\nlet x = y.unwrap();")], "crates/io/src/a.rs:2: unwrap");
        accepts(unwraps, &[("crates/io/src/a.rs", "/// `x.unwrap()`\nlet x = y.unwrap_or(1);")]);
        accepts(unwraps, &[("crates/io/src/tests.rs", "let x = y.unwrap();")]);
    }

    #[test]
    fn an_allow_has_a_reason() {
        let bare =
            ["#[allow(dead_code)]", "#![allow(a)]", "#[cfg_attr(test, expect(a))]", "#[allow(\n    a,\n)]"];
        for text in bare {
            finds(bare_allows, &[("crates/io/src/a.rs", text)], "crates/io/src/a.rs:1: bare-allow");
        }
        accepts(
            bare_allows,
            &[("crates/io/src/a.rs", "#[allow(dead_code, reason = \"later\")]\n#[derive(Debug)]")],
        );
        assert!(shown(bare_allows, &[("crates/io/src/a.rs", "fn disallow(x: u8) {}")]).is_empty());
    }

    #[test]
    fn no_test_is_switched_off() {
        for text in ["#[ignore]", "#[ignore = \"slow\"]"] {
            finds(
                ignored_tests,
                &[("crates/io/src/tests.rs", text)],
                "crates/io/src/tests.rs:1: ignored-test",
            );
        }
        accepts(ignored_tests, &[("crates/io/src/a.rs", "#[must_use]")]);
    }
}
