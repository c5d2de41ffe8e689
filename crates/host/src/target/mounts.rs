//! The mount table: which file system a device number or a path belongs to.
//!
//! Only mounts of this process's namespace are listed by the kernel; those of containers are not.

use crate::facts::Fact;
use crate::facts::parse::{self, Unexpected};
use crate::root::Root;
use overdrive_sys::volume::DeviceNumber;

/// One mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its device number; major 0 when it stands on no single block device.
    pub device: DeviceNumber,
    /// Which folder of the file system is mounted.
    pub inner: String,
    /// Where.
    pub point: String,
    /// Options of this mount and of the file system, as one list.
    pub options: Vec<String>,
    /// Type, such as `ext4`.
    pub kind: String,
    /// What was mounted, such as `/dev/nvme0n1p1` or a server.
    pub source: String,
}

impl Mount {
    /// Whether an option is in force, such as `ro` or `discard`.
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|seen| seen == option)
    }
}

/// Reads the mount table.
pub(crate) fn read(root: &Root) -> Fact<Vec<Mount>> {
    root.text("/proc/self/mountinfo").parse(|text| text.lines().map(mount_line).collect())
}

fn mount_line(line: &str) -> Result<Mount, Unexpected> {
    let fail = || Unexpected::new(line, "a line of mountinfo");
    let (left, right) = line.split_once(" - ").ok_or_else(fail)?;
    let left: Vec<&str> = left.split(' ').collect();
    let right: Vec<&str> = right.split(' ').collect();
    let (&[_, _, device, inner, point, options, ..], &[kind, source, ..]) =
        (left.as_slice(), right.as_slice())
    else {
        return Err(fail());
    };
    let system_options = right.get(2).copied().unwrap_or_default();
    let mut all: Vec<String> = Vec::new();
    for option in options.split(',').chain(system_options.split(',')).filter(|option| !option.is_empty()) {
        let option = parse::unescape(option);
        if !all.contains(&option) {
            all.push(option);
        }
    }
    Ok(Mount {
        device: device_number(device).ok_or_else(fail)?,
        inner: parse::unescape(inner),
        point: parse::unescape(point),
        options: all,
        kind: kind.to_owned(),
        source: parse::unescape(source),
    })
}

/// Reads `259:3`.
pub(crate) fn device_number(text: &str) -> Option<DeviceNumber> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// The mount that a file lies on: one of its device number if there is any, the deepest one above `path`
/// first. btrfs gives files device numbers of their own, so without a match the path alone decides.
pub(crate) fn of_file(mounts: &[Mount], device: DeviceNumber, path: Option<&str>) -> Option<Mount> {
    let same: Vec<&Mount> = mounts.iter().filter(|mount| mount.device == device).collect();
    let above = path.and_then(|path| deepest(&same, path));
    let found = match (above, same.is_empty()) {
        (Some(mount), _) => Some(mount),
        (None, false) => same.iter().rev().find(|mount| mount.inner == "/").or(same.last()).copied(),
        (None, true) => deepest(&mounts.iter().collect::<Vec<_>>(), path?),
    };
    found.cloned()
}

/// The mount that a path lies on.
pub(crate) fn above<'a>(mounts: &'a [Mount], path: &str) -> Option<&'a Mount> {
    deepest(&mounts.iter().collect::<Vec<_>>(), path)
}

fn deepest<'a>(mounts: &[&'a Mount], path: &str) -> Option<&'a Mount> {
    // Of mounts on one point the last covers the others, and max_by_key keeps the last.
    mounts.iter().filter(|mount| is_above(&mount.point, path)).max_by_key(|mount| mount.point.len()).copied()
}

fn is_above(point: &str, path: &str) -> bool {
    match path.strip_prefix(point.trim_end_matches('/')) {
        Some(rest) => rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table() -> Vec<Mount> {
        let text = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n\
                    30 27 259:1 / /data rw shared:5 - xfs /dev/nvme0n1p1 rw\n\
                    31 27 259:1 /sub /bind\\040here ro - xfs /dev/nvme0n1p1 rw\n\
                    32 30 0:40 / /data/btrfs rw - btrfs /dev/sdb rw,subvol=/a\n";
        text.lines().map(|line| mount_line(line).unwrap()).collect()
    }

    fn number(text: &str) -> DeviceNumber {
        device_number(text).unwrap()
    }

    #[test]
    fn reads_optional_fields_and_escapes() {
        let table = table();
        assert_eq!((table[1].kind.as_str(), table[1].point.as_str()), ("xfs", "/data"));
        assert_eq!(table[2].point, "/bind here");
        assert!(table[0].has("discard") && table[2].has("ro") && !table[1].has("ro"));
    }

    #[test]
    fn finds_the_mount_of_a_file() {
        let table = table();
        let point = |device, path| of_file(&table, number(device), path).map(|mount| mount.point);
        assert_eq!(point("259:1", Some("/data/file")).unwrap(), "/data");
        assert_eq!(point("259:1", Some("/bind here/file")).unwrap(), "/bind here");
        assert_eq!(point("259:1", None).unwrap(), "/data");
        assert_eq!(point("0:99", Some("/data/btrfs/sub/file")).unwrap(), "/data/btrfs");
        assert_eq!(point("0:99", Some("/database")).unwrap(), "/");
        assert_eq!(point("0:99", None), None);
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "[0-9a-z:/ -]{0,60}") {
            let _ = (mount_line(&text), device_number(&text), is_above(&text, &text));
        }
    }
}
