//! Regions above their budget as a program uses them: contents, pins, hints, and the engine's end.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

use overdrive_base::rng::Rng;
use overdrive_extend::{Compress, Engine, Options, Region, RegionError, StartError};
use overdrive_sys::page_map::PageMap;
use overdrive_sys::relay::effective_user;
use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
const DRAM: usize = 32 * MIB;
/// Words of a region of four times that.
const WORDS: usize = 4 * DRAM / 8;
const PAGE_WORDS: usize = 512;

fn skip(name: &str, reason: &str) {
    eprintln!("skipped: {name}: {reason}");
    if let Some(log) = std::env::var_os("OVERDRIVE_SKIP_LOG") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
        std::io::Write::write_all(&mut file, format!("{name}: {reason}\n").as_bytes()).unwrap();
    }
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// An engine; `None` where the kernel does not permit it.
fn start(name: &str, folder: &Path, compress: Compress) -> Option<Engine> {
    start_with(name, folder, |options| options.compress = compress)
}

fn start_with(name: &str, folder: &Path, change: impl FnOnce(&mut Options)) -> Option<Engine> {
    let mut options = Options::new(folder, DRAM as u64, (8 * DRAM) as u64);
    change(&mut options);
    match Engine::start(options) {
        Ok(engine) => Some(engine),
        Err(error @ (StartError::Pager(_) | StartError::Key(_))) => {
            skip(name, &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Random, so that no page is like another.
fn fill(region: &mut Region<u64>) {
    let mut rng = Rng::new(3);
    region.iter_mut().for_each(|word| *word = rng.next_u64());
}

fn check(region: &Region<u64>) {
    let mut rng = Rng::new(3);
    let wrong = region.iter().filter(|&&word| word != rng.next_u64()).count();
    assert_eq!(wrong, 0, "words are not as they were written");
}

/// How many pages of a range of words are in place.
fn in_place(region: &Region<u64>, words: Range<usize>) -> usize {
    let start = std::ptr::from_ref(&region[words.start]) as u64;
    let (map, pages) = (PageMap::open().unwrap(), words.len() / PAGE_WORDS);
    let count = |first: usize| {
        map.present(start + first as u64 * 4096, (pages - first).min(64)).unwrap().count_ones() as usize
    };
    (0..pages).step_by(64).map(count).sum()
}

/// Waits until it is so; false when that does not come.
fn comes(mut so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while !so() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

#[test]
fn a_region_of_four_times_its_dram_keeps_its_content() {
    const NAME: &str = "a_region_of_four_times_its_dram_keeps_its_content";
    let folder = scratch();
    for compress in [Compress::Off, Compress::Auto] {
        let Some(engine) = start(NAME, folder.path(), compress) else { return };
        let mut region = engine.region::<u64>(WORDS).unwrap();
        assert!(region.iter().step_by(PAGE_WORDS).take(100).all(|&word| word == 0));
        fill(&mut region);
        let bytes = engine.region::<u8>(3 * MIB + 1).unwrap();
        assert_eq!((bytes.len(), bytes[3 * MIB]), (3 * MIB + 1, 0));
        check(&region);
        let counters = engine.counters();
        assert!(counters.resident_bytes <= DRAM as u64, "{counters:?}");
        assert!(counters.stored_bytes >= (2 * DRAM) as u64 && counters.loads > 0, "{counters:?}");
        assert_eq!((counters.dram_bytes, counters.lost_pages), (DRAM as u64, 0), "{counters:?}");
        drop(engine);
        // The region alone keeps the engine.
        region[7] ^= 1;
        region[7] ^= 1;
        check(&region);
        drop(region);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the store has no name");
    }
}

/// What lies in the one file without a name that this process has in the folder.
fn store(folder: &Path) -> Vec<u8> {
    let folder = folder.canonicalize().unwrap();
    let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| entry.path());
    let in_folder = |file: &PathBuf| std::fs::read_link(file).is_ok_and(|to| to.starts_with(&folder));
    let files: Vec<_> = files.filter(in_folder).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    std::fs::read(&files[0]).unwrap()
}

#[test]
fn what_is_on_the_store_can_be_read_there_unless_it_is_encrypted() {
    const NAME: &str = "what_is_on_the_store_can_be_read_there_unless_it_is_encrypted";
    for encrypt in [false, true] {
        let folder = scratch();
        let change = |options: &mut Options| (options.encrypt, options.compress) = (encrypt, Compress::Off);
        let Some(engine) = start_with(NAME, folder.path(), change) else { return };
        let mut region = engine.region::<u64>(WORDS).unwrap();
        fill(&mut region);
        check(&region);
        let counters = engine.counters();
        assert!(counters.stored_bytes >= (2 * DRAM) as u64 && counters.loads > 0, "{counters:?}");
        assert_eq!((counters.lost_pages, counters.compressed_bytes), (0, 0), "{counters:?}");
        let firsts: HashSet<u64> = region.iter().step_by(PAGE_WORDS).copied().collect();
        let store = store(folder.path());
        let first = |slot: &[u8]| u64::from_ne_bytes(slot[..8].try_into().unwrap());
        let open = store.chunks_exact(4096).filter(|slot| firsts.contains(&first(slot))).count();
        assert!(if encrypt { open == 0 } else { open > 1000 }, "{open} pages in the open");
    }
}

#[test]
fn what_is_pinned_stays_in_place_and_hints_are_followed() {
    const NAME: &str = "what_is_pinned_stays_in_place_and_hints_are_followed";
    const PINNED: Range<usize> = 0..4 * MIB / 8;
    const OTHER: Range<usize> = 64 * MIB / 8..68 * MIB / 8;
    let folder = scratch();
    let Some(engine) = start(NAME, folder.path(), Compress::Off) else { return };
    let mut region = engine.region::<u64>(WORDS).unwrap();
    fill(&mut region);
    let pages = PINNED.len() / PAGE_WORDS;
    let too_much = region.pin(0..WORDS / 2);
    assert!(matches!(too_much, Err(RegionError::Pin { .. })), "{too_much:?}");
    let (pin, inner) = match (region.pin(PINNED), region.pin(PINNED.start + 5..PINNED.start + 600)) {
        (Ok(pin), Ok(inner)) => (pin, inner),
        (error, _) => return skip(NAME, &format!("locked memory is not to be had: {error:?}")),
    };
    check(&region);
    drop(inner);
    let most = 0..DRAM / 8 * 3 / 8;
    let both = (region.pin(most.clone()), region.pin(most));
    assert!(matches!(both, (Ok(_), Ok(_))), "what is pinned already takes nothing more: {both:?}");
    drop(both);
    check(&region);
    assert_eq!(in_place(&region, PINNED), pages, "all the rest went by meanwhile");
    // What is said to be cold goes, unless it is pinned.
    let go_by = |range: Range<usize>| {
        let words = region[range].iter().step_by(PAGE_WORDS);
        std::hint::black_box(words.fold(0, |sum, &word| sum ^ word));
    };
    region.cold(PINNED).unwrap();
    go_by(PINNED.end..WORDS);
    assert_eq!(in_place(&region, PINNED), pages);
    drop(pin);
    assert!(comes(|| {
        let _ = region.cold(PINNED);
        go_by(PINNED.end..WORDS);
        in_place(&region, PINNED) < pages / 10
    }));
    assert!(comes(|| {
        let _ = region.cold(OTHER);
        go_by(0..WORDS / 4);
        in_place(&region, OTHER) < OTHER.len() / PAGE_WORDS / 10
    }));
    let before = engine.counters();
    region.will_need(OTHER).unwrap();
    // Read by the engine, not by this thread.
    assert!(comes(|| in_place(&region, OTHER) >= OTHER.len() / PAGE_WORDS * 9 / 10));
    assert!(engine.counters().faults > before.faults);
    check(&region);
}

#[test]
fn what_cannot_be_had_is_an_error() {
    const NAME: &str = "what_cannot_be_had_is_an_error";
    let folder = scratch();
    let missing = Engine::start(Options::new(folder.path().join("none"), DRAM as u64, DRAM as u64));
    assert!(missing.unwrap_err().to_string().contains("none: No such file"));
    let Some(engine) = start(NAME, folder.path(), Compress::Off) else { return };
    let small = Engine::start(Options::new(folder.path(), 1, DRAM as u64)).unwrap_err();
    assert!(small.to_string().contains("the budget is 1 bytes"), "{small}");
    let mut options = Options::new(folder.path(), DRAM as u64, DRAM as u64);
    options.writes_per_day_bytes = Some(1 << 20);
    let few = Engine::start(options).unwrap_err();
    assert!(few.to_string().contains("in a day is 1048576 bytes, at least 1073741824"), "{few}");
    assert!(matches!(engine.region::<u64>(0), Err(RegionError::New { .. })));
    assert!(matches!(engine.region::<u64>(usize::MAX), Err(RegionError::New { .. })));
    let pins = {
        let region = engine.region::<u32>(5000).unwrap();
        region.pin(0..5000)
    };
    drop(pins);
    let mut last = engine.region::<f64>(1).unwrap();
    last[0] = 0.5;
    assert_eq!(last.engine().counters().dram_bytes, DRAM as u64);
}

/// Set in a process that is an ordinary user's: where it may write.
const FOLDER: &str = "OVERDRIVE_REGIONS_FOLDER";

/// What that process runs; nothing elsewhere.
#[test]
fn role() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let engine = Engine::start(Options::new(folder, DRAM as u64, (8 * DRAM) as u64)).unwrap();
    let mut region = engine.region::<u64>(WORDS).unwrap();
    fill(&mut region);
    // With a user named it forks, and does not share memory with the child until that executes.
    let mut child = std::process::Command::new("true");
    let user = std::fs::metadata("/proc/self").unwrap();
    std::os::unix::process::CommandExt::uid(&mut child, std::os::unix::fs::MetadataExt::uid(&user));
    assert!(child.status().unwrap().success());
    check(&region);
}

/// To follow forks would take CAP_SYS_PTRACE; regions are not in children. The device is one of this test's own,
/// in a mount namespace of its own.
#[test]
fn an_ordinary_user_who_may_open_the_device_has_regions() {
    const NAME: &str = "an_ordinary_user_who_may_open_the_device_has_regions";
    const SCRIPT: &str = "\
mount -t tmpfs none \"$1\" && mknod -m 666 \"$1/device\" c $2 && mount --bind \"$1/device\" /dev/userfaultfd || exit 77
exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$3\" --exact role --nocapture --test-threads=1";
    let Ok(number) = std::fs::read_to_string("/sys/class/misc/userfaultfd/dev") else {
        return skip(NAME, "this kernel has no /dev/userfaultfd");
    };
    let open = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
    let scratch = scratch();
    if effective_user() != 0 || open.trim() != "0" || start(NAME, scratch.path(), Compress::Off).is_none() {
        return skip(NAME, "needs root, and a kernel on which others may not handle faults");
    }
    // The build directory may be out of that user's reach.
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let at = |name: &str| place.path().join(name);
    let everybodys = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(place.path(), everybodys).unwrap();
    std::fs::create_dir(at("mount")).unwrap();
    std::fs::copy(std::env::current_exe().unwrap(), at("test")).unwrap();
    let mut run = std::process::Command::new("unshare");
    run.args(["--mount", "sh", "-c", SCRIPT, "sh"]).arg(at("mount")).arg(number.trim().replace(':', " "));
    let status = run.arg(at("test")).env(FOLDER, place.path()).status().unwrap();
    if status.code() == Some(77) {
        return skip(NAME, "no device can be made here");
    }
    assert!(status.success(), "{status}");
}
