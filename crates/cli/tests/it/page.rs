//! Paging: cells on DRAM and on swap under a budget, refusals, and nothing left behind, however a run ends.

use crate::support::{folder, read, run, skip, swap_may_be_on};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Groups and swap areas of ours that there are now, with `part` in their path.
fn leftovers(part: &str) -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().starts_with("overdrive-page-") {
                    found.push(entry.path());
                }
                walk(&entry.path(), found);
            }
        }
    }
    let mut found = Vec::new();
    walk(Path::new("/sys/fs/cgroup"), &mut found);
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let ours = swaps
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|path| path.contains("overdrive-swap-"));
    found.extend(ours.map(PathBuf::from));
    found.retain(|path| path.to_string_lossy().contains(part));
    found
}

/// Whether a budget and a swap file can be had here; says why not.
fn can_page(test: &str, folder: &Path) -> bool {
    let arguments = [
        "page",
        "--backing",
        "swap",
        "--set",
        "16MiB",
        "--dram",
        "8MiB",
        "--runtime",
        "20ms",
        "--warmup-max",
        "20ms",
    ];
    let (code, _, error) = read(
        &crate::support::overdrive()
            .args(arguments)
            .arg("--swap")
            .arg(format!("{}:64MiB", folder.display()))
            .output()
            .unwrap(),
    );
    if code == 2 {
        skip(test, &format!("no paging here: {}", error.trim()));
    } else {
        assert_eq!(code, 0, "{error}");
    }
    code == 0
}

#[test]
fn dram_alone_needs_no_rights_and_gives_a_cell_each() {
    let arguments =
        ["page", "--backing", "dram", "--set", "16MiB", "--threads", "1,2", "--read-ratio", "0,100"];
    let (code, text, error) = run(&[&arguments[..], &["--runtime", "100ms", "--json"]].concat());
    assert_eq!(code, 0, "{error}");
    let document: Value = serde_json::from_str(&text).unwrap();
    let cells = document["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    for cell in cells {
        assert!(cell["pages_per_s"].as_f64().unwrap() > 1000.0, "{cell}");
        assert_eq!((cell["backing"].as_str(), cell["pattern"].as_str()), (Some("dram"), Some("uniform")));
        let of = |kind: &str| cell[kind]["samples"].as_u64().unwrap();
        let only_reads = cell["read_ratio_percent"] == 100;
        assert_eq!((of("read_latency_ns") > 0, of("write_latency_ns") > 0), (only_reads, !only_reads));
        // Not the median: what the caches hold may take less than the clock can tell.
        assert!(cell["latency_ns"]["max"].as_u64().unwrap() > 0);
    }
}

#[test]
fn a_record_and_a_report_are_written_and_rendered_again() {
    let folder = folder();
    let out = folder.path().join("out");
    let out = out.to_str().unwrap();
    let arguments = ["page", "--backing", "dram", "--set", "16MiB", "--threads", "1,2", "--numa"];
    let (code, text, error) = run(&[&arguments[..], &["--runtime", "100ms", "--out", out]].concat());
    assert_eq!(code, 0, "{error}");
    assert!(text.contains("How it scales") && text.contains("hits only"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80 || !line.trim().contains(' ')), "{text}");
    assert!(text.contains("node 0"), "{text}");
    let record: Value =
        serde_json::from_str(&std::fs::read_to_string(format!("{out}/record.json")).unwrap()).unwrap();
    assert_eq!(record["target"]["kind"], "memory");
    let cell = &record["paging"]["cells"][1];
    assert_eq!((cell["threads"].as_u64(), cell["backing"].as_str()), (Some(2), Some("dram")));
    assert!(cell["nodes"][0]["pages_per_s"].as_f64().unwrap() > 1000.0, "{cell}");
    assert!(std::fs::read_to_string(format!("{out}/report.html")).unwrap().contains("id=\"paging\""));
    let name = format!("{out}/record.json");
    let (code, text, error) = run(&["compare", &name, &name]);
    assert_eq!((code, text.as_str()), (2, ""));
    assert!(error.contains("a record of `overdrive page`"), "{error}");
    let (code, again, error) = run(&["report", &format!("{out}/record.json")]);
    assert!(code == 0 && again.contains("Pages a second") && !again.contains("Drive"), "{again}{error}");
    let log = format!("{out}/page.hlog");
    let (code, _, error) = run(&["report", &name, "--hlog", &log]);
    let tags = std::fs::read_to_string(&log).unwrap_or_default().matches("Tag=dram-").count();
    assert!(code == 0 && tags > 0, "one line at least for each cell: {tags} {error}");
    let (code, _, error) = run(&[&arguments[..], &["--out", "/proc/none"]].concat());
    assert!(code == 2 && error.contains("cannot write there"), "{error}");
}

