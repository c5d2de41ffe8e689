//! What the driver needs of a host, and the real one: files below a root, swap, and a journal on stable
//! storage.

use super::machine::Answer;
use super::{Device, Kind, may_write, swap};
use crate::facts::memory::read_swaps;
use crate::root::Root;
use overdrive_sys::file::WriteConsent;
use overdrive_sys::swap as kernel;
use overdrive_sys::swap::space::{self, FirstPage};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A host that can be changed.
pub trait System {
    /// Reads what a path holds as one of a kind: its text, the words of its first page, or how it is swapped
    /// to.
    fn read(&mut self, kind: Kind, path: &str) -> Answer;
    /// Writes a path: an attribute in one call, a file replaced as a whole or, without text, removed; a swap
    /// area turned on or, without text, off.
    ///
    /// # Errors
    /// The kernel's errno.
    fn write(&mut self, kind: Kind, path: &str, text: Option<&str>) -> Result<(), i32>;
    /// The whole journal.
    ///
    /// # Errors
    /// The kernel's errno.
    fn journal(&mut self) -> Result<Vec<u8>, i32>;
    /// Puts a line behind the first `end` bytes of the journal, on stable storage. On failure nothing of it
    /// counts.
    ///
    /// # Errors
    /// The kernel's errno.
    fn append(&mut self, end: u64, line: &str) -> Result<(), i32>;
    /// Keeps the journal under another name, which is returned, and begins an empty one.
    ///
    /// # Errors
    /// The kernel's errno.
    fn set_aside(&mut self) -> Result<String, i32>;
    /// Where a device is now, if it is there.
    fn locate(&mut self, device: &Device) -> Option<String>;
}

/// Why the journal cannot be used.
#[derive(Debug, Error)]
pub enum OpenError {
    /// It cannot be opened or made.
    #[error("{}: {source}; --state DIR names another folder for the journal", path.display())]
    Journal {
        /// Where.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Another process is at it.
    #[error("{}: another overdrive is changing this host; wanted to be alone", .0.display())]
    Locked(PathBuf),
}

/// The running system, or a folder that looks like one.
#[derive(Debug)]
pub struct HostSystem {
    base: PathBuf,
    root: Root,
    /// The journal's folder.
    state: PathBuf,
    journal: File,
    /// Devices whose first page may be written.
    consents: Vec<WriteConsent>,
    /// Held for as long as this value lives; none for a look only.
    _lock: Option<File>,
}

/// The end of the name of a file that is not complete; none of the folders' readers look at it.
const UNFINISHED: &str = "overdrive-part";

const JOURNAL: &str = "journal.jsonl";

const EPERM: i32 = 1;
const EIO: i32 = 5;
const ENOENT: i32 = 2;
const EINVAL: i32 = 22;
const ELOOP: i32 = 40;

/// The journal's usual folder below a root. As for attributes, a link in a copied tree does not lead out of
/// it.
///
/// # Errors
/// When a link on the way leads to nowhere in this root.
pub fn state_folder(base: &Path) -> Result<PathBuf, OpenError> {
    let root = Root::new(base);
    let mut folder = base.to_owned();
    let mut path = String::new();
    for part in ["var", "lib", "overdrive"] {
        path = format!("{path}/{part}");
        folder = match root.resolve(&path).value() {
            Some(real) => base.join(real.trim_start_matches('/')),
            None => folder.join(part),
        };
        if folder.is_symlink() {
            let source = io::Error::other("a symbolic link to nowhere in this root");
            return Err(OpenError::Journal { path: folder, source });
        }
    }
    Ok(folder)
}

/// Opens a file in the journal's folder: neither through a link nor anything that is not a file.
fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let other = |what: &str| io::Error::other(format!("{what}; wanted a file of Overdrive's own"));
    if path.is_symlink() {
        return Err(other("a symbolic link"));
    }
    let file = options.custom_flags(overdrive_sys::file::own_file_flags()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(other("not a regular file")) }
}

