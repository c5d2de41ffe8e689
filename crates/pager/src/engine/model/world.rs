//! A program, its children, the kernel, a drive and the engine, one step at a time.

use super::look::pages_of;
use super::*;
use crate::engine::child::Child;
use overdrive_sys::uffd::Forks;

/// What a page must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Want {
    Exactly(u64),
    /// It is being given up: its content or zeroes.
    Perhaps(u64),
}

/// What a thread does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Doing {
    Nothing,
    /// Waits for a page.
    Waits {
        address: u64,
        write: Option<u64>,
    },
    /// Waits until its message is read.
    Tells(Told),
    /// Its message was read; now it does what it said.
    Removes(u64),
}

/// A process.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Program {
    pub(super) wants: BTreeMap<u64, Want>,
    threads: Vec<Doing>,
    /// Where threads that move memory move it to: until they are done nobody else knows where it is.
    arriving: BTreeMap<usize, (u64, u64)>,
    /// A child begins when its parent has told of it.
    pub(super) runs: bool,
    /// Pages being given up by MADV_FREE: what stands there may stay.
    lazily: BTreeSet<u64>,
}

/// What happens next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Turn,
    Read(usize, bool),
    Write(usize, bool),
    /// What is at a place on the store is other data from now on.
    Rot(u64),
    Pass,
    Adopt,
    Touch(usize, usize, u64, Option<u64>),
    GoOn(usize, usize),
    /// A thread tells of what it did before.
    Tell(usize, usize),
    Remove(usize, usize, u64),
    Free(usize, usize, u64),
    /// The kernel drops a page, or what came of it to a frame, that was given up so.
    Drop(usize, u64),
    Unmap(usize, usize, u64),
    Map(usize, u64),
    Remap(usize, usize, u64, u64),
    Fork(usize, usize),
    Exit(usize),
    Pin(u64),
    /// A page that a child shares becomes the process's own.
    Own(u64),
    /// A page may be executed from now on, or no longer.
    Execute(u64),
    /// A thread begins whose word is on a page, or that one ends.
    Live(u64),
    /// A child's helper goes on with what it was asked for.
    Help(usize),
    /// Pages that were zeroes and have been written to are looked for.
    Find,
}

impl Step {
    pub(super) fn is_of_the_machine(&self) -> bool {
        matches!(
            self,
            Self::Turn
                | Self::Read(..)
                | Self::Write(..)
                | Self::GoOn(..)
                | Self::Tell(..)
                | Self::Adopt
                | Self::Help(_)
        )
    }
}

pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) scope: Scope,
    pub(super) programs: Vec<Program>,
    failures: u32,
    passes: u32,
    /// What happened so far.
    pub(super) story: String,
}

