//! The budget of a run on the backend swap, where zswap takes a part of it: the limit of the group is
//! lower then, and what `status` shows as the budget lies in a file in the run's directory.

use super::say;
use overdrive_sys::memory_group::GroupError;
use overdrive_sys::memory_group::MemoryGroup;
use overdrive_sys::memory_group::zswap::{OVER, Share, UNKNOWN, ZswapFollower};
use overdrive_sys::shared_words::SharedWords;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

/// In the run's directory: the budget and zswap's part of it, as words that others may look at.
const BUDGET_FILE: &str = "budget";

/// Marks a file of this layout ("ovbudget").
const MAGIC: u64 = u64::from_le_bytes(*b"ovbudget");
const WORDS: usize = 3;

/// For what the kernel does not tell.
const UNKNOWN_BYTES: u64 = u64::MAX;

/// The budget at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    pub(super) bytes: u64,
    pub(super) zswap_bytes: Option<u64>,
}

impl Budget {
    /// That of the run with this directory; none where the kernel's limit is the budget.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        let words = SharedWords::map(&File::open(folder.join(BUDGET_FILE)).ok()?, WORDS, false).ok()?;
        let [mark, bytes, zswap] = [0, 1, 2].map(|place| words[place].load(Ordering::Acquire));
        let zswap_bytes = (zswap != UNKNOWN_BYTES).then_some(zswap);
        (mark == MAGIC).then_some(Self { bytes, zswap_bytes })
    }
}

fn write(words: &SharedWords, share: &Share) {
    words[1].store(share.budget_bytes, Ordering::Relaxed);
    words[2].store(share.zswap_bytes.unwrap_or(UNKNOWN_BYTES), Ordering::Relaxed);
    words[0].store(MAGIC, Ordering::Release);
}

/// Keeps group and zswap within the budget together, where the kernel does not do so itself, until what is
/// returned is dropped. What cannot be kept is said once.
pub(super) fn keep(
    group: &MemoryGroup,
    folder: &Path,
    is_quiet: bool,
) -> Result<Option<ZswapFollower>, GroupError> {
    let path = folder.join(BUDGET_FILE);
    let words = create(&path).map_err(|error| GroupError::Io { path, error })?;
    let mut said = is_quiet;
    ZswapFollower::start(&[group], None, move |_, share| {
        write(&words, share);
        let trouble = match share {
            Share { zswap_bytes: None, .. } => Some(UNKNOWN),
            Share { is_over: true, .. } => Some(OVER),
            _ => None,
        };
        if let (Some(trouble), false) = (trouble, said) {
            said = true;
            say(&format!("{trouble}; --dram is not kept, wanted zswap off (overdrive swap on --zswap off)"));
        }
    })
}

fn create(path: &Path) -> io::Result<SharedWords> {
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    file.set_len(WORDS as u64 * 8)?;
    Ok(SharedWords::map(&file, WORDS, true)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Budget::read(folder.path()), None);
        let words = create(&folder.path().join(BUDGET_FILE)).unwrap();
        assert_eq!(Budget::read(folder.path()), None, "nothing was looked at");
        for zswap_bytes in [Some(7), None] {
            write(&words, &Share { budget_bytes: 9, zswap_bytes, is_over: false });
            assert_eq!(Budget::read(folder.path()), Some(Budget { bytes: 9, zswap_bytes }));
        }
    }
}
