//! The parts of an outcome that only some workloads have, copied into the wire types.

use super::direction;
use overdrive_io::job::words::{distribution_words, steady_state_words};
use overdrive_io::job::{Advice, Direction, Distribution, JobSpec, SyncMode};
use overdrive_io::outcome::{DepthFound, Outcome, ScheduleOutcome};
use overdrive_io::pace::Arrivals;
use overdrive_io::steady::SteadyOutcome;
use overdrive_io::verify::{Verified, Verify};
use overdrive_report::record as wire;

/// What was asked beyond the usual; none when nothing was.
pub(super) fn job(spec: &JobSpec) -> Option<wire::JobDetail> {
    let positive = |value: u64| Some(value).filter(|&value| value > 0);
    let sizes: Vec<wire::SizeShare> = spec
        .size_mix
        .iter()
        .map(|share| wire::SizeShare { bytes: share.bytes, percent: share.percent })
        .collect();
    let detail = wire::JobDetail {
        block_sizes: Some(sizes).filter(|sizes| !sizes.is_empty()),
        block_align_bytes: spec.block_align,
        offset_bytes: positive(spec.offset),
        size_bytes: spec.size,
        io_size_bytes: spec.io_size,
        number_ios: spec.number_ios,
        stride_bytes: positive(spec.stride),
        distribution: (spec.distribution != Distribution::Uniform)
            .then(|| distribution_words(&spec.distribution)),
        random_percent: Some(spec.random_percent).filter(|&percent| percent < 100),
        random_map: spec.random_map.then_some(true),
        arrivals: spec.arrivals.as_ref().map(|arrivals| arrivals.name().to_owned()),
        rate_per_worker: spec.arrivals.as_ref().and_then(Arrivals::per_s),
        burst: match spec.arrivals {
            Some(Arrivals::Bursts { size, .. }) => Some(size),
            _ => None,
        },
        think_time_ns: spec.think.map(|think| think.time.as_nanos() as u64),
        think_every: spec.think.map(|think| think.every),
        verify: spec.verify.map(|verify| match verify {
            Verify::WriteThenRead => "write_then_read".to_owned(),
            Verify::WriteOnly => "write_only".to_owned(),
            Verify::ReadOnly => "read_only".to_owned(),
        }),
        fsync_every: spec.fsync_every,
        fdatasync_every: spec.fdatasync_every,
        sync: match spec.sync {
            SyncMode::None => None,
            SyncMode::Sync => Some("sync".to_owned()),
            SyncMode::DataSync => Some("dsync".to_owned()),
        },
        refill_buffers: spec.content.refill.then_some(true),
        buffer_pattern: spec.content.pattern.as_ref().map(|bytes| hexadecimal(bytes)),
        compressible_percent: spec.content.compress_percent,
        submit_batch: spec.batch.submit,
        complete_batch: spec.batch.complete,
        low_water: spec.batch.low,
        advice: match spec.page_cache.advice {
            Advice::AsAccessed => None,
            Advice::None => Some("none".to_owned()),
            Advice::Random => Some("random".to_owned()),
            Advice::Sequential => Some("sequential".to_owned()),
        },
        latency_target_ns: spec.latency_target.map(|target| target.limit.as_nanos() as u64),
        latency_target_percent: spec.latency_target.map(|target| target.percentile),
        percentiles: Some(spec.percentiles.clone()).filter(|list| !list.is_empty()),
        steady_state: spec.steady.as_ref().map(steady_state_words),
        steady_duration_s: spec.steady.map(|steady| steady.duration.as_secs_f64()),
        start_delay_s: Some(spec.start_delay.as_secs_f64()).filter(|&delay| delay > 0.0),
    };
    Some(detail).filter(|detail| *detail != wire::JobDetail::default())
}

pub(super) fn steady(steady: SteadyOutcome) -> wire::Steady {
    let SteadyOutcome { attained, criterion, mean, values } = steady;
    // JSON has no infinity: a mean of zero has no share.
    let criterion = if criterion.is_finite() { criterion } else { 0.0 };
    wire::Steady { attained, criterion, mean, values }
}

pub(super) fn depth_found(found: DepthFound) -> wire::DepthFound {
    let DepthFound { depth_min, depth_max, settled, met } = found;
    wire::DepthFound { depth_min, depth_max, settled, met }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What one I/O did.
pub(super) fn operation(direction: Direction) -> wire::Operation {
    match direction {
        Direction::Read => wire::Operation::Read,
        Direction::Write => wire::Operation::Write,
        Direction::Trim => wire::Operation::Trim,
        Direction::Sync | Direction::DataSync => wire::Operation::Sync,
    }
}

pub(super) fn schedule(schedule: &ScheduleOutcome) -> wire::Schedule {
    wire::Schedule {
        slip_mean_ns: schedule.slip.mean().unwrap_or(0.0),
        slip_p99_ns: schedule.slip.value_at(0.99).unwrap_or(0),
        slip_max_ns: schedule.slip.max().unwrap_or(0),
        unstarted: schedule.unstarted.count(),
    }
}

pub(super) fn outliers(outcome: &Outcome) -> Option<Vec<wire::Outlier>> {
    let wire_outlier = |outlier: &overdrive_io::outliers::Outlier| wire::Outlier {
        at_ns: outlier.at_ns,
        latency_ns: outlier.latency_ns,
        operation: operation(outlier.io.direction),
        offset_bytes: outlier.io.offset,
        length_bytes: u64::from(outlier.io.length),
        depth: outlier.depth,
        cpu: u32::try_from(outlier.cpu).unwrap_or(u32::MAX),
        worker: outlier.worker,
    };
    (!outcome.outliers.is_empty()).then(|| outcome.outliers.iter().map(wire_outlier).collect())
}

pub(super) fn targets(outcome: &Outcome, names: &[String]) -> Option<Vec<wire::TargetOutcome>> {
    let part = |(part, name): (&overdrive_io::outcome::TargetOutcome, &String)| wire::TargetOutcome {
        target: name.clone(),
        read: direction(&part.read, outcome, &[]),
        write: direction(&part.write, outcome, &[]),
        trim: direction(&part.trim, outcome, &[]),
        failures: part.failures,
    };
    (!outcome.targets.is_empty()).then(|| outcome.targets.iter().zip(names).map(part).collect())
}

pub(super) fn verified(verified: &Verified) -> wire::Verified {
    wire::Verified {
        blocks: verified.blocks,
        failures: verified.failures(),
        defects: verified
            .defects
            .iter()
            .map(|(defect, &count)| wire::DefectCount { defect: defect.name().to_owned(), count })
            .collect(),
        first: verified
            .first
            .iter()
            .map(|failure| wire::VerifyFailure {
                offset_bytes: failure.offset,
                defect: failure.defect.name().to_owned(),
                detail: failure.detail.clone(),
            })
            .collect(),
    }
}
