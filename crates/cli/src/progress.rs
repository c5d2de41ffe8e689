//! What a waiting user sees on standard error: one live line on a terminal, one line a step elsewhere.

use crate::output::{harmless, say};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use overdrive_base::time::format_duration;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Progress through steps whose lengths are known beforehand.
pub(crate) struct Progress {
    bar: ProgressBar,
    live: bool,
    started: Instant,
    /// Time planned for all steps, and for those already finished.
    planned: Duration,
    finished: Duration,
    current: Duration,
    step: String,
    steps: usize,
    number: usize,
}

impl Progress {
    /// Progress through `steps` steps that take `planned` in all.
    pub(crate) fn new(steps: usize, planned: Duration) -> Self {
        let target = ProgressDrawTarget::stderr_with_hz(8);
        Self::on(target, std::io::stderr().is_terminal(), steps, planned)
    }

    /// Progress that nobody is to see.
    pub(crate) fn hidden() -> Self {
        Self::on(ProgressDrawTarget::hidden(), false, 0, Duration::ZERO)
    }

    fn on(target: ProgressDrawTarget, live: bool, steps: usize, planned: Duration) -> Self {
        let bar = ProgressBar::with_draw_target(Some(1000), target);
        if let Ok(style) = ProgressStyle::with_template("{bar:12} {wide_msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Self {
            bar,
            live,
            started: Instant::now(),
            planned,
            finished: Duration::ZERO,
            current: Duration::ZERO,
            step: String::new(),
            steps,
            number: 0,
        }
    }

    /// Starts the next step, planned to take `length`.
    pub(crate) fn begin(&mut self, step: &str, length: Duration) {
        self.number += 1;
        self.finished += self.current;
        self.current = length;
        step.clone_into(&mut self.step);
        self.tick(Duration::ZERO, "");
    }

    /// Shows how far the current step is, and a figure of it.
    pub(crate) fn tick(&self, elapsed: Duration, figure: &str) {
        if !self.live {
            return;
        }
        let done = self.finished + elapsed.min(self.current);
        let left = self.planned.saturating_sub(done);
        let share = done.as_secs_f64() / self.planned.as_secs_f64().max(1e-9);
        self.bar.set_position((share * 1000.0).min(1000.0) as u64);
        let (number, steps, step) = (self.number, self.steps, &self.step);
        let left = format_duration(Duration::from_secs(left.as_secs()));
        let line = format!("{number}/{steps} {step}  {figure}  {left} left");
        self.bar.set_message(harmless(&line).into_owned());
    }

    /// Shows how far the current step is, and the rate of what was done in it so far.
    pub(crate) fn tick_rate(&self, elapsed: Duration, ios: u64) {
        self.tick(elapsed, &format!("{:.0} IOPS", ios as f64 / elapsed.as_secs_f64().max(0.001)));
    }

    /// Ends the current step with its result.
    pub(crate) fn end(&self, result: &str) {
        let line = format!("[{:>2}/{}] {:<37} {result}", self.number, self.steps, self.step);
        if self.live {
            self.bar.println(harmless(&line));
        } else {
            say!("{line}");
        }
    }

    /// Takes the live line away.
    pub(crate) fn finish(&self) -> Duration {
        self.bar.finish_and_clear();
        self.started.elapsed()
    }
}
