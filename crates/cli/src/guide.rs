//! The guide's workloads: queue depth 1, the ramp of workers and depth, random writes, the 70/30 mix, and
//! sequential throughput (Intel's P4800X evaluation guides for Linux, tables 2 to 8, and Windows, table 5).

use overdrive_base::size::{KIB, MIB, format_size};
use overdrive_io::engine::EngineKind;
use overdrive_io::job::{Access, JobSpec, Operation};
use overdrive_report::record::Group;
use std::time::Duration;

/// The guide's ramp: workers and depth of each.
const RAMP: [(u32, u32); 8] = [(1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (8, 4), (8, 8), (8, 16)];

/// One workload to be run.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) group: Group,
    pub(crate) spec: JobSpec,
    /// Workers and depth as the guide has them, where this machine has too few CPUs for it.
    pub(crate) asked: Option<(u32, u32)>,
    pub(crate) notes: Vec<String>,
}

/// What the plan depends on.
#[derive(Debug, Clone)]
pub(crate) struct Circumstances {
    pub(crate) cpus: u32,
    pub(crate) writable: bool,
    /// The device has poll queues.
    pub(crate) pollable: bool,
    /// io_uring can be used.
    pub(crate) ring: bool,
    /// A simulated device takes all the I/O.
    pub(crate) simulated: Option<EngineKind>,
    pub(crate) runtime: Duration,
    pub(crate) warmup: Duration,
    pub(crate) seed: u64,
}

/// The workloads in the order they run: reads first, so that they meet the target as it was prepared.
pub(crate) fn workloads(on: &Circumstances) -> Vec<Planned> {
    let mut plan = queue_depth_one(on);
    plan.extend(RAMP.iter().map(|&asked| on.plan(Group::Ramp, &READ_4K, asked)));
    plan.extend(
        [64 * KIB, MIB].map(|block| on.plan(Group::Sequential, &sequential(Operation::Read, block), (1, 32))),
    );
    if on.writable {
        plan.push(on.plan(Group::RandomWrite, &Shape { operation: Operation::Write, ..READ_4K }, (4, 4)));
        let mixed = Shape { operation: Operation::Mixed { read_percent: 70 }, ..READ_4K };
        plan.push(on.plan(Group::Mixed, &mixed, (4, 8)));
        let writes = [64 * KIB, MIB]
            .map(|block| on.plan(Group::Sequential, &sequential(Operation::Write, block), (1, 32)));
        plan.extend(writes);
    }
    plan
}

/// What is done, apart from how many do it.
#[derive(Clone, Copy)]
struct Shape {
    operation: Operation,
    access: Access,
    block_size: u64,
}

const READ_4K: Shape = Shape { operation: Operation::Read, access: Access::Random, block_size: 4 * KIB };

fn sequential(operation: Operation, block_size: u64) -> Shape {
    Shape { operation, access: Access::Sequential, block_size }
}

fn queue_depth_one(on: &Circumstances) -> Vec<Planned> {
    if let Some(engine) = &on.simulated {
        return vec![on.single(engine.clone(), false)];
    }
    let mut plan = vec![on.single(EngineKind::Pvsync2, false)];
    if on.pollable {
        plan.push(on.single(EngineKind::Pvsync2, true));
    }
    if on.ring {
        plan.push(on.single(EngineKind::IoUring, false));
        if on.pollable {
            plan.push(on.single(EngineKind::IoUring, true));
        }
    }
    plan
}

impl Circumstances {
    fn single(&self, engine: EngineKind, polled: bool) -> Planned {
        let name = engine.name();
        let mut planned = self.plan(Group::Qd1, &READ_4K, (1, 1));
        planned.spec.engine = engine;
        planned.spec.polled = polled;
        planned.id = format!("randread-4k-{name}{}-1x1", if polled { "-hipri" } else { "" });
        planned.title = format!("4 KiB random read, QD 1, {name}{}", if polled { " hipri" } else { "" });
        planned.notes.clear();
        planned
    }

    /// A workload of `asked` workers x depth, fitted to this machine: workers stop at the CPU count and the
    /// depth of each grows instead; without io_uring there is one worker for each operation in flight.
    fn plan(&self, group: Group, shape: &Shape, asked: (u32, u32)) -> Planned {
        let total = asked.0 * asked.1;
        let engine = self.simulated.clone().unwrap_or(if self.ring {
            EngineKind::IoUring
        } else {
            EngineKind::Pvsync2
        });
        let (workers, queue_depth) = if engine == EngineKind::Pvsync2 {
            (total, 1)
        } else {
            let workers = largest_divisor_up_to(total, asked.0.min(self.cpus.max(1)));
            (workers, total / workers)
        };
        let fitted = (workers, queue_depth) != asked;
        let block = format_size(shape.block_size);
        let (slug, words) = naming(shape);
        let short_block = block.replace(" KiB", "k").replace(" MiB", "m");
        let ramp = if group == Group::Ramp { "ramp-" } else { "" };
        Planned {
            id: format!("{ramp}{slug}-{short_block}-{}-{}x{}", engine.name(), asked.0, asked.1),
            title: format!("{block} {words}, QD {total} ({workers}x{queue_depth})"),
            group,
            asked: fitted.then_some(asked),
            notes: if fitted {
                vec![self.fitting_note(&engine, asked, (workers, queue_depth))]
            } else {
                Vec::new()
            },
            spec: JobSpec {
                operation: shape.operation,
                access: shape.access,
                block_size: shape.block_size,
                engine,
                workers,
                queue_depth,
                runtime: self.runtime,
                warmup: self.warmup,
                seed: self.seed,
                ..JobSpec::default()
            },
        }
    }

