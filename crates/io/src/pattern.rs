//! Which operation comes next, and where: a seeded sequence for each worker.

mod permutation;
mod sampler;

use crate::job::{Access, Direction, Distribution, Job, Operation, SizeShare};
use overdrive_base::rng::Rng;
use permutation::Permutation;
use sampler::Sampler;

/// One operation to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Io {
    /// What it does.
    pub direction: Direction,
    /// Where, in bytes from the start of the target; 0 for a sync.
    pub offset: u64,
    /// How many bytes; 0 for a sync.
    pub length: u32,
}

impl Io {
    const SYNC: Self = Self { direction: Direction::Sync, offset: 0, length: 0 };
    const DATA_SYNC: Self = Self { direction: Direction::DataSync, offset: 0, length: 0 };
}

/// Which of the workers on a target this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its number, from 0.
    pub number: u32,
    /// Workers on the target.
    pub of: u32,
    /// The stream of random numbers it draws from; no two workers of a job share one.
    pub stream: u64,
}

/// The sequence of one worker: endless, unless the job counts operations or bytes.
#[derive(Debug, Clone)]
pub struct Pattern {
    operation: Operation,
    /// Of a mix, so many in a million read.
    reads_ppm: u64,
    sizes: Sizes,
    order: Order,
    /// What offsets count from, in bytes.
    start: u64,
    align: u64,
    rng: Rng,
    limits: Limits,
    left: Limits,
    syncs: [SyncEvery; 2],
    sync_due: bool,
    runs: Option<Runs>,
}

/// Random offsets that are followed by a run of sequential ones.
#[derive(Debug, Clone, Copy)]
struct Runs {
    /// How often an offset is drawn, in per cent.
    random_percent: u64,
    /// Where the region ends, and the operation before did; how that one went.
    end: u64,
    next: Option<(u64, Direction)>,
}

/// One kind of sync, and after how many more writes it is due.
#[derive(Debug, Clone, Copy)]
struct SyncEvery {
    io: Io,
    every: u64,
    left: u64,
}

impl SyncEvery {
    fn new(io: Io, every: Option<u32>) -> Self {
        let every = every.map_or(u64::MAX, u64::from);
        Self { io, every, left: every }
    }
}

/// Operations and bytes that may still be started.
#[derive(Debug, Clone, Copy)]
struct Limits {
    ios: u64,
    bytes: u64,
}

#[derive(Debug, Clone)]
enum Order {
    /// Any of so many aligned starts.
    Uniform { starts: u64 },
    /// Some more often than others.
    Shaped(Sampler),
    /// Each once, in a shuffled order, then again in another.
    Shuffled { shuffle: Permutation, starts: u64, next: u64, key: u64 },
    /// Ascending through so many bytes, with a gap after each, over and over.
    Sequential { bytes: u64, next: u64, gap: u64 },
}

/// Sizes and how often each comes.
#[derive(Debug, Clone)]
struct Sizes {
    usual: u32,
    /// Each size and the sum of its own and all earlier shares, of 100; empty when there is only one.
    mix: Vec<(u32, u64)>,
}

