//! Whole runs on simulated and real targets: what is known goes in, and must come out.

use super::*;
use crate::engine::sim::SimSpec;
use crate::job::{Access, Direction, JobSpec, Operation, SyncMode};
use crate::pace::{Arrivals, Think};
use crate::verify::Verify;
use overdrive_hist::MAX_RELATIVE_ERROR;
use overdrive_sys::file::{Caching, create_scratch, open_for_reading, reserve};

/// Says that a test cannot run here, by the protocol of docs/testing.md.
fn skip(name: &str, reason: &str) {
    eprintln!("skipped: {name}: {reason}");
    if let Some(log) = std::env::var_os("OVERDRIVE_SKIP_LOG") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
        std::io::Write::write_all(&mut file, format!("{name}: {reason}\n").as_bytes()).unwrap();
    }
}

fn setting() -> Setting {
    Setting {
        cpus: Vec::new(),
        clock: Clock::calibrate(Duration::from_millis(2)),
        stop: Arc::new(AtomicBool::new(false)),
        live: false,
    }
}

fn job(engine: EngineKind) -> JobSpec {
    JobSpec {
        access: Access::Random,
        engine,
        runtime: Duration::from_secs(1),
        warmup: Duration::from_millis(50),
        seed: 42,
        ..JobSpec::default()
    }
}

fn simulate(device: SimSpec, change: impl FnOnce(&mut JobSpec)) -> Outcome {
    let target = Target::simulated(device.clone());
    let mut spec = job(EngineKind::Sim(device));
    change(&mut spec);
    run(&spec.check(target.size()).unwrap(), std::slice::from_ref(&target), &setting(), |_, _| ()).unwrap()
}

fn plain() -> SimSpec {
    SimSpec { jitter: 0.0, slow: None, ns_per_kib: 0, channels: 1024, read_ns: 80_000, ..SimSpec::default() }
}

fn assert_close(shown: u64, truth: u64) {
    let error = shown as f64 / truth as f64 - 1.0;
    assert!((0.0..=MAX_RELATIVE_ERROR).contains(&error), "{shown} shown for {truth}");
}

#[test]
fn a_constant_latency_comes_out_as_it_went_in() {
    let outcome = simulate(plain(), |_| ());
    assert_eq!(outcome.read.latency.min(), Some(80_000));
    assert_eq!(outcome.read.latency.max(), Some(80_000));
    assert_eq!(outcome.read.latency.mean(), Some(80_000.0));
    assert!((outcome.iops() / 12_500.0 - 1.0).abs() < 0.001, "{}", outcome.iops());
    assert!((outcome.in_flight_mean() - 1.0).abs() < 0.001);
    assert_eq!(outcome.ended, Ended::TimeUp);
    assert!(outcome.cpu.is_none(), "virtual time has no CPU cost");
}

#[test]
fn stragglers_are_found_where_they_are_whatever_the_depth() {
    for queue_depth in [1, 4, 32, 128] {
        // One in a hundred takes 50 times as long: the 98th percentile must not see it, the 99.5th must.
        let device = SimSpec { slow: Some((0.01, 4_000_000)), ..plain() };
        let outcome = simulate(device, |job| {
            job.queue_depth = queue_depth;
            job.runtime = Duration::from_secs(20);
        });
        let latency = &outcome.read.latency;
        assert_close(latency.value_at(0.5).unwrap(), 80_000);
        assert_close(latency.value_at(0.98).unwrap(), 80_000);
        assert_close(latency.value_at(0.995).unwrap(), 4_000_000);
        assert_eq!(latency.max(), Some(4_000_000));
        let slow = latency
            .buckets()
            .filter(|bucket| bucket.high > 1_000_000)
            .map(|bucket| bucket.count)
            .sum::<u64>();
        let share = slow as f64 / latency.count() as f64;
        assert!((share / 0.01 - 1.0).abs() < 0.1, "depth {queue_depth}: {share}");
    }
}

#[test]
fn jitter_spreads_latencies_evenly() {
    let device = SimSpec { jitter: 0.5, read_ns: 100_000, ..plain() };
    let outcome = simulate(device, |job| job.runtime = Duration::from_secs(60));
    for (q, truth) in [(0.1, 60_000.0), (0.5, 100_000.0), (0.9, 140_000.0)] {
        let shown = outcome.read.latency.value_at(q).unwrap() as f64;
        assert!((shown / truth - 1.0).abs() < 0.015, "quantile {q}: {shown} for {truth}");
    }
}

#[test]
fn a_device_saturates_at_its_channels() {
    let device = SimSpec { channels: 4, ..plain() };
    let at = |queue_depth| simulate(device.clone(), |job| job.queue_depth = queue_depth);
    let (four, sixteen) = (at(4), at(16));
    assert!((four.iops() / 50_000.0 - 1.0).abs() < 0.001);
    assert!((sixteen.iops() / four.iops() - 1.0).abs() < 0.001, "{} {}", sixteen.iops(), four.iops());
    assert_close(sixteen.read.latency.value_at(0.5).unwrap(), 4 * 80_000);
}

#[test]
fn workers_add_up_and_a_seed_replays() {
    let again = || {
        simulate(SimSpec { jitter: 0.3, ..plain() }, |job| {
            (job.workers, job.queue_depth) = (4, 2);
            job.operation = Operation::Mixed { read_percent: 70 };
        })
    };
    let (one, two) = (again(), again());
    assert!((one.in_flight_mean() - 8.0).abs() < 0.1, "{}", one.in_flight_mean());
    let share = one.read.ios as f64 / one.ios() as f64;
    assert!((share - 0.7).abs() < 0.02, "{share}");
    assert_eq!((one.read.ios, one.write.ios), (two.read.ios, two.write.ios));
    assert_eq!(one.read.latency.max(), two.read.latency.max());
}

#[test]
fn errors_are_counted_and_do_not_count_as_work() {
    let outcome = simulate(SimSpec { error: 0.01, ..plain() }, |job| job.runtime = Duration::from_secs(5));
    let errors = outcome.errors[&(Direction::Read, 5)].count;
    assert!((400..900).contains(&errors), "{errors}");
    assert_eq!(outcome.ended, Ended::TimeUp);
    let all = outcome.read.latency.count() + errors;
    assert!((62_000..64_500).contains(&all), "{all}");
}

