//! From what the user typed to an open target, with every refusal explained: missing, empty, too small, of
//! the wrong kind, without direct I/O, in use, or not to be written to.

mod namespace;

use crate::exit::{Refused, refuse};
use crate::flags::AccessFlags;
use anyhow::{Context, Result};
use overdrive_base::size::{MIB, format_size};
use overdrive_host::Root;
use overdrive_host::hazards::{Hazard, write_hazards};
use overdrive_host::target::{TargetFacts, TargetIdentity};
use overdrive_io::engine::sim::SimSpec;
use overdrive_io::target::Target;
use overdrive_report::record::TargetKind;
use overdrive_sys::Errno;
use overdrive_sys::file::{
    Caching, WriteConsent, create_scratch, open_for_reading, open_for_writing, reserve,
};
use overdrive_sys::volume::{FileKind, FileSystem, file_system, identify};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The least that can be measured: below this a drive answers from its own buffers.
pub(crate) const LEAST_BYTES: u64 = 16 * MIB;

/// An open target and how it may be used.
#[derive(Debug)]
pub(crate) struct OpenTarget {
    pub(crate) target: Target,
    pub(crate) kind: TargetKind,
    /// As the user wrote it, or where the scratch file is.
    pub(crate) spec: String,
    pub(crate) path: PathBuf,
    /// Whether workloads may write.
    pub(crate) writable: bool,
    pub(crate) notes: Vec<String>,
}

impl OpenTarget {
    /// What lies below the target; none when it is simulated.
    pub(crate) fn trace(&self, root: &Root) -> Result<Option<TargetFacts>> {
        let Some(file) = self.target.file() else { return Ok(None) };
        let name = match self.kind {
            TargetKind::ScratchFile => self.path.join("scratch"),
            _ => self.path.clone(),
        };
        Ok(Some(TargetFacts::trace(root, &TargetIdentity::of(file, &name)?)?))
    }
}

/// How big a scratch file is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ScratchSize {
    /// The user said so.
    Asked(u64),
    /// Less is fine when there is not enough room.
    Usual(u64),
}

impl OpenTarget {
    /// The target the user named: a simulated device, a file, or a block device.
    pub(crate) fn named(spec: &str, size: Option<u64>, access: &AccessFlags) -> Result<Self> {
        if let Some(simulated) = SimSpec::parse(spec) {
            return Self::simulated(spec, simulated.map_err(|error| Refused(error.to_string()))?, size);
        }
        let path = std::fs::canonicalize(spec).map_err(|error| cannot_open(spec, &error))?;
        if let Some(block) = namespace::block_device(spec, &path)? {
            return namespace::open_both(spec, &path, &block, size, access);
        }
        let writable = permitted_to_write(spec, access)?;
        let file = open(spec, &path, writable, access)?;
        let identity = identify(&file).with_context(|| format!("{spec}: reading its size"))?;
        let mut notes = Vec::new();
        let kind = match identity.kind {
            FileKind::Block => TargetKind::BlockDevice,
            _ => TargetKind::File,
        };
        let caching = caching_of(access, &file, spec, &mut notes)?;
        let mut target =
            Target::of_file(file, caching).with_context(|| format!("{spec}: reading its size"))?;
        if let Some(size) = size {
            target = limited(spec, target, size)?;
        }
        check_size(spec, target.size())?;
        Ok(Self { target, kind, spec: spec.to_owned(), path, writable, notes })
    }

    fn simulated(spec: &str, device: SimSpec, size: Option<u64>) -> Result<Self> {
        let target = Target::simulated(device).limited_to(size.unwrap_or(u64::MAX));
        check_size(spec, target.size())?;
        let notes = vec!["the device is simulated: figures show the tool at work, not a drive".to_owned()];
        Ok(Self {
            target,
            kind: TargetKind::Sim,
            spec: spec.to_owned(),
            path: spec.into(),
            writable: true,
            notes,
        })
    }

