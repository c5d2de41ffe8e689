//! Keeps the program's threads to few processors while that serves more pages, and gives all back otherwise:
//! a thread of this process, for either backend. The pager's engine is put where it serves them best, too.
//!
//! Threads that the program has put elsewhere itself stay there.

use super::engines::{self, engine_apart};
use super::store::{Store, counters_in};
use super::watch::{Process, processes_in};
use overdrive_host::gather::{Gather, Program};
use overdrive_pager::stats::Stat;
use overdrive_sys::affinity::{allowed_cpus, cpus_of, restrict_thread_to};
use overdrive_sys::memory_group::pages_brought_back;
use overdrive_sys::proc_stat::numbers_in;
use overdrive_sys::usage::user_time_of;
use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is looked at least.
const REST_MAX: Duration = Duration::from_millis(200);
/// In the end it is looked so often at most whether all threads are home.
const PASSES_MAX: u32 = 8;
/// The engine's threads, which have places of their own, are named so, and those of the kernel that read and
/// write for it, which cannot be moved, so.
const ENGINE: &str = engines::NAME;
const WORKER: &str = "iou-";
/// Where no more threads than this wait for the store at a time, in the mean, it is one that does.
const LONE: f64 = 1.25;
/// Where fewer pages a second come in, the engine sleeps before each: it runs wherever it is woken then,
/// mostly where the program waits, and no other processor has to wake first.
const QUIET_PER_S: f64 = 1000.0;

/// Works until it is dropped; then all threads are given all processors back.
#[derive(Debug)]
pub(super) struct Gathered {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Duration>>,
}

impl Gathered {
    /// For the program on swap in a group, or for those under the pager with counters in the run's directory.
    /// None where there is nothing to choose.
    pub(super) fn start(group: Option<&Path>, folder: &Path, store: &Store) -> std::io::Result<Option<Self>> {
        let home = allowed_cpus().unwrap_or_default();
        if home.len() < 2 {
            return Ok(None);
        }
        let interrupted = store.interrupted_cpus.iter().map(|&cpu| cpu as usize).collect();
        let run = Run { folder: folder.to_owned(), group: group.map(Path::to_owned), home, interrupted };
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let builder = std::thread::Builder::new().name("gather".to_owned());
        let thread = Some(builder.spawn(move || run.keep(&told))?);
        Ok(Some(Self { stop, thread }))
    }

    /// Gives all back, and tells for how long threads were kept to fewer processors.
    pub(super) fn end(mut self) -> Duration {
        self.give_back()
    }

    fn give_back(&mut self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Duration::ZERO };
        thread.thread().unpark();
        // It does not panic; and if it did, it has ended.
        thread.join().unwrap_or_default()
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        let _ = self.give_back();
    }
}

/// Whose threads are gathered.
#[derive(Debug)]
struct Run {
    folder: PathBuf,
    group: Option<PathBuf>,
    /// The processors that the program was started on.
    home: Vec<usize>,
    /// Those that the store's disk interrupts.
    interrupted: Vec<usize>,
}

/// Threads that are gathered together: all of a group, or those of a process with an engine of its own.
#[derive(Debug, Default)]
struct Flock {
    gather: Gather,
    /// Where they belong now; none: home.
    place: Option<Vec<usize>>,
    /// Where threads may be that were put there, or that others have started which were.
    places: Vec<Vec<usize>>,
    /// Threads that the program has put elsewhere itself.
    apart: HashSet<u32>,
    due: Duration,
    /// What was seen last, and when.
    last: Option<(Duration, Seen)>,
    engine: Option<EngineAway>,
}

/// The engine, while it is elsewhere than where it belongs.
#[derive(Debug)]
struct EngineAway {
    home: Vec<usize>,
    place: Vec<usize>,
}

/// How a flock's pages came in since the last look; nothing is so of what was not seen before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Pace {
    /// One thread at a time has waited for the store.
    is_lone: bool,
    is_quiet: bool,
}

/// What was seen of a flock.
#[derive(Debug, Clone, Copy)]
struct Seen {
    id: u32,
    /// Pages that have come to it.
    pages: u64,
    /// Of these, pages that a thread waited for the store for; and how long that took lately.
    loads: u64,
    load_time: Duration,
}