impl World {
    pub(super) fn new(scope: Scope) -> Self {
        kernel(|kernel| {
            *kernel = Kernel::default();
            kernel.memories.push(Memory::default());
            kernel.writes_pass = scope.accesses;
        });
        let wants: BTreeMap<_, _> = scope.addresses().map(|address| (address, Want::Exactly(0))).collect();
        kernel(|kernel| kernel.memories[0].mapped = wants.keys().map(|&address| (address, false)).collect());
        let mut engine = Engine::new(Config {
            budget_bytes: 32 << 20,
            store: std::fs::File::open("/dev/null").unwrap(),
            parts: None,
            forks: Forks::Followed,
            opened: None,
            store_bytes: 4 << 20,
            managed_bytes_max: 12 * BLOCK_BYTES,
            seed: SEED,
            spin: Duration::ZERO,
            stats: Stats::default(),
            compress: scope.compress,
            seal: scope.seal.then(|| Seal::new(&Secret::new(|| [5; KEY_BYTES]).unwrap()).unwrap()),
            store_faults: None,
            writes_per_day_bytes: None,
            at_fork: None,
            notify: None,
        })
        .unwrap();
        // As small as it gets: a page in place, one in staging, a store of three segments.
        let compressed = if scope.compress == Compress::Off { 0 } else { 1 + u64::from(scope.scattered) };
        // And the area for reads of several pages; what is kept free is as much as one of them brings, or more.
        let rows = u64::from(scope.in_a_row);
        let (total, reserve) = (3 + compressed + 4 * rows, 1 + 2 * rows);
        engine.limits = Limits { budget: total, total, soft: 1, reserve, compressed };
        if scope.helpers {
            static DOOR: Door = Door::closed();
            engine.receive_at(&DOOR, 1);
        }
        if scope.zeroes {
            engine.zeroes.look_for();
        }
        engine.staging = Staging::new(3);
        engine.slots = Slots::new(4);
        if scope.parts {
            const SEGMENT: u64 = SEGMENT_SLOTS as u64 * PAGE;
            engine.slots = Slots::without_room(4);
            engine.io.parts = vec![2 * SEGMENT..4 * SEGMENT, 0..2 * SEGMENT];
        }
        if scope.tight {
            engine.slots = Slots::new(2);
        }
        if scope.holds > 0 {
            engine.slots.set_most_holds(scope.holds);
            engine.pool.set_most_holds(scope.holds);
        }
        let threads = vec![Doing::Nothing; scope.threads];
        let programs = vec![Program { wants, threads, runs: true, ..Program::default() }];
        let mut world = Self { engine, scope, programs, failures: 0, passes: 0, story: String::new() };
        if scope.tight {
            world.use_up(SEGMENT_SLOTS - 2);
        }
        world.adopt();
        world
    }

    fn adopt(&mut self) {
        let pages: Vec<u64> = kernel(|kernel| kernel.memories[0].mapped.keys().copied().collect());
        for run in pages.chunk_by(|one, next| one + PAGE == *next) {
            let adopted = self.engine.adopt(run[0]..run[run.len() - 1] + PAGE);
            assert!(matches!(adopted, Ok(()) | Err(overdrive_sys::Errno::AGAIN)), "{adopted:?}");
        }
    }

    /// Puts a page on the store, as if it had been written there long ago.
    pub(super) fn store(&mut self, address: u64, content: u64) {
        let engine = &mut self.engine;
        let page = engine.space.page(address).expect("an address under the engine");
        let slot = engine.slots.take_run(1).expect("an empty store");
        engine.slots.written(slot);
        engine.table.set_slot(page, slot);
        engine.table.set_mark(page, mark_of(page_of(content), SEED));
        engine.table.set(page, State::Stored, None);
        kernel(|kernel| kernel.store.insert(u64::from(slot) * PAGE, content));
        self.programs[0].wants.insert(address, Want::Exactly(content));
    }

    /// So many slots of the open segment are used up for nothing.
    pub(super) fn use_up(&mut self, slots: u32) {
        for _ in 0..slots {
            let slot = self.engine.slots.take_run(1).expect("an open segment");
            self.engine.slots.give_up(slot);
            self.engine.slots.written(slot);
        }
    }