    /// A nameless scratch file in `directory`, reserved but not yet written.
    pub(crate) fn scratch(directory: &Path, size: ScratchSize, access: &AccessFlags) -> Result<Self> {
        let shown = directory.display().to_string();
        let room = File::open(directory).and_then(|opened| file_system(&opened)).map_err(|error| {
            Refused(format!("--dir {shown}: {error}; wanted a directory on the drive to measure"))
        })?;
        let caching = if access.buffered { Caching::Buffered } else { Caching::Direct };
        if caching == Caching::Direct && is_memory(&room) {
            return Err(no_direct_io(&shown, room.name).into());
        }
        let (bytes, mut notes) = fit(&shown, size, &room)?;
        let file = create_scratch(directory, caching).map_err(|errno| match errno {
            Errno::INVAL => no_direct_io(&shown, room.name),
            other => Refused(format!("--dir {shown}: cannot make a scratch file there: {other}")),
        })?;
        reserve_or_write_later(&file, bytes, &shown, &room)?;
        if access.buffered {
            notes.push(BUFFERED_NOTE.to_owned());
        }
        let target = Target::of_file(file, caching).context("reading the scratch file's size")?;
        let path = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
        let spec = format!("scratch file in {}", path.display());
        Ok(Self { target, kind: TargetKind::ScratchFile, spec, path, writable: true, notes })
    }
}

fn limited(spec: &str, target: Target, size: u64) -> Result<Target> {
    if size > target.size() {
        refuse!("{spec}: it has {}; --size {} wants more", format_size(target.size()), format_size(size));
    }
    Ok(target.limited_to(size))
}

const BUFFERED_NOTE: &str =
    "measured through the page cache (--buffered): figures show memory and the kernel as much as the drive";

fn cannot_open(spec: &str, error: &std::io::Error) -> Refused {
    match error.kind() {
        std::io::ErrorKind::NotFound => Refused(format!(
            "{spec}: no such file or device; wanted a block device, a file, or sim[:KEY=VALUE,...]"
        )),
        std::io::ErrorKind::PermissionDenied => Refused(format!(
            "{spec}: permission denied; wanted the right to read it (for a block device: root, or its group, often 'disk')"
        )),
        _ => Refused(format!("{spec}: {error}")),
    }
}

/// Whether the user consented to writes; consent must name the target again, letter by letter.
fn permitted_to_write(spec: &str, access: &AccessFlags) -> Result<bool> {
    match access.write_to.first() {
        None => Ok(false),
        Some(_) if access.write_to.iter().any(|named| named == spec) => Ok(true),
        Some(named) => refuse!("--write-to {named} does not name the target {spec}; nothing was touched"),
    }
}

fn open(spec: &str, path: &Path, writable: bool, access: &AccessFlags) -> Result<File> {
    let metadata = std::fs::metadata(path).map_err(|error| cannot_open(spec, &error))?;
    check_kind(spec, &metadata)?;
    let caching = if access.buffered { Caching::Buffered } else { Caching::Direct };
    if !writable {
        return open_for_reading(path, caching).map_err(|errno| refused_open(spec, path, errno).into());
    }
    open_with_consent(spec, path, caching, access.wipe)
}

/// A block device that the user named twice, for direct I/O and held exclusively; `spec` is how it is spoken
/// of.
pub(crate) fn open_device(spec: &str, path: &Path, wipe: bool) -> Result<File> {
    open_with_consent(spec, path, Caching::Direct, wipe)
}

