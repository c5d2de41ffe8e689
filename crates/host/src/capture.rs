//! A host in one text file: what an audit read, and what it asked of the kernel about the target.
//!
//! The file is a tree as `root::tree` reads it. The target's own identity is not in `/proc` or `/sys`; it
//! travels as one more file in the tree.

use crate::facts::Fact;
use crate::root::Root;
use crate::root::tree::TreeError;
use crate::target::{DataMap, DeviceNumber, FileKind, FileSystem, TargetIdentity, folder_by_name, last};
use overdrive_sys::volume::file_system_name;
use std::collections::BTreeMap;
use thiserror::Error;

/// Where the target's identity stands in a capture.
const TARGET_PATH: &str = "/.overdrive/target";

/// The first line of a capture, which promises the last one. Earlier captures promise none and are read as
/// they are.
const HEAD: &str = "# A host as Overdrive read it, up to '# end'; format: docs/formats.md\n";

/// The last line of a capture.
const END: &str = "\n# end";

/// Why a capture cannot be read, or a target not be found in a root.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CaptureError {
    /// It has no last line.
    #[error("the capture was cut short: it ends after line {0}; wanted '# end' as its last line")]
    Cut(usize),
    /// It is not in the format.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The stored identity is not one.
    #[error("{TARGET_PATH} in the capture: {0}")]
    Identity(String),
    /// The block device is not there.
    #[error("{0}: no block device of this name in the host that is read; wanted one of {1}")]
    NoDevice(String, String),
}

/// The text of a capture: all that `root` recorded, and the target.
#[must_use]
pub fn text(root: &Root, identity: Option<&TargetIdentity>) -> String {
    let mut text = HEAD.to_owned();
    if let Some(identity) = identity {
        text += &format!("{TARGET_PATH} |\n");
        for (key, value) in identity_lines(identity) {
            text += &format!("|{key}={}\n", value.replace('\n', " "));
        }
    }
    text + root.capture().unwrap_or_default().trim_end_matches('\n') + END + "\n"
}

/// The host of a capture.
///
/// # Errors
/// When its end is missing, or it is no capture.
pub fn read(text: &str) -> Result<Root, CaptureError> {
    let is_without_end = text.starts_with(HEAD) && !text.trim_end().ends_with(END);
    if is_without_end || HEAD.starts_with(text) {
        return Err(CaptureError::Cut(text.lines().count()));
    }
    Ok(Root::from_capture(text)?)
}

fn identity_lines(identity: &TargetIdentity) -> Vec<(&'static str, String)> {
    let kind = match identity.kind {
        FileKind::Block => "block",
        FileKind::Directory => "directory",
        _ => "file",
    };
    let mut lines = vec![
        ("kind", kind.to_owned()),
        ("device", identity.device.to_string()),
        ("special", identity.special.to_string()),
        ("size_bytes", identity.size_bytes.to_string()),
    ];
    lines.extend(identity.path.clone().map(|path| ("path", path)));
    if let Some(space) = identity.space.value() {
        lines.push(("fs_magic", space.magic.to_string()));
        lines.push(("fs_total_bytes", space.total_bytes.to_string()));
        lines.push(("fs_free_bytes", space.free_bytes.to_string()));
    }
    if let Some(data) = identity.data.value() {
        lines.push(("data_bytes", data.data_bytes.to_string()));
        lines.push(("hole_bytes", data.hole_bytes.to_string()));
        lines.push(("hole_count", data.hole_count.to_string()));
    }
    for (key, why) in [("fs_why", identity.space.why()), ("data_why", identity.data.why())] {
        lines.extend(why.filter(|why| why != "not present").map(|why| (key, why)));
    }
    lines
}

/// The target that a capture was made with; none when it has none.
///
/// # Errors
/// When its identity is stored and cannot be understood.
pub fn target(root: &Root) -> Result<Option<TargetIdentity>, CaptureError> {
    let fact = root.text(TARGET_PATH);
    let Some(text) = fact.value() else { return Ok(None) };
    let fields: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once('=')).collect();
    let number = |key: &'static str| -> Result<u64, CaptureError> {
        let wrong = || CaptureError::Identity(format!("{key}: a whole number wanted"));
        fields.get(key).and_then(|text| text.parse().ok()).ok_or_else(wrong)
    };
    let device = |key: &'static str| -> Result<DeviceNumber, CaptureError> {
        let wrong = || CaptureError::Identity(format!("{key}: MAJOR:MINOR wanted"));
        fields.get(key).and_then(|text| crate::target::device_number(text)).ok_or_else(wrong)
    };
    let path = fields.get("path").map(|&path| path.to_owned());
    let told = path.clone().unwrap_or_default();
    let space = match (fields.get("fs_magic"), fields.get("fs_why")) {
        (Some(_), _) => {
            let magic = number("fs_magic")?;
            let (total_bytes, free_bytes) = (number("fs_total_bytes")?, number("fs_free_bytes")?);
            let space = FileSystem { magic, name: file_system_name(magic), total_bytes, free_bytes };
            Fact::known(space, "statfs", told.clone())
        }
        (None, why) => without(&told, why.copied()),
    };
    let data = match (fields.get("data_bytes"), fields.get("data_why")) {
        (Some(_), _) => {
            let (data_bytes, hole_bytes) = (number("data_bytes")?, number("hole_bytes")?);
            let data = DataMap { data_bytes, hole_bytes, hole_count: number("hole_count")? };
            Fact::known(data, "seek for data", told.clone())
        }
        (None, why) => without(&told, why.copied()),
    };
    let kind = match fields.get("kind").copied() {
        Some("block") => FileKind::Block,
        Some("directory") => FileKind::Directory,
        Some("file") => FileKind::Regular,
        _ => return Err(CaptureError::Identity("kind: block, directory or file wanted".to_owned())),
    };
    let size_bytes = number("size_bytes")?;
    Ok(Some(TargetIdentity {
        path,
        kind,
        device: device("device")?,
        special: device("special")?,
        size_bytes,
        space,
        data,
    }))
}

/// What was not there, or not to be had for the reason given.
fn without<T>(path: &str, why: Option<&str>) -> Fact<T> {
    let path = path.to_owned();
    match why {
        Some(why) => Fact::Unreadable { path, errno: None, why: why.to_owned() },
        None => Fact::Absent { path },
    }
}

/// A block device of another host, by its name there.
///
/// # Errors
/// When that host has no such device; the error lists those it has.
pub fn device_named(root: &Root, name: &str) -> Result<TargetIdentity, CaptureError> {
    let short = name.strip_prefix("/dev/").unwrap_or(name);
    let folder =
        folder_by_name(root, short).or_else(|| root.resolve(&format!("/sys/block/{short}")).value().cloned());
    let number = folder.as_ref().and_then(|folder| {
        let number = root.text(&format!("{folder}/dev"));
        Some((folder.clone(), crate::target::device_number(number.value()?)?))
    });
    let Some((folder, special)) = number else {
        let names = root.list("/sys/block").value().cloned().unwrap_or_default();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(CaptureError::NoDevice(name.to_owned(), names));
    };
    let path = format!("/dev/{}", last(&folder));
    let sectors = root.text(&format!("{folder}/size")).value().and_then(|text| text.parse::<u64>().ok());
    Ok(TargetIdentity {
        path: Some(path.clone()),
        kind: FileKind::Block,
        device: DeviceNumber { major: 0, minor: 0 },
        special,
        size_bytes: sectors.unwrap_or(0).saturating_mul(512),
        space: Fact::Absent { path: path.clone() },
        data: Fact::Absent { path },
    })
}
