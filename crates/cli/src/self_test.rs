//! The tool measures itself first: its clock, the noise of the CPUs it will use, and the ceiling of its ring.

use overdrive_io::engine::EngineKind;
use overdrive_io::job::{Access, JobSpec};
use overdrive_io::outcome::Outcome;
use overdrive_io::run::{RunError, Setting, run};
use overdrive_io::target::Target;
use overdrive_sys::affinity::pin_current_thread;
use overdrive_sys::clock::ClockFacts;
use overdrive_sys::noise::NoiseFloor;
use std::time::Duration;

/// What the tool found about itself.
#[derive(Debug)]
pub(crate) struct SelfTest {
    pub(crate) clock: ClockFacts,
    /// Each worker CPU and what it took from a spinning thread.
    pub(crate) noise: Vec<(usize, NoiseFloor)>,
    /// A run of no-operations, or why there is no ring.
    pub(crate) ring: Result<Outcome, RunError>,
}

impl SelfTest {
    /// Takes about 1.6 times `span`.
    pub(crate) fn run(setting: &Setting, span: Duration) -> Self {
        Self { clock: setting.clock.facts(), noise: listen(setting, span), ring: ceiling(setting, span / 2) }
    }
}

/// Spins on all CPUs at once, as the workers will.
fn listen(setting: &Setting, span: Duration) -> Vec<(usize, NoiseFloor)> {
    std::thread::scope(|scope| {
        let clock = setting.clock;
        let spinners: Vec<_> = setting
            .cpus
            .iter()
            .map(|&cpu| {
                scope.spawn(move || {
                    // Unpinned, the gaps would be of whichever CPU: better no figure than a wrong one.
                    pin_current_thread(cpu).ok().map(|()| (cpu, NoiseFloor::observe(&clock, span)))
                })
            })
            .collect();
        spinners.into_iter().filter_map(|spinner| spinner.join().ok().flatten()).collect()
    })
}

/// The same worker loop, generator and histogram as every result, on operations that do nothing.
fn ceiling(setting: &Setting, span: Duration) -> Result<Outcome, RunError> {
    let spec = JobSpec {
        access: Access::Random,
        engine: EngineKind::Nop,
        queue_depth: 32,
        runtime: span,
        warmup: span / 10,
        ..JobSpec::default()
    };
    let nowhere = Target::simulated(overdrive_io::engine::sim::SimSpec::default());
    let job = spec
        .check(nowhere.size())
        .map_err(|_| RunError::WrongTarget { engine: "nop", target: "this job" })?;
    run(&job, &[nowhere], setting, |_, _| ())
}
