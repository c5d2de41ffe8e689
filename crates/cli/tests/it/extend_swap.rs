//! Memory extended by the kernel's swap: room is kept below the budget from outside, and nothing stays when the
//! program, or the command, has ended.

use crate::extend::{assert_empty, extend, has, signal, wait_for};
use crate::support::{folder, overdrive, read, skip, swap_may_be_on};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BUDGET: u64 = 64 << 20;

/// A program that has taken twice its budget and rests.
struct Resting {
    store: tempfile::TempDir,
    place: tempfile::TempDir,
    run: Child,
    /// The file with what its group uses.
    usage: Option<PathBuf>,
}

/// None, and said so, where it cannot be had.
fn resting(test: &str) -> Option<Resting> {
    if !has(test, "python3") || !can_swap(test) {
        return None;
    }
    let (store, place) = (folder(), folder());
    let run = start(store.path(), place.path());
    let ready = place.path().join("ready");
    wait_for(&ready);
    let usage = usage_of(&std::fs::read_to_string(&ready).unwrap());
    Some(Resting { store, place, run, usage })
}

/// A program that takes twice its budget, says so, and rests until it is told to end. Told to look through its
/// memory, it says whether all of it is as it was.
fn start(store: &Path, place: &Path) -> Child {
    let script = "import os, sys, time, zlib\n\
         def say(name, text):\n\
         \x20   open(name + '.new', 'w').write(text)\n\
         \x20   os.rename(name + '.new', name)\n\
         blocks = [os.urandom(1 << 20) for _ in range(128)]\n\
         sums = [zlib.crc32(block) for block in blocks]\n\
         say(sys.argv[1], str(os.getpid()))\n\
         while not os.path.exists(sys.argv[2]):\n\
         \x20   time.sleep(0.02)\n\
         \x20   if os.path.exists(sys.argv[3]) and not os.path.exists(sys.argv[3] + 'ed'):\n\
         \x20       say(sys.argv[3] + 'ed', str(sums == [zlib.crc32(block) for block in blocks]))\n";
    let mut run = Command::new(env!("CARGO_BIN_EXE_overdrive"));
    run.args(["extend", "--quiet", "--backend", "swap", "--dram", "64MiB", "--stats"]);
    run.arg(place.join("stats"))
        .arg("--store")
        .arg(format!("{}:256MiB", store.display()))
        .args(["--", "python3", "-c", script]);
    run.args([place.join("ready"), place.join("end"), place.join("look")]);
    run.stdin(Stdio::null()).spawn().unwrap()
}

/// The file with what the program's group uses, where this process can see it.
fn usage_of(pid: &str) -> Option<PathBuf> {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let (line, root, file) = match groups.lines().find(|line| line.contains(":memory:")) {
        Some(line) => (line, "/sys/fs/cgroup/memory", "memory.usage_in_bytes"),
        None => (groups.lines().last().unwrap(), "/sys/fs/cgroup", "memory.current"),
    };
    // In a container the name may be that of the host, and what is mounted a part of it.
    let name = line.rsplit_once(':').unwrap().1.trim_start_matches('/');
    let last = name.rsplit('/').next().unwrap();
    [name, last].into_iter().map(|name| Path::new(root).join(name).join(file)).find(|path| path.exists())
}

/// The shortest run on this store: its exit code and what it said.
fn run_true(store: &Path) -> (i32, String) {
    let place = format!("{}:64MiB", store.display());
    let (code, _, error) = extend(&["--backend", "swap", "--dram", "64MiB"], Path::new(&place), &["true"]);
    (code, error)
}

fn can_swap(test: &str) -> bool {
    let (code, error) = run_true(folder().path());
    if code == 2 {
        skip(test, error.trim());
    } else if error.contains("make room themselves") {
        skip(test, "this kernel reclaims from no group on request");
        return false;
    }
    code == 0
}

