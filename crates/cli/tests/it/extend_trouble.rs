//! Memory extension when something goes wrong: before the program begins, while others still run, and at the end.

use crate::extend::{Ended, assert_empty, can_page, extend, has, ready, signal, wait_for};
use crate::support::{folder, overdrive, read, skip, swap_may_be_on};
use overdrive_sys::memory_group::{MemoryGroup, Place};
use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Waits for a command that may hang, and ends it then.
fn within(time: Duration, command: &mut Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > time {
            child.kill().unwrap();
            panic!("hangs: {:?}", child.wait_with_output().unwrap());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// What is registered with the userfaultfd was unmapped while nobody read its messages, which hung for good.
#[test]
fn a_program_whose_engine_cannot_be_built_ends_with_a_line() {
    const NAME: &str = "extend_trouble::a_program_whose_engine_cannot_be_built_ends_with_a_line";
    let folder = folder();
    let Some(_swap_is_off) = can_page(NAME, folder.path()) else { return };
    let library = Path::new(env!("CARGO_BIN_EXE_overdrive")).with_file_name("libovermem.so");
    let settings = format!("budget={},store_bytes=0,dir={}", 64 << 20, folder.path().display());
    let mut program = Command::new("true");
    program.env("LD_PRELOAD", library).env("OVERDRIVE_EXTEND", settings);
    let (code, text, error) = read(&within(Duration::from_secs(20), &mut program));
    assert_eq!((code, text.as_str(), error.lines().count()), (2, "", 1), "{error}");
    assert!(error.contains("the store is 0"), "{error}");
}

#[test]
fn a_program_that_cannot_be_started_is_exit_code_2_and_one_line() {
    const NAME: &str = "extend_trouble::a_program_that_cannot_be_started_is_exit_code_2_and_one_line";
    let (store, place) = (folder(), folder());
    let Some(_swap_is_off) = can_page(NAME, store.path()) else { return };
    let program = place.path().join("program");
    let mut content = std::fs::read("/bin/true").unwrap();
    let (from, to) = (&b"/lib64/ld-linux-x86-64.so.2"[..], &b"/lib64/no-such-loader.so.2!"[..]);
    let Some(at) = content.windows(from.len()).position(|part| part == from) else {
        return skip(NAME, "this machine's programs name another loader");
    };
    content[at..at + to.len()].copy_from_slice(to);
    std::fs::write(&program, content).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let words = ["--quiet", "--backend", "pager", "--dram", "64MiB"];
    let (code, _, error) = extend(&words, store.path(), &[program.to_str().unwrap()]);
    assert_eq!((code, error.lines().count()), (2, 1), "{error}");
    assert!(error.contains("loader or interpreter"), "{error}");
    assert_empty(store.path());
}

#[test]
fn what_is_no_library_is_refused_and_one_that_limits_nothing_is_told() {
    const NAME: &str = "extend_trouble::what_is_no_library_is_refused_and_one_that_limits_nothing_is_told";
    let (store, place) = (folder(), folder());
    let Some(_swap_is_off) = can_page(NAME, store.path()) else { return };
    let library = place.path().join("lib.so");
    let run = || {
        let words = ["--quiet", "--backend", "pager", "--dram", "64MiB", "--library"];
        extend(&[&words[..], &[library.to_str().unwrap()]].concat(), store.path(), &["true"])
    };
    let words = ["--quiet", "--dram", "64MiB", "--library", "/no/such/library"];
    let (code, _, error) = extend(&words, store.path(), &["true"]);
    assert!(code == 2 && error.contains("no such file"), "no swap is made for a slip of the pen: {error}");
    std::fs::write(&library, "no library").unwrap();
    let (code, _, error) = run();
    assert!(code == 2 && error.contains("no library for this machine"), "{error}");
    let source = place.path().join("lib.c");
    std::fs::write(&source, "int other;\n").unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    if !built.is_ok_and(|status| status.success()) {
        return skip(NAME, "no C compiler");
    }
    let (code, _, error) = run();
    assert!(code == 0 && error.contains("not loaded: nothing was limited"), "{error}");
    // Root's programs too: the loader ignores the library when the group changes.
    let program = place.path().join("setgid");
    std::fs::copy("/bin/true", &program).unwrap();
    if std::os::unix::fs::chown(&program, None, Some(65_534)).is_err() {
        return skip(NAME, "needs root to give a file to another group");
    }
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o2755)).unwrap();
    let words = ["--backend", "pager", "--dram", "64MiB"];
    let (code, _, error) = extend(&words, store.path(), &[program.to_str().unwrap()]);
    assert!(code == 2 && error.contains("setgid"), "{error}");
    assert_empty(store.path());
}

