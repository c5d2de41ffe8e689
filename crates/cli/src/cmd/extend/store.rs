//! Where the cold pages go: a directory on an SSD, checked before the program starts, and in it one directory
//! of this run's own.
//!
//! The run's directory carries its owner in its name. What a killed run left is found by that name, and
//! removed once no process uses it any more.

use super::swap_run;
use crate::exit::{Refused, refuse};
use anyhow::{Context, Result};
use overdrive_base::size::{MIB, format_size, parse_size};
use overdrive_host::root::Root;
use overdrive_host::target::{DiskFacts, TargetFacts, TargetIdentity};
use overdrive_sys::owner::Owner;
use overdrive_sys::parts::MARGIN_BYTES;
use overdrive_sys::{file, swap, volume};
use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Every run's directory is named so, followed by its owner.
pub(crate) const PREFIX: &str = "overdrive-extend-";

/// Below this a store is full before it is of use.
const STORE_MIN: u64 = 64 * MIB;

/// Without a size, the store may grow to so many times the budget.
const STORE_PER_DRAM: u64 = 8;

/// Kinds of file system that keep files in memory.
const IN_MEMORY: [&str; 3] = ["tmpfs", "ramfs", "hugetlbfs"];

/// A place for cold pages that has been looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Store {
    /// The directory, absolute; of a device the one that keeps the run's counters.
    pub(crate) folder: PathBuf,
    /// The block device that takes the pages, as it was named.
    pub(crate) device: Option<PathBuf>,
    /// The most it may take.
    pub(crate) bytes: u64,
    /// Why pages should not go there beside the kernel's own swap.
    pub(crate) shares_disk_with_swap: Option<String>,
    /// The CPUs that take its disk's completion interrupts; none when that is not known.
    pub(crate) interrupted_cpus: Vec<u32>,
}

impl Store {
    /// Reads `PATH[:SIZE]` and looks at the place.
    pub(crate) fn check(wish: &OsStr, dram_bytes: u64) -> Result<Self> {
        let (path, size) = parse(wish)?;
        let shown = path.display();
        let folder = folder_of(&path)?;
        let opened = File::open(&folder).map_err(|error| Refused(format!("--store {shown}: {error}")))?;
        let disk = volume::file_system(&opened)?;
        if IN_MEMORY.contains(&disk.name) {
            refuse!(
                "--store {shown}: it is on {}, which is memory itself; wanted a directory on an SSD",
                disk.name
            );
        }
        if folder.as_os_str().as_bytes().contains(&b',') {
            refuse!(
                "--store {shown}: a comma in the path cannot be told to the library; wanted another path"
            );
        }
        let room = disk.free_bytes.saturating_sub(disk.total_bytes / 10);
        let bytes = size.unwrap_or_else(|| room.min(dram_bytes.saturating_mul(STORE_PER_DRAM)));
        if size.is_some_and(|size| size < STORE_MIN) {
            refuse!(
                "--store {shown}: {} is too small; wanted at least {}",
                format_size(bytes),
                format_size(STORE_MIN)
            );
        }
        if bytes > room || bytes < STORE_MIN {
            refuse!(
                "--store {shown}: no room for {}; {} is left there, and a tenth of the file system stays free: wanted \
                 another place, or a smaller PATH:SIZE of at least {}",
                format_size(bytes.max(STORE_MIN)),
                format_size(room),
                format_size(STORE_MIN)
            );
        }
        check_length(&path, bytes)?;
        if let Err(error) = file::create_unnamed(&folder, 0) {
            refuse!(
                "--store {shown}: no file for direct I/O can be made there ({error}, {}); wanted a directory that this \
                 user may write to, on ext4, xfs or btrfs",
                disk.name
            );
        }
        let disks = disks_of(&folder);
        Ok(Self { folder, device: None, ..Self::beside_swap(bytes, &disks) })
    }

