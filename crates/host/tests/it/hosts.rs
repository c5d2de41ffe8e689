//! Each captured host with everything that is said of it, as a snapshot: a changed one is changed behaviour.

use crate::{capture, device, file, fixture};
use overdrive_host::Root;
use overdrive_host::facts::{FactRow, HostFacts};
use overdrive_host::finding::{Finding, Profile, Status};
use overdrive_host::rules;
use overdrive_host::target::{TargetFacts, TargetIdentity};
use std::fmt::Write;
use std::time::Duration;

fn audit(name: &str, identity: &TargetIdentity) -> (HostFacts, TargetFacts, Vec<Finding>) {
    let root = fixture(name);
    let host = HostFacts::read(&root, Duration::from_millis(1));
    let target = TargetFacts::trace(&root, identity).unwrap();
    let findings = rules::audit(&host, &target);
    (host, target, findings)
}

fn show(host: &HostFacts, target: &TargetFacts, findings: &[Finding]) -> String {
    let mut text = String::new();
    for layer in &target.layers {
        writeln!(text, "{}: {}", layer.kind.name(), layer.name).unwrap();
    }
    text.push('\n');
    for row in host.rows().iter().chain(&target.rows()) {
        writeln!(text, "{}", show_row(row)).unwrap();
    }
    for finding in findings {
        let verified = if finding.verified { "" } else { " (unverified)" };
        writeln!(text, "\n[{}] {}{verified}: {}", finding.status.name(), finding.rule, finding.reason)
            .unwrap();
        for evidence in &finding.evidence {
            writeln!(text, "    {} = {}", evidence.path, evidence.read).unwrap();
        }
        if matches!(finding.status, Status::Advice | Status::Problem) {
            writeln!(text, "    effect: {}", finding.effect).unwrap();
        }
        if let Some(fix) = &finding.fix {
            writeln!(text, "    now: {}\n    to stay: {}", fix.now, fix.persistent).unwrap();
        }
        if let Some(undo) = &finding.undo {
            writeln!(text, "    undo: {undo}").unwrap();
        }
    }
    text
}

fn show_row(row: &FactRow) -> String {
    match (&row.value, &row.why) {
        (Some(value), _) => format!("{}: {value}", row.id),
        (None, Some(why)) => format!("{}: [{}] {why}", row.id, row.state.name()),
        (None, None) => panic!("{} has neither value nor reason", row.id),
    }
}

fn statuses(findings: &[Finding], status: Status) -> Vec<&'static str> {
    findings.iter().filter(|finding| finding.status == status).map(|finding| finding.rule).collect()
}

fn expect(findings: &[Finding], rule: &str, status: Status) {
    let finding = findings.iter().find(|finding| finding.rule == rule).unwrap();
    assert_eq!(finding.status, status, "{rule}: {}", finding.reason);
}

#[test]
fn the_reference_machine() {
    let (host, target, findings) = audit("reference-virtio", &file("/data/scratch", "254:0"));
    insta::assert_snapshot!(show(&host, &target, &findings));
    assert_eq!(statuses(&findings, Status::Problem), [""; 0]);
    for rule in ["nvme-poll-queues", "nvme-apst-latency", "irq-nvme-queue-per-cpu", "pcie-link-speed"] {
        expect(&findings, rule, Status::NotApplicable);
    }
    for rule in [
        "block-scheduler-none",
        "block-rotational-flag",
        "block-wbt",
        "cpu-haltpoll-guest",
        "cpu-group-reweight",
    ] {
        expect(&findings, rule, Status::Advice);
    }
}

#[test]
fn a_two_socket_server_with_much_to_do() {
    let (host, target, findings) =
        audit("p4800x-two-socket", &device("/dev/nvme1n1", "259:0", 732_585_168 * 512));
    insta::assert_snapshot!(show(&host, &target, &findings));
    let problems = statuses(&findings, Status::Problem);
    for rule in [
        "host-noisy-neighbours",
        "cpu-clocksource-tsc",
        "numa-app-local",
        "pcie-link-width",
        "block-scheduler-none",
    ] {
        assert!(problems.contains(&rule), "{rule} is not among {problems:?}");
    }
    for rule in [
        "cpu-governor-performance",
        "nvme-poll-queues",
        "nvme-queues-granted",
        "numa-balancing",
        "cpu-cstate-exit-latency",
    ] {
        expect(&findings, rule, Status::Advice);
    }
    let width = findings.iter().find(|finding| finding.rule == "pcie-link-width").unwrap();
    assert!(width.effect.contains("3.94 instead of 1.97 GB/s"), "{}", width.effect);
}

