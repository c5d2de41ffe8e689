//! What a process of a run opens: its store, and the file of its counters.

use crate::Errno;
use crate::file::{create_unnamed, own_file_flags};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Where a run's processes find what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPlaces {
    /// The run's directory.
    pub folder: PathBuf,
    /// How much one process may store.
    pub store_bytes: u64,
    /// A device that all of them share as their store, instead of a file for each.
    pub device: Option<PathBuf>,
}

/// What is open.
#[derive(Debug)]
pub struct RunFiles {
    /// The store: a file of this process's own, or the device.
    pub store: File,
    /// With a device: the file by which its parts are leased.
    pub leases: Option<File>,
}

/// What could not be opened, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {errno}")]
pub struct Unopened {
    /// In words.
    pub place: String,
    /// The kernel's reason.
    pub errno: Errno,
}

impl RunPlaces {
    /// Opens the store, for one process.
    ///
    /// # Errors
    /// [`Unopened`] names the place.
    pub fn open(&self) -> Result<RunFiles, Unopened> {
        let (what, place) = match &self.device {
            Some(device) => ("store on", device),
            None => ("store in", &self.folder),
        };
        let told = |errno| Unopened { place: format!("{what} {}", place.display()), errno };
        let Some(device) = &self.device else {
            let store = create_unnamed(&self.folder, self.store_bytes).map_err(told)?;
            return Ok(RunFiles { store, leases: None });
        };
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        let store = rustix::fs::open(device, flags, Mode::empty()).map_err(told)?;
        // Who takes the device for another run first asks for all of it, and is refused while this is open.
        rustix::fs::flock(&store, FlockOperation::NonBlockingLockShared).map_err(told)?;
        let leases = own_file(&self.folder.join("leases")).map_err(told)?;
        Ok(RunFiles { store: store.into(), leases: Some(leases) })
    }

    /// Opens the file of a process's counters. The same process may have been another program before (exec),
    /// whose counters end here. The file is not cut short for that: where two processes have one number (PID
    /// namespaces), the other one has it mapped.
    ///
    /// # Errors
    /// As [`RunPlaces::open`].
    pub fn open_counters(&self, process: u32) -> Result<File, Unopened> {
        let path = self.folder.join(format!("{process}.stats"));
        own_file(&path).map_err(|errno| Unopened { place: path.display().to_string(), errno })
    }
}

/// A file for this user alone, which is made where there is none.
fn own_file(path: &Path) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let flags = flags | OFlags::from_bits_retain(own_file_flags().cast_unsigned());
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}
