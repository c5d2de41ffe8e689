//! Processors: model, layout, simultaneous multithreading, frequency policy, idle states, mitigations.
//!
//! Values that repeat per CPU are gathered into one list (policies, idle states). Affinity and noise of this
//! process are elsewhere.

use super::parse::{self, CpuSet, Unexpected};
use super::{Fact, FactRow, Rows, tally};
use crate::root::Root;
use std::collections::BTreeSet;

const CPU: &str = "/sys/devices/system/cpu";
const CPUINFO: &str = "/proc/cpuinfo";

/// What is known of the processors.
#[derive(Debug, Clone)]
pub struct CpuFacts {
    /// Marketing name.
    pub model: Fact<String>,
    /// Maker, such as `GenuineIntel`.
    pub vendor: Fact<String>,
    /// Microcode revision.
    pub microcode: Fact<String>,
    /// Whether the time stamp counter runs at one rate in every frequency and idle state (x86).
    pub invariant_tsc: Fact<bool>,
    /// CPUs in use, hardware threads counted singly.
    pub online: Fact<CpuSet>,
    /// Number of sockets.
    pub sockets: Fact<usize>,
    /// Number of cores.
    pub cores: Fact<usize>,
    /// Whether two online CPUs share a core.
    pub smt_active: Fact<bool>,
    /// `on`, `off`, `forceoff`, `notsupported` or `notimplemented`.
    pub smt_control: Fact<String>,
    /// The CPUs of each core that has more than one online.
    pub siblings: Fact<Vec<CpuSet>>,
    /// Frequency policies.
    pub policies: Fact<Vec<Policy>>,
    /// Idle driver, such as `intel_idle`.
    pub idle_driver: Fact<String>,
    /// Idle governor, such as `menu`.
    pub idle_governor: Fact<String>,
    /// Idle states over all online CPUs.
    pub idle_states: Fact<Vec<IdleState>>,
    /// How long a guest polls before it halts, in ns.
    pub guest_halt_poll_ns: Fact<u64>,
    /// Each known processor flaw and what the kernel does about it.
    pub mitigations: Fact<Vec<Mitigation>>,
}

/// One frequency policy: CPUs whose clock is set together.
#[derive(Debug, Clone)]
pub struct Policy {
    /// `policy0`, ...
    pub name: String,
    /// The CPUs it governs.
    pub cpus: Fact<CpuSet>,
    /// Governor, such as `powersave`.
    pub governor: Fact<String>,
    /// Driver, such as `intel_pstate`.
    pub driver: Fact<String>,
    /// Energy-performance preference, a word or 0 to 255; absent where the hardware has none.
    pub epp: Fact<String>,
}

impl Policy {
    /// Whether all of its CPUs are offline: the kernel keeps its files then, and answers EBUSY, or names no
    /// CPU.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        const EBUSY: i32 = 16;
        self.cpus.errno() == Some(EBUSY) || self.cpus.value().is_some_and(CpuSet::is_empty)
    }
}

/// One idle state, counted over all CPUs that have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleState {
    /// The number in `stateN`.
    pub index: usize,
    /// The driver's name for it, such as `C6`.
    pub name: String,
    /// Time to leave it, in us.
    pub latency_us: u64,
    /// How long it must last to pay, in us.
    pub residency_us: u64,
    /// Times entered since boot.
    pub usage: u64,
    /// Time spent in it since boot, in us.
    pub time_us: u64,
    /// CPUs that have it.
    pub cpus: usize,
    /// CPUs on which it is not disabled.
    pub enabled_cpus: usize,
}

/// One processor flaw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mitigation {
    /// The file's name, such as `spectre_v2`.
    pub flaw: String,
    /// The kernel's words: `Not affected`, `Vulnerable`, `Mitigation: ...`.
    pub state: String,
}

impl CpuFacts {
    pub(super) fn read(root: &Root) -> CpuFacts {
        let info = root.text(CPUINFO);
        let attr = |name: &str| root.text(&format!("{CPU}/{name}"));
        let online = attr("online").parse(parse::cpu_list);
        let layout = read_layout(root, &online);
        CpuFacts {
            model: info_field(&info, "model name"),
            vendor: info_field(&info, "vendor_id"),
            microcode: info_field(&info, "microcode"),
            invariant_tsc: info_field(&info, "flags").map(|flags| {
                let has = |flag| flags.split(' ').any(|word| word == flag);
                has("constant_tsc") && has("nonstop_tsc")
            }),
            sockets: layout
                .clone()
                .map(|cores| cores.iter().map(|&(socket, _)| socket).collect::<BTreeSet<_>>().len()),
            cores: layout.map(BTreeSet::len),
            smt_active: attr("smt/active").parse(parse::switch),
            smt_control: attr("smt/control"),
            siblings: read_siblings(root, &online),
            policies: read_policies(root),
            idle_driver: attr("cpuidle/current_driver"),
            idle_governor: attr("cpuidle/current_governor_ro"),
            idle_states: read_idle_states(root, &online),
            guest_halt_poll_ns: root
                .text("/sys/module/haltpoll/parameters/guest_halt_poll_ns")
                .parse(parse::number),
            mitigations: read_mitigations(root),
            online,
        }
    }