#[test]
fn a_device_that_dies_ends_the_run_and_keeps_what_was_measured() {
    let outcome = simulate(SimSpec { dies_after: Some(5_000), ..plain() }, |_| ());
    assert!(matches!(&outcome.ended, Ended::Failed(why) if why.contains("ENODEV")), "{:?}", outcome.ended);
    assert!((4_000..=5_000).contains(&outcome.read.ios), "{}", outcome.read.ios);
    assert!(outcome.elapsed < Duration::from_millis(500));
}

#[test]
fn the_series_adds_up_to_the_total() {
    let outcome = simulate(plain(), |_| ());
    assert_eq!(outcome.series.len(), 10);
    let ios: u64 = outcome.series.iter().map(|slice| slice.ios).sum();
    assert!(outcome.read.ios - ios <= 2, "{ios} of {}", outcome.read.ios);
    assert!(outcome.moved_bytes > outcome.bytes(), "the warm-up moves bytes too");
}

#[test]
fn sim_jobs_do_not_run_on_files_nor_real_ones_on_sims() {
    let simulated = Target::simulated(plain());
    let spec = job(EngineKind::Pvsync2).check(simulated.size()).unwrap();
    assert!(matches!(run(&spec, &[simulated], &setting(), |_, _| ()), Err(RunError::WrongTarget { .. })));
}

#[test]
fn the_nop_engine_moves_nothing_and_completes_everything() {
    let mut spec = job(EngineKind::Nop);
    (spec.queue_depth, spec.runtime) = (32, Duration::from_millis(300));
    let target = Target::simulated(plain());
    match run(&spec.check(target.size()).unwrap(), std::slice::from_ref(&target), &setting(), |_, _| ()) {
        Ok(outcome) => {
            assert!(outcome.ios() > 0 && outcome.errors.is_empty() && outcome.short_ios == 0, "{outcome:?}");
        }
        Err(RunError::Ring(error)) => {
            skip("run::tests::the_nop_engine_moves_nothing_and_completes_everything", &error.to_string());
        }
        Err(error) => panic!("{error}"),
    }
}

fn scratch(bytes: u64) -> Target {
    let file = create_scratch(&std::env::temp_dir(), Caching::Buffered).unwrap();
    reserve(&file, bytes).unwrap();
    Target::of_file(file, Caching::Buffered).unwrap()
}

#[test]
fn real_files_are_read_and_written_by_every_engine() {
    let target = scratch(1 << 20);
    let engines =
        [EngineKind::Pvsync2, EngineKind::Psync, EngineKind::Mmap, EngineKind::Libaio, EngineKind::IoUring];
    for engine in engines {
        let mut spec = job(engine);
        spec.queue_depth = if spec.engine.is_synchronous() { 1 } else { 8 };
        spec.operation = Operation::Mixed { read_percent: 50 };
        (spec.runtime, spec.warmup, spec.workers) = (Duration::from_millis(80), Duration::from_millis(10), 2);
        let outcome = match run(
            &spec.check(target.size()).unwrap(),
            std::slice::from_ref(&target),
            &setting(),
            |_, _| (),
        ) {
            Err(RunError::Ring(error)) => {
                skip("run::tests::real_files_are_read_and_written_by_every_engine", &error.to_string());
                continue;
            }
            other => other.unwrap(),
        };
        assert!(outcome.errors.is_empty() && outcome.short_ios == 0, "{outcome:?}");
        assert!(outcome.read.ios > 0 && outcome.write.ios > 0);
        assert!(outcome.cpu.is_some_and(|cpu| cpu.utilisation > 0.0));
    }
    let share = target.share_of_zero_blocks(u64::MAX).unwrap();
    assert!(share < 0.9, "the writes left something behind: {share}");
}

#[test]
fn a_file_that_gets_shorter_ends_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shrinking");
    std::fs::write(&path, vec![1u8; 1 << 20]).unwrap();
    let target =
        Target::of_file(open_for_reading(&path, Caching::Buffered).unwrap(), Caching::Buffered).unwrap();
    std::fs::write(&path, b"").unwrap();
    let spec = job(EngineKind::Pvsync2).check(target.size()).unwrap();
    let outcome = run(&spec, &[target], &setting(), |_, _| ()).unwrap();
    assert!(
        matches!(&outcome.ended, Ended::Failed(why) if why.contains("gone or has shrunk")),
        "{:?}",
        outcome.ended
    );
    assert_eq!(outcome.ios(), 0);
}

#[test]
fn whoever_watches_sees_each_target_and_the_latencies_so_far() {
    let setting = Setting { live: true, ..setting() };
    let mut spec = job(EngineKind::Pvsync2);
    (spec.runtime, spec.workers) = (Duration::from_secs(600), 2);
    spec.operation = Operation::Mixed { read_percent: 50 };
    let targets = [scratch(1 << 20), scratch(1 << 20)];
    let stop = Arc::clone(&setting.stop);
    let mut last = Vec::new();
    run(&spec.check(1 << 20).unwrap(), &targets, &setting, |_, glance| {
        last = glance.seen().remove(0);
        let done = |seen: &crate::live::Seen| {
            [Direction::Read, Direction::Write].iter().all(|&direction| seen.ios(direction) > 10)
        };
        stop.fetch_or(last.iter().all(done), Ordering::Relaxed);
    })
    .unwrap();
    assert_eq!(last.len(), 2);
    for seen in &last {
        // One is counted after the other, and seen by another thread in between.
        let (bytes, ios) = (seen.bytes(Direction::Read), seen.ios(Direction::Read));
        assert!(bytes.abs_diff(ios * 4096) <= 2 * 4096, "{bytes} bytes, {ios} I/Os");
        let [median, most] = [0.5, 1.0].map(|share| seen.latency_ns(Direction::Write, share).unwrap());
        assert!(0 < median && median <= most && seen.failures == 0);
    }
}

