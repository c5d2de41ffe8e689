//! Rules about the PCIe link of a drive, its power saving and its address translation.

pub(super) mod path;

use super::each_disk;
use crate::facts::pcie::{Link, LinkFacts, PcieFacts};
use crate::facts::{Fact, HostFacts};
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::TargetFacts;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "pcie-link-speed",
        scope: Scope::Pcie,
        profile: Profile::Any,
        title: "The link runs at full speed",
        why: "A link trains to what both ends and the path between them can do; a worn slot, a riser \
              or a firmware setting leaves it slower without a word.",
        source: "kernel: Documentation/ABI/testing/sysfs-bus-pci (current_link_speed); T. Poder, 11M \
              IOPS",
        effect: "bandwidth, and the time each block spends on the wire",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: link_speed,
    },
    Rule {
        id: "pcie-link-width",
        scope: Scope::Pcie,
        profile: Profile::Any,
        title: "The link uses all lanes",
        why: "A wrong split of a slot's lanes, or a bad contact, halves the link.",
        source: "kernel: Documentation/ABI/testing/sysfs-bus-pci (current_link_width)",
        effect: "bandwidth, and the time each block spends on the wire",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: link_width,
    },
    Rule {
        id: "pcie-aspm-policy",
        scope: Scope::Pcie,
        profile: Profile::Any,
        title: "The link does not sleep",
        why: "A link in L1 takes microseconds, in L1.2 tens of them, to carry the first packet after \
              idle. pcie_aspm=off does not help: it leaves whatever the firmware set.",
        source: "kernel: kernel-parameters.txt (pcie_aspm), Documentation/ABI/testing/sysfs-bus-pci \
              (link/)",
        effect: "microseconds to tens of microseconds off the first request after idle",
        risk: Risk::SideEffects,
        verified: true,
        judge: aspm,
    },
    Rule {
        id: "pcie-iommu-group-type",
        scope: Scope::Pcie,
        profile: Profile::Any,
        title: "Address translation is lazy or absent",
        why: "Under strict translation every I/O ends with a flush of the IOMMU's cache.",
        source: "kernel: Documentation/ABI/testing/sysfs-kernel-iommu_groups; kernel-parameters.txt \
              (iommu.strict)",
        effect: "one cache flush less per I/O (size not verified)",
        risk: Risk::AdviceOnly,
        verified: true,
        judge: iommu,
    },
];

/// Header bytes of a packet of 256 bytes payload on the link, the usual size.
const PACKET_PAYLOAD: u64 = 256;
const PACKET_HEADER: u64 = 24;

/// Judges each disk that hangs on a PCI device.
fn each_device(target: &TargetFacts, judge: impl Fn(&PcieFacts) -> Judgement) -> Judgement {
    each_disk(target, |disk| match &disk.pcie {
        Some(pcie) => judge(pcie),
        None => Judgement::not_applicable(format!("{} hangs on no PCI device", disk.name())),
    })
}

/// What to say of a device whose link attributes are missing or meaningless.
fn without_link<T>(host: &HostFacts, fact: &Fact<T>) -> Judgement {
    match (fact, host.hypervisor.is_guest()) {
        (Fact::Absent { .. }, _) => {
            Judgement::not_applicable("a device without a PCIe link (virtual or built in)")
        }
        (_, Some(true)) => Judgement::not_applicable("the hypervisor hides the link"),
        _ => Judgement::missing(fact),
    }
}

/// How long 4 KiB take on a link, packet headers included, in us.
fn wire_us(link: Link) -> f64 {
    let packets = 4096_u64.div_ceil(PACKET_PAYLOAD);
    (4096 + packets * PACKET_HEADER) as f64 / link.bytes_per_second() as f64 * 1e6
}

/// What a better link would bring, from this link's own numbers.
fn gain(now: Link, best: Link) -> String {
    let rate = |link: Link| link.bytes_per_second() as f64 / 1e9;
    format!(
        "{:.2} instead of {:.2} GB/s each way, and {:.2} instead of {:.2} us on the wire for 4 KiB",
        rate(best),
        rate(now),
        wire_us(best),
        wire_us(now)
    )
}

fn link_speed(host: &HostFacts, target: &TargetFacts) -> Judgement {
    each_device(target, |pcie| {
        let (Some(now), Some(best)) = (pcie.link.speed_mts.get(), pcie.link.speed_max_mts.get()) else {
            let fact = if pcie.link.speed_mts.get().is_none() {
                &pcie.link.speed_mts
            } else {
                &pcie.link.speed_max_mts
            };
            return without_link(host, fact);
        };
        judge_link(
            pcie,
            now,
            best,
            "GT/s",
            |link| &link.speed_mts,
            |link| &link.speed_max_mts,
            |mts| f64::from(mts) / 1000.0,
        )
    })
}

