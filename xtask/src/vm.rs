//! `cargo xtask vm`: scenarios in a virtual machine with real NVMe drivers, poll queues, PCIe trees and
//! memory nodes.
//!
//! Each scenario is a shell script under `xtask/vm/scenarios/` that boots on each kernel it names, in an
//! emulated machine made to its wishes, with the release binary in it. docs/testing.md says how to write one.

mod cpio;
mod initramfs;
mod modules;
mod packages;
mod progress;
mod qemu;
mod scenario;

use anyhow::{Context, Result, anyhow, bail};
use initramfs::Contents;
use packages::Cache;
use qemu::Ran;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use scenario::Scenario;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

const HELP: &str = "\
cargo xtask vm [OPTIONS] [SCENARIO...]

Boots each scenario (default: all of xtask/vm/scenarios) on each kernel it names and prints one line for each.

  --list               only list the scenarios
  --kernel SERIES      only on this kernel, such as 6.12
  --once               each scenario on one of its kernels only, taken in turn: half the time, for CI
  --overdrive PATH     the binary under test (default: target/release/overdrive)
  --jobs N             so many machines at a time (default 1)
  --verbose            show what passing scenarios print too
  --bench              the scenarios of xtask/vm/bench instead, which measure; their figures are shown

Exit: 0 all passed, 1 a scenario failed, 2 wrong use, 3 the bed itself failed.";

/// As in `cargo xtask test`: where everything can be had, nothing may be skipped.
const STRICT_VARIABLE: &str = "OVERDRIVE_NO_SKIPS";

/// How many of the console's last lines are shown when a scenario fails.
const CONSOLE_TAIL: usize = 25;

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    list: bool,
    verbose: bool,
    bench: bool,
    once: bool,
    jobs: usize,
    kernel: Option<String>,
    overdrive: PathBuf,
    names: Vec<String>,
}

/// More failures than this are no accident.
const AGAIN_MAX: usize = 3;

/// A scenario, and the series of the kernel that it boots.
type Boot<'a> = (&'a Scenario, &'a str);

/// How one scenario on one kernel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    Skipped,
}

/// How many ended how, and which failed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums<'a> {
    passed: usize,
    failed: Vec<Boot<'a>>,
    skipped: usize,
}

impl<'a> Sums<'a> {
    fn add(&mut self, verdict: Verdict, boot: Boot<'a>) {
        match verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Failed => self.failed.push(boot),
            Verdict::Skipped => self.skipped += 1,
        }
    }

    /// Whether it is worth a look if what failed holds alone: there is something, and not much.
    fn may_hold_alone(&self) -> bool {
        (1..=AGAIN_MAX).contains(&self.failed.len())
    }

    fn closing_line(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed.len(), self.skipped)
    }
}

/// Everything a boot needs.
struct Bed {
    cache: Cache,
    contents: Contents,
    verbose: bool,
    stop: Arc<AtomicBool>,
}

/// Runs the scenarios asked for.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let chosen = options(arguments, &target)
        .and_then(|options| Ok((scenarios(&folder(root, options.bench), &options.names)?, options)));
    let (scenarios, options) = match chosen {
        Ok(chosen) => chosen,
        Err(error) => {
            eprintln!("vm: {error:#}; see vm --help");
            return Ok(ExitCode::from(2));
        }
    };
    if options.list {
        for scenario in &scenarios {
            println!("{:24} {:10} {}", scenario.name, scenario.kernels.join(" "), scenario.title);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !options.overdrive.is_file() {
        eprintln!("vm: no binary at {}: run make build", options.overdrive.display());
        return Ok(ExitCode::from(2));
    }
    let sums = run_all(root, &target, &options, &scenarios)?;
    if sums == Sums::default() {
        eprintln!("vm: no scenario asks for kernel {}", options.kernel.unwrap_or_default());
        return Ok(ExitCode::from(2));
    }
    println!("{}", sums.closing_line());
    let strict = std::env::var(STRICT_VARIABLE).is_ok_and(|value| value == "1");
    Ok(ExitCode::from(u8::from(!sums.failed.is_empty() || strict && sums.skipped > 0)))
}

/// Fetches the kernel of a series for guests that others boot. What cannot be fetched is said and is no
/// failure: whoever needs it skips.
pub(crate) fn fetch(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    let [series] = arguments else {
        eprintln!("kernel: wanted one series, such as 6.1");
        return Ok(ExitCode::from(2));
    };
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    if let Err(error) = Cache::new(target.join("vm")).kernel(series) {
        eprintln!("kernel: no kernel {series}: {error:#}; the tests that boot it are skipped");
    }
    Ok(ExitCode::SUCCESS)
}

fn run_all<'a>(root: &Path, target: &Path, options: &Options, scenarios: &'a [Scenario]) -> Result<Sums<'a>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    let cache = Cache::new(target.join("vm"));
    let prepared = find_qemu().and_then(|()| cache.busybox());
    let bed = prepared.map(|busybox| {
        let contents =
            Contents { busybox, overdrive: options.overdrive.clone(), scripts: root.join("xtask/vm") };
        Bed { cache, contents, verbose: options.verbose, stop }
    });
    // Before any machine is started: two of them must not fetch the same. Who needs it says what fails.
    let is_had = |series: &str| bed.as_ref().is_ok_and(|bed| bed.cache.kernel(series).is_ok());
    let boots: Vec<Boot<'_>> = scenarios
        .iter()
        .enumerate()
        .flat_map(|(number, scenario)| {
            kernels(options, scenario, number, &is_had).into_iter().map(move |series| (scenario, series))
        })
        .collect();
    boots.iter().for_each(|(_, series)| {
        is_had(series);
    });
    let sums = beside_others(&bed, &boots, options.jobs)?;
    if bed.is_ok() && sums.may_hold_alone() { again(&bed, &sums) } else { Ok(sums) }
}

