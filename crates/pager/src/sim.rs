//! The kernel as the engine sees it, made of plain data: memory of a process and its children, userfaultfd
//! messages, a drive. It does nothing by itself: a test says when a thread goes on, which read or write
//! ends and how.
//!
//! Contents are numbers; a page that holds one has it in its first eight bytes. 0 is a page of zeroes. Every
//! fourth does not compress, two of them by half.

use crate::engine::HELPERS;
use crate::platform::Door;
use crate::ranges::overlap;
use crate::space::pages_where;
use crate::table::mark_of;
use overdrive_sys::Errno;
use overdrive_sys::helper::{Answer, Stretch, Taken};
use overdrive_sys::mappings::Anonymous;
pub(crate) use overdrive_sys::page_io::Done;

use overdrive_sys::parts::Parts;
pub(crate) use overdrive_sys::thread_words::ThreadWord;
use overdrive_sys::uffd::Forks;
pub(crate) use overdrive_sys::uffd::UserfaultError;
use overdrive_sys::uffd::{Offers, PAGE};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::ops::{Add, Range};
use std::time::Duration;

/// What marks are made with.
pub(crate) const SEED: u64 = 7;

/// Where staging frames are, and where they are thrown away.
pub(crate) const FRAMES: u64 = 1 << 40;

thread_local! {
    static KERNEL: RefCell<Kernel> = RefCell::new(Kernel::default());
    static PAGES: RefCell<BTreeMap<u64, &'static [u8]>> = const { RefCell::new(BTreeMap::new()) };
}

/// Looks at the kernel or changes it.
pub(crate) fn kernel<T>(work: impl FnOnce(&mut Kernel) -> T) -> T {
    KERNEL.with_borrow_mut(work)
}

/// A page that holds a number.
pub(crate) fn page_of(content: u64) -> &'static [u8] {
    PAGES.with_borrow_mut(|pages| {
        *pages.entry(content).or_insert_with(|| {
            let mut page = vec![0; PAGE as usize];
            // Hardly anything is left of it, two fit into a page, or it does not compress.
            let random = [0, 1900, 1900, PAGE as usize][content as usize % 4];
            let mut rng = overdrive_base::rng::Rng::new(content);
            page[..random].fill_with(|| rng.below(256) as u8);
            page[..8].copy_from_slice(&content.to_ne_bytes());
            &*page.leak()
        })
    })
}

/// Makes a number known for what else a page holds: from now on [`page_of`] gives it back.
fn note_page(page: &[u8]) -> u64 {
    let content = content_of(page);
    PAGES.with_borrow_mut(|pages| {
        let known = pages.entry(content).or_insert_with(|| &*page.to_vec().leak());
        assert_eq!(*known, page, "two contents with one number");
    });
    content
}

pub(crate) fn content_of(page: &[u8]) -> u64 {
    u64::from_ne_bytes(page[..8].try_into().expect("eight bytes"))
}

/// The time, which stands still until a test says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Self {
        Self(kernel(|kernel| kernel.time))
    }

    pub(crate) fn since_start(self) -> Duration {
        self.0
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Self::now().duration_since(*self)
    }

    pub(crate) fn duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, more: Duration) -> Self {
        Self(self.0 + more)
    }
}

/// The engine waits: of the threads that have yet to tell of what they did, the first does, and those whose
/// messages were read go on.
pub(crate) fn pause(_: Duration) {
    kernel(|kernel| {
        for memory in &mut kernel.memories {
            memory.tell_late(0);
            memory.hurry();
        }
    });
}

/// What stands at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Standing {
    Content(u64),
    /// Whoever touches it gets SIGBUS.
    Poison,
}

/// A message not read yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Told {
    Fault { address: u64, write: bool },
    Remove(Range<u64>),
    Unmap(Range<u64>),
    Remap { from: u64, to: u64, length: u64 },
    Fork(usize),
}

/// The memory of one process.
#[derive(Debug, Clone, Default, Hash)]
pub(crate) struct Memory {
    pub(crate) standing: BTreeMap<u64, Standing>,
    /// Pages that are mapped, and whether their faults are handed over.
    pub(crate) mapped: BTreeMap<u64, bool>,
    /// Pages that cannot be moved: pinned, or shared with another process.
    pub(crate) pinned: BTreeSet<u64>,
    pub(crate) shared: BTreeSet<u64>,
    /// Pages that may be executed.
    pub(crate) executable: BTreeSet<u64>,
    /// Given up by MADV_FREE: pages that may be dropped until somebody writes to them.
    pub(crate) lazy: BTreeSet<u64>,
    /// Pages whose next write is told of.
    pub(crate) protected: BTreeSet<u64>,
    /// Threads whose call is being told: nothing is put in place or taken meanwhile.
    pub(crate) changing: u32,
    pub(crate) faults: VecDeque<Told>,
    pub(crate) events: VecDeque<Told>,
    /// What was done and is yet to be told.
    pub(crate) late: Vec<Told>,
    /// What was read, and whose threads have not gone on; those that did so while the engine waited.
    read: Vec<Told>,
    hurried: Vec<Told>,
    /// Threads that wait for a page, and where.
    pub(crate) waiting: BTreeMap<usize, u64>,
    pub(crate) dead: bool,
    /// The reader was not told yet that there is something to read.
    pub(crate) untold: bool,
}

