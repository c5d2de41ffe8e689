//! `overdrive page pmbench`: pmbench's words in, its histogram text out, so that existing scripts go on.
//!
//! What is not ours to say (cache and TLB geometry, a host's name and UUID) is left out. Like pmbench itself
//! it sets no limit: the set pages when memory is short, or when whoever calls it has limited it.

use super::{Plan, measure};
use crate::exit::{Ending, Refused, refuse};
use crate::flags::{PageBacking, PageFlags};
use crate::leftovers::Swept;
use crate::{interrupt, output};
use anyhow::Result;
use overdrive_hist::Histogram;
use overdrive_paging::lane::OwnCost;
use overdrive_paging::pattern::Pattern;
use overdrive_paging::spec::Spec;
use overdrive_sys::clock::Clock;
use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What was asked for, in pmbench's terms and with its defaults.
#[derive(Debug, Clone, PartialEq)]
struct Words {
    map_mib: u64,
    set_mib: u64,
    pattern: String,
    shape: Option<f64>,
    jobs: usize,
    read_ratio: u8,
    cold: bool,
    random_content: bool,
    write_needs_read: bool,
    offset: Option<u32>,
    delay: u64,
    histogram: bool,
    quiet: bool,
    seconds: u64,
}

pub(super) fn pmbench(words: &[String], flags: &PageFlags) -> Result<Ending> {
    let words = parse(words).map_err(|error| Refused(format!("pmbench: {error}")))?;
    let pattern = pattern(&words).map_err(|error| Refused(format!("pmbench: {error}")))?;
    let stop = interrupt::watch_to_the_end()?;
    let cost = OwnCost::measure(&Clock::calibrate(Duration::from_millis(50)))?;
    let spec = Spec {
        pages: words.set_mib.saturating_mul(256),
        threads: words.jobs,
        pattern,
        read_ratio_percent: words.read_ratio,
        write_needs_read: words.write_needs_read,
        compressible_percent: if words.random_content { 0 } else { 100 },
        offset: words.offset,
        cold: words.cold,
        warmup_max_ms: flags.warmup_max.as_millis() as u64,
        runtime_ms: words.seconds.saturating_mul(1000),
        delay_ns: words.delay,
        seed: flags.seed,
        timing_cost_ns: cost.timing_ns,
    };
    spec.check().map_err(|error| Refused(format!("pmbench: {error}")))?;
    let set_bytes = words.set_mib.saturating_mul(1 << 20);
    let plan = Plan {
        set_bytes,
        dram_bytes: set_bytes,
        backings: vec![PageBacking::Dram],
        specs: vec![spec],
        repeats: 1,
        swap: None,
        store: Default::default(),
        cost,
        nodes: Vec::new(),
    };
    let measured = measure(&plan, &Swept::default(), &stop, words.quiet)?;
    if let Some(failure) = measured.failure {
        return Err(failure);
    }
    let Some(cell) = measured.cells.first() else {
        refuse!("pmbench: stopped during the warm-up, so there is no report")
    };
    output::print(&report(&words, &plan, cell))?;
    Ok(if stop.load(Ordering::Relaxed) { Ending::Interrupted } else { Ending::Done })
}