/// Makes all boots, so many at a time.
fn beside_others<'a>(bed: &Result<Bed>, boots: &[Boot<'a>], jobs: usize) -> Result<Sums<'a>> {
    let (next, sums) = (AtomicUsize::new(0), Mutex::new(Sums::default()));
    let work = |job: usize| -> Result<()> {
        hold_to_one_cpu(job)?;
        while let Some(&boot) = boots.get(next.fetch_add(1, Ordering::Relaxed)) {
            let began = Instant::now();
            let (verdict, text, remark) = match bed {
                Ok(bed) => bed.run(boot)?,
                Err(error) => (Verdict::Skipped, String::new(), format!("{error:#}")),
            };
            let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
            sums.add(verdict, boot);
            println!("{text}{}", line(verdict, boot, began.elapsed().as_secs_f64(), &remark));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|job| scope.spawn(move || work(job))).collect();
        let ended =
            workers.into_iter().map(|worker| worker.join().map_err(|_| anyhow!("a worker panicked"))?);
        ended.collect::<Result<()>>()
    })?;
    Ok(sums.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Holds this thread, and every machine that it starts, to one of the CPUs that this program may use.
///
/// QEMU's NVMe controller looks at doorbells in the guest's memory, and before 8.1 QEMU leaves out the
/// barriers of guests whose CPUs take turns: with two CPUs a command is overlooked now and then, and times
/// out. One CPU sees its own writes in their order.
fn hold_to_one_cpu(job: usize) -> Result<()> {
    let may = sched_getaffinity(None).context("cannot ask which CPUs may be used")?;
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| may.is_set(cpu)).collect();
    let mut one = CpuSet::new();
    one.set(all[job % all.len()]);
    sched_setaffinity(None, &one).context("cannot keep to one CPU")
}

/// Makes each boot that failed once more, one at a time. What holds then counts as passed, and is named.
fn again<'a>(bed: &Result<Bed>, sums: &Sums<'a>) -> Result<Sums<'a>> {
    println!("\nonce more, alone: {}", names(&sums.failed));
    let alone = beside_others(bed, &sums.failed, 1)?;
    let held: Vec<Boot<'_>> =
        sums.failed.iter().filter(|boot| !alone.failed.contains(boot)).copied().collect();
    println!();
    if alone.passed > 0 {
        println!("failed beside others, held alone: {}", names(&held));
    }
    Ok(Sums {
        passed: sums.passed + alone.passed,
        failed: alone.failed,
        skipped: sums.skipped + alone.skipped,
    })
}

fn names(boots: &[Boot<'_>]) -> String {
    let all: Vec<String> =
        boots.iter().map(|(scenario, series)| format!("{} on {series}", scenario.name)).collect();
    all.join(", ")
}

/// The kernels that the scenario of this number runs on. Where one is enough, it is another when that of its
/// turn cannot be had.
fn kernels<'a>(
    options: &Options,
    scenario: &'a Scenario,
    number: usize,
    is_had: &dyn Fn(&str) -> bool,
) -> Vec<&'a str> {
    let wanted = |series: &&str| options.kernel.as_ref().is_none_or(|only| only == series);
    let all: Vec<&str> = scenario.kernels.iter().map(String::as_str).filter(wanted).collect();
    if !options.once || all.is_empty() {
        return all;
    }
    let turn = number % all.len();
    let mut in_turn = all[turn..].iter().chain(&all[..turn]);
    vec![*in_turn.find(|series| is_had(series)).unwrap_or(&all[turn])]
}

