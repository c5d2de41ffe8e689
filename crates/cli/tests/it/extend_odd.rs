//! Programs that do to their memory and their process what few do: each finds what it would find without the
//! pager, within its budget.

use crate::extend::{assert_empty, extend, ready};
use crate::extend_budget::build;
use crate::support::skip;
use serde_json::Value;
use std::ops::RangeInclusive;

/// What all of these have: 4 KiB pages with content of their own, and how much is in DRAM.
pub(crate) const COMMON: &str = "\
#define _GNU_SOURCE\n\
#include <fcntl.h>\n#include <setjmp.h>\n#include <signal.h>\n#include <stdint.h>\n#include <stdio.h>\n\
#include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n#include <sys/resource.h>\n\
#include <sys/wait.h>\n#include <unistd.h>\n\
enum { MIB = 256 };\n\
static uint64_t *map(long pages) {\n\
    alarm(200);\n\
    void *all = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n\
    return all == MAP_FAILED ? 0 : all;\n\
}\n\
static uint64_t word(long page, int at) { return (page + 1) * 0x9e3779b97f4a7c15u + at * 77777777777u; }\n\
static void fill(uint64_t *all, long page) {\n\
    for (int at = 0; at < 512; at++) all[page * 512 + at] = word(page, at);\n\
}\n\
static int is_there(uint64_t *all, long page) {\n\
    for (int at = 0; at < 512; at += 73) if (all[page * 512 + at] != word(page, at)) return 0;\n\
    return 1;\n\
}\n\
static int may_lock(void) {\n\
    struct rlimit limit;\n\
    return !getrlimit(RLIMIT_MEMLOCK, &limit) && (limit.rlim_cur >= 8ul << 30 || !geteuid());\n\
}\n\
static long present(uint64_t *all, long pages) {\n\
    long count = 0;\n\
    int map = open(\"/proc/self/pagemap\", O_RDONLY);\n\
    for (long page = 0; page < pages; page++) {\n\
        uint64_t entry = 0;\n\
        pread(map, &entry, 8, ((uintptr_t)all / 4096 + page) * 8);\n\
        count += entry >> 63;\n\
    }\n\
    close(map);\n\
    return count;\n\
}\n";

/// Builds a program and runs it with 64 MiB, once for each command before it. It has to end well within `held`
/// MiB and leave nothing; with 77 it says that `missing` is not to be had here.
pub(crate) fn passes(name: &str, body: &str, befores: &[&[&str]], held: RangeInclusive<u64>, missing: &str) {
    passes_with(&[], name, body, befores, held, missing);
}

/// The same with more words for `overdrive extend`.
pub(crate) fn passes_with(
    more: &[&str],
    name: &str,
    body: &str,
    befores: &[&[&str]],
    held: RangeInclusive<u64>,
    missing: &str,
) {
    let Some((store, place, _swap_is_off)) = ready(name, "cc") else { return };
    let source = format!("{COMMON}{body}");
    let program = build(place.path(), &source, &["-O1", "-w"]).expect("built");
    let stats = place.path().join("stats.json");
    let arguments = ["--quiet", "--backend", "pager", "--dram", "64MiB", "--stats", stats.to_str().unwrap()];
    for before in befores {
        let command = [before, &[program.to_str().unwrap()][..]].concat();
        let (code, _, error) = extend(&[&arguments, more].concat(), store.path(), &command);
        if code == 77 && !missing.is_empty() {
            return skip(name, missing);
        }
        assert_eq!(code, 0, "{before:?}: {error}");
        let stats: Value = serde_json::from_slice(&std::fs::read(&stats).unwrap()).unwrap();
        let processes = stats["processes"].as_array().unwrap().iter();
        let most = processes.filter_map(|process| process["held_max"].as_u64()).max().unwrap_or(0) / 256;
        assert!(held.contains(&most), "{before:?}: {most} MiB: {error}");
    }
    assert_empty(store.path());
}

/// Nothing is said of what is held.
pub(crate) const ANY: RangeInclusive<u64> = 0..=u64::MAX;

