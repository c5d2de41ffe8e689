//! Power and heat of the machine: per-CPU power requests, uncore clock, power caps, cooling, memory channels.
//!
//! Everything here repeats per CPU, socket or device, and many machines have none of it.

use super::parse::CpuSet;
use super::{Fact, each};
use crate::root::Root;

const CPU: &str = "/sys/devices/system/cpu";

/// A file that several devices have: the device's name and the text.
pub type Named = (String, Fact<String>);

/// What is known of the machine's power and heat.
#[derive(Debug, Clone)]
pub struct MachineFacts {
    /// Energy-performance bias of each CPU, 0 (speed) to 15.
    pub energy_bias: Vec<Named>,
    /// Wake-up latency each CPU tolerates: `n/a` is none, 0 is any.
    pub resume_latency: Vec<Named>,
    /// Times each core was slowed down for heat since boot.
    pub throttle_count: Vec<Named>,
    /// Lowest uncore clock allowed, by die, in kHz.
    pub uncore_min_khz: Vec<Named>,
    /// Highest uncore clock at boot, by die, in kHz.
    pub uncore_initial_max_khz: Vec<Named>,
    /// Long-term power limit of each socket, in uW.
    pub power_limit_uw: Vec<Named>,
    /// What each of those sockets is built for, in uW.
    pub power_max_uw: Vec<Named>,
    /// Kind of each cooling device.
    pub cooling_kind: Vec<Named>,
    /// How hard each cools; 0 is not at all.
    pub cooling_state: Vec<Named>,
    /// Memory controllers and their size in MB, from error detection.
    pub memory_controllers: Vec<Named>,
    /// Memory modules and their size in MB, as the controllers list them.
    pub memory_modules: Vec<Named>,
}

impl MachineFacts {
    pub(super) fn read(root: &Root, online: &Fact<CpuSet>) -> MachineFacts {
        let per_cpu = |file: &str| {
            let cpus = online.value().into_iter().flat_map(CpuSet::iter);
            let read = cpus.map(|cpu| (format!("cpu{cpu}"), root.text(&format!("{CPU}/cpu{cpu}/{file}"))));
            read.filter(|(_, fact)| !fact.is_absent()).collect()
        };
        let uncore = format!("{CPU}/intel_uncore_frequency");
        let edac = "/sys/devices/system/edac/mc";
        let controllers = each(root, edac, "mc", "size_mb");
        let modules = controllers.iter().flat_map(|(name, _)| {
            let folder = format!("{edac}/{name}");
            let mut found = each(root, &folder, "dimm", "size");
            found.extend(each(root, &folder, "rank", "size"));
            found.into_iter().map(move |(module, fact)| (format!("{name}/{module}"), fact))
        });
        MachineFacts {
            energy_bias: per_cpu("power/energy_perf_bias"),
            resume_latency: per_cpu("power/pm_qos_resume_latency_us"),
            throttle_count: per_cpu("thermal_throttle/core_throttle_count"),
            uncore_min_khz: each(root, &uncore, "package_", "min_freq_khz"),
            uncore_initial_max_khz: each(root, &uncore, "package_", "initial_max_freq_khz"),
            power_limit_uw: each(root, "/sys/class/powercap", "intel-rapl:", "constraint_0_power_limit_uw"),
            power_max_uw: each(root, "/sys/class/powercap", "intel-rapl:", "constraint_0_max_power_uw"),
            cooling_kind: each(root, "/sys/class/thermal", "cooling_device", "type"),
            cooling_state: each(root, "/sys/class/thermal", "cooling_device", "cur_state"),
            memory_modules: modules.collect(),
            memory_controllers: controllers,
        }
    }
}
