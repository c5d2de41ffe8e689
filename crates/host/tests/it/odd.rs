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

#[test]
fn a_mask_is_written_as_the_kernel_will_show_it() {
    let path = "/sys/devices/virtual/workqueue/cpumask";
    for (cpus, isolated, now, house) in [
        ("0-7", "2-3", "ff", "f3"),
        ("0-9", "8-9", "3ff", "0ff"),
        ("0-39", "4-39", "ff,ffffffff", "00,0000000f"),
    ] {
        let tree = |mask: &str| {
            format!(
                "/sys/devices/system/cpu/online = {cpus}\n/sys/devices/system/cpu/isolated = {isolated}\n\
                 {path} = {mask}\n/proc/irq/default_smp_affinity = {mask}\n"
            )
        };
        let (_, plan) = said(&tree(now), None, Profile::Storage, "cpu-workqueue-mask");
        assert_eq!(writes(&plan), [(path, house)]);
        for rule in ["cpu-workqueue-mask", "irq-default-affinity"] {
            let (found, _) = said(&tree(house), None, Profile::Storage, rule);
            assert_eq!(found.status, Status::Ok, "{rule}: {}", found.reason);
        }
    }
}

#[test]
fn a_switch_of_words_is_set_in_its_own_word() {
    let tree = "/sys/devices/system/node/node0/cpulist = 0-3\n/sys/devices/system/node/node1/cpulist = \n\
                /sys/devices/system/node/online = 0-1\n/sys/kernel/mm/numa/demotion_enabled = false\n";
    let (_, plan) = said(tree, None, Profile::Memory, "numa-demotion");
    assert_eq!(writes(&plan), [("/sys/kernel/mm/numa/demotion_enabled", "true")], "{:?}", plan.left);
}

