//! What a terminal shows while jobs run, under a pseudo-terminal; and that nothing of it is left behind.

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A command on a terminal of its own, of 80 columns and 24 rows.
struct OnTerminal {
    child: Child,
    screen: File,
    terminal: OwnedFd,
    shown: String,
}

impl OnTerminal {
    fn start(arguments: &[&str], stdout_too: bool) -> Self {
        let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&screen).unwrap();
        unlockpt(&screen).unwrap();
        let name = ptsname(&screen, Vec::new()).unwrap();
        let open =
            || rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, rustix::fs::Mode::empty()).unwrap();
        let terminal = open();
        tcsetwinsize(&terminal, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_overdrive"))
            .args(arguments)
            .env("LANG", "C.UTF-8")
            .env("TERM", "xterm")
            .env_remove("LC_ALL")
            .env_remove("LC_CTYPE")
            .stdin(Stdio::null())
            .stdout(if stdout_too { Stdio::from(open()) } else { Stdio::null() })
            .stderr(Stdio::from(open()))
            .spawn()
            .unwrap();
        rustix::io::ioctl_fionbio(&screen, true).unwrap();
        Self { child, screen: File::from(screen), terminal, shown: String::new() }
    }

    /// Reads what is there; false when nothing came.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        match self.screen.read(&mut bytes) {
            Ok(length) if length > 0 => {
                self.shown.push_str(&String::from_utf8_lossy(&bytes[..length]));
                true
            }
            _ => false,
        }
    }

    /// Reads until all the words were shown.
    fn wait_for(&mut self, words: &[&str]) {
        let start = Instant::now();
        while !words.iter().all(|word| self.shown.contains(word)) {
            assert!(start.elapsed() < Duration::from_secs(120), "no {words:?} in {:?}", self.shown);
            if !self.read() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Reads to the end; the child's status and whether the terminal's settings are as they were.
    fn end(mut self) -> (ExitStatus, String) {
        let status = loop {
            while self.read() {}
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        while self.read() {}
        let settings = tcgetattr(&self.terminal).unwrap();
        assert!(
            settings
                .local_modes
                .contains(rustix::termios::LocalModes::ECHO | rustix::termios::LocalModes::ICANON)
        );
        (status, self.shown)
    }
}

fn file() -> (tempfile::TempDir, String) {
    let folder = crate::support::folder();
    let path = crate::support::written_file(folder.path(), 16);
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn a_terminal_shows_rates_latencies_targets_and_cost() {
    let ((_folder, path), (_other, second)) = (file(), file());
    let arguments =
        ["run", &path, &second, "--buffered", "--engine", "psync", "--runtime", "600s", "--ramp-time", "0s"];
    let mut run = OnTerminal::start(&arguments, true);
    run.wait_for(&["IOPS", "GiB/s", "p99.9", "us an I/O", "% of one CPU", "left", "data read"]);
    // Ctrl-C ends it, and the result is below.
    let number = run.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &number]).status().unwrap().success());
    let (status, shown) = run.end();
    assert_eq!(status.code(), Some(130), "{shown}");
    assert!(shown.contains("queue depth"), "{shown}");
    // The cursor is shown, and the screen is the one that was there before.
    assert!(!shown.contains("\u{1b}[?1049h"), "{shown}");
    let cursor = [shown.matches("\u{1b}[?25l").count(), shown.matches("\u{1b}[?25h").count()];
    assert_eq!(cursor[0], cursor[1], "{shown}");
}

#[test]
fn off_shows_nothing_and_a_pipe_gets_no_more_than_a_line() {
    let off = ["run", "sim", "--runtime", "1s", "--live", "off"];
    let (status, shown) = OnTerminal::start(&off, false).end();
    assert_eq!((status.code(), shown.as_str()), (Some(0), ""));
    let (_folder, path) = file();
    let arguments = ["run", &path, "--buffered", "--engine", "psync", "--runtime", "600s"];
    let mut run = OnTerminal::start(&arguments, false);
    run.wait_for(&["1/1", "IOPS", "left"]);
    assert!(!run.shown.contains("p99.9"), "{}", run.shown);
    assert!(Command::new("kill").args(["-INT", &run.child.id().to_string()]).status().unwrap().success());
    assert_eq!(run.end().0.code(), Some(130));
}

#[test]
fn names_do_not_steer_the_terminal_while_jobs_run() {
    let (directory, target) = file();
    let jobs = directory.path().join("jobs.fio");
    let name = "res\x1bcet";
    let text =
        format!("[{name}]\nfilename={target}\nrw=randread\nbs=4k\ntime_based=1\nruntime=1\nioengine=psync\n");
    std::fs::write(&jobs, text).unwrap();
    for both in [true, false] {
        let (status, shown) = OnTerminal::start(&["run", jobs.to_str().unwrap()], both).end();
        assert!(status.success(), "{shown}");
        assert!(shown.contains("res\u{fffd}cet") && !shown.contains("\x1bc"), "{shown:?}");
    }
}