impl Memory {
    pub(crate) fn tell(&mut self, message: Told) {
        self.untold = true;
        match message {
            Told::Fault { .. } => self.faults.push_back(message),
            _ => {
                self.changing += 1;
                self.events.push_back(message);
            }
        }
    }

    /// As [`Memory::tell`], but the thread is put off its processor before it comes to that.
    pub(crate) fn be_late(&mut self, message: Told) {
        self.changing += 1;
        self.late.push(message);
    }

    /// Of what was told before a fork a child's memory knows nothing.
    pub(crate) fn be_new(&mut self) {
        (self.changing, self.faults, self.events) = (0, VecDeque::new(), VecDeque::new());
        (self.late, self.read, self.hurried) = (Vec::new(), Vec::new(), Vec::new());
    }

    pub(crate) fn tell_late(&mut self, index: usize) {
        if index < self.late.len() {
            self.untold = true;
            self.events.push_back(self.late.remove(index));
        }
    }

    /// Threads whose messages were read go on as far as the kernel is concerned.
    fn hurry(&mut self) {
        for told in std::mem::take(&mut self.read) {
            if let Told::Remap { from, length, .. } = told {
                // It was counted when the memory moved.
                self.untold = true;
                self.events.push_back(Told::Unmap(from..from + length));
            }
            self.changing -= 1;
            self.hurried.push(told);
        }
    }

    /// A thread whose message was read goes on. False when it did so already, as far as the kernel is
    /// concerned.
    pub(crate) fn goes_on(&mut self, told: &Told) -> bool {
        if let Some(index) = self.hurried.iter().position(|hurried| hurried == told) {
            self.hurried.remove(index);
            return false;
        }
        let index = self.read.iter().position(|read| read == told).expect("a message that was read");
        self.read.remove(index);
        self.changing -= 1;
        true
    }

    fn put(&mut self, address: u64, standing: Standing) -> Result<(), Errno> {
        if self.dead {
            return Err(Errno::SRCH);
        }
        if self.changing > 0 {
            return Err(Errno::AGAIN);
        }
        if self.mapped.get(&address) != Some(&true) {
            return Err(Errno::NOENT);
        }
        if self.standing.contains_key(&address) {
            return Err(Errno::EXIST);
        }
        self.standing.insert(address, standing);
        self.protected.remove(&address);
        Ok(())
    }

    fn wake(&mut self, range: Range<u64>) {
        self.faults.retain(|told| !matches!(told, Told::Fault { address, .. } if range.contains(address)));
        self.waiting.retain(|_, address| !range.contains(address));
    }
}

/// A write on its way: where to, from which frames (none for a copy of them), and what stood there when it
/// began.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Writing {
    pub(crate) token: u32,
    pub(crate) offset: u64,
    pub(crate) frames: Vec<u64>,
    pub(crate) contents: Vec<u64>,
}

/// A read on its way.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Reading {
    pub(crate) slot: u32,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

/// What a helper is asked for and what it has done.
#[derive(Debug, Clone, Default, Hash)]
pub(crate) struct Helping {
    /// Addresses, and marks of those that are elsewhere too.
    pub(crate) pages: Vec<(u64, Option<u64>)>,
    /// Stretches to look at, and which pages were seen.
    pub(crate) stretches: Vec<Stretch>,
    saw: Vec<u64>,
    pub(crate) next: usize,
    took: u64,
    unchanged: u64,
    broke_off: bool,
    changed: Vec<(u32, u64)>,
    /// What it has taken, by the address.
    pub(crate) has: BTreeMap<u64, u64>,
    pub(crate) over: bool,
}

/// Everything.
#[derive(Debug, Clone, Default, Hash)]
pub(crate) struct Kernel {
    pub(crate) time: Duration,
    /// Whether it can tell which pages were written to.
    pub(crate) writes_pass: bool,
    /// The process, then its children in the order of their birth.
    pub(crate) memories: Vec<Memory>,
    /// What stands in staging frames.
    pub(crate) frames: BTreeMap<u64, u64>,
    /// Frames whose page came as one that may be dropped, as [`Memory::lazy`].
    pub(crate) lazy_frames: BTreeSet<u64>,
    /// Frames to which pages can be moved that may be executed, and no others.
    pub(crate) executable_frames: BTreeSet<u64>,
    pub(crate) store: BTreeMap<u64, u64>,
    pub(crate) reading: Vec<Reading>,
    pub(crate) writing: Vec<Writing>,
    pub(crate) done: VecDeque<(u32, bool, i32)>,
    pub(crate) watched: BTreeMap<u32, usize>,
    /// What helpers are at, by the memory.
    pub(crate) helping: BTreeMap<usize, Helping>,
    /// Children whose helper has called, and those whose helper has something to tell.
    pub(crate) calling: BTreeSet<usize>,
    pub(crate) helped: VecDeque<usize>,
    pub(crate) landing: BTreeMap<u32, Vec<u64>>,
    /// Pages of the process that a living thread's word is on.
    pub(crate) thread_pages: BTreeSet<u64>,
}

