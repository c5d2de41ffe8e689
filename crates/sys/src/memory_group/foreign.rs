//! A control group of somebody else's (a container's, a service's), held to less memory for a while.
//!
//! What is changed is noted before, with what was there. So a run that was killed can be undone by a later
//! one, and what somebody changed meanwhile stays as it is now.

use super::displaced::check_areas_can_go;
use super::hierarchy::{group_in, hierarchy};
use super::{
    GroupError, MemoryGroup, Version, counters_at, has_living, is_ours, limit_file, processes_in,
    swap_limit_of,
};
use crate::owner::{Held, Owner};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Here stands a note for each group that is held.
const NOTES: &str = "/var/lib/overdrive/held-groups";
const NOTE_PREFIX: &str = "overdrive-hold-";

/// A limit is lowered by so much at a time: each is kept soon, and in between it can be broken off.
const STEP_BYTES: u64 = 64 << 20;
/// How often in a row the kernel may say that it cannot get a step out, and how long apart.
const TRIES: u32 = 250;
const PAUSE: Duration = Duration::from_millis(20);

/// One file of the group: what was in it, and what is now.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    file: String,
    before: String,
    after: String,
}

impl Change {
    /// Whether it is that of the limit, which is made in steps.
    fn is_limit(&self) -> bool {
        [Version::V1, Version::V2].map(limit_file).contains(&self.file.as_str())
    }
}

/// A group with processes in it, none of them this one.
#[derive(Debug)]
pub struct ForeignGroup {
    group: MemoryGroup,
    /// The hierarchy's mount point.
    root: PathBuf,
}

impl ForeignGroup {
    /// The group that `wish` names: a directory of the memory hierarchy, or the number of a process in it.
    ///
    /// # Errors
    /// When there is no such group, it is the hierarchy's root, has no memory controller or no process, has
    /// this process in it, or is held already.
    pub fn find(wish: &Path) -> Result<Self, GroupError> {
        let mounts = read("/proc/self/mountinfo".as_ref())?;
        let (version, root) = hierarchy(&mounts)?;
        let path = match wish.to_str().and_then(|text| text.parse::<u32>().ok()) {
            Some(pid) => group_of(pid, version, &root)?,
            None => fs::canonicalize(wish).map_err(|error| GroupError::Io { path: wish.into(), error })?,
        };
        Self::at(path, version, root)
    }

    fn at(path: PathBuf, version: Version, root: PathBuf) -> Result<Self, GroupError> {
        let refuse = |why: &str| Err(unfit(&format!("{}: {why}", path.display())));
        if !path.starts_with(&root) || path == root {
            return refuse(&format!("not a group below {}", root.display()));
        }
        if !path.join(limit_file(version)).exists() {
            return refuse("it has no memory controller; wanted +memory in cgroup.subtree_control above it");
        }
        if path.ancestors().any(is_ours) {
            return refuse("a run of Overdrive's own has it");
        }
        if !has_living(&path) {
            return refuse("no process is in it");
        }
        if processes_in(&path).contains(&std::process::id()) {
            return refuse("this process is in it too; wanted a run from outside");
        }
        if notes().any(|(_, group, _)| path.starts_with(&group) || group.starts_with(&path)) {
            return refuse(
                "it, or a group above or inside it, is held already (overdrive swap off --stale gives back \
                 what killed runs held)",
            );
        }
        let group = MemoryGroup { version, path, removed: true, _held: None };
        Ok(Self { group, root })
    }

    /// Which interface it speaks.
    #[must_use]
    pub fn version(&self) -> Version {
        self.group.version
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.group.path()
    }

    /// Whether the groups above leave it so much swap.
    ///
    /// # Errors
    /// What stands in the way.
    pub fn check_swap(&self, memory_bytes: u64, swap_bytes: u64) -> Result<(), String> {
        let parent = self.path().parent().unwrap_or(&self.root).to_owned();
        let place = super::Place { version: self.group.version, parent, root: self.root.clone() };
        place.check_swap(memory_bytes, swap_bytes)
    }