    pub(super) fn rows(&self) -> Vec<FactRow> {
        let mut rows = Rows::new("cpu");
        rows.plain("model", "CPU", &self.model, "");
        rows.plain("vendor", "CPU vendor", &self.vendor, "");
        rows.plain("microcode", "Microcode", &self.microcode, "");
        rows.plain("sockets", "Sockets", &self.sockets, "");
        rows.plain("cores", "Cores", &self.cores, "");
        rows.add("online", "CPUs online", &self.online, |cpus| format!("{} ({cpus})", cpus.len()));
        rows.plain("smt", "SMT", &self.smt_control, "");
        rows.add("governor", "Frequency governor", &self.policies, |list| {
            shown_or(tally(list.iter().filter_map(|policy| policy.governor.value())), "no policy")
        });
        rows.add("driver", "Frequency driver", &self.policies, |list| {
            shown_or(tally(list.iter().filter_map(|policy| policy.driver.value())), "no policy")
        });
        rows.add("epp", "Energy-performance preference", &self.policies, |list| {
            shown_or(tally(list.iter().filter_map(|policy| policy.epp.value())), "none")
        });
        rows.plain("idle_driver", "Idle driver", &self.idle_driver, "");
        rows.plain("idle_governor", "Idle governor", &self.idle_governor, "");
        rows.add("idle_states", "Idle states (exit latency, times entered)", &self.idle_states, |states| {
            states.iter().map(IdleState::to_string).collect::<Vec<_>>().join(", ")
        });
        rows.yes_no("invariant_tsc", "Invariant TSC", &self.invariant_tsc);
        rows.add("mitigations", "Mitigations in force", &self.mitigations, |list| {
            let active = list.iter().filter(|flaw| flaw.is_mitigated()).map(|flaw| flaw.flaw.as_str());
            shown_or(active.collect::<Vec<_>>().join(", "), "none")
        });
        rows.into_vec()
    }
}

impl std::fmt::Display for IdleState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} us x{}", self.name, self.latency_us, self.usage)?;
        match self.enabled_cpus {
            0 => f.write_str(" disabled"),
            enabled if enabled < self.cpus => write!(f, " enabled on {enabled} of {}", self.cpus),
            _ => Ok(()),
        }
    }
}

impl Mitigation {
    /// Whether the kernel does something about it.
    #[must_use]
    pub fn is_mitigated(&self) -> bool {
        self.state.starts_with("Mitigation")
    }
}

fn shown_or(text: String, otherwise: &str) -> String {
    if text.is_empty() { otherwise.to_owned() } else { text }
}

/// A line of /proc/cpuinfo, first CPU; `raw` is the line's value only.
pub(super) fn info_field(info: &Fact<String>, key: &'static str) -> Fact<String> {
    match info {
        Fact::Known { value, path, .. } => match parse::field(value, key) {
            Some(text) => Fact::known(text.to_owned(), text, path.as_str()),
            None => {
                Fact::Unreadable { path: path.clone(), errno: None, why: format!("it has no line '{key}'") }
            }
        },
        other => other.clone(),
    }
}

/// The (socket, core) pairs of all online CPUs.
fn read_layout(root: &Root, online: &Fact<CpuSet>) -> Fact<BTreeSet<(i64, String)>> {
    let path = format!("{CPU}/cpu*/topology");
    let Some(cpus) = online.value() else {
        return online.clone().map(|_| BTreeSet::new());
    };
    let mut cores = BTreeSet::new();
    for cpu in cpus.iter() {
        let attr = |name: &str| root.text(&format!("{CPU}/cpu{cpu}/topology/{name}"));
        let socket = attr("physical_package_id").parse(parse::number::<i64>);
        // A core number repeats in every die; the list of its threads does not.
        let core = attr("thread_siblings_list");
        match (socket.get(), core.value()) {
            (Some(socket), Some(core)) => cores.insert((socket, core.clone())),
            (None, _) => return socket.map(|_| BTreeSet::new()),
            (_, None) => return core.map(|_| BTreeSet::new()),
        };
    }
    Fact::known(cores, "", path)
}

