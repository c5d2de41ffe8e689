//! The guest's first and only file system: busybox, the program under test with its libraries, the modules,
//! the scenario.

use super::cpio::Archive;
use super::modules::Modules;
use super::packages::Kernel;
use super::scenario::Scenario;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What goes into every guest.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) busybox: PathBuf,
    /// The program under test.
    pub(super) overdrive: PathBuf,
    /// The folder of the guest's scripts.
    pub(super) scripts: PathBuf,
}

const PRELOADED: &str = "libovermem.so";

/// Puts the archive for one scenario on one kernel together.
pub(super) fn build(contents: &Contents, kernel: &Kernel, scenario: &Scenario) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys", "tmp", "mnt", "root", "bin"] {
        archive.directory(folder);
    }
    // Before devtmpfs is mounted the kernel looks for this one to give the first program its output.
    archive.character_device("dev/console", 5, 1);
    archive.file("bin/busybox", 0o755, &read(&contents.busybox)?);
    archive.link("bin/sh", "busybox");
    archive.file("init", 0o755, &read(&contents.scripts.join("init"))?);
    for script in ["lib.sh", "tune.sh", "record.awk"] {
        archive.file(script, 0o644, &read(&contents.scripts.join(script))?);
    }
    archive.file("scenario.sh", 0o644, scenario.script.as_bytes());
    let mut programs = vec![("overdrive".to_owned(), contents.overdrive.clone())];
    for name in &scenario.programs {
        programs.push((name.clone(), on_path(name)?));
    }
    let mut shared = BTreeSet::new();
    for (name, program) in programs {
        archive.file(&format!("bin/{name}"), 0o755, &read(&program)?);
        shared.extend(libraries(&program)?);
    }
    // What `overdrive extend` preloads, where it was built.
    let preloaded = contents.overdrive.with_file_name(PRELOADED);
    if preloaded.is_file() {
        archive.file(&format!("bin/{PRELOADED}"), 0o755, &read(&preloaded)?);
        shared.extend(libraries(&preloaded)?);
    }
    for library in shared {
        archive.file(&library.display().to_string(), 0o755, &read(&library)?);
    }
    add_modules(&mut archive, contents, kernel, scenario)?;
    Ok(archive.finish())
}

fn add_modules(
    archive: &mut Archive,
    contents: &Contents,
    kernel: &Kernel,
    scenario: &Scenario,
) -> Result<()> {
    let modules = Modules::index(&kernel.modules, &contents.busybox)?;
    let mut loaded = BTreeSet::new();
    let mut list = String::new();
    for wanted in &scenario.modules {
        for module in modules.with_dependencies(&wanted.name, &mut loaded)? {
            let file = format!("modules/{}.ko", module.name);
            archive.file(&file, 0o644, &module.content);
            let is_wanted = module.name == wanted.name.replace('-', "_");
            let parameters = if is_wanted { wanted.parameters.join(" ") } else { String::new() };
            list.push_str(&format!("{file} {parameters}\n"));
        }
    }
    archive.file("modules.list", 0o644, list.as_bytes());
    Ok(())
}

/// The first program that a scenario wants and this host does not have.
pub(super) fn missing(scenario: &Scenario) -> Option<String> {
    scenario.programs.iter().find_map(|name| on_path(name).err().map(|error| error.to_string()))
}

/// A program of the host by its name.
fn on_path(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.with_context(|| format!("the scenario wants {name}, which is not installed"))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The shared libraries of a program and its loader, at the paths by which it asks for them.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("cannot start ldd")?;
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if said.contains("statically linked") || said.contains("not a dynamic executable") {
        return Ok(Vec::new());
    }
    if !output.status.success() {
        bail!("ldd {}: {}", program.display(), said.trim());
    }
    said.lines().filter_map(library).map(|path| path.map(PathBuf::from)).collect()
}

/// The path in a line of ldd; none for what the kernel itself provides.
fn library(line: &str) -> Option<Result<&str>> {
    let line = line.trim();
    let wanted = line.split_once("=>").map_or(line, |(_, path)| path.trim());
    if wanted.starts_with("not found") {
        return Some(Err(anyhow::anyhow!("a library is missing: {line}")));
    }
    let path = wanted.split_whitespace().next()?;
    path.starts_with('/').then_some(Ok(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ldd_give_paths() {
        let path = |line| library(line).map(Result::unwrap);
        assert_eq!(path("\tlinux-vdso.so.1 (0x00007ffd0b5f2000)"), None);
        assert_eq!(
            path("\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0)"),
            Some("/lib/x86_64-linux-gnu/libc.so.6")
        );
        assert_eq!(path("\t/lib64/ld-linux-x86-64.so.2 (0x00007f0)"), Some("/lib64/ld-linux-x86-64.so.2"));
        assert!(library("\tlibodd.so => not found").unwrap().is_err());
    }
}
