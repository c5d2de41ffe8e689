//! Opening what gets measured: reading is free, writing needs consent, a scratch file cleans up after itself.

use crate::Errno;
use rustix::fs::{
    Advice, FallocateFlags, FileType, Mode, OFlags, fadvise, fallocate, fcntl_getfl, fcntl_setfl, fstat,
};
use rustix::io::{ReadWriteFlags, preadv2, pwritev2};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Permission to overwrite one target, named again by the user. It is the only key to a writable target and
/// only the command line makes one, after it has checked that nobody else uses the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteConsent {
    path: PathBuf,
}

impl WriteConsent {
    /// Consent given for `path`, and for nothing else.
    #[must_use]
    pub fn given_for(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Whether it was given for this path.
    #[must_use]
    pub fn names(&self, path: &Path) -> bool {
        self.path == path
    }
}

/// How to open a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// Past the page cache (O_DIRECT).
    Direct,
    /// Through the page cache.
    Buffered,
}

/// Flags for opening a file of one's own, so that nobody leads elsewhere or keeps waiting who put a link or a
/// pipe in its place. What was opened is still to be asked whether it is a file.
#[must_use]
pub fn own_file_flags() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()
}

/// Opens a file that others could have put there, for reading.
///
/// # Errors
/// As `open(2)`; EINVAL when it is no file.
pub fn open_plain(path: &Path) -> std::io::Result<File> {
    let file = File::options().read(true).custom_flags(own_file_flags()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(Errno::INVAL.into()) }
}

/// Opens what is no file (a device, a pipe) for writing, without waiting for somebody to read from it.
///
/// # Errors
/// As `open(2)`; ENXIO when nobody reads from the pipe.
pub fn open_special_for_writing(path: &Path) -> std::io::Result<File> {
    let file = File::options().write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    // What is written may be more than a pipe holds at once.
    fcntl_setfl(&file, fcntl_getfl(&file)?.difference(OFlags::NONBLOCK))?;
    Ok(file)
}

/// Opens a target for reading.
///
/// # Errors
/// The kernel's errno; EINVAL means that the file system has no direct I/O.
pub fn open_for_reading(path: &Path, caching: Caching) -> Result<File, Errno> {
    open(path, OFlags::RDONLY, caching)
}

/// Opens a target for reading and writing. A block device is opened exclusively, so that nobody can mount it
/// or swap to it meanwhile.
///
/// # Errors
/// The kernel's errno (EBUSY: somebody else holds the device), or EACCES when the consent names another path.
pub fn open_for_writing(path: &Path, caching: Caching, consent: &WriteConsent) -> Result<File, Errno> {
    if !consent.names(path) {
        return Err(Errno::ACCESS);
    }
    // Without O_CREAT, O_EXCL means something for block devices only.
    open(path, OFlags::RDWR | OFlags::EXCL, caching)
}

/// Opens the character device of an NVMe namespace: for reading, or with consent for writing too. It knows no
/// exclusive use: whoever writes holds the namespace's block device exclusively meanwhile.
///
/// # Errors
/// The kernel's errno, or EACCES when the consent names another path.
pub fn open_namespace(path: &Path, consent: Option<&WriteConsent>) -> Result<File, Errno> {
    match consent {
        Some(consent) if consent.path != path => Err(Errno::ACCESS),
        Some(_) => open(path, OFlags::RDWR, Caching::Buffered),
        None => open(path, OFlags::RDONLY, Caching::Buffered),
    }
}

/// Makes a new file for reading and writing in `directory` and takes its name away at once, so that nothing
/// is left behind however the process ends. It never touches an existing file.
///
/// # Errors
/// The kernel's errno; EINVAL means that the file system has no direct I/O.
pub fn create_scratch(directory: &Path, caching: Caching) -> Result<File, Errno> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!(".overdrive-scratch-{}-{number}", std::process::id()));
        let opened = open(&path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, caching);
        if matches!(opened, Err(Errno::EXIST)) {
            continue; // Somebody else's file: leave it alone and try the next number.
        }
        // Also after a failure: a file system without O_DIRECT makes the file before it refuses the flag.
        let _ = std::fs::remove_file(&path);
        return opened;
    }
}

