//! A host in memory that misbehaves as told: it refuses, rounds, moves other values along, runs out of room
//! for the journal, and dies at any step. It swaps as a kernel does: not without a space, and not to a space
//! that goes away. Seeded, so that a failing run can be replayed.

use super::machine::Answer;
use super::system::System;
use super::{Device, Kind};
use overdrive_base::rng::Rng;
use std::collections::BTreeMap;

/// How an attribute takes a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behaviour {
    /// As written.
    Plain,
    /// One of a list, shown in brackets.
    Choice,
    /// A number, rounded up to a multiple.
    Rounded(u64),
    /// Refused with this errno.
    Refused(i32),
    /// Taken without effect.
    Ignored,
    /// A list whose choice resets another path to this text.
    Resets(String, String),
}

/// The host.
#[derive(Debug, Clone)]
pub struct FakeSystem {
    /// What stands where; a swap space by its words.
    pub files: BTreeMap<String, String>,
    /// Areas that are on, and how.
    pub areas: BTreeMap<String, String>,
    /// What is swapped out does not fit in memory: no area goes off.
    pub is_full: bool,
    /// How attributes behave; plain when not listed.
    pub behaviour: BTreeMap<String, Behaviour>,
    /// Devices that are there, by identity, and their folders.
    pub devices: BTreeMap<String, String>,
    /// The journal's bytes.
    pub disk: Vec<u8>,
    /// Those of journals that were set aside.
    pub set_aside: Vec<Vec<u8>>,
    /// How many bytes the journal's disk has.
    pub disk_bytes_max: usize,
    /// After so many steps the process is dead: it reads, writes and appends no more.
    pub dies_after: Option<u64>,
    /// Steps done.
    pub steps: u64,
    rng: Rng,
}

const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EBUSY: i32 = 16;
const ENOENT: i32 = 2;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;

impl FakeSystem {
    /// An empty host; `seed` decides what a death in the middle of a write leaves.
    #[must_use]
    pub fn new(seed: u64) -> FakeSystem {
        FakeSystem {
            files: BTreeMap::new(),
            areas: BTreeMap::new(),
            is_full: false,
            behaviour: BTreeMap::new(),
            devices: BTreeMap::new(),
            disk: Vec::new(),
            set_aside: Vec::new(),
            disk_bytes_max: usize::MAX,
            dies_after: None,
            steps: 0,
            rng: Rng::new(seed),
        }
    }

    /// Adds an attribute.
    #[must_use]
    pub fn with(mut self, path: &str, text: &str, behaviour: Behaviour) -> FakeSystem {
        self.files.insert(path.to_owned(), text.to_owned());
        self.behaviour.insert(path.to_owned(), behaviour);
        self
    }

    /// A new process on the same host.
    pub fn revive(&mut self) {
        self.dies_after = None;
        self.steps = 0;
    }

    /// Whether this step is the last one, which may or may not have its effect, or comes after it.
    fn step(&mut self) -> Life {
        let limit = self.dies_after;
        self.steps += 1;
        match limit {
            Some(limit) if self.steps == limit => Life::Dying,
            Some(limit) if self.steps > limit => Life::Dead,
            _ => Life::Alive,
        }
    }

    fn take(&mut self, path: &str, text: &str) -> Result<(), i32> {
        let now = self.files.get(path).ok_or(ENOENT)?.clone();
        let behaviour = self.behaviour.get(path).cloned().unwrap_or(Behaviour::Plain);
        let stored = match &behaviour {
            Behaviour::Refused(errno) => return Err(*errno),
            Behaviour::Ignored => now,
            Behaviour::Plain => format!("{text}\n"),
            Behaviour::Rounded(unit) => {
                let number: u64 = text.parse().map_err(|_| EINVAL)?;
                format!("{}\n", number.div_ceil(*unit) * unit)
            }
            Behaviour::Choice | Behaviour::Resets(..) => choose(&now, text)?,
        };
        self.files.insert(path.to_owned(), stored);
        if let Behaviour::Resets(other, value) = behaviour {
            self.files.insert(other, value);
        }
        Ok(())
    }
}

impl FakeSystem {
    fn swap(&mut self, path: &str, text: Option<&str>) -> Result<(), i32> {
        let is_space = self.files.get(path).is_some_and(|text| text.starts_with("swap "));
        match text {
            Some(_) if self.areas.contains_key(path) => Err(EBUSY),
            Some(_) if !is_space => Err(EINVAL),
            Some(text) => {
                let text = text.split(" discard").next().unwrap_or(text).to_owned();
                self.areas.insert(path.to_owned(), text);
                Ok(())
            }
            None if self.is_full => Err(ENOMEM),
            None => self.areas.remove(path).map(drop).ok_or(EINVAL),
        }
    }
}

enum Life {
    Alive,
    Dying,
    Dead,
}

fn choose(list: &str, wanted: &str) -> Result<String, i32> {
    let names: Vec<&str> = list.split_whitespace().map(|name| name.trim_matches(['[', ']'])).collect();
    if !names.contains(&wanted) {
        return Err(EINVAL);
    }
    let shown = names.iter().map(|&name| if name == wanted { format!("[{name}]") } else { name.to_owned() });
    Ok(shown.collect::<Vec<_>>().join(" ") + "\n")
}

impl System for FakeSystem {
    fn read(&mut self, kind: Kind, path: &str) -> Answer {
        let held = if kind == Kind::SwapArea { &self.areas } else { &self.files };
        let text = held.get(path).cloned();
        match self.step() {
            Life::Alive => Ok(text),
            _ => Err(EIO),
        }
    }

    fn write(&mut self, kind: Kind, path: &str, text: Option<&str>) -> Result<(), i32> {
        let life = self.step();
        if matches!(life, Life::Dead) || (matches!(life, Life::Dying) && self.rng.below(2) == 0) {
            return Err(EIO);
        }
        match (kind, text) {
            (Kind::Attribute, text) => self.take(path, text.ok_or(EINVAL)?),
            (Kind::SwapSpace, _) if self.areas.contains_key(path) => Err(EBUSY),
            (Kind::SwapArea, text) => self.swap(path, text),
            (Kind::File | Kind::SwapSpace, Some(text)) => {
                self.files.insert(path.to_owned(), text.to_owned());
                Ok(())
            }
            (Kind::File | Kind::SwapSpace, None) => {
                self.files.remove(path);
                Ok(())
            }
        }
    }

    fn journal(&mut self) -> Result<Vec<u8>, i32> {
        Ok(self.disk.clone())
    }

    fn append(&mut self, end: u64, line: &str) -> Result<(), i32> {
        let life = self.step();
        if matches!(life, Life::Dead) {
            return Err(EIO);
        }
        self.disk.truncate(end as usize);
        let room = self.disk_bytes_max.saturating_sub(self.disk.len());
        if line.len() > room {
            // A real file system may keep what fitted.
            self.disk.extend(&line.as_bytes()[..room]);
            return Err(ENOSPC);
        }
        if matches!(life, Life::Dying) {
            let torn = self.rng.below(line.len() as u64 + 1) as usize;
            self.disk.extend(&line.as_bytes()[..torn]);
            return Err(EIO);
        }
        self.disk.extend(line.as_bytes());
        Ok(())
    }

    fn set_aside(&mut self) -> Result<String, i32> {
        if !matches!(self.step(), Life::Alive) {
            return Err(EIO);
        }
        self.set_aside.push(std::mem::take(&mut self.disk));
        Ok(format!("damaged-{}", self.set_aside.len()))
    }

    fn locate(&mut self, device: &Device) -> Option<String> {
        self.devices.get(&device.id).cloned()
    }
}
