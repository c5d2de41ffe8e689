//! The journal: one JSON object a line, numbered and checksummed; docs/formats.md describes it.
//!
//! Here it is text only: encoding, and reading what a crash may have left. A torn last line never happened; a
//! damaged line elsewhere is reported, because what it said is lost.

use super::{Device, Kind};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// One fact about the changes of this host, in the order they became true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// A set of changes begins.
    Begin {
        /// Its number.
        set: u64,
        /// When, RFC 3339.
        at: String,
        /// The boot, by /proc/sys/kernel/random/boot_id.
        boot_id: String,
        /// The host, by /etc/machine-id.
        machine_id: String,
        /// The version that writes.
        version: String,
        /// Whether files are written that make it stay.
        persist: bool,
        /// What the set as a whole is for, such as `swap`, when somebody else than `tune` made it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        purpose: Option<String>,
    },
    /// A write is about to be tried.
    Intent {
        /// The set.
        set: u64,
        /// The number within the set.
        change: u32,
        /// The rule that asks for it.
        rule: String,
        /// The letter of its class.
        class: String,
        /// What is written to.
        what: Kind,
        /// Where.
        path: String,
        /// What stands there, as read; null: no file.
        old: Option<String>,
        /// What is to stand there.
        new: Option<String>,
        /// The device.
        device: Option<Device>,
        /// Paths that the kernel may change along, and what stands there.
        side: Vec<Reading>,
    },
    /// What became of it.
    Result {
        /// The set.
        set: u64,
        /// The number within the set.
        change: u32,
        /// The errno, when the write was refused.
        errno: Option<i32>,
        /// What stands there now.
        read: Option<String>,
        /// The same of the other paths.
        side: Vec<Reading>,
    },
    /// Values are about to be written back.
    UndoIntent {
        /// The set.
        set: u64,
        /// The number within the set.
        change: u32,
        /// Which.
        writes: Vec<Reading>,
    },
    /// What became of that.
    UndoResult {
        /// The set.
        set: u64,
        /// The number within the set.
        change: u32,
        /// In a word.
        outcome: Undone,
        /// What stands there now.
        read: Option<String>,
        /// The same of the other paths, by the names they were changed under, when it was refused.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        side: Vec<Reading>,
    },
}

/// A path and its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Where.
    pub path: String,
    /// What stands or shall stand there; null: no file.
    pub text: Option<String>,
}

/// How the undoing of a change ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undone {
    /// What stood there stands there again.
    Restored,
    /// It stood there already.
    Already,
    /// A later set changed the same path; its value stays, and it will restore the right one.
    Covered,
    /// Somebody else changed it since; their value stays.
    Drift,
    /// A reboot took the change back.
    Rebooted,
    /// The kernel refused; it can be tried again.
    Refused,
    /// The device is not there; it can be tried again.
    Gone,
}

impl Undone {
    /// Whether the change is dealt with for good.
    #[must_use]
    pub fn is_final(self) -> bool {
        !matches!(self, Undone::Refused | Undone::Gone)
    }
}

#[derive(Serialize, Deserialize)]
struct Numbered<R> {
    seq: u64,
    record: R,
}

/// How every line opens.
const START: &str = "{\"seq\":";
const SUM: &str = ",\"sum\":\"";
const SUM_DIGITS: usize = 16;

