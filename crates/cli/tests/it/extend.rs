//! Memory extension: refusals before anything starts, real programs above their budget, and nothing left behind.

use crate::support::{OrdinaryUser, folder, overdrive, read, run, skip, swap_stays_off, until};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::RwLockReadGuard;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The preload library as the tests were built with it; says why not.
fn library(test: &str) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_BIN_EXE_overdrive")).with_file_name("libovermem.so");
    if !own.exists() {
        skip(test, "libovermem.so is not built (cargo build -p overdrive-preload)");
        return None;
    }
    Some(own)
}

pub(crate) fn extend(arguments: &[&str], store: &Path, command: &[&str]) -> (i32, String, String) {
    let mut run = overdrive();
    run.args(["extend", "--store"]).arg(store).args(arguments).arg("--").args(command);
    read(&run.output().unwrap())
}

/// Whether this machine lets a program run under the pager, as it will until what is returned is dropped; says
/// why not.
pub(crate) fn can_page(test: &str, store: &Path) -> Option<RwLockReadGuard<'static, ()>> {
    library(test)?;
    let swap_is_off = swap_stays_off();
    let (code, _, error) = extend(&["--backend", "pager", "--dram", "64MiB"], store, &["true"]);
    if code == 2 {
        skip(test, error.trim());
    } else {
        assert_eq!(code, 0, "{error}");
    }
    (code == 0).then_some(swap_is_off)
}

pub(crate) fn has(test: &str, program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
    if !found.status.success() {
        skip(test, &format!("{program} is not installed"));
    }
    found.status.success()
}

/// A folder for the store and one for the test, where this program can run on extended memory.
pub(crate) fn ready(test: &str, program: &str) -> Option<(TempDir, TempDir, RwLockReadGuard<'static, ()>)> {
    let (store, place) = (folder(), folder());
    let swap_is_off = if has(test, program) { can_page(test, store.path())? } else { return None };
    Some((store, place, swap_is_off))
}

