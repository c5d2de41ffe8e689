//! What zswap holds of a group's memory where nobody is charged for it, which is on version 1: the group's
//! limit is kept as much below its budget, so that both together are within it.
//!
//! Version 2 charges the group itself (Linux 5.19). How much of the pool is a group's the kernel does not
//! tell on version 1; it is estimated. How much zswap may hold in all, and whether it is on, is the host's
//! business.

use super::reclaim::{Timer, number};
use super::{GroupError, MemoryGroup, Version};
use crate::uffd::PAGE;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a group is looked at: where nothing is in zswap, and where something is. Reading the group's
/// counters so often also keeps them fresh (see `Reclaimer::refresh`).
const EVERY: Duration = Duration::from_millis(50);
const EVERY_USED: Duration = Duration::from_millis(20);

/// The longest time between two attempts of which none gets a limit lower.
const FRUITLESS_MAX: Duration = Duration::from_millis(500);

/// How long a limit is being lowered before there is a rest, and how long one attempt may take. The kernel
/// tries until all above the new limit is out, which is for ever where threads take memory as fast as it
/// comes out; a little at the right moment it gets.
const WORK: Duration = Duration::from_millis(10);
const ATTEMPT: Duration = Duration::from_micros(300);

/// A limit that is off by less than this part of the budget stays: an estimate that wobbles reclaims
/// nothing.
const BUDGET_PER_NEAR: u64 = 64;

/// An attempt is for at most this part of the budget, for half of what failed, and for at least so much.
const BUDGET_PER_STEP: u64 = 16;
const STEP_MIN: u64 = 4 * PAGE;

/// The limit at first, where it is known that more than the budget will be taken.
const BUDGET_PER_START: u64 = 4;

/// So much of the budget is to be swapped before it is believed how far pages compress.
const BUDGET_PER_SAMPLE: u64 = 64;

/// At least this part of the budget is left to pages in place, however much zswap holds.
const BUDGET_PER_FLOOR: u64 = 8;

/// From here on a limit is none: version 1 has the largest number there.
const NO_LIMIT: u64 = i64::MAX as u64 / 2;

/// In words, when [`Share::is_over`].
pub const OVER: &str =
    "zswap holds more than the budget leaves beside an eighth of it: the pages hardly compress";

/// In words, when it is not known what zswap holds.
pub const UNKNOWN: &str = "zswap is on, and the kernel does not tell how much DRAM it takes for a group";

/// What one look at a group found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// What the group and zswap's part of its memory may take together.
    pub budget_bytes: u64,
    /// DRAM that zswap takes for pages of the group, about; none when zswap is on and the kernel does not
    /// tell.
    pub zswap_bytes: Option<u64>,
    /// Whether both are more than the budget though the limit is as low as it gets: the pages hardly
    /// compress.
    pub is_over: bool,
}

/// Keeps the limits of groups of version 1 below their budgets by what zswap holds of them, in a thread of
/// its own, until it is dropped; then the limits are the budgets again.
#[derive(Debug)]
pub struct ZswapFollower {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ZswapFollower {
    /// Starts it; none on version 2. The limits that the groups have now are their budgets, and one that
    /// somebody sets later is the new budget. Of groups that are about to take `expected_bytes`, more than
    /// their budgets, the limit is low at first and comes up as it turns out how far the pages compress:
    /// to lower it under threads that fault all the time takes seconds. `told` hears of each look: the
    /// group's place in `groups`, and what was found.
    ///
    /// # Errors
    /// When a group cannot be read, or there is no thread.
    pub fn start(
        groups: &[&MemoryGroup],
        expected_bytes: Option<u64>,
        mut told: impl FnMut(usize, &Share) + Send + 'static,
    ) -> Result<Option<Self>, GroupError> {
        if groups.iter().all(|group| group.version == Version::V2) {
            return Ok(None);
        }
        let keeper = |group: &&MemoryGroup| Keeper::open(group.path(), Sources::of_host(), expected_bytes);
        let keepers = groups.iter().map(keeper);
        let mut keepers = keepers.collect::<Result<Vec<_>, _>>()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (ready, hear) = mpsc::channel();
        let work = move || {
            let timer = match Timer::new() {
                Ok(timer) => timer,
                Err(error) => return drop(ready.send(Err(error))),
            };
            // Whoever waits for it is there.
            let _ = ready.send(Ok(()));
            while !stopped.load(Ordering::Relaxed) {
                let mut rest = EVERY;
                for (place, keeper) in keepers.iter_mut().enumerate() {
                    // One that is gone is looked at in vain until the others are gone too.
                    if let Ok(share) = keeper.look(&timer) {
                        rest = rest.min(keeper.rest(&share));
                        told(place, &share);
                    }
                }
                std::thread::park_timeout(rest);
            }
        };
        let fail = |error| {
            let path = groups.first().map(|group| group.path().to_owned()).unwrap_or_default();
            GroupError::Io { path, error }
        };
        let thread = std::thread::Builder::new().name("zswap".to_owned()).spawn(work).map_err(fail)?;
        let follower = Self { stop, thread: Some(thread) };
        hear.recv().unwrap_or_else(|_| Err(io::Error::other("its thread ended"))).map_err(fail)?;
        Ok(Some(follower))
    }
}

impl Drop for ZswapFollower {
    /// Ends at once, or when a step that is being reclaimed is out.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // What it might have panicked of is no reason to end the program.
            let _ = thread.join();
        }
    }
}

