//! Where a seccomp filter refuses io_uring, as in most containers, the run goes on with pvsync2 and says so.

use crate::support::{folder, has_direct_io, skip};
use serde_json::Value;
use std::process::Command;

/// Refuses io_uring_setup with EPERM for itself and what it starts, then becomes the command it was given.
const SANDBOX: &str = r#"
import ctypes, os, struct, sys
def instruction(code, jt, jf, k): return struct.pack("HBBI", code, jt, jf, k)
program = b"".join([
    instruction(0x20, 0, 0, 0),            # load the system call's number
    instruction(0x15, 0, 1, 425),          # io_uring_setup?
    instruction(0x06, 0, 0, 0x00050001),   # yes: EPERM
    instruction(0x06, 0, 0, 0x7fff0000),   # no: allowed
])
code = ctypes.create_string_buffer(program)
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, filter, 0, 0): sys.exit(97)
os.execv(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn a_refused_ring_is_named_and_replaced() {
    const NAME: &str = "a_refused_ring_is_named_and_replaced";
    if !has_direct_io(NAME) {
        return;
    }
    let folder = folder();
    let out = folder.path().join("out");
    let started = Command::new("python3")
        .args(["-c", SANDBOX, env!("CARGO_BIN_EXE_overdrive")])
        .args(["evaluate", "--quick", "--runtime", "50ms", "--size", "32MiB", "--dir"])
        .arg(folder.path())
        .arg("--out")
        .arg(&out)
        .output();
    let output = match started {
        Ok(output) if output.status.code() != Some(97) => output,
        Ok(_) => return skip(NAME, "no seccomp filters here"),
        Err(error) => return skip(NAME, &format!("python3: {error}")),
    };
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let text = std::fs::read_to_string(out.join("record.json")).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["self_test"]["ring"]["available"], false);
    let notes = record["notes"].to_string();
    assert!(notes.contains("seccomp") && notes.contains("pvsync2"), "{notes}");
    let workloads = record["workloads"].as_array().unwrap();
    assert!(workloads.iter().all(|workload| workload["job"]["engine"] == "pvsync2"));
    assert!(workloads.iter().any(|workload| workload["job"]["workers"] == 128), "depth 128 has 128 threads");
}
