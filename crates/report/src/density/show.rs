//! A density record as a page of tables and charts: the study's table, ratios, trials, classes, instances.

use super::charts::{bars, cost_bars, curves};
use super::{Backing, DensityRecord, Figures, Measured, Trial};
use crate::page::{Page, Section, Table};
use crate::record::Status;
use overdrive_base::size::format_size;
use overdrive_base::time::{format_duration, format_ns};
use std::time::Duration;

/// The whole record.
#[must_use]
pub fn page(record: &DensityRecord) -> Page {
    let mut sections = vec![result(record)];
    sections.extend(ratios(record));
    sections.extend(cost(record));
    sections.push(bars(record));
    sections.push(curves(record));
    for backing in &record.backings {
        sections.push(trials(backing));
        sections.extend(backing.telling().and_then(|trial| classes(backing, trial)));
        sections.extend(backing.telling().and_then(|trial| instances(backing, trial)));
    }
    sections.push(method(record));
    sections.retain(|section| {
        let drawings = section.charts.len() + section.bars.len();
        !section.tables.is_empty() || !section.notes.is_empty() || drawings > 0
    });
    Page {
        kind: "Overdrive density".to_owned(),
        title: title(record),
        lead: lead(record),
        warnings: warnings(record),
        sections,
    }
}

fn title(record: &DensityRecord) -> String {
    let each = |backing: &Backing| match backing.searched {
        true => format!("{} {}", backing.name, backing.held_text()),
        false => {
            let held = if backing.held > 0 { "holds" } else { "does not hold" };
            let tried = backing.trials.last().map_or(0, |trial| trial.instances);
            format!("{} {held} {tried}", backing.name)
        }
    };
    let parts: Vec<String> = record.backings.iter().map(each).collect();
    format!("Instances inside the objective: {}", parts.join(", "))
}

fn lead(record: &DensityRecord) -> Vec<String> {
    let load = &record.load;
    let limits: Vec<String> = record
        .objective
        .iter()
        .map(|limit| format!("{} {}", limit.figure, format_ns(limit.limit_ns)))
        .collect();
    let whose = if record.judge == "each" { "for each instance" } else { "over the fleet" };
    let dram = record.dram_bytes.map_or("all the machine has".to_owned(), format_size);
    vec![
        format!("Objective: {} {whose}", limits.join(", ")),
        format!(
            "Each instance: {}, {} records of {}, {} requests/s, {} % GET, influence {} (the hottest quarter of the \
             keys gets {:.0} % of the requests)",
            record.instance,
            load.records,
            format_size(load.value_bytes),
            load.rate_per_s,
            load.get_percent,
            load.influence,
            load.hot_quarter_percent
        ),
        format!(
            "DRAM for all: {dram}{}",
            record.swap_bytes.map(|bytes| format!("; swap {}", format_size(bytes))).unwrap_or_default()
        ),
    ]
}

fn warnings(record: &DensityRecord) -> Vec<String> {
    match &record.status {
        Status::Complete => Vec::new(),
        Status::Interrupted => vec!["Interrupted: only what was measured until then".to_owned()],
        Status::Failed { reason } => vec![format!("Failed: {reason}")],
    }
}

/// So many instances, in words.
pub(super) fn counted(instances: u32) -> String {
    format!("{instances} instance{}", if instances == 1 { "" } else { "s" })
}

fn ns(value: Option<u64>) -> String {
    value.map_or("-".to_owned(), format_ns)
}

/// The table of the study: one row for each backing.
fn result(record: &DensityRecord) -> Section {
    let header = ["backing", "instances", "average", "99 %", "peak", "requests/s", "memory each"];
    let row = |backing: &Backing| {
        let trial = backing.telling();
        let measured = trial.and_then(|trial| trial.measured.as_ref());
        let latency = measured.map(|measured| measured.latency.clone()).unwrap_or_default();
        let instances = match (backing.searched, trial) {
            (true, _) => backing.held_text(),
            (false, Some(trial)) => format!("{} (given)", trial.instances),
            (false, None) => "-".to_owned(),
        };
        vec![
            backing.name.clone(),
            instances,
            ns(latency.avg_ns),
            ns(latency.p99_ns),
            ns(latency.max_ns),
            measured.map_or("-".to_owned(), |measured| format!("{:.0}", measured.answered_per_s)),
            measured.and_then(|measured| measured.footprint_bytes).map_or("-".to_owned(), format_size),
        ]
    };
    let mut notes = Vec::new();
    for backing in &record.backings {
        match (&backing.edge, backing.failed) {
            (Some(edge), Some(failed)) => {
                let between = if backing.is_bound() { " What is between was not tried." } else { "" };
                let again = match backing.times_tried(failed) {
                    2.. => " It was tried twice.",
                    _ if is_cut_short(record, backing) && backing.measured_with(failed).is_some() => {
                        " It was not tried again."
                    }
                    _ => "",
                };
                notes.push(format!("{}: not with {failed}. {edge}.{again}{between}", backing.name));
            }
            _ if backing.searched && is_cut_short(record, backing) => {
                notes.push(format!("{}: no edge was found before the run was cut short.", backing.name));
            }
            _ if backing.searched => {
                notes.push(format!("{}: the search ended at its maximum, not at an edge.", backing.name));
            }
            _ => notes
                .extend(backing.trials.last().map(|trial| format!("{}: {}.", backing.name, trial.verdict))),
        }
        notes.extend(by_chance(backing));
    }
    Section {
        heading: "Result".to_owned(),
        notes,
        charts: Vec::new(),
        bars: Vec::new(),
        tables: vec![Table {
            label: "Instances and latency by backing".to_owned(),
            header: header.map(str::to_owned).to_vec(),
            rows: record.backings.iter().map(row).collect(),
        }],
    }
}

