//! A program that does to its memory all that programs do, under libovermem.so, and checks every page: nothing may
//! be lost, whatever the mix. It runs itself again with the library preloaded. By seed: `OVERDRIVE_TORTURE_SEED`,
//! `OVERDRIVE_TORTURE_SECONDS`, `OVERDRIVE_TORTURE_FAIL` (as `fail=` of `OVERDRIVE_EXTEND`) for long runs.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

mod memory;
#[path = "../support/mod.rs"]
mod support;
mod worker;

use memory::{Area, PAGE, check};
use overdrive_pager::stats::Stat;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{has_userfault, library, stats};

const ROLE: &str = "OVERDRIVE_TORTURE_ROLE";
/// Where the program may leave notes.
const DIR: &str = "OVERDRIVE_TORTURE_DIR";
const THREADS: u64 = 3;
/// More than there are processors for: some stop between doing and telling.
const MOVERS: u64 = 8;
/// Puts the engine into processes apart.
const APART: &str = ",apart=yes";
const BUDGET: u64 = 32 << 20;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// This program again, in a role, with the library. `None` where the kernel does not permit it.
fn start(name: &str, role: &str, dir: &Path, more: &str) -> Option<Child> {
    command(name, role, dir, more).map(|mut command| command.spawn().unwrap())
}

fn command(name: &str, role: &str, dir: &Path, more: &str) -> Option<Command> {
    if !has_userfault(name) {
        return None;
    }
    let setup = format!("budget={BUDGET},store_bytes={},dir={}{more}", 1u64 << 30, dir.display());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "role", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(DIR, dir)
        .env("LD_PRELOAD", library())
        .env("OVERDRIVE_EXTEND", setup)
        // Its own sums are not part of ours; a panic is told on standard error.
        .stdout(std::process::Stdio::null());
    Some(command)
}

