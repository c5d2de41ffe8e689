//! A paging run for the terminal: rates of threads x read ratio x backing, latencies, how it scales, and
//! where the latencies lie.

use super::layout::{Grid, wrap};
use super::{Page, TextOptions};
use crate::record::{Latency, Paging, PagingCell};
use crate::render::paging::{backings, curves, humps, pairs, rows, sentences};
use overdrive_base::size::format_size;
use overdrive_base::time::{format_ns, three_digits};

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The percentiles that have a column.
const PERCENTILES: [(&str, f64); 5] =
    [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99), ("p99.999", 99.999)];

/// A paging run as text.
#[must_use]
pub fn paging(paging: &Paging, notes: &[String], options: TextOptions) -> String {
    let page = Page { width: options.width.max(40), colour: options.colour };
    let set = format_size(paging.set_bytes);
    let budget = paging
        .dram_bytes
        .map_or(String::new(), |bytes| format!(", {} of DRAM for the others", format_size(bytes)));
    let parts = [
        page.heading(&format!("Pages a second: a set of {set}{budget}")) + &rates(paging, page.width),
        page.heading("Latency of an access") + &latencies(paging, page.width),
        scaling(paging, &page),
        page.heading("Where the latencies lie, from 16 ns to 1 s") + &places(paging),
        page.heading("Notes") + &said(paging, notes, page.width),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

fn said(paging: &Paging, notes: &[String], width: usize) -> String {
    let sentences = sentences(paging);
    sentences.iter().chain(notes).map(|line| wrap(line, width, "- ", "  ")).collect()
}

/// Threads x read ratio x backing, and each backing against those named before it.
fn rates(paging: &Paging, width: usize) -> String {
    let names = backings(paging);
    let pairs = pairs(names.len());
    let mut header = vec!["pattern".to_owned(), "reads".to_owned(), "threads".to_owned()];
    header.extend(names.iter().map(|name| (*name).to_owned()));
    header.extend(pairs.iter().map(|&(earlier, later)| format!("{}/{}", names[later], names[earlier])));
    let row = |row: crate::render::paging::Row<'_>| {
        let mut cells =
            vec![row.pattern.to_owned(), format!("{} %", row.read_ratio_percent), row.threads.to_string()];
        let rate = |cell: &PagingCell| format!("{:.0}", cell.pages_per_s);
        cells
            .extend(row.cells.iter().map(|cell| cell.as_ref().map_or_else(dash, |cell| rate(cell.median()))));
        cells.extend(
            pairs
                .iter()
                .map(|&(earlier, later)| row.ratio(earlier, later).map_or_else(dash, |ratio| ratio.text())),
        );
        cells
    };
    let mut text = Grid { keys: 3, header, rows: rows(paging).into_iter().map(row).collect() }.draw(width);
    for cell in paging.cells.iter().filter(|cell| cell.repeat == 0) {
        let Some(nodes) = &cell.nodes else { continue };
        let parts: Vec<String> = nodes
            .iter()
            .map(|part| format!("node {} {:.0} ({} threads)", part.node, part.pages_per_s, part.threads))
            .collect();
        text += &wrap(&format!("{}: {}", name(cell), parts.join(", ")), width, "", "  ");
    }
    text
}

fn dash() -> String {
    "-".to_owned()
}

fn latencies(paging: &Paging, width: usize) -> String {
    let mut header: Vec<String> =
        ["pattern", "reads", "thr", "backing", "faults/s", "major/s", "mean"].map(str::to_owned).to_vec();
    header.extend(PERCENTILES.iter().map(|(name, _)| (*name).to_owned()));
    header.extend(["max", "stalls", "stalled"].map(str::to_owned));
    let mut lines = Vec::new();
    for row in rows(paging) {
        for cell in row.medians() {
            let mut line = vec![
                cell.pattern.clone(),
                format!("{} %", cell.read_ratio_percent),
                cell.threads.to_string(),
                cell.backing.clone(),
                three_digits(cell.faults_per_s),
                cell.major_faults_per_s.map_or_else(dash, three_digits),
                cell.latency.as_ref().map_or_else(dash, |latency| format_ns(latency.mean_ns as u64)),
            ];
            line.extend(PERCENTILES.iter().map(|&(_, wanted)| percentile(cell.latency.as_ref(), wanted)));
            line.push(cell.latency.as_ref().map_or_else(dash, |latency| format_ns(latency.max_ns)));
            line.extend([cell.stalls.to_string(), format_ns(cell.stalled_ns)]);
            lines.push(line);
        }
    }
    Grid { keys: 4, header, rows: lines }.draw(width)
}

fn percentile(latency: Option<&Latency>, wanted: f64) -> String {
    let found = latency.and_then(|latency| latency.percentile(wanted));
    found.map_or_else(dash, |found| match (found.value_ns, found.at_least_ns) {
        (Some(value), _) => format_ns(value),
        (None, Some(bound)) => format!("≥{}", format_ns(bound)),
        (None, None) => dash(),
    })
}

/// A line of bars for each curve: how the rate grows with the threads.
fn scaling(paging: &Paging, page: &Page) -> String {
    let curves = curves(paging);
    if curves.is_empty() {
        return String::new();
    }
    let line = |curve: &crate::render::paging::Curve<'_>| {
        let most = curve.points.iter().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max);
        let first = curve.points[0].1.max(f64::MIN_POSITIVE);
        let bars: String =
            curve.points.iter().map(|&(_, rate)| LEVELS[((rate / most * 7.99) as usize).min(7)]).collect();
        let steps: Vec<String> =
            curve.points.iter().map(|&(threads, rate)| format!("{threads}: {:.2}x", rate / first)).collect();
        let title = format!("{} {} {} %", curve.backing, curve.pattern, curve.read_ratio_percent);
        wrap(&steps.join("  "), page.width, &format!("{title:<26} {bars} "), &" ".repeat(27))
    };
    page.heading("How it scales with threads") + &curves.iter().map(line).collect::<String>()
}

