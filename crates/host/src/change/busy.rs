//! Why a disk's queue should be left alone now: a write to any of its attributes freezes and drains it, which
//! every request waits for, and on a disk that is swapped to, the writer may wait for itself.

use super::Device;
use crate::capture::device_named;
use crate::facts::Fact;
use crate::facts::block::disk_stats;
use crate::facts::memory::read_swaps;
use crate::root::Root;
use crate::target::{DeviceNumber, FileKind, TargetFacts, TargetIdentity};
use std::time::Duration;

/// Requests a second from which a disk counts as busy.
const BUSY_PER_S: f64 = 100.0;

/// Why the queue of a disk should not be written to now; none when it may. `sample` is how long its counters
/// are watched.
#[must_use]
pub fn reason(root: &Root, device: &Device, sample: Duration) -> Option<String> {
    let disk = device.name();
    for area in read_swaps(root).value().into_iter().flatten() {
        if below(root, &area.path).iter().any(|name| name == disk) {
            return Some(format!("{disk} is swapped to ({})", area.path));
        }
    }
    let before = disk_stats(root, disk).get()?;
    let after = disk_stats(&root.later(sample), disk).get()?;
    let done = (after.reads + after.writes).saturating_sub(before.reads + before.writes);
    let rate = done as f64 / sample.as_secs_f64().max(1e-3);
    if rate >= BUSY_PER_S {
        return Some(format!("{disk} is busy: {rate:.0} requests a second"));
    }
    let waiting = before.in_flight.min(after.in_flight);
    (waiting > 0).then(|| format!("{disk} is busy: {waiting} requests in flight"))
}

/// The disks a swap area rests on.
fn below(root: &Root, area: &str) -> Vec<String> {
    let identity = match device_named(root, area) {
        Ok(identity) if area.starts_with("/dev/") => identity,
        _ => file(area),
    };
    let traced = TargetFacts::trace(root, &identity);
    traced.map_or_else(
        |_| Vec::new(),
        |target| target.disks.iter().map(|disk| disk.name().to_owned()).collect(),
    )
}

fn file(path: &str) -> TargetIdentity {
    let nowhere = DeviceNumber { major: 0, minor: 0 };
    TargetIdentity {
        path: Some(path.to_owned()),
        kind: FileKind::Regular,
        device: nowhere,
        special: nowhere,
        size_bytes: 0,
        space: Fact::Absent { path: path.to_owned() },
        data: Fact::Absent { path: path.to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(swaps: &str, later: &str) -> Root {
        Root::from_capture(&format!(
            "/sys/devices/pci0000:00/vda/dev = 254:0\n/sys/devices/pci0000:00/vda/size = 1000\n\
             /sys/devices/pci0000:00/vda/stat = 10 0 80 1 5 0 40 1 0 1 2\n{later}\
             /sys/devices/pci0000:00/vda/vda2/dev = 254:2\n/sys/devices/pci0000:00/vda/vda2/partition = 2\n\
             /sys/block/vda -> ../devices/pci0000:00/vda\n\
             /sys/class/block/vda -> ../../devices/pci0000:00/vda\n\
             /sys/class/block/vda2 -> ../../devices/pci0000:00/vda/vda2\n\
             /sys/dev/block/254:0 -> ../../devices/pci0000:00/vda\n\
             /sys/dev/block/254:2 -> ../../devices/pci0000:00/vda/vda2\n\
             /proc/self/mountinfo = 22 1 254:0 / / rw - ext4 /dev/vda rw\n\
             /proc/swaps |\n|Filename Type Size Used Priority\n{swaps}"
        ))
        .unwrap()
    }

    fn ask(swaps: &str, later: &str) -> Option<String> {
        let device = Device { folder: "/sys/block/vda".to_owned(), id: String::new() };
        reason(&host(swaps, later), &device, Duration::from_millis(100))
    }

    #[test]
    fn a_quiet_disk_may_be_written_to() {
        assert_eq!(ask("", ""), None);
    }

    #[test]
    fn a_busy_disk_and_one_that_is_swapped_to_are_named() {
        let busy = "later /sys/devices/pci0000:00/vda/stat = 510 0 80 1 5 0 40 1 0 1 2\n";
        assert_eq!(ask("", busy).unwrap(), "vda is busy: 5000 requests a second");
        let part = "|/dev/vda2 partition 1000 0 -2\n";
        assert_eq!(ask(part, "").unwrap(), "vda is swapped to (/dev/vda2)");
        let file = "|/swapfile file 1000 0 -2\n";
        assert_eq!(ask(file, "").unwrap(), "vda is swapped to (/swapfile)");
    }
}
