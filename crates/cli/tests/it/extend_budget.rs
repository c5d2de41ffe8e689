//! Budgets that cannot be held: told in one line with the remedy, before the program starts where it can be known.

use crate::extend::{Running, assert_empty, extend, largest, ready};
use crate::extend_odd::COMMON;
use crate::support::{overdrive, read};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Small pieces of memory, 48 MiB of them, each apart from the others. Ends with its input.
const PIECES: &str = "\
#include <stdio.h>\n#include <string.h>\n#include <sys/mman.h>\n#include <unistd.h>\n\
int main(void) {\n\
    enum { PIECE = 128 << 10, ALL = 96 << 20 };\n\
    alarm(200);\n\
    char *all = mmap(0, ALL, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n\
    for (int at = 0; at < ALL; at += 2 * PIECE) {\n\
        if (mprotect(all + at, PIECE, PROT_READ | PROT_WRITE)) return 1;\n\
        memset(all + at, 1 + at / PIECE, PIECE);\n\
    }\n\
    while (getchar() != EOF);\n\
}\n";

/// A child that has more than its parent's budget, made without the C library when memory of its parent's was under
/// the pager. Both end with their input.
const CHILD: &str = "\
#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
#include <sys/syscall.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
int main(void) {\n\
    alarm(200);\n\
    memset(malloc(40 << 20), 7, 40 << 20);\n\
    sleep(1);\n\
    if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0) {\n\
        char *all = malloc(100 << 20);\n\
        memset(all, 7, 100 << 20);\n\
        while (getchar() != EOF);\n\
        return all[12345] != 7;\n\
    }\n\
    int status = 1;\n\
    wait(&status);\n\
    return status != 0;\n\
}\n";

/// Shared memory of more than a quarter of the budget. Ends with its input.
const SHARED: &str = "\
#include <stdio.h>\n#include <string.h>\n#include <sys/mman.h>\n#include <unistd.h>\n\
int main(void) {\n\
    enum { ALL = 32 << 20 };\n\
    alarm(200);\n\
    char *all = mmap(0, ALL, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);\n\
    if (all == MAP_FAILED) return 1;\n\
    memset(all, 7, ALL);\n\
    while (getchar() != EOF);\n\
}\n";

/// 4,000 pieces of memory with guards between them, as threads' stacks are, 1,000 MiB in all; each page is looked
/// at twice, in an order that is not theirs.
const MANY: &str = "\
#include <stdio.h>\n#include <sys/mman.h>\n#include <unistd.h>\n\
int main(void) {\n\
    enum { PIECES = 4000, PAGES = 64, ALL = PIECES * PAGES, STEP = 100003 };\n\
    static char *piece[PIECES];\n\
    alarm(200);\n\
    for (int i = 0; i < PIECES; i++) {\n\
        piece[i] = mmap(0, (PAGES + 1) * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n\
        if (piece[i] == MAP_FAILED || mprotect(piece[i] + PAGES * 4096, 4096, PROT_NONE)) return 2;\n\
        for (int page = 0; page < PAGES; page++) *(int *)(piece[i] + page * 4096) = i * PAGES + page;\n\
        usleep(500);\n\
    }\n\
    for (int n = 0, at = 7; n < 2 * ALL; n++, at = (at + STEP) % ALL)\n\
        if (*(int *)(piece[at / PAGES] + at % PAGES * 4096) != at) return 3;\n\
}\n";

/// 36 MiB of addresses that the loader writes before the program begins.
const RELOCATED: &str = "\
#include <stdio.h>\n\
asm(\".section .data.addresses,\\\"aw\\\"\\n.balign 8\\n.rept 4718592\\n.quad main\\n.endr\\n.text\\n\");\n\
int main(void) { puts(\"begun\"); return 0; }\n";

/// 88 MiB that stay, and thirty times 32 MiB that are used in no order and given back.
const COMING_AND_GOING: &str = "\
int main(int argc, char **argv) {\n\
    enum { STAYS = 88 * MIB, COMES = 32 * MIB };\n\
    uint64_t *all = map(STAYS);\n\
    for (long page = 0; page < STAYS; page++) fill(all, page);\n\
    usleep(200000);\n\
    for (int round = 0; round < 30; round++) {\n\
        uint64_t *some = map(COMES);\n\
        for (long n = 0; n < COMES; n++) fill(some, n * 4099 % COMES);\n\
        for (long page = 0; page < COMES; page++) if (!is_there(some, page)) return 1;\n\
        munmap(some, COMES * 4096);\n\
        for (long page = 0; argc > 1 && page < STAYS; page++) if (!is_there(all, page)) return 3;\n\
    }\n\
    for (long page = 0; page < STAYS; page++) if (!is_there(all, page)) return 2;\n\
}\n";

pub(crate) fn build(folder: &Path, source: &str, arguments: &[&str]) -> Option<PathBuf> {
    let (file, program) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&file, source).unwrap();
    let built = Command::new("cc").args(arguments).arg(&file).arg("-o").arg(&program).output().unwrap();
    built.status.success().then_some(program)
}