impl Run {
    /// Until it is stopped. Gives the time for which threads were kept to fewer processors.
    fn keep(&self, stop: &AtomicBool) -> Duration {
        let (start, mut flocks) = (Instant::now(), HashMap::<u32, Flock>::new());
        let (mut gathered, mut looked) = (Duration::ZERO, Duration::ZERO);
        while !stop.load(Ordering::Relaxed) {
            let seen = self.flocks_seen();
            flocks.retain(|id, _| seen.iter().any(|seen| seen.id == *id));
            let mut rest = REST_MAX;
            let since = start.elapsed().saturating_sub(looked);
            looked += since;
            if flocks.values().any(|flock| flock.place.is_some()) {
                gathered += since;
            }
            for seen in seen {
                let (id, flock) = (seen.id, flocks.entry(seen.id).or_default());
                let now = start.elapsed();
                if now >= flock.due {
                    let pace = flock.pace(seen, now);
                    let threads = LazyCell::new(|| self.threads(id));
                    let step = flock.gather.next(now, seen.pages, self.home.len(), || program_of(&threads));
                    flock.due = now + step.rest;
                    let engine_goes_along = self.engine_goes_along(step.width, pace);
                    if !engine_goes_along {
                        flock.bring_engine_back(id);
                    }
                    flock.place = step.width.map(|width| self.place(id, width, engine_goes_along));
                    if engine_goes_along {
                        let place = flock.place.as_ref().unwrap_or(&self.home).clone();
                        flock.put_engine(id, place);
                    }
                    if flock.is_away() {
                        flock.put(&threads, &self.home);
                    }
                }
                rest = rest.min(flock.due.saturating_sub(start.elapsed()));
            }
            std::thread::park_timeout(rest);
        }
        for (id, mut flock) in flocks {
            flock.place = None;
            flock.bring_engine_back(id);
            // Threads that are being started now are seen the next time.
            for _ in 0..PASSES_MAX {
                if flock.is_away() {
                    flock.put(&self.threads(id), &self.home);
                }
            }
        }
        gathered
    }

    fn flocks_seen(&self) -> Vec<Seen> {
        let of_process = |one: &Process| Seen {
            id: one.pid,
            pages: pages_brought(one),
            loads: one.get(Stat::Loads),
            load_time: Duration::from_nanos(one.get(Stat::FaultP50)),
        };
        let of_group = |pages| Seen { id: 0, pages, loads: 0, load_time: Duration::ZERO };
        match &self.group {
            Some(group) => pages_brought_back(group).map(of_group).into_iter().collect(),
            None => processes_in(&self.folder).iter().map(of_process).collect(),
        }
    }

    /// The threads of a flock. On swap those of this process, which makes room, belong to it: what it takes
    /// away is then forgotten without interrupting another processor.
    fn threads(&self, flock: u32) -> Vec<u32> {
        let Some(group) = &self.group else {
            let own_engine = counters_in(&self.folder).into_iter().map(|(pid, _)| pid).collect::<Vec<_>>();
            let mut threads = Vec::new();
            collect_threads(flock, &own_engine, &mut threads);
            return threads;
        };
        let lists = ["tasks", "cgroup.threads"].map(|name| std::fs::read_to_string(group.join(name)));
        let list = lists.into_iter().flatten().next().unwrap_or_default();
        let members = list.lines().filter_map(|line| line.trim().parse().ok());
        members.chain(threads_of(std::process::id())).collect()
    }

    /// Whether the pager's engine goes where the program's threads are, and not to a processor of its own.
    ///
    /// On all processors: while little is to be done. On one: where one thread waits, both run where the
    /// drive's interrupts come in. What it waits for is then read, put in place and gone on with on one
    /// processor, which wakes once. Where several wait, that processor has too much to do.
    fn engine_goes_along(&self, width: Option<usize>, pace: Pace) -> bool {
        let goes = match width {
            None => pace.is_quiet,
            Some(1) => pace.is_lone && self.tell(&self.interrupted),
            Some(_) => false,
        };
        goes && self.group.is_none()
    }