/// Where the kernel tells of zswap.
#[derive(Debug)]
struct Sources {
    meminfo: PathBuf,
    /// What kernels before 5.19 have, when it is mounted.
    debug: PathBuf,
    enabled: PathBuf,
}

/// All that zswap holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pool {
    /// DRAM that it takes.
    bytes: u64,
    /// The pages in it, as large as they are when they are in place.
    whole_bytes: u64,
}

impl Sources {
    fn of_host() -> Self {
        Self {
            meminfo: "/proc/meminfo".into(),
            debug: "/sys/kernel/debug/zswap".into(),
            enabled: "/sys/module/zswap/parameters/enabled".into(),
        }
    }

    /// None when zswap is on and the kernel does not tell what it holds.
    fn pool(&self) -> Option<Pool> {
        let text = fs::read_to_string(&self.meminfo).unwrap_or_default();
        let line = |name: &str| {
            let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            rest.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
        };
        let file = |name: &str| -> Option<u64> {
            fs::read_to_string(self.debug.join(name)).ok()?.trim().parse().ok()
        };
        let pool = |bytes, whole_bytes| Pool { bytes, whole_bytes };
        let told = line("Zswap").zip(line("Zswapped"));
        let told = told
            .or_else(|| file("pool_total_size").zip(file("stored_pages").map(|pages| pages * PAGE)))
            .map(|(bytes, whole_bytes)| pool(bytes, whole_bytes));
        told.or_else(|| (!self.is_on()).then(|| pool(0, 0)))
    }

    fn is_on(&self) -> bool {
        fs::read_to_string(&self.enabled).is_ok_and(|text| text.trim() == "Y")
    }
}

impl Pool {
    /// The part of it that is a group's with so much in swap. All that the group has there is taken to be
    /// in zswap as far as it can be: rather too much than too little, where others' pages are in it and
    /// some of the group's are on the drive.
    fn part_of(&self, swapped_bytes: u64) -> u64 {
        match self.whole_bytes {
            0 => 0,
            whole if swapped_bytes >= whole => self.bytes,
            whole => (u128::from(self.bytes) * u128::from(swapped_bytes) / u128::from(whole)) as u64,
        }
    }
}

fn floor_of(budget: u64) -> u64 {
    budget / BUDGET_PER_FLOOR / PAGE * PAGE
}

/// The limit for a budget of which zswap holds so much, where another stands.
fn limit_for(budget: u64, held: u64, stands: u64) -> u64 {
    if budget >= NO_LIMIT || held == 0 {
        return budget;
    }
    let wanted = budget.saturating_sub(held).max(floor_of(budget)) / PAGE * PAGE;
    if wanted.abs_diff(stands) < budget / BUDGET_PER_NEAR { stands } else { wanted }
}

/// The limit for a group that will have so much in all, of which some is swapped and held by zswap now:
/// where budget = limit + (expected - limit) x held / swapped.
fn limit_foreseen(budget: u64, expected: u64, held: u64, swapped: u64) -> u64 {
    let ratio = held as f64 / swapped.max(1) as f64;
    let limit = (budget as f64 - ratio * expected as f64) / (1.0 - ratio);
    if ratio >= 1.0 { floor_of(budget) } else { (limit as u64 / PAGE * PAGE).clamp(floor_of(budget), budget) }
}

/// One group and its budget.
#[derive(Debug)]
struct Keeper {
    limit: fs::File,
    stat: PathBuf,
    usage: PathBuf,
    sources: Sources,
    budget: u64,
    /// What the group will take, until it has.
    expected: Option<u64>,
    /// The limit as it was last seen or set: another one is somebody's wish.
    stands: u64,
    /// How much lower the next attempt goes, unless less is wanted.
    step: u64,
    /// How long to wait for the next look, as the last ones got the limit no lower than it was.
    fruitless: Option<Duration>,
    /// It is still higher than it should be.
    is_off: bool,
}

