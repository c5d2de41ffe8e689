//! A fleet: instances started, filled, kept, and taken down with their groups and their folder.
//!
//! It grows and shrinks between trials, so that each instance is filled once. Instances are dealt out over
//! the classes in turn; without classes all share the fleet's memory as the machines of a server do.

use crate::backing::{Backing, Moved};
use crate::connection::Connection;
use crate::instance::folder::RunFolder;
use crate::instance::{Instance, InstanceError, Kind, Seat};
use crate::load::{self, LoadError, LoadSpec};
use overdrive_sys::memory_group::zswap::ZswapFollower;
use overdrive_sys::memory_group::{GroupCounters, GroupError, MemoryGroup, Place};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thiserror::Error;

/// A class of instances: how much memory it has for each byte of DRAM.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// Its name, such as `gold`.
    pub name: String,
    /// Memory over DRAM: 1 for none overcommitted.
    pub ratio: f64,
}

/// What a fleet is made of.
#[derive(Debug, Clone)]
pub struct FleetSpec {
    /// What is behind its memory.
    pub backing: Backing,
    /// DRAM for the whole fleet, in bytes; none for all the machine has.
    pub dram_bytes: Option<u64>,
    /// Where groups are made; none where none are to be had.
    pub place: Option<Place>,
    /// Classes that instances are dealt out over; empty for none.
    pub classes: Vec<Class>,
    /// What it is filled with and asked.
    pub load: LoadSpec,
}

/// Why a fleet is not as large as it should be.
#[derive(Debug, Error)]
pub enum FleetError {
    /// An instance cannot be started.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// A group refuses.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The run's folder cannot be made.
    #[error("{0}")]
    Folder(std::io::Error),
    /// An instance failed under load: the fleet's fault, or memory's.
    #[error("{0}")]
    Lost(Lost),
    /// The load cannot be given.
    #[error(transparent)]
    Load(LoadError),
    /// It was stopped from outside.
    #[error("stopped")]
    Stopped,
}

/// How much more DRAM a fleet with pagers may take while it is filled, in per cent.
const EASE: u64 = 12;

/// An instance that failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Lost {
    /// Its number, from 0.
    pub instance: u32,
    /// How.
    pub reason: String,
    /// Whether the kernel killed it because its group had no memory left.
    pub out_of_memory: bool,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why = if self.out_of_memory { "killed, the fleet's DRAM is used up" } else { &self.reason };
        write!(f, "instance {}: {why}", self.instance)
    }
}

#[derive(Debug)]
struct Member {
    // Before the group: it has to be empty to be removed.
    instance: Box<dyn Instance>,
    group: Option<MemoryGroup>,
    class: Option<usize>,
}

/// Running instances.
#[derive(Debug)]
pub struct Fleet<'a> {
    kind: &'a dyn Kind,
    spec: FleetSpec,
    connections: Vec<Connection>,
    /// Keeps the fleet and its classes to their DRAM with what zswap holds of theirs.
    zswap: Option<ZswapFollower>,
    // Dropped in this order: members, then the groups around theirs, then the folder of their sockets.
    members: Vec<Member>,
    classes: Vec<MemoryGroup>,
    group: Option<MemoryGroup>,
    folder: RunFolder,
    /// Processes killed for memory that have been told.
    oom_kills: u64,
}

impl<'a> Fleet<'a> {
    /// A fleet without instances.
    ///
    /// # Errors
    /// When its folder or its groups cannot be made; nothing is left behind then.
    pub fn new(kind: &'a dyn Kind, spec: FleetSpec) -> Result<Self, FleetError> {
        let store = spec.backing.extended().map(|extended| extended.store.as_path());
        let folder = RunFolder::create(store).map_err(FleetError::Folder)?;
        let group = match &spec.place {
            None => None,
            Some(place) => {
                let group = MemoryGroup::create_fleet(place, spec.backing.name(), spec.dram_bytes)?;
                if !spec.backing.swaps() && spec.dram_bytes.is_some() {
                    group.forbid_swap()?;
                }
                Some(group)
            }
        };
        let classes = match &group {
            Some(group) => {
                let made = spec.classes.iter().map(|class| group.child_fleet(&class.name));
                made.collect::<Result<Vec<_>, _>>()?
            }
            None => Vec::new(),
        };
        let (connections, members) = (Vec::new(), Vec::new());
        let mut fleet =
            Self { kind, spec, connections, zswap: None, members, classes, group, folder, oom_kills: 0 };
        fleet.follow_zswap()?;
        Ok(fleet)
    }

