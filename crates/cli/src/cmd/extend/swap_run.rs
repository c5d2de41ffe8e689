//! What a run on the backend swap has and does: the kernel's counters of its group, and those of the thread
//! that keeps room, which lie in a file in the run's directory.

use super::ahead::{ROOM_FILE, RoomCounter, RoomCounters};
use super::budget::Budget;
use super::gather::processors_of;
use super::show::{COUNTER, GAUGE, family, short, shown_name};
use super::store::Store;
use overdrive_base::size::format_size;
use overdrive_sys::memory_group::{GroupCounters, counters_at, processes_in};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// In the run's directory: the path of the group.
const GROUP_FILE: &str = "group";
/// The same: the group is somebody else's, and goes on without the run.
const FOREIGN_FILE: &str = "foreign";

/// A run at one moment.
#[derive(Debug, Clone)]
pub(super) struct SwapRun {
    /// The process that waits for the program.
    pub(super) pid: u32,
    /// The name of the first process in the group; empty when there is none.
    pub(super) program: String,
    /// On how many processors that may run now.
    pub(super) processors: Option<usize>,
    pub(super) group: GroupCounters,
    /// What the group and zswap may take together; the limit of the group alone is lower then. None when the
    /// limit is the budget.
    pub(super) budget: Option<Budget>,
    /// None when the kernel allows no room to be kept.
    pub(super) room: Option<RoomCounters>,
}

/// Notes where the group is, for who looks.
pub(super) fn note_group(folder: &Path, group: &Path) -> std::io::Result<()> {
    std::fs::write(folder.join(GROUP_FILE), group.as_os_str().as_bytes())
}

/// The same for a group that is somebody else's.
pub(super) fn note_foreign_group(folder: &Path, group: &Path) -> std::io::Result<()> {
    std::fs::write(folder.join(FOREIGN_FILE), "")?;
    note_group(folder, group)
}

/// The group of the run that has this directory; none when it has none, or is another user's.
fn group_of(folder: &Path) -> Option<PathBuf> {
    // Another user's directory of this name could lead anywhere, to a pipe that keeps us waiting for one.
    let about = folder.symlink_metadata().ok()?;
    if about.uid() != overdrive_sys::relay::effective_user() {
        return None;
    }
    Some(PathBuf::from(OsStr::from_bytes(&std::fs::read(folder.join(GROUP_FILE)).ok()?)))
}

/// Whether a process of the run that has this directory is in its group.
pub(super) fn goes_on(folder: &Path) -> bool {
    !folder.join(FOREIGN_FILE).exists()
        && group_of(folder).is_some_and(|group| !processes_in(&group).is_empty())
}

