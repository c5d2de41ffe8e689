//! Values as fio spells them, for every front end.

use super::{Access, Advice, Distribution, Operation, SizeShare, SyncMode, Zone};
use crate::steady::{Figure, Limit, SteadyState, Test};
use overdrive_base::size::parse_size;
use overdrive_base::time::parse_duration;
use std::fmt::Display;
use thiserror::Error;

/// A value that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{text}': {reason}; wanted {wanted}")]
pub struct WordError {
    text: String,
    reason: String,
    wanted: &'static str,
}

const DISTRIBUTIONS: &str =
    "random, zipf:THETA, pareto:H, normal:DEVIATION% or zoned:ACCESS/SIZE:..., as in zoned:80/20:20/80";

/// Reads `random`, `zipf:1.2`, `pareto:0.2`, `normal:20` or `zoned:60/10:30/20:10/70`.
///
/// # Errors
/// [`WordError`] says what cannot be read and what was wanted.
pub fn parse_distribution(text: &str) -> Result<Distribution, WordError> {
    let fail =
        |reason: &str| WordError { text: text.to_owned(), reason: reason.to_owned(), wanted: DISTRIBUTIONS };
    let (name, value) = text.split_once(':').unwrap_or((text, ""));
    let number = |usual: f64| match value.trim_end_matches('%') {
        "" => Ok(usual),
        text => text.parse().map_err(|_| fail("not a number")),
    };
    Ok(match name {
        "random" if value.is_empty() => Distribution::Uniform,
        "zipf" => Distribution::Zipf { theta: number(1.1)? },
        "pareto" => Distribution::Pareto { h: number(0.2)? },
        "normal" | "gauss" => Distribution::Normal { deviation_percent: number(20.0)? },
        "zoned" => {
            let zone = |part: &str| {
                let (access, size) = part.split_once('/').ok_or_else(|| fail("a zone without '/'"))?;
                let percent = |text: &str| text.parse().map_err(|_| fail("not a percentage"));
                Ok(Zone { access_percent: percent(access)?, size_percent: percent(size)? })
            };
            Distribution::Zoned(value.split(':').map(zone).collect::<Result<_, _>>()?)
        }
        _ => return Err(fail("unknown distribution")),
    })
}

/// A distribution as [`parse_distribution`] reads it.
#[must_use]
pub fn distribution_words(distribution: &Distribution) -> String {
    match distribution {
        Distribution::Uniform => "random".to_owned(),
        Distribution::Zipf { theta } => format!("zipf:{theta}"),
        Distribution::Pareto { h } => format!("pareto:{h}"),
        Distribution::Normal { deviation_percent } => format!("normal:{deviation_percent}"),
        Distribution::Zoned(zones) => {
            let zone = |zone: &Zone| format!("{}/{}", zone.access_percent, zone.size_percent);
            format!("zoned:{}", zones.iter().map(zone).collect::<Vec<String>>().join(":"))
        }
    }
}

const SPLITS: &str = "SIZE/PERCENT:..., as in 4k/60:64k/40; sizes without a percentage share the rest";

/// Reads fio's bssplit: `4k/60:64k/40`, where sizes without a percentage share what is left. What a size is
/// worth `read_size` says: job files and command lines have units of their own.
///
/// # Errors
/// [`WordError`] says what cannot be read and what was wanted.
pub fn parse_bssplit<E: Display>(
    text: &str,
    read_size: impl Fn(&str) -> Result<u64, E>,
) -> Result<Vec<SizeShare>, WordError> {
    let fail = |reason: String| WordError { text: text.to_owned(), reason, wanted: SPLITS };
    let part = |part: &str| {
        let (size, percent) = part.split_once('/').unwrap_or((part, ""));
        let bytes = read_size(size).map_err(|error| fail(error.to_string()))?;
        let percent = match percent {
            "" => None,
            text => Some(text.parse::<u8>().map_err(|_| fail(format!("'{text}' is not a percentage")))?),
        };
        Ok((bytes, percent))
    };
    let parts: Vec<(u64, Option<u8>)> = text.split(':').map(part).collect::<Result<_, _>>()?;
    let given: u32 = parts.iter().filter_map(|part| part.1).map(u32::from).sum();
    let open = parts.iter().filter(|part| part.1.is_none()).count() as u32;
    let rest = 100u32.checked_sub(given).ok_or_else(|| fail(format!("the shares add up to {given} %")))?;
    let mut seen = 0;
    let share = |(bytes, percent): (u64, Option<u8>)| {
        let percent = percent.unwrap_or_else(|| {
            seen += 1;
            // What does not divide evenly goes to the first ones.
            (rest / open + u32::from(seen <= rest % open)) as u8
        });
        SizeShare { bytes, percent }
    };
    Ok(parts.into_iter().map(share).collect())
}

