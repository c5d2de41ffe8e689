//! A density record read back, its ratios, and its page.

use super::*;
use crate::render;
use crate::render::text::TextOptions;

fn figures(avg_us: u64) -> Figures {
    Figures {
        samples: 1000,
        avg_ns: Some(avg_us * 1000),
        p50_ns: Some(avg_us * 900),
        p95_ns: Some(avg_us * 2000),
        p99_ns: Some(avg_us * 5000),
        p99_9_ns: Some(avg_us * 20_000),
        max_ns: Some(avg_us * 100_000),
    }
}

fn trial(instances: u32, avg_us: u64, held: bool) -> Trial {
    let measured = Measured {
        asked_per_s: 2000.0 * f64::from(instances),
        sent_per_s: 2000.0 * f64::from(instances),
        answered_per_s: 1999.0 * f64::from(instances),
        latency: figures(avg_us),
        histogram: String::new(),
        gets: figures(avg_us),
        sets: figures(avg_us),
        service: figures(avg_us),
        late: figures(1),
        iterations: vec![figures(avg_us), figures(avg_us + 1)],
        instances: vec![Instance { class: None, latency: figures(avg_us), unanswered: 0, errors: 0 }],
        classes: Vec::new(),
        cpu_percent: 50.0,
        stolen_percent: 0.0,
        swap_in_bytes_per_s: 0.0,
        swap_out_bytes_per_s: 0.0,
        disk: None,
        disk_busy_percent: None,
        footprint_bytes: Some(300 << 20),
        group: Some(Group::default()),
    };
    let verdict = if held { "the objective holds" } else { "instance 0: avg too much" };
    Trial { instances, held, verdict: verdict.to_owned(), fill_s: 1.0, measured: Some(measured) }
}

fn record() -> DensityRecord {
    let backing = |name: &str, held, failed, trials| Backing {
        name: name.to_owned(),
        searched: true,
        held,
        failed,
        edge: failed.map(|_| "why it failed".to_owned()),
        ssd_bytes: None,
        cost_each: None,
        trials,
    };
    DensityRecord {
        schema: SCHEMA.to_owned(),
        tool: Tool { name: "overdrive".to_owned(), version: "0".to_owned() },
        command: vec!["overdrive".to_owned()],
        started_at: "2026-01-01T00:00:00Z".to_owned(),
        elapsed_s: 100.0,
        status: Status::Complete,
        seed: 1,
        host: Host { digest: String::new(), facts: Vec::new() },
        kind: "process".to_owned(),
        instance: "redis-server 7".to_owned(),
        load: Load {
            records: 1000,
            value_bytes: 1024,
            rate_per_s: 2000.0,
            get_percent: 70,
            influence: 10.0,
            hot_quarter_percent: 42.0,
            warmup_s: 1.0,
            runtime_s: 2.0,
            iterations: 2,
            threads: 1,
        },
        objective: vec![Limit { figure: "avg".to_owned(), limit_ns: 50_000 }],
        judge: "each".to_owned(),
        dram_bytes: Some(1 << 30),
        swap_bytes: Some(4 << 30),
        price_ratio: None,
        classes: Vec::new(),
        notes: vec!["a note".to_owned()],
        backings: vec![
            backing("dram", 4, Some(5), vec![trial(2, 20, true), trial(4, 25, true)]),
            backing("swap", 6, None, vec![trial(2, 40, true), trial(6, 45, true), trial(4, 50, true)]),
        ],
    }
}

#[test]
fn a_record_reads_back_and_others_are_refused() {
    let record = record();
    let text = record.to_json_pretty().unwrap();
    assert!(DensityRecord::is_one(&text));
    assert_eq!(DensityRecord::from_json(&text).unwrap(), record);
    let newer = text.replace(SCHEMA, "overdrive.density/2");
    assert!(DensityRecord::is_one(&newer));
    assert!(DensityRecord::from_json(&newer).unwrap_err().to_string().contains("newer"));
    for text in ["", "{}", "{\"schema\": \"overdrive.record/1\"}"] {
        assert!(!DensityRecord::is_one(text));
        let error = DensityRecord::from_json(text).unwrap_err().to_string();
        assert!(error.ends_with("; wanted a density.json (overdrive.density/1)"), "{error}");
    }
}

#[test]
fn ratios_are_taken_at_a_number_measured_on_both() {
    let ratios = show::compare_backings(&record());
    assert_eq!(ratios.len(), 1);
    assert_eq!(ratios[0].at_instances, Some(4));
    assert_eq!((ratios[0].average, ratios[0].instances), (Some(2.0), Some(1.5)));
    assert_eq!(ratios[0].bound, "at least ");
    let mut both = record();
    both.backings[0].failed = None;
    assert_eq!(show::compare_backings(&both)[0].instances, None, "two bounds say nothing");
    let mut apart = record();
    apart.backings[0].trials.clear();
    assert_eq!(show::compare_backings(&apart)[0].average, None);
}