fn sum(body: &str) -> String {
    Sha256::digest(body.as_bytes()).iter().take(SUM_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// A record as a line, its end included.
///
/// # Errors
/// Never for records made here; the JSON writer's words otherwise.
pub fn encode(seq: u64, record: &Record) -> Result<String, String> {
    let record = record.clone();
    let body = serde_json::to_string(&Numbered { seq, record }).map_err(|error| error.to_string())?;
    let open = body.strip_suffix('}').unwrap_or(&body);
    Ok(format!("{open}{SUM}{}\"}}\n", sum(open)))
}

/// The number and record of a line; none: it is not as it was written. A record may be whole and of a kind
/// that only a later version knows.
fn decode(line: &str) -> Result<Numbered<Result<Record, String>>, String> {
    let (open, rest) = line.rsplit_once(SUM).ok_or("no checksum")?;
    if rest.strip_suffix("\"}") != Some(&sum(open)) {
        return Err("its checksum does not match".to_owned());
    }
    let whole = format!("{open}}}");
    let Numbered { seq, record }: Numbered<serde_json::Value> =
        serde_json::from_str(&whole).map_err(|error| error.to_string())?;
    let record = serde_json::from_value(record);
    Ok(Numbered { seq, record: record.map_err(|error| format!("not known to this version: {error}")) })
}

/// A line that cannot be relied on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

/// A journal as found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Journal {
    /// What can be relied on.
    pub records: Vec<Record>,
    /// The number of the next record.
    pub next_seq: u64,
    /// Where the next line belongs: behind the last whole one.
    pub end: u64,
    /// Whether an unfinished line stands behind that.
    pub torn: bool,
    /// What cannot be relied on, elsewhere.
    pub damage: Vec<Damage>,
    /// Some of that is whole: a later version wrote it, and knows what it stands for.
    pub is_newer: bool,
    /// Nothing in it looks as if a journal had ever been there.
    pub is_foreign: bool,
}

/// Reads a journal, whatever a crash has made of it.
#[must_use]
pub fn read(bytes: &[u8]) -> Journal {
    let mut journal = Journal { next_seq: 1, ..Journal::default() };
    let mut at = 0;
    let mut number = 0;
    while at < bytes.len() {
        number += 1;
        let end = bytes[at..].iter().position(|&byte| byte == b'\n').map(|length| at + length);
        let line = String::from_utf8_lossy(&bytes[at..end.unwrap_or(bytes.len())]);
        let is_last = end.is_none_or(|end| end + 1 == bytes.len());
        match end.map(|_| decode(&line)) {
            Some(Ok(Numbered { seq, record })) => {
                if seq != journal.next_seq {
                    let why = format!("record {seq} found, {} wanted", journal.next_seq);
                    journal.damage.push(Damage { line: number, why });
                }
                journal.next_seq = seq.saturating_add(1).max(journal.next_seq);
                journal.is_newer |= record.is_err();
                match record {
                    Ok(record) => journal.records.push(record),
                    Err(why) => journal.damage.push(Damage { line: number, why }),
                }
            }
            None | Some(Err(_)) if is_last => {
                journal.torn = true;
                break;
            }
            Some(Err(why)) => journal.damage.push(Damage { line: number, why }),
            None => {}
        }
        at = end.map_or(bytes.len(), |end| end + 1);
        journal.end = at as u64;
    }
    let is_start = bytes.iter().zip(START.as_bytes()).all(|(a, b)| a == b);
    journal.is_foreign = !is_start && journal.records.is_empty() && !journal.is_newer;
    journal
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(change: u32) -> Record {
        let read = Some("none [\"a\"]\n".to_owned());
        Record::UndoResult { set: 1, change, outcome: Undone::Restored, read, side: Vec::new() }
    }

    fn text(count: u32) -> String {
        (0..count).map(|n| encode(u64::from(n) + 1, &record(n)).unwrap()).collect()
    }

    #[test]
    fn a_journal_cut_anywhere_reads_as_its_whole_lines() {
        let whole = text(4);
        for cut in 0..=whole.len() {
            let journal = read(&whole.as_bytes()[..cut]);
            assert_eq!(journal.damage, []);
            assert_eq!(journal.records.len(), whole[..cut].matches('\n').count(), "cut at {cut}");
            assert_eq!(journal.torn, cut as u64 != journal.end);
        }
    }

    #[test]
    fn every_line_is_json() {
        for line in text(3).lines() {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(value["sum"].is_string() && value["record"]["kind"] == "undo_result", "{line}");
        }
    }

    #[test]
    fn damage_elsewhere_is_reported_by_line_and_the_rest_is_kept() {
        let whole = text(4);
        let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
        lines[1] = lines[1].replace("\"change\":1", "\"change\":7");
        let journal = read((lines.join("\n") + "\n").as_bytes());
        assert_eq!(journal.records.len(), 3);
        assert_eq!(journal.damage[0].line, 2);
        lines.remove(1);
        let journal = read((lines.join("\n") + "\n").as_bytes());
        assert_eq!(journal.damage, [Damage { line: 2, why: "record 3 found, 2 wanted".to_owned() }]);
    }

    proptest! {
        #[test]
        fn never_panics_and_a_flipped_byte_is_never_believed(at in 0usize..600, bit in 0u8..8) {
            let mut bytes = text(3).into_bytes();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let journal = read(&bytes);
            let truth: Vec<Record> = (0..3).map(record).collect();
            prop_assert!(journal.records.iter().all(|found| truth.contains(found)));
            prop_assert!(journal.records.len() < 3);
            prop_assert!(journal.torn || !journal.damage.is_empty());
        }
    }

    #[test]
    fn a_whole_line_of_a_later_version_is_damage_wherever_it_stands() {
        let open = "{\"seq\":3,\"record\":{\"kind\":\"later\"}";
        let line = format!("{open},\"sum\":\"{}\"}}\n", sum(open));
        let journal = read((text(2) + &line).as_bytes());
        assert_eq!((journal.records.len(), journal.damage[0].line, journal.torn), (2, 3, false));
        assert_eq!(journal.end, (text(2) + &line).len() as u64);
        assert!(journal.is_newer && journal.damage[0].why.contains("later"), "{:?}", journal.damage);
    }

    #[test]
    fn what_was_never_a_journal_is_told_from_one_that_a_crash_cut() {
        let whole = text(2);
        for cut in 0..=whole.len() {
            assert!(!read(&whole.as_bytes()[..cut]).is_foreign, "cut at {cut}");
        }
        for text in ["notes\n", "x", "{\"schema\":1}\n", "\n"] {
            assert!(read(text.as_bytes()).is_foreign, "{text}");
        }
    }
}
