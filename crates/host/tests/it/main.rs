//! Tests of the public interface: captured hosts with their expected findings, traces of stacked devices,
//! hazards, and the machine the tests run on.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict, in its helpers too")]

mod catalogue;
mod change;
mod garbage;
mod hazards;
mod hosts;
mod live;
mod odd;
mod topology;
mod trace;

use overdrive_host::Root;
use overdrive_host::facts::Fact;
use overdrive_host::target::{FileKind, TargetIdentity};
use overdrive_sys::volume::{DataMap, DeviceNumber, FileSystem};

/// A captured host of fixtures/hosts.
fn fixture(name: &str) -> Root {
    Root::from_capture(&capture(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Its text.
fn capture(name: &str) -> String {
    let path = format!("{}/../../fixtures/hosts/{name}.tree", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn number(text: &str) -> DeviceNumber {
    let (major, minor) = text.split_once(':').unwrap();
    DeviceNumber { major: major.parse().unwrap(), minor: minor.parse().unwrap() }
}

/// A written file of 1 GiB on the file system of that device number, 60 % of which is free.
fn file(path: &str, device: &str) -> TargetIdentity {
    let space = FileSystem { magic: 0xef53, name: "ext4", total_bytes: 100 << 30, free_bytes: 60 << 30 };
    let data = DataMap { data_bytes: 1 << 30, hole_bytes: 0, hole_count: 0 };
    TargetIdentity {
        path: Some(path.to_owned()),
        kind: FileKind::Regular,
        device: number(device),
        special: number("0:0"),
        size_bytes: 1 << 30,
        space: Fact::known(space, "statfs", path),
        data: Fact::known(data, "seek for data", path),
    }
}

/// A block device.
fn device(path: &str, special: &str, size_bytes: u64) -> TargetIdentity {
    let absent = Fact::Absent { path: path.to_owned() };
    TargetIdentity {
        path: Some(path.to_owned()),
        kind: FileKind::Block,
        device: number("0:6"),
        special: number(special),
        size_bytes,
        space: absent,
        data: Fact::Absent { path: path.to_owned() },
    }
}
