//! Times of commands that watch counters.

use overdrive_base::time::parse_duration;
use std::time::Duration;

/// How long counters are watched once: too few of them move in less than the least of it.
pub(super) fn parse_watch(text: &str) -> Result<Duration, String> {
    match parse_pause::<10>(text) {
        Ok(time) if time <= Duration::from_secs(3600) => Ok(time),
        Ok(_) => Err("wanted at least 10ms and at most an hour".to_owned()),
        Err(why) => Err(why),
    }
}

/// A time of at least so many milliseconds.
pub(super) fn parse_pause<const LEAST_MS: u64>(text: &str) -> Result<Duration, String> {
    match parse_duration(text).map_err(|error| error.to_string())? {
        time if time < Duration::from_millis(LEAST_MS) => Err(format!("wanted at least {LEAST_MS}ms")),
        time => Ok(time),
    }
}
