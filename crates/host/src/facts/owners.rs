//! Who else sets what we look at: tuning daemons that run, and configuration that is applied at boot.
//!
//! Only lines that set a knob are kept. A daemon is known by the name of its process; one that sets things
//! and ends (TLP) is known by its configuration.

use super::{Fact, FactRow, Rows};
use crate::root::Root;

/// Processes that tune, balance, or kill for lack of memory, as /proc/PID/comm names them.
const DAEMONS: [&str; 12] = [
    "tuned",
    "tuned-ppd",
    "power-profiles-",
    "tlp",
    "thermald",
    "irqbalance",
    "numad",
    "ksmtuned",
    "systemd-oomd",
    "earlyoom",
    "auditd",
    "multipathd",
];

/// A line of a configuration file that sets a knob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The file.
    pub file: String,
    /// The knob, as the file names it.
    pub key: String,
    /// The value.
    pub value: String,
}

/// What is known of other owners.
#[derive(Debug, Clone)]
pub struct OwnerFacts {
    /// The daemons of our list that run.
    pub daemons: Fact<Vec<String>>,
    /// Sysctls set at boot, in the order in which they are applied: later ones win.
    pub sysctls: Vec<Assignment>,
    /// Queue attributes and governors set by udev rules; the key is the attribute.
    pub udev: Vec<Assignment>,
    /// Options of the NVMe driver in modprobe.d; the key is `nvme.poll_queues` and the like.
    pub modprobe: Vec<Assignment>,
    /// Lines of own systemd units that write below /sys or hold the latency file; the key is the line.
    pub units: Vec<Assignment>,
    /// Knobs that TLP's configuration sets.
    pub tlp: Vec<Assignment>,
    /// Options of irqbalance that leave out interrupts or CPUs.
    pub irqbalance: Vec<Assignment>,
}

impl OwnerFacts {
    pub(super) fn read(root: &Root) -> OwnerFacts {
        let gather = |folder: &str, end: &str, line: fn(&str) -> Vec<(String, String)>| {
            let files = in_order(root, folder, end);
            files.iter().flat_map(|file| assignments(root, file, line)).collect::<Vec<_>>()
        };
        let mut sysctls = gather("sysctl.d", ".conf", sysctl_line);
        if root.exists("/etc/sysctl.conf") && !sysctls.iter().any(|set| set.file.ends_with("99-sysctl.conf"))
        {
            sysctls.extend(assignments(root, "/etc/sysctl.conf", sysctl_line));
        }
        OwnerFacts {
            daemons: read_daemons(root),
            sysctls,
            udev: gather("udev/rules.d", ".rules", udev_line),
            modprobe: gather("modprobe.d", ".conf", modprobe_line),
            units: own_units(root).iter().flat_map(|file| assignments(root, file, unit_line)).collect(),
            tlp: assignments(root, "/etc/tlp.conf", shell_line),
            irqbalance: ["/etc/default/irqbalance", "/etc/sysconfig/irqbalance"]
                .iter()
                .flat_map(|file| assignments(root, file, shell_line))
                .filter(|set| set.key.contains("BANNED") || set.key.ends_with("ARGS"))
                .collect(),
        }
    }

    /// Whether a daemon of that name runs; `None` when processes cannot be listed.
    #[must_use]
    pub fn runs(&self, name: &str) -> Option<bool> {
        Some(self.daemons.value()?.iter().any(|daemon| daemon == name))
    }

    /// The last boot-time setting of a sysctl, named with dots.
    #[must_use]
    pub fn sysctl(&self, name: &str) -> Option<&Assignment> {
        self.sysctls.iter().rev().find(|set| set.key == name)
    }

    pub(super) fn rows(&self) -> Vec<FactRow> {
        let mut rows = Rows::new("owners");
        rows.add("daemons", "Daemons that tune", &self.daemons, |names| match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        });
        rows.into_vec()
    }
}

fn read_daemons(root: &Root) -> Fact<Vec<String>> {
    const WHERE: &str = "/proc/*/comm";
    let pids = root.list("/proc");
    let Some(names) = pids.value() else { return pids };
    let pids = names.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let comms: Vec<String> =
        pids.filter_map(|pid| root.text(&format!("/proc/{pid}/comm")).value().cloned()).collect();
    if comms.is_empty() {
        return Fact::Absent { path: WHERE.to_owned() };
    }
    let mut found: Vec<String> =
        comms.iter().filter(|name| DAEMONS.contains(&name.as_str())).cloned().collect();
    found.sort();
    found.dedup();
    // The list of all processes is no evidence of anything.
    let raw = if found.is_empty() { "none of those known to tune".to_owned() } else { found.join(" ") };
    Fact::known(found, raw, WHERE)
}

/// Units that somebody made on this host.
fn own_units(root: &Root) -> Vec<String> {
    const FOLDER: &str = "/etc/systemd/system";
    let names = root.list(FOLDER);
    let units = names.value().into_iter().flatten().filter(|name| name.ends_with(".service"));
    units.map(|name| format!("{FOLDER}/{name}")).collect()
}

/// Files of a folder of configuration in the order they apply: by name, a later place hiding the same name of
/// an earlier one, as systemd, udev and modprobe read them.
fn in_order(root: &Root, folder: &str, end: &str) -> Vec<String> {
    const PLACES: [&str; 4] = ["/usr/lib", "/usr/local/lib", "/run", "/etc"];
    let mut files: Vec<(String, String)> = Vec::new();
    for place in PLACES {
        let folder = format!("{place}/{folder}");
        let names = root.list(&folder);
        for name in names.value().into_iter().flatten().filter(|name| name.ends_with(end)) {
            files.retain(|(seen, _)| seen != name);
            files.push((name.clone(), format!("{folder}/{name}")));
        }
    }
    files.sort();
    files.into_iter().map(|(_, path)| path).collect()
}

