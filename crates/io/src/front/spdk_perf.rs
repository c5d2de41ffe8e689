//! The command line of SPDK's perf, understood as a plan: one section for each core on each device, as its
//! result has one line for each.

use super::{FrontError, Plan, Section, WORKERS_MAX, number};
use crate::engine::EngineKind;
use crate::job::{Access, Distribution, JobSpec, NO_TIME_LIMIT, Operation};
use std::time::Duration;

/// What a line of SPDK's perf asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct SpdkPerfLine {
    /// The jobs; a section is named by its core.
    pub plan: Plan,
    /// 0: the summary alone; 1 (-L): percentiles too; 2 (-LL): the histogram too.
    pub latency: u32,
}

/// Flags that have a value, and whether leaving them out changes what is measured.
const VALUED: &[(char, Flag)] = &[
    ('q', Flag::Taken),
    ('o', Flag::Taken),
    ('w', Flag::Taken),
    ('M', Flag::Taken),
    ('t', Flag::Taken),
    ('a', Flag::Taken),
    ('c', Flag::Taken),
    ('r', Flag::Taken),
    ('s', Flag::Taken),
    ('d', Flag::Taken),
    ('F', Flag::Taken),
    ('C', Flag::NotDone),
    ('P', Flag::NotDone),
    ('U', Flag::NotDone),
    ('O', Flag::NotDone),
    ('e', Flag::NotDone),
    ('k', Flag::NotDone),
    ('i', Flag::Idle),
    ('A', Flag::Idle),
    ('T', Flag::Idle),
];

