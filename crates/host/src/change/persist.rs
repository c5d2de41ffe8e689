//! Making changes stay: configuration files of our own, one of each kind a set, so that undo can remove them
//! without a thought for what else is configured.

use super::plan::is_hidden;
use super::{Change, Device, Kind, meaning};
use crate::root::Root;
use std::collections::BTreeMap;

/// The only folders in which Overdrive makes files.
pub const FOLDERS: [&str; 6] = [
    "/etc/sysctl.d",
    "/etc/udev/rules.d",
    "/etc/modprobe.d",
    "/etc/tmpfiles.d",
    "/etc/systemd/system",
    "/etc/systemd/system/multi-user.target.d",
];

/// Where units stand in [`FOLDERS`]; behind it, what has them started.
const UNITS: usize = 4;

/// The files that set what `changes` set, at every boot, for set number `set`. `root` tells what is a module.
#[must_use]
pub fn files(root: &Root, changes: &[Change], set: u64) -> Vec<Change> {
    // Later sets are read after earlier ones: files are read in the order of their names.
    let number = format!("{set:04}");
    let mut texts: BTreeMap<String, (Vec<String>, &Change)> = BTreeMap::new();
    for change in changes.iter().filter(|change| change.kind == Kind::Attribute && can_stay(root, change)) {
        let (folder, name, line) = place(root, change);
        let path = format!("{}/{}", FOLDERS[folder], name.replace('N', &number));
        texts.entry(path).or_insert((Vec::new(), change)).0.push(line);
    }
    let rules: Vec<&str> = changes.iter().map(|change| change.rule.as_str()).collect();
    let file = |path: String, rule: String, first: &Change, body: &str| {
        let head = format!(
            "# Made by overdrive tune apply --persist, set {set}; overdrive tune undo {set} removes it."
        );
        let class = changes.iter().map(|change| change.class.as_str()).max().unwrap_or(first.class.as_str());
        let (class, new) = (class.to_owned(), Some(format!("{head}\n{body}\n")));
        Change { rule, class, kind: Kind::File, path, old: None, new, device: None }
    };
    let mut files = Vec::new();
    for (path, (lines, first)) in texts {
        let rule = if lines.len() == 1 { first.rule.clone() } else { deduplicated(&rules).join(",") };
        let unit = path.strip_prefix(FOLDERS[UNITS]).map(|name| name.trim_start_matches('/').to_owned());
        let Some(unit) = unit else {
            files.push(file(path, rule, first, &lines.join("\n")));
            continue;
        };
        let body = format!(
            "[Unit]\nDescription=Settings of overdrive tune, set {set}\n\n[Service]\nType=oneshot\n\
             RemainAfterExit=yes\n{}",
            lines.join("\n")
        );
        // Enabled by a file as well: a link as systemctl makes it could not be undone as a text.
        let wanted = format!("{}/overdrive-{number}.conf", FOLDERS[UNITS + 1]);
        files.push(file(path, rule.clone(), first, &body));
        files.push(file(wanted, rule, first, &format!("[Unit]\nWants={unit}")));
    }
    files
}

/// What no file can make stay, in words.
#[must_use]
pub fn passing(root: &Root, changes: &[Change]) -> Vec<String> {
    let told = |change: &Change| {
        format!(
            "{}: not made to stay over a reboot: udev hears nothing of a hidden path to a drive ({})",
            change.path, change.rule
        )
    };
    changes.iter().filter(|change| !can_stay(root, change)).map(told).collect()
}

fn can_stay(root: &Root, change: &Change) -> bool {
    change.device.as_ref().is_none_or(|device| !is_hidden(root, &device.folder))
}

fn deduplicated<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(name) {
            seen.push(*name);
        }
    }
    seen
}

