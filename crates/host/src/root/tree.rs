//! A captured host: the parts of /proc, /sys and /dev that facts are read from, in one text file.
//!
//! One entry a line, paths absolute, `#` opens a comment line:
//! ```text
//! /sys/block/vda/queue/rotational = 1            a file of one line
//! /sys/block/vda -> ../devices/pci0000:00/vda    a symbolic link
//! /sys/block/vda/queue/wbt_lat_usec ! EINVAL     a file that exists and cannot be read, and why
//! /sys/block/vda/holders/                        a directory, where no entry below implies it
//! /proc/swaps |                                  a file of several lines,
//! |Filename  Type  Size  Used  Priority          each after a bar
//! later /proc/stat |                             what the file says at the end of the sampling time
//! |cpu  10 0 10 80 0 0 0 0 0 0
//! /sys/devices/system/cpu/cpu{0..3}/online = {}  several files at once; {} is the number
//! ```
//! Non-text content, permissions and ownership are left out: no fact depends on them.

use overdrive_sys::errno_name;
use std::collections::BTreeMap;
use thiserror::Error;

/// A line that is not in the format.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TreeError {
    /// Nothing before it was an entry either.
    #[error("not a host capture; wanted a file that overdrive audit --capture wrote (line {line}: '{text}')")]
    Other {
        /// Counted from 1.
        line: usize,
        /// How the line begins, escaped.
        text: String,
    },
    /// An entry of a capture.
    #[error("line {line} of the host capture: '{text}' found, {wanted} wanted")]
    Entry {
        /// Counted from 1.
        line: usize,
        /// How the line begins, escaped.
        text: String,
        /// What should stand there.
        wanted: &'static str,
    },
}

/// Characters of a wrong line that are shown: a file of another kind may be one line of many MiB.
const SHOWN_CHARS: usize = 60;

/// Entries that one line may stand for: more CPUs than any host has.
const RANGE_MAX: u32 = 65_536;

/// What stands at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A file and its text.
    File(String),
    /// A symbolic link and its target.
    Link(String),
    /// A file or directory that answers with this errno.
    Failure(i32),
    /// A directory.
    Directory,
}

/// The parsed capture.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    nodes: BTreeMap<String, Node>,
    later: BTreeMap<String, Node>,
}

impl Tree {
    /// Reads a capture.
    ///
    /// # Errors
    /// At the first line that is not in the format.
    pub fn parse(text: &str) -> Result<Tree, TreeError> {
        let mut tree = Tree::default();
        tree.nodes.insert("/".to_owned(), Node::Directory);
        let mut lines = text.lines().enumerate().peekable();
        while let Some((index, line)) = lines.next() {
            let is_empty = tree.nodes.len() == 1 && tree.later.is_empty();
            let fail = |wanted| {
                let text = line.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
                match is_empty {
                    true => TreeError::Other { line: index + 1, text },
                    false => TreeError::Entry { line: index + 1, text, wanted },
                }
            };
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let (is_later, entry) = match line.strip_prefix("later ") {
                Some(rest) => (true, rest),
                None => (false, line),
            };
            if !entry.starts_with('/') {
                return Err(fail("a path that starts with '/'"));
            }
            let (path, node) = if let Some(path) = entry.strip_suffix(" |") {
                let mut content = String::new();
                while let Some((_, body)) = lines.next_if(|(_, next)| next.starts_with('|')) {
                    content.push_str(&body[1..]);
                    content.push('\n');
                }
                (path, Node::File(content))
            } else {
                one_line(entry).map_err(fail)?
            };
            for (path, node) in expand(path.trim_end_matches('/'), node).map_err(fail)? {
                tree.insert(is_later, &path, node);
            }
        }
        Ok(tree)
    }

    /// Puts a node at a path, now or at the end of the sampling time; folders above it come by themselves.
    pub(super) fn insert(&mut self, is_later: bool, path: &str, node: Node) {
        let mut parent = path;
        while let Some(cut) = parent.rfind('/').filter(|&cut| cut > 0) {
            parent = &path[..cut];
            self.nodes.entry(parent.to_owned()).or_insert(Node::Directory);
        }
        let map = if is_later { &mut self.later } else { &mut self.nodes };
        map.insert(path.to_owned(), node);
    }

