//! Strict accounting of memory (vm.overcommit_memory=2): the kernel counts what may be written to, whether it
//! ever is. A program then maps no more than is left of that, whatever the store holds.

use crate::flags::CompressFlag;
use overdrive_base::size::format_size;
use overdrive_host::facts::parse::field_kib;
use std::fs::read_to_string;

const REMEDY: &str = "vm.overcommit_memory=0 or 1, or a higher vm.overcommit_ratio";

/// A host that counts strictly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Strict {
    left_bytes: u64,
}

impl Strict {
    /// None where the kernel does not count, or does not tell.
    pub(super) fn of_this_host() -> Option<Self> {
        let [mode, memory] = ["/proc/sys/vm/overcommit_memory", "/proc/meminfo"].map(read_to_string);
        Self::parse(&mode.ok()?, &memory.ok()?)
    }

    fn parse(mode: &str, memory: &str) -> Option<Self> {
        let [limit, taken] = ["CommitLimit", "Committed_AS"].map(|key| field_kib(memory, key));
        (mode.trim() == "2").then_some(Self { left_bytes: limit.ok()?.saturating_sub(taken.ok()?) })
    }

    /// What is left for the program once the pager has its own: it maps as much as the budget for pages on
    /// their way, and as much again for compressed ones.
    ///
    /// # Errors
    /// Less than the budget.
    pub(super) fn left_for_program(self, dram_bytes: u64, compress: CompressFlag) -> Result<u64, String> {
        let times = if compress == CompressFlag::Off { 1 } else { 2 };
        let left = self.left_bytes.checked_sub(times * dram_bytes).filter(|&left| left >= dram_bytes);
        left.ok_or_else(|| {
            format!(
                "strict accounting (vm.overcommit_memory=2) leaves {} to map, and the pager maps {times} x \
                 --dram beside the program; wanted a smaller --dram, or {REMEDY}",
                format_size(self.left_bytes)
            )
        })
    }
}

/// That programs can map so much and no more.
pub(super) fn told(left_bytes: u64) -> String {
    format!(
        "strict accounting (vm.overcommit_memory=2): programs can map {} more in all, whatever the store holds; \
         {REMEDY}, makes it more",
        format_size(left_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use overdrive_base::size::GIB;

    #[test]
    fn what_the_kernel_counts_has_to_hold_the_pager_and_the_budget() {
        let memory = "MemTotal: 1 kB\nCommitLimit:    10485760 kB\nCommitted_AS:    2097152 kB\n";
        let parse = |mode| Strict::parse(mode, memory);
        assert_eq!([parse("0\n"), parse("1\n"), Strict::parse("2\n", "")], [None; 3]);
        let strict = parse("2\n").unwrap();
        assert_eq!(strict, Strict { left_bytes: 8 * GIB });
        assert_eq!(strict.left_for_program(2 * GIB, CompressFlag::Auto), Ok(4 * GIB));
        assert_eq!(strict.left_for_program(4 * GIB, CompressFlag::Off), Ok(4 * GIB));
        let refused = strict.left_for_program(3 * GIB, CompressFlag::Lz4).unwrap_err();
        assert!(refused.contains("leaves 8 GiB") && refused.contains("2 x --dram"), "{refused}");
        assert!(strict.left_for_program(u64::MAX / 2, CompressFlag::Auto).is_err());
        assert!(told(4 * GIB).contains("map 4 GiB more"));
    }
}
