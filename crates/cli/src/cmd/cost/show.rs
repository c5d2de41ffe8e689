//! The answers of `overdrive cost` as a page of values and as JSON.

use super::{Answer, Endurance};
use overdrive_base::time::three_digits;
use overdrive_density::cost::endurance::CLAIMED_YEARS;
use overdrive_density::cost::{BreakEven, Server};
use overdrive_report::page::{LineChart, Page, Scale, Section, Table};
use serde_json::{Value, json};

pub(super) fn page(answer: &Answer) -> Page {
    let mut sections = vec![servers(answer), swept(answer)];
    sections.extend(answer.endurance.as_ref().map(endurance));
    Page {
        kind: "Overdrive cost".to_owned(),
        title: headline(answer),
        lead: lead(answer),
        warnings: warning(answer).map(str::to_owned).into_iter().collect(),
        sections,
    }
}

/// What a number of instances that is a lower bound makes of all that is for an instance.
fn warning(answer: &Answer) -> Option<&'static str> {
    match answer.at_least() {
        (false, false) => None,
        (false, true) => Some(
            "B's number of instances is a lower bound, more were not tried: an instance on it costs at most what is \
             shown.",
        ),
        (true, false) => Some(
            "A's number of instances is a lower bound, more were not tried: an instance on B costs at least what is \
             shown of one on A.",
        ),
        (true, true) => Some(
            "Both numbers of instances are lower bounds, more were not tried: what is shown for an instance holds for \
             exactly these numbers.",
        ),
    }
}

/// A number of instances that hold, with what is known of more.
pub(super) fn number(held: u32, most: Option<u32>) -> String {
    match most {
        None => format!("at least {held}"),
        Some(most) if most > held => format!("{held} to {most}"),
        Some(_) => held.to_string(),
    }
}

fn headline(answer: &Answer) -> String {
    let compared = &answer.comparison;
    let server = format!("server B costs {:.3} of server A", compared.relative_cost);
    match compared.relative_cost_per_instance {
        Some(each) => {
            let (bound, opposite) = match answer.at_least() {
                (false, true) => ("at most ", "at least "),
                (true, false) => ("at least ", "at most "),
                _ => ("", ""),
            };
            let saving = saving(each);
            let so_much = if saving.ends_with("less") { opposite } else { bound };
            format!("{server}, an instance on it {bound}{each:.3} of one on A ({so_much}{saving})")
        }
        None => format!("{server} ({})", saving(compared.relative_cost)),
    }
}

fn saving(relative: f64) -> String {
    let percent = (1.0 - relative) * 100.0;
    if percent.abs() < 0.05 {
        "the same".to_owned()
    } else if percent >= 0.0 {
        format!("{percent:.1} % less")
    } else {
        format!("{:.1} % more", -percent)
    }
}

fn lead(answer: &Answer) -> Vec<String> {
    let mut lead = vec![match &answer.list {
        Some(list) => format!(
            "Prices of {}{}: DRAM {} and SSD {} {} a GiB, ratio {}",
            list.date,
            list.source.as_ref().map(|source| format!(" ({source})")).unwrap_or_default(),
            figure(answer.prices.dram_per_gib),
            figure(answer.prices.ssd_per_gib),
            list.currency,
            figure(answer.prices.ratio())
        ),
        None => format!(
            "Prices: only their ratio is known, a GiB of DRAM costs {} GiB of SSD; costs are in GiB of SSD",
            figure(answer.prices.ratio())
        ),
    }];
    lead.push(break_even(answer));
    lead.extend(answer.source.clone());
    if answer.list.is_none() {
        lead.push(
            "Only memory counts: what is the same in both servers is left out, as in the blueprint."
                .to_owned(),
        );
    }
    lead
}

fn break_even(answer: &Answer) -> String {
    let (b, a) = match answer.comparison.relative_cost_per_instance {
        Some(_) => ("an instance on B", "one on A"),
        None => ("B", "A"),
    };
    let pays = format!("{b} costs no more than {a}");
    let exact = |found: BreakEven| match found {
        BreakEven::FromRatio(ratio) => format!("{pays} from a price ratio of {} on", figure(ratio)),
        BreakEven::UpToRatio(ratio) => format!("{pays} up to a price ratio of {}", figure(ratio)),
        BreakEven::Always => format!("{pays} at any price ratio"),
        BreakEven::Never => format!("none, {b} costs more than {a} at any price ratio"),
    };
    let bounded = match answer.break_even {
        (worst, best) if worst == best => exact(best),
        (BreakEven::FromRatio(high), BreakEven::FromRatio(low)) => {
            format!("{pays} from a price ratio between {} and {} on", figure(low), figure(high))
        }
        (BreakEven::FromRatio(high), _) => {
            format!("{pays} from a price ratio of at most {} on", figure(high))
        }
        (BreakEven::UpToRatio(low), BreakEven::UpToRatio(high)) => {
            format!("{pays} up to a price ratio between {} and {}", figure(low), figure(high))
        }
        (BreakEven::UpToRatio(low), _) => format!("{pays} up to a price ratio of at least {}", figure(low)),
        (_, BreakEven::FromRatio(low)) => {
            format!("{pays} from a price ratio of at least {} on, if at all", figure(low))
        }
        (_, BreakEven::UpToRatio(high)) => {
            format!("{pays} up to a price ratio of at most {}, if at all", figure(high))
        }
        _ => {
            let exact = exact(answer.comparison.break_even);
            return format!("Break-even with exactly these numbers: {exact}");
        }
    };
    format!("Break-even: {bounded}")
}

