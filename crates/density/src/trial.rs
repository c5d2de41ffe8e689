//! One number of instances tried: warm-up, iterations, whether the objective held, and what stood in the way.

use crate::backing::Moved;
use crate::fleet::{Fleet, FleetError, Lost};
use crate::load::Measured;
use crate::objective::{FIGURES, Figure, Miss, Objective};
use crate::search::Found;
use overdrive_base::size::format_size;
use overdrive_hist::Histogram;
use overdrive_sys::disk_stats::DiskStats;
use overdrive_sys::memory_group::GroupCounters;
use overdrive_sys::usage::CpuTime;
use overdrive_sys::vm_counters::VmCounters;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How a trial is done.
#[derive(Debug, Clone)]
pub struct TrialSpec {
    /// Load that is not measured, first.
    pub warmup: Duration,
    /// How long each iteration is measured.
    pub runtime: Duration,
    /// How many there are.
    pub iterations: u32,
    /// What must hold.
    pub objective: Objective,
    /// Whether it must hold for the fleet as a whole, or for each instance.
    pub judge: Judge,
    /// The device, or a file on the disk, whose business is looked at; none for none.
    pub disk: Option<PathBuf>,
    /// Swap behind the fleet, in bytes.
    pub swap_bytes: u64,
}

/// Whose latency is held against the objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judge {
    /// Every instance's own.
    Each,
    /// That of all requests together.
    Fleet,
}

/// What the machine spent during the iterations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Spent {
    /// CPU time in use, over all CPUs, in per cent.
    pub cpu_percent: f64,
    /// CPU time the hypervisor gave to others, in per cent.
    pub stolen_percent: f64,
    /// Bytes a second read from swap, or by the instances' pagers from their store.
    pub swap_in_bytes_per_s: f64,
    /// Bytes a second written to it.
    pub swap_out_bytes_per_s: f64,
    /// The disk that was looked at, with the share of time it was busy, in per cent.
    pub disk: Option<(String, f64)>,
}

/// What is scarce at the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scarce {
    /// The CPUs are busy.
    Cpu,
    /// The disk is.
    Disk,
    /// Memory has to come back from the drive.
    Memory,
    /// None of them: the latency is missed without anything being full.
    Nothing,
}

/// What a trial came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The objective holds.
    Held,
    /// It does not, most of all here.
    Missed {
        /// The instance, or none when the fleet is judged as a whole.
        instance: Option<u32>,
        /// By how much.
        miss: Miss,
        /// What is scarce.
        scarce: Scarce,
    },
    /// What was measured is inside the limits, and too little to say that of them.
    TooFew {
        /// The instance, or none when the fleet is judged as a whole.
        instance: Option<u32>,
        /// The figure that wants more.
        figure: Figure,
        /// Answers there were.
        samples: u64,
    },
    /// The rate cannot be met: answers fell too far behind.
    Overloaded {
        /// What is scarce.
        scarce: Scarce,
    },
    /// An instance was lost.
    Lost(Lost),
    /// It was not tried: so many instances of this size are larger than what there is.
    TooLarge {
        /// What they would need, in bytes.
        needed_bytes: u64,
        /// What there is, in bytes.
        available_bytes: u64,
    },
    /// It was not tried: dealt out over so many instances, DRAM is less for one than its pager needs.
    TooThin {
        /// What the smallest share would be, in bytes.
        share_bytes: u64,
        /// What a pager needs, in bytes.
        needed_bytes: u64,
    },
    /// Requests were answered wrongly.
    Wrong {
        /// How many.
        errors: u64,
        /// The first answer.
        first: String,
    },
}

/// One iteration.
#[derive(Debug, Clone)]
pub struct Iteration {
    /// How many requests.
    pub samples: u64,
    /// The figures of [`FIGURES`], of all requests of the fleet, in nanoseconds.
    pub figures_ns: Vec<Option<u64>>,
    /// Answers a second.
    pub answered_per_s: f64,
}