#[test]
fn a_server_tuned_for_its_drive() {
    let (host, target, findings) = audit("tuned-nvme", &file("/data/file", "259:1"));
    insta::assert_snapshot!(show(&host, &target, &findings));
    assert_eq!(statuses(&findings, Status::Problem), [""; 0]);
    // Safe RET is the price of this processor; it is told, not fixed.
    assert_eq!(statuses(&findings, Status::Advice), ["cpu-mitigations-cost"]);
    assert_eq!(statuses(&findings, Status::Unknown), [""; 0]);
    let wbt = findings.iter().find(|finding| finding.rule == "block-wbt").unwrap();
    assert!(wbt.fix.is_none() && wbt.reason.contains("never set up"), "{}", wbt.reason);
}

/// The findings alone, those that do not apply by name only: what is read is shown by the three hosts above.
fn judged(name: &str, identity: &TargetIdentity, profile: Profile) -> (String, Vec<Finding>) {
    let root = fixture(name);
    let host = HostFacts::read(&root, Duration::from_millis(1));
    let target = TargetFacts::trace(&root, identity).unwrap();
    let findings = rules::audit_for(profile, &host, &target);
    let mut text = String::new();
    for finding in findings.iter().filter(|finding| finding.status != Status::NotApplicable) {
        let verified = if finding.verified { "" } else { " (unverified)" };
        writeln!(text, "[{}] {}{verified}: {}", finding.status.name(), finding.rule, finding.reason).unwrap();
        if matches!(finding.status, Status::Advice | Status::Problem) {
            writeln!(text, "    effect: {}", finding.effect).unwrap();
        }
        if let Some(fix) = &finding.fix {
            writeln!(text, "    now: {}\n    to stay: {}", fix.now, fix.persistent).unwrap();
        }
    }
    writeln!(text, "\nnot applicable: {}", statuses(&findings, Status::NotApplicable).join(" ")).unwrap();
    (text, findings)
}

#[test]
fn ten_drives_on_one_root_complex() {
    let drive = device("/dev/nvme0n1", "259:0", 1_953_525_168 * 512);
    let (text, findings) = judged("workstation-ten-ssds", &drive, Profile::Storage);
    insta::assert_snapshot!(text);
    expect(&findings, "pcie-link-speed", Status::Problem);
    expect(&findings, "pcie-root-complex-share", Status::Advice);
    expect(&findings, "irq-irqbalance-relevance", Status::Ok);
}

#[test]
fn a_cloud_instance_is_not_asked_for_what_it_cannot_have() {
    let (text, findings) = judged("cloud-ebs", &device("/dev/nvme0n1", "259:0", 100 << 30), Profile::Storage);
    insta::assert_snapshot!(text);
    expect(&findings, "nvme-io-timeout", Status::Advice);
    for rule in ["cpu-governor-performance", "pcie-link-speed", "firmware-bios-settings", "power-uncore-freq"]
    {
        expect(&findings, rule, Status::NotApplicable);
    }
    for rule in ["nvme-smart-critical", "nvme-lba-format-4k"] {
        expect(&findings, rule, Status::Unknown);
    }
}

#[test]
fn a_server_that_swaps_as_the_guides_found_it() {
    let drive = device("/dev/nvme1n1", "259:1", 732_585_168 * 512);
    let (text, findings) = judged("memory-extension", &drive, Profile::Memory);
    insta::assert_snapshot!(text);
    for rule in ["cpu-rcu-nocbs", "cgroup-swap-max", "vm-overcommit", "vm-direct-reclaim-rate"] {
        expect(&findings, rule, Status::Problem);
    }
    for rule in
        ["vm-swappiness", "swap-priority-policy", "swap-zram-in-front", "boot-sysctl-owners", "swap-discard"]
    {
        expect(&findings, rule, Status::Advice);
    }
}

#[test]
fn freed_swap_may_be_discarded_where_the_kernel_fills_free_stretches_first_for_that() {
    let text = capture("memory-extension");
    let newer = text.replace("osrelease = 6.6.52", "osrelease = 6.18.3");
    assert_ne!(newer, text);
    let root = Root::from_capture(&newer).unwrap();
    let host = HostFacts::read(&root, Duration::from_millis(1));
    let drive = device("/dev/nvme1n1", "259:1", 732_585_168 * 512);
    let target = TargetFacts::trace(&root, &drive).unwrap();
    expect(&rules::audit_for(Profile::Memory, &host, &target), "swap-discard", Status::Ok);
}

#[test]
fn a_laptop_whose_drive_sleeps() {
    let drive = device("/dev/nvme0n1", "259:0", 1_953_525_168 * 512);
    let (text, findings) = judged("laptop-apst", &drive, Profile::Any);
    insta::assert_snapshot!(text);
    let apst = findings.iter().find(|finding| finding.rule == "nvme-apst-latency").unwrap();
    assert!(apst.reason.contains("state 4"), "{}", apst.reason);
    for rule in [
        "nvme-lba-format-4k",
        "nvme-hmb-dramless",
        "power-queue-owners",
        "boot-pending-reboot",
        "pcie-aer-correctable",
    ] {
        expect(&findings, rule, Status::Advice);
    }
}