/// A number with as many digits as it needs, at most three after the point.
fn figure(value: f64) -> String {
    let text = if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn servers(answer: &Answer) -> Section {
    let row = |name: &str, server: &Server, most: Option<u32>, relative: f64| {
        let at_most = if server.instances == most { "" } else { "at most " };
        let instances = server.instances.map_or("-".to_owned(), |held| number(held, most));
        let each = server.instances.map(|_| figure(server.cost_per_instance(&answer.prices)));
        let each = each.map_or("-".to_owned(), |each| format!("{at_most}{each}"));
        vec![
            name.to_owned(),
            figure(server.dram_gib),
            figure(server.ssd_gib),
            figure(server.cost(&answer.prices)),
            format!("{relative:.3}"),
            instances,
            each,
        ]
    };
    let header = ["server", "DRAM GiB", "SSD GiB", "cost", "of A", "instances", "cost each"];
    Section {
        heading: "Servers".to_owned(),
        tables: vec![Table {
            label: "Both servers".to_owned(),
            header: header.map(str::to_owned).to_vec(),
            rows: vec![
                row("A", &answer.a, answer.most.0, 1.0),
                row("B", &answer.b, answer.most.1, answer.comparison.relative_cost),
            ],
        }],
        ..Section::default()
    }
}

fn swept(answer: &Answer) -> Section {
    let sweep = &answer.sweep;
    let memory = figure(answer.b.dram_gib + answer.b.ssd_gib);
    let share = |share: f64| format!("{} %", figure(share * 100.0));
    let mut header = vec!["price ratio".to_owned()];
    header.extend(sweep.shares.iter().map(|&at| share(at)));
    let rows = sweep.ratios.iter().zip(&sweep.relative_cost).map(|(ratio, row)| {
        let cells = row.iter().map(|cell| format!("{cell:.3}"));
        std::iter::once(figure(*ratio)).chain(cells).collect()
    });
    let each = if answer.comparison.relative_cost_per_instance.is_some() { " for an instance" } else { "" };
    let mut notes = vec![format!(
        "Cost of B over A{each}: B keeps {memory} GiB of memory, the columns say how much of it is DRAM."
    )];
    if !each.is_empty() {
        notes.push(
            "The numbers of instances are held; what less DRAM does to them is for a measurement to say."
                .to_owned(),
        );
    }
    let rows: Vec<Vec<String>> = rows.collect();
    Section {
        heading: "Over price ratio and DRAM's share".to_owned(),
        notes,
        charts: vec![chart(answer)],
        tables: vec![Table { label: "Relative cost".to_owned(), header, rows }],
        ..Section::default()
    }
}

fn chart(answer: &Answer) -> LineChart {
    let sweep = &answer.sweep;
    let highest = sweep.relative_cost.iter().flatten().copied().fold(1.0, f64::max);
    let steps = 5.0;
    let step = highest / steps;
    let ticks = |from: f64| (0..=steps as usize).map(move |at| from + step * at as f64);
    let mut ratios = sweep.ratios.clone();
    ratios.sort_by(f64::total_cmp);
    ratios.dedup();
    let line = |(column, share): (usize, &f64)| {
        let mut points: Vec<(f64, f64)> =
            sweep.ratios.iter().zip(&sweep.relative_cost).map(|(ratio, row)| (*ratio, row[column])).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        (format!("{} %", figure(share * 100.0)), points)
    };
    LineChart {
        id: "relative-cost".to_owned(),
        title: "Cost of B over A, by DRAM's share in B's memory".to_owned(),
        description: "Relative cost against the price ratio, one line for each share of DRAM.".to_owned(),
        x: Scale {
            name: "price of DRAM over SSD",
            logarithmic: true,
            ticks: ratios.iter().map(|ratio| (*ratio, figure(*ratio))).collect(),
        },
        y: Scale {
            name: "cost of B over A",
            logarithmic: false,
            ticks: ticks(0.0).map(|at| (at, format!("{at:.2}"))).collect(),
        },
        lines: sweep.shares.iter().enumerate().map(line).collect(),
    }
}

fn endurance(endurance: &Endurance) -> Section {
    let mut notes = vec![format!(
        "Rating: {} may be written to {} in all. For {CLAIMED_YEARS} years that is {} a second, on average, day and night.",
        decimal(endurance.rating.bytes),
        if endurance.drives == 1 {
            "the drive".to_owned()
        } else {
            format!("the {} drives", endurance.drives)
        },
        decimal(endurance.rating.bytes_per_s_for(CLAIMED_YEARS))
    )];
    if let Some(bytes) = endurance.bytes_per_day {
        let years = endurance.rating.years(bytes);
        let lasts = match years {
            years if years.is_infinite() => "Nothing is written: it is never used up".to_owned(),
            years if years < 0.001 => format!("{} a day use it up within a day", decimal(bytes)),
            years => format!("{} a day use it up in {} years", decimal(bytes), figure(years)),
        };
        let holds = if years >= CLAIMED_YEARS { "hold" } else { "do not hold" };
        notes.push(format!("{lasts}: the blueprint's five or more years {holds} here."));
    } else {
        notes.push(
            "How much is written a day is not known: --write-rate or --writes-per-day says whether that is enough."
                .to_owned(),
        );
    }
    Section { heading: "Endurance".to_owned(), notes, ..Section::default() }
}

/// Bytes in the decimal units of data sheets.
fn decimal(bytes: f64) -> String {
    let units = [("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)];
    match units.into_iter().find(|(_, scale)| bytes >= *scale) {
        Some((unit, scale)) => format!("{} {unit}", three_digits(bytes / scale)),
        None => format!("{bytes:.0} B"),
    }
}

pub(super) fn json(answer: &Answer) -> Value {
    let server = |server: &Server, most: Option<u32>| {
        json!({
            "dram_gib": server.dram_gib, "ssd_gib": server.ssd_gib, "other_cost": server.other_cost,
            "instances": server.instances, "instances_at_least": server.instances != most,
            "instances_at_most": most, "cost": server.cost(&answer.prices),
            "cost_per_instance": server.instances.map(|_| server.cost_per_instance(&answer.prices)),
        })
    };
    let compared = &answer.comparison;
    let kind_and_ratio = |found: BreakEven| match found {
        BreakEven::FromRatio(ratio) => ("from_ratio", Some(ratio)),
        BreakEven::UpToRatio(ratio) => ("up_to_ratio", Some(ratio)),
        BreakEven::Always => ("always", None),
        BreakEven::Never => ("never", None),
    };
    let bound = |found: BreakEven| {
        let (kind, ratio) = kind_and_ratio(found);
        json!({ "kind": kind, "price_ratio": ratio })
    };
    let (kind, ratio) = kind_and_ratio(compared.break_even);
    let (worst, best) = (bound(answer.break_even.0), bound(answer.break_even.1));
    let percent = |shares: &[f64]| shares.iter().map(|share| share * 100.0).collect::<Vec<f64>>();
    json!({
        "schema": "overdrive.cost/1",
        "currency": answer.list.as_ref().map(|list| &list.currency),
        "prices_date": answer.list.as_ref().map(|list| &list.date),
        "dram_per_gib": answer.prices.dram_per_gib,
        "ssd_per_gib": answer.prices.ssd_per_gib,
        "price_ratio": answer.prices.ratio(),
        "server_a": server(&answer.a, answer.most.0),
        "server_b": server(&answer.b, answer.most.1),
        "relative_cost": compared.relative_cost,
        "relative_cost_per_instance": compared.relative_cost_per_instance,
        "break_even": { "kind": kind, "price_ratio": ratio, "worst": worst, "best": best },
        "sweep": {
            "price_ratios": answer.sweep.ratios,
            "dram_shares_percent": percent(&answer.sweep.shares),
            "relative_cost": answer.sweep.relative_cost,
        },
        "endurance": answer.endurance.as_ref().map(|endurance| {
            let years = endurance.bytes_per_day.map(|bytes| endurance.rating.years(bytes));
            json!({
                "rating_bytes": endurance.rating.bytes,
                "drives": endurance.drives,
                "bytes_per_day": endurance.bytes_per_day,
                "bytes_per_s_for_five_years": endurance.rating.bytes_per_s_for(CLAIMED_YEARS),
                "years": years.filter(|years| years.is_finite()),
                "five_years_hold": years.map(|years| years >= CLAIMED_YEARS),
            })
        }),
    })
}
