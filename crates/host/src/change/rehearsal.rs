//! A host that is read as it is and written to in memory only, so that undo tells beforehand what it would
//! do.
//!
//! What the kernel itself would change, refuse or round is not in it.

use super::machine::Answer;
use super::system::System;
use super::{Device, Kind, may_write};

/// The host, and what would have been written.
pub struct Rehearsal<'a> {
    system: &'a mut dyn System,
    written: Vec<(Kind, String, Option<String>)>,
}

impl std::fmt::Debug for Rehearsal<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rehearsal").field("written", &self.written).finish_non_exhaustive()
    }
}

impl<'a> Rehearsal<'a> {
    /// Nothing is written to this system, nor to its journal.
    #[must_use]
    pub fn of(system: &'a mut dyn System) -> Rehearsal<'a> {
        Rehearsal { system, written: Vec::new() }
    }
}

impl System for Rehearsal<'_> {
    fn read(&mut self, kind: Kind, path: &str) -> Answer {
        match self.written.iter().rev().find(|(of, at, _)| (*of, at.as_str()) == (kind, path)) {
            Some((_, _, text)) => Ok(text.clone()),
            None => self.system.read(kind, path),
        }
    }

    fn write(&mut self, kind: Kind, path: &str, text: Option<&str>) -> Result<(), i32> {
        const EPERM: i32 = 1;
        if !may_write(kind, path) {
            return Err(EPERM);
        }
        self.written.push((kind, path.to_owned(), text.map(str::to_owned)));
        Ok(())
    }

    fn journal(&mut self) -> Result<Vec<u8>, i32> {
        self.system.journal()
    }

    fn append(&mut self, _: u64, _: &str) -> Result<(), i32> {
        Ok(())
    }

    fn set_aside(&mut self) -> Result<String, i32> {
        Ok(String::new())
    }

    fn locate(&mut self, device: &Device) -> Option<String> {
        self.system.locate(device)
    }
}
