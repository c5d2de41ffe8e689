//! The engine on a real kernel and a real file: a region larger than its budget, served by a thread of this process.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

use overdrive_base::rng::Rng;
use overdrive_pager::engine::{Config, Engine, EngineError, StoreFaults};
use overdrive_pager::pool::Compress;
use overdrive_pager::seal::{KEY_BYTES, Seal};
use overdrive_pager::slots::SEGMENT_SLOTS;
use overdrive_pager::stats::{Stat, Stats};
use overdrive_sys::page_map::PageMap;
use overdrive_sys::parts::Parts;
use overdrive_sys::region::Region;
use overdrive_sys::secret::Secret;
use overdrive_sys::uffd::{Forks, PAGE, Userfault};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 24 * MIB;
const PAGES: usize = (3 * BUDGET / PAGE) as usize;
/// O_DIRECT | O_TMPFILE, as Linux numbers them on x86-64 and others; a file system without direct I/O is skipped.
const O_DIRECT_TMPFILE: i32 =
    rustix::fs::OFlags::DIRECT.bits() as i32 | rustix::fs::OFlags::TMPFILE.bits() as i32;

fn skip(name: &str, reason: &str) {
    eprintln!("skipped: {name}: {reason}");
    if let Some(log) = std::env::var_os("OVERDRIVE_SKIP_LOG") {
        let mut file = OpenOptions::new().append(true).create(true).open(log).unwrap();
        std::io::Write::write_all(&mut file, format!("{name}: {reason}\n").as_bytes()).unwrap();
    }
}

/// Lets `work` use a region of `PAGES` pages under an engine with a store of `store_bytes`.
fn under_an_engine(
    name: &str,
    store_bytes: u64,
    compress: Compress,
    store_faults: Option<StoreFaults>,
    work: impl FnOnce(&Region, &Stats),
) {
    let change = |config: &mut Config| {
        (config.store_bytes, config.compress, config.store_faults) = (store_bytes, compress, store_faults);
    };
    under(name, change, |region, stats, _| work(region, stats));
}

/// The same with a configuration that `change` has the last word on; `work` sees the store as well.
fn under(name: &str, change: impl FnOnce(&mut Config), work: impl FnOnce(&Region, &Stats, &File)) {
    let store = OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(O_DIRECT_TMPFILE)
        .open(env!("CARGO_TARGET_TMPDIR"))
        .unwrap();
    let region = Region::new(PAGES).unwrap();
    let seen = store.try_clone().unwrap();
    let mut config = Config {
        budget_bytes: BUDGET,
        store,
        parts: None,
        forks: Forks::Followed,
        opened: None,
        store_bytes: 256 * MIB,
        managed_bytes_max: 4 * BUDGET,
        seed: 42,
        spin: Duration::ZERO,
        stats: Stats::default(),
        compress: Compress::Off,
        seal: None,
        store_faults: None,
        writes_per_day_bytes: None,
        at_fork: None,
        notify: None,
    };
    change(&mut config);
    let mut engine = match Engine::new(config) {
        Ok(engine) => engine,
        Err(error @ (EngineError::Userfault(_) | EngineError::NoMove)) => {
            return skip(name, &error.to_string());
        }
        Err(error) => panic!("{error}"),
    };
    engine.adopt(region.address()..region.address() + (PAGES as u64) * PAGE).unwrap();
    let (stats, stop) = (engine.stats(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut engine = engine;
            engine.serve(&stop).unwrap();
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&region, &stats, &seen)));
        // What is in flight comes to its end first.
        std::thread::sleep(Duration::from_millis(50));
        stop.store(true, Ordering::Relaxed);
        server.join().unwrap();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Random, so that no page is like another; never zero.
fn content(page: usize, version: u64) -> u64 {
    Rng::for_stream(version, page as u64).next_u64() | 1
}

fn fill(region: &Region) {
    for page in 0..PAGES {
        (0..512).step_by(64).for_each(|word| region.write(page, word, content(page, 0) ^ word as u64));
    }
}

fn check(region: &Region, page: usize, version: u64) {
    assert_eq!(region.read(page, 0), content(page, version), "page {page}, version {version}");
    assert_eq!(region.read(page, 64), content(page, 0) ^ 64, "page {page}, version {version}");
}

