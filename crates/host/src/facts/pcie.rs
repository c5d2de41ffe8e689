//! One PCI device on the way to a disk: link of both ends, power saving, memory node, translation.
//!
//! The ports above it, and the configuration space, are in `path`.

pub mod path;

use super::irq::{self, Interrupt};
use super::parse::{self, CpuSet, Unexpected};
use super::{Fact, FactRow, Rows};
use crate::root::Root;

/// What is known of one PCI device.
#[derive(Debug, Clone)]
pub struct PcieFacts {
    /// Address, such as `0000:3b:00.0`.
    pub address: String,
    /// Its directory in /sys.
    pub folder: String,
    /// Vendor and device numbers, such as `0x8086:0x2701`.
    pub identity: Fact<String>,
    /// Its own end of the link.
    pub link: LinkFacts,
    /// Address and end of the port above it; `None` on a root bus.
    pub parent: Option<(String, LinkFacts)>,
    /// Memory node; -1 when the firmware does not say.
    pub numa_node: Fact<i64>,
    /// CPUs near it.
    pub local_cpus: Fact<CpuSet>,
    /// The interrupts that bring its completions.
    pub interrupts: Fact<Vec<Interrupt>>,
    /// The host's power saving policy for links.
    pub aspm_policy: Fact<parse::Choice>,
    /// Link states this device may enter, such as `l1_aspm`, with 0 or 1.
    pub aspm_states: Vec<(String, Fact<bool>)>,
    /// How its memory accesses are translated: `DMA`, `DMA-FQ`, `identity`; absent without an IOMMU.
    pub iommu_type: Fact<String>,
    /// Runtime power management: `on` or `auto`.
    pub power_control: Fact<String>,
    /// The way up to the host bridge, and who shares it.
    pub path: path::PathFacts,
}

/// One end of a link.
#[derive(Debug, Clone)]
pub struct LinkFacts {
    /// Speed now, in MT/s a lane.
    pub speed_mts: Fact<u32>,
    /// Speed this end could do.
    pub speed_max_mts: Fact<u32>,
    /// Lanes now.
    pub width: Fact<u32>,
    /// Lanes this end has.
    pub width_max: Fact<u32>,
}

/// A link's rate and what it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// MT/s a lane.
    pub speed_mts: u32,
    /// Lanes.
    pub width: u32,
}

impl Link {
    /// Bytes a second in each direction after line coding: 8b/10b up to 5 GT/s, 128b/130b up to 32 GT/s, and
    /// the 236 of 256 flit bytes that carry packets at 64 GT/s. Packet headers still come off this.
    #[must_use]
    pub fn bytes_per_second(self) -> u64 {
        let (payload, of) = match self.speed_mts {
            0..8_000 => (8, 10),
            8_000..64_000 => (128, 130),
            _ => (236, 256),
        };
        u64::from(self.speed_mts) * 1_000_000 * u64::from(self.width) * payload / of / 8
    }
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} GT/s x{}", f64::from(self.speed_mts) / 1000.0, self.width)
    }
}

impl LinkFacts {
    pub(crate) fn read(root: &Root, folder: &str) -> LinkFacts {
        let attr = |name: &str| root.text(&format!("{folder}/{name}"));
        LinkFacts {
            speed_mts: attr("current_link_speed").parse(speed),
            speed_max_mts: attr("max_link_speed").parse(speed),
            width: attr("current_link_width").parse(width),
            width_max: attr("max_link_width").parse(width),
        }
    }

    /// The link as it runs.
    #[must_use]
    pub fn now(&self) -> Option<Link> {
        Some(Link { speed_mts: self.speed_mts.get()?, width: self.width.get()? })
    }
}

impl PcieFacts {
    /// Reads a device by its directory in /sys.
    pub(crate) fn read(root: &Root, folder: &str) -> PcieFacts {
        let attr = |name: &str| root.text(&format!("{folder}/{name}"));
        let (above, address) = folder.rsplit_once('/').unwrap_or(("", folder));
        let parent = above.rsplit('/').next().filter(|name| is_address(name));
        let device = attr("device");
        let states = root.list(&format!("{folder}/link"));
        let states = states.value().into_iter().flatten();
        PcieFacts {
            address: address.to_owned(),
            folder: folder.to_owned(),
            identity: attr("vendor").and_then(|vendor| match device.value() {
                Some(device) => Ok(format!("{vendor}:{device}")),
                None => Err(Unexpected::new(vendor, "a device number beside the vendor")),
            }),
            link: LinkFacts::read(root, folder),
            parent: parent.map(|name| (name.to_owned(), LinkFacts::read(root, above))),
            numa_node: attr("numa_node").parse(parse::number),
            local_cpus: attr("local_cpulist").parse(parse::cpu_list),
            interrupts: irq::of_device(root, folder),
            aspm_policy: root.text("/sys/module/pcie_aspm/parameters/policy").parse(parse::choice),
            aspm_states: states
                .map(|name| (name.clone(), attr(&format!("link/{name}")).parse(parse::switch)))
                .collect(),
            iommu_type: attr("iommu_group/type"),
            power_control: attr("power/control"),
            path: path::PathFacts::read(root, folder),
        }
    }

    /// The CPUs that take its completion interrupts, when that can be told.
    #[must_use]
    pub fn completion_cpus(&self) -> Option<CpuSet> {
        irq::completion_cpus(&self.interrupts)
    }

