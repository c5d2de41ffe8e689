//! What the kernel's userfaultfd does and does not do, where the pager's design depends on it.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

mod pins;
mod shards;

use std::fs::OpenOptions;
use std::io::Write;

fn skip(name: &str, reason: &str) {
    eprintln!("skipped: {name}: {reason}");
    if let Some(log) = std::env::var_os("OVERDRIVE_SKIP_LOG") {
        let mut file = OpenOptions::new().append(true).create(true).open(log).unwrap();
        file.write_all(format!("{name}: {reason}\n").as_bytes()).unwrap();
    }
}
