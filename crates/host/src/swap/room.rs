//! Whether what is swapped out would fit back: into memory, into the areas that stay on, and under the limits
//! of the groups it belongs to. The kernel finds out by killing, so it is asked before.

use crate::facts::memory::read_swaps;
use crate::facts::parse;
use crate::root::Root;
use overdrive_base::size::format_size;
use std::fmt;
use std::path::PathBuf;

/// Why areas cannot be turned off now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// Memory and the other areas together are too small.
    Memory {
        /// What the areas hold, in bytes.
        held_bytes: u64,
        /// What could take it, in bytes.
        room_bytes: u64,
    },
    /// A group may not have that much memory.
    Group {
        /// Its folder.
        path: String,
        /// What of it is swapped out, in bytes.
        held_bytes: u64,
        /// What its limit leaves, in bytes.
        room_bytes: u64,
    },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &u64| format_size(*bytes);
        match self {
            Missing::Memory { held_bytes, room_bytes } => write!(
                f,
                "{} are swapped out and only {} of memory and other swap could take them: {} are missing; \
                 wanted programs ended or another area on first",
                text(held_bytes),
                text(room_bytes),
                text(&(held_bytes - room_bytes))
            ),
            Missing::Group { path, held_bytes, room_bytes } => write!(
                f,
                "{} of the group {path} are swapped out and its limit leaves {}: {} are missing, and the OOM \
                 killer would make room; wanted a higher limit or another area on first",
                text(held_bytes),
                text(room_bytes),
                text(&(held_bytes - room_bytes))
            ),
        }
    }
}

/// What stands in the way of turning `areas` off; none when everything would fit.
#[must_use]
pub fn missing(root: &Root, areas: &[PathBuf]) -> Option<Missing> {
    let swaps = read_swaps(root);
    let swaps = swaps.value()?;
    let (going, staying): (Vec<_>, Vec<_>) =
        swaps.iter().partition(|area| areas.iter().any(|path| path.to_str() == Some(&area.path)));
    let held_bytes = parse::sum(going.iter().map(|area| area.used_bytes));
    if held_bytes == 0 {
        return None;
    }
    // What is filled into compressed memory takes the memory that it was to leave free.
    let drives = staying.iter().filter(|area| !area.is_zram());
    let elsewhere = parse::sum(drives.map(|area| area.size_bytes.saturating_sub(area.used_bytes)));
    let info = root.text("/proc/meminfo");
    let bytes = |key| info.value().and_then(|text| parse::field_kib(text, key).ok());
    let room_bytes = bytes("MemAvailable")?.saturating_add(elsewhere);
    // Pages that are in memory as well need no more of it; whose they are is known when all areas go.
    let both = if staying.is_empty() { bytes("SwapCached").unwrap_or(0) } else { 0 };
    if held_bytes.saturating_sub(both) > room_bytes {
        return Some(Missing::Memory { held_bytes, room_bytes });
    }
    group_without_room(root, held_bytes, elsewhere)
}

/// Groups looked at, at most: a host has hundreds, and a listing must end.
const GROUPS_MAX: usize = 20_000;

/// The names of a hierarchy's files: usage, swapped (alone or with memory), limit, the keys of file pages and
/// of shared memory, which is counted among them.
struct Names {
    root: &'static str,
    usage: &'static str,
    swapped: &'static str,
    includes_memory: bool,
    limit: &'static str,
    files: &'static str,
    shared: &'static str,
}

const V1: Names = Names {
    root: "/sys/fs/cgroup/memory",
    usage: "memory.usage_in_bytes",
    swapped: "memory.memsw.usage_in_bytes",
    includes_memory: true,
    limit: "memory.limit_in_bytes",
    files: "total_cache",
    shared: "total_shmem",
};

const V2: Names = Names {
    root: "/sys/fs/cgroup",
    usage: "memory.current",
    swapped: "memory.swap.current",
    includes_memory: false,
    limit: "memory.max",
    files: "file",
    shared: "shmem",
};

fn group_without_room(root: &Root, going_bytes: u64, elsewhere_bytes: u64) -> Option<Missing> {
    let names = if root.exists("/sys/fs/cgroup/cgroup.controllers") { V2 } else { V1 };
    let mut folders = vec![names.root.to_owned()];
    let mut seen = 0;
    while let Some(folder) = folders.pop().filter(|_| seen < GROUPS_MAX) {
        seen += 1;
        let found = group(root, &names, &folder, going_bytes, elsewhere_bytes);
        if found.is_some() {
            return found;
        }
        let inside = root.list(&folder);
        // Files of a group have a dot in their names; a group that has one too lists as well.
        let groups = inside.value().into_iter().flatten().map(|name| format!("{folder}/{name}"));
        folders.extend(groups.filter(|path| root.exists(&format!("{path}/cgroup.procs"))));
    }
    None
}

