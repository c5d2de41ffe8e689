//! The limits on the control group this process runs in, and on the groups above it.
//!
//! A limit of any ancestor binds, so each file is read from the group up to the root.

use super::super::Fact;
use crate::root::Root;

const MOUNT: &str = "/sys/fs/cgroup";

/// Files of a group that limit memory, swap, CPU or I/O.
const FILES: [&str; 13] = [
    "memory.swap.max",
    "memory.swap.high",
    "memory.high",
    "memory.max",
    "memory.min",
    "memory.events",
    "memory.zswap.writeback",
    "cpu.stat",
    "cpu.max",
    "io.max",
    "io.latency",
    "cpuset.cpus.effective",
    "cpuset.mems.effective",
];

/// What was read: the path below the mount point, the file, its text.
#[derive(Debug, Clone, Default)]
pub struct OwnGroup {
    found: Vec<(String, &'static str, Fact<String>)>,
}

impl OwnGroup {
    /// Reads the group that /proc/self/cgroup names; nothing on version 1 alone.
    pub(super) fn read(root: &Root) -> OwnGroup {
        let own = root.text("/proc/self/cgroup");
        let path = own.value().and_then(|text| text.lines().find_map(|line| line.strip_prefix("0::")));
        let Some(path) = path else { return OwnGroup::default() };
        let mount =
            if root.exists("/sys/fs/cgroup/cgroup.controllers") { MOUNT } else { "/sys/fs/cgroup/unified" };
        let mut found = Vec::new();
        let mut group = path.trim_end_matches('/');
        loop {
            for file in FILES {
                let text = root.text(&format!("{mount}{group}/{file}"));
                if !text.is_absent() {
                    found.push((group.to_owned(), file, text));
                }
            }
            let Some((above, _)) = group.rsplit_once('/') else { break };
            group = above;
        }
        OwnGroup { found }
    }

    /// A file of the group and of those above it, nearest first.
    pub fn files<'a>(&'a self, file: &'a str) -> impl Iterator<Item = &'a Fact<String>> {
        self.found.iter().filter(move |(_, name, _)| *name == file).map(|(_, _, fact)| fact)
    }

    /// Whether anything was read at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_ancestors_are_read_too() {
        let root = Root::from_capture(
            "/proc/self/cgroup = 0::/a.slice/b.scope\n/sys/fs/cgroup/cgroup.controllers = memory\n\
             /sys/fs/cgroup/a.slice/memory.swap.max = 0\n/sys/fs/cgroup/a.slice/b.scope/memory.swap.max = max\n",
        )
        .unwrap();
        let own = OwnGroup::read(&root);
        let read: Vec<_> = own.files("memory.swap.max").filter_map(Fact::value).collect();
        assert_eq!(read, ["max", "0"]);
    }
}