/// Reading ahead put pages over guards, and pages that became guards counted as in place for ever.
#[test]
fn guards_stay_and_take_nothing_of_the_budget() {
    const NAME: &str = "extend_odd::guards_stay_and_take_nothing_of_the_budget";
    const BODY: &str = "\
static sigjmp_buf back;\n\
static void caught(int number) { siglongjmp(back, 1); }\n\
#define AT_RANDOM(page) \\\n\
    for (unsigned n = 0, page = 0; n < 65536; n++, page = page * 25173 + 13849 & 65535) if (page < PAGES)\n\
int main(void) {\n\
    enum { PAGES = 160 * MIB, GUARD = 102 };\n\
    signal(SIGSEGV, caught);\n\
    uint64_t *all = map(PAGES), *more = map(48 * MIB);\n\
    if (madvise(more, 48 << 20, GUARD)) return 77;\n\
    if (madvise(more, 48 << 20, GUARD + 1)) return 2;\n\
    for (long page = 0; page < PAGES; page++) fill(all, page);\n\
    for (int round = 0; round < 4; round++) {\n\
        for (long page = 0; page < 24 * MIB; page++) fill(more, page);\n\
        if (madvise(more, 48 << 20, GUARD) || madvise(more, 48 << 20, GUARD + 1)) return 3;\n\
    }\n\
    for (int round = 0; round < 2; round++) AT_RANDOM(page) if (!is_there(all, page)) return 7;\n\
    for (long page = 5; page < PAGES; page += 37) if (madvise(all + page * 512, 4096, GUARD)) return 4;\n\
    AT_RANDOM(page) if (page % 37 != 5 && !is_there(all, page)) return 8;\n\
    for (long page = 0; page < PAGES; page++) if (page % 37 != 5 && !is_there(all, page)) return 5;\n\
    for (volatile long page = 5; page < PAGES; page += 37)\n\
        if (!sigsetjmp(back, 1)) { *(volatile char *)(all + page * 512); return 6; }\n\
    /* New memory, which is filled ahead of who writes it from one end to the other. */\n\
    long last = 24 * MIB - 1;\n\
    for (long page = 5; page <= last; page += 37) if (madvise(more + page * 512, 4096, GUARD)) return 9;\n\
    for (long page = 0; page < 12 * MIB; page++) if (page % 37 != 5) fill(more, page);\n\
    for (long page = last; page >= 12 * MIB; page--) if (page % 37 != 5) fill(more, page);\n\
    for (volatile long page = 5; page <= last; page += 37)\n\
        if (!sigsetjmp(back, 1)) { *(volatile char *)(more + page * 512); return 10; }\n\
    for (long page = 0; page <= last; page++) if (page % 37 != 5 && !is_there(more, page)) return 11;\n\
}\n";
    passes(NAME, BODY, &[&[]], 0..=96, "no MADV_GUARD_INSTALL (Linux 6.13)");
}

/// A graph database maps 8 TiB for all that it may ever hold. Where it was more than there are numbers for, nothing of
/// such memory came under the pager.
#[test]
fn of_terabytes_what_is_in_use_is_held_to_the_budget() {
    const NAME: &str = "extend_odd::of_terabytes_what_is_in_use_is_held_to_the_budget";
    const BODY: &str = "\
static uint64_t *all;\n\
static long number(long page) { return page % (48 * MIB) + (page >= 48 * MIB) * (3l << 28); }\n\
static int are_there(long pages) {\n\
    for (long page = 0; page < pages; page++) if (!is_there(all, number(page))) return 0;\n\
    return 1;\n\
}\n\
int main(void) {\n\
    enum { PAGES = 96 * MIB };\n\
    long bytes = 4l << 40;\n\
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;\n\
    alarm(200);\n\
    all = mmap(0, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);\n\
    if (all == MAP_FAILED) return 77;\n\
    for (int page = 0; page < PAGES; page++) fill(all, number(page));\n\
    usleep(300000);\n\
    if (present(all, 48 * MIB) + present(all + (3l << 37), 48 * MIB) > 64 * MIB || !are_there(PAGES)) return 2;\n\
    pid_t child = fork();\n\
    if (!child) {\n\
        for (long page = 1l << 28; page < (1l << 28) + 8 * MIB; page++) fill(all, page);\n\
        int status = !are_there(PAGES);\n\
        for (long page = 1l << 28; page < (1l << 28) + 8 * MIB; page++) status |= 2 * !is_there(all, page);\n\
        _exit(status);\n\
    }\n\
    int status = 1;\n\
    for (long page = 0; page < PAGES; page += 16) fill(all, number(page));\n\
    if (waitpid(child, &status, 0) != child || status || !are_there(PAGES)) return 3;\n\
    for (long page = 0; page < PAGES; page += 2) fill(all, number(page));\n\
    if (!are_there(PAGES)) return 4;\n\
    return munmap(all, bytes);\n\
}\n";
    passes(NAME, BODY, &[&[]], 48..=80, "so much may not be mapped");
}

/// What was given up by MADV_FREE stayed in place for two seconds, whatever the budget: allocators that use it (snmalloc,
/// that of Haskell) held nearly three times as much.
#[test]
fn what_was_given_up_goes_when_room_is_wanted() {
    const NAME: &str = "extend_odd::what_was_given_up_goes_when_room_is_wanted";
    const BODY: &str = "\
int main(void) {\n\
    enum { PIECE = 2 * MIB, ALL = 192 * MIB, KEPT = 37 };\n\
    uint64_t *all = map(ALL);\n\
    for (int round = 0; round < 3; round++)\n\
        for (long from = 0; from < ALL; from += PIECE) {\n\
            for (long page = from; page < from + PIECE; page++) fill(all, page);\n\
            if (madvise(all + from * 512, PIECE * 4096, MADV_FREE)) return 2;\n\
            for (long page = from; page < from + PIECE; page++) {\n\
                uint64_t first = all[page * 512];\n\
                if (first && first != word(page, 0)) return 3;\n\
                if (page % KEPT == 0) fill(all, page);\n\
            }\n\
        }\n\
    for (long page = 0; page < ALL; page += KEPT) if (!is_there(all, page)) return 4;\n\
}\n";
    passes(NAME, BODY, &[&[]], 48..=72, "");
}

