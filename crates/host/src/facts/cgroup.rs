//! Control groups: version, controllers, and the limits this process stands under.

pub mod own;

use super::{Fact, FactRow, Rows};
use crate::root::Root;

/// What is known of control groups.
#[derive(Debug, Clone)]
pub struct CgroupFacts {
    /// Which hierarchy is mounted.
    pub version: Fact<Version>,
    /// Controllers of that hierarchy.
    pub controllers: Fact<Vec<String>>,
    /// The groups of this process.
    pub own: Fact<String>,
    /// Limits of those groups.
    pub group: own::OwnGroup,
}

/// Which control group hierarchy is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// None.
    None,
    /// One hierarchy a controller.
    V1,
    /// Version 1 with a version 2 hierarchy beside it.
    Hybrid,
    /// One unified hierarchy.
    V2,
}

impl Version {
    /// The word shown.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Version::None => "none",
            Version::V1 => "v1",
            Version::Hybrid => "v1 and v2 (hybrid)",
            Version::V2 => "v2",
        }
    }
}

impl CgroupFacts {
    pub(super) fn read(root: &Root) -> CgroupFacts {
        let mounts = root.text("/proc/self/mountinfo");
        let version = match &mounts {
            // Only the two answers are kept as raw text; the mounts themselves say nothing here.
            Fact::Known { value, path, .. } => {
                let version = version_of(value);
                Fact::known(version, version.name(), path.as_str())
            }
            other => other.clone().map(|_| Version::None),
        };
        let controllers = match version.get() {
            Some(Version::V2) => root
                .text("/sys/fs/cgroup/cgroup.controllers")
                .map(|text| text.split_whitespace().map(str::to_owned).collect()),
            _ => root.text("/proc/cgroups").map(|text| enabled_controllers(text)),
        };
        CgroupFacts {
            version,
            controllers,
            group: own::OwnGroup::read(root),
            own: root.text("/proc/self/cgroup"),
        }
    }

    pub(super) fn rows(&self) -> Vec<FactRow> {
        let mut rows = Rows::new("cgroup");
        rows.add("version", "Control groups", &self.version, |version| version.name().to_owned());
        rows.add("controllers", "Controllers", &self.controllers, |names| names.join(" "));
        rows.add("own", "This process's groups", &self.own, |text| text.replace('\n', " "));
        rows.into_vec()
    }
}

fn version_of(mountinfo: &str) -> Version {
    let kinds: Vec<&str> =
        mountinfo.lines().filter_map(|line| line.split(" - ").nth(1)?.split(' ').next()).collect();
    match (kinds.contains(&"cgroup"), kinds.contains(&"cgroup2")) {
        (true, true) => Version::Hybrid,
        (true, false) => Version::V1,
        (false, true) => Version::V2,
        (false, false) => Version::None,
    }
}

fn enabled_controllers(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && line.trim_end().ends_with('1'));
    lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_the_versions_apart() {
        let line = |kind: &str| format!("31 23 0:28 / /sys/fs/cgroup rw - {kind} {kind} rw\n");
        assert_eq!(version_of(&line("cgroup2")), Version::V2);
        assert_eq!(version_of(&line("cgroup")), Version::V1);
        assert_eq!(version_of(&(line("cgroup") + &line("cgroup2"))), Version::Hybrid);
        assert_eq!(version_of("nonsense - "), Version::None);
    }
}
