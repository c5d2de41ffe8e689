//! What children map is held. One that was made before any memory of its parent's was under the pager has its own
//! engine once it has grown, and needs its parent no more; others are served by their parent's.

use crate::extend::{Loop, assert_empty, extend, ready};
use crate::extend_budget::build;
use crate::extend_odd::{ANY, COMMON, passes};
use crate::support::{run, skip, until};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// What a daemon may take for a step.
const MOST: Duration = Duration::from_secs(100);

/// Memory that is looked at as a whole, in a child. 64 MiB are its budget.
const WHOLE: &str = "\
enum { PAGES = 160 * MIB };\n\
static int whole(void) {\n\
    uint64_t *all = map(PAGES);\n\
    for (long page = 0; page < PAGES; page++) fill(all, page);\n\
    for (int round = 0; round < 2; round++)\n\
        for (long page = 0; page < PAGES; page++) if (!is_there(all, page)) return 4;\n\
    return 0;\n\
}\n\
static int ended(int child) {\n\
    int status = 0;\n\
    if (child <= 0 || waitpid(child, &status, 0) != child) return 98;\n\
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;\n\
}\n";

pub(crate) fn with_whole(body: &str) -> String {
    format!("{WHOLE}{body}")
}

#[test]
fn a_child_and_its_own_children_are_held_and_find_what_was_theirs() {
    const NAME: &str = "extend_children::a_child_and_its_own_children_are_held_and_find_what_was_theirs";
    const BODY: &str = "\
int main(void) {\n\
    uint64_t *old = map(4 * MIB);\n\
    for (long page = 0; page < 4 * MIB; page++) fill(old, page);\n\
    int child = fork();\n\
    if (child == 0) {\n\
        int early = fork();\n\
        if (early == 0) return whole();\n\
        uint64_t *all = map(PAGES);\n\
        for (long page = 0; page < PAGES; page++) fill(all, page);\n\
        int late = fork();\n\
        if (late == 0) {\n\
            for (long page = 0; page < PAGES; page += 7) if (!is_there(all, page)) _exit(5);\n\
            for (long page = 0; page < 4 * MIB; page++) if (!is_there(old, page)) _exit(6);\n\
            _exit(0);\n\
        }\n\
        for (long page = 0; page < PAGES; page++) if (!is_there(all, page)) return 7;\n\
        for (long page = 0; page < 4 * MIB; page++) if (!is_there(old, page)) return 8;\n\
        int code = ended(late);\n\
        return code ? code : ended(early);\n\
    }\n\
    return ended(child);\n\
}\n";
    passes(NAME, &with_whole(BODY), &[&[]], 32..=96, "");
}

/// Its parent is above its budget at the fork. Memory that the child maps is given up in part, grows, moves, and
/// goes to a child of its own, which maps more. The child may be lent most of its parent's budget, which it then
/// shares with its own child.
#[test]
fn what_a_child_of_a_large_program_maps_is_held_and_stays_what_it_is() {
    const NAME: &str = "extend_children::what_a_child_of_a_large_program_maps_is_held_and_stays_what_it_is";
    const BODY: &str = "\
enum { OLD = 80 * MIB, GIVEN = 16 * MIB, MORE = 32 * MIB, HOT = 64 * MIB, BUDGET = 64 * MIB };\n\
/* What is not shared (any more) goes soon. */\n\
static int is_held(uint64_t *all, long pages) {\n\
    for (int n = 0; present(all, pages) > BUDGET; n++) if (n == 200) return 0; else usleep(100000);\n\
    return 1;\n\
}\n\
static int all_there(uint64_t *all, long pages) {\n\
    for (long page = 0; page < pages; page++) if (!is_there(all, page)) return 0;\n\
    return 1;\n\
}\n\
int main(void) {\n\
    volatile struct { long late_has, is_over; } *both =\n\
        mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);\n\
    uint64_t *old = map(OLD);\n\
    for (long page = 0; page < OLD; page++) fill(old, page);\n\
    int child = fork();\n\
    if (child == 0) {\n\
        uint64_t *all = map(PAGES);\n\
        for (long page = 0; page < PAGES; page++) fill(all, page);\n\
        for (int round = 0; round < 2; round++) if (!all_there(all, PAGES)) return 20;\n\
        if (!is_held(all, PAGES)) return 21;\n\
        if (madvise(all, GIVEN * 4096, MADV_DONTNEED)) return 22;\n\
        for (long page = 0; page < GIVEN; page++) if (all[page * 512 + page % 512]) return 23;\n\
        for (long page = 0; page < GIVEN; page++) fill(all, page);\n\
        all = mremap(all, PAGES * 4096L, (PAGES + MORE) * 4096L, MREMAP_MAYMOVE);\n\
        if (all == MAP_FAILED) return 24;\n\
        for (long page = PAGES; page < PAGES + MORE; page++) fill(all, page);\n\
        for (unsigned n = 0, at = 7; n < 150000; n++, at = at * 69069 + 1)\n\
            if (!is_there(all, (at >> 8) % HOT)) return 31;\n\
        int late = fork();\n\
        if (late == 0) {\n\
            if (whole() || !all_there(all, PAGES + MORE) || !all_there(old, OLD)) _exit(25);\n\
            for (; !both->is_over; usleep(100000)) both->late_has = present(all, PAGES + MORE);\n\
            _exit(0);\n\
        }\n\
        if (!all_there(all, PAGES + MORE) || !all_there(old, OLD)) return 27;\n\
        for (int n = 0; !both->late_has || present(all, PAGES + MORE) + both->late_has > BUDGET; n++)\n\
            if (n == 300) return 30; else usleep(100000);\n\
        both->is_over = 1;\n\
        int code = ended(late);\n\
        if (!is_held(all, PAGES + MORE)) return 28;\n\
        return munmap(all, (PAGES + MORE) * 4096L) ? 29 : code;\n\
    }\n\
    return ended(child);\n\
}\n";
    passes(NAME, &with_whole(BODY), &[&[]], ANY, "");
}