/// One number of instances, measured.
#[derive(Debug, Clone)]
pub struct Trial {
    /// How many instances.
    pub instances: u32,
    /// The iterations together.
    pub measured: Measured,
    /// The iterations one by one.
    pub iterations: Vec<Iteration>,
    /// What was spent during them.
    pub spent: Spent,
    /// What came of it.
    pub verdict: Verdict,
    /// The fleet's group afterwards; none without groups.
    pub counters: Option<GroupCounters>,
    /// Each class's group afterwards.
    pub class_counters: Vec<GroupCounters>,
    /// Memory of one instance, in DRAM and swap, in bytes.
    pub footprint_bytes: Option<u64>,
    /// How long filling took.
    pub fill: Duration,
}

/// What happens while a trial runs, for a progress line.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// Records stored, of how many.
    Fill(u64, u64),
    /// Load that is not measured.
    Warmup,
    /// Which iteration, from 1.
    Iteration(u32),
}

impl Trial {
    fn unmeasured(instances: u32, verdict: Verdict) -> Self {
        Self {
            instances,
            measured: Measured::default(),
            iterations: Vec::new(),
            spent: Spent::default(),
            verdict,
            counters: None,
            class_counters: Vec::new(),
            footprint_bytes: None,
            fill: Duration::ZERO,
        }
    }

    /// Whether the objective held.
    #[must_use]
    pub fn held(&self) -> bool {
        self.verdict == Verdict::Held
    }

    /// What it says to a search. A miss may be the host's; nothing else would come out otherwise a second
    /// time.
    #[must_use]
    pub fn found(&self) -> Found {
        match self.verdict {
            Verdict::Held => Found::Holds,
            Verdict::Missed { .. } | Verdict::Overloaded { .. } => Found::Missed,
            _ => Found::Fails,
        }
    }

    /// How far the iterations lie apart in a figure: largest over smallest.
    #[must_use]
    pub fn spread(&self, figure: Figure) -> Option<f64> {
        let at = FIGURES.iter().position(|one| *one == figure)?;
        let values: Option<Vec<u64>> = self.iterations.iter().map(|one| one.figures_ns[at]).collect();
        let values = values?;
        let (low, high) = (values.iter().min()?, values.iter().max()?);
        (*low > 0).then(|| *high as f64 / *low as f64)
    }
}

/// Tries one number of instances.
///
/// # Errors
/// When it cannot be tried at all. An instance that is lost is a verdict.
pub fn attempt(
    fleet: &mut Fleet<'_>,
    instances: u32,
    spec: &TrialSpec,
    stop: &AtomicBool,
    tick: &mut dyn FnMut(Step),
) -> Result<Trial, FleetError> {
    if let Some(verdict) = impossible(fleet, instances, spec) {
        return Ok(Trial::unmeasured(instances, verdict));
    }
    match measure(fleet, instances, spec, stop, tick) {
        Err(FleetError::Lost(lost)) => {
            // Whoever is left may be half filled or half dead.
            fleet.resize(0, stop, &mut |_, _| {})?;
            Ok(Trial::unmeasured(instances, Verdict::Lost(lost)))
        }
        other => other,
    }
}

/// Why a number cannot be tried: by the memory of the instances so far it is too large (a twentieth more is
/// tried), or too little is left for each.
#[must_use]
pub fn impossible(fleet: &Fleet<'_>, instances: u32, spec: &TrialSpec) -> Option<Verdict> {
    let dram = fleet.spec().dram_bytes?;
    if let Some(extended) = fleet.spec().backing.extended() {
        let share_bytes = fleet.budgets(instances)?.into_iter().min()?;
        let needed_bytes = extended.budget_min_bytes;
        return (share_bytes < needed_bytes).then_some(Verdict::TooThin { share_bytes, needed_bytes });
    }
    let swap = if fleet.spec().backing.swaps() { spec.swap_bytes } else { 0 };
    let needed_bytes = fleet.footprint_bytes()? * u64::from(instances);
    let available_bytes = dram + swap;
    (needed_bytes > available_bytes + available_bytes / 20)
        .then_some(Verdict::TooLarge { needed_bytes, available_bytes })
}

