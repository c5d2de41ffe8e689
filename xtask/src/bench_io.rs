//! `cargo xtask bench-io`: Overdrive and fio side by side, in one run, on one file, with equal settings.
//!
//! Machines drift, so a bare figure says little: what is judged is the ratio of neighbouring runs. The order
//! alternates (fio first, then Overdrive first) so that neither always meets the warmer machine. fio gets its
//! strongest fair options; a run with its defaults shows what they are worth.

mod ceiling;
mod fio;
mod overdrive;
mod process;
pub(crate) mod scratch;
mod ticking;
mod zram;

use crate::stats::Spread;
use anyhow::{Context, Result, bail};
use rustix::thread::{CpuSet, sched_setaffinity};
use scratch::Scratch;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use ticking::Ticking;
use zram::Zram;

const HELP: &str = "\
cargo xtask bench-io [OPTIONS]

Measures 4 KiB random reads (O_DIRECT) with Overdrive and with fio in turn, and prints the ratios: by io_uring
at queue depths 1 and 32 on one scratch file, at 32 also both in batches, and by pvsync2 on a zram device of
its own. Then what needs no fio: the ring's ceiling, and two workers against one. File and device are written
in full first and removed at the end; zram is left out without root or its module.

  --dir DIR            where the scratch file goes (default: the current folder; not a tmpfs)
  --size SIZE          its size, such as 512MiB or 2GiB (default 2GiB)
  --runtime TIME       how long each measurement lasts after one second of ramp, such as 5s (default 5s)
  --repeats N          pairs of runs of each kind (default 5)
  --overdrive PATH     the binary to measure (default: target/release/overdrive)
  --cpu N              hold both tools to this CPU (default: each places its own threads)
  --only NAME          only comparisons whose name contains this; may be given several times
  --list               the comparisons and what each is held to

Where the disk is noisier than the bars, more and shorter pairs say more: --runtime 2s --repeats 15.

Exit: 0 every bar is met, 1 a bar is short, 2 wrong use or fio is missing, 3 a run failed.";

/// What is compared.
const KINDS: [Kind; 4] = [
    Kind { name: "randread-4k-qd1", engine: "io_uring", depth: 1, batched: false },
    Kind { name: "randread-4k-qd32", engine: "io_uring", depth: 32, batched: false },
    Kind { name: BATCHED, engine: "io_uring", depth: 32, batched: true },
    Kind { name: ZRAM, engine: "pvsync2", depth: 1, batched: false },
];
const BATCHED: &str = "randread-4k-qd32-batched";
const ZRAM: &str = "zram-pvsync2-qd1";
/// What is measured without fio.
const CEILINGS: [&str; 2] = ["nop", "sim"];

/// What is told of a comparison: Overdrive's figure over fio's, median of the pairs, or its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figure {
    Iops,
    Median,
    Cpu,
    /// User CPU time of an I/O in us, every latency recorded: what the tool itself costs.
    UserUs,
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Self::Iops => "iops-vs-fio",
            Self::Median => "p50-vs-fio",
            Self::Cpu => "cpu-vs-fio",
            Self::UserUs => "user-cpu-us",
        }
    }
}

/// What a figure is held to.
type Demand<T> = (T, &'static str, f64);

/// Above depth 1 both hand over so many at once, an eighth of the depth, and take back all that are done.
const SAME_STEP: &str = "4";

/// The two read the same blocks of the same disk through the same kernel interface in the same batches, and
/// both count from before the system call to the moment the completion is seen: they must agree.
const SAME_WORK: [Demand<Figure>; 5] = [
    (Figure::Iops, ">=", 0.95),
    (Figure::Iops, "<=", 1.05),
    (Figure::Median, ">=", 0.95),
    (Figure::Median, "<=", 1.05),
    (Figure::Cpu, "<=", 1.05),
];
const DEEP: [Demand<Figure>; 6] =
    [SAME_WORK[0], SAME_WORK[1], SAME_WORK[2], SAME_WORK[3], SAME_WORK[4], (Figure::UserUs, "<=", 0.10)];
/// Both tools in batches, as each spends the least: less CPU time, and no fewer I/Os for it.
const BEST: [Demand<Figure>; 3] =
    [(Figure::Iops, ">=", 1.0), (Figure::Cpu, "<=", 0.95), (Figure::UserUs, "<=", 0.10)];
/// On zram nothing waits for a device: the rate is the cost of the path.
const PATH: [Demand<Figure>; 1] = [(Figure::Iops, ">=", 1.15)];

impl Kind {
    fn demands(self) -> &'static [Demand<Figure>] {
        match (self.name, self.depth) {
            (ZRAM, _) => &PATH,
            (BATCHED, _) => &BEST,
            (_, 32) => &DEEP,
            _ => &SAME_WORK,
        }
    }
}

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    dir: PathBuf,
    size_bytes: u64,
    runtime_s: u64,
    repeats: usize,
    overdrive: PathBuf,
    cpu: Option<usize>,
    only: Vec<String>,
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }
}

