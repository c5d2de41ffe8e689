//! What only some workloads have, as tables that both renderers draw: response time beside service time, the
//! part of each target, the slowest I/Os, and what checking the content found.

use crate::record::{Direction, Group, Latency, Record, Schedule, Verified, Workload};
use crate::show;
use overdrive_base::size::format_size;

/// The slowest I/Os that a table shows; the record has them all.
const SHOWN: usize = 10;

/// A table with its heading and what must be said below it.
#[derive(Debug, Default)]
pub(crate) struct Detail {
    /// What the table is about.
    pub(crate) heading: String,
    /// The heads of the columns; the first names the row.
    pub(crate) header: Vec<String>,
    /// The cells.
    pub(crate) rows: Vec<Vec<String>>,
    /// Sentences below the table.
    pub(crate) notes: Vec<String>,
}

/// The details of every workload in the record's order.
pub(crate) fn details(record: &Record) -> Vec<Detail> {
    let search = record.search.iter().flat_map(super::search::details);
    search.chain(record.workloads.iter().flat_map(of_workload)).collect()
}

fn of_workload(workload: &Workload) -> Vec<Detail> {
    let outcome = &workload.outcome;
    let mut details = Vec::new();
    details.extend(outcome.schedule.as_ref().map(|schedule| response(workload, schedule)));
    details.extend(outcome.targets.as_ref().map(|_| targets(workload)));
    details.extend(outcome.verified.as_ref().map(|verified| checked(workload, verified)));
    details.extend(searches(workload));
    details.extend(further_percentiles(workload));
    // An evaluation has a dozen workloads; their outliers are in its record.
    if workload.group == Group::Single {
        details.extend(slowest(workload));
    }
    details
}

const TAIL: [f64; 4] = [50.0, 99.0, 99.9, 99.99];