impl Kernel {
    /// A read ends; `sound` or with EIO.
    pub(crate) fn end_read(&mut self, index: usize, sound: bool) {
        let read = self.reading.remove(index);
        let pages = u64::from(read.length) / PAGE;
        let slots = (0..pages).map(|page| read.offset + page * PAGE);
        let brought = slots.map(|slot| self.store.get(&slot).copied().unwrap_or(u64::MAX)).collect();
        self.landing.insert(read.slot, brought);
        self.done.push_back((read.slot, false, if sound { read.length as i32 } else { -5 }));
    }

    /// The kernel takes a page back from a frame because nobody has written to it since it was given up.
    pub(crate) fn drop_frame(&mut self, address: u64) {
        self.lazy_frames.remove(&address);
        self.frames.remove(&address);
    }

    /// A write ends; `sound`, or with half of it done.
    pub(crate) fn end_write(&mut self, index: usize, sound: bool) {
        let write = self.writing.remove(index);
        let now: Vec<_> = write.frames.iter().filter_map(|frame| self.frames.get(frame).copied()).collect();
        if !write.frames.is_empty() {
            assert_eq!(now, write.contents, "a frame was changed or given back while it was written");
        }
        let whole = write.contents.len();
        let count = if sound { whole } else { whole / 2 };
        for (index, &content) in write.contents.iter().enumerate() {
            // What was not written leaves nothing of worth behind.
            self.store
                .insert(write.offset + index as u64 * PAGE, if index < count { content } else { u64::MAX });
        }
        self.done.push_back((write.token, true, count as i32 * PAGE as i32));
    }
}

impl Kernel {
    /// A helper tries the next of its pages, or tells what it has done.
    pub(crate) fn help(&mut self, number: usize) {
        let (parents, rest) = self.memories.split_at_mut(1);
        let (parents, memory) = (&parents[0].standing, &mut rest[number - 1]);
        let Some(helping) = self.helping.get_mut(&number) else { return };
        if let Some(&Stretch { address, pages, copied }) = helping.stretches.get(helping.next) {
            helping.next += 1;
            let is_own = |page: u64| !parents.contains_key(&page) || !memory.shared.contains(&page);
            let own = |page: u64| memory.standing.contains_key(&page) && (copied || is_own(page));
            let saw = pages_where(pages, |page| own(address + u64::from(page) * PAGE));
            for page in crate::space::bits_of(saw) {
                memory.shared.remove(&(address + u64::from(page) * PAGE));
            }
            helping.saw.push(saw);
            return;
        }
        let Some(&(address, mark)) = helping.pages.get(helping.next).filter(|_| !helping.broke_off) else {
            helping.over = true;
            self.helped.push_back(number);
            return;
        };
        let index = helping.next;
        helping.next += 1;
        if memory.changing > 0 {
            helping.broke_off = true;
            return;
        }
        let stays = memory.pinned.contains(&address) || memory.shared.contains(&address);
        let Some(&Standing::Content(mut content)) = memory.standing.get(&address) else { return };
        if stays || memory.mapped.get(&address) != Some(&true) {
            return;
        }
        memory.standing.remove(&address);
        if memory.lazy.remove(&address) && content % 2 == 1 {
            content = 0;
        }
        helping.took |= 1 << index;
        helping.has.insert(address, content);
        if Some(mark_of(page_of(content), SEED)) == mark {
            helping.unchanged |= 1 << index;
        } else {
            helping.changed.push((index as u32, content));
        }
    }
}

/// As [`overdrive_sys::helper::Callers`]: helpers of children belong to them from the start.
#[derive(Debug)]
pub(crate) struct Callers;

impl Callers {
    #[allow(clippy::unnecessary_wraps, reason = "as the real one")]
    pub(crate) fn at(_: &Door, seed: u64, _program: u32) -> Result<Self, Errno> {
        assert_eq!(seed, SEED);
        Ok(Self)
    }

    #[allow(clippy::unused_self, reason = "as the real one")]
    pub(crate) fn are_waiting(&self) -> bool {
        true
    }