impl HostSystem {
    /// Takes the lock and opens the journal in the folder `state`, making both if need be.
    ///
    /// # Errors
    /// When the folder cannot be used or somebody else holds the lock.
    pub fn open(base: &Path, state: &Path) -> Result<HostSystem, OpenError> {
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Journal { path, source }
        };
        std::fs::create_dir_all(state).map_err(fail(state))?;
        let lock_path = state.join("lock");
        let lock = open_own(OpenOptions::new().create(true).truncate(false).write(true), &lock_path);
        let lock = lock.map_err(fail(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(OpenError::Locked(lock_path)),
            Err(std::fs::TryLockError::Error(source)) => return Err(fail(&lock_path)(source)),
        }
        let path = state.join(JOURNAL);
        let journal = open_own(OpenOptions::new().create(true).read(true).append(true), &path);
        let journal = journal.map_err(fail(&path))?;
        // The name itself must survive a crash, or what is synced below it is lost with it.
        File::open(state).and_then(|folder| folder.sync_all()).map_err(fail(state))?;
        let system = HostSystem::of(base, state, journal, Some(lock));
        system.sweep();
        Ok(system)
    }

    /// Opens an existing journal for reading only, without the lock; none when nothing was ever changed.
    ///
    /// # Errors
    /// When it is there and may not be read.
    pub fn look(base: &Path, state: &Path) -> Result<Option<HostSystem>, OpenError> {
        let path = state.join(JOURNAL);
        match open_own(OpenOptions::new().read(true), &path) {
            Ok(journal) => Ok(Some(HostSystem::of(base, state, journal, None))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(OpenError::Journal { path, source }),
        }
    }

    fn of(base: &Path, state: &Path, journal: File, lock: Option<File>) -> HostSystem {
        let (base, root, state) = (base.to_owned(), Root::new(base), state.to_owned());
        HostSystem { base, root, state, journal, consents: Vec::new(), _lock: lock }
    }

    /// Allows the first page of a device to be written.
    pub fn consent(&mut self, consent: WriteConsent) {
        self.consents.push(consent);
    }

    /// Removes what a process that was killed while it wrote a file left of it.
    fn sweep(&self) {
        for folder in super::persist::FOLDERS {
            let (names, real) = (self.root.list(folder), self.root.resolve(folder));
            let Some(real) = real.value() else { continue };
            for name in names.value().into_iter().flatten().filter(|name| name.ends_with(UNFINISHED)) {
                let _ = std::fs::remove_file(self.real(real).join(name));
            }
        }
    }

    fn real(&self, path: &str) -> PathBuf {
        self.base.join(path.trim_start_matches('/'))
    }

    fn write_attribute(&self, path: &str, text: &str) -> io::Result<()> {
        // Links are followed inside the root only, so that a copied tree never leads to the running system.
        let resolved = self.root.resolve(path);
        let real = resolved.value().ok_or_else(|| io::Error::from_raw_os_error(ENOENT))?;
        let mut file = OpenOptions::new().write(true).truncate(true).open(self.real(real))?;
        file.write_all(format!("{text}\n").as_bytes())
    }

    /// Whether a folder that is not there in this root would be made behind a link.
    fn leads_out(&self, folder: &str) -> bool {
        let ancestors = Path::new(folder.trim_start_matches('/')).ancestors();
        ancestors.map(|part| self.base.join(part)).any(|part| part != self.base && part.is_symlink())
    }

    fn replace_file(&self, path: &str, text: Option<&str>) -> io::Result<()> {
        let (above, name) = path.rsplit_once('/').unwrap_or_default();
        // As for attributes: a link in a copied tree does not lead out of it.
        let folder = match self.root.resolve(above).value() {
            Some(real) => self.real(real),
            None if self.leads_out(above) => return Err(io::Error::from_raw_os_error(ENOENT)),
            None => self.real(above),
        };
        let real = folder.join(name);
        // A link there is somebody's, wherever it leads, and would be lost: a journal knows texts only.
        if real.is_symlink() {
            return Err(io::Error::from_raw_os_error(ELOOP));
        }
        match text {
            Some(text) => {
                std::fs::create_dir_all(&folder)?;
                let unfinished = real.with_extension(UNFINISHED);
                let mut file = File::create(&unfinished)?;
                let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
                let placed = written.and_then(|()| std::fs::rename(&unfinished, &real));
                placed.inspect_err(|_| drop(std::fs::remove_file(&unfinished)))?;
            }
            None => match std::fs::remove_file(&real) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            },
        }
        // A folder of drop-ins for one unit goes with the last file in it; it fails for any that has others.
        if text.is_none() && above.ends_with(".target.d") && std::fs::remove_dir(&folder).is_ok() {
            return folder.parent().map_or(Ok(()), |over| File::open(over)?.sync_all());
        }
        File::open(folder)?.sync_all()
    }
}

