//! Ways down from a target that the captured hosts do not have: mappings, arrays, loops, multipath, no disk.

use crate::{device, file};
use overdrive_host::Root;
use overdrive_host::target::{Medium, TargetFacts, TargetIdentity};

fn trace(host: &str, identity: &TargetIdentity) -> TargetFacts {
    TargetFacts::trace(&Root::from_capture(host).unwrap(), identity).unwrap()
}

fn layers(target: &TargetFacts) -> Vec<String> {
    target.layers.iter().map(|layer| format!("{} {}", layer.kind.name(), layer.name)).collect()
}

#[test]
fn crypt_on_lvm_on_two_partitions() {
    let host = "\
/proc/self/mountinfo = 27 1 254:1 / /data rw - ext4 /dev/mapper/secret rw
/sys/dev/block/254:1 -> ../../devices/virtual/block/dm-1
/sys/devices/virtual/block/dm-1/dm/name = secret
/sys/devices/virtual/block/dm-1/slaves/dm-0 -> ../../dm-0
/sys/devices/virtual/block/dm-0/dm/name = vg-data
/sys/devices/virtual/block/dm-0/slaves/sda1 -> ../../../../ata1/sda/sda1
/sys/devices/virtual/block/dm-0/slaves/sdb2 -> ../../../../ata1/sdb/sdb2
/sys/devices/ata1/sda/sda1/partition = 1
/sys/devices/ata1/sda/sda1/start = 2048
/sys/devices/ata1/sda/queue/rotational = 0
/sys/devices/ata1/sdb/sdb2/partition = 2
/sys/devices/ata1/sdb/queue/rotational = 1
";
    let target = trace(host, &file("/data/file", "254:1"));
    assert_eq!(
        layers(&target),
        [
            "file /data/file",
            "file system /data",
            "device-mapper dm-1",
            "device-mapper dm-0",
            "partition sda1",
            "disk sda",
            "partition sdb2",
            "disk sdb"
        ]
    );
    assert_eq!(target.medium, Medium::Disk);
    assert_eq!(target.disks[1].block.queue.rotational.get(), Some(true));
}

#[test]
fn a_raid_device_over_nvme_drives_names_each_disk_once() {
    let host = "\
/sys/dev/block/9:0 -> ../../devices/virtual/block/md0
/sys/devices/virtual/block/md0/md/level = raid0
/sys/devices/virtual/block/md0/slaves/nvme0n1 -> ../../../../pci0000:00/0000:00:03.0/nvme/nvme0/nvme0n1
/sys/devices/virtual/block/md0/slaves/nvme0n1p2 -> nvme0n1/nvme0n1p2
/sys/devices/pci0000:00/0000:00:03.0/nvme/nvme0/transport = pcie
/sys/devices/pci0000:00/0000:00:03.0/nvme/nvme0/nvme0n1/device -> ../../nvme0
/sys/devices/pci0000:00/0000:00:03.0/nvme/nvme0/nvme0n1/nvme0n1p2/partition = 2
";
    let target = trace(host, &device("/dev/md0", "9:0", 1 << 30));
    assert_eq!(
        layers(&target),
        [
            "RAID md0",
            "disk nvme0n1",
            "NVMe controller nvme0",
            "PCI device 0000:00:03.0",
            "partition nvme0n1p2"
        ]
    );
    assert_eq!(target.disks.len(), 1);
}

#[test]
fn a_multipath_head_leads_to_its_paths_and_their_controllers() {
    let host = "\
/sys/dev/block/259:3 -> ../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1
/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/device -> ../../nvme-subsys0
/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0 -> ../../../pci0000:00/0000:00:03.0/nvme/nvme0
/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme1 -> ../../../pci0000:00/0000:00:04.0/nvme/nvme1
/sys/devices/pci0000:00/0000:00:03.0/nvme/nvme0/nvme0c0n1/queue/io_poll = 1
/sys/devices/pci0000:00/0000:00:03.0/nvme/nvme0/nvme0c0n2/queue/io_poll = 1
/sys/devices/pci0000:00/0000:00:04.0/nvme/nvme1/nvme0c1n1/queue/io_poll = 1
";
    let target = trace(host, &device("/dev/nvme0n1", "259:3", 1 << 30));
    assert_eq!(
        layers(&target),
        [
            "NVMe multipath head nvme0n1",
            "disk nvme0c0n1",
            "NVMe controller nvme0",
            "PCI device 0000:00:03.0",
            "disk nvme0c1n1",
            "NVMe controller nvme1",
            "PCI device 0000:00:04.0"
        ]
    );
}

