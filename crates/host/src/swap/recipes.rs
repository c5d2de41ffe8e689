//! Both of the vendor's recipes for swap on fast drives, row by row beside what this kernel needs.
//!
//! The guide is the P4800X evaluation guide (section 7.3) with the appendix on swap of the Memory Drive
//! Technology paper, which agree; the blueprint is Intel 340608-001US with its scripts. Both are of 2018 to
//! 2020 and kernels 4.11 to 4.18: several rows no longer mean what they meant.

use super::setup::{Setup, ZSWAP};
use crate::audit::Audit;
use crate::change::swap::manner_of;
use crate::change::{Kind, meaning};
use crate::facts::block::QueueFacts;

/// One row of the comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// What is set.
    pub topic: &'static str,
    /// What the guide says.
    pub guide: &'static str,
    /// What the blueprint says.
    pub blueprint: &'static str,
    /// What this host gets.
    pub here: String,
    /// Why.
    pub why: &'static str,
}

/// Where it is found out what this host gets.
enum Here {
    /// The same on every host.
    Always(&'static str),
    /// A setting of the host, by its path.
    Setting(&'static str),
    /// A file of the queue of the first disk.
    Queue(&'static str, fn(&QueueFacts) -> Option<String>),
    /// Something with a reader of its own.
    Asked(fn(&Audit, &Setup) -> String),
}

const VM: &str = "/proc/sys/vm";
const THP: &str = "/sys/kernel/mm/transparent_hugepage";

/// Topic, guide, blueprint, here, why.
const TABLE: &[(&str, &str, &str, Here, &str)] = &[
    (
        "where",
        "whole drive, wipefs -a, one a socket",
        "up to 28 partitions, 14 a drive, one drive a socket",
        Here::Always("one area a drive, at most 23 in all"),
        "kernels of today keep more kinds of swap entries for themselves, so 28 fail; since the cluster allocator \
         of 6.12 splitting a drive spreads no lock",
    ),
    (
        "priority",
        "10 on every drive",
        "10 on every partition",
        Here::Asked(priority),
        "equal priorities fill in turn; from 4.14 to 6.18 leaving them unset fills from the CPU's own node first, \
         and from 6.19 on unset ones are filled in turn as well",
    ),
    (
        "swap that is on",
        "swapoff -a",
        "-",
        Here::Always("left on, after ours"),
        "turning it all off can need more memory than there is",
    ),
    (
        "page-cluster",
        "0",
        "0 (script)",
        Here::Setting("page-cluster"),
        "a fault reads 1 page at 0; scans gain from 3 to 5",
    ),
    (
        "swappiness",
        "-",
        "60, the default",
        Here::Setting("swappiness"),
        "60 throws file pages out before cold memory; 100 says swap is as fast as files (0 to 200 since 5.8)",
    ),
    (
        "watermark_scale_factor",
        "400",
        "400",
        Here::Setting("watermark_scale_factor"),
        "kswapd starts earlier, before programs reclaim by themselves; 400 keeps 4 % idle, so it is capped on \
         large nodes",
    ),
    (
        "huge pages",
        "never",
        "never",
        Here::Asked(|audit, setup| {
            let now = audit.host.memory.thp_enabled.value().map(|choice| choice.active.clone());
            planned_or(setup, &format!("{THP}/enabled"), now)
        }),
        "madvise leaves them to programs that ask; sizes below 2 MiB have switches of their own since 6.8",
    ),
    (
        "their defrag",
        "never",
        "never",
        Here::Asked(|audit, setup| {
            let now = audit.host.memory.thp_defrag.value().map(|choice| choice.active.clone());
            planned_or(setup, &format!("{THP}/defrag"), now)
        }),
        "always would compact memory inside a fault",
    ),
    (
        "numa_balancing",
        "0",
        "0 (script)",
        Here::Asked(|audit, setup| {
            let now = audit.host.numa.balancing.get().map(|mode| mode.to_string());
            planned_or(setup, "/proc/sys/kernel/numa_balancing", now)
        }),
        "it unmaps pages to see who uses them; means nothing with one memory node",
    ),
    (
        "scheduler",
        "mq-deadline",
        "none",
        Here::Queue("scheduler", |queue| Some(queue.scheduler.value()?.active.clone())),
        "a fast drive orders by itself; mq-deadline takes CPU time and one lock",
    ),
    (
        "nr_requests",
        "64",
        "64 (script)",
        Here::Queue("nr_requests", |queue| Some(queue.nr_requests.get()?.to_string())),
        "64 bounds how many writes stand before a read, and how many reads are out: left to a measurement \
         (--nr-requests)",
    ),
    (
        "max_sectors_kb",
        "32",
        "32 (script)",
        Here::Queue("max_sectors_kb", |queue| Some(queue.max_sectors_kb.get()?.to_string())),
        "small writes let reads pass on slow drives and cost bandwidth on all (--max-sectors)",
    ),
    (
        "nomerges",
        "-",
        "2",
        Here::Queue("nomerges", |queue| Some(queue.nomerges.get()?.to_string())),
        "saves the search for a neighbour, and swap-outs that would merge no longer do (--nomerges)",
    ),
    (
        "MGLRU",
        "-",
        "-",
        Here::Setting("/sys/kernel/mm/lru_gen/enabled"),
        "newer than both (6.1): picks victims by generations; compare under your load",
    ),
    (
        "rcu_nocbs",
        "0-N, all CPUs",
        "0-N (also printed as rcu_nocb=, which does not exist)",
        Here::Asked(|audit, _| match audit.host.kernel.parameter("rcu_nocbs") {
            Some(cpus) => as_it_is(cpus),
            None => "all, at the next boot".to_owned(),
        }),
        "a boot parameter: only advised. With CONFIG_RCU_LAZY, rcutree.enable_rcu_lazy=0 belongs to it",
    ),
    (
        "block size",
        "-",
        "4 KiB format",
        Here::Always("advised when the drive offers it"),
        "formatting destroys what is on the drive",
    ),
    (
        "zswap",
        "-",
        "-",
        Here::Asked(|audit, setup| {
            let now = audit.host.memory.zswap.get().map(|on| if on { "Y" } else { "N" }.to_owned());
            planned_or(setup, ZSWAP, now)
        }),
        "newer than both: on, fewer writes reach the drive; off, a fault costs what the drive costs (--zswap)",
    ),
];

/// The rows for a host; `setup` is what would be done there.
#[must_use]
pub fn rows(audit: &Audit, setup: &Setup) -> Vec<Row> {
    let row = |(topic, guide, blueprint, here, why): &(
        &'static str,
        &'static str,
        &'static str,
        Here,
        &'static str,
    )| { Row { topic, guide, blueprint, here: here.text(audit, setup), why } };
    TABLE.iter().map(row).collect()
}

impl Here {
    fn text(&self, audit: &Audit, setup: &Setup) -> String {
        match self {
            Here::Always(text) => (*text).to_owned(),
            Here::Setting(name) => {
                let path = if name.starts_with('/') { (*name).to_owned() } else { format!("{VM}/{name}") };
                let now = audit.host.settings.text(&path);
                planned_or(setup, &path, now.value().map(|text| meaning(text).to_owned()))
            }
            Here::Queue(file, read) => {
                let end = format!("/queue/{file}");
                let planned = setup.plan.changes.iter().find(|change| change.path.ends_with(&end));
                let now = audit.target.disks.first().and_then(|disk| read(&disk.block.queue));
                let planned = planned.and_then(|change| change.new.clone());
                planned.unwrap_or_else(|| now.map_or_else(|| "-".to_owned(), |now| as_it_is(&now)))
            }
            Here::Asked(ask) => ask(audit, setup),
        }
    }
}

fn as_it_is(text: &str) -> String {
    format!("{text} (as it is)")
}

/// What a path will read: as planned, or as it is.
fn planned_or(setup: &Setup, path: &str, now: Option<String>) -> String {
    let planned = setup.plan.changes.iter().find(|change| change.path == path);
    let planned = planned.and_then(|change| change.new.clone());
    planned.unwrap_or_else(|| now.map_or_else(|| "not in this kernel".to_owned(), |now| as_it_is(&now)))
}

fn priority(_: &Audit, setup: &Setup) -> String {
    let area = setup.plan.changes.iter().find(|change| change.kind == Kind::SwapArea);
    let manner = area.and_then(|change| manner_of(change.new.as_deref()?));
    match manner.map(|manner| manner.priority) {
        Some(Some(priority)) => priority.to_string(),
        Some(None) => "unset".to_owned(),
        None => "10, or unset by node".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Profile;
    use crate::root::Root;
    use std::time::Duration;

    #[test]
    fn every_row_says_what_is_done_here_and_why() {
        let root = Root::from_capture(
            "/proc/sys/kernel/osrelease = 6.12.0\n/proc/sys/vm/swappiness = 60\n/proc/sys/vm/page-cluster = 3\n\
             /proc/cmdline = quiet rcu_nocbs=0-3\n/proc/meminfo |\n|MemTotal: 1048576 kB\n",
        )
        .unwrap();
        let audit = Audit::of(&root, None, Profile::Memory, Duration::ZERO).unwrap();
        let rows = rows(&audit, &Setup::default());
        assert!(rows.len() >= 15);
        assert!(rows.iter().all(|row| !row.here.is_empty() && row.why.len() > 20), "{rows:?}");
        let here = |topic| rows.iter().find(|row| row.topic == topic).unwrap().here.clone();
        assert_eq!(here("swappiness"), "60 (as it is)");
        assert_eq!(here("rcu_nocbs"), "0-3 (as it is)");
        assert_eq!(here("MGLRU"), "not in this kernel");
    }
}