fn measure(
    fleet: &mut Fleet<'_>,
    instances: u32,
    spec: &TrialSpec,
    stop: &AtomicBool,
    tick: &mut dyn FnMut(Step),
) -> Result<Trial, FleetError> {
    let filling = Instant::now();
    fleet.resize(instances, stop, &mut |done, total| tick(Step::Fill(done, total)))?;
    let mut trial = Trial::unmeasured(instances, Verdict::Held);
    trial.fill = filling.elapsed();
    trial.footprint_bytes = fleet.footprint_bytes();
    if !fleet.spec().classes.is_empty() && fleet.spec().backing.extended().is_none() {
        // What the allocator takes more while values are replaced is part of an instance's memory.
        let memory = trial.footprint_bytes.unwrap_or(0);
        fleet.limit_classes(memory + memory / 16)?;
    }
    tick(Step::Warmup);
    let stream = u64::from(instances) << 8;
    let warm = fleet.run(spec.warmup, stream, stop, &mut |_| {})?;
    fleet.settle(stop)?;
    let readings = Readings::now(spec, fleet);
    if warm.overloaded {
        trial.measured = warm;
    } else {
        for number in 1..=spec.iterations {
            tick(Step::Iteration(number));
            let one = fleet.run(spec.runtime, stream + u64::from(number), stop, &mut |_| {})?;
            let all = one.fleet();
            trial.iterations.push(Iteration {
                samples: all.count(),
                figures_ns: FIGURES.iter().map(|figure| figure.of(&all)).collect(),
                answered_per_s: one.answered_per_s(),
            });
            trial.measured.merge(&one);
            if one.overloaded || one.stopped {
                break;
            }
        }
    }
    trial.spent = Readings::now(spec, fleet).since(&readings);
    trial.counters = fleet.counters();
    trial.class_counters = fleet.class_counters();
    fleet.settle(stop)?;
    if trial.measured.stopped {
        return Err(FleetError::Stopped);
    }
    trial.verdict = judge(&trial, spec);
    Ok(trial)
}

fn judge(trial: &Trial, spec: &TrialSpec) -> Verdict {
    let measured = &trial.measured;
    let errors: u64 = measured.served.iter().map(|one| one.errors).sum();
    if errors > 0 {
        return Verdict::Wrong { errors, first: measured.first_error.clone().unwrap_or_default() };
    }
    let scarce = scarce(trial);
    if measured.overloaded {
        return Verdict::Overloaded { scarce };
    }
    let fleet = measured.fleet();
    let judged: Vec<(Option<u32>, &Histogram)> = match spec.judge {
        Judge::Fleet => vec![(None, &fleet)],
        Judge::Each => {
            measured.served.iter().enumerate().map(|(at, one)| (Some(at as u32), &one.latency)).collect()
        }
    };
    let misses = judged.iter().filter_map(|(at, latency)| Some((*at, spec.objective.worst_miss(latency)?)));
    if let Some((instance, miss)) = misses.max_by(|one, other| one.1.excess().total_cmp(&other.1.excess())) {
        return Verdict::Missed { instance, miss, scarce };
    }
    let too_few = |&(instance, latency): &(Option<u32>, &Histogram)| {
        let figure = spec.objective.too_few(latency)?;
        Some(Verdict::TooFew { instance, figure, samples: latency.count() })
    };
    judged.iter().find_map(too_few).unwrap_or(Verdict::Held)
}

/// From here on a CPU or a disk counts as full, in per cent.
const FULL_PERCENT: f64 = 85.0;
/// Pages from swap for each request from which on memory counts as scarce.
const PAGES_PER_REQUEST: f64 = 0.01;

fn scarce(trial: &Trial) -> Scarce {
    let spent = &trial.spent;
    let pages_per_s = spent.swap_in_bytes_per_s / 4096.0;
    if spent.cpu_percent + spent.stolen_percent >= FULL_PERCENT {
        Scarce::Cpu
    } else if spent.disk.as_ref().is_some_and(|(_, busy)| *busy >= FULL_PERCENT) && pages_per_s > 0.0 {
        Scarce::Disk
    } else if pages_per_s > PAGES_PER_REQUEST * trial.measured.answered_per_s() {
        Scarce::Memory
    } else {
        Scarce::Nothing
    }
}

