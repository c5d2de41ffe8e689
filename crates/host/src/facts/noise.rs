//! Who else uses the CPUs while we measure: load, busy processes, time the hypervisor took away.
//!
//! /proc is read twice and the difference is judged. Noise below the scheduler (firmware, interrupts) is what
//! the spinning thread of the self-test sees.

use super::{Fact, FactRow, Rows};
use crate::root::Root;
use std::collections::BTreeMap;
use std::time::Duration;

/// Processes named at most.
const NAMED_MAX: usize = 5;
/// A process below this many CPUs is not worth a name.
const NAMED_CPUS_MIN: f64 = 0.01;

/// What is known of other work on the host.
#[derive(Debug, Clone)]
pub struct NoiseFacts {
    /// Runnable and waiting tasks, averaged over 1, 5 and 15 minutes.
    pub load: Fact<[f64; 3]>,
    /// What was seen while sampling.
    pub sample: Fact<Sample>,
}

/// CPU use between two looks at /proc.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// CPUs busy with anything, this process included: 1.0 is one CPU all the time.
    pub busy_cpus: f64,
    /// CPUs busy with other processes.
    pub others_cpus: f64,
    /// CPUs the hypervisor gave to somebody else while we wanted them.
    pub steal_cpus: f64,
    /// The busiest other processes, busiest first.
    pub processes: Vec<BusyProcess>,
}

/// One other process.
#[derive(Debug, Clone, PartialEq)]
pub struct BusyProcess {
    /// Its number.
    pub pid: u32,
    /// Its command name, kernel threads included.
    pub name: String,
    /// CPUs it kept busy.
    pub cpus: f64,
}

/// One look: ticks since boot (CPUs), since start (processes).
#[derive(Debug, Default)]
struct Look {
    total: u64,
    idle: u64,
    steal: u64,
    cpus: u64,
    own: u32,
    processes: BTreeMap<u32, Process>,
}

#[derive(Debug)]
struct Process {
    name: String,
    /// Ticks it ran.
    ticks: u64,
    /// When it began; with the number it tells processes apart, while kernel workers change their names.
    start: u64,
}

impl NoiseFacts {
    pub(super) fn read(root: &Root, wait: Duration) -> NoiseFacts {
        NoiseFacts { load: read_load(root), sample: read_sample(root, wait) }
    }

    pub(super) fn rows(&self) -> Vec<FactRow> {
        let mut rows = Rows::new("noise");
        rows.add("load", "Load average", &self.load, |[one, five, fifteen]| {
            format!("{one} {five} {fifteen}")
        });
        rows.add("others", "CPUs busy with other processes", &self.sample, |seen| {
            format!("{:.2}", seen.others_cpus)
        });
        rows.add("steal", "CPUs taken by the hypervisor", &self.sample, |seen| {
            format!("{:.2}", seen.steal_cpus)
        });
        rows.add("processes", "Busiest other processes", &self.sample, Sample::names);
        rows.into_vec()
    }
}

impl Sample {
    /// The busiest other processes as text: `stress (812) 1.00, kswapd0 (61) 0.12`; `none`.
    #[must_use]
    pub fn names(&self) -> String {
        let show = |process: &BusyProcess| format!("{} ({}) {:.2}", process.name, process.pid, process.cpus);
        let names: Vec<String> = self.processes.iter().map(show).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }

    fn between(before: &Look, after: &Look) -> Option<Sample> {
        let total = after.total.checked_sub(before.total).filter(|&ticks| ticks > 0)?;
        let cpus = |ticks: u64| ticks as f64 / total as f64 * after.cpus as f64;
        let busy = total.saturating_sub(after.idle.saturating_sub(before.idle));
        let steal = after.steal.saturating_sub(before.steal);
        let mut own_ticks = 0;
        let mut processes = Vec::new();
        for (&pid, process) in &after.processes {
            let earlier = before.processes.get(&pid).filter(|earlier| earlier.start == process.start);
            // A process born in between counts in full.
            let spent = process.ticks.saturating_sub(earlier.map_or(0, |earlier| earlier.ticks));
            if pid == after.own {
                own_ticks = spent;
            } else if cpus(spent) >= NAMED_CPUS_MIN {
                processes.push(BusyProcess { pid, name: process.name.clone(), cpus: cpus(spent) });
            }
        }
        processes.sort_by(|a, b| b.cpus.total_cmp(&a.cpus));
        processes.truncate(NAMED_MAX);
        Some(Sample {
            busy_cpus: cpus(busy.saturating_sub(steal)),
            others_cpus: cpus(busy.saturating_sub(steal).saturating_sub(own_ticks)),
            steal_cpus: cpus(steal),
            processes,
        })
    }
}

fn read_load(root: &Root) -> Fact<[f64; 3]> {
    root.text("/proc/loadavg").parse(|text| {
        let averages: Vec<f64> =
            text.split_whitespace().take(3).filter_map(|word| word.parse().ok()).collect();
        averages.try_into().map_err(|_| super::parse::Unexpected::new(text, "three averages"))
    })
}