#[test]
fn a_stop_ends_a_run_at_once() {
    let setting = setting();
    let mut spec = job(EngineKind::Pvsync2);
    spec.runtime = Duration::from_secs(600);
    let target = scratch(1 << 20);
    let start = Instant::now();
    let stop = Arc::clone(&setting.stop);
    let mut calls = 0;
    let outcome = run(&spec.check(target.size()).unwrap(), &[target], &setting, |_, glance| {
        calls += 1;
        if calls >= 2 && glance.ios() > 0 {
            stop.store(true, Ordering::Relaxed);
        }
    })
    .unwrap();
    assert_eq!(outcome.ended, Ended::Stopped);
    assert!(outcome.ios() > 0 && start.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_number_of_operations_ends_the_run() {
    let outcome = simulate(plain(), |job| (job.number_ios, job.workers) = (Some(100), 2));
    assert_eq!((outcome.read.ios, outcome.ended), (200, Ended::TimeUp));
    assert!(outcome.elapsed < Duration::from_millis(20), "{:?}", outcome.elapsed);
}

#[test]
fn several_targets_share_the_workers_and_are_told_apart() {
    let slow = SimSpec { read_ns: 160_000, ..plain() };
    let targets = [Target::simulated(plain()), Target::simulated(slow)];
    let mut spec = job(EngineKind::Sim(plain()));
    spec.workers = 3;
    let outcome =
        run(&spec.clone().check(targets[0].size()).unwrap(), &targets, &setting(), |_, _| ()).unwrap();
    let [fast, slow] = &outcome.targets[..] else { panic!("{:?}", outcome.targets) };
    assert_eq!((fast.read.latency.max(), slow.read.latency.max()), (Some(80_000), Some(160_000)));
    assert_eq!((fast.read.ios / 1000, slow.read.ios / 1000), (25, 6));
    assert_eq!(fast.read.ios + slow.read.ios, outcome.read.ios);
    spec.workers = 1;
    let too_few = run(&spec.check(targets[0].size()).unwrap(), &targets, &setting(), |_, _| ());
    assert!(matches!(too_few, Err(RunError::TooFewWorkers { .. })));
}

#[test]
fn an_open_loop_keeps_its_rate_to_a_thousandth() {
    for per_s in [1e3, 2e4, 5e5] {
        for (arrivals, error) in [
            (Arrivals::Constant { per_s }, 0.001),
            // One standard deviation of a count of n is its root.
            (Arrivals::Poisson { per_s }, 0.01),
        ] {
            let outcome = simulate(SimSpec { read_ns: 8_000, ..plain() }, |job| {
                job.queue_depth = 256;
                job.arrivals = Some(arrivals.clone());
                job.runtime = Duration::from_secs_f64((120_000.0 / per_s).max(2.0));
            });
            assert!((outcome.iops() / per_s - 1.0).abs() < error, "{arrivals:?}: {}", outcome.iops());
            let schedule = outcome.schedule.unwrap();
            assert_eq!((schedule.unstarted.count(), schedule.slip.max()), (0, Some(0)), "{arrivals:?}");
            assert_eq!(outcome.read.response.unwrap().max(), outcome.read.latency.max());
        }
    }
}

#[test]
fn a_stall_shows_whole_in_response_time_and_hardly_in_service_time() {
    let device = SimSpec { stall: Some((500_000_000, 100_000_000)), ..plain() };
    let outcome = simulate(device, |job| {
        job.queue_depth = 16;
        job.arrivals = Some(Arrivals::Constant { per_s: 10_000.0 });
    });
    let late = |histogram: &overdrive_hist::Histogram| {
        histogram.buckets().filter(|bucket| bucket.low > 50_000_000).map(|bucket| bucket.count).sum::<u64>()
    };
    let response = outcome.read.response.as_ref().unwrap();
    // Those due in the first half of the stall wait more than half of it: 500 of 10,000 a second; and some
    // more wait while what has piled up is served, 16 every 80 us.
    assert!((500..=530).contains(&late(response)), "{}", late(response));
    assert!(late(&outcome.read.latency) <= 16, "{}", late(&outcome.read.latency));
    let longest = response.max().unwrap();
    assert!((99_900_000..=100_200_000).contains(&longest), "{longest}");
    let schedule = outcome.schedule.as_ref().unwrap();
    assert!(schedule.slip.max().unwrap() > 90_000_000 && schedule.unstarted.count() == 0, "{schedule:?}");
    assert!((outcome.iops() / 10_000.0 - 1.0).abs() < 0.001, "nothing was left out: {}", outcome.iops());
}

#[test]
fn syncs_take_no_arrivals_from_the_writes() {
    let outcome = simulate(plain(), |job| {
        (job.operation, job.fsync_every, job.fdatasync_every) = (Operation::Write, Some(1), Some(2));
        job.arrivals = Some(Arrivals::Constant { per_s: 1_000.0 });
    });
    assert!((outcome.iops() / 1_000.0 - 1.0).abs() < 0.01, "{}", outcome.iops());
    let syncs = outcome.sync.ios as f64 / outcome.write.ios as f64;
    assert!((syncs - 1.5).abs() < 0.01, "{syncs} syncs for each write");
    assert_eq!(outcome.schedule.unwrap().unstarted.count(), 0);
    let response = outcome.sync.response.unwrap();
    assert!(response.max() < Some(1_000_000), "from when its write was due: {response:?}");
}

#[test]
fn arrivals_a_device_cannot_serve_are_counted_and_not_forgotten() {
    let device = SimSpec { channels: 1, ..plain() };
    let outcome = simulate(device, |job| {
        job.queue_depth = 4;
        job.arrivals = Some(Arrivals::Poisson { per_s: 20_000.0 });
    });
    assert!((outcome.iops() / 12_500.0 - 1.0).abs() < 0.01, "{}", outcome.iops());
    // The warm-up of 50 ms has its backlog too.
    let unstarted = outcome.schedule.unwrap().unstarted.count();
    assert!((7_000..8_800).contains(&unstarted), "{unstarted}");
}

#[test]
fn an_overload_is_measured_also_when_all_of_it_was_due_in_the_warm_up() {
    let device = SimSpec { channels: 1, ..plain() };
    let outcome = simulate(device, |job| {
        (job.queue_depth, job.warmup) = (4, Duration::from_millis(500));
        // What is served of it in 1.5 s is due in the first 375 ms.
        job.arrivals = Some(Arrivals::Constant { per_s: 50_000.0 });
    });
    let (latency, response) = (&outcome.read.latency, outcome.read.response.as_ref().unwrap());
    assert!((12_000..13_000).contains(&latency.count()), "{latency:?}");
    assert_eq!(response.count(), latency.count());
    // The first to start in the measured time was due after an eighth of a second, and waited since.
    assert!(response.min() > Some(350_000_000) && latency.max() < Some(1_000_000), "{response:?}");
    assert!(outcome.schedule.unwrap().slip.min() > Some(350_000_000));
}

#[test]
fn an_overload_that_is_stopped_tells_what_it_never_started() {
    let setting = setting();
    let device = SimSpec { channels: 1, ..plain() };
    let target = Target::simulated(device.clone());
    let mut spec = job(EngineKind::Sim(device));
    (spec.queue_depth, spec.runtime) = (4, Duration::from_secs(24 * 3600));
    spec.arrivals = Some(Arrivals::Constant { per_s: 20_000.0 });
    let stop = Arc::clone(&setting.stop);
    let outcome = run(&spec.check(target.size()).unwrap(), &[target], &setting, |_, glance| {
        stop.fetch_or(glance.ios() > 10_000, Ordering::Relaxed);
    })
    .unwrap();
    assert_eq!(outcome.ended, Ended::Stopped);
    let (done, unstarted) = (outcome.ios() as f64, outcome.schedule.unwrap().unstarted.count() as f64);
    assert!((0.3..0.6).contains(&(unstarted / (done + unstarted))), "{done} done, {unstarted} not started");
}

#[test]
fn think_time_pauses_a_closed_loop() {
    let outcome = simulate(plain(), |job| {
        job.think = Some(Think { time: Duration::from_micros(920), every: 1 });
    });
    // The pause counts from the start of the operation, which takes 80 us of it.
    assert!((outcome.iops() * 920e-6 - 1.0).abs() < 0.01, "{}", outcome.iops());
}

#[test]
fn a_trace_is_replayed_to_its_end() {
    let times: Vec<u64> = (0..500).map(|index| 60_000_000 + index * 100_000).collect();
    let outcome = simulate(plain(), |job| job.arrivals = Some(Arrivals::Trace(times.into())));
    assert_eq!(outcome.read.ios, 500);
    assert!(outcome.elapsed < Duration::from_millis(100), "{:?}", outcome.elapsed);
}

#[test]
fn the_slowest_are_named_with_time_and_depth() {
    let device = SimSpec { slow: Some((0.001, 4_000_000)), jitter: 0.1, ..plain() };
    let outcome = simulate(device, |job| (job.queue_depth, job.workers, job.outliers) = (8, 2, 4));
    assert_eq!(outcome.outliers.len(), 8);
    assert_eq!(outcome.outliers[0].latency_ns, outcome.read.latency.max().unwrap());
    assert!(outcome.outliers.is_sorted_by_key(|outlier| std::cmp::Reverse(outlier.latency_ns)));
    for outlier in &outcome.outliers {
        assert_eq!((outlier.latency_ns, outlier.io.length), (4_000_000, 4096));
        assert!(outlier.at_ns < 1_000_000_000 && (1..=8).contains(&outlier.depth), "{outlier:?}");
    }
    assert!(simulate(plain(), |job| job.outliers = 0).outliers.is_empty());
}

/// A verified job on a file of 1 MiB; plants something between writing and reading back by another run.
fn verified(engine: &EngineKind, plant: impl FnOnce(&File)) -> Option<crate::verify::Verified> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![0u8; 1 << 20]).unwrap();
    let open = || File::options().read(true).write(true).open(&path).unwrap();
    let target = || Target::of_file(open(), Caching::Buffered).unwrap();
    let mut spec = job(engine.clone());
    (spec.operation, spec.random_map, spec.workers) = (Operation::Write, true, 2);
    spec.verify = Some(Verify::WriteThenRead);
    spec.queue_depth = if engine.is_synchronous() { 1 } else { 8 };
    spec.warmup = Duration::ZERO;
    let both = |spec: &JobSpec| {
        run(&spec.clone().check(1 << 20).unwrap(), &[target()], &setting(), |_, _| ())
            .map_err(|error| {
                skip(&format!("run::tests::verified with {}", engine.name()), &error.to_string());
            })
            .ok()
    };
    let written = both(&spec)?;
    let in_one_run = written.verified.unwrap();
    assert_eq!((in_one_run.blocks, in_one_run.failures()), (256, 0), "{in_one_run:?}");
    assert_eq!(written.write.latency.count(), 256, "reading back is not measured as work");
    assert_eq!(written.read.latency.count(), 0);
    plant(&open());
    (spec.operation, spec.verify) = (Operation::Read, Some(Verify::ReadOnly));
    both(&spec)?.verified
}

