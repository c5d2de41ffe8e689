//! Changing a host so that it can always be taken back: plan -> journal -> write -> read back -> undo.
//!
//! - [`plan`] makes a plan, a value, from findings; nothing is written.
//! - [`journal`] is the log that knows what stood where: intent before each write, result after.
//! - [`state`] replays it: which changes stand, and what each path would read without them.
//! - [`machine`] decides, without any I/O, what comes next for a change; [`driver`] does it on a [`system`].
//! - [`swap`] gives swap spaces and areas the words in which they are planned, journaled and compared.
//! - [`persist`] turns changes into configuration files of our own, which are changes like any other.
//! - [`rehearsal`] lets undo say beforehand what it would do.
//! - [`busy`] says why a disk's queue should be left alone now.
//!
//! [`fake`] is a host in memory that refuses, rounds, fills up and dies on demand; it ships, for tests.

pub mod busy;
pub mod driver;
pub mod fake;
pub mod journal;
pub mod machine;
pub mod persist;
pub mod plan;
pub mod rehearsal;
pub mod shell;
pub mod state;
pub mod swap;
pub mod system;

use serde::{Deserialize, Serialize};

/// What a change writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One value of the running kernel, below /sys or /proc/sys: gone with the next boot.
    Attribute,
    /// A configuration file of Overdrive's own: stays.
    File,
    /// What makes a device or a file fit to be swapped to, its first page: stays.
    SwapSpace,
    /// A swap area that is on: gone with the next boot.
    SwapArea,
}

impl Kind {
    /// Whether a boot takes it back.
    #[must_use]
    pub fn ends_with_boot(self) -> bool {
        matches!(self, Kind::Attribute | Kind::SwapArea)
    }

    /// Whether it is about swap.
    #[must_use]
    pub fn is_swap(self) -> bool {
        matches!(self, Kind::SwapSpace | Kind::SwapArea)
    }
}

/// The device an attribute belongs to, by something that outlives its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its folder when the change was made, such as `/sys/block/nvme0n1`.
    pub folder: String,
    /// Its identity: `wwid:...`, `serial:...`, or `path:...` where it has neither; `at:PLACE:` before one of
    /// these where another device says the same.
    pub id: String,
}

impl Device {
    /// Its kernel name.
    #[must_use]
    pub fn name(&self) -> &str {
        crate::target::last(&self.folder)
    }

    /// What of a path comes after the device's own name: of an attribute, or of its node or a part of it.
    #[must_use]
    pub fn rest<'a>(&self, path: &'a str) -> Option<&'a str> {
        let node = |path: &'a str| path.strip_prefix("/dev/")?.strip_prefix(self.name());
        path.strip_prefix(self.folder.as_str()).or_else(|| node(path))
    }

    /// The same path when the device is found in another folder.
    #[must_use]
    pub fn renamed(&self, path: &str, folder: &str) -> String {
        match self.rest(path) {
            Some(rest) if path.starts_with("/dev/") => format!("/dev/{}{rest}", crate::target::last(folder)),
            Some(rest) => format!("{folder}{rest}"),
            None => path.to_owned(),
        }
    }
}

/// One intended change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The rule that asks for it.
    pub rule: String,
    /// The letter of its class.
    pub class: String,
    /// What is written to.
    pub kind: Kind,
    /// Where, as on a running system.
    pub path: String,
    /// What stood there when the plan was made, as read; none: no file.
    pub old: Option<String>,
    /// What is to stand there; none: no file.
    pub new: Option<String>,
    /// The device it belongs to.
    pub device: Option<Device>,
}

/// What a text read from an attribute stands for: of `a [b] c` the `b`, else the text without white space
/// around it.
#[must_use]
pub fn meaning(text: &str) -> &str {
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
    chosen.unwrap_or(text).trim()
}

/// Whether two texts read from a path say the same.
#[must_use]
pub fn same(kind: Kind, a: Option<&str>, b: Option<&str>) -> bool {
    match (kind, a, b) {
        (Kind::Attribute, Some(a), Some(b)) => meaning(a) == meaning(b),
        (Kind::SwapArea, Some(a), Some(b)) => swap::same_area(a, b),
        _ => a == b,
    }
}