/// Opens for writing what the user consented to have written to.
fn open_with_consent(spec: &str, path: &Path, caching: Caching, wipe: bool) -> Result<File> {
    // Look before opening for writing: opening alone changes nothing, but hazards deserve the better message.
    let reading = open_for_reading(path, caching).map_err(|errno| refused_open(spec, path, errno))?;
    check_hazards(spec, path, &reading, wipe)?;
    drop(reading);
    let consent = WriteConsent::given_for(path);
    open_for_writing(path, caching, &consent).map_err(|errno| match errno {
        // It could be opened for reading just now.
        Errno::ACCESS | Errno::PERM => Refused(format!(
            "{spec}: it can be read but not written: it is read-only (blockdev --getro), or this user may not"
        ))
        .into(),
        _ => refused_open(spec, path, errno).into(),
    })
}

fn refused_open(spec: &str, path: &Path, errno: Errno) -> Refused {
    match errno {
        Errno::INVAL => {
            let name = File::open(path).and_then(|file| file_system(&file)).map_or("this", |room| room.name);
            no_direct_io(spec, name)
        }
        Errno::ROFS => Refused(format!("{spec}: its file system or device is read-only")),
        Errno::BUSY => {
            Refused(format!("{spec}: somebody else holds the device; wanted one that nobody uses"))
        }
        other => cannot_open(spec, &other.into()),
    }
}

fn check_kind(spec: &str, metadata: &std::fs::Metadata) -> Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let kind = metadata.file_type();
    if kind.is_dir() {
        refuse!(
            "{spec}: a directory; wanted a block device or a file (evaluate --dir {spec} makes a scratch file in it)"
        );
    }
    if !kind.is_file() && !kind.is_block_device() {
        refuse!("{spec}: neither a regular file nor a block device");
    }
    Ok(())
}

fn check_hazards(spec: &str, path: &Path, file: &File, wipe: bool) -> Result<()> {
    let root = Root::new("/");
    let identity = TargetIdentity::of(file, path)?;
    let hazards = write_hazards(&root, &TargetFacts::trace(&root, &identity)?);
    let standing: Vec<&Hazard> = hazards.iter().filter(|hazard| !(wipe && hazard.wipe_overrides())).collect();
    if standing.is_empty() {
        return Ok(());
    }
    let reasons: Vec<String> =
        standing.iter().map(|hazard| format!("{} ({})", hazard.what, hazard.why)).collect();
    let advice = if standing.iter().all(|hazard| hazard.wipe_overrides()) {
        "; --wipe insists, and what is on it is lost"
    } else {
        ""
    };
    refuse!("{spec}: not written to: {}{advice}", reasons.join("; "))
}

/// Direct I/O, unless the user chose the page cache or the file system is made of memory.
fn caching_of(access: &AccessFlags, file: &File, spec: &str, notes: &mut Vec<String>) -> Result<Caching> {
    if access.buffered {
        notes.push(BUFFERED_NOTE.to_owned());
        return Ok(Caching::Buffered);
    }
    let regular = identify(file).is_ok_and(|identity| identity.kind == FileKind::Regular);
    match file_system(file) {
        Ok(room) if regular && is_memory(&room) => Err(no_direct_io(spec, room.name).into()),
        _ => Ok(Caching::Direct),
    }
}

/// Since 6.6 tmpfs accepts O_DIRECT and ignores it: the flag's success proves nothing.
fn is_memory(room: &FileSystem) -> bool {
    matches!(room.name, "tmpfs" | "ramfs")
}

fn no_direct_io(place: &str, file_system: &str) -> Refused {
    let why = if matches!(file_system, "tmpfs" | "ramfs") {
        format!("{file_system} keeps its files in memory, there is no drive to measure")
    } else {
        format!("{file_system} has no direct I/O here")
    };
    Refused(format!(
        "{place}: {why}; name a place on the drive, or use --buffered to go through the page cache"
    ))
}

fn check_size(spec: &str, bytes: u64) -> Result<()> {
    if bytes == 0 {
        refuse!("{spec}: it is empty; wanted at least {} of written data", format_size(LEAST_BYTES));
    }
    if bytes < LEAST_BYTES {
        refuse!(
            "{spec}: {} are too few to measure; wanted at least {}",
            format_size(bytes),
            format_size(LEAST_BYTES)
        );
    }
    Ok(())
}