    /// The text that parses to this tree. Paths that the format cannot hold are left out; a last line without
    /// its end gets one.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (prefix, map) in [("", &self.nodes), ("later ", &self.later)] {
            for (path, node) in map.iter().filter(|(path, _)| is_plain(path)) {
                if *node != Node::Directory || (prefix.is_empty() && self.children(path).is_empty()) {
                    text += prefix;
                    text += path;
                    push_node(&mut text, path, node);
                }
            }
        }
        text
    }

    /// The same host at the end of the sampling time.
    #[must_use]
    pub fn later(&self) -> Tree {
        let mut tree = self.clone();
        tree.nodes.append(&mut tree.later);
        tree
    }

    /// What stands at a path without links in it.
    #[must_use]
    pub fn node(&self, path: &str) -> Option<&Node> {
        self.nodes.get(path)
    }

    /// Names directly below a directory.
    #[must_use]
    pub fn children(&self, directory: &str) -> Vec<String> {
        let prefix = format!("{}/", directory.trim_end_matches('/'));
        self.nodes
            .range(prefix.clone()..)
            .take_while(|(path, _)| path.starts_with(&prefix))
            .map(|(path, _)| &path[prefix.len()..])
            .filter(|name| !name.is_empty() && !name.contains('/'))
            .map(str::to_owned)
            .collect()
    }
}

/// Whether a path may stand before a mark without being taken for something else.
fn is_plain(path: &str) -> bool {
    path != "/"
        && !path.contains(['\n', '\r', '{'])
        && ![" = ", " -> ", " ! "].iter().any(|mark| path.contains(mark))
}

fn push_node(text: &mut String, path: &str, node: &Node) {
    match node {
        Node::File(content) => {
            let body = content.strip_suffix('\n').unwrap_or(content);
            if body.contains(['\n', '\r']) || path.ends_with(" |") {
                *text += " |\n";
                for line in body.split('\n') {
                    *text += "|";
                    *text += line;
                    *text += "\n";
                }
            } else if body.is_empty() {
                *text += " =\n";
            } else {
                *text += " = ";
                *text += body;
                *text += "\n";
            }
        }
        Node::Link(target) => *text += &format!(" -> {target}\n"),
        Node::Failure(errno) => match errno_name(*errno) {
            "errno" => *text += &format!(" ! {errno}\n"),
            name => *text += &format!(" ! {name}\n"),
        },
        Node::Directory => *text += "/\n",
    }
}

fn one_line(entry: &str) -> Result<(&str, Node), &'static str> {
    const WANTED: &str = "'PATH = text', 'PATH -> target', 'PATH ! ERRNO', 'PATH/' or 'PATH |'";
    let first = [" = ", " -> ", " ! "]
        .iter()
        .filter_map(|mark| entry.find(mark).map(|at| (at, *mark)))
        .min_by_key(|&(at, _)| at);
    let Some((at, mark)) = first else {
        // An editor that strips trailing blanks turns "PATH = " into "PATH =": an empty file.
        return match entry.strip_suffix(" =") {
            Some(path) => Ok((path, Node::File("\n".to_owned()))),
            None if entry.ends_with('/') => Ok((entry, Node::Directory)),
            None => Err(WANTED),
        };
    };
    let (path, rest) = (&entry[..at], &entry[at + mark.len()..]);
    let node = match mark {
        " = " => Node::File(format!("{rest}\n")),
        " -> " => Node::Link(rest.to_owned()),
        _ => Node::Failure(errno_by_name(rest.trim()).ok_or("the name of an errno, such as EINVAL")?),
    };
    Ok((path, node))
}

/// The entries that `{A..B}` in a path stands for; without it, the one.
fn expand(path: &str, node: Node) -> Result<Vec<(String, Node)>, &'static str> {
    let Some((before, rest)) = path.split_once('{') else { return Ok(vec![(path.to_owned(), node)]) };
    const WANTED: &str = "a range such as {0..7} in the path";
    let (range, after) = rest.split_once('}').ok_or(WANTED)?;
    let (first, last) = range.split_once("..").ok_or(WANTED)?;
    let (first, last): (u32, u32) = (first.parse().map_err(|_| WANTED)?, last.parse().map_err(|_| WANTED)?);
    if last.checked_sub(first).is_none_or(|count| count >= RANGE_MAX) {
        return Err(WANTED);
    }
    let fill = |text: &str, number: u32| text.replace("{}", &number.to_string());
    let entry = |number| {
        let node = match &node {
            Node::File(text) => Node::File(fill(text, number)),
            Node::Link(target) => Node::Link(fill(target, number)),
            other => other.clone(),
        };
        (format!("{before}{number}{after}"), node)
    };
    Ok((first..=last).map(entry).collect())
}

