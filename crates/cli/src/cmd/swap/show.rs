//! Plans and outcomes of swap as text and as JSON.

use crate::cmd::tune::standing::{How, print_json};
use crate::cmd::tune::{Busy, Done, change_json, left_json, planned, planned_json};
use crate::output;
use anyhow::Result;
use overdrive_host::audit::Audit;
use overdrive_host::swap::recipes;
use overdrive_host::swap::setup::Setup;
use overdrive_report::render;
use serde_json::{Value, json};

/// What would be done, and why; `busy` is what would hold some of it back now.
pub(super) fn setup(setup: &Setup, busy: &[Busy], as_json: bool) -> Result<()> {
    let changes = &setup.plan.changes;
    if as_json {
        let mut value = whole(setup);
        value["schema"] = json!("overdrive.swap-plan/1");
        value["changes"] = changes.iter().map(|change| planned_json(change, busy)).collect();
        return output::print(&format!("{value}\n"));
    }
    let mut lines: Vec<(String, String)> =
        changes.iter().map(|change| (change.class.clone(), planned(change, busy))).collect();
    lines.extend(reasons(setup));
    sections(&lines)
}

/// What was done; `off` is the command that takes it back.
pub(super) fn applied(
    setup: &Setup,
    done: &Done,
    off: &str,
    held_back: &[Busy],
    as_json: bool,
) -> Result<()> {
    let changes = &setup.plan.changes;
    if as_json {
        let mut value = whole(setup);
        value["schema"] = json!("overdrive.swap-on/1");
        value["set"] = json!(done.set);
        value["changes"] = json!(done.json(changes));
        return output::print(&format!("{value}\n"));
    }
    let mut lines = done.lines(changes);
    lines.extend(held_back.iter().map(|disk| ("-", format!("not written: {}", disk.why))));
    lines.push(done.way_back(|_| off.to_owned()));
    output::print(&render::text::sections(&lines, output::text_options()))
}

/// Both recipes beside this host's.
pub(super) fn profile(audit: &Audit, setup: &Setup, as_json: bool) -> Result<()> {
    let rows = recipes::rows(audit, setup);
    if as_json {
        let row = |row: &recipes::Row| {
            json!({
                "topic": row.topic,
                "guide": row.guide,
                "blueprint": row.blueprint,
                "here": row.here,
                "why": row.why,
            })
        };
        let rows: Vec<Value> = rows.iter().map(row).collect();
        let answer = json!({ "schema": "overdrive.swap-profile/1", "rows": rows });
        return output::print(&format!("{answer}\n"));
    }
    let mut lines = vec![
        (
            "guide".to_owned(),
            "P4800X evaluation guide and Memory Drive Technology paper (2018 to 2020)".to_owned(),
        ),
        ("blueprint".to_owned(), "Intel 340608-001US with its scripts (2019)".to_owned()),
    ];
    for row in &rows {
        let recipes = format!("guide: {}; blueprint: {}; here: {}", row.guide, row.blueprint, row.here);
        lines.push((row.topic.to_owned(), recipes));
        lines.push((String::new(), format!("why: {}", row.why)));
    }
    sections(&lines)
}

/// There is nothing to turn off.
pub(super) fn nothing(how: How) -> Result<()> {
    if how.as_json {
        return print_json(&[], &[], how);
    }
    output::print("no swap of Overdrive's is on\n")
}

fn reasons(setup: &Setup) -> Vec<(String, String)> {
    let mut lines: Vec<(String, String)> = setup
        .choices
        .iter()
        .map(|choice| ("Why".to_owned(), format!("{}: {}", choice.what, choice.why)))
        .collect();
    lines.extend(
        setup
            .plan
            .left
            .iter()
            .map(|left| ("-".to_owned(), format!("not planned: {}: {}", left.rule, left.why))),
    );
    lines
}

fn whole(setup: &Setup) -> Value {
    json!({
        "changes": setup.plan.changes.iter().map(change_json).collect::<Vec<_>>(),
        "choices": setup.choices.iter()
            .map(|choice| json!({ "what": choice.what, "why": choice.why })).collect::<Vec<_>>(),
        "left": setup.plan.left.iter().map(left_json).collect::<Vec<_>>(),
    })
}

pub(super) fn sections(lines: &[(String, String)]) -> Result<()> {
    let lines: Vec<(&str, String)> =
        lines.iter().map(|(title, text)| (title.as_str(), text.clone())).collect();
    output::print(&render::text::sections(&lines, output::text_options()))
}
