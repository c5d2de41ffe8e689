//! Applying and undoing on a host in memory that refuses, rounds, fills up and dies: whatever happens, undo
//! brings back what stood there, or says what it left alone and why.

use overdrive_base::rng::Rng;
use overdrive_host::change::driver::{DriveError, Driver, Occasion};
use overdrive_host::change::fake::{Behaviour, FakeSystem};
use overdrive_host::change::journal::Undone;
use overdrive_host::change::machine::Applied;
use overdrive_host::change::system::System;
use overdrive_host::change::{Change, Device, Kind};
use std::collections::BTreeMap;

const SCHEDULER: &str = "/sys/block/sd0/queue/scheduler";
const REQUESTS: &str = "/sys/block/sd0/queue/nr_requests";
const SWAPPINESS: &str = "/proc/sys/vm/swappiness";
const PAGES: &str = "/proc/sys/vm/min_free_kbytes";
/// A part of the disk, and a file beside it.
const NODE: &str = "/dev/sd0p1";
const SWAP_FILE: &str = "/var/swap";
const SPACE: &str = "swap 1048576 abababababababababababababababab";
const FILE: &str = "/etc/sysctl.d/90-overdrive-1.conf";

fn occasion(boot: &str) -> Occasion {
    Occasion {
        at: "2026-01-01T00:00:00Z".to_owned(),
        boot_id: boot.to_owned(),
        machine_id: "m".to_owned(),
        version: "0".to_owned(),
    }
}

fn change(system: &FakeSystem, path: &str, new: &str) -> Change {
    let kind = if path.starts_with("/etc") { Kind::File } else { Kind::Attribute };
    let device = path.starts_with("/sys/block/sd0").then(|| disk("/sys/block/sd0"));
    Change {
        rule: "a-rule".to_owned(),
        class: "A".to_owned(),
        kind,
        path: path.to_owned(),
        old: system.files.get(path).cloned(),
        new: Some(new.to_owned()),
        device,
    }
}

/// A space and its area, as one set has them.
fn swap_changes(system: &FakeSystem, path: &str, manner: &str) -> [Change; 2] {
    let device = (path == NODE).then(|| disk("/sys/block/sd0"));
    let of = |kind, old: Option<&String>, new: &str| Change {
        rule: "swap-area".to_owned(),
        class: "B".to_owned(),
        kind,
        path: path.to_owned(),
        old: old.cloned(),
        new: Some(new.to_owned()),
        device: device.clone(),
    };
    [of(Kind::SwapSpace, system.files.get(path), SPACE), of(Kind::SwapArea, system.areas.get(path), manner)]
}

fn disk(folder: &str) -> Device {
    Device { folder: folder.to_owned(), id: "wwid:one".to_owned() }
}

fn host(seed: u64) -> FakeSystem {
    let mut system = FakeSystem::new(seed)
        .with(
            SCHEDULER,
            "none [mq-deadline] kyber\n",
            Behaviour::Resets(REQUESTS.to_owned(), "62\n".to_owned()),
        )
        .with(REQUESTS, "256\n", Behaviour::Plain)
        .with(SWAPPINESS, "60\n", Behaviour::Plain)
        .with(NODE, "zeros", Behaviour::Plain);
    system.devices.insert("wwid:one".to_owned(), "/sys/block/sd0".to_owned());
    system
}

fn apply(system: &mut FakeSystem, changes: &[Change]) -> Result<(u64, Vec<Applied>), DriveError> {
    Driver::new(system, occasion("b1"))?.apply(changes)
}

fn undo(system: &mut FakeSystem, boot: &str, set: u64) -> Vec<Undone> {
    let reversals = Driver::new(system, occasion(boot)).unwrap().undo(set).unwrap();
    reversals.iter().map(|reversal| reversal.reverted.outcome).collect()
}

fn undo_all(system: &mut FakeSystem, boot: &str) -> Result<(), DriveError> {
    let mut driver = Driver::new(system, occasion(boot))?;
    let sets: Vec<u64> = driver.state().sets.keys().rev().copied().collect();
    sets.into_iter().try_for_each(|set| driver.undo(set).map(drop))
}

