//! What a waiting user sees on standard error: a live line on a terminal, and a line for each number tried.

use crate::output::say;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use overdrive_base::time::{format_duration, format_ns};
use overdrive_density::objective::Figure;
use overdrive_density::trial::{Step, Trial, TrialSpec};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// The line of one backing.
pub(super) struct Line {
    bar: ProgressBar,
    live: bool,
    backing: &'static str,
    instances: u32,
    again: &'static str,
    began: Instant,
    warmup: Duration,
    runtime: Duration,
    iterations: u32,
}

impl Line {
    pub(super) fn new(backing: &'static str, spec: &TrialSpec) -> Self {
        let live = std::io::stderr().is_terminal();
        let target = if live { ProgressDrawTarget::stderr_with_hz(4) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        Self {
            bar,
            live,
            backing,
            instances: 0,
            again: "",
            began: Instant::now(),
            warmup: spec.warmup,
            runtime: spec.runtime,
            iterations: spec.iterations,
        }
    }

    /// A number is tried, or `again`.
    pub(super) fn begin(&mut self, instances: u32, again: bool) {
        (self.instances, self.again) = (instances, if again { " again" } else { "" });
        self.began = Instant::now();
    }

    /// How far it is, and how long it will take from here.
    pub(super) fn step(&self, step: Step) {
        if !self.live {
            return;
        }
        let load = |iterations: u32| self.runtime * iterations;
        let (what, left) = match step {
            Step::Fill(done, total) => {
                let share = done as f64 / total.max(1) as f64;
                let taken = self.began.elapsed().as_secs_f64();
                let rest = if share > 0.01 { taken / share - taken } else { 0.0 };
                let rest = Duration::from_secs_f64(rest.clamp(0.0, 86_400.0));
                (format!("filling {:.0} %", share * 100.0), rest + self.warmup + load(self.iterations))
            }
            Step::Warmup => ("warming up".to_owned(), self.warmup + load(self.iterations)),
            Step::Iteration(number) => (
                format!("iteration {number} of {}", self.iterations),
                load(self.iterations.saturating_sub(number - 1)),
            ),
        };
        let left = format_duration(Duration::from_secs(left.as_secs_f64().ceil() as u64));
        let message = format!(
            "{}, instances {}{}: {what}, {left} left for this number",
            self.backing, self.instances, self.again
        );
        self.bar.set_message(message);
        self.bar.tick();
    }

    pub(super) fn clear(&self) {
        if self.live {
            self.bar.set_message("");
        }
    }

    /// A number has been tried.
    pub(super) fn end(&self, trial: &Trial) {
        let all = trial.measured.fleet();
        let figure = |figure: Figure| figure.of(&all).map_or("-".to_owned(), format_ns);
        let latency = if all.count() > 0 {
            format!("avg {}, p99 {}: ", figure(Figure::Average), figure(Figure::Percentile(99.0)))
        } else {
            String::new()
        };
        let took = format_duration(self.began.elapsed());
        let line = format!(
            "{:<6} {:>3} instance{}{}, {latency}{} ({took})",
            self.backing,
            trial.instances,
            if trial.instances == 1 { "" } else { "s" },
            self.again,
            trial.verdict
        );
        if self.live {
            self.bar.suspend(|| say!("{line}"));
        } else {
            say!("{line}");
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
