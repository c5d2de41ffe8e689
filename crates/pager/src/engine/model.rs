//! The engine itself against a kernel made of plain data ([`crate::sim`]): every order of what can happen
//! to a few pages, and long random walks. After each step every page must still have its content somewhere,
//! where the engine looks for it; slots have one owner, frames are counted, and in the end nobody waits.
//!
//! A step is a line in what a failure prints; walks are made again by their seed (`OVERDRIVE_MODEL_SEED`,
//! `OVERDRIVE_MODEL_WALKS`).

use super::changes::Followed;
use super::evict::PIECES_IN_ONE_GO;
use super::helpers::{SENT, Sent};
use super::{Config, Engine, Limits, Purpose};
use crate::platform::{Door, Instant};
use crate::pool::Compress;
use crate::seal::{KEY_BYTES, Seal};
use crate::sim::{FRAMES, Kernel, Memory, SEED, Standing, Told, content_of, kernel, page_of};
use crate::slots::{SEGMENT_SLOTS, Slots};
use crate::space::{BLOCK_PAGES, Region, Space};
use crate::staging::Staging;
use crate::stats::{Stat, Stats};
use crate::table::{State, Table, mark_of};
use overdrive_base::rng::Rng;
use overdrive_sys::secret::Secret;
use overdrive_sys::uffd::PAGE;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

mod look;
mod world;

use world::{Step, World};

const BLOCK_BYTES: u64 = BLOCK_PAGES as u64 * PAGE;
const BASE: u64 = 0x10_0000_0000;

/// What may happen in one exploration.
#[derive(Debug, Clone, Copy)]
struct Scope {
    /// Pages, two in a block.
    pages: u64,
    /// Four in a block: threads may walk through them, and reads bring several.
    in_a_row: bool,
    threads: usize,
    /// Reads and writes of the store that fail, at most. A page is lost when one more read fails.
    failures: u32,
    remove: bool,
    /// Whether memory is given up by MADV_FREE too, and dropped by the kernel some time later.
    free: bool,
    unmap: bool,
    remap: bool,
    /// Whether what moves comes to lie otherwise in its block, so that its pages get other numbers.
    shift: bool,
    /// Whether threads tell of what they unmapped or moved some time after they did it, in any order.
    late: bool,
    pin: bool,
    /// Whether pages come to be executable, or cease to be.
    execute: bool,
    /// Whether threads begin and end whose word is on the first page.
    words: bool,
    /// Children, at most.
    children: usize,
    /// Whether they have helpers.
    helpers: bool,
    /// How often a long time passes, at most.
    passes: u32,
    /// Whether there is a compressed tier, and of which kind.
    compress: Compress,
    /// Whether that may take two pages of memory, so that what is in it has to be moved together.
    scattered: bool,
    /// Whether the kernel tells who was written to. In walks only: what is learnt of it makes all states
    /// differ.
    accesses: bool,
    /// Whether zeroes that are only read count for nothing, and what is written to is looked for.
    zeroes: bool,
    /// Whether that tells which pages are in use, so that they stay.
    pages_in_use: bool,
    /// Whether the store is encrypted.
    seal: bool,
    /// Whether the store is to be had in parts.
    parts: bool,
    /// Whether the store has one segment only, which is nearly used up.
    tight: bool,
    /// How many children may read one page; what others miss is lost to them. 0 for as many as there are.
    holds: u16,
    /// Whether the store may come to give back other data than was written. Pages are lost then, as they are
    /// where reads fail too often.
    losses: bool,
}

const PLAIN: Scope = Scope {
    pages: 2,
    in_a_row: false,
    threads: 1,
    failures: 0,
    remove: false,
    free: false,
    unmap: false,
    remap: false,
    shift: false,
    late: false,
    pin: false,
    execute: false,
    words: false,
    children: 0,
    helpers: false,
    passes: 0,
    compress: Compress::Off,
    scattered: false,
    accesses: false,
    zeroes: false,
    pages_in_use: false,
    seal: false,
    parts: false,
    tight: false,
    holds: 0,
    losses: false,
};

impl Scope {
    fn addresses(&self) -> impl Iterator<Item = u64> + use<> {
        let in_block = if self.in_a_row { 4 } else { 2 };
        (0..self.pages).map(move |page| BASE + page / in_block * BLOCK_BYTES + page % in_block * PAGE)
    }

    /// Whether pages of this process may be lost.
    fn may_lose(&self, number: usize) -> bool {
        self.losses || self.holds > 0 && number > 0
    }
}

/// Tries every order of steps, shortest first, until `states` different states were seen or there are no
/// more.
fn explore(name: &str, scope: Scope, states: usize) {
    let mut seen = HashSet::from([World::new(scope).digest()]);
    let mut frontier = VecDeque::from([Vec::new()]);
    let mut deepest = 0;
    while let Some(path) = frontier.pop_front() {
        deepest = path.len();
        let steps = replay(scope, &path).steps();
        for step in steps {
            let mut longer: Vec<Step> = path.clone();
            longer.push(step);
            let world = replay(scope, &longer);
            if seen.insert(world.digest()) {
                world.settle();
                frontier.push_back(longer);
            }
        }
        if seen.len() >= states {
            break;
        }
    }
    let rest = frontier.len();
    assert!(deepest >= 4 || rest == 0, "{name}: {} states, {deepest} steps deep, {rest} left", seen.len());
}

fn replay(scope: Scope, path: &[Step]) -> World {
    let mut world = World::new(scope);
    path.iter().for_each(|step| world.take(step));
    world
}