fn assignments(root: &Root, file: &str, line: fn(&str) -> Vec<(String, String)>) -> Vec<Assignment> {
    let text = root.text(file);
    let lines = text.value().into_iter().flat_map(|text| text.lines()).map(str::trim);
    lines
        .filter(|text| !text.is_empty() && !text.starts_with(['#', ';']))
        .flat_map(line)
        .map(|(key, value)| Assignment { file: file.to_owned(), key, value })
        .collect()
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.trim().to_owned(), value.trim().trim_matches('"').to_owned())
}

fn sysctl_line(line: &str) -> Vec<(String, String)> {
    let parts = line.trim_start_matches('-').split_once('=');
    parts.map(|(key, value)| pair(&key.trim().replace('/', "."), value)).into_iter().collect()
}

fn shell_line(line: &str) -> Vec<(String, String)> {
    line.split_once('=').map(|(key, value)| pair(key, value)).into_iter().collect()
}

/// Assignments such as `ATTR{queue/scheduler}="none"`; comparisons (`==`) only select.
fn udev_line(line: &str) -> Vec<(String, String)> {
    let words = line.split("ATTR{").skip(1);
    words
        .filter_map(|word| {
            let (key, rest) = word.split_once('}')?;
            let value = rest.strip_prefix("=\"")?.split('"').next()?;
            key.starts_with("queue/").then(|| pair(key, value))
        })
        .collect()
}

fn modprobe_line(line: &str) -> Vec<(String, String)> {
    let mut words = line.split_whitespace();
    if words.next() != Some("options") {
        return Vec::new();
    }
    let module = words.next().unwrap_or_default().replace('-', "_");
    if !["nvme", "nvme_core"].contains(&module.as_str()) {
        return Vec::new();
    }
    words
        .filter_map(|word| word.split_once('='))
        .map(|(key, value)| pair(&format!("{module}.{key}"), value))
        .collect()
}

fn unit_line(line: &str) -> Vec<(String, String)> {
    let writes = line.starts_with("Exec") && (line.contains("/sys/") || line.contains("cpu_dma_latency"));
    if writes { vec![(line.to_owned(), String::new())] } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn finds_every_kind_of_owner() {
        let root = Root::from_capture(
            "/proc/1/comm = systemd\n/proc/9/comm = tuned\n/proc/acpi/\n\
             /usr/lib/sysctl.d/50-a.conf = vm.swappiness = 10\n/etc/sysctl.d/50-a.conf = vm/swappiness=60\n\
             /etc/sysctl.d/99-z.conf |\n|# no\n|-vm.swappiness = 100\n\
             /etc/udev/rules.d/60-q.rules = KERNEL==\"nvme*\", ATTR{queue/rotational}==\"0\", ATTR{queue/scheduler}=\"kyber\"\n\
             /etc/modprobe.d/n.conf = options nvme poll_queues=4 write_queues=1\n\
             /etc/systemd/system/x.service = ExecStart=/bin/sh -c 'echo 0 > /sys/block/sda/queue/iostats'\n\
             /etc/tlp.conf = CPU_SCALING_GOVERNOR_ON_AC=powersave\n",
        )
        .unwrap();
        let owners = OwnerFacts::read(&root);
        assert_eq!((owners.runs("tuned"), owners.runs("irqbalance")), (Some(true), Some(false)));
        let last = owners.sysctl("vm.swappiness").unwrap();
        assert_eq!((last.value.as_str(), last.file.as_str()), ("100", "/etc/sysctl.d/99-z.conf"));
        assert_eq!(owners.sysctls.len(), 2, "the file of /etc hides the one of /usr/lib");
        assert_eq!(
            (owners.udev[0].key.as_str(), owners.udev[0].value.as_str()),
            ("queue/scheduler", "kyber")
        );
        assert_eq!(owners.udev.len(), 1, "a comparison sets nothing");
        assert_eq!(owners.modprobe[1].key, "nvme.write_queues");
        assert_eq!((owners.units.len(), owners.tlp.len()), (1, 1));
    }

    #[test]
    fn every_place_of_configuration_is_read_and_the_last_hides_the_others() {
        let root = Root::from_capture(
            "/usr/local/lib/sysctl.d/50-a.conf = vm.swappiness = 10\n/run/sysctl.d/60-b.conf = vm.swappiness = 20\n\
             /run/modprobe.d/n.conf = options nvme poll_queues=4\n\
             /usr/local/lib/modprobe.d/n.conf = options nvme poll_queues=8\n\
             /usr/local/lib/udev/rules.d/60-q.rules = ATTR{queue/scheduler}=\"kyber\"\n",
        )
        .unwrap();
        let owners = OwnerFacts::read(&root);
        let values = |list: &[Assignment]| list.iter().map(|set| set.value.clone()).collect::<Vec<_>>();
        assert_eq!(values(&owners.sysctls), ["10", "20"]);
        assert_eq!(
            (values(&owners.modprobe), values(&owners.udev)),
            (vec!["4".into()], vec!["kyber".into()])
        );
    }

    proptest! {
        #[test]
        fn nothing_panics(line in "(ATTR\\{|queue/|=|\"|options nvme|[ a-z.}]){0,12}") {
            let _ = (sysctl_line(&line), udev_line(&line), modprobe_line(&line), unit_line(&line), shell_line(&line));
        }
    }
}
