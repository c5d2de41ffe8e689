//! Snapshots at 80 columns, and what must hold at every width.

use super::*;
use crate::compare::compare;
use crate::fixtures;
use crate::verdict::judge_all;
use proptest::prelude::*;

fn judged(mut record: Record) -> Record {
    judge_all(&mut record);
    record
}

fn at_80(text: &str) -> &str {
    let long: Vec<&str> =
        text.lines().filter(|line| line.chars().count() > 80 && line.trim().contains(' ')).collect();
    assert!(long.is_empty(), "wider than 80 columns: {long:#?}");
    text
}

#[test]
fn an_optane_at_80_columns() {
    insta::assert_snapshot!(at_80(&record(&judged(fixtures::optane()), TextOptions::default())));
}

#[test]
fn the_reference_machine_at_80_columns() {
    insta::assert_snapshot!(at_80(&record(&judged(fixtures::virtio()), TextOptions::default())));
}

#[test]
fn an_interrupted_run_at_80_columns() {
    insta::assert_snapshot!(at_80(&record(&judged(fixtures::interrupted()), TextOptions::default())));
}

#[test]
fn a_run_that_failed_at_once() {
    insta::assert_snapshot!(at_80(&record(&judged(fixtures::empty()), TextOptions::default())));
}

#[test]
fn a_workload_that_did_nothing_has_a_row_beside_the_published_one() {
    let mut record = fixtures::optane();
    let at = record.workloads.iter().position(|workload| workload.id == "randwrite-4k-io_uring-4x4").unwrap();
    let outcome = &mut record.workloads[at].outcome;
    (outcome.ios, outcome.write) = (0, None);
    let text = super::record(&judged(record), TextOptions::default());
    let table = text.split("4 KiB random write").nth(1).unwrap();
    let row = table.lines().find(|line| line.starts_with("io_uring 4x4"));
    assert!(row.is_some_and(|row| row.split_whitespace().skip(2).all(|cell| cell == "-")), "{table}");
}

#[test]
fn a_search_at_80_columns() {
    insta::assert_snapshot!(at_80(&record(&judged(fixtures::searched()), TextOptions::default())));
}

#[test]
fn a_surface_at_80_columns() {
    insta::assert_snapshot!(at_80(&record(&judged(fixtures::surface()), TextOptions::default())));
}

#[test]
fn a_comparison_at_80_columns() {
    let compared = compare(&fixtures::optane(), &fixtures::virtio());
    insta::assert_snapshot!(at_80(&comparison(&compared, TextOptions::default())));
}

#[test]
fn colour_adds_nothing_but_colour() {
    let record = judged(fixtures::virtio());
    let plain = super::record(&record, TextOptions::default());
    let coloured = super::record(&record, TextOptions { width: 80, colour: true });
    assert!(coloured.contains("\x1b[1m") && !plain.contains('\x1b'));
    let mut stripped = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        stripped += before;
        rest = after.split_once('m').unwrap().1;
    }
    assert_eq!(stripped + rest, plain);
}

#[test]
fn advice_without_a_command_is_shown_in_its_place() {
    let mut record = judged(fixtures::virtio());
    let at = record.findings.iter().position(|finding| finding.status == FindingStatus::Advice).unwrap();
    let mut with = |now: &str, persistent: &str| {
        let (now, persistent) = (now.to_owned(), persistent.to_owned());
        record.findings[at].fix = Some(Fix { now, persistent });
        super::record(&record, TextOptions::default())
    };
    let text = with("", "another slot");
    assert!(text.contains("        fix: another slot\n"), "{text}");
    let text = with("", "");
    assert!(text.lines().all(|line| line.trim() != "fix:"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn tables_fit_any_width(width in 70usize..200) {
        let text = record(&judged(fixtures::virtio()), TextOptions { width, colour: false });
        for line in text.lines().filter(|line| !line.contains("  fix:") && !line.contains('/')) {
            prop_assert!(line.chars().count() <= width, "{}", line);
        }
    }
}
