//! The tables of the text report: latency by group, the ramp, CPU per I/O, comparison.

use super::Page;
use super::layout::{Grid, wrap};
use crate::compare::{Change, Comparison, Figure, Line, Meaning, WorkloadChange};
use crate::published::{self, Beside, Reference};
use crate::record::{Cpu, Direction, Group, Operation, PERCENTILES, Percentile, Record, Workload};
use crate::render::detail::{self, Detail};
use crate::show;

/// The percentiles of the guide's tables; the record holds the 90th too.
fn shown_percentiles() -> impl Iterator<Item = f64> {
    PERCENTILES.into_iter().filter(|percentile| *percentile != 90.0)
}

/// One table for each group of workloads.
pub(super) fn latency(record: &Record, page: &Page) -> Vec<String> {
    show::groups(record)
        .into_iter()
        .map(|(group, workloads)| {
            let heading = format!("{} (latency in microseconds)", show::group_name(group, workloads[0]));
            let (grid, notes) = match group {
                Group::Ramp => ramp(record, &workloads),
                _ => settings(record, &workloads, group == Group::Sequential),
            };
            let notes: String = notes.iter().map(|note| wrap(note, page.width, "", "    ")).collect();
            page.heading(&heading) + &grid.draw(page.width) + &notes
        })
        .collect()
}

/// What only some workloads have.
pub(super) fn details(record: &Record, page: &Page) -> Vec<String> {
    let one = |detail: Detail| {
        let notes: String = detail.notes.iter().map(|note| wrap(note, page.width, "", "")).collect();
        let grid = Grid { keys: 1, header: detail.header, rows: detail.rows };
        let table = if grid.rows.is_empty() { String::new() } else { grid.draw(page.width) };
        page.heading(&detail.heading) + &table + &notes
    };
    detail::details(record).into_iter().map(one).collect()
}

/// The guide's table 6: a setting a row, with the published figures below it. Throughput comes first and the
/// far tail is left to the record where blocks are large and I/Os few.
fn settings(record: &Record, workloads: &[&Workload], throughput: bool) -> (Grid, Vec<String>) {
    let columns = Columns { throughput };
    let mut header = vec!["setting".to_owned(), "avg".to_owned()];
    header.extend(columns.percentiles().map(|percentile| percentile.to_string()));
    header.extend(["max", "IOPS"].map(str::to_owned));
    header.extend(throughput.then(|| "GiB/s".to_owned()));
    let mut rows = Vec::new();
    let mut notes = Notes::default();
    for workload in workloads {
        let mixed = workload.job.operation == Operation::Mixed;
        let several = show::several_directions(workload);
        for (name, direction) in show::directions(workload) {
            let name = if several { format!(" {name}") } else { String::new() };
            rows.push(columns.measured(show::short_name(workload) + &name, direction));
            rows.push(columns.precision(direction));
        }
        if show::directions(workload).next().is_none() {
            let mut none = vec!["-".to_owned(); header.len()];
            none[0] = show::short_name(workload);
            rows.push(none);
        } else if mixed {
            let mut both = vec![String::new(); header.len()];
            both[0] = format!("{} both", show::short_name(workload));
            both[header.len() - 1] = show::count(workload.outcome.iops);
            rows.push(both);
        }
        if let Some(beside) = published::beside(record.target.model.as_deref(), workload) {
            rows.push(columns.published(notes.mark(&beside), beside.references[0]));
        }
    }
    (Grid { keys: 1, header, rows }, notes.lines)
}

/// What the columns of a settings table hold.
struct Columns {
    throughput: bool,
}

impl Columns {
    fn percentiles(&self) -> impl Iterator<Item = f64> {
        let deepest = if self.throughput { 99.99 } else { 100.0 };
        shown_percentiles().filter(move |percentile| *percentile <= deepest)
    }

    fn measured(&self, label: String, direction: &Direction) -> Vec<String> {
        let latency = &direction.latency;
        let mut row = vec![label, show::us(latency.mean_ns)];
        row.extend(self.percentiles().map(|p| show::percentile_us(latency.percentile(p))));
        row.extend([show::us(latency.max_ns as f64), show::count(direction.iops)]);
        row.extend(self.throughput.then(|| show::gib_per_s(direction.bytes_per_s)));
        row
    }