const PATTERNS: &str = "\"text\", 0xHEX or a whole number, one after the other, as in \"abc\"0xff";

/// Reads fio's buffer_pattern: texts in double quotes, bytes in hexadecimal, and whole numbers (their bytes,
/// lowest first), in any order. Files and formats such as %o are not read.
///
/// # Errors
/// [`WordError`] says what cannot be read and what was wanted.
pub fn parse_buffer_pattern(text: &str) -> Result<Vec<u8>, WordError> {
    let fail =
        |reason: &str| WordError { text: text.to_owned(), reason: reason.to_owned(), wanted: PATTERNS };
    let mut bytes = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let hexadecimal = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X"));
        if let Some(quoted) = rest.strip_prefix('"') {
            let (quoted, after) = quoted.split_once('"').ok_or_else(|| fail("a text without its end"))?;
            bytes.extend(quoted.bytes());
            rest = after;
        } else if let Some(digits) = hexadecimal {
            let more = digits.len() >= 3 && digits.contains(['x', 'X']);
            let length = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
            // In 0xff0x14 the second 0 begins a number of its own.
            let length = if more && digits[length..].starts_with(['x', 'X']) {
                length.saturating_sub(1)
            } else {
                length
            };
            bytes.extend(hex_bytes(&digits[..length]).ok_or_else(|| fail("no hexadecimal digits"))?);
            rest = &digits[length..];
        } else {
            let length = rest.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(rest.len());
            let length =
                if rest[length..].starts_with(['x', 'X']) { length.saturating_sub(1) } else { length };
            let number = rest[..length].parse::<i64>().ok().filter(|n| i32::try_from(*n).is_ok());
            let number = number.ok_or_else(|| fail("not a number of 32 bits"))? as u32;
            let used = (4 - number.leading_zeros() as usize / 8).max(1);
            bytes.extend(&number.to_le_bytes()[..used]);
            rest = &rest[length..];
        }
    }
    if bytes.is_empty() { Err(fail("it is empty")) } else { Ok(bytes) }
}

/// Digits two by two; the first one alone when their number is odd.
fn hex_bytes(digits: &str) -> Option<Vec<u8>> {
    let odd = digits.len() % 2;
    let first = (odd > 0).then(|| u8::from_str_radix(&digits[..odd], 16).ok());
    let pairs = digits.as_bytes()[odd..]
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()));
    let bytes: Vec<u8> = first.into_iter().chain(pairs).collect::<Option<_>>()?;
    (!bytes.is_empty()).then_some(bytes)
}

const SYNCS: &str = "none, sync or dsync (0 and 1 are none and sync)";

/// Reads fio's sync: `none`, `sync`, `dsync`, `0` or `1`.
///
/// # Errors
/// [`WordError`] says what was wanted.
pub fn parse_sync(text: &str) -> Result<SyncMode, WordError> {
    match text {
        "none" | "0" => Ok(SyncMode::None),
        "sync" | "1" => Ok(SyncMode::Sync),
        "dsync" => Ok(SyncMode::DataSync),
        _ => Err(unknown(text, SYNCS)),
    }
}

const ADVICE: &str = "1 (as accessed), 0 (none), random or sequential";

/// Reads fio's fadvise_hint: `0`, `1`, `random` or `sequential`.
///
/// # Errors
/// [`WordError`] says what was wanted.
pub fn parse_advice(text: &str) -> Result<Advice, WordError> {
    match text {
        "0" | "none" => Ok(Advice::None),
        "1" => Ok(Advice::AsAccessed),
        "random" => Ok(Advice::Random),
        "sequential" => Ok(Advice::Sequential),
        _ => Err(unknown(text, ADVICE)),
    }
}

