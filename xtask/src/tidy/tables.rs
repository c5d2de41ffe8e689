//! ARCHITECTURE.md against the manifests: who may import whom, and which outside code is used, and why.

use super::{Breach, Tree};
use std::collections::{BTreeMap, BTreeSet};

const MAP: &str = "ARCHITECTURE.md";
const PREFIX: &str = "overdrive-";

/// What one crate's manifest asks for.
#[derive(Debug)]
struct Manifest {
    /// Where the manifest stands.
    path: String,
    /// The crate's short name: its folder.
    name: String,
    /// Our own crates it imports, by short name.
    imports: BTreeSet<String>,
    /// Our own crates only its tests import.
    test_imports: BTreeSet<String>,
    /// Everybody else's crates.
    outside: BTreeSet<String>,
    /// Those with a version of their own instead of the workspace's.
    unshared: BTreeSet<String>,
}

/// A row of a Markdown table: its line (from 1) and its cells.
type Row = (usize, Vec<String>);

/// The table of crates says exactly what the manifests say.
pub(super) fn import_table(tree: &Tree) -> Vec<Breach> {
    const RULE: &str = "import-table";
    let (manifests, mut found) = manifests(tree);
    let rows = table(tree, "crate");
    let mut seen = BTreeSet::new();
    for (line, cells) in &rows {
        let name = &cells[0];
        let breach = |advice: String| Breach::new(MAP, *line, RULE, advice);
        let Some(manifest) = manifests.iter().find(|manifest| manifest.name == *name) else {
            found.push(breach(format!("there is no crate {name}: drop the row")));
            continue;
        };
        if !seen.insert(name) {
            found.push(breach(format!("{name} has two rows: join them")));
        }
        let cell = |index: usize| cells.get(index).map_or("", String::as_str);
        found.extend(import_faults(manifest, cell(2)).into_iter().map(breach));
        let allowed = matches!(name.as_str(), "sys" | "preload");
        if (cell(3) == "forbidden") == allowed {
            found.push(breach(format!("the unsafe column of {name} must agree with its crate root")));
        }
    }
    for manifest in manifests.iter().filter(|manifest| !seen.contains(&manifest.name)) {
        let advice = format!("{} has no row in {MAP}'s table of crates", manifest.name);
        found.push(Breach::new(&manifest.path, 1, RULE, advice));
    }
    found
}

/// How a cell such as `base, sys` or `base; tests: hist` differs from the manifest.
fn import_faults(manifest: &Manifest, cell: &str) -> Vec<String> {
    let (may, may_in_tests) = match cell.split_once("; tests:") {
        Some((may, tests)) => (names(may), names(tests)),
        None => (names(cell), BTreeSet::new()),
    };
    let name = &manifest.name;
    let mut faults = Vec::new();
    for extra in manifest.imports.difference(&may) {
        faults.push(format!("{name} imports {extra}: drop the edge, or decide on it and add it here"));
    }
    for unused in may.difference(&manifest.imports) {
        faults.push(format!("{name} does not import {unused}: take it out of the row"));
    }
    for extra in manifest.test_imports.difference(&may_in_tests).filter(|extra| !may.contains(*extra)) {
        faults.push(format!("the tests of {name} import {extra}: drop that, or add '; tests: {extra}'"));
    }
    for unused in may_in_tests.difference(&manifest.test_imports) {
        faults.push(format!("the tests of {name} do not import {unused}: take it out of the row"));
    }
    faults
}

fn names(cell: &str) -> BTreeSet<String> {
    cell.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty() && *name != "-")
        .map(str::to_owned)
        .collect()
}

