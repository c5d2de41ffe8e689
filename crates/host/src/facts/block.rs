//! One disk as the block layer sees it: identity, every queue setting, hardware queues, statistics.
//!
//! The settings are read, not judged; several no longer mean what their names say, see `rules::block`.

use super::parse::{self, Choice, CpuSet, Unexpected};
use super::{Fact, FactRow, Rows};
use crate::root::Root;

/// Bytes of the sector that sysfs counts in, whatever the device's own block size.
pub const SECTOR_BYTES: u64 = 512;

/// What is known of one disk.
#[derive(Debug, Clone)]
pub struct BlockFacts {
    /// Kernel name, such as `nvme0n1`.
    pub name: String,
    /// Its directory in /sys.
    pub folder: String,
    /// Model, where the driver tells.
    pub model: Fact<String>,
    /// Size in bytes.
    pub size_bytes: Fact<u64>,
    /// Whether the kernel refuses writes.
    pub read_only: Fact<bool>,
    /// Requests in the device at the moment of reading, reads and writes.
    pub in_flight: Fact<u64>,
    /// Whether requests are traced to blktrace.
    pub traced: Fact<bool>,
    /// Queue settings.
    pub queue: QueueFacts,
    /// Hardware queues and the CPUs that submit to each; absent for drivers without them.
    pub hardware_queues: Fact<Vec<HardwareQueue>>,
}

/// One hardware queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HardwareQueue {
    /// Its number.
    pub index: u32,
    /// CPUs that submit to it.
    pub cpus: CpuSet,
}

/// The files of `queue/`, under their own names.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "each field is the kernel's file of that name, see its ABI document")]
pub struct QueueFacts {
    pub scheduler: Fact<Choice>,
    pub rotational: Fact<bool>,
    pub read_ahead_kb: Fact<u64>,
    pub wbt_lat_usec: Fact<i64>,
    pub io_poll: Fact<bool>,
    pub io_poll_delay: Fact<i64>,
    pub nr_requests: Fact<u64>,
    pub nomerges: Fact<u64>,
    pub max_sectors_kb: Fact<u64>,
    pub max_hw_sectors_kb: Fact<u64>,
    pub logical_block_size: Fact<u64>,
    pub physical_block_size: Fact<u64>,
    pub iostats: Fact<bool>,
    pub rq_affinity: Fact<u64>,
    pub add_random: Fact<bool>,
    pub write_cache: Fact<String>,
    pub fua: Fact<bool>,
    pub discard_granularity: Fact<u64>,
    pub discard_max_bytes: Fact<u64>,
}

impl QueueFacts {
    fn read(root: &Root, folder: &str) -> QueueFacts {
        let attr = |name: &str| root.text(&format!("{folder}/queue/{name}"));
        QueueFacts {
            scheduler: attr("scheduler").parse(parse::choice),
            rotational: attr("rotational").parse(parse::switch),
            read_ahead_kb: attr("read_ahead_kb").parse(parse::number),
            wbt_lat_usec: attr("wbt_lat_usec").parse(parse::number),
            io_poll: attr("io_poll").parse(parse::switch),
            io_poll_delay: attr("io_poll_delay").parse(parse::number),
            nr_requests: attr("nr_requests").parse(parse::number),
            nomerges: attr("nomerges").parse(parse::number),
            max_sectors_kb: attr("max_sectors_kb").parse(parse::number),
            max_hw_sectors_kb: attr("max_hw_sectors_kb").parse(parse::number),
            logical_block_size: attr("logical_block_size").parse(parse::number),
            physical_block_size: attr("physical_block_size").parse(parse::number),
            iostats: attr("iostats").parse(parse::switch),
            rq_affinity: attr("rq_affinity").parse(parse::number),
            add_random: attr("add_random").parse(parse::switch),
            write_cache: attr("write_cache"),
            fua: attr("fua").parse(parse::switch),
            discard_granularity: attr("discard_granularity").parse(parse::number),
            discard_max_bytes: attr("discard_max_bytes").parse(parse::number),
        }
    }

    fn rows(&self, rows: &mut Rows) {
        rows.add("scheduler", "Scheduler", &self.scheduler, |choice| {
            format!("{} (of {})", choice.active, choice.available.join(" "))
        });
        rows.yes_no("rotational", "Said to rotate", &self.rotational);
        rows.plain("read_ahead_kb", "Read-ahead", &self.read_ahead_kb, "KiB");
        rows.plain("wbt_lat_usec", "Write-back throttling target", &self.wbt_lat_usec, "us");
        rows.yes_no("io_poll", "Polled completions", &self.io_poll);
        rows.plain("io_poll_delay", "Hybrid polling delay", &self.io_poll_delay, "");
        rows.plain("nr_requests", "Requests per queue", &self.nr_requests, "");
        rows.plain("nomerges", "nomerges", &self.nomerges, "");
        rows.plain("max_sectors_kb", "Largest request", &self.max_sectors_kb, "KiB");
        rows.plain("max_hw_sectors_kb", "Largest request of the hardware", &self.max_hw_sectors_kb, "KiB");
        rows.plain("logical_block_size", "Logical block", &self.logical_block_size, "B");
        rows.plain("physical_block_size", "Physical block", &self.physical_block_size, "B");
        rows.yes_no("iostats", "I/O statistics", &self.iostats);
        rows.plain("rq_affinity", "rq_affinity", &self.rq_affinity, "");
        rows.yes_no("add_random", "Feeds the entropy pool", &self.add_random);
        rows.plain("write_cache", "Write cache", &self.write_cache, "");
        rows.yes_no("fua", "Forced unit access", &self.fua);
        rows.bytes("discard_granularity", "Discard granularity", &self.discard_granularity);
        rows.bytes("discard_max_bytes", "Largest discard", &self.discard_max_bytes);
    }
}