#[test]
fn what_was_applied_is_undone_to_the_byte_with_what_the_kernel_moved_along() {
    let mut system = host(1);
    let before = system.files.clone();
    let plan = [
        change(&system, SCHEDULER, "none"),
        change(&system, SWAPPINESS, "100"),
        change(&system, FILE, "x\n"),
    ];
    let (set, outcomes) = apply(&mut system, &plan).unwrap();
    assert!(outcomes.iter().all(Applied::is_good), "{outcomes:?}");
    assert_eq!(system.files[SCHEDULER], "[none] mq-deadline kyber\n");
    assert_eq!(system.files[REQUESTS], "62\n");
    assert_eq!(undo(&mut system, "b1", set), [Undone::Restored; 3]);
    assert_eq!(system.files, before);
    assert_eq!(undo(&mut system, "b1", set), []);
}

#[test]
fn a_lower_set_goes_without_disturbing_the_one_on_top() {
    for first in [1, 2] {
        let mut system = host(1);
        let before = system.files.clone();
        let plan = [change(&system, SCHEDULER, "none"), change(&system, SWAPPINESS, "100")];
        apply(&mut system, &plan).unwrap();
        let plan = [change(&system, SWAPPINESS, "180"), change(&system, REQUESTS, "1023")];
        apply(&mut system, &plan).unwrap();
        if first == 1 {
            assert_eq!(undo(&mut system, "b1", 1), [Undone::Covered, Undone::Restored]);
            assert_eq!(system.files[SWAPPINESS], "180\n");
            assert_eq!(system.files[REQUESTS], "1023\n");
            assert_eq!(undo(&mut system, "b1", 2), [Undone::Restored; 2]);
        } else {
            assert_eq!(undo(&mut system, "b1", 2), [Undone::Restored; 2]);
            assert_eq!((&*system.files[SWAPPINESS], &*system.files[REQUESTS]), ("100\n", "62\n"));
            assert_eq!(undo(&mut system, "b1", 1), [Undone::Restored; 2]);
        }
        assert_eq!(system.files, before, "set {first} undone first");
    }
}

#[test]
fn drift_is_reported_and_left_alone() {
    let mut system = host(1);
    let plan = [change(&system, SWAPPINESS, "100")];
    let (set, _) = apply(&mut system, &plan).unwrap();
    system.files.insert(SWAPPINESS.to_owned(), "1\n".to_owned());
    assert_eq!(undo(&mut system, "b1", set), [Undone::Drift]);
    assert_eq!(system.files[SWAPPINESS], "1\n");
}

#[test]
fn a_stale_plan_writes_nothing() {
    let mut system = host(1);
    let plan = [change(&system, SWAPPINESS, "100")];
    system.files.insert(SWAPPINESS.to_owned(), "1\n".to_owned());
    let (_, outcomes) = apply(&mut system, &plan).unwrap();
    assert_eq!(outcomes, [Applied::Stale("1\n".to_owned())]);
    assert_eq!(system.files[SWAPPINESS], "1\n");
}

#[test]
fn after_a_reboot_only_what_was_made_to_stay_is_taken_back() {
    let mut system = host(1);
    let fresh = system.files.clone();
    let plan = [change(&system, SWAPPINESS, "100")];
    apply(&mut system, &plan).unwrap();
    // The reboot put 60 back, then an administrator chose 100: that is not ours to undo.
    assert_eq!(undo(&mut system, "b2", 1), []);
    assert_eq!(system.files[SWAPPINESS], "100\n");

    system.files = fresh.clone();
    let plan = [change(&system, SWAPPINESS, "100"), change(&system, FILE, "vm.swappiness = 100\n")];
    apply(&mut system, &plan).unwrap();
    assert_eq!(undo(&mut system, "b2", 2), [Undone::Restored; 2]);
    assert_eq!(system.files, fresh);
}

#[test]
fn a_renamed_device_is_followed_and_one_that_is_gone_is_kept_for_later() {
    let mut system = host(1);
    let plan = [change(&system, REQUESTS, "1023")];
    apply(&mut system, &plan).unwrap();
    let moved = "/sys/block/sd7/queue/nr_requests";
    let text = system.files.remove(REQUESTS).unwrap();
    system.files.insert(moved.to_owned(), text);
    // Another disk took the old name, and happens to have our value.
    system.files.insert(REQUESTS.to_owned(), "1023\n".to_owned());
    system.devices.clear();
    assert_eq!(undo(&mut system, "b1", 1), [Undone::Gone]);
    system.devices.insert("wwid:one".to_owned(), "/sys/block/sd7".to_owned());
    assert_eq!(undo(&mut system, "b1", 1), [Undone::Restored]);
    assert_eq!((&*system.files[moved], &*system.files[REQUESTS]), ("256\n", "1023\n"));
}

