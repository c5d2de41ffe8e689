//! Swap areas: what is on, turning areas on and off, and a swap file of our own for the length of a run.
//!
//! The file has no name until it is ready to be used. Its name carries its owner and is noted before it is
//! given, so that what a killed run left is found, whether the area is on or not.

pub mod space;

use crate::owner::{Held, Owner};
use crate::uffd::PAGE;
use space::Space;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Every swap file of ours has this in its name, followed by its owner.
const PREFIX: &str = "overdrive-swap-";

/// Here stands a note for each swap file of a run: its name, and in it the path.
const NOTES: &str = "/var/lib/overdrive/swap-files";

/// How long another process is given to take an area off.
const OTHERS_MAX: Duration = Duration::from_secs(60);

/// From the kernel's `linux/swap.h`.
const SWAP_FLAG_PREFER: libc::c_int = 0x8000;
const SWAP_FLAG_DISCARD: libc::c_int = 0x10000;
const SWAP_FLAG_DISCARD_ONCE: libc::c_int = 0x20000;
const SWAP_FLAG_DISCARD_PAGES: libc::c_int = 0x40000;

/// The highest priority that can be asked for. Areas of one priority are filled in turn.
pub const PRIORITY_MAX: u16 = 0x7fff;

/// How an area is turned on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Manner {
    /// The higher, the sooner it is used; without one the kernel chooses, below zero.
    pub priority: Option<u16>,
    /// What the drive is told of.
    pub discard: Discard,
}

/// What the drive of an area is told of, where it takes that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Discard {
    /// Nothing.
    #[default]
    Never,
    /// Once, that the whole area is free.
    Once,
    /// Each stretch (512 pages) that becomes free. Since Linux 6.18 the kernel fills wholly free stretches
    /// before gaps only in such areas, and there pages that leave together are written in one go; before, in
    /// all.
    Freed,
}

impl Manner {
    fn flags(self) -> libc::c_int {
        let priority =
            |priority: u16| SWAP_FLAG_PREFER | libc::c_int::from(priority.min(PRIORITY_MAX) as i16);
        let discard = match self.discard {
            Discard::Never => 0,
            Discard::Once => SWAP_FLAG_DISCARD | SWAP_FLAG_DISCARD_ONCE,
            Discard::Freed => SWAP_FLAG_DISCARD | SWAP_FLAG_DISCARD_PAGES,
        };
        self.priority.map_or(0, priority) | discard
    }
}

/// One line of /proc/swaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Area {
    /// The file or device.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// How much of it holds pages.
    pub used_bytes: u64,
    /// The higher, the sooner it is used.
    pub priority: i32,
}

/// The swap areas that are on.
///
/// # Errors
/// When /proc/swaps cannot be read.
pub fn areas() -> io::Result<Vec<Area>> {
    match std::fs::read_to_string("/proc/swaps") {
        // A kernel that cannot swap.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        text => Ok(parse_areas(&text?)),
    }
}

fn parse_areas(text: &str) -> Vec<Area> {
    let parse_line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let path = unescape(words.next()?).into();
        let mut kib = words.skip(1).map(str::parse::<i64>);
        let (size, used, priority) = (kib.next()?.ok()?, kib.next()?.ok()?, kib.next()?.ok()?);
        let bytes = |kib: i64| u64::try_from(kib).unwrap_or(0) * 1024;
        Some(Area { path, size_bytes: bytes(size), used_bytes: bytes(used), priority: priority as i32 })
    };
    text.lines().filter_map(parse_line).collect()
}

/// Undoes the kernel's octal escapes (`\040` for a blank, `\134` for a backslash) in a path.
fn unescape(word: &str) -> OsString {
    let mut parts = word.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let octal = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(octal.unwrap_or(b'\\'));
        bytes.extend_from_slice(&part.as_bytes()[octal.map_or(0, |_| 3)..]);
    }
    OsString::from_vec(bytes)
}

