//! One case for each limit and each warning.

use super::*;
use crate::fixtures;
use crate::record::{DeviceIos, ErrorCount, Operation, Status};

const RAMP_8X16: &str = "ramp-randread-4k-io_uring-8x16";
const WRITE: &str = "randwrite-4k-io_uring-4x4";

/// The verdict on workload `id` of a P4800X record after `change`.
fn with(id: &str, change: impl FnOnce(&mut Record, usize)) -> Verdict {
    let mut record = fixtures::optane();
    let index = record.workloads.iter().position(|workload| workload.id == id).unwrap();
    change(&mut record, index);
    judge(&record, &record.workloads[index])
}

fn outcome(record: &mut Record, index: usize) -> &mut Outcome {
    &mut record.workloads[index].outcome
}

fn cpu(record: &mut Record, index: usize) -> &mut Cpu {
    outcome(record, index).cpu.as_mut().unwrap()
}

#[test]
fn a_flat_ramp_with_idle_cpus_is_the_device() {
    let verdict = with(RAMP_8X16, |_, _| {});
    assert_eq!((verdict.limit, verdict.confidence), (Limit::Device, Confidence::Sure));
    assert!(verdict.because[0].contains("126.1 of 128"), "{:?}", verdict.because);
    assert!(verdict.because.iter().any(|line| line.contains("depth 64")), "{:?}", verdict.because);
    assert!(verdict.warnings.is_empty(), "{:?}", verdict.warnings);
}

#[test]
fn without_neighbours_the_device_is_only_likely() {
    let verdict = with(WRITE, |_, _| {});
    assert_eq!((verdict.limit, verdict.confidence), (Limit::Device, Confidence::Likely));
}

#[test]
fn a_rate_that_grows_with_depth_is_depth_limited() {
    let verdict = with("ramp-randread-4k-io_uring-2x1", |_, _| {});
    assert_eq!((verdict.limit, verdict.confidence), (Limit::QueueDepth, Confidence::Sure));
    let verdict = with(RAMP_8X16, |record, index| outcome(record, index).iops = 800e3);
    assert_eq!((verdict.limit, verdict.confidence), (Limit::QueueDepth, Confidence::Likely));
}

#[test]
fn a_polled_read_at_full_cpu_is_not_cpu_limited_by_that() {
    let verdict = with("randread-4k-pvsync2-1x1", |_, _| {});
    assert_eq!(verdict.limit, Limit::QueueDepth);
    assert!(verdict.because.iter().any(|line| line.contains("by design")), "{:?}", verdict.because);
}

#[test]
fn busy_cpus_are_the_cpu() {
    for (busy, confidence) in [(99.0, Confidence::Sure), (92.0, Confidence::Likely)] {
        let verdict = with(RAMP_8X16, |record, index| {
            cpu(record, index).host_busy_percent = Some(busy);
            cpu(record, index).interrupts_percent = Some(busy - cpu(record, index).utilisation_percent);
        });
        assert_eq!((verdict.limit, verdict.confidence), (Limit::Cpu, confidence), "{busy}");
    }
}

#[test]
fn other_threads_on_the_workers_cpus_are_host_noise() {
    let verdict = with(RAMP_8X16, |record, index| cpu(record, index).host_busy_percent = Some(99.0));
    assert_eq!((verdict.limit, verdict.confidence), (Limit::HostNoise, Confidence::Likely));
    assert!(verdict.because[0].contains("Other threads"), "{:?}", verdict.because);
}

#[test]
fn a_full_link_is_the_link() {
    let verdict = with("seqread-64k-io_uring-1x32", |record, index| {
        outcome(record, index).read.as_mut().unwrap().bytes_per_s = 3.6e9;
    });
    assert_eq!((verdict.limit, verdict.confidence), (Limit::Link, Confidence::Sure));
    assert!(verdict.because[0].contains("91 %"), "{:?}", verdict.because);
}

#[test]
fn the_rings_own_ceiling_is_the_tool() {
    let verdict = with(WRITE, |record, index| outcome(record, index).iops = 50e6);
    assert_eq!(verdict.limit, Limit::Tool);
    let verdict = with(WRITE, |record, index| outcome(record, index).in_flight_mean = 8.0);
    assert_eq!((verdict.limit, verdict.confidence), (Limit::Tool, Confidence::Unsure));
}