const UNVALUED: &[(char, Flag)] = &[
    ('L', Flag::Taken),
    ('l', Flag::Idle),
    ('g', Flag::Idle),
    ('m', Flag::Idle),
    ('D', Flag::Idle),
    ('R', Flag::Idle),
    ('x', Flag::Idle),
    ('G', Flag::Idle),
    ('V', Flag::Idle),
    ('H', Flag::NotDone),
    ('I', Flag::NotDone),
    ('N', Flag::NotDone),
    ('E', Flag::NotDone),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flag {
    Taken,
    /// It is about SPDK's own machinery.
    Idle,
    NotDone,
}

/// A line as it is being read.
#[derive(Default)]
struct Reader {
    depth: Option<u32>,
    size: Option<u64>,
    memory: Option<u64>,
    workload: Option<String>,
    read_percent: Option<u8>,
    time: Option<Duration>,
    warmup: Duration,
    cores: Vec<usize>,
    number_ios: Option<u64>,
    theta: Option<f64>,
    latency: u32,
    targets: Vec<String>,
    idle: Vec<(String, &'static str)>,
    notes: Vec<String>,
}

/// Reads the words of a line of SPDK's perf. With `ignore_unsupported`, what is not done is left out.
///
/// # Errors
/// [`FrontError`] names the flag, what was read and what is allowed.
pub fn parse(words: &[String], ignore_unsupported: bool) -> Result<SpdkPerfLine, FrontError> {
    let mut reader = Reader::default();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        if word.starts_with("--") {
            reader.not_done(word, ignore_unsupported)?;
            continue;
        }
        let Some(flags) = word.strip_prefix('-').filter(|flags| !flags.is_empty()) else {
            reader.targets.push(word.clone());
            continue;
        };
        let mut letters = flags.chars();
        while let Some(letter) = letters.next() {
            let place = format!("-{letter}");
            if let Some((_, kind)) = UNVALUED.iter().find(|row| row.0 == letter) {
                reader.latency += u32::from(letter == 'L');
                reader.settle(*kind, &place, ignore_unsupported)?;
                // In older versions -m has a number behind it: the most completions of one look.
                let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                if letter == 'm' && is_number(letters.as_str()) {
                    break;
                }
                if letter == 'm' && letters.as_str().is_empty() {
                    words.next_if(|word| is_number(word));
                }
                continue;
            }
            let Some((_, kind)) = VALUED.iter().find(|row| row.0 == letter) else {
                return Err(fail(
                    &place,
                    "no flag of SPDK perf's; wanted -q -o -w -M -t -a -c -r -d -F -L".to_owned(),
                ));
            };
            let glued = letters.as_str();
            let value = if glued.is_empty() { words.next().map(String::as_str) } else { Some(glued) };
            let value = value.ok_or_else(|| fail(&place, "wanted a value behind it".to_owned()))?;
            reader.settle(*kind, &place, ignore_unsupported)?;
            if *kind == Flag::Taken {
                reader.take(letter, value).map_err(|reason| fail(&place, reason))?;
            }
            break;
        }
    }
    reader.finish()
}

fn fail(place: &str, reason: String) -> FrontError {
    FrontError { place: place.to_owned(), reason }
}

impl Reader {
    fn settle(&mut self, kind: Flag, place: &str, ignore_unsupported: bool) -> Result<(), FrontError> {
        match kind {
            Flag::Taken => Ok(()),
            Flag::Idle => {
                self.idle.push((place.to_owned(), "about SPDK's own machinery"));
                Ok(())
            }
            Flag::NotDone => self.not_done(place, ignore_unsupported),
        }
    }

    fn not_done(&mut self, place: &str, ignore_unsupported: bool) -> Result<(), FrontError> {
        if !ignore_unsupported {
            let reason = "not done here; --ignore-unsupported leaves it out".to_owned();
            return Err(fail(place, reason));
        }
        self.notes.push(format!("{place} is not done and was left out"));
        Ok(())
    }

    fn take(&mut self, letter: char, value: &str) -> Result<(), String> {
        match letter {
            'q' => self.depth = Some(number(value, 1, 4096)?),
            'o' => self.size = Some(number(value, 512, 64 << 20)?),
            's' => self.memory = Some(number(value, 1, u64::MAX)?),
            'w' => self.workload = Some(value.to_owned()),
            'M' => self.read_percent = Some(number(value, 0, 100)?),
            't' => self.time = Some(Duration::from_secs(number(value, 1, 31_536_000)?)),
            'a' => self.warmup = Duration::from_secs(number(value, 0, 31_536_000)?),
            'd' => self.number_ios = Some(number(value, 1, u64::MAX)?),
            'F' => {
                let theta = value.parse::<f64>().ok().filter(|theta| *theta > 0.0 && *theta <= 10.0);
                self.theta =
                    Some(theta.ok_or_else(|| format!("'{value}' is not a theta above 0 and up to 10"))?);
            }
            'c' => self.cores = cores(value)?,
            'r' => self.targets.push(value.to_owned()),
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self) -> Result<SpdkPerfLine, FrontError> {
        let missing = |flag: &str, what: &str, word: &str| {
            fail(flag, format!("{what} is missing; wanted {flag} {word}, as SPDK perf does"))
        };
        let depth = self.depth.ok_or_else(|| missing("-q", "the queue depth", "N"))?;
        // Until 2018 -s was what -o is now, and it stands so in guides of that time.
        let old = self.memory.filter(|&bytes| bytes >= 512 && bytes.is_multiple_of(512));
        let size = match (self.size, old) {
            (Some(size), _) => size,
            (None, Some(size)) => {
                self.notes.push(format!("-s {size} without -o: the I/O size, as in SPDK up to 2018"));
                size
            }
            (None, None) => return Err(missing("-o", "the I/O size", "BYTES")),
        };
        if self.time.is_none() && self.number_ios.is_none() {
            return Err(missing("-t", "the time", "SECONDS"));
        }
        if self.targets.is_empty() {
            let reason =
                "no device: wanted -r 'trtype:PCIe traddr:0000:04:00.0', or a block device, a file or sim";
            return Err(fail("spdk-perf", reason.to_owned()));
        }
        let (access, operation) = self.workload()?;
        let spec = JobSpec {
            operation,
            access,
            distribution: self.theta.map_or(Distribution::Uniform, |theta| Distribution::Zipf { theta }),
            block_size: size,
            queue_depth: depth,
            worker_offset: Some(0),
            number_ios: self.number_ios,
            engine: EngineKind::IoUring,
            runtime: self.time.unwrap_or(NO_TIME_LIMIT),
            warmup: self.warmup,
            ..JobSpec::default()
        };
        if self.theta.is_some() && access == Access::Sequential {
            return Err(fail("-F", "a zipf distribution wants a random workload".to_owned()));
        }
        self.notes.push(
            "SPDK drives devices past the kernel, which is not done here: the best engine there is stands for it \
             (io_uring, polled where the device has poll queues)"
                .to_owned(),
        );
        let asked = std::mem::take(&mut self.cores);
        let cores = if asked.is_empty() { &[0][..] } else { &asked };
        if (cores.len() * self.targets.len()) as u64 > WORKERS_MAX {
            return Err(fail("-c", format!("cores times devices: wanted at most {WORKERS_MAX}")));
        }
        let mut sections = Vec::new();
        for (index, &core) in cores.iter().enumerate() {
            for target in &self.targets {
                let mut section = Section::new(&format!("core{core}"), spec.clone());
                section.targets = vec![target.clone()];
                (section.best_engine, section.group, section.group_reporting) = (true, index as u32, false);
                section.cpus = asked.get(index).copied().into_iter().collect();
                section.idle.clone_from(&self.idle);
                sections.push(section);
            }
        }
        let plan = Plan { sections, globals: Vec::new(), notes: self.notes };
        Ok(SpdkPerfLine { plan, latency: self.latency.min(2) })
    }

    fn workload(&self) -> Result<(Access, Operation), FrontError> {
        let wanted = "wanted read, write, randread, randwrite, rw or randrw";
        let word = self
            .workload
            .as_deref()
            .ok_or_else(|| fail("-w", format!("the workload is missing; {wanted}")))?;
        let access = if word.starts_with("rand") { Access::Random } else { Access::Sequential };
        let operation = match word {
            "read" | "randread" => Operation::Read,
            "write" | "randwrite" => Operation::Write,
            "rw" | "randrw" => match self.read_percent {
                Some(0) => Operation::Write,
                Some(100) => Operation::Read,
                Some(read_percent) => Operation::Mixed { read_percent },
                None => return Err(fail("-M", format!("{word} wants the share of reads, as in -M 70"))),
            },
            _ => return Err(fail("-w", format!("'{word}' is no workload; {wanted}"))),
        };
        if self.read_percent.is_some() && !word.ends_with("rw") {
            return Err(fail("-M", format!("a share of reads goes with rw and randrw, not with {word}")));
        }
        Ok((access, operation))
    }
}

/// A mask such as 0xF or F, or a list such as [0-3,8].
fn cores(text: &str) -> Result<Vec<usize>, String> {
    let wanted =
        || format!("'{text}' is not a set of cores; wanted a mask such as 0xF, or a list such as [0-3]");
    if let Some(list) = text.strip_prefix('[') {
        let list = list.strip_suffix(']').ok_or_else(wanted)?;
        return super::fio::cpus(list).map_err(|_| wanted());
    }
    let mask = u128::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).map_err(|_| wanted())?;
    let cores: Vec<usize> = (0..128).filter(|core| mask >> core & 1 == 1).collect();
    if cores.is_empty() { Err(wanted()) } else { Ok(cores) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(words: &[&str]) -> Result<SpdkPerfLine, FrontError> {
        parse(&words.iter().map(|&word| word.to_owned()).collect::<Vec<String>>(), false)
    }

    #[test]
    fn the_guides_line_is_understood_in_both_ages() {
        let new =
            line(&["-q", "1", "-o", "4096", "-w", "randread", "-t", "300", "-LL", "/dev/nvme0n1"]).unwrap();
        let old =
            line(&["-s", "4096", "-w", "randread", "-q", "1", "-t", "300", "-LL", "/dev/nvme0n1"]).unwrap();
        for line in [&new, &old] {
            let spec = &line.plan.sections[0].spec;
            assert_eq!((spec.block_size, spec.queue_depth, spec.access), (4096, 1, Access::Random));
            assert_eq!((spec.runtime, line.latency), (Duration::from_secs(300), 2));
            assert!(line.plan.sections[0].best_engine);
        }
        assert!(old.plan.notes.iter().any(|note| note.contains("up to 2018")));
    }

    #[test]
    fn flags_without_a_value_swallow_no_target() {
        for words in [
            &["-q1", "-o4096", "-wread", "-t1", "-g", "sim"][..],
            &["-q1", "-o4096", "-wread", "-t1", "-m", "sim"],
            &["-q1", "-o4096", "-wread", "-t1", "-m", "16", "sim"],
            &["-q1", "-o4096", "-wread", "-t1", "-m16", "sim"],
            &["-q1", "-o4096", "-wread", "-t1", "-gmD", "sim"],
        ] {
            let line = line(words).unwrap();
            assert_eq!(line.plan.sections[0].targets, ["sim"], "{words:?}");
        }
    }

    #[test]
    fn cores_and_devices_multiply() {
        let device = "trtype:PCIe traddr:0000:04:00.0";
        let line = line(&["-q8", "-o4096", "-wrandrw", "-M70", "-t1", "-c0x5", "-r", device, "sim"]).unwrap();
        let names: Vec<(&str, &str)> = line
            .plan
            .sections
            .iter()
            .map(|section| (section.name.as_str(), section.targets[0].as_str()))
            .collect();
        assert_eq!(names, [("core0", device), ("core0", "sim"), ("core2", device), ("core2", "sim")]);
        assert_eq!(line.plan.sections[0].spec.operation, Operation::Mixed { read_percent: 70 });
    }

    #[test]
    fn wrong_flags_are_named() {
        for (words, text) in [
            (&["-q", "0"][..], "-q: '0' is not a whole number from 1 to 4096"),
            (&["-w", "randread", "sim"], "-q: the queue depth is missing"),
            (&["-q1", "-o4096", "-t1", "-wrandrw", "sim"], "-M: randrw wants the share of reads"),
            (&["-q1", "-o4096", "-t1", "-wread", "-M5", "sim"], "not with read"),
            (&["-q1", "-o4096", "-t1", "-wread"], "no device"),
            (&["-q1", "-c", "xyz"], "not a set of cores"),
            (&["-q"], "-q: wanted a value"),
            (&["-P", "4"], "-P: not done here"),
            (&["--transport-stats"], "--transport-stats: not done here"),
            (&["-?"], "no flag of SPDK perf's"),
        ] {
            let error = line(words).unwrap_err().to_string();
            assert!(error.contains(text), "{words:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn reading_never_panics(words in prop::collection::vec("-?.{0,12}", 0..8), letter in "[a-zA-Z]", value in "[0-9a-fx,-]{0,40}") {
            let _ = parse(&words, true);
            let _ = parse(&[format!("-{letter}{value}"), format!("-{letter}"), value], true);
        }
    }
}