    /// A number for the whole state: equal states behave alike.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        // Not what time it is, only what is due.
        let mut kernel = kernel(|kernel| kernel.clone());
        let now = std::mem::take(&mut kernel.time);
        kernel.hash(&mut hasher);
        let since = |then: Instant| now.saturating_sub(then.since_start()).min(Duration::from_millis(60));
        let until = |then: Instant| then.since_start().saturating_sub(now);
        (&self.programs, self.failures).hash(&mut hasher);
        let engine = &self.engine;
        let table = |space: &Space, table: &Table, hasher: &mut DefaultHasher| {
            for page in pages_of(space).into_iter().filter(|&page| page < table.len()) {
                (page, table.state(page) as u8, table.slot(page), table.place(page), table.mark(page))
                    .hash(hasher);
            }
        };
        table(&engine.space, &engine.table, &mut hasher);
        for child in &engine.children {
            table(&child.space, &child.table, &mut hasher);
        }
        let rest = format!(
            "{:?}{:?}{:?}{:?}{:?}{:?}{:?}{:?}{:?}{:?}{:?}{:?}",
            engine.queues,
            engine.slots,
            engine.staging,
            (&engine.waiting, &engine.parked, &engine.dirty, &engine.free_runs, &engine.runs),
            (&engine.soft, &engine.pool, &engine.io.parts, &engine.ration, &engine.helping.lending),
            (
                &engine.landed,
                &engine.free_landing,
                engine.stuck,
                engine.leaving,
                &engine.cleaning,
                engine.kept_words.addresses()
            ),
            engine
                .loads
                .iter()
                .flatten()
                .map(|load| (&load.pages, load.wanted, load.landed))
                .collect::<Vec<_>>(),
            engine
                .loads
                .iter()
                .flatten()
                .map(|load| (load.purpose, load.tries, load.child))
                .collect::<Vec<_>>(),
            engine.giving_up.blocks.iter().map(|(block, it)| (block, it.digest(until))).collect::<Vec<_>>(),
            (
                engine.unmovable.again.map(until),
                engine.write_again.map(until),
                (engine.unmovable.in_a_row, &engine.unmovable.asked_for, &engine.unmovable.asked_lately),
                engine.unmovable.alike.as_ref().map(|(range, at)| (range, since(*at))),
                engine.giving_up.unknown.iter().map(|(range, at)| (range, until(*at))).collect::<Vec<_>>(),
                (engine.zeroes.digest(), engine.giving_up.seen.map(since), engine.parting.seen.map(since)),
                engine
                    .fresh
                    .iter()
                    .map(|(block, _)| *block)
                    .filter(|&it| engine.is_fresh(it))
                    .collect::<Vec<_>>(),
            ),
            engine
                .children
                .iter()
                .map(|child| {
                    let growth = child.growth.as_ref().map(|growth| growth.digest(since));
                    let Child { space, pages, parked, changes, walks, relief, .. } = child;
                    (space, pages, parked, changes, walks, relief.digest(), growth)
                })
                .collect::<Vec<_>>(),
            (&engine.space, &engine.changes, &engine.parting.gone, &engine.helping.write),
        );
        rest.hash(&mut hasher);
        hasher.finish()
    }

    /// All that can happen now.
    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::Turn];
        kernel(|kernel| {
            for sound in [true, false] {
                if sound || self.failures < self.scope.failures {
                    steps.extend((0..kernel.reading.len()).map(|index| Step::Read(index, sound)));
                    steps.extend((0..kernel.writing.len()).map(|index| Step::Write(index, sound)));
                }
            }
            if self.scope.losses && self.failures < self.scope.failures {
                steps.extend(kernel.store.keys().map(|&place| Step::Rot(place)));
            }
            if kernel.memories[0].mapped.values().any(|registered| !registered) {
                steps.push(Step::Adopt);
            }
            if self.engine.zeroes.are_somewhere() {
                steps.push(Step::Find);
            }
            let at_it =
                kernel.helping.iter().filter(|(number, it)| !it.over && !kernel.memories[**number].dead);
            steps.extend(at_it.map(|(&number, _)| Step::Help(number)));
            steps.extend(kernel.lazy_frames.iter().map(|&frame| Step::Drop(0, frame)));
            for (number, memory) in kernel.memories.iter().enumerate() {
                let dropped = memory.lazy.iter().filter(|page| !memory.pinned.contains(page));
                steps.extend(dropped.map(|&page| Step::Drop(number, page)));
                steps.extend((0..memory.late.len()).map(|index| Step::Tell(number, index)));
            }
        });
        let removing = |program: &Program| {
            program.threads.iter().any(|it| matches!(it, Doing::Removes(_) | Doing::Tells(Told::Remove(_))))
        };
        if self.passes < self.scope.passes && !self.programs.iter().any(removing) {
            steps.push(Step::Pass);
        }
        for (number, program) in self.programs.iter().enumerate().filter(|(_, program)| program.runs) {
            for (thread, doing) in program.threads.iter().enumerate() {
                self.steps_of(number, thread, doing, &mut steps);
            }
            if number > 0 && program.threads.iter().all(|doing| *doing == Doing::Nothing) {
                steps.push(Step::Exit(number));
            }
        }
        steps
    }

    fn steps_of(&self, number: usize, thread: usize, doing: &Doing, steps: &mut Vec<Step>) {
        let program = &self.programs[number];
        match doing {
            Doing::Nothing => {}
            Doing::Removes(_) => return steps.push(Step::GoOn(number, thread)),
            Doing::Waits { .. } => {
                if kernel(|kernel| !kernel.memories[number].waiting.contains_key(&thread)) {
                    steps.push(Step::GoOn(number, thread));
                }
                return;
            }
            Doing::Tells(told) => {
                let is_unread = |memory: &Memory| memory.events.contains(told) || memory.late.contains(told);
                if kernel(|kernel| !is_unread(&kernel.memories[number])) {
                    steps.push(Step::GoOn(number, thread));
                }
                return;
            }
        }
        // Of threads that have nothing to do, all are alike.
        if program.threads[..thread].contains(&Doing::Nothing) {
            return;
        }
        for (&address, want) in &program.wants {
            let (Want::Exactly(content) | Want::Perhaps(content)) = *want;
            if program.threads.iter().any(|doing| doing.is_about(address)) || program.is_arriving(address) {
                continue;
            }
            steps.push(Step::Touch(number, thread, address, None));
            let name = (address - BASE) / PAGE % 61 * 4;
            let is_of_a_thread = self.scope.words && address == BASE;
            if is_of_a_thread {
                // Its block is never zeroes, and nobody gives it up.
                steps.push(Step::Touch(number, thread, address, Some(name + content % 3 + 1)));
                let stands = |kernel: &mut Kernel| kernel.memories[0].standing.get(&BASE).copied();
                if number == 0 && kernel(stands).is_some_and(|it| it != Standing::Content(0)) {
                    steps.push(Step::Live(BASE));
                }
                continue;
            }
            steps.push(Step::Touch(number, thread, address, Some(name + (content + 1) % 4)));
            if self.scope.remove {
                steps.push(Step::Remove(number, thread, address));
            }
            if self.scope.free {
                steps.push(Step::Free(number, thread, address));
            }
            // Also where another thread waits: it must not wait for ever for what is no longer there.
            if self.scope.unmap && (number == 0 || self.scope.helpers) {
                steps.push(Step::Unmap(number, thread, address));
            }
            if number > 0 {
                continue;
            }
            if self.scope.pin {
                steps.push(Step::Pin(address));
            }
            if self.scope.execute {
                steps.push(Step::Execute(address));
            }
            if self.scope.helpers && kernel(|kernel| kernel.memories[0].shared.contains(&address)) {
                steps.push(Step::Own(address));
            }
        }
        self.steps_of_memory(number, thread, steps);
    }

    fn steps_of_memory(&self, number: usize, thread: usize, steps: &mut Vec<Step>) {
        let program = &self.programs[number];
        let free = |start: u64| program.wants.range(start..start + BLOCK_BYTES).next().is_none();
        let is_free_to = |doing: &Doing| match doing {
            Doing::Nothing | Doing::Waits { .. } => true,
            Doing::Tells(Told::Unmap(_) | Told::Remap { .. }) => self.scope.late,
            _ => false,
        };
        if self.scope.remap && program.threads.iter().all(is_free_to) {
            let blocks: BTreeSet<u64> =
                program.wants.keys().map(|address| address & !(BLOCK_BYTES - 1)).collect();
            for block in blocks {
                let from = *program.wants.range(block..).next().expect("a page in its block").0;
                if program.is_arriving(from) {
                    continue;
                }
                let target = (0..6).map(|block| BASE + block * BLOCK_BYTES).find(|&to| free(to));
                let offset = match from - block {
                    0 if self.scope.shift => PAGE,
                    offset if self.scope.shift => offset - PAGE,
                    offset => offset,
                };
                steps.extend(target.map(|to| Step::Remap(number, thread, from, to + offset)));
            }
        }
        if self.scope.unmap && (number == 0 || self.scope.helpers) {
            let missing = self.scope.addresses().find(|address| !program.wants.contains_key(address));
            steps.extend(missing.map(|address| Step::Map(number, address)));
        }
        // A fork beside changes that are told late is not told apart from one before or after them.
        let is_late = kernel(|kernel| !kernel.memories[number].late.is_empty());
        if self.programs.len() <= self.scope.children && !is_late {
            steps.push(Step::Fork(number, thread));
        }
    }

    /// Does one step and looks whether all is well.
    pub(super) fn take(&mut self, step: &Step) {
        let _ = write!(self.story, "\n{step:?}");
        match *step {
            Step::Turn => {
                kernel(|kernel| kernel.time += Duration::from_millis(1));
                if self.scope.pages_in_use {
                    self.engine.accesses.believe_of_pages();
                }
                self.engine.turn().unwrap();
                let is_away = |kernel: &Kernel| {
                    let memory = &kernel.memories[0];
                    memory.changing == 0
                        && kernel.thread_pages.iter().any(|page| !memory.standing.contains_key(page))
                };
                assert!(!kernel(|kernel| is_away(kernel)), "a living thread's word is away\n{}", self.story);
            }
            Step::Read(index, sound) => kernel(|kernel| kernel.end_read(index, sound)),
            Step::Write(index, sound) => kernel(|kernel| kernel.end_write(index, sound)),
            Step::Rot(place) => kernel(|kernel| {
                kernel.store.insert(place, u64::MAX);
            }),
            // What was given up is left alone for two seconds.
            Step::Pass if self.scope.free => kernel(|kernel| kernel.time += Duration::from_millis(2100)),
            Step::Pass => kernel(|kernel| kernel.time += Duration::from_millis(300)),
            Step::Adopt => self.adopt(),
            Step::Find => self.engine.find_all_written_zeroes(),
            Step::Help(number) => kernel(|kernel| kernel.help(number)),
            Step::Touch(number, thread, address, write) => self.touch(number, thread, address, write),
            Step::GoOn(number, thread) => self.go_on(number, thread),
            Step::Tell(number, index) => kernel(|kernel| kernel.memories[number].tell_late(index)),
            Step::Remove(number, thread, address) => self.remove(number, thread, address),
            Step::Free(number, thread, address) => {
                self.programs[number].lazily.insert(address);
                self.remove(number, thread, address);
            }
            Step::Drop(_, frame @ FRAMES..) => kernel(|kernel| kernel.drop_frame(frame)),
            Step::Drop(number, address) => kernel(|kernel| kernel.memories[number].clear(address)),
            Step::Unmap(number, thread, address) => self.unmap(number, thread, address),
            Step::Map(number, address) => {
                self.programs[number].wants.insert(address, Want::Exactly(0));
                kernel(|kernel| kernel.memories[number].mapped.insert(address, false));
            }
            Step::Remap(number, thread, from, to) => self.remap(number, thread, from, to),
            Step::Fork(number, thread) => self.fork(number, thread),
            Step::Exit(number) => {
                self.programs[number] = Program::default();
                kernel(|kernel| {
                    kernel.memories[number] = Memory::default();
                    kernel.memories[number].dead = true;
                    kernel.calling.remove(&number);
                    kernel.helped.push_back(number);
                });
            }
            Step::Live(address) => kernel(|kernel| {
                if !kernel.thread_pages.remove(&address) {
                    kernel.thread_pages.insert(address);
                }
            }),
            Step::Execute(address) => kernel(|kernel| {
                let executable = &mut kernel.memories[0].executable;
                if !executable.remove(&address) {
                    executable.insert(address);
                }
            }),
            Step::Own(address) => {
                kernel(|kernel| kernel.memories[0].shared.remove(&address));
                self.engine.children.iter_mut().for_each(|child| child.look_first(address, 1));
            }
            Step::Pin(address) => kernel(|kernel| {
                let memory = &mut kernel.memories[0];
                if !memory.pinned.remove(&address) && memory.standing.contains_key(&address) {
                    memory.pinned.insert(address);
                }
            }),
        }
        self.passes += u32::from(*step == Step::Pass);
        self.failures +=
            u32::from(matches!(step, Step::Read(_, false) | Step::Write(_, false) | Step::Rot(_)));
        if let Err(what) = self.look() {
            panic!("{what}\n{}", self.story);
        }
    }

    fn remove(&mut self, number: usize, thread: usize, address: u64) {
        self.programs[number].give_up(address);
        if kernel(|kernel| kernel.memories[number].mapped[&address]) {
            self.tell(number, thread, Told::Remove(address..address + PAGE));
        } else {
            // The kernel registers memory before or after such a call, not meanwhile.
            self.programs[number].threads[thread] = Doing::Removes(address);
            self.go_on(number, thread);
        }
    }

    fn tell(&mut self, number: usize, thread: usize, told: Told) {
        self.programs[number].threads[thread] = Doing::Tells(told.clone());
        let is_done = matches!(told, Told::Unmap(_) | Told::Remap { .. });
        kernel(|kernel| match &mut kernel.memories[number] {
            memory if self.scope.late && is_done => memory.be_late(told),
            memory => memory.tell(told),
        });
    }

    fn touch(&mut self, number: usize, thread: usize, address: u64, write: Option<u64>) {
        let program = &mut self.programs[number];
        program.threads[thread] = Doing::Nothing;
        let Some(&wanted) = program.wants.get(&address) else { return };
        let standing = kernel(|kernel| {
            let memory = &mut kernel.memories[number];
            if memory.mapped[&address] || memory.standing.contains_key(&address) {
                memory.standing.get(&address).copied()
            } else {
                Some(*memory.standing.entry(address).or_insert(Standing::Content(0)))
            }
        });
        let Some(standing) = standing else {
            program.threads[thread] = Doing::Waits { address, write };
            return kernel(|kernel| {
                kernel.memories[number].waiting.insert(thread, address);
                kernel.memories[number].tell(Told::Fault { address, write: write.is_some() });
            });
        };
        let is_lost = standing == Standing::Poison && self.scope.may_lose(number);
        assert!(
            is_lost || wanted.allows(standing),
            "{address:x}: {wanted:?} wanted, {standing:?}\n{}",
            self.story
        );
        if let Standing::Content(content) = standing
            && !program.threads.iter().any(|doing| doing.is_about(address))
            && !kernel(|kernel| kernel.memories[number].lazy.contains(&address))
        {
            program.wants.insert(address, Want::Exactly(content));
        }
        if let Some(content) = write.filter(|_| !is_lost) {
            program.wants.insert(address, Want::Exactly(content));
            kernel(|kernel| {
                let memory = &mut kernel.memories[number];
                memory.standing.insert(address, Standing::Content(content));
                memory.shared.remove(&address);
                memory.lazy.remove(&address);
                memory.protected.remove(&address);
            });
        }
    }

    fn go_on(&mut self, number: usize, thread: usize) {
        match std::mem::replace(&mut self.programs[number].threads[thread], Doing::Nothing) {
            Doing::Nothing => {}
            Doing::Waits { address, write } => self.touch(number, thread, address, write),
            Doing::Removes(address) if self.programs[number].lazily.remove(&address) => {
                self.programs[number].give_up(address);
                kernel(|kernel| kernel.memories[number].free(address));
            }
            Doing::Removes(address) => {
                // What another thread wrote meanwhile may count as written later.
                if let Some(want) = self.programs[number].wants.get_mut(&address)
                    && let Want::Perhaps(_) = want
                {
                    *want = Want::Exactly(0);
                }
                self.programs[number].give_up(address);
                kernel(|kernel| kernel.memories[number].clear(address));
            }
            Doing::Tells(told) => {
                let goes_on = kernel(|kernel| kernel.memories[number].goes_on(&told));
                match told {
                    Told::Remove(range) => {
                        self.programs[number].threads[thread] = Doing::Removes(range.start);
                    }
                    Told::Remap { from, length, .. } if goes_on => {
                        // It was counted when the memory moved.
                        kernel(|kernel| kernel.memories[number].changing -= 1);
                        self.tell(number, thread, Told::Unmap(from..from + length));
                    }
                    Told::Remap { from, length, .. } => {
                        self.programs[number].threads[thread] =
                            Doing::Tells(Told::Unmap(from..from + length));
                    }
                    Told::Fork(child) => self.programs[child].runs = true,
                    _ => drop(self.programs[number].arriving.remove(&thread)),
                }
            }
        }
    }

    fn unmap(&mut self, number: usize, thread: usize, address: u64) {
        self.programs[number].wants.remove(&address);
        let registered = kernel(|kernel| {
            let memory = &mut kernel.memories[number];
            memory.clear(address);
            memory.executable.remove(&address);
            memory.mapped.remove(&address)
        });
        if registered == Some(true) {
            self.tell(number, thread, Told::Unmap(address..address + PAGE));
        }
    }

    /// The pages of a block that are in one piece to other addresses, with what stands there.
    fn remap(&mut self, number: usize, thread: usize, from: u64, to: u64) {
        let program = &mut self.programs[number];
        let (length, registered) = kernel(|kernel| {
            let mapped = &kernel.memories[number].mapped;
            let one = |page: &u64| mapped.get(&(from + page * PAGE)) == mapped.get(&from);
            ((0..u64::from(BLOCK_PAGES)).take_while(one).count() as u64 * PAGE, mapped[&from])
        });
        let there = |address: u64| {
            if (from..from + length).contains(&address) { address - from + to } else { address }
        };
        program.wants = program.wants.iter().map(|(&address, &want)| (there(address), want)).collect();
        kernel(|kernel| {
            let memory = &mut kernel.memories[number];
            memory.mapped = memory.mapped.iter().map(|(&address, &it)| (there(address), it)).collect();
            memory.standing = memory.standing.iter().map(|(&address, &it)| (there(address), it)).collect();
            memory.pinned = memory.pinned.iter().map(|&address| there(address)).collect();
            memory.shared = memory.shared.iter().map(|&address| there(address)).collect();
            memory.executable = memory.executable.iter().map(|&address| there(address)).collect();
            memory.lazy = memory.lazy.iter().map(|&address| there(address)).collect();
        });
        if registered {
            self.programs[number].arriving.insert(thread, (to, to + length));
            self.tell(number, thread, Told::Remap { from, to, length });
            // The message about the old addresses follows; until then the memory counts as changing too.
            kernel(|kernel| kernel.memories[number].changing += 1);
        }
    }

    fn fork(&mut self, number: usize, thread: usize) {
        let child = kernel(|kernel| {
            let parent = &mut kernel.memories[number];
            parent.shared = parent.standing.keys().copied().collect();
            let mut child = parent.clone();
            child.be_new();
            child.waiting.clear();
            child.pinned.clear();
            kernel.memories.push(child);
            let number = kernel.memories.len() - 1;
            kernel.calling.extend(self.scope.helpers.then_some(number));
            number
        });
        let wants = self.programs[number].wants.clone();
        let told = kernel(|kernel| kernel.memories[number].mapped.values().any(|&registered| registered));
        let threads = vec![Doing::Nothing; 1 + usize::from(self.scope.late)];
        self.programs.push(Program { wants, threads, runs: !told, ..Program::default() });
        if told {
            self.tell(number, thread, Told::Fork(child));
        }
    }

    /// Lets everything come to its end: nobody may wait for ever, and each page must be what it must be.
    pub(super) fn settle(mut self) {
        self.calm_down();
        for number in 0..self.programs.len() {
            for address in self.programs[number].wants.keys().copied().collect::<Vec<_>>() {
                self.take(&Step::Touch(number, 0, address, None));
                self.calm_down();
            }
        }
    }

    fn calm_down(&mut self) {
        let _ = write!(self.story, "\nin the end:");
        let mut quiet = 0;
        for round in 0..400 {
            // The drive's in their turn; of threads each that can go on, before what it waited for goes again.
            let ends = |step: &Step| matches!(step, Step::Read(_, true) | Step::Write(_, true));
            let goes_on = |step: &Step| matches!(step, Step::GoOn(..) | Step::Tell(..) | Step::Help(_));
            let ended: Vec<_> = self.steps().into_iter().filter(ends).collect();
            let going: Vec<_> = self.steps().into_iter().filter(goes_on).collect();
            // Helpers look again and again.
            let looks = |step: &Step| matches!(step, Step::Help(number) if kernel(|it| !it.helping[number].stretches.is_empty()));
            quiet = if ended.is_empty() && going.iter().all(looks) { quiet + 1 } else { 0 };
            if let Some(step) = ended.get(round % ended.len().max(1)) {
                self.take(step);
            }
            for step in going {
                if self.steps().contains(&step) {
                    self.take(&step);
                }
            }
            self.take(&Step::Turn);
            kernel(|kernel| kernel.time += Duration::from_millis(6));
            let idle = |program: &Program| program.threads.iter().all(|doing| *doing == Doing::Nothing);
            if quiet > 2 && self.programs.iter().all(idle) {
                return;
            }
        }
        panic!("somebody waits for ever: {:?}\n{}", self.programs, self.story);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if self.scope.holds == 0 && !self.scope.losses {
            assert_eq!(self.engine.stats.get(Stat::Lost), 0, "{}", self.story);
        }
    }
}