    #[allow(clippy::unused_self, reason = "as the real one")]
    pub(crate) fn bring(&mut self, children: &[(u32, &Userfault)]) -> Vec<(u32, Helper)> {
        let calls = |memory: usize| kernel(|kernel| kernel.calling.remove(&memory));
        let those = children.iter().filter(|(_, userfault)| calls(userfault.memory));
        those.map(|&(child, userfault)| (child, Helper::of(userfault.memory))).collect()
    }
}

impl AsFd for Callers {
    fn as_fd(&self) -> usize {
        0
    }
}

/// As [`overdrive_sys::helper::Helper`].
#[derive(Debug)]
pub(crate) struct Helper {
    memory: usize,
    mappings: Mappings,
    page_map: PageMap,
}

impl Helper {
    fn of(memory: usize) -> Self {
        Self { memory, mappings: Mappings { memory }, page_map: PageMap { memory } }
    }

    /// Not modelled: there is none.
    #[allow(clippy::unused_self, reason = "as the real one")]
    pub(crate) fn own_memory(&self) -> Range<u64> {
        FRAMES..FRAMES
    }

    #[allow(clippy::unnecessary_wraps, reason = "as the real one")]
    pub(crate) fn mappings(&self) -> Option<&Mappings> {
        Some(&self.mappings)
    }

    #[allow(clippy::unnecessary_wraps, reason = "as the real one")]
    pub(crate) fn page_map(&self) -> Option<&PageMap> {
        Some(&self.page_map)
    }

    pub(crate) fn ask(&mut self, pages: &[(u64, Option<u64>)]) -> Result<(), Errno> {
        kernel(|kernel| {
            if kernel.memories[self.memory].dead {
                return Err(Errno::PIPE);
            }
            let helping = Helping { pages: pages.to_vec(), ..Helping::default() };
            assert!(kernel.helping.insert(self.memory, helping).is_none(), "it is at something else");
            Ok(())
        })
    }

    pub(crate) fn look(&mut self, stretches: &[Stretch]) -> Result<(), Errno> {
        self.ask(&[])?;
        kernel(|kernel| {
            kernel.helping.entry(self.memory).and_modify(|it| it.stretches = stretches.to_vec());
        });
        Ok(())
    }

    pub(crate) fn answer(&mut self, mut changed: impl FnMut(u32, &[u8])) -> Result<Option<Answer>, Errno> {
        let helping = kernel(|kernel| {
            if kernel.memories[self.memory].dead {
                return Err(Errno::PIPE);
            }
            let is_over = kernel.helping.get(&self.memory).is_some_and(|helping| helping.over);
            Ok(if is_over { kernel.helping.remove(&self.memory) } else { None })
        })?;
        Ok(helping.map(|helping| {
            helping.changed.iter().for_each(|&(index, content)| changed(index, page_of(content)));
            let Helping { took, unchanged, broke_off, saw, stretches, .. } = helping;
            let taken = Taken { took, unchanged, broke_off };
            if stretches.is_empty() { Answer::Took(taken) } else { Answer::Saw(saw) }
        }))
    }
}

impl AsFd for Helper {
    fn as_fd(&self) -> usize {
        self.memory
    }
}

/// Names a child's memory.
#[derive(Debug)]
pub(crate) struct Descriptor(usize);

/// As [`overdrive_sys::uffd::Message`].
#[derive(Debug)]
pub(crate) enum Message {
    Fault { address: u64, offset: u64, write: bool, protected: bool, thread: u32 },
    Fork(Descriptor),
    Remap { from: u64, to: u64, length: u64 },
    Remove(Range<u64>),
    Unmap(Range<u64>),
}

/// Stands for the trait of the standard library.
pub(crate) trait AsFd {
    fn as_fd(&self) -> usize;
}

/// As [`overdrive_sys::uffd::Userfault`].
#[derive(Debug)]
pub struct Userfault {
    memory: usize,
}

impl AsFd for Userfault {
    fn as_fd(&self) -> usize {
        self.memory
    }
}

impl Userfault {
    pub(crate) fn new(_: Forks) -> Result<Self, UserfaultError> {
        Ok(Self { memory: 0 })
    }

    #[allow(clippy::needless_pass_by_value, reason = "a descriptor is given away")]
    pub(crate) fn of_child(&self, descriptor: Descriptor) -> Self {
        Self { memory: descriptor.0 }
    }

    pub(crate) fn offers(&self) -> Offers {
        Offers {
            moves: true,
            poison: true,
            writes_pass: kernel(|kernel| kernel.writes_pass),
            thread_id: false,
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Memory) -> T) -> T {
        kernel(|kernel| work(&mut kernel.memories[self.memory]))
    }

    pub(crate) fn take_over(&self, range: Range<u64>) -> Result<(), Errno> {
        self.with(|memory| memory.mapped.range_mut(range).for_each(|(_, registered)| *registered = true));
        Ok(())
    }

    pub(crate) fn unregister(&self, range: Range<u64>) -> Result<(), Errno> {
        self.with(|memory| memory.mapped.range_mut(range).for_each(|(_, registered)| *registered = false));
        Ok(())
    }