/// In which folder, in which file (N is the set), as which line.
fn place(root: &Root, change: &Change) -> (usize, &'static str, String) {
    let value = change.new.as_deref().map(meaning).unwrap_or_default();
    if let Some(key) = change.path.strip_prefix("/proc/sys/") {
        return (0, "90-overdrive-N.conf", format!("{} = {value}", key.replace('/', ".")));
    }
    let device = change.device.as_ref();
    if let Some((device, attribute)) =
        device.and_then(|device| Some((device, change.path.strip_prefix(&format!("{}/", device.folder))?)))
    {
        return (1, "99-overdrive-N.rules", udev_line(device, attribute, value));
    }
    let module = change.path.strip_prefix("/sys/module/").and_then(|rest| rest.split_once("/parameters/"));
    // What is built into the kernel has no such file, and is not loaded with options from there.
    let is_loaded = |name: &str| root.exists(&format!("/sys/module/{name}/initstate"));
    if let Some((module, parameter)) = module.filter(|(module, _)| is_loaded(module)) {
        return (2, "overdrive-N.conf", format!("options {module} {parameter}={value}"));
    }
    if change.path.starts_with("/sys/kernel/") && !change.path.starts_with("/sys/kernel/debug/") {
        return (3, "overdrive-N.conf", format!("w {} - - - - {value}", change.path));
    }
    // Attributes of devices and of debugfs are not there yet when tmpfiles.d is read. One that is missing at
    // a boot, of a processor that is offline, keeps none of the others back: that is what the minus says.
    let (value, path) = (value.replace('%', "%%"), change.path.replace('%', "%%"));
    (UNITS, "overdrive-N.service", format!("ExecStart=-/bin/sh -c 'echo {value} > {path}'"))
}