/// Tables and filters of which little is in use are read all over. Each of their pages took the place of one with
/// content, though the kernel has one page of zeroes for all. Those written to in the end count, in children too.
#[test]
fn zeroes_that_are_read_take_nothing_of_the_budget() {
    const NAME: &str = "extend_odd::zeroes_that_are_read_take_nothing_of_the_budget";
    const BODY: &str = "\
enum { HOT = 40 * MIB, ALL = 400 * MIB };\n\
static int are_right(uint64_t *all, long written) {\n\
    for (long page = 0; page < ALL; page++)\n\
        if (page % 4 == 1 && page < written ? !is_there(all, page) : all[page * 512 + 9] != 0) return 0;\n\
    return 1;\n\
}\n\
static void fill_some(uint64_t *all, long from, long to) {\n\
    for (long page = from + 1; page < to; page += 4) {\n\
        fill(all, page);\n\
        if (page % 256 == 1) usleep(4000);\n\
    }\n\
}\n\
int main(void) {\n\
    uint64_t *hot = map(HOT), *all = map(ALL);\n\
    for (long page = 0; page < HOT; page++) fill(hot, page);\n\
    usleep(300000);\n\
    if (!are_right(all, 0)) return 2;\n\
    if (present(all, ALL) != ALL || present(hot, HOT) != HOT) return 3;\n\
    fill_some(all, 0, ALL / 2);\n\
    pid_t child = fork();\n\
    if (!child) {\n\
        fill_some(all, ALL / 2, ALL / 2 + ALL / 8);\n\
        _exit(!are_right(all, ALL / 2 + ALL / 8));\n\
    }\n\
    int status = 1;\n\
    if (waitpid(child, &status, 0) != child || status) return 4;\n\
    fill_some(all, ALL / 2, ALL);\n\
    if (!are_right(all, ALL)) return 5;\n\
    for (long page = 0; page < HOT; page++) if (!is_there(hot, page)) return 6;\n\
    if (madvise(all, ALL / 2 * 4096, MADV_DONTNEED)) return 7;\n\
    for (long page = 0; page < ALL / 2; page++) if (all[page * 512 + 9]) return 8;\n\
}\n";
    passes(NAME, BODY, &[&[]], 48..=84, "");
}

/// An engine looked at its process 200 times a second, whatever that did, and each look wakes a processor: twenty programs
/// that only waited took a fifth of one.
#[test]
fn a_program_that_only_waits_is_looked_at_less_often() {
    const NAME: &str = "extend_odd::a_program_that_only_waits_is_looked_at_less_often";
    const BODY: &str = "\
static long times_awake(void) {\n\
    FILE *lines = popen(\"cat $(grep -l ^overmem$ /proc/$PPID/task/*/comm | sed s/comm/status/)\", \"r\");\n\
    char line[256];\n\
    long times = -1;\n\
    while (fgets(line, sizeof line, lines)) sscanf(line, \"voluntary_ctxt_switches: %ld\", &times);\n\
    return pclose(lines) ? -1 : times;\n\
}\n\
int main(void) {\n\
    enum { ALL = 140 * MIB };\n\
    uint64_t *all = map(ALL);\n\
    for (long page = 0; page < ALL; page++) fill(all, page);\n\
    sleep(3);\n\
    long before = times_awake();\n\
    sleep(4);\n\
    long times = times_awake() - before;\n\
    if (before < 0 || times > 4 * 130) return printf(\"%ld\\n\", times), 2;\n\
    for (long page = 0; page < ALL; page++) if (!is_there(all, page)) return 3;\n\
}\n";
    let Some((store, place, _swap_is_off)) = ready(NAME, "cc") else { return };
    let program = build(place.path(), &format!("{COMMON}{BODY}"), &["-O1", "-w"]).expect("built");
    let arguments = ["--quiet", "--backend", "pager", "--dram", "256MiB"];
    // How fast it may grow goes by its processors.
    let command = ["taskset", "-c", "0", program.to_str().unwrap()];
    let (code, text, error) = extend(&arguments, store.path(), &command);
    assert_eq!((code, text.as_str(), error.as_str()), (0, "", ""));
    assert_empty(store.path());
}

/// An allocator (rpmalloc) has a function of this name for the program's threads. The library's began by it, before the
/// program had.
#[test]
fn a_program_with_threads_of_its_own_making_begins() {
    const NAME: &str = "extend_odd::a_program_with_threads_of_its_own_making_begins";
    const BODY: &str = "\
#include <dlfcn.h>\n#include <pthread.h>\n\
static int has_begun, calls;\n\
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {\n\
    if (!has_begun) abort();\n\
    calls++;\n\
    return ((int (*)())dlsym(RTLD_NEXT, \"pthread_create\"))(thread, attributes, start, argument);\n\
}\n\
static void *fills(void *all) { for (long page = 0; page < 96 * MIB; page++) fill(all, page); return all; }\n\
int main(void) {\n\
    has_begun = 1;\n\
    uint64_t *all = map(96 * MIB);\n\
    pthread_t thread;\n\
    if (pthread_create(&thread, 0, fills, all) || pthread_join(thread, 0) || calls != 1) return 2;\n\
    for (long page = 0; page < 96 * MIB; page++) if (!is_there(all, page)) return 3;\n\
}\n";
    passes(NAME, BODY, &[&[]], 48..=72, "");
}

