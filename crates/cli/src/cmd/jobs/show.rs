//! What is shown of a plan before it runs and of its results after.

use super::How;
use super::prepare::Stage;
use crate::flags::OutputFormat;
use crate::output;
use anyhow::Result;
use overdrive_host::Root;
use overdrive_host::facts::block::{DiskStats, disk_stats};
use overdrive_host::target::DiskFacts;
use overdrive_io::front::{Plan, Section, fio};
use overdrive_report::record::Record;
use overdrive_report::render;
use overdrive_report::render::fio_json::{DiskUse, FioView, fio_json};
use overdrive_report::render::merged::{Shown, groups};
use std::fmt::Write;
use std::time::Duration;

/// The jobs as they were understood.
pub(super) fn resolved(plan: &Plan) -> String {
    let mut text = String::new();
    for section in &plan.sections {
        let target = match section.targets.as_slice() {
            [] => "a scratch file".to_owned(),
            names => names.join(", "),
        };
        let (phase, group) = (section.phase + 1, section.group + 1);
        let _ = writeln!(text, "[{}] in phase {phase}, group {group}, on {target}", section.name);
        let options = fio::options_of(section);
        let words: Vec<String> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        text.push_str(&wrapped(&words));
        for (name, why) in &section.idle {
            let line = format!("{name} has no effect: {why}");
            text.push_str(&wrapped(&line.split(' ').map(str::to_owned).collect::<Vec<String>>()));
        }
    }
    for note in &plan.notes {
        let words: Vec<String> = format!("Note: {note}").split(' ').map(str::to_owned).collect();
        text.push_str(&wrapped(&words));
    }
    text
}

/// Words in lines of 80 columns, indented.
fn wrapped(words: &[String]) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in words {
        if column == 0 || column + 1 + word.len() > 80 {
            text.push_str(if column == 0 { " " } else { "\n " });
            column = 1;
        }
        text.push(' ');
        text.push_str(word);
        column += 1 + word.len();
    }
    text + "\n"
}

/// The record's workloads as jobs: those of a group together where that was asked for.
pub(super) fn shown(stage: &Stage) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for (index, job) in stage.jobs.iter().enumerate() {
        let section = &job.section;
        if section.group_reporting
            && let Some(last) = all.last_mut()
            && last.group == section.group
            && stage.jobs[index - 1].section.group_reporting
        {
            last.workloads.push(index);
            continue;
        }
        all.push(Shown {
            name: section.name.clone(),
            group: section.group,
            options: section.options.clone(),
            workloads: vec![index],
            percentiles: section.percentiles.clone(),
            target: match section.targets.as_slice() {
                [] => "scratch file".to_owned(),
                names => names.join(":"),
            },
        });
    }
    all
}

/// The result of a single job in the form that was asked for; with what the disk counted before and after,
/// and the time between.
pub(crate) fn one(
    record: &Record,
    section: &Section,
    how: &How<'_>,
    device: Option<(DiskStats, DiskStats, Duration)>,
) -> Result<String> {
    let name = record.target.disk.as_deref().unwrap_or("");
    let disk = device.map(|(before, after, between)| disk_use(name, &before, &after, between));
    let shown = Shown {
        name: section.name.clone(),
        options: section.options.clone(),
        workloads: vec![0],
        target: section.targets.join(":"),
        ..Shown::default()
    };
    text(record, &[shown], how, Vec::new(), disk.into_iter().collect())
}

/// The result in the form that was asked for.
pub(super) fn text(
    record: &Record,
    shown: &[Shown],
    how: &How<'_>,
    globals: Vec<(String, String)>,
    disks: Vec<DiskUse>,
) -> Result<String> {
    let bins = match how.front.output_format {
        _ if how.json => return Ok(record.to_json_pretty()?),
        OutputFormat::Record => return Ok(record.to_json_pretty()?),
        OutputFormat::FioJson => false,
        OutputFormat::FioJsonPlus => true,
        OutputFormat::Text => {
            return match how.text {
                Some(text) => text(record, shown),
                None => Ok(render::text::record(record, output::text_options()) + &groups(record, shown)),
            };
        }
    };
    let now = jiff::Zoned::now();
    let view = FioView {
        timestamp_ms: now.timestamp().as_millisecond(),
        time: now.strftime("%a %b %e %H:%M:%S %Y").to_string(),
        globals,
        jobs: shown.to_vec(),
        disks,
        bins,
    };
    Ok(fio_json(record, &view)?)
}

/// The counters of every disk below the targets, each disk once.
pub(super) fn disk_counters(root: &Root, stage: &Stage) -> Vec<(String, DiskStats)> {
    let facts = stage.opened.iter().filter_map(|opened| opened.facts.as_ref());
    let mut names: Vec<&str> = facts.flat_map(|facts| &facts.disks).map(DiskFacts::name).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().filter_map(|name| Some((name.to_owned(), disk_stats(root, name).get()?))).collect()
}

/// What the disks did since `before`, which was read so long ago.
pub(super) fn disks(
    before: Vec<(String, DiskStats)>,
    root: &Root,
    stage: &Stage,
    between: Duration,
) -> Vec<DiskUse> {
    let after = disk_counters(root, stage);
    let used = |(name, before): (String, DiskStats)| {
        let (_, after) = after.iter().find(|(other, _)| *other == name)?;
        Some(disk_use(&name, &before, after, between))
    };
    before.into_iter().filter_map(used).collect()
}

/// The counters go on in a warm-up and while content is read back: what they say is of all the time between.
fn disk_use(name: &str, before: &DiskStats, after: &DiskStats, between: Duration) -> DiskUse {
    let since = |pick: fn(&DiskStats) -> u64| pick(after).saturating_sub(pick(before));
    DiskUse {
        name: name.to_owned(),
        ios: [since(|disk| disk.reads), since(|disk| disk.writes)],
        merges: [since(|disk| disk.read_merges), since(|disk| disk.write_merges)],
        ticks_ms: [since(|disk| disk.read_ms), since(|disk| disk.write_ms)],
        busy_percent: (since(|disk| disk.busy_ms) as f64 / 10.0 / between.as_secs_f64().max(1e-3)).min(100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_was_busy_for_a_share_of_the_time_between_its_readings() {
        let before = DiskStats { reads: 5, busy_ms: 1000, ..DiskStats::default() };
        let after = DiskStats { reads: 25, busy_ms: 2500, ..DiskStats::default() };
        // Two seconds of warm-up and one that was measured, in half of which it was busy.
        let used = disk_use("vda", &before, &after, Duration::from_secs(3));
        assert_eq!((used.ios, used.busy_percent), ([20, 0], 50.0));
        assert_eq!(disk_use("vda", &before, &after, Duration::from_secs(1)).busy_percent, 100.0);
    }
}
