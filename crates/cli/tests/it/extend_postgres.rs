//! PostgreSQL above its budget. It refuses to run as root, so this is also how an ordinary user gets extended memory.

use crate::extend::{Running, assert_empty, can_page, has, largest, signal};
use crate::extend_programs::assert_paged;
use crate::support::{folder, read, skip, until};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::RwLockReadGuard;
use std::time::Duration;
use tempfile::TempDir;

const USER: u32 = 65534;

const SETTINGS: [&str; 6] = ["-c", "shared_buffers=1MB", "-c", "fsync=off", "-c", "autovacuum=off"];

/// A sort and a hash aggregation, each in one statement a line.
const QUERIES: &str = "\
set work_mem = '1GB';
select count(*), md5(string_agg(h, '' order by h)) from (select md5(i::text) h from generate_series(1, 400000) i) t;
select sum(c), max(m), md5(string_agg(k, '' order by k)) from (select md5((i % 150000)::text) k, count(*) c, \
max(md5(i::text)) m from generate_series(1, 450000) i group by 1) t;
";

/// A program of PostgreSQL: in PATH, or where Debian puts it.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let places = std::env::split_paths(&path).chain(versions.map(|version| version.path().join("bin")));
    places.map(|place| place.join(name)).find(|path| path.exists())
}

/// As an ordinary user with the right to handle page faults. The tests' folders may be out of that user's reach,
/// which is why it may read and write any.
fn as_a_user(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "10", "240"]);
    if overdrive_sys::relay::effective_user() == 0 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let bounds = status.lines().find_map(|line| line.strip_prefix("CapBnd:")).unwrap();
        let bounds = u64::from_str_radix(bounds.trim(), 16).unwrap();
        let rights = [("dac_override", 1), ("sys_ptrace", 19)];
        let rights: Vec<_> = rights.iter().filter(|(_, bit)| bounds >> bit & 1 == 1).collect();
        let rights: Vec<_> = rights.iter().map(|(name, _)| format!("+{name}")).collect();
        command.args(["setpriv", "--clear-groups"]);
        command.args(["--reuid", "--regid"].map(|word| format!("{word}={USER}")));
        command.args(["--inh-caps", "--ambient-caps"].map(|word| format!("{word}={}", rights.join(","))));
    }
    command.arg(program).env("NO_COLOR", "1");
    command
}

/// What it answers to the queries.
fn answers(mut command: Command) -> (i32, String, String) {
    let mut run =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    run.stdin.take().unwrap().write_all(QUERIES.as_bytes()).unwrap();
    read(&run.wait_with_output().unwrap())
}

/// A data folder and a store that the ordinary user may use, and the server's program; none where the test `name`
/// cannot run.
struct Ready {
    store: TempDir,
    place: TempDir,
    postgres: PathBuf,
    _swap_is_off: RwLockReadGuard<'static, ()>,
}

fn ready(name: &str) -> Option<Ready> {
    let (store, place) = (folder(), folder());
    let (Some(postgres), Some(initdb)) = (program("postgres"), program("initdb")) else {
        skip(name, "postgres is not installed");
        return None;
    };
    if !has(name, "setpriv") || !has(name, "timeout") {
        return None;
    }
    let _swap_is_off = can_page(name, store.path())?;
    if overdrive_sys::relay::effective_user() == 0 {
        for folder in [&store, &place] {
            std::os::unix::fs::chown(folder.path(), Some(USER), Some(USER)).unwrap();
        }
    }
    let mut command = as_a_user(&initdb);
    command.args(["--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8", "--username=someone", "-D"]);
    let (code, text, error) = read(&command.arg(place.path().join("data")).output().unwrap());
    assert_eq!(code, 0, "{text}{error}");
    Some(Ready { store, place, postgres, _swap_is_off })
}

impl Ready {
    fn data(&self) -> PathBuf {
        self.place.path().join("data")
    }

    fn stats(&self) -> PathBuf {
        self.place.path().join("stats.json")
    }

