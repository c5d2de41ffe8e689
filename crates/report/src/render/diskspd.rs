//! A record in DISKSPD's tables, and in its XML: a row for each thread on each target.

mod intervals;

use super::merged::{Shown, Side};
use crate::record::{Operation, Record, Workload};
pub use intervals::{Interval, Intervals};
use std::fmt::Write;

/// What a record does not hold and DISKSPD's result has.
#[derive(Debug, Clone, Default)]
pub struct DiskspdView {
    /// The command line.
    pub command: String,
    /// How long the load went on after the measured time, in seconds.
    pub cooldown_s: f64,
    /// With latencies.
    pub latency: bool,
    /// How busy each CPU was over the run, warm-up included: its number, user and kernel, in per cent.
    pub cpus: Vec<(usize, f64, f64)>,
    /// I/Os by interval (-D), one for each row.
    pub intervals: Option<Vec<Intervals>>,
}

/// DISKSPD's percentiles: from the 25th to nine nines.
const PERCENTILES: [(&str, f64); 14] = [
    ("25th", 25.0),
    ("50th", 50.0),
    ("75th", 75.0),
    ("90th", 90.0),
    ("95th", 95.0),
    ("99th", 99.0),
    ("3-nines", 99.9),
    ("4-nines", 99.99),
    ("5-nines", 99.999),
    ("6-nines", 99.9999),
    ("7-nines", 99.99999),
    ("8-nines", 99.999_999),
    ("9-nines", 99.999_999_9),
    ("max", 100.0),
];

/// The record as DISKSPD would print it.
#[must_use]
pub fn text(record: &Record, shown: &[Shown], view: &DiskspdView) -> String {
    let rows = rows(record, shown, view);
    let mut text = format!("\nCommand Line: {}\n\n", view.command);
    text.push_str(&input(record, view));
    let _ = writeln!(text, "Results for timespan 1:\n{}\n", "*".repeat(79));
    let _ = writeln!(text, "actual test time:\t{:.2}s", seconds(&rows));
    let _ = writeln!(text, "thread count:\t\t{}\nproc count:\t\t{}\n", rows.len(), view.cpus.len());
    text.push_str(&cpu_table(view));
    for (title, part) in [("Total IO", Part::Total), ("Read IO", Part::Read), ("Write IO", Part::Write)] {
        text.push_str(&table(title, &rows, part, view));
    }
    if view.latency {
        text.push_str(&percentiles(&rows));
    }
    text
}

/// What a table is about.
#[derive(Clone, Copy)]
enum Part {
    Total,
    Read,
    Write,
}

/// One thread on one target.
struct Row {
    thread: String,
    target: String,
    size_bytes: u64,
    read: Side,
    write: Side,
    total: Side,
    intervals: Option<Intervals>,
}

impl Row {
    fn side(&self, part: Part) -> &Side {
        match part {
            Part::Total => &self.total,
            Part::Read => &self.read,
            Part::Write => &self.write,
        }
    }
}

fn rows(record: &Record, shown: &[Shown], view: &DiskspdView) -> Vec<Row> {
    let row = |(number, job): (usize, &Shown)| {
        let workloads: Vec<&Workload> =
            job.workloads.iter().filter_map(|&index| record.workloads.get(index)).collect();
        let (read, write) = (Side::of(&workloads, Operation::Read), Side::of(&workloads, Operation::Write));
        let total = read.clone().and(&write);
        Row {
            thread: job.name.trim_start_matches("thread").to_owned(),
            target: job.target.clone(),
            size_bytes: record.target.size_bytes,
            read,
            write,
            total,
            intervals: view.intervals.as_ref().and_then(|all| all.get(number).cloned()),
        }
    };
    shown.iter().enumerate().map(row).collect()
}

fn seconds(rows: &[Row]) -> f64 {
    rows.iter().map(|row| row.total.elapsed_s).fold(0.0, f64::max)
}

/// All rows of one kind together.
fn sum(rows: &[Row], part: Part) -> Side {
    rows.iter().fold(Side::default(), |sum, row| sum.and(row.side(part)))
}

