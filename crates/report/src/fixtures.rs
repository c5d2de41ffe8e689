//! The one builder of test records: realistic evaluations, small enough to read.
//!
//! `optane` follows the guide's P4800X figures on a 16-CPU host; `virtio` is the shared two-CPU reference machine,
//! run with `--quick`. Latencies are laid out along a curve, so a record is the same on every machine.

mod host;

use crate::record::*;
use host::{findings, host_facts, optane_layers, self_test, virtio_layers, virtio_self_test};
use overdrive_base::rng::Rng;
use overdrive_hist::Histogram;

/// Points of a latency curve: nines of the quantile (2 is 99 %) and the latency over the median.
type Curve = &'static [(f64, f64)];

const OPTANE: Curve = &[
    (0.0, 0.93),
    (0.3, 1.0),
    (1.0, 1.04),
    (2.0, 1.22),
    (2.7, 1.6),
    (3.0, 4.1),
    (4.0, 4.8),
    (5.0, 6.9),
    (6.0, 17.0),
    (7.0, 20.0),
    (8.0, 26.0),
];
const OPTANE_DEEP: Curve = &[
    (0.0, 0.3),
    (0.3, 1.0),
    (1.0, 1.35),
    (2.0, 1.7),
    (3.0, 2.0),
    (4.0, 2.3),
    (5.0, 2.6),
    (7.0, 5.0),
    (8.0, 6.0),
];
const VIRTIO: Curve =
    &[(0.0, 0.7), (0.3, 1.0), (1.0, 1.5), (2.0, 2.9), (3.0, 11.0), (4.0, 45.0), (5.0, 160.0), (6.0, 400.0)];

/// A guide-like evaluation of an Intel P4800X: complete, long enough for seven nines at depth.
pub(crate) fn optane() -> Record {
    let mut record = frame("/dev/nvme0n1", TargetKind::BlockDevice, 120.0);
    record.target.model = Some("INTEL SSDPED1K375GA".to_owned());
    record.target.serial = Some("PHKS7335001G375AGN".to_owned());
    record.target.firmware = Some("E2010435".to_owned());
    record.target.disk = Some("nvme0n1".to_owned());
    record.target.layers = optane_layers();
    let job = |spec| Spec { runtime_s: 120.0, cpu_ns_per_io: 1_650, curve: OPTANE, cpus: 16, ..spec };
    let deep = |spec| Spec { curve: OPTANE_DEEP, ..job(spec) };
    record.workloads.push(job(Spec { engine: "pvsync2", polled: true, ..Spec::read(1, 1, 126e3) }).build());
    record.workloads.push(job(Spec::read(1, 1, 94.3e3)).build());
    let ramp = [94e3, 186e3, 362e3, 521e3, 561e3, 575e3, 578e3, 579e3];
    for ((workers, depth), iops) in RAMP.into_iter().zip(ramp) {
        let spec = Spec { group: Group::Ramp, ..Spec::read(workers, depth, iops) };
        record.workloads.push(if workers * depth < 16 { job(spec) } else { deep(spec) }.build());
    }
    for spec in writes_and_sequential([556e3, 506e3, 38.8e3, 32.8e3, 2.48e3, 2.08e3]) {
        record.workloads.push(deep(spec).build());
    }
    record
}

/// A quick evaluation of the reference machine's virtio disk through a scratch file.
pub(crate) fn virtio() -> Record {
    let mut record = frame("/var/tmp/overdrive.scratch", TargetKind::ScratchFile, 4.0);
    record.target.spec = "(scratch file)".to_owned();
    record.target.disk = Some("vda".to_owned());
    record.target.layers = virtio_layers();
    record.tool.version = "0.1.0".to_owned();
    record.command = ["overdrive", "evaluate", "--quick"].map(str::to_owned).to_vec();
    record.self_test = Some(virtio_self_test());
    record.host.digest = "57ad1f0c".repeat(8);
    record.notes.push("A hypervisor runs under this host: its noise is part of every figure.".to_owned());
    let job = |spec| Spec { runtime_s: 4.0, cpu_ns_per_io: 4_600, curve: VIRTIO, cpus: 2, ..spec };
    record.workloads.push(job(Spec { engine: "pvsync2", ..Spec::read(1, 1, 20.4e3) }).build());
    record.workloads.push(job(Spec::read(1, 1, 20.1e3)).build());
    let ramp = [20.2e3, 31e3, 48e3, 65e3, 78e3, 84e3, 90e3, 93e3];
    for ((workers, depth), iops) in RAMP.into_iter().zip(ramp) {
        let spec = Spec { group: Group::Ramp, ..Spec::read(workers, depth, iops) };
        record.workloads.push(job(spec).build());
    }
    for spec in writes_and_sequential([51e3, 62e3, 17.9e3, 24.1e3, 1.21e3, 2.9e3]) {
        record.workloads.push(job(spec).build());
    }
    record
}

