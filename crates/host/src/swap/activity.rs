//! What swap is doing: the kernel's counters, rates between two looks, and what the writes mean for a drive.

use crate::facts::parse;
use crate::root::Root;
use overdrive_base::size::format_size;

const PAGE_BYTES: u64 = 4096;
const DAY_S: f64 = 86_400.0;

/// Counters since boot; `None`: this kernel does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pages read from swap.
    pub swap_ins: Option<u64>,
    /// Pages written to swap.
    pub swap_outs: Option<u64>,
    /// Pages that zswap brought back from compressed memory.
    pub zswap_ins: Option<u64>,
    /// Pages that zswap took in.
    pub zswap_outs: Option<u64>,
    /// Pages read ahead of their fault.
    pub read_ahead: Option<u64>,
    /// Of these, pages that a fault found in memory.
    pub read_ahead_hits: Option<u64>,
    /// Anonymous pages that came back soon after they had been evicted.
    pub refaults: Option<u64>,
    /// Times a task had to reclaim memory itself before it got any.
    pub direct_stalls: Option<u64>,
    /// Pages looked at by tasks themselves.
    pub direct_scanned: Option<u64>,
    /// Pages looked at by kswapd.
    pub kswapd_scanned: Option<u64>,
    /// Microseconds in which some task waited for memory.
    pub stalled_some_us: Option<u64>,
    /// Microseconds in which all running tasks did.
    pub stalled_full_us: Option<u64>,
}

impl Counters {
    /// The counters now.
    #[must_use]
    pub fn read(root: &Root) -> Counters {
        let vmstat = root.text("/proc/vmstat");
        let vmstat = vmstat.value().map_or("", String::as_str);
        let pressure = root.text("/proc/pressure/memory");
        let pressure = pressure.value().map_or("", String::as_str);
        let key = |key: &str| {
            vmstat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
        };
        let stalls: Vec<u64> = vmstat
            .lines()
            .filter(|line| line.starts_with("allocstall"))
            .filter_map(|line| line.split_once(' ')?.1.trim().parse().ok())
            .collect();
        let total = |kind: &str| {
            let line = pressure.lines().find(|line| line.starts_with(kind))?;
            line.split(' ').find_map(|word| word.strip_prefix("total=")?.parse().ok())
        };
        Counters {
            swap_ins: key("pswpin"),
            swap_outs: key("pswpout"),
            zswap_ins: key("zswpin"),
            zswap_outs: key("zswpout"),
            read_ahead: key("swap_ra"),
            read_ahead_hits: key("swap_ra_hit"),
            refaults: key("workingset_refault_anon").or_else(|| key("workingset_refault")),
            direct_stalls: (!stalls.is_empty()).then(|| parse::sum(&stalls)),
            direct_scanned: key("pgscan_direct"),
            kswapd_scanned: key("pgscan_kswapd"),
            stalled_some_us: total("some"),
            stalled_full_us: total("full"),
        }
    }

    /// What happened since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Counters) -> Counters {
        let between = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Counters {
            swap_ins: between(self.swap_ins, earlier.swap_ins),
            swap_outs: between(self.swap_outs, earlier.swap_outs),
            zswap_ins: between(self.zswap_ins, earlier.zswap_ins),
            zswap_outs: between(self.zswap_outs, earlier.zswap_outs),
            read_ahead: between(self.read_ahead, earlier.read_ahead),
            read_ahead_hits: between(self.read_ahead_hits, earlier.read_ahead_hits),
            refaults: between(self.refaults, earlier.refaults),
            direct_stalls: between(self.direct_stalls, earlier.direct_stalls),
            direct_scanned: between(self.direct_scanned, earlier.direct_scanned),
            kswapd_scanned: between(self.kswapd_scanned, earlier.kswapd_scanned),
            stalled_some_us: between(self.stalled_some_us, earlier.stalled_some_us),
            stalled_full_us: between(self.stalled_full_us, earlier.stalled_full_us),
        }
    }

    /// Of the pages read ahead, how many were used, in per cent.
    #[must_use]
    pub fn read_ahead_hit_percent(&self) -> Option<f64> {
        let (hits, all) = (self.read_ahead_hits?, self.read_ahead?);
        (all > 0).then(|| 100.0 * hits as f64 / all as f64)
    }

    /// Bytes swapped out a day, if this went on as in these `seconds`.
    #[must_use]
    pub fn written_bytes_a_day(&self, seconds: f64) -> Option<f64> {
        let bytes = self.swap_outs?.saturating_mul(PAGE_BYTES) as f64;
        (seconds > 0.0).then(|| bytes * DAY_S / seconds)
    }
}

/// What is known of a drive's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drive {
    /// Its size.
    pub size_bytes: u64,
    /// What hosts have written to it, where it tells.
    pub written_bytes: Option<u128>,
    /// How much of its life that has used, in per cent.
    pub used_percent: Option<u8>,
}