#[test]
fn the_page_fits_a_terminal_and_says_the_result() {
    let mut record = record();
    let text = render::text::page(&show::page(&record), TextOptions::default());
    assert!(text.starts_with("Instances inside the objective: dram 4, swap at least 6\n"), "{text}");
    assert!(text.contains("dram: not with 5. why it failed."), "{text}");
    assert!(text.contains("swap over dram") && text.contains("2.00x") && text.contains("1.50x"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let html = render::html::page(&show::page(&record)).unwrap();
    // Four over the number of instances, and five of bars: average, 99 %, peak, throughput, instances.
    assert_eq!(html.matches("<figure>").count(), 9);
    // The rate reaches 11994 requests/s: its axis goes there in round steps.
    let ticks = [">5000<", ">10 k<", ">15 k<"];
    let lines: String =
        html.split_whitespace().collect::<Vec<_>>().join(" ").replace("> ", ">").replace(" <", "<");
    assert!(ticks.iter().all(|tick| lines.contains(tick)), "{ticks:?}");
    assert_eq!(lines.matches(">latency, us, logarithmic<").count(), 6, "three charts, each wide and narrow");
    assert!(html.contains("Average latency with 4 instances") && !html.contains("Cost of an instance"));
    record.backings.iter_mut().for_each(|backing| backing.trials.clear());
    record.status = Status::Interrupted;
    let text = render::text::page(&show::page(&record), TextOptions::default());
    assert!(text.contains("! Interrupted"), "{text}");
}

#[test]
fn what_an_instance_costs_is_shown_when_prices_are_known() {
    let mut record = record();
    record.price_ratio = Some(4.0);
    record.backings[0].cost_each = Some(1.0);
    record.backings[1].cost_each = Some(0.75);
    record.backings[1].ssd_bytes = Some(512 << 20);
    let page = show::page(&record);
    let text = render::text::page(&page, TextOptions::default());
    assert!(text.contains("Cost of an instance") && text.contains("0.75") && text.contains("25 %"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let html = render::html::page(&page).unwrap();
    // The search on swap found no edge: whatever is computed from it is a bound.
    assert!(
        html.contains("Cost of an instance, on DRAM = 1: dram 1.00, swap at most 0.75."),
        "its description"
    );
    assert!(html.contains("Instances inside the objective: dram 4, swap at least 6."), "its description");
    assert!(text.contains("at most 0.75") && text.contains("at least 25 %"), "{text}");
    record.backings[1].failed = Some(7);
    let html = render::html::page(&show::page(&record)).unwrap();
    assert!(html.contains("dram 1.00, swap 0.75."), "an edge was found");
}

#[test]
fn a_search_that_was_cut_short_does_not_say_that_it_ended() {
    let mut record = record();
    let text = |record: &DensityRecord| render::text::page(&show::page(record), TextOptions::default());
    assert!(text(&record).contains("swap: the search ended at its maximum"), "{}", text(&record));
    record.status = Status::Interrupted;
    assert!(!text(&record).contains("ended at its maximum"), "{}", text(&record));
    assert!(text(&record).contains("swap: no edge was found before the run was cut short."));
    // Between 6 and 9 nothing was tried.
    (record.backings[1].failed, record.backings[1].edge) = (Some(9), Some("why".to_owned()));
    assert!(text(&record).contains("dram 4, swap at least 6\n"), "{}", text(&record));
}

#[test]
fn a_number_that_was_tried_twice_is_what_the_second_trial_said() {
    let mut record = record();
    let twice = |number, avg_us| [trial(number, avg_us * 4, false), trial(number, avg_us, number < 7)];
    // The numbers by which it is compared and drawn held at the second trial; 7 missed both times.
    record.backings[1] = Backing {
        failed: Some(7),
        edge: Some("why it failed".to_owned()),
        trials: [twice(4, 50), twice(6, 60), twice(7, 90)].concat(),
        ..record.backings[1].clone()
    };
    assert_eq!(show::compare_backings(&record)[0].average, Some(2.0));
    let page = show::page(&record);
    let text = render::text::page(&page, TextOptions::default());
    assert!(text.contains("swap: not with 7. why it failed. It was tried twice.\n"), "{text}");
    assert!(text.contains("swap: with 4, 6 it missed once and held when tried again.\n"), "{text}");
    assert!(text.contains("4: instance 0: avg too much\n  4 again: the objective holds\n"), "{text}");
    assert!(text.contains("\n4          200 us") && text.contains("\n4 again   50.0 us"), "{text}");
    let html = render::html::page(&page).unwrap();
    assert!(html.contains("Average latency with 4 instances: dram 25.0 us, swap 50.0 us"), "its description");
    let lines = page.sections.iter().flat_map(|section| &section.charts).flat_map(|chart| &chart.lines);
    for (name, points) in lines.filter(|line| line.0 == "swap") {
        let numbers: Vec<f64> = points.iter().map(|point| point.0).collect();
        assert_eq!(numbers, [4.0, 6.0, 7.0], "{name}");
    }
    let log = render::hlog::density_log(&record).unwrap();
    assert!(log.contains("Tag=swap-4-instances,") && log.contains("Tag=swap-4-instances-again,"), "{log}");
    // A run that ends before the second trial says so.
    record.backings[1].trials.pop();
    record.status = Status::Interrupted;
    let text = render::text::page(&show::page(&record), TextOptions::default());
    assert!(text.contains("swap: not with 7. why it failed. It was not tried again.\n"), "{text}");
}

#[test]
fn a_record_of_before_prices_still_reads() {
    let text = record().to_json_pretty().unwrap();
    let fields = ["price_ratio", "ssd_bytes", "cost_each"];
    let is_old = |line: &&str| !fields.iter().any(|field| line.contains(field));
    let old: String = text.lines().filter(is_old).collect();
    assert_eq!(DensityRecord::from_json(&old).unwrap(), record());
}