/// What takes the allocator's place (heaptrack, tcmalloc's debugging one) goes through the stack of each caller, by
/// descriptors that the engine's threads do not share: the program waited for ever, before it had begun. And an
/// allocator that `main` has to make ready (GNU Common Lisp's, so Maxima's) ended its program where the library had
/// asked it for the 32 KiB of a folder's entries. For each thread the C library takes some hundred bytes of it.
#[test]
fn the_engine_asks_the_programs_allocator_for_nothing() {
    const NAME: &str = "extend_odd::the_engine_asks_the_programs_allocator_for_nothing";
    const BODY: &str = "\
#include <stdatomic.h>\n#include <sys/prctl.h>\n\
static char pool[256 << 20];\n\
static atomic_long used;\n\
static atomic_int calls, of_the_engine, early, has_begun;\n\
static void *give(size_t bytes) {\n\
    if (!has_begun && bytes > 1024) early++;\n\
    char name[17] = \"\";\n\
    prctl(PR_GET_NAME, name);\n\
    if (strncmp(name, \"overmem\", 7) == 0) of_the_engine++;\n\
    calls++;\n\
    size_t *place = (size_t *)(pool + atomic_fetch_add(&used, (bytes + 31) & ~15ul));\n\
    if ((char *)place + bytes + 16 > pool + sizeof pool) return 0;\n\
    *place = bytes;\n\
    return place + 2;\n\
}\n\
void *malloc(size_t bytes) { return give(bytes); }\n\
void *calloc(size_t count, size_t bytes) { return give(count * bytes); }\n\
void *realloc(void *old, size_t bytes) {\n\
    void *new = give(bytes);\n\
    size_t had = old ? ((size_t *)old)[-2] : 0;\n\
    return new && old ? memcpy(new, old, had < bytes ? had : bytes) : new;\n\
}\n\
void free(void *old) { if (old) give(0); }\n\
int main(void) {\n\
    has_begun = 1;\n\
    if (early) return 7;\n\
    uint64_t *all = malloc(96 * MIB * 4096l);\n\
    for (long page = 0; page < 96 * MIB; page++) fill(all, page);\n\
    pid_t child = fork();\n\
    if (child == 0) {\n\
        uint64_t *more = malloc(96 * MIB * 4096l);\n\
        for (long page = 0; page < 96 * MIB; page++) fill(more, page);\n\
        for (long page = 0; page < 96 * MIB; page++) if (!is_there(all, page)) _exit(2);\n\
        _exit(of_the_engine != 0);\n\
    }\n\
    int status;\n\
    if (waitpid(child, &status, 0) != child || status) return 3;\n\
    for (long page = 0; page < 96 * MIB; page++) if (!is_there(all, page)) return 4;\n\
    return of_the_engine ? 5 : calls < 1 ? 6 : 0;\n\
}\n";
    for more in [&[][..], &["--apart"]] {
        passes_with(more, NAME, BODY, &[&[]], 48..=84, "");
    }
}

/// New memory is left to the kernel for a while, but not at a fork: of what its parent replaced, a child kept all
/// that it had from there.
#[test]
fn a_child_does_not_keep_new_memory_that_its_parent_replaced() {
    const NAME: &str = "extend_odd::a_child_does_not_keep_new_memory_that_its_parent_replaced";
    const BODY: &str = "\
int main(void) {\n\
    enum { OLD = 35 * MIB, NEW = 20 * MIB };\n\
    uint64_t *all = map(OLD);\n\
    for (long page = 0; page < OLD; page++) fill(all, page);\n\
    usleep(300000);\n\
    uint64_t *some = map(NEW);\n\
    for (long page = 0; page < NEW; page++) fill(some, page);\n\
    usleep(50000);\n\
    pid_t child = fork();\n\
    if (child == 0) {\n\
        sleep(2);\n\
        long kept = present(some, NEW);\n\
        for (long page = 0; page < NEW; page++) if (!is_there(some, page)) _exit(1);\n\
        _exit(kept < NEW / 8 * 7 ? 0 : 2);\n\
    }\n\
    for (long page = 0; page < NEW; page++) some[page * 512 + 1] = page;\n\
    int status = 0;\n\
    return waitpid(child, &status, 0) != child ? 3 : status ? 4 + WEXITSTATUS(status) : 0;\n\
}\n";
    passes(NAME, BODY, &[&[]], 0..=72, "");
}