/// How it ended. A program that hangs is shown and stopped.
fn wait(mut child: Child, limit: Duration) -> ExitStatus {
    let began = Instant::now();
    while began.elapsed() < limit {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    for task in tasks.flatten() {
        let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        eprintln!("hangs: {} {} {}", read("comm").trim(), read("wchan"), read("syscall").trim());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("the program hung for {limit:?}");
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn nothing_is_lost() {
    let fail = std::env::var("OVERDRIVE_TORTURE_FAIL")
        .map_or(String::new(), |fail| format!(",compress=off,fail={fail}"));
    nothing_is_lost_with("nothing_is_lost", &fail);
}

#[test]
fn nothing_is_lost_on_an_encrypted_store_behind_smaller_pages() {
    let name = "nothing_is_lost_on_an_encrypted_store_behind_smaller_pages";
    nothing_is_lost_with(name, ",compress=zstd,encrypt=yes");
}

#[test]
fn nothing_is_lost_beside_an_engine_in_processes_apart() {
    nothing_is_lost_with("nothing_is_lost_beside_an_engine_in_processes_apart", APART);
}

#[test]
fn nothing_is_lost_where_memory_moves_to_where_other_memory_just_was() {
    let name = "nothing_is_lost_where_memory_moves_to_where_other_memory_just_was";
    let dir = scratch();
    let seconds = number("OVERDRIVE_TORTURE_SECONDS", 10);
    let Some(child) = start(name, "movers", dir.path(), "") else { return };
    let pid = child.id();
    let status = wait(child, Duration::from_secs(seconds + 120));
    assert!(status.success(), "{status}");
    let stats = stats(dir.path(), pid);
    assert!(stats.get(Stat::Evicted) > 1000 && stats.get(Stat::Loads) > 100, "the pager had nothing to do");
    assert_eq!(stats.get(Stat::Lost), 0);
}

fn nothing_is_lost_with(name: &str, more: &str) {
    let dir = scratch();
    let seconds = number("OVERDRIVE_TORTURE_SECONDS", 10);
    let Some(child) = start(name, "torture", dir.path(), more) else { return };
    let pid = child.id();
    let status = wait(child, Duration::from_secs(seconds + 120));
    let stats = stats(dir.path(), pid);
    let told = [Stat::Evicted, Stat::Loads, Stat::Rescues, Stat::Expands, Stat::Written, Stat::StoreErrors];
    for stat in told.into_iter().chain([Stat::Faults]) {
        eprintln!("torture: {} {}", stat.name(), stats.get(stat));
    }
    assert!(status.success(), "{status}");
    assert!(stats.get(Stat::Evicted) > 1000 && stats.get(Stat::Loads) > 100, "the pager had nothing to do");
    let compresses = !more.contains("compress=off");
    assert!(!compresses || stats.get(Stat::Expands) > 100, "nothing was compressed");
    assert_eq!(stats.get(Stat::Lost), 0);
}

#[test]
fn transient_failures_of_the_store_lose_nothing() {
    let dir = scratch();
    let name = "transient_failures_of_the_store_lose_nothing";
    let Some(child) = start(name, "failing", dir.path(), ",compress=off,fail=3:20000:200000:0") else {
        return;
    };
    let pid = child.id();
    assert!(wait(child, Duration::from_secs(120)).success());
    let stats = stats(dir.path(), pid);
    assert!(stats.get(Stat::StoreErrors) > 10, "nothing failed");
    assert_eq!(stats.get(Stat::Lost), 0);
}

#[test]
fn a_lost_page_is_sigbus_where_it_is_touched_and_never_zeroes() {
    let dir = scratch();
    let name = "a_lost_page_is_sigbus_where_it_is_touched_and_never_zeroes";
    let Some(child) = start(name, "lost", dir.path(), ",compress=off,fail=5:0:0:1000") else { return };
    let pid = child.id();
    let status = wait(child, Duration::from_secs(120));
    assert!(status.success(), "{status}");
    assert!(stats(dir.path(), pid).get(Stat::Lost) > 0);
}

#[test]
fn a_store_that_takes_nothing_leaves_the_program_running() {
    let dir = scratch();
    let name = "a_store_that_takes_nothing_leaves_the_program_running";
    let Some(child) = start(name, "failing", dir.path(), ",compress=off,fail=9:0:1000000:0") else { return };
    let pid = child.id();
    assert!(wait(child, Duration::from_secs(120)).success());
    let stats = stats(dir.path(), pid);
    assert_eq!((stats.get(Stat::Written), stats.get(Stat::Lost)), (0, 0));
}

#[test]
fn a_program_without_its_engine_is_stopped_and_leaves_nothing() {
    let name = "a_program_without_its_engine_is_stopped_and_leaves_nothing";
    let ways = [("failing", 500, ""), ("failing abroad", 5000, ""), ("failing", 500, APART)];
    for (role, reads, apart) in ways {
        let dir = scratch();
        let more = format!(",compress=off,fail=1:0:0:0:{reads}{apart}");
        let Some(child) = start(name, role, dir.path(), &more) else { return };
        let pid = child.id();
        let status = wait(child, Duration::from_secs(120));
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(signal, Some(libc::SIGKILL), "{role}: {status}");
        let left: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [std::ffi::OsString::from(format!("{pid}.stats"))], "the store has no name");
    }
}

/// Its last line would have been waited for: it went on without an engine, and its threads hung.
#[test]
fn a_program_without_its_engine_is_stopped_when_nobody_reads_what_it_says() {
    let dir = scratch();
    let name = "a_program_without_its_engine_is_stopped_when_nobody_reads_what_it_says";
    let Some(mut command) = command(name, "failing", dir.path(), ",compress=off,fail=1:0:0:0:500") else {
        return;
    };
    let (_reader, mut full) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while full.write(&[0; 4096]).is_ok() {}
    full.set_nonblocking(false).unwrap();
    let child = command.stderr(std::os::fd::OwnedFd::from(full)).spawn().unwrap();
    let status = wait(child, Duration::from_secs(120));
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL), "{status}");
}

/// The kernel spares such a process its own SIGKILL: it went on, and read zeroes.
#[test]
fn the_first_process_of_a_pid_namespace_is_stopped_without_its_engine_too() {
    let dir = scratch();
    let name = "the_first_process_of_a_pid_namespace_is_stopped_without_its_engine_too";
    // SAFETY: only returns a number.
    if !has_userfault(name) || unsafe { libc::geteuid() } != 0 {
        return support::skip(name, "needs root and userfaultfd");
    }
    // Apart it would be one that nobody in its namespace can end: it is not put there.
    let settings = format!(
        "budget={BUDGET},store_bytes={},dir={},compress=off{APART}",
        1u64 << 30,
        dir.path().display()
    );
    let child = Command::new("unshare")
        .args(["--pid", "--fork", "env", &format!("LD_PRELOAD={}", library().display())])
        .arg(format!("OVERDRIVE_EXTEND={settings},fail=1:0:0:0:500"))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "role", "--nocapture", "--test-threads=1"])
        .envs([(ROLE, OsStr::new("failing")), (DIR, dir.path().as_os_str())])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let status = wait(child, Duration::from_secs(120));
    assert_eq!(status.code(), Some(128 + libc::SIGKILL), "{status}");
    assert!(dir.path().join("1.stats").exists(), "it was not the first");
}

