//! The kernel modules that the virtio port needs, each after those it depends on.
//!
//! A module names what it depends on itself; what is built into the kernel is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The driver of the bus and that of the port.
const WANTED: [&str; 2] = ["virtio_pci", "virtio_console"];
/// Folders inside folders: deeper than any kernel has them.
const DEPTH_MAX: usize = 12;

/// Name and content of each module, in the order in which they are to be loaded.
pub(super) fn for_port(folder: &Path) -> Result<Vec<(String, Vec<u8>)>, String> {
    let builtin = fs::read_to_string(folder.join("modules.builtin")).map_err(|error| {
        format!("{}/modules.builtin: {error}; wanted --modules DIR of the guest's kernel", folder.display())
    })?;
    let builtin = builtin.lines().filter_map(|line| name_of(Path::new(line))).collect();
    let mut files = BTreeMap::new();
    find(&folder.join("kernel/drivers"), DEPTH_MAX, &mut files);
    let mut set = Set { builtin, files, seen: BTreeSet::new(), ordered: Vec::new() };
    for name in WANTED {
        set.add(name).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    Ok(set.ordered)
}

struct Set {
    builtin: BTreeSet<String>,
    files: BTreeMap<String, PathBuf>,
    seen: BTreeSet<String>,
    ordered: Vec<(String, Vec<u8>)>,
}

impl Set {
    fn add(&mut self, name: &str) -> Result<(), String> {
        if self.builtin.contains(name) || !self.seen.insert(name.to_owned()) {
            return Ok(());
        }
        let path = self
            .files
            .get(name)
            .ok_or_else(|| format!("this kernel has no {name}, built in or as a module"))?;
        let content = read(path)?;
        for other in depends(&content) {
            self.add(&other)?;
        }
        self.ordered.push((name.to_owned(), content));
        Ok(())
    }
}

fn find(folder: &Path, depth: usize, files: &mut BTreeMap<String, PathBuf>) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if let Some(name) = name_of(&path) {
            files.insert(name, path);
        } else if depth > 0 && path.is_dir() {
            find(&path, depth - 1, files);
        }
    }
}

/// `virtio_pci` for `.../virtio-pci.ko.xz`; the kernel takes `-` for `_`.
fn name_of(path: &Path) -> Option<String> {
    let (name, rest) = path.file_name()?.to_str()?.split_once(".ko")?;
    matches!(rest, "" | ".xz" | ".zst" | ".gz").then(|| name.replace('-', "_"))
}

/// The content, unpacked by the tool for its kind.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let tool = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(path).map_err(|error| format!("{}: {error}", path.display())),
    };
    let output = Command::new(tool).arg("-dc").arg(path).stderr(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(_) => Err(format!("{}: {tool} cannot unpack it", path.display())),
        Err(error) => Err(format!("{}: {tool} is needed to unpack it: {error}", path.display())),
    }
}

fn depends(content: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let at = content.windows(KEY.len()).position(|window| window == KEY);
    let list =
        at.and_then(|at| content[at + KEY.len()..].split(|byte| *byte == 0).next()).unwrap_or_default();
    let names = String::from_utf8_lossy(list).replace('-', "_");
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_after_what_they_depend_on() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("kernel/drivers/virtio");
        fs::create_dir_all(&place).unwrap();
        let write = |name: &str, depends: &str| {
            fs::write(place.join(name), format!("x\0depends={depends}\0y")).unwrap();
        };
        write("virtio-pci.ko", "virtio_ring,virtio");
        write("virtio_console.ko", "virtio");
        write("virtio_ring.ko", "virtio");
        write("other.ko", "");
        fs::write(folder.path().join("modules.builtin"), "kernel/drivers/virtio/virtio.ko\n").unwrap();
        let names: Vec<String> = for_port(folder.path()).unwrap().into_iter().map(|one| one.0).collect();
        assert_eq!(names, ["virtio_ring", "virtio_pci", "virtio_console"]);
        fs::remove_file(place.join("virtio_ring.ko")).unwrap();
        assert!(for_port(folder.path()).unwrap_err().contains("this kernel has no virtio_ring"));
    }
}