/// Fits the scratch file into the file system, of which a tenth stays free.
fn fit(place: &str, size: ScratchSize, room: &FileSystem) -> Result<(u64, Vec<String>)> {
    let most = room.free_bytes.saturating_sub(room.total_bytes / 10) / MIB * MIB;
    match size {
        ScratchSize::Asked(bytes) | ScratchSize::Usual(bytes) if bytes < LEAST_BYTES => {
            refuse!("--size {}: wanted at least {}", format_size(bytes), format_size(LEAST_BYTES))
        }
        ScratchSize::Asked(bytes) | ScratchSize::Usual(bytes) if bytes <= most => {
            Ok((bytes / 4096 * 4096, vec![]))
        }
        ScratchSize::Usual(_) if most >= LEAST_BYTES => {
            let note =
                format!("the scratch file has {}: a tenth of the file system stays free", format_size(most));
            Ok((most, vec![note]))
        }
        ScratchSize::Asked(bytes) | ScratchSize::Usual(bytes) => {
            let fits = if most < LEAST_BYTES {
                format!("wanted room for at least {}", format_size(LEAST_BYTES))
            } else {
                format!("at most --size {}M fits", most / MIB)
            };
            refuse!(
                "{place}: no room for {}: {} are free and a tenth of {} stays free; {fits}",
                format_size(bytes),
                format_size(room.free_bytes),
                format_size(room.total_bytes)
            )
        }
    }
}

/// A file system that cannot reserve blocks takes a length; writing in full follows in any case.
fn reserve_or_write_later(file: &File, bytes: u64, place: &str, room: &FileSystem) -> Result<()> {
    match reserve(file, bytes) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP) => file.set_len(bytes).context("sizing the scratch file"),
        Err(Errno::NOSPC | Errno::DQUOT) => refuse!(
            "{place}: no room for {}: the file system ran full ({} were free)",
            format_size(bytes),
            format_size(room.free_bytes)
        ),
        Err(Errno::FBIG) => {
            refuse!("{place}: {} exceed the file size allowed (ulimit -f)", format_size(bytes))
        }
        Err(errno) => refuse!("{place}: cannot reserve {}: {errno}", format_size(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overdrive_base::size::GIB;

    fn room(total: u64, free: u64) -> FileSystem {
        FileSystem { magic: 0, name: "ext4", total_bytes: total, free_bytes: free }
    }

    #[test]
    fn a_tenth_of_the_file_system_stays_free() {
        assert_eq!(fit(".", ScratchSize::Asked(4 * GIB), &room(100 * GIB, 50 * GIB)).unwrap().0, 4 * GIB);
        let (bytes, notes) = fit(".", ScratchSize::Usual(4 * GIB), &room(100 * GIB, 12 * GIB)).unwrap();
        assert_eq!((bytes, notes.len()), (2 * GIB, 1));
        let error =
            fit(".", ScratchSize::Asked(4 * GIB), &room(100 * GIB, 12 * GIB)).unwrap_err().to_string();
        assert!(error.contains("at most --size 2048M fits"), "{error}");
        let error = fit(".", ScratchSize::Usual(GIB), &room(100 * GIB, 5 * GIB)).unwrap_err().to_string();
        assert!(error.contains("wanted room for at least 16 MiB"), "{error}");
        assert!(fit(".", ScratchSize::Asked(1), &room(100 * GIB, 50 * GIB)).is_err());
    }

    #[test]
    fn consent_must_name_the_target() {
        let access = |named: &str| AccessFlags {
            write_to: vec![named.to_owned()],
            wipe: false,
            buffered: false,
            seed: 1,
        };
        assert!(permitted_to_write("/dev/x", &access("/dev/x")).unwrap());
        assert!(permitted_to_write("/dev/x", &access("/dev/y")).is_err());
    }
}