#[test]
fn a_program_may_close_descriptors_that_it_does_not_know() {
    let dir = scratch();
    let name = "a_program_may_close_descriptors_that_it_does_not_know";
    for apart in ["", APART] {
        let Some(child) = start(name, "closing", dir.path(), &format!(",compress=off{apart}")) else {
            return;
        };
        let pid = child.id();
        assert!(wait(child, Duration::from_secs(120)).success());
        assert!(stats(dir.path(), pid).get(Stat::ReadAheadUsed) > 1000);
    }
}

#[test]
fn memory_in_small_pieces_of_two_kinds_is_evicted_all_the_same() {
    let dir = scratch();
    let name = "memory_in_small_pieces_of_two_kinds_is_evicted_all_the_same";
    let Some(child) = start(name, "pieces", dir.path(), "") else { return };
    assert!(wait(child, Duration::from_secs(120)).success());
}

#[test]
fn memory_given_up_that_the_kernel_drops_at_any_time_holds_nobody_up() {
    let dir = scratch();
    let name = "memory_given_up_that_the_kernel_drops_at_any_time_holds_nobody_up";
    for compress in ["off", "lz4"] {
        let Some(child) = start(name, "dropped", dir.path(), &format!(",compress={compress}")) else {
            return;
        };
        let status = wait(child, Duration::from_secs(240));
        assert!(status.success(), "{compress}: {status}");
    }
}

#[test]
fn children_of_any_thread_end_with_the_program_and_see_no_zeroes() {
    let dir = scratch();
    let name = "children_of_any_thread_end_with_the_program_and_see_no_zeroes";
    let Some(child) = start(name, "orphans", dir.path(), "") else { return };
    let status = wait(child, Duration::from_secs(120));
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL), "{status}");
    ["child", "grandchild"].iter().for_each(|note| assert_ends(&dir.path().join(note)));
    let wrong = std::fs::read_to_string(dir.path().join("wrong"));
    assert!(wrong.is_err(), "{wrong:?}");
}

/// A child, and its own child, that read and change memory for three times the budget: each holds little more than
/// the pages it shares, and has what it should.
#[test]
fn what_children_bring_back_is_held_to_the_budget() {
    ends_well("what_children_bring_back_is_held_to_the_budget", "held");
}

/// A child that only waits shares what its parent had in place: that goes as other memory does, and comes back
/// to the child as it was.
#[test]
fn what_a_child_shares_does_not_stay_in_place() {
    ends_well("what_a_child_shares_does_not_stay_in_place", "shared");
}

/// The same with several children, of which none can give up what another has too.
#[test]
fn what_several_children_share_does_not_stay_in_place() {
    ends_well("what_several_children_share_does_not_stay_in_place", "shared by several");
}

/// A child that goes through the same pages again and again while its parent waits for it has room for them,
/// and the parent has its own back when it needs it.
#[test]
fn who_waits_for_a_child_lends_it_memory() {
    ends_well("who_waits_for_a_child_lends_it_memory", "lends");
}

/// The program ends well in this role, without the compressed tier and with it.
fn ends_well(name: &str, role: &str) {
    let dir = scratch();
    for compress in ["off", "auto"] {
        let Some(child) = start(name, role, dir.path(), &format!(",compress={compress}")) else { return };
        let status = wait(child, Duration::from_secs(240));
        assert!(status.success(), "{compress}: {status}");
    }
}