/// The machine's counters at one instant.
struct Readings {
    at: Instant,
    cpus: Vec<CpuTime>,
    vm: VmCounters,
    moved: Option<Moved>,
    disk: Option<DiskStats>,
}

impl Readings {
    fn now(spec: &TrialSpec, fleet: &Fleet<'_>) -> Self {
        Self {
            at: Instant::now(),
            cpus: CpuTime::read_all().unwrap_or_default(),
            vm: VmCounters::read(),
            moved: fleet.moved(),
            disk: spec.disk.as_deref().and_then(DiskStats::of),
        }
    }

    fn since(&self, earlier: &Self) -> Spent {
        let seconds = (self.at - earlier.at).as_secs_f64().max(1e-9);
        let sum = |of: fn(&CpuTime) -> u64| {
            let total = |cpus: &[CpuTime]| cpus.iter().map(of).sum::<u64>();
            total(&self.cpus).saturating_sub(total(&earlier.cpus)) as f64
        };
        let (busy, stolen) = (sum(|cpu| cpu.running + cpu.interrupts), sum(|cpu| cpu.stolen));
        let all = (busy + stolen + sum(|cpu| cpu.idle)).max(1.0);
        let vm = self.vm.since(&earlier.vm);
        let pages = |pages: Option<u64>| pages.unwrap_or(0) * 4096;
        let (in_bytes, out_bytes) = match self.moved.zip(earlier.moved) {
            Some((now, then)) => {
                (now.in_bytes.saturating_sub(then.in_bytes), now.out_bytes.saturating_sub(then.out_bytes))
            }
            None => (pages(vm.swap_ins), pages(vm.swap_outs)),
        };
        let disk = self.disk.as_ref().zip(earlier.disk.as_ref()).map(|(now, then)| {
            let busy = now.since(then).busy_ms as f64 / (seconds * 1000.0);
            (now.name.clone(), (busy * 100.0).min(100.0))
        });
        Spent {
            cpu_percent: busy / all * 100.0,
            stolen_percent: stolen / all * 100.0,
            swap_in_bytes_per_s: in_bytes as f64 / seconds,
            swap_out_bytes_per_s: out_bytes as f64 / seconds,
            disk,
        }
    }
}

