//! Rules about the way to the drive: shared uplinks, payload sizes, errors, power of ports.

use super::super::each_disk;
use super::super::knob::{Verdict, leave, need, settle, write};
use crate::facts::parse;
use crate::facts::pcie::PcieFacts;
use crate::facts::pcie::path::{Express, Neighbour};
use crate::facts::{Fact, HostFacts};
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::TargetFacts;
use overdrive_base::size::format_size;

pub(in super::super) const RULES: &[Rule] = &[
    Rule {
        id: "pcie-uplink-oversubscribed",
        scope: Scope::Pcie,
        profile: Profile::Any,
        title: "The uplink carries all that hangs below it",
        why: "A switch, riser or chipset has one link up. Drives below it share that link, whatever \
              each could do alone.",
        source: "kernel: Documentation/ABI/testing/sysfs-bus-pci; arithmetic of the links",
        effect: "the sum of the drives' bandwidth up to the uplink's",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |_, target| each_path(target, uplink),
    },
    Rule {
        id: "pcie-root-complex-share",
        scope: Scope::Pcie,
        profile: Profile::Any,
        title: "Busy devices are spread over host bridges",
        why: "Devices under one host bridge share its way to memory. Ten drives on two adapter cards \
              under one bridge reached far less than their sum until a card was moved.",
        source: "T. Poder, 11M IOPS (root complexes)",
        effect: "bandwidth by the number of bridges used",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |_, target| each_path(target, bridge),
    },
    Rule {
        id: "pcie-behind-chipset",
        scope: Scope::Pcie,
        profile: Profile::Any,
        title: "The drive hangs on the processor",
        why: "Behind the chipset a request takes a further hop, and shares four lanes with everything \
              else there. The P4800X guide asks for a slot of the CPU.",
        source: "Intel P4800X evaluation guide, section 2; the count of bridges is a guess",
        effect: "one hop less, and lanes of its own",
        risk: Risk::AdviceOnly,
        verified: false,
        judge: |_, target| each_path(target, depth),
    },
    Rule {
        id: "pcie-mps-path",
        scope: Scope::Pcie,
        profile: Profile::Any,
        title: "Packets are as large as the path allows",
        why: "Each packet carries a header of about 24 bytes: with payloads of 128 bytes 16 % of the \
              link goes to headers, with 256 9 %, with 512 4.5 %.",
        source: "PCI Express base specification; kernel: pci_configure_mps in 6.12",
        effect: "less of the link spent on headers",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |_, target| each_path(target, payload),
    },
    Rule {
        id: "pcie-mrrs",
        scope: Scope::Pcie,
        profile: Profile::Any,
        title: "The drive asks for memory in large reads",
        why: "Writes to the drive are reads of memory by it. pci=pcie_bus_perf sets the read request \
              to the payload size, which may lower it.",
        source: "kernel: pcie_write_mrrs in 6.12",
        effect: "write bandwidth",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, target| each_path(target, |pcie| read_request(host, pcie)),
    },
    Rule {
        id: "pcie-exttag-ro",
        scope: Scope::Pcie,
        profile: Profile::Any,
        title: "Many reads may be outstanding",
        why: "A request is known by its tag. With tags of five bits a device has 32 reads of memory in \
              flight, with extended ones 256: few are soon too few for a fast link.",
        source: "PCI Express base specification (device capabilities and control: extended tag field)",
        effect: "write bandwidth of fast drives",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |_, target| each_path(target, tags),
    },
    Rule {
        id: "pcie-port-runtime-pm",
        scope: Scope::Pcie,
        profile: Profile::Any,
        title: "Ports on the way stay awake",
        why: "A port that was suspended takes milliseconds to come back, and the drive with it.",
        source: "kernel: Documentation/power/pci.rst",
        effect: "milliseconds off the first request after idle, where ports are ever suspended",
        risk: Risk::Safe,
        verified: true,
        judge: |_, target| each_path(target, port_power),
    },
    Rule {
        id: "pcie-aer-correctable",
        scope: Scope::Pcie,
        profile: Profile::Any,
        title: "The link makes no errors",
        why: "A corrected error is a packet sent again: an outlier of latency without any other trace.",
        source: "kernel: Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats",
        effect: "outliers that come from the slot or cable",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |_, target| each_path(target, errors),
    },
    Rule {
        id: "pcie-bwctrl-throttled",
        scope: Scope::Pcie,
        profile: Profile::Any,
        title: "No link is slowed down for heat",
        why: "Since 6.13 the kernel may lower the speed of a link to cool it. The cooling device of a \
              port counts the steps below the port's own best speed, so a drive of an older generation \
              counts as cooled too: only a link below what both ends can do is slowed down.",
        source: "kernel: drivers/thermal/pcie_cooling.c, drivers/pci/pcie/bwctrl.c (commit d278b098282d)",
        effect: "the link's full speed",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, target| settle(cooled(host, target)),
    },
    Rule {
        id: "pcie-acs-p2p",
        scope: Scope::Pcie,
        profile: Profile::Any,
        title: "Known isolation between devices",
        why: "Access control sends traffic between two devices up through the host bridge. It matters \
              to transfers from device to device only, and turning it off gives up isolation.",
        source: "kernel: kernel-parameters.txt (pci=disable_acs_redir)",
        effect: "nothing for transfers to and from memory",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |host, _| settle(acs(host)),
    },
    Rule {
        id: "pcie-vmd",
        scope: Scope::Pcie,
        profile: Profile::Any,
        title: "The drive is not behind VMD",
        why: "Intel's volume management device hides drives behind a driver of its own that takes \
              their interrupts and hands them on.",
        source: "kernel: drivers/pci/controller/vmd.c in 6.12; SPDK issue 2068",
        effect: "interrupts that come straight to their queue",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |_, target| each_path(target, vmd),
    },
    Rule {
        id: "pcie-peer-contention",
        scope: Scope::Pcie,
        profile: Profile::Any,
        title: "No network card or GPU on the drive's uplink",
        why: "Their bulk transfers stand in the same queue as a small read's answer.",
        source: "kernel: Documentation/admin-guide/perf/dwc_pcie_pmu.rst (how to prove it)",
        effect: "no waiting behind others' bulk transfers",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: |_, target| each_path(target, peers),
    },
];