/// Executable memory, as compilers at run time have and Common Lisp's heap is, stayed where it was: the kernel
/// moves it only to memory that is executable as well.
#[test]
fn executable_memory_is_held_to_the_budget() {
    const NAME: &str = "extend_odd::executable_memory_is_held_to_the_budget";
    const BODY: &str = "\
int main(void) {\n\
    enum { PAGES = 160 * MIB, PART = 20 };\n\
    uint64_t *all = map(PAGES);\n\
    int write = PROT_READ | PROT_WRITE;\n\
    if (mprotect(all, PAGES / 2 * 4096l, write | PROT_EXEC)) return 77;\n\
    for (long page = 0; page < PAGES; page++) {\n\
        fill(all, page);\n\
        unsigned char code[] = { 0xb8, page, page >> 8, page >> 16, 0, 0xc3 };\n\
        memcpy(all + page * 512 + 1, code, sizeof code);\n\
    }\n\
    for (long at = 0; at < PAGES; at += 2 * PART)\n\
        if (mprotect(all + at * 512, PART * 4096, at < PAGES / 2 ? write : write | PROT_EXEC)) return 2;\n\
    for (long n = 0, page = 0; n < 2 * PAGES; n++, page = (page + 10007) % PAGES) {\n\
        if (!is_there(all, page)) return 8;\n\
        int executable = (page < PAGES / 2) != (page % (2 * PART) < PART);\n\
        #ifdef __x86_64__\n\
        if (executable && ((int (*)(void))(all + page * 512 + 1))() != page) return 9;\n\
        #endif\n\
        all[page * 512 + 1] += 0;\n\
    }\n\
    for (int tenth = 0; tenth < 100 && present(all, PAGES) > 72 * MIB; tenth++) usleep(100000);\n\
    return present(all, PAGES) > 72 * MIB ? 7 : 0;\n\
}\n";
    passes(NAME, BODY, &[&[]], 0..=96, "no memory may be both written to and executed");
}

/// It was ended, or had all addresses of the library filled with memory. Pages that were locked are touched
/// without a fault, so the program may be done before the engine has had its turn.
#[test]
fn a_program_may_lock_all_its_memory_and_unlock_it() {
    const NAME: &str = "extend_odd::a_program_may_lock_all_its_memory_and_unlock_it";
    const BODY: &str = "\
int main(void) {\n\
    enum { PAGES = 128 * MIB };\n\
    if (!may_lock()) return 77;\n\
    if (mlockall(MCL_CURRENT) || munlockall()) return 2;\n\
    uint64_t *all = map(PAGES);\n\
    for (long page = 0; page < PAGES; page++) fill(all, page);\n\
    for (long n = 0; n < PAGES; n++) if (!is_there(all, n * 10007 % PAGES)) return 8;\n\
    if (mlockall(MCL_CURRENT)) return 3;\n\
    for (long page = 0; page < PAGES; page++) if (!is_there(all, page)) return 4;\n\
    if (munlockall()) return 5;\n\
    for (int round = 0; round < 3; round++)\n\
        for (long page = 0; page < PAGES; page++) {\n\
            if (!is_there(all, page)) return 6;\n\
            all[page * 512 + 1] = word(page, 1);\n\
        }\n\
    for (int tenth = 0; tenth < 100 && present(all, PAGES) > 72 * MIB; tenth++) usleep(100000);\n\
    return present(all, PAGES) > 72 * MIB ? 7 : 0;\n\
}\n";
    passes(NAME, BODY, &[&[]], 0..=512, "this user may not lock memory");
}

/// It was ended when it locked its memory between the engine's unlocking the frames and giving them up.
#[test]
fn a_program_may_lock_all_its_memory_all_the_time() {
    const NAME: &str = "extend_odd::a_program_may_lock_all_its_memory_all_the_time";
    const BODY: &str = "\
#include <pthread.h>\n\
static volatile int is_done;\n\
static void *locks(void *none) {\n\
    while (!is_done) if (mlockall(MCL_CURRENT | MCL_ONFAULT)) return &is_done;\n\
    return none;\n\
}\n\
int main(void) {\n\
    enum { PAGES = 128 * MIB };\n\
    if (!may_lock()) return 77;\n\
    uint64_t *all = map(PAGES);\n\
    pthread_t thread;\n\
    void *failed = 0;\n\
    if (pthread_create(&thread, 0, locks, 0)) return 2;\n\
    for (long page = 0; page < PAGES; page++) fill(all, page);\n\
    for (long page = 0; page < PAGES; page++) if (!is_there(all, page)) return 3;\n\
    is_done = 1;\n\
    return pthread_join(thread, &failed) || failed ? 4 : 0;\n\
}\n";
    passes(NAME, BODY, &[&[]], ANY, "this user may not lock memory");
}