#[test]
fn a_server_set_up_for_pollers_by_an_older_guide() {
    let drive = device("/dev/nvme0n1", "259:0", 1_953_525_168 * 512);
    let (text, findings) = judged("isolated-pollers", &drive, Profile::Storage);
    insta::assert_snapshot!(text);
    for rule in ["boot-idle-poll-harm", "cpu-max-cstate-cmdline"] {
        expect(&findings, rule, Status::Problem);
    }
    for rule in
        ["cpu-managed-irq-flag", "irq-threadirqs", "pcie-uplink-oversubscribed", "pcie-peer-contention"]
    {
        expect(&findings, rule, Status::Advice);
    }
}

#[test]
fn an_older_server_on_version_one_groups() {
    let drive = device("/dev/nvme0n1", "259:0", 1_953_525_168 * 512);
    let (text, findings) = judged("cgroup-v1", &drive, Profile::Any);
    insta::assert_snapshot!(text);
    for rule in ["nvme-smart-critical", "vm-min-free"] {
        expect(&findings, rule, Status::Problem);
    }
    for rule in ["cgroup-v2", "swap-present-kind", "vm-laptop-mode", "cpu-epb", "vm-watermark-scale"] {
        expect(&findings, rule, Status::Advice);
    }
}

#[test]
fn encrypted_swap_on_a_drive_behind_vmd() {
    let (text, findings) = judged("crypt-behind-vmd", &device("/dev/dm-0", "254:0", 1 << 39), Profile::Any);
    insta::assert_snapshot!(text);
    expect(&findings, "block-logical-alignment", Status::Problem);
    for rule in
        ["pcie-vmd", "swap-encrypted", "block-dmcrypt-workqueues", "irq-coalescing-off", "nvme-power-state"]
    {
        expect(&findings, rule, Status::Advice);
    }
}

/// A disk with the kernel's defaults for one that rotates, on a processor with these flags.
fn disk_that_rotates(flags: &str) -> Root {
    let folder = "/sys/devices/pci0000:00/host0/block/sda";
    Root::from_capture(&format!(
        "/proc/cpuinfo |\n|flags : {flags}\n{folder}/dev = 8:0\n{folder}/size = 1000000\n\
         {folder}/queue/rotational = 1\n{folder}/queue/scheduler = none [mq-deadline]\n\
         {folder}/queue/nomerges = 0\n{folder}/queue/wbt_lat_usec = 75000\n\
         {folder}/queue/read_ahead_kb = 4096\n/sys/module/zswap/parameters/enabled = Y\n\
         /sys/kernel/tracing/current_tracer = function\n/sys/block/sda -> ../devices/pci0000:00/host0/block/sda\n\
         /sys/class/block/sda -> ../../devices/pci0000:00/host0/block/sda\n\
         /sys/dev/block/8:0 -> ../../devices/pci0000:00/host0/block/sda\n"
    ))
    .unwrap()
}

#[test]
fn a_rotating_disk_is_left_as_it_is_and_what_may_be_wanted_is_not_class_a() {
    use overdrive_host::change::plan::{Plan, Wanted};
    use overdrive_host::finding::Risk;
    let planned = |flags: &str, class_max| {
        let root = disk_that_rotates(flags);
        let host = HostFacts::read(&root, Duration::ZERO);
        let target = TargetFacts::trace(&root, &device("/dev/sda", "8:0", 512_000_000)).unwrap();
        let findings = rules::audit_for(Profile::Any, &host, &target);
        let plan = Plan::of(&findings, &root, &Wanted { rules: None, class_max });
        let names = plan.changes.iter().map(|change| change.path.rsplit('/').next().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(planned("fpu", Risk::Safe), [""; 0]);
    assert_eq!(planned("fpu", Risk::SideEffects), ["enabled", "current_tracer"]);
    // In a guest the disk's word counts for nothing; what helps some work only is asked for.
    assert_eq!(planned("fpu hypervisor", Risk::Safe), ["scheduler", "wbt_lat_usec"]);
    let all = planned("fpu hypervisor", Risk::SideEffects);
    for name in ["rotational", "nomerges", "read_ahead_kb", "current_tracer", "enabled"] {
        assert!(all.iter().any(|planned| planned == name), "{name}: {all:?}");
    }
}

#[test]
fn a_host_that_tells_nothing_is_not_judged() {
    let root = Root::from_capture("").unwrap();
    let host = HostFacts::read(&root, Duration::ZERO);
    let target = TargetFacts::trace(&root, &file("/x", "8:1")).unwrap();
    for row in host.rows().iter().chain(&target.rows()) {
        assert!(row.value.is_some() || row.why.is_some(), "{}", row.id);
    }
    for finding in rules::audit(&host, &target) {
        assert!(!matches!(finding.status, Status::Problem), "{}: {}", finding.rule, finding.reason);
    }
}
