//! `overdrive swap status`: the areas, and what swap is doing while it is watched and has done since boot.

use super::show::sections;
use crate::cmd::tune::{occasion, state_folder};
use crate::exit::{Ending, Refused, refuse};
use crate::flags::{StateFlags, SwapStatusFlags};
use crate::output;
use anyhow::Result;
use overdrive_base::size::format_size;
use overdrive_host::Root;
use overdrive_host::change::Kind;
use overdrive_host::change::driver::Driver;
use overdrive_host::change::system::HostSystem;
use overdrive_host::facts::memory::{SwapArea, read_swaps};
use overdrive_host::swap::activity::{Counters, Drive, Wear};
use overdrive_host::swap::share::{Share, drive_name, shares};
use overdrive_host::target::{TargetFacts, TargetIdentity};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

/// Everything that is shown.
struct Seen {
    areas: Vec<SwapArea>,
    /// The set of each area that Overdrive turned on.
    sets: Vec<Option<u64>>,
    drives: Vec<Share>,
    is_zswap_on: bool,
    boot: Counters,
    now: Counters,
    watched_s: f64,
    uptime_s: f64,
}

/// Watches for a moment and prints.
pub(super) fn status(flags: &SwapStatusFlags) -> Result<Ending> {
    let root = Root::new("/");
    let areas = read_swaps(&root);
    if areas.value().is_none() && !areas.is_absent() {
        refuse!("/proc/swaps: {}", areas.why().unwrap_or_default());
    }
    let areas = areas.value().cloned().unwrap_or_default();
    let before = Counters::read(&root);
    let start = Instant::now();
    std::thread::sleep(flags.interval);
    let boot = Counters::read(&root);
    let watched_s = start.elapsed().as_secs_f64();
    let uptime = root.text("/proc/uptime");
    let uptime_s = uptime.value().and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0.0);
    let below: Vec<_> = areas.iter().map(|area| (area.clone(), drives(&root, area))).collect();
    let seen = Seen {
        sets: sets(&areas, &flags.state)?,
        drives: shares(&below),
        is_zswap_on: zswap_is_on(&root),
        now: boot.since(&before),
        areas,
        boot,
        watched_s,
        uptime_s,
    };
    if flags.json {
        output::print(&format!("{}\n", seen.json()))?;
    } else {
        sections(&seen.lines())?;
    }
    Ok(Ending::Done)
}

fn zswap_is_on(root: &Root) -> bool {
    root.text("/sys/module/zswap/parameters/enabled").value().is_some_and(|text| text.trim() == "Y")
}

/// Which areas are in the journal, and in which set.
fn sets(areas: &[SwapArea], state: &StateFlags) -> Result<Vec<Option<u64>>> {
    let (root, folder) = (Path::new("/"), state_folder(state, Path::new("/"))?);
    // Somebody who may not read the journal still sees the areas.
    let Ok(Some(mut system)) = HostSystem::look(root, &folder) else { return Ok(vec![None; areas.len()]) };
    let driver = Driver::new(&mut system, occasion(root)).map_err(|error| Refused(error.to_string()))?;
    let set_of = |area: &SwapArea| {
        let sets = driver.state().sets.iter();
        sets.filter(|(_, set)| {
            set.changes.values().any(|it| it.is_live() && it.what == Kind::SwapArea && it.path == area.path)
        })
        .map(|(&number, _)| number)
        .next_back()
    };
    Ok(areas.iter().map(set_of).collect())
}

/// The drives below an area, each once whatever paths lead to it, and what they tell of their lives.
fn drives(root: &Root, area: &SwapArea) -> Vec<(String, Drive)> {
    let mut found: Vec<(String, Drive)> = Vec::new();
    let target =
        TargetIdentity::at(Path::new(&area.path)).and_then(|identity| TargetFacts::trace(root, &identity));
    for disk in target.iter().flat_map(|target| &target.disks) {
        let Some(size_bytes) = disk.block.size_bytes.get() else { continue };
        let smart = disk.nvme.as_ref().and_then(|nvme| nvme.admin.smart.value());
        let drive = Drive {
            size_bytes,
            written_bytes: smart.map(|smart| smart.written_bytes),
            used_percent: smart.map(|smart| smart.used_percent),
        };
        let name = drive_name(disk.name());
        if found.iter().all(|(known, _)| *known != name) {
            found.push((name, drive));
        }
    }
    found
}