/// It has closed all descriptors when it grows, and its parent and the run have ended. Who waits for the end of its
/// output (`extend` here) does not wait for it.
#[test]
fn a_daemon_is_held_and_shown_when_the_run_has_ended() {
    const NAME: &str = "extend_children::a_daemon_is_held_and_shown_when_the_run_has_ended";
    const BODY: &str = "\
int main(int count, char **words) {\n\
    if (fork()) return 0;\n\
    setsid();\n\
    if (fork()) _exit(0);\n\
    int folder = dup2(open(words[1], O_RDONLY | O_DIRECTORY), 3);\n\
    for (int other = 0; other < 1024; other++) if (other != folder) close(other);\n\
    chdir(\"/\");\n\
    alarm(100);\n\
    while (faccessat(folder, \"go\", F_OK, 0)) usleep(10000);\n\
    dprintf(openat(folder, \"said\", O_CREAT | O_WRONLY, 0600), \"%d %d\", getpid(), whole());\n\
    renameat(folder, \"said\", folder, \"done\");\n\
    while (faccessat(folder, \"end\", F_OK, 0)) usleep(10000);\n\
}\n";
    let Some((store, place, _swap_is_off)) = ready(NAME, "cc") else { return };
    let program =
        build(place.path(), &format!("{COMMON}{}", with_whole(BODY)), &["-O1", "-w"]).expect("built");
    let at = |name: &str| place.path().join(name);
    let arguments = ["--backend", "pager", "--dram", "64MiB"];
    let command = [program.to_str().unwrap(), place.path().to_str().unwrap()];
    let (code, _, error) = extend(&arguments, store.path(), &command);
    assert_eq!(code, 0, "{error}");
    assert!(error.contains("go on under the pager"), "{error}");
    std::fs::write(at("go"), "").unwrap();
    until("the daemon is done", MOST, || at("done").exists());
    let said = std::fs::read_to_string(at("done")).unwrap();
    let pid: u64 = said.strip_suffix(" 0").expect("all is there").parse().unwrap();
    // Beside all other tests its engine may have begun late.
    until("the daemon is held and shown", MOST, || {
        let (code, status, error) = run(&["extend", "status", "--json", "--interval", "10ms"]);
        assert_eq!(code, 0, "{error}");
        let status: Value = serde_json::from_str(&status).unwrap();
        let mut processes = status["processes"].as_array().unwrap().iter();
        processes.find(|process| process["pid"].as_u64() == Some(pid)).is_some_and(|daemon| {
            let of = |name: &str| daemon[name].as_u64().unwrap();
            of("evicted") > 0 && of("resident") + of("staged") + of("unmanaged") < 72 << 8
        })
    });
    std::fs::write(at("end"), "").unwrap();
    until("the daemon has ended", MOST, || !Path::new(&format!("/proc/{pid}")).exists());
    let (code, _, error) = extend(&arguments, store.path(), &["true"]);
    assert_eq!(code, 0, "{error}");
    assert_empty(store.path());
}

/// The library's threads are among those that the C library and the kernel wait for.
#[test]
fn a_child_ends_with_its_last_thread() {
    const NAME: &str = "extend_children::a_child_ends_with_its_last_thread";
    const BODY: &str = "\
#include <pthread.h>\n#include <sys/syscall.h>\n\
static int large;\n\
static void at_end(void) { if (large >= 0) _exit(40 + large); }\n\
static void *rest(void *none) {\n\
    if (large && whole()) _exit(3);\n\
    usleep(100000);\n\
    return 0;\n\
}\n\
static int one(int way) {\n\
    pthread_t thread;\n\
    alarm(60);\n\
    large = way & 1;\n\
    if (pthread_create(&thread, 0, rest, 0)) _exit(2);\n\
    pthread_detach(thread);\n\
    if (way & 2) { pthread_exit(0); }\n\
    syscall(SYS_exit, 5);\n\
}\n\
int main(void) {\n\
    atexit(at_end);\n\
    for (int way = 0; way < 4; way++) {\n\
        int child = fork();\n\
        if (child == 0) one(way);\n\
        int code = ended(child), wanted = way & 2 ? 40 + (way & 1) : 5;\n\
        if (code != wanted) { fprintf(stderr, \"way %d: %d\\n\", way, code); _exit(10 + way); }\n\
    }\n\
    large = -1;\n\
    return 0;\n\
}\n";
    passes(NAME, &with_whole(BODY), &[&[]], 32..=96, "");
}

/// No part of the device was taken for what children have, so that they kept it.
#[test]
fn children_are_held_where_the_store_is_a_device() {
    const NAME: &str = "extend_children::children_are_held_where_the_store_is_a_device";
    let Some((folder, place, _swap_is_off)) = ready(NAME, "cc") else { return };
    let program = build(place.path(), &crate::extend_rights::source(), &["-O1", "-w"]);
    let device = Loop::new(&folder.path().join("device"), 2 << 30);
    let Some(Loop(device)) = &device else { return skip(NAME, "no loop device can be had") };
    let words = ["--quiet", "--backend", "pager", "--dram", "64MiB", "--write-to", device];
    let (code, _, error) = extend(&words, Path::new(device), &[program.expect("built").to_str().unwrap()]);
    assert_eq!((code, error), (0, String::new()));
}