/// Builds a program that ends with its input, runs it until it is told what is wanted, and gives that line and what
/// `status` shows then. None where the test `name` cannot run.
fn told(name: &str, source: &str, dram: &str, wanted: &str) -> Option<(String, String)> {
    let (store, place, _swap_is_off) = ready(name, "cc")?;
    let program = build(place.path(), source, &[]).expect("built");
    let mut run = Command::new(env!("CARGO_BIN_EXE_overdrive"));
    run.args(["extend", "--quiet", "--backend", "pager", "--dram", dram, "--store"]).arg(store.path());
    let run = run.arg("--").arg(program).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut run = Running(run);
    let mut lines = BufReader::new(run.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains(wanted)).expect("nothing was told");
    let (code, status, error) =
        read(&overdrive().args(["extend", "status", "--interval", "10ms"]).output().unwrap());
    assert_eq!(code, 0, "{error}");
    drop(run.0.stdin.take());
    assert_eq!(run.0.wait().unwrap().code(), Some(0), "{line}");
    assert_empty(store.path());
    Some((line, status))
}

#[test]
fn a_budget_below_what_cannot_be_evicted_is_told_with_one_that_would_do() {
    const NAME: &str = "extend_budget::a_budget_below_what_cannot_be_evicted_is_told_with_one_that_would_do";
    let Some((line, status)) = told(NAME, PIECES, "40MiB", "cannot be held") else { return };
    let wanted = line.split_once("the budget of 40 MiB cannot be held").expect("named").1;
    let wanted = wanted.split_once("wanted --dram of at least ").expect("the remedy").1;
    let mib: u64 = wanted.trim_end_matches(" MiB").parse().unwrap();
    assert!((64..=128).contains(&mib), "{line}");
    assert!(status.contains("above its budget of 40M"), "{status}");
}

#[test]
fn a_child_above_the_budget_is_told() {
    const NAME: &str = "extend_budget::a_child_above_the_budget_is_told";
    let Some((line, status)) = told(NAME, CHILD, "64MiB", "its child") else { return };
    assert!(line.contains("more than the budget") && line.contains("--backend swap"), "{line}");
    assert!(status.contains("has a child that holds 14"), "{status}");
}

#[test]
fn shared_memory_on_top_of_the_budget_is_told() {
    const NAME: &str = "extend_budget::shared_memory_on_top_of_the_budget_is_told";
    let Some((line, status)) = told(NAME, SHARED, "64MiB", "of shared memory") else { return };
    assert!(line.contains("up to 32 MiB") || line.contains("up to 33 MiB"), "{line}");
    assert!(line.contains("on top of the budget") && line.contains("--backend swap"), "{line}");
    assert!(status.contains("M of shared memory, which is not limited"), "{status}");
}

#[test]
fn a_program_above_its_budget_before_it_begins_is_not_started() {
    const NAME: &str = "extend_budget::a_program_above_its_budget_before_it_begins_is_not_started";
    let Some((store, place, _swap_is_off)) = ready(NAME, "cc") else { return };
    // The first is smaller on the disk, where the linker knows it.
    let ways: [&[&str]; 2] = [&["-fPIE", "-pie", "-Wl,-z,pack-relative-relocs"], &["-fPIE", "-pie"]];
    let program = ways.iter().find_map(|way| build(place.path(), RELOCATED, way)).expect("built");
    let program = program.to_str().unwrap();
    let run =
        |dram: &str| extend(&["--quiet", "--backend", "pager", "--dram", dram], store.path(), &[program]);
    let (code, text, error) = run("32MiB");
    assert_eq!((code, text.as_str(), error.lines().count()), (2, "", 1), "{error}");
    assert!(error.contains("before the program starts; wanted --dram of at least"), "{error}");
    let (code, text, error) = run("96MiB");
    assert_eq!((code, text.as_str()), (0, "begun\n"), "{error}");
    assert_empty(store.path());
}

