//! From a plan to jobs that can be run: targets opened once each, shares of them resolved, engines settled,
//! everything checked before anything starts.

use crate::cmd::evaluate::can_poll;
use crate::cmd::run::{check_alignment, refusal};
use crate::exit::{Refused, refuse};
use crate::flags::AccessFlags;
use crate::guide::Planned;
use crate::open_target::{OpenTarget, ScratchSize};
use anyhow::{Context, Result};
use overdrive_base::size::format_size;
use overdrive_host::Root;
use overdrive_host::target::TargetFacts;
use overdrive_io::engine::EngineKind;
use overdrive_io::front::{Extent, Plan, Section};
use overdrive_io::job::JobSpec;
use overdrive_io::job::words::rw_word;
use overdrive_io::run::{Task, check_apart};
use overdrive_io::target::Target;
use overdrive_report::record::Group;
use overdrive_sys::affinity::allowed_cpus;
use std::path::{Path, PathBuf};

/// An open target with what lies below it.
pub(super) struct Opened {
    pub(super) open: OpenTarget,
    pub(super) facts: Option<TargetFacts>,
    buffered: bool,
}

/// A section that can be run.
pub(super) struct Prepared {
    pub(super) section: Section,
    pub(super) planned: Planned,
    pub(super) task: Task,
    /// Its targets among the open ones.
    pub(super) opened: Vec<usize>,
}

/// All that a plan needs, open and checked.
pub(super) struct Stage {
    pub(super) opened: Vec<Opened>,
    pub(super) jobs: Vec<Prepared>,
    pub(super) notes: Vec<String>,
}

impl Stage {
    /// Opens what the plan names and checks every job of it.
    pub(super) fn open(plan: Plan, access: &AccessFlags) -> Result<Self> {
        let mut stage = Self { opened: Vec::new(), jobs: Vec::new(), notes: Vec::new() };
        let names = || plan.sections.iter().flat_map(|section| &section.targets);
        if let Some(stranger) = access.write_to.iter().find(|named| !names().any(|name| name == *named)) {
            refuse!("--write-to {stranger} does not name a target of these jobs; nothing was touched");
        }
        let several = plan.sections.len() > 1;
        for section in plan.sections {
            stage.add(section, access, several)?;
        }
        stage.check_times()?;
        stage.check_phases()?;
        stage.notes.sort();
        stage.notes.dedup();
        Ok(stage)
    }

    fn add(&mut self, section: Section, access: &AccessFlags, several: bool) -> Result<()> {
        let buffered = section.buffered || access.buffered;
        let mut opened = Vec::new();
        for name in &section.targets {
            opened.push(self.target(name, buffered, access)?);
        }
        if section.targets.is_empty() {
            opened.push(self.scratch(&section, buffered, access)?);
        }
        let first = &self.opened[opened[0]];
        let smallest = opened.iter().map(|&index| self.opened[index].open.target.size()).min().unwrap_or(0);
        let mut spec = section.spec_for(smallest);
        let (name, mut notes) = (section.name.clone(), Vec::new());
        settle_engine(&mut spec, &section, first, &mut notes)?;
        if spec.operation.writes()
            && let Some(locked) =
                opened.iter().map(|&index| &self.opened[index].open).find(|open| !open.writable)
        {
            let target = &locked.spec;
            refuse!(
                "[{name}]: it writes to {target}; --write-to '{target}' allows it, and what is on it is lost"
            );
        }
        if section.fresh_seed {
            spec.seed = jiff::Timestamp::now().as_nanosecond() as u64;
        }
        let cpus = available(&section.cpus, &name, &mut notes)?;
        self.notes.extend(notes.iter().map(|note| format!("[{name}]: {note}")));
        let job = spec.clone().check(smallest).map_err(|error| Refused(format!("[{name}]: {error}")))?;
        for &index in &opened {
            check_alignment(&job, std::slice::from_ref(&self.opened[index].open))?;
        }
        let targets: Vec<Target> =
            opened.iter().map(|&index| self.opened[index].open.target.clone()).collect();
        let planned = self.planned(&section, spec, several);
        self.jobs.push(Prepared { section, planned, task: Task { job, targets, cpus, log: None }, opened });
        Ok(())
    }

