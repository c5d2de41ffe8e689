//! A record for the terminal, in the table shapes of the evaluation guide.
//!
//! Everything fits the given width: tables that are too wide continue below, sentences wrap. Whether colour
//! is wanted (NO_COLOR, a pipe) is the caller's business.

mod ablation;
mod layout;
mod paging;
mod tables;
mod topology;

use super::summary;
use crate::compare::Comparison;
use crate::published::titles_of_guides_in;
use crate::record::{Finding, FindingStatus, Fix, Record, Status, TargetKind, Verdict};
use crate::show;
pub use ablation::ablation;
pub use layout::shown;
use layout::wrap;
use overdrive_base::time::format_duration;
pub use paging::paging;
use std::time::Duration;
pub use topology::topology;

/// How to write for a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOptions {
    /// Columns to fit in; at least 40 are used.
    pub width: usize,
    /// Whether ANSI colours may be used.
    pub colour: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self { width: 80, colour: false }
    }
}

/// The whole record as text.
#[must_use]
pub fn record(record: &Record, options: TextOptions) -> String {
    let page = Page { width: options.width.max(40), colour: options.colour };
    let mut parts = vec![page.head(record)];
    parts.extend(record.notes.iter().map(|note| wrap(note, page.width, "Note: ", "      ")));
    parts.extend(record.paging.as_ref().map(|run| paging(run, &[], options)));
    parts.extend(tables::latency(record, &page));
    parts.extend(tables::cpu(record, &page));
    parts.extend(tables::details(record, &page));
    let guides = titles_of_guides_in(&parts.concat());
    parts.push(guides.iter().map(|title| wrap(title, page.width, "", "  ")).collect());
    parts.extend(page.verdicts(record));
    parts.extend(page.findings(&record.findings));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

/// The findings of an audit as text; empty when there are none.
#[must_use]
pub fn findings(findings: &[Finding], options: TextOptions) -> String {
    let page = Page { width: options.width.max(40), colour: options.colour };
    page.findings(findings).unwrap_or_default()
}

/// A page of values as text: its tables and sentences, without its charts.
#[must_use]
pub fn page(page: &crate::page::Page, options: TextOptions) -> String {
    let width = options.width.max(40);
    let mut text = wrap(&page.title, width, "", "");
    text.extend(page.lead.iter().map(|line| wrap(line, width, "", "  ")));
    text.extend(page.warnings.iter().map(|line| wrap(line, width, "! ", "  ")));
    // What is made of charts alone has nothing to show here.
    let has_words = |section: &&crate::page::Section| !section.tables.is_empty() || !section.notes.is_empty();
    for section in page.sections.iter().filter(has_words) {
        text += &format!("\n{}\n", section.heading);
        for table in &section.tables {
            let grid = layout::Grid { keys: 1, header: table.header.clone(), rows: table.rows.clone() };
            text += &grid.draw(width);
        }
        text.extend(section.notes.iter().map(|line| wrap(line, width, "  ", "  ")));
    }
    text
}

/// One line as a paragraph, indented from its second line on.
#[must_use]
pub fn paragraph(line: &str, width: usize) -> String {
    wrap(line, width, "", "  ")
}

/// Titled paragraphs, the titles in a column of their own.
#[must_use]
pub fn sections(sections: &[(&str, String)], options: TextOptions) -> String {
    let width = options.width.max(40);
    let column = sections.iter().map(|(title, _)| title.chars().count()).max().unwrap_or(0) + 2;
    let rest = " ".repeat(column);
    sections.iter().map(|(title, text)| wrap(text, width, &format!("{title:<column$}"), &rest)).collect()
}

/// A comparison as text.
#[must_use]
pub fn comparison(comparison: &Comparison, options: TextOptions) -> String {
    let page = Page { width: options.width.max(40), colour: options.colour };
    tables::comparison(comparison, &page)
}

/// Where the text goes.
struct Page {
    width: usize,
    colour: bool,
}

impl Page {
    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn heading(&self, text: &str) -> String {
        wrap(text, self.width, "", "").lines().map(|line| self.paint("1", line) + "\n").collect()
    }

    fn head(&self, record: &Record) -> String {
        let title = format!("{} {}: {}", record.tool.name, record.tool.version, record.target.path);
        let has_drive = record.target.kind != TargetKind::Memory;
        let mut lines = vec![("Target", show::target(record))];
        lines.extend(has_drive.then(|| ("Drive", show::drive(record))));
        if let Some(host) = show::host(&record.host) {
            lines.push(("Host", host));
        }
        lines.extend(has_drive.then(|| ("Prepared", show::preconditioning(record))));
        if let Some(test) = &record.self_test {
            lines.extend(["Clock", "CPU noise", "Ring"].into_iter().zip(show::self_test(test)));
        }
        let elapsed = format_duration(Duration::try_from_secs_f64(record.elapsed_s).unwrap_or_default());
        lines.push(("Started", format!("{}, took {elapsed}, seed {}", record.started_at, record.seed)));
        let mut text = self.heading(&title);
        for (label, value) in lines {
            text += &wrap(&value, self.width, &format!("{label:<11}"), &" ".repeat(11));
        }
        text + &self.trouble(&record.status)
    }

    fn trouble(&self, status: &Status) -> String {
        let trouble = show::trouble(status).map(|trouble| wrap(&trouble, self.width, "", ""));
        trouble.map_or(String::new(), |trouble| self.paint("1;31", trouble.trim_end()) + "\n")
    }

    fn verdicts(&self, record: &Record) -> Option<String> {
        let verdicts = summary::verdicts(record);
        let mut text = String::new();
        for (warning, count) in &verdicts.shared {
            let warning = format!("for {count} of the lines below: {warning}");
            text += &self.paint("33", &wrap(&warning, self.width, "! ", "  "));
        }
        text.extend(verdicts.lines.iter().map(|(name, verdict)| self.one_verdict(name, verdict)));
        (!text.is_empty()).then(|| self.heading("What limited each workload") + &text)
    }

    fn one_verdict(&self, name: &str, verdict: &Verdict) -> String {
        let (limit, sure) = (show::limit(verdict.limit), show::confidence(verdict.confidence));
        let mut text = wrap(name, self.width, "", "  ");
        text += &format!("  limited by: {} ({sure})\n", self.paint("1", limit));
        text.extend(verdict.because.first().map(|because| wrap(because, self.width, "  ", "  ")));
        for warning in &verdict.warnings {
            text += &self.paint("33", &wrap(warning, self.width, "  ! ", "    "));
        }
        text
    }

    fn findings(&self, findings: &[Finding]) -> Option<String> {
        if findings.is_empty() {
            return None;
        }
        let mut sorted: Vec<&Finding> = findings.iter().collect();
        sorted.sort_by_key(|finding| finding.status);
        let mut text = self.heading("Findings on this host");
        let told = [FindingStatus::Problem, FindingStatus::Advice, FindingStatus::Unknown];
        let told: Vec<&&Finding> = sorted.iter().filter(|finding| told.contains(&finding.status)).collect();
        if !told.is_empty() {
            // "problem Nothing else is busy" would read as if that were the problem.
            text += &wrap("Each names what is wanted, then what was found.", self.width, "", "");
        }
        text.extend(told.into_iter().map(|finding| self.finding(finding)));
        let count = |status| findings.iter().filter(|finding| finding.status == status).count();
        let fine = format!(
            "As they should be: {}; not applicable here: {}.",
            count(FindingStatus::Ok),
            count(FindingStatus::NotApplicable)
        );
        text += &wrap(&fine, self.width, "", "");
        Some(text)
    }

    fn finding(&self, finding: &Finding) -> String {
        let colour = match finding.status {
            FindingStatus::Problem => "1;31",
            FindingStatus::Advice => "33",
            _ => "2",
        };
        let status = show::finding(finding.status);
        let title = format!("{} ({})", finding.title, finding.rule);
        let mut text = wrap(&title, self.width, &format!("{status:<8}"), "        ");
        if self.colour {
            text = text.replacen(status, &self.paint(colour, status), 1);
        }
        let unverified = if finding.verified { "" } else { " (unverified)" };
        text += &wrap(&format!("{}{unverified}", finding.reason), self.width, "        ", "        ");
        if let Some(fix) = finding.fix.as_ref().and_then(Fix::first) {
            text += &wrap(fix, self.width, "        fix: ", "             ");
        }
        text
    }
}

#[cfg(test)]
mod tests;
