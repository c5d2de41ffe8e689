//! `overdrive audit`: facts, rules, findings. It changes nothing.

use crate::assemble;
use crate::exit::{Ending, Refused, refuse};
use crate::flags::{AuditFlags, ProfileFlag, ScopeFlags};
use crate::output;
use anyhow::Result;
use overdrive_host::audit::Audit;
use overdrive_host::finding::{Finding, Profile, Status};
use overdrive_host::target::{DiskFacts, TargetIdentity};
use overdrive_host::topology::{Known, Topology};
use overdrive_host::{Root, capture, rules};
use overdrive_report::render;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

/// How long other processes are watched: two ticks of the kernel's clock would be too few to tell.
const WATCH: Duration = Duration::from_millis(200);

/// Audits, and prints what was found.
pub(crate) fn audit(flags: &AuditFlags) -> Result<Ending> {
    if let Some(file) = &flags.capture {
        return write_capture(flags, file);
    }
    let (root, told) = match &flags.from_capture {
        Some(file) => (load(file)?, Some(file.as_path())),
        None => (rooted(&flags.scope.root)?, None),
    };
    let (audit, notes) = look(&root, &flags.scope, told)?;
    if let Some(rule) = &flags.explain {
        return explain(&audit, rule);
    }
    if flags.json {
        let value = as_json(&audit, &flags.scope, &notes);
        output::print(&(serde_json::to_string_pretty(&value)? + "\n"))?;
    } else {
        let findings: Vec<_> = audit.findings.iter().map(assemble::finding).collect();
        notes.iter().for_each(|note| output::say!("{note}"));
        output::print(&render::text::findings(&findings, output::text_options()))?;
    }
    let is_bad = audit.findings.iter().any(|finding| finding.status == Status::Problem);
    Ok(if is_bad { Ending::BadVerdict } else { Ending::Done })
}

/// Reads and judges a root: the named target, the one a capture was made with, or the disk under this
/// directory. The notes say which.
pub(crate) fn look(root: &Root, scope: &ScopeFlags, captured: Option<&Path>) -> Result<(Audit, Vec<String>)> {
    let (identity, note) = identity(root, scope, captured)?;
    let profile = match scope.profile {
        ProfileFlag::Storage => Profile::Storage,
        ProfileFlag::Memory => Profile::Memory,
    };
    let audit =
        Audit::of(root, identity.as_ref(), profile, WATCH).map_err(|error| Refused(error.to_string()))?;
    let disks: Vec<&str> = audit.target.disks.iter().map(DiskFacts::name).collect();
    let below = if disks.is_empty() { String::new() } else { format!(" (disk: {})", disks.join(", ")) };
    Ok((audit, vec![format!("{note}{below}")]))
}

fn identity(
    root: &Root,
    scope: &ScopeFlags,
    captured: Option<&Path>,
) -> Result<(Option<TargetIdentity>, String)> {
    let elsewhere = captured.unwrap_or(&scope.root).display().to_string();
    if !root.is_live() {
        if let Some(name) = &scope.target {
            let identity = capture::device_named(root, name).map_err(|error| Refused(error.to_string()))?;
            return Ok((Some(identity), format!("audited: {elsewhere} and {name} there")));
        }
        return Ok(match capture::target(root).map_err(|error| Refused(error.to_string()))? {
            Some(identity) => {
                let note = format!("audited: {elsewhere} and {} there", identity.name());
                (Some(identity), note)
            }
            None => (None, format!("audited: {elsewhere}, without a disk; --target DEVICE names one of its")),
        });
    }
    let named = scope.target.as_deref();
    let path = Path::new(named.unwrap_or("."));
    let identity = TargetIdentity::at(path).map_err(|error| Refused(error.to_string()))?;
    let note = match named {
        Some(name) => format!("audited: this host and {name}"),
        None => format!("audited: this host and what lies under {}; --target names another", identity.name()),
    };
    Ok((Some(identity), note))
}

