//! The parts of the page that are told rather than plotted: summary, findings, facts, self-test, method.

use crate::published::titles_of_guides;
use crate::record::{Fact, FactState, Finding, FindingStatus, Fix, Limit, Operation, Record, TargetKind};
use crate::render::summary::{self, Verdicts};
use crate::show;
use maud::{Markup, html};
use overdrive_base::time::format_duration;
use std::time::Duration;

/// Headline figures, what limited each workload, what to mend.
pub(super) fn summary(record: &Record) -> Markup {
    let verdicts = summary::verdicts(record);
    let count = |status| record.findings.iter().filter(|finding| finding.status == status).count();
    let (problems, advice) = (count(FindingStatus::Problem), count(FindingStatus::Advice));
    html! {
        section id="summary" {
            h2 { "Summary" }
            @if record.workloads.is_empty() && record.paging.is_none() { p { "No workload was measured." } }
            dl.cards {
                @for headline in summary::headlines(record) {
                    div.card {
                        dt { (headline.name) }
                        dd.value { (headline.value) " " span { (headline.unit) } }
                        dd.detail { (headline.detail) }
                        @if let Some(published) = headline.published { dd.detail { (published) } }
                    }
                }
            }
            @if !verdicts.lines.is_empty() {
                h3 { "What limited each workload" }
                (verdict_table(&verdicts))
            }
            @if problems + advice > 0 {
                @let plural = if problems == 1 { "" } else { "s" };
                h3 { "What to mend: " (problems) " problem" (plural) ", " (advice) " advised" }
                (fixes(&record.findings))
            }
        }
    }
}

