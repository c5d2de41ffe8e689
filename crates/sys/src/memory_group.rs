//! Memory control groups of our own: made, limited, verified, filled, counted, removed.
//!
//! One for a process, or one for a fleet with a child for each of its members.
//! Both hierarchies are spoken: version 1's memory controller and version 2. The group is a child of the one
//! we are in where that is possible, so that a container's own limit stays in force. Its name carries its
//! owner, so that a later run finds and removes what a killed one left behind.

mod counters;
mod displaced;
pub mod foreign;
mod hierarchy;
pub mod reclaim;
pub mod zswap;

pub use counters::{GroupCounters, counters_at, pages_brought_back};

use crate::owner::{Held, Owner};
use counters::counters_of;
use hierarchy::{own_group, own_texts};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

/// A group for one process is named so, followed by its owner.
const PREFIX: &str = "overdrive-page-";

/// A group for a program of the user's, and whatever it starts.
const PROGRAM_PREFIX: &str = "overdrive-extend-";

/// A group for a fleet: then a word of the caller's, a dash, and its owner.
const FLEET_PREFIX: &str = "overdrive-density-";

/// How deep below a hierarchy's root leftovers are looked for.
const DEPTH_MAX: usize = 8;

/// Why there is no group.
#[derive(Debug, Error)]
pub enum GroupError {
    /// No hierarchy offers a memory controller.
    #[error("no memory control group: {0}")]
    Unavailable(String),
    /// A group of somebody else's cannot be held.
    #[error("{0}")]
    Unfit(String),
    /// A file of the group could not be read or written.
    #[error("{path}: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The kernel took the value but holds another.
    #[error("{path}: wrote {written}, reads back {found}")]
    NotKept {
        /// Which file.
        path: PathBuf,
        /// What was written.
        written: String,
        /// What it holds.
        found: String,
    },
}

/// Which control-group interface is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// The memory controller's own hierarchy.
    V1,
    /// The unified hierarchy.
    V2,
}

/// Where groups can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    version: Version,
    /// The folder in which a group would be made.
    parent: PathBuf,
    /// The hierarchy's mount point.
    root: PathBuf,
}

impl Place {
    /// Finds the hierarchy with the memory controller and checks that a group could be made there.
    ///
    /// # Errors
    /// When there is none, or no permission; nothing has been made then.
    pub fn find() -> Result<Self, GroupError> {
        let (mountinfo, own) = own_texts()?;
        let place = Self::among(&mountinfo, &own)?;
        rustix::fs::access(&place.parent, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK)
            .map_err(|error| {
                let path = place.parent.display();
                // As in containers.
                let is_read_only = error == rustix::io::Errno::ROFS;
                let wanted = if is_read_only { "a mount that may be written to" } else { "root" };
                GroupError::Unavailable(format!("none can be made in {path} ({error}); wanted {wanted}"))
            })?;
        Ok(place)
    }

    /// The same from the text of /proc/self/mountinfo and /proc/self/cgroup.
    fn among(mountinfo: &str, own: &str) -> Result<Self, GroupError> {
        let (version, root, mut parent) = own_group(mountinfo, own)?;
        if version == Version::V1 {
            return Ok(Self { version, parent, root });
        }
        while !hands_down_memory(&parent) {
            if parent == root || !parent.pop() {
                let path = root.join("cgroup.subtree_control");
                let wanted =
                    format!("no group hands the memory controller down ({}: wanted memory)", path.display());
                return Err(GroupError::Unavailable(wanted));
            }
        }
        Ok(Self { version: Version::V2, parent, root })
    }

    /// Which interface is spoken here.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether a group that is made here, with so much memory, can have so much of it in swap.
    ///
    /// # Errors
    /// What stands in the way, and what is wanted instead.
    pub fn check_swap(&self, memory_bytes: u64, swap_bytes: u64) -> Result<(), String> {
        // On version 1 each group has a swappiness of its own (see `MemoryGroup::ask_for_swap`).
        let swappiness = fs::read_to_string("/proc/sys/vm/swappiness").unwrap_or_default();
        if self.version == Version::V2 && swap_bytes > 0 && swappiness.trim() == "0" {
            return Err("with vm.swappiness=0 the kernel kills at a group's limit before it swaps; wanted \
                        sysctl vm.swappiness=60, or any other above 0"
                .to_owned());
        }
        let Some((file, most)) = self.swap_limit(memory_bytes).filter(|&(_, most)| most < swap_bytes) else {
            return Ok(());
        };
        Err(format!(
            "{} leaves {} MiB of swap and {} MiB are asked for; wanted a higher limit there, or less",
            file.display(),
            most >> 20,
            swap_bytes.div_ceil(1 << 20)
        ))
    }

