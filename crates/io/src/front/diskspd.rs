//! DISKSPD's command line, understood as a plan: one section for each thread on each target, as its result
//! has one row for each.
//!
//! Its flags are one letter with the value glued to it; what is no flag is a target.

use super::{Extent, FrontError, Plan, Section, WORKERS_MAX, number};
use crate::engine::EngineKind;
use crate::job::{Access, Content, Distribution, JobSpec, Operation, SyncMode, Zone};
use crate::pace::{Arrivals, Think};
use std::sync::Arc;
use std::time::Duration;

/// What a DISKSPD line asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskspdLine {
    /// The jobs.
    pub plan: Plan,
    /// Show latencies (-L).
    pub latency: bool,
    /// As XML instead of text (-Rxml).
    pub xml: bool,
    /// Only say what would be done (-Rp).
    pub profile_only: bool,
    /// I/Os counted by intervals of this length (-D).
    pub interval: Option<Duration>,
}

/// Why a flag does nothing here that could be seen in the result.
const IDLE: &[(char, &str)] = &[
    ('x', "completions are taken from the ring"),
    ('l', "buffers are of huge pages wherever there are any"),
    ('v', "nothing more is to be told"),
    ('P', "progress is shown on a terminal"),
    ('n', "workers are pinned, which is part of the method"),
    ('I', "a hint to Windows; the priority of the I/Os stays as it is"),
];

/// A line as it is being read.
struct Reader {
    block: u64,
    write_percent: u8,
    access: Access,
    random_percent: u8,
    distribution: Distribution,
    align: Option<u64>,
    stride: Option<u64>,
    interlocked: bool,
    depth: u32,
    threads: u32,
    threads_in_all: Option<u32>,
    duration: Duration,
    warmup: Duration,
    cooldown: Duration,
    base: u64,
    length: Option<u64>,
    end: Option<u64>,
    thread_offset: u64,
    create: Option<u64>,
    buffered: bool,
    mapped: bool,
    write_through: bool,
    zeroes: bool,
    refill: bool,
    seed: Option<u64>,
    fresh_seed: bool,
    throttle: Option<f64>,
    /// Whether the throttle counts I/Os a second instead of bytes a millisecond.
    throttle_ios: bool,
    burst: Option<u32>,
    pause: Option<Duration>,
    cpus: Vec<usize>,
    latency: bool,
    xml: bool,
    profile_only: bool,
    interval: Option<Duration>,
    idle: Vec<(String, &'static str)>,
    notes: Vec<String>,
    targets: Vec<String>,
    ignore_unsupported: bool,
}

/// Reads the words of a DISKSPD line. With `ignore_unsupported`, flags that are not done are left out.
///
/// # Errors
/// [`FrontError`] names the flag, what was read and what is allowed.
pub fn parse(words: &[String], ignore_unsupported: bool) -> Result<DiskspdLine, FrontError> {
    let mut reader = Reader::new(ignore_unsupported);
    // Sizes may be in blocks, whose size may stand further on.
    for word in words.iter().filter(|word| word.starts_with("-b")) {
        reader.block = reader.size(&word[2..]).map_err(|reason| fail(word, reason))?;
    }
    for word in words {
        match word.strip_prefix('-') {
            Some(flag) if !flag.is_empty() => reader.flag(flag).map_err(|reason| fail(word, reason))?,
            _ => reader.targets.push(word.clone()),
        }
    }
    reader.finish()
}

fn fail(word: &str, reason: String) -> FrontError {
    FrontError { place: word.to_owned(), reason }
}

impl Reader {
    /// With DISKSPD's defaults.
    fn new(ignore_unsupported: bool) -> Self {
        Self {
            block: 64 << 10,
            write_percent: 0,
            access: Access::Sequential,
            random_percent: 100,
            distribution: Distribution::Uniform,
            align: None,
            stride: None,
            interlocked: false,
            depth: 2,
            threads: 1,
            threads_in_all: None,
            duration: Duration::from_secs(10),
            warmup: Duration::from_secs(5),
            cooldown: Duration::ZERO,
            base: 0,
            length: None,
            end: None,
            thread_offset: 0,
            create: None,
            buffered: true,
            mapped: false,
            write_through: false,
            zeroes: false,
            refill: false,
            seed: None,
            fresh_seed: false,
            throttle: None,
            throttle_ios: false,
            burst: None,
            pause: None,
            cpus: Vec::new(),
            latency: false,
            xml: false,
            profile_only: false,
            interval: None,
            idle: Vec::new(),
            notes: Vec::new(),
            targets: Vec::new(),
            ignore_unsupported,
        }
    }