fn errno_by_name(name: &str) -> Option<i32> {
    // A capture holds the number where there is no name for it.
    if let Some(errno) = name.parse().ok().filter(|errno| (1..=133).contains(errno)) {
        return Some(errno);
    }
    (1..=133).find(|&errno| errno_name(errno) == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_every_kind_of_entry() {
        let tree = Tree::parse(
            "# a host\n/a/one = 1\n/a/text |\n|first\n|\n|third\n/a/link -> ../b\n\
             /a/bad ! EACCES\n/e/\n/a/no =\nlater /a/one = 2\n",
        )
        .unwrap();
        assert_eq!(tree.node("/a/one"), Some(&Node::File("1\n".to_owned())));
        assert_eq!(tree.node("/a/text"), Some(&Node::File("first\n\nthird\n".to_owned())));
        assert_eq!(tree.node("/a/link"), Some(&Node::Link("../b".to_owned())));
        assert_eq!(tree.node("/a/bad"), Some(&Node::Failure(13)));
        assert_eq!(tree.node("/a/no"), Some(&Node::File("\n".to_owned())));
        assert_eq!(tree.children("/a"), ["bad", "link", "no", "one", "text"]);
        assert_eq!(tree.children("/"), ["a", "e"]);
        assert_eq!(tree.later().node("/a/one"), Some(&Node::File("2\n".to_owned())));
    }

    #[test]
    fn one_line_may_stand_for_several_files() {
        let tree = Tree::parse("/cpu{0..2}/id = {}\n/l{3..3} -> ../x{}\n").unwrap();
        assert_eq!(tree.children("/"), ["cpu0", "cpu1", "cpu2", "l3"]);
        assert_eq!(tree.node("/cpu2/id"), Some(&Node::File("2\n".to_owned())));
        assert_eq!(tree.node("/l3"), Some(&Node::Link("../x3".to_owned())));
    }

    #[test]
    fn names_the_line_that_is_wrong() {
        for (text, line) in [
            ("/a = 1\nnonsense", 2),
            ("/a ! EWHAT", 1),
            ("/just/a/path", 1),
            ("|stray", 1),
            ("/a{2..1} = x", 1),
        ] {
            let error = Tree::parse(text).unwrap_err();
            let (TreeError::Other { line: found, .. } | TreeError::Entry { line: found, .. }) = &error;
            assert_eq!(*found, line, "{text}: {error}");
        }
    }

    #[test]
    fn a_file_of_another_kind_is_named_as_such_and_not_shown_whole() {
        let long = "\u{1b}[2Jx".repeat(1 << 20);
        let error = Tree::parse(&format!("# no host\n{long}")).unwrap_err().to_string();
        assert!(error.starts_with("not a host capture; wanted a file that overdrive audit"), "{error}");
        let error = [error, Tree::parse(&format!("/a = 1\n{long}")).unwrap_err().to_string()];
        for error in error {
            assert!(error.contains("line 2") && error.len() < 300 && !error.contains('\u{1b}'), "{error}");
        }
    }

    #[test]
    fn a_tree_written_as_text_reads_back() {
        let text = "/a/bad ! EACCES\n/a/dir ! 21\n/a/link -> ../b\n/a/no =\n/a/one = 1\n/a/text |\n|first\n|\n|third\n\
                    /e/\nlater /a/one = 2\n";
        assert_eq!(Tree::parse(text).unwrap().to_text(), text);
    }

    proptest! {
        #[test]
        fn whatever_parses_survives_being_written(text in "([/a-c|=! >.0-2-]{0,12}\n?){0,8}") {
            if let Ok(tree) = Tree::parse(&text) {
                let again = Tree::parse(&tree.to_text());
                prop_assert_eq!(again.map(|again| again.to_text()), Ok(tree.to_text()));
            }
        }

        #[test]
        fn never_panics(text in "([/a-c|=! >{}.0-2-]{0,12}\n?){0,8}") {
            if let Ok(tree) = Tree::parse(&text) {
                let _ = (tree.children("/"), tree.later());
            }
        }
    }
}
