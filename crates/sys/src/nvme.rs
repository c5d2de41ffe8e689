//! Questions to an NVMe controller through its admin queue: Identify, logs, features. Nothing here changes a
//! drive: only commands that read are offered, each with a buffer of its own.
//!
//! The answers are bytes; what they mean stands in the host crate, but for the shape of a namespace, without
//! which no I/O command can be made. The device node has to be opened by the
//! caller, read-only; newer kernels let anybody who can open it ask, older ones want `CAP_SYS_ADMIN`.

use rustix::fd::{AsFd, AsRawFd};
use std::io;

/// The longest answer that is asked for: an Identify page.
pub const ANSWER_BYTES: usize = 4096;

/// A question to a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Query {
    /// What the controller is; 4096 bytes.
    IdentifyController,
    /// What a namespace is; 4096 bytes.
    IdentifyNamespace {
        /// Namespace number, from 1.
        namespace: u32,
    },
    /// The health log; 512 bytes.
    SmartLog,
    /// The value of a feature, and for some a page with it.
    Feature {
        /// Feature number.
        id: u8,
    },
}

/// What a controller answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The result of the completion: a feature's value.
    pub result: u32,
    /// The data; empty where none belongs to it.
    pub data: Vec<u8>,
}

/// Autonomous power state transition: the one feature asked for that comes with data.
pub const FEATURE_APST: u8 = 0x0c;

const OPCODE_GET_LOG_PAGE: u8 = 0x02;
const OPCODE_IDENTIFY: u8 = 0x06;
const OPCODE_GET_FEATURES: u8 = 0x0a;
const SMART_LOG_BYTES: usize = 512;
const APST_BYTES: usize = 256;
/// How long the controller may take, in ms.
const TIMEOUT_MS: u32 = 2_000;

/// `struct nvme_admin_cmd` of linux/nvme_ioctl.h.
#[repr(C)]
#[derive(Debug, Default)]
struct AdminCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    dword2: u32,
    dword3: u32,
    metadata: u64,
    address: u64,
    metadata_len: u32,
    data_len: u32,
    dword10: u32,
    dword11: u32,
    dword12: u32,
    dword13: u32,
    dword14: u32,
    dword15: u32,
    timeout_ms: u32,
    result: u32,
}

/// `NVME_IOCTL_ADMIN_CMD`: read and write, 72 bytes, type 'N', number 0x41.
const IOCTL_ADMIN: libc::c_ulong = (3 << 30) | ((size_of::<AdminCommand>() as libc::c_ulong) << 16) | 0x4e41;

const _: () = assert!(size_of::<AdminCommand>() == 72);

impl Query {
    fn command(self) -> AdminCommand {
        const ALL_NAMESPACES: u32 = u32::MAX;
        let command = AdminCommand { timeout_ms: TIMEOUT_MS, ..AdminCommand::default() };
        match self {
            Query::IdentifyController => {
                AdminCommand { opcode: OPCODE_IDENTIFY, data_len: ANSWER_BYTES as u32, dword10: 1, ..command }
            }
            Query::IdentifyNamespace { namespace } => {
                AdminCommand { opcode: OPCODE_IDENTIFY, namespace, data_len: ANSWER_BYTES as u32, ..command }
            }
            Query::SmartLog => AdminCommand {
                opcode: OPCODE_GET_LOG_PAGE,
                namespace: ALL_NAMESPACES,
                data_len: SMART_LOG_BYTES as u32,
                // The length in dwords, less one, above the number of the log.
                dword10: ((SMART_LOG_BYTES as u32 / 4 - 1) << 16) | 0x02,
                ..command
            },
            Query::Feature { id } => AdminCommand {
                opcode: OPCODE_GET_FEATURES,
                data_len: if id == FEATURE_APST { APST_BYTES as u32 } else { 0 },
                dword10: u32::from(id),
                ..command
            },
        }
    }
}

