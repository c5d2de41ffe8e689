//! From a wish (swap to these devices, to a file of this size) to a plan, each choice with its reason.
//!
//! The settings come from the same rules that the audit judges by; what is added here is the areas: how many,
//! in which order, with which priority and discard. Refusals about data and use are the caller's: `hazards`.

use crate::audit::Audit;
use crate::change::plan::{Left, Plan, Wanted, device_of};
use crate::change::swap::{manner_text, page_text};
use crate::change::{Change, Kind, same};
use crate::facts::memory::SwapArea;
use crate::finding::Risk;
use crate::root::Root;
use overdrive_base::size::format_size;
use overdrive_sys::swap::space::{FirstPage, Space};
use overdrive_sys::swap::{Discard, Manner, PRIORITY_MAX};
use thiserror::Error;

/// The rule that areas stand under in plans and journals.
pub const RULE: &str = "swap-area";

/// The rules whose fixes belong to swap.
pub const SETTINGS: [&str; 17] = [
    "vm-swappiness",
    "vm-page-cluster",
    "vm-vma-readahead",
    "vm-watermark-scale",
    "vm-watermark-boost",
    "vm-mglru",
    "vm-thp-enabled",
    "vm-thp-defrag",
    "numa-balancing",
    "numa-zone-reclaim",
    "block-scheduler-none",
    "block-nomerges",
    "block-rq-affinity",
    "block-rotational-flag",
    "block-wbt",
    "block-max-sectors",
    "block-add-random",
];

/// Areas that fit on common builds: of 32 kinds of swap entries the kernel keeps nine for itself.
pub const AREAS_MAX: usize = 23;

/// The priority that both of the vendor's documents use.
const PRIORITY: u16 = 10;

const PAGE_CLUSTER: &str = "/proc/sys/vm/page-cluster";
pub(super) const ZSWAP: &str = "/sys/module/zswap/parameters/enabled";

/// A device or file to swap to, looked at.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its path, links resolved.
    pub path: String,
    /// Whether it is a block device; otherwise a file that is to be made.
    pub is_device: bool,
    /// Whether it is a file in blocks that are smaller than a page.
    pub has_small_blocks: bool,
    /// What its first page holds; none: no such file.
    pub holds: Option<FirstPage>,
    /// A swap space stands there already: it is used as it is.
    pub is_ready: bool,
    /// The space that is to be made.
    pub space: Space,
    /// The host and what lies below the place, judged for memory.
    pub audit: Audit,
}

/// What is wanted besides the places.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wish {
    /// Pages read at a fault, as a power of two: 0 is right for random access, 3 to 5 for scans.
    pub page_cluster: u32,
    /// Tell the drive that its area is free when it is turned on.
    pub discard: bool,
    /// Fill free stretches of the areas before gaps.
    pub free_first: bool,
    /// The priority; without one it is chosen.
    pub priority: Option<u16>,
    /// A priority above that of compressed memory that is on.
    pub before_zram: bool,
    /// zswap on or off; none: as it is.
    pub zswap: Option<bool>,
    /// Files of the drives' queues and what is to stand there.
    pub queue: QueueWish,
    /// Leave the settings as they are.
    pub areas_only: bool,
}

/// What is wished for the queues of the drives; none: what the rules say, or as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueWish {
    /// 0: neighbours are merged, 1: only what is simple, 2: never.
    pub nomerges: Option<u32>,
    /// The largest request, in KiB.
    pub max_sectors_kb: Option<u32>,
    /// How many requests stand at once.
    pub nr_requests: Option<u32>,
}

/// A choice and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What is chosen.
    pub what: String,
    /// Why, on this host.
    pub why: String,
}

/// What is to be done, and why.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Settings first, then each space and its area.
    pub plan: Plan,
    /// The choices behind it, and what is only advised.
    pub choices: Vec<Choice>,
}

/// A wish that cannot be met.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SetupError {
    /// No device and no file.
    #[error("nothing to swap to: wanted a device or a file")]
    Nowhere,
    /// More areas than the kernel has numbers for.
    #[error("{0} areas: at most {AREAS_MAX} fit on common kernels; wanted fewer devices")]
    TooMany(usize),
    /// The same place twice.
    #[error("{0} is named twice; wanted each device once")]
    Twice(String),
    /// Too small, or too large to be numbered.
    #[error("{path}: {size} make no swap area: wanted at least 40 KiB and at most 16 TiB")]
    Size {
        /// Which.
        path: String,
        /// How much.
        size: String,
    },
    /// A setting that this host or disk does not have.
    #[error("{path}: {why}; wanted no wish for it")]
    Absent {
        /// Where it would stand.
        path: String,
        /// Why it is not there.
        why: String,
    },
    /// More than the disk can take in one request.
    #[error("{path}: {wanted} KiB are more than the disk takes in one request ({most} KiB)")]
    Request {
        /// Which.
        path: String,
        /// What is wished for.
        wanted: u32,
        /// What the disk says.
        most: u64,
    },
}

