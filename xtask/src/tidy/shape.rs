//! Rules about the size and the opening of files and functions.

use super::{Breach, Tree};

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;
const LINE_CHARS_MAX: usize = 110;
const LITERAL_LINE_CHARS_MAX: usize = 130;
const BASE_FILES_MAX: usize = 6;

/// Files that may be long, each with the reason. A flat table is read by searching, not from top to bottom.
const LONG_FILES: &[(&str, &str)] =
    &[("crates/report/src/record.rs", "the wire types: one flat list of structs, each field with its note")];

/// Every Rust file opens with a note of what it is for.
pub(super) fn module_notes(tree: &Tree) -> Vec<Breach> {
    tree.sources()
        .filter(|(_, source)| !source.raw_lines().next().is_some_and(|(_, line)| line.starts_with("//! ")))
        .map(|(file, _)| {
            let advice = "open the file with `//!`: what it is for, what it leaves out, why this way";
            Breach::new(&file.path, 1, "module-note", advice)
        })
        .collect()
}

/// Functions outside tests fit on a screen.
pub(super) fn function_lengths(tree: &Tree) -> Vec<Breach> {
    let mut found = Vec::new();
    for (file, source) in tree.sources() {
        for function in source.functions() {
            if function.line_count <= FUNCTION_LINES_MAX || source.is_test(function.line) {
                continue;
            }
            let advice = format!(
                "{} has {} lines, at most {FUNCTION_LINES_MAX}: keep the branching here, move a leaf out",
                function.name, function.line_count
            );
            found.push(Breach::new(&file.path, function.line, "function-length", advice));
        }
    }
    found
}

/// Files are short enough to be known.
pub(super) fn file_lengths(tree: &Tree) -> Vec<Breach> {
    tree.sources()
        .filter(|(file, _)| !LONG_FILES.iter().any(|(path, _)| *path == file.path))
        .filter(|(_, source)| source.product_line_count() > FILE_LINES_MAX)
        .map(|(file, source)| {
            let count = source.product_line_count();
            let advice = format!(
                "{count} lines without tests, at most {FILE_LINES_MAX}: split it by what changes together"
            );
            Breach::new(&file.path, FILE_LINES_MAX + 1, "file-length", advice)
        })
        .collect()
}

/// Lines fit beside another window. A line with a link may be longer (a broken link is worse), and so may one
/// of test code (a table of cases reads best with one case a line) and, up to a point, one with a string (a
/// message broken in two cannot be searched for).
pub(super) fn line_lengths(tree: &Tree) -> Vec<Breach> {
    let mut found = Vec::new();
    for (file, source) in tree.sources() {
        for (number, line) in source.raw_lines() {
            let count = line.chars().count();
            let has_string = line.contains('"') && !line.trim_start().starts_with("//");
            let most = if has_string { LITERAL_LINE_CHARS_MAX } else { LINE_CHARS_MAX };
            if count > most && !line.contains("://") && !source.is_test(number) {
                let advice = format!("{count} characters, at most {most}: break the line");
                found.push(Breach::new(&file.path, number, "line-length", advice));
            }
        }
    }
    found
}

/// The base crate has few files, so that it cannot become the drawer for whatever has no home.
pub(super) fn base_stays_small(tree: &Tree) -> Vec<Breach> {
    let in_base = tree.sources().filter(|(file, _)| file.path.starts_with("crates/base/src/"));
    in_base
        .skip(BASE_FILES_MAX)
        .map(|(file, _)| {
            let advice =
                format!("base has at most {BASE_FILES_MAX} files: give this to the crate whose word it is");
            Breach::new(&file.path, 1, "base-size", advice)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{accepts, finds};
    use super::*;

    #[test]
    fn a_file_opens_with_its_note() {
        for text in ["", "use x;\n//! Late.\n", "// Not a doc comment.\n", "//!\n"] {
            finds(module_notes, &[("crates/io/src/a.rs", text)], "crates/io/src/a.rs:1: module-note");
        }
        accepts(module_notes, &[("crates/io/src/a.rs", "//! Note.\n")]);
    }

    #[test]
    fn a_long_function_is_found_and_a_long_test_is_not() {
        let function = |lines: usize| format!("\nfn a() {{\n{}}}\n", "    b();\n".repeat(lines - 2));
        let path = "crates/io/src/a.rs";
        finds(
            function_lengths,
            &[(path, &function(71))],
            "crates/io/src/a.rs:2: function-length: a has 71 lines",
        );
        accepts(function_lengths, &[(path, &function(70))]);
        accepts(function_lengths, &[(path, &format!("#[cfg(test)]\nmod t {{{}}}", function(71)))]);
    }

    #[test]
    fn a_long_file_is_found_unless_listed() {
        let text = "// line\n".repeat(601);
        finds(file_lengths, &[("crates/io/src/a.rs", &text)], "crates/io/src/a.rs:601: file-length");
        accepts(file_lengths, &[(LONG_FILES[0].0, &text)]);
        let with_tests =
            format!("{}#[cfg(test)]\nmod t {{\n{}}}\n", "// line\n".repeat(590), "\n".repeat(90));
        accepts(file_lengths, &[("crates/io/src/a.rs", &with_tests)]);
    }

    #[test]
    fn a_long_line_is_found_unless_it_holds_a_link() {
        let long = "x".repeat(111);
        finds(line_lengths, &[("a.rs", &format!("\n{long}"))], "a.rs:2: line-length: 111 characters");
        accepts(line_lengths, &[("a.rs", &format!("// https://example.org/{long}")), ("a.md", &long)]);
        let string = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
        accepts(line_lengths, &[("a.rs", &string(130))]);
        finds(line_lengths, &[("a.rs", &string(131))], "a.rs:1: line-length: 131 characters, at most 130");
        finds(line_lengths, &[("a.rs", &format!("// {}", string(120)))], "a.rs:1: line-length: 123");
        accepts(line_lengths, &[("a.rs", &"µ".repeat(110)), ("crates/io/src/tests.rs", &long)]);
    }

    #[test]
    fn base_has_room_for_six_files() {
        let names: Vec<String> = (0..7).map(|index| format!("crates/base/src/{index}.rs")).collect();
        let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
        finds(base_stays_small, &files, "crates/base/src/6.rs:1: base-size");
        accepts(base_stays_small, &files[..6]);
    }
}