#[test]
fn every_order_of_load_evict_rescue_and_fault() {
    explore("one page", Scope { pages: 1, ..PLAIN }, 20_000);
    explore("two pages", PLAIN, 4_000);
    explore("two threads", Scope { threads: 2, ..PLAIN }, 4_000);
}

#[test]
fn every_order_with_a_failing_store() {
    explore("one page", Scope { pages: 1, failures: 3, ..PLAIN }, 6_000);
    explore("two pages", Scope { failures: 3, ..PLAIN }, 4_000);
}

#[test]
fn every_order_with_memory_given_up_unmapped_and_moved() {
    explore("removed", Scope { pages: 1, remove: true, passes: 2, ..PLAIN }, 4_000);
    explore("freed", Scope { free: true, passes: 1, ..PLAIN }, 4_000);
    explore("unmapped", Scope { pages: 1, unmap: true, ..PLAIN }, 4_000);
    explore("moved", Scope { pages: 1, remap: true, failures: 1, ..PLAIN }, 4_000);
    explore("shifted", Scope { pages: 1, remap: true, shift: true, failures: 1, ..PLAIN }, 4_000);
}

#[test]
fn every_order_with_zeroes_that_are_read() {
    let scope = Scope { zeroes: true, ..PLAIN };
    explore("two pages", Scope { threads: 2, ..scope }, 4_000);
    explore("freed", Scope { remove: true, free: true, passes: 1, ..scope }, 4_000);
    explore("shifted", Scope { pages: 1, remap: true, shift: true, ..scope }, 1_000);
    explore("a child", Scope { children: 1, remove: true, ..scope }, 4_000);
}

#[test]
fn every_order_of_changes_told_late() {
    let scope = Scope { threads: 2, remap: true, late: true, ..PLAIN };
    explore("moved", Scope { pages: 3, ..scope }, 6_000);
    explore("shifted", Scope { pages: 3, shift: true, ..scope }, 6_000);
    explore("unmapped", Scope { pages: 3, unmap: true, ..scope }, 8_000);
    explore("a child", Scope { pages: 3, children: 1, ..scope }, 4_000);
}

#[test]
fn every_order_with_children() {
    explore("a child", Scope { pages: 1, children: 1, passes: 1, ..PLAIN }, 5_000);
    explore("failures", Scope { pages: 2, children: 2, failures: 1, ..PLAIN }, 3_000);
    explore("removed", Scope { pages: 1, children: 1, remove: true, remap: true, ..PLAIN }, 3_000);
}

#[test]
fn every_order_with_children_that_have_helpers() {
    let scope = Scope { pages: 3, children: 1, helpers: true, ..PLAIN };
    explore("a child", scope, 6_000);
    explore("failures", Scope { failures: 1, ..scope }, 3_000);
    explore("removed", Scope { remove: true, ..scope }, 4_000);
    explore("moved", Scope { remap: true, ..scope }, 4_000);
    explore("a child's child", Scope { children: 2, ..scope }, 4_000);
    explore("a full store", Scope { tight: true, ..scope }, 4_000);
    explore("new memory", Scope { unmap: true, ..scope }, 4_000);
}

/// A child of a process with three pages on the store, which has brought all of them back.
fn child_with_three_pages(children: usize) -> World {
    let mut world = World::new(Scope { pages: 5, children, helpers: true, ..PLAIN });
    let addresses = [BASE, BASE + BLOCK_BYTES, BASE + 2 * BLOCK_BYTES];
    addresses.iter().zip(1..).for_each(|(&address, content)| world.store(address, content));
    [Step::Fork(0, 0), Step::Turn, Step::GoOn(0, 0)].iter().for_each(|step| world.take(step));
    world.engine.children[0].relief.never_look();
    world.engine.limits.budget = 48;
    for address in addresses {
        [Step::Touch(1, 0, address, None), Step::Turn, Step::Turn].iter().for_each(|step| world.take(step));
        [Step::Read(0, true), Step::Turn, Step::GoOn(1, 0)].iter().for_each(|step| world.take(step));
    }
    world.engine.limits.budget = 1;
    world
}

#[test]
fn what_a_child_brought_back_goes_again_and_what_it_has_changed_is_written() {
    let mut world = child_with_three_pages(1);
    let there = || kernel(|kernel| kernel.memories[1].standing.keys().copied().collect::<Vec<_>>());
    let helped = |world: &mut World| {
        while kernel(|kernel| kernel.helping.get(&1).is_some_and(|helping| !helping.over)) {
            world.take(&Step::Help(1));
        }
        [Step::Turn, Step::Turn].iter().for_each(|step| world.take(step));
    };
    let count = |world: &World, stat| world.engine.stats.get(stat);
    assert_eq!(there().len(), 3);
    [Step::Turn, Step::Touch(1, 0, BASE + BLOCK_BYTES, Some(9))].iter().for_each(|step| world.take(step));
    helped(&mut world);
    assert_eq!(there(), [BASE + BLOCK_BYTES, BASE + 2 * BLOCK_BYTES]);
    assert_eq!((count(&world, Stat::Evicted), count(&world, Stat::EvictedClean)), (1, 1));
    helped(&mut world);
    assert_eq!(there(), [BASE + 2 * BLOCK_BYTES], "it is being written");
    // The child wants it back before it is.
    [Step::Touch(1, 0, BASE + BLOCK_BYTES, Some(10)), Step::Turn, Step::Turn, Step::GoOn(1, 0)]
        .iter()
        .for_each(|step| world.take(step));
    assert_eq!(there(), [BASE + BLOCK_BYTES, BASE + 2 * BLOCK_BYTES]);
    [Step::Write(0, true), Step::Turn, Step::Turn].iter().for_each(|step| world.take(step));
    (0..3).for_each(|_| helped(&mut world));
    assert_eq!(there(), [BASE + BLOCK_BYTES], "one is what a child keeps");
    assert_eq!((count(&world, Stat::Evicted), count(&world, Stat::EvictedClean)), (3, 2));
    world.take(&Step::Touch(1, 0, BASE, None));
    [Step::Turn, Step::Turn, Step::Read(0, true), Step::Turn, Step::GoOn(1, 0)]
        .iter()
        .for_each(|step| world.take(step));
    (0..3).for_each(|_| helped(&mut world));
    [Step::Write(0, true), Step::Turn, Step::Turn].iter().for_each(|step| world.take(step));
    assert_eq!(there(), [BASE]);
    let page = world.engine.space.page(BASE + BLOCK_BYTES).unwrap();
    assert_eq!(world.engine.children[0].table.state(page), State::Stored);
    assert_eq!(count(&world, Stat::Written), 2);
    world.settle();
}

