//! From findings to a plan: which paths, what stands there, what is to stand there, what is left to people.
//!
//! A finding's fix is one line of shell for people. What of it is a plain write, and only that, is planned:
//! `echo VALUE > PATH`, `echo VALUE | tee PATH...` (with `*` and `{a,b}`) and `sysctl KEY=VALUE...`, joined
//! by `; `. A line with anything else in it is left to people as a whole.

use super::{Change, Device, Kind, may_write, same, side_effects};
use crate::finding::{Finding, Risk, Status};
use crate::root::Root;

/// What is to be done, and what is not, with the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which they are to be made.
    pub changes: Vec<Change>,
    /// Fixes that are not in the plan.
    pub left: Vec<Left>,
    /// Kernel parameters that would make a change stay: only advised.
    pub parameters: Vec<(String, String)>,
}

/// A fix that is not in the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The rule.
    pub rule: String,
    /// The letter of its class.
    pub class: String,
    /// Why it is left out.
    pub why: String,
    /// The fix as the finding gives it; empty when there is none to run.
    pub fix: String,
}

/// Which fixes are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Only these rules; none: all.
    pub rules: Option<Vec<String>>,
    /// The highest class.
    pub class_max: Risk,
}

impl Plan {
    /// Makes a plan from findings; `root` is read for what stands at each path, and nothing is written.
    #[must_use]
    pub fn of(findings: &[Finding], root: &Root, wanted: &Wanted) -> Plan {
        let mut plan = Plan::default();
        let asks = |finding: &&Finding| {
            let named =
                wanted.rules.as_ref().is_none_or(|rules| rules.iter().any(|rule| rule == finding.rule));
            named && matches!(finding.status, Status::Advice | Status::Problem)
        };
        for finding in findings.iter().filter(asks) {
            plan.add(finding, root, wanted.class_max);
        }
        plan.arrange();
        plan
    }

    fn add(&mut self, finding: &Finding, root: &Root, class_max: Risk) {
        let Some(fix) = &finding.fix else { return };
        let class = finding.risk.letter();
        let changes = match finding.risk {
            Risk::AdviceOnly => Err("class C is only ever advised".to_owned()),
            _ if fix.now.is_empty() => Err(format!("nothing can be written now: {}", fix.persistent)),
            _ => changes(finding, &fix.now, root),
        };
        // Only of what can be written: another class would not take in what is to be run by hand.
        let taken = changes.and_then(|changes| match (finding.risk, class_max) {
            (Risk::SideEffects, Risk::Safe) => {
                Err("class B has side effects: --class B takes it in".to_owned())
            }
            _ => Ok(changes),
        });
        let added = taken.and_then(|changes| self.merge(changes));
        match added {
            Ok(()) => {
                let parameters =
                    fix.persistent.split("; ").filter_map(|part| part.strip_prefix("kernel parameter "));
                self.parameters.extend(parameters.map(|text| (finding.rule.to_owned(), text.to_owned())));
            }
            Err(why) => {
                let (rule, class) = (finding.rule.to_owned(), class.to_owned());
                self.left.push(Left { rule, class, why, fix: fix.now.clone() });
            }
        }
    }

    /// Takes changes in, unless one of them contradicts another rule's.
    fn merge(&mut self, changes: Vec<Change>) -> Result<(), String> {
        for change in &changes {
            let other = self.changes.iter().find(|other| other.path == change.path);
            if let Some(other) = other.filter(|other| other.new != change.new) {
                let wants = other.new.clone().unwrap_or_default();
                return Err(format!("{} wants {wants} at {}", other.rule, change.path));
            }
        }
        let known: Vec<String> = self.changes.iter().map(|change| change.path.clone()).collect();
        self.changes.extend(changes.into_iter().filter(|change| !known.contains(&change.path)));
        Ok(())
    }

    /// Device by device, so that each is disturbed once; first what moves other values along.
    fn arrange(&mut self) {
        self.changes.sort_by_key(|change| {
            let device = change.device.as_ref().map(|device| device.folder.clone());
            (device, side_effects(&change.path).is_empty())
        });
    }
}