/// Reads pmbench's command line: short options with joined or separate values, long ones with `=` or a space.
fn parse(words: &[String]) -> Result<Words, String> {
    let mut parsed = Words {
        map_mib: 256,
        set_mib: 128,
        pattern: "uniform".to_owned(),
        shape: None,
        jobs: 1,
        read_ratio: 50,
        cold: false,
        random_content: false,
        write_needs_read: false,
        offset: None,
        delay: 0,
        histogram: true,
        quiet: false,
        seconds: 0,
    };
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        let Some((name, joined)) = option(word) else {
            if parsed.seconds != 0 {
                return Err(format!("a second duration, {word}; wanted one, as the last word"));
            }
            parsed.seconds = number(word, "a duration in seconds")?;
            continue;
        };
        if parsed.flag(name) {
            // Short ones may stand together, as in -zcq.
            let together = joined.filter(|_| !word.starts_with("--")).unwrap_or_default();
            let wrong =
                together.char_indices().find(|(at, one)| !parsed.flag(&together[*at..at + one.len_utf8()]));
            if wrong.is_some() || (together.is_empty() && joined.is_some()) {
                return Err(format!("{word}: {name} takes no value"));
            }
            continue;
        }
        let mut value = || {
            let next = joined.map(str::to_owned).or_else(|| rest.next().cloned());
            next.ok_or_else(|| format!("{word} needs a value"))
        };
        match name {
            "m" | "mapsize" => parsed.map_mib = number(&value()?, "a size in MiB")?,
            "s" | "setsize" => parsed.set_mib = number(&value()?, "a size in MiB")?,
            "p" | "pattern" => parsed.pattern = value()?,
            "e" | "shape" => parsed.shape = Some(number(&value()?, "a shape")?),
            "j" | "jobs" => parsed.jobs = number(&value()?, "a count of threads")?,
            "r" | "ratio" => parsed.read_ratio = number(&value()?, "a share of reads in per cent")?,
            "d" | "delay" => parsed.delay = number(&value()?, "a delay")?,
            "o" | "offset" => {
                parsed.offset = Some(number::<u32>(&value()?, "an offset")?.saturating_mul(4) / 8 * 8);
            }
            "a" | "access" => parsed.histogram = access(&value()?)?,
            "t" | "timestamp" => drop(value()?),
            _ => {
                return Err(format!(
                    "no option {word}; wanted pmbench's -m -s -p -e -j -r -d -o -a -t -c -i -z -q"
                ));
            }
        }
    }
    match parsed.seconds {
        0 => Err("no duration; wanted seconds as the last word, such as 60".to_owned()),
        _ if parsed.set_mib > parsed.map_mib => {
            Err(format!("-s {} is larger than -m {}", parsed.set_mib, parsed.map_mib))
        }
        _ => Ok(parsed),
    }
}

impl Words {
    /// Sets an option without a value; says whether it is one.
    fn flag(&mut self, name: &str) -> bool {
        let flag = match name {
            "c" | "cold" => &mut self.cold,
            "i" | "initialize" => &mut self.random_content,
            "z" | "wrneedsrd" => &mut self.write_needs_read,
            "q" | "quiet" => &mut self.quiet,
            _ => return false,
        };
        *flag = true;
        true
    }
}

/// The name of an option and the value joined to it; none for a plain word.
fn option(word: &str) -> Option<(&str, Option<&str>)> {
    if let Some(long) = word.strip_prefix("--") {
        return Some(long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value))));
    }
    let short = word.strip_prefix('-').filter(|short| !short.is_empty())?;
    let (name, value) = short.split_at(short.chars().next().map_or(0, char::len_utf8));
    Some((name, (!value.is_empty()).then_some(value)))
}

fn number<T: std::str::FromStr>(text: &str, wanted: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("'{text}' is not {wanted}"))
}

fn access(name: &str) -> Result<bool, String> {
    match name {
        "histo" => Ok(true),
        "touch" => Ok(false),
        _ => Err(format!("-a {name}: wanted histo or touch")),
    }
}

/// pmbench's pattern. Its zipf draws from the Pareto generator; asked for by that name, a real Zipf is given.
fn pattern(words: &Words) -> Result<Pattern, String> {
    let shape = words.shape;
    let name = match (words.pattern.as_str(), shape) {
        ("normal", None) => "normal:1".to_owned(),
        ("uniform" | "normal_ih", _) | (_, None) => words.pattern.clone(),
        (name, Some(shape)) => format!("{name}:{shape}"),
    };
    name.parse().map_err(|error| format!("{error}"))
}

