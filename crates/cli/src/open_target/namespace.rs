//! NVMe character devices (/dev/ngXnY): opened together with the block device of the same namespace, which
//! is what others use it by. Its rules are the block device's.

use super::{OpenTarget, cannot_open, check_size, open, permitted_to_write, refused_open};
use crate::exit::{Refused, refuse};
use crate::flags::AccessFlags;
use anyhow::{Context, Result};
use overdrive_io::target::Target;
use overdrive_report::record::TargetKind;
use overdrive_sys::file::{WriteConsent, open_namespace};
use overdrive_sys::volume::DeviceNumber;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The block device of the namespace behind a character device; none when the path is no character device.
pub(super) fn block_device(spec: &str, path: &Path) -> Result<Option<PathBuf>> {
    let metadata = std::fs::metadata(path).map_err(|error| cannot_open(spec, &error))?;
    if !metadata.file_type().is_char_device() {
        return Ok(None);
    }
    let number = DeviceNumber::from_raw(metadata.rdev());
    let folder = std::fs::canonicalize(format!("/sys/dev/char/{number}")).ok();
    let name = folder.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    match name.and_then(block_name) {
        Some(block) => Ok(Some(PathBuf::from(format!("/dev/{block}")))),
        None => refuse!(
            "{spec}: a character device; wanted a block device (such as /dev/nvme0n1) or the character device of an \
             NVMe namespace (such as /dev/ng0n1)"
        ),
    }
}

/// `nvme0n1` for `ng0n1`.
fn block_name(name: &str) -> Option<String> {
    let (controller, namespace) = name.strip_prefix("ng")?.split_once('n')?;
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (number(controller) && number(namespace)).then(|| format!("nvme{controller}n{namespace}"))
}

/// Opens both devices; the block device first, with all its checks.
pub(super) fn open_both(
    spec: &str,
    path: &Path,
    block: &Path,
    size: Option<u64>,
    access: &AccessFlags,
) -> Result<OpenTarget> {
    if access.buffered {
        refuse!("{spec}: --buffered goes through the page cache, which NVMe commands pass by");
    }
    let writable = permitted_to_write(spec, access)?;
    let block_file = open(spec, block, writable, access)?;
    let consent = writable.then(|| WriteConsent::given_for(path));
    let character =
        open_namespace(path, consent.as_ref()).map_err(|errno| refused_open(spec, path, errno))?;
    let mut target = Target::of_namespace(block_file, character).map_err(|error| {
        Refused(format!("{spec}: asking for its namespace: {error} (before kernel 6.2 this takes root)"))
    })?;
    if let Some(size) = size {
        target = super::limited(spec, target, size)?;
    }
    check_size(spec, target.size())?;
    let note = "NVMe commands pass the block layer by: its counters and its settings have no part in this";
    let path =
        std::fs::canonicalize(block).with_context(|| format!("{spec}: finding {}", block.display()))?;
    Ok(OpenTarget {
        target,
        kind: TargetKind::BlockDevice,
        spec: spec.to_owned(),
        path,
        writable,
        notes: vec![note.to_owned()],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generic_device_leads_to_its_block_device() {
        assert_eq!(block_name("ng0n1").as_deref(), Some("nvme0n1"));
        assert_eq!(block_name("ng12n34").as_deref(), Some("nvme12n34"));
        for name in ["nvme0", "ng0", "ngn1", "ng0n", "ng0c1n1", "null"] {
            assert_eq!(block_name(name), None, "{name}");
        }
    }
}
