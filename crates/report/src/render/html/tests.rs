//! What must hold of every page, whatever the record says.

use super::*;
use crate::compare::compare;
use crate::fixtures;
use crate::record::Group;
use crate::verdict::judge_all;
use proptest::prelude::*;

fn page(mut record: Record, against: Option<&Record>) -> String {
    judge_all(&mut record);
    let comparison = against.map(|before| compare(before, &record));
    report(&record, comparison.as_ref()).unwrap()
}

/// Writes the pages to the directory OVERDRIVE_PAGES, to be looked at.
#[test]
fn pages_for_the_eye() {
    let Ok(directory) = std::env::var("OVERDRIVE_PAGES") else { return };
    let write = |name: &str, text: String| std::fs::write(format!("{directory}/{name}.html"), text).unwrap();
    write("optane", page(fixtures::optane(), None));
    write("virtio", page(fixtures::virtio(), Some(&fixtures::optane())));
    write("interrupted", page(fixtures::interrupted(), None));
    write("empty", page(fixtures::empty(), None));
    let mut drawn = fixtures::optane();
    drawn.topology = Some(a_topology());
    write("topology", page(drawn, None));
    write("paging", page(a_paging_run(), None));
}

/// The record of a paging run, which has no workload.
fn a_paging_run() -> Record {
    let mut record = fixtures::empty();
    record.target.kind = TargetKind::Memory;
    record.paging = Some(crate::render::paging::tests::paging());
    record
}

#[test]
fn a_paging_run_has_its_table_its_scaling_and_its_histograms() {
    let text = page(a_paging_run(), None);
    for wanted in [
        "href=\"#paging\"",
        "swap/dram",
        "0.0100 (0.0100 to 0.0100)",
        "pages a second against threads",
        "where the latencies lie",
        "of DRAM behind the backings",
    ] {
        assert!(text.contains(wanted), "{wanted}");
    }
    assert!(!text.contains("No workload was measured"));
    assert_eq!(text.matches("<figure>").count(), 3);
    assert!(!page(fixtures::optane(), None).contains("id=\"paging\""));
}

#[test]
fn a_page_holds_all_it_promises() {
    let text = page(fixtures::optane(), Some(&fixtures::virtio()));
    for wanted in [
        "INTEL SSDPED1K375GA",
        "echo none &gt; /sys/block/vda/queue/scheduler",
        "guide 000",
        "permission denied",
    ] {
        assert!(text.contains(wanted), "{wanted}");
    }
    for id in ["summary", "against", "curves", "workloads", "findings", "facts", "self-test", "method"] {
        assert!(text.contains(&format!("id=\"{id}\"")), "{id}");
    }
    // Four families of percentiles and of rates over time, two of the ramp; each drawn wide and narrow.
    assert_eq!(text.matches("<figure>").count(), 10);
    assert_eq!(text.matches("role=\"img\"").count(), 20);
    assert_eq!(text.matches("<desc ").count(), 20);
    assert!(text.contains(&fixtures::optane().workloads[0].title));
}

/// Two drives on one bridge that carries less than both.
fn a_topology() -> crate::record::Topology {
    use crate::record::{Topology, TopologyDrive, TopologyVertex};
    let vertex = |id: &str, kind: &str, above: Option<&str>, now: Option<u64>, needed: u64| TopologyVertex {
        id: id.to_owned(),
        kind: kind.to_owned(),
        above: above.map(str::to_owned),
        remark: String::new(),
        link: (kind == "drive").then(|| "8 GT/s x4".to_owned()),
        link_possible: (kind == "drive").then(|| "16 GT/s x4".to_owned()),
        now_bytes_per_s: now,
        possible_bytes_per_s: now,
        needed_bytes_per_s: needed,
        carried_bytes_per_s: now.map_or(needed, |now| now.min(needed)),
        gain_bytes_per_s: 0,
        capacity_source: String::new(),
        drives: if kind == "drive" { 1 } else { 2 },
        downgraded: kind == "drive",
        saturated: now.is_some_and(|now| now < needed),
        drive: (kind == "drive").then(|| TopologyDrive {
            disks: vec![format!("disk<{id}>")],
            model: Some("A drive with a name that is longer than its box".to_owned()),
            needed_source: String::new(),
            queues: "2 queues, one CPU each".to_owned(),
            interrupts: "2 interrupts on CPUs 0-1".to_owned(),
        }),
    };
    Topology {
        needed_bytes_per_s: 8_000_000_000,
        ceiling_bytes_per_s: 5_000_000_000,
        ceiling_full_links_bytes_per_s: 5_000_000_000,
        vertices: vec![
            vertex("node0", "node", None, None, 8_000_000_000),
            vertex("pci0000:40", "host_bridge", Some("node0"), Some(5_000_000_000), 8_000_000_000),
            vertex("0000:41:00.0", "drive", Some("pci0000:40"), Some(4_000_000_000), 4_000_000_000),
            vertex("0000:42:00.0", "drive", Some("pci0000:40"), Some(4_000_000_000), 4_000_000_000),
        ],
        saturated: vec!["pci0000:40".to_owned()],
        moves: Vec::new(),
        left_out: Vec::new(),
    }
}

