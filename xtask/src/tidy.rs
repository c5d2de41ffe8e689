//! The rules of style as a program: each check names what breaks a rule, where, and what to do about it.
//!
//! What a lint can say stands in `Cargo.toml` or `clippy.toml`; here is the rest. A check is a pure function
//! of a [`Tree`], so that its test can hand it a bad one. The rules and their reasons are in CONTRIBUTING.md.

mod purity;
mod shape;
mod source;
mod tables;
mod text;

use anyhow::{Context, Result, bail};
use source::Source;
use std::fmt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// One broken rule at one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Breach {
    path: String,
    line: usize,
    rule: &'static str,
    advice: String,
}

impl Breach {
    fn new(path: &str, line: usize, rule: &'static str, advice: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, advice: advice.into() }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.advice)
    }
}

/// One file of the repository.
#[derive(Debug)]
struct File {
    /// Relative to the root, with `/`.
    path: String,
    bytes: u64,
    /// `None` when it is not text.
    text: Option<String>,
    /// For Rust sources: the text with comments and literals blanked, and where the tests are.
    source: Option<Source>,
}

impl File {
    fn new(path: &str, bytes: u64, text: Option<String>) -> Self {
        let rust = Path::new(path).extension().is_some_and(|extension| extension == "rs");
        let source = text.as_deref().filter(|_| rust).map(|text| Source::new(text, is_test_path(path)));
        Self { path: path.to_owned(), bytes, text, source }
    }

    /// The crate this file belongs to: the folder name below `crates/`, or `xtask`.
    fn crate_name(&self) -> Option<&str> {
        let mut parts = self.path.split('/');
        match parts.next()? {
            "crates" => parts.next().filter(|_| parts.next().is_some()),
            "xtask" => Some("xtask"),
            _ => None,
        }
    }
}

/// Everything the checks may look at: the files that git tracks, or would.
#[derive(Debug)]
struct Tree {
    files: Vec<File>,
}

impl Tree {
    /// Reads the repository at `root`.
    fn load(root: &Path) -> Result<Self> {
        let listing = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("git is needed to list the files")?;
        if !listing.status.success() {
            bail!("git ls-files failed: {}", String::from_utf8_lossy(&listing.stderr).trim());
        }
        let mut files = Vec::new();
        for name in String::from_utf8_lossy(&listing.stdout).split('\0').filter(|name| !name.is_empty()) {
            let path = root.join(name);
            if !path.is_file() {
                continue;
            }
            let content = std::fs::read(&path).with_context(|| format!("cannot read {name}"))?;
            files.push(File::new(name, content.len() as u64, String::from_utf8(content).ok()));
        }
        Ok(Self::new(files))
    }