/// A child that shares three pages with its parent, two of them in a block.
fn child_that_shares() -> World {
    let mut world = World::new(Scope { pages: 3, children: 1, helpers: true, ..PLAIN });
    world.engine.limits = Limits { budget: 8, total: 64, soft: 1, reserve: 1, compressed: 0 };
    for address in [BASE, BASE + PAGE, BASE + BLOCK_BYTES] {
        world.take(&Step::Touch(0, 0, address, Some(3)));
        [Step::Turn, Step::GoOn(0, 0)].iter().for_each(|step| world.take(step));
    }
    [Step::Fork(0, 0), Step::Turn, Step::GoOn(0, 0)].iter().for_each(|step| world.take(step));
    world
}

/// So many turns, each after the helpers have done what they were asked for and all is written.
fn help_and_write(world: &mut World, turns: u32) {
    for _ in 0..turns {
        let is_at_it = |number| kernel(|kernel| kernel.helping.get(&number).is_some_and(|it| !it.over));
        for number in 1..=world.engine.children.len() {
            while is_at_it(number) {
                world.take(&Step::Help(number));
            }
        }
        while world.steps().contains(&Step::Write(0, true)) {
            world.take(&Step::Write(0, true));
        }
        world.take(&Step::Turn);
        kernel(|kernel| kernel.time += Duration::from_millis(6));
    }
}

#[test]
fn what_a_child_has_to_itself_since_its_parent_has_another_goes() {
    let mut world = child_that_shares();
    let there = || kernel(|kernel| kernel.memories[1].standing.len());
    // The parent's own pages go, and the child has the old ones.
    kernel(|kernel| {
        for memory in &mut kernel.memories {
            memory.shared.retain(|page| ![BASE, BASE + PAGE].contains(page));
        }
    });
    help_and_write(&mut world, 12);
    assert_eq!(there(), 2, "what both have stays, and one that a child keeps: {}", world.story);
    assert_eq!(world.engine.stats.get(Stat::Written), 1);
    world.settle();
}

#[test]
fn a_child_waits_for_what_it_brought_and_not_for_what_its_parent_left_it() {
    let has_to_wait = |world: &mut World| {
        let child = world.engine.children.pop().unwrap();
        let (pages, has_to_wait) = (child.held(), world.engine.has_child_to_wait(&child));
        world.engine.children.push(child);
        (pages, has_to_wait)
    };
    let mut world = child_with_three_pages(1);
    assert_eq!(has_to_wait(&mut world), (3, true), "{}", world.story);
    world.settle();
    let mut world = child_that_shares();
    kernel(|kernel| kernel.memories.iter_mut().for_each(|memory| memory.shared.clear()));
    for _ in 0..40 {
        if has_to_wait(&mut world).0 < 3 {
            help_and_write(&mut world, 1);
        }
    }
    assert_eq!(has_to_wait(&mut world), (3, false), "{}", world.story);
    world.settle();
}

#[test]
fn what_a_child_had_from_its_parent_is_written_once() {
    let mut world = child_that_shares();
    // The child changes one of those that its parent evicts, and keeps the last of them.
    let own = [BASE, BASE + PAGE, BASE + BLOCK_BYTES].map(Step::Own);
    [Step::Touch(1, 0, BASE, Some(2))].iter().chain(&own).for_each(|step| world.take(step));
    world.engine.limits.total = 1;
    help_and_write(&mut world, 20);
    let there = |number: usize| -> Vec<u64> {
        kernel(|kernel| kernel.memories[number].standing.keys().copied().collect())
    };
    assert_eq!([there(0), there(1)], [vec![], vec![BASE + BLOCK_BYTES]], "{}", world.story);
    assert_eq!(world.engine.stats.get(Stat::Written), 4);
    world.settle();
}

#[test]
fn what_a_child_shares_with_a_child_of_its_own_goes_in_both() {
    let mut world = child_with_three_pages(2);
    let there = |number: usize| kernel(|kernel| kernel.memories[number].standing.len());
    world.take(&Step::Fork(1, 0));
    help_and_write(&mut world, 4);
    world.take(&Step::GoOn(1, 0));
    assert_eq!([there(1), there(2)], [3, 3]);
    help_and_write(&mut world, 40);
    assert_eq!([there(1), there(2)], [1, 1], "one is what a child keeps: {}", world.story);
    world.settle();
}

