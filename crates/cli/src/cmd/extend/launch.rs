//! The last step before the program: this same binary, which joins its control group, asks to end with who
//! started it, and becomes the program.
//!
//! So the program is under its budget from its first instruction, and nothing of this process needs to be.

use crate::exit::{Ending, Refused, refuse};
use crate::flags::LaunchFlags;
use anyhow::Result;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What the library reads.
const VARIABLE: &str = "OVERDRIVE_EXTEND";

/// Becomes the program.
pub(crate) fn launch(flags: &LaunchFlags) -> Result<Ending> {
    overdrive_sys::relay::end_with_parent()
        .map_err(|error| Refused(format!("asking to end with who started this: {error}")))?;
    // Who was killed before that was asked for sends no signal any more.
    if std::os::unix::process::parent_id() != flags.parent {
        refuse!("who started this has ended; the program was not started");
    }
    if let Some(group) = &flags.group {
        let members = group.join("cgroup.procs");
        std::fs::write(&members, std::process::id().to_string())
            .map_err(|error| Refused(format!("joining {}: {error}", group.display())))?;
    }
    if let Some(folder) = &flags.folder {
        // A program that closes it, or that may have too few, is seen by its counters as soon as it has some.
        let _ = overdrive_sys::file::lock_for_descendants(folder);
    }
    let mut command = Command::new(&flags.program);
    if let Some((name, arguments)) = flags.command.split_first() {
        command.arg0(name).args(arguments);
    }
    if let (Some(library), Some(settings)) = (&flags.library, &flags.settings) {
        command.env("LD_PRELOAD", preload(library.as_os_str().to_owned(), std::env::var_os("LD_PRELOAD")));
        command.env(VARIABLE, settings);
    }
    overdrive_sys::signals::keep_ignored_in(&mut command);
    let error = command.exec();
    let shown = flags.program.display();
    if error.kind() == ErrorKind::NotFound && flags.program.exists() {
        refuse!("starting {shown}: the loader or interpreter that it names is not there");
    }
    refuse!("starting {shown}: {error}")
}

/// Ours first, then what was there.
fn preload(own: OsString, before: Option<OsString>) -> OsString {
    let mut list = own;
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        list.push(":");
        list.push(before);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_preloaded_before_still_is() {
        assert_eq!(preload("a".into(), None), "a");
        assert_eq!(preload("a".into(), Some("".into())), "a");
        assert_eq!(preload("a".into(), Some("b:c".into())), "a:b:c");
    }
}