impl Pattern {
    /// The sequence of a worker over a target of `target_size` bytes.
    ///
    /// Random workers all range over the whole region; those that visit each block once, and sequential ones,
    /// each have an equal share of it, unless the job gives each worker a region of its own.
    #[must_use]
    pub fn new(job: &Job, place: Place, target_size: u64) -> Self {
        let (region, shares) = job.region_of(place.number, place.of, target_size);
        let align = job.alignment();
        let largest = job.largest_block();
        let starts = |bytes: u64| bytes.saturating_sub(largest) / align + 1;
        let share = region.bytes / align / u64::from(shares) * align;
        let key = Rng::for_stream(job.seed, place.stream ^ 1 << 63).next_u64();
        let (order, first) = match (job.access, &job.distribution) {
            (Access::Sequential, _) => (Order::Sequential { bytes: share, next: 0, gap: job.stride }, share),
            (Access::Random, _) if job.random_map => {
                let starts = starts(share);
                (Order::Shuffled { shuffle: Permutation::new(starts, key), starts, next: 0, key }, share)
            }
            (Access::Random, Distribution::Uniform) => (Order::Uniform { starts: starts(region.bytes) }, 0),
            // All workers share the same popular blocks, hence the job's seed and not the worker's.
            (Access::Random, distribution) => {
                match Sampler::new(distribution, starts(region.bytes), job.seed) {
                    Some(sampler) => (Order::Shaped(sampler), 0),
                    None => (Order::Uniform { starts: starts(region.bytes) }, 0),
                }
            }
        };
        let passes = job.passes.map(|passes| share.saturating_mul(u64::from(passes)));
        let bytes = job.io_size.or(passes).unwrap_or(u64::MAX);
        let limits = Limits { ios: job.number_ios.unwrap_or(u64::MAX), bytes };
        let number = if shares == 1 { 0 } else { place.number };
        Self {
            operation: job.operation,
            reads_ppm: job.reads_ppm().into(),
            sizes: Sizes::new(job.block_size, &job.size_mix),
            order,
            start: region.offset + first * u64::from(number),
            align,
            rng: Rng::for_stream(job.seed, place.stream),
            limits,
            left: limits,
            syncs: [
                SyncEvery::new(Io::SYNC, job.fsync_every),
                SyncEvery::new(Io::DATA_SYNC, job.fdatasync_every),
            ],
            sync_due: false,
            runs: (job.access == Access::Random && job.random_percent < 100).then(|| Runs {
                random_percent: job.random_percent.into(),
                end: region.offset + region.bytes,
                next: None,
            }),
        }
    }

    /// Counts operations and bytes from here on: what ran to warm up does not count.
    pub(crate) fn count_from_here(&mut self) {
        self.left = self.limits;
    }

    /// Ends the sequence after one pass over the worker's share, for orders that have one.
    pub(crate) fn limit_to_one_pass(&mut self) {
        if let Order::Shuffled { starts, .. } = self.order {
            self.left.ios = self.left.ios.min(starts);
        }
        if let Order::Sequential { bytes, gap, .. } = self.order {
            let step = (u64::from(self.sizes.usual) + gap).next_multiple_of(self.align);
            self.left.ios = self.left.ios.min(bytes.div_ceil(step));
        }
    }

    /// Ends the sequence after so many operations, all of which read.
    pub(crate) fn read_back(&mut self, ios: u64) {
        self.operation = Operation::Read;
        self.sync_due = false;
        self.left = Limits { ios, bytes: u64::MAX };
    }

    /// Whether the next operation is a sync, which belongs to the write before it.
    #[inline]
    pub(crate) fn owes_sync(&self) -> bool {
        self.sync_due
    }

    /// The next operation; none when the job has had what it asked for.
    #[inline]
    pub fn next_io(&mut self) -> Option<Io> {
        // Only writes count down, so that jobs without them pay for one comparison.
        if self.sync_due {
            return Some(self.next_sync());
        }
        if self.left.ios == 0 || self.left.bytes == 0 {
            return None;
        }
        let length = self.sizes.next(&mut self.rng);
        if self.runs.is_some() {
            return Some(self.next_of_run(length));
        }
        let io = self.draw(length);
        Some(self.count(io))
    }

    /// An operation that nothing before it decides.
    #[inline]
    fn draw(&mut self, length: u32) -> Io {
        let direction = match self.operation {
            Operation::Read => Direction::Read,
            Operation::Write => Direction::Write,
            Operation::Trim => Direction::Trim,
            Operation::Mixed { .. } if self.rng.below(1_000_000) < self.reads_ppm => Direction::Read,
            Operation::Mixed { .. } => Direction::Write,
        };
        let within = match &mut self.order {
            Order::Uniform { starts } => self.rng.below(*starts) * self.align,
            Order::Shaped(sampler) => sampler.next(&mut self.rng) * self.align,
            Order::Shuffled { shuffle, starts, next, key } => {
                if next == starts {
                    *key = Rng::new(*key).next_u64();
                    (*shuffle, *next) = (Permutation::new(*starts, *key), 0);
                }
                *next += 1;
                shuffle.apply(*next - 1) * self.align
            }
            Order::Sequential { bytes, next, gap } => {
                let at = if *next + u64::from(length) > *bytes { 0 } else { *next };
                *next = (at + u64::from(length) + *gap).next_multiple_of(self.align);
                at
            }
        };
        Io { direction, offset: self.start + within, length }
    }

