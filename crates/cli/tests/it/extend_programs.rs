//! Real programs above their budget, whose results are compared byte for byte: a compiler, a cache, a machine.

use crate::density::guest_kernel;
use crate::extend::{Running, assert_empty, can_page, extend, has, largest, ready, wait_for};
use crate::support::{folder, skip};
use overdrive_base::rng::Rng;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The store was used in earnest and nothing of it was lost.
pub(crate) fn assert_paged(process: &Value) {
    let of = |name: &str| process[name].as_u64().unwrap();
    let read = of("loads") + of("read_ahead");
    assert!(of("written") > 5000 && read > 2000, "the store was hardly used: {process}");
    assert_eq!((of("lost"), of("store_errors")), (0, 0), "{process}");
}

/// A C program of many functions, which takes a compiler some 200 MiB.
fn source() -> String {
    const FUNCTIONS: u64 = 700;
    let mut rng = Rng::new(7);
    let mut text = String::from("#include <stdio.h>\ntypedef unsigned long long u;\n");
    for number in 0..FUNCTIONS {
        let _ = writeln!(
            text,
            "static u f{number}(u a, u b) {{ u t[8]; for (int i = 0; i < 8; i++) t[i] = a + b * i;"
        );
        for _ in 0..12 {
            let [to, from, other, shift, factor] = [8, 8, 8, 40, 1 << 30].map(|below| rng.below(below));
            let _ = writeln!(text, "t[{to}] ^= (t[{from}] >> {shift}) * {factor}u + (t[{other}] << 3);");
            let _ = writeln!(text, "if (t[{other}] & {}) t[{to}] -= t[{from}];", 1 << (shift % 20));
        }
        text.push_str("return t[0] ^ t[1] ^ t[2] ^ t[3] ^ t[4] ^ t[5] ^ t[6] ^ t[7]; }\n");
    }
    text.push_str("int main(void) { u x = 1, y = 2;\n");
    for number in 0..FUNCTIONS {
        let _ = writeln!(text, "x = f{number}(x, y); y += x;");
    }
    text + "printf(\"%llx %llx\\n\", x, y); return 0; }\n"
}

#[test]
fn a_compiler_in_a_third_of_its_memory_writes_the_same_code() {
    const NAME: &str = "extend_programs::a_compiler_in_a_third_of_its_memory_writes_the_same_code";
    let Some((store, place, _swap_is_off)) = ready(NAME, "gcc") else { return };
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let [input, plain, paged, stats] = ["big.c", "plain.s", "paged.s", "stats.json"].map(at);
    std::fs::write(&input, source()).unwrap();
    assert!(Command::new("gcc").args(["-O0", "-S", "-o", &plain, &input]).status().unwrap().success());
    let arguments = ["--backend", "pager", "--dram", "64MiB", "--stats", &stats];
    let (code, _, error) = extend(&arguments, store.path(), &["gcc", "-O0", "-S", "-o", &paged, &input]);
    assert_eq!(code, 0, "{error}");
    assert!(std::fs::read(plain).unwrap() == std::fs::read(paged).unwrap(), "compiled differently");
    // The driver only starts the compiler: each process has its own budget and counters.
    assert_paged(&largest(Path::new(&stats)));
    assert_empty(store.path());
}

/// A memcached under the pager; ends with the test.
struct Cache {
    /// Kept for what it does when it is dropped.
    _run: Running,
    socket: PathBuf,
}

impl Cache {
    fn start(store: &Path, place: &Path, stats: &Path) -> Self {
        let socket = place.join("socket");
        let mut run = Command::new(env!("CARGO_BIN_EXE_overdrive"));
        run.args(["extend", "--backend", "pager", "--dram", "64MiB", "--stats"]).arg(stats).arg("--store");
        run.arg(store).args(["--", "memcached", "-u", "root", "-m", "512", "-t", "2", "-s"]).arg(&socket);
        let run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for(&socket);
        Self { _run: Running(run), socket }
    }

