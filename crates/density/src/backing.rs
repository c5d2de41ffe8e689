//! What is behind the memory of instances: the one place to add another.

use std::ffi::OsString;
use std::fmt;

/// What is behind the memory of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    /// DRAM alone: the fleet's group may not swap.
    Dram,
    /// DRAM up to the fleet's limit, and the kernel's swap beyond it.
    Swap,
}

impl Backing {
    /// Its name on the command line.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Backing::Dram => "dram",
            Backing::Swap => "swap",
        }
    }

    /// Whether memory beyond the limit goes to the kernel's swap.
    #[must_use]
    pub fn swaps(&self) -> bool {
        matches!(self, Backing::Swap)
    }

    /// The command that starts an instance on this backing, made from the one that starts it plainly.
    #[must_use]
    pub fn command(&self, words: Vec<OsString>) -> Vec<OsString> {
        match self {
            Backing::Dram | Backing::Swap => words,
        }
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
