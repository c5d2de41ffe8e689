//! What a reader should know first: headline figures, and verdicts with neighbours on the ramp put together.

use crate::published::{self, Reference};
use crate::record::{Direction, Group, Job, Operation, Record, Verdict, Workload};
use crate::show;
use std::collections::BTreeMap;

/// A figure for the top of the page.
pub(super) struct Headline {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) unit: &'static str,
    pub(super) detail: String,
    pub(super) published: Option<String>,
}

/// The headline figures the record has something for.
pub(super) fn headlines(record: &Record) -> Vec<Headline> {
    let pick = |group: Group, operation: Operation| -> Vec<&Workload> {
        let of = |w: &&Workload| w.group == group && w.job.operation == operation && w.outcome.ios > 0;
        record.workloads.iter().filter(of).collect()
    };
    [
        latency(record, &pick(Group::Qd1, Operation::Read)),
        rate(record, &pick(Group::Ramp, Operation::Read), "Random read"),
        rate(record, &pick(Group::RandomWrite, Operation::Write), "Random write"),
        rate(record, &pick(Group::Mixed, Operation::Mixed), "Mixed reads and writes"),
        throughput(record, &pick(Group::Sequential, Operation::Read), "Sequential read"),
        throughput(record, &pick(Group::Sequential, Operation::Write), "Sequential write"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn latency(record: &Record, workloads: &[&Workload]) -> Option<Headline> {
    let workload = workloads.iter().max_by(|a, b| a.outcome.iops.total_cmp(&b.outcome.iops))?;
    let (_, direction) = show::directions(workload).next()?;
    let published = beside(record, &[workload], Reference::avg_us)
        .map(|(name, us, _)| format!("{name}: {} µs", overdrive_base::time::three_digits(us)));
    Some(Headline {
        name: "Read latency, one I/O at a time",
        value: show::us(direction.latency.mean_ns),
        unit: "µs",
        detail: format!("{}; {}", show::engine(&workload.job), tail(direction)),
        published,
    })
}

fn rate(record: &Record, workloads: &[&Workload], name: &'static str) -> Option<Headline> {
    let workload = workloads.iter().max_by(|a, b| a.outcome.iops.total_cmp(&b.outcome.iops))?;
    let tails = show::directions(workload).map(|(_, direction)| tail(direction)).next().unwrap_or_default();
    let published = beside(record, workloads, Reference::iops).map(|(name, iops, job)| {
        format!("{name}: {} IOPS at depth {}", show::count(iops), job.queue_depth_total)
    });
    Some(Headline {
        name,
        value: show::count(workload.outcome.iops),
        unit: "IOPS",
        detail: format!("{}, depth {}; {tails}", show::shape(&workload.job), workload.job.queue_depth_total),
        published,
    })
}

fn throughput(record: &Record, workloads: &[&Workload], name: &'static str) -> Option<Headline> {
    let workload = workloads.iter().max_by(|a, b| a.outcome.bytes_per_s.total_cmp(&b.outcome.bytes_per_s))?;
    let published = beside(record, workloads, Reference::bytes_per_s).map(|(name, bytes, job)| {
        let size = overdrive_base::size::format_size(job.block_size_bytes);
        format!("{name}: {} GiB/s in {size}", show::gib_per_s(bytes))
    });
    Some(Headline {
        name,
        value: show::gib_per_s(workload.outcome.bytes_per_s),
        unit: "GiB/s",
        detail: format!("{}, depth {}", show::shape(&workload.job), workload.job.queue_depth_total),
        published,
    })
}

/// The largest published figure comparable with any of these workloads, and the job it is comparable with.
fn beside<'a>(
    record: &Record,
    workloads: &[&'a Workload],
    figure: impl Fn(&Reference) -> Option<f64>,
) -> Option<(&'static str, f64, &'a Job)> {
    let found = workloads.iter().filter_map(|workload| {
        let beside = published::beside(record.target.model.as_deref(), workload)?;
        let name = if beside.yardstick { "P4800X as a yardstick" } else { "published" };
        Some((name, figure(beside.references.first()?)?, &workload.job))
    });
    found.max_by(|a, b| a.1.total_cmp(&b.1))
}

fn tail(direction: &Direction) -> String {
    let Some(p) = direction.latency.percentile(99.99) else { return String::new() };
    match (p.value_ns, p.at_least_ns) {
        (Some(value), _) => format!("99.99 % within {}", show::ns(value as f64)),
        (None, Some(bound)) => format!("99.99 % at least {}", show::ns(bound as f64)),
        (None, None) => String::new(),
    }
}

/// The verdicts of a record as they are shown.
pub(super) struct Verdicts {
    /// Verdicts by name; neighbours on the ramp with the same limit are one.
    pub(super) lines: Vec<(String, Verdict)>,
    /// Warnings that several lines share, told once, and how many lines share each.
    pub(super) shared: Vec<(String, usize)>,
}

/// Warnings of this many lines are told once for all.
const SHARED_BY: usize = 3;

/// Sums up the verdicts of a record.
pub(super) fn verdicts(record: &Record) -> Verdicts {
    let judged: Vec<(&Workload, &Verdict)> =
        record.workloads.iter().filter_map(|workload| Some((workload, workload.verdict.as_ref()?))).collect();
    let alike = |a: &(&Workload, &Verdict), b: &(&Workload, &Verdict)| {
        (a.0.group, b.0.group) == (Group::Ramp, Group::Ramp)
            && (a.1.limit, a.1.confidence) == (b.1.limit, b.1.confidence)
    };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for chunk in judged.chunk_by(alike) {
        for (warning, _) in warnings_by_step(chunk) {
            *counts.entry(warning.clone()).or_default() += 1;
        }
    }
    counts.retain(|_, count| *count >= SHARED_BY);
    let lines = judged.chunk_by(alike).filter_map(|chunk| together(chunk, &counts)).collect();
    Verdicts { lines, shared: counts.into_iter().collect() }
}

/// Each warning once, with the steps that it belongs to.
fn warnings_by_step<'a>(chunk: &[(&Workload, &'a Verdict)]) -> Vec<(&'a String, Vec<String>)> {
    let mut steps: Vec<(&String, Vec<String>)> = Vec::new();
    for (workload, verdict) in chunk {
        for warning in &verdict.warnings {
            let layout = show::layout(&workload.job);
            match steps.iter_mut().find(|(known, _)| *known == warning) {
                Some((_, at)) => at.push(layout),
                None => steps.push((warning, vec![layout])),
            }
        }
    }
    steps
}