    /// Waits until it listens: the socket's name is there a moment before.
    fn connect(&self) -> UnixStream {
        let start = Instant::now();
        loop {
            match UnixStream::connect(&self.socket) {
                Ok(stream) => return stream,
                Err(error) => assert!(start.elapsed() < Duration::from_secs(30), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_cache_gives_back_what_it_was_given() {
    const NAME: &str = "extend_programs::a_cache_gives_back_what_it_was_given";
    const VALUES: u64 = 40_000;
    const AT_ONCE: u64 = 50;
    let Some((store, place, _swap_is_off)) = ready(NAME, "memcached") else { return };
    let stats = place.path().join("stats.json");
    let cache = Cache::start(store.path(), place.path(), &stats);
    let value = |number: u64| -> Vec<u8> {
        let mut content = vec![0; 3000];
        Rng::new(number).fill(&mut content);
        content
    };
    let mut to = cache.connect();
    let mut from = BufReader::new(to.try_clone().unwrap());
    for number in 0..VALUES {
        let content = value(number);
        let mut request = format!("set k{number} 0 0 {} noreply\r\n", content.len()).into_bytes();
        request.extend_from_slice(&content);
        request.extend_from_slice(b"\r\n");
        to.write_all(&request).unwrap();
    }
    for first in (0..VALUES).step_by(AT_ONCE as usize) {
        let keys: String = (first..first + AT_ONCE).map(|number| format!(" k{number}")).collect();
        to.write_all(format!("get{keys}\r\n").as_bytes()).unwrap();
        for number in first..first + AT_ONCE {
            let (mut line, wanted) = (String::new(), value(number));
            from.read_line(&mut line).unwrap();
            assert_eq!(line, format!("VALUE k{number} 0 {}\r\n", wanted.len()));
            let mut found = vec![0; wanted.len() + 2];
            from.read_exact(&mut found).unwrap();
            assert!(found.starts_with(&wanted), "k{number} is another value");
        }
        let mut end = String::new();
        from.read_line(&mut end).unwrap();
        assert_eq!(end, "END\r\n");
    }
    drop(cache);
    assert_paged(&largest(&stats));
    assert_empty(store.path());
}

/// What runs in the guest: fills more memory than the budget, then compares it.
const GUEST: &str = "\
#include <stdio.h>\n#include <stdlib.h>\n#include <fcntl.h>\n#include <unistd.h>\n#include <sys/reboot.h>\n\
enum { WORDS = 25 << 20 };\n\
int main(void) {\n\
    int console = open(\"/dev/console\", O_WRONLY);\n\
    dup2(console, 1);\n\
    unsigned long *all = malloc(WORDS * sizeof *all), bad = !all;\n\
    for (unsigned long i = 0; i < WORDS && all; i++) all[i] = i * 0x9E3779B97F4A7C15 + 1;\n\
    for (unsigned long i = 0; i < WORDS && all; i++) bad += all[i] != i * 0x9E3779B97F4A7C15 + 1;\n\
    printf(\"guest: %lu words are wrong\\n\", bad);\n\
    fflush(stdout);\n\
    reboot(RB_AUTOBOOT);\n\
}\n";

/// An archive of the kind a kernel unpacks as its first file system (newc): each name with mode and content.
fn archive(entries: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut all = Vec::new();
    for (index, (name, mode, content)) in entries.iter().chain([&("TRAILER!!!", 0, &[][..])]).enumerate() {
        // The console is character device 5, 1.
        let device = if mode & 0o170_000 == 0o020_000 { [5, 1] } else { [0, 0] };
        let about = [index as u32 + 1, *mode, 0, 0, 1, 0, content.len() as u32, 0, 0];
        let last = [name.len() as u32 + 1, 0];
        all.extend_from_slice(b"070701");
        about.iter().chain(&device).chain(&last).for_each(|field| drop(write!(all, "{field:08x}")));
        all.extend_from_slice(name.as_bytes());
        all.push(0);
        all.resize(all.len().next_multiple_of(4), 0);
        all.extend_from_slice(content);
        all.resize(all.len().next_multiple_of(4), 0);
    }
    all
}

#[test]
fn a_machine_with_more_memory_than_its_budget_finds_what_it_wrote() {
    const NAME: &str = "extend_programs::a_machine_with_more_memory_than_its_budget_finds_what_it_wrote";
    let (store, place) = (folder(), folder());
    if !has(NAME, "qemu-system-x86_64") || !has(NAME, "cc") {
        return;
    }
    let Some((kernel, _)) = guest_kernel() else {
        return skip(NAME, "no guest kernel is there (cargo xtask kernel 6.1)");
    };
    let Some(_swap_is_off) = can_page(NAME, store.path()) else { return };
    let at = |name: &str| place.path().join(name);
    std::fs::write(at("init.c"), GUEST).unwrap();
    let built = Command::new("cc").args(["-O2", "-static", "-o"]).arg(at("init")).arg(at("init.c")).output();
    let built = built.unwrap();
    if !built.status.success() {
        return skip(NAME, "cc cannot link statically here");
    }
    let init = std::fs::read(at("init")).unwrap();
    let entries: [(&str, u32, &[u8]); 3] =
        [("dev", 0o040_755, &[]), ("dev/console", 0o020_600, &[]), ("init", 0o100_755, &init)];
    std::fs::write(at("initramfs"), archive(&entries)).unwrap();
    let [kernel, initramfs, serial, stats] =
        [kernel, at("initramfs"), at("console"), at("stats.json")].map(|path| path.display().to_string());
    let console = format!("file:{serial}");
    let command = [
        "qemu-system-x86_64",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-machine",
        "q35",
        "-accel",
        "tcg,thread=single",
        "-cpu",
        "max",
        "-smp",
        "1",
        "-m",
        "320M",
        "-kernel",
        &kernel,
        "-initrd",
        &initramfs,
        "-append",
        "console=ttyS0 panic=-1 no_timer_check rdinit=/init",
        "-serial",
        &console,
    ];
    let arguments = ["--backend", "pager", "--dram", "160MiB", "--stats", &stats];
    let (code, _, error) = extend(&arguments, store.path(), &command);
    let said = String::from_utf8_lossy(&std::fs::read(&serial).unwrap_or_default()).into_owned();
    assert_eq!(code, 0, "{error}\n{said}");
    assert!(said.contains("guest: 0 words are wrong"), "{said}");
    assert_paged(&largest(Path::new(&stats)));
    assert_empty(store.path());
}