#[test]
fn what_was_written_is_found_again_by_every_engine() {
    let engines =
        [EngineKind::Pvsync2, EngineKind::Psync, EngineKind::Mmap, EngineKind::Libaio, EngineKind::IoUring];
    for engine in engines {
        let Some(verified) = verified(&engine, |_| ()) else { continue };
        assert_eq!((verified.blocks, verified.failures()), (256, 0), "{verified:?}");
    }
}

#[test]
fn each_planted_corruption_is_found_and_named() {
    use crate::verify::Defect;
    use std::os::unix::fs::FileExt;
    let block = |file: &File, number: u64| {
        let mut block = vec![0; 4096];
        file.read_exact_at(&mut block, number * 4096).unwrap();
        block
    };
    let verified = verified(&EngineKind::Psync, |file| {
        let mut flipped = block(file, 10);
        flipped[2000] ^= 4;
        file.write_all_at(&flipped, 10 * 4096).unwrap();
        file.write_all_at(&block(file, 20), 30 * 4096).unwrap();
        file.write_all_at(&[0; 4096], 40 * 4096).unwrap();
        file.write_all_at(&[0; 512], 50 * 4096 + 1024).unwrap();
    })
    .unwrap();
    let found: Vec<(u64, Defect)> =
        verified.first.iter().map(|failure| (failure.offset / 4096, failure.defect)).collect();
    let wanted =
        [(10, Defect::Corrupt), (30, Defect::Misplaced), (40, Defect::Unstamped), (50, Defect::Torn)];
    assert_eq!((found, verified.failures()), (wanted.to_vec(), 4));
}