#[test]
fn a_refused_write_is_told_and_the_rest_goes_on() {
    for errno in [1, 16, 22] {
        let mut system = host(1).with("/sys/block/sd1/queue/refused", "a\n", Behaviour::Refused(errno));
        let before = system.files.clone();
        let plan = [change(&system, "/sys/block/sd1/queue/refused", "b"), change(&system, SWAPPINESS, "100")];
        let (set, outcomes) = apply(&mut system, &plan).unwrap();
        assert_eq!(outcomes[0], Applied::Refused(errno));
        assert!(outcomes[1].is_good());
        assert_eq!(undo(&mut system, "b1", set), [Undone::Restored]);
        assert_eq!(system.files, before);
    }
}

#[test]
fn a_value_that_the_kernel_rounds_or_ignores_is_told_and_undone() {
    let mut system = host(1).with("/sys/block/sd1/queue/rounded", "8\n", Behaviour::Rounded(8)).with(
        "/sys/block/sd1/queue/ignored",
        "0\n",
        Behaviour::Ignored,
    );
    let before = system.files.clone();
    let plan = [
        change(&system, "/sys/block/sd1/queue/rounded", "13"),
        change(&system, "/sys/block/sd1/queue/ignored", "1"),
    ];
    let (set, outcomes) = apply(&mut system, &plan).unwrap();
    assert_eq!(outcomes, [Applied::Differs("16\n".to_owned()), Applied::Differs("0\n".to_owned())]);
    assert_eq!(undo(&mut system, "b1", set), [Undone::Restored]);
    assert_eq!(system.files, before);
}

#[test]
fn class_c_and_foreign_paths_are_never_written() {
    let mut system = host(1);
    let mut worst = change(&system, SWAPPINESS, "100");
    worst.class = "C".to_owned();
    assert!(matches!(apply(&mut system, &[worst]), Err(DriveError::Forbidden { .. })));
    let outside = change(&system, "/etc/passwd", "x");
    assert!(matches!(apply(&mut system, &[outside]), Err(DriveError::Forbidden { .. })));
    assert_eq!(system.disk, b"");
}

#[test]
fn a_full_disk_stops_before_the_first_write_that_would_not_be_known() {
    for room in (0..3000).step_by(37) {
        let mut system = host(room as u64);
        let before = system.files.clone();
        let plan = [change(&system, SCHEDULER, "none"), change(&system, SWAPPINESS, "100")];
        system.disk_bytes_max = room;
        let ended = apply(&mut system, &plan);
        if ended.is_err() {
            assert!(matches!(ended, Err(DriveError::Write(28))), "{ended:?}");
        }
        system.disk_bytes_max = usize::MAX;
        undo_all(&mut system, "b1").unwrap();
        assert_eq!(system.files, before, "with {room} bytes of room");
    }
}

#[test]
fn a_journal_that_fills_up_on_the_way_still_tells_what_was_changed() {
    let mut stopped_at = [0; 3];
    for room in (0..3000).step_by(37) {
        let mut system = host(room as u64);
        let before = system.files.clone();
        let plan = [change(&system, SCHEDULER, "none"), change(&system, SWAPPINESS, "100")];
        system.disk_bytes_max = room;
        let mut driver = Driver::new(&mut system, occasion("b1")).unwrap();
        if driver.apply(&plan).is_ok() {
            assert_eq!(driver.take_cut_short(), None);
            continue;
        }
        let Some((set, outcomes)) = driver.take_cut_short() else {
            assert_eq!(system.files, before, "not even begun with {room} bytes of room");
            continue;
        };
        assert_eq!((set, outcomes.len()), (1, plan.len()));
        let changed: Vec<bool> =
            [SCHEDULER, SWAPPINESS].iter().map(|&path| system.files.get(path) != before.get(path)).collect();
        let told: Vec<bool> = outcomes.iter().map(Applied::is_good).collect();
        assert_eq!(told, changed, "with {room} bytes of room: {outcomes:?}");
        stopped_at[changed.iter().filter(|&&changed| changed).count()] += 1;
    }
    assert!(stopped_at.iter().all(|&times| times > 0), "{stopped_at:?}");
}

