//! Huge pages: reserved ones by memory node, transparent ones by size, and how often the latter fell apart.

use super::machine::Named;
use super::{Fact, each};
use crate::root::Root;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// What is known of huge pages beyond the two switches in `memory`.
#[derive(Debug, Clone)]
pub struct HugepageFacts {
    /// Switch of each transparent size (6.8 and newer).
    pub sizes: Vec<Named>,
    /// Pages of each size swapped out whole.
    pub swapped_whole: Vec<Named>,
    /// Pages of each size that had to be split for swapping.
    pub swapped_split: Vec<Named>,
    /// 2 MiB pages reserved on each node.
    pub reserved: Vec<Named>,
    /// Access to userfaultfd without the sysctl: whether the device exists.
    pub userfaultfd_device: bool,
}

impl HugepageFacts {
    pub(super) fn read(root: &Root) -> HugepageFacts {
        let nodes = "/sys/devices/system/node";
        HugepageFacts {
            sizes: each(root, THP, "hugepages-", "enabled"),
            swapped_whole: each(root, THP, "hugepages-", "stats/swpout"),
            swapped_split: each(root, THP, "hugepages-", "stats/swpout_fallback"),
            reserved: each(root, nodes, "node", "hugepages/hugepages-2048kB/nr_hugepages"),
            userfaultfd_device: root.exists("/dev/userfaultfd"),
        }
    }

    /// The sum of a counter over all sizes.
    #[must_use]
    pub fn sum(counters: &[Named]) -> u64 {
        let numbers = counters.iter().filter_map(|(_, fact)| fact.value()?.parse::<u64>().ok());
        numbers.fold(0, u64::saturating_add)
    }
}

/// One fact that stands for several files with the same question.
pub(crate) fn together(list: &[Named], path: &str) -> Fact<String> {
    if list.is_empty() {
        return Fact::Absent { path: path.to_owned() };
    }
    if let Some((_, bad)) = list.iter().find(|(_, fact)| fact.value().is_none()) {
        return bad.clone();
    }
    let text = super::tally(list.iter().filter_map(|(_, fact)| fact.value()));
    Fact::known(text.clone(), text, path)
}