impl Setup {
    /// Makes the set-up; `root` is read for what stands at each path, and nothing is written.
    ///
    /// # Errors
    /// When the wish cannot be met.
    pub fn of(root: &Root, places: &[Place], wish: &Wish) -> Result<Setup, SetupError> {
        let first = places.first().ok_or(SetupError::Nowhere)?;
        check(places, &first.audit)?;
        let mut setup = Setup::default();
        if !wish.areas_only {
            places.iter().for_each(|place| setup.fixes(root, &place.audit));
            setup.cluster(root, wish.page_cluster);
            setup.wishes(root, places, wish)?;
        }
        setup.places(places);
        let priority = wish.priority.or_else(|| setup.priority(places, wish.before_zram));
        for place in places {
            setup.area(root, place, priority, wish);
        }
        setup.advice(&first.audit);
        Ok(setup)
    }

    /// The settings alone, for a host and one disk of it.
    #[must_use]
    pub fn settings(root: &Root, audit: &Audit, page_cluster: u32) -> Setup {
        let mut setup = Setup::default();
        setup.fixes(root, audit);
        setup.cluster(root, page_cluster);
        setup
    }

    /// The fixes of the rules for one place's disk, and for the host.
    fn fixes(&mut self, root: &Root, audit: &Audit) {
        let rules = Some(SETTINGS.map(str::to_owned).to_vec());
        let plan = Plan::of(&audit.findings, root, &Wanted { rules, class_max: Risk::SideEffects });
        for change in plan.changes {
            if self.plan.changes.iter().any(|known| known.path == change.path) {
                continue;
            }
            let finding = audit.findings.iter().find(|finding| finding.rule == change.rule);
            let why = finding.map_or_else(String::new, |finding| finding.reason.clone());
            self.choices.push(Choice { what: change.rule.clone(), why });
            self.plan.changes.push(change);
        }
        let new = plan.left.into_iter().filter(|left| !self.plan.left.contains(left)).collect::<Vec<Left>>();
        self.plan.left.extend(new);
    }

    /// The user knows whether faults come at random or in a row.
    fn cluster(&mut self, root: &Root, wanted: u32) {
        let pages = 1u64 << wanted.min(31);
        let why = match wanted {
            0 => "each fault reads its page alone: right for random access; --page-cluster 3 to 5 for scans"
                .to_owned(),
            _ => format!("each fault reads {pages} pages: right for scans, wasted reads at random"),
        };
        // Where it cannot be read there is nothing to set.
        let _ = self.set(root, PAGE_CLUSTER, &wanted.to_string(), ("vm-page-cluster", Risk::Safe), &why);
    }

    /// What the user wishes in place of what the rules say.
    fn wishes(&mut self, root: &Root, places: &[Place], wish: &Wish) -> Result<(), SetupError> {
        if let Some(on) = wish.zswap {
            let (value, why) = match on {
                true => ("Y", "pages are compressed in memory first: fewer writes, and time in the fault"),
                false => ("N", "pages go straight to the drive: the fault costs what the drive costs"),
            };
            self.set(root, ZSWAP, value, ("swap-zswap", Risk::SideEffects), why)?;
        }
        let QueueWish { nomerges, max_sectors_kb, nr_requests } = wish.queue;
        for disk in places.iter().filter_map(|place| place.audit.target.disks.first()) {
            let file = |name| format!("/sys/block/{}/queue/{name}", disk.name());
            if let Some(mode) = nomerges {
                let why = match mode {
                    0 => "pages that are swapped out side by side go in one request",
                    _ => "saves the search for a neighbour; pages swapped out side by side go one by one",
                };
                let rule = ("block-nomerges", Risk::SideEffects);
                self.set(root, &file("nomerges"), &mode.to_string(), rule, why)?;
            }
            if let Some(wanted) = max_sectors_kb {
                let path = file("max_sectors_kb");
                let most = disk.block.queue.max_hw_sectors_kb.get().unwrap_or(u64::MAX);
                if u64::from(wanted) > most {
                    return Err(SetupError::Request { path, wanted, most });
                }
                let why = "bounds how long a read waits behind one write, at the cost of bandwidth";
                let rule = ("block-max-sectors", Risk::SideEffects);
                self.set(root, &path, &wanted.to_string(), rule, why)?;
            }
            if let Some(wanted) = nr_requests {
                let why = "bounds how many writes stand before a read; what is above sleeps";
                let rule = ("block-nr-requests", Risk::SideEffects);
                self.set(root, &file("nr_requests"), &wanted.to_string(), rule, why)?;
            }
        }
        Ok(())
    }

