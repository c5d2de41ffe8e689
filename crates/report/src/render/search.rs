//! A search over loads as tables: the loads of a curve in ascending order, or a surface of reads by writes.

use super::detail::Detail;
use crate::record::{Direction, Latency, LoadPoint, Search};
use crate::show;

/// The tables of a search, with what they say below them.
pub(crate) fn details(search: &Search) -> Vec<Detail> {
    let mut details = if search.write_ceiling_iops.is_some() { surface(search) } else { vec![curve(search)] };
    if let Some(last) = details.last_mut() {
        last.notes.extend(sentences(search));
    }
    details
}

/// What the search found, one sentence each.
fn sentences(search: &Search) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(objective) = &search.objective {
        let promise = format!("p{} within {}", objective.percentile, show::ns(objective.limit_ns as f64));
        told.push(match search.found_iops {
            Some(iops) => format!("{promise} holds up to {} I/Os a second.", show::grouped(iops as u64)),
            None => format!("{promise} holds at no load that was tried."),
        });
    }
    if let Some(knee) = search.knee_iops {
        told.push(format!(
            "The curve bends at about {} I/Os a second: beyond it more load costs more than it gives.",
            show::grouped(knee as u64)
        ));
    }
    told.push(search.reason.clone());
    told.retain(|sentence| !sentence.is_empty());
    told
}

/// The loads of a curve, ascending.
pub(crate) fn ascending(search: &Search) -> Vec<&LoadPoint> {
    let mut points: Vec<&LoadPoint> = search.points.iter().collect();
    points.sort_by(|a, b| a.asked_iops.total_cmp(&b.asked_iops));
    points
}

fn curve(search: &Search) -> Detail {
    let own = search.objective.as_ref().map(|objective| objective.percentile);
    let own = own.filter(|percentile| !SHOWN.contains(percentile));
    let mut header = vec!["load".to_owned(), "asked".to_owned(), "IOPS".to_owned(), "avg".to_owned()];
    header.extend(SHOWN.map(|percentile| percentile.to_string()));
    header.extend(own.map(|percentile| percentile.to_string()));
    header.push("max".to_owned());
    header.extend(search.objective.as_ref().map(|_| "holds".to_owned()));
    let row = |point: &LoadPoint| {
        let share = point.asked_iops / search.ceiling_iops.max(1e-9) * 100.0;
        let mut cells = vec![format!("{share:.1} %"), show::count(point.asked_iops), show::count(point.iops)];
        match &point.response {
            Some(response) => cells.extend(latency(response, own, point.value_ns)),
            None => cells.extend(vec!["-".to_owned(); SHOWN.len() + 2 + usize::from(own.is_some())]),
        }
        cells.extend(point.holds.map(|holds| match (holds, &point.why) {
            (true, _) => "yes".to_owned(),
            (false, Some(why)) => why.clone(),
            (false, None) => "no".to_owned(),
        }));
        cells
    };
    Detail {
        heading: "Latency against load (microseconds from when I/Os were due)".to_owned(),
        header,
        rows: ascending(search).into_iter().map(row).collect(),
        notes: vec![format!(
            "Open loop, {} arrivals; 100 % are the {} I/Os a second of a closed loop.",
            search.arrivals,
            show::grouped(search.ceiling_iops as u64)
        )],
    }
}

const SHOWN: [f64; 3] = [50.0, 99.0, 99.9];

/// The cells of a load; older records have the objective's own percentile as `value_ns` alone.
fn latency(latency: &Latency, own: Option<f64>, value_ns: Option<u64>) -> Vec<String> {
    let mut cells = vec![show::us(latency.mean_ns)];
    cells.extend(SHOWN.map(|percentile| show::percentile_us(latency.percentile(percentile))));
    cells.extend(own.map(|percentile| match (latency.percentile(percentile), value_ns) {
        (None, Some(ns)) => show::us(ns as f64),
        (found, _) => show::percentile_us(found),
    }));
    cells.push(show::us(latency.max_ns as f64));
    cells
}

/// Rates as rows and columns hold them, ascending and each once.
pub(crate) fn rates(points: &[LoadPoint], rate: impl Fn(&LoadPoint) -> f64) -> Vec<f64> {
    let mut rates: Vec<f64> = points.iter().map(rate).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup_by(|a, b| (*a - *b).abs() < 0.5);
    rates
}

/// Writes a second that a load asks for.
pub(crate) fn writes_of(point: &LoadPoint) -> f64 {
    point.asked_write_iops.unwrap_or(0.0)
}

/// Reads a second that a load asks for.
pub(crate) fn reads_of(point: &LoadPoint) -> f64 {
    point.asked_iops - writes_of(point)
}

/// The 99th percentile of a load's reads or writes in nanoseconds, if the load was kept.
pub(crate) fn p99(point: &LoadPoint, side: fn(&LoadPoint) -> &Option<Direction>) -> Option<u64> {
    let direction = side(point).as_ref().filter(|_| point.kept)?;
    direction.response.as_ref()?.percentile(99.0)?.value_ns
}

fn surface(search: &Search) -> Vec<Detail> {
    let reads: fn(&LoadPoint) -> &Option<Direction> = |point| &point.read;
    let writes: fn(&LoadPoint) -> &Option<Direction> = |point| &point.write;
    let (columns, rows) = (rates(&search.points, reads_of), rates(&search.points, writes_of));
    let near = |a: f64, b: f64| (a - b).abs() < 0.5;
    let at = |read: f64, write: f64| {
        search.points.iter().find(|point| near(reads_of(point), read) && near(writes_of(point), write))
    };
    let table = |name: &str, side: fn(&LoadPoint) -> &Option<Direction>| Detail {
        heading: format!("99 % of {name} within (microseconds), by load"),
        header: std::iter::once("writes/s \\ reads/s".to_owned())
            .chain(columns.iter().map(|rate| show::count(*rate)))
            .collect(),
        rows: rows
            .iter()
            .map(|write| {
                let cell = |read: &f64| match at(*read, *write) {
                    Some(point) if !point.kept => "over".to_owned(),
                    Some(point) => p99(point, side).map_or_else(String::new, |ns| show::us(ns as f64)),
                    None => String::new(),
                };
                std::iter::once(show::count(*write)).chain(columns.iter().map(cell)).collect()
            })
            .collect(),
        notes: Vec::new(),
    };
    let mut tables = vec![table("reads", reads), table("writes", writes)];
    if let Some(last) = tables.last_mut() {
        last.notes.push(
            "'over': the target did not keep that rate; an empty cell was not tried, because less was too much \
             already, or has none."
                .to_owned(),
        );
    }
    tables
}