#[test]
fn a_set_above_its_budget_pages_and_leaves_nothing() {
    const NAME: &str = "page::a_set_above_its_budget_pages_and_leaves_nothing";
    let folder = folder();
    if !can_page(NAME, folder.path()) {
        return;
    }
    let swap = format!("{}:192MiB", folder.path().display());
    let arguments =
        ["page", "--set", "64MiB", "--dram", "32MiB", "--runtime", "500ms", "--warmup-max", "3s", "--json"];
    let (code, text, error) = run(&[&arguments[..], &["--swap", &swap]].concat());
    assert_eq!(code, 0, "{error}");
    let document: Value = serde_json::from_str(&text).unwrap();
    let [dram, paged] = [0, 1].map(|index| &document["cells"][index]);
    assert_eq!((dram["backing"].as_str(), paged["backing"].as_str()), (Some("dram"), Some("swap")));
    // Half the set fits: about half of the accesses must fault, by the clock and by the kernel's count.
    let share = |key: &str| paged[key].as_f64().unwrap() / paged["pages_per_s"].as_f64().unwrap();
    assert!((0.2..0.9).contains(&share("faults_per_s")), "{paged}");
    assert!(share("major_faults_per_s") > 0.1, "{paged}");
    assert_eq!(dram["major_faults_per_s"], 0.0, "{dram}");
    assert!(dram["pages_per_s"].as_f64() > paged["pages_per_s"].as_f64());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let name = folder.path().to_string_lossy().into_owned();
    assert_eq!(leftovers(&name), Vec::<PathBuf>::new());
}