fn verdict_table(summary: &Verdicts) -> Markup {
    html! {
        @for (warning, count) in &summary.shared {
            p.warn { "Caution, for " (count) " of the lines below: " (warning) }
        }
        div.scroll.stack tabindex="0" role="region" aria-label="What limited each workload" {
            table {
                thead { tr {
                    th scope="col" { "Workload" }
                    th.text scope="col" { "Limited by" }
                    th.text scope="col" { "Evidence" }
                } }
                tbody {
                    @for (name, verdict) in &summary.lines {
                        tr {
                            th.wrap scope="row" { (name) }
                            td.text {
                                span class=(format!("pill {}", limit_class(verdict.limit))) { (show::limit(verdict.limit)) }
                                small { (show::confidence(verdict.confidence)) }
                            }
                            td.text.wrap {
                                @for (index, because) in verdict.because.iter().enumerate() {
                                    @if index == 0 { div { (because) } } @else { small { (because) } }
                                }
                                @for warning in &verdict.warnings { div.warn { "Caution: " (warning) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn limit_class(limit: Limit) -> &'static str {
    match limit {
        Limit::Device => "device",
        Limit::QueueDepth => "good",
        Limit::Cpu | Limit::Link => "warn",
        Limit::Tool | Limit::HostNoise => "bad",
        Limit::Pace | Limit::Unknown => "plain",
    }
}

fn fixes(findings: &[Finding]) -> Markup {
    let mut mendable: Vec<&Finding> = findings
        .iter()
        .filter(|finding| matches!(finding.status, FindingStatus::Problem | FindingStatus::Advice))
        .collect();
    mendable.sort_by_key(|finding| finding.status);
    html! {
        ul.plain-list {
            @for finding in mendable {
                li.panel {
                    (status(finding.status)) " " (finding.title)
                    p.muted { (finding.reason) }
                    @match finding.fix.as_ref().and_then(Fix::first) {
                        Some(fix) => pre tabindex="0" { (fix) },
                        None => p.muted { "No command mends this; see the finding below." },
                    }
                }
            }
        }
    }
}

fn status(status: FindingStatus) -> Markup {
    let class = match status {
        FindingStatus::Problem => "bad",
        FindingStatus::Advice => "warn",
        FindingStatus::Ok => "good",
        FindingStatus::Unknown | FindingStatus::NotApplicable => "plain",
    };
    html! { span class=(format!("pill {class}")) { (show::finding(status)) } }
}

/// Every finding with its evidence; what is as it should be stands folded.
pub(super) fn findings(findings: &[Finding]) -> Markup {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| finding.status);
    let fine =
        |finding: &&Finding| matches!(finding.status, FindingStatus::Ok | FindingStatus::NotApplicable);
    let (quiet, told): (Vec<&Finding>, Vec<&Finding>) = sorted.into_iter().partition(fine);
    html! {
        @if !findings.is_empty() {
            section id="findings" {
                h2 { "Findings on this host" }
                @for finding in told { (one_finding(finding)) }
                @if !quiet.is_empty() {
                    details {
                        summary { (quiet.len()) " as they should be or not applicable here" }
                        @for finding in quiet { (one_finding(finding)) }
                    }
                }
            }
        }
    }
}

fn one_finding(finding: &Finding) -> Markup {
    let checked = if finding.verified { "" } else { " (unverified)" };
    let texts = [
        ("Here", finding.reason.clone()),
        ("Why", finding.why.clone()),
        ("Effect", finding.effect.clone()),
        ("Risk", show::risk(&finding.risk)),
        ("Source", format!("{}{checked}", finding.source)),
    ];
    html! {
        article.panel {
            h3 { (status(finding.status)) " " (finding.title) }
            small { (finding.rule) ", " (finding.scope) }
            dl {
                @for evidence in &finding.evidence {
                    dt { "Read" }
                    dd { code { (evidence.path) } " = " code { (evidence.read) } }
                }
                @for (name, text) in texts { @if !text.is_empty() { dt { (name) } dd { (text) } } }
                @if let Some(fix) = &finding.fix {
                    @if !fix.now.is_empty() { dt { "Fix now" } dd { code { (fix.now) } } }
                    @if !fix.persistent.is_empty() { dt { "For good" } dd { code { (fix.persistent) } } }
                }
                @if let Some(undo) = &finding.undo { dt { "Undo" } dd { code { (undo) } } }
            }
        }
    }
}

/// The target's way down to the hardware, and the host.
pub(super) fn facts(record: &Record) -> Markup {
    html! {
        section id="facts" {
            h2 { "Facts" }
            @for layer in &record.target.layers {
                @if !layer.facts.is_empty() {
                    (fact_table(&format!("{}: {}", layer.kind.replace('_', " "), layer.name), &layer.facts))
                }
            }
            @if !record.host.facts.is_empty() { (fact_table("Host", &record.host.facts)) }
            p.muted { "Digest of the host facts: " code { (record.host.digest) } }
        }
    }
}

fn fact_table(name: &str, facts: &[Fact]) -> Markup {
    html! {
        h3 { (name) }
        div.scroll.stack tabindex="0" role="region" aria-label=(name) {
            table.facts {
                thead { tr { th scope="col" { "Fact" } th.text scope="col" { "Value" } th.text scope="col" { "Read from" } } }
                tbody {
                    @for fact in facts {
                        tr {
                            th scope="row" { (fact.label) small { (fact.id) } }
                            td.text.wrap { (fact_value(fact)) }
                            td.text.wrap { @if let Some(path) = &fact.path { code { (path) } } }
                        }
                    }
                }
            }
        }
    }
}

fn fact_value(fact: &Fact) -> Markup {
    let why = fact.why.as_deref().unwrap_or("no reason given");
    html! {
        @match fact.state {
            FactState::Known => (fact.value.as_deref().unwrap_or("")),
            FactState::Absent => { span.plain { "absent" } small { (why) } },
            FactState::Unreadable => { span.warn { "could not be read" } small { (why) } },
        }
    }
}

/// What the tool found about itself.
pub(super) fn self_test(record: &Record) -> Markup {
    let Some(test) = &record.self_test else { return html! {} };
    let [clock, noise, ring] = show::self_test(test);
    let list =
        |features: &[String]| if features.is_empty() { "none".to_owned() } else { features.join(", ") };
    html! {
        section id="self-test" {
            h2 { "Self-test of the tool" }
            div.panel {
                dl {
                    dt { "Clock" } dd { (clock) }
                    dt { "CPU noise" } dd { (noise) }
                    dt { "io_uring" } dd { (ring) }
                    dt { "Granted" } dd { (list(&test.ring.granted)) }
                    dt { "Refused" } dd { (list(&test.ring.refused)) }
                }
            }
            @if !test.noise.is_empty() { (noise_table(&test.noise)) }
        }
    }
}

fn noise_table(noise: &[crate::record::Noise]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Noise of each CPU" {
            table {
                @let heads = ["CPU", "watched", "gaps", "99.99 % gap", "longest gap", "time lost"];
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody {
                    @for cpu in noise {
                        tr {
                            th scope="row" { (cpu.cpu) }
                            td { (format!("{:.1} s", cpu.observed_s)) }
                            td { (show::grouped(cpu.gaps)) }
                            td { (show::ns(cpu.p99_99_gap_ns as f64)) }
                            td { (show::ns(cpu.longest_gap_ns as f64)) }
                            td { (format!("{:.2} %", cpu.share_lost_percent)) }
                        }
                    }
                }
            }
        }
    }
}

/// When I/Os were started: each way that any workload has, once.
fn loops(record: &Record) -> String {
    each_once(record.workloads.iter().map(|workload| {
        let detail = workload.job.detail.as_ref();
        if detail.is_some_and(|detail| detail.arrivals.is_some()) {
            "on a schedule (open loop: an I/O starts when it is due, whether or not earlier ones have completed)"
        } else if detail.is_some_and(|detail| detail.think_time_ns.is_some()) {
            "with pauses between I/Os (closed loop with think time)"
        } else {
            "at a fixed number of I/Os in flight (closed loop: the next I/O starts when one completes)"
        }
    }))
}

/// What writes carried, if any workload wrote.
fn contents(record: &Record) -> Option<String> {
    let writing = record
        .workloads
        .iter()
        .filter(|workload| matches!(workload.job.operation, Operation::Write | Operation::Mixed));
    let told = each_once(writing.map(|workload| {
        let detail = workload.job.detail.as_ref();
        if detail.is_some_and(|detail| detail.compressible_percent.is_some_and(|percent| percent > 0)) {
            "can be compressed in part, as asked"
        } else if detail.is_some_and(|detail| detail.buffer_pattern.is_some()) {
            "repeats a pattern, as asked, which a drive can compress"
        } else {
            "is random, so that no drive can compress it"
        }
    }));
    Some(told).filter(|told| !told.is_empty())
}

fn each_once<'a>(phrases: impl Iterator<Item = &'a str>) -> String {
    let mut told: Vec<&str> = Vec::new();
    for phrase in phrases {
        if !told.contains(&phrase) {
            told.push(phrase);
        }
    }
    told.join(", or ")
}

/// How the figures came about.
pub(super) fn method(record: &Record) -> Markup {
    let direct = match record.target.kind {
        TargetKind::Sim => {
            "The device is simulated in virtual time: figures show the tool at work, not a drive."
        }
        TargetKind::Memory => {
            "One word of one page of 4 KiB at a time was read or written by a process of its own, every access timed; the \
             backings took turns."
        }
        _ if record.target.direct => "The target was opened with O_DIRECT, so the page cache took no part.",
        _ => "The target was opened without O_DIRECT: the page cache took part, and figures are of both.",
    };
    html! {
        section id="method" {
            h2 { "How these numbers were obtained" }
            p {
                @if record.target.kind != TargetKind::Memory { "Target: " (show::preconditioning(record)) ". " }
                (direct)
            }
            @if !record.workloads.is_empty() {
                p {
                    "Each workload ran on pinned threads, each with its own engine, " (loops(record))
                    ". Offsets follow from seed " (record.seed)
                    @if let Some(contents) = contents(record) { "; what was written " (contents) }
                    "."
                }
                p {
                    "Latency runs from just before an I/O is handed to the kernel until its completion is seen. Every I/O "
                    "is counted in a histogram whose buckets are at most 0.8 % wide; nothing is averaged away or clipped."
                }
                p {
                    "A percentile is shown when at least one sample is expected beyond it. With fewer, the cell holds the "
                    "lower bound (≥) that the samples allow at 95 % confidence. Intervals are 95 % intervals from order "
                    "statistics; they assume independent samples, and since latencies come in bursts, the true doubt is "
                    "larger."
                }
                p {
                    "Verdicts weigh CPU time, I/Os in flight, neighbouring depths, the link, the ring's own ceiling and the "
                    "disk's counters, and say how sure they are. Published figures are those of the guides named beside "
                    "them; other hosts, kernels and tools gave them: " (titles_of_guides()) "."
                }
            }
        }
    }
}

/// What was run, by what, and which record this page shows.
pub(super) fn provenance(record: &Record, digest: &str) -> Markup {
    let elapsed = format_duration(Duration::try_from_secs_f64(record.elapsed_s).unwrap_or_default());
    html! {
        footer {
            div { "Command: " code { (record.command.join(" ")) } }
            div { (record.tool.name) " " (record.tool.version) ", started " (record.started_at) ", took " (elapsed) }
            div { "SHA-256 of the record (" (record.schema) "): " code { (digest) } }
        }
    }
}
