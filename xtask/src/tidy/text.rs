//! Rules about texts of any kind: leftovers, paths of somebody's machine, large files, the changelog.

use super::{Breach, File, Tree};

const FILE_BYTES_MAX: u64 = 200_000;

/// Nothing is put off in a comment: it is done, or it is an issue.
pub(super) fn leftovers(tree: &Tree) -> Vec<Breach> {
    const WORDS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let code = |file: &File| {
        let name = file.path.rsplit('/').next().unwrap_or(&file.path);
        file.source.is_some()
            || matches!(name, "Makefile" | "run")
            || [".toml", ".sh", ".js", ".css"].iter().any(|extension| name.ends_with(extension))
    };
    lines(tree, code, |line| WORDS.iter().any(|word| has_word(line, word)))
        .map(|(path, line)| {
            Breach::new(&path, line, "leftover", "do it now, or open an issue and drop the note")
        })
        .collect()
}

fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(part) && !line[at + word.len()..].starts_with(part))
}

/// No path that exists on one machine only.
pub(super) fn machine_paths(tree: &Tree) -> Vec<Breach> {
    const ROOTS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let absolute = |line: &str| {
        ROOTS.iter().any(|root| {
            let inside = |c: char| c.is_alphanumeric() || "_.-*}>$".contains(c);
            line.match_indices(root).any(|(at, _)| !line[..at].ends_with(inside))
        })
    };
    lines(tree, |_| true, absolute)
        .map(|(path, line)| {
            Breach::new(
                &path,
                line,
                "machine-path",
                "name it relative to the repository, or take it as an option",
            )
        })
        .collect()
}

/// No large file in the repository.
pub(super) fn large_files(tree: &Tree) -> Vec<Breach> {
    tree.files
        .iter()
        .filter(|file| file.bytes > FILE_BYTES_MAX && file.path != "Cargo.lock")
        .map(|file| {
            let advice = format!(
                "{} bytes, at most {FILE_BYTES_MAX}: generate it, cut it, or leave it out",
                file.bytes
            );
            Breach::new(&file.path, 1, "large-file", advice)
        })
        .collect()
}

/// CHANGELOG.md has the shape that its first lines promise.
pub(super) fn changelog(tree: &Tree) -> Vec<Breach> {
    const PATH: &str = "CHANGELOG.md";
    let breach = |line: usize, advice: String| Breach::new(PATH, line, "changelog", advice);
    let Some(text) = tree.text(PATH) else {
        return vec![breach(1, "missing: say in it what changed for users".to_owned())];
    };
    let mut found = Vec::new();
    if text.lines().next() != Some("# Changelog") {
        found.push(breach(1, "the first line is '# Changelog'".to_owned()));
    }
    let mut releases: Vec<&str> = Vec::new();
    let mut sections: Vec<&str> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(heading) = line.strip_prefix("## ") {
            sections.clear();
            match release(heading) {
                Ok(version) => releases.push(version),
                Err(advice) => found.push(breach(index + 1, advice)),
            }
        } else if let Some(heading) = line.strip_prefix("### ") {
            if let Some(advice) = section_fault(heading, &sections) {
                found.push(breach(index + 1, advice));
            }
            sections.push(heading);
        }
    }
    if !releases.is_sorted_by(|newer, older| numbers(newer) > numbers(older)) {
        found.push(breach(1, "releases stand newest first, each once".to_owned()));
    }
    if let Some(version) = tree.text("Cargo.toml").and_then(workspace_version)
        && !releases.contains(&version.as_str())
    {
        found.push(breach(1, format!("no heading for the workspace's version {version}")));
    }
    found
}

/// The version in a heading `0.1.0 - unreleased` or `0.1.0 - 2026-12-24`.
fn release(heading: &str) -> Result<&str, String> {
    let shape = "wanted '## 1.2.3 - unreleased' or '## 1.2.3 - YYYY-MM-DD'";
    let Some((version, date)) = heading.split_once(" - ") else {
        return Err(shape.to_owned());
    };
    let digits = |text: &str, length: usize| text.len() == length && text.bytes().all(|b| b.is_ascii_digit());
    let parts: Vec<&str> = date.split('-').collect();
    let dated = parts.len() == 3 && digits(parts[0], 4) && digits(parts[1], 2) && digits(parts[2], 2);
    if numbers(version).is_none() || !(dated || date == "unreleased") {
        return Err(shape.to_owned());
    }
    Ok(version)
}