    /// One setting, in place of what a rule wants there.
    fn set(
        &mut self,
        root: &Root,
        path: &str,
        value: &str,
        (rule, class): (&str, Risk),
        why: &str,
    ) -> Result<(), SetupError> {
        let read = root.text(path);
        let crate::facts::Fact::Known { raw: now, .. } = &read else {
            let why = read.why().unwrap_or_default().to_owned();
            return Err(SetupError::Absent { path: path.to_owned(), why });
        };
        self.plan.changes.retain(|change| change.path != path);
        self.choices.retain(|choice| choice.what != rule);
        self.choose(rule, why);
        if !same(Kind::Attribute, Some(now), Some(value)) {
            self.plan.changes.push(Change {
                rule: rule.to_owned(),
                class: class.letter().to_owned(),
                kind: Kind::Attribute,
                path: path.to_owned(),
                old: Some(now.clone()),
                new: Some(value.to_owned()),
                device: device_of(root, path),
            });
        }
        Ok(())
    }

    fn places(&mut self, places: &[Place]) {
        let devices = places.iter().filter(|place| place.is_device).count();
        if devices < places.len() {
            self.choose(
                "a file",
                "goes through the map of its file's extents and shares the disk with the file system; a device \
                 of its own does neither",
            );
        }
        if devices > 0 {
            let modern = places[0].audit.host.kernel.at_least(6, 12) == Some(true);
            let why = match modern {
                true => {
                    "one area a drive: splitting a drive once spread the lock of an area, which the cluster \
                         allocator of 6.12 took off the path"
                }
                false => {
                    "one area a drive; on this kernel several partitions of one drive may spread a lock: \
                          measure both, with --device naming the partitions"
                }
            };
            self.choose("whole devices", why);
        }
        let nodes = nodes_of(places);
        let sockets = places[0].audit.host.numa.nodes.value().map_or(1, Vec::len);
        if sockets > 1 {
            let mut there = nodes.clone();
            there.sort_unstable();
            there.dedup();
            let why = match there.iter().filter(|&&node| node >= 0).count() {
                count if count >= sockets => "each memory node has a drive of its own".to_owned(),
                count => {
                    format!("{count} of {sockets} memory nodes have a drive: the others page over the link")
                }
            };
            self.choose("drives by memory node", &why);
        }
    }

    /// The priority of all areas: by turns, or by node where this kernel knows how.
    fn priority(&mut self, places: &[Place], before_zram: bool) -> Option<u16> {
        let host = &places[0].audit.host;
        let on: Vec<&SwapArea> = host.memory.swaps.value().into_iter().flatten().collect();
        let drives = on.iter().filter(|area| !area.is_zram()).map(|area| area.priority).max();
        let compressed = on.iter().filter(|area| area.is_zram()).map(|area| area.priority).max();
        let mut nodes = nodes_of(places);
        nodes.sort_unstable();
        nodes.dedup();
        let ahead_of = compressed.filter(|_| before_zram);
        let by_node = ahead_of.is_none() && nodes.len() > 1 && nodes.iter().all(|&node| node >= 0);
        if by_node && host.kernel.at_least(6, 19) == Some(false) && drives.is_none_or(|priority| priority < 0)
        {
            self.choose(
                "no priority",
                "before 6.19 areas without one are filled from the CPU's own memory node first; the documents' \
                 equal priorities would turn that off",
            );
            return None;
        }
        let above = drives.max(ahead_of);
        let above = above.map_or(0, |highest| highest.saturating_add(1).clamp(0, i64::from(PRIORITY_MAX)));
        let priority = PRIORITY.max(u16::try_from(above).unwrap_or(PRIORITY_MAX));
        let equal =
            if places.len() > 1 { "equal: filled in turn, all drives at once" } else { "as documented" };
        let before = drives.map_or(String::new(), |_| "; before the areas that are on".to_owned());
        self.choose(&format!("priority {priority}"), &format!("{equal}{before}"));
        match compressed {
            Some(front) if front > i64::from(priority) => self.choose(
                "zram stays in front",
                &format!(
                    "its priority {front} is higher: the drive sees no page until it is full; --before-zram \
                     turns that round"
                ),
            ),
            Some(front) => self.choose("zram comes after", &format!("its priority {front} is lower")),
            None => {}
        }
        Some(priority)
    }