#[test]
fn a_loop_device_leads_through_its_file() {
    let host = "\
/proc/self/mountinfo = 27 1 8:1 / / rw - ext4 /dev/sda1 rw
/sys/dev/block/7:0 -> ../../devices/virtual/block/loop0
/sys/devices/virtual/block/loop0/loop/backing_file = /images/disk.img
/sys/dev/block/8:1 -> ../../devices/ata1/sda/sda1
/sys/devices/ata1/sda/sda1/partition = 1
";
    let target = trace(host, &device("/dev/loop0", "7:0", 1 << 30));
    assert_eq!(layers(&target), ["loop device loop0", "file system /", "partition sda1", "disk sda"]);
    assert!(target.mount.is_none(), "the target itself is on no mount");
}

#[test]
fn a_btrfs_of_two_devices_names_both() {
    let host = "\
/proc/self/mountinfo = 27 1 0:40 /sub /data rw - btrfs /dev/sdb rw
/sys/class/block/sdb -> ../../devices/ata1/sdb
/sys/devices/ata1/sdb/size = 100
/sys/devices/ata1/sdc/size = 100
/sys/fs/btrfs/features/
/sys/fs/btrfs/1f-2e/devices/sdb -> ../../../../devices/ata1/sdb
/sys/fs/btrfs/1f-2e/devices/sdc -> ../../../../devices/ata1/sdc
";
    let target = trace(host, &file("/data/file", "0:41"));
    assert_eq!(layers(&target)[2..], ["disk sdb", "disk sdc"]);
}

#[test]
fn file_systems_without_a_disk_are_named() {
    let mount =
        |line: &str| trace(&format!("/proc/self/mountinfo = {line}\n"), &file("/data/f", "0:40")).medium;
    assert_eq!(
        mount("27 1 0:40 / /data rw - tmpfs tmpfs rw"),
        Medium::Memory("tmpfs keeps its files in memory: no disk is measured".to_owned())
    );
    assert_eq!(
        mount("27 1 0:40 / /data rw - nfs4 server:/export rw"),
        Medium::Network("nfs4 from server:/export: another host serves the files".to_owned())
    );
    let Medium::Hidden(why) =
        mount("27 1 0:40 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/var/up,workdir=/w")
    else {
        panic!("an overlay hides its disks");
    };
    assert!(why.contains("/var/up"), "{why}");
    assert!(matches!(mount("27 1 0:40 / /data rw - zfs pool/data rw"), Medium::Hidden(_)));
    assert!(
        matches!(mount("nonsense"), Medium::Hidden(_)),
        "an unreadable table is said, not guessed around"
    );
}

#[test]
fn an_unknown_device_is_an_error_with_its_number() {
    let root = Root::from_capture("").unwrap();
    let error = TargetFacts::trace(&root, &device("/dev/sdz", "65:1", 0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/dev/sdz: block device 65:1 is not known under /sys/dev/block/65:1: not present"
    );
}

#[test]
fn a_device_that_is_built_on_itself_ends() {
    let host = "\
/sys/dev/block/254:0 -> ../../devices/virtual/block/dm-0
/sys/devices/virtual/block/dm-0/dm/name = ring
/sys/devices/virtual/block/dm-0/slaves/dm-0 -> ../../dm-0
";
    let target = trace(host, &device("/dev/dm-0", "254:0", 0));
    assert!(matches!(target.medium, Medium::Hidden(_)));
}
