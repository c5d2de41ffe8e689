//! The synchronous engines, one operation in flight: preadv2 and pwritev2 (polled where the device can),
//! plain pread and pwrite, and copies from and to a mapped file.

use super::{Completion, Engine, Grants};
use crate::job::Direction;
use crate::pattern::Io;
use overdrive_sys::Errno;
use overdrive_sys::arena::Arena;
use overdrive_sys::clock::Clock;
use overdrive_sys::file::{TrimMethod, pread_at, pwrite_at, read_at, sync_file, trim_at, write_at};
use overdrive_sys::mapped::MappedFile;
use std::fs::File;

// Apart, so that a write never carries what a read has just brought.
const READ_BUFFER: usize = 0;
const WRITE_BUFFER: usize = 1;

/// How a synchronous operation is done.
#[derive(Debug)]
pub(crate) enum Path {
    /// preadv2 and pwritev2.
    Vectored { file: File, polled: bool },
    /// pread and pwrite.
    Plain(File),
    /// Copies; the kernel does the I/O on page faults. The file is for what is no copy.
    Mapped(MappedFile, File),
}

impl Path {
    fn file(&self) -> &File {
        match self {
            Self::Vectored { file, .. } | Self::Plain(file) | Self::Mapped(_, file) => file,
        }
    }
}

/// One operation at a time, done by the time it is reaped.
#[derive(Debug)]
pub(crate) struct SyncEngine {
    path: Path,
    clock: Clock,
    arena: Arena,
    queued: Option<(u32, Io)>,
    trim_method: TrimMethod,
}

impl SyncEngine {
    /// One operation of up to `slot_bytes`.
    pub(crate) fn new(path: Path, clock: Clock, slot_bytes: usize) -> Result<Self, Errno> {
        let trim_method = TrimMethod::of(path.file())?;
        Ok(Self { path, clock, arena: Arena::new(2, slot_bytes)?, queued: None, trim_method })
    }

    /// What moves no data; the length that was asked for, when it worked.
    #[cold]
    fn control(&self, io: Io) -> Result<usize, Errno> {
        let file = self.path.file();
        match (io.direction, &self.path) {
            (Direction::Trim, _) => trim_at(file, self.trim_method, io.offset, u64::from(io.length))?,
            (_, Path::Mapped(mapped, _)) => mapped.sync()?,
            (Direction::DataSync, _) => sync_file(file, true)?,
            _ => sync_file(file, false)?,
        }
        Ok(io.length as usize)
    }

    #[inline]
    fn transfer(&mut self, io: Io) -> Result<usize, Errno> {
        let length = io.length as usize;
        match io.direction {
            Direction::Read => {
                let buffer = &mut self.arena.slot_mut(READ_BUFFER)[..length];
                match &self.path {
                    Path::Vectored { file, polled } => read_at(file, buffer, io.offset, *polled),
                    Path::Plain(file) => pread_at(file, buffer, io.offset),
                    Path::Mapped(mapped, _) => Ok(mapped.read_at(buffer, io.offset)),
                }
            }
            Direction::Write => {
                let buffer = &self.arena.slot_mut(WRITE_BUFFER)[..length];
                match &self.path {
                    Path::Vectored { file, polled } => write_at(file, buffer, io.offset, *polled),
                    Path::Plain(file) => pwrite_at(file, buffer, io.offset),
                    Path::Mapped(mapped, _) => mapped.write_at(buffer, io.offset),
                }
            }
            Direction::Trim | Direction::Sync | Direction::DataSync => self.control(io),
        }
    }
}

impl Engine for SyncEngine {
    #[inline]
    fn clock(&self) -> &Clock {
        &self.clock
    }

    #[inline]
    fn queue(&mut self, slot: u32, io: Io) {
        self.queued = Some((slot, io));
    }

    #[inline]
    fn submit_and_reap(&mut self, _wait_for: u32, done: &mut Vec<Completion>) -> Result<(), Errno> {
        done.clear();
        let Some((slot, io)) = self.queued.take() else { return Ok(()) };
        let result = match self.transfer(io) {
            Ok(bytes) => i32::try_from(bytes).unwrap_or(i32::MAX),
            Err(errno) => -errno.raw_os_error(),
        };
        done.push(Completion { slot, result });
        Ok(())
    }

    fn write_buffer_mut(&mut self, _slot: u32) -> &mut [u8] {
        self.arena.slot_mut(WRITE_BUFFER)
    }

    fn read_buffer_mut(&mut self, _slot: u32) -> &mut [u8] {
        self.arena.slot_mut(READ_BUFFER)
    }

    fn grants(&self) -> Grants {
        let polled = matches!(self.path, Path::Vectored { polled: true, .. });
        Grants {
            granted: if polled { vec!["RWF_HIPRI".to_owned()] } else { Vec::new() },
            refused: Vec::new(),
        }
    }
}