fn changes(finding: &Finding, command: &str, root: &Root) -> Result<Vec<Change>, String> {
    let mut changes = Vec::new();
    for (pattern, value) in writes(command).ok_or("not a plain write: to be run by hand")? {
        let paths = expand(root, &pattern);
        if paths.is_empty() {
            return Err(format!("{pattern}: no such path here"));
        }
        for path in paths {
            if !may_write(Kind::Attribute, &path) {
                return Err(format!("{path}: not among what Overdrive writes: to be run by hand"));
            }
            let read = root.text(&path);
            let crate::facts::Fact::Known { raw, .. } = &read else {
                return Err(format!(
                    "{path}: {}: what stands there could not be put back",
                    read.why().unwrap_or_default()
                ));
            };
            if raw.contains(['\u{fffd}', '\0']) {
                return Err(format!("{path}: not text: what stands there could not be put back"));
            }
            if same(Kind::Attribute, Some(raw), Some(&value)) {
                continue;
            }
            changes.push(Change {
                rule: finding.rule.to_owned(),
                class: finding.risk.letter().to_owned(),
                kind: Kind::Attribute,
                device: device_of(root, &path),
                old: Some(raw.clone()),
                new: Some(value.clone()),
                path,
            });
        }
    }
    Ok(changes)
}

/// The writes a command line consists of, as pattern and value; none when it has anything else in it.
fn writes(command: &str) -> Option<Vec<(String, String)>> {
    let mut writes = Vec::new();
    for part in command.split("; ") {
        let part = part.trim();
        if let Some(pairs) = part.strip_prefix("sysctl ") {
            for pair in pairs.split_whitespace().filter(|&word| word != "-w") {
                let (key, value) = pair.split_once('=')?;
                let plain =
                    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
                plain.then_some(())?;
                writes.push((format!("/proc/sys/{}", key.replace('.', "/")), value.to_owned()));
            }
            continue;
        }
        let rest = part.strip_prefix("echo ")?;
        let (value, paths) = rest.split_once(" > ").or_else(|| rest.split_once(" | tee "))?;
        let value = value.trim().trim_matches(['\'', '"']);
        if value.is_empty() || value.contains(['$', '`', '|', '>', '&', ';', '\n']) {
            return None;
        }
        for path in paths.split_whitespace() {
            let is_path =
                path.starts_with('/') && !path.contains(['$', '`', '|', '>', '&', ';', '(', '"', '\'']);
            is_path.then_some(())?;
            writes.push((path.to_owned(), value.to_owned()));
        }
    }
    (!writes.is_empty()).then_some(writes)
}

/// The paths a pattern of the shell stands for; without `*` or `{}`, itself if it is there.
fn expand(root: &Root, pattern: &str) -> Vec<String> {
    if let Some((before, rest)) = pattern.split_once('{')
        && let Some((choices, after)) = rest.split_once('}')
    {
        return choices.split(',').flat_map(|one| expand(root, &format!("{before}{one}{after}"))).collect();
    }
    let mut paths = vec![String::new()];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        if !part.contains('*') {
            paths.iter_mut().for_each(|path| *path = format!("{path}/{part}"));
            continue;
        }
        paths = paths
            .iter()
            .flat_map(|path| {
                let names = root.list(path).value().cloned().unwrap_or_default();
                let fitting = names.into_iter().filter(|name| matches(part, name));
                fitting.map(|name| format!("{path}/{name}")).collect::<Vec<_>>()
            })
            .collect();
    }
    paths.retain(|path| root.exists(path));
    paths
}

/// Whether a name fits a pattern with `*` in it.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => name.strip_prefix(head).is_some_and(|rest| {
            (0..=rest.len()).filter(|&at| rest.is_char_boundary(at)).any(|at| matches(tail, &rest[at..]))
        }),
    }
}

/// Folders whose entries are devices that may change their names.
const CLASSES: [&str; 2] = ["/sys/block", "/sys/class/nvme"];

/// The device that an attribute belongs to.
pub(crate) fn device_of(root: &Root, path: &str) -> Option<Device> {
    let class = class_of(path)?;
    let name = path[class.len() + 1..].split('/').next()?;
    let folder = format!("{class}/{name}");
    let known_by = identities(root, &folder)?;
    // A hidden path to a drive says what the drive says: its place alone tells it from that and other paths.
    let placed_only = is_hidden(root, &folder);
    let mut fitting = known_by.into_iter().filter(|id| is_placed(id) || !placed_only);
    let id = fitting.find(|id| owners(root, class, id).len() == 1)?;
    Some(Device { folder, id })
}

/// Whether an identity says where the device is as well.
fn is_placed(id: &str) -> bool {
    id.starts_with("at:")
}

/// Whether a disk is one of the paths to an NVMe drive that has several: no node in /dev, no event for udev.
pub(super) fn is_hidden(root: &Root, folder: &str) -> bool {
    root.text(&format!("{folder}/hidden")).value().is_some_and(|it| it == "1")
}

