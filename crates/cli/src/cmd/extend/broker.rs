//! What this process does for the run's processes that they may not do themselves, on a thread of its own.

use anyhow::{Context, Result};
use overdrive_sys::broker::{self, OpenChannel};
use overdrive_sys::run_files::RunPlaces;

/// Opens the channel for processes that are started while it is kept, and serves who asks as long as this
/// process lives. None where no descriptor may have its number: who cannot open everything alone is told what
/// to do, as after the end of this process.
pub(crate) fn start(places: RunPlaces) -> Result<Option<OpenChannel>> {
    let Ok((broker, channel)) = broker::open(&places.folder) else { return Ok(None) };
    let thread = std::thread::Builder::new().name("broker".to_owned());
    thread.spawn(move || broker.serve(&places)).context("starting a thread")?;
    Ok(Some(channel))
}