fn status_shows(waiting: u32) {
    let ask = |arguments: &[&str]| {
        let (code, text, error) =
            read(&overdrive().args(["extend", "status"]).args(arguments).output().unwrap());
        assert_eq!(code, 0, "{error}");
        text
    };
    let document: Value = serde_json::from_str(&ask(&["--json", "--interval", "100ms"])).unwrap();
    let runs = document["swap_runs"].as_array().unwrap();
    let run = runs.iter().find(|run| run["pid"] == waiting).unwrap();
    assert_eq!((&run["program"], &run["limit_bytes"]), (&json!("python3"), &json!(BUDGET)));
    for (name, least) in [("resident_bytes", BUDGET / 2), ("swapped_bytes", BUDGET / 2), ("ahead_slices", 1)]
    {
        assert!(run[name].as_u64() >= Some(least), "{name}: {run}");
    }
    assert!(run["faults_per_s"].is_number(), "{run}");
    let text = ask(&["--interval", "100ms"]);
    assert!(
        text.lines().any(|line| line.contains(&waiting.to_string()) && line.contains("python3")),
        "{text}"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let text = ask(&["--metrics"]);
    assert!(text.contains(&format!("overdrive_extend_swap_room_bytes{{pid=\"{waiting}\"")), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn room_is_kept_below_the_budget_of_a_program_on_swap() {
    const NAME: &str = "extend_swap::room_is_kept_below_the_budget_of_a_program_on_swap";
    let Some(Resting { store, place, mut run, usage }) = resting(NAME) else { return };
    let Some(usage) = usage else {
        std::fs::write(place.path().join("end"), "").unwrap();
        run.wait().unwrap();
        return skip(NAME, "the program's group is not to be seen here");
    };
    let used = || std::fs::read_to_string(&usage).unwrap().trim().parse::<u64>().unwrap();
    // The limit alone leaves it full to the last pages.
    let start = Instant::now();
    while used() > BUDGET - (512 << 10) {
        assert!(start.elapsed() < Duration::from_secs(60), "{} of {BUDGET} are used", used());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(used() > BUDGET / 2, "no more is taken away than is of use: {}", used());
    status_shows(run.id());
    std::fs::write(place.path().join("end"), "").unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(0));
    assert!(!usage.exists(), "the group stays");
    let stats = std::fs::read_to_string(place.path().join("stats")).unwrap();
    let stats: Value = serde_json::from_str(&stats).unwrap();
    assert_eq!((&stats["backend"], &stats["processes"]), (&json!("swap"), &json!([])));
    assert!(stats["swap"]["resident_max_bytes"].as_u64() > Some(BUDGET / 2), "{stats}");
    assert!(stats["swap"]["freed_ahead_bytes"].as_u64() > Some(0), "{stats}");
    assert_eq!(stats["swap"]["program"], "python3");
    assert_empty(store.path());
}

/// Sets the limit of the group with this file, as an administrator would: on version 2 memory is got out first,
/// or the kernel kills where it cannot be got out at once.
fn set_limit(usage: &Path, bytes: u64) {
    let is_v1 = usage.ends_with("memory.usage_in_bytes");
    let (file, start) = (if is_v1 { "memory.limit_in_bytes" } else { "memory.max" }, Instant::now());
    if !is_v1 {
        std::fs::write(usage.with_file_name("memory.high"), bytes.to_string()).unwrap();
        while std::fs::read_to_string(usage).unwrap().trim().parse::<u64>().unwrap() > bytes {
            assert!(start.elapsed() < Duration::from_secs(60), "nothing comes out");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    while let Err(error) = std::fs::write(usage.with_file_name(file), bytes.to_string()) {
        assert!(start.elapsed() < Duration::from_secs(60), "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    if !is_v1 {
        std::fs::write(usage.with_file_name("memory.high"), "max").unwrap();
    }
}

#[test]
fn a_limit_that_somebody_changes_is_followed() {
    const NAME: &str = "extend_swap::a_limit_that_somebody_changes_is_followed";
    let Some(Resting { store, place, mut run, usage }) = resting(NAME) else { return };
    let end = || std::fs::write(place.path().join("end"), "").unwrap();
    let Some(usage) = usage else {
        end();
        run.wait().unwrap();
        return skip(NAME, "the program's group is not to be seen here");
    };
    let used = || std::fs::read_to_string(&usage).unwrap().trim().parse::<u64>().unwrap();
    let (lower, higher) = (BUDGET * 3 / 4, BUDGET * 3 / 2);
    set_limit(&usage, lower);
    let start = Instant::now();
    while used() > lower - (512 << 10) {
        assert!(start.elapsed() < Duration::from_secs(60), "{} of {lower} are used", used());
        std::thread::sleep(Duration::from_millis(20));
    }
    set_limit(&usage, higher);
    std::fs::write(place.path().join("look"), "").unwrap();
    let looked = place.path().join("looked");
    wait_for(&looked);
    assert!(used() > BUDGET, "what it may have now is used: {}", used());
    assert_eq!(std::fs::read_to_string(&looked).unwrap(), "True", "what it kept is as it was");
    end();
    assert_eq!(run.wait().unwrap().code(), Some(0));
    assert_empty(store.path());
}

/// A program that takes more than it can have, once it is let. None where the kernel does not count its swap:
/// then it would fill the machine's, and end the programs of other tests.
fn fill(store: &Path, place: &Path) -> Option<(i32, String)> {
    let script = "import os, sys, time\n\
         open(sys.argv[1] + '.new', 'w').write(str(os.getpid()))\n\
         os.rename(sys.argv[1] + '.new', sys.argv[1])\n\
         while not os.path.exists(sys.argv[2]): time.sleep(0.02)\n\
         blocks = [os.urandom(1 << 20) for _ in range(int(open(sys.argv[2]).read()))]\n";
    let mut run = Command::new(env!("CARGO_BIN_EXE_overdrive"));
    run.args(["extend", "--quiet", "--backend", "swap", "--dram", "64MiB", "--stats"])
        .arg(place.join("stats"));
    run.arg("--store").arg(format!("{}:64MiB", store.display())).args(["--", "python3", "-c", script]);
    run.args([place.join("ready"), place.join("go")]).stdin(Stdio::null()).stderr(Stdio::piped());
    let run = run.spawn().unwrap();
    let ready = place.join("ready");
    wait_for(&ready);
    let limit = usage_of(&std::fs::read_to_string(&ready).unwrap()).and_then(|usage| {
        let (file, bytes) = match usage.ends_with("memory.usage_in_bytes") {
            true => ("memory.memsw.limit_in_bytes", 2 * BUDGET),
            false => ("memory.swap.max", BUDGET),
        };
        Some((std::fs::read_to_string(usage.with_file_name(file)).ok()?, bytes))
    });
    let is_limited = limit.as_ref().is_some_and(|(found, bytes)| found.trim() == bytes.to_string());
    std::fs::write(place.join("size"), if is_limited { "400" } else { "1" }).unwrap();
    std::fs::rename(place.join("size"), place.join("go")).unwrap();
    let output = run.wait_with_output().unwrap();
    assert!(limit.is_none() || is_limited, "{limit:?}");
    let (code, _, error) = read(&output);
    is_limited.then_some((code, error))
}

/// Nor does it take what others have: there is room for it in the area of another run.
#[test]
fn a_program_for_which_swap_is_full_is_told_of_with_what_would_do() {
    const NAME: &str = "extend_swap::a_program_for_which_swap_is_full_is_told_of_with_what_would_do";
    let Some(mut other) = resting(NAME) else { return };
    // The kernel may kill in a small group while swap is free (docs/memory.md), and then none is said to be full.
    for tries_left in (0..4).rev() {
        let (store, place) = (folder(), folder());
        let Some((code, error)) = fill(store.path(), place.path()) else {
            return skip(NAME, "the swap of the program's group cannot be limited here");
        };
        assert_eq!((code, error.lines().count()), (137, 1), "{error}");
        assert!(error.contains("killed by the kernel for want of memory"), "{error}");
        let wanted = match error.contains("while swap was free") {
            true => "wanted more --dram".to_owned(),
            false => format!("--store {}:128MiB or more", store.path().display()),
        };
        assert!(error.contains(&wanted), "{error}");
        let stats = std::fs::read_to_string(place.path().join("stats")).unwrap();
        let stats: Value = serde_json::from_str(&stats).unwrap();
        assert_eq!((&stats["exit_code"], &stats["swap"]["oom_kills"]), (&json!(137), &json!(1)));
        assert_empty(store.path());
        if error.contains("64 MiB of DRAM and 64 MiB of swap were full") {
            break;
        }
        assert!(tries_left > 0, "{error}");
    }
    std::fs::write(other.place.path().join("look"), "").unwrap();
    let looked = other.place.path().join("looked");
    wait_for(&looked);
    assert_eq!(std::fs::read_to_string(&looked).unwrap(), "True", "the other run's program");
    std::fs::write(other.place.path().join("end"), "").unwrap();
    assert_eq!(other.run.wait().unwrap().code(), Some(0));
    assert_empty(other.store.path());
}

#[test]
fn a_store_that_is_too_small_is_refused() {
    let store = folder();
    let sized = |size: &str| format!("{}:{size}", store.path().display());
    let small = ["--backend", "swap", "--dram", "64MiB"];
    let (code, _, error) = extend(&small, Path::new(&sized("63MiB")), &["true"]);
    assert_eq!((code, error.lines().count()), (2, 1), "{error}");
    assert!(error.contains("63 MiB is too small; wanted at least 64 MiB"), "{error}");
    let (code, _, error) = read(
        &overdrive()
            .args(["page", "--backing", "extend-swap", "--set", "256MiB", "--dram", "64MiB", "--store"])
            .arg(sized("64MiB"))
            .output()
            .unwrap(),
    );
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("--set 256 MiB does not fit the backing extend-swap"), "{error}");
    assert_empty(store.path());
}

#[test]
fn who_walks_through_memory_is_read_ahead_for() {
    const NAME: &str = "extend_swap::who_walks_through_memory_is_read_ahead_for";
    if !has(NAME, "python3") || !can_swap(NAME) {
        return;
    }
    if let Err(error) = overdrive_sys::fault_samples::FaultSamples::of_all() {
        return skip(NAME, &format!("no performance events: {error}"));
    }
    let (store, place) = (folder(), folder());
    // Goes through its memory page by page until enough was read ahead, or for a minute.
    let script = "import glob, os, sys, time\n\
         whole = bytearray(os.urandom(1 << 20) * 128)\n\
         want = sum(whole[::4096])\n\
         end = time.monotonic() + 60\n\
         def used():\n\
         \x20   words = open(glob.glob(sys.argv[1] + '/overdrive-extend-*/room')[0], 'rb').read()\n\
         \x20   return int.from_bytes(words[48:56], 'little')\n\
         while used() < 1 << 20 and time.monotonic() < end:\n\
         \x20   assert sum(whole[i] for i in range(0, len(whole), 4096)) == want\n";
    let mut run = Command::new(env!("CARGO_BIN_EXE_overdrive"));
    let stats = place.path().join("stats");
    run.args(["extend", "--quiet", "--backend", "swap", "--dram", "64MiB", "--stats"]).arg(&stats);
    run.arg("--store").arg(format!("{}:256MiB", store.path().display()));
    run.args(["--", "python3", "-c", script]).arg(store.path());
    let (code, _, error) = read(&run.stdin(Stdio::null()).output().unwrap());
    assert_eq!(code, 0, "{error}");
    let stats: Value = serde_json::from_str(&std::fs::read_to_string(&stats).unwrap()).unwrap();
    let (asked, used) = (&stats["swap"]["read_ahead_bytes"], &stats["swap"]["read_ahead_used_bytes"]);
    assert!(used.as_u64() >= Some(1 << 20) && asked.as_u64() >= used.as_u64(), "{stats}");
    assert_empty(store.path());
}

#[test]
fn who_waits_for_pages_is_tried_on_fewer_processors_unless_told_otherwise() {
    const NAME: &str = "extend_swap::who_waits_for_pages_is_tried_on_fewer_processors_unless_told_otherwise";
    if !has(NAME, "python3") || !can_swap(NAME) {
        return;
    }
    if overdrive_sys::affinity::allowed_cpus().unwrap().len() < 2 {
        return skip(NAME, "one processor");
    }
    // Reads its memory here and there until it has been on one processor and on all, or for so many seconds.
    let script = "import os, random, sys, time\n\
         seen, own = set(), os.sched_getaffinity(0)\n\
         whole = bytearray(os.urandom(1 << 20) * 128)\n\
         end = time.monotonic() + int(sys.argv[1])\n\
         while time.monotonic() < end and len(seen) < 2:\n\
         \x20   for _ in range(200): whole[random.randrange(len(whole))]\n\
         \x20   seen.add(len(os.sched_getaffinity(0)))\n\
         assert os.sched_getaffinity(0) <= own\n\
         print(min(seen) == 1 and len(seen) == 2)\n";
    for backend in ["swap", "pager"] {
        for (options, seconds, told) in [(&[][..], "60", "True"), (&["--no-gather"], "3", "False")] {
            let store = folder();
            let arguments = [&["--quiet", "--backend", backend, "--dram", "64MiB"][..], options].concat();
            let (code, text, error) = extend(&arguments, store.path(), &["python3", "-c", script, seconds]);
            if code == 2 {
                skip(NAME, error.trim());
                continue;
            }
            assert_eq!((code, text.trim()), (0, told), "{backend}: {error}");
            assert_empty(store.path());
        }
    }
}

#[test]
fn a_killed_run_on_swap_is_tidied_up_by_the_next() {
    const NAME: &str = "extend_swap::a_killed_run_on_swap_is_tidied_up_by_the_next";
    let Some(Resting { store, place: _place, mut run, usage }) = resting(NAME) else { return };
    let has_group = || usage.as_ref().is_some_and(|path| path.exists());
    let _swap_may_be_on = swap_may_be_on();
    signal(run.id(), "KILL");
    run.wait().unwrap();
    let has_swap_file = || {
        let mut names = std::fs::read_dir(store.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.any(|name| name.to_string_lossy().starts_with("overdrive-swap-"))
    };
    assert!(has_swap_file(), "or this test proves nothing");
    let start = Instant::now();
    // Any run removes what is in everybody's way, even one that is refused.
    let has_folder = || std::fs::read_dir(store.path()).unwrap().count() > 0;
    while has_group() || has_swap_file() || has_folder() {
        let (code, _, error) =
            extend(&["--quiet", "--dram", "64MiB"], Path::new("/no/such/store"), &["true"]);
        assert!(code == 2 && error.lines().count() == 1, "{error}");
        assert!(start.elapsed() < Duration::from_secs(120), "a killed run stays");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn page_measures_the_backend_swap() {
    const NAME: &str = "extend_swap::page_measures_the_backend_swap";
    if !can_swap(NAME) {
        return;
    }
    let store = folder();
    let place = format!("{}:256MiB", store.path().display());
    let (code, text, error) = read(
        &overdrive()
            .args(["page", "--json", "--backing", "extend-swap", "--set", "96MiB", "--dram", "48MiB"])
            .args(["--runtime", "300ms", "--warmup-max", "1s", "--store", &place])
            .output()
            .unwrap(),
    );
    assert_eq!(code, 0, "{error}");
    let document: Value = serde_json::from_str(&text).unwrap();
    let cell = &document["cells"][0];
    assert_eq!(cell["backing"], "extend-swap");
    assert!(cell["faults_per_s"].as_f64().unwrap() > 0.0, "{cell}");
    assert_empty(store.path());
}
