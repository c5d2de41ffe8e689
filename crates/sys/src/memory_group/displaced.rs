//! Whether a swap area can be turned off without harm to groups that have a limit: what they have in it must
//! find room in other areas, as their limits leave it none in DRAM. Where it does not, the kernel kills.

use super::hierarchy::hierarchy;
use super::{counters_at, each_child};
use crate::swap::Area;
use std::fs;
use std::path::{Path, PathBuf};

/// Whether what limited groups other than `except` (and what is inside it) have in the areas `going` has room
/// in the others that are on.
///
/// # Errors
/// How much has none.
pub(super) fn check_areas_can_go(going: &[PathBuf], except: &Path) -> Result<(), String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let displaced = hierarchy(&mounts).map_or(0, |(_, root)| displaced_bytes(&root, except));
    // None are on where they cannot be read.
    check(&crate::swap::areas().unwrap_or_default(), going, displaced)
}

fn check(areas: &[Area], going: &[PathBuf], displaced: u64) -> Result<(), String> {
    let (go, stay): (Vec<_>, Vec<_>) = areas.iter().partition(|area| going.contains(&area.path));
    let moved = displaced.min(go.iter().map(|area| area.used_bytes).sum());
    let free = stay.iter().map(|area| area.size_bytes.saturating_sub(area.used_bytes)).sum::<u64>();
    if moved <= free {
        return Ok(());
    }
    let (moved, free) = (moved >> 20, free >> 20);
    Err(format!(
        "{moved} MiB of other groups at their limits may lie there too, and elsewhere {free} are free"
    ))
}

/// What limited groups at and below a path have in swap beyond the room that their limits leave in DRAM.
fn displaced_bytes(group: &Path, except: &Path) -> u64 {
    if group == except {
        return 0;
    }
    let mut inside = 0;
    each_child(group, &mut |child| inside += displaced_bytes(child, except));
    let counters = counters_at(group);
    let own = counters.limit_bytes.zip(counters.usage_bytes).zip(counters.swap_bytes);
    // What `except` has counts in those above it, and comes back under their limits, which others see to.
    let own = own
        .filter(|_| !except.starts_with(group))
        .map_or(0, |((limit, usage), swap)| swap.saturating_sub(limit.saturating_sub(usage)));
    own.max(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(path: &str, size_bytes: u64, used_bytes: u64) -> Area {
        Area { path: path.into(), size_bytes, used_bytes, priority: 0 }
    }

    #[test]
    fn what_has_no_room_elsewhere_is_told() {
        const MIB: u64 = 1 << 20;
        let areas = [area("/a", 64 * MIB, 40 * MIB), area("/b", 64 * MIB, 30 * MIB)];
        let going = [PathBuf::from("/a")];
        assert_eq!(check(&areas, &going, 34 * MIB), Ok(()));
        let why = "35 MiB of other groups at their limits may lie there too, and elsewhere 34 are free";
        assert_eq!(check(&areas, &going, 35 * MIB), Err(why.to_owned()));
        assert!(check(&areas, &going, 500 * MIB).unwrap_err().starts_with("40 MiB"), "no more than is in it");
        assert_eq!(check(&areas[..1], &going, 0), Ok(()), "nobody is at a limit");
        assert_eq!(check(&areas[1..], &going, 500 * MIB), Ok(()), "it is off already");
    }

    #[test]
    fn groups_with_room_under_their_limits_are_no_matter() {
        let root = tempfile::tempdir().unwrap();
        let make = |name: &str, limit: &str, usage: u64, swap: u64| {
            let path = root.path().join(name);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("memory.max"), limit).unwrap();
            fs::write(path.join("memory.current"), usage.to_string()).unwrap();
            fs::write(path.join("memory.swap.current"), swap.to_string()).unwrap();
        };
        make("free", "max", 900, 500);
        make("wide", "1000", 100, 500);
        make("full", "1000", 990, 70);
        make("full/inner", "max", 500, 70);
        make("slice", "5000", 1000, 300);
        make("slice/held", "100", 100, 200);
        make("slice/tight", "100", 100, 100);
        let displaced = |except: &str| displaced_bytes(root.path(), &root.path().join(except));
        assert_eq!(displaced("slice/held"), 60 + 100);
        assert_eq!(displaced("none"), 60 + 300);
        assert_eq!(displaced("full"), 300);
    }
}
