//! Counters as a table, as JSON and as OpenMetrics: pure functions of two looks.

use super::gather::processors_of;
use super::swap_run;
use super::watch::{Look, Process};
use anyhow::Result;
use overdrive_base::time::format_ns;
use overdrive_pager::engine::is_much_beside;
use overdrive_pager::stats::Stat;
use overdrive_sys::uffd::PAGE;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// How a counter is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Only grows.
    Counter,
    /// Pages now.
    Pages,
    Bytes,
    Nanoseconds,
    Number,
    /// Names something; no quantity, so no metric.
    Mark,
}

fn kind(stat: Stat) -> Kind {
    match stat {
        Stat::LossAddress | Stat::LossOffset | Stat::LossErrno => Kind::Mark,
        Stat::Resident | Stat::Staged | Stat::Compressed | Stat::CompressedDram => Kind::Pages,
        Stat::Stored | Stat::Unmanaged | Stat::HeldMax | Stat::ChildAbove | Stat::Shared => Kind::Pages,
        Stat::ManagedBytes | Stat::BudgetBytes => Kind::Bytes,
        Stat::FaultP50 | Stat::FaultP99 | Stat::FaultMax => Kind::Nanoseconds,
        Stat::Children => Kind::Number,
        _ => Kind::Counter,
    }
}

fn shown() -> impl Iterator<Item = Stat> {
    Stat::ALL.iter().copied().filter(|&stat| stat != Stat::Magic)
}

/// What happened to one process between two looks.
struct Between<'a> {
    now: &'a Process,
    before: Option<&'a Process>,
    time: Duration,
}

impl<'a> Between<'a> {
    fn of(first: &'a Look, second: &'a Look) -> impl Iterator<Item = Between<'a>> {
        let time = second.at.saturating_duration_since(first.at);
        second.processes.iter().map(move |now| {
            let before = first.processes.iter().find(|before| before.pid == now.pid);
            Between { now, before, time }
        })
    }

    fn more(&self, stat: Stat) -> u64 {
        self.now.get(stat).saturating_sub(self.before.map_or(0, |before| before.get(stat)))
    }

    /// Per second; nothing when there was no look before.
    fn rate(&self, stat: Stat) -> Option<f64> {
        let seconds = self.time.as_secs_f64();
        (self.before.is_some() && seconds > 0.0).then(|| self.more(stat) as f64 / seconds)
    }

    /// Faults served without I/O, from staging or the compressed tier, among all: in this time, or since the
    /// start when there were none.
    fn hit_ratio(&self) -> Option<f64> {
        let share = |count: &dyn Fn(Stat) -> u64| {
            let all = count(Stat::Faults);
            (all > 0).then(|| (count(Stat::Rescues) + count(Stat::Expands)) as f64 / all as f64)
        };
        share(&|stat| self.more(stat)).or_else(|| share(&|stat| self.now.get(stat)))
    }
}

/// A line for each process, 80 columns wide. Where there are too many for `rows`, those with the most faults.
pub(super) fn table(first: &Look, second: &Look, rows: Option<usize>) -> String {
    let mut text = String::new();
    if second.processes.is_empty() && second.on_swap.is_empty() && second.closed.is_empty() {
        text += "no extended program of this user is running\n";
    }
    let time = second.at.saturating_duration_since(first.at);
    if !second.on_swap.is_empty() {
        text += &swap_run::table(&first.on_swap, &second.on_swap, time);
    }
    text += &closed(&second.closed);
    if second.processes.is_empty() {
        return text;
    }
    let others = if text.is_empty() { text } else { format!("\n{text}") };
    let above = rows.map(|rows| rows.saturating_sub(others.lines().count()));
    pager_table(first, second, above) + &others
}

/// Runs that are there and cannot be shown.
fn closed(processes: &[u32]) -> String {
    let numbers: Vec<_> = processes.iter().map(u32::to_string).collect();
    let (run, has) = if processes.len() == 1 { ("run", "has") } else { ("runs", "have") };
    match processes {
        [] => String::new(),
        _ => format!(
            "{run} of this user that {has} rights which this shell does not have, so that\n\
             nothing can be shown (ask with the same rights, or as root): {}\n",
            numbers.join(" ")
        ),
    }
}

/// The heading, and what is below the lines.
const PAGER_FRAME: usize = 5;

