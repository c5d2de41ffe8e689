//! The values that rules judge, each known, absent or unreadable, and the readers that collect them.
//!
//! One file a domain. A reader parses and never interprets: what is good or bad stands in `rules`. Facts of
//! one disk ([`block`], [`nvme`], [`pcie`]) are collected by `target`, which knows which disks count.

pub mod block;
pub mod cgroup;
pub mod clock;
pub mod cpu;
pub mod hugepages;
pub mod hypervisor;
pub mod irq;
pub mod kernel;
pub mod limits;
pub mod machine;
pub mod memory;
pub mod noise;
pub mod numa;
pub mod nvme;
pub mod owners;
pub mod parse;
pub mod pcie;
pub mod settings;
pub mod swap;

use crate::root::Root;
use parse::Unexpected;
use std::fmt::Display;
use std::time::Duration;

/// One value read from the system, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact<T> {
    /// It was read and understood.
    Known {
        /// The parsed value.
        value: T,
        /// The text as read; what an undo would write back.
        raw: String,
        /// Where it was read.
        path: String,
    },
    /// Nothing stands there: the kernel or the device does not have it.
    Absent {
        /// Where it was looked for.
        path: String,
    },
    /// It exists and could not be read or understood.
    Unreadable {
        /// Where it was looked for.
        path: String,
        /// The error number, when the kernel refused.
        errno: Option<i32>,
        /// The reason in words.
        why: String,
    },
}

impl<T> Fact<T> {
    /// A fact computed from others; `raw` says from what.
    pub fn known(value: T, raw: impl Into<String>, path: impl Into<String>) -> Fact<T> {
        Fact::Known { value, raw: raw.into(), path: path.into() }
    }

    /// The value, if known.
    pub fn value(&self) -> Option<&T> {
        match self {
            Fact::Known { value, .. } => Some(value),
            _ => None,
        }
    }

    /// Where it was read or looked for.
    pub fn path(&self) -> &str {
        match self {
            Fact::Known { path, .. } | Fact::Absent { path } | Fact::Unreadable { path, .. } => path,
        }
    }

    /// Why there is no value; `None` when there is one.
    pub fn why(&self) -> Option<String> {
        match self {
            Fact::Known { .. } => None,
            Fact::Absent { .. } => Some("not present".to_owned()),
            Fact::Unreadable { why, .. } => Some(why.clone()),
        }
    }

    /// The error number that reading gave, if any.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Fact::Unreadable { errno, .. } => *errno,
            _ => None,
        }
    }

    /// Whether nothing stands at the path.
    pub fn is_absent(&self) -> bool {
        matches!(self, Fact::Absent { .. })
    }

    /// Parses the value further; text that cannot be understood becomes unreadable and is quoted.
    #[must_use]
    pub fn and_then<U>(self, parse: impl FnOnce(&T) -> Result<U, Unexpected>) -> Fact<U> {
        match self {
            Fact::Known { value, raw, path } => match parse(&value) {
                Ok(value) => Fact::Known { value, raw, path },
                Err(unexpected) => Fact::Unreadable { path, errno: None, why: unexpected.to_string() },
            },
            Fact::Absent { path } => Fact::Absent { path },
            Fact::Unreadable { path, errno, why } => Fact::Unreadable { path, errno, why },
        }
    }

    /// Turns the value into another that cannot fail.
    #[must_use]
    pub fn map<U>(self, turn: impl FnOnce(&T) -> U) -> Fact<U> {
        self.and_then(|value| Ok(turn(value)))
    }
}

impl Fact<String> {
    /// Parses the text.
    #[must_use]
    pub fn parse<U>(self, parse: impl FnOnce(&str) -> Result<U, Unexpected>) -> Fact<U> {
        self.and_then(|text| parse(text))
    }
}

impl<T: Copy> Fact<T> {
    /// The value, copied, if known.
    pub fn get(&self) -> Option<T> {
        self.value().copied()
    }
}

/// The name and the meaning of an error number: `EACCES (Permission denied)`.
#[must_use]
pub fn describe_errno(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    let meaning = text.split(" (os error").next().unwrap_or_default();
    match overdrive_sys::errno_name(errno) {
        "errno" => format!("errno {errno} ({meaning})"),
        name => format!("{name} ({meaning})"),
    }
}

/// What became of reading a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactState {
    /// Read and understood.
    Known,
    /// Nothing there.
    Absent,
    /// There, and not readable.
    Unreadable,
}

impl FactState {
    /// The word used in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FactState::Known => "known",
            FactState::Absent => "absent",
            FactState::Unreadable => "unreadable",
        }
    }
}

/// A fact as a line for people and records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactRow {
    /// A stable name, such as `cpu.model`.
    pub id: String,
    /// What it is, in words.
    pub label: String,
    /// The value as text, with its unit, when known.
    pub value: Option<String>,
    /// Known, absent or unreadable.
    pub state: FactState,
    /// Why there is no value.
    pub why: Option<String>,
    /// Where it was read.
    pub path: String,
}

/// Collects rows under a common first part of their ids.
#[derive(Debug)]
pub(crate) struct Rows {
    prefix: String,
    list: Vec<FactRow>,
}

impl Rows {
    pub(crate) fn new(prefix: impl Into<String>) -> Rows {
        Rows { prefix: prefix.into(), list: Vec::new() }
    }

    /// Adds a fact, its value shown by `show`.
    pub(crate) fn add<T>(&mut self, id: &str, label: &str, fact: &Fact<T>, show: impl FnOnce(&T) -> String) {
        let state = match fact {
            Fact::Known { .. } => FactState::Known,
            Fact::Absent { .. } => FactState::Absent,
            Fact::Unreadable { .. } => FactState::Unreadable,
        };
        self.list.push(FactRow {
            id: format!("{}.{id}", self.prefix),
            label: label.to_owned(),
            value: fact.value().map(show),
            state,
            why: fact.why(),
            path: fact.path().to_owned(),
        });
    }