#[test]
fn limits_that_would_end_the_program_without_a_word_are_refused_with_the_remedy() {
    const NAME: &str =
        "extend_trouble::limits_that_would_end_the_program_without_a_word_are_refused_with_the_remedy";
    let store = folder();
    let Some(_swap_is_off) = can_page(NAME, store.path()) else { return };
    let run = |limits: &str, backend: &str| {
        let script = format!(
            "{limits}; exec {} extend --quiet --backend {backend} --dram 64MiB --store {}:256MiB -- true",
            env!("CARGO_BIN_EXE_overdrive"),
            store.path().display()
        );
        let (code, _, error) = read(&Command::new("sh").args(["-c", &script]).output().unwrap());
        assert_eq!((code, error.lines().count()), (2, 1), "{limits} {backend}: {error}");
        error
    };
    for backend in ["pager", "swap"] {
        assert!(run("ulimit -f 1000", backend).contains("wanted ulimit -f unlimited"));
    }
    // The library looks for itself.
    let library = Path::new(env!("CARGO_BIN_EXE_overdrive")).with_file_name("libovermem.so");
    let settings = format!("budget={},store_bytes={},dir=/var/tmp", 64 << 20, 256 << 20);
    let mut program = Command::new("sh");
    program.args(["-c", "ulimit -f 1000; exec env LD_PRELOAD=\"$0\" true"]).arg(library);
    let (code, _, error) = read(&program.env("OVERDRIVE_EXTEND", settings).output().unwrap());
    assert!(code == 2 && error.contains("wanted ulimit -f unlimited"), "{code}: {error}");
    assert_empty(store.path());
}

#[test]
fn root_in_a_container_is_told_what_neither_backend_has() {
    const NAME: &str = "extend_trouble::root_in_a_container_is_told_what_neither_backend_has";
    let store = folder();
    let Some(_swap_is_off) = can_page(NAME, store.path()) else { return };
    let run = |backend: &str| {
        let mut command = Command::new("setpriv");
        // What runtimes leave out of root's rights, among others.
        command.args(["--bounding-set=-sys_admin,-sys_ptrace", "--inh-caps=-sys_admin,-sys_ptrace"]);
        command.arg(env!("CARGO_BIN_EXE_overdrive"));
        command.args(["extend", "--backend", backend, "--dram", "64MiB", "--store"]).arg(store.path());
        read(&command.args(["--", "true"]).output().unwrap())
    };
    let (code, _, error) = run("auto");
    if error.contains("setpriv") {
        return skip(NAME, &format!("rights cannot be taken away: {}", error.trim()));
    }
    assert_eq!((code, error.lines().count()), (2, 1), "{error}");
    let (pager, swap) = ("wanted CAP_SYS_PTRACE", "wanted root with CAP_SYS_ADMIN outside of containers");
    assert!(error.contains(pager) && error.contains(swap), "{error}");
    let (code, _, error) = run("swap");
    assert!(code == 2 && error.contains(swap), "{error}");
    assert_empty(store.path());
}