/// Paths that the kernel changes along with this one: they are kept and restored with it.
#[must_use]
pub fn side_effects(path: &str) -> Vec<String> {
    const TABLE: [(&str, &[&str]); 7] = [
        // A new scheduler brings its own number of requests, and bfq switches throttling off.
        ("/queue/scheduler", &["nr_requests", "wbt_lat_usec"]),
        // intel_pstate and amd-pstate force the preference under the performance governor.
        ("/scaling_governor", &["energy_performance_preference"]),
        // khugepaged, started or stopped by it, has the kernel compute its reserve anew.
        ("/transparent_hugepage/enabled", &["/proc/sys/vm/min_free_kbytes"]),
        // Of each pair one is in force: setting it zeroes the other.
        ("/vm/dirty_bytes", &["dirty_ratio"]),
        ("/vm/dirty_ratio", &["dirty_bytes"]),
        ("/vm/dirty_background_bytes", &["dirty_background_ratio"]),
        ("/vm/dirty_background_ratio", &["dirty_background_bytes"]),
    ];
    let Some((folder, _)) = path.rsplit_once('/') else { return Vec::new() };
    let row = TABLE.iter().find(|(end, _)| path.ends_with(end));
    let place =
        |name: &&str| if name.starts_with('/') { (*name).to_owned() } else { format!("{folder}/{name}") };
    row.map_or_else(Vec::new, |(_, names)| names.iter().map(place).collect())
}

/// Every attribute that a rule's fix or `swap on` writes, and what moves along with it; `*` stands for any
/// part of a name, `**` for any folders.
const ATTRIBUTES: &[&str] = &[
    "/proc/sys/fs/aio-max-nr",
    "/proc/sys/kernel/bpf_stats_enabled",
    "/proc/sys/kernel/io_uring_disabled",
    "/proc/sys/kernel/nmi_watchdog",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/sched_autogroup_enabled",
    "/proc/sys/kernel/timer_migration",
    "/proc/sys/vm/compact_unevictable_allowed",
    "/proc/sys/vm/compaction_proactiveness",
    "/proc/sys/vm/dirty_background_bytes",
    "/proc/sys/vm/dirty_background_ratio",
    "/proc/sys/vm/dirty_bytes",
    "/proc/sys/vm/dirty_ratio",
    "/proc/sys/vm/laptop_mode",
    "/proc/sys/vm/max_map_count",
    "/proc/sys/vm/min_free_kbytes",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/page-cluster",
    "/proc/sys/vm/stat_interval",
    "/proc/sys/vm/swappiness",
    "/proc/sys/vm/unprivileged_userfaultfd",
    "/proc/sys/vm/watermark_boost_factor",
    "/proc/sys/vm/watermark_scale_factor",
    "/proc/sys/vm/zone_reclaim_mode",
    "/sys/block/*/queue/*",
    "/sys/block/*/trace/enable",
    "/sys/class/nvme/*/power/pm_qos_latency_tolerance_us",
    "/sys/class/nvme-subsystem/*/iopolicy",
    "/sys/bus/pci/devices/*/power/control",
    "/sys/devices/**/power/control",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/devices/system/cpu/cpu*/cpuidle/state*/disable",
    "/sys/devices/system/cpu/cpu*/power/energy_perf_bias",
    "/sys/devices/system/cpu/cpufreq/boost",
    "/sys/devices/system/cpu/cpufreq/policy*/energy_performance_preference",
    "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
    "/sys/devices/system/cpu/cpuidle/current_governor",
    "/sys/devices/system/cpu/intel_pstate/min_perf_pct",
    "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "/sys/devices/system/cpu/intel_uncore_frequency/package_*/min_freq_khz",
    "/sys/devices/virtual/workqueue/cpumask",
    "/sys/firmware/acpi/platform_profile",
    "/sys/fs/cgroup/**/memory.swap.max",
    "/sys/fs/cgroup/**/memory.zswap.max",
    "/sys/fs/cgroup/**/memory.zswap.writeback",
    "/sys/kernel/mm/ksm/run",
    "/sys/kernel/mm/lru_gen/enabled",
    "/sys/kernel/mm/numa/demotion_enabled",
    "/sys/kernel/mm/swap/vma_ra_enabled",
    "/sys/kernel/mm/transparent_hugepage/**",
    "/sys/kernel/tracing/current_tracer",
    "/sys/module/haltpoll/parameters/guest_halt_poll_ns",
    "/sys/module/pcie_aspm/parameters/policy",
    "/sys/module/zswap/parameters/*",
];

