//! The initial file system as the kernel unpacks it: a cpio archive of the kind called "newc".
//!
//! Each entry is a header of eight-digit hexadecimal numbers, a name and a content, both padded to four
//! bytes.

use std::collections::BTreeSet;

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const DEVICE: u32 = 0o020_600;

/// An archive that is being written.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
}

impl Archive {
    pub(super) fn folder(&mut self, name: &str) {
        self.add(name, FOLDER, (0, 0), &[]);
    }

    pub(super) fn file(&mut self, name: &str, content: &[u8]) {
        self.add(name, FILE, (0, 0), content);
    }

    pub(super) fn program(&mut self, name: &str, content: &[u8]) {
        self.add(name, PROGRAM, (0, 0), content);
    }

    pub(super) fn device(&mut self, name: &str, major: u32, minor: u32) {
        self.add(name, DEVICE, (major, minor), &[]);
    }

    /// Adds an entry after the folders it lies in; a name that is there already is left alone.
    fn add(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        let name = name.trim_matches('/');
        if self.names.contains(name) {
            return;
        }
        if let Some((around, _)) = name.rsplit_once('/') {
            self.add(around, FOLDER, (0, 0), &[]);
        }
        self.names.insert(name.to_owned());
        self.entry(name, mode, device, content);
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        let number = self.names.len() as u32;
        // Number, mode, owner, group, links, time, length, device of the file, device it stands for, length
        // of the name with its end mark, a sum that this kind does not use.
        let (length, name_length) = (content.len() as u32, name.len() as u32 + 1);
        let header = [number, mode, 0, 0, 1, 0, length, 0, 0, device.0, device.1, name_length, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in header {
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

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_folders_come_first() {
        let mut archive = Archive::default();
        archive.program("/a/b/c", b"hello");
        archive.file("a/d", b"");
        archive.program("/a/b/c", b"again");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let at = |word: &str| text.find(word).unwrap();
        assert!(at("a\0") < at("a/b\0") && at("a/b\0") < at("a/b/c\0") && at("a/b/c\0") < at("a/d\0"));
        assert!(text.contains("hello") && !text.contains("again") && at("TRAILER!!!\0") > at("a/d\0"));
        assert_eq!(text.matches("070701").count(), 5);
    }
}