fn each_path(target: &TargetFacts, judge: impl Fn(&PcieFacts) -> Verdict) -> Judgement {
    each_disk(target, |disk| match &disk.pcie {
        Some(pcie) => settle(judge(pcie)),
        None => Judgement::not_applicable(format!("{} hangs on no PCI device", disk.name())),
    })
}

/// The way as evidence: the addresses from the bridge down.
fn way(pcie: &PcieFacts) -> Fact<()> {
    let ports: Vec<&str> = pcie.path.ports.iter().rev().map(|port| port.address.as_str()).collect();
    let text = format!("{} > {} > {}", pcie.path.host_bridge, ports.join(" > "), pcie.address);
    Fact::known((), text, pcie.folder.clone())
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB/s", bytes as f64 / 1e9)
}

fn is_nvme(other: &&Neighbour) -> bool {
    other.class == 0x0108
}

fn uplink(pcie: &PcieFacts) -> Verdict {
    let own = pcie.link.now().map(crate::facts::pcie::Link::bytes_per_second);
    let Some(own) = own else { return leave("the device shows no link") };
    // The port that the drive hangs on directly carries only the drive; a shared one is above that.
    for (at, port) in pcie.path.ports.iter().enumerate().skip(1) {
        let above = pcie
            .path
            .ports
            .get(at)
            .and_then(|port| port.link.now())
            .map(crate::facts::pcie::Link::bytes_per_second);
        let below: Vec<&Neighbour> = pcie
            .path
            .neighbours
            .iter()
            .filter(|other| {
                other.shared_port.as_deref().is_some_and(|shared| {
                    pcie.path
                        .ports
                        .iter()
                        .position(|seen| seen.address == shared)
                        .is_some_and(|found| found <= at)
                })
            })
            .collect();
        let wanted = own.saturating_add(parse::sum(below.iter().filter_map(|other| other.bytes_per_second)));
        let Some(carried) = above else { continue };
        let ratio = wanted as f64 / carried.max(1) as f64;
        if ratio > 1.05 {
            let reason = format!(
                "{} devices below port {} could move {}, and its link carries {}: {ratio:.1} times too much",
                below.len() + 1,
                port.address,
                gigabytes(wanted),
                gigabytes(carried)
            );
            return Ok(Judgement::advice(reason)
                .seen(&way(pcie))
                .seen(&port.link.speed_mts)
                .effect(format!(
                    "{} instead of {} for all of them together",
                    gigabytes(wanted),
                    gigabytes(carried)
                ))
                .fix("", "a slot with lanes of its own for some of them"));
        }
    }
    Ok(Judgement::ok("no link on the way is asked for more than it carries").seen(&way(pcie)))
}