    /// Lowers its limit to `bytes`, a step at a time, and lets it have so much in swap. None when `stop` says
    /// so before that is done; then all is as it was.
    ///
    /// # Errors
    /// When its limit is lower already, or so much has no place in swap or does not leave DRAM; then all is
    /// as it was.
    pub fn hold(
        self,
        bytes: u64,
        swap_bytes: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<HeldGroup>, GroupError> {
        let bytes = bytes / 4096 * 4096;
        let above = self.group.usage_bytes()?.saturating_sub(bytes);
        if above > swap_bytes {
            let (path, mib, has) = (self.path().display(), above.div_ceil(1 << 20), swap_bytes >> 20);
            let why = format!(
                "{path}: {mib} MiB have to leave DRAM, and the store takes {has}; wanted a larger one"
            );
            return Err(unfit(&why));
        }
        let changes = self.changes(bytes, swap_bytes)?;
        let note = Note::write(self.path(), &changes)?;
        let held = HeldGroup { group: self.group, changes, note: Some(note) };
        let is_held = held.apply(bytes, stop);
        match is_held {
            Ok(true) => Ok(Some(held)),
            Ok(false) => held.give_back().map(|()| None),
            Err(error) => held.give_back().and(Err(error)),
        }
    }

    /// In the order in which they have to be made.
    fn changes(&self, bytes: u64, swap_bytes: u64) -> Result<Vec<Change>, GroupError> {
        let found = |file: &str| Ok(read(&self.path().join(file))?.trim().to_owned());
        let change = |file: &str, before: String, after: &str| Change {
            file: file.to_owned(),
            before,
            after: after.to_owned(),
        };
        let limit = limit_file(self.group.version);
        let before = found(limit)?;
        if before.parse().is_ok_and(|limit: u64| limit <= bytes) {
            let why = format!("{}: its limit is {before} bytes already", self.path().display());
            return Err(unfit(&why));
        }
        let limits = change(limit, before, &bytes.to_string());
        let swapped = self.group.counters().swap_bytes.unwrap_or(0);
        let (swap, most) = swap_limit_of(self.group.version, bytes, swap_bytes.saturating_add(swapped));
        // Where the kernel does not count swap there is none.
        let swaps = found(swap).ok().map(|before| change(swap, before, &most.to_string()));
        let mut changes = Vec::new();
        match self.group.version {
            Version::V1 => {
                if let Ok(off) = found("memory.swappiness")
                    && off == "0"
                {
                    changes.push(change("memory.swappiness", off, "60"));
                }
                changes.push(limits);
                // What its own leaves it is for both together, and stays. It is never below the other one.
                changes
                    .extend(swaps.filter(|swaps| swaps.before.parse().map_or(true, |own: u64| own > most)));
            }
            Version::V2 => {
                changes.extend(swaps);
                // It asks where `memory.max` kills.
                let high = found("memory.high")?;
                if !high.parse().is_ok_and(|high: u64| high <= bytes) {
                    changes.push(change("memory.high", high, &bytes.to_string()));
                }
                changes.push(limits);
            }
        }
        Ok(changes)
    }
}

/// A group that is held; as it was before when dropped.
#[derive(Debug)]
pub struct HeldGroup {
    group: MemoryGroup,
    changes: Vec<Change>,
    note: Option<Note>,
}

impl HeldGroup {
    /// The group, for who makes room in it.
    #[must_use]
    pub fn group(&self) -> &MemoryGroup {
        &self.group
    }

    /// Whether a process is in it, or in a group inside it.
    #[must_use]
    pub fn has_living(&self) -> bool {
        has_living(&self.group.path)
    }

    /// Whether what it has in swap fits DRAM, under its own limit and those above it, and what others have in
    /// `area` finds room elsewhere. If not, to turn the area off would have processes killed.
    ///
    /// # Errors
    /// What is too small.
    pub fn check_room(&self, area: &Path) -> Result<(), String> {
        check_room(&self.group.path, &self.changes, &[area.to_owned()])
    }

    /// Sets the limits that were there before, but for those that somebody changed meanwhile.
    ///
    /// # Errors
    /// When one cannot be written; the note stays then, for a later run.
    pub fn give_back(mut self) -> Result<(), GroupError> {
        self.undo()
    }

    /// Leaves the limits as they are, for a later run to undo.
    pub fn leave(mut self) {
        self.note = None;
    }

    fn undo(&mut self) -> Result<(), GroupError> {
        if self.note.is_some() {
            undo(&self.group.path, &self.changes)?;
        }
        self.note.take().map_or(Ok(()), Note::remove)
    }