fn start(folder: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_overdrive"))
        .args([
            "page",
            "--backing",
            "swap",
            "--set",
            "32MiB",
            "--dram",
            "16MiB",
            "--runtime",
            "60s",
            "--swap",
        ])
        .arg(format!("{}:96MiB", folder.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until a run of process `pid` has made its group and its swap file.
fn wait_until_set_up(pid: u32) {
    let start = Instant::now();
    while leftovers(&format!("-{pid}-")).len() < 2 {
        assert!(start.elapsed() < Duration::from_secs(60), "no group and swap file appeared");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

#[test]
fn ctrl_c_takes_everything_down() {
    const NAME: &str = "page::ctrl_c_takes_everything_down";
    let folder = folder();
    if !can_page(NAME, folder.path()) {
        return;
    }
    let mut child = start(folder.path());
    wait_until_set_up(child.id());
    signal(child.id(), "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(leftovers(&format!("-{}-", child.id())), Vec::<PathBuf>::new());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_a_killed_run_leaves_is_swept() {
    const NAME: &str = "page::what_a_killed_run_leaves_is_swept";
    let folder = folder();
    if !can_page(NAME, folder.path()) {
        return;
    }
    let _swap_may_be_on = swap_may_be_on();
    let mut child = start(folder.path());
    // Group and swap file stand now; another test's run may sweep them before we do.
    wait_until_set_up(child.id());
    signal(child.id(), "KILL");
    child.wait().unwrap();
    let (code, text, error) = run(&["page", "--clean-stale"]);
    assert_eq!(code, 0, "{text}{error}");
    assert_eq!(leftovers(&format!("-{}-", child.id())), Vec::<PathBuf>::new());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// The moments at which runs are killed are spread over its length: before there is anything, while swap
/// and group are made, while the set is filled and measured, while all is taken down.
#[test]
fn killed_at_any_moment_nothing_is_left() {
    const NAME: &str = "page::killed_at_any_moment_nothing_is_left";
    const MOMENTS: u32 = 16;
    let folder = folder();
    if !can_page(NAME, folder.path()) {
        return;
    }
    // The shorter of two: one may have been held up. The bound keeps a slow machine from taking minutes.
    let lengths = [(); 2].map(|()| {
        let begun = Instant::now();
        assert!(start_short(folder.path()).wait().unwrap().success());
        begun.elapsed()
    });
    let length = lengths[0].min(lengths[1]).min(Duration::from_secs(4));
    for moment in 0..MOMENTS {
        let _swap_may_be_on = swap_may_be_on();
        let mut child = start_short(folder.path());
        std::thread::sleep(length * moment / MOMENTS);
        // It may have come to its end already: then nothing is left either.
        child.kill().unwrap();
        child.wait().unwrap();
        let part = format!("-{}-", child.id());
        let place = format!("killed {moment}/{MOMENTS} into a run of {length:?}");
        // The next run cleans up as well as the command that does nothing else.
        if moment % 4 == 3 {
            assert!(start_short(folder.path()).wait().unwrap().success(), "{place}: the next run");
        } else {
            let (code, text, error) = run(&["swap", "off", "--stale"]);
            assert_eq!(code, 0, "{place}: {text}{error}");
        }
        assert_eq!(leftovers(&part), Vec::<PathBuf>::new(), "{place}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{place}: a file is left");
        assert_eq!(notes(&part), Vec::<PathBuf>::new(), "{place}");
    }
}

/// A run of about a second.
fn start_short(folder: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_overdrive"))
        .args(["page", "--backing", "swap", "--set", "32MiB", "--dram", "16MiB"])
        .args(["--runtime", "300ms", "--warmup-max", "200ms", "--swap"])
        .arg(format!("{}:96MiB", folder.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The notes that name swap files of a process.
fn notes(part: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/var/lib/overdrive/swap-files").into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains(part)).collect()
}

#[test]
fn what_cannot_be_measured_is_refused_in_one_line() {
    let folder = folder();
    let place = folder.path().to_str().unwrap();
    for (arguments, word) in [
        (vec!["--pattern", "unifrom", "--backing", "dram"], "wanted uniform"),
        (vec!["--set", "9000TiB", "--backing", "dram"], "does not fit"),
        (vec!["--set", "64MiB", "--dram", "9000GiB", "--swap", place], "larger than this machine's memory"),
        (
            vec!["--set", "64MiB", "--dram", "16MiB", "--swap", &format!("{place}:1MiB")],
            "does not fit the backing swap",
        ),
        (vec!["--set", "64MiB", "--swap", "/no/such/place"], "wanted a directory"),
        (vec!["--threads", "0", "--backing", "dram"], "wanted 1 to"),
        (vec!["--read-ratio", "101", "--backing", "dram"], "wanted 0 to 100"),
        (vec!["--set", "1k", "--backing", "dram"], "one page"),
        (vec!["--dram", "1GiB", "--backing", "dram"], "--dram limits the backing swap"),
        (vec!["pmbench", "-j", "8"], "no duration"),
    ] {
        let (code, text, error) = run(&[&["page"], &arguments[..]].concat());
        assert_eq!((code, text.as_str(), error.lines().count()), (2, "", 1), "{arguments:?}: {error}");
        assert!(error.contains(word), "{arguments:?}: {error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn pmbenchs_words_give_pmbenchs_histogram() {
    let words = "page pmbench -z -r 0 -a histo -j 2 -s 8 -m 8 1";
    let (code, text, error) = run(&words.split(' ').collect::<Vec<&str>>());
    assert_eq!(code, 0, "{error}");
    assert!(text.contains("Write:\n2^(00,08) ns: ") && !text.contains("Read:\n"), "{text}");
    let samples = text.lines().find_map(|line| line.strip_prefix("Total samples: ")).unwrap();
    assert!(samples.parse::<u64>().unwrap() > 1000, "{text}");
}

#[test]
fn what_is_named_twice_is_refused() {
    for (option, list, twice) in [
        ("--threads", "1,2,1", "1"),
        ("--backing", "dram,dram", "dram"),
        ("--pattern", "linear,linear", "linear"),
        ("--read-ratio", "50,50", "50"),
    ] {
        let (code, text, error) = run(&["page", "--set", "16MiB", option, list]);
        assert_eq!((code, text.as_str(), error.lines().count()), (2, "", 1), "{option}: {error}");
        assert!(error.contains(&format!("{option} names {twice} twice: wanted each once")), "{error}");
    }
}
