//! One cell in child processes, one for each memory node that is bound: the parent puts each under the
//! budget, then tells it what to do.
//!
//! A child waits on its standard input for the cell as one line of JSON, says `ready` when it is warm, goes
//! on warming until it is told `go`, so that all measure at the same time, and answers with the outcome. Its
//! input's end means stop: so it ends when the parent does, however that ends.

use super::Plan;
use crate::exit::Ending;
use crate::flags::PageBacking;
use crate::{interrupt, output};
use anyhow::{Context, Result, bail};
use overdrive_paging::outcome::Outcome;
use overdrive_paging::spec::Spec;
use overdrive_sys::clock::Clock;
use overdrive_sys::memory_group::MemoryGroup;
use overdrive_sys::{affinity, numa};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A cell and what it measured.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) backing: PageBacking,
    pub(crate) spec: Spec,
    pub(crate) repeat: usize,
    pub(crate) outcome: Outcome,
    /// Each node's part, where sets were bound.
    pub(crate) nodes: Vec<NodePart>,
}

/// What one memory node did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NodePart {
    pub(crate) node: u32,
    pub(crate) threads: usize,
    pub(crate) pages_per_s: f64,
}

/// A memory node and its CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) id: u32,
    pub(crate) cpus: Vec<usize>,
}

/// What a child is told.
#[derive(Debug)]
struct Task {
    spec: Spec,
    node: Option<Node>,
}

impl Task {
    /// As one line of JSON.
    fn line(&self) -> Result<String> {
        let node = self.node.as_ref().map(|node| json!({ "id": node.id, "cpus": node.cpus }));
        Ok(json!({ "spec": serde_json::to_value(&self.spec)?, "node": node }).to_string())
    }

    fn of(line: &str) -> Result<Self> {
        let mut value: serde_json::Value = serde_json::from_str(line)?;
        let spec = serde_json::from_value(value["spec"].take())?;
        let node = match &value["node"] {
            serde_json::Value::Null => None,
            node => {
                let id = node["id"].as_u64().and_then(|id| u32::try_from(id).ok());
                let cpus = node["cpus"].as_array().map_or(&[][..], Vec::as_slice);
                let cpus = cpus.iter().filter_map(|cpu| usize::try_from(cpu.as_u64()?).ok()).collect();
                Some(Node { id: id.context("no number of a node")?, cpus })
            }
        };
        Ok(Self { spec, node })
    }
}

/// Each node's share of a cell: threads and pages dealt out; nodes without a thread are left out.
fn tasks(spec: &Spec, nodes: &[Node]) -> Vec<Task> {
    if nodes.is_empty() {
        return vec![Task { spec: spec.clone(), node: None }];
    }
    let count = nodes.len();
    let share = |(index, node): (usize, &Node)| {
        let threads = spec.threads / count + usize::from(index < spec.threads % count);
        let pages = (spec.pages / count as u64).max(1);
        // Another stream of random numbers on each node.
        let seed = spec.seed.wrapping_add(index as u64);
        Task { spec: Spec { threads, pages, seed, ..spec.clone() }, node: Some(node.clone()) }
    };
    nodes.iter().enumerate().map(share).filter(|task| task.spec.threads > 0).collect()
}

/// Runs one cell in its children, under `group`'s budget if there is one. `tick` is called now and then with
/// the time since it began.
pub(crate) fn run(
    plan: &Plan,
    backing: PageBacking,
    spec: &Spec,
    group: Option<&MemoryGroup>,
    stop: &AtomicBool,
    tick: &dyn Fn(Duration),
) -> Result<(Outcome, Vec<NodePart>)> {
    let tasks = tasks(spec, &plan.nodes);
    let mut workers = Vec::new();
    let ran =
        start(plan, backing, &tasks, group, &mut workers).and_then(|()| watch(&mut workers, stop, tick));
    let mut ended = Vec::new();
    for worker in &mut workers {
        if ran.is_err() {
            // It may have ended by itself; then there is nothing to kill.
            let _ = worker.child.kill();
        }
        ended.push(worker.child.wait().context("waiting for the workload's process")?);
    }
    ran.with_context(|| reason(&ended))?;
    let mut outcomes = Vec::new();
    for worker in workers {
        outcomes.push(worker.outcome().with_context(|| reason(&ended))?);
    }
    let part = |(task, outcome): (&Task, &Outcome)| {
        let node = task.node.as_ref()?.id;
        Some(NodePart { node, threads: task.spec.threads, pages_per_s: outcome.pages_per_s() })
    };
    let parts = tasks.iter().zip(&outcomes).filter_map(part).collect();
    Ok((Outcome::joined(outcomes), parts))
}

fn reason(ended: &[ExitStatus]) -> String {
    match ended.iter().find(|status| !status.success()) {
        Some(status) if status.code().is_none() => format!(
            "the workload's process was killed ({status}); the kernel log says whether memory ran out"
        ),
        Some(status) => format!("the workload's process ended with {status}"),
        None => "the workload's process".to_owned(),
    }
}

/// A child and the way to it.
struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    /// Set when it is warm or has ended.
    is_warm: Arc<AtomicBool>,
    reader: std::thread::JoinHandle<std::io::Result<String>>,
}

impl Worker {
    fn outcome(self) -> Result<Outcome> {
        let Ok(text) = self.reader.join() else { bail!("reading its answer failed") };
        serde_json::from_str(&text.context("reading its answer")?).context("it gave no outcome")
    }
}

