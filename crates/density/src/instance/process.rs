//! A Redis server as a process: one each, on a socket in the run's folder or on a port of its own.
//!
//! Nothing of it is stored: no snapshots, no log of writes. It reads no configuration but its command line.

use super::folder::mark;
use super::served::Served;
use super::{Instance, InstanceError, Kind, Seat};
use crate::connection::Endpoint;
use overdrive_sys::child;
use std::ffi::OsString;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Redis servers.
#[derive(Debug, Clone)]
pub struct RedisProcess {
    program: PathBuf,
    version: String,
    /// The port of the first; none for sockets in the file system.
    first_port: Option<u16>,
}

impl RedisProcess {
    /// Finds the server's program.
    ///
    /// # Errors
    /// When there is none or it does not run.
    pub fn find(program: &Path, first_port: Option<u16>) -> Result<Self, InstanceError> {
        let missing = |why: String| {
            let name = program.display();
            InstanceError::Missing(format!(
                "no Redis server: {name}: {why}; wanted the package redis-server (as root: apt-get install redis-server)"
            ))
        };
        let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| missing(error.to_string()))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.split_ascii_whitespace().find_map(|word| word.strip_prefix("v="));
        let version = version.ok_or_else(|| missing("it names no version".to_owned()))?.to_owned();
        Ok(Self { program: program.to_owned(), version, first_port })
    }

    fn endpoint(&self, seat: &Seat<'_>) -> Result<Endpoint, InstanceError> {
        let Some(first) = self.first_port else {
            return Ok(Endpoint::Unix(seat.folder.join(format!("{}.sock", seat.number))));
        };
        let port = u32::from(first) + seat.number;
        let Ok(port) = u16::try_from(port) else {
            let wanted = "wanted a lower --port or fewer instances";
            return Err(InstanceError::Missing(format!("port {port} does not exist: {wanted}")));
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // Asked for beforehand: a server that finds its port taken ends without a word.
        TcpListener::bind(address).map_err(|error| {
            InstanceError::Missing(format!(
                "port {port}: {error}; wanted --port with free ports from there on"
            ))
        })?;
        Ok(Endpoint::Tcp(address))
    }
}

/// What makes a server that keeps nothing and listens at one place only.
pub(crate) fn words(endpoint: &Endpoint, folder: &Path, log: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    match endpoint {
        Endpoint::Unix(path) => {
            words.extend(["--port", "0", "--unixsocketperm", "700", "--unixsocket"].map(OsString::from));
            words.push(path.into());
        }
        Endpoint::Tcp(address) => {
            let port = address.port().to_string();
            words.extend(["--bind", "127.0.0.1", "--port", &port].map(OsString::from));
        }
    }
    let fixed = ["--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "warning"];
    words.extend(fixed.map(OsString::from));
    words.extend([OsString::from("--dir"), folder.into(), "--logfile".into(), log.into()]);
    words
}

impl Kind for RedisProcess {
    fn name(&self) -> &'static str {
        "process"
    }

    fn describe(&self) -> String {
        let place = if self.first_port.is_some() { "on loopback ports" } else { "on unix sockets" };
        format!("redis-server {} processes {place}, no persistence", self.version)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(20)
    }

    fn start(&self, seat: &Seat<'_>) -> Result<Box<dyn Instance>, InstanceError> {
        let endpoint = self.endpoint(seat)?;
        let log = seat.folder.join(format!("{}.log", seat.number));
        let mut words = vec![self.program.clone().into_os_string()];
        words.extend(self::words(&endpoint, seat.folder, &log));
        let words = seat.backing.command(words, seat.budget_bytes);
        let fail =
            |error: std::io::Error| InstanceError::Start { number: seat.number, reason: error.to_string() };
        let output = File::create(&log).map_err(fail)?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        command.stdout(output.try_clone().map_err(fail)?).stderr(output);
        let child = child::spawn(&mut command, seat.group)?;
        let process = Served::new(child, endpoint, log);
        mark(seat.folder, process.id()).map_err(fail)?;
        Ok(Box::new(process))
    }
}
