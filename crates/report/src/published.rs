//! Published figures of known drives, to stand beside what was measured.
//!
//! The figures are those of the evaluation guides, embedded as `published.toml` with their document and
//! table. A drive without published figures is shown beside the Intel P4800X, plainly called a yardstick.
//! Figures of other subjects in the file (paging, virtual machines, arrays of drives) are left alone here.

use crate::record::{Access, Job, Operation, Workload};
use serde::Deserialize;
use std::sync::LazyLock;

/// The drive every unknown drive is shown beside.
const YARDSTICK: &str = "intel-p4800x";

/// Drives with published figures: the key used in the file, the name for people, and what their models
/// contain. The P4800X comes as a card (SSDPED1K) and as a 2.5-inch drive (SSDPE21K); its desktop sisters do
/// not match.
const DRIVES: [(&str, &str, &[&str]); 1] =
    [(YARDSTICK, "Intel Optane DC P4800X", &["SSDPED1K", "SSDPE21K", "P4800X"])];

/// The documents whose figures stand beside results: their number here, and their title.
const GUIDES: [(&str, &str); 2] = [
    ("000", "Intel Optane SSD DC P4800X (Linux), Performance Evaluation Guide, June 2020"),
    ("001", "Intel Optane SSD DC P4800X Series (Windows), Performance Evaluation Guide, June 2020"),
];

/// The titles of the guides that a text names by number, in their order: `guide 000: TITLE`.
#[must_use]
pub fn titles_of_guides_in(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let names = |doc: &str| words.windows(2).any(|pair| pair[0] == "guide" && pair[1].starts_with(doc));
    GUIDES.iter().filter(|(doc, _)| names(doc)).map(|(doc, title)| format!("guide {doc}: {title}")).collect()
}

/// All of them, in one sentence.
#[must_use]
pub fn titles_of_guides() -> String {
    GUIDES.map(|(doc, title)| format!("guide {doc} is {title}")).join("; ")
}

/// One published result of a drive: latencies in microseconds, rates in operations and GB (10^9 bytes) a
/// second.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Reference {
    doc: String,
    #[serde(default)]
    table: String,
    workload: String,
    #[serde(default)]
    drive: String,
    setting: Option<String>,
    engine: Option<String>,
    driver: Option<String>,
    os: Option<String>,
    queue_depth: Option<u32>,
    avg: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
    p99_9: Option<f64>,
    p99_99: Option<f64>,
    p99_999: Option<f64>,
    p99_9999: Option<f64>,
    p99_99999: Option<f64>,
    max: Option<f64>,
    iops: Option<f64>,
    gb_per_s: Option<f64>,
}

impl Reference {
    /// The mean latency, microseconds.
    #[must_use]
    pub fn avg_us(&self) -> Option<f64> {
        self.avg
    }

    /// A percentile of the latency (such as 99.9), microseconds.
    #[must_use]
    pub fn percentile_us(&self, percentile: f64) -> Option<f64> {
        self.percentiles().into_iter().find(|(p, _)| (p - percentile).abs() < 1e-9)?.1
    }

    /// The longest latency, microseconds.
    #[must_use]
    pub fn max_us(&self) -> Option<f64> {
        self.max
    }

    /// I/Os a second.
    #[must_use]
    pub fn iops(&self) -> Option<f64> {
        self.iops
    }

    /// Bytes a second.
    #[must_use]
    pub fn bytes_per_s(&self) -> Option<f64> {
        self.gb_per_s.map(|gb| gb * 1e9)
    }

    /// The published name of the workload.
    #[must_use]
    pub fn workload(&self) -> &str {
        &self.workload
    }

    /// Document, table and setting: where the figure stands.
    #[must_use]
    pub fn source(&self) -> String {
        let table = if self.table.starts_with(|c: char| c.is_ascii_digit()) { "table " } else { "" };
        let parts = [&self.engine, &self.setting, &self.os, &self.driver];
        let settings: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
        let colon = if settings.is_empty() { "" } else { ": " };
        format!("guide {}, {table}{}{colon}{}", self.doc, self.table, settings.join(", "))
    }

    fn percentiles(&self) -> [(f64, Option<f64>); 7] {
        [
            (50.0, self.p50),
            (99.0, self.p99),
            (99.9, self.p99_9),
            (99.99, self.p99_99),
            (99.999, self.p99_999),
            (99.9999, self.p99_9999),
            (99.99999, self.p99_99999),
        ]
    }