#[test]
fn a_journal_that_fills_up_while_undoing_still_tells_what_is_back() {
    let mut stopped_at = [0; 3];
    for room in (0..3000).step_by(37) {
        let mut system = host(room as u64);
        let before = system.files.clone();
        let plan = [change(&system, SCHEDULER, "none"), change(&system, SWAPPINESS, "100")];
        let (set, _) = apply(&mut system, &plan).unwrap();
        system.disk_bytes_max = system.disk.len() + room;
        let mut driver = Driver::new(&mut system, occasion("b1")).unwrap();
        if driver.undo(set).is_ok() {
            assert_eq!(driver.take_undone_so_far(), []);
            continue;
        }
        let told = driver.take_undone_so_far();
        assert!(told.iter().all(|reversal| reversal.reverted.outcome == Undone::Restored), "{told:?}");
        let told: Vec<&str> = told.iter().map(|reversal| reversal.path.as_str()).collect();
        let mut back = vec![SWAPPINESS, SCHEDULER];
        back.retain(|&path| system.files.get(path) == before.get(path));
        assert_eq!(told, back, "with {room} bytes of room");
        stopped_at[back.len()] += 1;
    }
    assert!(stopped_at.iter().all(|&times| times > 0), "{stopped_at:?}");
}

#[test]
fn a_damaged_journal_takes_nothing_new_and_still_undoes_what_it_knows() {
    let mut system = host(1);
    let before = system.files.clone();
    let plan = [change(&system, SWAPPINESS, "100")];
    apply(&mut system, &plan).unwrap();
    let plan = [change(&system, REQUESTS, "1023")];
    apply(&mut system, &plan).unwrap();
    let damaged = system.disk.iter().position(|&byte| byte == b'\n').unwrap() + 20;
    system.disk[damaged] ^= 1;
    let again = [change(&system, SWAPPINESS, "7")];
    assert!(matches!(apply(&mut system, &again), Err(DriveError::Damaged(_))));
    assert_eq!(undo(&mut system, "b1", 2), [Undone::Restored]);
    assert_eq!(system.files[REQUESTS], before[REQUESTS]);
}

#[test]
fn somebody_elses_value_between_two_sets_is_what_is_restored() {
    let mut system = host(1);
    for value in ["1\n", "2\n"] {
        let plan = [change(&system, SWAPPINESS, "100")];
        apply(&mut system, &plan).unwrap();
        system.files.insert(SWAPPINESS.to_owned(), value.to_owned());
    }
    let plan = [change(&system, SWAPPINESS, "100")];
    apply(&mut system, &plan).unwrap();
    undo_all(&mut system, "b1").unwrap();
    assert_eq!(system.files[SWAPPINESS], "2\n");
    // The same of a value that the kernel had moved along.
    let before = system.files.clone();
    let plan = [change(&system, SCHEDULER, "none")];
    apply(&mut system, &plan).unwrap();
    system.files.insert(REQUESTS.to_owned(), "512\n".to_owned());
    let plan = [change(&system, REQUESTS, "1023")];
    let (set, _) = apply(&mut system, &plan).unwrap();
    assert_eq!(undo(&mut system, "b1", set), [Undone::Restored]);
    assert_eq!(system.files[REQUESTS], "512\n");
    assert_eq!(undo(&mut system, "b1", set - 1), [Undone::Restored]);
    assert_eq!(system.files[SCHEDULER], before[SCHEDULER]);
}

#[test]
fn rounded_before_a_kill_and_applied_over_is_restored_as_it_was_found() {
    let mut system = host(1).with(PAGES, "8\n", Behaviour::Rounded(8));
    let plan = [change(&system, PAGES, "13")];
    system.dies_after = Some(5);
    assert!(apply(&mut system, &plan).is_err());
    system.revive();
    let plan = [change(&system, PAGES, "32")];
    apply(&mut system, &plan).unwrap();
    undo_all(&mut system, "b1").unwrap();
    assert_eq!(system.files[PAGES], "16\n");
}