fn class_of(path: &str) -> Option<&'static str> {
    let holds = |class: &&str| path.strip_prefix(*class).is_some_and(|rest| rest.starts_with('/'));
    CLASSES.into_iter().find(holds)
}

/// What a device is known by, whatever its name; and the same with its place, where another says it too.
fn identities(root: &Root, folder: &str) -> Option<[String; 2]> {
    let real = root.resolve(folder).value()?.clone();
    let own = identity(root, folder, &real);
    let placed = format!("at:{real}:{own}");
    Some([own, placed])
}

fn identity(root: &Root, folder: &str, real: &str) -> String {
    for (kind, file) in
        [("wwid", "wwid"), ("wwid", "device/wwid"), ("serial", "serial"), ("serial", "device/serial")]
    {
        if let Some(text) = root.text(&format!("{folder}/{file}")).value().filter(|text| !text.is_empty()) {
            // Attributes of the device below cannot be matched by the same udev key: kept apart.
            let kind = if file.contains('/') { format!("device-{kind}") } else { kind.to_owned() };
            return format!("{kind}:{text}");
        }
    }
    let is_virtual = real.starts_with("/sys/devices/virtual/");
    let place = if is_virtual { real } else { real.rsplit_once('/').map_or(real, |(above, _)| above) };
    format!("path:{place}")
}

/// The folders of the class whose device is known by this. The hidden paths to an NVMe drive of several say
/// what the drive says, and are meant only by their place.
fn owners(root: &Root, class: &str, id: &str) -> Vec<String> {
    let names = root.list(class).value().cloned().unwrap_or_default();
    let folders = names.iter().map(|name| format!("{class}/{name}"));
    let is_its = |folder: &String| {
        identities(root, folder).is_some_and(|known_by| known_by.iter().any(|known| known == id))
            && (is_placed(id) || !is_hidden(root, folder))
    };
    folders.filter(is_its).collect()
}

