//! Values as fio reads them: sizes, times, numbers, lists.

use crate::front::Extent;
pub(super) use crate::front::number;
use std::time::Duration;

/// A byte count. As in fio, `k`, `kb`, `m`, `mb`... are powers of 1024 and `ki`, `kib`... powers of 1000,
/// unless `decimal` (fio's kb_base=1000) turns that around; hexadecimal numbers begin with 0x.
pub(super) fn size(text: &str, decimal: bool) -> Result<u64, String> {
    let wanted = "wanted a size such as 4096, 4k, 1m or 2g";
    let fail = |why: &str| format!("'{text}' {why}; {wanted}");
    let lower = text.trim().to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).map_err(|_| fail("is not a hexadecimal number"));
    }
    let split = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
    let (number, unit) = lower.split_at(split);
    let unit = unit.strip_suffix('b').unwrap_or(unit);
    let (unit, marked) = unit.strip_suffix('i').map_or((unit, false), |unit| (unit, true));
    let power = match unit {
        "" if !marked => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return Err(fail("has an unknown unit")),
    };
    let base: u64 = if marked != decimal { 1000 } else { 1024 };
    let scale = base.pow(power);
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale).ok_or_else(|| fail("is too large"));
    }
    let value: f64 = number.parse().map_err(|_| fail("is not a number"))?;
    let bytes = value * scale as f64;
    if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(fail("is too large")) }
}

/// A byte count or a share of the target such as `50%`.
pub(super) fn extent(text: &str, decimal: bool) -> Result<Extent, String> {
    let Some(percent) = text.trim().strip_suffix('%') else { return size(text, decimal).map(Extent::Bytes) };
    match percent.trim().parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Extent::Percent(percent)),
        _ => Err(format!("'{text}' is not a share; wanted 0% to 100%")),
    }
}

/// A time; a bare number is in `unit`.
pub(super) fn time(text: &str, unit: &str) -> Result<Duration, String> {
    let lower = text.trim().to_ascii_lowercase();
    let split = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
    let (number, given) = lower.split_at(split);
    let seconds_each = match if given.is_empty() { unit } else { given.trim() } {
        "d" => 86_400.0,
        "h" => 3600.0,
        "m" => 60.0,
        "s" => 1.0,
        "ms" | "msec" => 1e-3,
        "us" | "usec" => 1e-6,
        "ns" | "nsec" => 1e-9,
        _ => return Err(format!("'{text}' has an unknown unit of time; wanted d, h, m, s, ms or us")),
    };
    let value: f64 =
        number.parse().map_err(|_| format!("'{text}' is not a time; wanted one such as 30s, 5m or 500ms"))?;
    Duration::try_from_secs_f64(value * seconds_each)
        .ok()
        .filter(|time| *time <= crate::job::NO_TIME_LIMIT)
        .ok_or_else(|| format!("'{text}' is longer than a year"))
}

/// Whether an option is on; without a value it is.
pub(super) fn switch(text: Option<&str>) -> Result<bool, String> {
    match text.map(str::trim) {
        None | Some("1" | "true") => Ok(true),
        Some("0" | "false") => Ok(false),
        Some(other) => Err(format!("'{other}' is neither 0 nor 1")),
    }
}

/// Values for reads, writes and trims.
pub(super) type ByDirection<T> = (Option<T>, Option<T>, Option<T>);

/// Up to three values with a comma between them, for reads, writes and trims; fewer count for the rest too.
pub(super) fn by_direction<T: Copy>(
    text: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<ByDirection<T>, String> {
    let parts =
        text.split(',').map(|part| if part.trim().is_empty() { Ok(None) } else { read(part).map(Some) });
    // fio fills in what is left out with what stands before it, except for a value that is empty.
    match parts.collect::<Result<Vec<_>, _>>()?[..] {
        [all] => Ok((all, all, all)),
        [reads, others] => Ok((reads, others, others)),
        [reads, writes, trims] => Ok((reads, writes, trims)),
        _ => Err(format!("'{text}' has more than three values; wanted at most reads,writes,trims")),
    }
}

/// A list of CPUs such as `0-3,8`.
pub(in crate::front) fn cpus(text: &str) -> Result<Vec<usize>, String> {
    const CPUS_MAX: usize = 8192;
    let wanted = || format!("'{text}' is not a list of CPUs; wanted one such as 0-3,8");
    let mut cpus = Vec::new();
    for part in text.split([',', ':']).map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let read = |text: &str| text.trim().parse::<usize>().ok().filter(|&cpu| cpu < CPUS_MAX);
        let (first, last) = read(first).zip(read(last)).filter(|(a, b)| a <= b).ok_or_else(wanted)?;
        cpus.extend(first..=last);
        if cpus.len() > CPUS_MAX {
            return Err(wanted());
        }
    }
    Ok(cpus)
}

/// Percentiles with a colon between them, at most 20 as in fio.
pub(super) fn percentiles(text: &str) -> Result<Vec<f64>, String> {
    let one = |part: &str| part.trim().parse::<f64>().ok().filter(|p| (0.0..=100.0).contains(p));
    let all: Option<Vec<f64>> = text.split([':', ',']).map(one).collect();
    let mut all = all
        .filter(|all| all.len() <= 20)
        .ok_or_else(|| format!("'{text}': wanted up to 20 numbers from 0 to 100, as in 50:99:99.9"))?;
    all.sort_by(f64::total_cmp);
    all.dedup();
    Ok(all)
}

/// Names with a colon between them; a colon behind a backslash belongs to the name, as does the one of
/// `sim:KEY=VALUE`.
pub(super) fn names(text: &str) -> Vec<String> {
    let mut names: Vec<String> = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek() == Some(&':') => {
                names.last_mut().into_iter().for_each(|name| name.push(':'));
            }
            '\\' => names.last_mut().into_iter().for_each(|name| name.push('\\')),
            ':' => {
                let rest: String = letters.clone().take_while(|&c| c != ':').collect();
                match names.last_mut() {
                    Some(name) if name == "sim" && rest.contains('=') => name.push(':'),
                    _ => names.push(String::new()),
                }
                continue;
            }
            other => names.last_mut().into_iter().for_each(|name| name.push(other)),
        }
        if letter == '\\' && letters.peek() == Some(&':') {
            letters.next();
        }
    }
    names.retain(|name| !name.trim().is_empty());
    names
}
