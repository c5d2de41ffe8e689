//! Durations as people type them (`30s`, `500ms`) and latencies as people read them (`7.57 us`).

use crate::size::ends_in_unit;
use std::time::Duration;
use thiserror::Error;

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DurationError {
    /// Number or unit cannot be read, or the value is out of range.
    #[error(
        "'{text}' is not a duration: {reason}; wanted a number with a unit, such as 200us, 500ms, 30s, 5m or 2h"
    )]
    Unreadable {
        /// What was read.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A number alone, where nobody means seconds.
    #[error("'{0}' has no unit; wanted a unit, such as {0}us")]
    NoUnit(String),
}

/// Reads `30s`, `500ms`, `200us`, `10ns`, `5m`, `2h`; a bare number is seconds, as in fio.
///
/// # Errors
/// When the number or the unit cannot be read or the value is out of range.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let fail = |reason| DurationError::Unreadable { text: text.to_owned(), reason };
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let nanoseconds_each = match unit.trim() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "" | "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => return Err(fail("unknown unit")),
    };
    let value: f64 = number.parse().map_err(|_| fail("not a number"))?;
    let nanoseconds = value * nanoseconds_each;
    if nanoseconds >= u64::MAX as f64 {
        return Err(fail("too long"));
    }
    Ok(Duration::from_nanos(nanoseconds.round() as u64))
}

/// Reads a latency, which is hardly ever meant in seconds: a number alone would be a slip.
///
/// # Errors
/// As [`parse_duration`], and when there is no unit, unless it is zero.
pub fn parse_latency(text: &str) -> Result<Duration, DurationError> {
    match parse_duration(text)? {
        latency if !latency.is_zero() && !ends_in_unit(text) => {
            Err(DurationError::NoUnit(text.trim().to_owned()))
        }
        latency => Ok(latency),
    }
}

/// Shows nanoseconds in the unit an engineer would use, three significant digits: `850 ns`, `7.57 us`,
/// `1.20 ms`.
#[must_use]
pub fn format_ns(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    let (scaled, unit) = match nanoseconds {
        0..1_000 => return format!("{nanoseconds} ns"),
        1_000..1_000_000 => (value / 1e3, "us"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(scaled))
}

/// Shows a duration of a run: `2.5 s`, `45 s`, `3m05s`, `2h10m`.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => {
            let text = format!("{:.1}", duration.as_secs_f64());
            format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
        }
        10..120 => format!("{:.0} s", duration.as_secs_f64()),
        120..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Shows a value of at least 1 with three significant digits: `1.20`, `34.0`, `850`.
#[must_use]
pub fn three_digits(value: f64) -> String {
    if value >= 99.95 {
        format!("{value:.0}")
    } else if value >= 9.995 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_units() {
        for (text, nanoseconds) in [
            ("30s", 30_000_000_000),
            ("500ms", 500_000_000),
            ("1.5us", 1_500),
            ("10", 10_000_000_000),
            ("2m", 120_000_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_duration() {
        for text in ["", "s", "-1s", "3 parsecs", "1e99h", "99999999999999h", "."] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_latency_has_a_unit() {
        for text in ["0", "200us", "1.5 µs", "1s"] {
            assert_eq!(parse_latency(text), parse_duration(text), "{text}");
        }
        let error = parse_latency("200").unwrap_err().to_string();
        assert_eq!(error, "'200' has no unit; wanted a unit, such as 200us");
        assert_eq!(parse_latency("fast"), parse_duration("fast"));
    }

    #[test]
    fn shows_three_digits() {
        for (nanoseconds, text) in [
            (850, "850 ns"),
            (7_570, "7.57 us"),
            (34_000, "34.0 us"),
            (1_200_000, "1.20 ms"),
            (999_960, "1000 us"),
        ] {
            assert_eq!(format_ns(nanoseconds), text);
        }
        assert_eq!(format_duration(Duration::from_millis(2500)), "2.5 s");
        assert_eq!(format_duration(Duration::from_secs(185)), "3m05s");
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*") {
            let _ = parse_duration(&text);
        }
    }
}