    /// Whether these processors are some of those that threads can run on: what is true of all tells nothing.
    fn tell(&self, cpus: &[usize]) -> bool {
        cpus.iter().any(|cpu| self.home.contains(cpu)) && cpus.len() < self.home.len()
    }

    /// The processors for so many, best first.
    ///
    /// On swap threads wait for the drive themselves: where few processors take its interrupts, they do best
    /// there. The pager's engine keeps to another one, where they find it.
    fn place(&self, flock: u32, width: usize, engine_goes_along: bool) -> Vec<usize> {
        let at_interrupts = self.group.is_some() || engine_goes_along;
        let first = if at_interrupts { self.interrupted.clone() } else { engine_cpus(flock) };
        let mut order = self.home.clone();
        // Runs that start at the same time go different ways.
        order.rotate_left(std::process::id() as usize % self.home.len());
        if self.tell(&first) {
            order.sort_by_key(|cpu| !first.contains(cpu));
        }
        order.truncate(width);
        order.sort_unstable();
        order
    }
}

impl Flock {
    /// How it went since the last look, by what is seen now.
    fn pace(&mut self, seen: Seen, now: Duration) -> Pace {
        let Some((then, before)) = self.last.replace((now, seen)) else { return Pace::default() };
        let seconds = (now - then).as_secs_f64();
        let waited = seen.load_time.as_secs_f64() * seen.loads.saturating_sub(before.loads) as f64;
        let came = seen.pages.saturating_sub(before.pages) as f64;
        Pace { is_lone: waited < seconds * LONE, is_quiet: came < seconds * QUIET_PER_S }
    }

    /// Lets the engine's thread run on these processors.
    fn put_engine(&mut self, process: u32, place: Vec<usize>) {
        if self.engine.as_ref().is_none_or(|away| away.place != place)
            && let Some(thread) = engine_thread(process)
            && let Ok(cpus) = cpus_of(thread)
            && restrict_thread_to(thread, &place).is_ok()
        {
            let home = self.engine.take().map_or(cpus, |away| away.home);
            self.engine = Some(EngineAway { home, place });
        }
    }

    /// Puts it back where it belongs. One that has ended meanwhile is nowhere.
    fn bring_engine_back(&mut self, process: u32) {
        if let Some(away) = self.engine.take()
            && let Some(thread) = engine_thread(process)
        {
            let _ = restrict_thread_to(thread, &away.home);
        }
    }

    /// Whether threads are, or may be, elsewhere than at home.
    fn is_away(&self) -> bool {
        self.place.is_some() || !self.places.is_empty()
    }

    /// Puts every thread where it belongs that is where it was started, or where this has put threads before.
    fn put(&mut self, threads: &[u32], home: &[usize]) {
        let wanted = self.place.as_deref().unwrap_or(home);
        self.apart.retain(|thread| threads.contains(thread));
        let mut moved = 0;
        for &thread in threads {
            let Ok(cpus) = cpus_of(thread) else { continue };
            let is_ours = cpus == home || self.places.contains(&cpus) && !self.apart.contains(&thread);
            if !is_ours {
                self.apart.insert(thread);
            } else if cpus != wanted {
                // One that has ended meanwhile, or is another user's, stays as it is.
                moved += usize::from(restrict_thread_to(thread, wanted).is_ok());
            }
        }
        match &self.place {
            Some(place) if !self.places.contains(place) => self.places.push(place.clone()),
            // Nobody is left who could hand an old place on.
            None if moved == 0 => (self.places, self.apart) = Default::default(),
            _ => {}
        }
    }
}

/// What is to be known of a flock's threads to choose.
fn program_of(threads: &[u32]) -> Program {
    let computed = threads.iter().filter_map(|&thread| user_time_of(thread)).sum();
    Program { threads: threads.len(), computed }
}

/// Pages that came to a process, by whatever way.
fn pages_brought(process: &Process) -> u64 {
    [Stat::ZeroFills, Stat::Rescues, Stat::Loads, Stat::ReadAheadUsed, Stat::Expands, Stat::ExpandedAhead]
        .iter()
        .map(|&stat| process.get(stat))
        .sum()
}

