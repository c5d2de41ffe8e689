//! What whoever runs the program should hear of, beyond the counters: the engine says nothing by itself.

use super::Engine;
use crate::slots::Slot;
use crate::stats::Stat;
use overdrive_base::size::{MIB, format_size};
use overdrive_sys::uffd::PAGE;
use overdrive_sys::{Errno, errno_name};
use std::fmt;

/// Losses that are told one by one; the rest is only counted.
const LOSSES_TOLD: u32 = 16;

/// Whether so much beside a budget is worth telling: more than a quarter of it.
#[must_use]
pub fn is_much_beside(held: u64, budget: u64) -> bool {
    held > budget / 4
}

/// One thing to be told. `Display` gives the line, without whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// The store did not give a page back.
    Lost {
        /// Of the page, in the program.
        address: u64,
        /// Of the page, on the store, in bytes.
        offset: u64,
        /// What the last of several reads said.
        failure: ReadFailure,
    },
    /// Nothing more can be evicted: the program goes on above its budget.
    StoreFull {
        /// Because its file system has no room.
        no_space: bool,
    },
    /// The day's share of writes is used up.
    WritesPaced,
    /// More than the budget cannot be evicted.
    TooSmall {
        /// The budget.
        budget_bytes: u64,
        /// What cannot be evicted.
        stuck_bytes: u64,
    },
    /// A child holds more than the budget: no engine can evict it, or its own has no room in its store.
    ChildAbove {
        /// The child's number.
        process: u32,
        /// What it holds.
        bytes: u64,
    },
    /// The program has much shared memory, which comes on top of the budget.
    SharedAbove {
        /// What of it is in DRAM.
        bytes: u64,
    },
}

/// A budget with room for what cannot be evicted and for the pages that go in and out.
pub(super) fn wanted_bytes(stuck_bytes: u64) -> u64 {
    (stuck_bytes + stuck_bytes / 4 + 8 * MIB).next_multiple_of(16 * MIB)
}

/// How a read failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFailure {
    /// With an error of the kernel.
    Errno(Errno),
    /// It brought fewer bytes than asked for.
    Short,
    /// It brought other data than what was written.
    OtherData,
    /// It is not tried: more children read the page than can be counted.
    TooManyChildren,
}

/// Stands for [`ReadFailure::TooManyChildren`] among results: EUSERS.
pub(super) const TOO_MANY_CHILDREN: i32 = -87;

impl ReadFailure {
    /// From the result of reading one page: bytes or a negative errno.
    fn of(result: i32) -> Self {
        if result == TOO_MANY_CHILDREN {
            return Self::TooManyChildren;
        }
        if result < 0 {
            return Self::Errno(Errno::from_raw_os_error(-result));
        }
        if i64::from(result) < PAGE as i64 { Self::Short } else { Self::OtherData }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { address, offset, failure } => write!(
                f,
                "the page at {address:#x} is lost: the store at offset {offset} {failure}; touching it raises SIGBUS"
            ),
            Self::StoreFull { no_space } => {
                let (full, wanted) = if *no_space {
                    ("the file system of the store", "free space there, or another --store")
                } else {
                    ("the store", "more room there (--store PATH:SIZE)")
                };
                write!(f, "{full} is full: the program goes on above its budget; wanted {wanted}")
            }
            Self::TooSmall { budget_bytes, stuck_bytes } => write!(
                f,
                "the budget of {} cannot be held: {} cannot be evicted (stacks, small mappings, locked and read-only \
                 memory, what children share); wanted --dram of at least {}",
                format_size(*budget_bytes),
                format_size(stuck_bytes.next_multiple_of(MIB)),
                format_size(wanted_bytes(*stuck_bytes))
            ),
            Self::ChildAbove { process, bytes } => write!(
                f,
                "its child {process} holds {}, more than the budget: an engine of its own says why by itself; \
                 static and Go programs, children made without the C library's fork, and what more than 16 \
                 children share are not limited; wanted --backend swap, which limits all together",
                format_size(bytes.next_multiple_of(MIB))
            ),
            Self::SharedAbove { bytes } => write!(
                f,
                "up to {} of shared memory come on top of the budget: the pager evicts private memory only; wanted \
                 --backend swap, which evicts both",
                format_size(bytes.next_multiple_of(MIB))
            ),
            Self::WritesPaced => f.write_str(
                "the share of writes that --max-writes-per-day allows is used up: what needs more waits for it",
            ),
        }
    }
}