    /// Whether `other` is the same run told in another part of the same table: rates here, latencies there.
    fn completes(&self, other: &Self) -> bool {
        let key = |r: &Self| [r.setting.clone(), r.engine.clone(), r.driver.clone(), r.os.clone()];
        let rates = |r: &Self| r.iops.is_some() || r.gb_per_s.is_some();
        (&self.doc, &self.table, &self.workload) == (&other.doc, &other.table, &other.workload)
            && key(self) == key(other)
            && rates(self) != rates(other)
    }

    fn fill(&mut self, other: &Self) {
        for (own, others) in [
            (&mut self.avg, other.avg),
            (&mut self.p99, other.p99),
            (&mut self.p99_999, other.p99_999),
            (&mut self.iops, other.iops),
            (&mut self.gb_per_s, other.gb_per_s),
        ] {
            *own = own.or(others);
        }
    }

    fn names(&self, word: &str) -> bool {
        [&self.setting, &self.engine].into_iter().flatten().any(|text| text.contains(word))
    }

    /// How well the figure fits a job: first the way completions are found, then how much was published, then
    /// the best of several settings, which is what the drive can do.
    fn rank(&self, job: &Job) -> (bool, bool, usize, u64) {
        let polled = self.names("hipri") || self.names("polling");
        let figures = self.percentiles().iter().filter(|(_, value)| value.is_some()).count();
        let rates = usize::from(self.iops.is_some()) + usize::from(self.gb_per_s.is_some());
        let rate = self.iops.or(self.bytes_per_s()).unwrap_or(0.0) as u64;
        (!self.names("spdk"), polled == job.polled, figures + rates, rate)
    }
}

/// Published figures for one workload.
#[derive(Debug, Clone)]
pub struct Beside {
    /// The drive they belong to.
    pub drive: &'static str,
    /// Whether that is another drive than the one measured.
    pub yardstick: bool,
    /// The figures, best fit first; never empty.
    pub references: Vec<&'static Reference>,
}

/// The published figures for `workload` on a drive of this `model` (or on the yardstick); none when nothing
/// comparable was published.
#[must_use]
pub fn beside(model: Option<&str>, workload: &Workload) -> Option<Beside> {
    let upper = model.unwrap_or_default().to_ascii_uppercase();
    let known = DRIVES.iter().find(|(_, _, marks)| marks.iter().any(|mark| upper.contains(mark)));
    let (key, drive, _) = known.unwrap_or(&DRIVES[0]);
    let wanted = Shape::of_job(&workload.job);
    let mut references: Vec<&Reference> = REFERENCES
        .iter()
        .filter(|(shape, reference)| reference.drive == *key && *shape == wanted)
        .map(|(_, reference)| reference)
        .collect();
    references.sort_by_key(|reference| std::cmp::Reverse(reference.rank(&workload.job)));
    (!references.is_empty()).then_some(Beside { drive, yardstick: known.is_none(), references })
}

/// The highest published rate at which a drive of this model reads, in bytes a second, and where it stands;
/// none for a drive without published figures.
#[must_use]
pub fn reads_bytes_per_s(model: &str) -> Option<(u64, String)> {
    let upper = model.to_ascii_uppercase();
    let (key, _, _) = DRIVES.iter().find(|(_, _, marks)| marks.iter().any(|mark| upper.contains(mark)))?;
    let rates = REFERENCES
        .iter()
        .filter(|(shape, reference)| reference.drive == *key && shape.operation == Operation::Read)
        .filter_map(|(_, reference)| Some((reference.bytes_per_s()? as u64, reference.source())));
    rates.max_by_key(|&(rate, _)| rate)
}

/// What must agree for two results to be comparable at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    operation: Operation,
    access: Access,
    block_size_bytes: u64,
    read_percent: u8,
    queue_depth: u32,
}

impl Shape {
    fn of_job(job: &Job) -> Self {
        Self {
            operation: job.operation,
            access: job.access,
            block_size_bytes: job.block_size_bytes,
            read_percent: job.read_percent,
            queue_depth: job.queue_depth_total,
        }
    }

    /// Reads names such as `4 KiB random 70/30 read/write, queue depth 32`; other subjects give none.
    fn of_reference(reference: &Reference) -> Option<Self> {
        let text = reference.workload.as_str();
        let (size, rest) = text.split_once("iB ")?;
        let block_size_bytes = overdrive_base::size::parse_size(&format!("{size}iB")).ok()?;
        let (access, rest) = rest.split_once(' ')?;
        let access = match access {
            "random" => Access::Random,
            "sequential" => Access::Sequential,
            _ => return None,
        };
        let (operation, read_percent) = match rest.split(',').next()? {
            "read" => (Operation::Read, 100),
            "write" => (Operation::Write, 0),
            mix => (Operation::Mixed, mix.strip_suffix(" read/write")?.split('/').next()?.parse().ok()?),
        };
        let queue_depth = match reference.queue_depth {
            Some(depth) => depth,
            None => {
                let (_, depth) = text.split_once("queue depth ")?;
                depth.split(' ').next()?.parse().ok()?
            }
        };
        Some(Self { operation, access, block_size_bytes, read_percent, queue_depth })
    }
}

