//! What the tests share: a folder on a disk, the command, and skipping with a reason.

use assert_cmd::Command;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A fresh folder below the build directory, which is on a disk more often than /tmp is.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The command, quiet about the environment it runs in.
pub(crate) fn overdrive() -> Command {
    let mut command = Command::cargo_bin("overdrive").unwrap();
    command.env("NO_COLOR", "1").timeout(Duration::from_secs(240));
    command
}

/// Runs it and returns exit code, standard output and standard error.
pub(crate) fn run(arguments: &[&str]) -> (i32, String, String) {
    read(&overdrive().args(arguments).output().unwrap())
}

pub(crate) fn read(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// A written file of `mib` MiB whose content is not zero.
pub(crate) fn written_file(folder: &Path, mib: usize) -> PathBuf {
    let path = folder.join("data");
    let block: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8 | 1).collect();
    let mut file = std::fs::File::create(&path).unwrap();
    (0..mib).for_each(|_| file.write_all(&block).unwrap());
    file.sync_all().unwrap();
    path
}

/// Says that a test cannot run here; `cargo xtask test` counts and lists these.
pub(crate) fn skip(test: &str, reason: &str) {
    eprintln!("skipped: {test}: {reason}");
    if let Some(log) = std::env::var_os("OVERDRIVE_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
        writeln!(log, "{test}: {reason}").unwrap();
    }
}

/// Whether the build directory takes direct I/O, without which scratch files are refused.
pub(crate) fn has_direct_io(test: &str) -> bool {
    let folder = folder();
    let path = written_file(folder.path(), 16);
    let arguments =
        ["run", path.to_str().unwrap(), "--runtime", "20ms", "--ramp-time", "0s", "--engine", "pvsync2"];
    let (code, _, error) = run(&arguments);
    if code != 0 {
        skip(test, &format!("no direct I/O in the build directory: {}", error.trim()));
    }
    code == 0
}

/// Somebody who is not root, with a folder that holds the program and that everybody may write to.
pub(crate) struct OrdinaryUser {
    pub(crate) place: TempDir,
}

impl OrdinaryUser {
    /// None, and the test is skipped, where nobody else can be had.
    pub(crate) fn at_hand(test: &str) -> Option<Self> {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        // The build directory may be out of that user's reach.
        std::fs::copy(env!("CARGO_BIN_EXE_overdrive"), place.path().join("overdrive")).unwrap();
        let user = Self { place };
        let why = match user.command().arg("--version").output() {
            Ok(output) if output.status.success() => return Some(user),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(_) => "there is no setpriv".to_owned(),
        };
        skip(test, &format!("no other user can be had: {why}"));
        None
    }

    /// Puts the preload library beside the program.
    pub(crate) fn take_library(&self) {
        let own = Path::new(env!("CARGO_BIN_EXE_overdrive")).with_file_name("libovermem.so");
        std::fs::copy(own, self.place.path().join("libovermem.so")).unwrap();
    }

    fn command(&self) -> std::process::Command {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(self.place.path().join("overdrive"));
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        read(&self.command().args(arguments).output().unwrap())
    }
}

/// The words alone: where a table or text breaks its lines depends on how long its paths are.
pub(crate) fn words_of(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Tests that turn swap on hold this alone, those that extend memory together: a swap area on the store's disk
/// is refused to the pager, and all tests use the same disk. That of a run of ours is not, but as soon as a test
/// has killed the run, and until it is tidied up, it is nobody's.
static SWAP: RwLock<()> = RwLock::new(());

/// Until it is dropped no test turns swap on.
pub(crate) fn swap_stays_off() -> RwLockReadGuard<'static, ()> {
    SWAP.read().unwrap_or_else(PoisonError::into_inner)
}

/// Until it is dropped no test extends memory.
pub(crate) fn swap_may_be_on() -> RwLockWriteGuard<'static, ()> {
    SWAP.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until something is so, for `most` at the longest.
pub(crate) fn until(what: &str, most: Duration, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < most, "not after {most:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