/// Its helper ended, or found no frame free, and the child kept all that it had.
#[test]
fn a_child_that_has_locked_all_its_memory_is_held_to_its_budget_again() {
    const NAME: &str = "extend_odd::a_child_that_has_locked_all_its_memory_is_held_to_its_budget_again";
    const BODY: &str = "\
enum { PAGES = 96 * MIB };\n\
static int is_above(uint64_t *all) {\n\
    for (int tenth = 0; tenth < 100 && present(all, PAGES) > 72 * MIB; tenth++) usleep(100000);\n\
    return present(all, PAGES) > 72 * MIB;\n\
}\n\
int main(void) {\n\
    if (!may_lock()) return 77;\n\
    uint64_t *all = map(PAGES);\n\
    for (long page = 0; page < PAGES; page++) fill(all, page);\n\
    pid_t child = fork();\n\
    if (child == 0) {\n\
        if (mlockall(MCL_CURRENT) || munlockall()) _exit(2);\n\
        for (long page = 0; page < PAGES; page++) fill(all, page);\n\
        if (is_above(all)) _exit(3);\n\
        for (long page = 0; page < PAGES; page++) if (!is_there(all, page)) _exit(4);\n\
        if (munmap(all, PAGES * 4096l) || mlockall(MCL_CURRENT)) _exit(5);\n\
        uint64_t *more = map(PAGES);\n\
        for (long page = 0; page < PAGES; page++) fill(more, page);\n\
        if (is_above(more)) _exit(6);\n\
        for (long page = 0; page < PAGES; page++) if (!is_there(more, page)) _exit(7);\n\
        _exit(0);\n\
    }\n\
    int status;\n\
    return waitpid(child, &status, 0) != child ? 8 : WEXITSTATUS(status) | WTERMSIG(status);\n\
}\n";
    passes(NAME, BODY, &[&[]], ANY, "this user may not lock memory");
}

/// What its helper could not open, nobody looked at: such a child kept all that it had.
#[test]
fn children_of_a_program_that_can_open_nothing_are_held_to_its_budget() {
    const NAME: &str = "extend_odd::children_of_a_program_that_can_open_nothing_are_held_to_its_budget";
    const LANDLOCK: &str = "\
static int restricts_itself(void) {\n\
    uint64_t handled[2] = { 0x1fff, 0 };\n\
    int rules = syscall(444, handled, 8, 0);\n\
    if (rules < 0) return 0;\n\
    int done = !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !syscall(446, rules, 0);\n\
    close(rules);\n\
    return done;\n\
}\n";
    const CHROOT: &str = "\
static int restricts_itself(void) {\n\
    char name[] = \"/tmp/empty-XXXXXX\";\n\
    return mkdtemp(name) && !chdir(name) && !rmdir(name) && !chroot(\".\");\n\
}\n";
    const BODY: &str = "\
int main(void) {\n\
    enum { OLD = 64 * MIB, NEW = 96 * MIB };\n\
    uint64_t *all = map(OLD);\n\
    for (long page = 0; page < OLD; page++) fill(all, page);\n\
    if (!restricts_itself()) return 77;\n\
    if (open(\"/proc/self/pagemap\", O_RDONLY) >= 0) return 2;\n\
    pid_t child = fork();\n\
    if (child == 0) {\n\
        uint64_t *more = map(NEW);\n\
        for (long page = 0; page < NEW; page++) fill(more, page);\n\
        for (long page = 0; page < OLD; page++) fill(all, page);\n\
        sleep(1);\n\
        unsigned char there[NEW];\n\
        long count = 0;\n\
        if (mincore(more, NEW * 4096l, there)) _exit(4);\n\
        for (long page = 0; page < NEW; page++) count += there[page] & 1;\n\
        if (count > 72 * MIB) _exit(5);\n\
        for (long page = 0; page < OLD; page++) if (!is_there(all, page)) _exit(6);\n\
        for (long page = 0; page < NEW; page++) if (!is_there(more, page)) _exit(7);\n\
        _exit(0);\n\
    }\n\
    int status;\n\
    return waitpid(child, &status, 0) != child ? 8 : WEXITSTATUS(status) | WTERMSIG(status);\n\
}\n";
    for (restriction, missing) in [(LANDLOCK, "no Landlock here"), (CHROOT, "this user may not chroot")] {
        let body = format!("#include <sys/prctl.h>\n{restriction}{BODY}");
        passes(NAME, &body, &[&[]], 48..=84, missing);
    }
}

/// From then on nothing new was held to the budget, and memory that had grown was waited for without end.
#[test]
fn a_program_that_can_open_nothing_any_more_is_held_to_its_budget() {
    const NAME: &str = "extend_odd::a_program_that_can_open_nothing_any_more_is_held_to_its_budget";
    const BODY: &str = "\
int main(void) {\n\
    enum { FIRST = 48 * MIB, MORE = 200 * MIB };\n\
    uint64_t *all = map(FIRST);\n\
    for (long page = 0; page < FIRST; page++) fill(all, page);\n\
    usleep(300000);\n\
    struct rlimit none = { 0, 0 };\n\
    if (setrlimit(RLIMIT_NOFILE, &none) || open(\"/dev/null\", O_RDONLY) >= 0) return 2;\n\
    all = mremap(all, FIRST * 4096l, (FIRST + MORE) * 4096l, MREMAP_MAYMOVE);\n\
    if (all == MAP_FAILED) return 3;\n\
    for (long page = FIRST; page < FIRST + MORE; page++) fill(all, page);\n\
    for (long page = 0; page < FIRST + MORE; page++) if (!is_there(all, page)) return 4;\n\
}\n";
    passes(NAME, BODY, &[&[]], 32..=96, "");
}

