//! Where control groups are: the hierarchy that limits memory, and in it the group of a process.

use super::{GroupError, Version};
use std::fs;
use std::path::{Path, PathBuf};

/// The group that /proc/PID/cgroup names in the hierarchy that limits memory.
pub(super) fn group_in(text: &str, version: Version) -> &str {
    let found = text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let controllers = parts.next()?;
        let is_it = match version {
            Version::V1 => controllers.split(',').any(|controller| controller == "memory"),
            Version::V2 => controllers.is_empty(),
        };
        parts.next().filter(|_| is_it)
    });
    found.unwrap_or("/")
}

/// /proc/self/mountinfo and /proc/self/cgroup.
pub(super) fn own_texts() -> Result<(String, String), GroupError> {
    let read =
        |path: &str| fs::read_to_string(path).map_err(|error| GroupError::Io { path: path.into(), error });
    Ok((read("/proc/self/mountinfo")?, read("/proc/self/cgroup")?))
}

/// From these: the hierarchy that limits memory, where it is mounted, and the folder of this process's group.
pub(super) fn own_group(mountinfo: &str, own: &str) -> Result<(Version, PathBuf, PathBuf), GroupError> {
    let (version, root) = hierarchy(mountinfo)?;
    let own = below(&root, group_in(own, version));
    Ok((version, root, own))
}

/// The hierarchy that limits memory, and where it is mounted.
pub(super) fn hierarchy(mountinfo: &str) -> Result<(Version, PathBuf), GroupError> {
    let first = mount_of(mountinfo, "cgroup", Some("memory")).map(|root| (Version::V1, root));
    let found = first.or_else(|| mount_of(mountinfo, "cgroup2", None).map(|root| (Version::V2, root)));
    found.ok_or_else(|| GroupError::Unavailable("no control-group hierarchy is mounted".to_owned()))
}

/// The mount point of a hierarchy of `kind`, with `option` among its options.
fn mount_of(mountinfo: &str, kind: &str, option: Option<&str>) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut words = file_system.split_ascii_whitespace();
        let same_kind = words.next()? == kind;
        let options = words.nth(1).unwrap_or("");
        let fits = option.is_none_or(|wanted| options.split(',').any(|found| found == wanted));
        let point = mount.split_ascii_whitespace().nth(4)?;
        (same_kind && fits).then(|| PathBuf::from(point))
    })
}

/// The folder of a group, or the root when the group lies outside what is mounted here.
fn below(root: &Path, group: &str) -> PathBuf {
    let path = root.join(group.trim_start_matches('/'));
    if path.is_dir() { path } else { root.to_path_buf() }
}