/// Four threads read and write, each its own pages, and check what they read. Returns the most pages of the process
/// in DRAM meanwhile.
fn read_and_write_at_random(region: &Region) -> u64 {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4usize)
            .map(|thread| {
                scope.spawn(move || {
                    let mut rng = Rng::for_stream(1, thread as u64);
                    let mut versions = vec![0u64; PAGES / 4];
                    for step in 1..20_000 {
                        let index = rng.below(versions.len() as u64) as usize;
                        let page = index * 4 + thread;
                        check(region, page, versions[index]);
                        if rng.below(2) == 0 {
                            versions[index] = step;
                            region.write(page, 0, content(page, step));
                        }
                    }
                    (0..versions.len()).for_each(|index| check(region, index * 4 + thread, versions[index]));
                })
            })
            .collect();
        let (mut most, map) = (0, PageMap::open().unwrap());
        while workers.iter().any(|worker| !worker.is_finished()) {
            most = most.max(map.anonymous_pages().unwrap());
            std::thread::sleep(Duration::from_millis(5));
        }
        most
    })
}

#[test]
fn content_survives_random_access_by_several_threads_within_the_budget() {
    let name = "content_survives_random_access_by_several_threads_within_the_budget";
    let before = PageMap::open().and_then(|map| map.anonymous_pages()).unwrap();
    under_an_engine(name, 256 * MIB, Compress::Off, None, |region, stats| {
        fill(region);
        let most = read_and_write_at_random(region);
        // Besides the region: tables, threads' heaps and stacks, and the other tests of this process.
        assert!(stats.get(Stat::HeldMax) <= BUDGET / PAGE, "held {}", stats.get(Stat::HeldMax));
        if std::env::var("RUST_TEST_THREADS").as_deref() == Ok("1") {
            assert!(most.saturating_sub(before) <= (BUDGET + 4 * MIB) / PAGE, "{before} then {most} pages");
        }
        assert!(stats.get(Stat::Loads) > 10_000 && stats.get(Stat::Written) > PAGES as u64);
    });
}

/// Half of each page does not compress, so that the tier fills up: what it cannot hold goes to the store.
#[test]
fn compressed_pages_survive_and_make_room_for_others() {
    let name = "compressed_pages_survive_and_make_room_for_others";
    under_an_engine(name, 256 * MIB, Compress::Lz4, None, |region, stats| {
        for page in 0..PAGES {
            (1..256).for_each(|word| region.write(page, word, content(page, word as u64)));
        }
        fill(region);
        read_and_write_at_random(region);
        assert!(stats.get(Stat::HeldMax) <= BUDGET / PAGE, "held {}", stats.get(Stat::HeldMax));
        let (expands, loads) = (stats.get(Stat::Expands), stats.get(Stat::Loads));
        assert!(expands > 10_000 && loads > 100, "{expands} without I/O, {loads} with");
        let (pages, dram) = (stats.get(Stat::Compressed), stats.get(Stat::CompressedDram));
        assert!(pages > dram * 3 / 2, "{pages} pages in {dram}");
    });
}

#[test]
fn a_page_is_smaller_by_zstandard_and_survives() {
    let name = "a_page_is_smaller_by_zstandard_and_survives";
    let expanded = |compress| {
        let mut expanded = 0;
        under_an_engine(name, 256 * MIB, compress, None, |region, stats| {
            // Letters: LZ4 finds nothing that repeats, Zstandard needs less than a byte for each.
            for page in 0..PAGES {
                for word in 1..512 {
                    let letters = content(page, word as u64) & 0x0f0f_0f0f_0f0f_0f0f | 0x6060_6060_6060_6060;
                    region.write(page, word, letters);
                }
                (0..512)
                    .step_by(64)
                    .for_each(|word| region.write(page, word, content(page, 0) ^ word as u64));
            }
            read_and_write_at_random(region);
            expanded = stats.get(Stat::Expands);
        });
        expanded
    };
    let zstd = expanded(Compress::Zstd);
    assert!(zstd == 0 || zstd > 10_000, "{zstd}");
    assert_eq!(expanded(Compress::Lz4), 0);
}