/// The intervals of all rows together.
fn all_intervals(rows: &[Row]) -> Option<Intervals> {
    rows.iter().filter_map(|row| row.intervals.clone()).reduce(|sum, row| sum.and(&row))
}

fn input(record: &Record, view: &DiskspdView) -> String {
    let Some(first) = record.workloads.first() else { return String::new() };
    let job = &first.job;
    let access = if job.access == crate::record::Access::Random { "random" } else { "sequential" };
    let mut text = "Input parameters:\n\n\ttimespan:   1\n\t-------------\n".to_owned();
    let _ = writeln!(text, "\tduration: {}s\n\twarm up time: {}s", job.runtime_s, job.warmup_s);
    let _ = writeln!(text, "\tcool down time: {}s", view.cooldown_s);
    if let Some(intervals) = view.intervals.as_ref().and_then(|all| all.first()) {
        let _ = writeln!(text, "\tgathering IOPS at intervals of {}ms", intervals.length_ms);
    }
    let _ = writeln!(text, "\tpath: '{}'", record.target.spec);
    let _ = writeln!(text, "\t\tblock size: {}\n\t\tusing {access} I/O", job.block_size_bytes);
    let test = match job.read_percent {
        100 => "read test".to_owned(),
        0 => "write test".to_owned(),
        reads => format!("mix test (read/write ratio: {reads}/{})", 100 - reads),
    };
    let _ = writeln!(text, "\t\tperforming {test}");
    let depth = job.queue_depth_per_worker;
    let _ = writeln!(text, "\t\tnumber of outstanding I/O operations per thread: {depth}\n");
    text
}

fn cpu_table(view: &DiskspdView) -> String {
    let rule = "-".repeat(43);
    let mut text = format!("CPU |  Usage |  User  |  Kernel |  Idle\n{rule}\n");
    let line = |name: &str, user: f64, kernel: f64| {
        let usage = user + kernel;
        format!("{name:>4}|{usage:>7.2}%|{user:>7.2}%|{kernel:>8.2}%|{:>7.2}%\n", 100.0 - usage)
    };
    for &(cpu, user, kernel) in &view.cpus {
        text.push_str(&line(&cpu.to_string(), user, kernel));
    }
    let (user, kernel) = average(view);
    let _ = writeln!(text, "{rule}");
    text + &line("avg.", user, kernel) + "\n"
}

fn average(view: &DiskspdView) -> (f64, f64) {
    let count = view.cpus.len().max(1) as f64;
    let mean = |pick: fn(&(usize, f64, f64)) -> f64| view.cpus.iter().map(pick).sum::<f64>() / count;
    (mean(|cpu| cpu.1), mean(|cpu| cpu.2))
}

fn table(title: &str, rows: &[Row], part: Part, view: &DiskspdView) -> String {
    let (latency, counted) = (view.latency, view.intervals.is_some());
    let shown = |wanted: bool, head: &'static str| if wanted { head } else { "" };
    let head = format!(
        "thread |       bytes     |     I/Os     |    MiB/s   |  I/O per s |{}{}{}  file",
        shown(latency, "  AvgLat  |"),
        shown(counted, " IopsStdDev |"),
        shown(latency, " LatStdDev |"),
    );
    let rule = "-".repeat(head.len() + 8);
    let mut text = format!("{title}\n{head}\n{rule}\n");
    let figures = |side: &Side, intervals: Option<&Intervals>| {
        let (iops, bytes_per_s) = side.rates;
        let mib_per_s = bytes_per_s / (1 << 20) as f64;
        let mut line = format!("{:>15} | {:>12} | {mib_per_s:>10.2} | {iops:>10.2} |", side.bytes, side.ios);
        let ms = |ns: f64| ns / 1e6;
        if latency {
            let _ = write!(line, " {:>8.3} |", ms(side.latency.mean_ns));
        }
        if counted {
            let deviation = intervals.map_or(0.0, |intervals| match part {
                Part::Total => intervals.deviation(true, true),
                Part::Read => intervals.deviation(true, false),
                Part::Write => intervals.deviation(false, true),
            });
            let _ = write!(line, " {deviation:>10.2} |");
        }
        if latency {
            let _ = write!(line, " {:>9.3} |", ms(side.latency.stddev_ns));
        }
        line
    };
    for row in rows {
        let size = overdrive_base::size::format_size(row.size_bytes).replace(' ', "");
        let line = figures(row.side(part), row.intervals.as_ref());
        let _ = writeln!(text, "{:>6} | {line} {} ({size})", row.thread, row.target);
    }
    let all = figures(&sum(rows, part), all_intervals(rows).as_ref());
    let _ = writeln!(text, "{rule}\ntotal:   {}\n", all.trim_end_matches(" |"));
    text
}