fn heads(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn latency_cells(latency: &Latency) -> Vec<String> {
    let mut cells = vec![show::us(latency.mean_ns)];
    cells.extend(TAIL.map(|percentile| show::percentile_us(latency.percentile(percentile))));
    cells.push(show::us(latency.max_ns as f64));
    cells
}

fn response(workload: &Workload, schedule: &Schedule) -> Detail {
    let mut rows = Vec::new();
    for (name, direction) in show::directions(workload) {
        rows.push([vec![format!("{name}: service")], latency_cells(&direction.latency)].concat());
        let response = direction.response.as_ref();
        rows.extend(
            response.map(|latency| [vec![format!("{name}: response")], latency_cells(latency)].concat()),
        );
    }
    let detail = workload.job.detail.as_ref();
    let law = detail.and_then(|detail| detail.arrivals.clone()).unwrap_or_else(|| "scheduled".to_owned());
    let asked = detail.and_then(|detail| detail.rate_per_worker).map_or(String::new(), |rate| {
        let total = rate * f64::from(workload.job.workers);
        format!(", {} a second asked for, {} done", show::count(total), show::count(workload.outcome.iops))
    });
    let mut notes = vec![format!(
        "Arrivals: {law}{asked}. Service time runs from the start of an I/O, response time from when it was due."
    )];
    notes.push(format!(
        "Starts were late by {} on average, {} at the 99th percentile, {} at most.",
        show::ns(schedule.slip_mean_ns),
        show::ns(schedule.slip_p99_ns as f64),
        show::ns(schedule.slip_max_ns as f64)
    ));
    if schedule.unstarted > 0 {
        notes.push(format!(
            "{} I/Os were due and never started: the target could not keep up, and response times would go on growing.",
            show::grouped(schedule.unstarted)
        ));
    }
    let heading = format!("Response time, {} (microseconds)", show::short_name(workload));
    Detail { heading, header: heads(&["", "avg", "50", "99", "99.9", "99.99", "max"]), rows, notes }
}

fn targets(workload: &Workload) -> Detail {
    let mut rows = Vec::new();
    for part in workload.outcome.targets.iter().flatten() {
        let both = [("read", &part.read), ("write", &part.write), ("trim", &part.trim)];
        for (name, direction) in
            both.into_iter().filter_map(|(name, direction)| Some((name, direction.as_ref()?)))
        {
            let Direction { iops, bytes_per_s, latency, .. } = direction;
            let mut row =
                vec![format!("{}: {name}", part.target), show::count(*iops), show::gib_per_s(*bytes_per_s)];
            row.extend(latency_cells(latency));
            row.push(show::grouped(part.failures));
            rows.push(row);
        }
    }
    let header = heads(&["", "IOPS", "GiB/s", "avg", "50", "99", "99.9", "99.99", "max", "failed"]);
    let heading = format!("By target, {} (microseconds)", show::short_name(workload));
    Detail { heading, header, rows, notes: Vec::new() }
}

fn slowest(workload: &Workload) -> Option<Detail> {
    let outliers = workload.outcome.outliers.as_ref()?;
    let row = |outlier: &crate::record::Outlier| {
        vec![
            show::ns(outlier.latency_ns as f64),
            show::ns(outlier.at_ns as f64),
            show::operation_name(outlier.operation).to_owned(),
            outlier.offset_bytes.to_string(),
            outlier.length_bytes.to_string(),
            outlier.depth.to_string(),
            outlier.cpu.to_string(),
            outlier.worker.to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = outliers.iter().take(SHOWN).map(row).collect();
    let hidden = outliers.len().saturating_sub(SHOWN);
    let notes = if hidden > 0 { vec![format!("{hidden} more are in the record.")] } else { Vec::new() };
    (!rows.is_empty()).then(|| Detail {
        heading: format!("The slowest I/Os, {}", show::short_name(workload)),
        header: heads(&["took", "started at", "", "offset", "bytes", "depth", "CPU", "worker"]),
        rows,
        notes,
    })
}

/// A depth that was looked for, and a steady state.
fn searches(workload: &Workload) -> Option<Detail> {
    let (outcome, asked) = (&workload.outcome, workload.job.detail.as_ref());
    let mut notes = Vec::new();
    if let Some(found) = &outcome.depth_found {
        let target = asked.and_then(|asked| asked.latency_target_ns).unwrap_or(0);
        let percent = asked.and_then(|asked| asked.latency_target_percent).unwrap_or(100.0);
        let depth = if found.depth_min == found.depth_max {
            found.depth_max.to_string()
        } else {
            format!("{} to {} (by worker)", found.depth_min, found.depth_max)
        };
        let what = match (found.met, found.settled) {
            (false, _) => "is not kept even at depth 1".to_owned(),
            (true, true) => format!("is kept up to a depth of {depth}"),
            (true, false) => format!("was kept at a depth of {depth}; the search was not over"),
        };
        notes.push(format!("A latency of {} for {percent} % of I/Os {what}.", show::ns(target as f64)));
    }
    if let Some(steady) = &outcome.steady {
        let asked = asked.and_then(|asked| asked.steady_state.clone()).unwrap_or_default();
        let what = if steady.attained { "reached" } else { "not reached" };
        notes.push(format!(
            "Steady state {asked}: {what} after {} values; the last test gave {:.3}, the mean {}.",
            steady.values,
            steady.criterion,
            show::count(steady.mean)
        ));
    }
    let heading = format!("Search, {}", show::short_name(workload));
    (!notes.is_empty()).then(|| Detail { heading, notes, ..Detail::default() })
}

/// The percentiles that were asked for, whatever the other tables show.
fn further_percentiles(workload: &Workload) -> Option<Detail> {
    let wanted = workload.job.detail.as_ref()?.percentiles.as_ref()?;
    let mut header = vec![String::new()];
    header.extend(wanted.iter().map(f64::to_string));
    let row = |(name, direction): (&str, &Direction)| {
        let cell = |&wanted: &f64| show::percentile_us(direction.latency.percentile(wanted));
        std::iter::once(name.to_owned()).chain(wanted.iter().map(cell)).collect()
    };
    let rows: Vec<Vec<String>> = show::directions(workload).map(row).collect();
    let heading = format!("Percentiles, {} (microseconds)", show::short_name(workload));
    (!rows.is_empty()).then(|| Detail { heading, header, rows, notes: Vec::new() })
}

fn checked(workload: &Workload, verified: &Verified) -> Detail {
    let heading = format!("Content, {}", show::short_name(workload));
    let blocks = show::grouped(verified.blocks);
    if verified.failures == 0 {
        let written = workload.outcome.write.as_ref().map_or(0, |write| write.ios);
        let note = match verified.blocks {
            0 => "No block was read back: what the target holds is not known.".to_owned(),
            read if read < written => format!(
                "{blocks} of {} blocks were read back and hold what was written; of the others nothing is known.",
                show::grouped(written)
            ),
            _ => format!("All {blocks} blocks hold what was written."),
        };
        return Detail { heading, notes: vec![note], ..Detail::default() };
    }
    let kinds: Vec<String> = verified
        .defects
        .iter()
        .map(|defect| format!("{} {}", show::grouped(defect.count), defect.defect))
        .collect();
    let notes = vec![format!(
        "{} of {blocks} blocks do not hold what was written: {}.",
        show::grouped(verified.failures),
        kinds.join(", ")
    )];
    let row = |failure: &crate::record::VerifyFailure| {
        let place = format!("{} ({})", failure.offset_bytes, format_size(failure.offset_bytes));
        vec![place, failure.defect.clone(), failure.detail.clone()]
    };
    let rows = verified.first.iter().map(row).collect();
    Detail { heading, header: heads(&["offset", "defect", "found"]), rows, notes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn each_detail_says_what_matters() {
        let details = details(&fixtures::open_loop());
        let headings: Vec<&str> =
            details.iter().map(|detail| detail.heading.split(',').next().unwrap()).collect();
        assert_eq!(headings, ["Response time", "By target", "Content", "The slowest I/Os"]);
        assert!(details[0].notes.concat().contains("17 I/Os were due and never started"));
        assert!(details[2].notes[0].contains("1 of 256 blocks") && details[2].rows[0][1] == "torn");
        for detail in &details {
            assert!(detail.rows.iter().all(|row| row.len() == detail.header.len()), "{detail:?}");
        }
    }

    #[test]
    fn blocks_that_were_not_read_back_do_not_hold_what_was_written() {
        let note = |blocks: u64, written: u64| {
            let mut record = fixtures::open_loop();
            let outcome = &mut record.workloads[0].outcome;
            outcome.write = outcome.read.clone().map(|read| Direction { ios: written, ..read });
            let defects = Vec::new();
            outcome.verified = Some(Verified { blocks, failures: 0, defects, first: Vec::new() });
            let content = details(&record).into_iter().find(|detail| detail.heading.starts_with("Content"));
            content.unwrap().notes.concat()
        };
        assert_eq!(note(256, 256), "All 256 blocks hold what was written.");
        assert!(note(0, 256).starts_with("No block was read back"));
        assert!(note(0, 0).starts_with("No block was read back"));
        assert!(note(200, 256).starts_with("200 of 256 blocks were read back"));
    }

    #[test]
    fn an_evaluation_has_none() {
        assert!(details(&fixtures::optane()).is_empty());
    }
}