    /// The same for a block device; none when the path is not one. Nothing is opened for writing here.
    pub(crate) fn on_device(wish: &OsStr) -> Result<Option<Self>> {
        let (path, size) = parse(wish)?;
        let shown = path.display();
        let Ok(found) = TargetIdentity::at(&path) else { return Ok(None) };
        if found.kind != volume::FileKind::Block {
            return Ok(None);
        }
        let opened = File::open(&path).and_then(volume::device_bytes);
        let device_bytes = opened.map_err(|error| Refused(format!("--store {shown}: {error}")))?;
        let room = device_bytes.saturating_sub(2 * MARGIN_BYTES);
        let bytes = size.unwrap_or(room);
        if room < STORE_MIN || bytes < STORE_MIN || bytes > room {
            refuse!(
                "--store {shown}: {} of a device with room for {}; wanted at least {}, and not more than there is",
                format_size(bytes),
                format_size(room),
                format_size(STORE_MIN)
            );
        }
        // The run's counters are files, of a few KiB.
        check_length(&path, MIB)?;
        let folder = std::env::temp_dir();
        let absolute = std::fs::canonicalize(&folder).ok().filter(|path| path.is_dir());
        let folder = absolute.filter(|path| !path.as_os_str().as_bytes().contains(&b','));
        let Some(folder) = folder else {
            refuse!("--store {shown}: no directory for the run's counters; wanted TMPDIR to name one");
        };
        let disks = disks_of(&path);
        Ok(Some(Self { folder, device: Some(path), ..Self::beside_swap(bytes, &disks) }))
    }

    /// What is known of a store's disks: who takes their interrupts, and whether swap lies there too.
    fn beside_swap(bytes: u64, disks: &[DiskFacts]) -> Self {
        let takers = disks.iter().filter_map(|disk| disk.pcie.as_ref()?.completion_cpus());
        let interrupted_cpus = takers.flat_map(|cpus| cpus.iter().collect::<Vec<_>>()).collect();
        let areas = || swap::areas().unwrap_or_default().into_iter().map(|area| area.path).collect();
        let shares_disk_with_swap = swap_beside(disks, areas);
        Self { folder: PathBuf::new(), device: None, bytes, shares_disk_with_swap, interrupted_cpus }
    }

    /// Where the pages go, as people know it.
    pub(crate) fn place(&self) -> &Path {
        self.device.as_deref().unwrap_or(&self.folder)
    }
}

/// Whether files may be as long as is wanted here: a process that goes beyond its limit is ended by a signal.
fn check_length(path: &Path, bytes: u64) -> Result<()> {
    let limit = file::length_limit();
    if bytes > limit {
        refuse!(
            "--store {}: files of {} are wanted, and may have {} (ulimit -f); wanted ulimit -f unlimited",
            path.display(),
            format_size(bytes),
            format_size(limit)
        );
    }
    Ok(())
}

/// Splits off a size, when what follows the last colon is one, or when only the part before it exists.
fn parse(wish: &OsStr) -> Result<(PathBuf, Option<u64>)> {
    let text = wish.to_string_lossy();
    let Some((path, size)) = text.rsplit_once(':').filter(|_| !Path::new(wish).exists()) else {
        return Ok((PathBuf::from(wish), None));
    };
    let bytes = parse_size(size).map_err(|error| Refused(format!("--store {text}: {error}")))?;
    Ok((PathBuf::from(path), Some(bytes)))
}

/// The directory, absolute. It has to be there: a slip of the pen must not put memory somewhere else.
fn folder_of(path: &Path) -> Result<PathBuf> {
    let shown = path.display();
    let what = match TargetIdentity::at(path).map(|found| found.kind) {
        Ok(volume::FileKind::Block) => {
            "a block device, which only `overdrive extend` takes; wanted a directory of a file system on it"
        }
        _ => match std::fs::metadata(path) {
            Ok(about) if about.is_dir() => {
                return std::fs::canonicalize(path)
                    .map_err(|error| Refused(format!("--store {shown}: {error}")).into());
            }
            Ok(_) => "not a directory; wanted one that is there, on an SSD",
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                "no such directory; wanted one that is there (mkdir), on an SSD"
            }
            Err(error) => refuse!("--store {shown}: {error}; wanted a directory on an SSD"),
        },
    };
    refuse!("--store {shown}: {what}")
}