fn pager_table(first: &Look, second: &Look, rows: Option<usize>) -> String {
    let mut text = format!(
        "{:>7} {:<9}{:>7}{:>7}{:>7}{:>9}{:>5}{:>8}{:>8}{:>5}{:>7}\n",
        "pid", "program", "dram", "soft", "ssd", "faults/s", "hit", "p50", "p99", "wait", "wrote"
    );
    let troubles: String = second.processes.iter().map(troubles).collect();
    let fits = rows.map_or(usize::MAX, |rows| rows.saturating_sub(PAGER_FRAME + troubles.lines().count()));
    let mut shown: Vec<_> = Between::of(first, second).collect();
    let left_out = shown.len().saturating_sub(fits);
    if left_out > 0 {
        shown.sort_by_key(|between| std::cmp::Reverse(between.more(Stat::Faults)));
        // One line less, for saying so.
        shown.truncate(fits.saturating_sub(1).max(1));
    }
    let left_out = second.processes.len() - shown.len();
    for between in shown {
        let now = between.now;
        let latency = |stat| match now.get(stat) {
            0 => "-".to_owned(),
            ns => format_ns(ns),
        };
        let _ = writeln!(
            text,
            "{:>7} {:<9}{:>7}{:>7}{:>7}{:>9}{:>5}{:>8}{:>8}{:>5}{:>7}",
            now.pid,
            shown_name(&now.name, 9),
            short(now.get(Stat::Resident) * PAGE),
            short((now.get(Stat::Staged) + now.get(Stat::Compressed)) * PAGE),
            short(now.get(Stat::Stored) * PAGE),
            between.rate(Stat::Faults).map_or("-".to_owned(), |rate| format!("{rate:.0}")),
            between.hit_ratio().map_or("-".to_owned(), |ratio| format!("{:.0}%", ratio * 100.0)),
            latency(Stat::FaultP50),
            latency(Stat::FaultP99),
            now.get(Stat::DirectStalls),
            short(now.get(Stat::Written) * PAGE)
        );
    }
    if left_out > 0 {
        let _ = writeln!(text, "        and {left_out} more with fewer faults");
    }
    text += &troubles;
    text + "\ndram, soft (evicted, still in DRAM, whole or compressed), ssd: pages now;\n\
            hit: faults that soft served; p50, p99: faults from the SSD, last second;\n\
            wait: faults that waited for room\n"
}

/// The beginning of a program's name, which may hold anything: nothing in it steers the terminal.
pub(super) fn shown_name(name: &str, most: usize) -> String {
    name.chars().take(most).map(|one| if one.is_control() { '?' } else { one }).collect()
}

/// Lines about what went wrong in a process; none when nothing did.
fn troubles(now: &Process) -> String {
    let mut text = String::new();
    let pid = now.pid;
    if now.get(Stat::Lost) > 0 {
        let why = match now.get(Stat::LossErrno) {
            0 => "wrong data".to_owned(),
            errno => format!("errno {errno}"),
        };
        let _ = writeln!(
            text,
            "{pid:>7} LOST {} pages; the last at {:#x}\n        (store offset {}: {why})",
            now.get(Stat::Lost),
            now.get(Stat::LossAddress),
            now.get(Stat::LossOffset)
        );
    }
    if now.get(Stat::StoreFull) > 0 {
        let _ = writeln!(text, "{pid:>7} is or was above its budget: its store is full");
    }
    if now.get(Stat::TooSmall) > 0 {
        let _ = writeln!(
            text,
            "{pid:>7} is or was above its budget of {}: the rest cannot be evicted",
            short(now.get(Stat::BudgetBytes))
        );
    }
    if now.get(Stat::ChildAbove) > 0 {
        let held = short(now.get(Stat::ChildAbove) * PAGE);
        let _ = writeln!(text, "{pid:>7} has a child that holds {held}, more than the budget");
    }
    let shared = now.get(Stat::Shared) * PAGE;
    if is_much_beside(shared, now.get(Stat::BudgetBytes)) {
        let _ = writeln!(text, "{pid:>7} has up to {} of shared memory, which is not limited", short(shared));
    }
    if now.get(Stat::WritesPaced) > 0 {
        let _ = writeln!(text, "{pid:>7} waits, or waited, for its share of --max-writes-per-day");
    }
    text
}

