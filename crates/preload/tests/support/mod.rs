//! What the tests of the library share: the library itself, its counters, and skipping with a reason.

use overdrive_pager::stats::Stats;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn skip(name: &str, reason: &str) {
    eprintln!("skipped: {name}: {reason}");
    if let Some(log) = std::env::var_os("OVERDRIVE_SKIP_LOG") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
        std::io::Write::write_all(&mut file, format!("{name}: {reason}\n").as_bytes()).unwrap();
    }
}

/// Whether the kernel lets this user handle page faults; skips otherwise.
pub(crate) fn has_userfault(name: &str) -> bool {
    let outcome = overdrive_sys::uffd::Userfault::new(overdrive_sys::uffd::Forks::Followed);
    if let Err(error) = &outcome {
        skip(name, &error.to_string());
    }
    outcome.is_ok()
}

/// The library, as built from the sources that this test was built from.
pub(crate) fn library() -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--locked", "--package", "overdrive-preload"]);
    build.current_dir(env!("CARGO_MANIFEST_DIR"));
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "building libovermem.so");
    let deps = std::env::current_exe().unwrap();
    let library = deps.parent().and_then(Path::parent).unwrap().join("libovermem.so");
    assert!(library.exists(), "{} is missing", library.display());
    library
}

/// The counters of a process whose engine has the folder.
pub(crate) fn stats(dir: &Path, pid: u32) -> Stats {
    let file = std::fs::File::open(dir.join(format!("{pid}.stats"))).unwrap();
    Stats::open(&file).unwrap()
}
