//! The folders of a run: one for sockets, logs, and a mark for each process, so that a later run can end
//! what a killed one left; and one on the drive, when instances keep memory there.

use overdrive_sys::owner::Owner;
use overdrive_sys::relay::effective_user;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const PREFIX: &str = "overdrive-density-";
const STORE_PREFIX: &str = "overdrive-density-store-";
/// Names the run's folder on the drive.
const STORE: &str = "store";
/// The mark of a process: this, its number and when it started.
const MARK: &str = "process-";

/// The folders of this process; removed when dropped.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// The one on the drive.
    store: Option<PathBuf>,
}

impl RunFolder {
    /// Makes it in the system's folder for what does not last, for this user alone, and the run's folder on
    /// the drive. Where that is is taken down before it is made, so that it is found whenever the run is
    /// killed.
    ///
    /// # Errors
    /// When one of them cannot be made; nothing is left then.
    pub fn create(store: Option<&Path>) -> io::Result<Self> {
        Self::create_in(&std::env::temp_dir(), store)
    }

    fn create_in(parent: &Path, store: Option<&Path>) -> io::Result<Self> {
        let path = make(parent.join(format!("{PREFIX}{}", Owner::this_process()?)))?;
        let mut folder = Self { path, store: None };
        if let Some(store) = store {
            mark_store(&folder.path, store)?;
            folder.store = Some(make(store.to_path_buf())?);
        }
        Ok(folder)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // What cannot be removed is found by the next sweep. The one that names the other goes last.
        for path in self.store.iter().chain([&self.path]) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

fn make(path: PathBuf) -> io::Result<PathBuf> {
    let made = fs::DirBuilder::new().mode(0o700).create(&path);
    made.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    Ok(path)
}

/// The run's folder on a drive, in `parent`; a [`RunFolder`] makes it.
///
/// # Errors
/// When the kernel does not tell when this process started.
pub fn store_in(parent: &Path) -> io::Result<PathBuf> {
    Ok(parent.join(format!("{STORE_PREFIX}{}", Owner::this_process()?)))
}

/// Marks a process as one of this run; the mark goes with the folder.
///
/// # Errors
/// When the process is gone or the mark cannot be written.
pub fn mark(folder: &Path, pid: u32) -> io::Result<()> {
    fs::write(folder.join(format!("{MARK}{}", Owner::process(pid)?)), b"")
}

/// Takes down where the run's folder on the drive is, so that it is found after a kill.
fn mark_store(folder: &Path, store: &Path) -> io::Result<()> {
    fs::write(folder.join(STORE), store.as_os_str().as_bytes())
}

/// Ends the processes and removes the folders of runs that no longer run; gives the folders, and those that
/// would not go.
#[must_use]
pub fn remove_stale() -> (Vec<PathBuf>, Vec<PathBuf>) {
    remove_stale_in(&std::env::temp_dir())
}

fn remove_stale_in(parent: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut folders = Vec::new();
    for folder in stale_in(parent, PREFIX) {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if let Some(owner) = Owner::in_name(&entry.file_name().to_string_lossy(), MARK) {
                owner.kill();
            }
        }
        let store = fs::read(folder.join(STORE)).map(|path| PathBuf::from(OsString::from_vec(path)));
        folders.extend(store.ok().filter(|store| is_stale(store, STORE_PREFIX)));
        folders.push(folder);
    }
    folders.into_iter().partition(|path| fs::remove_dir_all(path).is_ok())
}

/// Removes what killed runs left in a folder for stores.
#[must_use]
pub fn remove_stale_stores(parent: &Path) -> Vec<PathBuf> {
    stale_in(parent, STORE_PREFIX).filter(|path| fs::remove_dir_all(path).is_ok()).collect()
}

fn stale_in(parent: &Path, prefix: &'static str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(move |path| is_stale(path, prefix))
}

/// Whether a folder is one of this user's whose run has ended. What another user has put there under our
/// name is not believed: it could name any process and any folder.
fn is_stale(path: &Path, prefix: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let metadata = fs::symlink_metadata(path);
    name.starts_with(prefix)
        && metadata.is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == effective_user())
        && Owner::in_name(&name, prefix).is_some_and(|owner| !owner.is_alive())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_left_is_ended_and_removed() {
        let folder = RunFolder::create(None).unwrap();
        // A place of its own: where runs leave their folders, others sweep as well.
        let place = tempfile::tempdir().unwrap();
        let stale = place.path().join(format!("{PREFIX}{}-1", u32::MAX >> 1));
        fs::create_dir(&stale).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        mark(&stale, child.id()).unwrap();
        let (removed, _) = remove_stale_in(place.path());
        assert!(removed.contains(&stale) && !stale.exists());
        assert!(!child.wait().unwrap().success(), "it was ended, and did not wait for its minute");
        let path = folder.path().to_path_buf();
        assert!(path.exists(), "ours is in use");
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn a_killed_runs_folder_on_the_drive_is_found_and_others_are_not() {
        let (drive, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let own = RunFolder::create_in(place.path(), Some(&store_in(drive.path()).unwrap())).unwrap();
        let own_store = own.store.clone().unwrap();
        let named = fs::read(own.path().join(STORE)).unwrap();
        assert_eq!(named, own_store.as_os_str().as_bytes(), "a later run finds it by this");
        let stale = |prefix: &str, number: u32| {
            let path = drive.path().join(format!("{prefix}{number}-1"));
            fs::create_dir(&path).unwrap();
            path
        };
        // No process has this number.
        let number = u32::MAX >> 1;
        let (store, foreign) = (stale(STORE_PREFIX, number), stale("somebody-elses-", number));
        let run = place.path().join(format!("{PREFIX}{number}-1"));
        for named in [&store, &foreign] {
            fs::create_dir(&run).unwrap();
            mark_store(&run, named).unwrap();
            assert!(remove_stale_in(place.path()).0.contains(&run) && !run.exists());
        }
        assert!(!store.exists() && foreign.exists() && own_store.exists());
        let store = stale(STORE_PREFIX, number);
        assert_eq!(remove_stale_stores(drive.path()), [store]);
        assert!(foreign.exists() && own_store.exists());
        drop(own);
        assert!(!own_store.exists());
    }

    fn skip(reason: &str) {
        const NAME: &str = "instance::folder::tests::what_another_user_left_under_our_name_is_not_believed";
        eprintln!("skipped: {NAME}: {reason}");
        if let Some(log) = std::env::var_os("OVERDRIVE_SKIP_LOG") {
            let mut file = fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
            io::Write::write_all(&mut file, format!("{NAME}: {reason}\n").as_bytes()).unwrap();
        }
    }

    #[test]
    fn what_another_user_left_under_our_name_is_not_believed() {
        let drive = tempfile::tempdir().unwrap();
        let path = drive.path().join(format!("{STORE_PREFIX}{}-1", u32::MAX >> 1));
        fs::create_dir(&path).unwrap();
        if std::os::unix::fs::chown(&path, Some(effective_user() + 1), None).is_err() {
            return skip("only root gives folders away");
        }
        assert!(remove_stale_stores(drive.path()).is_empty() && path.exists());
    }
}