/// Where a device is now, under whatever name; none when it is not there, or when more than one could be it.
pub(super) fn locate(root: &Root, device: &Device) -> Option<String> {
    let mut found = owners(root, class_of(&device.folder)?, &device.id);
    let one = found.pop()?;
    found.is_empty().then_some(one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Fix, Scope};

    #[test]
    fn plain_writes_are_understood_and_nothing_else_is() {
        let one = |path: &str, value: &str| (path.to_owned(), value.to_owned());
        assert_eq!(
            writes("echo none > /sys/a; echo 2 > /sys/b").unwrap(),
            [one("/sys/a", "none"), one("/sys/b", "2")]
        );
        assert_eq!(
            writes("echo 1 | tee /sys/a*/b /sys/c").unwrap(),
            [one("/sys/a*/b", "1"), one("/sys/c", "1")]
        );
        assert_eq!(
            writes("sysctl vm.swappiness=100 kernel.numa_balancing=0").unwrap(),
            [one("/proc/sys/vm/swappiness", "100"), one("/proc/sys/kernel/numa_balancing", "0")]
        );
        for command in [
            "mount -o remount,nodiscard /",
            "echo 1 > /sys/a; reboot",
            "echo $(id) > /sys/a",
            "echo 1 > /sys/a && echo 2 > /sys/b",
            "sysctl -p",
            "",
        ] {
            assert_eq!(writes(command), None, "{command}");
        }
    }

    #[test]
    fn patterns_are_expanded_as_a_shell_would() {
        let root =
            Root::from_capture("/sys/c/cpu{0..2}/state1/disable = 0\n/sys/c/cpu1/state2/disable = 0\n")
                .unwrap();
        assert_eq!(
            expand(&root, "/sys/c/cpu*/state{1,2}/disable"),
            [
                "/sys/c/cpu0/state1/disable",
                "/sys/c/cpu1/state1/disable",
                "/sys/c/cpu2/state1/disable",
                "/sys/c/cpu1/state2/disable"
            ]
        );
        assert_eq!(expand(&root, "/sys/c/nothing"), [""; 0]);
        assert!(matches("a*c*e", "abcde") && !matches("a*c", "abd") && matches("*", ""));
    }

    #[test]
    fn a_device_is_found_again_under_another_name() {
        let before =
            Root::from_capture("/sys/block/nvme0n1/wwid = eui.01\n/sys/block/nvme1n1/wwid = eui.02\n")
                .unwrap();
        let after =
            Root::from_capture("/sys/block/nvme0n1/wwid = eui.02\n/sys/block/nvme1n1/wwid = eui.01\n")
                .unwrap();
        let device = device_of(&before, "/sys/block/nvme0n1/queue/scheduler").unwrap();
        assert_eq!(device.id, "wwid:eui.01");
        assert_eq!(locate(&before, &device).unwrap(), "/sys/block/nvme0n1");
        assert_eq!(locate(&after, &device).unwrap(), "/sys/block/nvme1n1");
        assert_eq!(locate(&Root::from_capture("").unwrap(), &device), None);
    }
    /// Two disks that say the same serial, at these places.
    fn twins(places: [&str; 2]) -> Root {
        let disk = |(name, place): (&str, &str)| {
            format!(
                "/sys/devices/{place}/{name}/serial = same\n/sys/devices/{place}/{name}/queue/nomerges = 0\n\
                 /sys/block/{name} -> ../devices/{place}/{name}\n"
            )
        };
        Root::from_capture(&["vda", "vdb"].into_iter().zip(places).map(disk).collect::<String>()).unwrap()
    }

    #[test]
    fn two_disks_of_one_serial_are_told_apart_or_left_alone() {
        let root = twins(["pci/1", "pci/2"]);
        let of = |name: &str| device_of(&root, &format!("/sys/block/{name}/queue/nomerges")).unwrap();
        let (one, other) = (of("vda"), of("vdb"));
        assert_ne!(one.id, other.id);
        assert_eq!(locate(&root, &one).as_deref(), Some("/sys/block/vda"));
        assert_eq!(locate(&root, &other).as_deref(), Some("/sys/block/vdb"));
        // Their names changed places: neither is where it was, so neither is written to.
        let swapped = twins(["pci/2", "pci/1"]);
        assert_eq!((locate(&swapped, &one), locate(&swapped, &other)), (None, None));
        // A journal from when there was one, or from before they were told apart.
        let alone = Device { folder: "/sys/block/vda".to_owned(), id: "serial:same".to_owned() };
        assert_eq!(locate(&root, &alone), None);
    }

    #[test]
    fn the_hidden_paths_to_a_drive_are_neither_the_drive_nor_each_other() {
        let disk = |name: &str, place: &str, hidden: &str| {
            format!(
                "/sys/devices/{place}/{name}/wwid = eui.01\n/sys/devices/{place}/{name}/hidden = {hidden}\n\
                 /sys/block/{name} -> ../devices/{place}/{name}\n"
            )
        };
        let head = disk("nvme0n1", "virtual/nvme-subsystem/nvme-subsys0", "0");
        let paths = [("nvme0c0n1", "pci/1/nvme/nvme0"), ("nvme0c1n1", "pci/2/nvme/nvme1")];
        let paths = paths.map(|(name, place)| disk(name, place, "1"));
        let root = Root::from_capture(&(head.clone() + &paths.concat())).unwrap();
        let mut known_by = Vec::new();
        for name in ["nvme0n1", "nvme0c0n1", "nvme0c1n1"] {
            let folder = format!("/sys/block/{name}");
            let device = device_of(&root, &format!("{folder}/queue/nomerges")).unwrap();
            assert_eq!(locate(&root, &device), Some(folder), "{device:?}");
            assert!(!known_by.contains(&device.id), "{device:?}: the same chain in the journal");
            known_by.push(device.id);
        }
        assert_eq!(known_by[0], "wwid:eui.01");
        // A path that went is gone: neither the drive nor the other path is written to in its place.
        let fewer = Root::from_capture(&(head + &paths[0])).unwrap();
        let gone = Device { folder: "/sys/block/nvme0c1n1".to_owned(), id: known_by[2].clone() };
        assert_eq!(locate(&fewer, &gone), None);
    }

    #[test]
    fn another_class_is_offered_only_for_what_it_would_write() {
        let root = Root::from_capture("/proc/sys/vm/swappiness = 60\n").unwrap();
        let why = |fix: &str| {
            let finding = Finding {
                rule: "a-rule",
                scope: Scope::Vm,
                title: "",
                status: Status::Advice,
                evidence: Vec::new(),
                reason: String::new(),
                why: "",
                source: "",
                effect: String::new(),
                fix: Some(Fix { now: fix.to_owned(), persistent: String::new() }),
                undo: None,
                risk: Risk::SideEffects,
                verified: true,
            };
            let plan = Plan::of(&[finding], &root, &Wanted { rules: None, class_max: Risk::Safe });
            plan.left.into_iter().next().unwrap().why
        };
        assert!(why("sysctl vm.swappiness=100").contains("--class B takes it in"));
        let by_hand = why("mount -o remount,nodiscard /");
        assert!(by_hand.contains("to be run by hand") && !by_hand.contains("--class B"), "{by_hand}");
    }
}