fn bridge(pcie: &PcieFacts) -> Verdict {
    let drives: Vec<&Neighbour> = pcie.path.neighbours.iter().filter(is_nvme).collect();
    let name = &pcie.path.host_bridge;
    if drives.is_empty() {
        return Ok(Judgement::ok(format!("the only NVMe drive under {name}")).seen(&way(pcie)));
    }
    let own = pcie.link.now().map_or(0, crate::facts::pcie::Link::bytes_per_second);
    let sum = own.saturating_add(parse::sum(drives.iter().filter_map(|other| other.bytes_per_second)));
    let said = format!("{} NVMe drives under {name}, {} in all", drives.len() + 1, gigabytes(sum));
    Ok(match drives.len() {
        0..4 => Judgement::ok(said),
        _ => Judgement::advice(said)
            .effect(format!(
                "with half of them under another bridge, each bridge has {} to carry",
                gigabytes(sum / 2)
            ))
            .fix("", "move a card to a slot of another bridge (lspci -tv shows them)"),
    }
    .seen(&way(pcie)))
}

/// What the device's Express capability says; nothing to ask where it has no link.
fn express(pcie: &PcieFacts) -> Result<(Express, &Fact<Express>), Box<Judgement>> {
    linked(pcie)?;
    Ok((*need(&pcie.path.express)?, &pcie.path.express))
}

fn linked(pcie: &PcieFacts) -> Result<(), Box<Judgement>> {
    if pcie.link.speed_mts.is_absent() { leave("a device without a link") } else { Ok(()) }
}

fn depth(pcie: &PcieFacts) -> Verdict {
    linked(pcie)?;
    let bridges = pcie.path.ports.len();
    Ok(match bridges {
        0..3 => Judgement::ok(format!(
            "{} between it and the host bridge",
            super::super::numbered(bridges, "port")
        )),
        _ => Judgement::advice(format!(
            "{bridges} ports between it and the host bridge: a switch or the chipset"
        ))
        .fix("", "a slot of the processor"),
    }
    .seen(&way(pcie)))
}

fn payload(pcie: &PcieFacts) -> Verdict {
    let (own, fact) = express(pcie)?;
    let above = pcie.path.ports.iter().filter_map(|port| port.express.get());
    let could = above.map(|express| express.payload_max_bytes).fold(own.payload_max_bytes, u32::min);
    let waste = |bytes: u32| 100.0 * 24.0 / f64::from(bytes + 24);
    let told = Fact::known((), format!("payload {} of {could} B", own.payload_bytes), fact.path());
    Ok(match own.payload_bytes < could.min(256) {
        true => Judgement::advice(format!("{} bytes, and the path could {could}", own.payload_bytes))
            .effect(format!(
                "{:.0} instead of {:.0} % of the link for headers",
                waste(could),
                waste(own.payload_bytes)
            ))
            .fix("", "kernel parameter pci=pcie_bus_safe"),
        false => Judgement::ok(format!(
            "{} bytes, {:.0} % of the link for headers",
            own.payload_bytes,
            waste(own.payload_bytes)
        )),
    }
    .seen(&told))
}

fn read_request(host: &HostFacts, pcie: &PcieFacts) -> Verdict {
    let (express, fact) = express(pcie)?;
    let bytes = express.read_request_bytes;
    let told = Fact::known((), format!("read request {bytes} B"), fact.path());
    let perf = host.kernel.parameter("pci").is_some_and(|value| value.contains("pcie_bus_perf"));
    let because = if perf { ", since pci=pcie_bus_perf sets it to the payload" } else { "" };
    Ok(match bytes {
        512.. => Judgement::ok(format!("{bytes} bytes")),
        _ => Judgement::advice(format!("{bytes} bytes{because}"))
            .fix("", "no pci=pcie_bus_perf; else the firmware's setting"),
    }
    .seen(&told))
}

