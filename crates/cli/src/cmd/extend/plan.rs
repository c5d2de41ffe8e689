//! What is decided before the program starts: which backend, and why; or one line that says what is missing.

use super::accounting::{self, Strict};
use super::device::Device;
use super::program::{Program, is_library};
use super::store::Store;
use crate::exit::{Refused, refuse};
use crate::flags::{BackendFlag, CompressFlag, ExtendFlags};
use anyhow::{Context, Result};
use overdrive_base::size::{MIB, format_size};
use overdrive_host::facts::parse::field_kib;
use overdrive_pager::engine::WRITES_PER_DAY_MIN;
use overdrive_sys::memory_group::{self, Place, Version};
use overdrive_sys::page_io::PageIo;
use overdrive_sys::relay::effective_user;
use overdrive_sys::rights::{programs_may_page, with_all};
use overdrive_sys::ring;
use overdrive_sys::secret::Secret;
use overdrive_sys::swap;
use overdrive_sys::uffd::{Forks, Userfault, UserfaultError};
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Below this neither the program's own pages nor the engine's find room.
pub(crate) const DRAM_MIN: u64 = 32 * MIB;

const LIBRARY: &str = "libovermem.so";

/// A run that can start.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) program: Program,
    pub(crate) dram_bytes: u64,
    pub(crate) store: Store,
    /// Held as long as the plan, when the store is one.
    pub(crate) device: Option<Device>,
    pub(crate) backend: Backend,
    /// Why this backend, when it was not asked for by name.
    pub(crate) reason: Option<String>,
    /// Engines stand in processes apart, asked for or not.
    pub(crate) apart: bool,
}

/// Who moves the pages, with what it needs.
#[derive(Debug)]
pub(crate) enum Backend {
    Pager {
        library: PathBuf,
        /// What programs can map, where the kernel counts that.
        left_bytes: Option<u64>,
    },
    Swap {
        place: Place,
    },
}

impl Backend {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Backend::Pager { .. } => "pager",
            Backend::Swap { .. } => "swap",
        }
    }

    /// What of a program's memory this backend does not hold.
    pub(crate) fn uncovered(&self) -> &'static str {
        match self {
            Backend::Pager { .. } => {
                "the first thread's stack, file mappings, shared memory; static and setuid children are not limited at all"
            }
            Backend::Swap { place } => match place.version() {
                Version::V1 => {
                    "locked memory; the budget also counts page cache, shared memory and all children"
                }
                Version::V2 => {
                    "locked memory; the budget also counts page cache, shared memory, kernel memory and all children"
                }
            },
        }
    }
}

impl Plan {
    /// Checks everything that can be checked without starting the program.
    pub(crate) fn make(flags: &ExtendFlags) -> Result<Self> {
        let (Some(dram_bytes), Some(store), Some(command)) =
            (flags.dram, &flags.store, flags.command.first())
        else {
            refuse!("wanted --dram SIZE --store PATH -- PROGRAM");
        };
        let program = Program::find(command)?;
        check_dram(dram_bytes)?;
        check_limit(dram_bytes)?;
        if flags.max_writes_per_day.is_some_and(|bytes| bytes < WRITES_PER_DAY_MIN) {
            refuse!(
                "--max-writes-per-day: wanted at least {}: with less a program stands still",
                format_size(WRITES_PER_DAY_MIN)
            );
        }
        // One that was named and is not there is no reason to change the machine instead.
        flags.library.as_deref().map_or(Ok(()), |path| library(Some(path)).map(drop)).map_err(Refused)?;
        let store = store_for(store, dram_bytes, flags)?;
        let pager = || -> Result<Backend, String> {
            if let Some(why) = &program.unreachable {
                return Err(format!("{why}; --backend swap takes any program"));
            }
            if let Some(why) = &store.shares_disk_with_swap {
                return Err(format!("{why}; wanted a store on another disk, or swapoff"));
            }
            check_kernel()?;
            if flags.encrypt {
                check_key()?;
            }
            let strict = Strict::of_this_host();
            let left =
                strict.map(|strict| strict.left_for_program(dram_bytes, flags.compress)).transpose()?;
            let left_bytes = left.filter(|&left| left < dram_bytes.saturating_add(store.bytes));
            library(flags.library.as_deref()).map(|library| Backend::Pager { library, left_bytes })
        };
        let on_swap = || swap_place(&store, dram_bytes, flags);
        let (backend, reason) = match flags.backend {
            BackendFlag::Pager => (pager().map_err(Refused)?, None),
            BackendFlag::Swap => (on_swap().map_err(Refused)?, None),
            BackendFlag::Auto => match pager() {
                Ok(backend) => (backend, Some("this kernel and this program allow it".to_owned())),
                Err(why) => match on_swap() {
                    Ok(backend) => (backend, Some(format!("no pager: {why}"))),
                    Err(also) => refuse!("no pager: {why}; and no swap instead: {also}"),
                },
            },
        };
        let compresses = matches!(flags.compress, CompressFlag::Lz4 | CompressFlag::Zstd);
        if compresses && matches!(backend, Backend::Swap { .. }) {
            refuse!(
                "--compress {}: the backend swap does not compress; wanted --compress auto, or zswap for the \
                 whole machine (overdrive swap on --zswap on)",
                flags.compress.name()
            );
        }
        if matches!(backend, Backend::Pager { .. }) {
            if flags.no_room_ahead {
                refuse!("--no-room-ahead: the pager serves no fault without room; wanted --backend swap");
            }
            if flags.fill_gaps {
                refuse!("--fill-gaps: the pager writes long runs by itself; wanted --backend swap");
            }
        }
        let device = store.device.as_deref().map(|device| Device::take(device, flags.wipe)).transpose()?;
        let is_pager = matches!(backend, Backend::Pager { .. });
        let apart = is_pager && (flags.apart || program.insists_on_one_thread());
        Ok(Self { program, dram_bytes, store, device, backend, reason, apart })
    }