/// A compact histogram for each cell: one column for each power of two, and the border between hits and
/// faults.
fn places(paging: &Paging) -> String {
    // Logarithmic height: one access in ten million still shows.
    let level = |share: f64| match share {
        share if share <= 0.0 => ' ',
        share => LEVELS[((share.log10() + 7.0).clamp(0.0, 7.0)) as usize],
    };
    let mut text = String::new();
    for row in rows(paging) {
        for cell in row.medians() {
            let Some(latency) = &cell.latency else { continue };
            // A histogram that cannot be read has no line.
            let humps = humps(latency, 1);
            let Some(shown) = humps.get(4..30) else { continue };
            let bars: String = shown.iter().map(|&(_, share)| level(share)).collect();
            let faults = cell.faults_per_s / cell.pages_per_s.max(f64::MIN_POSITIVE) * 100.0;
            let split = match cell.fault_threshold_ns {
                None => "hits only".to_owned(),
                Some(border) => format!("{faults:.1} % from {}", format_ns(border)),
            };
            text += &format!("{:<29} |{bars}| {split}\n", name(cell));
        }
    }
    text
}

fn name(cell: &PagingCell) -> String {
    format!("{} {} {}% x{}", cell.backing, cell.pattern, cell.read_ratio_percent, cell.threads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::paging::tests::paging as example;

    #[test]
    fn everything_fits_eighty_columns() {
        let text = paging(&example(), &["a note".to_owned()], TextOptions { width: 80, colour: false });
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for piece in [
            "swap/dram",
            "0.0100 (0.0100 to 0.0100)",
            "4: 2.00x",
            "hits only",
            "47.0 % from 4",
            "measuring adds 22 ns",
            "- a note",
            "a set of 1 GiB, 512 MiB of DRAM",
        ] {
            assert!(text.contains(piece), "{piece}: {text}");
        }
        // 170,000 accesses are too few for the 99.999th percentile to be a number.
        assert!(text.contains("p99.999") && text.contains('≥'), "{text}");
    }

    #[test]
    fn a_damaged_histogram_is_left_out() {
        let mut damaged = example();
        for latency in damaged.cells.iter_mut().filter_map(|cell| cell.latency.as_mut()) {
            latency.histogram = "damaged".to_owned();
        }
        let text = paging(&damaged, &[], TextOptions { width: 80, colour: false });
        assert!(text.contains("swap/dram") && !text.contains("hits only"), "{text}");
    }

    #[test]
    fn one_number_of_threads_has_no_scaling() {
        let mut one = example();
        one.cells.retain(|cell| cell.threads == 1 && cell.backing == "dram" && cell.repeat == 0);
        let text = paging(&one, &[], TextOptions::default());
        assert!(!text.contains("scales") && !text.contains("swap"), "{text}");
    }
}
