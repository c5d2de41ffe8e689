//! `overdrive run --objective`, `--sweep` and `--surface`: one open loop after the other on the same target,
//! each at a load that the results so far ask for.

use crate::assemble::loads::{self, Load};
use crate::assemble::{Draft, Measured};
use crate::cmd::evaluate::settle;
use crate::cmd::run::{by_law, refusal};
use crate::exit::{Ending, Refused, refuse};
use crate::flags::{RateProcess, RunFlags};
use crate::guide::Planned;
use crate::progress::Progress;
use anyhow::Result;
use overdrive_io::job::{JobSpec, Operation};
use overdrive_io::outcome::{Ended, Outcome};
use overdrive_io::run::{Setting, run as run_job};
use overdrive_io::search::{Judgement, Objective, RateSearch, keeps_rate, knee, next_load};
use overdrive_io::target::Target;
use overdrive_report::record as wire;
use std::time::Duration;

/// A step is made longer than asked for, so that it has enough I/Os, up to this many times.
const LONGEST: u32 = 8;
/// About how many steps an objective takes; for the progress line.
const OBJECTIVE_STEPS: u32 = 10;
/// The percentile that places the points of a curve when no objective says which.
const USUAL_PERCENTILE: f64 = 99.0;

/// What every step runs on.
pub(crate) struct Bench<'a> {
    pub(crate) planned: &'a Planned,
    pub(crate) targets: &'a [Target],
    pub(crate) smallest: u64,
    pub(crate) setting: &'a Setting,
}

/// Runs the search that the flags ask for, and puts it into the draft with the workloads worth keeping.
pub(crate) fn search(flags: &RunFlags, bench: &Bench<'_>, draft: &mut Draft) -> Result<Ending> {
    let spec = &bench.planned.spec;
    if flags.search.surface.is_some() && !matches!(spec.operation, Operation::Mixed { .. }) {
        refuse!("--surface sets reads against writes: wanted --rw randrw or rw");
    }
    let steps = flags.search.surface.map_or(0, |side| side * side + 1)
        + flags.search.sweep.map_or(0, |points| points + 1)
        + flags.search.objective.map_or(0, |_| OBJECTIVE_STEPS);
    let mut progress = Progress::new(steps as usize, (spec.warmup + spec.runtime) * steps);
    let mut search = Search {
        bench,
        law: flags.pace.rate_process.unwrap_or(RateProcess::Poisson),
        objective: flags.search.objective,
        progress: &mut progress,
        names: &flags.targets,
        draft,
        loads: Vec::new(),
        found: None,
        knee: None,
        reason: String::new(),
        ending: Ending::Done,
    };
    let ceilings = match flags.search.surface {
        Some(side) => search.surface(side)?,
        None => search.curve(flags.search.sweep)?,
    };
    let ending = search.ending;
    search.record(&ceilings);
    progress.finish();
    Ok(ending)
}

/// What closed loops gave: of the job (or its reads alone), and of writes alone.
#[derive(Default)]
struct Ceilings {
    usual: f64,
    writes: Option<f64>,
}

struct Search<'a> {
    bench: &'a Bench<'a>,
    law: RateProcess,
    objective: Option<Objective>,
    progress: &'a mut Progress,
    names: &'a [String],
    draft: &'a mut Draft,
    loads: Vec<wire::LoadPoint>,
    found: Option<f64>,
    knee: Option<f64>,
    reason: String,
    ending: Ending,
}

