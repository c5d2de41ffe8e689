//! Groups of others held on the kernel's swap: nothing of theirs is lost, and all is as it was afterwards, also
//! when the run was killed.

use crate::extend::{assert_empty, has, signal, wait_for};
use crate::support::{folder, read, run, skip, swap_may_be_on};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::RwLockWriteGuard;
use std::time::{Duration, Instant};

const DRAM: u64 = 64 << 20;

/// A control group of our own making with a program in it that has twice the budget.
struct Service {
    group: PathBuf,
    limit: PathBuf,
    program: Child,
    place: tempfile::TempDir,
    store: tempfile::TempDir,
    _swap_may_be_on: RwLockWriteGuard<'static, ()>,
}

impl Service {
    /// None, and said so, where it cannot be had.
    fn start(test: &str) -> Option<Self> {
        if !has(test, "python3") {
            return None;
        }
        let (place, store) = (folder(), folder());
        let swap_may_be_on = swap_may_be_on();
        let above = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        let name = format!("hold-{}-{}", std::process::id(), place.path().file_name()?.to_str()?);
        let made = above.iter().find_map(|(above, limit)| {
            let group = Path::new(above).join(&name);
            std::fs::create_dir(&group).ok()?;
            let limit = group.join(limit);
            if !limit.exists() {
                std::fs::remove_dir(&group).unwrap();
                return None;
            }
            Some((group, limit))
        });
        let Some((group, limit)) = made else {
            skip(test, "no control group with a memory controller can be made");
            return None;
        };
        let script = "import os, sys, time, zlib\n\
             blocks = [os.urandom(1 << 20) for _ in range(128)]\n\
             sums = [zlib.crc32(block) for block in blocks]\n\
             open(sys.argv[1], 'w').close()\n\
             while not os.path.exists(sys.argv[2]):\n\
             \x20   if sums != [zlib.crc32(block) for block in blocks]: sys.exit(7)\n\
             \x20   time.sleep(0.02)\n";
        let enter = format!("echo $$ > {}/cgroup.procs && exec python3 -c \"$0\" \"$@\"", group.display());
        let program = Command::new("sh")
            .args(["-c", &enter, script])
            .args([place.path().join("ready"), place.path().join("end")])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        wait_for(&place.path().join("ready"));
        Some(Self { group, limit, program, place, store, _swap_may_be_on: swap_may_be_on })
    }

    /// Another program in it, with 64 MiB of its own.
    fn take_more(&self) -> Child {
        let ready = self.place.path().join("more");
        let script = "import os, sys, time\n\
             block = os.urandom(64 << 20)\n\
             open(sys.argv[1], 'w').close()\n\
             time.sleep(600)\n";
        let enter =
            format!("echo $$ > {}/cgroup.procs && exec python3 -c \"$0\" \"$@\"", self.group.display());
        let more = Command::new("sh").args(["-c", &enter, script]).arg(&ready).spawn().unwrap();
        wait_for(&ready);
        more
    }