    /// In their order. False when it was broken off.
    fn apply(&self, bytes: u64, stop: &dyn Fn() -> bool) -> Result<bool, GroupError> {
        for change in &self.changes {
            if !change.is_limit() {
                self.group.write_kept(&change.file, &change.after)?;
            } else if !self.lower(change, bytes, stop)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lowers the limit a step at a time. False when it was broken off.
    fn lower(&self, limit: &Change, bytes: u64, stop: &dyn Fn() -> bool) -> Result<bool, GroupError> {
        let high = self.changes.iter().find(|change| change.file == "memory.high");
        let (mut tries, mut least) = (0, u64::MAX);
        while tries < TRIES {
            if stop() {
                return Ok(false);
            }
            // Counters that are out of date have its processes killed (see `Reclaimer::refresh`).
            let _ = self.group.counters();
            let used = self.group.usage_bytes()?;
            tries = if used < least { 0 } else { tries + 1 };
            least = least.min(used);
            // Version 2 kills where a limit cannot be kept at once. So it is asked first.
            if self.group.version == Version::V2 && used > bytes {
                high.map_or(Ok(()), |high| self.group.write_kept(&high.file, &high.after))?;
                std::thread::sleep(PAUSE);
                continue;
            }
            let next = bytes.max(used.saturating_sub(STEP_BYTES) / 4096 * 4096);
            match self.group.write_kept(&limit.file, &next.to_string()) {
                Ok(()) if next == bytes => {
                    high.map_or(Ok(()), |high| self.group.write_kept(&high.file, &high.before))?;
                    return Ok(true);
                }
                Err(GroupError::Io { error, .. }) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(PAUSE);
                }
                other => other?,
            }
        }
        let (path, mib) = (self.group.path.display(), least >> 20);
        Err(unfit(&format!("{path}: {mib} MiB of it do not leave DRAM: they are locked, or swap is full")))
    }
}

impl Drop for HeldGroup {
    fn drop(&mut self) {
        let _ = self.undo();
    }
}

/// Gives the groups back that killed runs held; gives their paths, and those that stay held, with the reason:
/// most often that what they have in swap does not fit their own limits.
#[must_use]
pub fn give_back_stale() -> (Vec<PathBuf>, Vec<(PathBuf, String)>) {
    let is_stale = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Owner::in_name(&name, NOTE_PREFIX).is_some_and(|owner| !owner.is_alive()) && !Held::is_held(path)
    };
    let (mut done, mut kept) = (Vec::new(), Vec::new());
    for (note, group, changes) in notes().filter(|(note, ..)| is_stale(note)) {
        if !group.exists() {
            let _ = fs::remove_file(note);
            continue;
        }
        let areas = crate::swap::stale_areas().unwrap_or_default();
        let outcome = check_room(&group, &changes, &areas).and_then(|()| {
            let undone = undo(&group, &changes).and_then(|()| Note { place: note, _held: None }.remove());
            undone.map_err(|error| error.to_string())
        });
        match outcome {
            Ok(()) => done.push(group),
            Err(why) => kept.push((group, why)),
        }
    }
    (done, kept)
}

/// As [`HeldGroup::check_room`].
fn check_room(group: &Path, changes: &[Change], areas: &[PathBuf]) -> Result<(), String> {
    check_areas_can_go(areas, group)?;
    let swapped = counters_at(group).swap_bytes.unwrap_or(0);
    let Some(limit) = changes.iter().find(|change| change.is_limit()).filter(|_| swapped > 0) else {
        return Ok(());
    };
    for above in group.ancestors() {
        let counters = counters_at(above);
        let most: Option<u64> = if above == group { limit.before.parse().ok() } else { counters.limit_bytes };
        if let Some((most, used)) = most.zip(counters.usage_bytes)
            && used.saturating_add(swapped) > most
        {
            let (most, used) = (most >> 20, used >> 20);
            return Err(format!("{} may take {most} MiB, of which {used} are in use", above.display()));
        }
    }
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = text.lines().find_map(|line| {
        line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    match free.map(|kib| kib * 1024).filter(|&free| free < swapped) {
        Some(free) => Err(format!("{} MiB of DRAM are free", free >> 20)),
        None => Ok(()),
    }
}

/// The last change first: the limit for memory and swap together is raised before that for memory.
fn undo(group: &Path, changes: &[Change]) -> Result<(), GroupError> {
    let mut outcome = Ok(());
    for change in changes.iter().rev() {
        let path = group.join(&change.file);
        let Ok(found) = fs::read_to_string(&path) else { continue };
        // On the way to it a limit is higher.
        let is_our_step = change.is_limit()
            && found.trim().parse::<u64>().is_ok_and(|found| {
                let above = change.after.parse().is_ok_and(|after: u64| found >= after);
                above && change.before.parse().map_or(true, |before: u64| found < before)
            });
        if found.trim() == change.after || is_our_step {
            let written = fs::write(&path, &change.before);
            outcome = outcome.and(written.map_err(|error| GroupError::Io { path, error }));
        }
    }
    outcome
}

/// On the disk before anything is changed.
#[derive(Debug)]
struct Note {
    place: PathBuf,
    _held: Option<Held>,
}

impl Note {
    fn write(group: &Path, changes: &[Change]) -> Result<Self, GroupError> {
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |error| GroupError::Io { path, error }
        };
        let owner = Owner::this_process().map_err(fail("/proc/self/stat".as_ref()))?;
        let place = Path::new(NOTES).join(format!("{NOTE_PREFIX}{owner}"));
        let mut text = group.as_os_str().as_bytes().to_vec();
        text.push(0);
        for Change { file, before, after } in changes {
            text.extend(format!("{file} {before} {after}\n").bytes());
        }
        fs::create_dir_all(NOTES)
            .and_then(|()| File::create(&place))
            .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
            .and_then(|()| File::open(NOTES)?.sync_all())
            .map_err(fail(&place))?;
        Ok(Self { _held: Held::take(&place), place })
    }

    fn remove(self) -> Result<(), GroupError> {
        match fs::remove_file(&self.place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(GroupError::Io { path: self.place, error })
            }
            _ => Ok(()),
        }
    }
}

/// All that there are: where each is, the group and what was changed.
fn notes() -> impl Iterator<Item = (PathBuf, PathBuf, Vec<Change>)> {
    let paths = fs::read_dir(NOTES).into_iter().flatten().flatten().map(|entry| entry.path());
    paths.filter_map(|path| {
        let (group, changes) = parse(&fs::read(&path).ok()?)?;
        Some((path, group, changes))
    })
}

fn parse(note: &[u8]) -> Option<(PathBuf, Vec<Change>)> {
    let at = note.iter().position(|&byte| byte == 0)?;
    let group = PathBuf::from(std::ffi::OsString::from_vec(note[..at].to_vec()));
    let change = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        let (file, before, after) = (words.next()?, words.next()?, words.next()?);
        // A name and nothing else: what is written goes into the group.
        let is_name = file.starts_with("memory.") && !file.contains('/') && words.next().is_none();
        is_name.then_some(Change { file, before, after })
    };
    let changes = std::str::from_utf8(&note[at + 1..]).ok()?.lines().map(change);
    Some((group, changes.collect::<Option<_>>()?))
}