/// One measurement of one tool.
#[derive(Debug, Clone, PartialEq)]
struct Sample {
    iops: f64,
    mean_ns: f64,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    p99_9_ns: Option<u64>,
    user_ns_per_io: f64,
    system_ns_per_io: f64,
}

impl Sample {
    fn cpu_ns_per_io(&self) -> f64 {
        self.user_ns_per_io + self.system_ns_per_io
    }
}

/// One job that both tools are given.
#[derive(Debug)]
struct Job<'a> {
    file: &'a Path,
    engine: &'static str,
    depth: u32,
    batched: bool,
    runtime_s: u64,
}

/// A comparison by its name.
#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    engine: &'static str,
    depth: u32,
    batched: bool,
}

/// The pairs measured of one kind, and one run of fio with its defaults.
#[derive(Debug)]
struct Series {
    kind: Kind,
    pairs: Vec<(Sample, Sample)>,
    fio_plain: Sample,
}

/// A figure with what it is held to.
#[derive(Debug, PartialEq)]
struct Bar {
    name: String,
    value: f64,
    operator: &'static str,
    limit: f64,
}

impl Bar {
    fn met(&self) -> bool {
        if self.operator == ">=" { self.value >= self.limit } else { self.value <= self.limit }
    }

    fn line(&self) -> String {
        let verdict = if self.met() { "ok" } else { "short" };
        format!("bar {} {:.3} {} {:.2} {verdict}", self.name, self.value, self.operator, self.limit)
    }
}

/// Runs the comparison.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.iter().any(|argument| argument == "--list") {
        list().iter().for_each(|line| println!("{line}"));
        return Ok(ExitCode::SUCCESS);
    }
    let options = match options(arguments, &default_binary(root)) {
        Ok(options) => options,
        Err(error) => return Ok(refuse(&format!("{error:#}; see bench-io --help"))),
    };
    let Some(fio_version) = fio::version() else {
        return Ok(refuse(
            "fio is not installed: it is what Overdrive is measured against (make setup installs it)",
        ));
    };
    if !options.overdrive.is_file() {
        return Ok(refuse(&format!("no binary at {}: run make build", options.overdrive.display())));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    if let Some(cpu) = options.cpu
        && let Err(error) = hold_to(cpu)
    {
        return Ok(refuse(&format!("{error:#}")));
    }
    println!("{fio_version} against {}", options.overdrive.display());
    match measure(&options, &stop) {
        Ok((series, ceilings)) => judge(&series, ceilings),
        Err(_) if stop.load(Ordering::Relaxed) => {
            eprintln!("bench-io: stopped; the scratch file is gone");
            Ok(ExitCode::from(130))
        }
        Err(error) => Err(error),
    }
}

/// Holds this process, and so the tools it starts, to one CPU. Where a worker runs relative to the disk's
/// interrupt can cost more than anything this bench compares.
fn hold_to(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    if cpu < CpuSet::MAX_CPU {
        set.set(cpu);
    }
    sched_setaffinity(None, &set).with_context(|| format!("cannot use CPU {cpu}"))
}

fn refuse(why: &str) -> ExitCode {
    eprintln!("bench-io: {why}");
    ExitCode::from(2)
}

fn default_binary(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    target.join("release/overdrive")
}