#[test]
fn what_stays_though_it_is_copied_is_tried_now_and_then() {
    let mut world = child_with_three_pages(1);
    kernel(|kernel| kernel.memories[1].pinned.extend([BASE, BASE + BLOCK_BYTES]));
    let mut tries = [100, 300, 300].map(|turns| {
        help_and_write(&mut world, turns);
        world.story.matches("Help").count()
    });
    (1..3).rev().for_each(|index| tries[index] -= tries[index - 1]);
    // For each of the two asked for and seen in a round of a second and more, of 6 ms each turn.
    assert!(tries[0] < 100 && (2..=16).contains(&tries[2]), "{tries:?}\n{}", world.story);
    assert_eq!(world.engine.children[0].held(), 1, "nor does it count: {}", world.story);
    kernel(|kernel| kernel.memories[1].pinned.clear());
    help_and_write(&mut world, 400);
    assert_eq!(kernel(|kernel| kernel.memories[1].standing.len()), 1, "{}", world.story);
    world.settle();
}

#[test]
fn what_a_helper_took_with_it_is_lost_and_told_when_somebody_wants_it() {
    let mut world = child_with_three_pages(1);
    [Step::Turn, Step::Help(1)].iter().for_each(|step| world.take(step));
    // The helper alone has ended.
    kernel(|kernel| kernel.memories[1].dead = true);
    kernel(|kernel| kernel.helped.push_back(1));
    world.engine.reap();
    let mut child = world.engine.children.pop().unwrap();
    assert_eq!(world.engine.hear_helper(&mut child), Ok(true));
    kernel(|kernel| kernel.memories[1].dead = false);
    world.engine.children.push(child);
    kernel(|kernel| kernel.helping.clear());
    world.scope.losses = true;
    assert_eq!(world.engine.stats.get(Stat::Lost), 0);
    [Step::Touch(1, 0, BASE, None), Step::Turn, Step::Turn].iter().for_each(|step| world.take(step));
    assert_eq!(kernel(|kernel| kernel.memories[1].standing.get(&BASE).copied()), Some(Standing::Poison));
    assert_eq!(world.engine.stats.get(Stat::Lost), 1);
    world.settle();
}

#[test]
fn every_order_with_compressed_pages() {
    let scope = Scope { compress: Compress::Auto, ..PLAIN };
    explore("one page", Scope { pages: 1, failures: 1, ..scope }, 4_000);
    explore("three pages", Scope { pages: 3, ..scope }, 5_000);
    explore("moved", Scope { remap: true, remove: true, passes: 1, ..scope }, 4_000);
    explore("shifted", Scope { remap: true, shift: true, remove: true, passes: 1, ..scope }, 4_000);
    explore("a child", Scope { children: 2, ..scope }, 5_000);
}

#[test]
fn every_order_with_executable_pages() {
    let scope = Scope { execute: true, ..PLAIN };
    explore("two pages", scope, 4_000);
    explore("moved", Scope { remap: true, ..scope }, 4_000);
    explore("compressed", Scope { compress: Compress::Auto, ..scope }, 3_000);
}

#[test]
fn executable_pages_leave_as_others_do() {
    let mut world = World::new(Scope { pages: 4, execute: true, ..PLAIN });
    let addresses: Vec<u64> = world.scope.addresses().collect();
    // One page of each block: the border lies within what is moved in one go.
    [addresses[0], addresses[3]].iter().for_each(|&page| world.take(&Step::Execute(page)));
    for round in 0..3 {
        for &address in &addresses {
            let mut next = Some(Step::Touch(0, 0, address, Some(round + 1)));
            while let Some(step) = next {
                world.take(&step);
                (0..4).for_each(|_| world.take(&Step::Turn));
                let ends = [Step::Write(0, true), Step::Read(0, true)];
                next = ends.into_iter().find(|end| world.steps().contains(end));
            }
        }
        let held = kernel(|kernel| kernel.memories[0].standing.len());
        assert!(held <= 2, "{held} of 4 pages are in place\n{}", world.story);
    }
    assert_eq!(world.engine.stats.get(Stat::Pinned), 0);
    world.settle();
}

#[test]
fn every_order_with_threads_that_end() {
    let scope = Scope { words: true, ..PLAIN };
    explore("one page", Scope { pages: 1, failures: 1, ..scope }, 4_000);
    explore("two pages", scope, 4_000);
    explore("compressed", Scope { compress: Compress::Auto, ..scope }, 4_000);
    explore("a child", Scope { children: 1, ..scope }, 3_000);
}

#[test]
fn every_order_with_a_store_in_parts() {
    explore("two pages", Scope { parts: true, failures: 1, ..PLAIN }, 3_000);
}

#[test]
fn every_order_with_a_store_that_has_to_be_emptied() {
    let scope = Scope { tight: true, ..PLAIN };
    explore("two pages", Scope { threads: 2, failures: 1, ..scope }, 6_000);
    explore("three pages", Scope { pages: 3, remove: true, ..scope }, 6_000);
    explore("a child", Scope { children: 1, ..scope }, 4_000);
    explore("compressed", Scope { compress: Compress::Auto, ..scope }, 4_000);
}

#[test]
fn every_order_with_an_encrypted_store() {
    let scope = Scope { seal: true, ..PLAIN };
    explore("failures", Scope { pages: 1, failures: 2, ..scope }, 2_000);
    explore("a child", Scope { pages: 1, children: 1, ..scope }, 2_000);
    explore("compressed", Scope { compress: Compress::Auto, ..scope }, 2_000);
}

