//! `overdrive extend hold`: a control group that is there already, a container's or a service's, is held to a
//! budget on the kernel's swap, as the backend swap holds a program.
//!
//! It ends with Ctrl-C, or when the last process of the group has ended. Then the limits are what they were,
//! and what lies in swap is back.

use super::ahead::KeptRoom;
use super::plan::check_dram;
use super::store::{self, RunFolder, Store};
use super::{say, swap_file, swap_run};
use crate::exit::{Ending, Refused, refuse};
use crate::flags::HoldFlags;
use crate::leftovers;
use anyhow::{Context, Result};
use overdrive_base::size::format_size;
use overdrive_sys::memory_group::foreign::{ForeignGroup, HeldGroup};
use overdrive_sys::memory_group::{GroupError, Version};
use overdrive_sys::relay::{Relay, effective_user};
use overdrive_sys::swap::{self, SwapFile};
use std::time::Duration;

/// How often it is looked whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Holds a group until it is told to end or the group has.
pub(super) fn hold(flags: &HoldFlags) -> Result<Ending> {
    leftovers::sweep_before_run()?.tell();
    let (group, store) = check(flags)?;
    let relay = Relay::install().context("taking over signals")?;
    for path in store::remove_stale(&store.folder) {
        say(&format!("removed what an earlier run left: {}", path.display()));
    }
    let folder = RunFolder::create(&store.folder)?;
    let swap = swap_file(&store, flags.fill_gaps)?;
    let path = group.path().to_owned();
    let tell = |line: &str| {
        if !flags.quiet {
            say(line);
        }
    };
    let (dram, shown) = (format_size(flags.dram), path.display());
    tell(&format!(
        "{shown}: {dram} of DRAM and up to {} in {}",
        format_size(store.bytes),
        swap.path().display()
    ));
    let is_over = || relay.asked_to_end().is_some();
    let Some(held) = group.hold(flags.dram, store.bytes, &is_over).map_err(refused)? else {
        swap.remove().context("removing the swap file")?;
        return Ok(Ending::Interrupted);
    };
    swap_run::note_foreign_group(&folder.path, &path).with_context(|| folder.path.display().to_string())?;
    let room = if flags.no_room_ahead { None } else { Some(KeptRoom::start(held.group(), &folder.path)) };
    if let Some(Err(why)) = &room {
        tell(&format!("the group's threads make room themselves: {why}"));
    }
    tell("it is held; Ctrl-C gives it back");
    while !is_over() && held.has_living() {
        std::thread::sleep(LOOK_EVERY);
    }
    drop(room);
    let back = held.group().counters().swap_bytes.unwrap_or(0);
    if let Err(why) = held.check_room(swap.path()) {
        say(&format!(
            "{} are on the SSD, and {why}: limit and swap stay as they are; wanted room, and then overdrive swap \
             off --stale",
            format_size(back)
        ));
        held.leave();
        std::mem::forget(swap);
        return Ok(Ending::SystemFailed);
    }
    tell(&format!("{} come back from the SSD", format_size(back)));
    give_back(held, swap)?;
    Ok(Ending::Done)
}

fn check(flags: &HoldFlags) -> Result<(ForeignGroup, Store)> {
    if effective_user() != 0 {
        refuse!("extend hold: turning swap on and limiting a group need root");
    }
    swap::check_may_turn_on().map_err(|why| Refused(format!("extend hold: {why}")))?;
    let group = ForeignGroup::find(&flags.group).map_err(refused)?;
    check_dram(flags.dram)?;
    if Store::on_device(&flags.store)?.is_some() {
        refuse!(
            "--store {}: a block device; wanted a directory for a swap file",
            flags.store.to_string_lossy()
        );
    }
    let store = Store::check(&flags.store, flags.dram)?;
    group.check_swap(flags.dram, store.bytes).map_err(Refused)?;
    let zswap = std::fs::read_to_string("/sys/module/zswap/parameters/enabled").unwrap_or_default();
    if group.version() == Version::V1 && zswap.starts_with('Y') {
        refuse!(
            "extend hold: zswap is on, and control groups version 1 do not count what it holds; wanted \
             overdrive swap on --zswap off"
        );
    }
    Ok((group, store))
}

/// What is wrong with the group as it is was asked for wrongly.
fn refused(error: GroupError) -> anyhow::Error {
    match error {
        GroupError::Unavailable(_) | GroupError::Unfit(_) => Refused(error.to_string()).into(),
        GroupError::Io { .. } | GroupError::NotKept { .. } => error.into(),
    }
}

/// The limits first: what comes back would go out again under this run's.
fn give_back(held: HeldGroup, swap: SwapFile) -> Result<()> {
    let outcome = held.give_back().context("giving the group back");
    if outcome.is_err() {
        // What is in it would be killed for want of memory.
        std::mem::forget(swap);
        return outcome;
    }
    let path = swap.path().display().to_string();
    swap.remove().with_context(|| format!("removing {path}"))
}