impl HostSystem {
    fn read_text(&self, path: &str) -> Answer {
        use crate::facts::Fact;
        match self.root.text(path) {
            Fact::Known { raw, .. } => Ok(Some(raw)),
            Fact::Absent { .. } => Ok(None),
            Fact::Unreadable { errno, .. } => Err(errno.unwrap_or(EIO)),
        }
    }

    fn read_area(&self, path: &str) -> Answer {
        let areas = read_swaps(&self.root);
        if areas.value().is_none() && !areas.is_absent() {
            return Err(EIO);
        }
        let on = areas.value().into_iter().flatten().find(|area| area.path == path);
        Ok(on.map(|area| swap::area_text(area.priority)))
    }

    /// A copy of a host has neither devices nor swap.
    fn is_running(&self) -> bool {
        self.base == Path::new("/")
    }

    fn write_space(&self, path: &str, text: Option<&str>) -> io::Result<()> {
        let refused = |errno| io::Error::from_raw_os_error(errno);
        let real = Path::new(path);
        let Some(text) = text else { return space::remove_file(real) };
        let page = swap::page_of(text).ok_or_else(|| refused(EINVAL))?;
        match (&page, space::first_page(real)?) {
            (FirstPage::Ours(space), None) => space::create_file(real, space),
            _ => {
                let consent = self.consents.iter().find(|consent| consent.names(real));
                space::write_first_page(real, &page, consent.ok_or_else(|| refused(EPERM))?)
            }
        }
    }

    fn write_area(path: &str, text: Option<&str>) -> io::Result<()> {
        let Some(text) = text else { return kernel::turn_off(Path::new(path)) };
        let manner = swap::manner_of(text).ok_or_else(|| io::Error::from_raw_os_error(EINVAL))?;
        kernel::turn_on(Path::new(path), manner)
    }
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(EIO)
}

impl System for HostSystem {
    fn read(&mut self, kind: Kind, path: &str) -> Answer {
        match kind {
            Kind::Attribute | Kind::File => self.read_text(path),
            Kind::SwapArea => self.read_area(path),
            Kind::SwapSpace if !self.is_running() => Ok(None),
            Kind::SwapSpace => match space::first_page(Path::new(path)) {
                Ok(page) => Ok(page.as_ref().map(swap::page_text)),
                Err(error) => Err(errno(&error)),
            },
        }
    }

    fn write(&mut self, kind: Kind, path: &str, text: Option<&str>) -> Result<(), i32> {
        if !may_write(kind, path) || (kind.is_swap() && !self.is_running()) {
            return Err(EPERM);
        }
        let written = match (kind, text) {
            (Kind::Attribute, Some(text)) => self.write_attribute(path, text),
            (Kind::Attribute, None) => return Err(EPERM),
            (Kind::File, text) => self.replace_file(path, text),
            (Kind::SwapSpace, text) => self.write_space(path, text),
            (Kind::SwapArea, text) => Self::write_area(path, text),
        };
        written.map_err(|error| errno(&error))
    }

    fn journal(&mut self) -> Result<Vec<u8>, i32> {
        use std::io::Seek;
        let mut bytes = Vec::new();
        self.journal.rewind().map_err(|error| errno(&error))?;
        self.journal.read_to_end(&mut bytes).map_err(|error| errno(&error))?;
        Ok(bytes)
    }

