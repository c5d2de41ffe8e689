//! The topology as a user sees it: a tree that fits 80 columns, JSON, refusals.

use crate::support::run;
use serde_json::Value;

fn host(name: &str) -> String {
    format!("{}/../../fixtures/hosts/{name}.tree", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_tree_fits_eighty_columns_and_says_what_gives_first() {
    let (code, text, error) = run(&["topology", "--from-capture", &host("workstation-ten-ssds")]);
    assert_eq!(code, 0, "{error}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for line in [
        "GB/s                                                         now    best  needed",
        "└─ pci0000:40 host bridge                                   39.4    39.4    57.6",
        "      ! shared by 8 drives, and too small for them together",
        "   ├─ 0000:40:01.1 > 0000:41:00.0 nvme0n1  8 GT/s x4        3.60    7.20    7.20",
        "   │     ! downgraded: runs at 8 GT/s x4, could at 16 GT/s x4",
        "Ceiling     10 drives could read 72.0 GB/s (67.1 GiB/s); 53.8 GB/s (50.1 GiB/s)",
        "First       to saturate is the link of 0000:41:00.0 (nvme0n1): it carries 3.60",
        "Costliest   is the host bridge pci0000:40, shared by 8 drives: it carries 39.4",
        "Move        the card with nvme4n1, nvme5n1, nvme6n1, nvme7n1 from pci0000:40 to",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}\n{text}");
    }
}

#[test]
fn every_captured_host_has_a_picture_that_fits() {
    let folder = format!("{}/../../fixtures/hosts", env!("CARGO_MANIFEST_DIR"));
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let (code, text, error) = run(&["topology", "--from-capture", path.to_str().unwrap()]);
        assert_eq!(code, 0, "{}: {error}", path.display());
        assert!(text.contains("Ceiling"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}

#[test]
fn the_json_holds_every_edge() {
    let (code, text, _) = run(&["topology", "--json", "--from-capture", &host("isolated-pollers")]);
    assert_eq!(code, 0);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["schema"], "overdrive.topology/1");
    assert_eq!(value["saturated"][0], "0000:98:00.0");
    let vertices = value["vertices"].as_array().unwrap();
    let shared = vertices.iter().find(|vertex| vertex["id"] == "0000:98:00.0").unwrap();
    assert_eq!((&shared["kind"], &shared["drives"]), (&"switch_upstream".into(), &2.into()));
    for vertex in vertices {
        assert!(vertex["now_bytes_per_s"].is_null() || vertex["now_bytes_per_s"].as_u64() > Some(0));
    }
}

#[test]
fn what_is_not_there_is_refused_in_one_line() {
    for arguments in [
        vec!["topology", "--from-capture", "/nowhere.tree"],
        vec!["topology", "/dev/no-such-disk"],
        vec!["topology", "--bridge-limit", "fast"],
        vec!["topology", "--bridge-limit", "40"],
        vec!["topology", "--root", "/nowhere"],
        vec!["audit", "--root", "/nowhere"],
        vec!["tune", "plan", "--root", "/nowhere"],
    ] {
        let (code, _, error) = run(&arguments);
        assert_eq!(code, 2, "{arguments:?}: {error}");
    }
    let path = host("cloud-ebs");
    let (code, _, error) = run(&["topology", "nvme7n1", "--from-capture", &path]);
    assert_eq!((code, error.lines().count()), (2, 1), "{error}");
    assert!(error.contains("wanted one of"), "{error}");
}