#[test]
fn stolen_time_and_foreign_ios_are_host_noise() {
    let verdict = with(WRITE, |record, index| cpu(record, index).steal_percent = Some(14.0));
    assert_eq!(verdict.limit, Limit::HostNoise);
    assert!(verdict.warnings.iter().any(|line| line.contains("14.0 %")));
    let verdict = with(WRITE, |record, index| {
        let outcome = outcome(record, index);
        let read_bytes = outcome.moved_bytes;
        outcome.device_ios =
            Some(DeviceIos { reads: 7, writes: outcome.ios, read_bytes, write_bytes: outcome.moved_bytes });
    });
    assert_eq!(verdict.limit, Limit::HostNoise);
    assert!(verdict.because[0].contains("50 %"), "{:?}", verdict.because);
    assert!(verdict.warnings[0].contains("2.00×"), "{:?}", verdict.warnings);
}

#[test]
fn a_rate_that_no_such_link_could_carry_is_not_the_link() {
    let faster = |factor: f64| {
        with(RAMP_8X16, |record, index| {
            let facts = record.target.layers.iter().flat_map(|layer| &layer.facts);
            let bandwidth = facts.filter_map(link_bandwidth).fold(f64::INFINITY, f64::min);
            outcome(record, index).read.as_mut().unwrap().bytes_per_s = factor * bandwidth;
        })
    };
    assert_eq!(faster(0.95).limit, Limit::Link);
    let verdict = faster(4.0);
    assert_eq!(verdict.limit, Limit::Device);
    assert!(verdict.because.iter().any(|line| line.contains("is not true")), "{:?}", verdict.because);
}

#[test]
fn polling_that_slept_is_told_and_judged_as_what_it_was() {
    let id = "randread-4k-pvsync2-1x1";
    let switched = |ios_per_switch: u64| {
        with(id, |record, index| {
            let ios = outcome(record, index).ios;
            cpu(record, index).voluntary_switches = ios / ios_per_switch;
        })
    };
    // Some interrupts come before the CPU is given away.
    for slept in [switched(1), switched(3)] {
        assert!(
            slept.warnings.iter().any(|line| line.contains("slept until each interrupt")),
            "{:?}",
            slept.warnings
        );
        assert!(!slept.because.iter().any(|line| line.contains("by design")), "{:?}", slept.because);
    }
    for polled in [with(id, |_, _| {}), switched(100)] {
        assert!(!polled.warnings.iter().any(|line| line.contains("slept")), "{:?}", polled.warnings);
    }
}

#[test]
fn nothing_done_is_unknown() {
    let verdict = with(WRITE, |record, index| {
        outcome(record, index).ios = 0;
        outcome(record, index).write = None;
    });
    assert_eq!(verdict.limit, Limit::Unknown);
}

#[test]
fn trims_move_no_bytes_that_the_disks_could_be_held_against() {
    let verdict = with(WRITE, |record, index| {
        record.workloads[index].job.operation = Operation::Trim;
        let outcome = outcome(record, index);
        (outcome.trim, outcome.moved_bytes) = (outcome.write.take(), 0);
    });
    assert_ne!(verdict.limit, Limit::HostNoise, "{:?}", verdict.because);
    assert!(!verdict.warnings.iter().any(|line| line.contains("The disk")), "{:?}", verdict.warnings);
}

/// Whether exactly this warning comes of `change`.
fn warns(expected: &str, change: impl FnOnce(&mut Record, usize)) {
    let verdict = with(RAMP_8X16, change);
    assert!(
        verdict.warnings.iter().any(|line| line.contains(expected)),
        "{expected}: {:?}",
        verdict.warnings
    );
}

#[test]
fn doubtful_results_carry_warnings() {
    warns("page cache", |record, _| record.target.direct = false);
    warns("12 % of the sampled", |record, _| record.preconditioning.never_written_percent = Some(12.0));
    warns("moved fewer", |record, index| outcome(record, index).short_ios = 3);
    warns("ended after 2.0 s", |record, index| {
        record.status = Status::Interrupted;
        outcome(record, index).elapsed_s = 2.0;
    });
    warns("3 I/O(s) failed, the first with EIO at byte 4096", |record, index| {
        outcome(record, index).errors.push(ErrorCount {
            operation: Operation::Read,
            errno: 5,
            name: "EIO".to_owned(),
            count: 3,
            first_offset: Some(4096),
        });
    });
    warns("fell by", |record, index| {
        for (at, slice) in outcome(record, index).series.iter_mut().enumerate() {
            slice.ios = 1000 - 10 * at as u64;
        }
    });
    warns("may be the host's", |record, _| {
        record.self_test.as_mut().unwrap().noise[1].longest_gap_ns = 900_000_000;
    });
    warns("from a cache", |record, index| {
        outcome(record, index).device_ios.as_mut().unwrap().read_bytes = 1 << 20;
    });
    warns("merged", |record, index| outcome(record, index).device_ios.as_mut().unwrap().reads /= 4);
}

