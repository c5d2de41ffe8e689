//! An ablation in the shape of the guide's table of settings: a row of figures for each, and what changed.

use super::layout::{Grid, wrap};
use super::{Page, TextOptions};
use crate::ablation::{
    Ablation, Figure, PERCENTILES, Setting, chance_of_error, change, figures, noise_percent,
};
use crate::show::{count, us};

/// The tables, one for each workload, and what they mean.
#[must_use]
pub fn ablation(ablation: &Ablation, options: TextOptions) -> String {
    let page = Page { width: options.width.max(40), colour: options.colour };
    let mut text = page.trouble(&ablation.status);
    for (workload, title) in ablation.workloads.iter().enumerate() {
        text += &page.heading(&format!("{title}: latency in µs, and I/Os a second"));
        text += &table(ablation, workload).draw(page.width);
        text.push('\n');
    }
    let runs = |setting: &Setting| setting.runs.first().map_or(0, Vec::len);
    let found = ablation.settings.first().map_or(0, runs);
    // A change that could not be made has no runs.
    let with = ablation.settings.iter().skip(1).map(runs).max().unwrap_or(0);
    let mut method = format!(
        "Medians of {with} runs each ({found} as found), taken in turn. * marks a change that exceeds the noise: \
         every run with it lies beyond every run without."
    );
    if found > 0 && with > 0 {
        let percent = chance_of_error(found, with) * 100.0;
        method += &format!(" By chance that happens to {percent:.1} % of the figures.");
    }
    text += &wrap(&method, page.width, "", "");
    for setting in ablation.settings.iter().filter(|setting| !setting.changes.is_empty()) {
        text += &wrap(&setting.changes.join("; "), page.width, &format!("{}: ", setting.name), "    ");
    }
    for note in &ablation.notes {
        text += &wrap(note, page.width, "Note: ", "      ");
    }
    text
}

fn table(ablation: &Ablation, workload: usize) -> Grid {
    let columns = figures(&ablation.settings, workload);
    let head = |figure: &Figure| match figure {
        Figure::Mean => "avg".to_owned(),
        Figure::Percentile(index) => format!("{} %", PERCENTILES[*index]),
        Figure::Max => "max".to_owned(),
        Figure::Iops => "IOPS".to_owned(),
    };
    let header = std::iter::once("Setting".to_owned()).chain(columns.iter().map(head)).collect();
    let mut rows = Vec::new();
    let found = ablation.settings.first().and_then(|setting| setting.runs.get(workload));
    let found = found.map(Vec::as_slice).unwrap_or_default();
    for (number, setting) in ablation.settings.iter().enumerate() {
        let Some(runs) = setting.runs.get(workload).filter(|runs| !runs.is_empty()) else { continue };
        let change = |figure: &Figure| change(found, runs, *figure);
        let value = |figure: &Figure| {
            change(figure).map_or_else(String::new, |change| match figure {
                Figure::Iops => count(change.value),
                _ => us(change.value),
            })
        };
        rows.push(std::iter::once(setting.name.clone()).chain(columns.iter().map(value)).collect());
        let second = |figure: &Figure| match number {
            0 => noise_percent(found, *figure).map_or_else(String::new, |noise| format!("±{noise:.1}%")),
            _ => change(figure).map_or_else(String::new, |change| {
                format!("{:+.1}%{}", change.percent, if change.exceeds_noise { "*" } else { " " })
            }),
        };
        let label = if number == 0 { "  between runs" } else { "  change" };
        rows.push(std::iter::once(label.to_owned()).chain(columns.iter().map(second)).collect());
    }
    Grid { keys: 1, header, rows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ablation::{Run, SCHEMA};
    use crate::record::Status;

    #[test]
    fn the_table_has_the_guides_shape_and_fits() {
        let run = |mean_ns: f64| Run {
            iops: 1e9 / mean_ns,
            mean_ns,
            max_ns: 139_000,
            percentiles_ns: vec![Some(8_000), Some(17_000), Some(20_000), None, None],
        };
        let setting = |name: &str, means: &[f64]| Setting {
            name: name.to_owned(),
            changes: if name == "as found" { Vec::new() } else { vec!["/sys/x: a -> b".to_owned()] },
            runs: vec![means.iter().map(|&mean| run(mean)).collect()],
        };
        let value = Ablation {
            schema: SCHEMA.to_owned(),
            started_at: String::new(),
            status: Status::Complete,
            target: "t".to_owned(),
            disks: Vec::new(),
            repeats: 2,
            workloads: vec!["4 KiB random read, QD 1".to_owned()],
            settings: vec![
                setting("as found", &[8_430.0, 8_440.0]),
                setting("cpu-governor-performance", &[8_160.0, 8_160.0]),
                setting("irq-balance", &[8_435.0, 8_150.0]),
            ],
            notes: vec!["the host is as it was".to_owned()],
        };
        let text = ablation(&value, TextOptions::default());
        assert!(!text.contains("interrupted"), "{text}");
        let stopped = Ablation { status: Status::Interrupted, ..value.clone() };
        let told = ablation(&stopped, TextOptions::default());
        assert!(told.starts_with("The run was interrupted: "), "{told}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for piece in ["99.9 %", "8.16", "-3.3%*", "-1.7% ", "±0.1%", "123 k", "/sys/x: a -> b", "as it was"]
        {
            assert!(text.contains(piece), "{piece}\n{text}");
        }
        assert!(!text.contains("99.99 %"), "too few samples for it\n{text}");
        assert!(text.contains("chance"), "{text}");
        let mut without = value;
        without.settings[1].runs = vec![Vec::new()];
        assert!(ablation(&without, TextOptions::default()).contains("Medians of 2 runs each (2 as found)"));
        without.settings[2].runs = vec![Vec::new()];
        let text = ablation(&without, TextOptions::default());
        assert!(!text.contains("chance"), "nothing was measured with a change\n{text}");
    }
}