    /// One flag without its dash.
    fn flag(&mut self, flag: &str) -> Result<(), String> {
        let mut letters = flag.chars();
        let letter = letters.next().unwrap_or(' ');
        let value = letters.as_str();
        match letter {
            'b' => self.block = self.size(value)?,
            'w' => self.write_percent = if value.is_empty() { 0 } else { number(value, 0, 100)? },
            'r' | 's' => self.order(letter, value)?,
            'o' => self.depth = number(value, 1, 4096)?,
            't' => self.threads = number(value, 1, 1024)?,
            'F' => self.threads_in_all = Some(number(value, 1, 1024)?),
            'd' => self.duration = Duration::from_secs(number(value, 1, 31_536_000)?),
            'W' => self.warmup = Duration::from_secs(number(value, 0, 31_536_000)?),
            'C' => self.cooldown = Duration::from_secs(number(value, 0, 31_536_000)?),
            'B' => {
                let (base, length) = value.split_once(':').unwrap_or((value, ""));
                self.base = self.size(base)?;
                self.length = if length.is_empty() { None } else { Some(self.size(length)?) };
            }
            'f' if value.starts_with(['r', 's', 't']) => {
                self.idle.push((format!("-{flag}"), "a hint to Windows's cache"));
            }
            'f' => self.end = Some(self.size(value)?),
            'T' => self.thread_offset = self.size(value)?,
            'c' => self.create = Some(self.size(value)?),
            'h' => self.caching("uw")?,
            'S' => self.caching(value)?,
            'z' if value.is_empty() => self.fresh_seed = true,
            'z' => self.seed = Some(number(value, 0, u64::MAX)?),
            'Z' => self.buffers(value)?,
            'g' => self.throttle(value)?,
            'i' => self.burst = Some(number(value, 1, u32::MAX)?),
            'j' => self.pause = Some(Duration::from_millis(number(value, 1, 3_600_000)?)),
            'a' => self.cpus = cpus(value)?,
            'L' if value.is_empty() => self.latency = true,
            'R' => self.result(value)?,
            'I' => {
                number(value, 1, 5)?;
                self.idle.push((format!("-{flag}"), IDLE[5].1));
            }
            'D' => {
                let ms = if value.is_empty() { 1000 } else { number(value, 1, 3_600_000)? };
                self.interval = Some(Duration::from_millis(ms));
            }
            _ => match IDLE.iter().find(|idle| idle.0 == letter) {
                Some((_, why)) => self.idle.push((format!("-{flag}"), why)),
                None if "AeLNOpuXy".contains(letter) => self.not_done(flag)?,
                None => {
                    return Err(
                        "no flag of DISKSPD's; wanted one of -b -w -r -s -o -t -F -d -W -B -f -S ..."
                            .to_owned(),
                    );
                }
            },
        }
        Ok(())
    }

    fn not_done(&mut self, flag: &str) -> Result<(), String> {
        if !self.ignore_unsupported {
            return Err(
                "a flag of DISKSPD's that is not done here; --ignore-unsupported leaves it out".to_owned()
            );
        }
        self.notes.push(format!("-{flag} is not done and was left out"));
        Ok(())
    }