    fn put_all(&self, target: u64, contents: &[Standing], wake: bool) -> Result<u64, Errno> {
        self.with(|memory| {
            let mut done = 0;
            for &standing in contents {
                match memory.put(target + done, standing) {
                    Ok(()) => done += PAGE,
                    Err(errno) if done == 0 => return Err(errno),
                    Err(_) => break,
                }
            }
            if wake {
                memory.wake(target..target + done);
            }
            Ok(done)
        })
    }

    pub(crate) fn copy(&self, target: u64, pages: &[u8], wake: bool) -> Result<u64, Errno> {
        if target >= FRAMES {
            return kernel(|kernel| {
                if kernel.memories[self.memory].changing > 0 {
                    return Err(Errno::AGAIN);
                }
                assert!(
                    kernel.frames.insert(target, content_of(pages)).is_none(),
                    "a frame is taken already"
                );
                Ok(PAGE)
            });
        }
        let page = |page| Standing::Content(content_of(page));
        self.put_all(target, &pages.chunks_exact(PAGE as usize).map(page).collect::<Vec<_>>(), wake)
    }

    pub(crate) fn zero(&self, target: u64, length: u64) -> Result<u64, Errno> {
        self.put_all(target, &vec![Standing::Content(0); (length / PAGE) as usize], true)
    }

    pub(crate) fn poison(&self, target: u64, length: u64) -> Result<u64, Errno> {
        self.put_all(target, &vec![Standing::Poison; (length / PAGE) as usize], false)
    }

    pub(crate) fn move_pages(&self, target: u64, source: u64, length: u64) -> Result<u64, Errno> {
        kernel(|kernel| {
            let memory = &mut kernel.memories[self.memory];
            if memory.changing > 0 {
                return Err(Errno::AGAIN);
            }
            for offset in (0..length).step_by(PAGE as usize) {
                let address = source + offset;
                let refused = match memory.standing.get(&address) {
                    _ if memory.mapped.get(&address) != Some(&true) => Errno::INVAL,
                    _ if memory.executable.contains(&address)
                        != kernel.executable_frames.contains(&(target + offset)) =>
                    {
                        Errno::INVAL
                    }
                    None => continue,
                    Some(Standing::Poison) => Errno::FAULT,
                    _ if memory.pinned.contains(&address) || memory.shared.contains(&address) => Errno::BUSY,
                    _ if kernel.frames.contains_key(&(target + offset)) => Errno::EXIST,
                    Some(&Standing::Content(content)) => {
                        memory.standing.remove(&address);
                        kernel.frames.insert(target + offset, content);
                        if memory.lazy.remove(&address) {
                            kernel.lazy_frames.insert(target + offset);
                        }
                        continue;
                    }
                };
                return if offset > 0 { Ok(offset) } else { Err(refused) };
            }
            Ok(length)
        })
    }

    pub(crate) fn write_protect(&self, range: Range<u64>, _: bool) -> Result<(), Errno> {
        self.with(|memory| match memory.mapped.get(&range.start) {
            _ if memory.changing > 0 => Err(Errno::AGAIN),
            Some(true) => Ok(()),
            _ => Err(Errno::NOENT),
        })
    }

    pub(crate) fn wake(&self, target: u64, length: u64) -> Result<(), Errno> {
        self.with(|memory| memory.wake(target..target + length));
        Ok(())
    }

    pub(crate) fn read_messages(&self, limit: usize, mut each: impl FnMut(Message)) -> Result<usize, Errno> {
        let mut count = 0;
        while count < limit {
            let told = self.with(|memory| {
                memory.faults.pop_front().or_else(|| {
                    let told = memory.events.pop_front();
                    memory.read.extend(told.clone());
                    told
                })
            });
            let Some(told) = told else { break };
            each(match told {
                Told::Fault { address, write } => {
                    Message::Fault { address, offset: 0, write, protected: false, thread: 0 }
                }
                Told::Remove(range) => Message::Remove(range),
                Told::Unmap(range) => Message::Unmap(range),
                Told::Remap { from, to, length } => Message::Remap { from, to, length },
                Told::Fork(child) => Message::Fork(Descriptor(child)),
            });
            count += 1;
        }
        Ok(count)
    }
}

/// As [`overdrive_sys::thread_words::ThreadWords`].
#[derive(Debug)]
pub(crate) struct ThreadWords;

impl ThreadWords {
    #[allow(clippy::unnecessary_wraps, reason = "as the real one")]
    pub(crate) fn of_this_library() -> Option<Self> {
        Some(Self)
    }

    pub(crate) fn on_page(&self, _: &[u8], address: u64) -> impl Iterator<Item = ThreadWord> {
        let word = ThreadWord { address, thread: 1 };
        (!self.has_ended(word)).then_some(word).into_iter()
    }