/// A process ends whose number is in this note.
fn assert_ends(note: &Path) {
    let pid = std::fs::read_to_string(note).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while runs(&pid) {
        assert!(Instant::now() < end, "{} lives on", note.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A fork waits for locks of the C library. It was taken for one from before, and lived on.
#[test]
fn a_child_ends_with_the_program_when_memory_was_taken_over_while_the_fork_waited() {
    let dir = scratch();
    let name = "a_child_ends_with_the_program_when_memory_was_taken_over_while_the_fork_waited";
    let Some(child) = start(name, "slow fork", dir.path(), "") else { return };
    let status = wait(child, Duration::from_secs(120));
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL), "{status}");
    assert_ends(&dir.path().join("child"));
}

/// Of each the engine keeps tables: it had no addresses left for those of the 29th, and the program was ended.
#[test]
fn many_children_of_a_program_with_many_addresses_are_served() {
    let dir = scratch();
    let name = "many_children_of_a_program_with_many_addresses_are_served";
    let Some(addresses) = many_addresses() else {
        return support::skip(name, "the kernel does not let a program have 64 GiB of addresses");
    };
    // SAFETY: mapped there just now, and nobody uses it.
    unsafe { libc::munmap(addresses, MANY_ADDRESSES) };
    let Some(child) = start(name, "crowd", dir.path(), "") else { return };
    let status = wait(child, Duration::from_secs(120));
    assert!(status.success(), "{status}");
}

#[test]
fn any_thread_may_make_the_process_another_program() {
    let dir = scratch();
    let name = "any_thread_may_make_the_process_another_program";
    for _ in 0..5 {
        let Some(child) = start(name, "exec", dir.path(), "") else { return };
        let status = wait(child, Duration::from_secs(120));
        assert!(status.success(), "{status}");
    }
}

#[test]
fn threads_that_end_are_told_of_whatever_was_pressed_out() {
    let dir = scratch();
    let name = "threads_that_end_are_told_of_whatever_was_pressed_out";
    // Else the kernel would write to the thread's block whenever it lets it run.
    let tunables = ("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
    for (role, compress) in [("ends", "off"), ("ends", "auto"), ("child ends", "off"), ("child ends", "auto")]
    {
        let more = format!(",compress={compress}");
        let Some(mut command) = command(name, role, dir.path(), &more) else { return };
        let child = command.env(tunables.0, tunables.1).spawn().unwrap();
        let status = wait(child, Duration::from_secs(120));
        assert!(status.success(), "{role}, {compress}: {status}");
    }
}

/// Not a test by itself: what the program started by the others does.
#[test]
fn role() {
    match std::env::var(ROLE).as_deref() {
        Ok("torture") => torture(THREADS, worker::Worker::step),
        Ok("movers") => torture(MOVERS, worker::Worker::move_about),
        Ok("failing") => assert_eq!(fill_and_check().1, [0; 0]),
        Ok("failing abroad") => fail_abroad(),
        Ok("lost") => lose(),
        Ok("closing") => close_all_and_check(),
        Ok("pieces") => fill_in_pieces(),
        Ok("orphans") => leave_orphans(),
        Ok("held") => hold_children(),
        Ok("shared") => share_with_children(1),
        Ok("shared by several") => share_with_children(3),
        Ok("lends") => lend_to_a_child(),
        Ok("crowd") => have_many_children(),
        Ok("slow fork") => fork_slowly(),
        Ok("dropped") => give_up_and_go_on(),
        Ok("ends") => end_threads(),
        Ok("child ends") => end_threads_of_a_child(),
        Ok("exec") => become_another_program_by_a_thread(),
        _ => {}
    }
}

fn torture(threads: u64, step: fn(&mut worker::Worker)) {
    let seed = number("OVERDRIVE_TORTURE_SEED", 1);
    let seconds = number("OVERDRIVE_TORTURE_SECONDS", 10);
    eprintln!("torture: seed {seed}, {seconds} s");
    worker::install_handler();
    let end = Instant::now() + Duration::from_secs(seconds);
    let threads: Vec<_> = (0..threads)
        .map(|index| {
            std::thread::spawn(move || {
                let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
                let mut worker = worker::Worker::new(seed, index + 1, &dir);
                while Instant::now() < end {
                    step(&mut worker);
                }
                worker.finish();
                worker.steps
            })
        })
        .collect();
    let steps: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    eprintln!("torture: {steps} steps");
}

/// Twice the budget, each page written, checked, changed and checked again. Returns which pages were lost.
/// The program itself is exempt from what happens to its pages: it stays in place, and looks at them only
/// through the kernel, which says EFAULT where it would get SIGBUS.
fn fill_and_check() -> (Area, Vec<usize>) {
    let mut area = Area::new(2 * BUDGET as usize / PAGE);
    let mut through = UnixStream::pair().unwrap();
    let (mut found, mut readable) = (vec![0; PAGE], vec![true; area.len()]);
    stay_in_place(&raw const found[0]);
    stay_in_place(area.pages.as_ptr().cast());
    stay_in_place(readable.as_ptr().cast());
    stay_in_place((&raw const found).cast());
    // Should one of these be the area's neighbour in the same mapping.
    area.lock(0, area.len(), false).unwrap();
    (0..area.len()).for_each(|page| area.write(page, page as u64 + 1));
    for round in 2..4u64 {
        #[allow(clippy::needless_range_loop, reason = "the page number is what it is about")]
        for page in 0..area.len() {
            readable[page] &= carry(&mut through, area.bytes(page, 1), &mut found);
            if readable[page] {
                area.compare(page, &found).unwrap();
            }
            if readable[page] && page % 3 == 0 {
                readable[page] = carry(&mut through, &round.to_ne_bytes(), &mut area.bytes(page, 1)[..8]);
                area.pages[page].stamp = round;
            }
        }
    }
    let lost = (0..area.len()).filter(|&page| !readable[page]).collect();
    (area, lost)
}

/// In a program with a locale the C library looks into its environment, which is large and has to go, for the
/// words of an error: an engine that asks it for these waits for itself.
fn fail_abroad() {
    // SAFETY: nothing else runs that looks at either.
    unsafe {
        libc::setlocale(libc::LC_ALL, c"C.UTF-8".as_ptr());
        (0..6000).for_each(|number| std::env::set_var(format!("ABROAD_{number}"), "x".repeat(200)));
    }
    let mut area = Area::new(4 * BUDGET as usize / PAGE);
    (0..area.len()).for_each(|page| area.write(page, page as u64 + 1));
    loop {
        area.check_all().unwrap();
    }
}

/// Twice the budget, of which every eighth page can only be read: the others, in pieces of seven, can go.
fn fill_in_pieces() {
    let mut area = Area::new(2 * BUDGET as usize / PAGE);
    (0..area.len()).for_each(|page| area.write(page, page as u64 + 1));
    area.check_all().unwrap();
    for page in (0..area.len()).step_by(8) {
        area.protect(page, 1, libc::PROT_READ).unwrap();
    }
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        area.check_all().unwrap();
        let held = overdrive_sys::page_map::PageMap::open().and_then(|map| map.anonymous_pages()).unwrap();
        if held < (BUDGET + BUDGET / 8) / PAGE as u64 {
            return;
        }
        assert!(Instant::now() < end, "{held} pages are held");
    }
}

/// Gives memory up by MADV_FREE and presses it out with other memory, while the kernel is asked to drop what it may
/// from the engine's frames: a page has its content or zeroes, and nobody waits for ever.
fn give_up_and_go_on() {
    let (over, budget) = (AtomicBool::new(false), BUDGET as usize / PAGE);
    let (mut given, mut other) = (Area::new(budget / 2), Area::new(budget + budget / 4));
    let own = given.at(0) as u64..given.at(given.len()) as u64;
    let maps = overdrive_sys::mappings::Mappings::open().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                maps.for_each_anonymous(0..u64::MAX, |mapping| {
                    let (start, length) = (mapping.range.start, mapping.range.end - mapping.range.start);
                    if mapping.range.contains(&own.start) || own.contains(&start) {
                        return;
                    }
                    // SAFETY: the advice changes no content, except of memory that was given up.
                    unsafe { libc::madvise(start as *mut _, length as usize, libc::MADV_PAGEOUT) };
                })
                .unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for round in 1..3u64 {
            // Of two kinds: every other one compresses.
            let version = |page: usize| round << 32 | (page as u64 + 1) << (page % 2 * 8);
            (0..given.len()).for_each(|page| given.write(page, version(page)));
            given.advise(0, given.len(), libc::MADV_FREE).unwrap();
            given.pages.iter_mut().for_each(|page| page.freed = true);
            // For two seconds the engine leaves it where it is.
            let end = Instant::now() + Duration::from_millis(2500);
            while Instant::now() < end {
                (0..other.len()).for_each(|page| other.write(page, version(page)));
            }
            given.check_all().unwrap();
            other.check_all().unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
}

/// Whether there is such a process, and it has not ended.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Memory comes while a thread forks, which waits for one that flushes all files into a pipe that is full.
fn fork_slowly() {
    let note = PathBuf::from(std::env::var_os(DIR).unwrap()).join("child");
    let (mut reader, mut writer) = UnixStream::pair().unwrap();
    writer.set_nonblocking(true).unwrap();
    while writer.write(&[0; 4096]).is_ok() {}
    writer.set_nonblocking(false).unwrap();
    // SAFETY: a file of the C library's on an open descriptor, with a byte that is yet to be written.
    unsafe { libc::fputc(1, libc::fdopen(writer.as_raw_fd(), c"w".as_ptr())) };
    std::thread::spawn(|| {
        // SAFETY: flushes that file, and holds the list of all while it waits.
        unsafe { libc::fflush(std::ptr::null_mut()) }
    });
    std::thread::sleep(Duration::from_millis(300));
    let of_child = note.clone();
    let forks = std::thread::spawn(move || {
        // SAFETY: the child writes its number down and waits for its end.
        if unsafe { libc::fork() } == 0 {
            std::fs::write(of_child, std::process::id().to_string()).unwrap();
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    });
    std::thread::sleep(Duration::from_millis(300));
    let mut area = Area::new(2 * BUDGET as usize / PAGE);
    (0..area.len()).for_each(|page| area.write(page, page as u64 + 1));
    assert!(!note.exists(), "the fork did not wait");
    reader.set_nonblocking(true).unwrap();
    while !forks.is_finished() {
        // What is not there yet is read the next time.
        let _ = reader.read(&mut [0; 4096]);
    }
    while std::fs::read_to_string(&note).unwrap_or_default().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: ends this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

const MANY_ADDRESSES: usize = 64 << 30;

/// None where the kernel counts what may be written to (vm.overcommit_memory=2), and has no more.
fn many_addresses() -> Option<*mut libc::c_void> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new memory where the kernel likes, which nobody touches.
    let addresses = unsafe { libc::mmap(std::ptr::null_mut(), MANY_ADDRESSES, access, flags, -1, 0) };
    (addresses != libc::MAP_FAILED).then_some(addresses)
}

/// Sixty children at a time of a program that has 64 GiB of addresses and uses few of them.
fn have_many_children() {
    assert!(many_addresses().is_some());
    let mut area = Area::new(BUDGET as usize / PAGE);
    (0..area.len()).for_each(|page| area.write(page, page as u64 + 1));
    std::thread::sleep(Duration::from_millis(500));
    let children: Vec<libc::pid_t> = (0..60)
        .map(|_| {
            // SAFETY: the child only waits for its end.
            let child = unsafe { libc::fork() };
            if child == 0 {
                loop {
                    // SAFETY: as above.
                    unsafe { libc::pause() };
                }
            }
            assert!(child > 0, "{}", std::io::Error::last_os_error());
            child
        })
        .collect();
    area.check_all().unwrap();
    for child in children {
        // SAFETY: a child of this process, which nobody else asks about.
        let ended = unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0)
        };
        assert_eq!(ended, child);
    }
}

/// Three times the budget, filled. It is known that children need helpers.
fn area_for_children() -> Area {
    let mut area = Area::new(3 * BUDGET as usize / PAGE);
    (0..area.len()).for_each(|page| area.write(page, page as u64 + 1));
    std::thread::sleep(Duration::from_millis(200));
    area
}

/// Each child ends with a code of its own for what is wrong.
fn hold_children() {
    let mut area = area_for_children();
    // SAFETY: the children call what is safe after a fork of this C library, and end by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut code = look_at_all(&mut area);
        // SAFETY: as above.
        let own = unsafe { libc::fork() };
        if own == 0 {
            let code = look_at_all(&mut area);
            // SAFETY: as above.
            unsafe { libc::_exit(code) };
        }
        code = if code == 0 { end_of(own) } else { code };
        // SAFETY: as above.
        unsafe { libc::_exit(code) };
    }
    assert_eq!(end_of(child), 0, "1 for a wrong page, 2 for too much memory");
    area.check_all().unwrap();
}

