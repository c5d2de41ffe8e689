//! C programs under the library: one that calls the functions of `overmem.h` as its author would (compiled, linked,
//! run), and one that knows nothing of it, for what the engine says on standard error.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

#[path = "../support/mod.rs"]
mod support;

use overdrive_pager::stats::{Stat, Stats};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{has_userfault, library, skip, stats};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/api");
const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include");

/// A program of `tests/api`, linked with the library when it wants that. `None` without a compiler.
fn compile(name: &str, source: &str, place: &Path, linked: bool) -> Option<PathBuf> {
    let program = place.join("program");
    let mut compile = Command::new("cc");
    compile.args([
        "-std=c11",
        "-D_GNU_SOURCE",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O1",
        "-pthread",
        "-I",
        HEADERS,
    ]);
    compile.arg(format!("{SOURCES}/{source}")).arg("-o").arg(&program);
    if linked {
        compile.arg("-L").arg(library().parent().unwrap()).arg("-lovermem");
    }
    let Ok(output) = compile.output() else {
        skip(name, "cc is not installed");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// Runs `options.c` in a mode. What it says on standard error; `None` where it cannot run here.
fn with_options(name: &str, mode: &str) -> Option<String> {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let library = library();
    let program = compile(name, "options.c", place.path(), true)?;
    let mut run = Command::new("sh");
    let limit = if mode == "narrow" { "ulimit -v 1000000; " } else { "" };
    run.args(["-c", &format!("{limit}exec \"$0\" \"$@\"")]).arg(&program);
    run.arg(place.path()).arg(mode).env("LD_LIBRARY_PATH", library.parent().unwrap());
    let output = run.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.code() == Some(77) {
        skip(name, &text);
        return None;
    }
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*text), (Some(0), "as asked"), "{mode}: {error}");
    Some(error.into_owned())
}

#[test]
fn a_c_programs_store_is_encrypted_when_it_asks_for_that() {
    const NAME: &str = "a_c_programs_store_is_encrypted_when_it_asks_for_that";
    for mode in ["plain", "encrypt"] {
        if with_options(NAME, mode).is_none() {
            return;
        }
    }
}

#[test]
fn a_c_program_chooses_how_pages_are_compressed() {
    with_options("a_c_program_chooses_how_pages_are_compressed", "zstd");
}

#[test]
fn a_c_program_that_limits_its_writes_waits_when_they_are_used_up() {
    const NAME: &str = "a_c_program_that_limits_its_writes_waits_when_they_are_used_up";
    let Some(error) = with_options(NAME, "writes") else { return };
    assert!(error.contains("--max-writes-per-day") && error.lines().count() == 1, "{error}");
}

#[test]
fn without_addresses_a_c_program_goes_on_without_an_engine() {
    with_options("without_addresses_a_c_program_goes_on_without_an_engine", "narrow");
}

#[test]
fn options_that_cannot_be_meant_start_nothing() {
    with_options("options_that_cannot_be_meant_start_nothing", "wrong");
}

#[test]
fn a_c_program_pins_advises_and_finds_what_it_wrote() {
    const NAME: &str = "a_c_program_pins_advises_and_finds_what_it_wrote";
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let library = library();
    let Some(program) = compile(NAME, "program.c", place.path(), true) else { return };
    let mut run = Command::new(&program);
    let output = run.arg(place.path()).env("LD_LIBRARY_PATH", library.parent().unwrap()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.code() == Some(77) {
        return skip(NAME, text.trim());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), text.trim()), (Some(0), "all there"), "{error}");
    let left: Vec<_> =
        std::fs::read_dir(place.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["program"], "the store has no name");
}

/// A program that fills and compares 96 MiB in 32 MiB, with further settings; its standard error goes to a file.
fn fill(name: &str, place: &Path, more: &str) -> Option<Child> {
    if !has_userfault(name) {
        return None;
    }
    let program = compile(name, "fill.c", place, false)?;
    let settings = format!("budget={},store_bytes={},dir={}{more}", 32 << 20, 256 << 20, place.display());
    let mut run = Command::new(program);
    run.arg("96").env("OVERDRIVE_EXTEND", settings).env("LD_PRELOAD", library());
    Some(run.stderr(File::create(place.join("said")).unwrap()).stdout(Stdio::null()).spawn().unwrap())
}

#[test]
fn a_lost_page_is_told_with_address_offset_and_error() {
    const NAME: &str = "a_lost_page_is_told_with_address_offset_and_error";
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // Each place on the store gives back other data.
    let Some(mut run) = fill(NAME, place.path(), ",compress=off,fail=1:0:0:1000000") else { return };
    let status = run.wait().unwrap();
    assert_eq!(status.signal(), Some(7), "SIGBUS, never other data: {status}");
    let said = std::fs::read_to_string(place.path().join("said")).unwrap();
    let line = said.lines().next().unwrap_or_default();
    assert!(line.starts_with(&format!("overdrive extend: process {}: the page at 0x", run.id())), "{said}");
    assert!(line.contains("is lost: the store at offset") && line.contains("other data"), "{said}");
    let stats = stats(place.path(), run.id());
    assert!(stats.get(Stat::Lost) > 0 && stats.get(Stat::LossErrno) == 0);
    assert!(
        line.contains(&format!("{:#x}", stats.get(Stat::LossAddress))) || said.lines().count() > 1,
        "{said}"
    );
}

#[test]
fn a_program_that_has_written_its_share_of_the_day_waits() {
    const NAME: &str = "a_program_that_has_written_its_share_of_the_day_waits";
    /// An hour's share of the day's.
    const AT_ONCE: u64 = 8 << 20;
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some(mut run) = fill(NAME, place.path(), &format!(",day={}", 24 * AT_ONCE)) else { return };
    let path = place.path().join(format!("{}.stats", run.id()));
    let stats = || File::open(&path).ok().and_then(|file| Stats::open(&file).ok());
    let began = Instant::now();
    while stats().is_none_or(|stats| stats.get(Stat::WritesPaced) == 0 || stats.get(Stat::DirectStalls) == 0)
    {
        let ended = run.try_wait().unwrap();
        assert!(
            ended.is_none() && began.elapsed() < Duration::from_secs(60),
            "never told to wait: {ended:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(1));
    let stats = stats().unwrap();
    let written = stats.get(Stat::Written) * 4096;
    // 2 KiB a second come on top.
    assert!(written <= AT_ONCE + (1 << 20), "{written} bytes were written");
    assert!(run.try_wait().unwrap().is_none(), "it waits");
    run.kill().unwrap();
    run.wait().unwrap();
    let said = std::fs::read_to_string(place.path().join("said")).unwrap();
    assert!(said.contains("--max-writes-per-day") && said.lines().count() == 1, "{said}");
}
