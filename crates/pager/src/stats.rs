//! Counters that others may look at while the engine runs: in memory, or in a file that any process can map.

use overdrive_sys::Errno;
use overdrive_sys::shared_words::SharedWords;
use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! stats {
    ($($(#[$doc:meta])* $variant:ident $name:literal,)*) => {
        /// One counter or gauge. Pages, unless the name says otherwise.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Stat {
            $($(#[$doc])* $variant,)*
        }

        impl Stat {
            /// All of them, in the order of the file.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name, as in `--json`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

stats! {
    /// What the file is: see [`MAGIC`].
    Magic "magic",
    /// Faults served.
    Faults "faults",
    /// Faults on pages never written: zeroes.
    ZeroFills "zero_fills",
    /// Faults served from staging, without I/O.
    Rescues "rescues",
    /// Pages put in place from staging beside such a fault's.
    RescuedAround "rescued_around",
    /// Faults that read the store.
    Loads "loads",
    /// Pages read ahead.
    ReadAhead "read_ahead",
    /// Pages read ahead that were used.
    ReadAheadUsed "read_ahead_used",
    /// Pages evicted.
    Evicted "evicted",
    /// Evicted pages that were unchanged, so that nothing was written.
    EvictedClean "evicted_clean",
    /// Evicted pages that were all zeroes.
    EvictedZero "evicted_zero",
    /// Pages written to the store.
    Written "written",
    /// Pages moved to empty a segment of the store.
    Cleaned "cleaned",
    /// Faults that had to wait for memory: rises while memory is first filled, and should not after that.
    DirectStalls "direct_stalls",
    /// Attempts on pages that something held in place.
    Pinned "pinned",
    /// Reads or writes of the store that failed.
    StoreErrors "store_errors",
    /// Pages lost to a failing store.
    Lost "lost",
    /// Pages in DRAM, in place.
    Resident "resident",
    /// Pages in staging.
    Staged "staged",
    /// Pages on the store.
    Stored "stored",
    /// What the process holds in DRAM besides: not under the pager, its own tables included.
    Unmanaged "unmanaged",
    /// The most pages held at once, of all kinds.
    HeldMax "held_max",
    /// Bytes of addresses under the pager.
    ManagedBytes "managed_bytes",
    /// The budget in bytes.
    BudgetBytes "budget_bytes",
    /// Median time to serve a fault from the store during the last second, in nanoseconds.
    FaultP50 "fault_p50_ns",
    /// 99th percentile of the same.
    FaultP99 "fault_p99_ns",
    /// The longest of all since the start.
    FaultMax "fault_max_ns",
    /// Children being served after a fork.
    Children "children",
    /// How often writing stopped because the day's share was used up.
    WritesPaced "writes_paced",
    /// How often the store was found full with the program above its budget.
    StoreFull "store_full",
    /// Where the page that was lost last lay on the store, in bytes.
    LossOffset "last_loss_offset",
    /// Its address in the program.
    LossAddress "last_loss_address",
    /// The errno its last read ended with; 0 when the read brought too little or other data.
    LossErrno "last_loss_errno",
    /// Pages in the compressed tier.
    Compressed "compressed",
    /// What these take in DRAM.
    CompressedDram "compressed_dram",
    /// Faults served from the compressed tier, without I/O.
    Expands "expands",
    /// Pages of the compressed tier put in place ahead of a scan.
    ExpandedAhead "expanded_ahead",
    /// How often, in seconds, more than the budget was held that could not be evicted.
    TooSmall "budget_too_small",
    /// What the largest child holds that is above the budget and that no engine can evict; 0 when there is
    /// none.
    ChildAbove "child_above",
    /// How often a page in place was seen to have been written to.
    WritesSeen "writes_seen",
    /// How often a page stayed in place that had been written to, as the rest of its block went.
    KeptInUse "kept_in_use",
    /// Shared memory that the process has in DRAM, which no budget is for; what is mapped twice counts twice.
    Shared "shared",
}

/// Marks a file of counters of this layout ("overmem", version 7).
pub const MAGIC: u64 = u64::from_le_bytes(*b"overmem\x07");

/// Behind the counters: what the process is called, as the kernel cuts it, and zeroes to fill, for those who
/// look when it has ended.
const NAME_BYTES: usize = 16;
const COUNTERS_BYTES: usize = Stat::ALL.len() * 8;

/// The counters of one engine.
#[derive(Debug)]
pub struct Stats {
    words: Words,
}

#[derive(Debug)]
enum Words {
    Own(Box<[AtomicU64]>),
    Shared(SharedWords),
}

impl Default for Stats {
    fn default() -> Self {
        Self { words: Words::Own(Stat::ALL.iter().map(|_| AtomicU64::new(0)).collect()) }
    }
}

impl Stats {
    /// Counters of a process of this name in a file, which is made long enough; all begin at 0. They are
    /// written, not only mapped: a full file system refuses that, where the first touch of a mapped page
    /// without a place on it would end the process (SIGBUS).
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn create(file: &File, name: &[u8]) -> Result<Self, Errno> {
        let mut content = [0; COUNTERS_BYTES + NAME_BYTES];
        content[COUNTERS_BYTES..].iter_mut().zip(name).for_each(|(to, from)| *to = *from);
        let written = file.write_all_at(&content, 0);
        written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let stats = Self { words: Words::Shared(SharedWords::map(file, Stat::ALL.len(), true)?) };
        stats.set(Stat::Magic, MAGIC);
        Ok(stats)
    }

    /// Another process's counters.
    ///
    /// # Errors
    /// EINVAL when the file is none of ours; else the kernel's errno.
    pub fn open(file: &File) -> Result<Self, Errno> {
        let stats = Self { words: Words::Shared(SharedWords::map(file, Stat::ALL.len(), false)?) };
        if stats.get(Stat::Magic) == MAGIC { Ok(stats) } else { Err(Errno::INVAL) }
    }

    /// What the process was called when it began, of a file that [`Stats::open`] takes.
    #[must_use]
    pub fn name_in(file: &File) -> String {
        let mut name = [0; NAME_BYTES];
        // Unreadable: it has none.
        let _ = file.read_exact_at(&mut name, COUNTERS_BYTES as u64);
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        String::from_utf8_lossy(&name[..end]).into_owned()
    }

    /// Adds to a counter. Only the engine writes, so that no atomic addition is needed.
    #[inline]
    pub fn add(&self, stat: Stat, more: u64) {
        let word = &self.words[stat as usize];
        word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// Sets a gauge.
    #[inline]
    pub fn set(&self, stat: Stat, value: u64) {
        self.words[stat as usize].store(value, Ordering::Relaxed);
    }

    /// Raises a gauge to a value it has not had yet.
    #[inline]
    pub fn raise(&self, stat: Stat, value: u64) {
        if self.get(stat) < value {
            self.set(stat, value);
        }
    }

    /// Reads one.
    #[must_use]
    pub fn get(&self, stat: Stat) -> u64 {
        self.words[stat as usize].load(Ordering::Relaxed)
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        match self {
            Self::Own(words) => words,
            Self::Shared(words) => words,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_in_a_file_are_seen_by_others() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Stats::open(&file).unwrap_err(), Errno::INVAL, "empty");
        let stats = Stats::create(&file, b"a name too long for it").unwrap();
        stats.add(Stat::Loads, 3);
        stats.raise(Stat::HeldMax, 9);
        stats.raise(Stat::HeldMax, 4);
        let seen = Stats::open(&file).unwrap();
        assert_eq!((seen.get(Stat::Loads), seen.get(Stat::HeldMax)), (3, 9));
        assert_eq!(Stats::name_in(&file), "a name too long ");
        Stats::create(&file, b"another").unwrap();
        assert_eq!(Stats::name_in(&file), "another");
        stats.set(Stat::Magic, 1);
        assert_eq!(Stats::open(&file).unwrap_err(), Errno::INVAL, "another layout");
    }

    #[test]
    fn names_differ() {
        let names: std::collections::BTreeSet<_> = Stat::ALL.iter().map(|stat| stat.name()).collect();
        assert_eq!(names.len(), Stat::ALL.len());
    }

    /// All but the mark of the file, which nobody is shown.
    #[test]
    fn the_document_names_every_counter() {
        let document = include_str!("../../../docs/formats.md");
        let names = Stat::ALL.iter().filter(|&&stat| stat != Stat::Magic).map(|stat| stat.name());
        let missing: Vec<_> = names.filter(|name| !document.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "docs/formats.md does not describe {missing:?}");
    }
}