impl Keeper {
    fn open(group: &Path, sources: Sources, expected: Option<u64>) -> Result<Self, GroupError> {
        let (path, stat) = (group.join("memory.limit_in_bytes"), group.join("memory.stat"));
        let fail = |error| GroupError::Io { path: path.clone(), error };
        let limit = fs::File::options().read(true).write(true).open(&path).map_err(fail)?;
        let stands = number(&limit).map_err(fail)?;
        let usage = group.join("memory.usage_in_bytes");
        let expected = expected.filter(|&bytes| bytes > stands && sources.is_on());
        let mut keeper = Self {
            limit,
            stat,
            usage,
            sources,
            budget: stands,
            expected,
            stands,
            step: u64::MAX,
            fruitless: None,
            is_off: false,
        };
        if expected.is_some() {
            // Where something is in the group that cannot be got out now, it comes down later.
            let _ = keeper.set(stands / BUDGET_PER_START / PAGE * PAGE);
        }
        Ok(keeper)
    }

    /// Looks, and moves the limit where it is off, down as far as it goes in a short time.
    fn look(&mut self, timer: &Timer) -> io::Result<Share> {
        let limit = number(&self.limit)?;
        if limit != self.stands {
            (self.budget, self.stands, self.expected) = (limit, limit, None);
        }
        let (zswap_bytes, swapped) = self.held();
        let held = zswap_bytes.unwrap_or(0);
        let wanted = match self.expected {
            Some(expected) if zswap_bytes.is_some() => self.foresee(expected, held, swapped),
            _ => limit_for(self.budget, held, self.stands),
        };
        if wanted > self.stands {
            self.set(wanted)?;
        }
        let before = self.stands;
        self.lower_to(wanted, timer)?;
        self.fruitless = (wanted < before && self.stands == before)
            .then(|| self.fruitless.map_or(EVERY_USED, |time| (time * 2).min(FRUITLESS_MAX)));
        self.is_off = wanted < self.stands;
        let (floor, near) = (floor_of(self.budget), self.budget / BUDGET_PER_NEAR);
        let is_over = held > 0 && self.stands <= floor + near && self.stands + held > self.budget + near;
        Ok(Share { budget_bytes: self.budget, zswap_bytes, is_over })
    }

    /// Until the next look.
    fn rest(&self, share: &Share) -> Duration {
        let used = share.zswap_bytes != Some(0) || self.expected.is_some();
        let time = if self.is_off {
            WORK / 2
        } else if used {
            EVERY_USED
        } else {
            EVERY
        };
        self.fruitless.unwrap_or(time)
    }

    /// DRAM that zswap takes for the group, and what the group has in swap. The group's counters are only
    /// read when it matters.
    fn held(&self) -> (Option<u64>, u64) {
        let Some(pool) = self.sources.pool() else { return (None, 0) };
        if pool.bytes == 0 && self.expected.is_none() {
            return (Some(0), 0);
        }
        let text = fs::read_to_string(&self.stat).unwrap_or_default();
        let swapped = text.lines().find_map(|line| line.strip_prefix("total_swap ")?.trim().parse().ok());
        (swapped.map(|swapped| pool.part_of(swapped)), swapped.unwrap_or(0))
    }

    /// The limit for what is expected, until nearly all of that is there.
    fn foresee(&mut self, expected: u64, held: u64, swapped: u64) -> u64 {
        let usage = fs::read_to_string(&self.usage).ok().and_then(|text| text.trim().parse().ok());
        if usage.unwrap_or(0) + swapped >= expected - expected / 32 {
            self.expected = None;
        }
        if swapped < self.budget / BUDGET_PER_SAMPLE {
            return self.stands;
        }
        let wanted = limit_foreseen(self.budget, expected, held, swapped);
        if wanted.abs_diff(self.stands) < self.budget / BUDGET_PER_NEAR { self.stands } else { wanted }
    }