impl fmt::Display for Scarce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scarce::Cpu => "the CPUs are busy",
            Scarce::Disk => "the disk is busy",
            Scarce::Memory => "memory has to come back from the drive",
            Scarce::Nothing => "neither CPU nor memory nor disk is short",
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Held => write!(f, "the objective holds"),
            Verdict::Missed { instance: Some(instance), miss, scarce } => {
                write!(f, "instance {instance}: {miss}; {scarce}")
            }
            Verdict::Missed { instance: None, miss, scarce } => write!(f, "the fleet: {miss}; {scarce}"),
            Verdict::TooFew { instance, figure, samples } => {
                let whose =
                    instance.map_or("the fleet".to_owned(), |instance| format!("instance {instance}"));
                write!(
                    f,
                    "{whose}: {samples} answers are too few to know {figure}; a longer --runtime gives more"
                )
            }
            Verdict::Overloaded { scarce } => {
                write!(f, "the rate cannot be met, answers fell more than 2 s behind; {scarce}")
            }
            Verdict::Lost(lost) => write!(f, "{lost}"),
            Verdict::TooLarge { needed_bytes, available_bytes } => write!(
                f,
                "memory: they need {}, there is {}",
                format_size(*needed_bytes),
                format_size(*available_bytes)
            ),
            Verdict::TooThin { share_bytes, needed_bytes } => write!(
                f,
                "memory: {} of DRAM would be left for one, its pager needs {}",
                format_size(*share_bytes),
                format_size(*needed_bytes)
            ),
            Verdict::Wrong { errors, first } => write!(f, "{errors} wrong answers, the first: {first}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Served;

    fn spec(judge: Judge) -> TrialSpec {
        TrialSpec {
            warmup: Duration::ZERO,
            runtime: Duration::from_secs(1),
            iterations: 1,
            objective: "avg=50us,p99=300us".parse().unwrap(),
            judge,
            disk: None,
            swap_bytes: 0,
        }
    }

    fn trial(latencies_ns: &[u64]) -> Trial {
        let mut trial = Trial::unmeasured(latencies_ns.len() as u32, Verdict::Held);
        for &latency in latencies_ns {
            let mut served = Served::default();
            served.latency.record_n(latency, 1000);
            trial.measured.gets.record_n(latency, 1000);
            trial.measured.served.push(served);
        }
        trial.measured.window_ns = 1_000_000_000;
        trial.measured.answered_in_window = 1000 * latencies_ns.len() as u64;
        trial
    }

    #[test]
    fn one_bad_instance_fails_each_but_not_the_fleet() {
        let trial = trial(&[20_000, 20_000, 90_000]);
        assert_eq!(judge(&trial, &spec(Judge::Fleet)), Verdict::Held);
        let Verdict::Missed { instance: Some(2), miss, scarce } = judge(&trial, &spec(Judge::Each)) else {
            panic!("{:?}", judge(&trial, &spec(Judge::Each)))
        };
        assert_eq!((miss.figure, scarce), (Figure::Average, Scarce::Nothing));
    }

    #[test]
    fn the_edge_names_what_is_scarce() {
        let mut trial = trial(&[90_000]);
        let said = |trial: &Trial| judge(trial, &spec(Judge::Each)).to_string();
        assert!(said(&trial).ends_with("neither CPU nor memory nor disk is short"), "{}", said(&trial));
        trial.spent.swap_in_bytes_per_s = 4096.0 * 20.0;
        assert!(said(&trial).ends_with("memory has to come back from the drive"));
        trial.spent.disk = Some(("vda".to_owned(), 99.0));
        assert!(said(&trial).ends_with("the disk is busy"));
        trial.spent.cpu_percent = 60.0;
        trial.spent.stolen_percent = 30.0;
        assert!(said(&trial).ends_with("the CPUs are busy"));
        assert!(said(&trial).starts_with("instance 0: avg 90.0 us, 1.8 times the 50.0 us asked for"));
    }

    #[test]
    fn too_few_answers_never_hold() {
        let mut spec = spec(Judge::Each);
        spec.objective = "p99.9=300us".parse().unwrap();
        let said = judge(&trial(&[20_000, 20_000]), &spec).to_string();
        assert_eq!(said, "instance 0: 1000 answers are too few to know p99.9; a longer --runtime gives more");
        spec.judge = Judge::Fleet;
        assert_eq!(judge(&trial(&[20_000; 10]), &spec), Verdict::Held);
        assert!(matches!(judge(&trial(&[400_000]), &spec), Verdict::Missed { .. }), "a miss is a miss");
    }

    #[test]
    fn wrong_answers_and_overload_never_hold() {
        let mut trial = trial(&[1000]);
        trial.measured.overloaded = true;
        trial.verdict = judge(&trial, &spec(Judge::Each));
        assert!(matches!(trial.verdict, Verdict::Overloaded { .. }));
        assert_eq!(trial.found(), Found::Missed, "it may be chance");
        trial.measured.served[0].errors = 3;
        trial.measured.first_error = Some("a key is missing".to_owned());
        trial.verdict = judge(&trial, &spec(Judge::Each));
        assert_eq!(trial.verdict.to_string(), "3 wrong answers, the first: a key is missing");
        assert_eq!(trial.found(), Found::Fails, "once is enough");
    }

    #[test]
    fn iterations_are_compared() {
        let mut trial = trial(&[1000]);
        for average in [10, 11, 12] {
            let mut figures_ns = vec![Some(5); FIGURES.len()];
            figures_ns[0] = Some(average);
            trial.iterations.push(Iteration { samples: 1, figures_ns, answered_per_s: 1.0 });
        }
        assert_eq!(trial.spread(Figure::Average), Some(1.2));
        assert_eq!(trial.spread(Figure::Max), Some(1.0));
    }
}