    #[allow(clippy::unused_self, reason = "as the real one")]
    pub(crate) fn has_ended(&self, word: ThreadWord) -> bool {
        kernel(|kernel| !kernel.thread_pages.contains(&word.address))
    }
}

/// As [`overdrive_sys::page_map::PageMap`].
#[derive(Debug)]
pub struct PageMap {
    memory: usize,
}

impl PageMap {
    pub(crate) fn open() -> Result<Self, Errno> {
        Ok(Self { memory: 0 })
    }

    pub(crate) fn present(&self, address: u64, pages: usize) -> Result<u64, Errno> {
        kernel(|kernel| {
            let there = |address: u64| match address {
                FRAMES.. => kernel.frames.contains_key(&address),
                _ => kernel.memories[0].standing.contains_key(&address),
            };
            let bits = pages_where(pages as u32, |page| there(address + u64::from(page) * PAGE));
            // Some are dropped as soon as they were seen.
            for frame in (0..pages as u64).map(|page| address + page * PAGE) {
                if kernel.lazy_frames.contains(&frame) && kernel.frames[&frame] % 2 == 1 {
                    kernel.drop_frame(frame);
                }
            }
            Ok(bits)
        })
    }

    /// Where there are zeroes, the kernel's page of zeroes stands.
    #[allow(clippy::unnecessary_wraps, reason = "as the real one")]
    pub(crate) fn own(&self, address: u64, pages: usize) -> Result<u64, Errno> {
        Ok(kernel(|kernel| {
            let Memory { standing, shared, .. } = &kernel.memories[self.memory];
            pages_where(pages as u32, |page| {
                let address = address + u64::from(page) * PAGE;
                let is_written = standing.get(&address).is_some_and(|it| *it != Standing::Content(0));
                is_written && !shared.contains(&address)
            })
        }))
    }

    #[allow(clippy::unnecessary_wraps, reason = "as the real one")]
    pub(crate) fn first_present(&self, range: Range<u64>) -> Result<Option<u64>, Errno> {
        Ok(kernel(|kernel| kernel.memories[self.memory].standing.range(range).next().map(|(&page, _)| page)))
    }

    #[allow(clippy::unused_self, reason = "as the real one")]
    pub(crate) fn count_by_this_thread(&mut self) {}

    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as the real one")]
    pub(crate) fn anonymous_pages(&self) -> Result<u64, Errno> {
        let frames = |kernel: &Kernel| if self.memory == 0 { kernel.frames.len() } else { 0 };
        Ok(kernel(|kernel| kernel.memories[self.memory].standing.len() + frames(kernel)) as u64)
    }

    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as the real one")]
    pub(crate) fn marked(&self, _address: u64, _pages: usize) -> Result<u64, Errno> {
        Ok(0)
    }
}

impl PageMap {
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as the real one")]
    pub(crate) fn take_written(
        &self,
        range: Range<u64>,
        mut each: impl FnMut(Range<u64>),
    ) -> Result<(), Errno> {
        kernel(|kernel| {
            let Memory { standing, protected, mapped, .. } = &mut kernel.memories[0];
            let there = standing.range(range).map(|(&address, _)| address);
            for address in there.filter(|address| mapped.get(address) == Some(&true)) {
                if protected.insert(address) {
                    each(address..address + PAGE);
                }
            }
        });
        Ok(())
    }
}

/// As [`overdrive_sys::mappings::Mappings`].
#[derive(Debug)]
pub(crate) struct Mappings {
    memory: usize,
}

#[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as the real one")]
impl Mappings {
    pub(crate) fn open() -> Result<Self, Errno> {
        Ok(Self { memory: 0 })
    }

    pub(crate) fn for_each_anonymous(
        &self,
        range: Range<u64>,
        mut each: impl FnMut(Anonymous),
    ) -> Result<(), Errno> {
        let pages: Vec<(u64, bool)> = kernel(|kernel| {
            let memory = &kernel.memories[self.memory];
            memory.mapped.keys().map(|&page| (page, memory.executable.contains(&page))).collect()
        });
        for run in pages.chunk_by(|one, next| one.0 + PAGE == next.0 && one.1 == next.1) {
            let mapping = run[0].0..run[run.len() - 1].0 + PAGE;
            if overlap(&mapping, &range).is_some() {
                each(Anonymous { range: mapping, writable: true, executable: run[0].1, is_stack: false });
            }
        }
        Ok(())
    }
}

/// As [`overdrive_sys::pageable::take_given_up`]: of the parent. Nothing goes but what may at any time.
pub(crate) fn take_given_up(range: &Range<u64>) {
    kernel(|kernel| {
        let Memory { standing, lazy, pinned, shared, .. } = &mut kernel.memories[0];
        let stays =
            |address: &u64| !range.contains(address) || pinned.contains(address) || shared.contains(address);
        for address in std::mem::take(lazy) {
            if stays(&address) {
                lazy.insert(address);
            } else {
                standing.remove(&address);
            }
        }
    });
}

