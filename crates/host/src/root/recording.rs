//! What was read from a root, kept while it is read, so that a capture holds exactly what the audit saw.

use super::inside;
use super::tree::{Node, Tree};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Stands for the content of a file that was listed and never read: ENODATA.
const NOT_CAPTURED: i32 = 61;
const EISDIR: i32 = 21;

/// A tree that grows with every read; clones grow the same tree.
#[derive(Debug, Clone, Default)]
pub(super) struct Recording {
    tree: Arc<Mutex<Tree>>,
    is_later: bool,
}

impl Recording {
    /// The same recording, for what is read at the end of the sampling time.
    pub(super) fn later(&self) -> Recording {
        Recording { tree: Arc::clone(&self.tree), is_later: true }
    }

    pub(super) fn text(&self) -> String {
        self.with(|tree| tree.to_text())
    }

    /// Keeps a node at a path without links in it.
    pub(super) fn insert(&self, real: &str, node: Node) {
        self.with(|tree| tree.insert(self.is_later, real, node));
    }

    /// Keeps the answer of reading a file. What is absent leaves nothing.
    pub(super) fn read(&self, real: &str, answer: &io::Result<Vec<u8>>) {
        let node = match answer {
            Ok(bytes) => Node::File(String::from_utf8_lossy(bytes).into_owned()),
            Err(error) => match error.raw_os_error() {
                Some(EISDIR) => Node::Directory,
                Some(2 | 20) | None => return,
                Some(errno) => Node::Failure(errno),
            },
        };
        self.insert(real, node);
    }

    /// Keeps that something stands at a path, unless more is known of it already.
    pub(super) fn seen(&self, base: &Path, real: &str) {
        if self.with(|tree| tree.node(real).is_some()) {
            return;
        }
        let is_folder = inside(base, real).symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
        let node = match std::fs::read_link(inside(base, real)) {
            Ok(target) => Node::Link(target.to_string_lossy().into_owned()),
            Err(_) if is_folder => Node::Directory,
            Err(_) => Node::Failure(NOT_CAPTURED),
        };
        self.insert(real, node);
    }

    /// Keeps the names in a folder.
    pub(super) fn listed(&self, base: &Path, real: &str, names: &[String]) {
        self.seen(base, real);
        let folder = real.trim_end_matches('/');
        names.iter().for_each(|name| self.seen(base, &format!("{folder}/{name}")));
    }

    fn with<T>(&self, act: impl FnOnce(&mut Tree) -> T) -> T {
        act(&mut self.tree.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