/// A directory that stands for a host; one that is not there would read as a host that tells nothing.
pub(crate) fn rooted(directory: &Path) -> Result<Root> {
    if !directory.is_dir() {
        refuse!(
            "--root {}: no such directory; wanted / or a copy of another host's files",
            directory.display()
        );
    }
    Ok(Root::new(directory))
}

/// A captured host.
pub(crate) fn load(file: &Path) -> Result<Root> {
    let wanted = "wanted a file that overdrive audit --capture wrote";
    let text = std::fs::read_to_string(file)
        .map_err(|error| Refused(format!("{}: {error}; {wanted}", file.display())))?;
    Ok(capture::read(&text).map_err(|error| Refused(format!("{}: {error}", file.display())))?)
}

fn write_capture(flags: &AuditFlags, file: &Path) -> Result<Ending> {
    output::check_replaceable("--capture", file)?;
    let root = rooted(&flags.scope.root)?.recorded();
    let (identity, _) = identity(&Root::new(&flags.scope.root), &flags.scope, None)?;
    look(&root, &flags.scope, None)?;
    // Read for the recording alone, so that the topology can be drawn elsewhere too.
    let drawn = Topology::read(&root, &[], &Known::default());
    drawn.map_err(|error| Refused(error.to_string()))?;
    output::replace_file(file, &capture::text(&root, identity.as_ref()))?;
    output::say!("{}: captured; it names this host's devices and their serial numbers", file.display());
    Ok(Ending::Done)
}

fn as_json(audit: &Audit, scope: &ScopeFlags, notes: &[String]) -> serde_json::Value {
    let findings: Vec<_> = audit.findings.iter().map(assemble::finding).collect();
    let facts: Vec<_> = audit.host.rows().iter().chain(&audit.target.rows()).map(assemble::fact).collect();
    json!({
        "schema": "overdrive.audit/1",
        "profile": match scope.profile {
            ProfileFlag::Storage => "storage",
            ProfileFlag::Memory => "memory",
        },
        "target": audit.target.identity.path,
        "disks": audit.target.disks.iter().map(DiskFacts::name).collect::<Vec<_>>(),
        "notes": notes,
        "findings": findings,
        "facts": facts,
    })
}

fn explain(audit: &Audit, wanted: &str) -> Result<Ending> {
    let Some(finding) = audit.findings.iter().find(|finding| finding.rule == wanted) else {
        let near: Vec<&str> = rules::all()
            .map(|rule| rule.id)
            .filter(|id| id.split('-').any(|part| part.len() > 2 && wanted.contains(part)))
            .collect();
        let hint = match near.is_empty() {
            true => "overdrive audit --json lists all".to_owned(),
            false => format!("near it: {}", near.join(", ")),
        };
        refuse!("--explain {wanted}: no rule has this name; {hint}");
    };
    output::print(&render::text::sections(&story(finding), output::text_options()))?;
    Ok(Ending::Done)
}

/// All there is to say of a finding, as titled paragraphs.
fn story(finding: &Finding) -> Vec<(&'static str, String)> {
    let class = match finding.risk.letter() {
        "A" => "A: safe to apply",
        "B" => "B: has side effects; ask first",
        _ => "C: destructive, or touches security or hardware; never applied, only advised",
    };
    let mut story = vec![
        ("Rule", format!("{} ({}): {}", finding.rule, finding.scope.name(), finding.title)),
        ("Here", format!("{}: {}", finding.status.name(), finding.reason)),
    ];
    story.extend(finding.evidence.iter().map(|seen| ("Read", format!("{} = {}", seen.path, seen.read))));
    story.push(("Why", finding.why.to_owned()));
    story.push(("Effect", finding.effect.clone()));
    if let Some(fix) = &finding.fix {
        story.push(("Now", fix.now.clone()));
        story.push(("To stay", fix.persistent.clone()));
    }
    story.extend(finding.undo.iter().map(|undo| ("Undo", undo.clone())));
    story.push(("Class", class.to_owned()));
    let checked = if finding.verified { "" } else { " (unverified: from memory, not checked)" };
    story.push(("Source", format!("{}{checked}", finding.source)));
    story.retain(|(_, text)| !text.is_empty());
    story
}