/// What so many bytes a day mean for a drive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wear {
    /// Times the whole drive is written a day.
    pub drive_writes_a_day: f64,
    /// Years until its life is used, by what its life has cost so far.
    pub years_left: Option<f64>,
}

impl Wear {
    /// The wear of a drive that takes all of these bytes.
    #[must_use]
    pub fn of(bytes_a_day: f64, drive: &Drive) -> Wear {
        let used = drive.used_percent.filter(|&percent| percent > 0).map(f64::from);
        let life_bytes = used.zip(drive.written_bytes).map(|(used, written)| written as f64 * 100.0 / used);
        let left = |life: f64| (life - drive.written_bytes.unwrap_or(0) as f64).max(0.0);
        Wear {
            drive_writes_a_day: bytes_a_day / drive.size_bytes.max(1) as f64,
            years_left: life_bytes
                .filter(|_| bytes_a_day > 0.0)
                .map(|life| left(life) / bytes_a_day / 365.25),
        }
    }

    /// In words, with the classes that drives are sold in; `is_at_most`: the drive may take less.
    #[must_use]
    pub fn told(&self, bytes_a_day: f64, is_at_most: bool) -> String {
        let written = format_size(bytes_a_day as u64);
        let (most, least) = if is_at_most { ("at most ", "at least ") } else { ("", "") };
        let rating = match self.drive_writes_a_day {
            times if times <= 1.0 => "within the 1 a day of read-intensive drives",
            times if times <= 3.0 => {
                "above the 1 a day of read-intensive drives, within the 3 of mixed-use ones"
            }
            times if times <= 10.0 => "above the 3 a day of mixed-use drives",
            times if times <= 60.0 => "for write-intensive drives only, such as Optane's 30 to 60 a day",
            _ => "beyond what any drive is rated for",
        };
        let years = match self.years_left {
            Some(years) => {
                format!("; {least}{years:.1} years until its life is used, by what that has cost so far")
            }
            None => String::new(),
        };
        format!("{most}{written} a day: {:.2} times the drive, {rating}{years}", self.drive_writes_a_day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_become_rates_and_shares() {
        let root = |outs: u64, stalls: u64| {
            Root::from_capture(&format!(
                "/proc/vmstat |\n|pswpin 7\n|pswpout {outs}\n|zswpout {stalls}\n|swap_ra 100\n|swap_ra_hit 25\n\
                 |allocstall_normal {stalls}\n|allocstall_movable 2\n|pgscan_direct 5\n\
                 /proc/pressure/memory |\n|some avg10=0.00 total=12\n|full avg10=0.00 total=9\n"
            ))
            .unwrap()
        };
        let happened = Counters::read(&root(1_000, 9)).since(&Counters::read(&root(0, 4)));
        assert_eq!((happened.swap_outs, happened.direct_stalls), (Some(1000), Some(5)));
        assert_eq!((happened.swap_ins, happened.stalled_full_us), (Some(0), Some(0)));
        assert_eq!((happened.zswap_ins, happened.zswap_outs), (None, Some(5)));
        assert_eq!(happened.refaults, None, "a kernel that does not tell is not a zero");
        assert_eq!(Counters::read(&root(0, 0)).read_ahead_hit_percent(), Some(25.0));
        assert_eq!(happened.read_ahead_hit_percent(), None);
        assert_eq!(happened.written_bytes_a_day(1.0), Some(4_096_000.0 * 86_400.0));
        assert_eq!(happened.written_bytes_a_day(0.0), None);
    }

    #[test]
    fn wear_is_told_by_what_life_has_cost() {
        let drive = Drive { size_bytes: 1 << 40, written_bytes: Some(100 << 40), used_percent: Some(10) };
        let a_day = 2.0 * (1u64 << 40) as f64;
        let wear = Wear::of(a_day, &drive);
        // 100 TiB were a tenth; 900 TiB are left, at 2 TiB a day.
        assert!((wear.years_left.unwrap() - 450.0 / 365.25).abs() < 1e-9, "{wear:?}");
        let text = wear.told(a_day, false);
        assert!(
            text.starts_with("2 TiB a day: 2.00 times the drive") && text.contains("mixed-use"),
            "{text}"
        );
        let text = wear.told(a_day, true);
        assert!(text.starts_with("at most 2 TiB a day") && text.contains("; at least 1.2 years"), "{text}");
        let silent = Drive { written_bytes: None, used_percent: None, ..drive };
        assert_eq!(Wear::of(a_day, &silent).years_left, None);
        assert!(Wear::of(80.0 * a_day, &silent).told(80.0 * a_day, false).contains("beyond what any drive"));
        assert_eq!(Wear::of(0.0, &drive).years_left, None);
    }
}
