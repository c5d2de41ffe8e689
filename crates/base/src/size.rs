//! Byte counts as people type and read them: `4k`, `64KiB`, `1.5GiB`.
//!
//! As in fio, `k`, `m`, `g`, `t` and `p` alone mean powers of 1024; `KB`, `MB`... mean powers of 1000.

use thiserror::Error;

/// A text that is not a byte count.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SizeError {
    /// Number or unit cannot be read, or the value does not fit.
    #[error(
        "'{text}' is not a size: {reason}; wanted a number with an optional unit, such as 4096, 4k, 64KiB or 1.5GiB"
    )]
    Unreadable {
        /// What was read.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A number alone, where nobody means single bytes.
    #[error("'{0}' has no unit; wanted a unit, such as {0}GiB")]
    NoUnit(String),
}

/// Bytes in one KiB.
pub const KIB: u64 = 1 << 10;
/// Bytes in one MiB.
pub const MIB: u64 = 1 << 20;
/// Bytes in one GiB.
pub const GIB: u64 = 1 << 30;

/// Reads a byte count such as `4096`, `4k`, `64KiB`, `1.5GiB` or `2GB`.
///
/// # Errors
/// When the number or the unit cannot be read, or the value is negative or does not fit 64 bits.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let fail = |reason| SizeError::Unreadable { text: text.to_owned(), reason };
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    if number.is_empty() {
        return Err(fail("no number"));
    }
    let scale = unit_bytes(unit.trim()).ok_or_else(|| fail("unknown unit"))?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale).ok_or_else(|| fail("too large"));
    }
    let value: f64 = number.parse().map_err(|_| fail("not a number"))?;
    let bytes = value * scale as f64;
    if bytes >= u64::MAX as f64 {
        return Err(fail("too large"));
    }
    Ok(bytes.round() as u64)
}

/// Reads a byte count that is never a few bytes, such as a size of memory: a number alone would be a slip.
///
/// # Errors
/// As [`parse_size`], and when there is no unit, unless it is zero.
pub fn parse_size_with_unit(text: &str) -> Result<u64, SizeError> {
    match parse_size(text)? {
        bytes if bytes > 0 && !ends_in_unit(text) => Err(SizeError::NoUnit(text.trim().to_owned())),
        bytes => Ok(bytes),
    }
}

/// Whether a quantity that was read has a unit behind its number.
pub(crate) fn ends_in_unit(text: &str) -> bool {
    text.trim().ends_with(char::is_alphabetic)
}

fn unit_bytes(unit: &str) -> Option<u64> {
    let lower = unit.to_ascii_lowercase();
    Some(match lower.as_str() {
        "" | "b" => 1,
        "k" | "ki" | "kib" => KIB,
        "m" | "mi" | "mib" => MIB,
        "g" | "gi" | "gib" => GIB,
        "t" | "ti" | "tib" => GIB << 10,
        "p" | "pi" | "pib" => GIB << 20,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "pb" => 1_000_000_000_000_000,
        _ => return None,
    })
}

/// Shows a byte count in the largest binary unit that keeps it readable: `4 KiB`, `1.5 GiB`, `17 B`.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_units_as_fio_does() {
        for (text, bytes) in [
            ("4096", 4096),
            ("4k", 4096),
            ("64KiB", 65536),
            ("1.5GiB", 3 * GIB / 2),
            ("2GB", 2_000_000_000),
            ("20.5PB", 20_500_000_000_000_000),
            (" 1 m ", MIB),
            ("0", 0),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_size() {
        for text in ["", "k", "-1", "4x", "1.2.3k", "99999999999999999999", "1e400t", "20000000t"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn asks_for_a_unit_where_bytes_would_be_a_slip() {
        for text in ["0", "0.0", "384GiB", "40 g", "7b"] {
            assert_eq!(parse_size_with_unit(text), parse_size(text), "{text}");
        }
        for text in ["384", " 384 "] {
            let error = parse_size_with_unit(text).unwrap_err().to_string();
            assert_eq!(error, "'384' has no unit; wanted a unit, such as 384GiB");
        }
        assert_eq!(parse_size_with_unit("4x"), parse_size("4x"));
    }

    #[test]
    fn shows_a_readable_unit() {
        for (bytes, text) in
            [(17, "17 B"), (4096, "4 KiB"), (3 * GIB / 2, "1.5 GiB"), (1000 * MIB, "1000 MiB")]
        {
            assert_eq!(format_size(bytes), text);
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*") {
            let _ = parse_size(&text);
        }

        #[test]
        fn shown_sizes_read_back_within_half_a_percent(bytes in 1u64..(1 << 50)) {
            let back = parse_size(&format_size(bytes)).unwrap();
            prop_assert!((back as f64 / bytes as f64 - 1.0).abs() <= 0.005, "{bytes} -> {back}");
        }
    }
}