/// They stayed in place for ever.
#[test]
fn pages_that_a_child_shared_before_they_were_taken_over_go_when_they_are_cold() {
    const NAME: &str =
        "extend_odd::pages_that_a_child_shared_before_they_were_taken_over_go_when_they_are_cold";
    const BODY: &str = "\
int main(void) {\n\
    enum { OLD = 28 * MIB, NEW = 200 * MIB };\n\
    uint64_t *old = map(OLD), *more;\n\
    for (long page = 0; page < OLD; page++) fill(old, page);\n\
    int child = fork();\n\
    if (child == 0) _exit(0);\n\
    if (waitpid(child, 0, 0) != child) return 2;\n\
    more = map(NEW);\n\
    for (int round = 0; round < 4; round++) for (long page = 0; page < NEW; page++) fill(more, page);\n\
    if (present(old, OLD) > OLD / 2) return 3;\n\
    for (long page = 0; page < OLD; page++) if (!is_there(old, page)) return 4;\n\
}\n";
    passes(NAME, BODY, &[&[]], ANY, "");
}

/// The store had the number, and was replaced; pages were lost.
#[test]
fn a_program_that_is_started_without_standard_streams_loses_nothing() {
    const NAME: &str = "extend_odd::a_program_that_is_started_without_standard_streams_loses_nothing";
    const BODY: &str = "\
int main(void) {\n\
    enum { PAGES = 128 * MIB };\n\
    static char line[4096] __attribute__((aligned(4096)));\n\
    uint64_t *all = map(PAGES);\n\
    for (long page = 0; page < PAGES; page++) fill(all, page);\n\
    for (int stream = 0; stream < 3; stream++) if (fcntl(stream, F_GETFD) >= 0) write(stream, line, 4096);\n\
    for (int round = 0; round < 2; round++)\n\
        for (long page = 0; page < PAGES; page++) if (!is_there(all, page)) return 4;\n\
    int opened = open(\"/dev/null\", O_RDONLY);\n\
    return opened > 2 ? 5 : 0;\n\
}\n";
    let scripts =
        ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"].map(|closed| format!("exec \"$0\" {closed}"));
    let befores = scripts.each_ref().map(|script| ["sh", "-c", script.as_str()]);
    let befores = befores.each_ref().map(<[&str; 3]>::as_slice);
    passes(NAME, BODY, &befores, ANY, "");
}

/// The library's threads kept it open for as long as the program ran.
#[test]
fn who_waits_for_the_end_of_a_pipe_does_not_wait_for_the_library() {
    const NAME: &str = "extend_odd::who_waits_for_the_end_of_a_pipe_does_not_wait_for_the_library";
    const BODY: &str = "\
int main(int count, char **words) {\n\
    int ends[2];\n\
    if (count == 1) {\n\
        if (pipe(ends) || dup2(ends[1], 9) != 9) return 2;\n\
        close(ends[1]);\n\
        int child = fork();\n\
        if (child == 0) { execl(words[0], words[0], \"child\", (char *)0); _exit(3); }\n\
        close(9);\n\
        alarm(20);\n\
        char byte;\n\
        int got = read(ends[0], &byte, 1);\n\
        kill(child, SIGKILL);\n\
        waitpid(child, 0, 0);\n\
        return got == 0 ? 0 : 4;\n\
    }\n\
    close(9);\n\
    sleep(60);\n\
}\n";
    // It is ended by an alarm when the pipe does not end.
    passes(NAME, BODY, &[&[]], ANY, "");
}

/// The library's threads were left, and it never ended; nor was it held to its budget.
#[test]
fn a_program_whose_first_thread_ends_before_it_is_held_and_ends() {
    const NAME: &str = "extend_odd::a_program_whose_first_thread_ends_before_it_is_held_and_ends";
    const BODY: &str = "\
#include <pthread.h>\n\
static void at_end(void) { printf(\"and the end\"); }\n\
static void *rest(void *first) {\n\
    enum { PAGES = 128 * MIB };\n\
    pthread_join((pthread_t)first, 0);\n\
    uint64_t *all = map(PAGES);\n\
    for (long page = 0; page < PAGES; page++) fill(all, page);\n\
    for (long page = 0; page < PAGES; page++) if (!is_there(all, page)) return 0;\n\
    printf(\"all is there \");\n\
    return 0;\n\
}\n\
int main(void) {\n\
    pthread_t thread;\n\
    atexit(at_end);\n\
    if (pthread_create(&thread, 0, rest, (void *)pthread_self())) return 2;\n\
    pthread_detach(thread);\n\
    pthread_exit(0);\n\
}\n";
    const SAYS: &[&str] = &["sh", "-c", "test \"$(\"$0\"; echo :$?)\" = 'all is there and the end:0'"];
    passes(NAME, BODY, &[SAYS], 32..=96, "");
}

/// It went on for ever.
#[test]
fn a_program_whose_threads_end_in_the_kernels_way_ends_with_the_first_ones_code() {
    const NAME: &str =
        "extend_odd::a_program_whose_threads_end_in_the_kernels_way_ends_with_the_first_ones_code";
    const BODY: &str = "\
#include <pthread.h>\n#include <sys/syscall.h>\n\
static void at_end(void) { _exit(6); }\n\
static void *rest(void *none) { usleep(300000); syscall(SYS_exit, 7); return 0; }\n\
int main(int count, char **words) {\n\
    pthread_t thread;\n\
    alarm(60);\n\
    atexit(at_end);\n\
    if (count > 1 && pthread_create(&thread, 0, rest, 0)) return 2;\n\
    syscall(SYS_exit, 5);\n\
}\n";
    const ALONE: &[&str] = &["sh", "-c", "\"$0\"; test $? = 5"];
    const WITH_ANOTHER: &[&str] = &["sh", "-c", "\"$0\" two; test $? = 5"];
    passes(NAME, BODY, &[ALONE, WITH_ANOTHER], ANY, "");
}

