//! From the words of the user to a place to swap to, with every refusal explained: no such device, mounted,
//! in use, holding something, the root disk, a file that is there, no room.

use crate::exit::{Refused, refuse};
use anyhow::{Context, Result};
use overdrive_base::size::format_size;
use overdrive_host::Root;
use overdrive_host::audit::Audit;
use overdrive_host::finding::Profile;
use overdrive_host::hazards::{Hazard, HazardKind, write_hazards};
use overdrive_host::swap::setup::{Place, SetupError};
use overdrive_host::target::{Medium, TargetFacts, TargetIdentity};
use overdrive_sys::swap::has_small_blocks;
use overdrive_sys::swap::space::{Space, first_page};
use overdrive_sys::volume::{FileKind, file_system};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// How long other processes are watched.
const WATCH: Duration = Duration::from_millis(100);

/// A device that nobody uses and that holds nothing, or a swap space.
pub(super) fn device(root: &Root, named: &Path) -> Result<Place> {
    let name = named.display();
    let path = std::fs::canonicalize(named)
        .map_err(|error| Refused(format!("--device {name}: {error}; wanted a block device")))?;
    let identity = TargetIdentity::at(&path).map_err(|error| Refused(error.to_string()))?;
    if identity.kind != FileKind::Block {
        refuse!("--device {name}: not a block device; wanted one, or --file PATH --size SIZE");
    }
    let target = TargetFacts::trace(root, &identity)?;
    let hazards = write_hazards(root, &target);
    let is_space =
        |hazard: &&Hazard| hazard.kind == HazardKind::Signature && hazard.what.contains(" holds swap ");
    let standing: Vec<&Hazard> = hazards.iter().filter(|hazard| !is_space(hazard)).collect();
    if !standing.is_empty() {
        let reasons: Vec<String> =
            standing.iter().map(|hazard| format!("{} ({})", hazard.what, hazard.why)).collect();
        let advice = if standing.iter().all(|hazard| hazard.wipe_overrides()) {
            format!("; wipefs -a {name} gives up what is on it")
        } else {
            String::new()
        };
        refuse!("{name}: not swapped to: {}{advice}", reasons.join("; "));
    }
    let holds = first_page(&path).with_context(|| format!("{name}: reading its first page"))?;
    Ok(Place {
        path: path.display().to_string(),
        is_device: true,
        has_small_blocks: false,
        holds,
        is_ready: hazards.iter().any(|hazard| is_space(&hazard)),
        space: Space::new(identity.size_bytes)?,
        audit: audit(root, &identity)?,
    })
}

/// A file that is to be made in a folder with room for it.
pub(super) fn file(root: &Root, named: &Path, bytes: u64) -> Result<Place> {
    let name = named.display();
    if named.symlink_metadata().is_ok() {
        refuse!("--file {name}: it is there already; wanted a name that is free");
    }
    let (Some(last), folder) = (named.file_name(), named.parent().unwrap_or(Path::new(""))) else {
        refuse!("--file {name}: wanted the path of a file that is to be made");
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let folder = std::fs::canonicalize(folder)
        .map_err(|error| Refused(format!("--file {name}: {}: {error}", folder.display())))?;
    let opened = File::open(&folder).map_err(|error| Refused(format!("--file {name}: {error}")))?;
    let disk = file_system(&opened)?;
    let most = disk.free_bytes.saturating_sub(disk.total_bytes / 10);
    if bytes > most {
        let (wanted, most) = (format_size(bytes), format_size(most));
        refuse!(
            "--file {name}: no room for {wanted}; at most {most} there, a tenth of the file system stays free"
        );
    }
    let space = Space::new(bytes)?;
    // Before it is rounded down to whole pages, and told as nothing.
    if space.encode().is_err() {
        let error = SetupError::Size { path: format!("--file {name}"), size: format_size(bytes) };
        refuse!("{error}");
    }
    let identity = TargetIdentity::at(&folder).map_err(|error| Refused(error.to_string()))?;
    let audit = audit(root, &identity)?;
    if let Medium::Memory(why) | Medium::Network(why) | Medium::Hidden(why) = &audit.target.medium {
        refuse!("--file {name}: {why}; wanted a file system on a drive of this host");
    }
    Ok(Place {
        path: folder.join(last).display().to_string(),
        is_device: false,
        has_small_blocks: has_small_blocks(&folder)?,
        holds: None,
        is_ready: false,
        space,
        audit,
    })
}

/// The host and the disk under this directory.
pub(super) fn here(root: &Root) -> Result<Audit> {
    let identity = TargetIdentity::at(Path::new(".")).map_err(|error| Refused(error.to_string()))?;
    audit(root, &identity)
}

fn audit(root: &Root, identity: &TargetIdentity) -> Result<Audit> {
    Ok(Audit::of(root, Some(identity), Profile::Memory, WATCH).map_err(|error| Refused(error.to_string()))?)
}