fn tags(pcie: &PcieFacts) -> Verdict {
    let (express, fact) = express(pcie)?;
    let told = Fact::known(
        (),
        format!("extended tags {}, relaxed ordering {}", express.extended_tags, express.relaxed_ordering),
        fact.path(),
    );
    let in_flight = |tags: u32| format_size(u64::from(tags * express.read_request_bytes));
    Ok(match (express.extended_tags, express.extended_tags_possible) {
        (true, _) => Judgement::ok("extended tags are on"),
        (false, false) => Judgement::ok("extended tags are off, and the device has none"),
        (false, true) => Judgement::advice("extended tags are off, and the device has them")
            .effect(format!("up to {} of memory read at a time instead of {}", in_flight(256), in_flight(32)))
            .fix("", "the firmware's setting"),
    }
    .seen(&told))
}

fn port_power(pcie: &PcieFacts) -> Verdict {
    let Some(first) = pcie.path.ports.first() else { return leave("no port is above it") };
    let Some(sleepy) =
        pcie.path.ports.iter().find(|port| port.power_control.value().is_some_and(|text| text == "auto"))
    else {
        need(&first.power_control)?;
        return Ok(Judgement::ok("on for every port").seen(&first.power_control));
    };
    let keep = format!(
        "/etc/udev/rules.d/99-overdrive.rules: ACTION==\"add\", KERNEL==\"{}\", SUBSYSTEM==\"pci\", ATTR{{power/control}}=\"on\"",
        sleepy.address
    );
    Ok(write(
        Judgement::advice(format!("port {} may be suspended", sleepy.address)),
        &sleepy.power_control,
        "on",
        keep,
    ))
}

fn errors(pcie: &PcieFacts) -> Verdict {
    let all = std::iter::once((&pcie.address, &pcie.path.corrected))
        .chain(pcie.path.ports.iter().map(|port| (&port.address, &port.corrected)));
    if let Some((address, fact)) = all.clone().find(|(_, fact)| fact.get().is_some_and(|count| count > 0)) {
        let count = fact.get().unwrap_or(0);
        return Ok(Judgement::advice(format!("{address} corrected {count} errors since boot"))
            .seen(&Fact::known((), format!("TOTAL_ERR_COR {count}"), fact.path()))
            .fix("", "reseat the card; another slot, riser or cable"));
    }
    need(&pcie.path.corrected)?;
    Ok(Judgement::ok("none since boot, up to the host bridge").seen(&Fact::known(
        (),
        "TOTAL_ERR_COR 0",
        pcie.path.corrected.path(),
    )))
}

fn cooled(host: &HostFacts, target: &TargetFacts) -> Verdict {
    const PORT: &str = "PCIe_Port_Link_Speed_";
    let state_of = |address: &str| {
        let is_its =
            |kind: &Fact<String>| kind.value().and_then(|kind| kind.strip_prefix(PORT)) == Some(address);
        let (name, _) = host.machine.cooling_kind.iter().find(|(_, kind)| is_its(kind))?;
        host.machine.cooling_state.iter().find(|(other, _)| other == name).map(|(_, state)| state)
    };
    let is_link = |kind: &Fact<String>| kind.value().is_some_and(|kind| kind.starts_with(PORT));
    if !host.machine.cooling_kind.iter().any(|(_, kind)| is_link(kind)) {
        return leave("no link of this host can be cooled by its speed");
    }
    let mut seen = None;
    for pcie in target.disks.iter().filter_map(|disk| disk.pcie.as_ref()) {
        for port in &pcie.path.ports {
            let Some(state) = state_of(&port.address) else { continue };
            if *need(state)? == "0" {
                seen.get_or_insert(state);
                continue;
            }
            let is_own = pcie.parent.as_ref().is_some_and(|(address, _)| *address == port.address);
            let below_both = match (pcie.link.now(), pcie.best_link()) {
                (Some(now), Some(best)) => now.speed_mts < best.speed_mts,
                _ => return Ok(Judgement::missing(&pcie.link.speed_mts).seen(state)),
            };
            match (is_own, below_both) {
                (true, true) => {
                    let reason = format!("the link below port {} is slowed down", port.address);
                    return Ok(Judgement::problem(reason).seen(state).fix("", "cooling"));
                }
                (true, false) => drop(seen.get_or_insert(state)),
                // What is below such a port is another port, whose own best is not in these facts.
                (false, _) => {
                    let reason = format!(
                        "the link below port {} runs below the port's best speed: slowed down, or less is below it",
                        port.address
                    );
                    return Ok(Judgement::advice(reason).seen(state));
                }
            }
        }
    }
    Ok(match seen {
        Some(state) => Judgement::ok("the drive's link is as fast as both ends can").seen(state),
        None => return leave("no port above the target can be cooled by its speed"),
    })
}

