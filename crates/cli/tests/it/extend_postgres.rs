//! PostgreSQL above its budget. It refuses to run as root, so this is also how an ordinary user gets extended memory.

use crate::extend::{assert_empty, can_page, has, largest};
use crate::extend_programs::assert_paged;
use crate::support::{folder, read, skip};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const NAME: &str = "extend_postgres::postgres_sorts_and_aggregates_above_its_budget_for_an_ordinary_user";
const USER: u32 = 65534;

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

#[test]
fn postgres_sorts_and_aggregates_above_its_budget_for_an_ordinary_user() {
    let (store, place) = (folder(), folder());
    let (Some(postgres), Some(initdb)) = (program("postgres"), program("initdb")) else {
        return skip(NAME, "postgres is not installed");
    };
    if !has(NAME, "setpriv") || !has(NAME, "timeout") {
        return;
    }
    let Some(_swap_is_off) = can_page(NAME, store.path()) else { return };
    if overdrive_sys::relay::effective_user() == 0 {
        for folder in [&store, &place] {
            std::os::unix::fs::chown(folder.path(), Some(USER), Some(USER)).unwrap();
        }
    }
    let (data, stats) = (place.path().join("data"), place.path().join("stats.json"));
    let mut command = as_a_user(&initdb);
    command.args(["--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8", "-D"]).arg(&data);
    let (code, text, error) = read(&command.output().unwrap());
    assert_eq!(code, 0, "{text}{error}");
    let words = ["-c", "shared_buffers=1MB", "-c", "fsync=off", "-c", "autovacuum=off", "postgres"];
    let mut command = as_a_user(&postgres);
    command.arg("--single").arg("-D").arg(&data).args(words);
    let (code, plain, error) = answers(command);
    assert_eq!(code, 0, "{error}");
    assert!(plain.contains("count = \"400000\"") && plain.contains("sum = \"450000\""), "{plain}{error}");
    let mut command = as_a_user(Path::new(env!("CARGO_BIN_EXE_overdrive")));
    command.args(["extend", "--backend", "pager", "--dram", "48MiB", "--compress", "off", "--stats"]);
    command.arg(&stats).arg("--store").arg(store.path()).arg("--").arg(&postgres);
    command.arg("--single").arg("-D").arg(&data).args(words);
    let (code, paged, error) = answers(command);
    assert_eq!(code, 0, "{error}");
    assert_eq!(plain, paged, "answered differently");
    assert_paged(&largest(&stats));
    assert_empty(store.path());
}