impl SwapRun {
    /// The run that has this directory and that this process waits for; none when it is no such run.
    pub(super) fn at(folder: &Path, pid: u32) -> Option<Self> {
        let group = group_of(folder)?;
        let first = processes_in(&group).first().copied();
        let name = first.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok());
        Some(Self {
            pid,
            program: name.unwrap_or_default().trim_end().to_owned(),
            processors: first.and_then(processors_of),
            group: counters_at(&group),
            budget: Budget::read(folder),
            room: RoomCounters::read(&folder.join(ROOM_FILE)),
        })
    }

    /// With the name of its program, when that has ended and cannot be asked.
    pub(super) fn of_program(mut self, name: &str) -> Self {
        if self.program.is_empty() {
            name.clone_into(&mut self.program);
        }
        self
    }

    fn room_bytes(&self) -> Option<u64> {
        Some(self.group.limit_bytes?.saturating_sub(self.group.usage_bytes?))
    }

    fn budget_bytes(&self) -> Option<u64> {
        self.budget.map(|budget| budget.bytes).or(self.group.limit_bytes)
    }

    /// DRAM that zswap takes for the run, which counts in its budget.
    fn zswap_bytes(&self) -> Option<u64> {
        self.budget.map_or(self.group.zswap_bytes, |budget| budget.zswap_bytes)
    }

    fn counted_ahead(&self, counter: RoomCounter) -> Option<u64> {
        self.room.as_ref().map(|room| room.get(counter))
    }

    /// When the kernel killed processes for want of memory: what there was too little of, and what to do.
    /// `is_on`: whether the run's swap area was still there in the end.
    pub(super) fn want_of_memory(&self, store: &Store, is_on: bool) -> Option<String> {
        let killed = match self.group.oom_kills? {
            0 => return None,
            1 => "a process of the program was".to_owned(),
            many => format!("{many} processes of the program were"),
        };
        let killed = format!("{killed} killed by the kernel for want of memory");
        if !is_on {
            return Some(format!("{killed}: somebody turned the run's swap area off (swapoff)"));
        }
        let size = format_size(store.bytes);
        if let Some(most) = self.swap_left_free(store.bytes) {
            let most = format_size(most);
            return Some(format!(
                "{killed} while swap was free (at most {most} of {size} in use): wanted more --dram, or \
                 --backend pager where that is possible"
            ));
        }
        let dram = self.budget_bytes().map_or("the budget".to_owned(), format_size);
        let more = format_size(store.bytes * 2).replace(' ', "");
        let full = if self.filled_swap(store.bytes) {
            format!("{dram} of DRAM and {size} of swap were full; ")
        } else {
            String::new()
        };
        let folder = store.folder.display();
        Some(format!("{killed}: {full}wanted --store {folder}:{more} or more, or more --dram"))
    }

    /// Whether the kernel tells that swap, of so many bytes, was full for this run. Where it does not, others
    /// may have filled it, or more than the budget was in use at once.
    fn filled_swap(&self, swap_bytes: u64) -> bool {
        let (group, most) = (&self.group, nearly_all(swap_bytes));
        let with_swap = group.with_swap_max_bytes.zip(group.limit_bytes);
        group.swap_refusals.is_some_and(|times| times > 0)
            || group.swap_max_bytes.is_some_and(|bytes| bytes >= most)
            || with_swap.is_some_and(|(bytes, limit)| bytes >= limit + most)
    }

    /// How much of swap, of so many bytes, the run had at most, where the kernel tells that some was always
    /// free. The kernel kills then too, now and then (docs/memory.md).
    fn swap_left_free(&self, swap_bytes: u64) -> Option<u64> {
        let group = &self.group;
        // What lies in DRAM counts in the second.
        let most = group.swap_max_bytes.or(group.with_swap_max_bytes)?;
        (group.swap_refusals.unwrap_or(0) == 0 && most < nearly_all(swap_bytes)).then_some(most)
    }

    /// Its figures under their names; what the kernel does not tell is null.
    pub(super) fn json(&self) -> Value {
        let group = &self.group;
        let mut value = json!({
            "pid": self.pid,
            "program": self.program,
            "limit_bytes": self.budget_bytes(),
            "resident_bytes": group.usage_bytes,
            "resident_max_bytes": group.usage_max_bytes,
            "room_bytes": self.room_bytes(),
            "swapped_bytes": group.swap_bytes,
            "zswap_bytes": self.zswap_bytes(),
            "major_faults": group.major_faults,
            "direct_stalls": group.limit_hits,
            "written_bytes": group.swapped_out_bytes,
            "oom_kills": group.oom_kills,
        });
        for counter in RoomCounter::ALL {
            value[counter.name()] = self.counted_ahead(counter).into();
        }
        value
    }

    /// The same with rates since an earlier look.
    pub(super) fn json_since(&self, before: Option<&Self>, time: Duration) -> Value {
        let mut value = self.json();
        value["faults_per_s"] = self.rate(before, time, |run| run.group.major_faults).into();
        value["processors"] = self.processors.into();
        value["direct_stalls_per_s"] = self.rate(before, time, |run| run.group.limit_hits).into();
        value
    }

    fn rate(&self, before: Option<&Self>, time: Duration, of: impl Fn(&Self) -> Option<u64>) -> Option<f64> {
        let more = of(self)?.saturating_sub(of(before?)?);
        (!time.is_zero()).then(|| more as f64 / time.as_secs_f64())
    }
}

/// So much of swap is taken when the kernel gives up: it takes slots in groups, of which some are left.
fn nearly_all(swap_bytes: u64) -> u64 {
    swap_bytes - swap_bytes / 16
}

/// The run that was the same at an earlier look.
pub(super) fn earlier<'a>(runs: &'a [SwapRun], run: &SwapRun) -> Option<&'a SwapRun> {
    runs.iter().find(|before| before.pid == run.pid)
}