    fn lower_to(&mut self, wanted: u64, timer: &Timer) -> io::Result<()> {
        let begun = Instant::now();
        while wanted < self.stands && begun.elapsed() < WORK {
            self.step = self.step.clamp(STEP_MIN, (self.budget / BUDGET_PER_STEP).max(STEP_MIN));
            let limit = (self.stands.saturating_sub(self.step) / PAGE * PAGE).max(wanted);
            timer.arm(ATTEMPT)?;
            let set = self.set(limit);
            // A timer that cannot be disarmed only interrupts what is restarted.
            let _ = timer.arm(Duration::ZERO);
            match set {
                Ok(()) => self.step *= 2,
                // Its time was up.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => self.step /= 2,
                // The kernel found nothing that it could get out.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    self.step /= 2;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn set(&mut self, limit: u64) -> io::Result<()> {
        self.limit.write_at(format!("{limit}\n").as_bytes(), 0)?;
        self.stands = number(&self.limit)?;
        Ok(())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if number(&self.limit).is_ok_and(|limit| limit == self.stands) {
            // To raise it asks nothing of the kernel; a group that is gone has none.
            let _ = self.set(self.budget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const BUDGET: u64 = 256 * MIB;

    /// A host and a group on it, as plain files.
    struct Host {
        folder: tempfile::TempDir,
    }

    impl Host {
        fn new() -> Self {
            let host = Self { folder: tempfile::tempdir().unwrap() };
            host.write("memory.limit_in_bytes", &format!("{BUDGET}\n"));
            host.pool(0, 0);
            host
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.folder.path().join(name), text).unwrap();
        }

        fn pool(&self, mib: u64, whole_mib: u64) {
            let (kib, whole_kib) = (mib * 1024, whole_mib * 1024);
            self.write(
                "meminfo",
                &format!(
                    "MemTotal:       24683520 kB\nZswap:        {kib:>8} kB\nZswapped:     {whole_kib:>8} kB\n"
                ),
            );
        }

        fn swapped(&self, mib: u64) {
            self.write("memory.stat", &format!("swap 0\ntotal_cache 1\ntotal_swap {}\n", mib * MIB));
        }

        fn keeper(&self) -> Keeper {
            self.keeper_of(None)
        }

        fn keeper_of(&self, expected: Option<u64>) -> Keeper {
            let path = |name: &str| self.folder.path().join(name);
            let sources =
                Sources { meminfo: path("meminfo"), debug: path("debug"), enabled: path("enabled") };
            Keeper::open(self.folder.path(), sources, expected).unwrap()
        }

        fn limit(&self) -> u64 {
            number(&fs::File::open(self.folder.path().join("memory.limit_in_bytes")).unwrap()).unwrap()
        }
    }

    fn looks(keeper: &mut Keeper, count: usize) -> Vec<Share> {
        let timer = Timer::new().unwrap();
        (0..count).map(|_| keeper.look(&timer).unwrap()).collect()
    }

    /// A host on which zswap holds 32 MiB of the group, and the limit is lower by that.
    fn followed() -> (Host, Keeper) {
        let host = Host::new();
        host.pool(32, 96);
        host.swapped(96);
        let mut keeper = host.keeper();
        looks(&mut keeper, 2);
        assert_eq!(host.limit(), 224 * MIB);
        (host, keeper)
    }

    #[test]
    fn the_limit_goes_down_to_what_zswap_leaves_and_up_again() {
        let host = Host::new();
        let mut keeper = host.keeper();
        // No memory.stat yet: it is not asked for while zswap is empty.
        let share = Share { budget_bytes: BUDGET, zswap_bytes: Some(0), is_over: false };
        assert_eq!((looks(&mut keeper, 1)[0], host.limit()), (share, BUDGET));
        host.pool(100, 270);
        host.swapped(270);
        for _ in 0..3 {
            assert_eq!(looks(&mut keeper, 1)[0], Share { zswap_bytes: Some(100 * MIB), ..share });
            assert_eq!(host.limit(), 156 * MIB);
        }
        // It empties again, and the limit is the budget at once.
        host.pool(0, 0);
        looks(&mut keeper, 1);
        assert_eq!(host.limit(), BUDGET);
    }

    #[test]
    fn where_more_than_the_budget_is_expected_the_limit_comes_from_below() {
        let host = Host::new();
        host.swapped(0);
        drop(host.keeper_of(Some(2 * BUDGET)));
        let mut keeper = host.keeper_of(Some(2 * BUDGET));
        assert_eq!(host.limit(), BUDGET, "zswap is off");
        looks(&mut keeper, 2);
        host.write("enabled", "Y\n");
        drop(host.keeper_of(Some(BUDGET)));
        assert_eq!(host.limit(), BUDGET, "all of it has its place");
        let mut keeper = host.keeper_of(Some(2 * BUDGET));
        for (usage, held, swapped, limit) in [
            (10, 0, 0, 64),
            (64, 1, 3, 64),
            // A third of 384 MiB and 128 MiB are the budget.
            (64, 20, 60, 128),
            (128, 100, 300, 128),
            (128, 128, 384, 128),
            // From here on it is the other rule's.
            (128, 160, 380, 96),
        ] {
            host.write("memory.usage_in_bytes", &format!("{}\n", usage * MIB));
            host.pool(held, swapped);
            host.swapped(swapped);
            looks(&mut keeper, 1);
            assert_eq!(host.limit(), limit * MIB, "{usage} {held} {swapped}");
        }
        drop(keeper);
        assert_eq!(host.limit(), BUDGET);
        assert_eq!(limit_foreseen(BUDGET, 2 * BUDGET, 5, 4), BUDGET / 8, "nothing compresses");
        assert_eq!(limit_foreseen(BUDGET, 2 * BUDGET, 0, 4), BUDGET, "all are zeroes, or on the drive");
    }

    #[test]
    fn an_estimate_that_wobbles_moves_nothing() {
        let host = Host::new();
        host.swapped(300);
        let mut keeper = host.keeper();
        for (held, limit) in [(3, 256), (16, 240), (18, 240), (13, 240), (19, 240), (20, 236), (17, 236)] {
            host.pool(held, 300);
            looks(&mut keeper, 1);
            assert_eq!(host.limit(), limit * MIB, "{held} MiB held");
        }
    }

    #[test]
    fn a_part_of_the_pool_is_the_groups_where_others_have_pages_in_it() {
        let host = Host::new();
        host.pool(90, 270);
        for (swapped, held) in [(0, 0), (90, 30), (270, 90), (1000, 90)] {
            host.swapped(swapped);
            assert_eq!(host.keeper().held().0, Some(held * MIB), "{swapped} MiB swapped");
        }
        assert_eq!(Pool { bytes: 5, whole_bytes: 0 }.part_of(7), 0);
        assert_eq!(Pool { bytes: 1 << 62, whole_bytes: 1 << 63 }.part_of(1 << 62), 1 << 61);
    }

    #[test]
    fn an_eighth_of_the_budget_stays_and_what_is_above_it_is_told() {
        let host = Host::new();
        host.pool(230, 240);
        host.swapped(240);
        let mut keeper = host.keeper();
        let shares = looks(&mut keeper, 2);
        assert_eq!(host.limit(), BUDGET / 8);
        assert!(shares.iter().all(|share| share.is_over), "{shares:?}");
        host.pool(224, 240);
        assert!(!looks(&mut keeper, 1)[0].is_over, "that is the budget");
    }

    #[test]
    fn a_limit_that_somebody_sets_is_the_new_budget() {
        let (host, mut keeper) = followed();
        for (set, kept) in [(128, 96), (512, 480), (NO_LIMIT / MIB + 1, NO_LIMIT / MIB + 1)] {
            host.write("memory.limit_in_bytes", &format!("{}\n", set * MIB));
            let shares = looks(&mut keeper, 2);
            assert!(shares.iter().all(|share| share.budget_bytes == set * MIB), "{shares:?}");
            assert_eq!(host.limit(), kept * MIB);
        }
    }

    #[test]
    fn the_budget_stands_again_in_the_end_unless_somebody_set_another() {
        let (host, keeper) = followed();
        drop(keeper);
        assert_eq!(host.limit(), BUDGET);
        let mut keeper = host.keeper();
        looks(&mut keeper, 1);
        host.write("memory.limit_in_bytes", "12345856");
        drop(keeper);
        assert_eq!(host.limit(), 12_345_856);
    }

    #[test]
    fn older_kernels_are_asked_elsewhere_or_tell_nothing() {
        let host = Host::new();
        host.swapped(96);
        host.write("meminfo", "MemTotal:       24683520 kB\n");
        let held = || host.keeper().held().0;
        assert_eq!(held(), Some(0), "it is off");
        host.write("enabled", "Y\n");
        assert_eq!(held(), None);
        assert_eq!(looks(&mut host.keeper(), 1)[0].zswap_bytes, None);
        assert_eq!(host.limit(), BUDGET);
        fs::create_dir(host.folder.path().join("debug")).unwrap();
        host.write("debug/pool_total_size", &format!("{}\n", 40 * MIB));
        host.write("debug/stored_pages", &format!("{}\n", 96 * MIB / PAGE));
        assert_eq!(held(), Some(40 * MIB));
        // Where swap is not counted by group nobody knows whose pages they are.
        host.write("memory.stat", "total_cache 1\n");
        assert_eq!(held(), None);
    }
}