fn acs(host: &HostFacts) -> Verdict {
    super::super::knob::cmdline(host)?;
    let pci = host.kernel.parameter("pci").unwrap_or_default();
    let reason = match pci.contains("acs") {
        true => format!("pci={pci} changes it"),
        false => "as the firmware and the IOMMU want it; of no matter for transfers to memory".to_owned(),
    };
    Ok(Judgement::ok(reason).seen(&host.kernel.cmdline))
}

fn vmd(pcie: &PcieFacts) -> Verdict {
    let domain =
        pcie.address.split(':').next().and_then(|text| u32::from_str_radix(text, 16).ok()).unwrap_or(0);
    Ok(match pcie.path.driver_above.is_some() || domain >= 0x10000 {
        true => Judgement::advice("behind VMD: its driver takes the interrupts and hands them on")
            .fix("", "VMD off in the firmware, unless it holds a VROC array or the boot disk needs it"),
        false => Judgement::ok("not behind VMD"),
    }
    .seen(&way(pcie)))
}

fn peers(pcie: &PcieFacts) -> Verdict {
    let bulk =
        |other: &&Neighbour| matches!(other.class >> 8, 0x02 | 0x03 | 0x12) && other.shared_port.is_some();
    Ok(match pcie.path.neighbours.iter().find(bulk) {
        Some(other) => Judgement::advice(format!(
            "{} ({}) shares port {}",
            other.address,
            if other.class >> 8 == 2 { "a network card" } else { "an accelerator" },
            other.shared_port.as_deref().unwrap_or_default()
        ))
        .fix("", "another slot for one of them"),
        None => Judgement::ok("none below the same port"),
    }
    .seen(&way(pcie)))
}

#[cfg(test)]
mod tests {
    use crate::audit::Audit;
    use crate::finding::{Profile, Status};
    use crate::root::Root;
    use std::time::Duration;

    /// What is said of a drive that could do `drive` and runs at `now`, in a port that could do 16 GT/s.
    fn cooled(drive: &str, now: &str, state: u32) -> Status {
        let port = "/sys/devices/pci0000:00/0000:00:01.0";
        let device = format!("{port}/0000:01:00.0");
        let disk = format!("{device}/nvme/nvme0/nvme0n1");
        let link = |at: &str, most: &str| {
            format!(
                "{at}/max_link_speed = {most} GT/s PCIe\n{at}/current_link_speed = {now} GT/s PCIe\n\
                 {at}/max_link_width = 4\n{at}/current_link_width = 4\n{at}/class = 0x060400\n"
            )
        };
        let text = format!(
            "/proc/sys/kernel/osrelease = 6.18.0\n{}{}{disk}/dev = 259:0\n{disk}/size = 2097152\n\
             {disk}/device -> ../../nvme0\n{device}/nvme/nvme0/device -> ../../../0000:01:00.0\n\
             /sys/block/nvme0n1 -> ..{}\n/sys/class/block/nvme0n1 -> ../..{}\n/sys/dev/block/259:0 -> ../..{}\n\
             /sys/class/thermal/cooling_device0/type = PCIe_Port_Link_Speed_0000:00:01.0\n\
             /sys/class/thermal/cooling_device0/cur_state = {state}\n",
            link(port, "16.0"),
            link(&device, drive),
            &disk[4..],
            &disk[4..],
            &disk[4..],
        );
        let root = Root::from_capture(&text).unwrap();
        let identity = crate::capture::device_named(&root, "nvme0n1").unwrap();
        let audit = Audit::of(&root, Some(&identity), Profile::Storage, Duration::ZERO).unwrap();
        audit.findings.iter().find(|finding| finding.rule == "pcie-bwctrl-throttled").unwrap().status
    }

    #[test]
    fn a_drive_of_an_older_generation_is_not_taken_for_a_cooled_link() {
        assert_eq!(cooled("16.0", "16.0", 0), Status::Ok);
        assert_eq!(cooled("16.0", "8.0", 1), Status::Problem);
        // The kernel counts one step below the port's best, and nobody slowed anything down.
        assert_eq!(cooled("8.0", "8.0", 1), Status::Ok);
    }
}
