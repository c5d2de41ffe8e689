//! Why a device must not be written to, on captured hosts: every way of being in use, and none missed.

use crate::{device, file};
use overdrive_host::Root;
use overdrive_host::hazards::{HazardKind, write_hazards};
use overdrive_host::target::{TargetFacts, TargetIdentity};

/// sda: root on sda1, swap on sda2, and sda3 under LVM, whose volume is mounted by its mapped name. sdb: a
/// partition that nobody uses. sdc: the second device of a btrfs. sdd: mounted whole, with a partition in it.
const HOST: &str = "\
/proc/swaps |
|Filename Type Size Used Priority
|/dev/sda2 partition 1000 0 -2
|/data/swapfile file 1000 0 -3
/proc/self/mountinfo |
|27 1 8:1 / / rw - ext4 /dev/sda1 rw
|28 27 254:0 / /data rw - xfs /dev/mapper/vg-data rw
|29 27 0:50 / /multi rw - btrfs /dev/sdd rw
|30 27 254:0 / /frozen ro - xfs /dev/mapper/vg-data rw
/sys/dev/block/8:0 -> ../../devices/ata1/sda
/sys/dev/block/8:1 -> ../../devices/ata1/sda/sda1
/sys/dev/block/8:2 -> ../../devices/ata1/sda/sda2
/sys/dev/block/8:3 -> ../../devices/ata1/sda/sda3
/sys/dev/block/8:16 -> ../../devices/ata1/sdb
/sys/dev/block/8:32 -> ../../devices/ata1/sdc
/sys/dev/block/8:49 -> ../../devices/ata1/sdd/sdd1
/sys/class/block/sda1 -> ../../devices/ata1/sda/sda1
/sys/class/block/sda2 -> ../../devices/ata1/sda/sda2
/sys/class/block/dm-0 -> ../../devices/virtual/block/dm-0
/sys/class/block/sdd -> ../../devices/ata1/sdd
/sys/devices/ata1/sda/dev = 8:0
/sys/devices/ata1/sda/sda1/partition = 1
/sys/devices/ata1/sda/sda1/dev = 8:1
/sys/devices/ata1/sda/sda2/partition = 2
/sys/devices/ata1/sda/sda2/dev = 8:2
/sys/devices/ata1/sda/sda3/partition = 3
/sys/devices/ata1/sda/sda3/dev = 8:3
/sys/devices/ata1/sda/sda3/holders/dm-0 -> ../../../../virtual/block/dm-0
/sys/devices/virtual/block/dm-0/dev = 254:0
/sys/devices/virtual/block/dm-0/dm/name = vg-data
/sys/devices/virtual/block/dm-0/slaves/sda3 -> ../../../../ata1/sda/sda3
/sys/dev/block/254:0 -> ../../devices/virtual/block/dm-0
/sys/devices/ata1/sdb/dev = 8:16
/sys/devices/ata1/sdb/ro = 0
/sys/devices/ata1/sdb/holders/
/sys/devices/ata1/sdb/sdb1/partition = 1
/sys/devices/ata1/sdb/sdb1/dev = 8:17
/sys/devices/ata1/sdc/dev = 8:32
/sys/devices/ata1/sdc/ro = 1
/sys/fs/btrfs/1f-2e/devices/sdc -> ../../../../devices/ata1/sdc
/sys/devices/ata1/sdd/dev = 8:48
/sys/devices/ata1/sdd/sdd1/partition = 1
/sys/devices/ata1/sdd/sdd1/dev = 8:49
/sys/block/loop0/loop/backing_file = /data/disk.img
";

fn hazards(host: &str, identity: &TargetIdentity) -> Vec<(HazardKind, String)> {
    let root = Root::from_capture(host).unwrap();
    let target = TargetFacts::trace(&root, identity).unwrap();
    write_hazards(&root, &target).into_iter().map(|hazard| (hazard.kind, hazard.what)).collect()
}

fn kinds(host: &str, path: &str, number: &str) -> Vec<HazardKind> {
    hazards(host, &device(path, number, 1 << 30)).into_iter().map(|(kind, _)| kind).collect()
}

#[test]
fn a_whole_disk_is_used_by_whoever_uses_a_part() {
    use HazardKind::{Holder, Mounted, RootDisk, Swap};
    assert_eq!(kinds(HOST, "/dev/sda", "8:0"), [RootDisk, Mounted, Mounted, Swap, Holder]);
    let found = hazards(HOST, &device("/dev/sda3", "8:3", 1 << 30));
    assert_eq!(
        found,
        [
            (Mounted, "/dev/dm-0 is mounted on /data (xfs)".to_owned()),
            (Mounted, "/dev/dm-0 is mounted on /frozen (xfs)".to_owned()),
            (Holder, "/dev/dm-0 (vg-data) is built on it".to_owned())
        ]
    );
    assert_eq!(kinds(HOST, "/dev/sda1", "8:1"), [RootDisk]);
    assert_eq!(kinds(HOST, "/dev/sda2", "8:2"), [Swap]);
}

#[test]
fn a_part_is_used_by_whoever_uses_the_whole_disk_but_not_by_its_siblings() {
    assert_eq!(kinds(HOST, "/dev/sdd1", "8:49"), [HazardKind::Mounted]);
}

#[test]
fn a_free_disk_has_none() {
    assert_eq!(kinds(HOST, "/dev/sdb", "8:16"), []);
}

#[test]
fn the_other_device_of_a_mounted_btrfs_and_a_read_only_disk_are_seen() {
    assert_eq!(kinds(HOST, "/dev/sdc", "8:32"), [HazardKind::Mounted, HazardKind::ReadOnly]);
}

#[test]
fn what_cannot_be_checked_counts_as_in_use() {
    let blind = HOST.replace("/proc/swaps |\n", "/proc/swaps ! EACCES\n/ignored |\n");
    assert_eq!(kinds(&blind, "/dev/sdb", "8:16"), [HazardKind::Unchecked]);
    let blind = HOST.replace("/proc/self/mountinfo |\n", "/ignored |\n");
    assert_eq!(kinds(&blind, "/dev/sdb", "8:16"), [HazardKind::Unchecked]);
    let no_swap = HOST.replace("/proc/swaps |\n", "/ignored |\n");
    assert_eq!(kinds(&no_swap, "/dev/sdb", "8:16"), [], "a kernel without swap has no /proc/swaps");
}

#[test]
fn files_that_serve_as_swap_or_disk_are_seen() {
    let kinds = |path: &str| -> Vec<HazardKind> {
        hazards(HOST, &file(path, "254:0")).into_iter().map(|(kind, _)| kind).collect()
    };
    assert_eq!(kinds("/data/swapfile"), [HazardKind::Swap]);
    assert_eq!(kinds("/data/disk.img"), [HazardKind::LoopBacking]);
    assert_eq!(kinds("/frozen/file"), [HazardKind::ReadOnly]);
    assert_eq!(kinds("/data/free"), []);
}
