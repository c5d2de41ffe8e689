//! The way of a PCI device up to its host bridge: every port with its link, what shares it, and what the
//! Express capability of the configuration space says.
//!
//! The first 64 bytes of the configuration space are for anybody, the rest for root; without it those facts
//! are unreadable and say so.

use super::{LinkFacts, is_address};
use crate::facts::parse::{self, Unexpected};
use crate::facts::{Fact, Rows};
use crate::root::Root;

/// Configuration space that capabilities of PCI Express live in, before the extended part.
const CONFIG_BYTES: usize = 256;

/// The way up.
#[derive(Debug, Clone)]
pub struct PathFacts {
    /// The host bridge, such as `pci0000:3a`.
    pub host_bridge: String,
    /// The device's own Express capability.
    pub express: Fact<Express>,
    /// Counters of corrected errors of the device, as the kernel lists them.
    pub corrected: Fact<u64>,
    /// Ports from the device up to the host bridge.
    pub ports: Vec<Port>,
    /// Other storage controllers, network cards and accelerators under the same host bridge.
    pub neighbours: Vec<Neighbour>,
    /// Driver of a device above, such as `vmd`.
    pub driver_above: Option<String>,
}

/// One port on the way.
#[derive(Debug, Clone)]
pub struct Port {
    /// Its address.
    pub address: String,
    /// Maker, such as `0x8086`.
    pub vendor: Fact<String>,
    /// Its end of the link to what is below it.
    pub link: LinkFacts,
    /// Its Express capability.
    pub express: Fact<Express>,
    /// Runtime power management: `on` or `auto`.
    pub power_control: Fact<String>,
    /// Corrected errors it saw.
    pub corrected: Fact<u64>,
}

/// A device under the same host bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Its address.
    pub address: String,
    /// The first two bytes of its class: 0x0108 is NVMe, 0x02.. network, 0x03.. display.
    pub class: u16,
    /// The port of our path nearest to us under which it hangs too; `None` when only the bridge is shared.
    pub shared_port: Option<String>,
    /// What its own link can carry, in bytes a second, as it runs now.
    pub bytes_per_second: Option<u64>,
}

/// The part of the Express capability that rules ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Express {
    /// Largest payload the device could take.
    pub payload_max_bytes: u32,
    /// Largest payload it is told to use.
    pub payload_bytes: u32,
    /// Largest read it asks for.
    pub read_request_bytes: u32,
    /// Whether it could have more than 32 requests outstanding.
    pub extended_tags_possible: bool,
    /// Whether it may.
    pub extended_tags: bool,
    /// Whether its requests may pass each other.
    pub relaxed_ordering: bool,
    /// Link control: bit 0 L0s, bit 1 L1 allowed.
    pub aspm: u8,
}

impl Express {
    /// Finds the capability in configuration space and reads it.
    ///
    /// # Errors
    /// When the space is cut off before it, or holds none.
    fn parse(bytes: &[u8]) -> Result<Express, Unexpected> {
        const CAPABILITY: u8 = 0x10;
        const LIST_MAX: usize = 48;
        if bytes.len() <= 64 {
            return Err(Unexpected::new(
                &format!("{} bytes", bytes.len()),
                "more than 64 bytes, which needs root",
            ));
        }
        let at = |offset: usize| bytes.get(offset).copied().unwrap_or(0);
        let word = |offset: usize| u16::from_le_bytes([at(offset), at(offset + 1)]);
        let mut next = usize::from(at(0x34) & 0xfc);
        for _ in 0..LIST_MAX {
            if next < 0x40 {
                break;
            }
            if at(next) == CAPABILITY {
                let control = word(next + 8);
                let size = |code: u16| 128 << (code & 7).min(5);
                return Ok(Express {
                    payload_max_bytes: size(word(next + 4)),
                    payload_bytes: size(control >> 5),
                    read_request_bytes: size(control >> 12),
                    extended_tags_possible: word(next + 4) >> 5 & 1 == 1,
                    extended_tags: control >> 8 & 1 == 1,
                    relaxed_ordering: control >> 4 & 1 == 1,
                    aspm: (word(next + 16) & 3) as u8,
                });
            }
            next = usize::from(at(next + 1) & 0xfc);
        }
        Err(Unexpected::new("a list of capabilities", "a PCI Express capability in it"))
    }

    fn read(root: &Root, folder: &str) -> Fact<Express> {
        root.bytes(&format!("{folder}/config"), CONFIG_BYTES).and_then(|bytes| Express::parse(bytes))
    }
}

impl PathFacts {
    /// Follows the directory of a device upwards.
    pub(super) fn read(root: &Root, folder: &str) -> PathFacts {
        let mut ports = Vec::new();
        let mut driver_above = None;
        let mut bridge = String::new();
        let mut rest = folder;
        while let Some((above, _)) = rest.rsplit_once('/') {
            let name = above.rsplit('/').next().unwrap_or_default();
            if name.starts_with("pci") && bridge.is_empty() {
                bridge = name.to_owned();
            }
            if is_address(name) {
                ports.push(Port {
                    address: name.to_owned(),
                    vendor: root.text(&format!("{above}/vendor")),
                    link: LinkFacts::read(root, above),
                    express: Express::read(root, above),
                    power_control: root.text(&format!("{above}/power/control")),
                    corrected: corrected(root, above),
                });
                let driver = root.resolve(&format!("{above}/driver"));
                let driver = driver.value().and_then(|path| path.rsplit('/').next());
                driver_above = driver_above.or(driver.filter(|name| *name == "vmd").map(str::to_owned));
            }
            rest = above;
        }
        PathFacts {
            neighbours: neighbours(root, folder, &bridge),
            host_bridge: bridge,
            express: Express::read(root, folder),
            corrected: corrected(root, folder),
            ports,
            driver_above,
        }
    }