/// Makes a file of `bytes` without a name for direct I/O in `directory`, for this user alone: gone when it is
/// closed.
///
/// It has its full length from the start, without taking room: a write that makes a file longer keeps readers
/// out until it is over, and reads that were refused at once are left to a thread of the kernel's.
///
/// # Errors
/// The kernel's errno: EOPNOTSUPP or EINVAL when the file system has no unnamed files or no direct I/O, EFBIG
/// when this process may make no file so long (`ulimit -f`), for which the kernel would end it.
pub fn create_unnamed(directory: &Path, bytes: u64) -> Result<File, Errno> {
    if bytes > length_limit() {
        return Err(Errno::FBIG);
    }
    let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::ftruncate(&file, bytes)?;
    Ok(file.into())
}

/// The longest file that this process may write (`ulimit -f`).
#[must_use]
pub fn length_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// Whether this user may write to what is there, without opening it.
///
/// # Errors
/// The kernel's errno when not.
pub fn check_writable(path: &Path) -> Result<(), Errno> {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK)
}

/// Descriptors that all processes of a run inherit have this number or a higher one, where programs do not
/// look for theirs.
pub const RUN_DESCRIPTORS_FROM: i32 = 700;

/// Makes a descriptor that this process's children and what it becomes (exec) inherit.
///
/// # Errors
/// The kernel's errno: EINVAL when no descriptor may have such a number.
pub(crate) fn hand_down(from: impl AsFd) -> Result<OwnedFd, Errno> {
    let held = rustix::io::fcntl_dupfd_cloexec(from, RUN_DESCRIPTORS_FROM)?;
    rustix::io::fcntl_setfd(&held, rustix::io::FdFlags::empty())?;
    Ok(held)
}

/// The device and the file behind the descriptor of a number; none where it is not open.
#[must_use]
pub fn identity(number: RawFd) -> Option<(u64, u64)> {
    let mut about = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel fills the structure when it answers 0, and only then it is read.
    let about = unsafe { (libc::fstat(number, about.as_mut_ptr()) == 0).then(|| about.assume_init()) }?;
    Some((about.st_dev, about.st_ino))
}

/// Locks a directory (shared) for as long as this process, what it becomes, or a child of it keeps a
/// descriptor that all of them inherit.
///
/// # Errors
/// As `open(2)`, or EINVAL when no descriptor may have such a number.
pub fn lock_for_descendants(folder: &Path) -> Result<(), Errno> {
    let opened =
        rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::flock(&opened, rustix::fs::FlockOperation::NonBlockingLockShared)?;
    std::mem::forget(hand_down(&opened)?);
    Ok(())
}

/// Whether a program's file carries capabilities, which it gives to whoever runs it.
#[must_use]
pub fn has_capabilities(path: &Path) -> bool {
    rustix::fs::getxattr(path, "security.capability", &mut [0u8; 64]).is_ok()
}