fn read_siblings(root: &Root, online: &Fact<CpuSet>) -> Fact<Vec<CpuSet>> {
    let path = format!("{CPU}/cpu*/topology/thread_siblings_list");
    let mut shared: Vec<CpuSet> = Vec::new();
    for cpu in online.value().into_iter().flat_map(CpuSet::iter) {
        let list = root.text(&format!("{CPU}/cpu{cpu}/topology/thread_siblings_list")).parse(parse::cpu_list);
        let Some(set) = list.value() else { return list.map(|_| Vec::new()) };
        if set.len() > 1 && !shared.contains(set) {
            shared.push(set.clone());
        }
    }
    let raw = shared.first().map_or_else(|| "no CPU shares a core".to_owned(), CpuSet::to_string);
    Fact::known(shared, raw, path)
}

fn read_policies(root: &Root) -> Fact<Vec<Policy>> {
    let folder = format!("{CPU}/cpufreq");
    root.list(&folder).map(|names| {
        let policies = names.iter().filter(|name| name.starts_with("policy"));
        policies
            .map(|name| {
                let attr = |attribute: &str| root.text(&format!("{folder}/{name}/{attribute}"));
                Policy {
                    name: name.clone(),
                    // The kernel separates these with blanks.
                    cpus: attr("affected_cpus").parse(|text| parse::cpu_list(&text.replace(' ', ","))),
                    governor: attr("scaling_governor"),
                    driver: attr("scaling_driver"),
                    epp: attr("energy_performance_preference"),
                }
            })
            .collect()
    })
}

fn read_idle_states(root: &Root, online: &Fact<CpuSet>) -> Fact<Vec<IdleState>> {
    let path = format!("{CPU}/cpu0/cpuidle");
    let mut states: Vec<IdleState> = Vec::new();
    for cpu in online.value().into_iter().flat_map(CpuSet::iter) {
        let folder = format!("{CPU}/cpu{cpu}/cpuidle");
        let names = root.list(&folder);
        for name in names.value().into_iter().flatten() {
            match read_idle_state(root, &format!("{folder}/{name}"), name) {
                Ok(state) => add_idle_state(&mut states, state),
                Err(fact) => return fact.map(|()| Vec::new()),
            }
        }
    }
    if states.is_empty() {
        return Fact::Absent { path };
    }
    let raw = states.iter().map(IdleState::to_string).collect::<Vec<_>>().join(", ");
    Fact::known(states, raw, format!("{CPU}/cpu*/cpuidle"))
}

fn read_idle_state(root: &Root, folder: &str, name: &str) -> Result<IdleState, Fact<()>> {
    let count = |attribute: &str| {
        let fact = root.text(&format!("{folder}/{attribute}")).parse(parse::number::<u64>);
        fact.get().ok_or_else(|| fact.map(|_| ()))
    };
    let index = name.trim_start_matches("state");
    Ok(IdleState {
        index: parse::number(index).map_err(|unexpected: Unexpected| Fact::Unreadable {
            path: folder.to_owned(),
            errno: None,
            why: unexpected.to_string(),
        })?,
        name: root.text(&format!("{folder}/name")).value().cloned().unwrap_or_else(|| name.to_owned()),
        latency_us: count("latency")?,
        residency_us: count("residency")?,
        usage: count("usage")?,
        time_us: count("time")?,
        cpus: 1,
        enabled_cpus: usize::from(count("disable")? == 0),
    })
}

fn add_idle_state(states: &mut Vec<IdleState>, state: IdleState) {
    match states.iter_mut().find(|seen| (seen.index, &seen.name) == (state.index, &state.name)) {
        Some(seen) => {
            seen.usage = seen.usage.saturating_add(state.usage);
            seen.time_us = seen.time_us.saturating_add(state.time_us);
            seen.latency_us = seen.latency_us.max(state.latency_us);
            seen.cpus += 1;
            seen.enabled_cpus += state.enabled_cpus;
        }
        None => states.push(state),
    }
}

fn read_mitigations(root: &Root) -> Fact<Vec<Mitigation>> {
    let folder = format!("{CPU}/vulnerabilities");
    root.list(&folder).map(|names| {
        let read = |flaw: &String| {
            let state = root.text(&format!("{folder}/{flaw}"));
            let state = state.value().cloned().or_else(|| state.why()).unwrap_or_default();
            Mitigation { flaw: flaw.clone(), state }
        };
        names.iter().map(read).collect()
    })
}