fn group(root: &Root, names: &Names, folder: &str, going: u64, elsewhere: u64) -> Option<Missing> {
    let number = |file: &str| root.text(&format!("{folder}/{file}")).parse(parse::number::<u64>).get();
    let (usage, limit) = (number(names.usage)?, number(names.limit)?);
    let swapped = number(names.swapped)?;
    let swapped = if names.includes_memory { swapped.saturating_sub(usage) } else { swapped };
    let stat = root.text(&format!("{folder}/memory.stat"));
    let pages = |key: &str| {
        let number = |line: &str| line.strip_prefix(key)?.strip_prefix(' ')?.parse::<u64>().ok();
        stat.value().and_then(|text| text.lines().find_map(number)).unwrap_or(0)
    };
    // File pages make room, but not those of shared memory and tmpfs, which lie on no file that they could go
    // to. Of what is swapped out, no more comes back than the areas that go hold.
    let droppable = pages(names.files).saturating_sub(pages(names.shared));
    let kept = usage.saturating_sub(droppable);
    let (held_bytes, room_bytes) = (swapped.min(going), limit.saturating_sub(kept).saturating_add(elsewhere));
    let path = folder.to_owned();
    (held_bytes > room_bytes).then_some(Missing::Group { path, held_bytes, room_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn host(available_kib: u64, more: &str) -> Root {
        Root::from_capture(&format!(
            "/proc/meminfo |\n|MemTotal: 4194304 kB\n|MemAvailable: {available_kib} kB\n|SwapCached: 1024 kB\n\
             /proc/swaps |\n|Filename Type Size Used Priority\n|/dev/a partition 2097152 1048576 10\n\
             |/dev/b partition 524288 0 5\n{more}"
        ))
        .unwrap()
    }

    fn off(root: &Root, areas: &[&str]) -> Option<Missing> {
        missing(root, &areas.iter().map(PathBuf::from).collect::<Vec<_>>())
    }

    #[test]
    fn what_fits_into_memory_and_the_other_areas_may_come_back() {
        assert_eq!(off(&host(1 << 20, ""), &["/dev/a"]), None);
        assert_eq!(off(&host(512 << 10, ""), &["/dev/a"]), None, "half of it goes to the other area");
        assert_eq!(off(&host(0, ""), &["/dev/b"]), None, "an empty area needs no room");
        assert_eq!(off(&host(0, ""), &["/dev/none"]), None);
        let said = off(&host(511 << 10, ""), &["/dev/a"]).unwrap().to_string();
        assert!(said.contains("1 GiB are swapped out") && said.contains("1 MiB are missing"), "{said}");
        // Compressed memory is no other place: filling it takes the memory it stands for.
        let zram = host(511 << 10, "|/dev/zram0 partition 4194304 0 100\n");
        assert_eq!(off(&zram, &["/dev/a"]).unwrap().to_string(), said);
        // Without the other area a MiB is in memory already, and counts for that.
        assert_eq!(off(&host(1023 << 10, ""), &["/dev/a", "/dev/b"]), None);
        assert!(off(&host(1022 << 10, ""), &["/dev/a", "/dev/b"]).is_some());
    }

    #[test]
    fn a_group_at_its_limit_is_named() {
        let v2 = |limit: &str, shared: u64| {
            host(
                4 << 20,
                &format!(
                    "/sys/fs/cgroup/cgroup.controllers = memory\n/sys/fs/cgroup/a.slice/cgroup.procs = 1\n\
                     /sys/fs/cgroup/a.slice/memory.current = {}\n/sys/fs/cgroup/a.slice/memory.max = {limit}\n\
                     /sys/fs/cgroup/a.slice/memory.swap.current = {}\n\
                     /sys/fs/cgroup/a.slice/memory.stat |\n|anon 1\n|file {}\n|shmem {}\n",
                    800 * MIB,
                    900 * MIB,
                    100 * MIB,
                    shared * MIB
                ),
            )
        };
        let both = ["/dev/a", "/dev/b"];
        let said = off(&v2(&(1024 * MIB).to_string(), 0), &both).unwrap();
        let wanted = Missing::Group {
            path: "/sys/fs/cgroup/a.slice".to_owned(),
            held_bytes: 900 * MIB,
            room_bytes: 324 * MIB,
        };
        assert_eq!(said, wanted);
        assert!(said.to_string().contains("576 MiB are missing"), "{said}");
        let said = off(&v2(&(1024 * MIB).to_string(), 60), &both).unwrap().to_string();
        assert!(said.contains("636 MiB are missing"), "shared memory makes no room: {said}");
        assert_eq!(off(&v2("max", 0), &both), None);
        assert_eq!(off(&v2(&(2048 * MIB).to_string(), 0), &both), None);
    }

    #[test]
    fn version_1_counts_swap_together_with_memory() {
        let root = host(
            4 << 20,
            &format!(
                "/sys/fs/cgroup/memory/vm/cgroup.procs = 1\n/sys/fs/cgroup/memory/vm/memory.usage_in_bytes = {0}\n\
                 /sys/fs/cgroup/memory/vm/memory.limit_in_bytes = {0}\n\
                 /sys/fs/cgroup/memory/vm/memory.memsw.usage_in_bytes = {1}\n\
                 /sys/fs/cgroup/memory/vm/memory.stat |\n|total_cache {2}\n|total_shmem {2}\n",
                256 * MIB,
                300 * MIB,
                44 * MIB
            ),
        );
        let said = off(&root, &["/dev/a", "/dev/b"]).unwrap().to_string();
        assert!(said.contains("44 MiB of the group /sys/fs/cgroup/memory/vm"), "{said}");
    }
}