    /// Half the 95 % interval of each percentile in per cent of its value, the larger side.
    fn precision(&self, direction: &Direction) -> Vec<String> {
        let mut row = vec!["  95 % ±%".to_owned(), String::new()];
        row.extend(
            self.percentiles().map(|p| direction.latency.percentile(p).map_or_else(String::new, half_width)),
        );
        row.extend([String::new(), String::new()]);
        row.extend(self.throughput.then(String::new));
        row
    }

    fn published(&self, mark: String, reference: &Reference) -> Vec<String> {
        let cell =
            |value: Option<f64>| value.map_or_else(|| "-".to_owned(), overdrive_base::time::three_digits);
        let mut row = vec![mark, cell(reference.avg_us())];
        row.extend(self.percentiles().map(|p| cell(reference.percentile_us(p))));
        row.push(cell(reference.max_us()));
        row.push(reference.iops().map_or_else(|| "-".to_owned(), show::count));
        let bytes = reference.bytes_per_s().map_or_else(|| "-".to_owned(), show::gib_per_s);
        row.extend(self.throughput.then_some(bytes));
        row
    }
}

fn half_width(p: &Percentile) -> String {
    let Some(value) = p.value_ns.filter(|_| p.low_ns.or(p.high_ns).is_some()) else { return String::new() };
    let (Some(low), Some(high)) = (p.low_ns, p.high_ns) else { return "open".to_owned() };
    let side = high.saturating_sub(value).max(value.saturating_sub(low)) as f64;
    let percent = side / value.max(1) as f64 * 100.0;
    if percent < 1.0 { "<1".to_owned() } else { format!("{percent:.0}") }
}

/// Footnotes: a source is told once and numbered.
#[derive(Default)]
struct Notes {
    lines: Vec<String>,
}

impl Notes {
    fn mark_depth(&mut self, depth: u32, beside: &Beside) {
        self.lines.push(format!("publ. at depth {depth}: {}", Self::source(beside)));
    }

    fn source(beside: &Beside) -> String {
        let kind = if beside.yardstick { ", a yardstick and not this drive" } else { "" };
        format!("{}{kind}; {}", beside.drive, beside.references[0].source())
    }

    fn mark(&mut self, beside: &Beside) -> String {
        let text = Self::source(beside);
        let number = self.lines.iter().position(|line| line.ends_with(&text)).unwrap_or_else(|| {
            self.lines.push(format!("[{}] {text}", self.lines.len() + 1));
            self.lines.len() - 1
        });
        format!("published [{}]", number + 1)
    }
}

/// The guide's table 4 with its results: a depth a row, as asked and as run.
fn ramp(record: &Record, workloads: &[&Workload]) -> (Grid, Vec<String>) {
    let heads =
        ["asked", "ran", "depth", "IOPS", "avg", "50", "99", "99.9", "99.99", "max", "publ.", "limit"];
    let header = heads.map(str::to_owned).to_vec();
    let mut notes = Notes::default();
    let rows = workloads.iter().map(|workload| ramp_row(record, workload, &mut notes)).collect();
    let fewer = workloads.iter().any(|workload| workload.job.asked_workers.is_some());
    if fewer {
        let why = "Asked and ran differ where the CPUs ended: fewer workers, each with more depth.";
        notes.lines.insert(0, why.to_owned());
    }
    (Grid { keys: 3, header, rows }, notes.lines)
}

fn ramp_row(record: &Record, workload: &Workload, notes: &mut Notes) -> Vec<String> {
    let outcome = &workload.outcome;
    let latency = show::directions(workload).next().map(|(_, direction)| &direction.latency);
    let us = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), show::us);
    let percentile = |p| show::percentile_us(latency.and_then(|latency| latency.percentile(p)));
    let beside = published::beside(record.target.model.as_deref(), workload);
    let published = beside.and_then(|beside| {
        let iops = beside.references[0].iops()?;
        notes.mark_depth(workload.job.queue_depth_total, &beside);
        Some(show::count(iops))
    });
    vec![
        show::asked_layout(&workload.job),
        show::layout(&workload.job),
        workload.job.queue_depth_total.to_string(),
        show::count(outcome.iops),
        us(latency.map(|latency| latency.mean_ns)),
        percentile(50.0),
        percentile(99.0),
        percentile(99.9),
        percentile(99.99),
        us(latency.map(|latency| latency.max_ns as f64)),
        published.unwrap_or_else(|| "-".to_owned()),
        workload.verdict.as_ref().map_or("-", |verdict| show::limit(verdict.limit)).to_owned(),
    ]
}