fn open(path: &Path, access: OFlags, caching: Caching) -> Result<File, Errno> {
    let mut flags = access | OFlags::CLOEXEC | OFlags::NOCTTY;
    if caching == Caching::Direct {
        flags |= OFlags::DIRECT;
    }
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

/// Reserves the first `bytes` of a file on its file system.
///
/// # Errors
/// ENOSPC when they are not to be had, EOPNOTSUPP where the file system cannot reserve.
pub fn reserve(file: &File, bytes: u64) -> Result<(), Errno> {
    fallocate(file, FallocateFlags::empty(), 0, bytes)
}

/// Reads at an offset by preadv2; `polled` asks the kernel to spin for the completion (RWF_HIPRI).
///
/// # Errors
/// The kernel's errno.
#[inline]
pub fn read_at(file: &File, buffer: &mut [u8], offset: u64, polled: bool) -> Result<usize, Errno> {
    preadv2(file, &mut [IoSliceMut::new(buffer)], offset, rw_flags(polled))
}

/// Writes at an offset by pwritev2; `polled` as for [`read_at`].
///
/// # Errors
/// The kernel's errno.
#[inline]
pub fn write_at(file: &File, buffer: &[u8], offset: u64, polled: bool) -> Result<usize, Errno> {
    pwritev2(file, &[IoSlice::new(buffer)], offset, rw_flags(polled))
}

/// Reads at an offset by plain pread.
///
/// # Errors
/// The kernel's errno.
#[inline]
pub fn pread_at(file: &File, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    rustix::io::pread(file, buffer, offset)
}

/// Writes at an offset by plain pwrite.
///
/// # Errors
/// The kernel's errno.
#[inline]
pub fn pwrite_at(file: &File, buffer: &[u8], offset: u64) -> Result<usize, Errno> {
    rustix::io::pwrite(file, buffer, offset)
}

/// How data is given up, which depends on what holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimMethod {
    /// A block device is told that the data is not wanted any more (BLKDISCARD).
    Discard,
    /// A hole is punched into a file; its file system may tell the device.
    PunchHole,
}

impl TrimMethod {
    /// The method for an open file or block device.
    ///
    /// # Errors
    /// As `fstat(2)`.
    pub fn of(file: &File) -> Result<Self, Errno> {
        let block = FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::BlockDevice;
        Ok(if block { Self::Discard } else { Self::PunchHole })
    }
}

pub(crate) const PUNCH_HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// Gives up `length` bytes at `offset`.
///
/// # Errors
/// The kernel's errno: EOPNOTSUPP where the device or file system cannot.
pub fn trim_at(file: &File, method: TrimMethod, offset: u64, length: u64) -> Result<(), Errno> {
    match method {
        TrimMethod::PunchHole => fallocate(file, PUNCH_HOLE, offset, length),
        TrimMethod::Discard => discard(file.as_raw_fd(), [offset, length]),
    }
}

/// `BLKDISCARD` of linux/fs.h: `_IO(0x12, 119)`.
const BLKDISCARD: libc::c_ulong = 0x1277;

fn discard(device: RawFd, range: [u64; 2]) -> Result<(), Errno> {
    // SAFETY: the command reads two 64-bit words, start and length, from the array, which lives through the
    // call; the descriptor is the caller's open file.
    let status = unsafe { libc::ioctl(device, BLKDISCARD as _, range.as_ptr()) };
    if status == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// Makes what was written durable; `data_only` leaves out what is not needed to find the data again.
///
/// # Errors
/// The kernel's errno, which may be that of an earlier write.
pub fn sync_file(file: &File, data_only: bool) -> Result<(), Errno> {
    if data_only { rustix::fs::fdatasync(file) } else { rustix::fs::fsync(file) }
}

/// What every write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// Data and all that is known of the file (O_SYNC).
    Sync,
    /// Data and what is needed to find it again (O_DSYNC).
    DataSync,
}

/// Opens an open file once more, with its access and caching, so that each write is durable when it returns.
///
/// # Errors
/// The kernel's errno; ENOENT where /proc is not mounted.
pub fn reopen_durable(file: &File, durable: Durable) -> Result<File, Errno> {
    let kept = OFlags::RWMODE | OFlags::DIRECT;
    let flags = fcntl_getfl(file)? & kept;
    let flags = flags | if durable == Durable::Sync { OFlags::SYNC } else { OFlags::DSYNC };
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()).map(File::from)
}

/// The order of accesses to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Nothing is said.
    Anything,
    /// In no order: nothing need be read ahead.
    Random,
    /// Ascending.
    Sequential,
}