impl Search<'_> {
    /// An objective, a curve, or both.
    fn curve(&mut self, points: Option<u32>) -> Result<Ceilings> {
        let Some(ceiling) = self.ceiling(self.bench.planned.spec.operation, "ceiling")? else {
            return Ok(Ceilings::default());
        };
        if let Some(objective) = self.objective {
            self.hold(objective, ceiling)?;
        }
        if let Some(points) = points {
            self.sweep(points as usize, ceiling)?;
        }
        Ok(Ceilings { usual: ceiling, writes: None })
    }

    /// Bisects for the highest rate that holds the objective.
    fn hold(&mut self, objective: Objective, ceiling: f64) -> Result<()> {
        let mut bisection = RateSearch::below(ceiling);
        let mut best: Option<(f64, Planned, Outcome)> = None;
        let mut edge: Option<(f64, Judgement)> = None;
        while let Some(rate) = bisection.next_rate() {
            let spec = self.at_rate(self.bench.planned.spec.operation, rate);
            let (planned, outcome) = self.step(spec, &format!("{rate:.0} a second"))?;
            if self.ended(&outcome) {
                self.reason = "It ended before the edge was known.".to_owned();
                break;
            }
            let judgement = objective.judge(&outcome);
            bisection.tell(rate, judgement.holds());
            self.keep(&Load { asked: rate, asked_writes: None, judgement: Some(judgement) }, &outcome);
            if judgement.holds() {
                if best.as_ref().is_none_or(|best| rate > best.0) {
                    best = Some((rate, planned, outcome));
                }
            } else if edge.is_none_or(|edge| rate < edge.0) {
                edge = Some((rate, judgement));
            }
        }
        self.found = bisection.found();
        let slots = self.bench.planned.spec.workers * self.bench.planned.spec.queue_depth;
        if self.reason.is_empty() {
            self.reason = match edge {
                _ if bisection.at_ceiling() => {
                    "The target's own ceiling ends it, not the objective.".to_owned()
                }
                Some((rate, judgement)) => loads::at_the_edge(&objective, rate, judgement, slots),
                None => String::new(),
            };
        }
        if let Some((_, planned, outcome)) = best.filter(|best| Some(best.0) == self.found) {
            self.add(&planned, &outcome);
        } else if self.ending == Ending::Done {
            self.ending = Ending::BadVerdict;
        }
        Ok(())
    }

    /// Measures one load after the other where the curve bends most, until there are so many.
    fn sweep(&mut self, points: usize, ceiling: f64) -> Result<()> {
        let percentile = self.objective.map_or(USUAL_PERCENTILE, |objective| objective.percentile);
        // What an objective has tried belongs to the curve.
        let mut curve: Vec<(f64, f64)> = self
            .loads
            .iter()
            .filter_map(|point| {
                let found = point.response.as_ref()?.percentile(percentile)?;
                Some((point.asked_iops / ceiling, found.value_ns.or(found.at_least_ns)? as f64))
            })
            .collect();
        let points = points.max(curve.len() + 4);
        while self.ending != Ending::Interrupted
            && curve.len() < points
            && let Some(share) = next_load(&curve)
        {
            let rate = share * ceiling;
            let spec = self.at_rate(self.bench.planned.spec.operation, rate);
            let (_, outcome) = self.step(spec, &format!("{:.0} % of the ceiling", share * 100.0))?;
            if self.ended(&outcome) {
                self.reason = "It ended before the curve was whole.".to_owned();
                break;
            }
            let judgement = self.objective.map(|objective| objective.judge(&outcome));
            self.keep(&Load { asked: rate, asked_writes: None, judgement }, &outcome);
            curve.push((share, loads::response_at(&outcome, percentile).unwrap_or(1) as f64));
        }
        self.knee = knee(&curve).map(|at| curve[at].0 * ceiling);
        Ok(())
    }

    /// Reads by writes, each up to their own ceiling. A load is left out when a smaller one was too much.
    fn surface(&mut self, side: u32) -> Result<Ceilings> {
        let Some(reads) = self.ceiling(Operation::Read, "reads alone")? else {
            return Ok(Ceilings::default());
        };
        let Some(writes) = self.ceiling(Operation::Write, "writes alone")? else {
            return Ok(Ceilings { usual: reads, writes: Some(0.0) });
        };
        let ceilings = Ceilings { usual: reads, writes: Some(writes) };
        let mut too_much: Vec<(u32, u32)> = Vec::new();
        for (row, column) in (0..side).flat_map(|row| (0..side).map(move |column| (row, column))) {
            let beyond = too_much.iter().any(|&(r, c)| row >= r && column >= c);
            if (row, column) == (0, 0) || beyond {
                continue;
            }
            let share = |at: u32| f64::from(at) / f64::from(side);
            let (read, write) = (reads * share(column), writes * share(row));
            let mut spec = self.at_rate(mix(read, write), read + write);
            // To the per cent some loads would be others than they are called.
            spec.read_share_ppm = Some((1e6 * read / (read + write)).round() as u32);
            let (_, outcome) = self.step(spec, &format!("{read:.0} reads, {write:.0} writes a second"))?;
            if self.ended(&outcome) {
                self.reason = "It ended before the surface was whole.".to_owned();
                break;
            }
            if !keeps_rate(&outcome) {
                too_much.push((row, column));
            }
            self.keep(&Load { asked: read + write, asked_writes: Some(write), judgement: None }, &outcome);
        }
        Ok(ceilings)
    }

    /// I/Os a second of a closed loop; none when there is nothing to go on with.
    fn ceiling(&mut self, operation: Operation, name: &str) -> Result<Option<f64>> {
        let mut spec = self.bench.planned.spec.clone();
        (spec.operation, spec.arrivals) = (operation, None);
        let (mut planned, outcome) = self.step(spec, &format!("closed loop, {name}"))?;
        planned.id += &format!("-{}", name.replace(' ', "-"));
        planned.title += &format!(", {name}");
        self.add(&planned, &outcome);
        if self.ended(&outcome) || outcome.ios() == 0 {
            self.reason = "The closed loop that every load is measured against did not end well.".to_owned();
            return Ok(None);
        }
        Ok(Some(outcome.iops()))
    }

    /// The job as an open loop.
    fn at_rate(&self, operation: Operation, rate: f64) -> JobSpec {
        let mut spec = self.bench.planned.spec.clone();
        spec.operation = operation;
        spec.arrivals = Some(by_law(self.law, rate / f64::from(spec.workers)));
        let wanted_s = self.objective.map_or(0.0, |objective| objective.samples_wanted() / rate);
        let longest = spec.runtime * LONGEST;
        let wanted = Duration::try_from_secs_f64(wanted_s * 1.05).unwrap_or(longest);
        spec.runtime = spec.runtime.max(wanted.min(longest));
        spec
    }

    fn step(&mut self, spec: JobSpec, name: &str) -> Result<(Planned, Outcome)> {
        let Bench { planned, targets, smallest, setting } = *self.bench;
        let mut planned = Planned { spec: spec.clone(), ..planned.clone() };
        planned.notes.clear();
        let job = spec.check(smallest).map_err(|error| Refused(error.to_string()))?;
        self.progress.begin(name, job.warmup + job.runtime);
        let progress = &self.progress;
        let outcome = run_job(&job, targets, setting, |elapsed, glance| {
            progress.tick_rate(elapsed, glance.ios());
        })
        .map_err(refusal)?;
        let percentile = self.objective.map_or(USUAL_PERCENTILE, |objective| objective.percentile);
        let tail = loads::response_at(&outcome, percentile)
            .map_or_else(String::new, |ns| format!(", p{percentile} {}", loads::time(ns)));
        self.progress.end(&format!("{:.0} IOPS{tail}", outcome.iops()));
        Ok((planned, outcome))
    }

    /// Whether the user or the target put an end to it all.
    fn ended(&mut self, outcome: &Outcome) -> bool {
        if outcome.ended == Ended::TimeUp {
            return false;
        }
        self.ending = settle(self.draft, outcome);
        true
    }

    fn keep(&mut self, load: &Load, outcome: &Outcome) {
        self.loads.push(loads::point(load, outcome, self.objective.as_ref()));
    }

    fn add(&mut self, planned: &Planned, outcome: &Outcome) {
        self.draft.add(&Measured { planned, outcome, device: None, targets: self.names });
    }

    fn record(self, ceilings: &Ceilings) {
        self.draft.set_search(wire::Search {
            objective: self.objective.map(|objective| wire::Objective {
                percentile: objective.percentile,
                limit_ns: objective.limit_ns,
            }),
            arrivals: by_law(self.law, 1.0).name().to_owned(),
            step_s: self.bench.planned.spec.runtime.as_secs_f64(),
            ceiling_iops: ceilings.usual,
            write_ceiling_iops: ceilings.writes,
            points: self.loads,
            found_iops: self.found,
            knee_iops: self.knee,
            reason: self.reason,
        });
    }
}

/// Reads and writes in this proportion, to the per cent and never without either.
fn mix(read: f64, write: f64) -> Operation {
    let percent = (100.0 * read / (read + write)).round();
    match (read > 0.0, write > 0.0) {
        (_, false) => Operation::Read,
        (false, true) => Operation::Write,
        (true, true) => Operation::Mixed { read_percent: percent.clamp(1.0, 99.0) as u8 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_follows_the_rates() {
        assert_eq!(mix(100.0, 0.0), Operation::Read);
        assert_eq!(mix(0.0, 100.0), Operation::Write);
        assert_eq!(mix(300.0, 100.0), Operation::Mixed { read_percent: 75 });
        assert_eq!(mix(1.0, 1e6), Operation::Mixed { read_percent: 1 });
    }
}