    pub(super) fn rows(&self, rows: &mut Rows, folder: &str) {
        rows.plain("host_bridge", "Host bridge", &Fact::known(&self.host_bridge, "", folder), "");
        rows.add("payload", "Largest payload and read request", &self.express, |express| {
            format!("{} and {} B", express.payload_bytes, express.read_request_bytes)
        });
    }
}

fn corrected(root: &Root, folder: &str) -> Fact<u64> {
    root.text(&format!("{folder}/aer_dev_correctable")).parse(|text| {
        let total = text.lines().find_map(|line| line.strip_prefix("TOTAL_ERR_COR"));
        parse::number(total.ok_or_else(|| Unexpected::new(text, "a line TOTAL_ERR_COR"))?)
    })
}

/// Devices whose traffic counts, under the same host bridge.
fn neighbours(root: &Root, own: &str, bridge: &str) -> Vec<Neighbour> {
    const BUSY: [u16; 4] = [0x01, 0x02, 0x03, 0x12];
    let all = root.list("/sys/bus/pci/devices");
    let mut found = Vec::new();
    for address in all.value().into_iter().flatten() {
        let Some(folder) = root.resolve(&format!("/sys/bus/pci/devices/{address}")).value().cloned() else {
            continue;
        };
        let same = folder.split('/').any(|part| part == bridge);
        if bridge.is_empty() || !same || folder == own {
            continue;
        }
        let Some(class) = class_of(root, &folder).filter(|class| BUSY.contains(&(class >> 8))) else {
            continue;
        };
        let common = own.split('/').zip(folder.split('/')).take_while(|(a, b)| a == b).map(|(part, _)| part);
        found.push(Neighbour {
            address: address.clone(),
            class,
            shared_port: common.filter(|part| is_address(part)).last().map(str::to_owned),
            bytes_per_second: LinkFacts::read(root, &folder).now().map(super::Link::bytes_per_second),
        });
    }
    found
}

/// The first two bytes of a device's class.
pub(crate) fn class_of(root: &Root, folder: &str) -> Option<u16> {
    let text = root.text(&format!("{folder}/class"));
    let class = u32::from_str_radix(text.value()?.trim_start_matches("0x"), 16).ok()?;
    Some((class >> 8) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Configuration space with a power capability at 0x40 and the Express capability at 0x70.
    fn space(control: u16) -> Vec<u8> {
        let mut bytes = vec![0; 256];
        bytes[0x34] = 0x40;
        bytes[0x40..0x42].copy_from_slice(&[0x01, 0x70]);
        bytes[0x70] = 0x10;
        bytes[0x74] = 2;
        bytes[0x78..0x7a].copy_from_slice(&control.to_le_bytes());
        bytes[0x80] = 2;
        bytes
    }

    #[test]
    fn reads_the_express_capability() {
        let express = Express::parse(&space(0x2130)).unwrap();
        assert_eq!(
            (express.payload_max_bytes, express.payload_bytes, express.read_request_bytes),
            (512, 256, 512)
        );
        assert!(express.extended_tags && express.relaxed_ordering);
        assert!(!express.extended_tags_possible);
        assert_eq!(express.aspm, 2);
        let mut able = space(0x2030);
        able[0x74] |= 1 << 5;
        let express = Express::parse(&able).unwrap();
        assert!(express.extended_tags_possible && !express.extended_tags);
        let why = Express::parse(&space(0)[..64]).unwrap_err().to_string();
        assert!(why.contains("needs root"), "{why}");
    }

    #[test]
    fn a_list_that_turns_in_a_circle_ends() {
        let mut bytes = vec![0; 256];
        bytes[0x34] = 0x40;
        bytes[0x41] = 0x40;
        assert!(Express::parse(&bytes).is_err());
    }

    #[test]
    fn neighbours_tell_which_port_is_shared() {
        let root = Root::from_capture(
            "/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0/class = 0x010802\n\
             /sys/devices/pci0000:40/0000:40:01.1/0000:42:00.0/class = 0x010802\n\
             /sys/devices/pci0000:40/0000:40:03.1/0000:43:00.0/class = 0x020000\n\
             /sys/devices/pci0000:40/0000:40:01.1/class = 0x060400\n\
             /sys/bus/pci/devices/0000:40:01.1 -> ../../../devices/pci0000:40/0000:40:01.1\n\
             /sys/bus/pci/devices/0000:41:00.0 -> ../../../devices/pci0000:40/0000:40:01.1/0000:41:00.0\n\
             /sys/bus/pci/devices/0000:42:00.0 -> ../../../devices/pci0000:40/0000:40:01.1/0000:42:00.0\n\
             /sys/bus/pci/devices/0000:43:00.0 -> ../../../devices/pci0000:40/0000:40:03.1/0000:43:00.0\n",
        )
        .unwrap();
        let path = PathFacts::read(&root, "/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0");
        assert_eq!((path.host_bridge.as_str(), path.ports.len()), ("pci0000:40", 1));
        let shared: Vec<_> = path.neighbours.iter().map(|other| other.shared_port.as_deref()).collect();
        assert_eq!(shared, [Some("0000:40:01.1"), None]);
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Express::parse(&bytes);
        }
    }
}
