//! `overdrive swap`: plan and on; off goes through tune's undo, status stands in `swap/status.rs`.

mod place;
mod show;
mod status;

use crate::cmd::tune::standing::{How, Which, take_back};
use crate::cmd::tune::{
    apply_as_far, busy_disks, driven, hold_back, need_root, next_command, occasion, state_folder,
    tell_set_aside,
};
use crate::exit::{Ending, Refused, refuse};
use crate::flags::{OnOff, SwapCommand, SwapFlags, SwapOffFlags, SwapOnFlags, SwapPlanFlags, SwapWishFlags};
use crate::leftovers::{self, Swept};
use crate::output;
use anyhow::{Result, bail};
use overdrive_host::Root;
use overdrive_host::change::driver::{Driver, Reversal};
use overdrive_host::change::journal::Undone;
use overdrive_host::change::machine::Applied;
use overdrive_host::change::shell;
use overdrive_host::change::system::HostSystem;
use overdrive_host::swap::setup::{Place, QueueWish, RULE, Setup, SetupError, Wish};
use overdrive_sys::file::WriteConsent;
use std::path::Path;

/// Runs one of the subcommands.
pub(crate) fn swap(flags: &SwapFlags) -> Result<Ending> {
    match &flags.command {
        SwapCommand::Plan(flags) => plan(flags),
        SwapCommand::On(flags) => on(flags),
        SwapCommand::Off(flags) => off(flags),
        SwapCommand::Status(flags) => status::status(flags),
    }
}

/// The places that are wished for, looked at, and what would be done with them.
fn make(wish: &SwapWishFlags) -> Result<(Vec<Place>, Setup)> {
    let root = Root::new("/");
    let mut places = Vec::new();
    for device in &wish.device {
        places.push(place::device(&root, device)?);
    }
    if let (Some(file), Some(size)) = (&wish.file, wish.size) {
        places.push(place::file(&root, file, size)?);
    }
    let wanted = Wish {
        page_cluster: wish.page_cluster,
        discard: !wish.no_discard,
        free_first: wish.free_first,
        priority: wish.priority,
        before_zram: wish.before_zram,
        zswap: wish.zswap.map(|choice| choice == OnOff::On),
        queue: QueueWish {
            nomerges: wish.nomerges,
            max_sectors_kb: wish.max_sectors,
            nr_requests: wish.nr_requests,
        },
        areas_only: wish.areas_only,
    };
    let setup = Setup::of(&root, &places, &wanted).map_err(refused)?;
    Ok((places, setup))
}

fn refused(error: SetupError) -> Refused {
    Refused(match error {
        SetupError::Nowhere => format!("{error} (--device DEVICE, or --file PATH --size SIZE)"),
        other => other.to_string(),
    })
}

fn plan(flags: &SwapPlanFlags) -> Result<Ending> {
    let is_nowhere = flags.wish.device.is_empty() && flags.wish.file.is_none();
    if flags.profile {
        let root = Root::new("/");
        let (audit, setup) = match is_nowhere {
            true => {
                let audit = place::here(&root)?;
                let setup = Setup::settings(&root, &audit, flags.wish.page_cluster);
                (audit, setup)
            }
            false => {
                let (places, setup) = make(&flags.wish)?;
                let first = places.into_iter().next().map(|place| place.audit);
                (first.ok_or_else(|| refused(SetupError::Nowhere))?, setup)
            }
        };
        show::profile(&audit, &setup, flags.wish.json)?;
        return Ok(Ending::Done);
    }
    let (_, setup) = make(&flags.wish)?;
    if flags.shell {
        output::print(&shell::script(&Root::new("/"), &setup.plan.changes, "swap plan", "swap on"))?;
    } else {
        show::setup(&setup, &busy_disks(&setup.plan, Path::new("/")), flags.wish.json)?;
    }
    Ok(Ending::Done)
}

fn on(flags: &SwapOnFlags) -> Result<Ending> {
    let other = flags.write_to.iter().find(|named| !flags.wish.device.contains(named));
    if let Some(other) = other {
        refuse!("--write-to {} names none of the devices; nothing was touched", other.display());
    }
    let (places, mut setup) = make(&flags.wish)?;
    let consents = if flags.dry_run { Vec::new() } else { consents(&places, flags)? };
    let held_back = if flags.even_if_busy { Vec::new() } else { hold_back(&mut setup.plan, Path::new("/")) };
    if flags.dry_run {
        show::setup(&setup, &held_back, flags.wish.json)?;
        return Ok(Ending::Done);
    }
    need_root("swap on: turning swap on", Path::new("/"), "--dry-run")?;
    let folder = state_folder(&flags.state, Path::new("/"))?;
    let mut system = HostSystem::open(Path::new("/"), &folder).map_err(|error| Refused(error.to_string()))?;
    consents.into_iter().for_each(|consent| system.consent(consent));
    let driver = Driver::new(&mut system, occasion(Path::new("/"))).map_err(driven)?;
    let mut driver = driver.with_purpose(RULE);
    let done = apply_as_far(&mut driver, &setup.plan.changes)?;
    tell_set_aside(&driver);
    let mut rows = setup.plan.changes.iter().zip(&done.outcomes);
    if let Some((change, outcome)) =
        rows.find(|(change, outcome)| change.kind.is_swap() && !outcome.is_good())
    {
        let why = format!("{}: {}", change.path, crate::cmd::tune::outcome_text(outcome));
        // Settings for swap that is not on would stand without a reason.
        let undone = done.set.map_or(Ok(Vec::new()), |set| driver.undo(set));
        let is_back = |reversal: &Reversal| {
            matches!(reversal.reverted.outcome, Undone::Restored | Undone::Already | Undone::Covered)
        };
        if undone.is_ok_and(|undone| undone.iter().all(is_back)) {
            bail!("{why}; everything is as it was before");
        }
        let next = |words| next_command(words, &flags.state, Path::new("/"));
        let (status, off) = (next("tune status"), next("swap off"));
        bail!("{why}; not everything could be taken back: {status} says what stands, {off} tries again");
    }
    let off = next_command("swap off", &flags.state, Path::new("/"));
    show::applied(&setup, &done, &off, &held_back, flags.wish.json)?;
    done.end(held_back.is_empty() && done.outcomes.iter().all(Applied::is_good))
}

/// Consent for each device, which must be named again, letter by letter.
fn consents(places: &[Place], flags: &SwapOnFlags) -> Result<Vec<WriteConsent>> {
    let mut consents = Vec::new();
    for (place, named) in places.iter().zip(&flags.wish.device) {
        if place.is_ready {
            continue;
        }
        if !flags.write_to.contains(named) {
            let name = named.display();
            refuse!("{name}: swapping to it writes over what is on it; wanted --write-to {name} as well");
        }
        consents.push(WriteConsent::given_for(Path::new(&place.path)));
    }
    Ok(consents)
}

fn off(flags: &SwapOffFlags) -> Result<Ending> {
    if flags.stale {
        return leftovers::clean_stale(flags.json, Swept::default());
    }
    let root = Path::new("/");
    let folder = state_folder(&flags.state, root)?;
    let journal = HostSystem::look(root, &folder).map_err(|error| Refused(error.to_string()))?;
    let how = How { is_rehearsal: false, as_json: flags.json };
    if journal.is_none() {
        show::nothing(how)?;
        return Ok(Ending::Done);
    }
    take_back(root, &folder, Which::Swap, how)
}