/// A line for a chunk. What all lines share is told elsewhere; what not all steps share names its steps.
fn together(chunk: &[(&Workload, &Verdict)], shared: &BTreeMap<String, usize>) -> Option<(String, Verdict)> {
    let ((first, _), (last, verdict)) = (chunk.first()?, chunk.last()?);
    let mut verdict = (*verdict).clone();
    let told = |(warning, at): (&String, Vec<String>)| {
        if at.len() == chunk.len() { warning.clone() } else { format!("{}: {warning}", at.join(", ")) }
    };
    let own = warnings_by_step(chunk).into_iter().filter(|(warning, _)| !shared.contains_key(*warning));
    verdict.warnings = own.map(told).collect();
    if chunk.len() == 1 {
        return Some((first.title.clone(), verdict));
    }
    let (from, to) = (show::layout(&first.job), show::layout(&last.job));
    Some((format!("{}, ramp {from} to {to}", show::shape(&first.job)), verdict))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fixtures, verdict};

    #[test]
    fn a_warning_of_the_ramp_names_its_steps() {
        let mut record = fixtures::optane();
        verdict::judge_all(&mut record);
        let mut ramp: Vec<&mut Workload> =
            record.workloads.iter_mut().filter(|workload| workload.group == Group::Ramp).collect();
        let one = ramp[0].verdict.clone().unwrap();
        for (step, workload) in ramp.iter_mut().enumerate() {
            let fell = (step == 1).then(|| "The rate fell.".to_owned());
            let warnings = std::iter::once("Of all.".to_owned()).chain(fell).collect();
            workload.verdict = Some(Verdict { warnings, ..one.clone() });
        }
        let layout = show::layout(&ramp[1].job);
        let shown = verdicts(&record);
        let (name, verdict) = shown.lines.iter().find(|(name, _)| name.contains("ramp")).unwrap();
        assert_eq!(verdict.warnings, ["Of all.".to_owned(), format!("{layout}: The rate fell.")], "{name}");
    }
}