/// What each workload cost in CPU time.
pub(super) fn cpu(record: &Record, page: &Page) -> Option<String> {
    if record.workloads.iter().all(|workload| workload.outcome.cpu.is_none()) {
        return None;
    }
    let heads = ["workload", "user µs", "kern µs", "workers %", "CPUs %", "steal %", "switch/s"];
    let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
    let rows = record.workloads.iter().map(|workload| {
        let cpu = workload.outcome.cpu.as_ref();
        let us = |pick: fn(&Cpu) -> f64| cpu.map_or_else(|| "-".to_owned(), |cpu| show::us(pick(cpu)));
        vec![
            workload.id.clone(),
            us(|cpu| cpu.user_ns_per_io),
            us(|cpu| cpu.system_ns_per_io),
            optional(cpu.map(|cpu| cpu.utilisation_percent)),
            optional(cpu.and_then(|cpu| cpu.host_busy_percent)),
            optional(cpu.and_then(|cpu| cpu.steal_percent)),
            show::switches_per_s(&workload.outcome),
        ]
    });
    let grid = Grid { keys: 1, header: heads.map(str::to_owned).to_vec(), rows: rows.collect() };
    Some(page.heading("CPU per I/O") + &grid.draw(page.width))
}

/// Ratios of two records, a workload and direction a row.
pub(super) fn comparison(comparison: &Comparison, page: &Page) -> String {
    let mut header = vec!["workload".to_owned(), "IOPS".to_owned()];
    header.extend(shown_percentiles().map(|percentile| percentile.to_string()));
    let rows: Vec<Vec<String>> = comparison.workloads.iter().flat_map(comparison_rows).collect();
    let heading = format!("Against the run of {}: after over before", comparison.before);
    let mut text = page.heading(&heading);
    for caution in &comparison.cautions {
        text += &page.paint("33", &wrap(caution, page.width, "! ", "  "));
    }
    if rows.is_empty() {
        return text + "The two records have no workload in common.\n";
    }
    let used: Vec<usize> =
        (0..header.len()).filter(|&column| rows.iter().any(|row| row[column] != "-")).collect();
    let pick = |row: &Vec<String>| used.iter().map(|&column| row[column].clone()).collect();
    let grid = Grid { keys: 1, header: pick(&header), rows: rows.iter().map(pick).collect() };
    text += &grid.draw(page.width);
    let legend = "+ better, - worse, = within noise (95 % intervals overlap or the change is under 3 %), \
                  ? no interval to tell by. Latency columns are percentiles: below 1 is faster.";
    text += &wrap(legend, page.width, "", "");
    for id in &comparison.unmatched {
        text += &wrap(&format!("{id} is in one record only."), page.width, "", "");
    }
    text
}

fn comparison_rows(workload: &WorkloadChange) -> Vec<Vec<String>> {
    let row = |line: Line| {
        let cell = |figure: Option<Figure>| {
            figure.and_then(|figure| workload.change(figure)).map_or_else(|| "-".to_owned(), marked)
        };
        let name = format!("{} {}", workload.id, line.name).trim_end().to_owned();
        let mut row = vec![name, cell(Some(Figure::Iops))];
        row.extend(shown_percentiles().map(|p| cell(line.figure(p))));
        row
    };
    workload.lines().into_iter().map(row).collect()
}

fn marked(change: &Change) -> String {
    let mark = match change.meaning {
        Meaning::Better => '+',
        Meaning::Worse => '-',
        Meaning::Same => '=',
        Meaning::Unclear => '?',
    };
    format!("{} {mark}", change.ratio.map_or_else(|| "from 0".to_owned(), show::ratio))
}