#[test]
fn a_page_that_too_many_children_read_is_lost_to_the_last_and_counted() {
    let mut world = World::new(Scope { pages: 1, children: 3, holds: 2, ..PLAIN });
    world.store(BASE, 1);
    for _ in 0..3 {
        [Step::Fork(0, 0), Step::Turn, Step::GoOn(0, 0)].iter().for_each(|step| world.take(step));
    }
    let page = world.engine.space.page(BASE).unwrap();
    let state = |child: &super::child::Child| child.table.state(page);
    let states: Vec<_> = world.engine.children.iter().map(state).collect();
    assert_eq!(states, [State::Stored, State::Stored, State::Lost]);
    assert_eq!(world.engine.stats.get(Stat::Lost), 1);
    assert_eq!(world.engine.stats.get(Stat::LossAddress), BASE);
    world.settle();
}

/// Its mapping grew between two looks at it: it had two numbers then.
#[test]
fn what_is_listed_twice_is_entered_once() {
    let mut world = World::new(PLAIN);
    let (grown, before) = (BASE + 2 * BLOCK_BYTES, world.engine.space.bytes());
    let both = [grown..grown + PAGE, grown..grown + 2 * PAGE];
    kernel(|kernel| {
        kernel.memories[0].mapped.extend([(grown, false), (grown + PAGE, false)]);
    });
    let (taken, outcome) = world.engine.adopt_gaps(&both);
    assert_eq!((taken.len(), outcome), (2, Ok(())));
    assert_eq!(world.engine.space.bytes(), before + 2 * PAGE);
    let pages = world.engine.space.pages_in(&both[1]);
    assert_eq!(pages.len(), 1, "{pages:?}");
}

/// It hung: the page had no place in the books of the child's child.
#[test]
fn a_child_that_forks_before_it_was_given_its_page_gives_it_to_its_own_child() {
    let mut world = World::new(Scope { pages: 1, children: 2, ..PLAIN });
    let page = world.engine.space.page(BASE).unwrap();
    world.take(&Step::Touch(0, 0, BASE, Some(7)));
    [Step::Turn, Step::GoOn(0, 0)].iter().for_each(|step| world.take(step));
    // Then it goes, and is being written.
    world.engine.limits = Limits { budget: 64, total: 1, soft: 1, reserve: 1, compressed: 0 };
    let mut turns = (0..20).map(|_| world.take(&Step::Turn));
    assert!(turns.any(|()| kernel(|kernel| kernel.memories[0].standing.is_empty())), "it stays");
    assert_eq!(world.engine.table.state(page), State::Staged);
    world.take(&Step::Fork(0, 0));
    // It has run on by the time that its parent's engine comes to look.
    world.programs[1].runs = true;
    [Step::Fork(1, 0), Step::Turn].iter().for_each(|step| world.take(step));
    let states: Vec<_> = world.engine.children.iter().map(|child| child.table.state(page)).collect();
    assert_eq!(states, [State::Resident, State::Resident]);
    world.settle();
}

#[test]
fn what_moves_to_where_memory_grew_unseen_stays_when_that_is_told_to_be_gone() {
    let mut world = World::new(Scope { pages: 3, threads: 2, unmap: true, remap: true, late: true, ..PLAIN });
    let (other, grown) = (BASE + BLOCK_BYTES, BASE + 2 * BLOCK_BYTES);
    world.take(&Step::Touch(0, 0, other, Some(7)));
    [Step::Turn, Step::GoOn(0, 0)].iter().for_each(|step| world.take(step));
    kernel(|kernel| kernel.memories[0].mapped.insert(grown, true));
    world.programs[0].wants.insert(grown, world::Want::Exactly(0));
    let steps = [
        Step::Unmap(0, 0, grown),
        Step::Remap(0, 1, other, grown),
        Step::Tell(0, 1),
        Step::Turn,
        Step::Tell(0, 0),
        Step::Turn,
    ];
    steps.iter().for_each(|step| world.take(step));
    let page = world.engine.space.page(grown).expect("memory that is there");
    assert_eq!(world.engine.table.state(page), State::Resident);
    world.settle();
}

#[test]
fn a_thread_of_a_child_that_waits_for_a_page_which_moves_away_finds_that_out() {
    let mut world = World::new(Scope { children: 1, remap: true, late: true, ..PLAIN });
    world.store(BASE, 1);
    [Step::Fork(0, 0), Step::Turn, Step::GoOn(0, 0)].iter().for_each(|step| world.take(step));
    let moves = Step::Remap(1, 0, BASE, BASE + 4 * BLOCK_BYTES);
    let steps = [Step::Touch(1, 1, BASE, None), Step::Turn, moves, Step::Tell(1, 0), Step::Turn];
    steps.iter().for_each(|step| world.take(step));
    assert!(kernel(|kernel| kernel.memories[1].waiting.is_empty()));
    world.settle();
}

#[test]
fn new_faults_are_looked_at_before_all_that_was_read_is_served() {
    let mut world = World::new(Scope { pages: 3, threads: 2, ..PLAIN });
    // With room for all of them.
    world.engine.limits = Limits { budget: 64, total: 64, soft: 1, reserve: 1, compressed: 0 };
    let addresses: Vec<u64> = world.programs[0].wants.keys().copied().collect();
    addresses.iter().for_each(|&address| world.store(address, 1));
    let waiting = || kernel(|kernel| kernel.memories[0].waiting.len());
    for (thread, &address) in addresses[1..].iter().enumerate() {
        world.take(&Step::Touch(0, thread, address, None));
    }
    world.take(&Step::Turn);
    addresses[1..].iter().for_each(|_| world.take(&Step::Read(0, true)));
    world.take(&Step::Turn);
    assert_eq!(waiting(), 1, "the other has to wait for the next turn");
    // The one that was served faults again: its read is under way when the other is served.
    [Step::GoOn(0, 0), Step::Touch(0, 0, addresses[0], None), Step::Turn]
        .iter()
        .for_each(|step| world.take(step));
    assert_eq!((waiting(), kernel(|kernel| kernel.reading.len())), (1, 1));
    world.settle();
}