const STEADY: &str = "iops, bw or lat, or one of them with _slope, and a limit: iops:0.3% or lat_slope:2us";

/// Reads fio's steadystate: `iops:0.3%`, `bw_slope:10`, `lat:2us`; a limit in per cent of the mean, in I/Os
/// or bytes a second, or in a latency.
///
/// # Errors
/// [`WordError`] says what was wanted.
pub fn parse_steady_state(text: &str) -> Result<(Figure, Test, Limit), WordError> {
    let fail = |reason: &str| WordError { text: text.to_owned(), reason: reason.to_owned(), wanted: STEADY };
    let (name, limit) = text.split_once(':').ok_or_else(|| fail("no ':'"))?;
    let (name, test) = match name.strip_suffix("_slope") {
        Some(name) => (name, Test::Slope),
        None => (name, Test::Deviation),
    };
    let figure = match name {
        "iops" => Figure::Iops,
        "bw" => Figure::Bandwidth,
        "lat" => Figure::Latency,
        _ => return Err(fail("unknown figure")),
    };
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
    let limit = match (limit.strip_suffix('%'), figure) {
        (Some(percent), _) => number(percent).map(Limit::Percent),
        (None, Figure::Iops) => number(limit).map(Limit::Absolute),
        (None, Figure::Bandwidth) => parse_size(limit).ok().map(|bytes| Limit::Absolute(bytes as f64)),
        (None, Figure::Latency) => {
            parse_duration(limit).ok().map(|time| Limit::Absolute(time.as_nanos() as f64))
        }
    };
    Ok((figure, test, limit.ok_or_else(|| fail("a limit that cannot be read"))?))
}

/// Reads fio's percentile_list: `50:99:99.9`.
///
/// # Errors
/// [`WordError`] says what was wanted.
pub fn parse_percentiles(text: &str) -> Result<Vec<f64>, WordError> {
    let wanted = "percentiles above 0 and at most 100, as in 50:99:99.9";
    let fail = || WordError { text: text.to_owned(), reason: "not a percentile".to_owned(), wanted };
    let one = |part: &str| part.parse::<f64>().ok().filter(|wanted| *wanted > 0.0 && *wanted <= 100.0);
    text.split(':').map(|part| one(part).ok_or_else(fail)).collect()
}

/// A steady state as [`parse_steady_state`] reads it, latencies in nanoseconds.
#[must_use]
pub fn steady_state_words(steady: &SteadyState) -> String {
    let figure = match steady.figure {
        Figure::Iops => "iops",
        Figure::Bandwidth => "bw",
        Figure::Latency => "lat",
    };
    let slope = if steady.test == Test::Slope { "_slope" } else { "" };
    match (steady.limit, steady.figure) {
        (Limit::Percent(percent), _) => format!("{figure}{slope}:{percent}%"),
        (Limit::Absolute(ns), Figure::Latency) => format!("{figure}{slope}:{ns}ns"),
        (Limit::Absolute(value), _) => format!("{figure}{slope}:{value}"),
    }
}

/// fio's word for what is done in which order: `randread`, `rw` and the like.
#[must_use]
pub fn rw_word(access: Access, operation: Operation) -> &'static str {
    match (access, operation) {
        (Access::Sequential, Operation::Read) => "read",
        (Access::Sequential, Operation::Write) => "write",
        (Access::Sequential, Operation::Trim) => "trim",
        (Access::Random, Operation::Trim) => "randtrim",
        (Access::Sequential, Operation::Mixed { .. }) => "rw",
        (Access::Random, Operation::Read) => "randread",
        (Access::Random, Operation::Write) => "randwrite",
        (Access::Random, Operation::Mixed { .. }) => "randrw",
    }
}