#[test]
fn a_budget_above_the_limit_of_the_own_group_is_refused() {
    const NAME: &str = "extend_trouble::a_budget_above_the_limit_of_the_own_group_is_refused";
    let store = folder();
    let Some(_swap_is_off) = can_page(NAME, store.path()) else { return };
    let group = Place::find().and_then(|place| MemoryGroup::create(&place, 100 << 20));
    let Ok(group) = group else { return skip(NAME, "no group can be made") };
    let run = |dram: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", "read line; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_overdrive")]);
        command.args(["extend", "--backend", "pager", "--dram", dram, "--store"]).arg(store.path());
        command.args(["--", "true"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        group.admit(child.id()).unwrap();
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        read(&child.wait_with_output().unwrap())
    };
    let (code, _, error) = run("128MiB");
    let wanted = format!("{}/memory.", group.path().display());
    assert!(code == 2 && error.contains(&wanted) && error.contains("allows 100 MiB"), "{error}");
    let (code, _, error) = run("64MiB");
    assert_eq!(code, 0, "{error}");
    assert_empty(store.path());
    group.remove().unwrap();
}

#[test]
fn counters_go_into_a_pipe_and_what_cannot_be_written_leaves_the_programs_own_code() {
    const NAME: &str =
        "extend_trouble::counters_go_into_a_pipe_and_what_cannot_be_written_leaves_the_programs_own_code";
    let (store, place) = (folder(), folder());
    let Some(_swap_is_off) = can_page(NAME, store.path()) else { return };
    let pipe = place.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = Command::new("cat").arg(&pipe).stdout(Stdio::piped()).spawn().unwrap();
    let words = ["--quiet", "--backend", "pager", "--dram", "64MiB", "--stats"];
    let run = |stats: &Path, script: &str| {
        let words = [&words[..], &[stats.to_str().unwrap()]].concat();
        extend(&words, store.path(), &["sh", "-c", script])
    };
    let (code, _, error) = run(&pipe, "exit 5");
    assert_eq!((code, error.as_str()), (5, ""));
    let counters: Value = serde_json::from_slice(&reader.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(counters["exit_code"], 5);
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
    // A pipe that nobody reads from was waited for, and no signal ended that.
    let (code, _, error) = run(&pipe, "exit 0");
    assert!(code == 3 && error.contains("nobody reads"), "{code}: {error}");
    for (script, wanted) in [("exit 0", 3), ("exit 5", 5)] {
        let gone = place.path().join("gone");
        std::fs::create_dir(&gone).unwrap();
        let script = format!("rmdir {}; {script}", gone.display());
        let (code, _, error) = run(&gone.join("stats"), &script);
        assert!(code == wanted && error.contains("writing "), "{code}: {error}");
    }
}

/// Its directory was removed under it.
#[test]
fn a_child_that_starts_when_the_program_has_ended_finds_the_runs_directory() {
    const NAME: &str =
        "extend_trouble::a_child_that_starts_when_the_program_has_ended_finds_the_runs_directory";
    let Some((store, place, _swap_is_off)) = ready(NAME, "python3") else { return };
    let (go, note) = (place.path().join("go"), place.path().join("note"));
    let script = "(while [ ! -e \"$0\" ]; do sleep 0.05; done
         python3 -c 'print(sum(bytes(90 << 20)))' > \"$1.new\" 2>&1; mv \"$1.new\" \"$1\") \
         < /dev/null > /dev/null 2>&1 & exit 5";
    let words = ["--quiet", "--backend", "pager", "--dram", "64MiB"];
    let command = ["sh", "-c", script, go.to_str().unwrap(), note.to_str().unwrap()];
    let (code, _, error) = extend(&words, store.path(), &command);
    assert_eq!(code, 5, "{error}");
    std::fs::write(&go, "").unwrap();
    wait_for(&note);
    assert_eq!(std::fs::read_to_string(&note).unwrap(), "0\n");
    let begun = Instant::now();
    while std::fs::read_dir(store.path()).unwrap().count() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the directory stays");
        assert_eq!(extend(&words, store.path(), &["true"]).0, 0);
    }
}

/// A child's child was ended with the child, and what a child executed with the program.
#[test]
fn daemons_outlive_who_started_them() {
    const NAME: &str = "extend_trouble::daemons_outlive_who_started_them";
    let Some((store, place, _swap_is_off)) = ready(NAME, "python3") else { return };
    let script = "import hashlib, os, sys, time
data = bytearray()
for _ in range(160):
    data += os.urandom(1 << 20)
said = hashlib.sha256(data).hexdigest()
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    if os.fork() != 0:
        os._exit(0)
    time.sleep(0.3)
    os.write(writing, hashlib.sha256(data).hexdigest().encode())
    os._exit(0)
os.close(writing)
os.waitpid(child, 0)
print(os.read(reading, 100).decode() == said)
child = os.fork()
if child == 0:
    for number in range(3):
        os.dup2(os.open('/dev/null', os.O_RDWR), number)
    os.execl('/bin/sh', 'sh', '-c', ': > \"$0\"; exec sleep 60', sys.argv[1])
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
print(child)
";
    let begun = place.path().join("begun");
    let words = ["--quiet", "--backend", "pager", "--dram", "64MiB"];
    let command = ["python3", "-c", script, begun.to_str().unwrap()];
    let (code, text, error) = extend(&words, store.path(), &command);
    assert_eq!(code, 0, "{error}");
    let (inner, pid) = text.trim().split_once('\n').unwrap();
    assert_eq!(inner, "True", "the child's child was ended, or read something else");
    std::thread::sleep(Duration::from_millis(200));
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(state.contains("(sleep)"), "it was ended with the program: {state}");
    assert!(error.contains("go on under the pager"), "{error}");
    let (_, status, _) = read(&overdrive().args(["extend", "status"]).output().unwrap());
    let shown = status.lines().any(|line| line.split_whitespace().next() == Some(pid));
    assert!(shown, "{pid}: {status}");
    drop(Ended(pid.parse().unwrap()));
}

/// Each child that lives takes a descriptor of the engine's: the one for which there was none left ended the
/// program.
#[test]
fn more_children_live_than_the_program_may_have_descriptors() {
    const NAME: &str = "extend_trouble::more_children_live_than_the_program_may_have_descriptors";
    let Some((store, _place, _swap_is_off)) = ready(NAME, "python3") else { return };
    let script = "import os, resource
data = bytearray()
for _ in range(96):
    data += os.urandom(1 << 20)
for number in range(60):
    data[number << 20] = number
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))
reading, writing = os.pipe()
children = []
for number in range(60):
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.write(tell, b'here')
        os.read(reading, 1)
        os._exit(0 if data[number << 20] == number else 1)
    os.read(told, 4)
    os.close(told)
    os.close(tell)
    children.append(child)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