#[test]
fn a_topology_is_drawn_with_every_edge_and_name() {
    let mut record = fixtures::optane();
    record.topology = Some(a_topology());
    let text = page(record, None);
    let drawing = text.split("<svg class=\"topology\"").nth(1).unwrap().split("</svg>").next().unwrap();
    assert_eq!((drawing.matches("<rect").count(), drawing.matches("<path").count()), (4, 3));
    assert_eq!(drawing.matches("edge bad").count(), 1);
    assert_eq!(drawing.matches("edge warn").count(), 2);
    assert!(drawing.contains("5.00/8.00") && drawing.contains("disk&lt;0000:41:00.0&gt;"), "{drawing}");
    assert!(text.contains("href=\"#topology\"") && text.contains("it carries 5.00 of 8.00 GB/s"));
    assert!(!page(fixtures::optane(), None).contains("id=\"topology\""));
}

#[test]
fn a_page_needs_no_network_and_no_script() {
    let text = page(fixtures::virtio(), Some(&fixtures::optane()));
    let name_space = "http://www.w3.org/2000/svg";
    assert!(!text.replace(name_space, "").contains("://"), "a link to elsewhere");
    for banned in ["<script", "<link", "<img", "@import", "url(", "onload", "javascript:"] {
        assert!(!text.contains(banned), "{banned}");
    }
}

#[test]
fn ids_are_unique_and_references_resolve() {
    let text = page(fixtures::optane(), Some(&fixtures::virtio()));
    let ids: Vec<&str> = text.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let unique: std::collections::BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(ids.len(), unique.len());
    for target in text.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(unique.contains(target), "#{target}");
    }
}

#[test]
fn the_method_is_that_of_the_workloads() {
    use crate::record::{JobDetail, Operation};
    let text = page(fixtures::optane(), None);
    assert!(
        text.contains("at a fixed number of I/Os in flight (closed loop") && !text.contains("open loop:")
    );
    assert!(text.contains("; what was written is random, so that no drive can compress it."));
    let text = page(fixtures::open_loop(), None);
    assert!(
        text.contains("on a schedule (open loop") && !text.contains("at a fixed number of I/Os in flight")
    );
    assert!(!text.contains("; what was written"), "it only reads");
    let written = |detail: JobDetail| {
        let mut record = fixtures::open_loop();
        record.workloads[0].job.operation = Operation::Write;
        record.workloads[0].job.detail = Some(detail);
        page(record, None)
    };
    let zeroes = written(JobDetail { buffer_pattern: Some("00".to_owned()), ..JobDetail::default() });
    assert!(zeroes.contains("repeats a pattern") && !zeroes.contains("is random, so"));
    let half = written(JobDetail { compressible_percent: Some(50), ..JobDetail::default() });
    assert!(half.contains("can be compressed in part") && !half.contains("is random, so"));
    let pauses = written(JobDetail { think_time_ns: Some(1000), ..JobDetail::default() });
    assert!(pauses.contains("with pauses between I/Os") && pauses.contains("is random, so"));
}

#[test]
fn a_record_without_results_is_still_a_page() {
    let text = page(fixtures::empty(), None);
    assert!(text.contains("No such file or directory") && text.contains("No workload was measured"));
    assert!(!text.contains("<figure>"));
    let text = page(fixtures::interrupted(), None);
    assert!(text.contains("was interrupted") && text.contains("It ended after 1.2 s of 4.0 s."));
}

#[test]
fn failed_ios_are_shown_where_the_figures_are() {
    let mut record = fixtures::virtio();
    record.workloads.retain(|workload| workload.group == Group::RandomWrite);
    let outcome = &mut record.workloads[0].outcome;
    (outcome.ios, outcome.write) = (0, None);
    outcome.errors.push(crate::record::ErrorCount {
        operation: crate::record::Operation::Write,
        errno: 5,
        name: "EIO".to_owned(),
        count: 12_345,
        first_offset: None,
    });
    let text = page(record, None);
    assert!(text.contains("12 345 × EIO") && text.contains("no I/O completed"));
}

/// The value of a colour variable in one block of the style sheet.
fn colours(block: &str) -> impl Iterator<Item = (&str, [f64; 3])> {
    block.split("--").skip(1).filter_map(|rest| {
        let (name, value) = rest.split_once(": #")?;
        let channel = |at: usize| u8::from_str_radix(value.get(at..at + 2)?, 16).ok();
        Some((name, [channel(0)?, channel(2)?, channel(4)?].map(|c| f64::from(c) / 255.0)))
    })
}

