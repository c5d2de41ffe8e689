//! What `overdrive extend` asks for, and building the engine from it.

use crate::apart::Life;
use crate::{apart, api, ending, fork, ground};
use overdrive_pager::engine::{Config, Engine, EngineError, Notice, StoreFaults, in_plain_words};
use overdrive_pager::pool::Compress;
use overdrive_pager::seal::Seal;
use overdrive_pager::stats::Stats;
use overdrive_sys::Errno;
use overdrive_sys::affinity::{allowed_cpus, pin_current_thread, raise_current_thread};
use overdrive_sys::apart::Origin;
use overdrive_sys::broker::{self, Channel};
use overdrive_sys::file::{length_limit, lock_for_descendants};
use overdrive_sys::gate::Gate;
use overdrive_sys::page_map::PageMap;
use overdrive_sys::parts::Parts;
use overdrive_sys::proc_stat::pid_namespace;
use overdrive_sys::run_files::{RunFiles, RunPlaces, Unopened};
use overdrive_sys::secret::fill_with_random;
use overdrive_sys::thread;
use overdrive_sys::uffd::{Forks, Userfault};
use overdrive_sys::volume::device_bytes;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// `budget=BYTES,store_bytes=BYTES,dir=ABSOLUTE_DIR[,spin_us=N][,avoid=CPU:CPU...][,day=BYTES]
/// [,compress=off|auto|lz4|zstd][,encrypt=yes][,apart=yes][,device=ABSOLUTE_PATH]
/// [,channel=DESCRIPTOR:INODE:NAME:SECRET][,pids=INODE]`, and for tests
/// `fail=SEED:READS:WRITES:BAD[:END]`: of a million reads, writes and places so many fail, and after END
/// reads the engine does.
pub(crate) const VARIABLE: &str = "OVERDRIVE_EXTEND";

/// The part of it that puts engines into processes apart.
pub(crate) const APART: &str = "apart=yes";

/// How much may be under the pager: addresses for this are set aside, memory only as it is used.
const MANAGED_BYTES_MAX: u64 = 512 << 30;
/// The one that serves, and its agent.
const OWN_THREADS: usize = 2;
/// How often they look whether no other is left.
const ENDING_EVERY: Duration = Duration::from_millis(20);
/// About what a wake-up on another, idle processor costs in a virtual machine.
const SPIN_US: u64 = 60;
/// Of a process apart, as a thread has by itself.
pub(crate) const STACK_BYTES: usize = 2 << 20;

/// What a program that starts the engine itself can ask for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wishes {
    pub(crate) dir: PathBuf,
    pub(crate) budget_bytes: u64,
    pub(crate) store_bytes: u64,
    pub(crate) compress: Compress,
    pub(crate) encrypt: bool,
    pub(crate) writes_per_day_bytes: Option<u64>,
}

impl Wishes {
    /// The rest as it is mostly wanted.
    pub(crate) fn new(dir: PathBuf, budget_bytes: u64, store_bytes: u64) -> Self {
        let compress = Compress::Auto;
        Self { dir, budget_bytes, store_bytes, compress, encrypt: false, writes_per_day_bytes: None }
    }
}

#[derive(Debug)]
pub(crate) struct Setup {
    budget_bytes: u64,
    /// The directory, how much may be stored, and the device that all processes of the run share, if it is
    /// one.
    places: RunPlaces,
    /// Where to ask for what this process may not do by itself.
    channel: Option<Channel>,
    /// The PID namespace in which processes are known by their numbers: that of `overdrive extend`.
    pids: Option<u64>,
    /// Counters lie in a file there, for others to look at.
    counted: bool,
    spin: Duration,
    /// CPUs that the engine leaves to others if it can: those interrupted by the store's disk.
    avoid: Vec<usize>,
    compress: Compress,
    encrypt: bool,
    /// The engine stands in processes apart, not in threads of the program.
    apart: bool,
    store_faults: Option<StoreFaults>,
    /// The most that is written to the store in a day.
    writes_per_day_bytes: Option<u64>,
}