/// Two engines on one file, each with half a dozen parts of it, one after the other more than its share.
#[test]
fn engines_that_share_a_store_do_not_meet() {
    let name = "engines_that_share_a_store_do_not_meet";
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (store, leases) = (folder.path().join("store"), folder.path().join("leases"));
    let bytes = 3 * 128 * MIB;
    File::create(&store).unwrap().set_len(bytes).unwrap();
    File::create(&leases).unwrap();
    let change = |config: &mut Config| {
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        config.store = OpenOptions::new().read(true).write(true).custom_flags(direct).open(&store).unwrap();
        let leases = OpenOptions::new().read(true).write(true).open(&leases).unwrap();
        config.parts = Some(Parts::new(leases, bytes, u64::MAX));
        config.store_bytes = bytes;
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                under(name, change, |region, stats, _| {
                    fill(region);
                    read_and_write_at_random(region);
                    assert!(stats.get(Stat::Loads) > 10_000);
                    assert_eq!((stats.get(Stat::Lost), stats.get(Stat::StoreErrors)), (0, 0));
                });
            });
        }
    });
}

/// Pages that all hold the same words, which are looked for on the store.
#[test]
fn what_lies_on_the_store_can_be_read_there_unless_it_is_encrypted() {
    const SECRET: [u8; 8] = *b"overtsec";
    let name = "what_lies_on_the_store_can_be_read_there_unless_it_is_encrypted";
    let found = |seal: Option<Seal>| {
        let mut found = None;
        let change = |config: &mut Config| config.seal = seal;
        under(name, change, |region, stats, store| {
            for page in 0..PAGES {
                (0..512).for_each(|word| region.write(page, word, u64::from_le_bytes(SECRET)));
                region.write(page, 0, content(page, 0));
                region.write(page, 64, content(page, 0) ^ 64);
            }
            read_and_write_at_random(region);
            assert!(stats.get(Stat::Loads) > 10_000 && stats.get(Stat::Lost) == 0);
            assert_eq!(stats.get(Stat::StoreErrors), 0);
            // Past direct I/O, which wants aligned memory.
            let bytes = std::fs::read(format!("/proc/self/fd/{}", store.as_raw_fd())).unwrap();
            assert!(bytes.len() as u64 > BUDGET);
            found = Some(bytes.chunks_exact(8).filter(|word| **word == SECRET).count());
        });
        found
    };
    let Some(plain) = found(None) else { return };
    assert!(plain > PAGES * 100, "{plain} words in the open");
    let key = Secret::new(|| [0x5au8; KEY_BYTES]).unwrap();
    assert_eq!(found(Some(Seal::new(&key).unwrap())), Some(0));
}

/// What does not compress costs no memory and next to no tries.
#[test]
fn random_pages_pass_the_compressed_tier_by() {
    let name = "random_pages_pass_the_compressed_tier_by";
    under_an_engine(name, 256 * MIB, Compress::Auto, None, |region, stats| {
        for page in 0..PAGES {
            (0..512).for_each(|word| region.write(page, word, content(page, word as u64)));
        }
        for page in 0..PAGES {
            assert_eq!(region.read(page, 511), content(page, 511));
        }
        assert!(stats.get(Stat::Loads) + stats.get(Stat::ReadAhead) > 1000);
        assert_eq!((stats.get(Stat::Expands), stats.get(Stat::Compressed)), (0, 0));
    });
}

#[test]
fn clean_pages_are_not_written_again_and_scans_are_read_ahead() {
    let name = "clean_pages_are_not_written_again_and_scans_are_read_ahead";
    under_an_engine(name, 512 * MIB, Compress::Off, None, |region, stats| {
        fill(region);
        (0..2).for_each(|_| (0..PAGES).for_each(|page| check(region, page, 0)));
        let (written, loads) = (stats.get(Stat::Written), stats.get(Stat::Loads));
        assert!(written >= PAGES as u64 / 2, "written {written}");
        (0..2).for_each(|_| (0..PAGES).for_each(|page| check(region, page, 0)));
        let again = stats.get(Stat::Written) - written;
        assert!(again < PAGES as u64 / 100, "{again} pages were written again");
        let loads = stats.get(Stat::Loads) - loads;
        assert!(loads < PAGES as u64 / 4, "{loads} pages were waited for");
        assert!(stats.get(Stat::ReadAheadUsed) > PAGES as u64 / 2);
    });
}