    fn area(&mut self, root: &Root, place: &Place, priority: Option<u16>, wish: &Wish) {
        let device = if place.is_device { disk_of(root, place) } else { None };
        let change = |kind, old: Option<String>, new: String| Change {
            rule: RULE.to_owned(),
            class: Risk::SideEffects.letter().to_owned(),
            kind,
            path: place.path.clone(),
            old,
            new: Some(new),
            device: device.clone(),
        };
        if !place.is_ready {
            let new = page_text(&FirstPage::Ours(place.space));
            self.plan.changes.push(change(Kind::SwapSpace, place.holds.as_ref().map(page_text), new));
        }
        let disk = place.audit.target.disks.first();
        let can_discard =
            disk.and_then(|disk| disk.block.queue.discard_max_bytes.get()).is_some_and(|most| most > 0);
        let discard = match (can_discard, wish.free_first) {
            (true, true) if !place.has_small_blocks => Discard::Freed,
            (true, false) if wish.discard && place.is_device => Discard::Once,
            _ => Discard::Never,
        };
        match discard {
            Discard::Freed => self.choose(
                "free stretches first",
                "the drive is told of each stretch of 512 pages that becomes free, and Linux 6.18 and newer \
                 fill such stretches before gaps then, so that pages that leave together are written in one \
                 go; that wants an area of several times what will be in it",
            ),
            Discard::Once => self.choose(
                "discard once",
                "the drive is told that its area is free when it is turned on, and not again: discards of each \
                 freed cluster would stand in the way of swap-ins",
            ),
            Discard::Never if wish.free_first && place.has_small_blocks => self.choose(
                "gaps as the kernel does",
                "the file system's blocks are smaller than a page, and Linux 6.1 was seen to crash when it told a \
                 drive of what became free in such a file",
            ),
            Discard::Never if wish.free_first => self.choose(
                "gaps as the kernel does",
                "the drive takes no discards, without which free stretches are not filled first",
            ),
            Discard::Never => {}
        }
        let text = manner_text(Manner { priority, discard });
        self.plan.changes.push(change(Kind::SwapArea, None, text));
    }

    /// What cannot be written now, or is a matter of taste.
    fn advice(&mut self, audit: &Audit) {
        const ADVICE: [&str; 7] = [
            "cpu-rcu-nocbs",
            "swap-zswap",
            "nvme-lba-format-4k",
            "nvme-wear-as-memory",
            "boot-init-on-alloc",
            "swap-oomd-limits",
            "cgroup-v2",
        ];
        use crate::finding::Status;
        let open = |finding: &&crate::finding::Finding| {
            ADVICE.contains(&finding.rule) && matches!(finding.status, Status::Advice | Status::Problem)
        };
        for finding in audit.findings.iter().filter(open) {
            let fix = finding.fix.as_ref().map_or("", |fix| match fix.persistent.as_str() {
                "" => &fix.now,
                persistent => persistent,
            });
            let why =
                if fix.is_empty() { finding.reason.clone() } else { format!("{} ({fix})", finding.reason) };
            self.choose(&format!("advice: {}", finding.rule), &why);
        }
    }

    fn choose(&mut self, what: &str, why: &str) {
        let choice = Choice { what: what.to_owned(), why: why.to_owned() };
        if !self.choices.contains(&choice) {
            self.choices.push(choice);
        }
    }
}

fn check(places: &[Place], audit: &Audit) -> Result<(), SetupError> {
    let on = audit.host.memory.swaps.value().map_or(0, Vec::len);
    if on + places.len() > AREAS_MAX {
        return Err(SetupError::TooMany(on + places.len()));
    }
    for (index, place) in places.iter().enumerate() {
        if places[..index].iter().any(|other| other.path == place.path) {
            return Err(SetupError::Twice(place.path.clone()));
        }
        if place.space.encode().is_err() {
            return Err(SetupError::Size { path: place.path.clone(), size: format_size(place.space.bytes) });
        }
    }
    Ok(())
}

/// The memory node of each place's disk; -1 where it is not known.
fn nodes_of(places: &[Place]) -> Vec<i64> {
    let node = |place: &Place| place.audit.target.disks.first()?.numa_node()?.get();
    places.iter().map(|place| node(place).unwrap_or(-1)).collect()
}

/// The disk that a device is or lies on, by something that outlives its name.
fn disk_of(root: &Root, place: &Place) -> Option<crate::change::Device> {
    let disk = place.audit.target.disks.first().map(|disk| disk.name().to_owned())?;
    let is_its = place.path.strip_prefix("/dev/").is_some_and(|name| name.starts_with(&disk));
    device_of(root, &format!("/sys/block/{disk}/queue")).filter(|_| is_its)
}

#[cfg(test)]
mod tests;