/// It passed for one that has ended.
#[test]
fn a_program_whose_first_thread_has_ended_is_shown() {
    const NAME: &str = "extend_odd::a_program_whose_first_thread_has_ended_is_shown";
    const BODY: &str = "\
#include <pthread.h>\n\
static void *rest(void *none) { sleep(60); return 0; }\n\
int main(void) {\n\
    pthread_t thread;\n\
    if (pthread_create(&thread, 0, rest, 0)) return 2;\n\
    pthread_detach(thread);\n\
    pthread_exit(0);\n\
}\n";
    let status = concat!(env!("CARGO_BIN_EXE_overdrive"), " extend status --json");
    let is_shown = format!("{status} | grep -q \"\\\"pid\\\": $!,\"");
    let script = format!(
        "\"$0\" & for n in 1 2 3 4 5; do sleep 1; {is_shown} || continue; kill $!; wait; exit 0; done; kill $!; exit 3"
    );
    passes(NAME, BODY, &[&["sh", "-c", &script]], ANY, "");
}

/// The library's threads shared the program's directory: the kernel refused it.
#[test]
fn a_program_may_enter_another_mount_namespace() {
    const NAME: &str = "extend_odd::a_program_may_enter_another_mount_namespace";
    const BODY: &str = "\
#include <sched.h>\n\
int main(void) {\n\
    int ends[2];\n\
    char path[64], byte = 0;\n\
    alarm(60);\n\
    pipe(ends);\n\
    int child = fork();\n\
    if (child == 0) {\n\
        byte = unshare(CLONE_NEWNS) == 0;\n\
        write(ends[1], &byte, 1);\n\
        pause();\n\
    }\n\
    read(ends[0], &byte, 1);\n\
    sprintf(path, \"/proc/%d/ns/mnt\", child);\n\
    int entered = byte ? setns(open(path, O_RDONLY), CLONE_NEWNS) : -1;\n\
    kill(child, SIGKILL);\n\
    waitpid(child, 0, 0);\n\
    return byte ? entered ? 3 : 0 : 77;\n\
}\n";
    passes(NAME, BODY, &[&[]], ANY, "this user may have no mount namespace");
}

/// As MPI does between processes of one machine: who waits for the page is no thread of the program then.
#[test]
fn memory_that_another_process_reads_and_writes_is_brought_back() {
    const NAME: &str = "extend_odd::memory_that_another_process_reads_and_writes_is_brought_back";
    const BODY: &str = "\
#include <errno.h>\n\
#include <sys/uio.h>\n\
enum { PARTS = 192 };\n\
static uint64_t content(long page, int at) { return page % 3 ? word(page, at) : ~word(page, at); }\n\
static int other(int pid, uint64_t *all) {\n\
    static uint64_t part[MIB * 512];\n\
    for (long first = 0; first < PARTS * MIB; first += MIB) {\n\
        struct iovec here = { part, sizeof part }, its = { all + first * 512, sizeof part };\n\
        ssize_t got = process_vm_readv(pid, &here, 1, &its, 1, 0);\n\
        if (got < 0 && (errno == EPERM || errno == ENOSYS)) return 77;\n\
        if (got != sizeof part) return 2;\n\
        for (long page = 0; page < MIB; page++)\n\
            for (int at = 0; at < 512; at++) {\n\
                if (part[page * 512 + at] != word(first + page, at)) return 3;\n\
                part[page * 512 + at] = content(first + page, at);\n\
            }\n\
        if (process_vm_writev(pid, &here, 1, &its, 1, 0) != sizeof part) return 4;\n\
    }\n\
    return 0;\n\
}\n\
int main(int count, char **words) {\n\
    if (count == 3) return other(atoi(words[1]), (uint64_t *)strtoul(words[2], 0, 16));\n\
    uint64_t *all = map(PARTS * MIB);\n\
    for (long page = 0; page < PARTS * MIB; page++) fill(all, page);\n\
    char pid[32], address[32];\n\
    sprintf(pid, \"%d\", getpid());\n\
    sprintf(address, \"%lx\", (unsigned long)all);\n\
    int child = fork(), status = 0;\n\
    if (child == 0) { execl(words[0], words[0], pid, address, (char *)0); _exit(5); }\n\
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 6;\n\
    if (WEXITSTATUS(status)) return WEXITSTATUS(status);\n\
    for (long page = 0; page < PARTS * MIB; page++)\n\
        for (int at = 0; at < 512; at++) if (all[page * 512 + at] != content(page, at)) return 7;\n\
    return 0;\n\
}\n";
    passes(NAME, BODY, &[&[]], 48..=67, "no process may look at its parent's memory here");
}