/// The disks behind a path, as far as they can be traced.
fn disks_of(path: &Path) -> Vec<DiskFacts> {
    let traced = TargetIdentity::at(path).and_then(|identity| TargetFacts::trace(&Root::new("/"), &identity));
    traced.map(|facts| facts.disks).unwrap_or_default()
}

/// Says so when a swap area lies on one of these disks. One that belongs to a run of ours is left out.
///
/// `areas` is asked twice: a run takes its area away before it ends, so that of one that ended between the
/// list and the look at its process is in the second list no more.
fn swap_beside(disks: &[DiskFacts], areas: impl Fn() -> Vec<PathBuf>) -> Option<String> {
    let is_own = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Owner::in_name(&name, "overdrive-swap-").is_some_and(|owner| owner.is_alive())
    };
    let shares =
        |path: &Path| disks_of(path).iter().any(|disk| disks.iter().any(|own| own.name() == disk.name()));
    let of_others: Vec<_> = areas().into_iter().filter(|area| !is_own(area)).collect();
    let on = areas();
    let area = of_others.iter().find(|area| on.contains(area) && shares(area))?;
    Some(format!("swap is on the same disk ({}), and the two would slow each other down", area.display()))
}

/// The directory of one run; removed when dropped.
#[derive(Debug)]
pub(crate) struct RunFolder {
    pub(crate) path: PathBuf,
    /// Open as long as the run lasts: by this others find it (`extend status`).
    open: File,
}