fn link_width(host: &HostFacts, target: &TargetFacts) -> Judgement {
    each_device(target, |pcie| {
        let (Some(now), Some(best)) = (pcie.link.width.get(), pcie.link.width_max.get()) else {
            let fact = if pcie.link.width.get().is_none() { &pcie.link.width } else { &pcie.link.width_max };
            return without_link(host, fact);
        };
        judge_link(pcie, now, best, "lanes", |link| &link.width, |link| &link.width_max, f64::from)
    })
}

/// Compares one figure of the link with what both ends could do.
fn judge_link(
    pcie: &PcieFacts,
    now: u32,
    own_best: u32,
    unit: &str,
    current: impl Fn(&LinkFacts) -> &Fact<u32>,
    most: impl Fn(&LinkFacts) -> &Fact<u32>,
    shown: impl Fn(u32) -> f64,
) -> Judgement {
    let above = pcie.parent.as_ref().map(|(address, link)| (address, most(link)));
    let above_best = above.and_then(|(_, fact)| fact.get());
    let best = own_best.min(above_best.unwrap_or(u32::MAX));
    let judgement = if now < best {
        let could =
            Judgement::problem(format!("{} {unit}, and both ends could do {}", shown(now), shown(best)));
        let could =
            could.fix("", "reseat the drive; look at slot, riser, cable and the firmware's link settings");
        match (pcie.link.now(), pcie.best_link()) {
            (Some(link), Some(best)) => could.effect(gain(link, best)),
            _ => could,
        }
    } else if now < own_best {
        let slot = above.map_or_else(String::new, |(address, _)| format!(" of port {address}"));
        let limit = format!("{} {unit}, the most{slot}; the drive could do {}", shown(now), shown(own_best));
        Judgement::advice(limit).fix("", "a faster or wider slot")
    } else {
        Judgement::ok(format!("{} {unit}, all the drive can do", shown(now)))
    };
    let judgement = judgement.seen(current(&pcie.link)).seen(most(&pcie.link));
    match above {
        Some((_, fact)) => judgement.seen(fact),
        None => judgement,
    }
}

fn aspm(host: &HostFacts, target: &TargetFacts) -> Judgement {
    each_device(target, |pcie| {
        if pcie.link.speed_mts.is_absent() {
            return without_link(host, &pcie.link.speed_mts);
        }
        let policy = &pcie.aspm_policy;
        let states: Vec<&(String, Fact<bool>)> =
            pcie.aspm_states.iter().filter(|(name, _)| name.ends_with("_aspm")).collect();
        let allowed: Vec<&str> = states
            .iter()
            .filter(|(_, fact)| fact.get() == Some(true))
            .map(|(name, _)| name.as_str())
            .collect();
        let see = |judgement: Judgement| {
            states.iter().fold(judgement.seen(policy), |seen, (_, fact)| seen.seen(fact))
        };
        if !states.is_empty() && allowed.is_empty() {
            return see(Judgement::ok("the kernel allows this link no sleep"));
        }
        let Some(choice) = policy.value() else {
            return match policy.is_absent() {
                true => Judgement::not_applicable("this kernel does not manage link power"),
                false => Judgement::missing(policy),
            };
        };
        let note = match host.kernel.parameter("pcie_aspm") {
            Some("off") => "; pcie_aspm=off only keeps the kernel from changing what the firmware set",
            _ => "",
        };
        let active = choice.active.as_str();
        let states = if allowed.is_empty() {
            String::new()
        } else {
            format!(", allowed here: {}", allowed.join(", "))
        };
        let judgement = match active {
            "performance" => return see(Judgement::ok("policy performance: links do not sleep")),
            "powersave" | "powersupersave" => Judgement::problem(format!("policy {active}{states}{note}")),
            _ => Judgement::advice(format!(
                "policy {active}: the firmware decides whether the link sleeps{states}{note}"
            )),
        };
        see(judgement)
            .fix(
                format!("echo performance > {}", policy.path()),
                "kernel parameter pcie_aspm.policy=performance",
            )
            .undo(format!("echo {active} > {}", policy.path()))
    })
}

fn iommu(_: &HostFacts, target: &TargetFacts) -> Judgement {
    each_device(target, |pcie| {
        let fact = &pcie.iommu_type;
        if fact.is_absent() {
            return Judgement::ok("no IOMMU translates for this device").seen(fact);
        }
        let Some(kind) = fact.value() else { return Judgement::missing(fact) };
        match kind.as_str() {
            "DMA-FQ" => Judgement::ok("DMA-FQ: flushes are gathered").seen(fact),
            "identity" => Judgement::ok("identity: addresses pass untranslated").seen(fact),
            "DMA" => Judgement::advice("DMA: each unmapping is flushed at once")
                .seen(fact)
                .fix("", "kernel parameter iommu.strict=0, where the isolation policy allows"),
            other => Judgement::unknown(format!("a type this rule does not know: {other}")).seen(fact),
        }
    })
}
