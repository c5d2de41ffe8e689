//! Swap space: the first page that makes a device or a file fit to be swapped to, read, written, taken away.
//!
//! Only the first page of a device is ever written here, with the consent that names it, and only while
//! nobody else holds the device. What a change of swap means, and when it is allowed, is the callers'
//! business.

use super::PAGE;
use crate::Errno;
use crate::file::WriteConsent;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, IFlags, Mode, OFlags, fallocate, ioctl_getflags, ioctl_setflags,
    linkat, open,
};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The volume name in the header of every space of ours.
const LABEL: &[u8] = b"overdrive";

/// The kernel takes no smaller area.
const PAGES_MIN: u64 = 10;

/// A swap space of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// How much of the device or file is used, in bytes: whole pages.
    pub bytes: u64,
    /// What tells it from every other.
    pub uuid: [u8; 16],
}

impl Space {
    /// A space over the whole pages of `bytes`, with a fresh random mark.
    ///
    /// # Errors
    /// When the kernel gives no random bytes.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let mut uuid = [0; 16];
        io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut uuid)?;
        Ok(Self { bytes: bytes / PAGE * PAGE, uuid })
    }

    /// Its first page: boot block left empty, version 1, the last page's number, no bad pages, mark, name,
    /// and the magic at the end.
    ///
    /// # Errors
    /// EINVAL when it is too small for an area, EFBIG when its pages have no number.
    pub fn encode(&self) -> Result<Vec<u8>, Errno> {
        let pages = self.bytes / PAGE;
        let last = u32::try_from(pages.saturating_sub(1)).map_err(|_| Errno::FBIG)?;
        if pages < PAGES_MIN {
            return Err(Errno::INVAL);
        }
        let mut page = vec![0; PAGE as usize];
        page[1024..1028].copy_from_slice(&1u32.to_ne_bytes());
        page[1028..1032].copy_from_slice(&last.to_ne_bytes());
        page[1036..1052].copy_from_slice(&self.uuid);
        page[1052..1052 + LABEL.len()].copy_from_slice(LABEL);
        page[PAGE as usize - 10..].copy_from_slice(b"SWAPSPACE2");
        Ok(page)
    }

    /// The space that this page was made for; none when it is anything but a page of ours, to the byte.
    #[must_use]
    pub fn decode(page: &[u8]) -> Option<Self> {
        let last = u32::from_ne_bytes(page.get(1028..1032)?.try_into().ok()?);
        let uuid = page.get(1036..1052)?.try_into().ok()?;
        let space = Self { bytes: (u64::from(last) + 1) * PAGE, uuid };
        (space.encode().ok()? == page).then_some(space)
    }
}

/// What the first page of a device or file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstPage {
    /// Nothing.
    Zeros,
    /// A swap space of ours.
    Ours(Space),
    /// Something else: these bytes.
    Other(Vec<u8>),
}

impl FirstPage {
    fn bytes(&self) -> Result<Vec<u8>, Errno> {
        match self {
            FirstPage::Zeros => Ok(vec![0; PAGE as usize]),
            FirstPage::Ours(space) => space.encode(),
            FirstPage::Other(bytes) if bytes.len() == PAGE as usize => Ok(bytes.clone()),
            FirstPage::Other(_) => Err(Errno::INVAL),
        }
    }
}