#[test]
fn the_more_is_read_at_a_time_the_more_threads_are_served_between_two_looks() {
    let mut world = World::new(PLAIN);
    let mut after = |reads: u32| {
        (0..reads).for_each(|_| assert!(world.engine.free_landing.take(1, true).is_some()));
        world.engine.served_at_once()
    };
    assert_eq!((after(4), after(12), after(16), after(32)), (1, 2, 4, 4));
}

#[test]
fn memory_may_be_given_up_and_be_in_use_again_any_number_of_times() {
    let mut world = World::new(Scope { free: true, ..PLAIN });
    let later = || kernel(|kernel| kernel.time += Duration::from_millis(25));
    for time in 0..200 {
        [Step::Touch(0, 0, BASE, Some(1)), Step::Turn].iter().for_each(|step| world.take(step));
        [Step::GoOn(0, 0), Step::Free(0, 0, BASE), Step::Turn].iter().for_each(|step| world.take(step));
        later();
        world.take(&Step::Turn);
        let given_up = world.engine.giving_up.blocks.values().next().expect("it is there until it is gone");
        assert!(given_up.wait() <= Duration::from_millis(20), "time {time}: it is looked at soon after");
        world.take(&Step::GoOn(0, 0));
    }
    world.settle();
}

#[test]
fn room_for_reads_of_several_pages_is_kept_while_one_is_under_way() {
    let scope = Scope { pages: 4, in_a_row: true, ..PLAIN };
    let mut world = World::new(scope);
    scope.addresses().zip(1..).for_each(|(address, content)| world.store(address, content));
    let page = world.engine.space.page(BASE).unwrap();
    let limits = world.engine.limits;
    assert!(!world.engine.free_landing.ask_for_wide(limits.total));
    world.take(&Step::Turn);
    let held = |world: &World| world.engine.free_landing.held();
    assert_eq!(held(&world), 2, "there was room for it");
    assert!(world.engine.start_load(page..page + 2, Purpose::Ahead));
    let later = || kernel(|kernel| kernel.time += Duration::from_secs(2));
    let wait = |world: &mut World| {
        for _ in 0..4 {
            later();
            world.take(&Step::Turn);
        }
    };
    wait(&mut world);
    assert_eq!(held(&world), 2, "the drive writes to it");
    world.take(&Step::Read(0, true));
    wait(&mut world);
    assert_eq!(held(&world), 0, "what it brought is not wanted");
    assert_eq!(world.engine.table.state(page), State::Stored);
    world.settle();
}

#[test]
fn who_waits_for_room_is_served_when_what_came_before_in_the_same_read_is_given_up() {
    let scope = Scope { pages: 4, in_a_row: true, threads: 2, remove: true, ..PLAIN };
    let mut world = World::new(scope);
    scope.addresses().zip(1..).for_each(|(address, content)| world.store(address, content));
    let page = world.engine.space.page(BASE).unwrap();
    let limits = world.engine.limits;
    world.engine.free_landing.ask_for_wide(limits.total);
    world.take(&Step::Turn);
    assert!(world.engine.start_load(page..page + 2, Purpose::Ahead));
    [Step::Touch(0, 0, BASE + PAGE, None), Step::Turn].iter().for_each(|step| world.take(step));
    world.engine.limits.total = world.engine.held() + 1;
    [Step::Read(0, true), Step::Turn].iter().for_each(|step| world.take(step));
    assert_eq!(world.engine.table.state(page + 1), State::Loading, "there is no room for both");
    [Step::Remove(0, 1, BASE), Step::Turn, Step::GoOn(0, 1)].iter().for_each(|step| world.take(step));
    world.engine.limits = limits;
    [Step::Turn, Step::Turn].iter().for_each(|step| world.take(step));
    assert_eq!(world.engine.table.state(page + 1), State::Resident);
    world.settle();
}

#[test]
fn what_was_read_ahead_in_vain_does_not_keep_a_segment_from_being_emptied() {
    let mut world = World::new(Scope { pages: 3, tight: true, ..PLAIN });
    world.store(BASE, 1);
    let page = world.engine.space.page(BASE).unwrap();
    assert!(world.engine.start_load(page..page + 1, Purpose::Ahead));
    world.engine.io.submit(None).unwrap();
    world.take(&Step::Read(0, true));
    world.take(&Step::Touch(0, 0, BASE + BLOCK_BYTES, Some(7)));
    [Step::Turn, Step::GoOn(0, 0)].iter().for_each(|step| world.take(step));
    assert_eq!(world.engine.table.state(page), State::Loading, "it waits to be used");
    // The other page has to go, and there is no room for it.
    world.use_up(1);
    world.engine.limits.total = 1;
    kernel(|kernel| kernel.time += Duration::from_millis(1));
    let make_room = |world: &mut World| {
        world.engine.make_room(true).unwrap();
        assert!(world.engine.can_make_room(), "there is one page to be written elsewhere");
    };
    (0..3).for_each(|_| make_room(&mut world));
    assert_eq!((world.engine.dirty.len(), world.engine.slots.room_for_run()), (1, 0));
    world.engine.io.submit(None).unwrap();
    world.take(&Step::Read(0, true));
    world.engine.reap();
    make_room(&mut world);
    assert_eq!(world.engine.table.state(page), State::Staged);
    assert_eq!((world.engine.slots.taken(), world.engine.slots.room_for_run()), (2, SEGMENT_SLOTS - 2));
    world.settle();
}