impl Want {
    pub(super) fn allows(self, standing: Standing) -> bool {
        match self {
            Self::Exactly(content) => standing == Standing::Content(content),
            Self::Perhaps(content) => [Standing::Content(content), Standing::Content(0)].contains(&standing),
        }
    }
}

impl Doing {
    fn is_about(&self, address: u64) -> bool {
        match self {
            Self::Nothing => false,
            // Two threads may wait for one page.
            Self::Waits { .. } => false,
            Self::Tells(Told::Remove(range)) => range.contains(&address),
            Self::Tells(_) => false,
            Self::Removes(other) => *other == address,
        }
    }
}

impl Program {
    fn is_arriving(&self, address: u64) -> bool {
        self.arriving.values().any(|&(start, end)| (start..end).contains(&address))
    }

    fn give_up(&mut self, address: u64) {
        if let Some(Want::Exactly(content)) = self.wants.get(&address).copied() {
            self.wants.insert(address, Want::Perhaps(content));
        }
    }
}

impl Memory {
    fn clear(&mut self, address: u64) {
        self.standing.remove(&address);
        self.pinned.remove(&address);
        self.shared.remove(&address);
        self.lazy.remove(&address);
    }

    /// What stands there may go from now on; the kernel passes over what is in use elsewhere too.
    fn free(&mut self, address: u64) {
        let stands = self.standing.get(&address).is_some_and(|it| *it != Standing::Poison);
        if stands && !self.shared.contains(&address) && !self.pinned.contains(&address) {
            self.lazy.insert(address);
        }
    }
}