/// Whether a path is one of a pattern's, part by part; `**` stands for any number of parts.
fn fits(pattern: &str, path: &str) -> bool {
    let Some((part, pattern)) = pattern.split_once('/') else {
        return pattern == "**" || (!path.contains('/') && plan::matches(pattern, path));
    };
    let behind = |path: &str| path.split_once('/').map(|(_, rest)| rest.to_owned());
    if part == "**" {
        return fits(pattern, path) || behind(path).is_some_and(|rest| fits(&format!("**/{pattern}"), &rest));
    }
    let (name, rest) = path.split_once('/').unwrap_or((path, ""));
    path.contains('/') && plan::matches(part, name) && fits(pattern, rest)
}

/// Whether Overdrive may ever write there: attributes, files that carry its name in folders for such files,
/// and what can be swapped to. A damaged or forged journal can lead nowhere else.
#[must_use]
pub fn may_write(kind: Kind, path: &str) -> bool {
    if path.split('/').any(|part| part == ".." || part == ".") {
        return false;
    }
    match kind {
        Kind::Attribute => ATTRIBUTES.iter().any(|pattern| fits(pattern, path)),
        Kind::File => persist::FOLDERS.iter().any(|folder| {
            let name = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
            name.is_some_and(|name| name.contains("overdrive") && !name.contains('/'))
        }),
        // What is there is looked at before each write: only a swap space is ever removed or written over.
        Kind::SwapSpace | Kind::SwapArea => {
            let elsewhere = !path.starts_with("/sys/") && !path.starts_with("/proc/");
            path.starts_with('/') && !path.ends_with('/') && elsewhere
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_of_several_is_the_meaning() {
        assert_eq!(meaning("none [mq-deadline] kyber\n"), "mq-deadline");
        assert_eq!(meaning(" 128\n"), "128");
        assert!(same(Kind::Attribute, Some("[a] b\n"), Some("a")));
        assert!(!same(Kind::File, Some("a\n"), Some("a")));
        assert!(!same(Kind::Attribute, None, Some("")));
    }

    #[test]
    fn what_moves_along_may_stand_elsewhere() {
        assert_eq!(
            side_effects("/sys/block/sda/queue/scheduler"),
            ["/sys/block/sda/queue/nr_requests", "/sys/block/sda/queue/wbt_lat_usec"]
        );
        let reserve = side_effects("/sys/kernel/mm/transparent_hugepage/enabled");
        assert_eq!(reserve, ["/proc/sys/vm/min_free_kbytes"]);
        assert_eq!(side_effects("/proc/sys/vm/swappiness"), [""; 0]);
    }

    #[test]
    fn a_devices_node_is_followed_like_its_attributes() {
        let device = Device { folder: "/sys/block/sda".to_owned(), id: "wwid:one".to_owned() };
        let moved = |path| device.renamed(path, "/sys/block/sdb");
        assert_eq!(moved("/sys/block/sda/queue/nomerges"), "/sys/block/sdb/queue/nomerges");
        assert_eq!((moved("/dev/sda"), moved("/dev/sda2")), ("/dev/sdb".to_owned(), "/dev/sdb2".to_owned()));
        assert_eq!(moved("/var/swap"), "/var/swap");
    }

    #[test]
    fn only_attributes_and_own_files_may_be_written() {
        for path in [
            "/sys/block/vda/queue/scheduler",
            "/proc/sys/vm/swappiness",
            "/sys/fs/cgroup/memory.swap.max",
            "/sys/fs/cgroup/a.slice/b.scope/memory.swap.max",
            "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled",
        ] {
            assert!(may_write(Kind::Attribute, path), "{path}");
        }
        for path in [
            "/etc/passwd",
            "/sys/../etc/passwd",
            "/sys/bus/pci/drivers/nvme/unbind",
            "/proc/sysrq-trigger",
            "/sys/power/state",
            "/proc/sys/kernel/core_pattern",
            "/sys/class/nvme/nvme0/reset_controller",
            "/sys/block/sda/device/delete",
            "/sys/block/sda/queue/a/b",
            "/sys/fs/cgroup/a/cgroup.kill",
        ] {
            assert!(!may_write(Kind::Attribute, path), "{path}");
        }
        assert!(may_write(Kind::SwapArea, "/dev/nvme0n1") && may_write(Kind::SwapSpace, "/var/swap"));
        for path in ["/proc/swaps", "/dev/../etc/passwd", "swap", "/var/"] {
            assert!(!may_write(Kind::SwapSpace, path), "{path}");
        }
        assert!(may_write(Kind::File, "/etc/sysctl.d/90-overdrive-1.conf"));
        for path in ["/etc/sysctl.d/99-theirs.conf", "/etc/sysctl.d/overdrive/x", "/etc/overdrive.conf"] {
            assert!(!may_write(Kind::File, path), "{path}");
        }
    }
}
