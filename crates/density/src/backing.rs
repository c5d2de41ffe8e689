//! What is behind the memory of instances: the one place to add another.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// What is behind the memory of a fleet.
#[derive(Debug, Clone)]
pub enum Backing {
    /// DRAM alone: the fleet's group may not swap.
    Dram,
    /// DRAM up to the fleet's limit, and the kernel's swap beyond it.
    Swap,
    /// The same, with room kept below the limit by whoever runs the fleet.
    ExtendSwap,
    /// A budget of DRAM for each instance, and Overdrive's pager beyond it.
    Extend(Extended),
}

/// How instances are put under the pager.
#[derive(Debug, Clone)]
pub struct Extended {
    /// The program that has the command `extend`.
    pub program: PathBuf,
    /// A folder of the run's own on the drive, in which it keeps what is cold. The fleet makes it.
    pub store: PathBuf,
    /// The most that one instance may have there, in bytes.
    pub store_bytes: u64,
    /// Budgets below this are refused, in bytes.
    pub budget_min_bytes: u64,
    /// Counts what the pagers of a store have moved since they were started.
    pub moved: fn(&Path) -> Moved,
    /// Counts the bytes that the pagers of a store keep there.
    pub stored: fn(&Path) -> u64,
}

/// What went between DRAM and what lies behind it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Bytes read back into DRAM.
    pub in_bytes: u64,
    /// Bytes written out of it.
    pub out_bytes: u64,
}

impl Backing {
    /// Its name on the command line.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Backing::Dram => "dram",
            Backing::Swap => "swap",
            Backing::ExtendSwap => "extend-swap",
            Backing::Extend(_) => "extend",
        }
    }

    /// Whether memory beyond the limit goes to the kernel's swap.
    #[must_use]
    pub fn swaps(&self) -> bool {
        matches!(self, Backing::Swap | Backing::ExtendSwap)
    }

    /// How its instances are put under the pager; none for those that share the fleet's DRAM.
    #[must_use]
    pub fn extended(&self) -> Option<&Extended> {
        match self {
            Backing::Extend(extended) => Some(extended),
            Backing::Dram | Backing::Swap | Backing::ExtendSwap => None,
        }
    }

    /// The command that starts an instance on this backing, made from the one that starts it plainly.
    /// `budget_bytes` is the DRAM of an instance that has its own.
    #[must_use]
    pub fn command(&self, words: Vec<OsString>, budget_bytes: Option<u64>) -> Vec<OsString> {
        let (Backing::Extend(extended), Some(budget)) = (self, budget_bytes) else { return words };
        let mut all: Vec<OsString> = vec![extended.program.clone().into()];
        all.extend(["extend", "--quiet", "--backend", "pager", "--dram"].map(OsString::from));
        all.push(budget.to_string().into());
        all.push("--store".into());
        let mut store = extended.store.clone().into_os_string();
        store.push(format!(":{}", extended.store_bytes));
        all.extend([store, "--".into()]);
        all.extend(words);
        all
    }
}

impl Extended {
    /// Deals `dram_bytes` out over instances by weight. A part of each share is left to what is not the
    /// instance's own memory: the program that waits for it, and pages that leave later than new ones come.
    #[must_use]
    pub fn budgets(&self, dram_bytes: u64, weights: &[f64]) -> Vec<u64> {
        let all: f64 = weights.iter().sum();
        let share = |weight: &f64| (dram_bytes as f64 * weight / all) as u64;
        let budget = |share: u64| (share - share / 32).saturating_sub(BESIDE_BYTES);
        weights.iter().map(share).map(budget).collect()
    }
}

/// What the waiting program takes, with what the kernel keeps for both.
const BESIDE_BYTES: u64 = 2 << 20;

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extended() -> Extended {
        Extended {
            program: "/bin/overdrive".into(),
            store: "/mnt/store".into(),
            store_bytes: 64 << 20,
            budget_min_bytes: 32 << 20,
            moved: |_| Moved::default(),
            stored: |_| 0,
        }
    }

    #[test]
    fn only_extended_instances_are_started_by_another_command() {
        let words = || vec![OsString::from("redis-server"), "--port".into()];
        assert_eq!(Backing::Dram.command(words(), None), words());
        assert_eq!(Backing::Swap.command(words(), Some(1)), words());
        let found = Backing::Extend(extended()).command(words(), Some(5 << 20));
        let found: Vec<_> = found.iter().map(|word| word.to_string_lossy()).collect();
        assert_eq!(
            found.join(" "),
            "/bin/overdrive extend --quiet --backend pager --dram 5242880 --store /mnt/store:67108864 -- redis-server \
             --port"
        );
    }

    #[test]
    fn dram_is_dealt_out_by_weight_and_never_more_than_there_is() {
        let dram = 512 << 20;
        let even = extended().budgets(dram, &[1.0; 4]);
        assert_eq!(even, [(124 << 20) - BESIDE_BYTES; 4]);
        let classes = extended().budgets(dram, &[1.0, 0.5, 0.25]);
        assert!(classes[0] > classes[1] && classes[1] > classes[2]);
        assert!(classes.iter().sum::<u64>() < dram);
        assert_eq!(extended().budgets(1 << 20, &[1.0]), [0]);
    }
}