/// A line for each run, 80 columns wide, with what its columns mean.
pub(super) fn table(first: &[SwapRun], second: &[SwapRun], time: Duration) -> String {
    let mut text = format!(
        "{:>7} {:<15}{:>7}{:>7}{:>7}{:>10}{:>10}{:>8}{:>7}\n",
        "pid", "on swap", "dram", "room", "ssd", "faults/s", "stalls/s", "ahead", "wrote"
    );
    let size = |bytes: Option<u64>| bytes.map_or("-".to_owned(), short);
    for run in second {
        let before = earlier(first, run);
        let rate = |of: fn(&SwapRun) -> Option<u64>| {
            run.rate(before, time, of).map_or("-".to_owned(), |rate| format!("{rate:.0}"))
        };
        let _ = writeln!(
            text,
            "{:>7} {:<15}{:>7}{:>7}{:>7}{:>10}{:>10}{:>8}{:>7}",
            run.pid,
            shown_name(&run.program, 15),
            size(run.group.usage_bytes),
            size(run.room_bytes()),
            size(run.group.swap_bytes),
            rate(|run| run.group.major_faults),
            rate(|run| run.group.limit_hits),
            size(run.counted_ahead(RoomCounter::Freed)),
            size(run.group.swapped_out_bytes)
        );
    }
    text + "\ndram, room (below the budget), ssd: now; faults/s: pages read from the SSD;\n\
            stalls/s: times a thread met the budget; ahead: freed before it was needed\n"
}