#[test]
fn a_lost_write_is_stale() {
    use crate::verify::Defect;
    let target = scratch(1 << 20);
    let spec = |seed| {
        let mut spec = job(EngineKind::Psync);
        (spec.operation, spec.random_map, spec.seed) = (Operation::Write, true, seed);
        spec.verify = Some(Verify::WriteThenRead);
        spec.warmup = Duration::ZERO;
        spec
    };
    let go = |spec: JobSpec| {
        run(&spec.check(1 << 20).unwrap(), std::slice::from_ref(&target), &setting(), |_, _| ()).unwrap()
    };
    go(spec(1));
    // The second run writes all but the last 56 of its 256 blocks.
    let mut partial = spec(2);
    partial.number_ios = Some(200);
    assert_eq!(go(partial).verified.unwrap().blocks, 200);
    let mut check = spec(2);
    (check.operation, check.verify) = (Operation::Read, Some(Verify::ReadOnly));
    let verified = go(check).verified.unwrap();
    assert_eq!((verified.blocks, verified.failures()), (256, 56));
    assert_eq!(verified.defects[&Defect::Stale], 56);
}

/// The engines that work on files here; others are skipped with their reason.
fn on_every_engine(
    test: &str,
    target: &Target,
    change: impl Fn(&mut JobSpec),
    check: impl Fn(&str, Outcome),
) {
    let engines =
        [EngineKind::Pvsync2, EngineKind::Psync, EngineKind::Mmap, EngineKind::Libaio, EngineKind::IoUring];
    for engine in engines {
        let mut spec = job(engine);
        spec.queue_depth = if spec.engine.is_synchronous() { 1 } else { 4 };
        spec.warmup = Duration::ZERO;
        let name = spec.engine.name();
        change(&mut spec);
        let Ok(spec) = spec.check(target.size()) else { continue };
        match run(&spec, std::slice::from_ref(target), &setting(), |_, _| ()) {
            Err(RunError::Ring(error)) => skip(&format!("run::tests::{test}"), &error.to_string()),
            other => check(name, other.unwrap()),
        }
    }
}

#[test]
fn syncs_are_done_and_counted_apart() {
    let target = scratch(1 << 20);
    let change = |job: &mut JobSpec| {
        (job.operation, job.number_ios) = (Operation::Write, Some(100));
        (job.fsync_every, job.fdatasync_every) = (Some(20), Some(10));
    };
    on_every_engine("syncs_are_done_and_counted_apart", &target, change, |engine, outcome| {
        assert!(outcome.errors.is_empty() && outcome.short_ios == 0, "{engine}: {outcome:?}");
        assert_eq!((outcome.write.ios, outcome.sync.ios), (100, 15), "{engine}");
        assert_eq!((outcome.ios(), outcome.moved_bytes), (100, 100 * 4096), "{engine}");
        assert!(outcome.sync.latency.max() > Some(0), "{engine}");
    });
    let outcome = simulate(plain(), |job| {
        (job.operation, job.fsync_every, job.number_ios) = (Operation::Write, Some(4), Some(40));
    });
    assert_eq!((outcome.write.ios, outcome.sync.ios), (40, 10));
}

/// For so many I/Os, however slow the disk is.
const LONG_ENOUGH: Duration = Duration::from_secs(300);

#[test]
fn durable_writes_work_on_every_engine_that_has_them() {
    let target = scratch(1 << 20);
    for sync in [SyncMode::Sync, SyncMode::DataSync] {
        let change = |job: &mut JobSpec| {
            (job.operation, job.number_ios, job.sync) = (Operation::Write, Some(20), sync);
            job.runtime = LONG_ENOUGH;
        };
        on_every_engine("durable_writes_work", &target, change, |engine, outcome| {
            assert_eq!((outcome.write.ios, outcome.errors.len()), (20, 0), "{engine}: {outcome:?}");
            assert_ne!(engine, "mmap");
        });
    }
}

#[test]
fn what_is_not_known_of_the_cpus_is_not_told_as_idle() {
    let target = scratch(1 << 20);
    let go = |cpus: Vec<usize>| {
        let job = JobSpec { runtime: Duration::from_millis(100), ..job(EngineKind::Psync) };
        let setting = Setting { cpus, ..setting() };
        run(&job.check(1 << 20).unwrap(), std::slice::from_ref(&target), &setting, |_, _| ()).unwrap()
    };
    let own = overdrive_sys::affinity::allowed_cpus().unwrap()[0];
    assert!(go(vec![own]).cpu.unwrap().cpus.is_some());
    assert!(go(Vec::new()).cpu.unwrap().cpus.is_none(), "a worker that is not pinned has no CPU of its own");
}

#[test]
fn trims_leave_zeroes_behind() {
    let change = |job: &mut JobSpec| {
        (job.operation, job.random_map, job.number_ios) = (Operation::Trim, true, Some(256));
        job.runtime = LONG_ENOUGH;
    };
    let target = scratch(1 << 20);
    if overdrive_sys::file::trim_at(
        target.file().unwrap(),
        overdrive_sys::file::TrimMethod::PunchHole,
        0,
        4096,
    ) == Err(Errno::OPNOTSUPP)
    {
        return skip("run::tests::trims_leave_zeroes_behind", "this file system has no holes");
    }
    on_every_engine("trims_leave_zeroes_behind", &scratch(1 << 20), change, |engine, outcome| {
        assert_eq!((outcome.trim.ios, outcome.trim.bytes), (256, 1 << 20), "{engine}: {outcome:?}");
        assert_eq!((outcome.moved_bytes, outcome.ended), (0, Ended::TimeUp), "{engine}");
        assert_ne!(engine, "libaio");
    });
    let fill = |job: &mut JobSpec| {
        (job.operation, job.random_map, job.number_ios) = (Operation::Write, true, Some(256));
    };
    for engine in [EngineKind::Psync, EngineKind::IoUring] {
        let go = |change: &dyn Fn(&mut JobSpec)| {
            let mut spec = job(engine.clone());
            spec.warmup = Duration::ZERO;
            change(&mut spec);
            run(&spec.check(target.size()).unwrap(), std::slice::from_ref(&target), &setting(), |_, _| ())
        };
        if go(&fill).is_err() {
            continue;
        }
        assert_eq!(target.share_of_zero_blocks(u64::MAX), Ok(0.0));
        go(&change).unwrap();
        assert_eq!(target.share_of_zero_blocks(u64::MAX), Ok(1.0), "{engine:?}");
    }
}

