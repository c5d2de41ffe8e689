//! What the first program of a small guest has to do itself: mount, load modules, power off.
//!
//! Only for a program that is process 1 of a virtual machine; anywhere else the kernel refuses or the
//! caller is lost.

use rustix::mount::{MountFlags, mount};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::path::Path;

/// Mounts a file system that has no device behind it, such as proc.
///
/// # Errors
/// When the kernel does not know it or the folder is not there.
pub fn mount_virtual(kind: &str, at: &str) -> io::Result<()> {
    let no_data: Option<&CStr> = None;
    Ok(mount("none", at, kind, MountFlags::empty(), no_data)?)
}

/// Loads a kernel module from a file; one that is there already is no error.
///
/// # Errors
/// When the file is no module of this kernel.
pub fn load_module(path: &Path) -> io::Result<()> {
    match rustix::system::finit_module(File::open(path)?, c"", 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Turns the machine off. Returns only when the kernel refuses, which it does for anyone without the right.
pub fn power_off() {
    let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
}

/// Whether this program is the first one of its machine, or of its container.
#[must_use]
pub fn is_first_program() -> bool {
    std::process::id() == 1
}
