//! The audit as a user has it: every rule explained, every rule listed, captures that hold all that is needed.

use crate::support::{folder, run};
use serde_json::Value;

fn host(name: &str) -> String {
    format!("{}/../../fixtures/hosts/{name}.tree", env!("CARGO_MANIFEST_DIR"))
}

/// The rules of the generated page.
fn rules() -> Vec<String> {
    let page = format!("{}/../../docs/rules.md", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(page).unwrap();
    page.lines().filter_map(|line| line.strip_prefix("### ")).map(str::to_owned).collect()
}

#[test]
fn every_rule_of_the_page_is_explained() {
    let path = host("reference-virtio");
    let rules = rules();
    assert!(rules.len() >= 120, "{}", rules.len());
    for rule in rules {
        let (code, text, error) = run(&["audit", "--explain", &rule, "--from-capture", &path]);
        assert_eq!(code, 0, "{rule}: {error}");
        assert!(text.contains(&rule) && text.lines().count() >= 4, "{rule}: {text}");
    }
    let (code, _, error) = run(&["audit", "--explain", "no-such-rule", "--from-capture", &path]);
    assert_eq!((code, error.lines().count()), (2, 1), "{error}");
}

#[test]
fn every_rule_is_listed_whatever_its_status() {
    let (_, text, _) = run(&["audit", "--json", "--from-capture", &host("cloud-ebs")]);
    let value: Value = serde_json::from_str(&text).unwrap();
    let listed: Vec<&str> = value["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["rule"].as_str().unwrap())
        .collect();
    for rule in rules() {
        assert!(listed.contains(&rule.as_str()), "{rule}");
    }
    for field in ["rule", "scope", "status", "evidence", "reason", "source", "effect", "fix", "risk"] {
        assert!(value["findings"][0].get(field).is_some(), "{field}");
    }
}

#[test]
fn a_capture_of_this_host_draws_the_same_topology() {
    let folder = folder();
    let path = folder.path().join("host.tree");
    let path = path.to_str().unwrap();
    let (code, _, error) = run(&["audit", "--capture", path]);
    assert_eq!(code, 0, "{error}");
    let (_, here, _) = run(&["topology", "--json"]);
    let (code, there, error) = run(&["topology", "--json", "--from-capture", path]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(here, there);
}