/// As [`overdrive_sys::page_map::largest_child`].
pub(crate) fn largest_child(_: u32) -> Option<(u32, u64)> {
    None
}

/// As [`overdrive_sys::proc_stat::shared_memory_pages`].
pub(crate) fn shared_memory_pages() -> Option<u64> {
    None
}

/// As [`overdrive_sys::frames::Frames`].
#[derive(Debug)]
pub(crate) struct Frames {
    base: u64,
    count: usize,
    filled: BTreeSet<u32>,
}

impl Frames {
    pub(crate) fn new(count: usize, _: &Userfault) -> Result<Self, Errno> {
        Ok(Self { base: FRAMES, count, filled: BTreeSet::new() })
    }

    pub(crate) fn extent(&self) -> Range<u64> {
        self.base..self.base + self.count as u64 * PAGE
    }

    pub(crate) fn address(&self, frame: u32) -> u64 {
        assert!((frame as usize) < self.count);
        self.base + u64::from(frame) * PAGE
    }

    pub(crate) fn is_executable(&self, frame: u32) -> bool {
        kernel(|kernel| kernel.executable_frames.contains(&self.address(frame)))
    }

    pub(crate) fn set_executable(&mut self, frames: Range<u32>, executable: bool) -> Result<(), Errno> {
        let addresses = frames.map(|frame| self.address(frame));
        kernel(|kernel| {
            for address in addresses {
                kernel.executable_frames.remove(&address);
                if executable {
                    kernel.executable_frames.insert(address);
                }
            }
        });
        Ok(())
    }

    pub(crate) fn note_filled(&mut self, frame: u32) {
        self.filled.insert(frame);
        let address = self.address(frame);
        kernel(|kernel| {
            kernel.lazy_frames.remove(&address);
            kernel.frames.entry(address).or_insert(0);
        });
    }

    pub(crate) fn note_empty(&mut self, frame: u32) {
        self.filled.remove(&frame);
    }

    pub(crate) fn clear_empty(&mut self, _: &Userfault) -> Result<(), Errno> {
        let filled: BTreeSet<u64> = self.filled.iter().map(|&frame| self.address(frame)).collect();
        let extent = self.extent();
        kernel(|kernel| {
            kernel.frames.retain(|address, _| !extent.contains(address) || filled.contains(address));
        });
        Ok(())
    }

    pub(crate) fn page(&self, frame: u32) -> &[u8] {
        assert!(self.filled.contains(&frame), "frame {frame} is empty");
        let content = kernel(|kernel| kernel.frames.get(&self.address(frame)).copied());
        page_of(content.expect("a frame that is noted as filled has a page"))
    }

    pub(crate) fn give_back(&mut self, frames: Range<u32>, _: &Userfault) -> Result<(), Errno> {
        self.filled.retain(|frame| !frames.contains(frame));
        let given = self.address(frames.start)..self.base + u64::from(frames.end) * PAGE;
        kernel(|kernel| {
            kernel.frames.retain(|address, _| !given.contains(address));
            kernel.lazy_frames.retain(|address| !given.contains(address));
            kernel.executable_frames.retain(|address| !given.contains(address));
        });
        Ok(())
    }
}

/// As [`overdrive_sys::page_io::PageIo`].
#[derive(Debug)]
pub(crate) struct PageIo {
    landed: BTreeMap<u32, Vec<u8>>,
    offsets: BTreeMap<u32, u64>,
    copies: Vec<Vec<u8>>,
    /// What can still be leased.
    pub(crate) parts: Vec<Range<u64>>,
    /// Where the area of the landing area begins, and whether it is open.
    area: u32,
    is_open: bool,
}