/// How many processors a process may run on now.
pub(super) fn processors_of(pid: u32) -> Option<usize> {
    cpus_of(pid).ok().map(|cpus| cpus.len())
}

/// The threads of a process and of its children that have no engine of their own, but for the engine's.
fn collect_threads(pid: u32, own_engine: &[u32], threads: &mut Vec<u32>) {
    for thread in threads_of(pid) {
        let of = |what: &str| std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/{what}"));
        if !of("comm").is_ok_and(|name| name.starts_with(ENGINE) || name.starts_with(WORKER)) {
            threads.push(thread);
        }
        let children = of("children").unwrap_or_default();
        for child in children.split_ascii_whitespace().filter_map(|word| word.parse().ok()) {
            if !own_engine.contains(&child) {
                collect_threads(child, own_engine, threads);
            }
        }
    }
}

fn threads_of(pid: u32) -> Vec<u32> {
    numbers_in(&format!("/proc/{pid}/task")).collect()
}

/// The thread that answers a process's faults.
pub(super) fn engine_of(pid: u32) -> Option<u32> {
    let is_engine = |thread: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm"))
            .is_ok_and(|name| name.trim_end() == ENGINE)
    };
    threads_of(pid).into_iter().find(is_engine)
}

/// That thread, or the process apart in its place.
fn engine_thread(pid: u32) -> Option<u32> {
    engine_of(pid).or_else(|| engine_apart(pid))
}

