//! What runs that were killed left on the machine: control groups, swap files and the directories beside
//! them, removed before the next run looks at what room and memory there is.

use crate::cmd::extend::store;
use crate::exit::Ending;
use crate::output;
use anyhow::{Context, Result};
use overdrive_sys::memory_group::{Place, foreign};
use overdrive_sys::swap;
use serde_json::json;
use std::path::{Path, PathBuf};

/// What killed runs left, and what would not go.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    pub(crate) removed: Vec<PathBuf>,
    pub(crate) stuck: Vec<PathBuf>,
    /// Groups of others that were held, and have their own limits again.
    pub(crate) given_back: Vec<PathBuf>,
    /// Those that stay held, and why.
    pub(crate) still_held: Vec<(PathBuf, String)>,
}

impl Swept {
    /// Says what was removed, and what still runs.
    pub(crate) fn tell(&self) {
        for path in &self.given_back {
            output::say!("overdrive: gave back what a killed run held: {}", path.display());
        }
        for path in &self.removed {
            output::say!("overdrive: removed what a killed run left: {}", path.display());
        }
        for path in &self.stuck {
            output::say!("overdrive: left by a killed run and still in use, so it stays: {}", path.display());
        }
        for (path, why) in &self.still_held {
            output::say!("overdrive: held by a killed run, and it stays so: {}: {why}", path.display());
        }
    }
}

/// Removes groups and swap files of runs that were killed. The groups first: what still runs in one is ended,
/// so that its pages need not be brought back from the swap file under the group's budget. Programs of
/// `overdrive extend` go on, and as long as one does, so do the swap files. Groups of others get their limits
/// back before that.
fn sweep(with_swap: bool) -> Result<Swept> {
    let (mut removed, mut stuck) = Place::find().map(|place| place.remove_stale()).unwrap_or_default();
    let (given_back, still_held) = if with_swap { foreign::give_back_stale() } else { Default::default() };
    if stuck.is_empty() && still_held.is_empty() && with_swap {
        let (files, held) = swap::remove_stale().context("/proc/swaps")?;
        let mut folders: Vec<PathBuf> =
            files.iter().filter_map(|file| Some(file.parent()?.to_owned())).collect();
        folders.dedup();
        removed.extend(files);
        // With its swap file a run on swap loses what told of the directory that it had in the same place.
        removed.extend(folders.iter().flat_map(|folder| store::remove_stale(folder)));
        stuck.extend(held);
    }
    Ok(Swept { removed, stuck, given_back, still_held })
}

/// The same before a run, which could not tell its room and memory otherwise; swap is root's to turn off.
pub(crate) fn sweep_before_run() -> Result<Swept> {
    sweep(overdrive_sys::relay::effective_user() == 0)
}

/// Removes them and what else there is, and prints what was done.
pub(crate) fn clean_stale(as_json: bool, besides: Swept) -> Result<Ending> {
    let mut swept = sweep(true)?;
    swept.removed.splice(..0, besides.removed);
    swept.stuck.splice(..0, besides.stuck);
    let Swept { removed, stuck, given_back, still_held } = &swept;
    if as_json {
        let words =
            |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        let held =
            still_held.iter().map(|(path, why)| json!({ "group": path.display().to_string(), "why": why }));
        let value = json!({
            "schema": "overdrive.swap-stale/1",
            "removed": words(removed),
            "stuck": words(stuck),
            "given_back": words(given_back),
            "still_held": held.collect::<Vec<_>>(),
        });
        output::print(&format!("{}\n", serde_json::to_string_pretty(&value)?))?;
    } else {
        let given_back = given_back.iter().map(|path| format!("gave back {}\n", path.display()));
        let removed = removed.iter().map(|path| format!("removed {}\n", path.display()));
        let held =
            still_held.iter().map(|(path, why)| format!("could not give back {}: {why}\n", path.display()));
        let lines = given_back.chain(removed).chain(stuck.iter().map(|path| could_not(path))).chain(held);
        output::print(&lines.collect::<String>())?;
    }
    Ok(if stuck.is_empty() && still_held.is_empty() { Ending::Done } else { Ending::SystemFailed })
}

/// What would not go, and why: most often a program that goes on in its group.
fn could_not(path: &Path) -> String {
    let members = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    let why = match members.lines().next() {
        Some(pid) => {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("process {pid} ({}) goes on in it", name.trim_end())
        }
        None => "still in use".to_owned(),
    };
    format!("could not remove {}: {why}\n", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_not_go_is_told_with_who_is_in_it() {
        let group = tempfile::tempdir().unwrap();
        let shown = group.path().display();
        assert_eq!(could_not(group.path()), format!("could not remove {shown}: still in use\n"));
        let (pid, name) = (std::process::id(), std::fs::read_to_string("/proc/self/comm").unwrap());
        std::fs::write(group.path().join("cgroup.procs"), format!("{pid}\n1\n")).unwrap();
        let why = format!("process {pid} ({}) goes on in it", name.trim_end());
        assert_eq!(could_not(group.path()), format!("could not remove {shown}: {why}\n"));
    }
}
