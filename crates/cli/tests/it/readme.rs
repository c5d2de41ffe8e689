//! Every command that README.md shows is run, word for word, in the order it stands there.

use crate::support::{folder, has_direct_io};
use std::process::Command;

#[test]
fn the_readme_is_true() {
    if !has_direct_io("the_readme_is_true") {
        return;
    }
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let commands = shell_commands(&readme);
    assert!(commands.len() >= 6, "{commands:?}");
    let folder = folder();
    let binary = folder.path().join("target/release");
    std::fs::create_dir_all(&binary).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_overdrive"), binary.join("overdrive")).unwrap();
    for command in commands {
        if let Some(target) = command.strip_prefix("make ") {
            assert_target_exists(target);
            continue;
        }
        let output = Command::new("sh").args(["-ec", &command]).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{command}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn shell_commands(markdown: &str) -> Vec<String> {
    let blocks = markdown.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
}

/// The make targets are what runs this test; that they exist is what can be checked from here.
fn assert_target_exists(target: &str) {
    let makefile = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Makefile")).unwrap();
    assert!(makefile.lines().any(|line| line.starts_with(&format!("{target}:"))), "make {target}");
}