/// Asks the controller behind an open node.
///
/// # Errors
/// As `ioctl(2)`; a status other than success is reported as `EIO` with the status in its text.
pub fn ask(node: impl AsFd, query: Query) -> io::Result<Answer> {
    let mut command = query.command();
    let mut data = vec![0_u8; command.data_len as usize];
    if !data.is_empty() {
        command.address = data.as_mut_ptr() as u64;
    }
    // SAFETY: the descriptor is open while `node` is borrowed. The request matches the layout of `command`,
    // whose size is checked above, and the kernel writes only its `result`. `address` is null with length 0,
    // or the start of `data`, which has exactly `data_len` bytes and lives until after the call; the call is
    // synchronous, so the kernel has no use for either once it returned. All commands only read the device.
    let status = unsafe { libc::ioctl(node.as_fd().as_raw_fd(), IOCTL_ADMIN, &raw mut command) };
    match status {
        0 => Ok(Answer { result: command.result, data }),
        ..0 => Err(io::Error::last_os_error()),
        status => Err(io::Error::other(format!("the controller answered with status {status:#x}"))),
    }
}

/// A namespace as I/O commands address it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    /// Its number, from 1.
    pub id: u32,
    /// Bytes of a logical block, a power of two.
    pub block_bytes: u32,
    /// Bytes of metadata with each block.
    pub metadata_bytes: u32,
    /// Bytes in all, metadata excluded.
    pub size_bytes: u64,
}

/// `NVME_IOCTL_ID`: no argument, type 'N', number 0x40.
const IOCTL_ID: libc::c_ulong = 0x4e40;

impl Namespace {
    /// The namespace behind its open character or block device.
    ///
    /// # Errors
    /// As `ioctl(2)`: ENOTTY when it is no namespace; InvalidData when its Identify page makes no sense.
    pub fn of(node: impl AsFd) -> io::Result<Self> {
        // SAFETY: the descriptor is open while `node` is borrowed, and this request takes no argument.
        let id = unsafe { libc::ioctl(node.as_fd().as_raw_fd(), IOCTL_ID) };
        if id < 0 {
            return Err(io::Error::last_os_error());
        }
        let namespace = id as u32;
        Self::read(namespace, &ask(node, Query::IdentifyNamespace { namespace })?.data)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its Identify page makes no sense"))
    }

    /// Reads an Identify Namespace page: size, and the format in use.
    fn read(id: u32, page: &[u8]) -> Option<Self> {
        let blocks = u64::from_le_bytes(page.get(..8)?.try_into().ok()?);
        let in_use = *page.get(26)?;
        // Above 16 formats, bits 5 and 6 go on where bits 0 to 3 end.
        let format = usize::from(in_use & 0xf | (in_use >> 5 & 3) << 4);
        let at = 128 + 4 * format;
        let metadata_bytes = u16::from_le_bytes(page.get(at..at + 2)?.try_into().ok()?).into();
        let shift = *page.get(at + 2)?;
        let block_bytes = (9..=16).contains(&shift).then(|| 1u32 << shift)?;
        Some(Self { id, block_bytes, metadata_bytes, size_bytes: blocks.checked_mul(block_bytes.into())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identify_page_gives_size_and_format() {
        let mut page = vec![0; ANSWER_BYTES];
        page[..8].copy_from_slice(&1000u64.to_le_bytes());
        page[26] = 0x21;
        page[128 + 4 * 17..][..4].copy_from_slice(&[8, 0, 12, 0]);
        let wanted = Namespace { id: 3, block_bytes: 4096, metadata_bytes: 8, size_bytes: 4_096_000 };
        assert_eq!(Namespace::read(3, &page), Some(wanted));
        page[26] = 0;
        assert_eq!(Namespace::read(3, &page), None, "a format without a block size");
        assert_eq!(Namespace::read(3, &[]), None);
    }

    #[test]
    fn a_node_that_is_no_namespace_says_so() {
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(Namespace::of(&null).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    }

    #[test]
    fn commands_are_laid_out_as_the_kernel_reads_them() {
        assert_eq!(IOCTL_ADMIN, 0xc048_4e41);
        assert_eq!(std::mem::offset_of!(AdminCommand, address), 24);
        assert_eq!(std::mem::offset_of!(AdminCommand, dword10), 40);
        assert_eq!(std::mem::offset_of!(AdminCommand, result), 68);
        let log = Query::SmartLog.command();
        assert_eq!((log.opcode, log.dword10, log.namespace), (2, 0x007f_0002, u32::MAX));
        assert_eq!(Query::Feature { id: 7 }.command().data_len, 0);
        assert_eq!(Query::Feature { id: FEATURE_APST }.command().data_len, 256);
        assert_eq!(Query::IdentifyNamespace { namespace: 3 }.command().namespace, 3);
    }

    #[test]
    fn a_node_that_is_no_controller_refuses() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let error = ask(&null, Query::IdentifyController).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }
}
