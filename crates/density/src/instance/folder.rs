//! The folder of a run: sockets, logs, and a mark for each process, so that a later run can end what a
//! killed one left.

use overdrive_sys::owner::Owner;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const PREFIX: &str = "overdrive-density-";
/// The mark of a process: this, its number and when it started.
const MARK: &str = "process-";

/// A folder of this process; removed when dropped.
#[derive(Debug)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// Makes it in the system's folder for what does not last, for this user alone.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("{PREFIX}{}", Owner::this_process()?));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        Ok(Self(path))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // What cannot be removed is found by the next sweep.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Marks a process as one of this run; the mark goes with the folder.
///
/// # Errors
/// When the process is gone or the mark cannot be written.
pub fn mark(folder: &Path, pid: u32) -> io::Result<()> {
    fs::write(folder.join(format!("{MARK}{}", Owner::process(pid)?)), b"")
}

/// Ends the processes and removes the folders of runs that no longer run; gives the folders, and those that
/// would not go.
#[must_use]
pub fn remove_stale() -> (Vec<PathBuf>, Vec<PathBuf>) {
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let stale = entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // A link of somebody else's with our name is not followed.
        let is_folder = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir());
        is_folder && Owner::in_name(&name, PREFIX).is_some_and(|owner| !owner.is_alive())
    });
    stale.collect::<Vec<_>>().into_iter().partition(|path| {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            if let Some(owner) = Owner::in_name(&entry.file_name().to_string_lossy(), MARK) {
                owner.kill();
            }
        }
        fs::remove_dir_all(path).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_left_is_ended_and_removed() {
        let folder = RunFolder::create().unwrap();
        let stale = std::env::temp_dir().join(format!("{PREFIX}{}-1", u32::MAX >> 1));
        fs::create_dir(&stale).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        mark(&stale, child.id()).unwrap();
        let (removed, _) = remove_stale();
        assert!(removed.contains(&stale) && !stale.exists());
        assert!(!child.wait().unwrap().success(), "it was ended, and did not wait for its minute");
        let path = folder.path().to_path_buf();
        assert!(path.exists(), "ours is in use");
        drop(folder);
        assert!(!path.exists());
    }
}
