//! Whether the host is a virtual machine, and what the platform calls itself.
//!
//! No CPUID instruction is executed: a captured host must answer as well.

use super::{Fact, FactRow, Rows, cpu};
use crate::root::Root;

/// What is known of the platform.
#[derive(Debug, Clone)]
pub struct HypervisorFacts {
    /// Whether the processor reports a hypervisor (x86 only).
    pub flag: Fact<bool>,
    /// /sys/hypervisor/type, such as `xen`.
    pub kind: Fact<String>,
    /// Maker of the machine, from the firmware tables.
    pub vendor: Fact<String>,
    /// Model of the machine.
    pub product: Fact<String>,
    /// Firmware version.
    pub firmware: Fact<String>,
}

impl HypervisorFacts {
    pub(super) fn read(root: &Root) -> HypervisorFacts {
        let flags = cpu::info_field(&root.text("/proc/cpuinfo"), "flags");
        let dmi = |name: &str| root.text(&format!("/sys/class/dmi/id/{name}"));
        let present = flags.value().map(|text| text.split(' ').any(|flag| flag == "hypervisor"));
        HypervisorFacts {
            flag: match present {
                // The whole flag list is no evidence anybody would read.
                Some(present) => Fact::known(
                    present,
                    if present { "flag hypervisor" } else { "no flag hypervisor" },
                    flags.path(),
                ),
                None => flags.map(|_| false),
            },
            kind: root.text("/sys/hypervisor/type"),
            vendor: dmi("sys_vendor"),
            product: dmi("product_name"),
            firmware: dmi("bios_version"),
        }
    }

    /// Whether the host is a virtual machine, as far as is known.
    #[must_use]
    pub fn is_guest(&self) -> Option<bool> {
        match (self.flag.get(), self.kind.value()) {
            (Some(true), _) | (_, Some(_)) => Some(true),
            (Some(false), None) => Some(false),
            (None, None) => None,
        }
    }

    pub(super) fn rows(&self) -> Vec<FactRow> {
        let mut rows = Rows::new("platform");
        rows.add("virtual", "Virtual machine", &self.flag, |&flag| {
            if flag { "yes" } else { "no" }.to_owned()
        });
        rows.plain("hypervisor", "Hypervisor", &self.kind, "");
        rows.plain("vendor", "Machine vendor", &self.vendor, "");
        rows.plain("product", "Machine", &self.product, "");
        rows.plain("firmware", "Firmware", &self.firmware, "");
        rows.into_vec()
    }
}