impl RunFolder {
    /// Makes it, for this user alone.
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        let path = folder.join(format!("{PREFIX}{}", Owner::this_process()?));
        DirBuilder::new().mode(0o700).create(&path).with_context(|| format!("making {}", path.display()))?;
        let open = File::open(&path).with_context(|| path.display().to_string())?;
        Ok(Self { path, open })
    }

    /// Whether a process of the run goes on, and still makes its files there.
    pub(crate) fn is_used(&self) -> bool {
        self.open.try_lock().is_err() || is_used(&self.path)
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // Else the next run removes it.
        if !self.is_used() {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes what killed runs left in `folder`; gives the paths.
pub(crate) fn remove_stale(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_stale = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with(PREFIX)
            && Owner::in_name(&name, PREFIX).is_some_and(|owner| !owner.is_alive())
            && path.symlink_metadata().is_ok_and(|about| about.is_dir())
            && File::open(path).is_ok_and(|open| open.try_lock().is_ok())
            && !is_used(path)
    };
    let stale = entries.map(|entry| entry.path()).filter(is_stale);
    stale.filter(|path| std::fs::remove_dir_all(path).is_ok()).collect()
}

/// The counters in a run's directory: process number and file.
pub(crate) fn counters_in(folder: &Path) -> Vec<(u32, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_suffix(".stats")?.parse().ok();
    let mut found: Vec<(u32, PathBuf)> = entries.filter_map(|path| Some((number(&path)?, path))).collect();
    found.sort();
    found
}

/// Whether a process of the run goes on: in its group, or with counters of this directory mapped. One that
/// may not be looked at is somebody else's, who could not open the directory: the number may be of another
/// PID namespace.
fn is_used(folder: &Path) -> bool {
    let has_mapping = |(pid, path): &(u32, PathBuf)| has_mapped(*pid, path) == Some(true);
    swap_run::goes_on(folder) || counters_in(folder).iter().any(has_mapping)
}

/// Whether a process maps a file; none when it may not be looked at.
pub(crate) fn has_mapped(pid: u32, path: &Path) -> Option<bool> {
    match maps_of(pid) {
        Ok(maps) => {
            let mut lines = maps.split(|&byte| byte == b'\n');
            Some(lines.any(|line| line.ends_with(path.as_os_str().as_bytes())))
        }
        Err(error) => (error.kind() != std::io::ErrorKind::PermissionDenied).then_some(false),
    }
}

/// What a process maps. Of a thread that has ended the kernel shows nothing, and the first one, which stands
/// for the process, may have ended before the others.
fn maps_of(pid: u32) -> std::io::Result<Vec<u8>> {
    let of_first = std::fs::read(format!("/proc/{pid}/maps"))?;
    if !of_first.is_empty() {
        return Ok(of_first);
    }
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
    let mut all = threads.filter_map(|thread| std::fs::read(thread.path().join("maps")).ok());
    Ok(all.find(|maps| !maps.is_empty()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_store_is_a_path_and_perhaps_a_size() {
        let folder = tempfile::tempdir().unwrap();
        let at = |text: &str| parse(OsStr::new(text)).map(|(path, size)| (path.display().to_string(), size));
        assert_eq!(at("/no/such:2GiB").unwrap(), ("/no/such".to_owned(), Some(2 << 30)));
        assert_eq!(at("/no/such").unwrap(), ("/no/such".to_owned(), None));
        assert!(at("/no/such:2x").is_err());
        let odd = folder.path().join("a:1k");
        std::fs::create_dir(&odd).unwrap();
        assert_eq!(at(odd.to_str().unwrap()).unwrap().1, None, "a directory that exists is itself");
    }

    #[test]
    fn swap_on_the_same_disk_is_seen_and_that_of_a_run_of_ours_is_not() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let own = format!("overdrive-swap-{}", Owner::this_process().unwrap());
        let (theirs, ours) = (folder.path().join("swapfile"), folder.path().join(own));
        let left = folder.path().join("overdrive-swap-1-1");
        for path in [&theirs, &ours, &left] {
            std::fs::write(path, "x").unwrap();
        }
        let disks = disks_of(folder.path());
        let why = swap_beside(&disks, || vec![ours.clone(), theirs.clone()]);
        // Where no disk can be traced, as on an overlay, nothing can be said.
        assert_eq!(why.is_some(), !disks.is_empty());
        assert!(why.is_none_or(|why| why.contains("swapfile") && why.contains("same disk")));
        assert_eq!(swap_beside(&disks, || vec![ours.clone(), PathBuf::from("/no/such/area")]), None);
        // What a killed run left and could not be removed slows the store down as any other.
        assert_eq!(swap_beside(&disks, || vec![left.clone()]).is_some(), !disks.is_empty());
        // A run that ended while its area was looked at.
        let asked = Cell::new(0);
        let ends = || if asked.replace(asked.get() + 1) == 0 { vec![left.clone()] } else { Vec::new() };
        assert_eq!((swap_beside(&disks, ends), asked.get()), (None, 2));
    }

    #[test]
    fn what_a_killed_run_left_is_removed_and_a_living_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let own = RunFolder::create(folder.path()).unwrap();
        let stale = folder.path().join(format!("{PREFIX}{}-1", u32::MAX >> 1));
        std::fs::create_dir(&stale).unwrap();
        std::fs::write(stale.join(format!("{}.stats", u32::MAX >> 1)), "x").unwrap();
        std::fs::create_dir(folder.path().join("overdrive-extend-of-mine")).unwrap();
        let held = File::open(&stale).unwrap();
        held.lock_shared().unwrap();
        assert!(remove_stale(folder.path()).is_empty(), "a process of the run goes on");
        drop(held);
        let group = folder.path().join("group");
        std::fs::create_dir(&group).unwrap();
        std::fs::write(group.join("cgroup.procs"), "7\n").unwrap();
        swap_run::note_group(&stale, &group).unwrap();
        assert!(remove_stale(folder.path()).is_empty(), "a process of the run on swap goes on");
        std::fs::write(group.join("cgroup.procs"), "").unwrap();
        assert_eq!(remove_stale(folder.path()), [stale]);
        assert!(own.path.exists() && folder.path().join("overdrive-extend-of-mine").exists());
        let path = own.path.clone();
        drop(own);
        assert!(!path.exists());
    }
}