#[test]
fn writes_carry_what_was_asked_for() {
    use crate::job::Content;
    let target = scratch(1 << 20);
    let pattern: Content = Content { pattern: Some([0xab, 0xcd].into()), ..Content::default() };
    let change = |job: &mut JobSpec| {
        (job.operation, job.random_map, job.number_ios) = (Operation::Write, true, Some(256));
        job.content = pattern.clone();
    };
    let content = || {
        let mut bytes = vec![0; 1 << 20];
        overdrive_sys::file::pread_at(target.file().unwrap(), &mut bytes, 0).unwrap();
        bytes
    };
    on_every_engine("writes_carry_what_was_asked_for", &target, change, |engine, _| {
        assert!(content().chunks(2).all(|pair| pair == [0xab, 0xcd]), "{engine}");
    });
    let change = |job: &mut JobSpec| {
        (job.operation, job.random_map, job.number_ios) = (Operation::Write, true, Some(256));
        job.content = Content { refill: true, ..Content::default() };
    };
    on_every_engine("writes_carry_what_was_asked_for", &target, change, |engine, _| {
        let content = content();
        let blocks: std::collections::BTreeSet<&[u8]> = content.chunks(4096).collect();
        assert_eq!(blocks.len(), 256, "{engine}: no two blocks are alike");
    });
}

#[test]
fn batches_wait_for_as_many_as_they_say() {
    // 16 in flight on 16 channels that all take the same time come back together or not at all.
    let at_once = |change: fn(&mut JobSpec)| {
        simulate(SimSpec { jitter: 0.5, ..plain() }, |job| {
            job.queue_depth = 16;
            change(job);
        })
    };
    let usual = at_once(|_| ());
    let together = at_once(|job| job.batch.complete = Some(16));
    let drained = at_once(|job| job.batch.low = Some(0));
    assert!((usual.in_flight_mean() - 16.0).abs() < 0.1, "{}", usual.in_flight_mean());
    // Waiting for all of them costs the difference between the mean and the slowest of sixteen.
    assert!(together.iops() < usual.iops() * 0.75, "{} {}", together.iops(), usual.iops());
    assert_eq!(together.ios(), drained.ios());
}

#[test]
fn a_start_delay_passes_before_anything_happens() {
    let target = scratch(1 << 20);
    let mut spec = job(EngineKind::Psync);
    (spec.number_ios, spec.start_delay, spec.warmup) = (Some(1), Duration::from_millis(150), Duration::ZERO);
    let start = Instant::now();
    let outcome = run(&spec.check(target.size()).unwrap(), &[target], &setting(), |_, _| ()).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(150));
    assert!(outcome.elapsed < Duration::from_millis(150), "{:?}", outcome.elapsed);
}

#[test]
fn jobs_that_run_together_start_together_and_end_by_themselves() {
    let task = |change: fn(&mut JobSpec)| {
        let mut job = crate::job::tests::spec();
        change(&mut job);
        let target = Target::simulated(SimSpec::default());
        Task { job: job.check(target.size()).unwrap(), targets: vec![target], cpus: Vec::new(), log: None }
    };
    let tasks = [
        task(|job| job.number_ios = Some(100)),
        task(|job| (job.workers, job.cooldown) = (2, Duration::from_millis(100))),
    ];
    let outcomes = run_together(&tasks, &setting(), |_, _| {}).unwrap();
    assert_eq!((outcomes[0].ios(), outcomes.len()), (100, 2));
    assert!(outcomes[1].ios() > 1000 && outcomes[1].elapsed >= Duration::from_secs(1));
    assert!(outcomes[1].elapsed < Duration::from_millis(1050), "the cool-down is not measured");
    assert_eq!(outcomes[0].slice, outcomes[1].slice);
    // The same job twice at once: other random numbers, or both would visit the same blocks in step.
    let twice = [task(|job| job.number_ios = Some(50)), task(|job| job.number_ios = Some(50))];
    let outcomes = run_together(&twice, &setting(), |_, _| {}).unwrap();
    let offsets = |outcome: &Outcome| outcome.outliers.iter().map(|one| one.io.offset).collect::<Vec<u64>>();
    assert_ne!(offsets(&outcomes[0]), offsets(&outcomes[1]));
}

/// Runs on a simulated device and returns the outcome and the latencies that the log was given.
fn simulate_logged(
    device: SimSpec,
    change: impl FnOnce(&mut JobSpec),
) -> (Outcome, Vec<crate::iolog::Entry>) {
    let target = Target::simulated(device.clone());
    let mut spec = job(EngineKind::Sim(device));
    change(&mut spec);
    let (sink, receiver) = crate::iolog::io_log();
    let reader = std::thread::spawn(move || {
        let blocks: Vec<crate::iolog::Block> = receiver.iter().collect();
        assert!(blocks.iter().all(|block| block.lost == 0));
        blocks.into_iter().flat_map(|block| block.entries).collect::<Vec<_>>()
    });
    let job = spec.check(target.size()).unwrap();
    let outcome = run_logged(&job, std::slice::from_ref(&target), &setting(), Some(sink), |_, _| ()).unwrap();
    (outcome, reader.join().unwrap())
}

const PERCENTILES: [f64; 9] = [1.0, 10.0, 50.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999];