    /// The server's program within 48 MiB.
    fn extended(&self) -> Command {
        let mut command = as_a_user(Path::new(env!("CARGO_BIN_EXE_overdrive")));
        command.args(["extend", "--backend", "pager", "--dram", "48MiB", "--compress", "off", "--stats"]);
        command.arg(self.stats()).arg("--store").arg(self.store.path()).arg("--").arg(&self.postgres);
        command
    }
}

#[test]
fn postgres_sorts_and_aggregates_above_its_budget_for_an_ordinary_user() {
    const NAME: &str = "extend_postgres::postgres_sorts_and_aggregates_above_its_budget_for_an_ordinary_user";
    let Some(ready) = ready(NAME) else { return };
    let words = [&SETTINGS[..], &["postgres"]].concat();
    let single = |mut command: Command| {
        command.arg("--single").arg("-D").arg(ready.data()).args(&words);
        answers(command)
    };
    let (code, plain, error) = single(as_a_user(&ready.postgres));
    assert_eq!(code, 0, "{error}");
    assert!(plain.contains("count = \"400000\"") && plain.contains("sum = \"450000\""), "{plain}{error}");
    let (code, paged, error) = single(ready.extended());
    assert_eq!(code, 0, "{error}");
    assert_eq!(plain, paged, "answered differently");
    assert_paged(&largest(&ready.stats()));
    assert_empty(ready.store.path());
}

/// Each connection is a child of the server's, which has next to no memory of its own.
#[test]
fn connections_of_a_postgres_server_are_held_each_to_its_budget() {
    const NAME: &str = "extend_postgres::connections_of_a_postgres_server_are_held_each_to_its_budget";
    let Some(ready) = ready(NAME) else { return };
    if !has(NAME, "psql") {
        return;
    }
    let sockets = format!("unix_socket_directories={}", ready.place.path().display());
    let served = |mut command: Command| {
        command.arg("-D").arg(ready.data()).args(SETTINGS);
        command.args(["-c", &sockets, "-c", "listen_addresses=", "-c", "max_parallel_workers_per_gather=0"]);
        let mut server = Running(command.stderr(Stdio::null()).spawn().unwrap());
        let connect = || {
            let mut psql = Command::new("psql");
            psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "someone", "-d", "postgres", "-h"]);
            psql.arg(ready.place.path());
            psql
        };
        // It listens before it has started, and refuses connections until then.
        until("the server answers", Duration::from_secs(60), || {
            connect().args(["-c", "select"]).output().unwrap().status.success()
        });
        let outcomes = std::thread::scope(|scope| {
            let two = [(); 2].map(|()| scope.spawn(|| answers(connect())));
            two.map(|one| one.join().unwrap())
        });
        let main = std::fs::read_to_string(ready.data().join("postmaster.pid")).unwrap();
        let main: u32 = main.lines().next().unwrap().parse().unwrap();
        signal(main, "INT");
        (outcomes, server.0.wait().unwrap().code())
    };
    let (plain, code) = served(as_a_user(&ready.postgres));
    assert_eq!(code, Some(0), "{plain:?}");
    let (paged, code) = served(ready.extended());
    assert_eq!(code, Some(0), "{paged:?}");
    assert!(plain[0].1.contains("400000") && plain[0].1.contains("450000"), "{plain:?}");
    assert_eq!(plain, paged, "answered differently");
    let document: Value = serde_json::from_slice(&std::fs::read(ready.stats()).unwrap()).unwrap();
    let processes = document["processes"].as_array().unwrap();
    let paged: Vec<_> = processes.iter().filter(|process| process["written"].as_u64() > Some(5000)).collect();
    assert_eq!(paged.len(), 2, "each connection needs more than its budget: {document}");
    for process in paged {
        assert_paged(process);
        assert!(process["held_max"].as_u64() < Some(80 << 8), "more than 80 MiB: {process}");
    }
    assert_empty(ready.store.path());
}
