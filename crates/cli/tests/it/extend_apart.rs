//! Engines in processes apart: the program does not notice them, and neither outlives the other.

use crate::browser::browser;
use crate::extend::{assert_empty, can_page, ready, signal, wait_for};
use crate::extend_budget::build;
use crate::extend_children::with_whole;
use crate::extend_odd::{COMMON, passes_with};
use crate::support::{folder, overdrive, read, skip, until};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const APART: &[&str] = &["--apart"];
/// What ends may take so long.
const MOST: Duration = Duration::from_secs(60);

/// How many threads the program has.
const THREADS: &str = "\
#include <dirent.h>\n#include <sched.h>\n#include <sys/syscall.h>\n\
static int threads(void) {\n\
    int count = -2;\n\
    DIR *all = opendir(\"/proc/self/task\");\n\
    while (readdir(all)) count++;\n\
    closedir(all);\n\
    return count;\n\
}\n";

fn with_threads(body: &str) -> String {
    with_whole(&format!("{THREADS}{body}"))
}

/// With the engine in threads `unshare` fails with EINVAL.
#[test]
fn a_program_with_one_thread_may_do_what_only_such_may() {
    const NAME: &str = "extend_apart::a_program_with_one_thread_may_do_what_only_such_may";
    const BODY: &str = "\
int main(void) {\n\
    int child = fork();\n\
    if (child == 0) return threads() != 1 ? 11 : whole() ? 12 : threads() != 1 ? 13 : 0;\n\
    int code = ended(child);\n\
    if (code) return code;\n\
    if (threads() != 1) return 14;\n\
    if (unshare(CLONE_NEWUSER)) return errno == EINVAL ? 15 : 77;\n\
    return whole() ? 16 : threads() != 1 ? 17 : 0;\n\
}\n";
    let body = format!("#include <errno.h>\n{}", with_threads(BODY));
    passes_with(APART, NAME, &body, &[&[]], 32..=96, "user namespaces are not to be had");
}

/// With the engine in threads each of these ends the program, or lets it grow beyond its budget.
#[test]
fn what_a_program_forbids_itself_its_engine_may_do() {
    const NAME: &str = "extend_apart::what_a_program_forbids_itself_its_engine_may_do";
    const BODY: &str = "\
#include <linux/filter.h>\n#include <linux/seccomp.h>\n#include <sys/prctl.h>\n\
static int forbid(void) {\n\
    struct sock_filter filter[] = {\n\
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),\n\
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 2, 0),\n\
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_enter, 1, 0),\n\
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),\n\
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),\n\
    };\n\
    struct sock_fprog program = { sizeof filter / sizeof *filter, filter };\n\
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 1;\n\
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);\n\
}\n\
static long held(void) {\n\
    long mapped, here = PAGES;\n\
    FILE *all = fopen(\"/proc/self/statm\", \"r\");\n\
    fscanf(all, \"%ld %ld\", &mapped, &here);\n\
    fclose(all);\n\
    return here;\n\
}\n\
static int forbidden(void) {\n\
    struct rlimit none = { 0, 0 };\n\
    signal(SIGXFSZ, SIG_IGN);\n\
    if (setrlimit(RLIMIT_FSIZE, &none)) return 21;\n\
    if (syscall(SYS_setgid, 65534) || setgid(65534) || syscall(SYS_setuid, 65534) || setuid(65534)) return 22;\n\
    if (forbid()) return 23;\n\
    int code = whole();\n\
    return code ? code : held() > 96 * MIB ? 24 : 0;\n\
}\n\
int main(void) {\n\
    if (getuid()) return 77;\n\
    int child = fork();\n\
    if (child == 0) return forbidden();\n\
    int code = ended(child);\n\
    return code ? code : forbidden();\n\
}\n";
    passes_with(APART, NAME, &with_threads(BODY), &[&[]], 32..=96, "only root may become another user");
}

/// The numbers of processes with this name.
fn named(name: &str) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let comm = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let runs = |pid: &u32| {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !state.contains(") Z ")
    };
    numbers.filter(|pid| comm(pid).trim_end() == name && runs(pid)).collect()
}

/// The agent that has the same memory as the program: its command line lies there.
fn agent_of(program: u32) -> Option<u32> {
    let line = |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    named("overmem-agent").into_iter().find(|&agent| line(agent) == line(program))
}

