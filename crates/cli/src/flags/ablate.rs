//! The words of `overdrive evaluate --ablate`.

use super::{ClassFlag, StateFlags};
use clap::Args;

/// Settings one at a time.
#[derive(Debug, Args)]
#[command(next_help_heading = "One setting at a time")]
#[command(mut_arg("state", |state| {
    state.help("With --ablate: the directory of the journal of changes [default: /var/lib/overdrive]")
}))]
pub(crate) struct AblateFlags {
    /// Measure two workloads with the host as found, then with each advised change alone, which is undone
    /// again (root)
    #[arg(long, conflicts_with = "against")]
    pub(crate) ablate: bool,
    /// With --ablate: only these rules' changes
    #[arg(long, value_name = "RULE,...", value_delimiter = ',', requires = "ablate")]
    pub(crate) rules: Option<Vec<String>>,
    /// With --ablate: the highest class of changes; A is safe, B has side effects
    #[arg(long, value_enum, ignore_case = true, default_value_t = ClassFlag::A, requires = "ablate")]
    pub(crate) class: ClassFlag,
    /// With --ablate: how often each setting is measured [default: 5, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100), requires = "ablate")]
    pub(crate) repeats: Option<u32>,
    /// With --ablate: change the queue of a disk even while it is busy or swapped to
    #[arg(long, requires = "ablate")]
    pub(crate) even_if_busy: bool,
    #[command(flatten)]
    pub(crate) state: StateFlags,
}