fn report(words: &Words, plan: &Plan, cell: &super::Cell) -> String {
    let outcome = &cell.outcome;
    let all = outcome.all();
    let mut text = "\n------------- Benchmark signature -------------\n".to_owned();
    let _ = writeln!(text, "overdrive {} speaking pmbench", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(text, "Parameters used:");
    let _ = writeln!(text, "  mapsize_mib: {}\n  setsize_mib: {}", words.map_mib, words.set_mib);
    let _ = writeln!(
        text,
        "  pattern: {}\n  jobs: {}\n  read_ratio: {}",
        cell.spec.pattern, words.jobs, words.read_ratio
    );
    if outcome.interrupted {
        text.push_str("\nNote: stopped before the end of its time.\n");
    }
    text.push_str("\n----------- Average access latency ------------\n");
    let mean_us = all.mean_ns().unwrap_or(0.0) / 1000.0;
    let _ = writeln!(text, "Net average page latency (Arith. mean): {mean_us:.4} us");
    let _ = writeln!(text, "    Total samples count: {}", all.histogram.count());
    let _ = writeln!(text, "    Pages per second: {:.0}", outcome.pages_per_s());
    let _ = writeln!(text, "    Clock readings taken off each sample: {} ns", plan.cost.timing_ns);
    text.push_str("\n----------------- Statistics ------------------\n");
    if !words.histogram {
        text.push_str("touch: no histogram was asked for\n");
        return text;
    }
    text.push_str("# Access latency histogram\n");
    if words.read_ratio > 0 {
        let _ = write!(text, "Read:\n{}", histogram(&outcome.reads.histogram));
    }
    if words.read_ratio < 100 {
        let _ = write!(text, "Write:\n{}", histogram(&outcome.writes.histogram));
    }
    text
}

/// pmbench's rows: everything below 2^8 ns in one, sixteen parts of each power of two to 2^23, one number for
/// each power of two above.
fn histogram(histogram: &Histogram) -> String {
    let mut parts = [[0u64; 16]; 32];
    let mut low = 0;
    for bucket in histogram.buckets() {
        let octave = bucket.low.max(1).ilog2() as usize;
        if octave < 8 {
            low += bucket.count;
            continue;
        }
        let sixteenth = (bucket.low >> (octave - 4)) as usize & 15;
        parts[octave.min(31)][sixteenth] += bucket.count;
    }
    let mut text = format!("2^(00,08) ns: {low}\n");
    for (octave, row) in parts.iter().enumerate().take(23).skip(8) {
        let row_text: Vec<String> = row.iter().map(u64::to_string).collect();
        let sum: u64 = row.iter().sum();
        let _ = writeln!(text, "2^({octave:02},{:02}) ns: {sum}  [{}]", octave + 1, row_text.join(", "));
    }
    for (octave, row) in parts.iter().enumerate().take(30).skip(23) {
        let _ = writeln!(text, "2^({octave},{}) ns: {}", octave + 1, row.iter().sum::<u64>());
    }
    let last: u64 = parts[30..].iter().flatten().sum();
    let _ = write!(text, "2^(30,32) ns: {last}\nTotal samples: {}\n\n", histogram.count());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Words, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<String>>())
    }

    #[test]
    fn the_guides_command_line_is_understood() {
        let words = read("-z -r 0 -a histo -j 8 -s 32768 -m 32768 300").unwrap();
        assert!(words.write_needs_read && words.histogram && !words.cold);
        assert_eq!((words.read_ratio, words.jobs, words.set_mib, words.seconds), (0, 8, 32_768, 300));
        let words = read("--pattern=normal --shape=1536 --mapsize 2048 -s1024 -c -i 30").unwrap();
        assert!(words.cold && words.random_content && words.set_mib == 1024);
        assert_eq!(pattern(&words), Ok(Pattern::Normal { sigma_pages: 1536.0 }));
        assert_eq!(
            pattern(&read("-plinear -e23 -m2048 -s2048 --cold 300").unwrap()),
            Ok(Pattern::Linear { stride: 23 })
        );
        assert_eq!(pattern(&read("-p normal_ih 1").unwrap()), Ok(Pattern::NormalIh));
        let words = read("-zcq -r0 1").unwrap();
        assert!(words.write_needs_read && words.cold && words.quiet && !words.random_content);
        assert_eq!((words.read_ratio, words.seconds), (0, 1));
    }

    #[test]
    fn what_is_not_pmbenchs_is_refused() {
        for (line, word) in [
            ("-j 8", "no duration"),
            ("-k 8 60", "no option"),
            ("-s 512 -m 128 60", "larger"),
            ("-a poke 60", "histo"),
            ("-j x 60", "count of threads"),
            ("60 -m", "needs a value"),
            ("5 60", "a second duration"),
            ("-cx 60", "c takes no value"),
            ("-z8 60", "z takes no value"),
            ("--cold=yes 60", "cold takes no value"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(word), "{line}: {error}");
        }
        assert!(pattern(&read("-p lumpy 1").unwrap()).is_err());
    }

    #[test]
    fn the_histogram_has_pmbenchs_rows() {
        let mut values = Histogram::new();
        for (ns, count) in
            [(100, 5), (256, 1), (271, 1), (272, 2), (5_000, 7), (9_000_000, 3), (2_000_000_000, 1)]
        {
            values.record_n(ns, count);
        }
        let text = histogram(&values);
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[0], "2^(00,08) ns: 5");
        assert_eq!(rows[1], "2^(08,09) ns: 4  [2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]");
        assert_eq!(rows[5], "2^(12,13) ns: 7  [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]");
        assert_eq!(rows[16], "2^(23,24) ns: 3");
        assert_eq!(rows[23], "2^(30,32) ns: 1");
        assert_eq!(rows[24], "Total samples: 20");
    }
}