#[test]
fn walks_in_equal_steps_are_read_ahead_in_both_directions() {
    let name = "walks_in_equal_steps_are_read_ahead_in_both_directions";
    under_an_engine(name, 512 * MIB, Compress::Off, None, |region, stats| {
        fill(region);
        let counts = || [Stat::Loads, Stat::ReadAheadUsed].map(|stat| stats.get(stat));
        let walk = |pages: &mut dyn Iterator<Item = usize>| {
            let before = counts();
            pages.for_each(|page| check(region, page, 0));
            let after = counts();
            assert!(after[1] - before[1] > 4 * (after[0] - before[0]), "{before:?} {after:?}");
        };
        // Each at the other end of what was touched last.
        walk(&mut (0..PAGES).rev());
        walk(&mut (0..PAGES).rev().step_by(3));
        walk(&mut (0..7).flat_map(|first| (first..PAGES).step_by(7)));
        // As whoever sorts, copies, or merges.
        walk(&mut (0..PAGES / 2).flat_map(|page| [page, PAGES - 1 - page]));
        walk(&mut (0..PAGES / 2).flat_map(|page| [page, PAGES / 2 + page]));
        walk(&mut (0..PAGES / 6).flat_map(|page| (0..6).map(move |part| part * (PAGES / 6) + page)));
        // At random nothing is.
        let mut rng = Rng::new(5);
        let before = stats.get(Stat::ReadAhead);
        (0..2000).for_each(|_| check(region, rng.below(PAGES as u64) as usize, 0));
        let ahead = stats.get(Stat::ReadAhead) - before;
        assert!(ahead < 200, "{ahead} pages were read ahead of random accesses");
    });
}

