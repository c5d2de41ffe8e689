//! Inside the virtual machine: the first and only program beside Redis. It loads the modules, starts the
//! server and carries bytes between the port to the host and the server's socket.
//!
//! A virtio port needs no network in the guest and no address on the host.

use super::process::words;
use super::vm::{GUEST_FOLDER, GUEST_REDIS, MODULES, READY};
use crate::connection::Endpoint;
use overdrive_sys::guest;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The port to the host: the first of the first controller.
const PORT: &str = "/dev/vport0p1";
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs until the server ends; then the machine is turned off. Gives what went wrong.
///
/// # Errors
/// When this is no guest of ours, or something in it does not work.
pub fn run() -> io::Result<()> {
    if !guest::is_first_program() {
        return Err(io::Error::other("this is the first program of a virtual machine, and nothing else"));
    }
    let outcome = serve();
    if let Err(error) = &outcome {
        // The console is all there is to say it on.
        let _ = fs::write("/dev/console", format!("overdrive guest: {error}\n"));
    }
    std::thread::sleep(Duration::from_millis(200));
    guest::power_off();
    outcome
}

fn serve() -> io::Result<()> {
    for (kind, at) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        // The kernel may have mounted it already.
        let _ = guest::mount_virtual(kind, at);
    }
    for name in fs::read_to_string(format!("/{MODULES}"))?.lines() {
        let path = Path::new("/").join(name);
        guest::load_module(&path).map_err(|error| named(&path, &error))?;
    }
    let port = open_port()?;
    let socket = Path::new(GUEST_FOLDER).join("redis.sock");
    let log = Path::new("/dev/console");
    let mut server = Command::new(GUEST_REDIS)
        .args(words(&Endpoint::Unix(socket.clone()), Path::new(GUEST_FOLDER), log))
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| named(Path::new(GUEST_REDIS), &error))?;
    let stream = connect(&socket)?;
    let (mut from_host, mut to_host) = (port.try_clone()?, port);
    let (mut from_server, mut to_server) = (stream.try_clone()?, stream);
    std::thread::spawn(move || carry(&mut from_host, &mut to_server, true));
    std::thread::spawn(move || carry(&mut from_server, &mut to_host, false));
    fs::write("/dev/console", format!("{READY}\n"))?;
    let status = server.wait()?;
    Err(io::Error::other(format!("the server ended ({status})")))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The port appears a moment after its driver.
fn open_port() -> io::Result<File> {
    let start = Instant::now();
    loop {
        match OpenOptions::new().read(true).write(true).open(PORT) {
            Ok(port) => return Ok(port),
            Err(error) if start.elapsed() > PATIENCE => return Err(named(Path::new(PORT), &error)),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn connect(socket: &Path) -> io::Result<UnixStream> {
    let start = Instant::now();
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(stream),
            Err(error) if start.elapsed() > PATIENCE => return Err(named(socket, &error)),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Copies until one side fails. A port whose host side is closed reads as ended, and may be opened again.
fn carry(from: &mut impl Read, to: &mut impl Write, from_port: bool) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match from.read(&mut buffer) {
            Ok(0) if from_port => std::thread::sleep(Duration::from_millis(5)),
            Ok(0) | Err(_) => return,
            Ok(count) => {
                if to.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
        }
    }
}