impl Setup {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (mut budget, mut store, mut dir, mut spin_us) = (None, None, None, SPIN_US);
        let (mut avoid, mut store_faults, mut writes_per_day_bytes) = (Vec::new(), None, None);
        let (mut compress, mut encrypt, mut device) = (Compress::Auto, false, None);
        let (mut apart, mut channel, mut pids) = (false, None, None);
        for part in text.split(',') {
            let (key, value) =
                part.split_once('=').ok_or_else(|| format!("{VARIABLE}: '{part}' has no value"))?;
            let number = || value.parse().map_err(|_| format!("{VARIABLE}: {key}={value} is no number"));
            match key {
                "budget" => budget = Some(number()?),
                "store_bytes" => store = Some(number()?),
                "spin_us" => spin_us = number()?,
                "day" => writes_per_day_bytes = Some(number()?),
                "avoid" => avoid = parse_cpus(value)?,
                "compress" => compress = parse_compress(value)?,
                "encrypt" if value == "yes" => encrypt = true,
                "encrypt" => return Err(format!("{VARIABLE}: encrypt={value} is not yes")),
                "pids" => pids = Some(number()?),
                "apart" if value == "yes" => apart = true,
                "apart" => return Err(format!("{VARIABLE}: apart={value} is not yes")),
                "fail" => store_faults = Some(parse_faults(value)?),
                "dir" if value.starts_with('/') => dir = Some(PathBuf::from(value)),
                "device" if value.starts_with('/') => device = Some(PathBuf::from(value)),
                "channel" => {
                    let found = value.parse();
                    channel = Some(found.map_err(|wanted| format!("{VARIABLE}: channel={value}: {wanted}"))?);
                }
                "dir" | "device" => return Err(format!("{VARIABLE}: {key}={value} is not absolute")),
                _ => return Err(format!("{VARIABLE}: unknown key '{key}'")),
            }
        }
        let missing = |key: &str| format!("{VARIABLE}: {key} is missing");
        Ok(Self {
            budget_bytes: budget.ok_or_else(|| missing("budget"))?,
            places: RunPlaces {
                store_bytes: store.ok_or_else(|| missing("store_bytes"))?,
                folder: dir.ok_or_else(|| missing("dir"))?,
                device,
            },
            channel,
            pids,
            counted: true,
            spin: Duration::from_micros(spin_us),
            avoid,
            compress,
            encrypt,
            apart,
            store_faults,
            writes_per_day_bytes,
        })
    }

    /// The DRAM that the program may take.
    pub(crate) fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Keeps the run's directory there as long as the calling thread, and those that it makes, have their
    /// descriptors, whatever happens to those of the program.
    pub(crate) fn keep_folder(&self) {
        // Who may not look into it gets no engine either.
        let _ = lock_for_descendants(&self.places.folder);
    }

    /// The descriptor by which the broker is asked.
    pub(crate) fn channel(&self) -> Option<i32> {
        self.channel.map(|channel| channel.number())
    }

    /// What a program asks for itself: nothing with a name stays in its folder.
    pub(crate) fn of_program(wishes: Wishes) -> Result<Self, String> {
        if !wishes.dir.is_absolute() {
            return Err(format!("{}: wanted an absolute path", wishes.dir.display()));
        }
        Ok(Self {
            budget_bytes: wishes.budget_bytes,
            places: RunPlaces { folder: wishes.dir, store_bytes: wishes.store_bytes, device: None },
            channel: None,
            pids: None,
            counted: false,
            spin: Duration::from_micros(SPIN_US),
            avoid: Vec::new(),
            compress: wishes.compress,
            encrypt: wishes.encrypt,
            apart: false,
            store_faults: None,
            writes_per_day_bytes: wishes.writes_per_day_bytes,
        })
    }

    /// Builds the engine and starts its thread, before the program runs or where it asks for it itself.
    pub(crate) fn start(self) -> Result<(), String> {
        ground::note_program();
        ground::note_first_thread();
        if self.counted {
            ground::note_descriptors();
        }
        let is_of_run = self.counted;
        let is_apart = stands_apart(self.apart);
        self.start_with(is_apart, |engine| if is_of_run { engine.check_start() } else { Ok(()) })?;
        if !is_apart {
            ending::note_first_thread();
        }
        Ok(())
    }

    /// The same in a child that has grown, on a thread that stands apart.
    pub(crate) fn start_late(self) -> Result<(), String> {
        self.start_with(false, |_| Ok(()))?;
        fork::stand_on_own_feet();
        Ok(())
    }

    /// Opens what an engine needs. What this process may not, the broker of its run does; it does all for one
    /// that has another number there than here, by which nobody would find its counters.
    fn means(&self) -> Result<Means, String> {
        let is_elsewhere = self.pids.is_some_and(|there| pid_namespace().is_some_and(|here| here != there));
        if is_elsewhere && let Some(granted) = self.granted_means() {
            return Ok(granted);
        }
        self.own_means().or_else(|why| self.granted_means().ok_or(why))
    }

    fn granted_means(&self) -> Option<Means> {
        // How long a file may be is this process's own affair.
        let may_ask = self.counted && self.places.store_bytes <= length_limit();
        let grant = broker::ask(self.channel.filter(|_| may_ask)?, &self.places.folder).ok()?;
        let opened = (grant.userfault, grant.page_map);
        Some(Means { files: grant.files, counters: Some(grant.counters), opened })
    }

    fn own_means(&self) -> Result<Means, String> {
        let files = self.places.open().map_err(|unopened| self.no_store(&unopened))?;
        let counters = self.counted.then(|| self.places.open_counters(ground::program()));
        let counters = counters.transpose().map_err(|unopened| unopened.to_string())?;
        let userfault = Userfault::new(Forks::Followed).map_err(|error| error.to_string())?;
        let page_map = PageMap::open().map_err(|errno| format!("/proc/thread-self/pagemap: {errno}"))?;
        Ok(Means { files, counters, opened: (userfault, page_map) })
    }

    /// Why no file can be made for the pages, with the remedy where it is known. The directory of a run is
    /// for the user who started it.
    fn no_store(&self, unopened: &Unopened) -> String {
        let wanted = match unopened.errno {
            Errno::ACCESS if self.counted => {
                let apart = if self.apart { "" } else { "--apart (enough for forked processes), " };
                format!(
                    "; the program changed its user, and overdrive cannot be asked (it has ended, or the \
                     program closed the run's descriptors, from 700 on, and is in another network): wanted \
                     {apart}--backend swap, or setpriv before overdrive"
                )
            }
            Errno::FBIG => "; wanted ulimit -f unlimited".to_owned(),
            _ => String::new(),
        };
        format!("{unopened}{wanted}")
    }

    fn start_with(
        self,
        watches_exec: bool,
        check: impl FnOnce(&Engine) -> Result<(), EngineError>,
    ) -> Result<(), String> {
        // The one of the standard library looks into the environment, which may be away by then.
        std::panic::set_hook(Box::new(|defect| say(&format!("overdrive extend: {defect}\n"))));
        // As long as this thread opens descriptors: those of the others have tables of their own by then.
        let _low = ground::LowDescriptors::take();
        self.channel.into_iter().for_each(Channel::keep);
        let mut means = self.means()?;
        let parts = means.parts(self.places.store_bytes)?;
        let stats = means.stats()?;
        let config = Config {
            // More than there is limits nothing, and would only make tables large.
            budget_bytes: self.budget_bytes.min(machine_bytes()),
            store: means.files.store,
            parts,
            forks: Forks::Followed,
            opened: Some(means.opened),
            store_bytes: self.places.store_bytes,
            managed_bytes_max: MANAGED_BYTES_MAX,
            seed: seed(),
            spin: self.spin,
            stats,
            compress: self.compress,
            seal: if self.encrypt { Some(seal()?) } else { None },
            store_faults: self.store_faults,
            writes_per_day_bytes: self.writes_per_day_bytes,
            at_fork: Some(&fork::AT_FORK),
            notify: Some(tell),
        };
        let mut engine = Engine::new(config).map_err(|error| no_engine(&error))?;
        check(&engine).map_err(|error| error.to_string())?;
        let (stats, hints) = (engine.stats(), engine.hints());
        let agent = engine.agent().map_err(|error| error.to_string())?;
        let life = if watches_exec { Life::of_this_program() } else { Ok(Life::unknown()) };
        let life = life.map_err(|errno| format!("a pipe: {errno}"))?;
        let agents_end = life.number();
        let (program, is_apart) = (ground::program(), stands_apart(self.apart));
        let places = Places::among(&allowed_cpus().unwrap_or_default(), &self.avoid, program);
        let number = start_beside("overmem-agent", is_apart, move |started| {
            ground::note_agent();
            started.open();
            if is_apart { apart::attend(&agent, program, life) } else { agent.run() }
        })?;
        apart::note_agent(number, agents_end);
        // After the agent, whose stack it must leave alone.
        let name = if is_apart { format!("overmem:{program}") } else { "overmem".to_owned() };
        let number = start_beside(&name, is_apart, move |started| serve(engine, &places, is_apart, started))?;
        apart::note_engine(number);
        // Once and for all, so not before nothing can fail any more.
        fork::end_children_with_engine();
        api::note_running(stats, hints);
        Ok(())
    }
}