/// The numbers that missed and held when they were tried again: an edge among them was the host's.
fn by_chance(backing: &Backing) -> Option<String> {
    let tried = backing.trials.iter().enumerate();
    let held = tried.filter(|(at, trial)| trial.held && backing.is_again(*at));
    let numbers: Vec<String> = held.map(|(_, trial)| trial.instances.to_string()).collect();
    let held = "missed once and held when tried again";
    (!numbers.is_empty()).then(|| format!("{}: with {} it {held}.", backing.name, numbers.join(", ")))
}

/// Only the last backing of a run can be: none is begun after a stop or a failure.
fn is_cut_short(record: &DensityRecord, backing: &Backing) -> bool {
    let is_last = record.backings.last().is_some_and(|last| last.name == backing.name);
    is_last && record.status != Status::Complete
}

/// How two backings compare at a number of instances that both were measured with.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    /// The one that is put on top.
    pub over: String,
    /// The one below.
    pub under: String,
    /// The number of instances of the latencies; none when no number was measured on both.
    pub at_instances: Option<u32>,
    /// Average latency of the first over that of the second.
    pub average: Option<f64>,
    /// The same of the 99th percentile.
    pub p99: Option<f64>,
    /// The same of the peak.
    pub max: Option<f64>,
    /// Instances of the first over those of the second, both searched for; none when both are bounds.
    pub instances: Option<f64>,
    /// What stands before it when one of them is a bound: `at least `, `at most `.
    pub bound: &'static str,
}

/// Every later backing against every earlier one, as the study states its results.
#[must_use]
pub fn compare_backings(record: &DensityRecord) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    for (at, under) in record.backings.iter().enumerate() {
        for over in &record.backings[at + 1..] {
            ratios.push(ratio(over, under));
        }
    }
    ratios
}

fn ratio(over: &Backing, under: &Backing) -> Ratio {
    let find = |backing: &Backing, instances: u32| -> Option<Figures> {
        Some(backing.measured_with(instances)?.latency.clone())
    };
    let both = over.trials.iter().filter(|trial| trial.measured.is_some()).map(|trial| trial.instances);
    let at_instances = both.filter(|instances| find(under, *instances).is_some()).max();
    let figures = at_instances.and_then(|at| Some((find(over, at)?, find(under, at)?)));
    let divide = |of: fn(&Figures) -> Option<u64>| {
        let (over, under) = figures.as_ref()?;
        Some(of(over)? as f64 / of(under)?.max(1) as f64)
    };
    let searched = over.searched && under.searched && under.held > 0;
    let bound = bound_of(over.is_bound(), under.is_bound());
    Ratio {
        over: over.name.clone(),
        under: under.name.clone(),
        at_instances,
        average: divide(|figures| figures.avg_ns),
        p99: divide(|figures| figures.p99_ns),
        max: divide(|figures| figures.max_ns),
        instances: bound.filter(|_| searched).map(|_| f64::from(over.held) / f64::from(under.held)),
        bound: bound.unwrap_or_default(),
    }
}

/// What is known of a quotient, by which of its parts may be larger; none when that is nothing.
fn bound_of(over: bool, under: bool) -> Option<&'static str> {
    match (over, under) {
        (false, false) => Some(""),
        (true, false) => Some("at least "),
        (false, true) => Some("at most "),
        (true, true) => None,
    }
}

