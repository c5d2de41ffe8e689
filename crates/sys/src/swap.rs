//! Swap areas: what is on, turning areas on and off, and a swap file of our own for the length of a run.
//!
//! The file has no name until it is ready to be used. Its name carries its owner and is noted before it is
//! given, so that what a killed run left is found, whether the area is on or not.

pub mod space;

use crate::owner::Owner;
use space::Space;
use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Every swap file of ours has this in its name, followed by its owner.
const PREFIX: &str = "overdrive-swap-";

const PAGE: u64 = 4096;

/// Here stands a note for each swap file of a run: its name, and in it the path.
const NOTES: &str = "/var/lib/overdrive/swap-files";

/// How long another process is given to take an area off.
const OTHERS_MAX: Duration = Duration::from_secs(60);

/// From the kernel's `linux/swap.h`.
const SWAP_FLAG_PREFER: libc::c_int = 0x8000;
const SWAP_FLAG_DISCARD: libc::c_int = 0x10000;
const SWAP_FLAG_DISCARD_ONCE: libc::c_int = 0x20000;

/// The highest priority that can be asked for.
pub const PRIORITY_MAX: u16 = 0x7fff;

/// How an area is turned on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Manner {
    /// The higher, the sooner it is used; without one the kernel chooses, below zero.
    pub priority: Option<u16>,
    /// Tell the drive once that the whole area is free.
    pub discard_once: bool,
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
    Ok(parse_areas(&std::fs::read_to_string("/proc/swaps")?))
}

fn parse_areas(text: &str) -> Vec<Area> {
    let parse_line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        // The kernel writes blanks in a path as \040.
        let path = words.next()?.replace("\\040", " ").into();
        let mut kib = words.skip(1).map(str::parse::<i64>);
        let (size, used, priority) = (kib.next()?.ok()?, kib.next()?.ok()?, kib.next()?.ok()?);
        let bytes = |kib: i64| u64::try_from(kib).unwrap_or(0) * 1024;
        Some(Area { path, size_bytes: bytes(size), used_bytes: bytes(used), priority: priority as i32 })
    };
    text.lines().filter_map(parse_line).collect()
}

/// A swap file of ours that is on; taken off and deleted when dropped.
#[derive(Debug)]
pub struct SwapFile {
    path: PathBuf,
    removed: bool,
    /// Goes last.
    _note: Note,
}

/// A note of a file that is about to be made; removed when dropped.
#[derive(Debug)]
struct Note(PathBuf);

impl Note {
    fn write(name: &str, path: &Path) -> io::Result<Self> {
        let place = Path::new(NOTES).join(name);
        let written =
            std::fs::create_dir_all(NOTES).and_then(|()| std::fs::write(&place, path.as_os_str().as_bytes()));
        written.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", place.display())))?;
        Ok(Self(place))
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl SwapFile {
    /// Makes a swap file of `bytes` in `folder` and turns it on before all other areas.
    ///
    /// # Errors
    /// What the file system or the kernel refuses; nothing is left behind then.
    pub fn create(folder: &Path, bytes: u64) -> io::Result<Self> {
        let owner = Owner::this_process()?;
        let name = format!("{PREFIX}{owner}");
        let path = std::fs::canonicalize(folder)?.join(&name);
        let note = Note::write(&name, &path)?;
        space::create_file(&path, &Space::new(bytes)?)?;
        let manner = Manner { priority: Some(PRIORITY_MAX), discard_once: false };
        turn_on(&path, manner).inspect_err(|_| drop(std::fs::remove_file(&path)))?;
        Ok(Self { path, removed: false, _note: note })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes it off, which brings back what others have in it, and deletes it.
    ///
    /// # Errors
    /// When what it holds does not fit in memory; it stays on then.
    pub fn remove(mut self) -> io::Result<()> {
        self.removed = true;
        remove(&self.path)
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        if !self.removed {
            let _ = remove(&self.path);
        }
    }
}

/// Takes off and deletes the swap files of owners that no longer run; gives their paths, and those that
/// would not go.
///
/// # Errors
/// When /proc/swaps cannot be read.
pub fn remove_stale() -> io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let is_stale = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Owner::in_name(&name, PREFIX).is_some_and(|owner| !owner.is_alive())
    };
    let (mut removed, mut stuck) = (Vec::new(), Vec::new());
    for path in areas()?.into_iter().map(|area| area.path).filter(|path| is_stale(path)) {
        if remove(&path).is_ok() { removed.push(path) } else { stuck.push(path) }
    }
    // A run that was killed just before its area was on, or just after it was off.
    let notes = std::fs::read_dir(NOTES).into_iter().flatten().flatten().map(|entry| entry.path());
    for note in notes.filter(|note| is_stale(note)) {
        let path = PathBuf::from(OsString::from_vec(std::fs::read(&note).unwrap_or_default()));
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
            _ => {}
        }
        drop(Note(note));
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

/// Turns an area on.
///
/// # Errors
/// EINVAL when it is no swap space or the file has holes, EBUSY when it is on or held, EPERM without the
/// right or when there are too many areas.
pub fn turn_on(path: &Path, manner: Manner) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let mut flags = 0;
    if let Some(priority) = manner.priority {
        flags |= SWAP_FLAG_PREFER | libc::c_int::from(priority.min(PRIORITY_MAX) as i16);
    }
    if manner.discard_once {
        flags |= SWAP_FLAG_DISCARD | SWAP_FLAG_DISCARD_ONCE;
    }
    // SAFETY: `name` is a string with its end mark that lives through the call.
    if unsafe { libc::swapon(name.as_ptr(), flags) } != 0 {
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
    fn a_swap_file_is_on_and_then_gone() {
        const NAME: &str = "swap::tests::a_swap_file_is_on_and_then_gone";
        if !rustix::process::geteuid().is_root() {
            return skip(NAME, "needs root to turn swap on");
        }
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let file = match SwapFile::create(folder.path(), 16 << 20) {
            Ok(file) => file,
            Err(error) => return skip(NAME, &format!("no swap file in the source folder: {error}")),
        };
        let path = file.path().to_path_buf();
        let on = areas().unwrap().into_iter().find(|area| area.path == path).unwrap();
        assert_eq!((on.size_bytes, on.priority), ((16 << 20) - 4096, 0x7fff));
        let (removed, _) = remove_stale().unwrap();
        assert!(!removed.contains(&path), "a swap file in use is not stale");
        let note = Path::new(NOTES).join(path.file_name().unwrap());
        assert!(note.exists());
        file.remove().unwrap();
        assert!(!note.exists());
        // As a run leaves it that is killed between naming its file and turning it on.
        let name = format!("{PREFIX}{}-1", u32::MAX >> 1);
        let (left, note) = (folder.path().join(&name), Path::new(NOTES).join(&name));
        space::create_file(&left, &Space::new(1 << 20).unwrap()).unwrap();
        std::fs::write(&note, left.as_os_str().as_bytes()).unwrap();
        let (removed, _) = remove_stale().unwrap();
        assert!(removed.contains(&left) || !left.exists(), "another test's sweep may have been first");
        assert!(!left.exists() && !note.exists());
        assert!(areas().unwrap().iter().all(|area| area.path != path));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(SwapFile::create(folder.path(), 4096).is_err(), "too small for an area");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