#[test]
fn what_is_read_ahead_of_a_walk_is_in_place_before_it_is_wanted() {
    let name = "what_is_read_ahead_of_a_walk_is_in_place_before_it_is_wanted";
    under_an_engine(name, 512 * MIB, Compress::Off, None, |region, stats| {
        fill(region);
        let counts = || [Stat::Faults, Stat::Loads, Stat::ReadAheadUsed].map(|stat| stats.get(stat));
        // Some of what is gone through in rounds stays, with what has gone in between.
        let pages = BUDGET as usize / PAGE as usize * 3 / 2;
        (0..8).for_each(|_| (0..pages).for_each(|page| check(region, page, 0)));
        let before = counts();
        for page in (0..2).flat_map(|_| 0..pages) {
            check(region, page, 0);
            if page % 32 == 0 {
                // As long as a read takes, mostly.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let [faults, waited, ahead] = std::array::from_fn(|index| counts()[index] - before[index]);
        assert!(ahead > pages as u64 / 4, "{ahead} of {pages} pages were read ahead");
        assert!(ahead > 20 * faults, "{faults} faults for {ahead} pages");
        assert!(ahead > 50 * waited, "{waited} were waited for, {ahead} read ahead");
    });
}

#[test]
fn an_order_that_no_address_tells_is_read_ahead_the_second_time() {
    let name = "an_order_that_no_address_tells_is_read_ahead_the_second_time";
    under_an_engine(name, 512 * MIB, Compress::Off, None, |region, stats| {
        fill(region);
        let (mut rng, mut order) = (Rng::new(3), (0..PAGES).collect::<Vec<_>>());
        (1..PAGES).rev().for_each(|last| order.swap(last, rng.below(last as u64 + 1) as usize));
        let counts = || [Stat::Loads, Stat::ReadAheadUsed].map(|stat| stats.get(stat));
        let pass = |version| {
            let before = counts();
            for &page in &order {
                check(region, page, version);
                region.write(page, 0, content(page, version + 1));
            }
            let after = counts();
            [after[0] - before[0], after[1] - before[1]]
        };
        let first = pass(0);
        assert!(first[0] > PAGES as u64 / 4 && first[1] < first[0] / 4, "{first:?}");
        pass(1);
        let third = pass(2);
        assert!(third[1] > 4 * third[0], "{third:?} pages were waited for and read ahead");
    });
}

#[test]
fn memory_of_which_half_is_changed_by_each_walk_stays_in_rows_on_the_store() {
    let name = "memory_of_which_half_is_changed_by_each_walk_stays_in_rows_on_the_store";
    under_an_engine(name, 512 * MIB, Compress::Off, None, |region, stats| {
        fill(region);
        let (mut rng, mut versions) = (Rng::new(9), vec![0; PAGES]);
        let mut before = [0; 2];
        for pass in 0..8 {
            if pass == 6 {
                before = [Stat::Faults, Stat::ReadAheadUsed].map(|stat| stats.get(stat));
            }
            for (page, version) in versions.iter_mut().enumerate() {
                check(region, page, *version);
                if rng.below(2) == 0 {
                    *version += 1;
                    region.write(page, 0, content(page, *version));
                }
            }
        }
        let after = [Stat::Faults, Stat::ReadAheadUsed].map(|stat| stats.get(stat));
        let [faults, used] = [after[0] - before[0], after[1] - before[1]];
        assert!(used > 4 * faults, "{used} pages read ahead for {faults} faults");
    });
}

#[test]
fn who_is_written_to_in_place_is_seen() {
    const NAME: &str = "who_is_written_to_in_place_is_seen";
    const HOT: usize = 2048;
    if !Userfault::new(Forks::Followed).is_ok_and(|userfault| userfault.offers().writes_pass) {
        return skip(NAME, "this kernel does not tell who was written to (Linux 6.7)");
    }
    // No page numbers behind the region's last one.
    let change = |config: &mut Config| config.managed_bytes_max = (PAGES as u64 + 64) * PAGE;
    under(NAME, change, |region, stats, _| {
        fill(region);
        let (mut rng, start) = (Rng::new(5), Instant::now());
        let mut versions = vec![0; HOT];
        // Some pages are written to again and again, the others are read now and then.
        while stats.get(Stat::WritesSeen) < HOT as u64 {
            assert!(start.elapsed() < Duration::from_secs(120), "{} seen", stats.get(Stat::WritesSeen));
            for _ in 0..1000 {
                let page = rng.below(HOT as u64) as usize;
                versions[page] += 1;
                region.write(page, 0, content(page, versions[page]));
                check(region, HOT + rng.below((PAGES - HOT) as u64) as usize, 0);
            }
        }
        versions.iter().enumerate().for_each(|(page, &version)| check(region, page, version));
    });
}

#[test]
fn who_is_written_to_among_others_stays_when_they_go() {
    const NAME: &str = "who_is_written_to_among_others_stays_when_they_go";
    if !Userfault::new(Forks::Followed).is_ok_and(|userfault| userfault.offers().writes_pass) {
        return skip(NAME, "this kernel does not tell who was written to (Linux 6.7)");
    }
    under(
        NAME,
        |_| {},
        |region, stats, _| {
            fill(region);
            let (mut rng, start) = (Rng::new(6), Instant::now());
            // Few pages are wanted often and many now and then, scattered over all blocks.
            let mut versions = vec![0; PAGES];
            while stats.get(Stat::KeptInUse) < 1000 {
                assert!(start.elapsed() < Duration::from_secs(120), "{} kept", stats.get(Stat::KeptInUse));
                let held = stats.get(Stat::Resident) + stats.get(Stat::Staged);
                assert!(held <= BUDGET / PAGE, "{held} pages in DRAM");
                for _ in 0..1000 {
                    let page = (PAGES as f64 * rng.unit().powi(4)) as usize * 7919 % PAGES;
                    check(region, page, versions[page]);
                    if rng.below(2) == 0 {
                        versions[page] += 1;
                        region.write(page, 0, content(page, versions[page]));
                    }
                }
            }
            versions.iter().enumerate().for_each(|(page, &version)| check(region, page, version));
        },
    );
}

#[test]
fn what_went_just_now_beside_a_page_that_is_wanted_comes_back_with_it() {
    let name = "what_went_just_now_beside_a_page_that_is_wanted_comes_back_with_it";
    under_an_engine(name, 256 * MIB, Compress::Off, None, |region, stats| {
        fill(region);
        let (mut rng, start) = (Rng::new(8), Instant::now());
        while stats.get(Stat::RescuedAround) < 300 {
            let (came, rescues) = (stats.get(Stat::RescuedAround), stats.get(Stat::Rescues));
            assert!(start.elapsed() < Duration::from_secs(120), "{came} came beside {rescues}");
            let held = stats.get(Stat::Resident) + stats.get(Stat::Staged);
            assert!(held <= BUDGET / PAGE, "{held} pages in DRAM");
            // Pieces of eight pages at random: whoever wants one page of a piece wants the others next.
            let first = rng.below(PAGES as u64 / 8) as usize * 8;
            (first..first + 8).rev().for_each(|page| check(region, page, 0));
        }
        let (came, rescues) = (stats.get(Stat::RescuedAround), stats.get(Stat::Rescues));
        assert!(came > rescues, "{came} came beside {rescues} that were waited for");
        (0..PAGES).for_each(|page| check(region, page, 0));
    });
}

#[test]
fn pages_of_zeroes_cost_nothing() {
    under_an_engine("pages_of_zeroes_cost_nothing", 256 * MIB, Compress::Off, None, |region, stats| {
        for round in 0..2 {
            (0..PAGES).for_each(|page| region.write(page, 5, 0));
            assert!((0..PAGES).all(|page| region.read(page, 5) == 0), "round {round}");
        }
        assert!(stats.get(Stat::EvictedZero) > PAGES as u64 / 2);
        assert_eq!((stats.get(Stat::Written), stats.get(Stat::Loads)), (0, 0));
    });
}

#[test]
fn new_memory_is_filled_ahead_of_who_writes_it_from_one_end_to_the_other() {
    const PARTS: usize = 8;
    const PART: usize = 512;
    let name = "new_memory_is_filled_ahead_of_who_writes_it_from_one_end_to_the_other";
    under_an_engine(name, 256 * MIB, Compress::Off, None, |region, stats| {
        // Every other part from its end on.
        for step in 0..PART {
            for part in 0..PARTS {
                let inside = if part % 2 == 0 { step } else { PART - 1 - step };
                region.write(part * PART + inside, 7, 1);
            }
        }
        let written = PARTS * PART;
        let is_right = |page: usize| (region.read(page, 6), region.read(page, 7)) == (0, 1);
        assert!((0..written).all(is_right), "what was filled ahead did away with something");
        let fills = stats.get(Stat::ZeroFills);
        assert!(fills < written as u64 / 16, "{fills} of {written} pages were waited for");
        // At random each comes by itself.
        let mut rng = Rng::new(6);
        let scattered: std::collections::BTreeSet<_> =
            (0..500).map(|_| written + rng.below((PAGES - written) as u64) as usize).collect();
        scattered.iter().for_each(|&page| region.write(page, 7, 1));
        let fills = stats.get(Stat::ZeroFills) - fills;
        assert!(fills * 10 > scattered.len() as u64 * 9, "{fills} of {} were waited for", scattered.len());
    });
}

#[test]
fn a_small_store_is_cleaned() {
    under_an_engine("a_small_store_is_cleaned", 4 * BUDGET, Compress::Off, None, |region, stats| {
        fill(region);
        let mut rng = Rng::new(3);
        let mut versions = vec![0; PAGES];
        for step in 1..40_000 {
            let page = rng.below(PAGES as u64) as usize;
            check(region, page, versions[page]);
            versions[page] = step;
            region.write(page, 0, content(page, step));
        }
        (0..PAGES).for_each(|page| check(region, page, versions[page]));
        assert!(stats.get(Stat::Cleaned) > 0);
        assert!(stats.get(Stat::HeldMax) <= BUDGET / PAGE, "{} pages", stats.get(Stat::HeldMax));
        assert_eq!(stats.get(Stat::Lost), 0);
    });
}

/// Half of it would be taken by copies of pages that are in DRAM. Several threads want pages faster than
/// segments are emptied.
#[test]
fn a_store_with_little_more_than_what_has_to_be_there_is_emptied_within_the_budget() {
    // Once as it is, once encrypted.
    for seal in [None, Some([0x55; KEY_BYTES])] {
        let change = |config: &mut Config| {
            // A sixth more, as a segment is worth emptying only when it has an eighth of room.
            config.store_bytes = (PAGES as u64 * PAGE - BUDGET) / 6 * 7;
            config.seal = seal.map(|key| Seal::new(&Secret::new(|| key).unwrap()).unwrap());
        };
        let name = "a_store_with_little_more_than_what_has_to_be_there_is_emptied_within_the_budget";
        under(name, change, |region, stats, _| {
            fill(region);
            let threads = 8;
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    scope.spawn(move || use_every(region, thread, threads));
                }
            });
            assert!(stats.get(Stat::Cleaned) > 0);
            let most = BUDGET / PAGE + 2 * u64::from(SEGMENT_SLOTS);
            assert!(stats.get(Stat::HeldMax) <= most, "{} pages, at most {most}", stats.get(Stat::HeldMax));
            assert_eq!((stats.get(Stat::StoreFull), stats.get(Stat::Lost)), (0, 0));
        });
    }
}