    /// The lowest limit on swap among the groups above, where it stands, and what it leaves beside so much
    /// memory.
    fn swap_limit(&self, memory_bytes: u64) -> Option<(PathBuf, u64)> {
        let (name, besides) = match self.version {
            // This one is for memory and swap together.
            Version::V1 => ("memory.memsw.limit_in_bytes", memory_bytes),
            Version::V2 => ("memory.swap.max", 0),
        };
        let (file, limit) = lowest(name, &self.parent, &self.root)?;
        Some((file, limit.saturating_sub(besides)))
    }

    /// Removes the groups of owners that no longer run; gives their paths, and those that would not go. What
    /// still runs in one is ended where we had started it to measure; a program of the user's goes on, and
    /// its group stays.
    #[must_use]
    pub fn remove_stale(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let mut stale = Vec::new();
        collect_stale(&self.root, DEPTH_MAX, &mut stale);
        stale.into_iter().partition(|path| {
            let is_users = path.file_name().is_some_and(|name| is_of_program(&name.to_string_lossy()));
            let patience = if is_users {
                Patience::WithDying
            } else {
                kill_members(path);
                Patience::WithAll
            };
            remove_with_children(path, patience).is_ok()
        })
    }
}

fn collect_stale(folder: &Path, depth: usize, stale: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let (name, path) = (path.file_name(), path.path());
        match owner_of(&name.to_string_lossy()) {
            Some(owner) if !owner.is_alive() && !Held::is_held(&path) => stale.push(path),
            Some(_) => {}
            None if depth > 1 => collect_stale(&path, depth - 1, stale),
            None => {}
        }
    }
}

/// The owner in a group's name, when the group is one of ours.
fn owner_of(name: &str) -> Option<Owner> {
    if let Some(rest) = name.strip_prefix(FLEET_PREFIX) {
        let word = rest.rsplitn(3, '-').nth(2)?;
        return Owner::in_name(name, &format!("{FLEET_PREFIX}{word}-"));
    }
    Owner::in_name(name, if is_of_program(name) { PROGRAM_PREFIX } else { PREFIX })
}

/// Whether a group is one of ours.
fn is_ours(path: &Path) -> bool {
    path.file_name().is_some_and(|name| owner_of(&name.to_string_lossy()).is_some())
}

fn is_of_program(name: &str) -> bool {
    name.starts_with(PROGRAM_PREFIX)
}

