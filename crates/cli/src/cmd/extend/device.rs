//! A block device as the store: named twice, looked at, held for the length of the run, and shared by its
//! processes.
//!
//! They open it through the descriptor that is held here, so that none can before it was taken, nor another
//! device that has its name by then.

use crate::exit::refuse;
use crate::open_target::open_device;
use anyhow::{Context, Result};
use overdrive_sys::arena::Arena;
use overdrive_sys::parts::MARGIN_BYTES;
use overdrive_sys::volume::device_bytes;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// For so long a device may be looked at by somebody who locks it meanwhile, as udev does.
const TRIES: u32 = 40;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// A device that is held.
#[derive(Debug)]
pub(crate) struct Device {
    file: File,
    wipes: bool,
}

impl Device {
    /// Takes it, if nobody else uses it and nothing on it is worth keeping, or `wipe` insists.
    pub(crate) fn take(path: &Path, wipe: bool) -> Result<Self> {
        let shown = path.display();
        let found = std::fs::canonicalize(path).with_context(|| format!("--store {shown}"))?;
        let file = open_device(&format!("--store {shown}"), &found, wipe)?;
        // Processes of a run that was killed may still write to it: they have it locked.
        let mut locked = file.try_lock();
        for _ in 0..TRIES {
            if locked.is_ok() {
                break;
            }
            std::thread::sleep(BETWEEN_TRIES);
            locked = file.try_lock();
        }
        if locked.is_err() {
            refuse!(
                "--store {shown}: somebody has it locked; wanted the programs of a killed run to end first"
            );
        }
        // The programs of this run lock it so too.
        file.try_lock_shared().with_context(|| format!("locking {shown}"))?;
        Ok(Self { file, wipes: wipe })
    }

    /// Where the programs of this run open it, as long as this process lives.
    pub(crate) fn door(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Overwrites the ends of a device that was to be wiped: what they say of its content is not true any
    /// more.
    pub(crate) fn clear(&self) -> Result<()> {
        if !self.wipes {
            return Ok(());
        }
        let mut zeroes = Arena::small(1, MARGIN_BYTES as usize).context("memory to wipe a device with")?;
        let end = device_bytes(&self.file).context("the size of a device")?.saturating_sub(MARGIN_BYTES);
        for offset in [0, end >> 12 << 12] {
            let length = MARGIN_BYTES.min(end) as usize;
            self.file.write_all_at(&zeroes.slot_mut(0)[..length], offset).context("wiping the device")?;
        }
        Ok(())
    }
}