/// Reads every `threads`-th page at random, writes to two thirds of them, and checks all in the end.
fn use_every(region: &Region, thread: usize, threads: usize) {
    let (mut rng, mut versions) = (Rng::new(thread as u64), vec![0; PAGES / threads]);
    let page = |index: usize| index * threads + thread;
    for step in 1..6000 {
        let index = rng.below(versions.len() as u64) as usize;
        check(region, page(index), versions[index]);
        // Others are only read.
        if !index.is_multiple_of(3) {
            versions[index] = step;
            region.write(page(index), 0, content(page(index), step));
        }
    }
    for (index, &version) in versions.iter().enumerate() {
        check(region, page(index), version);
    }
}

#[test]
fn a_full_store_keeps_everything_in_what_there_is() {
    under_an_engine(
        "a_full_store_keeps_everything_in_what_there_is",
        16 * MIB,
        Compress::Off,
        None,
        |region, stats| {
            fill(region);
            (0..PAGES).for_each(|page| check(region, page, 0));
            assert_eq!(stats.get(Stat::Lost), 0);
        },
    );
}

/// What is full is the file system, not what may be used of it.
#[test]
fn a_store_without_space_is_told_of_and_keeps_everything_in_what_there_is() {
    let name = "a_store_without_space_is_told_of_and_keeps_everything_in_what_there_is";
    // Every write fails, each third for want of space.
    let faults = StoreFaults::new(2, 0, 1_000_000, 0);
    under_an_engine(name, 256 * MIB, Compress::Off, Some(faults), |region, stats| {
        fill(region);
        let end = Instant::now() + Duration::from_secs(60);
        while stats.get(Stat::StoreFull) == 0 {
            assert!(Instant::now() < end, "{} writes failed", stats.get(Stat::StoreErrors));
            std::thread::sleep(Duration::from_millis(50));
        }
        (0..PAGES).for_each(|page| check(region, page, 0));
        assert_eq!((stats.get(Stat::Written), stats.get(Stat::Lost)), (0, 0));
    });
}

#[test]
fn a_store_that_fails_now_and_then_loses_nothing() {
    // Once as it is, once encrypted.
    for seal in [None, Some([0x77; KEY_BYTES])] {
        let change = |config: &mut Config| {
            config.store_faults = Some(StoreFaults::new(11, 20_000, 100_000, 0));
            config.seal = seal.map(|key| Seal::new(&Secret::new(|| key).unwrap()).unwrap());
        };
        under("a_store_that_fails_now_and_then_loses_nothing", change, |region, stats, _| {
            fill(region);
            let mut rng = Rng::new(4);
            let (mut versions, end) = (vec![0; PAGES], Instant::now() + Duration::from_secs(300));
            for step in 1..20_000 {
                let page = rng.below(PAGES as u64) as usize;
                check(region, page, versions[page]);
                versions[page] = step;
                region.write(page, 0, content(page, step));
                assert!(Instant::now() < end, "step {step}: too slow to be anything but stuck");
            }
            (0..PAGES).for_each(|page| check(region, page, versions[page]));
            assert!(stats.get(Stat::StoreErrors) > 10);
            assert_eq!(stats.get(Stat::Lost), 0);
        });
    }
}
