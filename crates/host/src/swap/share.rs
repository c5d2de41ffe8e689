//! Which drives take the pages that are swapped out: the kernel counts them for all areas together.
//!
//! Areas of one priority are filled in turn, those of a lower one when these are full. Where that does not
//! tell who took how much, a drive is said to have taken all of it at most.

use super::activity::Drive;
use crate::facts::memory::SwapArea;

/// A drive and its share of all that is swapped out.
#[derive(Debug, Clone, PartialEq)]
pub struct Share {
    /// Its name.
    pub name: String,
    /// What is known of its life.
    pub drive: Drive,
    /// Its share, from 0 to 1.
    pub part: f64,
    /// It may be less.
    pub is_at_most: bool,
}

/// The shares of the drives, from each area with the drives below it; areas that take nothing are left out.
#[must_use]
pub fn shares(areas: &[(SwapArea, Vec<(String, Drive)>)]) -> Vec<Share> {
    let on_drives: Vec<_> = areas.iter().filter(|(area, _)| !area.is_zram()).collect();
    let top = on_drives.iter().map(|(area, _)| area.priority).max();
    // What holds pages took some, whether or not it is the next to be filled.
    let takes = |area: &SwapArea| Some(area.priority) == top || area.used_bytes > 0;
    let taking: Vec<_> = on_drives.iter().filter(|(area, _)| takes(area)).collect();
    let is_even = are_even(&taking.iter().map(|(area, _)| area).collect::<Vec<_>>());
    let part = if is_even { 1.0 / taking.len().max(1) as f64 } else { 1.0 };
    let mut shares: Vec<Share> = Vec::new();
    for (_, drives) in taking {
        // Pages for compressed memory are counted too; of several drives each may hold a copy or a part.
        let is_at_most = !is_even || on_drives.len() < areas.len() || drives.len() > 1;
        for (name, drive) in drives {
            match shares.iter_mut().find(|share| share.name == *name) {
                Some(known) => {
                    known.part = (known.part + part).min(1.0);
                    known.is_at_most |= is_at_most;
                }
                None => shares.push(Share { name: name.clone(), drive: *drive, part, is_at_most }),
            }
        }
    }
    shares
}

/// Whether areas took the same, by what they hold: a full one takes no more, and one that holds much less
/// than another was turned on later.
fn are_even(areas: &[&SwapArea]) -> bool {
    let used = || areas.iter().map(|area| area.used_bytes);
    let (least, most) = (used().min().unwrap_or(0), used().max().unwrap_or(0));
    let is_full = |area: &&SwapArea| area.used_bytes.saturating_add(area.size_bytes / 100) >= area.size_bytes;
    let has_one_priority = areas.iter().all(|area| area.priority == areas[0].priority);
    let is_in_turn = has_one_priority && !areas.iter().any(is_full) && least.saturating_mul(2) >= most;
    areas.len() == 1 || is_in_turn
}

/// The name of the drive that a disk is, or that it is one of the paths to: `nvme0n1` of `nvme0c1n1`.
#[must_use]
pub fn drive_name(disk: &str) -> String {
    let of_path = || {
        let (instance, rest) = disk.strip_prefix("nvme")?.split_once('c')?;
        let (_, namespace) = rest.split_once('n')?;
        Some(format!("nvme{instance}n{namespace}"))
    };
    of_path().unwrap_or_else(|| disk.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An area of 100 GiB: where, how much of it is used, its priority, the drives below.
    fn area(path: &str, used_gib: u64, priority: i64, drives: &[&str]) -> (SwapArea, Vec<(String, Drive)>) {
        let drive = Drive { size_bytes: 1 << 40, written_bytes: None, used_percent: None };
        let area = SwapArea {
            path: path.to_owned(),
            kind: "partition".to_owned(),
            size_bytes: 100 << 30,
            used_bytes: used_gib << 30,
            priority,
        };
        (area, drives.iter().map(|name| ((*name).to_owned(), drive)).collect())
    }

    fn told(areas: &[(SwapArea, Vec<(String, Drive)>)]) -> Vec<(String, f64, bool)> {
        shares(areas).into_iter().map(|share| (share.name, share.part, share.is_at_most)).collect()
    }

    fn row(name: &str, part: f64, is_at_most: bool) -> (String, f64, bool) {
        (name.to_owned(), part, is_at_most)
    }

    #[test]
    fn areas_of_one_priority_share_evenly_while_they_are_filled_in_turn() {
        let pair = |[first, second]: [u64; 2]| {
            told(&[area("/dev/a", first, 10, &["a"]), area("/dev/b", second, 10, &["b"])])
        };
        assert_eq!(pair([0, 0]), [row("a", 0.5, false), row("b", 0.5, false)]);
        assert_eq!(pair([60, 50]), [row("a", 0.5, false), row("b", 0.5, false)]);
        assert_eq!(pair([100, 90]), [row("a", 1.0, true), row("b", 1.0, true)], "one is full");
        assert_eq!(pair([60, 5]), [row("a", 1.0, true), row("b", 1.0, true)], "one came later");
        let one_drive = [area("/dev/a1", 1, 10, &["a"]), area("/dev/a2", 1, 10, &["a"])];
        assert_eq!(told(&one_drive), [row("a", 1.0, false)]);
    }

    #[test]
    fn a_lower_priority_takes_nothing_until_it_holds_something() {
        let host = |used| told(&[area("/dev/a", 9, 10, &["a"]), area("/dev/b", used, -2, &["b"])]);
        assert_eq!(host(0), [row("a", 1.0, false)]);
        assert_eq!(host(1), [row("a", 1.0, true), row("b", 1.0, true)]);
    }

    #[test]
    fn legs_of_an_array_take_all_and_zram_makes_it_a_bound() {
        let mirror = [area("/dev/md0", 9, 10, &["a", "b"])];
        assert_eq!(told(&mirror), [row("a", 1.0, true), row("b", 1.0, true)]);
        let behind = [area("/dev/zram0", 9, 100, &["zram0"]), area("/dev/a", 9, 10, &["a"])];
        assert_eq!(told(&behind), [row("a", 1.0, true)]);
        assert!(told(&behind[..1]).is_empty() && told(&[]).is_empty());
    }

    #[test]
    fn the_paths_to_a_drive_have_its_name() {
        assert_eq!(["nvme0c0n1", "nvme0c12n1"].map(drive_name), ["nvme0n1", "nvme0n1"]);
        assert_eq!(["nvme1n2", "sdc", "vda"].map(drive_name), ["nvme1n2", "sdc", "vda"]);
    }
}