    fn order(&mut self, letter: char, value: &str) -> Result<(), String> {
        let own = |this: &Self, text: &str| {
            if text.is_empty() { Ok(None) } else { this.size(text).map(Some) }
        };
        match (letter, value) {
            ('r', mixed) if mixed.starts_with('s') => {
                (self.access, self.random_percent) = (Access::Random, number(&mixed[1..], 0, 100)?);
            }
            ('r', shaped) if shaped.starts_with("dpct") => {
                (self.access, self.distribution) = (Access::Random, zones(&shaped[4..])?);
            }
            ('r', shaped) if shaped.starts_with('d') => self.not_done(&format!("r{shaped}"))?,
            ('r', align) => (self.access, self.align) = (Access::Random, own(self, align)?),
            (_, interlocked) if interlocked.starts_with('i') => {
                (self.interlocked, self.stride) = (true, own(self, &interlocked[1..])?);
            }
            (_, stride) => self.stride = own(self, stride)?,
        }
        Ok(())
    }

    /// -S with its letters: b cached, h or u past the cache, m mapped, w write-through, r remote.
    fn caching(&mut self, letters: &str) -> Result<(), String> {
        for letter in letters.chars() {
            match letter {
                'b' => self.buffered = true,
                'u' => self.buffered = false,
                'h' => (self.buffered, self.write_through) = (false, true),
                'w' => self.write_through = true,
                'm' => self.mapped = true,
                'r' => {
                    self.buffered = false;
                    self.idle.push(("-Sr".to_owned(), "what another machine caches is its own affair"));
                }
                _ => return Err("wanted -S with letters of b, h, m, r, u and w".to_owned()),
            }
        }
        if letters.is_empty() {
            self.buffered = false;
        }
        Ok(())
    }

    fn buffers(&mut self, value: &str) -> Result<(), String> {
        match value {
            "" => self.zeroes = true,
            "r" => self.refill = true,
            from_file if from_file.contains(',') => self.not_done(&format!("Z{value}"))?,
            _ => {
                let bytes = self.size(value)?;
                self.refill = true;
                self.notes.push(format!(
                    "-Z{value}: each write has random bytes of its own, not a part of the same {bytes}"
                ));
            }
        }
        Ok(())
    }

    fn throttle(&mut self, value: &str) -> Result<(), String> {
        let (number, ios) = value.strip_suffix('i').map_or((value, false), |number| (number, true));
        let rate = number.parse::<u64>().ok().filter(|&rate| rate > 0);
        let rate = rate.ok_or("wanted bytes a millisecond, as in -g1000, or I/Os a second, as in -g500i")?;
        (self.throttle, self.throttle_ios) = (Some(rate as f64), ios);
        Ok(())
    }

    fn result(&mut self, value: &str) -> Result<(), String> {
        let form = value.strip_prefix('p').unwrap_or(value);
        self.profile_only = value.starts_with('p');
        self.xml = match form {
            "text" | "" => false,
            "xml" => true,
            _ => return Err("wanted -Rtext, -Rxml, -Rptext or -Rpxml".to_owned()),
        };
        Ok(())
    }

