//! One NVMe controller as sysfs shows it, with the driver's parameters.
//!
//! What only the admin queue tells (power states, LBA formats, SMART) is in `admin`.

pub mod admin;

use super::parse;
use super::{Fact, FactRow, Rows};
use crate::root::Root;

const MODULE: &str = "/sys/module/nvme/parameters";

/// What is known of one controller.
#[derive(Debug, Clone)]
pub struct NvmeFacts {
    /// Kernel name, such as `nvme0`.
    pub name: String,
    /// Its directory in /sys.
    pub folder: String,
    /// Model.
    pub model: Fact<String>,
    /// Serial number.
    pub serial: Fact<String>,
    /// Firmware revision.
    pub firmware: Fact<String>,
    /// `live` when it works.
    pub state: Fact<String>,
    /// `pcie`, `tcp`, `rdma`, ...
    pub transport: Fact<String>,
    /// Memory node; -1 when the firmware does not say.
    pub numa_node: Fact<i64>,
    /// Entries of a submission queue, less one.
    pub queue_size: Fact<u64>,
    /// Queues in use, the admin queue included.
    pub queue_count: Fact<u64>,
    /// Wake-up time up to which the drive may fall asleep by itself: us, `auto` or `any`; 0 is never.
    pub apst_tolerance: Fact<String>,
    /// Driver parameter: polled queues per controller.
    pub poll_queues: Fact<u64>,
    /// Driver parameter: separate queues for writes.
    pub write_queues: Fact<u64>,
    /// Driver parameter: queue depth.
    pub queue_depth: Fact<u64>,
    /// Blocks of the namespace that hold data (6.8 and newer).
    pub used_blocks: Fact<u64>,
    /// Hardware contexts that are polled, from debugfs.
    pub poll_contexts: Fact<usize>,
    /// How a subsystem of several paths chooses among them.
    pub io_policy: Fact<String>,
    /// What the controller itself said.
    pub admin: admin::AdminFacts,
}

/// The policy of the subsystem that a controller is part of. The controller's own link `subsystem` leads to
/// its class, as that of every device does.
fn read_io_policy(root: &Root, controller: &str) -> Fact<String> {
    const CLASS: &str = "/sys/class/nvme-subsystem";
    let names = root.list(CLASS);
    let folders = names.value().into_iter().flatten().map(|name| format!("{CLASS}/{name}"));
    let own = folders.into_iter().find(|folder| root.exists(&format!("{folder}/{controller}")));
    root.text(&format!("{}/iopolicy", own.unwrap_or_else(|| format!("{CLASS}/*"))))
}

impl NvmeFacts {
    /// Reads a controller by its directory in /sys; `disk` is the namespace that is looked at.
    pub(crate) fn read(root: &Root, folder: &str, disk: &str) -> NvmeFacts {
        let attr = |name: &str| root.text(&format!("{folder}/{name}"));
        let module = |name: &str| root.text(&format!("{MODULE}/{name}")).parse(parse::number);
        NvmeFacts {
            name: folder.rsplit('/').next().unwrap_or_default().to_owned(),
            folder: folder.to_owned(),
            model: attr("model"),
            serial: attr("serial"),
            firmware: attr("firmware_rev"),
            state: attr("state"),
            transport: attr("transport"),
            numa_node: attr("numa_node").parse(parse::number),
            queue_size: attr("sqsize").parse(parse::number),
            queue_count: attr("queue_count").parse(parse::number),
            apst_tolerance: attr("power/pm_qos_latency_tolerance_us"),
            poll_queues: module("poll_queues"),
            write_queues: module("write_queues"),
            queue_depth: module("io_queue_depth"),
            used_blocks: root.text(&format!("/sys/block/{disk}/nuse")).parse(parse::number),
            poll_contexts: read_poll_contexts(root, disk),
            io_policy: read_io_policy(root, folder.rsplit('/').next().unwrap_or_default()),
            admin: admin::AdminFacts::read(
                root,
                folder.rsplit('/').next().unwrap_or_default(),
                namespace_of(root, disk),
            ),
        }
    }

    pub(crate) fn rows(&self) -> Vec<FactRow> {
        let mut rows = Rows::new(format!("nvme.{}", self.name));
        rows.plain("model", "Model", &self.model, "");
        rows.plain("serial", "Serial number", &self.serial, "");
        rows.plain("firmware", "Firmware", &self.firmware, "");
        rows.plain("state", "State", &self.state, "");
        rows.plain("transport", "Transport", &self.transport, "");
        rows.plain("numa_node", "NUMA node", &self.numa_node, "");
        rows.plain("queue_size", "Queue size less one", &self.queue_size, "");
        rows.plain("queue_count", "Queues, admin included", &self.queue_count, "");
        rows.plain("apst", "Autonomous sleep up to", &self.apst_tolerance, "us");
        rows.plain("poll_queues", "Poll queues asked for", &self.poll_queues, "");
        rows.plain("poll_contexts", "Poll queues in use", &self.poll_contexts, "");
        rows.plain("write_queues", "Write queues asked for", &self.write_queues, "");
        rows.plain("queue_depth", "Queue depth asked for", &self.queue_depth, "");
        rows.plain("used_blocks", "Blocks in use", &self.used_blocks, "");
        rows.extend(self.admin.rows(&format!("nvme.{}", self.name)));
        rows.into_vec()
    }
}

/// The number of the namespace as the controller knows it; before 6.8 sysfs may lack it, and the name tells.
fn namespace_of(root: &Root, disk: &str) -> u32 {
    let told = root.text(&format!("/sys/block/{disk}/nsid")).parse(parse::number).get();
    told.or_else(|| disk.rsplit('n').next()?.parse().ok()).unwrap_or(1)
}

fn read_poll_contexts(root: &Root, disk: &str) -> Fact<usize> {
    let folder = format!("/sys/kernel/debug/block/{disk}");
    root.list(&folder).map(|names| {
        let contexts = names.iter().filter(|name| name.starts_with("hctx"));
        let kind = |name: &String| root.text(&format!("{folder}/{name}/type"));
        contexts.filter(|name| kind(name).value().is_some_and(|kind| kind == "poll")).count()
    })
}