    /// From now on the limits that the groups have, where there are any, hold with what zswap takes.
    fn follow_zswap(&mut self) -> Result<(), FleetError> {
        if self.spec.backing.swaps() {
            let groups: Vec<&MemoryGroup> = self.groups().collect();
            self.zswap = ZswapFollower::start(&groups, None, |_, _| ())?;
        }
        Ok(())
    }

    /// How many instances run.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether none runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The class of an instance, by its place among the classes.
    #[must_use]
    pub fn class_of(&self, instance: usize) -> Option<usize> {
        self.members.get(instance)?.class
    }

    /// What it was made of.
    #[must_use]
    pub fn spec(&self) -> &FleetSpec {
        &self.spec
    }

    /// The group of the whole fleet, then those of its classes; none where none are to be had.
    pub fn groups(&self) -> impl Iterator<Item = &MemoryGroup> {
        self.group.iter().chain(&self.classes)
    }

    /// Its folder, which goes with it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What the kernel counts for the whole fleet; none without groups.
    #[must_use]
    pub fn counters(&self) -> Option<GroupCounters> {
        self.group.as_ref().map(MemoryGroup::counters)
    }

    /// What the kernel counts for each class.
    #[must_use]
    pub fn class_counters(&self) -> Vec<GroupCounters> {
        self.classes.iter().map(MemoryGroup::counters).collect()
    }

    /// What the pagers of the instances have moved; none where the kernel moves pages.
    #[must_use]
    pub fn moved(&self) -> Option<Moved> {
        self.spec.backing.extended().map(|extended| (extended.moved)(&extended.store))
    }

    /// DRAM of each of `count` instances, in bytes; none when they share the fleet's.
    #[must_use]
    pub fn budgets(&self, count: u32) -> Option<Vec<u64>> {
        let (extended, dram) = (self.spec.backing.extended()?, self.spec.dram_bytes?);
        let classes = &self.spec.classes;
        let weight =
            |at: usize| if classes.is_empty() { 1.0 } else { 1.0 / classes[at % classes.len()].ratio };
        Some(extended.budgets(dram, &(0..count as usize).map(weight).collect::<Vec<_>>()))
    }

    /// Memory of one instance, in DRAM and on the drive, in bytes: the mean over the fleet. None without
    /// groups. What an extended instance has read back and not changed since counts in both places; once it
    /// is filled, that is little.
    #[must_use]
    pub fn footprint_bytes(&self) -> Option<u64> {
        let counters = self.counters()?;
        let behind = match self.spec.backing.extended() {
            Some(extended) => (extended.stored)(&extended.store),
            None => counters.swap_bytes.unwrap_or(0),
        };
        let all = counters.usage_bytes? + behind;
        all.checked_div(self.members.len() as u64)
    }

    /// Starts or ends instances until there are `count`, and fills the new ones. `tick` hears how many
    /// records were stored, of how many.
    ///
    /// # Errors
    /// When an instance cannot be started or is lost; those that failed are ended, the others stay.
    pub fn resize(
        &mut self,
        count: u32,
        stop: &AtomicBool,
        tick: &mut dyn FnMut(u64, u64),
    ) -> Result<(), FleetError> {
        let budgets = self.budgets(count);
        let count = count as usize;
        // A pager that takes over a growing instance is above its budget for a moment: filling has more room.
        self.limit_extended(EASE)?;
        // A budget is for life: another number of instances means others for all of them.
        let kept = if budgets.is_some() && count != self.members.len() { 0 } else { count };
        self.connections.truncate(kept);
        self.members.truncate(kept);
        let old = self.members.len();
        while self.members.len() < count {
            if stop.load(Ordering::Relaxed) {
                return Err(FleetError::Stopped);
            }
            self.start_one(budgets.as_ref().map(|budgets| budgets[self.members.len()]))?;
        }
        let total = (count - old) as u64 * self.spec.load.records;
        let load = self.spec.load.clone();
        let filled = load::fill(&mut self.connections[old..], &load, stop, &mut |done| tick(done, total));
        if let Err(error) = filled {
            let error = self.blame(error, old);
            self.connections.truncate(old);
            self.members.truncate(old);
            return Err(error);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(FleetError::Stopped);
        }
        self.limit_extended(0)
    }

