//! Engines in processes apart: this process has adopted them, and sees to their end.
//!
//! They end by themselves when their program has. One that hangs (in code that a program has put in the place
//! of the C library's) would keep the program's memory for ever.

use anyhow::{Context, Result};
use overdrive_sys::apart::{have_same_memory, kill};
use overdrive_sys::proc_stat::numbers_in;
use overdrive_sys::relay::Relay;
use std::time::{Duration, Instant};

/// What engines and all that belongs to them are called, and more behind it.
pub(super) const NAME: &str = "overmem";
/// How long they may take to end when their programs have.
const END: Duration = Duration::from_secs(1);

/// The engines of a run, where they are processes apart.
#[derive(Debug)]
pub(super) struct Engines<'a>(Option<&'a Relay>);

impl<'a> Engines<'a> {
    /// They are nobody's children, and become this process's, which the relay lets go of.
    pub(super) fn adopt(relay: &'a Relay, are_apart: bool) -> Result<Self> {
        if are_apart {
            relay.adopt_orphans().context("asking for processes without a parent")?;
        }
        Ok(Self(are_apart.then_some(relay)))
    }

    /// After the program's end: waits for those whose program has ended, and ends them if they take too long.
    /// Whether others are left, with processes of the program that go on (`is_used`).
    pub(super) fn leave(&self, is_used: impl Fn() -> bool) -> bool {
        for relay in [self.0; 2].into_iter().flatten() {
            let end = Instant::now() + END;
            relay.wait_for_orphans(|| is_used() && Instant::now() < end);
            if !is_used() {
                break;
            }
            end_those_that_hang();
        }
        is_used()
    }
}

fn end_those_that_hang() {
    let adopted = adopted();
    let (engines, others): (Vec<_>, Vec<_>) = numbers_in("/proc").partition(|&pid| is_engine(pid));
    for engine in engines.into_iter().filter(|engine| adopted.contains(engine)) {
        if !others.iter().any(|&other| have_same_memory(other, engine)) {
            kill(engine);
        }
    }
}

fn is_engine(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with(NAME))
}

/// The process that answers a process's faults from apart, by its name.
pub(super) fn engine_apart(pid: u32) -> Option<u32> {
    let name = format!("{NAME}:{pid}\n");
    let has_name =
        |child: &u32| std::fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|found| found == name);
    adopted().into_iter().find(has_name)
}

/// This process's children.
fn adopted() -> Vec<u32> {
    let list = |thread: u32| std::fs::read_to_string(format!("/proc/self/task/{thread}/children")).ok();
    let lists: String = numbers_in("/proc/self/task").filter_map(list).collect();
    lists.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
}