/// An evaluation stopped during its first workload.
pub(crate) fn interrupted() -> Record {
    let mut record = virtio();
    record.status = Status::Interrupted;
    record.workloads.truncate(1);
    record.workloads[0].outcome.elapsed_s = 1.2;
    record
}

/// A search for the highest rate that holds p99.95 within 200 us.
#[cfg(test)]
pub(crate) fn searched() -> Record {
    let mut record = frame("sim", TargetKind::Sim, 1.0);
    record.workloads.push(Spec { group: Group::Single, ..Spec::read(1, 32, 100e3) }.build());
    let point = |share: f64, stretch: f64, holds: bool| LoadPoint {
        asked_iops: share * 100e3,
        asked_write_iops: None,
        iops: share * 100e3,
        elapsed_s: 1.0,
        unstarted: 0,
        response: Latency::from_histogram(&laid_out(50_000, 900_000.0 * stretch, OPTANE)),
        value_ns: Some((60_000.0 * stretch) as u64),
        read: None,
        write: None,
        kept: true,
        holds: Some(holds),
        why: (!holds).then(|| "queue full".to_owned()),
    };
    record.search = Some(Search {
        objective: Some(Objective { percentile: 99.95, limit_ns: 200_000 }),
        arrivals: "poisson".to_owned(),
        step_s: 1.0,
        ceiling_iops: 100e3,
        write_ceiling_iops: None,
        points: vec![point(0.5, 1.0, true), point(0.9, 9.0, false), point(0.75, 2.0, true)],
        found_iops: Some(75e3),
        knee_iops: Some(75e3),
        reason: "At 90000 I/Os a second p99.95 is 540us: I/Os wait for one of 32 slots.".to_owned(),
    });
    record
}

/// A surface of reads by writes, one load of which was too much.
#[cfg(test)]
pub(crate) fn surface() -> Record {
    let mut record = searched();
    let read = record.workloads[0].outcome.read.clone();
    let response = read.as_ref().map(|read| read.latency.clone());
    let side = read.map(|read| Direction { response, ..read });
    let point = |reads: f64, writes: f64, kept: bool| LoadPoint {
        asked_iops: reads + writes,
        asked_write_iops: Some(writes),
        iops: reads + writes,
        elapsed_s: 1.0,
        unstarted: u64::from(!kept) * 5_000,
        response: None,
        value_ns: None,
        read: side.clone().filter(|_| reads > 0.0),
        write: side.clone().filter(|_| writes > 0.0),
        kept,
        holds: None,
        why: None,
    };
    if let Some(search) = &mut record.search {
        (search.objective, search.found_iops, search.knee_iops) = (None, None, None);
        search.write_ceiling_iops = Some(40e3);
        search.reason.clear();
        search.points = vec![
            point(50e3, 0.0, true),
            point(90e3, 0.0, true),
            point(0.0, 20e3, true),
            point(50e3, 20e3, true),
            point(90e3, 20e3, false),
        ];
    }
    record
}

/// A workload of the user's own with all that only some workloads have.
#[cfg(test)]
pub(crate) fn open_loop() -> Record {
    let mut record = frame("sim", TargetKind::Sim, 1.0);
    record.workloads.push(Spec { group: Group::Single, ..Spec::read(2, 8, 20e3) }.build());
    let workload = &mut record.workloads[0];
    workload.job.detail = Some(JobDetail {
        distribution: Some("zipf:1.2".to_owned()),
        arrivals: Some("poisson".to_owned()),
        rate_per_worker: Some(10_000.0),
        ..JobDetail::default()
    });
    let outcome = &mut workload.outcome;
    if let Some(read) = &mut outcome.read {
        read.response = Latency::from_histogram(&laid_out(20_000, 900_000.0, OPTANE));
    }
    outcome.schedule =
        Some(Schedule { slip_mean_ns: 150.0, slip_p99_ns: 2_000, slip_max_ns: 90_000_000, unstarted: 17 });
    outcome.outliers = Some(vec![Outlier {
        at_ns: 512_000_000,
        latency_ns: 4_000_000,
        operation: Operation::Read,
        offset_bytes: 81_920,
        length_bytes: 4096,
        depth: 3,
        cpu: 1,
        worker: 0,
    }]);
    let part = |target: &str| TargetOutcome {
        target: target.to_owned(),
        read: outcome.read.clone(),
        trim: None,
        write: None,
        failures: 2,
    };
    outcome.targets = Some(vec![part("sim"), part("sim:read=80us")]);
    outcome.verified = Some(Verified {
        blocks: 256,
        failures: 1,
        defects: vec![DefectCount { defect: "torn".to_owned(), count: 1 }],
        first: vec![VerifyFailure {
            offset_bytes: 8192,
            defect: "torn".to_owned(),
            detail: "7 of 8 sectors are of the write that was wanted, the others are not".to_owned(),
        }],
    });
    record
}