/// The contrast of WCAG 2: 1 is none, 21 is black on white.
fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let luminance = |rgb: [f64; 3]| {
        let linear = rgb.map(|c| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    };
    let (a, b) = (luminance(one), luminance(other));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn every_text_colour_can_be_read_in_every_theme() {
    let themes: Vec<&str> =
        STYLE.split(":root {").skip(1).filter_map(|rest| rest.split('}').next()).collect();
    assert_eq!(themes.len(), 3);
    for theme in themes {
        let colours: std::collections::BTreeMap<&str, [f64; 3]> = colours(theme).collect();
        let texts =
            ["ink", "muted", "accent", "good", "warn", "bad", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8"];
        for text in texts {
            for ground in ["page", "card", "soft"].into_iter().take(if text.starts_with('s') { 2 } else { 3 })
            {
                let contrast = contrast(colours[text], colours[ground]);
                assert!(contrast >= 4.5, "{text} on {ground}: {contrast:.2}");
            }
        }
    }
}

/// A record in which every text that came from outside is `text`.
fn with_text(text: &str) -> Record {
    let mut record = fixtures::virtio();
    record.workloads.truncate(2);
    record.workloads[1].notes.push(text.to_owned());
    for place in
        [&mut record.target.spec, &mut record.target.path, &mut record.started_at, &mut record.host.digest]
    {
        text.clone_into(place);
    }
    for place in [
        &mut record.target.model,
        &mut record.target.serial,
        &mut record.target.firmware,
        &mut record.target.disk,
    ] {
        *place = Some(text.to_owned());
    }
    record.command = vec![text.to_owned()];
    record.notes = vec![text.to_owned()];
    record.status = crate::record::Status::Failed { reason: text.to_owned() };
    for workload in &mut record.workloads {
        for place in [&mut workload.id, &mut workload.title, &mut workload.job.engine] {
            text.clone_into(place);
        }
    }
    for finding in &mut record.findings {
        for place in
            [&mut finding.rule, &mut finding.scope, &mut finding.title, &mut finding.reason, &mut finding.why]
        {
            text.clone_into(place);
        }
        finding.undo = Some(text.to_owned());
        finding.evidence[0].read = text.to_owned();
        finding.fix = Some(crate::record::Fix { now: text.to_owned(), persistent: text.to_owned() });
    }
    for fact in &mut record.host.facts {
        for place in [&mut fact.value, &mut fact.why, &mut fact.path] {
            *place = Some(text.to_owned());
        }
        text.clone_into(&mut fact.label);
    }
    record.target.layers[0].name = text.to_owned();
    record
}

/// The marks that make markup. Text must never add one.
fn marks(page: &str) -> [usize; 4] {
    ['<', '>', '"', '&'].map(|mark| page.matches(mark).count())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn no_text_can_become_markup(text in "x[<>\"'/a-z!= -]{0,24}") {
        let plain = page(with_text("x"), None);
        let hostile = page(with_text(&text), None);
        let (plain, hostile) = (marks(&plain), marks(&hostile));
        prop_assert_eq!(&plain[..3], &hostile[..3], "{}", text);
    }

    #[test]
    fn no_number_breaks_a_rendering(pick in prop::collection::vec(0usize..6, 16)) {
        let float = |at: usize| [0.0, 1.0, -1.0, f64::NAN, f64::INFINITY, 1e300][pick[at]];
        let whole = |at: usize| [0, 1, 2, u64::MAX, u64::MAX / 2, 1 << 40][pick[at]];
        let mut record = fixtures::virtio();
        record.elapsed_s = float(0);
        record.self_test.as_mut().unwrap().ring.nops_per_s = Some(float(1));
        let workload = &mut record.workloads[2];
        workload.job.queue_depth_total = whole(2) as u32;
        workload.job.workers = whole(3) as u32;
        let outcome = &mut workload.outcome;
        (outcome.ios, outcome.bytes, outcome.short_ios) = (whole(4), whole(5), whole(6));
        (outcome.iops, outcome.bytes_per_s, outcome.elapsed_s) = (float(7), float(8), float(9));
        let cpu = outcome.cpu.as_mut().unwrap();
        (cpu.voluntary_switches, cpu.involuntary_switches) = (whole(10), whole(11));
        outcome.device_ios.as_mut().unwrap().reads = whole(12);
        outcome.series[3] = crate::record::Slice { at_s: float(13), ios: whole(14), bytes: whole(14), max_ns: whole(14) };
        outcome.read.as_mut().unwrap().latency.mean_ns = float(15);
        outcome.read.as_mut().unwrap().latency.percentiles[3].value_ns = Some(whole(14));
        judge_all(&mut record);
        let comparison = compare(&record, &fixtures::virtio());
        let text = crate::render::text::record(&record, crate::render::text::TextOptions::default());
        prop_assert!(!text.is_empty());
        prop_assert!(report(&record, Some(&comparison)).is_ok());
    }
}
