//! Set-ups on made-up hosts: what is chosen, in which order, and what is refused.

use super::*;
use crate::finding::Profile;
use crate::target::TargetIdentity;
use std::time::Duration;

/// Two NVMe drives on as many nodes as are named, and the areas that are on.
fn host(release: &str, nodes: [i64; 2], swaps: &str) -> Root {
    let mut text = format!(
        "/proc/sys/kernel/osrelease = {release}\n/proc/sys/vm/swappiness = 60\n/proc/sys/vm/page-cluster = 3\n\
         /sys/module/zswap/parameters/enabled = N\n/proc/sys/vm/watermark_scale_factor = 10\n/proc/meminfo |\n|MemTotal: 16777216 kB\n\
         |MemAvailable: 8388608 kB\n/proc/swaps |\n|Filename Type Size Used Priority\n{swaps}\
         /sys/devices/system/node/node0/cpulist = 0-3\n"
    );
    if nodes[1] != nodes[0] {
        text += "/sys/devices/system/node/node1/cpulist = 4-7\n";
    }
    for (number, node) in nodes.iter().enumerate() {
        let folder = format!("/sys/devices/pci/nvme{number}/nvme{number}n1");
        text += &format!(
            "{folder}/dev = 259:{number}\n{folder}/size = 2097152\n{folder}/wwid = eui.{number}\n\
             {folder}/queue/scheduler = none [mq-deadline]\n{folder}/queue/discard_max_bytes = 4096\n\
             {folder}/queue/rotational = 0\n{folder}/queue/nomerges = 0\n{folder}/queue/nr_requests = 1023\n\
             {folder}/queue/max_sectors_kb = 512\n{folder}/queue/max_hw_sectors_kb = 512\n{folder}/device -> ../../nvme{number}\n\
             /sys/devices/pci/nvme{number}/numa_node = {node}\n\
             /sys/block/nvme{number}n1 -> ../devices/pci/nvme{number}/nvme{number}n1\n\
             /sys/class/block/nvme{number}n1 -> ../../devices/pci/nvme{number}/nvme{number}n1\n\
             /sys/class/nvme/nvme{number} -> ../../devices/pci/nvme{number}\n\
             /sys/dev/block/259:{number} -> ../../devices/pci/nvme{number}/nvme{number}n1\n"
        );
    }
    Root::from_capture(&text).unwrap()
}

fn device(root: &Root, path: &str) -> Place {
    let name = path.trim_start_matches("/dev/");
    let identity: TargetIdentity = crate::capture::device_named(root, name).unwrap();
    Place {
        path: path.to_owned(),
        is_device: true,
        has_small_blocks: false,
        holds: Some(FirstPage::Zeros),
        is_ready: false,
        space: Space { bytes: 1 << 30, uuid: [1; 16] },
        audit: Audit::of(root, Some(&identity), Profile::Memory, Duration::ZERO).unwrap(),
    }
}

fn both(root: &Root) -> [Place; 2] {
    [device(root, "/dev/nvme0n1"), device(root, "/dev/nvme1n1")]
}

fn areas(setup: &Setup) -> Vec<(&str, &str)> {
    let areas = setup.plan.changes.iter().filter(|change| change.kind == Kind::SwapArea);
    areas.map(|change| (change.path.as_str(), change.new.as_deref().unwrap())).collect()
}

const WISH: Wish = Wish {
    page_cluster: 0,
    discard: true,
    free_first: false,
    priority: None,
    before_zram: false,
    zswap: None,
    queue: QueueWish { nomerges: None, max_sectors_kb: None, nr_requests: None },
    areas_only: false,
};