impl Seen {
    fn lines(&self) -> Vec<(String, String)> {
        let mut lines: Vec<(String, String)> = self.areas.iter().zip(&self.sets).map(area_line).collect();
        if lines.is_empty() {
            lines.push(("Areas".to_owned(), "none is on".to_owned()));
        }
        let period = format!("over {:.2} s", self.watched_s);
        lines.push(("Swapping".to_owned(), format!("{} ({period})", rates(&self.now, self.watched_s))));
        lines.push(("Since boot".to_owned(), rates(&self.boot, self.uptime_s)));
        lines.extend(self.zswap());
        lines.push(("Read-ahead".to_owned(), self.read_ahead()));
        lines.push(("Reclaim".to_owned(), self.reclaim()));
        lines.push(("Pressure".to_owned(), self.pressure()));
        lines.extend(self.wear());
        lines
    }

    /// What zswap does, where it is on or still gives pages back: none of it is counted as swapping.
    fn zswap(&self) -> Option<(String, String)> {
        let of = |counters: &Counters, seconds: f64| {
            format!(
                "{} pages/s in, {} out",
                rate(counters.zswap_ins, seconds),
                rate(counters.zswap_outs, seconds)
            )
        };
        let (now, boot) = (of(&self.now, self.watched_s), of(&self.boot, self.uptime_s));
        let is_at_work = self.is_zswap_on || self.now.zswap_ins.is_some_and(|ins| ins > 0);
        is_at_work.then(|| ("zswap".to_owned(), format!("compressed memory: {now} now; {boot} since boot")))
    }

    fn read_ahead(&self) -> String {
        let of = |counters: &Counters, when: &str| match (
            counters.read_ahead_hit_percent(),
            counters.read_ahead,
        ) {
            (Some(percent), Some(pages)) => format!("{percent:.0} % of {pages} pages were used {when}"),
            (None, Some(_)) => format!("no page {when}"),
            _ => "not told by this kernel".to_owned(),
        };
        format!("{}, {}", of(&self.now, "now"), of(&self.boot, "since boot"))
    }

    fn reclaim(&self) -> String {
        let scanned = |counters: &Counters| {
            let (direct, kswapd) = (counters.direct_scanned?, counters.kswapd_scanned?);
            Some(format!("{:.0} %", 100.0 * direct as f64 / (direct + kswapd).max(1) as f64))
        };
        format!(
            "{} a second by programs themselves now, {} since boot; of the pages looked at, {} now and {} since boot",
            rate(self.now.direct_stalls, self.watched_s),
            number(self.boot.direct_stalls),
            scanned(&self.now).unwrap_or_else(|| "-".to_owned()),
            scanned(&self.boot).unwrap_or_else(|| "-".to_owned()),
        )
    }

    fn pressure(&self) -> String {
        let share = |us: Option<u64>| {
            us.map_or_else(
                || "not told by this kernel".to_owned(),
                |us| format!("{:.2} %", us as f64 / 1e4 / self.watched_s.max(1e-3)),
            )
        };
        let (some, full) = (share(self.now.stalled_some_us), share(self.now.stalled_full_us));
        format!("some task waited for memory {some} of the time, all of them {full}")
    }

    /// What a drive takes of what is swapped out.
    fn wear(&self) -> Vec<(String, String)> {
        let periods = [
            ("now", self.now.written_bytes_a_day(self.watched_s)),
            ("since boot", self.boot.written_bytes_a_day(self.uptime_s)),
        ];
        let mut lines = Vec::new();
        for Share { name, drive, part, is_at_most } in &self.drives {
            for (when, bytes) in periods.iter().filter_map(|(when, bytes)| Some((when, (*bytes)? * part))) {
                let told = Wear::of(bytes, drive).told(bytes, *is_at_most);
                lines.push((format!("Wear {name}"), format!("{told} (as {when})")));
            }
        }
        lines
    }