    fn planned(&self, section: &Section, spec: JobSpec, several: bool) -> Planned {
        let namesakes = self.jobs.iter().filter(|job| job.section.name == section.name).count();
        let slug: String = section
            .name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' })
            .collect();
        let id = if namesakes > 0 { format!("{slug}.{namesakes}") } else { slug };
        Planned {
            title: format!("{}: {}", section.name, shape(&spec)),
            id,
            group: if several { Group::Set } else { Group::Single },
            asked: None,
            notes: Vec::new(),
            spec,
        }
    }

    /// The open target of this name, opened if it is not yet.
    fn target(&mut self, name: &str, buffered: bool, access: &AccessFlags) -> Result<usize> {
        let same = |opened: &Opened| opened.open.spec == name && opened.buffered == buffered;
        // A device opened for writing is not opened a second time, not even by us.
        if let Some(index) = self.opened.iter().position(same) {
            return Ok(index);
        }
        let consent = access.write_to.iter().filter(|named| *named == name).cloned().collect();
        let access = AccessFlags { write_to: consent, wipe: access.wipe, buffered, seed: access.seed };
        let device = if name.contains("traddr") { Some(device_at(name)?) } else { None };
        let mut open = match &device {
            Some(path) => {
                let path = path.display().to_string();
                let access = AccessFlags {
                    write_to: access.write_to.iter().map(|_| path.clone()).collect(),
                    ..access
                };
                OpenTarget::named(&path, None, &access)?
            }
            None => OpenTarget::named(name, None, &access)?,
        };
        name.clone_into(&mut open.spec);
        self.keep(open, buffered)
    }

    fn scratch(&mut self, section: &Section, buffered: bool, access: &AccessFlags) -> Result<usize> {
        let name = &section.name;
        let Some(Extent::Bytes(bytes)) = section.size else {
            refuse!("[{name}]: no target: wanted a filename, or a size for a scratch file");
        };
        let directory = section.directory.as_deref().unwrap_or(".");
        let access = AccessFlags { write_to: Vec::new(), wipe: false, buffered, seed: access.seed };
        let open = OpenTarget::scratch(Path::new(directory), ScratchSize::Asked(bytes), &access)
            .with_context(|| format!("[{name}]"))?;
        self.keep(open, buffered)
    }

    fn keep(&mut self, open: OpenTarget, buffered: bool) -> Result<usize> {
        let facts = open.trace(&Root::new("/"))?;
        // The first target's notes come with the record.
        if !self.opened.is_empty() {
            self.notes.extend(open.notes.iter().cloned());
        }
        self.opened.push(Opened { open, facts, buffered });
        Ok(self.opened.len() - 1)
    }

    /// Virtual time has nothing in common with real time.
    fn check_times(&self) -> Result<()> {
        for job in &self.jobs {
            let virtual_time = |job: &Prepared| matches!(job.task.job.engine, EngineKind::Sim(_));
            let other = self.jobs.iter().find(|other| {
                other.section.phase == job.section.phase && virtual_time(other) != virtual_time(job)
            });
            if let Some(other) = other {
                refuse!(
                    "[{}] and [{}] run at the same time: a simulated target lives in virtual time and goes with no \
                     real one",
                    job.section.name,
                    other.section.name
                );
            }
        }
        Ok(())
    }

    /// What is checked in a phase is not overwritten in it; said before an earlier phase has run.
    fn check_phases(&self) -> Result<()> {
        for phase in self.jobs.iter().map(|job| job.section.phase) {
            let jobs = self.jobs.iter().filter(|job| job.section.phase == phase);
            check_apart(jobs.map(|job| &job.task)).map_err(refusal)?;
        }
        Ok(())
    }
}