fn options(arguments: &[String], binary: &Path) -> Result<Options> {
    let mut options = Options {
        dir: PathBuf::from("."),
        size_bytes: 2 << 30,
        runtime_s: 5,
        repeats: 5,
        overdrive: binary.to_path_buf(),
        cpu: None,
        only: Vec::new(),
    };
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{name} needs a value"));
        match name.as_str() {
            "--dir" => options.dir = PathBuf::from(value()?),
            "--size" => options.size_bytes = size(value()?)?,
            "--runtime" => options.runtime_s = number(value()?.trim_end_matches('s'), "a time in seconds")?,
            "--repeats" => options.repeats = number(value()?, "a count")?,
            "--overdrive" => options.overdrive = PathBuf::from(value()?),
            "--cpu" => options.cpu = Some(number(value()?, "a CPU's number")?),
            "--only" => options.only.push(value()?.clone()),
            other => bail!("no option '{other}'"),
        }
    }
    if !options.only.iter().all(|part| names().any(|name| name.contains(part.as_str()))) {
        bail!("--only: no such comparison (--list names them)");
    }
    if options.repeats == 0 || options.runtime_s == 0 || options.size_bytes < 1 << 20 {
        bail!("--repeats and --runtime are at least 1, --size at least 1MiB");
    }
    Ok(options)
}

fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name).chain(CEILINGS)
}

/// Every comparison with what it is held to.
fn list() -> Vec<String> {
    let line = |name: &str, demands: &mut dyn Iterator<Item = Demand<&'static str>>| {
        let limits = demands.map(|(figure, operator, limit)| format!("{figure} {operator} {limit:.2}"));
        format!("{name:26} {}", limits.collect::<Vec<String>>().join(", "))
    };
    let compared = KINDS.map(|kind| {
        let named = |&(figure, operator, limit): &Demand<Figure>| (figure.name(), operator, limit);
        line(kind.name, &mut kind.demands().iter().map(named))
    });
    let alone = CEILINGS.map(|name| line(name, &mut ceiling::demands(name).iter().copied()));
    compared.into_iter().chain(alone).collect()
}

fn number<T: std::str::FromStr>(text: &str, wanted: &str) -> Result<T> {
    text.parse().ok().with_context(|| format!("'{text}' is not {wanted}"))
}

fn size(text: &str) -> Result<u64> {
    let (digits, shift) = match (text.strip_suffix("GiB"), text.strip_suffix("MiB")) {
        (Some(digits), _) => (digits, 30),
        (_, Some(digits)) => (digits, 20),
        _ => (text, 0),
    };
    let count: u64 = number(digits, "a size such as 512MiB or 2GiB")?;
    count.checked_mul(1 << shift).with_context(|| format!("'{text}' is too large"))
}

fn measure(options: &Options, stop: &AtomicBool) -> Result<(Vec<Series>, Vec<Bar>)> {
    let mut bars = Vec::new();
    if CEILINGS.iter().any(|name| options.wants(name)) {
        println!(
            "  this machine: two threads that only count do {:.3} times one",
            ceiling::machine_scaling()
        );
    }
    for name in CEILINGS.into_iter().filter(|name| options.wants(name)) {
        bars.extend(ceiling::bars(&options.overdrive, name, options.repeats.min(5), stop)?);
    }
    let mut scratch = None;
    let mut all = Vec::new();
    for kind in KINDS.into_iter().filter(|kind| options.wants(kind.name)) {
        if kind.name != ZRAM {
            let file = match scratch.take() {
                Some(file) => file,
                None => write_scratch(options, stop)?,
            };
            all.push(series(options, kind, file.path(), stop)?);
            scratch = Some(file);
            continue;
        }
        match Zram::add() {
            Ok(zram) => all.push(series(options, kind, &zram.path(), stop)?),
            Err(error) => println!("skipped: {}: {error:#}", kind.name),
        }
    }
    Ok((all, bars))
}

fn write_scratch(options: &Options, stop: &AtomicBool) -> Result<Scratch> {
    println!("writing a scratch file of {} MiB", options.size_bytes >> 20);
    Scratch::create(&options.dir, options.size_bytes, stop)
}

fn series(options: &Options, kind: Kind, file: &Path, stop: &AtomicBool) -> Result<Series> {
    let Kind { engine, depth, batched, .. } = kind;
    let job = Job { file, engine, depth, batched, runtime_s: options.runtime_s };
    let mut pairs = Vec::new();
    let _ticking = (depth == 1 && engine == "io_uring").then(Ticking::start);
    for repeat in 0..options.repeats {
        let pair = pair(options, &job, repeat, stop)?;
        show("fio", kind, repeat, &pair.0);
        show("overdrive", kind, repeat, &pair.1);
        pairs.push(pair);
    }
    let fio_plain = fio::measure(&job, fio::Strength::Defaults, stop)?;
    show("fio, defaults", kind, 0, &fio_plain);
    Ok(Series { kind, pairs, fio_plain })
}