/// Four pages in place, two a block, in an engine that has to make room.
fn world_short_of_room(scope: Scope) -> World {
    let mut world = World::new(Scope { pages: 4, ..scope });
    world.engine.limits = Limits { budget: 64, total: 64, soft: 1, reserve: 1, compressed: 0 };
    let addresses: Vec<u64> = world.programs[0].wants.keys().copied().collect();
    for &address in &addresses {
        world.take(&Step::Touch(0, 0, address, Some(1)));
        [Step::Turn, Step::GoOn(0, 0)].iter().for_each(|step| world.take(step));
    }
    world.engine.limits.total = 1;
    kernel(|kernel| kernel.time += Duration::from_millis(1));
    world
}

#[test]
fn each_page_that_was_read_ahead_needs_room_of_its_own() {
    let scope = Scope { pages: 2, threads: 2, ..PLAIN };
    let mut world = World::new(scope);
    scope.addresses().zip(1..).for_each(|(address, content)| world.store(address, content));
    let addresses: Vec<u64> = scope.addresses().collect();
    let pages = [0, 1].map(|at| world.engine.space.page(addresses[at]).unwrap());
    let limits = world.engine.limits;
    for page in pages {
        assert!(world.engine.start_load(page..page + 1, Purpose::Ahead));
    }
    [Step::Read(0, true), Step::Read(0, true), Step::Turn].iter().for_each(|step| world.take(step));
    // There was room for one when each of the reads was begun.
    world.engine.limits.total = world.engine.held() + 1;
    for (thread, &address) in (0..).zip(&addresses) {
        [Step::Touch(0, thread, address, None), Step::Turn].iter().for_each(|step| world.take(step));
    }
    let states = |world: &World| pages.map(|page| world.engine.table.state(page));
    assert_eq!(states(&world), [State::Resident, State::Loading]);
    world.engine.limits = limits;
    world.take(&Step::Turn);
    assert_eq!(states(&world), [State::Resident; 2]);
    world.settle();
}

#[test]
fn several_pieces_of_a_block_leave_in_one_go_only_while_room_is_short() {
    let mut world = world_short_of_room(PLAIN);
    let mut moved_by = |is_short| {
        let before = world.engine.queues.resident();
        world.engine.make_room(is_short).unwrap();
        before - world.engine.queues.resident()
    };
    assert_eq!(PIECES_IN_ONE_GO, 2);
    assert_eq!((moved_by(true), moved_by(false), moved_by(false)), (2, 0, 1));
    world.settle();
}

#[test]
fn room_for_reads_of_several_pages_is_made_beside_threads_that_always_have_something_to_do() {
    let mut world = world_short_of_room(Scope { remove: true, ..PLAIN });
    world.engine.limits.total = world.engine.held();
    assert!(!world.engine.free_landing.ask_for_wide(world.engine.limits.budget));
    assert_eq!(world.engine.free_landing.wanted(), 2);
    // A message: there is something to do.
    let last = *world.programs[0].wants.keys().last().unwrap();
    [Step::Remove(0, 0, last), Step::Turn, Step::GoOn(0, 0)].iter().for_each(|step| world.take(step));
    assert!(world.engine.leaving.is_some(), "the other block is on its way out");
    world.settle();
}

#[test]
fn pieces_in_equal_steps_are_read_and_then_placed_ahead() {
    let mut world = World::new(Scope { pages: 24, ..PLAIN });
    world.engine.limits = Limits { budget: 64, total: 64, soft: 1, reserve: 1, compressed: 0 };
    let places: Vec<u64> = (0..12).map(|piece| BASE + piece * BLOCK_BYTES).collect();
    places.iter().zip(1..).for_each(|(&place, content)| world.store(place, content));
    let states = |world: &World, state: State| {
        let pages = places.iter().map(|&place| world.engine.space.page(place).unwrap());
        pages.filter(|&page| world.engine.table.state(page) == state).count()
    };
    let mut seen = Vec::new();
    for &place in &places[..6] {
        world.take(&Step::Touch(0, 0, place, None));
        world.take(&Step::Turn);
        while world.steps().contains(&Step::Read(0, true)) {
            world.take(&Step::Read(0, true));
        }
        [Step::Turn, Step::GoOn(0, 0)].iter().for_each(|step| world.take(step));
        seen.push((states(&world, State::Resident), states(&world, State::Loading)));
    }
    assert_eq!(seen[..5], [(1, 0), (2, 0), (3, 0), (4, 4), (5, 7)], "in place, read ahead");
    assert_eq!(seen[5], (12, 0), "all others are put in place before they are wanted");
    assert_eq!(world.engine.walks.in_vain, -2, "which does not tell that they are");
    world.settle();
}