    fn fitting_note(&self, engine: &EngineKind, asked: (u32, u32), fitted: (u32, u32)) -> String {
        let why = if *engine == EngineKind::Pvsync2 {
            "io_uring is not to be had, so each operation in flight has a thread of its own".to_owned()
        } else {
            format!("the process may use {} CPUs", self.cpus)
        };
        format!(
            "the guide asks for {} workers x depth {}; {why}: ran {} x {}",
            asked.0, asked.1, fitted.0, fitted.1
        )
    }
}

fn naming(shape: &Shape) -> (String, String) {
    match (shape.access, shape.operation) {
        (Access::Random, Operation::Read) => ("randread".to_owned(), "random read".to_owned()),
        (Access::Random, Operation::Write) => ("randwrite".to_owned(), "random write".to_owned()),
        (Access::Random, Operation::Mixed { read_percent }) => {
            (format!("randrw{read_percent}"), format!("random {read_percent}/{}", 100 - read_percent))
        }
        (Access::Sequential, Operation::Read) => ("read".to_owned(), "sequential read".to_owned()),
        (Access::Sequential, Operation::Write) => ("write".to_owned(), "sequential write".to_owned()),
        (Access::Sequential, Operation::Mixed { .. }) => ("rw".to_owned(), "sequential mix".to_owned()),
        (_, Operation::Trim) => ("trim".to_owned(), "trim".to_owned()),
    }
}

fn largest_divisor_up_to(total: u32, limit: u32) -> u32 {
    (1..=limit.min(total)).rev().find(|&n| total.is_multiple_of(n)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(cpus: u32) -> Circumstances {
        Circumstances {
            cpus,
            writable: true,
            pollable: false,
            ring: true,
            simulated: None,
            runtime: Duration::from_secs(1),
            warmup: Duration::ZERO,
            seed: 1,
        }
    }

    fn ramp(on: &Circumstances) -> Vec<(u32, u32)> {
        let ramp = workloads(on).into_iter().filter(|planned| planned.group == Group::Ramp);
        ramp.map(|planned| (planned.spec.workers, planned.spec.queue_depth)).collect()
    }

    #[test]
    fn with_enough_cpus_the_ramp_is_the_guides() {
        assert_eq!(ramp(&on(16)), RAMP);
        assert!(workloads(&on(16)).iter().all(|planned| planned.asked.is_none()));
    }

    #[test]
    fn with_two_cpus_depth_grows_instead_of_workers() {
        assert_eq!(ramp(&on(2)), [(1, 1), (2, 1), (2, 2), (2, 4), (2, 8), (2, 16), (2, 32), (2, 64)]);
        let third =
            &workloads(&on(2)).into_iter().filter(|planned| planned.group == Group::Ramp).nth(2).unwrap();
        assert_eq!(third.asked, Some((4, 1)));
        assert!(third.notes[0].contains("4 workers x depth 1") && third.notes[0].contains("ran 2 x 2"));
    }

    #[test]
    fn on_any_machine_the_total_depth_is_the_guides() {
        for cpus in 1..=12 {
            let totals: Vec<u32> = ramp(&on(cpus)).iter().map(|(workers, depth)| workers * depth).collect();
            assert_eq!(totals, [1, 2, 4, 8, 16, 32, 64, 128], "{cpus} CPUs");
        }
    }

    #[test]
    fn without_a_ring_every_operation_has_a_thread() {
        let on = Circumstances { ring: false, ..on(2) };
        assert_eq!(ramp(&on).last(), Some(&(128, 1)));
        assert!(workloads(&on).iter().all(|planned| planned.spec.engine == EngineKind::Pvsync2));
    }

    #[test]
    fn nothing_writes_without_permission() {
        let on = Circumstances { writable: false, ..on(2) };
        assert!(workloads(&on).iter().all(|planned| !planned.spec.operation.writes()));
    }

    #[test]
    fn names_are_unique_and_jobs_sound() {
        for on in [on(1), on(2), on(64), Circumstances { ring: false, pollable: true, ..on(2) }] {
            let plan = workloads(&on);
            let ids: std::collections::BTreeSet<&str> =
                plan.iter().map(|planned| planned.id.as_str()).collect();
            assert_eq!(ids.len(), plan.len());
            for planned in &plan {
                planned.spec.clone().check(1 << 30).unwrap();
            }
        }
    }
}
