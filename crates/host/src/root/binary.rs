//! Files that are no text: configuration space, latency requests, packed text. In a capture they stand as hex
//! digits, packed text as text.
//!
//! ```text
//! /dev/cpu_dma_latency = 00943577            four bytes
//! /dev/nvme0/identify = @77 05 @4096         zeros but for byte 77, 4096 bytes in all
//! ```

use super::tree::Node;
use super::{Root, Source, inside};
use crate::facts::parse::Unexpected;
use crate::facts::{Fact, describe_errno};
use std::io::Read;

const ENOENT: i32 = 2;

/// A packed text that unpacks to more is not read: a kernel's configuration has a quarter of a megabyte.
const UNPACKED_MAX: u64 = 4 << 20;

/// No answer of a device is longer.
const BYTES_MAX: usize = 16 << 10;

impl Root {
    /// Reads at most `most` bytes of a file that is no text.
    #[must_use]
    pub fn bytes(&self, path: &str, most: usize) -> Fact<Vec<u8>> {
        let Source::Directory(base) = &self.source else {
            return self.text(path).parse(parse_hex).map(|bytes| {
                let end = bytes.len().min(most);
                bytes[..end].to_vec()
            });
        };
        let real = match self.resolve(path) {
            Fact::Known { value, .. } => value,
            other => return other.map(|_| Vec::new()),
        };
        let mut bytes = Vec::new();
        let read = std::fs::File::open(inside(base, &real))
            .and_then(|file| file.take(most as u64).read_to_end(&mut bytes));
        self.keep_bytes(&real, read.as_ref().map(|_| bytes.as_slice()));
        match read {
            Ok(_) => Fact::known(bytes.clone(), show_hex(&bytes), path),
            Err(error) => Fact::Unreadable {
                path: path.to_owned(),
                errno: error.raw_os_error(),
                why: error.raw_os_error().map_or_else(|| error.to_string(), describe_errno),
            },
        }
    }

    /// Reads the lines of a gzip file that `keep` takes; in a capture they stand as text.
    #[must_use]
    pub fn unpacked(&self, path: &str, keep: &dyn Fn(&str) -> bool) -> Fact<String> {
        let Source::Directory(base) = &self.source else { return self.text(path) };
        let real = match self.resolve(path) {
            Fact::Known { value, .. } => value,
            other => return other,
        };
        match std::fs::File::open(inside(base, &real)).and_then(unpack) {
            Ok(text) => {
                let kept: String =
                    text.lines().filter(|line| keep(line)).map(|line| format!("{line}\n")).collect();
                if let Some(recording) = &self.recording {
                    recording.insert(&real, Node::File(kept.clone()));
                }
                Fact::known(kept.trim().to_owned(), kept, path)
            }
            Err(error) => {
                self.keep_bytes(&real, Err(&error));
                let errno = error.raw_os_error();
                let why = errno.map_or_else(|| error.to_string(), describe_errno);
                Fact::Unreadable { path: path.to_owned(), errno, why }
            }
        }
    }

    /// Keeps in a capture what was read, or the error of reading it, at a path without links in it.
    pub(crate) fn keep_bytes(&self, real: &str, answer: Result<&[u8], &std::io::Error>) {
        let Some(recording) = &self.recording else { return };
        let node = match answer {
            Ok(bytes) => Node::File(show_hex(bytes)),
            Err(error) => match error.raw_os_error() {
                Some(ENOENT) | None => return,
                Some(errno) => Node::Failure(errno),
            },
        };
        recording.insert(real, node);
    }
}

fn unpack(file: std::fs::File) -> std::io::Result<String> {
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(file).take(UNPACKED_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > UNPACKED_MAX {
        return Err(std::io::Error::other(format!("larger than {UNPACKED_MAX} bytes unpacked")));
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The bytes as a capture holds them; zeros are skipped over by `@OFFSET`.
#[must_use]
pub fn show_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    const ZEROS_WORTH_SKIPPING: usize = 8;
    let mut text = String::new();
    let mut at = 0;
    while at < bytes.len() {
        let zeros = bytes[at..].iter().take_while(|&&byte| byte == 0).count();
        if zeros >= ZEROS_WORTH_SKIPPING {
            at += zeros;
            let _ = write!(text, " @{at} ");
        } else {
            let _ = write!(text, "{:02x}", bytes[at]);
            at += 1;
        }
    }
    text.trim().to_owned()
}

/// Reads hex digits, blanks anywhere between bytes, and `@OFFSET` for zeros up to there.
fn parse_hex(text: &str) -> Result<Vec<u8>, Unexpected> {
    let fail = || Unexpected::new(text, "pairs of hex digits, or @ and an offset");
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        if let Some(offset) = word.strip_prefix('@') {
            let offset: usize = offset.parse().map_err(|_| fail())?;
            if offset < bytes.len() || offset > BYTES_MAX {
                return Err(fail());
            }
            bytes.resize(offset, 0);
            continue;
        }
        if word.len() % 2 != 0 || !word.is_ascii() || bytes.len() + word.len() / 2 > BYTES_MAX {
            return Err(fail());
        }
        for at in (0..word.len()).step_by(2) {
            bytes.push(u8::from_str_radix(&word[at..at + 2], 16).map_err(|_| fail())?);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_bytes_from_a_capture_and_a_directory() {
        let root = Root::from_capture("/a = @2 05ff @6\n/b = 0g\n/c = @5 @2\n").unwrap();
        assert_eq!(root.bytes("/a", 100).value().unwrap(), &[0, 0, 5, 255, 0, 0]);
        assert_eq!(root.bytes("/a", 3).value().unwrap(), &[0, 0, 5]);
        assert!(root.bytes("/b", 9).value().is_none() && root.bytes("/c", 9).value().is_none());
        assert!(root.bytes("/d", 9).is_absent());
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x"), [0x94, 0, 0xff]).unwrap();
        assert_eq!(Root::new(folder.path()).bytes("/x", 2).value().unwrap(), &[0x94, 0]);
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(bytes in prop::collection::vec(prop::sample::select(vec![0u8, 0, 0, 7, 255]), 0..200)) {
            prop_assert_eq!(parse_hex(&show_hex(&bytes)).unwrap(), bytes);
        }

        #[test]
        fn nothing_panics(text in ".{0,40}") {
            let _ = parse_hex(&text);
        }
    }
}