    /// The best link that both ends could have, as far as they tell.
    #[must_use]
    pub fn best_link(&self) -> Option<Link> {
        let own = Link { speed_mts: self.link.speed_max_mts.get()?, width: self.link.width_max.get()? };
        let above = self.parent.as_ref().map(|(_, link)| link);
        let speed = above.and_then(|link| link.speed_max_mts.get()).unwrap_or(u32::MAX);
        let width = above.and_then(|link| link.width_max.get()).unwrap_or(u32::MAX);
        Some(Link { speed_mts: own.speed_mts.min(speed), width: own.width.min(width) })
    }

    pub(crate) fn rows(&self) -> Vec<FactRow> {
        let mut rows = Rows::new(format!("pcie.{}", self.address));
        rows.plain("identity", "PCI identity", &self.identity, "");
        link_rows(&mut rows, "link", "Link", &self.link);
        if let Some((address, link)) = &self.parent {
            link_rows(&mut rows, "parent", &format!("Port {address}"), link);
        }
        if let Some(link) = self.link.now() {
            let rate = Fact::known(link.bytes_per_second(), "", format!("{}/current_link_*", self.folder));
            rows.add("bandwidth", "Link bandwidth", &rate, |&bytes| {
                format!("{:.2} GB/s", bytes as f64 / 1e9)
            });
        }
        rows.plain("numa_node", "NUMA node", &self.numa_node, "");
        rows.plain("local_cpus", "Near CPUs", &self.local_cpus, "");
        rows.extend(irq::rows(&format!("pcie.{}", self.address), &self.interrupts));
        rows.add("aspm_policy", "Link power saving policy", &self.aspm_policy, |choice| {
            choice.active.clone()
        });
        for (name, state) in &self.aspm_states {
            rows.yes_no(&format!("link.{name}"), &format!("Link state {name} allowed"), state);
        }
        rows.plain("iommu_type", "IOMMU translation", &self.iommu_type, "");
        rows.plain("power_control", "Runtime power management", &self.power_control, "");
        self.path.rows(&mut rows, &self.folder);
        rows.into_vec()
    }
}

fn link_rows(rows: &mut Rows, id: &str, label: &str, link: &LinkFacts) {
    let rate = |&mts: &u32| format!("{} GT/s", f64::from(mts) / 1000.0);
    rows.add(&format!("{id}.speed"), &format!("{label} speed"), &link.speed_mts, rate);
    rows.add(&format!("{id}.speed_max"), &format!("{label} speed possible"), &link.speed_max_mts, rate);
    rows.add(&format!("{id}.width"), &format!("{label} width"), &link.width, |lanes| format!("x{lanes}"));
    rows.add(&format!("{id}.width_max"), &format!("{label} width possible"), &link.width_max, |lanes| {
        format!("x{lanes}")
    });
}

/// Whether a directory name is a PCI address: domain:bus:device.function, domains of VMD having five digits.
#[must_use]
pub(crate) fn is_address(name: &str) -> bool {
    let hex = |text: &str, digits: std::ops::RangeInclusive<usize>| {
        digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let mut parts = name.split([':', '.']);
    let mut next = |digits| parts.next().is_some_and(|part| hex(part, digits));
    next(4..=8) && next(2..=2) && next(2..=2) && next(1..=1) && parts.next().is_none()
}

/// Reads `16.0 GT/s PCIe` or `8 GT/s`.
fn speed(text: &str) -> Result<u32, Unexpected> {
    let fail = || Unexpected::new(text, "a speed such as 16.0 GT/s PCIe");
    let rate: f64 = text.split(' ').next().unwrap_or_default().parse().map_err(|_| fail())?;
    if !text.contains("GT/s") || !(1.0..=1000.0).contains(&rate) {
        return Err(fail());
    }
    Ok((rate * 1000.0).round() as u32)
}

/// Reads a lane count; a port without a link reads 0, a broken one 255.
fn width(text: &str) -> Result<u32, Unexpected> {
    match parse::number(text)? {
        lanes @ 1..=32 => Ok(lanes),
        _ => Err(Unexpected::new(text, "1 to 32 lanes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn link_bandwidth_is_after_line_coding() {
        let rate = |speed_mts, width| Link { speed_mts, width }.bytes_per_second();
        assert_eq!(rate(2_500, 1), 250_000_000);
        assert_eq!(rate(8_000, 4), 3_938_461_538);
        assert_eq!(rate(16_000, 4), 7_876_923_076);
        assert_eq!(rate(64_000, 4), 29_500_000_000);
    }

    #[test]
    fn reads_speeds_and_widths() {
        assert_eq!(speed("16.0 GT/s PCIe"), Ok(16_000));
        assert_eq!(speed("2.5 GT/s"), Ok(2_500));
        assert!(speed("Unknown").is_err() && speed("16").is_err() && speed("NaN GT/s").is_err());
        assert!(width("0").is_err() && width("255").is_err() && width("4") == Ok(4));
    }

    #[test]
    fn knows_a_pci_address() {
        assert!(is_address("0000:3b:00.0") && is_address("10000:01:00.0"));
        assert!(!is_address("pci0000:00") && !is_address("virtio1") && !is_address("0000:3b:00.0:pcie001"));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in ".{0,30}") {
            let _ = (speed(&text), width(&text), is_address(&text));
        }
    }
}