/// OpenMetrics text, without its end: a family for each figure, a sample for each run.
pub(super) fn metrics<'a>(runs: &'a [SwapRun]) -> String {
    let mut text = String::new();
    let mut figure =
        |name: &str, type_name: &str, unit: Option<&str>, of: &dyn Fn(&SwapRun) -> Option<f64>| {
            let sample = |run: &'a SwapRun| Some((run.pid, run.program.as_str(), of(run)?.to_string()));
            let samples: Vec<_> = runs.iter().filter_map(sample).collect();
            if !samples.is_empty() {
                text += &family(&format!("overdrive_extend_swap_{name}"), type_name, unit, samples);
            }
        };
    let number = |value: Option<u64>| value.map(|value| value as f64);
    figure("limit_bytes", GAUGE, Some("bytes"), &|run| number(run.budget_bytes()));
    figure("resident_bytes", GAUGE, Some("bytes"), &|run| number(run.group.usage_bytes));
    figure("room_bytes", GAUGE, Some("bytes"), &|run| number(run.room_bytes()));
    figure("swapped_bytes", GAUGE, Some("bytes"), &|run| number(run.group.swap_bytes));
    figure("zswap_bytes", GAUGE, Some("bytes"), &|run| number(run.zswap_bytes()));
    figure("major_faults", COUNTER, None, &|run| number(run.group.major_faults));
    figure("direct_stalls", COUNTER, None, &|run| number(run.group.limit_hits));
    figure("written_bytes", COUNTER, Some("bytes"), &|run| number(run.group.swapped_out_bytes));
    figure("oom_kills", COUNTER, None, &|run| number(run.group.oom_kills));
    let ahead = |counter: RoomCounter| move |run: &SwapRun| number(run.counted_ahead(counter));
    figure("freed_ahead_bytes", COUNTER, Some("bytes"), &ahead(RoomCounter::Freed));
    figure("ahead_slices", COUNTER, None, &ahead(RoomCounter::Slices));
    figure("ahead_seconds", COUNTER, Some("seconds"), &|run| {
        run.counted_ahead(RoomCounter::Time).map(|ns| ns as f64 / 1e9)
    });
    figure("ahead_fruitless", COUNTER, None, &ahead(RoomCounter::Fruitless));
    figure("read_ahead_bytes", COUNTER, Some("bytes"), &ahead(RoomCounter::ReadAhead));
    figure("read_ahead_used_bytes", COUNTER, Some("bytes"), &ahead(RoomCounter::ReadAheadUsed));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(faults: u64) -> SwapRun {
        let group = GroupCounters {
            limit_bytes: Some(256 << 20),
            usage_bytes: Some(252 << 20),
            swap_bytes: Some(300 << 20),
            major_faults: Some(faults),
            limit_hits: Some(7),
            ..GroupCounters::default()
        };
        let room = RoomCounters { values: vec![1 << 30, 10, 2_500_000_000, 0, 64 << 20, 60 << 20] };
        SwapRun {
            pid: 4_194_303,
            program: "a \"long\" name of a program".to_owned(),
            processors: Some(2),
            group,
            budget: None,
            room: Some(room),
        }
    }

    #[test]
    fn the_table_has_rates_and_fits_80_columns() {
        let text = table(&[run(1000)], &[run(201_000)], Duration::from_secs(2));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let line = text.lines().nth(1).unwrap();
        for word in ["4194303", "252M", "4.0M", "300M", "100000", " 0 ", "1.0G", "-"] {
            assert!(line.contains(word), "{word}: {line}");
        }
    }

    #[test]
    fn a_name_does_not_steer_the_terminal() {
        let mut run = run(1);
        run.program = "a\x1b[2J\n".to_owned();
        let text = table(&[], &[run], Duration::ZERO);
        assert!(text.contains(" a?[2J? ") && !text.contains('\x1b'), "{text}");
    }

    #[test]
    fn the_budget_is_shown_where_zswap_takes_a_part_of_it() {
        let mut run = run(5);
        assert_eq!(
            (&run.json()["limit_bytes"], &run.json()["zswap_bytes"]),
            (&json!(256 << 20), &Value::Null)
        );
        run.budget = Some(Budget { bytes: 320 << 20, zswap_bytes: Some(64 << 20) });
        let value = run.json();
        assert_eq!((&value["limit_bytes"], &value["zswap_bytes"]), (&json!(320 << 20), &json!(64 << 20)));
        assert_eq!(value["room_bytes"], 4 << 20, "below what the kernel keeps");
        let text = metrics(&[run]);
        for (name, mib) in [("limit", 320), ("zswap", 64), ("room", 4)] {
            assert!(
                text.contains(&format!("overdrive_extend_swap_{name}_bytes{{"))
                    && text.contains(&format!("}} {}\n", mib << 20)),
                "{name}: {text}"
            );
        }
    }

    #[test]
    fn a_kill_for_want_of_memory_is_told_with_what_would_do() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store {
            folder: folder.path().to_owned(),
            device: None,
            bytes: 64 << 20,
            shares_disk_with_swap: None,
            interrupted_cpus: Vec::new(),
        };
        let mut run = run(5);
        assert_eq!(run.want_of_memory(&store, true), None, "what was not counted was not killed");
        run.group.oom_kills = Some(0);
        assert_eq!(run.want_of_memory(&store, false), None);
        run.group.oom_kills = Some(1);
        let mut told = |refusals, most, with_swap| {
            run.group.swap_refusals = refusals;
            (run.group.swap_max_bytes, run.group.with_swap_max_bytes) = (most, with_swap);
            run.want_of_memory(&store, true).unwrap()
        };
        let wanted = format!("wanted --store {}:128MiB or more", folder.path().display());
        let fulls = [
            told(Some(3), None, None),
            told(Some(0), Some(63 << 20), None),
            told(None, None, Some(319 << 20)),
        ];
        for full in fulls {
            assert!(full.contains("256 MiB of DRAM and 64 MiB of swap were full") && full.contains(&wanted));
        }
        for unknown in [told(None, None, None), told(None, None, Some(300 << 20))] {
            assert!(unknown.contains(&wanted) && !unknown.contains("full"), "{unknown}");
        }
        for free in [told(Some(0), Some(9 << 20), None), told(None, None, Some(9 << 20))] {
            assert!(
                free.contains("while swap was free (at most 9 MiB of 64 MiB in use): wanted more --dram")
            );
            assert!(!free.contains("--store"), "{free}");
        }
        let gone = run.want_of_memory(&store, false).unwrap();
        assert!(gone.contains("turned the run's swap area off") && !gone.contains("--store"), "{gone}");
    }

    #[test]
    fn what_the_kernel_does_not_tell_is_null_and_no_metric() {
        let mut run = run(5);
        let value = run.json_since(None, Duration::ZERO);
        assert_eq!((&value["major_faults"], &value["room_bytes"]), (&json!(5), &json!(4 << 20)));
        assert!(value["written_bytes"].is_null() && value["faults_per_s"].is_null(), "{value}");
        assert_eq!(value["freed_ahead_bytes"], 1 << 30);
        let text = metrics(std::slice::from_ref(&run));
        for line in ["resident_bytes{", "major_faults_total{", "ahead_seconds_total{"] {
            assert!(text.contains(&format!("overdrive_extend_swap_{line}")), "{line}: {text}");
        }
        assert!(text.contains("} 2.5\n") && !text.contains("written_bytes"), "{text}");
        run.room = None;
        assert!(run.json()["freed_ahead_bytes"].is_null() && !metrics(&[run]).contains("ahead"));
        assert_eq!(metrics(&[]), "");
    }
}