/// An evaluation that failed before it measured anything.
pub(crate) fn empty() -> Record {
    let mut record = frame("/mnt/data/file", TargetKind::File, 0.0);
    record.status = Status::Failed { reason: "/mnt/data/file: No such file or directory".to_owned() };
    record.self_test = None;
    record.findings.clear();
    record.host.facts.clear();
    record
}

const RAMP: [(u32, u32); 8] = [(1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (8, 4), (8, 8), (8, 16)];

fn writes_and_sequential(iops: [f64; 6]) -> [Spec; 6] {
    let read = Spec::read(1, 32, 0.0);
    let sequential = Spec { group: Group::Sequential, access: Access::Sequential, ..read };
    let write = Spec { operation: Operation::Write, read_percent: 0, ..sequential };
    let random = Spec { access: Access::Random, workers: 4, ..write };
    [
        Spec { group: Group::RandomWrite, depth: 4, iops: iops[0], ..random },
        Spec {
            group: Group::Mixed,
            depth: 8,
            operation: Operation::Mixed,
            read_percent: 70,
            iops: iops[1],
            ..random
        },
        Spec { block: 64 << 10, iops: iops[2], ..sequential },
        Spec { block: 64 << 10, iops: iops[3], ..write },
        Spec { block: 1 << 20, iops: iops[4], ..sequential },
        Spec { block: 1 << 20, iops: iops[5], ..write },
    ]
}

/// What makes one workload of a fixture.
#[derive(Clone, Copy)]
pub(crate) struct Spec {
    group: Group,
    operation: Operation,
    access: Access,
    engine: &'static str,
    polled: bool,
    block: u64,
    read_percent: u8,
    workers: u32,
    depth: u32,
    cpus: u32,
    iops: f64,
    runtime_s: f64,
    cpu_ns_per_io: u64,
    curve: Curve,
}

impl Spec {
    fn read(workers: u32, depth: u32, iops: f64) -> Self {
        Self {
            group: Group::Qd1,
            operation: Operation::Read,
            access: Access::Random,
            engine: "io_uring",
            polled: false,
            block: 4096,
            read_percent: 100,
            workers,
            depth,
            cpus: 16,
            iops,
            runtime_s: 1.0,
            cpu_ns_per_io: 2_000,
            curve: OPTANE,
        }
    }

    /// Workers stop at the CPU count; the depth grows instead.
    fn fitted(&self) -> (u32, u32) {
        let workers = self.workers.min(self.cpus);
        (workers, self.workers * self.depth / workers)
    }

    fn build(self) -> Workload {
        let (workers, depth) = self.fitted();
        let fewer = workers < self.workers;
        let mut notes = Vec::new();
        if fewer {
            let asked = format!("{}x{}", self.workers, self.depth);
            notes.push(format!("{asked} was asked for; with {} CPUs it ran as {workers}x{depth}", self.cpus));
        }
        let job = Job {
            operation: self.operation,
            access: self.access,
            block_size_bytes: self.block,
            read_percent: self.read_percent,
            engine: self.engine.to_owned(),
            workers,
            queue_depth_per_worker: depth,
            queue_depth_total: workers * depth,
            asked_workers: fewer.then_some(self.workers),
            asked_depth: fewer.then_some(self.depth),
            runtime_s: self.runtime_s,
            warmup_s: 1.0,
            polled: self.polled,
            detail: None,
        };
        Workload {
            id: self.id(),
            title: self.title(),
            group: self.group,
            granted: ["registered buffer", "registered file"].map(str::to_owned).to_vec(),
            outcome: self.outcome(&job),
            job,
            verdict: None,
            notes,
        }
    }

    fn id(&self) -> String {
        let size = overdrive_base::size::format_size(self.block).replace(" KiB", "k").replace(" MiB", "m");
        let access = if self.access == Access::Random { "rand" } else { "seq" };
        let operation = match self.operation {
            Operation::Read => "read".to_owned(),
            other @ (Operation::Write | Operation::Trim | Operation::Sync) => {
                crate::show::operation_name(other).to_owned()
            }
            Operation::Mixed => format!("rw{}", self.read_percent),
        };
        let ramp = if self.group == Group::Ramp { "ramp-" } else { "" };
        format!("{ramp}{access}{operation}-{size}-{}-{}x{}", self.engine, self.workers, self.depth)
    }

    fn title(&self) -> String {
        let size = overdrive_base::size::format_size(self.block);
        let access = if self.access == Access::Random { "random" } else { "sequential" };
        let operation = match self.operation {
            Operation::Read => "read".to_owned(),
            other @ (Operation::Write | Operation::Trim | Operation::Sync) => {
                crate::show::operation_name(other).to_owned()
            }
            Operation::Mixed => format!("{}/{} read/write", self.read_percent, 100 - self.read_percent),
        };
        let polled = if self.polled { ", polled" } else { "" };
        let depth = self.workers * self.depth;
        format!("{size} {access} {operation}, depth {depth} ({}{polled})", self.engine)
    }

    fn outcome(&self, job: &Job) -> Outcome {
        let ios = (self.iops * self.runtime_s) as u64;
        let reads = ios * u64::from(self.read_percent) / 100;
        let in_flight_mean = f64::from(job.queue_depth_total) * 0.985;
        let mean_ns = in_flight_mean / self.iops * 1e9;
        let direction = |count: u64| {
            Some(Direction {
                ios: count,
                bytes: count * self.block,
                iops: count as f64 / self.runtime_s,
                bytes_per_s: (count * self.block) as f64 / self.runtime_s,
                latency: Latency::from_histogram(&laid_out(count, mean_ns, self.curve))?,
                response: None,
            })
        };
        let busy = if self.polled {
            99.6
        } else {
            self.iops * self.cpu_ns_per_io as f64 / 1e7 / f64::from(job.workers)
        };
        let utilisation_percent = busy.min(99.9);
        Outcome {
            elapsed_s: self.runtime_s,
            ios,
            bytes: ios * self.block,
            iops: self.iops,
            bytes_per_s: self.iops * self.block as f64,
            errors: Vec::new(),
            short_ios: 0,
            in_flight_mean,
            moved_bytes: ios * self.block,
            cpu: Some(Cpu {
                // Who polls does not sleep.
                voluntary_switches: if self.polled { 0 } else { ios / 3 },
                ..cpu(utilisation_percent, self.runtime_s, job.workers, ios)
            }),
            read: direction(reads),
            trim: None,
            sync: None,
            write: direction(ios - reads),
            series: series(self),
            device_ios: Some(DeviceIos {
                reads: reads + 3,
                writes: ios - reads + 41,
                read_bytes: reads * self.block + (12 << 10),
                write_bytes: (ios - reads) * self.block + (164 << 10),
            }),
            schedule: None,
            outliers: None,
            targets: None,
            verified: None,
            depth_found: None,
            steady: None,
        }
    }
}

fn cpu(utilisation_percent: f64, runtime_s: f64, workers: u32, ios: u64) -> Cpu {
    let busy_s = runtime_s * f64::from(workers) * utilisation_percent / 100.0;
    let ns_per_io = |seconds: f64| seconds * 1e9 / ios.max(1) as f64;
    Cpu {
        user_s: busy_s * 0.15,
        system_s: busy_s * 0.85,
        user_ns_per_io: ns_per_io(busy_s * 0.15),
        system_ns_per_io: ns_per_io(busy_s * 0.85),
        utilisation_percent,
        host_busy_percent: Some((utilisation_percent * 1.06).min(100.0)),
        interrupts_percent: Some((utilisation_percent * 0.05).min(100.0 - utilisation_percent)),
        steal_percent: Some(0.1),
        voluntary_switches: 0,
        involuntary_switches: (runtime_s * 4.0) as u64,
    }
}

/// A histogram of `count` values along `curve`, scaled so that the mean is about `mean_ns`.
fn laid_out(count: u64, mean_ns: f64, curve: Curve) -> Histogram {
    let deepest = (count.max(2) as f64).log10();
    let steps = 600;
    let mut slices = Vec::new();
    let mut before = 0;
    for step in 1..=steps {
        let nines = deepest * f64::from(step) / f64::from(steps);
        let upto = if step == steps { count } else { (count as f64 * (1.0 - 10f64.powf(-nines))) as u64 };
        slices.push((upto - before, along(curve, nines)));
        before = upto;
    }
    let relative_mean = slices.iter().map(|(n, value)| *n as f64 * value).sum::<f64>() / count.max(1) as f64;
    let mut histogram = Histogram::new();
    for (n, value) in slices {
        histogram.record_n((value / relative_mean * mean_ns) as u64, n);
    }
    histogram
}

fn along(curve: Curve, nines: f64) -> f64 {
    let after = curve.iter().position(|(x, _)| *x >= nines).unwrap_or(curve.len() - 1).max(1);
    let ((x0, y0), (x1, y1)) = (curve[after - 1], curve[after]);
    let share = ((nines - x0) / (x1 - x0)).clamp(0.0, 1.0);
    (y0.ln() * (1.0 - share) + y1.ln() * share).exp()
}

fn series(spec: &Spec) -> Vec<Slice> {
    let count = 40;
    let length_s = spec.runtime_s / f64::from(count);
    let mut rng = Rng::new(u64::from(spec.depth) * 31 + spec.block + u64::from(spec.workers));
    let unsteady = if spec.cpus <= 2 { 0.12 } else { 0.015 };
    let slice = |index: u32| {
        let ios = (spec.iops * length_s * (1.0 + unsteady * (rng.unit() - 0.5))) as u64;
        let max_ns =
            (1e9 / spec.iops * f64::from(spec.depth * spec.workers) * (8.0 + 9.0 * rng.unit())) as u64;
        Slice { at_s: f64::from(index) * length_s, ios, bytes: ios * spec.block, max_ns }
    };
    (1..=count).map(slice).collect()
}

fn frame(path: &str, kind: TargetKind, runtime_s: f64) -> Record {
    Record {
        schema: SCHEMA.to_owned(),
        tool: Tool { name: "overdrive".to_owned(), version: "0.1.0".to_owned() },
        command: ["overdrive", "evaluate", path, "--runtime", "120s"].map(str::to_owned).to_vec(),
        started_at: "2026-03-02T09:30:00+01:00".to_owned(),
        elapsed_s: 16.0 * (runtime_s + 1.0) + 35.0,
        status: Status::Complete,
        seed: 42,
        target: Target {
            spec: path.to_owned(),
            kind,
            path: path.to_owned(),
            size_bytes: 4 << 30,
            direct: true,
            model: None,
            serial: None,
            firmware: None,
            disk: None,
            layers: Vec::new(),
        },
        host: Host { facts: host_facts(), digest: "9f3c2b60".repeat(8) },
        findings: findings(),
        self_test: Some(self_test()),
        preconditioning: Preconditioning {
            kind: if kind == TargetKind::ScratchFile {
                PreconditioningKind::Written
            } else {
                PreconditioningKind::Sampled
            },
            bytes_written: (kind == TargetKind::ScratchFile).then_some(4 << 30),
            elapsed_s: (kind == TargetKind::ScratchFile).then_some(3.4),
            never_written_percent: (kind != TargetKind::ScratchFile).then_some(0.0),
            note: String::new(),
        },
        notes: Vec::new(),
        workloads: Vec::new(),
        search: None,
        topology: None,
        paging: None,
    }
}

#[test]
fn fixtures_are_what_they_say() {
    let record = optane();
    assert_eq!(record.workloads.len(), 16);
    let mut ids: Vec<&str> = record.workloads.iter().map(|workload| workload.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 16, "ids are unique");
    let read = record.workloads[0].outcome.read.as_ref().unwrap();
    assert_eq!(read.ios, 15_120_000);
    assert!((7_000.0..8_500.0).contains(&read.latency.mean_ns), "{}", read.latency.mean_ns);
    assert!(read.latency.percentile(99.99999).unwrap().value_ns.is_some());
    let quick = virtio();
    let read = quick.workloads[0].outcome.read.as_ref().unwrap();
    assert!(read.latency.percentile(99.9999).unwrap().at_least_ns.is_some());
}
