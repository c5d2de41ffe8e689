//! The machine the tests run on, whatever it is: only what must hold everywhere.

use overdrive_host::Root;
use overdrive_host::facts::{Fact, HostFacts, block};
use overdrive_host::finding::Status;
use overdrive_host::hazards;
use overdrive_host::rules;
use overdrive_host::target::{Medium, TargetFacts, TargetIdentity};
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

#[test]
fn every_finding_has_evidence_or_says_why_it_does_not_apply() {
    let root = Root::new("/");
    let host = HostFacts::read(&root, Duration::from_millis(200));
    assert!(host.kernel.release.value().is_some() && host.cpu.online.value().is_some());
    let identity = TargetIdentity::at(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
    let target = TargetFacts::trace(&root, &identity).unwrap();
    assert!(target.medium != Medium::Disk || !target.disks.is_empty());
    for finding in rules::audit(&host, &target) {
        assert!(!finding.reason.is_empty(), "{}", finding.rule);
        if finding.status != Status::NotApplicable {
            assert!(!finding.evidence.is_empty(), "{}: {}", finding.rule, finding.reason);
        }
        if finding.fix.as_ref().is_some_and(|fix| fix.now.starts_with("echo")) {
            assert!(finding.undo.is_some(), "{} has a fix without an undo", finding.rule);
        }
    }
    for disk in &target.disks {
        assert!(matches!(block::disk_stats(&root, disk.name()), Fact::Known { .. }), "{}", disk.name());
    }
}

#[test]
fn a_scratch_file_is_found_after_its_name_is_gone() {
    let root = Root::new("/");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("scratch");
    let mut file = std::fs::File::create_new(&path).unwrap();
    file.write_all(&[1; 8192]).unwrap();
    let named = TargetFacts::trace(&root, &TargetIdentity::at(&path).unwrap()).unwrap();
    assert_eq!(hazards::write_hazards(&root, &named), []);
    std::fs::remove_file(&path).unwrap();
    let identity = TargetIdentity::of(&file, &path).unwrap();
    assert_eq!(identity.size_bytes, 8192);
    let gone = TargetFacts::trace(&root, &identity).unwrap();
    let point = |target: &TargetFacts| target.mount.as_ref().map(|mount| mount.point.clone());
    assert_eq!(point(&gone), point(&named));
}

#[test]
fn the_disk_under_the_root_file_system_is_never_free() {
    let root = Root::new("/");
    let below = TargetFacts::trace(&root, &TargetIdentity::at(Path::new("/")).unwrap()).unwrap();
    let Some(disk) = below.disks.first().map(|disk| format!("/dev/{}", disk.name())) else { return };
    // A container has the disk in /sys and no node for it.
    let Ok(identity) = TargetIdentity::at(Path::new(&disk)) else { return };
    let target = TargetFacts::trace(&root, &identity).unwrap();
    let found = hazards::write_hazards(&root, &target);
    assert!(found.iter().any(|hazard| !hazard.wipe_overrides()), "{disk}: {found:?}");
}

#[test]
fn what_is_no_target_is_refused_in_one_line() {
    let error = TargetIdentity::at(Path::new("/dev/null")).unwrap_err().to_string();
    assert_eq!(
        error,
        "/dev/null: it is a character device; wanted a regular file, a folder or a block device"
    );
    let error = TargetIdentity::at(Path::new("/nonexistent/file")).unwrap_err().to_string();
    let wanted = "no such file or device; wanted a block device, a file or a folder";
    assert_eq!(error, format!("/nonexistent/file: {wanted}"));
    // Whoever leaves out /dev is told so, where there is such a device; many a container has none.
    let mut entries = std::fs::read_dir("/dev").unwrap().flatten();
    let is_disk = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_block_device());
    let Some(disk) = entries.find(is_disk) else { return };
    let name = disk.file_name().into_string().unwrap();
    let error = TargetIdentity::at(Path::new(&name)).unwrap_err().to_string();
    assert_eq!(error, format!("{name}: {wanted}: /dev/{name}?"));
}

#[test]
fn known_content_of_a_file_is_a_hazard_that_wipe_overrides() {
    let root = Root::new("/");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("image");
    let mut content = vec![0; 1 << 20];
    content[..4].copy_from_slice(b"XFSB");
    std::fs::write(&path, content).unwrap();
    let target = TargetFacts::trace(&root, &TargetIdentity::at(&path).unwrap()).unwrap();
    let found = hazards::write_hazards(&root, &target);
    assert_eq!(found.len(), 1);
    assert!(found[0].wipe_overrides() && found[0].what.contains("holds xfs"), "{found:?}");
}