fn line(verdict: Verdict, (scenario, series): Boot<'_>, took_s: f64, remark: &str) -> String {
    let word = match verdict {
        Verdict::Passed => "ok",
        Verdict::Failed => "FAILED",
        Verdict::Skipped => "skipped",
    };
    format!("{word:8} {:24} {series:5} {took_s:5.1} s  {remark}", scenario.name)
}

fn find_qemu() -> Result<()> {
    let found = Command::new(qemu::PROGRAM).arg("--version").stdout(Stdio::null()).status();
    found.with_context(|| format!("no {} (make setup-vm installs it)", qemu::PROGRAM)).map(drop)
}

impl Bed {
    /// Runs one scenario on one kernel; gives what is to be shown of it, and the remark for its line.
    fn run(&self, (scenario, series): Boot<'_>) -> Result<(Verdict, String, String)> {
        if self.stop.load(Ordering::Relaxed) {
            bail!("stopped");
        }
        let kernel = match self.cache.kernel(series) {
            Ok(kernel) => kernel,
            Err(error) => return Ok((Verdict::Skipped, String::new(), format!("{error:#}"))),
        };
        if let Some(missing) = initramfs::missing(scenario) {
            return Ok((Verdict::Skipped, String::new(), missing));
        }
        let initramfs = initramfs::build(&self.contents, &kernel, scenario)
            .with_context(|| format!("scenario {} on {}", scenario.name, kernel.release))?;
        let mut ran = qemu::boot(&kernel, scenario, &initramfs, &self.stop)?;
        let again = ran.has_stalled;
        if again {
            ran = qemu::boot(&kernel, scenario, &initramfs, &self.stop)?;
        }
        let (verdict, mut remark) = judge(&ran);
        if again {
            remark += " (second boot: in the first the emulated kernel stalled)";
        }
        let is_shown = self.verbose || verdict == Verdict::Failed;
        Ok((verdict, if is_shown { shown(&ran, verdict) } else { String::new() }, remark))
    }
}

/// A scenario passes when its script came to its end and said so with exit code 0.
fn judge(ran: &Ran) -> (Verdict, String) {
    match (ran.code, &ran.why) {
        (Some(0), _) => (Verdict::Passed, ran.output.last().cloned().unwrap_or_default()),
        (Some(_), _) => {
            let failures = ran.output.iter().filter(|line| line.starts_with("not ok ")).count();
            (Verdict::Failed, format!("{failures} checks failed"))
        }
        (None, Some(why)) => (Verdict::Failed, why.clone()),
        (None, None) => (Verdict::Failed, "the guest went away".to_owned()),
    }
}

/// The scenario's output, and after a failure the end of the guest's console.
fn shown(ran: &Ran, verdict: Verdict) -> String {
    let mut text: String = ran.output.iter().map(|line| format!("  {line}\n")).collect();
    if verdict == Verdict::Failed {
        let lines: Vec<&str> = ran.console.lines().collect();
        text += "  the console's last lines:\n";
        let last = &lines[lines.len().saturating_sub(CONSOLE_TAIL)..];
        text.extend(last.iter().map(|line| format!("  | {line}\n")));
    }
    text
}

fn options(arguments: &[String], target: &Path) -> Result<Options> {
    let mut options = Options {
        list: false,
        verbose: false,
        bench: false,
        once: false,
        jobs: 1,
        kernel: None,
        overdrive: target.join("release/overdrive"),
        names: Vec::new(),
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--list" => options.list = true,
            "--verbose" => options.verbose = true,
            // Figures are what a bench is for.
            "--bench" => (options.bench, options.verbose) = (true, true),
            "--once" => options.once = true,
            "--jobs" => {
                let count = value()?;
                options.jobs = count
                    .parse()
                    .ok()
                    .filter(|jobs| (1..=64).contains(jobs))
                    .with_context(|| format!("--jobs {count}: wanted a number from 1 to 64"))?;
            }
            "--kernel" => options.kernel = Some(value()?.clone()),
            "--overdrive" => options.overdrive = PathBuf::from(value()?),
            other if other.starts_with('-') => bail!("no option '{other}'"),
            name => options.names.push(name.to_owned()),
        }
    }
    Ok(options)
}

/// Where scenarios lie: those that test, or those that measure.
fn folder(root: &Path, bench: bool) -> PathBuf {
    root.join("xtask/vm").join(if bench { "bench" } else { "scenarios" })
}