more = bytearray()
for _ in range(32):
    more += os.urandom(1 << 20)
print(sum(data[number << 20] == number for number in range(60)))
os.close(writing)
print(sum(os.waitpid(child, 0)[1] for child in children))
";
    let words = ["--quiet", "--backend", "pager", "--dram", "64MiB"];
    let (code, text, error) = extend(&words, store.path(), &["python3", "-c", script]);
    assert_eq!((code, text.trim()), (0, "40\n60\n0"), "{error}");
    // Where the limit cannot be raised either, the program is ended, and told why.
    let script = script.replace("(40, hard)", "(40, 40)");
    let (code, text, error) = extend(&words, store.path(), &["python3", "-c", &script]);
    let why = "the engine failed (EMFILE (24)); the program is stopped; wanted a higher ulimit -Hn";
    assert_eq!((code, text.trim()), (128 + 9, ""), "{error}");
    assert!(error.contains(why), "{error}");
}

/// `overdrive extend` with these words and a command, where who starts it ignores these signals and no others.
fn ignoring(signals: &str, store: &Path, words: &[&str]) -> Command {
    let mut run = Command::new("env");
    run.args(["--default-signal", &format!("--ignore-signal={signals}")]);
    run.arg(env!("CARGO_BIN_EXE_overdrive"))
        .args(["extend", "--backend", "pager", "--dram", "64MiB", "--store"])
        .arg(store)
        .args(words);
    run
}

#[test]
fn the_program_finds_signals_ignored_as_they_were() {
    const NAME: &str = "extend_trouble::the_program_finds_signals_ignored_as_they_were";
    let store = folder();
    let Some(_swap_is_off) = can_page(NAME, store.path()) else { return };
    let cases = [
        ("PIPE,INT,HUP,CHLD", vec![1, 2, 13, 17], vec!["--quiet"]),
        // A command whose children the kernel buries waited for them in vain.
        ("CHLD", vec![17], vec!["--quiet", "--apart"]),
        ("WINCH", vec![28], vec!["--quiet"]),
    ];
    for (signals, numbers, words) in cases {
        let words = [words, vec!["--", "grep", "SigIgn", "/proc/self/status"]].concat();
        let (code, text, error) =
            read(&within(Duration::from_secs(60), &mut ignoring(signals, store.path(), &words)));
        assert_eq!((code, error.as_str()), (0, ""));
        let mask = u64::from_str_radix(text.split_whitespace().nth(1).unwrap(), 16).unwrap();
        let found: Vec<u32> = (1..32).filter(|signal| mask >> (signal - 1) & 1 == 1).collect();
        assert_eq!(found, numbers, "{text}");
    }
}