#[test]
fn another_hosts_journal_takes_nothing_while_something_of_it_stands() {
    let mut system = host(1);
    let plan = [change(&system, SWAPPINESS, "100")];
    apply(&mut system, &plan).unwrap();
    let other = || Occasion { machine_id: "other".to_owned(), ..occasion("b1") };
    let more = [change(&system, REQUESTS, "1023")];
    let ended = Driver::new(&mut system, other()).unwrap().apply(&more);
    assert_eq!(ended, Err(DriveError::Foreign(1)));
    assert_eq!(Driver::new(&mut system, other()).unwrap().undo(1), Err(DriveError::Foreign(1)));
    undo_all(&mut system, "b1").unwrap();
    assert!(Driver::new(&mut system, other()).unwrap().apply(&more).is_ok());
}

#[test]
fn a_path_that_is_away_for_a_moment_is_restored_when_it_is_back() {
    let mut system = host(1);
    let plan = [change(&system, SWAPPINESS, "100")];
    apply(&mut system, &plan).unwrap();
    let text = system.files.remove(SWAPPINESS).unwrap();
    assert_eq!(undo(&mut system, "b1", 1), [Undone::Gone]);
    system.files.insert(SWAPPINESS.to_owned(), text);
    assert_eq!(undo(&mut system, "b1", 1), [Undone::Restored]);
    assert_eq!(system.files[SWAPPINESS], "60\n");
}

#[test]
fn changes_of_a_set_whose_first_line_is_damaged_are_still_taken_back() {
    let mut system = host(1);
    let before = system.files.clone();
    let plan = [change(&system, SCHEDULER, "none"), change(&system, SWAPPINESS, "100")];
    apply(&mut system, &plan).unwrap();
    system.disk[20] ^= 1;
    assert!(matches!(apply(&mut system, &plan), Err(DriveError::Damaged(_))));
    assert_eq!(undo(&mut system, "b1", 1), [Undone::Restored; 2]);
    assert_eq!(system.files, before);
    // With nothing left to take back the damaged journal is in nobody's way.
    let mut driver = Driver::new(&mut system, occasion("b1")).unwrap();
    let (set, _) = driver.apply(&plan).unwrap();
    assert_eq!((set, driver.set_aside()), (2, Some("damaged-1")));
    assert_eq!(system.set_aside.len(), 1);
    assert_eq!(undo(&mut system, "b1", 2), [Undone::Restored; 2]);
    assert_eq!(system.files, before);
}

#[test]
fn what_is_no_journal_is_not_made_one() {
    let mut system = host(1);
    system.disk = b"somebody's notes\n".to_vec();
    let plan = [change(&system, SWAPPINESS, "100")];
    assert_eq!(apply(&mut system, &plan), Err(DriveError::NoJournal));
    assert_eq!(system.disk, b"somebody's notes\n");
}

#[test]
fn a_value_set_after_a_refused_undo_is_somebodys_own() {
    let mut system = host(1);
    let plan = [change(&system, SCHEDULER, "none")];
    apply(&mut system, &plan).unwrap();
    system.behaviour.insert(REQUESTS.to_owned(), Behaviour::Refused(16));
    assert_eq!(undo(&mut system, "b1", 1), [Undone::Refused]);
    system.behaviour.insert(REQUESTS.to_owned(), Behaviour::Plain);
    let mut theirs = system.clone();
    // What the refused undo left is brought back; what somebody wrote since is not.
    undo(&mut system, "b1", 1);
    assert_eq!(system.files[REQUESTS], "256\n");
    theirs.files.insert(REQUESTS.to_owned(), "777\n".to_owned());
    undo(&mut theirs, "b1", 1);
    assert_eq!(theirs.files[REQUESTS], "777\n");
}

#[test]
fn a_swap_area_is_made_and_taken_away_to_the_byte() {
    let mut system = host(1);
    let before = (system.files.clone(), system.areas.clone());
    let mut plan = vec![change(&system, SWAPPINESS, "100")];
    plan.extend(swap_changes(&system, NODE, "priority 10 discard-once"));
    plan.extend(swap_changes(&system, SWAP_FILE, "priority auto"));
    let (set, outcomes) = apply(&mut system, &plan).unwrap();
    assert!(outcomes.iter().all(Applied::is_good), "{outcomes:?}");
    assert_eq!(system.areas[NODE], "priority 10");
    assert_eq!((&*system.files[NODE], &*system.files[SWAP_FILE]), (SPACE, SPACE));
    assert_eq!(undo(&mut system, "b1", set), [Undone::Restored; 5]);
    assert_eq!((system.files, system.areas), before);
}