/// A rule for one disk or NVMe controller by its identity, so that another one of its name is left alone.
fn udev_line(device: &Device, attribute: &str, value: &str) -> String {
    // Characters that a pattern or its quotes would take for their own; `?` is any one.
    let id = device.id.replace(['*', '?', '[', ']', '|', '"', '\\'], "?");
    let same = match id.split_once(':') {
        Some(("wwid", id)) => format!("ATTR{{wwid}}==\"{id}\""),
        Some(("serial", id)) => format!("ATTR{{serial}}==\"{id}\""),
        // Of the device that the disk belongs to: SATA and SAS say it there.
        Some(("device-wwid", id)) => format!("ATTRS{{wwid}}==\"{id}\""),
        Some(("device-serial", id)) => format!("ATTRS{{serial}}==\"{id}\""),
        _ => format!("KERNEL==\"{}\"", device.name()),
    };
    let class = match device.folder.starts_with("/sys/block/") {
        true => "SUBSYSTEM==\"block\", ENV{DEVTYPE}==\"disk\"",
        false => "SUBSYSTEM==\"nvme\"",
    };
    format!("ACTION==\"add|change\", {class}, {same}, ATTR{{{attribute}}}=\"{value}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, new: &str, device: Option<Device>) -> Change {
        Change {
            rule: "a-rule".to_owned(),
            class: "A".to_owned(),
            kind: Kind::Attribute,
            path: path.to_owned(),
            old: Some("1\n".to_owned()),
            new: Some(new.to_owned()),
            device,
        }
    }

    #[test]
    fn each_kind_of_attribute_has_its_file() {
        let disk = Device { folder: "/sys/block/nvme0n1".to_owned(), id: "wwid:eui.01".to_owned() };
        let root = Root::from_capture("/sys/module/nvme/initstate = live\n").unwrap();
        let files = files(
            &root,
            &[
                change("/proc/sys/vm/swappiness", "100", None),
                change("/proc/sys/kernel/numa_balancing", "0", None),
                change("/sys/block/nvme0n1/queue/scheduler", "none", Some(disk)),
                change("/sys/module/nvme/parameters/poll_queues", "4", None),
                change("/sys/module/zswap/parameters/enabled", "N", None),
                change("/sys/kernel/mm/ksm/run", "0", None),
                change("/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "performance", None),
                change("/sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "performance", None),
            ],
            3,
        );
        let text = |path: &str| {
            let file = files.iter().find(|file| file.path == path).unwrap();
            file.new.clone().unwrap().lines().skip(1).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(
            text("/etc/sysctl.d/90-overdrive-0003.conf"),
            "vm.swappiness = 100\nkernel.numa_balancing = 0"
        );
        assert_eq!(
            text("/etc/udev/rules.d/99-overdrive-0003.rules"),
            "ACTION==\"add|change\", SUBSYSTEM==\"block\", ENV{DEVTYPE}==\"disk\", \
             ATTR{wwid}==\"eui.01\", ATTR{queue/scheduler}=\"none\""
        );
        assert_eq!(text("/etc/modprobe.d/overdrive-0003.conf"), "options nvme poll_queues=4");
        assert_eq!(text("/etc/tmpfiles.d/overdrive-0003.conf"), "w /sys/kernel/mm/ksm/run - - - - 0");
        assert_eq!(
            text("/etc/systemd/system/overdrive-0003.service"),
            "[Unit]\nDescription=Settings of overdrive tune, set 3\n\n[Service]\nType=oneshot\n\
             RemainAfterExit=yes\n\
             ExecStart=-/bin/sh -c 'echo N > /sys/module/zswap/parameters/enabled'\n\
             ExecStart=-/bin/sh -c 'echo performance > /sys/devices/system/cpu/cpufreq/policy0/scaling_governor'\n\
             ExecStart=-/bin/sh -c 'echo performance > /sys/devices/system/cpu/cpufreq/policy1/scaling_governor'"
        );
        assert_eq!(
            text("/etc/systemd/system/multi-user.target.d/overdrive-0003.conf"),
            "[Unit]\nWants=overdrive-0003.service"
        );
        assert!(files.iter().all(|file| super::super::may_write(Kind::File, &file.path)));
    }

    #[test]
    fn a_disk_whose_identity_its_device_has_is_not_known_by_its_name() {
        let root = Root::from_capture("").unwrap();
        for (id, wanted) in [
            ("device-wwid:t10.ATA     A [B]|\"C\" 1", "ATTRS{wwid}==\"t10.ATA     A ?B???C? 1\""),
            ("device-serial:S1", "ATTRS{serial}==\"S1\""),
            ("path:/sys/devices/pci/x", "KERNEL==\"sda\""),
        ] {
            let device = Device { folder: "/sys/block/sda".to_owned(), id: id.to_owned() };
            let made =
                files(&root, &[change("/sys/block/sda/queue/scheduler", "none", Some(device))], 1).remove(0);
            let text = made.new.unwrap();
            assert!(text.contains(&format!(" {wanted}, ATTR{{queue/scheduler}}=\"none\"")), "{text}");
        }
    }

    #[test]
    fn a_controller_is_known_by_its_serial_and_not_by_its_number() {
        let device = Device { folder: "/sys/class/nvme/nvme0".to_owned(), id: "serial:PHKE1".to_owned() };
        let tolerance = change("/sys/class/nvme/nvme0/power/pm_qos_latency_tolerance_us", "0", Some(device));
        let made = files(&Root::from_capture("").unwrap(), &[tolerance], 1);
        assert_eq!((made.len(), made[0].path.as_str()), (1, "/etc/udev/rules.d/99-overdrive-0001.rules"));
        let wanted = "SUBSYSTEM==\"nvme\", ATTR{serial}==\"PHKE1\", \
                      ATTR{power/pm_qos_latency_tolerance_us}=\"0\"\n";
        assert!(made[0].new.as_ref().unwrap().ends_with(wanted), "{made:?}");
    }

    #[test]
    fn a_hidden_path_to_a_drive_is_left_out_and_named() {
        let root = Root::from_capture("/sys/block/nvme0c0n1/hidden = 1\n").unwrap();
        let path = "/sys/block/nvme0c0n1/queue/nomerges";
        let device = |name: &str| {
            let folder = format!("/sys/block/{name}");
            Some(Device { folder, id: "at:/sys/devices/x:wwid:eui.01".to_owned() })
        };
        let hidden = change(path, "2", device("nvme0c0n1"));
        assert_eq!(files(&root, std::slice::from_ref(&hidden), 1), []);
        let said = passing(&root, &[hidden, change("/sys/block/vda/queue/nomerges", "2", device("vda"))]);
        assert!(said.len() == 1 && said[0].starts_with(path), "{said:?}");
    }
}
