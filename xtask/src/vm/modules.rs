//! Which module files a scenario needs, those they depend on first.
//!
//! Each module names its dependencies in its own `.modinfo` section, so no index has to be built. Modules
//! that are built into the kernel are left out.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The modules of one kernel.
#[derive(Debug)]
pub(super) struct Modules {
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
    /// Unpacks what is compressed.
    busybox: PathBuf,
}

/// One module, ready to be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Loadable {
    pub(super) name: String,
    pub(super) content: Vec<u8>,
}

impl Modules {
    /// The modules under a folder such as `lib/modules/6.12.1-amd64`.
    pub(super) fn index(folder: &Path, busybox: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        walk(&folder.join("kernel"), &mut files)?;
        let list = folder.join("modules.builtin");
        let builtin = fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
        let builtin = builtin.lines().filter_map(|line| name_of(line.rsplit('/').next()?)).collect();
        Ok(Self { files, builtin, busybox: busybox.to_owned() })
    }

    /// The named module after everything it depends on; what `loaded` names is left out and added to.
    pub(super) fn with_dependencies(
        &self,
        name: &str,
        loaded: &mut BTreeSet<String>,
    ) -> Result<Vec<Loadable>> {
        let name = name.replace('-', "_");
        if self.builtin.contains(&name) || !loaded.insert(name.clone()) {
            return Ok(Vec::new());
        }
        let file = self.files.get(&name).with_context(|| format!("this kernel has no module {name}"))?;
        let content = self.read(file)?;
        let mut all = Vec::new();
        for dependency in dependencies(&content) {
            all.extend(self.with_dependencies(&dependency, loaded)?);
        }
        all.push(Loadable { name, content });
        Ok(all)
    }

    fn read(&self, file: &Path) -> Result<Vec<u8>> {
        let unreadable = || format!("cannot read {}", file.display());
        if file.extension().is_none_or(|extension| extension != "xz") {
            return fs::read(file).with_context(unreadable);
        }
        let packed = fs::File::open(file).with_context(unreadable)?;
        let mut command = Command::new(&self.busybox);
        let output = command.args(["xz", "-dc"]).stdin(packed).stderr(Stdio::null()).output();
        let output = output.with_context(|| format!("cannot start {}", self.busybox.display()))?;
        output
            .status
            .success()
            .then_some(output.stdout)
            .with_context(|| format!("cannot unpack {}", file.display()))
    }
}

fn walk(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", folder.display()))?;
        let path = entry.path();
        if path.is_dir() {
            walk(&path, files)?;
        } else if let Some(name) = name_of(&entry.file_name().to_string_lossy()) {
            files.insert(name, path);
        }
    }
    Ok(())
}

/// The name of the module in a file such as `nvme-core.ko.xz`; the kernel takes `-` and `_` for the same.
fn name_of(file: &str) -> Option<String> {
    let stem = file.strip_suffix(".xz").unwrap_or(file).strip_suffix(".ko")?;
    Some(stem.replace('-', "_"))
}

/// The list after `depends=` among the module's strings.
fn dependencies(content: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = content.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let list = content[at + KEY.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(list).into_owned();
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> PathBuf {
        let folder = std::env::temp_dir().join(format!("overdrive-modules-{}", std::process::id()));
        let host = folder.join("kernel/drivers/nvme/host");
        fs::create_dir_all(&host).unwrap();
        fs::write(host.join("nvme.ko"), b"ELF\0license=GPL\0depends=nvme-core,crc32c\0name=nvme\0").unwrap();
        fs::write(host.join("nvme-core.ko"), b"ELF\0depends=lonely\0").unwrap();
        fs::write(host.join("lonely.ko"), b"ELF\0depends=\0").unwrap();
        fs::write(host.join("README"), b"").unwrap();
        fs::write(folder.join("modules.builtin"), "kernel/crypto/crc32c.ko\n").unwrap();
        folder
    }

    #[test]
    fn dependencies_come_first_and_once() {
        let folder = tree();
        let modules = Modules::index(&folder, Path::new("busybox")).unwrap();
        let mut loaded = BTreeSet::new();
        let names = |all: Vec<Loadable>| all.into_iter().map(|module| module.name).collect::<Vec<_>>();
        assert_eq!(
            names(modules.with_dependencies("nvme", &mut loaded).unwrap()),
            ["lonely", "nvme_core", "nvme"]
        );
        assert!(modules.with_dependencies("nvme-core", &mut loaded).unwrap().is_empty(), "loaded already");
        assert!(modules.with_dependencies("crc32c", &mut loaded).unwrap().is_empty(), "built in");
        let error = modules.with_dependencies("missing", &mut loaded).unwrap_err().to_string();
        assert_eq!(error, "this kernel has no module missing");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn names_are_those_of_the_kernel() {
        assert_eq!(name_of("nvme-core.ko.xz").as_deref(), Some("nvme_core"));
        assert_eq!(name_of("ext4.ko").as_deref(), Some("ext4"));
        assert_eq!(name_of("modules.order"), None);
    }
}