pub(crate) fn assert_empty(folder: &Path) {
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The counters of the process that used most, from `--stats`.
pub(crate) fn largest(stats: &Path) -> Value {
    let document: Value = serde_json::from_str(&std::fs::read_to_string(stats).unwrap()).unwrap();
    let processes = document["processes"].as_array().unwrap();
    processes.iter().max_by_key(|process| process["managed_bytes"].as_u64()).unwrap().clone()
}

#[test]
fn what_cannot_work_is_refused_in_one_line_before_the_program_starts() {
    let _swap_is_off = swap_stays_off();
    let folder = folder();
    let store = folder.path().to_str().unwrap();
    let witness = folder.path().join("started");
    let touch = ["touch", witness.to_str().unwrap()];
    let setuid = folder.path().join("setuid");
    std::fs::copy("/bin/true", &setuid).unwrap();
    let not_a_program = folder.path().join("text");
    std::fs::write(&not_a_program, "hello").unwrap();
    std::fs::set_permissions(&not_a_program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = not_a_program.to_str().unwrap();
    let (missing, sized) = (format!("{store}/missing"), format!("{store}/missing:64MiB"));
    let cases: Vec<(Vec<&str>, &str, Vec<&str>, &str)> = vec![
        (vec!["--dram", "64MiB"], store, vec!["no-such-command"], "not found in PATH"),
        (vec!["--dram", "64MiB"], store, vec!["/no/such/program"], "No such file"),
        (vec!["--dram", "64MiB"], store, vec!["/etc/passwd"], "not a file that can be run"),
        (
            vec!["--dram", "64MiB", "--backend", "pager"],
            store,
            vec![text],
            "neither an ELF program nor a script",
        ),
        (vec!["--dram", "1MiB"], store, touch.to_vec(), "wanted at least 32 MiB"),
        (vec!["--dram", "9000TiB"], store, touch.to_vec(), "more than this machine's memory"),
        (vec!["--dram", "64MiB"], "/dev/shm", touch.to_vec(), "memory itself"),
        (vec!["--dram", "64MiB"], "/no/such/place/at/all", touch.to_vec(), "no such directory; wanted one"),
        // Its parent is there, and must not be taken instead.
        (vec!["--dram", "64MiB"], &missing, touch.to_vec(), "no such directory; wanted one"),
        (
            vec!["--dram", "64MiB", "--backend", "swap"],
            &missing,
            touch.to_vec(),
            "no such directory; wanted one",
        ),
        (vec!["--dram", "64MiB"], &sized, touch.to_vec(), "no such directory; wanted one"),
        (vec!["--dram", "64MiB"], text, touch.to_vec(), "not a directory; wanted one"),
        (vec!["--dram", "64MiB"], "/tmp:1MiB", touch.to_vec(), "too small"),
        (vec!["--dram", "64MiB"], "/tmp:1x", touch.to_vec(), "is not a size"),
        (vec!["--dram", "64MiB"], "/no/such:9000TiB", touch.to_vec(), ""),
        (
            vec!["--dram", "64MiB", "--backend", "pager", "--library", "/no/such.so"],
            store,
            touch.to_vec(),
            "--library /no/such.so: no such file",
        ),
    ];
    for (arguments, store, command, word) in cases {
        let (code, text, error) = extend(&arguments, Path::new(store), &command);
        assert_eq!((code, text.as_str(), error.lines().count()), (2, "", 1), "{arguments:?}: {error}");
        assert!(error.contains(word), "{arguments:?} {store} {command:?}: {error}");
    }
    let (nowhere, taken) = ("/no/such/stats.json", format!("{store}/setuid/stats.json"));
    for (words, told) in [
        (["--stats", nowhere], "cannot be written (No such file"),
        (["--stats", &taken], "cannot be written (Not a directory"),
        (["--stats", store], "cannot be written (is a directory"),
        (["--max-writes-per-day", "1MiB"], "wanted at least 1 GiB"),
    ] {
        let (code, text, error) = extend(&["--dram", "64MiB", words[0], words[1]], folder.path(), &touch);
        assert_eq!((code, text.as_str(), error.lines().count()), (2, "", 1), "{words:?}: {error}");
        assert!(error.contains(words[0]) && error.contains(told), "{words:?}: {error}");
    }
    for (words, told) in [
        (&["--max-writes-per-day", "1GiB"][..], "knows no --max-writes-per-day"),
        (&["--encrypt"], "does not encrypt"),
        (&["--compress", "zstd"], "--compress zstd: the backend swap does not compress"),
    ] {
        let swap = [&["--dram", "64MiB", "--backend", "swap"][..], words].concat();
        let (code, _, error) = extend(&swap, folder.path(), &touch);
        assert_eq!((code, error.lines().count()), (2, 1), "{error}");
        assert!(error.contains(told) || error.contains("backend swap: "), "{error}");
    }
    for word in ["--no-room-ahead", "--fill-gaps"] {
        let pager = ["--dram", "64MiB", "--backend", "pager", word];
        let (code, _, error) = extend(&pager, folder.path(), &touch);
        assert_eq!((code, error.lines().count()), (2, 1), "{error}");
        assert!(error.contains(word) || error.contains("no pager"), "{error}");
    }
    let full = format!("{store}:9000TiB");
    let (code, _, error) = extend(&["--dram", "64MiB"], Path::new(&full), &touch);
    assert!(code == 2 && error.contains("no room for"), "{error}");
    assert!(!witness.exists(), "nothing may start before it is refused");
    let (code, _, error) = read(&overdrive().args(["extend", "--", "true"]).output().unwrap());
    assert!(code == 2 && error.contains("--dram"), "{error}");
}

#[test]
fn a_static_program_is_refused_to_the_pager_with_the_remedy() {
    let _swap_is_off = swap_stays_off();
    const NAME: &str = "extend::a_static_program_is_refused_to_the_pager_with_the_remedy";
    if !has(NAME, "cc") {
        return;
    }
    let folder = folder();
    let (source, program) = (folder.path().join("a.c"), folder.path().join("a.out"));
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let built = Command::new("cc").arg("-static").arg(&source).arg("-o").arg(&program).output().unwrap();
    if !built.status.success() {
        return skip(NAME, "cc cannot link statically here");
    }
    let store = folder.path();
    let (code, _, error) =
        extend(&["--backend", "pager", "--dram", "64MiB"], store, &[program.to_str().unwrap()]);
    assert_eq!((code, error.lines().count()), (2, 1), "{error}");
    assert!(error.contains("statically linked") && error.contains("--backend swap"), "{error}");
    // An owner other than who runs it: the loader would drop the library.
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    if Command::new("chown").arg("nobody").arg(&program).status().is_ok_and(|status| status.success()) {
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
        let (code, _, error) =
            extend(&["--backend", "pager", "--dram", "64MiB"], store, &[program.to_str().unwrap()]);
        assert!(code == 2 && error.contains("setuid"), "{error}");
    }
}

#[test]
fn an_ordinary_user_is_told_what_is_missing() {
    let _swap_is_off = swap_stays_off();
    const NAME: &str = "extend::an_ordinary_user_is_told_what_is_missing";
    if library(NAME).is_none() {
        return;
    }
    let limited = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
    if limited.trim() != "0" {
        return skip(NAME, "vm.unprivileged_userfaultfd allows everybody to page");
    }
    let Some(OrdinaryUser { place }) = OrdinaryUser::at_hand(NAME).inspect(OrdinaryUser::take_library) else {
        return;
    };
    let run_with = |rights: &[&str], backend: &str| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .args(rights)
            .arg(place.path().join("overdrive"));
        command.args(["extend", "--dram", "64MiB", "--backend", backend, "--store"]).arg(place.path());
        read(&command.args(["--", "true"]).output().unwrap())
    };
    let run = |backend: &str| run_with(&[], backend);
    let (code, _, error) = run("pager");
    assert_eq!((code, error.lines().count()), (2, 1), "{error}");
    // The device or the sysctl would not do: the kernel tells nobody else of forks.
    assert!(error.contains("wanted CAP_SYS_PTRACE") && !error.contains("/dev/userfaultfd"), "{error}");
    assert!(error.contains("(setcap cap_sys_ptrace+ep)"), "{error}");
    let (code, _, error) = run_with(&["--inh-caps=+sys_ptrace", "--ambient-caps=+sys_ptrace"], "pager");
    assert!(code == 0 || error.contains("setpriv"), "that is enough: {error}");
    let (code, _, error) = run("auto");
    assert!(code == 2 && error.contains("and no swap instead"), "{error}");
}

#[test]
fn the_program_has_its_input_output_and_exit_code() {
    const NAME: &str = "extend::the_program_has_its_input_output_and_exit_code";
    let folder = folder();
    let Some(_swap_is_off) = can_page(NAME, folder.path()) else { return };
    let mut run = overdrive();
    run.args(["extend", "--dram", "64MiB", "--store"]).arg(folder.path());
    run.args(["--", "sh", "-c", "read line; echo got $line; echo to stderr >&2; exit 7"])
        .write_stdin("words\n");
    let (code, text, error) = read(&run.output().unwrap());
    assert_eq!((code, text.as_str()), (7, "got words\n"), "{error}");
    assert!(error.contains("to stderr") && error.contains("not covered:"), "{error}");
    let (code, _, _) = extend(&["--dram", "64MiB"], folder.path(), &["sh", "-c", "kill -9 $$"]);
    assert_eq!(code, 128 + 9);
    assert_empty(folder.path());
}

fn start(arguments: &[&str], store: &Path, script: &str) -> Child {
    let mut run = Command::new(env!("CARGO_BIN_EXE_overdrive"));
    run.args(["extend", "--dram", "64MiB", "--store"]).arg(store).args(arguments);
    run.args(["--", "sh", "-c", script]).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

pub(crate) fn wait_for(path: &Path) {
    until(&format!("{} is there", path.display()), Duration::from_secs(120), || path.exists());
}

pub(crate) fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

#[test]
fn signals_reach_the_program_and_a_killed_run_is_tidied_up_by_the_next() {
    const NAME: &str = "extend::signals_reach_the_program_and_a_killed_run_is_tidied_up_by_the_next";
    let (store, place) = (folder(), folder());
    let Some(_swap_is_off) = can_page(NAME, store.path()) else { return };
    let ready = place.path().join("ready");
    let script = format!(
        "trap 'exit 33' USR1; : > {}; i=0; while [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done",
        ready.display()
    );
    let mut run = start(&[], store.path(), &script);
    wait_for(&ready);
    signal(run.id(), "USR1");
    assert_eq!(run.wait().unwrap().code(), Some(33));
    assert_empty(store.path());
    std::fs::remove_file(&ready).unwrap();
    let mut run = start(&[], store.path(), &script);
    wait_for(&ready);
    signal(run.id(), "KILL");
    run.wait().unwrap();
    assert!(std::fs::read_dir(store.path()).unwrap().count() > 0, "or this test proves nothing");
    // The program is asked to end with the command; then the next run removes what is left.
    let start = Instant::now();
    loop {
        let (code, _, error) = extend(&["--dram", "64MiB"], store.path(), &["true"]);
        assert_eq!(code, 0, "{error}");
        if std::fs::read_dir(store.path()).unwrap().count() == 0 {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "a killed run's directory stays: {error}");
    }
}

#[test]
fn python_above_its_budget_finds_what_it_wrote_and_status_shows_it() {
    const NAME: &str = "extend::python_above_its_budget_finds_what_it_wrote_and_status_shows_it";
    let Some((store, place, _swap_is_off)) = ready(NAME, "python3") else { return };
    let (stats, ready) = (place.path().join("stats.json"), place.path().join("ready"));
    let script = format!(
        "import os, hashlib, random, time\n\
         blocks = [os.urandom(1 << 16) for _ in range(4096)]\n\
         sums = [hashlib.sha256(b).digest() for b in blocks]\n\
         open({:?}, 'w').close()\n\
         end = time.time() + 3\n\
         order = list(range(4096))\n\
         while time.time() < end:\n\
         \x20   i = random.randrange(4096)\n\
         \x20   assert hashlib.sha256(blocks[i]).digest() == sums[i], i\n\
         for i in order: assert hashlib.sha256(blocks[i]).digest() == sums[i], i\n\
         print('all there')\n",
        ready.display().to_string()
    );
    let mut run = Command::new(env!("CARGO_BIN_EXE_overdrive"));
    run.args(["extend", "--backend", "pager", "--dram", "96MiB", "--stats"]).arg(&stats).arg("--store");
    run.arg(store.path())
        .args(["--", "python3", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let run = run.spawn().unwrap();
    wait_for(&ready);
    let (code, text, error) = read(&overdrive().args(["extend", "status"]).output().unwrap());
    assert_eq!(code, 0, "{error}");
    assert!(text.lines().any(|line| line.contains("python3")), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let (_, text, _) = read(&overdrive().args(["extend", "status", "--metrics"]).output().unwrap());
    assert!(text.contains("overdrive_extend_faults_total{") && text.ends_with("# EOF\n"), "{text}");
    let (_, text, _) = read(
        &overdrive()
            .args(["extend", "top", "--json", "--count", "1", "--interval", "200ms"])
            .output()
            .unwrap(),
    );
    assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
    let (code, text, error) = read(&run.wait_with_output().unwrap());
    assert_eq!((code, text.as_str()), (0, "all there\n"), "{error}");
    let process = largest(&stats);
    let of = |name: &str| process[name].as_u64().unwrap();
    assert!(of("written") > 10_000 && of("loads") > 1000, "{process}");
    // A program that grows faster than pages are evicted is above its budget for a moment, not by much.
    assert!(of("held_max") * 4096 <= 108 << 20, "more was held than allowed: {process}");
    assert_eq!((of("lost"), of("store_errors")), (0, 0), "{process}");
    assert_empty(store.path());
}

#[test]
fn sort_in_little_memory_sorts() {
    const NAME: &str = "extend::sort_in_little_memory_sorts";
    let Some((store, place, _swap_is_off)) = ready(NAME, "sort") else { return };
    let (input, plain) = (place.path().join("input"), place.path().join("plain"));
    let mut seed = 1u64;
    let lines: String = (0..600_000)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{:016x} {:064}\n", seed, seed >> 20)
        })
        .collect();
    std::fs::write(&input, lines).unwrap();
    let (input, plain) = (input.to_str().unwrap(), plain.to_str().unwrap());
    assert!(Command::new("sort").args(["-o", plain, input]).env("LC_ALL", "C").status().unwrap().success());
    let paged = place.path().join("paged");
    let mut run = overdrive();
    run.env("LC_ALL", "C")
        .args(["extend", "--backend", "pager", "--dram", "64MiB", "--store"])
        .arg(store.path());
    run.args(["--", "sort", "-S", "400M", "-o", paged.to_str().unwrap(), input]);
    let (code, _, error) = read(&run.output().unwrap());
    assert_eq!(code, 0, "{error}");
    assert!(std::fs::read(plain).unwrap() == std::fs::read(&paged).unwrap(), "sorted differently");
    assert_empty(store.path());
}

#[test]
fn java_with_a_heap_above_its_budget_finds_what_it_wrote() {
    const NAME: &str = "extend::java_with_a_heap_above_its_budget_finds_what_it_wrote";
    let Some((store, place, _swap_is_off)) = ready(NAME, "java") else { return };
    let source = place.path().join("Fill.java");
    let program = "import java.util.*;\n\
        public class Fill { public static void main(String[] a) {\n\
        List<long[]> all = new ArrayList<>(); Random r = new Random(7);\n\
        for (int i = 0; i < 3000; i++) { long[] x = new long[8192]; for (int j = 0; j < 8192; j++) x[j] = r.nextLong(); all.add(x); }\n\
        for (int i = 0; i < 200; i++) { byte[] g = new byte[1 << 20]; g[i] = 1; }\n\
        r = new Random(7);\n\
        for (long[] x : all) for (long v : x) if (v != r.nextLong()) throw new RuntimeException(\"lost\");\n\
        System.out.println(\"all there\"); } }\n";
    std::fs::write(&source, program).unwrap();
    if !has(NAME, "javac") {
        return;
    }
    assert!(Command::new("javac").arg(&source).status().unwrap().success());
    let command =
        ["java", "-Xmx400m", "-Xms64m", "-XX:+UseSerialGC", "-cp", place.path().to_str().unwrap(), "Fill"];
    let (code, text, error) = extend(&["--backend", "pager", "--dram", "160MiB"], store.path(), &command);
    assert_eq!((code, text.as_str()), (0, "all there\n"), "{error}");
    assert_empty(store.path());
}

/// A program that runs until it is stopped, or until the test ends: after a failed assertion it must not stay.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        if self.0.try_wait().ok().flatten().is_none() {
            signal(self.0.id(), "TERM");
            let _ = self.0.wait();
        }
    }
}