fn percentiles(rows: &[Row]) -> String {
    let [read, write, total] = sides(rows);
    let mut text = format!("\ntotal:\n  %-ile |  Read (ms) | Write (ms) | Total (ms)\n{}\n", "-".repeat(46));
    let cell = |value: Option<f64>| value.map_or("N/A".to_owned(), |ms| format!("{ms:.3}"));
    let mut line = |name: &str, of: &dyn Fn(&Side) -> Option<f64>| {
        let cells = [cell(of(&read)), cell(of(&write)), cell(of(&total))];
        let _ = writeln!(text, "{name:>7} | {:>10} | {:>10} | {:>10}", cells[0], cells[1], cells[2]);
    };
    line("min", &|side| (side.latency.count > 0).then_some(side.latency.min_ns as f64 / 1e6));
    for (name, percentile) in PERCENTILES {
        line(name, &|side| side.percentile_ns(percentile).map(|ns| ns as f64 / 1e6));
    }
    // DISKSPD prints the slowest I/O where nothing else is left; so does this, and says so.
    let enough = |(_, percentile): &&(&str, f64)| {
        let beyond = total.latency.count as f64 * (1.0 - percentile / 100.0);
        *percentile < 100.0 && beyond >= 1.0 - 1e-6
    };
    if let Some((name, _)) = PERCENTILES.iter().rfind(enough) {
        let count = total.latency.count;
        let _ = writeln!(
            text,
            "\n{count} I/Os carry percentiles up to {name}; beyond it stands the slowest I/O."
        );
    }
    text
}

fn sides(rows: &[Row]) -> [Side; 3] {
    [Part::Read, Part::Write, Part::Total].map(|part| sum(rows, part))
}

/// The record as DISKSPD's -Rxml would print it.
#[must_use]
pub fn xml(record: &Record, shown: &[Shown], view: &DiskspdView) -> String {
    let rows = rows(record, shown, view);
    let mut xml = Xml { text: "<Results>\n".to_owned(), depth: 1 };
    xml.within("System", |xml| {
        xml.within("Tool", |xml| {
            xml.leaf("Name", &record.tool.name);
            xml.leaf("Version", &record.tool.version);
        });
        xml.leaf("RunTime", &record.started_at);
    });
    xml.within("Profile", |xml| xml.leaf("CommandLine", &view.command));
    xml.within("TimeSpan", |xml| {
        let [read, write, total] = sides(&rows);
        xml.leaf("TestTimeSeconds", format!("{:.2}", seconds(&rows)));
        xml.leaf("ThreadCount", rows.len());
        xml.leaf("RequestCount", 0);
        xml.leaf("ProcCount", view.cpus.len());
        xml.within("CpuUtilization", |xml| cpu_xml(xml, view));
        if view.latency {
            xml.within("Latency", |xml| latency_xml(xml, &read, &write, &total));
        }
        if let Some(intervals) = all_intervals(&rows) {
            xml.within("Iops", |xml| iops_xml(xml, &intervals));
        }
        for row in &rows {
            xml.within("Thread", |xml| {
                xml.leaf("Id", &row.thread);
                xml.within("Target", |xml| target_xml(xml, row, view.latency));
            });
        }
    });
    xml.text + "</Results>\n"
}

