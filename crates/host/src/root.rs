//! Where facts are read from: the running system, a directory that looks like one, or a captured host.
//!
//! All paths are given as on a live system (`/sys/block/...`). Symbolic links are followed inside the root
//! only, so an absolute link in a copied tree never leads to the machine that reads it. Every read answers
//! with a [`Fact`]; nothing here knows what a path means.

pub mod binary;
pub mod garble;
mod recording;
pub mod tree;

use crate::facts::{Fact, describe_errno};
use recording::Recording;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tree::{Node, Tree, TreeError};

/// The longest text that is read from one file; /proc/cpuinfo of the largest hosts is well below it.
const TEXT_BYTES_MAX: usize = 16 << 20;
/// Symbolic links followed in one path before it counts as a loop, as in the kernel.
const LINKS_MAX: usize = 40;

/// A root that facts are read from.
#[derive(Debug, Clone)]
pub struct Root {
    source: Source,
    recording: Option<Recording>,
}

#[derive(Debug, Clone)]
enum Source {
    Directory(PathBuf),
    Capture(Tree),
}

/// Why a path could not be used.
enum Refusal {
    Absent,
    Errno(i32),
    Other(String),
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Refusal {
        match error.raw_os_error() {
            // ENOTDIR: a part of the path is a file here and a directory elsewhere.
            Some(2 | 20) => Refusal::Absent,
            Some(errno) => Refusal::Errno(errno),
            None => Refusal::Other(error.to_string()),
        }
    }
}

impl Refusal {
    fn into_fact<T>(self, path: &str) -> Fact<T> {
        let path = path.to_owned();
        match self {
            Refusal::Absent => Fact::Absent { path },
            Refusal::Errno(errno) => {
                Fact::Unreadable { path, errno: Some(errno), why: describe_errno(errno) }
            }
            Refusal::Other(why) => Fact::Unreadable { path, errno: None, why },
        }
    }
}

