//! Rules about other work on the host while it is measured.

use crate::facts::HostFacts;
use crate::finding::{Judgement, Profile, Risk, Rule, Scope};
use crate::target::TargetFacts;
use overdrive_base::time::three_digits;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "host-noisy-neighbours",
    scope: Scope::Host,
    profile: Profile::Any,
    title: "Nothing else is busy",
    why: "Other work takes CPU time, cache and disk from the measurement, and shows as long tails that \
          are not the disk's. Stolen time is the same thing done by the hypervisor.",
    source: "proc(5), /proc/stat and /proc/PID/stat",
    effect: "steadier tails",
    risk: Risk::AdviceOnly,
    verified: true,
    judge: noisy_neighbours,
}];

/// Busy CPUs of others, as a share of all, from which a result must be doubted.
const OTHERS_ADVICE: f64 = 0.05;
const OTHERS_PROBLEM: f64 = 0.25;
/// The same for stolen time, which nothing on this host can be asked to stop.
const STEAL_ADVICE: f64 = 0.01;
const STEAL_PROBLEM: f64 = 0.10;

fn noisy_neighbours(host: &HostFacts, _: &TargetFacts) -> Judgement {
    let Some(sample) = host.noise.sample.value() else { return Judgement::missing(&host.noise.sample) };
    let Some(cpus) = host.cpu.online.value().map(|set| set.len() as f64) else {
        return Judgement::missing(&host.cpu.online);
    };
    let (others, steal) = (sample.others_cpus / cpus, sample.steal_cpus / cpus);
    let reason = format!(
        "other processes kept {} of {cpus} CPUs busy and the hypervisor took {}; busiest: {}",
        three_digits(sample.others_cpus),
        three_digits(sample.steal_cpus),
        sample.names()
    );
    let judgement = if others >= OTHERS_PROBLEM || steal >= STEAL_PROBLEM {
        Judgement::problem(reason)
    } else if others >= OTHERS_ADVICE || steal >= STEAL_ADVICE {
        Judgement::advice(reason)
    } else {
        Judgement::ok(reason)
    };
    judgement.seen(&host.noise.sample).seen(&host.noise.load)
}