/// Three digits and a unit.
pub(super) fn short(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "K", "M", "G", "T"] {
        if value < 999.5 {
            let decimals = usize::from(unit != "B" && value < 9.95);
            return format!("{value:.decimals$}{unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.0}P")
}

/// A process's counters under their names.
pub(super) fn process_json(process: &Process) -> Value {
    let mut value = json!({ "pid": process.pid, "program": process.name });
    for stat in shown() {
        value[stat.name()] = process.get(stat).into();
    }
    value
}

fn document(first: &Look, second: &Look) -> Value {
    let time = second.at.saturating_duration_since(first.at);
    let swap_runs: Vec<Value> = second
        .on_swap
        .iter()
        .map(|run| run.json_since(swap_run::earlier(&first.on_swap, run), time))
        .collect();
    let processes: Vec<Value> = Between::of(first, second)
        .map(|between| {
            let mut value = process_json(between.now);
            value["faults_per_s"] = between.rate(Stat::Faults).into();
            value["loads_per_s"] = between.rate(Stat::Loads).into();
            value["written_bytes_per_s"] = between.rate(Stat::Written).map(|rate| rate * PAGE as f64).into();
            value["hit_ratio"] = between.hit_ratio().into();
            value["processors"] = processors_of(between.now.pid).into();
            value
        })
        .collect();
    json!({
        "schema": "overdrive.extend-status/1",
        "interval_ns": time.as_nanos() as u64,
        "processes": processes,
        "on_swap": second.on_swap.iter().map(|run| run.pid).collect::<Vec<_>>(),
        "swap_runs": swap_runs,
        "closed": second.closed,
    })
}

/// All of it as JSON.
pub(super) fn json(first: &Look, second: &Look) -> Result<String> {
    Ok(serde_json::to_string_pretty(&document(first, second))? + "\n")
}

/// The same on one line.
pub(super) fn json_line(first: &Look, second: &Look) -> Result<String> {
    Ok(serde_json::to_string(&document(first, second))? + "\n")
}

/// OpenMetrics text: base units, a family for each counter, a sample for each process.
pub(super) fn metrics(look: &Look) -> String {
    pager_metrics(&look.processes) + &swap_run::metrics(&look.on_swap) + "# EOF\n"
}

fn pager_metrics(processes: &[Process]) -> String {
    let mut text = String::new();
    for stat in shown().filter(|&stat| kind(stat) != Kind::Mark) {
        let kind = kind(stat);
        let base = stat.name().trim_end_matches("_bytes").trim_end_matches("_ns");
        let (name, type_name, unit) = match kind {
            Kind::Counter => (format!("overdrive_extend_{base}"), COUNTER, None),
            Kind::Pages | Kind::Bytes => (format!("overdrive_extend_{base}_bytes"), GAUGE, Some("bytes")),
            Kind::Nanoseconds => (format!("overdrive_extend_{base}_seconds"), GAUGE, Some("seconds")),
            Kind::Number | Kind::Mark => (format!("overdrive_extend_{base}"), GAUGE, None),
        };
        let samples = processes.iter().map(|process| {
            let value = process.get(stat);
            let value = match kind {
                Kind::Pages => (value * PAGE).to_string(),
                Kind::Nanoseconds => format!("{}", value as f64 / 1e9),
                _ => value.to_string(),
            };
            (process.pid, process.name.as_str(), value)
        });
        text += &family(&name, type_name, unit, samples);
    }
    text
}

/// The types of families.
pub(super) const COUNTER: &str = "counter";
pub(super) const GAUGE: &str = "gauge";

/// A family of OpenMetrics: its type and unit, and a sample for each process and program.
pub(super) fn family<'a>(
    name: &str,
    type_name: &str,
    unit: Option<&str>,
    samples: impl IntoIterator<Item = (u32, &'a str, String)>,
) -> String {
    let mut text = format!("# TYPE {name} {type_name}\n");
    if let Some(unit) = unit {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
    let suffix = if type_name == COUNTER { "_total" } else { "" };
    for (pid, program, value) in samples {
        let program = escape(program);
        let _ = writeln!(text, "{name}{suffix}{{pid=\"{pid}\",program=\"{program}\"}} {value}");
    }
    text
}

/// A label's value: backslash, quote and line end escaped.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn process(faults: u64, rescues: u64) -> Process {
        let mut values = vec![0; Stat::ALL.len()];
        values[Stat::Faults as usize] = faults;
        values[Stat::Rescues as usize] = rescues;
        values[Stat::Resident as usize] = 1 << 17;
        values[Stat::Stored as usize] = 123_456_789;
        values[Stat::FaultP99 as usize] = 123_456;
        Process { pid: 4_194_303, name: "a \"long\" name of a program".to_owned(), values }
    }

    fn looks() -> (Look, Look) {
        let at = Instant::now();
        let look = |at, process| Look { at, processes: vec![process], on_swap: vec![], closed: vec![] };
        (look(at, process(1000, 10)), look(at + Duration::from_secs(2), process(201_000, 50_010)))
    }

    #[test]
    fn the_table_has_rates_and_fits_80_columns() {
        let (first, second) = looks();
        let text = table(&first, &second, None);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let line = text.lines().nth(1).unwrap();
        for word in ["4194303", "512M", "471G", "100000", "25%"] {
            assert!(line.contains(word), "{word}: {line}");
        }
        let mut none = Look { at: Instant::now(), processes: vec![], on_swap: vec![], closed: vec![] };
        assert!(table(&none, &none, None).starts_with("no extended program"));
        none.closed = vec![4711, 4_194_302];
        let text = table(&none, &none, None);
        assert!(text.starts_with("runs of this user") && text.contains(": 4711 4194302\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn where_not_all_fit_those_with_the_most_faults_are_shown() {
        let (mut first, mut second) = looks();
        for pid in 1..=40 {
            first.processes.push(Process { pid, ..process(0, 0) });
            second.processes.push(Process { pid, ..process(u64::from(pid) * 10_000, 0) });
        }
        let pids = |text: &str| -> Vec<u32> {
            text.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
        };
        let all = table(&first, &second, None);
        assert_eq!(pids(&all).len(), 41);
        let some = table(&first, &second, Some(12));
        assert_eq!(some.lines().count(), 12, "{some}");
        assert_eq!(pids(&some), [40, 39, 38, 37, 36, 35]);
        assert!(some.contains("and 35 more with fewer faults"), "{some}");
        assert_eq!(pids(&table(&first, &second, Some(46))), pids(&all), "all fit");
    }

    #[test]
    fn a_name_does_not_steer_the_terminal() {
        let (first, mut second) = looks();
        second.processes[0].name = "a\x1b[2J\n\u{9b}".to_owned();
        let text = table(&first, &second, None);
        assert!(text.contains(" a?[2J?? ") && !text.contains('\x1b'), "{text}");
    }

    #[test]
    fn rates_and_ratios_are_of_the_time_between() {
        let (first, second) = looks();
        let value: Value = serde_json::from_str(&json(&first, &second).unwrap()).unwrap();
        let process = &value["processes"][0];
        assert_eq!(
            (process["faults_per_s"].as_f64(), process["hit_ratio"].as_f64()),
            (Some(1e5), Some(0.25))
        );
        assert_eq!(process["resident"], 1 << 17);
        assert!(json_line(&first, &second).unwrap().lines().count() == 1);
    }

    #[test]
    fn what_went_wrong_is_named() {
        let mut one = process(5, 1);
        assert_eq!(troubles(&one), "");
        for (stat, value) in [
            (Stat::Lost, 2),
            (Stat::LossAddress, 0x7fff_1234_5000),
            (Stat::LossOffset, 1 << 40),
            (Stat::LossErrno, 5),
            (Stat::StoreFull, 1),
            (Stat::WritesPaced, 1),
            (Stat::TooSmall, 3),
            (Stat::BudgetBytes, 32 << 20),
            (Stat::ChildAbove, 25_600),
            (Stat::Shared, 2_049),
        ] {
            one.values[stat as usize] = value;
        }
        let text = troubles(&one);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for words in
            ["LOST 2 pages", "0x7fff12345000", "offset 1099511627776: errno 5", "store is full", "share of"]
                .into_iter()
                .chain(["of 32M: the", "holds 100M", "up to 8.0M of shared"])
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        let text = pager_metrics(&[one]);
        assert!(text.contains("overdrive_extend_lost_total{") && !text.contains("last_loss"), "{text}");
    }

    #[test]
    fn metrics_are_in_base_units_and_end() {
        let processes = vec![process(5, 1)];
        let text = metrics(&Look { at: Instant::now(), processes, on_swap: vec![], closed: vec![] });
        let label = "{pid=\"4194303\",program=\"a \\\"long\\\" name of a program\"}";
        for line in [
            format!("overdrive_extend_faults_total{label} 5"),
            format!("overdrive_extend_resident_bytes{label} 536870912"),
            format!("overdrive_extend_fault_p99_seconds{label} 0.000123456"),
            "# TYPE overdrive_extend_faults counter".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n") && !text.contains("magic"), "{text}");
        let families: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let unique: std::collections::BTreeSet<_> = families.iter().collect();
        assert_eq!(families.len(), unique.len());
    }

    #[test]
    fn sizes_are_short() {
        let found: Vec<_> = [0, 1023, 1 << 20, 1536 << 20, 999 << 30].into_iter().map(short).collect();
        assert_eq!(found, ["0B", "1.0K", "1.0M", "1.5G", "999G"]);
    }
}