    fn new(mut files: Vec<File>) -> Self {
        let tests: Vec<String> = files.iter().flat_map(test_module_stems).collect();
        for file in &mut files {
            let stem = file.path.strip_suffix(".rs").unwrap_or(&file.path);
            let within = |test: &String| {
                stem.strip_prefix(test.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if let Some(source) = file.source.as_mut().filter(|_| tests.iter().any(within)) {
                source.mark_all_test();
            }
        }
        Self { files }
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Self {
        let file = |&(path, text): &(&str, &str)| File::new(path, text.len() as u64, Some(text.to_owned()));
        Self::new(files.iter().map(file).collect())
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path)?.text.as_deref()
    }

    /// The Rust sources with their files.
    fn sources(&self) -> impl Iterator<Item = (&File, &Source)> {
        self.files.iter().filter_map(|file| file.source.as_ref().map(|source| (file, source)))
    }
}

/// Whether the whole file is test code: integration tests, benches, and `tests.rs` beside its subject.
fn is_test_path(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/") || path.contains("/benches/")
}

/// The paths, without `.rs`, of the modules that a file declares for tests only.
fn test_module_stems(file: &File) -> Vec<String> {
    let Some(source) = &file.source else {
        return Vec::new();
    };
    let stem = file.path.strip_suffix(".rs").unwrap_or(&file.path);
    let parent = stem.rsplit_once('/').map_or("", |(folder, _)| folder);
    let folder = if matches!(stem.rsplit('/').next(), Some("lib" | "main" | "mod")) { parent } else { stem };
    source.test_modules().into_iter().map(|name| format!("{folder}/{name}")).collect()
}

type Check = fn(&Tree) -> Vec<Breach>;

const CHECKS: &[Check] = &[
    tables::import_table,
    tables::dependency_table,
    purity::unsafe_code,
    purity::printing,
    purity::outside_world,
    purity::unwraps,
    purity::bare_allows,
    purity::ignored_tests,
    shape::module_notes,
    shape::function_lengths,
    shape::file_lengths,
    shape::line_lengths,
    shape::base_stays_small,
    text::leftovers,
    text::machine_paths,
    text::large_files,
    text::changelog,
];

fn breaches(tree: &Tree) -> Vec<Breach> {
    let mut found: Vec<Breach> = CHECKS.iter().flat_map(|check| check(tree)).collect();
    found.sort();
    found
}

/// Checks the repository at `root` and prints each breach.
pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let tree = Tree::load(root)?;
    let found = breaches(&tree);
    for breach in &found {
        println!("{breach}");
    }
    if found.is_empty() {
        println!("tidy: {} files, {} checks, no breach", tree.files.len(), CHECKS.len());
        return Ok(ExitCode::SUCCESS);
    }
    println!("tidy: {} breaches; CONTRIBUTING.md has each rule's reason", found.len());
    Ok(ExitCode::from(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs one check on a tree of texts and shows its breaches as people see them.
    pub(super) fn shown(check: Check, files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(ToString::to_string).collect()
    }

    /// Asserts that `check` finds exactly one breach, and that it starts with `place` (path:line: rule).
    #[track_caller]
    pub(super) fn finds(check: Check, files: &[(&str, &str)], place: &str) {
        let found = shown(check, files);
        assert!(found.len() == 1 && found[0].starts_with(place), "wanted {place}, found {found:#?}");
    }

    /// Asserts that `check` has nothing to say.
    #[track_caller]
    pub(super) fn accepts(check: Check, files: &[(&str, &str)]) {
        assert_eq!(shown(check, files), Vec::<String>::new());
    }

    #[test]
    fn the_tree_is_tidy() {
        let tree = Tree::load(&crate::root()).unwrap();
        let found: Vec<String> = breaches(&tree).iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "\n{}", found.join("\n"));
    }

    #[test]
    fn modules_for_tests_only_are_test_code() {
        let tree = Tree::of(&[
            ("crates/io/src/lib.rs", "#[cfg(test)]\nmod fakes;\nmod a;\n"),
            ("crates/io/src/fakes.rs", "fn a() {}\n"),
            ("crates/io/src/fakes/deep.rs", "fn a() {}\n"),
            ("crates/io/src/fakes_not.rs", "fn a() {}\n"),
            ("crates/io/src/a.rs", "#[cfg(test)]\nmod b;\n"),
            ("crates/io/src/a/b.rs", "fn a() {}\n"),
        ]);
        let tests: Vec<&str> = tree
            .sources()
            .filter(|(_, source)| source.is_test(1))
            .map(|(file, _)| file.path.as_str())
            .collect();
        let wanted = ["lib.rs", "fakes.rs", "fakes/deep.rs", "a.rs", "a/b.rs"];
        assert_eq!(tests, wanted.map(|name| format!("crates/io/src/{name}")));
    }

    #[test]
    fn a_file_knows_its_crate() {
        let name = |path: &str| File::new(path, 0, None).crate_name().map(str::to_owned);
        assert_eq!(name("crates/io/src/lib.rs").as_deref(), Some("io"));
        assert_eq!(name("xtask/src/main.rs").as_deref(), Some("xtask"));
        assert_eq!(name("crates/README.md"), None);
        assert_eq!(name("README.md"), None);
    }
}