fn cpu_xml(xml: &mut Xml, view: &DiskspdView) {
    let shares = |xml: &mut Xml, user: f64, kernel: f64| {
        let usage = user + kernel;
        let all = [
            ("UsagePercent", usage),
            ("UserPercent", user),
            ("KernelPercent", kernel),
            ("IdlePercent", 100.0 - usage),
        ];
        for (name, value) in all {
            xml.leaf(name, format!("{value:.2}"));
        }
    };
    for &(cpu, user, kernel) in &view.cpus {
        xml.within("CPU", |xml| {
            xml.leaf("Id", cpu);
            shares(xml, user, kernel);
        });
    }
    let (user, kernel) = average(view);
    xml.within("Average", |xml| shares(xml, user, kernel));
}

fn latency_xml(xml: &mut Xml, read: &Side, write: &Side, total: &Side) {
    let ms = |ns: f64| format!("{:.3}", ns / 1e6);
    let sides = [("Read", "Read", read), ("Write", "Write", write), ("Total", "", total)];
    for (name, short, side) in sides.iter().filter(|side| side.2.latency.count > 0) {
        xml.leaf(&format!("Average{name}Milliseconds"), ms(side.latency.mean_ns));
        xml.leaf(&format!("{short}LatencyStdev"), ms(side.latency.stddev_ns));
    }
    let percentiles =
        (0..=99).map(f64::from).chain(PERCENTILES.iter().map(|row| row.1).filter(|&p| p > 99.0));
    for percentile in percentiles {
        xml.within("Bucket", |xml| {
            xml.leaf("Percentile", percentile);
            for (name, _, side) in &sides {
                let value = if percentile == 0.0 {
                    Some(side.latency.min_ns)
                } else {
                    side.percentile_ns(percentile)
                };
                if let Some(ns) = value.filter(|_| side.latency.count > 0) {
                    xml.leaf(&format!("{name}Milliseconds"), ms(ns as f64));
                }
            }
        });
    }
}

fn target_xml(xml: &mut Xml, row: &Row, latency: bool) {
    xml.leaf("Path", &row.target);
    xml.leaf("BytesCount", row.total.bytes);
    xml.leaf("FileSize", row.size_bytes);
    xml.leaf("IOCount", row.total.ios);
    for (name, side) in [("Read", &row.read), ("Write", &row.write)] {
        xml.leaf(&format!("{name}Bytes"), side.bytes);
        xml.leaf(&format!("{name}Count"), side.ios);
    }
    let ms = |ns: f64| format!("{:.3}", ns / 1e6);
    for (name, side) in [("Read", &row.read), ("Write", &row.write), ("", &row.total)] {
        if latency && side.latency.count > 0 {
            xml.leaf(&format!("Average{name}LatencyMilliseconds"), ms(side.latency.mean_ns));
            xml.leaf(&format!("{name}LatencyStdev"), ms(side.latency.stddev_ns));
        }
    }
    if let Some(intervals) = &row.intervals {
        xml.within("Iops", |xml| iops_xml(xml, intervals));
    }
}

fn iops_xml(xml: &mut Xml, intervals: &Intervals) {
    for (name, reads, writes) in
        [("ReadIopsStdDev", true, false), ("WriteIopsStdDev", false, true), ("IopsStdDev", true, true)]
    {
        xml.leaf(name, format!("{:.3}", intervals.deviation(reads, writes)));
    }
    for attributes in intervals.attributes() {
        xml.empty("Bucket", &attributes);
    }
}

/// XML under way.
struct Xml {
    text: String,
    depth: usize,
}

impl Xml {
    fn within(&mut self, name: &str, fill: impl FnOnce(&mut Self)) {
        let indent = "  ".repeat(self.depth);
        let _ = writeln!(self.text, "{indent}<{name}>");
        self.depth += 1;
        fill(self);
        self.depth -= 1;
        let _ = writeln!(self.text, "{indent}</{name}>");
    }

    /// A tag with nothing but attributes.
    fn empty(&mut self, name: &str, attributes: &str) {
        let _ = writeln!(self.text, "{}<{name} {attributes}/>", "  ".repeat(self.depth));
    }