fn ratios(record: &DensityRecord) -> Option<Section> {
    let ratios = compare_backings(record);
    if ratios.is_empty() {
        return None;
    }
    let header = ["ratio", "at instances", "average", "99 %", "peak", "instances held"];
    let times = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}x"));
    let row = |ratio: &Ratio| {
        vec![
            format!("{} over {}", ratio.over, ratio.under),
            ratio.at_instances.map_or("-".to_owned(), |at| at.to_string()),
            times(ratio.average),
            times(ratio.p99),
            times(ratio.max),
            ratio.instances.map_or("-".to_owned(), |value| format!("{}{value:.2}x", ratio.bound)),
        ]
    };
    Some(Section {
        heading: "Side by side".to_owned(),
        notes: vec![
            "Latencies at the largest number of instances measured on both; above 1 the first is slower, or holds more."
                .to_owned(),
        ],
        charts: Vec::new(),
        bars: Vec::new(),
        tables: vec![Table {
            label: "Ratios between backings".to_owned(),
            header: header.map(str::to_owned).to_vec(),
            rows: ratios.iter().map(row).collect(),
        }],
    })
}

/// What is known of a backing's cost of an instance: more instances make it smaller, more of them on DRAM
/// make it larger. None when it could be anything.
fn cost_bound(record: &DensityRecord, backing: &Backing) -> Option<&'static str> {
    if backing.name == "dram" {
        return Some("");
    }
    let alone = record.backings.iter().find(|backing| backing.name == "dram")?;
    let bound = bound_of(alone.is_bound(), backing.is_bound())?;
    // With SSD dearer than DRAM more instances may cost more each.
    (bound.is_empty() || record.price_ratio? >= 1.0).then_some(bound)
}

/// The cost of an instance, with what is known of it.
pub(super) fn cost_text(record: &DensityRecord, backing: &Backing) -> Option<String> {
    Some(format!("{}{:.2}", cost_bound(record, backing)?, backing.cost_each?))
}

fn saving_text(record: &DensityRecord, backing: &Backing) -> Option<String> {
    let bound = match cost_bound(record, backing)? {
        "at least " => "at most ",
        "at most " => "at least ",
        exact => exact,
    };
    Some(format!("{bound}{:.0} %", (1.0 - backing.cost_each?) * 100.0))
}

/// What an instance costs, when the prices' ratio was given.
fn cost(record: &DensityRecord) -> Option<Section> {
    let ratio = record.price_ratio?;
    let header = ["backing", "instances", "DRAM", "SSD", "cost of an instance", "saves"];
    let size = |value: Option<u64>| value.map_or("-".to_owned(), format_size);
    let row = |backing: &Backing| {
        vec![
            backing.name.clone(),
            backing.held_text(),
            size(record.dram_bytes),
            size(backing.ssd_bytes),
            cost_text(record, backing).unwrap_or("-".to_owned()),
            saving_text(record, backing).unwrap_or("-".to_owned()),
        ]
    };
    let unknown = record.backings.iter().all(|backing| backing.cost_each.is_none());
    let notes = vec![format!(
        "Memory alone, against an instance on DRAM; a GiB of DRAM costs as much as {ratio} GiB of SSD. The SSD is what \
         the instances held need beyond DRAM. overdrive cost --from counts whole servers."
    )];
    if unknown {
        let wanted = "Not known: that takes dram among the backings, --dram, and an instance held on it.";
        let notes = vec![wanted.to_owned()];
        return Some(Section { heading: "Cost of an instance".to_owned(), notes, ..Section::default() });
    }
    Some(Section {
        heading: "Cost of an instance".to_owned(),
        notes,
        charts: Vec::new(),
        bars: cost_bars(record).into_iter().collect(),
        tables: vec![Table {
            label: "Cost of an instance by backing".to_owned(),
            header: header.map(str::to_owned).to_vec(),
            rows: record.backings.iter().map(row).collect(),
        }],
    })
}

fn trials(backing: &Backing) -> Section {
    let header = [
        "instances",
        "average",
        "50 %",
        "95 %",
        "99 %",
        "99.9 %",
        "peak",
        "spread",
        "requests/s",
        "CPU",
        "from drive",
    ];
    let row = |(name, trial): &(String, &Trial)| {
        let mut cells = vec![name.clone()];
        match &trial.measured {
            None => cells.resize(header.len(), "-".to_owned()),
            Some(measured) => cells.extend(trial_cells(measured)),
        }
        cells
    };
    let name = |at: usize, trial: &Trial| {
        format!("{}{}", trial.instances, if backing.is_again(at) { " again" } else { "" })
    };
    let tried = backing.trials.iter().enumerate();
    let mut rows: Vec<(String, &Trial)> = tried.map(|(at, trial)| (name(at, trial), trial)).collect();
    rows.sort_by_key(|(_, trial)| trial.instances);
    let notes = rows.iter().map(|(name, trial)| format!("{name}: {}", trial.verdict)).collect();
    Section {
        heading: format!("Every number tried: {}", backing.name),
        notes,
        charts: Vec::new(),
        bars: Vec::new(),
        tables: vec![Table {
            label: format!("Trials on {}", backing.name),
            header: header.map(str::to_owned).to_vec(),
            rows: rows.iter().map(row).collect(),
        }],
    }
}