    /// What is said before the program starts.
    pub(crate) fn announcement(&self) -> String {
        let reason = self.reason.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
        let whose = match self.backend {
            Backend::Pager { .. } if self.device.is_some() => ", which the run's processes share",
            Backend::Pager { .. } => " for each process",
            Backend::Swap { .. } => " for all processes together",
        };
        let counted = match self.backend {
            Backend::Pager { left_bytes: Some(left), .. } => format!("\n{}", accounting::told(left)),
            _ => String::new(),
        };
        let apart = match self.program.path.file_name() {
            Some(name) if self.apart && self.program.insists_on_one_thread() => {
                format!("\nengines stand apart (--apart): {} bears no threads beside its own", name.display())
            }
            _ => String::new(),
        };
        format!(
            "backend {}{reason}\n{} of DRAM and up to {} in {}{whose}\nnot covered: {}{counted}{apart}",
            self.backend.name(),
            format_size(self.dram_bytes),
            format_size(self.store.bytes),
            self.store.place().display(),
            self.backend.uncovered()
        )
    }
}

/// A directory, or a block device that was named twice.
fn store_for(wish: &OsStr, dram_bytes: u64, flags: &ExtendFlags) -> Result<Store> {
    let store = Store::on_device(wish)?;
    let shown = flags.write_to.as_ref().map(|named| named.display());
    match (store, &flags.write_to) {
        (None, None) => Store::check(wish, dram_bytes),
        (None, Some(_)) => {
            refuse!("--write-to {}: --store names no block device", shown.expect("it is there"))
        }
        (Some(store), Some(named)) if store.device.as_ref() == Some(named) => Ok(store),
        (Some(store), Some(_)) => refuse!(
            "--write-to {} does not name the store {}; nothing was touched",
            shown.expect("it is there"),
            store.place().display()
        ),
        (Some(store), None) => refuse!(
            "--store {0}: a block device; what is on it would be overwritten: wanted --write-to {0} as well, or a directory",
            store.place().display()
        ),
    }
}

/// Whether the kernel's swap can do what was asked for.
fn swap_place(store: &Store, dram_bytes: u64, flags: &ExtendFlags) -> Result<Backend, String> {
    if let Some(device) = &store.device {
        return Err(format!(
            "backend swap: --store {} is a block device; wanted a directory for a swap file",
            device.display()
        ));
    }
    if flags.max_writes_per_day.is_some() {
        return Err("backend swap: the kernel knows no --max-writes-per-day".to_owned());
    }
    if flags.encrypt {
        return Err(
            "backend swap: the kernel does not encrypt what it swaps to a file; wanted the pager, or \
                    swap on an encrypted device (cryptsetup with a random key) without --encrypt"
                .to_owned(),
        );
    }
    let place = Place::find().map_err(|error| format!("backend swap: {error}"))?;
    swap::check_may_turn_on().map_err(|why| format!("backend swap: {why}"))?;
    place.check_swap(dram_bytes, store.bytes).map_err(|why| format!("backend swap: {why}"))?;
    Ok(Backend::Swap { place })
}