    /// What it says lies in a file.
    fn hold(&self, group: &str) -> Child {
        let said = std::fs::File::create(self.said()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_overdrive"));
        command.args(["extend", "hold", "--dram", "64MiB", "--store"]);
        command.arg(format!("{}:256MiB", self.store.path().display())).arg(group);
        command.stdin(Stdio::null()).stderr(said).spawn().unwrap()
    }

    fn said(&self) -> PathBuf {
        self.place.path().join("said")
    }

    /// Its exit code, and what it said.
    fn ended(&self, held: Child) -> (i32, String) {
        let (code, ..) = read(&held.wait_with_output().unwrap());
        (code, std::fs::read_to_string(self.said()).unwrap())
    }

    fn limit(&self) -> String {
        std::fs::read_to_string(&self.limit).unwrap().trim().to_owned()
    }

    fn wait_until_held(&self) {
        let start = Instant::now();
        while self.limit() != DRAM.to_string() {
            let said = || std::fs::read_to_string(self.said()).unwrap();
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "the limit stays {}: {}",
                self.limit(),
                said()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The program finds all its memory as it was.
    fn end(&mut self) {
        std::fs::write(self.place.path().join("end"), "").unwrap();
        let status = self.program.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    fn assert_as_before(&self, limit: &str) {
        assert_eq!(self.limit(), limit);
        assert_empty(self.store.path());
        let swaps = std::fs::read_to_string("/proc/swaps").unwrap();
        assert!(!swaps.contains(self.store.path().to_str().unwrap()), "{swaps}");
        let notes = std::fs::read_dir("/var/lib/overdrive/held-groups").into_iter().flatten().count();
        assert_eq!(notes, 0);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
        for group in [&self.group.join("empty"), &self.group.join("inner"), &self.group] {
            let _ = std::fs::remove_dir(group);
        }
    }
}

#[test]
fn a_group_is_held_and_given_back() {
    const NAME: &str = "extend_hold::a_group_is_held_and_given_back";
    let Some(mut service) = Service::start(NAME) else { return };
    let before = service.limit();
    let number = service.program.id().to_string();
    let enter = |group: &Path| std::fs::write(group.join("cgroup.procs"), &number).unwrap();
    // As in a pod, whose containers have groups of their own.
    let inner = service.group.join("inner");
    std::fs::create_dir(&inner).unwrap();
    enter(&inner);
    for by_number in [false, true] {
        let held = service.hold(if by_number { &number } else { service.group.to_str().unwrap() });
        service.wait_until_held();
        if !by_number {
            let (_, text, _) = run(&["extend", "status", "--interval", "300ms"]);
            let shown =
                text.lines().any(|line| line.contains(&held.id().to_string()) && line.contains("python3"));
            assert!(shown, "{text}");
        }
        signal(held.id(), "TERM");
        let (code, error) = service.ended(held);
        assert_eq!(code, 0, "{error}");
        assert!(
            error.contains("it is held; Ctrl-C gives it back") && error.contains("come back from the SSD")
        );
        service.assert_as_before(&before);
        enter(&service.group);
    }
    std::fs::remove_dir(&inner).unwrap();
    service.end();
}

#[test]
fn a_group_whose_run_was_killed_is_given_back_by_the_next() {
    const NAME: &str = "extend_hold::a_group_whose_run_was_killed_is_given_back_by_the_next";
    let Some(mut service) = Service::start(NAME) else { return };
    let before = service.limit();
    let mut held = service.hold(service.group.to_str().unwrap());
    service.wait_until_held();
    let second = service.hold(service.group.to_str().unwrap());
    let (code, error) = service.ended(second);
    assert!(code == 2 && error.contains("is held already"), "{error}");
    held.kill().unwrap();
    held.wait().unwrap();
    assert_eq!(service.limit(), DRAM.to_string());
    let (code, text, error) = run(&["swap", "off", "--stale"]);
    assert_eq!(code, 0, "{text}{error}");
    assert!(text.contains(&format!("gave back {}\n", service.group.display())), "{text}");
    service.assert_as_before(&before);
    service.end();
}

/// Its own limit has no room for what it has grown to: to bring that back would have it killed.
#[test]
fn a_group_that_its_own_limit_does_not_hold_any_more_stays_held() {
    const NAME: &str = "extend_hold::a_group_that_its_own_limit_does_not_hold_any_more_stays_held";
    let Some(mut service) = Service::start(NAME) else { return };
    let own = (160 << 20).to_string();
    std::fs::write(&service.limit, &own).unwrap();
    let held = service.hold(service.group.to_str().unwrap());
    service.wait_until_held();
    let mut more = service.take_more();
    signal(held.id(), "TERM");
    let (code, error) = service.ended(held);
    assert_eq!(code, 3, "{error}");
    assert!(
        error.contains("limit and swap stay as they are") && error.contains("may take 160 MiB"),
        "{error}"
    );
    let (code, text, _) = run(&["swap", "off", "--stale"]);
    assert_eq!((code, service.limit()), (3, DRAM.to_string()), "{text}");
    let kept = format!("could not give back {}: ", service.group.display());
    assert!(text.contains(&kept) && text.contains("may take 160 MiB"), "{text}");
    assert!(service.program.try_wait().unwrap().is_none() && more.try_wait().unwrap().is_none());
    more.kill().unwrap();
    more.wait().unwrap();
    let (code, text, error) = run(&["swap", "off", "--stale"]);
    assert_eq!(code, 0, "{text}{error}");
    service.assert_as_before(&own);
    service.end();
}

#[test]
fn a_run_ends_with_the_group() {
    const NAME: &str = "extend_hold::a_run_ends_with_the_group";
    let Some(mut service) = Service::start(NAME) else { return };
    let before = service.limit();
    let held = service.hold(service.group.to_str().unwrap());
    service.wait_until_held();
    service.end();
    let (code, error) = service.ended(held);
    assert_eq!(code, 0, "{error}");
    service.assert_as_before(&before);
}

#[test]
fn what_cannot_be_held_is_refused_and_nothing_was_touched() {
    const NAME: &str = "extend_hold::what_cannot_be_held_is_refused_and_nothing_was_touched";
    let Some(service) = Service::start(NAME) else { return };
    let before = service.limit();
    let group = service.group.to_str().unwrap();
    let inner = service.group.join("empty");
    std::fs::create_dir(&inner).unwrap();
    let store = format!("{}:256MiB", service.store.path().display());
    let hold = |dram: &str, group: &str| run(&["extend", "hold", "--dram", dram, "--store", &store, group]);
    let (code, _, error) = hold("64MiB", &std::process::id().to_string());
    let is_seen = error.contains("this process is in it too") || error.contains("not a group below");
    assert!(code == 2 && is_seen, "{error}");
    for (dram, group, wanted) in [
        ("1MiB", group, "wanted at least 32 MiB"),
        ("64MiB", "/no/such/group", "/no/such/group"),
        ("64MiB", "/proc", "not a group below"),
        ("64MiB", "4194305", "no process has the number 4194305"),
        ("64MiB", inner.to_str().unwrap(), "no process is in it"),
    ] {
        let (code, _, error) = hold(dram, group);
        assert_ne!(code, 0, "{group}");
        // What other tests' killed runs left may be told before.
        let last = error.trim_end().lines().last().unwrap_or_default();
        assert!(last.contains(wanted), "{group}: {error}");
    }
    std::fs::remove_dir(&inner).unwrap();
    let small = format!("{}:64MiB", service.store.path().display());
    let (code, _, error) = run(&["extend", "hold", "--dram", "64MiB", "--store", &small, group]);
    assert!(code == 2 && error.contains("have to leave DRAM, and the store takes 64"), "{error}");
    std::fs::write(&service.limit, (160 << 20).to_string()).unwrap();
    let (code, _, error) = hold("192MiB", group);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("its limit is 167772160 bytes already"), "{error}");
    std::fs::write(&service.limit, if before == "max" { "max" } else { "-1" }).unwrap();
    service.assert_as_before(&before);
}