/// Ends every process in a group and its children: their owner is gone, nobody else will.
fn kill_members(path: &Path) {
    each_child(path, &mut |child| kill_members(child));
    for pid in members(path).into_iter().filter_map(rustix::process::Pid::from_raw) {
        // One that has ended meanwhile is no error.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn members(path: &Path) -> Vec<i32> {
    let members = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    members.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// The processes in the group at a path, then those of the groups inside it.
#[must_use]
pub fn processes_in(path: &Path) -> Vec<u32> {
    let mut found: Vec<u32> = members(path).into_iter().map(i32::unsigned_abs).collect();
    each_child(path, &mut |child| found.extend(processes_in(child)));
    found
}

/// Whether a process in a group, or in one inside it, goes on.
fn has_living(path: &Path) -> bool {
    processes_in(path).into_iter().any(Owner::goes_on)
}

fn each_child(path: &Path, each: &mut dyn FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(path) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        each(&entry.path());
    }
}

fn remove_with_children(path: &Path, patience: Patience) -> io::Result<()> {
    if patience == Patience::WithDying && has_living(path) {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    let mut outcome = Ok(());
    each_child(path, &mut |child| {
        let removed = remove_with_children(child, patience);
        if outcome.is_ok() {
            outcome = removed;
        }
    });
    outcome.and_then(|()| remove(path, patience))
}

fn hands_down_memory(group: &Path) -> bool {
    fs::read_to_string(group.join("cgroup.subtree_control"))
        .is_ok_and(|text| text.split_ascii_whitespace().any(|controller| controller == "memory"))
}

/// The lowest limit on the memory of this process among the groups that it is in, in bytes, and the file that
/// has it; none where nothing limits it.
#[must_use]
pub fn limit_here() -> Option<(PathBuf, u64)> {
    let (mountinfo, own) = own_texts().ok()?;
    let (version, root, own) = own_group(&mountinfo, &own).ok()?;
    lowest(limit_file(version), &own, &root)
}

/// The lowest number that a file of this name has in a group or one above it.
fn lowest(name: &str, group: &Path, root: &Path) -> Option<(PathBuf, u64)> {
    let above = group.ancestors().take_while(|group| group.starts_with(root));
    let limits = above.filter_map(|group| {
        let file = group.join(name);
        let limit: u64 = fs::read_to_string(&file).ok()?.trim().parse().ok()?;
        Some((file, limit))
    });
    limits.min_by_key(|&(_, limit)| limit)
}

/// The file that limits memory.
fn limit_file(version: Version) -> &'static str {
    match version {
        Version::V1 => "memory.limit_in_bytes",
        Version::V2 => "memory.max",
    }
}

/// The file that limits swap and what to write for so much: version 1 counts memory in it too.
fn swap_limit_of(version: Version, memory_bytes: u64, swap_bytes: u64) -> (&'static str, u64) {
    let whole_pages = |bytes: u64| bytes / 4096 * 4096;
    match version {
        Version::V1 => ("memory.memsw.limit_in_bytes", whole_pages(memory_bytes.saturating_add(swap_bytes))),
        Version::V2 => ("memory.swap.max", whole_pages(swap_bytes)),
    }
}

/// A group of ours; removed when dropped.
#[derive(Debug)]
pub struct MemoryGroup {
    version: Version,
    path: PathBuf,
    removed: bool,
    /// By this others see that its owner lives; a group inside another one has none of its own.
    _held: Option<Held>,
}

impl MemoryGroup {
    /// Makes a group that holds at most `limit_bytes` of memory, and reads the limit back.
    ///
    /// # Errors
    /// When it cannot be made or the kernel keeps another limit; nothing is left behind then.
    pub fn create(place: &Place, limit_bytes: u64) -> Result<Self, GroupError> {
        Self::create_named(PREFIX, place, limit_bytes)
    }

    /// The same for a program of the user's: a later run never ends what goes on in it.
    ///
    /// # Errors
    /// As [`MemoryGroup::create`].
    pub fn create_for_program(place: &Place, limit_bytes: u64) -> Result<Self, GroupError> {
        Self::create_named(PROGRAM_PREFIX, place, limit_bytes)
    }

    fn create_named(prefix: &str, place: &Place, limit_bytes: u64) -> Result<Self, GroupError> {
        let owner = Owner::this_process()
            .map_err(|error| GroupError::Io { path: "/proc/self/stat".into(), error })?;
        let path = place.parent.join(format!("{prefix}{owner}"));
        fs::create_dir(&path).map_err(|error| GroupError::Io { path: path.clone(), error })?;
        let _held = Held::take(&path);
        let group = Self { version: place.version, path, removed: false, _held };
        group.ask_for_swap()?;
        group.limit(limit_bytes)?;
        Ok(group)
    }

    /// Makes a group whose members are groups of their own ([`MemoryGroup::child`]) and share `limit_bytes`.
    /// `word` tells the fleets of one process apart.
    ///
    /// # Errors
    /// When it cannot be made, takes no children or keeps another limit; nothing is left behind then.
    pub fn create_fleet(place: &Place, word: &str, limit_bytes: Option<u64>) -> Result<Self, GroupError> {
        let owner = Owner::this_process()
            .map_err(|error| GroupError::Io { path: "/proc/self/stat".into(), error })?;
        let path = place.parent.join(format!("{FLEET_PREFIX}{word}-{owner}"));
        fs::create_dir(&path).map_err(|error| GroupError::Io { path: path.clone(), error })?;
        let _held = Held::take(&path);
        let group = Self { version: place.version, path, removed: false, _held };
        group.ask_for_swap()?;
        group.prepare_for_children()?;
        if let Some(bytes) = limit_bytes {
            group.limit(bytes)?;
        }
        Ok(group)
    }

    /// A group of version 1 begins with the swappiness of the one above, and with 0 the kernel kills at the
    /// limit before it swaps. Version 2 knows the machine's alone ([`Place::check_swap`]).
    fn ask_for_swap(&self) -> Result<(), GroupError> {
        const USUAL: &str = "60";
        let found = fs::read_to_string(self.path.join("memory.swappiness")).unwrap_or_default();
        let is_off = self.version == Version::V1 && found.trim() == "0";
        if is_off { self.write_kept("memory.swappiness", USUAL) } else { Ok(()) }
    }

    /// Version 2 hands the controller down on request; version 1 once had to be told that children count.
    fn prepare_for_children(&self) -> Result<(), GroupError> {
        match self.version {
            Version::V1 => {
                // Always on since Linux 5.11, and then it may not be written.
                let _ = fs::write(self.path.join("memory.use_hierarchy"), "1");
                Ok(())
            }
            Version::V2 => {
                let path = self.path.join("cgroup.subtree_control");
                fs::write(&path, "+memory").map_err(|error| GroupError::Io { path, error })
            }
        }
    }

    /// Makes a group inside this one, without a limit of its own, for processes.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn child(&self, name: &str) -> Result<Self, GroupError> {
        let path = self.path.join(name);
        fs::create_dir(&path).map_err(|error| GroupError::Io { path: path.clone(), error })?;
        Ok(Self { version: self.version, path, removed: false, _held: None })
    }

    /// Makes a group inside this one that has children itself.
    ///
    /// # Errors
    /// When it cannot be made or takes no children.
    pub fn child_fleet(&self, name: &str) -> Result<Self, GroupError> {
        let group = self.child(name)?;
        group.prepare_for_children()?;
        Ok(group)
    }

    /// Sets the limit and reads it back. Lowering it below what is in use pages that out first.
    ///
    /// # Errors
    /// When the kernel cannot get so much out, or keeps another limit.
    pub fn limit(&self, bytes: u64) -> Result<(), GroupError> {
        let file = limit_file(self.version);
        // The kernel keeps whole pages, rounded down. It gives up on reclaiming after a few rounds (EBUSY on
        // version 1), though the next ones would get further.
        let value = (bytes / 4096 * 4096).to_string();
        self.page_out_to(bytes, &value);
        let mut tries = 0;
        loop {
            tries += 1;
            match self.write_kept(file, &value) {
                Err(GroupError::Io { error, .. })
                    if tries < 50 && error.kind() == io::ErrorKind::ResourceBusy =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                other => {
                    if self.version == Version::V2 {
                        let _ = fs::write(self.path.join("memory.high"), "max");
                    }
                    return other;
                }
            }
        }
    }

    /// Gets what is above a coming limit out in rounds. Version 2 kills when a lower limit cannot be kept
    /// after a few, which a slow drive is enough for; `memory.high` only asks.
    fn page_out_to(&self, bytes: u64, value: &str) {
        let is_above = || self.counters().usage_bytes.is_some_and(|used| used > bytes);
        let start = Instant::now();
        while self.version == Version::V2 && is_above() && start.elapsed() < PAGE_OUT_MAX {
            if fs::write(self.path.join("memory.high"), value).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Limits what of a group with a limit of `memory_bytes` may lie in swap, where the kernel counts that.
    /// Areas belong to no group: without it, one that grows would fill those of others, and they be killed.
    ///
    /// # Errors
    /// When the kernel keeps no such limit.
    pub fn limit_swap(&self, memory_bytes: u64, swap_bytes: u64) -> Result<(), GroupError> {
        let (file, bytes) = swap_limit_of(self.version, memory_bytes, swap_bytes);
        let is_counted = self.path.join(file).exists();
        if is_counted { self.write_kept(file, &bytes.to_string()) } else { Ok(()) }
    }

    /// Keeps the group's memory out of swap. Call it before there are children: version 1 hands it down as
    /// they are made.
    ///
    /// # Errors
    /// When the kernel keeps no such setting.
    pub fn forbid_swap(&self) -> Result<(), GroupError> {
        match self.version {
            Version::V1 => self.write_kept("memory.swappiness", "0"),
            Version::V2 if self.path.join("memory.swap.max").exists() => {
                self.write_kept("memory.swap.max", "0")
            }
            // The kernel counts no swap for groups: then nothing of theirs is kept out of it.
            Version::V2 => Err(GroupError::Unavailable("this kernel limits no swap by group".to_owned())),
        }
    }

    /// What the kernel counts for this group and its children; what it does not tell is none.
    #[must_use]
    pub fn counters(&self) -> GroupCounters {
        counters_of(&self.path, self.version)
    }

    /// The file through which a process enters, opened.
    pub(crate) fn door(&self) -> Result<fs::File, GroupError> {
        let path = self.path.join("cgroup.procs");
        fs::OpenOptions::new().write(true).open(&path).map_err(|error| GroupError::Io { path, error })
    }

    /// Puts a process into the group and checks that it is there. What it used before is charged elsewhere.
    ///
    /// # Errors
    /// When the kernel refuses or the process is not in the group afterwards.
    pub fn admit(&self, pid: u32) -> Result<(), GroupError> {
        let path = self.path.join("cgroup.procs");
        let fail = |error| GroupError::Io { path: path.clone(), error };
        fs::write(&path, pid.to_string()).map_err(fail)?;
        let members = fs::read_to_string(&path).map_err(fail)?;
        if members.lines().any(|line| line.trim() == pid.to_string()) {
            return Ok(());
        }
        Err(GroupError::NotKept { path, written: pid.to_string(), found: members.replace('\n', " ") })
    }

    /// Bytes charged to the group now.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn usage_bytes(&self) -> Result<u64, GroupError> {
        let file = match self.version {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        };
        let path = self.path.join(file);
        let text = fs::read_to_string(&path).map_err(|error| GroupError::Io { path: path.clone(), error })?;
        text.trim().parse().map_err(|_| GroupError::Io { path, error: io::Error::other("not a number") })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the group; its last process must have ended.
    ///
    /// # Errors
    /// When a process in it goes on, or it is still in use after half a minute.
    pub fn remove(mut self) -> Result<(), GroupError> {
        self.removed = true;
        remove(&self.path, Patience::WithDying)
            .map_err(|error| GroupError::Io { path: self.path.clone(), error })
    }

    fn write_kept(&self, file: &str, value: &str) -> Result<(), GroupError> {
        let path = self.path.join(file);
        let fail = |error| GroupError::Io { path: path.clone(), error };
        fs::write(&path, value).map_err(fail)?;
        let found = fs::read_to_string(&path).map_err(fail)?.trim().to_owned();
        if found == value {
            return Ok(());
        }
        Err(GroupError::NotKept { path, written: value.to_owned(), found })
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        if !self.removed {
            let _ = remove(&self.path, Patience::WithDying);
        }
    }
}

/// How long a group may stay busy: a killed process gives its memory back first, much of it from swap.
const BUSY_MAX: Duration = Duration::from_secs(30);

/// How long a process that has not begun to end is waited for.
const LIVING_MAX: Duration = Duration::from_secs(1);

/// With whom is waited while a group is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// All of them were killed.
    WithAll,
    /// Nobody was: who goes on may do so for ever.
    WithDying,
}

/// How long to wait for the kernel to get out what is above a coming limit.
const PAGE_OUT_MAX: Duration = Duration::from_secs(30);

/// A group is busy for a moment after its last process has gone.
fn remove(path: &Path, patience: Patience) -> io::Result<()> {
    let start = Instant::now();
    let is_in_vain = || {
        let time = start.elapsed();
        time > BUSY_MAX || (patience == Patience::WithDying && time > LIVING_MAX && has_living(path))
    };
    loop {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::ResourceBusy || is_in_vain() => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
            Ok(()) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_skip::skip;

    #[test]
    fn the_hierarchy_with_the_memory_controller_is_found() {
        let mounts = "31 23 0:28 / /nowhere/a rw - tmpfs tmpfs rw\n\
                      32 31 0:29 / /nowhere/cpu rw - cgroup cgroup rw,cpu\n\
                      35 31 0:32 / /nowhere/memory rw,relatime - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /nowhere/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let place = Place::among(mounts, "4:memory:/a/b\n0::/\n").unwrap();
        assert_eq!(place.version, Version::V1);
        assert_eq!(
            place.parent,
            Path::new("/nowhere/memory"),
            "a group outside the mount counts as its root"
        );
        assert!(Place::among("", "").unwrap_err().to_string().contains("no control-group hierarchy"));
    }

    #[test]
    fn version_2_wants_the_controller_handed_down() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("slice/own");
        fs::create_dir_all(&inner).unwrap();
        let mounts = format!("41 31 0:38 / {} rw,relatime - cgroup2 cgroup2 rw\n", folder.path().display());
        let refused = Place::among(&mounts, "0::/slice/own\n").unwrap_err().to_string();
        assert!(refused.contains("cgroup.subtree_control"), "{refused}");
        fs::write(folder.path().join("slice/cgroup.subtree_control"), "cpu memory\n").unwrap();
        let place = Place::among(&mounts, "0::/slice/own\n").unwrap();
        assert_eq!((place.version, place.parent), (Version::V2, folder.path().join("slice")));
    }

    #[test]
    fn a_limit_on_swap_above_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let parent = folder.path().join("slice/own");
        fs::create_dir_all(&parent).unwrap();
        let mut place = Place { version: Version::V2, root: folder.path().to_owned(), parent };
        assert_eq!(place.swap_limit(1 << 30), None);
        let file = folder.path().join("slice/memory.swap.max");
        fs::write(folder.path().join("slice/own/memory.swap.max"), "max\n").unwrap();
        fs::write(&file, "4194304\n").unwrap();
        assert_eq!(place.swap_limit(1 << 30), Some((file.clone(), 4 << 20)));
        let refused = place.check_swap(1 << 30, 5 << 20).unwrap_err();
        assert!(refused.contains("swap.max leaves 4 MiB") || refused.contains("swappiness"), "{refused}");
        place.version = Version::V1;
        assert!(place.check_swap(1 << 30, 5 << 20).is_ok(), "version 1 counts both together");
        fs::write(folder.path().join("memory.memsw.limit_in_bytes"), "9223372036854771712\n").unwrap();
        assert!(place.check_swap(1 << 30, 1 << 40).is_ok());
        fs::write(folder.path().join("slice/memory.memsw.limit_in_bytes"), "1074790400\n").unwrap();
        assert!(place.check_swap(1 << 30, 2 << 20).unwrap_err().contains("leaves 1 MiB"));
    }

    #[test]
    fn a_group_swaps_where_the_one_above_does_not() {
        const NAME: &str = "memory_group::tests::a_group_swaps_where_the_one_above_does_not";
        let place = match Place::find() {
            Ok(place) if place.version == Version::V1 => place,
            Ok(_) => return skip(NAME, "version 2 has no swappiness for groups"),
            Err(error) => return skip(NAME, &error.to_string()),
        };
        let above = MemoryGroup::create_fleet(&place, "above", None).unwrap();
        above.forbid_swap().unwrap();
        let inside = Place { parent: above.path.clone(), ..place };
        let group = MemoryGroup::create(&inside, 8 << 20).unwrap();
        assert_ne!(fs::read_to_string(group.path.join("memory.swappiness")).unwrap().trim(), "0");
    }

    #[test]
    fn a_group_holds_its_limit_and_leaves_nothing() {
        let place = match Place::find() {
            Ok(place) => place,
            Err(error) => {
                skip("memory_group::tests::a_group_holds_its_limit_and_leaves_nothing", &error.to_string());
                return;
            }
        };
        let group = MemoryGroup::create(&place, (8 << 20) + 5).unwrap();
        assert!(group.usage_bytes().unwrap() <= 8 << 20);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        group.admit(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(group.admit(u32::MAX >> 2).is_err(), "a process that is not there is refused");
        let path = group.path().to_path_buf();
        group.remove().unwrap();
        assert!(!path.exists());
        // A leftover of a process that cannot be running is found and removed; one of ours in use is not.
        let stale = place.parent.join(format!("{PREFIX}{}-1", u32::MAX >> 1));
        fs::create_dir(&stale).unwrap();
        let own = MemoryGroup::create(&place, 8 << 20).unwrap();
        // As one that another PID namespace's run has made: its name says nothing here.
        let held = Held::take(&stale).unwrap();
        assert!(!place.remove_stale().0.contains(&stale) && stale.exists());
        drop(held);
        let (removed, stuck) = place.remove_stale();
        // Another test's sweep may have been first.
        assert!(removed.contains(&stale) || !stale.exists(), "{removed:?} {stuck:?}");
        assert!(!stuck.contains(&stale) && own.path().exists());
    }

    #[test]
    fn a_fleet_limits_its_members_together_and_a_stale_one_is_ended() {
        const NAME: &str =
            "memory_group::tests::a_fleet_limits_its_members_together_and_a_stale_one_is_ended";
        let place = match Place::find() {
            Ok(place) => place,
            Err(error) => return skip(NAME, &error.to_string()),
        };
        let fleet = MemoryGroup::create_fleet(&place, "test", Some(16 << 20)).unwrap();
        fleet.forbid_swap().unwrap();
        let class = fleet.child_fleet("gold").unwrap();
        let member = class.child("0").unwrap();
        member.limit(8 << 20).unwrap();
        assert_eq!(fleet.counters().limit_bytes, Some(16 << 20));
        assert_eq!(member.counters().limit_bytes, Some(8 << 20));
        assert_eq!(member.counters().oom_kills, Some(0));
        drop((member, class));
        fleet.remove().unwrap();
        // What a killed run leaves: a group with a child in which a process still runs.
        let stale = place.parent.join(format!("{FLEET_PREFIX}swap-{}-1", u32::MAX >> 1));
        fs::create_dir_all(stale.join("0")).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        fs::write(stale.join("0/cgroup.procs"), child.id().to_string()).unwrap();
        let (removed, stuck) = place.remove_stale();
        let status = child.wait().unwrap();
        assert!(!status.success() && (removed.contains(&stale) || stuck.contains(&stale)), "{status}");
        // Until it is waited for, its end is not complete; then the group goes.
        let _ = place.remove_stale();
        assert!(!stale.exists());
    }

    #[test]
    fn a_program_of_the_users_goes_on_in_its_group_when_its_owner_is_gone() {
        const NAME: &str =
            "memory_group::tests::a_program_of_the_users_goes_on_in_its_group_when_its_owner_is_gone";
        let place = match Place::find() {
            Ok(place) => place,
            Err(error) => return skip(NAME, &error.to_string()),
        };
        let left = place.parent.join(format!("{PROGRAM_PREFIX}{}-1", u32::MAX >> 1));
        fs::create_dir(&left).unwrap();
        let mut program = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        fs::write(left.join("cgroup.procs"), program.id().to_string()).unwrap();
        let start = Instant::now();
        let (removed, stuck) = place.remove_stale();
        assert!(stuck.contains(&left) && !removed.contains(&left), "{removed:?} {stuck:?}");
        assert!(start.elapsed() < BUSY_MAX / 2 && program.try_wait().unwrap().is_none(), "it was ended");
        program.kill().unwrap();
        program.wait().unwrap();
        let _ = place.remove_stale();
        assert!(!left.exists());
    }

    #[test]
    fn names_tell_their_owner() {
        assert!(owner_of("overdrive-density-swap-12-34").is_some());
        assert_eq!(owner_of("overdrive-density-swap-12-34"), owner_of("overdrive-page-12-34"));
        assert_eq!(owner_of("overdrive-extend-12-34"), owner_of("overdrive-page-12-34"));
        assert_eq!(owner_of("overdrive-density-12-34"), None);
        assert_eq!(owner_of("something-12-34"), None);
    }
}
