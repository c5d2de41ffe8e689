//! Memory: size, huge pages, zswap, and the swap areas in use.
//!
//! Reclaim knobs (swappiness, watermarks) belong to the memory profile and are read with its rules.

use super::parse::{self, Choice, Unexpected};
use super::{Fact, FactRow, Rows};
use crate::root::Root;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// What is known of memory.
#[derive(Debug, Clone)]
pub struct MemoryFacts {
    /// All memory, in bytes.
    pub total_bytes: Fact<u64>,
    /// What programs may still get without swapping, in bytes.
    pub available_bytes: Fact<u64>,
    /// Reserved huge pages.
    pub hugepages: Fact<u64>,
    /// Size of each, in bytes.
    pub hugepage_bytes: Fact<u64>,
    /// Transparent huge pages: always, madvise, never.
    pub thp_enabled: Fact<Choice>,
    /// How hard a fault works for one.
    pub thp_defrag: Fact<Choice>,
    /// Whether pages are compressed in memory before they are swapped out.
    pub zswap: Fact<bool>,
    /// Swap areas in use.
    pub swaps: Fact<Vec<SwapArea>>,
}

/// One line of /proc/swaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapArea {
    /// Device or file.
    pub path: String,
    /// `partition` or `file`.
    pub kind: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Higher is used first.
    pub priority: i64,
}

impl SwapArea {
    /// Whether it is compressed memory.
    #[must_use]
    pub fn is_zram(&self) -> bool {
        self.path.starts_with("/dev/zram")
    }
}

impl MemoryFacts {
    pub(super) fn read(root: &Root) -> MemoryFacts {
        let info = root.text("/proc/meminfo");
        let bytes = |key| info.clone().parse(|text| parse::field_kib(text, key));
        MemoryFacts {
            total_bytes: bytes("MemTotal"),
            available_bytes: bytes("MemAvailable"),
            hugepages: info.clone().parse(|text| {
                let value = parse::field(text, "HugePages_Total");
                parse::number(value.ok_or_else(|| Unexpected::new("HugePages_Total", "a line of that name"))?)
            }),
            hugepage_bytes: bytes("Hugepagesize"),
            thp_enabled: root.text(&format!("{THP}/enabled")).parse(parse::choice),
            thp_defrag: root.text(&format!("{THP}/defrag")).parse(parse::choice),
            zswap: root.text("/sys/module/zswap/parameters/enabled").parse(parse::switch),
            swaps: read_swaps(root),
        }
    }

    pub(super) fn rows(&self) -> Vec<FactRow> {
        let mut rows = Rows::new("memory");
        rows.bytes("total", "Memory", &self.total_bytes);
        rows.bytes("available", "Memory available", &self.available_bytes);
        rows.plain("hugepages", "Huge pages reserved", &self.hugepages, "");
        rows.bytes("hugepage_size", "Huge page size", &self.hugepage_bytes);
        rows.add("thp", "Transparent huge pages", &self.thp_enabled, |choice| choice.active.clone());
        rows.add("thp_defrag", "Their defragmentation", &self.thp_defrag, |choice| choice.active.clone());
        rows.yes_no("zswap", "zswap", &self.zswap);
        rows.add("swaps", "Swap areas", &self.swaps, |areas| {
            let show = |area: &SwapArea| {
                format!("{} {}", area.path, overdrive_base::size::format_size(area.size_bytes))
            };
            if areas.is_empty() {
                "none".to_owned()
            } else {
                areas.iter().map(show).collect::<Vec<_>>().join(", ")
            }
        });
        rows.into_vec()
    }
}

/// The swap areas in use; absent on a kernel built without swap.
#[must_use]
pub fn read_swaps(root: &Root) -> Fact<Vec<SwapArea>> {
    root.text("/proc/swaps").parse(|text| text.lines().skip(1).map(swap_line).collect())
}

fn swap_line(line: &str) -> Result<SwapArea, Unexpected> {
    let fail = || Unexpected::new(line, "file name, type, size, used and priority");
    let columns: Vec<&str> = line.split_whitespace().collect();
    let [path, kind, size, used, priority] = columns[..] else { return Err(fail()) };
    let kib = |text: &str| {
        parse::number::<u64>(text).ok().and_then(|count| count.checked_mul(1024)).ok_or_else(fail)
    };
    Ok(SwapArea {
        path: parse::unescape(path),
        kind: kind.to_owned(),
        size_bytes: kib(size)?,
        used_bytes: kib(used)?,
        priority: parse::number(priority)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_a_swap_line() {
        let area = swap_line("/dev/dm-1\tpartition\t8388604\t1024\t-2").unwrap();
        assert_eq!((area.path.as_str(), area.size_bytes, area.priority), ("/dev/dm-1", 8_388_604 << 10, -2));
        assert_eq!(swap_line("/swap\\040file file 4 0 10").unwrap().path, "/swap file");
        assert!(swap_line("/dev/x partition").is_err() && swap_line("a b 99999999999999999999 0 0").is_err());
    }

    proptest! {
        #[test]
        fn nothing_panics(text in ".{0,60}") {
            let _ = swap_line(&text);
        }
    }
}
