//! Programs that give up rights, and users who have none: held to the budget by what `overdrive extend` does for
//! them.

use crate::extend::{assert_empty, extend, ready};
use crate::extend_budget::build;
use crate::extend_children::with_whole;
use crate::extend_odd::COMMON;
use crate::support::{OrdinaryUser, read, skip};
use overdrive_sys::relay::effective_user;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// Goes to twice its budget, forks there, and finds all as it was, held in both processes. The first word says how
/// it gives up its rights: as another user, or in namespaces of its own, both of which execute it again, in a child
/// that becomes another user, or when it is that large already.
const BODY: &str = "\
#include <sched.h>\n#include <sys/stat.h>\n#include <sys/syscall.h>\n\
enum { OLD = 128 * MIB, NEW = 64 * MIB, BUDGET = 64 * MIB };\n\
static long in_core(uint64_t *all, long pages) {\n\
    static unsigned char there[OLD];\n\
    long count = 0;\n\
    if (mincore(all, pages * 4096, there)) _exit(20);\n\
    for (long page = 0; page < pages; page++) count += there[page] & 1;\n\
    return count;\n\
}\n\
/* An engine that is just there, or a helper, may be behind where processors are busy. */\n\
static int is_held(uint64_t *all, uint64_t *more) {\n\
    for (int n = 0; in_core(all, OLD) + (more ? in_core(more, NEW) : 0) > BUDGET; n++)\n\
        if (n == 100) return 0; else usleep(100000);\n\
    return 1;\n\
}\n\
static int becomes_nobody(void) { return setgid(65534) || setuid(65534); }\n\
static int held(int becomes) {\n\
    uint64_t *all = map(OLD);\n\
    for (long page = 0; page < OLD; page++) fill(all, page);\n\
    if (!is_held(all, 0)) return 22;\n\
    if (becomes && becomes_nobody()) return 27;\n\
    int child = fork();\n\
    if (child == 0) {\n\
        uint64_t *more = map(NEW);\n\
        for (long page = 0; page < NEW; page++) fill(more, page);\n\
        for (long page = 0; page < OLD; page++) if (!is_there(all, page)) _exit(23);\n\
        for (long page = 0; page < NEW; page++) if (!is_there(more, page)) _exit(24);\n\
        _exit(is_held(all, more) ? 0 : 25);\n\
    }\n\
    for (long page = 0; page < OLD; page++) if (!is_there(all, page)) return 26;\n\
    return ended(child);\n\
}\n\
int main(int words, char **word) {\n\
    char *way = words > 1 ? word[1] : \"\";\n\
    if (words > 3 && unshare(CLONE_NEWNET)) return 77;\n\
    if (words > 2) closefrom(3);\n\
    if (!strcmp(way, \"child\")) {\n\
        int child = fork();\n\
        if (child == 0) return becomes_nobody() ? 30 : held(0);\n\
        return ended(child);\n\
    }\n\
    if (!strcmp(way, \"user\") && becomes_nobody()) return 31;\n\
    if (!strcmp(way, \"namespaces\") && unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC)) return 77;\n\
    if (!strcmp(way, \"grown\")) return held(1);\n\
    if (*way) { execl(word[0], word[0], NULL); return 32; }\n\
    return held(0);\n\
}\n";

/// `overdrive` and its library where another user reaches them, with a program to run.
fn place(name: &str) -> Option<(OrdinaryUser, PathBuf)> {
    let user = OrdinaryUser::at_hand(name)?;
    user.take_library();
    let program = build(user.place.path(), &source(), &["-O1", "-w"]).expect("built");
    Some((user, program))
}

/// The program.
pub(crate) fn source() -> String {
    format!("{COMMON}{}", with_whole(BODY))
}

const LIMITS: [&str; 5] = ["--quiet", "--backend", "pager", "--dram", "64MiB"];

#[test]
fn who_gives_up_rights_is_held_to_the_budget() {
    const NAME: &str = "extend_rights::who_gives_up_rights_is_held_to_the_budget";
    let Some((store, _, _swap_is_off)) = ready(NAME, "cc") else { return };
    let Some((user, program)) = place(NAME) else { return };
    let run = |more: &[&str], words: &[&str]| {
        let mut run = Command::new(user.place.path().join("overdrive"));
        run.arg("extend").args(LIMITS).args(more).arg("--store").arg(store.path());
        read(&run.arg("--").arg(&program).args(words).output().unwrap())
    };
    for (more, way) in [
        (&[][..], &["child"][..]),
        (&[], &["grown"]),
        (&[], &["user"]),
        (&[], &["child", "closes"]),
        (&[], &["user", "closes"]),
        (&["--apart"], &["child"]),
        (&["--apart"], &["grown"]),
        (&["--apart"], &["user"]),
        (&["--apart"], &["namespaces"]),
        (&["--apart"], &["user", "closes"]),
    ] {
        let (code, out, error) = run(more, way);
        if code == 77 {
            return skip(NAME, "no namespaces can be made here");
        }
        assert_eq!((code, out, error), (0, String::new(), String::new()), "{way:?} {more:?}");
    }
    // Who has closed what it was to ask by where the broker's name is not seen gets nothing, and is told so.
    let (code, _, error) = run(&[], &["user", "closes", "network"]);
    assert!(
        code == 2 && error.contains("changed its user") && error.contains("descriptors"),
        "{code}: {error}"
    );
    let (code, _, error) = run(&[], &["child", "closes", "network"]);
    assert!(code == 22 && error.contains("which was forked, has no limit: "), "{code}: {error}");
    assert!(error.contains("wanted --apart "), "{error}");
    assert_empty(store.path());
}

