//! What the kernel counts for a memory control group, in the words of either hierarchy.

use super::Version;
use std::fs;
use std::path::Path;

/// The kernel's own figures of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupCounters {
    /// The limit it holds, in bytes.
    pub limit_bytes: Option<u64>,
    /// Memory charged now, in bytes.
    pub usage_bytes: Option<u64>,
    /// The most that was ever charged, in bytes.
    pub usage_max_bytes: Option<u64>,
    /// Its memory in swap now, in bytes.
    pub swap_bytes: Option<u64>,
    /// DRAM that zswap takes for its memory in swap, in bytes; version 2 tells, from Linux 5.19 on.
    pub zswap_bytes: Option<u64>,
    /// How often an allocation met the limit.
    pub limit_hits: Option<u64>,
    /// Faults that read a page.
    pub major_faults: Option<u64>,
    /// What was written to swap, in bytes; version 2 tells, after Linux 6.12.
    pub swapped_out_bytes: Option<u64>,
    /// How often there was no room in swap for a page of its; version 2 tells.
    pub swap_refusals: Option<u64>,
    /// The most that was ever in swap, in bytes; version 2 tells, from Linux 6.5 on.
    pub swap_max_bytes: Option<u64>,
    /// The most that was ever charged or in swap, in bytes; version 1 tells.
    pub with_swap_max_bytes: Option<u64>,
    /// Processes the kernel killed because nothing could be reclaimed.
    pub oom_kills: Option<u64>,
}

/// What the kernel counts for the group at a path, whoever made it; what it does not tell is none.
#[must_use]
pub fn counters_at(path: &Path) -> GroupCounters {
    let is_v1 = path.join("memory.usage_in_bytes").exists();
    counters_of(path, if is_v1 { Version::V1 } else { Version::V2 })
}

/// Pages that came back into the group at a path since it was made, by whatever way: read because somebody
/// waited for them, with such a page, or ahead. None where the kernel does not tell.
#[must_use]
pub fn pages_brought_back(path: &Path) -> Option<u64> {
    let text = fs::read_to_string(path.join("memory.stat")).ok()?;
    // Version 1 counts those of groups inside it only in the figures so marked. Before Linux 5.9 one figure
    // is for all kinds of pages.
    let kinds = ["workingset_refault_anon", "workingset_refault", "pgmajfault"];
    let names = kinds.iter().flat_map(|kind| [format!("total_{kind}"), (*kind).to_owned()]);
    names.into_iter().find_map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    })
}

/// From here on a limit of version 1 is none: the kernel writes one as the most pages that it can count.
const NO_LIMIT: u64 = 1 << 62;

pub(super) fn counters_of(path: &Path, version: Version) -> GroupCounters {
    let read = |file: &str| fs::read_to_string(path.join(file)).unwrap_or_default();
    let number = |file: &str| read(file).trim().parse::<u64>().ok();
    let keyed = |file: &str, key: &str| {
        let text = read(file);
        let mut lines = text.lines().map(str::split_ascii_whitespace);
        lines.find_map(|mut words| {
            (words.next() == Some(key)).then(|| words.next()?.parse::<u64>().ok()).flatten()
        })
    };
    match version {
        Version::V1 => GroupCounters {
            limit_bytes: number("memory.limit_in_bytes").filter(|&bytes| bytes < NO_LIMIT),
            usage_bytes: number("memory.usage_in_bytes"),
            usage_max_bytes: number("memory.max_usage_in_bytes"),
            swap_bytes: keyed("memory.stat", "total_swap"),
            zswap_bytes: None,
            limit_hits: number("memory.failcnt"),
            major_faults: keyed("memory.stat", "total_pgmajfault"),
            swapped_out_bytes: None,
            swap_refusals: None,
            swap_max_bytes: None,
            with_swap_max_bytes: number("memory.memsw.max_usage_in_bytes"),
            oom_kills: keyed("memory.oom_control", "oom_kill"),
        },
        Version::V2 => GroupCounters {
            limit_bytes: number("memory.max"),
            usage_bytes: number("memory.current"),
            usage_max_bytes: number("memory.peak"),
            swap_bytes: number("memory.swap.current"),
            zswap_bytes: keyed("memory.stat", "zswap"),
            limit_hits: keyed("memory.events", "max"),
            major_faults: keyed("memory.stat", "pgmajfault"),
            swapped_out_bytes: keyed("memory.stat", "pswpout").map(|pages| pages * 4096),
            swap_refusals: keyed("memory.swap.events", "fail"),
            swap_max_bytes: number("memory.swap.peak"),
            with_swap_max_bytes: None,
            oom_kills: keyed("memory.events", "oom_kill"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_came_back_are_told_by_either_version() {
        let folder = tempfile::tempdir().unwrap();
        let told = |text: &str| {
            fs::write(folder.path().join("memory.stat"), text).unwrap();
            pages_brought_back(folder.path())
        };
        let one =
            "workingset_refault_anon 3\npgmajfault 4\ntotal_workingset_refault_anon 7\ntotal_pgmajfault 9\n";
        assert_eq!(told(one), Some(7));
        assert_eq!(told("anon 1\npgmajfault 4\nworkingset_refault_anon 5\n"), Some(5));
        assert_eq!(told("pgmajfault 4\nworkingset_refault 6\n"), Some(6));
        assert_eq!((told("pgmajfault 4\n"), told("anon 1\n")), (Some(4), None));
    }
}