#[test]
fn settings_come_first_and_each_space_before_its_area() {
    let root = host("6.18.0", [0, 0], "");
    let setup = Setup::of(&root, &both(&root), &WISH).unwrap();
    let kinds: Vec<Kind> = setup.plan.changes.iter().map(|change| change.kind).collect();
    let first = kinds.iter().position(|kind| kind.is_swap()).unwrap();
    assert!(kinds[first..].chunks(2).all(|pair| pair == [Kind::SwapSpace, Kind::SwapArea]), "{kinds:?}");
    let paths: Vec<&str> = setup.plan.changes.iter().map(|change| change.path.as_str()).collect();
    for path in [
        "/proc/sys/vm/swappiness",
        "/proc/sys/vm/page-cluster",
        "/sys/block/nvme0n1/queue/scheduler",
        "/sys/block/nvme1n1/queue/scheduler",
    ] {
        assert_eq!(paths.iter().filter(|found| **found == path).count(), 1, "{path}: {paths:?}");
    }
    let space = &setup.plan.changes[first];
    assert_eq!(space.device.as_ref().unwrap().id, "wwid:eui.0");
    assert_eq!(space.old.as_deref(), Some("zeros"));
    assert_eq!(
        areas(&setup),
        [("/dev/nvme0n1", "priority 10 discard-once"), ("/dev/nvme1n1", "priority 10 discard-once")]
    );
    assert!(setup.choices.iter().all(|choice| !choice.why.is_empty()), "{:?}", setup.choices);
}

#[test]
fn free_stretches_come_first_where_that_is_wished_and_the_drive_takes_discards() {
    let root = host("6.18.0", [0, 0], "");
    let wish = Wish { free_first: true, ..WISH };
    let told = |places: &[Place]| {
        let setup = Setup::of(&root, places, &wish).unwrap();
        let why = |choice: &Choice| format!("{}: {}", choice.what, choice.why);
        (areas(&setup)[0].1.to_owned(), setup.choices.iter().map(why).collect::<String>())
    };
    let (manner, choices) = told(&both(&root));
    assert!(manner == "priority 10 discard-freed" && choices.contains("free stretches first"), "{choices}");
    let mut places = both(&root);
    places.iter_mut().for_each(|place| place.audit.target.disks.clear());
    let (manner, choices) = told(&places);
    assert!(manner == "priority 10" && choices.contains("the drive takes no discards"), "{choices}");
    let mut places = both(&root);
    places.iter_mut().for_each(|place| place.has_small_blocks = true);
    let (manner, choices) = told(&places);
    assert!(manner == "priority 10" && choices.contains("blocks are smaller than a page"), "{choices}");
}

#[test]
fn nodes_decide_the_priority_where_the_kernel_knows_them() {
    let manner = |release, nodes, swaps| {
        let root = host(release, nodes, swaps);
        areas(&Setup::of(&root, &both(&root), &WISH).unwrap())[0].1.to_owned()
    };
    assert_eq!(manner("6.12.0", [0, 1], ""), "priority auto discard-once");
    assert_eq!(manner("6.19.0", [0, 1], ""), "priority 10 discard-once");
    assert_eq!(manner("6.12.0", [0, 0], ""), "priority 10 discard-once");
    assert_eq!(manner("6.12.0", [-1, 1], ""), "priority 10 discard-once", "a node that is not known");
    // An area that is on with a priority would be filled first.
    assert_eq!(manner("6.12.0", [0, 1], "|/swap file 8 0 20\n"), "priority 21 discard-once");
    assert_eq!(manner("6.12.0", [0, 0], "|/dev/zram0 partition 8 0 100\n"), "priority 10 discard-once");
}

#[test]
fn a_file_or_a_space_that_is_there_needs_less() {
    let root = host("6.18.0", [0, 0], "|/dev/zram0 partition 8 0 100\n");
    let file = Place {
        path: "/var/swap".to_owned(),
        is_device: false,
        holds: None,
        ..device(&root, "/dev/nvme0n1")
    };
    let setup = Setup::of(&root, &[file], &Wish { page_cluster: 3, ..WISH }).unwrap();
    assert_eq!(areas(&setup), [("/var/swap", "priority 10")]);
    let space = setup.plan.changes.iter().find(|change| change.kind == Kind::SwapSpace).unwrap();
    assert_eq!((space.old.as_deref(), space.device.as_ref()), (None, None));
    assert!(!setup.plan.changes.iter().any(|change| change.path == PAGE_CLUSTER), "3 is what it is");
    assert!(setup.choices.iter().any(|choice| choice.what == "zram stays in front"), "{:?}", setup.choices);
    let alone =
        Setup::of(&root, &[device(&root, "/dev/nvme0n1")], &Wish { areas_only: true, ..WISH }).unwrap();
    assert!(alone.plan.changes.iter().all(|change| change.kind.is_swap()), "{:?}", alone.plan.changes);
    let ready = Place { is_ready: true, ..device(&root, "/dev/nvme0n1") };
    let setup = Setup::of(&root, &[ready], &WISH).unwrap();
    assert!(setup.plan.changes.iter().all(|change| change.kind != Kind::SwapSpace));
}