    /// A size with K, M, G or T, or b for blocks.
    fn size(&self, text: &str) -> Result<u64, String> {
        let wanted = || format!("'{text}' is not a size; wanted one such as 4096, 64K, 1G or 8b (blocks)");
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let scale = match unit.to_ascii_lowercase().as_str() {
            "" => 1,
            "b" => self.block,
            "k" => 1 << 10,
            "m" => 1 << 20,
            "g" => 1 << 30,
            "t" => 1 << 40,
            _ => return Err(wanted()),
        };
        number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale)).ok_or_else(wanted)
    }

    fn finish(mut self) -> Result<DiskspdLine, FrontError> {
        if self.targets.is_empty() {
            return Err(fail("diskspd", "no target: wanted a block device, a file, or sim".to_owned()));
        }
        let spec = self.spec()?;
        let threads = self.threads_in_all.unwrap_or(self.threads);
        if self.threads_in_all.is_some() && self.targets.len() > 1 {
            self.notes.push(format!("-F{threads}: each thread has one worker for each target"));
        }
        let workers = u64::from(threads) * self.targets.len() as u64;
        if workers > WORKERS_MAX {
            return Err(fail("-t", format!("{workers} threads on targets: wanted at most {WORKERS_MAX}")));
        }
        let mut sections = Vec::new();
        for thread in 0..threads {
            for target in &self.targets {
                let mut section = self.section(&spec, target, thread);
                section.group = thread;
                if !self.cpus.is_empty() {
                    section.cpus = vec![self.cpus[thread as usize % self.cpus.len()]];
                }
                sections.push(section);
            }
        }
        let Self { latency, xml, profile_only, interval, notes, .. } = self;
        let plan = Plan { sections, globals: Vec::new(), notes };
        Ok(DiskspdLine { plan, latency, xml, profile_only, interval })
    }

    fn section(&self, spec: &JobSpec, target: &str, thread: u32) -> Section {
        let mut section = Section::new(&format!("thread{thread}"), spec.clone());
        let step = if self.interlocked { self.stride.unwrap_or(self.block) } else { self.thread_offset };
        let offset = self.base.saturating_add(step.saturating_mul(u64::from(thread)));
        let end = self.end.or(self.length.map(|length| self.base.saturating_add(length)));
        section.offset = Extent::Bytes(offset);
        section.size = end.map(|end| Extent::Bytes(end.saturating_sub(offset)));
        section.group_reporting = false;
        section.buffered = self.buffered || self.mapped;
        section.fresh_seed = self.fresh_seed;
        section.idle.clone_from(&self.idle);
        match self.create {
            Some(bytes) => {
                let folder = target.rsplit_once('/').map_or(".", |(folder, _)| folder);
                section.directory = Some(if folder.is_empty() { "/" } else { folder }.to_owned());
                section.size = Some(Extent::Bytes(bytes));
            }
            None => section.targets = vec![target.to_owned()],
        }
        section
    }

    fn spec(&mut self) -> Result<JobSpec, FrontError> {
        let spacing = self.stride.unwrap_or(self.block);
        let threads = u64::from(self.threads_in_all.unwrap_or(self.threads));
        let advance = if self.interlocked { spacing.saturating_mul(threads) } else { spacing };
        let stride = advance.checked_sub(self.block).ok_or_else(|| {
            fail("-s", format!("a stride of {advance} below the block size {} is not done here", self.block))
        })?;
        if self.create.is_some() {
            let note = "-c: a scratch file beside the one named, written in full first and removed after";
            self.notes.push(note.to_owned());
        }
        if self.write_through && self.write_percent > 0 {
            self.notes.push("write-through (-h, -Sh, -Sw) is done by O_DSYNC".to_owned());
        }
        let durable = self.write_through && self.write_percent > 0;
        // What DISKSPD writes unless it is told otherwise.
        let bytes: Arc<[u8]> = (0..=u8::MAX).collect();
        let pattern = if self.zeroes { Some([0].into()) } else { Some(bytes).filter(|_| !self.refill) };
        let block = self.block as f64;
        let per_s = self.throttle.map(|rate| if self.throttle_ios { rate } else { rate * 1000.0 / block });
        let think = self.pause.map(|time| Think { time, every: self.burst.unwrap_or(1) });
        Ok(JobSpec {
            operation: match self.write_percent {
                0 => Operation::Read,
                100 => Operation::Write,
                percent => Operation::Mixed { read_percent: 100 - percent },
            },
            access: self.access,
            random_percent: self.random_percent,
            distribution: self.distribution.clone(),
            block_size: self.block,
            block_align: self.align,
            stride: if self.access == Access::Sequential { stride } else { 0 },
            worker_offset: Some(0),
            arrivals: per_s.map(|per_s| Arrivals::Constant { per_s }),
            think,
            content: Content { pattern, refill: self.refill, ..Content::default() },
            sync: if durable { SyncMode::DataSync } else { SyncMode::None },
            engine: if self.mapped { EngineKind::Mmap } else { EngineKind::IoUring },
            queue_depth: if self.mapped { 1 } else { self.depth },
            runtime: self.duration,
            warmup: self.warmup,
            cooldown: self.cooldown,
            seed: self.seed.unwrap_or(0),
            ..JobSpec::default()
        })
    }
}