/// As a script's background job has SIGINT ignored, and what `nohup` starts SIGHUP: the program may want them.
#[test]
fn signals_that_were_ignored_reach_a_program_that_handles_them() {
    const NAME: &str = "extend_trouble::signals_that_were_ignored_reach_a_program_that_handles_them";
    let (store, place) = (folder(), folder());
    let Some(_swap_is_off) = can_page(NAME, store.path()) else { return };
    if !has(NAME, "python3") {
        return;
    }
    let ready = place.path().join("ready");
    let python = format!(
        "import os, signal, time\nsignal.signal(signal.SIGINT, lambda *_: os._exit(33))\n\
         open('{}', 'w').close()\ntime.sleep(60)",
        ready.display()
    );
    let mut run = ignoring("INT,HUP", store.path(), &["--", "python3", "-c", &python]).spawn().unwrap();
    wait_for(&ready);
    // One that it does not handle is ignored, as it was.
    signal(run.id(), "HUP");
    signal(run.id(), "INT");
    assert_eq!(run.wait().unwrap().code(), Some(33));
    assert_empty(store.path());
}

fn on_swap(store: &Path, command: &[&str]) -> (i32, String, String) {
    let place = PathBuf::from(format!("{}:256MiB", store.display()));
    extend(&["--quiet", "--backend", "swap", "--dram", "64MiB"], &place, command)
}

/// A later run killed them, and the first waited for half a minute and then had an exit code of its own.
#[test]
fn what_a_program_on_swap_leaves_running_goes_on() {
    const NAME: &str = "extend_trouble::what_a_program_on_swap_leaves_running_goes_on";
    let (store, place) = (folder(), folder());
    if !has(NAME, "setsid") {
        return;
    }
    let (code, _, error) = on_swap(store.path(), &["true"]);
    if code == 2 {
        return skip(NAME, error.trim());
    }
    let note = place.path().join("note");
    let script = "setsid sleep 300 < /dev/null > /dev/null 2>&1 & echo $! > \"$0\"; exit 5";
    // When the run has ended, the area that its program keeps is nobody's.
    let _swap_may_be_on = swap_may_be_on();
    let begun = Instant::now();
    let (code, _, error) = on_swap(store.path(), &["sh", "-c", script, note.to_str().unwrap()]);
    assert!(code == 5 && error.contains("go on"), "{code}: {error}");
    assert!(begun.elapsed() < Duration::from_secs(15), "it waited for what does not end");
    let pid: u32 = std::fs::read_to_string(&note).unwrap().trim().parse().unwrap();
    let left = Ended(pid);
    let (code, _, error) = on_swap(store.path(), &["true"]);
    assert!(code == 0 && error.contains("still in use"), "{code}: {error}");
    let names = || std::fs::read_dir(store.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let is_runs = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("overdrive-extend-");
    assert_eq!(names().filter(is_runs).count(), 1, "the directory stays with what goes on");
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it was killed");
    assert!(!state.contains(") Z "), "{state}");
    drop(left);
    let begun = Instant::now();
    while std::fs::read_dir(store.path()).unwrap().count() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the swap file stays");
        on_swap(store.path(), &["true"]);
    }
}

/// Shared memory that the program leaves behind is brought back while its swap file is turned off, which takes a
/// while; a signal ended that.
#[test]
fn signals_while_swap_is_taken_down_leave_none_on() {
    const NAME: &str = "extend_trouble::signals_while_swap_is_taken_down_leave_none_on";
    let (store, place) = (folder(), folder());
    let (code, _, error) = on_swap(store.path(), &["true"]);
    if code == 2 {
        return skip(NAME, error.trim());
    }
    let Ok(shared) = tempfile::tempdir_in("/dev/shm") else { return skip(NAME, "no /dev/shm") };
    let note = place.path().join("note");
    let mut run = Command::new(env!("CARGO_BIN_EXE_overdrive"));
    run.args(["extend", "--quiet", "--backend", "swap", "--dram", "64MiB", "--store"]);
    run.arg(format!("{}:256MiB", store.path().display())).args(["--", "sh", "-c"]);
    run.arg("head -c 200M /dev/urandom > \"$0\"; : > \"$1\"").arg(shared.path().join("file")).arg(&note);
    let mut run = run.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for(&note);
    let begun = Instant::now();
    while run.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(120), "it does not end");
        signal(run.id(), "USR1");
        std::thread::sleep(Duration::from_millis(5));
    }
    let areas = std::fs::read_to_string("/proc/swaps").unwrap();
    assert!(!areas.contains(store.path().to_str().unwrap()), "{areas}");
    assert_empty(store.path());
}