/// Every outside dependency has its line and reason, and no line is left over.
pub(super) fn dependency_table(tree: &Tree) -> Vec<Breach> {
    const RULE: &str = "dependency-table";
    let (manifests, _) = manifests(tree);
    let mut users: BTreeMap<&str, &Manifest> = BTreeMap::new();
    for manifest in &manifests {
        for name in &manifest.outside {
            users.entry(name).or_insert(manifest);
        }
    }
    let mut found = Vec::new();
    let mut listed = BTreeSet::new();
    for (line, cells) in table(tree, "dependency") {
        let name = cells[0].clone();
        if cells.get(1).is_none_or(String::is_empty) {
            found.push(Breach::new(MAP, line, RULE, format!("{name} has no reason: say why it is here")));
        }
        if !users.contains_key(name.as_str()) {
            found.push(Breach::new(MAP, line, RULE, format!("no crate uses {name}: drop the row")));
        }
        listed.insert(name);
    }
    for (name, manifest) in users.iter().filter(|(name, _)| !listed.contains(**name)) {
        let advice = format!("{name} has no row in {MAP}'s table of dependencies: add it with its reason");
        found.push(Breach::new(&manifest.path, line_of(tree, &manifest.path, name), RULE, advice));
    }
    for manifest in &manifests {
        for name in &manifest.unshared {
            let line = line_of(tree, &manifest.path, name);
            let advice =
                format!("give {name} its version in the root Cargo.toml and write {name}.workspace = true");
            found.push(Breach::new(&manifest.path, line, RULE, advice));
        }
    }
    for name in workspace_dependencies(tree) {
        if !name.starts_with(PREFIX) && !users.contains_key(name.as_str()) {
            let line = line_of(tree, "Cargo.toml", &name);
            found.push(Breach::new("Cargo.toml", line, RULE, format!("no crate uses {name}: drop the line")));
        }
    }
    found
}

/// The manifests of all crates and xtask, and a breach for each that cannot be read.
fn manifests(tree: &Tree) -> (Vec<Manifest>, Vec<Breach>) {
    let mut manifests = Vec::new();
    let mut found = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with("/Cargo.toml")) {
        let (Some(name), Some(text)) = (file.crate_name(), &file.text) else {
            continue;
        };
        match text.parse::<toml::Table>() {
            Ok(table) => manifests.push(manifest(&file.path, name, &table)),
            Err(error) => found.push(Breach::new(&file.path, 1, "import-table", error.message().to_owned())),
        }
    }
    (manifests, found)
}

fn manifest(path: &str, name: &str, table: &toml::Table) -> Manifest {
    let mut manifest = Manifest {
        path: path.to_owned(),
        name: name.to_owned(),
        imports: BTreeSet::new(),
        test_imports: BTreeSet::new(),
        outside: BTreeSet::new(),
        unshared: BTreeSet::new(),
    };
    let targets =
        table.get("target").and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::values);
    for scope in targets.filter_map(toml::Value::as_table).chain([table]) {
        for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
            for (name, value) in entries(scope.get(kind)) {
                if value.get("workspace").and_then(toml::Value::as_bool) != Some(true) {
                    manifest.unshared.insert(name.clone());
                }
                match name.strip_prefix(PREFIX) {
                    Some(own) if kind == "dev-dependencies" => manifest.test_imports.insert(own.to_owned()),
                    Some(own) => manifest.imports.insert(own.to_owned()),
                    None => manifest.outside.insert(name.clone()),
                };
            }
        }
    }
    manifest
}

fn entries(value: Option<&toml::Value>) -> impl Iterator<Item = (&String, &toml::Value)> {
    value.and_then(toml::Value::as_table).into_iter().flatten()
}

fn workspace_dependencies(tree: &Tree) -> Vec<String> {
    let manifest = tree.text("Cargo.toml").and_then(|text| text.parse::<toml::Table>().ok());
    let workspace = manifest.as_ref().and_then(|table| table.get("workspace")?.get("dependencies"));
    entries(workspace).map(|(name, _)| name.clone()).collect()
}

/// The line (from 1) of a manifest that begins with `name`.
fn line_of(tree: &Tree, path: &str, name: &str) -> usize {
    let text = tree.text(path).unwrap_or("");
    let begins = |line: &str| {
        line.trim_start().strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with(['=', '.']))
    };
    text.lines().position(begins).map_or(1, |index| index + 1)
}