fn pair(options: &Options, job: &Job<'_>, repeat: usize, stop: &AtomicBool) -> Result<(Sample, Sample)> {
    let strength = if job.batched { fio::Strength::Batched } else { fio::Strength::Full };
    let fio = || fio::measure(job, strength, stop);
    let ours = || overdrive::measure(&options.overdrive, job, stop);
    if repeat.is_multiple_of(2) {
        let first = fio()?;
        Ok((first, ours()?))
    } else {
        let first = ours()?;
        Ok((fio()?, first))
    }
}

fn show(tool: &str, kind: Kind, repeat: usize, sample: &Sample) {
    println!("  {:24} run {} {tool:14} {}", kind.name, repeat + 1, describe(sample));
}

fn describe(sample: &Sample) -> String {
    let us = |value: Option<u64>| value.map_or("-".to_owned(), |ns| format!("{:.1}", ns as f64 / 1e3));
    format!(
        "{:>9.0} IOPS  mean {:.1} us  p50 {}  p99 {}  p99.9 {}  CPU per I/O {:.2} us user {:.2} us system",
        sample.iops,
        sample.mean_ns / 1e3,
        us(sample.p50_ns),
        us(sample.p99_ns),
        us(sample.p99_9_ns),
        sample.user_ns_per_io / 1e3,
        sample.system_ns_per_io / 1e3,
    )
}