/// Whether this process may turn areas on.
///
/// # Errors
/// What the kernel refuses it with, and what is wanted. Mostly that is EPERM: it takes `CAP_SYS_ADMIN`
/// outside of user namespaces, which root in a container seldom has.
pub fn check_may_turn_on() -> Result<(), String> {
    // The right is looked at first, and then the path, of which there is none here.
    // SAFETY: the kernel reads the path itself and answers EFAULT where nothing is.
    if unsafe { libc::swapon(std::ptr::null(), 0) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::EFAULT) {
        return Ok(());
    }
    Err(format!("no swap can be turned on ({error}); wanted {}", wanted(&error)))
}

/// What was wanted where a swap file was refused, for a message that names the error as well.
#[must_use]
pub fn wanted(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "root with CAP_SYS_ADMIN outside of containers",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "more room",
        io::ErrorKind::ReadOnlyFilesystem => "a file system that may be written to",
        _ if error.raw_os_error() == Some(libc::ENOSYS) => "a kernel with swap",
        _ => "ext4, xfs or btrfs",
    }
}

/// A swap file of ours that is on; taken off and deleted when dropped.
#[derive(Debug)]
pub struct SwapFile {
    path: PathBuf,
    /// Stays as long as the file does; none when both are gone or given up.
    note: Option<Note>,
    /// By this others see that its owner lives.
    _held: Option<Held>,
}

/// A note of a file that is about to be made: its path and, behind a zero, the file system it is on.
#[derive(Debug)]
struct Note {
    place: PathBuf,
    /// None when it is somebody else's.
    _held: Option<Held>,
}

impl Note {
    /// It is on the disk before the file is: a power cut must not leave a file that nothing tells of.
    fn write(name: &str, path: &Path) -> io::Result<Self> {
        let place = Path::new(NOTES).join(name);
        let fail = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", place.display()));
        let folder = path.parent().unwrap_or(Path::new("/"));
        let mut text = path.as_os_str().as_bytes().to_vec();
        text.push(0);
        text.extend(file_system_of(folder).map_err(fail)?.to_string().bytes());
        let mut note = Self::of(place.clone());
        let written = std::fs::create_dir_all(NOTES)
            .and_then(|()| File::create(&place))
            .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
            .and_then(|()| File::open(NOTES)?.sync_all());
        note._held = Held::take(&place);
        match written {
            Ok(()) => Ok(note),
            Err(error) => {
                note.remove();
                Err(fail(error))
            }
        }
    }

    fn of(place: PathBuf) -> Self {
        Self { place, _held: None }
    }

    /// The file it tells of, and whether the file system that was there then is there now.
    fn read(&self) -> (PathBuf, bool) {
        let text = std::fs::read(&self.place).unwrap_or_default();
        let mut parts = text.splitn(2, |&byte| byte == 0);
        let path = PathBuf::from(OsString::from_vec(parts.next().unwrap_or_default().to_vec()));
        let noted = parts.next().and_then(|number| std::str::from_utf8(number).ok()?.parse::<u64>().ok());
        let found = path.parent().and_then(|folder| file_system_of(folder).ok());
        let is_there = noted.is_none_or(|noted| found == Some(noted));
        (path, is_there)
    }

    fn remove(self) {
        let _ = std::fs::remove_file(&self.place);
    }
}

/// The number by which the kernel tells the file systems apart.
fn file_system_of(folder: &Path) -> io::Result<u64> {
    Ok(rustix::fs::statvfs(folder)?.f_fsid)
}

