//! A started instance that is a child process of ours: how it is known to have ended, and how it is ended.

use super::Instance;
use crate::connection::Endpoint;
use overdrive_sys::child;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

/// How long it may take to end when asked.
const FAREWELL: Duration = Duration::from_secs(2);

/// A child process that answers at an endpoint, and the log that it writes; dropping it ends it.
#[derive(Debug)]
pub(super) struct Served {
    child: Child,
    endpoint: Endpoint,
    log: PathBuf,
    ended: Option<String>,
}

impl Served {
    pub(super) fn new(child: Child, endpoint: Endpoint, log: PathBuf) -> Self {
        Self { child, endpoint, log, ended: None }
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Instance for Served {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn ended(&mut self) -> Option<String> {
        if self.ended.is_none() {
            let status = self.child.try_wait().ok().flatten()?;
            self.ended = Some(last_words(&status.to_string(), &self.log));
        }
        self.ended.clone()
    }

    fn stop(&mut self) {
        if self.ended().is_none() {
            child::end(&mut self.child, FAREWELL);
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How a program ended, with the last line it wrote.
fn last_words(status: &str, log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    match text.lines().rev().find(|line| !line.trim().is_empty()) {
        Some(line) => format!("it ended ({status}): {}", line.trim()),
        None => format!("it ended ({status})"),
    }
}