#[test]
fn the_reference_machine_is_judged_too() {
    let mut record = fixtures::virtio();
    judge_all(&mut record);
    let verdict = |id: &str| record.workloads.iter().find(|w| w.id == id).unwrap().verdict.as_ref().unwrap();
    assert_eq!(verdict("ramp-randread-4k-io_uring-1x1").limit, Limit::QueueDepth);
    assert!(!verdict("randread-4k-io_uring-1x1").warnings.is_empty(), "a noisy host is told");
}

#[test]
fn a_schedule_that_was_kept_is_the_pace() {
    let schedule =
        |unstarted| Schedule { slip_mean_ns: 900.0, slip_p99_ns: 4_000, slip_max_ns: 60_000, unstarted };
    let verdict = with(WRITE, |record, index| outcome(record, index).schedule = Some(schedule(0)));
    assert_eq!((verdict.limit, verdict.confidence), (Limit::Pace, Confidence::Sure));
    let verdict = with(WRITE, |record, index| outcome(record, index).schedule = Some(schedule(7_000)));
    assert_eq!(verdict.limit, Limit::Device);
    assert!(verdict.because.iter().any(|line| line.contains("never started")), "{:?}", verdict.because);
    let verdict = with(WRITE, |record, index| outcome(record, index).schedule = Some(schedule(2)));
    assert_eq!(verdict.limit, Limit::Pace, "they fell due while the loops ended");
    assert!(verdict.because[0].starts_with("All arrivals but 2 were started"), "{:?}", verdict.because);
}

#[test]
fn a_number_of_ios_that_took_longer_than_its_schedule_is_not_the_pace() {
    let done = |share: f64, slip_p99_s: f64| {
        with(WRITE, |record, index| {
            let workers = f64::from(record.workloads[index].job.workers);
            let iops = outcome(record, index).iops;
            record.workloads[index].job.detail = Some(crate::record::JobDetail {
                rate_per_worker: Some(iops / share / workers),
                ..crate::record::JobDetail::default()
            });
            let slip_p99_ns = (slip_p99_s * outcome(record, index).elapsed_s * 1e9) as u64;
            outcome(record, index).schedule = Some(Schedule {
                slip_mean_ns: slip_p99_ns as f64 / 2.0,
                slip_p99_ns,
                slip_max_ns: slip_p99_ns,
                unstarted: 0,
            });
        })
    };
    let verdict = done(0.6, 0.4);
    assert_eq!(verdict.limit, Limit::Device);
    assert!(verdict.because.iter().any(|line| line.contains("was not kept")), "{:?}", verdict.because);
    assert_eq!(done(0.9, 0.0001).limit, Limit::Pace, "few arrivals at random, all in time");
    assert_eq!(done(1.0, 0.1).limit, Limit::Pace, "a stall that was made up for");
}

#[test]
fn a_depth_that_was_looked_for_is_no_fault_of_the_tool() {
    let found = |depth_max: u32, mean: f64| {
        with(WRITE, |record, index| {
            outcome(record, index).in_flight_mean = mean;
            outcome(record, index).depth_found =
                Some(crate::record::DepthFound { depth_min: 1, depth_max, settled: true, met: true });
        })
    };
    // Four workers of a depth of four each.
    let verdict = found(2, 7.0);
    assert_eq!(verdict.limit, Limit::Device);
    assert!(verdict.because[0].contains("7.0 of 8"), "{:?}", verdict.because);
    assert_eq!(found(4, 5.0).limit, Limit::Unknown, "most of the time lower depths were tried");
    let verdict = with(WRITE, |record, index| {
        outcome(record, index).in_flight_mean = 8.0;
        record.workloads[index].job.detail =
            Some(crate::record::JobDetail { low_water: Some(1), ..crate::record::JobDetail::default() });
    });
    assert_eq!(verdict.limit, Limit::Unknown);
}