fn unknown(text: &str, wanted: &'static str) -> WordError {
    WordError { text: text.to_owned(), reason: "unknown value".to_owned(), wanted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(text: &str) -> Result<Vec<SizeShare>, WordError> {
        parse_bssplit(text, parse_size)
    }

    #[test]
    fn reads_distributions() {
        assert_eq!(parse_distribution("random"), Ok(Distribution::Uniform));
        assert_eq!(parse_distribution("zipf:1.2"), Ok(Distribution::Zipf { theta: 1.2 }));
        assert_eq!(parse_distribution("pareto:0.3"), Ok(Distribution::Pareto { h: 0.3 }));
        assert_eq!(parse_distribution("normal:20%"), Ok(Distribution::Normal { deviation_percent: 20.0 }));
        let zone = |access_percent, size_percent| Zone { access_percent, size_percent };
        assert_eq!(
            parse_distribution("zoned:80/20:20/80"),
            Ok(Distribution::Zoned(vec![zone(80, 20), zone(20, 80)]))
        );
        for text in ["", "zip", "zipf:x", "zoned:", "zoned:80", "random:1"] {
            assert!(parse_distribution(text).unwrap_err().to_string().contains("wanted random"), "{text}");
        }
    }

    #[test]
    fn reads_splits() {
        let share = |bytes, percent| SizeShare { bytes, percent };
        assert_eq!(split("4k/60:64k/40"), Ok(vec![share(4096, 60), share(65536, 40)]));
        assert_eq!(split("4k/50:8k/:16k"), Ok(vec![share(4096, 50), share(8192, 25), share(16384, 25)]));
        assert_eq!(split("4k:8k:16k").unwrap().iter().map(|s| u32::from(s.percent)).sum::<u32>(), 100);
        for text in ["", "4k/x", "4k/60:8k/60", "x/50"] {
            assert!(split(text).is_err(), "{text}");
        }
    }

    #[test]
    fn reads_buffer_patterns() {
        for (text, bytes) in [
            (r#""abcd""#, &b"abcd"[..]),
            ("-1024", &[0x00, 0xfc, 0xff, 0xff]),
            ("66", &[0x42]),
            ("0", &[0]),
            ("0xFF0X1", &[0xff, 0x01]),
            ("0xdeadface", &[0xde, 0xad, 0xfa, 0xce]),
            (r#""123"0xFFeeCC"#, &[0x31, 0x32, 0x33, 0xff, 0xee, 0xcc]),
            (r#"-100xab"1""#, &[0xf6, 0xff, 0xff, 0xff, 0xab, 0x31]),
        ] {
            assert_eq!(parse_buffer_pattern(text).unwrap(), bytes, "{text}");
        }
        for text in ["", "abcd", "\"abc", "0x", "0xzz", "0xX0", "'file'", "%o", "99999999999", "\"\""] {
            assert!(parse_buffer_pattern(text).unwrap_err().to_string().contains("wanted"), "{text}");
        }
    }

    #[test]
    fn reads_steady_states_and_percentiles() {
        assert_eq!(
            parse_steady_state("iops_slope:0.3%"),
            Ok((Figure::Iops, Test::Slope, Limit::Percent(0.3)))
        );
        assert_eq!(
            parse_steady_state("lat:2us"),
            Ok((Figure::Latency, Test::Deviation, Limit::Absolute(2000.0)))
        );
        assert_eq!(
            parse_steady_state("bw:1k"),
            Ok((Figure::Bandwidth, Test::Deviation, Limit::Absolute(1024.0)))
        );
        for text in ["", "iops", "iops:", "iops:x%", "rate:1", "lat:9parsec"] {
            assert!(parse_steady_state(text).unwrap_err().to_string().contains("lat_slope"), "{text}");
        }
        assert_eq!(parse_percentiles("50:99.9"), Ok(vec![50.0, 99.9]));
        assert!(["", "0", "101", "50,99", "nan"].iter().all(|text| parse_percentiles(text).is_err()));
    }

    #[test]
    fn reads_sync_and_advice() {
        assert_eq!((parse_sync("dsync"), parse_sync("1")), (Ok(SyncMode::DataSync), Ok(SyncMode::Sync)));
        assert_eq!(parse_advice("random"), Ok(Advice::Random));
        assert!(parse_sync("2").is_err() && parse_advice("2").is_err());
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".*") {
            let _ = (parse_buffer_pattern(&text), parse_buffer_pattern(&format!("0x{text}")));
            let _ = (parse_distribution(&text), parse_distribution(&format!("zoned:{text}")), split(&text));
        }
    }
}