impl Root {
    /// A directory that holds `proc`, `sys` and so on: `/` for the running system.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Root {
        Root { source: Source::Directory(directory.into()), recording: None }
    }

    /// The same root, keeping all that is read from it from now on, for [`Root::capture`]. Only a directory
    /// can be recorded.
    #[must_use]
    pub fn recorded(mut self) -> Root {
        if matches!(self.source, Source::Directory(_)) {
            self.recording = Some(Recording::default());
        }
        self
    }

    /// Everything read since [`Root::recorded`], in the format of [`tree`]; none when it was not asked for.
    #[must_use]
    pub fn capture(&self) -> Option<String> {
        self.recording.as_ref().map(Recording::text)
    }

    /// A captured host, see [`tree`] for the format.
    ///
    /// # Errors
    /// When a line is not in that format; the error names the line.
    pub fn from_capture(text: &str) -> Result<Root, TreeError> {
        Ok(Root { source: Source::Capture(Tree::parse(text)?), recording: None })
    }

    /// Whether this is the running system, so that the kernel may be asked about what its paths name.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(&self.source, Source::Directory(base) if base == Path::new("/"))
    }

    /// The same root `wait` later: sleeps on a directory; a capture gives its second state at once.
    #[must_use]
    pub fn later(&self, wait: Duration) -> Root {
        match &self.source {
            Source::Directory(_) => {
                std::thread::sleep(wait);
                let recording = self.recording.as_ref().map(Recording::later);
                Root { source: self.source.clone(), recording }
            }
            Source::Capture(tree) => Root { source: Source::Capture(tree.later()), recording: None },
        }
    }

    /// Reads a file as text. The value has its surrounding white space removed; `raw` keeps the text as read.
    #[must_use]
    pub fn text(&self, path: &str) -> Fact<String> {
        match self.read(path) {
            Ok(raw) => Fact::Known { value: raw.trim().to_owned(), raw, path: path.to_owned() },
            Err(refusal) => refusal.into_fact(path),
        }
    }

    /// Lists a directory, names in natural order (`cpu2` before `cpu10`).
    #[must_use]
    pub fn list(&self, path: &str) -> Fact<Vec<String>> {
        match self.names(path) {
            Ok(mut names) => {
                names.sort_by(|a, b| natural_key(a).cmp(&natural_key(b)));
                Fact::Known { raw: names.join(" "), value: names, path: path.to_owned() }
            }
            Err(refusal) => refusal.into_fact(path),
        }
    }

    /// The real path behind `path`, every symbolic link followed, as seen from inside this root.
    #[must_use]
    pub fn resolve(&self, path: &str) -> Fact<String> {
        let resolved = self
            .canonical(path)
            .and_then(|real| if self.present(&real) { Ok(real) } else { Err(Refusal::Absent) });
        match resolved {
            Ok(real) => Fact::Known { raw: real.clone(), value: real, path: path.to_owned() },
            Err(refusal) => refusal.into_fact(path),
        }
    }

    /// Whether something exists there, a link's target included.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.canonical(path).is_ok_and(|real| self.present(&real))
    }

    fn present(&self, real: &str) -> bool {
        match &self.source {
            Source::Directory(base) => {
                let is_there = inside(base, real).symlink_metadata().is_ok();
                if let Some(recording) = self.recording.as_ref().filter(|_| is_there) {
                    recording.seen(base, real);
                }
                is_there
            }
            Source::Capture(tree) => tree.node(real).is_some(),
        }
    }

    fn read(&self, path: &str) -> Result<String, Refusal> {
        let bytes = match &self.source {
            // The kernel follows links itself on the running system: one call instead of one a component.
            Source::Directory(base) if self.is_live() && self.recording.is_none() => {
                read_bounded(&inside(base, path))?
            }
            Source::Directory(base) => {
                let real = self.canonical(path)?;
                let answer = read_bounded(&inside(base, &real));
                if let Some(recording) = &self.recording {
                    recording.read(&real, &answer);
                }
                answer?
            }
            Source::Capture(tree) => match tree.node(&self.canonical(path)?) {
                Some(Node::File(text)) => return Ok(text.clone()),
                Some(Node::Failure(errno)) => return Err(Refusal::Errno(*errno)),
                Some(Node::Directory | Node::Link(_)) => return Err(Refusal::Errno(21)),
                None => return Err(Refusal::Absent),
            },
        };
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn names(&self, path: &str) -> Result<Vec<String>, Refusal> {
        let real = self.canonical(path)?;
        match &self.source {
            Source::Directory(base) => {
                let mut names = Vec::new();
                for entry in std::fs::read_dir(inside(base, &real))? {
                    names.push(entry?.file_name().to_string_lossy().into_owned());
                }
                if let Some(recording) = &self.recording {
                    recording.listed(base, &real, &names);
                }
                Ok(names)
            }
            Source::Capture(tree) => match tree.node(&real) {
                Some(Node::Directory) => Ok(tree.children(&real)),
                Some(Node::Failure(errno)) => Err(Refusal::Errno(*errno)),
                Some(Node::File(_) | Node::Link(_)) | None => Err(Refusal::Absent),
            },
        }
    }

    /// Follows every link of `path`, treating an absolute target as starting at this root.
    fn canonical(&self, path: &str) -> Result<String, Refusal> {
        let mut ahead: Vec<String> = components(path).rev().map(str::to_owned).collect();
        let mut real = String::new();
        let mut links = 0;
        while let Some(part) = ahead.pop() {
            if part == ".." {
                real.truncate(real.rfind('/').unwrap_or(0));
                continue;
            }
            let next = format!("{real}/{part}");
            let Some(target) = self.link_at(&next, ahead.is_empty())? else {
                real = next;
                continue;
            };
            links += 1;
            if links > LINKS_MAX {
                return Err(Refusal::Other("too many symbolic links".to_owned()));
            }
            if target.starts_with('/') {
                real.clear();
            }
            ahead.extend(components(&target).rev().map(str::to_owned));
        }
        Ok(if real.is_empty() { "/".to_owned() } else { real })
    }

    fn link_at(&self, real: &str, is_last: bool) -> Result<Option<String>, Refusal> {
        match &self.source {
            Source::Directory(base) => match std::fs::read_link(inside(base, real)) {
                Ok(target) => {
                    let target = target.to_string_lossy().into_owned();
                    if let Some(recording) = &self.recording {
                        recording.insert(real, Node::Link(target.clone()));
                    }
                    Ok(Some(target))
                }
                // EINVAL: it exists and is no link. Whatever else is wrong shows when it is read.
                Err(error) if error.raw_os_error() == Some(13) => {
                    if let Some(recording) = &self.recording {
                        recording.insert(real, Node::Failure(13));
                    }
                    Err(Refusal::Errno(13))
                }
                Err(_) => Ok(None),
            },
            Source::Capture(tree) => match tree.node(real) {
                Some(Node::Link(target)) => Ok(Some(target.clone())),
                // A directory that may not be entered hides all that is below it.
                Some(Node::Failure(errno)) if !is_last => Err(Refusal::Errno(*errno)),
                _ => Ok(None),
            },
        }
    }
}