/// Tells the kernel in which order an open file will be accessed.
///
/// # Errors
/// As `posix_fadvise(2)`.
pub fn expect_accesses(file: &File, expected: Expected) -> Result<(), Errno> {
    let advice = match expected {
        Expected::Anything => Advice::Normal,
        Expected::Random => Advice::Random,
        Expected::Sequential => Advice::Sequential,
    };
    fadvise(file, 0, None, advice)
}

/// Drops what the page cache holds of a file, as far as it is clean and nobody else uses it.
///
/// # Errors
/// As `posix_fadvise(2)`.
pub fn drop_cached(file: &File) -> Result<(), Errno> {
    fadvise(file, 0, None, Advice::DontNeed)
}

fn rw_flags(polled: bool) -> ReadWriteFlags {
    if polled { ReadWriteFlags::HIPRI } else { ReadWriteFlags::empty() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_file_has_no_name() {
        let directory = tempfile::tempdir().unwrap();
        let file = create_scratch(directory.path(), Caching::Buffered).unwrap();
        reserve(&file, 8192).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert_eq!(file.metadata().unwrap().len(), 8192);
        assert_eq!(write_at(&file, &[5; 100], 4096, false), Ok(100));
        let mut back = [0; 100];
        assert_eq!(read_at(&file, &mut back, 4096, false), Ok(100));
        assert_eq!(back, [5; 100]);
    }

    #[test]
    fn consent_opens_only_what_it_names() {
        let directory = tempfile::tempdir().unwrap();
        let (mine, other) = (directory.path().join("mine"), directory.path().join("other"));
        std::fs::write(&mine, b"x").unwrap();
        std::fs::write(&other, b"x").unwrap();
        let consent = WriteConsent::given_for(&mine);
        assert!(open_for_writing(&mine, Caching::Buffered, &consent).is_ok());
        assert_eq!(open_for_writing(&other, Caching::Buffered, &consent).err(), Some(Errno::ACCESS));
    }

    #[test]
    fn a_trimmed_range_reads_as_zeroes_and_the_rest_stays() {
        let directory = tempfile::tempdir().unwrap();
        let file = create_scratch(directory.path(), Caching::Buffered).unwrap();
        write_at(&file, &[7; 16384], 0, false).unwrap();
        assert_eq!(TrimMethod::of(&file), Ok(TrimMethod::PunchHole));
        match trim_at(&file, TrimMethod::PunchHole, 4096, 8192) {
            Err(Errno::OPNOTSUPP) => return,
            other => other.unwrap(),
        }
        let mut back = [1; 16384];
        assert_eq!(read_at(&file, &mut back, 0, false), Ok(16384));
        assert!(back[..4096].iter().chain(&back[12288..]).all(|&byte| byte == 7));
        assert!(back[4096..12288].iter().all(|&byte| byte == 0));
        assert_eq!(trim_at(&file, TrimMethod::Discard, 0, 4096), Err(Errno::NOTTY));
    }

    #[test]
    fn a_file_without_a_name_is_opened_again_with_durable_writes() {
        let directory = tempfile::tempdir().unwrap();
        let file = create_scratch(directory.path(), Caching::Buffered).unwrap();
        for (durable, flag) in [(Durable::Sync, OFlags::SYNC), (Durable::DataSync, OFlags::DSYNC)] {
            let again = reopen_durable(&file, durable).unwrap();
            assert!(fcntl_getfl(&again).unwrap().contains(flag));
            assert_eq!(write_at(&again, b"durable", 0, false), Ok(7));
        }
        let mut back = [0; 7];
        assert_eq!(read_at(&file, &mut back, 0, false), Ok(7));
        assert_eq!(&back, b"durable");
        sync_file(&file, true).and_then(|()| sync_file(&file, false)).unwrap();
        expect_accesses(&file, Expected::Random).and_then(|()| drop_cached(&file)).unwrap();
    }

    #[test]
    fn a_read_only_handle_does_not_write() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, b"hello").unwrap();
        let file = open_for_reading(&path, Caching::Buffered).unwrap();
        assert_eq!(write_at(&file, b"no", 0, false), Err(Errno::BADF));
    }
}