/// The group of a process.
fn group_of(pid: u32, version: Version, root: &Path) -> Result<PathBuf, GroupError> {
    let path = PathBuf::from(format!("/proc/{pid}/cgroup"));
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(unfit(&format!("no process has the number {pid}")));
        }
        text => text.map_err(|error| GroupError::Io { path, error })?,
    };
    let group = root.join(group_in(&text, version).trim_start_matches('/'));
    let found = fs::canonicalize(&group);
    found.map_err(|_| unfit(&format!("process {pid} is in {}, which is not there", group.display())))
}

fn read(path: &Path) -> Result<String, GroupError> {
    fs::read_to_string(path).map_err(|error| GroupError::Io { path: path.into(), error })
}

fn unfit(why: &str) -> GroupError {
    GroupError::Unfit(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(file: &str, before: &str, after: &str) -> Change {
        Change { file: file.to_owned(), before: before.to_owned(), after: after.to_owned() }
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_names_files_of_the_group_alone() {
        let note = b"/a b\0memory.high max 4096\nmemory.max 8192 4096\n";
        let changes = vec![change("memory.high", "max", "4096"), change("memory.max", "8192", "4096")];
        assert_eq!(parse(note), Some((PathBuf::from("/a b"), changes)));
        for wrong in [
            "/a",
            "/a\0memory.max 1\n",
            "/a\0memory.max 1 2 3\n",
            "/a\0../memory.max 1 2\n",
            "/a\0memory./../../x 1 2\n",
        ] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_somebody_else_changed_meanwhile_stays() {
        let group = tempfile::tempdir().unwrap();
        let at = |file: &str| group.path().join(file);
        let changes = [change("memory.swap.max", "0", "max"), change("memory.max", "max", "4096")];
        for (swap, limit, swap_after, limit_after) in [
            ("max\n", "4096\n", "0", "max"),
            ("max\n", "8192\n", "0", "max"),
            ("7\n", "4096\n", "7\n", "max"),
            ("max\n", "2048\n", "0", "2048\n"),
            ("0\n", "max\n", "0\n", "max\n"),
        ] {
            fs::write(at("memory.swap.max"), swap).unwrap();
            fs::write(at("memory.max"), limit).unwrap();
            undo(group.path(), &changes).unwrap();
            let found =
                [at("memory.swap.max"), at("memory.max")].map(|path| fs::read_to_string(path).unwrap());
            assert_eq!(found, [swap_after, limit_after], "{swap:?} {limit:?}");
        }
        assert!(undo(Path::new("/no/such/group"), &changes).is_ok(), "it is gone, and its limits with it");
    }

    #[test]
    fn what_is_no_group_is_refused() {
        for wrong in ["/no/such/group", "/proc", "4194305"] {
            assert!(ForeignGroup::find(Path::new(wrong)).is_err(), "{wrong}");
        }
    }
}
