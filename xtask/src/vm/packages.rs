//! Debian's kernels and a static busybox: downloaded once, unpacked beside the build, never installed.
//!
//! What lies in the cache is used as it is, so that a second run needs no network; removing the folder
//! fetches the newest packages of that day.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Parts of a kernel package that no scenario can use, and that make up most of it.
const UNUSED: [&str; 12] = [
    "net",
    "sound",
    "drivers/net",
    "drivers/gpu",
    "drivers/media",
    "drivers/staging",
    "drivers/usb",
    "drivers/infiniband",
    "drivers/iio",
    "drivers/input",
    "drivers/hwmon",
    "drivers/isdn",
];

/// How long to wait before each further try.
const PAUSES: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(15)];

/// A kernel that can be booted.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    pub(super) series: String,
    /// Its own name, as `uname -r` prints it.
    pub(super) release: String,
    pub(super) image: PathBuf,
    /// The folder of its modules.
    pub(super) modules: PathBuf,
}

/// The folder of unpacked packages.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
    /// The series that could not be had, with the reason: they are not asked for again.
    failed: Mutex<BTreeMap<String, String>>,
}

impl Cache {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, failed: Mutex::default() }
    }

    /// The kernel of a series such as `6.12`.
    pub(super) fn kernel(&self, series: &str) -> Result<Kernel> {
        let folder = self.folder.join(format!("kernel-{series}"));
        if !folder.is_dir() {
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(why) = failed.get(series) {
                bail!("{why}");
            }
            insist(|| self.fetch(&kernel_package(series)?, &folder, prune_kernel))
                .inspect_err(|error| drop(failed.insert(series.to_owned(), format!("{error:#}"))))?;
        }
        let images = names_in(&folder.join("boot"))?;
        let release = images.iter().find_map(|name| name.strip_prefix("vmlinuz-"));
        let release = release.with_context(|| format!("{} holds no kernel; remove it", folder.display()))?;
        Ok(Kernel {
            series: series.to_owned(),
            release: release.to_owned(),
            image: folder.join("boot").join(format!("vmlinuz-{release}")),
            modules: module_root(&folder).join(release),
        })
    }

    /// The static busybox.
    pub(super) fn busybox(&self) -> Result<PathBuf> {
        let folder = self.folder.join("busybox");
        if !folder.is_dir() {
            insist(|| self.fetch("busybox-static", &folder, |_| Ok(())))?;
        }
        let places = ["bin/busybox", "usr/bin/busybox"].map(|place| folder.join(place));
        let found = places.into_iter().find(|place| place.is_file());
        found.with_context(|| format!("{} holds no busybox; remove it", folder.display()))
    }

    /// Downloads a package and unpacks it as `folder`, which appears only when it is complete.
    fn fetch(&self, package: &str, folder: &Path, trim: impl Fn(&Path) -> Result<()>) -> Result<()> {
        eprintln!("vm: fetching {package}");
        let part = self.folder.join(format!("part-{}", std::process::id()));
        fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
        let outcome = download(package, &part).and_then(|file| {
            let unpacked = part.join("unpacked");
            quiet(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&unpacked))?;
            trim(&unpacked)?;
            fs::rename(&unpacked, folder).with_context(|| format!("cannot make {}", folder.display()))
        });
        let _ = fs::remove_dir_all(&part);
        outcome.with_context(|| format!("fetching {package}"))
    }
}

/// Tries more than once: an archive may be out of reach for a moment, or hold newer packages than the list.
fn insist(fetch: impl Fn() -> Result<()>) -> Result<()> {
    let mut outcome = fetch();
    for pause in PAUSES {
        let Err(error) = &outcome else { return Ok(()) };
        // Only root may fetch the list; who may not tries again with the old one.
        let apt = |word: &str| Command::new("apt-get").args(["-qq", word]).output();
        if apt("--version").is_err() {
            break;
        }
        eprintln!("vm: {error:#}; trying again");
        std::thread::sleep(pause);
        let _ = apt("update");
        outcome = fetch();
    }
    outcome
}

fn download(package: &str, folder: &Path) -> Result<PathBuf> {
    // As root apt would hand the download to a user who may not write here.
    let user = ["-o", "APT::Sandbox::User=root"];
    quiet(Command::new("apt-get").args(user).args(["-qq", "download", package]).current_dir(folder))?;
    let file = names_in(folder)?.into_iter().find(|name| name.ends_with(".deb"));
    Ok(folder.join(file.context("apt-get download left no package")?))
}

/// The package that holds the newest kernel of a series: what Debian's own meta-packages depend on.
fn kernel_package(series: &str) -> Result<String> {
    for meta in [format!("linux-image-{series}-amd64"), "linux-image-amd64".to_owned()] {
        let output = Command::new("apt-cache").args(["depends", &meta]).stderr(Stdio::null()).output();
        let text = output.context("apt-cache is needed to find kernels")?.stdout;
        if let Some(package) = kernel_among(series, &String::from_utf8_lossy(&text)) {
            return Ok(package);
        }
    }
    bail!(
        "apt knows no kernel {series} (apt-get update may help; Debian 12 and its security archive have 6.1 and 6.12)"
    )
}

fn kernel_among(series: &str, depends: &str) -> Option<String> {
    let packages = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    packages.map(str::to_owned).find(|package| package.starts_with(&format!("linux-image-{series}.")))
}

/// Since the merge of /lib into /usr it depends on the package's age where modules are.
fn module_root(folder: &Path) -> PathBuf {
    let merged = folder.join("usr/lib/modules");
    if merged.is_dir() { merged } else { folder.join("lib/modules") }
}

fn prune_kernel(folder: &Path) -> Result<()> {
    let root = module_root(folder);
    for release in names_in(&root)? {
        for unused in UNUSED {
            let unused = root.join(&release).join("kernel").join(unused);
            if unused.is_dir() {
                fs::remove_dir_all(&unused).with_context(|| format!("cannot remove {}", unused.display()))?;
            }
        }
    }
    Ok(())
}

fn names_in(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

/// Runs a command; when it fails, its last words are the error.
fn quiet(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("{name} failed: {}", said.lines().last().unwrap_or("it said nothing"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meta_package_leads_to_its_kernel() {
        let depends = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n";
        assert_eq!(kernel_among("6.1", depends).as_deref(), Some("linux-image-6.1.0-56-amd64"));
        assert_eq!(kernel_among("6.12", depends), None);
        assert_eq!(
            kernel_among("6.1", "linux-image-6.12-amd64\n  Depends: linux-image-6.12.1-amd64\n"),
            None
        );
    }

    #[test]
    fn a_failing_command_is_told_with_its_last_word() {
        let error = quiet(Command::new("sh").args(["-c", "echo one >&2; echo two >&2; exit 1"])).unwrap_err();
        assert_eq!(error.to_string(), "sh failed: two");
    }
}
