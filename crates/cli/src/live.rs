//! What a waiting user sees of jobs while they run: a few lines of figures on a terminal, one line, nothing.
//!
//! The lines are drawn in place, below what was printed before. Nothing is asked of the terminal but to move
//! the cursor: whatever ends the process, Ctrl-C, a panic or a kill, leaves it as it was.

mod panel;

use crate::flags::LiveFlag;
use crate::output::harmless;
use crate::progress::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use overdrive_io::job::Direction;
use overdrive_io::live::Seen;
use overdrive_io::run::{Glance, Task};
use overdrive_sys::usage::ThreadUsage;
use panel::{Row, View};
use std::collections::VecDeque;
use std::io::{IsTerminal, stderr, stdout};
use std::time::{Duration, Instant};

/// How often the panel is drawn anew, and over how long "now" is.
const INTERVAL: Duration = Duration::from_millis(250);
const NOW: Duration = Duration::from_secs(1);
/// How many seconds the line of past rates goes back at most.
const PAST: usize = 120;

/// What a task is called, and its targets.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) job: String,
    pub(crate) targets: Vec<String>,
}

/// Whatever is shown.
pub(crate) struct LiveView {
    line: Progress,
    panel: Option<Panel>,
}

impl LiveView {
    /// For `steps` steps that take `planned` in all. Where standard error is no terminal nothing is drawn,
    /// and unless both streams are, no more than a line.
    pub(crate) fn new(how: Option<LiveFlag>, steps: usize, planned: Duration) -> Self {
        let how = how.unwrap_or(LiveFlag::Full);
        let panel = how == LiveFlag::Full && stderr().is_terminal() && stdout().is_terminal();
        let line =
            if panel || how == LiveFlag::Off { Progress::hidden() } else { Progress::new(steps, planned) };
        Self { line, panel: panel.then(|| Panel::new(steps, planned)) }
    }

    /// Whether figures of each I/O are shown, so that workers must tell.
    pub(crate) fn wants_figures(&self) -> bool {
        self.panel.is_some()
    }

    /// Starts the next step, planned to take `length`.
    pub(crate) fn begin(&mut self, title: &str, length: Duration, tasks: &[Task], names: Vec<Named>) {
        self.line.begin(title, length);
        if let Some(panel) = &mut self.panel {
            panel.begin(title, length, tasks, names);
        }
    }

    /// Shows what is to be seen now.
    pub(crate) fn tick(&mut self, elapsed: Duration, glance: &Glance<'_>) {
        match &mut self.panel {
            Some(panel) => panel.tick(elapsed, glance),
            None => self.line.tick_rate(elapsed, glance.ios()),
        }
    }

    /// Takes it all away.
    pub(crate) fn finish(&self) {
        self.line.finish();
        if let Some(panel) = &self.panel {
            panel.bar.finish_and_clear();
        }
    }
}

/// What had been done at a moment.
struct Moment {
    at: Duration,
    seen: Vec<Vec<Seen>>,
    cpu: ThreadUsage,
}

struct Panel {
    bar: ProgressBar,
    steps: usize,
    number: usize,
    title: String,
    /// What all steps, those before this one, and this one are to take.
    planned: Duration,
    finished: Duration,
    length: Duration,
    names: Vec<Named>,
    /// Latencies count from when an operation was due.
    response: bool,
    /// Rates are those of the simulation, not of the device.
    simulated: bool,
    drawn: Option<Instant>,
    moments: VecDeque<Moment>,
    /// Operations a second, one entry a second.
    past: VecDeque<f64>,
    /// When the current entry began, and the operations before it.
    second: (Duration, u64),
}