impl fmt::Display for ReadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(errno) => write!(f, "failed with {}", in_plain_words(*errno)),
            Self::Short => f.write_str("gave back a part of it only"),
            Self::OtherData => f.write_str("gave back other data than was written"),
            Self::TooManyChildren => f.write_str("is read by too many children for one more"),
        }
    }
}

/// An errno by its name. The C library's words for it are not for whoever serves faults: to translate them it
/// looks into the environment and into memory of the program's, which may be away.
#[must_use]
pub fn in_plain_words(errno: Errno) -> String {
    let number = errno.raw_os_error();
    format!("{} ({number})", errno_name(number))
}

/// Whom to tell, and what was told already.
#[derive(Debug)]
pub(super) struct Notices {
    notify: Option<fn(&Notice)>,
    losses: u32,
    told: [bool; 5],
}

impl Notices {
    pub(super) fn new(notify: Option<fn(&Notice)>) -> Self {
        Self { notify, losses: 0, told: [false; 5] }
    }

    fn tell(&self, notice: &Notice) {
        if let Some(notify) = self.notify {
            notify(notice);
        }
    }

    /// Tells what is told once for a program.
    pub(super) fn tell_once(&mut self, notice: &Notice) {
        let index = match notice {
            Notice::Lost { .. } => return self.tell(notice),
            Notice::StoreFull { .. } => 0,
            Notice::WritesPaced => 1,
            Notice::TooSmall { .. } => 2,
            Notice::ChildAbove { .. } => 3,
            Notice::SharedAbove { .. } => 4,
        };
        if !std::mem::replace(&mut self.told[index], true) {
            self.tell(notice);
        }
    }
}

impl Engine {
    /// Counts a page that is lost, and tells of it.
    pub(super) fn note_loss(&mut self, address: u64, slot: Slot, result: i32) {
        let (offset, failure) = (u64::from(slot) * PAGE, ReadFailure::of(result));
        self.stats.add(Stat::Lost, 1);
        self.stats.set(Stat::LossAddress, address);
        self.stats.set(Stat::LossOffset, offset);
        self.stats.set(Stat::LossErrno, result.min(0).unsigned_abs().into());
        if self.notices.losses < LOSSES_TOLD {
            self.notices.losses += 1;
            self.notices.tell(&Notice::Lost { address, offset, failure });
        }
    }

    /// Tells when the program is above its budget because nothing more fits the store.
    pub(super) fn look_whether_full(&mut self) {
        if (self.is_store_full() || self.no_space) && self.held() > self.limits.total {
            self.stats.add(Stat::StoreFull, 1);
            self.notices.tell_once(&Notice::StoreFull { no_space: self.no_space });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_is_too_small_is_told_with_one_that_is_not() {
        let line = Notice::TooSmall { budget_bytes: 32 * MIB, stuck_bytes: 50 * MIB - 5 }.to_string();
        assert!(line.contains("of 32 MiB") && line.contains("50 MiB cannot"), "{line}");
        assert!(line.ends_with("at least 80 MiB"), "{line}");
        assert!((1..500).all(|mib| wanted_bytes(mib * MIB) >= (mib + 8) * MIB));
    }

    #[test]
    fn what_is_full_is_named() {
        let line = |no_space| Notice::StoreFull { no_space }.to_string();
        assert!(line(false).starts_with("the store is full") && line(false).contains("PATH:SIZE"));
        assert!(
            line(true).starts_with("the file system of the store is full") && line(true).contains("free")
        );
    }

    #[test]
    fn a_loss_names_address_offset_and_error() {
        let lost = |result| {
            Notice::Lost { address: 0x7000, offset: 8192, failure: ReadFailure::of(result) }.to_string()
        };
        for (result, words) in [
            (-5, "failed with EIO (5)"),
            (100, "a part of it"),
            (4096, "other data"),
            (TOO_MANY_CHILDREN, "too many children"),
        ] {
            let line = lost(result);
            assert!(
                line.contains("0x7000") && line.contains("offset 8192") && line.contains(words),
                "{line}"
            );
        }
    }
}