    fn append(&mut self, end: u64, line: &str) -> Result<(), i32> {
        let length = self.journal.metadata().map_err(|error| errno(&error))?.len();
        if length != end {
            // A torn line of a crash: it never counted, and must not run into this one.
            self.journal.set_len(end).map_err(|error| errno(&error))?;
        }
        let written = self.journal.write_all(line.as_bytes()).and_then(|()| self.journal.sync_data());
        written.map_err(|error| {
            let _ = self.journal.set_len(end);
            errno(&error)
        })
    }

    fn set_aside(&mut self) -> Result<String, i32> {
        let path = self.state.join(JOURNAL);
        let names = (1..).map(|number| self.state.join(format!("journal.damaged-{number}.jsonl")));
        let free = names.into_iter().find(|name| name.symlink_metadata().is_err());
        let kept = free.ok_or(EIO)?;
        let fresh = std::fs::rename(&path, &kept).and_then(|()| {
            let fresh = open_own(OpenOptions::new().create_new(true).read(true).append(true), &path)?;
            File::open(&self.state)?.sync_all()?;
            Ok(fresh)
        });
        self.journal = fresh.map_err(|error| errno(&error))?;
        Ok(kept.display().to_string())
    }

    fn locate(&mut self, device: &Device) -> Option<String> {
        super::plan::locate(&self.root, device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (base, state) = (folder.path().join("host"), folder.path().join("state"));
        std::fs::create_dir_all(base.join("proc/sys/vm")).unwrap();
        std::fs::write(base.join("proc/sys/vm/swappiness"), "60\n").unwrap();
        (folder, base, state)
    }

    #[test]
    fn attributes_and_own_files_are_written_and_nothing_else() {
        let (_folder, base, state) = copy();
        let mut system = HostSystem::open(&base, &state).unwrap();
        let swappiness = "/proc/sys/vm/swappiness";
        system.write(Kind::Attribute, swappiness, Some("100")).unwrap();
        assert_eq!(system.read(Kind::Attribute, swappiness), Ok(Some("100\n".to_owned())));
        assert_eq!(system.write(Kind::Attribute, "/proc/sys/vm/page-cluster", Some("1")), Err(ENOENT));
        assert!(!base.join("proc/sys/vm/page-cluster").exists());
        let file = "/etc/sysctl.d/90-overdrive-1.conf";
        system.write(Kind::File, file, Some("x\n")).unwrap();
        assert_eq!(system.read(Kind::File, file), Ok(Some("x\n".to_owned())));
        system.write(Kind::File, file, None).unwrap();
        assert_eq!(std::fs::read_dir(base.join("etc/sysctl.d")).unwrap().count(), 0);
        for path in ["/etc/passwd", "/etc/sysctl.d/99-theirs.conf"] {
            assert_eq!(system.write(Kind::File, path, Some("x")), Err(EPERM), "{path}");
        }
    }

    #[test]
    fn a_copied_host_is_never_swapped_to() {
        let (folder, base, state) = copy();
        std::fs::write(base.join("proc/swaps"), "Filename Type Size Used Priority\n/dev/x file 8 0 -2\n")
            .unwrap();
        let mut system = HostSystem::open(&base, &state).unwrap();
        let path = folder.path().join("space");
        let path = path.to_str().unwrap();
        assert_eq!(system.read(Kind::SwapArea, "/dev/x"), Ok(Some("priority auto".to_owned())));
        assert_eq!(system.read(Kind::SwapArea, path), Ok(None));
        let space = format!("swap 65536 {}", "00".repeat(16));
        assert_eq!(system.write(Kind::SwapSpace, path, Some(&space)), Err(EPERM));
        assert_eq!(system.write(Kind::SwapArea, "/dev/x", None), Err(EPERM));
        assert!(!Path::new(path).exists());
    }

    #[test]
    fn a_link_in_a_copied_host_does_not_lead_out_of_it() {
        let (folder, base, state) = copy();
        let outside = folder.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::create_dir(base.join("etc")).unwrap();
        std::os::unix::fs::symlink(&outside, base.join("etc/sysctl.d")).unwrap();
        let mut system = HostSystem::open(&base, &state).unwrap();
        let _ = system.write(Kind::File, "/etc/sysctl.d/90-overdrive-1.conf", Some("x"));
        assert_eq!(std::fs::read_dir(outside).unwrap().count(), 0);
    }

    #[test]
    fn a_link_in_place_of_an_own_file_stays() {
        let (_folder, base, state) = copy();
        std::fs::create_dir_all(base.join("etc/sysctl.d")).unwrap();
        let file = "/etc/sysctl.d/90-overdrive-1.conf";
        let link = base.join(file.trim_start_matches('/'));
        std::os::unix::fs::symlink("to nowhere", &link).unwrap();
        let mut system = HostSystem::open(&base, &state).unwrap();
        for text in [Some("x\n"), None] {
            assert_eq!(system.write(Kind::File, file, text), Err(ELOOP));
            assert_eq!(std::fs::read_link(&link).unwrap(), Path::new("to nowhere"));
        }
    }

    #[test]
    fn what_lies_in_place_of_the_journal_is_neither_followed_nor_waited_for() {
        let (folder, base, state) = copy();
        let theirs = folder.path().join("theirs");
        std::fs::write(&theirs, "precious\n").unwrap();
        for name in ["journal.jsonl", "lock"] {
            std::fs::create_dir_all(&state).unwrap();
            std::os::unix::fs::symlink(&theirs, state.join(name)).unwrap();
            let error = HostSystem::open(&base, &state).unwrap_err().to_string();
            assert!(error.contains("a symbolic link; wanted"), "{error}");
            std::fs::remove_dir_all(&state).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "precious\n");
        std::fs::create_dir_all(&state).unwrap();
        let made = std::process::Command::new("mkfifo").arg(state.join("journal.jsonl")).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo");
        assert!(HostSystem::look(&base, &state).is_err() && HostSystem::open(&base, &state).is_err());
    }

    #[test]
    fn the_journals_folder_is_never_outside_the_root() {
        let (folder, base, _) = copy();
        assert_eq!(state_folder(&base).unwrap(), base.join("var/lib/overdrive"));
        std::fs::create_dir_all(base.join("data")).unwrap();
        std::fs::create_dir(base.join("var")).unwrap();
        std::os::unix::fs::symlink("/data", base.join("var/lib")).unwrap();
        assert_eq!(state_folder(&base).unwrap(), base.join("data/overdrive"));
        std::fs::remove_file(base.join("var/lib")).unwrap();
        std::os::unix::fs::symlink(folder.path(), base.join("var/lib")).unwrap();
        assert!(state_folder(&base).is_err());
    }

    #[test]
    fn a_damaged_journal_is_kept_under_another_name() {
        let (_folder, base, state) = copy();
        let mut system = HostSystem::open(&base, &state).unwrap();
        for number in 1..=2 {
            system.append(0, "old\n").unwrap();
            let kept = system.set_aside().unwrap();
            assert!(kept.ends_with(&format!("journal.damaged-{number}.jsonl")), "{kept}");
            assert_eq!(std::fs::read_to_string(kept).unwrap(), "old\n");
            assert_eq!(system.journal().unwrap(), b"");
        }
    }

    #[test]
    fn a_torn_line_makes_room_for_the_next_and_a_killed_write_is_swept() {
        let (_folder, base, state) = copy();
        std::fs::create_dir_all(base.join("etc/sysctl.d")).unwrap();
        let leftover = base.join("etc/sysctl.d/90-overdrive-1.overdrive-part");
        std::fs::write(&leftover, "x").unwrap();
        let mut system = HostSystem::open(&base, &state).unwrap();
        assert!(!leftover.exists());
        system.append(0, "one\n").unwrap();
        system.append(4, "torn").unwrap();
        system.append(4, "two\n").unwrap();
        assert_eq!(system.journal().unwrap(), b"one\ntwo\n");
    }

    #[test]
    fn a_second_one_is_kept_out_while_the_first_is_at_it() {
        let (_folder, base, state) = copy();
        let first = HostSystem::open(&base, &state).unwrap();
        assert!(matches!(HostSystem::open(&base, &state), Err(OpenError::Locked(_))));
        assert!(HostSystem::look(&base, &state).unwrap().is_some());
        drop(first);
        assert!(HostSystem::open(&base, &state).is_ok());
    }
}