impl PageIo {
    pub(crate) fn new(_: File, [area, _]: [u32; 2], _: u32, _: u32, _: usize) -> Result<Self, Errno> {
        let (landed, offsets) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { landed, offsets, copies: Vec::new(), parts: Vec::new(), area, is_open: false })
    }

    pub(crate) fn open_area(&mut self) {
        assert!(!std::mem::replace(&mut self.is_open, true));
    }

    pub(crate) fn close_area(&mut self) -> Result<(), Errno> {
        assert!(std::mem::replace(&mut self.is_open, false));
        kernel(|kernel| assert!(kernel.reading.iter().all(|read| read.slot < self.area)));
        self.landed.retain(|&slot, _| slot < self.area);
        Ok(())
    }

    pub(crate) fn share(&mut self, _: Parts) {}

    pub(crate) fn lease(&mut self) -> Option<Range<u64>> {
        self.parts.pop()
    }

    #[allow(clippy::unnecessary_wraps, reason = "as the real one")]
    pub(crate) fn keep_copy(&mut self, token: u32, bytes: usize, _: bool) -> Result<(), Errno> {
        self.copies.resize(self.copies.len().max(token as usize + 1), Vec::new());
        self.copies[token as usize] = vec![0; bytes];
        Ok(())
    }

    pub(crate) fn give_copy_back(&mut self, token: u32) {
        self.copy_mut(token).fill(0);
    }

    pub(crate) fn copy_mut(&mut self, token: u32) -> &mut [u8] {
        kernel(|kernel| assert!(kernel.writing.iter().all(|write| write.token != token)));
        &mut self.copies[token as usize]
    }

    pub(crate) fn write_copy(&mut self, token: u32, offset: u64, length: u32) -> Result<(), Errno> {
        let pages = self.copies[token as usize][..length as usize].chunks_exact(PAGE as usize);
        self.queue(token, offset, Vec::new(), pages.map(note_page).collect());
        Ok(())
    }

    pub(crate) fn keep_workers_to(&mut self, _: &[usize]) {}

    pub(crate) fn watch(&mut self, number: u32, memory: usize) -> Result<(), Errno> {
        kernel(|kernel| kernel.watched.insert(number, memory));
        Ok(())
    }

    pub(crate) fn watch_once(&mut self, number: u32, memory: usize) -> Result<(), Errno> {
        self.watch(number, memory)
    }

    pub(crate) fn unwatch(&mut self, number: u32) -> Result<(), Errno> {
        kernel(|kernel| kernel.watched.remove(&number));
        Ok(())
    }

    pub(crate) fn read(&mut self, slot: u32, offset: u64, length: u32) -> Result<(), Errno> {
        assert!(slot < self.area || self.is_open, "slot {slot} is not there");
        self.landed.remove(&slot);
        self.offsets.insert(slot, offset);
        kernel(|kernel| {
            assert!(kernel.reading.iter().all(|read| read.slot != slot), "slot {slot} is being read into");
            kernel.reading.push(Reading { slot, offset, length });
        });
        Ok(())
    }

    pub(crate) fn write(
        &mut self,
        token: u32,
        offset: u64,
        frames: &Frames,
        list: &[u32],
    ) -> Result<(), Errno> {
        let contents: Vec<_> = list.iter().map(|&frame| content_of(frames.page(frame))).collect();
        let frames = list.iter().map(|&frame| frames.address(frame)).collect();
        self.queue(token, offset, frames, contents);
        Ok(())
    }

    fn queue(&mut self, token: u32, offset: u64, frames: Vec<u64>, contents: Vec<u64>) {
        kernel(|kernel| {
            assert!(kernel.writing.iter().all(|write| write.token != token), "write {token} is in flight");
            for page in 0..contents.len() as u64 {
                // Until it is over, nobody may rely on what is there.
                kernel.store.insert(offset + page * PAGE, u64::MAX);
            }
            kernel.writing.push(Writing { token, offset, frames, contents });
        });
    }

    pub(crate) fn submit(&mut self, _: Option<Duration>) -> Result<(), Errno> {
        Ok(())
    }

    pub(crate) fn submit_from(&mut self, _: usize) -> Result<(), Errno> {
        Ok(())
    }

    pub(crate) fn has_done(&self) -> bool {
        kernel(|kernel| !kernel.done.is_empty())
    }

    pub(crate) fn next_done(&mut self) -> Option<Done> {
        let told = kernel(|kernel| {
            let Kernel { watched, memories, helped, .. } = kernel;
            let number_of =
                |memory| watched.range(HELPERS..).find(|&(_, &other)| other == memory).map(|it| *it.0);
            if let Some(index) = helped.iter().position(|&memory| number_of(memory).is_some()) {
                return helped.remove(index).and_then(number_of).map(Done::Messages);
            }
            watched.range(..HELPERS).find_map(|(&number, &memory)| {
                std::mem::take(&mut memories[memory].untold).then_some(Done::Messages(number))
            })
        });
        told.or_else(|| {
            let (index, is_write, result) = kernel(|kernel| kernel.done.pop_front())?;
            if is_write {
                return Some(Done::Write { token: index, result });
            }
            let brought = kernel(|kernel| kernel.landing.remove(&index)).unwrap_or_default();
            let bytes = brought.iter().flat_map(|&content| page_of(content)).copied().collect();
            self.landed.insert(index, bytes);
            Some(Done::Read { slot: index, result })
        })
    }

    pub(crate) fn landing(&mut self, slot: u32) -> &[u8] {
        self.landing_mut(slot).1
    }

    pub(crate) fn landing_mut(&mut self, slot: u32) -> (u64, &mut [u8]) {
        let page = self.landed.get_mut(&slot).expect("a read that is over");
        (self.offsets[&slot], page.as_mut_slice())
    }

    pub(crate) fn extents(&self) -> Vec<Range<u64>> {
        std::iter::once(4 << 40..5 << 40).collect()
    }
}