    /// Adds a fact that shows itself, with a unit (may be empty).
    pub(crate) fn plain<T: Display>(&mut self, id: &str, label: &str, fact: &Fact<T>, unit: &str) {
        self.add(id, label, fact, |value| {
            if unit.is_empty() { value.to_string() } else { format!("{value} {unit}") }
        });
    }

    /// Adds a yes or no.
    pub(crate) fn yes_no(&mut self, id: &str, label: &str, fact: &Fact<bool>) {
        self.add(id, label, fact, |&value| if value { "yes" } else { "no" }.to_owned());
    }

    /// Adds a byte count.
    pub(crate) fn bytes(&mut self, id: &str, label: &str, fact: &Fact<u64>) {
        self.add(id, label, fact, |&value| overdrive_base::size::format_size(value));
    }

    pub(crate) fn extend(&mut self, rows: Vec<FactRow>) {
        self.list.extend(rows);
    }

    pub(crate) fn into_vec(self) -> Vec<FactRow> {
        self.list
    }
}

/// Shows how often each value occurs, in order of first sight: `performance x72` or just `performance`.
pub(crate) fn tally<T: Display>(values: impl IntoIterator<Item = T>) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for value in values {
        let text = value.to_string();
        match counts.iter_mut().find(|(seen, _)| *seen == text) {
            Some((_, count)) => *count += 1,
            None => counts.push((text, 1)),
        }
    }
    let show =
        |(text, count): &(String, usize)| if *count == 1 { text.clone() } else { format!("{text} x{count}") };
    counts.iter().map(show).collect::<Vec<_>>().join(", ")
}

/// Reads `folder/NAME/file` for every name that begins with `prefix`; names without the file are left out.
pub(crate) fn each(root: &Root, folder: &str, prefix: &str, file: &str) -> Vec<machine::Named> {
    let names = root.list(folder);
    let names = names.value().into_iter().flatten().filter(|name| name.starts_with(prefix));
    let read = names.map(|name| (name.clone(), root.text(&format!("{folder}/{name}/{file}"))));
    read.filter(|(_, fact)| !fact.is_absent()).collect()
}

/// Everything about the host that does not depend on the target.
#[derive(Debug, Clone)]
pub struct HostFacts {
    /// Processors, frequency and idle policy, mitigations.
    pub cpu: cpu::CpuFacts,
    /// Memory nodes and distances.
    pub numa: numa::NumaFacts,
    /// Release, command line, preemption.
    pub kernel: kernel::KernelFacts,
    /// Whether and under what the host is a virtual machine.
    pub hypervisor: hypervisor::HypervisorFacts,
    /// Memory, huge pages, swap.
    pub memory: memory::MemoryFacts,
    /// Time source.
    pub clock: clock::ClockFacts,
    /// Control group version and controllers.
    pub cgroup: cgroup::CgroupFacts,
    /// What this process may do: locked memory, `io_uring`, CPUs.
    pub limits: limits::LimitFacts,
    /// Who else is busy.
    pub noise: noise::NoiseFacts,
    /// Settings and counters that stand alone in one file.
    pub settings: settings::Settings,
    /// Power requests, power caps, cooling, memory channels.
    pub machine: machine::MachineFacts,
    /// Swap areas with their devices.
    pub swap: swap::SwapFacts,
    /// Huge pages by node and by size.
    pub hugepages: hugepages::HugepageFacts,
    /// Who else sets what we look at.
    pub owners: owners::OwnerFacts,
}

impl HostFacts {
    /// Reads everything. `sample` is how long other processes are watched; zero skips that.
    #[must_use]
    pub fn read(root: &Root, sample: Duration) -> HostFacts {
        let cpu = cpu::CpuFacts::read(root);
        HostFacts {
            machine: machine::MachineFacts::read(root, &cpu.online),
            swap: swap::SwapFacts::read(root),
            hugepages: hugepages::HugepageFacts::read(root),
            cpu,
            numa: numa::NumaFacts::read(root),
            kernel: kernel::KernelFacts::read(root),
            hypervisor: hypervisor::HypervisorFacts::read(root),
            memory: memory::MemoryFacts::read(root),
            clock: clock::ClockFacts::read(root),
            cgroup: cgroup::CgroupFacts::read(root),
            limits: limits::LimitFacts::read(root),
            settings: settings::Settings::read(root),
            owners: owners::OwnerFacts::read(root),
            noise: noise::NoiseFacts::read(root, sample),
        }
    }

    /// All facts as lines, in reading order.
    #[must_use]
    pub fn rows(&self) -> Vec<FactRow> {
        [
            self.hypervisor.rows(),
            self.kernel.rows(),
            self.cpu.rows(),
            self.numa.rows(),
            self.memory.rows(),
            self.clock.rows(),
            self.cgroup.rows(),
            self.limits.rows(),
            self.settings.rows(),
            self.owners.rows(),
            self.noise.rows(),
        ]
        .concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_not_understood_is_quoted_with_its_path() {
        let fact = Fact::known("abc".to_owned(), "abc\n", "/sys/x").parse(parse::number::<u64>);
        assert_eq!(fact.path(), "/sys/x");
        assert_eq!(fact.why().unwrap(), "'abc' read, a whole number wanted");
    }

    #[test]
    fn errors_are_named() {
        assert_eq!(describe_errno(22), "EINVAL (Invalid argument)");
    }

    #[test]
    fn tallies_keep_the_order_of_first_sight() {
        assert_eq!(tally(["b", "a", "b"]), "b x2, a");
    }
}