fn numbers(version: &str) -> Option<Vec<u64>> {
    let parts: Vec<u64> = version.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
    (parts.len() == 3).then_some(parts)
}

fn section_fault(heading: &str, before: &[&str]) -> Option<String> {
    const SECTIONS: [&str; 6] = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];
    if !SECTIONS.contains(&heading) {
        return Some(format!("'{heading}' is none of {}", SECTIONS.join(", ")));
    }
    before.contains(&heading).then(|| format!("'{heading}' twice in one release: join them"))
}

fn workspace_version(manifest: &str) -> Option<String> {
    let manifest: toml::Table = manifest.parse().ok()?;
    Some(manifest.get("workspace")?.get("package")?.get("version")?.as_str()?.to_owned())
}

/// The lines (from 1) that `breaks` picks in the text files that `applies` picks.
fn lines<'a>(
    tree: &'a Tree,
    applies: impl Fn(&File) -> bool + 'a,
    breaks: impl Fn(&str) -> bool + 'a,
) -> impl Iterator<Item = (String, usize)> + 'a {
    tree.files.iter().filter(move |file| applies(file)).flat_map(move |file| {
        let text = file.text.as_deref().unwrap_or("");
        let hits = text.lines().enumerate().filter(|(_, line)| breaks(line));
        hits.map(|(index, _)| (file.path.clone(), index + 1)).collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{accepts, finds};
    use super::*;

    #[test]
    fn leftovers_are_found_in_code() {
        let note = concat!("\n// TO", "DO: later");
        finds(leftovers, &[("crates/io/src/a.rs", note)], "crates/io/src/a.rs:2: leftover");
        finds(leftovers, &[("Makefile", concat!("# FIX", "ME"))], "Makefile:1: leftover");
        accepts(leftovers, &[("docs/a.md", note), ("a.rs", concat!("let XX", "XL = 1; // TO", "DOS"))]);
    }

    #[test]
    fn paths_of_a_machine_are_found_anywhere() {
        let path = concat!("see /ho", "me/me/notes");
        finds(machine_paths, &[("docs/a.md", path)], "docs/a.md:1: machine-path");
        finds(machine_paths, &[("a.rs", concat!("\n\"/wo", "rk/x\""))], "a.rs:2: machine-path");
        accepts(
            machine_paths,
            &[("a.sh", concat!("cd $HERE/wo", "rk/x; ls a/ro", "ot/b; /sys/wo", "rkqueue"))],
        );
    }

    #[test]
    fn a_large_file_is_found_text_or_not() {
        let big =
            Tree { files: vec![File::new("a.bin", 200_001, None), File::new("Cargo.lock", 900_000, None)] };
        assert_eq!(large_files(&big).len(), 1);
        accepts(large_files, &[("a.txt", "x")]);
    }

    const GOOD: &str =
        "# Changelog\n\n## 0.2.0 - unreleased\n\n### Added\n\n## 0.1.0 - 2026-12-24\n\n### Added\n";

    #[test]
    fn the_changelog_keeps_its_shape() {
        accepts(changelog, &[("CHANGELOG.md", GOOD)]);
        finds(changelog, &[("README.md", "")], "CHANGELOG.md:1: changelog: missing");
        for (from, to, place) in [
            ("# Changelog", "# Changes", "CHANGELOG.md:1: changelog: the first line"),
            ("0.2.0 - unreleased", "0.2.0", "CHANGELOG.md:3: changelog: wanted"),
            ("0.2.0 - unreleased", "0.2 - unreleased", "CHANGELOG.md:3: changelog: wanted"),
            ("2026-12-24", "24.12.2026", "CHANGELOG.md:7: changelog: wanted"),
            ("0.2.0", "0.0.9", "CHANGELOG.md:1: changelog: releases stand newest first"),
            ("0.2.0", "0.1.0", "CHANGELOG.md:1: changelog: releases stand newest first"),
            ("### Added", "### News", "CHANGELOG.md:5: changelog: 'News' is none"),
            ("### Added", "### Added\n### Added", "CHANGELOG.md:6: changelog: 'Added' twice"),
        ] {
            finds(changelog, &[("CHANGELOG.md", &GOOD.replacen(from, to, 1))], place);
        }
        let manifest = ("Cargo.toml", "[workspace.package]\nversion = \"0.3.0\"\n");
        finds(changelog, &[("CHANGELOG.md", GOOD), manifest], "CHANGELOG.md:1: changelog: no heading");
    }
}