pub(super) fn check_dram(dram_bytes: u64) -> Result<()> {
    let shown = format_size(dram_bytes);
    if dram_bytes < DRAM_MIN {
        refuse!("--dram {shown}: wanted at least {}, for a program to start in", format_size(DRAM_MIN));
    }
    let text = std::fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    if let Some(total) = field_kib(&text, "MemTotal").ok().filter(|&total| dram_bytes > total) {
        refuse!(
            "--dram {shown} is more than this machine's memory ({}): such a budget limits nothing",
            format_size(total)
        );
    }
    Ok(())
}

/// Containers and services have a limit of their own, at which the kernel kills.
fn check_limit(dram_bytes: u64) -> Result<()> {
    if let Some((file, limit)) = memory_group::limit_here().filter(|&(_, limit)| limit < dram_bytes) {
        refuse!(
            "--dram {}: {} allows {}; wanted less, or a higher limit there",
            format_size(dram_bytes),
            file.display(),
            format_size(limit)
        );
    }
    Ok(())
}

/// Whether this kernel lets this user page memory.
fn check_kernel() -> Result<(), String> {
    let faults = with_all(|| Userfault::new(Forks::Followed)).map_err(|error| {
        let is_user = effective_user() != 0 && matches!(error, UserfaultError::NotPermitted(_));
        let remedy =
            if is_user { "; root can give it to overdrive's file (setcap cap_sys_ptrace+ep)" } else { "" };
        format!("{error}{remedy}")
    })?;
    // Their userfaultfd they have to make themselves, and only ask this process for its features.
    if !programs_may_page() && Userfault::new(Forks::LeftOut).is_err() {
        return Err(
            "the programs that overdrive runs do not get the capability of its file: wanted read and \
                    write access to /dev/userfaultfd as well, or vm.unprivileged_userfaultfd=1"
                .to_owned(),
        );
    }
    if !faults.offers().moves {
        return Err("this kernel cannot move pages (UFFDIO_MOVE); wanted Linux 6.8 or newer".to_owned());
    }
    let file = File::open("/dev/null").map_err(|error| format!("/dev/null: {error}"))?;
    PageIo::new(file, [1, 0], 1, 1, 1).map(drop).map_err(|errno| ring::refusal(errno).to_string())
}

/// Whether a process of this user can keep a key where it is not swapped out.
fn check_key() -> Result<(), String> {
    Secret::new(|| [0u8; 64]).map(drop).map_err(|errno| {
        format!("--encrypt: no page can be locked in memory for the key ({errno}); wanted a larger ulimit -l")
    })
}

/// The preload library: as given, or beside this program, or where it is installed.
fn library(given: Option<&Path>) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("finding this program: {error}"))?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let candidates = match given {
        Some(path) => vec![path.to_path_buf()],
        None => {
            ["", "../lib/overdrive", "../lib", "deps"].map(|part| beside.join(part).join(LIBRARY)).to_vec()
        }
    };
    let found = candidates.iter().find(|path| path.is_file());
    let found = found.ok_or_else(|| match given {
        Some(path) => format!("--library {}: no such file", path.display()),
        None => format!(
            "{LIBRARY} is not beside {} nor in ../lib/overdrive; wanted --library PATH",
            own.display()
        ),
    })?;
    let failed = |error: std::io::Error| format!("{}: {error}", found.display());
    let absolute = std::fs::canonicalize(found).map_err(failed)?;
    if !is_library(&absolute).map_err(failed)? {
        return Err(format!("{}: no library for this machine; wanted {LIBRARY}", absolute.display()));
    }
    // The loader takes blanks and colons for separators.
    if absolute.to_string_lossy().contains([' ', ':']) {
        return Err(format!(
            "{}: the loader cannot preload from a path with a blank or colon; wanted another",
            absolute.display()
        ));
    }
    Ok(absolute)
}
