//! Whatever /proc and /sys say, and whatever a rule advises: no reader panics, and no rule writes outside its plan.

use crate::fixture;
use overdrive_base::rng::Rng;
use overdrive_host::audit::of_everything;
use overdrive_host::change::driver::{Driver, Occasion};
use overdrive_host::change::fake::{Behaviour, FakeSystem};
use overdrive_host::change::plan::{Plan, Wanted};
use overdrive_host::change::{Kind, may_write, meaning, persist, side_effects};
use overdrive_host::facts::{Fact, HostFacts};
use overdrive_host::finding::{Profile, Risk, Status};
use overdrive_host::root::garble::garble;
use overdrive_host::target::TargetFacts;
use overdrive_host::{Root, capture, rules};
use std::collections::BTreeMap;
use std::time::Duration;

const HOSTS: [&str; 10] = [
    "cgroup-v1",
    "cloud-ebs",
    "crypt-behind-vmd",
    "isolated-pollers",
    "laptop-apst",
    "memory-extension",
    "p4800x-two-socket",
    "reference-virtio",
    "tuned-nvme",
    "workstation-ten-ssds",
];

fn text_of(name: &str) -> String {
    let path = format!("{}/../../fixtures/hosts/{name}.tree", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn no_reader_rule_or_plan_panics_on_garbage() {
    let mut rng = Rng::new(17);
    let mut read = 0;
    for name in HOSTS.iter().filter(|name| **name != "workstation-ten-ssds") {
        let text = text_of(name);
        for damage in [4, 40, 400] {
            let bytes: Vec<u8> = (0..damage * 4).map(|_| rng.next_u64() as u8).collect();
            // What is no capture any more is refused with its line, which is fine as well.
            if let Ok(root) = Root::from_capture(&garble(&text, &bytes)) {
                assert!(of_everything(&root) > 100, "{name}");
                read += 1;
            }
        }
    }
    assert!(read >= 10, "{read} of 27 damaged hosts could be read");
}

/// A captured host whose files say this where they say a number; which CPUs and devices there are stays.
fn with_each_number(text: &str, number: &str) -> String {
    let is_kept =
        |path: &str| ["online", "cpulist", "dev", "osrelease"].iter().any(|end| path.ends_with(end));
    let mut keep = false;
    let mut changed = String::new();
    for line in text.lines() {
        let (before, said) = match line.split_once(" = ") {
            _ if line.starts_with('|') => ("|", &line[1..]),
            Some((path, said)) => {
                keep = is_kept(path);
                (&line[..path.len() + 3], said)
            }
            None => {
                keep = is_kept(line.trim_end_matches(" |"));
                (line, "")
            }
        };
        let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        let word = |word: &str| if is_number(word) && !keep { number.to_owned() } else { word.to_owned() };
        changed += before;
        changed += &said.split(' ').map(word).collect::<Vec<_>>().join(" ");
        changed.push('\n');
    }
    changed
}

#[test]
fn numbers_beyond_all_reason_stop_no_rule() {
    for name in HOSTS {
        let text = text_of(name);
        for number in ["18446744073709551615", "9223372036854775807", "4294967295", "0"] {
            let root = Root::from_capture(&with_each_number(&text, number)).unwrap();
            assert!(of_everything(&root) > 100, "{name}");
        }
    }
}

#[test]
fn a_value_that_cannot_be_read_is_unknown_with_its_path() {
    let text = text_of("reference-virtio");
    for (attribute, rule) in [
        ("queue/scheduler", "block-scheduler-none"),
        ("queue/nomerges", "block-nomerges"),
        ("queue/rotational", "block-rotational-flag"),
    ] {
        for damage in ["= \u{fffd}, ,", "! EACCES"] {
            let lines: Vec<String> = text
                .lines()
                .map(|line| match line.split_once(' ') {
                    Some((path, _)) if path.ends_with(attribute) => format!("{path} {damage}"),
                    _ => line.to_owned(),
                })
                .collect();
            let root = Root::from_capture(&lines.join("\n")).unwrap();
            let host = HostFacts::read(&root, Duration::ZERO);
            let target = TargetFacts::trace(&root, &capture::device_named(&root, "vda").unwrap()).unwrap();
            let findings = rules::audit(&host, &target);
            let finding = findings.iter().find(|finding| finding.rule == rule).unwrap();
            assert_eq!(finding.status, Status::Unknown, "{rule} on '{damage}': {}", finding.reason);
            let told = finding.evidence.iter().any(|evidence| evidence.path.ends_with(attribute));
            assert!(told, "{rule}: {:?}", finding.evidence);
        }
    }
}

/// Every file of a root by its real path.
fn files(root: &Root, folder: &str, into: &mut BTreeMap<String, String>) {
    let Fact::Known { value: names, .. } = root.list(folder) else { return };
    for name in names {
        let path = format!("{}/{name}", folder.trim_end_matches('/'));
        if root.resolve(&path).value() != Some(&path) {
            continue;
        }
        match root.text(&path) {
            Fact::Known { raw, .. } => drop(into.insert(path, raw)),
            _ => files(root, &path, into),
        }
    }
}

#[test]
fn no_rule_writes_outside_its_plan() {
    let mut applied = 0;
    for name in HOSTS {
        let root = fixture(name);
        let host = HostFacts::read(&root, Duration::ZERO);
        let disk = root.list("/sys/block").value().and_then(|names| names.first().cloned()).unwrap();
        let target = TargetFacts::trace(&root, &capture::device_named(&root, &disk).unwrap()).unwrap();
        let findings: Vec<_> = [Profile::Storage, Profile::Memory]
            .iter()
            .flat_map(|&profile| rules::audit_for(profile, &host, &target))
            .collect();
        let mut content = BTreeMap::new();
        files(&root, "/", &mut content);
        for rule in rules::all() {
            let wanted = Wanted { rules: Some(vec![rule.id.to_owned()]), class_max: Risk::SideEffects };
            let mut plan = Plan::of(&findings, &root, &wanted);
            // Rebinding a driver is an action, and interrupts' masks stand outside /proc/sys: left to people.
            let outside = plan.left.iter().find(|left| left.why.contains("not among what Overdrive writes"));
            assert!(
                outside.is_none_or(|left| left.fix.contains("bind") || left.fix.contains("/proc/irq/")),
                "{name}: {outside:?}"
            );
            if plan.changes.is_empty() {
                continue;
            }
            assert_ne!(rule.risk, Risk::AdviceOnly, "{}: class C is only ever advised", rule.id);
            plan.changes.extend(persist::files(&root, &plan.changes, 1));
            assert!(plan.changes.iter().all(|change| may_write(change.kind, &change.path)), "{}", rule.id);
            applied += 1;
            only_planned_paths_change(rule.id, &plan, &content);
        }
    }
    assert!(applied > 60, "{applied} plans");
}

fn behaviour(text: &str) -> Behaviour {
    if text.contains('[') { Behaviour::Choice } else { Behaviour::Plain }
}

fn only_planned_paths_change(rule: &str, plan: &Plan, content: &BTreeMap<String, String>) {
    let mut system = FakeSystem::new(1);
    for (path, text) in content {
        system = system.with(path, text, behaviour(text));
    }
    for change in plan.changes.iter().filter(|change| change.kind == Kind::Attribute) {
        // A path through a link of /sys is a file of its own to this host in memory.
        let old = change.old.as_deref().unwrap();
        system = system.with(&change.path, old, behaviour(old));
        if let Some(device) = &change.device {
            system.devices.insert(device.id.clone(), device.folder.clone());
        }
    }
    let before = system.files.clone();
    let occasion = Occasion {
        at: "2026-01-01T00:00:00Z".to_owned(),
        boot_id: "b".to_owned(),
        machine_id: "m".to_owned(),
        version: "0".to_owned(),
    };
    let (set, _) = Driver::new(&mut system, occasion.clone()).unwrap().apply(&plan.changes).unwrap();
    let planned: Vec<String> = plan
        .changes
        .iter()
        .flat_map(|change| std::iter::once(change.path.clone()).chain(side_effects(&change.path)))
        .collect();
    let paths = before.keys().chain(system.files.keys());
    for path in paths.filter(|path| before.get(*path) != system.files.get(*path)) {
        assert!(planned.contains(path), "{rule} wrote to {path}, which is not in its plan");
    }
    Driver::new(&mut system, occasion).unwrap().undo(set).unwrap();
    let meanings = |files: &BTreeMap<String, String>| -> Vec<(String, String)> {
        files.iter().map(|(path, text)| (path.clone(), meaning(text).to_owned())).collect()
    };
    assert_eq!(meanings(&system.files), meanings(&before), "{rule}: undone");
}