fn inside(base: &Path, path: &str) -> PathBuf {
    base.join(path.trim_start_matches('/'))
}

fn components(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".")
}

fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(TEXT_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Orders `cpu2` before `cpu10`: the text up to the first digits, then their value, then the whole.
fn natural_key(name: &str) -> (&str, u64, &str) {
    let start = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
    let (head, tail) = name.split_at(start);
    let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
    (head, tail[..end].parse().unwrap_or(0), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture() -> Root {
        Root::from_capture(
            "/sys/devices/pci/vda/size = 100\n\
             /sys/block/vda -> ../devices/pci/vda\n\
             /abs -> /sys/block\n\
             /loop -> /loop\n\
             /sys/devices/pci/vda/wbt ! EINVAL\n\
             /sys/kernel/debug ! EACCES\n\
             /sys/devices/cpu10/\n/sys/devices/cpu2/\n",
        )
        .unwrap()
    }

    #[test]
    fn follows_relative_and_absolute_links_inside_the_root() {
        let root = capture();
        assert_eq!(root.text("/sys/block/vda/size").value().unwrap(), "100");
        assert_eq!(root.resolve("/abs/vda").value().unwrap(), "/sys/devices/pci/vda");
        assert_eq!(root.text("/abs/vda/../vda/./size").value().unwrap(), "100");
        assert!(!root.exists("/sys/block/vdb"));
    }

    #[test]
    fn tells_absent_from_unreadable() {
        let root = capture();
        assert!(matches!(root.text("/sys/nothing"), Fact::Absent { .. }));
        assert!(matches!(root.text("/sys/block/vda/size/deeper"), Fact::Absent { .. }));
        assert!(matches!(root.text("/sys/block/vda/wbt"), Fact::Unreadable { errno: Some(22), .. }));
        assert!(matches!(
            root.text("/sys/kernel/debug/sched/preempt"),
            Fact::Unreadable { errno: Some(13), .. }
        ));
        assert!(matches!(root.text("/loop/x"), Fact::Unreadable { errno: None, .. }));
        assert!(matches!(root.text("/sys"), Fact::Unreadable { errno: Some(21), .. }));
    }

    #[test]
    fn lists_in_natural_order() {
        assert_eq!(capture().list("/sys/devices").value().unwrap(), &["cpu2", "cpu10", "pci"]);
    }

    #[test]
    fn an_absolute_link_in_a_copied_directory_does_not_lead_out() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("etc")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", folder.path().join("name")).unwrap();
        std::os::unix::fs::symlink("../../../../proc", folder.path().join("up")).unwrap();
        let root = Root::new(folder.path());
        assert!(!root.is_live());
        assert!(matches!(root.text("/name"), Fact::Absent { .. }));
        assert!(!root.exists("/up"));
        std::fs::write(folder.path().join("etc/hostname"), "copy\n").unwrap();
        assert_eq!(root.text("/name").value().unwrap(), "copy");
    }
}