/// A server of redis on a socket of its own, under the pager.
struct Redis {
    run: Running,
    socket: PathBuf,
}

impl Redis {
    fn start(store: &Path, place: &Path, stats: &Path, words: &[&str]) -> Self {
        let socket = place.join("socket");
        let mut run = Command::new(env!("CARGO_BIN_EXE_overdrive"));
        run.args(["extend", "--backend", "pager", "--dram", "96MiB"]).args(words);
        run.arg("--stats").arg(stats).arg("--store").arg(store).args([
            "--",
            "redis-server",
            "--port",
            "0",
            "--save",
            "",
            "--appendonly",
            "no",
            "--enable-debug-command",
            "yes",
            "--unixsocket",
        ]);
        run.arg(&socket).arg("--dir").arg(place).stdout(Stdio::null()).stderr(Stdio::null());
        let redis = Self { run: Running(run.spawn().unwrap()), socket };
        wait_for(&redis.socket);
        let start = Instant::now();
        while redis.ask(&["ping"]) != "PONG" {
            assert!(start.elapsed() < Duration::from_secs(60), "redis does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        redis
    }

    fn ask(&self, words: &[&str]) -> String {
        let answer = Command::new("redis-cli").arg("-s").arg(&self.socket).args(words).output().unwrap();
        String::from_utf8_lossy(&answer.stdout).trim().to_owned()
    }

    fn stop(mut self) {
        self.ask(&["shutdown", "nosave"]);
        assert_eq!(self.run.0.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn redis_saves_a_correct_dump_from_more_memory_than_its_budget() {
    redis_saves_and_loads(
        "extend::redis_saves_a_correct_dump_from_more_memory_than_its_budget",
        &["--compress", "off"],
        "written",
    );
}

#[test]
fn redis_saves_a_correct_dump_from_compressed_memory() {
    redis_saves_and_loads(
        "extend::redis_saves_a_correct_dump_from_compressed_memory",
        &["--compress", "auto"],
        "expands",
    );
}

/// What does not fit in memory compressed lies encrypted on the store.
#[test]
fn redis_saves_a_correct_dump_from_an_encrypted_store() {
    redis_saves_and_loads(
        "extend::redis_saves_a_correct_dump_from_an_encrypted_store",
        &["--compress", "off", "--encrypt"],
        "written",
    );
}

/// A dump is saved under writes and loaded again. `counter` shows that the pager had to work for it.
fn redis_saves_and_loads(name: &str, words: &[&str], counter: &str) {
    let (store, place) = (folder(), folder());
    if !has(name, "redis-server") || !has(name, "redis-cli") {
        return;
    }
    let Some(_swap_is_off) = can_page(name, store.path()) else { return };
    let stats = place.path().join("stats.json");
    let redis = Redis::start(store.path(), place.path(), &stats, words);
    // 1 KiB values, in all about twice the budget.
    let fill = "math.randomseed(7) for i = 1, 160000 do local t = {} for j = 1, 8 do \
                t[j] = string.format('%08x', math.random(0, 2147483646)) end \
                redis.call('SET', 'key:' .. i, string.rep(table.concat(t), 16)) end";
    redis.ask(&["config", "set", "busy-reply-threshold", "0"]);
    let told = redis.ask(&["eval", fill, "0"]);
    assert_eq!(redis.ask(&["dbsize"]), "160000", "{told}");
    let digest = redis.ask(&["debug", "digest"]);
    assert_eq!(digest.len(), 40, "{digest}");
    redis.ask(&["bgsave"]);
    // Writes meanwhile: the child must save what stood there at the fork.
    redis.ask(&["set", "late", "x"]);
    let start = Instant::now();
    while redis.ask(&["info", "persistence"]).contains("rdb_bgsave_in_progress:1") {
        assert!(start.elapsed() < Duration::from_secs(120), "the save does not end");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(redis.ask(&["info", "persistence"]).contains("rdb_last_bgsave_status:ok"));
    let value = redis.ask(&["get", "key:77777"]);
    redis.stop();
    let process = largest(&stats);
    assert!(process[counter].as_u64().unwrap() > 10_000, "{process}");
    // Without the late key the loaded dump is what stood there.
    std::fs::remove_file(place.path().join("socket")).ok();
    let again = Redis::start(store.path(), place.path(), &stats, words);
    assert_eq!(again.ask(&["get", "key:77777"]), value);
    assert_eq!(again.ask(&["dbsize"]), "160000");
    assert_eq!(again.ask(&["debug", "digest"]), digest);
    again.stop();
    assert_empty(store.path());
}

#[test]
fn the_backend_swap_holds_a_program_within_its_budget_and_leaves_nothing() {
    const NAME: &str = "extend::the_backend_swap_holds_a_program_within_its_budget_and_leaves_nothing";
    let store = folder();
    if !has(NAME, "python3") {
        return;
    }
    let script = "import os, hashlib\n\
         blocks = [os.urandom(1 << 20) for _ in range(128)]\n\
         sums = [hashlib.sha256(b).digest() for b in blocks]\n\
         assert all(hashlib.sha256(b).digest() == s for b, s in zip(blocks, sums))\n\
         print([l for l in open('/proc/self/status') if l.startswith('VmSwap')][0])\n";
    let place = format!("{}:256MiB", store.path().display());
    let (code, text, error) =
        extend(&["--backend", "swap", "--dram", "64MiB"], Path::new(&place), &["python3", "-c", script]);
    if code == 2 {
        return skip(NAME, error.trim());
    }
    assert_eq!(code, 0, "{error}");
    assert!(error.contains("backend swap"), "{error}");
    let swapped: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(swapped > 40 << 10, "{text}");
    assert_empty(store.path());
}

/// A file as a block device, detached when the test ends.
pub(crate) struct Loop(pub(crate) String);

impl Loop {
    pub(crate) fn new(file: &Path, bytes: u64) -> Option<Self> {
        std::fs::File::create(file).unwrap().set_len(bytes).unwrap();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        made.status.success().then(|| Self(String::from_utf8_lossy(&made.stdout).trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// Two processes at once, each with twice its budget, and one after them.
#[test]
fn a_block_device_is_shared_by_the_processes_of_a_run_and_taken_only_with_consent() {
    const NAME: &str =
        "extend::a_block_device_is_shared_by_the_processes_of_a_run_and_taken_only_with_consent";
    let folder = folder();
    let Some(_swap_is_off) = can_page(NAME, folder.path()) else { return };
    if !has(NAME, "python3") || !has(NAME, "mkfs.ext4") {
        return;
    }
    let file = folder.path().join("device");
    let Some(device) = Loop::new(&file, 512 << 20) else { return skip(NAME, "no loop device can be had") };
    let named = device.0.as_str();
    let run = |words: &[&str], script: &str| {
        let words = [&["--backend", "pager", "--dram", "64MiB"][..], words].concat();
        extend(&words, Path::new(named), &["sh", "-c", script])
    };
    let (before, consent) = (std::fs::read(&file).unwrap(), ["--write-to", named]);
    let made = Command::new("mkfs.ext4").args(["-q", "-F", named]).status().unwrap();
    assert!(made.success());
    for (words, told) in [
        (&[][..], "wanted --write-to"),
        (&["--write-to", "/dev/null"], "does not name the store"),
        (&consent, "--wipe insists"),
        (&["--backend", "swap"], "is a block device; wanted a directory"),
    ] {
        let words =
            [&["--dram", "64MiB"][..], words, if told.contains("is a") { &consent } else { &[] }].concat();
        let (code, text, error) = extend(&words, Path::new(named), &["touch", "/no/such"]);
        assert_eq!((code, text.as_str(), error.lines().count()), (2, "", 1), "{words:?}: {error}");
        assert!(error.contains(told), "{words:?}: {error}");
    }
    let fill = "python3 -c 'import os\n\
                data = [os.urandom(4096) * 32 for _ in range(1000)]\n\
                import hashlib\n\
                sums = [hashlib.sha1(d).digest() for d in data]\n\
                assert [hashlib.sha1(d).digest() for d in data] == sums\n\
                print(len(sums))'";
    let stats = folder.path().join("stats.json");
    let words = [&consent[..], &["--wipe", "--compress", "off", "--stats", stats.to_str().unwrap()]].concat();
    let (code, text, error) = run(&words, &format!("{fill} & {fill}; wait; {fill}"));
    assert_eq!((code, text.as_str()), (0, "1000\n1000\n1000\n"), "{error}");
    let document: Value = serde_json::from_str(&std::fs::read_to_string(&stats).unwrap()).unwrap();
    assert_eq!(document["store"]["path"].as_str(), Some(named));
    let processes = document["processes"].as_array().unwrap();
    let count = |name: &'static str| processes.iter().map(move |process| process[name].as_u64().unwrap());
    assert_eq!(count("written").filter(|&pages| pages > 4096).count(), 3, "{document}");
    assert_eq!((count("lost").sum::<u64>(), count("store_errors").sum::<u64>()), (0, 0));
    // What was there at the ends is gone, and nothing a program wrote has come there.
    drop(device);
    let after = std::fs::read(&file).unwrap();
    let end = after.len() - (1 << 20);
    assert!(after[..1 << 20] == before[..1 << 20] && after[end..] == before[end..] && after != before);
}

/// A process of which only the number is known, ended with the test.
pub(crate) struct Ended(pub(crate) u32);

impl Drop for Ended {
    fn drop(&mut self) {
        signal(self.0, "KILL");
    }
}

#[test]
fn a_device_is_not_taken_while_a_program_of_a_killed_run_uses_it() {
    const NAME: &str = "extend::a_device_is_not_taken_while_a_program_of_a_killed_run_uses_it";
    let folder = folder();
    let Some(_swap_is_off) = can_page(NAME, folder.path()) else { return };
    let device = Loop::new(&folder.path().join("device"), 128 << 20);
    let Some(device) = device else { return skip(NAME, "no loop device can be had") };
    let words = ["--backend", "pager", "--write-to", device.0.as_str()];
    let note = folder.path().join("note");
    // It is asked to end with who started it, and does not.
    let script = "trap '' TERM; echo $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; read line";
    let mut run = Command::new(env!("CARGO_BIN_EXE_overdrive"));
    run.args(["extend", "--dram", "64MiB", "--store", &device.0]).args(words);
    run.args(["--", "sh", "-c", script]).arg(&note).stdin(Stdio::piped());
    let mut run = Running(run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    // What it waits for; it does not come.
    let _input = run.0.stdin.take();
    wait_for(&note);
    let program = Ended(std::fs::read_to_string(&note).unwrap().trim().parse().unwrap());
    let again = || extend(&[&["--dram", "64MiB"][..], &words].concat(), Path::new(&device.0), &["true"]);
    let (code, _, error) = again();
    assert!(code == 2 && error.contains("held exclusively"), "{error}");
    signal(run.0.id(), "KILL");
    run.0.wait().unwrap();
    let (code, _, error) = again();
    assert!(code == 2 && error.contains("has it locked"), "{error}");
    drop(program);
    let begun = Instant::now();
    while again().0 != 0 {
        assert!(begun.elapsed() < Duration::from_secs(120), "{}", again().2);
    }
}

#[test]
fn page_measures_extended_memory_beside_dram() {
    const NAME: &str = "extend::page_measures_extended_memory_beside_dram";
    let store = folder();
    let Some(_swap_is_off) = can_page(NAME, store.path()) else { return };
    let place = store.path().to_str().unwrap();
    let words =
        ["page", "--backing", "dram,extend", "--set", "128MiB", "--dram", "64MiB", "--runtime", "500ms"];
    let (code, text, error) =
        run(&[&words[..], &["--warmup-max", "3s", "--threads", "2", "--json", "--store", place]].concat());
    assert_eq!(code, 0, "{error}");
    let document: Value = serde_json::from_str(&text).unwrap();
    let [dram, extend] = [0, 1].map(|index| &document["cells"][index]);
    assert_eq!((dram["backing"].as_str(), extend["backing"].as_str()), (Some("dram"), Some("extend")));
    let rate = |cell: &Value| cell["pages_per_s"].as_f64().unwrap();
    // Half the set fits: the rest comes from the disk, which is many times slower than memory anywhere.
    assert!(rate(extend) > 100.0 && rate(dram) > 3.0 * rate(extend), "{} {}", rate(dram), rate(extend));
    assert!(document["notes"].to_string().contains("extend: backend pager"), "{}", document["notes"]);
    assert_empty(store.path());
    let missing = format!("{place}/missing");
    for (store, told) in [("/dev/shm", "memory itself"), (&missing, "no such directory; wanted one")] {
        let (code, text, error) = run(&[&words[..], &["--store", store]].concat());
        assert_eq!((code, text.as_str(), error.lines().count()), (2, "", 1), "{error}");
        assert!(error.contains("--backing extend") && error.contains(told), "{error}");
    }
}
