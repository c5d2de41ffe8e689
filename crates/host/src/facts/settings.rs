//! Settings and counters of the host that stand alone in one file: sysctls, module parameters, memory knobs.
//!
//! One table row a file. The text is kept as read; the rules parse it, since most ask one question of one
//! file. What comes in several files, or depends on the target, has a reader of its own.

use super::parse::{self, Unexpected};
use super::{Fact, FactRow, Rows};
use crate::root::Root;
use std::collections::BTreeMap;
use std::str::FromStr;

/// Whether a file holds a setting, which belongs to a configuration, or moves by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Setting,
    Moving,
}
use Kind::{Moving, Setting};

/// Every file that is read, see [`Settings::text`].
const FILES: &[(&str, Kind)] = &[
    ("/proc/sys/vm/swappiness", Setting),
    ("/proc/sys/vm/page-cluster", Setting),
    ("/proc/sys/vm/watermark_scale_factor", Setting),
    ("/proc/sys/vm/watermark_boost_factor", Setting),
    ("/proc/sys/vm/min_free_kbytes", Setting),
    ("/proc/sys/vm/compaction_proactiveness", Setting),
    ("/proc/sys/vm/compact_unevictable_allowed", Setting),
    ("/proc/sys/vm/defrag_mode", Setting),
    ("/proc/sys/vm/dirty_ratio", Setting),
    ("/proc/sys/vm/dirty_bytes", Setting),
    ("/proc/sys/vm/dirty_background_ratio", Setting),
    ("/proc/sys/vm/dirty_background_bytes", Setting),
    ("/proc/sys/vm/overcommit_memory", Setting),
    ("/proc/sys/vm/max_map_count", Setting),
    ("/proc/sys/vm/unprivileged_userfaultfd", Setting),
    ("/proc/sys/vm/laptop_mode", Setting),
    ("/proc/sys/vm/stat_interval", Setting),
    ("/proc/sys/vm/zone_reclaim_mode", Setting),
    ("/proc/sys/kernel/bpf_stats_enabled", Setting),
    ("/proc/sys/kernel/nmi_watchdog", Setting),
    ("/proc/sys/kernel/watchdog", Setting),
    ("/proc/sys/kernel/timer_migration", Setting),
    ("/proc/sys/kernel/sched_autogroup_enabled", Setting),
    ("/proc/sys/kernel/sched_rt_runtime_us", Setting),
    ("/proc/sys/kernel/sched_rt_period_us", Setting),
    ("/proc/irq/default_smp_affinity", Setting),
    ("/sys/kernel/mm/transparent_hugepage/shrink_underused", Setting),
    ("/sys/kernel/mm/ksm/run", Setting),
    ("/sys/kernel/mm/lru_gen/enabled", Setting),
    ("/sys/kernel/mm/lru_gen/min_ttl_ms", Setting),
    ("/sys/kernel/mm/swap/vma_ra_enabled", Setting),
    ("/sys/kernel/mm/numa/demotion_enabled", Setting),
    ("/sys/kernel/security/lockdown", Setting),
    ("/sys/devices/system/cpu/isolated", Setting),
    ("/sys/devices/system/cpu/nohz_full", Setting),
    ("/sys/devices/system/cpu/intel_pstate/min_perf_pct", Setting),
    ("/sys/devices/system/cpu/intel_pstate/no_turbo", Setting),
    ("/sys/devices/system/cpu/cpufreq/boost", Setting),
    ("/sys/devices/system/cpu/cpuidle/available_governors", Setting),
    ("/sys/devices/virtual/workqueue/cpumask", Setting),
    ("/sys/module/intel_idle/parameters/max_cstate", Setting),
    ("/sys/module/nvme/parameters/use_threaded_interrupts", Setting),
    ("/sys/module/nvme/parameters/poll_queues", Setting),
    ("/sys/module/nvme/parameters/write_queues", Setting),
    ("/sys/module/nvme/parameters/io_queue_depth", Setting),
    ("/sys/module/nvme_core/parameters/io_timeout", Setting),
    ("/sys/module/nvme_core/parameters/multipath", Setting),
    ("/sys/module/zswap/parameters/compressor", Setting),
    ("/sys/module/zswap/parameters/max_pool_percent", Setting),
    ("/sys/module/zswap/parameters/shrinker_enabled", Setting),
    ("/sys/module/zswap/parameters/zpool", Setting),
    ("/sys/firmware/acpi/platform_profile", Setting),
    ("/sys/firmware/acpi/platform_profile_choices", Setting),
    ("/sys/class/dmi/id/bios_date", Setting),
    ("/sys/kernel/tracing/current_tracer", Setting),
    ("/sys/kernel/tracing/set_event", Setting),
    ("/sys/kernel/tracing/kprobe_events", Setting),
    ("/etc/tuned/active_profile", Setting),
    ("/etc/default/grub", Setting),
    ("/dev/cpu_dma_latency", Moving),
    ("/proc/vmstat", Moving),
    ("/proc/pressure/memory", Moving),
    ("/proc/softirqs", Moving),
];