#[test]
fn the_queue_of_a_disk_that_rotates_is_left_as_it_is() {
    let disk = |rotates: u32| {
        let folder = "/sys/devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda";
        format!(
            "/proc/cpuinfo |\n|processor : 0\n|flags : fpu constant_tsc\n\
             /sys/devices/system/cpu/online = 0-7\n\
             {folder}/dev = 8:0\n{folder}/size = 2097152\n\
             {folder}/mq/0/cpu_list = 0, 1, 2, 3, 4, 5, 6, 7\n\
             {folder}/queue/rotational = {rotates}\n{folder}/queue/scheduler = none [mq-deadline]\n\
             {folder}/queue/rq_affinity = 1\n{folder}/queue/nr_requests = 64\n{folder}/queue/nomerges = 0\n\
             {folder}/queue/add_random = 1\n{folder}/queue/iostats = 0\n{folder}/queue/wbt_lat_usec = 75000\n\
             {folder}/queue/read_ahead_kb = 8192\n{folder}/queue/max_sectors_kb = 32\n\
             {folder}/queue/max_hw_sectors_kb = 100\n\
             /sys/block/sda -> ..{rest}\n/sys/class/block/sda -> ../..{rest}\n/sys/dev/block/8:0 -> ../..{rest}\n",
            rest = &folder[4..]
        )
    };
    let root = |rotates| Root::from_capture(&disk(rotates)).unwrap();
    let planned = |root: &Root| {
        let identity = device_named(root, "sda").unwrap();
        let audit = Audit::of(root, Some(&identity), Profile::Storage, Duration::ZERO).unwrap();
        let plan = Plan::of(&audit.findings, root, &Wanted { rules: None, class_max: Risk::SideEffects });
        let queue = plan.changes.into_iter().filter(|change| change.path.contains("/queue/"));
        queue.map(|change| (change.path, change.new.unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(planned(&root(1)), []);
    let flash = planned(&root(0));
    assert_eq!(flash.len(), 9, "{flash:?}");
    let largest = ("/sys/block/sda/queue/max_sectors_kb".to_owned(), "100".to_owned());
    assert!(flash.contains(&largest), "no more than the disk takes: {flash:?}");
}

#[test]
fn every_size_of_huge_page_that_is_on_by_itself_is_brought_back() {
    let folder = "/sys/kernel/mm/transparent_hugepage";
    let tree = format!(
        "{folder}/enabled = always madvise [never]\n\
         {folder}/hugepages-64kB/enabled = [always] inherit madvise never\n\
         {folder}/hugepages-128kB/enabled = always [inherit] madvise never\n\
         {folder}/hugepages-2048kB/enabled = [always] inherit madvise never\n"
    );
    let (_, plan) = said(&tree, None, Profile::Memory, "vm-thp-sizes");
    let mut paths: Vec<&str> = writes(&plan).into_iter().map(|(path, _)| path).collect();
    paths.sort_unstable();
    let wanted = ["2048kB", "64kB"].map(|size| format!("{folder}/hugepages-{size}/enabled"));
    assert_eq!(paths, wanted, "{:?}", plan.left);
}

#[test]
fn an_option_of_the_driver_that_reads_as_a_letter_is_in_force() {
    for (given, reads, status) in [
        ("1", "Y", Status::Ok),
        ("y", "Y", Status::Ok),
        ("N", "N", Status::Ok),
        ("0", "N", Status::Ok),
        ("0", "Y", Status::Advice),
    ] {
        let tree = format!(
            "/etc/modprobe.d/nvme.conf = options nvme_core multipath={given}\n\
             /sys/module/nvme_core/parameters/multipath = {reads}\n"
        );
        let (found, _) = said(&tree, None, Profile::Storage, "boot-nvme-module-params");
        assert_eq!(found.status, status, "{given} {reads}: {}", found.reason);
    }
}

#[test]
fn what_grub_was_told_is_read_as_a_shell_reads_it() {
    let tree = |grub: &str| {
        format!(
            "/proc/cmdline = root=/dev/sda1 quiet \"dyndbg=file a.c +p\" nvme.poll_queues=4\n\
             /etc/default/grub = {grub}\n"
        )
    };
    for (grub, status) in [
        ("GRUB_CMDLINE_LINUX=\"quiet nvme.poll_queues=4\" # four pollers", Status::Ok),
        (r#"GRUB_CMDLINE_LINUX="quiet dyndbg=\"file a.c +p\"""#, Status::Ok),
        ("GRUB_CMDLINE_LINUX='quiet'", Status::Ok),
        ("GRUB_CMDLINE_LINUX=quiet # nothing else", Status::Ok),
        ("GRUB_CMDLINE_LINUX=\"quiet nvme.poll_queues=8\"", Status::Advice),
    ] {
        let (found, _) = said(&tree(grub), None, Profile::Storage, "boot-pending-reboot");
        assert_eq!(found.status, status, "{grub}: {}", found.reason);
    }
}

#[test]
fn areas_without_a_priority_on_the_drives_of_one_node_are_filled_in_turn() {
    let drive = |number: u32| {
        let folder = format!("/sys/devices/pci/nvme{number}/nvme{number}n1");
        format!(
            "/sys/class/block/nvme{number}n1 -> ../..{}\n{folder}/queue/rotational = 0\n\
             {folder}/device -> ../../nvme{number}\n/sys/devices/pci/nvme{number}/numa_node = 0\n",
            &folder[4..]
        )
    };
    let tree = |release: &str, priorities: [i32; 2]| {
        format!(
            "/proc/sys/kernel/osrelease = {release}\n/sys/devices/system/node/online = 0\n\
             /sys/devices/system/node/node0/cpulist = 0-3\n\
             /proc/swaps |\n|Filename Type Size Used Priority\n|/dev/nvme0n1 partition 8192 0 {}\n\
             |/dev/nvme1n1 partition 8192 0 {}\n{}{}",
            priorities[0],
            priorities[1],
            drive(0),
            drive(1)
        )
    };
    for (release, priorities, status) in [
        ("6.12.0", [-2, -3], Status::Ok),
        ("5.4.0", [-2, -3], Status::Ok),
        ("6.12.0", [10, 5], Status::Advice),
        ("6.12.0", [10, -2], Status::Advice),
        ("6.19.0", [10, 5], Status::Advice),
    ] {
        let tree = tree(release, priorities);
        let (found, _) = said(&tree, None, Profile::Memory, "swap-priority-policy");
        assert_eq!(found.status, status, "{release} {priorities:?}: {}", found.reason);
    }
}

#[test]
fn the_way_to_choose_among_paths_is_the_subsystems_and_the_networks_where_there_is_one() {
    let subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0";
    let controller = |number: u32, transport: &str| {
        let folder = format!("/sys/devices/pci0000:00/0000:00:0{number}.0/nvme/nvme{number}");
        format!(
            "{subsystem}/nvme{number} -> ../../..{}\n{folder}/transport = {transport}\n\
             {folder}/subsystem -> ../../../../../class/nvme\n{folder}/nvme0c{number}n1/queue/io_poll = 0\n",
            &folder["/sys/devices".len()..]
        )
    };
    let tree = |transport: &str| {
        let disk = format!("..{}/nvme0n1", &subsystem[4..]);
        format!(
            "/sys/module/nvme_core/parameters/multipath = Y\n{subsystem}/iopolicy = round-robin\n\
             {subsystem}/nvme0n1/dev = 259:3\n{subsystem}/nvme0n1/size = 2097152\n\
             {subsystem}/nvme0n1/device -> ../../nvme-subsys0\n/sys/class/nvme/nvme1/\n\
             /sys/class/nvme-subsystem/nvme-subsys0 -> ../..{}\n/sys/block/nvme0n1 -> {disk}\n\
             /sys/class/block/nvme0n1 -> ../{disk}\n/sys/dev/block/259:3 -> ../{disk}\n{}{}",
            &subsystem[4..],
            controller(0, transport),
            controller(1, transport)
        )
    };
    let said = |transport: &str| {
        said(&tree(transport), Some("nvme0n1"), Profile::Storage, "nvme-multipath-iopolicy")
    };
    let (found, plan) = said("pcie");
    assert_eq!(found.status, Status::Advice, "{}", found.reason);
    let policy = "/sys/class/nvme-subsystem/nvme-subsys0/iopolicy";
    assert_eq!(writes(&plan), [(policy, "numa")], "{:?}", plan.left);
    let (found, _) = said("tcp");
    assert_eq!(found.status, Status::Ok, "{}", found.reason);
    assert!(found.reason.contains("round-robin: over tcp"), "{}", found.reason);
}