impl Panel {
    fn new(steps: usize, planned: Duration) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        Self {
            bar,
            steps,
            number: 0,
            title: String::new(),
            planned,
            finished: Duration::ZERO,
            length: Duration::ZERO,
            names: Vec::new(),
            response: false,
            simulated: false,
            drawn: None,
            moments: VecDeque::new(),
            past: VecDeque::new(),
            second: (Duration::ZERO, 0),
        }
    }

    fn begin(&mut self, title: &str, length: Duration, tasks: &[Task], names: Vec<Named>) {
        self.number += 1;
        self.finished += self.length;
        self.length = length;
        title.clone_into(&mut self.title);
        self.names = names;
        self.response = tasks.iter().any(|task| task.job.arrivals.is_some());
        self.simulated =
            tasks.iter().flat_map(|task| &task.targets).any(|target| target.simulation().is_some());
        self.moments.clear();
        self.past.clear();
        self.second = (Duration::ZERO, 0);
    }

    fn tick(&mut self, elapsed: Duration, glance: &Glance<'_>) {
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < INTERVAL) {
            return;
        }
        self.drawn = Some(Instant::now());
        self.remember(elapsed, glance.ios());
        let now = Moment { at: elapsed, seen: glance.seen(), cpu: ThreadUsage::of_process() };
        while self.moments.len() > 1 && elapsed - self.moments[1].at >= NOW {
            self.moments.pop_front();
        }
        let lines = self.moments.front().map(|before| self.lines(before, &now));
        self.moments.push_back(now);
        if let Some(lines) = lines {
            self.bar.set_message(harmless(&lines.join("\n")).into_owned());
        }
    }

    /// Keeps the rate of every second.
    fn remember(&mut self, elapsed: Duration, ios: u64) {
        let (began, before) = self.second;
        let passed = elapsed.saturating_sub(began);
        if passed < Duration::from_secs(1) {
            return;
        }
        self.past.push_back(ios.saturating_sub(before) as f64 / passed.as_secs_f64());
        if self.past.len() > PAST {
            self.past.pop_front();
        }
        self.second = (elapsed, ios);
    }

    fn lines(&self, before: &Moment, now: &Moment) -> Vec<String> {
        let span_s = (now.at - before.at).as_secs_f64().max(1e-3);
        let (rows, ios, failures) = self.rows(before, now, span_s);
        let cpu = now.cpu.since(&before.cpu);
        let view = View {
            title: if self.steps > 1 {
                format!("{}/{} {}", self.number, self.steps, self.title)
            } else {
                self.title.clone()
            },
            elapsed: now.at,
            left: self.planned.saturating_sub(self.finished + now.at.min(self.length)),
            share: (self.finished + now.at.min(self.length)).as_secs_f64()
                / self.planned.as_secs_f64().max(1e-9),
            rows,
            response: self.response,
            simulated: self.simulated,
            failures,
            ios,
            user_s: cpu.user_s,
            system_s: cpu.system_s,
            span_s,
            past: self.past.iter().copied().collect(),
        };
        let width = overdrive_sys::terminal_columns(stderr()).unwrap_or(80);
        let height = overdrive_sys::terminal_rows(stderr()).unwrap_or(24);
        view.lines(width, height, has_blocks())
    }

    /// A row for each direction of each target of each task, one of all first when there are several; with
    /// the operations in all and the failures since the start.
    fn rows(&self, before: &Moment, now: &Moment, span_s: f64) -> (Vec<Row>, u64, u64) {
        let several = self.names.len() > 1;
        let (mut all, mut rows, mut failures) = (Seen::default(), Vec::new(), 0);
        for (task, named) in self.names.iter().enumerate() {
            for (target, name) in named.targets.iter().enumerate() {
                let place = |moment: &Moment| moment.seen.get(task)?.get(target).cloned();
                let Some((earlier, seen)) = place(before).zip(place(now)) else { continue };
                failures += seen.failures;
                let seen = seen.since(&earlier);
                all.merge(&seen);
                let label = if several { format!("{}: {name}", named.job) } else { name.clone() };
                rows.extend(rows_of(&label, &seen, span_s));
            }
        }
        let ios = BLOCKS.into_iter().map(|direction| all.ios(direction)).sum();
        let sum = rows_of("", &all, span_s);
        let parts = if rows.len() > sum.len() { rows } else { Vec::new() };
        (sum.into_iter().chain(parts).collect(), ios, failures)
    }
}

const BLOCKS: [Direction; 3] = [Direction::Read, Direction::Write, Direction::Trim];

fn rows_of(label: &str, seen: &Seen, span_s: f64) -> Vec<Row> {
    let row = |direction: Direction| {
        (seen.ios(direction) > 0).then(|| Row {
            label: label.to_owned(),
            direction: direction.name(),
            iops: seen.ios(direction) as f64 / span_s,
            bytes_per_s: seen.bytes(direction) as f64 / span_s,
            latencies_ns: [0.5, 0.99, 0.999, 1.0].map(|share| seen.latency_ns(direction, share)),
        })
    };
    BLOCKS.into_iter().filter_map(row).collect()
}

/// Whether the terminal can be trusted to draw blocks of different heights.
fn has_blocks() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