    #[inline]
    fn count(&mut self, io: Io) -> Io {
        self.left.ios -= 1;
        self.left.bytes = self.left.bytes.saturating_sub(u64::from(io.length));
        if io.direction == Direction::Write {
            self.count_write();
        }
        io
    }

    /// Goes on where the operation before ended, or draws.
    #[cold]
    fn next_of_run(&mut self, length: u32) -> Io {
        let goes_on = self.runs.and_then(|runs| {
            let (offset, direction) = runs.next?;
            let fits = offset + u64::from(length) <= runs.end;
            let drawn = self.rng.below(100) < runs.random_percent;
            (fits && !drawn).then_some(Io { direction, offset, length })
        });
        let io = goes_on.unwrap_or_else(|| self.draw(length));
        if let Some(runs) = &mut self.runs {
            let end = io.offset + u64::from(length);
            // Offsets count from the start of the region, in steps of the alignment.
            let within = (end - self.start).next_multiple_of(self.align);
            runs.next = Some((self.start + within, io.direction));
        }
        self.count(io)
    }

    #[inline]
    fn count_write(&mut self) {
        for sync in &mut self.syncs {
            sync.left -= 1;
            self.sync_due |= sync.left == 0;
        }
    }

    /// The sync that is due; the other kind stays due if it was too.
    #[cold]
    fn next_sync(&mut self) -> Io {
        let due = self.syncs.iter_mut().find(|sync| sync.left == 0);
        let io = due.map_or(Io::SYNC, |sync| {
            sync.left = sync.every;
            sync.io
        });
        self.sync_due = self.syncs.iter().any(|sync| sync.left == 0);
        io
    }
}

impl Sizes {
    fn new(usual: u64, mix: &[SizeShare]) -> Self {
        let mut below = 0;
        let cumulative = |share: &SizeShare| {
            below += u64::from(share.percent);
            (share.bytes as u32, below)
        };
        Self { usual: usual as u32, mix: mix.iter().map(cumulative).collect() }
    }