#[test]
fn an_area_that_does_not_go_keeps_what_was_changed_for_it() {
    let mut system = host(1);
    let before = (system.files.clone(), system.areas.clone());
    let mut plan = vec![change(&system, SWAPPINESS, "100")];
    plan.extend(swap_changes(&system, NODE, "priority 10"));
    let (set, _) = apply(&mut system, &plan).unwrap();
    let standing = (system.files.clone(), system.areas.clone());
    system.is_full = true;
    assert_eq!(undo(&mut system, "b1", set), [Undone::Refused]);
    assert_eq!((&system.files, &system.areas), (&standing.0, &standing.1));
    system.is_full = false;
    assert_eq!(undo(&mut system, "b1", set), [Undone::Restored; 3]);
    assert_eq!((system.files, system.areas), before);
}

#[test]
fn a_set_killed_before_its_first_area_still_says_what_it_was_for() {
    let mut system = host(1);
    let mut plan = vec![change(&system, SWAPPINESS, "100")];
    plan.extend(swap_changes(&system, NODE, "priority 10"));
    // Begin, look, intent, write and check of the setting; then dead.
    system.dies_after = Some(6);
    let driver = Driver::new(&mut system, occasion("b1")).unwrap().with_purpose("swap-area");
    assert!({ driver }.apply(&plan).is_err());
    system.revive();
    let driver = Driver::new(&mut system, occasion("b1")).unwrap();
    let set = &driver.state().sets[&1];
    assert!(set.is_live() && set.changes.values().all(|change| !change.what.is_swap()));
    assert_eq!(set.purpose.as_deref(), Some("swap-area"));
}

#[test]
fn swap_that_somebody_else_changed_is_left_to_them() {
    let mut system = host(1);
    let plan = swap_changes(&system, NODE, "priority 10");
    let (set, _) = apply(&mut system, &plan).unwrap();
    system.areas.insert(NODE.to_owned(), "priority 5".to_owned());
    // Their area stays on, so its space cannot go; it can when they have turned it off.
    assert_eq!(undo(&mut system, "b1", set), [Undone::Drift, Undone::Refused]);
    system.areas.clear();
    assert_eq!(undo(&mut system, "b1", set), [Undone::Restored]);
    assert_eq!(system.files[NODE], "zeros");
}

#[test]
fn a_reboot_turns_swap_off_and_the_space_is_still_taken_away() {
    let mut system = host(1);
    let before = system.files.clone();
    let plan = swap_changes(&system, NODE, "priority 10");
    let (set, _) = apply(&mut system, &plan).unwrap();
    system.areas.clear();
    // The disk has another name now.
    let page = system.files.remove(NODE).unwrap();
    system.files.insert("/dev/sd7p1".to_owned(), page);
    system.devices.insert("wwid:one".to_owned(), "/sys/block/sd7".to_owned());
    assert_eq!(undo(&mut system, "b2", set), [Undone::Restored]);
    assert_eq!(system.files["/dev/sd7p1"], before[NODE]);
}

/// A host and a plan drawn from a seed.
fn drawn(seed: u64) -> (FakeSystem, Vec<Vec<Change>>) {
    let mut rng = Rng::new(seed);
    let mut system = host(seed);
    for number in 0..4 {
        let behaviour = match rng.below(6) {
            0 => Behaviour::Refused([1, 16, 22][rng.below(3) as usize]),
            1 => Behaviour::Ignored,
            _ => Behaviour::Plain,
        };
        system = system.with(
            &format!("/sys/block/sd1/queue/a{number}"),
            &format!("{}\n", rng.below(9)),
            behaviour,
        );
    }
    let mut model = system.clone();
    let mut sets = Vec::new();
    for _ in 0..=rng.below(2) {
        let mut paths = vec![
            SCHEDULER,
            REQUESTS,
            SWAPPINESS,
            "/sys/block/sd1/queue/a0",
            "/sys/block/sd1/queue/a1",
            "/sys/block/sd1/queue/a2",
            "/sys/block/sd1/queue/a3",
        ];
        let mut changes: Vec<Change> = Vec::new();
        for _ in 0..=rng.below(4) {
            let path = paths.remove(rng.below(paths.len() as u64) as usize);
            let scheduler = ["none", "kyber", "mq-deadline"][rng.below(3) as usize].to_owned();
            let new = if path == SCHEDULER { scheduler } else { (10 + rng.below(90)).to_string() };
            changes.push(change(&model, path, &new));
        }
        changes.sort_by_key(|change| change.path != SCHEDULER);
        for path in [NODE, SWAP_FILE] {
            if rng.below(3) == 0 {
                let manner =
                    ["priority 10", "priority auto", "priority 3 discard-once"][rng.below(3) as usize];
                changes.extend(swap_changes(&model, path, manner));
            }
        }
        // What a plan made after this set would see.
        drop(apply(&mut model, &changes));
        sets.push(changes);
    }
    (system, sets)
}

