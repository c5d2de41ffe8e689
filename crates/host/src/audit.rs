//! One audit: the facts of a host and a target, and what every rule says of them for one use.

use crate::change::persist;
use crate::change::plan::{Plan, Wanted};
use crate::facts::HostFacts;
use crate::finding::{Finding, Profile, Risk};
use crate::root::Root;
use crate::target::{Medium, TargetError, TargetFacts, TargetIdentity};
use crate::topology::{Known, Topology};
use crate::{capture, hazards, rules};
use std::time::Duration;

/// Facts and findings, taken together.
#[derive(Debug, Clone)]
pub struct Audit {
    /// The host.
    pub host: HostFacts,
    /// The target and its disks; without one, the rules about disks do not apply.
    pub target: TargetFacts,
    /// Every rule's answer, whatever its status.
    pub findings: Vec<Finding>,
}

impl Audit {
    /// Reads a root and judges it. `sample` is how long other processes are watched.
    ///
    /// # Errors
    /// When the target is a block device that this root does not know.
    pub fn of(
        root: &Root,
        target: Option<&TargetIdentity>,
        profile: Profile,
        sample: Duration,
    ) -> Result<Audit, TargetError> {
        let host = HostFacts::read(root, sample);
        let target = match target {
            Some(identity) => TargetFacts::trace(root, identity)?,
            None => no_target(),
        };
        let findings = rules::audit_for(profile, &host, &target);
        Ok(Audit { host, target, findings })
    }
}

/// Reads and judges all that a root has: every disk as a target, for both uses, with the topology and the
/// plan that would follow. For tests and fuzzers: nothing of it may panic, whatever the root says. Returns
/// how many facts, findings, files and vertices there were.
#[must_use]
pub fn of_everything(root: &Root) -> usize {
    let host = HostFacts::read(root, Duration::ZERO);
    let names = root.list("/sys/block").value().cloned().unwrap_or_default();
    let identities = names.iter().filter_map(|name| capture::device_named(root, name).ok());
    let mut targets: Vec<TargetFacts> =
        identities.filter_map(|identity| TargetFacts::trace(root, &identity).ok()).collect();
    targets.push(no_target());
    let mut count = host.rows().len();
    for target in &targets {
        count += target.rows().len();
        for profile in [Profile::Storage, Profile::Memory] {
            let findings = rules::audit_for(profile, &host, target);
            let wanted = Wanted { rules: None, class_max: Risk::SideEffects };
            let plan = Plan::of(&findings, root, &wanted);
            count += findings.len() + persist::files(root, &plan.changes, 1).len();
        }
        count += hazards::write_hazards(root, target).len();
    }
    count + Topology::of(root, &targets, &Known::default()).vertices.len()
}

fn no_target() -> TargetFacts {
    use crate::facts::Fact;
    use crate::target::{DeviceNumber, FileKind};
    let nowhere = DeviceNumber { major: 0, minor: 0 };
    let path = String::new();
    TargetFacts {
        identity: TargetIdentity {
            path: None,
            kind: FileKind::Directory,
            device: nowhere,
            special: nowhere,
            size_bytes: 0,
            space: Fact::Absent { path: path.clone() },
            data: Fact::Absent { path },
        },
        medium: Medium::Hidden("no target was named: rules about a disk are not judged".to_owned()),
        mount: None,
        device_folder: None,
        layers: Vec::new(),
        disks: Vec::new(),
    }
}