    #[inline]
    fn next(&self, rng: &mut Rng) -> u32 {
        if self.mix.is_empty() {
            return self.usual;
        }
        let draw = rng.below(100);
        self.mix.iter().find(|size| draw < size.1).map_or(self.usual, |size| size.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobSpec;
    use crate::job::tests::spec;
    use proptest::prelude::*;

    fn place(number: u32, of: u32) -> Place {
        Place { number, of, stream: u64::from(number) }
    }

    fn pattern(size: u64, number: u32, of: u32, change: impl FnOnce(&mut JobSpec)) -> Pattern {
        let mut job = spec();
        job.workers = of;
        change(&mut job);
        Pattern::new(&job.check(size).unwrap(), place(number, of), size)
    }

    fn offsets(pattern: &mut Pattern, count: usize) -> Vec<u64> {
        (0..count).map(|_| pattern.next_io().unwrap().offset / 4096).collect()
    }

    #[test]
    fn shares_cover_the_target_once_in_either_order() {
        for (access, random_map) in [(Access::Sequential, false), (Access::Random, true)] {
            let mut all = Vec::new();
            for worker in 0..4 {
                let change = |job: &mut JobSpec| (job.access, job.random_map) = (access, random_map);
                all.extend(offsets(&mut pattern(32 * 4096, worker, 4, change), 8));
            }
            assert!(random_map != all.is_sorted(), "{all:?}");
            all.sort_unstable();
            assert_eq!(all, (0..32).collect::<Vec<u64>>());
        }
    }

    #[test]
    fn runs_are_as_long_as_the_share_says_and_of_one_direction() {
        let mut pattern = pattern(4096 * 100_000, 0, 1, |job| {
            (job.random_percent, job.operation) = (20, Operation::Mixed { read_percent: 50 });
        });
        let ios: Vec<Io> = (0..20_000).map(|_| pattern.next_io().unwrap()).collect();
        let follows = |pair: &&[Io]| pair[1].offset == pair[0].offset + 4096;
        let runs: Vec<&[Io]> = ios.windows(2).filter(follows).collect();
        let share = runs.len() as f64 / 20_000.0;
        assert!((0.78..0.82).contains(&share), "{share}");
        assert!(runs.iter().all(|pair| pair[0].direction == pair[1].direction));
        let reads = ios.iter().filter(|io| io.direction == Direction::Read).count();
        assert!((9_000..11_000).contains(&reads), "{reads}");
    }

    #[test]
    fn runs_end_with_the_region() {
        let mut pattern = pattern(4096 * 16, 0, 1, |job| {
            (job.random_percent, job.offset, job.size) = (0, 4096 * 4, Some(4096 * 8));
        });
        for _ in 0..1000 {
            let io = pattern.next_io().unwrap();
            assert!((4..12).contains(&(io.offset / 4096)), "{io:?}");
        }
    }

    #[test]
    fn a_second_pass_is_complete_and_in_another_order() {
        let mut pattern = pattern(100 * 4096, 0, 1, |job| job.random_map = true);
        let (mut one, mut two) = (offsets(&mut pattern, 100), offsets(&mut pattern, 100));
        assert_ne!(one, two);
        one.sort_unstable();
        two.sort_unstable();
        assert_eq!(one, two);
        assert_eq!(one, (0..100).collect::<Vec<u64>>());
    }

    #[test]
    fn sequential_wraps_to_its_start_and_strides_leave_gaps() {
        let sequential = |job: &mut JobSpec| job.access = Access::Sequential;
        assert_eq!(offsets(&mut pattern(3 * 4096, 0, 1, sequential), 4), [0, 1, 2, 0]);
        let strided = |job: &mut JobSpec| (job.access, job.stride) = (Access::Sequential, 8192);
        assert_eq!(offsets(&mut pattern(8 * 4096, 0, 1, strided), 5), [0, 3, 6, 0, 3]);
    }

    #[test]
    fn a_mix_has_the_share_asked_for() {
        let mut pattern = pattern(1 << 30, 0, 1, |job| job.operation = Operation::Mixed { read_percent: 70 });
        let reads = (0..100_000).filter(|_| pattern.next_io().unwrap().direction == Direction::Read).count();
        assert!((69_000..71_000).contains(&reads), "{reads}");
    }

    #[test]
    fn a_mix_may_be_finer_than_a_per_cent() {
        let mut pattern = pattern(1 << 30, 0, 1, |job| {
            (job.operation, job.read_share_ppm) = (Operation::Mixed { read_percent: 99 }, Some(996_000));
        });
        let writes =
            (0..100_000).filter(|_| pattern.next_io().unwrap().direction == Direction::Write).count();
        assert!((320..480).contains(&writes), "{writes}");
    }

    #[test]
    fn one_pass_has_as_many_operations_as_aligned_steps() {
        for (align, stride, count) in [(4096, 0, 8), (8192, 0, 4), (8192, 4096, 4), (8192, 8192, 2)] {
            let mut pattern = pattern(8 * 4096, 0, 1, |job| {
                (job.access, job.block_align, job.stride) = (Access::Sequential, Some(align), stride);
            });
            pattern.limit_to_one_pass();
            let mut all: Vec<u64> = std::iter::from_fn(|| pattern.next_io()).map(|io| io.offset).collect();
            assert_eq!(all.len(), count, "alignment {align}, stride {stride}: {all:?}");
            all.dedup();
            assert!(all.len() == count && all.is_sorted(), "no block twice: {all:?}");
        }
    }

    #[test]
    fn sizes_come_in_their_shares_and_stay_inside() {
        let size = (1 << 20) + 4096;
        let share = |bytes, percent| SizeShare { bytes, percent };
        let mut pattern = pattern(size, 0, 1, |job| {
            job.size_mix = vec![share(4096, 50), share(65536, 30), share(16384, 20)];
        });
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..100_000 {
            let io = pattern.next_io().unwrap();
            *counts.entry(io.length).or_insert(0u32) += 1;
            assert!(io.offset.is_multiple_of(4096) && io.offset + u64::from(io.length) <= size, "{io:?}");
        }
        // Four standard deviations of each binomial count.
        for (length, wanted) in [(4096, 50_000u32), (65536, 30_000), (16384, 20_000)] {
            assert!(counts[&length].abs_diff(wanted) < 650, "{counts:?}");
        }
    }

    #[test]
    fn syncs_come_after_so_many_writes_and_count_for_no_limit() {
        let mut pattern = pattern(1 << 20, 0, 1, |job| {
            job.operation = Operation::Write;
            (job.fsync_every, job.fdatasync_every, job.number_ios) = (Some(4), Some(2), Some(6));
        });
        let all: Vec<Io> = std::iter::from_fn(move || pattern.next_io()).collect();
        let letters: String = all.iter().map(|io| io.direction.name().chars().nth(1).unwrap()).collect();
        // r: write, d: fdatasync, s: fsync
        assert_eq!(letters, "rrdrrsdrrd");
        assert!(all.iter().all(|io| io.direction.has_blocks() == (io.length > 0)));
    }

    #[test]
    fn limits_end_the_sequence() {
        let count = |change: fn(&mut JobSpec)| {
            let mut pattern = pattern(1 << 20, 0, 1, change);
            std::iter::from_fn(move || pattern.next_io()).count()
        };
        assert_eq!(count(|job| job.number_ios = Some(7)), 7);
        assert_eq!(count(|job| job.io_size = Some(5 * 4096)), 5);
    }

    #[test]
    fn workers_with_a_region_of_their_own_begin_where_they_are_told() {
        let change = |step: u64| {
            move |job: &mut JobSpec| {
                (job.access, job.worker_offset, job.passes) = (Access::Sequential, Some(step), Some(1));
            }
        };
        let all = |step, number| {
            let mut pattern = pattern(8 * 4096, number, 2, change(step));
            std::iter::from_fn(move || pattern.next_io()).map(|io| io.offset / 4096).collect::<Vec<u64>>()
        };
        assert_eq!(all(0, 1), (0..8).collect::<Vec<u64>>());
        assert_eq!(all(3 * 4096, 1), (3..8).collect::<Vec<u64>>());
        let mut job = spec();
        (job.workers, job.worker_offset) = (3, Some(4 * 4096));
        assert!(job.check(8 * 4096).unwrap_err().to_string().contains("the last worker begins at 32768"));
    }

    #[test]
    fn a_coarser_alignment_is_kept() {
        let mut pattern = pattern(1 << 24, 0, 1, |job| job.block_align = Some(65536));
        assert!((0..1000).all(|_| pattern.next_io().unwrap().offset.is_multiple_of(65536)));
    }

    proptest! {
        #[test]
        fn offsets_stay_inside_the_region(
            size in 65536u64..(1 << 40), start in 0u64..16, seed: u64, shape in 0usize..6,
        ) {
            let shapes = [
                Distribution::Uniform,
                Distribution::Zipf { theta: 1.2 },
                Distribution::Pareto { h: 0.2 },
                Distribution::Normal { deviation_percent: 20.0 },
                Distribution::Uniform,
                Distribution::Uniform,
            ];
            let offset = start * 4096;
            prop_assume!(offset + 4096 <= size);
            let mut job = spec();
            (job.seed, job.offset, job.distribution) = (seed, offset, shapes[shape].clone());
            job.random_map = shape == 4;
            job.random_percent = if shape == 0 { 30 } else { 100 };
            job.access = if shape == 5 { Access::Sequential } else { Access::Random };
            let mut pattern = Pattern::new(&job.check(size).unwrap(), place(0, 1), size);
            for _ in 0..100 {
                let io = pattern.next_io().unwrap();
                prop_assert!(io.offset.is_multiple_of(4096) && io.offset >= offset && io.offset + 4096 <= size);
            }
        }
    }
}