#[test]
fn whichever_of_program_engine_and_agent_is_killed_all_end() {
    const NAME: &str = "extend_apart::whichever_of_program_engine_and_agent_is_killed_all_end";
    const BODY: &str = "\
int main(int count, char **words) {\n\
    uint64_t *all = map(PAGES);\n\
    for (long page = 0; page < PAGES; page++) fill(all, page);\n\
    dprintf(open(words[1], O_CREAT | O_WRONLY, 0600), \"%d\", getpid());\n\
    rename(words[1], words[2]);\n\
    for (;;) for (long page = 0; page < PAGES; page++) if (!is_there(all, page)) return 4;\n\
}\n";
    let Some((store, place, _swap_is_off)) = ready(NAME, "cc") else { return };
    let source = format!("{COMMON}{}", with_whole(BODY));
    let program = build(place.path(), &source, &["-O1", "-w"]).expect("built");
    let [writes, ready] = ["writes", "ready"].map(|name| place.path().join(name));
    for killed in ["program", "engine", "agent"] {
        let mut run = Command::new(env!("CARGO_BIN_EXE_overdrive"));
        run.args(["extend", "--quiet", "--apart", "--backend", "pager", "--dram", "64MiB", "--store"]);
        run.arg(store.path()).arg("--").arg(&program).args([&writes, &ready]);
        let mut run = run.stdin(Stdio::null()).spawn().unwrap();
        wait_for(&ready);
        let pid: u32 = std::fs::read_to_string(&ready).unwrap().parse().unwrap();
        let (engine, agent) = (named(&format!("overmem:{pid}")), agent_of(pid).expect("an agent"));
        assert_eq!(engine.len(), 1, "{killed}");
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
        assert_eq!(threads, 1, "{killed}");
        let victim = match killed {
            "program" => pid,
            "engine" => engine[0],
            _ => agent,
        };
        signal(victim, "KILL");
        assert_eq!(run.wait().unwrap().code(), Some(128 + 9), "{killed}");
        until("all have ended", MOST, || named(&format!("overmem:{pid}")).is_empty() && !is_there(agent));
        assert_empty(store.path());
        std::fs::remove_file(&ready).unwrap();
    }
}

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// The program is another one afterwards, with an engine of its own.
#[test]
fn the_engine_of_a_program_that_became_another_ends() {
    const NAME: &str = "extend_apart::the_engine_of_a_program_that_became_another_ends";
    const BODY: &str = "\
static int engines(void) {\n\
    char wanted[32], line[64];\n\
    int count = 0;\n\
    DIR *all = opendir(\"/proc\");\n\
    sprintf(wanted, \"overmem:%d\\n\", getpid());\n\
    for (struct dirent *one; one = readdir(all);) {\n\
        sprintf(line, \"/proc/%.20s/comm\", one->d_name);\n\
        FILE *name = fopen(line, \"r\");\n\
        if (!name) continue;\n\
        if (fgets(line, sizeof line, name) && !strcmp(line, wanted)) count++;\n\
        fclose(name);\n\
    }\n\
    closedir(all);\n\
    return count;\n\
}\n\
int main(int count, char **words) {\n\
    if (count == 1) {\n\
        if (engines() != 1) return 31;\n\
        int code = whole();\n\
        if (code) return code;\n\
        if (fork() == 0) { sleep(2); _exit(0); }\n\
        execl(words[0], words[0], \"again\", (char *)0);\n\
        return 32;\n\
    }\n\
    for (int left = 2000; engines() != 1; left--) if (left == 0) return 33; else usleep(10000);\n\
    return whole();\n\
}\n";
    passes_with(APART, NAME, &with_threads(BODY), &[&[]], 32..=96, "");
}

/// Its zygote insists on one thread, and ends beside an engine in threads.
#[test]
fn a_browser_above_its_budget_shows_what_it_should() {
    const NAME: &str = "extend_apart::a_browser_above_its_budget_shows_what_it_should";
    const PAGE: &str = "<body><script>
const parts = [];
for (let part = 0; part < 40; part++) {
    const bytes = new Uint8Array(4 << 20);
    for (let at = 0; at < bytes.length; at += 64) bytes[at] = part * 7 + at / 64;
    parts.push(bytes);
}
let wrong = 0;
for (let round = 0; round < 2; round++)
    for (let part = 0; part < 40; part++)
        for (let at = 0; at < parts[part].length; at += 4096)
            if (parts[part][at] != (part * 7 + at / 64 & 255)) wrong++;
document.body.textContent = `wrong: ${wrong}`;
</script></body>";
    let Some(browser) = browser() else { return skip(NAME, "chromium is not installed") };
    let (store, place) = (folder(), folder());
    let Some(_swap_is_off) = can_page(NAME, store.path()) else { return };
    let page = place.path().join("page.html");
    std::fs::write(&page, PAGE).unwrap();
    let mut run = overdrive();
    run.args(["extend", "--quiet", "--apart", "--backend", "pager", "--dram", "96MiB", "--store"]);
    run.arg(store.path()).arg("--").arg(browser);
    run.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--dump-dom"]);
    run.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    run.args(["--proxy-server=127.0.0.1:9", "--virtual-time-budget=100000"]);
    run.arg(format!("--user-data-dir={}", place.path().join("profile").display()));
    run.arg(format!("file://{}", page.display()));
    let (code, text, error) = read(&run.output().unwrap());
    assert_eq!(code, 0, "{error}");
    assert!(text.contains("<body>wrong: 0"), "{text}{error}");
}