#[test]
fn who_waits_for_what_was_read_comes_before_room_that_is_not_short() {
    let mut world = World::new(Scope { pages: 3, ..PLAIN });
    world.engine.limits = Limits { budget: 64, total: 64, soft: 1, reserve: 1, compressed: 0 };
    let addresses: Vec<u64> = world.programs[0].wants.keys().copied().collect();
    world.store(addresses[0], 1);
    for &address in &addresses[1..] {
        world.take(&Step::Touch(0, 0, address, Some(1)));
        [Step::Turn, Step::GoOn(0, 0)].iter().for_each(|step| world.take(step));
    }
    let page = world.engine.space.page(addresses[0]).unwrap();
    assert!(world.engine.start_load(page..page + 1, Purpose::Ahead));
    world.take(&Step::Read(0, true));
    world.engine.limits.total = 1;
    kernel(|kernel| kernel.time += Duration::from_millis(1));
    assert_eq!(world.engine.make_room(false), Ok(true));
    assert!(world.engine.leaving.is_none(), "nothing has begun to go");
    assert_eq!(world.engine.make_room(true), Ok(true));
    assert_eq!(world.engine.queues.resident(), 1);
    world.settle();
}

#[test]
fn a_go_ends_where_an_event_waits_to_be_read() {
    let mut world = world_short_of_room(Scope { remove: true, ..PLAIN });
    let last = *world.programs[0].wants.keys().last().unwrap();
    world.take(&Step::Remove(0, 0, last));
    world.engine.make_room(true).unwrap();
    assert_eq!(world.engine.queues.resident(), 4);
    assert!(world.engine.leaving.is_some_and(|leaving| leaving.waits));
    world.engine.read_messages().unwrap();
    world.take(&Step::GoOn(0, 0));
    world.engine.make_room(false).unwrap();
    assert_eq!(world.engine.queues.resident(), 3, "the block's other page was not passed over");
    world.settle();
}

#[test]
fn what_is_said_to_be_cold_is_looked_at_a_little_at_a_time() {
    let mut world = World::new(Scope { pages: 9, ..PLAIN });
    world.engine.limits = Limits { budget: 64, total: 64, soft: 1, reserve: 1, compressed: 0 };
    for address in world.programs[0].wants.keys().copied().collect::<Vec<_>>() {
        world.take(&Step::Touch(0, 0, address, Some(1)));
        [Step::Turn, Step::GoOn(0, 0)].iter().for_each(|step| world.take(step));
    }
    let hints = world.engine.hints();
    assert!(hints.cold(0..u64::MAX) && hints.cold(BASE..BASE + PAGE));
    let mut left = || {
        world.engine.take_hints();
        hints.left()
    };
    // Two of the five blocks at a time.
    assert_eq!(left(), [BASE + 2 * BLOCK_BYTES..u64::MAX, BASE..BASE + PAGE]);
    assert_eq!(left(), [BASE + 4 * BLOCK_BYTES..u64::MAX, BASE..BASE + PAGE]);
    assert_eq!(left(), []);
    world.settle();
}

#[test]
fn long_walks() {
    let number = |name: &str, otherwise: u64| -> u64 {
        std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
    };
    let first = number("OVERDRIVE_MODEL_SEED", 1);
    for seed in first..first + number("OVERDRIVE_MODEL_WALKS", 2000) {
        let mut rng = Rng::new(seed);
        let (scattered, in_a_row) = (seed % 16 >= 8, seed % 5 == 3);
        let scope = Scope {
            pages: if in_a_row { 4 + rng.below(12) } else { 1 + rng.below(if scattered { 8 } else { 5 }) },
            in_a_row,
            threads: 1 + rng.below(3) as usize,
            failures: rng.below(4) as u32 * if seed % 7 == 6 { 10 } else { 1 },
            remove: rng.below(2) == 0,
            free: rng.below(2) == 0,
            unmap: rng.below(2) == 0,
            remap: rng.below(2) == 0,
            shift: seed % 5 < 2,
            late: seed % 3 == 1,
            pin: rng.below(3) == 0,
            execute: seed % 4 == 1,
            words: seed % 5 == 1,
            children: rng.below(4) as usize,
            helpers: seed % 4 >= 2,
            passes: 10,
            compress: [Compress::Off, Compress::Auto, Compress::Off, Compress::Zstd][seed as usize % 4],
            scattered,
            accesses: seed % 2 == 0,
            zeroes: seed % 5 == 4 || seed % 11 == 2,
            pages_in_use: seed % 4 == 0,
            seal: seed % 8 >= 4,
            parts: seed % 3 == 0,
            tight: seed % 3 == 2,
            holds: u16::from(seed % 9 == 5),
            losses: seed % 7 == 6,
        };
        // A thread's block does not move.
        let scope = Scope { words: scope.words && !scope.remap, ..scope };
        let mut world = World::new(scope);
        let _ = write!(world.story, "seed {seed}, {scope:?}");
        if in_a_row && !scope.tight && !scope.parts && !scope.seal {
            // As if written in one go, so that one read can bring several.
            scope.addresses().for_each(|address| world.store(address, (address - BASE) / PAGE % 61 * 4 + 1));
        }
        let mut behind = BASE;
        for _ in 0..400 {
            let steps = world.steps();
            // The engine and the drive get their turn as often as all else together.
            let (machine, program): (Vec<_>, Vec<_>) = steps.into_iter().partition(Step::is_of_the_machine);
            let from = if program.is_empty() || rng.below(2) == 0 { &machine } else { &program };
            // Threads that walk on, mostly.
            let on = from.iter().position(|step| matches!(step, Step::Touch(0, _, at, _) if *at == behind));
            let on = on.filter(|_| in_a_row && rng.below(4) > 0);
            let step = &from[on.unwrap_or_else(|| rng.below(from.len() as u64) as usize)];
            if let Step::Touch(0, _, address, _) = step {
                behind = scope.addresses().find(|next| next > address).unwrap_or(BASE);
            }
            world.take(step);
        }
        world.settle();
    }
}
