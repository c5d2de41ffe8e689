//! One connection to an instance: requests queued, written as the socket takes them, answered in order.

use crate::resp::{BadReply, Parser, Reply};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Where an instance listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A port.
    Tcp(SocketAddr),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => write!(f, "{}", path.display()),
            Endpoint::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// Why a connection is of no use any more.
#[derive(Debug, Error)]
pub enum ConnectionError {
    /// The other side ended it.
    #[error("the server closed the connection")]
    Closed,
    /// The kernel says so.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It speaks another language.
    #[error(transparent)]
    Protocol(#[from] BadReply),
}

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A request that has no answer yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pending {
    /// When it was to start, in nanoseconds of the run.
    pub(crate) intended_ns: u64,
    /// When it was handed over.
    pub(crate) sent_ns: u64,
    pub(crate) is_get: bool,
}

/// A connection that never blocks.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    parser: Parser,
    out: Vec<u8>,
    /// How much of `out` has been written.
    written: usize,
    pub(crate) waiting: VecDeque<Pending>,
}

/// What is kept of a buffer once it is empty: one burst must not hold memory for the rest of the run.
const KEPT_BYTES: usize = 1 << 20;

impl Connection {
    /// Connects to an endpoint that may still be starting, and waits for its first answer.
    ///
    /// # Errors
    /// When nothing answers within `patience`, or `gone` says that the instance has ended.
    pub fn open(
        endpoint: &Endpoint,
        patience: Duration,
        mut gone: impl FnMut() -> Option<String>,
    ) -> io::Result<Self> {
        let start = Instant::now();
        loop {
            let error = match Self::try_open(endpoint) {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            if let Some(reason) = gone() {
                return Err(io::Error::other(reason));
            }
            if start.elapsed() > patience {
                let seconds = patience.as_secs();
                return Err(io::Error::other(format!("no answer at {endpoint} within {seconds} s: {error}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn try_open(endpoint: &Endpoint) -> io::Result<Self> {
        let limit = Some(Duration::from_secs(1));
        let stream = match endpoint {
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(limit)?;
                Stream::Unix(stream)
            }
            Endpoint::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(limit)?;
                Stream::Tcp(stream)
            }
        };
        let mut connection =
            Self { stream, parser: Parser::default(), out: Vec::new(), written: 0, waiting: VecDeque::new() };
        connection.greet()?;
        match &connection.stream {
            Stream::Unix(stream) => stream.set_nonblocking(true)?,
            Stream::Tcp(stream) => stream.set_nonblocking(true)?,
        }
        Ok(connection)
    }

    /// One PING, answered: the server is there and has loaded what it had to.
    fn greet(&mut self) -> io::Result<()> {
        self.stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
        let mut answer = [0; 512];
        let mut reply = None;
        while reply.is_none() {
            let read = self.stream.read(&mut answer)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.parser.feed(&answer[..read], |one| reply = Some(one)).map_err(io::Error::other)?;
        }
        match reply {
            Some(Reply::Done) => Ok(()),
            other => Err(io::Error::other(format!("it answered PING with {other:?}"))),
        }
    }

    /// The buffer that takes the next request; [`Connection::flush`] sends it.
    pub(crate) fn queue(&mut self, pending: Pending) -> &mut Vec<u8> {
        self.waiting.push_back(pending);
        &mut self.out
    }

    /// Writes what the socket takes.
    pub(crate) fn flush(&mut self) -> Result<(), ConnectionError> {
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(0) => return Err(ConnectionError::Closed),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Err(ConnectionError::Closed);
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.written = 0;
        self.out.shrink_to(KEPT_BYTES);
        Ok(())
    }

    /// Reads what is there and gives each answer with its request to `each`, told when the answer was seen.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        now_ns: impl Fn() -> u64,
        mut each: impl FnMut(Pending, Reply, u64),
    ) -> Result<(), ConnectionError> {
        loop {
            let read = match self.stream.read(buffer) {
                Ok(0) => return Err(ConnectionError::Closed),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(ConnectionError::Closed);
                }
                Err(error) => return Err(error.into()),
            };
            let now = now_ns();
            let waiting = &mut self.waiting;
            self.parser.feed(&buffer[..read], |reply| {
                if let Some(pending) = waiting.pop_front() {
                    each(pending, reply, now);
                }
            })?;
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(buffer),
            Stream::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