    fn json(&self) -> Value {
        let areas = self.areas.iter().zip(&self.sets).map(|(area, set)| {
            json!({
                "path": area.path, "kind": area.kind, "size_bytes": area.size_bytes,
                "used_bytes": area.used_bytes, "priority": area.priority, "set": set,
            })
        });
        let period = |counters: &Counters, seconds: f64| {
            let a_second = |count: Option<u64>| Some(count? as f64 / seconds.max(1e-3));
            json!({
                "seconds": seconds,
                "swap_ins_per_s": a_second(counters.swap_ins),
                "swap_outs_per_s": a_second(counters.swap_outs),
                "zswap_ins_per_s": a_second(counters.zswap_ins),
                "zswap_outs_per_s": a_second(counters.zswap_outs),
                "read_ahead_hit_percent": counters.read_ahead_hit_percent(),
                "refaults_per_s": a_second(counters.refaults),
                "direct_reclaims_per_s": a_second(counters.direct_stalls),
                "direct_scanned": counters.direct_scanned,
                "kswapd_scanned": counters.kswapd_scanned,
                "stalled_some_us": counters.stalled_some_us,
                "stalled_full_us": counters.stalled_full_us,
                "written_bytes_per_day": counters.written_bytes_a_day(seconds),
            })
        };
        let drives = self.drives.iter().map(|Share { name, drive, part, is_at_most }| {
            let bytes = self.boot.written_bytes_a_day(self.uptime_s).map(|bytes| bytes * part);
            let wear = bytes.map(|bytes| Wear::of(bytes, drive));
            json!({
                "name": name, "size_bytes": drive.size_bytes,
                "life_used_percent": drive.used_percent,
                "drive_writes_per_day": wear.map(|wear| wear.drive_writes_a_day),
                "years_left": wear.and_then(|wear| wear.years_left),
                "is_at_most": is_at_most,
            })
        });
        json!({
            "schema": "overdrive.swap-status/1",
            "areas": areas.collect::<Vec<_>>(),
            "now": period(&self.now, self.watched_s),
            "since_boot": period(&self.boot, self.uptime_s),
            "drives": drives.collect::<Vec<_>>(),
        })
    }
}

fn area_line((area, set): (&SwapArea, &Option<u64>)) -> (String, String) {
    let share = 100.0 * area.used_bytes as f64 / area.size_bytes.max(1) as f64;
    let ours = set.map_or(String::new(), |set| format!(", of set {set}"));
    let text = format!(
        "{} ({}): {} of {} used ({share:.0} %), priority {}{ours}",
        area.path,
        area.kind,
        format_size(area.used_bytes),
        format_size(area.size_bytes),
        area.priority
    );
    ("Area".to_owned(), text)
}

fn rates(counters: &Counters, seconds: f64) -> String {
    format!(
        "{} pages/s in, {} out, {} refaults/s",
        rate(counters.swap_ins, seconds),
        rate(counters.swap_outs, seconds),
        rate(counters.refaults, seconds)
    )
}

fn rate(count: Option<u64>, seconds: f64) -> String {
    count.map_or_else(
        || "-".to_owned(),
        |count| match count as f64 / seconds.max(1e-3) {
            few if few > 0.0 && few < 10.0 => format!("{few:.2}"),
            rate => format!("{rate:.0}"),
        },
    )
}

fn number(count: Option<u64>) -> String {
    count.map_or_else(|| "-".to_owned(), |count| count.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_zswap_does_is_shown_where_it_is_on_or_gives_pages_back() {
        let mut seen = Seen {
            areas: Vec::new(),
            sets: Vec::new(),
            drives: Vec::new(),
            is_zswap_on: true,
            boot: Counters { zswap_ins: Some(600), zswap_outs: Some(1200), ..Counters::default() },
            now: Counters { zswap_ins: Some(0), zswap_outs: Some(50), ..Counters::default() },
            watched_s: 0.5,
            uptime_s: 60.0,
        };
        let line = |seen: &Seen| seen.lines().into_iter().find(|(title, _)| title == "zswap");
        let text = "compressed memory: 0 pages/s in, 100 out now; 10 pages/s in, 20 out since boot";
        assert_eq!(line(&seen).unwrap().1, text);
        assert_eq!(seen.json()["now"]["zswap_outs_per_s"], 100.0);
        seen.is_zswap_on = false;
        assert_eq!(line(&seen), None);
        seen.now.zswap_ins = Some(1);
        assert!(line(&seen).is_some(), "it was turned off with pages in it");
    }
}