/// Reads the first page of a block device or file; none when there is no such path.
///
/// # Errors
/// What the kernel refuses; EINVAL for what is neither a block device nor a regular file.
pub fn first_page(path: &Path) -> io::Result<Option<FirstPage>> {
    // O_NONBLOCK: a pipe of that name must not be waited for.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
        return Err(Errno::INVAL.into());
    }
    let mut page = vec![0; PAGE as usize];
    let mut filled = 0;
    while filled < page.len() {
        match file.read_at(&mut page[filled..], filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    // A file that ends early is no space, and no page of zeros either.
    page.truncate(filled);
    Ok(Some(match Space::decode(&page) {
        Some(space) => FirstPage::Ours(space),
        None if filled as u64 == PAGE && page.iter().all(|&byte| byte == 0) => FirstPage::Zeros,
        None => FirstPage::Other(page),
    }))
}

/// Makes a file of the space's size with its first page. The file has no name until all of that is on stable
/// storage, so that a kill leaves the whole or nothing.
///
/// # Errors
/// EEXIST when the name is taken; otherwise what the file system refuses. Nothing is left behind then.
pub fn create_file(path: &Path, space: &Space) -> io::Result<()> {
    let page = space.encode()?;
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mut file = File::from(open(folder, flags, Mode::RUSR | Mode::WUSR)?);
    stop_copying_on_write(&file);
    fallocate(&file, FallocateFlags::empty(), 0, space.bytes)?;
    file.write_all(&page)?;
    file.sync_all()?;
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
    File::open(folder)?.sync_all()
}

/// btrfs swaps only to files that it writes in place. Elsewhere the flag is not known and not needed.
fn stop_copying_on_write(file: &File) {
    const BTRFS: u64 = 0x9123_683e;
    let is_btrfs = rustix::fs::fstatfs(file).is_ok_and(|stat| stat.f_type as u64 & 0xffff_ffff == BTRFS);
    if is_btrfs && let Ok(flags) = ioctl_getflags(file) {
        // Refused: turning the swap on says why.
        let _ = ioctl_setflags(file, flags | IFlags::NOCOW);
    }
}

/// Removes a file, if a swap space of ours is what it holds.
///
/// # Errors
/// EBUSY while it is swapped to, EPERM when it holds anything else; otherwise what the kernel refuses.
pub fn remove_file(path: &Path) -> io::Result<()> {
    match first_page(path)? {
        None => return Ok(()),
        Some(FirstPage::Ours(_)) if std::fs::metadata(path)?.is_file() => {}
        Some(_) => return Err(Errno::PERM.into()),
    }
    if super::areas()?.iter().any(|area| area.path == path) {
        return Err(Errno::BUSY.into());
    }
    std::fs::remove_file(path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Writes the first page of a block device that nobody holds.
///
/// # Errors
/// EACCES when the consent names another path, EBUSY when the device is mounted, swapped to or built upon,
/// EINVAL when it is no block device; otherwise what the kernel refuses.
pub fn write_first_page(path: &Path, page: &FirstPage, consent: &WriteConsent) -> io::Result<()> {
    let bytes = page.bytes()?;
    if !consent.names(path) {
        return Err(Errno::ACCESS.into());
    }
    // Without O_CREAT, O_EXCL means for a block device: nobody else.
    let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let device = File::from(open(path, flags, Mode::empty())?);
    if FileType::from_raw_mode(rustix::fs::fstat(&device)?.st_mode) != FileType::BlockDevice {
        return Err(Errno::INVAL.into());
    }
    device.write_all_at(&bytes, 0)?;
    device.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_ours_is_told_from_any_other() {
        let space = Space::new((1 << 20) + 5).unwrap();
        assert_eq!(space.bytes, 1 << 20);
        let mut page = space.encode().unwrap();
        assert_eq!(Space::decode(&page), Some(space));
        assert_ne!(Space::new(1 << 20).unwrap().uuid, space.uuid);
        page[100] = 1;
        assert_eq!(Space::decode(&page), None, "somebody's boot block is in it");
        assert_eq!(Space::decode(&[]), None);
        assert_eq!(Space { bytes: PAGE * 9, ..space }.encode(), Err(Errno::INVAL));
        assert_eq!(Space { bytes: u64::MAX / PAGE * PAGE, ..space }.encode(), Err(Errno::FBIG));
    }

    #[test]
    fn a_file_is_made_whole_and_removed_only_if_it_is_ours() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("space");
        let space = Space::new(1 << 20).unwrap();
        assert_eq!(first_page(&path).unwrap(), None);
        create_file(&path, &space).unwrap();
        assert_eq!(first_page(&path).unwrap(), Some(FirstPage::Ours(space)));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
        assert_eq!(create_file(&path, &space).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        remove_file(&path).unwrap();
        remove_file(&path).unwrap();
        std::fs::write(&path, "theirs").unwrap();
        assert_eq!(remove_file(&path).unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert_eq!(first_page(&path).unwrap(), Some(FirstPage::Other(b"theirs".to_vec())));
        let zeros = folder.path().join("zeros");
        std::fs::write(&zeros, [0; 8192]).unwrap();
        assert_eq!(first_page(&zeros).unwrap(), Some(FirstPage::Zeros));
        assert_eq!(remove_file(&zeros).unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert!(first_page(folder.path()).is_err());
        assert!(create_file(&folder.path().join("none/space"), &space).is_err());
    }

    #[test]
    fn a_first_page_needs_consent_and_a_block_device() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [7; 8192]).unwrap();
        let write = |consent: &Path| {
            let consent = WriteConsent::given_for(consent);
            write_first_page(&path, &FirstPage::Zeros, &consent).unwrap_err().raw_os_error()
        };
        assert_eq!(write(folder.path()), Some(libc::EACCES));
        assert_eq!(write(&path), Some(libc::EINVAL));
        assert_eq!(std::fs::read(&path).unwrap(), [7; 8192]);
    }
}
