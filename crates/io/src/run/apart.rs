//! Whether jobs that run together keep off the blocks of one that checks content: what somebody else writes
//! over them meanwhile would be told as the drive's fault.

use super::{RunError, Task, place_of};
use crate::job::Region;
use crate::target::Target;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// What one task does to one of its targets.
struct Use {
    file: (u64, u64),
    regions: Vec<Region>,
    writes: bool,
    checked: bool,
}

/// Refuses tasks of which one writes where another checks what it has written. One task that names a target
/// twice is two in this.
///
/// # Errors
/// [`RunError::Overwritten`] then.
pub fn check_apart<'a>(tasks: impl IntoIterator<Item = &'a Task>) -> Result<(), RunError> {
    let uses: Vec<Use> = tasks.into_iter().flat_map(uses_of).collect();
    for (index, one) in uses.iter().enumerate() {
        let disturbs = |other: &Use| (one.checked && other.writes) || (other.checked && one.writes);
        if uses[index + 1..].iter().any(|other| disturbs(other) && meet(one, other)) {
            return Err(RunError::Overwritten);
        }
    }
    Ok(())
}

fn uses_of(task: &Task) -> impl Iterator<Item = Use> {
    let count = task.targets.len() as u32;
    let named = (0..count.min(task.job.workers)).zip(&task.targets);
    named.filter_map(move |(index, target)| {
        let of = place_of(index, task.job.workers, count, 0).of;
        let region = |number| task.job.region_of(number, of, target.size()).0;
        Some(Use {
            file: identity(target)?,
            regions: (0..of).map(region).collect(),
            writes: task.job.operation.writes(),
            checked: task.job.verify.is_some(),
        })
    })
}

/// What is the same under every name; none for a simulated device, which is each worker's own.
fn identity(target: &Target) -> Option<(u64, u64)> {
    let facts = target.file()?.metadata().ok()?;
    // No file has inode 0, so a device is never taken for one.
    Some(if facts.file_type().is_block_device() { (facts.rdev(), 0) } else { (facts.dev(), facts.ino()) })
}

fn meet(one: &Use, other: &Use) -> bool {
    let overlap = |a: &Region, b: &Region| {
        a.offset < b.offset.saturating_add(b.bytes) && b.offset < a.offset.saturating_add(a.bytes)
    };
    one.file == other.file && one.regions.iter().any(|a| other.regions.iter().any(|b| overlap(a, b)))
}