/// Goes on beside children that wait. At last all have what they should.
fn share_with_children(count: usize) {
    let mut area = area_for_children();
    let pages = area.len();
    let (mut childs, mut own) = UnixStream::pair().unwrap();
    let check_when_told = |area: &Area| {
        let told = childs.read_exact(&mut [0]).is_ok();
        // Of what was in place at the fork little still is.
        if in_place(area, 1) > BUDGET as usize / PAGE / 4 {
            return 2;
        }
        i32::from(!told || area.check_all().is_err())
    };
    let children = children(count, check_when_told, &area);
    for step in 0..3 * pages {
        let page = step * 4099 % pages;
        area.check(page).unwrap();
        if step % 16 == 0 {
            area.write(page, step as u64 + 7);
        }
    }
    wait_until_held();
    own.write_all(&vec![b'g'; count]).unwrap();
    let code = |child| assert_eq!(end_of(child), 0, "1 for a wrong page, 2 for too much memory");
    children.into_iter().for_each(code);
    area.check_all().unwrap();
}

/// How many of each so many pages are in place.
fn in_place(area: &Area, each: usize) -> usize {
    let map = overdrive_sys::page_map::PageMap::open().unwrap();
    let is_there = |page: &usize| map.present(area.at(*page) as u64, 1) == Ok(1);
    (0..area.len()).step_by(each).filter(is_there).count()
}