fn engine_cpus(pid: u32) -> Vec<usize> {
    engine_thread(pid).and_then(|thread| cpus_of(thread).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// A shell with a child, and the threads of both.
    fn family() -> (Child, Vec<u32>) {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 & echo; wait"]).stdout(std::process::Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        // The line comes when the child is there.
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let mut threads = Vec::new();
        collect_threads(shell.id(), &[], &mut threads);
        (shell, threads)
    }

    fn end(mut shell: Child, threads: &[u32]) {
        for &thread in threads {
            let pid = rustix::process::Pid::from_raw(thread.cast_signed()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        shell.wait().unwrap();
    }

    #[test]
    fn threads_are_put_together_and_given_all_back_but_for_those_that_went_elsewhere_themselves() {
        let home = allowed_cpus().unwrap();
        let (shell, threads) = family();
        assert_eq!(threads.len(), 2, "the shell and its child");
        let mut flock = Flock::default();
        let all = |cpus: &[usize]| threads.iter().all(|&thread| cpus_of(thread).unwrap() == cpus);
        let put = |flock: &mut Flock, place: Option<&[usize]>| {
            flock.place = place.map(<[usize]>::to_vec);
            flock.put(&threads, &home);
        };
        put(&mut flock, None);
        assert!(all(&home) && !flock.is_away());
        let (first, last) = (&home[..1], &home[home.len() - 1..]);
        put(&mut flock, Some(last));
        assert!(all(last));
        put(&mut flock, Some(first));
        // As one that was started by a thread which had not been moved yet.
        restrict_thread_to(threads[1], last).unwrap();
        put(&mut flock, Some(first));
        assert!(all(first));
        put(&mut flock, None);
        assert!(all(&home) && (flock.is_away() || home.len() == 1), "others may still come");
        put(&mut flock, None);
        assert!(!flock.is_away());
        // What the program has chosen itself stays, be it where others are put.
        if home.len() > 1 {
            restrict_thread_to(threads[1], last).unwrap();
            for place in [first, last, first] {
                put(&mut flock, Some(place));
                assert_eq!(cpus_of(threads[0]).unwrap(), place);
                assert_eq!(cpus_of(threads[1]).unwrap(), last, "it chose so");
            }
            put(&mut flock, None);
            assert_eq!(cpus_of(threads[1]).unwrap(), last);
        }
        end(shell, &threads);
    }

    #[test]
    fn a_child_with_an_engine_of_its_own_is_not_its_parents() {
        let (shell, threads) = family();
        let mut without = Vec::new();
        collect_threads(shell.id(), &threads[1..], &mut without);
        assert_eq!(without, threads[..1]);
        end(shell, &threads);
    }

    fn on_four(group: Option<&str>, interrupted: &[usize]) -> Run {
        let (home, interrupted) = (vec![0, 1, 2, 3], interrupted.to_vec());
        Run { folder: PathBuf::new(), group: group.map(PathBuf::from), home, interrupted }
    }

    #[test]
    fn the_best_processors_come_first() {
        let place = |interrupted: &[usize], width| on_four(Some(""), interrupted).place(0, width, false);
        assert_eq!(place(&[2], 1), [2]);
        let two = place(&[2], 2);
        assert!(two.len() == 2 && two.contains(&2), "{two:?}");
        // What is true of all, or of others, tells nothing.
        for interrupted in [&[][..], &[9], &[0, 1, 2, 3]] {
            assert_eq!(place(interrupted, 1), [std::process::id() as usize % 4]);
        }
        assert_eq!(place(&[], 4), [0, 1, 2, 3]);
    }

    /// What was seen of a process of which so many threads wait for the store all the time.
    fn seen(waiting: u64, seconds: u64) -> Seen {
        Seen { id: 7, pages: 0, loads: waiting * seconds * 20_000, load_time: Duration::from_micros(50) }
    }

    #[test]
    fn one_thread_that_waits_runs_where_interrupts_come_in() {
        let run = on_four(None, &[2]);
        let mut flock = Flock::default();
        let mut note = |waiting, seconds| {
            let pace = flock.pace(seen(waiting, seconds), Duration::from_secs(seconds));
            [1, 2].map(|width| run.engine_goes_along(Some(width), pace))
        };
        assert_eq!(note(1, 1), [false, false], "nothing is known yet");
        assert_eq!(note(1, 2), [true, false]);
        assert_eq!(note(4, 4), [false, false]);
        assert_eq!(run.place(7, 1, true), [2]);
        for (group, interrupted) in [(Some(""), &[2][..]), (None, &[]), (None, &[0, 1, 2, 3])] {
            let lone = Pace { is_lone: true, is_quiet: false };
            assert!(!on_four(group, interrupted).engine_goes_along(Some(1), lone));
        }
    }

    #[test]
    fn it_is_quiet_while_few_pages_come_in() {
        let mut flock = Flock::default();
        let mut note = |pages, millis| {
            let seen = Seen { id: 7, pages, loads: 0, load_time: Duration::ZERO };
            flock.pace(seen, Duration::from_millis(millis)).is_quiet
        };
        assert!(!note(0, 0), "nothing is known yet");
        assert!(note(0, 200) && note(199, 400) && !note(399, 600) && note(399, 650));
        let goes_along = |group, width, is_quiet| {
            on_four(group, &[2]).engine_goes_along(width, Pace { is_lone: false, is_quiet })
        };
        assert!(goes_along(None, None, true) && !goes_along(None, None, false));
        assert!(!goes_along(None, Some(1), true) && !goes_along(Some(""), None, true));
    }

    #[test]
    fn the_engine_goes_along_and_comes_back() {
        let home = allowed_cpus().unwrap();
        let (first, last) = (home[..1].to_vec(), home[home.len() - 1..].to_vec());
        let (told, engine) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let builder = std::thread::Builder::new().name(ENGINE.to_owned());
        let own = last.clone();
        let thread = builder.spawn(move || {
            overdrive_sys::affinity::restrict_to(&own).unwrap();
            told.send(rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()).unwrap();
            ended.recv().unwrap_err();
        });
        let engine = engine.recv().unwrap();
        let mut flock = Flock::default();
        let (along, anywhere) = (Some(&first), Some(&home));
        for place in [along, along, None, None, anywhere, along, anywhere, None] {
            match place {
                Some(place) => flock.put_engine(std::process::id(), place.clone()),
                None => flock.bring_engine_back(std::process::id()),
            }
            assert_eq!(&cpus_of(engine).unwrap(), place.unwrap_or(&last));
        }
        drop(end);
        thread.unwrap().join().unwrap();
    }
}