/// Why there is no engine. What it maps beside the program may be more than the kernel lets it.
fn no_engine(error: &EngineError) -> String {
    let is_strict =
        || std::fs::read("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.starts_with(b"2"));
    if matches!(error, EngineError::System { errno: Errno::NOMEM, .. }) && is_strict() {
        return format!("{error}; wanted vm.overcommit_memory=0 or 1, or a higher vm.overcommit_ratio");
    }
    error.to_string()
}

/// Whether engines stand apart where that is asked for. The first process of a PID namespace would adopt
/// them, and nobody in it could end it when its engine fails.
pub(crate) fn stands_apart(is_asked_for: bool) -> bool {
    is_asked_for && ground::program() != 1
}

/// Starts a thread, or a process apart, beside the program's, and waits until it says that it has started: it
/// takes locks of the C library then, and a program that forks holds them and waits for the engine to hear of
/// it. So nothing of the program runs before that is done with them. Gives the process's number, 0 for a
/// thread.
fn start_beside(
    name: &str,
    is_apart: bool,
    work: impl FnOnce(&Gate) + Send + 'static,
) -> Result<u32, String> {
    let started = Arc::new(Gate::closed());
    let told = Arc::clone(&started);
    let work = move || {
        ground::stand_apart();
        work(&told);
    };
    let name = CString::new(name).map_err(|_| "a name with a zero byte".to_owned())?;
    let number = if is_apart {
        apart::start(name, STACK_BYTES, work).map_err(|errno| format!("starting a process: {errno}"))?
    } else {
        let made = thread::start(name, STACK_BYTES, work);
        made.map(|()| 0).map_err(no_thread)?
    };
    started.wait(Duration::MAX);
    Ok(number)
}

/// Why there is no thread, with the remedy where it is known.
fn no_thread(errno: Errno) -> String {
    let remedy = if errno == Errno::AGAIN { "; wanted room for two more (ulimit -u, pids.max)" } else { "" };
    format!("starting a thread: {errno}{remedy}")
}

/// The memory of this machine; without an answer all that can be named.
fn machine_bytes() -> u64 {
    // SAFETY: all zeroes is a valid sysinfo, and the kernel writes to it within the call.
    let (info, told) = unsafe {
        let mut info: libc::sysinfo = std::mem::zeroed();
        let told = libc::sysinfo(&raw mut info) == 0;
        (info, told)
    };
    if told { info.totalram.saturating_mul(u64::from(info.mem_unit)) } else { u64::MAX }
}

fn parse_compress(value: &str) -> Result<Compress, String> {
    match value {
        "off" => Ok(Compress::Off),
        "auto" => Ok(Compress::Auto),
        "lz4" => Ok(Compress::Lz4),
        "zstd" => Ok(Compress::Zstd),
        _ => Err(format!("{VARIABLE}: compress={value} is not off, auto, lz4 or zstd")),
    }
}

fn parse_cpus(value: &str) -> Result<Vec<usize>, String> {
    let cpus: Option<Vec<usize>> = value.split(':').map(|cpu| cpu.parse().ok()).collect();
    cpus.ok_or_else(|| format!("{VARIABLE}: avoid={value} is not CPU:CPU..."))
}

/// Where the engine runs, and where all else that it needs.
#[derive(Debug, PartialEq, Eq)]
struct Places {
    own: Option<usize>,
    others: Vec<usize>,
}

impl Places {
    /// The disk's completions interrupt what runs where they arrive: there the program may wait for them, but
    /// who serves its faults should not (with one queue on a machine with two processors that took a third of
    /// the faults a second). Engines of several programs go different ways.
    fn among(allowed: &[usize], avoid: &[usize], process: u32) -> Self {
        let free: Vec<usize> = allowed.iter().copied().filter(|cpu| !avoid.contains(cpu)).collect();
        let choice = if free.is_empty() { allowed } else { &free };
        let own = choice.get(process as usize % choice.len().max(1)).copied();
        Self { own, others: allowed.iter().copied().filter(|&cpu| Some(cpu) != own).collect() }
    }
}

fn parse_faults(value: &str) -> Result<StoreFaults, String> {
    let numbers: Option<Vec<u64>> = value.split(':').map(|number| number.parse().ok()).collect();
    match numbers.as_deref() {
        Some(&[seed, reads, writes, bad]) => Ok(StoreFaults::new(seed, reads, writes, bad)),
        Some(&[seed, reads, writes, bad, end]) => {
            Ok(StoreFaults::new(seed, reads, writes, bad).with_end_after(end))
        }
        _ => Err(format!("{VARIABLE}: fail={value} is not SEED:READS:WRITES:BAD[:END]")),
    }
}

/// Stops the program when it is dropped: one that the engine stands apart from, or the one that it is part
/// of.
struct ProgramEndsWithEngine(Option<Arc<Origin>>);

impl Drop for ProgramEndsWithEngine {
    fn drop(&mut self) {
        if let Some(origin) = &self.0 {
            // One that is another program by now needs no engine.
            if origin.is_there() {
                origin.kill();
            }
            return;
        }
        // SAFETY: SIGKILL to this very process. The first process of a PID namespace is spared by it, and
        // ends itself: the call returns to none of its threads.
        unsafe {
            libc::kill(libc::getpid(), libc::SIGKILL);
            libc::_exit(128 + libc::SIGKILL);
        }
    }
}

fn tell(notice: &Notice) {
    say(&format!("overdrive extend: process {}: {notice}\n", ground::program()));
}

/// Says a line on the program's standard error, unless that would have to be waited for: whoever reads it may
/// wait for the very thread that calls this. The threads of this library have no such descriptor of their
/// own: it is borrowed from the program's first thread, and where that has ended nothing is said.
pub(crate) fn say(line: &str) {
    let Some(error) = ground::first_threads(2) else { return };
    let mut look = libc::pollfd { fd: error.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one structure is passed, and the bytes are valid for the call. A pipe that is ready takes a
    // line of less than PIPE_BUF bytes without waiting.
    unsafe {
        if libc::poll(&raw mut look, 1, 0) == 1 && look.revents & libc::POLLOUT != 0 {
            libc::write(error.as_raw_fd(), line.as_ptr().cast(), line.len());
        }
    }
}

fn serve(mut engine: Engine, places: &Places, is_apart: bool, started: &Gate) {
    // Before the engine is dropped, also when it panics: it would give the memory back to the kernel, and
    // what is away would read as zeroes.
    let origin = match is_apart.then(|| Origin::open(ground::program()).map(Arc::new)) {
        // It has ended.
        Some(Err(_)) => return,
        origin => origin.and_then(Result::ok),
    };
    let _ends = ProgramEndsWithEngine(origin.clone());
    fork::note_engine();
    engine.receive_at(&fork::DOOR, ground::program());
    // A thread that wanders between processors takes its wake-ups with it: on a machine with two it halved
    // the rate of faults.
    if let Some(own) = places.own {
        engine.keep_workers_to(&places.others);
        // One that cannot be had is no reason not to serve.
        let _ = pin_current_thread(own);
    }
    // The program's threads may share that processor, and who waits for a page waits for this thread. Only a
    // privileged user's gets it.
    let _ = raise_current_thread();
    engine.watch_process(&ground::own_ranges(), ground::program());
    let mut ending = match origin {
        Some(origin) => ending::Watch::apart(origin, apart::agent().ok(), ENDING_EVERY),
        None => ending::Watch::new(OWN_THREADS, ENDING_EVERY),
    };
    started.open();
    let errno = loop {
        if let Err(errno) = engine.turn() {
            break errno;
        }
        ending.look();
    };
    // Without the engine the program would wait for ever, or read zeroes where its data was: it is stopped.
    let remedy = if errno == Errno::MFILE { "; wanted a higher ulimit -Hn" } else { "" };
    let why = in_plain_words(errno);
    ground::give_up_standard_streams();
    say(&format!("overdrive extend: the engine failed ({why}); the program is stopped{remedy}\n"));
}

/// What an engine needs of the kernel and of the file system.
struct Means {
    files: RunFiles,
    counters: Option<File>,
    opened: (Userfault, PageMap),
}

impl Means {
    /// This process's parts of a device.
    fn parts(&mut self, most_bytes: u64) -> Result<Option<Parts>, String> {
        let Some(leases) = self.files.leases.take() else { return Ok(None) };
        let bytes = device_bytes(&self.files.store).map_err(|error| format!("size of the store: {error}"))?;
        Ok(Some(Parts::new(leases, bytes, most_bytes)))
    }

    /// Its counters.
    fn stats(&self) -> Result<Stats, String> {
        let Some(file) = &self.counters else { return Ok(Stats::default()) };
        // Without /proc it has none. That may be another PID namespace's: this process is `self` there too.
        let is_own = ground::program() == std::process::id();
        let process = if is_own { "self".to_owned() } else { ground::program().to_string() };
        let name = std::fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
        Stats::create(file, name.trim_ascii_end()).map_err(|error| format!("the file of counters: {error}"))
    }
}

fn seal() -> Result<Seal, String> {
    Seal::with_new_key().map_err(|errno| format!("a key that stays in memory: {errno}"))
}

/// Different in each process, so that nobody can prepare contents whose marks are equal.
fn seed() -> u64 {
    let mut bytes = [0u8; 8];
    // A kernel that gives nothing leaves zeroes, which still works.
    let _ = fill_with_random(&mut bytes);
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_read() {
        let setup = Setup::parse("budget=1048576,store_bytes=4096,dir=/x/y,spin_us=3,avoid=0:2").unwrap();
        let places = RunPlaces { folder: PathBuf::from("/x/y"), store_bytes: 4096, device: None };
        assert_eq!((setup.budget_bytes, setup.places, setup.channel), (1 << 20, places, None));
        assert_eq!(setup.spin, Duration::from_micros(3));
        assert_eq!(setup.avoid, [0, 2]);
    }

    #[test]
    fn the_engine_leaves_the_interrupted_cpus_alone_where_it_can() {
        let own = |allowed: &[usize], avoid: &[usize], process| Places::among(allowed, avoid, process).own;
        assert_eq!(own(&[0, 1], &[1], 77), Some(0));
        assert_eq!((own(&[0, 1], &[0, 1], 4), own(&[0, 1], &[0, 1], 5)), (Some(0), Some(1)));
        assert_eq!(Places::among(&[2, 3, 5], &[3], 7), Places { own: Some(5), others: vec![2, 3] });
        assert_eq!(Places::among(&[4], &[4], 7), Places { own: Some(4), others: vec![] });
        assert_eq!(own(&[], &[0], 7), None);
    }

    #[test]
    fn nonsense_is_named() {
        for (text, wanted) in [
            ("budget=1", "store_bytes is missing"),
            ("budget=x,store_bytes=1,dir=/", "budget=x is no number"),
            ("budget=1,store_bytes=1,dir=x", "not absolute"),
            ("avoid=1:x", "is not CPU"),
            ("compress=1", "is not off, auto, lz4 or zstd"),
            ("encrypt=1", "is not yes"),
            ("device=sda", "device=sda is not absolute"),
            ("pids=self", "pids=self is no number"),
            ("channel=3:1:a:b", "wanted DESCRIPTOR:INODE:NAME:SECRET"),
            ("colour=1", "unknown key 'colour'"),
            ("fail=1:2:3", "is not SEED"),
            ("", "'' has no value"),
        ] {
            let message = Setup::parse(text).unwrap_err();
            assert!(message.contains(wanted), "{text}: {message}");
        }
    }
}