/// The rows of the table in ARCHITECTURE.md whose first heading is `heading`; backticks are dropped.
fn table(tree: &Tree, heading: &str) -> Vec<Row> {
    let text = tree.text(MAP).unwrap_or("");
    let cells = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect()
    };
    text.lines()
        .enumerate()
        .skip_while(|(_, line)| !line.starts_with('|') || cells(line)[0] != heading)
        .take_while(|(_, line)| line.starts_with('|'))
        .skip(2) // the heading and the rule below it
        .map(|(index, line)| (index + 1, cells(line)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{accepts, finds};
    use super::*;

    const BASE: (&str, &str) = ("crates/base/Cargo.toml", "[dependencies]\nthiserror.workspace = true\n");
    const IO: (&str, &str) = (
        "crates/io/Cargo.toml",
        "[dependencies]\noverdrive-base.workspace = true\n[dev-dependencies]\noverdrive-sys.workspace = true\n",
    );
    const SYS: (&str, &str) = ("crates/sys/Cargo.toml", "");

    fn map(base: &str, io: &str, sys: &str) -> String {
        format!(
            "# Map\n\n| crate | one line | may import | unsafe |\n|---|---|---|---|\n{base}\n{io}\n{sys}\n\nAfter.\n"
        )
    }

    const BASE_ROW: &str = "| `base` | x | - | forbidden |";
    const IO_ROW: &str = "| `io` | x | base; tests: sys | forbidden |";
    const SYS_ROW: &str = "| `sys` | x | - | allowed, argued |";

    #[test]
    fn the_import_table_equals_the_manifests() {
        accepts(import_table, &[(MAP, &map(BASE_ROW, IO_ROW, SYS_ROW)), BASE, IO, SYS]);
        for (io_row, place) in [
            ("| `io` | x | -; tests: sys | forbidden |", "ARCHITECTURE.md:6: import-table: io imports base"),
            (
                "| `io` | x | base, hist; tests: sys | forbidden |",
                "ARCHITECTURE.md:6: import-table: io does not",
            ),
            (
                "| `io` | x | base | forbidden |",
                "ARCHITECTURE.md:6: import-table: the tests of io import sys",
            ),
            (
                "| `io` | x | base; tests: sys, hist | forbidden |",
                "ARCHITECTURE.md:6: import-table: the tests of io do",
            ),
            (
                "| `io` | x | base; tests: sys | allowed |",
                "ARCHITECTURE.md:6: import-table: the unsafe column of io",
            ),
        ] {
            finds(import_table, &[(MAP, &map(BASE_ROW, io_row, SYS_ROW)), BASE, IO, SYS], place);
        }
    }

    #[test]
    fn every_crate_has_one_row_and_every_row_a_crate() {
        let full = map(BASE_ROW, IO_ROW, SYS_ROW);
        finds(
            import_table,
            &[(MAP, &full), BASE, SYS],
            "ARCHITECTURE.md:6: import-table: there is no crate io",
        );
        let short = map(BASE_ROW, IO_ROW, "");
        finds(
            import_table,
            &[(MAP, &short), BASE, IO, SYS],
            "crates/sys/Cargo.toml:1: import-table: sys has no row",
        );
        let twice = map(BASE_ROW, IO_ROW, &format!("{SYS_ROW}\n{SYS_ROW}"));
        finds(
            import_table,
            &[(MAP, &twice), BASE, IO, SYS],
            "ARCHITECTURE.md:8: import-table: sys has two rows",
        );
        let broken = ("crates/sys/Cargo.toml", "[dependencies");
        let found = import_table(&Tree::of(&[(MAP, &full), BASE, IO, broken]));
        assert!(found.iter().any(|breach| breach.path == broken.0), "{found:?}");
    }

    fn reasons(rows: &str) -> String {
        format!("| dependency | why it is here |\n|---|---|\n{rows}")
    }

    #[test]
    fn every_dependency_has_its_reason() {
        accepts(dependency_table, &[(MAP, &reasons("| `thiserror` | errors |\n")), BASE]);
        let place = "crates/base/Cargo.toml:2: dependency-table: thiserror has no row";
        finds(dependency_table, &[(MAP, &reasons("")), BASE], place);
        let unreasoned = reasons("| `thiserror` | |\n");
        finds(
            dependency_table,
            &[(MAP, &unreasoned), BASE],
            "ARCHITECTURE.md:3: dependency-table: thiserror has no",
        );
        let extra = reasons("| `thiserror` | errors |\n| `serde` | x |\n");
        finds(
            dependency_table,
            &[(MAP, &extra), BASE],
            "ARCHITECTURE.md:4: dependency-table: no crate uses serde",
        );
        let own = ("crates/base/Cargo.toml", "[dependencies]\nthiserror = \"2\"\n");
        let place = "crates/base/Cargo.toml:2: dependency-table: give thiserror its version in the root";
        finds(dependency_table, &[(MAP, &reasons("| `thiserror` | errors |\n")), own], place);
        let unused = ("Cargo.toml", "[workspace.dependencies]\nthiserror = \"2\"\nserde = \"1\"\n");
        let good = reasons("| `thiserror` | errors |\n");
        finds(
            dependency_table,
            &[(MAP, &good), BASE, unused],
            "Cargo.toml:3: dependency-table: no crate uses serde",
        );
    }
}