/// What only the target can say: simulated ones have one engine, and only some can be polled.
fn settle_engine(
    spec: &mut JobSpec,
    section: &Section,
    first: &Opened,
    notes: &mut Vec<String>,
) -> Result<()> {
    let pollable = first.facts.as_ref().is_some_and(can_poll);
    if let Some(device) = first.open.target.simulation() {
        if spec.engine != EngineKind::Nop {
            if !matches!(spec.engine, EngineKind::Sim(_)) {
                notes.push(format!(
                    "{} is simulated: engine sim instead of {}",
                    first.open.spec,
                    spec.engine.name()
                ));
            }
            spec.engine = EngineKind::Sim(device.clone());
        }
        (spec.polled, spec.hybrid_poll, spec.sq_poll) = (false, false, false);
        return Ok(());
    }
    if matches!(spec.engine, EngineKind::Sim(_)) {
        refuse!("[{}]: engine sim on {}; wanted a simulated target (sim)", section.name, first.open.spec);
    }
    if first.open.target.generic().is_some() && section.best_engine {
        spec.engine = EngineKind::IoUringCmd;
    }
    if spec.engine == EngineKind::Mmap && !first.buffered {
        refuse!("[{}]: engine mmap goes through the page cache: wanted direct=0", section.name);
    }
    if section.best_engine {
        spec.polled = pollable;
    } else if spec.polled && !pollable {
        notes.push(format!(
            "hipri: {} has no poll queues (queue/io_poll reads 0; for NVMe: nvme.poll_queues=N), completions come by \
             interrupt",
            first.open.spec
        ));
        (spec.polled, spec.hybrid_poll) = (false, false);
    }
    Ok(())
}

/// The CPUs asked for that this process may use.
fn available(asked: &[usize], section: &str, notes: &mut Vec<String>) -> Result<Vec<usize>> {
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let allowed = allowed_cpus().context("asking which CPUs this process may use")?;
    let there: Vec<usize> = asked.iter().copied().filter(|cpu| allowed.contains(cpu)).collect();
    if there.is_empty() {
        refuse!(
            "[{section}]: none of the CPUs asked for ({asked:?}) is there for this process ({allowed:?})"
        );
    }
    if there.len() < asked.len() {
        notes.push(format!("of {} CPUs asked for, {} are there: {there:?}", asked.len(), there.len()));
    }
    Ok(there)
}

/// The block device of an NVMe controller named as SPDK does: `trtype:PCIe traddr:0000:04:00.0`, or with
/// equals signs and dots.
fn device_at(name: &str) -> Result<PathBuf> {
    let word = |key: &str| {
        let at = name.find(key)? + key.len();
        name.get(at + 1..).and_then(|rest| rest.split_whitespace().next()).map(str::to_owned)
    };
    let written = word("traddr").unwrap_or_default();
    // fio reads a colon as the end of a file name, so its plug-in writes 0000.04.00.0.
    let parts: Vec<&str> = written.split(['.', ':']).collect();
    let [.., bus, device, function] = parts.as_slice() else {
        refuse!("{name}: '{written}' is not a PCI address; wanted one such as 0000:04:00.0");
    };
    let domain = if parts.len() == 4 { parts[0] } else { "0000" };
    let address = format!("{domain}:{bus}:{device}.{function}");
    let namespace = word(" ns").unwrap_or_else(|| "1".to_owned());
    let folder = PathBuf::from(format!("/sys/bus/pci/devices/{address}/nvme"));
    let controllers = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let devices = controllers
        .map(|entry| Path::new("/dev").join(format!("{}n{namespace}", entry.file_name().to_string_lossy())));
    devices.filter(|path| path.exists()).min().ok_or_else(|| {
        let text = format!(
            "{name}: no NVMe controller under the kernel's driver at PCI address {address} with namespace {namespace}; \
             wanted a block device such as /dev/nvme0n1"
        );
        anyhow::Error::new(Refused(text))
    })
}

/// What a job does in a few words.
fn shape(spec: &JobSpec) -> String {
    let operation = rw_word(spec.access, spec.operation);
    let size = match (format_size(spec.smallest_block()), format_size(spec.largest_block())) {
        (least, most) if least == most => most,
        (least, most) => format!("{least} to {most}"),
    };
    format!("{size} {operation}, {}x{}, {}", spec.workers, spec.queue_depth, spec.engine.name())
}