/// Children that end with what this returns in them.
fn children(count: usize, mut work: impl FnMut(&Area) -> i32, area: &Area) -> Vec<libc::pid_t> {
    let fork = |_| {
        // SAFETY: the child calls what is safe after a fork of this C library, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = work(area);
            // SAFETY: as above.
            unsafe { libc::_exit(code) };
        }
        child
    };
    (0..count).map(fork).collect()
}

/// What comes in meanwhile may be more than goes for a while.
fn wait_until_held() {
    let start = Instant::now();
    while anonymous_bytes() > BUDGET + BUDGET / 8 {
        assert!(start.elapsed() < Duration::from_secs(60), "{} bytes in place", anonymous_bytes());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A child goes through every eighth page of three times the budget, six times what it has at first, until
/// these are in place. Then this process goes through all of its own until it has memory back.
fn lend_to_a_child() {
    let area = area_for_children();
    let (mut childs, mut own) = UnixStream::pair().unwrap();
    let fits_at_last = |area: &Area| {
        let start = Instant::now();
        let used = || (0..area.len()).step_by(8);
        while in_place(area, 8) < used().count() / 16 * 15 {
            if start.elapsed() > Duration::from_secs(60) {
                return 2;
            }
            if used().any(|page| area.check(page).is_err()) {
                return 1;
            }
        }
        let _ = childs.write_all(b"f").and_then(|()| childs.read_exact(&mut [0]));
        i32::from(area.check_all().is_err())
    };
    let children = children(1, fits_at_last, &area);
    drop(childs);
    own.read_exact(&mut [0]).expect("a child with room");
    let lent = anonymous_bytes();
    assert!(lent < BUDGET - BUDGET / 8, "{lent} bytes beside a child that needs them");
    // In order, so that most of what it waits for is read ahead.
    let mut rounds = 0;
    while anonymous_bytes() < lent + BUDGET / 8 {
        assert!(rounds < 8, "{} bytes in place, {lent} before", anonymous_bytes());
        area.check_all().unwrap();
        rounds += 1;
    }
    wait_until_held();
    own.write_all(b"g").unwrap();
    children.into_iter().for_each(|child| assert_eq!(end_of(child), 0, "1 for a wrong page, 2 for no room"));
}

/// Goes through all pages, and to some a second time, and changes a few of them. Not in the order in which they lie.
fn look_at_all(area: &mut Area) -> i32 {
    let pages = area.len();
    let mut most = 0;
    for step in 0..pages + pages / 4 {
        let page = step * 4099 % pages;
        if area.check(page).is_err() {
            return 1;
        }
        if step % 64 == 0 {
            area.write(page, step as u64 + 7);
            most = most.max(anonymous_bytes());
        }
    }
    if most < BUDGET * 2 { 0 } else { 2 }
}

/// RssAnon of this process, read without asking for memory.
fn anonymous_bytes() -> u64 {
    let mut text = [0; 4096];
    let read =
        std::fs::File::open("/proc/self/status").and_then(|mut file| file.read(&mut text)).unwrap_or(0);
    let text = std::str::from_utf8(&text[..read]).unwrap_or("");
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or("");
    line.trim().trim_end_matches(" kB").parse::<u64>().map_or(u64::MAX, |kib| kib * 1024)
}

fn end_of(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: the status is valid for the call.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    if ended == child && libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 3 }
}

/// A thread makes a child, which makes another, and ends. Then the program is killed while both read memory that is
/// away.
fn leave_orphans() {
    let dir = PathBuf::from(std::env::var_os(DIR).unwrap());
    let mut area = Area::new(2 * BUDGET as usize / PAGE);
    (0..area.len()).for_each(|page| area.write(page, page as u64 + 1));
    let notes = ["child", "grandchild"].map(|note| dir.join(note));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the children call what is safe after a fork of this C library, and end by `_exit`.
            if unsafe { libc::fork() } == 0 {
                // SAFETY: as above.
                let note = &notes[usize::from(unsafe { libc::fork() } == 0)];
                std::fs::write(note, std::process::id().to_string()).unwrap();
                loop {
                    if let Err(what) = area.check_all() {
                        std::fs::write(dir.join("wrong"), what).unwrap();
                        // SAFETY: ends the child.
                        unsafe { libc::_exit(1) };
                    }
                }
            }
        });
    });
    let pids = notes.each_ref().map(|note| {
        loop {
            match std::fs::read_to_string(note) {
                Ok(pid) if !pid.is_empty() => break pid,
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(pids.iter().all(|pid| runs(pid)), "a thread's end is not the program's");
    // SAFETY: ends this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

fn become_another_program_by_a_thread() {
    let mut area = Area::new(2 * BUDGET as usize / PAGE);
    (0..area.len()).for_each(|page| area.write(page, page as u64 + 1));
    let thread = std::thread::spawn(|| {
        use std::os::unix::process::CommandExt;
        Command::new("/bin/true").env_remove("LD_PRELOAD").exec()
    });
    // Keeps the pager busy meanwhile.
    let _ = area.check_all();
    panic!("{:?}", thread.join());
}

const SLEEPERS: usize = 16;
/// Of each sleeper its thread block and a place in the middle of its stack.
static SLEEPERS_AT: [[AtomicU64; 2]; SLEEPERS] = [const { [const { AtomicU64::new(0) }; 2] }; SLEEPERS];
/// Not 0 when they may end: what they wait for.
static SLEPT: AtomicU32 = AtomicU32::new(0);

/// Sleeps until it may end, and ends without another look at its own memory.
extern "C" fn sleep(number: *mut libc::c_void) -> *mut libc::c_void {
    let stack = std::hint::black_box([1u8; 64 << 10]);
    let at = &SLEEPERS_AT[number as usize];
    at[1].store(stack.as_ptr() as u64, Ordering::Relaxed);
    // SAFETY: the calls change nothing of this process; the last ends this thread, which has nothing to drop.
    unsafe {
        at[0].store(libc::pthread_self() as u64, Ordering::Relaxed);
        while SLEPT.load(Ordering::Relaxed) == 0 {
            libc::syscall(libc::SYS_futex, SLEPT.as_ptr(), libc::FUTEX_WAIT, 0, 0);
        }
        libc::syscall(libc::SYS_exit, 0);
    }
    std::hint::black_box(stack);
    std::ptr::null_mut()
}

/// Presses threads that sleep out of memory, has them end, and waits for them: the kernel tells of a thread's end by
/// a word of its block, and no fault is handed over any more then.
fn end_threads() {
    let start = |number| {
        let mut thread = 0;
        // SAFETY: the function takes a number and lives as long as the program.
        let outcome =
            unsafe { libc::pthread_create(&raw mut thread, std::ptr::null(), sleep, number as *mut _) };
        assert_eq!(outcome, 0);
        thread
    };
    let threads: Vec<libc::pthread_t> = (0..SLEEPERS).map(start).collect();
    let mut area = Area::new(2 * BUDGET as usize / PAGE);
    let map = overdrive_sys::page_map::PageMap::open().unwrap();
    let is_away = |at: &AtomicU64| {
        let address = at.load(Ordering::Relaxed);
        address != 0 && map.present(address, 1).unwrap() == 0
    };
    let end = Instant::now() + Duration::from_secs(60);
    while !SLEEPERS_AT.iter().all(|at| is_away(&at[1])) {
        assert!(Instant::now() < end, "the stacks are not evicted");
        (0..area.len()).for_each(|page| area.write(page, page as u64 + 1));
    }
    SLEPT.store(1, Ordering::Relaxed);
    // SAFETY: wakes who waits there.
    unsafe { libc::syscall(libc::SYS_futex, SLEPT.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    for thread in threads {
        // SAFETY: made above, and waited for once.
        assert_eq!(unsafe { libc::pthread_join(thread, std::ptr::null_mut()) }, 0);
    }
}

/// The same in a child, whose threads' memory is taken out of place by its helper.
fn end_threads_of_a_child() {
    let _area = area_for_children();
    // SAFETY: the child calls what is safe after a fork of this C library, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        end_threads();
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    assert_eq!(end_of(child), 0);
}

/// Locks the mapping that this address is in.
fn stay_in_place(address: *const u8) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let range = maps.lines().find_map(|line| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        let range = number(start)..number(end);
        range.contains(&(address as usize)).then_some(range)
    });
    let range = range.unwrap();
    // SAFETY: locking memory changes nothing in it.
    check(unsafe { libc::mlock(range.start as *const _, range.len()) }).expect("mlock");
}

/// Copies through the kernel. False when one of the two is memory that cannot be had.
fn carry(through: &mut (UnixStream, UnixStream), from: &[u8], to: &mut [u8]) -> bool {
    use std::io::{Read, Write};
    let Err(error) = through.0.write_all(from).and_then(|()| through.1.read_exact(to)) else { return true };
    assert_eq!(error.raw_os_error(), Some(libc::EFAULT), "{error}");
    // What was half sent is forgotten.
    *through = UnixStream::pair().unwrap();
    false
}

/// Finds lost pages, and touches one: this thread must get SIGBUS.
fn lose() {
    let (area, lost) = fill_and_check();
    let page = *lost.first().expect("a lost page");
    // SAFETY: the child only touches memory and ends; it dies of the signal.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a page of the area's mapping.
        unsafe { area.at(page).read_volatile() };
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: the status is valid for the call.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS, "status {status:#x}");
}

/// As daemons do.
fn close_all_and_check() {
    // SAFETY: whoever uses these descriptors in this process is what this is about.
    unsafe { libc::close_range(3, u32::MAX, 0) };
    assert_eq!(fill_and_check().1, [0; 0]);
}