impl BlockFacts {
    /// Reads a disk by its directory in /sys.
    pub(crate) fn read(root: &Root, folder: &str) -> BlockFacts {
        BlockFacts {
            name: folder.rsplit('/').next().unwrap_or_default().to_owned(),
            folder: folder.to_owned(),
            model: root.text(&format!("{folder}/device/model")),
            size_bytes: size_bytes(root, folder),
            read_only: root.text(&format!("{folder}/ro")).parse(parse::switch),
            in_flight: root
                .text(&format!("{folder}/inflight"))
                .parse(|text| Ok(parse::sum(parse::numbers(text)?))),
            traced: root.text(&format!("{folder}/trace/enable")).parse(parse::switch),
            queue: QueueFacts::read(root, folder),
            hardware_queues: read_hardware_queues(root, folder),
        }
    }

    /// The most CPUs that share one hardware queue.
    #[must_use]
    pub fn cpus_per_queue_max(&self) -> Option<usize> {
        self.hardware_queues.value()?.iter().map(|queue| queue.cpus.len()).max()
    }

    /// The directory whose queue settings count, as people know it.
    #[must_use]
    pub fn queue_folder(&self) -> String {
        format!("/sys/block/{}/queue", self.name)
    }

    pub(crate) fn rows(&self) -> Vec<FactRow> {
        let mut rows = Rows::new(format!("disk.{}", self.name));
        rows.plain("model", "Model", &self.model, "");
        rows.bytes("size", "Size", &self.size_bytes);
        rows.yes_no("read_only", "Read-only", &self.read_only);
        self.queue.rows(&mut rows);
        rows.add("hardware_queues", "Hardware queues", &self.hardware_queues, |queues| {
            let shared = self.cpus_per_queue_max().unwrap_or(0);
            format!("{}, at most {shared} CPUs each", queues.len())
        });
        rows.into_vec()
    }
}

/// The size of a block device or partition.
pub(crate) fn size_bytes(root: &Root, folder: &str) -> Fact<u64> {
    root.text(&format!("{folder}/size")).parse(|text| {
        let sectors: u64 = parse::number(text)?;
        sectors.checked_mul(SECTOR_BYTES).ok_or_else(|| Unexpected::new(text, "a number of 512-byte sectors"))
    })
}

fn read_hardware_queues(root: &Root, folder: &str) -> Fact<Vec<HardwareQueue>> {
    let mq = format!("{folder}/mq");
    let names = root.list(&mq);
    let Some(list) = names.value() else { return names.map(|_| Vec::new()) };
    let mut queues = Vec::new();
    for index in list.iter().filter_map(|name| name.parse().ok()) {
        let cpus = root.text(&format!("{mq}/{index}/cpu_list")).parse(parse::cpu_list);
        match cpus.value() {
            Some(set) => queues.push(HardwareQueue { index, cpus: set.clone() }),
            None => return cpus.map(|_| Vec::new()),
        }
    }
    let raw = format!("{} queues", queues.len());
    Fact::known(queues, raw, format!("{mq}/*/cpu_list"))
}

/// Counters of one disk since boot, as in /sys/block/DISK/stat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Reads completed.
    pub reads: u64,
    /// Reads merged into others before they were issued.
    pub read_merges: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Time reads waited, summed, in ms.
    pub read_ms: u64,
    /// Writes completed.
    pub writes: u64,
    /// Writes merged into others.
    pub write_merges: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Time writes waited, summed, in ms.
    pub write_ms: u64,
    /// Requests in the device now.
    pub in_flight: u64,
    /// Time with at least one request in the device, in ms.
    pub busy_ms: u64,
}

/// Reads the counters of a disk, for a look before and after a workload. They stand still while the disk's
/// `iostats` switch is off.
#[must_use]
pub fn disk_stats(root: &Root, disk: &str) -> Fact<DiskStats> {
    root.text(&format!("/sys/block/{disk}/stat")).parse(stats)
}

fn stats(text: &str) -> Result<DiskStats, Unexpected> {
    let columns = parse::numbers(text)?;
    let &[
        reads,
        read_merges,
        read_sectors,
        read_ms,
        writes,
        write_merges,
        write_sectors,
        write_ms,
        in_flight,
        busy_ms,
        ..,
    ] = columns.as_slice()
    else {
        return Err(Unexpected::new(text, "at least ten counters"));
    };
    Ok(DiskStats {
        reads,
        read_merges,
        read_bytes: read_sectors.saturating_mul(SECTOR_BYTES),
        read_ms,
        writes,
        write_merges,
        write_bytes: write_sectors.saturating_mul(SECTOR_BYTES),
        write_ms,
        in_flight,
        busy_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_the_counters_in_the_kernel_order() {
        let text =
            " 105423 10396  6660442    19717    27329    18643  3800248     9340        3    10552 29781";
        let stats = stats(text).unwrap();
        assert_eq!((stats.reads, stats.read_merges, stats.read_bytes), (105_423, 10_396, 6_660_442 * 512));
        assert_eq!((stats.writes, stats.write_bytes), (27_329, 3_800_248 * 512));
        assert_eq!((stats.in_flight, stats.busy_ms), (3, 10_552));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "[0-9 x]{0,80}") {
            let _ = stats(&text);
        }
    }
}