#[test]
fn percentiles_recomputed_from_the_log_are_the_printed_ones() {
    for queue_depth in [1, 32] {
        let device = SimSpec { slow: Some((0.001, 700_000)), jitter: 0.4, channels: 6, ..plain() };
        let (outcome, log) = simulate_logged(device, |job| {
            job.queue_depth = queue_depth;
            job.workers = 2;
            job.runtime = Duration::from_secs(5);
        });
        let printed = &outcome.read.latency;
        let mut latencies: Vec<u64> = log.iter().map(|entry| entry.latency_ns).collect();
        assert_eq!(latencies.len() as u64, printed.count());
        let mut again = overdrive_hist::Histogram::new();
        latencies.iter().for_each(|&latency| again.record(latency));
        latencies.sort_unstable();
        for percentile in PERCENTILES {
            let shown = printed.value_at(percentile / 100.0).unwrap();
            assert_eq!(again.value_at(percentile / 100.0), Some(shown), "{percentile} %");
            // The true one, by rank: at most 0.8 % below what is shown, and never above. A whole rank is
            // not the next one because a quotient was rounded up.
            let rank = (percentile / 100.0 * latencies.len() as f64 * (1.0 - 1e-12)).ceil() as usize;
            let truth = latencies[rank.clamp(1, latencies.len()) - 1] as f64;
            let error = shown as f64 / truth - 1.0;
            assert!((0.0..=0.008).contains(&error), "{percentile} %: {shown} for {truth}");
        }
    }
}

#[test]
fn one_straggler_in_a_thousand_keeps_its_place_behind_batches_of_32() {
    for slow_ns in [300_000, 600_000, 1_000_000] {
        let device = SimSpec { read_ns: 10_000, slow: Some((0.001, slow_ns)), jitter: 0.05, ..plain() };
        let (outcome, log) = simulate_logged(device, |job| {
            job.queue_depth = 32;
            // Whole batches go and come, which is where a tail folds into its neighbours if it can.
            (job.batch.submit, job.batch.complete) = (Some(32), Some(1));
            job.runtime = Duration::from_secs(1);
        });
        let latency = &outcome.read.latency;
        let at = |percentile: f64| latency.value_at(percentile / 100.0).unwrap() as f64;
        assert!(at(99.85) <= 10_500.0 * 1.008, "{slow_ns}: {}", at(99.85));
        let error = at(99.95) / slow_ns as f64 - 1.0;
        assert!((0.0..=0.008).contains(&error), "{slow_ns}: {}", at(99.95));
        let share = log.iter().filter(|entry| entry.latency_ns >= slow_ns).count() as f64 / log.len() as f64;
        assert!((share / 0.001 - 1.0).abs() < 0.15, "{slow_ns}: {share}");
    }
}

#[test]
fn a_latency_target_finds_the_depth_that_keeps_it() {
    // Eight channels: up to a depth of eight nobody waits, above it everybody does.
    let device = SimSpec { channels: 8, ..plain() };
    let outcome = simulate(device, |job| {
        (job.queue_depth, job.runtime) = (64, Duration::from_secs(60));
        job.latency_target = Some(crate::job::LatencyTarget {
            limit: Duration::from_micros(100),
            window: Duration::from_millis(20),
            percentile: 99.0,
            keep_running: false,
        });
    });
    let found = outcome.depth_found.unwrap();
    assert_eq!((found.depth_min, found.depth_max, found.met, found.settled), (8, 8, true, true));
    assert!(outcome.elapsed < Duration::from_secs(1), "it ends when it knows: {:?}", outcome.elapsed);
    let impossible = simulate(plain(), |job| {
        job.queue_depth = 4;
        job.latency_target = Some(crate::job::LatencyTarget {
            limit: Duration::from_micros(70),
            window: Duration::from_millis(20),
            percentile: 99.0,
            keep_running: true,
        });
    });
    assert!(!impossible.depth_found.unwrap().met && impossible.elapsed > Duration::from_millis(900));
}

#[test]
fn a_steady_run_ends_early() {
    use crate::steady::{Figure, Limit, SteadyState, Test};
    let target = scratch(1 << 20);
    for figure in [Figure::Iops, Figure::Bandwidth, Figure::Latency] {
        let mut spec = job(EngineKind::Psync);
        (spec.runtime, spec.warmup) = (Duration::from_secs(60), Duration::ZERO);
        spec.steady = Some(SteadyState {
            figure,
            test: Test::Slope,
            // Any machine is as steady as that.
            limit: Limit::Percent(90.0),
            duration: Duration::from_millis(400),
            ramp: Duration::ZERO,
            interval: Duration::from_millis(100),
        });
        let start = Instant::now();
        let outcome =
            run(&spec.check(target.size()).unwrap(), std::slice::from_ref(&target), &setting(), |_, _| ());
        let outcome = outcome.unwrap();
        let steady = outcome.steady.unwrap();
        assert!(steady.attained && steady.values >= 4 && steady.mean > 0.0, "{figure:?}: {steady:?}");
        assert_eq!(outcome.ended, Ended::TimeUp);
        assert!(start.elapsed() < Duration::from_secs(30));
        if figure == Figure::Iops {
            assert!((steady.mean / outcome.iops() - 1.0).abs() < 0.5, "{steady:?} {}", outcome.iops());
        }
    }
}

#[test]
fn a_job_that_is_over_is_not_looked_at_while_others_go_on() {
    use crate::steady::{Figure, Limit, SteadyState, Test};
    let target = scratch(1 << 20);
    let task = |change: &dyn Fn(&mut JobSpec)| {
        let mut spec = job(EngineKind::Psync);
        (spec.runtime, spec.warmup) = (Duration::from_millis(1500), Duration::ZERO);
        change(&mut spec);
        Task {
            job: spec.check(target.size()).unwrap(),
            targets: vec![target.clone()],
            cpus: Vec::new(),
            log: None,
        }
    };
    let short = task(&|job| {
        job.number_ios = Some(10);
        job.steady = Some(SteadyState {
            figure: Figure::Iops,
            test: Test::Slope,
            limit: Limit::Percent(90.0),
            duration: Duration::from_millis(200),
            ramp: Duration::ZERO,
            interval: Duration::from_millis(100),
        });
    });
    let outcomes = run_together(&[short, task(&|_| ())], &setting(), |_, _| {}).unwrap();
    let steady = outcomes[0].steady.unwrap();
    assert!(outcomes[0].ios() == 10 && steady.values <= 1, "it ended in the first interval: {steady:?}");
}