#[derive(Deserialize)]
struct File {
    result: Vec<Reference>,
}

/// Every figure that is comparable with an I/O workload. The embedded file is held to its form by a test.
static REFERENCES: LazyLock<Vec<(Shape, Reference)>> = LazyLock::new(|| {
    let file = toml::from_str(include_str!("published.toml")).unwrap_or(File { result: Vec::new() });
    let mut references: Vec<(Shape, Reference)> = Vec::new();
    for entry in file.result {
        let Some(shape) = Shape::of_reference(&entry) else { continue };
        match references.iter_mut().find(|(other, reference)| *other == shape && reference.completes(&entry))
        {
            Some((_, reference)) => reference.fill(&entry),
            None => references.push((shape, entry)),
        }
    }
    references
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn first(model: Option<&str>, id: &str) -> (bool, &'static Reference) {
        let record = fixtures::optane();
        let workload = record.workloads.iter().find(|workload| workload.id == id).unwrap();
        let beside = beside(model, workload).unwrap();
        (beside.yardstick, beside.references[0])
    }

    #[test]
    fn the_embedded_file_parses_and_its_drive_figures_have_a_shape() {
        let file: File = toml::from_str(include_str!("published.toml")).unwrap();
        let drive: Vec<&Reference> = file.result.iter().filter(|entry| entry.drive == YARDSTICK).collect();
        assert!(drive.len() >= 40, "{}", drive.len());
        for entry in drive {
            assert!(Shape::of_reference(entry).is_some(), "{}", entry.workload);
        }
        assert!(REFERENCES.iter().all(|(_, entry)| !entry.drive.is_empty()));
    }

    #[test]
    fn a_polled_read_stands_beside_the_fullest_polled_row() {
        let (yardstick, reference) = first(Some("INTEL SSDPED1K375GA"), "randread-4k-pvsync2-1x1");
        assert!(!yardstick);
        assert_eq!(reference.avg_us(), Some(7.76));
        assert_eq!(reference.percentile_us(99.9999), Some(159.0));
        assert!(reference.source().contains("section 4"), "{}", reference.source());
    }

    #[test]
    fn an_interrupt_driven_read_stands_beside_an_interrupt_driven_row() {
        let (_, reference) = first(Some("INTEL SSDPE21K375GA"), "randread-4k-io_uring-1x1");
        assert_eq!(reference.source(), "guide 000, table 3: libaio");
    }

    #[test]
    fn every_guide_that_is_named_has_a_title() {
        for reference in REFERENCES.iter().map(|(_, reference)| reference) {
            assert_eq!(titles_of_guides_in(&reference.source()).len(), 1, "{}", reference.source());
        }
        assert_eq!(titles_of_guides_in("beside guide\n  001, table 5:").len(), 1);
        assert!(titles_of_guides_in("guide 002, 000").is_empty());
    }

    #[test]
    fn an_unknown_drive_gets_the_yardstick() {
        for model in [None, Some("QEMU HARDDISK"), Some("INTEL SSDPED1D280GA")] {
            let (yardstick, reference) = first(model, "randwrite-4k-io_uring-4x4");
            assert!(yardstick, "{model:?}");
            assert_eq!(reference.iops(), Some(635_000.0));
        }
    }

    #[test]
    fn depth_and_size_must_agree() {
        let (_, reference) = first(None, "seqread-64k-io_uring-1x32");
        assert_eq!(reference.bytes_per_s(), Some(2.54e9));
        let (_, reference) = first(None, "randrw70-4k-io_uring-4x8");
        assert_eq!(reference.iops(), Some(506_466.0));
        let (_, reference) = first(None, "ramp-randread-4k-io_uring-8x4");
        assert_eq!((reference.iops(), reference.percentile_us(99.999)), (Some(584_461.0), Some(122.0)));
        let record = fixtures::optane();
        let large =
            record.workloads.iter().find(|workload| workload.job.block_size_bytes == 1 << 20).unwrap();
        assert!(beside(None, large).is_none());
    }
}