    /// Limits a fleet with pagers to its DRAM and a share of it more.
    fn limit_extended(&self, percent_more: u64) -> Result<(), FleetError> {
        if let (Some(_), Some(group), Some(dram)) =
            (self.spec.backing.extended(), &self.group, self.spec.dram_bytes)
        {
            group.limit(dram + dram / 100 * percent_more)?;
        }
        Ok(())
    }

    fn start_one(&mut self, budget_bytes: Option<u64>) -> Result<(), FleetError> {
        let number = self.members.len() as u32;
        let class = (!self.spec.classes.is_empty()).then(|| number as usize % self.spec.classes.len());
        let around = class.and_then(|class| self.classes.get(class)).or(self.group.as_ref());
        let group = around.map(|around| around.child(&number.to_string())).transpose()?;
        let seat = Seat {
            number,
            folder: self.folder.path(),
            group: group.as_ref(),
            backing: &self.spec.backing,
            budget_bytes,
        };
        let mut instance = self.kind.start(&seat)?;
        let endpoint = instance.endpoint().clone();
        let opened = Connection::open(&endpoint, self.kind.patience(), || instance.ended());
        let connection =
            opened.map_err(|error| InstanceError::Start { number, reason: error.to_string() })?;
        self.connections.push(connection);
        self.members.push(Member { instance, group, class });
        Ok(())
    }

    /// Limits each class to its memory over its ratio; the memory of an instance is given. Instances with
    /// budgets of their own have theirs since they were started.
    ///
    /// # Errors
    /// When a class cannot be squeezed so far.
    pub fn limit_classes(&mut self, memory_bytes: u64) -> Result<(), FleetError> {
        // A limit that is read back must not be moved meanwhile.
        self.zswap = None;
        let limited = self.limit_each_class(memory_bytes);
        self.follow_zswap()?;
        limited
    }

    fn limit_each_class(&self, memory_bytes: u64) -> Result<(), FleetError> {
        for (at, (class, group)) in self.spec.classes.iter().zip(&self.classes).enumerate() {
            let members = self.members.iter().filter(|member| member.class == Some(at)).count() as u64;
            if members > 0 {
                group.limit((members as f64 * memory_bytes as f64 / class.ratio) as u64)?;
            }
        }
        Ok(())
    }

    /// Gives the load to all instances for `window`.
    ///
    /// # Errors
    /// When an instance is lost.
    pub fn run(
        &mut self,
        window: Duration,
        stream: u64,
        stop: &AtomicBool,
        tick: &mut dyn FnMut(u64),
    ) -> Result<load::Measured, FleetError> {
        let load = self.spec.load.clone();
        load::run(&mut self.connections, &load, window, stream, stop, tick)
            .map_err(|error| self.blame(error, 0))
    }

    /// Waits until no instance owes an answer; ends all of them when that takes too long.
    ///
    /// # Errors
    /// When an instance is lost.
    pub fn settle(&mut self, stop: &AtomicBool) -> Result<(), FleetError> {
        const PATIENCE: Duration = Duration::from_secs(20);
        if !load::settle(&mut self.connections, PATIENCE, stop).map_err(|error| self.blame(error, 0))? {
            self.connections.clear();
            self.members.clear();
        }
        Ok(())
    }

    /// Puts what the load met down to the instance and, where the kernel says so, to memory.
    fn blame(&mut self, error: LoadError, first: usize) -> FleetError {
        let Some(at) = error.instance().map(|at| at + first).filter(|at| *at < self.members.len()) else {
            return FleetError::Load(error);
        };
        // The connection ends a moment before the process can be waited for.
        let mut ended = None;
        for _ in 0..200 {
            ended = self.members[at].instance.ended();
            if ended.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let kills = self.kills();
        let out_of_memory = kills > self.oom_kills;
        self.oom_kills = kills;
        FleetError::Lost(Lost {
            instance: at as u32,
            reason: ended.unwrap_or_else(|| error.to_string()),
            out_of_memory,
        })
    }

    /// Version 1 counts kills where they happen, version 2 also in the groups around.
    fn kills(&self) -> u64 {
        let own = |group: &MemoryGroup| group.counters().oom_kills.unwrap_or(0);
        let members = self.members.iter().filter_map(|member| member.group.as_ref());
        let each: u64 = members.chain(&self.classes).map(own).sum();
        each.max(self.group.as_ref().map_or(0, own))
    }
}
