//! Where a seccomp filter refuses io_uring, as in most containers: a drive is evaluated with pvsync2, which the
//! record says, and the pager names the filter.

use crate::extend::can_page;
use crate::support::{folder, has_direct_io, read, skip};
use serde_json::Value;
use std::process::{Command, Output};

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

/// The program with these arguments under the filter; None, and the test is skipped, where there is none.
fn sandboxed(test: &str, arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new("python3");
    match command.args(["-c", SANDBOX, env!("CARGO_BIN_EXE_overdrive")]).args(arguments).output() {
        Ok(output) if output.status.code() != Some(97) => return Some(output),
        Ok(_) => skip(test, "no seccomp filters here"),
        Err(error) => skip(test, &format!("python3: {error}")),
    }
    None
}

#[test]
fn a_refused_ring_is_named_and_replaced() {
    const NAME: &str = "a_refused_ring_is_named_and_replaced";
    if !has_direct_io(NAME) {
        return;
    }
    let folder = folder();
    let out = folder.path().join("out");
    let (dir, out_name) = (folder.path().to_str().unwrap(), out.to_str().unwrap());
    let quick =
        ["evaluate", "--quick", "--runtime", "50ms", "--size", "32MiB", "--dir", dir, "--out", out_name];
    let Some(output) = sandboxed(NAME, &quick) else { return };
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

#[test]
fn the_pager_names_the_filter() {
    const NAME: &str = "refused_ring::the_pager_names_the_filter";
    let folder = folder();
    let Some(_swap_is_off) = can_page(NAME, folder.path()) else { return };
    let store = folder.path().to_str().unwrap();
    let words = ["extend", "--backend", "pager", "--dram", "64MiB", "--store", store, "--", "true"];
    let Some(output) = sandboxed(NAME, &words) else { return };
    let (code, _, error) = read(&output);
    assert_eq!((code, error.lines().count()), (2, 1), "{error}");
    assert!(error.contains("io_uring is refused by a seccomp filter"), "{error}");
}