fn read_sample(root: &Root, wait: Duration) -> Fact<Sample> {
    const STAT: &str = "/proc/stat";
    let unreadable = |why: &str| Fact::Unreadable { path: STAT.to_owned(), errno: None, why: why.to_owned() };
    if wait.is_zero() {
        return unreadable("not sampled");
    }
    let before = match look(root) {
        Ok(look) => look,
        Err(fact) => return fact,
    };
    let after = match look(&root.later(wait)) {
        Ok(look) => look,
        Err(fact) => return fact,
    };
    match Sample::between(&before, &after) {
        Some(sample) => {
            let raw = format!(
                "in {wait:?}: {:.2} CPUs busy, {:.2} of them with others, {:.2} stolen",
                sample.busy_cpus, sample.others_cpus, sample.steal_cpus
            );
            Fact::known(sample, raw, STAT)
        }
        None => unreadable("no time passed between the two looks"),
    }
}

fn look(root: &Root) -> Result<Look, Fact<Sample>> {
    let stat = root.text("/proc/stat");
    let Some(text) = stat.value() else {
        return Err(stat.and_then(|text| Err(super::parse::Unexpected::new(text, "text"))));
    };
    let mut look = cpu_ticks(text).ok_or_else(|| Fact::Unreadable {
        path: stat.path().to_owned(),
        errno: None,
        why: "it has no line 'cpu' with at least four numbers".to_owned(),
    })?;
    let own = root.text("/proc/self/stat");
    look.own = own.value().and_then(|text| process(text)).map_or(0, |(pid, _)| pid);
    let names = root.list("/proc");
    for name in
        names.value().into_iter().flatten().filter(|name| name.starts_with(|c: char| c.is_ascii_digit()))
    {
        // A process may be gone by now: then it is not busy any more.
        let stat = root.text(&format!("/proc/{name}/stat"));
        if let Some((pid, process)) = stat.value().and_then(|text| process(text)) {
            look.processes.insert(pid, process);
        }
    }
    Ok(look)
}

/// The `cpu` line: user nice system idle iowait irq softirq steal; guest time is part of user already.
fn cpu_ticks(stat: &str) -> Option<Look> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    let per_cpu = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    Some(Look {
        total: ticks.iter().fold(0, |sum: u64, &tick| sum.saturating_add(tick)),
        idle: ticks.get(3)?.saturating_add(ticks.get(4).copied().unwrap_or(0)),
        steal: ticks.get(7).copied().unwrap_or(0),
        cpus: stat.lines().filter(per_cpu).count().max(1) as u64,
        ..Look::default()
    })
}

/// One process; its name stands in parentheses and may hold any character.
fn process(stat: &str) -> Option<(u32, Process)> {
    let (pid, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let columns: Vec<&str> = rest.split(' ').collect();
    // Columns 14, 15 and 22 of proc(5), of which the first two are cut off here.
    let column = |number: usize| columns.get(number - 3)?.trim().parse::<u64>().ok();
    let ticks = column(14)?.saturating_add(column(15)?);
    Some((pid.parse().ok()?, Process { name: name.to_owned(), ticks, start: column(22)? }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PROCESS: &str = "812 (a (b) c) R 1 2 3 4 5 6 7 8 9 10 40 2 0 0 20 0 1 0 900";

    fn host(later: &str) -> Root {
        Root::from_capture(&format!(
            "/proc/stat |\n|cpu  100 0 50 800 50 0 0 0 0 0\n|cpu0 1\n|cpu1 1\n\
             /proc/self/stat = 7 (me) R 1 2 3 4 5 6 7 8 9 10 1 1 0 0 20 0 1 0 5\n\
             /proc/7/stat = 7 (me) R 1 2 3 4 5 6 7 8 9 10 1 1 0 0 20 0 1 0 5\n\
             /proc/812/stat = {PROCESS}\n{later}"
        ))
        .unwrap()
    }

    #[test]
    fn names_who_was_busy_under_a_new_name_too_and_leaves_this_process_out() {
        let root = host(
            "later /proc/stat |\n|cpu  200 0 60 850 50 0 0 40 0 0\n|cpu0 1\n|cpu1 1\n\
             later /proc/7/stat = 7 (me) R 1 2 3 4 5 6 7 8 9 10 21 1 0 0 20 0 1 0 5\n\
             later /proc/812/stat = 812 (renamed (b) c) R 1 2 3 4 5 6 7 8 9 10 130 2 0 0 20 0 1 0 900\n",
        );
        let noise = NoiseFacts::read(&root, Duration::from_millis(1));
        let sample = noise.sample.value().unwrap();
        // 200 ticks passed on two CPUs, so 100 ticks are one CPU: busy 110 and 40 stolen, 20 are our own.
        assert_eq!((sample.busy_cpus, sample.others_cpus, sample.steal_cpus), (1.1, 0.9, 0.4));
        assert_eq!(sample.names(), "renamed (b) c (812) 0.90");
    }

    #[test]
    fn a_sample_over_no_time_is_not_a_quiet_host() {
        let noise = NoiseFacts::read(&host(""), Duration::from_millis(1));
        assert_eq!(noise.sample.why().unwrap(), "no time passed between the two looks");
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "(cpu|[0-9 ()a-z\n]){0,30}") {
            let _ = (cpu_ticks(&text), process(&text), process(&format!("1 ({text}) {text}")));
        }
    }
}