/// The C library ended the one, as its threads had different rights, and the kernel refused the other one's wish.
#[test]
fn engines_stand_apart_from_what_bears_no_threads_beside_its_own() {
    const NAME: &str = "extend_rights::engines_stand_apart_from_what_bears_no_threads_beside_its_own";
    let Some((store, _, _swap_is_off)) = ready(NAME, "setpriv") else { return };
    let Some((user, program)) = place(NAME) else { return };
    for before in [
        &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"][..],
        &["unshare", "--user", "--map-root-user"],
    ] {
        let mut run = Command::new(user.place.path().join("overdrive"));
        run.arg("extend").args(&LIMITS[1..]).arg("--store").arg(store.path());
        let (code, out, error) = read(&run.arg("--").args(before).arg(&program).output().unwrap());
        assert_eq!((code, out.as_str()), (0, ""), "{before:?}: {error}");
        let line = format!("engines stand apart (--apart): {} bears", before[0]);
        assert!(error.contains(&line) && error.lines().count() == 4, "{error}");
    }
    assert_empty(store.path());
}

/// Both are number 1 where they are. They had one file of counters, and the name of whoever is number 1 outside.
#[test]
fn programs_in_pid_namespaces_are_shown_by_their_numbers_outside() {
    const NAME: &str = "extend_rights::programs_in_pid_namespaces_are_shown_by_their_numbers_outside";
    const TWO: &str = "\
unshare --pid --fork sleep 0.5 & first=$!\n\
unshare --pid --fork sleep 0.5 & wait $first && wait $!";
    let Some((store, place, _swap_is_off)) = ready(NAME, "unshare") else { return };
    if effective_user() != 0 {
        return skip(NAME, "needs root");
    }
    let stats = place.path().join("stats.json");
    for more in [&[][..], &["--apart"]] {
        let arguments = [&LIMITS[..], &["--stats", stats.to_str().unwrap()], more].concat();
        let (code, _, error) = extend(&arguments, store.path(), &["sh", "-c", TWO]);
        assert_eq!((code, error.as_str()), (0, ""));
        let found: Value = serde_json::from_slice(&std::fs::read(&stats).unwrap()).unwrap();
        let processes = found["processes"].as_array().unwrap().iter();
        let sleeping: Vec<_> = processes.filter(|process| process["program"] == "sleep").collect();
        assert_eq!(sleeping.len(), 2, "{found}");
        assert!(sleeping.iter().all(|process| process["pid"].as_u64() > Some(1)), "{sleeping:?}");
    }
    assert_empty(store.path());
}

/// By a capability of the file, which the programs that are run do not get.
#[test]
fn an_ordinary_user_pages_where_the_file_may_follow_forks() {
    const NAME: &str = "extend_rights::an_ordinary_user_pages_where_the_file_may_follow_forks";
    let Some((_, _, _swap_is_off)) = ready(NAME, "setcap") else { return };
    let Some((user, program)) = place(NAME) else { return };
    let store = user.place.path().join("store");
    std::fs::create_dir(&store).unwrap();
    std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o777)).unwrap();
    let given =
        Command::new("setcap").arg("cap_sys_ptrace+ep").arg(user.place.path().join("overdrive")).output();
    if !given.is_ok_and(|given| given.status.success()) {
        return skip(NAME, "this file system keeps no capabilities");
    }
    let sysctl = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
    if sysctl.trim() != "0"
        || std::fs::metadata("/dev/userfaultfd").is_ok_and(|it| it.permissions().mode() & 6 != 0)
    {
        return skip(NAME, "everybody may have a userfaultfd here");
    }
    // A device that everybody may open, for the processes of this command alone.
    const OPENED: &str = "\
set -- $(stat -c '0x%t 0x%T' /dev/userfaultfd) \"$@\" && mknod -m 666 \"$0/device\" c $1 $2 && shift 2 &&\n\
mount --bind \"$0/device\" /dev/userfaultfd && rm \"$0/device\" || exit 77\n\
exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"";
    let run = |before: &[&str], more: &[&str]| {
        let mut run = Command::new(before[0]);
        run.args(&before[1..]).arg(user.place.path().join("overdrive"));
        run.arg("extend").args(LIMITS).args(more).arg("--store").arg(&store);
        // What is executed by who has closed what it does not know, as most do that start programs.
        read(&run.arg("--").arg(&program).args(["same", "closes"]).output().unwrap())
    };
    let (code, _, error) = run(&["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"], &[]);
    assert_eq!((code, error.lines().count()), (2, 1), "{error}");
    assert!(error.contains("wanted read and write access to /dev/userfaultfd"), "{error}");
    let place = user.place.path().to_str().unwrap();
    for more in [&[][..], &["--apart"]] {
        let (code, out, error) = run(&["unshare", "--mount", "sh", "-c", OPENED, place], more);
        if code == 77 {
            return skip(NAME, &format!("no other device can be put there: {}", error.trim()));
        }
        assert_eq!((code, out, error), (0, String::new(), String::new()), "{more:?}");
    }
    assert_empty(&store);
}