fn judge(all: &[Series], mut bars: Vec<Bar>) -> Result<ExitCode> {
    for series in all {
        println!();
        for line in summary(series) {
            println!("{line}");
        }
        bars.extend(series_bars(series));
    }
    println!();
    for bar in &bars {
        println!("{}", bar.line());
    }
    if bars.is_empty() {
        bail!("nothing was measured, so no bar is met");
    }
    Ok(if bars.iter().all(Bar::met) { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The ratio of Overdrive's figure to fio's over the pairs.
fn ratio(series: &Series, figure: impl Fn(&Sample) -> f64) -> Spread {
    Spread::of(series.pairs.iter().map(|(fio, ours)| figure(ours) / figure(fio)))
}

/// NaN where the percentile is not told, so that a bar on it is short.
fn p50_us(sample: &Sample) -> f64 {
    sample.p50_ns.map_or(f64::NAN, |ns| ns as f64 / 1e3)
}

fn summary(series: &Series) -> Vec<String> {
    let median = |figure: &dyn Fn(&Sample) -> f64| {
        let of = |pick: fn(&(Sample, Sample)) -> &Sample| {
            Spread::of(series.pairs.iter().map(|pair| figure(pick(pair)))).median
        };
        (of(|pair| &pair.0), of(|pair| &pair.1))
    };
    let (fio_iops, our_iops) = median(&|sample| sample.iops);
    let (fio_mean, our_mean) = median(&|sample| sample.mean_ns / 1e3);
    let (fio_cpu, our_cpu) = median(&|sample| sample.cpu_ns_per_io() / 1e3);
    let iops = ratio(series, |sample| sample.iops);
    let mean = ratio(series, |sample| sample.mean_ns);
    let (fio_user, our_user) = median(&|sample| sample.user_ns_per_io / 1e3);
    let (fio_p50, our_p50) = median(&|sample| p50_us(sample));
    let p50 = ratio(series, p50_us);
    let cpu = ratio(series, Sample::cpu_ns_per_io);
    vec![
        format!("{}: medians, then the ratio of each pair (median, range)", series.kind.name),
        format!("  IOPS            fio {fio_iops:.0}  overdrive {our_iops:.0}  ratio {iops}"),
        format!("  mean latency us fio {fio_mean:.1}  overdrive {our_mean:.1}  ratio {mean}"),
        format!("  p50 us          fio {fio_p50:.1}  overdrive {our_p50:.1}  ratio {p50}"),
        format!("  CPU per I/O us  fio {fio_cpu:.2}  overdrive {our_cpu:.2}  ratio {cpu}"),
        format!("  user part of it fio {fio_user:.3}  overdrive {our_user:.3}"),
        format!("  fio with its defaults: {:.0} IOPS, one run", series.fio_plain.iops),
    ]
}

fn series_bars(series: &Series) -> Vec<Bar> {
    let value = |figure: Figure| match figure {
        Figure::Iops => ratio(series, |sample| sample.iops).median,
        Figure::Median => ratio(series, p50_us).median,
        Figure::Cpu => ratio(series, Sample::cpu_ns_per_io).median,
        Figure::UserUs => Spread::of(series.pairs.iter().map(|(_, ours)| ours.user_ns_per_io / 1e3)).median,
    };
    let bar = |&(figure, operator, limit): &Demand<Figure>| Bar {
        name: format!("{}-{}", series.kind.name, figure.name()),
        value: value(figure),
        operator,
        limit,
    };
    series.kind.demands().iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        options(&arguments, Path::new("bin"))
    }

    #[test]
    fn options_are_read_or_refused() {
        let read =
            parse("--dir d --size 512MiB --runtime 3s --repeats 2 --overdrive o --cpu 1 --only qd1").unwrap();
        let wanted = Options {
            dir: "d".into(),
            size_bytes: 512 << 20,
            runtime_s: 3,
            repeats: 2,
            overdrive: "o".into(),
            cpu: Some(1),
            only: vec!["qd1".to_owned()],
        };
        assert_eq!(read, wanted);
        assert_eq!(parse("").unwrap().overdrive, Path::new("bin"));
        for line in [
            "--size",
            "--size 2X",
            "--size 99999999999GiB",
            "--repeats 0",
            "--depth 1",
            "--runtime soon",
            "--cpu x",
            "--only qd64",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    fn sample(iops: f64, cpu_ns: f64) -> Sample {
        let (half, none) = (cpu_ns / 2.0, None);
        let (user_ns_per_io, system_ns_per_io) = (half, half);
        Sample {
            iops,
            mean_ns: 1e9 / iops,
            p50_ns: Some((1e9 / iops) as u64),
            p99_ns: none,
            p99_9_ns: none,
            user_ns_per_io,
            system_ns_per_io,
        }
    }

    #[test]
    fn bars_come_from_the_median_of_paired_ratios() {
        let pairs = [(100.0, 90.0), (200.0, 198.0), (50.0, 60.0)]
            .map(|(fio, ours)| (sample(fio, 4000.0), sample(ours, 5000.0)));
        let series = Series { kind: KINDS[1], pairs: pairs.to_vec(), fio_plain: sample(80.0, 1.0) };
        let lines: Vec<String> = series_bars(&series).iter().map(Bar::line).collect();
        assert_eq!(
            lines,
            [
                "bar randread-4k-qd32-iops-vs-fio 0.990 >= 0.95 ok",
                "bar randread-4k-qd32-iops-vs-fio 0.990 <= 1.05 ok",
                "bar randread-4k-qd32-p50-vs-fio 1.010 >= 0.95 ok",
                "bar randread-4k-qd32-p50-vs-fio 1.010 <= 1.05 ok",
                "bar randread-4k-qd32-cpu-vs-fio 1.250 <= 1.05 short",
                "bar randread-4k-qd32-user-cpu-us 2.500 <= 0.10 short",
            ]
        );
        let zram = Series { kind: KINDS[3], ..series };
        assert_eq!(series_bars(&zram)[0].line(), "bar zram-pvsync2-qd1-iops-vs-fio 0.990 >= 1.15 short");
        assert_eq!(judge(&[zram], Vec::new()).unwrap(), ExitCode::from(1));
        assert!(judge(&[], Vec::new()).is_err(), "all that was asked for was left out");
    }

    #[test]
    fn one_comparison_may_be_asked_for() {
        let of = |line: &str| names().filter(|name| parse(line).unwrap().wants(name)).collect::<Vec<_>>();
        assert_eq!(of("--only qd32-b --only nop"), [BATCHED, "nop"]);
        assert_eq!(of("").len(), KINDS.len() + CEILINGS.len());
        assert!(
            list().iter().any(|line| line.starts_with("nop ") && line.contains("million-per-s >= 10.00"))
        );
    }

    #[test]
    fn a_figure_that_is_not_a_number_is_short() {
        let bar = |operator| Bar { name: "x".to_owned(), value: f64::NAN, operator, limit: 1.0 };
        assert!(!bar(">=").met() && !bar("<=").met());
    }
}