/// The texts of all files of the table.
#[derive(Debug, Clone)]
pub struct Settings {
    texts: BTreeMap<&'static str, Fact<String>>,
}

impl Settings {
    pub(super) fn read(root: &Root) -> Settings {
        let read = |path: &'static str| match path {
            // Four bytes: the strictest request in force, in microseconds.
            "/dev/cpu_dma_latency" => root.bytes(path, 4).and_then(|bytes| match bytes.as_slice() {
                &[a, b, c, d] => Ok(i32::from_le_bytes([a, b, c, d]).to_string()),
                other => Err(Unexpected::new(&format!("{} bytes", other.len()), "a number of four bytes")),
            }),
            path => root.text(path),
        };
        Settings { texts: FILES.iter().map(|&(path, _)| (path, read(path))).collect() }
    }

    /// The text of a file of the table; any other path is unreadable and says so.
    #[must_use]
    pub fn text(&self, path: &str) -> Fact<String> {
        self.texts.get(path).cloned().unwrap_or_else(|| Fact::Unreadable {
            path: path.to_owned(),
            errno: None,
            why: "not among the files that are read".to_owned(),
        })
    }

    /// The same as a number.
    #[must_use]
    pub fn number<T: FromStr>(&self, path: &str) -> Fact<T> {
        self.text(path).parse(parse::number)
    }

    /// A counter of /proc/vmstat.
    #[must_use]
    pub fn vmstat(&self, name: &str) -> Option<u64> {
        let text = self.text("/proc/vmstat");
        let line = text.value()?.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    }

    /// The settings that were found, as rows; counters and multi-line texts are left out.
    pub(super) fn rows(&self) -> Vec<FactRow> {
        let mut rows = Rows::new("setting");
        for &(path, kind) in FILES {
            let fact = self.text(path);
            if kind == Setting && fact.value().is_some_and(|text| !text.contains('\n')) {
                let id = path.trim_start_matches('/').replace('/', ".");
                rows.plain(&id, path, &fact, "");
            }
        }
        rows.into_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_latency_request_reads_as_a_number() {
        let root = Root::from_capture("/dev/cpu_dma_latency = 00943577\n").unwrap();
        let settings = Settings::read(&root);
        assert_eq!(settings.number::<i64>("/dev/cpu_dma_latency").get(), Some(2_000_000_000));
    }

    #[test]
    fn a_path_outside_the_table_is_never_absent() {
        let settings = Settings::read(&Root::from_capture("/proc/vmstat = pswpin 12\n").unwrap());
        assert!(!settings.text("/proc/sys/vm/typo").is_absent());
        assert!(settings.text("/proc/sys/vm/swappiness").is_absent());
        assert_eq!((settings.vmstat("pswpin"), settings.vmstat("pswp")), (Some(12), None));
    }
}