/// Applies the sets until the process dies.
fn run(system: &mut FakeSystem, sets: &[Vec<Change>]) {
    for changes in sets {
        if apply(system, changes).is_err() {
            return;
        }
    }
}

#[test]
fn killed_at_any_step_of_applying_or_undoing_undo_brings_everything_back() {
    let seeds: u64 = std::env::var("OVERDRIVE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    for seed in 0..seeds {
        let (fresh, sets) = drawn(seed);
        let mut whole = fresh.clone();
        run(&mut whole, &sets);
        for kill in 1..=whole.steps + 1 {
            let mut dead = fresh.clone();
            dead.dies_after = Some(kill);
            run(&mut dead, &sets);
            dead.revive();
            let mut undone = dead.clone();
            undo_all(&mut undone, "b1").unwrap();
            assert_eq!(undone.files, fresh.files, "seed {seed}, killed at step {kill} of applying");
            assert_eq!(undone.areas, fresh.areas, "seed {seed}, killed at step {kill} of applying");
            for again in 1..=undone.steps {
                let mut twice = dead.clone();
                twice.dies_after = Some(again);
                drop(undo_all(&mut twice, "b1"));
                twice.revive();
                undo_all(&mut twice, "b1").unwrap();
                assert_eq!(twice.files, fresh.files, "seed {seed}, killed at {kill}, undo killed at {again}");
                assert_eq!(twice.areas, fresh.areas, "seed {seed}, killed at {kill}, undo killed at {again}");
            }
        }
    }
}

#[test]
fn sets_undone_in_any_order_leave_the_host_as_it_was() {
    for seed in 0..200 {
        let (fresh, sets) = drawn(seed);
        for order in [[1, 2], [2, 1]] {
            let mut system = fresh.clone();
            run(&mut system, &sets);
            for set in order.into_iter().filter(|&set| set <= sets.len() as u64) {
                let outcomes = undo(&mut system, "b1", set);
                assert!(!outcomes.contains(&Undone::Drift), "seed {seed}: {outcomes:?}");
            }
            assert_eq!(system.files, fresh.files, "seed {seed}, order {order:?}");
            assert_eq!(system.areas, fresh.areas, "seed {seed}, order {order:?}");
        }
    }
}

#[test]
fn rounded_by_the_kernel_and_killed_before_reading_back_is_told_apart_from_ours() {
    let mut system = host(1).with("/sys/block/sd1/queue/rounded", "8\n", Behaviour::Rounded(8));
    let plan = [change(&system, "/sys/block/sd1/queue/rounded", "13")];
    // Begin, read, intent, write, then dead: nobody has seen what the kernel made of 13.
    system.dies_after = Some(5);
    assert!(apply(&mut system, &plan).is_err());
    system.revive();
    assert_eq!(system.files["/sys/block/sd1/queue/rounded"], "16\n");
    assert_eq!(undo(&mut system, "b1", 1), [Undone::Drift]);
    assert_eq!(system.files["/sys/block/sd1/queue/rounded"], "16\n");
}

#[test]
fn the_fake_does_as_it_is_told() {
    let mut system = host(1);
    let files: BTreeMap<String, String> = system.files.clone();
    assert_eq!(system.write(Kind::Attribute, SCHEDULER, Some("bfq")), Err(22));
    assert_eq!(system.write(Kind::Attribute, "/sys/none", Some("1")), Err(2));
    assert_eq!(system.files, files);
}