/// Corrupts a file between writing and reading back, and returns what was found.
fn planted(corrupt: impl Fn(&mut [u8])) -> crate::verify::Verified {
    use overdrive_sys::file::{pread_at, pwrite_at};
    let target = scratch(1 << 20);
    let go = |operation: Operation, verify: Verify, seed: u64| {
        let mut spec = job(EngineKind::Psync);
        (spec.operation, spec.verify, spec.random_map, spec.seed) = (operation, Some(verify), true, seed);
        spec.warmup = Duration::ZERO;
        run(&spec.check(target.size()).unwrap(), std::slice::from_ref(&target), &setting(), |_, _| ())
            .unwrap()
            .verified
            .unwrap()
    };
    let file = target.file().unwrap();
    // An older generation first, so that a lost write leaves something behind.
    assert_eq!(go(Operation::Write, Verify::WriteThenRead, 41).failures(), 0);
    let mut both = vec![0; 2 << 20];
    pread_at(file, &mut both[1 << 20..], 0).unwrap();
    assert_eq!(go(Operation::Write, Verify::WriteThenRead, 42).failures(), 0);
    pread_at(file, &mut both[..1 << 20], 0).unwrap();
    corrupt(&mut both);
    pwrite_at(file, &both[..1 << 20], 0).unwrap();
    go(Operation::Read, Verify::ReadOnly, 42)
}

#[test]
fn a_later_run_finds_every_planted_corruption_and_names_it() {
    use crate::verify::Defect;
    const OLD: usize = 1 << 20;
    let at = 37 * 4096;
    let found = |corrupt: &dyn Fn(&mut [u8])| {
        let verified = planted(corrupt);
        assert_eq!(verified.blocks, 256);
        verified.first.iter().map(|failure| (failure.offset, failure.defect)).collect::<Vec<_>>()
    };
    assert_eq!(found(&|_| ()), []);
    assert_eq!(found(&|all| all[at + 1234] ^= 0x10), [(at as u64, Defect::Corrupt)]);
    let stale = |all: &mut [u8]| all.copy_within(OLD + at..OLD + at + 4096, at);
    assert_eq!(found(&stale), [(at as u64, Defect::Stale)]);
    let misplaced = |all: &mut [u8]| all.copy_within(4096..8192, at);
    assert_eq!(found(&misplaced), [(at as u64, Defect::Misplaced)]);
    let torn = |all: &mut [u8]| all.copy_within(OLD + at + 3584..OLD + at + 4096, at + 3584);
    assert_eq!(found(&torn), [(at as u64, Defect::Torn)]);
}

#[test]
fn arrivals_that_the_clock_never_shows_are_never_due() {
    let target = scratch(1 << 20);
    for arrivals in
        [Arrivals::Constant { per_s: 1e-12 }, Arrivals::Trace(Arc::from([0, u64::MAX, u64::MAX].as_slice()))]
    {
        let mut spec = job(EngineKind::Psync);
        (spec.runtime, spec.warmup) = (Duration::from_millis(20), Duration::ZERO);
        spec.arrivals = Some(arrivals);
        let job = spec.check(target.size()).unwrap();
        let outcome = run(&job, std::slice::from_ref(&target), &setting(), |_, _| ()).unwrap();
        assert_eq!(
            (outcome.ios(), outcome.schedule.unwrap().unstarted.count()),
            (1, 0),
            "the one that is due at once"
        );
    }
}

#[test]
fn a_worker_that_says_nothing_is_no_result() {
    let spec = job(EngineKind::Sim(plain())).check(1 << 30).unwrap();
    let task = Task { job: spec, targets: vec![Target::simulated(plain())], cpus: Vec::new(), log: None };
    let (sender, receiver) = channel();
    drop(sender);
    let outcome = collect(&receiver, &[task], &setting(), |_, _| ());
    assert_eq!(outcome.err(), Some(RunError::Lost { workers: 1 }));
}

#[test]
fn what_is_checked_is_not_overwritten_by_others() {
    let target = scratch(1 << 20);
    let task = |verify, change: fn(&mut JobSpec)| {
        let mut spec = job(EngineKind::Psync);
        (spec.operation, spec.random_map, spec.verify) = (Operation::Write, true, verify);
        change(&mut spec);
        let job = spec.check(target.size()).unwrap();
        Task { job, targets: vec![target.clone()], cpus: Vec::new(), log: None }
    };
    let stamps = || task(Some(Verify::WriteThenRead), |_| ());
    let half = |job: &mut JobSpec| job.size = Some(1 << 19);
    let rest = |job: &mut JobSpec| job.offset = 1 << 19;
    let reads = |job: &mut JobSpec| (job.operation, job.random_map) = (Operation::Read, false);
    let looks = |job: &mut JobSpec| job.operation = Operation::Read;
    for (other, wanted) in [
        (stamps(), Err(RunError::Overwritten)),
        (task(None, |_| ()), Err(RunError::Overwritten)),
        (task(None, half), Err(RunError::Overwritten)),
        (task(None, reads), Ok(())),
    ] {
        assert_eq!(check_apart(&[stamps(), other.clone()]), wanted, "{other:?}");
        assert_eq!(check_apart(&[other, stamps()]), wanted);
    }
    let both = [task(Some(Verify::WriteThenRead), half), task(Some(Verify::WriteThenRead), rest)];
    assert_eq!(check_apart(&both), Ok(()), "each has a half of its own");
    let readers = [task(Some(Verify::ReadOnly), looks), task(Some(Verify::ReadOnly), looks)];
    assert_eq!(check_apart(&readers), Ok(()), "nobody writes");
    let mut twice = task(Some(Verify::WriteThenRead), |job| job.workers = 2);
    twice.targets = vec![target.clone(), target.clone()];
    let outcome = run_together(&[twice], &setting(), |_, _| ());
    assert_eq!(outcome.err(), Some(RunError::Overwritten), "named twice");
}