/// The scenarios of a folder by name, or all of them, in the order of their names.
fn scenarios(folder: &Path, names: &[String]) -> Result<Vec<Scenario>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "sh"));
    paths.sort();
    let all: Vec<Scenario> = paths.iter().map(|path| Scenario::load(path)).collect::<Result<_>>()?;
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|scenario| scenario.name != **name)) {
        bail!("no scenario '{unknown}'");
    }
    Ok(all.into_iter().filter(|scenario| names.is_empty() || names.contains(&scenario.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        options(&arguments, Path::new("t"))
    }

    #[test]
    fn options_are_read_or_refused() {
        let read = parse("--verbose --kernel 6.12 --overdrive o one two").unwrap();
        let wanted = Options {
            list: false,
            verbose: true,
            bench: false,
            once: false,
            jobs: 1,
            kernel: Some("6.12".to_owned()),
            overdrive: "o".into(),
            names: vec!["one".to_owned(), "two".to_owned()],
        };
        assert_eq!(read, wanted);
        assert_eq!(parse("").unwrap().overdrive, Path::new("t/release/overdrive"));
        assert!(parse("--kernel").is_err() && parse("--what").is_err());
        assert_eq!(parse("--jobs 2").unwrap().jobs, 2);
        assert!(parse("--jobs 0").is_err() && parse("--jobs x").is_err());
    }

    #[test]
    fn once_takes_the_kernels_in_turn() {
        let scenario = Scenario::parse("x", "# Title\n").unwrap();
        let options = parse("--once").unwrap();
        let had = |number, had: &'static [&str]| {
            kernels(&options, &scenario, number, &|series| had.contains(&series))
        };
        assert_eq!(had(0, &["6.1", "6.12"]), ["6.1"]);
        assert_eq!(had(3, &["6.1", "6.12"]), ["6.12"]);
        assert_eq!(had(3, &["6.1"]), ["6.1"], "the other cannot be had");
        assert_eq!(had(3, &[]), ["6.12"], "none can, which is told of this one");
        let all = |line: &str| kernels(&parse(line).unwrap(), &scenario, 0, &|_| true);
        assert_eq!(all(""), ["6.1", "6.12"]);
        assert_eq!(all("--once --kernel 6.12"), ["6.12"]);
    }

    #[test]
    fn every_scenario_of_the_tree_is_sound() {
        let root = crate::root();
        for folder in [folder(&root, false), folder(&root, true)] {
            let all = scenarios(&folder, &[]).unwrap();
            assert!(!all.is_empty());
            let one = scenarios(&folder, &[all[0].name.clone()]).unwrap();
            assert_eq!(one, all[..1]);
            assert!(scenarios(&folder, &["none".to_owned()]).is_err());
        }
    }

    #[test]
    fn only_an_end_with_code_0_passes() {
        let ran = |code, why: Option<&str>| Ran {
            output: vec!["not ok a: b".to_owned(), "1 checks, 1 failed".to_owned()],
            code,
            why: why.map(str::to_owned),
            ..Ran::default()
        };
        assert_eq!(judge(&ran(Some(0), None)), (Verdict::Passed, "1 checks, 1 failed".to_owned()));
        assert_eq!(judge(&ran(Some(1), None)), (Verdict::Failed, "1 checks failed".to_owned()));
        assert_eq!(judge(&ran(None, Some("late"))), (Verdict::Failed, "late".to_owned()));
    }

    #[test]
    fn a_few_failures_are_looked_at_again_and_named() {
        let scenario = Scenario::parse("x", "# Title\n").unwrap();
        let mut sums = Sums::default();
        assert!(!sums.may_hold_alone(), "nothing failed");
        sums.add(Verdict::Passed, (&scenario, "6.1"));
        sums.add(Verdict::Failed, (&scenario, "6.12"));
        assert!(sums.may_hold_alone());
        assert_eq!(sums.closing_line(), "1 passed, 1 failed, 0 skipped");
        assert_eq!(names(&sums.failed), "x on 6.12");
        (0..AGAIN_MAX).for_each(|_| sums.add(Verdict::Failed, (&scenario, "6.1")));
        assert!(!sums.may_hold_alone(), "too many");
    }

    #[test]
    fn what_fails_alone_too_has_failed() {
        let scenario = Scenario::parse("x", "# Title\n").unwrap();
        let sums = Sums { passed: 4, failed: vec![(&scenario, "6.1")], skipped: 0 };
        // Without a bed every boot is skipped, and a skip is none that held.
        let alone = again(&Err(anyhow!("no QEMU")), &sums).unwrap();
        assert_eq!(alone.closing_line(), "4 passed, 0 failed, 1 skipped");
    }
}