/// As slow as each piece asked for all others, this took minutes and held most of it.
#[test]
fn thousands_of_pieces_are_held_to_the_budget() {
    const NAME: &str = "extend_budget::thousands_of_pieces_are_held_to_the_budget";
    let Some((store, place, _swap_is_off)) = ready(NAME, "cc") else { return };
    let program = build(place.path(), MANY, &["-O1"]).expect("built");
    let stats = place.path().join("stats.json");
    let arguments = ["--backend", "pager", "--dram", "128MiB", "--stats", stats.to_str().unwrap()];
    let (code, _, error) = extend(&arguments, store.path(), &[program.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    assert_empty(store.path());
    let process = largest(&stats);
    let held = process["held_max"].as_u64().expect("a counter") * 4096;
    assert!(held <= 192 << 20, "held {held} bytes: {process}");
}

/// Memory that programs take, use and give back cost a fault that the engine answered for each few pages, though
/// there was room: PyTorch took 1.5 times as long. And each time what it had grown by was kept free several times
/// over for more to come, so that what stays beside it went, and was read again. What stays is under the pager soon.
#[test]
fn new_memory_that_fits_is_left_to_the_kernel_for_a_while() {
    const NAME: &str = "extend_budget::new_memory_that_fits_is_left_to_the_kernel_for_a_while";
    let Some((store, place, _swap_is_off)) = ready(NAME, "cc") else { return };
    let source = format!("{COMMON}{COMING_AND_GOING}");
    let program = build(place.path(), &source, &["-O1", "-w"]).expect("built");
    let stats = place.path().join("stats.json");
    let run = |dram: &str, words: &[&str]| {
        let arguments = ["--quiet", "--backend", "pager", "--dram", dram, "--stats", stats.to_str().unwrap()];
        let command = [&[program.to_str().unwrap()], words].concat();
        let (code, _, error) = extend(&arguments, store.path(), &command);
        assert_eq!(code, 0, "{error}");
        let process = largest(&stats);
        assert!(process["managed_bytes"].as_u64().expect("a counter") >= 88 << 20, "{process}");
        ["faults", "held_max", "evicted"].map(|what| process[what].as_u64().expect("a counter"))
    };
    // With the room for a lasting piece and one that comes and goes, and with too little.
    let [faults, held, evicted] = run("160MiB", &["and read what lasts each time"]);
    assert!(faults < 30 * 8192 / 4 && held <= 160 * 256, "{faults} faults, {held} pages held");
    assert!(evicted < 30 * 8192 / 10, "{evicted}");
    // Where all new memory is in huge pages, so much comes between two looks.
    let huge = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let most = if huge.contains("[always]") { 82 } else { 72 };
    let [faults, held, evicted] = run("64MiB", &[]);
    assert!(faults > 0 && evicted > 88 * 256 && held <= most * 256, "{faults} {evicted}, {held} pages held");
}

/// Tables for a compressed tier of the largest size were written at the start of each process: 88 bytes for 64 KiB
/// of the budget, and 14 ms where that is 16 GiB.
#[test]
fn a_small_program_costs_the_same_whatever_the_budget() {
    const NAME: &str = "extend_budget::a_small_program_costs_the_same_whatever_the_budget";
    let Some((store, place, _swap_is_off)) = ready(NAME, "sleep") else { return };
    let [little, much] = ["64MiB", "2GiB"].map(|dram| {
        let stats = place.path().join(dram);
        let arguments = ["--quiet", "--backend", "pager", "--dram", dram, "--stats", stats.to_str().unwrap()];
        let (code, _, error) = extend(&arguments, store.path(), &["sleep", "0.2"]);
        assert_eq!(code, 0, "{error}");
        let process = largest(&stats);
        assert_eq!(process["program"], "sleep", "named though it has ended");
        process["held_max"].as_u64().expect("a counter")
    });
    assert!(little > 0 && much < little + 64, "{little} and {much} pages");
}

/// Faults that come seldom are answered wherever the engine is woken.
#[test]
fn the_engine_of_a_quiet_program_may_run_anywhere_unless_told_otherwise() {
    const NAME: &str = "extend_budget::the_engine_of_a_quiet_program_may_run_anywhere_unless_told_otherwise";
    const SCRIPT: &str = "\
where() { for t in /proc/$1/task/*; do grep -q '^overmem$' $t/comm && awk '/^Cpus_allowed:/ { print $2 }' $t/status; done; }
i=0; while [ $i -lt 60 ] && [ \"$(where $$)\" != \"$1\" ]; do sleep 0.05; i=$((i + 1)); done; where $$";
    let Some((store, _place, _swap_is_off)) = ready(NAME, "awk") else { return };
    let all = std::fs::read_to_string("/proc/self/status").unwrap();
    let all = all.lines().find_map(|line| line.strip_prefix("Cpus_allowed:")).unwrap().trim().to_owned();
    let with = |more: &[&str]| {
        let arguments = [&["--quiet", "--backend", "pager", "--dram", "64MiB"], more].concat();
        let (code, text, error) = extend(&arguments, store.path(), &["sh", "-c", SCRIPT, "sh", &all]);
        assert_eq!(code, 0, "{error}");
        text.trim().to_owned()
    };
    assert_eq!(with(&[]), all);
    let has_choice = std::thread::available_parallelism().unwrap().get() > 1;
    assert_eq!(with(&["--no-gather"]) == all, !has_choice);
}

/// A program of which nothing is under the pager is looked at 25 times a second and not 200.
#[test]
fn a_small_program_is_left_alone() {
    const NAME: &str = "extend_budget::a_small_program_is_left_alone";
    const SCRIPT: &str = "\
slept() { for t in /proc/$$/task/*; do grep -q '^overmem$' $t/comm && awk '/^voluntary/ { print $2 }' $t/status; done; }
sleep 0.5; before=$(slept); sleep 2; echo $(($(slept) - before))";
    let Some((store, _place, _swap_is_off)) = ready(NAME, "awk") else { return };
    let arguments = ["--quiet", "--backend", "pager", "--dram", "4GiB"];
    let (code, text, error) = extend(&arguments, store.path(), &["sh", "-c", SCRIPT]);
    let times: u32 = text.trim().parse().unwrap_or_else(|_| panic!("{code}: {text:?} {error}"));
    assert!((2..250).contains(&times), "{times}");
}