#[test]
fn what_is_wished_for_stands_in_the_plan_in_place_of_the_rules() {
    let text = |root: &Root, wish: &Wish| -> Vec<(String, String)> {
        let setup = Setup::of(root, &both(root), wish).unwrap();
        let changes = setup.plan.changes.into_iter().filter(|change| !change.kind.is_swap());
        changes.map(|change| (change.path, change.new.unwrap())).collect()
    };
    let root = host("6.12.0", [0, 0], "|/dev/zram0 partition 8 0 100\n");
    let queue = QueueWish { nomerges: Some(1), max_sectors_kb: Some(64), nr_requests: Some(128) };
    let wish = Wish { zswap: Some(true), queue, before_zram: true, ..WISH };
    let planned = text(&root, &wish);
    for drive in ["nvme0n1", "nvme1n1"] {
        for (file, value) in [("nomerges", "1"), ("max_sectors_kb", "64"), ("nr_requests", "128")] {
            let wanted = (format!("/sys/block/{drive}/queue/{file}"), value.to_owned());
            assert!(planned.contains(&wanted), "{wanted:?}: {planned:?}");
        }
    }
    let scheduler = planned.iter().position(|(path, _)| path.ends_with("nvme0n1/queue/scheduler")).unwrap();
    let requests = planned.iter().position(|(path, _)| path.ends_with("nvme0n1/queue/nr_requests")).unwrap();
    assert!(scheduler < requests, "a new scheduler brings its own number of requests");
    assert!(planned.contains(&(ZSWAP.to_owned(), "Y".to_owned())));
    let setup = Setup::of(&root, &both(&root), &wish).unwrap();
    assert_eq!(areas(&setup)[0].1, "priority 101 discard-once", "before the compressed memory");
    assert!(setup.choices.iter().any(|choice| choice.what == "zram comes after"), "{:?}", setup.choices);
    // What stands there already is not planned.
    let planned = text(&root, &Wish { zswap: Some(false), ..WISH });
    assert!(planned.iter().all(|(path, _)| path != ZSWAP), "{planned:?}");
}

#[test]
fn wishes_that_cannot_be_met_are_refused() {
    let root = host("6.18.0", [0, 0], "");
    let large = QueueWish { max_sectors_kb: Some(4096), ..WISH.queue };
    let error = Setup::of(&root, &both(&root), &Wish { queue: large, ..WISH }).unwrap_err().to_string();
    assert!(error.contains("4096 KiB are more than the disk takes in one request (512 KiB)"), "{error}");
    let old = Root::from_capture("/proc/sys/kernel/osrelease = 4.14.0\n").unwrap();
    let error = Setup::default().set(&old, ZSWAP, "Y", ("swap-zswap", Risk::Safe), "").unwrap_err();
    assert!(error.to_string().starts_with(ZSWAP), "{error}");
    let one = device(&root, "/dev/nvme0n1");
    assert_eq!(Setup::of(&root, &[], &WISH).unwrap_err(), SetupError::Nowhere);
    let twice = Setup::of(&root, &[one.clone(), one.clone()], &WISH).unwrap_err().to_string();
    assert!(twice.contains("/dev/nvme0n1 is named twice"), "{twice}");
    let small = Place { space: Space { bytes: 4096, uuid: [0; 16] }, ..one.clone() };
    assert!(Setup::of(&root, &[small], &WISH).unwrap_err().to_string().contains("at least 40 KiB"));
    let many: String = (0..23).map(|number| format!("|/dev/x{number} partition 8 0 -2\n")).collect();
    let root = host("6.18.0", [0, 0], &many);
    let full = Setup::of(&root, &[device(&root, "/dev/nvme0n1")], &WISH).unwrap_err();
    assert_eq!(full, SetupError::TooMany(24));
}