fn trial_cells(measured: &Measured) -> Vec<String> {
    let latency = &measured.latency;
    let averages: Vec<u64> = measured.iterations.iter().filter_map(|one| one.avg_ns).collect();
    let spread = match (averages.iter().min(), averages.iter().max()) {
        (Some(low), Some(high)) if averages.len() > 1 && *low > 0 => {
            format!("{:.0} %", (*high as f64 / *low as f64 - 1.0) * 100.0)
        }
        _ => "-".to_owned(),
    };
    vec![
        ns(latency.avg_ns),
        ns(latency.p50_ns),
        ns(latency.p95_ns),
        ns(latency.p99_ns),
        ns(latency.p99_9_ns),
        ns(latency.max_ns),
        spread,
        format!("{:.0}", measured.answered_per_s),
        format!("{:.0} %", measured.cpu_percent),
        format!("{}/s", format_size(measured.swap_in_bytes_per_s as u64)),
    ]
}

fn classes(backing: &Backing, trial: &Trial) -> Option<Section> {
    let measured = trial.measured.as_ref().filter(|measured| !measured.classes.is_empty())?;
    let header =
        ["class", "instances", "average", "99 %", "peak", "limit", "in DRAM", "most", "in swap", "met limit"];
    let size = |value: Option<u64>| value.map_or("-".to_owned(), format_size);
    let row = |class: &super::ClassMeasured| {
        vec![
            class.name.clone(),
            class.instances.to_string(),
            ns(class.latency.avg_ns),
            ns(class.latency.p99_ns),
            ns(class.latency.max_ns),
            size(class.group.limit_bytes),
            size(class.group.usage_bytes),
            size(class.group.usage_max_bytes),
            size(class.group.swap_bytes),
            class.group.limit_hits.map_or("-".to_owned(), |hits| hits.to_string()),
        ]
    };
    Some(Section {
        heading: format!("Classes: {}, {}", backing.name, counted(trial.instances)),
        notes: vec![
            "Limits and memory are the kernel's own counters after the measurement; the most includes the time before the \
             limit was set."
                .to_owned(),
        ],
        charts: Vec::new(),
        bars: Vec::new(),
        tables: vec![Table {
            label: "Classes".to_owned(),
            header: header.map(str::to_owned).to_vec(),
            rows: measured.classes.iter().map(row).collect(),
        }],
    })
}

fn instances(backing: &Backing, trial: &Trial) -> Option<Section> {
    let measured = trial.measured.as_ref()?;
    let header = ["instance", "average", "50 %", "95 %", "99 %", "99.9 %", "peak", "unanswered"];
    let rows = measured.instances.iter().enumerate().map(|(at, one)| {
        let latency = &one.latency;
        let class = one.class.as_ref().map(|class| format!(" {class}")).unwrap_or_default();
        let figures = [
            latency.avg_ns,
            latency.p50_ns,
            latency.p95_ns,
            latency.p99_ns,
            latency.p99_9_ns,
            latency.max_ns,
        ];
        let mut cells = vec![format!("{at}{class}")];
        cells.extend(figures.map(ns));
        cells.push(one.unanswered.to_string());
        cells
    });
    Some(Section {
        heading: format!("Each instance: {}, {}", backing.name, counted(trial.instances)),
        notes: vec![format!(
            "The load itself: {:.0} requests/s sent of {:.0} asked; it was {} late on average, {} at 99 %; answers took {} \
             from the write on.",
            measured.sent_per_s,
            measured.asked_per_s,
            ns(measured.late.avg_ns),
            ns(measured.late.p99_ns),
            ns(measured.service.avg_ns)
        )],
        charts: Vec::new(),
        bars: Vec::new(),
        tables: vec![Table {
            label: "Instances".to_owned(),
            header: header.map(str::to_owned).to_vec(),
            rows: rows.collect(),
        }],
    })
}

fn method(record: &DensityRecord) -> Section {
    let load = &record.load;
    let time = |seconds: f64| format_duration(Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
    let mut notes = vec![format!(
        "Every request has its time; latency counts from there to the answer, so a stall is charged to all that it holds \
         up. Warm-up {}, then {} x {}, taken together; the spread is that of their averages.",
        time(load.warmup_s),
        load.iterations,
        time(load.runtime_s)
    )];
    notes.extend(record.notes.iter().cloned());
    notes.push(format!("Took {}.", time(record.elapsed_s)));
    Section { heading: "Method".to_owned(), notes, ..Section::default() }
}