/// `90/10:5/5`: so many per cent of the I/Os in so many per cent of the target, one zone behind the other;
/// the rest of the I/Os falls on the rest of the target.
fn zones(text: &str) -> Result<Distribution, String> {
    let wrong =
        || format!("'{text}' is no distribution; wanted I/Os and target in per cent, as in -rdpct90/10:5/5");
    let mut zones = Vec::new();
    for zone in text.split(':') {
        let (access, size) = zone.split_once('/').ok_or_else(wrong)?;
        let percent = |text| number(text, 0_u8, 100).map_err(|_| wrong());
        zones.push(Zone { access_percent: percent(access)?, size_percent: percent(size)? });
    }
    let sum = |pick: fn(&Zone) -> u8| zones.iter().map(|zone| u32::from(pick(zone))).sum::<u32>();
    let left = |sum: u32| 100_u32.checked_sub(sum).and_then(|left| u8::try_from(left).ok()).ok_or_else(wrong);
    let rest = Zone {
        access_percent: left(sum(|zone| zone.access_percent))?,
        size_percent: left(sum(|zone| zone.size_percent))?,
    };
    match (rest.access_percent, rest.size_percent) {
        (0, 0) => (),
        (_, 0) => return Err(format!("'{text}': {} % of the I/Os have no place left", rest.access_percent)),
        _ => zones.push(rest),
    }
    Ok(Distribution::Zoned(zones))
}

