//! What runs that were killed left on the machine: control groups and swap files, removed before the next run
//! looks at what room and memory there is.

use crate::exit::Ending;
use crate::output;
use anyhow::{Context, Result};
use overdrive_sys::memory_group::Place;
use overdrive_sys::swap;
use std::path::PathBuf;

/// What killed runs left, and what would not go.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    pub(crate) removed: Vec<PathBuf>,
    pub(crate) stuck: Vec<PathBuf>,
}

impl Swept {
    /// Says what was removed, and what still runs.
    pub(crate) fn tell(&self) {
        for path in &self.removed {
            output::say!("overdrive: removed what a killed run left: {}", path.display());
        }
        for path in &self.stuck {
            output::say!("overdrive: left by a killed run and still in use, so it stays: {}", path.display());
        }
    }
}

/// Removes groups and swap files of runs that were killed. The groups first: what still runs in one is ended,
/// so that its pages need not be brought back from the swap file under the group's budget. Programs of
/// `overdrive extend` go on, and as long as one does, so do the swap files.
fn sweep(with_swap: bool) -> Result<Swept> {
    let (mut removed, mut stuck) = Place::find().map(|place| place.remove_stale()).unwrap_or_default();
    if stuck.is_empty() && with_swap {
        let (files, held) = swap::remove_stale().context("/proc/swaps")?;
        removed.extend(files);
        stuck.extend(held);
    }
    Ok(Swept { removed, stuck })
}

/// The same before a run, which could not tell its room and memory otherwise; swap is root's to turn off.
pub(crate) fn sweep_before_run() -> Result<Swept> {
    sweep(overdrive_sys::relay::effective_user() == 0)
}

/// Removes them and what else there is, and prints what was done.
pub(crate) fn clean_stale(as_json: bool, besides: Swept) -> Result<Ending> {
    let swept = sweep(true)?;
    let words = |besides: Vec<PathBuf>, more: Vec<PathBuf>| {
        besides.into_iter().chain(more).map(|path| path.display().to_string()).collect::<Vec<_>>()
    };
    let removed = words(besides.removed, swept.removed);
    let stuck = words(besides.stuck, swept.stuck);
    if as_json {
        let schema = "overdrive.swap-stale/1";
        let value = serde_json::json!({ "schema": schema, "removed": removed, "stuck": stuck });
        output::print(&format!("{}\n", serde_json::to_string_pretty(&value)?))?;
    } else {
        let lines = removed.iter().map(|path| format!("removed {path}\n"));
        let lines = lines.chain(stuck.iter().map(|path| format!("could not remove {path}\n")));
        output::print(&lines.collect::<String>())?;
    }
    Ok(if stuck.is_empty() { Ending::Done } else { Ending::SystemFailed })
}
