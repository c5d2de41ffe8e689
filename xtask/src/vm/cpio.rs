//! A writer for cpio archives of the "newc" kind, the one that the kernel unpacks as its initial file system.
//!
//! A header of 110 characters (a magic number and thirteen fields of eight hexadecimal digits), the name with
//! a final NUL, the content; name and content each padded to a multiple of four bytes. An entry named
//! `TRAILER!!!` ends the archive.

const MAGIC: &str = "070701";
const TRAILER: &str = "TRAILER!!!";
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMBOLIC_LINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// An archive being written. Directories on the way to an entry are added by themselves.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    directories: Vec<String>,
    entries: u32,
}

impl Archive {
    /// A directory, and those above it.
    pub(super) fn directory(&mut self, path: &str) {
        let path = path.trim_matches('/');
        if path.is_empty() || self.directories.iter().any(|known| known == path) {
            return;
        }
        self.parents(path);
        self.directories.push(path.to_owned());
        self.entry(path, DIRECTORY | 0o755, (0, 0), &[]);
    }

    /// A regular file; `mode` is its permissions.
    pub(super) fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        let path = path.trim_matches('/');
        self.parents(path);
        self.entry(path, REGULAR | mode, (0, 0), content);
    }

    /// A symbolic link to `target`.
    pub(super) fn link(&mut self, path: &str, target: &str) {
        let path = path.trim_matches('/');
        self.parents(path);
        self.entry(path, SYMBOLIC_LINK | 0o777, (0, 0), target.as_bytes());
    }

    /// A character device.
    pub(super) fn character_device(&mut self, path: &str, major: u32, minor: u32) {
        let path = path.trim_matches('/');
        self.parents(path);
        self.entry(path, CHARACTER_DEVICE | 0o600, (major, minor), &[]);
    }

    /// The finished archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, (0, 0), &[]);
        self.bytes
    }

    fn parents(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.entries += 1;
        let links = if mode & DIRECTORY == DIRECTORY { 2 } else { 1 };
        let (inode, size, name_size) = (self.entries, content.len() as u32, name.len() as u32 + 1);
        // Inode, mode, owner, group, links, time, size, device of the file (two), device it stands for (two),
        // length of the name, a check sum that this kind of archive does not use.
        let fields = [inode, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_size, 0];
        self.bytes.extend_from_slice(MAGIC.as_bytes());
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn sample() -> Vec<u8> {
        let mut archive = Archive::default();
        archive.file("/bin/tool", 0o755, b"#!/bin/sh\n");
        archive.file("/bin/other", 0o644, b"");
        archive.link("bin/alias", "tool");
        archive.character_device("/dev/console", 5, 1);
        archive.finish()
    }

    /// Name, mode and content of every entry, read back as the kernel's documentation describes the format.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        loop {
            assert_eq!(&bytes[..6], MAGIC.as_bytes());
            let field = |n: usize| {
                let text = std::str::from_utf8(&bytes[6 + 8 * n..14 + 8 * n]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name = String::from_utf8(bytes[110..110 + name_size - 1].to_vec()).unwrap();
            assert_eq!(bytes[110 + name_size - 1], 0);
            let at = (110 + name_size).next_multiple_of(4);
            let content = bytes[at..at + size].to_vec();
            bytes = &bytes[(at + size).next_multiple_of(4)..];
            if name == TRAILER {
                assert!(bytes.is_empty());
                return entries;
            }
            entries.push((name, mode, content));
        }
    }

    #[test]
    fn what_was_put_in_is_found_again_with_parents_first_and_once() {
        let entries = read(&sample());
        let names: Vec<&str> = entries.iter().map(|entry| entry.0.as_str()).collect();
        assert_eq!(names, ["bin", "bin/tool", "bin/other", "bin/alias", "dev", "dev/console"]);
        assert_eq!(entries[0].1, 0o040_755);
        assert_eq!(entries[1].1, 0o100_755);
        assert_eq!(entries[1].2, b"#!/bin/sh\n");
        assert_eq!((entries[3].1, entries[3].2.as_slice()), (0o120_777, &b"tool"[..]));
        assert_eq!(entries[5].1, 0o020_600);
    }

    #[test]
    fn cpio_itself_reads_it() {
        let Ok(mut child) = Command::new("cpio")
            .arg("-t")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
        else {
            // The reader above checks the same archive without the program.
            return;
        };
        child.stdin.take().unwrap().write_all(&sample()).unwrap();
        let output = child.wait_with_output().unwrap();
        let names = String::from_utf8(output.stdout).unwrap();
        assert_eq!(names, "bin\nbin/tool\nbin/other\nbin/alias\ndev\ndev/console\n");
    }
}