impl SwapFile {
    /// Makes a swap file of `bytes` in `folder` and turns it on.
    ///
    /// # Errors
    /// What the file system or the kernel refuses; nothing is left behind then.
    pub fn create(folder: &Path, bytes: u64, manner: Manner) -> io::Result<Self> {
        let owner = Owner::this_process()?;
        let name = format!("{PREFIX}{owner}");
        let path = std::fs::canonicalize(folder)?.join(&name);
        let note = Note::write(&name, &path)?;
        let made = Space::new(bytes)
            .and_then(|space| space::create_file(&path, &space))
            .and_then(|()| turn_on(&path, manner).inspect_err(|_| drop(std::fs::remove_file(&path))));
        match made {
            Ok(()) => Ok(Self { _held: Held::take(&path), path, note: Some(note) }),
            Err(error) => {
                note.remove();
                Err(error)
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes it off, which brings back what others have in it, and deletes it.
    ///
    /// # Errors
    /// When what it holds does not fit in memory; it stays on then, and noted for a later sweep.
    pub fn remove(mut self) -> io::Result<()> {
        self.take_down()
    }

    fn take_down(&mut self) -> io::Result<()> {
        let Some(note) = self.note.take() else { return Ok(()) };
        remove(&self.path)?;
        note.remove();
        Ok(())
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        let _ = self.take_down();
    }
}

fn is_stale(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Owner::in_name(&name, PREFIX).is_some_and(|owner| !owner.is_alive()) && !Held::is_held(path)
}

/// The swap files that are on of owners that no longer run.
///
/// # Errors
/// When /proc/swaps cannot be read.
pub fn stale_areas() -> io::Result<Vec<PathBuf>> {
    Ok(areas()?.into_iter().map(|area| area.path).filter(|path| is_stale(path)).collect())
}

/// Takes off and deletes the swap files of owners that no longer run; gives their paths, and those that
/// would not go.
///
/// # Errors
/// When /proc/swaps cannot be read.
pub fn remove_stale() -> io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut removed, mut stuck) = (Vec::new(), Vec::new());
    for path in stale_areas()? {
        if remove(&path).is_ok() { removed.push(path) } else { stuck.push(path) }
    }
    // A run that was killed just before its area was on, or just after it was off.
    let notes = std::fs::read_dir(NOTES).into_iter().flatten().flatten().map(|entry| entry.path());
    for note in notes.filter(|note| is_stale(note)).map(Note::of) {
        let (path, is_mounted) = note.read();
        if stuck.contains(&path) {
            continue;
        }
        let is_there = is_stale(&path) && path.exists();
        match space::remove_file(&path) {
            Ok(()) if is_there => removed.push(path),
            // One that is gone now was taken away by another sweep.
            Err(_) if is_there && path.exists() => {
                stuck.push(path);
                continue;
            }
            // It may be on a file system that is not mounted yet.
            _ if !is_mounted => continue,
            _ => {}
        }
        note.remove();
    }
    Ok((removed, stuck))
}

/// Turns the area off and deletes its file. Another sweep may be about the same: what it has done is not done
/// again, and what it is still doing is waited for.
fn remove(path: &Path) -> io::Result<()> {
    let start = Instant::now();
    while let Err(error) = turn_off(path) {
        let is_off = || areas().map(|on| on.iter().all(|area| area.path != path));
        match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::NotFound if is_off()? => break,
            // A signal, which is for the program: what was brought back stays so, and the rest follows.
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::InvalidInput if start.elapsed() < OTHERS_MAX => {
                std::thread::sleep(Duration::from_millis(20));
            }
            _ => return Err(error),
        }
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Turns an area off, which brings back what is in it. A signal ends it before its time.
///
/// # Errors
/// ENOMEM when what it holds does not fit in memory, EINVAL when it is not on.
pub fn turn_off(path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `name` is a string with its end mark that lives through the call.
    if unsafe { libc::swapoff(name.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Whether the blocks of the file system of this file or folder are smaller than a page. Linux 6.1 was seen
/// to crash when it told the drive of the last stretch of such a swap file. Probably that is shorter than it
/// believes, as pages of which not all blocks lie in a row are left out.
///
/// # Errors
/// When the file system does not tell.
pub fn has_small_blocks(path: &Path) -> io::Result<bool> {
    Ok(rustix::fs::statvfs(path)?.f_bsize < PAGE)
}

/// Turns an area on. Of a file in blocks smaller than a page the drive is not told what becomes free.
///
/// # Errors
/// EINVAL when it is no swap space or the file has holes, EBUSY when it is on or held, EPERM without the
/// right or when there are too many areas.
pub fn turn_on(path: &Path, manner: Manner) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let is_cut = manner.discard == Discard::Freed && path.metadata()?.is_file() && has_small_blocks(path)?;
    let manner = if is_cut { Manner { discard: Discard::Never, ..manner } } else { manner };
    // SAFETY: `name` is a string with its end mark that lives through the call.
    if unsafe { libc::swapon(name.as_ptr(), manner.flags()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_skip::skip;

    #[test]
    fn reads_the_columns_of_proc_swaps() {
        let text = "Filename\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                    /a\\040b/swap  file  1024  512  -2\n/dev/x partition 4 0 10\n";
        let areas = parse_areas(text);
        assert_eq!(areas.len(), 2);
        let first =
            Area { path: "/a b/swap".into(), size_bytes: 1 << 20, used_bytes: 512 << 10, priority: -2 };
        assert_eq!(areas[0], first);
        assert_eq!(areas[1].priority, 10);
    }

    #[test]
    fn escapes_in_paths_are_undone() {
        let undone = |word: &str| unescape(word).into_string().unwrap();
        assert_eq!(undone("/mnt/disk\\134x2d1/a\\040b\\011"), "/mnt/disk\\x2d1/a b\t");
        assert_eq!(undone("/plain"), "/plain");
        assert_eq!(undone("\\0 \\999 \\"), "\\0 \\999 \\");
    }

    #[test]
    fn a_swap_file_is_on_and_then_gone() {
        const NAME: &str = "swap::tests::a_swap_file_is_on_and_then_gone";
        if !rustix::process::geteuid().is_root() {
            return skip(NAME, "needs root to turn swap on");
        }
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let manner = Manner { priority: Some(PRIORITY_MAX - 1), discard: Discard::Freed };
        let file = match SwapFile::create(folder.path(), 16 << 20, manner) {
            Ok(file) => file,
            Err(error) => return skip(NAME, &format!("no swap file in the source folder: {error}")),
        };
        let path = file.path().to_path_buf();
        let on = areas().unwrap().into_iter().find(|area| area.path == path).unwrap();
        assert_eq!((on.size_bytes, on.priority), ((16 << 20) - 4096, 0x7ffe));
        let (removed, _) = remove_stale().unwrap();
        assert!(!removed.contains(&path), "a swap file in use is not stale");
        let note = Path::new(NOTES).join(path.file_name().unwrap());
        assert!(note.exists());
        file.remove().unwrap();
        assert!(!note.exists());
        // As a run leaves it that is killed between naming its file and turning it on.
        let name = format!("{PREFIX}{}-1", u32::MAX >> 1);
        let (left, note) = (folder.path().join(&name), Path::new(NOTES).join(&name));
        // On a file system that is not mounted, and then on one that is.
        let mut text = left.as_os_str().as_bytes().to_vec();
        text.extend(b"\x001");
        std::fs::write(&note, text).unwrap();
        let (removed, _) = remove_stale().unwrap();
        assert!(!removed.contains(&left) && note.exists(), "nothing can be said of it yet");
        space::create_file(&left, &Space::new(1 << 20).unwrap()).unwrap();
        std::fs::write(&note, left.as_os_str().as_bytes()).unwrap();
        let (removed, _) = remove_stale().unwrap();
        assert!(removed.contains(&left) || !left.exists(), "another test's sweep may have been first");
        assert!(!left.exists() && !note.exists());
        assert!(areas().unwrap().iter().all(|area| area.path != path));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(SwapFile::create(folder.path(), 4096, manner).is_err(), "too small for an area");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