    fn leaf(&mut self, name: &str, value: impl std::fmt::Display) {
        let value = value.to_string().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(self.text, "{}<{name}>{value}</{name}>", "  ".repeat(self.depth));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn shown() -> Vec<Shown> {
        let job = |index: usize| Shown {
            name: format!("thread{index}"),
            workloads: vec![index],
            target: "/dev/<nvme>".to_owned(),
            ..Shown::default()
        };
        (0..2).map(job).collect()
    }

    #[test]
    fn the_tables_have_a_row_for_each_thread_and_a_sum() {
        let record = fixtures::optane();
        let view = DiskspdView {
            latency: true,
            cpus: vec![(0, 10.0, 30.0), (1, 0.0, 0.0)],
            ..DiskspdView::default()
        };
        let text = text(&record, &shown(), &view);
        let ios: u64 = record.workloads[..2].iter().map(|one| one.outcome.ios).sum();
        let total = text.lines().find(|line| line.starts_with("total:  ")).unwrap();
        assert!(total.contains(&format!(" {ios} ")), "{total}");
        assert!(text.contains("avg.|  20.00%|   5.00%|   15.00%|  80.00%"), "{text}");
        assert!(text.contains("9-nines |") && text.contains("        N/A |"), "nothing was written: {text}");
        assert!(text.contains("carry percentiles up to"), "{text}");
    }

    #[test]
    fn intervals_have_a_column_and_buckets() {
        let record = fixtures::optane();
        let mut intervals = Intervals::new(500, 2);
        for (at_ms, write, latency_ns) in
            [(0, false, 1_000_000), (499, false, 3_000_000), (500, true, 5_000_000)]
        {
            intervals.add(at_ms * 1_000_000, write, latency_ns);
        }
        let mut view = DiskspdView {
            cpus: vec![(0, 10.0, 30.0)],
            intervals: Some(vec![intervals.clone(), intervals]),
            ..DiskspdView::default()
        };
        let plain = text(&record, &shown(), &view);
        assert!(plain.contains("I/O per s | IopsStdDev |  file"), "{plain}");
        assert!(plain.contains("gathering IOPS at intervals of 500ms"), "{plain}");
        view.latency = true;
        let both = text(&record, &shown(), &view);
        assert!(both.contains("|  AvgLat  | IopsStdDev | LatStdDev |"), "{both}");
        let xml = xml(&record, &shown(), &view);
        // Two rows of 2 and 1 I/Os in half a second each: 4 and 2 together, so 8 and 4 a second.
        assert_eq!(xml.matches("<IopsStdDev>2.000</IopsStdDev>").count(), 1, "{xml}");
        assert_eq!(xml.matches("<IopsStdDev>1.000</IopsStdDev>").count(), 2, "{xml}");
        assert_eq!(xml.matches("<Bucket SampleMillisecond=").count(), 6);
        let first = "SampleMillisecond=\"500\" Read=\"8\" Write=\"0\" Total=\"8\" ReadMinLatencyMilliseconds=\"1.000\" \
            ReadMaxLatencyMilliseconds=\"3.000\" ReadAvgLatencyMilliseconds=\"2.000\" ReadLatencyStdDev=\"1.000\" ";
        assert!(xml.contains(first), "{xml}");
        view.intervals = None;
        assert!(!text(&record, &shown(), &view).contains("IopsStdDev"));
    }

    #[test]
    fn the_xml_is_closed_and_escaped() {
        let record = fixtures::optane();
        let view = DiskspdView { latency: true, cpus: vec![(0, 10.0, 30.0)], ..DiskspdView::default() };
        let text = xml(&record, &shown(), &view);
        assert_eq!(text.matches("<Thread>").count(), 2);
        assert!(text.contains("<Path>/dev/&lt;nvme&gt;</Path>"));
        assert_eq!(text.matches("<Bucket>").count(), 108);
        let mut open = Vec::new();
        for tag in text.split('<').skip(1).filter_map(|rest| rest.split('>').next()) {
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name)),
                None => open.push(tag),
            }
        }
        assert!(open.is_empty());
    }
}
