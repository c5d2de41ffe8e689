//! The words of `overdrive evaluate --ablate`.

use super::{ClassFlag, StateFlags};
use clap::Args;

/// Settings one at a time.
#[derive(Debug, Args)]
#[command(next_help_heading = "One setting at a time")]
pub(crate) struct AblateFlags {
    /// Measure a pair of workloads as found and with each advised change alone, and undo it (root)
    #[arg(long, conflicts_with = "against")]
    pub(crate) ablate: bool,
    /// With --ablate: only these rules' changes
    #[arg(long, value_name = "RULE,...", value_delimiter = ',', requires = "ablate")]
    pub(crate) rules: Option<Vec<String>>,
    /// With --ablate: the highest class of changes; A is safe, B has side effects
    #[arg(long, value_enum, ignore_case = true, default_value_t = ClassFlag::A, requires = "ablate")]
    pub(crate) class: ClassFlag,
    /// With --ablate: how often each setting is measured [default: 5, quick: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100), requires = "ablate")]
    pub(crate) repeats: Option<u32>,
    /// With --ablate: also write to the queue of a disk that is busy or swapped to
    #[arg(long, requires = "ablate")]
    pub(crate) even_if_busy: bool,
    #[command(flatten)]
    pub(crate) state: StateFlags,
}