fn start(
    plan: &Plan,
    backing: PageBacking,
    tasks: &[Task],
    group: Option<&MemoryGroup>,
    workers: &mut Vec<Worker>,
) -> Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    for task in tasks {
        let mut command = backing.worker(&program, plan);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the workload's process")?;
        let input = child.stdin.take().context("the workload's process has no input")?;
        let answer = child.stdout.take().context("the workload's process has no output")?;
        let is_warm = Arc::new(AtomicBool::new(false));
        let reader = listen(answer, Arc::clone(&is_warm));
        let pid = child.id();
        workers.push(Worker { child, input: Some(input), is_warm, reader });
        if let Some(group) = group {
            group.admit(pid)?;
        }
        let text = task.line()?;
        say(workers.last_mut(), &text).context("telling the workload's process what to do")?;
    }
    Ok(())
}

fn say(worker: Option<&mut Worker>, line: &str) -> std::io::Result<()> {
    match worker.and_then(|worker| worker.input.as_mut()) {
        Some(input) => writeln!(input, "{line}").and_then(|()| input.flush()),
        None => Ok(()),
    }
}

fn listen(answer: ChildStdout, is_warm: Arc<AtomicBool>) -> std::thread::JoinHandle<std::io::Result<String>> {
    std::thread::spawn(move || {
        let (mut answer, mut first) = (BufReader::new(answer), String::new());
        let heard = answer.read_line(&mut first);
        is_warm.store(true, Ordering::Relaxed);
        let mut text = if first.trim_end() == READY { String::new() } else { first };
        heard.and_then(|_| answer.read_to_string(&mut text)).map(|_| text)
    })
}

const READY: &str = "ready";
const GO: &str = "go";

/// Lets all measure at once when all are warm, and waits for their answers.
fn watch(workers: &mut [Worker], stop: &AtomicBool, tick: &dyn Fn(Duration)) -> Result<()> {
    let start = Instant::now();
    let mut have_gone = false;
    while !workers.iter().all(|worker| worker.reader.is_finished()) {
        if !have_gone && workers.iter().all(|worker| worker.is_warm.load(Ordering::Relaxed)) {
            have_gone = true;
            // One that has ended says so by its answer.
            workers.iter_mut().for_each(|worker| drop(say(Some(worker), GO)));
        }
        let has_failed = |worker: &mut Worker| {
            worker.reader.is_finished()
                && worker.child.try_wait().is_ok_and(|status| status.is_some_and(|s| !s.success()))
        };
        if workers.iter_mut().any(has_failed) {
            bail!("it gave no outcome");
        }
        if stop.load(Ordering::Relaxed) {
            // The end of their input asks them to stop and to answer with what they have.
            workers.iter_mut().for_each(|worker| drop(worker.input.take()));
        }
        tick(start.elapsed());
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// `overdrive page-worker`: the child's side.
pub(crate) fn work() -> Result<Ending> {
    let stop = interrupt::watch()?;
    let clock = Clock::calibrate(Duration::from_millis(50));
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("reading the cell")?;
    let task = Task::of(&line).context("the cell is not readable")?;
    if let Some(node) = &task.node {
        affinity::restrict_to(&node.cpus)
            .with_context(|| format!("keeping to the CPUs of memory node {}", node.id))?;
        numa::bind_memory(node.id).with_context(|| format!("keeping to the memory of node {}", node.id))?;
    }
    let gate = Arc::new(Gate::default());
    listen_for_go(Arc::clone(&gate), Arc::clone(&stop));
    let ready = || {
        // A parent that does not hear it has ended, and so has our input.
        let _ = output::print(&format!("{READY}\n"));
        gate.wait();
    };
    let outcome = overdrive_paging::run::run(&task.spec, clock, &stop, &ready)?;
    output::print(&serde_json::to_string(&outcome)?)?;
    Ok(Ending::Done)
}

/// Opens once.
#[derive(Debug, Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }

    fn wait(&self) {
        let mut is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_open {
            is_open = self.opened.wait(is_open).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn listen_for_go(gate: Arc<Gate>, stop: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let mut line = String::new();
        let heard = std::io::stdin().lock().read_line(&mut line);
        if heard.is_ok() && line.trim_end() == GO {
            gate.open();
            // An error on the way is the end as well.
            let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
        }
        stop.store(true, Ordering::Relaxed);
        gate.open();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_and_pages_are_dealt_out_over_the_nodes() {
        let text = "{\"pages\":1001,\"threads\":3,\"pattern\":\"uniform\",\"read_ratio_percent\":50,\
                    \"write_needs_read\":false,\"compressible_percent\":0,\"offset\":null,\"cold\":true,\
                    \"warmup_max_ms\":0,\"runtime_ms\":1000,\"delay_ns\":0,\"seed\":1,\"timing_cost_ns\":0}";
        let spec: Spec = serde_json::from_str(text).unwrap();
        let nodes = [0, 1].map(|id| Node { id, cpus: vec![id as usize] });
        let shares = |spec: &Spec| -> Vec<(usize, u64)> {
            tasks(spec, &nodes).iter().map(|task| (task.spec.threads, task.spec.pages)).collect()
        };
        assert_eq!(shares(&spec), [(2, 500), (1, 500)]);
        // One thread fits one node, as in the vendor's table.
        assert_eq!(shares(&Spec { threads: 1, ..spec.clone() }), [(1, 500)]);
        assert_eq!(tasks(&spec, &[]).len(), 1);
        let told = Task::of(&tasks(&spec, &nodes)[1].line().unwrap()).unwrap();
        assert_eq!((told.node.as_ref(), told.spec.threads), (Some(&nodes[1]), 1));
        assert!(Task::of("{}").is_err());
    }
}