/// CPUs by number, or in processor groups of 64 (`g0,1,2,g1,0`); `g` alone is the usual order.
fn cpus(text: &str) -> Result<Vec<usize>, String> {
    if let Some(groups) = text.strip_prefix('g') {
        let mut all = Vec::new();
        for group in groups.split('g').filter(|group| !group.is_empty()) {
            let (number, list) = group.split_once(',').unwrap_or((group, ""));
            let first = crate::front::number(number, 0_usize, 127)? * 64;
            all.extend(cpus(list.trim_end_matches(','))?.into_iter().map(|cpu| first + cpu));
        }
        return Ok(all);
    }
    let all: Option<Vec<usize>> =
        text.split(',').map(|cpu| cpu.parse().ok().filter(|&cpu: &usize| cpu < 8192)).collect();
    match all {
        _ if text.is_empty() => Ok(Vec::new()),
        Some(all) if all.len() <= 1024 => Ok(all),
        _ => Err(format!("'{text}' is not a list of CPUs; wanted one such as -a0,1,2")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(text: &str) -> Result<DiskspdLine, FrontError> {
        parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<String>>(), false)
    }

    #[test]
    fn the_guides_lines_are_understood() {
        let read = line("-d600 -b4k -w30 -r -o4 -t8 -h -L /dev/nvme0n1").unwrap();
        assert!(read.latency && !read.xml && read.plan.sections.len() == 8);
        let Section { spec, targets, buffered, phase, .. } = &read.plan.sections[7];
        assert_eq!((targets.as_slice(), *buffered, *phase), (&["/dev/nvme0n1".to_owned()][..], false, 0));
        assert_eq!((spec.block_size, spec.queue_depth, spec.workers), (4096, 4, 1));
        assert_eq!((spec.operation, spec.access), (Operation::Mixed { read_percent: 70 }, Access::Random));
        assert_eq!((spec.runtime, spec.warmup), (Duration::from_secs(600), Duration::from_secs(5)));
        let write = line("-d600 -b64k -w100 -o4 -t8 -h -L x").unwrap();
        assert_eq!(write.plan.sections[0].spec.operation, Operation::Write);
    }

    #[test]
    fn flags_mean_what_they_mean_there() {
        let of = |text: &str| line(&format!("{text} sim")).unwrap().plan.sections;
        let sections = of("-b8K -t2 -T1M -B4b:1G -Su -W0 -C3 -g100i -z7");
        assert_eq!(sections[1].offset, Extent::Bytes((32 << 10) + (1 << 20)));
        assert_eq!(sections[1].size, Some(Extent::Bytes((1 << 30) - (1 << 20))));
        assert_eq!(sections[0].spec.arrivals, Some(Arrivals::Constant { per_s: 100.0 }));
        assert_eq!((sections[0].spec.seed, sections[0].spec.warmup), (7, Duration::ZERO));
        assert_eq!(sections[0].spec.cooldown, Duration::from_secs(3));
        assert_eq!(of("-b4K -s16K")[0].spec.stride, 12 << 10);
        let interlocked = of("-b4K -si -t4");
        assert_eq!((interlocked[3].offset, interlocked[3].spec.stride), (Extent::Bytes(12 << 10), 12 << 10));
        assert_eq!(of("-b4K -r64K")[0].spec.block_align, Some(64 << 10));
        assert_eq!(line("-F3 a b").unwrap().plan.sections.len(), 6);
        let scratch = &line("-c1G /mnt/x").unwrap().plan.sections[0];
        assert_eq!((scratch.targets.len(), scratch.directory.as_deref()), (0, Some("/mnt")));
        assert!(line("-Rpxml x").unwrap().profile_only);
        let interval = |text: &str| line(text).unwrap().interval.map(|length| length.as_millis());
        assert_eq!((interval("-D x"), interval("-D250 x"), interval("x")), (Some(1000), Some(250), None));
        assert_eq!((of("-rs70")[0].spec.access, of("-rs70")[0].spec.random_percent), (Access::Random, 70));
        let zone = |access_percent, size_percent| Zone { access_percent, size_percent };
        let shaped = |text: &str| of(text)[0].spec.distribution.clone();
        assert_eq!(
            shaped("-rdpct90/10:5/5"),
            Distribution::Zoned(vec![zone(90, 10), zone(5, 5), zone(5, 85)])
        );
        assert_eq!(shaped("-rdpct60/40:40/60"), Distribution::Zoned(vec![zone(60, 40), zone(40, 60)]));
        assert_eq!((of("-ag0,1,2,g1,3 -t4")[2].cpus[0], of("-ag")[0].cpus.len()), (67, 0));
        assert!(!of("-Sr")[0].buffered && of("-Z1M -w100")[0].spec.content.refill);
    }

    #[test]
    fn wrong_flags_are_named() {
        for (text, words) in [
            ("-b4x x", "-b4x: '4x' is not a size"),
            ("-w101 x", "-w101: '101' is not a whole number from 0 to 100"),
            ("-o0 x", "from 1 to 4096"),
            ("-qq x", "no flag of DISKSPD's"),
            ("-rs101 x", "from 0 to 100"),
            ("-rdpct90 x", "is no distribution"),
            ("-rdpct90/100 x", "no place left"),
            ("-rdabs90/1G x", "not done here"),
            ("-Z1M,data.bin x", "not done here"),
            ("-agx x", "from 0 to 127"),
            ("-X5 x", "not done here"),
            ("-Sq x", "letters of b, h, m, r, u and w"),
            ("-b4k -s512 x", "below the block size"),
            ("-t4", "no target"),
            ("-Rjson x", "wanted -Rtext"),
        ] {
            let error = line(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        let words = ["-X5", "x"].map(str::to_owned);
        assert!(parse(&words, true).unwrap().plan.notes[0].contains("-X5"));
    }

    proptest! {
        #[test]
        fn reading_never_panics(words in prop::collection::vec("-?.{0,12}", 0..6), letter in "[a-zA-Z]", value in "[0-9a-z:,]{0,20}") {
            let _ = parse(&words, true);
            let _ = parse(&[format!("-{letter}{value}"), "x".to_owned()], true);
        }
    }
}
