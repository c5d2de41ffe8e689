//! Hosts that are less usual than the captured ones, each small, and what is planned for them.

use overdrive_host::Root;
use overdrive_host::audit::Audit;
use overdrive_host::capture::device_named;
use overdrive_host::change::plan::{Plan, Wanted};
use overdrive_host::finding::{Finding, Profile, Risk, Status};
use std::time::Duration;

/// What one rule says of a host, and the plan for it with this rule alone.
fn said(tree: &str, target: Option<&str>, profile: Profile, rule: &str) -> (Finding, Plan) {
    let root = Root::from_capture(tree).unwrap();
    let identity = target.map(|name| device_named(&root, name).unwrap());
    let audit = Audit::of(&root, identity.as_ref(), profile, Duration::ZERO).unwrap();
    let wanted = Wanted { rules: Some(vec![rule.to_owned()]), class_max: Risk::SideEffects };
    let plan = Plan::of(&audit.findings, &root, &wanted);
    let found = audit.findings.into_iter().find(|finding| finding.rule == rule);
    (found.unwrap_or_else(|| panic!("{rule}")), plan)
}

/// Path and new value of each change.
fn writes(plan: &Plan) -> Vec<(&str, &str)> {
    plan.changes.iter().map(|change| (change.path.as_str(), change.new.as_deref().unwrap_or(""))).collect()
}

#[test]
fn processors_that_are_offline_do_not_hide_the_clock_of_the_others() {
    let policy = |number: u32, text: &str| {
        let folder = format!("/sys/devices/system/cpu/cpufreq/policy{number}");
        let names = ["affected_cpus", "scaling_governor", "scaling_driver", "energy_performance_preference"];
        let values = [&number.to_string(), "powersave", "intel_pstate", "balance_performance"];
        let line = |(name, value): (&str, &str)| match text {
            "" => format!("{folder}/{name} = {value}\n"),
            error => format!("{folder}/{name} ! {error}\n"),
        };
        names.into_iter().zip(values).map(line).collect::<String>()
    };
    let tree = format!(
        "/sys/devices/system/cpu/online = 0,2\n{}{}{}",
        policy(0, ""),
        policy(1, "EBUSY"),
        policy(2, "")
    );
    for (rule, file) in [
        ("cpu-governor-performance", "scaling_governor"),
        ("cpu-epp-performance", "energy_performance_preference"),
    ] {
        let (found, plan) = said(&tree, None, Profile::Storage, rule);
        assert_eq!(found.status, Status::Advice, "{}", found.reason);
        let paths: Vec<String> =
            [0, 2].map(|cpu| format!("/sys/devices/system/cpu/cpufreq/policy{cpu}/{file}")).to_vec();
        let planned: Vec<&str> = plan.changes.iter().map(|change| change.path.as_str()).collect();
        assert_eq!(planned, paths, "{:?}", plan.left);
        assert!(!found.undo.unwrap().contains("policy1"), "the sleeping policy cannot be written");
    }
}
